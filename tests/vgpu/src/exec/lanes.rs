//! The registers of a warp and loops over its lanes.
//!
//! A register is a row of 32 lanes, so that one instruction is one pass over a few rows which the compiler turns into
//! vector instructions. A full warp takes that path; a warp with lanes switched off goes lane by lane.

use crate::program::{
    Code,
    op::{NONE, Reg},
};

/// Threads of a warp.
pub(super) const LANES: usize = 32;

/// The mask of a warp with all lanes active.
pub(super) const FULL: u32 = u32::MAX;

/// Rows at the end of a register file for results that nobody wants.
const SCRATCH: usize = 4;

/// Lanes done at a time in a full warp: two vectors of four doubles, or one of eight singles.
const CHUNK: usize = 8;

#[derive(Clone, Copy, Debug)]
#[repr(align(128))]
#[expect(
    dead_code,
    reason = "rows are reached through pointers, several of them as one register"
)]
struct Row([u32; LANES]);

/// A value as it lies in a row.
pub(super) trait Lane: Copy {
    /// `u32` or `u64`.
    type Bits: Copy;
    fn load(bits: Self::Bits) -> Self;
    fn store(self) -> Self::Bits;
}

macro_rules! lane {
    ($($ty:ty, $bits:ty, $load:expr, $store:expr;)+) => { $(
        impl Lane for $ty {
            type Bits = $bits;
            #[inline(always)]
            fn load(bits: $bits) -> Self {
                ($load)(bits)
            }
            #[inline(always)]
            fn store(self) -> $bits {
                ($store)(self)
            }
        }
    )+ };
}

lane! {
    u16, u32, |b| b as u16, |v: u16| u32::from(v);
    i16, u32, |b| b as i16, |v: i16| u32::from(v as u16);
    u32, u32, |b| b, |v| v;
    i32, u32, |b| b as i32, |v: i32| v as u32;
    u64, u64, |b| b, |v| v;
    i64, u64, |b| b as i64, |v: i64| v as u64;
    f32, u32, f32::from_bits, f32::to_bits;
    f64, u64, f64::from_bits, f64::to_bits;
}

/// The registers of one warp.
#[derive(Clone, Debug)]
pub(super) struct Registers {
    rows: Box<[Row]>,
    predicates: Box<[u32]>,
    /// The carry flag of each lane.
    pub carry: u32,
}

impl Registers {
    pub(super) fn new(code: &Code) -> Self {
        let mut registers = Self {
            rows: vec![Row([0; LANES]); code.rows as usize + SCRATCH].into_boxed_slice(),
            predicates: vec![0; code.predicates as usize + 1].into_boxed_slice(),
            carry: 0,
        };
        for &(row, wide, value) in &code.constants {
            if wide {
                registers.set_all::<u64>(row, value);
            } else {
                registers.set_all::<u32>(row, value as u32);
            }
        }
        registers
    }

    /// Zeroes everything but the constants, for the next block.
    pub(super) fn reset(&mut self, code: &Code) {
        self.rows[..code.first_constant as usize].fill(Row([0; LANES]));
        self.predicates.fill(0);
        self.carry = 0;
    }

    #[inline(always)]
    fn index(&self, reg: Reg, rows: usize) -> usize {
        let index = if reg == NONE {
            self.rows.len() - SCRATCH
        } else {
            reg as usize
        };
        assert!(index + rows <= self.rows.len());
        index
    }

    /// The start of a register: 32 values of `T`, all within the file.
    #[inline(always)]
    fn pointer<T: Lane>(&self, reg: Reg) -> *const T::Bits {
        let index = self.index(reg, size_of::<T::Bits>() / 4);
        self.rows[index..].as_ptr().cast()
    }

    #[inline(always)]
    fn pointer_mut<T: Lane>(&mut self, reg: Reg) -> *mut T::Bits {
        let index = self.index(reg, size_of::<T::Bits>() / 4);
        self.rows[index..].as_mut_ptr().cast()
    }

    /// All lanes of a register.
    #[inline(always)]
    pub(super) fn row<T: Lane>(&self, reg: Reg) -> &[T::Bits; LANES] {
        // SAFETY: `pointer` checked that the rows are there; any bits are valid in a row, whose alignment is 128.
        unsafe { &*self.pointer::<T>(reg).cast() }
    }

    /// All lanes of a register, to be written.
    #[inline(always)]
    pub(super) fn row_mut<T: Lane>(&mut self, reg: Reg) -> &mut [T::Bits; LANES] {
        // SAFETY: as for `row`, and the borrow is exclusive.
        unsafe { &mut *self.pointer_mut::<T>(reg).cast() }
    }

    /// Sets all lanes.
    pub(super) fn set_all<T: Lane>(&mut self, reg: Reg, value: T) {
        self.row_mut::<T>(reg).fill(value.store());
    }

    /// Sets the lanes of a mask.
    #[inline(always)]
    pub(super) fn set<T: Lane>(&mut self, mask: u32, reg: Reg, value: impl Fn(usize) -> T) {
        let row = self.row_mut::<T>(reg);
        if mask == FULL {
            for lane in 0..LANES {
                row[lane] = value(lane).store();
            }
        } else {
            for lane in lanes(mask) {
                row[lane] = value(lane).store();
            }
        }
    }

    #[inline(always)]
    pub(super) fn predicate(&self, reg: Reg) -> u32 {
        self.predicates[reg as usize]
    }

    /// Sets a predicate in the lanes of a mask.
    #[inline(always)]
    pub(super) fn set_predicate(&mut self, mask: u32, reg: Reg, value: u32) {
        if reg != NONE {
            let slot = &mut self.predicates[reg as usize];
            *slot = *slot & !mask | value & mask;
        }
    }

    /// `d = f(a)` in the lanes of a mask.
    #[inline(always)]
    pub(super) fn map1<D: Lane, A: Lane>(&mut self, mask: u32, d: Reg, a: Reg, f: impl Fn(A) -> D) {
        let (a, d) = (self.pointer::<A>(a), self.pointer_mut::<D>(d));
        if mask == FULL {
            for c in (0..LANES).step_by(CHUNK) {
                // SAFETY: both rows have 32 values and `c + CHUNK` is at most that. A chunk is read before it is
                // written and rows are the same or disjoint, so in place is as good as apart.
                unsafe {
                    let x = a.add(c).cast::<[A::Bits; CHUNK]>().read();
                    let r: [D::Bits; CHUNK] = std::array::from_fn(|i| f(A::load(x[i])).store());
                    d.add(c).cast::<[D::Bits; CHUNK]>().write(r);
                }
            }
        } else {
            for i in lanes(mask) {
                // SAFETY: both rows have 32 values.
                unsafe { d.add(i).write(f(A::load(a.add(i).read())).store()) };
            }
        }
    }

    /// `d = f(a, b)` in the lanes of a mask.
    #[inline(always)]
    pub(super) fn map2<D: Lane, A: Lane, B: Lane>(
        &mut self,
        mask: u32,
        d: Reg,
        a: Reg,
        b: Reg,
        f: impl Fn(A, B) -> D,
    ) {
        let (a, b, d) = (
            self.pointer::<A>(a),
            self.pointer::<B>(b),
            self.pointer_mut::<D>(d),
        );
        if mask == FULL {
            for c in (0..LANES).step_by(CHUNK) {
                // SAFETY: as in `map1`.
                unsafe {
                    let x = a.add(c).cast::<[A::Bits; CHUNK]>().read();
                    let y = b.add(c).cast::<[B::Bits; CHUNK]>().read();
                    let r: [D::Bits; CHUNK] =
                        std::array::from_fn(|i| f(A::load(x[i]), B::load(y[i])).store());
                    d.add(c).cast::<[D::Bits; CHUNK]>().write(r);
                }
            }
        } else {
            for i in lanes(mask) {
                // SAFETY: all rows have 32 values.
                unsafe {
                    d.add(i)
                        .write(f(A::load(a.add(i).read()), B::load(b.add(i).read())).store())
                };
            }
        }
    }

    /// `d = f(a, b, c)` in the lanes of a mask.
    #[inline(always)]
    pub(super) fn map3<D: Lane, A: Lane, B: Lane, C: Lane>(
        &mut self,
        mask: u32,
        d: Reg,
        [a, b, c]: [Reg; 3],
        f: impl Fn(A, B, C) -> D,
    ) {
        let (a, b, c) = (
            self.pointer::<A>(a),
            self.pointer::<B>(b),
            self.pointer::<C>(c),
        );
        let d = self.pointer_mut::<D>(d);
        if mask == FULL {
            for at in (0..LANES).step_by(CHUNK) {
                // SAFETY: as in `map1`.
                unsafe {
                    let x = a.add(at).cast::<[A::Bits; CHUNK]>().read();
                    let y = b.add(at).cast::<[B::Bits; CHUNK]>().read();
                    let z = c.add(at).cast::<[C::Bits; CHUNK]>().read();
                    let r: [D::Bits; CHUNK] = std::array::from_fn(|i| {
                        f(A::load(x[i]), B::load(y[i]), C::load(z[i])).store()
                    });
                    d.add(at).cast::<[D::Bits; CHUNK]>().write(r);
                }
            }
        } else {
            for i in lanes(mask) {
                // SAFETY: all rows have 32 values.
                unsafe {
                    let r = f(
                        A::load(a.add(i).read()),
                        B::load(b.add(i).read()),
                        C::load(c.add(i).read()),
                    );
                    d.add(i).write(r.store());
                }
            }
        }
    }

    /// The lanes, of all 32, where `f(a, b)` holds.
    #[inline(always)]
    pub(super) fn test2<A: Lane>(&self, a: Reg, b: Reg, f: impl Fn(A, A) -> bool) -> u32 {
        let (x, y) = (self.row::<A>(a), self.row::<A>(b));
        let mut bits = 0;
        for i in 0..LANES {
            bits |= u32::from(f(A::load(x[i]), A::load(y[i]))) << i;
        }
        bits
    }
}

/// The numbers of the lanes of a mask, ascending.
#[inline(always)]
pub(super) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        if rest == 0 {
            return None;
        }
        let lane = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        Some(lane)
    })
}
