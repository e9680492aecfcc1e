//! The grid: a unit for each column, a power of two, and the rounding of values to it.

use std::ops::RangeInclusive;

use crate::error::{Error, Result};

/// Widths b that a grid can have: values up to 2^b units take the fast path. They are what whole digits of seven bits hold,
/// and 22, the most that f64 products of undivided integers take.
pub const BITS: [u32; 6] = [13, 20, 22, 27, 34, 41];

/// The width where none is asked for: as fast as f64 sums on every processor, and its rounding is that of f32.
pub const DEFAULT_BITS: u32 = 22;

/// Units that a value may have at most, exclusive: rows beyond 2^b are summed all the same, with more digits.
pub const REACH: i64 = 1 << 48;

/// Exponents that a unit can have: squares of values stay well within f64.
pub const EXPONENTS: RangeInclusive<i32> = -500..=500;

/// Bits that a recorded grid leaves above the largest value of a column.
pub const HEAD_ROOM: i32 = 1;

/// Units 2^e of the columns, and the width of the fast path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    bits: u32,
    features: Vec<i32>,
    targets: Vec<i32>,
}

impl Grid {
    /// Takes the exponents of the features' units, and of the targets' where those are values.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a width that is not one of [`BITS`] or an exponent outside [`EXPONENTS`].
    pub fn new(bits: u32, features: Vec<i32>, targets: Vec<i32>) -> Result<Self> {
        if !BITS.contains(&bits) {
            return Err(Error::Parameter {
                name: "`.exact`",
                value: bits.to_string(),
                expected: format!("one of {} bits", BITS.map(|b| b.to_string()).join(", ")),
            });
        }
        let outside = |e: &&i32| !EXPONENTS.contains(e);
        if let Some(exponent) = features.iter().chain(&targets).find(outside) {
            return Err(Error::Parameter {
                name: "`.grid`",
                value: format!("2^{exponent}"),
                expected: format!(
                    "units from 2^{} to 2^{}, whose squares f64 can hold",
                    EXPONENTS.start(),
                    EXPONENTS.end()
                ),
            });
        }
        Ok(Self {
            bits,
            features,
            targets,
        })
    }

    /// Returns the grid of so many columns on which magnitudes below `range` take the fast path.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a range that is not a positive number of a usable size.
    pub fn of_range(bits: u32, range: f64, features: usize, targets: usize) -> Result<Self> {
        let (true, Some(exponent)) = (range > 0.0, exponent_of(range)) else {
            return Err(Error::Parameter {
                name: "`.grid`",
                value: range.to_string(),
                expected: "a positive number, a feature file's largest magnitude".into(),
            });
        };
        // The largest power of two that is below the range, unless the range is one.
        let power = exponent + i32::from(range != power_of_two(exponent.clamp(-1022, 1023)));
        let unit = power - bits as i32;
        Self::new(bits, vec![unit; features], vec![unit; targets])
    }

    /// Returns the grid of columns with these largest exponents: |z| < 2^(x + 1), with [`HEAD_ROOM`]. A column of zeros,
    /// which has none, is given the unit of the column with the largest values.
    ///
    /// # Errors
    /// [`Error::Overflow`] where squares of the values would leave f64.
    pub fn recorded(bits: u32, features: &[Option<i32>], targets: &[Option<i32>]) -> Result<Self> {
        let units = |largest: &[Option<i32>]| {
            let top = largest.iter().flatten().max().copied().unwrap_or(0);
            let unit = |x: &Option<i32>| {
                let unit = x.unwrap_or(top) + 1 + HEAD_ROOM - bits as i32;
                // Finer units could not be squared: such values are rounded away, as f64 sums do.
                unit.max(*EXPONENTS.start())
            };
            let units: Vec<i32> = largest.iter().map(unit).collect();
            match units.iter().all(|unit| unit <= EXPONENTS.end()) {
                true => Ok(units),
                false => Err(Error::Overflow),
            }
        };
        Self::new(bits, units(features)?, units(targets)?)
    }

    /// Returns b: values below 2^b units take the fast path.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Returns the exponents of the features' units.
    pub fn features(&self) -> &[i32] {
        &self.features
    }

    /// Returns the exponents of the targets' units; none where targets are classes.
    pub fn targets(&self) -> &[i32] {
        &self.targets
    }

    /// Returns the units from which on a value has set the exponent of a recorded grid.
    pub(crate) fn setter(&self) -> f64 {
        power_of_two(self.bits as i32 - 1 - HEAD_ROOM)
    }
}

/// Returns z/2^e rounded to an integer, halves to the even one; `None` from [`REACH`] on, and for what is not finite.
///
/// This is the definition, in integers. Fast ways compute the same.
///
/// ```
/// use muso::engine::exact::quantise;
/// assert_eq!([0.24, 0.25, 0.26, 0.75, -0.75].map(|z| quantise(z, -1)), [0, 0, 1, 2, -2].map(Some));
/// assert_eq!((quantise(f64::MAX, 0), quantise(f64::NAN, 0)), (None, None));
/// ```
pub fn quantise(value: f64, exponent: i32) -> Option<i64> {
    let bits = value.to_bits();
    let field = (bits >> 52 & 0x7ff) as i32;
    let fraction = bits & ((1 << 52) - 1);
    // |z| = mantissa · 2^power.
    let (mantissa, power) = match field {
        0x7ff => return None,
        0 => (fraction, -1074 - exponent),
        _ => (fraction | 1 << 52, field - 1075 - exponent),
    };
    let magnitude = match power {
        _ if mantissa == 0 => 0,
        0..=10 => mantissa << power,
        11.. => return None,
        -54..=-1 => {
            let (floor, rest) = (mantissa >> -power, mantissa & ((1 << -power) - 1));
            let half = 1 << (-power - 1);
            floor + u64::from(rest > half || rest == half && floor % 2 == 1)
        }
        _ => 0,
    };
    let signed = match bits >> 63 {
        0 => magnitude as i64,
        _ => -(magnitude as i64),
    };
    (magnitude < REACH as u64).then_some(signed)
}

/// Returns x with 2^x ≤ |z| < 2^(x + 1); `None` for zero and for what is not finite.
pub(crate) fn exponent_of(value: f64) -> Option<i32> {
    let magnitude = value.abs().to_bits();
    match (magnitude >> 52) as i32 {
        0x7ff => None,
        0 => (magnitude != 0).then(|| 63 - magnitude.leading_zeros() as i32 - 1074),
        field => Some(field - 1023),
    }
}

/// Returns 2^x for a normal number.
pub(crate) fn power_of_two(x: i32) -> f64 {
    debug_assert!((-1022..=1023).contains(&x), "2^{x}");
    f64::from_bits(((x + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_go_to_the_even_neighbour() {
        for (value, wanted) in [
            (0.5, 0),
            (0.500_000_1, 1),
            (1.5, 2),
            (2.5, 2),
            (-2.5, -2),
            (-3.5, -4),
            (4_503_599_627_370.5, 4_503_599_627_370),
            (4_503_599_627_371.5, 4_503_599_627_372),
            (f64::MIN_POSITIVE, 0),
            (5e-324, 0),
            (0.0, 0),
            (-0.0, 0),
        ] {
            assert_eq!(quantise(value, 0), Some(wanted), "{value}");
            // A unit of any size, where the value can be scaled exactly.
            if value.abs() > 1e-3 {
                for e in [-500, -33, 7, 500] {
                    assert_eq!(
                        quantise(value * power_of_two(e), e),
                        Some(wanted),
                        "{value}·2^{e}"
                    );
                }
            }
        }
        // Subnormal numbers on the finest grid are below half a unit.
        assert_eq!(quantise(5e-324, -500), Some(0));
        let most = (REACH - 1) as f64;
        assert_eq!(quantise(-most, 0), Some(1 - REACH));
        assert_eq!(quantise(most + 0.25, 0), Some(REACH - 1));
        for beyond in [most + 0.5, REACH as f64, f64::MAX, f64::INFINITY, f64::NAN] {
            assert_eq!(quantise(beyond, 0), None, "{beyond}");
        }
    }

    #[test]
    fn exponents_are_those_of_the_number() {
        for (value, wanted) in [
            (1.0, Some(0)),
            (-1.999, Some(0)),
            (0.75, Some(-1)),
            (5e-324, Some(-1074)),
            (f64::MIN_POSITIVE / 2.0, Some(-1023)),
            (f64::MAX, Some(1023)),
            (0.0, None),
            (f64::INFINITY, None),
            (f64::NAN, None),
        ] {
            assert_eq!(exponent_of(value), wanted, "{value}");
        }
    }

    #[test]
    fn a_stated_range_is_below_the_width() {
        for bits in BITS {
            for range in [1.0, 1.5, 8.0, 0.3, 1e-30, 1e30] {
                let grid = Grid::of_range(bits, range, 2, 1).unwrap();
                let (e, most) = (grid.features()[0], 1_i64 << bits);
                assert_eq!((grid.features(), grid.targets()), (&[e, e][..], &[e][..]));
                let below = f64::from_bits(range.to_bits() - 1);
                assert!(quantise(below, e).unwrap() <= most, "{range}");
                // And no coarser than that asks for.
                assert!(quantise(below, e - 1).unwrap() >= most, "{range} at {bits}");
            }
        }
        for range in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300, 1e-300] {
            assert!(Grid::of_range(20, range, 1, 0).is_err(), "{range}");
        }
        assert!(Grid::new(21, vec![], vec![]).is_err());
        assert!(Grid::new(20, vec![501], vec![]).is_err());
    }

    #[test]
    fn a_recorded_grid_has_head_room() {
        let grid = Grid::recorded(20, &[Some(3), None, Some(-7)], &[None]).unwrap();
        assert_eq!(grid.features(), [3 + 2 - 20, 3 + 2 - 20, -7 + 2 - 20]);
        assert_eq!(grid.targets(), [2 - 20]);
        // The largest values of the column, and what is below them.
        assert!(15.99 / power_of_two(grid.features()[0]) >= grid.setter());
        assert!(7.99 / power_of_two(grid.features()[0]) < grid.setter());
        assert!(8.0 / power_of_two(grid.features()[0]) >= grid.setter());
        assert_eq!(
            Grid::recorded(20, &[Some(-1074)], &[]).unwrap().features(),
            [-500]
        );
        assert!(matches!(
            Grid::recorded(20, &[Some(990)], &[]),
            Err(Error::Overflow)
        ));
    }
}
