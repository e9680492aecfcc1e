/* The C interface of muso: Gram updates, Cholesky factors, solves, projections and exact sums on device memory that you
 * own.
 *
 * Build the library with
 *     cargo rustc --release --lib --crate-type cdylib --no-default-features --features capi
 * and link libmuso.so; muso.pc.in beside this file is for pkg-config, and examples/06_from_c for cmake. It needs no CUDA to
 * link; the driver is loaded when a context is created.
 *
 * The contract, for every function:
 * - Layout: matrices are row-major; row i begins i*pitch values after the first, pitch >= cols, in values. Of symmetric
 *   matrices the lower triangle is read and written.
 * - Alignment: feature rows need that of their values. Other f64 matrices begin at a multiple of 16 bytes and have an
 *   even pitch.
 * - Lifetime: memory and streams stay valid until the stream has passed the work, a factor's matrix until the factor is
 *   destroyed, the stream of exact sums until those are. Nothing that you pass is freed.
 * - Ordering: work is queued on the stream you pass and runs after what is queued there; order other streams by events.
 *   Only muso_factor and the muso_exact functions wait; those work on the stream that the sums were created with.
 * - Context: pointers and streams are of the device's primary context, that of the CUDA runtime. The context that is
 *   current to the calling thread is the same after a call as before it.
 * - Threads: a context may be used by several threads at once; the message of a failure is the calling thread's.
 */
#ifndef MUSO_H
#define MUSO_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a function returns. */
enum {
    MUSO_OK = 0,
    /* An argument is at fault: a shape, a pitch, an alignment, a null pointer. */
    MUSO_BAD_ARGUMENT = 1,
    /* There is no driver or no such device, or they are too old. */
    MUSO_UNAVAILABLE = 2,
    /* A Cholesky pivot was not positive; the message names it. */
    MUSO_NOT_POSITIVE_DEFINITE = 3,
    /* The device is out of memory. */
    MUSO_OUT_OF_MEMORY = 4,
    /* A kernel or the driver failed. */
    MUSO_DEVICE_FAILURE = 5,
    /* A fault in muso. */
    MUSO_INTERNAL = 6
};

/* What a matrix holds. */
enum { MUSO_F16 = 0, MUSO_BF16 = 1, MUSO_F32 = 2, MUSO_F64 = 3 };

/* A matrix in device memory. */
typedef struct muso_matrix {
    uint64_t pointer; /* CUdeviceptr */
    int64_t rows;
    int64_t cols;
    int64_t pitch; /* in values */
    int32_t dtype; /* MUSO_F16 ... MUSO_F64 */
} muso_matrix;

/* A device in use. */
typedef struct muso_context muso_context;
/* A Cholesky factor. */
typedef struct muso_cholesky muso_cholesky;
/* Exact sums in progress. */
typedef struct muso_exact muso_exact;
/* A CUstream or cudaStream_t; null is the default stream. */
typedef void *muso_stream;

/* Why the last call of this thread that failed did; valid until the thread's next failure. Never null. */
const char *muso_last_error(void);

/* Opens device number `device`. */
int muso_context_create(int device, muso_context **context);
/* Closes it; factors are destroyed first. Null is ignored. */
void muso_context_destroy(muso_context *context);
/* Forgets a stream that was passed to other functions and is about to be destroyed, with the memory kept for it. */
int muso_stream_forget(muso_context *context, muso_stream stream);

/* Lower triangle of G += sign * Z'Z. G is f64 of order D, or D + 1 when `bias` is not 0: one more feature that is always
 * 1. sign 1 adds the rows, -1 takes them out again. */
int muso_gram_update(muso_context *context, muso_stream stream, muso_matrix rows, int bias, double sign,
                     muso_matrix gram);

/* A + ridge*I = LL', L in place of A's lower triangle. Waits for the stream. The factor refers to `matrix`. */
int muso_factor(muso_context *context, muso_stream stream, muso_matrix matrix, double ridge, muso_cholesky **factor);
/* Null is ignored. */
void muso_factor_destroy(muso_cholesky *factor);

/* X <- (A + ridge*I)^-1 X, f64, without refinement. */
int muso_solve(muso_context *context, muso_stream stream, const muso_cholesky *factor, muso_matrix rhs);

/* Y = Z W. `weights` (f64) has D rows, or D + 1 of which the last is the bias; `out` (f64) is rows x classes. */
int muso_project(muso_context *context, muso_stream stream, muso_matrix rows, muso_matrix weights, muso_matrix out);

/* An integer of 128 bits in two's complement: high * 2^64 + low. */
typedef struct muso_wide {
    uint64_t low;
    int64_t high;
} muso_wide;

/* What is known of the rows of exact sums. */
typedef struct muso_exact_counts {
    uint64_t rows;
    uint64_t beyond;      /* rows with a value of 2^bits units or more, summed on the host */
    uint64_t moved;       /* values that rounding to the grid changed */
    double largest_move;  /* the largest change, relative to the value */
} muso_exact_counts;

/* Starts exact sums: a value z of column j enters as the integer q = z / 2^exponents[j], rounded to nearest, halves to
 * even. bits is 13, 20, 22, 27, 34 or 41; `bias` as above, 1 in units of 1; `classes` may be 0. The sums have the same
 * bytes in any order and on any device. */
int muso_exact_create(muso_context *context, muso_stream stream, int bits, const int32_t *exponents, int64_t features,
                      int bias, int64_t classes, muso_exact **exact);
/* Adds rows, with one class each on the host (null where there are none). Waits until it is known that the grid holds
 * all values. NaN, infinity and values of 2^48 units or more are MUSO_BAD_ARGUMENT with row and column, and the sums are
 * then to be destroyed. */
int muso_exact_update(muso_context *context, muso_exact *exact, muso_matrix rows, const int64_t *classes);
/* Brings the sums over all rows so far to the host: `gram` has order*(order + 1)/2 entries, the lower triangle of G row by
 * row, `cross` order*classes, the sums of each column's integers by class. Each of the three may be null. */
int muso_exact_download(muso_context *context, muso_exact *exact, muso_wide *gram, muso_wide *cross,
                        muso_exact_counts *counts);
/* Null is ignored. */
void muso_exact_destroy(muso_exact *exact);

#ifdef __cplusplus
}
#endif

#endif
