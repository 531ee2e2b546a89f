#include "glue.h"

int glue() { return plain() + 1; }
