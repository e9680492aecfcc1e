//! The C interface, from C: the shared library built as its header says, a program compiled by the system's compiler.

use std::process::Command;

use super::device::{artifact, cargo, engine, virtual_library};

#[test]
fn a_c_program_fits_a_ridge_model() {
    let arguments = "rustc --lib --crate-type cdylib --no-default-features --features capi";
    let mut arguments: Vec<&str> = arguments.split(' ').collect();
    if !cfg!(debug_assertions) {
        arguments.push("--release");
    }
    let library = artifact(&cargo(&arguments), "libmuso");
    let folder = library.parent().unwrap();

    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("ridge");
    let compiled = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .arg(&program)
        .arg(root.join("tests/suite/gpu/ridge.c"))
        .arg("-I")
        .arg(root.join("include"))
        .arg("-L")
        .arg(folder)
        .args(["-lmuso", "-ldl", "-lm"])
        .output()
        .unwrap();
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );

    let mut run = Command::new(&program);
    run.env("LD_LIBRARY_PATH", folder);
    if engine().context().driver().is_virtual() {
        run.env("MUSO_VGPU", virtual_library())
            .env("VGPU_STRICT", "1")
            .env("VGPU_LEAKS", "1");
    }
    let output = run.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("finding"), "{said}");
}
