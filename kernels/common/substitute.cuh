// X Lᵀ = A for 64 rows of A, by substitution with a 64×64 lower triangle: the step that both the factor's panels and
// the inverses of its diagonal blocks are made of.
//
// One thread a row, 64 threads. X is kept transposed in shared memory, [column][row], so that a thread walks its own
// row without meeting another's bank. Columns go in chunks of 16 that a thread holds in registers: subtract what the
// chunks before contribute, then substitute within the chunk. Rows of L are staged a chunk at a time and read by all
// threads at once. Every quotient is a division: multiplying by inverted pivots, let alone inverted blocks, would cost
// digits where columns are nearly dependent.
#pragma once

#include "numbers.cuh"

namespace muso {

struct Substitution {
  static constexpr int kBlock = FACTOR_BLOCK;
  static constexpr int kChunk = 16;
  static constexpr int kPitch = kBlock + 1;
  // A multiple of 16 bytes, and 2 mod 16 doubles for the transposing stores.
  static constexpr int kChunkPitch = kChunk + 2;
  static_assert(PANEL_THREADS == kBlock, "one thread a row");

  double x[kBlock][kPitch];
  alignas(16) double l[kBlock][kChunkPitch];

  // Solves in place of `x`. `triangle` is the block's first element; rows and columns from `width` on stand for the
  // identity. Begins and ends with a barrier.
  __device__ void solve(const double* triangle, int64_t pitch, int width) {
    const int row = threadIdx.x;
    for (int first = 0; first < kBlock; first += kChunk) {
      __syncthreads();
      stage(triangle, pitch, width, first);
      __syncthreads();
      double values[kChunk];
#pragma unroll
      for (int j = 0; j < kChunk; ++j) values[j] = x[first + j][row];
      for (int k = 0; k < first; ++k) {
        const double known = -x[k][row];
#pragma unroll
        for (int j = 0; j < kChunk; ++j) values[j] = fma(known, l[k][j], values[j]);
      }
#pragma unroll
      for (int j = 0; j < kChunk; ++j) {
        values[j] /= l[first + j][j];
#pragma unroll
        for (int later = j + 1; later < kChunk; ++later)
          values[later] = fma(-values[j], l[first + j][later], values[later]);
      }
#pragma unroll
      for (int j = 0; j < kChunk; ++j) x[first + j][row] = values[j];
    }
    __syncthreads();
  }

 private:
  // l[k][j] = L(first + j, k) for k < first + 16. A warp reads 16 columns of two rows; half a warp stores eight of both,
  // which meet every bank once.
  __device__ void stage(const double* triangle, int64_t pitch, int width, int first) {
    for (int e = threadIdx.x; e < (first + kChunk) * kChunk; e += PANEL_THREADS) {
      const int lane = e % 32, group = e / 32;
      const int k = group / (kChunk / 2) * 16 + ((lane & 7) | (lane & 16) >> 1);
      const int j = group % (kChunk / 2) * 2 + (lane >> 3 & 1), row = first + j;
      if (row >= width || k >= width) {
        l[k][j] = row == k ? 1.0 : 0.0;
      } else {
        l[k][j] = k <= row ? triangle[row * pitch + k] : 0.0;
      }
    }
  }
};

}  // namespace muso
