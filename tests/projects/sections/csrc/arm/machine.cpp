#error "for ARM only"
