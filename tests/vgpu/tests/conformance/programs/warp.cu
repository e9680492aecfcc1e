// What the lanes of a warp do together.
#include "common.cuh"

#define ALL 0xffffffffu
extern "C" __global__ void shuffles(const u32* in, u32* out) {
    const int i = threadIdx.x; const u32 v = in[i];
    out[i * 8 + 0] = __shfl_sync(ALL, v, 5);
    out[i * 8 + 1] = __shfl_sync(ALL, v, in[i] % 32);
    out[i * 8 + 2] = __shfl_up_sync(ALL, v, 3);
    out[i * 8 + 3] = __shfl_down_sync(ALL, v, 3);
    out[i * 8 + 4] = __shfl_xor_sync(ALL, v, 9);
    out[i * 8 + 5] = __shfl_up_sync(ALL, v, 2, 8);
    out[i * 8 + 6] = __shfl_down_sync(ALL, v, 2, 16);
    out[i * 8 + 7] = __shfl_xor_sync(ALL, v, 12, 8);
}
extern "C" __global__ void wide_shuffles(const double* in, double* out) {
    const int i = threadIdx.x;
    double v = in[i];
    for (int step = 16; step; step /= 2) v += __shfl_down_sync(ALL, v, step);
    out[i] = __shfl_sync(ALL, v, 0) + (double)__shfl_sync(ALL, (long long)i << 40, 31);
}
extern "C" __global__ void shuffle_predicates(const u32* in, u32* out) {
    const int i = threadIdx.x; u32 r, p;
    asm volatile("{ .reg .pred q; shfl.sync.up.b32 %0|q, %2, 4, 0, -1; selp.u32 %1, 1, 0, q; }" : "=r"(r), "=r"(p) : "r"(in[i]));
    out[2 * i] = r; out[2 * i + 1] = p;
}
extern "C" __global__ void votes(const u32* in, u32* out) {
    const int i = threadIdx.x; const u32 v = in[i]; int same;
    u32 r = __any_sync(ALL, v % 7 == 0) | __all_sync(ALL, v % 7 == 0) << 1 | __all_sync(ALL, v < 5000) << 2;
    asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; vote.sync.uni.pred q, p, -1; selp.s32 %0, 1, 0, q; }" : "=r"(same) : "r"(v + 1));
    out[i * 4] = r | same << 3;
    out[i * 4 + 1] = __ballot_sync(ALL, v % 3 == 1);
    out[i * 4 + 2] = v % 2 ? __ballot_sync(__activemask(), v % 4 == 1) : 0;
    out[i * 4 + 3] = i < 16 ? __ballot_sync(0xffff, v % 3 == 0) : __ballot_sync(0xffff0000, v % 3 == 0);
}
extern "C" __global__ void matches(const u32* in, u32* out) {
    const int i = threadIdx.x; int all;
    out[i * 4] = __match_any_sync(ALL, in[i] % 5);
    out[i * 4 + 1] = __match_any_sync(ALL, (u64)(in[i] % 3) << 35);
    out[i * 4 + 2] = __match_all_sync(ALL, in[i] / 100000, &all) + all;
    out[i * 4 + 3] = __match_all_sync(ALL, in[i], &all) + all;
}
extern "C" __global__ void active_masks(u32* out) {
    const int i = threadIdx.x; u32 m = 0;
    if (i % 3 == 0) m = __activemask(); else if (i % 3 == 1) { if (i > 12) m = __activemask() | 1u; } else m = 2;
    __syncwarp();
    out[i] = m + __popc(__activemask());
}
extern "C" __global__ void lane_registers(u32* out) {
    const int i = threadIdx.x; u32 r;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(r)); out[i * 7] = r;
    asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(r)); out[i * 7 + 1] = r;
    asm volatile("mov.u32 %0, %%lanemask_le;" : "=r"(r)); out[i * 7 + 2] = r;
    asm volatile("mov.u32 %0, %%lanemask_gt;" : "=r"(r)); out[i * 7 + 3] = r;
    asm volatile("mov.u32 %0, %%lanemask_ge;" : "=r"(r)); out[i * 7 + 4] = r;
    asm volatile("mov.u32 %0, %%lanemask_eq;" : "=r"(r)); out[i * 7 + 5] = r;
    asm volatile("mov.u32 %0, WARP_SZ;" : "=r"(r)); out[i * 7 + 6] = r;
}
// Data passes between lanes through shared memory with no barrier but the warp's.
extern "C" __global__ void warp_barrier(const u32* in, u32* out) {
    __shared__ u32 values[32]; const int i = threadIdx.x;
    values[i] = in[i]; __syncwarp();
    const u32 v = values[(i + 1) % 32]; __syncwarp();
    values[i] = v * 2; __syncwarp();
    out[i] = values[31 - i];
}
// A scan in each of several warps, then over the warps: the pattern of every reduction.
extern "C" __global__ void block_scan(const u32* in, u32* out, int n) {
    __shared__ u32 totals[32]; const int i = threadIdx.x, lane = i % 32, warp = i / 32;
    u32 v = i < n ? in[i] : 0;
    for (int step = 1; step < 32; step *= 2) { const u32 t = __shfl_up_sync(ALL, v, step); if (lane >= step) v += t; }
    if (lane == 31) totals[warp] = v;
    __syncthreads();
    if (warp == 0) {
        const int warps = (blockDim.x + 31) / 32; u32 t = lane < warps ? totals[lane] : 0;
        for (int step = 1; step < 32; step *= 2) { const u32 s = __shfl_up_sync(ALL, t, step); if (lane >= step) t += s; }
        if (lane < warps) totals[lane] = t;
    }
    __syncthreads();
    if (i < n) out[i] = v + (warp ? totals[warp - 1] : 0);
}
#if __CUDA_ARCH__ >= 800
extern "C" __global__ void reductions(const u32* in, u32* out) {
    const int i = threadIdx.x; const u32 v = in[i];
    out[i * 8] = __reduce_add_sync(ALL, v); out[i * 8 + 1] = __reduce_min_sync(ALL, v); out[i * 8 + 2] = __reduce_max_sync(ALL, v);
    out[i * 8 + 3] = (u32)__reduce_min_sync(ALL, (int)v - 500); out[i * 8 + 4] = (u32)__reduce_max_sync(ALL, -(int)v);
    out[i * 8 + 5] = __reduce_and_sync(ALL, v | 1); out[i * 8 + 6] = __reduce_or_sync(ALL, v);
    out[i * 8 + 7] = i % 2 ? __reduce_xor_sync(0xaaaaaaaa, v) : __reduce_xor_sync(0x55555555, v);
}
#endif
#if __CUDA_ARCH__ >= 900
extern "C" __global__ void elected(u32* out) {
    u32 chosen, lane;
    asm volatile("{ .reg .pred p; elect.sync %0|p, -1; selp.u32 %1, 1, 0, p; }" : "=r"(lane), "=r"(chosen));
    out[threadIdx.x] = chosen | (lane < 32) << 1;
}
#endif
