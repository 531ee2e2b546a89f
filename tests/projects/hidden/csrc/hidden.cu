#include "hidden.h"

#undef NDEBUG
#include <cassert>

#include "where.h"

static __device__ int factor = 3;
static __constant__ int offsets[4] = {1, 2, 3, 4};

namespace {

__device__ int calls = 0;

__device__ int scale(int value) {
  assert(value < 1000 && "too large");
  return value * factor + offsets[value & 3];
}

template <typename F>
__global__ void apply(int* out, F function) {
  atomicAdd(&calls, 1);
  *out = scale(function(*out));
}

}  // namespace

static __global__ void reset() { calls = 0; }

int hidden(int value) {
  int* out = nullptr;
  cudaMallocManaged(&out, sizeof *out);
  *out = checked(value);
  reset<<<1, 1>>>();
  apply<<<1, 1>>>(out, [] __device__(int x) { return x + factor; });
  cudaMemcpyToSymbol(factor, &value, sizeof value);
  cudaDeviceSynchronize();
  const int result = *out;
  cudaFree(out);
  return result;
}
