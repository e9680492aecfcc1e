// Exact sums over feature rows: G = Σ q qᵀ and Σ q yᵀ in integers, the same bytes in any order (SYRK on int8 units).
//
// A value z of column j enters as q = round-half-even(z/2^e_j), an integer with |q| < 2^bits, in `digits` balanced digits
// of seven bits, q = Σ d_a 128^a with d_a in −64..63 (the last one in −64..64). Products of unlike digits are none of
// their own: D_aᵀD_b + D_bᵀD_a = (D_a + D_b)ᵀ(D_a + D_b) − D_aᵀD_a − D_bᵀD_b, and D_a + D_b fits a signed byte. So
// G = Σ c_p PᵀP over *planes* P: the s digits, then the s(s − 1)/2 sums of two, each an int8 SYRK of its own.
//
// Three steps:
// 1. *slice*: rows → planes, `order` lines of int8 a plane, one a column of Z, in which the rows are side by side (K
//    contiguous). 32-bit integers throughout for f32, f16 and bf16 and up to four digits, 64-bit ones else; no f64 but one
//    division for each warp. A row with a value beyond the width, not finite or beyond what sums take is flagged.
// 2. *clear*: flagged rows become zeros, which add nothing. They are summed elsewhere.
// 3. *syrk*, *cross*: PᵀP and P_aᵀY_b with 32-bit sums, at most 2^14 a product and so good for 2^17 rows; they are drained
//    every EXACT_DRAIN rows. What is drained counts c_p and is added to sums of 128 bits, two 64-bit words, by atomic
//    additions with carry. Integers commute: whatever the order and the grid, the bytes are the same.
//
// `mma` has tiles of EXACT_ROWS × EXACT_COLS, 64×64 a warp, EXACT_STAGES stages of EXACT_DEPTH rows in dynamic shared
// memory (72 KB), filled by cp.async and read by ldmatrix: chunks of 16 bytes are swizzled so that neither meets a bank
// twice. `plain` is a thread an entry, by dp4a.
#include "common/async.cuh"
#include "common/numbers.cuh"

#define EXACT_BLOCK __launch_bounds__(EXACT_THREADS, 1)

namespace muso {

// Digits that there are at most, of 41 bits.
constexpr int kDigits = 6;
constexpr int kDigitBits = 7;

// --- Sums of 128 bits ------------------------------------------------------------------------------------------------

// Two's complement, lower word first.
struct Wide {
  uint64_t low, high;
};

// v·weight, modulo 2^128.
__device__ __forceinline__ Wide times(int64_t v, Wide weight) {
  const uint64_t bits = static_cast<uint64_t>(v);
  const uint64_t high = __umul64hi(bits, weight.low) + bits * weight.high - (v < 0 ? weight.low : 0);
  return {bits * weight.low, high};
}

// sums[entry] += value. The carry of the lower words is whoever's addition wraps them, so that order does not matter.
__device__ __forceinline__ void add_wide(uint64_t* sums, int64_t entry, Wide value) {
  using Word = unsigned long long;
  Word* at = reinterpret_cast<Word*>(sums) + 2 * entry;
  uint64_t carry = 0;
  if (value.low != 0) {
    const uint64_t before = atomicAdd(at, static_cast<Word>(value.low));
    carry = before + value.low < before;
  }
  if (value.high + carry != 0) atomicAdd(at + 1, static_cast<Word>(value.high + carry));
}

// --- Rounding to the grid --------------------------------------------------------------------------------------------

// |z| = mantissa · 2^power; what is not finite has a mantissa and a power beyond everything.
template <typename Word>
struct Parts {
  Word mantissa;
  int power;
  bool negative;
};

constexpr int kBeyond = 1 << 20;

__device__ __forceinline__ Parts<uint32_t> parts(float z, int exponent) {
  const uint32_t bits = __float_as_uint(z);
  const int field = bits >> 23 & 0xff;
  const uint32_t fraction = bits & 0x7fffff;
  const bool negative = bits >> 31;
  if (field == 0xff) return {1, kBeyond, negative};
  return {field == 0 ? fraction : fraction | 1u << 23, (field == 0 ? 1 : field) - 150 - exponent, negative};
}
__device__ __forceinline__ Parts<uint32_t> parts(f16 z, int exponent) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(z.bits));
  return parts(wide, exponent);
}
__device__ __forceinline__ Parts<uint32_t> parts(bf16 z, int exponent) {
  return parts(__uint_as_float(static_cast<uint32_t>(z.bits) << 16), exponent);
}
__device__ __forceinline__ Parts<uint64_t> parts(double z, int exponent) {
  const uint64_t bits = static_cast<uint64_t>(__double_as_longlong(z));
  const int field = static_cast<int>(bits >> 52 & 0x7ff);
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  const bool negative = bits >> 63;
  if (field == 0x7ff) return {1, kBeyond, negative};
  return {field == 0 ? fraction : fraction | uint64_t{1} << 52, (field == 0 ? 1 : field) - 1075 - exponent, negative};
}

// A fraction away/size in 0..1, of integers below 2^53. Comparing takes no division.
template <typename Word>
struct Move {
  Word away, size;
};

__device__ __forceinline__ bool larger(Move<uint32_t> a, Move<uint32_t> b) {
  return static_cast<uint64_t>(a.away) * b.size > static_cast<uint64_t>(b.away) * a.size;
}
__device__ __forceinline__ bool larger(Move<uint64_t> a, Move<uint64_t> b) {
  const uint64_t left = __umul64hi(a.away, b.size), right = __umul64hi(b.away, a.size);
  return left != right ? left > right : a.away * b.size > b.away * a.size;
}

// A value rounded to the grid.
template <typename Word>
struct Rounded {
  // |q|, or 0 where `beyond` is set.
  uint64_t magnitude;
  // |q| is 2^bits or more, or there is none.
  bool beyond;
  // |2^e q − z| in units of the mantissa's last place.
  Word away;
};

template <typename Word>
__device__ __forceinline__ Rounded<Word> round_to_grid(Parts<Word> z, int bits) {
  // Of a mantissa shifted by its own length and two places more nothing is left, and no half.
  constexpr int kLength = sizeof(Word) == 4 ? 26 : 55;
  if (z.mantissa == 0) return {0, false, 0};
  if (z.power >= 0) {
    const bool beyond = z.power > bits || z.mantissa >> min(bits - z.power, kLength) != 0;
    return {beyond ? 0 : static_cast<uint64_t>(z.mantissa) << z.power, beyond, 0};
  }
  const int shift = -z.power;
  if (shift >= kLength) return {0, false, z.mantissa};
  const Word one = 1;
  const Word floor = z.mantissa >> shift, rest = z.mantissa & ((one << shift) - 1), half = one << (shift - 1);
  const bool up = rest > half || (rest == half && floor % 2 == 1);
  const Word magnitude = floor + up;
  const bool beyond = magnitude >> min(bits, kLength) != 0;
  return {beyond ? 0 : magnitude, beyond, up ? (one << shift) - rest : rest};
}

// Whether |z| is 2^setter units or more.
template <typename Word>
__device__ __forceinline__ bool sets(Parts<Word> z, int setter) {
  const int shift = setter - z.power;
  if (shift <= 0) return z.mantissa != 0;
  return shift < static_cast<int>(8 * sizeof(Word)) && z.mantissa >> shift != 0;
}

// --- Slicing ---------------------------------------------------------------------------------------------------------

#define SLICE_PARAMETERS(Z)                                                                                       \
  const Z *__restrict__ z, const int64_t z_pitch, const int64_t rows, const int64_t features, const int64_t bias, \
      const int64_t *__restrict__ exponents, const int64_t bits, const int64_t digits, const int64_t pairs,       \
      const int64_t setter, int8_t *planes, const int64_t pitch, const int64_t first, uint32_t *flags,            \
      uint64_t *found, uint64_t *setters
#define SLICE_ARGUMENTS                                                                                         \
  z, z_pitch, rows, features, bias, exponents, bits, digits, pairs, setter, planes, pitch, first, flags, found, \
      setters

// Words of four rows' digits, and where the next column begins.
constexpr int kWords = SLICE_ROWS / 4, kPitch = kWords + 1;

// `tile` has the digits of SLICE_ROWS rows by digit and column; `Integer` holds q.
template <typename Integer, int Most, typename Word, typename Z>
__device__ __forceinline__ void slice_as(uint32_t* tile, SLICE_PARAMETERS(Z)) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = ELEMENT_THREADS / 32;
  const int64_t columns = features + bias, column0 = static_cast<int64_t>(blockIdx.x) * SLICE_COLS;
  const int64_t column = column0 + lane;
  const int exponent = column < features ? static_cast<int>(exponents[column]) : 0;
  const int width = static_cast<int>(bits), count = static_cast<int>(digits);
  const int threshold = static_cast<int>(setter);
  const int64_t row_tiles = ceil_div<int64_t>(rows, SLICE_ROWS);

  uint32_t moved = 0, setting = 0;
  Move<Word> largest{0, 1};
  for (int64_t row_tile = blockIdx.y; row_tile < row_tiles; row_tile += gridDim.y) {
    const int64_t row0 = row_tile * SLICE_ROWS;
    for (int word = warp; word < kWords; word += warps) {
      uint32_t packed[Most] = {};
#pragma unroll
      for (int byte = 0; byte < 4; ++byte) {
        const int64_t row = row0 + 4 * word + byte;
        Integer q = 0;
        if (row < rows && column < features) {
          const auto value = parts(z[row * z_pitch + column], exponent);
          const Rounded<Word> rounded = round_to_grid(value, width);
          if (rounded.beyond) atomicOr(flags + row, 1u);
          if (rounded.away != 0) {
            ++moved;
            const Move<Word> move{rounded.away, value.mantissa};
            if (larger(move, largest)) largest = move;
          }
          if (setters != nullptr && value.power != kBeyond) setting += sets(value, threshold);
          q = static_cast<Integer>(rounded.magnitude);
          if (value.negative) q = -q;
        } else if (row < rows && column < columns) {
          q = 1;
        }
#pragma unroll
        for (int digit = 0; digit < Most; ++digit) {
          if (digit < count) {
            // The last digit takes what is left, which may be 64.
            const Integer above = digit + 1 < count ? (q + 64) >> kDigitBits : 0;
            const Integer here = q - above * 128;
            packed[digit] |= (static_cast<uint32_t>(here) & 0xff) << 8 * byte;
            q = above;
          }
        }
      }
#pragma unroll
      for (int digit = 0; digit < Most; ++digit)
        if (digit < count) tile[(digit * SLICE_COLS + lane) * kPitch + word] = packed[digit];
    }
    __syncthreads();

    // Rows to a multiple of 16, as `first` is.
    const int64_t end = ceil_div<int64_t>(rows, 16) * 16;
    if (row0 + 4 * lane < end) {
      for (int c = warp; c < SLICE_COLS && column0 + c < columns; c += warps) {
        const auto digit_of = [&](int digit) { return tile[(digit * SLICE_COLS + c) * kPitch + lane]; };
        uint32_t* out = reinterpret_cast<uint32_t*>(planes + (column0 + c) * pitch + first + row0) + lane;
        const int64_t plane = columns * pitch / 4;
        int64_t p = 0;
        for (int digit = 0; digit < count; ++digit) out[p++ * plane] = digit_of(digit);
        if (pairs != 0)
          for (int a = 0; a < count; ++a)
            for (int b = a + 1; b < count; ++b) out[p++ * plane] = __vadd4(digit_of(a), digit_of(b));
      }
    }
    __syncthreads();
  }

  if (setting != 0) atomicAdd(reinterpret_cast<unsigned long long*>(setters) + column, setting);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    moved += __shfl_xor_sync(~0u, moved, step);
    const Move<Word> other{__shfl_xor_sync(~0u, largest.away, step), __shfl_xor_sync(~0u, largest.size, step)};
    if (larger(other, largest)) largest = other;
  }
  if (lane == 0 && moved != 0) {
    unsigned long long* out = reinterpret_cast<unsigned long long*>(found);
    atomicAdd(out, moved);
    // Bits of numbers that are not negative are in their order.
    const double share = static_cast<double>(largest.away) / static_cast<double>(largest.size);
    atomicMax(out + 1, static_cast<unsigned long long>(__double_as_longlong(share)));
  }
}

template <typename Z>
__device__ void slice(SLICE_PARAMETERS(Z)) {
  __shared__ uint32_t tile[kDigits * SLICE_COLS * kPitch];
  using Word = decltype(parts(Z{}, 0).mantissa);
  if (digits <= 4)
    slice_as<int32_t, 4, Word>(tile, SLICE_ARGUMENTS);
  else
    slice_as<int64_t, kDigits, Word>(tile, SLICE_ARGUMENTS);
}

// Zeros in all lines where rows are flagged.
__device__ void clear(int8_t* lines, const int64_t pitch, const int64_t count, const int64_t first,
                      const int64_t rows, const uint32_t* __restrict__ flags) {
  const int64_t word = static_cast<int64_t>(blockIdx.x) * ELEMENT_THREADS + threadIdx.x;
  uint32_t kept = ~0u;
  for (int byte = 0; byte < 4; ++byte) {
    const int64_t row = 4 * word + byte;
    if (row < rows && flags[row] != 0) kept &= ~(0xffu << 8 * byte);
  }
  if (kept == ~0u) return;
  for (int64_t line = blockIdx.y; line < count; line += gridDim.y)
    reinterpret_cast<uint32_t*>(lines + line * pitch + first)[word] &= kept;
}

// --- Products --------------------------------------------------------------------------------------------------------

// What is multiplied: `pair` counts planes of G, or pairs of a digit of the features and one of the targets.
struct Product {
  const int8_t *left, *right;
  int64_t pitch, rows, cols;
  Wide weight;
  uint64_t* sums;
  bool lower;

  __device__ bool has(int64_t i, int64_t j) const { return i < rows && j < (lower ? i + 1 : cols); }
  __device__ void add(int64_t i, int64_t j, int64_t sum) const {
    const int64_t entry = lower ? i * (i + 1) / 2 + j : i * cols + j;
    add_wide(sums, entry, times(sum, weight));
  }
};

#define SYRK_PARAMETERS                                                                             \
  const int8_t *__restrict__ planes, const int64_t pitch, const int64_t depth, const int64_t order, \
      const uint64_t *__restrict__ weights, uint64_t *sums
#define CROSS_PARAMETERS                                                                            \
  const int8_t *__restrict__ planes, const int64_t pitch, const int64_t depth, const int64_t order, \
      const int8_t *__restrict__ targets_planes, const int64_t targets, const int64_t digits,       \
      const uint64_t *__restrict__ weights, uint64_t *sums

__device__ __forceinline__ Product syrk_of(SYRK_PARAMETERS, int64_t pair) {
  const int8_t* plane = planes + pair * order * pitch;
  return {plane, plane, pitch, order, order, {weights[2 * pair], weights[2 * pair + 1]}, sums, true};
}
__device__ __forceinline__ Product cross_of(CROSS_PARAMETERS, int64_t pair) {
  const int8_t* left = planes + pair / digits * order * pitch;
  const int8_t* right = targets_planes + pair % digits * targets * pitch;
  return {left, right, pitch, order, targets, {weights[2 * pair], weights[2 * pair + 1]}, sums, false};
}

__device__ void product_plain(const Product& product, int64_t depth) {
  const int64_t i = static_cast<int64_t>(blockIdx.y) * PLAIN_SIDE + threadIdx.y;
  const int64_t j = static_cast<int64_t>(blockIdx.x) * PLAIN_SIDE + threadIdx.x;
  if (!product.has(i, j)) return;
  const int* left = reinterpret_cast<const int*>(product.left + i * product.pitch);
  const int* right = reinterpret_cast<const int*>(product.right + j * product.pitch);
  for (int64_t first = 0; first < depth; first += EXACT_DRAIN) {
    const int64_t last = min(depth, first + EXACT_DRAIN);
    int sum = 0;
    for (int64_t k = first / 4; k < last / 4; ++k) sum = __dp4a(left[k], right[k], sum);
    product.add(i, j, sum);
  }
}

#if __CUDA_ARCH__ >= 800
// 8×16 bytes of four matrices, each as the lanes of `mma` hold it.
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
}

__device__ __forceinline__ void mma_s8(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two words at once: the compiler is not to part them, since each alone would meet banks twice.
__device__ __forceinline__ void store_pair(uint32_t to, int a, int b) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(a), "r"(b) : "memory");
}

// The same number, of which the compiler forgets how it was made: it waits in a register and is not made again in a loop.
__device__ __forceinline__ uint32_t kept(uint32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}

// A tile of `product` over the rows that blockIdx.z stands for.
__device__ __forceinline__ void product_mma(const Product& product, int64_t depth, int64_t i0, int64_t j0) {
  constexpr int kWarp = 64, kTilesY = kWarp / 16, kTilesX = kWarp / 8;
  constexpr int kChunks = EXACT_DEPTH / 16, kCopyRows = EXACT_THREADS / kChunks;
  constexpr int kLeft = EXACT_ROWS / kCopyRows, kCopies = kLeft + EXACT_COLS / kCopyRows;
  constexpr uint32_t kStage = (EXACT_ROWS + EXACT_COLS) * EXACT_DEPTH, kRing = EXACT_STAGES * kStage;
  extern __shared__ __align__(128) int8_t stages[];

  // Chunk c of row r is where chunk c ^ (r/2 mod 4) would be: eight rows of a chunk then are in all 32 banks.
  const auto place = [](int row, int chunk) {
    return static_cast<uint32_t>(row * EXACT_DEPTH + (chunk ^ (row / 2 % 4)) * 16);
  };
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_row = warp / 2 * kWarp, warp_col = warp % 2 * kWarp;
  const int64_t row0 = i0 + warp_row, col0 = j0 + warp_col;
  const bool idle = row0 >= product.rows || col0 >= product.cols || (product.lower && col0 >= row0 + kWarp);

  const uint32_t shared = shared_address(stages);
  const int copy_row = threadIdx.x / kChunks, copy_chunk = threadIdx.x % kChunks;
  const uint32_t copy_to = kept(shared + place(copy_row, copy_chunk));
  const int read_left = lane % 16, read_right = lane % 8 + lane / 16 * 8;
  uint32_t left_at[2], right_at[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    left_at[half] = kept(shared + place(warp_row + read_left, 2 * half + lane / 16));
    right_at[half] = kept(shared + place(EXACT_ROWS + warp_col + read_right, 2 * half + lane / 8 % 2));
  }

  const int64_t slabs = depth / EXACT_DEPTH, share = ceil_div<int64_t>(slabs, gridDim.z);
  const int64_t last = min(slabs, (blockIdx.z + 1) * share);
  for (int64_t begin = blockIdx.z * share; begin < last; begin += EXACT_DRAIN / EXACT_DEPTH) {
    const int count = static_cast<int>(min(last - begin, static_cast<int64_t>(EXACT_DRAIN / EXACT_DEPTH)));
    // Lines beyond the last one are that one again: their sums are not kept.
    const int8_t* from[kCopies];
#pragma unroll
    for (int n = 0; n < kCopies; ++n) {
      const bool on_left = n < kLeft;
      const int64_t line = (on_left ? i0 + n * kCopyRows : j0 + (n - kLeft) * kCopyRows) + copy_row;
      const int64_t most = (on_left ? product.rows : product.cols) - 1;
      from[n] = (on_left ? product.left : product.right) + min(line, most) * product.pitch + begin * EXACT_DEPTH +
                copy_chunk * 16;
    }
    int loaded = 0;
    uint32_t filled = 0, used = 0;
    const auto load = [&]() {
      if (loaded < count) {
#pragma unroll
        for (int n = 0; n < kCopies; ++n) {
          copy_chunk_async(copy_to + filled + n * kCopyRows * EXACT_DEPTH, from[n]);
          from[n] += EXACT_DEPTH;
        }
      }
      commit_copies();
      ++loaded;
      filled = filled + kStage == kRing ? 0 : filled + kStage;
    };

    int sums[kTilesY][kTilesX][4] = {};
#pragma unroll
    for (int stage = 0; stage < EXACT_STAGES - 1; ++stage) load();
#pragma unroll 1
    for (int slab = 0; slab < count; ++slab) {
      wait_for_copies<EXACT_STAGES - 2>();
      __syncthreads();
      load();
      if (!idle) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          uint32_t left[kTilesY][4], right[kTilesX / 2][4];
#pragma unroll
          for (int y = 0; y < kTilesY; ++y) load_matrices(left[y], left_at[half] + used + y * 16 * EXACT_DEPTH);
#pragma unroll
          for (int x = 0; x < kTilesX / 2; ++x) load_matrices(right[x], right_at[half] + used + x * 16 * EXACT_DEPTH);
#pragma unroll
          for (int y = 0; y < kTilesY; ++y)
#pragma unroll
            for (int x = 0; x < kTilesX; ++x)
              mma_s8(sums[y][x], left[y], right[x / 2][x % 2 * 2], right[x / 2][x % 2 * 2 + 1]);
        }
      }
      used = used + kStage == kRing ? 0 : used + kStage;
    }
    wait_for_copies<0>();
    __syncthreads();

    // Through shared memory, 16 rows of the warp at a time, so that its lanes add to neighbours.
    if (!idle) {
      constexpr int kBounce = kWarp + 8;
      const int* bounce = reinterpret_cast<int*>(stages) + warp * 16 * kBounce;
      const uint32_t put = shared_address(bounce + lane / 4 * kBounce + lane % 4 * 2);
#pragma unroll
      for (int y = 0; y < kTilesY; ++y) {
#pragma unroll
        for (int x = 0; x < kTilesX; ++x)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const uint32_t to = put + 4 * (half * 8 * kBounce + x * 8);
            store_pair(to, sums[y][x][2 * half], sums[y][x][2 * half + 1]);
          }
        __syncwarp();
#pragma unroll 1
        for (int n = lane; n < 16 * kWarp; n += 32) {
          const int64_t i = row0 + y * 16 + n / kWarp, j = col0 + n % kWarp;
          if (product.has(i, j)) product.add(i, j, bounce[n / kWarp * kBounce + n % kWarp]);
        }
        __syncwarp();
      }
    }
    __syncthreads();
  }
}

// Tile `index` of those that have entries on or below the diagonal: a row of tiles has two more than the one before.
__device__ __forceinline__ void syrk_mma(const Product& product, int64_t depth) {
  const int64_t index = blockIdx.x;
  int64_t row = static_cast<int64_t>(sqrtf(static_cast<float>(index)));
  while (row * (row + 1) > index) --row;
  while ((row + 1) * (row + 2) <= index) ++row;
  product_mma(product, depth, row * EXACT_ROWS, (index - row * (row + 1)) * EXACT_COLS);
}
__device__ __forceinline__ void cross_mma(const Product& product, int64_t depth) {
  const int64_t across = ceil_div<int64_t>(product.cols, EXACT_COLS);
  product_mma(product, depth, blockIdx.x / across * EXACT_ROWS, blockIdx.x % across * EXACT_COLS);
}
#endif

// --- Classes ---------------------------------------------------------------------------------------------------------

#define CLASS_PARAMETERS(Z)                                                                              \
  const Z *__restrict__ z, const int64_t z_pitch, const int64_t features, const int64_t bias,            \
      const int64_t *__restrict__ exponents, const int64_t bits, const uint32_t *__restrict__ flags,     \
      const int64_t *__restrict__ sequence, const int64_t *__restrict__ segments, const int64_t targets, \
      uint64_t *sums
#define CLASS_ARGUMENTS z, z_pitch, features, bias, exponents, bits, flags, sequence, segments, targets, sums

// A segmented sum: blockIdx.y is a segment (class, first, count) of rows in the order of their classes, a lane a column.
// Segments are short enough for 64-bit sums.
template <typename Z>
__device__ void cross_class(CLASS_PARAMETERS(Z)) {
  __shared__ int64_t of_warp[ELEMENT_THREADS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = ELEMENT_THREADS / 32;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + lane;
  const int64_t* segment = segments + 3 * static_cast<int64_t>(blockIdx.y);
  const int64_t wanted = segment[0], first = segment[1], count = segment[2];
  const int exponent = column < features ? static_cast<int>(exponents[column]) : 0;
  int64_t sum = 0;
  if (column < features + bias) {
    for (int64_t n = warp; n < count; n += warps) {
      const int64_t row = sequence[first + n];
      if (flags[row] != 0) continue;
      if (column == features) {
        ++sum;
        continue;
      }
      const auto value = parts(z[row * z_pitch + column], exponent);
      const int64_t q = static_cast<int64_t>(round_to_grid(value, static_cast<int>(bits)).magnitude);
      sum += value.negative ? -q : q;
    }
  }
  of_warp[threadIdx.x] = sum;
  __syncthreads();
  if (warp == 0 && column < features + bias) {
    for (int other = 1; other < warps; ++other) sum += of_warp[32 * other + lane];
    add_wide(sums, column * targets + wanted, times(sum, {1, 0}));
  }
}

}  // namespace muso

using namespace muso;

#define EXPORT_ROWS(Z, stem)                                                                                 \
  extern "C" __global__ void ELEMENTS exact_slice_##stem(SLICE_PARAMETERS(Z)) { slice<Z>(SLICE_ARGUMENTS); } \
  extern "C" __global__ void ELEMENTS exact_cross_##stem##_class(CLASS_PARAMETERS(Z)) {                      \
    cross_class<Z>(CLASS_ARGUMENTS);                                                                         \
  }

EXPORT_ROWS(float, f32)
EXPORT_ROWS(double, f64)
EXPORT_ROWS(f16, f16)
EXPORT_ROWS(bf16, bf16)

extern "C" __global__ void ELEMENTS exact_clear_s8(int8_t* lines, const int64_t pitch, const int64_t count,
                                                   const int64_t first, const int64_t rows,
                                                   const uint32_t* __restrict__ flags) {
  clear(lines, pitch, count, first, rows, flags);
}
extern "C" __global__ void PLAIN exact_syrk_s8_plain(SYRK_PARAMETERS) {
  product_plain(syrk_of(planes, pitch, depth, order, weights, sums, blockIdx.z), depth);
}
extern "C" __global__ void PLAIN exact_cross_s8_plain(CROSS_PARAMETERS) {
  product_plain(cross_of(planes, pitch, depth, order, targets_planes, targets, digits, weights, sums, blockIdx.z),
                depth);
}
#if __CUDA_ARCH__ >= 800
extern "C" __global__ void EXACT_BLOCK exact_syrk_s8_mma(SYRK_PARAMETERS) {
  syrk_mma(syrk_of(planes, pitch, depth, order, weights, sums, blockIdx.y), depth);
}
extern "C" __global__ void EXACT_BLOCK exact_cross_s8_mma(CROSS_PARAMETERS) {
  cross_mma(cross_of(planes, pitch, depth, order, targets_planes, targets, digits, weights, sums, blockIdx.y), depth);
}
#endif
