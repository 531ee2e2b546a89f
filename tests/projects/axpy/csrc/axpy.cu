#include "axpy.h"

// Two symbols that only this file knows: nvcc puts a hash of the file's path into their names.
static __constant__ float unit = 1.0f;

namespace {

__global__ void axpy_kernel(float* out, float factor, const float* x, const float* y, int64_t count) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; index < count; index += stride) {
    out[index] = factor * x[index] + unit * y[index];
  }
}

}  // namespace

int axpy_launch(float* out, float factor, const float* x, const float* y, int64_t count, void* stream) {
  if (count == 0) {
    return 0;
  }
  const int64_t blocks = (count + 255) / 256;
  const unsigned int grid = blocks < 65535 ? static_cast<unsigned int>(blocks) : 65535u;
  axpy_kernel<<<grid, 256, 0, static_cast<cudaStream_t>(stream)>>>(out, factor, x, y, count);
  return static_cast<int>(cudaGetLastError());
}
