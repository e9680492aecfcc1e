//! `muso doctor`: what this build and machine can do, and why not where not.

use std::path::PathBuf;

use clap::Args;
use muso::engine::exact::BITS;
use muso::engine::{CpuEngine, Engine};
use serde_json::{Value, json};

use super::{Common, Outputs, data, device, print};

/// Tell what this build and machine can do, or what a folder of images holds
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    muso doctor\n  \
    muso doctor --data cifar-10-batches-bin\n\n\
    With --data: which image set it is, whether it is whole, and what to do if not. All of it is read:\n\
    archives are compared with published checksums, records, labels and numbers of images are checked,\n\
    and every JPEG and PNG is decoded. The exit code is 2 where something is wrong.")]
pub(super) struct DoctorArgs {
    /// Look at this folder of images instead: MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100, Tiny ImageNet or your own
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Instruction sets that matter to the kernels, whether this processor has them, and whether they are used.
fn instruction_sets() -> Vec<(&'static str, bool)> {
    #[cfg(target_arch = "x86_64")]
    return vec![
        ("avx2", std::is_x86_feature_detected!("avx2")),
        ("fma", std::is_x86_feature_detected!("fma")),
        ("f16c", std::is_x86_feature_detected!("f16c")),
        ("avx512f", std::is_x86_feature_detected!("avx512f")),
        ("avx512vnni", std::is_x86_feature_detected!("avx512vnni")),
    ];
    #[cfg(target_arch = "aarch64")]
    return vec![("neon", true)];
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return Vec::new();
}

pub(super) fn run(args: &DoctorArgs, common: &Common) -> anyhow::Result<()> {
    if let Some(folder) = &args.data {
        return data::run(folder, common);
    }
    // A doctor who falls ill over a missing device is of no use: it looks at the CPU and reports on the rest.
    let engine = CpuEngine::new(Some(device::threads(common)?))?;
    let cuda = cuda(common);
    let toolkits = toolkits();
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
    let exact = Exact::new(&engine);
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let kernels = [
        "gram",
        "cross",
        "exact-gram",
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
                { "name": "cpu", "available": true, "kernels": kernels, "exact": exact.json },
                cuda.json,
            ],
            "toolkits": toolkits.json,
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
  cuda        {cuda_state}
kernels
  cpu         {kernels}
              rows f16, bf16, f32, f64; sums, factor and solve f64; same bytes for any thread count
              exact sums on {exact}
  cuda        {cuda_kernels}
{toolkits}",
        version = muso::VERSION,
        features = features.join(", "),
        threads = engine.threads(),
        has = listed(true),
        has_not = listed(false),
        describe = engine.describe(),
        cuda_state = cuda.state,
        cuda_kernels = cuda.kernels,
        kernels = kernels.join(", "),
        exact = exact.line,
        toolkits = toolkits.lines,
    ))?;
    Ok(())
}

/// The units that exact sums are made with, for each width.
struct Exact {
    json: Value,
    line: String,
}

impl Exact {
    fn new(engine: &CpuEngine) -> Self {
        let mut widths: Vec<(&str, Vec<String>)> = Vec::new();
        for bits in BITS {
            let units = engine.exact_units(bits);
            match widths.iter_mut().find(|(name, _)| *name == units) {
                Some((_, all)) => all.push(bits.to_string()),
                None => widths.push((units, vec![bits.to_string()])),
            }
        }
        let of_width = |bits| json!({ "bits": bits, "units": engine.exact_units(bits) });
        let lines = widths.iter();
        let lines = lines.map(|(units, all)| format!("{units} at {} bits", all.join(", ")));
        Self {
            json: BITS.map(of_width).to_vec().into(),
            line: lines.collect::<Vec<_>>().join(", on "),
        }
    }
}

/// Places where networks on CUDA may find their compiler.
struct Toolkits {
    /// The places as JSON; null in a build that has no use for them.
    json: Value,
    /// A heading and a line for each place, or nothing.
    lines: String,
}

#[cfg(not(all(feature = "cuda", feature = "nn")))]
fn toolkits() -> Toolkits {
    Toolkits {
        json: Value::Null,
        lines: String::new(),
    }
}

#[cfg(all(feature = "cuda", feature = "nn"))]
fn toolkits() -> Toolkits {
    use muso::gpu::compiler::{ORDER, places, toolkit};

    let mut lines = String::from("compiler for networks on cuda\n");
    let mut listed = Vec::new();
    for place in places() {
        let used = toolkit() == Some(place);
        let name =
            |file: &std::path::Path| file.file_name().map(|n| n.to_string_lossy().into_owned());
        let library = place.library().and_then(name);
        lines.push_str(&format!(
            "  {:<20} {}: {}, {}{}\n",
            place.from,
            place.root.display(),
            if place.headers {
                "headers"
            } else {
                "no headers"
            },
            library.as_deref().unwrap_or("no NVRTC"),
            if used { "; used" } else { "" },
        ));
        listed.push(json!({
            "from": place.from, "root": place.root, "headers": place.headers, "library": place.library(), "used": used,
        }));
    }
    if listed.is_empty() {
        lines.push_str(&format!("  none; looked for at {}\n", ORDER.join(", ")));
    }
    Toolkits {
        json: listed.into(),
        lines,
    }
}

/// Findings about CUDA.
struct Cuda {
    /// The findings as JSON.
    json: Value,
    /// Ready, or not available and why.
    state: String,
    /// The kernels, one a line, and what they take.
    kernels: String,
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: &Common) -> Cuda {
    let why = device::why_no_cuda();
    Cuda {
        json: json!({ "name": "cuda", "available": false, "why": why }),
        state: format!("not available: {why}"),
        kernels: "none".into(),
    }
}

#[cfg(feature = "cuda")]
fn cuda(common: &Common) -> Cuda {
    use muso::gpu::resources;

    let ordinal = device::ordinal(common).ok().flatten().unwrap_or(0);
    let opened = device::context(common, ordinal);
    let (json, state) = match &opened {
        Ok(context) => {
            let (major, minor) = context.driver().version();
            let state = format!(
                "ready: {}, driver for CUDA {major}.{minor}",
                context.describe()
            );
            let virtual_device = context.driver().is_virtual();
            (
                json!({ "available": true, "device": context.describe(), "virtual": virtual_device }),
                state,
            )
        }
        Err(error) => {
            let why = match error {
                muso::Error::Unavailable { why, .. } => why.clone(),
                other => other.to_string(),
            };
            let state = format!("not available: {why}");
            (json!({ "available": false, "why": why }), state)
        }
    };
    // The device's own machine code, or the oldest there is.
    let archs = resources::architectures();
    let own = opened.ok().and_then(|context| {
        let (major, minor) = context.properties().capability;
        let device = u32::try_from(major * 10 + minor).ok()?;
        let fits = |arch: &&u32| **arch / 10 == device / 10 && **arch <= device;
        archs.iter().rev().find(fits).copied()
    });
    let (mut lines, mut listed) = (String::from("PTX only"), Vec::new());
    if let Some(arch) = own.or(archs.first().copied()) {
        lines = format!(
            "as built for sm_{arch}: threads of a block, registers, shared memory, share of threads resident"
        );
        for kernel in resources::kernels(arch) {
            lines.push_str(&format!(
                "\n    {:<34} {:>4} {:>4} {:>6} B {:>4.0} %",
                kernel.name,
                kernel.threads,
                kernel.registers,
                kernel.shared,
                100.0 * kernel.occupancy
            ));
        }
    }
    for arch in archs {
        listed.extend(resources::kernels(arch).iter().map(|kernel| {
            json!({
                "name": kernel.name, "arch": arch, "threads": kernel.threads, "registers": kernel.registers,
                "shared_bytes": kernel.shared, "spill_bytes": kernel.spills, "occupancy": kernel.occupancy,
            })
        }));
    }
    let mut json = json;
    json["name"] = "cuda".into();
    json["kernels"] = listed.into();
    Cuda {
        json,
        state,
        kernels: lines,
    }
}
