//! Interoperation with memory and streams of others: a training stack, another library, C.
//!
//! The contract of every function here, and of [`View::from_raw`], [`ViewMut::from_raw`] and [`Stream::from_raw`], on
//! which they stand:
//!
//! - **Layout.** Matrices are row-major. Row i begins `i · pitch` values after the first; `pitch ≥ cols`, in values, not
//!   bytes. Of a symmetric matrix the lower triangle is read and written.
//! - **Alignment.** Feature rows (f16, bf16, f32, f64) need that of their values. Other f64 matrices begin at a
//!   multiple of 16 bytes and have an even pitch; what `cuMemAlloc` returns does.
//! - **Lifetime.** Memory, and the stream, stay allocated until the stream has passed the work, and the factor's memory
//!   until the factor is dropped. Nothing here frees what it was given.
//! - **Ordering.** Work is queued on the stream that is passed and runs after what was queued there before. Who writes an
//!   operand on another stream orders the two by an event. No function waits, except [`factor`], which must see whether
//!   the pivots were positive, and [`exact_update`], which must see whether the grid held every value.
//! - **Context.** Pointers and streams are of the device's primary context, the one of the CUDA runtime, PyTorch and
//!   burn.
//!
//! What can be checked is: shapes against each other, pitch, alignment, value type. What a pointer points to is the
//! caller's promise, hence `unsafe`.

use cudarc::driver::sys::CUdeviceptr;
use half::{bf16, f16};

use super::matrix::{DeviceMatrix, Value, View, ViewMut};
use super::projection::{self, Product};
use super::staging::Staging;
use super::stream::Stream;
use super::trisolve::{self, INVERSE_COLS, Triangle, inverse_rows};
use super::{cholesky, exact, gram};
use crate::error::{Error, Result};
use crate::matrix::{Dtype, Matrix, Rows};

/// A matrix in someone's device memory; see the module's contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawMatrix {
    /// Address of the first value.
    pub pointer: CUdeviceptr,
    /// Number of rows of the matrix.
    pub rows: usize,
    /// Number of columns of the matrix.
    pub cols: usize,
    /// Values from the start of one row to that of the next.
    pub pitch: usize,
    /// Storage type of the values.
    pub dtype: Dtype,
}

impl RawMatrix {
    fn typed<'a, T: Value>(self, what: &str, dtype: Dtype) -> Result<View<'a, T>> {
        if self.dtype != dtype {
            return Err(Error::Shape {
                what: what.into(),
                found: format!("values of {}", self.dtype.name()),
                expected: format!("values of {}", dtype.name()),
            });
        }
        // SAFETY: the caller of every function of this module has promised what `from_raw` asks for.
        unsafe { View::from_raw(self.pointer, self.rows, self.cols, self.pitch) }
    }

    fn f64<'a>(self, what: &str) -> Result<View<'a, f64>> {
        self.typed(what, Dtype::F64)
    }

    fn f64_mut<'a>(self, what: &str) -> Result<ViewMut<'a, f64>> {
        self.f64(what)?;
        // SAFETY: as in `typed`.
        unsafe { ViewMut::from_raw(self.pointer, self.rows, self.cols, self.pitch) }
    }
}

/// Evaluates an expression with a typed view of feature rows.
macro_rules! with_rows {
    ($raw:expr, $rows:ident => $call:expr) => {
        match $raw.dtype {
            Dtype::F16 => $raw
                .typed::<f16>("rows", Dtype::F16)
                .and_then(|$rows| $call),
            Dtype::Bf16 => $raw
                .typed::<bf16>("rows", Dtype::Bf16)
                .and_then(|$rows| $call),
            Dtype::F32 => $raw
                .typed::<f32>("rows", Dtype::F32)
                .and_then(|$rows| $call),
            Dtype::F64 => $raw
                .typed::<f64>("rows", Dtype::F64)
                .and_then(|$rows| $call),
        }
    };
}

/// Computes the lower triangle of G += sign · ZᵀZ. G is f64 of order D, or D + 1 with a bias; `sign` 1 adds rows, −1
/// takes them out.
///
/// # Safety
/// The module's contract, for `rows` and `gram`.
pub unsafe fn gram_update(
    stream: &Stream,
    rows: RawMatrix,
    bias: bool,
    sign: f64,
    gram: RawMatrix,
) -> Result<()> {
    let technique = stream.context().technique();
    let sums = gram.f64_mut("G")?;
    with_rows!(rows, z => gram::update(stream, technique, z, bias, sign, sums))
}

/// Computes Y = Z W, or Z W₁ + w₂ where `weights` has one row more than `rows` has columns. `weights` and `out` are
/// f64.
///
/// # Safety
/// The module's contract, for `rows`, `weights` and `out`.
pub unsafe fn project(
    stream: &Stream,
    rows: RawMatrix,
    weights: RawMatrix,
    out: RawMatrix,
) -> Result<()> {
    let technique = stream.context().technique();
    let (weights, out) = (weights.f64("weights")?, out.f64_mut("projection")?);
    with_rows!(rows, z => projection::logits(stream, technique, Product::of(z, weights), out))
}

/// A Cholesky factor whose L lies in the memory of whoever asked for it.
#[derive(Debug)]
pub struct Factor {
    lower: RawMatrix,
    inverses: DeviceMatrix<f64>,
}

/// Factors A + ridge·I = LLᵀ, L in place of A's lower triangle, and waits for the verdict.
///
/// # Errors
/// [`Error::NotPositiveDefinite`] with the pivot that failed; A is then overwritten in part.
///
/// # Safety
/// The module's contract, for `matrix`, whose memory stays as it is until the factor is dropped.
pub unsafe fn factor(
    stream: &Stream,
    staging: &Staging,
    matrix: RawMatrix,
    ridge: f64,
) -> Result<Factor> {
    let technique = stream.context().technique();
    let lower = matrix.f64_mut("matrix to factor")?;
    cholesky::factor(stream, technique, lower, ridge)?.wait(stream, staging)?;
    let mut inverses = DeviceMatrix::uninit(stream, inverse_rows(matrix.rows), INVERSE_COLS)?;
    trisolve::invert(stream, matrix.f64("factor")?, inverses.view_mut())?;
    Ok(Factor {
        lower: matrix,
        inverses,
    })
}

/// Computes X ← (A + ridge·I)⁻¹ X, without refinement, on the stream of the factor or one that is ordered after it.
///
/// # Safety
/// The module's contract, for `rhs`; and L is as [`factor`] left it.
pub unsafe fn solve(stream: &Stream, factor: &Factor, rhs: RawMatrix) -> Result<()> {
    let technique = stream.context().technique();
    let triangle = Triangle::new(factor.lower.f64("factor")?, factor.inverses.view())?;
    triangle.solve(stream, technique, rhs.f64_mut("right-hand sides")?)
}

/// Rows between two that are brought to the host, up to which the whole stretch is brought at once.
const GAP: usize = 16;

/// Adds rows to exact sums on the stream that those were made on, and waits until it is known which of them the width of
/// the integers does not hold: those are left out, and returned by their numbers with their values.
///
/// # Safety
/// The module's contract, for `rows`.
pub unsafe fn exact_update(
    stream: &Stream,
    staging: &Staging,
    sums: &mut exact::Accumulator,
    rows: RawMatrix,
    targets: exact::Targets<'_>,
) -> Result<(Vec<usize>, Matrix)> {
    with_rows!(rows, z => {
        let numbers = sums.push(stream, staging, z, targets)?.fetch(stream, staging)?;
        let mut values = Matrix::zeros(numbers.len(), z.cols());
        let mut to = 0;
        for stretch in numbers.chunk_by(|a, b| b - a <= GAP) {
            let (first, last) = (stretch[0], stretch[stretch.len() - 1]);
            let block = z.block((first, 0), (last + 1 - first, z.cols()));
            staging.download(stream, block, |i, row| {
                if stretch.binary_search(&(first + i)).is_ok() {
                    Rows::new(1, row.len(), row).widen_row(0, values.row_mut(to));
                    to += 1;
                }
            })?;
        }
        Ok((numbers, values))
    })
}
