// C++ that calls CUDA and does not know torch.
#include <cuda_runtime.h>

#include "plain.h"

int host() { return static_cast<int>(cudaGetLastError()); }
