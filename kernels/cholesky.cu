// A + λI = LLᵀ, f64, in place of the lower triangle of A (n×n, row-major); the upper one is neither read nor written.
//
// This is the factor behind every closed form of the paper: (G + λI)⁻¹ and (K + λI)⁻¹ are never formed.
//
// Right-looking over block columns of FACTOR_BLOCK = 64. For each: one thread block factors the diagonal block in shared
// memory; the rows below are divided by it, by substitution (common/substitute.cuh), 64 rows a thread block; what lies
// to the right loses the product of those rows with themselves, a 64×64 tile of the triangle a thread block, on the f64
// pipes or the f64 tensor cores. An entry is updated block column by block column, each a chain in the order of k: the
// same bytes on every run.
//
// A pivot that is not positive and finite is written to `status` with its number, and all that follows returns at once;
// so the host can queue the whole factorisation and look once.
#include "common/product_dmma.cuh"
#include "common/product_fma.cuh"
#include "common/substitute.cuh"

namespace muso {

// Shared with the host: 16 bytes.
struct FactorStatus {
  int64_t pivot;  // −1 while all is well
  double value;
};

__device__ bool usable(double pivot) { return pivot > 0.0 && pivot <= 1.7976931348623157e308; }

__device__ void add_ridge(double* a, int64_t pitch, int64_t n, double ridge, FactorStatus* status) {
  const int64_t i = blockIdx.x * int64_t{ELEMENT_THREADS} + threadIdx.x;
  if (i == 0) *status = {-1, 0.0};
  if (i < n) a[i * pitch + i] += ridge;
}

// Factors the block at (first, first), column by column, each column's outer product subtracted from what is left.
__device__ void factor_diagonal(double* a, int64_t pitch, int64_t n, int64_t first, FactorStatus* status) {
  constexpr int kSide = 16, kEach = FACTOR_BLOCK / kSide;
  static_assert(kSide * kSide == DIAGONAL_THREADS, "a square of threads");
  __shared__ double block[FACTOR_BLOCK][FACTOR_BLOCK + 1];
  __shared__ double roots[FACTOR_BLOCK];
  if (status->pivot >= 0) return;

  const int width = static_cast<int>(n - first < FACTOR_BLOCK ? n - first : FACTOR_BLOCK);
  const int tx = threadIdx.x % kSide, ty = threadIdx.x / kSide;
  double* origin = a + first * pitch + first;
  for (int i = ty; i < width; i += kSide)
    for (int j = tx; j <= i; j += kSide) block[i][j] = origin[i * pitch + j];
  __syncthreads();

  for (int j = 0; j < width; ++j) {
    const double pivot = block[j][j];
    if (!usable(pivot)) {
      if (threadIdx.x == 0) *status = {first + j, pivot};
      return;
    }
    const double root = sqrt(pivot);
    const int below = j + 1 + threadIdx.x;
    if (below < width) block[below][j] /= root;
    // The pivot itself stays where other threads may still read it.
    if (threadIdx.x == 0) roots[j] = root;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kEach; ++r)
#pragma unroll
      for (int c = 0; c < kEach; ++c) {
        const int i = ty + r * kSide, k = tx + c * kSide;
        if (i < width && k > j && k <= i) block[i][k] = fma(-block[i][j], block[k][j], block[i][k]);
      }
    __syncthreads();
  }
  for (int i = ty; i < width; i += kSide)
    for (int j = tx; j <= i; j += kSide) origin[i * pitch + j] = i == j ? roots[i] : block[i][j];
}

// A[below, J] ← A[below, J] L_JJ⁻ᵀ.
__device__ void divide_panel(double* a, int64_t pitch, int64_t n, int64_t first, const FactorStatus* status) {
  __shared__ Substitution rows;
  if (status->pivot >= 0) return;
  const int64_t top = first + FACTOR_BLOCK + blockIdx.x * int64_t{FACTOR_BLOCK};
  const int column = threadIdx.x;
  double* origin = a + top * pitch + first;
#pragma unroll 8
  for (int i = 0; i < FACTOR_BLOCK; ++i) rows.x[column][i] = top + i < n ? origin[i * pitch + column] : 0.0;
  rows.solve(a + first * pitch + first, pitch, FACTOR_BLOCK);
#pragma unroll 8
  for (int i = 0; i < FACTOR_BLOCK; ++i)
    if (top + i < n) origin[i * pitch + column] = rows.x[column][i];
}

// A[i, j] −= Σ_k L[i, k] L[j, k] over the block column J, for the tiles of what is left.
template <template <int, int, class, class> class Core>
__device__ void update_trailing(double* a, int64_t pitch, int64_t n, int64_t first, const FactorStatus* status) {
  using Rows = InnerAdjacent<double>;
  using Product = Core<TILE, TILE, Rows, Rows>;
  __shared__ typename Product::Shared shared;
  if (status->pivot >= 0) return;
  const int64_t corner = first + FACTOR_BLOCK;
  const TrianglePosition tile(blockIdx.x);
  const int64_t i0 = corner + tile.row * TILE, j0 = corner + tile.col * TILE;
  const Rows rows{a, pitch, n};
  Product product(shared);
  product.accumulate(rows, i0, rows, j0, first, corner, false, i0 == j0);
  product.each([&](int i, int j, double2 sum) {
    const int64_t row = i0 + i;
    if (row < n) add_pair(a + row * pitch, j0 + j, row + 1, -1.0, sum);
  });
}

// The twin: column by column over the whole matrix, one thread block.
__device__ void factor_plain(double* a, int64_t pitch, int64_t n, FactorStatus* status) {
  for (int64_t j = 0; j < n; ++j) {
    const double pivot = a[j * pitch + j];
    __syncthreads();
    if (!usable(pivot)) {
      if (threadIdx.x == 0) *status = {j, pivot};
      return;
    }
    const double root = sqrt(pivot);
    for (int64_t i = j + threadIdx.x; i < n; i += DIAGONAL_THREADS) {
      double* entry = a + i * pitch + j;
      *entry = i == j ? root : *entry / root;
    }
    __syncthreads();
    for (int64_t i = j + 1 + threadIdx.x; i < n; i += DIAGONAL_THREADS) {
      const double left = -a[i * pitch + j];
      for (int64_t k = j + 1; k <= i; ++k) a[i * pitch + k] = fma(left, a[k * pitch + j], a[i * pitch + k]);
    }
    __syncthreads();
  }
}

// Least and greatest square of the factor's diagonal.
__device__ void extreme_pivots(const double* l, int64_t pitch, int64_t n, double* out) {
  __shared__ double least[ELEMENT_THREADS], greatest[ELEMENT_THREADS];
  double low = l[0] * l[0], high = low;
  for (int64_t i = threadIdx.x; i < n; i += ELEMENT_THREADS) {
    const double pivot = l[i * pitch + i] * l[i * pitch + i];
    low = fmin(low, pivot);
    high = fmax(high, pivot);
  }
  least[threadIdx.x] = low;
  greatest[threadIdx.x] = high;
  for (int half = ELEMENT_THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      least[threadIdx.x] = fmin(least[threadIdx.x], least[threadIdx.x + half]);
      greatest[threadIdx.x] = fmax(greatest[threadIdx.x], greatest[threadIdx.x + half]);
    }
  }
  if (threadIdx.x == 0) {
    out[0] = least[0];
    out[1] = greatest[0];
  }
}

}  // namespace muso

using namespace muso;

#define EXPORT_STEP(name, bounds, body)                                                                        \
  extern "C" __global__ void bounds name(double* a, const int64_t pitch, const int64_t n, const int64_t first, \
                                         FactorStatus* status) {                                               \
    body(a, pitch, n, first, status);                                                                          \
  }

extern "C" __global__ void ELEMENTS cholesky_ridge_f64(double* a, const int64_t pitch, const int64_t n,
                                                       const double ridge, FactorStatus* status) {
  add_ridge(a, pitch, n, ridge, status);
}
EXPORT_STEP(cholesky_diagonal_f64, __launch_bounds__(DIAGONAL_THREADS), factor_diagonal)
EXPORT_STEP(cholesky_panel_f64, __launch_bounds__(PANEL_THREADS), divide_panel)
EXPORT_STEP(cholesky_update_f64_fma, TILED, update_trailing<Fma>)
#if __CUDA_ARCH__ >= 800
EXPORT_STEP(cholesky_update_f64_dmma, TILED, update_trailing<Dmma>)
#endif
extern "C" __global__ void __launch_bounds__(DIAGONAL_THREADS)
    cholesky_factor_f64_plain(double* a, const int64_t pitch, const int64_t n, FactorStatus* status) {
  factor_plain(a, pitch, n, status);
}
extern "C" __global__ void ELEMENTS cholesky_pivots_f64(const double* __restrict__ l, const int64_t pitch,
                                                        const int64_t n, double* __restrict__ out) {
  extreme_pivots(l, pitch, n, out);
}
