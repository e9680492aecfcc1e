//! Instructions on registers alone.
//!
//! The common ones are loops over whole rows, compiled both for AVX2 with FMA and for any host; the rest is in
//! [`slow`]. Which is which decides only speed.

mod slow;

use super::lanes::Registers;
use crate::{
    arith::{
        Mode, Rounding,
        convert::{self, Conversion, Number},
        float,
        half::Half,
        integer::{self, w32, w64},
    },
    program::{
        Code,
        op::{Alu, Combine, Convert, Float, FloatBin, FloatUn, Int, IntBin, IntTri, NONE, Reg},
    },
};

/// Executes an instruction in the lanes of a mask; see [`best`].
pub(super) type Execute = unsafe fn(&mut Registers, &Code, &Alu, u32);

/// The version for this host. It may be called: what it was compiled for was detected.
pub(super) fn best() -> Execute {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        if has!("avx2") && has!("fma") && has!("f16c") && has!("bmi1") && has!("bmi2") {
            return fast;
        }
    }
    plain
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2")]
fn fast(r: &mut Registers, code: &Code, alu: &Alu, mask: u32) {
    execute(r, code, alu, mask);
}

fn plain(r: &mut Registers, code: &Code, alu: &Alu, mask: u32) {
    execute(r, code, alu, mask);
}

const FTZ: Mode = Mode {
    ftz: true,
    ..Mode::RN
};

#[inline(always)]
fn execute(r: &mut Registers, code: &Code, alu: &Alu, m: u32) {
    let done = match *alu {
        Alu::Mov32 { d, a } => {
            r.map1(m, d, a, |x: u32| x);
            true
        }
        Alu::Mov64 { d, a } => {
            r.map1(m, d, a, |x: u64| x);
            true
        }
        Alu::IntBin {
            f,
            ty: Int::U32 | Int::S32,
            d,
            a,
            b,
        } => words(r, m, f, [d, a, b]),
        Alu::IntBin {
            f,
            ty: Int::U64 | Int::S64,
            d,
            a,
            b,
        } => doubles(r, m, f, [d, a, b]),
        Alu::IntTri {
            f: IntTri::MadLo,
            ty: Int::U32 | Int::S32,
            d,
            a,
            b,
            c,
        } => {
            r.map3(m, d, [a, b, c], |x: u32, y: u32, z: u32| {
                x.wrapping_mul(y).wrapping_add(z)
            });
            true
        }
        Alu::IntTri {
            f: IntTri::Lop3(table),
            d,
            a,
            b,
            c,
            ..
        } => {
            r.map3(m, d, [a, b, c], |x: u32, y: u32, z: u32| {
                integer::lop3(x, y, z, table)
            });
            true
        }
        Alu::MulWide { ty, d, a, b, c } => mul_wide(r, m, ty, [d, a, b, c]),
        Alu::FloatUn {
            f: FloatUn::Neg,
            ty: Float::F64,
            d,
            a,
            ..
        } => {
            r.map1(m, d, a, |x: f64| -x);
            true
        }
        Alu::FloatBin {
            f,
            ty: Float::F64,
            mode,
            d,
            a,
            b,
        } if mode.rounding == Rounding::Nearest => float_bin_f64(r, m, f, [d, a, b]),
        Alu::FloatBin {
            f,
            ty: Float::F32,
            mode: Mode::RN,
            d,
            a,
            b,
        } => float_bin_f32(r, m, f, Mode::RN, [d, a, b]),
        Alu::FloatBin {
            f,
            ty: Float::F32,
            mode: FTZ,
            d,
            a,
            b,
        } => float_bin_f32(r, m, f, FTZ, [d, a, b]),
        Alu::Fma {
            ty: Float::F64,
            mode,
            d,
            a,
            b,
            c,
            ..
        } if mode.rounding == Rounding::Nearest => {
            r.map3(m, d, [a, b, c], |x: f64, y: f64, z: f64| {
                float::fma_f64(x, y, z, Rounding::Nearest)
            });
            true
        }
        Alu::Fma {
            ty: Float::F32,
            mode: Mode::RN,
            d,
            a,
            b,
            c,
            ..
        } => {
            r.map3(m, d, [a, b, c], |x: f32, y: f32, z: f32| {
                float::fma_f32(x, y, z, Mode::RN)
            });
            true
        }
        Alu::Fma {
            ty: Float::F32,
            mode: FTZ,
            d,
            a,
            b,
            c,
            ..
        } => {
            r.map3(m, d, [a, b, c], |x: f32, y: f32, z: f32| {
                float::fma_f32(x, y, z, FTZ)
            });
            true
        }
        Alu::Convert { how, d, a, .. } => conversion(r, m, &code.conversions[how as usize], d, a),
        Alu::Selp { wide, d, a, b, p } => {
            let p = r.predicate(p);
            select(r, m, wide, p, [d, a, b]);
            true
        }
        _ => false,
    };
    if !done {
        slow::execute(r, code, alu, m);
    }
}

fn all(value: bool) -> u32 {
    if value { u32::MAX } else { 0 }
}

fn combined(f: Combine, a: u32, b: u32) -> u32 {
    match f {
        Combine::And => a & b,
        Combine::Or => a | b,
        Combine::Xor => a ^ b,
    }
}

fn half_of(ty: Float) -> Half {
    match ty {
        Float::Bf16 | Float::Bf16x2 => Half::Bf16,
        _ => Half::F16,
    }
}

fn pairs(ty: Float) -> bool {
    matches!(ty, Float::F16x2 | Float::Bf16x2)
}

#[inline(always)]
fn select(r: &mut Registers, m: u32, wide: bool, p: u32, [d, a, b]: [Reg; 3]) {
    if wide {
        let (a, b) = (*r.row::<u64>(a), *r.row::<u64>(b));
        r.set(m, d, |i| if p >> i & 1 == 1 { a[i] } else { b[i] });
    } else {
        let (a, b) = (*r.row::<u32>(a), *r.row::<u32>(b));
        r.set(m, d, |i| if p >> i & 1 == 1 { a[i] } else { b[i] });
    }
}

/// Common arithmetic of 32 bits; returns whether it was that.
#[inline(always)]
fn words(r: &mut Registers, m: u32, f: IntBin, [d, a, b]: [Reg; 3]) -> bool {
    match f {
        IntBin::Add => r.map2(m, d, a, b, |x: u32, y: u32| x.wrapping_add(y)),
        IntBin::Sub => r.map2(m, d, a, b, |x: u32, y: u32| x.wrapping_sub(y)),
        IntBin::MulLo => r.map2(m, d, a, b, |x: u32, y: u32| x.wrapping_mul(y)),
        IntBin::And => r.map2(m, d, a, b, |x: u32, y: u32| x & y),
        IntBin::Or => r.map2(m, d, a, b, |x: u32, y: u32| x | y),
        IntBin::Xor => r.map2(m, d, a, b, |x: u32, y: u32| x ^ y),
        IntBin::Shl => r.map2(m, d, a, b, w32::shl),
        _ => return false,
    }
    true
}

/// Common arithmetic of 64 bits; returns whether it was that.
#[inline(always)]
fn doubles(r: &mut Registers, m: u32, f: IntBin, [d, a, b]: [Reg; 3]) -> bool {
    match f {
        IntBin::Add => r.map2(m, d, a, b, |x: u64, y: u64| x.wrapping_add(y)),
        IntBin::Sub => r.map2(m, d, a, b, |x: u64, y: u64| x.wrapping_sub(y)),
        IntBin::And => r.map2(m, d, a, b, |x: u64, y: u64| x & y),
        IntBin::Or => r.map2(m, d, a, b, |x: u64, y: u64| x | y),
        IntBin::Shl => r.map2(m, d, a, b, w64::shl),
        _ => return false,
    }
    true
}

/// Products of 32 bits by 32; returns whether it was that.
#[inline(always)]
fn mul_wide(r: &mut Registers, m: u32, ty: Int, [d, a, b, c]: [Reg; 4]) -> bool {
    match (ty, c) {
        (Int::U32, NONE) => r.map2(m, d, a, b, w32::mul_wide_u),
        (Int::S32, NONE) => r.map2(m, d, a, b, w32::mul_wide_s),
        (Int::U32, c) => r.map3(m, d, [a, b, c], |x: u32, y: u32, z: u64| {
            w32::mul_wide_u(x, y).wrapping_add(z)
        }),
        (Int::S32, c) => r.map3(m, d, [a, b, c], |x: u32, y: u32, z: u64| {
            w32::mul_wide_s(x, y).wrapping_add(z)
        }),
        _ => return false,
    }
    true
}

#[inline(always)]
fn float_bin_f64(r: &mut Registers, m: u32, f: FloatBin, [d, a, b]: [Reg; 3]) -> bool {
    match f {
        FloatBin::Add => r.map2(m, d, a, b, |x: f64, y: f64| {
            float::add_f64(x, y, Rounding::Nearest)
        }),
        FloatBin::Sub => r.map2(m, d, a, b, |x: f64, y: f64| {
            float::sub_f64(x, y, Rounding::Nearest)
        }),
        FloatBin::Mul => r.map2(m, d, a, b, |x: f64, y: f64| {
            float::mul_f64(x, y, Rounding::Nearest)
        }),
        _ => return false,
    }
    true
}

#[inline(always)]
fn float_bin_f32(r: &mut Registers, m: u32, f: FloatBin, mode: Mode, [d, a, b]: [Reg; 3]) -> bool {
    match f {
        FloatBin::Add => r.map2(m, d, a, b, |x: f32, y: f32| float::add_f32(x, y, mode)),
        FloatBin::Sub => r.map2(m, d, a, b, |x: f32, y: f32| float::sub_f32(x, y, mode)),
        FloatBin::Mul => r.map2(m, d, a, b, |x: f32, y: f32| float::mul_f32(x, y, mode)),
        _ => return false,
    }
    true
}

/// The conversions of address arithmetic and of mixed precision; returns whether it was one.
#[inline(always)]
fn conversion(
    r: &mut Registers,
    m: u32,
    &(how, _, wide_source): &(Convert, bool, bool),
    d: Reg,
    a: Reg,
) -> bool {
    const PLAIN: Conversion = Conversion {
        rounding: Rounding::Nearest,
        to_integer: false,
        ftz: false,
        sat: false,
        relu: false,
        satfinite: false,
    };
    let Convert::One {
        to,
        from,
        options: PLAIN,
        fill,
    } = how
    else {
        return false;
    };
    if fill.from != fill.to {
        return false;
    }
    match (to, from) {
        (Number::Unsigned(64) | Number::Signed(64), Number::Unsigned(32)) if !wide_source => {
            r.map1(m, d, a, |x: u32| u64::from(x));
        }
        (Number::Unsigned(64) | Number::Signed(64), Number::Signed(32)) if !wide_source => {
            r.map1(m, d, a, |x: i32| i64::from(x));
        }
        (Number::Unsigned(32) | Number::Signed(32), Number::Unsigned(64) | Number::Signed(64)) => {
            r.map1(m, d, a, |x: u64| x as u32);
        }
        (Number::F64, Number::F32) => r.map1(m, d, a, |x: f32| f64::from(x)),
        (Number::F32, Number::Signed(32)) if !wide_source => r.map1(m, d, a, |x: i32| x as f32),
        (Number::F64, Number::Signed(32)) if !wide_source => r.map1(m, d, a, |x: i32| f64::from(x)),
        (Number::F32, Number::F16) => r.map1(m, d, a, |x: u16| {
            f32::from_bits(convert::convert(Number::F32, Number::F16, u64::from(x), PLAIN) as u32)
        }),
        _ => return false,
    }
    true
}
