//! An architecture as a dataflow graph: a list of nodes in the order in which they run.
//!
//! A [`Graph`] comes from the one description that every network gives of itself ([`Ops`]). What follows a convolution
//! (shortcut and ReLU) is fused into its node. The layers themselves are whatever the reader of the graph makes of them:
//! training numbers their parameters, and inference packs their weights.

use burn::nn::Linear;

use crate::layers::ConvNorm;
use crate::network::Network;
use crate::ops::{Ops, Pooling};

/// The number of an activation.
pub(crate) type Value = usize;

/// The number of the images.
pub(crate) const IMAGES: Value = 0;

/// A layer with weights.
pub(crate) enum Layer<'a> {
    /// A convolution with or without batch normalisation.
    Conv(&'a ConvNorm),
    /// A linear layer, on images of one pixel.
    Linear(&'a Linear),
}

/// A layer with what is fused into it: relu(layer(input) + shortcut).
#[derive(Clone, Debug)]
pub(crate) struct Unit<L> {
    pub(crate) input: Value,
    pub(crate) output: Value,
    pub(crate) layer: L,
    pub(crate) shortcut: Option<Shortcut>,
    pub(crate) relu: bool,
}

/// An activation that is added to a layer's result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shortcut {
    pub(crate) value: Value,
    /// Every how many pixels it is read.
    pub(crate) stride: usize,
}

impl Shortcut {
    /// Returns the channel of the sum that the first one of the shortcut is added to.
    #[inline(always)]
    pub(crate) fn first(channels: usize, of: usize) -> usize {
        (of - channels) / 2
    }
}

/// A step of a pass.
#[derive(Clone, Debug)]
pub(crate) enum Node<L> {
    /// A layer with its shortcut and ReLU.
    Unit(Unit<L>),
    /// Max pooling over windows.
    MaxPool {
        input: Value,
        output: Value,
        pooling: Pooling,
    },
    /// All values of an image as one pixel.
    Flatten { input: Value, output: Value },
    /// The mean of every channel as the feature rows; the last node.
    Average { input: Value },
}

impl<L> Node<L> {
    /// The activations that the node reads.
    fn reads(&self) -> impl Iterator<Item = Value> + use<L> {
        let (input, other) = match self {
            Self::Unit(unit) => (unit.input, unit.shortcut.map(|s| s.value)),
            Self::MaxPool { input, .. } | Self::Flatten { input, .. } | Self::Average { input } => {
                (*input, None)
            }
        };
        std::iter::once(input).chain(other.filter(move |&other| other != input))
    }

    /// The activation that the node writes.
    fn writes(&self) -> Option<Value> {
        match self {
            Self::Unit(unit) => Some(unit.output),
            Self::MaxPool { output, .. } | Self::Flatten { output, .. } => Some(*output),
            Self::Average { .. } => None,
        }
    }

    fn renumber(&mut self, new: impl Fn(Value) -> Value) {
        match self {
            Self::Unit(unit) => {
                unit.input = new(unit.input);
                unit.output = new(unit.output);
                if let Some(shortcut) = &mut unit.shortcut {
                    shortcut.value = new(shortcut.value);
                }
            }
            Self::MaxPool { input, output, .. } | Self::Flatten { input, output } => {
                *input = new(*input);
                *output = new(*output);
            }
            Self::Average { input } => *input = new(*input),
        }
    }
}

/// A network below its head.
#[derive(Clone, Debug)]
pub(crate) struct Graph<L> {
    pub(crate) nodes: Vec<Node<L>>,
    /// Number of activations.
    pub(crate) values: usize,
    /// Zeros that the first convolution needs around the images.
    pub(crate) border: usize,
}

impl<L> Graph<L> {
    /// Writes down a network. `layer` is called once for each layer, in the order of the network's fields.
    pub(crate) fn new(network: &Network, layer: impl FnMut(Layer<'_>) -> L) -> Self {
        let mut builder = Builder {
            graph: Self {
                nodes: Vec::new(),
                values: 1,
                border: 0,
            },
            layer,
        };
        network.layers(&mut builder, IMAGES);
        builder.graph
    }

    /// Renumbers the activations so that each takes the place of one that nobody reads any more (register allocation by
    /// linear scan). For passes that do not go back.
    pub(crate) fn reusing_memory(mut self) -> Self {
        let mut last_reader = vec![0; self.values];
        for (i, node) in self.nodes.iter().enumerate() {
            node.reads().for_each(|value| last_reader[value] = i);
        }
        let mut places = vec![IMAGES; self.values];
        let (mut used, mut free) = (1, Vec::new());
        for (i, node) in self.nodes.iter_mut().enumerate() {
            if let Some(value) = node.writes() {
                // Before its inputs are free: a node must not write what it reads.
                places[value] = free.pop().unwrap_or_else(|| {
                    used += 1;
                    used - 1
                });
            }
            let done = node.reads().filter(|&value| last_reader[value] == i);
            free.extend(done.map(|value| places[value]));
            node.renumber(|value| places[value]);
        }
        self.values = used;
        self
    }
}

/// Writes the operations of an architecture down.
struct Builder<L, F> {
    graph: Graph<L>,
    layer: F,
}

impl<L, F: FnMut(Layer<'_>) -> L> Builder<L, F> {
    fn value(&mut self) -> Value {
        self.graph.values += 1;
        self.graph.values - 1
    }

    fn unit(&mut self, input: Value, layer: Layer<'_>) -> Value {
        let (output, layer) = (self.value(), (self.layer)(layer));
        self.graph.nodes.push(Node::Unit(Unit {
            input,
            output,
            layer,
            shortcut: None,
            relu: false,
        }));
        output
    }

    /// Takes out the node of the layer that has written a value.
    fn take(&mut self, value: Value) -> Unit<L> {
        let nodes = &mut self.graph.nodes;
        let place = nodes.iter().rposition(|node| node.writes() == Some(value));
        match place.map(|place| nodes.remove(place)) {
            Some(Node::Unit(unit)) => unit,
            _ => unreachable!("shortcuts and ReLUs follow a layer"),
        }
    }
}

impl<L, F: FnMut(Layer<'_>) -> L> Ops for Builder<L, F> {
    type Value = Value;
    type Rows = ();

    fn conv(&mut self, input: Value, layer: &ConvNorm) -> Value {
        if input == IMAGES {
            self.graph.border = layer.conv.padding;
        }
        self.unit(input, Layer::Conv(layer))
    }

    fn linear(&mut self, input: Value, layer: &Linear) -> Value {
        let output = self.value();
        self.graph.nodes.push(Node::Flatten { input, output });
        self.unit(output, Layer::Linear(layer))
    }

    fn add(&mut self, sum: Value, value: Value, stride: usize) -> Value {
        // To the end: the shortcut may have been computed after the layer that it is added to.
        let mut unit = self.take(sum);
        unit.shortcut = Some(Shortcut { value, stride });
        self.graph.nodes.push(Node::Unit(unit));
        sum
    }

    fn relu(&mut self, input: Value) -> Value {
        let mut unit = self.take(input);
        unit.relu = true;
        self.graph.nodes.push(Node::Unit(unit));
        input
    }

    fn max_pool(&mut self, input: Value, pooling: Pooling) -> Value {
        let output = self.value();
        self.graph.nodes.push(Node::MaxPool {
            input,
            output,
            pooling,
        });
        output
    }

    fn average(&mut self, input: Value) {
        self.graph.nodes.push(Node::Average { input });
    }

    fn rows(&mut self, input: Value) {
        // The mean of one pixel is that pixel.
        self.average(input);
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;
    use crate::{Architecture, NetworkConfig};

    fn graph(architecture: Architecture) -> Graph<&'static str> {
        let config = NetworkConfig::new(architecture, 3, [3, 64, 64]).with_width(4);
        let net = config.init(0, &Device::flex()).unwrap();
        Graph::new(&net, |layer| match layer {
            Layer::Conv(_) => "conv",
            Layer::Linear(_) => "linear",
        })
    }

    /// Every node reads what an earlier one wrote, and what a value holds when it is read is what was written for the reader.
    #[test]
    fn memory_is_reused_only_when_nobody_reads_it_any_more() {
        for architecture in Architecture::ALL {
            let (plain, reusing) = (graph(architecture), graph(architecture).reusing_memory());
            assert!(reusing.values <= 4, "{architecture}: {}", reusing.values);
            let mut held = vec![None; reusing.values];
            held[IMAGES] = Some(IMAGES);
            assert_eq!(plain.nodes.len(), reusing.nodes.len());
            for (plain, reusing) in plain.nodes.iter().zip(&reusing.nodes) {
                for (value, place) in plain.reads().zip(reusing.reads()) {
                    assert_eq!(held[place], Some(value), "{architecture}: {plain:?}");
                }
                assert!(reusing.reads().all(|place| Some(place) != reusing.writes()));
                if let (Some(value), Some(place)) = (plain.writes(), reusing.writes()) {
                    held[place] = Some(value);
                }
            }
        }
    }

    #[test]
    fn what_follows_a_layer_is_fused_into_it() {
        let resnet = graph(Architecture::ResNet18);
        let units: Vec<_> = resnet
            .nodes
            .iter()
            .filter_map(|node| match node {
                Node::Unit(unit) => Some(unit),
                _ => None,
            })
            .collect();
        // Eight blocks of two convolutions, three projections and the stem.
        assert_eq!(units.len(), 20);
        assert_eq!(units.iter().filter(|u| u.shortcut.is_some()).count(), 8);
        assert_eq!(units.iter().filter(|u| !u.relu).count(), 3);
        assert_eq!(resnet.border, 3);
        let pools = |architecture| {
            let nodes = graph(architecture).nodes;
            let pools = nodes.iter().filter(|n| matches!(n, Node::MaxPool { .. }));
            pools.count()
        };
        assert_eq!(Architecture::ALL.map(pools), [2, 1, 1, 0, 0, 0, 0, 0, 5]);
    }
}
