//! Feature extraction on the processor: a network in evaluation mode, with batch normalisation folded into its
//! convolutions.
//!
//! Feature extraction passes every image of a data set through the network and keeps nothing but the rows, so it needs
//! none of what burn keeps for gradients. A [`Folded`] network runs its [`Graph`], each node a convolution with its bias,
//! shortcut and ReLU in one pass. Tasks of a work queue are a few images from the first layer to the last, so that what a
//! layer writes is still in the cache when the next one reads it; activations that nobody reads any more are overwritten.
//!
//! Every sum is one chain of fused multiply-adds in a fixed order: rows do not depend on the batch, the threads or the
//! instruction set.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::{Device, Tensor, TensorData};
use rayon::prelude::*;

use super::activation::{Activation, BORDER};
use super::conv::{Convolve, Packed, Place, Shape};
use super::graph::{Graph, IMAGES, Layer, Node, Unit};
use super::isa::{Isa, Work};
use super::pool::{average_image, flatten_image, max_pool_line};
use super::tile::Kernel;
use super::values;
use crate::layers::Conv;
use crate::network::Network;
use crate::ops::Forward;

/// Values of the widest activation of a task, which decide how many images it has: enough to fill tiles where a layer
/// has few pixels, few enough to stay in the cache.
const TASK: usize = 1 << 16;

/// A network in evaluation mode for extracting features, with batch normalisation folded into its convolutions.
///
/// On the processor it runs on direct convolutions, and a row depends on its image alone: not on the batch, the number of
/// threads or the instruction set. On other devices it runs on burn.
///
/// ```
/// use muso_models::burn::tensor::{Device, Tensor};
/// use muso_models::{Architecture, Mode, NetworkConfig};
///
/// let device = Device::flex();
/// let config = NetworkConfig::new(Architecture::ResNet20, 10, [3, 32, 32]).with_width(4);
/// let net = config.init(1, &device)?;
/// let images = Tensor::ones([2, 3, 32, 32], &device);
/// let rows = net.folded().features(images.clone());
/// let gap = (rows - net.features(images, Mode::Eval)).abs().max().into_scalar::<f32>();
/// assert!(gap < 1e-4);
/// # Ok::<(), muso_models::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Folded {
    network: Network,
    /// Folded convolutions for burn, in the order of the layers.
    folded: Vec<Conv>,
    /// Graph for the processor; `None` on other devices.
    graph: Option<Graph<Packed>>,
    isa: Isa,
}

impl Network {
    /// Folds batch normalisation into the convolutions, for extracting features in evaluation mode.
    pub fn folded(&self) -> Folded {
        Folded::new(self)
    }
}

impl Folded {
    /// Folds a network, as [`Network::folded`].
    pub fn new(network: &Network) -> Self {
        let network = network.valid();
        let here = network.head().weight.val().device() == Device::flex();
        let mut folded = Vec::new();
        Graph::new(&network, |layer| {
            if let Layer::Conv(layer) = layer {
                folded.push(layer.folded());
            }
        });
        // Elsewhere burn computes, and the weights stay where they are.
        let graph = here.then(|| {
            let mut convs = folded.iter();
            let graph = Graph::new(&network, |layer| match layer {
                Layer::Conv(_) => {
                    let conv = convs.next().expect("one folded layer a convolution");
                    let bias = conv.bias.as_ref().map(|bias| values(bias.val()));
                    Shape::conv(conv).pack(&values(conv.weight.val()), bias)
                }
                Layer::Linear(layer) => {
                    let bias = layer.bias.as_ref().map(|bias| values(bias.val()));
                    Shape::linear(layer).pack(&values(layer.weight.val()), bias)
                }
            });
            graph.reusing_memory()
        });
        Self {
            folded,
            graph,
            isa: Isa::detect(),
            network,
        }
    }

    /// Computes feature rows [N, D] of images [N, channels, height, width].
    ///
    /// # Panics
    /// If the images are not of the network's size.
    pub fn features(&self, images: Tensor<4>) -> Tensor<2> {
        let device = images.device();
        if device != Device::flex() {
            return self.features_by_burn(images);
        }
        let [count, channels, height, width] = images.dims();
        let rows = self.feature_rows(&values(images), [channels, height, width]);
        let features = self.head().weight.dims()[0];
        Tensor::from_data(TensorData::new(rows, [count, features]), &device)
    }

    /// Computes feature rows [N, D] with burn's convolutions, on whatever device the images are.
    ///
    /// This is what [`features`](Self::features) does on other devices than the processor. On the processor it is there
    /// to be compared with: rows are equal up to rounding.
    pub fn features_by_burn(&self, images: Tensor<4>) -> Tensor<2> {
        let mut forward = Forward::Folded(self.folded.iter());
        self.network.layers(&mut forward, images)
    }

    /// Returns the linear layer from features to logits.
    pub fn head(&self) -> &Linear {
        self.network.head()
    }

    /// Computes logits [N, C] of images [N, channels, height, width].
    ///
    /// # Panics
    /// If the images are not of the network's size.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        self.head().forward(self.features(images))
    }

    /// Computes feature rows of images that are not tensors: [N, channels, height, width] in, [N, D] out. Runs on the
    /// current rayon pool.
    ///
    /// # Panics
    /// If the images are not of the network's size, or if the network is not on the processor.
    pub fn feature_rows(&self, images: &[f32], image: [usize; 3]) -> Vec<f32> {
        let graph = self.graph.as_ref().expect("a network on the processor");
        let size = image.iter().product::<usize>();
        assert!(
            size > 0 && images.len().is_multiple_of(size),
            "whole images"
        );
        let features = self.head().weight.dims()[0];
        let mut rows = vec![0.0; images.len() / size * features];
        let task = (TASK / widest(graph, image)).clamp(4, 12);
        images
            .par_chunks(task * size)
            .zip(rows.par_chunks_mut(task * features))
            .for_each_init(Scratch::default, |scratch, (images, rows)| {
                self.isa.run(Task {
                    graph,
                    images,
                    image,
                    rows,
                    scratch,
                });
            });
        rows
    }
}

/// Returns the values of the largest activation of an image, the first convolution's output.
fn widest(graph: &Graph<Packed>, [channels, height, width]: [usize; 3]) -> usize {
    let Some(Node::Unit(Unit { layer: conv, .. })) = graph.nodes.first() else {
        unreachable!("every network begins with a convolution");
    };
    assert_eq!(channels, conv.from, "channels of the images");
    let [height, width] = conv.out([height, width]);
    height * width * conv.to
}

/// Some images from the first node to the last.
struct Task<'a> {
    graph: &'a Graph<Packed>,
    images: &'a [f32],
    image: [usize; 3],
    rows: &'a mut [f32],
    scratch: &'a mut Scratch,
}

#[derive(Default)]
struct Scratch {
    activations: Vec<Activation>,
    places: Vec<Place>,
}

impl Work for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let [channels, height, width] = self.image;
        let size = channels * height * width;
        let count = self.images.len() / size;
        let Scratch {
            activations,
            places,
        } = self.scratch;
        activations.resize_with(self.graph.values, Activation::default);
        let first = &mut activations[IMAGES];
        first.reset(count, [height, width], channels, self.graph.border);
        for (i, image) in self.images.chunks_exact(size).enumerate() {
            first.transpose_in(i, image);
        }
        for node in &self.graph.nodes {
            // The output is taken out, so that the others can be read while it is written.
            match node {
                Node::Unit(unit) => {
                    let conv = &unit.layer;
                    let mut output = std::mem::take(&mut activations[unit.output]);
                    let input = &activations[unit.input];
                    output.reset(count, conv.out(input.size()), conv.to, BORDER);
                    let shape = output.shape();
                    let convolve = Convolve {
                        conv,
                        input,
                        shortcut: unit.shortcut.map(|s| (s, &activations[s.value])),
                        relu: unit.relu,
                        images: 0..count,
                        shape: &shape,
                        output: &mut output.values,
                        places,
                    };
                    convolve.run(kernel);
                    activations[unit.output] = output;
                }
                &Node::MaxPool {
                    input,
                    output: to,
                    pooling,
                } => {
                    let mut output = std::mem::take(&mut activations[to]);
                    let input = &activations[input];
                    let size = pooling.out(input.size());
                    output.reset(count, size, input.channels, BORDER);
                    output.lines_mut(|image, row, target| {
                        max_pool_line(input, pooling, [image, row], target);
                    });
                    activations[to] = output;
                }
                &Node::Flatten { input, output: to } => {
                    let mut output = std::mem::take(&mut activations[to]);
                    let input = &activations[input];
                    let length = input.height * input.width * input.channels;
                    output.reset(count, [1, 1], length, 0);
                    output.lines_mut(|image, _, target| flatten_image(input, image, target));
                    activations[to] = output;
                }
                &Node::Average { input } => {
                    let input = &activations[input];
                    let rows = self.rows.chunks_exact_mut(input.channels);
                    for (image, means) in rows.enumerate() {
                        average_image(input, image, means);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::test_images;
    use crate::{Architecture, Mode, NetworkConfig, Statistics};

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
                    check(folded.features(images.clone()), "graph");
                    check(folded.features_by_burn(images.clone()), "burn");
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
        let images = values(test_images([7, 1, 8, 8]));
        let wanted = folded.feature_rows(&images, [1, 8, 8]);
        for isa in Isa::all() {
            let other = Folded {
                isa,
                ..folded.clone()
            };
            let found = other.feature_rows(&images, [1, 8, 8]);
            assert_eq!(found, wanted, "{isa:?}");
        }
    }
}
