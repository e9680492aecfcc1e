//! The loop that runs a warp.

use super::{
    Machine,
    block::{Call, Common, Path, Status, Warp},
    lanes::{FULL, LANES, lanes},
    report::{Reports, Who},
};
use crate::{
    check::Kind,
    counters::Counters,
    program::op::{BarrierKind, NONE, Op, Reg, Special},
};

/// One host thread's part of a launch.
pub(super) struct Worker<'a> {
    pub machine: &'a Machine<'a>,
    /// How often each instruction was issued, and by how many lanes in all.
    pub issued: Vec<(u64, u64)>,
    /// What is counted while it happens: traffic, conflicts, barriers.
    pub counters: Counters,
    pub reports: Reports,
    /// Where each memory instruction last found its allocation.
    pub hints: Vec<u32>,
    /// Stores, atomics, barriers and ends of warps since this was last added up.
    pub effects: u64,
    /// What blocks printed.
    pub printed: Vec<(u64, String)>,
}

/// An instruction that a warp executes, and where.
pub(super) struct Issue<'w> {
    pub warp: &'w mut Warp,
    pub common: &'w mut Common,
    pub pc: u32,
}

impl Issue<'_> {
    /// A lane, as a thread of its block.
    pub(super) fn who(&self, lane: usize) -> Who {
        self.warp.who(self.common, lane)
    }
}

impl<'a> Worker<'a> {
    pub(super) fn new(machine: &'a Machine<'a>) -> Self {
        let count = machine.code.insts.len();
        Self {
            machine,
            issued: vec![(0, 0); count],
            counters: Counters::default(),
            reports: Reports::default(),
            hints: vec![0; count],
            effects: 0,
            printed: Vec::new(),
        }
    }

    /// Runs a warp until it ends, waits at a barrier or has had its turn.
    pub(super) fn run(&mut self, warp: &mut Warp, common: &mut Common, turn: u64) {
        let machine = self.machine;
        let code = machine.code;
        let until = warp.executed + turn;
        while warp.executed < until {
            if (warp.path.pc == warp.path.reconverge || warp.path.mask == 0) && !warp.next_path() {
                return;
            }
            if let Some(call) = warp.finished.take() {
                self.finish_call(warp, call);
                continue;
            }
            let pc = warp.path.pc;
            let inst = &code.insts[pc as usize];
            let mut m = warp.path.mask;
            if inst.guard != NONE {
                m &= warp.registers.predicate(inst.guard) ^ if inst.negated { FULL } else { 0 };
            }
            warp.executed += 1;
            let issued = &mut self.issued[pc as usize];
            issued.0 += 1;
            issued.1 += u64::from(m.count_ones());
            if let Op::Alu(alu) = &inst.op {
                // SAFETY: `machine.alu` is the version whose features were detected.
                unsafe { (machine.alu)(&mut warp.registers, code, alu, m) };
                warp.path.pc = pc + 1;
                continue;
            }
            match inst.op {
                Op::Branch { target, reconverge } => {
                    if m == warp.path.mask {
                        warp.path.pc = target;
                    } else if m == 0 {
                        warp.path.pc = pc + 1;
                    } else {
                        self.counters.divergent_branches += 1;
                        warp.part(m, target, reconverge);
                    }
                }
                // Lanes that are switched off do nothing at all from here on.
                _ if m == 0 => warp.path.pc = pc + 1,
                Op::BranchTable {
                    index,
                    targets,
                    reconverge,
                } => {
                    let targets = &code.lists[targets.start as usize..][..targets.len as usize];
                    self.branch_table(warp, common, m, index, targets, reconverge);
                }
                Op::Exit => {
                    warp.path.pc = pc + 1;
                    warp.exit(m);
                    self.effects += 1;
                    if warp.status == Status::Done {
                        return;
                    }
                }
                Op::Call {
                    site,
                    caller,
                    frame,
                } => {
                    self.call(warp, common, m, site, caller, frame);
                    if warp.status == Status::Done {
                        return;
                    }
                }
                Op::Return => {
                    warp.path.pc = pc + 1;
                    warp.come_back(m);
                }
                Op::Trap { assertion } => {
                    let lane = m.trailing_zeros() as usize;
                    let message = match assertion {
                        None => "`trap` was executed".into(),
                        Some(frame) => self.assertion(warp, lane, frame),
                    };
                    self.reports
                        .add(Kind::Trap, pc, warp.who(common, lane), || message);
                    machine.abort();
                    warp.status = Status::Done;
                    return;
                }
                Op::Barrier { kind, id, threads } => {
                    warp.path.pc = pc + 1;
                    self.barrier(warp, common, m, pc, kind, (id, threads));
                    if warp.status != Status::Ready {
                        return;
                    }
                }
                _ => {
                    warp.path.pc = pc + 1;
                    self.other(&mut Issue { warp, common, pc }, m, &inst.op);
                }
            }
        }
    }

    /// Everything that is neither arithmetic nor control flow.
    fn other(&mut self, at: &mut Issue<'_>, m: u32, op: &Op) {
        match *op {
            Op::Load { access, d, fill } => self.load(at, m, &access, d, fill),
            Op::Store { access, a } => {
                self.effects += 1;
                self.store(at, m, &access, a);
            }
            Op::Atom {
                op,
                ty,
                access,
                d,
                a,
                b,
            } => {
                // A failed exchange changes nothing: a lock that is waited for is no progress.
                self.effects += u64::from(self.atomic(at, m, &access, (op, ty), [d, a, b]));
            }
            Op::CopyAsync {
                to,
                from,
                source_bytes,
            } => self.copy(at, m, (&to, &from), source_bytes),
            Op::CommitGroup => at.warp.copies.commit(m),
            Op::WaitGroup { pending } => self.wait(at, m, pending),
            Op::Fence { device } => at.common.stand.fenced |= device,
            Op::Special { d, which, wide } => self.special(at.warp, at.common, m, d, which, wide),
            Op::WarpSync { mask } => {
                let named = at.warp.registers.row::<u32>(mask);
                let named = lanes(m).map(|i| named[i]).collect::<Vec<_>>();
                self.check_members(at, m, "the mask", &named);
            }
            Op::Shuffle {
                mode,
                d,
                p,
                a,
                b,
                c,
                mask,
            } => {
                self.shuffle(at, m, mode, [d, p, a, b, c, mask]);
            }
            Op::Vote {
                mode,
                negate,
                d,
                a,
                mask,
            } => self.vote(at, m, mode, negate, [d, a, mask]),
            Op::Match {
                all,
                wide,
                d,
                p,
                a,
                mask,
            } => self.matching(at, m, all, wide, [d, p, a, mask]),
            Op::Redux {
                op,
                signed,
                d,
                a,
                mask,
            } => self.redux(at, m, op, signed, [d, a, mask]),
            Op::ActiveMask { d } => at.warp.registers.set(m, d, |_| m),
            Op::Elect { d, p, mask } => self.elect(at, m, [d, p, mask]),
            Op::IsSpace { space, d, a } => {
                let bits = at.warp.registers.test2(a, a, |address: u64, _| {
                    super::access::space_of(address) == space
                });
                at.warp.registers.set_predicate(m, d, bits);
            }
            Op::LoadMatrix {
                access,
                d,
                transposed,
            } => self.load_matrix(at, m, &access, d, transposed),
            Op::StoreMatrix {
                access,
                a,
                transposed,
            } => self.store_matrix(at, m, &access, a, transposed),
            Op::Mma { kind, d, a, b, c } => self.mma(at, m, kind, [d, a, b, c]),
            Op::LoadFragment {
                fragment,
                access,
                stride,
                d,
            } => {
                self.fragment(at, m, (fragment, stride), &access, d, true);
            }
            Op::StoreFragment {
                fragment,
                access,
                stride,
                a,
            } => {
                self.fragment(at, m, (fragment, stride), &access, a, false);
            }
            Op::Print {
                format,
                arguments,
                result,
            } => self.print(at.warp, at.common, m, format, arguments, result),
            Op::Nop
            | Op::Alu(_)
            | Op::Branch { .. }
            | Op::BranchTable { .. }
            | Op::Exit
            | Op::Trap { .. } => {}
            Op::Barrier { .. } | Op::Call { .. } | Op::Return => {}
        }
    }

    /// Begins a subroutine: the caller waits, its registers are kept, its arguments are copied.
    fn call(
        &mut self,
        warp: &mut Warp,
        common: &Common,
        m: u32,
        site: u32,
        caller: Reg,
        frame: Reg,
    ) {
        let code = self.machine.code;
        let call = &code.calls[site as usize];
        let mut frames = [0; LANES];
        if caller != NONE {
            frames = *warp.registers.row::<u64>(caller);
        }
        let saved = warp.registers.clone();
        for lane in lanes(m) {
            let (from, to) = (frames[lane], frames[lane] + u64::from(call.caller_bytes));
            if to + u64::from(call.callee_bytes) > u64::from(code.frame) {
                let (pc, who) = (warp.path.pc, warp.who(common, lane));
                self.reports.add(Kind::Trap, pc, who, || {
                    format!("the stack of {} bytes is full", code.frame)
                });
                self.machine.abort();
                warp.status = Status::Done;
                return;
            }
            frames[lane] = to;
            let local = warp.local.bytes_mut(lane);
            for &(here, there, bytes) in &call.arguments {
                let start = (from + u64::from(here)) as usize;
                local.copy_within(
                    start..start + bytes as usize,
                    (to + u64::from(there)) as usize,
                );
            }
        }
        warp.registers.set(m, frame, |lane| frames[lane]);
        let depth = warp.stack.len();
        warp.calls.push(Call {
            site,
            depth,
            saved,
            frames,
        });
        warp.stack.push(Path {
            pc: warp.path.pc + 1,
            ..warp.path
        });
        warp.path = Path {
            pc: call.target,
            mask: m,
            reconverge: u32::MAX,
        };
    }

    /// Ends a subroutine that all lanes have come back from. No other lanes ran meanwhile, so all registers are the
    /// caller's again.
    fn finish_call(&mut self, warp: &mut Warp, call: Call) {
        let code = self.machine.code;
        let site = &code.calls[call.site as usize];
        warp.registers = call.saved;
        for lane in lanes(warp.path.mask) {
            let local = warp.local.bytes_mut(lane);
            let (callee, caller) = (
                call.frames[lane],
                call.frames[lane] - u64::from(site.caller_bytes),
            );
            for &(here, there, bytes) in &site.returns {
                let start = (callee + u64::from(there)) as usize;
                local.copy_within(
                    start..start + bytes as usize,
                    (caller + u64::from(here)) as usize,
                );
            }
        }
    }

    fn branch_table(
        &mut self,
        warp: &mut Warp,
        common: &Common,
        m: u32,
        index: Reg,
        targets: &[u32],
        reconverge: u32,
    ) {
        let pc = warp.path.pc;
        let index = *warp.registers.row::<u32>(index);
        let mut pieces: Vec<(u32, u32)> = Vec::new();
        let stay = warp.path.mask & !m;
        if stay != 0 {
            pieces.push((pc + 1, stay));
        }
        for lane in lanes(m) {
            let Some(&target) = targets.get(index[lane] as usize) else {
                let who = warp.who(common, lane);
                self.reports.add(Kind::Trap, pc, who, || {
                    format!("branch {} of a table of {}", index[lane], targets.len())
                });
                self.machine.abort();
                warp.status = Status::Done;
                return;
            };
            match pieces.iter_mut().find(|(t, _)| *t == target) {
                Some((_, mask)) => *mask |= 1 << lane,
                None => pieces.push((target, 1 << lane)),
            }
        }
        if let [(target, _)] = pieces[..] {
            warp.path.pc = target;
            return;
        }
        self.counters.divergent_branches += 1;
        let outer = warp.path.reconverge;
        warp.meet_at(reconverge);
        let inner = if reconverge == u32::MAX {
            outer
        } else {
            reconverge
        };
        for (pc, mask) in pieces {
            warp.stack.push(Path {
                pc,
                mask,
                reconverge: inner,
            });
        }
        warp.next_path();
    }

    fn barrier(
        &mut self,
        warp: &mut Warp,
        common: &mut Common,
        m: u32,
        pc: u32,
        kind: BarrierKind,
        (id, threads): (Reg, Reg),
    ) {
        let who = warp.who(common, m.trailing_zeros() as usize);
        if m != warp.live {
            self.reports.add(Kind::DivergentBarrier, pc, who, || {
                format!(
                    "lanes {m:#010x} of warp {} are at a barrier, its live lanes are {:#010x}",
                    warp.id, warp.live
                )
            });
        }
        let id = warp.uniform(id, m);
        let threads = (threads != NONE).then(|| warp.uniform(threads, m));
        let Some(barrier) = common.barriers.get_mut(id as usize) else {
            self.reports
                .add(Kind::Trap, pc, who, || format!("barrier {id} of 16"));
            self.machine.abort();
            warp.status = Status::Done;
            return;
        };
        if let Some(count) = threads.filter(|&t| t == 0 || t % LANES as u32 != 0) {
            self.reports.add(Kind::Trap, pc, who, || {
                format!("a barrier of {count} threads, which are no whole warps")
            });
        }
        barrier.arrived |= 1 << warp.id;
        barrier.threads = threads;
        barrier.pc = pc;
        self.counters.barriers += 1;
        self.effects += 1;
        if kind != BarrierKind::Arrive {
            warp.status = Status::Waiting {
                barrier: id,
                kind,
                mask: m,
            };
        }
    }

    fn special(
        &mut self,
        warp: &mut Warp,
        common: &Common,
        m: u32,
        d: Reg,
        which: Special,
        wide: bool,
    ) {
        let launch = self.machine.launch;
        let same = |value: u64| [value; LANES];
        let lane_bits = |f: fn(u32) -> u32| std::array::from_fn(|lane| u64::from(f(1 << lane)));
        let time = || self.machine.started.elapsed().as_nanos() as u64;
        let values: [u64; LANES] = match which {
            Special::Tid(axis) => warp.threads[axis as usize].map(u64::from),
            Special::Ntid(axis) => same(u64::from(launch.block[axis as usize])),
            Special::Ctaid(axis) => same(u64::from(common.index[axis as usize])),
            Special::Nctaid(axis) => same(u64::from(launch.grid[axis as usize])),
            Special::LaneId => std::array::from_fn(|lane| lane as u64),
            Special::WarpId => same(u64::from(warp.id)),
            Special::NWarpId => same(u64::from(
                launch.block.iter().product::<u32>().div_ceil(LANES as u32),
            )),
            Special::SmId => same(common.number % 16),
            Special::NSmId => same(16),
            Special::GridId => same(1),
            Special::LaneMaskEq => lane_bits(|bit| bit),
            Special::LaneMaskLt => lane_bits(|bit| bit - 1),
            Special::LaneMaskLe => lane_bits(|bit| bit | (bit - 1)),
            Special::LaneMaskGt => lane_bits(|bit| !(bit | (bit - 1))),
            Special::LaneMaskGe => lane_bits(|bit| !(bit - 1)),
            // Instructions that this warp has executed: a clock that is the same in every run.
            Special::Clock => same(warp.executed),
            Special::ClockHigh => same(warp.executed >> 32),
            Special::GlobalTimer => same(time()),
            Special::GlobalTimerLow => same(time() & 0xffff_ffff),
            Special::GlobalTimerHigh => same(time() >> 32),
            Special::TotalShared => same(u64::from(common.shared.bytes)),
            Special::DynamicShared => same(u64::from(launch.dynamic_shared)),
            Special::Env(1) => same(self.machine.workspace >> 32),
            Special::Env(2) => same(self.machine.workspace & 0xffff_ffff),
            Special::Env(_) => same(0),
        };
        if wide {
            warp.registers.set(m, d, |lane| values[lane]);
        } else {
            warp.registers.set(m, d, |lane| values[lane] as u32);
        }
    }
}
