//! The engine that everything here computes on.

use std::sync::Mutex;

use muso::engine::CpuEngine;
use pyo3::prelude::*;

use crate::error::OrRaise;

/// The engine, and the process that it was started in.
static ENGINE: Mutex<Option<(u32, usize, CpuEngine)>> = Mutex::new(None);

/// Returns the engine of this process. A forked child has none of its parent's threads, and starts an engine of its own.
pub(crate) fn engine(py: Python<'_>) -> PyResult<CpuEngine> {
    started(py, None)
}

/// Starts the engine with so many threads; 0 is one for each core.
pub(crate) fn set_threads(py: Python<'_>, threads: usize) -> PyResult<()> {
    started(py, Some(threads)).map(|_| ())
}

pub(crate) fn threads(py: Python<'_>) -> PyResult<usize> {
    Ok(engine(py)?.threads())
}

fn started(py: Python<'_>, threads: Option<usize>) -> PyResult<CpuEngine> {
    // No Python code runs under this lock, and what holds it does not wait.
    let mut held = ENGINE
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let process = std::process::id();
    if let Some((started_in, wanted, engine)) = &*held
        && *started_in == process
        && threads.is_none_or(|threads| threads == *wanted)
    {
        return Ok(engine.clone());
    }
    let wanted = threads
        .or(held.as_ref().map(|(_, wanted, _)| *wanted))
        .unwrap_or(0);
    let engine = CpuEngine::new((wanted > 0).then_some(wanted)).or_raise(py)?;
    let before = held.replace((process, wanted, engine.clone()));
    if let Some((started_in, _, engine)) = before
        && started_in != process
    {
        // Its threads are the parent's: there is nobody to wait for.
        std::mem::forget(engine);
    }
    Ok(engine)
}
