//! PTX text → [`Module`].
//!
//! What the file says and no more: names are not resolved, instructions are an opcode with its modifiers and a list
//! of operands. [`crate::program`] gives them their meaning.

mod lexer;
mod parser;

use std::fmt;

/// Why a text is not a module that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Line, from 1.
    pub line: u32,
    /// What is wrong, naming the instruction.
    pub message: String,
}

impl Error {
    pub(crate) fn new(line: u32, message: impl Into<String>) -> Self {
        Self {
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PTX line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for Error {}

/// What the text says.
#[derive(Debug, Default)]
pub struct Module {
    /// `.version`, major and minor.
    pub version: (u32, u32),
    /// `.target`, such as `sm_80`.
    pub target: String,
    pub(crate) files: Vec<(u32, String)>,
    pub(crate) variables: Vec<Variable>,
    pub(crate) functions: Vec<Function>,
}

/// Parses a module.
///
/// # Errors
/// With the line, for anything unknown.
pub fn parse(text: &str) -> Result<Module, Error> {
    parser::parse(text)
}

/// A fundamental type of PTX, packed ones included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of PTX")]
pub enum Type {
    Pred,
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    Tf32,
    F32,
    F64,
    U16x2,
    S16x2,
    E4m3,
    E4m3x2,
    E5m2,
    E5m2x2,
    S4,
    U4,
    B1,
}

impl Type {
    /// The type that a modifier names, if it names one.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "pred" => Self::Pred,
            "b8" => Self::B8,
            "b16" => Self::B16,
            "b32" => Self::B32,
            "b64" => Self::B64,
            "b128" => Self::B128,
            "u8" => Self::U8,
            "u16" => Self::U16,
            "u32" => Self::U32,
            "u64" => Self::U64,
            "s8" => Self::S8,
            "s16" => Self::S16,
            "s32" => Self::S32,
            "s64" => Self::S64,
            "f16" => Self::F16,
            "f16x2" => Self::F16x2,
            "bf16" => Self::Bf16,
            "bf16x2" => Self::Bf16x2,
            "tf32" => Self::Tf32,
            "f32" => Self::F32,
            "f64" => Self::F64,
            "u16x2" => Self::U16x2,
            "s16x2" => Self::S16x2,
            "e4m3" => Self::E4m3,
            "e4m3x2" => Self::E4m3x2,
            "e5m2" => Self::E5m2,
            "e5m2x2" => Self::E5m2x2,
            "s4" => Self::S4,
            "u4" => Self::U4,
            "b1" => Self::B1,
            _ => return None,
        })
    }

    /// Bytes of a value in memory.
    pub fn bytes(self) -> u32 {
        match self {
            Self::Pred | Self::B8 | Self::U8 | Self::S8 | Self::E4m3 | Self::E5m2 => 1,
            Self::S4 | Self::U4 | Self::B1 => 1,
            Self::B16
            | Self::U16
            | Self::S16
            | Self::F16
            | Self::Bf16
            | Self::E4m3x2
            | Self::E5m2x2 => 2,
            Self::B32 | Self::U32 | Self::S32 | Self::F32 | Self::Tf32 => 4,
            Self::F16x2 | Self::Bf16x2 | Self::U16x2 | Self::S16x2 => 4,
            Self::B64 | Self::U64 | Self::S64 | Self::F64 => 8,
            Self::B128 => 16,
        }
    }

    /// Whether it is an integer with a sign.
    pub fn signed(self) -> bool {
        matches!(
            self,
            Self::S4 | Self::S8 | Self::S16 | Self::S32 | Self::S64 | Self::S16x2
        )
    }
}

/// A state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Space {
    Generic,
    Global,
    Const,
    Shared,
    Local,
    Param,
}

/// A declaration of memory: at module scope, in a function, or a parameter.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub name: String,
    pub space: Space,
    pub align: u32,
    /// Bytes in all; 0 for `.extern .shared name[]`.
    pub bytes: u64,
    pub initial: Vec<Initial>,
    /// Declared here, defined elsewhere (or, for shared memory, at launch).
    pub external: bool,
    pub line: u32,
}

/// A piece of an initialiser.
#[derive(Clone, Debug)]
pub(crate) enum Initial {
    /// Bytes as they lie in memory.
    Bytes(Vec<u8>),
    /// The address of a symbol plus a number, shifted right, as many bytes as said.
    Address {
        symbol: String,
        addend: i64,
        shift: u32,
        bytes: u32,
    },
}

/// `.entry` or `.func`.
#[derive(Debug)]
pub(crate) struct Function {
    pub name: String,
    pub entry: bool,
    pub returns: Vec<Variable>,
    pub params: Vec<Variable>,
    pub max_threads: Option<u32>,
    /// Absent in a declaration.
    pub body: Option<Vec<Statement>>,
    pub line: u32,
}

/// One item of a function's body.
#[derive(Debug)]
pub(crate) enum Statement {
    /// `{ … }`, with its own names.
    Block(Vec<Statement>),
    /// `.reg .type name` or `.reg .type name<count>`.
    Registers {
        ty: Type,
        name: String,
        count: Option<u32>,
    },
    Variable(Variable),
    Label(String),
    /// `label: .branchtargets a, b, c;`
    Targets {
        label: String,
        targets: Vec<String>,
    },
    Instruction(Instruction),
}

/// A place in the CUDA source; `line` 0 means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Location {
    pub file: u32,
    pub line: u32,
}

/// An instruction as written.
#[derive(Clone, Debug)]
pub(crate) struct Instruction {
    pub line: u32,
    pub location: Location,
    /// Predicate and whether it is negated.
    pub guard: Option<(String, bool)>,
    /// The opcode with its modifiers, such as `ld.global.v2.f32`.
    pub opcode: String,
    pub operands: Vec<Operand>,
}

/// An operand as written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand {
    /// A register, a symbol, a label or `_`.
    Name(String),
    /// `!name`
    Not(String),
    /// `symbol+number`
    Offset(String, i64),
    /// An integer; bits of an unsigned one above `i64::MAX` wrap.
    Integer(i64),
    /// `0f…`
    Single(u32),
    /// `0d…`, or a decimal fraction
    Double(u64),
    /// `[base+offset]`; no base for an absolute address
    Address(Option<String>, i64),
    /// `{a, b, …}`
    Vector(Vec<Operand>),
    /// `a|b`
    Pair(String, String),
    /// `(a, b, …)` of a call
    List(Vec<Operand>),
}
