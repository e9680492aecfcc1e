//! Span tracing: what ran when, on which lane, for Chrome's trace viewer and summed up.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Serialize;
use serde_json::json;

/// Records spans. Clones record into the same log; a trace that is off records nothing and costs nothing.
#[derive(Clone, Default)]
pub struct Trace(Option<Arc<Log>>);

struct Log {
    origin: Instant,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    /// Lane names in order of their first span.
    lanes: Vec<&'static str>,
    spans: Vec<Event>,
}

#[derive(Clone, Copy)]
struct Event {
    lane: usize,
    kind: Kind,
    /// Microseconds from the origin.
    start: f64,
    end: f64,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Makes the item of this number.
    Work(u64),
    /// Waits for an item of another lane while it makes one of its own.
    Input,
    /// Makes an item of another lane itself, within the making of one of its own.
    Inner,
    /// Waits for a free place in the bounded queue.
    Room,
}

thread_local! {
    /// The lanes whose items this thread is making, the innermost last.
    static OPEN: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_on() {
            "Trace(on)"
        } else {
            "Trace(off)"
        })
    }
}

impl Log {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> f64 {
        self.origin.elapsed().as_secs_f64() * 1e6
    }
}

impl Trace {
    /// Returns a trace that records nothing.
    pub fn off() -> Self {
        Self(None)
    }

    /// Returns a trace that records everything from now on.
    pub fn on() -> Self {
        Self(Some(Arc::new(Log {
            origin: Instant::now(),
            noted: Mutex::default(),
        })))
    }

    /// Returns whether spans are recorded.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Begins item `number` of a lane; it ends when the span is dropped. Within another span of the same thread, its time
    /// is not the other's.
    pub fn span(&self, lane: &'static str, number: u64) -> Span {
        let outer = self.is_on().then(|| {
            OPEN.with_borrow_mut(|open| {
                let outer = open.last().copied();
                open.push(lane);
                outer
            })
        });
        self.begin(lane, Kind::Work(number), outer.flatten())
    }

    /// Begins to wait for room in the queue of a lane.
    pub(super) fn wait_for_room(&self, lane: &'static str) -> Span {
        self.begin(lane, Kind::Room, None)
    }

    /// The lane whose item this thread is making begins to wait for one that it takes from.
    pub(super) fn wait_for_input(&self) -> Span {
        match OPEN.with_borrow(|open| open.last().copied()) {
            Some(lane) => self.begin(lane, Kind::Input, None),
            None => Span(None, PhantomData),
        }
    }

    fn begin(&self, lane: &'static str, kind: Kind, outer: Option<&'static str>) -> Span {
        let open = self.0.as_ref().map(|log| Open {
            log: log.clone(),
            lane,
            kind,
            outer,
            start: log.now(),
        });
        Span(open, PhantomData)
    }

    /// Returns the trace as JSON that Chrome's viewer and Perfetto read.
    pub fn chrome(&self) -> String {
        let mut events = Vec::new();
        if let Some(log) = &self.0 {
            let noted = log.noted();
            for (tid, name) in noted.lanes.iter().enumerate() {
                events.push(json!({
                    "ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": {"name": name},
                }));
                events.push(json!({
                    "ph": "M", "name": "thread_sort_index", "pid": 1, "tid": tid, "args": {"sort_index": tid},
                }));
            }
            for event in &noted.spans {
                let (name, category) = match event.kind {
                    Kind::Work(number) => (format!("{} {number}", noted.lanes[event.lane]), "work"),
                    Kind::Input => ("waiting for input".to_owned(), "wait"),
                    // The other lane has it.
                    Kind::Inner => continue,
                    Kind::Room => ("waiting for room".to_owned(), "wait"),
                };
                events.push(json!({
                    "ph": "X", "name": name, "cat": category, "pid": 1, "tid": event.lane,
                    "ts": event.start, "dur": event.end - event.start,
                }));
            }
        }
        json!({ "displayTimeUnit": "ms", "traceEvents": events }).to_string()
    }

    /// Sums up how busy each lane was, and which of them the run waited for.
    pub fn summary(&self) -> Summary {
        let Some(log) = &self.0 else {
            return Summary::default();
        };
        let noted = log.noted();
        let first = noted
            .spans
            .iter()
            .map(|e| e.start)
            .fold(f64::INFINITY, f64::min);
        let last = noted.spans.iter().map(|e| e.end).fold(0.0, f64::max);
        let lanes = noted.lanes.iter().enumerate().map(|(lane, name)| {
            let of = |wanted: fn(Kind) -> bool| {
                let mut found: Vec<(f64, f64)> = noted
                    .spans
                    .iter()
                    .filter(|e| e.lane == lane && wanted(e.kind))
                    .map(|e| (e.start - first, e.end - first))
                    .collect();
                found.sort_by(|a, b| a.0.total_cmp(&b.0));
                found
            };
            let items = of(|kind| matches!(kind, Kind::Work(_)));
            let work = without(
                &items,
                &of(|kind| matches!(kind, Kind::Input | Kind::Inner)),
            );
            LaneUse {
                name: (*name).to_owned(),
                items: items.len() as u64,
                busy: union(&work) / 1e6,
                spans: merged(&work),
            }
        });
        Summary {
            seconds: (last - first).max(0.0) / 1e6,
            lanes: lanes.collect(),
        }
    }
}

/// The length that some intervals, sorted by their starts, cover together.
fn union(intervals: &[(f64, f64)]) -> f64 {
    let mut covered = 0.0;
    let mut reached = f64::NEG_INFINITY;
    for &(start, end) in intervals {
        covered += (end - start.max(reached)).max(0.0);
        reached = reached.max(end);
    }
    covered
}

/// Subtracts the intervals `out` from others; both sorted by their starts.
fn without(intervals: &[(f64, f64)], out: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut left = Vec::new();
    let mut skip = 0;
    for &(start, end) in intervals {
        let mut at = start;
        while skip < out.len() && out[skip].1 <= start {
            skip += 1;
        }
        for &(from, to) in out[skip..].iter().take_while(|o| o.0 < end) {
            if from > at {
                left.push((at, from));
            }
            at = at.max(to);
        }
        if at < end {
            left.push((at, end));
        }
    }
    left
}

/// Intervals for a picture, in seconds: those are joined whose gap would be thinner than a hair.
fn merged(intervals: &[(f64, f64)]) -> Vec<(f64, f64)> {
    const PIECES: f64 = 1000.0;
    let end = intervals.iter().map(|i| i.1).fold(0.0, f64::max);
    let mut pieces: Vec<(f64, f64)> = Vec::new();
    for &(start, stop) in intervals {
        match pieces.last_mut() {
            Some(last) if start - last.1 < end / PIECES => last.1 = last.1.max(stop),
            _ => pieces.push((start, stop)),
        }
    }
    pieces.iter().map(|p| (p.0 / 1e6, p.1 / 1e6)).collect()
}

/// A span in progress; it ends when it is dropped.
#[must_use = "a span ends when it is dropped"]
#[derive(Debug)]
pub struct Span(Option<Open>, PhantomData<*const ()>);

struct Open {
    log: Arc<Log>,
    lane: &'static str,
    kind: Kind,
    /// The lane in whose item it is.
    outer: Option<&'static str>,
    start: f64,
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} since {} µs", self.lane, self.start)
    }
}

impl Span {
    /// Ends it without a note.
    pub fn discard(mut self) {
        if let Some(open) = self.0.take() {
            open.close();
        }
    }
}

impl Open {
    /// The thread is no longer at it.
    fn close(&self) {
        if matches!(self.kind, Kind::Work(_)) {
            OPEN.with_borrow_mut(Vec::pop);
        }
    }
}

impl Noted {
    fn add(&mut self, lane: &'static str, kind: Kind, start: f64, end: f64) {
        let known = self.lanes.iter().position(|name| *name == lane);
        let lane = known.unwrap_or_else(|| {
            self.lanes.push(lane);
            self.lanes.len() - 1
        });
        self.spans.push(Event {
            lane,
            kind,
            start,
            end,
        });
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let Some(open) = self.0.take() else { return };
        open.close();
        let end = open.log.now();
        let mut noted = open.log.noted();
        noted.add(open.lane, open.kind, open.start, end);
        if let Some(outer) = open.outer {
            noted.add(outer, Kind::Inner, open.start, end);
        }
    }
}

/// Use of the lanes by a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Seconds from the start of the first span to the end of the last.
    pub seconds: f64,
    /// Lanes in order of their first span.
    pub lanes: Vec<LaneUse>,
}

/// Use of one lane by a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaneUse {
    /// Name of the lane.
    pub name: String,
    /// Number of items made.
    pub items: u64,
    /// Seconds at work.
    pub busy: f64,
    /// When it was at work, in seconds from the first span, for a picture.
    pub spans: Vec<(f64, f64)>,
}

impl Summary {
    /// Returns the lane that was busiest.
    pub fn bound(&self) -> Option<&LaneUse> {
        self.lanes.iter().max_by(|a, b| a.busy.total_cmp(&b.busy))
    }

    /// Returns the percentage of the time in which a lane was at work.
    pub fn share(&self, lane: &LaneUse) -> f64 {
        100.0 * lane.busy / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// Returns a sentence that names the bottleneck.
    pub fn verdict(&self) -> String {
        match self.bound() {
            None => "No lane has run.".to_owned(),
            Some(bound) => format!(
                "The lane “{}” was at work for {:.2} of {:.2} s, longer than any other: it bounds the run.",
                bound.name, bound.busy, self.seconds
            ),
        }
    }

    /// Sorts the lanes into the order of `names`, those not named last.
    pub fn in_order(mut self, names: &[&str]) -> Self {
        let place = |lane: &LaneUse| names.iter().position(|name| *name == lane.name);
        self.lanes
            .sort_by_key(|lane| place(lane).unwrap_or(names.len()));
        self
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(bound) = self.bound() else {
            return f.write_str("no lane has run");
        };
        for (i, lane) in self.lanes.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{} {:.0} %", lane.name, self.share(lane))?;
        }
        write!(
            f,
            " busy of {:.2} s; bounded by {}",
            self.seconds, bound.name
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_taken_out_of_the_work() {
        let work = [(0.0, 10.0), (12.0, 20.0), (30.0, 31.0)];
        let waits = [(2.0, 4.0), (9.0, 13.0), (30.0, 31.0)];
        assert_eq!(
            without(&work, &waits),
            [(0.0, 2.0), (4.0, 9.0), (13.0, 20.0)]
        );
        assert_eq!(without(&work, &[]), work);
        assert_eq!(
            union(&[(0.0, 3.0), (1.0, 2.0), (2.0, 5.0), (7.0, 8.0)]),
            6.0
        );
    }

    #[test]
    fn a_trace_names_lanes_items_and_the_busiest() {
        let trace = Trace::on();
        for number in 0..3 {
            let _span = trace.span("slow", number);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        drop(trace.span("quick", 0));
        trace.span("never", 0).discard();
        let summary = trace.summary();
        assert_eq!(summary.bound().map(|l| l.name.as_str()), Some("slow"));
        assert_eq!(
            summary
                .lanes
                .iter()
                .map(|l| (l.name.as_str(), l.items))
                .collect::<Vec<_>>(),
            [("slow", 3), ("quick", 1)]
        );
        assert!(
            summary.to_string().ends_with("bounded by slow"),
            "{summary}"
        );
        let chrome: serde_json::Value = serde_json::from_str(&trace.chrome()).unwrap();
        let events = chrome["traceEvents"].as_array().unwrap();
        let work: Vec<_> = events.iter().filter(|e| e["ph"] == "X").collect();
        assert_eq!(work.len(), 4);
        assert!(work.iter().all(|e| e["dur"].as_f64() >= Some(0.0)));
        assert_eq!(
            events.iter().filter(|e| e["name"] == "thread_name").count(),
            2
        );
        assert_eq!(Trace::off().summary(), Summary::default());
    }
}
