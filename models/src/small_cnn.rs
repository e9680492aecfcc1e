//! A small convolutional network for small images.
//!
//! Two 3×3 convolutions, each with ReLU and 2×2 max pooling, a hidden layer whose ReLU output is the feature row, and
//! the head. Small enough to train on a laptop's processor in seconds, large enough to memorise a few thousand images.
//! The channels are w and 2w and the feature row has 8w entries; w is 16 unless the configuration says otherwise. With
//! `norm` there is batch normalisation between each convolution and its ReLU.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;

use crate::layers::{Conv, Draw, Init, Kernel, conv_norm, fold, max_pool};
use crate::norm::{BatchNorm, Mode};

/// The network. Its fields have the names of the tensors in a checkpoint.
#[derive(Module, Debug)]
pub struct SmallCnn {
    pub(crate) conv1: Conv,
    pub(crate) bn1: Option<BatchNorm>,
    pub(crate) conv2: Conv,
    pub(crate) bn2: Option<BatchNorm>,
    pub(crate) fc1: Linear,
    pub(crate) fc2: Linear,
}

impl SmallCnn {
    pub(crate) const WIDTH: usize = 16;

    /// D.
    pub(crate) const FEATURES: usize = 128;

    /// Height and width of the images must be multiples of 4.
    pub(crate) fn new(
        draw: &mut Draw<'_>,
        image: [usize; 3],
        width: usize,
        norm: bool,
        classes: usize,
    ) -> Self {
        let [channels, height, across] = image;
        let kernel = Kernel::three(1, Init::Uniform).with_bias();
        let features = Self::FEATURES;
        Self {
            conv1: draw.conv(channels, width, kernel),
            bn1: norm.then(|| draw.norm(width)),
            conv2: draw.conv(width, 2 * width, kernel),
            bn2: norm.then(|| draw.norm(2 * width)),
            fc1: draw.linear(
                2 * width * (height / 4) * (across / 4),
                features,
                Init::Uniform,
            ),
            fc2: draw.linear(features, classes, Init::Uniform),
        }
    }

    /// Feature rows [N, D] of images [N, channels, height, width].
    pub fn features(&self, images: Tensor<4>, mode: Mode<'_>) -> Tensor<2> {
        let x = relu(conv_norm(&self.conv1, &self.bn1, images, mode));
        let x = relu(conv_norm(
            &self.conv2,
            &self.bn2,
            max_pool(x, 2, 2, 0),
            mode,
        ));
        let x = max_pool(x, 2, 2, 0).flatten(1, 3);
        relu(self.fc1.forward(x))
    }

    /// The linear layer from features to logits.
    pub fn head(&self) -> &Linear {
        &self.fc2
    }

    /// Logits [N, C].
    pub fn forward(&self, images: Tensor<4>, mode: Mode<'_>) -> Tensor<2> {
        self.head().forward(self.features(images, mode))
    }

    pub(crate) fn fold(&mut self) {
        fold(&mut self.conv1, &mut self.bn1);
        fold(&mut self.conv2, &mut self.bn2);
    }
}
