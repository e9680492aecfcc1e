//! Max pooling, average pooling and flattening, forward and backward.
//!
//! The forward loops work on one image or one row, so that inference, which has a few images on one thread, and training,
//! which has a batch on all of them, share them.

use rayon::prelude::*;

use super::activation::{Activation, Arena};
use crate::ops::Pooling;

impl Pooling {
    /// Returns the size of the output for the size of an input.
    pub(crate) fn out(self, size: [usize; 2]) -> [usize; 2] {
        size.map(|extent| (extent + 2 * self.padding - self.side) / self.stride + 1)
    }
}

/// Writes a row of the output. The input comes out of a ReLU, so that zeros around it change no maximum.
#[inline(always)]
pub(super) fn max_pool_line(
    input: &Activation,
    pooling: Pooling,
    [image, row]: [usize; 2],
    target: &mut [f32],
) {
    let Pooling {
        side,
        stride,
        padding,
    } = pooling;
    let (corner, channels) = (input.border - padding, input.channels);
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
}

/// Returns the gradient of the input: that of each output goes to the first of the largest values of its window.
pub(super) fn max_pool_backward(
    input: &Activation,
    output: &Activation,
    gradient: &Activation,
    pooling: Pooling,
    arena: &Arena,
) -> Activation {
    let Pooling {
        side,
        stride,
        padding,
    } = pooling;
    let mut result = arena.zeros(input);
    let channels = input.channels;
    let shape = result.shape();
    result.par_images_mut(1).for_each(|(images, target)| {
        let image = images.start;
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

/// Writes an image as one pixel, channel by channel as PyTorch does.
#[inline(always)]
pub(super) fn flatten_image(input: &Activation, image: usize, target: &mut [f32]) {
    let plane = input.height * input.width;
    for y in 0..input.height {
        for x in 0..input.width {
            let slots = target[y * input.width + x..].iter_mut().step_by(plane);
            for (slot, value) in slots.zip(input.pixel(image, y, x)) {
                *slot = *value;
            }
        }
    }
}

/// Returns the gradient of what was flattened.
pub(super) fn flatten_backward(
    gradient: &Activation,
    input: &Activation,
    arena: &Arena,
) -> Activation {
    let plane = input.height * input.width;
    let mut result = arena.take(input.count, input.size(), input.channels, 0);
    let channels = input.channels;
    result.par_lines_mut(|image, row, target| {
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

/// Writes the mean of each channel of an image.
#[inline(always)]
pub(super) fn average_image(input: &Activation, image: usize, means: &mut [f32]) {
    let pixels = (input.height * input.width) as f32;
    means.fill(0.0);
    for row in 0..input.height {
        let line = &input.values[input.line_of(image, row)];
        for pixel in line.chunks_exact(input.channels) {
            for (sum, value) in means.iter_mut().zip(pixel) {
                *sum += value;
            }
        }
    }
    for sum in means {
        *sum /= pixels;
    }
}

/// Returns the gradient of what was averaged, from that of the feature rows.
pub(super) fn average_backward(rows: &[f32], input: &Activation, arena: &Arena) -> Activation {
    let mut gradient = arena.take(input.count, input.size(), input.channels, 0);
    let pixels = (input.height * input.width) as f32;
    let channels = input.channels;
    gradient.par_lines_mut(|image, _, target| {
        let row = &rows[image * channels..][..channels];
        for target in target.chunks_exact_mut(channels) {
            for (t, value) in target.iter_mut().zip(row) {
                *t = value / pixels;
            }
        }
    });
    gradient
}
