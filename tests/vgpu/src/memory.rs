//! Device memory and what is known of each byte.
//!
//! Allocations live at device addresses that are never given out again, with a gap between neighbours, so that an
//! address tells whether it is in bounds, past an end or freed. Every allocation has a shadow that remembers which
//! bytes were written.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use crate::{
    bits::{Bitmap, zeroed_u32, zeroed_u64},
    check::{Finding, Kind, Site},
};

/// Where device addresses begin: high enough that a small number taken for an address is not one.
const FIRST_ADDRESS: u64 = 0x2_0000_0000;

/// Every allocation starts at a multiple of this, as `cuMemAlloc` promises.
const ALIGNMENT: u64 = 512;

/// Addresses between two allocations that belong to neither: an index that is off by a row is still in it.
const GAP: u64 = 1 << 20;

/// All memory of the device.
#[derive(Debug)]
pub struct Memory {
    capacity: u64,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    live: BTreeMap<u64, Arc<Allocation>>,
    /// Bases and sizes of what was freed.
    freed: BTreeMap<u64, u64>,
    next: u64,
    used: u64,
    next_tag: u32,
}

/// Why memory could not be had or given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryError {
    /// More than the device has.
    OutOfMemory {
        /// Bytes asked for.
        asked: u64,
        /// Bytes left.
        free: u64,
    },
    /// Not the start of a live allocation.
    NotAllocated {
        /// The address given.
        address: u64,
    },
}

/// One allocation: its bytes, and which of them were written.
///
/// Bytes are read and written through atomics of the size of the access, so that a racy kernel races here as it would
/// on the device and nothing worse.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub base: u64,
    pub bytes: u64,
    data: Box<[AtomicU64]>,
    /// A bit a byte; not kept up once `complete`.
    written: Bitmap,
    complete: AtomicBool,
    tags: RwLock<Option<Arc<Tags>>>,
}

/// Who last read and who last wrote each granule, for the check of races between blocks; see [`crate::exec`].
#[derive(Debug)]
pub(crate) struct Tags {
    /// A granule is `1 << shift` bytes.
    pub shift: u32,
    pub readers: Box<[AtomicU32]>,
    pub writers: Box<[AtomicU32]>,
}

/// Tags are below this; the bit itself marks a granule that several blocks read.
pub(crate) const TAG_LIMIT: u32 = 1 << 31;

impl Memory {
    /// Memory of `capacity` bytes, all free.
    pub fn new(capacity: u64) -> Self {
        Self {
            capacity,
            state: RwLock::new(State {
                live: BTreeMap::new(),
                freed: BTreeMap::new(),
                next: FIRST_ADDRESS,
                used: 0,
                next_tag: 1,
            }),
        }
    }

    /// Reserves `bytes`, aligned to 512; contents are uninitialised.
    pub fn allocate(&self, bytes: u64) -> Result<u64, MemoryError> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let free = self.capacity - state.used;
        if bytes > free {
            return Err(MemoryError::OutOfMemory { asked: bytes, free });
        }
        let base = state.next;
        state.next = (base + bytes + GAP).next_multiple_of(ALIGNMENT);
        state.used += bytes;
        state
            .live
            .insert(base, Arc::new(Allocation::new(base, bytes)));
        Ok(base)
    }

    /// Frees the allocation that starts at `address`.
    pub fn free(&self, address: u64) -> Result<(), MemoryError> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let gone = state
            .live
            .remove(&address)
            .ok_or(MemoryError::NotAllocated { address })?;
        state.used -= gone.bytes;
        state.freed.insert(gone.base, gone.bytes);
        Ok(())
    }

    /// Base and size of the live allocation that `address` lies in.
    pub fn range(&self, address: u64) -> Option<(u64, u64)> {
        let state = self.read_state();
        let found = state.at(address)?;
        (address < found.base + found.bytes).then_some((found.base, found.bytes))
    }

    /// Bytes free and in all.
    pub fn info(&self) -> (u64, u64) {
        (self.capacity - self.read_state().used, self.capacity)
    }

    /// Copies from the host; the bytes are initialised from then on.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Box<Finding>> {
        let allocation = self.find("write", address, bytes.len() as u64)?;
        allocation.write(address - allocation.base, bytes);
        Ok(())
    }

    /// Copies to the host. Reading what nothing has written is a finding too, returned after the copy was made.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Box<Finding>> {
        let allocation = self.find("read", address, bytes.len() as u64)?;
        let offset = address - allocation.base;
        allocation.read(offset, bytes);
        match allocation.first_unwritten(offset, bytes.len() as u64) {
            None => Ok(()),
            Some(first) => Err(outside_kernel(
                "read",
                Kind::UninitialisedGlobal,
                format!(
                    "{} bytes at {address:#x} include byte {:#x} that nothing has written",
                    bytes.len(),
                    allocation.base + first
                ),
            )),
        }
    }

    /// Copies within the device, shadow included: copying uninitialised bytes is no defect, using them is.
    pub fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), Box<Finding>> {
        let source = self.find("copy", from, bytes)?;
        let target = self.find("copy", to, bytes)?;
        let (from, to) = (from - source.base, to - target.base);
        let mut buffer = vec![0; bytes as usize];
        source.read(from, &mut buffer);
        // Taken before the write, for a copy within one allocation.
        let unwritten = source.unwritten_ranges(from, bytes);
        target.write(to, &buffer);
        for (start, end) in unwritten {
            target.forget(to + (start - from), to + (end - from));
        }
        Ok(())
    }

    /// Fills `count` elements with `pattern` (1, 2 or 4 bytes).
    pub fn fill(&self, address: u64, pattern: &[u8], count: u64) -> Result<(), Box<Finding>> {
        let bytes = (pattern.len() as u64).saturating_mul(count);
        let allocation = self.find("fill", address, bytes)?;
        allocation.write(address - allocation.base, &pattern.repeat(count as usize));
        Ok(())
    }

    fn read_state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, call: &str, address: u64, bytes: u64) -> Result<Arc<Allocation>, Box<Finding>> {
        let state = self.read_state();
        match state.at(address) {
            Some(found)
                if address - found.base <= found.bytes
                    && bytes <= found.bytes - (address - found.base) =>
            {
                Ok(found.clone())
            }
            _ => {
                let (kind, message) = state.describe(address, bytes);
                Err(outside_kernel(call, kind, message))
            }
        }
    }

    /// What is wrong with an access that no live allocation covers.
    pub(crate) fn describe(&self, address: u64, bytes: u64) -> (Kind, String) {
        self.read_state().describe(address, bytes)
    }

    /// All live allocations by address: what a launch sees.
    pub(crate) fn snapshot(&self) -> Vec<Arc<Allocation>> {
        self.read_state().live.values().cloned().collect()
    }

    /// The first of `count` tags that nothing else uses.
    pub(crate) fn reserve_tags(&self, count: u32) -> u32 {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if TAG_LIMIT - state.next_tag < count {
            // All tags are used up: forget who touched what and begin again.
            for allocation in state.live.values() {
                *allocation
                    .tags
                    .write()
                    .unwrap_or_else(PoisonError::into_inner) = None;
            }
            state.next_tag = 1;
        }
        let first = state.next_tag;
        state.next_tag += count;
        first
    }
}

impl State {
    /// The live allocation with the greatest base not above `address`.
    fn at(&self, address: u64) -> Option<&Arc<Allocation>> {
        self.live.range(..=address).next_back().map(|(_, a)| a)
    }

    fn describe(&self, address: u64, bytes: u64) -> (Kind, String) {
        let live = self.at(address).map(|a| (a.base, a.bytes, false));
        let dead = self
            .freed
            .range(..=address)
            .next_back()
            .map(|(&base, &bytes)| (base, bytes, true));
        // The nearer of the two is the one that was meant.
        let near = live.max(dead);
        match near {
            Some((base, size, true)) if address < base + size => (
                Kind::UseAfterFree,
                format!(
                    "{bytes} bytes at {address:#x}, in the {size} bytes at {base:#x} that were freed"
                ),
            ),
            Some((base, size, freed)) => {
                let state = if freed { "freed " } else { "" };
                let place = if address < base + size {
                    format!("ends {} bytes past", address + bytes - (base + size))
                } else {
                    format!("lies {} bytes past the end of", address - (base + size))
                };
                (
                    Kind::OutOfBounds,
                    format!(
                        "{bytes} bytes at {address:#x}, which {place} the {state}allocation of {size} bytes at {base:#x}"
                    ),
                )
            }
            None => (
                Kind::OutOfBounds,
                format!("{bytes} bytes at {address:#x}, where nothing was ever allocated"),
            ),
        }
    }
}

fn outside_kernel(call: &str, kind: Kind, message: String) -> Box<Finding> {
    Box::new(Finding {
        kind,
        site: Site {
            kernel: call.into(),
            ..Site::default()
        },
        message,
        count: 1,
    })
}

impl Allocation {
    fn new(base: u64, bytes: u64) -> Self {
        Self {
            base,
            bytes,
            data: zeroed_u64(bytes.div_ceil(8) as usize),
            written: Bitmap::new(bytes),
            complete: AtomicBool::new(bytes == 0),
            tags: RwLock::new(None),
        }
    }

    /// Where the bytes are; valid as long as the allocation, aligned to 8.
    pub(crate) fn pointer(&self) -> *const u8 {
        self.data.as_ptr().cast()
    }

    /// Which bytes were written; `None` when all were.
    pub(crate) fn written(&self) -> Option<&Bitmap> {
        (!self.complete.load(Relaxed)).then_some(&self.written)
    }

    /// Notes whether every byte has been written by now, which makes later checks free.
    pub(crate) fn settle(&self) {
        if !self.complete.load(Relaxed) && self.written.first_missing(0, self.bytes).is_none() {
            self.complete.store(true, Relaxed);
        }
    }

    /// The tags of granules of `1 << shift` bytes or finer.
    pub(crate) fn tags(&self, shift: u32) -> Arc<Tags> {
        let mut slot = self.tags.write().unwrap_or_else(PoisonError::into_inner);
        match &*slot {
            Some(tags) if tags.shift <= shift => tags.clone(),
            _ => {
                let count = (self.bytes.div_ceil(1 << shift)) as usize;
                let tags = Arc::new(Tags {
                    shift,
                    readers: zeroed_u32(count),
                    writers: zeroed_u32(count),
                });
                *slot = Some(tags.clone());
                tags
            }
        }
    }

    fn byte(&self, offset: u64) -> &AtomicU8 {
        // SAFETY: callers stay below `bytes`, which `data` covers; `AtomicU8` has no alignment to keep.
        unsafe { &*self.pointer().add(offset as usize).cast::<AtomicU8>() }
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= self.bytes);
        let head = (offset.wrapping_neg() % 8).min(bytes.len() as u64) as usize;
        let (first, rest) = bytes.split_at(head);
        let (whole, last) = rest.as_chunks::<8>();
        for (i, &b) in first.iter().enumerate() {
            self.byte(offset + i as u64).store(b, Relaxed);
        }
        let start = offset as usize + head;
        for (word, &chunk) in self.data[start / 8..].iter().zip(whole) {
            word.store(u64::from_le_bytes(chunk), Relaxed);
        }
        for (i, &b) in last.iter().enumerate() {
            self.byte((start + whole.len() * 8 + i) as u64)
                .store(b, Relaxed);
        }
        if bytes.len() as u64 == self.bytes {
            self.complete.store(true, Relaxed);
        } else if !self.complete.load(Relaxed) {
            self.written.set(offset, offset + bytes.len() as u64);
        }
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) {
        assert!(offset + bytes.len() as u64 <= self.bytes);
        let head = (offset.wrapping_neg() % 8).min(bytes.len() as u64) as usize;
        let (first, rest) = bytes.split_at_mut(head);
        let (whole, last) = rest.as_chunks_mut::<8>();
        for (i, b) in first.iter_mut().enumerate() {
            *b = self.byte(offset + i as u64).load(Relaxed);
        }
        let start = offset as usize + head;
        for (word, chunk) in self.data[start / 8..].iter().zip(&mut *whole) {
            *chunk = word.load(Relaxed).to_le_bytes();
        }
        for (i, b) in last.iter_mut().enumerate() {
            *b = self
                .byte((start + whole.len() * 8 + i) as u64)
                .load(Relaxed);
        }
    }

    fn first_unwritten(&self, offset: u64, bytes: u64) -> Option<u64> {
        self.written()?.first_missing(offset, offset + bytes)
    }

    fn unwritten_ranges(&self, offset: u64, bytes: u64) -> Vec<(u64, u64)> {
        let mut out: Vec<(u64, u64)> = Vec::new();
        let (mut at, end) = (offset, offset + bytes);
        while let Some(start) = self.first_unwritten(at, end - at) {
            let stop = (start..end).find(|&b| self.written.has(b)).unwrap_or(end);
            out.push((start, stop));
            at = stop;
        }
        out
    }

    /// Makes a range uninitialised again.
    fn forget(&self, start: u64, end: u64) {
        if self.complete.swap(false, Relaxed) {
            self.written.set(0, self.bytes);
        }
        self.written.clear(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(result: Result<(), Box<Finding>>) -> Option<Kind> {
        result.err().map(|f| f.kind)
    }

    #[test]
    fn copies_round_trip_at_every_alignment() {
        let memory = Memory::new(1 << 20);
        let base = memory.allocate(100).unwrap();
        assert_eq!(base % ALIGNMENT, 0);
        memory.fill(base, &[0xab], 100).unwrap();
        for start in 0..10u64 {
            for length in 0..20u64 {
                let bytes: Vec<u8> = (0..length as u8).map(|b| b ^ 0x5a).collect();
                memory.write(base + start, &bytes).unwrap();
                let mut back = vec![0; length as usize];
                memory.read(base + start, &mut back).unwrap();
                assert_eq!(back, bytes);
            }
        }
        let mut past = [0];
        memory.read(base + 99, &mut past).unwrap();
        assert_eq!(past, [0xab]);
    }

    #[test]
    fn bounds_and_lifetimes() {
        let memory = Memory::new(4096);
        let base = memory.allocate(64).unwrap();
        assert_eq!(memory.range(base + 63), Some((base, 64)));
        assert_eq!(memory.range(base + 64), None);
        assert_eq!(
            kind(memory.write(base + 60, &[0; 5])),
            Some(Kind::OutOfBounds)
        );
        assert_eq!(
            kind(memory.write(u64::MAX, &[0; 5])),
            Some(Kind::OutOfBounds)
        );
        assert_eq!(kind(memory.write(16, &[0; 5])), Some(Kind::OutOfBounds));
        assert_eq!(memory.info(), (4096 - 64, 4096));
        assert_eq!(
            memory.allocate(5000),
            Err(MemoryError::OutOfMemory {
                asked: 5000,
                free: 4032
            })
        );
        assert_eq!(
            memory.free(base + 1),
            Err(MemoryError::NotAllocated { address: base + 1 })
        );
        memory.free(base).unwrap();
        assert_eq!(
            memory.free(base),
            Err(MemoryError::NotAllocated { address: base })
        );
        assert_eq!(kind(memory.write(base, &[0])), Some(Kind::UseAfterFree));
        assert_ne!(memory.allocate(64), Ok(base));
    }

    #[test]
    fn copies_carry_what_is_uninitialised() {
        let memory = Memory::new(4096);
        let (a, b) = (memory.allocate(64).unwrap(), memory.allocate(64).unwrap());
        memory.write(a, &[1; 16]).unwrap();
        memory.fill(b, &[0; 4], 16).unwrap();
        memory.copy(b + 8, a, 32).unwrap();
        let mut out = [0; 16];
        assert_eq!(kind(memory.read(b, &mut out)), None);
        assert_eq!(out[7..9], [0, 1]);
        assert_eq!(
            kind(memory.read(b + 16, &mut out)),
            Some(Kind::UninitialisedGlobal)
        );
        assert_eq!(kind(memory.read(b + 40, &mut out)), None);
    }
}
