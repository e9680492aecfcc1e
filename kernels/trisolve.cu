// LLᵀX = B in place of B (n×C), the residual of such a solve, and the diagonal of (LLᵀ)⁻¹. All f64, row-major.
//
// Blocks of FACTOR_BLOCK = 64 rows. The diagonal blocks of L are inverted once for a factor (64 substitutions against
// the identity), so that a solve is products only; what that costs in digits the step of refinement gives back, for
// which R = B − (A + λI)X is here too. Forward: X_J ← L_JJ⁻¹X_J, then X_I −= L_IJ X_J for all I below, 128 rows × 16
// columns a thread block; backward the same with Lᵀ from the last block up.
//
// (A⁻¹)_jj = Σ_i (L⁻¹)_ij²: leave-one-out needs it, and tr Π = D − λ tr (G + λI)⁻¹ does (section "projector" of the
// paper). The columns of L⁻¹ are forward solves of columns of the identity, a strip at a time.
#include "common/product_dmma.cuh"
#include "common/product_fma.cuh"
#include "common/substitute.cuh"

namespace muso {

using RowsOf = InnerAdjacent<double>;
using ColumnsOf = OuterAdjacent<double>;

// inverses[block] = L_JJ⁻¹, row-major, with the identity beyond the last row of L.
__device__ void invert_block(const double* l, int64_t pitch, int64_t n, double* inverses) {
  __shared__ Substitution rows;
  const int64_t first = blockIdx.x * int64_t{FACTOR_BLOCK};
  const int width = static_cast<int>(n - first < FACTOR_BLOCK ? n - first : FACTOR_BLOCK);
  const int row = threadIdx.x;
  for (int j = 0; j < FACTOR_BLOCK; ++j) rows.x[j][row] = j == row ? 1.0 : 0.0;
  rows.solve(l + first * pitch + first, pitch, width);
  // X Lᵀ = I makes X the transposed inverse, and X is kept transposed.
  double* out = inverses + first * FACTOR_BLOCK;
  for (int j = 0; j < FACTOR_BLOCK; ++j) out[j * FACTOR_BLOCK + row] = rows.x[j][row];
}

// X_J ← L_JJ⁻¹ X_J or L_JJ⁻ᵀ X_J. A thread block owns its columns, so it may overwrite what it has read.
template <class Inverse>
__device__ void apply_inverse(const double* inverses, int64_t n, int64_t first, double* b, int64_t b_pitch,
                              int64_t columns) {
  using Product = Fma<FACTOR_BLOCK, TALL_COLS, Inverse, ColumnsOf>;
  __shared__ typename Product::Shared shared;
  const int64_t width = n - first < FACTOR_BLOCK ? n - first : FACTOR_BLOCK;
  const int64_t j0 = blockIdx.x * int64_t{TALL_COLS};
  double* rows = b + first * b_pitch;
  Product product(shared);
  product.accumulate(Inverse{inverses + first * FACTOR_BLOCK, FACTOR_BLOCK, FACTOR_BLOCK}, 0,
                     ColumnsOf{rows, b_pitch, columns}, j0, 0, width);
  product.each([&](int i, int j, double2 sum) {
    if (i < width) store_pair(rows + i * b_pitch, j0 + j, columns, sum);
  });
}

// X_I −= (coupling of I and J) X_J for rows `begin` ≤ i < `end`, 128 of them a thread block.
template <template <int, int, class, class> class Core, class Coupling>
__device__ void subtract_solved(const Coupling& coupling, int64_t begin, int64_t end, int64_t first, int64_t last,
                                double* b, int64_t b_pitch, int64_t columns) {
  using Product = Core<TALL_ROWS, TALL_COLS, Coupling, ColumnsOf>;
  __shared__ typename Product::Shared shared;
  const int64_t i0 = begin + blockIdx.x * int64_t{TALL_ROWS}, j0 = blockIdx.y * int64_t{TALL_COLS};
  Product product(shared);
  product.accumulate(coupling, i0, ColumnsOf{b, b_pitch, columns}, j0, first, last);
  product.each([&](int i, int j, double2 sum) {
    const int64_t row = i0 + i;
    if (row < end) add_pair(b + row * b_pitch, j0 + j, columns, -1.0, sum);
  });
}

template <template <int, int, class, class> class Core>
__device__ void forward(const double* l, int64_t pitch, int64_t n, int64_t first, double* b, int64_t b_pitch,
                        int64_t columns) {
  const int64_t last = first + FACTOR_BLOCK;
  subtract_solved<Core>(RowsOf{l, pitch, n}, last, n, first, last, b, b_pitch, columns);
}

template <template <int, int, class, class> class Core>
__device__ void backward(const double* l, int64_t pitch, int64_t n, int64_t first, double* b, int64_t b_pitch,
                         int64_t columns) {
  const int64_t last = first + FACTOR_BLOCK < n ? first + FACTOR_BLOCK : n;
  subtract_solved<Core>(ColumnsOf{l, pitch, first}, 0, first, first, last, b, b_pitch, columns);
}

// The twin: one thread a column, substitution from the top and from the bottom.
__device__ void solve_plain(const double* l, int64_t pitch, int64_t n, double* b, int64_t b_pitch, int64_t columns) {
  const int64_t column = blockIdx.x * int64_t{ELEMENT_THREADS} + threadIdx.x;
  if (column >= columns) return;
  double* x = b + column;
  for (int64_t i = 0; i < n; ++i) {
    double value = x[i * b_pitch];
    for (int64_t k = 0; k < i; ++k) value = fma(-l[i * pitch + k], x[k * b_pitch], value);
    x[i * b_pitch] = value / l[i * pitch + i];
  }
  for (int64_t i = n - 1; i >= 0; --i) {
    double value = x[i * b_pitch];
    for (int64_t k = i + 1; k < n; ++k) value = fma(-l[k * pitch + i], x[k * b_pitch], value);
    x[i * b_pitch] = value / l[i * pitch + i];
  }
}

// B − (A + λI)X: from B down, so that nothing large is formed before it is cancelled.
#define RESIDUAL_PARAMETERS                                                                        \
  const double *__restrict__ a, const int64_t pitch, const int64_t n, const double ridge,          \
      const double *__restrict__ x, const int64_t x_pitch, const double *b, const int64_t b_pitch, \
      const int64_t columns, double *r, const int64_t r_pitch
#define RESIDUAL_ARGUMENTS a, pitch, n, ridge, x, x_pitch, b, b_pitch, columns, r, r_pitch

__device__ void residual_plain(RESIDUAL_PARAMETERS) {
  const int64_t i = blockIdx.y * int64_t{PLAIN_SIDE} + threadIdx.y;
  const int64_t j = blockIdx.x * int64_t{PLAIN_SIDE} + threadIdx.x;
  if (i >= n || j >= columns) return;
  const double sum = plain_product(RowsOf{a, pitch, n}, i, ColumnsOf{x, x_pitch, columns}, j, 0, n);
  r[i * r_pitch + j] = fma(-ridge, x[i * x_pitch + j], b[i * b_pitch + j] - sum);
}

__device__ void residual(RESIDUAL_PARAMETERS) {
  using Product = Fma<TALL_ROWS, TALL_COLS, RowsOf, ColumnsOf>;
  __shared__ typename Product::Shared shared;
  const int64_t i0 = blockIdx.x * int64_t{TALL_ROWS}, j0 = blockIdx.y * int64_t{TALL_COLS};
  Product product(shared);
  product.accumulate(RowsOf{a, pitch, n}, i0, ColumnsOf{x, x_pitch, columns}, j0, 0, n);
  product.each([&](int i, int j, double2 sum) {
    const int64_t row = i0 + i, col = j0 + j;
    if (row >= n || col >= columns) return;
    const bool pair = col + 1 < columns;
    const double* known = x + row * x_pitch + col;
    const double* right = b + row * b_pitch + col;
    sum.x = fma(-ridge, known[0], right[0] - sum.x);
    if (pair) sum.y = fma(-ridge, known[1], right[1] - sum.y);
    store_pair(r + row * r_pitch, col, columns, sum);
  });
}

// Columns first .. first + columns of the identity.
__device__ void identity(double* x, int64_t pitch, int64_t n, int64_t first, int64_t columns) {
  const int64_t i = blockIdx.y * int64_t{PLAIN_SIDE} + threadIdx.y;
  const int64_t j = blockIdx.x * int64_t{PLAIN_SIDE} + threadIdx.x;
  if (i < n && j < columns) x[i * pitch + j] = i == first + j ? 1.0 : 0.0;
}

// out[j] = Σ_{i ≥ first} x_ij², sixteen chains a column, then in the order of the chains.
__device__ void squares(const double* __restrict__ x, int64_t pitch, int64_t n, int64_t first, int64_t columns,
                        double* __restrict__ out) {
  __shared__ double sums[PLAIN_SIDE][PLAIN_SIDE];
  const int64_t j = blockIdx.x * int64_t{PLAIN_SIDE} + threadIdx.x;
  double sum = 0.0;
  if (j < columns)
    for (int64_t i = first + threadIdx.y; i < n; i += PLAIN_SIDE) sum = fma(x[i * pitch + j], x[i * pitch + j], sum);
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && j < columns) {
    for (int chain = 1; chain < PLAIN_SIDE; ++chain) sum += sums[chain][threadIdx.x];
    out[j] = sum;
  }
}

}  // namespace muso

using namespace muso;

#define EXPORT_STEP(name, body)                                                                             \
  extern "C" __global__ void TILED name(const double* __restrict__ l, const int64_t pitch, const int64_t n, \
                                        const int64_t first, double* b, const int64_t b_pitch,              \
                                        const int64_t columns) {                                            \
    body(l, pitch, n, first, b, b_pitch, columns);                                                          \
  }
#define EXPORT_RESIDUAL(name, bounds, body) \
  extern "C" __global__ void bounds name(RESIDUAL_PARAMETERS) { body(RESIDUAL_ARGUMENTS); }

extern "C" __global__ void __launch_bounds__(PANEL_THREADS)
    trisolve_invert_f64(const double* __restrict__ l, const int64_t pitch, const int64_t n,
                        double* __restrict__ inverses) {
  invert_block(l, pitch, n, inverses);
}
extern "C" __global__ void TILED trisolve_block_f64(const double* __restrict__ inverses, const int64_t n,
                                                    const int64_t first, const int64_t transposed, double* b,
                                                    const int64_t b_pitch, const int64_t columns) {
  if (transposed) {
    apply_inverse<ColumnsOf>(inverses, n, first, b, b_pitch, columns);
  } else {
    apply_inverse<RowsOf>(inverses, n, first, b, b_pitch, columns);
  }
}
EXPORT_STEP(trisolve_forward_f64_fma, forward<Fma>)
EXPORT_STEP(trisolve_backward_f64_fma, backward<Fma>)
#if __CUDA_ARCH__ >= 800
EXPORT_STEP(trisolve_forward_f64_dmma, forward<Dmma>)
EXPORT_STEP(trisolve_backward_f64_dmma, backward<Dmma>)
#endif
extern "C" __global__ void ELEMENTS trisolve_solve_f64_plain(const double* __restrict__ l, const int64_t pitch,
                                                             const int64_t n, double* b, const int64_t b_pitch,
                                                             const int64_t columns) {
  solve_plain(l, pitch, n, b, b_pitch, columns);
}
EXPORT_RESIDUAL(trisolve_residual_f64_plain, PLAIN, residual_plain)
EXPORT_RESIDUAL(trisolve_residual_f64_fma, TILED, residual)
extern "C" __global__ void PLAIN trisolve_identity_f64(double* __restrict__ x, const int64_t pitch, const int64_t n,
                                                       const int64_t first, const int64_t columns) {
  identity(x, pitch, n, first, columns);
}
extern "C" __global__ void PLAIN trisolve_squares_f64(const double* __restrict__ x, const int64_t pitch,
                                                      const int64_t n, const int64_t first, const int64_t columns,
                                                      double* __restrict__ out) {
  squares(x, pitch, n, first, columns, out);
}
