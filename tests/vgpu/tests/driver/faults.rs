//! What happens when the device fails, by itself or because a test asked for it.

use vgpu::driver::{
    abi::{CUcontext, CUresult, CUstream, In, Out},
    context::*,
    devices::*,
    memory::*,
    modules::*,
    streams::*,
    transfer::*,
};

use crate::{
    device::{Device, addr, alone, bytes_of, configure, launch},
    fails, ok,
};

const N: usize = 64;

#[test]
fn a_stopped_device_says_so_until_it_is_reset() {
    let device = Device::new();
    let kernels = device.kernels();
    let stream = device.stream();
    let x = device.upload(&[1.0; N]);
    kernels.reach(stream, x);
    fails!(ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    fails!(ILLEGAL_ADDRESS, cuCtxSynchronize());
    fails!(ILLEGAL_ADDRESS, cuMemAlloc_v2(Out::from(&mut 0), 64));
    fails!(
        ILLEGAL_ADDRESS,
        launch(kernels.reach, 1, 1, stream, &[addr(&x)])
    );
    fails!(ILLEGAL_ADDRESS, cuMemFree_v2(x));
    fails!(
        ILLEGAL_ADDRESS,
        cuEventCreate(Out::from(&mut Default::default()), 0)
    );
    assert_eq!(device.kinds(), ["out-of-bounds"]);
    let finding = &device.report()["findings"][0];
    assert_eq!(finding["site"]["kernel"], "reach");
    assert!(finding["site"]["ptx_line"].as_u64().unwrap() > 0);
    ok!(cuDevicePrimaryCtxReset_v2(0));
    let y = device.upload(&[1.0; N]);
    assert_eq!(device.download(y, N, CUstream(0)), [1.0; N]);
    fails!(INVALID_VALUE, cuMemFree_v2(x));
}

#[test]
fn work_behind_a_fault_does_not_run() {
    let device = Device::configured(r#"{"fault_kernel": "scale"}"#);
    let kernels = device.kernels();
    let (stream, other) = (device.stream(), device.stream());
    let x = device.upload(&[1.0; N]);
    let result = device.pinned(&[0.0; N]);
    kernels.scale(stream, x, 2.0, N as u32);
    ok!(cuMemcpyDtoHAsync_v2(result.address, x, 4 * N, stream));
    ok!(cuStreamSynchronize(other));
    fails!(LAUNCH_FAILED, cuStreamSynchronize(stream));
    assert_eq!(result.get(), [0.0; N]);
    fails!(LAUNCH_FAILED, cuStreamQuery(other));
}

#[test]
fn memory_runs_out_at_the_capacity_and_queued_frees_make_room() {
    let device = Device::configured(r#"{"memory": 1048576}"#);
    let (mut free, mut total) = (0, 0);
    ok!(cuMemGetInfo_v2(Out::from(&mut free), Out::from(&mut total)));
    assert_eq!((free, total), (1 << 20, 1 << 20));
    let mut x = 0;
    fails!(
        OUT_OF_MEMORY,
        cuMemAlloc_v2(Out::from(&mut x), (1 << 20) + 1)
    );
    let stream = device.stream();
    for _ in 0..5 {
        let half = device.alloc_on(stream, 150_000);
        ok!(cuMemFreeAsync(half, stream));
    }
    device.expect(&[]);
}

#[test]
fn a_chosen_allocation_fails_and_only_that() {
    let device = Device::configured(r#"{"fail_allocation": 2, "fail_host_allocation": 1}"#);
    device.alloc(N);
    fails!(OUT_OF_MEMORY, cuMemAlloc_v2(Out::from(&mut 0), 64));
    device.alloc(N);
    fails!(OUT_OF_MEMORY, cuMemHostAlloc(Out::from(&mut 0), 64, 0));
    device.pinned(&[0.0; N]);
}

#[test]
fn a_chosen_launch_is_refused() {
    let device = Device::configured(r#"{"fail_launch": "scale"}"#);
    let kernels = device.kernels();
    let (x, a, n) = (device.upload(&[1.0; N]), 2f32, N as u32);
    let pointers = [addr(&x), addr(&a), addr(&n)];
    fails!(
        LAUNCH_OUT_OF_RESOURCES,
        launch(kernels.scale, 1, 64, CUstream(0), &pointers)
    );
    kernels.add(CUstream(0), x, x, n);
    ok!(cuCtxSynchronize());
}

#[test]
fn there_may_be_no_device_or_an_old_driver() {
    let _alone = alone();
    configure(r#"{"devices": 0, "driver_version": 11040}"#);
    fails!(NO_DEVICE, cuInit(0));
    let mut version = 0;
    ok!(cuDriverGetVersion(Out::from(&mut version)));
    assert_eq!(version, 11040);
    fails!(NOT_INITIALIZED, cuDeviceGetCount(Out::from(&mut 0)));
    fails!(
        NOT_INITIALIZED,
        cuDevicePrimaryCtxRetain(Out::from(&mut CUcontext::default()), 0)
    );
}

#[test]
fn a_strict_device_fails_where_the_program_waits() {
    let device = Device::configured(r#"{"strict": true}"#);
    let x = device.upload(&[1.0; N]);
    let (a, b) = (device.stream(), device.stream());
    ok!(cuMemsetD32Async(x, 0, N, a));
    ok!(cuStreamSynchronize(a));
    ok!(cuMemsetD32Async(x, 1, N, a));
    ok!(cuMemsetD32Async(x, 2, N, b));
    ok!(cuStreamSynchronize(a));
    fails!(LAUNCH_FAILED, cuStreamSynchronize(b));
    ok!(cuStreamSynchronize(b));
}

#[test]
fn uninitialised_memory_that_reaches_the_host_is_found() {
    let device = Device::new();
    let x = device.alloc(N);
    device.download(x, N, CUstream(0));
    device.expect(&["uninitialised-global"]);
}

#[test]
fn copies_out_of_bounds_or_after_free_are_refused_and_found() {
    let device = Device::new();
    let x = device.upload(&[1.0; N]);
    let mut host = [0f32; 2 * N];
    fails!(
        INVALID_VALUE,
        cuMemcpyDtoH_v2(host.as_mut_ptr() as usize, x, 8 * N)
    );
    fails!(INVALID_VALUE, cuMemsetD8_v2(x + 1, 0, 4 * N));
    ok!(cuMemFree_v2(x));
    fails!(
        INVALID_VALUE,
        cuMemcpyDtoH_v2(host.as_mut_ptr() as usize, x, 4 * N)
    );
    fails!(INVALID_VALUE, cuMemcpyHtoD_v2(0, host.as_ptr() as usize, 4));
    let kinds = device.kinds();
    assert!(
        kinds.contains(&"out-of-bounds".into()) && kinds.contains(&"use-after-free".into()),
        "{kinds:?}"
    );
    fails!(INVALID_VALUE, cuMemFree_v2(x));
}

#[test]
fn ptx_that_cannot_be_run_is_refused_with_its_line() {
    let device = Device::new();
    let text = c".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k()\n{\n  frobnicate.u32 %r1;\n}\n";
    let mut log = [0u8; 256];
    let options = [5u32, 6];
    let values = [log.as_mut_ptr() as usize, log.len()];
    let mut module = Default::default();
    fails!(
        INVALID_PTX,
        cuModuleLoadDataEx(
            Out::from(&mut module),
            bytes_of(text),
            2,
            In::from(&options[..]),
            In::from(&values[..])
        )
    );
    let message = String::from_utf8_lossy(&log);
    assert!(
        message.contains("line 6") && message.contains("frobnicate"),
        "{message}"
    );
    let elf = b"\x7fELF\x02\x01\x01\0";
    fails!(
        NO_BINARY_FOR_GPU,
        cuModuleLoadData(Out::from(&mut module), In::from(&elf[..]))
    );
    fails!(
        INVALID_VALUE,
        cuModuleLoadData(Out::from(&mut module), In::null())
    );
    device.expect(&[]);
}

#[test]
fn garbage_handles_are_refused() {
    let device = Device::new();
    for garbage in [
        3usize,
        0xdead_beef,
        usize::MAX,
        device.context.0,
        device.event().0,
    ] {
        fails!(INVALID_HANDLE, cuStreamSynchronize(CUstream(garbage)));
    }
    use vgpu::driver::abi::{CUevent, CUfunction, CUmodule};
    fails!(
        INVALID_HANDLE,
        cuEventSynchronize(CUevent(device.stream().0))
    );
    fails!(INVALID_HANDLE, cuModuleUnload(CUmodule(1 << 40)));
    fails!(
        INVALID_HANDLE,
        launch(CUfunction(0), 1, 1, CUstream(0), &[])
    );
    fails!(INVALID_CONTEXT, cuCtxSetCurrent(CUcontext(77)));
    fails!(INVALID_VALUE, cuMemAlloc_v2(Out::null(), 64));
    fails!(INVALID_VALUE, cuMemAlloc_v2(Out::from(&mut 0), 0));
    fails!(INVALID_DEVICE, cuDeviceGet(Out::from(&mut 0), 1));
    assert_eq!(CUresult::INVALID_HANDLE.0, 400);
    ok!(cuCtxSetCurrent(CUcontext(0)));
    fails!(INVALID_CONTEXT, cuCtxSynchronize());
}
