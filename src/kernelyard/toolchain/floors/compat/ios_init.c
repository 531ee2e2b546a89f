/* From GCC 13 on libstdc++.so sets up cout and its like when it is loaded, and <iostream> no longer does it in every file
   but refers to this name (GLIBCXX_3.4.32) to be sure of such a library. An older one has to be asked, as older headers
   asked it; the constructor counts, so that asking a newer one does no harm. The member of libstdc++.a that has the name
   would bring a second cout with it. */

extern void construct(void *) __asm__("_ZNSt8ios_base4InitC1Ev");
extern void destroy(void *) __asm__("_ZNSt8ios_base4InitD1Ev");

__attribute__((visibility("hidden"))) void library_init(void) __asm__("_ZSt21ios_base_library_initv");

/* An empty class in C++: one byte that nobody reads. */
static char init;

void library_init(void)
{
}

/* 101 is the first priority that programs may use: before every constructor of the author's, after every destructor. */
__attribute__((constructor(101))) static void set_up(void)
{
    construct(&init);
}

__attribute__((destructor(101))) static void flush(void)
{
    destroy(&init);
}
