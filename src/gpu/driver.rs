//! The driver library: found, loaded and old enough to know our calls, or one sentence that says why not.
//!
//! `cudarc` panics when the library or one of its functions is missing. Holding a [`Driver`] is the proof that neither
//! can happen: it exists only after the library was loaded, initialised and found recent enough, and every other type
//! of this module is reached through it.

use std::ffi::{CStr, CString, c_char};
use std::path::{Path, PathBuf};

use cudarc::driver::sys::{self, CUresult};

use crate::error::{Error, Result};

/// The oldest driver that can run what `nvcc` made of the kernels, as the driver numbers itself: 1000 × major + 10 ×
/// minor. A driver runs PTX and cubins of its own major version; it refuses those of a newer one.
const OLDEST: i32 = super::module::table::TOOLKIT.0 * 1000;

/// Extensions of a virtual GPU to the driver API: its report as JSON text, the function that frees such a text, and one
/// that changes its settings.
#[derive(Clone, Copy, Debug)]
struct Virtual {
    report: unsafe extern "C" fn() -> *mut c_char,
    free: unsafe extern "C" fn(*mut c_char),
    configure: unsafe extern "C" fn(*const c_char) -> CUresult,
}

/// A loaded CUDA driver.
#[derive(Clone, Debug)]
pub struct Driver {
    version: i32,
    /// Extensions of a virtual GPU; `None` for a real one.
    virtual_device: Option<Virtual>,
}

impl Driver {
    /// Loads the driver that the environment names: the library at `MUSO_VGPU` if that is set, else the system's.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn from_environment() -> Result<Self> {
        let library = std::env::var_os("MUSO_VGPU").filter(|path| !path.is_empty());
        Self::load(library.as_ref().map(Path::new))
    }

    /// Loads the driver: the system's, or the library at `library`, which must answer to the name `libcuda.so`.
    ///
    /// A process has one driver: the first that was loaded.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when there is none, it cannot start, or it is too old for the kernels of this build.
    pub fn load(library: Option<&Path>) -> Result<Self> {
        if let Some(path) = library {
            preload(path)?;
        }
        // SAFETY: loads the libraries that carry the driver's name, as any CUDA program does at its start.
        if !unsafe { sys::is_culib_present() } {
            return Err(unavailable("no NVIDIA driver was found on this machine"));
        }
        if let Some(path) = library {
            check_loaded(path)?;
        }
        let mut version = 0;
        // SAFETY: both functions exist in every driver, take no context, and `version` outlives the call.
        let (started, asked) = unsafe { (sys::cuInit(0), sys::cuDriverGetVersion(&mut version)) };
        match started {
            CUresult::CUDA_SUCCESS => {}
            CUresult::CUDA_ERROR_NO_DEVICE => {
                return Err(unavailable("the driver has no CUDA device"));
            }
            CUresult::CUDA_ERROR_STUB_LIBRARY => {
                return Err(unavailable(
                    "the library found is the toolkit's stub, not a driver",
                ));
            }
            code => return Err(unavailable(&format!("the driver did not start: {code:?}"))),
        }
        if asked != CUresult::CUDA_SUCCESS || version < OLDEST {
            let (major, minor) = (version / 1000, version % 1000 / 10);
            return Err(unavailable(&format!(
                "the driver is for CUDA {major}.{minor} and this build needs {} or newer: update the driver, or build \
                 with an older toolkit",
                format_args!("{}.{}", OLDEST / 1000, OLDEST % 1000 / 10)
            )));
        }
        // SAFETY: the types are those of the virtual GPU's functions of these names; real drivers have none. The
        // library is never unloaded.
        let virtual_device = unsafe {
            let library = sys::culib();
            match (
                library.get(b"vgpuReport\0"),
                library.get(b"vgpuFree\0"),
                library.get(b"vgpuConfigure\0"),
            ) {
                (Ok(report), Ok(free), Ok(configure)) => Some(Virtual {
                    report: *report,
                    free: *free,
                    configure: *configure,
                }),
                _ => None,
            }
        };
        Ok(Self {
            version,
            virtual_device,
        })
    }

    /// Returns the CUDA version of the driver, major and minor.
    pub fn version(&self) -> (i32, i32) {
        (self.version / 1000, self.version % 1000 / 10)
    }

    /// Returns whether this is a virtual GPU: its times are modelled, not measured.
    pub fn is_virtual(&self) -> bool {
        self.virtual_device.is_some()
    }

    /// Returns what a virtual GPU counted and found so far, as JSON; `None` from a real driver.
    pub fn report(&self) -> Option<String> {
        let Virtual { report, free, .. } = self.virtual_device?;
        // SAFETY: `report` returns null or a text that is ours until it is given to `free`, which is done once.
        unsafe {
            let text = report();
            if text.is_null() {
                return None;
            }
            let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
            free(text);
            Some(copy)
        }
    }

    /// Changes settings of a virtual GPU, given as a JSON object; its README lists them.
    ///
    /// # Errors
    /// [`Error::Unavailable`] from a real driver, [`Error::Driver`] when the virtual one does not know them.
    pub fn configure(&self, settings: &str) -> Result<()> {
        let Some(Virtual { configure, .. }) = self.virtual_device else {
            return Err(unavailable(
                "this is a real driver, which has no such settings",
            ));
        };
        let settings = CString::new(settings).unwrap_or_default();
        // SAFETY: `configure` reads a text that ends in NUL and outlives the call.
        check(
            unsafe { configure(settings.as_ptr()) },
            "change the virtual GPU",
        )
    }

    /// Returns the number of devices.
    pub fn devices(&self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: the driver was initialised by `load`, and `count` outlives the call.
        let code = unsafe { sys::cuDeviceGetCount(&mut count) };
        check(code, "count devices")?;
        Ok(usize::try_from(count).unwrap_or(0))
    }
}

/// Turns what a driver function returned into an error that says what was being done.
pub(super) fn check(code: CUresult, doing: &'static str) -> Result<()> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(Error::Driver {
            doing,
            why: describe(code),
        }),
    }
}

/// Returns whether a code says that work queued earlier has failed; any call may return it then, and goes on to.
pub(super) fn is_late(code: CUresult) -> bool {
    matches!(
        code,
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
    )
}

/// A code's name and what the driver says of it.
pub(super) fn describe(code: CUresult) -> String {
    let mut text = std::ptr::null();
    // SAFETY: `text` outlives the call; what it is set to is a string of the driver that is never freed.
    let said = unsafe {
        if sys::cuGetErrorString(code, &mut text) == CUresult::CUDA_SUCCESS && !text.is_null() {
            CStr::from_ptr(text).to_string_lossy()
        } else {
            "no description".into()
        }
    };
    format!("{code:?}: {said}")
}

fn unavailable(why: &str) -> Error {
    Error::Unavailable {
        device: "cuda".into(),
        why: why.into(),
    }
}

/// Loads a library before anything else answers to its name: the loader knows libraries by the name they give
/// themselves, so that a later request for `libcuda.so` finds this one.
fn preload(path: &Path) -> Result<()> {
    let path: PathBuf = std::path::absolute(path).map_err(|e| Error::io(path, "find", e))?;
    // SAFETY: the user named this file as their CUDA driver; running its initialisers is what they asked for.
    match unsafe { open_library(&path) } {
        Ok(library) => {
            // A driver has threads and handlers of its own and is never unloaded.
            std::mem::forget(library);
            Ok(())
        }
        Err(why) => Err(unavailable(&format!("it cannot be loaded: {why}"))),
    }
}

/// Loads a library, or says why not in the loader's own words, which name the file.
///
/// # Safety
/// The library's initialisers may run in this process.
pub(super) unsafe fn open_library(path: &Path) -> std::result::Result<libloading::Library, String> {
    // SAFETY: as the caller has promised.
    let library = unsafe { libloading::Library::new(path) };
    library.map_err(|error| {
        std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string)
    })
}

/// Makes sure that the driver in use is the one that was asked for.
fn check_loaded(path: &Path) -> Result<()> {
    let path: PathBuf = std::path::absolute(path).map_err(|e| Error::io(path, "find", e))?;
    type Init = unsafe extern "C" fn(u32) -> CUresult;
    let name = b"cuInit\0";
    // SAFETY: `preload` has run the initialisers of this file already; the symbols are compared, not called.
    let same = unsafe {
        let asked = libloading::Library::new(&path)
            .and_then(|library| library.get::<Init>(name).map(|f| *f as usize));
        let bound = sys::culib().get::<Init>(name).map(|f| *f as usize);
        matches!((asked, bound), (Ok(asked), Ok(bound)) if asked == bound)
    };
    if same {
        Ok(())
    } else {
        Err(unavailable(&format!(
            "{} does not answer to the name libcuda.so, or another driver was loaded before it",
            path.display()
        )))
    }
}
