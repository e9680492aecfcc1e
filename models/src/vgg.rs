//! VGG-16 with batch normalisation, for small images.
//!
//! The layout is that of kuangliu's `pytorch-cifar`: thirteen 3×3 convolutions with bias, numbered among their
//! normalisations, ReLUs and poolings as `features.N`, and one linear layer `classifier`. The numbers of `features` are
//! also those of torchvision's `vgg16_bn`, which has three linear layers on top. Five poolings make 1×1 of 32×32; what
//! larger images leave is averaged, so that the head has the same size for all.

use burn::module::Module;
use burn::nn::Linear;

use crate::layers::{ConvNorm, Draw, Init, Kernel};
use crate::ops::{Ops, Pooling};

/// Convolutions of each stage and their channels in units of the width. A pooling ends a stage.
const STAGES: [(usize, usize); 5] = [(2, 1), (2, 2), (3, 4), (3, 8), (3, 8)];

/// VGG-16 with batch normalisation and one linear layer.
#[derive(Module, Debug)]
pub struct Vgg {
    pub(crate) features: Vec<ConvNorm>,
    pub(crate) head: Linear,
}

/// Returns, for each convolution, its number in `features` of the published network and whether a pooling follows it.
pub(crate) fn layout() -> impl Iterator<Item = (usize, bool)> {
    let mut next = 0;
    STAGES
        .into_iter()
        .flat_map(|(count, _)| (0..count).map(move |i| i + 1 == count))
        .map(move |last| {
            let number = next;
            // Convolution, normalisation, ReLU, and the pooling at the end of a stage.
            next += if last { 4 } else { 3 };
            (number, last)
        })
}

impl Vgg {
    pub(crate) const WIDTH: usize = 64;
    /// The least height and width: five poolings must leave something.
    pub(crate) const SMALLEST: usize = 32;

    /// Returns D, the length of a feature row, for a width.
    pub(crate) const fn features_of(width: usize) -> usize {
        8 * width
    }

    /// Returns the channels of each convolution, in widths of the first.
    pub(crate) fn widths() -> impl Iterator<Item = usize> + Clone {
        let stages = STAGES.into_iter();
        stages.flat_map(|(count, factor)| std::iter::repeat_n(factor, count))
    }

    /// Draws a network with random weights.
    pub(crate) fn new(draw: &mut Draw<'_>, channels: usize, width: usize, classes: usize) -> Self {
        let kernel = Kernel::three(1, Init::Uniform).with_bias();
        let mut from = channels;
        let mut features = Vec::new();
        for (count, factor) in STAGES {
            for _ in 0..count {
                let to = factor * width;
                features.push(draw.conv_norm(from, to, kernel));
                from = to;
            }
        }
        Self {
            features,
            head: draw.linear(Self::features_of(width), classes, Init::Uniform),
        }
    }

    /// Describes the network below its head.
    pub(crate) fn layers<O: Ops>(&self, ops: &mut O, images: O::Value) -> O::Rows {
        let mut x = images;
        for (layer, (_, pooled)) in self.features.iter().zip(layout()) {
            x = ops.conv(x, layer);
            x = ops.relu(x);
            if pooled {
                x = ops.max_pool(x, Pooling::HALVE);
            }
        }
        ops.average(x)
    }
}
