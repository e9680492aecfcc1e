//! Pinned staging: a ring buffer of page-locked host memory between a caller's memory and the device's.
//!
//! The device copies at full speed, and beside computation, only from memory that the system cannot move. Pinning is
//! slow, so a few slots are pinned once and go round: a slot is filled while the one before it is on its way, and is
//! waited for only when its turn comes again. Copies go through a slot whole rows at a time.

use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys;

use super::context::Context;
use super::matrix::{Value, View, ViewMut};
use super::stream::{Event, Stream};
use crate::error::Result;

/// Slots in the ring: one being filled, one in flight, one whose copy has just ended.
const SLOTS: usize = 3;
/// Bytes of a pinned slot, unless a single row is longer. Long enough that a copy's fixed cost of some 10 µs is small.
const SLOT_BYTES: usize = 4 << 20;

/// A ring of pinned buffers, shared by all copies of an engine.
#[derive(Debug)]
pub struct Staging {
    context: Context,
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    slots: Vec<Slot>,
    next: usize,
}

/// Pinned memory, and the event that says when the device has done with it.
#[derive(Debug)]
struct Slot {
    memory: Pinned,
    free: Event,
}

impl Drop for Slot {
    fn drop(&mut self) {
        // The driver does not promise to wait for copies that still use the memory. A failure was reported already.
        let _ = self.free.synchronize();
    }
}

#[derive(Debug)]
struct Pinned {
    context: Context,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: host memory that only its owner points to.
unsafe impl Send for Pinned {}

impl Pinned {
    fn new(context: &Context, bytes: usize) -> Result<Self> {
        context.bind()?;
        let mut start = std::ptr::null_mut();
        // SAFETY: a context is current, bound above, and `start` outlives the call.
        let code = unsafe { sys::cuMemHostAlloc(&mut start, bytes, 0) };
        context.check(code, "pin host memory")?;
        let start: *mut u8 = start.cast();
        // SAFETY: the driver has just allocated `bytes` bytes there. They are written once so that a slice of them is
        // of initialised memory.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Self {
            context: context.clone(),
            start,
            bytes,
        })
    }

    /// The caller has waited until the device is done with it.
    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: allocated and initialised in `new`, freed in `drop`, and borrowed as `self` is.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: allocated by `cuMemHostAlloc` in `new`; whoever owns it has waited for copies (`Slot::drop`,
        // `Ring::take`).
        let _ = unsafe { sys::cuMemFreeHost(self.start.cast()) };
    }
}

impl Ring {
    /// The next slot of at least `bytes` bytes, with the device done with it.
    fn take(&mut self, context: &Context, bytes: usize) -> Result<usize> {
        let index = self.next % SLOTS;
        self.next = self.next.wrapping_add(1);
        let bytes = bytes.max(SLOT_BYTES);
        while self.slots.len() <= index {
            self.slots.push(Slot {
                memory: Pinned::new(context, bytes)?,
                free: Event::new(context)?,
            });
        }
        let slot = &mut self.slots[index];
        slot.free.synchronize()?;
        if slot.memory.bytes < bytes {
            slot.memory = Pinned::new(context, bytes)?;
        }
        Ok(index)
    }
}

impl Staging {
    /// Creates a ring of staging buffers for a device; its memory is pinned when first used.
    pub fn new(context: &Context) -> Self {
        Self {
            context: context.clone(),
            ring: Mutex::new(Ring::default()),
        }
    }

    /// Queues a copy of rows to the device on `stream`; `fill` writes row `i` of the matrix. When this returns the rows
    /// have been read, though not yet copied.
    pub fn upload<T: Value>(
        &self,
        stream: &Stream,
        to: ViewMut<'_, T>,
        mut fill: impl FnMut(usize, &mut [T]),
    ) -> Result<()> {
        if to.is_empty() {
            return Ok(());
        }
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let (cols, row_bytes) = (to.cols(), to.cols() * size_of::<T>());
        let group = (SLOT_BYTES / row_bytes).max(1);
        for first in (0..to.rows()).step_by(group) {
            let count = group.min(to.rows() - first);
            let index = ring.take(&self.context, row_bytes)?;
            let slot = &mut ring.slots[index];
            let bytes = &mut slot.memory.as_mut_slice()[..count * row_bytes];
            for (i, row) in bytemuck::cast_slice_mut(bytes)
                .chunks_exact_mut(cols)
                .enumerate()
            {
                fill(first + i, row);
            }
            let part = to.block((first, 0), (count, cols));
            copy(stream, part, slot.memory.start, Direction::ToDevice)?;
            stream.record(&slot.free)?;
        }
        Ok(())
    }

    /// Brings rows to the host when `stream` gets here; `take` is given row `i` of the matrix. Waits for all of them.
    pub fn download<T: Value>(
        &self,
        stream: &Stream,
        from: View<'_, T>,
        mut take: impl FnMut(usize, &[T]),
    ) -> Result<()> {
        if from.is_empty() {
            return Ok(());
        }
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let (cols, row_bytes) = (from.cols(), from.cols() * size_of::<T>());
        let group = (SLOT_BYTES / row_bytes).max(1);
        let mut in_flight: Option<(usize, usize, usize)> = None;
        let mut empty =
            |ring: &mut Ring, (index, first, count): (usize, usize, usize)| -> Result<()> {
                let slot = &mut ring.slots[index];
                slot.free.synchronize()?;
                let bytes = &slot.memory.as_mut_slice()[..count * row_bytes];
                for (i, row) in bytemuck::cast_slice(bytes).chunks_exact(cols).enumerate() {
                    take(first + i, row);
                }
                Ok(())
            };
        for first in (0..from.rows()).step_by(group) {
            let count = group.min(from.rows() - first);
            let index = ring.take(&self.context, row_bytes)?;
            let slot = &mut ring.slots[index];
            let part = from.block((first, 0), (count, cols));
            copy(stream, part, slot.memory.start, Direction::ToHost)?;
            stream.record(&slot.free)?;
            // One group is read while the next is on its way.
            if let Some(before) = in_flight.replace((index, first, count)) {
                empty(&mut ring, before)?;
            }
        }
        in_flight.map_or(Ok(()), |last| empty(&mut ring, last))
    }
}

enum Direction {
    ToDevice,
    ToHost,
}

/// Queues a copy between dense host rows and a pitched matrix.
fn copy<T: Value>(
    stream: &Stream,
    device: View<'_, T>,
    host: *mut u8,
    direction: Direction,
) -> Result<()> {
    stream.context().bind()?;
    let size = size_of::<T>();
    let (width, pitch) = (device.cols() * size, device.pitch() * size);
    let at_host = sys::CUmemorytype::CU_MEMORYTYPE_HOST;
    let on_device = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
    let (from, to) = match direction {
        Direction::ToDevice => ((at_host, width), (on_device, pitch)),
        Direction::ToHost => ((on_device, pitch), (at_host, width)),
    };
    let what = sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: from.0,
        srcHost: host.cast(),
        srcDevice: device.pointer(),
        srcArray: std::ptr::null_mut(),
        srcPitch: from.1,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: to.0,
        dstHost: host.cast(),
        dstDevice: device.pointer(),
        dstArray: std::ptr::null_mut(),
        dstPitch: to.1,
        WidthInBytes: width,
        Height: device.rows(),
    };
    // SAFETY: the view's constructor vouches for the device side; the host side is a slot that `take` found free and
    // large enough for these rows, and it is not touched again before the event that the caller records after this.
    let code = unsafe { sys::cuMemcpy2DAsync_v2(&what, stream.raw()) };
    stream.context().check(code, "copy a matrix")
}
