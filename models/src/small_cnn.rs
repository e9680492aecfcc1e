//! A small convolutional network for small images.
//!
//! Two 3×3 convolutions, each with ReLU and 2×2 max pooling, a hidden layer whose ReLU output is the feature row, and
//! the head. Small enough to train on a laptop's processor in seconds, large enough to memorise a few thousand images.
//! The channels are w and 2w, w being 16 unless the configuration says otherwise, and the feature row has 128 entries.
//! With `norm` there is batch normalisation between each convolution and its ReLU.

use burn::module::Module;
use burn::nn::Linear;

use crate::layers::{ConvNorm, Draw, Init, Kernel};
use crate::ops::{Ops, Pooling};

/// The small convolutional network: two convolutions and a hidden layer below the head.
#[derive(Module, Debug)]
pub struct SmallCnn {
    pub(crate) conv1: ConvNorm,
    pub(crate) conv2: ConvNorm,
    pub(crate) fc1: Linear,
    pub(crate) head: Linear,
}

impl SmallCnn {
    pub(crate) const WIDTH: usize = 16;

    /// D, the length of a feature row.
    pub(crate) const FEATURES: usize = 128;

    /// Draws a network. Height and width of the images must be multiples of 4.
    pub(crate) fn new(
        draw: &mut Draw<'_>,
        image: [usize; 3],
        width: usize,
        norm: bool,
        classes: usize,
    ) -> Self {
        let [channels, height, across] = image;
        let kernel = Kernel::three(1, Init::Uniform).with_bias();
        let mut conv = |from, to| {
            let mut layer = draw.conv_norm(from, to, kernel);
            if !norm {
                layer.norm = None;
            }
            layer
        };
        let conv1 = conv(channels, width);
        let conv2 = conv(width, 2 * width);
        let flat = 2 * width * (height / 4) * (across / 4);
        Self {
            conv1,
            conv2,
            fc1: draw.linear(flat, Self::FEATURES, Init::Uniform),
            head: draw.linear(Self::FEATURES, classes, Init::Uniform),
        }
    }

    /// Describes the network below its head.
    pub(crate) fn layers<O: Ops>(&self, ops: &mut O, images: O::Value) -> O::Rows {
        let mut x = images;
        for layer in [&self.conv1, &self.conv2] {
            x = ops.conv(x, layer);
            x = ops.relu(x);
            x = ops.max_pool(x, Pooling::HALVE);
        }
        x = ops.linear(x, &self.fc1);
        x = ops.relu(x);
        ops.rows(x)
    }
}
