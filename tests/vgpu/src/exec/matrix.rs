//! Matrix instructions: tiles and fragments between memory and the registers of a whole at.warp.

use super::{
    access::{Use, fetch, put},
    lanes::{FULL, LANES, lanes},
    step::{Issue, Worker},
};
use crate::{
    check::Kind,
    matrix::transfer,
    program::op::{Access, List, Reg},
};

/// The most registers of a fragment.
const MOST: usize = 16;

impl Worker<'_> {
    /// Matrix instructions belong to the warp: every lane must be there.
    fn check_whole(&mut self, at: &Issue<'_>, m: u32) {
        if m != FULL {
            let lane = m.trailing_zeros() as usize;
            self.reports
                .add(Kind::DivergentWarp, at.pc, at.who(lane), || {
                    format!("a matrix instruction is executed by lanes {m:#010x}, not by all")
                });
        }
    }

    pub(super) fn load_matrix(
        &mut self,
        at: &mut Issue<'_>,
        m: u32,
        access: &Access,
        d: List,
        transposed: bool,
    ) {
        self.check_whole(at, m);
        let addresses = self.addresses(&at.warp.registers, access);
        // Only the lanes that give rows read: eight for each tile.
        let givers = FULL >> (LANES as u32 - 8 * d.len);
        let resolved = self.resolve(at, givers, access, &addresses, 16, Use::Read);
        let list = &self.machine.code.lists[d.start as usize..][..d.len as usize];
        for (tile, &reg) in list.iter().enumerate() {
            let mut rows = [[0u8; 16]; 8];
            for (row, bytes) in rows.iter_mut().enumerate() {
                let lane = 8 * tile + row;
                if resolved.ok >> lane & 1 == 1 {
                    for half in 0..2 {
                        // SAFETY: the access was resolved for 16 bytes.
                        let value =
                            unsafe { fetch(resolved.pointers[lane].wrapping_add(8 * half), 8) };
                        bytes[8 * half..][..8].copy_from_slice(&value.to_le_bytes());
                    }
                }
            }
            let values = transfer::load(&rows, transposed);
            at.warp.registers.set(m, reg, |lane| values[lane]);
        }
    }

    pub(super) fn store_matrix(
        &mut self,
        at: &mut Issue<'_>,
        m: u32,
        access: &Access,
        a: List,
        transposed: bool,
    ) {
        self.check_whole(at, m);
        let addresses = self.addresses(&at.warp.registers, access);
        let givers = FULL >> (LANES as u32 - 8 * a.len);
        let resolved = self.resolve(at, givers, access, &addresses, 16, Use::Write);
        let list = &self.machine.code.lists[a.start as usize..][..a.len as usize];
        for (tile, &reg) in list.iter().enumerate() {
            let rows = transfer::store(at.warp.registers.row::<u32>(reg), transposed);
            for (row, bytes) in rows.iter().enumerate() {
                let lane = 8 * tile + row;
                if resolved.ok >> lane & 1 == 1 {
                    for (half, chunk) in bytes.as_chunks::<8>().0.iter().enumerate() {
                        let pointer = resolved.pointers[lane].wrapping_add(8 * half);
                        // SAFETY: the access was resolved for 16 bytes.
                        unsafe { put(pointer, 8, u64::from_le_bytes(*chunk)) };
                    }
                }
            }
        }
    }

    pub(super) fn mma(&mut self, at: &mut Issue<'_>, m: u32, kind: u32, [d, a, b, c]: [List; 4]) {
        self.check_whole(at, m);
        let code = self.machine.code;
        let kind = &code.products[kind as usize];
        let list = |list: List| &code.lists[list.start as usize..][..list.len as usize];
        let (d, a, b, c) = (list(d), list(a), list(b), list(c));
        let mut result = [[0u64; LANES]; MOST];
        let r = &at.warp.registers;
        let narrow = |regs: &[Reg], register: usize, lane: usize| {
            u64::from(r.row::<u32>(regs[register])[lane])
        };
        let wide = |regs: &[Reg], register: usize, lane: usize| r.row::<u64>(regs[register])[lane];
        let write = |register: usize, lane: usize, value: u64| result[register][lane] = value;
        if kind.d.bits() == 64 {
            kind.run(
                |i, l| wide(a, i, l),
                |i, l| wide(b, i, l),
                |i, l| wide(c, i, l),
                write,
            );
            for (register, &reg) in d.iter().enumerate() {
                at.warp.registers.set(m, reg, |lane| result[register][lane]);
            }
        } else {
            kind.run(
                |i, l| narrow(a, i, l),
                |i, l| narrow(b, i, l),
                |i, l| narrow(c, i, l),
                write,
            );
            for (register, &reg) in d.iter().enumerate() {
                at.warp
                    .registers
                    .set(m, reg, |lane| result[register][lane] as u32);
            }
        }
    }

    /// Loads or stores a fragment of wmma, an element of each lane at a time.
    pub(super) fn fragment(
        &mut self,
        at: &mut Issue<'_>,
        m: u32,
        (fragment, stride): (u32, Reg),
        access: &Access,
        list: List,
        load: bool,
    ) {
        self.check_whole(at, m);
        let code = self.machine.code;
        let (fragment, row_major) = code.fragments[fragment as usize];
        let bases = self.addresses(&at.warp.registers, access);
        let stride = *at.warp.registers.row::<u32>(stride);
        let (size, bits) = (access.size, access.size * 8);
        for (register, &reg) in code.lists[list.start as usize..][..list.len as usize]
            .iter()
            .enumerate()
        {
            let mut words = [0u64; LANES];
            if !load {
                words = if size == 8 {
                    *at.warp.registers.row::<u64>(reg)
                } else {
                    at.warp.registers.row::<u32>(reg).map(u64::from)
                };
            }
            for index in 0..fragment.element.per_register() {
                let addresses = std::array::from_fn(|lane| {
                    let (row, column) = fragment.position(lane, register, index);
                    let (major, minor) = if row_major {
                        (row, column)
                    } else {
                        (column, row)
                    };
                    let element = major as u64 * u64::from(stride[lane]) + minor as u64;
                    bases[lane].wrapping_add(element * u64::from(size))
                });
                let usage = if load { Use::Read } else { Use::Write };
                let resolved = self.resolve(at, m, access, &addresses, size, usage);
                let shift = index as u32 * bits;
                for lane in lanes(resolved.ok) {
                    // SAFETY: the access was resolved for one element.
                    unsafe {
                        if load {
                            words[lane] |= fetch(resolved.pointers[lane], size) << shift;
                        } else {
                            put(resolved.pointers[lane], size, words[lane] >> shift);
                        }
                    }
                }
            }
            if load && size == 8 {
                at.warp.registers.set(m, reg, |lane| words[lane]);
            } else if load {
                at.warp.registers.set(m, reg, |lane| words[lane] as u32);
            }
        }
    }
}
