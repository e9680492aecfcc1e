//! The matrix instructions: `mma.sync`, `wmma`, `ldmatrix` and `stmatrix`.
//!
//! [`crate::exec`] calls these with the registers of a whole warp. The parts:
//! - [`layout`]: which lane and register hold which element of a matrix;
//! - [`mma`](mod@mma): the product, of fragments in either layout;
//! - [`transfer`]: the 8×8 tiles that `ldmatrix` and `stmatrix` move between shared memory and fragments.
//!
//! # Precision
//! Products are exact. For `f64` the sum is a chain of fused multiply-adds in ascending k, as PTX asks. For all other
//! types the products and the addend are summed in `f64` and rounded once to the accumulator, to nearest. Tensor cores
//! truncate while they align the addends of a group, in a way that differs between generations; a result here is
//! within their error and slightly better. Integers are exact and wrap, or clamp with `.satfinite`.

pub mod layout;
pub mod mma;
pub mod transfer;

/// Lanes of a warp.
pub const LANES: usize = 32;

/// The sizes of a product: A is m×k, B is k×n, C and D are m×n.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Rows of A and D.
    pub m: usize,
    /// Columns of B and D.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
}

/// What an element of a matrix is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// `.f16`.
    F16,
    /// `.bf16`.
    Bf16,
    /// `.tf32`: an `f32` whose lower 13 bits are ignored.
    Tf32,
    /// `.f32`, an accumulator.
    F32,
    /// `.f64`.
    F64,
    /// `.s8`.
    S8,
    /// `.u8`.
    U8,
    /// `.s32`, an accumulator.
    S32,
    /// `.e4m3`.
    E4m3,
    /// `.e5m2`.
    E5m2,
}

impl Element {
    /// Bits in memory and in a register.
    pub fn bits(self) -> usize {
        match self {
            Self::S8 | Self::U8 | Self::E4m3 | Self::E5m2 => 8,
            Self::F16 | Self::Bf16 => 16,
            Self::Tf32 | Self::F32 | Self::S32 => 32,
            Self::F64 => 64,
        }
    }

    /// Elements in a register: registers have 32 bits, of `f64` 64.
    pub fn per_register(self) -> usize {
        (32 / self.bits()).max(1)
    }
}
