//! Instruction-set dispatch: a piece of [`Work`] is compiled once for each instruction set and run on the best one.
//!
//! The engine of the `muso` crate has a dispatcher of the same shape for its f64 panels. The two share the idea and the
//! crate `pulp`, but no code: a `Work` is generic over the micro-kernels it may call, and those of the two crates have
//! nothing in common.

#[cfg(any(test, target_arch = "x86_64", target_arch = "aarch64"))]
use super::tile::VectorKernel;
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
    /// NEON of 64-bit ARM.
    #[cfg(target_arch = "aarch64")]
    Neon(pulp::aarch64::Neon),
    /// Portable code as the compiler vectorises it; slow where the target has no fused multiply-add by default.
    Portable,
    /// Stand-in for NEON on other machines: the same micro-kernels, on vectors of 128 bits in plain code.
    #[cfg(test)]
    Narrow(pulp::Scalar128b),
}

impl Isa {
    /// Returns the best instruction set that this processor has.
    pub(crate) fn detect() -> Self {
        Self::all().next().unwrap_or(Self::Portable)
    }

    /// Returns the instruction sets that this processor has, the best one first.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let special = pulp::x86::V3::try_new().map(Self::Avx2);
        #[cfg(target_arch = "aarch64")]
        let special = pulp::aarch64::Neon::try_new().map(Self::Neon);
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let special: Option<Self> = None;
        let all = special.into_iter().chain([Self::Portable]);
        #[cfg(test)]
        let all = all.chain([Self::Narrow(pulp::Scalar128b)]);
        all
    }

    /// Runs a piece of work as compiled for this instruction set.
    pub(crate) fn run<W: Work>(self, work: W) -> W::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(simd) => simd.vectorize(WithKernel {
                kernel: VectorKernel::<_, 2>(simd),
                work,
            }),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(simd) => simd.vectorize(WithKernel {
                kernel: VectorKernel::<_, 4>(simd),
                work,
            }),
            Self::Portable => work.run(PortableKernel),
            #[cfg(test)]
            Self::Narrow(simd) => work.run(VectorKernel::<_, 4>(simd)),
        }
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
struct WithKernel<K, W> {
    kernel: K,
    work: W,
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl<K: Kernel, W: Work> pulp::NullaryFnOnce for WithKernel<K, W> {
    type Output = W::Output;

    #[inline(always)]
    fn call(self) -> W::Output {
        self.work.run(self.kernel)
    }
}
