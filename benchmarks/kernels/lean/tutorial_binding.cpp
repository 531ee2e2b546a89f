// The same binding, with the one header that PyTorch's tutorial on C++ extensions includes.
#include <torch/extension.h>

#include <ATen/Parallel.h>
#if defined(CUDA_KERNEL)
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

#include "img2gray.h"

namespace {

img2gray::Dtype dtype_of(const at::Tensor& image) {
  switch (image.scalar_type()) {
    case at::kByte: return img2gray::Dtype::kUint8;
    case at::kHalf: return img2gray::Dtype::kFloat16;
    case at::kBFloat16: return img2gray::Dtype::kBFloat16;
    case at::kFloat: return img2gray::Dtype::kFloat32;
    default: TORCH_CHECK(false, "img2gray: image must be uint8, float16, bfloat16 or float32");
  }
}

img2gray::Job checked(const at::Tensor& out, const at::Tensor& image, bool planar) {
  const int64_t rank = image.dim();
  TORCH_CHECK(rank == 3 || rank == 4, "img2gray: image must have 3 or 4 dimensions, got ", rank);
  const int64_t channels = planar ? rank - 3 : rank - 1;
  TORCH_CHECK(image.size(channels) == 3, "img2gray: dimension ", channels, " of image must have size 3");
  TORCH_CHECK(out.numel() * 3 == image.numel(), "img2gray: out must have a third of the values of image");
  TORCH_CHECK(out.scalar_type() == image.scalar_type() && out.device() == image.device(), "img2gray: out must match image");
  TORCH_CHECK(image.is_contiguous() && out.is_contiguous(), "img2gray: image and out must be contiguous");
  img2gray::Job job{};
  job.dtype = dtype_of(image);
  job.planar = planar;
  job.images = rank == 4 ? image.size(0) : 1;
  job.pixels = job.images == 0 ? 0 : out.numel() / job.images;
  job.image = image.const_data_ptr();
  job.gray = out.mutable_data_ptr();
  return job;
}

void img2gray_cpu(at::Tensor& out, const at::Tensor& image, bool planar) {
  const img2gray::Job job = checked(out, image, planar);
  at::parallel_for(0, job.images * job.pixels, 32768,
                   [&job](int64_t begin, int64_t end) { img2gray::convert_cpu(job, begin, end); });
}

#if defined(CUDA_KERNEL)
void img2gray_cuda(at::Tensor& out, const at::Tensor& image, bool planar) {
  const c10::cuda::CUDAGuard guard(image.device());
  const char* error = img2gray::convert_cuda(checked(out, image, planar), c10::cuda::getCurrentCUDAStream().stream());
  TORCH_CHECK(error == nullptr, "img2gray: CUDA refused to start the kernel: ", error);
}
#endif

}  // namespace

TORCH_LIBRARY(img2gray_tutorial, ops) { ops.def("img2gray(Tensor(a!) out, Tensor image, bool planar) -> ()"); }
TORCH_LIBRARY_IMPL(img2gray_tutorial, CPU, ops) { ops.impl("img2gray", &img2gray_cpu); }
TORCH_LIBRARY_IMPL(img2gray_tutorial, CUDA, ops) { ops.impl("img2gray", &img2gray_cuda); }
