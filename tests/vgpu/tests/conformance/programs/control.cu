// Control flow: loops, divergence, calls, barriers.
#include <assert.h>
#include "common.cuh"

MAP(collatz, Ints, 1, u64 v = x.a % 1000 + 1; u32 steps = 0; while (v != 1) { v = v % 2 ? 3 * v + 1 : v / 2; ++steps; } o[0] = steps;)

MAP(nested_loops, Ints, 1,
    const int rows = (int)(x.a % 7); const int columns = (int)(x.b % 9); u64 sum = 0;
    for (int r = 0; r < rows; ++r) {
        if (r == (int)(x.c % 5)) continue;
        for (int c = 0; c < columns; ++c) {
            if (c * r > 20) break;
            for (int k = c; k-- > 0;) { if ((k ^ r) % 3 == 0) continue; sum = sum * 3 + k; }
        }
    }
    o[0] = sum;)

MAP(early_return, Ints, 2, o[0] = 1; o[1] = 0; if (x.a % 3 == 0) return; o[0] = 2; if (x.b % 2) { o[1] = 5; return; } o[1] = x.a;)

// Dense enough for a jump table.
MAP(switched, Ints, 1,
    u64 r = x.a;
    for (int k = 0; k < 3; ++k)
        switch (r % 12) {
            case 0: r += 17; break; case 1: r *= 3; break; case 2: r ^= 0x55; case 3: r -= 9; break;
            case 4: r = r / 2 + 1; break; case 5: r = ~r; break; case 6: r <<= 3; break; case 7: r = r * r; break;
            case 8: r = __popcll(r); break; case 9: return; case 10: r += x.b; break; default: r = x.c; }
    o[0] = r;)

__device__ __noinline__ u64 mix(u64 a, u32 b, u8 c, double d) { return a * 31 + b + c + (u64)d; }
struct Pair { u64 first; u32 second; };
__device__ __noinline__ Pair divide(u64 a, u64 b) { Pair p; p.first = a / b; p.second = (u32)(a % b); return p; }
__device__ __noinline__ void store(u64* to, u64 v) { if (v % 2) return; *to = v; }
MAP(calls, Ints, 4,
    o[0] = mix(x.a, (u32)x.b, (u8)x.c, (double)(x.b % 1000)); const Pair p = divide(x.a, x.b % 1000 + 1);
    o[1] = p.first; o[2] = p.second; o[3] = 1; if (x.c % 3) store(o + 3, x.a);)

// Sorts by odd-even transposition: a barrier in a uniform loop around divergent work.
extern "C" __global__ void sorted(u32* data, int n) {
    extern __shared__ u32 values[];
    const int i = threadIdx.x;
    if (i < n) values[i] = data[i];
    __syncthreads();
    for (int round = 0; round < n; ++round) {
        const int left = 2 * i + (round & 1);
        if (left + 1 < n && values[left] > values[left + 1]) { const u32 t = values[left]; values[left] = values[left + 1]; values[left + 1] = t; }
        __syncthreads();
    }
    if (i < n) data[i] = values[i];
}

extern "C" __global__ void barrier_votes(const u32* in, u32* out) {
    const int i = threadIdx.x;
    const u32 v = in[i];
    const int count = __syncthreads_count(v % 3 == 0);
    const int all = __syncthreads_and(v < 1000000), none = __syncthreads_and(v % 2);
    const int any = __syncthreads_or(v == in[5]), never = __syncthreads_or(v == 0xffffffff);
    out[i] = count | all << 12 | none << 13 | any << 14 | never << 15;
}

// Two halves of a block meet at barriers of their own, then all at the common one.
extern "C" __global__ void named_barriers(const u32* in, u32* out) {
    __shared__ u32 values[128];
    const int i = threadIdx.x, half = i / 64;
    values[i] = in[i];
    if (half) asm volatile("bar.sync 2, 64;" ::: "memory"); else asm volatile("bar.sync 1, 64;" ::: "memory");
    const u32 mine = values[half * 64 + 63 - i % 64];
    __syncthreads();
    values[i] = mine * 2;
    __syncthreads();
    out[i] = values[127 - i] + 1;
    assert(out[i] > 0);
}

// A producer warp arrives, a consumer warp waits.
extern "C" __global__ void arrive_and_wait(const u32* in, u32* out) {
    __shared__ u32 values[32];
    const int i = threadIdx.x;
    if (i < 32) { values[i] = in[i] * 3; asm volatile("bar.arrive 3, 64;" ::: "memory"); }
    else { asm volatile("bar.sync 3, 64;" ::: "memory"); out[i - 32] = values[63 - i]; }
}

// The tiled product that every text shows: shared memory, barriers, loops.
extern "C" __global__ void tiled_product(const float* a, const float* b, float* c, int n) {
    __shared__ float ta[16][16], tb[16][17];
    const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    float sum = 0;
    for (int t = 0; t < n; t += 16) {
        ta[y][x] = row < n && t + x < n ? a[row * n + t + x] : 0;
        tb[y][x] = t + y < n && column < n ? b[(t + y) * n + column] : 0;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 16; ++k) sum += ta[y][k] * tb[k][x];
        __syncthreads();
    }
    if (row < n && column < n) c[row * n + column] = sum;
}

// Lanes leave a loop at different rounds and meet again after it: the shuffle sees them all.
extern "C" __global__ void meeting_again(const u32* in, u32* out) {
    const int i = threadIdx.x;
    u32 v = in[i], rounds = 0;
    while (v > 10) { if (v % 2) { v = v / 3; } else { v = v / 2; if (v % 5 == 0) break; } ++rounds; }
    const u32 sum = __shfl_xor_sync(0xffffffff, rounds, 7) + (u32)__popc(__activemask());
    out[i] = sum * 100 + rounds;
}
