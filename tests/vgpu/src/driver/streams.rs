//! Streams, events and functions of the host in stream order.

use std::ffi::c_void;

use super::{
    EventEntry, Session, StreamEntry,
    abi::{CUcontext, CUdevice, CUevent, CUresult, CUstream, Out, Outcome},
    export,
};
use crate::stream::{Action, HostCall, Opaque, StreamKind};

/// The number of the most urgent priority; 0 is the least.
pub(super) const GREATEST_PRIORITY: i32 = -5;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;

fn create(session: &mut Session, handle: Out<CUstream>, flags: u32, priority: i32) -> Outcome {
    let context = session.context()?;
    let kind = match flags {
        0 => StreamKind::Blocking,
        NON_BLOCKING => StreamKind::NonBlocking,
        _ => return Err(CUresult::INVALID_VALUE),
    };
    let id = session.engine.create_stream(context, kind);
    let key = session.new_id();
    let priority = priority.clamp(GREATEST_PRIORITY, 0);
    session.streams.insert(
        key,
        StreamEntry {
            id,
            context,
            flags,
            priority,
        },
    );
    handle.set(CUstream::new(key))
}

fn entry(session: &Session, handle: CUstream) -> Result<Option<&StreamEntry>, CUresult> {
    session.context()?;
    if handle.0 <= 2 {
        return Ok(None);
    }
    handle
        .id()
        .and_then(|id| session.streams.get(&id))
        .map(Some)
        .ok_or(CUresult::INVALID_HANDLE)
}

fn event(session: &mut Session, handle: CUevent) -> Result<&mut EventEntry, CUresult> {
    session.context()?;
    handle
        .id()
        .and_then(|id| session.events.get_mut(&id))
        .ok_or(CUresult::INVALID_HANDLE)
}

fn record(session: &mut Session, handle: CUevent, stream: CUstream) -> Outcome {
    let id = session.stream(stream)?;
    event(session, handle)?;
    let recorded = session.engine.record(id);
    event(session, handle)?.recorded = Some(recorded);
    Ok(())
}

/// A context, of which the event must be.
fn context_of(session: &mut Session, context: CUcontext, handle: CUevent) -> Result<u64, CUresult> {
    let group = super::context::find(session, context)?;
    if event(session, handle)?.context == group {
        Ok(group)
    } else {
        Err(CUresult::INVALID_HANDLE)
    }
}

/// The event says which context it is of, and none need be current: a host that waits for another thread's work may
/// have none. (CubeCL waits so.)
fn wait_for_event(session: &mut Session, handle: CUevent) -> Outcome {
    session.initialised()?;
    session.failed().map_or(Ok(()), Err)?;
    let event = handle.id().and_then(|id| session.events.get(&id));
    match event.ok_or(CUresult::INVALID_HANDLE)?.recorded.clone() {
        Some(recorded) => session.synchronise(&[recorded]),
        None => Ok(()),
    }
}

fn elapsed(session: &mut Session, milliseconds: Out<f32>, start: CUevent, end: CUevent) -> Outcome {
    let mut recorded = Vec::new();
    for handle in [start, end] {
        let event = event(session, handle)?;
        let position = event
            .recorded
            .clone()
            .filter(|_| event.timing)
            .ok_or(CUresult::INVALID_HANDLE)?;
        if !session.engine.has_run(position.point) {
            return Err(CUresult::NOT_READY);
        }
        recorded.push(position);
    }
    milliseconds.set(session.engine.elapsed_ms(&recorded[0], &recorded[1]) as f32)
}

fn wait_for_stream(session: &mut Session, handle: CUstream) -> Outcome {
    let id = session.stream(handle)?;
    let tail: Vec<_> = session.engine.tail(id).into_iter().collect();
    session.synchronise(&tail)
}

export! {
    fn cuStreamCreate(session, handle: Out<CUstream>, flags: u32) {
        create(session, handle, flags, 0)
    }

    fn cuStreamCreateWithPriority(session, handle: Out<CUstream>, flags: u32, priority: i32) {
        create(session, handle, flags, priority)
    }

    fn cuStreamDestroy_v2(session, handle: CUstream) {
        session.context_even_failed()?;
        let key = handle.id().ok_or(CUresult::INVALID_HANDLE)?;
        let stream = session.streams.remove(&key).ok_or(CUresult::INVALID_HANDLE)?;
        session.engine.destroy_stream(stream.id);
        session.failed().map_or(Ok(()), Err)
    }

    fn cuStreamSynchronize(session, handle: CUstream) {
        wait_for_stream(session, handle)
    }

    /// A query runs what it asks about, so that a loop around it ends.
    fn cuStreamQuery(session, handle: CUstream) {
        wait_for_stream(session, handle)
    }

    fn cuStreamWaitEvent(session, handle: CUstream, waited: CUevent, _flags: u32) {
        let id = session.stream(handle)?;
        if let Some(recorded) = event(session, waited)?.recorded.clone() {
            session.engine.wait_for(id, &recorded);
        }
        Ok(())
    }

    fn cuStreamGetFlags(session, handle: CUstream, flags: Out<u32>) {
        let found = entry(session, handle)?.map_or(0, |s| s.flags);
        flags.set(found)
    }

    fn cuStreamGetPriority(session, handle: CUstream, priority: Out<i32>) {
        let found = entry(session, handle)?.map_or(0, |s| s.priority);
        priority.set(found)
    }

    fn cuStreamGetCtx(session, handle: CUstream, context: Out<CUcontext>) {
        let current = session.context()?;
        let found = entry(session, handle)?.map_or(current, |s| s.context);
        context.set(CUcontext::new(found))
    }

    fn cuStreamGetDevice(session, handle: CUstream, device: Out<CUdevice>) {
        entry(session, handle)?;
        device.set(0)
    }

    fn cuStreamGetId(session, handle: CUstream, number: Out<u64>) {
        let id = session.stream(handle)?;
        number.set(u64::from(id))
    }

    fn cuStreamIsCapturing(session, handle: CUstream, status: Out<u32>) {
        session.stream(handle)?;
        status.set(0)
    }

    fn cuLaunchHostFunc(session, handle: CUstream, function: Option<extern "C" fn(*mut c_void)>, data: *mut c_void) {
        let id = session.stream(handle)?;
        let function = function.ok_or(CUresult::INVALID_VALUE)?;
        session.engine.enqueue(id, Action::Host(HostCall::Function(function, Opaque(data))), "host function");
        Ok(())
    }

    fn cuStreamAddCallback(
        session,
        handle: CUstream,
        function: Option<extern "C" fn(*mut c_void, u32, *mut c_void)>,
        data: *mut c_void,
        flags: u32,
    ) {
        let id = session.stream(handle)?;
        let function = function.filter(|_| flags == 0).ok_or(CUresult::INVALID_VALUE)?;
        let call = HostCall::Callback(function, Opaque(handle.0 as *mut c_void), Opaque(data));
        session.engine.enqueue(id, Action::Host(call), "callback");
        Ok(())
    }

    fn cuEventCreate(session, handle: Out<CUevent>, flags: u32) {
        let context = session.context()?;
        if flags & !7 != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let key = session.new_id();
        session.events.insert(key, EventEntry { context, timing: flags & DISABLE_TIMING == 0, recorded: None });
        handle.set(CUevent::new(key))
    }

    fn cuEventDestroy_v2(session, handle: CUevent) {
        session.context_even_failed()?;
        let found = handle.id().and_then(|id| session.events.remove(&id));
        found.map(|_| ()).ok_or(CUresult::INVALID_HANDLE)?;
        session.failed().map_or(Ok(()), Err)
    }

    fn cuEventRecord(session, handle: CUevent, stream: CUstream) {
        record(session, handle, stream)
    }

    fn cuEventRecordWithFlags(session, handle: CUevent, stream: CUstream, _flags: u32) {
        record(session, handle, stream)
    }

    fn cuCtxRecordEvent(session, context: CUcontext, handle: CUevent) {
        let group = context_of(session, context, handle)?;
        let recorded = session.engine.record_all(group);
        event(session, handle)?.recorded = Some(recorded);
        Ok(())
    }

    fn cuCtxWaitEvent(session, context: CUcontext, handle: CUevent) {
        let group = context_of(session, context, handle)?;
        if let Some(recorded) = event(session, handle)?.recorded.clone() {
            session.engine.wait_all(group, &recorded);
        }
        Ok(())
    }

    fn cuEventSynchronize(session, handle: CUevent) {
        wait_for_event(session, handle)
    }

    /// A query runs what it asks about, so that a loop around it ends.
    fn cuEventQuery(session, handle: CUevent) {
        wait_for_event(session, handle)
    }

    /// The time is modelled, not measured.
    fn cuEventElapsedTime(session, milliseconds: Out<f32>, start: CUevent, end: CUevent) {
        elapsed(session, milliseconds, start, end)
    }

    /// The time is modelled, not measured.
    fn cuEventElapsedTime_v2(session, milliseconds: Out<f32>, start: CUevent, end: CUevent) {
        elapsed(session, milliseconds, start, end)
    }
}
