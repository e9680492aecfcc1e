//! Decoding of barriers, fences and what the lanes of a warp do together.

use super::{Modifiers, memory, operands, pair};
use crate::{
    program::{
        lower::{Builder, Result},
        op::{BarrierKind, NONE, Op, ShuffleMode, VoteMode},
    },
    ptx::Operand,
};

pub(super) fn fence(b: &mut Builder<'_>, mut m: Modifiers<'_>) -> Result<()> {
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

pub(super) fn barrier(b: &mut Builder<'_>, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
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

pub(super) fn shuffle(b: &mut Builder<'_>, mut m: Modifiers<'_>, o: &[Operand]) -> Result<()> {
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
pub(super) fn warp(
    b: &mut Builder<'_>,
    name: &str,
    mut m: Modifiers<'_>,
    o: &[Operand],
) -> Result<()> {
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
