//! `setp`, `set` and `slct` comparisons, `min`, `max` and `testp`.

use std::convert::identity;

use super::float::{canonical_where, flush_f32, is_nan};

/// A comparison of `setp`. The names are those of PTX; the integer forms of lower and higher without sign are spelt
/// with the type instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// Equal.
    Eq,
    /// Not equal, both numbers.
    Ne,
    /// Less.
    Lt,
    /// Less or equal.
    Le,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
    /// Equal or either is NaN.
    Equ,
    /// Not equal or either is NaN.
    Neu,
    /// Less or either is NaN.
    Ltu,
    /// Less or equal, or either is NaN.
    Leu,
    /// Greater or either is NaN.
    Gtu,
    /// Greater or equal, or either is NaN.
    Geu,
    /// Neither is NaN.
    Num,
    /// Either is NaN.
    Nan,
}

macro_rules! comparisons {
    ($($(#[$meta:meta])* $name:ident: $ty:ty;)+) => { $(
        $(#[$meta])*
        #[inline(always)]
        // `!(a >= b)` is how an unordered comparison is said: it holds for NaN.
        // `a != b` holds for NaN and `a < b || a > b` does not.
        #[allow(clippy::neg_cmp_op_on_partial_ord, clippy::double_comparisons)]
        pub fn $name(comparison: Comparison, a: $ty, b: $ty) -> bool {
            match comparison {
                Comparison::Eq => a == b,
                Comparison::Ne => a < b || a > b,
                Comparison::Lt => a < b,
                Comparison::Le => a <= b,
                Comparison::Gt => a > b,
                Comparison::Ge => a >= b,
                Comparison::Equ => !(a < b || a > b),
                Comparison::Neu => a != b,
                Comparison::Ltu => !(a >= b),
                Comparison::Leu => !(a > b),
                Comparison::Gtu => !(a <= b),
                Comparison::Geu => !(a < b),
                Comparison::Num => !a.is_nan() && !b.is_nan(),
                Comparison::Nan => a.is_nan() || b.is_nan(),
            }
        }
    )+ };
}

comparisons! {
    /// `setp.f64`.
    compare_f64: f64;
    /// `setp.f32` without `.ftz`; `f16` and `bf16` widen to it exactly.
    ordered_f32: f32;
}

/// `setp.f32`.
#[inline(always)]
pub fn compare_f32(comparison: Comparison, a: f32, b: f32, ftz: bool) -> bool {
    if ftz {
        ordered_f32(comparison, flush_f32(a), flush_f32(b))
    } else {
        ordered_f32(comparison, a, b)
    }
}

/// Compares two integers; the comparisons with NaN are those without, as no integer is one.
#[inline(always)]
pub fn compare_integers<T: Ord>(comparison: Comparison, a: T, b: T) -> bool {
    match comparison {
        Comparison::Eq | Comparison::Equ => a == b,
        Comparison::Ne | Comparison::Neu => a != b,
        Comparison::Lt | Comparison::Ltu => a < b,
        Comparison::Le | Comparison::Leu => a <= b,
        Comparison::Gt | Comparison::Gtu => a > b,
        Comparison::Ge | Comparison::Geu => a >= b,
        Comparison::Num => true,
        Comparison::Nan => false,
    }
}

/// The modifiers of `min` and `max`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extremum {
    /// `.ftz`.
    pub ftz: bool,
    /// `.NaN`: a NaN operand gives NaN; without, it gives the other operand.
    pub nan: bool,
    /// `.xorsign.abs`: the extremum of the magnitudes with the exclusive or of the signs.
    pub xorsign_abs: bool,
}

macro_rules! extrema {
    ($($(#[$meta:meta])* $name:ident: $ty:ty, $nan:expr, $canonical:expr, $flush:expr, $first:ident;)+) => { $(
        $(#[$meta])*
        #[inline(always)]
        pub fn $name(a: $ty, b: $ty, options: Extremum) -> $ty {
            let (a, b) = if options.ftz { ($flush(a), $flush(b)) } else { (a, b) };
            let negative = a.is_sign_negative() != b.is_sign_negative();
            let (x, y) = if options.xorsign_abs { (a.abs(), b.abs()) } else { (a, b) };
            let (either, both) = ($nan(x) || $nan(y), $nan(x) && $nan(y));
            // -0 is less than +0, which a comparison of numbers does not see.
            let extremum = if x.is_nan() {
                y
            } else if y.is_nan() || extrema!(@$first x, y) {
                x
            } else {
                y
            };
            let signed = if options.xorsign_abs && negative { -extremum } else { extremum };
            $canonical(both || options.nan && either, signed)
        }
    )+ };
    (@min $x:ident, $y:ident) => { $x < $y || $x == $y && $x.is_sign_negative() };
    (@max $x:ident, $y:ident) => { $x > $y || $x == $y && $x.is_sign_positive() };
}

/// NaN of `f64` keep their payloads.
#[inline(always)]
fn keep(_: bool, x: f64) -> f64 {
    x
}

extrema! {
    /// `min.f32`.
    min_f32: f32, is_nan, canonical_where, flush_f32, min;
    /// `max.f32`.
    max_f32: f32, is_nan, canonical_where, flush_f32, max;
    /// `min.f64`; only the plain form exists.
    min_f64: f64, f64::is_nan, keep, identity, min;
    /// `max.f64`; only the plain form exists.
    max_f64: f64, f64::is_nan, keep, identity, max;
}

/// What `testp` asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Property {
    /// Neither infinite nor NaN.
    Finite,
    /// Infinite.
    Infinite,
    /// Not NaN.
    Number,
    /// NaN.
    NotANumber,
    /// A normal number; PTX counts zero as one.
    Normal,
    /// Subnormal and not zero.
    Subnormal,
}

/// `testp.f64`; for `f32` see [`testp_f32`], as what is normal depends on the format.
#[inline(always)]
pub fn testp_f64(property: Property, a: f64) -> bool {
    match property {
        Property::Finite => a.is_finite(),
        Property::Infinite => a.is_infinite(),
        Property::Number => !a.is_nan(),
        Property::NotANumber => a.is_nan(),
        Property::Normal => a.is_normal() || a == 0.0,
        Property::Subnormal => a.is_subnormal(),
    }
}

/// `testp.f32`.
#[inline(always)]
pub fn testp_f32(property: Property, a: f32) -> bool {
    match property {
        Property::Normal => a.is_normal() || a == 0.0,
        Property::Subnormal => a.is_subnormal(),
        other => testp_f64(other, a.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unordered_comparisons_hold_for_nan_and_ordered_ones_do_not() {
        use Comparison::*;
        for c in [Eq, Ne, Lt, Le, Gt, Ge, Num] {
            assert!(!compare_f64(c, f64::NAN, 1.0), "{c:?}");
            assert!(!compare_f64(c, 1.0, f64::NAN), "{c:?}");
        }
        for c in [Equ, Neu, Ltu, Leu, Gtu, Geu, Nan] {
            assert!(compare_f64(c, f64::NAN, 1.0), "{c:?}");
        }
        for (c, less, equal, greater) in [
            (Eq, false, true, false),
            (Ne, true, false, true),
            (Lt, true, false, false),
            (Le, true, true, false),
            (Gt, false, false, true),
            (Ge, false, true, true),
            (Equ, false, true, false),
            (Neu, true, false, true),
            (Ltu, true, false, false),
            (Leu, true, true, false),
            (Gtu, false, false, true),
            (Geu, false, true, true),
        ] {
            assert_eq!(
                [
                    compare_f64(c, 1.0, 2.0),
                    compare_f64(c, 2.0, 2.0),
                    compare_f64(c, 3.0, 2.0)
                ],
                [less, equal, greater]
            );
            assert_eq!(compare_integers(c, 1u8, 2), less);
            assert_eq!(compare_integers(c, 2i64, 2), equal);
            assert_eq!(compare_integers(c, 3u64, 2), greater);
        }
        let tiny = f32::from_bits(1);
        assert!(compare_f32(Gt, tiny, 0.0, false));
        assert!(!compare_f32(Gt, tiny, 0.0, true));
    }

    #[test]
    fn extrema_mind_nan_signed_zeros_and_signs() {
        let plain = Extremum::default();
        assert_eq!(min_f32(f32::NAN, 2.0, plain), 2.0);
        assert_eq!(max_f32(2.0, f32::NAN, plain), 2.0);
        assert_eq!(min_f32(f32::NAN, f32::NAN, plain).to_bits(), 0x7fff_ffff);
        assert_eq!(min_f32(0.0, -0.0, plain).to_bits(), 0x8000_0000);
        assert_eq!(max_f32(-0.0, 0.0, plain).to_bits(), 0);
        let nan = Extremum { nan: true, ..plain };
        assert_eq!(max_f32(f32::NAN, 2.0, nan).to_bits(), 0x7fff_ffff);
        let xor = Extremum {
            xorsign_abs: true,
            ..plain
        };
        assert_eq!(max_f32(-3.0, 2.0, xor), -3.0);
        assert_eq!(min_f32(-3.0, -2.0, xor), 2.0);
        assert_eq!(max_f64(-1.0, -2.0, plain), -1.0);
    }

    #[test]
    fn properties() {
        assert!(testp_f32(Property::Normal, -0.0) && !testp_f32(Property::Subnormal, 0.0));
        assert!(testp_f32(Property::Subnormal, f32::from_bits(1)));
        assert!(testp_f64(Property::Normal, f64::from(f32::from_bits(1))));
        assert!(
            testp_f32(Property::NotANumber, f32::NAN) && !testp_f32(Property::Number, f32::NAN)
        );
        assert!(
            testp_f64(Property::Infinite, f64::INFINITY)
                && !testp_f64(Property::Finite, f64::INFINITY)
        );
    }
}
