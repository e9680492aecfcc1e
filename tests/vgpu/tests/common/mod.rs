//! What the suites that run CUDA programs share: compiling them, running them on a device of their own, and reporting
//! them as ignored, never as passed, where there is no compiler.

pub(crate) mod device;
pub(crate) mod nvcc;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

/// One test: a name, the architecture it is compiled for, and its body.
pub(crate) struct Case {
    /// `subject::name`.
    pub name: String,
    /// The body; it panics or gives an error.
    pub body: Box<dyn FnOnce() -> Result<(), Failed> + Send>,
}

/// Runs all cases, or reports all as ignored if there is no nvcc.
pub(crate) fn run(cases: Vec<Case>) -> ExitCode {
    let arguments = Arguments::from_args();
    let missing = nvcc::compiler().as_ref().err();
    if let (Some(why), false) = (missing, arguments.list) {
        eprintln!("every program is ignored: {why}");
    }
    let trials = cases
        .into_iter()
        .map(|case| {
            let trial = Trial::test(case.name, case.body);
            match missing {
                Some(_) => trial.with_kind("no nvcc").with_ignored_flag(true),
                None => trial,
            }
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
