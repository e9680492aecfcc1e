//! Instructions by which the lanes of a warp talk to each other.

use super::{
    lanes::{FULL, LANES, lanes},
    step::{Issue, Worker},
};
use crate::{
    check::Kind,
    program::op::{AtomOp, NONE, Reg, ShuffleMode, VoteMode},
};

impl Worker<'_> {
    /// Checks the member masks that the active lanes give, in the order of the lanes: each lane must name itself, and
    /// no lane that is elsewhere. Lanes that have exited may be named.
    pub(super) fn check_members(&mut self, at: &Issue<'_>, m: u32, what: &str, named: &[u32]) {
        for (lane, &mask) in lanes(m).zip(named) {
            let missing = mask & at.warp.live & !m;
            if missing != 0 {
                self.reports
                    .add(Kind::DivergentWarp, at.pc, at.who(lane), || {
                        format!(
                            "{what} {mask:#010x} names lanes {missing:#010x}, which are elsewhere"
                        )
                    });
            } else if mask >> lane & 1 == 0 {
                self.reports
                    .add(Kind::DivergentWarp, at.pc, at.who(lane), || {
                        format!("{what} {mask:#010x} does not name lane {lane}, which executes it")
                    });
            }
        }
    }

    /// The member mask of each lane, checked.
    fn members(&mut self, at: &Issue<'_>, m: u32, mask: Reg) -> [u32; LANES] {
        let named = *at.warp.registers.row::<u32>(mask);
        let first = named[m.trailing_zeros() as usize];
        // One comparison settles the usual case: all lanes there, all naming all.
        let usual = m == at.warp.live && lanes(m).all(|i| named[i] == first) && first & m == m;
        if !usual {
            let list: Vec<u32> = lanes(m).map(|i| named[i]).collect();
            self.check_members(at, m, "the member mask", &list);
        }
        named
    }

    pub(super) fn shuffle(
        &mut self,
        at: &mut Issue<'_>,
        m: u32,
        mode: ShuffleMode,
        [d, p, a, b, c, mask]: [Reg; 6],
    ) {
        self.members(at, m, mask);
        let r = &at.warp.registers;
        let (a, b, c) = (*r.row::<u32>(a), *r.row::<u32>(b), *r.row::<u32>(c));
        let mut result = [0; LANES];
        let mut valid = 0;
        for lane in lanes(m) {
            let (own, by) = (lane as u32, b[lane] & 31);
            let (clamp, segment) = (c[lane] & 31, c[lane] >> 8 & 31);
            let first = own & segment;
            let last = first | clamp & !segment;
            let (source, inside) = match mode {
                // The bound of `up` is the lower end, which the same field gives.
                ShuffleMode::Up => (
                    own.wrapping_sub(by),
                    own.wrapping_sub(by) as i32 >= last as i32,
                ),
                ShuffleMode::Down => (own + by, own + by <= last),
                ShuffleMode::Butterfly => (own ^ by, own ^ by <= last),
                ShuffleMode::Index => {
                    let source = first | by & !segment;
                    (source, source <= last)
                }
            };
            let source = if inside {
                source as usize % LANES
            } else {
                lane
            };
            valid |= u32::from(inside) << lane;
            if m >> source & 1 == 0 {
                self.reports.add(Kind::DivergentWarp, at.pc, at.who(lane), || {
                    format!("lane {lane} reads the register of lane {source}, which does not take part")
                });
            }
            result[lane] = a[source];
        }
        at.warp.registers.set(m, d, |i| result[i]);
        at.warp.registers.set_predicate(m, p, valid);
    }

    pub(super) fn vote(
        &mut self,
        at: &mut Issue<'_>,
        m: u32,
        mode: VoteMode,
        negate: bool,
        [d, a, mask]: [Reg; 3],
    ) {
        let members = self.members(at, m, mask);
        let votes = (at.warp.registers.predicate(a) ^ if negate { FULL } else { 0 }) & m;
        if mode == VoteMode::Ballot {
            at.warp.registers.set(m, d, |i| votes & members[i]);
            return;
        }
        let mut result = 0;
        for lane in lanes(m) {
            let there = members[lane] & m;
            let yes = votes & there;
            let value = match mode {
                VoteMode::All => yes == there,
                VoteMode::Any => yes != 0,
                _ => yes == there || yes == 0,
            };
            result |= u32::from(value) << lane;
        }
        at.warp.registers.set_predicate(m, d, result);
    }

    pub(super) fn matching(
        &mut self,
        at: &mut Issue<'_>,
        m: u32,
        all: bool,
        wide: bool,
        [d, p, a, mask]: [Reg; 4],
    ) {
        let members = self.members(at, m, mask);
        let values: [u64; LANES] = if wide {
            *at.warp.registers.row::<u64>(a)
        } else {
            at.warp.registers.row::<u32>(a).map(u64::from)
        };
        let mut result = [0; LANES];
        let mut same = 0;
        for lane in lanes(m) {
            let there = members[lane] & m;
            let equal = lanes(there)
                .filter(|&o| values[o] == values[lane])
                .fold(0, |bits, o| bits | 1 << o);
            let complete = equal == there;
            result[lane] = if all && !complete { 0 } else { equal };
            same |= u32::from(complete) << lane;
        }
        at.warp.registers.set(m, d, |i| result[i]);
        if p != NONE {
            at.warp.registers.set_predicate(m, p, same);
        }
    }

    pub(super) fn redux(
        &mut self,
        at: &mut Issue<'_>,
        m: u32,
        op: AtomOp,
        signed: bool,
        [d, a, mask]: [Reg; 3],
    ) {
        let members = self.members(at, m, mask);
        let values = *at.warp.registers.row::<u32>(a);
        let fold = |x: u32, y: u32| match op {
            AtomOp::Min if signed => (x as i32).min(y as i32) as u32,
            AtomOp::Max if signed => (x as i32).max(y as i32) as u32,
            AtomOp::Min => x.min(y),
            AtomOp::Max => x.max(y),
            AtomOp::And => x & y,
            AtomOp::Or => x | y,
            AtomOp::Xor => x ^ y,
            _ => x.wrapping_add(y),
        };
        let mut result = [0; LANES];
        for lane in lanes(m) {
            let there = members[lane] & m;
            result[lane] = lanes(there)
                .map(|i| values[i])
                .reduce(fold)
                .unwrap_or(values[lane]);
        }
        at.warp.registers.set(m, d, |i| result[i]);
    }

    pub(super) fn elect(&mut self, at: &mut Issue<'_>, m: u32, [d, p, mask]: [Reg; 3]) {
        let members = self.members(at, m, mask);
        let leader = |lane: usize| (members[lane] & m).trailing_zeros().min(31);
        let elected = lanes(m)
            .filter(|&i| leader(i) == i as u32)
            .fold(0, |bits, i| bits | 1 << i);
        at.warp.registers.set(m, d, leader);
        at.warp.registers.set_predicate(m, p, elected);
    }
}
