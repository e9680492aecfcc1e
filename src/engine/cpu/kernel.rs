//! The register tile that nearly all dense work of the CPU engine goes through, and the choice of instruction set.
//!
//! [`Kernel::tile`] computes a 6×8 block of AᵀB from operands packed as `a[k][6]` and `b[k][8]`: each of its 48 sums is
//! one chain of fused multiply-adds over k, in order. The vector width only decides how many chains run side by side,
//! so every instruction set gives the same bytes.

/// Rows of the tile: columns of a packed left operand.
pub(super) const MR: usize = 6;
/// Columns of the tile: columns of a packed right operand.
pub(super) const NR: usize = 8;

/// A block of sums.
pub(super) type Tile = [[f64; NR]; MR];

/// A way to compute a tile on this processor.
pub(super) trait Kernel: Copy {
    /// Σ_k a[k][i]·b[k][j] for all i < 6, j < 8. `a` holds k·6 values and `b` k·8.
    fn tile(self, a: &[f64], b: &[f64]) -> Tile;
}

/// A piece of work that is compiled once for each instruction set.
pub(super) trait Work {
    /// What it yields.
    type Output;
    /// Does it. Implementations are `#[inline(always)]`, so that the tile is inlined under its instruction set.
    fn run<K: Kernel>(self, kernel: K) -> Self::Output;
}

/// The instruction set in use.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Isa {
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2(pulp::x86::V3),
    /// Whatever the compiler makes of plain code; fast where the target has fused multiply-add by default (aarch64).
    Portable,
}

impl Isa {
    /// The best one that this processor has.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = pulp::x86::V3::try_new() {
            return Self::Avx2(simd);
        }
        Self::Portable
    }

    /// Its name, as reports print it.
    pub fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "avx2+fma",
            Self::Portable => "portable",
        }
    }

    /// Runs a piece of work with it.
    pub(super) fn run<W: Work>(self, work: W) -> W::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(simd) => simd.vectorize(Avx2Work { simd, work }),
            Self::Portable => work.run(PortableKernel),
        }
    }
}

#[derive(Clone, Copy)]
struct PortableKernel;

impl Kernel for PortableKernel {
    #[inline(always)]
    fn tile(self, a: &[f64], b: &[f64]) -> Tile {
        let mut sums = [[0.0_f64; NR]; MR];
        for (a, b) in a.as_chunks::<MR>().0.iter().zip(b.as_chunks::<NR>().0) {
            for i in 0..MR {
                for j in 0..NR {
                    sums[i][j] = a[i].mul_add(b[j], sums[i][j]);
                }
            }
        }
        sums
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
        self.work.run(Avx2Kernel { simd: self.simd })
    }
}

#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Avx2Kernel {
    simd: pulp::x86::V3,
}

#[cfg(target_arch = "x86_64")]
impl Kernel for Avx2Kernel {
    #[inline(always)]
    fn tile(self, a: &[f64], b: &[f64]) -> Tile {
        // 12 accumulators, 2 right-hand vectors and a broadcast or two: the 16 registers of AVX2.
        let simd = self.simd;
        let mut sums = [[simd.splat_f64x4(0.0); 2]; MR];
        for (a, b) in a.as_chunks::<MR>().0.iter().zip(b.as_chunks::<NR>().0) {
            let [b0, b1]: [pulp::f64x4; 2] = bytemuck::cast(*b);
            for i in 0..MR {
                let x = simd.splat_f64x4(a[i]);
                sums[i][0] = simd.mul_add_f64x4(x, b0, sums[i][0]);
                sums[i][1] = simd.mul_add_f64x4(x, b1, sums[i][1]);
            }
        }
        sums.map(bytemuck::cast)
    }
}

/// Packs `count` vectors `vector(0..count)`, each of `depth` values, as `[depth][WIDTH]`, missing ones as zeros.
#[inline(always)]
pub(super) fn pack_transposed<'a, const WIDTH: usize>(
    out: &mut [f64],
    depth: usize,
    count: usize,
    vector: impl Fn(usize) -> &'a [f64],
) {
    let (out, _) = out[..depth * WIDTH].as_chunks_mut::<WIDTH>();
    for i in 0..WIDTH {
        if i < count {
            for (slot, &value) in out.iter_mut().zip(&vector(i)[..depth]) {
                slot[i] = value;
            }
        } else {
            for slot in out.iter_mut() {
                slot[i] = 0.0;
            }
        }
    }
}
