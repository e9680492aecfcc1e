//! The pipeline on the virtual GPU: from images to labels, features on the device throughout.
//!
//! Each run is a process of its own, since a process has one driver with one configuration: the test runs itself.

use std::process::Command;

use muso::data::images::{ClassNames, ImageSet, Normalisation};
use muso::engine::{Engine, SumsSpec, Targets};
use muso::features::{Feed, host};
use muso::gram::{GramBuilder, Route};
use muso::models::burn::tensor::Device;
use muso::models::{Architecture, NetworkConfig};
use muso::scheduler::Scheduler;
use muso::solve::{Params, Solver};
use serde_json::Value;

use super::device::{engine, virtual_library};
use crate::support::gaussian;

const SIDE: usize = 8;
const CLASSES: usize = 3;
/// Not a whole number of batches, nor of row blocks.
const ROWS: usize = 4 * 512 + 300;
const FORGOTTEN: usize = 600;

fn feed(device: &Device) -> Feed {
    let pixels = gaussian(ROWS, SIDE * SIDE, 4);
    let pixels = pixels.as_slice().iter();
    let labels = (0..ROWS as i64).map(|i| i % CLASSES as i64);
    Feed {
        set: ImageSet::new(
            [1, SIDE, SIDE],
            pixels.map(|x| (128.0 + 50.0 * x) as u8).collect(),
            labels.collect(),
            ClassNames::new(["a", "b", "c"]),
        )
        .unwrap(),
        normalisation: Normalisation {
            mean: vec![0.5],
            std: vec![0.2],
        },
        device: device.clone(),
        scheduler: Scheduler::default(),
    }
}

/// decode → copy → features → sums → solve → labels → what burn makes of the labels, twice.
fn pipeline(engine: &impl Engine, device: &Device) -> Vec<f32> {
    let network =
        NetworkConfig::new(Architecture::SmallCnn, CLASSES, [1, SIDE, SIDE]).with_width(4);
    let spec = SumsSpec {
        features: network.features(),
        bias: true,
        targets: CLASSES,
    };
    let network = network.init(7, device).unwrap();
    let feed = feed(device);
    let rows: Vec<usize> = (0..ROWS).collect();
    let mut out = Vec::new();
    for odd in [false, true] {
        let mut gram = GramBuilder::new(engine, Route::Primal, spec).unwrap();
        for passed in feed.pass(&network, &rows, None).unwrap() {
            let passed = passed.unwrap();
            // Pieces that do not fit row blocks go through buffers on the device.
            let cut = if odd { 190.min(passed.rows.len()) } else { 0 };
            for (from, to) in [(0, cut), (cut, passed.rows.len())] {
                if from < to {
                    let part = passed.features.clone().narrow(0, from, to - from);
                    gram.update(&part, Targets::Classes(&passed.labels[from..to]))
                        .unwrap();
                }
            }
        }
        let muso::gram::Gram::Primal(sums) = gram.finish().unwrap() else {
            unreachable!()
        };
        let solver = Solver::new(engine, sums.gram, Params::ridge(1.0)).unwrap();
        let (weights, _) = solver.solve(&sums.cross).unwrap();
        for passed in feed.pass(&network, &rows[..FORGOTTEN], None).unwrap() {
            let outputs = engine
                .project_tensor(&passed.unwrap().features, &weights)
                .unwrap();
            let labels = muso::models::burn::tensor::activation::softmax(outputs * 3.0, 1);
            out.extend(host(labels));
        }
    }
    out
}

/// What the child processes do.
#[test]
#[ignore = "run by the other tests of this file"]
fn child() {
    muso::gpu::compiler::prepare().unwrap();
    let device = Device::cuda(engine().context().ordinal());
    let there = pipeline(engine(), &device);
    let here = pipeline(&muso::engine::CpuEngine::ambient(), &Device::flex());
    let apart = here
        .iter()
        .zip(&there)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max);
    let file = std::env::var("MUSO_TEST_OUT").unwrap();
    std::fs::write(file, format!("{apart}")).unwrap();
}

struct Ran {
    report: Value,
    trace: Value,
    /// How far the labels are from those on the processor; none if the run failed.
    apart: Option<f32>,
}

/// Runs the pipeline on a virtual device, with some waits for events left out.
fn run(device: &str, ignored: Option<&str>) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let settings = serde_json::json!({
        "device": device,
        "ignore_waits": ignored,
        "tolerate": [{"kind": "uninitialised-global", "kernels": "matmul_entry"}],
        "report": file("report.json"),
        "trace": file("trace.json"),
    });
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["gpu::lanes::child", "--exact", "--ignored", "--nocapture"])
        .env("MUSO_VGPU", virtual_library())
        .env("VGPU_CONFIG", settings.to_string())
        .env("MUSO_TEST_OUT", file("apart"))
        .output()
        .unwrap();
    let read = |name: &str| -> Value {
        let text = std::fs::read(file(name))
            .unwrap_or_else(|e| panic!("{name}: {e}; {}", String::from_utf8_lossy(&output.stderr)));
        serde_json::from_slice(&text).unwrap()
    };
    Ran {
        report: read("report.json"),
        trace: read("trace.json"),
        apart: std::fs::read_to_string(file("apart"))
            .ok()
            .and_then(|text| text.parse().ok()),
    }
}

/// Bytes of each copy to the host in a trace.
fn copies_to_host(trace: &Value) -> Vec<u64> {
    let events = trace["traceEvents"].as_array().unwrap();
    let names = events
        .iter()
        .filter(|e| e["ph"] == "X" && e["pid"] == 1)
        .filter_map(|e| e["name"].as_str()?.strip_prefix("copy to the host of "));
    names
        .map(|rest| rest.split_whitespace().next().unwrap().parse().unwrap())
        .collect()
}

/// The longest that one stream or one engine of the device was at work, and the whole, in microseconds.
fn longest_lane(trace: &Value) -> (f64, f64) {
    let mut lanes = std::collections::BTreeMap::<(u64, u64), f64>::new();
    let (mut first, mut last) = (f64::INFINITY, 0.0_f64);
    for event in trace["traceEvents"].as_array().unwrap() {
        if event["ph"] == "X" {
            let number = |key: &str| event[key].as_f64().unwrap();
            let lane = (
                event["pid"].as_u64().unwrap(),
                event["tid"].as_u64().unwrap(),
            );
            *lanes.entry(lane).or_default() += number("dur");
            first = first.min(number("ts"));
            last = last.max(number("ts") + number("dur"));
        }
    }
    (lanes.values().copied().fold(0.0, f64::max), last - first)
}

#[test]
fn features_stay_on_the_device_and_lanes_overlap() {
    for device in ["rtx4090", "a100"] {
        let ran = run(device, None);
        assert_eq!(ran.report["findings"], serde_json::json!([]), "{device}");
        let apart = ran.apart.expect("the run came to its end");
        assert!(apart < 4e-3, "{device}: labels are {apart} apart");
        let (longest, whole) = longest_lane(&ran.trace);
        eprintln!(
            "{device}: {whole} us, longest {longest}: {}; copies {:?} waits {}",
            whole / longest,
            copies_to_host(&ran.trace),
            ran.report["waits"]
        );
    }
}
