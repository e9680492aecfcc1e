//! Sums of 128 bits, and their one rounding to f64.

use super::grid::power_of_two;
use super::{ExactSpec, Grid};
use crate::engine::{Centred, Matrix, Sums};
use crate::error::{Error, Result};

/// Rows that sums may be of: as many squares below [`REACH`](super::REACH)² stay below 2¹²⁷.
pub const MOST_ROWS: u64 = 1 << 31;

/// Sums over rows in integers, in units of a [`Grid`]. Every number in it is a sum over the rows and nothing else, so that
/// sums over disjoint sets of rows add and subtract, exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExactSums {
    /// Number of rows summed.
    pub rows: u64,
    /// Σ q qᵀ: the lower triangle, row by row, bias included.
    pub gram: Vec<i128>,
    /// Σ q yᵀ, D×C row by row.
    pub cross: Vec<i128>,
    /// Number of rows of each class; none where targets are values.
    pub class_rows: Vec<u64>,
    /// Number of values that the grid moved.
    pub moved: u64,
    /// Number of rows with a value beyond 2^b units, which took the long way.
    pub beyond: u64,
    /// Number of rows that have set the exponent of a column, or would have; none unless the grid was recorded.
    pub setters: Vec<u64>,
}

impl ExactSums {
    /// Returns the sums over no rows.
    pub fn none(spec: &ExactSpec) -> Self {
        let (order, targets) = (spec.sums.order(), spec.sums.targets);
        let columns = spec.sums.features + spec.values();
        Self {
            rows: 0,
            gram: vec![0; order * (order + 1) / 2],
            cross: vec![0; order * targets],
            class_rows: vec![0; if spec.classes { targets } else { 0 }],
            moved: 0,
            beyond: 0,
            setters: vec![0; if spec.setters { columns } else { 0 }],
        }
    }

    /// Returns the sums over both sets of rows.
    ///
    /// # Errors
    /// [`Error::Overflow`] where a sum leaves its bits; [`Error::Parameter`] beyond [`MOST_ROWS`].
    ///
    /// # Panics
    /// If the shapes differ.
    pub fn add(&self, other: &Self) -> Result<Self> {
        too_many(self.rows, other.rows)?;
        self.combine(other, i128::checked_add, u64::checked_add)
    }

    /// Returns the sums without the rows of `other`: what they would be had those never been added.
    ///
    /// # Errors
    /// [`Error::Overflow`] where `other` has rows that are not in these sums, as far as that shows.
    ///
    /// # Panics
    /// If the shapes differ.
    pub fn subtract(&self, other: &Self) -> Result<Self> {
        self.combine(other, i128::checked_sub, u64::checked_sub)
    }

    fn combine(
        &self,
        other: &Self,
        wide: impl Fn(i128, i128) -> Option<i128>,
        count: impl Fn(u64, u64) -> Option<u64>,
    ) -> Result<Self> {
        fn each<T: Copy>(a: &[T], b: &[T], f: impl Fn(T, T) -> Option<T>) -> Option<Vec<T>> {
            assert_eq!(a.len(), b.len(), "sums of other shape");
            a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect()
        }
        // Of a grid that was not recorded there are no setters.
        let setters = match (self.setters.len(), other.setters.len()) {
            (0, _) if !other.setters.is_empty() => {
                each(&vec![0; other.setters.len()], &other.setters, &count)
            }
            (_, 0) => Some(self.setters.clone()),
            _ => each(&self.setters, &other.setters, &count),
        };
        let combined = || {
            Some(Self {
                rows: count(self.rows, other.rows)?,
                gram: each(&self.gram, &other.gram, &wide)?,
                cross: each(&self.cross, &other.cross, &wide)?,
                class_rows: each(&self.class_rows, &other.class_rows, &count)?,
                moved: count(self.moved, other.moved)?,
                beyond: count(self.beyond, other.beyond)?,
                setters: setters?,
            })
        };
        combined().ok_or(Error::Overflow)
    }

    /// Returns the sums in f64, every one of them rounded once.
    ///
    /// # Errors
    /// [`Error::Overflow`] where one leaves the range of f64.
    pub fn to_sums(&self, spec: &ExactSpec) -> Result<Sums> {
        let (order, targets) = (spec.sums.order(), spec.sums.targets);
        let grid: &Grid = &spec.grid;
        // The bias is 1 in units of 1.
        let unit = |i: usize| grid.features().get(i).copied().unwrap_or(0);
        let mut gram = Matrix::zeros(order, order);
        let mut entries = self.gram.iter();
        for i in 0..order {
            for (j, &value) in (0..=i).zip(&mut entries) {
                let rounded = to_f64(value, unit(i) + unit(j));
                gram[(i, j)] = rounded;
                gram[(j, i)] = rounded;
            }
        }
        let of_target = |t: usize| grid.targets().get(t).copied().unwrap_or(0);
        let cross = Matrix::from_fn(order, targets, |i, t| {
            to_f64(self.cross[i * targets + t], unit(i) + of_target(t))
        });
        match gram.is_finite() && cross.is_finite() {
            true => Ok(Sums {
                rows: self.rows,
                gram,
                cross,
            }),
            false => Err(Error::Overflow),
        }
    }

    /// Returns the sums about the means in f64. Large sums may cancel, and what is left has all its digits: it is a
    /// difference of integers, rounded once and divided by the number of rows.
    ///
    /// # Errors
    /// [`Error::Overflow`] where one leaves the range of f64.
    ///
    /// # Panics
    /// If the sums have no bias, whose row holds the means.
    pub fn to_centred(&self, spec: &ExactSpec) -> Result<Centred> {
        assert!(spec.sums.bias, "sums without a bias");
        let (width, targets) = (spec.sums.features, spec.sums.targets);
        let divisor = (self.rows as f64).max(1.0);
        let units = spec.grid.features();
        let of_target = |t: usize| spec.grid.targets().get(t).copied().unwrap_or(0);
        let of_features = &self.gram[width * (width + 1) / 2..][..width];
        let of_targets = &self.cross[width * targets..];
        let mut gram = Matrix::zeros(width, width);
        let mut entries = self.gram.iter();
        for i in 0..width {
            for (j, &product) in (0..=i).zip(&mut entries) {
                let sums = (of_features[i], of_features[j]);
                let left = about_the_mean(self.rows, product, sums, units[i] + units[j]) / divisor;
                gram[(i, j)] = left;
                gram[(j, i)] = left;
            }
        }
        let cross = Matrix::from_fn(width, targets, |i, t| {
            let sums = (of_features[i], of_targets[t]);
            let product = self.cross[i * targets + t];
            about_the_mean(self.rows, product, sums, units[i] + of_target(t)) / divisor
        });
        let mean = |(&sum, unit): (&i128, i32)| to_f64(sum, unit) / divisor;
        let centred = Centred {
            features: of_features
                .iter()
                .zip(units.iter().copied())
                .map(mean)
                .collect(),
            targets: of_targets
                .iter()
                .zip((0..targets).map(of_target))
                .map(mean)
                .collect(),
            sums: Sums {
                rows: self.rows,
                gram,
                cross,
            },
        };
        let finite = centred.sums.gram.is_finite() && centred.sums.cross.is_finite();
        let mut means = centred.features.iter().chain(&centred.targets);
        match finite && means.all(|mean| mean.is_finite()) {
            true => Ok(centred),
            false => Err(Error::Overflow),
        }
    }
}

/// Returns (nA − bc)·2^exponent rounded to f64 once, for A a sum over n rows of the products of two values, and b and c
/// sums of the values.
fn about_the_mean(rows: u64, product: i128, (b, c): (i128, i128), exponent: i32) -> f64 {
    // Up to 160 bits, as high·2⁶⁴ + low; b and c are below 2⁸⁰, and n below 2³².
    let times = |x: i128, y: u64| {
        let low = u128::from(x as u64) * u128::from(y);
        ((x >> 64) * i128::from(y) + (low >> 64) as i128, low as u64)
    };
    let (high, low) = times(product, rows);
    let (less, less_low) = times(b, c as u64);
    let (low, borrow) = low.overflowing_sub(less_low);
    let high = high - less - b * (c >> 64) - i128::from(borrow);
    match i64::try_from(high) {
        Ok(high) => to_f64(i128::from(high) << 64 | i128::from(low), exponent),
        // With 63 bits and more above it, all that matters of the rest is whether there is one.
        Err(_) => to_f64(high << 1 | i128::from(low > 0), exponent + 63),
    }
}

/// Refuses more rows than the bits are good for.
pub(crate) fn too_many(rows: u64, more: u64) -> Result<()> {
    match rows.checked_add(more) {
        Some(total) if total <= MOST_ROWS => Ok(()),
        _ => Err(Error::Parameter {
            name: "rows",
            value: format!("{rows} and {more} more"),
            expected: format!("at most {MOST_ROWS} together, whose exact sums fit 128 bits"),
        }),
    }
}

/// Returns value · 2^exponent rounded to f64 once, halves to the even neighbour, also where the result is subnormal.
///
/// ```
/// use muso::engine::exact::to_f64;
/// assert_eq!(to_f64(-3, -1), -1.5);
/// assert_eq!(to_f64((1 << 53) + 1, 0), (1_u64 << 53) as f64); // half-way: to even
/// assert_eq!(to_f64((1 << 53) + 3, -1), ((1_u64 << 52) + 2) as f64);
/// ```
pub fn to_f64(value: i128, exponent: i32) -> f64 {
    let magnitude = value.unsigned_abs();
    let length = 128 - magnitude.leading_zeros() as i32;
    // The exponent of the last place that the result has.
    let last = (length + exponent - 53).max(-1074);
    let (kept, power) = match last - exponent {
        ..=0 => (magnitude as f64, exponent),
        dropped @ 1..=127 => {
            let (floor, rest) = (magnitude >> dropped, magnitude & ((1 << dropped) - 1));
            let half = 1 << (dropped - 1);
            let up = rest > half || rest == half && floor % 2 == 1;
            // At most 2^53, exact in f64.
            ((floor + u128::from(up)) as f64, last)
        }
        _ => (0.0, 0),
    };
    // In two steps, each exact: the power alone may be beyond f64.
    let first = power.clamp(-1000, 1000);
    let second = (power - first).clamp(-1022, 1023);
    let sign = if value < 0 { -1.0 } else { 1.0 };
    sign * kept * power_of_two(first) * power_of_two(second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_that_of_the_processor() {
        // i128 to f64 is correctly rounded by the language; a scale that keeps the result normal commutes with it.
        let mut state = 1_u128;
        for round in 0..20_000_u32 {
            state = state.wrapping_mul(0xda94_2042_e4dd_58b5).wrapping_add(1);
            let value = (state as i128) >> (round % 127);
            for exponent in [-900, -200, -1, 0, 3, 880] {
                let wanted = value as f64 * power_of_two(exponent);
                let found = to_f64(value, exponent);
                assert_eq!(found.to_bits(), wanted.to_bits(), "{value}·2^{exponent}");
            }
        }
        for value in [i128::MIN, i128::MAX, -1, 1, (1 << 54) - 1, (1 << 53) + 1] {
            assert_eq!(to_f64(value, 0), value as f64);
        }
        assert_eq!(to_f64(0, -1000), 0.0);
    }

    #[test]
    fn subnormal_results_are_rounded_once() {
        let tiny = f64::from_bits(1);
        // 1.5 units of the last place, a half, a little more than that, and nothing.
        assert_eq!(to_f64(3, -1075), 2.0 * tiny);
        assert_eq!(to_f64(5, -1075), 2.0 * tiny);
        assert_eq!(to_f64(1, -1075), 0.0);
        assert_eq!(to_f64((1 << 60) + 1, -1135), tiny);
        assert_eq!(to_f64(1 << 60, -1135), 0.0);
        assert_eq!(to_f64(i128::MAX, -1300), 0.0);
        // Rounded to 53 bits first, this would be a half and then go up.
        let below_half = (1_i128 << 60) + (1 << 16) + (1 << 15) - 1;
        assert_eq!(to_f64(below_half, -1090).to_bits(), (1 << 44) + 1);
        assert_eq!(to_f64(i128::MAX, 1000), f64::INFINITY);
    }

    #[test]
    fn what_is_left_about_the_mean_is_rounded_once() {
        // Small enough for plain integers.
        for (rows, product, b, c) in [
            (3, 7, 4, 5),
            (1 << 31, -(1 << 90), (1 << 60) + 1, -(1 << 60)),
            (5, 0, 0, 0),
            (7, (1 << 64) - 1, 1 << 63, -3),
        ] {
            let wanted = to_f64(rows * product - b * c, -7);
            let found = about_the_mean(rows as u64, product, (b, c), -7);
            assert_eq!(
                found.to_bits(),
                wanted.to_bits(),
                "{rows} {product} {b} {c}"
            );
        }
        // n²m² + nr less (nm)², beyond 128 bits each: nr is left, and with the other sign about twice the square.
        let (rows, mean) = (1_u64 << 31, (1_i128 << 47) + 12_345);
        let sum = mean << 31;
        for rest in [0, 1, -1, 3, 1 << 40] {
            let product = sum * mean + rest;
            let found = about_the_mean(rows, product, (sum, sum), 0);
            assert_eq!(found, rest as f64 * rows as f64, "{rest}");
            let found = about_the_mean(rows, product, (-sum, sum), -20);
            let wanted = 2.0 * (sum as f64 / 1024.0) * (sum as f64 / 1024.0);
            assert!((found / wanted - 1.0).abs() < 1e-15, "{rest}");
            let found = about_the_mean(rows, -product, (-sum, -sum), -20);
            assert!((found / wanted + 1.0).abs() < 1e-15, "{rest}");
        }
    }

    #[test]
    fn too_many_rows_are_refused() {
        assert!(too_many(MOST_ROWS - 1, 1).is_ok());
        assert!(too_many(MOST_ROWS - 1, 2).is_err());
        assert!(too_many(u64::MAX, 2).is_err());
        // The bound itself: that many squares.
        let square = i128::from(super::super::REACH - 1).pow(2);
        assert!(square.checked_mul(MOST_ROWS.into()).is_some());
    }
}
