//! Does the virtual GPU compute what CUDA programs mean?
//!
//! Small kernels in `programs/`, compiled by nvcc for several architectures, each compared with the same thing computed
//! in Rust on the host. A module here stands for each program there. Names are `subject::architecture::kernel`.

// Each suite uses a part of it.
#[allow(dead_code)]
#[path = "../common/mod.rs"]
mod common;

mod atomic;
mod control;
mod convert;
mod float;
mod grid;
mod half;
mod inputs;
mod integer;
mod math;
mod matrix;
mod memory;
mod warp;

use std::process::ExitCode;

use common::{Case, device::Gpu};

/// A test of one kernel (or a few alike), the first architecture that has it, and its body.
type Test = (&'static str, u32, fn(&Gpu));

/// The architectures that a program is compiled for.
const PLAIN: &[u32] = &[75];
const ALL: &[u32] = &[75, 80, 90];

const SUBJECTS: &[(&str, &[u32], &[Test])] = &[
    ("integer", PLAIN, integer::TESTS),
    ("float", ALL, float::TESTS),
    ("half", ALL, half::TESTS),
    ("convert", ALL, convert::TESTS),
    ("memory", ALL, memory::TESTS),
    ("control", ALL, control::TESTS),
    ("warp", ALL, warp::TESTS),
    ("atomic", ALL, atomic::TESTS),
    ("matrix", ALL, matrix::TESTS),
    ("math", PLAIN, math::TESTS),
    ("grid", ALL, grid::TESTS),
];

fn main() -> ExitCode {
    let mut cases = Vec::new();
    for &(subject, architectures, tests) in SUBJECTS {
        for &arch in architectures {
            for &(name, _, body) in tests.iter().filter(|test| test.1 <= arch) {
                cases.push(Case {
                    name: format!("{subject}::sm_{arch}::{name}"),
                    body: Box::new(move || {
                        body(&Gpu::load("conformance/programs", subject, arch));
                        Ok(())
                    }),
                });
            }
        }
    }
    common::run(cases)
}
