#include "answer.h"

namespace {

__global__ void kernel(int* out) { *out = 42; }

}  // namespace

int answer() {
  kernel<<<1, 1>>>(nullptr);
  return other() + static_cast<int>(cudaGetLastError());
}
