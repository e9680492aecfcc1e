//! The C interface that `include/muso.h` declares and documents: [`interop`], with handles and codes.
//!
//! Built into a shared library by `cargo rustc --lib --crate-type cdylib --no-default-features --features capi`. The
//! crate type is given on the command line and not in the manifest: there it would cost every build of the library and
//! of the program one more link, and a program that depends on this crate would carry the exported symbols.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{self, CUstream};

use super::interop::{self, RawMatrix};
use super::{Context, Driver, Staging, Stream};
use crate::engine::exact::{ExactSpec, Grid};
use crate::engine::{ExactOnDevice, SumsSpec, Targets};
use crate::error::{Error, Result};
use crate::matrix::Dtype;

const OK: c_int = 0;
const BAD_ARGUMENT: c_int = 1;
const UNAVAILABLE: c_int = 2;
const NOT_POSITIVE_DEFINITE: c_int = 3;
const OUT_OF_MEMORY: c_int = 4;
const DEVICE_FAILURE: c_int = 5;
const INTERNAL: c_int = 6;

/// `muso_matrix` of muso.h: a row-major matrix in device memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MusoMatrix {
    pointer: u64,
    rows: i64,
    cols: i64,
    pitch: i64,
    dtype: i32,
}

/// `muso_context` of muso.h: an open device.
#[derive(Debug)]
pub struct MusoContext {
    context: Context,
    staging: Staging,
    /// Streams seen so far, so that the memory that is kept for each survives the call.
    streams: Mutex<HashMap<usize, Stream>>,
}

/// `muso_cholesky` of muso.h: a Cholesky factor.
#[derive(Debug)]
pub struct MusoCholesky {
    factor: interop::Factor,
}

/// `muso_exact` of muso.h: exact sums in progress.
pub struct MusoExact {
    sums: ExactOnDevice,
    stream: Stream,
}

/// `muso_wide` of muso.h: an integer of 128 bits.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MusoWide {
    low: u64,
    high: i64,
}

/// `muso_exact_counts` of muso.h: what is known of the rows beside their sums.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MusoExactCounts {
    rows: u64,
    beyond: u64,
    moved: u64,
    largest_move: f64,
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Runs a function's body, with the caller's current context restored, and turns its outcome into a code.
fn call(body: impl FnOnce() -> Result<()>) -> c_int {
    let (code, message) = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return OK,
        Ok(Err(error)) => (code_of(&error), error.to_string()),
        Err(_) => (
            INTERNAL,
            "a fault in muso; standard error says more".to_owned(),
        ),
    };
    let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
    LAST_ERROR.with(|last| *last.borrow_mut() = message);
    code
}

fn code_of(error: &Error) -> c_int {
    match error {
        Error::Unavailable { .. } => UNAVAILABLE,
        Error::NotPositiveDefinite { .. } => NOT_POSITIVE_DEFINITE,
        Error::DeviceMemory { .. } => OUT_OF_MEMORY,
        Error::Kernel { .. } | Error::Driver { .. } => DEVICE_FAILURE,
        _ => BAD_ARGUMENT,
    }
}

/// The context that is current to this thread, made so again when this is dropped.
struct Current(sys::CUcontext);

impl Current {
    /// A driver has been loaded: whoever calls this holds a context.
    fn keep() -> Self {
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` outlives the call; a failure leaves it null.
        let _ = unsafe { sys::cuCtxGetCurrent(&mut raw) };
        Self(raw)
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        // SAFETY: the context was current when this was made, or none was.
        let _ = unsafe { sys::cuCtxSetCurrent(self.0) };
    }
}

fn missing(name: &'static str) -> Error {
    Error::Missing {
        name,
        expected: "a pointer that is not null".into(),
    }
}

impl MusoMatrix {
    fn raw(self, name: &'static str) -> Result<RawMatrix> {
        let size = |value: i64| {
            usize::try_from(value).map_err(|_| Error::Parameter {
                name,
                value: value.to_string(),
                expected: "rows, cols and pitch of 0 or more".into(),
            })
        };
        let dtype = match self.dtype {
            0 => Dtype::F16,
            1 => Dtype::Bf16,
            2 => Dtype::F32,
            3 => Dtype::F64,
            other => {
                return Err(Error::Parameter {
                    name,
                    value: format!("dtype {other}"),
                    expected: "MUSO_F16, MUSO_BF16, MUSO_F32 or MUSO_F64".into(),
                });
            }
        };
        Ok(RawMatrix {
            pointer: self.pointer,
            rows: size(self.rows)?,
            cols: size(self.cols)?,
            pitch: size(self.pitch)?,
            dtype,
        })
    }
}

impl MusoContext {
    /// # Safety
    /// `stream` is as the header asks.
    unsafe fn stream(&self, stream: CUstream) -> Stream {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams
            .entry(stream as usize)
            // SAFETY: the header asks for a stream of the primary context that lives until it is forgotten.
            .or_insert_with(|| unsafe { Stream::from_raw(&self.context, stream) })
            .clone()
    }
}

/// Runs a body with a context and a stream of the caller's.
///
/// # Safety
/// `context` is null or from `muso_context_create` and not yet destroyed; `stream` is as the header asks.
unsafe fn with_stream(
    context: *const MusoContext,
    stream: CUstream,
    body: impl FnOnce(&MusoContext, &Stream) -> Result<()>,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let context = unsafe { context.as_ref() }.ok_or_else(|| missing("context"))?;
        let _current = Current::keep();
        // SAFETY: the caller's promise.
        let stream = unsafe { context.stream(stream) };
        body(context, &stream)
    })
}

/// `muso_last_error` of muso.h: the message of this thread's last failed call.
#[unsafe(no_mangle)]
pub extern "C" fn muso_last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ptr())
}

/// `muso_context_create` of muso.h: opens a device.
///
/// # Safety
/// `out` is null or points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn muso_context_create(device: c_int, out: *mut *mut MusoContext) -> c_int {
    call(|| {
        if out.is_null() {
            return Err(missing("context"));
        }
        let ordinal = usize::try_from(device).map_err(|_| Error::Parameter {
            name: "device",
            value: device.to_string(),
            expected: "0 or more".into(),
        })?;
        let driver = Driver::from_environment()?;
        let _current = Current::keep();
        let context = Context::new(&driver, ordinal)?;
        let made = Box::new(MusoContext {
            staging: Staging::new(&context),
            context,
            streams: Mutex::default(),
        });
        // SAFETY: not null, and the header asks for a pointer to a pointer.
        unsafe { *out = Box::into_raw(made) };
        Ok(())
    })
}

/// `muso_context_destroy` of muso.h: closes a device.
///
/// # Safety
/// `context` is null or from `muso_context_create`, is destroyed once, and no call uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn muso_context_destroy(context: *mut MusoContext) {
    if !context.is_null() {
        call(|| {
            let _current = Current::keep();
            // SAFETY: made by `Box::into_raw` in `muso_context_create`; the rest is the caller's promise.
            drop(unsafe { Box::from_raw(context) });
            Ok(())
        });
    }
}

/// `muso_stream_forget` of muso.h: drops what is kept for a stream.
///
/// # Safety
/// `context` is null or from `muso_context_create` and not yet destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn muso_stream_forget(context: *mut MusoContext, stream: CUstream) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let context = unsafe { context.as_ref() }.ok_or_else(|| missing("context"))?;
        let _current = Current::keep();
        let mut streams = context
            .streams
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        streams.remove(&(stream as usize));
        Ok(())
    })
}

/// `muso_gram_update` of muso.h: G += sign · ZᵀZ (SYRK).
///
/// # Safety
/// The contract of `include/muso.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn muso_gram_update(
    context: *mut MusoContext,
    stream: CUstream,
    rows: MusoMatrix,
    bias: c_int,
    sign: f64,
    gram: MusoMatrix,
) -> c_int {
    let body = |_: &MusoContext, stream: &Stream| {
        let (rows, gram) = (rows.raw("rows")?, gram.raw("gram")?);
        // SAFETY: the caller's promise is that of `interop`.
        unsafe { interop::gram_update(stream, rows, bias != 0, sign, gram) }
    };
    // SAFETY: the caller's promise.
    unsafe { with_stream(context, stream, body) }
}

/// `muso_factor` of muso.h: the Cholesky factor of A + ridge·I.
///
/// # Safety
/// The contract of `include/muso.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn muso_factor(
    context: *mut MusoContext,
    stream: CUstream,
    matrix: MusoMatrix,
    ridge: f64,
    out: *mut *mut MusoCholesky,
) -> c_int {
    let body = |context: &MusoContext, stream: &Stream| {
        if out.is_null() {
            return Err(missing("factor"));
        }
        let matrix = matrix.raw("matrix")?;
        // SAFETY: the caller's promise is that of `interop`.
        let factor = unsafe { interop::factor(stream, &context.staging, matrix, ridge)? };
        // SAFETY: not null, and the header asks for a pointer to a pointer.
        unsafe { *out = Box::into_raw(Box::new(MusoCholesky { factor })) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { with_stream(context, stream, body) }
}

/// `muso_factor_destroy` of muso.h: frees a factor.
///
/// # Safety
/// `factor` is null or from `muso_factor`, is destroyed once and before its context, and no call uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn muso_factor_destroy(factor: *mut MusoCholesky) {
    if !factor.is_null() {
        call(|| {
            let _current = Current::keep();
            // SAFETY: made by `Box::into_raw` in `muso_factor`; the rest is the caller's promise.
            drop(unsafe { Box::from_raw(factor) });
            Ok(())
        });
    }
}

/// `muso_solve` of muso.h: X ← (A + ridge·I)⁻¹ X.
///
/// # Safety
/// The contract of `include/muso.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn muso_solve(
    context: *mut MusoContext,
    stream: CUstream,
    factor: *const MusoCholesky,
    rhs: MusoMatrix,
) -> c_int {
    let body = |_: &MusoContext, stream: &Stream| {
        // SAFETY: null or from `muso_factor`, by the header.
        let factor = unsafe { factor.as_ref() }.ok_or_else(|| missing("factor"))?;
        // SAFETY: the caller's promise is that of `interop`.
        unsafe { interop::solve(stream, &factor.factor, rhs.raw("rhs")?) }
    };
    // SAFETY: the caller's promise.
    unsafe { with_stream(context, stream, body) }
}

/// `muso_project` of muso.h: Y = Z W (GEMM).
///
/// # Safety
/// The contract of `include/muso.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn muso_project(
    context: *mut MusoContext,
    stream: CUstream,
    rows: MusoMatrix,
    weights: MusoMatrix,
    out: MusoMatrix,
) -> c_int {
    let body = |_: &MusoContext, stream: &Stream| {
        let (rows, weights, out) = (rows.raw("rows")?, weights.raw("weights")?, out.raw("out")?);
        // SAFETY: the caller's promise is that of `interop`.
        unsafe { interop::project(stream, rows, weights, out) }
    };
    // SAFETY: the caller's promise.
    unsafe { with_stream(context, stream, body) }
}

/// `muso_exact_create` of muso.h: starts exact sums.
///
/// # Safety
/// The contract of `include/muso.h`; `exponents` is null or points to `features` integers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn muso_exact_create(
    context: *mut MusoContext,
    stream: CUstream,
    bits: c_int,
    exponents: *const i32,
    features: i64,
    bias: c_int,
    classes: i64,
    out: *mut *mut MusoExact,
) -> c_int {
    let body = |context: &MusoContext, stream: &Stream| {
        if out.is_null() {
            return Err(missing("exact"));
        }
        if exponents.is_null() {
            return Err(missing("exponents"));
        }
        let count = |name: &'static str, value: i64| {
            usize::try_from(value).map_err(|_| Error::Parameter {
                name,
                value: value.to_string(),
                expected: "0 or more".into(),
            })
        };
        let (features, targets) = (count("features", features)?, count("classes", classes)?);
        // SAFETY: not null, and the header asks for `features` integers.
        let exponents = unsafe { std::slice::from_raw_parts(exponents, features) }.to_vec();
        let bits = u32::try_from(bits).unwrap_or_default();
        let spec = ExactSpec {
            sums: SumsSpec {
                features,
                bias: bias != 0,
                targets,
            },
            classes: true,
            grid: Arc::new(Grid::new(bits, exponents, Vec::new())?),
            setters: false,
        };
        let sums = ExactOnDevice::new(stream, &context.staging, &spec)?;
        let stream = stream.clone();
        // SAFETY: not null, and the header asks for a pointer to a pointer.
        unsafe { *out = Box::into_raw(Box::new(MusoExact { sums, stream })) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { with_stream(context, stream, body) }
}

/// Runs a body with a context and exact sums of the caller's.
///
/// # Safety
/// `context` is null or from `muso_context_create` and not yet destroyed; `exact` is null or from `muso_exact_create` with
/// it, not yet destroyed, and no other call uses it meanwhile.
unsafe fn with_exact(
    context: *const MusoContext,
    exact: *mut MusoExact,
    body: impl FnOnce(&MusoContext, &mut MusoExact) -> Result<()>,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let context = unsafe { context.as_ref() }.ok_or_else(|| missing("context"))?;
        // SAFETY: the caller's promise.
        let exact = unsafe { exact.as_mut() }.ok_or_else(|| missing("exact"))?;
        let _current = Current::keep();
        body(context, exact)
    })
}

/// `muso_exact_update` of muso.h: adds rows.
///
/// # Safety
/// The contract of `include/muso.h`; `classes` is null or points to an integer for each row, on the host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn muso_exact_update(
    context: *mut MusoContext,
    exact: *mut MusoExact,
    rows: MusoMatrix,
    classes: *const i64,
) -> c_int {
    let body = |context: &MusoContext, exact: &mut MusoExact| {
        let rows = rows.raw("rows")?;
        let targets = match classes.is_null() {
            true => Targets::None,
            // SAFETY: not null, and the header asks for one a row.
            false => Targets::Classes(unsafe { std::slice::from_raw_parts(classes, rows.rows) }),
        };
        let MusoExact { sums, stream } = exact;
        sums.push(rows.rows, targets, |sums, targets| {
            // SAFETY: the caller's promise is that of `interop`.
            unsafe { interop::exact_update(stream, &context.staging, sums, rows, targets) }
        })
    };
    // SAFETY: the caller's promise.
    unsafe { with_exact(context, exact, body) }
}

/// `muso_exact_download` of muso.h: brings the sums to the host.
///
/// # Safety
/// The contract of `include/muso.h`; the three are null or point to as much as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn muso_exact_download(
    context: *mut MusoContext,
    exact: *mut MusoExact,
    gram: *mut MusoWide,
    cross: *mut MusoWide,
    counts: *mut MusoExactCounts,
) -> c_int {
    let body = |context: &MusoContext, exact: &mut MusoExact| {
        let (sums, seen) = exact.sums.fetch(&exact.stream, &context.staging)?;
        for (to, values) in [(gram, &sums.gram), (cross, &sums.cross)] {
            for (n, &value) in values.iter().enumerate().filter(|_| !to.is_null()) {
                let (low, high) = (value as u64, (value >> 64) as i64);
                // SAFETY: not null, and the header asks for as many as there are sums.
                unsafe { to.add(n).write(MusoWide { low, high }) };
            }
        }
        if !counts.is_null() {
            let found = MusoExactCounts {
                rows: sums.rows,
                beyond: sums.beyond,
                moved: sums.moved,
                largest_move: seen.largest_move,
            };
            // SAFETY: not null, and the header asks for a struct.
            unsafe { counts.write(found) };
        }
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { with_exact(context, exact, body) }
}

/// `muso_exact_destroy` of muso.h: frees exact sums.
///
/// # Safety
/// `exact` is null or from `muso_exact_create`, is destroyed once and before its context, and no call uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn muso_exact_destroy(exact: *mut MusoExact) {
    if !exact.is_null() {
        call(|| {
            let _current = Current::keep();
            // SAFETY: made by `Box::into_raw` in `muso_exact_create`; the rest is the caller's promise.
            drop(unsafe { Box::from_raw(exact) });
            Ok(())
        });
    }
}
