//! `add sub mul fma div rcp sqrt neg abs copysign` on `f32` and `f64`.
//!
//! NaN: `f32` instructions give the canonical `0x7fffffff`; `f64` instructions keep a payload, as x86 does.

use super::{
    Mode, Rounding,
    soft::{Exact, Format},
};

/// The NaN that `f32` instructions give.
pub const CANONICAL_F32: f32 = f32::from_bits(0x7fff_ffff);

/// Subnormals to zeros of the same sign.
#[inline(always)]
pub fn flush_f32(x: f32) -> f32 {
    // A comparison with NaN is false, so NaN passes through.
    if x.abs() < f32::MIN_POSITIVE {
        0f32.copysign(x)
    } else {
        x
    }
}

/// Subnormals to zeros of the same sign.
#[inline(always)]
pub fn flush_f64(x: f64) -> f64 {
    if x.abs() < f64::MIN_POSITIVE {
        0f64.copysign(x)
    } else {
        x
    }
}

#[inline(always)]
fn input(x: f32, mode: Mode) -> f32 {
    if mode.ftz { flush_f32(x) } else { x }
}

/// Whether it is NaN, asked of the bits. The optimiser takes all NaN for alike, so that of `sqrt(a)` and "a NaN of
/// my choice where `a < 0`" it keeps the first; what it does not see as a comparison of numbers it leaves alone.
#[inline(always)]
pub(super) fn is_nan(x: f32) -> bool {
    x.to_bits() & 0x7fff_ffff > 0x7f80_0000
}

/// `x`, or the canonical NaN where `nan` says so.
#[inline(always)]
pub(super) fn canonical_where(nan: bool, x: f32) -> f32 {
    let mask = u32::from(nan).wrapping_neg();
    f32::from_bits((x.to_bits() | mask) & !(mask & 0x8000_0000))
}

/// What every `f32` result goes through: the canonical NaN, `.ftz`, `.sat`.
#[inline(always)]
pub fn finish_f32(x: f32, mode: Mode) -> f32 {
    let x = canonical_where(is_nan(x), x);
    let x = if mode.ftz { flush_f32(x) } else { x };
    if mode.sat { saturate_f32(x) } else { x }
}

/// Clamps to [0, 1]; NaN becomes +0.
#[inline(always)]
pub fn saturate_f32(x: f32) -> f32 {
    // Written so that NaN and -0 fail the first comparison.
    if x > 0.0 { x.min(1.0) } else { 0.0 }
}

/// Clamps to [0, 1]; NaN becomes +0.
#[inline(always)]
pub fn saturate_f64(x: f64) -> f64 {
    if x > 0.0 { x.min(1.0) } else { 0.0 }
}

#[inline(always)]
fn to_f32(x: Exact, rounding: Rounding) -> f32 {
    f32::from_bits(x.round(Format::F32, rounding) as u32)
}

#[inline(always)]
fn to_f64(x: Exact, rounding: Rounding) -> f64 {
    f64::from_bits(x.round(Format::F64, rounding))
}

#[inline(always)]
fn of_f32(x: f32) -> Exact {
    Exact::from_f64(x.into())
}

#[cold]
fn add_f32_directed(a: f32, b: f32, rounding: Rounding) -> f32 {
    if !(a.is_finite() && b.is_finite()) {
        return a + b;
    }
    to_f32(of_f32(a).plus(of_f32(b), rounding), rounding)
}

#[cold]
fn mul_f32_directed(a: f32, b: f32, rounding: Rounding) -> f32 {
    if !(a.is_finite() && b.is_finite()) {
        return a * b;
    }
    to_f32(of_f32(a).times(of_f32(b)), rounding)
}

#[cold]
fn fma_f32_directed(a: f32, b: f32, c: f32, rounding: Rounding) -> f32 {
    if !(a.is_finite() && b.is_finite() && c.is_finite()) {
        return a.mul_add(b, c);
    }
    to_f32(
        of_f32(a).times(of_f32(b)).plus(of_f32(c), rounding),
        rounding,
    )
}

#[cold]
fn div_f32_directed(a: f32, b: f32, rounding: Rounding) -> f32 {
    if !(a.is_finite() && b.is_finite()) || b == 0.0 {
        return a / b;
    }
    to_f32(of_f32(a).over(of_f32(b)), rounding)
}

#[cold]
fn sqrt_f32_directed(a: f32, rounding: Rounding) -> f32 {
    if !(a > 0.0 && a.is_finite()) {
        return a.sqrt();
    }
    to_f32(of_f32(a).root(), rounding)
}

#[cold]
fn add_f64_directed(a: f64, b: f64, rounding: Rounding) -> f64 {
    if !(a.is_finite() && b.is_finite()) {
        return a + b;
    }
    to_f64(
        Exact::from_f64(a).plus(Exact::from_f64(b), rounding),
        rounding,
    )
}

#[cold]
fn mul_f64_directed(a: f64, b: f64, rounding: Rounding) -> f64 {
    if !(a.is_finite() && b.is_finite()) {
        return a * b;
    }
    to_f64(Exact::from_f64(a).times(Exact::from_f64(b)), rounding)
}

#[cold]
fn fma_f64_directed(a: f64, b: f64, c: f64, rounding: Rounding) -> f64 {
    if !(a.is_finite() && b.is_finite() && c.is_finite()) {
        return a.mul_add(b, c);
    }
    let product = Exact::from_f64(a).times(Exact::from_f64(b));
    to_f64(product.plus(Exact::from_f64(c), rounding), rounding)
}

#[cold]
fn div_f64_directed(a: f64, b: f64, rounding: Rounding) -> f64 {
    if !(a.is_finite() && b.is_finite()) || b == 0.0 {
        return a / b;
    }
    to_f64(Exact::from_f64(a).over(Exact::from_f64(b)), rounding)
}

#[cold]
fn sqrt_f64_directed(a: f64, rounding: Rounding) -> f64 {
    if !(a > 0.0 && a.is_finite()) {
        return a.sqrt();
    }
    to_f64(Exact::from_f64(a).root(), rounding)
}

/// Picks the host's operation for round-to-nearest and the exact one for a direction.
macro_rules! rounded {
    ($mode:expr, $nearest:expr, $directed:expr) => {
        if $mode.rounding == Rounding::Nearest {
            $nearest
        } else {
            $directed
        }
    };
}

/// `add.f32`.
#[inline(always)]
pub fn add_f32(a: f32, b: f32, mode: Mode) -> f32 {
    let (a, b) = (input(a, mode), input(b, mode));
    finish_f32(
        rounded!(mode, a + b, add_f32_directed(a, b, mode.rounding)),
        mode,
    )
}

/// `sub.f32`.
#[inline(always)]
pub fn sub_f32(a: f32, b: f32, mode: Mode) -> f32 {
    let (a, b) = (input(a, mode), input(b, mode));
    finish_f32(
        rounded!(mode, a - b, add_f32_directed(a, -b, mode.rounding)),
        mode,
    )
}

/// `mul.f32`.
#[inline(always)]
pub fn mul_f32(a: f32, b: f32, mode: Mode) -> f32 {
    let (a, b) = (input(a, mode), input(b, mode));
    finish_f32(
        rounded!(mode, a * b, mul_f32_directed(a, b, mode.rounding)),
        mode,
    )
}

/// `fma.f32`, and `mad.f32`, which is the same on every device since sm_20.
#[inline(always)]
pub fn fma_f32(a: f32, b: f32, c: f32, mode: Mode) -> f32 {
    let (a, b, c) = (input(a, mode), input(b, mode), input(c, mode));
    finish_f32(
        rounded!(
            mode,
            a.mul_add(b, c),
            fma_f32_directed(a, b, c, mode.rounding)
        ),
        mode,
    )
}

/// `div.rnd.f32`.
#[inline(always)]
pub fn div_f32(a: f32, b: f32, mode: Mode) -> f32 {
    let (a, b) = (input(a, mode), input(b, mode));
    finish_f32(
        rounded!(mode, a / b, div_f32_directed(a, b, mode.rounding)),
        mode,
    )
}

/// `rcp.rnd.f32`.
#[inline(always)]
pub fn rcp_f32(a: f32, mode: Mode) -> f32 {
    div_f32(1.0, a, mode)
}

/// `sqrt.rnd.f32`.
#[inline(always)]
pub fn sqrt_f32(a: f32, mode: Mode) -> f32 {
    let a = input(a, mode);
    finish_f32(
        rounded!(mode, a.sqrt(), sqrt_f32_directed(a, mode.rounding)),
        mode,
    )
}

/// `add.f64`.
#[inline(always)]
pub fn add_f64(a: f64, b: f64, rounding: Rounding) -> f64 {
    if rounding == Rounding::Nearest {
        a + b
    } else {
        add_f64_directed(a, b, rounding)
    }
}

/// `sub.f64`.
#[inline(always)]
pub fn sub_f64(a: f64, b: f64, rounding: Rounding) -> f64 {
    if rounding == Rounding::Nearest {
        a - b
    } else {
        add_f64_directed(a, -b, rounding)
    }
}

/// `mul.f64`.
#[inline(always)]
pub fn mul_f64(a: f64, b: f64, rounding: Rounding) -> f64 {
    if rounding == Rounding::Nearest {
        a * b
    } else {
        mul_f64_directed(a, b, rounding)
    }
}

/// `fma.f64`.
#[inline(always)]
pub fn fma_f64(a: f64, b: f64, c: f64, rounding: Rounding) -> f64 {
    if rounding == Rounding::Nearest {
        a.mul_add(b, c)
    } else {
        fma_f64_directed(a, b, c, rounding)
    }
}

/// `div.f64`.
#[inline(always)]
pub fn div_f64(a: f64, b: f64, rounding: Rounding) -> f64 {
    if rounding == Rounding::Nearest {
        a / b
    } else {
        div_f64_directed(a, b, rounding)
    }
}

/// `rcp.f64`.
#[inline(always)]
pub fn rcp_f64(a: f64, rounding: Rounding) -> f64 {
    div_f64(1.0, a, rounding)
}

/// `sqrt.f64`.
#[inline(always)]
pub fn sqrt_f64(a: f64, rounding: Rounding) -> f64 {
    if rounding == Rounding::Nearest {
        a.sqrt()
    } else {
        sqrt_f64_directed(a, rounding)
    }
}

/// `neg.f32`.
#[inline(always)]
pub fn neg_f32(a: f32, ftz: bool) -> f32 {
    if ftz { -flush_f32(a) } else { -a }
}

/// `abs.f32`.
#[inline(always)]
pub fn abs_f32(a: f32, ftz: bool) -> f32 {
    if ftz { flush_f32(a).abs() } else { a.abs() }
}

/// `copysign.f32`: the sign of `a` on the magnitude of `b`.
#[inline(always)]
pub fn copysign_f32(a: f32, b: f32) -> f32 {
    b.copysign(a)
}

/// `copysign.f64`: the sign of `a` on the magnitude of `b`.
#[inline(always)]
pub fn copysign_f64(a: f64, b: f64) -> f64 {
    b.copysign(a)
}

#[cfg(test)]
mod tests;
