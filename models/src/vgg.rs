//! VGG-16 with batch normalisation, for small images.
//!
//! The layout is that of kuangliu's `pytorch-cifar`: thirteen 3×3 convolutions with bias, numbered among their
//! normalisations, ReLUs and poolings as `features.N`, and one linear layer `classifier`. The numbers of `features` are
//! also those of torchvision's `vgg16_bn`, which has three linear layers on top. Five poolings make 1×1 of 32×32; what
//! larger images leave is averaged, so that the head has the same size for all.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;

use crate::layers::{Conv, Draw, Init, Kernel, conv_norm, fold, global_average, max_pool};
use crate::norm::{BatchNorm, Mode};

/// Convolutions of each stage and their channels in units of the width. A pooling ends a stage.
const STAGES: [(usize, usize); 5] = [(2, 1), (2, 2), (3, 4), (3, 8), (3, 8)];

/// A convolution with its normalisation.
#[derive(Module, Debug)]
pub(crate) struct Unit {
    pub(crate) conv: Conv,
    pub(crate) norm: Option<BatchNorm>,
}

/// The network.
#[derive(Module, Debug)]
pub struct Vgg {
    pub(crate) features: Vec<Unit>,
    pub(crate) classifier: Linear,
}

/// For each convolution, its number in `features` and whether a pooling follows it.
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
    /// Five poolings must leave something.
    pub(crate) const SMALLEST: usize = 32;

    /// D for a width.
    pub(crate) const fn features_of(width: usize) -> usize {
        8 * width
    }

    pub(crate) fn new(draw: &mut Draw<'_>, channels: usize, width: usize, classes: usize) -> Self {
        let mut from = channels;
        let mut features = Vec::new();
        for (count, factor) in STAGES {
            for _ in 0..count {
                let to = factor * width;
                features.push(Unit {
                    conv: draw.conv(from, to, Kernel::three(1, Init::Uniform).with_bias()),
                    norm: Some(draw.norm(to)),
                });
                from = to;
            }
        }
        Self {
            features,
            classifier: draw.linear(Self::features_of(width), classes, Init::Uniform),
        }
    }

    /// Feature rows [N, D] of images [N, channels, height, width].
    pub fn features(&self, images: Tensor<4>, mode: Mode<'_>) -> Tensor<2> {
        let mut x = images;
        for (Unit { conv, norm }, (_, pooled)) in self.features.iter().zip(layout()) {
            x = relu(conv_norm(conv, norm, x, mode));
            if pooled {
                x = max_pool(x, 2, 2, 0);
            }
        }
        global_average(x)
    }

    /// The linear layer from features to logits.
    pub fn head(&self) -> &Linear {
        &self.classifier
    }

    /// Logits [N, C].
    pub fn forward(&self, images: Tensor<4>, mode: Mode<'_>) -> Tensor<2> {
        self.head().forward(self.features(images, mode))
    }

    pub(crate) fn fold(&mut self) {
        for Unit { conv, norm } in &mut self.features {
            fold(conv, norm);
        }
    }
}
