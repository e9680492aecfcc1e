//! The matrix types that stages pass to each other and to an engine.
//!
//! [`Matrix`] is the one owned dense type: f64, row-major, one row per sample where rows are samples. [`Rows`] is a
//! borrowed batch of feature rows in whatever precision they are stored; an engine widens them itself, so that no
//! stage has to hold a widened copy.
//!
//! ```
//! use muso::engine::{Matrix, Rows};
//! let batch = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0];
//! let rows = Rows::new(2, 3, batch.as_slice());
//! assert_eq!(rows.to_matrix(), Matrix::from_vec(2, 3, vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
//! ```

use half::{bf16, f16};

/// A dense f64 matrix, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    rows: usize,
    cols: usize,
    data: Vec<f64>,
}

impl Matrix {
    /// Creates a matrix of zeros.
    pub fn zeros(rows: usize, cols: usize) -> Self {
        Self {
            rows,
            cols,
            data: vec![0.0; rows * cols],
        }
    }

    /// Takes row-major values.
    ///
    /// # Panics
    /// If `data.len() != rows * cols`.
    pub fn from_vec(rows: usize, cols: usize, data: Vec<f64>) -> Self {
        assert_eq!(
            data.len(),
            rows * cols,
            "{} values for a {rows}x{cols} matrix",
            data.len()
        );
        Self { rows, cols, data }
    }

    /// Fills from a function of (row, column).
    pub fn from_fn(rows: usize, cols: usize, mut value: impl FnMut(usize, usize) -> f64) -> Self {
        let data = (0..rows * cols)
            .map(|k| value(k / cols.max(1), k % cols.max(1)))
            .collect();
        Self { rows, cols, data }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Returns the values in row-major order.
    pub fn as_slice(&self) -> &[f64] {
        &self.data
    }

    /// Returns the values in row-major order, mutable.
    pub fn as_mut_slice(&mut self) -> &mut [f64] {
        &mut self.data
    }

    /// Returns row `i`.
    pub fn row(&self, i: usize) -> &[f64] {
        &self.data[i * self.cols..(i + 1) * self.cols]
    }

    /// Returns row `i`, mutable.
    pub fn row_mut(&mut self, i: usize) -> &mut [f64] {
        &mut self.data[i * self.cols..(i + 1) * self.cols]
    }

    /// Copies the given rows into a new matrix, in that order.
    pub fn select_rows(&self, rows: &[usize]) -> Self {
        let mut data = Vec::with_capacity(rows.len() * self.cols);
        for &i in rows {
            data.extend_from_slice(self.row(i));
        }
        Self {
            rows: rows.len(),
            cols: self.cols,
            data,
        }
    }

    /// Stacks the rows of `below` under those of `self`.
    pub fn stack(&self, below: &Self) -> Self {
        assert_eq!(
            self.cols, below.cols,
            "stacking {} columns on {}",
            self.cols, below.cols
        );
        let mut data = self.data.clone();
        data.extend_from_slice(&below.data);
        Self {
            rows: self.rows + below.rows,
            cols: self.cols,
            data,
        }
    }

    /// Returns the transposed matrix.
    pub fn transpose(&self) -> Self {
        Self::from_fn(self.cols, self.rows, |i, j| self[(j, i)])
    }

    /// Combines two matrices entry by entry: `f(self, other)`.
    ///
    /// # Panics
    /// If the shapes differ.
    pub fn zip(&self, other: &Self, mut f: impl FnMut(f64, f64) -> f64) -> Self {
        assert_eq!(
            (self.rows, self.cols),
            (other.rows, other.cols),
            "shapes differ"
        );
        let data = self
            .data
            .iter()
            .zip(&other.data)
            .map(|(&a, &b)| f(a, b))
            .collect();
        Self {
            rows: self.rows,
            cols: self.cols,
            data,
        }
    }

    /// Returns the sum of squares of all entries.
    pub fn norm_squared(&self) -> f64 {
        self.data.iter().map(|x| x * x).sum()
    }

    /// Returns the Frobenius norm, also where squares of entries leave the range of f64.
    pub fn norm(&self) -> f64 {
        let plain = self.norm_squared();
        if plain.is_normal() {
            return plain.sqrt();
        }
        let largest = self.data.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
        if largest == 0.0 || !largest.is_finite() || plain.is_nan() {
            return if plain.is_nan() { plain } else { largest };
        }
        let squares = self.data.iter().map(|x| (x / largest).powi(2));
        largest * squares.sum::<f64>().sqrt()
    }

    /// Returns whether no entry is infinite or NaN.
    pub fn is_finite(&self) -> bool {
        // Without an early end in the loop, so that many are looked at side by side.
        let all = |part: &[f64]| part.iter().fold(true, |all, x| all & x.is_finite());
        self.data.chunks(4096).all(all)
    }

    /// Returns ‖A‖∞, the largest row sum of magnitudes.
    pub fn largest_row_sum(&self) -> f64 {
        let row_sum = |i: usize| {
            // Chains that the processor can run side by side, in a fixed order.
            let (parts, rest) = self.row(i).as_chunks::<16>();
            let mut sums = [0.0; 16];
            for part in parts {
                for (sum, x) in sums.iter_mut().zip(part) {
                    *sum += x.abs();
                }
            }
            sums.iter().sum::<f64>() + rest.iter().map(|x| x.abs()).sum::<f64>()
        };
        (0..self.rows).map(row_sum).fold(0.0, f64::max)
    }

    /// Borrows the matrix as a batch of f64 feature rows.
    pub fn as_rows(&self) -> Rows<'_> {
        Rows::new(self.rows, self.cols, self.data.as_slice())
    }
}

impl std::ops::Index<(usize, usize)> for Matrix {
    type Output = f64;
    fn index(&self, (i, j): (usize, usize)) -> &f64 {
        &self.data[i * self.cols + j]
    }
}

impl std::ops::IndexMut<(usize, usize)> for Matrix {
    fn index_mut(&mut self, (i, j): (usize, usize)) -> &mut f64 {
        &mut self.data[i * self.cols + j]
    }
}

/// Storage type of feature values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// IEEE half precision, 16 bits.
    F16,
    /// bfloat16, 16 bits.
    Bf16,
    /// IEEE single precision, 32 bits.
    F32,
    /// IEEE double precision, 64 bits.
    F64,
}

impl Dtype {
    /// Returns the bytes of one value.
    pub fn size(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// Returns the name that the command line and reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }
}

/// Borrowed values of any storage type.
#[derive(Clone, Copy, Debug)]
pub enum Samples<'a> {
    /// Values in half precision.
    F16(&'a [f16]),
    /// Values in bfloat16.
    Bf16(&'a [bf16]),
    /// Values in single precision.
    F32(&'a [f32]),
    /// Values in double precision.
    F64(&'a [f64]),
}

impl<'a> From<&'a [f16]> for Samples<'a> {
    fn from(values: &'a [f16]) -> Self {
        Self::F16(values)
    }
}
impl<'a> From<&'a [bf16]> for Samples<'a> {
    fn from(values: &'a [bf16]) -> Self {
        Self::Bf16(values)
    }
}
impl<'a> From<&'a [f32]> for Samples<'a> {
    fn from(values: &'a [f32]) -> Self {
        Self::F32(values)
    }
}
impl<'a> From<&'a [f64]> for Samples<'a> {
    fn from(values: &'a [f64]) -> Self {
        Self::F64(values)
    }
}

impl Samples<'_> {
    /// Returns the number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::F16(v) => v.len(),
            Self::Bf16(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::F64(v) => v.len(),
        }
    }

    /// Returns whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A borrowed batch of feature rows, row-major and dense; perhaps only some of the rows of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    rows: usize,
    cols: usize,
    values: Samples<'a>,
    picks: Option<&'a [usize]>,
}

impl<'a> Rows<'a> {
    /// Borrows `rows * cols` values.
    ///
    /// # Panics
    /// If the number of values is not `rows * cols`.
    pub fn new(rows: usize, cols: usize, values: impl Into<Samples<'a>>) -> Self {
        let values = values.into();
        assert_eq!(
            values.len(),
            rows * cols,
            "{} values for {rows} rows of {cols}",
            values.len()
        );
        Self {
            rows,
            cols,
            values,
            picks: None,
        }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Returns the storage type of the values.
    pub fn dtype(&self) -> Dtype {
        match self.values {
            Samples::F16(_) => Dtype::F16,
            Samples::Bf16(_) => Dtype::Bf16,
            Samples::F32(_) => Dtype::F32,
            Samples::F64(_) => Dtype::F64,
        }
    }

    /// Returns the values behind the batch, those of rows that were not picked too.
    #[cfg(any(all(test, feature = "nn"), feature = "cuda"))]
    pub(crate) fn samples(&self) -> Samples<'a> {
        self.values
    }

    /// Copies row `i` as it is stored; `values` are those of [`Self::samples`].
    #[cfg(feature = "cuda")]
    pub(crate) fn copy_row<T: Copy>(&self, values: &[T], i: usize, out: &mut [T]) {
        let row = self.picks.map_or(i, |picks| picks[i]);
        out.copy_from_slice(&values[row * self.cols..][..self.cols]);
    }

    /// Returns the bytes behind the batch, row by row.
    ///
    /// # Panics
    /// If the rows are picked from others: those lie between them.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        assert!(self.picks.is_none(), "the bytes of picked rows");
        match self.values {
            Samples::F16(v) => bytemuck::cast_slice(v),
            Samples::Bf16(v) => bytemuck::cast_slice(v),
            Samples::F32(v) => bytemuck::cast_slice(v),
            Samples::F64(v) => bytemuck::cast_slice(v),
        }
    }

    /// Returns whether these rows are picked from others.
    pub(crate) fn is_picked(&self) -> bool {
        self.picks.is_some()
    }

    /// Returns some of the rows, in the given order, without copying them.
    ///
    /// # Panics
    /// If these rows are picked from others already, or on use if an index is out of range.
    pub fn pick(&self, rows: &'a [usize]) -> Rows<'a> {
        assert!(self.picks.is_none(), "picking from picked rows");
        Rows {
            rows: rows.len(),
            picks: Some(rows),
            ..*self
        }
    }

    /// Returns rows `start..end` of the batch.
    pub fn slice(&self, start: usize, end: usize) -> Rows<'a> {
        if let Some(picks) = self.picks {
            return Rows {
                rows: end - start,
                picks: Some(&picks[start..end]),
                ..*self
            };
        }
        let range = start * self.cols..end * self.cols;
        let values = match self.values {
            Samples::F16(v) => Samples::F16(&v[range]),
            Samples::Bf16(v) => Samples::Bf16(&v[range]),
            Samples::F32(v) => Samples::F32(&v[range]),
            Samples::F64(v) => Samples::F64(&v[range]),
        };
        Rows::new(end - start, self.cols, values)
    }

    /// Widens row `i` into the front of `out`.
    pub fn widen_row(&self, i: usize, out: &mut [f64]) {
        self.widen_part(i, 0, &mut out[..self.cols]);
    }

    /// Widens columns `first..first + out.len()` of row `i` into `out`.
    #[inline(always)]
    pub fn widen_part(&self, i: usize, first: usize, out: &mut [f64]) {
        let row = self.picks.map_or(i, |picks| picks[i]);
        let start = row * self.cols + first;
        let range = start..start + out.len();
        match self.values {
            Samples::F16(v) => {
                for (to, from) in out.iter_mut().zip(&v[range]) {
                    *to = f64::from(half_to_single(from.to_bits()));
                }
            }
            Samples::Bf16(v) => {
                for (to, from) in out.iter_mut().zip(&v[range]) {
                    *to = f64::from(f32::from_bits(u32::from(from.to_bits()) << 16));
                }
            }
            Samples::F32(v) => {
                for (to, &from) in out.iter_mut().zip(&v[range]) {
                    *to = f64::from(from);
                }
            }
            Samples::F64(v) => out.copy_from_slice(&v[range]),
        }
    }

    /// Returns row `i` in f32: as it is stored, or converted in `buffer`.
    ///
    /// # Panics
    /// If the rows are f64, which may not fit.
    #[inline(always)]
    pub(crate) fn single<'b>(&'b self, i: usize, buffer: &'b mut Vec<f32>) -> &'b [f32] {
        let row = self.picks.map_or(i, |picks| picks[i]);
        let range = row * self.cols..(row + 1) * self.cols;
        buffer.resize(self.cols, 0.0);
        match self.values {
            Samples::F32(v) => return &v[range],
            Samples::F16(v) => {
                for (to, from) in buffer.iter_mut().zip(&v[range]) {
                    *to = half_to_single(from.to_bits());
                }
            }
            Samples::Bf16(v) => {
                for (to, from) in buffer.iter_mut().zip(&v[range]) {
                    *to = f32::from_bits(u32::from(from.to_bits()) << 16);
                }
            }
            Samples::F64(_) => panic!("f64 rows as f32"),
        }
        buffer
    }

    /// Returns the bytes of row `i` as it is stored.
    pub(crate) fn row_bytes(&self, i: usize) -> &[u8] {
        let row = self.picks.map_or(i, |picks| picks[i]);
        let range = row * self.cols..(row + 1) * self.cols;
        match self.values {
            Samples::F16(v) => bytemuck::cast_slice(&v[range]),
            Samples::Bf16(v) => bytemuck::cast_slice(&v[range]),
            Samples::F32(v) => bytemuck::cast_slice(&v[range]),
            Samples::F64(v) => bytemuck::cast_slice(&v[range]),
        }
    }

    /// Returns a copy widened to f64.
    pub fn to_matrix(&self) -> Matrix {
        let mut out = Matrix::zeros(self.rows, self.cols);
        for i in 0..self.rows {
            self.widen_row(i, out.row_mut(i));
        }
        out
    }

    /// Returns the first value that is NaN or infinite, as (row, column, value).
    pub fn first_not_finite(&self) -> Option<(usize, usize, f64)> {
        // The common case is "none": a branch-free pass that vectorises, then a search only when it found something.
        fn any<T: Copy>(values: &[T], bad: impl Fn(T) -> bool) -> bool {
            values
                .chunks(4096)
                .any(|chunk| chunk.iter().fold(false, |acc, &x| acc | bad(x)))
        }
        let found = match self.values {
            Samples::F16(v) => any(v, |x| x.to_bits() & 0x7c00 == 0x7c00),
            Samples::Bf16(v) => any(v, |x| x.to_bits() & 0x7f80 == 0x7f80),
            Samples::F32(v) => any(v, |x| x.to_bits() & 0x7f80_0000 == 0x7f80_0000),
            Samples::F64(v) => any(v, |x| !x.is_finite()),
        };
        if !found && self.picks.is_none() {
            return None;
        }
        let mut row = vec![0.0; self.cols];
        (0..self.rows).find_map(|i| {
            self.widen_row(i, &mut row);
            row.iter()
                .position(|x| !x.is_finite())
                .map(|j| (i, j, row[j]))
        })
    }
}

/// Returns the value of an f16, exactly. It has neither branches nor calls, so that it vectorises.
#[inline(always)]
fn half_to_single(bits: u16) -> f32 {
    /// 2¹¹², between the exponents' biases; the product is exact, and makes subnormal numbers normal.
    const RAISE: f32 = f32::from_bits(0x7780_0000);
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let finite = (f32::from_bits(magnitude) * RAISE).to_bits();
    let is_special = magnitude >= 0x7c00 << 13;
    let magnitude = match is_special {
        true => magnitude | 0x7f80_0000,
        false => finite,
    };
    f32::from_bits(magnitude | u32::from(bits & 0x8000) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_has_its_value() {
        for bits in 0..=u16::MAX {
            let (found, value) = (half_to_single(bits), f16::from_bits(bits).to_f32());
            let same = found.to_bits() == value.to_bits() || found.is_nan() && value.is_nan();
            assert!(same, "{bits:#x}: {found} for {value}");
        }
    }
}
