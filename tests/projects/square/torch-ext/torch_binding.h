#pragma once

#include <ATen/core/Tensor.h>

void square(at::Tensor& out, const at::Tensor& x);
