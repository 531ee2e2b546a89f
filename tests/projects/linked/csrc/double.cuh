#pragma once

__device__ int twice(int value);
extern __device__ int calls;
