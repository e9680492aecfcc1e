//! Runtime dispatch over devices, for programs that learn only when they run which device to use.

use super::exact::{ExactAccumulator, ExactSpec};
use super::{CpuEngine, Engine, Matrix, Rows, Sums, SumsSpec, Targets};
use crate::error::Result;

#[cfg(feature = "nn")]
use muso_models::burn::tensor::Tensor;

#[cfg(feature = "cuda")]
use super::CudaEngine;

/// Holds the engine of any device, so that code that is not generic can name one type.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AnyEngine {
    /// The CPU engine.
    Cpu(CpuEngine),
    /// The engine of an NVIDIA GPU, or of the virtual one.
    #[cfg(feature = "cuda")]
    Cuda(CudaEngine),
}

/// Holds sums in progress on one of the devices.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyAccumulator {
    /// Sums in progress in host memory.
    Cpu(<CpuEngine as Engine>::Accumulator),
    /// Sums in progress in device memory.
    #[cfg(feature = "cuda")]
    Cuda(<CudaEngine as Engine>::Accumulator),
}

/// Holds a Cholesky factor on one of the devices.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyFactor {
    /// A factor in host memory.
    Cpu(<CpuEngine as Engine>::Factor),
    /// A factor in device memory.
    #[cfg(feature = "cuda")]
    Cuda(<CudaEngine as Engine>::Factor),
}

impl AnyEngine {
    /// Returns the engine that one of several concurrent workers uses: the processor in each worker's own pool, or the
    /// one GPU, whose work is queued.
    pub fn for_worker(&self) -> Self {
        match self {
            Self::Cpu(_) => Self::Cpu(CpuEngine::ambient()),
            #[cfg(feature = "cuda")]
            Self::Cuda(engine) => Self::Cuda(engine.clone()),
        }
    }
}

impl From<CpuEngine> for AnyEngine {
    fn from(engine: CpuEngine) -> Self {
        Self::Cpu(engine)
    }
}

#[cfg(feature = "cuda")]
impl From<CudaEngine> for AnyEngine {
    fn from(engine: CudaEngine) -> Self {
        Self::Cuda(engine)
    }
}

/// Dispatches a call to the engine of the variant.
macro_rules! on_device {
    ($any:expr, $engine:ident => $call:expr) => {
        match $any {
            AnyEngine::Cpu($engine) => $call,
            #[cfg(feature = "cuda")]
            AnyEngine::Cuda($engine) => $call,
        }
    };
    // The same with an accumulator or a factor, which must be of that engine's making.
    ($any:expr, $engine:ident, $kind:ident($state:ident) = $from:expr => $call:expr) => {
        match ($any, $from) {
            (AnyEngine::Cpu($engine), $kind::Cpu($state)) => $call,
            #[cfg(feature = "cuda")]
            (AnyEngine::Cuda($engine), $kind::Cuda($state)) => $call,
            #[cfg(feature = "cuda")]
            _ => panic!("{} of another engine", stringify!($kind)),
        }
    };
}

impl Engine for AnyEngine {
    type Accumulator = AnyAccumulator;
    type Factor = AnyFactor;

    fn describe(&self) -> String {
        on_device!(self, engine => engine.describe())
    }

    fn accumulator(&self, spec: SumsSpec) -> Result<AnyAccumulator> {
        Ok(match self {
            Self::Cpu(engine) => AnyAccumulator::Cpu(engine.accumulator(spec)?),
            #[cfg(feature = "cuda")]
            Self::Cuda(engine) => AnyAccumulator::Cuda(engine.accumulator(spec)?),
        })
    }

    fn accumulate(
        &self,
        sums: &mut AnyAccumulator,
        rows: Rows<'_>,
        targets: Targets<'_>,
    ) -> Result<()> {
        on_device!(self, engine, AnyAccumulator(sums) = sums => engine.accumulate(sums, rows, targets))
    }

    fn finish(&self, sums: AnyAccumulator) -> Result<Sums> {
        on_device!(self, engine, AnyAccumulator(sums) = sums => engine.finish(sums))
    }

    fn exact(&self, spec: &ExactSpec) -> Result<Box<dyn ExactAccumulator>> {
        on_device!(self, engine => engine.exact(spec))
    }

    fn roundings(&self, rows: u64) -> f64 {
        on_device!(self, engine => engine.roundings(rows))
    }

    fn kernel_matrix(&self, left: Rows<'_>, right: Rows<'_>, bias: bool) -> Result<Matrix> {
        on_device!(self, engine => engine.kernel_matrix(left, right, bias))
    }

    fn project(&self, rows: Rows<'_>, weights: &Matrix) -> Result<Matrix> {
        on_device!(self, engine => engine.project(rows, weights))
    }

    fn project_argmax(&self, rows: Rows<'_>, weights: &Matrix) -> Result<Vec<u32>> {
        on_device!(self, engine => engine.project_argmax(rows, weights))
    }

    fn fourier_features(&self, rows: Rows<'_>, frequencies: &Matrix, scale: f64) -> Result<Matrix> {
        on_device!(self, engine => engine.fourier_features(rows, frequencies, scale))
    }

    fn row_norms_squared(&self, rows: Rows<'_>, weights: &Matrix) -> Result<Vec<f64>> {
        on_device!(self, engine => engine.row_norms_squared(rows, weights))
    }

    fn pull_back(&self, rows: Rows<'_>, coefficients: &Matrix, bias: bool) -> Result<Matrix> {
        on_device!(self, engine => engine.pull_back(rows, coefficients, bias))
    }

    fn factor(&self, matrix: &Matrix, ridge: f64) -> Result<AnyFactor> {
        Ok(match self {
            Self::Cpu(engine) => AnyFactor::Cpu(engine.factor(matrix, ridge)?),
            #[cfg(feature = "cuda")]
            Self::Cuda(engine) => AnyFactor::Cuda(engine.factor(matrix, ridge)?),
        })
    }

    fn pivots(&self, factor: &AnyFactor) -> (f64, f64) {
        on_device!(self, engine, AnyFactor(factor) = factor => engine.pivots(factor))
    }

    fn solve(&self, factor: &AnyFactor, rhs: &Matrix) -> Result<Matrix> {
        on_device!(self, engine, AnyFactor(factor) = factor => engine.solve(factor, rhs))
    }

    fn inverse_diagonal(&self, factor: &AnyFactor) -> Result<Vec<f64>> {
        on_device!(self, engine, AnyFactor(factor) = factor => engine.inverse_diagonal(factor))
    }

    #[cfg(feature = "nn")]
    fn accumulate_tensor(
        &self,
        sums: &mut AnyAccumulator,
        rows: &Tensor<2>,
        targets: Targets<'_>,
    ) -> Result<()> {
        on_device!(
            self, engine, AnyAccumulator(sums) = sums => engine.accumulate_tensor(sums, rows, targets)
        )
    }

    #[cfg(feature = "nn")]
    fn project_tensor(&self, rows: &Tensor<2>, weights: &Matrix) -> Result<Tensor<2>> {
        on_device!(self, engine => engine.project_tensor(rows, weights))
    }
}
