//! GEMM with feature rows: Y = Z W, its argmax and softmax, and K = Z₁Z₂ᵀ. The host side of
//! `kernels/projection.cu`.

use super::matrix::{Feature, View, ViewMut};
use super::module::table::{ELEMENT_THREADS, PLAIN_SIDE, TALL_COLS, TALL_ROWS, TILE, TILE_THREADS};
use super::module::{Arg, Geometry, Technique, launch, require};
use super::stream::Stream;
use crate::error::{Error, Result};

/// Rows and the weights they are multiplied with: a last row of weights beyond the features' columns is the bias.
#[derive(Clone, Copy, Debug)]
pub struct Factors<'a, T> {
    /// Z, N × D.
    pub rows: View<'a, T>,
    /// W, D × C or (D + 1) × C.
    pub weights: View<'a, f64>,
}

impl<T: Feature> Factors<'_, T> {
    fn check(&self) -> Result<()> {
        let features = self.rows.cols();
        let bias = self.weights.rows().wrapping_sub(features);
        if bias > 1 {
            return Err(Error::Shape {
                what: "weights".into(),
                found: format!("{} rows", self.weights.rows()),
                expected: format!("{features} rows, or {features} + 1 with a bias"),
            });
        }
        require(
            "weights",
            &self.weights,
            (features + bias, self.weights.cols()),
        )
    }

    fn args(&self) -> [Arg; 6] {
        let bias = self.weights.rows() - self.rows.cols();
        [
            self.rows.into(),
            self.rows.pitch().into(),
            self.rows.cols().into(),
            self.weights.into(),
            self.weights.pitch().into(),
            bias.into(),
        ]
    }
}

/// Z W, or Z W − Z₂W₂: what the kernels of this module compute before they differ.
#[derive(Clone, Copy, Debug)]
pub struct Product<'a, T> {
    /// Factors Z and W.
    pub plus: Factors<'a, T>,
    /// Z₂ and W₂, of as many rows and columns.
    pub minus: Option<Factors<'a, T>>,
}

impl<'a, T: Feature> Product<'a, T> {
    /// Returns the product Z W alone.
    pub fn of(rows: View<'a, T>, weights: View<'a, f64>) -> Self {
        let plus = Factors { rows, weights };
        Self { plus, minus: None }
    }

    fn rows(&self) -> usize {
        self.plus.rows.rows()
    }

    fn classes(&self) -> usize {
        self.plus.weights.cols()
    }

    fn check(&self) -> Result<()> {
        self.plus.check()?;
        let Some(minus) = &self.minus else {
            return Ok(());
        };
        minus.check()?;
        let shape = |f: &Factors<'_, T>| (f.rows.rows(), f.weights.cols());
        if shape(minus) != shape(&self.plus) {
            return Err(Error::Shape {
                what: "subtracted product".into(),
                found: format!("{:?}", shape(minus)),
                expected: format!("{:?}", shape(&self.plus)),
            });
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.rows() == 0 || self.classes() == 0
    }

    /// The arguments that all kernels of products begin with, then their own.
    fn args(&self, own: &[Arg]) -> Vec<Arg> {
        let [z, z_pitch, features, w, w_pitch, bias] = self.plus.args();
        let rows = self.rows().into();
        let mut args = vec![z, z_pitch, rows, features, w, w_pitch, bias];
        args.extend(match &self.minus {
            Some(minus) => minus.args(),
            None => [Arg::NULL; 6],
        });
        args.push(self.classes().into());
        args.extend_from_slice(own);
        args
    }

    fn launch(
        &self,
        stream: &Stream,
        what: &str,
        technique: Technique,
        own: &[Arg],
        per_row: bool,
    ) -> Result<()> {
        let (rows, classes) = (self.rows(), self.classes());
        // Few columns: bound by reading Z, which tensor cores do not make faster.
        let (technique, grid, block) = match (technique, per_row) {
            (Technique::Plain, true) => (
                technique,
                [rows.div_ceil(ELEMENT_THREADS), 1, 1],
                [ELEMENT_THREADS, 1],
            ),
            (Technique::Plain, false) => (
                technique,
                [classes.div_ceil(PLAIN_SIDE), rows.div_ceil(PLAIN_SIDE), 1],
                [PLAIN_SIDE; 2],
            ),
            (_, true) => (
                Technique::Fma,
                [rows.div_ceil(TALL_ROWS), 1, 1],
                [TILE_THREADS, 1],
            ),
            (_, false) => (
                Technique::Fma,
                [rows.div_ceil(TALL_ROWS), classes.div_ceil(TALL_COLS), 1],
                [TILE_THREADS, 1],
            ),
        };
        let name = format!("projection_{what}_{}_{}", T::NAME, technique.name());
        let features = self.plus.rows.cols();
        let shape = format_args!(
            "Z {rows}x{features}, W {}x{classes}",
            self.plus.weights.rows()
        );
        // SAFETY: the arguments are the kernel's: the common ones, whose shapes `check` has compared, and the result,
        // which the caller of this function has found to hold a row for each row of Z.
        unsafe {
            launch(
                stream,
                &name,
                Geometry::new(grid, block),
                &shape,
                &self.args(own),
            )
        }
    }
}

/// Computes Y = Z W, N × C.
pub fn logits<T: Feature>(
    stream: &Stream,
    technique: Technique,
    product: Product<'_, T>,
    out: ViewMut<'_, f64>,
) -> Result<()> {
    product.check()?;
    require("logits", &out, (product.rows(), product.classes()))?;
    if product.is_empty() {
        return Ok(());
    }
    let own = [out.as_view().into(), Arg::NULL, out.pitch().into()];
    product.launch(stream, "logits", technique, &own, false)
}

/// Computes Y = Z W, N × C, summed in f64 and rounded once.
pub fn logits_f32<T: Feature>(
    stream: &Stream,
    technique: Technique,
    product: Product<'_, T>,
    out: ViewMut<'_, f32>,
) -> Result<()> {
    product.check()?;
    require("logits", &out, (product.rows(), product.classes()))?;
    if product.is_empty() {
        return Ok(());
    }
    let own = [Arg::NULL, out.as_view().into(), out.pitch().into()];
    product.launch(stream, "logits", technique, &own, false)
}

/// Returns the column of the largest entry of each row of Z W, the first where several are equal; `out` is 1 × N.
pub fn argmax<T: Feature>(
    stream: &Stream,
    technique: Technique,
    product: Product<'_, T>,
    out: ViewMut<'_, u32>,
) -> Result<()> {
    product.check()?;
    require("classes", &out, (1, product.rows()))?;
    if product.is_empty() {
        return Ok(());
    }
    product.launch(stream, "argmax", technique, &[out.as_view().into()], true)
}

/// Computes softmax(temperature · Z W) by rows, N × C.
pub fn softmax<T: Feature>(
    stream: &Stream,
    technique: Technique,
    product: Product<'_, T>,
    temperature: f64,
    out: ViewMut<'_, f64>,
) -> Result<()> {
    product.check()?;
    require("probabilities", &out, (product.rows(), product.classes()))?;
    if product.is_empty() {
        return Ok(());
    }
    let own = [temperature.into(), out.as_view().into(), out.pitch().into()];
    product.launch(stream, "softmax", technique, &own, true)
}

/// Computes K = Z₁Z₂ᵀ, N₁ × N₂, plus 1 everywhere with `bias`.
pub fn kernel_matrix<T: Feature>(
    stream: &Stream,
    technique: Technique,
    left: View<'_, T>,
    right: View<'_, T>,
    bias: bool,
    out: ViewMut<'_, f64>,
) -> Result<()> {
    let (rows, cols, features) = (left.rows(), right.rows(), left.cols());
    require("right rows", &right, (cols, features))?;
    require("K", &out, (rows, cols))?;
    if rows == 0 || cols == 0 {
        return Ok(());
    }
    let (grid, block) = match technique {
        Technique::Plain => (
            [cols.div_ceil(PLAIN_SIDE), rows.div_ceil(PLAIN_SIDE), 1],
            [PLAIN_SIDE; 2],
        ),
        _ => (
            [cols.div_ceil(TILE), rows.div_ceil(TILE), 1],
            [TILE_THREADS, 1],
        ),
    };
    let name = format!("projection_kernel_{}_{}", T::NAME, technique.name());
    let args = [
        left.into(),
        left.pitch().into(),
        rows.into(),
        right.into(),
        right.pitch().into(),
        cols.into(),
        features.into(),
        bias.into(),
        out.as_view().into(),
        out.pitch().into(),
    ];
    let shape = format_args!("Z1 {rows}x{features}, Z2 {cols}x{features}");
    // SAFETY: the arguments are the kernel's; both operands have `features` columns and K a row and a column for each
    // of their rows, as checked above.
    unsafe { launch(stream, &name, Geometry::new(grid, block), &shape, &args) }
}
