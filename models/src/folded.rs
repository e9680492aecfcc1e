//! Feature extraction on the processor: a network in evaluation mode, with everything folded that can be.
//!
//! Feature extraction passes every image of a data set through the network and keeps nothing but the rows, so it needs
//! none of what burn keeps for gradients. A [`Folded`] network has its normalisations moved into the convolutions and
//! runs as a list of steps, each a convolution with its bias, shortcut and ReLU in one pass:
//!
//! - Activations are [height, width, channels] with a border of zeros, so that a row of a kernel meets one contiguous run
//!   of side·channels values and there is no edge to look after.
//! - Six pixels times sixteen output channels are one register tile ([`Kernel::tile`]); weights are packed as
//!   `[block of 16][row of the kernel][column · channel][16]` and are read in order.
//! - A task is a few images from the first layer to the last, so that what a layer writes is still in the cache when the
//!   next one reads it. Every sum is one chain of fused multiply-adds in a fixed order: rows do not depend on the batch,
//!   the threads or the instruction set.
//!
//! On other devices than the processor it is the same network in burn, without its normalisations.
//!
//! ```
//! use muso_models::burn::tensor::{Device, Tensor};
//! use muso_models::{Architecture, Mode, NetworkConfig};
//!
//! let device = Device::flex();
//! let config = NetworkConfig::new(Architecture::ResNet20, 10, [3, 32, 32]).with_width(4);
//! let net = config.init(1, &device)?;
//! let images = Tensor::ones([2, 3, 32, 32], &device);
//! let rows = net.folded().features(images.clone());
//! let gap = (rows - net.features(images, Mode::Eval)).abs().max().into_scalar::<f32>();
//! assert!(gap < 1e-4);
//! # Ok::<(), muso_models::ConfigError>(())
//! ```

use burn::nn::Linear;
use burn::tensor::{Device, Tensor, TensorData};
use rayon::prelude::*;

use crate::direct::{Activation, BORDER, Packed, Place, store, sweep, transpose, values};
use crate::kernel::{BLOCK, Isa, Kernel, PIXELS, Window, Work};
use crate::layers::Conv;
use crate::network::Network;
use crate::norm::Mode;
use crate::resnet::BasicBlock;
use crate::vgg;

/// Values of the widest activation of a task, which decide how many images it has: enough to fill tiles where a layer
/// has few pixels, few enough to stay in the cache.
const TASK: usize = 1 << 16;

/// A network for extracting features. See the module's text.
#[derive(Clone, Debug)]
pub struct Folded {
    network: Network,
    channels: usize,
    /// Zeros around the images.
    border: usize,
    steps: Vec<Step>,
    isa: Isa,
}

/// Where an activation is kept.
type Slot = usize;
const SLOTS: usize = 4;

#[derive(Clone, Debug)]
struct Step {
    input: Slot,
    output: Slot,
    operation: Operation,
}

#[derive(Clone, Debug)]
enum Operation {
    Convolve {
        conv: Packed,
        shortcut: Option<Shortcut>,
        relu: bool,
    },
    MaxPool {
        side: usize,
        stride: usize,
        padding: usize,
    },
    /// To the mean of each channel; the last step.
    Average,
    /// A linear layer with ReLU on all values of an image, channel by channel; the last step.
    Linear(Packed),
}

/// What is added to a convolution before its ReLU.
#[derive(Clone, Copy, Debug)]
struct Shortcut {
    slot: Slot,
    /// Every how many pixels it is read.
    stride: usize,
    /// Its first channel goes to this one.
    first: usize,
}

/// Steps as they are appended.
#[derive(Default)]
struct Program {
    steps: Vec<Step>,
    /// Where the last one left its result.
    last: Slot,
}

impl Program {
    fn push(&mut self, input: Slot, output: Slot, operation: Operation) {
        self.steps.push(Step {
            input,
            output,
            operation,
        });
        self.last = output;
    }

    /// The `n`-th of the slots that do not hold the last result.
    fn free(&self, n: usize) -> Slot {
        (self.last + 1 + n) % SLOTS
    }

    fn conv_relu(&mut self, conv: &Conv) {
        let operation = Operation::Convolve {
            conv: Packed::new(conv),
            shortcut: None,
            relu: true,
        };
        self.push(self.last, self.free(0), operation);
    }

    fn max_pool(&mut self, side: usize, stride: usize, padding: usize) {
        let operation = Operation::MaxPool {
            side,
            stride,
            padding,
        };
        self.push(self.last, self.free(0), operation);
    }

    fn average(&mut self) {
        self.push(self.last, self.free(0), Operation::Average);
    }

    fn block(&mut self, block: &BasicBlock) {
        let (input, inner, projected, output) =
            (self.last, self.free(0), self.free(1), self.free(2));
        let [to, from, _, _] = block.conv1.weight.dims();
        let stride = block.conv1.stride;
        let convolve = |conv, shortcut, relu| Operation::Convolve {
            conv: Packed::new(conv),
            shortcut,
            relu,
        };
        self.push(input, inner, convolve(&block.conv1, None, true));
        let shortcut = match &block.downsample {
            Some(downsample) => {
                self.push(input, projected, convolve(&downsample.conv, None, false));
                Shortcut {
                    slot: projected,
                    stride: 1,
                    first: 0,
                }
            }
            None => Shortcut {
                slot: input,
                stride,
                first: (to - from) / 2,
            },
        };
        self.push(inner, output, convolve(&block.conv2, Some(shortcut), true));
    }
}

/// What a network does to an image.
fn steps(network: &Network) -> Vec<Step> {
    let mut program = Program::default();
    match network {
        Network::SmallCnn(net) => {
            for conv in [&net.conv1, &net.conv2] {
                program.conv_relu(conv);
                program.max_pool(2, 2, 0);
            }
            let linear = Operation::Linear(Packed::linear(&net.fc1));
            program.push(program.last, program.free(0), linear);
        }
        Network::ResNet(net) => {
            program.conv_relu(&net.conv1);
            if net.has_pool() {
                program.max_pool(3, 2, 1);
            }
            net.blocks().for_each(|block| program.block(block));
            program.average();
        }
        Network::CifarResNet(net) => {
            program.conv_relu(&net.conv1);
            net.blocks().for_each(|block| program.block(block));
            program.average();
        }
        Network::Vgg(net) => {
            for (unit, (_, pooled)) in net.features.iter().zip(vgg::layout()) {
                program.conv_relu(&unit.conv);
                if pooled {
                    program.max_pool(2, 2, 0);
                }
            }
            program.average();
        }
    }
    program.steps
}

impl Network {
    /// This network in evaluation mode, for extracting features.
    pub fn folded(&self) -> Folded {
        Folded::new(self)
    }
}

impl Folded {
    /// Folds a network.
    pub fn new(network: &Network) -> Self {
        use burn::module::Module;
        let network = network.valid().fold();
        let stem = match &network {
            Network::SmallCnn(net) => &net.conv1,
            Network::ResNet(net) => &net.conv1,
            Network::CifarResNet(net) => &net.conv1,
            Network::Vgg(net) => &net.features[0].conv,
        };
        // Elsewhere burn computes, and the weights stay where they are.
        let here = stem.weight.val().device() == Device::flex();
        Self {
            channels: stem.weight.dims()[1],
            border: stem.padding,
            steps: if here { steps(&network) } else { Vec::new() },
            isa: Isa::detect(),
            network,
        }
    }

    /// Feature rows [N, D] of images [N, channels, height, width].
    ///
    /// # Panics
    /// If the images are not of the network's size.
    pub fn features(&self, images: Tensor<4>) -> Tensor<2> {
        let device = images.device();
        if device != Device::flex() {
            return self.network.features(images, Mode::Eval);
        }
        let [count, channels, height, width] = images.dims();
        let rows = self.feature_rows(&values(images), [channels, height, width]);
        let features = self.network.head().weight.dims()[0];
        Tensor::from_data(TensorData::new(rows, [count, features]), &device)
    }

    /// The linear layer from features to logits.
    pub fn head(&self) -> &Linear {
        self.network.head()
    }

    /// Logits [N, C].
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        self.head().forward(self.features(images))
    }

    /// Feature rows of images that are not tensors: [N, channels, height, width] in, [N, D] out. Runs on the current
    /// rayon pool.
    ///
    /// # Panics
    /// If the images are not of the network's size.
    pub fn feature_rows(&self, images: &[f32], image: [usize; 3]) -> Vec<f32> {
        assert_eq!(image[0], self.channels, "channels of the images");
        let size = image.iter().product::<usize>();
        assert!(
            size > 0 && images.len().is_multiple_of(size),
            "whole images"
        );
        let features = self.network.head().weight.dims()[0];
        let mut rows = vec![0.0; images.len() / size * features];
        let task = (TASK / self.widest(image)).clamp(4, 12);
        images
            .par_chunks(task * size)
            .zip(rows.par_chunks_mut(task * features))
            .for_each_init(Scratch::default, |scratch, (images, rows)| {
                self.isa.run(Task {
                    net: self,
                    images,
                    image,
                    rows,
                    scratch,
                });
            });
        rows
    }

    /// Values of the largest activation of an image.
    fn widest(&self, [_, height, width]: [usize; 3]) -> usize {
        let Some(Operation::Convolve { conv, .. }) = self.steps.first().map(|s| &s.operation)
        else {
            return 1;
        };
        let [height, width] = conv.out([height, width]);
        height * width * conv.to
    }
}

/// Some images from the first step to the last.
struct Task<'a> {
    net: &'a Folded,
    images: &'a [f32],
    image: [usize; 3],
    rows: &'a mut [f32],
    scratch: &'a mut Scratch,
}

#[derive(Default)]
struct Scratch {
    slots: [Activation; SLOTS],
    places: Vec<Place>,
}

impl Work for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let [channels, height, width] = self.image;
        let size = channels * height * width;
        let count = self.images.len() / size;
        let Scratch { slots, places } = self.scratch;
        slots[0].reset(count, [height, width], channels, self.net.border);
        for (i, image) in self.images.chunks_exact(size).enumerate() {
            transpose(image, i, &mut slots[0]);
        }
        for step in &self.net.steps {
            // Taken out, so that the others can be read while it is written.
            let mut output = std::mem::take(&mut slots[step.output]);
            let input = &slots[step.input];
            match &step.operation {
                Operation::Convolve {
                    conv,
                    shortcut,
                    relu,
                } => {
                    output.reset(count, conv.out(input.size()), conv.to, BORDER);
                    let shortcut = shortcut.map(|s| (s, &slots[s.slot]));
                    convolve(kernel, conv, input, shortcut, *relu, &mut output, places);
                }
                &Operation::MaxPool {
                    side,
                    stride,
                    padding,
                } => max_pool(input, [side, stride, padding], &mut output),
                Operation::Average => average(input, self.rows),
                Operation::Linear(layer) => {
                    flatten(input, &mut output);
                    linear(kernel, layer, &output, self.rows);
                }
            }
            slots[step.output] = output;
        }
    }
}

#[inline(always)]
fn convolve<K: Kernel>(
    kernel: K,
    conv: &Packed,
    input: &Activation,
    shortcut: Option<(Shortcut, &Activation)>,
    relu: bool,
    output: &mut Activation,
    places: &mut Vec<Place>,
) {
    conv.places(input, output, 0..output.count, places);
    let size = [output.height, output.width];
    let line = |from: &Activation, number: usize, stride: usize| {
        let (row, col) = (number / size[1] % size[0], number % size[1]);
        let image = number / (size[0] * size[1]);
        from.at(
            image,
            row * stride + from.border,
            col * stride + from.border,
        )
    };
    sweep(kernel, conv, input, places, |place, number, first, sums| {
        let bias = &conv.bias[first..][..BLOCK];
        for (sum, bias) in sums.iter_mut().zip(bias) {
            *sum += bias;
        }
        if let Some((s, from)) = shortcut {
            let pixel = &from.values[line(from, number, s.stride)..][..from.channels];
            add_shortcut(sums, first, s.first, pixel);
        }
        if relu {
            for sum in sums.iter_mut() {
                *sum = sum.max(0.0);
            }
        }
        let count = BLOCK.min(conv.to - first);
        store(&mut output.values[place.output + first..][..count], sums);
    });
}

/// Adds channels of a pixel whose first one belongs at `offset` to the output channels from `first`.
#[inline(always)]
fn add_shortcut(sums: &mut [f32; BLOCK], first: usize, offset: usize, pixel: &[f32]) {
    if offset == 0
        && let Some(values) = pixel.get(first..first + BLOCK)
    {
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum += value;
        }
        return;
    }
    for (j, sum) in sums.iter_mut().enumerate() {
        let channel = (first + j).checked_sub(offset);
        if let Some(value) = channel.and_then(|channel| pixel.get(channel)) {
            *sum += value;
        }
    }
}

/// The input comes out of a ReLU, so that zeros around it change no maximum.
#[inline(always)]
fn max_pool(input: &Activation, [side, stride, padding]: [usize; 3], output: &mut Activation) {
    let size = input
        .size()
        .map(|extent| (extent + 2 * padding - side) / stride + 1);
    output.reset(input.count, size, input.channels, BORDER);
    let corner = input.border - padding;
    let channels = input.channels;
    for image in 0..output.count {
        for row in 0..output.height {
            for col in 0..output.width {
                let start = output.at(image, row + output.border, col + output.border);
                let target = &mut output.values[start..][..channels];
                target.fill(0.0);
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
        }
    }
}

#[inline(always)]
fn average(input: &Activation, rows: &mut [f32]) {
    let pixels = (input.height * input.width) as f32;
    for (image, row) in rows.chunks_exact_mut(input.channels).enumerate() {
        row.fill(0.0);
        for y in 0..input.height {
            let start = input.at(image, y + input.border, input.border);
            let line = &input.values[start..][..input.width * input.channels];
            for pixel in line.chunks_exact(input.channels) {
                for (sum, value) in row.iter_mut().zip(pixel) {
                    *sum += value;
                }
            }
        }
        for sum in row {
            *sum /= pixels;
        }
    }
}

/// Every image as one pixel, channel by channel as PyTorch does.
#[inline(always)]
fn flatten(input: &Activation, output: &mut Activation) {
    let plane = input.height * input.width;
    output.reset(input.count, [1, 1], plane * input.channels, 0);
    for (image, row) in output
        .values
        .chunks_exact_mut(plane * input.channels)
        .enumerate()
    {
        for y in 0..input.height {
            for x in 0..input.width {
                let start = input.at(image, y + input.border, x + input.border);
                let pixel = &input.values[start..][..input.channels];
                let slots = row[y * input.width + x..].iter_mut().step_by(plane);
                for (slot, &value) in slots.zip(pixel) {
                    *slot = value;
                }
            }
        }
    }
}

#[inline(always)]
fn linear<K: Kernel>(kernel: K, layer: &Packed, input: &Activation, rows: &mut [f32]) {
    assert_eq!(input.channels, layer.from, "values of an image");
    let window = Window {
        rows: 1,
        row_stride: 0,
        run: layer.from,
    };
    let blocks = layer.weight.chunks_exact(layer.from * BLOCK);
    for (block, weight) in blocks.enumerate() {
        let first = block * BLOCK;
        let count = BLOCK.min(layer.to - first);
        for (tile, rows) in rows.chunks_mut(PIXELS * layer.to).enumerate() {
            let last = rows.len() / layer.to - 1;
            let starts = std::array::from_fn(|i| (tile * PIXELS + i.min(last)) * layer.from);
            let sums = kernel.tile(&input.values, starts, window, weight);
            for (row, sums) in rows.chunks_exact_mut(layer.to).zip(sums) {
                let bias = &layer.bias[first..][..count];
                let targets = row[first..][..count].iter_mut();
                for ((target, sum), bias) in targets.zip(sums).zip(bias) {
                    *target = (sum + bias).max(0.0);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::test_images;
    use crate::{Architecture, NetworkConfig, Statistics};

    /// A network whose running statistics are not the first ones.
    fn trained(config: &NetworkConfig, device: &Device) -> Network {
        let mut net = config.init(3, device).unwrap();
        let [c, h, w] = config.image;
        for _ in 0..3 {
            let images = test_images([8, c, h, w]) * 2.0 + 0.3;
            let statistics = Statistics::default();
            net.features(images, Mode::Train(&statistics));
            net = net.with_statistics(statistics);
        }
        net
    }

    #[test]
    fn equals_evaluation_mode() {
        let device = Device::flex();
        for (architecture, image, width) in [
            (Architecture::SmallCnn, [1, 28, 28], 16),
            (Architecture::SmallCnn, [3, 8, 12], 5),
            (Architecture::ResNet18, [3, 32, 32], 8),
            (Architecture::ResNet18, [3, 64, 64], 16),
            (Architecture::ResNet34, [1, 9, 14], 4),
            (Architecture::ResNet20, [3, 32, 32], 16),
            (Architecture::ResNet20, [3, 9, 11], 3),
            (Architecture::Vgg16Bn, [3, 32, 32], 8),
            (Architecture::Vgg16Bn, [1, 64, 70], 4),
        ] {
            for norm in [false, true] {
                let config = NetworkConfig::new(architecture, 5, image)
                    .with_width(width)
                    .with_norm(norm);
                let net = trained(&config, &device);
                let folded = net.folded();
                let [c, h, w] = image;
                for count in [1, 13] {
                    let images = test_images([count, c, h, w]);
                    let wanted = net.features(images.clone(), Mode::Eval);
                    let largest = wanted.clone().abs().max().into_scalar::<f32>();
                    assert!(largest > 0.0, "{config:?}: rows to compare");
                    let check = |rows: Tensor<2>, what: &str| {
                        let gap = (rows - wanted.clone()).abs().max().into_scalar::<f32>();
                        assert!(
                            gap <= 1e-4 * largest,
                            "{config:?}, {what}: {gap} of {largest}"
                        );
                    };
                    check(folded.features(images.clone()), "steps");
                    check(folded.network.features(images.clone(), Mode::Eval), "burn");
                    let logits = folded.forward(images.clone());
                    let wanted = net.forward(images, Mode::Eval);
                    let gap = (logits - wanted).abs().max().into_scalar::<f32>();
                    assert!(gap <= 1e-4 * largest.max(1.0), "{config:?}: logits, {gap}");
                }
            }
        }
    }

    #[test]
    fn rows_depend_on_their_image_alone() {
        let device = Device::flex();
        let config = NetworkConfig::new(Architecture::ResNet20, 5, [3, 16, 16]);
        let folded = trained(&config, &device).folded();
        let images = test_images([23, 3, 16, 16]);
        let images = values(images);
        let together = folded.feature_rows(&images, [3, 16, 16]);
        let alone: Vec<f32> = images
            .chunks_exact(3 * 16 * 16)
            .flat_map(|image| folded.feature_rows(image, [3, 16, 16]))
            .collect();
        assert_eq!(together, alone);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(3)
            .build()
            .unwrap();
        let on_three = pool.install(|| folded.feature_rows(&images, [3, 16, 16]));
        assert_eq!(together, on_three);
    }

    #[test]
    fn every_instruction_set_gives_the_same_rows() {
        let config = NetworkConfig::new(Architecture::SmallCnn, 5, [1, 8, 8]);
        let device = Device::flex();
        let folded = trained(&config, &device).folded();
        let portable = Folded {
            isa: Isa::Portable,
            ..folded.clone()
        };
        let images = values(test_images([7, 1, 8, 8]));
        assert_eq!(
            folded.feature_rows(&images, [1, 8, 8]),
            portable.feature_rows(&images, [1, 8, 8])
        );
    }
}
