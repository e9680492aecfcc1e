//! The state of a block: its warps, its shared memory, its barriers.

use super::{
    copies::Copies,
    global::Stand,
    lanes::{FULL, LANES, Registers},
    report::{Reports, Who, unravel},
    shared::Shared,
};
use crate::program::{
    Kernel,
    op::{BarrierKind, Reg},
};

/// Barriers that a block has.
pub(super) const BARRIERS: usize = 16;

/// What a warp is doing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Status {
    Ready,
    /// Waits at a barrier, with what it will do there and the lanes that came.
    Waiting {
        barrier: u32,
        kind: BarrierKind,
        mask: u32,
    },
    Done,
}

/// Lanes that go on at an instruction until they reach where others wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub pc: u32,
    pub mask: u32,
    pub reconverge: u32,
}

/// The local memory of a warp, lane after lane.
#[derive(Debug)]
pub(super) struct Local {
    /// Words, for the alignment.
    words: Box<[u64]>,
    /// Bytes of a lane, a multiple of 16.
    frame: usize,
}

impl Local {
    fn new(frame: u32) -> Self {
        let frame = (frame as usize).next_multiple_of(16);
        Self {
            words: vec![0; frame / 8 * LANES].into_boxed_slice(),
            frame,
        }
    }

    /// Where a lane's bytes begin.
    pub(super) fn pointer(&mut self, lane: usize) -> *mut u8 {
        self.words[lane * self.frame / 8..].as_mut_ptr().cast()
    }

    /// The bytes of a lane.
    pub(super) fn bytes(&self, lane: usize) -> &[u8] {
        let words = &self.words[lane * self.frame / 8..][..self.frame / 8];
        // SAFETY: bytes have no alignment and no invalid values, and there are eight in a word.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), self.frame) }
    }

    /// The bytes of a lane, to be written.
    pub(super) fn bytes_mut(&mut self, lane: usize) -> &mut [u8] {
        let words = &mut self.words[lane * self.frame / 8..][..self.frame / 8];
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), self.frame) }
    }
}

/// A call of a subroutine that is under way.
#[derive(Debug)]
pub(super) struct Call {
    pub site: u32,
    /// Where on the stack of paths the caller waits.
    pub depth: usize,
    /// Registers of the caller.
    pub saved: Registers,
    /// Where the frame of each lane of the callee begins.
    pub frames: [u64; LANES],
}

/// Thirty-two threads in lockstep.
#[derive(Debug)]
pub(super) struct Warp {
    pub id: u32,
    pub registers: Registers,
    pub path: Path,
    /// Paths to take when the current one ends, innermost last.
    pub stack: Vec<Path>,
    pub calls: Vec<Call>,
    pub finished: Option<Call>,
    /// Lanes that have not exited.
    pub live: u32,
    pub status: Status,
    pub local: Local,
    pub executed: u64,
    /// Side effects of the launch when last looked at, and what this warp had executed by then.
    pub quiet: (u64, u64),
    pub copies: Copies,
    /// Thread index in three dimensions.
    pub threads: [[u32; LANES]; 3],
}

/// A barrier that warps have come to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Barrier {
    /// Warps that have come, whether they wait or not.
    pub arrived: u32,
    /// Threads that must come; `None` for all of the block.
    pub threads: Option<u32>,
    /// Where the last one came.
    pub pc: u32,
}

/// What the warps of a block share.
#[derive(Debug)]
pub(super) struct Common {
    pub number: u64,
    pub index: [u32; 3],
    pub shared: Shared,
    pub stand: Stand,
    pub barriers: [Barrier; BARRIERS],
}

/// A block being run.
#[derive(Debug)]
pub(super) struct Block {
    pub warps: Vec<Warp>,
    pub common: Common,
    /// Turns that its warps have had.
    turns: u64,
}

impl Block {
    /// A block without a place in the grid yet.
    pub(super) fn new(kernel: &Kernel, extent: [u32; 3], shared_bytes: u32) -> Self {
        let threads: u32 = extent.iter().product();
        let warps = (0..threads.div_ceil(LANES as u32))
            .map(|id| Warp::new(kernel, id, extent))
            .collect();
        Self {
            warps,
            common: Common {
                number: 0,
                index: [0; 3],
                shared: Shared::new(shared_bytes, kernel.code.shared_granule),
                stand: Stand::default(),
                barriers: [Barrier::default(); BARRIERS],
            },
            turns: 0,
        }
    }

    /// Prepares it to run as block `number` of the grid.
    pub(super) fn start(
        &mut self,
        kernel: &Kernel,
        number: u64,
        grid: [u32; 3],
        extent: [u32; 3],
        stand: Stand,
    ) {
        let threads: u32 = extent.iter().product();
        for warp in &mut self.warps {
            warp.start(kernel, threads);
        }
        self.common.number = number;
        self.common.index = unravel(number, grid);
        self.common.shared.reset();
        self.common.stand = stand;
        self.common.barriers = [Barrier::default(); BARRIERS];
        self.turns = 0;
    }

    /// Whether the last warp is to go first in the turn that begins now. No order is promised, and one that never changed
    /// would hide what a missing barrier does to global memory, where races within a block are not looked for. The first
    /// turn is forwards and about half of the others are, in no period that a loop over barriers could have; the same
    /// in every run.
    pub(super) fn backwards(&mut self) -> bool {
        // The fraction of a multiple of the golden ratio.
        let fraction = self.turns.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.turns += 1;
        fraction >> 63 == 1
    }

    pub(super) fn done(&self) -> bool {
        self.warps.iter().all(|w| w.status == Status::Done)
    }

    /// The warps that have not ended.
    pub(super) fn live(&self) -> u32 {
        self.warps
            .iter()
            .filter(|w| w.status != Status::Done)
            .map(|w| 1 << w.id)
            .sum()
    }

    /// Lets go the warps at barriers that everyone has come to. Returns whether there were any such barriers.
    pub(super) fn pass_barriers(&mut self, reports: &mut Reports) -> bool {
        let mut passed = false;
        let live = self.live();
        for index in 0..BARRIERS {
            let Barrier {
                arrived, threads, ..
            } = self.common.barriers[index];
            // What is at a barrier counts whole warps; warps that have ended are not waited for.
            let complete = match threads {
                _ if arrived == 0 => false,
                None => arrived & live == live,
                Some(count) => arrived.count_ones() * LANES as u32 >= count,
            };
            if complete {
                self.common.shared.settle(reports);
                self.pass(index as u32, arrived, live);
                passed = true;
            }
        }
        passed
    }

    fn pass(&mut self, index: u32, arrived: u32, live: u32) {
        self.common.barriers[index as usize] = Barrier::default();
        let (mut waiting, mut count, mut every, mut some) = (0u32, 0, true, false);
        for warp in &self.warps {
            let Status::Waiting {
                barrier,
                kind,
                mask,
            } = warp.status
            else {
                continue;
            };
            if barrier != index {
                continue;
            }
            waiting |= 1 << warp.id;
            if let BarrierKind::Popc { p, negate, .. } | BarrierKind::Vote { p, negate, .. } = kind
            {
                let votes = (warp.registers.predicate(p) ^ if negate { FULL } else { 0 }) & mask;
                count += votes.count_ones();
                every &= votes == mask;
                some |= votes != 0;
            }
        }
        self.common
            .shared
            .barrier(waiting, arrived, arrived & live == live);
        for warp in &mut self.warps {
            let Status::Waiting {
                barrier,
                kind,
                mask,
            } = warp.status
            else {
                continue;
            };
            if barrier != index {
                continue;
            }
            match kind {
                BarrierKind::Sync | BarrierKind::Arrive => {}
                BarrierKind::Popc { d, .. } => warp.registers.set(mask, d, |_| count),
                BarrierKind::Vote { all, d, .. } => {
                    let vote = if all { every } else { some };
                    warp.registers
                        .set_predicate(mask, d, if vote { FULL } else { 0 });
                }
            }
            warp.status = Status::Ready;
        }
    }
}

impl Warp {
    fn new(kernel: &Kernel, id: u32, extent: [u32; 3]) -> Self {
        let mut threads = [[0; LANES]; 3];
        for lane in 0..LANES {
            let index = unravel(u64::from(id) * LANES as u64 + lane as u64, extent);
            for axis in 0..3 {
                threads[axis][lane] = index[axis];
            }
        }
        Self {
            id,
            registers: Registers::new(&kernel.code),
            path: Path {
                pc: 0,
                mask: 0,
                reconverge: u32::MAX,
            },
            stack: Vec::new(),
            calls: Vec::new(),
            finished: None,
            live: 0,
            status: Status::Done,
            local: Local::new(kernel.code.frame),
            executed: 0,
            quiet: (0, 0),
            copies: Copies::default(),
            threads,
        }
    }

    fn start(&mut self, kernel: &Kernel, threads: u32) {
        let here = (threads - self.id * LANES as u32).min(LANES as u32);
        self.live = FULL >> (LANES as u32 - here);
        self.registers.reset(&kernel.code);
        self.path = Path {
            pc: 0,
            mask: self.live,
            reconverge: u32::MAX,
        };
        self.stack.clear();
        self.calls.clear();
        self.finished = None;
        self.status = Status::Ready;
        self.local.words.fill(0);
        self.executed = 0;
        self.quiet = (0, 0);
        self.copies.clear();
    }

    /// The first lane of a mask, as a thread of a block.
    pub(super) fn who(&self, common: &Common, lane: usize) -> Who {
        Who {
            block: common.number,
            thread: self.id * LANES as u32 + lane as u32,
        }
    }

    /// Ends the lanes of a mask.
    pub(super) fn exit(&mut self, mask: u32) {
        self.live &= !mask;
        self.path.mask &= !mask;
        for path in &mut self.stack {
            path.mask &= !mask;
        }
        if self.live == 0 {
            self.status = Status::Done;
        }
    }

    /// Lanes part at a branch: those of `taken` go to `target`, the others on.
    pub(super) fn part(&mut self, taken: u32, target: u32, reconverge: u32) {
        let Path {
            pc,
            mask,
            reconverge: outer,
        } = self.path;
        self.meet_at(reconverge);
        let inner = if reconverge == u32::MAX {
            outer
        } else {
            reconverge
        };
        for (pc, mask) in [(pc + 1, mask & !taken), (target, taken)] {
            self.stack.push(Path {
                pc,
                mask,
                reconverge: inner,
            });
        }
        self.next_path();
    }

    /// Leaves the current path to wait at `reconverge` for the parts of it that are pushed next.
    pub(super) fn meet_at(&mut self, reconverge: u32) {
        // Where the path below already waits there, as in a loop that lanes leave one by one, it will do.
        if reconverge != u32::MAX && reconverge != self.path.reconverge {
            self.stack.push(Path {
                pc: reconverge,
                ..self.path
            });
        }
    }

    /// Takes the innermost path with lanes that are not where they wait. Returns false when there is none. A call that
    /// all lanes have come back from is put into `finished`.
    pub(super) fn next_path(&mut self) -> bool {
        while let Some(path) = self.stack.pop() {
            let call = self.calls.pop_if(|call| call.depth == self.stack.len());
            if path.mask != 0 && (call.is_some() || path.pc != path.reconverge) {
                self.path = path;
                self.finished = call;
                return true;
            }
        }
        self.status = Status::Done;
        false
    }

    /// Lanes come back from a subroutine and wait for the others.
    pub(super) fn come_back(&mut self, mask: u32) {
        let depth = self.calls.last().map_or(0, |call| call.depth);
        self.path.mask &= !mask;
        for path in &mut self.stack[depth + 1..] {
            path.mask &= !mask;
        }
    }

    /// A value that must be the same in all lanes: that of the first of them.
    pub(super) fn uniform(&self, reg: Reg, mask: u32) -> u32 {
        self.registers.row::<u32>(reg)[mask.trailing_zeros() as usize % LANES]
    }
}
