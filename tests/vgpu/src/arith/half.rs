//! `f16` and `bf16`, alone and in packed pairs.
//!
//! An operation is done in a wider host format and rounded once: sums and products of halves are rounded correctly
//! by way of `f32` (24 bits are at least twice 11 plus 2), a fused multiply-add by way of an `f64` rounded to odd.

use super::{
    Mode, Rounding,
    compare::{self, Comparison, Extremum},
    soft::{Exact, Format},
};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// IEEE binary16.
    F16,
    /// The upper half of binary32.
    Bf16,
}

/// The modifiers of half-precision arithmetic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HalfMode {
    /// `.ftz`; `f16` only.
    pub ftz: bool,
    /// `.sat`: to [0, 1], NaN to 0; `f16` only.
    pub sat: bool,
    /// `.relu`: negative results become 0, NaN stays NaN.
    pub relu: bool,
}

/// The NaN that instructions give, the same bits in both.
pub const CANONICAL: u16 = 0x7fff;

impl Half {
    /// The value; exact.
    #[inline(always)]
    pub fn to_f32(self, bits: u16) -> f32 {
        match self {
            Self::F16 => f16_to_f32(bits),
            Self::Bf16 => f32::from_bits(u32::from(bits) << 16),
        }
    }

    /// The nearest half.
    #[inline(always)]
    pub fn from_f32(self, x: f32) -> u16 {
        if x.is_nan() {
            return CANONICAL;
        }
        match self {
            Self::F16 => f32_to_f16(x),
            Self::Bf16 => {
                // Just below half a unit of the upper word, and one more if that word is odd: ties to even.
                let bits = x.to_bits();
                ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
            }
        }
    }

    /// The half next to `x` in that direction, rounded once.
    #[inline(always)]
    pub fn from_f64(self, x: f64, rounding: Rounding) -> u16 {
        let format = self.format();
        if x.is_nan() {
            CANONICAL
        } else if x.is_infinite() {
            (u16::from(x < 0.0) << 15) | format.overflow as u16
        } else {
            Exact::from_f64(x).round(format, rounding) as u16
        }
    }

    /// Its layout.
    pub fn format(self) -> Format {
        match self {
            Self::F16 => Format::F16,
            Self::Bf16 => Format::BF16,
        }
    }

    /// Subnormals to zeros of the same sign.
    #[inline(always)]
    pub fn flush(self, bits: u16) -> u16 {
        let smallest_normal = 1 << (self.format().precision - 1);
        if bits & 0x7fff < smallest_normal {
            bits & 0x8000
        } else {
            bits
        }
    }

    #[inline(always)]
    fn input(self, bits: u16, mode: HalfMode) -> f32 {
        self.to_f32(if mode.ftz { self.flush(bits) } else { bits })
    }

    #[inline(always)]
    fn finish(self, bits: u16, mode: HalfMode) -> u16 {
        let bits = if mode.ftz { self.flush(bits) } else { bits };
        let nan = bits & 0x7fff > self.format().overflow as u16;
        let negative = bits & 0x8000 != 0;
        let one = match self {
            Self::F16 => 0x3c00,
            Self::Bf16 => 0x3f80,
        };
        if mode.sat {
            if nan || negative { 0 } else { bits.min(one) }
        } else if nan {
            CANONICAL
        } else if mode.relu && negative {
            0
        } else {
            bits
        }
    }

    /// `add`.
    #[inline(always)]
    pub fn add(self, a: u16, b: u16, mode: HalfMode) -> u16 {
        self.finish(
            self.from_f32(self.input(a, mode) + self.input(b, mode)),
            mode,
        )
    }

    /// `sub`.
    #[inline(always)]
    pub fn sub(self, a: u16, b: u16, mode: HalfMode) -> u16 {
        self.finish(
            self.from_f32(self.input(a, mode) - self.input(b, mode)),
            mode,
        )
    }

    /// `mul`.
    #[inline(always)]
    pub fn mul(self, a: u16, b: u16, mode: HalfMode) -> u16 {
        self.finish(
            self.from_f32(self.input(a, mode) * self.input(b, mode)),
            mode,
        )
    }

    /// `fma`, rounded once.
    #[inline(always)]
    pub fn fma(self, a: u16, b: u16, c: u16, mode: HalfMode) -> u16 {
        let product = f64::from(self.input(a, mode)) * f64::from(self.input(b, mode));
        let sum = add_to_odd(product, self.input(c, mode).into());
        self.finish(self.from_f64(sum, Rounding::Nearest), mode)
    }

    /// `min`.
    #[inline(always)]
    pub fn min(self, a: u16, b: u16, options: Extremum) -> u16 {
        self.extremum(compare::min_f32, a, b, options)
    }

    /// `max`.
    #[inline(always)]
    pub fn max(self, a: u16, b: u16, options: Extremum) -> u16 {
        self.extremum(compare::max_f32, a, b, options)
    }

    #[inline(always)]
    fn extremum(
        self,
        function: impl Fn(f32, f32, Extremum) -> f32,
        a: u16,
        b: u16,
        options: Extremum,
    ) -> u16 {
        let (a, b) = if options.ftz {
            (self.flush(a), self.flush(b))
        } else {
            (a, b)
        };
        // Flushed by this format's own limit above, not by that of `f32`.
        let options = Extremum {
            ftz: false,
            ..options
        };
        self.from_f32(function(self.to_f32(a), self.to_f32(b), options))
    }

    /// `neg`.
    #[inline(always)]
    pub fn neg(self, a: u16, ftz: bool) -> u16 {
        (if ftz { self.flush(a) } else { a }) ^ 0x8000
    }

    /// `abs`.
    #[inline(always)]
    pub fn abs(self, a: u16, ftz: bool) -> u16 {
        (if ftz { self.flush(a) } else { a }) & 0x7fff
    }

    /// `setp`.
    #[inline(always)]
    pub fn compare(self, comparison: Comparison, a: u16, b: u16, ftz: bool) -> bool {
        let mode = HalfMode {
            ftz,
            ..HalfMode::default()
        };
        compare::ordered_f32(comparison, self.input(a, mode), self.input(b, mode))
    }

    /// `ex2.approx`; with `.ftz` (which `bf16` always has) subnormals are zeros.
    #[inline(always)]
    pub fn ex2(self, a: u16, ftz: bool) -> u16 {
        let mode = HalfMode {
            ftz,
            ..HalfMode::default()
        };
        let power = f64::from(self.input(a, mode)).exp2();
        self.finish(self.from_f64(power, Rounding::Nearest), mode)
    }

    /// `tanh.approx`.
    #[inline(always)]
    pub fn tanh(self, a: u16) -> u16 {
        self.from_f64(f64::from(self.to_f32(a)).tanh(), Rounding::Nearest)
    }

    /// `cvt.rnd.f16.f32` and the like: one half of a packed conversion too.
    #[inline(always)]
    pub fn convert(self, x: f32, rounding: Rounding, mode: HalfMode) -> u16 {
        let bits = match rounding {
            Rounding::Nearest => self.from_f32(x),
            directed => self.from_f64(x.into(), directed),
        };
        self.finish(bits, mode)
    }
}

/// Without the conversion instructions, which the compiler may not assume: integers and one product, so that a loop
/// over lanes vectorises all the same.
#[inline(always)]
fn f16_to_f32(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff) << 13;
    // The exponents differ by 112; the product takes subnormals along.
    let finite = (f32::from_bits(magnitude) * f32::from_bits(0x7780_0000)).to_bits();
    let special = magnitude | 0x7f80_0000;
    let value = if bits & 0x7c00 == 0x7c00 {
        special
    } else {
        finite
    };
    f32::from_bits(value | u32::from(bits & 0x8000) << 16)
}

/// To nearest; not for NaN.
#[inline(always)]
fn f32_to_f16(x: f32) -> u16 {
    let sign = (x.to_bits() >> 16 & 0x8000) as u16;
    let magnitude = x.to_bits() & 0x7fff_ffff;
    // The last bit of 0.5 weighs what the last bit of a subnormal half does: the sum is rounded there.
    let subnormal = (f32::from_bits(magnitude) + 0.5)
        .to_bits()
        .wrapping_sub(0.5f32.to_bits());
    // The exponents differ by 112; 0xfff and the last bit kept make ties go to even.
    let normal = magnitude
        .wrapping_sub(112 << 23)
        .wrapping_add(0xfff + (magnitude >> 13 & 1))
        >> 13;
    let value = match magnitude {
        0x4780_0000.. => 0x7c00,
        0x3880_0000.. => normal,
        _ => subnormal,
    };
    sign | value as u16
}

/// The sum rounded to odd: if inexact, to the neighbour whose last bit is one. A second rounding to a format shorter
/// by two bits or more then gives what one rounding would have.
#[inline(always)]
fn add_to_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    if !sum.is_finite() {
        return sum;
    }
    // Knuth's two-sum: the error of the addition, exactly.
    let b_part = sum - a;
    let error = (a - (sum - b_part)) + (b - b_part);
    if error == 0.0 || sum.to_bits() & 1 == 1 {
        return sum;
    }
    // An even sum that is inexact lies next to two odd ones; the exact value lies towards the error.
    let away = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if away {
        sum.to_bits() + 1
    } else {
        sum.to_bits() - 1
    })
}

/// Applies a function to both halves of a register: `add.f16x2` and its kind.
#[inline(always)]
pub fn packed1(a: u32, function: impl Fn(u16) -> u16) -> u32 {
    pack(function(a as u16), function((a >> 16) as u16))
}

/// As [`packed1`], of two operands.
#[inline(always)]
pub fn packed2(a: u32, b: u32, function: impl Fn(u16, u16) -> u16) -> u32 {
    pack(
        function(a as u16, b as u16),
        function((a >> 16) as u16, (b >> 16) as u16),
    )
}

/// As [`packed1`], of three operands.
#[inline(always)]
pub fn packed3(a: u32, b: u32, c: u32, function: impl Fn(u16, u16, u16) -> u16) -> u32 {
    pack(
        function(a as u16, b as u16, c as u16),
        function((a >> 16) as u16, (b >> 16) as u16, (c >> 16) as u16),
    )
}

/// `cvt.rnd.f16x2.f32 d, upper, lower`.
#[inline(always)]
pub fn convert_pair(half: Half, upper: f32, lower: f32, rounding: Rounding, mode: HalfMode) -> u32 {
    pack(
        half.convert(lower, rounding, mode),
        half.convert(upper, rounding, mode),
    )
}

#[inline(always)]
fn pack(lower: u16, upper: u16) -> u32 {
    u32::from(lower) | u32::from(upper) << 16
}

/// The `f32` modifiers that have a meaning here.
impl From<Mode> for HalfMode {
    fn from(mode: Mode) -> Self {
        Self {
            ftz: mode.ftz,
            sat: mode.sat,
            relu: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every 7th half against every 31st, exactly: the sum, product and fused sum by [`Exact`].
    #[test]
    fn arithmetic_is_rounded_once() {
        let plain = HalfMode::default();
        for half in [Half::F16, Half::Bf16] {
            let finite = |bits: u16| half.to_f32(bits).is_finite();
            let exact = |bits: u16| Exact::from_f64(half.to_f32(bits).into());
            for a in (0..=u16::MAX).step_by(97).filter(|&x| finite(x)) {
                for b in (0..=u16::MAX).step_by(89).filter(|&x| finite(x)) {
                    let c = a.wrapping_mul(31).wrapping_add(b.wrapping_mul(7));
                    let sum = exact(a).plus(exact(b), Rounding::Nearest);
                    assert_eq!(
                        u64::from(half.add(a, b, plain)),
                        sum.round(half.format(), Rounding::Nearest)
                    );
                    let product = exact(a).times(exact(b));
                    assert_eq!(
                        u64::from(half.mul(a, b, plain)),
                        product.round(half.format(), Rounding::Nearest)
                    );
                    if finite(c) {
                        let fused = product.plus(exact(c), Rounding::Nearest);
                        let want = fused.round(half.format(), Rounding::Nearest);
                        assert_eq!(
                            u64::from(half.fma(a, b, c, plain)),
                            want,
                            "{half:?} {a:#x} {b:#x} {c:#x}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_fused_sum_that_two_roundings_would_miss() {
        // 1.0078125² + a tiny addend: the product alone is a tie that goes to even, down.
        let half = Half::Bf16;
        let (a, tiny) = (half.from_f32(1.0 + 1.0 / 16.0), half.from_f32(1e-38));
        let tie = half.mul(a, a, HalfMode::default());
        let fused = half.fma(a, a, tiny, HalfMode::default());
        assert_eq!(half.to_f32(tie), 1.125);
        assert_eq!(half.to_f32(fused), 1.1328125);
    }

    #[test]
    fn conversion_agrees_with_the_exact_rounding() {
        for half in [Half::F16, Half::Bf16] {
            for bits in (0..=u32::MAX).step_by(65_521) {
                let x = f32::from_bits(bits);
                if x.is_finite() {
                    let want = Exact::from_f64(x.into()).round(half.format(), Rounding::Nearest);
                    assert_eq!(u64::from(half.from_f32(x)), want, "{half:?} {x:e}");
                }
            }
        }
    }

    #[test]
    fn every_half_comes_back() {
        for bits in 0..=u16::MAX {
            let (value, want) = (
                Half::F16.to_f32(bits),
                ::half::f16::from_bits(bits).to_f32(),
            );
            if want.is_nan() {
                assert!(value.is_nan());
            } else {
                assert_eq!(value.to_bits(), want.to_bits());
                assert_eq!(Half::F16.from_f32(value), bits);
            }
        }
    }

    #[test]
    fn modifiers() {
        let half = Half::F16;
        let (one, minus, nan) = (0x3c00, 0xbc00, 0x7e00);
        let mode = |sat, relu, ftz| HalfMode { sat, relu, ftz };
        assert_eq!(half.add(one, one, mode(true, false, false)), one);
        assert_eq!(half.add(one, nan, mode(true, false, false)), 0);
        assert_eq!(half.fma(minus, one, 0, mode(false, true, false)), 0);
        assert_eq!(half.fma(nan, one, 0, mode(false, true, false)), CANONICAL);
        assert_eq!(half.add(1, 1, mode(false, false, true)), 0);
        assert_eq!(half.add(1, 1, mode(false, false, false)), 2);
        assert_eq!(half.neg(one, false), minus);
        assert_eq!(half.abs(minus, false), one);
        assert_eq!(half.min(nan, one, Extremum::default()), one);
        assert_eq!(
            half.max(
                nan,
                one,
                Extremum {
                    nan: true,
                    ..Extremum::default()
                }
            ),
            CANONICAL
        );
        assert!(half.compare(Comparison::Lt, minus, one, false));
        assert_eq!(half.ex2(one, false), 0x4000);
        assert_eq!(half.tanh(0x7c00), one);
        assert_eq!(
            packed2(0x3c00_bc00, 0x3c00_3c00, |a, b| half.add(
                a,
                b,
                HalfMode::default()
            )),
            0x4000_0000
        );
        assert_eq!(
            convert_pair(half, 1.0, 2.0, Rounding::Nearest, HalfMode::default()),
            0x3c00_4000
        );
        assert_eq!(
            half.convert(65_536.0, Rounding::Zero, HalfMode::default()),
            0x7bff
        );
        assert_eq!(
            half.convert(65_536.0, Rounding::Nearest, HalfMode::default()),
            0x7c00
        );
    }
}
