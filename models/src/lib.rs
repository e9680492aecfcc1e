//! Networks for muso, written with burn.
//!
//! The whole method lives between a network's features and its last layer, so every network here exposes the two
//! apart: `features()` maps a batch of images to rows, `head()` is the linear layer on top, and `forward()` is one
//! after the other. This crate knows nothing of unlearning, and nothing of devices but what burn tells it. A network
//! that is not here comes in by the trait [`FeatureNet`].
//!
//! A [`NetworkConfig`] makes a [`Network`] from a seed; a [`StateDict`] is what a checkpoint holds of one; [`params`]
//! gives optimisers its weights as flat vectors.
//!
//! ```
//! use muso_models::burn::tensor::{Device, Tensor};
//! use muso_models::{Architecture, Mode, NetworkConfig};
//!
//! let device = Device::flex();
//! let config = NetworkConfig::new(Architecture::SmallCnn, 10, [1, 28, 28]);
//! let net = config.init(0, &device)?;
//! let images = Tensor::<4>::zeros([2, 1, 28, 28], &device);
//! assert_eq!(net.features(images, Mode::Eval).dims(), [2, config.features()]);
//! # Ok::<(), muso_models::ConfigError>(())
//! ```

#[cfg(feature = "cuda")]
pub mod cuda;
mod direct;
pub mod feature_net;
mod folded;
mod kernel;
mod layers;
mod network;
mod norm;
pub mod params;
mod resnet;
mod small_cnn;
mod state;
mod tape;
mod vgg;

pub use burn;
pub use feature_net::{Extractor, FeatureNet, Input};
pub use folded::Folded;
pub use network::{Architecture, ConfigError, Network, NetworkConfig};
pub use norm::{BatchNorm, Mode, Statistics};
pub use resnet::{CifarResNet, ResNet};
pub use small_cnn::SmallCnn;
pub use state::{LoadError, StateDict, StateTensor};
pub use tape::Tape;
pub use vgg::Vgg;
