//! Single calls: what can be asked, loaded and launched.

use std::ffi::{CStr, c_char};

use serde_json::Value;
use vgpu::driver::{
    abi::{CUcontext, CUfunction, CUlaunchAttribute, CUlaunchConfig, CUresult, CUstream, In, Out},
    context::*,
    devices::*,
    launch::*,
    memory::*,
    modules::*,
    report::*,
    transfer::*,
};

use crate::{
    device::{Device, addr, launch, take_json},
    fails, ok,
};

const N: usize = 1000;

#[test]
fn a_kernel_runs_and_is_counted() {
    let device = Device::configured(r#"{"device": "a100", "registers": {"scale": 40}}"#);
    let kernels = device.kernels();
    let values: Vec<f32> = (0..N).map(|k| k as f32).collect();
    let x = device.upload(&values);
    kernels.scale(CUstream(0), x, 0.5, N as u32);
    let got = device.download(x, N, CUstream(0));
    assert!(got.iter().zip(&values).all(|(g, v)| *g == v * 0.5));
    device.expect(&[]);
    let report = device.report();
    assert_eq!(report["device"]["name"], "NVIDIA A100-SXM4-80GB (virtual)");
    let record = &report["launches"][0];
    assert_eq!(record["kernel"], "scale");
    assert_eq!(record["grid"], serde_json::json!([8, 1, 1]));
    assert_eq!(record["registers"], 40);
    assert_eq!(record["occupancy"]["blocks"], 12);
    assert_eq!(record["counters"]["flops_f32"], N);
    // 1000 floats of 4 bytes in sectors of 32.
    assert_eq!(record["counters"]["unique_load_sectors"], 125);
    for key in ["rtx4090", "a100", "h100"] {
        assert!(
            record["virtual_time"][key]["microseconds"]
                .as_f64()
                .unwrap()
                > 0.0
        );
    }
    assert_eq!(report["kernels"]["scale"]["launches"], 1);
    let trace = take_json(vgpuTrace());
    let events = trace["traceEvents"].as_array().unwrap();
    assert!(
        events
            .iter()
            .any(|e| e["name"].as_str().unwrap().contains("scale"))
    );
}

#[test]
fn arguments_come_as_pointers_or_packed_and_are_taken_at_the_call() {
    let device = Device::new();
    let kernels = device.kernels();
    let x = device.upload(&[1.0; 4]);
    let mut packed = [0u8; 16];
    packed[..8].copy_from_slice(&x.to_le_bytes());
    packed[8..12].copy_from_slice(&3f32.to_le_bytes());
    packed[12..].copy_from_slice(&4u32.to_le_bytes());
    let mut size = packed.len();
    let extra = [1, packed.as_ptr() as usize, 2, addr(&size), 0];
    let launch_packed = || {
        let (stream, extra) = (CUstream(0), In::from(&extra[..]));
        // SAFETY: the packed buffer and its size live on.
        unsafe {
            cuLaunchKernel(
                kernels.scale,
                1,
                1,
                1,
                32,
                1,
                1,
                0,
                stream,
                In::null(),
                extra,
            )
        }
    };
    assert_eq!(launch_packed(), CUresult::SUCCESS);
    packed.fill(0);
    assert_eq!(device.download(x, 4, CUstream(0)), [3.0; 4]);
    size = 12;
    assert_eq!(addr(&size), extra[3]);
    assert_eq!(
        launch_packed(),
        CUresult::INVALID_VALUE,
        "too short for its parameters"
    );
    fails!(
        INVALID_VALUE,
        launch(kernels.scale, 1, 32, CUstream(0), &[0, 0, 0])
    );
}

#[test]
fn geometry_that_the_device_cannot_run_is_refused() {
    let device = Device::configured(r#"{"registers": {"add": 255}}"#);
    let kernels = device.kernels();
    let (x, a, n) = (device.upload(&[1.0; 4]), 1f32, 4u32);
    let scale = [addr(&x), addr(&a), addr(&n)];
    fails!(
        INVALID_VALUE,
        launch(kernels.scale, 1, 1025, CUstream(0), &scale)
    );
    fails!(
        INVALID_VALUE,
        launch(kernels.scale, 0, 32, CUstream(0), &scale)
    );
    let add = [addr(&x), addr(&x), addr(&n)];
    fails!(
        LAUNCH_OUT_OF_RESOURCES,
        launch(kernels.add, 1, 512, CUstream(0), &add)
    );
    let with_shared = |bytes: u32| {
        let (stream, pointers) = (CUstream(0), In::from(&scale[..]));
        // SAFETY: the arguments live on.
        unsafe {
            cuLaunchKernel(
                kernels.scale,
                1,
                1,
                1,
                32,
                1,
                1,
                bytes,
                stream,
                pointers,
                In::null(),
            )
        }
    };
    assert_eq!(with_shared(48 * 1024), CUresult::SUCCESS);
    assert_eq!(
        with_shared(64 * 1024),
        CUresult::INVALID_VALUE,
        "without opting in"
    );
    ok!(cuFuncSetAttribute(kernels.scale, 8, 64 * 1024));
    assert_eq!(with_shared(64 * 1024), CUresult::SUCCESS);
    fails!(
        INVALID_VALUE,
        cuFuncSetAttribute(kernels.scale, 8, 100 * 1024)
    );
    let cooperative = |blocks: u32| {
        // SAFETY: the arguments live on.
        unsafe {
            let pointers = In::from(&scale[..]);
            cuLaunchCooperativeKernel(
                kernels.scale,
                blocks,
                1,
                1,
                1024,
                1,
                1,
                0,
                CUstream(0),
                pointers,
            )
        }
    };
    assert_eq!(cooperative(128), CUresult::SUCCESS);
    assert_eq!(cooperative(129), CUresult::COOPERATIVE_LAUNCH_TOO_LARGE);
}

#[test]
fn launch_attributes_are_looked_at() {
    let device = Device::new();
    let kernels = device.kernels();
    let (x, a, n) = (device.upload(&[1.0; 4]), 2f32, 4u32);
    let pointers = [addr(&x), addr(&a), addr(&n)];
    let with = |id: u32, value: [u32; 4]| {
        let mut attribute = CUlaunchAttribute {
            id,
            pad: [0; 4],
            value: [0; 16],
        };
        attribute.value[..4].copy_from_slice(&value);
        let config = CUlaunchConfig {
            grid: [1, 1, 1],
            block: [32, 1, 1],
            sharedMemBytes: 0,
            hStream: CUstream(0),
            attrs: In::from(&attribute),
            numAttrs: 1,
        };
        // SAFETY: the arguments live on.
        unsafe {
            cuLaunchKernelEx(
                In::from(&config),
                kernels.scale,
                In::from(&pointers[..]),
                In::null(),
            )
        }
    };
    assert_eq!(with(4, [1, 1, 1, 0]), CUresult::SUCCESS);
    assert_eq!(with(4, [2, 1, 1, 0]), CUresult::NOT_SUPPORTED);
    assert_eq!(with(2, [1, 0, 0, 0]), CUresult::SUCCESS);
    assert_eq!(device.download(x, 4, CUstream(0)), [4.0; 4]);
}

#[test]
fn occupancy_is_that_of_the_device() {
    let device = Device::configured(r#"{"registers": {"scale": 32, "add": 128}}"#);
    let kernels = device.kernels();
    let resident = |f: CUfunction, threads: i32, shared: usize| {
        let mut blocks = -1;
        ok!(cuOccupancyMaxActiveBlocksPerMultiprocessor(
            Out::from(&mut blocks),
            f,
            threads,
            shared
        ));
        blocks
    };
    assert_eq!(resident(kernels.scale, 256, 0), 6);
    assert_eq!(resident(kernels.add, 256, 0), 2);
    assert_eq!(resident(kernels.scale, 256, 40 * 1024), 2);
    assert_eq!(resident(kernels.scale, 256, 200 * 1024), 0);
    let (mut grid, mut block) = (0, 0);
    ok!(cuOccupancyMaxPotentialBlockSize(
        Out::from(&mut grid),
        Out::from(&mut block),
        kernels.scale,
        None,
        0,
        0
    ));
    assert_eq!(block * grid, 128 * 1536);
    let mut bytes = 0;
    ok!(cuOccupancyAvailableDynamicSMemPerBlock(
        Out::from(&mut bytes),
        kernels.scale,
        2,
        256
    ));
    assert_eq!(resident(kernels.scale, 256, bytes), 2);
    assert_eq!(resident(kernels.scale, 256, bytes + 128), 1);
    let mut registers = 0;
    ok!(cuFuncGetAttribute(
        Out::from(&mut registers),
        4,
        kernels.add
    ));
    assert_eq!(registers, 128);
}

#[test]
fn modules_have_functions_and_globals() {
    let device = Device::new();
    let module = device.module();
    let mut count = 0;
    ok!(cuModuleGetFunctionCount(Out::from(&mut count), module));
    assert_eq!(count, 3);
    assert_eq!(
        device.function(module, c"add"),
        device.function(module, c"add")
    );
    let mut function = CUfunction::default();
    fails!(
        NOT_FOUND,
        cuModuleGetFunction(Out::from(&mut function), module, In::from(c"nothing"))
    );
    let (mut address, mut bytes) = (0, 0);
    ok!(cuModuleGetGlobal_v2(
        Out::from(&mut address),
        Out::from(&mut bytes),
        module,
        In::from(c"counter")
    ));
    assert_eq!(bytes, 4);
    let mut value = 0u32;
    ok!(cuMemcpyDtoH_v2(&raw mut value as usize, address, 4));
    assert_eq!(value, 7);
    let scale = device.function(module, c"scale");
    let mut name: *const c_char = std::ptr::null();
    ok!(cuFuncGetName(Out::from(&mut name), scale));
    // SAFETY: the module lives.
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"scale");
    let (mut offset, mut size) = (0, 0);
    ok!(cuFuncGetParamInfo(
        scale,
        2,
        Out::from(&mut offset),
        Out::from(&mut size)
    ));
    assert_eq!((offset, size), (12, 4));
    ok!(cuModuleUnload(module));
    fails!(INVALID_HANDLE, launch(scale, 1, 1, CUstream(0), &[]));
    device.expect(&[]);
}

#[test]
fn addresses_tell_what_they_are() {
    let device = Device::new();
    let x = device.alloc(N);
    let host = device.pinned(&[0.0; N]);
    let kind = |address: u64| {
        let mut value = 0u64;
        ok!(cuPointerGetAttribute(Out::from(&mut value), 2, address));
        value
    };
    assert_eq!((kind(x + 100), kind(host.address as u64)), (2, 1));
    fails!(
        INVALID_VALUE,
        cuPointerGetAttribute(Out::from(&mut 0), 2, 12345)
    );
    let (mut base, mut size) = (0, 0);
    ok!(cuMemGetAddressRange_v2(
        Out::from(&mut base),
        Out::from(&mut size),
        x + 100
    ));
    assert_eq!((base, size), (x, 4 * N));
    // A copy that leaves open which side is which.
    ok!(cuMemcpy(x, host.address as u64, 4 * N));
    let down = device.pinned(&[1.0; N]);
    ok!(cuMemcpy(down.address as u64, x, 4 * N));
    assert_eq!(down.get(), [0.0; N]);
    device.expect(&[]);
}

#[test]
fn fills_have_their_width_and_rows() {
    let device = Device::new();
    let x = device.alloc(16);
    ok!(cuMemsetD8_v2(x, 0x11, 64));
    ok!(cuMemsetD16_v2(x, 0x2222, 4));
    ok!(cuMemsetD2D32_v2(x + 16, 16, 0x3333_3333, 2, 3));
    let mut bytes = [0u8; 64];
    ok!(cuMemcpyDtoH_v2(bytes.as_mut_ptr() as usize, x, 64));
    let expected: Vec<u8> = (0..64)
        .map(|k| match k {
            0..8 => 0x22,
            _ if k >= 16 && k % 16 < 8 => 0x33,
            _ => 0x11,
        })
        .collect();
    assert_eq!(bytes.to_vec(), expected);
    fails!(INVALID_VALUE, cuMemsetD32_v2(x + 2, 0, 1));
}

#[test]
fn contexts_are_stacked_and_take_their_memory_with_them() {
    let device = Device::new();
    let mut own = CUcontext::default();
    ok!(cuCtxCreate_v2(Out::from(&mut own), 0, 0));
    let x = device.alloc(N);
    let mut current = CUcontext::default();
    ok!(cuCtxGetCurrent(Out::from(&mut current)));
    assert_eq!(current, own);
    ok!(cuCtxDestroy_v2(own));
    ok!(cuCtxGetCurrent(Out::from(&mut current)));
    assert_eq!(current, device.context);
    fails!(INVALID_VALUE, cuMemFree_v2(x));
    fails!(CONTEXT_IS_DESTROYED, cuCtxSetCurrent(own));
    fails!(INVALID_CONTEXT, cuCtxDestroy_v2(device.context));
    device.expect(&[]);
}

#[test]
fn the_device_describes_itself() {
    let _device = Device::configured(r#"{"device": "h100"}"#);
    let mut name = [0u8; 64];
    ok!(cuDeviceGetName(Out::from(&mut name[0]), 64, 0));
    assert_eq!(
        CStr::from_bytes_until_nul(&name).unwrap(),
        c"NVIDIA H100 80GB HBM3 (virtual)"
    );
    ok!(cuDeviceGetName(Out::from(&mut name[0]), 7, 0));
    assert_eq!(CStr::from_bytes_until_nul(&name).unwrap(), c"NVIDIA");
    let attribute = |id: u32| {
        let mut value = -1;
        ok!(cuDeviceGetAttribute(Out::from(&mut value), id, 0));
        value
    };
    assert_eq!((attribute(75), attribute(76)), (9, 0));
    assert_eq!(
        (attribute(16), attribute(10), attribute(97)),
        (132, 32, 232_448)
    );
    fails!(
        INVALID_VALUE,
        cuDeviceGetAttribute(Out::from(&mut 0), 4000, 0)
    );
    let mut bytes = 0;
    ok!(cuDeviceTotalMem_v2(Out::from(&mut bytes), 0));
    assert_eq!(bytes, 80 << 30);
}

#[test]
fn codes_have_names_and_words() {
    let text = |f: unsafe extern "C" fn(CUresult, Out<*const c_char>) -> CUresult, code: u32| {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: the place lives; the text is static.
        let result = unsafe { f(CUresult(code), Out::from(&mut text)) };
        // SAFETY: a text that is not null is static.
        let found = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().unwrap());
        (result, found)
    };
    assert_eq!(
        text(cuGetErrorName, 700).1,
        Some("CUDA_ERROR_ILLEGAL_ADDRESS")
    );
    assert_eq!(text(cuGetErrorName, 0).1, Some("CUDA_SUCCESS"));
    assert_eq!(text(cuGetErrorString, 2).1, Some("out of memory"));
    assert_eq!(text(cuGetErrorName, 12345), (CUresult::INVALID_VALUE, None));
}

#[test]
fn settings_are_checked() {
    let _device = Device::new();
    let configure = |text: &CStr| {
        // SAFETY: a text with its end mark.
        unsafe { vgpuConfigure(In::from(text)) }
    };
    assert_eq!(configure(c"{\"nonsense\": 1}"), CUresult::INVALID_VALUE);
    assert_eq!(
        configure(c"{\"device\": \"h100\"}"),
        CUresult::ILLEGAL_STATE,
        "a context exists"
    );
    assert_eq!(configure(c"{\"strict\": true}"), CUresult::SUCCESS);
    let report: Value = take_json(vgpuReport());
    assert_eq!(report["virtual"], true);
}
