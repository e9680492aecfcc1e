//! Finds the device that the tests run on.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use muso::engine::CudaEngine;
use muso::gpu::{Context, Driver};

/// Has the virtual GPU fail the next synchronisation after a finding.
///
/// burn's matrix product loads two or four columns at a time, the padding of a row included, and drops what it computes
/// from that: the loads are of memory that nobody has written, and the only defect of another's kernels that is let be.
const STRICT: &str = r#"{
    "strict": true,
    "tolerate": [{"kind": "uninitialised-global", "kernels": "matmul_entry"}]
}"#;

/// The device, opened once.
pub(crate) fn engine() -> &'static CudaEngine {
    static ENGINE: LazyLock<CudaEngine> = LazyLock::new(|| {
        let driver = if has_hardware() {
            Driver::load(None).unwrap()
        } else {
            let driver = Driver::load(Some(virtual_library())).unwrap();
            driver.configure(STRICT).unwrap();
            driver
        };
        let context = Context::new(&driver, 0).unwrap();
        // Not `eprintln`, which the test harness keeps to itself.
        let line = format!("GPU tests run on {}\n", context.describe());
        std::io::stderr().write_all(line.as_bytes()).unwrap();
        CudaEngine::new(&context).unwrap()
    });
    &ENGINE
}

/// Whether the program finds a device; asked of another process, since this one can load only one driver.
fn has_hardware() -> bool {
    if std::env::var_os("MUSO_VGPU").is_some() {
        return false;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("doctor.json");
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_muso"));
    let output = doctor.arg("doctor").arg("--json").arg(&file).output();
    assert!(output.unwrap().status.success());
    let said: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    said["devices"][1]["available"] == true
}

/// The virtual GPU: `MUSO_VGPU` if set, else built from `tests/vgpu`; optimised whatever the tests are, since it runs
/// every instruction of every thread.
pub(crate) fn virtual_library() -> &'static Path {
    static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
        if let Some(path) = std::env::var_os("MUSO_VGPU") {
            return path.into();
        }
        let output = cargo(&["build", "--release", "-p", "muso-vgpu", "--lib"]);
        artifact(&output, "libvgpu")
    });
    &LIBRARY
}

/// Runs cargo in the repository and returns its messages, a line of JSON each.
pub(crate) fn cargo(arguments: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(arguments)
        .arg("--message-format=json")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// The shared library of this name among cargo's messages.
pub(crate) fn artifact(messages: &str, name: &str) -> PathBuf {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact")
        .flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default())
        .filter_map(|file| file.as_str().map(PathBuf::from))
        .find(|file| {
            file.extension().is_some_and(|e| e == "so" || e == "dylib")
                && file.file_stem().is_some_and(|stem| stem == name)
        })
        .unwrap_or_else(|| panic!("cargo made no {name}"))
}
