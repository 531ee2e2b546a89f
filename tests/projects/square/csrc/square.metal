#include "square_metal.h"

using namespace metal;

kernel void square_kernel(device float* out [[buffer(0)]],
                          device const float* x [[buffer(1)]],
                          uint index [[thread_position_in_grid]]) {
  out[index] = x[index] * x[index];
}
