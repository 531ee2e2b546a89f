// What PyTorch calls.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "registration.h"

void scale_cpu(at::Tensor& out, const at::Tensor& in, double factor);
void scale_cuda(at::Tensor& out, const at::Tensor& in, double factor);

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) { ops.def("scale(Tensor! out, Tensor input, float factor) -> ()"); }
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) { ops.impl("scale", &scale_cpu); }
#if defined(CUDA_KERNEL)
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) { ops.impl("scale", &scale_cuda); }
#endif
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
