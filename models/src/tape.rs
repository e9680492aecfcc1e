//! Training on the processor: a pass through a network that remembers enough to go back.
//!
//! burn's convolutions on the processor are general, and slow for the small networks here; most of a step is spent moving
//! data between layouts. A [`Tape`] runs the part of a network below its head with the loops of
//! [`direct`](crate::direct) instead, forward and backward, and leaves the head and the loss to burn:
//!
//! 1. [`Network::forward_on`] computes the feature rows, notes on the tape what the way back will need, and gives burn the
//!    rows as a leaf. Any loss of the logits, of several passes if need be, can be differentiated.
//! 2. [`Tape::gradients`] takes burn's gradient with respect to the rows from there to every weight.
//!
//! With y = conv(x), ŷ = (y − μ)/√(σ² + ε), a = relu(γŷ + β + shortcut) and g the gradient at the ReLU's input:
//! dβ = Σg, dγ = Σgŷ, dy = γ/√(σ² + ε)·(g − dβ/M − ŷ dγ/M) in training mode and γ/√(σ² + ε)·g in evaluation mode,
//! dW[k] = Σ_p x[p + k]·dy[p], and dx is the sum over k of dy[p − k]·W[k]. Where the stride is 2, the input pixels of
//! each parity see a part of the kernel, and each parity is a convolution of its own.
//!
//! Every sum has a fixed order: the weights after a step do not depend on the number of threads. On other devices than
//! the processor a tape stays empty and burn does everything.
//!
//! ```
//! use muso_models::burn::module::Module;
//! use muso_models::burn::tensor::{Device, Tensor};
//! use muso_models::{Architecture, Mode, NetworkConfig, Statistics, Tape, params};
//!
//! let device = Device::flex();
//! let config = NetworkConfig::new(Architecture::ResNet20, 10, [3, 32, 32]).with_width(4);
//! let net = config.init(1, &device)?.train();
//! let (statistics, tape) = (Statistics::default(), Tape::default());
//! let images = Tensor::ones([2, 3, 32, 32], &device);
//! let loss = net.forward_on(images, Mode::Train(&statistics), &tape).powi_scalar(2).mean();
//! let gradients = tape.gradients(&net, &loss.backward());
//! let weights = params::weights(&net).into_iter().zip(gradients).map(|(w, g)| w - g * 0.1).collect();
//! let net = params::with_weights(net, weights).with_statistics(statistics);
//! # let _ = net;
//! # Ok::<(), muso_models::ConfigError>(())
//! ```

use std::cell::RefCell;

use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::{Device, Gradients, Tensor, TensorData};
use rayon::prelude::*;

use crate::direct::{Activation, BORDER, Packed, Place, store, sweep, transpose, values};
use crate::kernel::{BLOCK, Isa, Kernel, PIXELS, Work};
use crate::layers::Conv;
use crate::network::Network;
use crate::norm::{BatchNorm, EPSILON, Mode};
use crate::params;
use crate::resnet::BasicBlock;
use crate::vgg;

/// Images of a task.
const TASK: usize = 4;
/// Pixels that add to a tile of a weight gradient before it is put down.
const STRETCH: usize = 256;
/// Parts of a batch whose weight gradients are added up at the end, for weights up to [`SHARED`]; larger ones are divided
/// among tasks instead of the batch.
const PARTS: usize = 8;
const SHARED: usize = 1 << 18;
/// Blocks of output channels in a task of the latter kind.
const TOGETHER: usize = 4;

/// What passes leave behind for the way back.
///
/// A tape may be used for one step after another, and is then faster: it keeps the memory of the steps before.
#[derive(Debug, Default)]
pub struct Tape {
    passes: RefCell<Vec<Pass>>,
    spare: Spare,
}

/// Memory to be used again: fresh pages cost as much as the arithmetic on them.
#[derive(Debug, Default)]
struct Spare(RefCell<Vec<Vec<f32>>>);

impl Spare {
    /// An activation whose border is zero and whose other values are anything.
    fn take(&self, count: usize, size: [usize; 2], channels: usize, border: usize) -> Activation {
        let mut new = Activation::shaped(count, size, channels, border);
        let length = count * new.image();
        let mut spare = self.0.borrow_mut();
        // One that is much too large is needed elsewhere.
        let fits = (0..spare.len())
            .filter(|&i| (length..=2 * length).contains(&spare[i].capacity()))
            .min_by_key(|&i| spare[i].capacity());
        new.values = fits.map_or_else(Vec::new, |i| spare.swap_remove(i));
        new.reset(count, size, channels, border);
        new
    }

    fn zeros(&self, like: &Activation) -> Activation {
        let mut new = self.take(like.count, like.size(), like.channels, 0);
        let parts = new.values.par_chunks_mut(1 << 16);
        parts.for_each(|values| values.fill(0.0));
        new
    }

    fn give(&self, activation: Activation) {
        if activation.values.capacity() > 0 {
            self.0.borrow_mut().push(activation.values);
        }
    }
}

#[derive(Debug)]
struct Pass {
    /// The leaf that burn differentiates with respect to.
    rows: Tensor<2>,
    record: Record,
}

impl Network {
    /// Logits [N, C], with what is needed to differentiate them noted on the tape.
    ///
    /// The images are constants: there is no gradient with respect to them.
    pub fn forward_on(&self, images: Tensor<4>, mode: Mode<'_>, tape: &Tape) -> Tensor<2> {
        self.head().forward(self.features_on(images, mode, tape))
    }

    /// Feature rows [N, D], with what is needed to differentiate them noted on the tape.
    pub fn features_on(&self, images: Tensor<4>, mode: Mode<'_>, tape: &Tape) -> Tensor<2> {
        let images = images.without_autodiff();
        let device = images.device();
        if device != Device::flex() {
            return self.features(images.autodiff(), mode);
        }
        let [count, channels, height, width] = images.dims();
        let image = [channels, height, width];
        let (record, rows, statistics) =
            Record::new(self, &values(images), image, mode, &tape.spare);
        if let Mode::Train(noted) = mode {
            for (mean, variance) in statistics {
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
    /// The gradient of every trainable parameter, flat, in the order of [`params::weights`]. The tape is empty afterwards.
    pub fn gradients(&self, network: &Network, gradients: &Gradients) -> Vec<Tensor<1>> {
        let mut found = params::gradients(network, gradients);
        for pass in self.passes.take() {
            let Some(rows) = pass.rows.grad(gradients) else {
                pass.record.end(&self.spare);
                continue;
            };
            let device = rows.device();
            let below = pass.record.backward(&values(rows), &self.spare);
            pass.record.end(&self.spare);
            for (sum, gradient) in found.iter_mut().zip(below) {
                let length = gradient.len();
                let gradient = Tensor::from_data(TensorData::new(gradient, [length]), &device);
                *sum = sum.clone() + gradient;
            }
        }
        found
    }
}

/// Number of an activation.
type Value = usize;

/// A convolution among the parameters.
#[derive(Clone, Debug)]
struct Weights {
    /// [out, in, rows, columns].
    shape: [usize; 4],
    stride: usize,
    padding: usize,
    /// Numbers among the parameters.
    weight: usize,
    bias: Option<usize>,
    /// A linear layer's weight is [in, out].
    linear: bool,
}

impl Weights {
    /// Where a weight is kept.
    fn index(&self, o: usize, c: usize, row: usize, col: usize) -> usize {
        let [to, from, rows, cols] = self.shape;
        if self.linear {
            c * to + o
        } else {
            ((o * from + c) * rows + row) * cols + col
        }
    }
}

#[derive(Clone, Debug)]
struct Norm {
    weight: usize,
    bias: usize,
    /// Number among the normalisations.
    layer: usize,
}

#[derive(Clone, Debug)]
struct Shortcut {
    value: Value,
    stride: usize,
    first: usize,
}

/// Convolution, normalisation, shortcut and ReLU.
#[derive(Clone, Debug)]
struct Unit {
    input: Value,
    output: Value,
    conv: Weights,
    norm: Option<Norm>,
    shortcut: Option<Shortcut>,
    relu: bool,
}

#[derive(Clone, Debug)]
enum Node {
    Unit(Unit),
    MaxPool {
        input: Value,
        output: Value,
        /// Side, stride and padding.
        shape: [usize; 3],
    },
    Flatten {
        input: Value,
        output: Value,
    },
    /// The last one where it is there.
    Average {
        input: Value,
    },
}

/// A network as a list of nodes, with its parameters numbered in their own order.
#[derive(Debug, Default)]
struct Graph {
    nodes: Vec<Node>,
    parameters: usize,
    norms: usize,
    values: usize,
    /// The newest value.
    last: Value,
    /// Zeros around the images.
    border: usize,
}

impl Graph {
    fn new(network: &Network) -> Self {
        let mut graph = Self {
            values: 1,
            ..Self::default()
        };
        match network {
            Network::SmallCnn(net) => {
                graph.border = net.conv1.padding;
                graph.conv_norm_relu(&net.conv1, &net.bn1);
                graph.max_pool([2, 2, 0]);
                graph.conv_norm_relu(&net.conv2, &net.bn2);
                graph.max_pool([2, 2, 0]);
                graph.flatten();
                let conv = graph.linear(&net.fc1);
                graph.unit(graph.last, conv, None, None, true);
            }
            Network::ResNet(net) => {
                graph.border = net.conv1.padding;
                graph.conv_norm_relu(&net.conv1, &net.bn1);
                if net.has_pool() {
                    graph.max_pool([3, 2, 1]);
                }
                net.blocks().for_each(|block| graph.block(block));
                graph.average();
            }
            Network::CifarResNet(net) => {
                graph.border = net.conv1.padding;
                graph.conv_norm_relu(&net.conv1, &net.bn1);
                net.blocks().for_each(|block| graph.block(block));
                graph.average();
            }
            Network::Vgg(net) => {
                graph.border = net.features[0].conv.padding;
                for (unit, (_, pooled)) in net.features.iter().zip(vgg::layout()) {
                    graph.conv_norm_relu(&unit.conv, &unit.norm);
                    if pooled {
                        graph.max_pool([2, 2, 0]);
                    }
                }
                graph.average();
            }
        }
        graph
    }

    fn parameter(&mut self) -> usize {
        self.parameters += 1;
        self.parameters - 1
    }

    fn value(&mut self) -> Value {
        self.last = self.values;
        self.values += 1;
        self.last
    }

    fn conv(&mut self, conv: &Conv) -> Weights {
        Weights {
            shape: conv.weight.dims(),
            stride: conv.stride,
            padding: conv.padding,
            weight: self.parameter(),
            bias: conv.bias.as_ref().map(|_| self.parameter()),
            linear: false,
        }
    }

    fn linear(&mut self, layer: &Linear) -> Weights {
        let [from, to] = layer.weight.dims();
        Weights {
            shape: [to, from, 1, 1],
            stride: 1,
            padding: 0,
            weight: self.parameter(),
            bias: layer.bias.as_ref().map(|_: &Param<_>| self.parameter()),
            linear: true,
        }
    }

    fn norm(&mut self, norm: &Option<BatchNorm>) -> Option<Norm> {
        norm.as_ref().map(|_| {
            self.norms += 1;
            Norm {
                weight: self.parameter(),
                bias: self.parameter(),
                layer: self.norms - 1,
            }
        })
    }

    fn unit(
        &mut self,
        input: Value,
        conv: Weights,
        norm: Option<Norm>,
        shortcut: Option<Shortcut>,
        relu: bool,
    ) {
        let output = self.value();
        self.nodes.push(Node::Unit(Unit {
            input,
            output,
            conv,
            norm,
            shortcut,
            relu,
        }));
    }

    fn conv_norm_relu(&mut self, conv: &Conv, norm: &Option<BatchNorm>) {
        let (conv, norm) = (self.conv(conv), self.norm(norm));
        self.unit(self.last, conv, norm, None, true);
    }

    fn max_pool(&mut self, shape: [usize; 3]) {
        let (input, output) = (self.last, self.value());
        self.nodes.push(Node::MaxPool {
            input,
            output,
            shape,
        });
    }

    fn flatten(&mut self) {
        let (input, output) = (self.last, self.value());
        self.nodes.push(Node::Flatten { input, output });
    }

    fn average(&mut self) {
        self.nodes.push(Node::Average { input: self.last });
    }

    fn block(&mut self, block: &BasicBlock) {
        let input = self.last;
        // Numbered in the order of the fields, whatever the order of the passes.
        let (conv1, norm1) = (self.conv(&block.conv1), self.norm(&block.bn1));
        let (conv2, norm2) = (self.conv(&block.conv2), self.norm(&block.bn2));
        let [to, from, _, _] = conv1.shape;
        let mut shortcut = Shortcut {
            value: input,
            stride: conv1.stride,
            first: (to - from) / 2,
        };
        if let Some(downsample) = &block.downsample {
            let (conv, norm) = (self.conv(&downsample.conv), self.norm(&downsample.norm));
            self.unit(input, conv, norm, None, false);
            shortcut = Shortcut {
                value: self.last,
                stride: 1,
                first: 0,
            };
        }
        self.unit(input, conv1, norm1, None, true);
        self.unit(self.last, conv2, norm2, Some(shortcut), true);
    }
}

/// What a normalisation did in a pass.
#[derive(Debug)]
struct Normalised {
    /// The convolution's output, without border.
    before: Activation,
    mean: Vec<f32>,
    /// 1/√(σ² + ε).
    scale: Vec<f32>,
}

/// A pass through a network.
#[derive(Debug)]
struct Record {
    graph: Graph,
    parameters: Vec<Vec<f32>>,
    activations: Vec<Activation>,
    /// By layer.
    normalised: Vec<Option<Normalised>>,
    training: bool,
    isa: Isa,
}

impl Record {
    /// Passes images; also gives the feature rows, and the mean and the unbiased variance that each normalisation saw.
    #[allow(clippy::type_complexity)]
    fn new(
        network: &Network,
        images: &[f32],
        image: [usize; 3],
        mode: Mode<'_>,
        spare: &Spare,
    ) -> (Self, Vec<f32>, Vec<(Vec<f32>, Vec<f32>)>) {
        let graph = Graph::new(network);
        let [channels, height, width] = image;
        let size = channels * height * width;
        let count = images.len() / size;
        let mut first = spare.take(count, [height, width], channels, graph.border);
        for (i, image) in images.chunks_exact(size).enumerate() {
            transpose(image, i, &mut first);
        }
        let mut activations = vec![Activation::default(); graph.values];
        activations[0] = first;
        let mut record = Self {
            parameters: params::weights(network).into_iter().map(values).collect(),
            normalised: (0..graph.norms).map(|_| None).collect(),
            activations,
            graph,
            training: matches!(mode, Mode::Train(_)),
            isa: Isa::detect(),
        };
        let running: Vec<Vec<f32>> = params::buffers(network).into_iter().map(values).collect();
        let mut statistics = vec![(Vec::new(), Vec::new()); record.graph.norms];
        let mut rows = Vec::new();
        for node in record.graph.nodes.clone() {
            match node {
                Node::Unit(unit) => record.unit(&unit, &running, &mut statistics, spare),
                Node::MaxPool {
                    input,
                    output,
                    shape,
                } => {
                    record.activations[output] = max_pool(&record.activations[input], shape, spare);
                }
                Node::Flatten { input, output } => {
                    record.activations[output] = flatten(&record.activations[input], spare);
                }
                Node::Average { input } => rows = average(&record.activations[input]),
            }
        }
        if rows.is_empty() {
            // The rows are the last value itself: one pixel an image, inside a border.
            let last = &record.activations[record.graph.last];
            for image in 0..last.count {
                let start = last.at(image, last.border, last.border);
                rows.extend_from_slice(&last.values[start..][..last.channels]);
            }
        }
        (record, rows, statistics)
    }

    fn pack(&self, conv: &Weights) -> Packed {
        let source = &self.parameters[conv.weight];
        let at = |o, c, row, col| source[conv.index(o, c, row, col)];
        let bias = conv.bias.map(|bias| self.parameters[bias].clone());
        Packed::pack(conv.shape, at, bias, conv.stride, conv.padding)
    }

    fn unit(
        &mut self,
        unit: &Unit,
        running: &[Vec<f32>],
        statistics: &mut [(Vec<f32>, Vec<f32>)],
        spare: &Spare,
    ) {
        let packed = self.pack(&unit.conv);
        let input = &self.activations[unit.input];
        let size = packed.out(input.size());
        let mut before = spare.take(input.count, size, packed.to, 0);
        let measure = self.training && unit.norm.is_some();
        let seen = convolve(self.isa, &packed, input, &mut before, measure);
        let (mut factor, mut offset) = (vec![1.0; packed.to], vec![0.0; packed.to]);
        let mut normalised = None;
        if let Some(norm) = &unit.norm {
            let (mean, variance) = if self.training {
                let (mean, variance) = moments(&seen, size[0] * size[1]);
                let pixels = (before.count * size[0] * size[1]) as f32;
                let unbiased = pixels / (pixels - 1.0).max(1.0);
                let unbiased = variance.iter().map(|v| v * unbiased).collect();
                statistics[norm.layer] = (mean.clone(), unbiased);
                (mean, variance)
            } else {
                let [mean, variance] = [0, 1].map(|i| running[2 * norm.layer + i].clone());
                (mean, variance)
            };
            let epsilon = EPSILON as f32;
            let scale: Vec<f32> = variance
                .iter()
                .map(|v| (v + epsilon).sqrt().recip())
                .collect();
            let (gamma, beta) = (&self.parameters[norm.weight], &self.parameters[norm.bias]);
            for c in 0..packed.to {
                factor[c] = gamma[c] * scale[c];
                offset[c] = beta[c] - mean[c] * factor[c];
            }
            normalised = Some((norm.layer, mean, scale));
        }
        let mut output = spare.take(before.count, size, packed.to, BORDER);
        let shortcut = unit.shortcut.as_ref();
        let shortcut = shortcut.map(|s| (s, &self.activations[s.value]));
        each_line(&mut output, |image, row, target| {
            let source = &before.values[before.line_of(image, row)];
            let channels = packed.to;
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
                for (col, target) in target.chunks_exact_mut(channels).enumerate() {
                    let pixel = from.pixel(image, row * s.stride, col * s.stride);
                    for (t, value) in target[s.first..].iter_mut().zip(pixel) {
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
        if let Some((layer, mean, scale)) = normalised {
            self.normalised[layer] = Some(Normalised {
                before,
                mean,
                scale,
            });
        } else {
            spare.give(before);
        }
        self.activations[unit.output] = output;
    }

    /// The gradients of the parameters below the head, from that of the feature rows.
    fn backward(&self, rows: &[f32], spare: &Spare) -> Vec<Vec<f32>> {
        let mut gradients = vec![None; self.graph.values];
        let mut found = vec![Vec::new(); self.graph.parameters];
        let last = self.graph.last;
        if !matches!(self.graph.nodes.last(), Some(Node::Average { .. })) {
            gradients[last] = Some(Activation {
                values: rows.to_vec(),
                ..self.activations[last].like(0)
            });
        }
        for node in self.graph.nodes.iter().rev() {
            match node {
                Node::Unit(unit) => self.unit_backward(unit, &mut gradients, &mut found, spare),
                &Node::MaxPool {
                    input,
                    output,
                    shape,
                } => {
                    let gradient = taken(&mut gradients, output);
                    let (input_value, output_value) =
                        (&self.activations[input], &self.activations[output]);
                    gradients[input] = Some(max_pool_backward(
                        input_value,
                        output_value,
                        &gradient,
                        shape,
                        spare,
                    ));
                    spare.give(gradient);
                }
                &Node::Flatten { input, output } => {
                    let gradient = taken(&mut gradients, output);
                    gradients[input] = Some(unflatten(&gradient, &self.activations[input], spare));
                    spare.give(gradient);
                }
                &Node::Average { input } => {
                    let like = &self.activations[input];
                    let mut gradient = spare.take(like.count, like.size(), like.channels, 0);
                    let pixels = (gradient.height * gradient.width) as f32;
                    let channels = gradient.channels;
                    each_line(&mut gradient, |image, _, target| {
                        let row = &rows[image * channels..][..channels];
                        for target in target.chunks_exact_mut(channels) {
                            for (t, value) in target.iter_mut().zip(row) {
                                *t = value / pixels;
                            }
                        }
                    });
                    gradients[input] = Some(gradient);
                }
            }
        }
        found
    }

    fn unit_backward(
        &self,
        unit: &Unit,
        gradients: &mut [Option<Activation>],
        found: &mut [Vec<f32>],
        spare: &Spare,
    ) {
        let [to, from, _, _] = unit.conv.shape;
        let mut gradient = taken(gradients, unit.output);
        let output = &self.activations[unit.output];
        let normalised = unit.norm.as_ref().map(|norm| {
            let normalised = &self.normalised[norm.layer];
            (norm, normalised.as_ref().expect("the pass normalised it"))
        });
        let measured = normalised.map(|(_, n)| (&n.before, &n.mean[..]));
        let (sums, products) = masked(&mut gradient, unit.relu.then_some(output), measured);
        if let Some(s) = &unit.shortcut {
            let source = &self.activations[s.value];
            let sum = gradients[s.value].get_or_insert_with(|| spare.zeros(source));
            let channels = sum.channels;
            each_line(sum, |image, row, target| {
                if row % s.stride != 0 || row / s.stride >= gradient.height {
                    return;
                }
                let pixels = target.chunks_exact_mut(channels).step_by(s.stride);
                for (col, target) in pixels.enumerate().take(gradient.width) {
                    let pixel = gradient.pixel(image, row / s.stride, col);
                    for (t, value) in target.iter_mut().zip(&pixel[s.first..]) {
                        *t += value;
                    }
                }
            });
        }

        // From here on the gradient is that of the convolution's output, in whole blocks of channels.
        let phases = self.phases(&unit.conv, self.activations[unit.input].size());
        let border = phases
            .iter()
            .map(|phase| phase.border(gradient.size()))
            .max();
        let padded = to.next_multiple_of(BLOCK);
        let border = border.unwrap_or(0);
        let mut inner = spare.take(gradient.count, gradient.size(), padded, border);
        if let Some((norm, normalised)) = normalised {
            let Normalised {
                before,
                mean,
                scale,
            } = normalised;
            let products: Vec<f32> = products.iter().zip(scale).map(|(p, s)| p * s).collect();
            let pixels = (gradient.count * gradient.height * gradient.width) as f32;
            let gamma = &self.parameters[norm.weight];
            let factor: Vec<f32> = gamma.iter().zip(scale).map(|(g, s)| g * s).collect();
            // dy = factor·(g − shift − slope·(y − μ))
            let (mut shift, mut slope) = (vec![0.0; to], vec![0.0; to]);
            if self.training {
                for c in 0..to {
                    shift[c] = sums[c] / pixels;
                    slope[c] = products[c] / pixels * scale[c];
                }
            }
            each_line(&mut inner, |image, row, target| {
                let source = &gradient.values[gradient.line_of(image, row)];
                let before = &before.values[before.line_of(image, row)];
                let pixels = source.chunks_exact(to).zip(before.chunks_exact(to));
                for (target, (source, before)) in target.chunks_exact_mut(padded).zip(pixels) {
                    let (target, rest) = target.split_at_mut(to);
                    rest.fill(0.0);
                    for c in 0..to {
                        let centred = before[c] - mean[c];
                        target[c] = factor[c] * (source[c] - shift[c] - slope[c] * centred);
                    }
                }
            });
            found[norm.weight] = products;
            found[norm.bias] = sums;
        } else {
            each_line(&mut inner, |image, row, target| {
                let source = &gradient.values[gradient.line_of(image, row)];
                for (target, source) in target.chunks_exact_mut(padded).zip(source.chunks_exact(to))
                {
                    target[..to].copy_from_slice(source);
                    target[to..].fill(0.0);
                }
            });
        }
        spare.give(gradient);

        if let Some(bias) = unit.conv.bias {
            found[bias] = channel_sums(&inner);
            found[bias].truncate(to);
        }
        let input = &self.activations[unit.input];
        let packed = weight_gradient(self.isa, &unit.conv, input, &inner);
        let mut weight = vec![0.0; self.parameters[unit.conv.weight].len()];
        let [_, _, rows, cols] = unit.conv.shape;
        for (i, values) in packed.as_chunks::<BLOCK>().0.iter().enumerate() {
            let (c, rest) = (i % from, i / from);
            let (col, rest) = (rest % cols, rest / cols);
            let (row, block) = (rest % rows, rest / rows);
            for (o, value) in (block * BLOCK..to).zip(values) {
                weight[unit.conv.index(o, c, row, col)] = *value;
            }
        }
        found[unit.conv.weight] = weight;
        if unit.input != 0 {
            // Where one phase reaches every pixel, what is there need not be zero.
            let fresh = gradients[unit.input].is_none() && unit.conv.stride == 1;
            let sum = gradients[unit.input].get_or_insert_with(|| {
                if fresh {
                    spare.take(input.count, input.size(), input.channels, 0)
                } else {
                    spare.zeros(input)
                }
            });
            for phase in &phases {
                phase.add(self.isa, &inner, sum, !fresh);
            }
        }
        spare.give(inner);
    }

    /// Gives its memory back.
    fn end(self, spare: &Spare) {
        let normalised = self.normalised.into_iter().flatten().map(|n| n.before);
        self.activations
            .into_iter()
            .chain(normalised)
            .for_each(|activation| spare.give(activation));
    }

    /// How the gradient of a convolution's output reaches its input: one convolution for each place of an input pixel
    /// relative to the stride.
    fn phases(&self, conv: &Weights, [height, width]: [usize; 2]) -> Vec<Phase> {
        let [to, from, rows, cols] = conv.shape;
        let (stride, padding) = (conv.stride, conv.padding);
        let source = &self.parameters[conv.weight];
        let mut phases = Vec::new();
        // An input pixel j = phase + stride·m meets the output pixel i by the kernel's k where i·stride = j + padding − k.
        let taps = |phase: usize, side: usize| -> Vec<usize> {
            let meets = |k: &usize| (phase + padding + side * stride - k).is_multiple_of(stride);
            (0..side).rev().filter(meets).collect()
        };
        for y in 0..stride.min(height) {
            for x in 0..stride.min(width) {
                let (down, across) = (taps(y, rows), taps(x, cols));
                let (Some(&top), Some(&left)) = (down.first(), across.first()) else {
                    continue;
                };
                let at = |c: usize, o: usize, row: usize, col: usize| {
                    if o < to {
                        source[conv.index(o, c, down[row], across[col])]
                    } else {
                        0.0
                    }
                };
                let shape = [from, to.next_multiple_of(BLOCK), down.len(), across.len()];
                let first = |phase: usize, k: usize| {
                    ((phase + padding) as isize - k as isize) / stride as isize
                };
                phases.push(Phase {
                    conv: Packed::pack(shape, at, None, 1, 0),
                    start: [y, x],
                    step: stride,
                    first: [first(y, top), first(x, left)],
                    count: [(height - y).div_ceil(stride), (width - x).div_ceil(stride)],
                });
            }
        }
        phases
    }
}

fn taken(gradients: &mut [Option<Activation>], value: Value) -> Activation {
    let Some(gradient) = gradients[value].take() else {
        unreachable!("every value reaches the rows");
    };
    gradient
}

/// The input pixels at `start` + `step`·m, m < `count`, and the kernel that they see of the output's gradient, whose
/// first tap is at `first` + m.
struct Phase {
    conv: Packed,
    start: [usize; 2],
    step: usize,
    first: [isize; 2],
    count: [usize; 2],
}

impl Phase {
    /// Zeros that are needed around a gradient of this size.
    fn border(&self, size: [usize; 2]) -> usize {
        let taps = [self.conv.rows, self.conv.cols];
        let needed = |axis: usize| {
            let end = self.first[axis] + (self.count[axis] + taps[axis]) as isize - 1;
            (-self.first[axis]).max(end - size[axis] as isize)
        };
        needed(0).max(needed(1)).max(0) as usize
    }

    fn add(&self, isa: Isa, gradient: &Activation, sum: &mut Activation, add: bool) {
        let image = sum.image();
        let shape = sum.like(sum.border);
        sum.values
            .par_chunks_mut(TASK * image)
            .enumerate()
            .for_each(|(task, values)| {
                let first = task * TASK;
                let mut places = Vec::new();
                for i in 0..values.len() / image {
                    for row in 0..self.count[0] {
                        let origin = [
                            (gradient.border as isize + self.first[0]) as usize + row,
                            (gradient.border as isize + self.first[1]) as usize,
                        ];
                        let input = gradient.at(first + i, origin[0], origin[1]);
                        let line = shape.border + self.start[0] + row * self.step;
                        let output = shape.at(i, line, shape.border + self.start[1]);
                        places.extend((0..self.count[1]).map(|col| Place {
                            input: input + col * gradient.channels,
                            output: output + col * self.step * shape.channels,
                        }));
                    }
                }
                isa.run(Accumulate {
                    conv: &self.conv,
                    input: gradient,
                    places: &places,
                    output: values,
                    add,
                });
            });
    }
}

/// Adds a convolution without bias to what is there, or puts it there.
struct Accumulate<'a> {
    conv: &'a Packed,
    input: &'a Activation,
    places: &'a [Place],
    output: &'a mut [f32],
    add: bool,
}

impl Work for Accumulate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let to = self.conv.to;
        sweep(
            kernel,
            self.conv,
            self.input,
            self.places,
            |place, _, first, sums| {
                let target = &mut self.output[place.output + first..][..BLOCK.min(to - first)];
                if self.add {
                    for (sum, t) in sums.iter_mut().zip(&*target) {
                        *sum += t;
                    }
                }
                store(target, sums);
            },
        );
    }
}

/// Of the pixels of an image, each channel's mean and its sum of squares around it.
type Moments = [Vec<f32>; 2];

/// A convolution with its bias. If asked for, also the moments of each image, while it is in the cache.
fn convolve(
    isa: Isa,
    conv: &Packed,
    input: &Activation,
    output: &mut Activation,
    measure: bool,
) -> Vec<Moments> {
    struct Convolve<'a> {
        conv: &'a Packed,
        input: &'a Activation,
        places: &'a [Place],
        output: &'a mut [f32],
    }

    impl Work for Convolve<'_> {
        type Output = ();

        #[inline(always)]
        fn run<K: Kernel>(self, kernel: K) {
            let Packed { to, bias, .. } = self.conv;
            sweep(
                kernel,
                self.conv,
                self.input,
                self.places,
                |place, _, first, sums| {
                    for (sum, bias) in sums.iter_mut().zip(&bias[first..]) {
                        *sum += bias;
                    }
                    let count = BLOCK.min(to - first);
                    store(&mut self.output[place.output + first..][..count], sums);
                },
            );
        }
    }

    let image = output.image();
    let shape = output.like(output.border);
    output
        .values
        .par_chunks_mut(TASK * image)
        .enumerate()
        .flat_map_iter(|(task, values)| {
            let first = task * TASK;
            let mut places = Vec::new();
            let images = first..first + values.len() / image;
            conv.places(input, &shape, images, &mut places);
            isa.run(Convolve {
                conv,
                input,
                places: &places,
                output: values,
            });
            let measured = if measure { &values[..] } else { &[] };
            let each = measured.chunks_exact(image);
            let each: Vec<Moments> = each.map(|values| image_moments(values, &shape)).collect();
            each
        })
        .collect()
}

fn image_moments(values: &[f32], shape: &Activation) -> Moments {
    let channels = shape.channels;
    let pixels = (shape.height * shape.width) as f32;
    let mut mean = vec![0.0; channels];
    for row in 0..shape.height {
        for pixel in values[shape.line_of(0, row)].chunks_exact(channels) {
            for (sum, value) in mean.iter_mut().zip(pixel) {
                *sum += value;
            }
        }
    }
    for sum in &mut mean {
        *sum /= pixels;
    }
    let mut squares = vec![0.0; channels];
    for row in 0..shape.height {
        for pixel in values[shape.line_of(0, row)].chunks_exact(channels) {
            for ((sum, value), mean) in squares.iter_mut().zip(pixel).zip(&mean) {
                *sum += (value - mean) * (value - mean);
            }
        }
    }
    [mean, squares]
}

/// Pixels of a line: offsets of the first in the input and in the gradient.
#[derive(Clone, Copy)]
struct Line {
    input: usize,
    gradient: usize,
    count: usize,
}

/// Adds what some lines contribute to the weights of some blocks of output channels.
struct Outer<'a> {
    conv: &'a Weights,
    input: &'a Activation,
    gradient: &'a Activation,
    /// From one pixel to the next, in the input and in the gradient.
    steps: [usize; 2],
    lines: &'a [Line],
    /// First output channel.
    first: usize,
    /// [block][row][column · channel][16].
    sums: &'a mut [f32],
}

impl Work for Outer<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let [_, from, rows, cols] = self.conv.shape;
        let (length, row_stride) = (cols * from, self.input.line());
        // Runs shorter than a tile, those of images with one channel, are taken as one.
        let merged = length < PIXELS && rows > 1;
        let (rows, run) = if merged {
            (1, rows * length)
        } else {
            (rows, length)
        };
        let blocks = self.sums.len() / (rows * run * BLOCK);
        let packed = (blocks > 1 || merged) && run >= PIXELS;
        let (input, gradient) = (&self.input.values, &self.gradient.values);
        let [input_step, gradient_step] = self.steps;
        // Packed, pixels follow each other: [tile][pixel][6] and [block][pixel][16]. Pixels with many channels are a
        // power of two apart, and would push each other out of the cache. A single block is not worth the trouble.
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let tiles: Vec<[usize; 2]> = (0..run)
            .step_by(PIXELS)
            // The last tile begins earlier where the run is not a multiple, and adds its own part only.
            .map(|start| [start, start.min(run.saturating_sub(PIXELS))])
            .collect();
        let mut rest = self.lines;
        while !rest.is_empty() {
            let mut pixels = 0;
            let enough = rest.iter().position(|line| {
                pixels += line.count;
                pixels >= STRETCH
            });
            let (lines, later) = rest.split_at(enough.map_or(rest.len(), |last| last + 1));
            rest = later;
            if packed {
                right.clear();
                for block in 0..blocks {
                    let channel = self.first + block * BLOCK;
                    for line in lines {
                        for p in 0..line.count {
                            let start = line.gradient + channel + p * gradient_step;
                            right.extend_from_slice(&gradient[start..][..BLOCK]);
                        }
                    }
                }
            }
            for row in 0..rows {
                let below = row * row_stride;
                if packed {
                    left.clear();
                    for [_, begin] in &tiles {
                        for line in lines {
                            for p in 0..line.count {
                                let start = line.input + below + begin + p * input_step;
                                if merged {
                                    let origin = start - begin;
                                    left.extend((*begin..begin + PIXELS).map(|k| {
                                        input[origin + k / length * row_stride + k % length]
                                    }));
                                } else {
                                    left.extend_from_slice(&input[start..][..PIXELS]);
                                }
                            }
                        }
                    }
                }
                for block in 0..blocks {
                    let sums = &mut self.sums[(block * rows + row) * run * BLOCK..][..run * BLOCK];
                    let sums = sums.as_chunks_mut::<BLOCK>().0;
                    if run < PIXELS {
                        let channel = self.first + block * BLOCK;
                        for line in lines {
                            for p in 0..line.count {
                                let left = &input[line.input + below + p * input_step..][..run];
                                let right =
                                    &gradient[line.gradient + channel + p * gradient_step..];
                                for (sums, left) in sums.iter_mut().zip(left) {
                                    for (sum, right) in sums.iter_mut().zip(right) {
                                        *sum = left.mul_add(*right, *sum);
                                    }
                                }
                            }
                        }
                        continue;
                    }
                    for (t, &[start, begin]) in tiles.iter().enumerate() {
                        let mut tile = [[0.0; BLOCK]; PIXELS];
                        if packed {
                            let left = &left[t * pixels * PIXELS..][..pixels * PIXELS];
                            let right = &right[block * pixels * BLOCK..][..pixels * BLOCK];
                            kernel.outer((left, PIXELS), (right, BLOCK), pixels, &mut tile);
                        } else {
                            for line in lines {
                                let left = &input[line.input + below + begin..];
                                let right = &gradient[line.gradient + self.first..];
                                let right = (right, gradient_step);
                                kernel.outer((left, input_step), right, line.count, &mut tile);
                            }
                        }
                        let own = start - begin;
                        for (sums, tile) in sums[start..begin + PIXELS].iter_mut().zip(&tile[own..])
                        {
                            for (sum, value) in sums.iter_mut().zip(tile) {
                                *sum += value;
                            }
                        }
                    }
                }
            }
        }
    }
}

/// dW as [block][row][column · channel][16].
fn weight_gradient(
    isa: Isa,
    conv: &Weights,
    input: &Activation,
    gradient: &Activation,
) -> Vec<f32> {
    let [_, from, rows, cols] = conv.shape;
    let length = rows * cols * from * BLOCK;
    let blocks = gradient.channels / BLOCK;
    let corner = input.border - conv.padding;
    let single = gradient.height * gradient.width == 1;
    let lines = |images: std::ops::Range<usize>| -> Vec<Line> {
        if single {
            // One line whose pixels are the images.
            return vec![Line {
                input: input.at(images.start, corner, corner),
                gradient: gradient.at(images.start, gradient.border, gradient.border),
                count: images.len(),
            }];
        }
        images
            .flat_map(|image| (0..gradient.height).map(move |row| (image, row)))
            .map(|(image, row)| Line {
                input: input.at(image, corner + row * conv.stride, corner),
                gradient: gradient.at(image, row + gradient.border, gradient.border),
                count: gradient.width,
            })
            .collect()
    };
    let steps = if single {
        [input.image(), gradient.image()]
    } else {
        [conv.stride * from, gradient.channels]
    };
    let outer = |lines: &[Line], block: usize, sums: &mut [f32]| {
        isa.run(Outer {
            conv,
            input,
            gradient,
            steps,
            lines,
            first: block * BLOCK,
            sums,
        });
    };
    if blocks * length > SHARED {
        let lines = lines(0..gradient.count);
        let mut sums = vec![0.0; blocks * length];
        sums.par_chunks_mut(TOGETHER * length)
            .enumerate()
            .for_each(|(task, sums)| outer(&lines, task * TOGETHER, sums));
        return sums;
    }
    let each = gradient.count.div_ceil(PARTS).max(1);
    let starts: Vec<usize> = (0..gradient.count).step_by(each).collect();
    let parts: Vec<Vec<f32>> = starts
        .into_par_iter()
        .map(|start| {
            let lines = lines(start..(start + each).min(gradient.count));
            let mut sums = vec![0.0; blocks * length];
            outer(&lines, 0, &mut sums);
            sums
        })
        .collect();
    let mut total = vec![0.0; blocks * length];
    for part in parts {
        for (sum, value) in total.iter_mut().zip(part) {
            *sum += value;
        }
    }
    total
}

/// Does something to every line of pixels, images in parallel.
fn each_line(activation: &mut Activation, change: impl Fn(usize, usize, &mut [f32]) + Sync) {
    let image = activation.image().max(1);
    let shape = activation.like(activation.border);
    activation
        .values
        .par_chunks_mut(image)
        .enumerate()
        .for_each(|(i, values)| {
            for row in 0..shape.height {
                change(i, row, &mut values[shape.line_of(0, row)]);
            }
        });
}

/// Sums over all pixels of the channels of an image, image by image in parallel, added in the order of the images.
fn reduced<const N: usize>(
    count: usize,
    channels: usize,
    image: impl Fn(usize, &mut [Vec<f32>; N]) + Sync,
) -> [Vec<f64>; N] {
    let parts: Vec<[Vec<f32>; N]> = (0..count)
        .into_par_iter()
        .map(|i| {
            let mut sums = std::array::from_fn(|_| vec![0.0; channels]);
            image(i, &mut sums);
            sums
        })
        .collect();
    let mut totals = std::array::from_fn(|_| vec![0.0_f64; channels]);
    for part in parts {
        for (total, part) in totals.iter_mut().zip(part) {
            for (sum, value) in total.iter_mut().zip(part) {
                *sum += f64::from(value);
            }
        }
    }
    totals
}

fn narrow(values: Vec<f64>) -> Vec<f32> {
    values.into_iter().map(|value| value as f32).collect()
}

/// Mean and biased variance of every channel over images of so many pixels.
fn moments(images: &[Moments], pixels: usize) -> (Vec<f32>, Vec<f32>) {
    let channels = images.first().map_or(0, |[mean, _]| mean.len());
    let count = images.len().max(1) as f64;
    let over = |value: &dyn Fn(&Moments, usize) -> f64| -> Vec<f64> {
        let total = |c| images.iter().map(|image| value(image, c)).sum::<f64>();
        (0..channels).map(|c| total(c) / count).collect()
    };
    let mean = over(&|[mean, _], c| f64::from(mean[c]));
    // Around the common mean: within the images and between them.
    let variance = over(&|[own, squares], c| {
        f64::from(squares[c]) / pixels as f64 + (f64::from(own[c]) - mean[c]).powi(2)
    });
    (narrow(mean), narrow(variance))
}

fn channel_sums(activation: &Activation) -> Vec<f32> {
    let channels = activation.channels;
    let [sums] = reduced(activation.count, channels, |image, [sums]| {
        for row in 0..activation.height {
            let line = &activation.values[activation.line_of(image, row)];
            for pixel in line.chunks_exact(channels) {
                for (sum, value) in sums.iter_mut().zip(pixel) {
                    *sum += value;
                }
            }
        }
    });
    narrow(sums)
}

/// Sets to zero what a ReLU stopped, and gives Σg and Σg(y − μ) of every channel.
fn masked(
    gradient: &mut Activation,
    output: Option<&Activation>,
    measured: Option<(&Activation, &[f32])>,
) -> (Vec<f32>, Vec<f32>) {
    let channels = gradient.channels;
    let image = gradient.image();
    let shape = gradient.like(gradient.border);
    let parts = gradient.values.par_chunks_mut(image).enumerate();
    let parts: Vec<[Vec<f32>; 2]> = parts
        .map(|(image, values)| {
            let [mut sums, mut products] = [0, 1].map(|_| vec![0.0_f32; channels]);
            for row in 0..shape.height {
                let line = &mut values[shape.line_of(0, row)];
                if let Some(output) = output {
                    let output = &output.values[output.line_of(image, row)];
                    for (t, value) in line.iter_mut().zip(output) {
                        *t = if *value > 0.0 { *t } else { 0.0 };
                    }
                }
                let Some((before, mean)) = measured else {
                    continue;
                };
                let before = &before.values[before.line_of(image, row)];
                let pixels = line
                    .chunks_exact(channels)
                    .zip(before.chunks_exact(channels));
                for (pixel, before) in pixels {
                    let (sums, products) = (&mut sums[..channels], &mut products[..channels]);
                    let mean = &mean[..channels];
                    for c in 0..channels {
                        sums[c] += pixel[c];
                        products[c] += pixel[c] * (before[c] - mean[c]);
                    }
                }
            }
            [sums, products]
        })
        .collect();
    let [sums, products] = [0, 1].map(|which| {
        let total = |c| {
            parts
                .iter()
                .map(|part| f64::from(part[which][c]))
                .sum::<f64>()
        };
        narrow((0..channels).map(total).collect())
    });
    (sums, products)
}

/// The input comes out of a ReLU, so that zeros around it change no maximum.
fn max_pool(input: &Activation, [side, stride, padding]: [usize; 3], spare: &Spare) -> Activation {
    let size = input
        .size()
        .map(|extent| (extent + 2 * padding - side) / stride + 1);
    let mut output = spare.take(input.count, size, input.channels, BORDER);
    let (corner, channels) = (input.border - padding, input.channels);
    each_line(&mut output, |image, row, target| {
        target.fill(0.0);
        for (col, target) in target.chunks_exact_mut(channels).enumerate() {
            for y in 0..side {
                let start = input.at(image, corner + row * stride + y, corner + col * stride);
                let line = &input.values[start..][..side * channels];
                for pixel in line.chunks_exact(channels) {
                    for (largest, &value) in target.iter_mut().zip(pixel) {
                        *largest = largest.max(value);
                    }
                }
            }
        }
    });
    output
}

/// Each gradient goes to the first of the largest values of its window.
fn max_pool_backward(
    input: &Activation,
    output: &Activation,
    gradient: &Activation,
    [side, stride, padding]: [usize; 3],
    spare: &Spare,
) -> Activation {
    let mut result = spare.zeros(input);
    let channels = input.channels;
    let image_size = result.image();
    let shape = result.like(0);
    result
        .values
        .par_chunks_mut(image_size)
        .enumerate()
        .for_each(|(image, target)| {
            let mut left = vec![0.0; channels];
            for row in 0..output.height {
                for col in 0..output.width {
                    let largest = output.pixel(image, row, col);
                    left.copy_from_slice(gradient.pixel(image, row, col));
                    for k in 0..side * side {
                        let y = (row * stride + k / side).wrapping_sub(padding);
                        let x = (col * stride + k % side).wrapping_sub(padding);
                        if y >= input.height || x >= input.width {
                            continue;
                        }
                        let target = &mut target[shape.at(0, y, x)..][..channels];
                        let values = input.pixel(image, y, x);
                        let places = target.iter_mut().zip(values).zip(largest).zip(&mut left);
                        for (((target, value), largest), left) in places {
                            let given = if value == largest { *left } else { 0.0 };
                            *target += given;
                            *left -= given;
                        }
                    }
                }
            }
        });
    result
}

/// Every image as one pixel, channel by channel as PyTorch does.
fn flatten(input: &Activation, spare: &Spare) -> Activation {
    let plane = input.height * input.width;
    let mut output = spare.take(input.count, [1, 1], plane * input.channels, 0);
    each_line(&mut output, |image, _, target| {
        for y in 0..input.height {
            for x in 0..input.width {
                let slots = target[y * input.width + x..].iter_mut().step_by(plane);
                for (slot, value) in slots.zip(input.pixel(image, y, x)) {
                    *slot = *value;
                }
            }
        }
    });
    output
}

fn unflatten(gradient: &Activation, input: &Activation, spare: &Spare) -> Activation {
    let plane = input.height * input.width;
    let mut result = spare.take(input.count, input.size(), input.channels, 0);
    let channels = input.channels;
    each_line(&mut result, |image, row, target| {
        let flat = gradient.pixel(image, 0, 0);
        for (x, target) in target.chunks_exact_mut(channels).enumerate() {
            let source = flat[row * input.width + x..].iter().step_by(plane);
            for (t, value) in target.iter_mut().zip(source) {
                *t = *value;
            }
        }
    });
    result
}

fn average(input: &Activation) -> Vec<f32> {
    let channels = input.channels;
    let pixels = (input.height * input.width) as f32;
    let mut rows = vec![0.0; input.count * channels];
    rows.par_chunks_mut(channels)
        .enumerate()
        .for_each(|(image, sums)| {
            for row in 0..input.height {
                let line = &input.values[input.line_of(image, row)];
                for pixel in line.chunks_exact(channels) {
                    for (sum, value) in sums.iter_mut().zip(pixel) {
                        *sum += value;
                    }
                }
            }
            for sum in sums {
                *sum /= pixels;
            }
        });
    rows
}

#[cfg(test)]
mod tests {
    use burn::module::Module;

    use super::*;
    use crate::layers::test_images;
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
                let what = format!("{config:?}, training {training}");
                let [c, h, w] = image;
                let mut gaps: Vec<f32> = (0..3)
                    .map(|seed| {
                        let net = config.init(seed, &device).unwrap().train();
                        let images = test_images([10, c, h, w]);
                        let (wanted_logits, wanted_statistics, wanted) =
                            pass(&net, images.clone(), training, false);
                        let (logits, statistics, found) = pass(&net, images, training, true);
                        assert!(gap(&logits, &wanted_logits) < 1e-4, "{what}: logits");
                        assert_eq!(statistics.len(), wanted_statistics.len(), "{what}");
                        for (found, wanted) in statistics.iter().zip(&wanted_statistics) {
                            assert!(gap(found, wanted) < 1e-4, "{what}: statistics");
                        }
                        assert_eq!(found.len(), wanted.len(), "{what}");
                        // The bias before a normalisation has no gradient in training; rounding makes one.
                        let all = wanted.iter().flatten();
                        let noise = 1e-5 * all.fold(0.0_f32, |a, v| a.max(v.abs()));
                        let pairs = found.iter().zip(&wanted);
                        pairs
                            .filter(|(f, w)| f.iter().chain(*w).any(|v| v.abs() > noise))
                            .map(|(found, wanted)| gap(found, wanted))
                            .fold(0.0, f32::max)
                    })
                    .collect();
                // Where a unit is within rounding of zero, its ReLU may fall to either side, and every gradient below
                // it follows; burn itself moves as much when the images do by a last bit. Few seeds have such a unit.
                gaps.sort_by(f32::total_cmp);
                assert!(gaps[1] < 1e-4, "{what}: {gaps:?}");
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
