#include "answer.h"
#include "registration.h"

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)

// Visible, so that tests can call it once they know where it is.
__attribute__((used)) static int keep() { return answer(); }
