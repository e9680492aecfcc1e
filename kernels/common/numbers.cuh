// Element types of feature rows and how they widen. Every one of them is exact in f64.
#pragma once

#include <cstdint>

#include "tiles.h"

// Launch bounds of the exports, by geometry. A tiled kernel may take the registers that two thread blocks leave each
// other on a multiprocessor, so that one loads while the other computes.
#define PLAIN __launch_bounds__(PLAIN_SIDE* PLAIN_SIDE)
#define ELEMENTS __launch_bounds__(ELEMENT_THREADS)
#define TILED __launch_bounds__(TILE_THREADS, 2)
#define SETS __launch_bounds__(CLASS_THREADS, 4)
// Strips are half a tile: registers for five, so that a device that has work for that many begins them all at once.
#define STRIPS __launch_bounds__(TILE_THREADS, 5)

namespace muso {

// The two 16-bit formats as bits: all that is done with them outside the tensor cores is to widen them.
struct f16 {
  uint16_t bits;
};
struct bf16 {
  uint16_t bits;
};

__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ double widen(float x) { return x; }
__device__ __forceinline__ double widen(f16 x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
}
__device__ __forceinline__ double widen(bf16 x) { return __uint_as_float(static_cast<uint32_t>(x.bits) << 16); }

template <typename T>
__host__ __device__ constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

// Row and column of entry `index` of a lower triangle counted row by row: 0 → (0,0), 1 → (1,0), 2 → (1,1), …
struct TrianglePosition {
  int64_t row, col;

  __device__ explicit TrianglePosition(int64_t index) {
    row = static_cast<int64_t>((sqrtf(8.0f * static_cast<float>(index) + 1.0f) - 1.0f) * 0.5f);
    // The root is approximate; the triangle numbers are not.
    while (row * (row + 1) / 2 > index) --row;
    while ((row + 1) * (row + 2) / 2 <= index) ++row;
    col = index - row * (row + 1) / 2;
  }
};

// The same number, of which the compiler forgets what it knew. Addresses made from it inside a loop are made there and
// do not wait in registers during the loop's work.
__device__ __forceinline__ int64_t opaque(int64_t x) {
  asm volatile("" : "+l"(x));
  return x;
}

// Entries (j, j + 1) of a row of which `valid` entries exist, at an address that is a multiple of 16 bytes.
__device__ __forceinline__ void store_pair(double* row, int64_t j, int64_t valid, double2 value) {
  if (j + 1 < valid) {
    *reinterpret_cast<double2*>(row + j) = value;
  } else if (j < valid) {
    row[j] = value.x;
  }
}

// The same, adding sign·value to what is there.
__device__ __forceinline__ void add_pair(double* row, int64_t j, int64_t valid, double sign, double2 value) {
  if (j + 1 < valid) {
    double2 old = *reinterpret_cast<const double2*>(row + j);
    old.x = fma(sign, value.x, old.x);
    old.y = fma(sign, value.y, old.y);
    *reinterpret_cast<double2*>(row + j) = old;
  } else if (j < valid) {
    row[j] = fma(sign, value.x, row[j]);
  }
}

}  // namespace muso
