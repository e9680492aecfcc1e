//! Training on the processor: a forward pass that is recorded on a tape, for reverse-mode differentiation.
//!
//! A [`Tape`] runs the part of a network below its head with the convolutions of this module, forward and backward, and
//! leaves the head and the loss to burn:
//!
//! 1. [`Network::forward_on`] computes the feature rows, records on the tape what the way back will need, and gives burn
//!    the rows as a leaf. Any loss of the logits, of several passes if need be, can be differentiated.
//! 2. [`Tape::gradients`] takes burn's gradient with respect to the rows from there to every weight.
//!
//! Every sum has a fixed order: the weights after a step do not depend on the number of threads. On other devices than
//! the processor a tape stays empty and burn does everything.

use std::cell::RefCell;

use burn::tensor::{Device, Gradients, Tensor, TensorData};
use rayon::prelude::*;

use super::activation::{Activation, Arena, BORDER};
use super::conv::{Convolve, Packed, Shape};
use super::gradient::{InputGradient, weight_gradient};
use super::graph::{Graph, IMAGES, Layer, Node, Shortcut, Unit, Value};
use super::isa::Isa;
use super::norm::{
    Moments, Normalised, Scaling, batch_moments, channel_sums, image_moments, relu_backward,
};
use super::pool::{
    average_backward, average_image, flatten_backward, flatten_image, max_pool_backward,
    max_pool_line,
};
use super::tile::BLOCK;
use super::values;
use crate::network::Network;
use crate::norm::Mode;
use crate::params;

/// Images of a task.
const TASK: usize = 4;

/// A record of forward passes, from which gradients are computed on the processor (reverse-mode differentiation).
///
/// [`Network::forward_on`] writes a pass down and [`Tape::gradients`] goes back through all passes since the last call. A
/// tape may be used for one step after another, and is then faster: it keeps the memory of the steps before in an arena.
/// Gradients do not depend on the number of threads. On other devices than the processor a tape stays empty, and burn's
/// autodiff does everything.
///
/// ```
/// use muso_models::burn::module::Module;
/// use muso_models::burn::tensor::{Device, Tensor};
/// use muso_models::{Architecture, Mode, NetworkConfig, Statistics, Tape, params};
///
/// let device = Device::flex();
/// let config = NetworkConfig::new(Architecture::ResNet20, 10, [3, 32, 32]).with_width(4);
/// let net = config.init(1, &device)?.train();
/// let (statistics, tape) = (Statistics::default(), Tape::default());
/// let images = Tensor::ones([2, 3, 32, 32], &device);
/// let loss = net.forward_on(images, Mode::Train(&statistics), &tape).powi_scalar(2).mean();
/// let gradients = tape.gradients(&net, &loss.backward());
/// let weights = params::weights(&net).into_iter().zip(gradients).map(|(w, g)| w - g * 0.1).collect();
/// let net = params::with_weights(net, weights).with_statistics(statistics);
/// # let _ = net;
/// # Ok::<(), muso_models::ConfigError>(())
/// ```
#[derive(Debug, Default)]
pub struct Tape {
    passes: RefCell<Vec<Pass>>,
    arena: Arena,
}

#[derive(Debug)]
struct Pass {
    /// The leaf that burn differentiates with respect to.
    rows: Tensor<2>,
    record: Record,
}

impl Network {
    /// Computes logits [N, C] of images, and records on the tape what their gradients need.
    ///
    /// The images are constants: there is no gradient with respect to them.
    pub fn forward_on(&self, images: Tensor<4>, mode: Mode<'_>, tape: &Tape) -> Tensor<2> {
        self.head().forward(self.features_on(images, mode, tape))
    }

    /// Computes feature rows [N, D] of images, and records on the tape what their gradients need.
    pub fn features_on(&self, images: Tensor<4>, mode: Mode<'_>, tape: &Tape) -> Tensor<2> {
        let images = images.without_autodiff();
        let device = images.device();
        if device != Device::flex() {
            return self.features(images.autodiff(), mode);
        }
        let [count, channels, height, width] = images.dims();
        let image = [channels, height, width];
        let Recorded {
            record,
            rows,
            statistics,
        } = Record::forward(self, &values(images), image, mode, &tape.arena);
        if let Mode::Train(noted) = mode {
            for [mean, variance] in statistics {
                let tensor = |values: Vec<f32>| {
                    let length = values.len();
                    Tensor::from_data(TensorData::new(values, [length]), &device)
                };
                noted.note(tensor(mean), tensor(variance));
            }
        }
        let features = rows.len() / count.max(1);
        let rows = Tensor::from_data(TensorData::new(rows, [count, features]), &device);
        let rows: Tensor<2> = rows.autodiff().require_grad();
        tape.passes.borrow_mut().push(Pass {
            rows: rows.clone(),
            record,
        });
        rows
    }
}

impl Tape {
    /// Returns the gradient of every trainable parameter, flat, in the order of [`params::weights`]. The tape is empty
    /// afterwards.
    pub fn gradients(&self, network: &Network, gradients: &Gradients) -> Vec<Tensor<1>> {
        let mut found = params::gradients(network, gradients);
        for pass in self.passes.take() {
            let Some(rows) = pass.rows.grad(gradients) else {
                pass.record.end(&self.arena);
                continue;
            };
            let device = rows.device();
            let below = pass.record.backward(&values(rows), &self.arena);
            pass.record.end(&self.arena);
            for (sum, gradient) in found.iter_mut().zip(below) {
                let length = gradient.len();
                let gradient = Tensor::from_data(TensorData::new(gradient, [length]), &device);
                *sum = sum.clone() + gradient;
            }
        }
        found
    }
}

/// A layer, with its parameters as numbers among those of the network.
#[derive(Clone, Debug)]
struct Numbered {
    conv: Shape,
    weight: usize,
    bias: Option<usize>,
    norm: Option<Norm>,
}

#[derive(Clone, Debug)]
struct Norm {
    weight: usize,
    bias: usize,
    /// Number among the normalisations.
    layer: usize,
}

/// Numbers parameters and normalisations in the order of the layers.
#[derive(Default)]
struct Numbers {
    parameters: usize,
    norms: usize,
}

impl Numbers {
    fn parameter(&mut self) -> usize {
        self.parameters += 1;
        self.parameters - 1
    }

    fn layer(&mut self, layer: Layer<'_>) -> Numbered {
        let (conv, has_bias, has_norm) = match layer {
            Layer::Conv(layer) => {
                let (conv, norm) = (&layer.conv, &layer.norm);
                (Shape::conv(conv), conv.bias.is_some(), norm.is_some())
            }
            Layer::Linear(layer) => (Shape::linear(layer), layer.bias.is_some(), false),
        };
        Numbered {
            conv,
            weight: self.parameter(),
            bias: has_bias.then(|| self.parameter()),
            norm: has_norm.then(|| {
                self.norms += 1;
                Norm {
                    weight: self.parameter(),
                    bias: self.parameter(),
                    layer: self.norms - 1,
                }
            }),
        }
    }
}

/// A pass through a network, with what the way back needs.
#[derive(Debug)]
struct Record {
    graph: Graph<Numbered>,
    /// The trainable parameters below the head.
    parameters: Vec<Vec<f32>>,
    activations: Vec<Activation>,
    /// Records by number of the normalisation.
    normalised: Vec<Option<Normalised>>,
    training: bool,
    isa: Isa,
}

/// A pass and its results.
struct Recorded {
    record: Record,
    rows: Vec<f32>,
    /// Mean and unbiased variance that each normalisation saw in training.
    statistics: Vec<[Vec<f32>; 2]>,
}

impl Record {
    /// Passes images through a network.
    fn forward(
        network: &Network,
        images: &[f32],
        image: [usize; 3],
        mode: Mode<'_>,
        arena: &Arena,
    ) -> Recorded {
        let mut numbers = Numbers::default();
        let graph = Graph::new(network, |layer| numbers.layer(layer));
        let [channels, height, width] = image;
        let size = channels * height * width;
        let count = images.len() / size;
        let mut first = arena.take(count, [height, width], channels, graph.border);
        for (i, image) in images.chunks_exact(size).enumerate() {
            first.transpose_in(i, image);
        }
        let mut activations = vec![Activation::default(); graph.values];
        activations[IMAGES] = first;
        let below = params::weights(network)
            .into_iter()
            .take(numbers.parameters);
        let mut record = Self {
            parameters: below.map(values).collect(),
            normalised: (0..numbers.norms).map(|_| None).collect(),
            activations,
            graph,
            training: matches!(mode, Mode::Train(_)),
            isa: Isa::detect(),
        };
        let running: Vec<Vec<f32>> = params::buffers(network).into_iter().map(values).collect();
        let mut statistics = vec![[Vec::new(), Vec::new()]; numbers.norms];
        let mut rows = Vec::new();
        for node in record.graph.nodes.clone() {
            match node {
                Node::Unit(unit) => record.unit(&unit, &running, &mut statistics, arena),
                Node::MaxPool {
                    input,
                    output,
                    pooling,
                } => {
                    let input = &record.activations[input];
                    let size = pooling.out(input.size());
                    let mut pooled = arena.take(input.count, size, input.channels, BORDER);
                    pooled.par_lines_mut(|image, row, target| {
                        max_pool_line(input, pooling, [image, row], target);
                    });
                    record.activations[output] = pooled;
                }
                Node::Flatten { input, output } => {
                    let input = &record.activations[input];
                    let length = input.height * input.width * input.channels;
                    let mut flat = arena.take(input.count, [1, 1], length, 0);
                    flat.par_lines_mut(|image, _, target| flatten_image(input, image, target));
                    record.activations[output] = flat;
                }
                Node::Average { input } => {
                    let input = &record.activations[input];
                    rows = vec![0.0; input.count * input.channels];
                    let images = rows.par_chunks_mut(input.channels).enumerate();
                    images.for_each(|(image, means)| average_image(input, image, means));
                }
            }
        }
        Recorded {
            record,
            rows,
            statistics,
        }
    }

    /// Computes a layer's output, with bias, and if asked for the moments of each image while it is in the cache.
    fn convolve(&self, unit: &Unit<Numbered>, measure: bool, arena: &Arena) -> Convolved {
        let Numbered {
            conv, weight, bias, ..
        } = &unit.layer;
        let bias = bias.map(|bias| self.parameters[bias].clone());
        let packed: Packed = conv.pack(&self.parameters[*weight], bias);
        let input = &self.activations[unit.input];
        let mut output = arena.take(input.count, packed.out(input.size()), packed.to, 0);
        let shape = output.shape();
        let moments = output
            .par_images_mut(TASK)
            .flat_map_iter(|(images, values)| {
                self.isa.run(Convolve {
                    conv: &packed,
                    input,
                    shortcut: None,
                    relu: false,
                    images,
                    shape: &shape,
                    output: values,
                    places: &mut Vec::new(),
                });
                let measured = if measure { &values[..] } else { &[] };
                let each = measured.chunks_exact(shape.image());
                let each = each.map(|values| image_moments(values, &shape));
                each.collect::<Vec<Moments>>()
            })
            .collect();
        Convolved { output, moments }
    }

    fn unit(
        &mut self,
        unit: &Unit<Numbered>,
        running: &[Vec<f32>],
        statistics: &mut [[Vec<f32>; 2]],
        arena: &Arena,
    ) {
        let measure = self.training && unit.layer.norm.is_some();
        let Convolved {
            output: before,
            moments,
        } = self.convolve(unit, measure, arena);
        let (size, channels) = (before.size(), before.channels);
        let scaling = unit.layer.norm.as_ref().map(|norm| {
            let [mean, variance] = if self.training {
                let [mean, variance] = batch_moments(&moments, size[0] * size[1]);
                let pixels = (before.count * size[0] * size[1]) as f32;
                let unbiased = pixels / (pixels - 1.0).max(1.0);
                let unbiased = variance.iter().map(|v| v * unbiased).collect();
                statistics[norm.layer] = [mean.clone(), unbiased];
                [mean, variance]
            } else {
                [0, 1].map(|i| running[2 * norm.layer + i].clone())
            };
            (norm, Scaling::new(mean, &variance))
        });
        let [factor, offset] = match &scaling {
            Some((norm, scaling)) => {
                let [gamma, beta] = [norm.weight, norm.bias].map(|i| &self.parameters[i][..]);
                scaling.affine(gamma, beta)
            }
            None => [vec![1.0; channels], vec![0.0; channels]],
        };
        let mut output = arena.take(before.count, size, channels, BORDER);
        let shortcut = unit.shortcut.map(|s| (s, &self.activations[s.value]));
        output.par_lines_mut(|image, row, target| {
            let source = &before.values[before.line_of(image, row)];
            for (target, source) in target
                .chunks_exact_mut(channels)
                .zip(source.chunks_exact(channels))
            {
                let affine = factor.iter().zip(&offset);
                for ((t, s), (factor, offset)) in target.iter_mut().zip(source).zip(affine) {
                    *t = factor * s + offset;
                }
            }
            if let Some((s, from)) = shortcut {
                let first = Shortcut::first(from.channels, channels);
                for (col, target) in target.chunks_exact_mut(channels).enumerate() {
                    let pixel = from.pixel(image, row * s.stride, col * s.stride);
                    for (t, value) in target[first..].iter_mut().zip(pixel) {
                        *t += value;
                    }
                }
            }
            if unit.relu {
                for t in target {
                    *t = t.max(0.0);
                }
            }
        });
        match scaling {
            Some((norm, scaling)) => {
                self.normalised[norm.layer] = Some(Normalised { before, scaling });
            }
            None => arena.give(before),
        }
        self.activations[unit.output] = output;
    }

    /// Returns the gradients of the parameters below the head, from that of the feature rows.
    fn backward(&self, rows: &[f32], arena: &Arena) -> Vec<Vec<f32>> {
        let mut gradients = Flowing {
            by_value: (0..self.graph.values).map(|_| None).collect(),
            arena,
        };
        let mut found = vec![Vec::new(); self.parameters.len()];
        for node in self.graph.nodes.iter().rev() {
            match node {
                Node::Unit(unit) => self.unit_backward(unit, &mut gradients, &mut found),
                &Node::MaxPool {
                    input,
                    output,
                    pooling,
                } => {
                    let [from, to] = [input, output].map(|value| &self.activations[value]);
                    gradients.pass(output, input, |gradient| {
                        max_pool_backward(from, to, gradient, pooling, arena)
                    });
                }
                &Node::Flatten { input, output } => {
                    let from = &self.activations[input];
                    gradients.pass(output, input, |gradient| {
                        flatten_backward(gradient, from, arena)
                    });
                }
                &Node::Average { input } => {
                    let gradient = average_backward(rows, &self.activations[input], arena);
                    gradients.by_value[input] = Some(gradient);
                }
            }
        }
        found
    }

    fn unit_backward(
        &self,
        unit: &Unit<Numbered>,
        gradients: &mut Flowing<'_>,
        found: &mut [Vec<f32>],
    ) {
        let arena = gradients.arena;
        let Numbered {
            conv, weight, bias, ..
        } = &unit.layer;
        let mut gradient = gradients.take(unit.output);
        let output = &self.activations[unit.output];
        let normalised = unit.layer.norm.as_ref().map(|norm| {
            let normalised = &self.normalised[norm.layer];
            (norm, normalised.as_ref().expect("the pass normalised it"))
        });
        let [sums, products] = relu_backward(
            &mut gradient,
            unit.relu.then_some(output),
            normalised.map(|(_, normalised)| normalised),
        );
        if let Some(s) = unit.shortcut {
            let source = &self.activations[s.value];
            let sum = &mut gradients.by_value[s.value];
            let sum = sum.get_or_insert_with(|| arena.zeros(source));
            add_shortcut_gradient(sum, &gradient, s.stride);
        }

        // From here on the gradient is that of the convolution's output, in whole blocks of channels.
        let input = &self.activations[unit.input];
        let way = InputGradient::new(conv, &self.parameters[*weight], input.size());
        let (size, to) = (gradient.size(), gradient.channels);
        let padded = to.next_multiple_of(BLOCK);
        let mut inner = arena.take(gradient.count, size, padded, way.border(size));
        if let Some((norm, normalised)) = normalised {
            let products = normalised.gamma_gradient(&products);
            let moving = self.training.then_some([&sums[..], &products[..]]);
            let gamma = &self.parameters[norm.weight];
            normalised.backward(&gradient, gamma, moving, &mut inner);
            found[norm.weight] = products;
            found[norm.bias] = sums;
        } else {
            inner.par_lines_mut(|image, row, target| {
                let source = &gradient.values[gradient.line_of(image, row)];
                for (target, source) in target.chunks_exact_mut(padded).zip(source.chunks_exact(to))
                {
                    target[..to].copy_from_slice(source);
                    target[to..].fill(0.0);
                }
            });
        }
        arena.give(gradient);

        if let Some(bias) = *bias {
            found[bias] = channel_sums(&inner);
            found[bias].truncate(to);
        }
        found[*weight] = weight_gradient(self.isa, conv, input, &inner);
        if unit.input != IMAGES {
            let sum = &mut gradients.by_value[unit.input];
            // Where one phase reaches every pixel, what is there need not be zero.
            let fresh = sum.is_none() && conv.stride == 1;
            let sum = sum.get_or_insert_with(|| {
                if fresh {
                    arena.take(input.count, input.size(), input.channels, 0)
                } else {
                    arena.zeros(input)
                }
            });
            way.run(self.isa, &inner, sum, !fresh);
        }
        arena.give(inner);
    }

    /// Gives the memory back.
    fn end(self, arena: &Arena) {
        let normalised = self.normalised.into_iter().flatten().map(|n| n.before);
        self.activations
            .into_iter()
            .chain(normalised)
            .for_each(|activation| arena.give(activation));
    }
}

/// The output of a convolution, and the moments of its images.
struct Convolved {
    output: Activation,
    moments: Vec<Moments>,
}

/// Gradients of activations on the way back, as far as they are known.
struct Flowing<'a> {
    by_value: Vec<Option<Activation>>,
    arena: &'a Arena,
}

impl Flowing<'_> {
    fn take(&mut self, value: Value) -> Activation {
        let Some(gradient) = self.by_value[value].take() else {
            unreachable!("every value reaches the rows");
        };
        gradient
    }

    /// Computes the gradient of a node's only input, which no other node reads, from that of its output.
    fn pass(
        &mut self,
        output: Value,
        input: Value,
        backward: impl FnOnce(&Activation) -> Activation,
    ) {
        let gradient = self.take(output);
        self.by_value[input] = Some(backward(&gradient));
        self.arena.give(gradient);
    }
}

/// Adds the gradient of a sum to that of the shortcut in it.
fn add_shortcut_gradient(sum: &mut Activation, gradient: &Activation, stride: usize) {
    let channels = sum.channels;
    let first = Shortcut::first(channels, gradient.channels);
    sum.par_lines_mut(|image, row, target| {
        if row % stride != 0 || row / stride >= gradient.height {
            return;
        }
        let pixels = target.chunks_exact_mut(channels).step_by(stride);
        for (col, target) in pixels.enumerate().take(gradient.width) {
            let pixel = gradient.pixel(image, row / stride, col);
            for (t, value) in target.iter_mut().zip(&pixel[first..]) {
                *t += value;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use burn::nn::Linear;

    use super::*;
    use crate::layers::{ConvNorm, test_images};
    use crate::ops::{Forward, Ops, Pooling};
    use crate::{Architecture, NetworkConfig, Statistics};

    fn floats(tensors: Vec<Tensor<1>>) -> Vec<Vec<f32>> {
        tensors.into_iter().map(values).collect()
    }

    /// Largest difference over the largest entry.
    fn gap(found: &[f32], wanted: &[f32]) -> f32 {
        assert_eq!(found.len(), wanted.len());
        let largest = wanted.iter().fold(1e-6_f32, |a, v| a.max(v.abs()));
        let pairs = found.iter().zip(wanted);
        pairs.fold(0.0_f32, |a, (f, w)| a.max((f - w).abs())) / largest
    }

    fn loss(logits: Tensor<2>) -> Tensor<1> {
        let [rows, classes] = logits.dims();
        let chosen = logits.clone().slice([0..rows, 0..1]).sum();
        chosen + logits.powi_scalar(2).sum() / (rows * classes) as f32
    }

    /// Logits, statistics and gradients.
    type Results = (Vec<f32>, Vec<Vec<f32>>, Vec<Vec<f32>>);

    fn pass(net: &Network, images: Tensor<4>, training: bool, taped: bool) -> Results {
        let (statistics, tape) = (Statistics::default(), Tape::default());
        let mode = if training {
            Mode::Train(&statistics)
        } else {
            Mode::Eval
        };
        let logits = if taped {
            net.forward_on(images, mode, &tape)
        } else {
            net.forward(images, mode)
        };
        let gradients = loss(logits.clone()).backward();
        (
            values(logits),
            floats(statistics.take()),
            floats(tape.gradients(net, &gradients)),
        )
    }

    /// A pass through burn that finds out how to move every bias so that no value is within rounding of a ReLU's kink.
    struct OffTheKink<'a> {
        forward: Forward<'a>,
        numbers: Numbers,
        /// Numbers of biases and what to add to them.
        shifts: Vec<(usize, Vec<f32>)>,
    }

    impl OffTheKink<'_> {
        /// Returns the number of the bias that is added last.
        fn bias(&mut self, layer: Layer<'_>) -> usize {
            let layer = self.numbers.layer(layer);
            let bias = layer.norm.map(|norm| norm.bias).or(layer.bias);
            bias.expect("a layer with a bias")
        }
    }

    /// Returns what to add to some values so that zero is in the middle of the widest gap among the middle half of them.
    fn shift_to_a_gap(mut values: Vec<f32>) -> f32 {
        values.sort_by(f32::total_cmp);
        let middle = &values[values.len() / 4..values.len() - values.len() / 4];
        let widest = middle
            .windows(2)
            .max_by(|a, b| (a[1] - a[0]).total_cmp(&(b[1] - b[0])));
        match widest {
            Some(gap) if gap[1] > gap[0] => -0.5 * (gap[0] + gap[1]),
            // All values are the same one.
            _ => 1.0 - values[0],
        }
    }

    impl Ops for OffTheKink<'_> {
        /// With the bias that moves it.
        type Value = (Tensor<4>, usize);
        type Rows = ();

        fn conv(&mut self, (input, _): Self::Value, layer: &ConvNorm) -> Self::Value {
            (
                self.forward.conv(input, layer),
                self.bias(Layer::Conv(layer)),
            )
        }

        fn linear(&mut self, (input, _): Self::Value, layer: &Linear) -> Self::Value {
            let bias = self.bias(Layer::Linear(layer));
            (self.forward.linear(input, layer), bias)
        }

        fn add(&mut self, sum: Self::Value, shortcut: Self::Value, stride: usize) -> Self::Value {
            (self.forward.add(sum.0, shortcut.0, stride), sum.1)
        }

        fn relu(&mut self, (input, bias): Self::Value) -> Self::Value {
            let channels = input.dims()[1];
            let shifts: Vec<f32> = (0..channels)
                .map(|c| shift_to_a_gap(values(input.clone().narrow(1, c, 1))))
                .collect();
            let by = Tensor::<1>::from_data(&shifts[..], &Device::flex());
            self.shifts.push((bias, shifts));
            let moved = input + by.reshape([1, channels, 1, 1]);
            (self.forward.relu(moved), bias)
        }

        fn max_pool(&mut self, (input, bias): Self::Value, pooling: Pooling) -> Self::Value {
            (self.forward.max_pool(input, pooling), bias)
        }

        fn average(&mut self, _: Self::Value) {}

        fn rows(&mut self, _: Self::Value) {}
    }

    /// Moves the biases of a network so that rounding decides no ReLU of a pass.
    fn off_the_kink(net: Network, images: Tensor<4>, training: bool) -> Network {
        let statistics = Statistics::default();
        let mut pass = OffTheKink {
            forward: Forward::Own(if training {
                Mode::Train(&statistics)
            } else {
                Mode::Eval
            }),
            numbers: Numbers::default(),
            shifts: Vec::new(),
        };
        net.layers(&mut pass, (images, 0));
        let mut weights = params::weights(&net);
        for (bias, shifts) in pass.shifts {
            let by = Tensor::<1>::from_data(&shifts[..], &Device::flex());
            weights[bias] = weights[bias].clone() + by;
        }
        params::with_weights(net, weights)
    }

    /// Multiplies every weight by 1 ± 2⁻²², signs in turn: what rounding does to the sums of every layer, as a change of
    /// their weights. How far the results move says how far apart two correct passes may be.
    fn nudged(net: &Network) -> Network {
        let weights = params::weights(net).into_iter().map(|weight| {
            let values = values(weight).into_iter().enumerate();
            let values: Vec<f32> = values
                .map(|(i, v)| v * (1.0 + f32::EPSILON * if i % 3 == 0 { 2.0 } else { -2.0 }))
                .collect();
            Tensor::<1>::from_data(&values[..], &Device::flex())
        });
        params::with_weights(net.clone(), weights.collect())
    }

    #[test]
    fn equals_burn_in_either_mode() {
        let device = Device::flex();
        for (architecture, image, width) in [
            (Architecture::SmallCnn, [1, 12, 8], 16),
            (Architecture::SmallCnn, [3, 8, 8], 5),
            (Architecture::ResNet18, [3, 16, 16], 16),
            (Architecture::ResNet18, [3, 64, 66], 8),
            (Architecture::ResNet34, [1, 9, 14], 4),
            (Architecture::ResNet20, [3, 16, 16], 16),
            (Architecture::ResNet20, [3, 9, 11], 3),
            (Architecture::Vgg16Bn, [3, 32, 32], 4),
        ] {
            for (training, norm) in [(true, true), (false, true), (true, false)] {
                let config = NetworkConfig::new(architecture, 5, image)
                    .with_width(width)
                    .with_norm(norm);
                for seed in 0..3 {
                    let what = format!("{config:?}, training {training}, seed {seed}");
                    let [c, h, w] = image;
                    let images = test_images([10, c, h, w]);
                    let net = config.init(seed, &device).unwrap();
                    let net = off_the_kink(net, images.clone(), training).train();
                    let wanted = pass(&net, images.clone(), training, false);
                    let moved = pass(&nudged(&net), images.clone(), training, false);
                    let found = pass(&net, images, training, true);
                    let check = |part, i, found: &[f32], wanted: &[f32], moved: &[f32]| {
                        let (gap, bound) = (gap(found, wanted), 1e-5 + 8.0 * gap(moved, wanted));
                        // However ill-conditioned the network is, a wrong gradient is not near to the right one.
                        let bound = bound.min(1e-2);
                        assert!(
                            gap < bound,
                            "{what}: {part} {i}, {gap} where {bound} is allowed"
                        );
                    };
                    check("logits", 0, &found.0, &wanted.0, &moved.0);
                    assert_eq!(found.1.len(), wanted.1.len(), "{what}");
                    for (i, found) in found.1.iter().enumerate() {
                        check("statistics", i, found, &wanted.1[i], &moved.1[i]);
                    }
                    assert_eq!(found.2.len(), wanted.2.len(), "{what}");
                    // The bias before a normalisation has no gradient in training; rounding makes one.
                    let all = wanted.2.iter().flatten();
                    let noise = 1e-5 * all.fold(0.0_f32, |a, v| a.max(v.abs()));
                    for (i, found) in found.2.iter().enumerate() {
                        if found.iter().chain(&wanted.2[i]).any(|v| v.abs() > noise) {
                            check("parameter", i, found, &wanted.2[i], &moved.2[i]);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn several_passes_add_up() {
        let device = Device::flex();
        let config = NetworkConfig::new(Architecture::ResNet20, 3, [3, 8, 8]).with_width(4);
        let net = config.init(3, &device).unwrap().train();
        let images = test_images([6, 3, 8, 8]);
        let half = |i: usize| images.clone().narrow(0, 3 * i, 3);
        let tape = Tape::default();
        let both = [0, 1].map(|i| loss(net.forward_on(half(i), Mode::Eval, &tape)));
        let [first, second] = both;
        let gradients = (first - second * 2.0).backward();
        let found = floats(tape.gradients(&net, &gradients));
        let alone = |i: usize| {
            let tape = Tape::default();
            let gradients = loss(net.forward_on(half(i), Mode::Eval, &tape)).backward();
            floats(tape.gradients(&net, &gradients))
        };
        for ((found, first), second) in found.iter().zip(alone(0)).zip(alone(1)) {
            let pairs = first.iter().zip(&second);
            let wanted: Vec<f32> = pairs.map(|(a, b)| a - 2.0 * b).collect();
            assert!(gap(found, &wanted) < 1e-5);
        }
        assert_eq!(found.len(), params::weights(&net).len());
    }

    /// What is left in the memory of earlier steps must not show.
    #[test]
    fn a_used_tape_is_as_good_as_a_new_one() {
        let device = Device::flex();
        let used = Tape::default();
        for (architecture, count) in [
            (Architecture::ResNet18, 5),
            (Architecture::ResNet20, 9),
            (Architecture::ResNet18, 6),
            (Architecture::SmallCnn, 6),
            (Architecture::ResNet20, 5),
            (Architecture::ResNet18, 5),
        ] {
            let config = NetworkConfig::new(architecture, 3, [3, 12, 12]).with_width(6);
            let net = config.init(3, &device).unwrap().train();
            let on = |tape: &Tape| {
                let statistics = Statistics::default();
                let mode = Mode::Train(&statistics);
                let logits = net.forward_on(test_images([count, 3, 12, 12]), mode, tape);
                let gradients = loss(logits).backward();
                floats(tape.gradients(&net, &gradients))
            };
            assert_eq!(on(&used), on(&Tape::default()), "{architecture}, {count}");
        }
    }

    #[test]
    fn threads_change_nothing() {
        let device = Device::flex();
        let config = NetworkConfig::new(Architecture::ResNet18, 3, [3, 16, 16]).with_width(24);
        let net = config.init(3, &device).unwrap().train();
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            pool.build().unwrap().install(|| {
                let (statistics, tape) = (Statistics::default(), Tape::default());
                let mode = Mode::Train(&statistics);
                let logits = net.forward_on(test_images([11, 3, 16, 16]), mode, &tape);
                let gradients = loss(logits).backward();
                floats(tape.gradients(&net, &gradients))
            })
        };
        assert_eq!(on(1), on(3));
    }

    #[test]
    fn a_tape_that_no_loss_reads_gives_zeros() {
        let device = Device::flex();
        let config = NetworkConfig::new(Architecture::SmallCnn, 3, [1, 8, 8]);
        let net = config.init(3, &device).unwrap().train();
        let tape = Tape::default();
        net.forward_on(test_images([2, 1, 8, 8]), Mode::Eval, &tape);
        let other = net.head().bias.as_ref().unwrap().val().sum();
        let found = floats(tape.gradients(&net, &other.backward()));
        assert_eq!(found.last().unwrap(), &[1.0; 3]);
        assert!(found[0].iter().all(|v| *v == 0.0));
    }
}
