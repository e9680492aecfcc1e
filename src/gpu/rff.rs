//! Random Fourier features √(1/m)·[cos(XΩ), sin(XΩ)]. The host side of `kernels/rff.cu`.

use super::matrix::{Feature, View, ViewMut};
use super::module::table::{PLAIN_SIDE, TILE, TILE_THREADS};
use super::module::{Geometry, Technique, launch, require};
use super::stream::Stream;
use crate::error::Result;

/// Types of inputs and features: a subset of [`Feature`], since nobody draws frequencies for half precision.
pub trait Wide: Feature {}
impl Wide for f32 {}
impl Wide for f64 {}

/// Z, N × 2m, of inputs X, N × d, and frequencies Ω, d × m: column k is the cosine and column m + k the sine of
/// frequency k.
pub fn features<X: Wide, Z: Wide>(
    stream: &Stream,
    technique: Technique,
    inputs: View<'_, X>,
    frequencies: View<'_, f64>,
    out: ViewMut<'_, Z>,
) -> Result<()> {
    let (rows, width, count) = (inputs.rows(), inputs.cols(), frequencies.cols());
    require("frequencies", &frequencies, (width, count))?;
    require("features", &out, (rows, 2 * count))?;
    if out.is_empty() {
        return Ok(());
    }
    let (grid, block) = match technique {
        Technique::Plain => (
            [count.div_ceil(PLAIN_SIDE), rows.div_ceil(PLAIN_SIDE), 1],
            [PLAIN_SIDE; 2],
        ),
        _ => (
            [count.div_ceil(TILE), rows.div_ceil(TILE), 1],
            [TILE_THREADS, 1],
        ),
    };
    let name = format!("rff_features_{}_{}_{}", X::NAME, Z::NAME, technique.name());
    let args = [
        inputs.into(),
        inputs.pitch().into(),
        rows.into(),
        width.into(),
        frequencies.into(),
        frequencies.pitch().into(),
        count.into(),
        out.as_view().into(),
        out.pitch().into(),
    ];
    let shape = format_args!("X {rows}x{width}, frequencies {count}");
    // SAFETY: the arguments are the kernel's, and the shapes of the three matrices were compared above.
    unsafe { launch(stream, &name, Geometry::new(grid, block), &shape, &args) }
}
