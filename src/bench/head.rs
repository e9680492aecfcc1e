//! The whole of `muso head` and `muso gram`: processes from start to end, reading and writing included.
//!
//! Two files are written once, one of N rows and one of a tenth. Each round runs our program on both, and on the large
//! one the shortest script of numpy that gives the same head and one that reads the rows in chunks; the three heads must
//! agree. The report holds what was found against limits: the head of a small file against one computed plainly in f64,
//! time that is linear in the rows, memory that does not grow with them, and four processes that sum a quarter of the
//! large file each, whose merged sums must give the head of the whole file. The files come from the page cache where it
//! holds them.
//!
//! In the same rounds `--exact` runs on the large file, on a grid that is given at some widths and on one that is
//! recorded in a pass of its own. Then a share of its rows is given a value beyond the grid, and both take turns again.

mod exact;
mod files;
mod processes;

use std::path::Path;

use anyhow::Result;
use muso::engine::{CpuEngine, Matrix, Probe};
use muso::progress::{Progress, check};
use muso::system;

use self::exact::{BEYOND, Exact};
use self::files::{CLASSES, FEATURES, Input, file_bytes, reference};
use self::processes::{Processes, Run, SHARDS, head, interpreter};
use super::cpu::empty_report;
use super::reference::relative;
use super::temporary::Temporary;
use super::{
    BenchReport, Check, Limit, Measurement, Options, PeerMeasurement, Spread, Work, at_least,
};

/// Rows when not told.
pub(crate) const ROWS: usize = 1_000_000;
/// Default number of rows with reduced sizes.
pub(crate) const ROWS_QUICK: usize = 20_000;

/// The small file has one row for so many of the large one.
const TENTH: usize = 10;
/// The most rows that the plain reference is computed for.
const CHECKED_ROWS: usize = 20_000;
const ROUNDS: usize = 5;
/// Tolerance between a head of numpy, or the plain one, and ours: relative, Frobenius.
const TOLERANCE: f64 = 1e-9;
/// Tolerance for the head of merged sums.
const MERGED_TOLERANCE: f64 = 1e-12;
/// Largest ratio of times for ten times the rows.
const TIME_LIMIT: f64 = 12.0;
/// Largest resident memory of a process, whatever the rows.
const MEMORY_LIMIT: u64 = 300 << 20;

/// Name, script and bytes that it needs for each of the values.
const SCRIPTS: [(&str, &str, usize); 2] = [
    ("numpy", include_str!("peers/head.py"), 20),
    ("numpy in chunks", include_str!("peers/head_chunked.py"), 0),
];

/// Measures `program`, which is muso, on files of `rows` rows and of a tenth of them.
pub(crate) fn run(
    engine: &CpuEngine,
    program: &Path,
    rows: usize,
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<BenchReport> {
    let rounds = options.rounds(ROUNDS)?;
    at_least("`.rows`", rows, 2 * FEATURES)?;
    let mut report = empty_report(engine, options);
    let folder = Temporary::new(options.folder.as_deref())?;
    let bytes = file_bytes(rows) + file_bytes(rows / TENTH);
    folder.needs(bytes)?;
    let gigabytes = bytes as f64 / 1e9;
    let place = folder.path().parent().unwrap_or(folder.path());
    let note = format!("{gigabytes:.2} GB of files in {}", place.display());
    report.notes.push(note);

    let processes = Processes {
        program,
        python: interpreter(options, &mut report),
        threads: engine.threads(),
    };
    check(progress, "checking", 0, 1)?;
    let distance = distance_to_reference(&processes, folder.path(), rows / TENTH)?;
    report.checks.push(distance);

    let mut large = Sides::new(Input::create(folder.path(), rows, progress)?);
    let mut small = Sides::new(Input::create(folder.path(), rows / TENTH, progress)?);
    let mut exact = Exact::all();
    let mut scripts = scripts(&processes, rows, &mut report);
    let probe = Probe::new();
    for round in 0..rounds {
        let turns = 4 + exact.len() + scripts.len();
        let mut turn = 0;
        // A process that Ctrl-C ended is no failure of its own.
        let mut timed = |run: &mut dyn FnMut() -> Result<()>| -> Result<()> {
            let (done, total) = ((round * turns + turn) as u64, (rounds * turns) as u64);
            turn += 1;
            let mut step = || check(progress, "measuring", done, total);
            step()?;
            run().or_else(|error| step().map_err(anyhow::Error::from).and(Err(error)))
        };
        let limit = Limit::from(probe.measure(engine));
        for sides in [&mut large, &mut small] {
            timed(&mut || sides.head.add(processes.head(&sides.input)?, limit))?;
            timed(&mut || {
                sides
                    .gram
                    .add(processes.gram(&sides.input, &[], "sums")?, limit)
            })?;
        }
        let own = head(&large.input, "new")?;
        for run in &mut exact {
            timed(&mut || run.add(&processes, &large.input, large.head.last(), &own))?;
        }
        for script in &mut scripts {
            timed(&mut || {
                let (run, head) = processes.script(&large.input, script.text)?;
                script.turns.add(&run, large.head.last(), &head, &own);
                Ok(())
            })?;
        }
    }
    let (distance, memory) = processes.in_shards(&large.input)?;
    report.checks.extend(limits(&large, &small));
    report.checks.push(Check::new(
        distance <= MERGED_TOLERANCE && within(memory),
        format!(
            "{SHARDS} shards merged: {distance:.1e} from the head of one process, limit {MERGED_TOLERANCE:.0e}; peak \
             memory {}",
            mebibytes(memory)
        ),
    ));
    report.checks.extend(exact.iter().map(Exact::memory));
    let mut measured = large.measurements();
    let exact = exact.into_iter().map(Exact::finish);
    measured[0].peers = exact
        .chain(scripts.into_iter().map(Script::finish))
        .collect();
    report.measurements.extend(measured);
    report.measurements.extend(small.measurements());
    for percent in BEYOND {
        large.input.put_beyond(percent)?;
        let mut plain = Side::default();
        let mut exact = Exact::with_beyond(percent);
        for round in 0..rounds {
            let mut step = || check(progress, "beyond the grid", round as u64, rounds as u64);
            step()?;
            let limit = Limit::from(probe.measure(engine));
            let both = exact.add_beside(&processes, &large.input, &mut plain, limit);
            both.or_else(|error| step().map_err(anyhow::Error::from).and(Err(error)))?;
        }
        let shape = format!("{}, {percent} % beyond the grid", large.shape());
        let mut measured = plain.measurement("head", shape, large.input.work());
        report.checks.push(exact.memory());
        measured.peers = vec![exact.finish()];
        report.measurements.push(measured);
    }
    Ok(report)
}

/// Compares the head of a small file with one computed plainly.
fn distance_to_reference(processes: &Processes<'_>, folder: &Path, rows: usize) -> Result<Check> {
    let rows = rows.min(CHECKED_ROWS);
    let place = Temporary::new(Some(folder))?;
    let input = Input::create(place.path(), rows, &mut ())?;
    processes.head(&input)?;
    let distance = relative(&head(&input, "new")?, &reference(rows));
    Ok(Check::new(
        distance <= TOLERANCE,
        format!(
            "{rows} rows: {distance:.1e} from the head computed plainly in f64, limit {TOLERANCE:.0e}"
        ),
    ))
}

/// Time that is linear in the rows, and memory that does not grow with them.
fn limits(large: &Sides, small: &Sides) -> Vec<Check> {
    let ratio = large.head.median() / small.head.median();
    let mut checks = vec![Check::new(
        ratio <= TIME_LIMIT,
        format!(
            "muso head: {TENTH} times the rows take {ratio:.2} times as long, limit {TIME_LIMIT}"
        ),
    )];
    for (name, sides) in [
        ("muso head", [&large.head, &small.head]),
        ("muso gram", [&large.gram, &small.gram]),
    ] {
        let memory = sides.map(|side| side.memory).into_iter().max().flatten();
        checks.push(Check::new(
            within(memory),
            format!(
                "{name}: peak memory {} over {:.2} GB of rows, limit {} MiB",
                mebibytes(memory),
                file_bytes(large.input.rows) as f64 / 1e9,
                MEMORY_LIMIT >> 20
            ),
        ));
    }
    checks
}

/// Returns whether the memory is within the limit; true where the system does not tell.
fn within(memory: Option<u64>) -> bool {
    memory.is_none_or(|bytes| bytes < MEMORY_LIMIT)
}

fn mebibytes(memory: Option<u64>) -> String {
    memory.map_or_else(
        || "unknown".into(),
        |bytes| format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20)),
    )
}

/// Both commands on one file.
struct Sides {
    input: Input,
    head: Side,
    gram: Side,
}

/// The runs of one command on one file.
#[derive(Default)]
struct Side {
    rounds: Vec<(f64, Limit)>,
    memory: Option<u64>,
}

impl Side {
    fn add(&mut self, run: Run, limit: Limit) -> Result<()> {
        self.rounds.push((run.seconds, limit));
        self.memory = self.memory.max(run.memory);
        Ok(())
    }

    fn last(&self) -> f64 {
        self.rounds.last().map_or(f64::NAN, |round| round.0)
    }

    fn measurement(&self, operation: &str, shape: String, work: Work) -> Measurement {
        let mut measured = Measurement::new(operation.into(), shape, work, &self.rounds);
        measured.memory = self.memory;
        measured
    }

    fn median(&self) -> f64 {
        let seconds: Vec<f64> = self.rounds.iter().map(|round| round.0).collect();
        Spread::of(&seconds).median
    }
}

impl Sides {
    fn new(input: Input) -> Self {
        Self {
            input,
            head: Side::default(),
            gram: Side::default(),
        }
    }

    fn shape(&self) -> String {
        let rows = self.input.rows;
        format!("N = {rows}, D = {FEATURES} + bias, C = {CLASSES}, f32 file, whole process")
    }

    /// Returns the measurements of `muso head` and of `muso gram`.
    fn measurements(&self) -> [Measurement; 2] {
        let (shape, work) = (self.shape(), self.input.work());
        [("head", &self.head), ("muso gram", &self.gram)]
            .map(|(operation, side)| side.measurement(operation, shape.clone(), work))
    }
}

/// What the runs of another process gave beside ours.
#[derive(Default)]
struct Turns {
    seconds: Vec<f64>,
    ratios: Vec<f64>,
    difference: f64,
    memory: Option<u64>,
}

impl Turns {
    fn add(&mut self, run: &Run, own_seconds: f64, head: &Matrix, own: &Matrix) {
        self.seconds.push(run.seconds);
        self.ratios.push(run.seconds / own_seconds);
        self.memory = self.memory.max(run.memory);
        let difference = relative(head, own);
        // `max` would pass over NaN.
        self.difference = match difference.is_nan() {
            true => f64::INFINITY,
            false => self.difference.max(difference),
        };
    }

    fn finish(self, name: String, tolerance: f64) -> PeerMeasurement {
        PeerMeasurement {
            name,
            seconds: Spread::of(&self.seconds),
            ratio: Spread::of(&self.ratios),
            difference: self.difference,
            tolerance: Some(tolerance),
            memory: self.memory,
        }
    }
}

/// A script and what its runs gave.
struct Script {
    name: &'static str,
    text: &'static str,
    turns: Turns,
}

impl Script {
    fn finish(self) -> PeerMeasurement {
        self.turns.finish(self.name.into(), TOLERANCE)
    }
}

/// Returns the scripts that can run here, and notes which cannot.
fn scripts(processes: &Processes<'_>, rows: usize, report: &mut BenchReport) -> Vec<Script> {
    let mut scripts = Vec::new();
    if processes.python.is_none() {
        return scripts;
    }
    for (name, text, bytes) in SCRIPTS {
        let needed = (rows * FEATURES * bytes) as u64;
        match system::available_memory() {
            Some(free) if free < needed => report.notes.push(format!(
                "{name} left out: it needs {:.1} GB of memory, and {:.1} GB are free",
                needed as f64 / 1e9,
                free as f64 / 1e9
            )),
            _ => scripts.push(Script {
                name,
                text,
                turns: Turns::default(),
            }),
        }
    }
    scripts
}
