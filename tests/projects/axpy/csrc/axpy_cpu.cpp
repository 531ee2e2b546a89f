#include "torch_binding.h"

void axpy(at::Tensor& out, double factor, const at::Tensor& x, const at::Tensor& y) {
  TORCH_CHECK(x.is_contiguous() && y.is_contiguous() && x.sizes() == y.sizes(), "axpy: two contiguous tensors of one size");
  float* result = out.mutable_data_ptr<float>();
  const float* left = x.const_data_ptr<float>();
  const float* right = y.const_data_ptr<float>();
  for (int64_t index = 0; index < x.numel(); ++index) {
    result[index] = static_cast<float>(factor) * left[index] + right[index];
  }
}
