#include <cublas_v2.h>
#include <cuda.h>
#include <curand.h>

int libraries() {
  int version = 0;
  cuDriverGetVersion(&version);
  curandGetVersion(&version);
  return version + static_cast<int>(cublasGetCudartVersion());
}
