//! `muso head` and `muso gram` on large feature files: time linear in the rows, memory that does not grow with them.
//!
//! ```text
//! cargo bench --bench head_scale -- [--rows N] [--rounds N]
//! ```
//!
//! Writes N/10 × 512 and N × 512 f32 feature files (N = 1,000,000: 2.3 GB, N = 2,000,000: 4.5 GB, in the target
//! directory, removed at the end), runs the built program on both in turn and fails when a limit is exceeded: the large
//! file may take at most 12 times as long as the small one, and a run at most 300 MiB. Then four processes sum a quarter
//! of the large file each, and the head of the merged sums is compared with the one of the whole file. Before all that,
//! the head of 20,000 rows is compared with one computed plainly in f64. The files were just written, so they are read
//! from the page cache where it holds them.

mod common;

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use muso::data::Head;
use muso::engine::Matrix;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use common::{cholesky_solve, gaussian_f32, median, relative};

type Outcome<T> = Result<T, Box<dyn Error>>;

const FEATURES: usize = 512;
const CLASSES: usize = 10;
const RIDGE: f64 = 1e-3;
/// One row in this many is forgotten.
const FORGET_EVERY: usize = 100;

const CHECKED_ROWS: usize = 20_000;
const DISTANCE_LIMIT: f64 = 1e-9;
const TIME_LIMIT: f64 = 12.0;
const MEMORY_LIMIT: u64 = 300 << 20;
const SHARDS: usize = 4;
/// For the head of the merged sums, relative to the head of one process.
const MERGED_LIMIT: f64 = 1e-12;

fn main() -> Outcome<ExitCode> {
    let options = Options::parse()?;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let sizes = [options.rows / 10, options.rows];
    let needed: u64 = sizes.iter().map(|&n| file_bytes(n)).sum();
    match free_bytes(dir.path()) {
        Some(free) if free < needed + (1 << 30) => {
            return Err(format!(
                "{} needs {:.1} GB and 1 GB to spare, and has {:.1} GB: use --rows or CARGO_TARGET_DIR",
                dir.path().display(),
                needed as f64 / 1e9,
                free as f64 / 1e9
            )
            .into());
        }
        Some(free) => println!(
            "{:.1} GB of files in the target directory, {:.0} GB free",
            needed as f64 / 1e9,
            free as f64 / 1e9
        ),
        None => println!(
            "{:.1} GB of files in the target directory, free space unknown",
            needed as f64 / 1e9
        ),
    }

    let mut limits = Limits { exceeded: false };
    let distance = distance_to_reference(dir.path())?;
    limits.test(
        distance < DISTANCE_LIMIT,
        format!(
            "{CHECKED_ROWS} x {FEATURES}: {distance:.1e} from the f64 reference, limit {DISTANCE_LIMIT:.0e}"
        ),
    );

    let mut inputs = Vec::new();
    for rows in sizes {
        let begin = Instant::now();
        inputs.push(Input::create(dir.path(), rows)?);
        println!(
            "{rows} rows written in {:.1} s",
            begin.elapsed().as_secs_f64()
        );
    }
    let mut runs: [[Vec<Run>; 2]; 2] = Default::default();
    for _ in 0..options.rounds {
        for (input, [head, gram]) in inputs.iter().zip(&mut runs) {
            head.push(input.head()?);
            gram.push(input.gram(&[], "sums")?);
        }
    }

    println!(
        "\n{:>9}  {:>7}  {:>9}  {:>6}  {:>10}  phases",
        "rows", "command", "seconds", "GB/s", "peak MiB"
    );
    for (input, commands) in inputs.iter().zip(&runs) {
        for (runs, command) in commands.iter().zip(["head", "gram"]) {
            for run in runs {
                run.print(input.rows, command);
            }
        }
    }
    let seconds = |runs: &[Run]| median(&runs.iter().map(|r| r.seconds).collect::<Vec<_>>());
    println!();
    // Summing is most of both; one of them tells.
    let ratio = seconds(&runs[1][0]) / seconds(&runs[0][0]);
    limits.test(
        ratio <= TIME_LIMIT,
        format!("ten times the rows take {ratio:.2} times as long, limit {TIME_LIMIT}"),
    );
    for (i, command) in ["head", "gram"].into_iter().enumerate() {
        let peak = runs.iter().flat_map(|commands| &commands[i]);
        let peak = peak.map(|run| run.peak).max().unwrap_or(0);
        limits.test(
            peak > 0 && peak < MEMORY_LIMIT,
            format!(
                "muso {command}: peak memory {:.0} MiB over {:.1} GB of features, limit {} MiB",
                mib(peak),
                (options.rows * FEATURES * 4) as f64 / 1e9,
                MEMORY_LIMIT >> 20
            ),
        );
    }
    let (distance, peak) = inputs[1].in_shards()?;
    limits.test(
        distance < MERGED_LIMIT && peak < MEMORY_LIMIT,
        format!(
            "{SHARDS} shards merged: {distance:.1e} from the head of one process, limit {MERGED_LIMIT:.0e}, \
             peak memory {:.0} MiB",
            mib(peak)
        ),
    );
    Ok(if limits.exceeded {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

struct Options {
    rows: usize,
    rounds: usize,
}

impl Options {
    fn parse() -> Outcome<Self> {
        // Without cargo's `--bench` this is `cargo test --benches`: only see that it works.
        let benched = std::env::args().any(|word| word == "--bench");
        let mut options = Self {
            rows: if benched { 1_000_000 } else { 50_000 },
            rounds: if benched { 3 } else { 1 },
        };
        let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
        while let Some(word) = words.next() {
            let value = words.next().ok_or(format!("{word} needs a value"))?;
            match word.as_str() {
                "--rows" => options.rows = value.parse()?,
                "--rounds" => options.rounds = value.parse::<usize>()?.max(1),
                _ => return Err(format!("unknown argument {word}").into()),
            }
        }
        if options.rows < 20 * FEATURES {
            return Err(format!("--rows {}: at least {}", options.rows, 20 * FEATURES).into());
        }
        Ok(options)
    }
}

/// Prints what was found beside its limit and remembers a failure.
struct Limits {
    exceeded: bool,
}

impl Limits {
    fn test(&mut self, met: bool, line: String) {
        println!("{} {line}", if met { "ok:" } else { "EXCEEDED:" });
        self.exceeded |= !met;
    }
}

/// A feature file with its head and forget list.
struct Input {
    rows: usize,
    dir: PathBuf,
}

/// What one run of the program said.
struct Run {
    /// Of the whole process.
    seconds: f64,
    peak: u64,
    phases: Vec<(String, f64)>,
}

impl Input {
    fn create(dir: &Path, rows: usize) -> Outcome<Self> {
        let dir = dir.join(rows.to_string());
        std::fs::create_dir(&dir)?;
        let mut features = FeatureStream::new();
        let mut file = BufWriter::with_capacity(1 << 20, File::create(dir.join("features"))?);
        file.write_all(&header(&[
            ("labels", "I64", &[rows], rows * 8),
            ("features", "F32", &[rows, FEATURES], rows * FEATURES * 4),
        ]))?;
        for i in 0..rows {
            file.write_all(&class_of(i).to_le_bytes())?;
        }
        let mut row = vec![0.0_f32; FEATURES];
        for i in 0..rows {
            features.next_row(class_of(i), &mut row);
            for value in &row {
                file.write_all(&value.to_le_bytes())?;
            }
        }
        file.flush()?;

        let mut head = header(&[
            (
                "weight",
                "F32",
                &[CLASSES, FEATURES],
                CLASSES * FEATURES * 4,
            ),
            ("bias", "F32", &[CLASSES], CLASSES * 4),
        ]);
        for value in gaussian_f32(CLASSES * (FEATURES + 1), 1) {
            head.extend(value.to_le_bytes());
        }
        std::fs::write(dir.join("head"), head)?;
        let ids = (0..rows).step_by(FORGET_EVERY).map(|i| format!("{i}\n"));
        std::fs::write(dir.join("forget"), ids.collect::<String>())?;
        Ok(Self { rows, dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes the new head of the whole file.
    fn head(&self) -> Outcome<Run> {
        let mut command = program("head");
        command.arg("--features").arg(self.path("features"));
        command.arg("--forget").arg(self.path("forget"));
        self.solve(command, "new")
    }

    /// Sums rows of the file.
    fn gram(&self, portion: &[&str], out: &str) -> Outcome<Run> {
        let mut command = program("gram");
        command.arg(self.path("features")).args(portion);
        command.arg("--head").arg(self.path("head"));
        command.arg("--forget").arg(self.path("forget"));
        self.run(command, out)
    }

    /// Distance of the head of merged shards to that of one process, and the most memory that any run had.
    fn in_shards(&self) -> Outcome<(f64, u64)> {
        let mut merge = program("merge");
        let mut runs = Vec::new();
        for k in 0..SHARDS {
            let name = format!("shard-{k}");
            let portion = ["--shards", &SHARDS.to_string(), "--shard", &k.to_string()];
            runs.push(self.gram(&portion, &name)?);
            merge.arg(self.path(&name));
        }
        runs.push(self.run(merge, "merged")?);
        let mut command = program("head");
        command.arg("--sums").arg(self.path("merged"));
        runs.push(self.solve(command, "of-shards")?);
        let peak = runs.iter().map(|run| run.peak).max().unwrap_or(u64::MAX);
        let [found, wanted] = ["of-shards", "new"].map(|name| Head::load(self.path(name)));
        Ok((relative(&found?.weight, &wanted?.weight), peak))
    }

    fn solve(&self, mut command: Command, out: &str) -> Outcome<Run> {
        command.arg("--head").arg(self.path("head"));
        command.args(["--objective", "ridge", "--ridge", &RIDGE.to_string()]);
        self.run(command, out)
    }

    fn run(&self, mut command: Command, out: &str) -> Outcome<Run> {
        command.arg("--out").arg(self.path(out));
        command.arg("--json").arg(self.path("report"));
        let begin = Instant::now();
        let output = command.output()?;
        let seconds = begin.elapsed().as_secs_f64();
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{command:?}: {}: {said}", output.status).into());
        }
        let report: Value = serde_json::from_slice(&std::fs::read(self.path("report"))?)?;
        let phases = report["phases"].as_array().into_iter().flatten();
        Ok(Run {
            seconds,
            peak: report["peak_memory_bytes"].as_u64().unwrap_or(0),
            phases: phases
                .map(|phase| {
                    let name = phase["name"].as_str().unwrap_or("?").to_owned();
                    (name, phase["seconds"].as_f64().unwrap_or(f64::NAN))
                })
                .collect(),
        })
    }
}

fn program(command: &str) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_muso"));
    program.arg(command);
    program
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

impl Run {
    fn print(&self, rows: usize, command: &str) {
        let phases: Vec<String> = self
            .phases
            .iter()
            .map(|(name, seconds)| format!("{name} {seconds:.3}"))
            .collect();
        println!(
            "{rows:>9}  {command:>7}  {:>9.3}  {:>6.2}  {:>10.0}  {}",
            self.seconds,
            file_bytes(rows) as f64 / 1e9 / self.seconds,
            mib(self.peak),
            phases.join(", ")
        );
    }
}

/// The same rows for every file, as far as each goes: a centre for each class, and noise.
struct FeatureStream {
    rng: ChaCha8Rng,
    centres: Vec<f32>,
}

impl FeatureStream {
    fn new() -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(2),
            centres: gaussian_f32(CLASSES * FEATURES, 3),
        }
    }

    fn next_row(&mut self, class: i64, row: &mut [f32]) {
        let centre = &self.centres[class as usize * FEATURES..][..FEATURES];
        for (value, centre) in row.iter_mut().zip(centre) {
            *value = 4.0 * (self.rng.random::<f32>() - 0.5) + 0.25 * centre;
        }
    }
}

fn class_of(row: usize) -> i64 {
    // Neighbours differ, and so do the classes of the forgotten rows.
    (row.wrapping_mul(2_654_435_761) >> 7) as i64 % CLASSES as i64
}

fn file_bytes(rows: usize) -> u64 {
    (rows * (FEATURES * 4 + 8)) as u64
}

/// A safetensors header for tensors that follow each other.
fn header(tensors: &[(&str, &str, &[usize], usize)]) -> Vec<u8> {
    let mut at = 0;
    let mut entries = serde_json::Map::new();
    for &(name, dtype, shape, bytes) in tensors {
        let entry =
            serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": [at, at + bytes]});
        entries.insert(name.into(), entry);
        at += bytes;
    }
    let mut text = Value::Object(entries).to_string();
    text.extend(std::iter::repeat_n(
        ' ',
        text.len().next_multiple_of(8) - text.len(),
    ));
    let mut out = (text.len() as u64).to_le_bytes().to_vec();
    out.extend(text.into_bytes());
    out
}

/// ‖W − W_ref‖ / ‖W_ref‖ for the head that the program makes of the first rows.
///
/// The reference adds up G_r + λI and Z_rᵀY_r row by row over the retained rows and solves by an unblocked Cholesky
/// factor, all in f64.
fn distance_to_reference(dir: &Path) -> Outcome<f64> {
    let input = Input::create(dir, CHECKED_ROWS)?;
    input.head()?;
    let found = Head::load(input.path("new"))?;
    let bias = found.bias.as_ref().ok_or("the new head has no bias")?;

    let order = FEATURES + 1;
    let mut gram = Matrix::zeros(order, order);
    let mut cross = Matrix::zeros(order, CLASSES);
    let mut features = FeatureStream::new();
    let mut row = vec![0.0_f32; FEATURES];
    for i in 0..CHECKED_ROWS {
        features.next_row(class_of(i), &mut row);
        if i % FORGET_EVERY == 0 {
            continue;
        }
        let wide: Vec<f64> = row.iter().map(|&x| f64::from(x)).chain([1.0]).collect();
        for (j, &x) in wide.iter().enumerate() {
            for (out, y) in gram.row_mut(j)[..=j].iter_mut().zip(&wide) {
                *out += x * y;
            }
            cross[(j, class_of(i) as usize)] += x;
        }
    }
    let wanted = cholesky_solve(&gram, RIDGE, &cross);
    let found = Matrix::from_fn(order, CLASSES, |d, c| {
        if d < FEATURES {
            found.weight[(c, d)]
        } else {
            bias[c]
        }
    });
    std::fs::remove_dir_all(&input.dir)?;
    Ok(relative(&found, &wanted))
}

/// Bytes free where `path` is, from `df`, which every Unix has.
fn free_bytes(path: &Path) -> Option<u64> {
    let output = Command::new("df").arg("-Pk").arg(path).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let kib: u64 = text
        .lines()
        .nth(1)?
        .split_whitespace()
        .nth(3)?
        .parse()
        .ok()?;
    Some(kib * 1024)
}
