//! Roofline limits of the processor, measured: peak f64 multiply-adds and memory bandwidth.
//!
//! The limits that times are held against are those of this machine at this moment, with these threads and this
//! instruction set: a figure from a data sheet knows nothing of clock speeds under load, nor of neighbours on a shared
//! host.

use std::time::Instant;

use rayon::prelude::*;

use super::CpuEngine;
use super::kernel::{Kernel, Work};

/// Peak rates of all threads together, per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// Floating-point operations in f64, a multiply-add counted as two.
    pub flops: f64,
    /// Bytes read from main memory.
    pub bytes: f64,
}

/// Measures [`Peak`]; holds the memory to read.
#[derive(Debug)]
pub struct Probe {
    memory: Vec<f64>,
}

/// Well beyond any cache.
const MEMORY_BYTES: usize = 512 << 20;
/// Rounds of multiply-adds: some ten milliseconds.
const STEPS: usize = 2_000_000;
/// Values that a task reads.
const PART: usize = 1 << 16;

impl Probe {
    /// Allocates 512 MiB and writes to it, since pages never written have no memory behind them.
    pub fn new() -> Self {
        Self {
            memory: vec![1.0; MEMORY_BYTES / size_of::<f64>()],
        }
    }

    /// Measures the peak of the engine's threads, in about 50 milliseconds.
    pub fn measure(&self, engine: &CpuEngine) -> Peak {
        engine.compute(|| {
            let clock = Instant::now();
            let work = rayon::broadcast(|_| engine.isa.run(Saturate(STEPS)));
            let flops = 2.0 * work.iter().map(|(count, _)| *count as f64).sum::<f64>();
            let flops = flops / clock.elapsed().as_secs_f64();
            std::hint::black_box(work);
            let clock = Instant::now();
            let parts = self.memory.par_chunks(PART);
            let sum: f64 = parts.map(|part| engine.isa.run(Read(part))).sum();
            let bytes = MEMORY_BYTES as f64 / clock.elapsed().as_secs_f64();
            std::hint::black_box(sum);
            Peak { flops, bytes }
        })
    }
}

impl Default for Probe {
    fn default() -> Self {
        Self::new()
    }
}

struct Saturate(usize);

impl Work for Saturate {
    type Output = (usize, f64);

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> Self::Output {
        kernel.saturate(self.0)
    }
}

/// Adds up values, with sums enough that memory is what it waits for.
struct Read<'a>(&'a [f64]);

impl Work for Read<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<K: Kernel>(self, _: K) -> f64 {
        let mut sums = [0.0; 32];
        for values in self.0.as_chunks::<32>().0 {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += value;
            }
        }
        sums.iter().sum()
    }
}
