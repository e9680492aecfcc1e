//! One instruction as written → one or a few [`Op`]s.
//!
//! Modifiers are taken one by one; one that is left over was not understood, and that is an error: an instruction is
//! never run as if it said less than it does.

use super::{
    LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW,
    lower::{Builder, Result},
    matrix, memory,
    op::{
        Alu, BarrierKind, CarryOp, Combine, Compared, Convert, Fill, Float, FloatBin, FloatUn, Int,
        IntBin, IntTri, IntUn, NONE, Op, Reg, ShuffleMode, VoteMode, rounding,
    },
};
use crate::{
    arith::{
        Mode, Rounding,
        compare::{Comparison, Extremum, Property},
        convert::{Conversion, Number},
        integer::{Distance, Permutation},
    },
    ptx::{Error, Instruction, Operand, Space, Type},
};

/// The modifiers of an instruction that have not been taken yet.
pub(super) struct Modifiers<'a> {
    rest: Vec<&'a str>,
    line: u32,
}

impl<'a> Modifiers<'a> {
    pub(super) fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(Error::new(self.line, message))
    }

    /// Takes a modifier if it is there.
    pub(super) fn flag(&mut self, name: &str) -> bool {
        let found = self.rest.iter().position(|m| *m == name);
        found.map(|at| self.rest.remove(at)).is_some()
    }

    /// Takes the first modifier that `pick` knows.
    pub(super) fn find<T>(&mut self, pick: impl Fn(&str) -> Option<T>) -> Option<T> {
        let (at, found) = self
            .rest
            .iter()
            .enumerate()
            .find_map(|(i, m)| Some((i, pick(m)?)))?;
        self.rest.remove(at);
        Some(found)
    }

    /// Takes a modifier that must be there.
    pub(super) fn need<T>(&mut self, what: &str, pick: impl Fn(&str) -> Option<T>) -> Result<T> {
        match self.find(pick) {
            Some(found) => Ok(found),
            None => self.error(format!("no {what}")),
        }
    }

    /// Takes the next type.
    pub(super) fn ty(&mut self) -> Result<Type> {
        self.need("type", Type::from_name)
    }

    /// Drops all modifiers that `known` knows.
    pub(super) fn drop(&mut self, known: impl Fn(&str) -> bool) {
        self.rest.retain(|m| !known(m));
    }

    /// Checks that nothing is left.
    pub(super) fn end(self) -> Result<()> {
        match self.rest.first() {
            None => Ok(()),
            Some(left) => self.error(format!("modifier `.{left}` is not supported")),
        }
    }

    fn int(&mut self) -> Result<Int> {
        let ty = self.ty()?;
        match Int::of(ty) {
            Some(int) => Ok(int),
            None => self.error(format!("{ty:?} is not a type of this instruction")),
        }
    }

    fn rounding(&mut self) -> Option<(Rounding, bool)> {
        self.find(rounding)
    }
}

impl Int {
    pub(super) fn bits(self) -> u32 {
        match self {
            Self::U16 | Self::S16 => 16,
            Self::U32 | Self::S32 => 32,
            Self::U64 | Self::S64 => 64,
        }
    }
}

impl Float {
    fn bits(self) -> u32 {
        match self {
            Self::F16 | Self::Bf16 => 16,
            Self::F16x2 | Self::Bf16x2 | Self::F32 => 32,
            Self::F64 => 64,
        }
    }
}

/// Decodes an instruction that is not about control flow.
pub(super) fn instruction(b: &mut Builder<'_>, instruction: &Instruction) -> Result<()> {
    let mut parts = instruction.opcode.split('.');
    let name = parts.next().unwrap_or_default();
    let mut m = Modifiers {
        rest: parts.collect(),
        line: instruction.line,
    };
    let o = instruction.operands.as_slice();
    match name {
        "add" | "sub" | "mul" | "min" | "max" | "div" | "rem" | "abs" | "neg" => {
            arithmetic(b, name, m, o)
        }
        "addc" | "subc" | "madc" => carry(b, name, true, m, o),
        "mad" | "fma" => multiply_add(b, name, m, o),
        "and" | "or" | "xor" | "not" | "cnot" => logic(b, name, m, o),
        "shl" | "shr" => {
            let ty = m.int()?;
            m.end()?;
            let f = if name == "shl" {
                IntBin::Shl
            } else {
                IntBin::Shr
            };
            let [d, a, by] = operands(b, o)?;
            let (d, a) = (b.target(d, ty.bits())?, b.value(a, ty.bits())?);
            let by = b.value(by, 32)?;
            b.alu(Alu::IntBin { f, ty, d, a, b: by });
            Ok(())
        }
        "mul24" | "mad24" | "sad" | "bfe" | "lop3" | "shf" | "prmt" | "fns" | "dp4a" | "dp2a" => {
            bits_of_three(b, name, m, o)
        }
        "bfi" | "bmsk" | "szext" | "brev" | "clz" | "popc" | "bfind" => bits(b, name, m, o),
        "rcp" | "sqrt" | "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh" => {
            special_function(b, name, m, o)
        }
        "copysign" => {
            let ty = float(&mut m)?;
            m.end()?;
            let [d, x, y] = operands(b, o)?;
            let (d, x, y) = (
                b.target(d, ty.bits())?,
                b.value(x, ty.bits())?,
                b.value(y, ty.bits())?,
            );
            b.alu(Alu::FloatBin {
                f: FloatBin::Copysign,
                ty,
                mode: Mode::RN,
                d,
                a: x,
                b: y,
            });
            Ok(())
        }
        "testp" => testp(b, m, o),
        "setp" => setp(b, m, o),
        "set" => set(b, m, o),
        "selp" => {
            let bits = m.ty()?.bytes() * 8;
            m.end()?;
            if bits > 64 {
                return b.error("there is no selection of 128 bits");
            }
            let [d, x, y, p] = operands(b, o)?;
            let (d, x, y) = (b.target(d, bits)?, b.value(x, bits)?, b.value(y, bits)?);
            let p = b.plain_predicate(p)?;
            b.alu(Alu::Selp {
                wide: bits == 64,
                d,
                a: x,
                b: y,
                p,
            });
            Ok(())
        }
        "slct" => {
            let ftz = m.flag("ftz");
            let (bits, by) = (m.ty()?.bytes() * 8, m.ty()?);
            m.end()?;
            let [d, x, y, c] = operands(b, o)?;
            let (d, x, y) = (b.target(d, bits)?, b.value(x, bits)?, b.value(y, bits)?);
            let c = b.value(c, 32)?;
            b.alu(Alu::Slct {
                wide: bits == 64,
                float: by == Type::F32,
                ftz,
                d,
                a: x,
                b: y,
                c,
            });
            Ok(())
        }
        "mov" => mov(b, m, o),
        "cvt" => cvt(b, m, o),
        "cvta" => cvta(b, m, o),
        "isspacep" => {
            let space = m.need("space", memory::space)?;
            m.end()?;
            let [d, a] = operands(b, o)?;
            let (d, a) = (b.target(d, 1)?, b.value(a, 64)?);
            b.emit(Op::IsSpace { space, d, a });
            Ok(())
        }
        "ld" | "ldu" | "st" | "atom" | "red" | "cp" => memory::instruction(b, name, m, o),
        "ldmatrix" | "stmatrix" | "mma" | "wmma" => matrix::instruction(b, name, m, o),
        "prefetch" | "prefetchu" | "discard" | "applypriority" | "nanosleep" | "griddepcontrol"
        | "pmevent" | "setmaxnreg" => {
            b.emit(Op::Nop);
            Ok(())
        }
        "createpolicy" => {
            let Some(d) = o.first() else {
                return b.error("no operand");
            };
            let (d, a) = (b.target(d, 64)?, b.number(64, 0));
            b.alu(Alu::Mov64 { d, a });
            Ok(())
        }
        "membar" | "fence" => fence(b, m),
        "bar" | "barrier" => barrier(b, m, o),
        "shfl" => shuffle(b, m, o),
        "vote" | "match" | "redux" | "activemask" | "elect" => warp(b, name, m, o),
        "trap" | "brkpt" => {
            m.end()?;
            b.emit(Op::Trap { assertion: None });
            Ok(())
        }
        "mapa"
        | "getctarank"
        | "mbarrier"
        | "wgmma"
        | "tensormap"
        | "multimem"
        | "tcgen05"
        | "clusterlaunchcontrol" => {
            b.error("clusters, bulk copies and warp-group instructions are not supported")
        }
        "tex" | "tld4" | "txq" | "suld" | "sust" | "sured" | "suq" => {
            b.error("textures and surfaces are not supported")
        }
        _ => b.error("the instruction is not known"),
    }
}

/// The operands, when there are exactly as many as wanted.
pub(super) fn operands<'o, const N: usize>(
    b: &Builder<'_>,
    list: &'o [Operand],
) -> Result<[&'o Operand; N]> {
    let found: Vec<&Operand> = list.iter().collect();
    match <[&Operand; N]>::try_from(found) {
        Ok(array) => Ok(array),
        Err(_) => b.error(format!("{} operands, not {N}", list.len())),
    }
}

fn float(m: &mut Modifiers<'_>) -> Result<Float> {
    let ty = m.ty()?;
    match Float::of(ty) {
        Some(float) => Ok(float),
        None => m.error(format!("{ty:?} is not a type of this instruction")),
    }
}

fn mode(m: &mut Modifiers<'_>) -> Mode {
    Mode {
        rounding: m.rounding().map_or(Rounding::Nearest, |(r, _)| r),
        ftz: m.flag("ftz"),
        sat: m.flag("sat"),
    }
}

fn arithmetic(b: &mut Builder<'_>, name: &str, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
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
fn carry(
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

fn multiply_add(
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

fn logic(b: &mut Builder<'_>, name: &str, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
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
fn bits_of_three(
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

fn bits(b: &mut Builder<'_>, name: &str, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
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

fn special_function(
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

fn testp(b: &mut Builder<'_>, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
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

fn setp(b: &mut Builder<'_>, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
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

fn set(b: &mut Builder<'_>, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
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

/// `d` or `d|q`, the second a predicate.
fn pair(b: &mut Builder<'_>, operand: &Operand, bits: u32) -> Result<(Reg, Reg)> {
    match operand {
        Operand::Pair(d, q) => {
            let d = b.target(&Operand::Name(d.clone()), bits)?;
            let q = b.target(&Operand::Name(q.clone()), 1)?;
            Ok((d, q))
        }
        _ => Ok((b.target(operand, bits)?, NONE)),
    }
}

fn mov(b: &mut Builder<'_>, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
    let ty = m.ty()?;
    m.end()?;
    let [d, a] = operands(b, o)?;
    if ty == Type::Pred {
        let d = b.target(d, 1)?;
        let a = b.plain_predicate(a)?;
        b.alu(Alu::Predicate {
            f: Combine::And,
            d,
            a,
            b: a,
        });
        return Ok(());
    }
    let bits = ty.bytes() * 8;
    match (d, a) {
        (Operand::Vector(parts), a) => {
            let each = bits / parts.len().max(1) as u32;
            let parts = parts
                .iter()
                .map(|p| b.target(p, each))
                .collect::<Result<Vec<_>>>()?;
            let a = b.value(a, bits)?;
            let parts = b.list(&parts);
            b.alu(Alu::Unpack {
                bits: each,
                a,
                parts,
            });
        }
        (d, Operand::Vector(parts)) => {
            let each = bits / parts.len().max(1) as u32;
            let parts = parts
                .iter()
                .map(|p| b.value(p, each))
                .collect::<Result<Vec<_>>>()?;
            let d = b.target(d, bits)?;
            let parts = b.list(&parts);
            b.alu(Alu::Pack {
                bits: each,
                d,
                parts,
            });
        }
        _ => {
            let (d, a) = (b.target(d, bits)?, b.value(a, bits)?);
            b.alu(match bits {
                128 => Alu::Mov128 { d, a },
                64 => Alu::Mov64 { d, a },
                _ => Alu::Mov32 { d, a },
            });
        }
    }
    Ok(())
}

fn number(ty: Type) -> Option<Number> {
    Some(match ty {
        Type::U8 | Type::U16 | Type::U32 | Type::U64 => Number::Unsigned(ty.bytes() * 8),
        Type::B8 | Type::B16 | Type::B32 | Type::B64 => Number::Unsigned(ty.bytes() * 8),
        Type::S8 | Type::S16 | Type::S32 | Type::S64 => Number::Signed(ty.bytes() * 8),
        Type::F16 | Type::F16x2 => Number::F16,
        Type::Bf16 | Type::Bf16x2 => Number::Bf16,
        Type::Tf32 => Number::Tf32,
        Type::F32 => Number::F32,
        Type::F64 => Number::F64,
        Type::E4m3 | Type::E4m3x2 => Number::E4m3,
        Type::E5m2 | Type::E5m2x2 => Number::E5m2,
        _ => return None,
    })
}

fn cvt(b: &mut Builder<'_>, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
    let (rounding, to_integer) = m.rounding().unwrap_or_default();
    let options = Conversion {
        rounding,
        to_integer,
        ftz: m.flag("ftz"),
        sat: m.flag("sat"),
        relu: m.flag("relu"),
        satfinite: m.flag("satfinite"),
    };
    let (to, from) = (m.ty()?, m.ty()?);
    m.end()?;
    let (Some(to_number), Some(from_number)) = (number(to), number(from)) else {
        return b.error(format!("no conversion from {from:?} to {to:?}"));
    };
    let packed = |ty: Type| matches!(ty, Type::F16x2 | Type::Bf16x2 | Type::E4m3x2 | Type::E5m2x2);
    let eight = |ty: Type| matches!(ty, Type::E4m3x2 | Type::E5m2x2);
    let (how, d, x, y) = match o {
        [d, x, y] if packed(to) && from == Type::F32 => {
            let d = b.target(d, to.bytes() * 8)?;
            (
                Convert::Pair {
                    to: to_number,
                    options,
                },
                d,
                b.value(x, 32)?,
                b.value(y, 32)?,
            )
        }
        [d, x] if to == Type::F16x2 && eight(from) => {
            let d = b.target(d, 32)?;
            (
                Convert::Unpair {
                    from: from_number,
                    relu: options.relu,
                },
                d,
                b.value(x, 16)?,
                NONE,
            )
        }
        [d, x] if !packed(to) && !packed(from) => {
            let d = b.any_target(d)?;
            let x = source_of_any_width(b, x, from.bytes() * 8)?;
            let width = match d {
                NONE => return Ok(()),
                d => b.bits(d),
            };
            let fill = Fill {
                from: (to.bytes() * 8).min(width),
                to: width,
                signed: to.signed(),
            };
            (
                Convert::One {
                    to: to_number,
                    from: from_number,
                    options,
                    fill,
                },
                d,
                x,
                NONE,
            )
        }
        _ => {
            return b.error(format!(
                "no conversion from {from:?} to {to:?} of {} operands",
                o.len()
            ));
        }
    };
    let wide_result = d != NONE && b.bits(d) == 64;
    let wide_source = b.bits(x) == 64;
    let index = b.code.conversions.len() as u32;
    b.code.conversions.push((how, wide_result, wide_source));
    b.alu(Alu::Convert {
        how: index,
        d,
        a: x,
        b: y,
    });
    Ok(())
}

/// A source register as wide as the type or wider, or an immediate.
fn source_of_any_width(b: &mut Builder<'_>, operand: &Operand, bits: u32) -> Result<Reg> {
    match operand {
        Operand::Name(name) => match b.register(name) {
            Some(reg) if b.bits(reg) == 1 || b.bits(reg) > 64 => {
                b.error(format!("`{name}` is not a number"))
            }
            Some(reg) => Ok(reg),
            None => b.value(operand, bits),
        },
        _ => b.value(operand, bits),
    }
}

fn cvta(b: &mut Builder<'_>, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
    let to = m.flag("to");
    let space = m.need("space", memory::space)?;
    m.ty()?;
    m.end()?;
    let window = match space {
        Space::Shared => SHARED_WINDOW,
        Space::Local => LOCAL_WINDOW,
        Space::Param => PARAM_WINDOW,
        _ => 0,
    };
    let [d, a] = operands(b, o)?;
    let (d, a) = (b.target(d, 64)?, b.value(a, 64)?);
    if window == 0 {
        b.alu(Alu::Mov64 { d, a });
    } else {
        let f = if to { IntBin::Sub } else { IntBin::Add };
        let window = b.number(64, window);
        b.alu(Alu::IntBin {
            f,
            ty: Int::U64,
            d,
            a,
            b: window,
        });
    }
    Ok(())
}

fn fence(b: &mut Builder<'_>, mut m: Modifiers<'_>) -> Result<()> {
    if m.flag("proxy") {
        b.emit(Op::Nop);
        return Ok(());
    }
    m.drop(|name| matches!(name, "sc" | "acq_rel" | "acquire" | "release"));
    let device = m.flag("gl") || m.flag("gpu") || m.flag("sys");
    if !device && !m.flag("cta") {
        return b.error("no scope");
    }
    m.end()?;
    b.emit(Op::Fence { device });
    Ok(())
}

fn barrier(b: &mut Builder<'_>, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
    if m.flag("cluster") {
        return b.error("clusters are not supported");
    }
    if m.flag("warp") {
        m.flag("sync");
        m.end()?;
        let [mask] = operands(b, o)?;
        let mask = b.value(mask, 32)?;
        b.emit(Op::WarpSync { mask });
        return Ok(());
    }
    m.drop(|name| matches!(name, "cta" | "aligned"));
    if m.flag("red") {
        let popc = m.flag("popc");
        let all = m.flag("and");
        let any = m.flag("or");
        m.ty()?;
        m.end()?;
        let (d, id, threads, p) = match o {
            [d, id, p] => (d, id, None, p),
            [d, id, threads, p] => (d, id, Some(threads), p),
            _ => return b.error("neither three nor four operands"),
        };
        let (p, negate) = b.predicate(p)?;
        let kind = match (popc, all, any) {
            (true, false, false) => BarrierKind::Popc {
                d: b.target(d, 32)?,
                p,
                negate,
            },
            (false, true, false) | (false, false, true) => BarrierKind::Vote {
                all,
                d: b.target(d, 1)?,
                p,
                negate,
            },
            _ => return b.error("no `.popc`, `.and` or `.or`"),
        };
        return emit_barrier(b, kind, id, threads);
    }
    let kind = if m.flag("arrive") {
        BarrierKind::Arrive
    } else if m.flag("sync") {
        BarrierKind::Sync
    } else {
        return b.error("no `.sync`, `.arrive` or `.red`");
    };
    m.end()?;
    match o {
        [id] => emit_barrier(b, kind, id, None),
        [id, threads] => emit_barrier(b, kind, id, Some(threads)),
        _ => b.error("neither one nor two operands"),
    }
}

fn emit_barrier(
    b: &mut Builder<'_>,
    kind: BarrierKind,
    id: &Operand,
    threads: Option<&Operand>,
) -> Result<()> {
    let id = b.value(id, 32)?;
    let threads = threads.map_or(Ok(NONE), |t| b.value(t, 32))?;
    b.emit(Op::Barrier { kind, id, threads });
    Ok(())
}

fn shuffle(b: &mut Builder<'_>, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
    if !m.flag("sync") {
        return b.error("only `.sync` forms are supported");
    }
    let mode = m.need("mode", |name| {
        Some(match name {
            "up" => ShuffleMode::Up,
            "down" => ShuffleMode::Down,
            "bfly" => ShuffleMode::Butterfly,
            "idx" => ShuffleMode::Index,
            _ => return None,
        })
    })?;
    m.ty()?;
    m.end()?;
    let [d, a, by, c, mask] = operands(b, o)?;
    let (d, p) = pair(b, d, 32)?;
    let (a, by, c, mask) = (
        b.value(a, 32)?,
        b.value(by, 32)?,
        b.value(c, 32)?,
        b.value(mask, 32)?,
    );
    b.emit(Op::Shuffle {
        mode,
        d,
        p,
        a,
        b: by,
        c,
        mask,
    });
    Ok(())
}

/// Votes and the other instructions of a warp.
fn warp(b: &mut Builder<'_>, name: &str, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
    if name == "activemask" {
        m.ty()?;
        m.end()?;
        let [d] = operands(b, o)?;
        let d = b.target(d, 32)?;
        b.emit(Op::ActiveMask { d });
        return Ok(());
    }
    if !m.flag("sync") {
        return b.error("only `.sync` forms are supported");
    }
    match name {
        "vote" => {
            let mode = m.need("mode", |name| {
                Some(match name {
                    "all" => VoteMode::All,
                    "any" => VoteMode::Any,
                    "uni" => VoteMode::Uniform,
                    "ballot" => VoteMode::Ballot,
                    _ => return None,
                })
            })?;
            m.ty()?;
            m.end()?;
            let [d, a, mask] = operands(b, o)?;
            let d = b.target(d, if mode == VoteMode::Ballot { 32 } else { 1 })?;
            let (a, negate) = b.predicate(a)?;
            let mask = b.value(mask, 32)?;
            b.emit(Op::Vote {
                mode,
                negate,
                d,
                a,
                mask,
            });
        }
        "match" => {
            let all = m.flag("all");
            if !all && !m.flag("any") {
                return b.error("no `.any` or `.all`");
            }
            let bits = m.ty()?.bytes() * 8;
            m.end()?;
            let [d, a, mask] = operands(b, o)?;
            let (d, p) = pair(b, d, 32)?;
            let (a, mask) = (b.value(a, bits)?, b.value(mask, 32)?);
            b.emit(Op::Match {
                all,
                wide: bits == 64,
                d,
                p,
                a,
                mask,
            });
        }
        "redux" => {
            let op = m.need("operation", memory::atom_op)?;
            let ty = m.int()?;
            m.end()?;
            let [d, a, mask] = operands(b, o)?;
            let (d, a, mask) = (b.target(d, 32)?, b.value(a, 32)?, b.value(mask, 32)?);
            b.emit(Op::Redux {
                op,
                signed: ty.signed(),
                d,
                a,
                mask,
            });
        }
        _ => {
            m.end()?;
            let [d, mask] = operands(b, o)?;
            let (d, p) = pair(b, d, 32)?;
            let mask = b.value(mask, 32)?;
            b.emit(Op::Elect { d, p, mask });
        }
    }
    Ok(())
}
