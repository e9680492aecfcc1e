//! A network with a batch: feature extraction and a step of training, by the convolutions of muso-models and by burn's
//! own, from the same weights. The benches of criterion include this file too.
//!
//! On the processor the one way is [`Folded`] and [`Tape`], and the other burn's flex backend with its autodiff; on a GPU
//! both are burn.

use muso_models::burn::module::Module;
use muso_models::burn::tensor::activation::log_softmax;
use muso_models::burn::tensor::{Device, Int, Tensor, TensorData};
use muso_models::{
    Architecture, ConfigError, Folded, Mode, Network, NetworkConfig, Statistics, Tape, params,
};

use super::inputs::gaussian_f32;

const CLASSES: usize = 10;

/// A network with a batch to run it on.
pub(crate) struct Prepared {
    /// Sizes of the network.
    pub(crate) config: NetworkConfig,
    /// The network in training mode.
    pub(crate) network: Network,
    /// The network in evaluation mode, unfolded.
    plain: Network,
    folded: Folded,
    /// [N, channels, height, width].
    pub(crate) images: Tensor<4>,
    labels: Tensor<2, Int>,
    tape: Tape,
}

impl Prepared {
    /// Draws weights and `count` images; the same each time.
    pub(crate) fn new(
        architecture: Architecture,
        count: usize,
        device: &Device,
    ) -> Result<Self, ConfigError> {
        let image = match architecture {
            Architecture::SmallCnn => [1, 28, 28],
            _ => [3, 32, 32],
        };
        let [channels, height, width] = image;
        let config = NetworkConfig::new(architecture, CLASSES, image);
        let network = config.init(1, device)?;
        let images = gaussian_f32(count * channels * height * width, 11);
        let shape = [count, channels, height, width];
        let labels: Vec<i64> = (0..count).map(|i| label(i) as i64).collect();
        Ok(Self {
            folded: network.folded(),
            plain: network.clone(),
            network: network.train(),
            images: Tensor::from_data(TensorData::new(images, shape), device),
            labels: Tensor::from_data(TensorData::new(labels, [count, 1]), device),
            tape: Tape::default(),
            config,
        })
    }

    /// Computes the feature rows, with batch normalisation folded into the convolutions.
    pub(crate) fn extraction(&self) -> Tensor<2> {
        self.folded.features(self.images.clone())
    }

    /// Computes the same through burn, layer by layer.
    pub(crate) fn burn_extraction(&self) -> Tensor<2> {
        self.plain.features(self.images.clone(), Mode::Eval)
    }

    /// Runs forward, backward and the update; returns the gradients, in the order of [`params::weights`].
    pub(crate) fn training(&self) -> Vec<Tensor<1>> {
        self.step(
            |mode| {
                self.network
                    .forward_on(self.images.clone(), mode, &self.tape)
            },
            |loss| self.tape.gradients(&self.network, &loss.backward()),
        )
    }

    /// Makes the training step with burn's convolutions and their autodiff.
    pub(crate) fn burn_training(&self) -> Vec<Tensor<1>> {
        self.step(
            |mode| self.network.forward(self.images.clone().autodiff(), mode),
            |loss| params::gradients(&self.network, &loss.backward()),
        )
    }

    fn step(
        &self,
        forward: impl FnOnce(Mode<'_>) -> Tensor<2>,
        backward: impl FnOnce(Tensor<1>) -> Vec<Tensor<1>>,
    ) -> Vec<Tensor<1>> {
        let statistics = Statistics::default();
        let logits = forward(Mode::Train(&statistics));
        let chosen = log_softmax(logits, 1).gather(1, self.labels.clone());
        let gradients = backward(-chosen.mean());
        let weights = params::weights(&self.network);
        // A rate of zero costs what any other does, and every step is the first.
        let updated = weights.into_iter().zip(gradients.clone());
        let updated = updated.map(|(w, g)| w - g * 0.0).collect();
        let network = params::with_weights(self.network.clone(), updated);
        std::hint::black_box(network.with_statistics(statistics));
        gradients
    }
}

/// Returns the class of an image.
pub(crate) fn label(image: usize) -> usize {
    image % CLASSES
}

/// Returns the values of a tensor, on the host.
pub(crate) fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    let data = tensor.without_autodiff().into_data();
    data.try_into_vec().expect("tensors here are f32")
}
