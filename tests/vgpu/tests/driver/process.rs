//! What a process leaves behind: settings from its environment, findings on stderr, files at its end.

use std::{
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::Value;
use vgpu::driver::{abi::CUstream, context::*, memory::*, streams::*, transfer::*};

use crate::{device::Device, ok};

/// Runs a test of this binary in a process of its own.
fn run(test: &str, environment: &[(&str, &str)]) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("vgpu-{}-{name}", std::process::id()))
}

fn read(path: PathBuf) -> Value {
    let value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    std::fs::remove_file(path).unwrap();
    value
}

#[test]
fn findings_and_files_come_out_at_the_end() {
    let (report, trace) = (file("report.json"), file("trace.json"));
    let output = run(
        "process::child_with_a_hazard",
        &[
            ("VGPU_DEVICE", "h100"),
            ("VGPU_REPORT", report.to_str().unwrap()),
            ("VGPU_TRACE", trace.to_str().unwrap()),
            ("VGPU_LEAKS", "1"),
        ],
    );
    assert!(output.status.success());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        told.contains("virtual GPU: StreamHazard: fill of 256 bytes on stream"),
        "{told}"
    );
    assert!(
        told.contains("virtual GPU: Leak: 1 allocations of device memory (256 bytes)"),
        "{told}"
    );
    assert!(
        told.contains("finding(s) on the virtual NVIDIA H100"),
        "{told}"
    );
    let report = read(report);
    assert_eq!(report["device"]["key"], "h100");
    assert_eq!(report["findings"][0]["kind"], "stream-hazard");
    assert!(report["timeline"]["makespan_us"].as_f64().unwrap() > 0.0);
    let trace = read(trace);
    assert_eq!(trace["otherData"]["time"], "virtual");
    assert!(trace["traceEvents"].as_array().unwrap().len() > 4);
}

#[test]
fn a_clean_process_says_nothing() {
    let output = run("process::child_without_one", &[]);
    assert!(output.status.success());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!told.contains("virtual GPU"), "{told}");
}

#[test]
fn strictness_and_capacity_come_from_the_environment() {
    let strict = run("process::child_with_a_hazard", &[("VGPU_STRICT", "1")]);
    assert!(!strict.status.success(), "the synchronising call fails");
    let small = run("process::child_without_one", &[("VGPU_MEMORY", "100")]);
    assert!(!small.status.success(), "256 bytes do not fit");
    let none = run(
        "process::child_without_one",
        &[("VGPU_CONFIG", "{\"devices\": 0}")],
    );
    assert!(!none.status.success(), "there is no device");
}

/// Not through [`Device`]: that one starts the driver anew at its end.
fn program(ordered: bool) {
    let device = std::mem::ManuallyDrop::new(Device::new());
    let x = device.alloc(64);
    let (a, b): (CUstream, CUstream) = (device.stream(), device.stream());
    ok!(cuMemsetD32Async(x, 1, 64, a));
    if ordered {
        device.order(a, b);
    }
    ok!(cuMemsetD32Async(x, 2, 64, b));
    ok!(cuCtxSynchronize());
    if ordered {
        ok!(cuMemFree_v2(x));
        ok!(cuStreamDestroy_v2(a));
    }
}

#[test]
#[ignore = "run by the tests above in a process of its own"]
fn child_with_a_hazard() {
    program(false);
}

#[test]
#[ignore = "run by the tests above in a process of its own"]
fn child_without_one() {
    program(true);
}
