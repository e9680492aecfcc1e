// Sums over rows: G += ±ZᵀZ and the cross sums ZᵀY, Y as values or as a class a row.
//
//   G (D×D, lower triangle) and ZᵀY (D×C), f64, from Z (N×F, row-major, f32/f16/bf16/f64). D = F + 1 with a bias, the
//   feature that is always one: its row of G is the sum of the rows of Z, its row of ZᵀY the sum of the rows of Y.
//   Everything the closed forms need is a function of these sums (the paper's Z Zᵀ, transposed), and forgetting k rows
//   is the same kernel over those rows with the other sign.
//
// Accumulation. Rows are cut into blocks of ROW_BLOCK, counted from the launch's first row. A block's sum starts from
// zero and is then added to G, block after block. So an entry of G is a two-level sum whose shape depends on the row
// numbers alone, and whether one thread block walks all row blocks (`partials` null) or each row block has its own
// (`partials`, then gram_fold_f64 in the same order) cannot be told from the bytes.
//
// Geometry. One thread block a tile of the lower triangle, grid.y over row blocks. A tile on the diagonal loads its
// panel once and, since it has those columns in shared memory anyway, forms the bias row as well. `narrow` cuts every
// tile into strips of TILE_NARROW columns with a thread block each: half as much again to load, but twice the thread
// blocks, for devices that whole tiles would not fill evenly. An entry is summed in the same way in both.
//   fma   64×64, f64 FMA (common/product_fma.cuh): the bytes of the plain twin.
//   dmma  64×64, f64 tensor cores (common/product_dmma.cuh).
//   mma   128×128, f16/bf16 tensor cores. Products of two 11-bit (8-bit) significands are exact in f32. The f32
//         sum of at most 512 of them errs by at most 512·2⁻²³·Σ|zᵢzⱼ|, counting a tensor core as truncating; blocks are
//         added in f64, so the error does not grow with N beyond that relative bound.
//
// Classes. A row whose Y is one-hot adds itself to its class and nothing to the others: N·D additions, no product. The
// host sorts the rows of a launch by class, each class in order, and a warp walks such a set of rows down 32 columns:
// every sector of Z is read once. Since nothing but the order of a class's rows within a block, and of the blocks,
// matters to a sum, the bytes are those of the product with one-hot rows. Where the classes are too few or too uneven
// to fill the device, the sets are first the runs (a class in one row block), whose sums go to a row each (gram_runs),
// and then these rows are summed by class, each a block of its own.
#include "common/product_dmma.cuh"
#include "common/product_fma.cuh"

namespace muso {

// Where a row block's sum goes.
struct Destination {
  double* base;
  int64_t pitch;
  double sign;
  bool add;  // to what is there; else overwrite

  __device__ void put(int64_t i, int64_t j, int64_t valid, double2 sum) const {
    if (add) {
      add_pair(base + i * pitch, j, valid, sign, sum);
    } else {
      store_pair(base + i * pitch, j, valid, sum);
    }
  }
  __device__ void put(int64_t i, int64_t j, double sum) const {
    double* entry = base + i * pitch + j;
    *entry = add ? fma(sign, sum, *entry) : sum;
  }
};

// Calls work(first row, end of rows, destination) for the row blocks of this thread block; the destination is a
// function, to be asked once the sum is there.
template <class Work>
__device__ void for_row_blocks(int64_t rows, unsigned lane, double sign, double* result, int64_t pitch, int64_t order,
                               double* partials, const Work& work) {
  const int64_t blocks = ceil_div<int64_t>(rows, ROW_BLOCK);
  const int64_t begin = partials ? lane : 0, end = partials ? lane + 1 : blocks;
  for (int64_t block = begin; block < end && block < blocks; ++block) {
    const int64_t first = block * ROW_BLOCK;
    const int64_t last = first + ROW_BLOCK < rows ? first + ROW_BLOCK : rows;
    work(first, last, [&] {
      const int64_t to_pitch = opaque(pitch);
      return partials ? Destination{partials + block * order * pitch, to_pitch, 1.0, false}
                      : Destination{result, to_pitch, sign, true};
    });
  }
}

#define SYRK_PARAMETERS(Z)                                                                                        \
  const Z *__restrict__ z, const int64_t z_pitch, const int64_t rows, const int64_t features, const int64_t bias, \
      const double sign, double *__restrict__ gram, const int64_t gram_pitch, double *__restrict__ partials
#define SYRK_ARGUMENTS z, z_pitch, rows, features, bias, sign, gram, gram_pitch, partials

template <typename Z>
__device__ void syrk_plain(SYRK_PARAMETERS(Z)) {
  const int64_t i = blockIdx.y * int64_t{PLAIN_SIDE} + threadIdx.y;
  const int64_t j = blockIdx.x * int64_t{PLAIN_SIDE} + threadIdx.x;
  const int64_t order = features + bias;
  if (i >= order || j > i) return;
  const auto value = [&](int64_t row, int64_t col) { return col < features ? widen(z[row * z_pitch + col]) : 1.0; };
  for_row_blocks(rows, blockIdx.z, sign, gram, gram_pitch, order, partials,
                 [&](int64_t first, int64_t last, const auto& destination) {
                   double sum = 0.0;
#pragma unroll 1
                   for (int64_t row = first; row < last; ++row) sum = fma(value(row, i), value(row, j), sum);
                   destination().put(i, j, sum);
                 });
}

template <template <int, int, class, class> class Core, int COLS, typename Z>
__device__ void syrk(SYRK_PARAMETERS(Z)) {
  using Columns = OuterAdjacent<Z>;
  using Product = Core<TILE, COLS, Columns, Columns>;
  constexpr unsigned kStrips = TILE / COLS;
  static_assert(kStrips * COLS == TILE, "strips make up a tile");
  __shared__ typename Product::Shared shared;

  const TrianglePosition tile(blockIdx.x / kStrips);
  const int64_t i0 = tile.row * TILE, j0 = tile.col * TILE + blockIdx.x % kStrips * COLS;
  if (j0 >= features) return;
  const bool diagonal = tile.row == tile.col, forms_bias = bias && i0 == j0;
  const Columns columns{z, z_pitch, features};
  const int column = threadIdx.x;
  Product product(shared);
  for_row_blocks(rows, blockIdx.y, sign, gram, gram_pitch, features + bias, partials,
                 [&](int64_t first, int64_t last, const auto& destination) {
                   product.clear();
                   double column_sum = 0.0;
                   product.accumulate(columns, i0, columns, j0, first, last, false, diagonal,
                                      [&](const auto& panel, const auto&) {
                                        if (forms_bias && column < TILE)
#pragma unroll
                                          for (int k = 0; k < Product::K; ++k) column_sum += panel(k, column);
                                      });
                   const Destination to = destination();
                   product.each([&](int i, int j, double2 sum) {
                     const int64_t row = i0 + i, col = j0 + j;
                     if (row < features) to.put(row, col, row + 1, sum);
                   });
                   if (forms_bias) {
                     if (column < TILE && j0 + column < features) to.put(features, j0 + column, column_sum);
                     if (j0 == 0 && threadIdx.x == 0) to.put(features, features, static_cast<double>(last - first));
                   }
                 });
}

#define CROSS_PARAMETERS(Z, Y)                                                                                    \
  const Z *__restrict__ z, const int64_t z_pitch, const int64_t rows, const int64_t features, const int64_t bias, \
      const Y *__restrict__ y, const int64_t y_pitch, const int64_t targets, const double sign,                   \
      double *__restrict__ cross, const int64_t cross_pitch, double *__restrict__ partials
#define CROSS_ARGUMENTS z, z_pitch, rows, features, bias, y, y_pitch, targets, sign, cross, cross_pitch, partials

template <typename Z, typename Y>
__device__ void cross_plain(CROSS_PARAMETERS(Z, Y)) {
  const int64_t i = blockIdx.y * int64_t{PLAIN_SIDE} + threadIdx.y;
  const int64_t j = blockIdx.x * int64_t{PLAIN_SIDE} + threadIdx.x;
  const int64_t order = features + bias;
  if (i >= order || j >= targets) return;
  for_row_blocks(rows, blockIdx.z, sign, cross, cross_pitch, order, partials,
                 [&](int64_t first, int64_t last, const auto& destination) {
                   double sum = 0.0;
#pragma unroll 1
                   for (int64_t row = first; row < last; ++row) {
                     const double feature = i < features ? widen(z[row * z_pitch + i]) : 1.0;
                     sum = fma(feature, widen(y[row * y_pitch + j]), sum);
                   }
                   destination().put(i, j, sum);
                 });
}

template <typename Z, typename Y>
__device__ void cross_fma(CROSS_PARAMETERS(Z, Y)) {
  using Columns = OuterAdjacent<Z>;
  using Values = OuterAdjacent<Y>;
  using Product = Fma<TALL_ROWS, TALL_COLS, Columns, Values>;
  __shared__ typename Product::Shared shared;

  const int64_t i0 = blockIdx.x * int64_t{TALL_ROWS}, j0 = blockIdx.y * int64_t{TALL_COLS};
  const bool sums_targets = bias && blockIdx.x == 0 && threadIdx.x < TALL_COLS;
  const int target = threadIdx.x;
  const Values values{y, y_pitch, targets};
  Product product(shared);
  for_row_blocks(rows, blockIdx.z, sign, cross, cross_pitch, features + bias, partials,
                 [&](int64_t first, int64_t last, const auto& destination) {
                   product.clear();
                   double target_sum = 0.0;
                   product.accumulate(Columns{z, z_pitch, features}, i0, values, j0, first, last, false, false,
                                      [&](const auto&, const auto& panel) {
                                        if (sums_targets)
#pragma unroll
                                          for (int k = 0; k < Product::K; ++k) target_sum += panel(k, target);
                                      });
                   const Destination to = destination();
                   product.each([&](int i, int j, double2 sum) {
                     if (i0 + i < features) to.put(i0 + i, j0 + j, targets, sum);
                   });
                   if (sums_targets && j0 + target < targets) to.put(features, j0 + target, target_sum);
                 });
}

#define CLASSES_PARAMETERS(Z)                                                                        \
  const Z *__restrict__ z, const int64_t z_pitch, const int64_t features, const int64_t bias,        \
      const uint32_t *__restrict__ members, const uint32_t *__restrict__ starts, const int64_t sets, \
      const int64_t row_block, const double sign, double *__restrict__ out, const int64_t out_pitch
#define CLASSES_ARGUMENTS z, z_pitch, features, bias, members, starts, sets, row_block, sign, out, out_pitch

// Column `set` of out += sign · Σ of the rows members[starts[set]] .. members[starts[set + 1]], ascending; without
// members, of the rows of that range themselves.
template <typename Z>
__device__ void classes_plain(CLASSES_PARAMETERS(Z)) {
  const int64_t i = blockIdx.y * int64_t{PLAIN_SIDE} + threadIdx.y;
  const int64_t set = blockIdx.x * int64_t{PLAIN_SIDE} + threadIdx.x;
  if (i >= features + bias || set >= sets) return;
  const int64_t first = starts[set], last = starts[set + 1];
  double total = out[i * out_pitch + set], sum = 0.0;
  int64_t block = 0;
#pragma unroll 1
  for (int64_t k = first; k < last; ++k) {
    const int64_t row = members ? members[k] : k;
    if (row / row_block != block) {
      total = fma(sign, sum, total);
      sum = 0.0;
      block = row / row_block;
    }
    sum += i < features ? widen(z[row * z_pitch + i]) : 1.0;
  }
  out[i * out_pitch + set] = fma(sign, sum, total);
}

// The same, a warp a set and a lane a column. Lanes find the rows 32 at a time; eight reads are on their way before the
// first is added. With RUNS a set lies in one row block and its sum goes to row `set` of out, which is overwritten. Else
// neighbouring warps have neighbouring columns of out, which a tile in shared memory turns into whole sectors.
template <bool RUNS, typename Z>
__device__ void classes_segmented(CLASSES_PARAMETERS(Z)) {
  constexpr unsigned kAll = 0xffffffff;
  constexpr int kWarp = 32, kAhead = 8;
  static_assert(CLASS_COLS == kWarp, "a lane a column");
  const int64_t order = features + bias;
  const unsigned slices = static_cast<unsigned>(ceil_div<int64_t>(order, CLASS_COLS));
  const int64_t set0 = blockIdx.x / slices * int64_t{CLASS_SETS};
  const int64_t col0 = blockIdx.x % slices * int64_t{CLASS_COLS};
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t set = set0 + warp, col = col0 + lane;

  // Two doubles of padding: half a warp of the turned side meets every bank once.
  __shared__ double tile[CLASS_SETS][CLASS_COLS + 2];
  double& turned = tile[threadIdx.x % CLASS_SETS][threadIdx.x / CLASS_SETS];
  const int64_t out_row = col0 + threadIdx.x / CLASS_SETS, out_col = set0 + threadIdx.x % CLASS_SETS;
  const bool writes = !RUNS && out_row < order && out_col < sets;
  double total = 0.0, sum = 0.0;
  if (!RUNS) {
    turned = writes ? out[out_row * out_pitch + out_col] : 0.0;
    __syncthreads();
    total = tile[warp][lane];
  }

  if (set < sets) {
    const unsigned first = starts[set], last = starts[set + 1], block_rows = static_cast<unsigned>(row_block);
    const bool stored = col < features;
    unsigned before = 0;
#pragma unroll 1
    for (unsigned k0 = first; k0 < last; k0 += kWarp) {
      // Lanes beyond the end repeat the last row, so that the last lane always knows the block that comes before.
      const int count = static_cast<int>(min(last - k0, static_cast<unsigned>(kWarp)));
      const unsigned k = k0 + min(lane, count - 1);
      const unsigned row = members ? members[k] : k;
      const unsigned block = row / block_rows, above = __shfl_up_sync(kAll, block, 1);
      const unsigned turns = __ballot_sync(kAll, block != (lane == 0 ? before : above));
      before = __shfl_sync(kAll, block, kWarp - 1);
#pragma unroll 1
      for (int step = 0; step < count; step += kAhead) {
        Z raw[kAhead];
#pragma unroll
        for (int ahead = 0; ahead < kAhead; ++ahead) {
          const int64_t from = __shfl_sync(kAll, row, step + ahead);
          raw[ahead] = stored && step + ahead < count ? z[from * z_pitch + col] : Z{};
        }
#pragma unroll
        for (int ahead = 0; ahead < kAhead; ++ahead) {
          if (turns >> (step + ahead) & 1) {
            total = fma(sign, sum, total);
            sum = 0.0;
          }
          if (step + ahead < count) sum += stored ? widen(raw[ahead]) : 1.0;
        }
      }
    }
  }

  if (RUNS) {
    if (set < sets && col < order) out[set * out_pitch + col] = sum;
    return;
  }
  tile[warp][lane] = fma(sign, sum, total);
  __syncthreads();
  if (writes) out[out_row * out_pitch + out_col] = turned;
}

// out += sign·partial, one after the other.
__device__ void fold(const double* __restrict__ partials, const int64_t blocks, const int64_t rows,
                     const int64_t cols, const int64_t lower, const double sign, double* __restrict__ out,
                     const int64_t pitch) {
  const int64_t i = blockIdx.y * int64_t{PLAIN_SIDE} + threadIdx.y;
  const int64_t j = blockIdx.x * int64_t{PLAIN_SIDE} + threadIdx.x;
  if (i >= rows || j >= (lower ? i + 1 : cols)) return;
  double sum = out[i * pitch + j];
  for (int64_t block = 0; block < blocks; ++block) sum = fma(sign, partials[(block * rows + i) * pitch + j], sum);
  out[i * pitch + j] = sum;
}

// Copies the lower triangle to the upper one, through a tile in shared memory so that both sides are read and written
// along rows.
__device__ void mirror(double* a, const int64_t pitch, const int64_t n) {
  __shared__ double tile[MIRROR_TILE][MIRROR_TILE + 1];
  if (blockIdx.x > blockIdx.y) return;
  const int64_t top = blockIdx.y * int64_t{MIRROR_TILE}, left = blockIdx.x * int64_t{MIRROR_TILE};
  for (int y = threadIdx.y; y < MIRROR_TILE; y += MIRROR_ROWS) {
    const int64_t i = top + y, j = left + threadIdx.x;
    if (i < n && j <= i) tile[y][threadIdx.x] = a[i * pitch + j];
  }
  __syncthreads();
  for (int y = threadIdx.y; y < MIRROR_TILE; y += MIRROR_ROWS) {
    const int64_t i = left + y, j = top + threadIdx.x;
    if (j < n && i < j) a[i * pitch + j] = tile[threadIdx.x][y];
  }
}

#if __CUDA_ARCH__ >= 800
// The 128×128 tile of f16 or bf16 rows. Eight warps of 64×32. Panels [k][column] of 32 rows, 256 bytes a row, three in
// flight; 16-byte chunk c of row k is kept at c ^ (k mod 8), so that the eight rows that an ldmatrix takes from one
// column of chunks lie in different banks, and so do the chunks of a row that cp.async writes. Both operands of ZᵀZ
// have k down the panel, which is what ldmatrix.trans turns.
template <typename Z>
struct HalfPanel {
  static constexpr int K = 32;
  static constexpr int kChunk = 8;
  static constexpr int kChunks = TILE_HALF / kChunk;

  Z elements[K][TILE_HALF];

  __device__ static int swizzled(int k, int column) {
    return ((column / kChunk) ^ (k & 7)) * kChunk + column % kChunk;
  }
  __device__ double at(int k, int column) const { return widen(elements[k][swizzled(k, column)]); }

  // Starts the copy of `left` rows (at most K) of columns o0.. .
  __device__ void load(const OuterAdjacent<Z>& z, bool aligned, int64_t o0, int64_t k0, int left) {
    const int64_t beyond = z.outer - o0;
    const int exist = static_cast<int>(beyond < TILE_HALF ? beyond : TILE_HALF);
    if (aligned) {
#pragma unroll
      for (int turn = 0; turn < K * kChunks / HALF_THREADS; ++turn) {
        const int e = threadIdx.x + turn * HALF_THREADS;
        const int k = e / kChunks, column = e % kChunks * kChunk;
        const int count = k < left ? min(max(exist - column, 0), kChunk) : 0;
        copy_async(&elements[k][swizzled(k, column)], count > 0 ? z.at(o0 + column, k0 + k) : z.base,
                   count * static_cast<int>(sizeof(Z)));
      }
    } else {
#pragma unroll 1
      for (int e = threadIdx.x; e < K * TILE_HALF; e += HALF_THREADS) {
        const int k = e / TILE_HALF, column = e % TILE_HALF;
        const bool exists = k < left && column < exist;
        elements[k][swizzled(k, column)] = exists ? *z.at(o0 + column, k0 + k) : Z{};
      }
    }
  }

  // Four 8×8 matrices, transposed: lane l gives the address of row l % 8 of matrix l / 8.
  __device__ void fragments(uint32_t (&to)[4], int k, int column) const {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(&elements[k][swizzled(k, column)]))
                 : "memory");
  }
};

__device__ __forceinline__ void mma_half(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bf16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_half(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, f16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <typename Z>
__device__ void syrk_mma(SYRK_PARAMETERS(Z)) {
  using Panel = HalfPanel<Z>;
  constexpr int kStages = 3, kWarpRows = 64, kWarpCols = 32;
  constexpr int kTilesY = kWarpRows / 16, kTilesX = kWarpCols / 8;
  __shared__ alignas(128) Panel left[kStages], right[kStages];

  const TrianglePosition tile(blockIdx.x);
  const int64_t i0 = tile.row * TILE_HALF, j0 = tile.col * TILE_HALF;
  const bool diagonal = i0 == j0;
  const OuterAdjacent<Z> columns{z, z_pitch, features};
  const bool aligned = rows_aligned(z, z_pitch);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = threadIdx.x;
  const int warp_row = warp / 4 * kWarpRows, warp_col = warp % 4 * kWarpCols;
  const bool idle = diagonal && warp_col >= warp_row + kWarpRows;

  for_row_blocks(
      rows, blockIdx.y, sign, gram, gram_pitch, features + bias, partials,
      [&](int64_t first, int64_t last, const auto& destination) {
        float sums[kTilesY][kTilesX][4] = {};
        double column_sum = 0.0;
        const int depth = static_cast<int>(last - first);
        const auto load = [&](int k, int slot) {
          if (k < depth) {
            left[slot].load(columns, aligned, i0, first + k, depth - k);
            if (!diagonal) right[slot].load(columns, aligned, j0, first + k, depth - k);
          }
          commit_copies();
        };
#pragma unroll
        for (int stage = 0; stage < kStages - 1; ++stage) load(stage * Panel::K, stage);
        int used = 0, filled = kStages - 1;
#pragma unroll 1
        for (int k0 = 0; k0 < depth; k0 += Panel::K) {
          wait_for_copies<kStages - 2>();
          __syncthreads();
          load(k0 + (kStages - 1) * Panel::K, filled);
          const Panel& a = left[used];
          const Panel& b = diagonal ? a : right[used];
          used = used + 1 == kStages ? 0 : used + 1;
          filled = filled + 1 == kStages ? 0 : filled + 1;
          if (!idle) {
#pragma unroll
            for (int k = 0; k < Panel::K; k += 16) {
              uint32_t rows_of[kTilesY][4], cols_of[kTilesX / 2][4];
#pragma unroll
              for (int y = 0; y < kTilesY; ++y)
                a.fragments(rows_of[y], k + lane % 8 + lane / 16 * 8, warp_row + y * 16 + lane / 8 % 2 * 8);
#pragma unroll
              for (int x = 0; x < kTilesX / 2; ++x)
                b.fragments(cols_of[x], k + lane % 8 + lane / 8 % 2 * 8, warp_col + x * 16 + lane / 16 * 8);
#pragma unroll
              for (int y = 0; y < kTilesY; ++y)
#pragma unroll
                for (int x = 0; x < kTilesX; ++x)
                  mma_half(sums[y][x], rows_of[y], cols_of[x / 2][x % 2 * 2], cols_of[x / 2][x % 2 * 2 + 1], Z{});
            }
          }
          if (bias && diagonal && column < TILE_HALF)
#pragma unroll 8
            for (int k = 0; k < Panel::K; ++k) column_sum += a.at(k, column);
        }
        wait_for_copies<0>();
        __syncthreads();

        const Destination to = destination();
#pragma unroll
        for (int y = 0; y < kTilesY; ++y)
#pragma unroll
          for (int x = 0; x < kTilesX; ++x)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              const int64_t row = i0 + warp_row + y * 16 + half * 8 + lane / 4;
              const int64_t col = j0 + warp_col + x * 8 + lane % 4 * 2;
              const double2 sum = make_double2(sums[y][x][2 * half], sums[y][x][2 * half + 1]);
              if (row < features) to.put(row, col, row + 1, sum);
            }
        if (bias && diagonal) {
          if (column < TILE_HALF && j0 + column < features) to.put(features, j0 + column, column_sum);
          if (j0 == 0 && threadIdx.x == 0) to.put(features, features, static_cast<double>(last - first));
        }
      });
}
#endif

}  // namespace muso

using namespace muso;

#define EXPORT_SYRK(name, bounds, body, Z) \
  extern "C" __global__ void bounds name(SYRK_PARAMETERS(Z)) { body(SYRK_ARGUMENTS); }
#define EXPORT_CROSS(name, bounds, body, Z, Y) \
  extern "C" __global__ void bounds name(CROSS_PARAMETERS(Z, Y)) { body<Z, Y>(CROSS_ARGUMENTS); }
#define EXPORT_CLASSES(name, bounds, body, Z) \
  extern "C" __global__ void bounds name(CLASSES_PARAMETERS(Z)) { body(CLASSES_ARGUMENTS); }
#define EXPORT_CROSS_PAIR(stem, Z, Y)                  \
  EXPORT_CROSS(stem##_plain, PLAIN, cross_plain, Z, Y) \
  EXPORT_CROSS(stem##_fma, TILED, cross_fma, Z, Y)

EXPORT_SYRK(gram_syrk_f32_plain, PLAIN, syrk_plain<float>, float)
EXPORT_SYRK(gram_syrk_f64_plain, PLAIN, syrk_plain<double>, double)
EXPORT_SYRK(gram_syrk_f16_plain, PLAIN, syrk_plain<f16>, f16)
EXPORT_SYRK(gram_syrk_bf16_plain, PLAIN, syrk_plain<bf16>, bf16)
EXPORT_SYRK(gram_syrk_f32_fma, TILED, (syrk<Fma, TILE, float>), float)
EXPORT_SYRK(gram_syrk_f64_fma, TILED, (syrk<Fma, TILE, double>), double)
EXPORT_SYRK(gram_syrk_f16_fma, TILED, (syrk<Fma, TILE, f16>), f16)
EXPORT_SYRK(gram_syrk_bf16_fma, TILED, (syrk<Fma, TILE, bf16>), bf16)
EXPORT_SYRK(gram_narrow_f32_fma, TILED, (syrk<Fma, TILE_NARROW, float>), float)
EXPORT_SYRK(gram_narrow_f64_fma, TILED, (syrk<Fma, TILE_NARROW, double>), double)
EXPORT_SYRK(gram_narrow_f16_fma, TILED, (syrk<Fma, TILE_NARROW, f16>), f16)
EXPORT_SYRK(gram_narrow_bf16_fma, TILED, (syrk<Fma, TILE_NARROW, bf16>), bf16)
#if __CUDA_ARCH__ >= 800
EXPORT_SYRK(gram_syrk_f32_dmma, TILED, (syrk<Dmma, TILE, float>), float)
EXPORT_SYRK(gram_syrk_f64_dmma, TILED, (syrk<Dmma, TILE, double>), double)
EXPORT_SYRK(gram_syrk_f16_dmma, TILED, (syrk<Dmma, TILE, f16>), f16)
EXPORT_SYRK(gram_syrk_bf16_dmma, TILED, (syrk<Dmma, TILE, bf16>), bf16)
EXPORT_SYRK(gram_narrow_f32_dmma, STRIPS, (syrk<Dmma, TILE_NARROW, float>), float)
EXPORT_SYRK(gram_narrow_f64_dmma, STRIPS, (syrk<Dmma, TILE_NARROW, double>), double)
EXPORT_SYRK(gram_narrow_f16_dmma, STRIPS, (syrk<Dmma, TILE_NARROW, f16>), f16)
EXPORT_SYRK(gram_narrow_bf16_dmma, STRIPS, (syrk<Dmma, TILE_NARROW, bf16>), bf16)
EXPORT_SYRK(gram_syrk_f16_mma, __launch_bounds__(HALF_THREADS), syrk_mma<f16>, f16)
EXPORT_SYRK(gram_syrk_bf16_mma, __launch_bounds__(HALF_THREADS), syrk_mma<bf16>, bf16)
#endif
EXPORT_CROSS_PAIR(gram_cross_f32_f32, float, float)
EXPORT_CROSS_PAIR(gram_cross_f32_f64, float, double)
EXPORT_CROSS_PAIR(gram_cross_f64_f32, double, float)
EXPORT_CROSS_PAIR(gram_cross_f64_f64, double, double)
EXPORT_CROSS_PAIR(gram_cross_f16_f32, f16, float)
EXPORT_CROSS_PAIR(gram_cross_f16_f64, f16, double)
EXPORT_CROSS_PAIR(gram_cross_bf16_f32, bf16, float)
EXPORT_CROSS_PAIR(gram_cross_bf16_f64, bf16, double)
EXPORT_CLASSES(gram_classes_f32_plain, PLAIN, classes_plain<float>, float)
EXPORT_CLASSES(gram_classes_f64_plain, PLAIN, classes_plain<double>, double)
EXPORT_CLASSES(gram_classes_f16_plain, PLAIN, classes_plain<f16>, f16)
EXPORT_CLASSES(gram_classes_bf16_plain, PLAIN, classes_plain<bf16>, bf16)
EXPORT_CLASSES(gram_classes_f32_segmented, SETS, (classes_segmented<false, float>), float)
EXPORT_CLASSES(gram_classes_f64_segmented, SETS, (classes_segmented<false, double>), double)
EXPORT_CLASSES(gram_classes_f16_segmented, SETS, (classes_segmented<false, f16>), f16)
EXPORT_CLASSES(gram_classes_bf16_segmented, SETS, (classes_segmented<false, bf16>), bf16)
EXPORT_CLASSES(gram_runs_f32, SETS, (classes_segmented<true, float>), float)
EXPORT_CLASSES(gram_runs_f64, SETS, (classes_segmented<true, double>), double)
EXPORT_CLASSES(gram_runs_f16, SETS, (classes_segmented<true, f16>), f16)
EXPORT_CLASSES(gram_runs_bf16, SETS, (classes_segmented<true, bf16>), bf16)

extern "C" __global__ void PLAIN gram_fold_f64(const double* __restrict__ partials, const int64_t blocks,
                                               const int64_t rows, const int64_t cols, const int64_t lower,
                                               const double sign, double* __restrict__ out, const int64_t pitch) {
  fold(partials, blocks, rows, cols, lower, sign, out, pitch);
}
extern "C" __global__ void __launch_bounds__(MIRROR_TILE* MIRROR_ROWS)
    gram_mirror_f64(double* a, const int64_t pitch, const int64_t n) {
  mirror(a, pitch, n);
}
