//! Networks beside torch: feature extraction and a step of training, on the same images and from the same weights.

use muso_models::burn::module::Module;
use muso_models::burn::tensor::activation::log_softmax;
use muso_models::burn::tensor::{Device, Int, Tensor, TensorData};
use muso_models::{Architecture, Folded, Mode, Network, NetworkConfig, Statistics, Tape, params};
use serde_json::{Value, json};

use super::super::arrays::Array;
use super::super::inputs::gaussian_f32;
use anyhow::Result;
use muso::engine::Matrix;

/// A network with a batch to run it on.
pub(crate) struct Prepared {
    config: NetworkConfig,
    network: Network,
    folded: Folded,
    images: Tensor<4>,
    labels: Tensor<2, Int>,
    tape: Tape,
}

impl Prepared {
    pub(crate) fn new(architecture: Architecture, count: usize) -> Result<Self> {
        let image = match architecture {
            Architecture::SmallCnn => [1, 28, 28],
            _ => [3, 32, 32],
        };
        let [channels, height, width] = image;
        let device = Device::flex();
        let config = NetworkConfig::new(architecture, 10, image);
        let network = config.init(1, &device)?;
        let images = gaussian_f32(count * channels * height * width, 11);
        let shape = [count, channels, height, width];
        let labels: Vec<i64> = (0..count as i64).map(|i| i % 10).collect();
        Ok(Self {
            folded: network.folded(),
            network: network.train(),
            images: Tensor::from_data(TensorData::new(images, shape), &device),
            labels: Tensor::from_data(TensorData::new(labels, [count, 1]), &device),
            tape: Tape::default(),
            config,
        })
    }

    pub(crate) fn describe(&self) -> Value {
        json!({
            "architecture": self.config.architecture.name(),
            "classes": self.config.classes,
            "image": self.config.image,
        })
    }

    /// What the peers get: the images, the labels and all tensors end to end.
    pub(crate) fn arrays(&self) -> Vec<(&'static str, Array)> {
        let count = self.images.dims()[0];
        let images = floats(self.images.clone());
        let state = self.network.state();
        let weights: Vec<f32> = state.iter().flat_map(|t| t.values.clone()).collect();
        let labels: Vec<f32> = (0..count).map(|i| (i % 10) as f32).collect();
        vec![
            ("images", Array::F32(images.len() / count, images)),
            ("weights", Array::F32(weights.len(), weights)),
            ("labels", Array::F32(count, labels)),
        ]
    }

    /// Feature rows.
    pub(crate) fn extraction(&self) -> Matrix {
        let rows = self.folded.features(self.images.clone());
        widened(rows.dims()[0], floats(rows))
    }

    /// Forward, backward and the update; gives the gradient of the first convolution.
    pub(crate) fn training(&self) -> Matrix {
        let statistics = Statistics::default();
        let mode = Mode::Train(&statistics);
        let logits = self
            .network
            .forward_on(self.images.clone(), mode, &self.tape);
        let chosen = log_softmax(logits, 1).gather(1, self.labels.clone());
        let gradients = self
            .tape
            .gradients(&self.network, &(-chosen.mean()).backward());
        let first = gradients[0].clone();
        let weights = params::weights(&self.network);
        // A rate of zero costs what any other does, and every step is the first.
        let updated = weights.into_iter().zip(gradients).map(|(w, g)| w - g * 0.0);
        let network = params::with_weights(self.network.clone(), updated.collect());
        std::hint::black_box(network.with_statistics(statistics));
        widened(1, floats(first))
    }
}

fn widened(rows: usize, values: Vec<f32>) -> Matrix {
    let values: Vec<f64> = values.into_iter().map(f64::from).collect();
    Matrix::from_vec(rows, values.len() / rows, values)
}

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    let data = tensor.without_autodiff().into_data();
    data.try_into_vec().expect("tensors here are f32")
}
