//! Streams and events: what runs in order, and how one order waits for another.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys;

use super::context::Context;
use crate::error::Result;

/// A queue of work on the device. Clones are the same queue.
#[derive(Clone)]
pub struct Stream {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
    raw: sys::CUstream,
    /// Ours to destroy; a stream of an integrator's is not.
    owned: bool,
}

// SAFETY: a CUstream is a handle that the driver lets any thread use at any time; `raw` is never changed.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:p})", self.inner.raw)
    }
}

impl Stream {
    /// Creates a stream that does not wait for the default one.
    pub fn new(context: &Context) -> Result<Self> {
        context.bind()?;
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: a context is current, bound above, and `raw` outlives the call.
        let code = unsafe { sys::cuStreamCreate(&mut raw, flags) };
        context.check(code, "create a stream")?;
        Ok(Self::wrap(context, raw, true))
    }

    /// Wraps someone else's stream, which stays theirs.
    ///
    /// # Safety
    /// `raw` is a stream of the device's primary context, or null for its default stream, and outlives every clone.
    pub unsafe fn from_raw(context: &Context, raw: sys::CUstream) -> Self {
        Self::wrap(context, raw, false)
    }

    fn wrap(context: &Context, raw: sys::CUstream, owned: bool) -> Self {
        let inner = Inner {
            context: context.clone(),
            raw,
            owned,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Returns the context it belongs to.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Returns the driver's handle, valid while a clone of this stream lives.
    pub fn raw(&self) -> sys::CUstream {
        self.inner.raw
    }

    /// Waits on the host until all work queued so far is done.
    ///
    /// # Errors
    /// [`Kernel`](crate::Error::Kernel) when one failed, with the last that was launched.
    pub fn synchronize(&self) -> Result<()> {
        self.context().bind()?;
        // SAFETY: `raw` is a live stream of the context that was bound.
        let code = unsafe { sys::cuStreamSynchronize(self.raw()) };
        self.context().check(code, "wait for a stream")
    }

    /// Marks the end of the work queued so far.
    pub fn record(&self, event: &Event) -> Result<()> {
        self.context().bind()?;
        // SAFETY: event and stream are live and of one context, by the constructors of both.
        let code = unsafe { sys::cuEventRecord(event.raw, self.raw()) };
        self.context().check(code, "record an event")
    }

    /// Lets work queued from here on wait for what `event` marks.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.context().bind()?;
        // SAFETY: as in `record`.
        let code = unsafe { sys::cuStreamWaitEvent(self.raw(), event.raw, 0) };
        self.context().check(code, "let a stream wait")
    }

    /// Lets work queued from here on wait for what `other` has queued so far; `event` marks the place.
    pub fn follow(&self, other: &Self, event: &Event) -> Result<()> {
        other.record(event)?;
        self.wait(event)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Nothing can be done about a driver that refuses, and a failed kernel has been reported where it was waited for.
        let _ = self.context.bind();
        self.context.pool().forget_stream(self.raw);
        if self.owned {
            // SAFETY: this is the last clone; the driver finishes queued work before it frees the stream.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.raw) };
        }
    }
}

/// A point in a stream.
pub struct Event {
    context: Context,
    raw: sys::CUevent,
}

// SAFETY: a CUevent is a handle that the driver lets any thread use at any time.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:p})", self.raw)
    }
}

impl Event {
    /// Creates an event for ordering, without a time.
    pub fn new(context: &Context) -> Result<Self> {
        Self::with(context, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    /// Creates an event that records when it was reached.
    pub fn timed(context: &Context) -> Result<Self> {
        Self::with(context, sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    fn with(context: &Context, flags: sys::CUevent_flags) -> Result<Self> {
        context.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a context is current, bound above, and `raw` outlives the call.
        let code = unsafe { sys::cuEventCreate(&mut raw, flags as u32) };
        context.check(code, "create an event")?;
        Ok(Self {
            context: context.clone(),
            raw,
        })
    }

    /// Returns whether the event is reached, or was never recorded. After a failed kernel too: nothing more will happen
    /// then.
    pub fn is_reached(&self) -> bool {
        if self.context.bind().is_err() {
            return true;
        }
        // SAFETY: `raw` is live: only `drop` destroys it.
        let code = unsafe { sys::cuEventQuery(self.raw) };
        code != sys::CUresult::CUDA_ERROR_NOT_READY
    }

    pub(super) fn raw(&self) -> sys::CUevent {
        self.raw
    }

    /// Waits on the host until it is reached; at once when it was never recorded.
    pub fn synchronize(&self) -> Result<()> {
        self.context.bind()?;
        // SAFETY: `raw` is live: only `drop` destroys it.
        let code = unsafe { sys::cuEventSynchronize(self.raw) };
        self.context.check(code, "wait for an event")
    }

    /// Returns the seconds from `start` to this event; both must be timed and reached.
    pub fn seconds_since(&self, start: &Self) -> Result<f64> {
        self.context.bind()?;
        let mut milliseconds = 0.0_f32;
        // SAFETY: both events are live, and `milliseconds` outlives the call.
        let code = unsafe { sys::cuEventElapsedTime_v2(&mut milliseconds, start.raw, self.raw) };
        self.context.check(code, "read an event's time")?;
        Ok(f64::from(milliseconds) * 1e-3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: the only owner goes; the driver keeps what queued work still needs of it.
        let _ = unsafe { sys::cuEventDestroy_v2(self.raw) };
    }
}
