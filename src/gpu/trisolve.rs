//! Triangular solves (TRSM) with a Cholesky factor: LLᵀX = B in place of B, the residual, the diagonal of the inverse.
//! The host side of `kernels/trisolve.cu`.
//!
//! Diagonal blocks are inverted once a factor, so that a solve is products only; what that costs in digits is left to
//! the refinement step, as on the CPU.

use super::matrix::{DeviceMatrix, View, ViewMut};
use super::module::table::{
    ELEMENT_THREADS, FACTOR_BLOCK, PANEL_THREADS, PLAIN_SIDE, TALL_COLS, TALL_ROWS, TILE_THREADS,
};
use super::module::{Geometry, Technique, launch, require};
use super::stream::Stream;
use crate::error::Result;

/// A factor ready to solve with: L and the inverses of its diagonal blocks.
#[derive(Clone, Copy, Debug)]
pub struct Triangle<'a> {
    lower: View<'a, f64>,
    inverses: View<'a, f64>,
}

/// Returns the number of rows that the inverses of the diagonal blocks of a factor of order `n` take, a block's rows
/// below another's.
pub fn inverse_rows(n: usize) -> usize {
    n.next_multiple_of(FACTOR_BLOCK)
}

/// Columns of the same.
pub const INVERSE_COLS: usize = FACTOR_BLOCK;

/// Queues the inversion of L's diagonal blocks into a matrix of [`inverse_rows`] × [`INVERSE_COLS`] without gaps.
pub fn invert(stream: &Stream, lower: View<'_, f64>, inverses: ViewMut<'_, f64>) -> Result<()> {
    let n = lower.rows();
    Triangle::new(lower, inverses.as_view())?;
    if n == 0 {
        return Ok(());
    }
    let args = [
        lower.into(),
        lower.pitch().into(),
        n.into(),
        inverses.as_view().into(),
    ];
    let geometry = Geometry::new([n.div_ceil(FACTOR_BLOCK), 1, 1], [PANEL_THREADS, 1]);
    // SAFETY: the arguments are the kernel's; `Triangle::new` has found room for every block.
    unsafe {
        launch(
            stream,
            "trisolve_invert_f64",
            geometry,
            &format_args!("{n}x{n}"),
            &args,
        )
    }
}

impl<'a> Triangle<'a> {
    /// Puts L and what [`invert`] made of it together.
    pub fn new(lower: View<'a, f64>, inverses: View<'a, f64>) -> Result<Self> {
        let n = lower.rows();
        require("factor", &lower, (n, n))?;
        require("inverses", &inverses, (inverse_rows(n), INVERSE_COLS))?;
        if inverses.pitch() != INVERSE_COLS && n > 0 {
            return Err(crate::error::Error::Shape {
                what: "inverses".into(),
                found: format!("a pitch of {}", inverses.pitch()),
                expected: format!("a pitch of {INVERSE_COLS}"),
            });
        }
        Ok(Self { lower, inverses })
    }

    fn order(&self) -> usize {
        self.lower.rows()
    }

    /// Queues X ← (LLᵀ)⁻¹ X.
    pub fn solve(
        &self,
        stream: &Stream,
        technique: Technique,
        mut x: ViewMut<'_, f64>,
    ) -> Result<()> {
        let (n, columns) = (self.order(), x.cols());
        require("right-hand sides", &x, (n, columns))?;
        if x.is_empty() {
            return Ok(());
        }
        if technique == Technique::Plain {
            let args = [
                self.lower.into(),
                self.lower.pitch().into(),
                n.into(),
                x.as_view().into(),
                x.pitch().into(),
                columns.into(),
            ];
            let geometry = Geometry::new(
                [columns.div_ceil(ELEMENT_THREADS), 1, 1],
                [ELEMENT_THREADS, 1],
            );
            let shape = format_args!("L {n}x{n}, columns {columns}");
            // SAFETY: the arguments are the kernel's, and X has a row for each of L's.
            return unsafe { launch(stream, "trisolve_solve_f64_plain", geometry, &shape, &args) };
        }
        self.forward(stream, technique, 0, &mut x)?;
        for first in (0..n).step_by(FACTOR_BLOCK).rev() {
            self.block(stream, first, true, &x)?;
            self.sweep(stream, technique, "backward", first, first, &x)?;
        }
        Ok(())
    }

    /// X ← L⁻¹ X, where the rows of X above block row `from` are zero.
    fn forward(
        &self,
        stream: &Stream,
        technique: Technique,
        from: usize,
        x: &mut ViewMut<'_, f64>,
    ) -> Result<()> {
        let n = self.order();
        for first in (from..n).step_by(FACTOR_BLOCK) {
            self.block(stream, first, false, x)?;
            let below = n.saturating_sub(first + FACTOR_BLOCK);
            self.sweep(stream, technique, "forward", first, below, x)?;
        }
        Ok(())
    }

    /// A diagonal block's part: X_J ← L_JJ⁻¹ X_J, or with the transpose.
    fn block(
        &self,
        stream: &Stream,
        first: usize,
        transposed: bool,
        x: &ViewMut<'_, f64>,
    ) -> Result<()> {
        let (n, columns) = (self.order(), x.cols());
        let args = [
            self.inverses.into(),
            n.into(),
            first.into(),
            transposed.into(),
            x.as_view().into(),
            x.pitch().into(),
            columns.into(),
        ];
        let geometry = Geometry::new([columns.div_ceil(TALL_COLS), 1, 1], [TILE_THREADS, 1]);
        let shape = format_args!("L {n}x{n}, columns {columns}, block at {first}");
        // SAFETY: the arguments are the kernel's; `first` is below n, and X was checked by the caller.
        unsafe { launch(stream, "trisolve_block_f64", geometry, &shape, &args) }
    }

    /// Subtracts a solved block's contribution from the `rows` rows that are still to be solved.
    fn sweep(
        &self,
        stream: &Stream,
        technique: Technique,
        direction: &str,
        first: usize,
        rows: usize,
        x: &ViewMut<'_, f64>,
    ) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        let (n, columns) = (self.order(), x.cols());
        let args = [
            self.lower.into(),
            self.lower.pitch().into(),
            n.into(),
            first.into(),
            x.as_view().into(),
            x.pitch().into(),
            columns.into(),
        ];
        let name = format!("trisolve_{direction}_f64_{}", technique.name());
        let grid = [rows.div_ceil(TALL_ROWS), columns.div_ceil(TALL_COLS), 1];
        let shape = format_args!("L {n}x{n}, columns {columns}, block at {first}");
        // SAFETY: as in `block`; the grid covers the rows above or below the block, as the kernel expects.
        unsafe {
            launch(
                stream,
                &name,
                Geometry::new(grid, [TILE_THREADS, 1]),
                &shape,
                &args,
            )
        }
    }

    /// Queues the diagonal of (LLᵀ)⁻¹ into `out`, 1 × n: the squared column norms of L⁻¹, a strip of columns at a time.
    pub fn inverse_diagonal(
        &self,
        stream: &Stream,
        technique: Technique,
        out: ViewMut<'_, f64>,
    ) -> Result<()> {
        /// Columns of the inverse that exist at once; a multiple of the factor's blocks.
        const STRIP: usize = 16 * FACTOR_BLOCK;
        let n = self.order();
        require("diagonal", &out, (1, n))?;
        let technique = if technique == Technique::Plain {
            Technique::Fma
        } else {
            technique
        };
        let mut strip = DeviceMatrix::<f64>::uninit(stream, n, STRIP.min(n))?;
        for first in (0..n).step_by(STRIP) {
            let columns = STRIP.min(n - first);
            let mut x = strip.view_mut().into_block((0, 0), (n, columns));
            let common = [
                x.as_view().into(),
                x.pitch().into(),
                n.into(),
                first.into(),
                columns.into(),
            ];
            let shape = format_args!("columns {first}..{} of {n}", first + columns);
            let block = [PLAIN_SIDE; 2];
            let across = columns.div_ceil(PLAIN_SIDE);
            let geometry = Geometry::new([across, n.div_ceil(PLAIN_SIDE), 1], block);
            // SAFETY: the arguments are the kernel's, which stays inside the n × columns strip.
            unsafe { launch(stream, "trisolve_identity_f64", geometry, &shape, &common)? };
            self.forward(stream, technique, first, &mut x)?;
            let part = out.as_view().block((0, first), (1, columns));
            let [x, pitch, n, first, columns] = common;
            let args = [x, pitch, n, first, columns, part.into()];
            let geometry = Geometry::new([across, 1, 1], block);
            // SAFETY: the arguments are the kernel's; it reads the strip and writes a value for each of its columns.
            unsafe { launch(stream, "trisolve_squares_f64", geometry, &shape, &args)? };
        }
        Ok(())
    }
}

/// Queues R = B − (A + λI)X, with both triangles of A.
pub fn residual(
    stream: &Stream,
    technique: Technique,
    (matrix, ridge): (View<'_, f64>, f64),
    x: View<'_, f64>,
    rhs: View<'_, f64>,
    out: ViewMut<'_, f64>,
) -> Result<()> {
    let (n, columns) = (matrix.rows(), x.cols());
    require("matrix", &matrix, (n, n))?;
    require("solution", &x, (n, columns))?;
    require("right-hand sides", &rhs, (n, columns))?;
    require("residual", &out, (n, columns))?;
    if out.is_empty() {
        return Ok(());
    }
    let args = [
        matrix.into(),
        matrix.pitch().into(),
        n.into(),
        ridge.into(),
        x.into(),
        x.pitch().into(),
        rhs.into(),
        rhs.pitch().into(),
        columns.into(),
        out.as_view().into(),
        out.pitch().into(),
    ];
    let (name, geometry) = match technique {
        Technique::Plain => (
            "trisolve_residual_f64_plain",
            Geometry::new(
                [columns.div_ceil(PLAIN_SIDE), n.div_ceil(PLAIN_SIDE), 1],
                [PLAIN_SIDE; 2],
            ),
        ),
        _ => (
            "trisolve_residual_f64_fma",
            Geometry::new(
                [n.div_ceil(TALL_ROWS), columns.div_ceil(TALL_COLS), 1],
                [TILE_THREADS, 1],
            ),
        ),
    };
    // SAFETY: the arguments are the kernel's, and all shapes were compared above.
    unsafe {
        launch(
            stream,
            name,
            geometry,
            &format_args!("A {n}x{n}, columns {columns}"),
            &args,
        )
    }
}
