#include "part.h"

int part() { return 40; }
