#include "table.h"

int answer() { return squares[0] + squares[1] + squares[2]; }
