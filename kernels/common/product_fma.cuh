// An M×N tile of a product in f64 on the ordinary pipes, for every device.
//
// 128 threads hold M·N/128 sums each. Panels of K = 16 steps of both operands go global → registers → shared memory,
// and are widened on the way, once for a tile and not once for a use: on devices with few f64 units a conversion costs
// as much as a product. Two buffers, one barrier a panel; the next panel is on its way while this one is used.
//
// Shared layout [k][o] with two doubles of padding: a thread reads pairs (16 bytes), a warp reads either one pair or
// neighbouring ones, and the transposing stores of an InnerAdjacent operand spread over all banks (see `Cursor`).
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

  // Adds Σ a(a0 + i, k) b(b0 + j, k) over k_begin ≤ k < k_end, subtracts it with `negate`. With `same` the operands are
  // one, and b's panel is the part of a's from b0 - a0 on, which is then loaded once. `observe(a, b)` is called for every
  // panel by all threads, with accessors (k, o) to what is in shared memory; beyond the data there are zeros. Ends with a
  // barrier.
  template <class Observer = NoObserver>
  __device__ void accumulate(const A& a, int64_t a0, const B& b, int64_t b0, int64_t k_begin, int64_t k_end,
                             bool negate = false, bool same = false, const Observer& observe = {}) {
    if (k_begin >= k_end) return;
    Cursor<A, M> from_a(a, a0, k_begin);
    Cursor<B, N> from_b(b, b0, k_begin);
    int left = static_cast<int>(k_end - k_begin);
    int buffer = 0;
    from_a.fetch(left);
    if (!same) from_b.fetch(left);
    from_a.stash(shared_.a[0], negate);
    if (!same) from_b.stash(shared_.b[0], false);
    __syncthreads();
#pragma unroll 1
    for (; left > 0; left -= K) {
      const bool more = left > K;
      if (more) {
        from_a.fetch(left - K);
        if (!same) from_b.fetch(left - K);
      }
      const double* panel_a = &shared_.a[buffer][0][0];
      const double* panel_b = same ? panel_a + (b0 - a0) : &shared_.b[buffer][0][0];
      const int pitch_b = same ? kPitchA : kPitchB;
      multiply(panel_a, panel_b, pitch_b);
      observe([&](int step, int o) { return panel_a[step * kPitchA + o]; },
              [&](int step, int o) { return panel_b[step * pitch_b + o]; });
      buffer ^= 1;
      if (more) {
        from_a.stash(shared_.a[buffer], negate);
        if (!same) from_b.stash(shared_.b[buffer], false);
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
      for (int c = 0; c < kCols; c += 2) visit(row(r), col(c), make_double2(sums_[r][c], sums_[r][c + 1]));
  }

 private:
  static constexpr int kCols = 4;
  static constexpr int kThreadsX = N / kCols;
  static constexpr int kThreadsY = TILE_THREADS / kThreadsX;
  static constexpr int kRows = M / kThreadsY;
  static_assert(kRows % 2 == 0 && kRows * kThreadsY == M, "rows go in pairs");

  // Rows and columns go in pairs that a thread reads as 16 bytes, and neighbouring threads have neighbouring pairs.
  __device__ static int row(int r) { return (threadIdx.x / kThreadsX + r / 2 * kThreadsY) * 2 + r % 2; }
  __device__ static int col(int c) { return (threadIdx.x % kThreadsX + c / 2 * kThreadsX) * 2 + c % 2; }

  // A thread's share of the panels of one operand, W elements wide: W/8 elements of each panel, which lie a fixed
  // distance apart, every second (W = 64) row of Z or every eighth, say.
  template <class Operand, int W>
  class Cursor {
   public:
    __device__ Cursor(const Operand& operand, int64_t o0, int64_t k0)
        : next_(operand.at(o0 + first_o(), k0 + first_k())), pitch_(operand.pitch) {
      const int64_t exist = operand.outer - (o0 + first_o());
      exist_ = static_cast<int>(exist < 0 ? 0 : exist < W ? exist : W);
    }

    // Reads the share of the next panel, of which `left` steps exist.
    __device__ void fetch(int left) {
      const int steps = left - first_k();
      // Along the way that the turns go, elements that exist; none where the other way is beyond the end.
      const int valid = kOuter ? (exist_ > 0 ? steps : 0) : (steps > 0 ? exist_ : 0);
      const typename Operand::Raw* from = next_;
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) {
        raw_[turn] = turn * kStride < valid ? *from : typename Operand::Raw{};
        from += kStride * pitch_;
      }
      next_ += kOuter ? K * pitch_ : K;
    }

    // Writes what was read.
    __device__ void stash(double (&panel)[K][W + 2], bool negate) const {
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) {
        const int along = turn * kStride;
        const double value = widen(raw_[turn]);
        panel[first_k() + (kOuter ? along : 0)][first_o() + (kOuter ? 0 : along)] = negate ? -value : value;
      }
    }

   private:
    static constexpr bool kOuter = Operand::kOuterAdjacent;
    static constexpr int kTurns = K * W / TILE_THREADS;
    static constexpr int kStride = kOuter ? TILE_THREADS / W : TILE_THREADS / K;
    static_assert(kStride * kTurns == (kOuter ? K : W), "the turns cover the panel");

    // With k adjacent, a warp takes 16 steps of two rows, so that whole sectors are read; half a warp takes eight
    // steps of both, so that its stores, a pitch of 2 mod 16 apart, meet every bank once.
    __device__ static int first_o() {
      const int thread = threadIdx.x;
      return kOuter ? thread % W : thread / 32 * 2 + (thread >> 3 & 1);
    }
    __device__ static int first_k() {
      const int thread = threadIdx.x;
      return kOuter ? thread / W : (thread & 7) | (thread & 16) >> 1;
    }

    const typename Operand::Raw* next_;
    int64_t pitch_;
    int exist_;
    typename Operand::Raw raw_[kTurns];
  };

  __device__ void multiply(const double* panel_a, const double* panel_b, int pitch_b) {
#pragma unroll 4
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
        const double2 pair = *reinterpret_cast<const double2*>(panel_b + k * pitch_b + col(c));
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
