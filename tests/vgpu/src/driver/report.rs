//! What the virtual GPU has to say beyond the driver API: `vgpuReport`, `vgpuTrace`, `vgpuReset`, `vgpuConfigure`,
//! and the same at the end of the process.

use std::{
    ffi::{CString, c_char},
    fs,
    path::Path,
    sync::Once,
};

use serde_json::{Map, Value, json};

use super::{
    CURRENT, STATE, Session, State,
    abi::{CUresult, In},
    export, symbols,
};
use crate::{device::Description, stream::LaunchRecord};

/// Everything counted and found so far.
fn report(state: &State) -> Value {
    let engine = &state.engine;
    let launches: Vec<Value> = engine
        .launches
        .first
        .iter()
        .map(|l| launch(l, &engine.device))
        .collect();
    json!({
        "virtual": true,
        "device": {
            "key": engine.device.key,
            "name": format!("{} (virtual)", engine.device.name),
            "library": symbols::own_path(),
        },
        "launches": launches,
        "kernels": engine.launches.totals,
        "timeline": engine.timeline.summary(),
        "findings": engine.findings.list(),
        "tolerated": engine.findings.tolerated,
        "waits": engine.waits,
    })
}

fn launch(record: &LaunchRecord, device: &Description) -> Value {
    let mut value = json!(record);
    let times: Map<String, Value> = Description::all()
        .iter()
        .map(|d| (d.key.clone(), json!(record.time(d))))
        .collect();
    if let Some(fields) = value.as_object_mut() {
        fields.insert("occupancy".into(), json!(record.occupancy(device)));
        fields.insert("virtual_time".into(), Value::Object(times));
    }
    value
}

/// A text for C that the caller gives back with `vgpuFree`; null if it cannot be made.
fn to_c(value: &Value) -> *mut c_char {
    CString::new(value.to_string()).map_or(std::ptr::null_mut(), CString::into_raw)
}

fn write(path: &Path, value: &Value) {
    if let Err(error) = fs::write(path, value.to_string()) {
        eprintln!("virtual GPU: {}: {error}", path.display());
    }
}

/// Writes the files that the settings name.
pub(super) fn write_files(state: &State) {
    if let Some(path) = &state.config.report {
        write(path, &report(state));
    }
    if let Some(path) = &state.config.trace {
        write(
            path,
            &state.engine.timeline.chrome_trace(&state.engine.device.key),
        );
    }
}

/// Has the findings printed and the files written when the process ends.
pub(super) fn register_exit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function is of this library, which is never unloaded (`-z nodelete`).
        unsafe { libc::atexit(at_exit) };
    });
}

extern "C" fn at_exit() {
    // A thread may have been stopped inside a call; then there is nothing to say.
    let Ok(mut guard) = STATE.try_lock() else {
        return;
    };
    let Some(state) = guard.as_mut() else { return };
    if state.config.leaks {
        let contexts: Vec<u64> = state.contexts.keys().copied().collect();
        drop(guard);
        leaks_at_exit(&contexts);
        let Ok(again) = STATE.try_lock() else { return };
        guard = again;
    }
    let Some(state) = guard.as_ref() else { return };
    write_files(state);
    let findings = state.engine.findings.list();
    for finding in &findings[state.findings_told.min(findings.len())..] {
        eprintln!("virtual GPU: {finding}");
    }
    if !findings.is_empty() {
        eprintln!(
            "virtual GPU: {} finding(s) on the virtual {}",
            findings.len(),
            state.engine.device.name
        );
    }
}

fn leaks_at_exit(contexts: &[u64]) {
    super::call("end of the process", |session: &mut Session| {
        for &context in contexts {
            super::context::report_leaks(session, context);
        }
        Ok(())
    });
}

fn with_state(make: impl FnOnce(&State) -> Value) -> *mut c_char {
    let mut text = std::ptr::null_mut();
    super::call("vgpuReport", |session| {
        text = to_c(&make(session));
        Ok(())
    });
    text
}

/// Runs nothing; returns counters, modelled times and findings of all work that has run, as JSON. The caller gives
/// the text back with [`vgpuFree`].
#[unsafe(no_mangle)]
pub extern "C" fn vgpuReport() -> *mut c_char {
    with_state(report)
}

/// The modelled timeline as a Chrome trace. The caller gives the text back with [`vgpuFree`].
#[unsafe(no_mangle)]
pub extern "C" fn vgpuTrace() -> *mut c_char {
    with_state(|state| state.engine.timeline.chrome_trace(&state.engine.device.key))
}

/// Gives back a text of [`vgpuReport`] or [`vgpuTrace`].
///
/// # Safety
/// `text` is null or came from one of them and was not given back before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgpuFree(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: the caller promises that the text came from `CString::into_raw` and is given back once.
        drop(unsafe { CString::from_raw(text) });
    }
}

export! {
    /// Starts anew: every handle and address given out is invalid, nothing was counted or found, and the settings
    /// are those of the environment.
    fn vgpuReset(session) {
        **session = State::new(super::Config::from_environment());
        CURRENT.with_borrow_mut(Vec::clear);
        Ok(())
    }

    /// Changes settings, given as a JSON object. The device and its memory can be changed only before a context
    /// exists.
    fn vgpuConfigure(session, settings: In<c_char>) {
        let mut config = session.config.clone();
        if let Err(error) = config.apply(&settings.text()?) {
            eprintln!("virtual GPU: vgpuConfigure: {error}");
            return Err(CUresult::INVALID_VALUE);
        }
        let other_device =
            config.device().key != session.config.device().key || config.capacity() != session.config.capacity();
        if other_device && !session.contexts.is_empty() {
            return Err(CUresult::ILLEGAL_STATE);
        }
        if other_device {
            let initialised = session.initialised;
            **session = State::new(config);
            session.initialised = initialised;
        } else {
            session.config = config;
        }
        session.engine.findings.tolerate = session.config.tolerate.clone();
        session.engine.ignored_waits = session.config.ignore_waits.clone();
        Ok(())
    }
}
