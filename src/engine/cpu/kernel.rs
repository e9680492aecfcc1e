//! The GEMM micro-kernels that nearly all dense work of the CPU engine goes through, and the instruction-set dispatch.
//!
//! Operands are cut into panels of [`PANEL`] columns, packed so that a step over k is one [`Line`]: `[k][24]`. There is no
//! other format: what is a left operand here is a right one there. [`Kernel::multiply`] adds up AᵀB of two panels, a block
//! of 24×24, tile by tile. Each of its sums is one chain of fused multiply-adds over k, in order; the instruction set only
//! decides how many chains run side by side, so every one of them gives the same bytes.
//!
//! | | tile | registers |
//! |---|---|---|
//! | AVX-512 | 8×24 | 24 sums of 8, 3 of the right operand, broadcasts of the left: of 32 |
//! | AVX2 + FMA | 4×12 | 12 sums of 4, 3 of the right operand, broadcasts of the left: all 16 |
//! | NEON | 4×12 | 24 sums of 2, 6 of the right operand, broadcasts of the left: of 32 |
//! | elsewhere | | what the compiler makes of plain code |
//!
//! Tests on any machine also run the tiles of NEON, on vectors of its width in plain code ([`pulp::Scalar128b`]).
//!
//! Code that is not a product (widening, substitution, sine and cosine) is plain, and is compiled for the instruction set because it
//! is part of a [`Work`].

use std::ops::Range;

use pulp::Simd;

/// Columns of a panel: three vectors of eight, or six of four.
pub(super) const PANEL: usize = 24;

/// Rows of a [`Part`] begin at a multiple of this: of the rows of every tile.
pub(super) const STEP: usize = 8;

/// A step over k of a panel, or a row of a block; in cache lines of its own, so that no vector lies across one.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(align(64))]
pub(super) struct Line(pub(super) [f64; PANEL]);

impl Line {
    pub(super) const ZERO: Self = Self([0.0; PANEL]);
}

/// Columns that [`Kernel::dots`] takes at a time, of two rows: a sum in each of twenty registers.
pub(super) const DOTS: usize = 10;
/// f32 values of a step of [`Kernel::dots`].
pub(super) const UNIT: usize = 16;

/// The weights of a step, in a cache line of their own.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Unit(pub(super) [f32; UNIT]);

/// A feature row in f32, cut into vector steps.
#[derive(Clone, Copy)]
pub(super) struct Single<'a> {
    /// The row's whole steps.
    pub(super) units: &'a [[f32; UNIT]],
    /// The rest of the row, padded with zeros; used if the columns have one step more.
    pub(super) last: [f32; UNIT],
    /// Bytes to prefetch.
    pub(super) ahead: &'a [u8],
}

/// Selects a part of the product of two panels. A kernel may compute and write more: whole tiles that the part covers
/// partly.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Columns of the left panel, which are rows of the block; from a multiple of [`STEP`] on.
    pub(super) rows: Range<usize>,
    /// Columns of the right panel.
    pub(super) columns: usize,
    /// Restricts the part to the diagonal and below.
    pub(super) lower: bool,
}

impl Part {
    /// Selects the first rows and columns.
    pub(super) fn first(rows: usize, columns: usize) -> Self {
        Self {
            rows: 0..rows.min(PANEL),
            columns: columns.min(PANEL),
            lower: false,
        }
    }

    /// Returns the number of selected columns in rows before `end`.
    #[inline(always)]
    fn columns_before(&self, end: usize) -> usize {
        match self.lower {
            true => self.columns.min(end),
            false => self.columns,
        }
    }
}

/// How a product is stored in its block: GEMM's α and β.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Into {
    /// The sums replace the block.
    Set,
    /// The sums are added to the block.
    Add,
    /// The sums are subtracted from the block.
    Subtract,
    /// The sums start from the block's values: the later steps of a product whose first steps are there.
    Continue,
}

/// Micro-kernels for one instruction set.
pub(super) trait Kernel: Copy {
    /// Computes a part of Σ_k left[k][i]·right[k][j] (GEMM); row i of the block is `out[i * stride]`.
    fn multiply(
        self,
        left: &[Line],
        right: &[Line],
        part: Part,
        into: Into,
        out: &mut [Line],
        stride: usize,
    );

    /// Returns the dot products of two f32 rows with [`DOTS`] columns, and the largest magnitude in each row (which may
    /// pass over NaN). The order of the sums is the processor's own.
    fn dots(self, rows: [Single<'_>; 2], columns: &[[Unit; DOTS]]) -> [([f32; DOTS], f32); 2];

    /// Runs `steps` rounds of independent multiply-adds, enough to saturate the processor. Returns their number, and a
    /// value that depends on all of them.
    fn saturate(self, steps: usize) -> (usize, f64);
}

/// A piece of work that is compiled once for each instruction set.
pub(super) trait Work {
    /// Result of the work.
    type Output;
    /// Runs the work. Implementations are `#[inline(always)]`, so that the tile is inlined under its instruction set.
    fn run<K: Kernel>(self, kernel: K) -> Self::Output;
}

/// The instruction set that the kernels use.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Isa {
    /// AVX-512 (F, BW, CD, DQ, VL).
    #[cfg(target_arch = "x86_64")]
    Avx512(pulp::x86::V4),
    /// AVX2 with fused multiply-add (FMA).
    #[cfg(target_arch = "x86_64")]
    Avx2(pulp::x86::V3),
    /// NEON of 64-bit ARM.
    #[cfg(target_arch = "aarch64")]
    Neon(pulp::aarch64::Neon),
    /// Portable code as the compiler vectorises it; slow where the target has no fused multiply-add by default.
    Portable,
    /// Stand-in for NEON on other machines: the same tiles, on vectors of 128 bits in plain code.
    #[cfg(test)]
    Narrow(pulp::Scalar128b),
}

impl Isa {
    /// Returns the best instruction set of this processor.
    pub fn detect() -> Self {
        Self::all().next().unwrap_or(Self::Portable)
    }

    /// Returns the instruction sets that this processor has, the best one first.
    pub fn all() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let special = [
            pulp::x86::V4::try_new().map(Self::Avx512),
            pulp::x86::V3::try_new().map(Self::Avx2),
        ];
        #[cfg(target_arch = "aarch64")]
        let special = [pulp::aarch64::Neon::try_new().map(Self::Neon)];
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let special: [Option<Self>; 0] = [];
        let all = special.into_iter().flatten().chain([Self::Portable]);
        #[cfg(test)]
        let all = all.chain([Self::Narrow(pulp::Scalar128b)]);
        all
    }

    /// Returns the name that reports print.
    pub fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "avx2+fma",
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => "neon",
            Self::Portable => "portable",
            #[cfg(test)]
            Self::Narrow(_) => "128-bit stand-in",
        }
    }

    /// Runs a piece of work, compiled for this instruction set.
    pub(super) fn run<W: Work>(self, work: W) -> W::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(simd) => simd.vectorize(WithKernel {
                kernel: Tiles::<_, 8, 3, 24>(simd),
                work,
            }),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(simd) => simd.vectorize(WithKernel {
                kernel: Tiles::<_, 4, 3, 12>(simd),
                work,
            }),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(simd) => simd.vectorize(WithKernel {
                kernel: narrow(simd),
                work,
            }),
            Self::Portable => work.run(Plain),
            #[cfg(test)]
            Self::Narrow(simd) => work.run(narrow(simd)),
        }
    }
}

struct WithKernel<K, W> {
    kernel: K,
    work: W,
}

impl<K: Kernel, W: Work> pulp::NullaryFnOnce for WithKernel<K, W> {
    type Output = W::Output;

    #[inline(always)]
    fn call(self) -> W::Output {
        self.work.run(self.kernel)
    }
}

/// The portable kernel, in plain code.
#[derive(Clone, Copy)]
struct Plain;

impl Kernel for Plain {
    #[inline(always)]
    fn multiply(
        self,
        left: &[Line],
        right: &[Line],
        part: Part,
        into: Into,
        out: &mut [Line],
        stride: usize,
    ) {
        for i in part.rows.clone() {
            let columns = part.columns_before(i + 1);
            let out = &mut out[i * stride].0[..columns];
            let mut sums = [0.0; PANEL];
            if into == Into::Continue {
                sums[..columns].copy_from_slice(out);
            }
            for (a, b) in left.iter().zip(right) {
                for (sum, &b) in sums[..columns].iter_mut().zip(&b.0) {
                    *sum = a.0[i].mul_add(b, *sum);
                }
            }
            for (out, sum) in out.iter_mut().zip(sums) {
                match into {
                    Into::Set | Into::Continue => *out = sum,
                    Into::Add => *out += sum,
                    Into::Subtract => *out -= sum,
                }
            }
        }
    }

    #[inline(always)]
    fn dots(self, rows: [Single<'_>; 2], columns: &[[Unit; DOTS]]) -> [([f32; DOTS], f32); 2] {
        rows.map(|row| {
            let mut sums = [[0.0_f32; UNIT]; DOTS];
            let mut largest = 0.0_f32;
            for (z, w) in row.units.iter().chain([&row.last]).zip(columns) {
                for k in 0..UNIT {
                    largest = largest.max(z[k].abs());
                    for (sum, w) in sums.iter_mut().zip(w) {
                        // Not fused: without the instruction that would be a call.
                        sum[k] += z[k] * w.0[k];
                    }
                }
            }
            (sums.map(|sum| sum.iter().sum()), largest)
        })
    }

    #[inline(always)]
    fn saturate(self, steps: usize) -> (usize, f64) {
        let mut sums = [0.0_f64; 2 * PANEL];
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = sum.mul_add(DECAY, 1.0);
            }
        }
        (steps * sums.len(), sums.iter().sum())
    }
}

/// Factor of each step of [`Kernel::saturate`]: its sums approach 2 and stay normal numbers.
const DECAY: f64 = 0.5;

/// Computes `R` rows by `V` vectors of a product, from column `i` of the left panel and `j` of the right one on.
#[inline(always)]
fn tile<S: Simd, const R: usize, const V: usize>(
    simd: S,
    (left, i): (&[Line], usize),
    (right, j): (&[Line], usize),
    into: Into,
    (out, stride): (&mut [Line], usize),
) {
    let width = V * S::F64_LANES;
    let mut sums = [[simd.splat_f64s(0.0); V]; R];
    if into == Into::Continue {
        for (r, sums) in sums.iter_mut().enumerate() {
            let (out, _) = S::as_simd_f64s(&out[(i + r) * stride].0[j..j + width]);
            sums.copy_from_slice(out);
        }
    }
    for (a, b) in left.iter().zip(right) {
        let a: &[f64; R] = a.0[i..].first_chunk().expect("rows of a tile");
        let (b, _) = S::as_simd_f64s(&b.0[j..j + width]);
        let b: &[S::f64s; V] = b.first_chunk().expect("vectors of a tile");
        for (&a, sums) in a.iter().zip(&mut sums) {
            let a = simd.splat_f64s(a);
            for (&b, sum) in b.iter().zip(sums) {
                *sum = simd.mul_add_f64s(a, b, *sum);
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        let (out, _) = S::as_mut_simd_f64s(&mut out[(i + r) * stride].0[j..j + width]);
        for (out, &sum) in out.iter_mut().zip(sums) {
            *out = match into {
                Into::Set | Into::Continue => sum,
                Into::Add => simd.add_f64s(*out, sum),
                Into::Subtract => simd.sub_f64s(*out, sum),
            };
        }
    }
}

/// Runs multiply-adds in `N` independent chains.
#[inline(always)]
fn saturate<S: Simd, const N: usize>(simd: S, steps: usize) -> (usize, f64) {
    let (decay, one) = (simd.splat_f64s(DECAY), simd.splat_f64s(1.0));
    let mut sums = [simd.splat_f64s(0.0); N];
    for _ in 0..steps {
        for sum in &mut sums {
            *sum = simd.mul_add_f64s(*sum, decay, one);
        }
    }
    let total = sums.iter().map(|&sum| simd.reduce_sum_f64s(sum)).sum();
    (steps * N * S::F64_LANES, total)
}

/// Partial sums of [`Kernel::dots`].
struct Dots<S: Simd> {
    sums: [[S::f32s; DOTS]; 2],
    largest: [S::f32s; 2],
}

impl<S: Simd> Dots<S> {
    #[inline(always)]
    fn add(&mut self, simd: S, z: [&[f32; UNIT]; 2], w: &[Unit; DOTS]) {
        let [one, two] = z.map(|z| S::as_simd_f32s(z).0);
        for (v, (&one, &two)) in one.iter().zip(two).enumerate() {
            for (j, w) in w.iter().enumerate() {
                let w = S::as_simd_f32s(&w.0).0[v];
                self.sums[0][j] = simd.mul_add_f32s(one, w, self.sums[0][j]);
                self.sums[1][j] = simd.mul_add_f32s(two, w, self.sums[1][j]);
            }
            self.largest[0] = simd.max_f32s(simd.abs_f32s(one), self.largest[0]);
            self.largest[1] = simd.max_f32s(simd.abs_f32s(two), self.largest[1]);
        }
    }
}

/// Implements [`Kernel::dots`] with vectors.
#[inline(always)]
fn dots<S: Fetch>(
    simd: S,
    rows: [Single<'_>; 2],
    columns: &[[Unit; DOTS]],
) -> [([f32; DOTS], f32); 2] {
    /// Bytes of a cache line.
    const LINE: usize = 64;
    let zero = simd.splat_f32s(0.0);
    let mut dots = Dots::<S> {
        sums: [[zero; DOTS]; 2],
        largest: [zero; 2],
    };
    let units = rows[0].units.iter().zip(rows[1].units);
    for (k, ((z, z_too), w)) in units.zip(columns).enumerate() {
        // Spread out: more at a time than there is room for would be waited for.
        for row in rows {
            if let Some(byte) = row.ahead.get(k * LINE) {
                simd.fetch(byte);
            }
        }
        dots.add(simd, [z, z_too], w);
    }
    if let Some(w) = columns.get(rows[0].units.len()) {
        dots.add(simd, [&rows[0].last, &rows[1].last], w);
    }
    let Dots { sums, largest } = dots;
    let mut out = [([0.0; DOTS], 0.0); 2];
    for ((products, size), (sums, largest)) in out.iter_mut().zip(sums.iter().zip(largest)) {
        for (product, &sum) in products.iter_mut().zip(sums) {
            *product = simd.reduce_sum_f32s(sum);
        }
        *size = simd.reduce_max_f32s(largest);
    }
    out
}

/// Vector instructions with a software prefetch.
trait Fetch: Simd {
    /// Prefetches the cache line of `byte` into L2.
    fn fetch(self, byte: &u8);
}

#[cfg(target_arch = "x86_64")]
impl Fetch for pulp::x86::V3 {
    #[inline(always)]
    fn fetch(self, byte: &u8) {
        use std::arch::x86_64::_MM_HINT_T1;
        let byte = std::ptr::from_ref(byte).cast();
        self.sse._mm_prefetch::<_MM_HINT_T1>(byte);
    }
}

#[cfg(target_arch = "x86_64")]
impl Fetch for pulp::x86::V4 {
    #[inline(always)]
    fn fetch(self, byte: &u8) {
        Fetch::fetch(*self, byte);
    }
}

#[cfg(target_arch = "aarch64")]
impl Fetch for pulp::aarch64::Neon {
    /// Does nothing: the instruction is not to be had without unsafe code.
    #[inline(always)]
    fn fetch(self, _: &u8) {}
}

#[cfg(test)]
impl Fetch for pulp::Scalar128b {
    #[inline(always)]
    fn fetch(self, _: &u8) {}
}

/// Tiles of `R` rows and `V` vectors; `CHAINS` are enough to keep the processor busy.
#[derive(Clone, Copy)]
struct Tiles<S, const R: usize, const V: usize, const CHAINS: usize>(S);

/// Returns the tiles of NEON, which has 32 registers of 128 bits.
#[cfg(any(test, target_arch = "aarch64"))]
#[inline(always)]
fn narrow<S>(simd: S) -> Tiles<S, 4, 6, 24> {
    Tiles(simd)
}

impl<S: Fetch, const R: usize, const V: usize, const CHAINS: usize> Kernel
    for Tiles<S, R, V, CHAINS>
{
    #[inline(always)]
    fn multiply(
        self,
        left: &[Line],
        right: &[Line],
        part: Part,
        into: Into,
        out: &mut [Line],
        stride: usize,
    ) {
        let simd = self.0;
        for j in (0..part.columns).step_by(V * S::F64_LANES) {
            // These columns stay in the first cache while the left panel comes from the second.
            for i in part.rows.clone().step_by(R) {
                let columns = part.columns_before(i + R).saturating_sub(j);
                let (left, right, out) = ((left, i), (right, j), (&mut *out, stride));
                match columns.div_ceil(S::F64_LANES).min(V) {
                    0 => {}
                    1 => tile::<S, R, 1>(simd, left, right, into, out),
                    2 => tile::<S, R, 2>(simd, left, right, into, out),
                    _ => tile::<S, R, V>(simd, left, right, into, out),
                }
            }
        }
    }

    #[inline(always)]
    fn dots(self, rows: [Single<'_>; 2], columns: &[[Unit; DOTS]]) -> [([f32; DOTS], f32); 2] {
        dots(self.0, rows, columns)
    }

    #[inline(always)]
    fn saturate(self, steps: usize) -> (usize, f64) {
        saturate::<S, CHAINS>(self.0, steps)
    }
}

/// Packs `count` vectors `vector(0..count)` into a panel, a vector a column; missing ones as zeros.
#[inline(always)]
pub(super) fn pack_transposed<'a>(
    out: &mut [Line],
    count: usize,
    vector: impl Fn(usize) -> &'a [f64],
) {
    // Lines that stay in the first cache while every vector is written into them.
    const RUN: usize = 16;
    for (run, lines) in out.chunks_mut(RUN).enumerate() {
        for i in 0..count {
            for (line, &value) in lines.iter_mut().zip(&vector(i)[run * RUN..]) {
                line.0[i] = value;
            }
        }
        for line in lines {
            line.0[count..].fill(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: usize, seed: usize) -> Vec<Line> {
        let value = |i: usize| ((i * 2_654_435_761) % 1009) as f64 / 1009.0 - 0.5;
        let line = |k: usize| Line(std::array::from_fn(|j| value(k * PANEL + j + seed)));
        (0..count).map(line).collect()
    }

    struct Multiply<'a>(&'a [Line], &'a [Line], Part, Into, usize);

    impl Work for Multiply<'_> {
        type Output = Vec<Line>;

        #[inline(always)]
        fn run<K: Kernel>(self, kernel: K) -> Self::Output {
            let Self(left, right, part, into, stride) = self;
            let mut out = lines(PANEL * stride, 7);
            kernel.multiply(left, right, part, into, &mut out, stride);
            out
        }
    }

    /// All that is wanted of a product has the same bytes with every instruction set, and is the sum that it should be.
    #[test]
    fn kernels_give_the_same_products() {
        let every = [Into::Set, Into::Add, Into::Subtract, Into::Continue];
        for (depth, stride) in [(0, 1), (1, 2), (7, 1), (64, 3)] {
            let (left, right) = (lines(depth, 1), lines(depth, 77));
            for (first, rows) in [(0, 24), (0, 5), (8, 16), (16, 23)] {
                for (columns, lower) in
                    [(24, false), (24, true), (1, false), (9, false), (13, true)]
                {
                    for into in every {
                        let part = Part {
                            rows: first..rows,
                            columns,
                            lower,
                        };
                        let product = || Multiply(&left, &right, part.clone(), into, stride);
                        let expected = Isa::Portable.run(product());
                        let before = lines(PANEL * stride, 7);
                        for i in first..rows {
                            for j in (0..columns).filter(|&j| !lower || j <= i) {
                                let at = |lines: &[Line]| lines[i * stride].0[j];
                                let terms = left.iter().zip(&right).map(|(a, b)| a.0[i] * b.0[j]);
                                let sum: f64 = terms.sum();
                                let plain = match into {
                                    Into::Set => sum,
                                    Into::Add | Into::Continue => at(&before) + sum,
                                    Into::Subtract => at(&before) - sum,
                                };
                                assert!((at(&expected) - plain).abs() < 1e-13, "{part:?} {into:?}");
                                for isa in Isa::all() {
                                    let found = isa.run(product());
                                    assert_eq!(
                                        at(&found).to_bits(),
                                        at(&expected).to_bits(),
                                        "{} {part:?} {into:?} {depth}",
                                        isa.name()
                                    );
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
