// Gray on an NVIDIA GPU.
//
// A GPU runs one function, the *kernel*, in very many threads at once. Threads come in *blocks* (here 256 threads),
// blocks form the *grid*; a thread learns who it is from `blockIdx`, `blockDim` and `threadIdx` and picks its share of
// the work. If you have never seen that, read `teaching_kernel` at the end of this file first. Then come back for why
// the kernel in use looks different: converting to gray computes next to nothing, all the time goes into moving bytes,
// so what counts is how few and how wide the loads and stores are. As a share of the speed of a plain copy, kernels of
// these two designs reached on an H200, for 16384 x 16384 uint8 pixels:
//
//   one pixel a thread                                                        0.33
//   sixteen pixels a thread: three 16-byte loads, one 16-byte store           0.90
#include "img2gray.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace img2gray {
namespace {

constexpr int kThreads = 256;  // in a block: a multiple of 32, because hardware runs threads in groups of 32 (*warps*)

// Blocks in the grid, at most. If there is more work than that, each thread takes another share, and another.
constexpr int64_t kMaxBlocks = 65536;

// What one load or store instruction can move for one thread.
constexpr int kVectorBytes = 16;

// `__fmul_rn` and `__fadd_rn` multiply and add, rounding to nearest each time. Written as `*` and `+`, nvcc would fuse
// a product and a sum into one instruction that rounds once, and the result would differ from the CPU's in the last
// bit.
__device__ __forceinline__ float weighted(float r, float g, float b) {
  return __fadd_rn(__fadd_rn(__fmul_rn(kRed, r), __fmul_rn(kGreen, g)), __fmul_rn(kBlue, b));
}

// A format says how a pixel's value is stored and how three of them become gray. The same four as in img2gray_cpu.cpp.

struct Uint8 {
  using Value = uint8_t;

  static __device__ __forceinline__ uint8_t gray(uint8_t r, uint8_t g, uint8_t b) {
    return static_cast<uint8_t>((kRed16 * r + kGreen16 * g + kBlue16 * b + kHalf16) >> 16);
  }
};

struct Float32 {
  using Value = float;

  static __device__ __forceinline__ float gray(float r, float g, float b) {
    const float y = weighted(r, g, b);
    return isnan(y) ? __uint_as_float(kFloat32Nan) : y;
  }
};

// bfloat16 is the upper half of a float32.
struct BFloat16 {
  using Value = uint16_t;

  static __device__ __forceinline__ float widen(uint16_t v) { return __uint_as_float(static_cast<uint32_t>(v) << 16); }

  static __device__ __forceinline__ uint16_t gray(uint16_t r, uint16_t g, uint16_t b) {
    const float y = weighted(widen(r), widen(g), widen(b));
    const uint32_t bits = __float_as_uint(y);
    // To nearest: add just under half of the last place kept, and one more if that place is odd, so that ties end even.
    return static_cast<uint16_t>(isnan(y) ? kBFloat16Nan : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
};

// float16 <-> float32 is one instruction here; the CPU file does it by hand.
struct Float16 {
  using Value = uint16_t;

  static __device__ __forceinline__ float widen(uint16_t v) { return __half2float(__ushort_as_half(v)); }

  static __device__ __forceinline__ uint16_t gray(uint16_t r, uint16_t g, uint16_t b) {
    const float y = weighted(widen(r), widen(g), widen(b));
    return isnan(y) ? kFloat16Nan : __half_as_ushort(__float2half_rn(y));
  }
};

// `kCount` neighbouring values, moved by one instruction. That needs an address divisible by its size, hence `alignas`.
template <class Value, int kCount>
struct alignas(kCount * sizeof(Value)) Vector {
  Value at[kCount];
};

// Each thread converts `kCount` neighbouring pixels: it loads three vectors, computes in registers, stores one vector.
//
//   planar        vector 0 holds the reds, 1 the greens, 2 the blues
//   interleaved   RGBRGB... runs through the three; channel c of pixel p is value 3 p + c
//
// kPlanar and kCount are template parameters, so that the loops unroll and every index into `colour` is a constant:
// only then do the arrays live in registers. (`nvcc -Xptxas -v` shows it: "0 bytes stack frame".)
template <class Format, bool kPlanar, int kCount>
__global__ void __launch_bounds__(kThreads)
    gray_kernel(const typename Format::Value* __restrict__ image, typename Format::Value* __restrict__ gray,
                int64_t images, int64_t pixels) {
  using Value = typename Format::Value;
  using Group = Vector<Value, kCount>;
  const int64_t total = images * pixels;
  const int64_t groups = total / kCount;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;

  // A "grid-stride loop": right for any grid. Usually each thread goes round once.
  for (int64_t group = first; group < groups; group += step) {
    Group colour[3];
    if constexpr (kPlanar) {
      const int64_t groups_a_plane = pixels / kCount;
      const int64_t picture = images == 1 ? 0 : group / groups_a_plane;
      // Before this picture lie 3 planes for each earlier one, and `group` counts one plane for each of those.
      const Group* red = reinterpret_cast<const Group*>(image) + group + 2 * picture * groups_a_plane;
      colour[0] = red[0];
      colour[1] = red[groups_a_plane];
      colour[2] = red[2 * groups_a_plane];
    } else {
      const Group* rgb = reinterpret_cast<const Group*>(image) + 3 * group;
      colour[0] = rgb[0];
      colour[1] = rgb[1];
      colour[2] = rgb[2];
    }

    Group result;
#pragma unroll
    for (int p = 0; p < kCount; ++p) {
      if constexpr (kPlanar) {
        result.at[p] = Format::gray(colour[0].at[p], colour[1].at[p], colour[2].at[p]);
      } else {
        const int r = 3 * p, g = 3 * p + 1, b = 3 * p + 2;
        result.at[p] = Format::gray(colour[r / kCount].at[r % kCount], colour[g / kCount].at[g % kCount],
                                    colour[b / kCount].at[b % kCount]);
      }
    }
    reinterpret_cast<Group*>(gray)[group] = result;
  }

  // Interleaved pixels left over when kCount does not divide their number: fewer than kCount, one for each thread.
  // (Planar never has any: see `launch`.)
  if constexpr (!kPlanar && kCount > 1) {
    const int64_t pixel = groups * kCount + first;
    if (pixel < total) {
      gray[pixel] = Format::gray(image[3 * pixel], image[3 * pixel + 1], image[3 * pixel + 2]);
    }
  }
}

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % kVectorBytes == 0; }

template <class Format, bool kPlanar, int kCount>
void launch(const Job& job, cudaStream_t stream) {
  using Value = typename Format::Value;
  const int64_t share = static_cast<int64_t>(kThreads) * kCount;
  const int64_t blocks = (job.images * job.pixels + share - 1) / share;
  const unsigned grid = static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
  gray_kernel<Format, kPlanar, kCount><<<grid, kThreads, 0, stream>>>(
      static_cast<const Value*>(job.image), static_cast<Value*>(job.gray), job.images, job.pixels);
}

template <class Format>
void launch(const Job& job, cudaStream_t stream) {
  constexpr int kCount = kVectorBytes / static_cast<int>(sizeof(typename Format::Value));
  // PyTorch's own allocations are aligned; a slice such as `image[1:]` may start anywhere.
  const bool aligned = is_aligned(job.image) && is_aligned(job.gray);
  if (job.planar) {
    // Every plane has to start at an aligned address, so it must hold a whole number of vectors.
    if (aligned && job.pixels % kCount == 0) {
      launch<Format, true, kCount>(job, stream);
    } else {
      launch<Format, true, 1>(job, stream);
    }
  } else {
    if (aligned) {
      launch<Format, false, kCount>(job, stream);
    } else {
      launch<Format, false, 1>(job, stream);
    }
  }
}

const char* last_error() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace

const char* convert_cuda(const Job& job, void* stream) {
  if (job.images == 0 || job.pixels == 0) {
    return nullptr;  // a grid of zero blocks is an error
  }
  const cudaStream_t queue = static_cast<cudaStream_t>(stream);
  switch (job.dtype) {
    case Dtype::kUint8: launch<Uint8>(job, queue); break;
    case Dtype::kFloat16: launch<Float16>(job, queue); break;
    case Dtype::kBFloat16: launch<BFloat16>(job, queue); break;
    case Dtype::kFloat32: launch<Float32>(job, queue); break;
  }
  // A launch only queues work and returns nothing; this asks whether it was accepted. What goes wrong later, on the
  // GPU, shows at the next synchronisation.
  return last_error();
}

#if defined(IMG2GRAY_TEACHING)

// The kernel by which all this is usually taught: one thread a pixel, and threads laid out like the picture.
//
// Imagine the picture covered with tiles of 16 x 16 pixels. A block of 16 x 16 threads works on one tile:
//
//   blockIdx.x, blockIdx.y     which tile: how many tiles to the right, how many down
//   threadIdx.x, threadIdx.y   which pixel within the tile
//   blockDim.x, blockDim.y     the size of a tile: 16, 16
//
// Every thread runs this same function, at the same time as thousands of others and in no particular order. That is
// safe because no two of them write the same pixel.
__global__ void teaching_kernel(const uint8_t* image, uint8_t* gray, int64_t height, int64_t width) {
  const int64_t x = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t y = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;

  // The tiles at the right and the bottom stick out over the picture. Threads there have nothing to do.
  if (x >= width || y >= height) {
    return;
  }

  // Memory is one long line: row 0, row 1, ... with `width` pixels each, and three values for each pixel.
  const int64_t pixel = y * width + x;
  const int r = image[3 * pixel];
  const int g = image[3 * pixel + 1];
  const int b = image[3 * pixel + 2];
  gray[pixel] = static_cast<uint8_t>((kRed16 * r + kGreen16 * g + kBlue16 * b + kHalf16) >> 16);
}

// `<<<grid, block, 0, stream>>>` starts it: so many blocks, so many threads in each, in this queue.
// It works, and it is slow: each thread issues four instructions to move four single bytes, where one instruction can
// move 16; and the grid may have only 65535 tiles from top to bottom.
const char* convert_cuda_teaching(const uint8_t* image, uint8_t* gray, int64_t height, int64_t width, void* stream) {
  if (height == 0 || width == 0) {
    return nullptr;
  }
  const dim3 block(16, 16);
  const int64_t tiles_across = (width + 15) / 16;  // rounded up
  const int64_t tiles_down = (height + 15) / 16;
  if (tiles_across > 2147483647 || tiles_down > 65535) {
    return "the picture is too large for a two-dimensional grid";
  }
  const dim3 grid(static_cast<unsigned>(tiles_across), static_cast<unsigned>(tiles_down));
  teaching_kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(image, gray, height, width);
  return last_error();
}

#endif  // IMG2GRAY_TEACHING

}  // namespace img2gray
