#pragma once

// Counts as torch's: it stands for all headers that do, and compiles in no time.
#include "registration.h"

#include "plain.h"

int glue();
