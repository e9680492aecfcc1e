//! From `--device` and `--threads` to an engine.

use muso::engine::CpuEngine;
use muso::{Error, Result};

use super::Common;

pub(super) fn engine(common: &Common) -> Result<CpuEngine> {
    const MOST_THREADS: usize = 1024;
    if let Some(threads) = common.threads.filter(|n| !(1..=MOST_THREADS).contains(n)) {
        return Err(Error::Parameter {
            name: "--threads",
            value: threads.to_string(),
            expected: format!("1 to {MOST_THREADS}"),
        });
    }
    let name = common.device.as_str();
    let index = name.strip_prefix("cuda:").map(str::parse::<u32>);
    match (name, index) {
        ("cpu", _) => CpuEngine::new(common.threads),
        ("cuda", _) | (_, Some(Ok(_))) => Err(Error::Unavailable {
            device: name.into(),
            why: why_no_cuda(),
        }),
        _ => Err(Error::Parameter {
            name: "--device",
            value: name.into(),
            expected: "cpu, cuda or cuda:N".into(),
        }),
    }
}

/// Why there is no CUDA engine, for `doctor` and for `--device cuda`.
pub(super) fn why_no_cuda() -> String {
    let build = if cfg!(feature = "cuda") {
        "this version has no CUDA kernels yet"
    } else {
        "built without feature `cuda`, and this version has no CUDA kernels yet"
    };
    format!("{build}; {}", driver())
}

/// Whether an NVIDIA driver is there, without loading it: loading runs its code.
fn driver() -> String {
    if let Ok(version) = std::fs::read_to_string("/proc/driver/nvidia/version") {
        let line = version.lines().next().unwrap_or_default().trim().to_owned();
        return format!("the machine has a driver ({line})");
    }
    let places = [
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
        "/usr/lib64/libcuda.so.1",
        "/usr/lib/wsl/lib/libcuda.so.1",
    ];
    match places
        .iter()
        .find(|place| std::path::Path::new(place).exists())
    {
        Some(place) => format!("the machine has {place} but no loaded driver"),
        None => "no NVIDIA driver was found on this machine".into(),
    }
}
