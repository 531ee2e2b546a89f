#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "axpy.h"
#include "torch_binding.h"

void axpy(at::Tensor& out, double factor, const at::Tensor& x, const at::Tensor& y) {
  TORCH_CHECK(x.is_contiguous() && y.is_contiguous() && x.sizes() == y.sizes(), "axpy: two contiguous tensors of one size");
  const c10::cuda::CUDAGuard guard(x.device());
  const int error = axpy_launch(out.mutable_data_ptr<float>(), static_cast<float>(factor), x.const_data_ptr<float>(),
                                y.const_data_ptr<float>(), x.numel(), c10::cuda::getCurrentCUDAStream().stream());
  TORCH_CHECK(error == 0, "axpy: CUDA error ", error);
}
