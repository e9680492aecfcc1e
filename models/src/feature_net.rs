//! The trait that lets any burn network in.
//!
//! A [`FeatureNet`] is a burn module in two parts: `features` maps a batch of inputs to feature rows, `head` is the linear
//! layer on top. That is all that has to be written:
//!
//! ```
//! use muso_models::burn::module::Module;
//! use muso_models::burn::nn::{Linear, LinearConfig};
//! use muso_models::burn::tensor::activation::relu;
//! use muso_models::burn::tensor::{Device, Tensor};
//! use muso_models::{FeatureNet, burn};
//!
//! #[derive(Module, Debug)]
//! struct Mlp {
//!     hidden: Linear,
//!     head: Linear,
//! }
//!
//! impl FeatureNet for Mlp {
//!     type Input = Tensor<2>;
//!
//!     fn features(&self, rows: Tensor<2>) -> Tensor<2> {
//!         relu(self.hidden.forward(rows))
//!     }
//!
//!     fn head(&self) -> &Linear {
//!         &self.head
//!     }
//! }
//!
//! let device = Device::flex();
//! let net = Mlp {
//!     hidden: LinearConfig::new(5, 16).init(&device),
//!     head: LinearConfig::new(16, 3).init(&device),
//! };
//! let logits = net.extractor().logits(Tensor::ones([4, 5], &device));
//! assert_eq!(logits.dims(), [4, 3]);
//! ```
//!
//! What training needs besides has defaults that go through burn: its autodiff, and its own switch between training and
//! validation, which dropout and batch normalisation follow. The built-in [`Network`] replaces the defaults by its faster
//! way through the processor.

use std::fmt;
use std::sync::Arc;

use burn::module::{Flag, Module, ModuleMapper, Param};
use burn::nn::Linear;
use burn::tensor::{Bool, Gradients, Int, Tensor};

use crate::network::Network;
use crate::norm::{Mode, Statistics};
use crate::{Tape, params};

/// A batch of inputs: a tensor of any kind and rank, or a pair of such, or a type of yours.
pub trait Input: Clone + Send + 'static {
    /// Associates the batch with burn's autodiff, as constants. Layers that behave differently while they train tell by
    /// that.
    fn autodiff(self) -> Self;
}

macro_rules! tensor_input {
    ($($kind:ty),*) => {$(
        impl<const D: usize> Input for Tensor<D, $kind> {
            fn autodiff(self) -> Self {
                Tensor::autodiff(self)
            }
        }
    )*};
}

tensor_input!(burn::tensor::Float, Int, Bool);

impl<A: Input, B: Input> Input for (A, B) {
    fn autodiff(self) -> Self {
        (self.0.autodiff(), self.1.autodiff())
    }
}

/// A burn network whose last layer is linear. See the [module's text](crate::feature_net) for an example.
///
/// Implementors write [`features`](Self::features) and [`head`](Self::head). The other methods are what extraction and
/// training call; override them to replace burn's way by one of your own.
///
/// Random layers such as dropout draw from burn's generator of the device: a run that has any repeats to the bit only if
/// the device is seeded before it and nothing else draws meanwhile.
pub trait FeatureNet: Module + Sync + 'static {
    /// Type of a batch of inputs.
    type Input: Input;

    /// Maps inputs to feature rows, [N, D].
    fn features(&self, input: Self::Input) -> Tensor<2>;

    /// Returns the linear layer from features to logits.
    fn head(&self) -> &Linear;

    /// Returns this network in evaluation mode, for many batches. Later changes of the network do not show in it.
    fn extractor(&self) -> Extractor<Self::Input> {
        let network = self.valid();
        let head = network.head().clone();
        Extractor::new(head, move |input| network.features(input))
    }

    /// Computes logits, [N, C], that can be differentiated. `self` is on the differentiating device.
    ///
    /// The default lets burn record the pass; `tape` is for networks that record it themselves. In [`Mode::Eval`] dropout
    /// and batch normalisation behave as in validation.
    fn training_logits(&self, input: Self::Input, mode: Mode<'_>, tape: &Tape) -> Tensor<2> {
        let _ = tape;
        let forward = |network: &Self| {
            let features = network.features(input.autodiff());
            network.head().forward(features)
        };
        match mode {
            Mode::Train(_) => forward(self),
            Mode::Eval => forward(&with_training_flags_off(self.clone())),
        }
    }

    /// Returns the gradient of every trainable parameter, flat, in the order of [`params::weights`].
    fn weight_gradients(&self, gradients: &Gradients, tape: &Tape) -> Vec<Tensor<1>> {
        let _ = tape;
        params::gradients(self, gradients)
    }

    /// Turns the network that a training step differentiated into the one after the step, off the differentiating device.
    ///
    /// `statistics` are what passes in [`Mode::Train`] noted. The default expects none: burn's own batch normalisation
    /// keeps its running statistics in the module.
    fn after_step(self, weights: Vec<Tensor<1>>, statistics: Statistics) -> Self {
        let _ = statistics;
        params::with_weights(self.valid(), weights)
    }
}

/// A network in evaluation mode. Clones share it.
#[derive(Clone)]
pub struct Extractor<I> {
    features: Arc<dyn Fn(I) -> Tensor<2> + Send + Sync>,
    head: Linear,
}

impl<I> fmt::Debug for Extractor<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extractor")
            .field("head", &self.head)
            .finish_non_exhaustive()
    }
}

impl<I> Extractor<I> {
    /// Makes one of a function from inputs to feature rows, and the linear layer on them.
    pub fn new(head: Linear, features: impl Fn(I) -> Tensor<2> + Send + Sync + 'static) -> Self {
        Self {
            features: Arc::new(features),
            head,
        }
    }

    /// Computes feature rows, [N, D].
    pub fn features(&self, input: I) -> Tensor<2> {
        (self.features)(input)
    }

    /// Returns the linear layer from features to logits.
    pub fn head(&self) -> &Linear {
        &self.head
    }

    /// Computes logits, [N, C].
    pub fn logits(&self, input: I) -> Tensor<2> {
        self.head.forward(self.features(input))
    }
}

/// Normalisations in the convolutions for extraction, a [`Tape`] for training: the fast way through the processor.
impl FeatureNet for Network {
    type Input = Tensor<4>;

    fn features(&self, images: Tensor<4>) -> Tensor<2> {
        Network::features(self, images, Mode::Eval)
    }

    fn head(&self) -> &Linear {
        Network::head(self)
    }

    fn extractor(&self) -> Extractor<Tensor<4>> {
        let folded = self.folded();
        let head = folded.head().clone();
        Extractor::new(head, move |images| folded.features(images))
    }

    fn training_logits(&self, images: Tensor<4>, mode: Mode<'_>, tape: &Tape) -> Tensor<2> {
        self.forward_on(images, mode, tape)
    }

    fn weight_gradients(&self, gradients: &Gradients, tape: &Tape) -> Vec<Tensor<1>> {
        tape.gradients(self, gradients)
    }

    fn after_step(self, weights: Vec<Tensor<1>>, statistics: Statistics) -> Self {
        params::with_weights(self.valid(), weights).with_statistics(statistics)
    }
}

/// Layers as in validation, parameters as they are: the gradients are still those of the same leaves.
fn with_training_flags_off<M: Module>(module: M) -> M {
    struct Off;
    impl ModuleMapper for Off {
        fn map_flag(&mut self, flag: Param<Flag>) -> Param<Flag> {
            flag.with_value(false)
        }
    }
    module.map(&mut Off)
}

#[cfg(test)]
mod tests {
    use burn::nn::{BatchNorm, BatchNormConfig, Dropout, DropoutConfig, LinearConfig};
    use burn::tensor::{Device, TensorData};

    use super::*;

    /// Layers that behave differently while they train.
    #[derive(Module, Debug)]
    struct Net {
        hidden: Linear,
        norm: BatchNorm,
        drop: Dropout,
        head: Linear,
    }

    impl Net {
        fn new() -> Self {
            let device = Device::flex();
            Self {
                hidden: LinearConfig::new(3, 6).init(&device),
                norm: BatchNormConfig::new(6).init(&device),
                drop: DropoutConfig::new(0.5).init(),
                head: LinearConfig::new(6, 2).init(&device),
            }
        }

        fn running(&self) -> Vec<f32> {
            values(self.norm.running_mean.value().without_autodiff())
        }
    }

    impl FeatureNet for Net {
        type Input = Tensor<2>;

        fn features(&self, rows: Tensor<2>) -> Tensor<2> {
            self.drop
                .forward(self.norm.forward(self.hidden.forward(rows)))
        }

        fn head(&self) -> &Linear {
            &self.head
        }
    }

    fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.into_data().try_to_vec().unwrap()
    }

    fn rows() -> Tensor<2> {
        let numbers: Vec<f32> = (0..24).map(|i| (i as f32 * 0.7).sin() + 0.5).collect();
        Tensor::from_data(TensorData::new(numbers, [8, 3]), &Device::flex())
    }

    #[test]
    fn extraction_is_burns_validation_and_changes_nothing() {
        let net = Net::new();
        let before = net.running();
        let first = values(net.extractor().logits(rows()));
        assert_eq!(first, values(net.extractor().logits(rows())), "no dropout");
        let valid = net.valid();
        let by_burn = valid.head.forward(valid.features(rows()));
        assert_eq!(first, values(by_burn));
        assert_eq!(net.running(), before);
    }

    #[test]
    fn a_step_keeps_statistics_and_leaves_its_start_alone() {
        let net = Net::new();
        let (start, weights) = (net.running(), params::weights(&net));
        let (statistics, tape) = (Statistics::default(), Tape::default());
        let student = net.clone().train();
        let logits = student.training_logits(rows(), Mode::Train(&statistics), &tape);
        let gradients = student.weight_gradients(&logits.sum().backward(), &tape);
        assert_eq!(gradients.len(), weights.len());
        assert_eq!(weights.len(), 6, "running statistics are no weights");
        let moved: Vec<_> = weights.iter().map(|w| w.clone() * 2.0).collect();
        let after = student.after_step(moved, statistics);
        assert_eq!(net.running(), start, "a clone is trained");
        assert_ne!(after.running(), start, "what the batch showed is kept");
        for (now, was) in params::weights(&after).into_iter().zip(weights) {
            assert_eq!(values(now), values(was * 2.0));
        }
        // Another step finds its parameters trainable.
        let student = after.train();
        let logits = student.training_logits(rows(), Mode::Eval, &tape);
        let gradients = student.weight_gradients(&logits.sum().backward(), &tape);
        assert_eq!(values(gradients[5].clone()), [8.0, 8.0]);
    }

    #[test]
    fn evaluation_mode_has_gradients_without_dropout_or_statistics() {
        let net = Net::new();
        let student = net.clone().train();
        let tape = Tape::default();
        let logits = student.training_logits(rows(), Mode::Eval, &tape);
        let plain = values(net.extractor().logits(rows()));
        assert_eq!(values(logits.clone().without_autodiff()), plain);
        let gradients = student.weight_gradients(&logits.sum().backward(), &tape);
        let moving = |g: &Tensor<1>| values(g.clone()).iter().any(|g| *g != 0.0);
        assert!(gradients.iter().all(moving), "through every layer");
        let after = student.after_step(params::weights(&net), Statistics::default());
        assert_eq!(after.running(), net.running());
    }

    #[test]
    fn frozen_parameters_are_known() {
        let mut net = Net::new();
        net.hidden = net.hidden.no_grad();
        let frozen = params::frozen(&net.train());
        assert_eq!(frozen, [true, true, false, false, false, false]);
    }
}
