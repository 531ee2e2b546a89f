#include "double.cuh"

int libraries();

namespace {

__global__ void kernel(int* out) { *out = twice(21) + calls; }

}  // namespace

int answer() {
  kernel<<<1, 1>>>(nullptr);
  return libraries() + static_cast<int>(cudaGetLastError());
}
