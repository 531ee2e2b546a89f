// Gray on the CPU.
//
// The loops below look as if they took one pixel at a time, and that is the point: they are written so that the
// compiler turns them into vector instructions ("auto-vectorisation", gcc -O3), which do 8 to 32 pixels at a time:
//
//   * `__restrict` promises that input and output do not overlap, so the order of loads and stores is free;
//   * no branches: where pixels need different treatment, both results are computed and one is picked;
//   * no calls: everything is inlined.
//
// This file must be compiled with -ffp-contract=off (build.toml does so). Otherwise a compiler may fuse `a * b + c`
// into one instruction that rounds once instead of twice: fine in itself, but then CPU and GPU disagree in the last
// bit.
#include "img2gray.h"

#include <algorithm>
#include <cstring>

#if defined(__GNUC__)
#define IMG2GRAY_INLINE inline __attribute__((always_inline))
#else
#define IMG2GRAY_INLINE inline
#endif

// x86-64 programs may count on SSE2 only, instructions of 2003. AVX2 (2013) is twice as wide and can shuffle bytes.
// So each loop is compiled twice, and chosen when the library is loaded. Same source, same bits, but for one thread on
// a 4 Mpixel picture (Xeon with AVX-512, gcc 12; Gpixel/s, SSE2 -> AVX2):
//
//                   uint8          float16        bfloat16       float32
//   interleaved     1.0 -> 2.2     0.1 -> 0.4     0.5 -> 1.0     0.4 -> 0.5
//   planar          2.3 -> 3.3     0.3 -> 0.5     1.2 -> 2.4     0.6 -> 0.7
//
// (float32 waits for memory.) gcc's `target_clones` does the same in one line, but needs libgcc's `__cpu_model` and the
// loader's support for "ifunc", and not every link and every libc has them. Asking the processor takes ten lines.
#if defined(__GNUC__) && defined(__x86_64__)
#define IMG2GRAY_AVX2 1
#include <cpuid.h>
#endif

namespace img2gray {
namespace {

// The bits of a float as an integer and back. memcpy is the way C++17 has for it; it compiles to nothing.
IMG2GRAY_INLINE uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

IMG2GRAY_INLINE float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// `condition ? yes : no` on bits. Spelled with ?: the compiler would move the float arithmetic behind a branch, where,
// since it might raise a floating-point exception, it may not be vectorised: float16 was 3 times slower.
IMG2GRAY_INLINE int32_t select(bool condition, int32_t yes, int32_t no) {
  const int32_t mask = -static_cast<int32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

IMG2GRAY_INLINE float weighted(float r, float g, float b) { return (kRed * r + kGreen * g) + kBlue * b; }

// A format says how a pixel's value is stored and how three of them become gray.

struct Uint8 {
  using Value = uint8_t;

  static IMG2GRAY_INLINE uint8_t gray(uint8_t r, uint8_t g, uint8_t b) {
    return static_cast<uint8_t>((kRed16 * r + kGreen16 * g + kBlue16 * b + kHalf16) >> 16);
  }
};

struct Float32 {
  using Value = float;

  static IMG2GRAY_INLINE float gray(float r, float g, float b) {
    const float y = weighted(r, g, b);
    return y == y ? y : float_of(kFloat32Nan);  // only NaN differs from itself
  }
};

// bfloat16 is the upper half of a float32.
struct BFloat16 {
  using Value = uint16_t;

  static IMG2GRAY_INLINE float widen(uint16_t v) { return float_of(static_cast<uint32_t>(v) << 16); }

  // To nearest: add just under half of the last place kept, and one more if that place is odd, so that ties end even.
  static IMG2GRAY_INLINE uint16_t narrow(float x) {
    const uint32_t bits = bits_of(x);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return static_cast<uint16_t>(x == x ? rounded : kBFloat16Nan);
  }

  static IMG2GRAY_INLINE uint16_t gray(uint16_t r, uint16_t g, uint16_t b) {
    return narrow(weighted(widen(r), widen(g), widen(b)));
  }
};

// float16: 1 bit sign, 5 bits exponent (bias 15), 10 bits mantissa. float32: 1, 8 (bias 127), 23.
// Compilers have a type for it only here and there, so we move the bits ourselves.
struct Float16 {
  using Value = uint16_t;

  static IMG2GRAY_INLINE float widen(uint16_t v) {
    // Signed 32-bit integers throughout: SSE2 and AVX2 compare and convert only those.
    const int32_t sign = (v & 0x8000) << 16;
    const int32_t magnitude = v & 0x7fff;
    // Exponent and mantissa move up by 13 places; the exponent's bias changes from 15 to 127.
    const int32_t normal = (magnitude << 13) + ((127 - 15) << 23);
    // Exponent 31 stands for infinity and NaN; float32 has 255 there.
    const int32_t special = normal + ((255 - 31 - (127 - 15)) << 23);
    // Exponent 0 (subnormal): the mantissa counts steps of 2^-24. The product is exact.
    const int32_t subnormal = static_cast<int32_t>(bits_of(static_cast<float>(magnitude) * 0x1p-24f));
    int32_t bits = select(magnitude < (1 << 10), subnormal, normal);
    bits = select(magnitude < (31 << 10), bits, special);
    return float_of(static_cast<uint32_t>(bits | sign));
  }

  static IMG2GRAY_INLINE uint16_t narrow(float x) {
    const int32_t all = static_cast<int32_t>(bits_of(x));
    const int32_t sign = (all >> 16) & 0x8000;
    const int32_t magnitude = all & 0x7fffffff;
    // Change the bias back and round to nearest even as above. Too large a value overflows into exponent 31.
    const int32_t normal = (magnitude - ((127 - 15) << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    // Below 2^-14 float16 has steps of 2^-24, which is the last place of a float32 between 0.5 and 1:
    // adding 0.5 makes the processor round there, and what it leaves in the low bits is the answer.
    const int32_t half = 126 << 23;
    const int32_t subnormal = static_cast<int32_t>(bits_of(float_of(static_cast<uint32_t>(magnitude)) + 0.5f)) - half;
    int32_t bits = select(magnitude < ((127 - 14) << 23), subnormal, normal);
    bits = select(magnitude < ((127 + 16) << 23), bits, 0x7c00);  // 65536 and more: infinity
    return static_cast<uint16_t>(select(magnitude <= (255 << 23), bits | sign, kFloat16Nan));
  }

  static IMG2GRAY_INLINE uint16_t gray(uint16_t r, uint16_t g, uint16_t b) {
    return narrow(weighted(widen(r), widen(g), widen(b)));
  }
};

template <class Format, class Value = typename Format::Value>
IMG2GRAY_INLINE void interleaved(const Value* __restrict rgb, Value* __restrict gray, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    gray[i] = Format::gray(rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2]);
  }
}

template <class Format, class Value = typename Format::Value>
IMG2GRAY_INLINE void planar(const Value* __restrict red, const Value* __restrict green, const Value* __restrict blue,
                            Value* __restrict gray, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    gray[i] = Format::gray(red[i], green[i], blue[i]);
  }
}

template <class Format>
IMG2GRAY_INLINE void convert(const Job& job, int64_t begin, int64_t end) {
  using Value = typename Format::Value;
  const Value* image = static_cast<const Value*>(job.image);
  Value* gray = static_cast<Value*>(job.gray);
  if (!job.planar) {
    interleaved<Format>(image + 3 * begin, gray + begin, end - begin);
    return;
  }
  while (begin < end) {  // the range may cover several pictures, each with planes of its own
    const int64_t picture = begin / job.pixels;
    const int64_t pixel = begin % job.pixels;
    const int64_t count = std::min(end - begin, job.pixels - pixel);
    const Value* red = image + 3 * picture * job.pixels + pixel;
    planar<Format>(red, red + job.pixels, red + 2 * job.pixels, gray + begin, count);
    begin += count;
  }
}

IMG2GRAY_INLINE void convert_any(const Job& job, int64_t begin, int64_t end) {
  switch (job.dtype) {
    case Dtype::kUint8: return convert<Uint8>(job, begin, end);
    case Dtype::kFloat16: return convert<Float16>(job, begin, end);
    case Dtype::kBFloat16: return convert<BFloat16>(job, begin, end);
    case Dtype::kFloat32: return convert<Float32>(job, begin, end);
  }
}

void convert_baseline(const Job& job, int64_t begin, int64_t end) { convert_any(job, begin, end); }

#if defined(IMG2GRAY_AVX2)
__attribute__((target("avx2"))) void convert_avx2(const Job& job, int64_t begin, int64_t end) {
  convert_any(job, begin, end);
}

// AVX2 is usable if the processor has it (leaf 7, EBX bit 5) and the operating system saves the wide registers when it
// switches threads (leaf 1, ECX bit 27: XGETBV exists; its bits 1 and 2: SSE and AVX state). Intel's Software
// Developer's Manual, volume 1, "Detection of Intel AVX2".
bool has_avx2() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx & (1u << 27)) == 0) {
    return false;
  }
  unsigned state = 0, upper = 0;
  __asm__("xgetbv" : "=a"(state), "=d"(upper) : "c"(0));
  return (state & 6) == 6 && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx & (1u << 5)) != 0;
}

const bool kHasAvx2 = has_avx2();
#endif

}  // namespace

void convert_cpu(const Job& job, int64_t begin, int64_t end) {
#if defined(IMG2GRAY_AVX2)
  if (kHasAvx2) {
    return convert_avx2(job, begin, end);
  }
#endif
  convert_baseline(job, begin, end);
}

}  // namespace img2gray
