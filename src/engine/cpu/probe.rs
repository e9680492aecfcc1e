//! What the machine can do at its best.

use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::super::{Engine, Matrix};
use super::CpuEngine;

/// What all threads together can do in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// f64 operations, a multiply-add counted as two.
    pub flops: f64,
    /// Bytes read from memory.
    pub bytes: f64,
}

/// How long each of the two is tried.
const TRIED: Duration = Duration::from_millis(20);

impl CpuEngine {
    /// Measures the peak, in about 50 ms.
    pub fn peak(&self) -> Peak {
        Peak {
            flops: self.peak_flops(),
            bytes: self.peak_bytes(),
        }
    }

    /// A product that stays in the caches.
    fn peak_flops(&self) -> f64 {
        const SIDE: usize = 256;
        let square = Matrix::from_fn(SIDE, SIDE, |i, j| (i * j % 7) as f64);
        let work = 2.0 * (SIDE as f64).powi(3);
        best(work, || {
            std::hint::black_box(self.project(square.as_rows(), &square).ok());
        })
    }

    /// A sum over more than the caches hold.
    fn peak_bytes(&self) -> f64 {
        const COUNT: usize = 8 << 20;
        let values = vec![1.0_f64; COUNT];
        best((COUNT * 8) as f64, || {
            let sum: f64 = self.compute(|| {
                let pieces = values.par_chunks(1 << 16);
                pieces.map(|piece| piece.iter().sum::<f64>()).sum()
            });
            std::hint::black_box(sum);
        })
    }
}

/// The best rate over repeated runs.
fn best(work: f64, mut run: impl FnMut()) -> f64 {
    let begin = Instant::now();
    let mut least = f64::INFINITY;
    while begin.elapsed() < TRIED || least == f64::INFINITY {
        let one = Instant::now();
        run();
        least = least.min(one.elapsed().as_secs_f64());
    }
    work / least
}
