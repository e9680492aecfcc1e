//! The middle of some numbers, and how far they lie apart.

use serde::Serialize;

/// Median, range and quartiles of one number a round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// Median of the numbers.
    pub(crate) median: f64,
    /// Smallest of the numbers.
    pub(crate) low: f64,
    /// Largest of the numbers.
    pub(crate) high: f64,
    /// The lower quartile: a quarter of the numbers is below it.
    pub(crate) lower: f64,
    /// The upper quartile: a quarter of the numbers is above it.
    pub(crate) upper: f64,
    /// Number of rounds.
    pub(crate) rounds: usize,
}

impl Spread {
    /// Summarises numbers in any order; all NaN where there are none.
    pub(crate) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| quantile(&sorted, share);
        Self {
            median: at(0.5),
            low: at(0.0),
            high: at(1.0),
            lower: at(0.25),
            upper: at(0.75),
            rounds: sorted.len(),
        }
    }

    /// Half of what lies between the quartiles, over the median: how far a typical round is from the middle.
    pub(crate) fn noise(&self) -> f64 {
        (self.upper - self.lower) / (2.0 * self.median)
    }
}

/// Between the two nearest of `sorted`, in proportion.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let place = share * last as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    sorted[below] + (place - place.floor()) * (sorted[above] - sorted[below])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_quartiles_are_those_of_the_sorted_numbers() {
        let spread = Spread::of(&[5.0, 1.0, 3.0, 2.0, 4.0]);
        assert_eq!((spread.low, spread.high), (1.0, 5.0));
        assert_eq!((spread.lower, spread.median, spread.upper), (2.0, 3.0, 4.0));
        assert_eq!(spread.rounds, 5);
        assert!((spread.noise() - 1.0 / 3.0).abs() < 1e-15);
        assert_eq!(Spread::of(&[1.0, 2.0]).median, 1.5);
    }

    #[test]
    fn one_number_has_no_spread_and_none_has_no_middle() {
        let one = Spread::of(&[7.0]);
        assert_eq!((one.low, one.median, one.high), (7.0, 7.0, 7.0));
        assert_eq!(one.noise(), 0.0);
        assert!(Spread::of(&[]).median.is_nan());
    }
}
