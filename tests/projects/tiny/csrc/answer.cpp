#include "answer.h"

int answer() { return other() + 21; }
