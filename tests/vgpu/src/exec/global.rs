//! Device memory as a launch sees it: which bytes it touched, and which of its blocks.
//!
//! # Races between blocks
//! Each granule of an allocation has two tags: who wrote it last and who read it. A tag stands for an *epoch* of a
//! block: the stretch from its start, or from its last release, to its next release. A release is an atomic or a
//! strong store after a fence of the device's scope; an acquire is an atomic or a strong load. Two accesses are in
//! order when the epoch of the first was released before the block of the second acquired. That takes every acquire
//! to see every earlier release, whatever the location: it never reports what is in order, and may miss a race in a
//! kernel whose blocks talk to each other.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst},
};

use crate::{
    bits::Bitmap,
    memory::{Allocation, Memory, TAG_LIMIT, Tags},
};

/// One allocation in a launch.
#[derive(Debug)]
pub(super) struct Window {
    pub base: u64,
    pub end: u64,
    pub allocation: Arc<Allocation>,
    read: OnceLock<Bitmap>,
    written: OnceLock<Bitmap>,
    tags: OnceLock<Arc<Tags>>,
}

/// All of memory in a launch.
#[derive(Debug)]
pub(super) struct View {
    pub windows: Vec<Window>,
    pub epochs: Epochs,
    shift: u32,
}

/// The epochs of the blocks of a launch.
#[derive(Debug)]
pub(super) struct Epochs {
    /// The tag of the first; 0 when there is nothing to tell apart.
    first: u32,
    /// Block, and time of the release, of each.
    list: Vec<(AtomicU32, AtomicU32)>,
    next: AtomicU32,
    /// How many releases there were.
    clock: AtomicU32,
}

/// A block's place in the order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stand {
    pub block: u32,
    /// The tag of its epoch; 0 when there is nothing to tell apart.
    pub tag: u32,
    /// Releases before its last acquire.
    acquired: u32,
    /// Whether a fence has been met since the last release.
    pub fenced: bool,
}

/// Releases that a block may make before its epochs are no longer told apart.
const EPOCHS_PER_BLOCK: u64 = 64;

/// A granule that another block used, out of order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conflict {
    /// Offset of the granule in its allocation.
    pub offset: u64,
    pub other: u32,
    pub other_wrote: bool,
}

impl View {
    /// `talks`: the kernel has fences or atomics, so that blocks may be ordered within the launch.
    pub(super) fn new(memory: &Memory, shift: u32, blocks: u64, talks: bool) -> Self {
        let windows = memory
            .snapshot()
            .into_iter()
            .map(|allocation| Window {
                base: allocation.base,
                end: allocation.base + allocation.bytes,
                allocation,
                read: OnceLock::new(),
                written: OnceLock::new(),
                tags: OnceLock::new(),
            })
            .collect();
        let epochs = if talks {
            blocks
                .saturating_mul(1 + EPOCHS_PER_BLOCK)
                .min(blocks + (1 << 20))
        } else {
            blocks
        };
        // One block cannot race with itself, and a grid larger than the tags is past any test.
        let count = if blocks > 1 && epochs < u64::from(TAG_LIMIT) / 2 {
            epochs as u32
        } else {
            0
        };
        Self {
            windows,
            shift,
            epochs: Epochs {
                first: if count > 0 {
                    memory.reserve_tags(count)
                } else {
                    0
                },
                list: (0..count)
                    .map(|i| (AtomicU32::new(i), AtomicU32::new(u32::MAX)))
                    .collect(),
                next: AtomicU32::new(blocks.min(u64::from(count)) as u32),
                clock: AtomicU32::new(0),
            },
        }
    }

    /// The window that holds all of an address range, looked for at `hint` first.
    #[inline(always)]
    pub(super) fn find(&self, hint: &mut u32, start: u64, end: u64) -> Option<usize> {
        if let Some(window) = self.windows.get(*hint as usize)
            && window.base <= start
            && end <= window.end
        {
            return Some(*hint as usize);
        }
        let after = self.windows.partition_point(|w| w.base <= start);
        let index = after.checked_sub(1)?;
        if end > self.windows[index].end || end < start {
            return None;
        }
        *hint = index as u32;
        Some(index)
    }

    /// Notes a read; returns a conflict with a write of another block.
    #[inline(always)]
    pub(super) fn note_read(
        &self,
        window: usize,
        offset: u64,
        bytes: u64,
        stand: &Stand,
        strong: bool,
    ) -> Option<Conflict> {
        let w = &self.windows[window];
        note(
            w.read
                .get_or_init(|| Bitmap::new(w.allocation.bytes.div_ceil(4))),
            offset,
            bytes,
        );
        if stand.tag == 0 || strong {
            return None;
        }
        let tags = w.tags(self.shift);
        let mut conflict = None;
        for granule in offset >> tags.shift..=(offset + bytes - 1) >> tags.shift {
            let writer = tags.writers[granule as usize].load(Relaxed);
            if writer != stand.tag && self.epochs.foreign(writer, stand) {
                conflict = conflict.or(Some(self.conflict(granule << tags.shift, writer, true)));
            }
            let reader = &tags.readers[granule as usize];
            let last = reader.load(Relaxed);
            if last != stand.tag {
                self.epochs.add_reader(reader, last, stand);
            }
        }
        conflict
    }

    /// Notes a write; returns a conflict with an access of another block.
    #[inline(always)]
    pub(super) fn note_write(
        &self,
        window: usize,
        offset: u64,
        bytes: u64,
        stand: &Stand,
        strong: bool,
    ) -> Option<Conflict> {
        let w = &self.windows[window];
        note(
            w.written
                .get_or_init(|| Bitmap::new(w.allocation.bytes.div_ceil(4))),
            offset,
            bytes,
        );
        if stand.tag == 0 || strong {
            return None;
        }
        let tags = w.tags(self.shift);
        let mut conflict = None;
        for granule in offset >> tags.shift..=(offset + bytes - 1) >> tags.shift {
            let slot = &tags.writers[granule as usize];
            let writer = slot.load(Relaxed);
            if writer != stand.tag {
                if self.epochs.foreign(writer, stand) {
                    conflict =
                        conflict.or(Some(self.conflict(granule << tags.shift, writer, true)));
                }
                slot.store(stand.tag, Relaxed);
            }
            let reader = tags.readers[granule as usize].load(Relaxed);
            if reader != stand.tag && self.epochs.foreign(reader, stand) {
                conflict = conflict.or(Some(self.conflict(granule << tags.shift, reader, false)));
            }
        }
        conflict
    }

    #[cold]
    fn conflict(&self, offset: u64, tag: u32, other_wrote: bool) -> Conflict {
        let epoch = (tag & !TAG_LIMIT).wrapping_sub(self.epochs.first) as usize;
        let other = self.epochs.list.get(epoch).map_or(0, |e| e.0.load(Relaxed));
        Conflict {
            offset,
            other,
            other_wrote,
        }
    }

    /// What a window was read and written at, in units of four bytes.
    pub(super) fn footprint(
        &self,
    ) -> impl Iterator<Item = (&Window, Option<&Bitmap>, Option<&Bitmap>)> {
        self.windows
            .iter()
            .map(|w| (w, w.read.get(), w.written.get()))
    }
}

impl Window {
    #[inline(always)]
    fn tags(&self, shift: u32) -> &Tags {
        self.tags.get_or_init(|| self.allocation.tags(shift))
    }
}

#[inline(always)]
fn note(map: &Bitmap, offset: u64, bytes: u64) {
    let (first, end) = (offset / 4, (offset + bytes).div_ceil(4));
    if first / 64 == (end - 1) / 64 {
        map.set_within(first, end - first);
    } else {
        map.set(first, end);
    }
}

impl Epochs {
    /// A block at its start.
    pub(super) fn stand(&self, block: u64) -> Stand {
        Stand {
            block: block as u32,
            tag: if self.list.is_empty() {
                0
            } else {
                self.first + block as u32
            },
            acquired: 0,
            fenced: false,
        }
    }

    /// The block publishes what it did so far.
    pub(super) fn release(&self, stand: &mut Stand) {
        if stand.tag == 0 {
            return;
        }
        let time = self.clock.fetch_add(1, SeqCst) + 1;
        self.list[(stand.tag - self.first) as usize]
            .1
            .fetch_min(time, SeqCst);
        stand.fenced = false;
        let next = self.next.load(Relaxed);
        if (next as usize) < self.list.len() {
            let next = self.next.fetch_add(1, Relaxed);
            if let Some((block, _)) = self.list.get(next as usize) {
                block.store(stand.block, SeqCst);
                stand.tag = self.first + next;
            }
        }
    }

    /// The block sees what others published.
    pub(super) fn acquire(&self, stand: &mut Stand) {
        stand.acquired = self.clock.load(SeqCst);
    }

    /// Whether a tag is that of another block of this launch that is not ordered before.
    #[inline(always)]
    fn foreign(&self, tag: u32, stand: &Stand) -> bool {
        let epoch = (tag & !TAG_LIMIT).wrapping_sub(self.first);
        if epoch as usize >= self.list.len() {
            return false;
        }
        let (block, released) = &self.list[epoch as usize];
        let several = tag & TAG_LIMIT != 0;
        (several || block.load(Relaxed) != stand.block) && released.load(Relaxed) > stand.acquired
    }

    /// Puts a block among the readers of a granule.
    #[inline(always)]
    fn add_reader(&self, slot: &AtomicU32, last: u32, stand: &Stand) {
        if last & TAG_LIMIT != 0 && stand.acquired == 0 && self.in_launch(last) {
            // Several have read it, and none of them is known to have gone before.
            return;
        }
        let several = self.foreign(last, stand);
        slot.store(stand.tag | if several { TAG_LIMIT } else { 0 }, Relaxed);
    }

    fn in_launch(&self, tag: u32) -> bool {
        ((tag & !TAG_LIMIT).wrapping_sub(self.first) as usize) < self.list.len()
    }
}
