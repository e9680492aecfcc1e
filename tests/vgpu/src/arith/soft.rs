//! Exact numbers and their one rounding.
//!
//! An [`Exact`] is what an operation gives before it is rounded, to as many bits as any rounding can ask about.
//! [`Exact::round`] takes it to a [`Format`] in a [`Rounding`]; overflow, subnormals and ties are decided there and
//! nowhere else. The host's own operations serve round-to-nearest in `f32` and `f64`; this is for all the rest.

use std::cmp::Ordering;

use super::Rounding;

/// A binary floating-point format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Bits of the significand, the implicit one included.
    pub precision: u32,
    /// Exponent of the smallest normal number.
    pub min_exponent: i32,
    /// Bits in all.
    pub width: u32,
    /// The magnitude above the greatest finite one: infinity, or NaN in a format without.
    pub overflow: u64,
}

impl Format {
    /// IEEE binary64.
    pub const F64: Self = Self::ieee(53, 64);
    /// IEEE binary32.
    pub const F32: Self = Self::ieee(24, 32);
    /// IEEE binary16.
    pub const F16: Self = Self::ieee(11, 16);
    /// The upper half of binary32.
    pub const BF16: Self = Self::ieee(8, 16);
    /// The upper 19 bits of binary32; a register holds them above 13 zeros.
    pub const TF32: Self = Self::ieee(11, 19);
    /// OCP E5M2.
    pub const E5M2: Self = Self::ieee(3, 8);
    /// OCP E4M3: no infinity, one NaN, greatest 448.
    pub const E4M3: Self = Self {
        precision: 4,
        min_exponent: -6,
        width: 8,
        overflow: 0x7f,
    };

    const fn ieee(precision: u32, width: u32) -> Self {
        let exponent_bits = width - precision;
        Self {
            precision,
            min_exponent: 2 - (1 << (exponent_bits - 1)),
            width,
            overflow: ((1 << exponent_bits) - 1) << (precision - 1),
        }
    }
}

/// `±significand · 2^exponent`; bit 0 of the significand may stand for any positive amount less than two of its units
/// ("sticky"), which no rounding can tell apart because it is far below the last bit of every format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exact {
    /// Whether it is below zero, or minus zero.
    pub negative: bool,
    /// The digits.
    pub significand: u128,
    /// The weight of bit 0.
    pub exponent: i32,
}

/// Shifts right and keeps in bit 0 whether anything was lost.
#[inline(always)]
fn shift_right_sticky(value: u128, by: u32) -> u128 {
    match by {
        0 => value,
        1..128 => value >> by | u128::from(value << (128 - by) != 0),
        _ => u128::from(value != 0),
    }
}

impl Exact {
    /// The value of a finite number.
    #[inline(always)]
    pub fn from_f64(x: f64) -> Self {
        debug_assert!(x.is_finite());
        let bits = x.to_bits();
        let field = (bits >> 52 & 0x7ff) as i32;
        let fraction = bits & ((1 << 52) - 1);
        let significand = if field == 0 {
            fraction
        } else {
            fraction | 1 << 52
        };
        Self {
            negative: x.is_sign_negative(),
            significand: significand.into(),
            exponent: field.max(1) - 1075,
        }
    }

    /// The value of an integer.
    #[inline(always)]
    pub fn from_integer(negative: bool, magnitude: u64) -> Self {
        Self {
            negative,
            significand: magnitude.into(),
            exponent: 0,
        }
    }

    /// With the leading bit at 126, so that a sum cannot overflow and what is shifted out is far below any rounding.
    fn normalised(self) -> Self {
        let zeros = self.significand.leading_zeros() as i32;
        if zeros == 0 {
            return Self {
                significand: shift_right_sticky(self.significand, 1),
                exponent: self.exponent + 1,
                ..self
            };
        }
        Self {
            significand: self.significand << (zeros - 1),
            exponent: self.exponent - (zeros - 1),
            ..self
        }
    }

    /// The product; the significands must have 64 bits at most.
    pub fn times(self, other: Self) -> Self {
        Self {
            negative: self.negative != other.negative,
            significand: self.significand * other.significand,
            exponent: self.exponent + other.exponent,
        }
    }

    /// The sum. An exact zero is negative if both are, or if they cancel and rounding is [`Rounding::Down`].
    pub fn plus(self, other: Self, rounding: Rounding) -> Self {
        if self.significand == 0 && other.significand == 0 {
            return Self {
                negative: if self.negative == other.negative {
                    self.negative
                } else {
                    rounding == Rounding::Down
                },
                ..self
            };
        }
        if self.significand == 0 {
            return other;
        }
        if other.significand == 0 {
            return self;
        }
        let (a, b) = (self.normalised(), other.normalised());
        let (big, small) = if (a.exponent, a.significand) >= (b.exponent, b.significand) {
            (a, b)
        } else {
            (b, a)
        };
        let aligned = shift_right_sticky(small.significand, (big.exponent - small.exponent) as u32);
        if big.negative == small.negative {
            return Self {
                significand: big.significand + aligned,
                ..big
            };
        }
        let significand = big.significand - aligned;
        Self {
            negative: if significand == 0 {
                rounding == Rounding::Down
            } else {
                big.negative
            },
            significand,
            ..big
        }
    }

    /// The quotient, at least 73 bits of it; the divisor must not be zero and its significand have 53 bits at most.
    pub fn over(self, divisor: Self) -> Self {
        if self.significand == 0 {
            return Self {
                negative: self.negative != divisor.negative,
                ..self
            };
        }
        let dividend = self.normalised();
        let rest = dividend.significand % divisor.significand;
        Self {
            negative: self.negative != divisor.negative,
            significand: (dividend.significand / divisor.significand) << 1 | u128::from(rest != 0),
            exponent: dividend.exponent - divisor.exponent - 1,
        }
    }

    /// The square root of a positive number.
    pub fn root(self) -> Self {
        let mut x = self.normalised();
        if x.exponent % 2 != 0 {
            x.significand >>= 1;
            x.exponent += 1;
        }
        let root = x.significand.isqrt();
        Self {
            negative: false,
            significand: root << 1 | u128::from(root * root != x.significand),
            exponent: x.exponent / 2 - 1,
        }
    }

    /// The bits of the number in `format`. Overflow goes to infinity (or [`Format::overflow`]) or to the greatest
    /// finite number, as the direction says.
    #[inline(always)]
    pub fn round(self, format: Format, rounding: Rounding) -> u64 {
        let sign = u64::from(self.negative) << (format.width - 1);
        if self.significand == 0 {
            return sign;
        }
        let leading = 127 - self.significand.leading_zeros() as i32 + self.exponent;
        let exponent = leading.max(format.min_exponent);
        let last = exponent - (format.precision as i32 - 1);
        let shift = last - self.exponent;
        let (quotient, half) = match shift {
            ..=0 => ((self.significand << -shift) as u64, Part::None),
            1..128 => {
                let lost = self.significand << (128 - shift);
                ((self.significand >> shift) as u64, Part::of(lost))
            }
            128 => (0, Part::of(self.significand)),
            _ => (0, Part::Less),
        };
        let up = match rounding {
            Rounding::Nearest => half == Part::More || half == Part::Half && quotient & 1 == 1,
            Rounding::Away => half >= Part::Half,
            Rounding::Zero => false,
            Rounding::Down => half != Part::None && self.negative,
            Rounding::Up => half != Part::None && !self.negative,
        };
        // The implicit bit of a normal significand carries into the exponent field, and so does rounding up.
        let steps = (exponent - format.min_exponent) as u64;
        let magnitude =
            (u128::from(steps) << (format.precision - 1)) + u128::from(quotient + u64::from(up));
        if magnitude < u128::from(format.overflow) {
            return sign | magnitude as u64;
        }
        let outward = match rounding {
            Rounding::Nearest | Rounding::Away => true,
            Rounding::Zero => false,
            Rounding::Down => self.negative,
            Rounding::Up => !self.negative,
        };
        sign | if outward {
            format.overflow
        } else {
            format.overflow - 1
        }
    }
}

/// How much of one unit in the last place is to be rounded away.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    None,
    Less,
    Half,
    More,
}

impl Part {
    /// Of a fraction with its binary point above bit 127.
    #[inline(always)]
    fn of(fraction: u128) -> Self {
        match (fraction, fraction.cmp(&(1 << 127))) {
            (0, _) => Self::None,
            (_, Ordering::Less) => Self::Less,
            (_, Ordering::Equal) => Self::Half,
            (_, Ordering::Greater) => Self::More,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_their_known_extremes() {
        let max = |format: Format| Exact::from_f64(f64::MAX).round(format, Rounding::Zero);
        assert_eq!(max(Format::F64), f64::MAX.to_bits());
        assert_eq!(max(Format::F32), u64::from(f32::MAX.to_bits()));
        assert_eq!(max(Format::F16), 0x7bff);
        assert_eq!(max(Format::BF16), 0x7f7f);
        assert_eq!(max(Format::E5M2), 0x7b);
        assert_eq!(max(Format::E4M3), 0x7e);
        let tiny = Exact::from_f64(f64::from_bits(1));
        for format in [
            Format::F32,
            Format::F16,
            Format::BF16,
            Format::TF32,
            Format::E5M2,
            Format::E4M3,
        ] {
            assert_eq!(tiny.round(format, Rounding::Nearest), 0);
            assert_eq!(tiny.round(format, Rounding::Up), 1);
        }
    }

    #[test]
    fn ties_go_to_even_or_away() {
        let x = Exact::from_f64(1.0 + 2f64.powi(-11));
        assert_eq!(x.round(Format::F16, Rounding::Nearest), 0x3c00);
        assert_eq!(x.round(Format::F16, Rounding::Away), 0x3c01);
        let x = Exact::from_f64(-(1.0 + 3.0 * 2f64.powi(-11)));
        assert_eq!(x.round(Format::F16, Rounding::Nearest), 0xbc02);
        assert_eq!(x.round(Format::F16, Rounding::Up), 0xbc01);
        assert_eq!(x.round(Format::F16, Rounding::Down), 0xbc02);
    }
}
