//! Occupancy of the kernels: registers and shared memory as the assembler said when they were built, and how many
//! threads fit at once because of it. Needs no device.

use super::exact;
use super::module::table::{MODULES, Module, RESOURCES};

/// A kernel on one architecture.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelInfo {
    /// Symbol of the kernel.
    pub name: &'static str,
    /// Architecture, such as 80.
    pub arch: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Shared memory of a block in bytes.
    pub shared: u32,
    /// Bytes spilled from registers to local memory.
    pub spills: u32,
    /// Share of a multiprocessor's threads that can be resident, 0 to 1.
    pub occupancy: f64,
}

/// Occupancy limits of a multiprocessor.
struct Room {
    warps: u32,
    blocks: u32,
    shared: u32,
    /// Shared memory that the system takes of every block.
    reserved: u32,
}

const REGISTERS: u32 = 65_536;
/// Registers are handed to warps by this many.
const REGISTER_UNIT: u32 = 256;
/// Warps are spread over this many schedulers, each with its part of the registers.
const SCHEDULERS: u32 = 4;
const WARP: u32 = 32;

/// Returns the limits in the CUDA programming guide's table of technical specifications.
fn room(arch: u32) -> Room {
    let (warps, blocks, kib) = match arch {
        75 => (32, 16, 64),
        80 => (64, 32, 164),
        86 => (48, 16, 100),
        87 => (48, 16, 164),
        89 => (48, 24, 100),
        90..=103 => (64, 32, 228),
        _ => (48, 24, 100),
    };
    Room {
        warps,
        blocks,
        shared: kib * 1024,
        reserved: if arch < 80 { 0 } else { 1024 },
    }
}

/// The share of a multiprocessor's warps that blocks of these needs can fill.
fn occupancy(arch: u32, threads: u32, registers: u32, shared: u32) -> f64 {
    let room = room(arch);
    let warps = threads.div_ceil(WARP).max(1);
    let per_warp = (registers.max(1) * WARP).next_multiple_of(REGISTER_UNIT);
    let by_registers = REGISTERS / SCHEDULERS / per_warp * SCHEDULERS / warps;
    let by_shared = room.shared / (shared + room.reserved).max(1);
    let blocks = (room.warps / warps)
        .min(room.blocks)
        .min(by_registers)
        .min(by_shared);
    f64::from(blocks * warps) / f64::from(room.warps)
}

/// Architectures that the build has machine code for.
pub fn architectures() -> Vec<u32> {
    let mut archs: Vec<u32> = RESOURCES.iter().map(|r| r.arch).collect();
    archs.sort_unstable();
    archs.dedup();
    archs
}

/// Returns every kernel on one of [`architectures`], by module.
pub fn kernels(arch: u32) -> Vec<KernelInfo> {
    RESOURCES
        .iter()
        .filter(|resources| resources.arch == arch)
        .map(|resources| {
            let threads = threads(resources.kernel);
            let shared = resources.shared + exact::dynamic_shared(resources.kernel);
            KernelInfo {
                name: resources.kernel,
                arch,
                threads,
                registers: resources.registers,
                shared,
                spills: resources.spills,
                occupancy: occupancy(arch, threads, resources.registers, shared),
            }
        })
        .collect()
}

/// Threads of a kernel's blocks: what its `__launch_bounds__` became in PTX.
fn threads(kernel: &str) -> u32 {
    let of = |module: &Module| {
        let text = module.ptx.iter().rev().find_map(|image| {
            let text = std::str::from_utf8(image.bytes).ok()?;
            Some(text.split_once(&format!(".entry {kernel}("))?.1)
        })?;
        let header = text.split_once('{').map_or(text, |parts| parts.0);
        let bound = header.split_once(".maxntid")?.1.lines().next()?;
        let sides = bound.split(',').map(|side| side.trim().parse::<u32>());
        sides.product::<Result<u32, _>>().ok()
    };
    MODULES.iter().find_map(of).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the occupancy calculator of the CUDA toolkit.
    #[test]
    fn occupancy_follows_the_scarcest() {
        for (arch, threads, registers, shared, wanted) in [
            (80, 256, 32, 0, 1.0),
            (80, 128, 128, 0, 0.25),
            (80, 128, 32, 48 << 10, 12.0 / 64.0),
            (90, 1024, 64, 0, 0.5),
            (89, 128, 255, 0, 8.0 / 48.0),
            (75, 64, 16, 1024, 1.0),
        ] {
            assert_eq!(
                occupancy(arch, threads, registers, shared),
                wanted,
                "sm_{arch}"
            );
        }
    }

    #[test]
    fn every_kernel_has_threads_and_fits() {
        for arch in architectures() {
            for kernel in kernels(arch) {
                assert!(kernel.threads >= WARP, "{kernel:?}");
                assert!(kernel.occupancy > 0.0, "{kernel:?}");
            }
        }
    }
}
