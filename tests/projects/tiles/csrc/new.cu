#include <cutlass/cutlass.h>
#include <cutlass/version.h>

static_assert(CUTLASS_MAJOR == 3 && CUTLASS_MINOR == 8, "the section asks for CUTLASS 3.8");

CUTLASS_GLOBAL void new_kernel(int* out) { *out = CUTLASS_MINOR; }

int new_version() {
  new_kernel<<<1, 1>>>(nullptr);
  return CUTLASS_VERSION;
}
