//! From `--device` and `--threads` to an engine.

use muso::engine::{AnyEngine, CpuEngine};
use muso::{Error, Result};

use super::Common;

/// The engine that was asked for.
pub(super) fn engine(common: &Common) -> Result<AnyEngine> {
    let threads = threads(common)?;
    match asked(common)? {
        None => Ok(CpuEngine::new(Some(threads))?.into()),
        Some(ordinal) => cuda(ordinal).map_err(|error| match error {
            Error::Unavailable { why, .. } => Error::Unavailable {
                device: common.device.clone(),
                why,
            },
            other => other,
        }),
    }
}

/// The number of the CUDA device that `--device` names; none for the processor.
pub(super) fn asked(common: &Common) -> Result<Option<usize>> {
    let name = common.device.as_str();
    match (name, name.strip_prefix("cuda:").map(str::parse::<u32>)) {
        ("cpu", _) => Ok(None),
        ("cuda", _) => Ok(Some(0)),
        (_, Some(Ok(ordinal))) => Ok(Some(ordinal as usize)),
        _ => Err(Error::Parameter {
            name: "--device",
            value: name.into(),
            expected: "cpu, cuda or cuda:N".into(),
        }),
    }
}

/// Worker threads: as many as were asked for, or one for each core.
pub(super) fn threads(common: &Common) -> Result<usize> {
    const MOST: usize = 1024;
    match common.threads {
        None => Ok(rayon::current_num_threads()),
        Some(threads) if (1..=MOST).contains(&threads) => Ok(threads),
        Some(threads) => Err(Error::Parameter {
            name: "--threads",
            value: threads.to_string(),
            expected: format!("1 to {MOST}"),
        }),
    }
}

#[cfg(feature = "cuda")]
fn cuda(ordinal: usize) -> Result<AnyEngine> {
    Ok(muso::engine::CudaEngine::new(&context(ordinal)?)?.into())
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: usize) -> Result<AnyEngine> {
    Err(Error::Unavailable {
        device: "cuda".into(),
        why: format!("built without feature `cuda`; {}", driver()),
    })
}

/// Opens a CUDA device.
#[cfg(feature = "cuda")]
pub(super) fn context(ordinal: usize) -> Result<muso::gpu::Context> {
    muso::gpu::Context::new(&muso::gpu::Driver::from_environment()?, ordinal)
}

/// Whether an NVIDIA driver is there, without loading it: loading runs its code.
#[cfg(not(feature = "cuda"))]
pub(super) fn driver() -> String {
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
