/* glibc 2.32 added this flag, and libstdc++'s inline headers read it. Zero means "there may be threads": atomic
   instructions are always used, which is right everywhere. It is hidden, so that the C library's own stays the one. */
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
