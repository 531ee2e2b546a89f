#include "launch.cuh"
#include "square.h"

namespace {

__global__ void square_kernel(float* out, const float* x, int64_t count) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; index < count; index += stride) {
    out[index] = x[index] * x[index];
  }
}

}  // namespace

int square_launch(float* out, const float* x, int64_t count, void* stream) {
  square_kernel<<<blocks_for(count), 256, 0, static_cast<cudaStream_t>(stream)>>>(out, x, count);
  return last_error();
}
