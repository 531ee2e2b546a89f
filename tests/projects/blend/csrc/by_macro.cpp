// Nobody but the preprocessor knows what this includes.
#define HEADER "plain.h"
#include HEADER

int by_macro() { return plain(); }
