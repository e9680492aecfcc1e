//! Direct convolution: packed weights, and the loop around the micro-kernel.
//!
//! Nothing is unfolded (no im2col): a window of an [`Activation`] is a few contiguous runs, which the micro-kernel reads
//! where they are. Weights are packed as `[block of 16][row of the kernel][column · channel][16]` and are read in order.

use std::ops::Range;

use burn::nn::Linear;
use rayon::prelude::*;

use super::activation::Activation;
use super::graph::Shortcut;
use super::isa::Work;
use super::tile::{BLOCK, Kernel, PIXELS, Window};
use crate::layers::Conv;

/// Values of input that a group of tiles may read before it is read again for the next output channels.
const GROUP: usize = 1 << 15;

/// The shape of a convolution, and where its weights are among those of the parameter.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// [out, in, rows, columns].
    pub(crate) weight: [usize; 4],
    pub(crate) stride: usize,
    pub(crate) padding: usize,
    /// Set if the parameter is a linear layer's, [in, out].
    pub(crate) linear: bool,
}

impl Shape {
    /// Returns the shape of a convolution.
    pub(crate) fn conv(conv: &Conv) -> Self {
        Self {
            weight: conv.weight.dims(),
            stride: conv.stride,
            padding: conv.padding,
            linear: false,
        }
    }

    /// Returns the shape of a linear layer as a 1×1 convolution.
    pub(crate) fn linear(layer: &Linear) -> Self {
        let [from, to] = layer.weight.dims();
        Self {
            weight: [to, from, 1, 1],
            stride: 1,
            padding: 0,
            linear: true,
        }
    }

    /// Returns the index of a weight in the parameter.
    pub(crate) fn index(&self, o: usize, c: usize, row: usize, col: usize) -> usize {
        let [to, from, rows, cols] = self.weight;
        if self.linear {
            c * to + o
        } else {
            ((o * from + c) * rows + row) * cols + col
        }
    }

    /// Packs the parameter for the micro-kernel.
    pub(crate) fn pack(&self, weight: &[f32], bias: Option<Vec<f32>>) -> Packed {
        let at = |o, c, row, col| weight[self.index(o, c, row, col)];
        Packed::pack(self.weight, at, bias, self.stride, self.padding)
    }
}

/// The packed weights of a convolution, in the order in which the micro-kernel reads them.
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

impl Packed {
    /// Packs weights [out, in, rows, columns] that `at` gives one by one.
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

    /// Returns the size of the output for the size of an input.
    pub(crate) fn out(&self, [height, width]: [usize; 2]) -> [usize; 2] {
        let out = |size: usize, kernel: usize| (size + 2 * self.padding - kernel) / self.stride + 1;
        [out(height, self.rows), out(width, self.cols)]
    }

    /// Returns what an output pixel sees of an input.
    fn window(&self, input: &Activation) -> Window {
        Window {
            rows: self.rows,
            row_stride: input.line(),
            run: self.cols * self.from,
        }
    }

    /// Lists the output pixels of some images; their offsets begin at the first of the images.
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

/// Offsets of one output pixel.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) input: usize,
    pub(crate) output: usize,
}

/// Computes the sums of every place, sixteen output channels at a time, without the bias. `write` is told the place, its
/// number and the first of the channels.
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

/// Stores as many of the sums as there is room for.
#[inline(always)]
pub(crate) fn store(target: &mut [f32], sums: &[f32; BLOCK]) {
    match <&mut [f32; BLOCK]>::try_from(&mut *target) {
        Ok(target) => *target = *sums,
        Err(_) => target.copy_from_slice(&sums[..target.len()]),
    }
}

/// The convolution of some images, with its bias and what is fused into it: relu(conv(input) + shortcut).
pub(crate) struct Convolve<'a> {
    pub(crate) conv: &'a Packed,
    pub(crate) input: &'a Activation,
    pub(crate) shortcut: Option<(Shortcut, &'a Activation)>,
    pub(crate) relu: bool,
    /// The numbers of the images.
    pub(crate) images: Range<usize>,
    /// The shape of the whole output.
    pub(crate) shape: &'a Activation,
    /// The output of these images.
    pub(crate) output: &'a mut [f32],
    /// Memory for the places of the output.
    pub(crate) places: &'a mut Vec<Place>,
}

impl Work for Convolve<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let Self {
            conv,
            input,
            shortcut,
            relu,
            images,
            shape,
            output,
            places,
        } = self;
        conv.places(input, shape, images.clone(), places);
        let [height, width] = shape.size();
        sweep(kernel, conv, input, places, |place, number, first, sums| {
            let bias = &conv.bias[first..][..BLOCK];
            for (sum, bias) in sums.iter_mut().zip(bias) {
                *sum += bias;
            }
            if let Some((s, from)) = shortcut {
                let (row, col) = (number / width % height, number % width);
                let image = images.start + number / (height * width);
                let pixel = from.pixel(image, row * s.stride, col * s.stride);
                let offset = Shortcut::first(from.channels, conv.to);
                add_shortcut(sums, first, offset, pixel);
            }
            if relu {
                for sum in sums.iter_mut() {
                    *sum = sum.max(0.0);
                }
            }
            let count = BLOCK.min(conv.to - first);
            store(&mut output[place.output + first..][..count], sums);
        });
    }
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
