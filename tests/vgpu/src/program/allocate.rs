//! Virtual registers → rows of the register file.
//!
//! Compilers write PTX in static single assignment: thousands of registers of which a hundred are live at once. Rows
//! are shared by registers whose lifetimes do not meet, by a linear scan; a lifetime is the whole stretch of
//! instructions from the first to the last at which the register is live. Lanes follow the same graph each on its
//! own, so what holds for one thread holds for each lane of a warp.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    Code,
    flow::Graph,
    lower::{Constant, Virtual},
    op::{NONE, Reg, Role},
};

/// Rewrites all operands, and returns the greatest number of 32-bit registers live at once.
pub(super) fn allocate(
    code: &mut Code,
    graph: &Graph,
    registers: &[Virtual],
    dynamic_shared: u32,
) -> u32 {
    let (live_in, live_out) = liveness(code, graph, registers);
    let (lifetimes, most) = lifetimes(code, graph, registers, &live_in, &live_out);
    let mut rows = vec![NONE; registers.len()];
    let mut order: Vec<usize> = (0..registers.len())
        .filter(|&r| lifetimes[r].0 <= lifetimes[r].1)
        .collect();
    order.sort_unstable_by_key(|&r| lifetimes[r]);
    // Rows given back, by the kind of register: predicate, 32, 64 and 128 bits.
    let mut free: [Vec<Reg>; 4] = Default::default();
    let mut active: BinaryHeap<Reverse<(u32, usize)>> = BinaryHeap::new();
    for r in order {
        let (start, end) = lifetimes[r];
        while let Some(&Reverse((until, other))) = active.peek() {
            if until >= start {
                break;
            }
            active.pop();
            free[kind(registers[other].bits)].push(rows[other]);
        }
        let kind = kind(registers[r].bits);
        rows[r] = free[kind].pop().unwrap_or_else(|| {
            let next = if kind == 0 {
                &mut code.predicates
            } else {
                &mut code.rows
            };
            let row = *next;
            *next += if kind == 0 {
                1
            } else {
                width(registers[r].bits)
            };
            row
        });
        active.push(Reverse((end, r)));
    }
    code.first_constant = code.rows;
    let mut constants = Vec::new();
    let mut insts = std::mem::take(&mut code.insts);
    let mut lists = std::mem::take(&mut code.lists);
    for inst in &mut insts {
        if inst.guard != NONE {
            inst.guard = rows[inst.guard as usize];
        }
        inst.op.visit(&mut lists, &mut |reg, _| {
            let virtual_register = registers[*reg as usize];
            if let Some(constant) = virtual_register.constant
                && rows[*reg as usize] == NONE
            {
                rows[*reg as usize] = code.rows;
                let value = match constant {
                    Constant::Bits(bits) => bits,
                    Constant::DynamicShared(offset) => {
                        u64::from(dynamic_shared).wrapping_add_signed(offset)
                    }
                };
                constants.push((code.rows, virtual_register.bits > 32, value));
                code.rows += width(virtual_register.bits);
            }
            *reg = rows[*reg as usize];
        });
    }
    code.insts = insts;
    code.lists = lists;
    code.constants = constants;
    most
}

fn kind(bits: u32) -> usize {
    match bits {
        1 => 0,
        128 => 3,
        64 => 2,
        _ => 1,
    }
}

/// Rows of a register.
fn width(bits: u32) -> u32 {
    bits.div_ceil(32)
}

type Sets = Vec<Box<[u64]>>;

fn insert(set: &mut [u64], reg: Reg) {
    set[reg as usize / 64] |= 1 << (reg % 64);
}

fn remove(set: &mut [u64], reg: Reg) {
    set[reg as usize / 64] &= !(1 << (reg % 64));
}

/// Visits the registers of an instruction that are not constants: uses first, then definitions. A guarded definition
/// leaves the old value where the guard does not hold and so does not end a lifetime: it is told as `false`.
fn operands(
    code: &mut Code,
    pc: usize,
    registers: &[Virtual],
    visit: &mut dyn FnMut(Reg, Role, bool),
) {
    let inst = &mut code.insts[pc];
    let (guard, kills) = (inst.guard, inst.guard == NONE);
    if guard != NONE {
        visit(guard, Role::Use, false);
    }
    for role in [Role::Use, Role::Define] {
        inst.op.visit(&mut code.lists, &mut |reg, found| {
            if found == role && registers[*reg as usize].constant.is_none() {
                visit(*reg, role, kills);
            }
        });
    }
}

/// The registers live at the start and at the end of each block.
fn liveness(code: &mut Code, graph: &Graph, registers: &[Virtual]) -> (Sets, Sets) {
    let words = registers.len().div_ceil(64);
    let blocks = graph.successors.len();
    let empty = || vec![vec![0u64; words].into_boxed_slice(); blocks];
    let (mut used, mut defined) = (empty(), empty());
    for block in 0..blocks {
        for pc in graph.starts[block]..graph.starts[block + 1] {
            let (used, defined) = (&mut used[block], &mut defined[block]);
            operands(
                code,
                pc as usize,
                registers,
                &mut |reg, role, kills| match role {
                    Role::Use => {
                        if defined[reg as usize / 64] >> (reg % 64) & 1 == 0 {
                            insert(used, reg);
                        }
                    }
                    Role::Define if kills => insert(defined, reg),
                    Role::Define => {}
                },
            );
        }
    }
    let (mut live_in, mut live_out) = (used, empty());
    let mut changed = true;
    while changed {
        changed = false;
        for block in (0..blocks).rev() {
            for &next in &graph.successors[block] {
                for word in 0..words {
                    let added = live_in[next][word] & !live_out[block][word];
                    if added != 0 {
                        live_out[block][word] |= added;
                        live_in[block][word] |= added & !defined[block][word];
                        changed = true;
                    }
                }
            }
        }
    }
    (live_in, live_out)
}

/// First and last instruction of each register's life, and the most 32-bit registers live at once.
fn lifetimes(
    code: &mut Code,
    graph: &Graph,
    registers: &[Virtual],
    live_in: &Sets,
    live_out: &Sets,
) -> (Vec<(u32, u32)>, u32) {
    let mut lives = vec![(u32::MAX, 0); registers.len()];
    let mut most = 0;
    let weight = |reg: Reg| match registers[reg as usize].bits {
        1 => 0,
        bits => width(bits),
    };
    let mut meet = |reg: usize, pc: u32| {
        let (first, last) = &mut lives[reg];
        *first = (*first).min(pc);
        *last = (*last).max(pc);
    };
    for block in 0..graph.successors.len() {
        let (start, end) = (graph.starts[block], graph.starts[block + 1]);
        for (set, pc) in [(&live_in[block], start), (&live_out[block], end - 1)] {
            for (word, &bits) in set.iter().enumerate() {
                let mut bits = bits;
                while bits != 0 {
                    meet(word * 64 + bits.trailing_zeros() as usize, pc);
                    bits &= bits - 1;
                }
            }
        }
        let mut live = live_out[block].clone();
        let mut count: u32 = (0..registers.len() as Reg)
            .filter(|&r| live[r as usize / 64] >> (r % 64) & 1 == 1)
            .map(weight)
            .sum();
        most = most.max(count);
        for pc in (start..end).rev() {
            let mut uses = Vec::new();
            operands(code, pc as usize, registers, &mut |reg, role, kills| {
                meet(reg as usize, pc);
                match role {
                    Role::Use => uses.push(reg),
                    Role::Define if kills && live[reg as usize / 64] >> (reg % 64) & 1 == 1 => {
                        remove(&mut live, reg);
                        count -= weight(reg);
                    }
                    Role::Define => {}
                }
            });
            for reg in uses {
                if live[reg as usize / 64] >> (reg % 64) & 1 == 0 {
                    insert(&mut live, reg);
                    count += weight(reg);
                }
            }
            most = most.max(count);
        }
    }
    (lives, most)
}
