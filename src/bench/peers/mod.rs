//! Others who do the same: libraries of Python in a process of their own, and faer and burn in this one.

mod faer;
mod python;

use std::time::Instant;

pub(super) use self::faer::Faer;
pub(super) use python::{LIBRARIES, Python, with_threads};

use anyhow::Result;
use muso::engine::Matrix;

/// Somebody else's way of doing a task whose arrays it already has.
pub(super) trait Peer {
    /// The library, and how it is used.
    fn name(&self) -> &str;

    /// Runs once; gives the result and the seconds.
    fn check(&mut self) -> Result<(Matrix, f64)>;

    /// Runs several times; gives the seconds of one.
    fn time(&mut self, repeat: usize) -> Result<f64>;
}

/// A peer that runs in this process.
pub(super) struct Local<F> {
    name: &'static str,
    run: F,
}

impl<F: FnMut() -> Result<Matrix>> Local<F> {
    /// Makes a peer that calls `run` each time.
    pub(super) fn new(name: &'static str, run: F) -> Self {
        Self { name, run }
    }
}

impl<F: FnMut() -> Result<Matrix>> Peer for Local<F> {
    fn name(&self) -> &str {
        self.name
    }

    fn check(&mut self) -> Result<(Matrix, f64)> {
        let begin = Instant::now();
        let result = (self.run)()?;
        Ok((result, begin.elapsed().as_secs_f64()))
    }

    fn time(&mut self, repeat: usize) -> Result<f64> {
        let begin = Instant::now();
        for _ in 0..repeat {
            std::hint::black_box((self.run)()?);
        }
        Ok(begin.elapsed().as_secs_f64() / repeat as f64)
    }
}
