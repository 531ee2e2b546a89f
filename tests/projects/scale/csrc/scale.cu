#include "scale.h"

namespace {

__global__ void kernel(float* data, float factor, int64_t count) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index < count) {
    data[index] *= factor;
  }
}

}  // namespace

void scale_on_cuda(float* data, float factor, int64_t count, void* stream) {
  kernel<<<static_cast<unsigned int>((count + 255) / 256), 256, 0, static_cast<cudaStream_t>(stream)>>>(data, factor, count);
}
