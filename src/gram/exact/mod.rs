//! Exact sums of feature rows: where their grid comes from, and the pass that makes them.
//!
//! A grid is an input: stated as a range, or taken from a file, such as the sums that another run made ([`GridChoice`]).
//! Where none is given it is recorded in a pass of its own over the retained rows of the whole file, so that it does not
//! depend on the rows to forget, nor on how the file is cut into shards. Rows that are forgotten later are another matter:
//! [`ExactState::forget`] tells whether they had a say in it.

pub(super) mod file;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::SUMS_LANE;
use crate::data::rows::{RowBatch, RowSource, Which};
use crate::data::{Digest, TensorFile};
use crate::engine::exact::{DEFAULT_BITS, ExactSpec, ExactSums, Grid, Seen, exponent_of};
use crate::engine::{Engine, Rows, Sums, SumsSpec, Targets};
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::scheduler::Scheduler;

pub use file::plausible;

/// Name of the tensor of exponents, in whatever file a grid is taken from.
pub(super) const GRID_FEATURES: &str = "grid.features";
/// Name of the tensor of the targets' exponents.
pub(super) const GRID_TARGETS: &str = "grid.targets";
/// Key of the text with the width.
pub(super) const GRID_BITS: &str = "bits";

/// Source of the grid of exact sums.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum GridChoice {
    /// Recorded in a pass over the rows, with [head-room](crate::engine::exact::HEAD_ROOM).
    #[default]
    Recorded,
    /// The grid on which magnitudes below this take the fast path, in every column.
    Range(f64),
    /// A safetensors file with `grid.features`, and `grid.targets` where targets are values: units' exponents in i64.
    /// Exact sums are such a file.
    File(PathBuf),
    /// A grid at hand.
    Given(Grid),
}

impl GridChoice {
    /// Takes a number as a range, and anything else as the path of a file.
    pub fn parse(text: &str) -> Self {
        match text.parse() {
            Ok(range) => Self::Range(range),
            Err(_) => Self::File(text.into()),
        }
    }
}

impl From<f64> for GridChoice {
    fn from(range: f64) -> Self {
        Self::Range(range)
    }
}

impl From<Grid> for GridChoice {
    fn from(grid: Grid) -> Self {
        Self::Given(grid)
    }
}

/// A request for exact sums.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ExactParams {
    /// The width of the grid, one of [`BITS`](crate::engine::exact::BITS); `None` takes that of a given grid, or
    /// [`DEFAULT_BITS`].
    pub bits: Option<u32>,
    /// Source of the grid.
    pub grid: GridChoice,
}

impl ExactParams {
    /// Returns the request for this width on a recorded grid.
    pub fn bits(bits: impl Into<Option<u32>>) -> Self {
        Self {
            bits: bits.into(),
            ..Self::default()
        }
    }
}

/// Exact sums over retained and forgotten rows, on one grid.
#[derive(Clone, Debug, PartialEq)]
pub struct ExactState {
    /// Shape and grid of the sums.
    pub spec: ExactSpec,
    /// Sums over the retained rows.
    pub retained: ExactSums,
    /// Sums over the forgotten rows.
    pub forgotten: ExactSums,
}

impl ExactState {
    /// Returns the sums in f64, over retained and over forgotten rows.
    ///
    /// # Errors
    /// As [`ExactSums::to_sums`].
    pub fn to_sums(&self) -> Result<(Sums, Sums)> {
        let spec = &self.spec;
        Ok((self.retained.to_sums(spec)?, self.forgotten.to_sums(spec)?))
    }

    /// Adds the sums over other rows.
    pub(super) fn append(&mut self, other: &Self) -> Result<()> {
        self.spec.setters |= other.spec.setters;
        self.retained = self.retained.add(&other.retained)?;
        self.forgotten = self.forgotten.add(&other.forgotten)?;
        Ok(())
    }

    /// Takes rows from the retained to the forgotten ones. Returns the number of columns whose unit they alone had set when
    /// the grid was recorded, so that the sums over the rest are not what they would be had these rows never been seen: they
    /// would be on a finer grid. That makes no difference where no value of the rest was moved: the integers then stand for
    /// the same values on any finer grid.
    ///
    /// # Errors
    /// As [`ExactSums::subtract`].
    pub fn forget(&mut self, gone: &ExactSums) -> Result<usize> {
        let left = self.retained.subtract(gone)?;
        let before = &self.retained.setters;
        let set = before.iter().zip(&left.setters);
        let alone = set
            .filter(|&(&before, &after)| before > 0 && after == 0)
            .count();
        self.retained = left;
        self.forgotten = self.forgotten.add(gone)?;
        Ok(if self.retained.moved == 0 { 0 } else { alone })
    }
}

/// Returns a digest that tells grids apart.
pub(crate) fn grid_digest(grid: &Grid) -> String {
    let mut digest = Digest::new();
    digest.add(&grid.bits().to_le_bytes());
    for exponents in [grid.features(), grid.targets()] {
        digest.add(&(exponents.len() as u64).to_le_bytes());
        digest.add(bytemuck::cast_slice(exponents));
    }
    digest.text()
}

/// Finds the grid and with it the shape of exact sums; says whether it took a pass over the rows.
///
/// # Errors
/// If the grid is none, or is not one for these rows.
pub(crate) fn exact_spec(
    params: &ExactParams,
    source: &RowSource<'_>,
    sums: SumsSpec,
    scheduler: &Scheduler,
    progress: &mut dyn Progress,
) -> Result<(ExactSpec, bool)> {
    let classes = source.has_classes() && sums.targets > 0;
    let values = if classes { 0 } else { sums.targets };
    let bits = params.bits.unwrap_or(DEFAULT_BITS);
    // Before a pass over the rows: is the width one?
    Grid::new(bits, Vec::new(), Vec::new())?;
    let recorded = params.grid == GridChoice::Recorded;
    let grid = match &params.grid {
        GridChoice::Recorded => record(bits, source, (sums.features, values), scheduler, progress)?,
        GridChoice::Range(range) => Grid::of_range(bits, *range, sums.features, values)?,
        GridChoice::File(path) => {
            let grid = load_grid(path, params.bits)?;
            let wanted = (sums.features, values);
            if (grid.features().len(), grid.targets().len()) != wanted {
                let say = |(features, targets): (usize, usize)| match targets {
                    0 => format!("a grid of {features} features"),
                    _ => format!("a grid of {features} features and {targets} targets"),
                };
                return Err(Error::Shape {
                    what: path.display().to_string(),
                    found: say((grid.features().len(), grid.targets().len())),
                    expected: format!("{}, as {} has", say(wanted), source.name()),
                });
            }
            grid
        }
        GridChoice::Given(grid) => {
            same_bits("`.grid`", grid.bits(), params.bits)?;
            grid.clone()
        }
    };
    let spec = ExactSpec {
        sums,
        classes,
        grid: Arc::new(grid),
        setters: recorded,
    };
    spec.check()?;
    Ok((spec, recorded))
}

fn same_bits(what: &str, found: u32, wanted: Option<u32>) -> Result<()> {
    match wanted {
        Some(wanted) if wanted != found => Err(Error::Shape {
            what: what.to_owned(),
            found: format!("a grid of {found} bits"),
            expected: format!("{wanted}, as `.exact` says"),
        }),
        _ => Ok(()),
    }
}

/// Loads the grid of a file, such as exact sums; `bits` is what was asked for, where something was.
///
/// # Errors
/// If there is none in the file, or one of another width.
pub fn load_grid(path: impl AsRef<Path>, bits: Option<u32>) -> Result<Grid> {
    let file = TensorFile::open(path)?;
    let grid = read_grid(&file, bits)?;
    file.unchanged()?;
    Ok(grid)
}

/// Reads the grid of a file; `bits` is what was asked for, where something was.
pub(super) fn read_grid(file: &TensorFile, bits: Option<u32>) -> Result<Grid> {
    let name = file.path().display().to_string();
    let stated = match file.metadata().get(GRID_BITS) {
        None => None,
        Some(text) => Some(text.parse::<u32>().map_err(|_| {
            let found = crate::data::shown(text, 20);
            Error::format(
                file.path(),
                format!("`{GRID_BITS}` is `{found}`"),
                "a number",
            )
        })?),
    };
    if let Some(stated) = stated {
        same_bits(&name, stated, bits)?;
    }
    let exponents = |tensor: &str| -> Result<Vec<i32>> {
        let reader = file.labels(tensor)?;
        let mut values = Vec::new();
        // A column takes eight bytes of the file.
        reader.read(0, reader.len() as usize, &mut values)?;
        let narrow = |&value: &i64| i32::try_from(value);
        values
            .iter()
            .map(narrow)
            .collect::<Result<_, _>>()
            .map_err(|_| {
                let problem = format!("`{tensor}` has values that are no exponents");
                Error::format(file.path(), problem, "exponents of units")
            })
    };
    let features = exponents(GRID_FEATURES)?;
    let targets = match file.contains(GRID_TARGETS) {
        true => exponents(GRID_TARGETS)?,
        false => Vec::new(),
    };
    let bits = stated.or(bits).unwrap_or(DEFAULT_BITS);
    Grid::new(bits, features, targets).map_err(|error| match error {
        Error::Parameter {
            value, expected, ..
        } => Error::format(file.path(), format!("its grid has {value}"), expected),
        other => other,
    })
}

/// Records a grid from the retained rows.
fn record(
    bits: u32,
    source: &RowSource<'_>,
    (features, targets): (usize, usize),
    scheduler: &Scheduler,
    progress: &mut dyn Progress,
) -> Result<Grid> {
    let (mut of_features, mut of_targets) = (Largest::new(features), Largest::new(targets));
    source.stream(scheduler, "grid", Which::All, progress, |batch| {
        let kept = source.retained_in(batch);
        of_features.add(batch.rows.pick(&kept));
        if let Targets::Values(values) = batch.targets {
            of_targets.add(values.pick(&kept));
        }
        Ok(())
    })?;
    Grid::recorded(bits, &of_features.exponents(), &of_targets.exponents())
}

/// The largest magnitude of each column.
struct Largest {
    magnitudes: Vec<f64>,
    row: Vec<f64>,
}

impl Largest {
    fn new(columns: usize) -> Self {
        Self {
            magnitudes: vec![0.0; columns],
            row: vec![0.0; columns],
        }
    }

    fn add(&mut self, rows: Rows<'_>) {
        if self.row.is_empty() {
            return;
        }
        for i in 0..rows.rows() {
            rows.widen_row(i, &mut self.row);
            for (largest, value) in self.magnitudes.iter_mut().zip(&self.row) {
                *largest = if value.abs() > *largest {
                    value.abs()
                } else {
                    *largest
                };
            }
        }
    }

    fn exponents(&self) -> Vec<Option<i32>> {
        self.magnitudes.iter().map(|&m| exponent_of(m)).collect()
    }
}

/// Sums the retained and the forgotten rows exactly, apart; only the forgotten ones where no others are asked for. `seen`
/// is shown every batch.
pub(crate) fn split_exact<E: Engine>(
    engine: &E,
    source: &RowSource<'_>,
    spec: &ExactSpec,
    which: Which,
    scheduler: &Scheduler,
    progress: &mut dyn Progress,
    mut seen: impl FnMut(&RowBatch<'_>),
) -> Result<(ExactState, Seen)> {
    let (mut retained, mut forgotten) = (engine.exact(spec)?, engine.exact(spec)?);
    source.stream(scheduler, SUMS_LANE, which, progress, |batch| {
        seen(batch);
        let mut sides = vec![(source.forgotten_in(batch), &mut forgotten)];
        if which == Which::All {
            sides.push((source.retained_in(batch), &mut retained));
        }
        for (picked, sums) in sides {
            let added =
                batch.with_targets(spec.sums, &picked, |rows, targets| sums.push(rows, targets));
            added.map_err(|error| placed(error, source, batch.start, &picked))?;
        }
        Ok(())
    })?;
    let ((retained, one), (forgotten, other)) = (retained.finish()?, forgotten.finish()?);
    let seen = Seen {
        largest_move: one.largest_move.max(other.largest_move),
    };
    let state = ExactState {
        spec: spec.clone(),
        retained,
        forgotten,
    };
    Ok((state, seen))
}

/// Names the file and the row in it, where an error knows the row of a batch.
fn placed(error: Error, source: &RowSource<'_>, start: u64, picked: &[usize]) -> Error {
    match error {
        Error::OffGrid {
            tensor,
            row,
            column,
            value,
            reach,
            ..
        } => Error::OffGrid {
            path: source.name().into(),
            tensor,
            row: start + picked[row as usize] as u64,
            column,
            value,
            reach,
        },
        other => other,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::engine::CpuEngine;
    use crate::engine::exact::REACH;

    /// Sums of rows with two features and one value, in units of 1.
    fn sums(rows: &[[f64; 2]], values: &[f64]) -> (ExactSpec, ExactSums) {
        let spec = ExactSpec {
            sums: SumsSpec {
                features: 2,
                bias: false,
                targets: 1,
            },
            classes: false,
            grid: Arc::new(Grid::new(20, vec![0, 0], vec![0]).unwrap()),
            setters: true,
        };
        let mut sums = CpuEngine::ambient().exact(&spec).unwrap();
        let (n, rows) = (values.len(), rows.as_flattened());
        let values = Targets::Values(Rows::new(n, 1, values));
        sums.push(Rows::new(n, 2, rows), values).unwrap();
        (spec, sums.finish().unwrap().0)
    }

    #[test]
    fn only_columns_that_forgotten_rows_had_set_are_told() {
        let (spec, mut all) = sums(&[[1.0, 0.25], [2.0, 0.0], [3.0, 0.0]], &[0.0; 3]);
        let (_, mut gone) = sums(&[[3.0, 0.0]], &[0.0]);
        // One column was set by the row that goes, one by one that stays, and one by none.
        (all.setters, gone.setters) = (vec![1, 2, 0], vec![1, 1, 0]);
        let mut state = ExactState {
            retained: all,
            forgotten: ExactSums::none(&spec),
            spec,
        };
        assert!(state.retained.moved > 0);
        assert_eq!(state.forget(&gone).unwrap(), 1);
        assert_eq!(state.retained.setters, [0, 1, 0]);
        assert_eq!(state.forgotten, gone);
    }

    #[test]
    fn everything_of_a_grid_is_in_its_digest() {
        let grids = [
            (20, vec![0, 1], vec![]),
            (22, vec![0, 1], vec![]),
            (20, vec![0, 2], vec![]),
            (20, vec![1, 0], vec![]),
            (20, vec![0, 1], vec![0]),
            (20, vec![0, 1], vec![1]),
            (20, vec![0], vec![1]),
        ];
        let digest =
            |(bits, features, targets)| grid_digest(&Grid::new(bits, features, targets).unwrap());
        let digests: std::collections::BTreeSet<_> = grids.map(digest).into();
        assert_eq!(digests.len(), 7);
    }

    #[test]
    fn the_largest_product_is_plausible_and_nothing_beyond() {
        let most = (REACH - 1) as f64;
        let (spec, mut sums) = sums(&[[most, 0.0]], &[most]);
        assert!(plausible(&sums, &spec));
        sums.cross[0] += 1;
        assert!(!plausible(&sums, &spec));
    }
}
