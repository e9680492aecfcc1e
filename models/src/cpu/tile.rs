//! The GEMM micro-kernels of the convolutions: a register tile of six pixels times sixteen output channels.
//!
//! [`Kernel::tile`] multiplies six windows of the input with packed weights; [`Kernel::outer`] adds up the outer products
//! that make a weight gradient. Each of the 96 sums of a tile is one chain of fused multiply-adds in a fixed order. The
//! vector width only decides how many chains run side by side, so every instruction set gives the same bytes.

/// Pixels of a tile.
pub(crate) const PIXELS: usize = 6;
/// Output channels of a tile.
pub(crate) const BLOCK: usize = 16;

/// The sums of a tile.
pub(crate) type Tile = [[f32; BLOCK]; PIXELS];

/// Receptive field of an output pixel: `rows` runs of `run` values, `row_stride` apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) rows: usize,
    pub(crate) row_stride: usize,
    pub(crate) run: usize,
}

/// Returns what each pixel of a tile sees in one row. Not `array::map`, which is not always inlined.
#[inline(always)]
fn lines(input: &[f32], starts: [usize; PIXELS], offset: usize, run: usize) -> [&[f32]; PIXELS] {
    let mut lines: [&[f32]; PIXELS] = [&[]; PIXELS];
    for i in 0..PIXELS {
        lines[i] = &input[starts[i] + offset..][..run];
    }
    lines
}

/// The micro-kernels of an instruction set.
pub(crate) trait Kernel: Copy {
    /// Returns Σ input[starts[i] + row·row_stride + k] · weight[row][k][j] over rows and k, for all pixels i and channels j.
    fn tile(self, input: &[f32], starts: [usize; PIXELS], window: Window, weight: &[f32]) -> Tile;

    /// Adds Σ_p left[p·left_step + i] · right[p·right_step + j] over p < count to every sum (i, j).
    fn outer(self, left: (&[f32], usize), right: (&[f32], usize), count: usize, sums: &mut Tile);
}

/// Micro-kernels in plain code.
#[derive(Clone, Copy)]
pub(crate) struct PortableKernel;

impl Kernel for PortableKernel {
    #[inline(always)]
    fn tile(self, input: &[f32], starts: [usize; PIXELS], window: Window, weight: &[f32]) -> Tile {
        let mut sums = [[0.0_f32; BLOCK]; PIXELS];
        for row in 0..window.rows {
            let run = window.run;
            let inputs = lines(input, starts, row * window.row_stride, run);
            let weight = weight[row * run * BLOCK..][..run * BLOCK]
                .as_chunks::<BLOCK>()
                .0;
            for k in 0..run {
                for i in 0..PIXELS {
                    for j in 0..BLOCK {
                        sums[i][j] = inputs[i][k].mul_add(weight[k][j], sums[i][j]);
                    }
                }
            }
        }
        sums
    }

    #[inline(always)]
    fn outer(
        self,
        (left, left_step): (&[f32], usize),
        (right, right_step): (&[f32], usize),
        count: usize,
        sums: &mut Tile,
    ) {
        for p in 0..count {
            let left = &left[p * left_step..][..PIXELS];
            let right = &right[p * right_step..][..BLOCK];
            for i in 0..PIXELS {
                for j in 0..BLOCK {
                    sums[i][j] = left[i].mul_add(right[j], sums[i][j]);
                }
            }
        }
    }
}

/// Micro-kernels in vector instructions, for which a block of channels is `N` vectors.
///
/// | | sums | weights | broadcasts | registers |
/// |---|---|---|---|---|
/// | AVX2 + FMA, 8 lanes | 12 | 2 | a pixel or two | 16 |
/// | NEON, 4 lanes | 24 | 4 | a pixel or more | 32 |
#[cfg(any(test, target_arch = "x86_64", target_arch = "aarch64"))]
#[derive(Clone, Copy)]
pub(crate) struct VectorKernel<S, const N: usize>(pub(crate) S);

#[cfg(any(test, target_arch = "x86_64", target_arch = "aarch64"))]
impl<S: pulp::Simd, const N: usize> Kernel for VectorKernel<S, N> {
    #[inline(always)]
    fn tile(self, input: &[f32], starts: [usize; PIXELS], window: Window, weight: &[f32]) -> Tile {
        let simd = self.0;
        let mut sums = [[simd.splat_f32s(0.0); N]; PIXELS];
        let run = window.run;
        for row in 0..window.rows {
            let inputs = lines(input, starts, row * window.row_stride, run);
            let weight = &weight[row * run * BLOCK..][..run * BLOCK];
            for (k, weight) in weight.as_chunks::<BLOCK>().0.iter().enumerate() {
                let weight: [S::f32s; N] = bytemuck::cast(*weight);
                for i in 0..PIXELS {
                    let x = simd.splat_f32s(inputs[i][k]);
                    // Zipped, since by index the sums do not stay in registers.
                    for (sum, &weight) in sums[i].iter_mut().zip(&weight) {
                        *sum = simd.mul_add_f32s(x, weight, *sum);
                    }
                }
            }
        }
        let mut tile = [[0.0; BLOCK]; PIXELS];
        for i in 0..PIXELS {
            tile[i] = bytemuck::cast(sums[i]);
        }
        tile
    }

    #[inline(always)]
    fn outer(
        self,
        (left, left_step): (&[f32], usize),
        (right, right_step): (&[f32], usize),
        count: usize,
        sums: &mut Tile,
    ) {
        let simd = self.0;
        let mut totals = [[simd.splat_f32s(0.0); N]; PIXELS];
        for i in 0..PIXELS {
            totals[i] = bytemuck::cast(sums[i]);
        }
        for p in 0..count {
            let left = &left[p * left_step..][..PIXELS];
            let right = right[p * right_step..].first_chunk::<BLOCK>();
            let right: [S::f32s; N] = bytemuck::cast(*right.expect("a whole block"));
            for i in 0..PIXELS {
                let x = simd.splat_f32s(left[i]);
                for (total, &right) in totals[i].iter_mut().zip(&right) {
                    *total = simd.mul_add_f32s(x, right, *total);
                }
            }
        }
        for i in 0..PIXELS {
            sums[i] = bytemuck::cast(totals[i]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::isa::{Isa, Work};

    struct OneTile<'a> {
        input: &'a [f32],
        starts: [usize; PIXELS],
        window: Window,
        weight: &'a [f32],
    }

    impl Work for OneTile<'_> {
        type Output = Tile;

        #[inline(always)]
        fn run<K: Kernel>(self, kernel: K) -> Tile {
            kernel.tile(self.input, self.starts, self.window, self.weight)
        }
    }

    struct OneOuter<'a>(&'a [f32], &'a [f32], usize);

    impl Work for OneOuter<'_> {
        type Output = Tile;

        #[inline(always)]
        fn run<K: Kernel>(self, kernel: K) -> Tile {
            let mut sums = [[0.25; BLOCK]; PIXELS];
            kernel.outer((self.0, 7), (self.1, 19), self.2, &mut sums);
            sums
        }
    }

    #[test]
    fn outer_products_are_the_same_on_every_instruction_set() {
        let some = |n: usize| -> Vec<f32> {
            let values = (0..n).map(|i| ((i * 7919 + 13) % 1009) as f32 / 1009.0 - 0.5);
            values.collect()
        };
        for count in [0, 1, 5, 64] {
            let (left, right) = (some(7 * count + 6), some(19 * count + 16));
            let found = Isa::detect().run(OneOuter(&left, &right, count));
            for isa in Isa::all() {
                assert_eq!(found, isa.run(OneOuter(&left, &right, count)), "{isa:?}");
            }
            for i in 0..PIXELS {
                for j in 0..BLOCK {
                    let product = |p| f64::from(left[7 * p + i]) * f64::from(right[19 * p + j]);
                    let wanted = 0.25 + (0..count).map(product).sum::<f64>();
                    let gap = (f64::from(found[i][j]) - wanted).abs();
                    assert!(gap <= 1e-7 * (count + 1) as f64, "{count}: {gap}");
                }
            }
        }
    }

    #[test]
    fn every_instruction_set_gives_the_same_bytes() {
        let pseudo = |n: usize| -> Vec<f32> {
            let values = (0..n).map(|i| ((i * 7919 + 13) % 1009) as f32 / 1009.0 - 0.5);
            values.collect()
        };
        for (rows, run, row_stride) in [(1, 1, 1), (3, 9, 40), (7, 21, 30), (3, 48, 64)] {
            let window = Window {
                rows,
                row_stride,
                run,
            };
            let starts = [0, 3, 1, 8, 5, 11];
            let input = pseudo(11 + (rows - 1) * row_stride + run);
            let weight = pseudo(rows * run * BLOCK);
            let tile = |isa: Isa| {
                isa.run(OneTile {
                    input: &input,
                    starts,
                    window,
                    weight: &weight,
                })
            };
            let found = tile(Isa::detect());
            for isa in Isa::all() {
                assert_eq!(found, tile(isa), "{isa:?}");
            }
            for (i, start) in starts.into_iter().enumerate() {
                for j in 0..BLOCK {
                    let mut wanted = 0.0_f64;
                    for row in 0..rows {
                        for k in 0..run {
                            let x = f64::from(input[start + row * row_stride + k]);
                            wanted += x * f64::from(weight[(row * run + k) * BLOCK + j]);
                        }
                    }
                    let gap = (f64::from(found[i][j]) - wanted).abs();
                    let length = (rows * run) as f64;
                    assert!(gap <= 1e-7 * length, "{rows}×{run}: {gap}");
                }
            }
        }
    }
}
