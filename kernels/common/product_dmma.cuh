// An M×N tile of a product on the f64 tensor cores (mma.m8n8k4, compute capability 8.0).
//
// Four warps, each with 32 rows and 32 or 16 columns of the tile, or with 16 rows and 32 columns. Panels of K = 16 steps
// come in their own element type by cp.async, `kStages` of them in flight, and are widened when a fragment is read: a
// conversion for 256 products. Rows that do not start at a multiple of 16 bytes are copied element by element instead.
//
// Shared layout: [k][o] for OuterAdjacent, padded, and [o][k] for InnerAdjacent, swizzled: the 8×4 elements that a warp
// reads for a fragment lie in different banks, and so do the chunks that it copies at once.
//
// The f64 tensor cores round each product-sum as f64; only the order of the four terms within a step is theirs.
#pragma once

#include <type_traits>

#include "async.cuh"
#include "product_fma.cuh"

namespace muso {

__device__ __forceinline__ void mma_f64(double (&c)[2], double a, double b) {
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(c[0]), "+d"(c[1])
      : "d"(a), "d"(b));
}

// Whether `count` reads of `bytes` bytes, `pitch` bytes apart, lie in different banks.
constexpr bool lines_meet_no_bank(int count, int bytes, int pitch) {
  for (int i = 0; i < count; ++i)
    for (int j = 0; j < i; ++j) {
      const int distance = (i - j) * pitch % 128;
      if (distance < bytes || 128 - distance < bytes) return false;
    }
  return true;
}

template <int M, int N, class A, class B>
class Dmma {
 public:
  static constexpr int K = 16;

 private:
  // Pitch, in elements, of a panel of `W` outer elements.
  template <class Operand, int W>
  struct Panel {
    using T = typename Operand::Raw;
    static constexpr bool kOuter = Operand::kOuterAdjacent;
    static constexpr int kLines = kOuter ? K : W;
    static constexpr int kLength = kOuter ? W : K;
    static constexpr int kChunk = 16 / sizeof(T);
    static constexpr int kChunks = kLength / kChunk;
    // Lines of outer elements are padded; lines of steps are as long as a bank row or a part of it, and swizzled.
    static constexpr int kPitch = kLength + (!kOuter ? 0 : sizeof(T) == 8 ? 4 : 8);
    // What one pass of a fragment's 8 × 4 reads takes from a line; 8-byte elements go half a warp at a time.
    static constexpr int kOuterRead = sizeof(T) == 8 ? 4 : 8;
    static constexpr int kBytes = kPitch * static_cast<int>(sizeof(T));
    static_assert(kBytes % 16 == 0, "cp.async writes 16 bytes");
    static_assert(!kOuter || lines_meet_no_bank(4, kOuterRead* static_cast<int>(sizeof(T)), kBytes), "bank conflict");
    static_assert(kOuter || 128 % kBytes == 0, "a bank row holds whole lines");

    T elements[kLines][kPitch];

    __device__ double at(int o, int k) const { return widen(kOuter ? elements[k][o] : elements[o][swizzled(o, k)]); }
    __device__ T* place(int line, int place) { return &elements[line][kOuter ? place : swizzled(line, place)]; }

    // Where element k of line o is kept. Lines that share their place in a bank row, the 1, 2 or 4 lines apart that make
    // one up, keep their chunks in different orders, so that the same k of the lines that are read at once lies in
    // different banks; and since a swizzle stays within its line, so do the chunks that cp.async writes.
    __device__ static int swizzled(int o, int k) {
      constexpr int kLinesInRow = kOuter ? 1 : 128 / kBytes;
      // A read of four doubles takes two chunks at once.
      const int order = sizeof(T) == 8 ? o % 4 * 2 : o / kLinesInRow % kChunks;
      return (k / kChunk ^ order) * kChunk + k % kChunk;
    }
  };

  // A thread's share of the panels of one operand, copied one panel after the other: the same place in lines that lie a
  // fixed distance apart. Aligned rows go in chunks of 16 bytes, cut where the data ends.
  template <class Operand, int W>
  class Source {
   public:
    using Target = Panel<Operand, W>;
    using T = typename Operand::Raw;

    __device__ Source(const Operand& operand, int64_t o0, int64_t k0)
        : base_(operand.base), pitch_(operand.pitch), aligned_(rows_aligned(operand.base, operand.pitch)) {
      const int64_t beyond = operand.outer - o0;
      exist_ = static_cast<int>(beyond < 0 ? 0 : beyond < W ? beyond : W);
      const int thread = threadIdx.x;
      line_ = aligned_ ? turn_of(thread / kChunks) : thread / kLength;
      place_ = aligned_ ? thread % kChunks * kChunk : thread % kLength;
      from_ = operand.at(o0 + (kOuter ? place_ : line_), k0 + (kOuter ? line_ : place_));
    }

    // Starts the copy of the next panel, of which `left` steps exist.
    __device__ void next(Target& to, int left) {
      const int lines = kOuter ? left : exist_, length = kOuter ? exist_ : left;
      const T* from = from_;
      if (aligned_) {
        constexpr int kTurns = ceil_div(kLines * kChunks, TILE_THREADS), kStride = TILE_THREADS / kChunks;
        const int bytes = min(max(length - place_, 0), kChunk) * static_cast<int>(sizeof(T));
#pragma unroll
        for (int turn = 0; turn < kTurns; ++turn) {
          const int line = line_ + turn * kStride;
          const int count = line < lines ? bytes : 0;
          if (kTurns * kStride == kLines || line < kLines)
            copy_async(to.place(line, place_), count > 0 ? from : base_, count);
          from += kStride * pitch_;
        }
      } else {
        constexpr int kStride = TILE_THREADS / kLength;
#pragma unroll 1
        for (int line = line_; line < kLines; line += kStride) {
          *to.place(line, place_) = line < lines && place_ < length ? *from : T{};
          from += kStride * pitch_;
        }
      }
      from_ += kOuter ? K * pitch_ : K;
    }

   private:
    static constexpr bool kOuter = Target::kOuter;
    static constexpr int kLines = Target::kLines, kLength = Target::kLength;
    static constexpr int kChunk = Target::kChunk, kChunks = Target::kChunks;
    static_assert(TILE_THREADS % kLength == 0 && TILE_THREADS % kChunks == 0, "a thread keeps to its place");
    // Eight chunks are written at once; those of two short lines meet no bank if the lines are four apart.
    static constexpr bool kShort = kOuter && kChunks == 4;
    static_assert(!kShort || 4 * Target::kBytes % 128 == 64, "bank conflict");

    // The line that is copied n-th.
    __device__ static int turn_of(int n) { return kShort ? n / 8 * 8 + n % 2 * 4 + n % 8 / 2 : n; }

    const T* base_;
    int64_t pitch_;
    const T* from_;
    bool aligned_;
    int exist_, line_, place_;
  };

  using PanelA = Panel<A, M>;
  using PanelB = Panel<B, N>;
  static constexpr int kStageBytes = sizeof(PanelA) + sizeof(PanelB);
  static constexpr int kStages = 3 * kStageBytes <= 48 * 1024 ? 3 : 2;
  static constexpr int kWarpsX = N >= 64 ? 2 : 1;
  static constexpr int kWarpsY = TILE_THREADS / 32 / kWarpsX;
  static constexpr int kWarpRows = M / kWarpsY;
  static constexpr int kWarpCols = N / kWarpsX;
  static constexpr int kTilesY = kWarpRows / 8;
  static constexpr int kTilesX = kWarpCols / 8;

 public:
  struct alignas(16) Shared {
    PanelA a[kStages];
    PanelB b[kStages];
  };
  static_assert(sizeof(Shared) <= 48 * 1024, "static shared memory");

  __device__ explicit Dmma(Shared& shared) : shared_(shared) { clear(); }

  __device__ void clear() {
#pragma unroll
    for (int y = 0; y < kTilesY; ++y)
#pragma unroll
      for (int x = 0; x < kTilesX; ++x) sums_[y][x][0] = sums_[y][x][1] = 0.0;
  }

  // As Fma::accumulate. With `same`, what lies wholly above the diagonal is left out.
  template <class Observer = NoObserver>
  __device__ void accumulate(const A& a, int64_t a0, const B& b, int64_t b0, int64_t k_begin, int64_t k_end,
                             bool negate = false, bool same = false, const Observer& observe = {}) {
    Source<A, M> from_a(a, a0, k_begin);
    Source<B, N> from_b(b, b0, k_begin);
    const int depth = static_cast<int>(k_end - k_begin);
    const auto load = [&](int k, int slot) {
      if (k < depth) {
        from_a.next(shared_.a[slot], depth - k);
        if (!same) from_b.next(shared_.b[slot], depth - k);
      }
      commit_copies();
    };
    const int within = same ? static_cast<int>(b0 - a0) : 0;
    const bool idle = same && within + first_col() >= first_row() + kWarpRows;
#pragma unroll
    for (int stage = 0; stage < kStages - 1; ++stage) load(stage * K, stage);
    int used = 0, filled = kStages - 1;
#pragma unroll 1
    for (int k = 0; k < depth; k += K) {
      wait_for_copies<kStages - 2>();
      __syncthreads();
      load(k + (kStages - 1) * K, filled);
      const PanelA& panel_a = shared_.a[used];
      if constexpr (std::is_same_v<PanelA, PanelB>) {
        use(panel_a, same ? panel_a : shared_.b[used], within, negate, idle, observe);
      } else if constexpr (std::is_same_v<A, B>) {
        if (same) {
          use(panel_a, panel_a, within, negate, idle, observe);
        } else {
          use(panel_a, shared_.b[used], 0, negate, idle, observe);
        }
      } else {
        use(panel_a, shared_.b[used], 0, negate, idle, observe);
      }
      used = used + 1 == kStages ? 0 : used + 1;
      filled = filled + 1 == kStages ? 0 : filled + 1;
    }
    wait_for_copies<0>();
    __syncthreads();
  }

  template <class Visitor>
  __device__ void each(const Visitor& visit) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int y = 0; y < kTilesY; ++y)
#pragma unroll
      for (int x = 0; x < kTilesX; ++x)
        visit(first_row() + y * 8 + lane / 4, first_col() + x * 8 + lane % 4 * 2,
              make_double2(sums_[y][x][0], sums_[y][x][1]));
  }

 private:
  __device__ static int first_row() { return threadIdx.x / 32 / kWarpsX * kWarpRows; }
  __device__ static int first_col() { return threadIdx.x / 32 % kWarpsX * kWarpCols; }

  // b's elements are those of `b` from `within` on.
  template <class Right, class Observer>
  __device__ void use(const PanelA& a, const Right& b, int within, bool negate, bool idle, const Observer& observe) {
    if (!idle) multiply(a, b, within, negate);
    observe([&](int k, int o) { return a.at(o, k); }, [&](int k, int o) { return b.at(within + o, k); });
  }

  template <class Right>
  __device__ void multiply(const PanelA& panel_a, const Right& panel_b, int within, bool negate) {
    const int lane = threadIdx.x % 32, outer = lane / 4, inner = lane % 4;
#pragma unroll
    for (int k = 0; k < K; k += 4) {
      double a[kTilesY], b[kTilesX];
#pragma unroll
      for (int y = 0; y < kTilesY; ++y) {
        a[y] = panel_a.at(first_row() + y * 8 + outer, k + inner);
        if (negate) a[y] = -a[y];
      }
#pragma unroll
      for (int x = 0; x < kTilesX; ++x) b[x] = panel_b.at(within + first_col() + x * 8 + outer, k + inner);
#pragma unroll
      for (int y = 0; y < kTilesY; ++y)
#pragma unroll
        for (int x = 0; x < kTilesX; ++x) mma_f64(sums_[y][x], a[y], b[x]);
    }
  }

  Shared& shared_;
  double sums_[kTilesY][kTilesX][2];
};

}  // namespace muso
