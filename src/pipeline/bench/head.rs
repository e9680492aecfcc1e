//! The whole of `muso head` against numpy: processes from start to end, reading and writing included.
//!
//! A file of N × 512 f32 rows in ten classes is written once. One row in a hundred is forgotten, with a ridge of 1e-3 and
//! a bias. Each round runs our program, the shortest script of numpy that gives the same head, and one that reads the
//! rows in chunks; the three heads must agree. The files come from the page cache where it holds them.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::cpu::empty_report;
use super::inputs::{gaussian, gaussian_f32, npy_header};
use super::peers::with_threads;
use super::temporary::Temporary;
use super::work::available_memory;
use super::{BenchReport, Limit, Measurement, Options, PeerMeasurement, Spread, Work};
use crate::data::{Head, OutTensor, TensorFile, to_safetensors};
use crate::engine::{CpuEngine, Dtype, Matrix, Probe};
use crate::error::{Error, Result};
use crate::progress::{Progress, check};

/// Rows when not told.
pub const ROWS: usize = 1_000_000;
/// The same with reduced sizes.
pub const ROWS_QUICK: usize = 20_000;

const FEATURES: usize = 512;
const CLASSES: usize = 10;
const RIDGE: &str = "1e-3";
/// One row in this many is forgotten.
const FORGET_EVERY: usize = 100;
const ROUNDS: usize = 5;
/// Relative, Frobenius.
const TOLERANCE: f64 = 1e-9;

/// Prints the most memory that the process has had; not part of the task.
const TAIL: &str = "
try:
    print([line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')][0])
except OSError:
    print(0)
";

/// Name, script and bytes that it needs for each of the values.
const SCRIPTS: [(&str, &str, usize); 2] = [
    ("numpy", include_str!("peers/head.py"), 20),
    ("numpy in chunks", include_str!("peers/head_chunked.py"), 0),
];

/// What one process said.
struct Run {
    seconds: f64,
    memory: Option<u64>,
    head: Matrix,
}

/// Measures `program`, which is muso, on a file of `rows` rows.
pub fn run(
    engine: &CpuEngine,
    program: &Path,
    rows: usize,
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<BenchReport> {
    let rounds = options.rounds(ROUNDS)?;
    if rows < 2 * FEATURES {
        return Err(Error::Parameter {
            name: "--rows",
            value: rows.to_string(),
            expected: format!("at least {}", 2 * FEATURES),
        });
    }
    let mut report = empty_report(engine, options);
    let folder = Temporary::new(options.folder.as_deref())?;
    let bytes = rows * (FEATURES * 4 + 8);
    folder.needs(bytes as u64)?;
    let gigabytes = bytes as f64 / 1e9;
    let place = folder.path().parent().unwrap_or(folder.path());
    let note = format!("{gigabytes:.2} GB of files in {}", place.display());
    report.notes.push(note);
    write_input(&folder, rows, progress)?;

    let bench = Bench {
        program,
        python: interpreter(options, &mut report),
        threads: engine.threads(),
        folder,
    };
    let mut scripts = bench.scripts(rows, &mut report);
    let probe = Probe::new();
    let mut ours: Vec<(f64, Limit)> = Vec::new();
    let mut memory = None;
    for round in 0..rounds {
        let mut step = |turn: usize| {
            let turns = 1 + SCRIPTS.len();
            let done = (round * turns + turn) as u64;
            check(progress, "measuring", done, (rounds * turns) as u64)
        };
        step(0)?;
        let limit = Limit::from(probe.measure(engine));
        // A process that Ctrl-C ended is no failure of its own.
        let own = bench.ours().or_else(|e| step(0).and(Err(e)))?;
        ours.push((own.seconds, limit));
        memory = memory.max(own.memory);
        for (k, script) in scripts.iter_mut().enumerate() {
            step(k + 1)?;
            let run = bench.script(script.text);
            let run = run.or_else(|e| step(k + 1).and(Err(e)))?;
            script.add(&run, &own);
        }
    }
    let shape =
        format!("N = {rows}, D = {FEATURES} + bias, C = {CLASSES}, f32 file, whole process");
    let mut measured = Measurement::new("head".into(), shape, work(rows), &ours);
    measured.memory = memory;
    measured.peers = scripts.into_iter().map(Script::finish).collect();
    report.measurements.push(measured);
    Ok(report)
}

/// A script and what its runs gave.
struct Script {
    name: &'static str,
    text: &'static str,
    seconds: Vec<f64>,
    ratios: Vec<f64>,
    difference: f64,
    memory: Option<u64>,
}

impl Script {
    fn add(&mut self, run: &Run, own: &Run) {
        self.seconds.push(run.seconds);
        self.ratios.push(run.seconds / own.seconds);
        self.memory = self.memory.max(run.memory);
        let difference = relative(&run.head, &own.head);
        // `max` would pass over NaN.
        self.difference = match difference.is_nan() {
            true => f64::INFINITY,
            false => self.difference.max(difference),
        };
    }

    fn finish(self) -> PeerMeasurement {
        PeerMeasurement {
            name: self.name.into(),
            seconds: Spread::of(&self.seconds),
            ratio: Spread::of(&self.ratios),
            difference: self.difference,
            tolerance: Some(TOLERANCE),
            memory: self.memory,
        }
    }
}

/// Sums over the rows, a triangle of G and a column of one-hot targets for each; the file read once.
fn work(rows: usize) -> Work {
    let order = FEATURES + 1;
    Work {
        flops: rows as f64 * (order * order + order) as f64,
        bytes: (rows * (FEATURES * 4 + 8)) as f64,
    }
}

/// The interpreter, if it has numpy.
fn interpreter(options: &Options, report: &mut BenchReport) -> Option<PathBuf> {
    let python = options.peers.interpreter()?;
    let mut command = Command::new(&python);
    command.args(["-c", "import numpy; print(numpy.__version__)"]);
    let found = command.stdin(Stdio::null()).output();
    let version = found.ok().filter(|output| output.status.success());
    let version = version.map(|output| text(&output.stdout));
    let is_there = version.is_some();
    report.libraries.insert("numpy".into(), version);
    is_there.then_some(python)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

struct Bench<'a> {
    program: &'a Path,
    python: Option<PathBuf>,
    threads: usize,
    folder: Temporary,
}

impl Bench<'_> {
    /// Those that can run here.
    fn scripts(&self, rows: usize, report: &mut BenchReport) -> Vec<Script> {
        if self.python.is_none() {
            return Vec::new();
        }
        let mut scripts = Vec::new();
        for (name, text, bytes) in SCRIPTS {
            let needed = (rows * FEATURES * bytes) as u64;
            match available_memory() {
                Some(free) if free < needed => report.notes.push(format!(
                    "{name} left out: it needs {:.1} GB of memory, and {:.1} GB are free",
                    needed as f64 / 1e9,
                    free as f64 / 1e9
                )),
                _ => scripts.push(Script {
                    name,
                    text,
                    seconds: Vec::new(),
                    ratios: Vec::new(),
                    difference: 0.0,
                    memory: None,
                }),
            }
        }
        scripts
    }

    /// Runs a process in the folder.
    fn timed(&self, name: &str, command: &mut Command) -> Result<(f64, Output)> {
        let failed = |why: String| Error::Peer {
            name: name.into(),
            why,
        };
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("RUST_BACKTRACE", "0");
        let begin = Instant::now();
        let output = command.output().map_err(|e| failed(e.to_string()))?;
        let seconds = begin.elapsed().as_secs_f64();
        if !output.status.success() {
            let said = text(&output.stderr);
            let mut lines = said.lines().filter(|line| !line.starts_with("note:"));
            let last = lines.next_back().unwrap_or_default();
            return Err(failed(format!("{}: {last}", output.status)));
        }
        Ok((seconds, output))
    }

    fn ours(&self) -> Result<Run> {
        let mut command = Command::new(self.program);
        command.args([
            "head",
            "--features",
            "features.npy",
            "--labels",
            "labels.npy",
        ]);
        command.args(["--head", "head.safetensors", "--forget", "forget"]);
        command.args(["--objective", "ridge", "--ridge", RIDGE]);
        command.args(["--out", "new.safetensors", "--json", "report.json"]);
        command.args(["--threads", &self.threads.to_string()]);
        let (seconds, _) = self.timed("muso head", &mut command)?;
        let path = self.folder.join("report.json");
        let report = std::fs::read(&path).map_err(|e| Error::io(&path, "read", e))?;
        let report: serde_json::Value = serde_json::from_slice(&report).unwrap_or_default();
        let head = Head::load(self.folder.join("new.safetensors"))?;
        let bias = head.bias.unwrap_or_default();
        Ok(Run {
            seconds,
            memory: report["peak_memory_bytes"].as_u64(),
            head: Matrix::from_fn(FEATURES + 1, CLASSES, |d, c| match d < FEATURES {
                true => head.weight[(c, d)],
                false => bias.get(c).copied().unwrap_or(f64::NAN),
            }),
        })
    }

    fn script(&self, script: &str) -> Result<Run> {
        let python = self.python.as_deref().unwrap_or(Path::new("python3"));
        let mut command = Command::new(python);
        command.args(["-c", &format!("{script}{TAIL}")]);
        with_threads(&mut command, self.threads);
        let (seconds, output) = self.timed("numpy", &mut command)?;
        let kib = text(&output.stdout).parse::<u64>().ok();
        let file = TensorFile::open(self.folder.join("head.npy"))?;
        Ok(Run {
            seconds,
            memory: kib.filter(|&kib| kib > 0).map(|kib| 1024 * kib),
            head: file.matrix("head")?.to_matrix()?,
        })
    }
}

/// ‖a − b‖ / ‖b‖, Frobenius; infinite where the shapes differ.
fn relative(a: &Matrix, b: &Matrix) -> f64 {
    if (a.rows(), a.cols()) != (b.rows(), b.cols()) {
        return f64::INFINITY;
    }
    a.zip(b, |a, b| a - b).norm() / b.norm().max(f64::MIN_POSITIVE)
}

/// Neighbours differ, and so do the classes of the forgotten rows.
fn class_of(row: usize) -> i64 {
    (row.wrapping_mul(2_654_435_761) >> 7) as i64 % CLASSES as i64
}

/// Features (a centre for each class, and noise), labels, rows to forget and a head of any weights.
fn write_input(folder: &Temporary, rows: usize, progress: &mut dyn Progress) -> Result<()> {
    let path = folder.join("features.npy");
    let failed = |e| Error::io(&path, "write", e);
    let mut file = BufWriter::with_capacity(1 << 20, File::create(&path).map_err(failed)?);
    let header = npy_header("<f4", &[rows, FEATURES]);
    file.write_all(&header).map_err(failed)?;
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let centres = gaussian_f32(CLASSES * FEATURES, 3);
    let mut row = vec![0.0_f32; FEATURES];
    for i in 0..rows {
        if i % 10_000 == 0 {
            check(progress, "writing", i as u64, rows as u64)?;
        }
        let centre = &centres[class_of(i) as usize * FEATURES..][..FEATURES];
        for (value, centre) in row.iter_mut().zip(centre) {
            *value = 4.0 * (rng.random::<f32>() - 0.5) + 0.25 * centre;
        }
        file.write_all(bytemuck::cast_slice(&row)).map_err(failed)?;
    }
    file.flush().map_err(failed)?;

    let labels: Vec<i64> = (0..rows).map(class_of).collect();
    let mut bytes = npy_header("<i8", &[rows]);
    bytes.extend_from_slice(bytemuck::cast_slice(&labels));
    let forget = (0..rows).step_by(FORGET_EVERY).map(|i| format!("{i}\n"));
    let (values, dtype) = (&gaussian(CLASSES, FEATURES, 1), Dtype::F64);
    let head = to_safetensors(&[
        ("weight", OutTensor::Matrix { values, dtype }),
        (
            "bias",
            OutTensor::Vector {
                values: &[0.0; CLASSES],
                dtype,
            },
        ),
    ])?;
    for (name, bytes) in [
        ("labels.npy", bytes),
        ("forget", forget.collect::<String>().into_bytes()),
        ("head.safetensors", head),
    ] {
        let path = folder.join(name);
        std::fs::write(&path, bytes).map_err(|e| Error::io(&path, "write", e))?;
    }
    Ok(())
}
