//! `muso doctor`: what this build and machine can do, and why not where not.

use muso::engine::Engine;
use serde_json::json;

use super::{Common, Outputs, device, print};

/// Instruction sets that matter to the kernels, whether this processor has them, and whether they are used.
fn instruction_sets() -> Vec<(&'static str, bool)> {
    #[cfg(target_arch = "x86_64")]
    return vec![
        ("avx2", std::is_x86_feature_detected!("avx2")),
        ("fma", std::is_x86_feature_detected!("fma")),
        ("f16c", std::is_x86_feature_detected!("f16c")),
        ("avx512f", std::is_x86_feature_detected!("avx512f")),
    ];
    #[cfg(target_arch = "aarch64")]
    return vec![("neon", true)];
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return Vec::new();
}

pub(super) fn run(common: &Common) -> anyhow::Result<()> {
    // A doctor who falls ill over a missing device is of no use: it looks at the CPU and reports on the rest.
    let engine = device::engine(&Common {
        device: "cpu".into(),
        ..common.clone()
    })?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let sets = instruction_sets();
    let listed = |present: bool| {
        let names: Vec<&str> = sets
            .iter()
            .filter(|s| s.1 == present)
            .map(|s| s.0)
            .collect();
        if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        }
    };
    let features: Vec<&str> = [
        ("cli", true),
        ("nn", cfg!(feature = "nn")),
        ("cuda", cfg!(feature = "cuda")),
    ]
    .iter()
    .filter(|f| f.1)
    .map(|f| f.0)
    .collect();
    let why_no_cuda = device::why_no_cuda();
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let kernels = [
        "gram",
        "cross",
        "kernel-matrix",
        "cholesky",
        "solve",
        "projection",
        "argmax",
    ];

    let mut outputs = Outputs::beside(&[]);
    if let Some(mut file) = outputs.open("--json", common.json.as_deref())? {
        let value = json!({
            "kind": "doctor",
            "version": muso::VERSION,
            "os": os,
            "arch": arch,
            "features": features,
            "cores": cores,
            "threads": engine.threads(),
            "isa": engine.isa().name(),
            "cpu_features": sets.iter().filter(|s| s.1).map(|s| s.0).collect::<Vec<_>>(),
            "devices": [
                { "name": "cpu", "available": true, "kernels": kernels },
                { "name": "cuda", "available": false, "why": why_no_cuda },
            ],
        });
        file.put(format!("{value:#}\n").as_bytes())?;
        file.commit()?;
    }
    print(&format!(
        "muso {version} for {os} {arch}, features {features}

processor     {cores} cores, {threads} worker threads in use
  has         {has}
  has not     {has_not}
devices
  cpu         ready: {describe}
  cuda        not available: {why_no_cuda}
kernels
  cpu         {kernels}
              rows f16, bf16, f32, f64; sums, factor and solve f64; same bytes for any thread count
  cuda        none
",
        version = muso::VERSION,
        features = features.join(", "),
        threads = engine.threads(),
        has = listed(true),
        has_not = listed(false),
        describe = engine.describe(),
        kernels = kernels.join(", "),
    ))?;
    Ok(())
}
