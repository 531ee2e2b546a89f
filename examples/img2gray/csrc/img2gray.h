// What the three compiled files of this kernel agree on: how a picture lies in memory, and the arithmetic.
//
// There is no PyTorch here. `torch_binding.cpp` unpacks tensors into a `Job`; `img2gray_cpu.cpp` and
// `img2gray.cu` work on plain pointers. Parsing PyTorch's headers is most of what compiling a CUDA extension
// usually costs (minutes instead of seconds), and nvcc does it once per GPU architecture, so keep them out of `.cu`
// files.
#pragma once

#include <cstdint>

namespace img2gray {

enum class Dtype { kUint8, kFloat16, kBFloat16, kFloat32 };

// One call: `images` pictures of `pixels` pixels each, one behind the other, with no gaps.
//
//   interleaved  RGBRGBRGB...            one pixel's three values side by side (a JPEG decoder, numpy, PIL)
//   planar       RRR... GGG... BBB...    each picture's reds, then its greens, then its blues (PyTorch models)
//
// Width and height are not here: gray depends on one pixel only, so rows do not matter.
// Counts are 64 bits wide: 2^31 pixels are only 46341 x 46341.
struct Job {
  const void* image;
  void* gray;
  int64_t images;
  int64_t pixels;
  Dtype dtype;
  bool planar;
};

// Luminance weights of ITU-R Recommendation BT.709-6, item 3.2. They add up to 1.
constexpr float kRed = 0.2126f;
constexpr float kGreen = 0.7152f;
constexpr float kBlue = 0.0722f;

// The same in units of 1/65536, for whole-number arithmetic on uint8. They add up to 65536 exactly, so white stays 255.
// |gray - exact| <= 0.503: rounding to a whole number costs up to 0.5, and the weights, off by 0.05, 0.35 and 0.30
// units, less than 255 * 0.7 / 65536 = 0.003. (No multiplication by a float, no second rounding.)
constexpr int32_t kRed16 = 13933;
constexpr int32_t kGreen16 = 46871;
constexpr int32_t kBlue16 = 4732;
constexpr int32_t kHalf16 = 32768;

// "Not a number" comes in millions of bit patterns, and processors disagree about which one a sum yields.
// To get equal bits everywhere we always answer with this one.
constexpr uint32_t kFloat32Nan = 0x7fc00000;
constexpr uint16_t kFloat16Nan = 0x7e00;
constexpr uint16_t kBFloat16Nan = 0x7fc0;

// Converts the pixels [begin, end), counted through all pictures of the job, on the calling thread.
void convert_cpu(const Job& job, int64_t begin, int64_t end);

// Queues the whole job on a CUDA stream (a `cudaStream_t`) of the current device and returns at once.
// Returns nullptr, or what CUDA has to say if the work could not be queued.
const char* convert_cuda(const Job& job, void* stream);

#if defined(IMG2GRAY_TEACHING)
// The first CUDA kernel of every tutorial: uint8, interleaved, one picture. Not part of the shipped library.
const char* convert_cuda_teaching(const uint8_t* image, uint8_t* gray, int64_t height, int64_t width, void* stream);
#endif

}  // namespace img2gray
