__global__ void kernel(int* out) { *out = 42; }

int answer() {
  kernel<<<1, 1>>>(nullptr);
  return static_cast<int>(cudaGetLastError());
}
