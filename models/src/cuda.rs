//! Tensors of burn's CUDA backend, for kernels of one's own.
//!
//! burn shows neither the streams nor the pointers of its CUDA tensors. [`lend`] finds the pointer: everything that was
//! asked of the tensor before has then been queued on some stream of the device's primary context, and the memory stays
//! the tensor's for as long as the [`Lent`] is held. Whoever uses it puts their work behind that of the whole context.

use burn::backend::{BackendTypes, Cube};
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;
use cubecl_cuda::CudaRuntime;
use cubecl_runtime::runtime::Runtime;
use cubecl_runtime::server::ServerStorage;
use cubecl_runtime::storage::{ComputeStorage, ManagedResource};

type Primitive = <Cube as BackendTypes>::FloatTensorPrimitive;
type Server = <CudaRuntime as Runtime>::Server;
type Resource = <<Server as ServerStorage>::Storage as ComputeStorage>::Resource;

/// A matrix in the memory of burn's CUDA backend.
pub struct Lent {
    /// Address of the first value on the device.
    pub pointer: u64,
    /// Number of rows of the tensor.
    pub rows: usize,
    /// Number of columns of the tensor.
    pub cols: usize,
    /// Values from the start of one row to that of the next.
    pub pitch: usize,
    /// The type of the values.
    pub dtype: DType,
    /// The number of the CUDA device.
    pub device: usize,
    /// Both keep the memory from being given to another tensor.
    _held: (Primitive, ManagedResource<Resource>),
}

impl std::fmt::Debug for Lent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            pointer,
            rows,
            cols,
            pitch,
            dtype,
            device,
            ..
        } = self;
        write!(
            f,
            "Lent({rows}×{cols} {dtype:?} at {pointer:#x} of cuda:{device}, pitch {pitch})"
        )
    }
}

/// Returns the folder in which burn looks for `include` and the headers of CUDA: `$CUDA_PATH`, else where it is by custom.
/// The environment is asked each time.
pub fn toolkit_root() -> Option<std::path::PathBuf> {
    cubecl_cuda::install::cuda_path()
}

/// Finds where a tensor lies on a CUDA device; returns `None` if it lies elsewhere. Rows that do not lie in order, say of a transposed
/// tensor, are put in order first, on the device.
///
/// # Errors
/// If burn cannot say, with its reason: the work that should have written the tensor has failed.
pub fn lend(tensor: &Tensor<2>) -> Result<Option<Lent>, String> {
    let plain = tensor.clone().without_autodiff();
    let Ok(found) = plain.try_into_primitive::<Cube>() else {
        return Ok(None);
    };
    let burn_cubecl::CubeDevice::Cuda(device) = &found.device else {
        return Ok(None);
    };
    let device = device.index;
    let [rows, cols] = tensor.dims();
    let in_order = |t: &Primitive| {
        let strides = t.meta.strides();
        (cols <= 1 || strides[1] == 1) && (rows <= 1 || strides[0] >= cols)
    };
    let held = if in_order(&found) {
        found
    } else {
        into_contiguous(found)
    };
    let resource = held
        .client
        .get_resource::<Server>(held.handle.clone())
        .map_err(|error| error.to_string())?;
    Ok(Some(Lent {
        pointer: resource.resource().ptr,
        rows,
        cols,
        pitch: if rows <= 1 {
            cols
        } else {
            held.meta.strides()[0]
        },
        dtype: held.dtype,
        device,
        _held: (held, resource),
    }))
}
