#include "registration.h"

// TORCH_EXTENSION_NAME in a comment does not count.
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
