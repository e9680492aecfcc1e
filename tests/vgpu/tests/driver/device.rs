//! The driver as the tests use it: one at a time, with a context, and with short names.

use std::{
    ffi::{CStr, CString, c_void},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;
use vgpu::driver::{
    abi::{CUcontext, CUevent, CUfunction, CUmodule, CUresult, CUstream, In, Out},
    context::*,
    devices::*,
    launch::*,
    memory::*,
    modules::*,
    report::*,
    streams::*,
    transfer::*,
};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Doubles and adds: `scale(float *x, float a, u32 n)`; `add(float *to, float *from, u32 n)`; `reach(float *x)`
/// writes past any allocation.
pub(crate) const PTX: &CStr = c"
.version 8.0
.target sm_75
.address_size 64

.visible .global .align 4 .u32 counter = 7;

.visible .entry scale(.param .u64 x, .param .f32 a, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .f32 %f<4>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [x];
    ld.param.f32 %f1, [a];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r5, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.f32 %f2, [%rd4];
    mul.f32 %f3, %f2, %f1;
    st.global.f32 [%rd4], %f3;
DONE:
    ret;
}

.visible .entry add(.param .u64 to, .param .u64 from, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .f32 %f<4>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [from];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    cvta.to.global.u64 %rd3, %rd1;
    cvta.to.global.u64 %rd4, %rd2;
    mul.wide.u32 %rd5, %r5, 4;
    add.s64 %rd6, %rd3, %rd5;
    add.s64 %rd7, %rd4, %rd5;
    ld.global.f32 %f1, [%rd6];
    ld.global.f32 %f2, [%rd7];
    add.f32 %f3, %f1, %f2;
    st.global.f32 [%rd6], %f3;
DONE:
    ret;
}

.visible .entry reach(.param .u64 x)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, 1;
    st.global.u32 [%rd2+524288], %r1;
    ret;
}
";

/// Calls a driver function and expects success.
macro_rules! ok {
    ($call:expr) => {{
        // SAFETY: the tests pass live memory of the size they say.
        let code = unsafe { $call };
        assert_eq!(
            code,
            vgpu::driver::abi::CUresult::SUCCESS,
            stringify!($call)
        );
    }};
}

/// Calls a driver function and expects a failure.
macro_rules! fails {
    ($code:ident, $call:expr) => {{
        // SAFETY: as for `ok!`.
        let code = unsafe { $call };
        assert_eq!(code, vgpu::driver::abi::CUresult::$code, stringify!($call));
    }};
}

pub(crate) use {fails, ok};

/// A fresh device with a current context, for as long as the value lives.
pub(crate) struct Device {
    _alone: MutexGuard<'static, ()>,
    pub(crate) context: CUcontext,
}

impl Device {
    pub(crate) fn new() -> Self {
        Self::configured("{}")
    }

    pub(crate) fn configured(settings: &str) -> Self {
        let mut device = Self {
            _alone: alone(),
            context: CUcontext::default(),
        };
        configure(settings);
        ok!(cuInit(0));
        ok!(cuDevicePrimaryCtxRetain(Out::from(&mut device.context), 0));
        ok!(cuCtxSetCurrent(device.context));
        device
    }

    pub(crate) fn alloc(&self, floats: usize) -> u64 {
        let mut address = 0;
        ok!(cuMemAlloc_v2(Out::from(&mut address), 4 * floats));
        address
    }

    pub(crate) fn alloc_on(&self, stream: CUstream, floats: usize) -> u64 {
        let mut address = 0;
        ok!(cuMemAllocAsync(Out::from(&mut address), 4 * floats, stream));
        address
    }

    /// Device memory with content, known to everybody.
    pub(crate) fn upload(&self, values: &[f32]) -> u64 {
        let address = self.alloc(values.len());
        ok!(cuMemcpyHtoD_v2(
            address,
            values.as_ptr() as usize,
            4 * values.len()
        ));
        ok!(cuCtxSynchronize());
        address
    }

    pub(crate) fn pinned(&self, values: &[f32]) -> Pinned {
        let mut address = 0;
        ok!(cuMemHostAlloc(Out::from(&mut address), 4 * values.len(), 0));
        let mut pinned = Pinned {
            address,
            floats: values.len(),
        };
        pinned.set(values);
        pinned
    }

    pub(crate) fn stream(&self) -> CUstream {
        let mut stream = CUstream::default();
        ok!(cuStreamCreate(Out::from(&mut stream), 1));
        stream
    }

    pub(crate) fn blocking_stream(&self) -> CUstream {
        let mut stream = CUstream::default();
        ok!(cuStreamCreate(Out::from(&mut stream), 0));
        stream
    }

    pub(crate) fn event(&self) -> CUevent {
        let mut event = CUevent::default();
        ok!(cuEventCreate(Out::from(&mut event), 0));
        event
    }

    /// An event recorded now on a stream.
    pub(crate) fn recorded(&self, stream: CUstream) -> CUevent {
        let event = self.event();
        ok!(cuEventRecord(event, stream));
        event
    }

    /// The second stream waits for all that the first has now.
    pub(crate) fn order(&self, before: CUstream, after: CUstream) {
        ok!(cuStreamWaitEvent(after, self.recorded(before), 0));
    }

    pub(crate) fn download(&self, address: u64, floats: usize, stream: CUstream) -> Vec<f32> {
        let mut values = vec![f32::NAN; floats];
        ok!(cuMemcpyDtoHAsync_v2(
            values.as_mut_ptr() as usize,
            address,
            4 * floats,
            stream
        ));
        values
    }

    pub(crate) fn module(&self) -> CUmodule {
        let mut module = CUmodule::default();
        ok!(cuModuleLoadData(Out::from(&mut module), bytes_of(PTX)));
        module
    }

    pub(crate) fn function(&self, module: CUmodule, name: &CStr) -> CUfunction {
        let mut function = CUfunction::default();
        ok!(cuModuleGetFunction(
            Out::from(&mut function),
            module,
            In::from(name)
        ));
        function
    }

    pub(crate) fn kernels(&self) -> Kernels {
        let module = self.module();
        let of = |name| self.function(module, name);
        Kernels {
            scale: of(c"scale"),
            add: of(c"add"),
            reach: of(c"reach"),
        }
    }

    pub(crate) fn report(&self) -> Value {
        take_json(vgpuReport())
    }

    /// Kinds of all findings.
    pub(crate) fn kinds(&self) -> Vec<String> {
        let report = self.report();
        let findings = report["findings"].as_array().unwrap();
        findings
            .iter()
            .map(|f| f["kind"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Everything runs, and exactly this was found.
    #[track_caller]
    pub(crate) fn expect(&self, kinds: &[&str]) {
        // SAFETY: no arguments.
        let _ = unsafe { cuCtxSynchronize() };
        assert_eq!(self.kinds(), kinds, "{:#}", self.report()["findings"]);
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: no arguments; nothing of the test is used any more.
        let _ = unsafe { vgpuReset() };
    }
}

/// A text of the driver, as JSON.
pub(crate) fn take_json(text: *mut std::ffi::c_char) -> Value {
    assert!(!text.is_null());
    // SAFETY: the driver returned a text with its end mark, which is given back once.
    unsafe {
        let value = serde_json::from_slice(CStr::from_ptr(text).to_bytes()).unwrap();
        vgpuFree(text);
        value
    }
}

/// Waits until no other test uses the driver, and starts it anew.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    ok!(vgpuReset());
    guard
}

pub(crate) fn configure(settings: &str) {
    let text = CString::new(settings).unwrap();
    ok!(vgpuConfigure(In::from(text.as_c_str())));
}

/// The bytes of a text, as an image of a module.
pub(crate) fn bytes_of(text: &CStr) -> In<u8> {
    In::from(text.to_bytes_with_nul())
}

/// Page-locked memory; not given back at its end, since some tests do that themselves.
pub(crate) struct Pinned {
    pub(crate) address: usize,
    floats: usize,
}

impl Pinned {
    pub(crate) fn set(&mut self, values: &[f32]) {
        assert_eq!(values.len(), self.floats);
        // SAFETY: the driver allocated this many floats, page-aligned.
        unsafe {
            std::ptr::copy_nonoverlapping(values.as_ptr(), self.address as *mut f32, self.floats)
        };
    }

    pub(crate) fn get(&self) -> Vec<f32> {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.address as *const f32, self.floats) }.to_vec()
    }
}

pub(crate) struct Kernels {
    pub(crate) scale: CUfunction,
    pub(crate) add: CUfunction,
    pub(crate) reach: CUfunction,
}

impl Kernels {
    pub(crate) fn scale(&self, stream: CUstream, x: u64, a: f32, n: u32) {
        let pointers = [addr(&x), addr(&a), addr(&n)];
        ok!(launch(self.scale, n.div_ceil(128), 128, stream, &pointers));
    }

    pub(crate) fn add(&self, stream: CUstream, to: u64, from: u64, n: u32) {
        let pointers = [addr(&to), addr(&from), addr(&n)];
        ok!(launch(self.add, n.div_ceil(128), 128, stream, &pointers));
    }

    pub(crate) fn reach(&self, stream: CUstream, x: u64) {
        ok!(launch(self.reach, 1, 1, stream, &[addr(&x)]));
    }
}

/// Address of a kernel argument.
pub(crate) fn addr<T>(value: &T) -> usize {
    std::ptr::from_ref(value) as usize
}

/// # Safety
/// `pointers` hold the addresses of live arguments of the kernel.
pub(crate) unsafe fn launch(
    function: CUfunction,
    blocks: u32,
    threads: u32,
    stream: CUstream,
    pointers: &[usize],
) -> CUresult {
    let pointers = In::from(pointers);
    // SAFETY: the caller's promise.
    unsafe {
        cuLaunchKernel(
            function,
            blocks,
            1,
            1,
            threads,
            1,
            1,
            0,
            stream,
            pointers,
            In::null(),
        )
    }
}

/// A host function that adds one to a counter.
pub(crate) extern "C" fn count(data: *mut c_void) {
    // SAFETY: the tests pass a counter that outlives the stream's work.
    let counter = unsafe { &*data.cast::<std::sync::atomic::AtomicU32>() };
    counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
}
