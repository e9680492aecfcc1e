// An M×N tile of a product in f64 on the ordinary pipes, for every device.
//
// 128 threads hold M·N/128 sums each. Panels of K = 16 steps of both operands go global → registers → shared memory,
// and are widened on the way, once for a tile and not once for a use: on devices with few f64 units a conversion costs
// as much as a product. Two buffers, one barrier a panel; the next panel is on its way while this one is used.
//
// Shared layout [k][o] with two doubles of padding: a thread reads pairs (16 bytes), a warp reads either one pair or
// neighbouring ones, and the transposing stores of an InnerAdjacent operand spread over all banks (see `Slot`).
//
// Each sum is one chain of fma in the order of k, the same as `plain_product`: the same bytes.
#pragma once

#include "operand.cuh"

namespace muso {

struct NoObserver {
  template <class A, class B>
  __device__ void operator()(A, B) const {}
};

template <int M, int N, class A, class B>
class Fma {
 public:
  static constexpr int K = 16;
  static constexpr int kPitchA = M + 2;
  static constexpr int kPitchB = N + 2;

  struct alignas(16) Shared {
    double a[2][K][kPitchA];
    double b[2][K][kPitchB];
  };

  __device__ explicit Fma(Shared& shared) : shared_(shared) { clear(); }

  __device__ void clear() {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kCols; ++c) sums_[r][c] = 0.0;
  }

  // Adds Σ a(a0 + i, k) b(b0 + j, k) over k_begin ≤ k < k_end, subtracts it with `negate`. With `same` both operands
  // are the same panel, which is then loaded once. `observe(a, b)` is called for every panel by all threads, with
  // accessors (k, o) to what is in shared memory; beyond the data there are zeros. Ends with a barrier.
  template <class Observer = NoObserver>
  __device__ void accumulate(const A& a, int64_t a0, const B& b, int64_t b0, int64_t k_begin,
                             int64_t k_end, bool negate = false, bool same = false,
                             const Observer& observe = {}) {
    if (k_begin >= k_end) return;
    typename A::Raw raw_a[kLoadsA];
    typename B::Raw raw_b[kLoadsB];
    fetch<M>(a, a0, k_begin, k_end, raw_a);
    if (!same) fetch<N>(b, b0, k_begin, k_end, raw_b);
    stash<M, A>(raw_a, a0, negate, shared_.a[0]);
    if (!same) stash<N, B>(raw_b, b0, false, shared_.b[0]);
    __syncthreads();
    int buffer = 0;
    for (int64_t k = k_begin; k < k_end; k += K) {
      const bool more = k + K < k_end;
      if (more) {
        fetch<M>(a, a0, k + K, k_end, raw_a);
        if (!same) fetch<N>(b, b0, k + K, k_end, raw_b);
      }
      const double* panel_a = &shared_.a[buffer][0][0];
      const double* panel_b = same ? panel_a : &shared_.b[buffer][0][0];
      multiply(panel_a, panel_b);
      observe([&](int step, int o) { return panel_a[step * kPitchA + o]; },
              [&](int step, int o) { return panel_b[step * kPitchB + o]; });
      buffer ^= 1;
      if (more) {
        stash<M, A>(raw_a, a0, negate, shared_.a[buffer]);
        if (!same) stash<N, B>(raw_b, b0, false, shared_.b[buffer]);
      }
      __syncthreads();
    }
  }

  // Hands every sum of the tile to visit(i, j, {sum(i, j), sum(i, j + 1)}), j even.
  template <class Visitor>
  __device__ void each(const Visitor& visit) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kCols; c += 2)
        visit(row(r), col(c), make_double2(sums_[r][c], sums_[r][c + 1]));
  }

 private:
  static constexpr int kCols = 4;
  static constexpr int kThreadsX = N / kCols;
  static constexpr int kThreadsY = TILE_THREADS / kThreadsX;
  static constexpr int kRows = M / kThreadsY;
  static constexpr int kLoadsA = K * M / TILE_THREADS;
  static constexpr int kLoadsB = K * N / TILE_THREADS;
  static_assert(kRows % 2 == 0 && kRows * kThreadsY == M, "rows go in pairs");

  // Rows and columns go in pairs that a thread reads as 16 bytes, and neighbouring threads have neighbouring pairs.
  __device__ static int row(int r) {
    return (threadIdx.x / kThreadsX + r / 2 * kThreadsY) * 2 + r % 2;
  }
  __device__ static int col(int c) {
    return (threadIdx.x % kThreadsX + c / 2 * kThreadsX) * 2 + c % 2;
  }

  // Which element of a panel of width W a thread moves in its turn.
  template <int W, class Operand>
  struct Slot {
    int o, k;

    __device__ explicit Slot(int turn) {
      const int e = threadIdx.x + turn * TILE_THREADS;
      if (Operand::kOuterAdjacent) {
        o = e % W;
        k = e / W;
      } else {
        // A warp takes 16 steps of two rows, so that whole sectors are read; half a warp takes eight steps of both,
        // so that its stores, a pitch of 2 mod 16 apart, meet every bank once.
        k = (e & 7) | (e & 16) >> 1;
        o = e / 32 * 2 + (e >> 3 & 1);
      }
    }
  };

  template <int W, class Operand, int Loads>
  __device__ static void fetch(const Operand& operand, int64_t o0, int64_t k0, int64_t k_end,
                               typename Operand::Raw (&raw)[Loads]) {
#pragma unroll
    for (int turn = 0; turn < Loads; ++turn) {
      const Slot<W, Operand> slot(turn);
      raw[turn] = operand.fetch(o0 + slot.o, k0 + slot.k, k_end);
    }
  }

  template <int W, class Operand, int Loads>
  __device__ static void stash(const typename Operand::Raw (&raw)[Loads], int64_t o0, bool negate,
                               double (&panel)[K][W + 2]) {
#pragma unroll
    for (int turn = 0; turn < Loads; ++turn) {
      const Slot<W, Operand> slot(turn);
      const double value = Operand::value(raw[turn], o0 + slot.o);
      panel[slot.k][slot.o] = negate ? -value : value;
    }
  }

  __device__ void multiply(const double* panel_a, const double* panel_b) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
      double a[kRows], b[kCols];
#pragma unroll
      for (int r = 0; r < kRows; r += 2) {
        const double2 pair = *reinterpret_cast<const double2*>(panel_a + k * kPitchA + row(r));
        a[r] = pair.x;
        a[r + 1] = pair.y;
      }
#pragma unroll
      for (int c = 0; c < kCols; c += 2) {
        const double2 pair = *reinterpret_cast<const double2*>(panel_b + k * kPitchB + col(c));
        b[c] = pair.x;
        b[c + 1] = pair.y;
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int c = 0; c < kCols; ++c) sums_[r][c] = fma(a[r], b[c], sums_[r][c]);
    }
  }

  Shared& shared_;
  double sums_[kRows][kCols];
};

}  // namespace muso
