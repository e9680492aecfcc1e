// Copies from global to shared memory that do not pass through registers (compute capability 8.0).
#pragma once

#include <cstdint>

namespace muso {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// 16 bytes to shared memory: the first `bytes` from `from`, zeros after. Both addresses are multiples of 16.
__device__ __forceinline__ void copy_async(void* to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
               : "memory");
}

// 16 bytes to an address of shared memory; both addresses are multiples of 16.
__device__ __forceinline__ void copy_chunk_async(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `Pending` of the latest groups are under way.
template <int Pending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// Whether every row of a matrix starts at a multiple of 16 bytes.
template <typename T>
__device__ __forceinline__ bool rows_aligned(const T* base, int64_t pitch) {
  const uint64_t bits = reinterpret_cast<uint64_t>(base) | static_cast<uint64_t>(pitch) * sizeof(T);
  return bits % 16 == 0;
}

}  // namespace muso
