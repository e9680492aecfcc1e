//! Residual networks with basic blocks.
//!
//! [`ResNet`] is ResNet-18 and ResNet-34 as in torchvision, with the names of its tensors. Images below 64×64 get the
//! stem that is usual for CIFAR (a 3×3 convolution, no pooling), larger ones torchvision's (7×7 with stride 2, then 3×3
//! max pooling with stride 2). The four stages have w, 2w, 4w and 8w channels; w is 64 in the published networks and
//! smaller in the narrow ones that a processor can train.
//!
//! [`CifarResNet`] is the ResNet-20 of He et al. for CIFAR, in the layout of akamaster's `pytorch_resnet_cifar10`: three
//! stages of 16, 32 and 64 channels and shortcuts without weights (option A of the paper).

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;

use crate::layers::{
    Conv, Draw, Init, Kernel, conv_norm, fold, global_average, max_pool, subsample,
};
use crate::norm::{BatchNorm, Mode};

/// A projection where a block changes the shape.
#[derive(Module, Debug)]
pub(crate) struct Downsample {
    pub(crate) conv: Conv,
    pub(crate) norm: Option<BatchNorm>,
}

/// relu(F(x) + shortcut(x)), F two 3×3 convolutions.
#[derive(Module, Debug)]
pub(crate) struct BasicBlock {
    pub(crate) conv1: Conv,
    pub(crate) bn1: Option<BatchNorm>,
    pub(crate) conv2: Conv,
    pub(crate) bn2: Option<BatchNorm>,
    pub(crate) downsample: Option<Downsample>,
}

/// What a block does where its input and output differ in shape.
#[derive(Clone, Copy, PartialEq)]
enum Shortcut {
    /// A 1×1 convolution with normalisation (option B).
    Projection,
    /// Every other pixel, with as many channels of zeros before and after as are missing (option A).
    Padding,
}

impl BasicBlock {
    fn new(
        draw: &mut Draw<'_>,
        [from, to]: [usize; 2],
        stride: usize,
        shortcut: Shortcut,
        init: Init,
    ) -> Self {
        Self {
            conv1: draw.conv(from, to, Kernel::three(stride, init)),
            bn1: Some(draw.norm(to)),
            conv2: draw.conv(to, to, Kernel::three(1, init)),
            bn2: Some(draw.norm(to)),
            downsample: (shortcut == Shortcut::Projection && (stride != 1 || from != to)).then(
                || {
                    let kernel = Kernel {
                        side: 1,
                        stride,
                        padding: 0,
                        bias: false,
                        init,
                    };
                    Downsample {
                        conv: draw.conv(from, to, kernel),
                        norm: Some(draw.norm(to)),
                    }
                },
            ),
        }
    }

    fn forward(&self, input: Tensor<4>, mode: Mode<'_>) -> Tensor<4> {
        let inner = relu(conv_norm(&self.conv1, &self.bn1, input.clone(), mode));
        let inner = conv_norm(&self.conv2, &self.bn2, inner, mode);
        let shortcut = match &self.downsample {
            // After the others, since statistics are noted in the order of the layers.
            Some(Downsample { conv, norm }) => conv_norm(conv, norm, input, mode),
            None if self.conv1.stride == 1 => input,
            None => pad_channels(subsample(input), inner.dims()[1]),
        };
        relu(inner + shortcut)
    }

    fn fold(&mut self) {
        fold(&mut self.conv1, &mut self.bn1);
        fold(&mut self.conv2, &mut self.bn2);
        if let Some(Downsample { conv, norm }) = &mut self.downsample {
            fold(conv, norm);
        }
    }
}

/// Zeros around the channels, so that there are `channels`.
fn pad_channels(input: Tensor<4>, channels: usize) -> Tensor<4> {
    let [batch, from, height, width] = input.dims();
    let zeros = |count| Tensor::zeros([batch, count, height, width], &input.device());
    let before = (channels - from) / 2;
    let after = channels - from - before;
    Tensor::cat(vec![zeros(before), input.clone(), zeros(after)], 1)
}

fn stage(
    draw: &mut Draw<'_>,
    [from, to]: [usize; 2],
    stride: usize,
    blocks: usize,
    shortcut: Shortcut,
    init: Init,
) -> Vec<BasicBlock> {
    (0..blocks)
        .map(|i| match i {
            0 => BasicBlock::new(draw, [from, to], stride, shortcut, init),
            _ => BasicBlock::new(draw, [to, to], 1, shortcut, init),
        })
        .collect()
}

/// ResNet-18 or ResNet-34. Its fields have the names of torchvision's.
#[derive(Module, Debug)]
pub struct ResNet {
    pub(crate) conv1: Conv,
    pub(crate) bn1: Option<BatchNorm>,
    pub(crate) layer1: Vec<BasicBlock>,
    pub(crate) layer2: Vec<BasicBlock>,
    pub(crate) layer3: Vec<BasicBlock>,
    pub(crate) layer4: Vec<BasicBlock>,
    pub(crate) fc: Linear,
}

impl ResNet {
    pub(crate) const WIDTH: usize = 64;
    pub(crate) const BLOCKS_18: [usize; 4] = [2, 2, 2, 2];
    pub(crate) const BLOCKS_34: [usize; 4] = [3, 4, 6, 3];
    /// Images at least this high and wide get the large stem.
    pub(crate) const LARGE: usize = 64;

    /// D for a width.
    pub(crate) const fn features_of(width: usize) -> usize {
        8 * width
    }

    pub(crate) fn new(
        draw: &mut Draw<'_>,
        image: [usize; 3],
        width: usize,
        blocks: [usize; 4],
        classes: usize,
    ) -> Self {
        let [channels, height, across] = image;
        let init = Init::KaimingFanOut;
        let kernel = if height.min(across) >= Self::LARGE {
            Kernel {
                side: 7,
                stride: 2,
                padding: 3,
                bias: false,
                init,
            }
        } else {
            Kernel::three(1, init)
        };
        let w = width;
        let conv1 = draw.conv(channels, w, kernel);
        let mut stage = |channels, stride, i: usize| {
            stage(
                draw,
                channels,
                stride,
                blocks[i],
                Shortcut::Projection,
                init,
            )
        };
        let layer1 = stage([w, w], 1, 0);
        let layer2 = stage([w, 2 * w], 2, 1);
        let layer3 = stage([2 * w, 4 * w], 2, 2);
        let layer4 = stage([4 * w, 8 * w], 2, 3);
        Self {
            conv1,
            bn1: Some(draw.norm(w)),
            layer1,
            layer2,
            layer3,
            layer4,
            fc: draw.linear(Self::features_of(w), classes, Init::Uniform),
        }
    }

    /// Feature rows [N, D] of images [N, channels, height, width].
    pub fn features(&self, images: Tensor<4>, mode: Mode<'_>) -> Tensor<2> {
        let mut x = relu(conv_norm(&self.conv1, &self.bn1, images, mode));
        if self.has_pool() {
            x = max_pool(x, 3, 2, 1);
        }
        for block in self.blocks() {
            x = block.forward(x, mode);
        }
        global_average(x)
    }

    pub(crate) fn has_pool(&self) -> bool {
        self.conv1.stride == 2
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = &BasicBlock> {
        let stages = [&self.layer1, &self.layer2, &self.layer3, &self.layer4];
        stages.into_iter().flatten()
    }

    /// The linear layer from features to logits.
    pub fn head(&self) -> &Linear {
        &self.fc
    }

    /// Logits [N, C].
    pub fn forward(&self, images: Tensor<4>, mode: Mode<'_>) -> Tensor<2> {
        self.head().forward(self.features(images, mode))
    }

    pub(crate) fn fold(&mut self) {
        fold(&mut self.conv1, &mut self.bn1);
        let stages = [
            &mut self.layer1,
            &mut self.layer2,
            &mut self.layer3,
            &mut self.layer4,
        ];
        stages.into_iter().flatten().for_each(BasicBlock::fold);
    }
}

/// ResNet-20 for CIFAR. Its fields have the names of akamaster's.
#[derive(Module, Debug)]
pub struct CifarResNet {
    pub(crate) conv1: Conv,
    pub(crate) bn1: Option<BatchNorm>,
    pub(crate) layer1: Vec<BasicBlock>,
    pub(crate) layer2: Vec<BasicBlock>,
    pub(crate) layer3: Vec<BasicBlock>,
    pub(crate) linear: Linear,
}

impl CifarResNet {
    pub(crate) const WIDTH: usize = 16;
    const BLOCKS: usize = 3;

    /// D for a width.
    pub(crate) const fn features_of(width: usize) -> usize {
        4 * width
    }

    pub(crate) fn new(draw: &mut Draw<'_>, channels: usize, width: usize, classes: usize) -> Self {
        let (w, init) = (width, Init::KaimingFanIn);
        let conv1 = draw.conv(channels, w, Kernel::three(1, init));
        let mut stage = |channels, stride| {
            stage(
                draw,
                channels,
                stride,
                Self::BLOCKS,
                Shortcut::Padding,
                init,
            )
        };
        let layer1 = stage([w, w], 1);
        let layer2 = stage([w, 2 * w], 2);
        let layer3 = stage([2 * w, 4 * w], 2);
        Self {
            conv1,
            bn1: Some(draw.norm(w)),
            layer1,
            layer2,
            layer3,
            linear: draw.linear(Self::features_of(w), classes, init),
        }
    }

    /// Feature rows [N, D] of images [N, channels, height, width].
    pub fn features(&self, images: Tensor<4>, mode: Mode<'_>) -> Tensor<2> {
        let mut x = relu(conv_norm(&self.conv1, &self.bn1, images, mode));
        for block in self.blocks() {
            x = block.forward(x, mode);
        }
        global_average(x)
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = &BasicBlock> {
        [&self.layer1, &self.layer2, &self.layer3]
            .into_iter()
            .flatten()
    }

    /// The linear layer from features to logits.
    pub fn head(&self) -> &Linear {
        &self.linear
    }

    /// Logits [N, C].
    pub fn forward(&self, images: Tensor<4>, mode: Mode<'_>) -> Tensor<2> {
        self.head().forward(self.features(images, mode))
    }

    pub(crate) fn fold(&mut self) {
        fold(&mut self.conv1, &mut self.bn1);
        let stages = [&mut self.layer1, &mut self.layer2, &mut self.layer3];
        stages.into_iter().flatten().for_each(BasicBlock::fold);
    }
}
