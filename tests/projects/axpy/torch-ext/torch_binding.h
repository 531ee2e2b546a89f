#pragma once

#include <ATen/core/Tensor.h>

// out = factor * x + y, elementwise; contiguous float32 tensors of one size on one device.
void axpy(at::Tensor& out, double factor, const at::Tensor& x, const at::Tensor& y);
