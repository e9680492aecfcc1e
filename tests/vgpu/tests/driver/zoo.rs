//! Host programs that are wrong in one way each, as people write them, and their right twins.

use vgpu::driver::{abi::CUstream, context::*, memory::*, report::*, streams::*, transfer::*};

use crate::{
    device::{Device, take_json},
    ok,
};

const N: usize = 512;
const BYTES: usize = 4 * N;
/// Floats of a batch: large enough that its copy takes longer than queueing it.
const BATCH: usize = 1 << 16;

/// Two buffers, copies on one stream, kernels on another: the loop that overlaps a stream of batches.
fn double_buffered(device: &Device, wait_before_reuse: bool, wait_for_copy: bool) {
    let kernels = device.kernels();
    let (copies, compute) = (device.stream(), device.stream());
    let buffers = [device.alloc(BATCH), device.alloc(BATCH)];
    let sum = device.upload(&[0.0; BATCH]);
    let batches: Vec<_> = (0..5).map(|k| device.pinned(&[k as f32; BATCH])).collect();
    let mut used = [None, None];
    for (k, batch) in batches.iter().enumerate() {
        let (buffer, slot) = (buffers[k % 2], k % 2);
        if wait_before_reuse && let Some(event) = used[slot] {
            ok!(cuStreamWaitEvent(copies, event, 0));
        }
        ok!(cuMemcpyHtoDAsync_v2(
            buffer,
            batch.address,
            4 * BATCH,
            copies
        ));
        if wait_for_copy {
            device.order(copies, compute);
        }
        kernels.add(compute, sum, buffer, BATCH as u32);
        used[slot] = Some(device.recorded(compute));
    }
    ok!(cuCtxSynchronize());
    if wait_before_reuse && wait_for_copy {
        assert_eq!(device.download(sum, BATCH, compute), [10.0; BATCH]);
    }
}

#[test]
fn double_buffering_with_both_waits_is_clean_and_overlaps() {
    let device = Device::new();
    double_buffered(&device, true, true);
    device.expect(&[]);
    let trace = take_json(vgpuTrace());
    let lane = |tid: u64| -> Vec<(f64, f64)> {
        let events = trace["traceEvents"].as_array().unwrap();
        let of_lane = events
            .iter()
            .filter(|e| e["ph"] == "X" && e["pid"] == 2 && e["tid"] == tid);
        of_lane
            .map(|e| (e["ts"].as_f64().unwrap(), e["dur"].as_f64().unwrap()))
            .collect()
    };
    let (kernels, copies) = (lane(1), lane(2));
    let together = |k: &(f64, f64)| copies.iter().any(|c| c.0 < k.0 + k.1 && k.0 < c.0 + c.1);
    assert_eq!(kernels.len(), 5);
    assert!(
        kernels.iter().filter(|k| together(k)).count() >= 3,
        "{kernels:?} {copies:?}"
    );
}

#[test]
fn a_buffer_overwritten_while_the_kernel_reads_it() {
    let device = Device::new();
    double_buffered(&device, false, true);
    assert!(device.kinds().iter().all(|k| k == "stream-hazard"));
    let findings = device.report()["findings"].to_string();
    assert!(
        findings.contains("kernel `add`") && findings.contains("copy to the device"),
        "{findings}"
    );
}

#[test]
fn a_kernel_that_does_not_wait_for_its_batch() {
    let device = Device::new();
    double_buffered(&device, true, false);
    assert!(device.kinds().contains(&"stream-hazard".to_owned()));
}

/// One staging buffer for several copies.
fn staged(device: &Device, wait: bool) {
    let stream = device.stream();
    let mut staging = device.pinned(&[0.0; N]);
    let targets = [device.alloc(N), device.alloc(N), device.alloc(N)];
    for (k, &target) in targets.iter().enumerate() {
        staging.set(&[k as f32; N]);
        ok!(cuMemcpyHtoDAsync_v2(target, staging.address, BYTES, stream));
        if wait {
            ok!(cuStreamSynchronize(stream));
        }
    }
    let first = device.download(targets[0], N, stream);
    assert_eq!(first == [0.0; N], wait);
}

#[test]
fn a_staging_buffer_refilled_too_soon() {
    let device = Device::new();
    staged(&device, true);
    device.expect(&[]);
    staged(&device, false);
    assert_eq!(device.kinds(), ["host-hazard"]);
}

/// A result that the host looks at.
#[test]
fn a_result_read_before_it_is_there() {
    let device = Device::new();
    let kernels = device.kernels();
    let stream = device.stream();
    let x = device.upload(&[1.0; N]);
    let result = device.pinned(&[-1.0; N]);
    kernels.scale(stream, x, 3.0, N as u32);
    ok!(cuMemcpyDtoHAsync_v2(result.address, x, BYTES, stream));
    assert_eq!(
        result.get(),
        [-1.0; N],
        "the copy has not run: nothing waited for it"
    );
    ok!(cuStreamSynchronize(stream));
    assert_eq!(result.get(), [3.0; N]);
    device.expect(&[]);
}

/// Scratch memory from the pool, given back on the stream that did not use it.
fn scratch(device: &Device, give_back_in_order: bool) {
    let kernels = device.kernels();
    let (main, side) = (device.stream(), device.stream());
    let x = device.upload(&[1.0; N]);
    let scratch = device.alloc_on(main, N);
    ok!(cuMemcpyDtoDAsync_v2(scratch, x, BYTES, main));
    device.order(main, side);
    kernels.scale(side, scratch, 2.0, N as u32);
    if give_back_in_order {
        device.order(side, main);
    }
    ok!(cuMemFreeAsync(scratch, main));
}

#[test]
fn scratch_memory_given_back_on_the_wrong_stream() {
    let device = Device::new();
    scratch(&device, true);
    device.expect(&[]);
    scratch(&device, false);
    // SAFETY: no arguments.
    let _ = unsafe { cuCtxSynchronize() };
    let kinds = device.kinds();
    assert!(
        kinds
            .iter()
            .any(|k| k == "stream-hazard" || k == "use-after-free"),
        "{kinds:?}"
    );
}

/// Weights initialised on the default stream, used on one that does not wait for it.
#[test]
fn a_non_blocking_stream_that_counts_on_the_default_stream() {
    for (flags, kinds) in [(0u32, &[][..]), (1, &["stream-hazard"][..])] {
        let device = Device::new();
        let kernels = device.kernels();
        let mut stream = CUstream::default();
        ok!(cuStreamCreate((&mut stream).into(), flags));
        let x = device.upload(&[0.0; N]);
        ok!(cuMemsetD32_v2(x, 1f32.to_bits(), N));
        kernels.scale(stream, x, 2.0, N as u32);
        device.expect(kinds);
    }
}

/// A stream per layer, joined at the end, with one join forgotten.
fn fan_out(device: &Device, forgotten: Option<usize>) {
    let kernels = device.kernels();
    let main = device.stream();
    let parts: Vec<u64> = (0..4).map(|_| device.upload(&[1.0; N])).collect();
    let sum = device.upload(&[0.0; N]);
    for (k, &part) in parts.iter().enumerate() {
        let side = device.stream();
        device.order(main, side);
        kernels.scale(side, part, k as f32, N as u32);
        if forgotten != Some(k) {
            device.order(side, main);
        }
    }
    for &part in &parts {
        kernels.add(main, sum, part, N as u32);
    }
    let total = device.download(sum, N, main)[0];
    assert_eq!(total == 6.0, forgotten.is_none(), "{total}");
}

#[test]
fn one_of_several_streams_is_not_joined() {
    let device = Device::new();
    fan_out(&device, None);
    device.expect(&[]);
    fan_out(&device, Some(2));
    device.expect(&["stream-hazard"]);
    let finding = device.report()["findings"][0]["message"].to_string();
    assert!(
        finding.contains("kernel `add`") && finding.contains("kernel `scale`"),
        "{finding}"
    );
}

/// What a program that ends has left behind.
#[test]
fn what_is_never_given_back() {
    for (tidy, kinds) in [(true, &[][..]), (false, &["leak", "leak"][..])] {
        let device = Device::configured(r#"{"leaks": true}"#);
        let stream = device.stream();
        let x = device.alloc(N);
        if tidy {
            ok!(cuMemFree_v2(x));
            ok!(cuStreamDestroy_v2(stream));
        }
        ok!(cuDevicePrimaryCtxRelease_v2(0));
        assert_eq!(device.kinds(), kinds);
    }
}
