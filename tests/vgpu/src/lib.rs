//! A CUDA device in software.
//!
//! Built as `libcuda.so`, this crate answers the part of the CUDA driver API that cudarc and burn call and executes
//! the PTX that real compilers emit, so that nobody needs a GPU to change a kernel. It is stricter than hardware: it
//! knows of every byte whether it was ever written, of every two accesses to shared memory whether a barrier lies
//! between them, and of every two streams whether an event orders them.
//!
//! The flow, one module a step:
//! - [`ptx`]: text → [`ptx::Module`], what the file says; an unknown instruction is an error with its line;
//! - [`program`]: module → [`program::Program`], what is executed: registers numbered, operands typed, branches with
//!   their reconvergence points;
//! - [`memory`]: device memory and what is known of each byte;
//! - [`arith`], [`matrix`]: what instructions compute;
//! - [`exec`]: a launch: blocks over the host's cores, warps of 32 lanes in lockstep;
//! - [`check`]: what the checks found, [`counters`]: what was counted;
//! - [`stream`]: queues, events and the vector clocks that find hazards between streams;
//! - [`device`]: descriptions of real devices and the time that the counters would take there; [`timeline`]: the
//!   same over streams, as a Chrome trace;
//! - [`driver`]: the C functions, thin.

// The reader of these pages works on the crate.
#![allow(rustdoc::private_intra_doc_links)]

pub mod arith;
mod bits;
pub mod check;
pub mod counters;
pub mod device;
pub mod driver;
pub mod exec;
pub mod matrix;
pub mod memory;
pub mod program;
pub mod ptx;
pub mod stream;
pub mod timeline;
