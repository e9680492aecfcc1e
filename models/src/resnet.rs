//! Residual networks with basic blocks.
//!
//! ResNet-18 and ResNet-34 are torchvision's. Images below 64×64 get the stem that is usual for CIFAR (a 3×3 convolution,
//! no pooling), larger ones torchvision's (7×7 with stride 2, then 3×3 max pooling with stride 2). The four stages have w,
//! 2w, 4w and 8w channels; w is 64 in the published networks and smaller in the narrow ones that a processor can train.
//!
//! ResNet-20, -32, -44, -56 and -110 are those of He et al. for CIFAR, in the layout of akamaster's `pytorch_resnet_cifar10`:
//! three stages of 16, 32 and 64 channels and shortcuts without weights (option A of the paper).
//!
//! All are one [`ResNet`]; a [`Plan`] says what sets one apart from the other.

use burn::module::Module;
use burn::nn::Linear;

use crate::layers::{ConvNorm, Draw, Init, Kernel};
use crate::network::Architecture;
use crate::ops::{Ops, Pooling};

/// relu(F(x) + shortcut(x)), F two 3×3 convolutions.
#[derive(Module, Debug)]
struct BasicBlock {
    conv1: ConvNorm,
    conv2: ConvNorm,
    downsample: Option<ConvNorm>,
}

/// Shortcut of a block whose input and output differ in shape.
#[derive(Clone, Copy, PartialEq)]
enum Shortcut {
    /// A 1×1 convolution with normalisation (option B).
    Projection,
    /// Every other pixel, with as many channels of zeros before and after as are missing (option A).
    Padding,
}

/// Parameters that set one residual network apart from another.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    /// The blocks of each stage.
    pub(crate) blocks: &'static [usize],
    /// Width of the published network.
    pub(crate) width: usize,
    /// Gives large images the large stem.
    large_stem: bool,
    shortcut: Shortcut,
    /// Initialisation of the convolutions.
    init: Init,
    /// Initialisation of the head.
    head: Init,
}

impl Plan {
    const RESNET18: Self = Self {
        blocks: &[2, 2, 2, 2],
        width: 64,
        large_stem: true,
        shortcut: Shortcut::Projection,
        init: Init::KaimingFanOut,
        head: Init::Uniform,
    };

    const fn for_cifar(blocks: &'static [usize]) -> Self {
        Self {
            blocks,
            width: 16,
            large_stem: false,
            shortcut: Shortcut::Padding,
            init: Init::KaimingFanIn,
            head: Init::KaimingFanIn,
        }
    }

    /// Returns the plan of a residual network; the others have none.
    pub(crate) const fn of(architecture: Architecture) -> Option<Self> {
        match architecture {
            Architecture::ResNet18 => Some(Self::RESNET18),
            Architecture::ResNet34 => Some(Self {
                blocks: &[3, 4, 6, 3],
                ..Self::RESNET18
            }),
            Architecture::ResNet20 => Some(Self::for_cifar(&[3; 3])),
            Architecture::ResNet32 => Some(Self::for_cifar(&[5; 3])),
            Architecture::ResNet44 => Some(Self::for_cifar(&[7; 3])),
            Architecture::ResNet56 => Some(Self::for_cifar(&[9; 3])),
            Architecture::ResNet110 => Some(Self::for_cifar(&[18; 3])),
            Architecture::SmallCnn | Architecture::Vgg16Bn => None,
        }
    }

    /// Returns whether the network is one of those for CIFAR.
    pub(crate) fn is_for_cifar(&self) -> bool {
        self.shortcut == Shortcut::Padding
    }

    /// Returns D, the length of a feature row, for a width: every stage after the first doubles the channels.
    pub(crate) const fn features(&self, width: usize) -> usize {
        width << (self.blocks.len() - 1)
    }
}

impl BasicBlock {
    fn new(draw: &mut Draw<'_>, [from, to]: [usize; 2], stride: usize, plan: &Plan) -> Self {
        let kernel = |stride| Kernel::three(stride, plan.init);
        let conv1 = draw.conv_norm(from, to, kernel(stride));
        let conv2 = draw.conv_norm(to, to, kernel(1));
        let reshaped = stride != 1 || from != to;
        let project = plan.shortcut == Shortcut::Projection && reshaped;
        let downsample = project.then(|| {
            let kernel = Kernel {
                side: 1,
                padding: 0,
                ..kernel(stride)
            };
            draw.conv_norm(from, to, kernel)
        });
        Self {
            conv1,
            conv2,
            downsample,
        }
    }

    fn layers<O: Ops>(&self, ops: &mut O, input: O::Value) -> O::Value {
        let inner = ops.conv(input.clone(), &self.conv1);
        let inner = ops.relu(inner);
        let inner = ops.conv(inner, &self.conv2);
        let sum = match &self.downsample {
            Some(layer) => {
                let projected = ops.conv(input, layer);
                ops.add(inner, projected, 1)
            }
            None => ops.add(inner, input, self.conv1.conv.stride),
        };
        ops.relu(sum)
    }
}

/// A residual network with basic blocks: torchvision's ResNet-18 and -34, or one of those for CIFAR.
#[derive(Module, Debug)]
pub struct ResNet {
    conv1: ConvNorm,
    layers: Vec<Vec<BasicBlock>>,
    pub(crate) head: Linear,
}

impl ResNet {
    /// Images at least this high and wide get the large stem.
    pub(crate) const LARGE: usize = 64;

    /// Draws a network with random weights.
    pub(crate) fn new(
        draw: &mut Draw<'_>,
        plan: &Plan,
        image: [usize; 3],
        width: usize,
        classes: usize,
    ) -> Self {
        let [channels, height, across] = image;
        let small = Kernel::three(1, plan.init);
        let stem = if plan.large_stem && height.min(across) >= Self::LARGE {
            Kernel {
                side: 7,
                stride: 2,
                padding: 3,
                ..small
            }
        } else {
            small
        };
        let conv1 = draw.conv_norm(channels, width, stem);
        let mut from = width;
        let mut layers = Vec::new();
        for (stage, &blocks) in plan.blocks.iter().enumerate() {
            let to = width << stage;
            let stride = if stage == 0 { 1 } else { 2 };
            let block = |i: usize| match i {
                0 => BasicBlock::new(draw, [from, to], stride, plan),
                _ => BasicBlock::new(draw, [to, to], 1, plan),
            };
            layers.push((0..blocks).map(block).collect());
            from = to;
        }
        Self {
            conv1,
            layers,
            head: draw.linear(plan.features(width), classes, plan.head),
        }
    }

    /// Describes the network below its head.
    pub(crate) fn layers<O: Ops>(&self, ops: &mut O, images: O::Value) -> O::Rows {
        let mut x = ops.conv(images, &self.conv1);
        x = ops.relu(x);
        if self.conv1.conv.stride == 2 {
            x = ops.max_pool(x, Pooling::OVERLAPPING);
        }
        for block in self.layers.iter().flatten() {
            x = block.layers(ops, x);
        }
        ops.average(x)
    }
}
