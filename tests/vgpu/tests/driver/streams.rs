//! Order between streams: each check with a program that has exactly its bug and one that must not trigger it.

use std::{
    ffi::c_void,
    sync::atomic::{AtomicU32, Ordering},
};

use vgpu::driver::{
    abi::{CUcontext, CUstream, In, Out},
    context::*,
    memory::*,
    streams::*,
    transfer::*,
};

use crate::{
    device::{Device, count},
    fails, ok,
};

const DEFAULT: CUstream = CUstream(0);
const PER_THREAD: CUstream = CUstream(2);
const N: usize = 256;
const BYTES: usize = 4 * N;

fn fill_on(stream: CUstream, address: u64, value: f32, floats: usize) {
    ok!(cuMemsetD32Async(address, value.to_bits(), floats, stream));
}

#[test]
fn work_waits_until_somebody_needs_it() {
    let device = Device::new();
    let (stream, other) = (device.stream(), device.stream());
    let counter = AtomicU32::new(0);
    let data = std::ptr::from_ref(&counter).cast_mut().cast::<c_void>();
    ok!(cuLaunchHostFunc(stream, Some(count), data));
    ok!(cuStreamSynchronize(other));
    assert_eq!(
        counter.load(Ordering::SeqCst),
        0,
        "another stream's end is nobody's business"
    );
    let event = device.recorded(stream);
    ok!(cuLaunchHostFunc(stream, Some(count), data));
    ok!(cuEventSynchronize(event));
    assert_eq!(
        counter.load(Ordering::SeqCst),
        1,
        "only what the event needs"
    );
    ok!(cuStreamQuery(stream));
    assert_eq!(counter.load(Ordering::SeqCst), 2);
    device.expect(&[]);
}

#[test]
fn a_missing_event_wait_is_found_and_gives_old_data() {
    let device = Device::new();
    let x = device.upload(&[1.0; N]);
    let (producer, consumer) = (device.stream(), device.stream());
    fill_on(producer, x, 2.0, N);
    let got = device.download(x, N, consumer);
    assert_eq!(got, [1.0; N], "nothing made the producer run");
    device.expect(&["stream-hazard"]);
    let finding = &device.report()["findings"][0];
    let message = finding["message"].as_str().unwrap();
    assert!(
        message.contains("fill of 1024 bytes on stream"),
        "{message}"
    );
    assert!(
        message.contains("copy to the host of 1024 bytes on stream"),
        "{message}"
    );
    assert!(
        message.contains(&format!("bytes [0, 1024) of the 1024 bytes at {x:#x}")),
        "{message}"
    );
}

#[test]
fn an_event_wait_orders_and_gives_new_data() {
    let device = Device::new();
    let x = device.upload(&[1.0; N]);
    let (producer, consumer) = (device.stream(), device.stream());
    fill_on(producer, x, 2.0, N);
    device.order(producer, consumer);
    assert_eq!(device.download(x, N, consumer), [2.0; N]);
    device.expect(&[]);
}

#[test]
fn an_event_recorded_before_the_work_does_not_order_it() {
    let device = Device::new();
    let x = device.upload(&[1.0; N]);
    let (producer, consumer) = (device.stream(), device.stream());
    let event = device.recorded(producer);
    fill_on(producer, x, 2.0, N);
    ok!(cuStreamWaitEvent(consumer, event, 0));
    fill_on(consumer, x, 3.0, N);
    device.expect(&["stream-hazard"]);
}

#[test]
fn an_event_recorded_on_another_stream_does_not_order_it() {
    let device = Device::new();
    let x = device.upload(&[1.0; N]);
    let (producer, bystander, consumer) = (device.stream(), device.stream(), device.stream());
    fill_on(producer, x, 2.0, N);
    device.order(bystander, consumer);
    fill_on(consumer, x, 3.0, N);
    device.expect(&["stream-hazard"]);
}

#[test]
fn order_passes_through_a_third_stream() {
    let device = Device::new();
    let x = device.upload(&[1.0; N]);
    let (first, second, third) = (device.stream(), device.stream(), device.stream());
    fill_on(first, x, 2.0, N);
    device.order(first, second);
    device.order(second, third);
    assert_eq!(device.download(x, N, third), [2.0; N]);
    device.expect(&[]);
}

/// The context that is current.
fn current() -> CUcontext {
    let mut context = CUcontext::default();
    ok!(cuCtxGetCurrent(Out::from(&mut context)));
    context
}

#[test]
fn a_wait_that_is_left_out_is_missed() {
    let device = Device::new();
    let x = device.upload(&[1.0; N]);
    let (producer, consumer) = (device.stream(), device.stream());
    fill_on(producer, x, 2.0, N);
    device.order(producer, consumer);
    let waits = device.report()["waits"].clone();
    let name = waits.as_object().unwrap().keys().next().unwrap().clone();
    assert_eq!(waits[&name], 1);
    crate::device::configure(&format!(r#"{{"ignore_waits": "{name}"}}"#));
    fill_on(producer, x, 3.0, N);
    device.order(producer, consumer);
    fill_on(consumer, x, 4.0, N);
    device.expect(&["stream-hazard"]);
}

#[test]
fn what_is_tolerated_is_counted_and_let_be() {
    for (kernels, kinds) in [("add", &[][..]), ("sub", &["uninitialised-global"])] {
        let device = Device::configured(&format!(
            r#"{{"tolerate": [{{"kind": "uninitialised-global", "kernels": "{kernels}"}}]}}"#
        ));
        let (stream, to, from) = (device.stream(), device.upload(&[1.0; N]), device.alloc(N));
        device.kernels().add(stream, to, from, N as u32);
        ok!(cuStreamSynchronize(stream));
        device.expect(kinds);
        let tolerated = device.report()["tolerated"].as_u64().unwrap();
        assert_eq!(tolerated > 0, kinds.is_empty());
    }
}

#[test]
fn an_event_of_the_context_follows_all_its_streams() {
    let device = Device::new();
    let (x, y) = (device.upload(&[1.0; N]), device.upload(&[1.0; N]));
    let (first, second, consumer) = (device.stream(), device.stream(), device.stream());
    let event = device.event();
    fill_on(first, x, 2.0, N);
    fill_on(second, y, 3.0, N);
    ok!(cuCtxRecordEvent(current(), event));
    ok!(cuStreamWaitEvent(consumer, event, 0));
    assert_eq!(device.download(x, N, consumer), [2.0; N]);
    assert_eq!(device.download(y, N, consumer), [3.0; N]);
    device.expect(&[]);
}

#[test]
fn what_comes_after_an_event_of_the_context_is_not_of_it() {
    let device = Device::new();
    let x = device.upload(&[1.0; N]);
    let (producer, consumer) = (device.stream(), device.stream());
    let event = device.event();
    ok!(cuCtxRecordEvent(current(), event));
    fill_on(producer, x, 2.0, N);
    ok!(cuStreamWaitEvent(consumer, event, 0));
    fill_on(consumer, x, 3.0, N);
    device.expect(&["stream-hazard"]);
}

#[test]
fn a_wait_of_the_context_holds_for_streams_old_and_new() {
    let device = Device::new();
    let x = device.upload(&[1.0; N]);
    let (producer, old) = (device.stream(), device.stream());
    fill_on(producer, x, 2.0, N);
    ok!(cuCtxWaitEvent(current(), device.recorded(producer)));
    let new = device.stream();
    fill_on(old, x, 3.0, N / 2);
    fill_on(new, x + BYTES as u64 / 2, 4.0, N / 2);
    device.expect(&[]);
}

#[test]
fn without_a_wait_of_the_context_there_is_a_hazard() {
    let device = Device::new();
    let x = device.upload(&[1.0; N]);
    let (producer, other) = (device.stream(), device.stream());
    fill_on(producer, x, 2.0, N);
    let _ = device.recorded(producer);
    fill_on(other, x, 3.0, N);
    device.expect(&["stream-hazard"]);
}

#[test]
fn a_wait_means_the_event_as_it_was_recorded_then() {
    let device = Device::new();
    let (x, y) = (device.upload(&[1.0; N]), device.upload(&[1.0; N]));
    let (producer, consumer) = (device.stream(), device.stream());
    fill_on(producer, x, 2.0, N);
    let event = device.recorded(producer);
    ok!(cuStreamWaitEvent(consumer, event, 0));
    fill_on(producer, y, 2.0, N);
    ok!(cuEventRecord(event, producer));
    assert_eq!(device.download(x, N, consumer), [2.0; N]);
    device.expect(&[]);
    device.download(y, N, consumer);
    device.expect(&[]);
    fill_on(producer, y, 3.0, N);
    fill_on(consumer, y, 4.0, N);
    device.expect(&["stream-hazard"]);
}

#[test]
fn waiting_for_an_event_that_was_never_recorded_orders_nothing() {
    let device = Device::new();
    let x = device.upload(&[1.0; N]);
    let (producer, consumer) = (device.stream(), device.stream());
    ok!(cuStreamWaitEvent(consumer, device.event(), 0));
    fill_on(producer, x, 2.0, N);
    fill_on(consumer, x, 3.0, N);
    device.expect(&["stream-hazard"]);
}

#[test]
fn the_host_orders_by_waiting() {
    let device = Device::new();
    let x = device.upload(&[1.0; N]);
    let (producer, consumer) = (device.stream(), device.stream());
    fill_on(producer, x, 2.0, N);
    ok!(cuStreamSynchronize(producer));
    assert_eq!(device.download(x, N, consumer), [2.0; N]);
    fill_on(producer, x, 3.0, N);
    ok!(cuEventSynchronize(device.recorded(producer)));
    assert_eq!(device.download(x, N, consumer), [3.0; N]);
    device.expect(&[]);
}

#[test]
fn disjoint_halves_and_two_readers_are_clean() {
    let device = Device::new();
    let x = device.upload(&[1.0; N]);
    let (left, right) = (device.stream(), device.stream());
    let half = BYTES / 2;
    fill_on(left, x, 2.0, N / 2);
    fill_on(right, x + half as u64, 3.0, N / 2);
    ok!(cuCtxSynchronize());
    let (a, b) = (device.pinned(&[0.0; N]), device.pinned(&[0.0; N]));
    ok!(cuMemcpyDtoHAsync_v2(a.address, x, BYTES, left));
    ok!(cuMemcpyDtoHAsync_v2(b.address, x, BYTES, right));
    ok!(cuCtxSynchronize());
    assert_eq!((a.get()[0], b.get()[N - 1]), (2.0, 3.0));
    device.expect(&[]);
}

#[test]
fn halves_that_overlap_by_one_element_are_not() {
    let device = Device::new();
    let x = device.upload(&[1.0; N]);
    let (left, right) = (device.stream(), device.stream());
    fill_on(left, x, 2.0, N / 2 + 1);
    fill_on(right, x + BYTES as u64 / 2, 3.0, N / 2);
    device.expect(&["stream-hazard"]);
    let message = device.report()["findings"][0]["message"].to_string();
    assert!(message.contains("bytes [512, 516)"), "{message}");
}

#[test]
fn the_default_stream_orders_blocking_streams_only() {
    let device = Device::new();
    let x = device.upload(&[1.0; N]);
    let (first, second) = (device.blocking_stream(), device.blocking_stream());
    fill_on(first, x, 2.0, N);
    ok!(cuMemsetD32_v2(x, 3f32.to_bits(), N));
    fill_on(second, x, 4.0, N);
    assert_eq!(device.download(x, N, DEFAULT), [4.0; N]);
    device.expect(&[]);

    let apart = device.stream();
    fill_on(apart, x, 5.0, N);
    ok!(cuMemsetD32_v2(x, 6f32.to_bits(), N));
    device.expect(&["stream-hazard"]);
}

#[test]
fn two_blocking_streams_are_not_ordered_by_themselves() {
    let device = Device::new();
    let x = device.upload(&[1.0; N]);
    let (first, second) = (device.blocking_stream(), device.blocking_stream());
    fill_on(first, x, 2.0, N);
    fill_on(second, x, 3.0, N);
    device.expect(&["stream-hazard"]);
}

#[test]
fn the_default_stream_of_the_thread_is_a_blocking_stream() {
    let device = Device::new();
    let x = device.upload(&[1.0; N]);
    fill_on(PER_THREAD, x, 2.0, N);
    fill_on(DEFAULT, x, 3.0, N);
    fill_on(PER_THREAD, x, 4.0, N);
    device.expect(&[]);
    fill_on(PER_THREAD, x, 5.0, N);
    fill_on(device.stream(), x, 6.0, N);
    device.expect(&["stream-hazard"]);
}

#[test]
fn ordinary_memory_is_taken_when_the_copy_is_queued() {
    let device = Device::new();
    let x = device.alloc(N);
    let stream = device.stream();
    let mut source = vec![1f32; N];
    ok!(cuMemcpyHtoDAsync_v2(
        x,
        source.as_ptr() as usize,
        BYTES,
        stream
    ));
    source.fill(2.0);
    assert_eq!(device.download(x, N, stream), [1.0; N]);
    device.expect(&[]);
}

#[test]
fn page_locked_memory_is_read_when_the_copy_runs() {
    let device = Device::new();
    let x = device.alloc(N);
    let stream = device.stream();
    let mut source = device.pinned(&[1.0; N]);
    ok!(cuMemcpyHtoDAsync_v2(x, source.address, BYTES, stream));
    source.set(&[2.0; N]);
    assert_eq!(device.download(x, N, stream), [2.0; N]);
    device.expect(&["host-hazard"]);
}

#[test]
fn page_locked_memory_may_change_after_waiting_or_by_the_device() {
    let device = Device::new();
    let x = device.upload(&[3.0; N]);
    let stream = device.stream();
    let mut buffer = device.pinned(&[1.0; N]);
    ok!(cuMemcpyHtoDAsync_v2(x, buffer.address, BYTES, stream));
    ok!(cuStreamSynchronize(stream));
    buffer.set(&[2.0; N]);
    ok!(cuMemcpyHtoDAsync_v2(x, buffer.address, BYTES, stream));
    ok!(cuStreamSynchronize(stream));
    // Down into the buffer and up again: the device itself changes what the second copy was queued with.
    let y = device.upload(&[4.0; N]);
    ok!(cuMemcpyDtoHAsync_v2(buffer.address, y, BYTES, stream));
    ok!(cuMemcpyHtoDAsync_v2(x, buffer.address, BYTES, stream));
    assert_eq!(device.download(x, N, stream), [4.0; N]);
    device.expect(&[]);
}

#[test]
fn one_page_locked_buffer_on_two_streams_needs_order() {
    let device = Device::new();
    let (x, y) = (device.upload(&[1.0; N]), device.upload(&[2.0; N]));
    let (down, up) = (device.stream(), device.stream());
    let buffer = device.pinned(&[0.0; N]);
    ok!(cuMemcpyDtoHAsync_v2(buffer.address, x, BYTES, down));
    device.order(down, up);
    ok!(cuMemcpyHtoDAsync_v2(y, buffer.address, BYTES, up));
    device.expect(&[]);
    ok!(cuMemcpyDtoHAsync_v2(buffer.address, x, BYTES, down));
    ok!(cuMemcpyHtoDAsync_v2(y, buffer.address, BYTES, up));
    device.expect(&["stream-hazard"]);
    assert!(
        device.report()["findings"][0]["message"]
            .to_string()
            .contains("page-locked")
    );
}

#[test]
fn a_plain_copy_to_the_device_has_not_arrived_for_other_streams() {
    let device = Device::new();
    let x = device.upload(&[1.0; N]);
    let source = [2f32; N];
    ok!(cuMemcpyHtoD_v2(x, source.as_ptr() as usize, BYTES));
    device.download(x, N, device.stream());
    device.expect(&["stream-hazard"]);
}

#[test]
fn stream_ordered_memory_is_used_between_its_two_ends() {
    let device = Device::new();
    let (maker, user) = (device.stream(), device.stream());
    let x = device.alloc_on(maker, N);
    device.order(maker, user);
    fill_on(user, x, 1.0, N);
    device.order(user, maker);
    ok!(cuMemFreeAsync(x, maker));
    device.expect(&[]);
    fails!(INVALID_VALUE, cuMemFreeAsync(x, maker));
}

#[test]
fn stream_ordered_memory_used_too_early_or_freed_too_early_is_found() {
    let device = Device::new();
    let (maker, user) = (device.stream(), device.stream());
    let early = device.alloc_on(maker, N);
    fill_on(user, early, 1.0, N);
    device.expect(&["stream-hazard"]);
    let late = device.alloc_on(maker, N);
    device.order(maker, user);
    fill_on(user, late, 1.0, N);
    ok!(cuMemFreeAsync(late, maker));
    device.expect(&["stream-hazard", "stream-hazard"]);
    let message = device.report()["findings"][1]["message"].to_string();
    assert!(message.contains("cuMemFreeAsync"), "{message}");
}

#[test]
fn freeing_at_once_waits_for_plain_memory_but_not_for_stream_ordered_memory() {
    let device = Device::new();
    let stream = device.stream();
    let plain = device.alloc(N);
    fill_on(stream, plain, 1.0, N);
    ok!(cuMemFree_v2(plain));
    device.expect(&[]);
    let pooled = device.alloc_on(stream, N);
    fill_on(stream, pooled, 1.0, N);
    ok!(cuMemFree_v2(pooled));
    device.expect(&["stream-hazard"]);
    let waited = device.alloc_on(stream, N);
    fill_on(stream, waited, 1.0, N);
    ok!(cuStreamSynchronize(stream));
    ok!(cuMemFree_v2(waited));
    device.expect(&["stream-hazard"]);
}

#[test]
fn page_locked_memory_is_not_given_back_in_flight() {
    let device = Device::new();
    let x = device.alloc(N);
    let stream = device.stream();
    let waited = device.pinned(&[1.0; N]);
    ok!(cuMemcpyHtoDAsync_v2(x, waited.address, BYTES, stream));
    ok!(cuStreamSynchronize(stream));
    ok!(cuMemFreeHost(waited.address));
    device.expect(&[]);
    let hurried = device.pinned(&[1.0; N]);
    ok!(cuMemcpyHtoDAsync_v2(x, hurried.address, BYTES, stream));
    ok!(cuMemFreeHost(hurried.address));
    device.expect(&["host-hazard"]);
}

#[test]
fn rows_are_checked_one_by_one() {
    use vgpu::driver::abi::CUDA_MEMCPY2D;
    let device = Device::new();
    let x = device.upload(&[1.0; N]);
    let (left, right) = (device.stream(), device.stream());
    // The left and the right half of every row of 16 floats.
    let half = |column: usize, host: usize| CUDA_MEMCPY2D {
        srcMemoryType: 1,
        srcHost: host,
        srcPitch: 32,
        dstXInBytes: column,
        dstMemoryType: 2,
        dstDevice: x,
        dstPitch: 64,
        WidthInBytes: 32,
        Height: 16,
        ..CUDA_MEMCPY2D::default()
    };
    let (a, b) = (device.pinned(&[2.0; N / 2]), device.pinned(&[3.0; N / 2]));
    ok!(cuMemcpy2DAsync_v2(In::from(&half(0, a.address)), left));
    ok!(cuMemcpy2DAsync_v2(In::from(&half(32, b.address)), right));
    device.expect(&[]);
    let got = device.download(x, N, left);
    assert!(
        got.chunks(16)
            .all(|row| row[..8] == [2.0; 8] && row[8..] == [3.0; 8])
    );
    ok!(cuMemcpy2DAsync_v2(In::from(&half(0, a.address)), left));
    ok!(cuMemcpy2DAsync_v2(In::from(&half(28, b.address)), right));
    device.expect(&["stream-hazard"]);
    fails!(
        INVALID_VALUE,
        cuMemcpy2DAsync_v2(In::from(&half(64, a.address)), left)
    );
}

#[test]
fn host_functions_run_in_order_and_may_not_call_back() {
    extern "C" fn calls_back(data: *mut c_void) {
        // SAFETY: the test passes a counter that outlives the work.
        let code = unsafe { &*data.cast::<AtomicU32>() };
        // SAFETY: no arguments.
        let result = unsafe { cuCtxSynchronize() };
        code.store(result.0, Ordering::SeqCst);
    }
    let device = Device::new();
    let stream = device.stream();
    let code = AtomicU32::new(0);
    let data = std::ptr::from_ref(&code).cast_mut().cast::<c_void>();
    ok!(cuLaunchHostFunc(stream, Some(calls_back), data));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(
        code.load(Ordering::SeqCst),
        vgpu::driver::abi::CUresult::NOT_PERMITTED.0
    );
    fails!(INVALID_VALUE, cuLaunchHostFunc(stream, None, data));
}

#[test]
fn threads_may_wait_for_a_stream_whose_host_function_is_running() {
    extern "C" fn slow(data: *mut c_void) {
        std::thread::sleep(std::time::Duration::from_millis(30));
        count(data);
    }
    let device = Device::new();
    let stream = device.stream();
    let counter = AtomicU32::new(0);
    for _ in 0..4 {
        let data = std::ptr::from_ref(&counter).cast_mut().cast::<c_void>();
        ok!(cuLaunchHostFunc(stream, Some(slow), data));
    }
    let context = device.context;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                ok!(cuCtxSetCurrent(context));
                ok!(cuStreamSynchronize(stream));
                assert_eq!(counter.load(Ordering::SeqCst), 4);
            });
        }
    });
}

#[test]
fn a_destroyed_stream_still_finishes_its_work() {
    let device = Device::new();
    let x = device.upload(&[1.0; N]);
    let stream = device.stream();
    fill_on(stream, x, 2.0, N);
    let event = device.recorded(stream);
    ok!(cuStreamDestroy_v2(stream));
    fails!(INVALID_HANDLE, cuStreamSynchronize(stream));
    ok!(cuEventSynchronize(event));
    assert_eq!(device.download(x, N, DEFAULT), [2.0; N]);
    device.expect(&[]);
}

#[test]
fn elapsed_time_is_modelled_and_needs_both_ends() {
    let device = Device::new();
    let stream = device.stream();
    let bytes = 64 << 20;
    let mut x = 0;
    ok!(cuMemAlloc_v2(Out::from(&mut x), bytes));
    let source = device.pinned(&vec![0.0; bytes / 4]);
    let start = device.recorded(stream);
    ok!(cuMemcpyHtoDAsync_v2(x, source.address, bytes, stream));
    let end = device.recorded(stream);
    let mut ms = 0f32;
    fails!(
        NOT_READY,
        cuEventElapsedTime(Out::from(&mut ms), start, end)
    );
    ok!(cuEventSynchronize(end));
    ok!(cuEventElapsedTime(Out::from(&mut ms), start, end));
    let expected = bytes as f32 / 25e6 + 0.006;
    assert!((ms / expected - 1.0).abs() < 0.01, "{ms} ms for {expected}");
    fails!(
        INVALID_HANDLE,
        cuEventElapsedTime(Out::from(&mut ms), start, device.event())
    );
}

#[test]
fn threads_with_streams_of_their_own_do_not_disturb_each_other() {
    let device = Device::new();
    let kernels = device.kernels();
    std::thread::scope(|scope| {
        for k in 0..4 {
            let (device, kernels) = (&device, &kernels);
            scope.spawn(move || {
                ok!(cuCtxSetCurrent(device.context));
                let stream = device.stream();
                let x = device.alloc_on(stream, N);
                fill_on(stream, x, 1.0, N);
                for _ in 0..10 {
                    kernels.scale(stream, x, k as f32, N as u32);
                }
                let expected = (k as f32).powi(10);
                assert_eq!(device.download(x, N, stream), [expected; N]);
                ok!(cuMemFreeAsync(x, stream));
                ok!(cuStreamDestroy_v2(stream));
            });
        }
    });
    device.expect(&[]);
}
