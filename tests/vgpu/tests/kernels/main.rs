//! The project's CUDA kernels on the virtual GPU: every kernel, plain and fast, against sums in twice the precision.
//!
//! The `.cu` files are compiled here with the nvcc that the crate's build script would use; without one the tests say so
//! and do nothing. Every launch must leave no finding, every bound is the textbook's (a chain of n rounded sums errs by
//! at most n·u·Σ|aᵢbᵢ|), and matrices are allocated to the byte so that a step too far is a step out of bounds.

mod device;
mod factor;
mod gram;
mod products;
mod reference;
mod resources;
mod tiles;
#[path = "../../../../kernels/toolkit.rs"]
#[allow(dead_code)]
mod toolkit;
