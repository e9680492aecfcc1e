//! What the checks found.
//!
//! A [`Finding`] is a defect of the program under test, never of its input: it says what happened, where in the
//! kernel, and by which block and thread. The launch goes on after one where that is possible (an uninitialised read
//! gives zeros), so that one run shows several; the same defect at the same instruction is reported once with a count.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kind of a defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Kind {
    /// An address outside every live allocation, or outside the block's shared or the thread's local memory.
    OutOfBounds,
    /// An address that is not a multiple of the size of the access.
    Misaligned,
    /// An allocation that was freed before.
    UseAfterFree,
    /// Global memory that nothing has written.
    UninitialisedGlobal,
    /// Shared memory that nothing in this block has written.
    UninitialisedShared,
    /// Two accesses to one shared byte, at least one a write, by two threads with no barrier between.
    SharedRace,
    /// A write to global memory that another block of the same launch reads or writes, not by an atomic.
    GlobalRace,
    /// A barrier that not every thread of the block (or of its mask) reaches.
    DivergentBarrier,
    /// A shuffle, vote or matrix instruction whose mask names a lane that is not there.
    DivergentWarp,
    /// Data of `cp.async` used before it was waited for.
    AsyncNotWaited,
    /// Two pieces of work on different streams touch the same bytes and no event orders them.
    StreamHazard,
    /// Host memory read or written while a copy on a stream may still use it.
    HostHazard,
    /// Memory, modules, streams or events never given back.
    Leak,
    /// A kernel that runs without end, or a block whose threads wait for each other.
    Stuck,
    /// `trap`, a failed `assert`, or an instruction with an operand it does not allow.
    Trap,
}

/// Where in a kernel something happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Site {
    /// The kernel, or the driver call for what happens outside one.
    pub kernel: String,
    /// Line of the PTX text, from 1; 0 outside a kernel.
    pub ptx_line: u32,
    /// `file:line` of the CUDA source when compiled with line information.
    pub source: Option<String>,
    /// Block index.
    pub block: [u32; 3],
    /// Thread index within the block.
    pub thread: [u32; 3],
}

/// One defect of the program under test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is.
    pub kind: Kind,
    /// Where it was seen first.
    pub site: Site,
    /// What happened, in a sentence with addresses, sizes and the other party.
    pub message: String,
    /// How often it was seen at this instruction.
    pub count: u64,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kernel)?;
        if self.ptx_line > 0 {
            write!(f, ", PTX line {}", self.ptx_line)?;
            if let Some(source) = &self.source {
                write!(f, " ({source})")?;
            }
            let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
            write!(f, ", block ({bx},{by},{bz}), thread ({tx},{ty},{tz})")?;
        }
        Ok(())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {} at {}", self.kind, self.message, self.site)?;
        if self.count > 1 {
            write!(f, " ({} times)", self.count)?;
        }
        Ok(())
    }
}
