#pragma once

#include <cstdint>

void scale_on_cpu(float* data, float factor, int64_t count);
void scale_on_cuda(float* data, float factor, int64_t count, void* stream);
