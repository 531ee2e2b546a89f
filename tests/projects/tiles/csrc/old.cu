#include <cutlass/cutlass.h>
#include <cutlass/version.h>

static_assert(CUTLASS_MAJOR == 3 && CUTLASS_MINOR == 6, "the section asks for CUTLASS 3.6");

CUTLASS_GLOBAL void old_kernel(int* out) { *out = CUTLASS_MINOR; }

int old_version() {
  old_kernel<<<1, 1>>>(nullptr);
  return CUTLASS_VERSION;
}
