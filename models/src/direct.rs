//! Convolutions on the processor, without burn: the layout of activations and weights, and the loop around the tile.
//!
//! [`folded`](crate::folded) extracts features with it and [`tape`](crate::tape) trains.

use std::ops::Range;

use burn::nn::Linear;
use burn::tensor::Tensor;
use rayon::prelude::*;

use crate::kernel::{BLOCK, Kernel, PIXELS, Window};
use crate::layers::Conv;

/// Zeros around every activation but the first.
pub(crate) const BORDER: usize = 1;
/// Values of input that a group of tiles may read before it is read again for the next output channels.
const GROUP: usize = 1 << 15;

/// A convolution as its kernel wants it.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    /// [block][row][column · input channel][16].
    pub(crate) weight: Vec<f32>,
    /// Padded to whole blocks.
    pub(crate) bias: Vec<f32>,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) stride: usize,
    pub(crate) padding: usize,
}

pub(crate) fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    let data = tensor.without_autodiff().into_data().convert::<f32>();
    data.try_into_vec().expect("the data was just made f32")
}

impl Packed {
    pub(crate) fn new(conv: &Conv) -> Self {
        let [to, from, rows, cols] = conv.weight.dims();
        let source = values(conv.weight.val());
        let at =
            |o: usize, c: usize, y: usize, x: usize| source[((o * from + c) * rows + y) * cols + x];
        let bias = conv.bias.as_ref().map(|bias| values(bias.val()));
        Self::pack([to, from, rows, cols], at, bias, conv.stride, conv.padding)
    }

    pub(crate) fn pack(
        [to, from, rows, cols]: [usize; 4],
        at: impl Fn(usize, usize, usize, usize) -> f32 + Sync,
        bias: Option<Vec<f32>>,
        stride: usize,
        padding: usize,
    ) -> Self {
        let blocks = to.div_ceil(BLOCK);
        let mut weight = vec![0.0; blocks * rows * cols * from * BLOCK];
        let block_length = (rows * cols * from * BLOCK).max(1);
        let pack_block = |(block, values): (usize, &mut [f32])| {
            let mut slots = values.as_chunks_mut::<BLOCK>().0.iter_mut();
            for row in 0..rows {
                for col in 0..cols {
                    for (channel, slot) in (0..from).zip(&mut slots) {
                        for (o, value) in (block * BLOCK..to).zip(slot) {
                            *value = at(o, channel, row, col);
                        }
                    }
                }
            }
        };
        weight
            .par_chunks_mut(block_length)
            .enumerate()
            .for_each(pack_block);
        let mut bias = bias.unwrap_or_else(|| vec![0.0; to]);
        bias.resize(blocks * BLOCK, 0.0);
        Self {
            weight,
            bias,
            from,
            to,
            rows,
            cols,
            stride,
            padding,
        }
    }

    pub(crate) fn linear(layer: &Linear) -> Self {
        let [from, to] = layer.weight.dims();
        let source = values(layer.weight.val());
        let bias = layer.bias.as_ref().map(|bias| values(bias.val()));
        let at = |o: usize, i: usize, _: usize, _: usize| source[i * to + o];
        Self::pack([to, from, 1, 1], at, bias, 1, 0)
    }

    /// Output extent for an input extent.
    pub(crate) fn out(&self, [height, width]: [usize; 2]) -> [usize; 2] {
        let out = |size: usize, kernel: usize| (size + 2 * self.padding - kernel) / self.stride + 1;
        [out(height, self.rows), out(width, self.cols)]
    }

    /// What an output pixel sees of an input.
    fn window(&self, input: &Activation) -> Window {
        Window {
            rows: self.rows,
            row_stride: input.line(),
            run: self.cols * self.from,
        }
    }

    /// The pixels of some images of the output; their offsets begin at the first of the images.
    pub(crate) fn places(
        &self,
        input: &Activation,
        output: &Activation,
        images: Range<usize>,
        places: &mut Vec<Place>,
    ) {
        assert!(input.border >= self.padding, "zeros around the input");
        let corner = input.border - self.padding;
        let begin = output.at(images.start, 0, 0);
        places.clear();
        for image in images {
            for row in 0..output.height {
                let input = input.at(image, corner + row * self.stride, corner);
                let output_line = output.at(image, row + output.border, output.border) - begin;
                places.extend((0..output.width).map(|col| Place {
                    input: input + col * self.stride * self.from,
                    output: output_line + col * output.channels,
                }));
            }
        }
    }
}
/// [image][row][column][channel], with zeros around rows and columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Activation {
    pub(crate) values: Vec<f32>,
    pub(crate) count: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels: usize,
    pub(crate) border: usize,
}

/// Offsets of one output pixel.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) input: usize,
    pub(crate) output: usize,
}

impl Activation {
    /// A shape without values.
    pub(crate) fn shaped(
        count: usize,
        [height, width]: [usize; 2],
        channels: usize,
        border: usize,
    ) -> Self {
        Self {
            values: Vec::new(),
            count,
            height,
            width,
            channels,
            border,
        }
    }

    /// Takes on a shape. The border is zero, the rest is anything.
    pub(crate) fn reset(
        &mut self,
        count: usize,
        [height, width]: [usize; 2],
        channels: usize,
        border: usize,
    ) {
        let line = (width + 2 * border) * channels;
        let image = (height + 2 * border) * line;
        let side = border * channels;
        self.values.resize(count * image, 0.0);
        if border > 0 {
            for values in self.values.chunks_exact_mut(image) {
                values[..border * line].fill(0.0);
                values[image - border * line..].fill(0.0);
                for line in values.chunks_exact_mut(line) {
                    line[..side].fill(0.0);
                    let end = line.len() - side;
                    line[end..].fill(0.0);
                }
            }
        }
        (self.count, self.height, self.width) = (count, height, width);
        (self.channels, self.border) = (channels, border);
    }

    /// Values from one row to the next.
    pub(crate) fn line(&self) -> usize {
        (self.width + 2 * self.border) * self.channels
    }

    /// Offset of a pixel, in coordinates that begin in the border's corner.
    pub(crate) fn at(&self, image: usize, row: usize, col: usize) -> usize {
        (image * (self.height + 2 * self.border) + row) * self.line() + col * self.channels
    }

    /// Values from one image to the next.
    pub(crate) fn image(&self) -> usize {
        (self.height + 2 * self.border) * self.line()
    }

    /// The same shape with another border, and no values.
    pub(crate) fn like(&self, border: usize) -> Self {
        Self {
            values: Vec::new(),
            border,
            ..*self
        }
    }

    /// Where a line is, without its border.
    pub(crate) fn line_of(&self, image: usize, row: usize) -> Range<usize> {
        let start = self.at(image, row + self.border, self.border);
        start..start + self.width * self.channels
    }

    /// The channels of a pixel.
    pub(crate) fn pixel(&self, image: usize, row: usize, col: usize) -> &[f32] {
        &self.values[self.at(image, row + self.border, col + self.border)..][..self.channels]
    }

    pub(crate) fn size(&self) -> [usize; 2] {
        [self.height, self.width]
    }
}

/// An image [channels, height, width] into an activation.
#[inline(always)]
pub(crate) fn transpose(image: &[f32], index: usize, output: &mut Activation) {
    let (channels, border) = (output.channels, output.border);
    let (height, width) = (output.height, output.width);
    for (channel, plane) in image.chunks_exact(height * width).enumerate() {
        for (row, values) in plane.chunks_exact(width).enumerate() {
            let start = output.at(index, row + border, border) + channel;
            let line = output.values[start..].iter_mut().step_by(channels);
            for (slot, &value) in line.zip(values) {
                *slot = value;
            }
        }
    }
}

/// The sums of every place, sixteen output channels at a time, without the bias. `write` is told the place, its number
/// and the first of the channels.
#[inline(always)]
pub(crate) fn sweep<K: Kernel>(
    kernel: K,
    conv: &Packed,
    input: &Activation,
    places: &[Place],
    mut write: impl FnMut(Place, usize, usize, &mut [f32; BLOCK]),
) {
    assert_eq!(input.channels, conv.from, "channels of the input");
    let window = conv.window(input);
    let length = window.rows * window.run * BLOCK;
    let group = GROUP / (conv.from * conv.stride * conv.stride);
    let group = group.max(1).next_multiple_of(PIXELS);
    for (g, places) in places.chunks(group).enumerate() {
        for (block, weight) in conv.weight.chunks_exact(length).enumerate() {
            for (t, tile) in places.chunks(PIXELS).enumerate() {
                let mut starts = [0; PIXELS];
                for i in 0..PIXELS {
                    starts[i] = tile[i.min(tile.len() - 1)].input;
                }
                let mut sums = kernel.tile(&input.values, starts, window, weight);
                let number = g * group + t * PIXELS;
                for (i, (place, sums)) in tile.iter().zip(&mut sums).enumerate() {
                    write(*place, number + i, block * BLOCK, sums);
                }
            }
        }
    }
}

/// As many of the sums as there is room for.
#[inline(always)]
pub(crate) fn store(target: &mut [f32], sums: &[f32; BLOCK]) {
    match <&mut [f32; BLOCK]>::try_from(&mut *target) {
        Ok(target) => *target = *sums,
        Err(_) => target.copy_from_slice(&sums[..target.len()]),
    }
}
