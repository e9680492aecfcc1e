// Y = Z W − Z₂W₂, and what is asked of it: the logits, the class, or the softmax. Also K = Z₁Z₂ᵀ.
//
//   Z (N×F, row-major, f32/f16/bf16/f64), W (F×C, f64; with a bias F + 1 rows, the last of which is added to every row of
//   the product). The second pair may be absent. This is ỹ_u = Z_u W* of the paper (optimal labels; the second pair is
//   the reference y_ref of its network form, as a head on other features), and the dual route's kernel matrix.
//
// Accumulation in f64: the first product's chain over its features, then the second's, then the biases.
//
// Geometry: 128 rows × 16 classes a thread block (64×64 for K). Logits go over classes in grid.y. For class and softmax a
// thread block walks all classes of its rows, so hard labels leave 4 bytes a row and no logit is written; the softmax
// writes scaled logits, then normalises its own rows where they lie.
#include "common/product_dmma.cuh"
#include "common/product_fma.cuh"

namespace muso {

#define PROJECTION_PARAMETERS(Z)                                                                              \
  const Z *__restrict__ z, const int64_t z_pitch, const int64_t rows, const int64_t features,                 \
      const double *__restrict__ w, const int64_t w_pitch, const int64_t bias, const Z *__restrict__ z2,      \
      const int64_t z2_pitch, const int64_t features2, const double *__restrict__ w2, const int64_t w2_pitch, \
      const int64_t bias2, const int64_t classes
#define PROJECTION_ARGUMENTS \
  z, z_pitch, rows, features, w, w_pitch, bias, z2, z2_pitch, features2, w2, w2_pitch, bias2, classes

// What both biases add to class j.
struct Biases {
  const double *first, *second;  // null where absent

  __device__ double operator()(double sum, int64_t j) const {
    if (first) sum += first[j];
    if (second) sum -= second[j];
    return sum;
  }
};

#define BIASES \
  Biases { bias ? w + features * w_pitch : nullptr, bias2 ? w2 + features2 * w2_pitch : nullptr }

// One entry of Y.
template <typename Z>
__device__ double score(int64_t i, int64_t j, PROJECTION_PARAMETERS(Z)) {
  double sum = plain_product(InnerAdjacent<Z>{z, z_pitch, rows}, i, OuterAdjacent<double>{w, w_pitch, classes}, j, 0,
                             features);
  if (z2)
    sum = plain_product(InnerAdjacent<Z>{z2, z2_pitch, rows}, i, OuterAdjacent<double>{w2, w2_pitch, classes}, j, 0,
                        features2, sum, true);
  return BIASES(sum, j);
}

// A tile of Y in registers: rows i0.., classes j0.. .
template <class Product, typename Z>
__device__ void score_tile(Product& product, int64_t i0, int64_t j0, PROJECTION_PARAMETERS(Z)) {
  using Rows = InnerAdjacent<Z>;
  using Weights = OuterAdjacent<double>;
  // One copy of the code for both products.
#pragma unroll 1
  for (int second = 0; second < (z2 ? 2 : 1); ++second)
    product.accumulate(Rows{second ? z2 : z, second ? z2_pitch : z_pitch, rows}, i0,
                       Weights{second ? w2 : w, second ? w2_pitch : w_pitch, classes}, j0, 0,
                       second ? features2 : features, second != 0);
}

template <typename Z>
using TallProduct = Fma<TALL_ROWS, TALL_COLS, InnerAdjacent<Z>, OuterAdjacent<double>>;

template <typename Z>
__device__ void logits_plain(PROJECTION_PARAMETERS(Z), double* __restrict__ out64, float* __restrict__ out32,
                             const int64_t out_pitch) {
  const int64_t i = blockIdx.y * int64_t{PLAIN_SIDE} + threadIdx.y;
  const int64_t j = blockIdx.x * int64_t{PLAIN_SIDE} + threadIdx.x;
  if (i >= rows || j >= classes) return;
  const double value = score<Z>(i, j, PROJECTION_ARGUMENTS);
  if (out64) {
    out64[i * out_pitch + j] = value;
  } else {
    out32[i * out_pitch + j] = static_cast<float>(value);
  }
}

template <typename Z>
__device__ void logits(PROJECTION_PARAMETERS(Z), double* __restrict__ out64, float* __restrict__ out32,
                       const int64_t out_pitch) {
  using Product = TallProduct<Z>;
  __shared__ typename Product::Shared shared;
  const int64_t i0 = blockIdx.x * int64_t{TALL_ROWS}, j0 = blockIdx.y * int64_t{TALL_COLS};
  const Biases biases = BIASES;
  Product product(shared);
  score_tile<Product, Z>(product, i0, j0, PROJECTION_ARGUMENTS);
  product.each([&](int i, int j, double2 sum) {
    const int64_t row = i0 + i, col = j0 + j;
    if (row >= rows || col >= classes) return;
    const bool pair = col + 1 < classes;
    sum.x = biases(sum.x, col);
    if (pair) sum.y = biases(sum.y, col + 1);
    if (out64) {
      store_pair(out64 + row * out_pitch, col, classes, sum);
    } else {
      float* to = out32 + row * out_pitch + col;
      to[0] = static_cast<float>(sum.x);
      if (pair) to[1] = static_cast<float>(sum.y);
    }
  });
}

// The first of the greatest so far.
struct Best {
  double value;
  uint32_t index;

  __device__ void consider(double candidate, int64_t j) {
    if (j == 0 || candidate > value) {
      value = candidate;
      index = static_cast<uint32_t>(j);
    }
  }
};

template <typename Z>
__device__ void argmax_plain(PROJECTION_PARAMETERS(Z), uint32_t* __restrict__ out) {
  const int64_t i = blockIdx.x * int64_t{ELEMENT_THREADS} + threadIdx.x;
  if (i >= rows) return;
  Best best{0.0, 0};
  for (int64_t j = 0; j < classes; ++j) best.consider(score<Z>(i, j, PROJECTION_ARGUMENTS), j);
  out[i] = best.index;
}

// A tile of scores, in pairs. Pair p of row i is kept at p ^ order(i): the eight rows that threads scan at once lie in
// different banks, and so do two rows two apart, which they write at once.
struct Scores {
  double2 pairs[TALL_ROWS][TALL_COLS / 2];

  __device__ double2& at(int i, int j) {
    const int order = (i >> 1 & 1) << 2 | (i >> 2 & 1) << 1 | (i & 1);
    return pairs[i][j / 2 ^ order];
  }
};

template <typename Z>
__device__ void argmax(PROJECTION_PARAMETERS(Z), uint32_t* __restrict__ out) {
  using Product = TallProduct<Z>;
  static_assert(TILE_THREADS == TALL_ROWS, "one thread a row");
  union Memory {
    typename Product::Shared panels;
    Scores scores;
  };
  __shared__ Memory memory;
  const int64_t i0 = blockIdx.x * int64_t{TALL_ROWS};
  const Biases biases = BIASES;
  Best best{0.0, 0};
  for (int64_t j0 = 0; j0 < classes; j0 += TALL_COLS) {
    Product product(memory.panels);
    score_tile<Product, Z>(product, i0, j0, PROJECTION_ARGUMENTS);
    product.each([&](int i, int j, double2 sum) { memory.scores.at(i, j) = sum; });
    __syncthreads();
    for (int j = 0; j < TALL_COLS; j += 2) {
      const double2 pair = memory.scores.at(threadIdx.x, j);
      if (j0 + j < classes) best.consider(biases(pair.x, j0 + j), j0 + j);
      if (j0 + j + 1 < classes) best.consider(biases(pair.y, j0 + j + 1), j0 + j + 1);
    }
    __syncthreads();
  }
  if (i0 + threadIdx.x < rows) out[i0 + threadIdx.x] = best.index;
}

// Rows of scaled scores → softmax, where they lie. A warp a row, its lanes over the classes.
__device__ void normalise_row(double* row, int64_t classes) {
  const int lane = threadIdx.x % 32;
  double top = row[0];
  for (int64_t j = lane; j < classes; j += 32) top = fmax(top, row[j]);
  for (int distance = 16; distance > 0; distance /= 2) top = fmax(top, __shfl_xor_sync(~0u, top, distance));
  // Every lane must have seen row[0] before lane 0 replaces it.
  __syncwarp();
  double sum = 0.0;
  for (int64_t j = lane; j < classes; j += 32) {
    const double value = exp(row[j] - top);
    row[j] = value;
    sum += value;
  }
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
  for (int64_t j = lane; j < classes; j += 32) row[j] /= sum;
}

template <typename Z>
__device__ void softmax_plain(PROJECTION_PARAMETERS(Z), const double temperature, double* out,
                              const int64_t out_pitch) {
  const int64_t i = blockIdx.x * int64_t{ELEMENT_THREADS} + threadIdx.x;
  if (i >= rows) return;
  double* row = out + i * out_pitch;
  double top = 0.0, sum = 0.0;
  for (int64_t j = 0; j < classes; ++j) {
    row[j] = temperature * score<Z>(i, j, PROJECTION_ARGUMENTS);
    top = j == 0 ? row[j] : fmax(top, row[j]);
  }
  for (int64_t j = 0; j < classes; ++j) sum += exp(row[j] - top);
  for (int64_t j = 0; j < classes; ++j) row[j] = exp(row[j] - top) / sum;
}

template <typename Z>
__device__ void softmax(PROJECTION_PARAMETERS(Z), const double temperature, double* out, const int64_t out_pitch) {
  using Product = TallProduct<Z>;
  __shared__ typename Product::Shared shared;
  const int64_t i0 = blockIdx.x * int64_t{TALL_ROWS};
  const Biases biases = BIASES;
  for (int64_t j0 = 0; j0 < classes; j0 += TALL_COLS) {
    Product product(shared);
    score_tile<Product, Z>(product, i0, j0, PROJECTION_ARGUMENTS);
    product.each([&](int i, int j, double2 sum) {
      const int64_t row = i0 + i, col = j0 + j;
      if (row >= rows || col >= classes) return;
      sum.x = temperature * biases(sum.x, col);
      if (col + 1 < classes) sum.y = temperature * biases(sum.y, col + 1);
      store_pair(out + row * out_pitch, col, classes, sum);
    });
  }
  __syncthreads();
  for (int64_t row = i0 + threadIdx.x / 32; row < i0 + TALL_ROWS && row < rows; row += TILE_THREADS / 32)
    normalise_row(out + row * out_pitch, classes);
}

#define KERNEL_PARAMETERS(Z)                                                                                  \
  const Z *__restrict__ left, const int64_t left_pitch, const int64_t left_rows, const Z *__restrict__ right, \
      const int64_t right_pitch, const int64_t right_rows, const int64_t features, const int64_t bias,        \
      double *__restrict__ out, const int64_t out_pitch
#define KERNEL_ARGUMENTS left, left_pitch, left_rows, right, right_pitch, right_rows, features, bias, out, out_pitch

template <typename Z>
__device__ void kernel_plain(KERNEL_PARAMETERS(Z)) {
  const int64_t i = blockIdx.y * int64_t{PLAIN_SIDE} + threadIdx.y;
  const int64_t j = blockIdx.x * int64_t{PLAIN_SIDE} + threadIdx.x;
  if (i >= left_rows || j >= right_rows) return;
  const double sum = plain_product(InnerAdjacent<Z>{left, left_pitch, left_rows}, i,
                                   InnerAdjacent<Z>{right, right_pitch, right_rows}, j, 0, features);
  out[i * out_pitch + j] = bias ? sum + 1.0 : sum;
}

template <template <int, int, class, class> class Core, typename Z>
__device__ void kernel_matrix(KERNEL_PARAMETERS(Z)) {
  using Rows = InnerAdjacent<Z>;
  using Product = Core<TILE, TILE, Rows, Rows>;
  __shared__ typename Product::Shared shared;
  const int64_t i0 = blockIdx.y * int64_t{TILE}, j0 = blockIdx.x * int64_t{TILE};
  Product product(shared);
  product.accumulate(Rows{left, left_pitch, left_rows}, i0, Rows{right, right_pitch, right_rows}, j0, 0, features);
  const double one = bias ? 1.0 : 0.0;
  product.each([&](int i, int j, double2 sum) {
    if (i0 + i < left_rows)
      store_pair(out + (i0 + i) * out_pitch, j0 + j, right_rows, make_double2(sum.x + one, sum.y + one));
  });
}

}  // namespace muso

using namespace muso;

#define EXPORT_LOGITS(name, bounds, body, Z)                                                   \
  extern "C" __global__ void bounds name(PROJECTION_PARAMETERS(Z), double* __restrict__ out64, \
                                         float* __restrict__ out32, const int64_t out_pitch) { \
    body<Z>(PROJECTION_ARGUMENTS, out64, out32, out_pitch);                                    \
  }
#define EXPORT_ARGMAX(name, bounds, body, Z)                                                     \
  extern "C" __global__ void bounds name(PROJECTION_PARAMETERS(Z), uint32_t* __restrict__ out) { \
    body<Z>(PROJECTION_ARGUMENTS, out);                                                          \
  }
#define EXPORT_SOFTMAX(name, bounds, body, Z)                                                 \
  extern "C" __global__ void bounds name(PROJECTION_PARAMETERS(Z), const double temperature,  \
                                         double* __restrict__ out, const int64_t out_pitch) { \
    body<Z>(PROJECTION_ARGUMENTS, temperature, out, out_pitch);                               \
  }
#define EXPORT_KERNEL(name, bounds, body, Z) \
  extern "C" __global__ void bounds name(KERNEL_PARAMETERS(Z)) { body(KERNEL_ARGUMENTS); }

EXPORT_LOGITS(projection_logits_f32_plain, PLAIN, logits_plain, float)
EXPORT_LOGITS(projection_logits_f64_plain, PLAIN, logits_plain, double)
EXPORT_LOGITS(projection_logits_f16_plain, PLAIN, logits_plain, f16)
EXPORT_LOGITS(projection_logits_bf16_plain, PLAIN, logits_plain, bf16)
EXPORT_LOGITS(projection_logits_f32_fma, TILED, logits, float)
EXPORT_LOGITS(projection_logits_f64_fma, TILED, logits, double)
EXPORT_LOGITS(projection_logits_f16_fma, TILED, logits, f16)
EXPORT_LOGITS(projection_logits_bf16_fma, TILED, logits, bf16)
EXPORT_ARGMAX(projection_argmax_f32_plain, ELEMENTS, argmax_plain, float)
EXPORT_ARGMAX(projection_argmax_f64_plain, ELEMENTS, argmax_plain, double)
EXPORT_ARGMAX(projection_argmax_f16_plain, ELEMENTS, argmax_plain, f16)
EXPORT_ARGMAX(projection_argmax_bf16_plain, ELEMENTS, argmax_plain, bf16)
EXPORT_ARGMAX(projection_argmax_f32_fma, TILED, argmax, float)
EXPORT_ARGMAX(projection_argmax_f64_fma, TILED, argmax, double)
EXPORT_ARGMAX(projection_argmax_f16_fma, TILED, argmax, f16)
EXPORT_ARGMAX(projection_argmax_bf16_fma, TILED, argmax, bf16)
EXPORT_SOFTMAX(projection_softmax_f32_plain, ELEMENTS, softmax_plain, float)
EXPORT_SOFTMAX(projection_softmax_f64_plain, ELEMENTS, softmax_plain, double)
EXPORT_SOFTMAX(projection_softmax_f16_plain, ELEMENTS, softmax_plain, f16)
EXPORT_SOFTMAX(projection_softmax_bf16_plain, ELEMENTS, softmax_plain, bf16)
EXPORT_SOFTMAX(projection_softmax_f32_fma, TILED, softmax, float)
EXPORT_SOFTMAX(projection_softmax_f64_fma, TILED, softmax, double)
EXPORT_SOFTMAX(projection_softmax_f16_fma, TILED, softmax, f16)
EXPORT_SOFTMAX(projection_softmax_bf16_fma, TILED, softmax, bf16)
EXPORT_KERNEL(projection_kernel_f32_plain, PLAIN, kernel_plain, float)
EXPORT_KERNEL(projection_kernel_f64_plain, PLAIN, kernel_plain, double)
EXPORT_KERNEL(projection_kernel_f16_plain, PLAIN, kernel_plain, f16)
EXPORT_KERNEL(projection_kernel_bf16_plain, PLAIN, kernel_plain, bf16)
EXPORT_KERNEL(projection_kernel_f32_fma, TILED, kernel_matrix<Fma>, float)
EXPORT_KERNEL(projection_kernel_f64_fma, TILED, kernel_matrix<Fma>, double)
EXPORT_KERNEL(projection_kernel_f16_fma, TILED, kernel_matrix<Fma>, f16)
EXPORT_KERNEL(projection_kernel_bf16_fma, TILED, kernel_matrix<Fma>, bf16)
#if __CUDA_ARCH__ >= 800
EXPORT_KERNEL(projection_kernel_f32_dmma, TILED, kernel_matrix<Dmma>, float)
EXPORT_KERNEL(projection_kernel_f64_dmma, TILED, kernel_matrix<Dmma>, double)
EXPORT_KERNEL(projection_kernel_f16_dmma, TILED, kernel_matrix<Dmma>, f16)
EXPORT_KERNEL(projection_kernel_bf16_dmma, TILED, kernel_matrix<Dmma>, bf16)
#endif
