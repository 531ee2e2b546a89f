#include "registration.h"

int answer();

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)

__attribute__((used)) static int keep() { return answer(); }
