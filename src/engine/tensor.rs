//! Rows that a network made, taken from where they lie.
//!
//! A burn tensor on the processor is borrowed: its memory is read in place. One on a CUDA device goes into the kernels
//! of that device by its pointer ([`crate::gpu::tensor`]). Only where tensor and engine are on different devices are
//! the values copied across.

use muso_models::burn::backend::Flex;
use muso_models::burn::backend::flex::FlexTensor;
use muso_models::burn::tensor::{DType, Device, Tensor, TensorData, bf16, f16};

use super::{Matrix, Rows};
use crate::error::{Error, Result};

/// Calls `work` with the rows of a tensor, [N, D], on the host: borrowed if that is where they are.
///
/// # Errors
/// If the tensor has values of a type that no feature has.
pub fn with_rows<R>(tensor: &Tensor<2>, work: impl FnOnce(Rows<'_>) -> Result<R>) -> Result<R> {
    let [rows, cols] = tensor.dims();
    let held = match tensor
        .clone()
        .without_autodiff()
        .try_into_primitive::<Flex>()
    {
        Ok(held) => held,
        Err(_) => FlexTensor::from_data(tensor.to_data()),
    };
    // Values that do not lie in order, say of a transposed tensor, are put in order first.
    let held = if held.is_contiguous() {
        held
    } else {
        held.to_contiguous()
    };
    macro_rules! lent {
        ($kind:ty) => {
            work(Rows::new(
                rows,
                cols,
                held.as_slice::<$kind>()
                    .ok_or_else(|| unusable("values out of order"))?,
            ))
        };
    }
    match held.dtype() {
        DType::F32 => lent!(f32),
        DType::F16 => lent!(f16),
        DType::BF16 => lent!(bf16),
        DType::F64 => lent!(f64),
        other => Err(unusable(&format!("values of {}", other.name()))),
    }
}

/// A matrix as a tensor of f32.
pub fn to_tensor(matrix: &Matrix, device: &Device) -> Tensor<2> {
    let values: Vec<f32> = matrix.as_slice().iter().map(|&x| x as f32).collect();
    let shape = [matrix.rows(), matrix.cols()];
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn unusable(found: &str) -> Error {
    Error::Shape {
        what: "feature tensor".into(),
        found: found.into(),
        expected: "f16, bf16, f32 or f64 values".into(),
    }
}
