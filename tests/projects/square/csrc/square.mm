#include <torch/mps.h>

#import <Metal/Metal.h>

#include EMBEDDED_METALLIB_HEADER
#include "torch_binding.h"

static id<MTLBuffer> buffer_of(const at::Tensor& tensor) {
  return __builtin_bit_cast(id<MTLBuffer>, tensor.storage().data());
}

void square(at::Tensor& out, const at::Tensor& x) {
  NSError* error = nil;
  id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  id<MTLLibrary> library = EMBEDDED_METALLIB_NAMESPACE::createLibrary(device, &error);
  TORCH_CHECK(library != nil, "square: ", error.localizedDescription.UTF8String);
  id<MTLFunction> function = [library newFunctionWithName:@"square_kernel"];
  id<MTLComputePipelineState> state = [device newComputePipelineStateWithFunction:function error:&error];
  TORCH_CHECK(state != nil, "square: ", error.localizedDescription.UTF8String);
  const NSUInteger width = MIN(state.maxTotalThreadsPerThreadgroup, static_cast<NSUInteger>(x.numel()));
  id<MTLCommandBuffer> commands = torch::mps::get_command_buffer();
  dispatch_sync(torch::mps::get_dispatch_queue(), ^{
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setComputePipelineState:state];
    [encoder setBuffer:buffer_of(out) offset:out.storage_offset() * out.element_size() atIndex:0];
    [encoder setBuffer:buffer_of(x) offset:x.storage_offset() * x.element_size() atIndex:1];
    [encoder dispatchThreads:MTLSizeMake(x.numel(), 1, 1) threadsPerThreadgroup:MTLSizeMake(width, 1, 1)];
    [encoder endEncoding];
    torch::mps::commit();
  });
}
