//! Networks for muso, written with burn.
//!
//! The whole method lives between a network's features and its last layer, so every network here exposes the two
//! apart: `features()` maps a batch of images to rows, `head()` is the linear layer on top, and `forward()` is one
//! after the other. This crate knows nothing of unlearning, and nothing of devices but what burn tells it.
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

mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
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
pub use network::{Architecture, ConfigError, Network, NetworkConfig};
pub use norm::{BatchNorm, Mode, Statistics};
pub use resnet::ResNet;
pub use small_cnn::SmallCnn;
pub use state::{LoadError, StateDict, StateTensor};
pub use vgg::Vgg;
