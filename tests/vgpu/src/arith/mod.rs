//! What the arithmetic of PTX computes, as pure functions of values.
//!
//! [`crate::exec`] applies these to the lanes of a warp; nothing here knows of registers or memory. Where PTX ISA 9.0
//! defines a result to the bit, that is the result here; where it gives an error bound (`.approx`), the result is the
//! exact value rounded to nearest, which is within every bound. The parts:
//! - [`soft`]: exact numbers and their one rounding to any format in any direction;
//! - [`float`]: `f32` and `f64` arithmetic with `.rn .rz .rm .rp`, `.ftz` and `.sat`; [`special`]: approximations;
//! - [`compare`]: `setp`, `min`, `max`, `testp`;
//! - [`half`]: `f16`, `bf16` and their packed pairs;
//! - [`convert`](mod@convert): `cvt`;
//! - [`integer`]: everything on bits and integers.
//!
//! # Speed
//! Everything is `#[inline(always)]` and the round-to-nearest path of each function is the plain host operation, so
//! a loop over 32 lanes with a constant [`Mode`] vectorises. One trap: without the target feature `fma`,
//! `f64::mul_add` becomes a call of the C library for each lane, ten to twenty times slower. A crate cannot turn the
//! feature on for itself, so write the lane loop with `lanes!`: it compiles the function
//! twice, once for AVX2 with FMA, and picks at run time.

pub mod compare;
pub mod convert;
pub mod float;
pub mod half;
pub mod integer;
pub mod soft;
pub mod special;

/// The direction of a rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// `.rn`, `.rni`: to nearest, ties to even.
    #[default]
    Nearest,
    /// `.rz`, `.rzi`: towards zero.
    Zero,
    /// `.rm`, `.rmi`: towards minus infinity.
    Down,
    /// `.rp`, `.rpi`: towards plus infinity.
    Up,
    /// `.rna`: to nearest, ties away from zero.
    Away,
}

/// The modifiers of a floating-point instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mode {
    /// `.rn` and so on.
    pub rounding: Rounding,
    /// `.ftz`: subnormal inputs and results become zeros of the same sign.
    pub ftz: bool,
    /// `.sat`: the result is clamped to [0, 1], NaN becomes 0.
    pub sat: bool,
}

impl Mode {
    /// `.rn` with nothing else.
    pub const RN: Self = Self {
        rounding: Rounding::Nearest,
        ftz: false,
        sat: false,
    };
}

/// Defines a function compiled both for AVX2 with FMA and for the plain target, chosen at run time.
///
/// The body, and everything `#[inline(always)]` it calls, is compiled for either. Functions it calls without being
/// inlined are not.
macro_rules! lanes {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,f16c")]
                fn fast($($arg: $ty),*) $(-> $ret)? {
                    body($($arg),*)
                }
                if std::arch::is_x86_feature_detected!("avx2")
                    && std::arch::is_x86_feature_detected!("fma")
                    && std::arch::is_x86_feature_detected!("f16c")
                {
                    // SAFETY: the features that `fast` is compiled for were detected in the line above.
                    return unsafe { fast($($arg),*) };
                }
            }
            body($($arg),*)
        }
    };
}
pub(crate) use lanes;
