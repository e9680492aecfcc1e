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

#define FEATURE_PARAMETERS(X, Z)                                                                           \
  const X *__restrict__ x, const int64_t x_pitch, const int64_t rows, const int64_t inputs,                \
      const double *__restrict__ omega, const int64_t omega_pitch, const int64_t count, Z *__restrict__ z, \
      const int64_t z_pitch
#define FEATURE_ARGUMENTS x, x_pitch, rows, inputs, omega, omega_pitch, count, z, z_pitch

// Writes the two features of one phase.
template <typename Z>
__device__ void put_features(double phase, int64_t k, int64_t count, Z* row) {
  double sine, cosine;
  sine_cosine(phase, sine, cosine);
  const double scale = sqrt(1.0 / static_cast<double>(count));
  row[k] = static_cast<Z>(scale * cosine);
  row[count + k] = static_cast<Z>(scale * sine);
}

template <typename X, typename Z>
__device__ void features_plain(FEATURE_PARAMETERS(X, Z)) {
  const int64_t i = blockIdx.y * int64_t{PLAIN_SIDE} + threadIdx.y;
  const int64_t k = blockIdx.x * int64_t{PLAIN_SIDE} + threadIdx.x;
  if (i >= rows || k >= count) return;
  const double phase = plain_product(InnerAdjacent<X>{x, x_pitch, rows}, i,
                                     OuterAdjacent<double>{omega, omega_pitch, count}, k, 0, inputs);
  put_features(phase, k, count, z + i * z_pitch);
}

template <template <int, int, class, class> class Core, typename X, typename Z>
__device__ void features(FEATURE_PARAMETERS(X, Z)) {
  using Inputs = InnerAdjacent<X>;
  using Frequencies = OuterAdjacent<double>;
  using Product = Core<TILE, TILE, Inputs, Frequencies>;
  // The phases change hands through shared memory, so that neighbouring threads write neighbouring features whatever
  // the alignment of a row, and so that there is one copy of the trigonometry.
  union alignas(16) Memory {
    typename Product::Shared panels;
    double phases[TILE][TILE + 8];  // two rows of four pairs, as the tensor cores leave them, meet no bank twice
  };
  __shared__ Memory memory;
  const int64_t i0 = blockIdx.y * int64_t{TILE}, k0 = blockIdx.x * int64_t{TILE};
  Product product(memory.panels);
  product.accumulate(Inputs{x, x_pitch, rows}, i0, Frequencies{omega, omega_pitch, count}, k0, 0, inputs);
  product.each([&](int i, int k, double2 phases) { *reinterpret_cast<double2*>(&memory.phases[i][k]) = phases; });
  __syncthreads();
  const int k = threadIdx.x % TILE;
#pragma unroll 1
  for (int i = threadIdx.x / TILE; i < TILE; i += TILE_THREADS / TILE)
    if (i0 + i < rows && k0 + k < count) put_features(memory.phases[i][k], k0 + k, count, z + (i0 + i) * z_pitch);
}

}  // namespace muso

using namespace muso;

#define EXPORT_FEATURES(name, bounds, body, X, Z) \
  extern "C" __global__ void bounds name(FEATURE_PARAMETERS(X, Z)) { body(FEATURE_ARGUMENTS); }

EXPORT_FEATURES(rff_features_f32_f32_plain, PLAIN, features_plain, float, float)
EXPORT_FEATURES(rff_features_f32_f64_plain, PLAIN, features_plain, float, double)
EXPORT_FEATURES(rff_features_f64_f32_plain, PLAIN, features_plain, double, float)
EXPORT_FEATURES(rff_features_f64_f64_plain, PLAIN, features_plain, double, double)
EXPORT_FEATURES(rff_features_f32_f32_fma, TILED, features<Fma>, float, float)
EXPORT_FEATURES(rff_features_f32_f64_fma, TILED, features<Fma>, float, double)
EXPORT_FEATURES(rff_features_f64_f32_fma, TILED, features<Fma>, double, float)
EXPORT_FEATURES(rff_features_f64_f64_fma, TILED, features<Fma>, double, double)
#if __CUDA_ARCH__ >= 800
EXPORT_FEATURES(rff_features_f32_f32_dmma, TILED, features<Dmma>, float, float)
EXPORT_FEATURES(rff_features_f32_f64_dmma, TILED, features<Dmma>, float, double)
EXPORT_FEATURES(rff_features_f64_f32_dmma, TILED, features<Dmma>, double, float)
EXPORT_FEATURES(rff_features_f64_f64_dmma, TILED, features<Dmma>, double, double)
#endif
