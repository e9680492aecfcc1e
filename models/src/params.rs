//! A network's parameters as a list of flat vectors.
//!
//! Optimisers, masks and importance scores treat every weight alike, whatever its rank. They work on `Vec<Tensor<1>>`
//! in the network's own order: [`weights`] takes it out, [`with_weights`] puts it back, and [`gradients`] is a list of
//! the same shape. Buffers (running statistics) are not parameters and have their own way in.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Gradients, Tensor};

fn is_buffer(path: &[String]) -> bool {
    path.last().is_some_and(|name| name.starts_with("running_"))
}

struct Visit<F> {
    path: Vec<String>,
    each: F,
}

/// Action of a visit on one parameter.
trait Each {
    fn see<const D: usize>(&mut self, tensor: Tensor<D>, buffer: bool);
}

impl<F: Each> ModuleVisitor for Visit<F> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.each.see(param.val(), is_buffer(&self.path));
    }
}

fn visit<M: Module, F: Each>(module: &M, each: F) -> F {
    let mut visit = Visit {
        path: Vec::new(),
        each,
    };
    module.visit(&mut visit);
    visit.each
}

struct Weights(Vec<Tensor<1>>);

impl Each for Weights {
    fn see<const D: usize>(&mut self, tensor: Tensor<D>, buffer: bool) {
        if !buffer {
            self.0.push(tensor.without_autodiff().flatten(0, D - 1));
        }
    }
}

/// Returns every trainable parameter, flat.
pub fn weights<M: Module>(module: &M) -> Vec<Tensor<1>> {
    visit(module, Weights(Vec::new())).0
}

struct Collect<'a> {
    gradients: &'a Gradients,
    found: Vec<Tensor<1>>,
}

impl Each for Collect<'_> {
    fn see<const D: usize>(&mut self, tensor: Tensor<D>, buffer: bool) {
        if buffer {
            return;
        }
        let gradient = match tensor.grad(self.gradients) {
            Some(gradient) => gradient,
            None => tensor.without_autodiff().zeros_like(),
        };
        self.found
            .push(gradient.without_autodiff().flatten(0, D - 1));
    }
}

/// Returns the gradient of every trainable parameter, flat; zero where the loss does not depend on one.
pub fn gradients<M: Module>(module: &M, gradients: &Gradients) -> Vec<Tensor<1>> {
    visit(
        module,
        Collect {
            gradients,
            found: Vec::new(),
        },
    )
    .found
}

struct Frozen(Vec<bool>);

impl Each for Frozen {
    fn see<const D: usize>(&mut self, tensor: Tensor<D>, buffer: bool) {
        if !buffer {
            self.0.push(!tensor.is_require_grad());
        }
    }
}

/// Tells for each vector of [`weights`] whether the module, which is on the differentiating device, has it frozen.
pub fn frozen<M: Module>(module: &M) -> Vec<bool> {
    visit(module, Frozen(Vec::new())).0
}

struct Replace {
    path: Vec<String>,
    buffers: bool,
    values: std::vec::IntoIter<Tensor<1>>,
}

impl ModuleMapper for Replace {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if is_buffer(&self.path) != self.buffers {
            return param;
        }
        let value = self.values.next().expect("one value a parameter");
        param.map(|old| in_place_of(&old, value.reshape(old.dims())))
    }
}

/// A tensor's successor: as it is told to be differentiated, and with no memory of how it was computed.
pub(crate) fn in_place_of<const D: usize>(old: &Tensor<D>, new: Tensor<D>) -> Tensor<D> {
    let new = new.without_autodiff();
    if old.is_autodiff() {
        new.autodiff().set_require_grad(old.is_require_grad())
    } else {
        new
    }
}

fn replace<M: Module>(module: M, values: Vec<Tensor<1>>, buffers: bool) -> M {
    let mut mapper = Replace {
        path: Vec::new(),
        buffers,
        values: values.into_iter(),
    };
    let module = module.map(&mut mapper);
    assert!(mapper.values.next().is_none(), "one value a parameter");
    module
}

/// Replaces the weights of a module, in the order of [`weights`].
///
/// # Panics
/// If there is not one vector a parameter, of its size.
pub fn with_weights<M: Module>(module: M, values: Vec<Tensor<1>>) -> M {
    replace(module, values, false)
}

struct Buffers(Vec<Tensor<1>>);

impl Each for Buffers {
    fn see<const D: usize>(&mut self, tensor: Tensor<D>, buffer: bool) {
        if buffer {
            self.0.push(tensor.without_autodiff().flatten(0, D - 1));
        }
    }
}

/// Returns the running statistics, in the order of the layers.
pub fn buffers<M: Module>(module: &M) -> Vec<Tensor<1>> {
    visit(module, Buffers(Vec::new())).0
}

/// Replaces the running statistics of a module, in the order of [`buffers`].
///
/// # Panics
/// If there is not one vector a buffer, of its size.
pub fn with_buffers<M: Module>(module: M, values: Vec<Tensor<1>>) -> M {
    replace(module, values, true)
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;
    use crate::layers::test_images;
    use crate::{Architecture, Mode, Network, NetworkConfig, Statistics};

    fn net() -> Network {
        let config = NetworkConfig::new(Architecture::ResNet20, 3, [1, 8, 8]).with_width(4);
        config.init(1, &Device::flex()).unwrap()
    }

    fn values(tensors: &[Tensor<1>]) -> Vec<Vec<f32>> {
        let each = tensors.iter().cloned();
        each.map(|t| t.into_data().try_to_vec().unwrap()).collect()
    }

    #[test]
    fn weights_come_out_as_they_went_in() {
        let net = net();
        let doubled: Vec<_> = weights(&net).into_iter().map(|w| w * 2.0).collect();
        let wanted = values(&doubled);
        let statistics = values(&buffers(&net));
        let net = with_weights(net, doubled);
        assert_eq!(values(&weights(&net)), wanted);
        assert_eq!(
            values(&buffers(&net)),
            statistics,
            "buffers are not weights"
        );
        assert_eq!(wanted.len(), 19 * 3 + 2);
        assert_eq!(statistics.len(), 19 * 2);
    }

    #[test]
    fn statistics_move_by_a_tenth_of_the_way_layer_by_layer() {
        let net = net();
        let images = test_images([4, 1, 8, 8]);
        let statistics = Statistics::default();
        net.features(images.clone(), Mode::Train(&statistics));
        let moved = values(&buffers(&net.clone().with_statistics(statistics)));
        let statistics = Statistics::default();
        net.features(images, Mode::Train(&statistics));
        let seen = values(&statistics.take());
        for (i, (running, seen)) in moved.iter().zip(&seen).enumerate() {
            let start = if i % 2 == 0 { 0.0 } else { 1.0 };
            assert_eq!(running.len(), seen.len(), "buffer {i}");
            for (running, seen) in running.iter().zip(seen) {
                let wanted = 0.9 * start + 0.1 * seen;
                assert!((running - wanted).abs() < 1e-6, "buffer {i}: {running}");
            }
        }
        assert_eq!(moved.len(), seen.len());
    }

    /// Central differences of a few weights in either mode.
    #[test]
    fn gradients_are_those_of_the_loss() {
        let images = test_images([3, 1, 8, 8]);
        let loss = |net: &Network, train: bool| {
            let statistics = Statistics::default();
            let mode = if train {
                Mode::Train(&statistics)
            } else {
                Mode::Eval
            };
            let logits = net.forward(images.clone(), mode);
            logits.clone().slice([0..3, 0..1]).sum() - logits.powi_scalar(2).sum()
        };
        for train in [false, true] {
            let net = net().train();
            let found = gradients(&net, &loss(&net, train).backward());
            let base = weights(&net);
            assert_eq!(found.len(), base.len());
            let net = net.valid();
            for (parameter, index) in [(0, 3), (1, 2), (2, 0), (3, 5), (30, 7), (58, 1)] {
                let at = |step: f32| {
                    let mut moved = base.clone();
                    let mut data: Vec<f32> = moved[parameter].to_data().try_to_vec().unwrap();
                    data[index] += step;
                    moved[parameter] = Tensor::from_data(&data[..], &Device::flex());
                    loss(&with_weights(net.clone(), moved), train).into_scalar::<f32>()
                };
                let step = 5e-4;
                let by_hand = (at(step) - at(-step)) / (2.0 * step);
                let gradient = found[parameter].to_data().try_to_vec::<f32>().unwrap()[index];
                let gap = (gradient - by_hand).abs();
                assert!(
                    gap < 0.05 * (1.0 + by_hand.abs()),
                    "train {train}, parameter {parameter}: {gradient} and {by_hand}"
                );
            }
        }
    }

    #[test]
    fn a_parameter_that_the_loss_ignores_has_zero_gradient() {
        let net = net().train();
        let images = Tensor::<4>::ones([1, 1, 8, 8], &Device::flex());
        let loss = net.features(images, Mode::Eval).sum();
        let found = gradients(&net, &loss.backward());
        let head = found.last().unwrap().to_data().try_to_vec::<f32>().unwrap();
        assert_eq!(head, [0.0; 3]);
    }

    #[test]
    fn new_weights_stay_trainable_and_forget_where_they_are_from() {
        let net = net().train();
        let updated: Vec<_> = weights(&net).into_iter().map(|w| w * 0.5).collect();
        let net = with_weights(net, updated);
        let images = Tensor::<4>::ones([1, 1, 8, 8], &Device::flex());
        let loss = net.forward(images, Mode::Eval).sum();
        let found = values(&gradients(&net, &loss.backward()));
        assert_eq!(found.last().unwrap(), &[1.0; 3]);
        let running = net.state();
        let running = running.get("bn1.running_mean").unwrap();
        assert_eq!(running.values, [0.0; 4]);
    }
}
