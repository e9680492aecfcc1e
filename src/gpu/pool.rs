//! A caching allocator (memory pool) for device memory.
//!
//! `cuMemFree` waits for the whole device, and `cuMemAllocAsync` gives memory back to the system at every
//! synchronisation unless told otherwise: an accumulator that is made and dropped in a loop would pay for both. A freed
//! block therefore goes to a list for its stream and size class, where the next allocation of that class *on that
//! stream* finds it: work of the old owner and of the new one is then in one order without any waiting. When the device
//! is full, what is cached for all streams is given back and the allocation tried once more.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUdeviceptr, CUresult};

use super::context::Context;
use super::stream::Stream;
use crate::error::{Error, Result};

/// The smallest block; also the alignment that the driver promises, at least 256.
const SMALLEST: usize = 512;

/// Blocks that are free for reuse, by stream and size class.
#[derive(Debug, Default)]
pub(super) struct Pool {
    free: Mutex<BTreeMap<(usize, usize), Vec<CUdeviceptr>>>,
}

/// Rounds up to a quarter of a power of two: at most a quarter is wasted, and close sizes share blocks.
fn size_class(bytes: usize) -> usize {
    let bytes = bytes.max(SMALLEST);
    bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(SMALLEST))
}

impl Pool {
    fn lists(&self) -> MutexGuard<'_, BTreeMap<(usize, usize), Vec<CUdeviceptr>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives back all that is free. The caller has bound the context and waits for no one: the driver does.
    pub(super) fn trim(&self) {
        for block in std::mem::take(&mut *self.lists()).into_values().flatten() {
            // SAFETY: the block came from `cuMemAlloc` and the list was its only owner.
            let _ = unsafe { sys::cuMemFree_v2(block) };
        }
    }

    /// Gives back what is kept for a stream that is about to go.
    pub(super) fn forget_stream(&self, stream: sys::CUstream) {
        let id = stream as usize;
        let mut lists = self.lists();
        let classes: Vec<_> = lists
            .range((id, 0)..=(id, usize::MAX))
            .map(|(k, _)| *k)
            .collect();
        for block in classes.iter().filter_map(|key| lists.remove(key)).flatten() {
            // SAFETY: as in `trim`.
            let _ = unsafe { sys::cuMemFree_v2(block) };
        }
    }

    /// Returns the bytes that are free for reuse.
    pub(super) fn cached(&self) -> usize {
        self.lists()
            .iter()
            .map(|((_, class), blocks)| class * blocks.len())
            .sum()
    }
}

/// A block of device memory for use on one stream; another stream may use it between events that order it with the
/// first. Returns to the pool when dropped.
#[derive(Debug)]
pub(super) struct Block {
    pointer: CUdeviceptr,
    class: usize,
    stream: Stream,
}

impl Block {
    /// Allocates at least `bytes` bytes, uninitialised.
    pub(super) fn new(stream: &Stream, bytes: usize) -> Result<Self> {
        let context = stream.context();
        context.bind()?;
        let class = size_class(bytes);
        let pool = context.pool();
        let reused = pool
            .lists()
            .get_mut(&(stream.raw() as usize, class))
            .and_then(Vec::pop);
        let pointer = match reused {
            Some(pointer) => pointer,
            None => match allocate(class) {
                Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => {
                    pool.trim();
                    allocate(class).map_err(|code| refused(context, bytes, code))?
                }
                outcome => outcome.map_err(|code| refused(context, bytes, code))?,
            },
        };
        Ok(Self {
            pointer,
            class,
            stream: stream.clone(),
        })
    }

    pub(super) fn pointer(&self) -> CUdeviceptr {
        self.pointer
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let key = (self.stream.raw() as usize, self.class);
        let mut lists = self.stream.context().pool().lists();
        lists.entry(key).or_default().push(self.pointer);
    }
}

fn allocate(bytes: usize) -> std::result::Result<CUdeviceptr, CUresult> {
    let mut pointer = 0;
    // SAFETY: a context is current, bound by the caller, and `pointer` outlives the call.
    match unsafe { sys::cuMemAlloc_v2(&mut pointer, bytes) } {
        CUresult::CUDA_SUCCESS => Ok(pointer),
        code => Err(code),
    }
}

fn refused(context: &Context, bytes: usize, code: CUresult) -> Error {
    if code != CUresult::CUDA_ERROR_OUT_OF_MEMORY
        && let Err(error) = context.check(code, "allocate device memory")
    {
        return error;
    }
    let (free, total) = context.memory().unwrap_or((0, 0));
    Error::DeviceMemory {
        device: context.label(),
        requested: bytes as u64,
        free: free as u64,
        total: total as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::size_class;

    #[test]
    fn classes_waste_at_most_a_quarter_and_are_stable() {
        for bytes in (1..100_000).chain([1 << 20, (1 << 20) + 1, 3 << 30]) {
            let class = size_class(bytes);
            assert!(
                class >= bytes && class.is_multiple_of(512),
                "{bytes}: {class}"
            );
            assert!(
                class <= 512 || class * 4 <= bytes * 5 + 4 * 512,
                "{bytes}: {class}"
            );
            assert_eq!(size_class(class), class, "{bytes}");
        }
    }
}
