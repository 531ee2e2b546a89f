#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

#include "../csrc/scale.h"

namespace {

void scale(tvm::ffi::TensorView data, double factor) {
  float* numbers = static_cast<float*>(data.data_ptr());
#if defined(CUDA_KERNEL)
  if (data.device().device_type == kDLCUDA) {
    const DLDevice device = data.device();
    void* stream = TVMFFIEnvGetStream(device.device_type, device.device_id);
    scale_on_cuda(numbers, static_cast<float>(factor), data.numel(), stream);
    return;
  }
#endif
  TVM_FFI_CHECK(data.device().device_type == kDLCPU, ValueError) << "scale: no implementation for this device";
  scale_on_cpu(numbers, static_cast<float>(factor), data.numel());
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(scale, scale)
