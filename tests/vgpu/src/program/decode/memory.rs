//! Decoding of loads, stores, atomics and asynchronous copies.

use super::{Modifiers, operands};
use crate::{
    program::{
        lower::{Builder, Result},
        op::{Access, Alu, AtomOp, Fill, NONE, Op, Reg},
    },
    ptx::{Operand, Space, Type},
};

/// The state space that a modifier names.
pub(super) fn space(name: &str) -> Option<Space> {
    Some(match name {
        "global" => Space::Global,
        "const" => Space::Const,
        "shared" | "shared::cta" => Space::Shared,
        "local" => Space::Local,
        "param" | "param::entry" | "param::func" => Space::Param,
        _ => return None,
    })
}

/// The operation of an atomic or a reduction.
pub(super) fn atom_op(name: &str) -> Option<AtomOp> {
    Some(match name {
        "add" => AtomOp::Add,
        "min" => AtomOp::Min,
        "max" => AtomOp::Max,
        "and" => AtomOp::And,
        "or" => AtomOp::Or,
        "xor" => AtomOp::Xor,
        "inc" => AtomOp::Inc,
        "dec" => AtomOp::Dec,
        "exch" => AtomOp::Exchange,
        "cas" => AtomOp::CompareExchange,
        _ => return None,
    })
}

pub(super) fn instruction(
    b: &mut Builder<'_>,
    name: &str,
    mut m: Modifiers<'_>,
    o: &[Operand],
) -> Result<()> {
    match name {
        "ld" | "ldu" => load(b, m, o),
        "st" => store(b, m, o),
        "atom" => atomic(b, true, m, o),
        "red" => {
            if m.flag("async") {
                return b.error("reductions in other blocks are not supported");
            }
            atomic(b, false, m, o)
        }
        _ => copy(b, m, o),
    }
}

/// Takes the modifiers that say how caches should behave; an operand for a policy comes with one of them.
fn cache_hints(m: &mut Modifiers<'_>) -> bool {
    let policy = m.flag("L2::cache_hint");
    m.drop(|name| {
        matches!(name, "ca" | "cg" | "cs" | "lu" | "cv" | "wb" | "wt" | "nc")
            || name.starts_with("L1::")
            || name.starts_with("L2::")
            || name.starts_with("level::")
    });
    policy
}

/// The space, the order and the scope of an access to `size` bytes at an operand.
pub(super) fn access(
    b: &mut Builder<'_>,
    m: &mut Modifiers<'_>,
    address: &Operand,
    size: u32,
) -> Result<Access> {
    let strong = m.flag("volatile") | m.flag("relaxed") | m.flag("mmio");
    let acquire = m.flag("acquire");
    let release = m.flag("release");
    let both = m.flag("acq_rel");
    m.drop(|name| matches!(name, "weak" | "cta" | "gpu" | "sys"));
    if m.flag("cluster") || m.flag("shared::cluster") {
        return b.error("clusters are not supported");
    }
    let mut named = m.find(space).unwrap_or(Space::Generic);
    let (base, wide, offset, found) = b.address(address)?;
    // Parameters of inlined functions lie in the frame, and so does what `.param` declares at a call.
    if let Some(found) = found
        && (named == Space::Param || named == Space::Generic)
    {
        named = found;
    }
    let (acquire, release) = (acquire || both, release || both);
    Ok(Access {
        space: named,
        base,
        wide,
        offset,
        size,
        strong: strong || acquire || release,
        acquire,
        release,
    })
}

/// The number and the type of the elements.
fn vector(b: &Builder<'_>, m: &mut Modifiers<'_>) -> Result<(usize, Type)> {
    let count = m.find(|name| match name {
        "v2" => Some(2),
        "v4" => Some(4),
        "v8" => Some(8),
        _ => None,
    });
    let (count, ty) = (count.unwrap_or(1), m.ty()?);
    if count * ty.bytes() as usize > 32 {
        return b.error(format!("{count} elements of {ty:?} are more than 32 bytes"));
    }
    Ok((count, ty))
}

/// The elements of a vector operand, or the one operand.
fn elements<'o>(b: &Builder<'_>, operand: &'o Operand, count: usize) -> Result<&'o [Operand]> {
    match operand {
        Operand::Vector(list) if list.len() == count => Ok(list),
        Operand::Vector(list) => b.error(format!("{} elements, not {count}", list.len())),
        other if count == 1 => Ok(std::slice::from_ref(other)),
        _ => b.error(format!("one element, not {count}")),
    }
}

fn load(b: &mut Builder<'_>, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
    let policy = cache_hints(&mut m);
    let (count, ty) = vector(b, &mut m)?;
    let [d, address] = match o {
        [d, address, _] if policy => [d, address],
        _ => operands(b, o)?,
    };
    let access = access(b, &mut m, address, ty.bytes())?;
    m.end()?;
    let list = elements(b, d, count)?;
    let registers = list
        .iter()
        .map(|r| b.any_target(r))
        .collect::<Result<Vec<_>>>()?;
    let bits = ty.bytes() * 8;
    let width = registers
        .iter()
        .filter(|&&r| r != NONE)
        .map(|&r| b.bits(r))
        .max()
        .unwrap_or(bits);
    for &reg in registers.iter().filter(|&&r| r != NONE) {
        if b.bits(reg) != width || width < bits {
            return b.error("a register does not fit the type");
        }
    }
    let d = b.list(&registers);
    let fill = Fill {
        from: bits,
        to: width,
        signed: ty.signed(),
    };
    b.emit(Op::Load { access, d, fill });
    Ok(())
}

fn store(b: &mut Builder<'_>, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
    if m.flag("bulk") || m.flag("async") {
        return b.error("asynchronous stores are not supported");
    }
    let policy = cache_hints(&mut m);
    let (count, ty) = vector(b, &mut m)?;
    let [address, a] = match o {
        [address, a, _] if policy => [address, a],
        _ => operands(b, o)?,
    };
    let list = elements(b, a, count)?;
    let registers = list
        .iter()
        .map(|r| b.narrowed(r, ty.bytes() * 8))
        .collect::<Result<Vec<_>>>()?;
    let access = access(b, &mut m, address, ty.bytes())?;
    m.end()?;
    let a = b.list(&registers);
    b.emit(Op::Store { access, a });
    Ok(())
}

fn atomic(b: &mut Builder<'_>, result: bool, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
    let policy = cache_hints(&mut m);
    m.flag("noftz");
    let op = m.need("operation", atom_op)?;
    let ty = m.ty()?;
    let (d, o) = match o.split_first() {
        Some((d, rest)) if result => (Some(d), rest),
        _ => (None, o),
    };
    let o = if policy {
        &o[..o.len().saturating_sub(1)]
    } else {
        o
    };
    let (address, x, y) = match (op, o) {
        (AtomOp::CompareExchange, [address, x, y]) => (address, x, Some(y)),
        (_, [address, x]) if op != AtomOp::CompareExchange => (address, x, None),
        _ => return b.error("the number of operands is wrong"),
    };
    let access = access(b, &mut m, address, ty.bytes())?;
    m.end()?;
    let known = match ty {
        Type::F32 | Type::F64 | Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2 => {
            matches!(op, AtomOp::Add) || (matches!(op, AtomOp::Min | AtomOp::Max) && ty.bytes() < 8)
        }
        Type::B16 | Type::U16 | Type::B128 => {
            matches!(op, AtomOp::Exchange | AtomOp::CompareExchange)
        }
        Type::B32 | Type::U32 | Type::S32 | Type::B64 | Type::U64 | Type::S64 => true,
        _ => false,
    };
    if !known {
        return b.error(format!("there is no such atomic of {ty:?}"));
    }
    let bits = ty.bytes() * 8;
    let d = d.map_or(Ok(NONE), |d| b.target(d, bits))?;
    let x = b.value(x, bits)?;
    let y = y.map_or(Ok(NONE), |y| b.value(y, bits))?;
    b.emit(Op::Atom {
        op,
        ty,
        access,
        d,
        a: x,
        b: y,
    });
    Ok(())
}

fn copy(b: &mut Builder<'_>, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
    if !m.flag("async") || m.flag("bulk") || m.flag("mbarrier") || m.flag("reduce") {
        return b.error("bulk copies are not supported");
    }
    if m.flag("commit_group") {
        m.end()?;
        b.emit(Op::CommitGroup);
        return Ok(());
    }
    if m.flag("wait_all") {
        m.end()?;
        b.emit(Op::WaitGroup { pending: None });
        return Ok(());
    }
    if m.flag("wait_group") {
        m.end()?;
        let [Operand::Integer(pending)] = o else {
            return b.error("the number of groups is not an immediate");
        };
        b.emit(Op::WaitGroup {
            pending: Some(*pending as u32),
        });
        return Ok(());
    }
    let policy = cache_hints(&mut m);
    if !(m.flag("shared") | m.flag("shared::cta")) || !m.flag("global") {
        return b.error("not a copy from global to shared memory");
    }
    let o = if policy {
        &o[..o.len().saturating_sub(1)]
    } else {
        o
    };
    let (to, from, size, source) = match o {
        [to, from, Operand::Integer(size)] => (to, from, *size, None),
        [to, from, Operand::Integer(size), source] => (to, from, *size, Some(source)),
        _ => return b.error("the number of operands is wrong"),
    };
    if !matches!(size, 4 | 8 | 16) {
        return b.error(format!("a copy of {size} bytes"));
    }
    let size = size as u32;
    let mut to = access(b, &mut m, to, size)?;
    to.space = Space::Shared;
    let mut from = access(b, &mut m, from, size)?;
    from.space = Space::Global;
    m.end()?;
    let source_bytes = match source {
        None => NONE,
        Some(source) => source_size(b, source, size)?,
    };
    b.emit(Op::CopyAsync {
        to,
        from,
        source_bytes,
    });
    Ok(())
}

/// How many bytes to read: a number, or none of them where a predicate says to ignore the source.
fn source_size(b: &mut Builder<'_>, operand: &Operand, size: u32) -> Result<Reg> {
    let predicate = match operand {
        Operand::Name(name) | Operand::Not(name) => {
            b.register(name).is_some_and(|r| b.bits(r) == 1)
        }
        _ => false,
    };
    if !predicate {
        return b.value(operand, 32);
    }
    let p = b.plain_predicate(operand)?;
    let (none, all) = (b.number(32, 0), b.number(32, u64::from(size)));
    let d = b.temporary(32);
    b.alu(Alu::Selp {
        wide: false,
        d,
        a: none,
        b: all,
        p,
    });
    Ok(d)
}
