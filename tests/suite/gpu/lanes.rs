//! The pipeline on the virtual GPU: from images to labels, features on the device throughout.
//!
//! Each run is a process of its own, since a process has one driver with one configuration: the test runs itself.

use std::process::Command;

use muso::data::images::{ClassNames, ImageSet, Normalisation};
use muso::engine::{CpuEngine, Engine, Matrix, SumsSpec, Targets};
use muso::features::{Feed, Images, host};
use muso::gram::{GramBuilder, Route};
use muso::models::burn::tensor::activation::softmax;
use muso::models::burn::tensor::{Device, Tensor, TensorData};
use muso::models::{Architecture, NetworkConfig};
use muso::solve::{Params, Solver};
use serde_json::Value;

use super::device::{engine, virtual_library};
use crate::support::gaussian;

const CLASSES: usize = 3;

/// How much a run has to do.
struct Size {
    side: usize,
    width: usize,
    /// Not a whole number of batches, nor of row blocks.
    rows: usize,
    forgotten: usize,
}

/// Enough for every kind of batch and buffer to come up.
const SMALL: Size = Size {
    side: 8,
    width: 4,
    rows: 4096 + 2 * 512 + 300,
    forgotten: 600,
};

/// Long enough for its beginning and end not to count.
const LARGE: Size = Size {
    side: 16,
    width: 8,
    rows: 16 * 4096 + 300,
    forgotten: 4096,
};

fn feed(size: &Size, device: &Device) -> Feed {
    let pixels = gaussian(size.rows, size.side * size.side, 4);
    let pixels = pixels.as_slice().iter();
    let labels = (0..size.rows as i64).map(|i| i % CLASSES as i64);
    let set = ImageSet::new(
        [1, size.side, size.side],
        pixels.map(|x| (128.0 + 50.0 * x) as u8).collect(),
        labels.collect(),
        ClassNames::new(["a", "b", "c"]),
    )
    .unwrap();
    let normalisation = Normalisation {
        mean: vec![0.5],
        std: vec![0.2],
    };
    Feed::new(Images { set, normalisation }, device)
}

/// decode → copy → features → sums → solve → labels → what burn makes of the labels. Batches are cut in two after `cut`
/// rows: pieces that do not fit row blocks go through buffers on the device.
fn pipeline(size: &Size, cut: usize, engine: &impl Engine, device: &Device) -> Vec<f32> {
    let image = [1, size.side, size.side];
    let network = NetworkConfig::new(Architecture::SmallCnn, CLASSES, image).with_width(size.width);
    let spec = SumsSpec {
        features: network.features(),
        bias: true,
        targets: CLASSES,
    };
    let network = network.init(7, device).unwrap();
    let feed = feed(size, device);
    let rows: Vec<usize> = (0..size.rows).collect();
    let mut gram = GramBuilder::new(engine, Route::Primal, spec).unwrap();
    for passed in feed.pass(&network, &rows, None).unwrap() {
        let passed = passed.unwrap();
        let cut = cut.min(passed.rows.len());
        for (from, to) in [(0, cut), (cut, passed.rows.len())] {
            if from < to {
                let part = passed.features.clone().narrow(0, from, to - from);
                let labels = Targets::Classes(&passed.labels[from..to]);
                gram.update(&part, labels).unwrap();
            }
        }
    }
    let forgotten = feed.pass(&network, &rows[..size.forgotten], None).unwrap();
    let muso::gram::Gram::Primal(sums) = gram.finish().unwrap() else {
        unreachable!()
    };
    let solver = Solver::new(engine, sums.gram, Params::ridge(1.0)).unwrap();
    let (weights, _) = solver.solve(&sums.cross).unwrap();
    let labels: Vec<_> = forgotten
        .map(|passed| {
            let outputs = engine.project_tensor(&passed.unwrap().features, &weights);
            softmax(outputs.unwrap() * 3.0, 1)
        })
        .collect();
    labels.into_iter().flat_map(host).collect()
}

/// Everything that waits for something, one right after what it waits for: in a pipeline the host often happens to have
/// waited in between. Tensors that burn has just begun to write go into sums, in place and through buffers that are
/// used again, and a product goes back to burn.
fn touches(engine: &impl Engine, device: &Device) -> Vec<f32> {
    let cols = 40;
    let spec = SumsSpec {
        features: cols,
        bias: true,
        targets: 0,
    };
    let values = gaussian(700, cols, 9);
    let values: Vec<f32> = values.as_slice().iter().map(|&x| x as f32).collect();
    let x = Tensor::<2>::from_data(TensorData::new(values, [700, cols]), device);
    let mut gram = GramBuilder::new(engine, Route::Primal, spec).unwrap();
    for round in 0..6 {
        let y = x.clone() * (0.5 + f64::from(round));
        gram.update(&y.clone().narrow(0, 0, 512), Targets::None)
            .unwrap();
        gram.update(&y.narrow(0, 512, 188), Targets::None).unwrap();
    }
    let sums = gram.finish().unwrap();
    // Rows of the host go through the same buffers, and nothing else orders their turns.
    let mut gram = GramBuilder::new(engine, Route::Primal, spec).unwrap();
    let rows = gaussian(512, cols, 10);
    for _ in 0..6 {
        gram.push(rows.as_rows(), Targets::None).unwrap();
    }
    gram.finish().unwrap();
    let weights = Matrix::from_fn(cols + 1, 3, |i, j| sums.system()[(i, j)] / 1e4);
    let product = engine.project_tensor(&(x * 2.0), &weights).unwrap();
    let tripled = host(product * 3.0);
    // Waits for our stream: what nobody waits for might never run.
    engine.project(rows.as_rows(), &weights).unwrap();
    tripled
}

/// What the child processes do.
#[test]
#[ignore = "run by the other tests of this file"]
fn child() {
    let asked = std::env::var("MUSO_TEST_RUN").unwrap();
    muso::gpu::compiler::prepare().unwrap();
    if asked == "touches" {
        // To the end, whatever is found, so that both sides of a hazard run.
        let driver = engine().context().driver();
        driver.configure(r#"{"strict": false}"#).unwrap();
    }
    let device = Device::cuda(engine().context().ordinal());
    let (cpu, flex) = (CpuEngine::ambient(), Device::flex());
    let both = |size: &Size, cut: usize| {
        let there = pipeline(size, cut, engine(), &device);
        (pipeline(size, cut, &cpu, &flex), there)
    };
    let (here, there) = match asked.as_str() {
        "large" => both(&LARGE, 0),
        "small" => both(&SMALL, 0),
        "cut" => both(&SMALL, 190),
        _ => (touches(&cpu, &flex), touches(engine(), &device)),
    };
    let pairs = here.iter().zip(&there);
    let apart = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let file = std::env::var("MUSO_TEST_OUT").unwrap();
    std::fs::write(file, apart.to_string()).unwrap();
}

struct Ran {
    report: Value,
    trace: Value,
    /// How far the labels are from those on the processor; none if the run failed.
    apart: Option<f32>,
    /// On standard error, findings among it.
    said: String,
}

/// Runs the pipeline on a virtual device, with some waits for events left out.
fn run(asked: &str, device: &str, ignored: Option<&str>) -> Ran {
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
        .env("MUSO_TEST_RUN", asked)
        .output()
        .unwrap();
    // A run that fails writes neither.
    let read = |name: &str| -> Value {
        let text = std::fs::read(file(name)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    };
    Ran {
        report: read("report.json"),
        trace: read("trace.json"),
        apart: std::fs::read_to_string(file("apart"))
            .ok()
            .and_then(|text| text.parse().ok()),
        said: String::from_utf8_lossy(&output.stderr).into_owned(),
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

/// Every feature row is on the device, or else this many bytes of them would have come to the host.
fn check_run(size: &Size, ran: &Ran) {
    assert_eq!(
        ran.report["findings"],
        serde_json::json!([]),
        "{}",
        ran.said
    );
    let apart = ran.apart.expect("the run came to its end");
    assert!(apart < 4e-3, "labels are {apart} apart");
    let sums = 129 * 129 * 8;
    let copied: u64 = copies_to_host(&ran.trace).iter().sum();
    let labels = 4 * (size.forgotten * CLASSES) as u64;
    let features = 4 * 128 * size.rows as u64;
    assert!(
        copied >= sums + labels,
        "the copies are seen: {copied} bytes"
    );
    assert!(
        copied < 2 * sums + 2 * labels,
        "{copied} bytes came to the host"
    );
    assert!(features > 8 * (sums + labels), "features would be noticed");
}

#[test]
fn features_stay_on_the_device() {
    for asked in ["small", "cut"] {
        check_run(&SMALL, &run(asked, "rtx4090", None));
    }
}

/// Waits of our streams, by who waits for whom, are all needed: without any of them the virtual GPU finds a hazard.
#[test]
fn every_wait_is_needed() {
    let whole = run("touches", "rtx4090", None);
    assert_eq!(
        whole.report["findings"],
        serde_json::json!([]),
        "{}",
        whole.said
    );
    assert!(
        whole.apart.is_some_and(|apart| apart < 1e-3),
        "{:?}",
        whole.apart
    );
    let waits = whole.report["waits"].as_object().unwrap();
    // The engine's streams are made before burn's: 2 computes, 3 copies.
    let ours = |wait: &&String| {
        let (who, whom) = wait.split_once(" for ").unwrap();
        [who, whom]
            .iter()
            .any(|s| ["stream 2", "stream 3", "the context"].contains(s))
    };
    let ours: Vec<&String> = waits.keys().filter(ours).collect();
    let expected = [
        "stream 2 for stream 3",
        "stream 2 for the context",
        "stream 3 for stream 2",
        "stream 3 for the context",
        "the context for stream 2",
    ];
    assert_eq!(ours, expected);
    for wait in ours {
        let ran = run("touches", "rtx4090", Some(wait));
        assert!(
            ran.said.contains("StreamHazard"),
            "without {wait}: {}",
            ran.said
        );
    }
}

/// The goal is 1.1 of the longest lane. The RTX 4090 was at 1.07 and the A100 at 1.10 to 1.12, from run to run: which
/// thread submits first is not fixed, and the model has one host for all threads, which waits when any of them does.
#[test]
#[ignore = "takes minutes: the modelled makespan of a long run"]
fn lanes_overlap() {
    for device in ["rtx4090", "a100"] {
        let ran = run("large", device, None);
        check_run(&LARGE, &ran);
        let (longest, whole) = longest_lane(&ran.trace);
        let ratio = whole / longest;
        println!("{device}, virtual: {whole:.0} us, {ratio:.3} of the longest lane");
        assert!(ratio <= 1.15, "{device}: {ratio}");
    }
}
