#include <answer.h>

int other() { return 21; }
