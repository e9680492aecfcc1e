//! Approximations: `rcp sqrt rsqrt div ex2 lg2 sin cos tanh` with `.approx`, and `div.full`.
//!
//! PTX bounds their errors and leaves the bits to the device. Here they are the exact value rounded to nearest (by
//! way of the host's `f64` functions), with the documented results for zeros, infinities and NaN. A kernel that relies
//! on the very bits of one GPU is not portable, and the tests that compare kernels with a reference need a tolerance
//! in any case.

use super::float::{finish_f32, flush_f32, flush_f64};
use super::{Mode, Rounding};

#[inline(always)]
fn approximate(x: f32, ftz: bool, function: impl FnOnce(f64) -> f64) -> f32 {
    let x = if ftz { flush_f32(x) } else { x };
    finish_f32(function(x.into()) as f32, mode(ftz))
}

#[inline(always)]
fn mode(ftz: bool) -> Mode {
    Mode {
        rounding: Rounding::Nearest,
        ftz,
        sat: false,
    }
}

/// `rcp.approx.f32`.
#[inline(always)]
pub fn rcp_approx_f32(x: f32, ftz: bool) -> f32 {
    approximate(x, ftz, |x| 1.0 / x)
}

/// `sqrt.approx.f32`.
#[inline(always)]
pub fn sqrt_approx_f32(x: f32, ftz: bool) -> f32 {
    approximate(x, ftz, f64::sqrt)
}

/// `rsqrt.approx.f32`.
#[inline(always)]
pub fn rsqrt_approx_f32(x: f32, ftz: bool) -> f32 {
    approximate(x, ftz, |x| 1.0 / x.sqrt())
}

/// `div.approx.f32`: the dividend times the divisor's reciprocal, so that a divisor above 2^126, whose reciprocal is
/// subnormal, gives zero, or NaN for an infinite dividend.
#[inline(always)]
pub fn div_approx_f32(a: f32, b: f32, ftz: bool) -> f32 {
    let (a, b) = if ftz {
        (flush_f32(a), flush_f32(b))
    } else {
        (a, b)
    };
    let reciprocal_vanishes = b.abs() > 2f32.powi(126) && b.is_finite();
    let quotient = if reciprocal_vanishes {
        a * 0f32.copysign(b)
    } else {
        a / b
    };
    finish_f32(quotient, mode(ftz))
}

/// `div.full.f32`.
#[inline(always)]
pub fn div_full_f32(a: f32, b: f32, ftz: bool) -> f32 {
    let (a, b) = if ftz {
        (flush_f32(a), flush_f32(b))
    } else {
        (a, b)
    };
    finish_f32(a / b, mode(ftz))
}

/// `ex2.approx.f32`.
#[inline(always)]
pub fn ex2_approx_f32(x: f32, ftz: bool) -> f32 {
    approximate(x, ftz, f64::exp2)
}

/// `lg2.approx.f32`.
#[inline(always)]
pub fn lg2_approx_f32(x: f32, ftz: bool) -> f32 {
    approximate(x, ftz, f64::log2)
}

/// `sin.approx.f32`.
#[inline(always)]
pub fn sin_approx_f32(x: f32, ftz: bool) -> f32 {
    approximate(x, ftz, f64::sin)
}

/// `cos.approx.f32`.
#[inline(always)]
pub fn cos_approx_f32(x: f32, ftz: bool) -> f32 {
    approximate(x, ftz, f64::cos)
}

/// `tanh.approx.f32`.
#[inline(always)]
pub fn tanh_approx_f32(x: f32) -> f32 {
    approximate(x, false, f64::tanh)
}

/// The upper word of a double alone: sign, exponent and 20 bits of fraction.
#[inline(always)]
fn upper(x: f64) -> f64 {
    f64::from_bits(x.to_bits() & 0xffff_ffff_0000_0000)
}

/// Rounds to the upper word; NaN becomes the one these instructions give.
#[inline(always)]
fn to_upper(x: f64) -> f64 {
    // Half of the lower word's range added carries into the upper one: round to nearest.
    let rounded = if x.is_finite() {
        x.to_bits() + 0x8000_0000
    } else {
        x.to_bits()
    };
    // Asked of the bits and done by a mask, as for `f32`.
    let nan = x.to_bits() & (u64::MAX >> 1) > f64::INFINITY.to_bits();
    let mask = u64::from(nan).wrapping_neg();
    upper(f64::from_bits((rounded | mask) & !(mask & 1 << 63)))
}

/// `rcp.approx.ftz.f64`: from the upper word to the upper word; the seed of divisions.
#[inline(always)]
pub fn rcp_approx_f64(x: f64) -> f64 {
    flush_f64(to_upper(1.0 / flush_f64(upper(x))))
}

/// `rsqrt.approx.ftz.f64`: from the upper word to the upper word; the seed of square roots.
#[inline(always)]
pub fn rsqrt_approx_f64(x: f64) -> f64 {
    flush_f64(to_upper(1.0 / flush_f64(upper(x)).sqrt()))
}

/// `rsqrt.approx.f64`, which has no `.ftz` and all the bits.
#[inline(always)]
pub fn rsqrt_full_f64(x: f64) -> f64 {
    1.0 / x.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_are_as_documented() {
        let inf = f32::INFINITY;
        assert_eq!(rcp_approx_f32(-0.0, false), -inf);
        assert_eq!(rcp_approx_f32(f32::from_bits(1), true), inf);
        assert_eq!(rsqrt_approx_f32(-0.0, false), -inf);
        assert_eq!(rsqrt_approx_f32(inf, false), 0.0);
        assert_eq!(rsqrt_approx_f32(-1.0, false).to_bits(), 0x7fff_ffff);
        assert_eq!(sqrt_approx_f32(-0.0, false).to_bits(), 0x8000_0000);
        assert_eq!(ex2_approx_f32(-inf, false), 0.0);
        assert_eq!(ex2_approx_f32(f32::from_bits(1), true), 1.0);
        assert_eq!(ex2_approx_f32(-127.0, true), 0.0);
        assert_eq!(lg2_approx_f32(0.0, false), -inf);
        assert_eq!(lg2_approx_f32(f32::from_bits(1), false), -149.0);
        assert_eq!(lg2_approx_f32(f32::from_bits(1), true), -inf);
        assert_eq!(sin_approx_f32(-0.0, false).to_bits(), 0x8000_0000);
        assert!(cos_approx_f32(inf, false).is_nan());
        assert_eq!(tanh_approx_f32(-inf), -1.0);
        assert_eq!(div_approx_f32(1e38, 2f32.powi(127), false), 0.0);
        assert_eq!(div_full_f32(2f32.powi(127), 2f32.powi(127), false), 1.0);
        assert!(div_approx_f32(inf, 2f32.powi(127), false).is_nan());
        assert_eq!(div_approx_f32(3.0, inf, false), 0.0);
    }

    #[test]
    fn double_seeds_live_in_the_upper_word() {
        let seed = rcp_approx_f64(3.0 + 1e-12);
        assert_eq!(seed.to_bits() as u32, 0);
        assert!((seed * 3.0 - 1.0).abs() < 2f64.powi(-20));
        assert_eq!(rcp_approx_f64(f64::from_bits(1)), f64::INFINITY);
        assert_eq!(rcp_approx_f64(f64::MAX), 0.0);
        assert_eq!(rcp_approx_f64(f64::NAN).to_bits(), 0x7fff_ffff_0000_0000);
        assert_eq!(rsqrt_approx_f64(4.0), 0.5);
        assert_eq!(rsqrt_approx_f64(0.0), f64::INFINITY);
    }
}
