// The same binding, with the one header that PyTorch's tutorial on C++ extensions includes.
#include <torch/extension.h>

void scale_cpu(at::Tensor& out, const at::Tensor& in, double factor);
void scale_cuda(at::Tensor& out, const at::Tensor& in, double factor);

TORCH_LIBRARY(heavy_tutorial, ops) { ops.def("scale(Tensor(a!) out, Tensor input, float factor) -> ()"); }
TORCH_LIBRARY_IMPL(heavy_tutorial, CPU, ops) { ops.impl("scale", &scale_cpu); }
TORCH_LIBRARY_IMPL(heavy_tutorial, CUDA, ops) { ops.impl("scale", &scale_cuda); }
