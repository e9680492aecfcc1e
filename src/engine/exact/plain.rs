//! Exact sums by their definition: loops over i128, one row after the other.

use super::sums::too_many;
use super::{ExactAccumulator, ExactSpec, ExactSums, Seen, power_of_two, quantise, refuse};
use crate::engine::{Rows, Targets};
use crate::error::{Error, Result};

/// Sums as they are defined, without any of what makes them fast: the reference of all other ways.
#[derive(Clone, Debug)]
pub struct Plain {
    spec: ExactSpec,
    sums: ExactSums,
    seen: Seen,
}

impl Plain {
    /// Starts with no rows.
    ///
    /// # Errors
    /// As [`ExactSpec::check`].
    pub fn new(spec: &ExactSpec) -> Result<Self> {
        spec.check()?;
        Ok(Self {
            spec: spec.clone(),
            sums: ExactSums::none(spec),
            seen: Seen::default(),
        })
    }

    /// Rounds a row to the grid; says whether a value is beyond the width.
    fn integers(
        &mut self,
        tensor: &str,
        (row, first): (usize, usize),
        values: &[f64],
        units: &[i32],
    ) -> Result<(Vec<i128>, bool)> {
        let grid = self.spec.grid.clone();
        let mut integers = Vec::with_capacity(values.len());
        let mut beyond = false;
        for (column, (&value, &unit)) in values.iter().zip(units).enumerate() {
            let Some(q) = quantise(value, unit) else {
                return Err(refuse(tensor, row, column, value, unit));
            };
            let there = q as f64 * power_of_two(unit);
            if there != value {
                self.sums.moved += 1;
                let relative = (there - value).abs() / value.abs();
                self.seen.largest_move = self.seen.largest_move.max(relative);
            }
            beyond |= q.unsigned_abs() >= 1 << grid.bits();
            if self.spec.setters && value.abs() >= grid.setter() * power_of_two(unit) {
                self.sums.setters[first + column] += 1;
            }
            integers.push(q.into());
        }
        Ok((integers, beyond))
    }
}

impl ExactAccumulator for Plain {
    fn way(&self) -> &'static str {
        "plain i128"
    }

    fn push(&mut self, rows: Rows<'_>, targets: Targets<'_>) -> Result<()> {
        let spec = self.spec.clone();
        let features = spec.sums.features;
        targets.check((rows.rows(), rows.cols()), &spec.sums);
        too_many(self.sums.rows, rows.rows() as u64)?;
        self.sums.rows += rows.rows() as u64;
        let mut values = vec![0.0; features];
        for row in 0..rows.rows() {
            rows.widen_row(row, &mut values);
            let place = (row, 0);
            let (mut z, mut beyond) =
                self.integers("features", place, &values, spec.grid.features())?;
            z.extend(spec.sums.bias.then_some(1));
            let y = match targets {
                Targets::None => Vec::new(),
                Targets::Classes(classes) => {
                    self.sums.class_rows[classes[row] as usize] += 1;
                    let one = |class| i128::from(class == classes[row] as usize);
                    (0..spec.sums.targets).map(one).collect()
                }
                Targets::Values(wanted) => {
                    let mut values = vec![0.0; wanted.cols()];
                    wanted.widen_row(row, &mut values);
                    let place = (row, features);
                    let (y, far) = self.integers("targets", place, &values, spec.grid.targets())?;
                    beyond |= far;
                    y
                }
            };
            self.sums.beyond += u64::from(beyond);
            let add = |sum: &mut i128, a: i128, b: i128| {
                *sum = sum.checked_add(a * b).ok_or(Error::Overflow)?;
                Ok::<(), Error>(())
            };
            let mut gram = self.sums.gram.iter_mut();
            for (i, a) in z.iter().enumerate() {
                for (b, sum) in z[..=i].iter().zip(&mut gram) {
                    add(sum, *a, *b)?;
                }
            }
            let mut cross = self.sums.cross.iter_mut();
            for a in &z {
                for (b, sum) in y.iter().zip(&mut cross) {
                    add(sum, *a, *b)?;
                }
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(ExactSums, Seen)> {
        Ok((self.sums, self.seen))
    }
}
