//! What a stream is given to do.

use std::{ffi::c_void, sync::Arc};

use super::clock::{Clock, Point};
use crate::program::Program;

/// One end of a copy.
#[derive(Debug)]
pub enum Place {
    /// Device memory.
    Device(u64),
    /// Page-locked host memory, read or written when the copy runs.
    Pinned(u64),
    /// Ordinary host memory that the caller keeps alive until the copy has run: the destination of a copy that the
    /// call waits for.
    Host(u64),
    /// Bytes of ordinary host memory, taken when the copy was queued, rows packed.
    Staged(Vec<u8>),
}

/// A copy of rows.
#[derive(Debug)]
pub struct Copy {
    /// Source.
    pub from: Place,
    /// Destination.
    pub to: Place,
    /// Bytes of a row.
    pub width: u64,
    /// Rows.
    pub height: u64,
    /// Bytes between two rows of the source.
    pub from_pitch: u64,
    /// Bytes between two rows of the destination.
    pub to_pitch: u64,
}

impl Copy {
    /// A copy of `bytes` bytes in one row.
    pub fn linear(to: Place, from: Place, bytes: u64) -> Self {
        Self {
            from,
            to,
            width: bytes,
            height: 1,
            from_pitch: bytes,
            to_pitch: bytes,
        }
    }

    /// Bytes copied.
    pub fn bytes(&self) -> u64 {
        self.width * self.height
    }
}

/// The half-open ranges that `height` rows of `width` bytes cover, one if they touch.
pub(super) fn rows(address: u64, width: u64, height: u64, pitch: u64) -> Vec<(u64, u64)> {
    if width == 0 || height == 0 {
        Vec::new()
    } else if pitch == width || height == 1 {
        vec![(address, address + width * height)]
    } else {
        (0..height)
            .map(|row| (address + row * pitch, address + row * pitch + width))
            .collect()
    }
}

/// A fill of rows with a pattern.
#[derive(Debug)]
pub struct Fill {
    /// Where.
    pub address: u64,
    /// 1, 2 or 4 bytes.
    pub pattern: Vec<u8>,
    /// Elements of a row.
    pub width: u64,
    /// Rows.
    pub height: u64,
    /// Bytes between two rows.
    pub pitch: u64,
}

/// A kernel with its arguments.
#[derive(Debug)]
pub struct KernelCall {
    /// The module.
    pub program: Arc<Program>,
    /// Which of its kernels.
    pub index: usize,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads.
    pub block: [u32; 3],
    /// Dynamic shared memory.
    pub dynamic_shared: u32,
    /// Parameter buffer.
    pub params: Vec<u8>,
    /// All blocks resident at once.
    pub cooperative: bool,
    /// Registers of a thread, from ptxas where known.
    pub registers: u32,
}

/// A function of the program under test, to be called in stream order.
#[derive(Clone, Copy, Debug)]
pub enum HostCall {
    /// Of `cuLaunchHostFunc`.
    Function(extern "C" fn(*mut c_void), Opaque),
    /// Of `cuStreamAddCallback`, with the handle of the stream.
    Callback(extern "C" fn(*mut c_void, u32, *mut c_void), Opaque, Opaque),
}

/// A pointer of the program under test that is handed back to it and never followed here.
#[derive(Clone, Copy, Debug)]
pub struct Opaque(pub *mut c_void);

// SAFETY: the pointer is not dereferenced in this crate. CUDA calls host functions on a thread of its own, so the
// program that queued the function has to allow that.
unsafe impl Send for Opaque {}

impl HostCall {
    /// Calls it.
    pub fn call(self) {
        match self {
            Self::Function(function, data) => function(data.0),
            Self::Callback(function, stream, data) => function(stream.0, 0, data.0),
        }
    }
}

/// What is done.
#[derive(Debug)]
pub enum Action {
    /// Run a kernel.
    Kernel(KernelCall),
    /// Copy.
    Copy(Copy),
    /// Fill.
    Fill(Fill),
    /// Memory at that range can be used from here on.
    Allocate((u64, u64)),
    /// Memory at that range is given back.
    Free((u64, u64)),
    /// Call the program.
    Host(HostCall),
    /// Stop the device: a kernel that was chosen to fail.
    Stop,
    /// Nothing: an event, or a wait for one.
    Marker,
}

/// A queued piece of work.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) point: Point,
    /// What it is known to come after, itself included.
    pub(super) clock: Clock,
    /// What has to run before it, other than its predecessor on the stream.
    pub(super) after: Vec<Point>,
    pub(super) action: Action,
    /// In words, with the stream.
    pub(super) what: Arc<str>,
    /// Host time of its submission on the modelled timeline.
    pub(super) submitted: f64,
    /// State of the device's run counter, the host-call counter and the source's content when it was queued, for
    /// copies out of page-locked memory.
    pub(super) source: Option<SourceSeen>,
}

/// What a page-locked source held when its copy was queued.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceSeen {
    pub(super) order: u64,
    pub(super) host_calls: u64,
    pub(super) fingerprint: u64,
}
