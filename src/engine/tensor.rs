//! Zero-copy access to the rows of burn tensors.
//!
//! A burn tensor on the processor is borrowed: its memory is read in place. One on a CUDA device goes into the kernels
//! of that device by its pointer ([`crate::gpu::tensor`]). Only where tensor and engine are on different devices are
//! the values copied across.

use muso_models::burn::backend::Flex;
use muso_models::burn::backend::flex::FlexTensor;
use muso_models::burn::nn::Linear;
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

/// Copies a matrix into a tensor of f32 on `device`.
pub fn to_tensor(matrix: &Matrix, device: &Device) -> Tensor<2> {
    let values: Vec<f32> = matrix.as_slice().iter().map(|&x| x as f32).collect();
    let shape = [matrix.rows(), matrix.cols()];
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// Copies a linear layer into weights as the engines have them: (D+1)×C in f64, the bias, or zeros, in the last row.
///
/// ```
/// use muso::engine::head_matrix;
/// use muso::models::burn::nn::LinearConfig;
/// use muso::models::burn::tensor::Device;
/// let head = LinearConfig::new(4, 3).init(&Device::flex());
/// assert_eq!(head_matrix(&head).rows(), 5);
/// ```
///
/// # Panics
/// If the layer's values are not of a floating type.
pub fn head_matrix(head: &Linear) -> Matrix {
    let [width, classes] = head.weight.dims();
    let values = |data: TensorData| -> Vec<f64> { data.iter::<f64>().collect() };
    let mut weights = values(head.weight.val().into_data());
    match &head.bias {
        Some(bias) => weights.extend(values(bias.val().into_data())),
        None => weights.extend(std::iter::repeat_n(0.0, classes)),
    }
    Matrix::from_vec(width + 1, classes, weights)
}

fn unusable(found: &str) -> Error {
    Error::Shape {
        what: "feature tensor".into(),
        found: found.into(),
        expected: "f16, bf16, f32 or f64 values".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Samples;

    fn address(rows: Rows<'_>) -> usize {
        match rows.samples() {
            Samples::F32(values) => values.as_ptr() as usize,
            _ => panic!("f32 was put in"),
        }
    }

    #[test]
    fn rows_on_the_processor_are_borrowed() {
        let device = Device::flex();
        let tensor =
            Tensor::<2>::from_data(TensorData::from([[1.0_f32, 2.0], [3.0, 4.0]]), &device);
        let held = tensor.clone().try_into_primitive::<Flex>().unwrap();
        let there = held.as_slice::<f32>().unwrap().as_ptr() as usize;
        assert_eq!(with_rows(&tensor, |rows| Ok(address(rows))).unwrap(), there);
        // A part of it is a part of the same memory.
        let second = tensor.narrow(0, 1, 1);
        let found = with_rows(&second, |rows| Ok((address(rows), rows.to_matrix()))).unwrap();
        assert_eq!(found.1.as_slice(), [3.0, 4.0]);
        assert_eq!(found.0, there + 8);
    }

    #[test]
    fn other_layouts_and_types_have_the_same_values() {
        let device = Device::flex();
        let tensor =
            Tensor::<2>::from_data(TensorData::from([[1.0_f32, 2.0], [3.0, 4.0]]), &device);
        let values = |t: &Tensor<2>| with_rows(t, |rows| Ok(rows.to_matrix())).unwrap();
        assert_eq!(
            values(&tensor.clone().transpose()).as_slice(),
            [1.0, 3.0, 2.0, 4.0]
        );
        assert_eq!(
            values(&tensor.clone().cast(DType::F16)).as_slice(),
            [1.0, 2.0, 3.0, 4.0]
        );
        assert_eq!(
            values(&to_tensor(&values(&tensor), &device)),
            values(&tensor)
        );
        assert_eq!(values(&tensor.clone().autodiff()), values(&tensor));
    }
}
