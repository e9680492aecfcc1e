//! The files that `muso head` and the scripts get, and the head that they should make of them.
//!
//! A file holds N × 512 f32 rows in ten classes, a centre for each class and noise; a smaller file is the beginning of a
//! larger one. One row in a hundred is forgotten, with a ridge of 1e-3 and a bias.

use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use muso::Error;
use muso::data::{OutTensor, to_safetensors};
use muso::engine::{Dtype, Matrix};
use muso::progress::{Progress, check};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::Work;
use super::super::arrays::npy_header;
use super::super::inputs::{gaussian, gaussian_f32};
use super::super::reference::cholesky_solve;

pub(super) const FEATURES: usize = 512;
pub(super) const CLASSES: usize = 10;
pub(super) const RIDGE: f64 = 1e-3;
/// Magnitudes of the features stay below it.
pub(super) const RANGE: f64 = 4.0;
/// What is not on a grid of that range, whatever its width: sixteen times as much.
const BEYOND: f32 = 64.0;
/// Interval of the forgotten rows.
const FORGET_EVERY: usize = 100;

/// A folder with features, labels, rows to forget and a head of any weights.
pub(super) struct Input {
    pub(super) rows: usize,
    pub(super) folder: PathBuf,
}

impl Input {
    /// Writes the files of `rows` rows to a new folder in `parent`.
    pub(super) fn create(parent: &Path, rows: usize, progress: &mut dyn Progress) -> Result<Self> {
        let folder = parent.join(rows.to_string());
        std::fs::create_dir(&folder).map_err(|e| Error::io(&folder, "create", e))?;
        let input = Self { rows, folder };
        input.write_features(progress)?;

        let labels: Vec<i64> = (0..rows).map(class_of).collect();
        let mut bytes = npy_header("<i8", &[rows]);
        bytes.extend_from_slice(bytemuck::cast_slice(&labels));
        let forget = (0..rows).step_by(FORGET_EVERY).map(|i| format!("{i}\n"));
        let (values, dtype) = (&gaussian(CLASSES, FEATURES, 1), Dtype::F64);
        let bias = OutTensor::Vector {
            values: &[0.0; CLASSES],
            dtype,
        };
        let weight = OutTensor::Matrix { values, dtype };
        let head = to_safetensors(&[("weight", weight), ("bias", bias)])?;
        for (name, bytes) in [
            ("labels.npy", bytes),
            ("forget", forget.collect::<String>().into_bytes()),
            ("head.safetensors", head),
        ] {
            let path = input.path(name);
            std::fs::write(&path, bytes).map_err(|e| Error::io(&path, "write", e))?;
        }
        Ok(input)
    }

    fn write_features(&self, progress: &mut dyn Progress) -> Result<()> {
        let path = self.path("features.npy");
        let failed = |e| Error::io(&path, "write", e);
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&path).map_err(failed)?);
        let header = npy_header("<f4", &[self.rows, FEATURES]);
        file.write_all(&header).map_err(failed)?;
        let mut features = FeatureStream::new();
        for i in 0..self.rows {
            if i % 10_000 == 0 {
                check(progress, "writing", i as u64, self.rows as u64)?;
            }
            let row = features.next_row();
            file.write_all(bytemuck::cast_slice(row)).map_err(failed)?;
        }
        Ok(file.flush().map_err(failed)?)
    }

    /// Gives so many of every hundred rows a value beyond the grid, in one column after the other.
    pub(super) fn put_beyond(&self, percent: usize) -> Result<()> {
        let path = self.path("features.npy");
        let failed = |e| Error::io(&path, "write", e);
        let mut file = File::options().write(true).open(&path).map_err(failed)?;
        let header = npy_header("<f4", &[self.rows, FEATURES]).len();
        for row in (0..self.rows).filter(|row| row * percent / 100 != (row + 1) * percent / 100) {
            let at = header + (row * FEATURES + row % FEATURES) * size_of::<f32>();
            file.seek(SeekFrom::Start(at as u64)).map_err(failed)?;
            file.write_all(&BEYOND.to_le_bytes()).map_err(failed)?;
        }
        Ok(())
    }

    /// Returns the path of one of its files.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns what a head of it cannot do without: a triangle of G and a column of one-hot targets for each row, and
    /// the file read once.
    pub(super) fn work(&self) -> Work {
        let order = FEATURES + 1;
        Work {
            flops: self.rows as f64 * (order * order + order) as f64,
            bytes: file_bytes(self.rows) as f64,
        }
    }
}

/// Returns the bytes of features and labels.
pub(super) fn file_bytes(rows: usize) -> u64 {
    (rows * (FEATURES * 4 + 8)) as u64
}

/// Neighbours differ, and so do the classes of the forgotten rows.
fn class_of(row: usize) -> i64 {
    (row.wrapping_mul(2_654_435_761) >> 7) as i64 % CLASSES as i64
}

/// Generates the same rows for every file, as far as each goes.
struct FeatureStream {
    rng: ChaCha8Rng,
    centres: Vec<f32>,
    row: Vec<f32>,
    next: usize,
}

impl FeatureStream {
    fn new() -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(2),
            centres: gaussian_f32(CLASSES * FEATURES, 3),
            row: vec![0.0; FEATURES],
            next: 0,
        }
    }

    fn next_row(&mut self) -> &[f32] {
        let centre = &self.centres[class_of(self.next) as usize * FEATURES..][..FEATURES];
        for (value, centre) in self.row.iter_mut().zip(centre) {
            *value = 4.0 * (self.rng.random::<f32>() - 0.5) + 0.25 * centre;
        }
        self.next += 1;
        &self.row
    }
}

/// Computes the head of the first `rows` rows, (D+1)×C, without the engine: G_r + λI and Z_rᵀY_r are added up row by row
/// over the retained rows and solved by an unblocked Cholesky factor, all in f64.
pub(super) fn reference(rows: usize) -> Matrix {
    let order = FEATURES + 1;
    let mut gram = Matrix::zeros(order, order);
    let mut cross = Matrix::zeros(order, CLASSES);
    let mut features = FeatureStream::new();
    for i in 0..rows {
        let row = features.next_row();
        if i % FORGET_EVERY == 0 {
            continue;
        }
        let wide: Vec<f64> = row.iter().map(|&x| f64::from(x)).chain([1.0]).collect();
        for (j, &x) in wide.iter().enumerate() {
            for (out, y) in gram.row_mut(j)[..=j].iter_mut().zip(&wide) {
                *out += x * y;
            }
            cross[(j, class_of(i) as usize)] += x;
        }
    }
    cholesky_solve(&gram, RIDGE, &cross)
}

#[cfg(test)]
mod tests {
    use super::super::super::reference::relative;
    use super::*;

    #[test]
    fn a_system_of_two_is_solved_and_other_shapes_are_far() {
        // 3 1 and 1 3 with one more on the diagonal; only the lower triangle is read.
        let a = Matrix::from_vec(2, 2, vec![3.0, f64::NAN, 1.0, 3.0]);
        let b = Matrix::from_vec(2, 1, vec![9.0, 6.0]);
        let x = cholesky_solve(&a, 1.0, &b);
        let wanted = Matrix::from_vec(2, 1, vec![2.0, 1.0]);
        assert!(relative(&x, &wanted) < 1e-15);
        assert_eq!(relative(&a, &wanted), f64::INFINITY);
    }

    #[test]
    fn as_many_rows_as_asked_for_are_beyond_the_grid() {
        let folder = tempfile::tempdir().unwrap();
        let input = Input::create(folder.path(), 200, &mut ()).unwrap();
        let beyond = |row: &[u8]| {
            let values = row.as_chunks::<4>().0.iter();
            let mut values = values.map(|bytes| f64::from(f32::from_le_bytes(*bytes)));
            values.any(|value| value.abs() >= RANGE)
        };
        for percent in [0, 1, 50] {
            input.put_beyond(percent).unwrap();
            let file = std::fs::read(input.path("features.npy")).unwrap();
            let rows = file[file.len() - 200 * FEATURES * 4..].chunks_exact(FEATURES * 4);
            assert_eq!(rows.filter(|row| beyond(row)).count(), 2 * percent);
        }
    }

    #[test]
    fn a_smaller_file_is_the_beginning_of_a_larger_one() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = |rows| {
            let input = Input::create(folder.path(), rows, &mut ()).unwrap();
            std::fs::read(input.path("features.npy")).unwrap()
        };
        let (small, large) = (bytes(101), bytes(202));
        let values = 101 * FEATURES * 4;
        let begin = |file: &[u8], rows: usize| file.len() - rows * FEATURES * 4;
        let (a, b) = (begin(&small, 101), begin(&large, 202));
        assert_eq!(small[a..], large[b..b + values]);
        assert_ne!(large[b..b + values], large[b + values..]);
    }
}
