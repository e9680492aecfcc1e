//! Networks for muso, written with burn.
//!
//! The whole method lives between a network's features and its last layer, so every network here exposes the two
//! apart: `features()` maps a batch of images to rows, `head()` is the linear layer on top, and `forward()` is one
//! after the other. This crate knows nothing of unlearning, and nothing of devices but what burn tells it.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use muso_models::SmallCnnConfig;
//!
//! let device = Device::flex();
//! let net = SmallCnnConfig::new(10).init(&device);
//! let images = Tensor::<4>::zeros([2, 1, 28, 28], &device);
//! assert_eq!(net.features(images).dims(), [2, 128]);
//! ```

mod small_cnn;

pub use burn;
pub use small_cnn::{SmallCnn, SmallCnnConfig};
