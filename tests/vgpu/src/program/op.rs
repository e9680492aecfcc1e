//! Decoded instructions.
//!
//! An operand is a number. While a kernel is decoded it is that of a virtual register or a constant; afterwards
//! ([`super::allocate`]) it is a row of the warp's register file, or a bit mask of its own for a predicate.

use crate::{
    arith::{
        Mode, Rounding,
        compare::{Comparison, Extremum, Property},
        convert::{Conversion, Number},
        integer::{Distance, Permutation},
    },
    ptx::{Space, Type},
};

/// A register.
pub(crate) type Reg = u32;

/// No register: an absent operand or a result that is not wanted.
pub(crate) const NONE: Reg = Reg::MAX;

/// A run of registers in [`super::Code::lists`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct List {
    pub start: u32,
    pub len: u32,
}

/// An instruction with what applies to all of them.
#[derive(Clone, Debug)]
pub(crate) struct Inst {
    pub op: Op,
    /// Predicate that must hold, or [`NONE`].
    pub guard: Reg,
    /// Whether it must not hold instead.
    pub negated: bool,
}

/// The types of integer arithmetic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Int {
    U16,
    S16,
    U32,
    S32,
    U64,
    S64,
}

impl Int {
    pub(crate) fn of(ty: Type) -> Option<Self> {
        Some(match ty {
            Type::U16 | Type::B16 => Self::U16,
            Type::S16 => Self::S16,
            Type::U32 | Type::B32 => Self::U32,
            Type::S32 => Self::S32,
            Type::U64 | Type::B64 => Self::U64,
            Type::S64 => Self::S64,
            _ => return None,
        })
    }

    pub(crate) fn signed(self) -> bool {
        matches!(self, Self::S16 | Self::S32 | Self::S64)
    }
}

/// The types of floating-point arithmetic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Float {
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32,
    F64,
}

impl Float {
    pub(crate) fn of(ty: Type) -> Option<Self> {
        Some(match ty {
            Type::F16 => Self::F16,
            Type::F16x2 => Self::F16x2,
            Type::Bf16 => Self::Bf16,
            Type::Bf16x2 => Self::Bf16x2,
            Type::F32 => Self::F32,
            Type::F64 => Self::F64,
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum IntUn {
    Not,
    Cnot,
    Neg,
    Abs,
    Brev,
    /// `clz`, `popc` and `bfind` give 32 bits of any width.
    Clz,
    Popc,
    Bfind {
        shift_amount: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum IntBin {
    Add,
    Sub,
    MulLo,
    MulHi,
    Mul24Lo,
    Mul24Hi,
    Div,
    Rem,
    Min,
    Max,
    And,
    Or,
    Xor,
    /// The distance of a shift is always 32 bits.
    Shl,
    Shr,
    AddSat,
    SubSat,
    Bmsk(Distance),
    Szext(Distance),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum IntTri {
    MadLo,
    MadHi,
    MadHiSat,
    Mad24Lo,
    Mad24Hi,
    Mad24HiSat,
    Sad,
    /// Position and length are 32 bits.
    Bfe,
    Lop3(u8),
    ShfL(Distance),
    ShfR(Distance),
    Prmt(Permutation),
    Fns,
    Dp4a {
        signs: (bool, bool),
    },
    Dp2a {
        signs: (bool, bool),
        upper: bool,
    },
}

/// Which half of an extended addition or product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CarryOp {
    Add,
    Sub,
    MadLo { signed: bool },
    MadHi { signed: bool },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FloatUn {
    Neg,
    Abs,
    Rcp,
    Sqrt,
    RcpApprox,
    SqrtApprox,
    RsqrtApprox,
    Ex2,
    Lg2,
    Sin,
    Cos,
    Tanh,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FloatBin {
    Add,
    Sub,
    Mul,
    Div,
    DivApprox,
    DivFull,
    Min(Extremum),
    Max(Extremum),
    Copysign,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Combine {
    And,
    Or,
    Xor,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Compared {
    Int(Int),
    Float(Float),
}

/// What `cvt` does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Convert {
    One {
        to: Number,
        from: Number,
        options: Conversion,
        /// A sign-extended result fills the register, wider than the type it may be.
        fill: Fill,
    },
    /// Two `f32` to a packed pair; `b` is the lower.
    Pair { to: Number, options: Conversion },
    /// A packed pair of 8-bit floats to a pair of `f16`.
    Unpair { from: Number, relu: bool },
}

impl Convert {
    /// Whether either side is `f64`.
    pub(crate) fn of_f64(&self) -> bool {
        match self {
            Self::One { to, from, .. } => *to == Number::F64 || *from == Number::F64,
            Self::Pair { .. } | Self::Unpair { .. } => false,
        }
    }
}

/// How a value narrower than its register fills it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fill {
    /// Bits of the value.
    pub from: u32,
    /// Bits of the register.
    pub to: u32,
    pub signed: bool,
}

impl Fill {
    /// Extends a value of `from` bits.
    #[inline(always)]
    pub(crate) fn apply(self, bits: u64) -> u64 {
        let value = if self.signed {
            let unused = 64 - self.from;
            ((bits << unused) as i64 >> unused) as u64
        } else {
            bits & (u64::MAX >> (64 - self.from))
        };
        value & (u64::MAX >> (64 - self.to))
    }
}

/// Registers that hold what the hardware knows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    LaneId,
    WarpId,
    NWarpId,
    SmId,
    NSmId,
    GridId,
    LaneMaskEq,
    LaneMaskLe,
    LaneMaskLt,
    LaneMaskGe,
    LaneMaskGt,
    Clock,
    ClockHigh,
    GlobalTimer,
    GlobalTimerLow,
    GlobalTimerHigh,
    TotalShared,
    DynamicShared,
    /// The halves of the address of the workspace of a cooperative launch are 1 (high) and 2 (low).
    Env(u8),
}

/// Instructions on registers alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Alu {
    Mov32 {
        d: Reg,
        a: Reg,
    },
    Mov64 {
        d: Reg,
        a: Reg,
    },
    Mov128 {
        d: Reg,
        a: Reg,
    },
    IntUn {
        f: IntUn,
        ty: Int,
        d: Reg,
        a: Reg,
    },
    IntBin {
        f: IntBin,
        ty: Int,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    IntTri {
        f: IntTri,
        ty: Int,
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    /// `a * b + c` in twice the width of `ty`; `c` may be absent.
    MulWide {
        ty: Int,
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    Bfi {
        wide: bool,
        d: Reg,
        a: Reg,
        b: Reg,
        position: Reg,
        length: Reg,
    },
    Carry {
        f: CarryOp,
        wide: bool,
        take: bool,
        give: bool,
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    /// Pairs of 16-bit integers: `add`, `min`, `max`.
    Pair16 {
        f: IntBin,
        signed: bool,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    FloatUn {
        f: FloatUn,
        ty: Float,
        mode: Mode,
        d: Reg,
        a: Reg,
    },
    FloatBin {
        f: FloatBin,
        ty: Float,
        mode: Mode,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    Fma {
        ty: Float,
        mode: Mode,
        relu: bool,
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    Convert {
        how: u32,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    /// `combine`, with predicate `c` (negated if said), if that is there.
    Setp {
        cmp: Comparison,
        ty: Compared,
        ftz: bool,
        combine: Combine,
        negate: bool,
        d: Reg,
        q: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    /// As a number instead of a predicate: all ones, or `one` if that is not 0.
    Set {
        cmp: Comparison,
        ty: Compared,
        ftz: bool,
        one: u32,
        combine: Combine,
        negate: bool,
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    Testp {
        property: Property,
        wide: bool,
        d: Reg,
        a: Reg,
    },
    Selp {
        wide: bool,
        d: Reg,
        a: Reg,
        b: Reg,
        p: Reg,
    },
    /// `a` where `c` is not negative, else `b`.
    Slct {
        wide: bool,
        float: bool,
        ftz: bool,
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    PredicateConst {
        d: Reg,
        value: bool,
    },
    PredicateNot {
        d: Reg,
        a: Reg,
    },
    Predicate {
        f: Combine,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    /// `d` from parts of `bits` each, the first lowest.
    Pack {
        bits: u32,
        d: Reg,
        parts: List,
    },
    Unpack {
        bits: u32,
        a: Reg,
        parts: List,
    },
}

/// What memory an instruction means and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Access {
    pub space: Space,
    /// Register of the address, or [`NONE`].
    pub base: Reg,
    /// Whether that has 64 bits.
    pub wide: bool,
    pub offset: i64,
    /// Bytes of an element.
    pub size: u32,
    /// Atomic in the sense of the memory model: volatile, relaxed, acquire, release.
    pub strong: bool,
    pub acquire: bool,
    pub release: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum AtomOp {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Inc,
    Dec,
    Exchange,
    CompareExchange,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ShuffleMode {
    Up,
    Down,
    Butterfly,
    Index,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum VoteMode {
    All,
    Any,
    Uniform,
    Ballot,
}

/// What `bar` and `barrier` do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum BarrierKind {
    Sync,
    Arrive,
    /// The result of `.popc` is a register, of the others a predicate.
    Popc {
        d: Reg,
        p: Reg,
        negate: bool,
    },
    Vote {
        all: bool,
        d: Reg,
        p: Reg,
        negate: bool,
    },
}

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    Nop,
    Alu(Alu),
    Special {
        d: Reg,
        which: Special,
        wide: bool,
    },
    Load {
        access: Access,
        d: List,
        fill: Fill,
    },
    Store {
        access: Access,
        a: List,
    },
    Atom {
        op: AtomOp,
        ty: Type,
        access: Access,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    CopyAsync {
        to: Access,
        from: Access,
        source_bytes: Reg,
    },
    CommitGroup,
    /// Waits until at most this many groups are pending; `None`: for everything, committed or not.
    WaitGroup {
        pending: Option<u32>,
    },
    Fence {
        device: bool,
    },
    Branch {
        target: u32,
        reconverge: u32,
    },
    /// Targets are in [`super::Code::lists`].
    BranchTable {
        index: Reg,
        targets: List,
        reconverge: u32,
    },
    /// Calls a subroutine, from a frame that begins at `caller` (or 0, without), and sets `frame` for it.
    Call {
        site: u32,
        caller: Reg,
        frame: Reg,
    },
    Return,
    Exit,
    /// With the frame offsets of text, file and line if it is an assertion that failed.
    Trap {
        assertion: Option<[u32; 3]>,
    },
    Barrier {
        kind: BarrierKind,
        id: Reg,
        threads: Reg,
    },
    WarpSync {
        mask: Reg,
    },
    Shuffle {
        mode: ShuffleMode,
        d: Reg,
        p: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
        mask: Reg,
    },
    Vote {
        mode: VoteMode,
        negate: bool,
        d: Reg,
        a: Reg,
        mask: Reg,
    },
    Match {
        all: bool,
        wide: bool,
        d: Reg,
        p: Reg,
        a: Reg,
        mask: Reg,
    },
    Redux {
        op: AtomOp,
        signed: bool,
        d: Reg,
        a: Reg,
        mask: Reg,
    },
    ActiveMask {
        d: Reg,
    },
    Elect {
        d: Reg,
        p: Reg,
        mask: Reg,
    },
    IsSpace {
        space: Space,
        d: Reg,
        a: Reg,
    },
    LoadMatrix {
        access: Access,
        d: List,
        transposed: bool,
    },
    StoreMatrix {
        access: Access,
        a: List,
        transposed: bool,
    },
    /// The kind is in [`super::Code::products`].
    Mma {
        kind: u32,
        d: List,
        a: List,
        b: List,
        c: List,
    },
    /// The fragment is in [`super::Code::fragments`].
    LoadFragment {
        fragment: u32,
        access: Access,
        stride: Reg,
        d: List,
    },
    StoreFragment {
        fragment: u32,
        access: Access,
        stride: Reg,
        a: List,
    },
    /// Frame offsets of the format and of the arguments of `vprintf`.
    Print {
        format: u32,
        arguments: u32,
        result: u32,
    },
}

/// How an instruction uses a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Use,
    Define,
}

impl Op {
    /// Visits all registers, those of lists included. [`NONE`] is not visited.
    pub(crate) fn visit(&mut self, lists: &mut [Reg], visit: &mut dyn FnMut(&mut Reg, Role)) {
        use Role::{Define, Use};
        let mut one = |reg: &mut Reg, role| {
            if *reg != NONE {
                visit(reg, role);
            }
        };
        macro_rules! walk {
            ($($d:ident),* ; $($u:ident),*) => {{ $(one($u, Use);)* $(one($d, Define);)* }};
        }
        let range = |list: &List| list.start as usize..(list.start + list.len) as usize;
        match self {
            Self::Nop | Self::CommitGroup | Self::WaitGroup { .. } | Self::Fence { .. } => {}
            Self::Branch { .. } | Self::Exit | Self::Return => {}
            Self::Trap { .. } | Self::Print { .. } => {}
            Self::Call { caller, frame, .. } => walk!(frame; caller),
            Self::Alu(alu) => match alu {
                Alu::Mov32 { d, a } | Alu::Mov64 { d, a } | Alu::Mov128 { d, a } => walk!(d; a),
                Alu::IntUn { d, a, .. } | Alu::FloatUn { d, a, .. } => walk!(d; a),
                Alu::IntBin { d, a, b, .. }
                | Alu::FloatBin { d, a, b, .. }
                | Alu::Pair16 { d, a, b, .. } => {
                    walk!(d; a, b);
                }
                Alu::IntTri { d, a, b, c, .. } | Alu::MulWide { d, a, b, c, .. } => {
                    walk!(d; a, b, c)
                }
                Alu::Carry { d, a, b, c, .. } | Alu::Fma { d, a, b, c, .. } => walk!(d; a, b, c),
                Alu::Bfi {
                    d,
                    a,
                    b,
                    position,
                    length,
                    ..
                } => walk!(d; a, b, position, length),
                Alu::Convert { d, a, b, .. } => walk!(d; a, b),
                Alu::Setp { d, q, a, b, c, .. } => walk!(d, q; a, b, c),
                Alu::Set { d, a, b, c, .. } | Alu::Slct { d, a, b, c, .. } => walk!(d; a, b, c),
                Alu::Testp { d, a, .. } | Alu::PredicateNot { d, a } => walk!(d; a),
                Alu::Selp { d, a, b, p, .. } => walk!(d; a, b, p),
                Alu::PredicateConst { d, .. } => walk!(d;),
                Alu::Predicate { d, a, b, .. } => walk!(d; a, b),
                Alu::Pack { d, parts, .. } => {
                    lists[range(parts)].iter_mut().for_each(|r| one(r, Use));
                    walk!(d;);
                }
                Alu::Unpack { a, parts, .. } => {
                    walk!(; a);
                    lists[range(parts)].iter_mut().for_each(|r| one(r, Define));
                }
            },
            Self::Special { d, .. } | Self::ActiveMask { d } => walk!(d;),
            Self::Mma { d, a, b, c, .. } => {
                for list in [a, b, c] {
                    lists[range(list)].iter_mut().for_each(|r| one(r, Use));
                }
                lists[range(d)].iter_mut().for_each(|r| one(r, Define));
            }
            Self::LoadFragment {
                access, stride, d, ..
            } => {
                walk!(; stride);
                one(&mut access.base, Use);
                lists[range(d)].iter_mut().for_each(|r| one(r, Define));
            }
            Self::StoreFragment {
                access, stride, a, ..
            } => {
                walk!(; stride);
                one(&mut access.base, Use);
                lists[range(a)].iter_mut().for_each(|r| one(r, Use));
            }
            Self::Load { access, d, .. } | Self::LoadMatrix { access, d, .. } => {
                one(&mut access.base, Use);
                lists[range(d)].iter_mut().for_each(|r| one(r, Define));
            }
            Self::Store { access, a } | Self::StoreMatrix { access, a, .. } => {
                one(&mut access.base, Use);
                lists[range(a)].iter_mut().for_each(|r| one(r, Use));
            }
            Self::Atom {
                access, d, a, b, ..
            } => {
                one(&mut access.base, Use);
                walk!(d; a, b);
            }
            Self::CopyAsync {
                to,
                from,
                source_bytes,
            } => {
                one(&mut to.base, Use);
                one(&mut from.base, Use);
                walk!(; source_bytes);
            }
            Self::BranchTable { index, .. } => walk!(; index),
            Self::Barrier { kind, id, threads } => {
                walk!(; id, threads);
                match kind {
                    BarrierKind::Sync | BarrierKind::Arrive => {}
                    BarrierKind::Popc { d, p, .. } | BarrierKind::Vote { d, p, .. } => walk!(d; p),
                }
            }
            Self::WarpSync { mask } => walk!(; mask),
            Self::Shuffle {
                d,
                p,
                a,
                b,
                c,
                mask,
                ..
            } => walk!(d, p; a, b, c, mask),
            Self::Vote { d, a, mask, .. } | Self::Redux { d, a, mask, .. } => walk!(d; a, mask),
            Self::Match { d, p, a, mask, .. } => walk!(d, p; a, mask),
            Self::Elect { d, p, mask } => walk!(d, p; mask),
            Self::IsSpace { d, a, .. } => walk!(d; a),
        }
    }
}

/// The pipe that an instruction is counted under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Integer,
    F32,
    F64,
    Half,
    Special,
    /// By its number in [`super::Code::conversions`].
    Conversion(u32),
    Control,
    Memory,
    /// By its kind in [`super::Code::products`].
    Mma(u32),
}

/// What one execution of an instruction adds to the counters: its pipe, and operations of a lane in f32 and f64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    pub class: Class,
    pub flops_f32: u32,
    pub flops_f64: u32,
}

impl Op {
    pub(crate) fn cost(&self) -> Cost {
        let class = |class| Cost {
            class,
            flops_f32: 0,
            flops_f64: 0,
        };
        let float = |ty: Float, flops| match ty {
            Float::F32 => Cost {
                class: Class::F32,
                flops_f32: flops,
                flops_f64: 0,
            },
            Float::F64 => Cost {
                class: Class::F64,
                flops_f32: 0,
                flops_f64: flops,
            },
            _ => class(Class::Half),
        };
        match self {
            Self::Alu(alu) => match *alu {
                Alu::FloatUn {
                    f: FloatUn::Neg | FloatUn::Abs,
                    ty,
                    ..
                } => float(ty, 0),
                Alu::FloatUn { ty, .. } => Cost {
                    class: Class::Special,
                    ..float(ty, 1)
                },
                Alu::FloatBin {
                    f: FloatBin::Div | FloatBin::DivApprox | FloatBin::DivFull,
                    ty,
                    ..
                } => Cost {
                    class: Class::Special,
                    ..float(ty, 1)
                },
                Alu::FloatBin {
                    f: FloatBin::Min(_) | FloatBin::Max(_) | FloatBin::Copysign,
                    ty,
                    ..
                } => float(ty, 0),
                Alu::FloatBin { ty, .. } => float(ty, 1),
                Alu::Fma { ty, .. } => float(ty, 2),
                Alu::Convert { how, .. } => class(Class::Conversion(how)),
                Alu::Setp {
                    ty: Compared::Float(ty),
                    ..
                }
                | Alu::Set {
                    ty: Compared::Float(ty),
                    ..
                } => float(ty, 0),
                _ => class(Class::Integer),
            },
            Self::Load { .. } | Self::Store { .. } | Self::Atom { .. } | Self::CopyAsync { .. } => {
                class(Class::Memory)
            }
            Self::LoadMatrix { .. } | Self::StoreMatrix { .. } => class(Class::Memory),
            Self::LoadFragment { .. } | Self::StoreFragment { .. } => class(Class::Memory),
            Self::Mma { kind, .. } => class(Class::Mma(*kind)),
            _ => class(Class::Control),
        }
    }
}

/// The rounding that a modifier names, and whether it is one of `.rni` and its kind.
pub(crate) fn rounding(name: &str) -> Option<(Rounding, bool)> {
    Some(match name {
        "rn" => (Rounding::Nearest, false),
        "rz" => (Rounding::Zero, false),
        "rm" => (Rounding::Down, false),
        "rp" => (Rounding::Up, false),
        "rna" => (Rounding::Away, false),
        "rni" => (Rounding::Nearest, true),
        "rzi" => (Rounding::Zero, true),
        "rmi" => (Rounding::Down, true),
        "rpi" => (Rounding::Up, true),
        _ => return None,
    })
}
