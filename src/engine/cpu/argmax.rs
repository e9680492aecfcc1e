//! The class of each row, argmax of Z W, at the speed at which rows come from memory.
//!
//! Rows in f32 or narrower are screened in f32: half the bytes, twice the arithmetic, no widening. What that can be wrong
//! by is known, so a row whose best product leads by more than twice as much has the class that f64 would have given it.
//! The others, about one in a thousand of ordinary data, are done again in f64 by the chain that [`super::product`] runs.
//! The classes are therefore those of the f64 product, always.
//!
//! **The bound.** With u = 2⁻²⁴ and each of the D + 1 terms (bias included) going through at most m roundings, an f32
//! product is within γ Σ|z_k w_k| ≤ γ ‖z‖ ‖w‖ of the true one, γ = mu / (1 − mu). Sums run in four lanes or more, with two
//! roundings a step at worst, then over the lanes and the rest of the row: m = D/2 + 64 covers all, with the rounding of
//! the weights. Numbers below the normal range add less than 2⁻¹⁴⁹ a step. The f64 chain has its own γ, 2(D + 1)·2⁻⁵³.
//! Where norms are so small or large that products could leave the range, nothing is taken for certain. ‖z‖ is first put at
//! √D max|z_k|, which costs nothing beside the products; only a row that this leaves open has its norm computed.
//!
//! Software prefetch brings later rows into the cache: so much is computed for each row that the hardware prefetcher would
//! not look far enough ahead.

use rayon::prelude::*;

use super::kernel::{DOTS, Isa, Kernel, Single, UNIT, Unit, Work};
use crate::engine::{Matrix, Rows};

/// Rows per task, an even number: their f32 values stay in the L2 cache when there are many columns.
const CHUNK: usize = 64;
/// Prefetch distance in bytes.
const AHEAD_BYTES: usize = 16 << 10;

/// Returns the column of the largest entry of each row of Z W, for rows that fit f32.
pub(super) fn screened(isa: Isa, rows: Rows<'_>, weights: &Matrix, bias: bool) -> Vec<u32> {
    let screen = Screen::new(rows.cols(), weights, bias);
    let mut classes = vec![0; rows.rows()];
    classes.par_chunks_mut(CHUNK).enumerate().for_each_init(
        Scratch::default,
        |scratch, (chunk, classes)| {
            isa.run(Classify {
                screen: &screen,
                rows,
                first: chunk * CHUNK,
                classes,
                scratch,
            });
        },
    );
    classes
}

/// Returns the index of the largest product of a row, the first of several equal ones.
pub(super) fn largest(products: impl IntoIterator<Item = f64>) -> u32 {
    let mut products = (0..).zip(products);
    let first = products.next().unwrap_or((0, f64::NAN));
    let best = products.fold(first, |best, other| match other.1 > best.1 {
        true => other,
        false => best,
    });
    best.0
}

/// Holds the weights in f32, and the error bound of their products.
struct Screen<'a> {
    weights: &'a Matrix,
    bias: bool,
    /// Groups of [`DOTS`] columns, `[group][k / UNIT][column][UNIT]`. Columns that are missing repeat the first.
    groups: Vec<Vec<[Unit; DOTS]>>,
    /// The bias of each column, zero without one.
    biases: Vec<f32>,
    /// Largest norm of a column.
    norm: f64,
    /// γ of both arithmetics.
    gamma: f64,
    /// Error that subnormal numbers may add, for a row of norm 1.
    tiny: f64,
}

impl<'a> Screen<'a> {
    fn new(depth: usize, weights: &'a Matrix, bias: bool) -> Self {
        let columns = weights.cols();
        let groups = (0..columns)
            .step_by(DOTS)
            .map(|group| {
                let column = |j: usize| if group + j < columns { group + j } else { 0 };
                let mut packed = vec![[Unit([0.0; UNIT]); DOTS]; depth.div_ceil(UNIT)];
                for k in 0..depth {
                    for (j, values) in packed[k / UNIT].iter_mut().enumerate() {
                        values.0[k % UNIT] = weights[(k, column(j))] as f32;
                    }
                }
                packed
            })
            .collect();
        let bias_of = |j: usize| {
            if bias {
                weights[(depth, j)] as f32
            } else {
                0.0
            }
        };
        let norm = |j: usize| {
            let squares = (0..weights.rows()).map(|k| weights[(k, j)].powi(2));
            squares.sum::<f64>().sqrt()
        };
        let roundings = (depth / 2 + 64) as f64 * f64::from(f32::EPSILON) / 2.0;
        Self {
            weights,
            bias,
            groups,
            biases: (0..columns).map(bias_of).collect(),
            // Unlike `max`, this keeps NaN.
            norm: (0..columns)
                .map(norm)
                .fold(0.0, |a, b| if a > b { a } else { b }),
            gamma: roundings / (1.0 - roundings) + (depth + 1) as f64 * f64::EPSILON,
            tiny: (depth + 1) as f64 * f64::from(f32::from_bits(1)),
        }
    }

    /// Returns whether the largest f32 product of a row of this norm is the largest in f64 too.
    fn is_certain(&self, first: f32, second: f32, norm: f64) -> bool {
        let row = (norm * norm + f64::from(u8::from(self.bias))).sqrt();
        let size = row * self.norm;
        let error = self.gamma * size + self.tiny * (1.0 + row);
        let in_range = norm > 1e-15 && size < 1e36;
        in_range && f64::from(first) - f64::from(second) > 2.0 * error
    }
}

/// Holds each row's largest product so far, its second largest, and the column of the largest.
struct Leads {
    first: [f32; CHUNK],
    second: [f32; CHUNK],
    column: [u32; CHUNK],
}

impl Leads {
    const NONE: Self = Self {
        first: [f32::NEG_INFINITY; CHUNK],
        second: [f32::NEG_INFINITY; CHUNK],
        column: [0; CHUNK],
    };

    /// Updates the leads with one product of every row.
    #[inline(always)]
    fn see(&mut self, column: u32, products: &[f32; CHUNK], bias: f32) {
        for i in 0..CHUNK {
            let (value, first) = (products[i] + bias, self.first[i]);
            let better = value > first;
            let loser = if better { first } else { value };
            self.second[i] = if loser > self.second[i] {
                loser
            } else {
                self.second[i]
            };
            self.column[i] = if better { column } else { self.column[i] };
            self.first[i] = if better { value } else { first };
        }
    }
}

/// Scratch buffers of a task.
#[derive(Default)]
struct Scratch {
    /// Two rows in f32, where they are not stored so.
    single: [Vec<f32>; 2],
    /// A row in f64.
    wide: Vec<f64>,
    /// Products of that row.
    products: Vec<f64>,
}

/// Finds the classes of rows `first..first + classes.len()`.
struct Classify<'a> {
    screen: &'a Screen<'a>,
    rows: Rows<'a>,
    first: usize,
    classes: &'a mut [u32],
    scratch: &'a mut Scratch,
}

impl Work for Classify<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let Self {
            screen,
            rows,
            first,
            classes,
            scratch,
        } = self;
        let columns = screen.weights.cols();
        let count = classes.len();
        let ahead = AHEAD_BYTES / rows.row_bytes(first).len().max(1) + 1;
        let mut leads = Leads::NONE;
        let mut largest = [0.0; CHUNK];
        for (group, packed) in screen.groups.iter().enumerate() {
            let start = group * DOTS;
            let mut products = [[0.0; CHUNK]; DOTS];
            for i in (0..count).step_by(2) {
                // The last row twice, where there is no other.
                let pair = [first + i, first + (i + 1).min(count - 1)];
                let [one, two] = &mut scratch.single;
                let units = |row: usize, buffer| {
                    let (units, rest) = rows.single(row, buffer).as_chunks::<UNIT>();
                    let mut last = [0.0; UNIT];
                    last[..rest.len()].copy_from_slice(rest);
                    // Later groups find them in the cache.
                    let next = if group == 0 { row + ahead } else { rows.rows() };
                    let ahead = match next < rows.rows() {
                        true => rows.row_bytes(next),
                        false => &[],
                    };
                    Single { units, last, ahead }
                };
                let pair = [units(pair[0], one), units(pair[1], two)];
                let found = kernel.dots(pair, packed);
                for (i, (found, size)) in (i..).zip(found) {
                    for (products, product) in products.iter_mut().zip(found) {
                        products[i] = product;
                    }
                    largest[i] = size;
                }
            }
            for (j, products) in (start..columns).zip(&products) {
                leads.see(j as u32, products, screen.biases[j]);
            }
        }
        let root = (rows.cols() as f64).sqrt();
        for (i, class) in classes.iter_mut().enumerate() {
            let (one, two) = (leads.first[i], leads.second[i]);
            let norm = root * f64::from(largest[i]);
            *class = match screen.is_certain(one, two, norm) {
                true => leads.column[i],
                false => scratch.settle(screen, rows, first + i, |norm| {
                    screen.is_certain(one, two, norm).then_some(leads.column[i])
                }),
            };
        }
    }
}

impl Scratch {
    /// The class of a row: `known` where its norm makes that certain, or else by the f64 chain over its columns.
    #[inline(always)]
    fn settle(
        &mut self,
        screen: &Screen<'_>,
        rows: Rows<'_>,
        row: usize,
        known: impl Fn(f64) -> Option<u32>,
    ) -> u32 {
        let weights = screen.weights;
        self.wide.clear();
        self.wide.resize(weights.rows(), 1.0);
        rows.widen_row(row, &mut self.wide);
        let squares = self.wide[..rows.cols()].iter().map(|z| z * z);
        if let Some(class) = known(squares.sum::<f64>().sqrt()) {
            return class;
        }
        self.products.clear();
        self.products.resize(weights.cols(), 0.0);
        for (k, &z) in self.wide.iter().enumerate() {
            for (product, &w) in self.products.iter_mut().zip(weights.row(k)) {
                *product = z.mul_add(w, *product);
            }
        }
        largest(self.products.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{CpuEngine, Engine};

    /// What the classes must be.
    fn by_products(rows: Rows<'_>, weights: &Matrix) -> Vec<u32> {
        let engine = CpuEngine::new(Some(1)).unwrap();
        let products = engine.project(rows, weights).unwrap();
        (0..rows.rows())
            .map(|i| largest(products.row(i).iter().copied()))
            .collect()
    }

    fn check(rows: Rows<'_>, weights: &Matrix, what: &str) {
        let bias = weights.rows() > rows.cols();
        for isa in Isa::all() {
            let found = screened(isa, rows, weights, bias);
            assert_eq!(found, by_products(rows, weights), "{what}, {}", isa.name());
        }
    }

    fn noise(i: usize) -> f64 {
        let mut x = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x ^= x >> 29;
        x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (x >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
    }

    /// Shapes with and without rests, with and without a bias.
    #[test]
    fn classes_are_those_of_the_product() {
        for (n, depth, columns, bias) in [
            (1, 1, 1, 0),
            (7, 16, 10, 0),
            (70, 33, 11, 1),
            (33, 5, 27, 1),
            (65, 512, 3, 0),
        ] {
            let z: Vec<f32> = (0..n * depth).map(|i| noise(i) as f32).collect();
            let weights = Matrix::from_fn(depth + bias, columns, |i, j| {
                noise(7_000_000 + i * columns + j)
            });
            let rows = Rows::new(n, depth, z.as_slice());
            check(rows, &weights, &format!("{n}x{depth}x{columns}+{bias}"));
            let half: Vec<_> = z.iter().map(|&z| half::f16::from_f32(z)).collect();
            check(Rows::new(n, depth, half.as_slice()), &weights, "f16");
            let brain: Vec<_> = z.iter().map(|&z| half::bf16::from_f32(z)).collect();
            check(Rows::new(n, depth, brain.as_slice()), &weights, "bf16");
        }
    }

    /// Columns that f32 cannot tell apart: f64 decides, and the first of equal ones wins.
    #[test]
    fn near_ties_are_settled_in_f64() {
        let (n, depth) = (50, 40);
        let z: Vec<f32> = (0..n * depth).map(|i| noise(i) as f32).collect();
        let rows = Rows::new(n, depth, z.as_slice());
        for gap in [0.0, 1e-16, 1e-12, 1e-9, 1e-7, 1e-5, 1e-3] {
            let weights = Matrix::from_fn(depth, 4, |i, j| {
                noise(90_000 + i) + gap * noise(91_000 + 4 * i + j)
            });
            check(rows, &weights, &format!("gap {gap}"));
        }
    }

    /// Norms at which f32 overflows, underflows, or has no numbers at all.
    #[test]
    fn extremes_are_left_to_f64() {
        let depth = 20;
        for (rows, weights) in [
            (1e30, 1e30),
            (1e-30, 1e-30),
            (1e-44, 1.0),
            (1.0, 1e300),
            (1.0, 1e-300),
            (1e38, 1e-38),
            (1e18, 1e17),
            (1e-14, 1e-26),
        ] {
            let z: Vec<f32> = (0..9 * depth).map(|i| (noise(i) * rows) as f32).collect();
            let w = Matrix::from_fn(depth, 5, |i, j| noise(50 + 5 * i + j) * weights);
            let what = format!("{rows:e} by {weights:e}");
            check(Rows::new(9, depth, z.as_slice()), &w, &what);
        }
        let mut z: Vec<f32> = (0..9 * depth).map(|i| noise(i) as f32).collect();
        z[3] = f32::NAN;
        z[3 * depth] = f32::INFINITY;
        let mut w = Matrix::from_fn(depth, 5, |i, j| noise(50 + 5 * i + j));
        check(
            Rows::new(9, depth, z.as_slice()),
            &w,
            "rows that are not numbers",
        );
        w[(4, 2)] = f64::NAN;
        w[(5, 3)] = f64::NEG_INFINITY;
        check(
            Rows::new(9, depth, z.as_slice()),
            &w,
            "weights that are not numbers",
        );
    }

    /// The bound holds for products that are as wrong as f32 makes them, and is not so wide that all is done twice.
    #[test]
    fn the_bound_covers_what_f32_is_wrong_by() {
        struct Dots<'a>(&'a Screen<'a>, &'a [f32]);
        impl Work for Dots<'_> {
            type Output = [([f32; DOTS], f32); 2];
            #[inline(always)]
            fn run<K: Kernel>(self, kernel: K) -> Self::Output {
                let row = Single {
                    units: self.1.as_chunks().0,
                    last: [0.0; UNIT],
                    ahead: &[],
                };
                kernel.dots([row; 2], &self.0.groups[0])
            }
        }
        let depth = 512;
        // All terms of one sign, so that errors add up.
        let weights = Matrix::from_fn(depth, DOTS, |i, j| 0.5 + noise(DOTS * i + j));
        let screen = Screen::new(depth, &weights, false);
        let mut worst = 0.0_f64;
        for r in 0..200 {
            let z: Vec<f32> = (0..depth)
                .map(|k| (0.5 + noise(10_000 + r * depth + k)) as f32)
                .collect();
            let norm = z.iter().map(|&z| f64::from(z).powi(2)).sum::<f64>().sqrt();
            for isa in Isa::all() {
                let [(products, size), (too, _)] = isa.run(Dots(&screen, &z));
                assert_eq!(products, too);
                assert_eq!(size, z.iter().fold(0.0_f32, |a, b| a.max(b.abs())));
                for (j, &product) in products.iter().enumerate() {
                    let exact: f64 = (0..depth).map(|k| f64::from(z[k]) * weights[(k, j)]).sum();
                    let error = (f64::from(product) - exact).abs();
                    worst = worst.max(error / (screen.gamma * norm * screen.norm));
                }
            }
        }
        assert!(worst < 1.0, "off by {worst} of the bound");
        assert!(screen.gamma < 5e-5, "{}", screen.gamma);
    }
}
