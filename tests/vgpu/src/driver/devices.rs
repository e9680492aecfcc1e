//! Initialisation, errors, and what can be asked of the device.

use std::{
    collections::HashMap,
    ffi::{CStr, CString, c_char},
    sync::OnceLock,
};

use super::{
    abi::{CUdevice, CUresult, In, Out, Outcome},
    export, report,
};
use crate::device::{Description, MAX_BLOCK_THREADS, SHARED_BLOCK_DEFAULT, SHARED_RESERVED};

/// Where the device sits on a bus that does not exist.
const PCI_BUS_ID: &str = "0000:ff:00.0";

fn check_device(session: &super::Session, device: CUdevice) -> Outcome {
    session.initialised()?;
    if device == 0 && session.config.has_device() {
        Ok(())
    } else {
        Err(CUresult::INVALID_DEVICE)
    }
}

/// Writes a text with its end mark into a buffer, cut to fit.
fn put_text(buffer: Out<u8>, length: i32, text: &str) -> Outcome {
    let room = usize::try_from(length)
        .ok()
        .filter(|&n| n > 0)
        .ok_or(CUresult::INVALID_VALUE)?
        - 1;
    buffer.set_all(text.bytes().take(room).chain([0]))
}

export! {
    fn cuInit(session, flags: u32) {
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        if !session.config.has_device() {
            return Err(CUresult::NO_DEVICE);
        }
        session.initialised = true;
        Ok(())
    }

    fn cuDriverGetVersion(session, version: Out<i32>) {
        version.set(session.config.version())
    }

    fn cuDeviceGetCount(session, count: Out<i32>) {
        session.initialised()?;
        count.set(i32::from(session.config.has_device()))
    }

    fn cuDeviceGet(session, device: Out<CUdevice>, ordinal: i32) {
        check_device(session, ordinal)?;
        device.set(ordinal)
    }

    fn cuDeviceGetName(session, name: Out<u8>, length: i32, device: CUdevice) {
        check_device(session, device)?;
        let text = format!("{} (virtual)", session.engine.device.name);
        put_text(name, length, &text)
    }

    fn cuDeviceGetPCIBusId(session, id: Out<u8>, length: i32, device: CUdevice) {
        check_device(session, device)?;
        put_text(id, length, PCI_BUS_ID)
    }

    fn cuDeviceGetByPCIBusId(session, device: Out<CUdevice>, id: In<c_char>) {
        session.initialised()?;
        if id.text()? != PCI_BUS_ID {
            return Err(CUresult::INVALID_DEVICE);
        }
        device.set(0)
    }

    fn cuDeviceGetUuid(session, uuid: Out<[u8; 16]>, device: CUdevice) {
        check_device(session, device)?;
        uuid.set(*b"virtual GPU muso")
    }

    fn cuDeviceGetUuid_v2(session, uuid: Out<[u8; 16]>, device: CUdevice) {
        check_device(session, device)?;
        uuid.set(*b"virtual GPU muso")
    }

    fn cuDeviceTotalMem_v2(session, bytes: Out<usize>, device: CUdevice) {
        check_device(session, device)?;
        bytes.set(session.config.capacity() as usize)
    }

    fn cuDeviceComputeCapability(session, major: Out<i32>, minor: Out<i32>, device: CUdevice) {
        check_device(session, device)?;
        let capability = session.engine.device.compute_capability;
        major.set(capability.0)?;
        minor.set(capability.1)
    }

    fn cuDeviceGetAttribute(session, value: Out<i32>, attribute: u32, device: CUdevice) {
        check_device(session, device)?;
        let found = device_attribute(&session.engine.device, attribute).ok_or(CUresult::INVALID_VALUE)?;
        value.set(found)
    }

    fn cuDeviceCanAccessPeer(session, can: Out<i32>, device: CUdevice, peer: CUdevice) {
        check_device(session, device)?;
        check_device(session, peer)?;
        can.set(0)
    }

    fn cuGetErrorName(_session, code: CUresult, name: Out<*const c_char>) {
        let text = code.c_name();
        name.set(text.map_or(std::ptr::null(), CStr::as_ptr))?;
        text.map(|_| ()).ok_or(CUresult::INVALID_VALUE)
    }

    fn cuGetErrorString(_session, code: CUresult, text: Out<*const c_char>) {
        let described = describe(code);
        text.set(described.map_or(std::ptr::null(), CStr::as_ptr))?;
        described.map(|_| ()).ok_or(CUresult::INVALID_VALUE)
    }

    fn cuProfilerStart(_session) { Ok(()) }

    fn cuProfilerStop(session) {
        report::write_files(session);
        Ok(())
    }
}

/// A code in words, as its name has them.
fn describe(code: CUresult) -> Option<&'static CStr> {
    static TEXTS: OnceLock<HashMap<u32, CString>> = OnceLock::new();
    let texts = TEXTS.get_or_init(|| {
        let codes = (0..1000).filter_map(|value| Some((value, CUresult(value).c_name()?)));
        codes
            .filter_map(|(value, name)| {
                let words = name
                    .to_str()
                    .ok()?
                    .trim_start_matches("CUDA_")
                    .trim_start_matches("ERROR_");
                let words = words.to_lowercase().replace('_', " ");
                Some((
                    value,
                    CString::new(if value == 0 { "no error".into() } else { words }).ok()?,
                ))
            })
            .collect()
    });
    texts.get(&code.0).map(CString::as_c_str)
}

/// The value of `CU_DEVICE_ATTRIBUTE_…`; what the device does not have is 0, numbers that do not exist are nothing.
fn device_attribute(device: &Description, attribute: u32) -> Option<i32> {
    let sm = &device.per_multiprocessor;
    let value = match attribute {
        1..=3 => i64::from(MAX_BLOCK_THREADS),
        4 => 64,
        5 => i64::from(i32::MAX),
        6 | 7 => 65_535,
        8 => i64::from(SHARED_BLOCK_DEFAULT),
        9 => 65_536,
        10 => 32,
        11 => i64::from(i32::MAX),
        12 | 82 => i64::from(sm.registers),
        13 => (device.clock_ghz * 1e6) as i64,
        14 | 30 => 512,
        51 => 32,
        16 => i64::from(device.multiprocessors),
        // Overlap, concurrent kernels, unified addressing, priorities, L1, cooperative launch, memory pools.
        15 | 31 | 41 | 78 | 79 | 80 | 95 | 99 | 115 => 1,
        33 => 0xff,
        36 => i64::from(device.memory_clock_khz),
        37 => i64::from(device.memory_bus_bits),
        38 => device.l2_bytes as i64,
        39 => i64::from(sm.max_warps) * 32,
        40 => i64::from(device.copy_engines),
        75 => i64::from(device.compute_capability.0),
        76 => i64::from(device.compute_capability.1),
        81 => i64::from(sm.shared_bytes),
        87 => (sm.f32 / sm.f64) as i64,
        97 => i64::from(sm.shared_block_optin_bytes),
        106 => i64::from(sm.max_blocks),
        111 => i64::from(SHARED_RESERVED),
        134 => -1,
        17..=147 => 0,
        _ => return None,
    };
    i32::try_from(value).ok()
}
