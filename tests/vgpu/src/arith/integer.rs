//! Instructions on integers and bits.
//!
//! Registers are passed as unsigned words with the sign in the instruction. What wraps, wraps. Division by zero is
//! not defined by PTX; here it gives what devices give: all ones for the quotient, the dividend for the remainder.

/// Generates the signed and unsigned forms for one width.
macro_rules! widths {
    ($($module:ident: $unsigned:ty, $signed:ty, $wide_unsigned:ty, $wide_signed:ty;)+) => { $(
        /// The instructions of one width.
        pub mod $module {
            /// `mul.hi`, unsigned.
            #[inline(always)]
            pub fn mul_hi_u(a: $unsigned, b: $unsigned) -> $unsigned {
                ((<$wide_unsigned>::from(a) * <$wide_unsigned>::from(b)) >> <$unsigned>::BITS) as $unsigned
            }

            /// `mul.hi`, signed.
            #[inline(always)]
            pub fn mul_hi_s(a: $unsigned, b: $unsigned) -> $unsigned {
                let product = <$wide_signed>::from(a as $signed) * <$wide_signed>::from(b as $signed);
                (product >> <$unsigned>::BITS) as $unsigned
            }

            /// `mul.wide`, unsigned.
            #[inline(always)]
            pub fn mul_wide_u(a: $unsigned, b: $unsigned) -> $wide_unsigned {
                <$wide_unsigned>::from(a) * <$wide_unsigned>::from(b)
            }

            /// `mul.wide`, signed.
            #[inline(always)]
            pub fn mul_wide_s(a: $unsigned, b: $unsigned) -> $wide_unsigned {
                (<$wide_signed>::from(a as $signed) * <$wide_signed>::from(b as $signed)) as $wide_unsigned
            }

            /// `div`, unsigned.
            #[inline(always)]
            pub fn div_u(a: $unsigned, b: $unsigned) -> $unsigned {
                a.checked_div(b).unwrap_or(<$unsigned>::MAX)
            }

            /// `div`, signed; the least number over -1 wraps.
            #[inline(always)]
            pub fn div_s(a: $unsigned, b: $unsigned) -> $unsigned {
                if b == 0 {
                    return <$unsigned>::MAX;
                }
                (a as $signed).wrapping_div(b as $signed) as $unsigned
            }

            /// `rem`, unsigned.
            #[inline(always)]
            pub fn rem_u(a: $unsigned, b: $unsigned) -> $unsigned {
                a.checked_rem(b).unwrap_or(a)
            }

            /// `rem`, signed.
            #[inline(always)]
            pub fn rem_s(a: $unsigned, b: $unsigned) -> $unsigned {
                if b == 0 {
                    return a;
                }
                (a as $signed).wrapping_rem(b as $signed) as $unsigned
            }

            /// `shl`: a distance past the width gives zero.
            #[inline(always)]
            pub fn shl(a: $unsigned, by: u32) -> $unsigned {
                if by < <$unsigned>::BITS { a << by } else { 0 }
            }

            /// `shr`, unsigned.
            #[inline(always)]
            pub fn shr_u(a: $unsigned, by: u32) -> $unsigned {
                if by < <$unsigned>::BITS { a >> by } else { 0 }
            }

            /// `shr`, signed: a distance past the width leaves the sign.
            #[inline(always)]
            pub fn shr_s(a: $unsigned, by: u32) -> $unsigned {
                (a as $signed >> by.min(<$unsigned>::BITS - 1)) as $unsigned
            }

            /// `sad`, unsigned: `c + |a - b|`.
            #[inline(always)]
            pub fn sad_u(a: $unsigned, b: $unsigned, c: $unsigned) -> $unsigned {
                c.wrapping_add(a.abs_diff(b))
            }

            /// `sad`, signed.
            #[inline(always)]
            pub fn sad_s(a: $unsigned, b: $unsigned, c: $unsigned) -> $unsigned {
                c.wrapping_add((a as $signed).abs_diff(b as $signed))
            }

            /// `abs`: of the least number, itself.
            #[inline(always)]
            pub fn abs(a: $unsigned) -> $unsigned {
                (a as $signed).wrapping_abs() as $unsigned
            }
        }
    )+ };
}

widths! {
    w16: u16, i16, u32, i32;
    w32: u32, i32, u64, i64;
    w64: u64, i64, u128, i128;
}

/// `add.sat.s32`.
#[inline(always)]
pub fn add_sat(a: u32, b: u32) -> u32 {
    (a as i32).saturating_add(b as i32) as u32
}

/// `sub.sat.s32`.
#[inline(always)]
pub fn sub_sat(a: u32, b: u32) -> u32 {
    (a as i32).saturating_sub(b as i32) as u32
}

/// `mad.hi.sat.s32`.
#[inline(always)]
pub fn mad_hi_sat(a: u32, b: u32, c: u32) -> u32 {
    add_sat(w32::mul_hi_s(a, b), c)
}

/// The lower 24 bits with or without their sign.
#[inline(always)]
fn low24(a: u32, signed: bool) -> i64 {
    let unsigned = a & 0x00ff_ffff;
    if signed {
        i64::from((unsigned << 8) as i32 >> 8)
    } else {
        unsigned.into()
    }
}

/// `mul24.lo`: bits 0 to 31 of the 48-bit product.
#[inline(always)]
pub fn mul24_lo(a: u32, b: u32, signed: bool) -> u32 {
    (low24(a, signed) * low24(b, signed)) as u32
}

/// `mul24.hi`: bits 16 to 47 of the 48-bit product.
#[inline(always)]
pub fn mul24_hi(a: u32, b: u32, signed: bool) -> u32 {
    ((low24(a, signed) * low24(b, signed)) >> 16) as u32
}

/// `mad24.hi.sat.s32`.
#[inline(always)]
pub fn mad24_hi_sat(a: u32, b: u32, c: u32) -> u32 {
    add_sat(mul24_hi(a, b, true), c)
}

/// How a funnel shift takes a distance past 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Distance {
    /// `.clamp`: as 32.
    Clamp,
    /// `.wrap`: modulo 32.
    Wrap,
}

impl Distance {
    #[inline(always)]
    fn of(self, by: u32) -> u32 {
        match self {
            Self::Clamp => by.min(32),
            Self::Wrap => by & 31,
        }
    }
}

/// `shf.l`: the upper word of `high:low` shifted left.
#[inline(always)]
pub fn shf_l(low: u32, high: u32, by: u32, distance: Distance) -> u32 {
    let both = u64::from(high) << 32 | u64::from(low);
    ((both << distance.of(by)) >> 32) as u32
}

/// `shf.r`: the lower word of `high:low` shifted right.
#[inline(always)]
pub fn shf_r(low: u32, high: u32, by: u32, distance: Distance) -> u32 {
    let both = u64::from(high) << 32 | u64::from(low);
    (both >> distance.of(by)) as u32
}

/// `bfe` of 32 or 64 bits: `length` bits from `position`, filled with zeros or with the sign.
#[inline(always)]
fn bfe(a: u64, position: u32, length: u32, width: u32, signed: bool) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    let top = width - 1;
    let sign = signed && length > 0 && a >> (position + length - 1).min(top) & 1 == 1;
    let field = if position < width { a >> position } else { 0 };
    // Bits that the field names past the register's end are the sign's too.
    let present = length.min(width.saturating_sub(position));
    let mask = if present >= 64 {
        u64::MAX
    } else {
        (1 << present) - 1
    };
    (field & mask) | if sign { !mask } else { 0 }
}

/// `bfe.u32` and `bfe.s32`.
#[inline(always)]
pub fn bfe_b32(a: u32, position: u32, length: u32, signed: bool) -> u32 {
    bfe(a.into(), position, length, 32, signed) as u32
}

/// `bfe.u64` and `bfe.s64`.
#[inline(always)]
pub fn bfe_b64(a: u64, position: u32, length: u32, signed: bool) -> u64 {
    bfe(a, position, length, 64, signed)
}

/// `bfi.b32`: the lower `length` bits of `a` into `b` at `position`.
#[inline(always)]
pub fn bfi_b32(a: u32, b: u32, position: u32, length: u32) -> u32 {
    let (position, length) = (position & 0xff, length & 0xff);
    let mask = if length >= 32 {
        u32::MAX
    } else {
        (1 << length) - 1
    };
    let mask = w32::shl(mask, position);
    b & !mask | w32::shl(a, position) & mask
}

/// `bfi.b64`.
#[inline(always)]
pub fn bfi_b64(a: u64, b: u64, position: u32, length: u32) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    let mask = if length >= 64 {
        u64::MAX
    } else {
        (1 << length) - 1
    };
    let mask = w64::shl(mask, position);
    b & !mask | w64::shl(a, position) & mask
}

/// `bmsk`: a mask of `length` bits from `position`.
#[inline(always)]
pub fn bmsk(position: u32, length: u32, distance: Distance) -> u32 {
    let (position, length) = (distance.of(position), distance.of(length));
    let mask = if length >= 32 {
        u32::MAX
    } else {
        (1 << length) - 1
    };
    w32::shl(mask, position)
}

/// `szext`: the lower `bits` of `a`, filled with zeros or with the sign.
#[inline(always)]
pub fn szext(a: u32, bits: u32, distance: Distance, signed: bool) -> u32 {
    let bits = distance.of(bits);
    if bits == 0 {
        0
    } else {
        bfe_b32(a, 0, bits, signed)
    }
}

/// `bfind` of a 32-bit register: the most significant bit that is not a sign bit; `.shiftamt` counts from the top.
#[inline(always)]
pub fn bfind_b32(a: u32, signed: bool, shiftamt: bool) -> u32 {
    let a = if signed && (a as i32) < 0 { !a } else { a };
    match a.checked_ilog2() {
        None => u32::MAX,
        Some(bit) if shiftamt => 31 - bit,
        Some(bit) => bit,
    }
}

/// `bfind` of a 64-bit register.
#[inline(always)]
pub fn bfind_b64(a: u64, signed: bool, shiftamt: bool) -> u32 {
    let a = if signed && (a as i64) < 0 { !a } else { a };
    match a.checked_ilog2() {
        None => u32::MAX,
        Some(bit) if shiftamt => 63 - bit,
        Some(bit) => bit,
    }
}

/// `fns`: the position of the `offset`-th set bit counted from `base`, upwards if positive, downwards if negative;
/// all ones if there is none.
#[inline(always)]
pub fn fns(mask: u32, base: u32, offset: i32) -> u32 {
    if base > 31 {
        return u32::MAX;
    }
    if offset == 0 {
        return if mask >> base & 1 == 1 {
            base
        } else {
            u32::MAX
        };
    }
    let step = offset.signum();
    let mut left = offset.unsigned_abs();
    let mut position = base as i32;
    while (0..32).contains(&position) {
        if mask >> position & 1 == 1 {
            left -= 1;
            if left == 0 {
                return position as u32;
            }
        }
        position += step;
    }
    u32::MAX
}

/// How `prmt` picks bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Permutation {
    /// By four nibbles; the top bit of one spreads the byte's sign.
    Index,
    /// `.f4e`: four bytes forward from the selector.
    Forward4,
    /// `.b4e`: four bytes backward from the selector.
    Backward4,
    /// `.rc8`: one byte four times.
    Replicate8,
    /// `.ecl`: the selector's byte clamps from the left.
    EdgeLeft,
    /// `.ecr`: from the right.
    EdgeRight,
    /// `.rc16`: one half word twice.
    Replicate16,
}

/// `prmt`: bytes picked out of `b:a`.
#[inline(always)]
pub fn prmt(a: u32, b: u32, selector: u32, permutation: Permutation) -> u32 {
    let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
    let s = selector & 3;
    let index: [u32; 4] = match permutation {
        Permutation::Index => [selector, selector >> 4, selector >> 8, selector >> 12],
        Permutation::Forward4 => [s, s + 1, s + 2, s + 3],
        Permutation::Backward4 => [s, s + 7, s + 6, s + 5],
        Permutation::Replicate8 => [s; 4],
        Permutation::EdgeLeft => [s, s.max(1), s.max(2), 3],
        Permutation::EdgeRight => [0, s.min(1), s.min(2), s],
        Permutation::Replicate16 => {
            let first = 2 * (s & 1);
            [first, first + 1, first, first + 1]
        }
    };
    u32::from_le_bytes(index.map(|i| {
        let byte = bytes[(i & 7) as usize];
        if permutation == Permutation::Index && i & 8 != 0 {
            ((byte as i8) >> 7) as u8
        } else {
            byte
        }
    }))
}

/// `lop3`: the truth table `table` applied to each bit of three words.
#[inline(always)]
pub fn lop3(a: u32, b: u32, c: u32, table: u8) -> u32 {
    let mut result = 0;
    for row in 0..8 {
        if table >> row & 1 == 1 {
            let pick = |word: u32, bit: u32| if row >> bit & 1 == 1 { word } else { !word };
            result |= pick(a, 2) & pick(b, 1) & pick(c, 0);
        }
    }
    result
}

#[inline(always)]
fn extend(value: u32, bits: u32, signed: bool) -> i64 {
    let shift = 64 - bits;
    if signed {
        ((u64::from(value) << shift) as i64) >> shift
    } else {
        ((u64::from(value) << shift) >> shift) as i64
    }
}

/// `dp4a`: the dot product of four bytes with four bytes, plus `c`.
#[inline(always)]
pub fn dp4a(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool) -> u32 {
    (0..4).fold(c, |sum, i| {
        let product = extend(a >> (8 * i), 8, a_signed) * extend(b >> (8 * i), 8, b_signed);
        sum.wrapping_add(product as u32)
    })
}

/// `dp2a`: the dot product of two half words with the lower or upper two bytes, plus `c`.
#[inline(always)]
pub fn dp2a(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool, upper: bool) -> u32 {
    let b = if upper { b >> 16 } else { b };
    (0..2).fold(c, |sum, i| {
        let product = extend(a >> (16 * i), 16, a_signed) * extend(b >> (8 * i), 8, b_signed);
        sum.wrapping_add(product as u32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_and_quotients() {
        assert_eq!(w32::mul_hi_u(u32::MAX, u32::MAX), 0xffff_fffe);
        assert_eq!(w32::mul_hi_s(u32::MAX, u32::MAX), 0);
        assert_eq!(w16::mul_wide_s(0xffff, 5), -5i32 as u32);
        assert_eq!(w16::mul_wide_u(0xffff, 5), 0x4_fffb);
        assert_eq!(w64::mul_hi_s(u64::MAX, 2), u64::MAX);
        assert_eq!(w64::mul_hi_u(u64::MAX, 2), 1);
        assert_eq!(w32::div_u(7, 0), u32::MAX);
        assert_eq!(w32::rem_s(7, 0), 7);
        assert_eq!(w32::div_s(0x8000_0000, u32::MAX), 0x8000_0000);
        assert_eq!(w32::rem_s(-7i32 as u32, 3), -1i32 as u32);
        assert_eq!(w64::sad_s(u64::MAX, 1, 5), 7);
        assert_eq!(w32::sad_u(u32::MAX, 1, 5), 3);
        assert_eq!(
            mad_hi_sat(0x7fff_ffff, 0x7fff_ffff, 0x7fff_0000),
            0x7fff_ffff
        );
        assert_eq!(mul24_lo(0xff00_0003, 5, false), 15);
        assert_eq!(mul24_lo(0x00ff_ffff, 5, true), -5i32 as u32);
        assert_eq!(
            mul24_hi(0x00ff_ffff, 0x00ff_ffff, false),
            (0xffff_fe00_0001u64 >> 16) as u32
        );
        assert_eq!(mad24_hi_sat(0x7f_ffff, 0x7f_ffff, 0x7fff_ffff), 0x7fff_ffff);
        assert_eq!(w16::abs(0x8000), 0x8000);
    }

    #[test]
    fn shifts_clamp_or_wrap() {
        assert_eq!(
            (w32::shl(1, 31), w32::shl(1, 32), w32::shr_u(1 << 31, 40)),
            (1 << 31, 0, 0)
        );
        assert_eq!(w32::shr_s(1 << 31, 99), u32::MAX);
        assert_eq!(w16::shr_s(0x8000, 15), 0xffff);
        assert_eq!(
            shf_l(0xdead_beef, 0x1234_5678, 8, Distance::Wrap),
            0x3456_78de
        );
        assert_eq!(
            shf_r(0xdead_beef, 0x1234_5678, 8, Distance::Wrap),
            0x78de_adbe
        );
        assert_eq!(
            shf_l(0xdead_beef, 0x1234_5678, 40, Distance::Clamp),
            0xdead_beef
        );
        assert_eq!(
            shf_r(0xdead_beef, 0x1234_5678, 40, Distance::Clamp),
            0x1234_5678
        );
        assert_eq!(
            shf_l(0xdead_beef, 0x1234_5678, 32, Distance::Wrap),
            0x1234_5678
        );
    }

    #[test]
    fn bit_fields() {
        assert_eq!(bfe_b32(0xabcd_1234, 8, 8, false), 0x12);
        assert_eq!(bfe_b32(0x0000_8000, 8, 8, true), 0xffff_ff80);
        assert_eq!(bfe_b32(0x8000_0000, 24, 16, true), 0xffff_ff80);
        assert_eq!(bfe_b32(0x8000_0000, 24, 16, false), 0x80);
        assert_eq!(bfe_b32(0x8000_0000, 200, 4, true), u32::MAX);
        assert_eq!(bfe_b32(0xffff_ffff, 3, 0, true), 0);
        assert_eq!(
            bfe_b64(0xfedc_ba98_7654_3210, 0, 64, true),
            0xfedc_ba98_7654_3210
        );
        assert_eq!(bfi_b32(0xff, 0, 28, 8), 0xf000_0000);
        assert_eq!(bfi_b32(0xab, 0x1111_1111, 8, 8), 0x1111_ab11);
        assert_eq!(bfi_b64(0xab, 0, 60, 64), 0xb000_0000_0000_0000);
        assert_eq!(bfind_b32(0, false, false), u32::MAX);
        assert_eq!(bfind_b32(u32::MAX, true, false), u32::MAX);
        assert_eq!(
            (bfind_b32(0x80, false, false), bfind_b32(0x80, false, true)),
            (7, 24)
        );
        assert_eq!(bfind_b64(-256i64 as u64, true, false), 7);
        assert_eq!(bmsk(4, 8, Distance::Clamp), 0xff0);
        assert_eq!(szext(0x1ff, 8, Distance::Clamp, true), u32::MAX);
    }

    #[test]
    fn the_nth_set_bit() {
        let mask = 0b1011_0010;
        assert_eq!(fns(mask, 0, 1), 1);
        assert_eq!(fns(mask, 0, 3), 5);
        assert_eq!(fns(mask, 4, 0), 4);
        assert_eq!(fns(mask, 3, 0), u32::MAX);
        assert_eq!(fns(mask, 7, -2), 5);
        assert_eq!(fns(mask, 5, 9), u32::MAX);
    }

    #[test]
    fn permutations_of_bytes() {
        let (a, b) = (0x3322_1180, 0x7766_5544);
        assert_eq!(prmt(a, b, 0x7531, Permutation::Index), 0x7755_3311);
        assert_eq!(prmt(a, b, 0x0008, Permutation::Index), 0x8080_80ff);
        assert_eq!(prmt(a, b, 1, Permutation::Forward4), 0x4433_2211);
        assert_eq!(prmt(a, b, 1, Permutation::Backward4), 0x6677_8011);
        assert_eq!(prmt(a, b, 2, Permutation::Replicate8), 0x2222_2222);
        assert_eq!(prmt(a, b, 2, Permutation::EdgeLeft), 0x3322_2222);
        assert_eq!(prmt(a, b, 2, Permutation::EdgeRight), 0x2222_1180);
        assert_eq!(prmt(a, b, 1, Permutation::Replicate16), 0x3322_3322);
    }

    #[test]
    fn truth_tables() {
        let (a, b, c) = (0xf0f0_1234, 0xcccc_5678, 0xaaaa_9abc);
        let (ta, tb, tc) = (0xf0u8, 0xcc, 0xaa);
        assert_eq!(lop3(a, b, c, ta & tb | tc), a & b | c);
        assert_eq!(lop3(a, b, c, ta ^ tb ^ tc), a ^ b ^ c);
        assert_eq!(lop3(a, b, c, !ta), !a);
    }

    #[test]
    fn dot_products_of_bytes() {
        let (a, b) = (
            u32::from_le_bytes([1, 0xff, 3, 4]),
            u32::from_le_bytes([5, 6, 7, 0xfe]),
        );
        assert_eq!(
            dp4a(a, b, 100, false, false),
            100 + 5 + 255 * 6 + 21 + 4 * 254
        );
        assert_eq!(dp4a(a, b, 100, true, true) as i32, 100 + 5 - 6 + 21 - 8);
        assert_eq!(dp4a(a, b, 0, true, false) as i32, 5 - 6 + 21 + 4 * 254);
        assert_eq!(
            dp2a(0xffff_0002, b, 1, true, true, false) as i32,
            1 + 10 - 6
        );
        assert_eq!(dp2a(0xffff_0002, b, 1, true, true, true) as i32, 1 + 14 + 2);
    }
}
