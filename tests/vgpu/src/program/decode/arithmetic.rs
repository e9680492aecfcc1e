//! Decoding of arithmetic, logic and bit manipulation.

use super::{Modifiers, float, mode, operands};
use crate::{
    arith::{
        compare::Extremum,
        integer::{Distance, Permutation},
    },
    program::{
        lower::{Builder, Result},
        op::{Alu, CarryOp, Combine, Float, FloatBin, FloatUn, Int, IntBin, IntTri, IntUn, NONE},
    },
    ptx::{Operand, Type},
};

pub(super) fn arithmetic(
    b: &mut Builder<'_>,
    name: &str,
    mut m: Modifiers<'_>,
    o: &[Operand],
) -> Result<()> {
    if m.flag("cc") {
        return carry(b, name, false, m, o);
    }
    if m.flag("wide") {
        let ty = m.int()?;
        m.end()?;
        let [d, x, y] = operands(b, o)?;
        let d = b.target(d, 2 * ty.bits())?;
        let (x, y) = (b.value(x, ty.bits())?, b.value(y, ty.bits())?);
        b.alu(Alu::MulWide {
            ty,
            d,
            a: x,
            b: y,
            c: NONE,
        });
        return Ok(());
    }
    let ty = m.ty()?;
    if let Some(ty) = Float::of(ty) {
        return float_arithmetic(b, name, ty, m, o);
    }
    if let (Type::U16x2 | Type::S16x2, "add" | "min" | "max") = (ty, name) {
        m.end()?;
        let f = match name {
            "add" => IntBin::Add,
            "min" => IntBin::Min,
            _ => IntBin::Max,
        };
        let [d, x, y] = operands(b, o)?;
        let (d, x, y) = (b.target(d, 32)?, b.value(x, 32)?, b.value(y, 32)?);
        b.alu(Alu::Pair16 {
            f,
            signed: ty.signed(),
            d,
            a: x,
            b: y,
        });
        return Ok(());
    }
    let Some(int) = Int::of(ty) else {
        return b.error(format!("{ty:?} is not a type of this instruction"));
    };
    let bits = int.bits();
    if let "abs" | "neg" = name {
        m.end()?;
        let f = if name == "abs" {
            IntUn::Abs
        } else {
            IntUn::Neg
        };
        let [d, x] = operands(b, o)?;
        let (d, x) = (b.target(d, bits)?, b.value(x, bits)?);
        b.alu(Alu::IntUn {
            f,
            ty: int,
            d,
            a: x,
        });
        return Ok(());
    }
    let sat = m.flag("sat");
    if sat && int != Int::S32 {
        return b.error("`.sat` is for s32 only");
    }
    let f = match name {
        "add" if sat => IntBin::AddSat,
        "sub" if sat => IntBin::SubSat,
        "add" => IntBin::Add,
        "sub" => IntBin::Sub,
        "mul" if m.flag("hi") => IntBin::MulHi,
        "mul" if m.flag("lo") => IntBin::MulLo,
        "mul" => return b.error("no `.lo`, `.hi` or `.wide`"),
        "div" => IntBin::Div,
        "rem" => IntBin::Rem,
        "min" => IntBin::Min,
        _ => IntBin::Max,
    };
    m.end()?;
    let [d, x, y] = operands(b, o)?;
    let (d, x, y) = (b.target(d, bits)?, b.value(x, bits)?, b.value(y, bits)?);
    b.alu(Alu::IntBin {
        f,
        ty: int,
        d,
        a: x,
        b: y,
    });
    Ok(())
}

fn float_arithmetic(
    b: &mut Builder<'_>,
    name: &str,
    ty: Float,
    mut m: Modifiers<'_>,
    o: &[Operand],
) -> Result<()> {
    let bits = ty.bits();
    if let "abs" | "neg" = name {
        let mode = mode(&mut m);
        m.end()?;
        let f = if name == "abs" {
            FloatUn::Abs
        } else {
            FloatUn::Neg
        };
        let [d, x] = operands(b, o)?;
        let (d, x) = (b.target(d, bits)?, b.value(x, bits)?);
        b.alu(Alu::FloatUn {
            f,
            ty,
            mode,
            d,
            a: x,
        });
        return Ok(());
    }
    let extremum = |m: &mut Modifiers<'_>| Extremum {
        ftz: m.flag("ftz"),
        nan: m.flag("NaN"),
        xorsign_abs: m.flag("xorsign") && m.flag("abs"),
    };
    let f = match name {
        "add" => FloatBin::Add,
        "sub" => FloatBin::Sub,
        "mul" => FloatBin::Mul,
        "div" if m.flag("approx") => FloatBin::DivApprox,
        "div" if m.flag("full") => FloatBin::DivFull,
        "div" => FloatBin::Div,
        "min" => FloatBin::Min(extremum(&mut m)),
        "max" => FloatBin::Max(extremum(&mut m)),
        _ => return b.error("the instruction has no floating-point form"),
    };
    let mode = mode(&mut m);
    m.end()?;
    let [d, x, y] = operands(b, o)?;
    let (d, x, y) = (b.target(d, bits)?, b.value(x, bits)?, b.value(y, bits)?);
    b.alu(Alu::FloatBin {
        f,
        ty,
        mode,
        d,
        a: x,
        b: y,
    });
    Ok(())
}

/// `add.cc`, `addc`, `mad.lo.cc` and their kind.
pub(super) fn carry(
    b: &mut Builder<'_>,
    name: &str,
    take: bool,
    mut m: Modifiers<'_>,
    o: &[Operand],
) -> Result<()> {
    let give = !take || m.flag("cc");
    let (low, high) = (m.flag("lo"), m.flag("hi"));
    let ty = m.int()?;
    m.end()?;
    let bits = ty.bits();
    if bits < 32 {
        return b.error("no carry of 16 bits");
    }
    let signed = ty.signed();
    let (f, d, x, y, z) = match name {
        "add" | "addc" | "sub" | "subc" => {
            let [d, x, y] = operands(b, o)?;
            let f = if name.starts_with("add") {
                CarryOp::Add
            } else {
                CarryOp::Sub
            };
            (
                f,
                b.target(d, bits)?,
                b.value(x, bits)?,
                b.value(y, bits)?,
                NONE,
            )
        }
        _ => {
            let f = match (low, high) {
                (true, false) => CarryOp::MadLo { signed },
                (false, true) => CarryOp::MadHi { signed },
                _ => return b.error("no `.lo` or `.hi`"),
            };
            let [d, x, y, z] = operands(b, o)?;
            (
                f,
                b.target(d, bits)?,
                b.value(x, bits)?,
                b.value(y, bits)?,
                b.value(z, bits)?,
            )
        }
    };
    b.alu(Alu::Carry {
        f,
        wide: bits == 64,
        take,
        give,
        d,
        a: x,
        b: y,
        c: z,
    });
    Ok(())
}

pub(super) fn multiply_add(
    b: &mut Builder<'_>,
    name: &str,
    mut m: Modifiers<'_>,
    o: &[Operand],
) -> Result<()> {
    if name == "mad" && m.flag("cc") {
        return carry(b, name, false, m, o);
    }
    if m.flag("wide") {
        let ty = m.int()?;
        m.end()?;
        let [d, x, y, z] = operands(b, o)?;
        let (d, z) = (b.target(d, 2 * ty.bits())?, b.value(z, 2 * ty.bits())?);
        let (x, y) = (b.value(x, ty.bits())?, b.value(y, ty.bits())?);
        b.alu(Alu::MulWide {
            ty,
            d,
            a: x,
            b: y,
            c: z,
        });
        return Ok(());
    }
    let ty = m.ty()?;
    if let Some(ty) = Float::of(ty) {
        let (mode, relu) = (mode(&mut m), m.flag("relu"));
        m.end()?;
        let bits = ty.bits();
        let [d, x, y, z] = operands(b, o)?;
        let (d, x, y, z) = (
            b.target(d, bits)?,
            b.value(x, bits)?,
            b.value(y, bits)?,
            b.value(z, bits)?,
        );
        b.alu(Alu::Fma {
            ty,
            mode,
            relu,
            d,
            a: x,
            b: y,
            c: z,
        });
        return Ok(());
    }
    let Some(int) = Int::of(ty) else {
        return b.error(format!("{ty:?} is not a type of this instruction"));
    };
    let f = if m.flag("lo") {
        IntTri::MadLo
    } else if m.flag("hi") {
        if m.flag("sat") {
            IntTri::MadHiSat
        } else {
            IntTri::MadHi
        }
    } else {
        return b.error("no `.lo`, `.hi` or `.wide`");
    };
    m.end()?;
    let bits = int.bits();
    let [d, x, y, z] = operands(b, o)?;
    let (d, x, y, z) = (
        b.target(d, bits)?,
        b.value(x, bits)?,
        b.value(y, bits)?,
        b.value(z, bits)?,
    );
    b.alu(Alu::IntTri {
        f,
        ty: int,
        d,
        a: x,
        b: y,
        c: z,
    });
    Ok(())
}

pub(super) fn logic(
    b: &mut Builder<'_>,
    name: &str,
    mut m: Modifiers<'_>,
    o: &[Operand],
) -> Result<()> {
    let ty = m.ty()?;
    m.end()?;
    if ty == Type::Pred {
        if name == "not" {
            let [d, a] = operands(b, o)?;
            let (d, a) = (b.target(d, 1)?, b.plain_predicate(a)?);
            b.alu(Alu::PredicateNot { d, a });
            return Ok(());
        }
        let f = match name {
            "and" => Combine::And,
            "or" => Combine::Or,
            "xor" => Combine::Xor,
            _ => return b.error("not an instruction on predicates"),
        };
        let [d, x, y] = operands(b, o)?;
        let (d, x, y) = (
            b.target(d, 1)?,
            b.plain_predicate(x)?,
            b.plain_predicate(y)?,
        );
        b.alu(Alu::Predicate { f, d, a: x, b: y });
        return Ok(());
    }
    let Some(int) = Int::of(ty) else {
        return b.error(format!("{ty:?} is not a type of this instruction"));
    };
    let bits = int.bits();
    let unary = match name {
        "not" => Some(IntUn::Not),
        "cnot" => Some(IntUn::Cnot),
        _ => None,
    };
    if let Some(f) = unary {
        let [d, x] = operands(b, o)?;
        let (d, x) = (b.target(d, bits)?, b.value(x, bits)?);
        b.alu(Alu::IntUn {
            f,
            ty: int,
            d,
            a: x,
        });
        return Ok(());
    }
    let f = match name {
        "and" => IntBin::And,
        "or" => IntBin::Or,
        _ => IntBin::Xor,
    };
    let [d, x, y] = operands(b, o)?;
    let (d, x, y) = (b.target(d, bits)?, b.value(x, bits)?, b.value(y, bits)?);
    b.alu(Alu::IntBin {
        f,
        ty: int,
        d,
        a: x,
        b: y,
    });
    Ok(())
}

fn distance(name: &str) -> Option<Distance> {
    match name {
        "clamp" => Some(Distance::Clamp),
        "wrap" => Some(Distance::Wrap),
        _ => None,
    }
}

/// Instructions of three operands on integers.
pub(super) fn bits_of_three(
    b: &mut Builder<'_>,
    name: &str,
    mut m: Modifiers<'_>,
    o: &[Operand],
) -> Result<()> {
    let mut ty = Int::U32;
    // Widths of the operands after the first, where they are not those of the type.
    let mut narrow = false;
    let f = match name {
        "mul24" | "mad24" => {
            let high = m.flag("hi");
            let sat = m.flag("sat");
            if !high && !m.flag("lo") {
                return b.error("no `.lo` or `.hi`");
            }
            ty = m.int()?;
            if ty.bits() != 32 {
                return b.error("only of 32 bits");
            }
            if name == "mul24" {
                m.end()?;
                let f = if high {
                    IntBin::Mul24Hi
                } else {
                    IntBin::Mul24Lo
                };
                let [d, x, y] = operands(b, o)?;
                let (d, x, y) = (b.target(d, 32)?, b.value(x, 32)?, b.value(y, 32)?);
                b.alu(Alu::IntBin {
                    f,
                    ty,
                    d,
                    a: x,
                    b: y,
                });
                return Ok(());
            }
            match (high, sat) {
                (false, _) => IntTri::Mad24Lo,
                (true, false) => IntTri::Mad24Hi,
                (true, true) => IntTri::Mad24HiSat,
            }
        }
        "sad" => {
            ty = m.int()?;
            IntTri::Sad
        }
        "bfe" => {
            ty = m.int()?;
            narrow = true;
            IntTri::Bfe
        }
        "lop3" => {
            m.ty()?;
            m.end()?;
            let [d, x, y, z, table] = operands(b, o)?;
            let Operand::Integer(table) = table else {
                return b.error("the table is not an immediate");
            };
            let (d, x, y, z) = (
                b.target(d, 32)?,
                b.value(x, 32)?,
                b.value(y, 32)?,
                b.value(z, 32)?,
            );
            b.alu(Alu::IntTri {
                f: IntTri::Lop3(*table as u8),
                ty,
                d,
                a: x,
                b: y,
                c: z,
            });
            return Ok(());
        }
        "shf" => {
            let left = m.flag("l");
            if !left && !m.flag("r") {
                return b.error("no `.l` or `.r`");
            }
            let distance = m.need("`.clamp` or `.wrap`", distance)?;
            m.ty()?;
            if left {
                IntTri::ShfL(distance)
            } else {
                IntTri::ShfR(distance)
            }
        }
        "prmt" => {
            m.ty()?;
            let permutation = m.find(|name| {
                Some(match name {
                    "f4e" => Permutation::Forward4,
                    "b4e" => Permutation::Backward4,
                    "rc8" => Permutation::Replicate8,
                    "ecl" => Permutation::EdgeLeft,
                    "ecr" => Permutation::EdgeRight,
                    "rc16" => Permutation::Replicate16,
                    _ => return None,
                })
            });
            IntTri::Prmt(permutation.unwrap_or(Permutation::Index))
        }
        "fns" => {
            m.ty()?;
            IntTri::Fns
        }
        _ => {
            let upper = m.flag("hi");
            m.flag("lo");
            let signs = (m.ty()?.signed(), m.ty()?.signed());
            if name == "dp4a" {
                IntTri::Dp4a { signs }
            } else {
                IntTri::Dp2a { signs, upper }
            }
        }
    };
    m.end()?;
    let bits = ty.bits();
    let rest = if narrow { 32 } else { bits };
    let [d, x, y, z] = operands(b, o)?;
    let (d, x, y, z) = (
        b.target(d, bits)?,
        b.value(x, bits)?,
        b.value(y, rest)?,
        b.value(z, rest)?,
    );
    b.alu(Alu::IntTri {
        f,
        ty,
        d,
        a: x,
        b: y,
        c: z,
    });
    Ok(())
}

pub(super) fn bits(
    b: &mut Builder<'_>,
    name: &str,
    mut m: Modifiers<'_>,
    o: &[Operand],
) -> Result<()> {
    match name {
        "bfi" => {
            let ty = m.int()?;
            m.end()?;
            let bits = ty.bits();
            let [d, x, y, position, length] = operands(b, o)?;
            let (d, x, y) = (b.target(d, bits)?, b.value(x, bits)?, b.value(y, bits)?);
            let (position, length) = (b.value(position, 32)?, b.value(length, 32)?);
            b.alu(Alu::Bfi {
                wide: bits == 64,
                d,
                a: x,
                b: y,
                position,
                length,
            });
        }
        "bmsk" | "szext" => {
            let distance = m.need("`.clamp` or `.wrap`", distance)?;
            let ty = m.int()?;
            m.end()?;
            let f = if name == "bmsk" {
                IntBin::Bmsk(distance)
            } else {
                IntBin::Szext(distance)
            };
            let [d, x, y] = operands(b, o)?;
            let (d, x, y) = (b.target(d, 32)?, b.value(x, 32)?, b.value(y, 32)?);
            b.alu(Alu::IntBin {
                f,
                ty,
                d,
                a: x,
                b: y,
            });
        }
        _ => {
            let shift_amount = m.flag("shiftamt");
            let ty = m.int()?;
            m.end()?;
            let (f, result) = match name {
                "brev" => (IntUn::Brev, ty.bits()),
                "clz" => (IntUn::Clz, 32),
                "popc" => (IntUn::Popc, 32),
                _ => (IntUn::Bfind { shift_amount }, 32),
            };
            let [d, x] = operands(b, o)?;
            let (d, x) = (b.target(d, result)?, b.value(x, ty.bits())?);
            b.alu(Alu::IntUn { f, ty, d, a: x });
        }
    }
    Ok(())
}

pub(super) fn special_function(
    b: &mut Builder<'_>,
    name: &str,
    mut m: Modifiers<'_>,
    o: &[Operand],
) -> Result<()> {
    let approximate = m.flag("approx");
    let mode = mode(&mut m);
    let ty = float(&mut m)?;
    m.end()?;
    let f = match (name, approximate) {
        ("rcp", true) => FloatUn::RcpApprox,
        ("rcp", false) => FloatUn::Rcp,
        ("sqrt", true) => FloatUn::SqrtApprox,
        ("sqrt", false) => FloatUn::Sqrt,
        ("rsqrt", _) => FloatUn::RsqrtApprox,
        ("ex2", _) => FloatUn::Ex2,
        ("lg2", _) => FloatUn::Lg2,
        ("sin", _) => FloatUn::Sin,
        ("cos", _) => FloatUn::Cos,
        _ => FloatUn::Tanh,
    };
    let known = match ty {
        Float::F32 => true,
        Float::F64 => matches!(
            f,
            FloatUn::RcpApprox | FloatUn::Rcp | FloatUn::Sqrt | FloatUn::RsqrtApprox
        ),
        _ => matches!(f, FloatUn::Ex2 | FloatUn::Tanh),
    };
    if !known {
        return b.error(format!("there is no such function of {ty:?}"));
    }
    let [d, x] = operands(b, o)?;
    let (d, x) = (b.target(d, ty.bits())?, b.value(x, ty.bits())?);
    b.alu(Alu::FloatUn {
        f,
        ty,
        mode,
        d,
        a: x,
    });
    Ok(())
}
