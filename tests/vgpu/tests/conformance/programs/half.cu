// f16 and bf16, alone and in pairs.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "common.cuh"

struct Halves { u16 a, b, c, d, e, f; };

__device__ __half h(u16 x) { return __ushort_as_half(x); }
__device__ u64 bits(__half x) { return __half_as_ushort(x); }
__device__ __nv_bfloat16 b(u16 x) { return __ushort_as_bfloat16(x); }
__device__ u64 bits(__nv_bfloat16 x) { return __bfloat16_as_ushort(x); }
__device__ __half2 h2(u16 x, u16 y) { return __halves2half2(h(x), h(y)); }
__device__ u64 bits(__half2 x) { return bits(__low2half(x)) | bits(__high2half(x)) << 16; }
__device__ __nv_bfloat162 b2(u16 x, u16 y) { return __halves2bfloat162(b(x), b(y)); }
__device__ u64 bits(__nv_bfloat162 x) { return bits(__low2bfloat16(x)) | bits(__high2bfloat16(x)) << 16; }

MAP(half_arithmetic, Halves, 12,
    const __half p = h(x.a); const __half q = h(x.b); const __half r = h(x.c);
    o[0] = bits(__hadd(p, q)); o[1] = bits(__hsub(p, q)); o[2] = bits(__hmul(p, q)); o[3] = bits(__hfma(p, q, r));
    o[4] = bits(__hneg(p)); o[5] = bits(__habs(p)); o[6] = bits(__hadd_sat(p, q)); o[7] = bits(__hfma_sat(p, q, r));
    o[8] = __hlt(p, q) + 2 * __heq(p, q) + 4 * __hge(p, q) + 8 * __hltu(p, q) + 16 * __hneu(p, q);
    o[9] = __hisnan(p); o[10] = bits(__hmul_sat(p, q)); o[11] = bits(__hsub_sat(p, q));)

MAP(half_pairs, Halves, 8,
    const __half2 p = h2(x.a, x.b); const __half2 q = h2(x.c, x.d); const __half2 r = h2(x.e, x.f);
    o[0] = bits(__hadd2(p, q)); o[1] = bits(__hsub2(p, q)); o[2] = bits(__hmul2(p, q)); o[3] = bits(__hfma2(p, q, r));
    o[4] = bits(__hneg2(p)); o[5] = bits(__habs2(p)); o[6] = __hlt2_mask(p, q); o[7] = bits(__hfma2_sat(p, q, r));)

#if __CUDA_ARCH__ >= 800
MAP(half_extrema, Halves, 7,
    const __half p = h(x.a); const __half q = h(x.b); const __half r = h(x.c);
    o[0] = bits(__hmin(p, q)); o[1] = bits(__hmax(p, q)); o[2] = bits(__hmin_nan(p, q)); o[3] = bits(__hmax_nan(p, q));
    o[4] = bits(__hfma_relu(p, q, r)); o[5] = bits(__hmax2(h2(x.a, x.b), h2(x.c, x.d)));
    o[6] = bits(__hfma2_relu(h2(x.a, x.b), h2(x.c, x.d), h2(x.e, x.f)));)

MAP(bfloat_arithmetic, Halves, 12,
    const __nv_bfloat16 p = b(x.a); const __nv_bfloat16 q = b(x.b); const __nv_bfloat16 r = b(x.c);
    o[0] = bits(__hadd(p, q)); o[1] = bits(__hsub(p, q)); o[2] = bits(__hmul(p, q)); o[3] = bits(__hfma(p, q, r));
    o[4] = bits(__hneg(p)); o[5] = bits(__habs(p)); o[6] = bits(__hmin(p, q)); o[7] = bits(__hmax(p, q));
    o[8] = __hlt(p, q) + 2 * __heq(p, q) + 4 * __hge(p, q) + 8 * __hltu(p, q) + 16 * __hneu(p, q);
    o[9] = bits(__hfma_relu(p, q, r)); o[10] = bits(__hmin_nan(p, q)); o[11] = bits(__hmax_nan(p, q));)

MAP(bfloat_pairs, Halves, 6,
    const __nv_bfloat162 p = b2(x.a, x.b); const __nv_bfloat162 q = b2(x.c, x.d); const __nv_bfloat162 r = b2(x.e, x.f);
    o[0] = bits(__hadd2(p, q)); o[1] = bits(__hsub2(p, q)); o[2] = bits(__hmul2(p, q)); o[3] = bits(__hfma2(p, q, r));
    o[4] = bits(__hmin2(p, q)); o[5] = bits(__hneg2(p));)
#endif

MAP(half_functions, Halves, 3,
    u16 r; u32 w;
    asm("ex2.approx.f16 %0, %1;" : "=h"(r) : "h"(x.a)); o[0] = r;
    asm("tanh.approx.f16 %0, %1;" : "=h"(r) : "h"(x.a)); o[1] = r;
    asm("ex2.approx.f16x2 %0, %1;" : "=r"(w) : "r"((u32)x.a | (u32)x.b << 16)); o[2] = w;)

// The operators that kernels write, and the sum of products that all of them contain.
extern "C" __global__ void half_dot(const __half* p, const __half* q, float* sum, int n) {
    __half2 acc = __float2half2_rn(0.0f);
    float wide = 0.0f;
    for (int i = 0; i < n; i += 2) {
        const __half2 u = *(const __half2*)(p + i), v = *(const __half2*)(q + i);
        acc = u * v + acc;
        wide += __half2float(p[i]) * __half2float(q[i]);
    }
    sum[0] = __low2float(acc) + __high2float(acc);
    sum[1] = wide;
}
