//! Any of the networks, as one type, and how to make one.
//!
//! ```
//! use muso_models::burn::tensor::{Device, Tensor};
//! use muso_models::{Architecture, Mode, NetworkConfig};
//!
//! let config = NetworkConfig::new(Architecture::ResNet20, 10, [3, 32, 32]).with_width(4);
//! let device = Device::flex();
//! let net = config.init(1, &device)?;
//! let logits = net.forward(Tensor::zeros([2, 3, 32, 32], &device), Mode::Eval);
//! assert_eq!(logits.dims(), [2, 10]);
//!
//! let too_small = NetworkConfig::new(Architecture::Vgg16Bn, 10, [1, 28, 28]).init(1, &device);
//! assert!(too_small.unwrap_err().to_string().contains("at least 32×32"));
//! # Ok::<(), muso_models::ConfigError>(())
//! ```

use std::fmt;
use std::str::FromStr;

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

use crate::layers::Draw;
use crate::norm::{MOMENTUM, Mode, Statistics};
use crate::ops::{Forward, Ops};
use crate::params;
use crate::resnet::{Plan, ResNet};
use crate::small_cnn::SmallCnn;
use crate::vgg::Vgg;

/// An architecture that is known here by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Architecture {
    /// Two convolutions and a hidden layer.
    #[serde(rename = "small-cnn")]
    SmallCnn,
    /// Eighteen layers in four stages.
    #[serde(rename = "resnet18")]
    ResNet18,
    /// Thirty-four layers in four stages.
    #[serde(rename = "resnet34")]
    ResNet34,
    /// Twenty layers in three narrow stages, for CIFAR.
    #[serde(rename = "resnet20")]
    ResNet20,
    /// Thirty-two layers in the same three stages.
    #[serde(rename = "resnet32")]
    ResNet32,
    /// Forty-four layers in the same three stages.
    #[serde(rename = "resnet44")]
    ResNet44,
    /// Fifty-six layers in the same three stages.
    #[serde(rename = "resnet56")]
    ResNet56,
    /// A hundred and ten layers in the same three stages.
    #[serde(rename = "resnet110")]
    ResNet110,
    /// Thirteen convolutions with batch normalisation and one linear layer.
    #[serde(rename = "vgg16-bn")]
    Vgg16Bn,
}

impl Architecture {
    /// Every architecture, in the order of the declaration.
    pub const ALL: [Self; 9] = [
        Self::SmallCnn,
        Self::ResNet18,
        Self::ResNet34,
        Self::ResNet20,
        Self::ResNet32,
        Self::ResNet44,
        Self::ResNet56,
        Self::ResNet110,
        Self::Vgg16Bn,
    ];

    /// Returns the name, as in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SmallCnn => "small-cnn",
            Self::ResNet18 => "resnet18",
            Self::ResNet34 => "resnet34",
            Self::ResNet20 => "resnet20",
            Self::ResNet32 => "resnet32",
            Self::ResNet44 => "resnet44",
            Self::ResNet56 => "resnet56",
            Self::ResNet110 => "resnet110",
            Self::Vgg16Bn => "vgg16-bn",
        }
    }

    /// Returns the channels of the first convolution where a configuration does not say.
    pub const fn default_width(self) -> usize {
        match (self, Plan::of(self)) {
            (_, Some(plan)) => plan.width,
            (Self::Vgg16Bn, _) => Vgg::WIDTH,
            _ => SmallCnn::WIDTH,
        }
    }

    /// Returns the blocks of each stage of a residual network.
    pub fn residual_blocks(self) -> Option<&'static [usize]> {
        Plan::of(self).map(|plan| plan.blocks)
    }

    /// Returns whether this is one of the residual networks for CIFAR, whose shortcuts have no weights.
    pub fn is_cifar_resnet(self) -> bool {
        Plan::of(self).is_some_and(|plan| plan.is_for_cifar())
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Architecture {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let found = Self::ALL.into_iter().find(|known| known.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            ConfigError(format!("no architecture `{text}`; there are {names}"))
        })
    }
}

/// A configuration that names no network; the text says why and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

impl ConfigError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// An architecture with its sizes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct NetworkConfig {
    /// The kind of network.
    pub architecture: Architecture,
    /// The number of classes C, the outputs of the head.
    pub classes: usize,
    /// Channels, height and width of the images.
    pub image: [usize; 3],
    /// Channels of the first convolution; all others are multiples of it. The published network's where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<usize>,
    /// Batch normalisation in the small CNN; the others always have it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub norm: bool,
}

impl NetworkConfig {
    /// Returns a configuration of the published sizes.
    pub fn new(architecture: Architecture, classes: usize, image: [usize; 3]) -> Self {
        Self {
            architecture,
            classes,
            image,
            width: None,
            norm: false,
        }
    }

    /// Sets the channels of the first convolution.
    pub fn with_width(self, width: usize) -> Self {
        Self {
            width: Some(width),
            ..self
        }
    }

    /// Sets whether the small CNN has batch normalisation.
    pub fn with_norm(self, norm: bool) -> Self {
        Self { norm, ..self }
    }

    fn resolved_width(&self) -> usize {
        self.width.unwrap_or(self.architecture.default_width())
    }

    /// Returns D, the columns of the feature rows.
    pub fn features(&self) -> usize {
        let width = self.resolved_width();
        match (self.architecture, Plan::of(self.architecture)) {
            (_, Some(plan)) => plan.features(width),
            (Architecture::Vgg16Bn, _) => Vgg::features_of(width),
            _ => SmallCnn::FEATURES,
        }
    }

    /// Returns how many weights the network has at the least: those of all 3×3 convolutions but the first and, in the
    /// small CNN, of the hidden layer. A checkpoint with fewer values is not of this network.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn least_weights(&self) -> Result<u64, ConfigError> {
        self.check()?;
        let width = self.resolved_width() as u64;
        let conv = |from: u64, to: u64| 9 * from * to;
        Ok(match (self.architecture, Plan::of(self.architecture)) {
            (_, Some(plan)) => {
                let stages = plan.blocks.iter().enumerate();
                let of_stage = |(stage, &blocks): (usize, &usize)| {
                    let (from, to) = (width << stage.saturating_sub(1), width << stage);
                    conv(from, to) + (2 * blocks as u64 - 1) * conv(to, to)
                };
                stages.map(of_stage).sum()
            }
            (Architecture::Vgg16Bn, _) => {
                let widths = Vgg::widths().map(|factor| factor as u64 * width);
                let pairs = widths.clone().zip(widths.skip(1));
                pairs.map(|(from, to)| conv(from, to)).sum()
            }
            _ => {
                let [_, height, across] = self.image.map(|extent| extent as u64);
                let flat = 2 * width * (height / 4) * (across / 4);
                conv(width, 2 * width) + flat * SmallCnn::FEATURES as u64
            }
        })
    }

    /// Checks that there is such a network.
    ///
    /// # Errors
    /// If the architecture cannot take the images, or if a size is zero or beyond reason.
    pub fn check(&self) -> Result<(), ConfigError> {
        /// Far above every network there is, and low enough for no size to overflow.
        const LARGEST: usize = 1 << 20;
        const WIDEST: usize = 4096;
        let Self {
            architecture,
            classes,
            image: [channels, height, across],
            ..
        } = *self;
        let fault = |text: String| Err(ConfigError(format!("{architecture}: {text}")));
        if !(1..=LARGEST).contains(&classes) {
            return fault(format!("{classes} classes; expected 1 to {LARGEST}"));
        }
        if !(1..=WIDEST).contains(&self.resolved_width()) {
            return fault(format!(
                "width {}; expected 1 to {WIDEST}",
                self.resolved_width()
            ));
        }
        let size = format!("images of {height}×{across} with {channels} channels");
        let expected = if !(1..=WIDEST).contains(&channels) {
            "at least one channel".to_owned()
        } else if height.max(across) > WIDEST {
            format!("at most {WIDEST}×{WIDEST}")
        } else {
            let smallest = match architecture {
                Architecture::SmallCnn => 4,
                Architecture::Vgg16Bn => Vgg::SMALLEST,
                _ => 8,
            };
            let multiple = match architecture {
                Architecture::SmallCnn => 4,
                _ => 1,
            };
            if height.min(across) < smallest {
                format!("at least {smallest}×{smallest}")
            } else if height % multiple != 0 || across % multiple != 0 {
                format!("height and width that are multiples of {multiple}")
            } else {
                return Ok(());
            }
        };
        fault(format!("{size}; expected {expected}"))
    }

    /// Draws a network from `seed`: the same weights on every device.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn init(&self, seed: u64, device: &Device) -> Result<Network, ConfigError> {
        self.check()?;
        let draw = &mut Draw::new(seed, device);
        let (width, channels) = (self.resolved_width(), self.image[0]);
        Ok(match (self.architecture, Plan::of(self.architecture)) {
            (_, Some(plan)) => {
                let net = ResNet::new(draw, &plan, self.image, width, self.classes);
                match plan.is_for_cifar() {
                    true => Network::CifarResNet(net),
                    false => Network::ResNet(net),
                }
            }
            (Architecture::Vgg16Bn, _) => {
                Network::Vgg(Vgg::new(draw, channels, width, self.classes))
            }
            _ => {
                let net = SmallCnn::new(draw, self.image, width, self.norm, self.classes);
                Network::SmallCnn(net)
            }
        })
    }
}

/// A network of some architecture.
// There is one at a time, and boxes would put another name into the paths of its parameters.
#[allow(clippy::large_enum_variant)]
#[derive(Module, Debug)]
pub enum Network {
    /// Two convolutions and a hidden layer; see [`SmallCnn`].
    SmallCnn(SmallCnn),
    /// A [`ResNet`] of torchvision's.
    ResNet(ResNet),
    /// A [`ResNet`] for CIFAR, whose shortcuts have no weights.
    CifarResNet(ResNet),
    /// VGG-16 with batch normalisation; see [`Vgg`].
    Vgg(Vgg),
}

/// Expands to the same expression for every architecture.
macro_rules! each {
    ($network:expr, $net:ident => $value:expr) => {
        match $network {
            Network::SmallCnn($net) => $value,
            Network::ResNet($net) => $value,
            Network::CifarResNet($net) => $value,
            Network::Vgg($net) => $value,
        }
    };
}

impl Network {
    /// Describes the network below its head to whoever carries its operations out.
    pub(crate) fn layers<O: Ops>(&self, ops: &mut O, images: O::Value) -> O::Rows {
        each!(self, net => net.layers(ops, images))
    }

    /// Computes feature rows [N, D] of images [N, channels, height, width] with burn, on any device.
    ///
    /// burn's autodiff goes back through it. On the processor, [`features_on`](Self::features_on) is the fast way to
    /// train and [`folded`](Self::folded) the fast way to extract features.
    pub fn features(&self, images: Tensor<4>, mode: Mode<'_>) -> Tensor<2> {
        self.layers(&mut Forward::Own(mode), images)
    }

    /// Returns the linear layer from features to logits.
    pub fn head(&self) -> &Linear {
        each!(self, net => &net.head)
    }

    /// Computes logits [N, C] of images [N, channels, height, width] with burn, on any device: the head on the
    /// [`features`](Self::features).
    pub fn forward(&self, images: Tensor<4>, mode: Mode<'_>) -> Tensor<2> {
        self.head().forward(self.features(images, mode))
    }

    /// Moves the running statistics of batch normalisation towards those that a training pass saw.
    pub fn with_statistics(self, statistics: Statistics) -> Self {
        let seen = statistics.take();
        if seen.is_empty() {
            return self;
        }
        let running = params::buffers(&self)
            .into_iter()
            .zip(seen)
            .map(|(old, new)| old * (1.0 - MOMENTUM) + new * MOMENTUM)
            .collect();
        params::with_buffers(self, running)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Distribution;

    use super::*;
    use crate::layers::test_images;

    fn parameters(architecture: Architecture, classes: usize, side: usize) -> usize {
        let config = NetworkConfig::new(architecture, classes, [3, side, side]);
        let net = config.init(0, &Device::flex()).unwrap();
        let weights = params::weights(&net).iter().map(|w| w.dims()[0]).sum();
        let least = config.least_weights().unwrap() as usize;
        assert!(
            least <= weights && least > weights / 10 * 9,
            "{architecture}: {least}"
        );
        weights
    }

    #[test]
    fn parameter_counts_are_the_published_ones() {
        assert_eq!(parameters(Architecture::ResNet18, 10, 32), 11_173_962);
        assert_eq!(parameters(Architecture::ResNet18, 1000, 224), 11_689_512);
        assert_eq!(parameters(Architecture::ResNet34, 1000, 224), 21_797_672);
        assert_eq!(parameters(Architecture::ResNet20, 10, 32), 269_722);
        assert_eq!(parameters(Architecture::ResNet32, 10, 32), 464_154);
        assert_eq!(parameters(Architecture::ResNet44, 10, 32), 658_586);
        assert_eq!(parameters(Architecture::ResNet56, 10, 32), 853_018);
        assert_eq!(parameters(Architecture::ResNet110, 10, 32), 1_727_962);
        assert_eq!(parameters(Architecture::Vgg16Bn, 10, 32), 14_728_266);
        let convolutions = (27 + 1) * 16 + (9 * 16 + 1) * 32;
        let linears = (32 * 8 * 8 + 1) * 128 + (128 + 1) * 10;
        assert_eq!(
            parameters(Architecture::SmallCnn, 10, 32),
            convolutions + linears
        );
    }

    #[test]
    fn shapes_of_every_architecture() {
        let device = Device::flex();
        for (architecture, images) in [
            (Architecture::SmallCnn, vec![[1, 28, 28], [3, 4, 8]]),
            (
                Architecture::ResNet18,
                vec![[1, 28, 28], [3, 9, 13], [3, 64, 64]],
            ),
            (Architecture::ResNet34, vec![[3, 8, 8]]),
            (Architecture::ResNet20, vec![[3, 32, 32], [3, 9, 11]]),
            (Architecture::ResNet32, vec![[3, 8, 8]]),
            (Architecture::Vgg16Bn, vec![[3, 32, 32], [1, 64, 64]]),
        ] {
            for image in images {
                let config = NetworkConfig::new(architecture, 7, image).with_width(4);
                let net = config.init(0, &device).unwrap();
                let [c, h, w] = image;
                let images = test_images([3, c, h, w]);
                let features = net.features(images.clone(), Mode::Eval);
                assert_eq!(features.dims(), [3, config.features()], "{config:?}");
                let logits = net.forward(images, Mode::Eval);
                assert_eq!(logits.dims(), [3, 7], "{config:?}");
                let by_hand = features.clone().matmul(net.head().weight.val())
                    + net.head().bias.as_ref().unwrap().val().unsqueeze::<2>();
                let gap = (logits - by_hand).abs().max().into_scalar::<f32>();
                assert!(
                    gap < 1e-5,
                    "{config:?}: forward is the head on the features, {gap}"
                );
                let least = features.min().into_scalar::<f32>();
                assert!(least >= 0.0, "features come out of a ReLU");
            }
        }
    }

    #[test]
    fn weights_depend_on_the_seed_alone() {
        let config = NetworkConfig::new(Architecture::ResNet20, 10, [3, 32, 32]);
        let device = Device::flex();
        let first = config.init(5, &device).unwrap().state();
        device.seed(1);
        Tensor::<1>::random([10], Distribution::Default, &device);
        let elsewhere = std::thread::spawn({
            let config = config.clone();
            move || config.init(5, &Device::flex()).unwrap().state()
        });
        assert_eq!(elsewhere.join().unwrap(), first);
        assert_ne!(config.init(6, &device).unwrap().state(), first);
    }

    #[test]
    fn weights_have_the_published_spread() {
        let device = Device::flex();
        let spread = |config: NetworkConfig, name: &str| {
            let state = config.init(3, &device).unwrap().state();
            let values = &state.get(name).unwrap().values;
            let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / values.len() as f64;
            let squares: f64 = values.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum();
            let largest = values.iter().fold(0.0_f32, |a, v| a.max(v.abs()));
            (
                mean,
                (squares / values.len() as f64).sqrt(),
                f64::from(largest),
            )
        };
        let close = |value: f64, wanted: f64| (value / wanted - 1.0).abs() < 0.02;

        let resnet = NetworkConfig::new(Architecture::ResNet18, 10, [3, 32, 32]);
        let (mean, deviation, _) = spread(resnet.clone(), "layer3.0.conv1.weight");
        let fan_out = (9.0 * 256.0_f64).sqrt();
        assert!(close(deviation, 2.0_f64.sqrt() / fan_out), "{deviation}");
        assert!(mean.abs() < 1e-3, "{mean}");
        let (_, deviation, largest) = spread(resnet, "fc.weight");
        let bound = 512.0_f64.sqrt().recip();
        assert!(largest <= bound && close(largest, bound), "{largest}");
        assert!(close(deviation, bound / 3.0_f64.sqrt()), "{deviation}");

        let small = NetworkConfig::new(Architecture::SmallCnn, 10, [1, 28, 28]);
        let (_, _, largest) = spread(small.clone(), "conv2.weight");
        assert!(close(largest, 144.0_f64.sqrt().recip()), "{largest}");
        let (_, _, largest) = spread(small, "fc1.bias");
        let bound = (32.0 * 49.0_f64).sqrt().recip();
        assert!(largest <= bound && largest > 0.9 * bound, "{largest}");

        let cifar = NetworkConfig::new(Architecture::ResNet20, 10, [3, 32, 32]);
        let (_, deviation, _) = spread(cifar, "layer3.0.conv1.weight");
        let fan_in = (9.0 * 32.0_f64).sqrt();
        assert!(close(deviation, 2.0_f64.sqrt() / fan_in), "{deviation}");
    }

    #[test]
    fn sizes_that_fit_no_network_are_errors() {
        for (architecture, image, expected) in [
            (Architecture::SmallCnn, [1, 27, 28], "multiples of 4"),
            (Architecture::SmallCnn, [1, 0, 0], "at least 4×4"),
            (Architecture::SmallCnn, [0, 28, 28], "at least one channel"),
            (Architecture::Vgg16Bn, [3, 32, 31], "at least 32×32"),
            (Architecture::ResNet18, [3, 7, 7], "at least 8×8"),
            (Architecture::ResNet20, [3, 5000, 32], "at most 4096×4096"),
        ] {
            let config = NetworkConfig::new(architecture, 10, image);
            let text = config.init(0, &Device::flex()).unwrap_err().to_string();
            assert!(text.contains(expected), "{text}");
            assert!(text.contains(architecture.name()), "{text}");
        }
        let config = NetworkConfig::new(Architecture::SmallCnn, 0, [1, 28, 28]);
        assert!(
            config
                .check()
                .unwrap_err()
                .to_string()
                .contains("0 classes")
        );
        let config = NetworkConfig::new(Architecture::SmallCnn, 2, [1, 28, 28]).with_width(0);
        assert!(config.check().unwrap_err().to_string().contains("width 0"));
    }

    #[test]
    fn names_of_architectures() {
        for architecture in Architecture::ALL {
            assert_eq!(architecture.to_string().parse(), Ok(architecture));
        }
        let error = "resnet".parse::<Architecture>().unwrap_err().to_string();
        assert!(
            error.contains("`resnet`") && error.contains("vgg16-bn"),
            "{error}"
        );
    }

    /// Gradients of a pass in either mode, and what the pass leaves behind.
    #[test]
    fn clones_share_nothing() {
        let device = Device::flex();
        let config = NetworkConfig::new(Architecture::ResNet20, 3, [3, 8, 8]).with_width(4);
        let teacher = config.init(1, &device).unwrap();
        let before = teacher.state();
        let student = teacher.clone().train();
        let images = test_images([4, 3, 8, 8]);

        let statistics = Statistics::default();
        let loss = student
            .forward(images.clone().autodiff(), Mode::Train(&statistics))
            .powi_scalar(2)
            .sum();
        let gradients = params::gradients(&student, &loss.backward());
        let moved = params::weights(&student)
            .into_iter()
            .zip(gradients)
            .map(|(weight, gradient)| weight - gradient * 0.1)
            .collect();
        let student = params::with_weights(student, moved).with_statistics(statistics);

        assert_eq!(teacher.state(), before);
        let after = student.state();
        for (old, new) in before.iter().zip(after.iter()) {
            // Biases of a normalised layer's convolution would not move, but there are none.
            assert_ne!(old.values, new.values, "{} moved", old.name);
        }
        let logits = |net: &Network| net.forward(images.clone(), Mode::Eval).into_data();
        assert_ne!(logits(&teacher), logits(&student.valid()));
    }
}
