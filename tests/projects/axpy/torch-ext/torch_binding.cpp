#include <torch/library.h>

#include "registration.h"
#include "torch_binding.h"

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("axpy(Tensor! out, float factor, Tensor x, Tensor y) -> ()");
}

#if defined(CPU_KERNEL)
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("axpy", &axpy);
}
#elif defined(CUDA_KERNEL)
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("axpy", &axpy);
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
