//! Contexts: which one a thread uses, and what goes with it.

use std::collections::{BTreeMap, HashMap};

use super::{
    CURRENT, Context, Session,
    abi::{CUcontext, CUdevice, CUresult, In, Out, Outcome},
    export,
};
use crate::{check::Kind, stream::StreamKind};

fn check_device(session: &Session, device: CUdevice) -> Outcome {
    session.initialised()?;
    if device == 0 {
        Ok(())
    } else {
        Err(CUresult::INVALID_DEVICE)
    }
}

pub(super) fn find(session: &Session, handle: CUcontext) -> Result<u64, CUresult> {
    session.initialised()?;
    let id = handle.id().ok_or(CUresult::INVALID_CONTEXT)?;
    if session.contexts.contains_key(&id) {
        Ok(id)
    } else {
        Err(CUresult::CONTEXT_IS_DESTROYED)
    }
}

fn current() -> Option<u64> {
    CURRENT
        .with_borrow(|stack| stack.last().copied())
        .filter(|&id| id != 0)
}

fn set_current(id: u64) {
    CURRENT.with_borrow_mut(|stack| match stack.last_mut() {
        Some(top) => *top = id,
        None => stack.push(id),
    });
}

fn create(session: &mut Session, flags: u32) -> u64 {
    let id = session.new_id();
    let default_stream = session.engine.create_stream(id, StreamKind::Default);
    let (thread_streams, limits) = (HashMap::new(), BTreeMap::new());
    session.contexts.insert(
        id,
        Context {
            flags,
            default_stream,
            thread_streams,
            limits,
            cache_config: 0,
        },
    );
    id
}

/// Runs what the context has queued and takes everything that it owns back.
fn destroy(session: &mut Session, id: u64) {
    let tails = session.engine.tails(Some(id));
    session.drive(&tails);
    for tail in &tails {
        session.engine.host_waited(tail);
    }
    if session.config.leaks {
        report_leaks(session, id);
    }
    let known = session.engine.host_clock();
    for (address, _) in session.engine.allocations_of(id) {
        session.engine.free(address, &known, "cuCtxDestroy");
    }
    let Some(context) = session.contexts.remove(&id) else {
        return;
    };
    let streams: Vec<u64> = session
        .streams
        .iter()
        .filter(|(_, s)| s.context == id)
        .map(|(&key, _)| key)
        .collect();
    for key in streams {
        if let Some(stream) = session.streams.remove(&key) {
            session.engine.destroy_stream(stream.id);
        }
    }
    for stream in context
        .thread_streams
        .into_values()
        .chain([context.default_stream])
    {
        session.engine.destroy_stream(stream);
    }
    session.events.retain(|_, e| e.context != id);
    let modules: Vec<u64> = session
        .modules
        .iter()
        .filter(|(_, m)| m.context == id)
        .map(|(&key, _)| key)
        .collect();
    for module in modules {
        super::modules::unload(session, module);
    }
    session.engine.bury();
    session.engine.clear_fault();
}

/// What a context that goes has not given back.
pub(super) fn report_leaks(session: &mut Session, id: u64) {
    let memory = session.engine.allocations_of(id);
    let bytes: u64 = memory.iter().map(|a| a.1).sum();
    let counts = [
        ("allocations of device memory", memory.len()),
        (
            "streams",
            session.streams.values().filter(|s| s.context == id).count(),
        ),
        (
            "events",
            session.events.values().filter(|e| e.context == id).count(),
        ),
        (
            "modules",
            session.modules.values().filter(|m| m.context == id).count(),
        ),
        (
            "blocks of page-locked memory",
            session.engine.pinned.live().count(),
        ),
    ];
    for (what, count) in counts.into_iter().filter(|c| c.1 > 0) {
        let size = if what.ends_with("device memory") {
            format!(" ({bytes} bytes)")
        } else {
            String::new()
        };
        let message = format!("{count} {what}{size} never given back");
        session
            .engine
            .report(Kind::Leak, "end of the context", message, what);
    }
}

fn release_primary(session: &mut Session, device: CUdevice) -> Outcome {
    check_device(session, device)?;
    if session.primary_users == 0 {
        return Err(CUresult::INVALID_CONTEXT);
    }
    session.primary_users -= 1;
    if session.primary_users == 0
        && let Some(id) = session.primary.take()
    {
        destroy(session, id);
    }
    Ok(())
}

fn reset_primary(session: &mut Session, device: CUdevice) -> Outcome {
    check_device(session, device)?;
    let Some(old) = session.primary else {
        return Ok(());
    };
    // Users keep their handle: the context is emptied and starts anew under its old number.
    let flags = session.primary_flags;
    destroy(session, old);
    let new = create(session, flags);
    if let Some(context) = session.contexts.remove(&new) {
        session.contexts.insert(old, context);
    }
    Ok(())
}

fn create_current(
    session: &mut Session,
    handle: Out<CUcontext>,
    flags: u32,
    device: CUdevice,
) -> Outcome {
    check_device(session, device)?;
    let id = create(session, flags);
    handle.set(CUcontext::new(id))?;
    CURRENT.with_borrow_mut(|stack| stack.push(id));
    Ok(())
}

export! {
    fn cuDevicePrimaryCtxRetain(session, handle: Out<CUcontext>, device: CUdevice) {
        check_device(session, device)?;
        let id = match session.primary {
            Some(id) => id,
            None => {
                let flags = session.primary_flags;
                let id = create(session, flags);
                session.primary = Some(id);
                id
            }
        };
        handle.set(CUcontext::new(id))?;
        session.primary_users += 1;
        Ok(())
    }

    fn cuDevicePrimaryCtxRelease(session, device: CUdevice) {
        release_primary(session, device)
    }

    fn cuDevicePrimaryCtxRelease_v2(session, device: CUdevice) {
        release_primary(session, device)
    }

    fn cuDevicePrimaryCtxReset(session, device: CUdevice) {
        reset_primary(session, device)
    }

    fn cuDevicePrimaryCtxReset_v2(session, device: CUdevice) {
        reset_primary(session, device)
    }

    fn cuDevicePrimaryCtxSetFlags_v2(session, device: CUdevice, flags: u32) {
        check_device(session, device)?;
        session.primary_flags = flags;
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(session, device: CUdevice, flags: Out<u32>, active: Out<i32>) {
        check_device(session, device)?;
        flags.set(session.primary_flags)?;
        active.set(i32::from(session.primary.is_some()))
    }

    fn cuCtxCreate_v2(session, handle: Out<CUcontext>, flags: u32, device: CUdevice) {
        create_current(session, handle, flags, device)
    }

    fn cuCtxCreate_v3(session, handle: Out<CUcontext>, _affinity: usize, count: i32, flags: u32, device: CUdevice) {
        if count != 0 {
            return Err(CUresult::UNSUPPORTED_EXEC_AFFINITY);
        }
        create_current(session, handle, flags, device)
    }

    fn cuCtxCreate_v4(session, handle: Out<CUcontext>, parameters: In<[usize; 3]>, flags: u32, device: CUdevice) {
        if !parameters.is_null() && parameters.get()? != [0; 3] {
            return Err(CUresult::UNSUPPORTED_EXEC_AFFINITY);
        }
        create_current(session, handle, flags, device)
    }

    fn cuCtxDestroy_v2(session, handle: CUcontext) {
        let id = find(session, handle)?;
        if session.primary == Some(id) {
            return Err(CUresult::INVALID_CONTEXT);
        }
        destroy(session, id);
        CURRENT.with_borrow_mut(|stack| {
            if stack.last() == Some(&id) {
                stack.pop();
            }
        });
        Ok(())
    }

    fn cuCtxSetCurrent(session, handle: CUcontext) {
        session.initialised()?;
        let id = if handle.0 == 0 { 0 } else { find(session, handle)? };
        set_current(id);
        Ok(())
    }

    fn cuCtxGetCurrent(session, handle: Out<CUcontext>) {
        session.initialised()?;
        handle.set(current().map_or(CUcontext::default(), CUcontext::new))
    }

    fn cuCtxPushCurrent_v2(session, handle: CUcontext) {
        let id = find(session, handle)?;
        CURRENT.with_borrow_mut(|stack| stack.push(id));
        Ok(())
    }

    fn cuCtxPopCurrent_v2(session, handle: Out<CUcontext>) {
        session.initialised()?;
        let id = CURRENT.with_borrow_mut(Vec::pop).filter(|&id| id != 0).ok_or(CUresult::INVALID_CONTEXT)?;
        handle.set_if_wanted(CUcontext::new(id));
        Ok(())
    }

    fn cuCtxGetDevice(session, device: Out<CUdevice>) {
        session.context_even_failed()?;
        device.set(0)
    }

    fn cuCtxGetFlags(session, flags: Out<u32>) {
        let id = session.context_even_failed()?;
        let found = session.contexts[&id].flags;
        flags.set(found)
    }

    fn cuCtxSetFlags(session, flags: u32) {
        let id = session.context()?;
        if let Some(context) = session.contexts.get_mut(&id) {
            context.flags = flags;
        }
        Ok(())
    }

    fn cuCtxGetId(session, handle: CUcontext, number: Out<u64>) {
        let id = if handle.0 == 0 { session.context_even_failed()? } else { find(session, handle)? };
        number.set(id)
    }

    fn cuCtxGetApiVersion(session, handle: CUcontext, version: Out<u32>) {
        if handle.0 != 0 {
            find(session, handle)?;
        }
        version.set(3020)
    }

    fn cuCtxSynchronize(session) {
        let id = session.context()?;
        let tails = session.engine.tails(Some(id));
        session.synchronise(&tails)
    }

    fn cuCtxGetLimit(session, value: Out<usize>, limit: u32) {
        let id = session.context()?;
        // Stack of a thread, printf buffer, heap, depth and number of nested launches, L2 granularity, persisting L2.
        const DEFAULTS: [usize; 7] = [1024, 1 << 20, 8 << 20, 2, 2048, 128, 0];
        let default = *DEFAULTS.get(limit as usize).ok_or(CUresult::UNSUPPORTED_LIMIT)?;
        let found = session.contexts[&id].limits.get(&limit).copied().unwrap_or(default);
        value.set(found)
    }

    fn cuCtxSetLimit(session, limit: u32, value: usize) {
        let id = session.context()?;
        if limit > 6 {
            return Err(CUresult::UNSUPPORTED_LIMIT);
        }
        if let Some(context) = session.contexts.get_mut(&id) {
            context.limits.insert(limit, value);
        }
        Ok(())
    }

    fn cuCtxGetCacheConfig(session, config: Out<u32>) {
        let id = session.context()?;
        let found = session.contexts[&id].cache_config;
        config.set(found)
    }

    fn cuCtxSetCacheConfig(session, config: u32) {
        let id = session.context()?;
        if let Some(context) = session.contexts.get_mut(&id) {
            context.cache_config = config;
        }
        Ok(())
    }

    fn cuCtxGetStreamPriorityRange(session, least: Out<i32>, greatest: Out<i32>) {
        session.context()?;
        least.set_if_wanted(0);
        greatest.set_if_wanted(super::streams::GREATEST_PRIORITY);
        Ok(())
    }
}
