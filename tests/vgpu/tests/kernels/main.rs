//! The project's CUDA kernels on the virtual GPU: every kernel, plain and fast, against sums in twice the precision, or in integers.
//!
//! The `.cu` files are compiled here with the nvcc that the crate's build script would use; without one every test that
//! needs it is reported as ignored. Every launch must leave no finding, every bound is the textbook's (a chain of n
//! rounded sums errs by at most n·u·Σ|aᵢbᵢ|), and matrices are allocated to the byte so that a step too far is a step
//! out of bounds.

mod device;
mod exact;
mod factor;
mod gram;
mod products;
mod reference;
mod resources;
mod tiles;
#[path = "../../../../kernels/toolkit.rs"]
#[allow(dead_code)]
mod toolkit;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// A name and the body, which panics where it fails.
type Test = (&'static str, fn());

/// Modules, and whether their tests compile kernels.
const MODULES: &[(&str, bool, &[Test])] = &[
    ("exact", true, exact::TESTS),
    ("factor", true, factor::TESTS),
    ("gram", true, gram::TESTS),
    ("products", true, products::TESTS),
    ("resources", true, resources::TESTS),
    ("tiles", false, tiles::TESTS),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let missing = device::found().as_ref().err();
    if let (Some(why), false) = (missing, arguments.list) {
        eprintln!("kernels cannot be compiled here, their tests are ignored: {why}");
    }
    let mut trials = Vec::new();
    for &(module, compiles, tests) in MODULES {
        for &(name, body) in tests {
            let trial = Trial::test(format!("{module}::{name}"), move || {
                body();
                Ok(())
            });
            trials.push(if compiles && missing.is_some() {
                trial.with_kind("no nvcc").with_ignored_flag(true)
            } else {
                trial
            });
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
