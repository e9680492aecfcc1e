//! The device side: everything that talks to a CUDA driver, and the only unsafe code of the crate.
//!
//! From the bottom up: [`Driver`] (found and loaded, or why not), [`Context`] (a device, its kernels and its pool of
//! memory), [`Stream`] and [`Event`] (what runs in which order), [`DeviceMatrix`] and its views (what kernels are handed),
//! [`Staging`] (pinned memory on the way there and back). Above them one module for each file of `kernels/`, under the
//! same name: [`gram`], [`exact`], [`cholesky`], [`trisolve`], [`projection`], [`rff`]. Each of their functions checks shapes,
//! allocates what it needs, puts the arguments in order and launches; one function in the crate does the last.
//!
//! Stages do not use this module: they use an engine. Integrators who hold device pointers and streams of their own do:
//!
//! ```no_run
//! use muso::gpu::{Context, DeviceMatrix, Driver, Stream, gram};
//!
//! # fn main() -> muso::Result<()> {
//! let context = Context::new(&Driver::load(None)?, 0)?;
//! let stream = Stream::new(&context)?;
//! let rows = DeviceMatrix::<f32>::zeros(&stream, 1000, 64)?;
//! let mut sums = DeviceMatrix::<f64>::zeros(&stream, 64, 64)?;
//! gram::update(&stream, context.technique(), rows.view(), false, 1.0, sums.view_mut())?;
//! stream.synchronize()?;
//! # Ok(())
//! # }
//! ```
#![allow(unsafe_code)]
#![warn(clippy::undocumented_unsafe_blocks, unsafe_op_in_unsafe_fn)]

#[cfg(feature = "capi")]
pub mod capi;
pub mod cholesky;
mod class_rows;
#[cfg(feature = "nn")]
pub mod compiler;
mod context;
mod driver;
pub mod exact;
pub mod gram;
pub mod interop;
mod matrix;
mod module;
mod pool;
pub mod projection;
pub mod resources;
pub mod rff;
mod staging;
mod stream;
#[cfg(feature = "nn")]
pub mod tensor;
pub mod trisolve;

pub use class_rows::ClassRows;
pub use context::{Context, Properties};
pub use driver::Driver;
pub use matrix::{DeviceMatrix, Feature, ROW_ALIGN, Value, View, ViewMut};
pub use module::{Technique, table};
pub use staging::Staging;
pub use stream::{Event, Stream};
