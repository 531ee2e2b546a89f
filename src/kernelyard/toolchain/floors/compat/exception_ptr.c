/* From GCC 11 on, <exception> counts references to an exception by two functions that older libraries keep to themselves
   (CXXABI_1.3.13): every std::exception_ptr, std::future and std::async needs them. What older libraries do export is
   the copy constructor, which adds a reference, and the destructor, which drops one. The member of libstdc++.a that has
   the two would bring a second terminate handler with it. */

#define HIDDEN __attribute__((visibility("hidden")))

struct exception_ptr {
    void *object;
};

extern void copy(struct exception_ptr *, const struct exception_ptr *)
    __asm__("_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
extern void destroy(struct exception_ptr *) __asm__("_ZNSt15__exception_ptr13exception_ptrD1Ev");

HIDDEN void add_reference(struct exception_ptr *) __asm__("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
HIDDEN void drop_reference(struct exception_ptr *) __asm__("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");

void add_reference(struct exception_ptr *pointer)
{
    struct exception_ptr never_destroyed;
    copy(&never_destroyed, pointer);
}

void drop_reference(struct exception_ptr *pointer)
{
    destroy(pointer);
}
