#include "plain.h"

namespace {

__global__ void kernel(int* out) { *out = 42; }

}  // namespace

int by_macro() {
  kernel<<<1, 1>>>(nullptr);
  return host();
}
