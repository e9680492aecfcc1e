//! The processes that are timed: our program and the scripts of numpy, each from start to end.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use anyhow::Result;
use muso::Error;
use muso::data::{Head, TensorFile};
use muso::engine::Matrix;

use super::super::peers::with_threads;
use super::super::reference::relative;
use super::super::{BenchReport, Options, failed};
use super::files::{CLASSES, FEATURES, Input, RIDGE};

/// Parts that the rows are summed in, each by a process of its own.
pub(super) const SHARDS: usize = 4;

/// The whole file, without the rows to forget.
const WHOLE: [&str; 6] = [
    "--features",
    "features.npy",
    "--labels",
    "labels.npy",
    "--forget",
    "forget",
];

/// Prints the most memory that the process has had; not part of the task.
const TAIL: &str = "
try:
    print([line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')][0])
except OSError:
    print(0)
";

/// Time and memory of one process.
pub(super) struct Run {
    pub(super) seconds: f64,
    /// The most memory that it had, where the system tells.
    pub(super) memory: Option<u64>,
}

/// Programs with what all of their runs share.
pub(super) struct Processes<'a> {
    pub(super) program: &'a Path,
    pub(super) python: Option<PathBuf>,
    pub(super) threads: usize,
}

impl Processes<'_> {
    /// Runs `muso head` on the whole file.
    pub(super) fn head(&self, input: &Input) -> Result<Run> {
        self.solve(input, &WHOLE, "new")
    }

    /// The same with exact sums, on a grid of that range or one that is recorded; the head is `exact`.
    pub(super) fn exact_head(&self, input: &Input, bits: u32, range: Option<f64>) -> Result<Run> {
        let (bits, range) = (bits.to_string(), range.map(|range| range.to_string()));
        let mut words = WHOLE.to_vec();
        words.extend(["--exact", &bits]);
        if let Some(range) = &range {
            words.extend(["--grid", range]);
        }
        self.solve(input, &words, "exact")
    }

    /// Runs `muso gram` on a part of the rows, or on all.
    pub(super) fn gram(&self, input: &Input, portion: &[&str], out: &str) -> Result<Run> {
        let files = ["features.npy", "--labels", "labels.npy"];
        let request = ["--head", "head.safetensors", "--forget", "forget"];
        self.ours(
            input,
            "gram",
            &[&files[..], &request, portion].concat(),
            out,
        )
    }

    /// Sums the rows in parts, merges them and solves; returns how far that head is from the one of the whole file, and
    /// the most memory that any of the processes had.
    pub(super) fn in_shards(&self, input: &Input) -> Result<(f64, Option<u64>)> {
        let count = SHARDS.to_string();
        let names: Vec<String> = (0..SHARDS).map(|k| format!("shard-{k}")).collect();
        let mut runs = Vec::new();
        for (k, name) in names.iter().enumerate() {
            let portion = ["--shards", &count, "--shard", &k.to_string()];
            runs.push(self.gram(input, &portion, name)?);
        }
        let shards: Vec<String> = names.iter().map(|name| file_name(name)).collect();
        let shards: Vec<&str> = shards.iter().map(String::as_str).collect();
        runs.push(self.ours(input, "merge", &shards, "merged")?);
        runs.push(self.solve(input, &["--sums", "merged.safetensors"], "of-shards")?);
        let distance = relative(&head(input, "of-shards")?, &head(input, "new")?);
        Ok((distance, runs.iter().filter_map(|run| run.memory).max()))
    }

    fn solve(&self, input: &Input, source: &[&str], out: &str) -> Result<Run> {
        let ridge = RIDGE.to_string();
        let request = [
            "--head",
            "head.safetensors",
            "--objective",
            "ridge",
            "--ridge",
            &ridge,
        ];
        self.ours(input, "head", &[source, &request].concat(), out)
    }

    fn ours(&self, input: &Input, command: &str, words: &[&str], out: &str) -> Result<Run> {
        let mut process = Command::new(self.program);
        process.arg(command).args(words);
        process.args(["--out", &file_name(out), "--json", "report.json"]);
        process.args(["--threads", &self.threads.to_string()]);
        let (seconds, _) = timed(input, &format!("muso {command}"), &mut process)?;
        let path = input.path("report.json");
        let report = std::fs::read(&path).map_err(|e| Error::io(&path, "read", e))?;
        let report: serde_json::Value = serde_json::from_slice(&report).unwrap_or_default();
        Ok(Run {
            seconds,
            memory: report["peak_memory_bytes"].as_u64(),
        })
    }

    /// Runs a script of numpy; its head is that of the file it writes.
    pub(super) fn script(&self, input: &Input, script: &str) -> Result<(Run, Matrix)> {
        let python = self.python.as_deref().unwrap_or(Path::new("python3"));
        let mut command = Command::new(python);
        command.args(["-c", &format!("{script}{TAIL}")]);
        with_threads(&mut command, self.threads);
        let (seconds, output) = timed(input, "numpy", &mut command)?;
        let kib = text(&output.stdout).parse::<u64>().ok();
        let file = TensorFile::open(input.path("head.npy"))?;
        let run = Run {
            seconds,
            memory: kib.filter(|&kib| kib > 0).map(|kib| 1024 * kib),
        };
        Ok((run, file.matrix("head")?.to_matrix()?))
    }
}

fn file_name(out: &str) -> String {
    format!("{out}.safetensors")
}

/// Reads a head that our program wrote, as (D+1)×C weights with the bias last; NaN where there is none.
pub(super) fn head(input: &Input, name: &str) -> Result<Matrix> {
    let head = Head::load(input.path(&file_name(name)))?;
    let bias = head.bias.unwrap_or_default();
    Ok(Matrix::from_fn(FEATURES + 1, CLASSES, |d, c| {
        match d < FEATURES {
            true => head.weight[(c, d)],
            false => bias.get(c).copied().unwrap_or(f64::NAN),
        }
    }))
}

/// Runs a process in the folder of the input.
fn timed(input: &Input, name: &str, command: &mut Command) -> Result<(f64, Output)> {
    command.current_dir(&input.folder).stdin(Stdio::null());
    command.env("RUST_BACKTRACE", "0");
    let begin = Instant::now();
    let output = command.output().map_err(|e| failed(name, e))?;
    let seconds = begin.elapsed().as_secs_f64();
    if !output.status.success() {
        let said = text(&output.stderr);
        let mut lines = said.lines().filter(|line| !line.starts_with("note:"));
        let last = lines.next_back().unwrap_or_default();
        return Err(failed(name, format!("{}: {last}", output.status)));
    }
    Ok((seconds, output))
}

/// Returns the interpreter if it has numpy, and notes its version or absence.
pub(super) fn interpreter(options: &Options, report: &mut BenchReport) -> Option<PathBuf> {
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
