//! A launch: blocks over the host's cores, warps of 32 lanes in lockstep.

use std::sync::Arc;

use crate::{
    check::Finding,
    counters::Counters,
    memory::Memory,
    program::{Kernel, Program},
};

/// What is launched and how.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The loaded module; its globals live in device memory.
    pub program: &'a Arc<Program>,
    /// The kernel within it.
    pub kernel: &'a Kernel,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// The parameter buffer, laid out as the kernel declares.
    pub params: &'a [u8],
    /// All blocks are resident at once and may wait for each other.
    pub cooperative: bool,
}

/// Bytes of device memory that a piece of work reads and writes: disjoint sorted half-open address ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Read.
    pub read: Vec<(u64, u64)>,
    /// Written, atomics included.
    pub written: Vec<(u64, u64)>,
}

/// What a launch came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was counted.
    pub counters: Counters,
    /// Defects of the kernel, each instruction once.
    pub findings: Vec<Finding>,
    /// Memory it used, for the checks between streams.
    pub touched: Touched,
    /// Whether it was stopped: the error that later driver calls return (illegal address, trap, …).
    pub fatal: bool,
    /// What the kernel printed.
    pub printed: String,
}

/// Runs a launch to its end.
pub fn run(_memory: &Memory, _launch: &Launch<'_>) -> Outcome {
    todo!()
}
