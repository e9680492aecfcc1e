//! Accesses to memory by the lanes of a warp: where they go, and what the checks say.
//!
//! Every access is *resolved* first: addresses to host pointers, with all checks, notes and counts on the way. Moving
//! the data is then the same for every space. Warps mostly touch neighbours or all the same place, and each of the two
//! is checked as one piece.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::{
    Machine,
    global::Conflict,
    lanes::{FULL, LANES, Registers, lanes},
    report::unravel,
    shared::{Hazard, Manner, passes},
    step::{Issue, Worker},
};
use crate::{
    check::Kind,
    program::{
        LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW,
        op::{Access, Fill, List, NONE, Reg},
    },
    ptx::Space,
};

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Read,
    Write,
    Update,
}

/// Where the lanes' data lies on the host.
pub(super) struct Resolved {
    /// The lanes whose access may be made.
    pub ok: u32,
    pub pointers: [*mut u8; LANES],
}

impl Resolved {
    fn none() -> Self {
        Self {
            ok: 0,
            pointers: [std::ptr::null_mut(); LANES],
        }
    }

    fn add(&mut self, other: Self) {
        for lane in lanes(other.ok) {
            self.pointers[lane] = other.pointers[lane];
        }
        self.ok |= other.ok;
    }
}

/// The space that a generic address lies in.
pub(super) fn space_of(address: u64) -> Space {
    if address.wrapping_sub(SHARED_WINDOW) < WINDOW {
        Space::Shared
    } else if address.wrapping_sub(LOCAL_WINDOW) < WINDOW {
        Space::Local
    } else if address.wrapping_sub(PARAM_WINDOW) < WINDOW {
        Space::Param
    } else {
        Space::Global
    }
}

/// The registers of a vector as elements of at most 8 bytes: one of 16 is two.
pub(super) fn elements(list: &[Reg], size: u32) -> ([Reg; 8], usize, u32) {
    let mut out = [NONE; 8];
    if size == 16 {
        for (index, &reg) in list.iter().enumerate() {
            out[2 * index] = reg;
            out[2 * index + 1] = if reg == NONE { NONE } else { reg + 2 };
        }
        return (out, 2 * list.len(), 8);
    }
    out[..list.len()].copy_from_slice(list);
    (out, list.len(), size)
}

/// Reads up to 8 bytes at a pointer that is aligned to them.
///
/// # Safety
/// The pointer must come from a [`Resolved`] access of at least that size.
#[inline(always)]
pub(super) unsafe fn fetch(pointer: *mut u8, size: u32) -> u64 {
    // SAFETY: resolved pointers are in bounds and aligned, and memory of the device is only used through atomics.
    unsafe {
        match size {
            1 => u64::from((*pointer.cast::<AtomicU8>()).load(Relaxed)),
            2 => u64::from((*pointer.cast::<AtomicU16>()).load(Relaxed)),
            4 => u64::from((*pointer.cast::<AtomicU32>()).load(Relaxed)),
            _ => (*pointer.cast::<AtomicU64>()).load(Relaxed),
        }
    }
}

/// Writes up to 8 bytes at a pointer that is aligned to them.
///
/// # Safety
/// As for [`fetch`], of an access that writes.
#[inline(always)]
pub(super) unsafe fn put(pointer: *mut u8, size: u32, value: u64) {
    // SAFETY: as in `fetch`.
    unsafe {
        match size {
            1 => (*pointer.cast::<AtomicU8>()).store(value as u8, Relaxed),
            2 => (*pointer.cast::<AtomicU16>()).store(value as u16, Relaxed),
            4 => (*pointer.cast::<AtomicU32>()).store(value as u32, Relaxed),
            _ => (*pointer.cast::<AtomicU64>()).store(value, Relaxed),
        }
    }
}

/// How the addresses of a warp lie.
enum Shape {
    /// Each lane's right behind that of the lane before, all lanes active.
    Run,
    Same,
    Scattered,
}

struct Survey {
    low: u64,
    high: u64,
    /// All bits that are set in any address.
    bits: u64,
}

fn survey(addresses: &[u64; LANES], m: u32) -> Survey {
    let (mut low, mut high, mut bits) = (u64::MAX, 0, 0);
    if m == FULL {
        for &address in addresses {
            low = low.min(address);
            high = high.max(address);
            bits |= address;
        }
    } else {
        for lane in lanes(m) {
            low = low.min(addresses[lane]);
            high = high.max(addresses[lane]);
            bits |= addresses[lane];
        }
    }
    Survey { low, high, bits }
}

fn shape(addresses: &[u64; LANES], m: u32, bytes: u64, survey: &Survey) -> Shape {
    if survey.low == survey.high {
        return Shape::Same;
    }
    if m == FULL && survey.high - survey.low == bytes * (LANES as u64 - 1) {
        let mut run = true;
        for lane in 0..LANES {
            run &= addresses[lane] == survey.low + lane as u64 * bytes;
        }
        if run {
            return Shape::Run;
        }
    }
    Shape::Scattered
}

/// Distinct 32-byte sectors of the addresses.
fn sectors(addresses: &[u64; LANES], m: u32) -> u64 {
    let (mut count, mut last, mut sorted) = (0, u64::MAX, true);
    for lane in lanes(m) {
        let sector = addresses[lane] / 32;
        if last == u64::MAX || sector > last {
            count += 1;
            last = sector;
        } else if sector < last {
            sorted = false;
            break;
        }
    }
    if sorted {
        return count;
    }
    let mut list = [u64::MAX; LANES];
    for (slot, lane) in list.iter_mut().zip(lanes(m)) {
        *slot = addresses[lane] / 32;
    }
    list.sort_unstable();
    let mut distinct = 0;
    for i in 0..m.count_ones() as usize {
        distinct += u64::from(i == 0 || list[i] != list[i - 1]);
    }
    distinct
}

impl Machine<'_> {
    #[cold]
    fn conflict_message(
        &self,
        does: &str,
        conflict: Conflict,
        base: u64,
        [x, y, z]: [u32; 3],
    ) -> String {
        let grid = self.launch.grid;
        let [ox, oy, oz] = unravel(u64::from(conflict.other), grid);
        let did = if conflict.other_wrote {
            "wrote"
        } else {
            "read"
        };
        format!(
            "block ({x},{y},{z}) {does} address {:#x}, which block ({ox},{oy},{oz}) {did} in the same launch, with nothing to order them",
            base + conflict.offset
        )
    }
}

impl Worker<'_> {
    /// The address of each lane.
    #[inline(always)]
    pub(super) fn addresses(&self, r: &Registers, access: &Access) -> [u64; LANES] {
        let offset = access.offset as u64;
        if access.base == NONE {
            [offset; LANES]
        } else if access.wide {
            let row = r.row::<u64>(access.base);
            let mut out = [0; LANES];
            for i in 0..LANES {
                out[i] = row[i].wrapping_add(offset);
            }
            out
        } else {
            let row = r.row::<u32>(access.base);
            let mut out = [0; LANES];
            for i in 0..LANES {
                // An address of 32 bits wraps: compilers add a negative index before a positive offset.
                out[i] = row[i].wrapping_add(offset as u32).into();
            }
            out
        }
    }

    /// Checks and notes an access of `bytes` a lane (a power of two) and finds where its data lies.
    pub(super) fn resolve(
        &mut self,
        at: &mut Issue<'_>,
        m: u32,
        access: &Access,
        addresses: &[u64; LANES],
        bytes: u32,
        usage: Use,
    ) -> Resolved {
        match access.space {
            Space::Global => self.global(at, m, access, addresses, bytes, usage),
            Space::Const => self.global(at, m, access, addresses, bytes, usage),
            Space::Shared => {
                let manner = if access.strong || usage == Use::Update {
                    Manner::Atomic
                } else {
                    Manner::Plain
                };
                self.shared(at, m, addresses, bytes, usage, manner)
            }
            Space::Local => self.local(at, m, addresses, bytes),
            Space::Param => self.param(at, m, addresses, bytes),
            Space::Generic => {
                let mut all = Resolved::none();
                let mut rest = m;
                while rest != 0 {
                    let space = space_of(addresses[rest.trailing_zeros() as usize]);
                    let here = lanes(rest)
                        .filter(|&i| space_of(addresses[i]) == space)
                        .fold(0, |b, i| b | 1 << i);
                    rest &= !here;
                    let window = match space {
                        Space::Shared => SHARED_WINDOW,
                        Space::Local => LOCAL_WINDOW,
                        Space::Param => PARAM_WINDOW,
                        _ => 0,
                    };
                    let inside = addresses.map(|a| a.wrapping_sub(window));
                    let access = Access { space, ..*access };
                    let part = self.resolve(at, here, &access, &inside, bytes, usage);
                    if here == m {
                        return part;
                    }
                    all.add(part);
                }
                all
            }
        }
    }

    fn global(
        &mut self,
        at: &mut Issue<'_>,
        m: u32,
        access: &Access,
        addresses: &[u64; LANES],
        bytes: u32,
        usage: Use,
    ) -> Resolved {
        let machine = self.machine;
        let size = u64::from(bytes);
        let found = survey(addresses, m);
        let mut resolved = Resolved::none();
        let whole = if found.bits & (size - 1) == 0 {
            machine.view.find(
                &mut self.hints[at.pc as usize],
                found.low,
                found.high.saturating_add(size),
            )
        } else {
            None
        };
        let Some(window) = whole else {
            return self.global_apart(at, m, access, addresses, bytes, usage);
        };
        let base = machine.view.windows[window].base;
        let pointer = machine.view.windows[window].allocation.pointer().cast_mut();
        resolved.ok = m;
        for lane in 0..LANES {
            // Lanes that are switched off get a pointer that nobody follows.
            resolved.pointers[lane] =
                pointer.wrapping_add(addresses[lane].wrapping_sub(base) as usize);
        }
        let touched = match shape(addresses, m, size, &found) {
            Shape::Run => {
                let all = size * LANES as u64;
                self.note(at, 0, access, (window, found.low, all), bytes, usage);
                (found.high + size - 1) / 32 - found.low / 32 + 1
            }
            Shape::Same => {
                let lane = m.trailing_zeros() as usize;
                self.note(at, lane, access, (window, found.low, size), bytes, usage);
                1
            }
            Shape::Scattered => {
                let mut last = u64::MAX;
                for lane in lanes(m) {
                    if addresses[lane] != last {
                        last = addresses[lane];
                        self.note(at, lane, access, (window, last, size), bytes, usage);
                    }
                }
                sectors(addresses, m)
            }
        };
        self.count_sectors(access, usage, touched);
        resolved
    }

    fn count_sectors(&mut self, access: &Access, usage: Use, touched: u64) {
        // Constants come from a cache of their own.
        if access.space != Space::Const {
            self.counters.global_requests += 1;
            match usage {
                Use::Read => self.counters.load_sectors += touched,
                Use::Write => self.counters.store_sectors += touched,
                Use::Update => self.counters.atomic_sectors += touched,
            }
        }
    }

    /// Lanes that are not all in one allocation, or not all aligned: each on its own.
    #[cold]
    fn global_apart(
        &mut self,
        at: &mut Issue<'_>,
        m: u32,
        access: &Access,
        addresses: &[u64; LANES],
        bytes: u32,
        usage: Use,
    ) -> Resolved {
        let machine = self.machine;
        let size = u64::from(bytes);
        let mut resolved = Resolved::none();
        for lane in lanes(m) {
            let address = addresses[lane];
            let who = at.who(lane);
            if !address.is_multiple_of(size) {
                self.reports.add(Kind::Misaligned, at.pc, who, || {
                    format!("{} of {bytes} bytes at {address:#x}", verb(usage))
                });
                continue;
            }
            let end = address.saturating_add(size);
            let Some(window) = machine
                .view
                .find(&mut self.hints[at.pc as usize], address, end)
            else {
                let (kind, place) = machine.memory.describe(address, size);
                self.reports
                    .add(kind, at.pc, who, || format!("{} of {place}", verb(usage)));
                continue;
            };
            let w = &machine.view.windows[window];
            resolved.pointers[lane] = w
                .allocation
                .pointer()
                .cast_mut()
                .wrapping_add((address - w.base) as usize);
            resolved.ok |= 1 << lane;
            self.note(at, lane, access, (window, address, size), bytes, usage);
        }
        let touched = sectors(addresses, resolved.ok);
        self.count_sectors(access, usage, touched);
        resolved
    }

    /// Checks and notes one piece of an allocation.
    #[inline(always)]
    fn note(
        &mut self,
        at: &mut Issue<'_>,
        lane: usize,
        access: &Access,
        (window, start, bytes): (usize, u64, u64),
        of_a_lane: u32,
        usage: Use,
    ) {
        let view = &self.machine.view;
        let w = &view.windows[window];
        let offset = start - w.base;
        let strong = access.strong || usage == Use::Update;
        // In a run of all lanes, where in it something is wrong tells the lane.
        let each = if bytes > u64::from(of_a_lane) {
            u64::from(of_a_lane)
        } else {
            u64::MAX
        };
        let blamed = |at: u64| lane + (at.saturating_sub(offset) / each) as usize;
        let within = offset % 64 + bytes <= 64;
        if usage != Use::Write {
            if let Some(written) = w.allocation.written() {
                let missing = if within && written.has_within(offset, bytes) {
                    None
                } else {
                    written.first_missing(offset, offset + bytes)
                };
                if let Some(missing) = missing {
                    let who = at.who(blamed(missing));
                    self.reports.add(Kind::UninitialisedGlobal, at.pc, who, || {
                        format!(
                            "a read of {of_a_lane} bytes: byte {missing} of the {} at {:#x} was never written",
                            w.allocation.bytes, w.base
                        )
                    });
                }
            }
            if let Some(conflict) = view.note_read(window, offset, bytes, &at.common.stand, strong)
            {
                let who = at.who(blamed(conflict.offset));
                let message = || {
                    self.machine
                        .conflict_message("reads", conflict, w.base, at.common.index)
                };
                self.reports.add(Kind::GlobalRace, at.pc, who, message);
            }
        }
        if usage != Use::Read {
            if let Some(written) = w.allocation.written() {
                if within {
                    written.set_within(offset, bytes);
                } else {
                    written.set(offset, offset + bytes);
                }
            }
            if let Some(conflict) = view.note_write(window, offset, bytes, &at.common.stand, strong)
            {
                let who = at.who(blamed(conflict.offset));
                let message = || {
                    self.machine
                        .conflict_message("writes", conflict, w.base, at.common.index)
                };
                self.reports.add(Kind::GlobalRace, at.pc, who, message);
            }
        }
    }

    pub(super) fn shared(
        &mut self,
        at: &mut Issue<'_>,
        m: u32,
        addresses: &[u64; LANES],
        bytes: u32,
        usage: Use,
        manner: Manner,
    ) -> Resolved {
        let size = u64::from(bytes);
        let limit = u64::from(at.common.shared.bytes);
        let found = survey(addresses, m);
        let mut resolved = Resolved::none();
        resolved.ok = m;
        if found.bits & (size - 1) != 0 || found.high.saturating_add(size) > limit {
            for lane in lanes(m) {
                let address = addresses[lane];
                let kind = if address.saturating_add(size) > limit {
                    Kind::OutOfBounds
                } else if !address.is_multiple_of(size) {
                    Kind::Misaligned
                } else {
                    continue;
                };
                resolved.ok &= !(1 << lane);
                self.reports.add(kind, at.pc, at.who(lane), || {
                    format!(
                        "{} of {bytes} bytes at {address:#x} of {limit} bytes of shared memory",
                        verb(usage)
                    )
                });
            }
        }
        let ok = resolved.ok;
        if ok == 0 {
            return resolved;
        }
        let pointer = at.common.shared.pointer();
        let mut offsets = [0; LANES];
        for lane in 0..LANES {
            offsets[lane] = addresses[lane] as u32;
            resolved.pointers[lane] = pointer.wrapping_add(offsets[lane] as usize);
        }
        self.counters.shared_requests += 1;
        let fewest = u64::from(bytes.div_ceil(4)).max(1);
        match shape(addresses, ok, size, &found) {
            Shape::Run => {
                self.counters.shared_passes += fewest;
                self.note_shared(
                    at,
                    0,
                    (offsets[0], bytes * LANES as u32),
                    bytes,
                    usage,
                    manner,
                );
            }
            _ => {
                // Within 128 bytes every word has a bank of its own.
                let near = found.high - found.low + size <= 128 && ok == m;
                let (taken, least) = passes(&offsets, ok, bytes, near);
                self.counters.shared_passes += taken;
                self.counters.bank_conflicts += taken - least;
                let mut last = u32::MAX;
                for lane in lanes(ok) {
                    if offsets[lane] != last {
                        last = offsets[lane];
                        self.note_shared(at, lane, (last, bytes), bytes, usage, manner);
                    }
                }
            }
        }
        resolved
    }

    #[inline(always)]
    fn note_shared(
        &mut self,
        at: &mut Issue<'_>,
        lane: usize,
        (offset, bytes): (u32, u32),
        of_a_lane: u32,
        usage: Use,
        manner: Manner,
    ) {
        let each = if bytes > of_a_lane {
            of_a_lane
        } else {
            u32::MAX
        };
        let blamed = |at: u32| lane + (at.saturating_sub(offset) / each) as usize;
        if usage != Use::Write
            && let Some(hazard) = at
                .common
                .shared
                .note_read(at.warp.id, offset, bytes, manner)
        {
            let who = at.who(blamed(hazard.offset));
            if hazard.kind == Kind::UninitialisedShared {
                at.common.shared.suspect(at.pc, who, offset, bytes);
            } else {
                self.reports.add(hazard.kind, at.pc, who, || {
                    hazard_message("reads", &hazard, at.warp.id)
                });
            }
        }
        if usage != Use::Read
            && let Some(hazard) = at
                .common
                .shared
                .note_write(at.warp.id, offset, bytes, manner)
        {
            let who = at.who(blamed(hazard.offset));
            self.reports.add(hazard.kind, at.pc, who, || {
                hazard_message("writes", &hazard, at.warp.id)
            });
        }
    }

    fn local(
        &mut self,
        at: &mut Issue<'_>,
        m: u32,
        addresses: &[u64; LANES],
        bytes: u32,
    ) -> Resolved {
        let frame = u64::from(self.machine.code.frame);
        let mut resolved = Resolved::none();
        for lane in lanes(m) {
            let address = addresses[lane];
            let kind = if address.saturating_add(u64::from(bytes)) > frame {
                Kind::OutOfBounds
            } else if !address.is_multiple_of(u64::from(bytes)) {
                Kind::Misaligned
            } else {
                resolved.ok |= 1 << lane;
                resolved.pointers[lane] =
                    at.warp.local.pointer(lane).wrapping_add(address as usize);
                continue;
            };
            self.reports.add(kind, at.pc, at.who(lane), || {
                format!("{bytes} bytes at {address:#x} of {frame} bytes of local memory")
            });
        }
        resolved
    }

    fn param(
        &mut self,
        at: &mut Issue<'_>,
        m: u32,
        addresses: &[u64; LANES],
        bytes: u32,
    ) -> Resolved {
        let limit = self.machine.param_bytes as u64;
        let pointer = self.machine.params.as_ptr().cast::<u8>().cast_mut();
        let mut resolved = Resolved::none();
        for lane in lanes(m) {
            let address = addresses[lane];
            if address.is_multiple_of(u64::from(bytes))
                && address.saturating_add(u64::from(bytes)) <= limit
            {
                resolved.ok |= 1 << lane;
                resolved.pointers[lane] = pointer.wrapping_add(address as usize);
            } else {
                self.reports
                    .add(Kind::OutOfBounds, at.pc, at.who(lane), || {
                        format!("{bytes} bytes at {address:#x} of {limit} bytes of parameters")
                    });
            }
        }
        resolved
    }

    pub(super) fn load(
        &mut self,
        at: &mut Issue<'_>,
        m: u32,
        access: &Access,
        d: List,
        fill: Fill,
    ) {
        let list = &self.machine.code.lists[d.start as usize..][..d.len as usize];
        let addresses = self.addresses(&at.warp.registers, access);
        let bytes = access.size * d.len;
        let resolved = self.resolve(at, m, access, &addresses, bytes, Use::Read);
        let (list, count, size) = elements(list, access.size);
        for (index, &reg) in list[..count].iter().enumerate() {
            if reg == NONE {
                continue;
            }
            let offset = index * size as usize;
            // SAFETY: the access was resolved for all elements.
            let value =
                |lane: usize| unsafe { fetch(resolved.pointers[lane].wrapping_add(offset), size) };
            move_in(&mut at.warp.registers, resolved.ok, reg, size, fill, value);
            if resolved.ok != m {
                // What could not be read is zero.
                move_in(
                    &mut at.warp.registers,
                    m & !resolved.ok,
                    reg,
                    size,
                    fill,
                    |_| 0,
                );
            }
        }
        // After the value is there: whoever released it may have done so since this began.
        if access.strong && access.space != Space::Shared {
            self.machine.view.epochs.acquire(&mut at.common.stand);
        }
    }

    pub(super) fn store(&mut self, at: &mut Issue<'_>, m: u32, access: &Access, a: List) {
        let list = &self.machine.code.lists[a.start as usize..][..a.len as usize];
        let addresses = self.addresses(&at.warp.registers, access);
        let bytes = access.size * a.len;
        if access.strong
            && access.space != Space::Shared
            && (access.release || at.common.stand.fenced)
        {
            self.machine.view.epochs.release(&mut at.common.stand);
        }
        let resolved = self.resolve(at, m, access, &addresses, bytes, Use::Write);
        let (list, count, size) = elements(list, access.size);
        if matches!(access.space, Space::Shared | Space::Generic) {
            self.check_doubles(at, &resolved, &list[..count], size);
        }
        for (index, &reg) in list[..count].iter().enumerate() {
            let offset = index * size as usize;
            if size == 8 {
                let row = at.warp.registers.row::<u64>(reg);
                for lane in lanes(resolved.ok) {
                    // SAFETY: the access was resolved for all elements.
                    unsafe { put(resolved.pointers[lane].wrapping_add(offset), 8, row[lane]) };
                }
            } else {
                let row = at.warp.registers.row::<u32>(reg);
                for lane in lanes(resolved.ok) {
                    // SAFETY: the access was resolved for all elements.
                    unsafe {
                        put(
                            resolved.pointers[lane].wrapping_add(offset),
                            size,
                            u64::from(row[lane]),
                        )
                    };
                }
            }
        }
    }

    /// Finds lanes of one store that write different values to one place of shared memory.
    fn check_doubles(&mut self, at: &Issue<'_>, resolved: &Resolved, list: &[Reg], size: u32) {
        let base = at.common.shared.base();
        let inside = |p: *mut u8| (p as usize).wrapping_sub(base) < at.common.shared.bytes as usize;
        // Ascending addresses, the usual case, have no doubles.
        let (mut last, mut ascending) = (0, true);
        for lane in lanes(resolved.ok) {
            let at = resolved.pointers[lane] as usize;
            ascending &= at > last;
            last = at;
        }
        if ascending {
            return;
        }
        let value = |reg: Reg, lane: usize| {
            if size == 8 {
                at.warp.registers.row::<u64>(reg)[lane]
            } else {
                u64::from(at.warp.registers.row::<u32>(reg)[lane])
            }
        };
        for lane in lanes(resolved.ok) {
            let place = resolved.pointers[lane];
            for other in lanes(resolved.ok & ((1 << lane) - 1)) {
                if resolved.pointers[other] == place
                    && inside(place)
                    && list
                        .iter()
                        .any(|&reg| value(reg, lane) != value(reg, other))
                {
                    self.reports.add(Kind::SharedRace, at.pc, at.who(lane), || {
                        format!(
                            "lanes {other} and {lane} of one store write different values to shared address {:#x}",
                            place as usize - base
                        )
                    });
                }
            }
        }
    }
}

/// Moves what was read into the lanes of a register.
#[inline(always)]
fn move_in(
    r: &mut Registers,
    m: u32,
    reg: Reg,
    size: u32,
    fill: Fill,
    value: impl Fn(usize) -> u64,
) {
    if size == 8 {
        r.set(m, reg, value);
    } else if size == 4 && fill.to == 32 {
        r.set(m, reg, |lane| value(lane) as u32);
    } else if fill.to == 64 {
        r.set(m, reg, |lane| fill.apply(value(lane)));
    } else {
        r.set(m, reg, |lane| fill.apply(value(lane)) as u32);
    }
}

fn verb(usage: Use) -> &'static str {
    match usage {
        Use::Read => "a read",
        Use::Write => "a write",
        Use::Update => "an atomic",
    }
}

fn hazard_message(does: &str, hazard: &Hazard, warp: u32) -> String {
    let Hazard {
        kind,
        other,
        other_wrote,
        offset,
    } = *hazard;
    match kind {
        Kind::AsyncNotWaited => format!(
            "warp {warp} {does} shared address {offset:#x}, where warp {other} has a `cp.async` that was not waited for, or with no barrier since"
        ),
        _ => {
            let did = if other_wrote { "wrote" } else { "read" };
            format!(
                "warp {warp} {does} shared address {offset:#x}, which warp {other} {did} with no barrier between"
            )
        }
    }
}
