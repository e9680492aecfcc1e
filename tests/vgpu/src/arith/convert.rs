//! `cvt`: between all types of numbers.
//!
//! One function, [`convert`], from the bits of one type to the bits of another. It is a `match` on both types; with
//! them constant in the caller it folds to the one conversion.

use super::{
    Rounding,
    float::{CANONICAL_F32, flush_f32, saturate_f32, saturate_f64},
    half::{Half, HalfMode},
    soft::{Exact, Format},
};

/// A type of PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Number {
    /// An unsigned integer of 8, 16, 32 or 64 bits.
    Unsigned(u32),
    /// A signed integer of 8, 16, 32 or 64 bits.
    Signed(u32),
    /// `.f16`.
    F16,
    /// `.bf16`.
    Bf16,
    /// `.tf32`: an `f32` whose lower 13 bits are zero.
    Tf32,
    /// `.f32`.
    F32,
    /// `.f64`.
    F64,
    /// `.e4m3`.
    E4m3,
    /// `.e5m2`.
    E5m2,
}

/// The modifiers of `cvt`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Conversion {
    /// The direction; between floating-point types of one size or more, `.rni` and so on round to an integer value.
    pub rounding: Rounding,
    /// Whether the direction was one of `.rni .rzi .rmi .rpi`.
    pub to_integer: bool,
    /// `.ftz`.
    pub ftz: bool,
    /// `.sat`: integers to the range of the result, floating-point numbers to [0, 1].
    pub sat: bool,
    /// `.relu`.
    pub relu: bool,
    /// `.satfinite`: overflow gives the greatest finite number.
    pub satfinite: bool,
}

/// `cvt.to.from`: the bits of the result from the bits of the operand.
#[inline(always)]
pub fn convert(to: Number, from: Number, bits: u64, options: Conversion) -> u64 {
    match (to, from) {
        (Number::Unsigned(_) | Number::Signed(_), Number::Unsigned(_) | Number::Signed(_)) => {
            let value = integer_value(from, bits);
            if options.sat {
                clamp(to, value)
            } else {
                truncate(to, value)
            }
        }
        (Number::Unsigned(_) | Number::Signed(_), _) => {
            let x = to_f64(from, flushed(from, bits, options.ftz));
            float_to_integer(to, x, options.rounding)
        }
        (_, Number::Unsigned(_) | Number::Signed(_)) => {
            let value = integer_value(from, bits);
            let exact = Exact::from_integer(value < 0, value.unsigned_abs() as u64);
            let result = match (to, options.rounding) {
                (Number::F32, Rounding::Nearest) => (value as f32).to_bits().into(),
                (Number::F64, Rounding::Nearest) => (value as f64).to_bits(),
                _ => exact.round(format(to), options.rounding),
            };
            saturated(to, result, options.sat)
        }
        _ => float_to_float(to, from, bits, options),
    }
}

/// The value of an integer register.
#[inline(always)]
fn integer_value(from: Number, bits: u64) -> i128 {
    match from {
        Number::Unsigned(width) => (bits & (u64::MAX >> (64 - width))).into(),
        Number::Signed(width) => (((bits << (64 - width)) as i64) >> (64 - width)).into(),
        _ => unreachable!("an integer type"),
    }
}

#[inline(always)]
fn range(to: Number) -> (i128, i128) {
    match to {
        Number::Unsigned(width) => (0, (1 << width) - 1),
        Number::Signed(width) => (-(1 << (width - 1)), (1 << (width - 1)) - 1),
        _ => unreachable!("an integer type"),
    }
}

#[inline(always)]
fn truncate(to: Number, value: i128) -> u64 {
    match to {
        Number::Unsigned(width) => value as u64 & (u64::MAX >> (64 - width)),
        Number::Signed(width) => (((value as u64) << (64 - width)) as i64 >> (64 - width)) as u64,
        _ => unreachable!("an integer type"),
    }
}

#[inline(always)]
fn clamp(to: Number, value: i128) -> u64 {
    let (low, high) = range(to);
    truncate(to, value.clamp(low, high))
}

/// NaN gives 0, what is out of range the nearest bound; `.sat` changes nothing, as PTX says.
#[inline(always)]
fn float_to_integer(to: Number, x: f64, rounding: Rounding) -> u64 {
    let rounded = round_to_integer(x, rounding);
    // A cast saturates and takes NaN to zero; 128 bits hold every range.
    clamp(to, rounded as i128)
}

/// `cvt.rni.f64.f64` and the like.
#[inline(always)]
pub fn round_to_integer(x: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => x.round_ties_even(),
        Rounding::Zero => x.trunc(),
        Rounding::Down => x.floor(),
        Rounding::Up => x.ceil(),
        Rounding::Away => x.round(),
    }
}

/// `.ftz` applies to `f32` alone.
#[inline(always)]
fn flushed(from: Number, bits: u64, ftz: bool) -> u64 {
    if ftz && from == Number::F32 {
        flush_f32(f32::from_bits(bits as u32)).to_bits().into()
    } else {
        bits
    }
}

/// The layout of a floating-point type.
#[inline(always)]
fn format(number: Number) -> Format {
    match number {
        Number::F16 => Format::F16,
        Number::Bf16 => Format::BF16,
        Number::Tf32 => Format::TF32,
        Number::F32 => Format::F32,
        Number::F64 => Format::F64,
        Number::E4m3 => Format::E4M3,
        Number::E5m2 => Format::E5M2,
        Number::Unsigned(_) | Number::Signed(_) => unreachable!("a floating-point type"),
    }
}

/// The value of a floating-point register; exact.
#[inline(always)]
pub fn to_f64(from: Number, bits: u64) -> f64 {
    match from {
        Number::F64 => f64::from_bits(bits),
        Number::F32 | Number::Tf32 => f32::from_bits(bits as u32).into(),
        Number::F16 => Half::F16.to_f32(bits as u16).into(),
        Number::Bf16 => Half::Bf16.to_f32(bits as u16).into(),
        // E5M2 is the upper half of f16, as bf16 is of f32.
        Number::E5m2 => Half::F16.to_f32((bits as u16) << 8).into(),
        Number::E4m3 => {
            let magnitude = bits & 0x7f;
            let value = match magnitude {
                0x7f => f64::NAN,
                0..8 => magnitude as f64 * 2f64.powi(-9),
                _ => (8 + (magnitude & 7)) as f64 * 2f64.powi((magnitude >> 3) as i32 - 10),
            };
            if bits & 0x80 != 0 { -value } else { value }
        }
        Number::Unsigned(_) | Number::Signed(_) => unreachable!("a floating-point type"),
    }
}

#[inline(always)]
fn float_to_float(to: Number, from: Number, bits: u64, options: Conversion) -> u64 {
    let bits = flushed(from, bits, options.ftz);
    if to == from && !options.to_integer && !options.sat && !options.relu {
        return bits;
    }
    let mut x = to_f64(from, bits);
    if options.to_integer {
        x = round_to_integer(x, options.rounding);
    }
    // Minus zero too becomes plus zero; NaN stays.
    if options.relu && x <= 0.0 {
        x = 0.0;
    }
    let result = match (to, options.rounding) {
        (Number::F64, _) => x.to_bits(),
        (Number::F32, _) if x.is_nan() => CANONICAL_F32.to_bits().into(),
        (Number::F32, Rounding::Nearest) => (x as f32).to_bits().into(),
        (Number::F16, Rounding::Nearest) if from != Number::F64 => Half::F16
            .convert(x as f32, Rounding::Nearest, HalfMode::default())
            .into(),
        _ => narrow(to, x, options),
    };
    let result = if options.ftz && to == Number::F32 {
        flushed(to, result, true)
    } else {
        result
    };
    saturated(to, result, options.sat)
}

/// To a format that the host does not have, or in a direction it does not have.
fn narrow(to: Number, x: f64, options: Conversion) -> u64 {
    let format = format(to);
    let shift = if to == Number::Tf32 { 13 } else { 0 };
    let sign = u64::from(x.is_sign_negative()) << (format.width - 1);
    // Formats of eight bits are always converted with `.satfinite`.
    let finite = options.satfinite || matches!(to, Number::E4m3 | Number::E5m2);
    if x.is_nan() {
        return match to {
            Number::Tf32 => CANONICAL_F32.to_bits().into(),
            _ => (1 << (format.width - 1)) - 1,
        };
    }
    let rounded = if x.is_infinite() {
        sign | format.overflow
    } else {
        Exact::from_f64(x).round(format, options.rounding)
    };
    let magnitude = rounded & ((1 << (format.width - 1)) - 1);
    let limited = if finite && magnitude >= format.overflow {
        sign | (format.overflow - 1)
    } else {
        rounded
    };
    limited << shift
}

/// `.sat` of a floating-point result.
#[inline(always)]
fn saturated(to: Number, bits: u64, sat: bool) -> u64 {
    match to {
        _ if !sat => bits,
        Number::F64 => saturate_f64(f64::from_bits(bits)).to_bits(),
        Number::F32 => saturate_f32(f32::from_bits(bits as u32)).to_bits().into(),
        Number::F16 => Half::F16
            .from_f32(saturate_f32(Half::F16.to_f32(bits as u16)))
            .into(),
        _ => bits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Conversion = Conversion {
        rounding: Rounding::Nearest,
        to_integer: false,
        ftz: false,
        sat: false,
        relu: false,
        satfinite: false,
    };

    fn with(rounding: Rounding) -> Conversion {
        Conversion { rounding, ..PLAIN }
    }

    fn f32_to(to: Number, x: f32, options: Conversion) -> u64 {
        convert(to, Number::F32, x.to_bits().into(), options)
    }

    #[test]
    fn integers_extend_truncate_and_clamp() {
        let s8 = Number::Signed(8);
        assert_eq!(
            convert(Number::Signed(32), s8, 0x80, PLAIN) as u32,
            0xffff_ff80
        );
        assert_eq!(
            convert(Number::Unsigned(32), Number::Unsigned(8), 0x1ff, PLAIN),
            0xff
        );
        assert_eq!(
            convert(Number::Unsigned(16), Number::Signed(32), 0xffff_ffff, PLAIN),
            0xffff
        );
        let sat = Conversion { sat: true, ..PLAIN };
        assert_eq!(
            convert(Number::Unsigned(8), Number::Signed(32), 0xffff_ffff, sat),
            0
        );
        assert_eq!(convert(s8, Number::Signed(32), 300, sat), 127);
        assert_eq!(
            convert(s8, Number::Signed(32), -300i32 as u32 as u64, sat) as i64,
            -128
        );
        assert_eq!(
            convert(Number::Signed(64), Number::Unsigned(64), u64::MAX, sat),
            i64::MAX as u64
        );
    }

    #[test]
    fn floats_to_integers_clamp_and_round() {
        let s32 = Number::Signed(32);
        for (rounding, want) in [
            (Rounding::Nearest, [2, -2, 2]),
            (Rounding::Zero, [1, -1, 2]),
            (Rounding::Down, [1, -2, 2]),
            (Rounding::Up, [2, -1, 3]),
        ] {
            let got = [1.5, -1.5, 2.5].map(|x| f32_to(s32, x, with(rounding)) as i32);
            assert_eq!(got, want, "{rounding:?}");
        }
        assert_eq!(f32_to(s32, 3e9, PLAIN) as i32, i32::MAX);
        assert_eq!(f32_to(s32, -3e9, PLAIN) as i32, i32::MIN);
        assert_eq!(f32_to(Number::Unsigned(32), -3.0, PLAIN), 0);
        assert_eq!(f32_to(Number::Unsigned(64), 1e30, PLAIN), u64::MAX);
        assert_eq!(f32_to(s32, f32::NAN, PLAIN), 0);
        assert_eq!(f32_to(Number::Unsigned(8), 300.0, PLAIN), 255);
        assert_eq!(
            convert(Number::Signed(64), Number::F64, 1e300f64.to_bits(), PLAIN),
            i64::MAX as u64
        );
    }

    #[test]
    fn integers_to_floats_in_every_direction() {
        let x = (1 << 24) + 1;
        let to = |rounding| {
            f32::from_bits(convert(Number::F32, Number::Unsigned(32), x, with(rounding)) as u32)
        };
        assert_eq!(to(Rounding::Nearest), 16_777_216.0);
        assert_eq!(to(Rounding::Up), 16_777_218.0);
        assert_eq!(to(Rounding::Zero), 16_777_216.0);
        let down = convert(
            Number::F32,
            Number::Signed(64),
            -(x as i64) as u64,
            with(Rounding::Down),
        );
        assert_eq!(f32::from_bits(down as u32), -16_777_218.0);
        assert_eq!(
            convert(Number::F16, Number::Signed(32), 70_000, PLAIN),
            0x7c00
        );
        assert_eq!(
            convert(
                Number::F16,
                Number::Signed(32),
                70_000,
                with(Rounding::Zero)
            ),
            0x7bff
        );
        assert_eq!(
            convert(
                Number::F64,
                Number::Unsigned(64),
                u64::MAX,
                with(Rounding::Zero)
            ),
            0x43ef_ffff_ffff_ffff
        );
    }

    #[test]
    fn floats_to_floats() {
        let third = 1.0f64 / 3.0;
        for (rounding, want) in [
            (Rounding::Nearest, 0x3eaa_aaab),
            (Rounding::Zero, 0x3eaa_aaaa),
            (Rounding::Up, 0x3eaa_aaab),
        ] {
            assert_eq!(
                convert(Number::F32, Number::F64, third.to_bits(), with(rounding)),
                want
            );
        }
        // One rounding, where two would give another: just above the middle of two f16.
        let x = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(
            convert(Number::F16, Number::F64, x.to_bits(), PLAIN),
            0x3c01
        );
        let integral = Conversion {
            to_integer: true,
            ..with(Rounding::Down)
        };
        assert_eq!(
            f32_to(Number::F32, -1.25, integral),
            u64::from((-2f32).to_bits())
        );
        let ftz = Conversion { ftz: true, ..PLAIN };
        assert_eq!(
            convert(Number::F32, Number::F64, 1e-40f64.to_bits(), ftz),
            0
        );
        assert_eq!(convert(Number::F64, Number::F32, 1, ftz), 0);
        assert_eq!(
            f32_to(Number::F32, f32::NAN, Conversion { sat: true, ..PLAIN }),
            0
        );
        assert_eq!(
            f32_to(Number::F16, 2.0, Conversion { sat: true, ..PLAIN }),
            0x3c00
        );
        assert_eq!(
            f32_to(
                Number::Bf16,
                -2.0,
                Conversion {
                    relu: true,
                    ..PLAIN
                }
            ),
            0
        );
        assert_eq!(
            f32_to(
                Number::Bf16,
                f32::NAN,
                Conversion {
                    relu: true,
                    ..PLAIN
                }
            ),
            0x7fff
        );
        assert_eq!(f32_to(Number::Bf16, 1.0 + 1.0 / 256.0, PLAIN), 0x3f80);
    }

    #[test]
    fn tf32_ties_away() {
        let x = f32::from_bits(0x3f80_1000);
        assert_eq!(f32_to(Number::Tf32, x, with(Rounding::Away)), 0x3f80_2000);
        assert_eq!(f32_to(Number::Tf32, x, PLAIN), 0x3f80_0000);
        assert_eq!(
            f32_to(Number::Tf32, f32::NAN, with(Rounding::Away)),
            0x7fff_ffff
        );
    }

    #[test]
    fn eight_bit_floats_round_trip_and_saturate() {
        for (number, nans) in [(Number::E4m3, 2), (Number::E5m2, 6)] {
            let mut skipped = 0;
            for bits in 0..256 {
                let x = to_f64(number, bits);
                if x.is_nan() {
                    skipped += 1;
                } else if x.is_finite() {
                    assert_eq!(
                        convert(number, Number::F64, x.to_bits(), PLAIN),
                        bits,
                        "{number:?} {bits:#x}"
                    );
                }
            }
            assert_eq!(skipped, nans);
        }
        assert_eq!(f32_to(Number::E4m3, 1e9, PLAIN), 0x7e);
        assert_eq!(f32_to(Number::E5m2, f32::NEG_INFINITY, PLAIN), 0xfb);
        assert_eq!(f32_to(Number::E4m3, f32::NAN, PLAIN), 0x7f);
    }
}
