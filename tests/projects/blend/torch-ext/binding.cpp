#include "../csrc/glue.h"

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)

__attribute__((used)) static int keep() { return glue(); }
