//! The Python process that holds the peers, and the arrays that go to it and back.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use muso::engine::{Matrix, Rows};
use serde_json::Value;

use crate::Outcome;

/// Libraries whose operations are timed.
const LIBRARIES: [&str; 3] = ["numpy", "scipy", "torch"];

/// `peers.py`, started once and asked line by line.
pub(crate) struct Python {
    child: Child,
    /// Closed before the child is waited for.
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Name and version, or nothing where it is absent.
    pub(crate) libraries: Vec<(String, Option<String>)>,
}

impl Python {
    /// Starts it with `threads` for every library. The inner error says why there are no peers at all.
    pub(crate) fn start(threads: usize) -> Outcome<Result<Self, String>> {
        let interpreter = std::env::var("MUSO_PYTHON").unwrap_or_else(|_| "python3".into());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers/peers.py");
        let mut command = Command::new(&interpreter);
        command.arg(script);
        for name in ["OMP", "OPENBLAS", "MKL", "NUMEXPR"] {
            command.env(format!("{name}_NUM_THREADS"), threads.to_string());
        }
        let spawned = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => return Ok(Err(format!("{interpreter} could not be started: {error}"))),
        };
        let requests = child.stdin.take();
        let stdout = child.stdout.take().ok_or("no pipe from the peers")?;
        let mut answers = BufReader::new(stdout);
        let mut line = String::new();
        answers.read_line(&mut line)?;
        if line.is_empty() {
            let output = child.wait_with_output()?;
            let errors = String::from_utf8_lossy(&output.stderr);
            let last = errors.lines().last().unwrap_or("it ended without a word");
            return Ok(Err(format!("{interpreter}: {last}")));
        }
        // From here on what it has to complain about is part of an answer.
        drop(child.stderr.take());
        let greeting: Value = serde_json::from_str(&line)?;
        let version = |name: &str| {
            let found = greeting["libraries"][name].as_str();
            (name.to_owned(), found.map(str::to_owned))
        };
        Ok(Ok(Self {
            child,
            requests,
            answers,
            libraries: LIBRARIES.map(version).to_vec(),
        }))
    }

    /// One request, one answer.
    pub(crate) fn ask(&mut self, request: &Value) -> Outcome<Value> {
        let requests = self.requests.as_mut().ok_or("the peers were stopped")?;
        writeln!(requests, "{request}")?;
        requests.flush()?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        if line.is_empty() {
            return Err("the peers' process ended early".into());
        }
        let answer: Value = serde_json::from_str(&line)?;
        match answer["error"].as_str() {
            Some(error) => Err(format!("{request}: {error}").into()),
            None => Ok(answer),
        }
    }

    /// A request that is answered by a time.
    pub(crate) fn seconds(&mut self, request: &Value) -> Outcome<f64> {
        let answer = self.ask(request)?;
        answer["seconds"]
            .as_f64()
            .ok_or_else(|| format!("{request}: no time in {answer}").into())
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        // The end of its input ends it.
        self.requests = None;
        let _ = self.child.wait();
    }
}

/// An array that both sides get.
#[derive(Clone)]
pub(crate) enum Array {
    F32 {
        rows: usize,
        cols: usize,
        values: Vec<f32>,
    },
    F64(Matrix),
}

impl Array {
    pub(crate) fn f32(rows: usize, cols: usize, values: Vec<f32>) -> Self {
        Self::F32 { rows, cols, values }
    }

    pub(crate) fn rows(&self) -> Rows<'_> {
        match self {
            Self::F32 { rows, cols, values } => Rows::new(*rows, *cols, values.as_slice()),
            Self::F64(matrix) => matrix.as_rows(),
        }
    }

    /// # Panics
    /// If it is not f64.
    pub(crate) fn matrix(&self) -> &Matrix {
        match self {
            Self::F64(matrix) => matrix,
            Self::F32 { .. } => panic!("an f64 array was expected"),
        }
    }

    /// Writes it in NumPy's format, version 1.
    pub(crate) fn write_npy(&self, path: &Path) -> std::io::Result<()> {
        let rows = self.rows();
        let (descr, bytes): (_, &[u8]) = match self {
            Self::F32 { values, .. } => ("f4", bytemuck::cast_slice(values)),
            Self::F64(matrix) => ("f8", bytemuck::cast_slice(matrix.as_slice())),
        };
        let order = if cfg!(target_endian = "big") {
            '>'
        } else {
            '<'
        };
        let header = format!(
            "{{'descr': '{order}{descr}', 'fortran_order': False, 'shape': ({}, {}), }}",
            rows.rows(),
            rows.cols()
        );
        // Magic number, version, length, header and newline come to a multiple of 64 bytes.
        let length = (10 + header.len() + 1).next_multiple_of(64) - 10;
        let mut file = std::fs::File::create(path)?;
        file.write_all(b"\x93NUMPY\x01\x00")?;
        file.write_all(&(length as u16).to_le_bytes())?;
        file.write_all(format!("{header:<width$}\n", width = length - 1).as_bytes())?;
        file.write_all(bytes)
    }
}

/// Reads what a peer wrote.
pub(crate) fn read_f64(path: &Path, rows: usize, cols: usize) -> Outcome<Matrix> {
    let bytes = std::fs::read(path)?;
    if bytes.len() != rows * cols * 8 {
        return Err(format!("a peer gave {} bytes for {rows}x{cols} values", bytes.len()).into());
    }
    let values = bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|b| f64::from_le_bytes(*b));
    Ok(Matrix::from_vec(rows, cols, values.collect()))
}
