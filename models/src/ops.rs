//! The operations that architectures are made of, and burn as one way to carry them out.
//!
//! An architecture is described once, as a function over [`Ops`] (`layers` of each network), and that description is
//! interpreted by whoever implements the trait:
//!
//! - [`Forward`] computes with burn tensors, on any device, and burn's autodiff goes back;
//! - [`Graph`](crate::cpu::graph::Graph) writes the operations down, for the processor to train and to extract features.

use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::module::{avg_pool2d, max_pool2d};
use burn::tensor::ops::{AvgPoolOptions, MaxPoolOptions};

use crate::layers::{Conv, ConvNorm};
use crate::norm::Mode;

/// The windows of a max pooling.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pooling {
    pub(crate) side: usize,
    pub(crate) stride: usize,
    pub(crate) padding: usize,
}

impl Pooling {
    /// 2×2 windows that do not overlap.
    pub(crate) const HALVE: Self = Self {
        side: 2,
        stride: 2,
        padding: 0,
    };
    /// 3×3 windows with stride 2, of the large residual networks.
    pub(crate) const OVERLAPPING: Self = Self {
        side: 3,
        stride: 2,
        padding: 1,
    };
}

/// The operations of an architecture.
///
/// Layers with weights are called in the order of the network's fields: weights and running statistics are numbered by it.
pub(crate) trait Ops {
    /// A batch of feature maps [N, channels, height, width].
    type Value: Clone;
    /// Feature rows [N, D].
    type Rows;

    /// Convolves, and normalises where the layer does.
    fn conv(&mut self, input: Self::Value, layer: &ConvNorm) -> Self::Value;

    /// Applies a linear layer to all values of an image, channel by channel. The result has one pixel.
    fn linear(&mut self, input: Self::Value, layer: &Linear) -> Self::Value;

    /// Adds every `stride`-th pixel of `shortcut` to the result of a convolution. Where it has fewer channels, as many
    /// channels of zeros are put before and after them (half of what is missing, rounded down, before).
    fn add(&mut self, sum: Self::Value, shortcut: Self::Value, stride: usize) -> Self::Value;

    /// Applies a ReLU to the result of a layer or of [`add`](Self::add), which nobody else reads.
    fn relu(&mut self, input: Self::Value) -> Self::Value;

    /// Takes the largest value of each window of what a ReLU gave.
    fn max_pool(&mut self, input: Self::Value, pooling: Pooling) -> Self::Value;

    /// Takes the mean of each channel as its feature.
    fn average(&mut self, input: Self::Value) -> Self::Rows;

    /// Takes the values of the only pixel as the features.
    fn rows(&mut self, input: Self::Value) -> Self::Rows;
}

/// Interprets an architecture with burn.
pub(crate) enum Forward<'a> {
    /// Runs the network's own layers.
    Own(Mode<'a>),
    /// Runs in evaluation mode, with convolutions that the normalisations were folded into before, in the order of the
    /// layers.
    Folded(std::slice::Iter<'a, Conv>),
}

impl Ops for Forward<'_> {
    type Value = Tensor<4>;
    type Rows = Tensor<2>;

    fn conv(&mut self, input: Tensor<4>, layer: &ConvNorm) -> Tensor<4> {
        match self {
            Self::Own(mode) => layer.forward(input, *mode),
            Self::Folded(layers) => {
                let layer = layers.next().expect("one folded layer a convolution");
                layer.forward(input)
            }
        }
    }

    fn linear(&mut self, input: Tensor<4>, layer: &Linear) -> Tensor<4> {
        let output: Tensor<2> = layer.forward(input.flatten(1, 3));
        output.unsqueeze_dims(&[2, 3])
    }

    fn add(&mut self, sum: Tensor<4>, shortcut: Tensor<4>, stride: usize) -> Tensor<4> {
        let shortcut = match stride {
            1 => shortcut,
            _ => {
                let options = AvgPoolOptions::new([1; 2]).with_stride([stride; 2]);
                avg_pool2d(shortcut, options)
            }
        };
        let shortcut = pad_channels(shortcut, sum.dims()[1]);
        sum + shortcut
    }

    fn relu(&mut self, input: Tensor<4>) -> Tensor<4> {
        relu(input)
    }

    fn max_pool(&mut self, input: Tensor<4>, pooling: Pooling) -> Tensor<4> {
        let options = MaxPoolOptions::new([pooling.side; 2])
            .with_stride([pooling.stride; 2])
            .with_padding([pooling.padding; 2]);
        max_pool2d(input, options)
    }

    fn average(&mut self, input: Tensor<4>) -> Tensor<2> {
        input.flatten::<3>(2, 3).mean_dim(2).squeeze_dim(2)
    }

    fn rows(&mut self, input: Tensor<4>) -> Tensor<2> {
        input.flatten(1, 3)
    }
}

/// Puts channels of zeros around those of the input, so that there are `channels`.
fn pad_channels(input: Tensor<4>, channels: usize) -> Tensor<4> {
    let [batch, from, height, width] = input.dims();
    if from == channels {
        return input;
    }
    let zeros = |count| Tensor::zeros([batch, count, height, width], &input.device());
    let before = (channels - from) / 2;
    let after = channels - from - before;
    Tensor::cat(vec![zeros(before), input.clone(), zeros(after)], 1)
}
