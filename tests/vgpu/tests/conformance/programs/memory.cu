// State spaces, vector accesses, generic addresses, asynchronous copies.
#include <cuda_pipeline_primitives.h>
#include "common.cuh"

// Vectors of every width, doubled or summed so that a permuted component shows.
#define VECTORS(name, V, change)                                                    \
    extern "C" __global__ void name(const V* in, V* out, int n) {                   \
        const int i = blockIdx.x * blockDim.x + threadIdx.x;                        \
        if (i < n) { V v = in[n - 1 - i]; change; out[i] = v; }                     \
    }
VECTORS(vectors_u8x2, uchar2, (v.x += 1, v.y += 2))
VECTORS(vectors_u8x4, uchar4, (v.x += 1, v.y += 2, v.z += 3, v.w += 4))
VECTORS(vectors_u16x2, ushort2, (v.x += 1, v.y += 2))
VECTORS(vectors_u16x4, ushort4, (v.x += 1, v.y += 2, v.z += 3, v.w += 4))
VECTORS(vectors_u32x2, uint2, (v.x += 1, v.y += 2))
VECTORS(vectors_u32x4, uint4, (v.x += 1, v.y += 2, v.z += 3, v.w += 4))
VECTORS(vectors_f32x4, float4, (v.x += 1, v.y += 2, v.z += 3, v.w += 4))
VECTORS(vectors_u64x2, ulonglong2, (v.x += 1, v.y += 2))
VECTORS(vectors_f64x2, double2, (v.x += 1, v.y += 2))

__constant__ float table[64] = {1, 2, 3, 5, 7, 11, 13, 17};
__constant__ struct { u32 scale; double shift; u8 bytes[6]; } parameters = {3, 0.25, {9, 8, 7, 6, 5, 4}};
__device__ u32 counters[4] = {10, 20, 30, 40};
__device__ double scratch[32];
__device__ const char* words[3] = {"zero", "one", "two"};
__device__ u32* alias = counters + 2;

extern "C" __global__ void constants(u64* out) {
    const int i = threadIdx.x;
    out[i] = (u64)(table[i % 8] * parameters.scale + parameters.shift * 4) + parameters.bytes[i % 6];
}

extern "C" __global__ void globals(u64* out) {
    const int i = threadIdx.x;
    if (i < 4) { counters[i] += 1; scratch[i] = counters[i] * 0.5; }
    __syncthreads();
    if (i < 4) out[i] = counters[i] + (u64)(scratch[3 - i] * 2) * 1000;
    if (i == 4) out[4] = *alias;
    if (i >= 5 && i < 8) { const char* w = words[i - 5]; u64 sum = 0; while (*w) sum = sum * 256 + *w++; out[i] = sum; }
}

// An array with an index the compiler cannot know lives in local memory.
extern "C" __global__ void locals(const u32* in, u32* out, int n) {
    u32 stack[40]; u8 small[13];
    const int i = threadIdx.x;
    for (int k = 0; k < 40; ++k) stack[k] = in[(i + k) % n];
    for (int k = 0; k < 13; ++k) small[k] = (u8)(i * k);
    for (int k = 0; k < 40; ++k) { const u32 t = stack[k]; stack[k] = stack[in[k] % 40]; stack[in[k] % 40] = t; }
    u32 sum = 0;
    for (int k = 0; k < 40; ++k) sum = sum * 31 + stack[in[(k * 7 + i) % n] % 40] + small[in[k] % 13];
    out[i] = sum;
}

extern "C" __global__ void shared_static(const u32* in, u32* out) {
    __shared__ u32 tile[32][33]; __shared__ u8 bytes[128]; __shared__ double wide[4];
    const int x = threadIdx.x, y = threadIdx.y;
    tile[y][x] = in[y * 32 + x];
    if (y == 0) bytes[x] = (u8)(x * 3);
    if (y == 1 && x < 4) wide[x] = x * 1.5;
    __syncthreads();
    out[y * 32 + x] = tile[x][y] + bytes[(x + y) % 32] + (u32)wide[x % 4];
}

extern "C" __global__ void shared_dynamic(const float* in, float* out, int n) {
    extern __shared__ float4 room[];
    float* values = (float*)room; int* places = (int*)(values + n);
    const int i = threadIdx.x;
    values[i] = in[i]; places[i] = n - 1 - i;
    __syncthreads();
    out[i] = values[places[i]] * 2;
}

// One load through a pointer into any of three spaces.
extern "C" __global__ void generic(const u32* in, u32* out) {
    __shared__ u32 shared[64]; u32 local[4];
    const int i = threadIdx.x;
    shared[i] = in[i] + 1000; for (int k = 0; k < 4; ++k) local[k] = in[i] * 10 + k;
    __syncthreads();
    const u32* p = i % 3 == 0 ? in + i : i % 3 == 1 ? shared + (63 - i) : local + (in[i] & 3);
    u32* q = i % 2 ? out + i : shared + i;
    const u32 v = *p;
    __syncthreads();
    *q = v;
    __syncthreads();
    if (i % 2 == 0) out[i] = shared[i] + (__isShared(p) ? 1u << 20 : 0) + (__isLocal(p) ? 2u << 20 : 0) + (__isGlobal(p) ? 4u << 20 : 0);
}

struct Packet { u8 tag; u32 id; double weight; u16 marks[3]; float* where; };
extern "C" __global__ void by_value(Packet p, u8 flag, s64 big, Packet q, u64* out) {
    p.where[threadIdx.x] = (float)(p.weight * p.id) + q.marks[threadIdx.x % 3];
    if (threadIdx.x == 0) { out[0] = p.tag + q.tag; out[1] = (u64)big; out[2] = flag; out[3] = q.id; out[4] = p.marks[2]; }
}

extern "C" __global__ void cached(const u32* __restrict__ in, u32* out) {
    const int i = threadIdx.x;
    u32 a, b, c;
    asm volatile("ld.global.cs.u32 %0, [%1];" : "=r"(a) : "l"(in + i));
    asm volatile("ld.volatile.global.u32 %0, [%1+4];" : "=r"(b) : "l"(in + i));
    asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(c) : "l"(in + i));
    const u32 d = __ldg(in + i), e = __ldcg(in + i);
    __stwt(out + i, a + 2 * b + 4 * c + 8 * d + 16 * e);
    asm volatile("prefetch.global.L2 [%0];" :: "l"(in));
    __threadfence(); __threadfence_block(); __threadfence_system();
}

// 3-dimensional grid and block: every thread writes its own coordinates.
extern "C" __global__ void coordinates(u32* out) {
    const u32 block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const u32 thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const u32 threads = blockDim.x * blockDim.y * blockDim.z;
    out[block * threads + thread] = blockIdx.x | blockIdx.y << 4 | blockIdx.z << 8 | threadIdx.x << 12 | threadIdx.y << 16 | threadIdx.z << 20;
}

#if __CUDA_ARCH__ >= 800
// A pipeline of two stages: while one tile is summed the next is on its way.
extern "C" __global__ void pipelined(const float* in, float* out, int tiles) {
    __shared__ float buffer[2][64];
    const int i = threadIdx.x;
    __pipeline_memcpy_async(&buffer[0][i], in + i, 4);
    __pipeline_commit();
    float sum = 0;
    for (int t = 0; t < tiles; ++t) {
        if (t + 1 < tiles) __pipeline_memcpy_async(&buffer[(t + 1) % 2][i], in + (t + 1) * 64 + i, 4);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        for (int k = 0; k < 64; ++k) sum += buffer[t % 2][(i + k) % 64] * (k + 1);
        __syncthreads();
    }
    out[i] = sum;
}

// 16 bytes, with the source cut short: the rest is zeros.
extern "C" __global__ void copied_in_part(const u32* in, u32* out, int words) {
    __shared__ __align__(16) u32 buffer[128];
    const int i = threadIdx.x;
    const int left = max(0, min(4, words - 4 * i)) * 4;
    const u32 to = (u32)__cvta_generic_to_shared(buffer + 4 * i);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(in + (left ? 4 * i : 0)), "r"(left));
    asm volatile("cp.async.wait_all;");
    __syncthreads();
    for (int k = 0; k < 4; ++k) out[4 * i + k] = buffer[127 - (4 * i + k)];
}
#endif
