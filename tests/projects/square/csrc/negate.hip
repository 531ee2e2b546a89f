#include <hip/hip_runtime.h>

#include "square.h"

namespace {

__global__ void negate_kernel(float* out, const float* x, int64_t count) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index < count) {
    out[index] = -x[index];
  }
}

}  // namespace

int negate_launch(float* out, const float* x, int64_t count, void* stream) {
  const auto blocks = static_cast<unsigned int>((count + 255) / 256);
  negate_kernel<<<blocks, 256, 0, static_cast<hipStream_t>(stream)>>>(out, x, count);
  return static_cast<int>(hipGetLastError());
}
