//! Convolutional networks for muso, written with burn.
//!
//! ```
//! use muso_models::burn::tensor::{Device, Tensor};
//! use muso_models::{Architecture, NetworkConfig};
//!
//! let device = Device::flex();
//! let config = NetworkConfig::new(Architecture::SmallCnn, 10, [1, 28, 28]);
//! let net = config.init(0, &device)?;
//! let images = Tensor::<4>::zeros([2, 1, 28, 28], &device);
//! let rows = net.folded().features(images);
//! assert_eq!(rows.dims(), [2, config.features()]);
//! assert_eq!(net.head().forward(rows).dims(), [2, 10]);
//! # Ok::<(), muso_models::ConfigError>(())
//! ```
//!
//! The whole method lives between a network's features and its last layer, so every [`Network`] exposes the two apart:
//! `features` maps a batch of images to rows, `head` is the linear layer on top, and `forward` is one after the other.
//! This crate knows nothing of unlearning, and nothing of devices but what burn tells it.
//!
//! A [`NetworkConfig`] makes a [`Network`] from a seed; a [`StateDict`] is what a checkpoint holds of one; [`params`]
//! gives optimisers its weights as flat vectors.
//!
//! # burn, and the fast way on the processor
//!
//! Each architecture is described once, and there are two ways to compute it: with burn, on any device, and with direct
//! convolutions of this crate, on the processor. The latter is what `muso` uses there; results are equal up to rounding.
//!
//! | | by burn | by direct convolution |
//! |---|---|---|
//! | features | [`Network::features`] in [`Mode::Eval`], or [`Folded::features_by_burn`] | [`Folded::features`], [`Folded::feature_rows`] |
//! | logits | [`Network::forward`] | [`Folded::forward`] |
//! | training pass | [`Network::forward`] in [`Mode::Train`] | [`Network::forward_on`] a [`Tape`] |
//! | gradients | [`params::gradients`] | [`Tape::gradients`] |
//!
//! A training step either way:
//!
//! ```
//! use muso_models::burn::module::Module;
//! use muso_models::burn::tensor::{Device, Tensor};
//! use muso_models::{Architecture, Mode, NetworkConfig, Statistics, Tape, params};
//!
//! let device = Device::flex();
//! let config = NetworkConfig::new(Architecture::SmallCnn, 10, [1, 28, 28]);
//! let net = config.init(0, &device)?.train();
//! let images = Tensor::<4>::ones([2, 1, 28, 28], &device);
//!
//! let statistics = Statistics::default();
//! let loss = net.forward(images.clone(), Mode::Train(&statistics)).powi_scalar(2).mean();
//! let by_burn = params::gradients(&net, &loss.backward());
//!
//! let (statistics, tape) = (Statistics::default(), Tape::default());
//! let loss = net.forward_on(images, Mode::Train(&statistics), &tape).powi_scalar(2).mean();
//! let direct = tape.gradients(&net, &loss.backward());
//!
//! for (a, b) in by_burn.into_iter().zip(direct) {
//!     assert!((a - b).abs().max().into_scalar::<f32>() < 1e-4);
//! }
//! # Ok::<(), muso_models::ConfigError>(())
//! ```

mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod feature_net;
mod layers;
mod network;
mod norm;
mod ops;
pub mod params;
mod resnet;
mod small_cnn;
mod state;
mod vgg;

pub use burn;
pub use cpu::infer::Folded;
pub use cpu::train::Tape;
pub use feature_net::{Extractor, FeatureNet, Input};
pub use network::{Architecture, ConfigError, Network, NetworkConfig};
pub use norm::{BatchNorm, Mode, Statistics};
pub use resnet::ResNet;
pub use small_cnn::SmallCnn;
pub use state::{LoadError, StateDict, StateTensor};
pub use vgg::Vgg;
