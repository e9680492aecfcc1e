//! Integers in balanced digits, so that narrow units can multiply them: q = Σ d_a 2^(wa) with |d_a| ≤ 2^(w−1).
//!
//! A product of symmetric form needs no products of unlike digits: D_aᵀD_b + D_bᵀD_a = (D_a + D_b)ᵀ(D_a + D_b) − D_aᵀD_a −
//! D_bᵀD_b. So G = Σ c_p · PᵀP over planes P, the s digits and their s(s − 1)/2 sums of two, each a SYRK of its own.

use super::grid::REACH;

/// The digits of integers |q| < 2^bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digits {
    /// Bits of the integers.
    pub(crate) bits: u32,
    /// Number of digits, s.
    pub(crate) count: usize,
    /// Bits of a digit, w; the last one has the rest.
    width: u32,
}

impl Digits {
    /// Digits that there are at most.
    pub(crate) const MOST: usize = 3;

    /// Returns the digits that f64 units take for a grid of this width.
    pub(crate) fn of_grid(bits: u32) -> Self {
        let (count, width) = match bits {
            ..=22 => (1, bits),
            _ => (2, bits.div_ceil(2)),
        };
        Self { bits, count, width }
    }

    /// Returns the digits that int8 units take for a grid of this width: of seven bits, one of them for the sign.
    #[cfg(feature = "cuda")]
    pub(crate) fn of_bytes(bits: u32) -> Self {
        Self {
            bits,
            count: (bits + 1).div_ceil(7) as usize,
            width: 7,
        }
    }

    /// Returns the digits of everything up to [`REACH`].
    pub(crate) fn beyond() -> Self {
        Self {
            bits: REACH.ilog2(),
            count: 3,
            width: 16,
        }
    }

    /// Returns the planes as pairs of digits; a digit alone is a pair with itself.
    pub(crate) fn planes(self) -> impl Iterator<Item = (usize, usize)> {
        let alone = (0..self.count).map(|a| (a, a));
        let pairs = (0..self.count).flat_map(move |a| (a + 1..self.count).map(move |b| (a, b)));
        alone.chain(pairs)
    }

    /// Returns the number of planes.
    pub(crate) fn plane_count(self) -> usize {
        self.count * (self.count + 1) / 2
    }

    /// Returns what a plane's PᵀP counts in G.
    pub(crate) fn gram_weight(self, (a, b): (usize, usize)) -> i128 {
        match a == b {
            false => self.weight(a + b),
            true => {
                let others = (0..self.count).filter(|&other| other != a);
                let taken: i128 = others.map(|other| self.weight(a + other)).sum();
                self.weight(2 * a) - taken
            }
        }
    }

    /// Returns what digit `a` counts, or the product of two digits that are at `a` together.
    pub(crate) fn weight(self, a: usize) -> i128 {
        1 << (self.width as usize * a)
    }

    /// Returns the largest magnitude in a plane.
    pub(crate) fn largest(self) -> u64 {
        if self.count == 1 {
            return (1 << self.bits) - 1;
        }
        // Rounding may carry into the last digit, which is at most 2^(what is left of the bits).
        let last = 1 << (self.bits - self.width * (self.count as u32 - 1));
        let other = 1 << (self.width - 1);
        other + std::cmp::max(last, if self.count > 2 { other } else { 0 })
    }

    /// Returns the rows whose products stay below 2^53 in sum, where every partial sum of f64 is an exact integer.
    pub(crate) fn rows(self) -> usize {
        (((1_u64 << 53) - 1) / self.largest().pow(2)) as usize
    }

    /// Returns the rows whose values stay below 2^53 in sum.
    pub(crate) fn rows_of_values(self) -> usize {
        (((1_u64 << 53) - 1) / self.largest()) as usize
    }

    /// Splits integers, which are where the first digit goes, into their digits, lowest first.
    #[inline(always)]
    pub(crate) fn split<const N: usize>(self, digits: &mut [[f64; N]; Self::MOST]) {
        let up = (1_u64 << self.width) as f64;
        let down = 1.0 / up;
        for d in 1..self.count {
            let (low, high) = digits.split_at_mut(d);
            for (low, high) in low[d - 1].iter_mut().zip(&mut high[0]) {
                *high = nearest(*low * down);
                *low -= *high * up;
            }
        }
    }
}

/// Rounds to an integer, halves to the even one: exact up to 2^51, and no smaller than 2^50 beyond.
#[inline(always)]
pub(crate) fn nearest(x: f64) -> f64 {
    /// Above this, integers are all that f64 has.
    const SHIFT: f64 = 1.5 * (1_u64 << 52) as f64;
    (x + SHIFT) - SHIFT
}

#[cfg(test)]
mod tests {
    use super::super::grid::BITS;
    use super::*;

    fn all() -> impl Iterator<Item = Digits> {
        BITS.map(Digits::of_grid)
            .into_iter()
            .chain([Digits::beyond()])
    }

    #[test]
    fn digits_make_up_the_integer() {
        for digits in all() {
            let top = (1_i64 << digits.bits) - 1;
            let edge = 1_i64 << (digits.width - 1);
            let mut values = vec![
                0,
                1,
                top,
                top - 1,
                top / 3,
                edge - 1,
                edge,
                edge + 1,
                3 * edge,
            ];
            values.extend(values.clone().iter().map(|v| -v));
            for value in values.into_iter().filter(|v| v.abs() <= top) {
                let mut split = [[value as f64]; Digits::MOST];
                digits.split(&mut split);
                let mut sum = 0;
                for (a, digit) in split[..digits.count].iter().enumerate() {
                    sum += digit[0] as i128 * digits.weight(a);
                }
                assert_eq!(sum, value.into(), "{digits:?}");
                for (a, b) in digits.planes() {
                    let plane = if a == b {
                        split[a][0]
                    } else {
                        split[a][0] + split[b][0]
                    };
                    assert!(
                        plane.abs() as u64 <= digits.largest(),
                        "{digits:?}: {value}"
                    );
                }
            }
        }
    }

    #[test]
    fn planes_make_up_the_square() {
        for digits in all() {
            let (x, y) = ((1_i64 << digits.bits) - 1, -(1_i64 << digits.bits) / 3);
            let split = |value: i64| {
                let mut split = [[value as f64]; Digits::MOST];
                digits.split(&mut split);
                split.map(|digit| digit[0] as i128)
            };
            let (dx, dy) = (split(x), split(y));
            let plane = |d: &[i128; Digits::MOST], (a, b): (usize, usize)| match a == b {
                true => d[a],
                false => d[a] + d[b],
            };
            let term = |p| digits.gram_weight(p) * plane(&dx, p) * plane(&dy, p);
            let sum: i128 = digits.planes().map(term).sum();
            assert_eq!(sum, i128::from(x) * i128::from(y), "{digits:?}");
            assert_eq!(digits.planes().count(), digits.plane_count());
        }
    }

    #[test]
    fn blocks_are_as_long_as_f64_allows() {
        let rows = |bits| Digits::of_grid(bits).rows();
        assert_eq!((rows(20), rows(22)), (8192, 512));
        for digits in all() {
            let (rows, largest) = (digits.rows() as u128, u128::from(digits.largest()));
            assert!(rows * largest * largest < 1 << 53, "{digits:?}");
            assert!((rows + 1) * largest * largest >= 1 << 53, "{digits:?}");
        }
    }
}
