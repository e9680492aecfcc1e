//! A small convolutional network for 28×28 images with one channel.
//!
//! Two 3×3 convolutions, each with ReLU and 2×2 max pooling, a hidden layer whose ReLU output is the feature row, and
//! the head. Small enough to train on a laptop's processor in seconds, large enough to memorise a few thousand images.

use burn::config::Config;
use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d, Relu};
use burn::tensor::{Device, Tensor};

/// Side of the images.
const SIDE: usize = 28;

/// What a [`SmallCnn`] is made of.
#[derive(Config, Debug)]
pub struct SmallCnnConfig {
    /// C, the outputs of the head.
    pub classes: usize,
    /// Channels after the first and the second convolution.
    #[config(default = "[16, 32]")]
    pub channels: [usize; 2],
    /// D, the width of the feature rows.
    #[config(default = 128)]
    pub features: usize,
}

impl SmallCnnConfig {
    /// A network with random weights.
    pub fn init(&self, device: &Device) -> SmallCnn {
        let [first, second] = self.channels;
        let convolution = |from: usize, to: usize| {
            Conv2dConfig::new([from, to], [3, 3])
                .with_padding(PaddingConfig2d::Same)
                .init(device)
        };
        let pooled = SIDE / 4;
        SmallCnn {
            convolutions: [convolution(1, first), convolution(first, second)],
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            hidden: LinearConfig::new(second * pooled * pooled, self.features).init(device),
            head: LinearConfig::new(self.features, self.classes).init(device),
            activation: Relu::new(),
        }
    }
}

/// The network.
#[derive(Module, Debug)]
pub struct SmallCnn {
    convolutions: [Conv2d; 2],
    pool: MaxPool2d,
    hidden: Linear,
    head: Linear,
    activation: Relu,
}

impl SmallCnn {
    /// Feature rows [N, D] of images [N, 1, 28, 28].
    pub fn features(&self, images: Tensor<4>) -> Tensor<2> {
        let mut x = images;
        for convolution in &self.convolutions {
            x = self
                .pool
                .forward(self.activation.forward(convolution.forward(x)));
        }
        self.activation
            .forward(self.hidden.forward(x.flatten(1, 3)))
    }

    /// The linear layer from features to logits.
    pub fn head(&self) -> &Linear {
        &self.head
    }

    /// Logits [N, C].
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        self.head.forward(self.features(images))
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Distribution;

    use super::*;

    #[test]
    fn shapes_and_parameter_count() {
        let device = Device::flex();
        let net = SmallCnnConfig::new(7).with_features(50).init(&device);
        let images = Tensor::<4>::random([3, 1, 28, 28], Distribution::Default, &device);
        assert_eq!(net.features(images.clone()).dims(), [3, 50]);
        assert_eq!(net.forward(images).dims(), [3, 7]);
        let convolutions = (9 + 1) * 16 + (9 * 16 + 1) * 32;
        let linears = (32 * 7 * 7 + 1) * 50 + (50 + 1) * 7;
        assert_eq!(net.num_params(), convolutions + linears);
    }

    #[test]
    fn forward_is_the_head_on_the_features() {
        let device = Device::flex();
        let net = SmallCnnConfig::new(4).init(&device);
        let images = Tensor::<4>::random([2, 1, 28, 28], Distribution::Default, &device);
        let features = net.features(images.clone());
        let weight = net.head().weight.val();
        let bias = net.head().bias.as_ref().unwrap().val();
        let by_hand = features.clone().matmul(weight) + bias.unsqueeze::<2>();
        let gap = (net.forward(images) - by_hand)
            .abs()
            .max()
            .into_scalar::<f32>();
        assert!(gap < 1e-5, "{gap}");
        assert!(
            features.min().into_scalar::<f32>() >= 0.0,
            "features come out of a ReLU"
        );
    }
}
