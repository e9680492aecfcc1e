// Broken kernels, each beside its healthy twin.
//
// The line that a report should name carries `BUG name`; where two accesses race, either may be the one reported and
// both are marked. A twin differs by the fix alone.
#include <assert.h>

#define KERNEL extern "C" __global__ void

// The guard lets one thread too many through.
KERNEL past_the_end(const float* in, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n)
        out[i] = in[i % n] * 2;  // BUG past_the_end
}
KERNEL past_the_end_healthy(const float* in, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = in[i % n] * 2;
}

// A vector load from an address that is no multiple of its size.
KERNEL misaligned(const float* in, float* out) {
    const float4 v = *reinterpret_cast<const float4*>(in + 1 + 4 * threadIdx.x);  // BUG misaligned
    out[threadIdx.x] = v.x + v.y + v.z + v.w;
}
KERNEL misaligned_healthy(const float* in, float* out) {
    const float4 v = *reinterpret_cast<const float4*>(in + 4 * threadIdx.x);
    out[threadIdx.x] = v.x + v.y + v.z + v.w;
}

// Correct in itself: the host frees the input, or forgets to fill it.
KERNEL reader(const float* in, float* out) {
    out[threadIdx.x] = in[threadIdx.x] + 1;  // BUG reader
}

// Only half of the tile is filled, all of it is read.
KERNEL half_filled(const float* in, float* out) {
    __shared__ float tile[64];
    if (threadIdx.x < 32)
        tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];  // BUG half_filled
}
KERNEL half_filled_healthy(const float* in, float* out) {
    __shared__ float tile[64];
    tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];
}

// One element past a shared array that is the last one in the block's memory.
KERNEL past_the_tile(const float* in, float* out) {
    __shared__ float tile[64];
    tile[threadIdx.x + 1] = in[threadIdx.x];  // BUG past_the_tile
    __syncthreads();
    out[threadIdx.x] = threadIdx.x ? tile[threadIdx.x] : 0;
}
KERNEL past_the_tile_healthy(const float* in, float* out) {
    __shared__ float tile[65];
    tile[threadIdx.x + 1] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = threadIdx.x ? tile[threadIdx.x] : 0;
}

// An index into a thread's own array, far outside the thread's frame.
KERNEL past_the_stack(const int* in, int* out) {
    int stack[8];
    for (int k = 0; k < 8; ++k) stack[k] = in[k];
    out[threadIdx.x] = stack[in[threadIdx.x] + (threadIdx.x == 5 ? 100000 : 0)];  // BUG past_the_stack
}
KERNEL past_the_stack_healthy(const int* in, int* out) {
    int stack[8];
    for (int k = 0; k < 8; ++k) stack[k] = in[k];
    out[threadIdx.x] = stack[in[threadIdx.x]];
}

// The barrier between filling the tile and reading a neighbour's element is missing.
KERNEL missing_barrier(const float* in, float* out) {
    __shared__ float tile[64];
    tile[threadIdx.x] = 0;
    __syncthreads();
    tile[threadIdx.x] = in[threadIdx.x];       // BUG missing_barrier
    out[threadIdx.x] = tile[63 - threadIdx.x]; // BUG missing_barrier
}
KERNEL missing_barrier_healthy(const float* in, float* out) {
    __shared__ float tile[64];
    tile[threadIdx.x] = 0;
    __syncthreads();
    tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[63 - threadIdx.x];
}

// Two warps write one word.
KERNEL two_writers(const float* in, float* out) {
    __shared__ float total;
    if (threadIdx.x % 32 == 0)
        total = in[threadIdx.x];  // BUG two_writers
    __syncthreads();
    out[threadIdx.x] = total;
}
KERNEL two_writers_healthy(const float* in, float* out) {
    __shared__ float total;
    if (threadIdx.x == 0)
        total = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = total;
}

// A reduction that forgets the barrier at the end of its loop.
KERNEL hasty_reduction(const float* in, float* out) {
    __shared__ float sums[128];
    sums[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    for (int step = 64; step; step /= 2)
        if (threadIdx.x < step)
            sums[threadIdx.x] += sums[threadIdx.x + step];  // BUG hasty_reduction
    __syncthreads();
    out[threadIdx.x] = sums[0];
}
KERNEL hasty_reduction_healthy(const float* in, float* out) {
    __shared__ float sums[128];
    sums[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    for (int step = 64; step; step /= 2) {
        if (threadIdx.x < step)
            sums[threadIdx.x] += sums[threadIdx.x + step];
        __syncthreads();
    }
    out[threadIdx.x] = sums[0];
}

// Every block writes the same elements.
KERNEL block_index_forgotten(const float* in, float* out) {
    out[threadIdx.x] = in[threadIdx.x] + blockIdx.x;  // BUG block_index_forgotten
}
KERNEL block_index_forgotten_healthy(const float* in, float* out) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = in[threadIdx.x] + blockIdx.x;
}

// A stencil in place: a block reads what its neighbour is writing.
KERNEL in_place(float* data) {
    const int n = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    const float next = data[(i + 1) % n];  // BUG in_place
    __syncthreads();
    data[i] = next;  // BUG in_place
}
KERNEL in_place_healthy(float* data) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float next = data[blockIdx.x * blockDim.x + (threadIdx.x + 1) % blockDim.x];
    __syncthreads();
    data[i] = next;
}

// Part of a block leaves before the barrier that the rest waits at.
KERNEL divergent_barrier(const float* in, float* out, int n) {
    __shared__ float tile[64];
    tile[threadIdx.x] = in[threadIdx.x];
    if (threadIdx.x < n)
        __syncthreads();  // BUG divergent_barrier
    out[threadIdx.x] = tile[threadIdx.x];
}
KERNEL divergent_barrier_healthy(const float* in, float* out, int n) {
    __shared__ float tile[64];
    tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = threadIdx.x < n ? tile[threadIdx.x] : tile[threadIdx.x];
}

// A full mask where half of the warp is.
KERNEL absent_lanes(const int* in, int* out) {
    int v = in[threadIdx.x];
    if (threadIdx.x < 16)
        v = __shfl_xor_sync(0xffffffff, v, 1);  // BUG absent_lanes
    out[threadIdx.x] = v;
}
KERNEL absent_lanes_healthy(const int* in, int* out) {
    int v = in[threadIdx.x];
    if (threadIdx.x < 16)
        v = __shfl_xor_sync(0x0000ffff, v, 1);
    out[threadIdx.x] = v;
}

// Data on its way is used before it has come.
__device__ void copy_async(float* to, const float* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
KERNEL not_waited(const float* in, float* out) {
    __shared__ float tile[64];
    copy_async(tile + threadIdx.x, in + threadIdx.x);
    asm volatile("cp.async.commit_group;" ::: "memory");
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];  // BUG not_waited
}
KERNEL not_waited_healthy(const float* in, float* out) {
    __shared__ float tile[64];
    copy_async(tile + threadIdx.x, in + threadIdx.x);
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];
}

// Waited for by the copying thread, but read by another one with no barrier after the wait.
KERNEL waited_alone(const float* in, float* out) {
    __shared__ float tile[64];
    copy_async(tile + threadIdx.x, in + threadIdx.x);  // BUG waited_alone
    asm volatile("cp.async.wait_all;" ::: "memory");   // BUG waited_alone
    out[threadIdx.x] = tile[63 - threadIdx.x];         // BUG waited_alone
}
KERNEL waited_alone_healthy(const float* in, float* out) {
    __shared__ float tile[64];
    copy_async(tile + threadIdx.x, in + threadIdx.x);
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    out[threadIdx.x] = tile[63 - threadIdx.x];
}

// Waits for a flag that nobody sets.
KERNEL endless(const volatile int* flag, int* out) {
    while (*flag == 0) {}  // BUG endless
    out[threadIdx.x] = *flag;
}
KERNEL endless_healthy(const volatile int* flag, int* out) {
    while (*flag == 1) {}
    out[threadIdx.x] = *flag;
}

// Two warps wait at two barriers for each other.
KERNEL deadlock(int* out) {
    if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;");  // BUG deadlock
    else asm volatile("bar.sync 2, 64;");  // BUG deadlock
    out[threadIdx.x] = 1;
}
KERNEL deadlock_healthy(int* out) {
    if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;");
    else asm volatile("bar.sync 1, 64;");
    out[threadIdx.x] = 1;
}

KERNEL trapped(const int* in, int* out) {
    if (in[threadIdx.x] == 7)
        __trap();  // BUG trapped
    out[threadIdx.x] = in[threadIdx.x];
}
KERNEL trapped_healthy(const int* in, int* out) {
    if (in[threadIdx.x] == 1007)
        __trap();
    out[threadIdx.x] = in[threadIdx.x];
}

KERNEL asserted(const int* in, int* out) {
    assert(in[threadIdx.x] != 7);  // BUG asserted
    out[threadIdx.x] = in[threadIdx.x];
}
KERNEL asserted_healthy(const int* in, int* out) {
    assert(in[threadIdx.x] != 1007);
    out[threadIdx.x] = in[threadIdx.x];
}
