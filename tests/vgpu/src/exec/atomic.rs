//! Atomics, and copies that land later.

use std::sync::{
    PoisonError,
    atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::SeqCst},
};

use super::{
    access::{Resolved, Use, fetch, put},
    lanes::{LANES, lanes},
    shared::Manner,
    step::{Issue, Worker},
};
use crate::{
    arith::{
        Mode, Rounding,
        compare::{self, Extremum},
        float,
        half::{self, Half, HalfMode},
    },
    program::op::{Access, AtomOp, NONE, Reg},
    ptx::{Space, Type},
};

/// The new value of an atomic.
fn combine(op: AtomOp, ty: Type, flush: bool, old: u64, a: u64, b: u64) -> u64 {
    let (o32, a32) = (old as u32, a as u32);
    let single = |f: fn(f32, f32, Extremum) -> f32| {
        u64::from(
            f(
                f32::from_bits(o32),
                f32::from_bits(a32),
                Extremum::default(),
            )
            .to_bits(),
        )
    };
    let halves = |kind: Half, two: bool| {
        let one = |x: u16, y: u16| match op {
            AtomOp::Min => kind.min(x, y, Extremum::default()),
            AtomOp::Max => kind.max(x, y, Extremum::default()),
            _ => kind.add(x, y, HalfMode::default()),
        };
        u64::from(if two {
            half::packed2(o32, a32, one)
        } else {
            u32::from(one(o32 as u16, a32 as u16))
        })
    };
    match (op, ty) {
        (AtomOp::Exchange, _) => a,
        (AtomOp::CompareExchange, _) => {
            if old == a {
                b
            } else {
                old
            }
        }
        (AtomOp::And, _) => old & a,
        (AtomOp::Or, _) => old | a,
        (AtomOp::Xor, _) => old ^ a,
        (AtomOp::Inc, _) => {
            if o32 >= a32 {
                0
            } else {
                u64::from(o32 + 1)
            }
        }
        (AtomOp::Dec, _) => {
            if o32 == 0 || o32 > a32 {
                a
            } else {
                u64::from(o32 - 1)
            }
        }
        (AtomOp::Add, Type::F32) => {
            // In global memory the units flush subnormals, in shared memory they do not.
            let mode = Mode {
                ftz: flush,
                ..Mode::RN
            };
            u64::from(float::add_f32(f32::from_bits(o32), f32::from_bits(a32), mode).to_bits())
        }
        (AtomOp::Add, Type::F64) => {
            float::add_f64(f64::from_bits(old), f64::from_bits(a), Rounding::Nearest).to_bits()
        }
        (AtomOp::Min, Type::F32) => single(compare::min_f32),
        (AtomOp::Max, Type::F32) => single(compare::max_f32),
        (_, Type::F16) => halves(Half::F16, false),
        (_, Type::F16x2) => halves(Half::F16, true),
        (_, Type::Bf16) => halves(Half::Bf16, false),
        (_, Type::Bf16x2) => halves(Half::Bf16, true),
        (AtomOp::Add, _) if ty.bytes() == 8 => old.wrapping_add(a),
        (AtomOp::Add, _) => u64::from(o32.wrapping_add(a32)),
        (AtomOp::Min, Type::S32) => u64::from((o32 as i32).min(a32 as i32) as u32),
        (AtomOp::Max, Type::S32) => u64::from((o32 as i32).max(a32 as i32) as u32),
        (AtomOp::Min, Type::S64) => (old as i64).min(a as i64) as u64,
        (AtomOp::Max, Type::S64) => (old as i64).max(a as i64) as u64,
        (AtomOp::Min, _) => old.min(a),
        (AtomOp::Max, _) => old.max(a),
    }
}

/// Replaces a value by a function of it and returns the old one.
///
/// # Safety
/// The pointer must come from a [`Resolved`] access of that size, which is 2, 4 or 8.
unsafe fn update(pointer: *mut u8, size: u32, f: impl Fn(u64) -> u64) -> u64 {
    macro_rules! sized {
        ($atomic:ty, $word:ty) => {{
            // SAFETY: resolved pointers are in bounds and aligned, and memory is only used through atomics.
            let place = unsafe { &*pointer.cast::<$atomic>() };
            let new = |old: $word| Some(f(u64::from(old)) as $word);
            // The function always gives a value, so both arms hold the old one.
            match place.fetch_update(SeqCst, SeqCst, new) {
                Ok(old) | Err(old) => u64::from(old),
            }
        }};
    }
    match size {
        2 => sized!(AtomicU16, u16),
        4 => sized!(AtomicU32, u32),
        _ => sized!(AtomicU64, u64),
    }
}

impl Worker<'_> {
    /// Executes an atomic or a reduction; returns whether it changed anything.
    pub(super) fn atomic(
        &mut self,
        at: &mut Issue<'_>,
        m: u32,
        access: &Access,
        (op, ty): (AtomOp, Type),
        [d, a, b]: [Reg; 3],
    ) -> bool {
        let machine = self.machine;
        let addresses = self.addresses(&at.warp.registers, access);
        let global = access.space != Space::Shared;
        if global && (access.release || at.common.stand.fenced) {
            machine.view.epochs.release(&mut at.common.stand);
        }
        let resolved = self.resolve(at, m, access, &addresses, access.size, Use::Update);
        let base = at.common.shared.base();
        let shared = base..base + at.common.shared.bytes as usize;
        let mut changed = false;
        for lane in lanes(resolved.ok) {
            let pointer = resolved.pointers[lane];
            if access.size == 16 {
                changed = true;
                let _whole = machine
                    .wide_atomics
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                self.atomic_128(at, &resolved, lane, op, [d, a, b]);
                continue;
            }
            let flush = !shared.contains(&(pointer as usize));
            let r = &at.warp.registers;
            let read = |reg: Reg| match (reg, access.size) {
                (NONE, _) => 0,
                (reg, 8) => r.row::<u64>(reg)[lane],
                (reg, 2) => u64::from(r.row::<u32>(reg)[lane] & 0xffff),
                (reg, _) => u64::from(r.row::<u32>(reg)[lane]),
            };
            let (x, y) = (read(a), read(b));
            // SAFETY: the access was resolved for this size.
            let old = unsafe {
                update(pointer, access.size, |old| {
                    combine(op, ty, flush, old, x, y)
                })
            };
            changed |= combine(op, ty, flush, old, x, y) != old;
            if d != NONE {
                if access.size == 8 {
                    at.warp.registers.row_mut::<u64>(d)[lane] = old;
                } else {
                    at.warp.registers.row_mut::<u32>(d)[lane] = old as u32;
                }
            }
        }
        if global && d != NONE {
            machine.view.epochs.acquire(&mut at.common.stand);
        }
        changed
    }

    /// Exchanges 16 bytes, under the lock that all such atomics take.
    fn atomic_128(
        &self,
        at: &mut Issue<'_>,
        resolved: &Resolved,
        lane: usize,
        op: AtomOp,
        [d, a, b]: [Reg; 3],
    ) {
        let halves = [0, 8].map(|offset| resolved.pointers[lane].wrapping_add(offset));
        // SAFETY: the access was resolved for 16 bytes.
        let old = halves.map(|p| unsafe { fetch(p, 8) });
        let read = |reg: Reg| [0, 2].map(|row| at.warp.registers.row::<u64>(reg + row)[lane]);
        let new = match op {
            AtomOp::CompareExchange if old == read(a) => read(b),
            AtomOp::CompareExchange => old,
            _ => read(a),
        };
        for (pointer, value) in halves.into_iter().zip(new) {
            // SAFETY: as above.
            unsafe { put(pointer, 8, value) };
        }
        if d != NONE {
            at.warp.registers.row_mut::<u64>(d)[lane] = old[0];
            at.warp.registers.row_mut::<u64>(d + 2)[lane] = old[1];
        }
    }

    pub(super) fn copy(
        &mut self,
        at: &mut Issue<'_>,
        m: u32,
        (to, from): (&Access, &Access),
        source_bytes: Reg,
    ) {
        let bytes = to.size;
        let targets = self.addresses(&at.warp.registers, to);
        let sources = self.addresses(&at.warp.registers, from);
        let wanted: [u32; LANES] = match source_bytes {
            NONE => [bytes; LANES],
            reg => at.warp.registers.row::<u32>(reg).map(|n| n.min(bytes)),
        };
        let mut data = [[0u8; 16]; LANES];
        let whole = lanes(m)
            .filter(|&i| wanted[i] == bytes)
            .fold(0, |bits, i| bits | 1 << i);
        if whole != 0 {
            let resolved = self.resolve(at, whole, from, &sources, bytes, Use::Read);
            for lane in lanes(resolved.ok) {
                let step = bytes.min(8);
                for offset in (0..bytes).step_by(step as usize) {
                    // SAFETY: the access was resolved for all its bytes.
                    let value = unsafe {
                        fetch(resolved.pointers[lane].wrapping_add(offset as usize), step)
                    };
                    data[lane][offset as usize..][..step as usize]
                        .copy_from_slice(&value.to_le_bytes()[..step as usize]);
                }
            }
        }
        // A copy that reads less fills up with zeros; the part that is read is taken byte by byte.
        for lane in lanes(m & !whole) {
            for offset in 0..wanted[lane] {
                let place = sources.map(|s| s.wrapping_add(u64::from(offset)));
                let resolved = self.resolve(at, 1 << lane, from, &place, 1, Use::Read);
                if resolved.ok != 0 {
                    // SAFETY: the access was resolved for one byte.
                    data[lane][offset as usize] =
                        unsafe { fetch(resolved.pointers[lane], 1) } as u8;
                }
            }
        }
        let resolved = self.shared(at, m, &targets, bytes, Use::Write, Manner::Pending);
        if resolved.ok != 0 {
            at.warp
                .copies
                .issue(resolved.ok, bytes, targets.map(|t| t as u32), data);
        }
    }

    pub(super) fn wait(&mut self, at: &mut Issue<'_>, m: u32, pending: Option<u32>) {
        let id = at.warp.id;
        at.warp.copies.wait(m, pending, |copy, due| {
            for lane in lanes(due) {
                // Whatever is wrong with the place was found when the copy was issued.
                at.common
                    .shared
                    .note_write(id, copy.to[lane], copy.bytes, Manner::Landing);
                at.common
                    .shared
                    .write(copy.to[lane], &copy.data[lane][..copy.bytes as usize]);
            }
        });
    }
}
