//! `cuGetProcAddress`: functions by their plain name.

use std::ffi::{CStr, CString, c_char, c_void};

use super::{
    abi::{CUresult, In, Out},
    devices::cuInit,
    export,
};

/// Functions whose newest version has other arguments than what their plain name meant before a CUDA version: name,
/// that version, suffix before it.
const CHANGED: [(&str, i32, &str); 6] = [
    ("cuCtxCreate", 13_000, "_v2"),
    ("cuMemPrefetchAsync", 13_000, ""),
    ("cuMemAdvise", 13_000, ""),
    ("cuGetProcAddress", 12_000, ""),
    ("cuDeviceGetUuid", 11_040, ""),
    ("cuStreamGetCaptureInfo", 13_000, "_v2"),
];

/// The address of a symbol of this library.
fn own_symbol(name: &str) -> Option<*mut c_void> {
    let name = CString::new(name).ok()?;
    // SAFETY: `dladdr` only fills the structure, which is plain data; the address is one of this library. The path
    // it returns belongs to the loader and lives as long as the library does. `RTLD_NOLOAD` returns a handle to what
    // is loaded already.
    let found = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(cuInit as *const c_void, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        let own = libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if own.is_null() {
            return None;
        }
        let found = libc::dlsym(own, name.as_ptr());
        libc::dlclose(own);
        found
    };
    (!found.is_null()).then_some(found)
}

fn look_up(name: &str, version: i32) -> Option<*mut c_void> {
    let changed = CHANGED.iter().find(|c| c.0 == name && version < c.1);
    if let Some((_, _, suffix)) = changed {
        return own_symbol(&format!("{name}{suffix}"));
    }
    ["_v4", "_v3", "_v2", ""]
        .iter()
        .find_map(|suffix| own_symbol(&format!("{name}{suffix}")))
}

export! {
    fn cuGetProcAddress_v2(
        _session,
        name: In<c_char>,
        address: Out<*mut c_void>,
        version: i32,
        _flags: u64,
        status: Out<u32>,
    ) {
        let found = look_up(&name.text()?, version);
        address.set(found.unwrap_or(std::ptr::null_mut()))?;
        // 0: found, 1: no such symbol.
        status.set_if_wanted(u32::from(found.is_none()));
        found.map(|_| ()).ok_or(CUresult::NOT_FOUND)
    }

    fn cuGetProcAddress(_session, name: In<c_char>, address: Out<*mut c_void>, version: i32, _flags: u64) {
        let found = look_up(&name.text()?, version);
        address.set(found.unwrap_or(std::ptr::null_mut()))?;
        found.map(|_| ()).ok_or(CUresult::NOT_FOUND)
    }
}

/// The file that this library was loaded from, for messages.
pub(super) fn own_path() -> Option<String> {
    // SAFETY: as in `own_symbol`.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(cuInit as *const c_void, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some(
            CStr::from_ptr(info.dli_fname)
                .to_string_lossy()
                .into_owned(),
        )
    }
}
