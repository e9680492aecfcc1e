//! Cholesky factor A + λI = LLᵀ (POTRF), in place in the lower triangle. The host side of `kernels/cholesky.cu`.
//!
//! Right-looking, by block columns: factor the diagonal block, divide the rows below by it, subtract their product from
//! what is left. The kernels of one factorisation are queued without waiting; a pivot that fails makes the rest return
//! at once, and [`Status`] tells afterwards.

use super::matrix::{DeviceMatrix, View, ViewMut};
use super::module::table::{
    DIAGONAL_THREADS, ELEMENT_THREADS, FACTOR_BLOCK, PANEL_THREADS, TILE, TILE_THREADS,
};
use super::module::{Arg, Geometry, Technique, launch, require, triangle};
use super::staging::Staging;
use super::stream::Stream;
use crate::error::{Error, Result};

/// Outcome of a factorisation, known once its stream has got there.
#[derive(Debug)]
pub struct Status {
    /// The kernels' `{ int64_t pivot; double value }`, as bits; nothing for a matrix of order 0.
    words: DeviceMatrix<u64>,
    order: usize,
}

impl Status {
    /// Waits, and says whether every pivot was positive.
    ///
    /// # Errors
    /// [`Error::NotPositiveDefinite`] with the first that was not.
    pub fn wait(&self, stream: &Stream, staging: &Staging) -> Result<()> {
        let mut found = [u64::MAX, 0];
        staging.download(stream, self.words.view(), |_, row| {
            found.copy_from_slice(row);
        })?;
        match usize::try_from(found[0].cast_signed()) {
            // −1: all is well.
            Err(_) => Ok(()),
            Ok(pivot) => Err(Error::NotPositiveDefinite {
                pivot,
                value: f64::from_bits(found[1]),
                size: self.order,
            }),
        }
    }
}

/// Queues the factorisation of a matrix, of which the lower triangle is read and replaced by L.
pub fn factor(
    stream: &Stream,
    technique: Technique,
    matrix: ViewMut<'_, f64>,
    ridge: f64,
) -> Result<Status> {
    let n = matrix.rows();
    require("matrix to factor", &matrix, (n, n))?;
    let words = DeviceMatrix::<u64>::uninit(stream, usize::from(n > 0), 2)?;
    let status = Status { words, order: n };
    if n == 0 {
        return Ok(status);
    }
    let (a, pitch) = (Arg::from(matrix.as_view()), Arg::from(matrix.pitch()));
    let verdict = Arg::from(status.words.view());
    let run = |name: &str, grid: usize, threads: usize, args: &[Arg]| {
        let geometry = Geometry::new([grid, 1, 1], [threads, 1]);
        // SAFETY: the arguments are the kernel's, as the calls below list them; all kernels stay in the lower triangle
        // of the n × n matrix and in the two words of the status.
        unsafe { launch(stream, name, geometry, &format_args!("{n}x{n}"), args) }
    };
    let ridge_args = [a, pitch, n.into(), ridge.into(), verdict];
    run(
        "cholesky_ridge_f64",
        n.div_ceil(ELEMENT_THREADS),
        ELEMENT_THREADS,
        &ridge_args,
    )?;
    if technique == Technique::Plain {
        let args = [a, pitch, n.into(), verdict];
        run("cholesky_factor_f64_plain", 1, DIAGONAL_THREADS, &args)?;
        return Ok(status);
    }
    let update = format!("cholesky_update_f64_{}", technique.name());
    for first in (0..n).step_by(FACTOR_BLOCK) {
        let args = [a, pitch, n.into(), first.into(), verdict];
        run("cholesky_diagonal_f64", 1, DIAGONAL_THREADS, &args)?;
        let rest = n.saturating_sub(first + FACTOR_BLOCK);
        if rest > 0 {
            run(
                "cholesky_panel_f64",
                rest.div_ceil(FACTOR_BLOCK),
                PANEL_THREADS,
                &args,
            )?;
            run(&update, triangle(rest.div_ceil(TILE)), TILE_THREADS, &args)?;
        }
    }
    Ok(status)
}

/// Queues the search for the smallest and the largest pivot, the squares of L's diagonal; `out` is 1 × 2.
pub fn pivots(stream: &Stream, factor: View<'_, f64>, out: ViewMut<'_, f64>) -> Result<()> {
    let n = factor.rows();
    require("factor", &factor, (n, n))?;
    require("pivots", &out, (1, 2))?;
    if n == 0 {
        return Ok(());
    }
    let args = [
        factor.into(),
        factor.pitch().into(),
        n.into(),
        out.as_view().into(),
    ];
    let geometry = Geometry::new([1, 1, 1], [ELEMENT_THREADS, 1]);
    // SAFETY: the arguments are the kernel's; it reads the diagonal and writes two values.
    unsafe {
        launch(
            stream,
            "cholesky_pivots_f64",
            geometry,
            &format_args!("{n}x{n}"),
            &args,
        )
    }
}
