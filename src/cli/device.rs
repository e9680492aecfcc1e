//! From `--device` and `--threads` to an engine.

use muso::engine::{AnyEngine, CpuEngine};
use muso::{Error, Result};

use super::Common;
use super::progress::Bar;
use crate::bench::{BenchReport, Operation};

/// The engine that was asked for. The process has one pool of as many threads as were asked for, and all share it.
pub(super) fn engine(common: &Common) -> Result<AnyEngine> {
    let threads = threads(common)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
    // It fails when there is a pool already, which is then of the default size, and the one that was asked for.
    let _ = pool.thread_name(|i| format!("muso-{i}")).build_global();
    match ordinal(common)? {
        None => Ok(CpuEngine::ambient().into()),
        Some(ordinal) => cuda(common, ordinal),
    }
}

/// Measures the kernels of the device that was asked for.
pub(super) fn bench(
    common: &Common,
    operations: &[Operation],
    bar: &mut Bar,
) -> Result<BenchReport> {
    cuda_bench(common, ordinal(common)?.unwrap_or(0), operations, bar)
}

/// The number of the CUDA device that `--device` names; none for the processor.
pub(super) fn ordinal(common: &Common) -> Result<Option<usize>> {
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
fn cuda(common: &Common, ordinal: usize) -> Result<AnyEngine> {
    Ok(muso::engine::CudaEngine::new(&context(common, ordinal)?)?.into())
}

#[cfg(feature = "cuda")]
fn cuda_bench(
    common: &Common,
    ordinal: usize,
    operations: &[Operation],
    bar: &mut Bar,
) -> Result<BenchReport> {
    crate::bench::cuda::run(&context(common, ordinal)?, operations, bar)
}

/// Opens a CUDA device; errors name it as the user did.
#[cfg(feature = "cuda")]
pub(super) fn context(common: &Common, ordinal: usize) -> Result<muso::gpu::Context> {
    use muso::gpu::{Context, Driver};

    let opened = Driver::from_environment().and_then(|driver| Context::new(&driver, ordinal));
    opened.map_err(|error| match error {
        Error::Unavailable { why, .. } => unavailable(common, why),
        other => other,
    })
}

#[cfg(not(feature = "cuda"))]
fn cuda(common: &Common, _: usize) -> Result<AnyEngine> {
    Err(unavailable(common, why_no_cuda()))
}

#[cfg(not(feature = "cuda"))]
fn cuda_bench(common: &Common, _: usize, _: &[Operation], _: &mut Bar) -> Result<BenchReport> {
    Err(unavailable(common, why_no_cuda()))
}

fn unavailable(common: &Common, why: String) -> Error {
    Error::Unavailable {
        device: common.device.clone(),
        why,
    }
}

/// Why there is no CUDA in this build, and whether it would be worth having one that has.
#[cfg(not(feature = "cuda"))]
pub(super) fn why_no_cuda() -> String {
    format!("built without feature `cuda`; {}", driver())
}

/// Says whether an NVIDIA driver is there, without loading it: loading runs its code.
#[cfg(not(feature = "cuda"))]
fn driver() -> String {
    if let Some(line) = muso::system::nvidia_driver() {
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
