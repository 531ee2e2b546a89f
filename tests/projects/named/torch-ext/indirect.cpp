#include "name.h"

__attribute__((used)) static const char indirect[] = "indirect:" KERNEL_NAME;
