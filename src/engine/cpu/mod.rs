//! The CPU engine.
//!
//! Everything is built on one GEMM micro-kernel ([`kernel`]) of operands that are packed in one format, read front to
//! back. Work is cut into tasks whose borders depend on the shapes alone, and each task adds in one fixed order, so that a
//! result has the same bytes for any number of threads.
//!
//! - [`gram`]: sums over rows (SYRK), streamed in blocks of a fixed number of rows whatever the caller's batches are;
//!   [`exact`]: the same in integers, on the same kernels or on int8 units;
//! - [`cholesky`]: blocked factor (POTRF) that stays packed, blocked solve (TRSM) with inverted diagonal blocks;
//! - [`product`]: projection, kernel matrix, pull-back (GEMM); [`argmax`]: the classes alone; [`sin_cos`]: sine and
//!   cosine for random Fourier features;
//! - [`work_queue`]: tasks of unequal size, shared among the threads;
//! - [`probe`]: the roofline limits of the processor.

mod argmax;
mod cholesky;
mod exact;
mod gram;
mod kernel;
mod probe;
mod product;
mod sin_cos;
mod work_queue;

pub use kernel::Isa;
pub use probe::{Peak, Probe};

use std::sync::Arc;

use super::exact::{ExactAccumulator, ExactSpec};
use super::{Engine, Matrix, Rows, Sums, SumsSpec, Targets};
use crate::error::{Error, Result};

/// Sizes at which the CPU kernels cut matrices; results are most easily wrong one below, at, and one above them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Blocks {
    /// Rows of a register tile (micro-kernel) divide this.
    pub step: usize,
    /// Columns of a packed panel; every product (GEMM, SYRK) is one of panels.
    pub panel: usize,
    /// Rows and columns of a block of the Cholesky factor.
    pub factor: usize,
    /// Feature rows that a task of a projection takes.
    pub task: usize,
    /// Columns of the features that a projection goes through at a time.
    pub depth: usize,
    /// Feature rows whose contribution to G (SYRK) is summed from zero and then added.
    pub rows: usize,
}

/// Computes on the processor, and needs nothing else.
#[derive(Clone, Debug)]
pub struct CpuEngine {
    /// Thread pool of its own; `None` computes in the caller's.
    pool: Option<Arc<rayon::ThreadPool>>,
    isa: Isa,
    spare: gram::Spare,
}

impl CpuEngine {
    /// Starts an engine with `threads` worker threads; `None` takes one for each core.
    pub fn new(threads: Option<usize>) -> Result<Self> {
        let threads = threads.unwrap_or(0);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("muso-{i}"))
            .build()
            .map_err(|e| Error::Unavailable {
                device: "cpu".into(),
                why: format!("{threads} worker threads could not be started: {e}"),
            })?;
        Ok(Self {
            pool: Some(Arc::new(pool)),
            isa: Isa::detect(),
            spare: gram::Spare::default(),
        })
    }

    /// Returns an engine without threads of its own: it computes in the rayon pool that it is called from, or in the
    /// global one. Engines that share a pool share the cores; two pools compete for them.
    pub fn ambient() -> Self {
        Self {
            pool: None,
            isa: Isa::detect(),
            spare: gram::Spare::default(),
        }
    }

    fn compute<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    /// Restricts the engine to the portable kernels, for comparison.
    pub fn portable(mut self) -> Self {
        self.isa = Isa::Portable;
        self
    }

    /// Returns the sizes at which the kernels cut matrices, for tests at their edges.
    pub const fn blocks() -> Blocks {
        Blocks {
            step: kernel::STEP,
            panel: kernel::PANEL,
            factor: cholesky::NB,
            task: product::CHUNK,
            depth: product::DEPTH,
            rows: gram::BLOCK,
        }
    }

    /// Returns the number of worker threads.
    pub fn threads(&self) -> usize {
        match &self.pool {
            Some(pool) => pool.current_num_threads(),
            None => rayon::current_num_threads(),
        }
    }

    /// Returns the instruction set that the kernels use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Names the units that exact sums of this width are made with; they have the same bytes on all of them.
    pub fn exact_units(&self, bits: u32) -> &'static str {
        exact::units(self.isa, bits)
    }
}

impl Engine for CpuEngine {
    type Accumulator = gram::Accumulator;
    type Factor = cholesky::Factor;

    fn describe(&self) -> String {
        let threads = self.threads();
        let plural = if threads == 1 { "" } else { "s" };
        format!("cpu, {threads} thread{plural}, {}", self.isa.name())
    }

    fn accumulator(&self, spec: SumsSpec) -> Result<gram::Accumulator> {
        // A file of one very wide row asks for sums that no machine has room for.
        let order = spec.order();
        let size = order.checked_mul(order);
        let room = size.map(|size| Vec::<f64>::new().try_reserve_exact(size));
        if !matches!(room, Some(Ok(()))) {
            return Err(Error::Shape {
                what: "sums over rows".into(),
                found: format!("a matrix of order {order}, beyond the memory that there is"),
                expected: "fewer features".into(),
            });
        }
        Ok(gram::Accumulator::new(spec, self.spare.clone()))
    }

    fn accumulate(
        &self,
        sums: &mut gram::Accumulator,
        rows: Rows<'_>,
        targets: Targets<'_>,
    ) -> Result<()> {
        self.compute(|| sums.push(self.isa, rows, targets));
        Ok(())
    }

    fn finish(&self, sums: gram::Accumulator) -> Result<Sums> {
        Ok(self.compute(|| sums.finish(self.isa)))
    }

    fn exact(&self, spec: &ExactSpec) -> Result<Box<dyn ExactAccumulator>> {
        Ok(Box::new(exact::Accumulator::new(self, spec)?))
    }

    fn roundings(&self, rows: u64) -> f64 {
        super::blocked_roundings(rows, gram::BLOCK)
    }

    fn kernel_matrix(&self, left: Rows<'_>, right: Rows<'_>, bias: bool) -> Result<Matrix> {
        assert_eq!(left.cols(), right.cols(), "kernel of rows of unlike width");
        Ok(self.compute(|| product::kernel_matrix(self.isa, left, right, bias)))
    }

    fn project(&self, rows: Rows<'_>, weights: &Matrix) -> Result<Matrix> {
        super::weights_have_bias(rows, weights)?;
        Ok(self.compute(|| product::project(self.isa, rows, weights)))
    }

    fn project_argmax(&self, rows: Rows<'_>, weights: &Matrix) -> Result<Vec<u32>> {
        let bias = super::weights_have_bias(rows, weights)?;
        Ok(self.compute(|| product::project_argmax(self.isa, rows, weights, bias)))
    }

    fn fourier_features(&self, rows: Rows<'_>, frequencies: &Matrix, scale: f64) -> Result<Matrix> {
        super::fits(rows, frequencies)?;
        Ok(self.compute(|| product::fourier_features(self.isa, rows, frequencies, scale)))
    }

    fn row_norms_squared(&self, rows: Rows<'_>, weights: &Matrix) -> Result<Vec<f64>> {
        super::fits(rows, weights)?;
        Ok(self.compute(|| product::row_norms_squared(self.isa, rows, weights)))
    }

    fn pull_back(&self, rows: Rows<'_>, coefficients: &Matrix, bias: bool) -> Result<Matrix> {
        assert_eq!(
            rows.rows(),
            coefficients.rows(),
            "one row of coefficients a feature row"
        );
        Ok(self.compute(|| product::pull_back(self.isa, rows, coefficients, bias)))
    }

    fn factor(&self, matrix: &Matrix, ridge: f64) -> Result<cholesky::Factor> {
        assert_eq!(matrix.rows(), matrix.cols(), "factor of a square matrix");
        self.compute(|| cholesky::Factor::new(self.isa, matrix, ridge))
    }

    fn pivots(&self, factor: &cholesky::Factor) -> (f64, f64) {
        factor.pivots()
    }

    fn solve(&self, factor: &cholesky::Factor, rhs: &Matrix) -> Result<Matrix> {
        assert_eq!(
            rhs.rows(),
            factor.order(),
            "right-hand side of other height"
        );
        Ok(self.compute(|| factor.solve(self.isa, rhs)))
    }

    fn inverse_diagonal(&self, factor: &cholesky::Factor) -> Result<Vec<f64>> {
        Ok(self.compute(|| factor.inverse_diagonal(self.isa)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(rows: usize, columns: usize, seed: u64) -> Matrix {
        Matrix::from_fn(rows, columns, |i, j| {
            let mut x = (seed << 40) + (i * columns + j) as u64 + 1;
            x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            x ^= x >> 29;
            x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (x >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
        })
    }

    /// The bits of everything that an engine computes from some rows.
    fn everything(engine: &CpuEngine, rows: Rows<'_>, classes: &[i64], targets: usize) -> Vec<u64> {
        let spec = SumsSpec {
            features: rows.cols(),
            bias: true,
            targets,
        };
        let mut sums = engine.accumulator(spec).unwrap();
        let half = rows.rows() / 2;
        for part in [0..half, half..rows.rows()] {
            let targets = Targets::Classes(&classes[part.clone()]);
            let rows = rows.slice(part.start, part.end);
            engine.accumulate(&mut sums, rows, targets).unwrap();
        }
        let sums = engine.finish(sums).unwrap();
        let factor = engine.factor(&sums.gram, 1e-3).unwrap();
        let weights = engine.solve(&factor, &sums.cross).unwrap();
        let out = engine.project(rows, &weights).unwrap();
        let few = (rows.slice(0, 31), rows.slice(10, 60));
        let frequencies = noise(rows.cols(), targets, 9);
        let classes = engine.project_argmax(rows, &weights).unwrap();
        let (least, most) = engine.pivots(&factor);
        let kernel = engine.kernel_matrix(few.0, few.1, true).unwrap();
        let back = engine.pull_back(rows, &out, true).unwrap();
        let features = engine.fourier_features(rows, &frequencies, 0.5).unwrap();
        let values = [
            sums.gram.as_slice(),
            sums.cross.as_slice(),
            weights.as_slice(),
            out.as_slice(),
            kernel.as_slice(),
            back.as_slice(),
            features.as_slice(),
            &engine.inverse_diagonal(&factor).unwrap(),
            &engine.row_norms_squared(rows, &frequencies).unwrap(),
            &[least, most],
        ];
        let values = values.concat().into_iter().map(f64::to_bits);
        values.chain(classes.into_iter().map(u64::from)).collect()
    }

    /// Every instruction set of this processor, and the stand-in for NEON: one panel and less, several, and a rest.
    #[test]
    fn instruction_sets_give_the_same_bytes() {
        for (n, d, targets) in [(61, 1, 1), (70, 23, 2), (700, 24, 9), (1_300, 131, 26)] {
            let z: Vec<f32> = noise(n, d, 1)
                .as_slice()
                .iter()
                .map(|&z| z as f32)
                .collect();
            let rows = Rows::new(n, d, z.as_slice());
            let classes: Vec<i64> = (0..n as i64).map(|i| i * 5 % targets as i64).collect();
            let with = |isa| {
                let engine = CpuEngine {
                    isa,
                    ..CpuEngine::ambient()
                };
                everything(&engine, rows, &classes, targets)
            };
            let wanted = with(Isa::Portable);
            for isa in Isa::all() {
                assert!(with(isa) == wanted, "{}: {n}×{d}, {targets}", isa.name());
            }
        }
    }
}
