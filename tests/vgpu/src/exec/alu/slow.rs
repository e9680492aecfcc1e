//! The instructions that are not worth a vector loop of their own, compiled once for any host.

use super::{
    super::lanes::{LANES, Lane, Registers, lanes},
    all, combined, half_of, pairs, select,
};
use crate::{
    arith::{
        Mode,
        compare::{self, Comparison},
        convert::{self, Number},
        float,
        half::{self, HalfMode},
        integer::{self, w16, w32, w64},
        special,
    },
    program::{
        Code,
        op::{
            Alu, CarryOp, Compared, Convert, Float, FloatBin, FloatUn, Int, IntBin, IntTri, IntUn,
            NONE, Reg,
        },
    },
};

/// Executes any instruction; [`super::execute`] has tried the common ones.
#[inline(never)]
pub(super) fn execute(r: &mut Registers, code: &Code, alu: &Alu, m: u32) {
    match *alu {
        Alu::Mov32 { d, a } => each1(r, m, d, a, |x: u32| x),
        Alu::Mov64 { d, a } => each1(r, m, d, a, |x: u64| x),
        Alu::Mov128 { d, a } => {
            each1(r, m, d, a, |x: u64| x);
            each1(r, m, d + 2, a + 2, |x: u64| x);
        }
        Alu::IntUn { f, ty, d, a } => int_un(r, m, f, ty, d, a),
        Alu::IntBin { f, ty, d, a, b } => int_bin(r, m, f, ty, [d, a, b]),
        Alu::IntTri { f, ty, d, a, b, c } => int_tri(r, m, f, ty, d, [a, b, c]),
        Alu::MulWide { ty, d, a, b, c } => mul_wide(r, m, ty, [d, a, b, c]),
        Alu::Bfi {
            wide,
            d,
            a,
            b,
            position,
            length,
        } => bfi(r, m, wide, [d, a, b, position, length]),
        Alu::Carry {
            f,
            wide,
            take,
            give,
            d,
            a,
            b,
            c,
        } => carry(r, m, f, wide, (take, give), [d, a, b, c]),
        Alu::Pair16 { f, signed, d, a, b } => each2(r, m, [d, a, b], |x: u32, y: u32| {
            half::packed2(x, y, |x, y| match (f, signed) {
                (IntBin::Min, true) => (x as i16).min(y as i16) as u16,
                (IntBin::Max, true) => (x as i16).max(y as i16) as u16,
                (IntBin::Min, false) => x.min(y),
                (IntBin::Max, false) => x.max(y),
                _ => x.wrapping_add(y),
            })
        }),
        Alu::FloatUn { f, ty, mode, d, a } => float_un(r, m, f, ty, mode, d, a),
        Alu::FloatBin {
            f,
            ty,
            mode,
            d,
            a,
            b,
        } => float_bin(r, m, f, ty, mode, [d, a, b]),
        Alu::Fma {
            ty,
            mode,
            relu,
            d,
            a,
            b,
            c,
        } => fma(r, m, ty, mode, relu, d, [a, b, c]),
        Alu::Convert { how, d, a, b } => conversion(r, m, code.conversions[how as usize], d, a, b),
        Alu::Setp {
            cmp,
            ty,
            ftz,
            combine,
            negate,
            d,
            q,
            a,
            b,
            c,
        } => {
            let (low, high) = comparison(r, cmp, ty, ftz, a, b);
            // Packed halves give two results; otherwise the second is the opposite of the first.
            let second = if packed(ty) { high } else { !low };
            let with = |bits: u32| match c {
                NONE => bits,
                c => combined(combine, bits, r.predicate(c) ^ all(negate)),
            };
            let (first, second) = (with(low), with(second));
            r.set_predicate(m, d, first);
            r.set_predicate(m, q, second);
        }
        Alu::Set {
            cmp,
            ty,
            ftz,
            one,
            combine,
            negate,
            d,
            a,
            b,
            c,
        } => {
            let (low, high) = comparison(r, cmp, ty, ftz, a, b);
            let with = |bits: u32| match c {
                NONE => bits,
                c => combined(combine, bits, r.predicate(c) ^ all(negate)),
            };
            let (low, high) = (with(low), with(high));
            let value = if one == 0 { u32::MAX } else { one };
            if packed(ty) {
                r.set(m, d, |i| {
                    let (l, h) = (low >> i & 1 == 1, high >> i & 1 == 1);
                    (if l { value & 0xffff } else { 0 }) | if h { value & 0xffff_0000 } else { 0 }
                });
            } else {
                r.set(m, d, |i| if low >> i & 1 == 1 { value } else { 0 });
            }
        }
        Alu::Testp {
            property,
            wide,
            d,
            a,
        } => {
            let bits = if wide {
                r.test2(a, a, |x: f64, _| compare::testp_f64(property, x))
            } else {
                r.test2(a, a, |x: f32, _| compare::testp_f32(property, x))
            };
            r.set_predicate(m, d, bits);
        }
        Alu::Selp { wide, d, a, b, p } => {
            let p = r.predicate(p);
            select(r, m, wide, p, [d, a, b]);
        }
        Alu::Slct {
            wide,
            float,
            ftz,
            d,
            a,
            b,
            c,
        } => {
            let p = if float {
                r.test2(c, c, |x: f32, _| {
                    (if ftz { float::flush_f32(x) } else { x }) >= 0.0
                })
            } else {
                r.test2(c, c, |x: i32, _| x >= 0)
            };
            select(r, m, wide, p, [d, a, b]);
        }
        Alu::PredicateConst { d, value } => r.set_predicate(m, d, all(value)),
        Alu::PredicateNot { d, a } => r.set_predicate(m, d, !r.predicate(a)),
        Alu::Predicate { f, d, a, b } => {
            r.set_predicate(m, d, combined(f, r.predicate(a), r.predicate(b)))
        }
        Alu::Pack { bits, d, parts } => pack(
            r,
            m,
            bits,
            d,
            &code.lists[parts.start as usize..][..parts.len as usize],
        ),
        Alu::Unpack { bits, a, parts } => {
            unpack(
                r,
                m,
                bits,
                a,
                &code.lists[parts.start as usize..][..parts.len as usize],
            );
        }
    }
}

fn packed(ty: Compared) -> bool {
    matches!(ty, Compared::Float(Float::F16x2 | Float::Bf16x2))
}

fn int_un(r: &mut Registers, m: u32, f: IntUn, ty: Int, d: Reg, a: Reg) {
    macro_rules! by_width {
        (|$x:ident| $body:expr) => {
            match ty {
                Int::U16 | Int::S16 => each1(r, m, d, a, |$x: u16| $body),
                Int::U32 | Int::S32 => each1(r, m, d, a, |$x: u32| $body),
                Int::U64 | Int::S64 => each1(r, m, d, a, |$x: u64| $body),
            }
        };
    }
    match f {
        IntUn::Not => by_width!(|x| !x),
        IntUn::Cnot => by_width!(|x| if x == 0 { 1 } else { 0 }),
        IntUn::Neg => by_width!(|x| x.wrapping_neg()),
        IntUn::Abs => match ty {
            Int::U16 | Int::S16 => each1(r, m, d, a, w16::abs),
            Int::U32 | Int::S32 => each1(r, m, d, a, w32::abs),
            Int::U64 | Int::S64 => each1(r, m, d, a, w64::abs),
        },
        IntUn::Brev => by_width!(|x| x.reverse_bits()),
        IntUn::Clz => by_width!(|x| x.leading_zeros()),
        IntUn::Popc => by_width!(|x| x.count_ones()),
        IntUn::Bfind { shift_amount } => match ty {
            Int::U64 | Int::S64 => each1(r, m, d, a, |x: u64| {
                integer::bfind_b64(x, ty.signed(), shift_amount)
            }),
            _ => each1(r, m, d, a, |x: u32| {
                integer::bfind_b32(x, ty.signed(), shift_amount)
            }),
        },
    }
}

fn int_bin(r: &mut Registers, m: u32, f: IntBin, ty: Int, [d, a, b]: [Reg; 3]) {
    macro_rules! by_width {
        (|$x:ident, $y:ident| $body:expr) => {
            match ty {
                Int::U16 | Int::S16 => each2(r, m, [d, a, b], |$x: u16, $y: u16| $body),
                Int::U32 | Int::S32 => each2(r, m, [d, a, b], |$x: u32, $y: u32| $body),
                Int::U64 | Int::S64 => each2(r, m, [d, a, b], |$x: u64, $y: u64| $body),
            }
        };
    }
    macro_rules! by_type {
        (|$x:ident, $y:ident| $body:expr) => {
            match ty {
                Int::U16 => each2(r, m, [d, a, b], |$x: u16, $y: u16| $body),
                Int::S16 => each2(r, m, [d, a, b], |$x: i16, $y: i16| $body),
                Int::U32 => each2(r, m, [d, a, b], |$x: u32, $y: u32| $body),
                Int::S32 => each2(r, m, [d, a, b], |$x: i32, $y: i32| $body),
                Int::U64 => each2(r, m, [d, a, b], |$x: u64, $y: u64| $body),
                Int::S64 => each2(r, m, [d, a, b], |$x: i64, $y: i64| $body),
            }
        };
    }
    macro_rules! by_function {
        ($unsigned:ident, $signed:ident) => {
            match ty {
                Int::U16 => each2(r, m, [d, a, b], w16::$unsigned),
                Int::S16 => each2(r, m, [d, a, b], w16::$signed),
                Int::U32 => each2(r, m, [d, a, b], w32::$unsigned),
                Int::S32 => each2(r, m, [d, a, b], w32::$signed),
                Int::U64 => each2(r, m, [d, a, b], w64::$unsigned),
                Int::S64 => each2(r, m, [d, a, b], w64::$signed),
            }
        };
    }
    let signed = ty.signed();
    match f {
        IntBin::Add => by_width!(|x, y| x.wrapping_add(y)),
        IntBin::Sub => by_width!(|x, y| x.wrapping_sub(y)),
        IntBin::MulLo => by_width!(|x, y| x.wrapping_mul(y)),
        IntBin::MulHi => by_function!(mul_hi_u, mul_hi_s),
        IntBin::Mul24Lo => each2(r, m, [d, a, b], |x: u32, y: u32| {
            integer::mul24_lo(x, y, signed)
        }),
        IntBin::Mul24Hi => each2(r, m, [d, a, b], |x: u32, y: u32| {
            integer::mul24_hi(x, y, signed)
        }),
        IntBin::Div => by_function!(div_u, div_s),
        IntBin::Rem => by_function!(rem_u, rem_s),
        IntBin::Min => by_type!(|x, y| x.min(y)),
        IntBin::Max => by_type!(|x, y| x.max(y)),
        IntBin::And => by_width!(|x, y| x & y),
        IntBin::Or => by_width!(|x, y| x | y),
        IntBin::Xor => by_width!(|x, y| x ^ y),
        IntBin::Shl => match ty {
            Int::U16 | Int::S16 => each2(r, m, [d, a, b], w16::shl),
            Int::U32 | Int::S32 => each2(r, m, [d, a, b], w32::shl),
            Int::U64 | Int::S64 => each2(r, m, [d, a, b], w64::shl),
        },
        IntBin::Shr => by_function!(shr_u, shr_s),
        IntBin::AddSat => each2(r, m, [d, a, b], integer::add_sat),
        IntBin::SubSat => each2(r, m, [d, a, b], integer::sub_sat),
        IntBin::Bmsk(distance) => each2(r, m, [d, a, b], |x: u32, y: u32| {
            integer::bmsk(x, y, distance)
        }),
        IntBin::Szext(distance) => each2(r, m, [d, a, b], |x: u32, y: u32| {
            integer::szext(x, y, distance, signed)
        }),
    }
}

fn int_tri(r: &mut Registers, m: u32, f: IntTri, ty: Int, d: Reg, abc: [Reg; 3]) {
    let signed = ty.signed();
    macro_rules! words {
        (|$x:ident, $y:ident, $z:ident| $body:expr) => {
            each3(r, m, d, abc, |$x: u32, $y: u32, $z: u32| $body)
        };
    }
    match f {
        IntTri::MadLo => match ty {
            Int::U16 | Int::S16 => each3(r, m, d, abc, |x: u16, y: u16, z: u16| {
                x.wrapping_mul(y).wrapping_add(z)
            }),
            Int::U32 | Int::S32 => words!(|x, y, z| x.wrapping_mul(y).wrapping_add(z)),
            Int::U64 | Int::S64 => each3(r, m, d, abc, |x: u64, y: u64, z: u64| {
                x.wrapping_mul(y).wrapping_add(z)
            }),
        },
        IntTri::MadHi => match ty {
            Int::U16 => each3(r, m, d, abc, |x: u16, y: u16, z: u16| {
                w16::mul_hi_u(x, y).wrapping_add(z)
            }),
            Int::S16 => each3(r, m, d, abc, |x: u16, y: u16, z: u16| {
                w16::mul_hi_s(x, y).wrapping_add(z)
            }),
            Int::U32 => words!(|x, y, z| w32::mul_hi_u(x, y).wrapping_add(z)),
            Int::S32 => words!(|x, y, z| w32::mul_hi_s(x, y).wrapping_add(z)),
            Int::U64 => each3(r, m, d, abc, |x: u64, y: u64, z: u64| {
                w64::mul_hi_u(x, y).wrapping_add(z)
            }),
            Int::S64 => each3(r, m, d, abc, |x: u64, y: u64, z: u64| {
                w64::mul_hi_s(x, y).wrapping_add(z)
            }),
        },
        IntTri::MadHiSat => words!(|x, y, z| integer::mad_hi_sat(x, y, z)),
        IntTri::Mad24Lo => words!(|x, y, z| integer::mul24_lo(x, y, signed).wrapping_add(z)),
        IntTri::Mad24Hi => words!(|x, y, z| integer::mul24_hi(x, y, signed).wrapping_add(z)),
        IntTri::Mad24HiSat => words!(|x, y, z| integer::mad24_hi_sat(x, y, z)),
        IntTri::Sad => match ty {
            Int::U16 => each3(r, m, d, abc, w16::sad_u),
            Int::S16 => each3(r, m, d, abc, w16::sad_s),
            Int::U32 => each3(r, m, d, abc, w32::sad_u),
            Int::S32 => each3(r, m, d, abc, w32::sad_s),
            Int::U64 => each3(r, m, d, abc, w64::sad_u),
            Int::S64 => each3(r, m, d, abc, w64::sad_s),
        },
        IntTri::Bfe => match ty {
            Int::U64 | Int::S64 => each3(r, m, d, abc, |x: u64, y: u32, z: u32| {
                integer::bfe_b64(x, y, z, signed)
            }),
            _ => words!(|x, y, z| integer::bfe_b32(x, y, z, signed)),
        },
        IntTri::Lop3(table) => words!(|x, y, z| integer::lop3(x, y, z, table)),
        IntTri::ShfL(distance) => words!(|x, y, z| integer::shf_l(x, y, z, distance)),
        IntTri::ShfR(distance) => words!(|x, y, z| integer::shf_r(x, y, z, distance)),
        IntTri::Prmt(permutation) => words!(|x, y, z| integer::prmt(x, y, z, permutation)),
        IntTri::Fns => words!(|x, y, z| integer::fns(x, y, z as i32)),
        IntTri::Dp4a { signs } => words!(|x, y, z| integer::dp4a(x, y, z, signs.0, signs.1)),
        IntTri::Dp2a { signs, upper } => {
            words!(|x, y, z| integer::dp2a(x, y, z, signs.0, signs.1, upper))
        }
    }
}

fn mul_wide(r: &mut Registers, m: u32, ty: Int, [d, a, b, c]: [Reg; 4]) {
    macro_rules! wide {
        ($narrow:ty, $wide:ty, $product:expr) => {
            if c == NONE {
                each2(r, m, [d, a, b], |x: $narrow, y: $narrow| $product(x, y));
            } else {
                each3(r, m, d, [a, b, c], |x: $narrow, y: $narrow, z: $wide| {
                    let product: $wide = $product(x, y);
                    product.wrapping_add(z)
                });
            }
        };
    }
    match ty {
        Int::U16 => wide!(u16, u32, w16::mul_wide_u),
        Int::S16 => wide!(u16, u32, w16::mul_wide_s),
        Int::U32 => wide!(u32, u64, w32::mul_wide_u),
        Int::S32 => wide!(u32, u64, w32::mul_wide_s),
        // There is no wider register.
        Int::U64 | Int::S64 => {}
    }
}

fn bfi(r: &mut Registers, m: u32, wide: bool, [d, a, b, position, length]: [Reg; 5]) {
    let (position, length) = (*r.row::<u32>(position), *r.row::<u32>(length));
    for i in lanes(m) {
        if wide {
            let value = integer::bfi_b64(
                r.row::<u64>(a)[i],
                r.row::<u64>(b)[i],
                position[i],
                length[i],
            );
            r.row_mut::<u64>(d)[i] = value;
        } else {
            let value = integer::bfi_b32(
                r.row::<u32>(a)[i],
                r.row::<u32>(b)[i],
                position[i],
                length[i],
            );
            r.row_mut::<u32>(d)[i] = value;
        }
    }
}

/// One lane of an extended addition: the sum and the carry out.
macro_rules! carry_lane {
    ($name:ident, $word:ty, $width:ident) => {
        fn $name(f: CarryOp, a: $word, b: $word, c: $word, carry: bool) -> ($word, bool) {
            let add = |x: $word, y: $word| {
                let (sum, first) = x.overflowing_add(y);
                let (sum, second) = sum.overflowing_add(<$word>::from(carry));
                (sum, first | second)
            };
            match f {
                CarryOp::Add => add(a, b),
                // As in hardware, a difference leaves the opposite of the borrow: a + !b + 1.
                CarryOp::Sub => {
                    let (rest, first) = a.overflowing_sub(b);
                    let (rest, second) = rest.overflowing_sub(<$word>::from(!carry));
                    (rest, !(first | second))
                }
                CarryOp::MadLo { .. } => add(a.wrapping_mul(b), c),
                CarryOp::MadHi { signed: true } => add($width::mul_hi_s(a, b), c),
                CarryOp::MadHi { signed: false } => add($width::mul_hi_u(a, b), c),
            }
        }
    };
}
carry_lane!(carry_lane_32, u32, w32);
carry_lane!(carry_lane_64, u64, w64);

fn carry(
    r: &mut Registers,
    m: u32,
    f: CarryOp,
    wide: bool,
    (take, give): (bool, bool),
    [d, a, b, c]: [Reg; 4],
) {
    let c = if c == NONE { a } else { c };
    let flags = r.carry;
    let mut out = flags;
    for i in lanes(m) {
        // A difference without a flag to take borrows nothing.
        let flag = if take {
            flags >> i & 1 == 1
        } else {
            f == CarryOp::Sub
        };
        let over = if wide {
            let (value, over) = carry_lane_64(
                f,
                r.row::<u64>(a)[i],
                r.row::<u64>(b)[i],
                r.row::<u64>(c)[i],
                flag,
            );
            r.row_mut::<u64>(d)[i] = value;
            over
        } else {
            let (value, over) = carry_lane_32(
                f,
                r.row::<u32>(a)[i],
                r.row::<u32>(b)[i],
                r.row::<u32>(c)[i],
                flag,
            );
            r.row_mut::<u32>(d)[i] = value;
            over
        };
        out = out & !(1 << i) | u32::from(over) << i;
    }
    if give {
        r.carry = out;
    }
}

fn float_un(r: &mut Registers, m: u32, f: FloatUn, ty: Float, mode: Mode, d: Reg, a: Reg) {
    let ftz = mode.ftz;
    match ty {
        Float::F64 => match f {
            FloatUn::Neg => each1(r, m, d, a, |x: f64| -x),
            FloatUn::Abs => each1(r, m, d, a, f64::abs),
            FloatUn::Rcp => each1(r, m, d, a, |x: f64| float::rcp_f64(x, mode.rounding)),
            FloatUn::Sqrt => each1(r, m, d, a, |x: f64| float::sqrt_f64(x, mode.rounding)),
            FloatUn::RcpApprox => each1(r, m, d, a, special::rcp_approx_f64),
            _ if ftz => each1(r, m, d, a, special::rsqrt_approx_f64),
            _ => each1(r, m, d, a, special::rsqrt_full_f64),
        },
        Float::F32 => match f {
            FloatUn::Neg => each1(r, m, d, a, |x: f32| float::neg_f32(x, ftz)),
            FloatUn::Abs => each1(r, m, d, a, |x: f32| float::abs_f32(x, ftz)),
            FloatUn::Rcp => each1(r, m, d, a, |x: f32| float::rcp_f32(x, mode)),
            FloatUn::Sqrt => each1(r, m, d, a, |x: f32| float::sqrt_f32(x, mode)),
            FloatUn::RcpApprox => each1(r, m, d, a, |x: f32| special::rcp_approx_f32(x, ftz)),
            FloatUn::SqrtApprox => each1(r, m, d, a, |x: f32| special::sqrt_approx_f32(x, ftz)),
            FloatUn::RsqrtApprox => each1(r, m, d, a, |x: f32| special::rsqrt_approx_f32(x, ftz)),
            FloatUn::Ex2 => each1(r, m, d, a, |x: f32| special::ex2_approx_f32(x, ftz)),
            FloatUn::Lg2 => each1(r, m, d, a, |x: f32| special::lg2_approx_f32(x, ftz)),
            FloatUn::Sin => each1(r, m, d, a, |x: f32| special::sin_approx_f32(x, ftz)),
            FloatUn::Cos => each1(r, m, d, a, |x: f32| special::cos_approx_f32(x, ftz)),
            FloatUn::Tanh => each1(r, m, d, a, special::tanh_approx_f32),
        },
        _ => {
            let half = half_of(ty);
            let one = |x: u16| match f {
                FloatUn::Neg => half.neg(x, ftz),
                FloatUn::Abs => half.abs(x, ftz),
                FloatUn::Ex2 => half.ex2(x, ftz),
                _ => half.tanh(x),
            };
            if pairs(ty) {
                each1(r, m, d, a, |x: u32| half::packed1(x, one));
            } else {
                each1(r, m, d, a, one);
            }
        }
    }
}

/// `d = f(a)` in the lanes of a mask, one after the other.
fn each1<D: Lane, A: Lane>(r: &mut Registers, m: u32, d: Reg, a: Reg, f: impl Fn(A) -> D) {
    for i in lanes(m) {
        let value = f(A::load(r.row::<A>(a)[i]));
        r.row_mut::<D>(d)[i] = value.store();
    }
}

/// `d = f(a, b)`, likewise.
fn each2<D: Lane, A: Lane, B: Lane>(
    r: &mut Registers,
    m: u32,
    [d, a, b]: [Reg; 3],
    f: impl Fn(A, B) -> D,
) {
    for i in lanes(m) {
        let value = f(A::load(r.row::<A>(a)[i]), B::load(r.row::<B>(b)[i]));
        r.row_mut::<D>(d)[i] = value.store();
    }
}

/// `d = f(a, b, c)`, likewise.
fn each3<D: Lane, A: Lane, B: Lane, C: Lane>(
    r: &mut Registers,
    m: u32,
    d: Reg,
    [a, b, c]: [Reg; 3],
    f: impl Fn(A, B, C) -> D,
) {
    for i in lanes(m) {
        let (x, y, z) = (r.row::<A>(a)[i], r.row::<B>(b)[i], r.row::<C>(c)[i]);
        let value = f(A::load(x), B::load(y), C::load(z));
        r.row_mut::<D>(d)[i] = value.store();
    }
}

fn float_bin(r: &mut Registers, m: u32, f: FloatBin, ty: Float, mode: Mode, [d, a, b]: [Reg; 3]) {
    match ty {
        Float::F64 => {
            macro_rules! rounded {
                ($function:path) => {
                    each2(r, m, [d, a, b], |x: f64, y: f64| {
                        $function(x, y, mode.rounding)
                    })
                };
            }
            match f {
                FloatBin::Add => rounded!(float::add_f64),
                FloatBin::Sub => rounded!(float::sub_f64),
                FloatBin::Mul => rounded!(float::mul_f64),
                FloatBin::Div | FloatBin::DivApprox | FloatBin::DivFull => rounded!(float::div_f64),
                FloatBin::Min(options) => {
                    each2(r, m, [d, a, b], |x, y| compare::min_f64(x, y, options))
                }
                FloatBin::Max(options) => {
                    each2(r, m, [d, a, b], |x, y| compare::max_f64(x, y, options))
                }
                FloatBin::Copysign => each2(r, m, [d, a, b], float::copysign_f64),
            }
        }
        Float::F32 => match f {
            FloatBin::Add => {
                each2(r, m, [d, a, b], |x: f32, y: f32| float::add_f32(x, y, mode));
            }
            FloatBin::Sub => {
                each2(r, m, [d, a, b], |x: f32, y: f32| float::sub_f32(x, y, mode));
            }
            FloatBin::Mul => {
                each2(r, m, [d, a, b], |x: f32, y: f32| float::mul_f32(x, y, mode));
            }
            FloatBin::Div => {
                each2(r, m, [d, a, b], |x: f32, y: f32| float::div_f32(x, y, mode));
            }
            FloatBin::DivApprox => each2(r, m, [d, a, b], |x, y| {
                special::div_approx_f32(x, y, mode.ftz)
            }),
            FloatBin::DivFull => each2(r, m, [d, a, b], |x, y| {
                special::div_full_f32(x, y, mode.ftz)
            }),
            FloatBin::Min(options) => {
                each2(r, m, [d, a, b], |x, y| compare::min_f32(x, y, options))
            }
            FloatBin::Max(options) => {
                each2(r, m, [d, a, b], |x, y| compare::max_f32(x, y, options))
            }
            FloatBin::Copysign => each2(r, m, [d, a, b], float::copysign_f32),
        },
        _ => {
            let (half, mode) = (half_of(ty), HalfMode::from(mode));
            let one = |x: u16, y: u16| match f {
                FloatBin::Add => half.add(x, y, mode),
                FloatBin::Sub => half.sub(x, y, mode),
                FloatBin::Mul => half.mul(x, y, mode),
                FloatBin::Min(options) => half.min(x, y, options),
                FloatBin::Max(options) => half.max(x, y, options),
                // Refused when the kernel was decoded.
                FloatBin::Div | FloatBin::DivApprox | FloatBin::DivFull | FloatBin::Copysign => {
                    half::CANONICAL
                }
            };
            if pairs(ty) {
                each2(r, m, [d, a, b], |x: u32, y: u32| half::packed2(x, y, one));
            } else {
                each2(r, m, [d, a, b], one);
            }
        }
    }
}

fn fma(r: &mut Registers, m: u32, ty: Float, mode: Mode, relu: bool, d: Reg, abc: [Reg; 3]) {
    match ty {
        Float::F64 => each3(r, m, d, abc, |x: f64, y: f64, z: f64| {
            float::fma_f64(x, y, z, mode.rounding)
        }),
        Float::F32 => {
            each3(r, m, d, abc, |x: f32, y: f32, z: f32| {
                float::fma_f32(x, y, z, mode)
            });
        }
        _ => {
            let half = half_of(ty);
            let mode = HalfMode {
                relu,
                ..HalfMode::from(mode)
            };
            let one = |x: u16, y: u16, z: u16| half.fma(x, y, z, mode);
            for i in lanes(m) {
                let [x, y, z] = abc.map(|reg| r.row::<u32>(reg)[i]);
                r.row_mut::<u32>(d)[i] = if pairs(ty) {
                    half::packed3(x, y, z, one)
                } else {
                    u32::from(one(x as u16, y as u16, z as u16))
                };
            }
        }
    }
}

/// The lanes where a comparison holds; of packed pairs, for the lower and the upper halves.
fn comparison(
    r: &Registers,
    cmp: Comparison,
    ty: Compared,
    ftz: bool,
    a: Reg,
    b: Reg,
) -> (u32, u32) {
    // One loop for each comparison, since a `match` within a loop does not vectorise.
    macro_rules! integers {
        ($ty:ty) => {
            match cmp {
                Comparison::Eq | Comparison::Equ => r.test2(a, b, |x: $ty, y| x == y),
                Comparison::Ne | Comparison::Neu => r.test2(a, b, |x: $ty, y| x != y),
                Comparison::Lt | Comparison::Ltu => r.test2(a, b, |x: $ty, y| x < y),
                Comparison::Le | Comparison::Leu => r.test2(a, b, |x: $ty, y| x <= y),
                Comparison::Gt | Comparison::Gtu => r.test2(a, b, |x: $ty, y| x > y),
                Comparison::Ge | Comparison::Geu => r.test2(a, b, |x: $ty, y| x >= y),
                Comparison::Num => u32::MAX,
                Comparison::Nan => 0,
            }
        };
    }
    let bits = match ty {
        Compared::Int(Int::U16) => integers!(u16),
        Compared::Int(Int::S16) => integers!(i16),
        Compared::Int(Int::U32) => integers!(u32),
        Compared::Int(Int::S32) => integers!(i32),
        Compared::Int(Int::U64) => integers!(u64),
        Compared::Int(Int::S64) => integers!(i64),
        Compared::Float(Float::F32) => r.test2(a, b, |x, y| compare::compare_f32(cmp, x, y, ftz)),
        Compared::Float(Float::F64) => r.test2(a, b, |x, y| compare::compare_f64(cmp, x, y)),
        Compared::Float(ty) => {
            let half = half_of(ty);
            let low = r.test2(a, b, |x: u32, y| half.compare(cmp, x as u16, y as u16, ftz));
            let high = r.test2(a, b, |x: u32, y| {
                half.compare(cmp, (x >> 16) as u16, (y >> 16) as u16, ftz)
            });
            return (low, high);
        }
    };
    (bits, 0)
}

fn conversion(
    r: &mut Registers,
    m: u32,
    (how, wide_result, wide_source): (Convert, bool, bool),
    d: Reg,
    a: Reg,
    b: Reg,
) {
    match how {
        Convert::One {
            to,
            from,
            options,
            fill,
        } => {
            for i in lanes(m) {
                let bits = if wide_source {
                    r.row::<u64>(a)[i]
                } else {
                    u64::from(r.row::<u32>(a)[i])
                };
                let value = fill.apply(convert::convert(to, from, bits, options));
                if wide_result {
                    r.row_mut::<u64>(d)[i] = value;
                } else {
                    r.row_mut::<u32>(d)[i] = value as u32;
                }
            }
        }
        Convert::Pair { to, options } => {
            let part =
                |bits: u32| convert::convert(to, Number::F32, u64::from(bits), options) as u32;
            let width = if matches!(to, Number::F16 | Number::Bf16) {
                16
            } else {
                8
            };
            for i in lanes(m) {
                let (upper, lower) = (part(r.row::<u32>(a)[i]), part(r.row::<u32>(b)[i]));
                r.row_mut::<u32>(d)[i] = upper << width | lower;
            }
        }
        Convert::Unpair { from, relu } => {
            let options = convert::Conversion {
                relu,
                ..Default::default()
            };
            let part = |bits: u32| {
                convert::convert(Number::F16, from, u64::from(bits & 0xff), options) as u32
            };
            for i in lanes(m) {
                let both = r.row::<u32>(a)[i];
                r.row_mut::<u32>(d)[i] = part(both >> 8) << 16 | part(both);
            }
        }
    }
}

fn pack(r: &mut Registers, m: u32, bits: u32, d: Reg, parts: &[Reg]) {
    match (bits, parts) {
        (32, &[low, high]) => each2(r, m, [d, low, high], |x: u32, y: u32| {
            u64::from(y) << 32 | u64::from(x)
        }),
        (16, &[low, high]) => each2(r, m, [d, low, high], |x: u32, y: u32| y << 16 | x & 0xffff),
        (64, &[low, high]) => {
            // In two steps, for the low part may be what is written first.
            let high = *r.row::<u64>(high);
            each1(r, m, d, low, |x: u64| x);
            r.set(m, d + 2, |i| high[i]);
        }
        _ => {
            let mut value = [0u64; LANES];
            for (index, &part) in parts.iter().enumerate() {
                let row = r.row::<u32>(part);
                for i in 0..LANES {
                    value[i] |= (u64::from(row[i]) & ((1 << bits) - 1)) << (bits * index as u32);
                }
            }
            if bits * parts.len() as u32 > 32 {
                r.set(m, d, |i| value[i]);
            } else {
                r.set(m, d, |i| value[i] as u32);
            }
        }
    }
}

fn unpack(r: &mut Registers, m: u32, bits: u32, a: Reg, parts: &[Reg]) {
    if bits == 64 {
        let halves = [*r.row::<u64>(a), *r.row::<u64>(a + 2)];
        for (&part, half) in parts.iter().zip(halves) {
            r.set(m, part, |i| half[i]);
        }
        return;
    }
    let mut source = [0u64; LANES];
    if bits * parts.len() as u32 > 32 {
        source = *r.row::<u64>(a);
    } else {
        let row = r.row::<u32>(a);
        for i in 0..LANES {
            source[i] = u64::from(row[i]);
        }
    }
    for (index, &part) in parts.iter().enumerate() {
        if part != NONE {
            let (shift, keep) = (bits * index as u32, (1u64 << bits) - 1);
            r.set(m, part, |i| (source[i] >> shift & keep) as u32);
        }
    }
}
