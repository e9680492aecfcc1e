//! What several test modules share: seeded matrices and plain f64 references that owe nothing to the engine.

use std::path::{Path, PathBuf};
use std::process::Command;

use muso::engine::{CpuEngine, Matrix};
use muso::progress::Progress;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

pub(crate) const EPS: f64 = f64::EPSILON;

pub(crate) fn engine() -> CpuEngine {
    CpuEngine::new(Some(2)).unwrap()
}

/// Standard normal entries.
pub(crate) fn gaussian(rows: usize, cols: usize, seed: u64) -> Matrix {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Matrix::from_fn(rows, cols, |_, _| StandardNormal.sample(&mut rng))
}

/// A·B by the definition.
pub(crate) fn matmul(a: &Matrix, b: &Matrix) -> Matrix {
    assert_eq!(a.cols(), b.rows());
    let mut out = Matrix::zeros(a.rows(), b.cols());
    for i in 0..a.rows() {
        for k in 0..a.cols() {
            let x = a[(i, k)];
            for (out, y) in out.row_mut(i).iter_mut().zip(b.row(k)) {
                *out += x * y;
            }
        }
    }
    out
}

pub(crate) fn minus(a: &Matrix, b: &Matrix) -> Matrix {
    a.zip(b, |a, b| a - b)
}

/// ‖a − b‖ / ‖b‖, Frobenius.
pub(crate) fn relative(a: &Matrix, b: &Matrix) -> f64 {
    minus(a, b).norm() / b.norm().max(f64::MIN_POSITIVE)
}

/// A⁻¹B by Gauss–Jordan with partial pivoting.
pub(crate) fn gauss_solve(a: &Matrix, b: &Matrix) -> Matrix {
    let n = a.rows();
    let (mut a, mut b) = (a.clone(), b.clone());
    for j in 0..n {
        let p = (j..n)
            .max_by(|&x, &y| a[(x, j)].abs().total_cmp(&a[(y, j)].abs()))
            .unwrap();
        for m in [&mut a, &mut b] {
            let (top, low) = (m.row(j).to_vec(), m.row(p).to_vec());
            m.row_mut(j).copy_from_slice(&low);
            m.row_mut(p).copy_from_slice(&top);
        }
        for i in 0..n {
            if i != j {
                let f = a[(i, j)] / a[(j, j)];
                for m in [&mut a, &mut b] {
                    let pivot = m.row(j).to_vec();
                    m.row_mut(i)
                        .iter_mut()
                        .zip(pivot)
                        .for_each(|(x, p)| *x -= f * p);
                }
            }
        }
    }
    Matrix::from_fn(n, b.cols(), |i, j| b[(i, j)] / a[(i, i)])
}

pub(crate) fn identity(n: usize) -> Matrix {
    Matrix::from_fn(n, n, |i, j| f64::from(u8::from(i == j)))
}

/// Stops at the n-th report.
pub(crate) struct StopAt(pub(crate) u64);

impl Progress for StopAt {
    fn at(&mut self, _: &str, _: u64, _: u64) -> bool {
        self.0 = self.0.saturating_sub(1);
        self.0 > 0
    }
}

/// The files of a folder with their bytes, by name.
pub(crate) fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<(String, Vec<u8>)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read(&path).unwrap())
        })
        .collect();
    found.sort();
    found
}

/// The Rust sources under a folder.
pub(crate) fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}

/// Returns what Cargo prints, asked in the folder of the repository and without the network.
pub(crate) fn cargo(arguments: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(arguments)
        .arg("--offline")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}
