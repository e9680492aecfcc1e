//! A device and everything that lives as long as our use of it: its context, its kernels, its pool of memory.
//!
//! There is no global: whoever computes has been handed a [`Context`]. Clones are the same context. It is the device's
//! *primary* context, the one that PyTorch, burn and the CUDA runtime use, so that their pointers and streams work here.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUresult};

use super::driver::{Driver, check, describe, is_late};
use super::module::{Launched, Modules, Target, Technique};
use super::pool::Pool;
use super::stream::Event;
use crate::error::{Error, Result};

/// Properties of the device, as its driver reports them.
#[derive(Clone, Debug, PartialEq)]
pub struct Properties {
    /// Marketing name of the device.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (i32, i32),
    /// Number of streaming multiprocessors (SMs).
    pub multiprocessors: u32,
    /// Core clock in Hz.
    pub clock: f64,
    /// Peak memory bandwidth in bytes a second, from clock and bus width.
    pub bandwidth: f64,
    /// f64 multiply-adds that a multiprocessor starts in a clock.
    pub f64_lanes: u32,
    /// Shared memory that one block may ask for, in bytes.
    pub shared_per_block: u32,
    /// Device memory in bytes.
    pub memory: usize,
}

impl Properties {
    /// Operations a second that the units which a technique uses can do, a multiply-add counted as two.
    pub fn peak(&self, technique: Technique) -> f64 {
        let (major, minor) = self.capability;
        let lanes = match technique {
            Technique::Plain | Technique::Fma => self.f64_lanes,
            // Data-centre devices before Blackwell have twice the rate in their tensor cores.
            Technique::Dmma if minor == 0 && (8..=9).contains(&major) => 2 * self.f64_lanes,
            Technique::Dmma => self.f64_lanes,
            Technique::Mma => half_lanes(self.capability),
        };
        f64::from(self.multiprocessors) * f64::from(lanes) * 2.0 * self.clock
    }
}

/// f64 units of a multiprocessor by compute capability; the driver does not tell. From the tables of arithmetic
/// throughput in the CUDA programming guide.
fn f64_lanes((major, minor): (i32, i32)) -> u32 {
    match (major, minor) {
        (6, 0) | (7, 0) => 32,
        (8, 0) => 32,
        (9, 0) | (10, 0) => 64,
        (6, _) => 4,
        _ => 2,
    }
}

/// f16 multiply-adds with f32 sums that the tensor cores of a multiprocessor do in a clock, dense; from the
/// architectures' white papers.
fn half_lanes((major, minor): (i32, i32)) -> u32 {
    match (major, minor) {
        (8, 0) => 1024,
        (9, 0) => 2048,
        (10, _) => 4096,
        _ => 256,
    }
}

/// A device in use.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    driver: Driver,
    ordinal: usize,
    device: sys::CUdevice,
    raw: sys::CUcontext,
    properties: Properties,
    pool: Pool,
    modules: Modules,
    /// The latest launches, the last one last: a failure that comes to light later is the fault of one of them.
    latest: Mutex<VecDeque<Launched>>,
}

// SAFETY: context and module handles may be used by any thread that has bound the context, which every use here does
// first (`bind`); all that changes is behind mutexes.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({}, {})", self.label(), self.properties().name)
    }
}

impl Context {
    /// Opens device number `ordinal`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when there is no such device or the kernels do not run on it.
    pub fn new(driver: &Driver, ordinal: usize) -> Result<Self> {
        let label = format!("cuda:{ordinal}");
        let devices = driver.devices()?;
        if ordinal >= devices {
            return Err(Error::Unavailable {
                device: label,
                why: match devices {
                    0 => "the driver has no CUDA device".into(),
                    1 => "the driver has one device, cuda:0".into(),
                    n => format!("the driver has {n} devices, cuda:0 to cuda:{}", n - 1),
                },
            });
        }
        let mut device = 0;
        // SAFETY: `ordinal` was found to be in range, and `device` outlives the call.
        let code = unsafe { sys::cuDeviceGet(&mut device, ordinal as i32) };
        check(code, "open a device")?;
        let properties = properties(device)?;
        let target = Target {
            capability: properties.capability,
            machine_code: !driver.is_virtual(),
        };
        let modules =
            Modules::new(target).map_err(|why| Error::Unavailable { device: label, why })?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `device` is the driver's own number; the context that it retains is released in `drop`.
        let code = unsafe { sys::cuDevicePrimaryCtxRetain(&mut raw, device) };
        check(code, "open a device's context")?;
        let inner = Inner {
            driver: driver.clone(),
            ordinal,
            device,
            raw,
            properties,
            pool: Pool::default(),
            modules,
            latest: Mutex::default(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Makes this the context that driver calls of this thread refer to.
    pub(super) fn bind(&self) -> Result<()> {
        // SAFETY: the context was retained in `new` and is released only when the last clone is dropped.
        check(
            unsafe { sys::cuCtxSetCurrent(self.inner.raw) },
            "bind a context",
        )
    }

    /// Marks the end of all that was queued so far on all streams of the context, those of others included.
    pub fn record_all(&self, event: &Event) -> Result<()> {
        self.bind()?;
        // SAFETY: the context is retained and the event is one of its own, live while it is borrowed.
        let code = unsafe { sys::cuCtxRecordEvent(self.inner.raw, event.raw()) };
        self.check(code, "record an event of all streams")
    }

    /// Lets all that is queued from here on, on all streams of the context, wait for what `event` marks.
    pub fn wait_all(&self, event: &Event) -> Result<()> {
        self.bind()?;
        // SAFETY: as in `record_all`.
        let code = unsafe { sys::cuCtxWaitEvent(self.inner.raw, event.raw()) };
        self.check(code, "let all streams wait")
    }

    /// Returns the driver behind it.
    pub fn driver(&self) -> &Driver {
        &self.inner.driver
    }

    /// Returns the number of the device.
    pub fn ordinal(&self) -> usize {
        self.inner.ordinal
    }

    /// Returns the device as `--device` names it.
    pub fn label(&self) -> String {
        format!("cuda:{}", self.inner.ordinal)
    }

    /// Returns the properties of the device.
    pub fn properties(&self) -> &Properties {
        &self.inner.properties
    }

    /// Returns the kernels that are fastest on it among those that keep f64 throughout.
    pub fn technique(&self) -> Technique {
        Technique::best(self.properties().capability)
    }

    /// Returns the kernels that are fastest on it for exact sums.
    pub fn exact_technique(&self) -> Technique {
        Technique::best_exact(self.properties().capability)
    }

    /// Returns the device in a few words; a virtual one has it in its name.
    pub fn describe(&self) -> String {
        let Properties {
            name, capability, ..
        } = self.properties();
        let ((major, minor), label) = (capability, self.label());
        format!("{label}, {name}, compute capability {major}.{minor}")
    }

    /// Returns free and total device memory in bytes; what the pool keeps is not free.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: a context is current, bound above, and both numbers outlive the call.
        let code = unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) };
        check(code, "ask for free memory")?;
        Ok((free, total))
    }

    /// Returns the bytes that the memory pool keeps for reuse.
    pub fn cached_memory(&self) -> usize {
        self.inner.pool.cached()
    }

    /// Gives cached memory back to the driver.
    pub fn trim_memory(&self) -> Result<()> {
        self.bind()?;
        self.inner.pool.trim();
        Ok(())
    }

    /// Turns what a driver function returned into an error: a kernel's, where the code says that one failed earlier.
    pub(super) fn check(&self, code: CUresult, doing: &'static str) -> Result<()> {
        if !is_late(code) {
            return check(code, doing);
        }
        let mut latest = self.latest().clone();
        let Some(last) = latest.pop_back() else {
            return check(code, doing);
        };
        let before: Vec<&str> = latest.iter().rev().map(Launched::kernel).collect();
        let mut why = describe(code);
        if !before.is_empty() {
            why.push_str("; it came to light later, so it may be one of those before it: ");
            why.push_str(&before.join(", "));
        }
        Err(last.failed(why))
    }

    /// Remembers a launch, for the message should it turn out to have failed.
    pub(super) fn remember(&self, launched: Launched) {
        const KEPT: usize = 4;
        let mut latest = self.latest();
        if latest.len() == KEPT {
            latest.pop_front();
        }
        latest.push_back(launched);
    }

    fn latest(&self) -> MutexGuard<'_, VecDeque<Launched>> {
        self.inner
            .latest
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    pub(super) fn modules(&self) -> &Modules {
        &self.inner.modules
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: this is the last use of the context retained in `new`: streams, events and blocks hold a clone each
        // and are gone. Errors are those of a driver that is shutting down and change nothing.
        unsafe {
            let _ = sys::cuCtxSetCurrent(self.raw);
            self.modules.unload();
            self.pool.trim();
            let _ = sys::cuDevicePrimaryCtxRelease_v2(self.device);
        }
    }
}

fn properties(device: sys::CUdevice) -> Result<Properties> {
    let attribute = |which: Attribute| -> Result<i32> {
        let mut value = 0;
        // SAFETY: the device number is the driver's own, and `value` outlives the call.
        let code = unsafe { sys::cuDeviceGetAttribute(&mut value, which, device) };
        check(code, "ask a device for a property")?;
        Ok(value)
    };
    let mut name = [0_u8; 256];
    let mut memory = 0;
    // SAFETY: the buffer has the length that is passed, and both outlive the calls.
    unsafe {
        let code = sys::cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as i32, device);
        check(code, "ask a device for its name")?;
        check(
            sys::cuDeviceTotalMem_v2(&mut memory, device),
            "ask a device for its memory",
        )?;
    }
    let name = std::ffi::CStr::from_bytes_until_nul(&name).map_or_else(
        |_| "unnamed".into(),
        |text| text.to_string_lossy().into_owned(),
    );
    let capability = (
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    );
    let positive = |value: i32| u32::try_from(value).unwrap_or(0);
    let kilohertz = |value: i32| f64::from(value) * 1e3;
    let bus_bytes = f64::from(attribute(
        Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,
    )?) / 8.0;
    Ok(Properties {
        name,
        capability,
        multiprocessors: positive(attribute(
            Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
        )?),
        clock: kilohertz(attribute(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?),
        // Two transfers a clock.
        bandwidth: 2.0
            * bus_bytes
            * kilohertz(attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?),
        f64_lanes: f64_lanes(capability),
        shared_per_block: positive(attribute(
            Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        )?),
        memory,
    })
}
