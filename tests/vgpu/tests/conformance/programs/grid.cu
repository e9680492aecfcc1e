// The whole grid: special registers, output, waiting for each other.
#include <cooperative_groups.h>
#include <stdio.h>
#include "common.cuh"
namespace cg = cooperative_groups;

extern "C" __global__ void special_registers(u64* out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    u32 warp, warps, sm, sms; u64 grid, time; u32 clock;
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp)); asm volatile("mov.u32 %0, %%nwarpid;" : "=r"(warps));
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm)); asm volatile("mov.u32 %0, %%nsmid;" : "=r"(sms));
    asm volatile("mov.u64 %0, %%gridid;" : "=l"(grid)); asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    asm volatile("mov.u32 %0, %%clock;" : "=r"(clock));
    const u64 before = clock64();
    u32 dynamic, total;
    asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(dynamic)); asm volatile("mov.u32 %0, %%total_smem_size;" : "=r"(total));
    out[i * 4] = threadIdx.x | (u64)blockDim.x << 10 | (u64)blockIdx.x << 20 | (u64)gridDim.x << 30;
    out[i * 4 + 1] = (warp < warps) + 2 * (sm < sms) + 4 * (warp == threadIdx.x / 32);
    out[i * 4 + 2] = (clock64() >= before) + 2 * (time > 0) + 4 * (clock - (u32)grid == clock - (u32)grid);
    out[i * 4 + 3] = (u64)dynamic << 32 | total;
}
extern "C" __global__ void printing(int n) {
    if (threadIdx.x == 0) printf("block %d of %u: %s %5.2f|%-6d|%06x|%c|%lld|%e|%%\n", blockIdx.x, gridDim.x, "text", n * 0.75, n, n, 'x', -5000000000ll, 12345.678);
    if (threadIdx.x == 1 && blockIdx.x == 0) printf("plain\n");
}
// Each phase reads what all blocks wrote in the one before.
extern "C" __global__ void grid_barrier(u32* a, u32* b, int rounds) {
    cg::grid_group grid = cg::this_grid();
    const u32 n = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    a[i] = i;
    for (int r = 0; r < rounds; ++r) {
        grid.sync();
        b[i] = a[(i + blockDim.x) % n] + 1;
        grid.sync();
        a[i] = b[n - 1 - i];
    }
}
extern "C" __global__ void cooperative_tiles(const u32* in, u32* out) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    u32 v = in[block.thread_rank()];
    for (int step = tile.size() / 2; step; step /= 2) v += tile.shfl_down(v, step);
    v = tile.shfl(v, 0);
    cg::coalesced_group odd = cg::coalesced_threads();
    if (threadIdx.x % 2) { cg::coalesced_group g = cg::coalesced_threads(); v += g.thread_rank() * 1000000 + g.size() * 100000000; }
    block.sync();
    out[block.thread_rank()] = v + odd.size();
}
