/* Until glibc 2.33 the stat family was not in libc.so.6 but in libc_nonshared.a, as one-line calls of __xstat and its
   like, which every later glibc keeps for old programs. A newer host's libc_nonshared.a has lost them. No header is
   included: the host's would declare what is defined here. The struct is passed through, never looked into. */

struct stat;

#if defined(__x86_64__)
#define STAT_VERSION 1
#else /* the generic Linux ABI, aarch64 among it */
#define STAT_VERSION 0
#endif
#define MKNOD_VERSION 0
#define HIDDEN __attribute__((visibility("hidden")))

extern int __xstat(int, const char *, struct stat *);
extern int __lxstat(int, const char *, struct stat *);
extern int __fxstat(int, int, struct stat *);
extern int __fxstatat(int, int, const char *, struct stat *, int);
extern int __xmknod(int, const char *, unsigned, unsigned long *);
extern int __xmknodat(int, int, const char *, unsigned, unsigned long *);

HIDDEN int stat(const char *path, struct stat *result) { return __xstat(STAT_VERSION, path, result); }
HIDDEN int lstat(const char *path, struct stat *result) { return __lxstat(STAT_VERSION, path, result); }
HIDDEN int fstat(int file, struct stat *result) { return __fxstat(STAT_VERSION, file, result); }
HIDDEN int fstatat(int folder, const char *path, struct stat *result, int flags)
{
    return __fxstatat(STAT_VERSION, folder, path, result, flags);
}
HIDDEN int mknod(const char *path, unsigned mode, unsigned long device)
{
    return __xmknod(MKNOD_VERSION, path, mode, &device);
}
HIDDEN int mknodat(int folder, const char *path, unsigned mode, unsigned long device)
{
    return __xmknodat(MKNOD_VERSION, folder, path, mode, &device);
}

/* With 64-bit file sizes both names mean the same function on both CPUs. */
HIDDEN int stat64(const char *path, struct stat *result) { return __xstat(STAT_VERSION, path, result); }
HIDDEN int lstat64(const char *path, struct stat *result) { return __lxstat(STAT_VERSION, path, result); }
HIDDEN int fstat64(int file, struct stat *result) { return __fxstat(STAT_VERSION, file, result); }
HIDDEN int fstatat64(int folder, const char *path, struct stat *result, int flags)
{
    return __fxstatat(STAT_VERSION, folder, path, result, flags);
}
