//! A launch: blocks over the host's cores, warps of 32 lanes in lockstep.
//!
//! A host thread takes one block after the other and runs its warps in turns: each until it ends, waits at a barrier
//! or has had its share of instructions. All blocks of a cooperative launch are alive at once and take turns too, so
//! that they can wait for each other. The parts:
//! - [`lanes`], [`alu`]: registers, and the instructions on them;
//! - [`block`], [`step`]: the state of a block and the loop that runs a warp;
//! - [`access`], [`atomic`], [`matrix`]: instructions on memory; [`global`] and [`shared`] keep what the checks need;
//! - [`copies`]: `cp.async`; [`warp`]: shuffles and votes; [`print`]: `printf`; [`report`]: findings.

mod access;
mod alu;
mod atomic;
mod block;
mod copies;
mod global;
mod lanes;
mod matrix;
mod print;
mod report;
mod shared;
mod step;
#[cfg(test)]
mod tests;
mod warp;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use rayon::iter::{IntoParallelIterator, ParallelIterator};

use crate::{
    bits::Bitmap,
    check::{Finding, Kind, Site},
    counters::Counters,
    matrix::Element,
    memory::Memory,
    program::{
        Code, Kernel, Program,
        op::{Class, Op},
    },
};
use block::{Block, Status, Warp};
use global::View;
use report::Who;
use step::Worker;

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

/// The most threads of a block.
const MOST_THREADS: u64 = 1024;

/// Instructions that a warp runs before another has its turn.
const TURN: u64 = 1 << 14;

/// Instructions after which a warp is taken to run without end, unless `VGPU_INSTRUCTION_LIMIT` says otherwise.
const LIMIT: u64 = 1 << 36;

/// The same while nothing in the launch stores, updates, passes a barrier or ends: a loop that waits for nothing.
const QUIET_LIMIT: u64 = 1 << 29;

/// Bytes of the workspace through which the blocks of a cooperative launch meet.
const WORKSPACE: u64 = 256;

/// A launch as all host threads see it.
struct Machine<'a> {
    launch: &'a Launch<'a>,
    code: &'a Code,
    memory: &'a Memory,
    view: View,
    alu: alu::Execute,
    /// The parameters, aligned, and how many bytes there are.
    params: Vec<u64>,
    param_bytes: usize,
    /// Device address of the workspace of a cooperative launch; 0 without.
    workspace: u64,
    wide_atomics: Mutex<()>,
    aborted: AtomicBool,
    limit: u64,
    /// Stores, atomics, barriers and ends of warps so far.
    effects: AtomicU64,
    started: Instant,
}

impl Machine<'_> {
    /// Stops the launch as soon as every host thread has seen it.
    fn abort(&self) {
        self.aborted.store(true, Relaxed);
    }

    fn blocks(&self) -> u64 {
        self.launch.grid.iter().map(|&g| u64::from(g)).product()
    }

    fn new_block(&self) -> Block {
        let shared = self
            .code
            .dynamic_shared
            .saturating_add(self.launch.dynamic_shared);
        Block::new(self.launch.kernel, self.launch.block, shared)
    }

    fn start(&self, block: &mut Block, number: u64) {
        let stand = self.view.epochs.stand(number);
        block.start(
            self.launch.kernel,
            number,
            self.launch.grid,
            self.launch.block,
            stand,
        );
    }
}

/// Runs a launch to its end.
pub fn run(memory: &Memory, launch: &Launch<'_>) -> Outcome {
    let threads: u64 = launch.block.iter().map(|&b| u64::from(b)).product();
    if threads == 0 || threads > MOST_THREADS {
        return refused(launch, format!("a block of {threads} threads"));
    }
    let code = &launch.kernel.code;
    let blocks: u64 = launch.grid.iter().map(|&g| u64::from(g)).product();
    let workspace = if launch.cooperative {
        match memory.allocate(WORKSPACE) {
            Ok(address) => address,
            Err(_) => {
                return refused(
                    launch,
                    "no memory for the workspace of a cooperative launch".into(),
                );
            }
        }
    } else {
        0
    };
    if workspace != 0 {
        // It was just allocated with this size.
        let _ = memory.fill(workspace, &[0], WORKSPACE);
    }
    let talks = code
        .insts
        .iter()
        .any(|i| matches!(i.op, Op::Fence { .. } | Op::Atom { .. }));
    let param_bytes = launch
        .kernel
        .params
        .last()
        .map_or(0, |&(offset, size)| offset + size);
    let machine = Machine {
        launch,
        code,
        memory,
        view: View::new(memory, code.global_granule, blocks, talks),
        alu: alu::best(),
        params: aligned(launch.params, param_bytes),
        param_bytes,
        workspace,
        wide_atomics: Mutex::new(()),
        aborted: AtomicBool::new(false),
        limit: std::env::var("VGPU_INSTRUCTION_LIMIT")
            .ok()
            .and_then(|v| v.parse().ok())
            .unwrap_or(LIMIT),
        effects: AtomicU64::new(0),
        started: Instant::now(),
    };
    let workers = run_blocks(&machine);
    let outcome = collect(&machine, workers);
    if workspace != 0 {
        // Allocated above and known to nobody else.
        let _ = memory.free(workspace);
    }
    outcome
}

/// The parameter buffer with the alignment that accesses need, zeros where it is too short.
fn aligned(params: &[u8], bytes: usize) -> Vec<u64> {
    let mut words = vec![0u64; bytes.div_ceil(8)];
    for (index, &byte) in params.iter().take(bytes).enumerate() {
        words[index / 8] |= u64::from(byte) << (index % 8 * 8);
    }
    words
}

fn refused(launch: &Launch<'_>, message: String) -> Outcome {
    Outcome {
        findings: vec![Finding {
            kind: Kind::Trap,
            site: Site {
                kernel: launch.kernel.name.clone(),
                ..Site::default()
            },
            message,
            count: 1,
        }],
        fatal: true,
        ..Outcome::default()
    }
}

fn run_blocks<'a>(machine: &'a Machine<'a>) -> Vec<Worker<'a>> {
    let blocks = machine.blocks();
    let threads = (rayon::current_num_threads() as u64).min(blocks).max(1);
    if machine.launch.cooperative {
        // Threads of their own: these wait for each other, which tasks of a pool must not.
        return std::thread::scope(|scope| {
            let handles: Vec<_> = (0..threads)
                .map(|first| scope.spawn(move || run_together(machine, first, threads)))
                .collect();
            handles
                .into_iter()
                .map(|handle| {
                    handle
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
                .collect()
        });
    }
    let next = AtomicU64::new(0);
    (0..threads)
        .into_par_iter()
        .map(|_| {
            let mut worker = Worker::new(machine);
            let mut block = machine.new_block();
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= blocks || machine.aborted.load(Relaxed) {
                    return worker;
                }
                machine.start(&mut block, number);
                while !block.done() {
                    worker.turn(&mut block);
                }
            }
        })
        .collect()
}

/// Runs every `step`th block from `first`, all of them alive at once.
fn run_together<'a>(machine: &'a Machine<'a>, first: u64, step: u64) -> Worker<'a> {
    let mut worker = Worker::new(machine);
    let mut blocks: Vec<Block> = (first..machine.blocks())
        .step_by(step as usize)
        .map(|number| {
            let mut block = machine.new_block();
            machine.start(&mut block, number);
            block
        })
        .collect();
    while !blocks.is_empty() {
        for block in &mut blocks {
            worker.turn(block);
        }
        blocks.retain(|block| !block.done());
    }
    worker
}

impl Worker<'_> {
    /// Gives each warp of a block that can go on its turn.
    fn turn(&mut self, block: &mut Block) {
        let mut moved = false;
        let (count, backwards) = (block.warps.len(), block.backwards());
        for place in 0..count {
            let index = if backwards { count - 1 - place } else { place };
            let warp = &mut block.warps[index];
            if warp.status != Status::Ready {
                continue;
            }
            moved = true;
            self.run(warp, &mut block.common, TURN);
            self.machine
                .effects
                .fetch_add(std::mem::take(&mut self.effects), Relaxed);
            if warp.status == Status::Ready && self.endless(warp) {
                let (pc, mask, executed) = (warp.path.pc, warp.path.mask, warp.executed);
                let who = warp.who(&block.common, mask.trailing_zeros() as usize % lanes::LANES);
                self.reports.add(Kind::Stuck, pc, who, || {
                    format!("a warp has executed {executed} instructions without an end")
                });
                self.machine.abort();
            }
        }
        moved |= block.pass_barriers(&mut self.reports);
        if !moved && !block.done() {
            self.stuck(block);
        }
        if block.done() {
            block.common.shared.settle(&mut self.reports);
        }
        if self.machine.aborted.load(Relaxed) {
            for warp in &mut block.warps {
                warp.status = Status::Done;
            }
        }
    }

    /// Whether a warp has run for so long that it never will end.
    fn endless(&self, warp: &mut Warp) -> bool {
        let effects = self.machine.effects.load(Relaxed);
        if effects != warp.quiet.0 {
            warp.quiet = (effects, warp.executed);
        }
        let quiet = warp.executed - warp.quiet.1;
        warp.executed > self.machine.limit || quiet > QUIET_LIMIT.min(self.machine.limit)
    }

    /// Every warp that is left waits at a barrier that not enough others will come to.
    fn stuck(&mut self, block: &Block) {
        let common = &block.common;
        let waiting = common
            .barriers
            .iter()
            .enumerate()
            .find(|(_, b)| b.arrived != 0);
        if let Some((id, barrier)) = waiting {
            let first = barrier.arrived.trailing_zeros();
            let who = Who {
                block: common.number,
                thread: first * lanes::LANES as u32,
            };
            self.reports.add(Kind::Stuck, barrier.pc, who, || {
                format!(
                    "warps {:#x} wait at barrier {id}, where {} must come; warps {:#x} are left",
                    barrier.arrived,
                    barrier
                        .threads
                        .map_or("all threads".into(), |t| format!("{t} threads")),
                    block.live()
                )
            });
        }
        self.machine.abort();
    }
}

/// Sums up what the host threads have.
fn collect(machine: &Machine<'_>, workers: Vec<Worker<'_>>) -> Outcome {
    let launch = machine.launch;
    let mut counters = Counters::default();
    let mut issued = vec![(0, 0); machine.code.insts.len()];
    let mut reports = report::Reports::default();
    let mut printed = Vec::new();
    for worker in workers {
        counters += worker.counters;
        for (sum, part) in issued.iter_mut().zip(&worker.issued) {
            sum.0 += part.0;
            sum.1 += part.1;
        }
        reports.merge(worker.reports);
        printed.extend(worker.printed);
    }
    count(machine.code, &issued, &mut counters);
    let touched = touched(machine, &mut counters);
    // Lines of one block stay in their order.
    printed.sort_by_key(|(block, _)| *block);
    let findings = reports.findings(launch.program, launch.kernel, launch.grid, launch.block);
    let fatal = findings.iter().any(|f| {
        matches!(
            f.kind,
            Kind::OutOfBounds | Kind::Misaligned | Kind::UseAfterFree | Kind::Trap | Kind::Stuck
        )
    });
    Outcome {
        counters,
        findings,
        touched,
        fatal,
        printed: printed.into_iter().map(|(_, text)| text).collect(),
    }
}

/// Adds what follows from how often each instruction was executed.
fn count(code: &Code, issued: &[(u64, u64)], counters: &mut Counters) {
    for (cost, &(warps, lanes)) in code.costs.iter().zip(issued) {
        counters.warp_instructions += warps;
        counters.thread_instructions += lanes;
        counters.flops_f32 += lanes * u64::from(cost.flops_f32);
        counters.flops_f64 += lanes * u64::from(cost.flops_f64);
        let class = match cost.class {
            Class::Integer => &mut counters.integer,
            Class::F32 => &mut counters.f32,
            Class::F64 => &mut counters.f64,
            Class::Half => &mut counters.half,
            Class::Special => &mut counters.special,
            Class::Conversion(how) if code.conversions[how as usize].0.of_f64() => {
                &mut counters.conversions_f64
            }
            Class::Conversion(_) => &mut counters.conversions,
            Class::Control => &mut counters.control,
            Class::Memory => &mut counters.memory,
            Class::Mma(kind) => {
                let kind = &code.products[kind as usize];
                let operations = kind.operations() * warps;
                match kind.a {
                    Element::F64 => {
                        counters.flops_tensor_f64 += operations;
                        &mut counters.mma_f64
                    }
                    Element::S8 | Element::U8 => &mut counters.mma_int8,
                    Element::Tf32 => {
                        counters.flops_tensor += operations;
                        &mut counters.mma_tf32
                    }
                    _ => {
                        counters.flops_tensor += operations;
                        &mut counters.mma_half
                    }
                }
            }
        };
        *class += warps;
    }
}

/// The ranges that were touched, and how many sectors they have.
fn touched(machine: &Machine<'_>, counters: &mut Counters) -> Touched {
    let mut touched = Touched::default();
    for (window, read, written) in machine.view.footprint() {
        let ranges = |map: &Bitmap, out: &mut Vec<(u64, u64)>| {
            out.extend(map.ranges().into_iter().map(|(first, end)| {
                (
                    window.base + 4 * first,
                    (window.base + 4 * end).min(window.end),
                )
            }));
        };
        if window.base == machine.workspace {
            continue;
        }
        if let Some(read) = read {
            counters.unique_load_sectors += read.groups_of_eight();
            ranges(read, &mut touched.read);
        }
        if let Some(written) = written {
            counters.unique_store_sectors += written.groups_of_eight();
            ranges(written, &mut touched.written);
            window.allocation.settle();
        }
    }
    touched
}
