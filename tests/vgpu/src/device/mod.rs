//! Descriptions of real devices and the time that a launch would take there.
//!
//! A description is a JSON file beside this module with the public figures of a device. [`Description::occupancy`]
//! is NVIDIA's occupancy calculation; [`model::time`] turns the counters of a launch into a modelled time and names
//! what bounds it. Modelled times are never measurements and everything printed from them says `virtual`.

pub mod model;

use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

/// The public figures of a device.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Short name, as `VGPU_DEVICE` takes it.
    pub key: String,
    /// What the driver reports, without the mark that it is virtual.
    pub name: String,
    /// Major and minor.
    pub compute_capability: (i32, i32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Boost clock.
    pub clock_ghz: f64,
    /// Boost clock while the tensor cores work on anything but f64: lower where the published peaks are for two clocks.
    pub tensor_clock_ghz: f64,
    /// Device memory.
    pub memory_bytes: u64,
    /// Peak bandwidth of device memory.
    pub dram_gb_s: f64,
    /// Latency of a load that misses every cache.
    pub dram_latency_ns: f64,
    /// Second-level cache.
    pub l2_bytes: u64,
    /// Its bandwidth, as microbenchmarks find it.
    pub l2_gb_s: f64,
    /// Host link, one direction, as large copies reach it.
    pub pcie_gb_s: f64,
    /// Fixed part of a copy over it.
    pub pcie_latency_us: f64,
    /// Copy engines.
    pub copy_engines: u32,
    /// From the start of a launch on the device to its first instruction, and back at its end.
    pub launch_us: f64,
    /// Host time of a call that queues work.
    pub submit_us: f64,
    /// Width of the memory interface.
    pub memory_bus_bits: u32,
    /// Its clock, for the attribute.
    pub memory_clock_khz: i32,
    /// Rates and sizes of one multiprocessor.
    pub per_multiprocessor: Multiprocessor,
}

/// One multiprocessor: lanes a clock for each pipe, and what it holds.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Multiprocessor {
    /// Warp schedulers, each issues one instruction a clock.
    pub schedulers: u32,
    /// f32 lanes.
    pub f32: f64,
    /// f64 lanes.
    pub f64: f64,
    /// f16 and bf16 lanes outside the tensor cores.
    pub half: f64,
    /// Integer lanes.
    pub integer: f64,
    /// Special-function lanes.
    pub special: f64,
    /// Conversion lanes.
    pub conversions: f64,
    /// The same from or to f64.
    pub conversions_f64: f64,
    /// Tensor-core operations a clock on f16 or bf16 with f32 accumulation, dense.
    pub tensor_half_flops: f64,
    /// The same on tf32.
    pub tensor_tf32_flops: f64,
    /// The same on f64; on devices without f64 tensor cores the rate of the f64 pipe.
    pub tensor_f64_flops: f64,
    /// The same on s8.
    pub tensor_int8_ops: f64,
    /// 32-bit registers.
    pub registers: u32,
    /// Shared memory.
    pub shared_bytes: u32,
    /// The most shared memory of one block, after opting in.
    pub shared_block_optin_bytes: u32,
    /// Resident warps.
    pub max_warps: u32,
    /// Resident blocks.
    pub max_blocks: u32,
}

/// Shared memory that a block may use without opting in.
pub const SHARED_BLOCK_DEFAULT: u32 = 48 * 1024;
/// Shared memory that the system takes of every block.
pub const SHARED_RESERVED: u32 = 1024;
/// Threads of a block at most.
pub const MAX_BLOCK_THREADS: u32 = 1024;

/// Resident blocks and warps of one multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Occupancy {
    /// Blocks.
    pub blocks: u32,
    /// Warps.
    pub warps: u32,
    /// Warps over the most that the device holds.
    pub fraction: f64,
    /// What sets the number.
    pub limit: Limit,
}

/// What sets the number of resident blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// Resident warps.
    Warps,
    /// Resident blocks.
    Blocks,
    /// Registers.
    Registers,
    /// Shared memory.
    Shared,
}

impl Description {
    /// All devices described here.
    pub fn all() -> &'static [Arc<Self>] {
        static ALL: OnceLock<Vec<Arc<Description>>> = OnceLock::new();
        ALL.get_or_init(|| {
            [
                include_str!("rtx4090.json"),
                include_str!("a100.json"),
                include_str!("h100.json"),
            ]
            .iter()
            .map(|text| {
                Arc::new(serde_json::from_str(text).expect("the embedded descriptions are tested"))
            })
            .collect()
        })
    }

    /// The device of that short name.
    pub fn find(key: &str) -> Option<Arc<Self>> {
        Self::all()
            .iter()
            .find(|d| d.key.eq_ignore_ascii_case(key))
            .cloned()
    }

    /// Resident blocks of a kernel: NVIDIA's calculation with the largest shared-memory carve-out. Registers are
    /// given out by the warp in units of 256, shared memory in units of 128 bytes.
    pub fn occupancy(&self, threads: u32, registers: u32, shared: u32) -> Occupancy {
        let sm = &self.per_multiprocessor;
        let warps = threads.div_ceil(32).max(1);
        let mut limits = vec![
            (sm.max_warps / warps, Limit::Warps),
            (sm.max_blocks, Limit::Blocks),
        ];
        if registers > 0 {
            let of_a_warp = (registers * 32).next_multiple_of(256);
            // Each scheduler has its own quarter of the file.
            let resident = sm.registers / sm.schedulers / of_a_warp * sm.schedulers;
            limits.push((resident / warps, Limit::Registers));
        }
        limits.push((
            sm.shared_bytes / (shared + SHARED_RESERVED).next_multiple_of(128),
            Limit::Shared,
        ));
        let (blocks, limit) = limits
            .into_iter()
            .min_by_key(|l| l.0)
            .unwrap_or((0, Limit::Blocks));
        let warps = blocks * warps;
        Occupancy {
            blocks,
            warps,
            fraction: f64::from(warps) / f64::from(sm.max_warps),
            limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_reach_their_published_peaks() {
        // TFLOP/s of f32, of f64 on whatever is fastest, and of dense f16 tensor cores with f32 accumulation.
        for (key, f32_peak, f64_peak, tensor_peak) in [
            ("rtx4090", 82.6, 1.29, 165.2),
            ("a100", 19.5, 19.5, 312.0),
            ("h100", 66.9, 66.9, 989.4),
        ] {
            let d = Description::find(key).unwrap();
            let sm = &d.per_multiprocessor;
            let near = |operations_a_clock: f64, clock_ghz: f64, peak: f64| {
                let found = operations_a_clock * f64::from(d.multiprocessors) * clock_ghz * 1e-3;
                assert!(
                    (found / peak - 1.0).abs() < 0.01,
                    "{key}: {found} for {peak}"
                );
            };
            near(sm.f32 * 2.0, d.clock_ghz, f32_peak);
            near(sm.tensor_f64_flops, d.clock_ghz, f64_peak);
            near(sm.tensor_half_flops, d.tensor_clock_ghz, tensor_peak);
        }
        assert!(Description::find("gtx9000").is_none());
    }

    #[test]
    fn occupancy_is_what_the_calculator_says() {
        let ada = Description::find("rtx4090").unwrap();
        let ampere = Description::find("a100").unwrap();
        let of = |o: Occupancy| (o.blocks, o.limit);
        assert_eq!(of(ada.occupancy(256, 32, 0)), (6, Limit::Warps));
        assert_eq!(of(ada.occupancy(256, 128, 0)), (2, Limit::Registers));
        assert_eq!(of(ada.occupancy(256, 255, 0)), (1, Limit::Registers));
        assert_eq!(of(ada.occupancy(128, 40, 48 * 1024)), (2, Limit::Shared));
        assert_eq!(of(ada.occupancy(32, 16, 0)), (24, Limit::Blocks));
        assert_eq!(of(ampere.occupancy(1024, 32, 0)), (2, Limit::Warps));
        assert_eq!(of(ampere.occupancy(256, 64, 80 * 1024)), (2, Limit::Shared));
        assert_eq!(
            of(ampere.occupancy(1024, 65, 0)),
            (0, Limit::Registers),
            "too many registers to launch"
        );
    }
}
