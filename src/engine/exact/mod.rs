//! Exact sums: features on a grid of powers of two, integer sums of 128 bits, the same bytes whoever adds in what order.
//!
//! Column j has a unit u_j = 2^(e_j) ([`Grid`]). A value z enters as the integer q = round-half-even(z/u_j) ([`quantise`]),
//! which is the only rounding there is; from then on G = Σ q qᵀ, Σ q yᵀ and the counts are integers ([`ExactSums`]).
//! Integer addition commutes, so that the sums depend on neither order, batches, threads, shards nor device, and adding rows
//! and subtracting them again is nothing, to the last bit. Sums are rounded once, when f64 is made of them.
//!
//! There may be several ways to the same integers ([`ExactAccumulator`]). [`Engine::exact`](super::Engine::exact) gives the
//! best one of a device; [`Plain`] is the definition, in loops over i128, that all of them are held to.
//!
//! ```
//! use std::sync::Arc;
//! use muso::engine::exact::{ExactSpec, Grid};
//! use muso::engine::{CpuEngine, Engine, Rows, SumsSpec, Targets};
//! # fn main() -> muso::Result<()> {
//! let spec = ExactSpec {
//!     sums: SumsSpec { features: 2, bias: false, targets: 0 },
//!     classes: false,
//!     grid: Arc::new(Grid::new(20, vec![-4, -4], vec![])?),
//!     setters: false,
//! };
//! let add = |rows: &[f64]| {
//!     let mut sums = CpuEngine::ambient().exact(&spec)?;
//!     sums.push(Rows::new(rows.len() / 2, 2, rows), Targets::None)?;
//!     sums.finish()
//! };
//! let (all, seen) = add(&[0.5, 0.1, 3.0, -7.0])?;
//! assert_eq!(all.gram, [8 * 8 + 48 * 48, 8 * 2 - 48 * 112, 2 * 2 + 112 * 112]);
//! // One value, 0.1, became 2/16.
//! assert!(all.moved == 1 && (seen.largest_move - 0.25).abs() < 1e-12);
//! // Without the first row there is no trace of it.
//! let (first, _) = add(&[0.5, 0.1])?;
//! assert_eq!(all.subtract(&first)?, add(&[3.0, -7.0])?.0);
//! # Ok(())
//! # }
//! ```

mod digits;
mod grid;
mod plain;
mod sums;

pub(crate) use digits::{Digits, nearest};
pub use grid::{BITS, DEFAULT_BITS, EXPONENTS, Grid, HEAD_ROOM, REACH, quantise};
pub(crate) use grid::{exponent_of, power_of_two};
pub use plain::Plain;
pub(crate) use sums::too_many;
pub use sums::{ExactSums, MOST_ROWS, to_f64};

use std::sync::Arc;

use super::{Rows, SumsSpec, Targets};
use crate::error::{Error, Result};

/// Shape and grid of exact sums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExactSpec {
    /// Shape of the sums.
    pub sums: SumsSpec,
    /// Set if targets are classes; values have a grid of their own.
    pub classes: bool,
    /// The grid that the values are rounded to.
    pub grid: Arc<Grid>,
    /// Counts the [setters](ExactSums::setters) of a grid that was recorded.
    pub setters: bool,
}

impl ExactSpec {
    /// Returns C where the targets are values, which a grid must cover; else 0.
    pub fn values(&self) -> usize {
        match self.classes {
            true => 0,
            false => self.sums.targets,
        }
    }

    /// Refuses a grid of another width.
    ///
    /// # Errors
    /// [`Error::Shape`] with the columns of both.
    pub fn check(&self) -> Result<()> {
        let fits = |what: &str, found: usize, expected: usize| match found == expected {
            true => Ok(()),
            false => Err(Error::Shape {
                what: "the grid".into(),
                found: format!("{found} columns of {what}"),
                expected: expected.to_string(),
            }),
        };
        fits("features", self.grid.features().len(), self.sums.features)?;
        fits("targets", self.grid.targets().len(), self.values())
    }
}

/// What is known of rows beside their sums.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// The largest |qu − z|/|z| of any value.
    pub largest_move: f64,
}

/// One of the ways to exact sums.
pub trait ExactAccumulator: Send {
    /// Names the way, for reports.
    fn way(&self) -> &'static str;

    /// Adds a batch of rows.
    ///
    /// # Errors
    /// [`Error::NotFinite`] and [`Error::OffGrid`] with the row within the batch; [`Error::Parameter`] where there would be
    /// more than [`MOST_ROWS`]. What is left of the sums is of no use then.
    ///
    /// # Panics
    /// If the rows or targets do not have the shape of the sums, or a class is outside `0..targets`.
    fn push(&mut self, rows: Rows<'_>, targets: Targets<'_>) -> Result<()>;

    /// Completes the sums.
    ///
    /// # Errors
    /// [`Error::Overflow`] where a sum leaves 128 bits, which [`REACH`] and [`MOST_ROWS`] together rule out.
    fn finish(self: Box<Self>) -> Result<(ExactSums, Seen)>;
}

/// The error for a value that no sum can take; the row is counted within the batch.
pub(crate) fn refuse(tensor: &str, row: usize, column: usize, value: f64, exponent: i32) -> Error {
    let (path, tensor, row) = ("rows".into(), tensor.into(), row as u64);
    match value.is_finite() {
        false => Error::NotFinite {
            path,
            tensor,
            row,
            column,
            value,
        },
        true => Error::OffGrid {
            path,
            tensor,
            row,
            column,
            value,
            reach: power_of_two(exponent) * REACH as f64,
        },
    }
}
