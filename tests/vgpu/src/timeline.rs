//! When each piece of work would run on the described device, over all streams: a modelled timeline.
//!
//! Work is placed when it is executed. It starts when the host has submitted it, its stream is free, everything it
//! waits for has ended, and its engine has room: one copy at a time for each direction, kernels together as long as
//! their blocks fit the device. The host itself advances by a submission for every call and to the end of what it
//! waits for. Nothing here is measured; the trace says `virtual`.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;
use serde_json::{Value, json};

use crate::stream::{Point, StreamId};

/// What a piece of work occupies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// Multiprocessors.
    Compute,
    /// The copy engine from host to device.
    ToDevice,
    /// The copy engine from device to host.
    ToHost,
    /// Nothing of the device: host functions, events, bookkeeping.
    None,
}

/// One placed piece of work; times in microseconds.
#[derive(Clone, Debug)]
pub struct Placed {
    /// What it is.
    pub name: Arc<str>,
    /// Its stream.
    pub stream: StreamId,
    /// What it occupies.
    pub engine: Engine,
    /// Start.
    pub start: f64,
    /// End.
    pub end: f64,
}

/// Totals of a timeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// End of the last piece of work.
    pub makespan_us: f64,
    /// Time in which the multiprocessors, the engine to the device and the one to the host had work.
    pub compute_busy_us: f64,
    /// Of copies to the device.
    pub to_device_busy_us: f64,
    /// Of copies to the host.
    pub to_host_busy_us: f64,
    /// Sum of all pieces of work: what they would take one after the other.
    pub serial_us: f64,
}

#[derive(Clone, Copy, Debug)]
struct Reservation {
    start: f64,
    end: f64,
    share: f64,
}

/// Pieces kept for the trace; later ones are still placed.
const KEPT: usize = 200_000;
/// Reservations looked at for a gap; older ones count as full.
const WINDOW: usize = 64;

/// The timeline so far.
#[derive(Debug, Default)]
pub struct Timeline {
    placed: Vec<Placed>,
    /// End of the last piece of work of each stream.
    stream_end: BTreeMap<StreamId, f64>,
    lanes: BTreeMap<Engine, Vec<Reservation>>,
    /// No piece can start before this on a lane: the end of what fell out of its window.
    floor: BTreeMap<Engine, f64>,
    host: f64,
    summary: Summary,
}

/// A piece of work to place.
#[derive(Debug)]
pub struct Piece<'a> {
    /// What it is.
    pub name: &'a Arc<str>,
    /// Its stream.
    pub stream: StreamId,
    /// What it occupies.
    pub engine: Engine,
    /// How long, in microseconds.
    pub duration: f64,
    /// Share of the engine that it fills, up to 1.
    pub share: f64,
    /// Host time at its submission.
    pub submitted: f64,
    /// When what it waits for on other streams ended.
    pub after: f64,
}

impl Timeline {
    /// Host time of a call that queues work, which takes `cost` microseconds.
    pub fn submit(&mut self, cost: f64) -> f64 {
        self.host += cost;
        self.host
    }

    /// The host waits until `end`.
    pub fn host_waits(&mut self, end: f64) {
        self.host = self.host.max(end);
    }

    /// Places a piece of work and returns its end.
    pub fn place(&mut self, piece: &Piece<'_>) -> f64 {
        let previous = self.stream_end.get(&piece.stream).copied().unwrap_or(0.0);
        let ready = piece.submitted.max(previous).max(piece.after);
        let start = self.reserve(
            piece.engine,
            ready,
            piece.duration,
            piece.share.clamp(0.0, 1.0),
        );
        let end = start + piece.duration;
        self.stream_end.insert(piece.stream, end);
        self.summary.makespan_us = self.summary.makespan_us.max(end);
        self.summary.serial_us += piece.duration;
        if piece.engine != Engine::None && self.placed.len() < KEPT {
            let (name, stream, engine) = (piece.name.clone(), piece.stream, piece.engine);
            self.placed.push(Placed {
                name,
                stream,
                engine,
                start,
                end,
            });
        }
        end
    }

    fn reserve(&mut self, engine: Engine, ready: f64, duration: f64, share: f64) -> f64 {
        if engine == Engine::None || duration <= 0.0 {
            return ready;
        }
        let floor = self.floor.entry(engine).or_insert(0.0);
        let lane = self.lanes.entry(engine).or_default();
        let fits = |start: f64| {
            let (mut edges, end): (Vec<(f64, f64)>, f64) = (Vec::new(), start + duration);
            for r in lane.iter().filter(|r| r.start < end && r.end > start) {
                edges.extend([(r.start.max(start), r.share), (r.end, -r.share)]);
            }
            // Ends before starts at one time, so that back-to-back pieces do not count as overlapping.
            edges.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
            let mut load = share;
            edges.iter().all(|&(_, change)| {
                load += change;
                load <= 1.0 + 1e-9
            })
        };
        let earliest = ready.max(*floor);
        let mut candidates: Vec<f64> = lane
            .iter()
            .map(|r| r.end)
            .filter(|&end| end > earliest)
            .collect();
        candidates.push(earliest);
        candidates.sort_by(f64::total_cmp);
        let last = *candidates.last().unwrap_or(&earliest);
        let start = candidates.into_iter().find(|&at| fits(at)).unwrap_or(last);
        let busy_before = union(lane);
        lane.push(Reservation {
            start,
            end: start + duration,
            share,
        });
        let added = union(lane) - busy_before;
        if lane.len() > WINDOW {
            lane.sort_by(|a, b| a.end.total_cmp(&b.end));
            let gone = lane.remove(0);
            *floor = floor.max(gone.end);
        }
        *match engine {
            Engine::Compute | Engine::None => &mut self.summary.compute_busy_us,
            Engine::ToDevice => &mut self.summary.to_device_busy_us,
            Engine::ToHost => &mut self.summary.to_host_busy_us,
        } += added;
        start
    }

    /// End of all work placed on `stream` so far.
    pub fn end_of(&self, stream: StreamId) -> f64 {
        self.stream_end.get(&stream).copied().unwrap_or(0.0)
    }

    /// Totals.
    pub fn summary(&self) -> Summary {
        self.summary.clone()
    }

    /// Pieces in the order in which they ran.
    pub fn placed(&self) -> &[Placed] {
        &self.placed
    }

    /// The timeline for `chrome://tracing` or Perfetto: streams as one process, engines as another.
    pub fn chrome_trace(&self, device: &str) -> Value {
        let mut events = vec![
            json!({"ph": "M", "pid": 1, "name": "process_name", "args": {"name": format!("streams ({device}, virtual)")}}),
            json!({"ph": "M", "pid": 2, "name": "process_name", "args": {"name": format!("engines ({device}, virtual)")}}),
        ];
        for (tid, name) in [(1, "compute"), (2, "copy to device"), (3, "copy to host")] {
            events.push(json!({"ph": "M", "pid": 2, "tid": tid, "name": "thread_name", "args": {"name": name}}));
        }
        for &stream in self.stream_end.keys() {
            let name = format!("stream {stream}");
            events.push(json!({"ph": "M", "pid": 1, "tid": stream, "name": "thread_name", "args": {"name": name}}));
        }
        for p in &self.placed {
            let lane = match p.engine {
                Engine::Compute | Engine::None => 1,
                Engine::ToDevice => 2,
                Engine::ToHost => 3,
            };
            for (pid, tid) in [(1, p.stream), (2, lane)] {
                events.push(json!({
                    "ph": "X", "pid": pid, "tid": tid, "name": &*p.name, "cat": "virtual",
                    "ts": p.start, "dur": p.end - p.start,
                }));
            }
        }
        json!({"displayTimeUnit": "ms", "otherData": {"device": device, "time": "virtual"}, "traceEvents": events})
    }
}

/// Length of the union of reservations.
fn union(lane: &[Reservation]) -> f64 {
    let mut spans: Vec<(f64, f64)> = lane.iter().map(|r| (r.start, r.end)).collect();
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut total, mut reached) = (0.0, f64::NEG_INFINITY);
    for (start, end) in spans {
        total += (end - start.max(reached)).max(0.0);
        reached = reached.max(end);
    }
    total
}

/// When the work at each point that somebody may wait for ended.
#[derive(Debug, Default)]
pub struct Ends(BTreeMap<Point, f64>);

impl Ends {
    /// Notes the end of the work at `point`.
    pub fn note(&mut self, point: Point, end: f64) {
        self.0.insert(point, end);
    }

    /// The end of the work at `point`, or of the last noted before it on its stream.
    pub fn of(&self, point: Point) -> f64 {
        let first = Point {
            stream: point.stream,
            sequence: 0,
        };
        self.0
            .range(first..=point)
            .next_back()
            .map_or(0.0, |(_, &end)| end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(
        t: &mut Timeline,
        stream: StreamId,
        engine: Engine,
        duration: f64,
        share: f64,
        after: f64,
    ) -> f64 {
        let name: Arc<str> = "work".into();
        t.place(&Piece {
            name: &name,
            stream,
            engine,
            duration,
            share,
            submitted: 0.0,
            after,
        })
    }

    #[test]
    fn copies_overlap_kernels_but_not_each_other() {
        let mut t = Timeline::default();
        assert_eq!(place(&mut t, 1, Engine::ToDevice, 10.0, 1.0, 0.0), 10.0);
        assert_eq!(place(&mut t, 1, Engine::Compute, 10.0, 1.0, 0.0), 20.0);
        assert_eq!(
            place(&mut t, 2, Engine::ToDevice, 10.0, 1.0, 0.0),
            20.0,
            "one engine for each direction"
        );
        assert_eq!(place(&mut t, 2, Engine::Compute, 10.0, 1.0, 0.0), 30.0);
        assert_eq!(place(&mut t, 3, Engine::ToHost, 5.0, 1.0, 20.0), 25.0);
        let s = t.summary();
        assert_eq!(
            (s.makespan_us, s.serial_us, s.compute_busy_us),
            (30.0, 45.0, 20.0)
        );
    }

    #[test]
    fn kernels_that_fit_run_together_and_gaps_are_used() {
        let mut t = Timeline::default();
        assert_eq!(place(&mut t, 1, Engine::Compute, 10.0, 0.5, 0.0), 10.0);
        assert_eq!(place(&mut t, 2, Engine::Compute, 10.0, 0.5, 0.0), 10.0);
        assert_eq!(place(&mut t, 3, Engine::Compute, 10.0, 0.5, 0.0), 20.0);
        assert_eq!(place(&mut t, 4, Engine::Compute, 10.0, 1.0, 100.0), 110.0);
        assert_eq!(
            place(&mut t, 5, Engine::Compute, 10.0, 1.0, 0.0),
            30.0,
            "before the one that waits"
        );
        assert_eq!(t.summary().compute_busy_us, 40.0);
    }

    #[test]
    fn the_trace_names_lanes_and_says_virtual() {
        let mut t = Timeline::default();
        place(&mut t, 7, Engine::Compute, 1.0, 1.0, 0.0);
        let trace = t.chrome_trace("rtx4090");
        assert_eq!(trace["otherData"]["time"], "virtual");
        let events = trace["traceEvents"].as_array().unwrap();
        assert_eq!(events.iter().filter(|e| e["ph"] == "X").count(), 2);
        assert!(events.iter().any(|e| e["args"]["name"] == "stream 7"));
    }
}
