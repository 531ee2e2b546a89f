int machine() { return 2; }
