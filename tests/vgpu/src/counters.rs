//! What a launch did, counted as the hardware's profiler would.

use serde::Serialize;

/// Totals of one launch. "Thread instructions" count active lanes, "warp instructions" issues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Warp instructions issued, of every class.
    pub warp_instructions: u64,
    /// Lanes that executed them.
    pub thread_instructions: u64,
    /// Warp instructions by pipe, for the model of time: integer and logic.
    pub integer: u64,
    /// f32 arithmetic.
    pub f32: u64,
    /// f64 arithmetic.
    pub f64: u64,
    /// f16 and bf16 arithmetic outside the tensor cores.
    pub half: u64,
    /// Special functions: rcp, sqrt, sin, ex2 and the like.
    pub special: u64,
    /// Conversions neither from nor to f64.
    pub conversions: u64,
    /// Conversions from or to f64, which every device does more slowly.
    pub conversions_f64: u64,
    /// Branches, barriers, votes, shuffles and the rest.
    pub control: u64,
    /// Loads and stores of any space.
    pub memory: u64,
    /// `mma` instructions on f16 or bf16.
    pub mma_half: u64,
    /// `mma` instructions on tf32.
    pub mma_tf32: u64,
    /// `mma` instructions on f64.
    pub mma_f64: u64,
    /// `mma` instructions on s8 or u8.
    pub mma_int8: u64,
    /// Floating-point operations in f32 by active lanes, a fused multiply-add counted as two.
    pub flops_f32: u64,
    /// The same in f64, outside the tensor cores.
    pub flops_f64: u64,
    /// Floating-point operations of `mma` on f16, bf16 and tf32.
    pub flops_tensor: u64,
    /// Floating-point operations of `mma` on f64.
    pub flops_tensor_f64: u64,
    /// Warp requests to global memory: loads, stores, atomics and `cp.async`, without constants.
    pub global_requests: u64,
    /// 32-byte sectors of global memory asked for by loads, after coalescing within a warp instruction.
    pub load_sectors: u64,
    /// The same by stores.
    pub store_sectors: u64,
    /// The same by atomics and reductions.
    pub atomic_sectors: u64,
    /// Distinct 32-byte sectors read by the launch: what must come from DRAM at least.
    pub unique_load_sectors: u64,
    /// Distinct 32-byte sectors written by the launch.
    pub unique_store_sectors: u64,
    /// Warp requests to shared memory.
    pub shared_requests: u64,
    /// Passes that those took: equal to the requests times their width in 128-byte lines without conflicts.
    pub shared_passes: u64,
    /// Passes beyond the fewest possible: bank conflicts.
    pub bank_conflicts: u64,
    /// Barriers passed, one for each warp.
    pub barriers: u64,
    /// Branches at which the lanes of a warp parted.
    pub divergent_branches: u64,
}

macro_rules! sum_fields {
    ($a:ident += $b:ident: $($field:ident),+ $(,)?) => { $($a.$field += $b.$field;)+ };
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        sum_fields!(self += other:
            warp_instructions, thread_instructions, integer, f32, f64, half, special, conversions, conversions_f64, control, memory,
            mma_half, mma_tf32, mma_f64, mma_int8, flops_f32, flops_f64, flops_tensor, flops_tensor_f64,
            global_requests, load_sectors, store_sectors, atomic_sectors, unique_load_sectors, unique_store_sectors,
            shared_requests, shared_passes, bank_conflicts, barriers, divergent_branches,
        );
    }
}
