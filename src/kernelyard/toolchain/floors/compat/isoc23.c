/* From glibc 2.38 on, headers send strtol, sscanf and their family to names of their own, which also read C23's binary
   literals ("0b101"). Older libraries have only the functions of before, and those are what a program that is to run on
   them can have. No header is included: it would send the calls below to the new names again. */

#define HIDDEN __attribute__((visibility("hidden")))

/* name(text, end, base) and its variant with a locale */
#define INTEGER(RESULT, CHARACTER, NAME)                                                                           \
    extern RESULT NAME(const CHARACTER *, CHARACTER **, int);                                                      \
    HIDDEN RESULT __isoc23_##NAME(const CHARACTER *text, CHARACTER **end, int base)                                \
    {                                                                                                              \
        return NAME(text, end, base);                                                                              \
    }
#define INTEGER_L(RESULT, CHARACTER, NAME)                                                                         \
    extern RESULT NAME(const CHARACTER *, CHARACTER **, int, void *);                                              \
    HIDDEN RESULT __isoc23_##NAME(const CHARACTER *text, CHARACTER **end, int base, void *locale)                  \
    {                                                                                                              \
        return NAME(text, end, base, locale);                                                                      \
    }

INTEGER(long, char, strtol)
INTEGER(long long, char, strtoll)
INTEGER(unsigned long, char, strtoul)
INTEGER(unsigned long long, char, strtoull)
INTEGER(long, char, strtoimax)
INTEGER(unsigned long, char, strtoumax)
INTEGER_L(long, char, strtol_l)
INTEGER_L(long long, char, strtoll_l)
INTEGER_L(unsigned long, char, strtoul_l)
INTEGER_L(unsigned long long, char, strtoull_l)
INTEGER(long, __WCHAR_TYPE__, wcstol)
INTEGER(long long, __WCHAR_TYPE__, wcstoll)
INTEGER(unsigned long, __WCHAR_TYPE__, wcstoul)
INTEGER(unsigned long long, __WCHAR_TYPE__, wcstoull)

/* vname(from, format, arguments) and name(from, format, ...), from a text or a stream */
#define SCAN(CHARACTER, FROM, NAME)                                                                                \
    extern int __isoc99_v##NAME(FROM *, const CHARACTER *, __builtin_va_list);                                     \
    HIDDEN int __isoc23_v##NAME(FROM *from, const CHARACTER *format, __builtin_va_list arguments)                  \
    {                                                                                                              \
        return __isoc99_v##NAME(from, format, arguments);                                                          \
    }                                                                                                              \
    HIDDEN int __isoc23_##NAME(FROM *from, const CHARACTER *format, ...)                                           \
    {                                                                                                              \
        __builtin_va_list arguments;                                                                               \
        __builtin_va_start(arguments, format);                                                                     \
        int read = __isoc99_v##NAME(from, format, arguments);                                                      \
        __builtin_va_end(arguments);                                                                               \
        return read;                                                                                               \
    }

SCAN(char, const char, sscanf)
SCAN(char, void, fscanf)
SCAN(__WCHAR_TYPE__, const __WCHAR_TYPE__, swscanf)
