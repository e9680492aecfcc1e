//! The layers that the networks are made of, and the initialisation of their weights.
//!
//! A [`Draw`] is a ChaCha stream: a network that asks it for its layers in a fixed order has the same weights on every
//! device and in every thread, whatever else draws random numbers at the time. burn's own initialisers take theirs from
//! a generator that belongs to the device and is shared by all who use it.

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::module::conv2d;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Device, Tensor, TensorData};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::norm::{BatchNorm, Mode};

/// The distribution that a weight is drawn from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Init {
    /// U(±1/√fan_in), PyTorch's default for convolutions and linear layers.
    Uniform,
    /// N(0, 2/fan_out), torchvision's residual networks.
    KaimingFanOut,
    /// N(0, 2/fan_in), the CIFAR residual networks.
    KaimingFanIn,
}

/// The shape of a convolution but for its channels, and how it is drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    pub(crate) side: usize,
    pub(crate) stride: usize,
    pub(crate) padding: usize,
    pub(crate) bias: bool,
    pub(crate) init: Init,
}

impl Kernel {
    /// 3×3 with padding 1 and no bias.
    pub(crate) fn three(stride: usize, init: Init) -> Self {
        Self {
            side: 3,
            stride,
            padding: 1,
            bias: false,
            init,
        }
    }

    pub(crate) fn with_bias(self) -> Self {
        Self { bias: true, ..self }
    }
}

/// Draws layers from a seed.
pub(crate) struct Draw<'a> {
    generator: ChaCha8Rng,
    device: &'a Device,
}

impl<'a> Draw<'a> {
    pub(crate) fn new(seed: u64, device: &'a Device) -> Self {
        Self {
            generator: ChaCha8Rng::seed_from_u64(seed),
            device,
        }
    }

    /// Draws from U(0, 1), with 53 bits.
    fn unit(&mut self) -> f64 {
        ((self.generator.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn uniform<const D: usize>(&mut self, shape: [usize; D], bound: f64) -> Param<Tensor<D>> {
        let values = (0..shape.iter().product::<usize>())
            .map(|_| (bound * (2.0 * self.unit() - 1.0)) as f32)
            .collect();
        self.parameter(shape, values)
    }

    /// Draws from N(0, deviation²) by the trigonometric form of the Box–Muller transform, a pair at a time.
    fn normal<const D: usize>(&mut self, shape: [usize; D], deviation: f64) -> Param<Tensor<D>> {
        let count = shape.iter().product::<usize>();
        let mut values = Vec::with_capacity(count + 1);
        while values.len() < count {
            let radius = deviation * (-2.0 * self.unit().ln()).sqrt();
            let (sine, cosine) = (std::f64::consts::TAU * self.unit()).sin_cos();
            values.extend([(radius * cosine) as f32, (radius * sine) as f32]);
        }
        values.truncate(count);
        self.parameter(shape, values)
    }

    fn parameter<const D: usize>(&self, shape: [usize; D], values: Vec<f32>) -> Param<Tensor<D>> {
        Param::from_tensor(Tensor::from_data(
            TensorData::new(values, shape),
            self.device,
        ))
    }

    fn weight<const D: usize>(
        &mut self,
        shape: [usize; D],
        fan: [usize; 2],
        init: Init,
    ) -> Param<Tensor<D>> {
        let [fan_in, fan_out] = fan.map(|n| n as f64);
        match init {
            Init::Uniform => self.uniform(shape, fan_in.sqrt().recip()),
            Init::KaimingFanOut => self.normal(shape, (2.0 / fan_out).sqrt()),
            Init::KaimingFanIn => self.normal(shape, (2.0 / fan_in).sqrt()),
        }
    }

    pub(crate) fn conv(&mut self, from: usize, to: usize, kernel: Kernel) -> Conv {
        let area = kernel.side * kernel.side;
        let shape = [to, from, kernel.side, kernel.side];
        Conv {
            weight: self.weight(shape, [from * area, to * area], kernel.init),
            bias: kernel
                .bias
                .then(|| self.uniform([to], ((from * area) as f64).sqrt().recip())),
            stride: kernel.stride,
            padding: kernel.padding,
        }
    }

    pub(crate) fn conv_norm(&mut self, from: usize, to: usize, kernel: Kernel) -> ConvNorm {
        ConvNorm {
            conv: self.conv(from, to, kernel),
            norm: Some(BatchNorm::new(to, self.device)),
        }
    }

    pub(crate) fn linear(&mut self, from: usize, to: usize, init: Init) -> Linear {
        Linear {
            weight: self.weight([from, to], [from, to], init),
            bias: Some(self.uniform([to], (from as f64).sqrt().recip())),
        }
    }
}

/// A square convolution. The weight is [out, in, side, side].
#[derive(Module, Debug)]
pub(crate) struct Conv {
    pub(crate) weight: Param<Tensor<4>>,
    pub(crate) bias: Option<Param<Tensor<1>>>,
    pub(crate) stride: usize,
    pub(crate) padding: usize,
}

impl Conv {
    pub(crate) fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let options = ConvOptions::new([self.stride; 2], [self.padding; 2], [1, 1], 1);
        conv2d(
            input,
            self.weight.val(),
            self.bias.as_ref().map(Param::val),
            options,
        )
    }
}

/// A convolution and the batch normalisation after it, where there is one.
#[derive(Module, Debug)]
pub(crate) struct ConvNorm {
    pub(crate) conv: Conv,
    pub(crate) norm: Option<BatchNorm>,
}

impl ConvNorm {
    pub(crate) fn forward(&self, input: Tensor<4>, mode: Mode<'_>) -> Tensor<4> {
        let output = self.conv.forward(input);
        match &self.norm {
            Some(norm) => norm.forward(output, mode),
            None => output,
        }
    }

    /// Folds the normalisation, as evaluation mode applies it, into the convolution.
    pub(crate) fn folded(&self) -> Conv {
        let mut conv = self.conv.clone();
        let Some(norm) = &self.norm else { return conv };
        let (scale, shift) = norm.affine();
        let weight = conv.weight.val().without_autodiff();
        let bias = match &conv.bias {
            Some(bias) => bias.val().without_autodiff() * scale.clone() + shift,
            None => shift,
        };
        conv.weight = Param::from_tensor(weight * scale.reshape([-1, 1, 1, 1]));
        conv.bias = Some(Param::from_tensor(bias));
        conv
    }
}

/// Draws images from U(−1, 1), the same in every run.
#[cfg(test)]
pub(crate) fn test_images(shape: [usize; 4]) -> Tensor<4> {
    Draw::new(9, &Device::flex()).uniform(shape, 1.0).val()
}
