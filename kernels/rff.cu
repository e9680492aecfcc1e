// Random Fourier features: Z = √(1/m)·[cos(XΩ), sin(XΩ)], N×2m, from X (N×d) and Ω (d×m, f64), all row-major.
//
// The map of the paper's linear experiments (its section 5.1): with rows of Ω drawn from N(0, σ⁻²) the products of
// features approach the Gaussian kernel. The phases XΩ are never written: a tile of them is formed in f64 as in the
// other products, and each phase leaves two features, column k and column m + k.
//
// Geometry: a 64×64 tile of phases a thread block; fma or f64 tensor cores. The plain twin takes a thread a phase, and
// the fma kernel gives its bytes.
#include "common/product_dmma.cuh"
#include "common/product_fma.cuh"
#include "common/trigonometry.cuh"

namespace muso {

#define FEATURE_PARAMETERS(X, Z)                                                               \
  const X *__restrict__ x, const int64_t x_pitch, const int64_t rows, const int64_t inputs,   \
      const double *__restrict__ omega, const int64_t omega_pitch, const int64_t count,       \
      Z *__restrict__ z, const int64_t z_pitch
#define FEATURE_ARGUMENTS x, x_pitch, rows, inputs, omega, omega_pitch, count, z, z_pitch

// Writes the features of phases (row, k) and (row, k + 1), those that exist.
template <typename Z>
__device__ void put_features(double2 phases, int64_t k, int64_t count, double scale, Z* row) {
  const bool pair = k + 1 < count;
  double2 sine, cosine;
  sine_cosine(phases.x, sine.x, cosine.x);
  sine_cosine(phases.y, sine.y, cosine.y);
  if (k < count) {
    row[k] = static_cast<Z>(scale * cosine.x);
    row[count + k] = static_cast<Z>(scale * sine.x);
  }
  if (pair) {
    row[k + 1] = static_cast<Z>(scale * cosine.y);
    row[count + k + 1] = static_cast<Z>(scale * sine.y);
  }
}

template <typename X, typename Z>
__device__ void features_plain(FEATURE_PARAMETERS(X, Z)) {
  const int64_t i = blockIdx.y * int64_t{PLAIN_SIDE} + threadIdx.y;
  const int64_t k = blockIdx.x * int64_t{PLAIN_SIDE} + threadIdx.x;
  if (i >= rows || k >= count) return;
  const double phase = plain_product(InnerAdjacent<X>{x, x_pitch, rows}, i,
                                     OuterAdjacent<double>{omega, omega_pitch, count}, k, 0, inputs);
  double sine, cosine;
  sine_cosine(phase, sine, cosine);
  const double scale = sqrt(1.0 / static_cast<double>(count));
  z[i * z_pitch + k] = static_cast<Z>(scale * cosine);
  z[i * z_pitch + count + k] = static_cast<Z>(scale * sine);
}

template <template <int, int, class, class> class Core, typename X, typename Z>
__device__ void features(FEATURE_PARAMETERS(X, Z)) {
  using Inputs = InnerAdjacent<X>;
  using Frequencies = OuterAdjacent<double>;
  using Product = Core<TILE, TILE, Inputs, Frequencies>;
  __shared__ typename Product::Shared shared;
  const int64_t i0 = blockIdx.y * int64_t{TILE}, k0 = blockIdx.x * int64_t{TILE};
  Product product(shared);
  product.accumulate(Inputs{x, x_pitch, rows}, i0, Frequencies{omega, omega_pitch, count}, k0, 0,
                     inputs);
  const double scale = sqrt(1.0 / static_cast<double>(count));
  product.each([&](int i, int k, double2 phases) {
    if (i0 + i < rows) put_features(phases, k0 + k, count, scale, z + (i0 + i) * z_pitch);
  });
}

}  // namespace muso

using namespace muso;

#define EXPORT_FEATURES(name, threads, body, X, Z)                                       \
  extern "C" __global__ void __launch_bounds__(threads) name(FEATURE_PARAMETERS(X, Z)) { \
    body(FEATURE_ARGUMENTS);                                                             \
  }

EXPORT_FEATURES(rff_features_f32_f32_plain, PLAIN_SIDE* PLAIN_SIDE, features_plain, float, float)
EXPORT_FEATURES(rff_features_f32_f64_plain, PLAIN_SIDE* PLAIN_SIDE, features_plain, float, double)
EXPORT_FEATURES(rff_features_f64_f32_plain, PLAIN_SIDE* PLAIN_SIDE, features_plain, double, float)
EXPORT_FEATURES(rff_features_f64_f64_plain, PLAIN_SIDE* PLAIN_SIDE, features_plain, double, double)
EXPORT_FEATURES(rff_features_f32_f32_fma, TILE_THREADS, features<Fma>, float, float)
EXPORT_FEATURES(rff_features_f32_f64_fma, TILE_THREADS, features<Fma>, float, double)
EXPORT_FEATURES(rff_features_f64_f32_fma, TILE_THREADS, features<Fma>, double, float)
EXPORT_FEATURES(rff_features_f64_f64_fma, TILE_THREADS, features<Fma>, double, double)
#if __CUDA_ARCH__ >= 800
EXPORT_FEATURES(rff_features_f32_f32_dmma, TILE_THREADS, features<Dmma>, float, float)
EXPORT_FEATURES(rff_features_f32_f64_dmma, TILE_THREADS, features<Dmma>, float, double)
EXPORT_FEATURES(rff_features_f64_f32_dmma, TILE_THREADS, features<Dmma>, double, float)
EXPORT_FEATURES(rff_features_f64_f64_dmma, TILE_THREADS, features<Dmma>, double, double)
#endif
