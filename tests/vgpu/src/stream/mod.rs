//! Queues, events and the order between them.
//!
//! Work is queued and runs as late as the program allows: when something waits for it, and then only what that needs.
//! A program that forgets to wait therefore computes with old data here, every time, where hardware fails now and
//! then. Order is tracked apart from execution: each piece of work carries a [`Clock`] with all that is known to come
//! before it (its stream, events it waits for, the default stream, what the host had waited for when it was queued),
//! and [`hazard::AccessMap`] reports two accesses that no clock orders.
//!
//! The driver owns an [`Engine`] and forces work through [`Engine::step`], which hands functions of the program back
//! to the caller so that no lock is held while they run.

mod clock;
mod findings;
mod hazard;
mod pinned;
mod run;
mod work;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

pub use clock::{Clock, Point, StreamId};
pub use findings::{Findings, Tolerated};
pub use run::{KernelTotals, LaunchLog, LaunchRecord, Step};
pub use work::{Action, Copy, Fill, HostCall, KernelCall, Opaque, Place};

use self::{
    hazard::{Access, AccessMap, Conflict},
    pinned::Pinned,
    work::{SourceSeen, Work},
};
use crate::{
    check::{Finding, Kind, Site},
    device::Description,
    memory::{Memory, MemoryError},
    timeline::{Ends, Timeline},
};

/// How a stream is ordered with the default stream of its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// The default stream itself: waits for every blocking stream, and they for it.
    Default,
    /// Ordered with the default stream.
    Blocking,
    /// Not ordered with anything but by events.
    NonBlocking,
}

#[derive(Debug)]
struct Stream {
    /// The context it belongs to.
    group: u64,
    kind: StreamKind,
    queue: VecDeque<Work>,
    /// Number of the last piece of work queued, and of the last one that ran.
    queued: u64,
    ran: u64,
    /// Clock of the last piece of work queued.
    clock: Clock,
    /// Its handle is gone; it goes when its queue is empty.
    destroyed: bool,
}

/// A position to wait for: what an event holds once it is recorded.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The marker on the stream.
    pub point: Point,
    clock: Clock,
    /// It marks the end of all streams of its context.
    of_context: bool,
}

/// What the work of a context has been told to wait for.
#[derive(Clone, Debug, Default)]
struct Barrier {
    /// What has run of it.
    passed: Clock,
    /// What has not.
    ahead: Vec<Recorded>,
}

#[derive(Clone, Copy, Debug)]
struct Allocation {
    bytes: u64,
    group: u64,
    /// Made by `cuMemAllocAsync`: `cuMemFree` does not wait for its users.
    stream_ordered: bool,
    /// A stream-ordered free is queued.
    freed: bool,
}

/// Who made an allocation of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The context.
    pub group: u64,
    /// Whether it is stream-ordered memory.
    pub stream_ordered: bool,
}

/// All streams of the device, its memory, and what was found.
#[derive(Debug)]
pub struct Engine {
    /// Device memory.
    pub memory: Memory,
    /// The device described.
    pub device: Arc<Description>,
    /// Defects of the program so far.
    pub findings: Findings,
    /// Launches so far.
    pub launches: LaunchLog,
    /// The modelled timeline so far.
    pub timeline: Timeline,
    /// Page-locked host memory.
    pub pinned: Pinned,
    /// Waits for events that the program asked for, by who waits for whom.
    pub waits: BTreeMap<String, u64>,
    /// Those of them that are counted and otherwise left out, to see whether anything notices.
    pub ignored_waits: Option<String>,
    ends: Ends,
    streams: BTreeMap<StreamId, Stream>,
    /// What all work of a context waits for, that of streams yet to come included.
    barriers: BTreeMap<u64, Barrier>,
    allocations: BTreeMap<u64, Allocation>,
    next_stream: StreamId,
    /// What the host has waited for.
    host: Clock,
    device_accesses: AccessMap,
    host_accesses: AccessMap,
    /// Pieces of work run, and host functions among them.
    order: u64,
    host_calls: u64,
    /// The host function being called, if any.
    calling: Option<(Point, f64)>,
    /// Freed in stream order, but kept for work that nothing orders: it should be found as such and not by chance.
    graves: Vec<(u64, u64)>,
    /// Bytes in graves or on their way there, and staged bytes.
    held_back: u64,
    fault: Option<Kind>,
}

/// Queued frees and staged copies above this are run rather than kept.
const HELD_BACK_LIMIT: u64 = 256 << 20;

impl Engine {
    /// A device with `capacity` bytes of memory.
    pub fn new(device: Arc<Description>, capacity: u64) -> Self {
        Self {
            memory: Memory::new(capacity),
            device,
            findings: Findings::default(),
            launches: LaunchLog::default(),
            timeline: Timeline::default(),
            pinned: Pinned::default(),
            ends: Ends::default(),
            waits: BTreeMap::new(),
            ignored_waits: None,
            streams: BTreeMap::new(),
            barriers: BTreeMap::new(),
            allocations: BTreeMap::new(),
            next_stream: 1,
            host: Clock::default(),
            device_accesses: AccessMap::default(),
            host_accesses: AccessMap::default(),
            order: 0,
            host_calls: 0,
            calling: None,
            graves: Vec::new(),
            held_back: 0,
            fault: None,
        }
    }

    /// The defect that stopped the device, if one did.
    pub fn fault(&self) -> Option<Kind> {
        self.fault
    }

    /// Forgets the fault: the context was reset.
    pub fn clear_fault(&mut self) {
        self.fault = None;
    }

    /// A new stream of context `group`.
    pub fn create_stream(&mut self, group: u64, kind: StreamKind) -> StreamId {
        let id = self.next_stream;
        self.next_stream += 1;
        let barrier = self.barriers.get(&group).cloned().unwrap_or_default();
        let (queue, clock) = (VecDeque::new(), barrier.passed);
        self.streams.insert(
            id,
            Stream {
                group,
                kind,
                queue,
                queued: 0,
                ran: 0,
                clock,
                destroyed: false,
            },
        );
        for event in &barrier.ahead {
            self.wait(id, event);
        }
        id
    }

    /// Gives a stream back; what it has queued still runs.
    pub fn destroy_stream(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.destroyed = true;
        }
        self.drop_finished();
    }

    fn drop_finished(&mut self) {
        self.streams
            .retain(|_, s| !(s.destroyed && s.queue.is_empty() && s.ran == s.queued));
    }

    /// "stream 3" or "the default stream".
    pub fn stream_name(&self, id: StreamId) -> String {
        match self.streams.get(&id).map(|s| s.kind) {
            Some(StreamKind::Default) => "the default stream".into(),
            _ => format!("stream {id}"),
        }
    }

    /// Queues work, described without its stream, and returns its position.
    pub fn enqueue(&mut self, id: StreamId, action: Action, what: &str) -> Point {
        let what: Arc<str> = format!("{what} on {}", self.stream_name(id)).into();
        self.enqueue_after(id, action, what, None)
    }

    /// Queues an event's marker.
    pub fn record(&mut self, id: StreamId) -> Recorded {
        self.enqueue_after(id, Action::Marker, "event".into(), None);
        let stream = &self.streams[&id];
        Recorded {
            point: Point {
                stream: id,
                sequence: stream.queued,
            },
            clock: stream.clock.clone(),
            of_context: false,
        }
    }

    /// Queues a wait for an event that the program asked for.
    pub fn wait_for(&mut self, id: StreamId, event: &Recorded) {
        let name = self.stream_name(id);
        if self.is_wanted(&name, event) {
            self.wait(id, event);
        }
    }

    /// Counts a wait that the program asked for, and says whether it is to be kept.
    fn is_wanted(&mut self, who: &str, event: &Recorded) -> bool {
        let whom = if event.of_context {
            "the context".to_owned()
        } else {
            self.stream_name(event.point.stream)
        };
        let wait = format!("{who} for {whom}");
        let wanted = self.ignored_waits.as_ref() != Some(&wait);
        *self.waits.entry(wait).or_default() += 1;
        wanted
    }

    /// Queues a wait for an event.
    fn wait(&mut self, id: StreamId, event: &Recorded) {
        self.enqueue_after(id, Action::Marker, "wait".into(), Some(event));
    }

    /// Queues a marker behind everything that the streams of a context have queued, on a stream of its own.
    pub fn record_all(&mut self, group: u64) -> Recorded {
        let tails = self.tails(Some(group));
        let meeting = self.create_stream(group, StreamKind::NonBlocking);
        for tail in &tails {
            self.wait(meeting, tail);
        }
        let recorded = self.record(meeting);
        self.destroy_stream(meeting);
        Recorded {
            of_context: true,
            ..recorded
        }
    }

    /// Has everything that will be queued on the streams of a context wait for an event.
    pub fn wait_all(&mut self, group: u64, event: &Recorded) {
        if !self.is_wanted("the context", event) {
            return;
        }
        let of_group = |(&id, s): (&StreamId, &Stream)| (s.group == group).then_some(id);
        let ids: Vec<StreamId> = self.streams.iter().filter_map(of_group).collect();
        for id in ids {
            self.wait(id, event);
        }
        let mut barrier = self.barriers.remove(&group).unwrap_or_default();
        for passed in barrier.ahead.extract_if(.., |e| self.has_run(e.point)) {
            barrier.passed.join(&passed.clock);
        }
        barrier.ahead.push(event.clone());
        self.barriers.insert(group, barrier);
    }

    fn enqueue_after(
        &mut self,
        id: StreamId,
        action: Action,
        what: Arc<str>,
        event: Option<&Recorded>,
    ) -> Point {
        let submitted = self.timeline.submit(self.device.submit_us);
        let (group, kind) = self
            .streams
            .get(&id)
            .map_or((0, StreamKind::NonBlocking), |s| (s.group, s.kind));
        let mut clock = self.host.clone();
        let mut after = Vec::new();
        for (&other, stream) in &self.streams {
            let ordered = match kind {
                StreamKind::Default => stream.kind == StreamKind::Blocking,
                StreamKind::Blocking => stream.kind == StreamKind::Default,
                StreamKind::NonBlocking => false,
            };
            if ordered && stream.group == group && stream.queued > 0 {
                clock.join(&stream.clock);
                after.push(Point {
                    stream: other,
                    sequence: stream.queued,
                });
            }
        }
        if let Some(event) = event {
            clock.join(&event.clock);
            after.push(event.point);
        }
        let source = self.look_at_source(&action);
        self.held_back += held_back(&action);
        if let Action::Free((start, _)) = action
            && let Some(allocation) = self.allocations.get_mut(&start)
        {
            allocation.freed = true;
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return Point {
                stream: id,
                sequence: 0,
            };
        };
        stream.queued += 1;
        let point = Point {
            stream: id,
            sequence: stream.queued,
        };
        clock.join(&stream.clock);
        clock.advance(point);
        stream.clock = clock.clone();
        stream.queue.push_back(Work {
            point,
            clock,
            after,
            action,
            what,
            submitted,
            source,
        });
        point
    }

    fn look_at_source(&self, action: &Action) -> Option<SourceSeen> {
        let Action::Copy(Copy {
            from: Place::Pinned(address),
            width,
            height,
            from_pitch,
            ..
        }) = action
        else {
            return None;
        };
        let ranges = work::rows(*address, *width, *height, *from_pitch);
        let fingerprint = self.pinned.fingerprint(&ranges);
        Some(SourceSeen {
            order: self.order + 1,
            host_calls: self.host_calls,
            fingerprint,
        })
    }

    /// Whether so much memory is held back by queued work that it should run now.
    pub fn is_holding_back(&self) -> bool {
        self.held_back > HELD_BACK_LIMIT
    }

    /// The end of a stream as it is now; nothing if nothing was ever queued.
    pub fn tail(&self, id: StreamId) -> Option<Recorded> {
        let stream = self.streams.get(&id).filter(|s| s.queued > 0)?;
        Some(Recorded {
            point: Point {
                stream: id,
                sequence: stream.queued,
            },
            clock: stream.clock.clone(),
            of_context: false,
        })
    }

    /// The ends of all streams of a context, or of all there are.
    pub fn tails(&self, group: Option<u64>) -> Vec<Recorded> {
        let of_group = |s: &Stream| group.is_none_or(|g| s.group == g);
        self.streams
            .iter()
            .filter(|(_, s)| of_group(s))
            .filter_map(|(&id, _)| self.tail(id))
            .collect()
    }

    /// Whether the work at `point` has run.
    pub fn has_run(&self, point: Point) -> bool {
        self.streams
            .get(&point.stream)
            .is_none_or(|s| s.ran >= point.sequence)
    }

    /// The host has waited for `recorded`: whatever is queued from now on comes after it.
    pub fn host_waited(&mut self, recorded: &Recorded) {
        self.host.join(&recorded.clock);
        self.timeline.host_waits(self.ends.of(recorded.point));
        if self.streams.iter().all(|(&stream, s)| {
            s.queued == 0
                || self.host.covers(Point {
                    stream,
                    sequence: s.queued,
                })
        }) {
            self.bury();
            self.device_accesses.clear();
            self.host_accesses.clear();
        }
        self.drop_finished();
    }

    /// Gives the memory of stream-ordered frees back for good.
    pub fn bury(&mut self) {
        for (start, end) in std::mem::take(&mut self.graves) {
            self.held_back -= end - start;
            self.device_accesses.forget((start, end));
            self.allocations.remove(&start);
            // The address came from our own table, so the memory knows it.
            let _ = self.memory.free(start);
        }
    }

    /// Bytes of device memory free and in all, as the program may count on them.
    pub fn memory_info(&self) -> (u64, u64) {
        let (free, total) = self.memory.info();
        let kept: u64 = self.graves.iter().map(|(start, end)| end - start).sum();
        (free + kept, total)
    }

    /// Modelled time between two recorded events that have run, in milliseconds.
    pub fn elapsed_ms(&self, from: &Recorded, to: &Recorded) -> f64 {
        (self.ends.of(to.point) - self.ends.of(from.point)) * 1e-3
    }

    /// Allocates device memory for a context.
    ///
    /// # Errors
    /// When the device has not enough left.
    pub fn allocate(&mut self, bytes: u64, owner: Owner) -> Result<u64, MemoryError> {
        let address = self.memory.allocate(bytes)?;
        let Owner {
            group,
            stream_ordered,
        } = owner;
        self.allocations.insert(
            address,
            Allocation {
                bytes,
                group,
                stream_ordered,
                freed: false,
            },
        );
        Ok(address)
    }

    /// Size and maker of the allocation that starts at `address`, unless its free is queued.
    pub fn allocation(&self, address: u64) -> Option<(u64, Owner)> {
        let a = self.allocations.get(&address).filter(|a| !a.freed)?;
        Some((
            a.bytes,
            Owner {
                group: a.group,
                stream_ordered: a.stream_ordered,
            },
        ))
    }

    /// Live allocations of a context: address, bytes.
    pub fn allocations_of(&self, group: u64) -> Vec<(u64, u64)> {
        self.allocations
            .iter()
            .filter(|(_, a)| a.group == group && !a.freed)
            .map(|(&at, a)| (at, a.bytes))
            .collect()
    }

    /// What the host knows to have ended, to be asked before a call that waits and compared after it.
    pub fn host_clock(&self) -> Clock {
        self.host.clone()
    }

    /// Frees device memory now. All work has run; work that `known` does not cover may still have been under way.
    pub fn free(&mut self, address: u64, known: &Clock, call: &str) {
        let Some(allocation) = self.allocations.remove(&address) else {
            return;
        };
        let range = (address, address + allocation.bytes);
        if allocation.stream_ordered {
            for conflict in self.device_accesses.not_covered(range, known) {
                let message = format!(
                    "{call} frees {} while {} may still {} it; {call} does not wait for users of stream-ordered memory",
                    self.describe(range),
                    conflict.earlier.what,
                    if conflict.earlier_wrote {
                        "write"
                    } else {
                        "read"
                    },
                );
                self.report(Kind::StreamHazard, call, message, &conflict.earlier.what);
            }
        }
        self.device_accesses.forget(range);
        // The address came from our own table, so the memory knows it.
        let _ = self.memory.free(address);
    }

    /// Gives page-locked memory back, or unlocks it. All work has run; work that `known` does not cover may still
    /// have been under way. Nothing when `address` is not the start of such memory.
    pub fn release_pinned(
        &mut self,
        address: u64,
        registered: bool,
        known: &Clock,
        call: &str,
    ) -> Option<()> {
        let range = self.pinned.release(address, registered)?;
        for conflict in self.host_accesses.not_covered(range, known) {
            let message = format!(
                "{call} gives back {} bytes of page-locked memory at {:#x} while {} may still {} them",
                range.1 - range.0,
                range.0,
                conflict.earlier.what,
                if conflict.earlier_wrote {
                    "write"
                } else {
                    "read"
                },
            );
            self.report(Kind::HostHazard, call, message, &conflict.earlier.what);
        }
        self.host_accesses.forget(range);
        Some(())
    }

    /// Notes a defect seen outside a kernel, at `site` and with another party that tells it from others there.
    pub fn report(&mut self, kind: Kind, site: &str, message: String, other: &str) {
        let site = Site {
            kernel: site.into(),
            ..Site::default()
        };
        self.findings.add(
            Finding {
                kind,
                site,
                message,
                count: 1,
            },
            other,
        );
    }

    /// "bytes [0, 512) of the allocation of 1024 bytes at 0x…".
    fn describe(&self, (start, end): (u64, u64)) -> String {
        let allocation = self
            .allocations
            .range(..=start)
            .next_back()
            .filter(|(at, a)| start < *at + a.bytes);
        match allocation {
            Some((at, a)) if end <= at + a.bytes => {
                format!(
                    "bytes [{}, {}) of the {} bytes at {at:#x}",
                    start - at,
                    end - at,
                    a.bytes
                )
            }
            _ => format!("bytes [{start:#x}, {end:#x})"),
        }
    }
}

/// Host or device memory that stays in use until the work has run.
fn held_back(action: &Action) -> u64 {
    match action {
        Action::Free((start, end)) => end - start,
        Action::Copy(Copy {
            from: Place::Staged(bytes),
            ..
        }) => bytes.len() as u64,
        _ => 0,
    }
}
