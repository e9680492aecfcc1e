//! `programs/integer.cu`.

use vgpu::arith::integer::{self as reference, Permutation};

use crate::{
    Test,
    common::device::{Gpu, Operands},
    inputs,
};

pub(crate) const TESTS: &[Test] = &[
    ("operators_u8", 75, |gpu| operators_u8(gpu)),
    ("operators_s8", 75, |gpu| operators_s8(gpu)),
    ("operators_u16", 75, |gpu| operators_u16(gpu)),
    ("operators_s16", 75, |gpu| operators_s16(gpu)),
    ("operators_u32", 75, |gpu| operators_u32(gpu)),
    ("operators_s32", 75, |gpu| operators_s32(gpu)),
    ("operators_u64", 75, |gpu| operators_u64(gpu)),
    ("operators_s64", 75, |gpu| operators_s64(gpu)),
    ("high_products", 75, high_products),
    ("multiply_add_forms", 75, multiply_add_forms),
    ("counting_bits", 75, counting_bits),
    ("bit_fields", 75, bit_fields),
    ("shifts", 75, shifts),
    ("permuted_bytes", 75, permuted_bytes),
    ("truth_tables", 75, truth_tables),
    ("byte_dot_products", 75, byte_dot_products),
    ("wide_integers", 75, wide_integers),
    ("carries", 75, carries),
    ("selection", 75, selection),
    ("nth_set_bit", 75, nth_set_bit),
];

type Ints = Operands<u64>;

macro_rules! operators {
    ($($name:ident: $ty:ty, $unsigned:ty;)+) => { $(
        fn $name(gpu: &Gpu) {
            gpu.map(stringify!($name), &inputs::integers(), |x: Ints| {
                let (a, b) = (x.a as $ty, x.b as $ty);
                let (divisor, by) = (b | 1, (x.c % u64::from(<$ty>::BITS)) as u32);
                let values = [
                    a.wrapping_add(b), a.wrapping_sub(b), a.wrapping_mul(b), a.wrapping_div(divisor),
                    a.wrapping_rem(divisor), a.min(b), a.max(b), a & b, a | b, a ^ b, !a, a << by, a >> by,
                    a.wrapping_neg(),
                ];
                let mut out = [0; 16];
                for (out, value) in out.iter_mut().zip(values) {
                    *out = u64::from(value as $unsigned);
                }
                out[14] = (a <= b).into();
                out[15] = u64::from(a == b) + 2 * u64::from(a >= b);
                out
            });
        }
    )+ };
}

operators! {
    operators_u8: u8, u8;
    operators_s8: i8, u8;
    operators_u16: u16, u16;
    operators_s16: i16, u16;
    operators_u32: u32, u32;
    operators_s32: i32, u32;
    operators_u64: u64, u64;
    operators_s64: i64, u64;
}

fn high_products(gpu: &Gpu) {
    gpu.map("high_products", &inputs::integers(), |x: Ints| {
        let (a, b) = (x.a as u32, x.b as u32);
        let (sa, sb) = (a as i32, b as i32);
        [
            (u64::from(a) * u64::from(b)) >> 32,
            u64::from(((i64::from(sa) * i64::from(sb)) >> 32) as u32),
            ((u128::from(x.a) * u128::from(x.b)) >> 64) as u64,
            ((i128::from(x.a as i64) * i128::from(x.b as i64)) >> 64) as u64,
            u64::from(a) * u64::from(b),
            (i64::from(sa) * i64::from(sb)) as u64,
        ]
    });
}

fn multiply_add_forms(gpu: &Gpu) {
    gpu.map("multiply_add_forms", &inputs::integers(), |x: Ints| {
        let (a, b, c) = (x.a as u32, x.b as u32, x.c as u32);
        let (sa, sb, sc) = (a as i32, b as i32, c as i32);
        let signed = i64::from(sa) * i64::from(sb);
        let unsigned = u64::from(a) * u64::from(b);
        let low = |v: u32| u64::from(v & 0xff_ffff);
        let signed24 = |v: u32| i64::from((v << 8) as i32 >> 8);
        [
            a.wrapping_mul(b).wrapping_add(c).into(),
            ((signed >> 32) as u32).wrapping_add(c).into(),
            ((unsigned >> 32) as u32).wrapping_add(c).into(),
            u64::from(((signed >> 32) as i32).saturating_add(sc) as u32),
            (signed as u64).wrapping_add(x.c),
            unsigned.wrapping_add(x.c),
            u64::from((signed24(a) * signed24(b)) as u32),
            u64::from(((low(a) * low(b)) >> 16) as u32),
            u64::from(((low(a) * low(b)) as u32).wrapping_add(c)),
            u64::from(c.wrapping_add(sa.abs_diff(sb))),
            x.c.wrapping_add(x.a.abs_diff(x.b)),
            u64::from(sa.saturating_add(sb) as u32),
            u64::from(sa.saturating_sub(sb) as u32),
            x.a.wrapping_mul(x.b).wrapping_add(x.c),
        ]
    });
}

fn counting_bits(gpu: &Gpu) {
    gpu.map("counting_bits", &inputs::integers(), |x: Ints| {
        let a = x.a as u32;
        let first = |zeros: u32, width: u32| {
            if zeros == width {
                0
            } else {
                u64::from(zeros) + 1
            }
        };
        let find = |v: u64, width: u32| match v.checked_ilog2() {
            Some(bit) => (u64::from(bit), u64::from(width - 1 - bit)),
            None => (0xffff_ffff, 0xffff_ffff),
        };
        let magnitude32 = if (a as i32) < 0 { !a } else { a };
        let magnitude64 = if (x.a as i64) < 0 { !x.a } else { x.a };
        [
            a.count_ones().into(),
            x.a.count_ones().into(),
            a.leading_zeros().into(),
            x.a.leading_zeros().into(),
            a.reverse_bits().into(),
            x.a.reverse_bits(),
            first(a.trailing_zeros(), 32),
            first(x.a.trailing_zeros(), 64),
            find(a.into(), 32).0,
            find(magnitude32.into(), 32).0,
            find(a.into(), 32).1,
            find(magnitude64, 64).0,
            find(x.a, 64).1,
            !x.a,
        ]
    });
}

fn bit_fields(gpu: &Gpu) {
    gpu.map("bit_fields", &inputs::integers(), |x: Ints| {
        let (a, b) = (x.a as u32, x.b as u32);
        let (at, length) = ((x.c & 63) as u32, (x.c >> 8 & 63) as u32);
        [
            reference::bfe_b32(a, at, length, false).into(),
            reference::bfe_b32(a, at, length, true).into(),
            reference::bfe_b64(x.a, at, length, false),
            reference::bfe_b64(x.a, at, length, true),
            reference::bfi_b32(a, b, at, length).into(),
            reference::bfi_b64(x.a, x.b, at, length),
        ]
    });
}

fn shifts(gpu: &Gpu) {
    gpu.map("shifts", &inputs::integers(), |x: Ints| {
        let (a, b, by) = (x.a as u32, x.b as u32, (x.c % 80) as u32);
        let both = u128::from(u64::from(b) << 32 | u64::from(a));
        let left = |by: u32| u64::from((both << by >> 32) as u32);
        let right = |by: u32| u64::from((both >> by) as u32);
        [
            left(by % 32),
            left(by.min(32)),
            right(by % 32),
            right(by.min(32)),
            a.checked_shl(by).unwrap_or(0).into(),
            a.checked_shr(by).unwrap_or(0).into(),
            u64::from((a as i32 >> by.min(31)) as u32),
            x.a.checked_shl(by).unwrap_or(0),
            x.a.checked_shr(by).unwrap_or(0),
            (x.a as i64 >> by.min(63)) as u64,
        ]
    });
}

fn permuted_bytes(gpu: &Gpu) {
    gpu.map("permuted_bytes", &inputs::integers(), |x: Ints| {
        let (a, b, c) = (x.a as u32, x.b as u32, x.c as u32 & 0xffff);
        let by = |mode| u64::from(reference::prmt(a, b, c, mode));
        [
            // The intrinsic ignores the bit that spreads a sign.
            reference::prmt(a, b, c & 0x7777, Permutation::Index).into(),
            by(Permutation::Index),
            by(Permutation::Forward4),
            by(Permutation::Backward4),
            by(Permutation::Replicate8),
            by(Permutation::EdgeLeft),
            by(Permutation::EdgeRight),
            by(Permutation::Replicate16),
        ]
    });
}

fn truth_tables(gpu: &Gpu) {
    gpu.map("truth_tables", &inputs::integers(), |x: Ints| {
        let (a, b, c) = (x.a as u32, x.b as u32, x.c as u32);
        // 0x96 is parity, 0xe8 the majority, 0xca a choice by a; 0x1b is none of the known ones.
        [
            a ^ b ^ c,
            a & b | a & c | b & c,
            reference::lop3(a, b, c, 0x1b),
            a & b | !a & c,
        ]
        .map(u64::from)
    });
}

fn byte_dot_products(gpu: &Gpu) {
    gpu.map("byte_dot_products", &inputs::integers(), |x: Ints| {
        let (a, b, c) = (x.a as u32, x.b as u32, x.c as u32);
        let four = |signed| {
            (0..4).fold(c, |sum, i| {
                let (p, q) = ((a >> (8 * i)) as u8, (b >> (8 * i)) as u8);
                let product = if signed {
                    i32::from(p as i8) * i32::from(q as i8)
                } else {
                    i32::from(p) * i32::from(q)
                };
                sum.wrapping_add(product as u32)
            })
        };
        let two = |signed, upper: u32| {
            (0..2).fold(c, |sum, i| {
                let (p, q) = ((a >> (16 * i)) as u16, (b >> (8 * i + 16 * upper)) as u8);
                let product = if signed {
                    i32::from(p as i16) * i32::from(q as i8)
                } else {
                    i32::from(p) * i32::from(q)
                };
                sum.wrapping_add(product as u32)
            })
        };
        [
            four(true),
            four(false),
            two(true, 0),
            two(false, 0),
            two(true, 1),
            two(false, 1),
        ]
        .map(u64::from)
    });
}

fn wide_integers(gpu: &Gpu) {
    gpu.map("wide_integers", &inputs::integers(), |x: Ints| {
        let a = u128::from(x.a) << 64 | u128::from(x.b);
        let (b, c) = (u128::from(x.c | 1), u128::from(x.c));
        let shifted = (a as i128 >> (x.c % 128)) as u128;
        let values = [
            a.wrapping_add(c << 60),
            a.wrapping_mul(b),
            a / b,
            a % b,
            shifted,
            a.wrapping_sub(c << 70),
        ];
        std::array::from_fn::<_, 12, _>(|i| (values[i / 2] >> (64 * (i % 2))) as u64)
    });
}

fn carries(gpu: &Gpu) {
    gpu.map("carries", &inputs::integers(), |x: Ints| {
        let (a, b, c) = (x.a as u32, x.b as u32, x.c as u32);
        let (sum, carry) = x.a.overflowing_add(x.b);
        let (difference, borrow) = x.a.overflowing_sub(x.b);
        // The low and the high word of the product, each plus c, with the carry between them.
        let product = u64::from(a) * u64::from(b);
        let (low, carry_low) = (product as u32).overflowing_add(c);
        let high = (product >> 32) + u64::from(c) + u64::from(carry_low);
        let first = u64::from(a) + u64::from(b);
        let second = u64::from(b) + u64::from(c) + (first >> 32);
        let third = c.wrapping_add(a).wrapping_add((second >> 32) as u32);
        [
            sum,
            x.c.wrapping_add(carry.into()),
            difference,
            x.c.wrapping_sub(borrow.into()),
            low.into(),
            u64::from(high as u32),
            high >> 32,
            u64::from(first as u32) ^ u64::from(second as u32) << 16 ^ u64::from(third) << 32,
            u64::from(a >= b),
            4 - u64::from(first >> 32 == 0),
        ]
    });
}

fn selection(gpu: &Gpu) {
    gpu.map("selection", &inputs::integers(), |x: Ints| {
        let (a, b) = (x.a as u32, x.b as u32);
        let (sa, sb) = (a as i32, b as i32);
        [
            if a < b { 1 } else { 6 },
            if sa >= sb && a != 0 { a } else { b }.into(),
            if a > b { 7 } else { 9 },
            if sb >= 0 { a } else { b }.into(),
            if sa > sb { 0xffff_ffff } else { 0 },
            u64::from((a <= b) == (a < b)),
            if sa <= sb { 1f32.to_bits().into() } else { 0 },
            u64::from(a & 1 == 0),
        ]
    });
}

fn nth_set_bit(gpu: &Gpu) {
    gpu.map("nth_set_bit", &inputs::integers(), |x: Ints| {
        let a = x.a as u32;
        let third = (0..32)
            .filter(|bit| a >> bit & 1 == 1)
            .nth(2)
            .unwrap_or(0xffff_ffff);
        [
            reference::fns(a, (x.b & 31) as u32, (x.c % 9) as i32 - 4).into(),
            third,
        ]
    });
}
