#include "registration.h"

int old_version();
int new_version();

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)

__attribute__((used)) static int keep() { return old_version() + new_version(); }
