//! `--device cuda` from end to end on the virtual GPU: the CPU's results, and every way in which a device can fail.

use std::process::Output;

use super::{
    Case, FEATURES, HEAD, IDS, JSON, LABELS_OUT, OUT, Run, one_line, read_head, read_tensor,
};
use crate::gpu::virtual_library;
use crate::support::relative;

/// Runs a command on the virtual GPU with settings of it.
fn on_virtual(run: &Run, settings: &[(&str, &str)]) -> Output {
    let mut command = run.command();
    command.env("MUSO_VGPU", virtual_library());
    command.env("VGPU_STRICT", "1").env("VGPU_LEAKS", "1");
    command.envs(settings.iter().copied());
    command.output().unwrap()
}

/// What a run said that ended with this code, in one line and without findings.
fn fails(output: &Output, code: i32, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    for word in words {
        assert!(said.contains(word), "no {word:?} in: {said}");
    }
}

#[test]
fn a_head_forgets_the_same_on_the_gpu() {
    for source in ["labels", "head"] {
        let case = Case::small();
        let run = case.ridge().set("--from", source);
        let outputs = || {
            let labels = read_tensor(&case.path(LABELS_OUT), "targets").1;
            (read_head(&case.path(OUT), true), labels)
        };
        run.succeeds();
        let (head, labels) = outputs();
        let output = on_virtual(&run.clone().set("--device", "cuda"), &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}");
        let (same_head, same_labels) = outputs();
        assert!(relative(&same_head, &head) < 1e-12, "{source}");
        assert!(relative(&same_labels, &labels) < 1e-12, "{source}");
    }
}

/// Shards may come from different devices.
#[test]
fn sums_of_the_gpu_merge_with_those_of_the_processor() {
    let case = Case::small();
    let gram = |out: &str, rows: &str| {
        Run::new(&case, &format!("gram {FEATURES}"))
            .set("--head", HEAD)
            .set("--forget", IDS)
            .set("--rows", rows)
            .set("--out", out)
    };
    gram("a", "..5").succeeds();
    gram("b", "5..").succeeds();
    let merge = |out: &str| Run::new(&case, "merge a b").set("--out", out).succeeds();
    merge("cpu");
    let output = on_virtual(&gram("b", "5..").set("--device", "cuda"), &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    merge("both");
    for name in ["retained.gram", "retained.cross", "forgotten.gram"] {
        let sums = |file: &str| read_tensor(&case.path(file), name).1;
        assert!(relative(&sums("both"), &sums("cpu")) < 1e-14, "{name}");
    }
}

/// Exact sums, and the heads solved from them, have the same bytes on either device, and so have shards of both.
#[test]
fn exact_sums_and_heads_are_those_of_the_processor() {
    let case = Case::small();
    let bytes = |run: Run, device: &str, out: &str| {
        let run = run.set("--exact", 20).set("--grid", 2).set("--out", out);
        let output = on_virtual(&run.set("--device", device), &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}");
        std::fs::read(case.path(out)).unwrap()
    };
    let gram = |rows: &str| {
        Run::new(&case, &format!("gram {FEATURES}"))
            .set("--head", HEAD)
            .set("--forget", IDS)
            .set("--rows", rows)
    };
    let one = bytes(gram("0.."), "cpu", "one");
    assert!(bytes(gram("0.."), "cuda", "other") == one, "sums");
    bytes(gram("..5"), "cuda", "a");
    bytes(gram("5.."), "cpu", "b");
    let merge = |from: &str, out: &str| {
        Run::new(&case, &format!("merge {from}"))
            .set("--out", out)
            .succeeds();
        std::fs::read(case.path(out)).unwrap()
    };
    let both = merge("a b", "both");
    bytes(gram("..5"), "cpu", "a");
    bytes(gram("5.."), "cuda", "b");
    assert!(merge("b a", "other") == both, "shards");
    let head = || case.ridge().without("--labels-out").without("--from");
    let on_cpu = bytes(head(), "cpu", OUT);
    assert!(bytes(head(), "cuda", OUT) == on_cpu, "heads");
}

#[test]
fn a_missing_or_unfit_device_is_one_line() {
    let case = Case::small();
    let run = case.ridge().set("--device", "cuda");
    let before = case.snapshot();
    let gone = on_virtual(&run, &[("MUSO_VGPU", "nowhere/libvgpu.so")]);
    one_line(
        &gone,
        &["device cuda is not available", "nowhere/libvgpu.so"],
    );
    let none = on_virtual(&run, &[("VGPU_DEVICES", "0")]);
    one_line(&none, &["device cuda is not available", "no CUDA device"]);
    let old = on_virtual(&run, &[("VGPU_DRIVER_VERSION", "12040")]);
    one_line(&old, &["CUDA 12.4", "needs 13.0", "update the driver"]);
    let other = on_virtual(&run.set("--device", "cuda:3"), &[]);
    one_line(&other, &["device cuda:3", "one device, cuda:0"]);
    assert_eq!(case.snapshot(), before);
}

#[test]
fn a_failure_on_the_device_is_one_line_and_leaks_nothing() {
    let case = Case::small();
    let run = case.ridge().set("--device", "cuda");
    let before = case.snapshot();
    let full = on_virtual(&run, &[("VGPU_MEMORY", "4096")]);
    fails(&full, 1, &["cuda:0 is out of memory", "of 4096 are free"]);
    let refused = on_virtual(&run, &[("VGPU_FAIL_LAUNCH", "gram_syrk_f32_fma")]);
    fails(
        &refused,
        1,
        &["kernel gram_syrk_f32_fma failed", "blocks of"],
    );
    // A device that has failed takes nothing back, so that what it had counts as lost.
    let settings = [
        ("VGPU_FAULT_KERNEL", "cholesky_diagonal_f64"),
        ("VGPU_LEAKS", "0"),
    ];
    let fault = on_virtual(&run, &settings);
    fails(
        &fault,
        1,
        &["kernel ", "cholesky_diagonal_f64", "5x5", "threads"],
    );
    assert_eq!(case.snapshot(), before);
    // An allocation that fails is tried again when cached memory has been given back.
    for n in ["1", "2", "5"] {
        let output = on_virtual(&run, &[("VGPU_FAIL_ALLOCATION", n)]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{n}: {said}");
    }
}

#[test]
fn doctor_lists_the_kernels_and_the_device() {
    let case = Case::empty();
    let output = on_virtual(&Run::new(&case, "doctor").set("--json", JSON), &[]);
    let said = String::from_utf8(output.stdout).unwrap();
    for word in [
        "cuda:0",
        "(virtual)",
        "gram_syrk_f32_fma",
        "trisolve_block_f64",
    ] {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
    let cuda = &case.json()["devices"][1];
    assert_eq!(
        (&cuda["available"], &cuda["virtual"]),
        (&true.into(), &true.into())
    );
    for kernel in cuda["kernels"].as_array().unwrap() {
        assert_eq!(kernel["spill_bytes"], 0, "{kernel}");
        assert!(kernel["occupancy"].as_f64().unwrap() > 0.0, "{kernel}");
        assert!(kernel["registers"].as_u64().unwrap() > 0, "{kernel}");
    }
}

#[test]
fn bench_gives_modelled_times_as_such() {
    let case = Case::empty();
    let run = Run::new(&case, "bench cholesky")
        .set("--device", "cuda")
        .set("--json", JSON);
    let output = on_virtual(&run, &[]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        said.contains("virtual time") && said.contains("not measured"),
        "{said}"
    );
    let json = case.json();
    assert_eq!(
        (&json["kind"], &json["virtual"]),
        (&"bench".into(), &true.into())
    );
    for m in json["measurements"].as_array().unwrap() {
        assert!(m["virtual_seconds"].as_f64().unwrap() > 0.0 && m.get("seconds").is_none());
        let share = m["share_of_limit"].as_f64().unwrap();
        assert!(share > 0.0 && share <= 1.0, "{m}");
    }
    // What only the processor is measured by.
    for operation in ["leverage", "scaling"] {
        let run = Run::new(&case, &format!("bench {operation}")).set("--device", "cuda");
        one_line(&on_virtual(&run, &[]), &[operation]);
    }
}

/// The networks of a comparison would be trained on the processor, whatever was asked for.
#[test]
#[cfg(feature = "nn")]
fn comparisons_refuse_the_gpu() {
    let case = Case::empty();
    for command in [
        "compare",
        "demo --nn",
        "demo --nn --tune ssd",
        "reproduce table2",
    ] {
        let run = Run::new(&case, command).set("--device", "cuda");
        one_line(&on_virtual(&run, &[]), &["cuda:0", "on the processor only"]);
    }
    assert!(case.snapshot().is_empty());
}
