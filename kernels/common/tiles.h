/* Tile sizes: the one place that both sides read.
 *
 * CUDA includes this header; build.rs turns every `#define NAME number` below into `pub const NAME: usize`. A line
 * that is not of this form is ignored there, so keep expressions out.
 */
#ifndef MUSO_TILES_H
#define MUSO_TILES_H

/* Rows of Z whose sum is formed from zero before it is added to G: the unit of every sum over rows, and the longest
 * run of f32 accumulation on the tensor cores. Results depend on it, so it is part of what a version computes. */
#define ROW_BLOCK 512

/* Side of a square tile of the f64 products (gram, kernel matrix, features, trailing update). */
#define TILE 64
/* Columns of a tile of the Gram where whole tiles would leave part of the device without work; divides TILE. */
#define TILE_NARROW 32
/* Side of a tile of the f16/bf16 tensor-core Gram. */
#define TILE_HALF 128
/* Rows and columns of a tile of the products with few columns (cross sums, projection, solves). */
#define TALL_ROWS 128
#define TALL_COLS 16
/* Sets of rows that a thread block of the sums by class walks, a warp each, and columns that it has them walked down. */
#define CLASS_SETS 8
#define CLASS_COLS 32
/* Columns of a block of the Cholesky factor, and of a diagonal block that the solve inverts. */
#define FACTOR_BLOCK 64

/* Sides of a tile of the exact Gram on int8 tensor cores, rows of Z that a stage of it holds, and stages; a stage is
 * (EXACT_ROWS + EXACT_COLS) * EXACT_DEPTH bytes of dynamic shared memory. */
#define EXACT_ROWS 256
#define EXACT_COLS 128
#define EXACT_DEPTH 64
#define EXACT_STAGES 3
/* Rows after which its 32-bit sums are drained at the latest; half of what they hold. */
#define EXACT_DRAIN 65536
/* Rows and columns of Z that are cut into digits at a time. */
#define SLICE_ROWS 128
#define SLICE_COLS 32

/* Threads of a block in every tiled kernel, in the f16/bf16 Gram, in the exact one, in the sums by class, in the factor's
 * diagonal and panel kernels, and in the kernels that go over elements. */
#define TILE_THREADS 128
#define HALF_THREADS 256
#define EXACT_THREADS 256
#define CLASS_THREADS 256
#define DIAGONAL_THREADS 256
#define PANEL_THREADS 64
#define ELEMENT_THREADS 256
/* Side of the thread block of a plain twin, a thread an element. */
#define PLAIN_SIDE 16
/* Side of a tile that the mirror kernel transposes, and rows of threads that do it. */
#define MIRROR_TILE 32
#define MIRROR_ROWS 8

#endif
