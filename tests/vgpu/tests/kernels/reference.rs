//! Tables of numbers, where they come from, and sums in twice the precision to compare with.

use std::ops::{Index, IndexMut};

use crate::device::Dtype;

/// Half a unit in the last place of 1.
pub(crate) const U: f64 = f64::EPSILON / 2.0;

/// A row-major matrix on the host.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) data: Vec<f64>,
}

impl Table {
    pub(crate) fn zeros(rows: usize, cols: usize) -> Self {
        let data = vec![0.0; rows * cols];
        Self { rows, cols, data }
    }

    pub(crate) fn from_fn(rows: usize, cols: usize, f: impl Fn(usize, usize) -> f64) -> Self {
        let data = (0..rows * cols).map(|e| f(e / cols, e % cols)).collect();
        Self { rows, cols, data }
    }

    /// Numbers around zero that this type can hold.
    pub(crate) fn random(rows: usize, cols: usize, dtype: Dtype, seed: u64) -> Self {
        let mut random = Random(seed ^ 0x9e37_79b9_7f4a_7c15);
        let mut table = Self::zeros(rows, cols);
        for x in &mut table.data {
            *x = dtype.round(random.next());
        }
        table
    }

    /// The columns with a one after each row.
    pub(crate) fn with_ones(&self) -> Self {
        Self::from_fn(self.rows, self.cols + 1, |i, j| {
            if j < self.cols { self[(i, j)] } else { 1.0 }
        })
    }

    pub(crate) fn transposed(&self) -> Self {
        Self::from_fn(self.cols, self.rows, |i, j| self[(j, i)])
    }

    pub(crate) fn row(&self, i: usize) -> &[f64] {
        &self.data[i * self.cols..][..self.cols]
    }
}

impl Index<(usize, usize)> for Table {
    type Output = f64;
    fn index(&self, (i, j): (usize, usize)) -> &f64 {
        &self.data[i * self.cols + j]
    }
}
impl IndexMut<(usize, usize)> for Table {
    fn index_mut(&mut self, (i, j): (usize, usize)) -> &mut f64 {
        &mut self.data[i * self.cols + j]
    }
}

/// xorshift64*, to numbers in −2..2 with all their bits.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        bits as f64 / (1_u64 << 51) as f64 - 2.0
    }
}

/// A sum of products in about 106 bits, and the sum of their sizes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Dot {
    high: f64,
    low: f64,
    /// Σ|aᵢbᵢ|
    pub(crate) size: f64,
}

impl Dot {
    pub(crate) fn add(&mut self, a: f64, b: f64) {
        let product = a * b;
        let product_error = a.mul_add(b, -product);
        let sum = self.high + product;
        let t = sum - self.high;
        let sum_error = (self.high - (sum - t)) + (product - t);
        self.high = sum;
        self.low += product_error + sum_error;
        self.size += product.abs();
    }

    pub(crate) fn of<'a>(
        a: impl IntoIterator<Item = &'a f64>,
        b: impl IntoIterator<Item = &'a f64>,
    ) -> Self {
        let mut dot = Self::default();
        for (&a, &b) in a.into_iter().zip(b) {
            dot.add(a, b);
        }
        dot
    }

    pub(crate) fn value(&self) -> f64 {
        self.high + self.low
    }

    /// Asserts that `found` is the sum up to `roundings` of them, each at most u of the sizes.
    #[track_caller]
    pub(crate) fn check(&self, found: f64, roundings: f64, what: std::fmt::Arguments<'_>) {
        let error = ((found - self.high) - self.low).abs();
        let bound = roundings * U * self.size + f64::MIN_POSITIVE;
        assert!(
            error <= bound,
            "{what}: {found:e} for {:e}, off by {error:e} > {bound:e}",
            self.value()
        );
    }
}
