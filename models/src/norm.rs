//! Batch normalisation whose mode is an argument and whose running statistics are values.
//!
//! burn's own layer decides by the device whether it trains, and shares its running statistics between clones. Here
//! both would be traps: importance scores need gradients in evaluation mode, and a teacher that is a clone of its
//! student must not follow it. So a pass says which [`Mode`] it is in, a training pass collects what it saw in
//! [`Statistics`], and [`Network::with_statistics`](crate::Network::with_statistics) folds that in, once a step.

use std::cell::RefCell;

use burn::module::{Module, Param};
use burn::tensor::module::{batch_norm, batch_norm_train};
use burn::tensor::{Device, Tensor};

/// Added to the variance, as in PyTorch.
pub(crate) const EPSILON: f64 = 1e-5;
/// Share of the newest batch in the running statistics, as in PyTorch.
pub(crate) const MOMENTUM: f64 = 0.1;

/// The statistics that batch normalisation uses: running ones or the batch's own.
#[derive(Clone, Copy, Debug)]
pub enum Mode<'a> {
    /// Evaluation: the running statistics, which stay as they are.
    Eval,
    /// Training: the batch's own, which are also noted down.
    Train(&'a Statistics),
}

/// Batch statistics of one training pass, in the order in which the layers ran: mean, variance, mean, …
#[derive(Debug, Default)]
pub struct Statistics(RefCell<Vec<Tensor<1>>>);

impl Statistics {
    pub(crate) fn note(&self, mean: Tensor<1>, variance: Tensor<1>) {
        self.0
            .borrow_mut()
            .extend([mean.without_autodiff(), variance.without_autodiff()]);
    }

    pub(crate) fn take(self) -> Vec<Tensor<1>> {
        self.0.into_inner()
    }
}

/// Batch normalisation of each channel over batch, height and width.
#[derive(Module, Debug)]
pub struct BatchNorm {
    weight: Param<Tensor<1>>,
    bias: Param<Tensor<1>>,
    running_mean: Param<Tensor<1>>,
    running_var: Param<Tensor<1>>,
}

impl BatchNorm {
    /// Returns a layer that leaves normalised input as it is.
    pub fn new(channels: usize, device: &Device) -> Self {
        let buffer = |tensor: Tensor<1>| Param::from_tensor(tensor).set_require_grad(false);
        Self {
            weight: Param::from_tensor(Tensor::ones([channels], device)),
            bias: Param::from_tensor(Tensor::zeros([channels], device)),
            running_mean: buffer(Tensor::zeros([channels], device)),
            running_var: buffer(Tensor::ones([channels], device)),
        }
    }

    /// Normalises a batch [N, channels, height, width].
    pub fn forward(&self, input: Tensor<4>, mode: Mode<'_>) -> Tensor<4> {
        let (gamma, beta) = (self.weight.val(), self.bias.val());
        match mode {
            Mode::Eval => batch_norm(
                input,
                gamma,
                beta,
                self.running_mean.val(),
                self.running_var.val(),
                EPSILON,
            ),
            Mode::Train(statistics) => {
                let [batch, _, height, width] = input.dims();
                let seen = (batch * height * width) as f64;
                let pass = batch_norm_train(input, gamma, beta, EPSILON);
                // PyTorch normalises with the biased variance and remembers the unbiased one.
                let unbiased = pass.variance * (seen / (seen - 1.0).max(1.0));
                statistics.note(pass.mean, unbiased);
                pass.output
            }
        }
    }

    /// Returns the factor and the offset that evaluation mode applies to each channel: x ↦ scale·x + shift.
    pub(crate) fn affine(&self) -> (Tensor<1>, Tensor<1>) {
        let value = |param: &Param<Tensor<1>>| param.val().without_autodiff();
        let scale = value(&self.weight) / (value(&self.running_var) + EPSILON).sqrt();
        let shift = value(&self.bias) - value(&self.running_mean) * scale.clone();
        (scale, shift)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;

    use super::*;
    use crate::layers::test_images;

    /// Two channels, two images of 1×2, normalised by hand.
    #[test]
    fn training_normalises_with_the_batch_and_notes_what_it_saw() {
        let device = Device::flex();
        let values: Vec<f32> = vec![1.0, 3.0, 10.0, 10.0, 5.0, 7.0, 10.0, 14.0];
        let input = Tensor::<4>::from_data(TensorData::new(values, [2, 2, 1, 2]), &device);
        let layer = BatchNorm::new(2, &device);
        let statistics = Statistics::default();
        let output = layer.forward(input, Mode::Train(&statistics));
        // Channel 0 has mean 4 and variance 5, channel 1 mean 11 and variance 3.
        let expected: Vec<f32> = [
            (0, -3.0),
            (0, -1.0),
            (1, -1.0),
            (1, -1.0),
            (0, 1.0),
            (0, 3.0),
            (1, -1.0),
            (1, 3.0),
        ]
        .map(|(channel, gap): (usize, f64)| (gap / ([5.0, 3.0][channel] + 1e-5_f64).sqrt()) as f32)
        .to_vec();
        let expected = TensorData::new(expected, [2, 2, 1, 2]);
        output
            .into_data()
            .assert_approx_eq::<f32>(&expected, burn::tensor::Tolerance::absolute(1e-5));
        let seen: Vec<Vec<f32>> = statistics
            .take()
            .into_iter()
            .map(|tensor| tensor.into_data().try_to_vec().unwrap())
            .collect();
        assert_eq!(seen[0], [4.0, 11.0]);
        // Unbiased: 4/3 of the above.
        for (value, wanted) in seen[1].iter().zip([20.0 / 3.0, 4.0]) {
            assert!((value - wanted).abs() < 1e-5, "{value}");
        }
        assert_eq!(seen.len(), 2);
    }

    #[test]
    fn evaluation_is_the_affine_map() {
        let device = Device::flex();
        let some = |low, high| {
            let values: [f32; 3] = [low, high, 0.5 * (low + high)];
            Param::from_tensor(Tensor::<1>::from_data(values, &device))
        };
        let layer = BatchNorm {
            weight: some(-2.0, 2.0),
            bias: some(-1.0, 1.0),
            running_mean: some(-1.0, 1.0),
            running_var: some(0.1, 3.0),
        };
        let input = test_images([2, 3, 4, 5]);
        let (scale, shift) = layer.affine();
        let by_hand = input.clone() * scale.reshape([1, 3, 1, 1]) + shift.reshape([1, 3, 1, 1]);
        let gap = layer.forward(input, Mode::Eval) - by_hand;
        let gap = gap.abs().max().into_scalar::<f32>();
        assert!(gap < 1e-5, "{gap}");
    }
}
