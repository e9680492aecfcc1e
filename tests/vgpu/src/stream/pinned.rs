//! Page-locked host memory: which ranges of the host's address space the device may use on its own.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    collections::BTreeMap,
};

const PAGE: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Block {
    bytes: u64,
    /// Memory of the program, only registered here.
    registered: bool,
}

/// Page-locked ranges by address.
#[derive(Debug, Default)]
pub struct Pinned(BTreeMap<u64, Block>);

impl Pinned {
    /// Allocates; the address, or nothing when the host has no memory left.
    pub fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let layout = layout(bytes)?;
        // SAFETY: the layout has a size above zero.
        let memory = unsafe { alloc_zeroed(layout) };
        if memory.is_null() {
            return None;
        }
        self.0.insert(
            memory as u64,
            Block {
                bytes,
                registered: false,
            },
        );
        Some(memory as u64)
    }

    /// Takes memory of the program; false when it overlaps what is page-locked already.
    pub fn register(&mut self, address: u64, bytes: u64) -> bool {
        let clashes = self
            .0
            .range(..address + bytes)
            .next_back()
            .is_some_and(|(at, b)| at + b.bytes > address);
        if !clashes {
            self.0.insert(
                address,
                Block {
                    bytes,
                    registered: true,
                },
            );
        }
        !clashes
    }

    /// Gives back or unregisters the block at `address` and returns its range.
    pub(super) fn release(&mut self, address: u64, registered: bool) -> Option<(u64, u64)> {
        let block = *self
            .0
            .get(&address)
            .filter(|b| b.registered == registered)?;
        self.0.remove(&address);
        if !block.registered
            && let Some(layout) = layout(block.bytes)
        {
            // SAFETY: this block came from `allocate` with the same layout and has just left the table, so it is
            // freed once; the caller has run all work that uses it.
            unsafe { dealloc(address as *mut u8, layout) };
        }
        Some((address, address + block.bytes))
    }

    /// Base and size of the block that holds all of `[address, address + bytes)`.
    pub fn find(&self, address: u64, bytes: u64) -> Option<(u64, u64)> {
        let (&at, block) = self.0.range(..=address).next_back()?;
        (address.checked_add(bytes)? <= at + block.bytes).then_some((at, block.bytes))
    }

    /// Blocks allocated and not given back: address, bytes.
    pub fn live(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0
            .iter()
            .filter(|(_, b)| !b.registered)
            .map(|(&at, b)| (at, b.bytes))
    }

    /// The bytes of a range, if all of it is page-locked.
    pub(super) fn bytes(&self, (start, end): (u64, u64)) -> Option<&[u8]> {
        self.find(start, end - start)?;
        // SAFETY: the range lies in a block of the table, which is live until `release` takes it out. The program
        // may write to it at the same time, as with real page-locked memory; the bytes are only copied.
        Some(unsafe { std::slice::from_raw_parts(start as *const u8, (end - start) as usize) })
    }

    /// The same, to write to.
    pub(super) fn bytes_mut(&mut self, (start, end): (u64, u64)) -> Option<&mut [u8]> {
        self.find(start, end - start)?;
        // SAFETY: as for `bytes`; `&mut self` keeps this crate from holding a second view.
        Some(unsafe { std::slice::from_raw_parts_mut(start as *mut u8, (end - start) as usize) })
    }

    /// A hash of the content of some ranges, to see whether somebody changed it.
    pub(super) fn fingerprint(&self, ranges: &[(u64, u64)]) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        let mut mix = |word: u64| {
            hash = (hash ^ word)
                .wrapping_mul(0x0000_0100_0000_01b3)
                .rotate_left(29)
        };
        for bytes in ranges.iter().filter_map(|&range| self.bytes(range)) {
            let mut words = bytes.chunks_exact(8);
            for word in &mut words {
                mix(u64::from_le_bytes(word.try_into().unwrap_or_default()));
            }
            words
                .remainder()
                .iter()
                .for_each(|&byte| mix(u64::from(byte)));
        }
        hash
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        for address in self
            .0
            .iter()
            .filter(|(_, b)| !b.registered)
            .map(|(&at, _)| at)
            .collect::<Vec<_>>()
        {
            self.release(address, false);
        }
    }
}

fn layout(bytes: u64) -> Option<Layout> {
    Layout::from_size_align(usize::try_from(bytes).ok()?.max(1), PAGE).ok()
}
