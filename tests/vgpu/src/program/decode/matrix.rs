//! Decoding of the matrix instructions.

use super::{Modifiers, memory, operands};
use crate::{
    matrix::{
        Element, Shape,
        layout::{Family, Fragment, Role},
        mma::Mma,
    },
    program::{
        lower::{Builder, Result},
        op::{NONE, Op, Reg},
    },
    ptx::{Operand, Space, Type},
};

pub(super) fn instruction(
    b: &mut Builder<'_>,
    name: &str,
    mut m: Modifiers<'_>,
    o: &[Operand],
) -> Result<()> {
    if !(m.flag("sync") & (m.flag("aligned") || name == "wmma")) && name != "wmma" {
        return b.error("only `.sync.aligned` forms are supported");
    }
    match name {
        "ldmatrix" | "stmatrix" => transfer(b, name == "ldmatrix", m, o),
        "mma" => product(b, Family::Mma, m, o),
        _ => {
            m.flag("aligned");
            if m.flag("mma") {
                product(b, Family::Wmma, m, o)
            } else if m.flag("load") {
                fragment(b, true, m, o)
            } else if m.flag("store") {
                fragment(b, false, m, o)
            } else {
                b.error("neither `.load`, `.mma` nor `.store`")
            }
        }
    }
}

fn registers(b: &mut Builder<'_>, operand: &Operand, bits: u32, define: bool) -> Result<Vec<Reg>> {
    let list = match operand {
        Operand::Vector(list) => list.as_slice(),
        other => std::slice::from_ref(other),
    };
    list.iter()
        .map(|r| {
            if define {
                b.target(r, bits)
            } else {
                b.value(r, bits)
            }
        })
        .collect()
}

fn transfer(b: &mut Builder<'_>, load: bool, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
    let count = m.need("`.x1`, `.x2` or `.x4`", |name| match name {
        "x1" => Some(1),
        "x2" => Some(2),
        "x4" => Some(4),
        _ => None,
    })?;
    if !m.flag("m8n8") {
        return b.error("only tiles of 8 by 8 are supported");
    }
    let transposed = m.flag("trans");
    if m.ty()? != Type::B16 {
        return b.error("only elements of 16 bits are supported");
    }
    let [x, y] = operands(b, o)?;
    let (address, list) = if load { (y, x) } else { (x, y) };
    // A lane's address is that of a row of 16 bytes.
    let access = memory::access(b, &mut m, address, 16)?;
    m.end()?;
    if !matches!(access.space, Space::Shared | Space::Generic) {
        return b.error("tiles lie in shared memory");
    }
    let list = registers(b, list, 32, load)?;
    if list.len() != count {
        return b.error(format!("{} registers, not {count}", list.len()));
    }
    let list = b.list(&list);
    b.emit(if load {
        Op::LoadMatrix {
            access,
            d: list,
            transposed,
        }
    } else {
        Op::StoreMatrix {
            access,
            a: list,
            transposed,
        }
    });
    Ok(())
}

fn shape(name: &str) -> Option<Shape> {
    let (m, rest) = name.strip_prefix('m')?.split_once('n')?;
    let (n, k) = rest.split_once('k')?;
    Some(Shape {
        m: m.parse().ok()?,
        n: n.parse().ok()?,
        k: k.parse().ok()?,
    })
}

fn element(b: &Builder<'_>, ty: Type) -> Result<Element> {
    Ok(match ty {
        Type::F16 => Element::F16,
        Type::Bf16 => Element::Bf16,
        Type::Tf32 => Element::Tf32,
        Type::F32 => Element::F32,
        Type::F64 => Element::F64,
        Type::S8 => Element::S8,
        Type::U8 => Element::U8,
        Type::S32 => Element::S32,
        Type::E4m3 => Element::E4m3,
        Type::E5m2 => Element::E5m2,
        _ => return b.error(format!("matrices of {ty:?} are not supported")),
    })
}

/// The products that the layouts are known for.
fn known(family: Family, shape: Shape, a: Element) -> bool {
    use Element::{Bf16, E4m3, E5m2, F16, F64, S8, Tf32, U8};
    let Shape { m, n, k } = shape;
    match family {
        Family::Mma => match a {
            F16 | Bf16 => matches!((m, n, k), (16, 8, 8 | 16)),
            Tf32 => matches!((m, n, k), (16, 8, 4 | 8)),
            F64 => matches!((m, n, k), (8, 8, 4) | (16, 8, 4 | 8 | 16)),
            S8 | U8 => matches!((m, n, k), (8, 8, 16) | (16, 8, 16 | 32)),
            E4m3 | E5m2 => matches!((m, n, k), (16, 8, 16 | 32)),
            _ => false,
        },
        Family::Wmma => match a {
            F16 | Bf16 | S8 | U8 => matches!((m, n, k), (16, 16, 16) | (32, 8, 16) | (8, 32, 16)),
            Tf32 => (m, n, k) == (16, 16, 8),
            F64 => (m, n, k) == (8, 8, 4),
            _ => false,
        },
    }
}

fn width(element: Element) -> u32 {
    if element == Element::F64 { 64 } else { 32 }
}

fn product(b: &mut Builder<'_>, family: Family, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
    let shape = m.need("shape", shape)?;
    let row_major = |name: &str| match name {
        "row" => Some(true),
        "col" => Some(false),
        _ => None,
    };
    let (left, right) = (m.need("layout", row_major)?, m.need("layout", row_major)?);
    // The layouts of wmma only say how fragments were loaded; those of mma are fixed for these shapes.
    if family == Family::Mma && (left, right) != (true, false) {
        return b.error("only `.row.col` is supported");
    }
    let saturate = m.flag("satfinite");
    m.drop(|name| matches!(name, "rn" | "kind::f8f6f4"));
    let mut types = Vec::new();
    while let Some(ty) = m.find(Type::from_name) {
        types.push(element(b, ty)?);
    }
    m.end()?;
    let (d, a, right, c) = match types[..] {
        [d, a, right, c] => (d, a, right, c),
        // wmma of halves names the accumulators alone.
        [d, c] if family == Family::Wmma => (d, Element::F16, Element::F16, c),
        _ => return b.error(format!("{} types", types.len())),
    };
    if !known(family, shape, a) {
        return b.error("this shape is not supported with these types");
    }
    let kind = Mma {
        family,
        shape,
        a,
        b: right,
        c,
        d,
        saturate,
    };
    let [to, x, y, z] = operands(b, o)?;
    let fragments = [
        (to, kind.result(), true),
        (x, kind.fragment(Role::A), false),
        (y, kind.fragment(Role::B), false),
        (z, kind.fragment(Role::C), false),
    ];
    let mut lists = Vec::new();
    for (operand, fragment, define) in fragments {
        let list = registers(b, operand, width(fragment.element), define)?;
        if list.len() != fragment.registers() {
            return b.error(format!(
                "{} registers, not {}",
                list.len(),
                fragment.registers()
            ));
        }
        if list.contains(&NONE) {
            return b.error("`_` is not a register of a matrix");
        }
        lists.push(b.list(&list));
    }
    let index = b.code.products.len() as u32;
    b.code.products.push(kind);
    b.emit(Op::Mma {
        kind: index,
        d: lists[0],
        a: lists[1],
        b: lists[2],
        c: lists[3],
    });
    Ok(())
}

fn fragment(b: &mut Builder<'_>, load: bool, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
    let role = m.need("matrix", |name| match name {
        "a" => Some(Role::A),
        "b" => Some(Role::B),
        "c" | "d" => Some(Role::C),
        _ => None,
    })?;
    let row_major = m.need("layout", |name| match name {
        "row" => Some(true),
        "col" => Some(false),
        _ => None,
    })?;
    let shape = m.need("shape", shape)?;
    let ty = m.ty()?;
    let element = element(b, ty)?;
    let factor = match element {
        Element::F32 => Element::F16,
        Element::S32 => Element::S8,
        other => other,
    };
    // An f32 accumulator is that of tf32 when the shape is.
    if !known(Family::Wmma, shape, factor) && !known(Family::Wmma, shape, Element::Tf32) {
        return b.error("this shape is not supported with this type");
    }
    let fragment = Fragment {
        family: Family::Wmma,
        role,
        shape,
        element,
    };
    let (first, second, stride) = match o {
        [x, y] => (x, y, None),
        [x, y, stride] => (x, y, Some(stride)),
        _ => return b.error("neither two nor three operands"),
    };
    let (list, address) = if load {
        (first, second)
    } else {
        (second, first)
    };
    let access = memory::access(b, &mut m, address, element.bits() as u32 / 8)?;
    m.end()?;
    let list = registers(b, list, width(element), load)?;
    if list.len() != fragment.registers() {
        return b.error(format!(
            "{} registers, not {}",
            list.len(),
            fragment.registers()
        ));
    }
    let list = b.list(&list);
    let (rows, columns) = fragment.size();
    let stride = match stride {
        Some(stride) => b.value(stride, 32)?,
        None => b.number(32, if row_major { columns } else { rows } as u64),
    };
    let index = b.code.fragments.len() as u32;
    b.code.fragments.push((fragment, row_major));
    b.emit(if load {
        Op::LoadFragment {
            fragment: index,
            access,
            stride,
            d: list,
        }
    } else {
        Op::StoreFragment {
            fragment: index,
            access,
            stride,
            a: list,
        }
    });
    Ok(())
}
