//! The operations on the processor, beside every peer that is installed.
//!
//! First each result is compared with ours. Then each round measures what the machine can do just now, times ours, and
//! times every peer in turn, with a pause before each since the threads of a BLAS spin for a while after a call.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::Result;
use muso::engine::{CpuEngine, Engine, Matrix, Probe};
use muso::progress::{Progress, check};
use muso::system;

use super::case::Case;
use super::peers::{Faer, LIBRARIES, Peer, Python};
use super::temporary::Temporary;
use super::work::{Task, projected_rows, tasks};
use super::{BenchReport, Limit, Measurement, Operation, Options, PeerMeasurement, Spread};

/// Rounds unless told otherwise.
const ROUNDS: usize = 15;
/// Target duration of a turn; short operations are repeated to fill it.
const TURN: Duration = Duration::from_millis(60);
/// Idle time before a turn: the threads of the one before may still spin.
const PAUSE: Duration = Duration::from_millis(60);
/// Both when only seeing that it works.
const QUICK: Duration = Duration::from_millis(10);

/// The burn that the program is built with.
#[cfg(feature = "nn")]
const BURN_VERSION: &str = "0.22";

/// Measures operations. A peer whose result is not ours is in the report as such.
pub(crate) fn run(
    engine: &CpuEngine,
    operations: &[Operation],
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<BenchReport> {
    let memory = system::available_memory();
    let sizes = |&operation: &Operation| tasks(operation, options.quick, memory);
    let tasks: Vec<Task> = operations.iter().flat_map(sizes).collect();
    let mut report = empty_report(engine, options);
    if operations.contains(&Operation::Projection) && !options.quick {
        report.notes.extend(fewer_rows(memory));
    }
    let mut bench = Bench::new(engine, options, &mut report)?;
    #[cfg(feature = "nn")]
    if operations.contains(&Operation::Networks) && bench.others.is_some() {
        let version = BURN_VERSION.to_owned();
        report.libraries.insert("burn".into(), Some(version));
    }
    for (done, &task) in tasks.iter().enumerate() {
        let mut steps = Steps {
            progress,
            done: done as u64,
            total: tasks.len() as u64,
        };
        let measured = bench.measure(task, &mut steps)?;
        report.measurements.push(measured);
    }
    Ok(report)
}

/// A report in which nothing is measured yet.
pub(super) fn empty_report(engine: &CpuEngine, options: &Options) -> BenchReport {
    BenchReport {
        device: engine.describe(),
        processor: system::processor().unwrap_or_default(),
        quick: options.quick,
        ..BenchReport::default()
    }
}

/// The device and the processor as a report on this engine names them.
pub(crate) fn machine(engine: &CpuEngine) -> (String, String) {
    (engine.describe(), system::processor().unwrap_or_default())
}

fn fewer_rows(memory: Option<u64>) -> Option<String> {
    let rows = projected_rows(memory);
    let free = memory? as f64 / 1e9;
    let note =
        format!("projection of {rows} rows and not 1000000: {free:.1} GB of memory are free");
    (rows < 1_000_000).then_some(note)
}

/// Progress of a run, in hundredths of a task.
pub(super) struct Steps<'a> {
    pub(super) progress: &'a mut dyn Progress,
    pub(super) done: u64,
    pub(super) total: u64,
}

impl Steps<'_> {
    pub(super) fn at(&mut self, round: usize, rounds: usize) -> Result<()> {
        let part = (100 * round / rounds.max(1)) as u64;
        let done = 100 * self.done + part;
        Ok(check(self.progress, "measuring", done, 100 * self.total)?)
    }
}

pub(super) struct Bench<'a> {
    pub(super) engine: &'a CpuEngine,
    pub(super) rounds: usize,
    turn: Duration,
    pub(super) pause: Duration,
    pub(super) others: Option<Others>,
    pub(super) probe: Probe,
}

/// Everybody that is there to compare with.
pub(super) struct Others {
    // Ended before the folder goes that its script is in.
    python: Option<RefCell<Python>>,
    folder: Temporary,
    faer: Faer,
}

impl Others {
    fn new(
        engine: &CpuEngine,
        options: &Options,
        report: &mut BenchReport,
    ) -> Result<Option<Self>> {
        let Some(interpreter) = options.peers.interpreter() else {
            return Ok(None);
        };
        let folder = Temporary::new(options.folder.as_deref())?;
        let python = match Python::start(&interpreter, &folder, engine.threads())? {
            Ok(python) => {
                report.libraries.extend(python.libraries.clone());
                Some(RefCell::new(python))
            }
            Err(why) => {
                let absent = LIBRARIES.map(|name| (name.to_owned(), None));
                report.libraries.extend(absent);
                report.notes.push(why);
                None
            }
        };
        let version = Faer::VERSION.to_owned();
        report.libraries.insert("faer".into(), Some(version));
        let faer = Faer::new(engine.threads())?;
        Ok(Some(Self {
            python,
            folder,
            faer,
        }))
    }

    /// Returns all peers that do this task.
    pub(super) fn of<'a>(
        &'a self,
        case: &'a Case,
        engine: &'a CpuEngine,
        wanted: &Matrix,
    ) -> Result<Vec<Box<dyn Peer + 'a>>> {
        let mut peers = case.local_peers(engine, &self.faer);
        if let Some(python) = &self.python {
            peers.extend(case.python_peers(python, &self.folder, wanted)?);
        }
        Ok(peers)
    }
}

/// A peer while it is measured.
struct Contender<'a> {
    peer: Box<dyn Peer + 'a>,
    repeat: usize,
    difference: f64,
    tolerance: Option<f64>,
    seconds: Vec<f64>,
    ratios: Vec<f64>,
}

impl Contender<'_> {
    fn finish(self) -> PeerMeasurement {
        PeerMeasurement {
            name: self.peer.name().to_owned(),
            seconds: Spread::of(&self.seconds),
            ratio: Spread::of(&self.ratios),
            difference: self.difference,
            tolerance: self.tolerance,
            memory: None,
        }
    }
}

impl<'a> Bench<'a> {
    pub(super) fn new(
        engine: &'a CpuEngine,
        options: &Options,
        report: &mut BenchReport,
    ) -> Result<Self> {
        let (turn, pause) = match options.quick {
            true => (QUICK, QUICK),
            false => (TURN, PAUSE),
        };
        Ok(Self {
            engine,
            rounds: options.rounds(ROUNDS)?,
            turn,
            pause,
            others: Others::new(engine, options, report)?,
            probe: Probe::new(),
        })
    }

    fn measure(&mut self, task: Task, steps: &mut Steps<'_>) -> Result<Measurement> {
        steps.at(0, 1)?;
        let engine = self.engine;
        let case = Case::new(engine, task)?;
        let wanted = case.ours(engine)?.into_matrix();
        let begin = Instant::now();
        case.ours(engine)?;
        let once = begin.elapsed();
        let repeat = self.repeat(once.as_secs_f64());
        let rounds = self.rounds;
        let mut contenders = self.contenders(&case, &wanted, steps)?;
        drop(wanted);

        let mut ours = Vec::new();
        for round in 0..rounds {
            steps.at(round, rounds)?;
            std::thread::sleep(self.pause);
            let mut limit = Limit::from(self.probe.measure(engine));
            limit.flops *= task.lanes();
            let begin = Instant::now();
            for _ in 0..repeat {
                std::hint::black_box(case.ours(engine)?);
            }
            let own = begin.elapsed().as_secs_f64() / repeat as f64;
            ours.push((own, limit));
            for contender in &mut contenders {
                steps.at(round, rounds)?;
                std::thread::sleep(self.pause);
                let seconds = contender.peer.time(contender.repeat)?;
                contender.seconds.push(seconds);
                contender.ratios.push(seconds / own);
            }
        }
        let mut measured = Measurement::new(task.operation(), task.shape(), task.work(), &ours);
        measured.peers = contenders.into_iter().map(Contender::finish).collect();
        Ok(measured)
    }

    /// Returns the number of repetitions that fill a turn.
    pub(super) fn repeat(&self, seconds: f64) -> usize {
        (self.turn.as_secs_f64() / seconds.max(1e-6)).ceil() as usize
    }

    /// Runs every peer once and compares.
    fn contenders<'b>(
        &'b self,
        case: &'b Case,
        wanted: &Matrix,
        steps: &mut Steps<'_>,
    ) -> Result<Vec<Contender<'b>>> {
        let Some(others) = &self.others else {
            return Ok(Vec::new());
        };
        let mut contenders = Vec::new();
        for mut peer in others.of(case, self.engine, wanted)? {
            steps.at(0, 1)?;
            let (found, seconds) = peer.check()?;
            contenders.push(Contender {
                repeat: self.repeat(seconds),
                difference: case.difference(wanted, &found),
                tolerance: case.tolerance(peer.name()),
                seconds: Vec::new(),
                ratios: Vec::new(),
                peer,
            });
        }
        Ok(contenders)
    }
}
