/* GCC 13 and later call this (CXXABI_1.3.15) where an exception leaves a noexcept function. The member of libstdc++.a that
   has it would bring a second terminate handler with it. */

extern void *__cxa_begin_catch(void *);
extern void terminate(void) __asm__("_ZSt9terminatev") __attribute__((noreturn));

__attribute__((visibility("hidden"), noreturn)) void __cxa_call_terminate(void *exception)
{
    if (exception)
        __cxa_begin_catch(exception);
    terminate();
}
