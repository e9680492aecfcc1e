// Matrix instructions. Each kernel is one warp and one product D = A B + C of row-major matrices in global memory:
// A is m×k, B is k×n, C and D are m×n. Fragments are filled by the index formulae of PTX ISA 9.0.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#include "common.cuh"

#define LANE const int lane = threadIdx.x, g = lane / 4, t = lane % 4

// A fragment of 32-bit words, each of 16-, 8- or 32-bit elements that follow each other along k.
template <typename T, int K> __device__ u32 word_a(const T* a, int row, int column) {
    u32 w = 0;
    for (int j = 0; j < 4 / (int)sizeof(T); ++j) { u32 e = 0; memcpy(&e, a + row * K + column + j, sizeof(T)); w |= e << (8 * sizeof(T) * j); }
    return w;
}
template <typename T> __device__ u32 word_b(const T* b, int row, int column) {
    u32 w = 0;
    for (int j = 0; j < 4 / (int)sizeof(T); ++j) { u32 e = 0; memcpy(&e, b + (row + j) * 8 + column, sizeof(T)); w |= e << (8 * sizeof(T) * j); }
    return w;
}

#define WORDS4(f) f[0], f[1], f[2], f[3]
#define PRODUCT_4_2(name, op, T, K, per, D, out, in)                                                         \
    extern "C" __global__ void name(const T* a, const T* b, const D* c, D* d) {                              \
        LANE; u32 fa[4], fb[2]; D fc[4], fd[4];                                                              \
        for (int r = 0; r < 4; ++r) fa[r] = word_a<T, K>(a, g + 8 * (r % 2), (r / 2) * 4 * per + t * per);   \
        for (int r = 0; r < 2; ++r) fb[r] = word_b<T>(b, r * 4 * per + t * per, g);                          \
        for (int i = 0; i < 4; ++i) fc[i] = c[(g + 8 * (i / 2)) * 8 + t * 2 + i % 2];                        \
        asm volatile(op " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"                         \
            : out(fd[0]), out(fd[1]), out(fd[2]), out(fd[3])                                                 \
            : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]),                        \
              in(fc[0]), in(fc[1]), in(fc[2]), in(fc[3]));                                                   \
        for (int i = 0; i < 4; ++i) d[(g + 8 * (i / 2)) * 8 + t * 2 + i % 2] = fd[i];                        \
    }
#define PRODUCT_2_1(name, op, T, K, per, D, out, in)                                                         \
    extern "C" __global__ void name(const T* a, const T* b, const D* c, D* d) {                              \
        LANE; u32 fa[2], fb; D fc[4], fd[4];                                                                 \
        for (int r = 0; r < 2; ++r) fa[r] = word_a<T, K>(a, g + 8 * r, t * per);                             \
        fb = word_b<T>(b, t * per, g);                                                                       \
        for (int i = 0; i < 4; ++i) fc[i] = c[(g + 8 * (i / 2)) * 8 + t * 2 + i % 2];                        \
        asm volatile(op " {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%10};"                                     \
            : out(fd[0]), out(fd[1]), out(fd[2]), out(fd[3])                                                 \
            : "r"(fa[0]), "r"(fa[1]), "r"(fb), in(fc[0]), in(fc[1]), in(fc[2]), in(fc[3]));                  \
        for (int i = 0; i < 4; ++i) d[(g + 8 * (i / 2)) * 8 + t * 2 + i % 2] = fd[i];                        \
    }

PRODUCT_2_1(product_f16_k8, "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", u16, 8, 2, float, "=f", "f")
extern "C" __global__ void product_s8_m8n8k16(const s8* a, const s8* b, const s32* c, s32* d) {
    LANE; u32 fa = word_a<s8, 16>(a, g, t * 4), fb = word_b<s8>(b, t * 4, g); s32 d0, d1;
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%4,%5};"
        : "=r"(d0), "=r"(d1) : "r"(fa), "r"(fb), "r"(c[g * 8 + t * 2]), "r"(c[g * 8 + t * 2 + 1]));
    d[g * 8 + t * 2] = d0; d[g * 8 + t * 2 + 1] = d1;
}

#if __CUDA_ARCH__ >= 800
PRODUCT_4_2(product_f16_k16, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", u16, 16, 2, float, "=f", "f")
PRODUCT_4_2(product_bf16_k16, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", u16, 16, 2, float, "=f", "f")
PRODUCT_2_1(product_bf16_k8, "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", u16, 8, 2, float, "=f", "f")
PRODUCT_4_2(product_tf32_k8, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", u32, 8, 1, float, "=f", "f")
PRODUCT_2_1(product_tf32_k4, "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", u32, 4, 1, float, "=f", "f")
PRODUCT_4_2(product_s8_k32, "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", s8, 32, 4, s32, "=r", "r")
PRODUCT_4_2(product_u8_k32_clamped, "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.s8.s32", u8, 32, 4, s32, "=r", "r")
PRODUCT_2_1(product_s8_k16, "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32", s8, 16, 4, s32, "=r", "r")

extern "C" __global__ void product_f16_sums(const u16* a, const u16* b, const u16* c, u16* d) {
    LANE; u32 fa[4], fb[2], fc[2], fd[2];
    for (int r = 0; r < 4; ++r) fa[r] = word_a<u16, 16>(a, g + 8 * (r % 2), (r / 2) * 8 + t * 2);
    for (int r = 0; r < 2; ++r) fb[r] = word_b<u16>(b, r * 8 + t * 2, g);
    for (int r = 0; r < 2; ++r) fc[r] = *(const u32*)(c + (g + 8 * r) * 8 + t * 2);
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%8,%9};"
        : "=r"(fd[0]), "=r"(fd[1]) : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]), "r"(fc[0]), "r"(fc[1]));
    for (int r = 0; r < 2; ++r) *(u32*)(d + (g + 8 * r) * 8 + t * 2) = fd[r];
}
extern "C" __global__ void product_f64_m8n8k4(const double* a, const double* b, const double* c, double* d) {
    LANE; double d0, d1;
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%4,%5};"
        : "=d"(d0), "=d"(d1) : "d"(a[g * 4 + t]), "d"(b[t * 8 + g]), "d"(c[g * 8 + t * 2]), "d"(c[g * 8 + t * 2 + 1]));
    d[g * 8 + t * 2] = d0; d[g * 8 + t * 2 + 1] = d1;
}
#endif

#if __CUDA_ARCH__ >= 900
extern "C" __global__ void product_f64_m16n8k4(const double* a, const double* b, const double* c, double* d) {
    LANE; double fc[4], fd[4];
    for (int i = 0; i < 4; ++i) fc[i] = c[(g + 8 * (i / 2)) * 8 + t * 2 + i % 2];
    asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%10};"
        : "=d"(fd[0]), "=d"(fd[1]), "=d"(fd[2]), "=d"(fd[3])
        : "d"(a[g * 4 + t]), "d"(a[(g + 8) * 4 + t]), "d"(b[t * 8 + g]), "d"(fc[0]), "d"(fc[1]), "d"(fc[2]), "d"(fc[3]));
    for (int i = 0; i < 4; ++i) d[(g + 8 * (i / 2)) * 8 + t * 2 + i % 2] = fd[i];
}
extern "C" __global__ void product_f64_m16n8k8(const double* a, const double* b, const double* c, double* d) {
    LANE; double fa[4], fb[2], fc[4], fd[4];
    for (int i = 0; i < 4; ++i) fa[i] = a[(g + 8 * (i % 2)) * 8 + t + 4 * (i / 2)];
    for (int i = 0; i < 2; ++i) fb[i] = b[(t + 4 * i) * 8 + g];
    for (int i = 0; i < 4; ++i) fc[i] = c[(g + 8 * (i / 2)) * 8 + t * 2 + i % 2];
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
        : "=d"(fd[0]), "=d"(fd[1]), "=d"(fd[2]), "=d"(fd[3])
        : "d"(fa[0]), "d"(fa[1]), "d"(fa[2]), "d"(fa[3]), "d"(fb[0]), "d"(fb[1]), "d"(fc[0]), "d"(fc[1]), "d"(fc[2]), "d"(fc[3]));
    for (int i = 0; i < 4; ++i) d[(g + 8 * (i / 2)) * 8 + t * 2 + i % 2] = fd[i];
}
extern "C" __global__ void product_f64_m16n8k16(const double* a, const double* b, const double* c, double* d) {
    LANE; double fa[8], fb[4], fc[4], fd[4];
    for (int i = 0; i < 8; ++i) fa[i] = a[(g + 8 * (i % 2)) * 16 + (i / 2) * 4 + t];
    for (int i = 0; i < 4; ++i) fb[i] = b[(t + 4 * i) * 8 + g];
    for (int i = 0; i < 4; ++i) fc[i] = c[(g + 8 * (i / 2)) * 8 + t * 2 + i % 2];
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7,%8,%9,%10,%11}, {%12,%13,%14,%15}, {%16,%17,%18,%19};"
        : "=d"(fd[0]), "=d"(fd[1]), "=d"(fd[2]), "=d"(fd[3])
        : "d"(fa[0]), "d"(fa[1]), "d"(fa[2]), "d"(fa[3]), "d"(fa[4]), "d"(fa[5]), "d"(fa[6]), "d"(fa[7]),
          "d"(fb[0]), "d"(fb[1]), "d"(fb[2]), "d"(fb[3]), "d"(fc[0]), "d"(fc[1]), "d"(fc[2]), "d"(fc[3]));
    for (int i = 0; i < 4; ++i) d[(g + 8 * (i / 2)) * 8 + t * 2 + i % 2] = fd[i];
}
// stmatrix: four tiles, one of them transposed.
extern "C" __global__ void tiles_stored(const u32* in, u16* out) {
    __shared__ __align__(16) u16 tile[4][8][8];
    const int lane = threadIdx.x;
    const u32 to = (u32)__cvta_generic_to_shared(&tile[lane / 8][lane % 8][0]);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};"
        :: "r"(to), "r"(in[lane]), "r"(in[32 + lane]), "r"(in[64 + lane]), "r"(in[96 + lane]) : "memory");
    __syncwarp();
    // Of one tile only the first eight addresses count, but all lanes take part.
    const u32 last = (u32)__cvta_generic_to_shared(&tile[3][lane % 8][0]);
    asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" :: "r"(last), "r"(in[lane]) : "memory");
    __syncwarp();
    for (int i = lane; i < 256; i += 32) out[i] = (&tile[0][0][0])[i];
}
#endif

// ldmatrix: one, two and four tiles, plain and transposed.
extern "C" __global__ void tiles_loaded(const u16* in, u32* out) {
    __shared__ __align__(16) u16 tile[32][8];
    const int lane = threadIdx.x;
    for (int i = lane; i < 256; i += 32) tile[i / 8][i % 8] = in[i];
    __syncwarp();
    const u32 from = (u32)__cvta_generic_to_shared(&tile[lane][0]);
    u32 r0, r1, r2, r3;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(from));
    out[lane] = r0; out[32 + lane] = r1; out[64 + lane] = r2; out[96 + lane] = r3;
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(r0), "=r"(r1) : "r"(from));
    out[128 + lane] = r0; out[160 + lane] = r1;
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r0) : "r"(from));
    out[192 + lane] = r0;
}

using namespace nvcuda;
template <int M, int N, int K, typename T, typename F, typename D, typename LA, typename LB>
__device__ void opaque(const T* a, const T* b, const D* c, D* d, int lda, int ldb) {
    wmma::fragment<wmma::matrix_a, M, N, K, F, LA> fa; wmma::fragment<wmma::matrix_b, M, N, K, F, LB> fb;
    wmma::fragment<wmma::accumulator, M, N, K, D> fc;
    wmma::load_matrix_sync(fa, a, lda); wmma::load_matrix_sync(fb, b, ldb);
    wmma::load_matrix_sync(fc, c, N, wmma::mem_row_major);
    for (int i = 0; i < fa.num_elements; ++i) fa.x[i] = fa.x[i] + fa.x[i];
    wmma::mma_sync(fc, fa, fb, fc);
    for (int i = 0; i < fc.num_elements; ++i) fc.x[i] = fc.x[i] + (D)1;
    wmma::store_matrix_sync(d, fc, N, wmma::mem_row_major);
}
// D = 2 A B + C + 1.
extern "C" __global__ void opaque_f16(const __half* a, const __half* b, const float* c, float* d) { opaque<16, 16, 16, __half, __half, float, wmma::row_major, wmma::row_major>(a, b, c, d, 16, 16); }
extern "C" __global__ void opaque_f16_wide(const __half* a, const __half* b, const float* c, float* d) { opaque<8, 32, 16, __half, __half, float, wmma::row_major, wmma::row_major>(a, b, c, d, 16, 32); }
extern "C" __global__ void opaque_f16_columns(const __half* a, const __half* b, const __half* c, __half* d) { opaque<32, 8, 16, __half, __half, __half, wmma::col_major, wmma::col_major>(a, b, c, d, 32, 16); }
extern "C" __global__ void opaque_s8(const s8* a, const s8* b, const s32* c, s32* d) { opaque<16, 16, 16, s8, s8, s32, wmma::row_major, wmma::col_major>(a, b, c, d, 16, 16); }
#if __CUDA_ARCH__ >= 800
extern "C" __global__ void opaque_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b, const float* c, float* d) { opaque<16, 16, 16, __nv_bfloat16, __nv_bfloat16, float, wmma::col_major, wmma::row_major>(a, b, c, d, 16, 16); }
extern "C" __global__ void opaque_f64(const double* a, const double* b, const double* c, double* d) { opaque<8, 8, 4, double, double, double, wmma::row_major, wmma::col_major>(a, b, c, d, 4, 4); }
extern "C" __global__ void opaque_tf32(const float* a, const float* b, const float* c, float* d) { opaque<16, 16, 8, float, wmma::precision::tf32, float, wmma::row_major, wmma::row_major>(a, b, c, d, 8, 16); }
#endif
