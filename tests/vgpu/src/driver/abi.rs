//! The C side: result codes, handles, pointers and structures as `cuda.h` (13.0) lays them out.
//!
//! Handles are numbers with a mark, not addresses, so that a stale or wrong one is recognised and never followed.
//! Pointer arguments have types that check for null; the reads and writes through them are here and nowhere else.

#![allow(non_camel_case_types, non_snake_case, reason = "names of cuda.h")]

use std::ffi::{CStr, c_char};

macro_rules! results {
    ($($name:ident = $value:literal,)*) => {
        /// A result code of the driver API.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(transparent)]
        pub struct CUresult(pub u32);

        #[allow(missing_docs, reason = "the names say it, and cuda.h describes them")]
        impl CUresult {
            pub const SUCCESS: Self = Self(0);
            $(pub const $name: Self = Self($value);)*

            /// Its name with the end mark of C, if there is such a code.
            pub(super) fn c_name(self) -> Option<&'static CStr> {
                let name = match self.0 {
                    0 => "CUDA_SUCCESS\0",
                    $($value => concat!("CUDA_ERROR_", stringify!($name), "\0"),)*
                    _ => return None,
                };
                CStr::from_bytes_with_nul(name.as_bytes()).ok()
            }
        }
    };
}

results! {
INVALID_VALUE = 1,
OUT_OF_MEMORY = 2,
NOT_INITIALIZED = 3,
DEINITIALIZED = 4,
PROFILER_DISABLED = 5,
PROFILER_NOT_INITIALIZED = 6,
PROFILER_ALREADY_STARTED = 7,
PROFILER_ALREADY_STOPPED = 8,
STUB_LIBRARY = 34,
CALL_REQUIRES_NEWER_DRIVER = 36,
DEVICE_UNAVAILABLE = 46,
NO_DEVICE = 100,
INVALID_DEVICE = 101,
DEVICE_NOT_LICENSED = 102,
INVALID_IMAGE = 200,
INVALID_CONTEXT = 201,
CONTEXT_ALREADY_CURRENT = 202,
MAP_FAILED = 205,
UNMAP_FAILED = 206,
ARRAY_IS_MAPPED = 207,
ALREADY_MAPPED = 208,
NO_BINARY_FOR_GPU = 209,
ALREADY_ACQUIRED = 210,
NOT_MAPPED = 211,
NOT_MAPPED_AS_ARRAY = 212,
NOT_MAPPED_AS_POINTER = 213,
ECC_UNCORRECTABLE = 214,
UNSUPPORTED_LIMIT = 215,
CONTEXT_ALREADY_IN_USE = 216,
PEER_ACCESS_UNSUPPORTED = 217,
INVALID_PTX = 218,
INVALID_GRAPHICS_CONTEXT = 219,
NVLINK_UNCORRECTABLE = 220,
JIT_COMPILER_NOT_FOUND = 221,
UNSUPPORTED_PTX_VERSION = 222,
JIT_COMPILATION_DISABLED = 223,
UNSUPPORTED_EXEC_AFFINITY = 224,
UNSUPPORTED_DEVSIDE_SYNC = 225,
CONTAINED = 226,
INVALID_SOURCE = 300,
FILE_NOT_FOUND = 301,
SHARED_OBJECT_SYMBOL_NOT_FOUND = 302,
SHARED_OBJECT_INIT_FAILED = 303,
OPERATING_SYSTEM = 304,
INVALID_HANDLE = 400,
ILLEGAL_STATE = 401,
LOSSY_QUERY = 402,
NOT_FOUND = 500,
NOT_READY = 600,
ILLEGAL_ADDRESS = 700,
LAUNCH_OUT_OF_RESOURCES = 701,
LAUNCH_TIMEOUT = 702,
LAUNCH_INCOMPATIBLE_TEXTURING = 703,
PEER_ACCESS_ALREADY_ENABLED = 704,
PEER_ACCESS_NOT_ENABLED = 705,
PRIMARY_CONTEXT_ACTIVE = 708,
CONTEXT_IS_DESTROYED = 709,
ASSERT = 710,
TOO_MANY_PEERS = 711,
HOST_MEMORY_ALREADY_REGISTERED = 712,
HOST_MEMORY_NOT_REGISTERED = 713,
HARDWARE_STACK_ERROR = 714,
ILLEGAL_INSTRUCTION = 715,
MISALIGNED_ADDRESS = 716,
INVALID_ADDRESS_SPACE = 717,
INVALID_PC = 718,
LAUNCH_FAILED = 719,
COOPERATIVE_LAUNCH_TOO_LARGE = 720,
TENSOR_MEMORY_LEAK = 721,
NOT_PERMITTED = 800,
NOT_SUPPORTED = 801,
SYSTEM_NOT_READY = 802,
SYSTEM_DRIVER_MISMATCH = 803,
COMPAT_NOT_SUPPORTED_ON_DEVICE = 804,
MPS_CONNECTION_FAILED = 805,
MPS_RPC_FAILURE = 806,
MPS_SERVER_NOT_READY = 807,
MPS_MAX_CLIENTS_REACHED = 808,
MPS_MAX_CONNECTIONS_REACHED = 809,
MPS_CLIENT_TERMINATED = 810,
CDP_NOT_SUPPORTED = 811,
CDP_VERSION_MISMATCH = 812,
STREAM_CAPTURE_UNSUPPORTED = 900,
STREAM_CAPTURE_INVALIDATED = 901,
STREAM_CAPTURE_MERGE = 902,
STREAM_CAPTURE_UNMATCHED = 903,
STREAM_CAPTURE_UNJOINED = 904,
STREAM_CAPTURE_ISOLATION = 905,
STREAM_CAPTURE_IMPLICIT = 906,
CAPTURED_EVENT = 907,
STREAM_CAPTURE_WRONG_THREAD = 908,
TIMEOUT = 909,
GRAPH_EXEC_UPDATE_FAILURE = 910,
EXTERNAL_DEVICE = 911,
INVALID_CLUSTER_SIZE = 912,
FUNCTION_NOT_LOADED = 913,
INVALID_RESOURCE_TYPE = 914,
INVALID_RESOURCE_CONFIGURATION = 915,
KEY_ROTATION = 916,
UNKNOWN = 999,}

/// What a call came to, inside this crate.
pub(super) type Outcome = Result<(), CUresult>;

/// A number that identifies a device.
pub type CUdevice = i32;
/// An address in device memory.
pub type CUdeviceptr = u64;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident = $mark:literal,)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        #[repr(transparent)]
        pub struct $name(pub usize);

        impl $name {
            /// The handle of object number `id`.
            pub(super) fn new(id: u64) -> Self {
                Self(MARK | ($mark << 40) | id as usize)
            }

            /// The number of the object, if this is a handle of this kind.
            pub(super) fn id(self) -> Option<u64> {
                (self.0 & !0xff_ffff_ffff == MARK | ($mark << 40)).then_some(self.0 as u64 & 0xff_ffff_ffff)
            }
        }
    )*};
}

/// Not an address that a process can map, so following a handle faults at once.
const MARK: usize = 0x5647 << 48;

handles! {
    /// A context.
    CUcontext = 1,
    /// A stream; 0 and 1 are the default stream, 2 the default stream of the thread.
    CUstream = 2,
    /// An event.
    CUevent = 3,
    /// A module.
    CUmodule = 4,
    /// A kernel of a module.
    CUfunction = 5,
    /// A memory pool.
    CUmemoryPool = 6,
    /// A library: a module without a context.
    CUlibrary = 7,
}

/// A pointer through which a call returns a value.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// A pointer to nothing, for what the caller does not want.
    pub fn null() -> Self {
        Self(std::ptr::null_mut())
    }

    /// Writes the value.
    pub(super) fn set(self, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: the caller of the C function promises that a pointer that is not null can be written.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes the value unless the caller does not want it.
    pub(super) fn set_if_wanted(self, value: T) {
        let _ = self.set(value);
    }

    /// Writes several values; the caller has made room for them.
    pub(super) fn set_all(self, values: impl IntoIterator<Item = T>) -> Outcome {
        for (k, value) in values.into_iter().enumerate() {
            if self.0.is_null() {
                return Err(CUresult::INVALID_VALUE);
            }
            // SAFETY: as for `set`, for every element of the array that the caller passed with its length.
            unsafe { self.0.add(k).write_unaligned(value) };
        }
        Ok(())
    }
}

impl Out<u64> {
    /// A pointer that was itself passed in an array.
    pub(super) fn from_address(address: usize) -> Self {
        Self(address as *mut u64)
    }

    /// The same place, for a value of another width.
    pub(super) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

impl<T> From<&mut T> for Out<T> {
    fn from(place: &mut T) -> Self {
        Self(place)
    }
}

/// A pointer to values that a call reads.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// A pointer to nothing.
    pub fn null() -> Self {
        Self(std::ptr::null())
    }

    /// Whether it points to nothing.
    pub(super) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The address.
    pub(super) fn address(self) -> usize {
        self.0 as usize
    }

    /// The value.
    pub(super) fn get(self) -> Result<T, CUresult> {
        self.at(0)
    }

    /// The value at an index of an array.
    pub(super) fn at(self, index: usize) -> Result<T, CUresult> {
        if self.0.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: the caller of the C function promises that a pointer that is not null can be read, for as many
        // elements as it says or the interface implies.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }
}

impl<T> From<&T> for In<T> {
    fn from(place: &T) -> Self {
        Self(place)
    }
}

impl<T> From<&[T]> for In<T> {
    fn from(values: &[T]) -> Self {
        Self(values.as_ptr())
    }
}

impl In<c_char> {
    /// The text up to its end mark.
    pub(super) fn text(self) -> Result<String, CUresult> {
        if self.0.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: the caller of the C function promises a text with an end mark.
        Ok(unsafe { CStr::from_ptr(self.0) }
            .to_string_lossy()
            .into_owned())
    }
}

impl From<&CStr> for In<c_char> {
    fn from(text: &CStr) -> Self {
        Self(text.as_ptr())
    }
}

/// An address of host memory, which may belong to anybody.
pub type HostAddress = usize;

/// Bytes of the program under test, taken over now.
pub(super) fn take_host_bytes(address: u64, bytes: usize) -> Vec<u8> {
    if bytes == 0 {
        return Vec::new();
    }
    // SAFETY: the caller of the C function promises `bytes` readable bytes at an address that is not null, which the
    // callers of this function have checked.
    unsafe { std::slice::from_raw_parts(address as *const u8, bytes) }.to_vec()
}

/// `CUDA_MEMCPY2D`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[allow(missing_docs, reason = "fields of cuda.h")]
pub struct CUDA_MEMCPY2D {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcMemoryType: u32,
    pub srcHost: HostAddress,
    pub srcDevice: CUdeviceptr,
    pub srcArray: usize,
    pub srcPitch: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstMemoryType: u32,
    pub dstHost: HostAddress,
    pub dstDevice: CUdeviceptr,
    pub dstArray: usize,
    pub dstPitch: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
}

/// `CUmemorytype`: host.
pub const MEMORYTYPE_HOST: u32 = 1;
/// `CUmemorytype`: device.
pub const MEMORYTYPE_DEVICE: u32 = 2;
/// `CUmemorytype`: decided by the address.
pub const MEMORYTYPE_UNIFIED: u32 = 4;

/// `CUlaunchAttribute`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "fields of cuda.h")]
pub struct CUlaunchAttribute {
    pub id: u32,
    pub pad: [u8; 4],
    pub value: [u32; 16],
}

/// `CUlaunchConfig`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "fields of cuda.h")]
pub struct CUlaunchConfig {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub sharedMemBytes: u32,
    pub hStream: CUstream,
    pub attrs: In<CUlaunchAttribute>,
    pub numAttrs: u32,
}
