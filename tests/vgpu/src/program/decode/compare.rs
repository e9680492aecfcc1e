//! Decoding of comparisons.

use super::{Modifiers, operands, pair};
use crate::{
    arith::compare::{Comparison, Property},
    program::{
        lower::{Builder, Result},
        op::{Alu, Combine, Compared, Float, Int, NONE},
    },
    ptx::{Operand, Type},
};

pub(super) fn testp(b: &mut Builder<'_>, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
    let property = m.need("property", |name| {
        Some(match name {
            "finite" => Property::Finite,
            "infinite" => Property::Infinite,
            "number" => Property::Number,
            "notanumber" => Property::NotANumber,
            "normal" => Property::Normal,
            "subnormal" => Property::Subnormal,
            _ => return None,
        })
    })?;
    let bits = match m.ty()? {
        Type::F32 => 32,
        Type::F64 => 64,
        ty => return b.error(format!("{ty:?} is not a type of this instruction")),
    };
    m.end()?;
    let [d, a] = operands(b, o)?;
    let (d, a) = (b.target(d, 1)?, b.value(a, bits)?);
    b.alu(Alu::Testp {
        property,
        wide: bits == 64,
        d,
        a,
    });
    Ok(())
}

/// The comparison, its type, and the predicate that it is combined with.
struct Comparing {
    cmp: Comparison,
    ty: Compared,
    bits: u32,
    ftz: bool,
    combine: Combine,
}

fn comparing(m: &mut Modifiers<'_>, ty: Type) -> Result<Comparing> {
    let ftz = m.flag("ftz");
    let combine = m.find(|name| {
        Some(match name {
            "and" => Combine::And,
            "or" => Combine::Or,
            "xor" => Combine::Xor,
            _ => return None,
        })
    });
    // `lo`, `ls`, `hi` and `hs` compare without a sign whatever the type says.
    let (cmp, unsigned) = m.need("comparison", |name| {
        Some(match name {
            "eq" => (Comparison::Eq, false),
            "ne" => (Comparison::Ne, false),
            "lt" => (Comparison::Lt, false),
            "le" => (Comparison::Le, false),
            "gt" => (Comparison::Gt, false),
            "ge" => (Comparison::Ge, false),
            "lo" => (Comparison::Lt, true),
            "ls" => (Comparison::Le, true),
            "hi" => (Comparison::Gt, true),
            "hs" => (Comparison::Ge, true),
            "equ" => (Comparison::Equ, false),
            "neu" => (Comparison::Neu, false),
            "ltu" => (Comparison::Ltu, false),
            "leu" => (Comparison::Leu, false),
            "gtu" => (Comparison::Gtu, false),
            "geu" => (Comparison::Geu, false),
            "num" => (Comparison::Num, false),
            "nan" => (Comparison::Nan, false),
            _ => return None,
        })
    })?;
    let (ty, bits) = match (Float::of(ty), Int::of(ty)) {
        (Some(float), _) => (Compared::Float(float), float.bits()),
        (_, Some(int)) => {
            let int = match int {
                Int::S16 if unsigned => Int::U16,
                Int::S32 if unsigned => Int::U32,
                Int::S64 if unsigned => Int::U64,
                other => other,
            };
            (Compared::Int(int), int.bits())
        }
        _ => return m.error(format!("{ty:?} cannot be compared")),
    };
    Ok(Comparing {
        cmp,
        ty,
        bits,
        ftz,
        combine: combine.unwrap_or(Combine::And),
    })
}

pub(super) fn setp(b: &mut Builder<'_>, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
    let ty = m.ty()?;
    let Comparing {
        cmp,
        ty,
        bits,
        ftz,
        combine,
    } = comparing(&mut m, ty)?;
    m.end()?;
    let (targets, x, y, with) = match o {
        [t, x, y] => (t, x, y, None),
        [t, x, y, with] => (t, x, y, Some(with)),
        _ => return b.error("neither three nor four operands"),
    };
    let (d, q) = pair(b, targets, 1)?;
    let (x, y) = (b.value(x, bits)?, b.value(y, bits)?);
    let (c, negate) = match with {
        Some(with) => b.predicate(with)?,
        None => (NONE, false),
    };
    b.alu(Alu::Setp {
        cmp,
        ty,
        ftz,
        combine,
        negate,
        d,
        q,
        a: x,
        b: y,
        c,
    });
    Ok(())
}

pub(super) fn set(b: &mut Builder<'_>, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
    let (to, from) = (m.ty()?, m.ty()?);
    let Comparing {
        cmp,
        ty,
        bits,
        ftz,
        combine,
    } = comparing(&mut m, from)?;
    m.end()?;
    let one = match to {
        Type::U16 | Type::S16 | Type::U32 | Type::S32 => 0,
        Type::F32 => 1f32.to_bits(),
        Type::F16 => 0x3c00,
        Type::Bf16 => 0x3f80,
        Type::F16x2 => 0x3c00_3c00,
        Type::Bf16x2 => 0x3f80_3f80,
        _ => return b.error(format!("{to:?} is not a type of the result")),
    };
    let (d, x, y, with) = match o {
        [d, x, y] => (d, x, y, None),
        [d, x, y, with] => (d, x, y, Some(with)),
        _ => return b.error("neither three nor four operands"),
    };
    let d = b.target(d, to.bytes() * 8)?;
    let (x, y) = (b.value(x, bits)?, b.value(y, bits)?);
    let (c, negate) = match with {
        Some(with) => b.predicate(with)?,
        None => (NONE, false),
    };
    b.alu(Alu::Set {
        cmp,
        ty,
        ftz,
        one,
        combine,
        negate,
        d,
        a: x,
        b: y,
        c,
    });
    Ok(())
}
