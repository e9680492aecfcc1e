//! The Python process that holds numpy, scipy and torch.
//!
//! The scripts are part of the program, which writes them to its temporary folder: an installed program needs no
//! checkout. Libraries that are missing are absent, and without an interpreter or numpy all of them are.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::Result;
use muso::Error;
use muso::engine::Matrix;
use serde_json::{Value, json};

use super::super::arrays::Array;
use super::super::temporary::Temporary;
use super::Peer;

/// Libraries whose operations are timed.
pub(crate) const LIBRARIES: [&str; 3] = ["numpy", "scipy", "torch"];

const SCRIPTS: [(&str, &str); 2] = [
    ("peers.py", include_str!("peers.py")),
    ("networks.py", include_str!("networks.py")),
];

/// `peers.py`, started once and asked line by line.
pub(crate) struct Python {
    child: Child,
    /// Closed before the child is waited for.
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Name and version, or nothing where it is absent.
    pub(crate) libraries: BTreeMap<String, Option<String>>,
}

/// Gives every library as many threads as ours has.
pub(crate) fn with_threads(command: &mut Command, threads: usize) {
    for name in ["OMP", "OPENBLAS", "MKL", "NUMEXPR"] {
        command.env(format!("{name}_NUM_THREADS"), threads.to_string());
    }
}

fn failed(why: impl std::fmt::Display) -> anyhow::Error {
    super::super::failed("python", why)
}

impl Python {
    /// Starts it with `threads` for every library. The inner error says why there are no peers at all.
    pub(crate) fn start(
        interpreter: &Path,
        folder: &Temporary,
        threads: usize,
    ) -> Result<Result<Self, String>> {
        for (name, text) in SCRIPTS {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|e| Error::io(&path, "write", e))?;
        }
        let shown = interpreter.display();
        let mut command = Command::new(interpreter);
        command.arg(folder.join(SCRIPTS[0].0));
        with_threads(&mut command, threads);
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Ok(Err(format!("{shown} could not be started: {error}"))),
        };
        let requests = child.stdin.take();
        let stdout = child.stdout.take().ok_or_else(|| failed("no pipe"))?;
        let mut answers = BufReader::new(stdout);
        let mut line = String::new();
        answers.read_line(&mut line).map_err(failed)?;
        let Ok(greeting) = serde_json::from_str::<Value>(&line) else {
            drop(requests);
            let output = child.wait_with_output().map_err(failed)?;
            let errors = String::from_utf8_lossy(&output.stderr);
            let last = errors.lines().last().unwrap_or("it ended without a word");
            return Ok(Err(format!("{shown}: {last}")));
        };
        // From here on what it has to complain about is part of an answer.
        drop(child.stderr.take());
        let version = |name: &str| {
            let found = greeting["libraries"][name].as_str();
            (name.to_owned(), found.map(str::to_owned))
        };
        Ok(Ok(Self {
            child,
            requests,
            answers,
            libraries: LIBRARIES.map(version).into(),
        }))
    }

    /// Sends one request and reads its answer.
    fn ask(&mut self, request: &Value) -> Result<Value> {
        let Some(requests) = &mut self.requests else {
            return Err(failed("it was stopped"));
        };
        writeln!(requests, "{request}").map_err(failed)?;
        requests.flush().map_err(failed)?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(failed)?;
        let answer: Value =
            serde_json::from_str(&line).map_err(|_| failed("the process ended early"))?;
        match answer["error"].as_str() {
            Some(error) => Err(failed(format!("{request}: {error}"))),
            None => Ok(answer),
        }
    }

    /// A request that is answered by a time.
    fn seconds(&mut self, request: &Value) -> Result<f64> {
        let answer = self.ask(request)?;
        let seconds = answer["seconds"].as_f64();
        seconds.ok_or_else(|| failed(format!("{request}: no time in {answer}")))
    }

    /// Hands over the arrays of a task, whose result has `shape`, and gives what can be run on them.
    pub(crate) fn load<'a>(
        python: &'a RefCell<Self>,
        folder: &Temporary,
        kind: &str,
        parameter: &Value,
        arrays: &[(&str, Cow<'_, Array>)],
        shape: (usize, usize),
    ) -> Result<Vec<Box<dyn Peer + 'a>>> {
        folder.needs(arrays.iter().map(|(_, array)| array.size()).sum())?;
        let mut paths = serde_json::Map::new();
        for (name, array) in arrays {
            let path = folder.join(&format!("{name}.npy"));
            array.write_npy(&path)?;
            paths.insert((*name).into(), json!(path));
        }
        let loaded = python.borrow_mut().ask(&json!({
            "do": "load", "kind": kind, "arrays": paths, "parameter": parameter,
        }))?;
        // They are in memory now, on the other side as well.
        for path in paths.values().filter_map(Value::as_str) {
            std::fs::remove_file(path).map_err(|e| Error::io(path, "remove", e))?;
        }
        let names = loaded["variants"].as_array().into_iter().flatten();
        let variant = |name: &str| Variant {
            python,
            name: name.to_owned(),
            out: folder.join("result"),
            shape,
        };
        let variants = names.filter_map(Value::as_str).map(variant);
        Ok(variants.map(|v| Box::new(v) as Box<dyn Peer>).collect())
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        // The end of its input ends it.
        self.requests = None;
        let _ = self.child.wait();
    }
}

/// A variant of the task that was loaded last.
struct Variant<'a> {
    python: &'a RefCell<Python>,
    name: String,
    out: PathBuf,
    shape: (usize, usize),
}

impl Peer for Variant<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn check(&mut self) -> Result<(Matrix, f64)> {
        let request = json!({"do": "check", "variant": self.name, "out": self.out});
        let seconds = self.python.borrow_mut().seconds(&request)?;
        Ok((read_f64(&self.out, self.shape)?, seconds))
    }

    fn time(&mut self, repeat: usize) -> Result<f64> {
        let request = json!({"do": "time", "variant": self.name, "repeat": repeat});
        self.python.borrow_mut().seconds(&request)
    }
}

/// Reads what a peer wrote.
fn read_f64(path: &Path, (rows, cols): (usize, usize)) -> Result<Matrix> {
    let bytes = std::fs::read(path).map_err(|e| Error::io(path, "read", e))?;
    if bytes.len() != rows * cols * 8 {
        let found = bytes.len();
        return Err(failed(format!("{found} bytes for {rows}x{cols} values")));
    }
    let values = bytes.as_chunks::<8>().0.iter();
    let values = values.map(|b| f64::from_le_bytes(*b));
    Ok(Matrix::from_vec(rows, cols, values.collect()))
}
