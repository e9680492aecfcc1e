//! The time that a launch would take: the slowest of its parts.
//!
//! A launch is bounded by whichever of these takes longest, each as if it ran alone at its full rate:
//! - a pipe (f32, f64, integer, …) or the tensor cores, or the issue of instructions, on the busiest multiprocessor:
//!   `blocks / multiprocessors` rounded up, so that a last partial wave costs what it costs;
//! - passes through shared memory, one of 128 bytes a clock, on the busiest multiprocessor;
//! - L2: every sector that the warps asked for; hits in L1 are not modelled, so this is an upper bound;
//! - DRAM: every distinct sector once; sectors asked for again hit L2 as far as the footprint fits it, and miss in
//!   proportion beyond. Reduced when too few warps are resident to keep the memory busy (Little's law with four
//!   outstanding requests a warp, each of as many bytes as the launch's requests to global memory have on average;
//!   requests to shared memory never leave the multiprocessor and say nothing about that);
//! - latency: one dependent instruction every four clocks in each wave of resident blocks, which bounds small grids.
//!
//! The launch itself is added. What is not modelled: L1, instruction cache, replays other than bank conflicts,
//! overlap lost to barriers, and clocks below boost. Good for comparing two kernels and for finding the bound, not for a promise.

use serde::Serialize;

use super::{Description, Occupancy};
use crate::counters::Counters;

/// What bounds a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// f32 arithmetic.
    F32,
    /// f64 arithmetic.
    F64,
    /// f16 and bf16 arithmetic outside the tensor cores.
    Half,
    /// Integer arithmetic.
    Integer,
    /// Special functions.
    Special,
    /// Conversions.
    Conversions,
    /// Tensor cores.
    Tensor,
    /// Issue of instructions.
    Issue,
    /// Shared memory.
    Shared,
    /// Second-level cache.
    L2,
    /// Device memory.
    Dram,
    /// Dependent instructions of too few warps.
    Latency,
    /// The launch itself.
    Launch,
}

/// A modelled time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Time {
    /// In all, launch included.
    pub microseconds: f64,
    /// The part that takes longest.
    pub bound: Bound,
    /// Every part above a hundredth of the longest, longest first, in microseconds.
    pub parts: Vec<(Bound, f64)>,
    /// Waves of resident blocks, the last one counted by its share.
    pub waves: f64,
}

/// Clocks between two dependent instructions of a warp.
const DEPENDENT_ISSUE_CLOCKS: f64 = 4.0;
/// Requests to memory that a warp has under way at once.
const OUTSTANDING_REQUESTS: f64 = 4.0;
/// Operations of one integer `mma`, as m16n8k32.
const INT8_MMA_OPS: f64 = 8192.0;

/// The modelled time of a launch of `blocks` blocks of `threads` threads.
pub fn time(
    device: &Description,
    counters: &Counters,
    blocks: u64,
    threads: u32,
    occupancy: &Occupancy,
) -> Time {
    let sm = &device.per_multiprocessor;
    let clocks_a_us = device.clock_ghz * 1e3;
    let multiprocessors = f64::from(device.multiprocessors);
    let blocks = blocks.max(1) as f64;
    // All blocks do the same work as far as the counters tell: the busiest multiprocessor has this share of it.
    let busiest = (blocks / multiprocessors).ceil() / blocks;
    let resident = f64::from(occupancy.blocks.max(1)) * multiprocessors;
    let warps_a_block = f64::from(threads.div_ceil(32).max(1));

    let lanes = |warp_instructions: u64, lanes_a_clock: f64| {
        warp_instructions as f64 * busiest * 32.0 / lanes_a_clock / clocks_a_us
    };
    let low_precision = {
        // The counters have one sum for both types; an instruction on f16 does twice the work of one on tf32.
        let (half, tf32) = (2.0 * counters.mma_half as f64, counters.mma_tf32 as f64);
        let share = if half + tf32 > 0.0 {
            half / (half + tf32)
        } else {
            1.0
        };
        let flops = counters.flops_tensor as f64;
        flops * share / sm.tensor_half_flops
            + flops * (1.0 - share) / sm.tensor_tf32_flops
            + counters.mma_int8 as f64 * INT8_MMA_OPS / sm.tensor_int8_ops
    };
    let f64_clocks = counters.flops_tensor_f64 as f64 / sm.tensor_f64_flops;
    let tensor =
        (low_precision / (device.tensor_clock_ghz * 1e3) + f64_clocks / clocks_a_us) * busiest;

    let sectors =
        (counters.load_sectors + counters.store_sectors + counters.atomic_sectors) as f64 * 32.0;
    let unique = (counters.unique_load_sectors + counters.unique_store_sectors) as f64 * 32.0;
    let misses_again = (1.0 - device.l2_bytes as f64 / unique.max(1.0)).max(0.0);
    let dram_bytes = unique + (sectors - unique).max(0.0) * misses_again;
    let busy_memory = {
        let warps = blocks.min(resident) * warps_a_block;
        let request = sectors / (counters.global_requests.max(1) as f64);
        let in_flight = warps * OUTSTANDING_REQUESTS * request.max(32.0);
        (in_flight / (device.dram_latency_ns * device.dram_gb_s)).min(1.0)
    };

    let waves = blocks / resident;
    let instructions_a_warp = counters.warp_instructions as f64 / (blocks * warps_a_block);
    let mut parts = vec![
        (Bound::F32, lanes(counters.f32, sm.f32)),
        (Bound::F64, lanes(counters.f64, sm.f64)),
        (Bound::Half, lanes(counters.half, sm.half)),
        (Bound::Integer, lanes(counters.integer, sm.integer)),
        (Bound::Special, lanes(counters.special, sm.special)),
        (
            Bound::Conversions,
            lanes(counters.conversions, sm.conversions)
                + lanes(counters.conversions_f64, sm.conversions_f64),
        ),
        (Bound::Tensor, tensor),
        (
            Bound::Issue,
            lanes(counters.warp_instructions, 32.0 * f64::from(sm.schedulers)),
        ),
        (
            Bound::Shared,
            counters.shared_passes as f64 * busiest / clocks_a_us,
        ),
        (Bound::L2, sectors / device.l2_gb_s * 1e-3),
        (
            Bound::Dram,
            dram_bytes / device.dram_gb_s * 1e-3 / busy_memory,
        ),
        (
            Bound::Latency,
            instructions_a_warp * DEPENDENT_ISSUE_CLOCKS * waves.ceil() / clocks_a_us,
        ),
        (Bound::Launch, device.launch_us),
    ];
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (bound, longest) = parts[0];
    parts.retain(|part| part.1 > 0.01 * longest);
    let microseconds = if bound == Bound::Launch {
        longest
    } else {
        longest + device.launch_us
    };
    Time {
        microseconds,
        bound,
        parts,
        waves,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(key: &str, counters: &Counters, blocks: u64, threads: u32) -> Time {
        let device = Description::find(key).unwrap();
        let occupancy = device.occupancy(threads, 64, 0);
        time(&device, counters, blocks, threads, &occupancy)
    }

    #[test]
    fn a_large_copy_is_bounded_by_dram_at_its_bandwidth() {
        let sectors = (1u64 << 30) / 32;
        let counters = Counters {
            load_sectors: sectors,
            store_sectors: sectors,
            unique_load_sectors: sectors,
            unique_store_sectors: sectors,
            memory: sectors / 2,
            global_requests: sectors / 2,
            warp_instructions: sectors * 2,
            ..Counters::default()
        };
        let t = on("rtx4090", &counters, 1 << 18, 256);
        assert_eq!(t.bound, Bound::Dram);
        let gb_s = 2.0 * (1u64 << 30) as f64 / (t.microseconds * 1e3);
        assert!((900.0..1008.0).contains(&gb_s), "{gb_s}");
        assert!(on("h100", &counters, 1 << 18, 256).microseconds < 0.5 * t.microseconds);
    }

    #[test]
    fn f64_work_is_far_slower_where_the_device_has_little_of_it() {
        let counters = Counters {
            f64: 1 << 30,
            warp_instructions: 1 << 30,
            ..Counters::default()
        };
        let ada = on("rtx4090", &counters, 1 << 16, 256);
        let ampere = on("a100", &counters, 1 << 16, 256);
        assert_eq!((ada.bound, ampere.bound), (Bound::F64, Bound::F64));
        let ratio = ada.microseconds / ampere.microseconds;
        // 108 · 32 · 1.41 against 128 · 2 · 2.52.
        assert!((ratio / 7.55 - 1.0).abs() < 0.02, "{ratio}");
    }

    #[test]
    fn requests_to_shared_memory_do_not_slow_dram() {
        // A gigabyte in requests of 512 bytes, as cp.async makes them, by as many warps as keep the memory busy.
        let requests = (1u64 << 30) / 512;
        let copy = Counters {
            load_sectors: requests * 16,
            unique_load_sectors: requests * 16,
            global_requests: requests,
            memory: requests,
            warp_instructions: requests,
            ..Counters::default()
        };
        let dram = |counters: &Counters| {
            let t = on("h100", counters, 1 << 12, 128);
            t.parts.iter().find(|part| part.0 == Bound::Dram).unwrap().1
        };
        let alone = dram(&copy);
        assert!(
            (alone / 320.0 - 1.0).abs() < 0.01,
            "{alone} us at full rate"
        );
        // What was copied is then read ten times from shared memory.
        let used = Counters {
            shared_requests: 11 * requests,
            shared_passes: 11 * requests,
            memory: 11 * requests,
            warp_instructions: 11 * requests,
            ..copy
        };
        assert_eq!(dram(&used), alone);
    }

    #[test]
    fn conversions_of_f64_have_a_rate_of_their_own() {
        let of = |key, conversions, conversions_f64| {
            let counters = Counters {
                conversions,
                conversions_f64,
                warp_instructions: 1 << 26,
                ..Counters::default()
            };
            on(key, &counters, 1 << 16, 256)
        };
        for (key, slower) in [("rtx4090", 32.0), ("a100", 4.0), ("h100", 4.0)] {
            let (other, wide) = (of(key, 1 << 26, 0), of(key, 0, 1 << 26));
            assert_eq!(wide.bound, Bound::Conversions, "{key}");
            let ratio = wide.parts[0].1 / other.parts[0].1;
            assert!((ratio / slower - 1.0).abs() < 1e-9, "{key}: {ratio}");
        }
    }

    #[test]
    fn f64_tensor_cores_keep_their_clock() {
        // An H100's peaks are published for 1.98 GHz in f64 and 1.83 GHz in f16.
        let of = |flops_tensor, flops_tensor_f64| {
            let counters = Counters {
                flops_tensor,
                flops_tensor_f64,
                ..Counters::default()
            };
            let t = on("h100", &counters, 132 << 10, 128);
            assert_eq!(t.bound, Bound::Tensor);
            (flops_tensor + flops_tensor_f64) as f64 / t.parts[0].1 * 1e-6
        };
        let (half, wide) = (of(1 << 50, 0), of(0, 1 << 50));
        assert!((half / 989.4 - 1.0).abs() < 0.01, "{half} TFLOP/s");
        assert!((wide / 66.9 - 1.0).abs() < 0.01, "{wide} TFLOP/s");
    }

    #[test]
    fn one_block_too_many_costs_another_round() {
        let of = |blocks: u64| {
            let counters = Counters {
                f32: blocks << 20,
                warp_instructions: blocks << 20,
                ..Counters::default()
            };
            on("rtx4090", &counters, blocks, 1024).microseconds
        };
        assert!(of(129) > 1.9 * of(128));
        assert!(of(256) < 1.01 * of(129));
    }

    #[test]
    fn an_empty_launch_costs_a_launch_and_one_warp_is_bounded_by_latency() {
        let empty = on("a100", &Counters::default(), 1, 32);
        assert_eq!((empty.bound, empty.microseconds), (Bound::Launch, 3.0));
        let chain = Counters {
            f32: 100_000,
            warp_instructions: 100_000,
            ..Counters::default()
        };
        assert_eq!(on("a100", &chain, 1, 32).bound, Bound::Latency);
    }
}
