// Atomics and reductions of every type, on global and shared memory.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "common.cuh"

// One word for each operation, all threads of all blocks on the same words.
extern "C" __global__ void atomics_u32(u32* to, const u32* in) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x; const u32 v = in[i];
    atomicAdd(to + 0, v); atomicSub(to + 1, v); atomicMin(to + 2, v); atomicMax(to + 3, v);
    atomicAnd(to + 4, v | 0xf0); atomicOr(to + 5, v); atomicXor(to + 6, v);
    atomicInc(to + 7, 1000); atomicDec(to + 8, 50);
    atomicMin((int*)to + 9, (int)v - 5000); atomicMax((int*)to + 10, -(int)v); atomicAdd((int*)to + 11, -(int)v);
}
extern "C" __global__ void atomics_u64(u64* to, const u32* in) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x; const u64 v = (u64)in[i] << 20 | i;
    atomicAdd(to + 0, v); atomicMin(to + 1, v); atomicMax(to + 2, v); atomicAnd(to + 3, v | 0xff00); atomicOr(to + 4, v);
    atomicXor(to + 5, v); atomicMin((s64*)to + 6, -(s64)v); atomicMax((s64*)to + 7, -(s64)v);
}
// Sums of small integers and halves: exact in any order.
extern "C" __global__ void atomics_float(float* f, double* d, const u32* in) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(f, in[i] % 16 * 0.5f); atomicAdd(d, in[i] * 0.25);
    __shared__ float s; __shared__ double t;
    if (threadIdx.x == 0) { s = 1; t = 2; }
    __syncthreads();
    atomicAdd(&s, 0.5f); atomicAdd(&t, 0.25);
    __syncthreads();
    if (threadIdx.x == 0) { f[1 + blockIdx.x] = s; d[1 + blockIdx.x] = t; }
}
extern "C" __global__ void atomics_half(__half* h, __half2* h2) {
    atomicAdd(h2, __floats2half2_rn(0.5f, 1.0f));
#if __CUDA_ARCH__ >= 700
    atomicAdd(h, __float2half(0.25f));
#endif
}
#if __CUDA_ARCH__ >= 900
extern "C" __global__ void atomics_bfloat(__nv_bfloat16* b, __nv_bfloat162* b2) {
    atomicAdd(b, __float2bfloat16(0.5f)); atomicAdd(b2, __floats2bfloat162_rn(1.0f, 0.5f));
}
#endif
// What an atomic returns: tickets are all different, an exchange hands every value on exactly once.
extern "C" __global__ void tickets(u32* counter, u32* owner, u64* chain) {
    const u32 me = blockIdx.x * blockDim.x + threadIdx.x;
    const u32 ticket = atomicAdd(counter, 1);
    owner[ticket] = me + 1;
    const u64 before = atomicExch(chain, (u64)me + 1);
    chain[1 + me] = before;
}
__device__ void add_by_cas(u64* to, double v) {
    u64 old = *(volatile u64*)to, seen;
    do { seen = old; old = atomicCAS(to, seen, (u64)__double_as_longlong(__longlong_as_double((s64)seen) + v)); } while (old != seen);
}
extern "C" __global__ void compare_and_swap(u64* wide, u32* word, u16* small) {
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    add_by_cas(wide, 0.5);
    atomicCAS(word, i, i + 1);
    u16 old = *(volatile u16*)small, seen;
    do { seen = old; old = atomicCAS(small, seen, (u16)(seen + 3)); } while (old != seen);
}
extern "C" __global__ void histogram(const u32* in, u32* bins, int n) {
    __shared__ u32 mine[16];
    if (threadIdx.x < 16) mine[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&mine[in[i] % 16], 1);
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}
// The last block to finish sums what the others left: fences and an atomic counter.
extern "C" __global__ void last_block(const u32* in, u32* partial, u32* done, u32* result) {
    __shared__ u32 sum; __shared__ bool last;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, in[blockIdx.x * blockDim.x + threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum; __threadfence();
        last = atomicInc(done, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) { u32 total = 0; for (u32 b = 0; b < gridDim.x; ++b) total += ((volatile u32*)partial)[b]; *result = total; }
}
// Orders and scopes as they are written in PTX.
extern "C" __global__ void scoped(u32* to) {
    u32 r;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 2;" : "=r"(r) : "l"(to) : "memory");
    asm volatile("red.relaxed.sys.global.add.u32 [%0], 3;" :: "l"(to + 1) : "memory");
    asm volatile("atom.global.cta.or.b32 %0, [%1], 4;" : "=r"(r) : "l"(to + 2) : "memory");
    asm volatile("st.release.gpu.global.u32 [%0], %1;" :: "l"(to + 3 + threadIdx.x), "r"(threadIdx.x) : "memory");
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(r) : "l"(to + 3 + threadIdx.x) : "memory");
    if (r != threadIdx.x) atomicAdd(to, 1000);
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    asm volatile("membar.gl;" ::: "memory");
}
