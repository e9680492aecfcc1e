//! The kernels: the table that `build.rs` made of `kernels/`, their loading, and the one function that launches.
//!
//! A module is loaded when one of its kernels is first asked for: as machine code where the table has some for this
//! device, else as PTX, which the driver compiles and keeps.

use std::collections::HashMap;
use std::ffi::CString;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys;

use super::driver::{describe, is_late};
use super::matrix::{Value, View};
use super::stream::Stream;
use crate::error::{Error, Result};

/// Kernel table that `build.rs` made of `kernels/`: images, resources and tile sizes.
#[allow(missing_docs, clippy::unreadable_literal)]
pub mod table {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

/// Implementation technique of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Technique {
    /// A thread an entry: slow, and so simple that the others are tested against it.
    Plain,
    /// Tiles through shared memory and f64 multiply-adds; on every device.
    Fma,
    /// Tiles and f64 tensor cores; compute capability 8.0 and up.
    Dmma,
    /// f16 and bf16 tensor cores with f32 sums of 512 rows at a time, for the Gram matrix of those who asked for speed
    /// over digits; and int8 tensor cores with integer sums, for exact ones. Compute capability 8.0 and up.
    Mma,
}

impl Technique {
    /// Returns the name in kernel symbols.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Fma => "fma",
            Self::Dmma => "dmma",
            Self::Mma => "mma",
        }
    }

    /// The fastest one with f64 sums. Consumer devices have the f64 tensor instruction but no units for it.
    pub(super) fn best((major, minor): (i32, i32)) -> Self {
        match (major, minor) {
            (8..=10, 0) => Self::Dmma,
            _ => Self::Fma,
        }
    }

    /// The fastest one with sums of integers.
    pub(super) fn best_exact((major, _): (i32, i32)) -> Self {
        match major {
            8.. => Self::Mma,
            _ => Self::Plain,
        }
    }
}

/// Shared memory that a thread block has without asking for more.
const ASSURED_SHARED: usize = 48 << 10;

/// A kernel argument. All of ours are eight bytes: a pointer, an `int64_t` or a `double`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arg(u64);

impl Arg {
    /// A null pointer, or zero.
    pub(super) const NULL: Self = Self(0);
}

impl<T: Value> From<View<'_, T>> for Arg {
    fn from(view: View<'_, T>) -> Self {
        Self(view.pointer())
    }
}
impl From<usize> for Arg {
    fn from(count: usize) -> Self {
        Self(count as u64)
    }
}
impl From<bool> for Arg {
    fn from(flag: bool) -> Self {
        Self(flag.into())
    }
}
impl From<f64> for Arg {
    fn from(factor: f64) -> Self {
        Self(factor.to_bits())
    }
}

/// Launch geometry: thread blocks, and threads in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    grid: [usize; 3],
    block: [usize; 2],
    shared: usize,
}

impl Geometry {
    pub(super) fn new(grid: [usize; 3], block: [usize; 2]) -> Self {
        let shared = 0;
        Self {
            grid,
            block,
            shared,
        }
    }

    /// The same with so many bytes of dynamic shared memory for each thread block.
    pub(super) fn with_shared(self, bytes: usize) -> Self {
        Self {
            shared: bytes,
            ..self
        }
    }
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([gx, gy, gz], [bx, by]) = (self.grid, self.block);
        write!(f, "{gx}x{gy}x{gz} blocks of {bx}x{by} threads")
    }
}

/// t(t + 1)/2: tiles of a lower triangle of t tiles a side.
pub(super) fn triangle(tiles: usize) -> usize {
    tiles * (tiles + 1) / 2
}

/// Checks a matrix that a kernel is to be given: its shape and, for f64, the alignment that kernels count on.
pub(super) fn require<T: Value>(
    what: &str,
    matrix: &View<'_, T>,
    (rows, cols): (usize, usize),
) -> Result<()> {
    // Two f64 at once.
    let vectors = size_of::<T>() < 8
        || T::NAME != f64::NAME
        || matrix.is_empty()
        || (matrix.pitch().is_multiple_of(2) && matrix.pointer().is_multiple_of(16));
    if (matrix.rows(), matrix.cols()) == (rows, cols) && vectors {
        return Ok(());
    }
    Err(Error::Shape {
        what: what.into(),
        found: format!(
            "{}x{}, pitch {}, at {:#x}",
            matrix.rows(),
            matrix.cols(),
            matrix.pitch(),
            matrix.pointer()
        ),
        expected: format!("{rows}x{cols}, and for f64 an even pitch and a multiple of 16"),
    })
}

/// A launch that has been queued, as errors describe it.
#[derive(Clone, Debug)]
pub(super) struct Launched {
    kernel: String,
    shape: String,
    geometry: Geometry,
}

impl Launched {
    pub(super) fn kernel(&self) -> &str {
        &self.kernel
    }

    pub(super) fn failed(&self, why: String) -> Error {
        Error::Kernel {
            kernel: self.kernel.clone(),
            shape: self.shape.clone(),
            geometry: self.geometry.to_string(),
            why,
        }
    }
}

/// Queues a kernel: the only place that does. `shape` is for the message should it fail.
///
/// # Safety
/// `args` are the kernel's parameters in order, and what they point to has the sizes that it computes from them; all of
/// it stays allocated until the stream has passed.
pub(super) unsafe fn launch(
    stream: &Stream,
    kernel: &str,
    geometry: Geometry,
    shape: &dyn fmt::Display,
    args: &[Arg],
) -> Result<()> {
    let launched = Launched {
        kernel: kernel.to_owned(),
        shape: shape.to_string(),
        geometry,
    };
    let context = stream.context();
    context.bind()?;
    let function = match context.modules().function(kernel) {
        Ok(function) => function,
        Err(why) => return Err(launched.failed(why)),
    };
    let size = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    if geometry.shared > ASSURED_SHARED {
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = i32::try_from(geometry.shared).unwrap_or(i32::MAX);
        // SAFETY: the function belongs to the bound context.
        let code = unsafe { sys::cuFuncSetAttribute(function, attribute, bytes) };
        if code != sys::CUresult::CUDA_SUCCESS {
            return Err(launched.failed(describe(code)));
        }
    }
    let ([gx, gy, gz], [bx, by]) = (geometry.grid.map(size), geometry.block.map(size));
    let mut parameters: Vec<*mut std::ffi::c_void> = args
        .iter()
        .map(|arg| std::ptr::from_ref(&arg.0).cast_mut().cast())
        .collect();
    // SAFETY: the function belongs to the bound context. The driver copies each parameter, of eight bytes, before it
    // returns; that they are the kernel's is the caller's promise.
    let code = unsafe {
        sys::cuLaunchKernel(
            function,
            gx,
            gy,
            gz,
            bx,
            by,
            1,
            size(geometry.shared),
            stream.raw(),
            parameters.as_mut_ptr(),
            std::ptr::null_mut(),
        )
    };
    if code == sys::CUresult::CUDA_SUCCESS || is_late(code) {
        context.remember(launched);
        return context.check(code, "launch a kernel");
    }
    Err(launched.failed(describe(code)))
}

/// The modules of one context.
#[derive(Debug)]
pub(super) struct Modules {
    target: Target,
    loaded: Mutex<Loaded>,
}

/// Architecture that images must fit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// Compute capability of the device.
    pub(super) capability: (i32, i32),
    /// Set if the device runs machine code; a virtual GPU runs PTX only.
    pub(super) machine_code: bool,
}

#[derive(Debug, Default)]
struct Loaded {
    modules: HashMap<&'static str, sys::CUmodule>,
    functions: HashMap<String, sys::CUfunction>,
}

impl Modules {
    /// Finds out whether the kernels run on a device; loads nothing yet.
    pub(super) fn new(target: Target) -> Result<Self, String> {
        if table::MODULES
            .iter()
            .all(|module| image(module, target).is_some())
        {
            return Ok(Self {
                target,
                loaded: Mutex::default(),
            });
        }
        let (major, minor) = target.capability;
        Err(format!(
            "it has compute capability {major}.{minor} and the kernels need 7.5 or newer"
        ))
    }

    /// The driver's handle of a kernel. The caller has bound the context.
    fn function(&self, kernel: &str) -> Result<sys::CUfunction, String> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = loaded.functions.get(kernel) {
            return Ok(*function);
        }
        let stem = kernel.split('_').next().unwrap_or_default();
        let module = table::MODULES
            .iter()
            .find(|module| module.name == stem)
            .ok_or_else(|| format!("there is no kernels/{stem}.cu"))?;
        let handle = match loaded.modules.get(module.name) {
            Some(handle) => *handle,
            None => {
                let handle = load(module, self.target)?;
                loaded.modules.insert(module.name, handle);
                handle
            }
        };
        let name = CString::new(kernel).map_err(|_| "a name with a NUL".to_owned())?;
        let mut function = std::ptr::null_mut();
        // SAFETY: the module was loaded into the bound context, and name and result outlive the call.
        let code = unsafe { sys::cuModuleGetFunction(&mut function, handle, name.as_ptr()) };
        if code != sys::CUresult::CUDA_SUCCESS {
            return Err(format!("not in module {stem}: {}", describe(code)));
        }
        loaded.functions.insert(kernel.to_owned(), function);
        Ok(function)
    }

    /// Unloads all.
    ///
    /// # Safety
    /// Nothing that was launched still runs, nothing will be launched any more, and the context is bound.
    pub(super) unsafe fn unload(&mut self) {
        let loaded = self
            .loaded
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        loaded.functions.clear();
        for (_, module) in loaded.modules.drain() {
            // SAFETY: loaded by `load` and taken off the list; that it is out of use is the caller's promise.
            let _ = unsafe { sys::cuModuleUnload(module) };
        }
    }
}

/// Machine code for the device if there is some, else the newest PTX that it can be made from.
fn image(module: &table::Module, target: Target) -> Option<&'static [u8]> {
    let (major, minor) = target.capability;
    let device = u32::try_from(major * 10 + minor).ok()?;
    // Machine code runs on devices of its own major capability with at least its minor one.
    let newest = |images: &'static [table::Image], fits: &dyn Fn(u32) -> bool| {
        let fitting = images.iter().filter(|image| fits(image.arch));
        fitting
            .max_by_key(|image| image.arch)
            .map(|image| image.bytes)
    };
    newest(module.cubins, &|arch| {
        target.machine_code && arch / 10 == device / 10 && arch <= device
    })
    .or_else(|| newest(module.ptx, &|arch| arch <= device))
}

fn load(module: &table::Module, target: Target) -> Result<sys::CUmodule, String> {
    let bytes = image(module, target).ok_or("no image for this device")?;
    // PTX is text and has to end as C strings do; machine code does not mind.
    let image = [bytes, &[0]].concat();
    let mut handle = std::ptr::null_mut();
    // SAFETY: the image is a whole cubin, or PTX and NUL; the driver copies it; the caller has bound the context.
    let code = unsafe { sys::cuModuleLoadData(&mut handle, image.as_ptr().cast()) };
    if code == sys::CUresult::CUDA_SUCCESS {
        Ok(handle)
    } else {
        Err(format!(
            "module {} was not loaded: {}",
            module.name,
            describe(code)
        ))
    }
}
