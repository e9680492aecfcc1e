//! Running queued work: what is done, what it touched, and when it would have run.

use std::{collections::BTreeMap, io::Write, sync::Arc};

use serde::Serialize;

use super::{Access, AccessMap, Conflict};
use super::{
    Action, Clock, Copy, Engine, Fill, HostCall, KernelCall, Place, Point, held_back, work,
    work::Work,
};
use crate::{
    check::{Finding, Kind},
    counters::Counters,
    device::{Description, Occupancy, model},
    exec::{self, Launch},
    timeline::{self, Piece},
};

/// What [`Engine::step`] came to.
#[derive(Debug)]
pub enum Step {
    /// The work asked for has run.
    Done,
    /// This function has to be called, without holding any lock, and [`Engine::called`] after it; then step again.
    Call(HostCall),
}

/// One launch, with what was counted.
#[derive(Clone, Debug, Serialize)]
pub struct LaunchRecord {
    /// The kernel.
    pub kernel: String,
    /// In words: "stream 2".
    pub stream: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads.
    pub block: [u32; 3],
    /// Bytes of shared memory, static and dynamic.
    pub shared: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// What was counted.
    pub counters: Counters,
}

impl LaunchRecord {
    /// Blocks in all.
    pub fn blocks(&self) -> u64 {
        self.grid.iter().map(|&n| u64::from(n)).product()
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    /// Resident blocks on a device.
    pub fn occupancy(&self, device: &Description) -> Occupancy {
        device.occupancy(self.threads(), self.registers, self.shared)
    }

    /// Modelled time on a device.
    pub fn time(&self, device: &Description) -> model::Time {
        model::time(
            device,
            &self.counters,
            self.blocks(),
            self.threads(),
            &self.occupancy(device),
        )
    }
}

/// Sums over all launches of one kernel.
#[derive(Clone, Debug, Default, Serialize)]
pub struct KernelTotals {
    /// Launches.
    pub launches: u64,
    /// Modelled time on the device chosen, in microseconds.
    pub microseconds: f64,
    /// What was counted.
    pub counters: Counters,
}

/// Launches: sums for all, details for the first ones.
#[derive(Debug, Default)]
pub struct LaunchLog {
    /// The first launches.
    pub first: Vec<LaunchRecord>,
    /// Sums by kernel.
    pub totals: BTreeMap<String, KernelTotals>,
}

/// Defects that a launch does not go on after.
const STOPPING: [Kind; 5] = [
    Kind::OutOfBounds,
    Kind::UseAfterFree,
    Kind::Misaligned,
    Kind::Stuck,
    Kind::Trap,
];
/// Launches whose details are kept.
const KEPT_LAUNCHES: usize = 4096;
/// Share of the link's bandwidth that copies from or to ordinary host memory reach: they pass a staging buffer.
const PAGEABLE_SHARE: f64 = 0.5;

/// What a piece of work came to: the memory it used, and its place on the timeline.
#[derive(Debug, Default)]
struct Effect {
    device_reads: Vec<(u64, u64)>,
    device_writes: Vec<(u64, u64)>,
    host_reads: Vec<(u64, u64)>,
    host_writes: Vec<(u64, u64)>,
    engine: Option<timeline::Engine>,
    duration: f64,
    share: f64,
}

impl Engine {
    /// Runs work until the one at `target` has run, or until a function of the program has to be called.
    pub fn step(&mut self, target: Point) -> Step {
        let mut stack = vec![target];
        while let Some(&wanted) = stack.last() {
            let Some(stream) = self
                .streams
                .get(&wanted.stream)
                .filter(|s| s.ran < wanted.sequence)
            else {
                stack.pop();
                continue;
            };
            let Some(front) = stream.queue.front() else {
                stack.pop();
                continue;
            };
            if let Some(&first) = front.after.iter().find(|&&p| !self.has_run(p)) {
                stack.push(first);
                continue;
            }
            let Some(work) = self
                .streams
                .get_mut(&wanted.stream)
                .and_then(|s| s.queue.pop_front())
            else {
                continue;
            };
            if let Some(call) = self.run(work) {
                return Step::Call(call);
            }
        }
        Step::Done
    }

    /// Whether a function of the program is being called.
    pub fn is_calling(&self) -> bool {
        self.calling.is_some()
    }

    /// The function that [`Step::Call`] asked for has returned.
    pub fn called(&mut self) {
        if let Some((point, end)) = self.calling.take() {
            self.finish(point, end);
        }
    }

    fn finish(&mut self, point: Point, end: f64) {
        self.ends.note(point, end);
        if let Some(stream) = self.streams.get_mut(&point.stream) {
            stream.ran = point.sequence;
        }
    }

    fn run(&mut self, work: Work) -> Option<HostCall> {
        if !matches!(work.action, Action::Free(_)) {
            self.held_back -= held_back(&work.action);
        }
        self.order += 1;
        if self.fault.is_some() {
            // A stopped device runs nothing any more; what was queued is dropped, and what was freed is free.
            if let Action::Free(range) = work.action {
                self.graves.push(range);
            }
            self.finish(work.point, 0.0);
            return None;
        }
        let mut call = None;
        let effect = match &work.action {
            Action::Kernel(kernel) => self.run_kernel(kernel, &work),
            Action::Copy(copy) => self.run_copy(copy, &work),
            Action::Fill(fill) => self.run_fill(fill, &work),
            Action::Allocate(range) | Action::Free(range) => Effect {
                device_writes: vec![*range],
                ..Effect::default()
            },
            Action::Host(function) => {
                self.host_calls += 1;
                call = Some(*function);
                Effect::default()
            }
            Action::Stop => {
                self.stop(Kind::Trap);
                Effect::default()
            }
            Action::Marker => Effect::default(),
        };
        self.check_order(&work, &effect);
        if let Action::Free(range) = work.action {
            self.graves.push(range);
        }
        let end = self.timeline.place(&Piece {
            name: &work.what,
            stream: work.point.stream,
            engine: effect.engine.unwrap_or(timeline::Engine::None),
            duration: effect.duration,
            share: effect.share,
            submitted: work.submitted,
            after: work
                .after
                .iter()
                .map(|&p| self.ends.of(p))
                .fold(0.0, f64::max),
        });
        match call {
            Some(_) => self.calling = Some((work.point, end)),
            None => self.finish(work.point, end),
        }
        call
    }

    /// Records what the work touched and reports what nothing orders.
    fn check_order(&mut self, work: &Work, effect: &Effect) {
        let access = Access {
            point: work.point,
            order: self.order,
            what: work.what.clone(),
            frees: matches!(work.action, Action::Free(_)),
        };
        // A write is checked against everything, so bytes that are read as well need no second look.
        let mut found: Vec<(Conflict, bool, bool)> = Vec::new();
        let mut record = |map: &mut AccessMap,
                          ranges: &[(u64, u64)],
                          writes: bool,
                          host: bool,
                          clock: &Clock| {
            for &range in ranges {
                let conflicts = if writes {
                    map.write(range, &access, clock)
                } else {
                    map.read(range, &access, clock)
                };
                found.extend(conflicts.into_iter().map(|c| (c, writes, host)));
            }
        };
        record(
            &mut self.device_accesses,
            &effect.device_reads,
            false,
            false,
            &work.clock,
        );
        record(
            &mut self.device_accesses,
            &effect.device_writes,
            true,
            false,
            &work.clock,
        );
        record(
            &mut self.host_accesses,
            &effect.host_reads,
            false,
            true,
            &work.clock,
        );
        record(
            &mut self.host_accesses,
            &effect.host_writes,
            true,
            true,
            &work.clock,
        );
        for (conflict, writes, host) in found {
            let verb = match (&work.action, writes) {
                (Action::Allocate(_), _) => "allocates",
                (Action::Free(_), _) => "frees",
                (_, true) => "writes",
                (_, false) => "reads",
            };
            let other = &conflict.earlier.what;
            let place = if host {
                let (start, end) = conflict.bytes;
                format!("bytes [{start:#x}, {end:#x}) of page-locked host memory")
            } else {
                self.describe(conflict.bytes)
            };
            if conflict.earlier.frees && work.clock.covers(conflict.earlier.point) {
                let message = format!("{} {verb} {place}, which {other} has freed", work.what);
                self.report(Kind::UseAfterFree, &work.what, message, other);
                self.stop(Kind::UseAfterFree);
                continue;
            }
            let past = match (conflict.earlier.frees, conflict.earlier_wrote) {
                (true, _) => "frees",
                (_, true) => "writes",
                _ => "reads",
            };
            let message = format!(
                "{} {verb} {place}, which {other} {past}, and nothing orders the two",
                work.what
            );
            self.report(Kind::StreamHazard, &work.what, message, other);
        }
    }

    fn stop(&mut self, kind: Kind) {
        self.fault.get_or_insert(kind);
    }

    /// Takes a defect that memory reported for a copy or a fill.
    fn memory_finding(&mut self, work: &Work, result: Result<(), Box<Finding>>) {
        let Err(finding) = result else { return };
        let mut finding = *finding;
        finding.site.kernel = work.what.to_string();
        if finding.kind != Kind::UninitialisedGlobal {
            self.stop(finding.kind);
        }
        self.findings.add(finding, "");
    }

    fn run_kernel(&mut self, call: &KernelCall, work: &Work) -> Effect {
        let kernel = &call.program.kernels[call.index];
        let outcome = exec::run(
            &self.memory,
            &Launch {
                program: &call.program,
                kernel,
                grid: call.grid,
                block: call.block,
                dynamic_shared: call.dynamic_shared,
                params: &call.params,
                cooperative: call.cooperative,
            },
        );
        // A closed stdout is the program's affair.
        let _ = std::io::stdout().write_all(outcome.printed.as_bytes());
        let stopped = outcome.fatal.then(|| {
            let stops = |f: &&Finding| STOPPING.contains(&f.kind);
            outcome
                .findings
                .iter()
                .find(stops)
                .map_or(Kind::Trap, |f| f.kind)
        });
        for finding in outcome.findings {
            self.findings.add(finding, "");
        }
        if let Some(kind) = stopped {
            self.stop(kind);
        }
        let record = LaunchRecord {
            kernel: kernel.name.clone(),
            stream: self.stream_name(work.point.stream),
            grid: call.grid,
            block: call.block,
            shared: kernel.static_shared + call.dynamic_shared,
            registers: call.registers,
            counters: outcome.counters,
        };
        let device: Arc<Description> = self.device.clone();
        let duration = record.time(&device).microseconds;
        let resident =
            u64::from(record.occupancy(&device).blocks.max(1)) * u64::from(device.multiprocessors);
        let share = record.blocks() as f64 / resident as f64;
        let totals = self
            .launches
            .totals
            .entry(record.kernel.clone())
            .or_default();
        totals.launches += 1;
        totals.microseconds += duration;
        totals.counters += record.counters;
        if self.launches.first.len() < KEPT_LAUNCHES {
            self.launches.first.push(record);
        }
        Effect {
            device_reads: outcome.touched.read,
            device_writes: outcome.touched.written,
            engine: Some(timeline::Engine::Compute),
            duration,
            share,
            ..Effect::default()
        }
    }

    fn run_copy(&mut self, copy: &Copy, work: &Work) -> Effect {
        let from = |address: u64| work::rows(address, copy.width, copy.height, copy.from_pitch);
        let to = |address: u64| work::rows(address, copy.width, copy.height, copy.to_pitch);
        let mut effect = Effect {
            share: 1.0,
            ..Effect::default()
        };
        match &copy.from {
            Place::Device(address) => effect.device_reads = from(*address),
            Place::Pinned(address) => effect.host_reads = from(*address),
            Place::Host(_) | Place::Staged(_) => {}
        }
        match &copy.to {
            Place::Device(address) => effect.device_writes = to(*address),
            Place::Pinned(address) => effect.host_writes = to(*address),
            Place::Host(_) | Place::Staged(_) => {}
        }
        self.check_source(work, &effect.host_reads);
        let mut packed = vec![
            0u8;
            if within_device(copy) {
                0
            } else {
                copy.width as usize
            }
        ];
        for row in 0..copy.height {
            let (read, write) = (row * copy.from_pitch, row * copy.to_pitch);
            if let (Place::Device(source), Place::Device(target)) = (&copy.from, &copy.to) {
                let result = self.memory.copy(target + write, source + read, copy.width);
                self.memory_finding(work, result);
                continue;
            }
            match &copy.from {
                Place::Device(source) => {
                    let result = self.memory.read(source + read, &mut packed);
                    self.memory_finding(work, result);
                }
                Place::Pinned(source) => {
                    if let Some(bytes) = self
                        .pinned
                        .bytes((source + read, source + read + copy.width))
                    {
                        packed.copy_from_slice(bytes);
                    }
                }
                Place::Staged(bytes) => {
                    let start = (row * copy.width) as usize;
                    packed.copy_from_slice(&bytes[start..start + copy.width as usize]);
                }
                Place::Host(source) => {
                    // SAFETY: the driver call that queued this waits for it, and its caller promises `width` bytes
                    // at each row of the source.
                    unsafe {
                        std::ptr::copy_nonoverlapping(
                            (source + read) as *const u8,
                            packed.as_mut_ptr(),
                            packed.len(),
                        );
                    }
                }
            }
            match &copy.to {
                Place::Device(target) => {
                    let result = self.memory.write(target + write, &packed);
                    self.memory_finding(work, result);
                }
                Place::Pinned(target) => {
                    if let Some(bytes) = self
                        .pinned
                        .bytes_mut((target + write, target + write + copy.width))
                    {
                        bytes.copy_from_slice(&packed);
                    }
                }
                Place::Host(target) => {
                    // SAFETY: as for the source.
                    unsafe {
                        std::ptr::copy_nonoverlapping(
                            packed.as_ptr(),
                            (target + write) as *mut u8,
                            packed.len(),
                        );
                    }
                }
                Place::Staged(_) => {}
            }
        }
        self.time_copy(copy, &mut effect);
        effect
    }

    fn time_copy(&self, copy: &Copy, effect: &mut Effect) {
        let bytes = copy.bytes() as f64;
        let device = &self.device;
        let link = |pageable: bool| {
            let share = if pageable { PAGEABLE_SHARE } else { 1.0 };
            device.pcie_latency_us + bytes / (device.pcie_gb_s * share) * 1e-3
        };
        (effect.engine, effect.duration) = match (&copy.from, &copy.to) {
            (Place::Device(_), Place::Device(_)) => (
                Some(timeline::Engine::Compute),
                device.launch_us + 2.0 * bytes / device.dram_gb_s * 1e-3,
            ),
            (Place::Device(_), to) => (
                Some(timeline::Engine::ToHost),
                link(!matches!(to, Place::Pinned(_))),
            ),
            (from, Place::Device(_)) => (
                Some(timeline::Engine::ToDevice),
                link(!matches!(from, Place::Pinned(_))),
            ),
            _ => (None, 0.0),
        };
    }

    /// A page-locked source that changed between queueing and running, by nobody but the host, is a race with it.
    fn check_source(&mut self, work: &Work, ranges: &[(u64, u64)]) {
        let Some(seen) = work.source else { return };
        let by_work = ranges
            .iter()
            .any(|&range| self.host_accesses.written_since(range, seen.order));
        if by_work
            || self.host_calls != seen.host_calls
            || self.pinned.fingerprint(ranges) == seen.fingerprint
        {
            return;
        }
        let start = ranges.first().map_or(0, |r| r.0);
        let message = format!(
            "the host wrote to the page-locked source at {start:#x} of {} after queueing it and before waiting for it",
            work.what
        );
        self.report(Kind::HostHazard, &work.what, message, "");
    }

    fn run_fill(&mut self, fill: &Fill, work: &Work) -> Effect {
        let width = fill.width * fill.pattern.len() as u64;
        for row in 0..fill.height {
            let result =
                self.memory
                    .fill(fill.address + row * fill.pitch, &fill.pattern, fill.width);
            self.memory_finding(work, result);
        }
        Effect {
            device_writes: work::rows(fill.address, width, fill.height, fill.pitch),
            engine: Some(timeline::Engine::Compute),
            duration: self.device.launch_us
                + (width * fill.height) as f64 / self.device.dram_gb_s * 1e-3,
            share: 1.0,
            ..Effect::default()
        }
    }
}

fn within_device(copy: &Copy) -> bool {
    matches!((&copy.from, &copy.to), (Place::Device(_), Place::Device(_)))
}
