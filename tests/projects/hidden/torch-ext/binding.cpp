#include "hidden.h"
#include "registration.h"

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)

namespace {

__attribute__((used)) int keep() { return hidden(1) + other(2); }
__attribute__((used)) const char* where() { return __FILE__; }

}  // namespace
