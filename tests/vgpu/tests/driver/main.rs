//! The driver as a program sees it: its calls, its order of work, and the defects of programs that it finds.

#![allow(
    clippy::unwrap_used,
    clippy::macro_metavars_in_unsafe,
    reason = "helpers of tests may stop them, and every call of the driver is unsafe"
)]

mod calls;
mod device;
mod faults;
mod library;
mod process;
mod streams;
mod zoo;

use device::{fails, ok};
