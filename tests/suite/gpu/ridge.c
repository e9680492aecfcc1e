/* Fits a ridge model with muso's C interface on memory that this program owns, and checks it on the host; then exact sums
 * of the same rows. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "muso.h"

enum { ROWS = 40, FEATURES = 6, CLASSES = 2, PITCH = 8 };

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: %s; %s\n", __FILE__, __LINE__, #condition,  \
                    muso_last_error());                                         \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

/* The part of the driver API that a program with memory of its own uses. */
static int (*mem_alloc)(uint64_t *, size_t);
static int (*mem_free)(uint64_t);
static int (*to_device)(uint64_t, const void *, size_t);
static int (*to_host)(void *, uint64_t, size_t);
static int (*stream_create)(void **, unsigned);
static int (*stream_synchronize)(void *);
static int (*stream_destroy)(void *);

static void *symbol(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "the driver has no %s\n", name);
        exit(1);
    }
    return found;
}

/* dlsym returns an object pointer; POSIX makes it good for functions as well. */
#define LOAD(function, name)                      \
    do {                                          \
        void *found = symbol(library, name);      \
        memcpy(&function, &found, sizeof found);  \
    } while (0)

static uint64_t upload(const void *values, size_t bytes) {
    uint64_t pointer = 0;
    CHECK(mem_alloc(&pointer, bytes) == 0);
    CHECK(to_device(pointer, values, bytes) == 0);
    return pointer;
}

static muso_matrix matrix(uint64_t pointer, int64_t rows, int64_t cols, int64_t pitch, int32_t dtype) {
    muso_matrix made = {pointer, rows, cols, pitch, dtype};
    return made;
}

/* Exact sums of the rows, whose values are below 2: in units of 2^-20, rounded by the processor. */
static void exact_sums(muso_context *context, void *stream, muso_matrix rows, float z[ROWS][PITCH]) {
    enum { BITS = 20, ORDER = FEATURES + 1 };
    int32_t units[FEATURES];
    int64_t classes[ROWS];
    for (int j = 0; j < FEATURES; j++) units[j] = j == 5 ? -21 : -19; /* half of column 5 is beyond the width */
    for (int i = 0; i < ROWS; i++) classes[i] = i % CLASSES;
    muso_exact *exact = NULL;
    CHECK(muso_exact_create(context, stream, 21, units, FEATURES, 1, CLASSES, &exact) == MUSO_BAD_ARGUMENT);
    CHECK(strstr(muso_last_error(), "13, 20, 22"));
    CHECK(muso_exact_create(context, stream, BITS, units, FEATURES, 1, CLASSES, &exact) == MUSO_OK);
    muso_matrix first = rows, rest = rows;
    first.rows = 13;
    rest.rows = ROWS - 13;
    rest.pointer += 13 * PITCH * sizeof(float);
    CHECK(muso_exact_update(context, exact, first, NULL) == MUSO_BAD_ARGUMENT);
    CHECK(muso_exact_update(context, exact, rest, classes + 13) == MUSO_OK);
    muso_wide gram[ORDER * (ORDER + 1) / 2], cross[ORDER][CLASSES];
    muso_exact_counts counts;
    CHECK(muso_exact_download(context, exact, NULL, NULL, &counts) == MUSO_OK && counts.rows == ROWS - 13);
    CHECK(muso_exact_update(context, exact, first, classes) == MUSO_OK);
    CHECK(muso_exact_download(context, exact, gram, &cross[0][0], &counts) == MUSO_OK);

    int64_t q[ROWS][ORDER];
    uint64_t beyond = 0, moved = 0;
    for (int i = 0; i < ROWS; i++) {
        int far = 0;
        for (int j = 0; j < FEATURES; j++) {
            double scaled = ldexp(z[i][j], -units[j]);
            q[i][j] = (int64_t)nearbyint(scaled);
            far |= q[i][j] >= 1 << BITS || -q[i][j] >= 1 << BITS;
            moved += (double)q[i][j] != scaled;
        }
        q[i][FEATURES] = 1;
        beyond += far;
    }
    CHECK(counts.rows == ROWS && counts.beyond == beyond && counts.moved == moved && beyond > 0 && beyond < ROWS);
    CHECK(counts.largest_move > 0.0 && counts.largest_move <= 1.0);
    for (int a = 0, n = 0; a < ORDER; a++) {
        for (int b = 0; b <= a; b++, n++) {
            int64_t wanted = 0; /* at most 40 * 2^42 */
            for (int i = 0; i < ROWS; i++) wanted += q[i][a] * q[i][b];
            CHECK((int64_t)gram[n].low == wanted && gram[n].high == (wanted < 0 ? -1 : 0));
        }
        for (int c = 0; c < CLASSES; c++) {
            int64_t wanted = 0;
            for (int i = c; i < ROWS; i += CLASSES) wanted += q[i][a];
            CHECK((int64_t)cross[a][c].low == wanted && cross[a][c].high == (wanted < 0 ? -1 : 0));
        }
    }
    muso_exact_destroy(exact);
}

int main(void) {
    static float z[ROWS][PITCH];
    static double gram[FEATURES][PITCH], cross[FEATURES][CLASSES], y[ROWS][CLASSES];
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < FEATURES; j++) z[i][j] = (float)sin(1.0 + 7.0 * i + 3.0 * j * j);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < FEATURES; j++) cross[j][i % CLASSES] += z[i][j];

    /* Failures have a code and a line. */
    muso_context *context = NULL;
    CHECK(muso_context_create(-1, &context) == MUSO_BAD_ARGUMENT);
    CHECK(strstr(muso_last_error(), "device = -1"));
    CHECK(muso_context_create(99, &context) == MUSO_UNAVAILABLE);
    CHECK(strstr(muso_last_error(), "cuda:99"));
    CHECK(muso_context_create(0, &context) == MUSO_OK);

    const char *path = getenv("MUSO_VGPU");
    void *library = dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW);
    CHECK(library);
    int (*retain)(void **, int), (*release)(int), (*set_current)(void *), (*get_current)(void **);
    LOAD(retain, "cuDevicePrimaryCtxRetain");
    LOAD(release, "cuDevicePrimaryCtxRelease_v2");
    LOAD(set_current, "cuCtxSetCurrent");
    LOAD(get_current, "cuCtxGetCurrent");
    LOAD(mem_alloc, "cuMemAlloc_v2");
    LOAD(mem_free, "cuMemFree_v2");
    LOAD(to_device, "cuMemcpyHtoD_v2");
    LOAD(to_host, "cuMemcpyDtoH_v2");
    LOAD(stream_create, "cuStreamCreate");
    LOAD(stream_synchronize, "cuStreamSynchronize");
    LOAD(stream_destroy, "cuStreamDestroy_v2");
    void *current = (void *)1;
    CHECK(get_current(&current) == 0 && current == NULL); /* as it was before */
    void *primary = NULL;
    CHECK(retain(&primary, 0) == 0 && set_current(primary) == 0);
    void *stream = NULL;
    CHECK(stream_create(&stream, 0) == 0);

    uint64_t rows = upload(z, sizeof z), sums = upload(gram, sizeof gram), rhs = upload(cross, sizeof cross);
    uint64_t out = upload(y, sizeof y);
    muso_matrix all = matrix(rows, ROWS, FEATURES, PITCH, MUSO_F32);
    muso_matrix g = matrix(sums, FEATURES, FEATURES, PITCH, MUSO_F64);
    muso_matrix x = matrix(rhs, FEATURES, CLASSES, CLASSES, MUSO_F64);
    muso_matrix wrong = matrix(sums, FEATURES, FEATURES, PITCH - 1, MUSO_F64);
    CHECK(muso_gram_update(NULL, stream, all, 0, 1.0, g) == MUSO_BAD_ARGUMENT);
    CHECK(muso_gram_update(context, stream, all, 1, 1.0, g) == MUSO_BAD_ARGUMENT);
    CHECK(strstr(muso_last_error(), "7x7"));
    CHECK(muso_gram_update(context, stream, all, 0, 1.0, wrong) == MUSO_BAD_ARGUMENT);
    wrong.dtype = 9;
    CHECK(muso_gram_update(context, stream, all, 0, 1.0, wrong) == MUSO_BAD_ARGUMENT);

    muso_cholesky *factor = NULL;
    CHECK(muso_factor(context, stream, g, 0.0, &factor) == MUSO_NOT_POSITIVE_DEFINITE);
    CHECK(strstr(muso_last_error(), "pivot 0 of 6"));

    CHECK(muso_gram_update(context, stream, all, 0, 1.0, g) == MUSO_OK);
    CHECK(muso_factor(context, stream, g, 0.5, &factor) == MUSO_OK);
    CHECK(muso_solve(context, stream, factor, x) == MUSO_OK);
    CHECK(muso_project(context, stream, all, x, matrix(out, ROWS, CLASSES, CLASSES, MUSO_F64)) == MUSO_OK);
    CHECK(stream_synchronize(stream) == 0);
    CHECK(get_current(&current) == 0 && current == primary);

    /* (Z'Z + 0.5 I) W = Z'Y, and Z W, by the definition. */
    double w[FEATURES][CLASSES];
    CHECK(to_host(w, rhs, sizeof w) == 0 && to_host(y, out, sizeof y) == 0);
    for (int j = 0; j < FEATURES; j++) {
        for (int c = 0; c < CLASSES; c++) {
            double left = 0.5 * w[j][c];
            for (int i = 0; i < ROWS; i++)
                for (int k = 0; k < FEATURES; k++) left += (double)z[i][j] * z[i][k] * w[k][c];
            CHECK(fabs(left - cross[j][c]) < 1e-12);
        }
    }
    for (int i = 0; i < ROWS; i++) {
        for (int c = 0; c < CLASSES; c++) {
            double wanted = 0.0;
            for (int k = 0; k < FEATURES; k++) wanted += z[i][k] * w[k][c];
            CHECK(fabs(y[i][c] - wanted) < 1e-14);
        }
    }

    exact_sums(context, stream, all, z);
    muso_factor_destroy(factor);
    CHECK(muso_stream_forget(context, stream) == MUSO_OK);
    muso_context_destroy(context);
    CHECK(stream_destroy(stream) == 0);
    CHECK(mem_free(rows) == 0 && mem_free(sums) == 0 && mem_free(rhs) == 0 && mem_free(out) == 0);
    CHECK(release(0) == 0);
    return 0;
}
