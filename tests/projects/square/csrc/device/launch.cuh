#pragma once

#include <cuda_runtime.h>

#include <cstdint>

inline unsigned int blocks_for(int64_t count) {
  const int64_t blocks = (count + 255) / 256;
  return blocks < 65535 ? static_cast<unsigned int>(blocks) : 65535u;
}

inline int last_error() {
  return static_cast<int>(cudaGetLastError());
}
