//! One instruction as written → one or a few [`Op`]s.
//!
//! Modifiers are taken one by one; one that is left over was not understood, and that is an error: an instruction is
//! never run as if it said less than it does.

mod arithmetic;
mod compare;
mod matrix;
mod memory;
mod sync;

use super::{
    LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW,
    lower::{Builder, Result},
    op::{Alu, Combine, Convert, Fill, Float, FloatBin, Int, IntBin, NONE, Op, Reg, rounding},
};
use crate::{
    arith::{
        Mode, Rounding,
        convert::{Conversion, Number},
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
            arithmetic::arithmetic(b, name, m, o)
        }
        "addc" | "subc" | "madc" => arithmetic::carry(b, name, true, m, o),
        "mad" | "fma" => arithmetic::multiply_add(b, name, m, o),
        "and" | "or" | "xor" | "not" | "cnot" => arithmetic::logic(b, name, m, o),
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
            arithmetic::bits_of_three(b, name, m, o)
        }
        "bfi" | "bmsk" | "szext" | "brev" | "clz" | "popc" | "bfind" => {
            arithmetic::bits(b, name, m, o)
        }
        "rcp" | "sqrt" | "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh" => {
            arithmetic::special_function(b, name, m, o)
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
        "testp" => compare::testp(b, m, o),
        "setp" => compare::setp(b, m, o),
        "set" => compare::set(b, m, o),
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
        "membar" | "fence" => sync::fence(b, m),
        "bar" | "barrier" => sync::barrier(b, m, o),
        "shfl" => sync::shuffle(b, m, o),
        "vote" | "match" | "redux" | "activemask" | "elect" => sync::warp(b, name, m, o),
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
