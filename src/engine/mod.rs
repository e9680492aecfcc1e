//! Engines: the device-side linear algebra.

mod matrix;

pub use matrix::{Dtype, Matrix, Rows, Samples};
