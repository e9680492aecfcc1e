//! Batch normalisation, forward and backward.
//!
//! With ŷ = (y − μ)/√(σ² + ε), a = relu(γŷ + β + shortcut) and g the gradient at the ReLU's input: dβ = Σg, dγ = Σgŷ, and
//! dy = γ/√(σ² + ε)·(g − dβ/M − ŷ dγ/M) in training mode, γ/√(σ² + ε)·g in evaluation mode, for M pixels in the batch.
//! Sums over a batch are f32 within an image and f64 between images, in the order of the images.

use rayon::prelude::*;

use super::activation::Activation;
use crate::norm::EPSILON;

/// Mean of each channel over the pixels of an image, and the sum of squares around it.
pub(super) type Moments = [Vec<f32>; 2];

/// Returns the moments of an image, which may be a part of an activation of this shape.
pub(super) fn image_moments(values: &[f32], shape: &Activation) -> Moments {
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

/// Returns the mean and the biased variance of every channel over images of so many pixels.
pub(super) fn batch_moments(images: &[Moments], pixels: usize) -> [Vec<f32>; 2] {
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
    [mean, variance].map(|values| values.into_iter().map(|value| value as f32).collect())
}

/// Normalisation of every channel: (y − mean)·scale.
#[derive(Debug)]
pub(super) struct Scaling {
    /// μ, the mean.
    mean: Vec<f32>,
    /// 1/√(σ² + ε), the inverse deviation.
    scale: Vec<f32>,
}

impl Scaling {
    /// Returns the scaling for a mean and a variance.
    pub(super) fn new(mean: Vec<f32>, variance: &[f32]) -> Self {
        let epsilon = EPSILON as f32;
        let scale = variance.iter().map(|v| (v + epsilon).sqrt().recip());
        Self {
            mean,
            scale: scale.collect(),
        }
    }

    /// Returns factor and offset of every channel: γŷ + β = factor·y + offset.
    pub(super) fn affine(&self, gamma: &[f32], beta: &[f32]) -> [Vec<f32>; 2] {
        let factor = self.factor(gamma);
        let triples = beta.iter().zip(&self.mean).zip(&factor);
        let offset = triples.map(|((beta, mean), factor)| beta - mean * factor);
        let offset = offset.collect();
        [factor, offset]
    }

    /// Returns γ/√(σ² + ε).
    fn factor(&self, gamma: &[f32]) -> Vec<f32> {
        let pairs = gamma.iter().zip(&self.scale);
        pairs.map(|(gamma, scale)| gamma * scale).collect()
    }
}

/// Record of a normalisation for backpropagation.
#[derive(Debug)]
pub(super) struct Normalised {
    /// The convolution's output, without border.
    pub(super) before: Activation,
    pub(super) scaling: Scaling,
}

impl Normalised {
    /// Returns dγ from Σg(y − μ).
    pub(super) fn gamma_gradient(&self, products: &[f32]) -> Vec<f32> {
        let pairs = products.iter().zip(&self.scaling.scale);
        pairs.map(|(product, scale)| product * scale).collect()
    }

    /// Writes the gradient of the convolution's output from that of the normalisation's. Channels that the result has
    /// beyond those are zero. `moving` are dβ and dγ in training mode, where the statistics depend on the batch.
    pub(super) fn backward(
        &self,
        gradient: &Activation,
        gamma: &[f32],
        moving: Option<[&[f32]; 2]>,
        result: &mut Activation,
    ) {
        let (to, padded) = (gradient.channels, result.channels);
        let pixels = (gradient.count * gradient.height * gradient.width) as f32;
        let Scaling { mean, scale } = &self.scaling;
        let factor = self.scaling.factor(gamma);
        // dy = factor·(g − shift − slope·(y − μ))
        let (mut shift, mut slope) = (vec![0.0; to], vec![0.0; to]);
        if let Some([beta, gamma]) = moving {
            for c in 0..to {
                shift[c] = beta[c] / pixels;
                slope[c] = gamma[c] / pixels * scale[c];
            }
        }
        let before = &self.before;
        result.par_lines_mut(|image, row, target| {
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
    }
}

/// Adds up sums of images, in the order of the images.
fn batch_sums<const N: usize>(images: &[[Vec<f32>; N]], channels: usize) -> [Vec<f32>; N] {
    std::array::from_fn(|which| {
        let total = |c: usize| {
            let values = images.iter().map(|image| f64::from(image[which][c]));
            values.sum::<f64>() as f32
        };
        (0..channels).map(total).collect()
    })
}

/// Returns the sum of every channel over all pixels.
pub(super) fn channel_sums(activation: &Activation) -> Vec<f32> {
    let channels = activation.channels;
    let images: Vec<[Vec<f32>; 1]> = (0..activation.count)
        .into_par_iter()
        .map(|image| {
            let mut sums = vec![0.0; channels];
            for row in 0..activation.height {
                let line = &activation.values[activation.line_of(image, row)];
                for pixel in line.chunks_exact(channels) {
                    for (sum, value) in sums.iter_mut().zip(pixel) {
                        *sum += value;
                    }
                }
            }
            [sums]
        })
        .collect();
    let [sums] = batch_sums(&images, channels);
    sums
}

/// Sets a gradient to zero where a ReLU stopped its `output`, and returns Σg and Σg(y − μ) of every channel if something
/// was normalised.
pub(super) fn relu_backward(
    gradient: &mut Activation,
    output: Option<&Activation>,
    normalised: Option<&Normalised>,
) -> [Vec<f32>; 2] {
    let channels = gradient.channels;
    let shape = gradient.shape();
    let images: Vec<[Vec<f32>; 2]> = gradient
        .par_images_mut(1)
        .map(|(images, values)| {
            let image = images.start;
            let [mut sums, mut products] = [0, 1].map(|_| vec![0.0_f32; channels]);
            for row in 0..shape.height {
                let line = &mut values[shape.line_of(0, row)];
                if let Some(output) = output {
                    let output = &output.values[output.line_of(image, row)];
                    for (t, value) in line.iter_mut().zip(output) {
                        *t = if *value > 0.0 { *t } else { 0.0 };
                    }
                }
                let Some(Normalised { before, scaling }) = normalised else {
                    continue;
                };
                let before = &before.values[before.line_of(image, row)];
                let pixels = line
                    .chunks_exact(channels)
                    .zip(before.chunks_exact(channels));
                for (pixel, before) in pixels {
                    let (sums, products) = (&mut sums[..channels], &mut products[..channels]);
                    let mean = &scaling.mean[..channels];
                    for c in 0..channels {
                        sums[c] += pixel[c];
                        products[c] += pixel[c] * (before[c] - mean[c]);
                    }
                }
            }
            [sums, products]
        })
        .collect();
    batch_sums(&images, channels)
}
