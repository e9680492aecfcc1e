//! The register tile that nearly all dense work of the CPU engine goes through, and the choice of instruction set.
//!
//! [`Kernel::tile`] computes a 6×8 block of AᵀB from operands packed as `a[k][6]` and `b[k][8]`: each of its 48 sums is
//! one chain of fused multiply-adds over k, in order. The vector width only decides how many chains run side by side,
//! so every instruction set gives the same bytes.
//!
//! | | registers of a tile | tiles at a time |
//! |---|---|---|
//! | AVX2 + FMA | 12 sums of 4, 2 of b, broadcasts of a: all 16 | 1 |
//! | AVX-512 | 6 sums of 8 each: one tile alone would wait for its own sums | 2×2, 24 of 32 registers |
//! | NEON | 24 sums of 2, 4 of b, broadcasts of a: of 32 | 1 |
//! | elsewhere | what the compiler makes of plain code | 1 |
//!
//! Code that is not a tile (widening, substitution, waves) is plain, and is compiled for the instruction set because it is
//! part of a [`Work`].

use pulp::Simd;

/// Rows of the tile: columns of a packed left operand.
pub(super) const MR: usize = 6;
/// Columns of the tile: columns of a packed right operand.
pub(super) const NR: usize = 8;
/// Steps over k that are written out: the loop's own instructions would take slots from the multiply-adds.
const UNROLL: usize = 4;

/// Columns that [`Kernel::dots`] takes at a time: with the row's own square, a sum in each of eleven registers.
pub(super) const DOTS: usize = 10;
/// f32 values of a step of [`Kernel::dots`].
pub(super) const UNIT: usize = 16;

/// The weights of a step, in a cache line of their own.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Unit(pub(super) [f32; UNIT]);

/// A block of sums.
pub(super) type Tile = [[f64; NR]; MR];

/// Panels of a packed operand, `WIDTH` columns each.
#[derive(Clone, Copy)]
pub(super) struct Panels<'a, const WIDTH: usize> {
    /// Panel after panel.
    pub(super) data: &'a [f64],
    /// Values from one panel to the next.
    pub(super) stride: usize,
    /// How many panels.
    pub(super) count: usize,
    /// Steps over k that are used of each.
    pub(super) depth: usize,
}

impl<'a, const WIDTH: usize> Panels<'a, WIDTH> {
    /// Panels that lie back to back.
    pub(super) fn dense(data: &'a [f64], depth: usize) -> Self {
        let stride = depth * WIDTH;
        Self {
            data,
            stride,
            count: data.len().checked_div(stride).unwrap_or(0),
            depth,
        }
    }

    #[inline(always)]
    pub(super) fn panel(&self, index: usize) -> &'a [f64] {
        &self.data[index * self.stride..][..self.depth * WIDTH]
    }
}

/// Values that start at the border of a cache line, so that no vector lies across one.
#[derive(Debug, Default)]
pub(super) struct Aligned {
    data: Vec<f64>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// Bytes of a cache line.
    const LINE: usize = 64;

    /// `len` zeros.
    pub(super) fn zeros(len: usize) -> Self {
        let data = vec![0.0; len + Self::LINE / size_of::<f64>()];
        // The address may not be known where code is evaluated at compile time: then any start is as good.
        let start = data.as_ptr().align_offset(Self::LINE).min(data.len() - len);
        Self { data, start, len }
    }

    /// Makes it `len` zeros if it is of another length.
    pub(super) fn grow(&mut self, len: usize) {
        if self.len != len {
            *self = Self::zeros(len);
        }
    }
}

impl std::ops::Deref for Aligned {
    type Target = [f64];
    fn deref(&self) -> &[f64] {
        &self.data[self.start..][..self.len]
    }
}

impl std::ops::DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f64] {
        &mut self.data[self.start..][..self.len]
    }
}

/// A way to compute tiles on this processor.
pub(super) trait Kernel: Copy {
    /// Σ_k a[k][i]·b[k][j] for all i < 6, j < 8. `a` holds k·6 values and `b` k·8.
    fn tile(self, a: &[f64], b: &[f64]) -> Tile;

    /// The tile of every left panel with every right one, in the order that suits the processor's caches. Those that are
    /// not `wanted` are left out.
    #[inline(always)]
    fn tiles(
        self,
        left: Panels<'_, MR>,
        right: Panels<'_, NR>,
        wanted: impl Fn(usize, usize) -> bool,
        mut emit: impl FnMut(usize, usize, Tile),
    ) {
        // A right panel stays in the first cache while the left ones come from the second.
        for j in 0..right.count {
            let b = right.panel(j);
            for i in 0..left.count {
                if wanted(i, j) {
                    emit(i, j, self.tile(left.panel(i), b));
                }
            }
        }
    }

    /// The products of a row in f32 with [`DOTS`] columns, and with itself. The row comes in units of values, and a `last`
    /// one that is used if `columns` has one unit more. The order of the sums is the processor's own.
    fn dots(
        self,
        row: &[[f32; UNIT]],
        last: [f32; UNIT],
        columns: &[[Unit; DOTS]],
    ) -> ([f32; DOTS], f32);

    /// `steps` rounds of independent multiply-adds, as many as it takes to keep the processor busy: returns how many
    /// there were, and a number that depends on all of them.
    fn saturate(self, steps: usize) -> (usize, f64);
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
    /// AVX-512 (F, BW, CD, DQ, VL).
    #[cfg(target_arch = "x86_64")]
    Avx512(pulp::x86::V4),
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2(pulp::x86::V3),
    /// NEON.
    #[cfg(target_arch = "aarch64")]
    Neon(pulp::aarch64::Neon),
    /// Whatever the compiler makes of plain code; slow where the target has no fused multiply-add by default.
    Portable,
}

impl Isa {
    /// The best one that this processor has.
    pub fn detect() -> Self {
        Self::all().next().unwrap_or(Self::Portable)
    }

    /// Those that this processor has, the best one first.
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
        special.into_iter().flatten().chain([Self::Portable])
    }

    /// Its name, as reports print it.
    pub fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "avx2+fma",
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => "neon",
            Self::Portable => "portable",
        }
    }

    /// Runs a piece of work with it.
    pub(super) fn run<W: Work>(self, work: W) -> W::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(simd) => simd.vectorize(WithKernel {
                kernel: Fours(simd),
                work,
            }),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(simd) => simd.vectorize(WithKernel {
                kernel: Ones::<_, 2>(simd),
                work,
            }),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(simd) => simd.vectorize(WithKernel {
                kernel: Ones::<_, 4>(simd),
                work,
            }),
            Self::Portable => work.run(Plain),
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

/// Plain code.
#[derive(Clone, Copy)]
struct Plain;

impl Kernel for Plain {
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

    #[inline(always)]
    fn dots(
        self,
        row: &[[f32; UNIT]],
        last: [f32; UNIT],
        columns: &[[Unit; DOTS]],
    ) -> ([f32; DOTS], f32) {
        let mut sums = [[0.0_f32; UNIT]; DOTS];
        let mut square = [0.0_f32; UNIT];
        for (z, w) in row.iter().chain([&last]).zip(columns) {
            for k in 0..UNIT {
                // Not fused: without the instruction that would be a call.
                square[k] += z[k] * z[k];
                for (sum, w) in sums.iter_mut().zip(w) {
                    sum[k] += z[k] * w.0[k];
                }
            }
        }
        (sums.map(|sum| sum.iter().sum()), square.iter().sum())
    }

    #[inline(always)]
    fn saturate(self, steps: usize) -> (usize, f64) {
        let mut sums = [0.0_f64; MR * NR];
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = sum.mul_add(DECAY, 1.0);
            }
        }
        (steps * sums.len(), sums.iter().sum())
    }
}

/// What [`Kernel::saturate`] multiplies by: its sums approach 2 and stay ordinary numbers.
const DECAY: f64 = 0.5;

/// Sums of a tile in vectors, `V` a row.
type Sums<S, const V: usize> = [[<S as Simd>::f64s; V]; MR];

/// One step over k.
#[inline(always)]
fn step<S: Simd, const V: usize>(simd: S, a: &[f64], b: &[f64], sums: &mut Sums<S, V>) {
    let b: &[f64; NR] = b.first_chunk().expect("a step of the right operand");
    let b: [S::f64s; V] = pulp::cast(*b);
    for (&a, sums) in a[..MR].iter().zip(sums) {
        let a = simd.splat_f64s(a);
        for (&b, sum) in b.iter().zip(sums) {
            *sum = simd.mul_add_f64s(a, b, *sum);
        }
    }
}

/// One tile.
#[inline(always)]
fn one<S: Simd, const V: usize>(simd: S, a: &[f64], b: &[f64]) -> Sums<S, V> {
    let mut sums = [[simd.splat_f64s(0.0); V]; MR];
    let (a, a_rest) = a.as_chunks::<{ UNROLL * MR }>();
    let (b, b_rest) = b.as_chunks::<{ UNROLL * NR }>();
    for (a, b) in a.iter().zip(b) {
        for k in 0..UNROLL {
            step(simd, &a[k * MR..], &b[k * NR..], &mut sums);
        }
    }
    for (a, b) in a_rest.chunks_exact(MR).zip(b_rest.chunks_exact(NR)) {
        step(simd, a, b, &mut sums);
    }
    sums
}

/// Two by two tiles: `[left][right]`.
#[cfg(any(test, target_arch = "x86_64"))]
#[inline(always)]
fn four<S: Simd, const V: usize>(simd: S, a: [&[f64]; 2], b: [&[f64]; 2]) -> [[Sums<S, V>; 2]; 2] {
    let mut sums = [[[[simd.splat_f64s(0.0); V]; MR]; 2]; 2];
    let [a, a_too] = a.map(|a| a.as_chunks::<MR>().0);
    let [b, b_too] = b.map(|b| b.as_chunks::<NR>().0);
    for ((a, a_too), (b, b_too)) in a.iter().zip(a_too).zip(b.iter().zip(b_too)) {
        for (a, sums) in [a, a_too].into_iter().zip(&mut sums) {
            for (b, sums) in [b, b_too].into_iter().zip(sums) {
                step(simd, a, b, sums);
            }
        }
    }
    sums
}

/// The numbers of a tile. (`array::map` would go through memory.)
#[inline(always)]
fn plain<S: Simd, const V: usize>(_: S, sums: Sums<S, V>) -> Tile {
    let mut tile = [[0.0; NR]; MR];
    for (row, sums) in tile.iter_mut().zip(sums) {
        *row = pulp::cast(sums);
    }
    tile
}

/// Multiply-adds in `N` chains.
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

/// [`Kernel::dots`], `V` vectors a unit.
#[inline(always)]
fn dots<S: Simd, const V: usize>(
    simd: S,
    row: &[[f32; UNIT]],
    last: [f32; UNIT],
    columns: &[[Unit; DOTS]],
) -> ([f32; DOTS], f32) {
    let mut sums = [simd.splat_f32s(0.0); DOTS];
    let mut square = simd.splat_f32s(0.0);
    let mut add = |z: &[f32; UNIT], w: &[Unit; DOTS]| {
        let z: [S::f32s; V] = pulp::cast(*z);
        for (sum, w) in sums.iter_mut().zip(w) {
            let w: [S::f32s; V] = pulp::cast(w.0);
            for (&z, &w) in z.iter().zip(&w) {
                *sum = simd.mul_add_f32s(z, w, *sum);
            }
        }
        for &z in &z {
            square = simd.mul_add_f32s(z, z, square);
        }
    };
    for (z, w) in row.iter().zip(columns) {
        add(z, w);
    }
    if let Some(w) = columns.get(row.len()) {
        add(&last, w);
    }
    let mut products = [0.0; DOTS];
    for (product, sum) in products.iter_mut().zip(sums) {
        *product = simd.reduce_sum_f32s(sum);
    }
    (products, simd.reduce_sum_f32s(square))
}

/// One tile at a time, `V` vectors a row.
#[derive(Clone, Copy)]
struct Ones<S, const V: usize>(S);

impl<S: Simd, const V: usize> Kernel for Ones<S, V> {
    #[inline(always)]
    fn tile(self, a: &[f64], b: &[f64]) -> Tile {
        plain(self.0, one::<S, V>(self.0, a, b))
    }

    #[inline(always)]
    fn dots(
        self,
        row: &[[f32; UNIT]],
        last: [f32; UNIT],
        columns: &[[Unit; DOTS]],
    ) -> ([f32; DOTS], f32) {
        dots::<_, V>(self.0, row, last, columns)
    }

    #[inline(always)]
    fn saturate(self, steps: usize) -> (usize, f64) {
        saturate::<S, 12>(self.0, steps)
    }
}

/// Two by two tiles at a time, for thirty-two registers of eight.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Fours(pulp::x86::V4);

#[cfg(target_arch = "x86_64")]
impl Kernel for Fours {
    #[inline(always)]
    fn tile(self, a: &[f64], b: &[f64]) -> Tile {
        plain(self.0, one::<_, 1>(self.0, a, b))
    }

    #[inline(always)]
    fn tiles(
        self,
        left: Panels<'_, MR>,
        right: Panels<'_, NR>,
        wanted: impl Fn(usize, usize) -> bool,
        emit: impl FnMut(usize, usize, Tile),
    ) {
        two_by_two::<_, 1>(self.0, self, left, right, wanted, emit);
    }

    #[inline(always)]
    fn dots(
        self,
        row: &[[f32; UNIT]],
        last: [f32; UNIT],
        columns: &[[Unit; DOTS]],
    ) -> ([f32; DOTS], f32) {
        dots::<_, 1>(self.0, row, last, columns)
    }

    #[inline(always)]
    fn saturate(self, steps: usize) -> (usize, f64) {
        saturate::<_, 24>(self.0, steps)
    }
}

/// [`Kernel::tiles`] in blocks of two by two, and what is left one by one.
#[cfg(any(test, target_arch = "x86_64"))]
#[inline(always)]
fn two_by_two<S: Simd, const V: usize>(
    simd: S,
    kernel: impl Kernel,
    left: Panels<'_, MR>,
    right: Panels<'_, NR>,
    wanted: impl Fn(usize, usize) -> bool,
    mut emit: impl FnMut(usize, usize, Tile),
) {
    for j in (0..right.count).step_by(2) {
        for i in (0..left.count).step_by(2) {
            let block = [(i, j), (i + 1, j), (i, j + 1), (i + 1, j + 1)];
            let block =
                block.map(|(i, j)| (i < left.count && j < right.count && wanted(i, j), i, j));
            if block.iter().all(|(wanted, ..)| *wanted) {
                let a = [left.panel(i), left.panel(i + 1)];
                let b = [right.panel(j), right.panel(j + 1)];
                let sums = four::<S, V>(simd, a, b);
                for (_, p, q) in block {
                    emit(p, q, plain(simd, sums[p - i][q - j]));
                }
            } else {
                for (_, p, q) in block.into_iter().filter(|(wanted, ..)| *wanted) {
                    emit(p, q, kernel.tile(left.panel(p), right.panel(q)));
                }
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of two by two with vectors that every processor has.
    #[derive(Clone, Copy)]
    struct Pairs(Ones<pulp::Scalar, NR>);

    impl Kernel for Pairs {
        fn tile(self, a: &[f64], b: &[f64]) -> Tile {
            self.0.tile(a, b)
        }
        fn tiles(
            self,
            left: Panels<'_, MR>,
            right: Panels<'_, NR>,
            wanted: impl Fn(usize, usize) -> bool,
            emit: impl FnMut(usize, usize, Tile),
        ) {
            two_by_two::<_, NR>(self.0.0, self.0, left, right, wanted, emit);
        }
        fn dots(
            self,
            row: &[[f32; UNIT]],
            last: [f32; UNIT],
            columns: &[[Unit; DOTS]],
        ) -> ([f32; DOTS], f32) {
            Plain.dots(row, last, columns)
        }
        fn saturate(self, steps: usize) -> (usize, f64) {
            self.0.saturate(steps)
        }
    }

    struct All<'a>(Panels<'a, MR>, Panels<'a, NR>);

    impl Work for All<'_> {
        type Output = Vec<Option<Tile>>;

        #[inline(always)]
        fn run<K: Kernel>(self, kernel: K) -> Self::Output {
            let Self(left, right) = self;
            let mut out = vec![None; left.count * right.count];
            let wanted = |i: usize, j: usize| (i + j) % 5 != 4;
            kernel.tiles(left, right, wanted, |i, j, tile| {
                let slot = &mut out[i * right.count + j];
                assert!(slot.is_none(), "tile {i}, {j} twice");
                *slot = Some(tile);
            });
            out
        }
    }

    /// Every order of tiles and every unrolling gives the plain sums, to the last bit.
    #[test]
    fn kernels_give_the_same_tiles() {
        for depth in [1, 3, 4, 7, 64, 241] {
            for (rows, columns) in [(1, 1), (2, 3), (5, 4)] {
                let value = |i: usize| ((i * 2_654_435_761) % 1009) as f64 / 1009.0 - 0.5;
                let a: Vec<f64> = (0..rows * depth * MR).map(value).collect();
                let b: Vec<f64> = (0..columns * depth * NR).map(|i| value(i + 77)).collect();
                let all = || {
                    let (left, right) = (Panels::dense(&a, depth), Panels::dense(&b, depth));
                    assert_eq!((left.count, right.count), (rows, columns));
                    All(left, right)
                };
                let expected = Isa::Portable.run(all());
                let skipped = expected.iter().filter(|tile| tile.is_none()).count();
                assert_eq!(skipped > 0, rows + columns > 5);
                for isa in Isa::all() {
                    assert_eq!(isa.run(all()), expected, "{}", isa.name());
                }
                let pairs = Pairs(Ones(pulp::Scalar::new()));
                assert_eq!(all().run(pairs), expected, "two by two");
            }
        }
    }
}
