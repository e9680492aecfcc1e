//! Instruction-set dispatch: a piece of [`Work`] is compiled once for each instruction set and run on the best one.
//!
//! The engine of the `muso` crate has a dispatcher of the same shape for its f64 panels. The two share the idea and the
//! crate `pulp`, but no code: a `Work` is generic over the micro-kernels it may call, and those of the two crates have
//! nothing in common.

use super::tile::{Kernel, PortableKernel};

/// A piece of work that is compiled once for each instruction set.
pub(crate) trait Work {
    /// The result of the work.
    type Output;
    /// Runs the work with the micro-kernels of one instruction set. Implementations are `#[inline(always)]`, so that
    /// all of their code is compiled for it.
    fn run<K: Kernel>(self, kernel: K) -> Self::Output;
}

/// The instruction set in use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Isa {
    /// AVX2 with fused multiply-add (FMA).
    #[cfg(target_arch = "x86_64")]
    Avx2(pulp::x86::V3),
    /// Portable code as the compiler vectorises it; fast where the target has fused multiply-add by default (aarch64).
    Portable,
}

impl Isa {
    /// Returns the best instruction set that this processor has.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = pulp::x86::V3::try_new() {
            return Self::Avx2(simd);
        }
        Self::Portable
    }

    /// Runs a piece of work as compiled for this instruction set.
    pub(crate) fn run<W: Work>(self, work: W) -> W::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(simd) => simd.vectorize(Avx2Work { simd, work }),
            Self::Portable => work.run(PortableKernel),
        }
    }
}

#[cfg(target_arch = "x86_64")]
struct Avx2Work<W> {
    simd: pulp::x86::V3,
    work: W,
}

#[cfg(target_arch = "x86_64")]
impl<W: Work> pulp::NullaryFnOnce for Avx2Work<W> {
    type Output = W::Output;

    #[inline(always)]
    fn call(self) -> W::Output {
        self.work.run(super::tile::Avx2Kernel { simd: self.simd })
    }
}
