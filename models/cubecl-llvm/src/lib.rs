//! Stands in for CubeCL's LLVM back end.
//!
//! burn's CUDA backend can compile its kernels in two ways, and always depends on both. This project uses the one
//! through NVRTC (feature `cpp` of `cubecl-cuda`); the other brings a crate whose build downloads a whole LLVM. Here are
//! the names that `cubecl-cuda` uses of that crate, and nothing behind them: asked to compile, it returns an error.

use cubecl_core::ir::nvidia::SmArch;
use cubecl_core::prelude::KernelDefinition;
use cubecl_environment::backtrace::BackTrace;
use cubecl_runtime::compiler::{CompilationError, Compiler};
use cubecl_runtime::kernel::BufferIOAttr;

/// What to compile for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LlvmTarget {
    /// PTX.
    Nvptx,
}

/// The back end that is not there.
#[derive(Clone, Debug)]
pub struct PlironCompiler {
    /// What it would compile for.
    pub target: LlvmTarget,
}

/// How it would compile.
#[derive(Clone, Debug, Default)]
pub struct PlironOptions {
    /// Architecture of another vendor: never set.
    pub arch: Option<()>,
    /// Architecture of the device.
    pub sm_arch: Option<SmArch>,
    /// Version of PTX to write.
    pub ptx_version: Option<nvptx::ptx_version::PtxVersion>,
    /// Whether scalars are kernel parameters.
    pub grid_constants: bool,
    /// Alignment of buffers: never set.
    pub cpu_buffer_alignment: Option<u32>,
}

/// A compiled module.
#[derive(Clone, Debug)]
pub struct NvptxModule {
    /// Its intermediate text.
    pub ir: String,
    /// Its PTX, ending in NUL.
    pub ptx: Vec<core::ffi::c_char>,
    /// Its kernel.
    pub entrypoint: String,
    /// Shared memory of a launch.
    pub shared_memory_size: usize,
    /// What it does with each buffer.
    pub io: Vec<BufferIOAttr>,
}

/// What compiling gives.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PlironArtifact {
    /// A module for NVIDIA devices.
    NvptxCode(NvptxModule),
}

impl core::fmt::Display for PlironArtifact {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self::NvptxCode(module) = self;
        f.write_str(&module.ir)
    }
}

impl Compiler for PlironCompiler {
    type Representation = PlironArtifact;
    type CompilationOptions = PlironOptions;

    fn compile(
        &mut self,
        _kernel: KernelDefinition,
        _options: &Self::CompilationOptions,
    ) -> Result<Self::Representation, CompilationError> {
        Err(CompilationError::Generic {
            reason: "this build has no LLVM back end; kernels are compiled by NVRTC (feature `cpp` of cubecl-cuda)"
                .to_owned(),
            backtrace: BackTrace::capture(),
        })
    }

    fn extension(&self) -> &'static str {
        "ll"
    }

    fn lang_tag(&self) -> &'static str {
        "llvm"
    }
}

/// What belongs to NVIDIA devices.
pub mod nvptx {
    /// The version of PTX.
    pub mod ptx_version {
        /// A version of PTX; none is ever chosen.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum PtxVersion {}

        impl PtxVersion {
            /// The newest that a driver loads.
            pub fn for_driver(_driver: i32) -> Option<Self> {
                None
            }
        }

        impl core::fmt::Display for PtxVersion {
            fn fmt(&self, _: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match *self {}
            }
        }
    }
}

/// What the back ends share.
pub mod shared {
    /// What the back end can lower.
    pub mod lowered_features {
        use cubecl_core::ir::DeviceProperties;

        /// What to compile for.
        #[derive(Clone, Copy, Debug)]
        pub enum GpuTarget {
            /// PTX.
            Nvptx,
        }

        /// Takes from `properties` what the back end cannot lower; it is never chosen, so nothing is taken.
        pub fn restrict_features(_properties: &mut DeviceProperties, _target: GpuTarget) {}
    }
}
