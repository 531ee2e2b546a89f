// The one kernel all samples were compiled from.
__global__ void k(float *x) { x[threadIdx.x] = 1.0f; }
