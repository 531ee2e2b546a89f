#include <ATen/core/Tensor.h>

void scale_cpu(at::Tensor& out, const at::Tensor& in, double factor) {
  TORCH_CHECK(in.is_contiguous() && out.is_contiguous() && out.sizes() == in.sizes(), "scale: two contiguous tensors");
  TORCH_CHECK(in.scalar_type() == at::kFloat && out.scalar_type() == at::kFloat, "scale: float32 on the CPU");
  const float* from = in.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < in.numel(); ++i) {
    to[i] = from[i] * static_cast<float>(factor);
  }
}
