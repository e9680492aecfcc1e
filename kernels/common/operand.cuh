// The operands of a product P(o, p) = Σ_k a(o, k) b(p, k).
//
// Both operands are seen alike: an outer index, which survives in the product, and k, which is summed over. Which of
// the two runs along the memory is a property of the type: Z in ZᵀZ has its columns outside and adjacent, Z in Z W has
// its rows outside and k adjacent. The other one steps by `pitch`.
#pragma once

#include "numbers.cuh"

namespace muso {

// Element (o, k) is base[k·pitch + o]: neighbours in memory are neighbours in the product.
template <typename T>
struct OuterAdjacent {
  using Raw = T;
  static constexpr bool kOuterAdjacent = true;

  const T* base;
  int64_t pitch;
  int64_t outer;  // how many o exist; beyond is zero

  __device__ const T* at(int64_t o, int64_t k) const { return base + k * pitch + o; }
};

// Element (o, k) is base[o·pitch + k]: neighbours in memory are neighbours in the sum.
template <typename T>
struct InnerAdjacent {
  using Raw = T;
  static constexpr bool kOuterAdjacent = false;

  const T* base;
  int64_t pitch;
  int64_t outer;

  __device__ const T* at(int64_t o, int64_t k) const { return base + o * pitch + k; }
};

// The plain twin of every product: one entry, one chain of fused multiply-adds in the order of k.
template <class A, class B>
__device__ double plain_product(const A& a, int64_t o, const B& b, int64_t p, int64_t k_begin, int64_t k_end,
                                double from = 0.0, bool negate = false) {
  double sum = from;
#pragma unroll 1
  for (int64_t k = k_begin; k < k_end; ++k) {
    const double left = widen(*a.at(o, k));
    sum = fma(negate ? -left : left, widen(*b.at(p, k)), sum);
  }
  return sum;
}

}  // namespace muso
