/* Loads libraries made of everything.cpp, runs each, and lets each catch what each throws. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments)
{
    void *libraries[count];
    int failures = 0;

    for (int i = 1; i < count; i++) {
        libraries[i] = dlopen(arguments[i], RTLD_NOW);
        if (libraries[i] == NULL)
            return fprintf(stderr, "%s\n", dlerror()), 1;
        failures += ((int (*)(void))dlsym(libraries[i], "run"))();
    }
    for (int i = 1; i < count; i++)
        for (int j = 1; j < count; j++)
            failures += ((int (*)(void *))dlsym(libraries[i], "survive"))(dlsym(libraries[j], "fail"));
    printf("failures %d\n", failures);
    return 0;
}
