//! The gradients of a direct convolution.
//!
//! With y = conv(x): dW[k] = Σ_p x[p + k]·dy[p] is a sum of outer products over the pixels, and dx is the sum over k of
//! dy[p − k]·W[k], a convolution with the kernel turned around. Where the stride is 2, the input pixels of each parity see
//! a part of the kernel, and each parity is a convolution of its own (a [`Phase`]).

use rayon::prelude::*;

use super::activation::Activation;
use super::conv::{Packed, Place, Shape, store, sweep};
use super::isa::{Isa, Work};
use super::tile::{BLOCK, Kernel, PIXELS};

/// Images of a task.
const TASK: usize = 4;
/// Pixels that add to a tile of a weight gradient before it is put down.
const STRETCH: usize = 256;
/// Parts of a batch whose weight gradients are added up at the end, for weights up to [`SHARED`]; larger ones are divided
/// among tasks instead of the batch.
const PARTS: usize = 8;
const SHARED: usize = 1 << 18;
/// Blocks of output channels in a task of the latter kind.
const TOGETHER: usize = 4;

/// Backpropagation from a convolution's output to its input.
pub(super) struct InputGradient {
    /// Convolutions, one for each place of an input pixel relative to the stride.
    phases: Vec<Phase>,
}

impl InputGradient {
    /// Packs the weights for an input of a size.
    pub(super) fn new(conv: &Shape, weights: &[f32], [height, width]: [usize; 2]) -> Self {
        let [to, from, rows, cols] = conv.weight;
        let (stride, padding) = (conv.stride, conv.padding);
        let mut phases = Vec::new();
        // An input pixel j = phase + stride·m meets the output pixel i by the kernel's k where i·stride = j + padding − k.
        let taps = |phase: usize, side: usize| -> Vec<usize> {
            let meets = |k: &usize| (phase + padding + side * stride - k).is_multiple_of(stride);
            (0..side).rev().filter(meets).collect()
        };
        for y in 0..stride.min(height) {
            for x in 0..stride.min(width) {
                let (down, across) = (taps(y, rows), taps(x, cols));
                let (Some(&top), Some(&left)) = (down.first(), across.first()) else {
                    continue;
                };
                let at = |c: usize, o: usize, row: usize, col: usize| {
                    if o < to {
                        weights[conv.index(o, c, down[row], across[col])]
                    } else {
                        0.0
                    }
                };
                let shape = [from, to.next_multiple_of(BLOCK), down.len(), across.len()];
                let first = |phase: usize, k: usize| {
                    ((phase + padding) as isize - k as isize) / stride as isize
                };
                phases.push(Phase {
                    conv: Packed::pack(shape, at, None, 1, 0),
                    start: [y, x],
                    step: stride,
                    first: [first(y, top), first(x, left)],
                    count: [(height - y).div_ceil(stride), (width - x).div_ceil(stride)],
                });
            }
        }
        Self { phases }
    }

    /// Returns how many zeros are needed around a gradient of the output of this size.
    pub(super) fn border(&self, size: [usize; 2]) -> usize {
        let needed = self.phases.iter().map(|phase| phase.border(size));
        needed.max().unwrap_or(0)
    }

    /// Writes the gradient of the input, or adds it to what is there.
    pub(super) fn run(&self, isa: Isa, gradient: &Activation, sum: &mut Activation, add: bool) {
        for phase in &self.phases {
            phase.run(isa, gradient, sum, add);
        }
    }
}

/// The input pixels at `start` + `step`·m, m < `count`, and the kernel that they see of the output's gradient, whose
/// first tap is at `first` + m.
struct Phase {
    conv: Packed,
    start: [usize; 2],
    step: usize,
    first: [isize; 2],
    count: [usize; 2],
}

impl Phase {
    /// Returns how many zeros are needed around a gradient of this size.
    fn border(&self, size: [usize; 2]) -> usize {
        let taps = [self.conv.rows, self.conv.cols];
        let needed = |axis: usize| {
            let end = self.first[axis] + (self.count[axis] + taps[axis]) as isize - 1;
            (-self.first[axis]).max(end - size[axis] as isize)
        };
        needed(0).max(needed(1)).max(0) as usize
    }

    fn run(&self, isa: Isa, gradient: &Activation, sum: &mut Activation, add: bool) {
        let shape = sum.shape();
        sum.par_images_mut(TASK).for_each(|(images, values)| {
            let mut places = Vec::new();
            for (i, image) in images.enumerate() {
                for row in 0..self.count[0] {
                    let origin = [
                        (gradient.border as isize + self.first[0]) as usize + row,
                        (gradient.border as isize + self.first[1]) as usize,
                    ];
                    let input = gradient.at(image, origin[0], origin[1]);
                    let line = shape.border + self.start[0] + row * self.step;
                    let output = shape.at(i, line, shape.border + self.start[1]);
                    places.extend((0..self.count[1]).map(|col| Place {
                        input: input + col * gradient.channels,
                        output: output + col * self.step * shape.channels,
                    }));
                }
            }
            isa.run(Accumulate {
                conv: &self.conv,
                input: gradient,
                places: &places,
                output: values,
                add,
            });
        });
    }
}

/// Writes a convolution without bias, or adds it to what is there.
struct Accumulate<'a> {
    conv: &'a Packed,
    input: &'a Activation,
    places: &'a [Place],
    output: &'a mut [f32],
    add: bool,
}

impl Work for Accumulate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let to = self.conv.to;
        sweep(
            kernel,
            self.conv,
            self.input,
            self.places,
            |place, _, first, sums| {
                let target = &mut self.output[place.output + first..][..BLOCK.min(to - first)];
                if self.add {
                    for (sum, t) in sums.iter_mut().zip(&*target) {
                        *sum += t;
                    }
                }
                store(target, sums);
            },
        );
    }
}

/// A run of pixels: the offsets of the first in the input and in the gradient.
#[derive(Clone, Copy)]
struct Line {
    input: usize,
    gradient: usize,
    count: usize,
}

/// Adds what some lines contribute to the weights of some blocks of output channels.
struct Outer<'a> {
    conv: &'a Shape,
    input: &'a Activation,
    gradient: &'a Activation,
    /// Strides from one pixel to the next, in the input and in the gradient.
    steps: [usize; 2],
    lines: &'a [Line],
    /// Index of the first output channel.
    first: usize,
    /// Sums as [block][row][column · channel][16].
    sums: &'a mut [f32],
}

impl Work for Outer<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let [_, from, rows, cols] = self.conv.weight;
        let (length, row_stride) = (cols * from, self.input.line());
        // Runs shorter than a tile, those of images with one channel, are taken as one.
        let merged = length < PIXELS && rows > 1;
        let (rows, run) = if merged {
            (1, rows * length)
        } else {
            (rows, length)
        };
        let blocks = self.sums.len() / (rows * run * BLOCK);
        let packed = (blocks > 1 || merged) && run >= PIXELS;
        let (input, gradient) = (&self.input.values, &self.gradient.values);
        let [input_step, gradient_step] = self.steps;
        // Packed, pixels follow each other: [tile][pixel][6] and [block][pixel][16]. Pixels with many channels are a
        // power of two apart, and would push each other out of the cache. A single block is not worth the trouble.
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let tiles: Vec<[usize; 2]> = (0..run)
            .step_by(PIXELS)
            // The last tile begins earlier where the run is not a multiple, and adds its own part only.
            .map(|start| [start, start.min(run.saturating_sub(PIXELS))])
            .collect();
        let mut rest = self.lines;
        while !rest.is_empty() {
            let mut pixels = 0;
            let enough = rest.iter().position(|line| {
                pixels += line.count;
                pixels >= STRETCH
            });
            let (lines, later) = rest.split_at(enough.map_or(rest.len(), |last| last + 1));
            rest = later;
            if packed {
                right.clear();
                for block in 0..blocks {
                    let channel = self.first + block * BLOCK;
                    for line in lines {
                        for p in 0..line.count {
                            let start = line.gradient + channel + p * gradient_step;
                            right.extend_from_slice(&gradient[start..][..BLOCK]);
                        }
                    }
                }
            }
            for row in 0..rows {
                let below = row * row_stride;
                if packed {
                    left.clear();
                    for [_, begin] in &tiles {
                        for line in lines {
                            for p in 0..line.count {
                                let start = line.input + below + begin + p * input_step;
                                if merged {
                                    let origin = start - begin;
                                    left.extend((*begin..begin + PIXELS).map(|k| {
                                        input[origin + k / length * row_stride + k % length]
                                    }));
                                } else {
                                    left.extend_from_slice(&input[start..][..PIXELS]);
                                }
                            }
                        }
                    }
                }
                for block in 0..blocks {
                    let sums = &mut self.sums[(block * rows + row) * run * BLOCK..][..run * BLOCK];
                    let sums = sums.as_chunks_mut::<BLOCK>().0;
                    if run < PIXELS {
                        let channel = self.first + block * BLOCK;
                        for line in lines {
                            for p in 0..line.count {
                                let left = &input[line.input + below + p * input_step..][..run];
                                let right =
                                    &gradient[line.gradient + channel + p * gradient_step..];
                                for (sums, left) in sums.iter_mut().zip(left) {
                                    for (sum, right) in sums.iter_mut().zip(right) {
                                        *sum = left.mul_add(*right, *sum);
                                    }
                                }
                            }
                        }
                        continue;
                    }
                    for (t, &[start, begin]) in tiles.iter().enumerate() {
                        let mut tile = [[0.0; BLOCK]; PIXELS];
                        if packed {
                            let left = &left[t * pixels * PIXELS..][..pixels * PIXELS];
                            let right = &right[block * pixels * BLOCK..][..pixels * BLOCK];
                            kernel.outer((left, PIXELS), (right, BLOCK), pixels, &mut tile);
                        } else {
                            for line in lines {
                                let left = &input[line.input + below + begin..];
                                let right = &gradient[line.gradient + self.first..];
                                let right = (right, gradient_step);
                                kernel.outer((left, input_step), right, line.count, &mut tile);
                            }
                        }
                        let own = start - begin;
                        for (sums, tile) in sums[start..begin + PIXELS].iter_mut().zip(&tile[own..])
                        {
                            for (sum, value) in sums.iter_mut().zip(tile) {
                                *sum += value;
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns dW, in the order of the parameter.
pub(super) fn weight_gradient(
    isa: Isa,
    conv: &Shape,
    input: &Activation,
    gradient: &Activation,
) -> Vec<f32> {
    let [to, from, rows, cols] = conv.weight;
    let packed = packed_weight_gradient(isa, conv, input, gradient);
    let mut weight = vec![0.0; to * from * rows * cols];
    for (i, values) in packed.as_chunks::<BLOCK>().0.iter().enumerate() {
        let (c, rest) = (i % from, i / from);
        let (col, rest) = (rest % cols, rest / cols);
        let (row, block) = (rest % rows, rest / rows);
        for (o, value) in (block * BLOCK..to).zip(values) {
            weight[conv.index(o, c, row, col)] = *value;
        }
    }
    weight
}

/// Returns dW as [block][row][column · channel][16].
fn packed_weight_gradient(
    isa: Isa,
    conv: &Shape,
    input: &Activation,
    gradient: &Activation,
) -> Vec<f32> {
    let [_, from, rows, cols] = conv.weight;
    let length = rows * cols * from * BLOCK;
    let blocks = gradient.channels / BLOCK;
    let corner = input.border - conv.padding;
    let single = gradient.height * gradient.width == 1;
    let lines = |images: std::ops::Range<usize>| -> Vec<Line> {
        if single {
            // One line whose pixels are the images.
            return vec![Line {
                input: input.at(images.start, corner, corner),
                gradient: gradient.at(images.start, gradient.border, gradient.border),
                count: images.len(),
            }];
        }
        images
            .flat_map(|image| (0..gradient.height).map(move |row| (image, row)))
            .map(|(image, row)| Line {
                input: input.at(image, corner + row * conv.stride, corner),
                gradient: gradient.at(image, row + gradient.border, gradient.border),
                count: gradient.width,
            })
            .collect()
    };
    let steps = if single {
        [input.image(), gradient.image()]
    } else {
        [conv.stride * from, gradient.channels]
    };
    let outer = |lines: &[Line], block: usize, sums: &mut [f32]| {
        isa.run(Outer {
            conv,
            input,
            gradient,
            steps,
            lines,
            first: block * BLOCK,
            sums,
        });
    };
    if blocks * length > SHARED {
        let lines = lines(0..gradient.count);
        let mut sums = vec![0.0; blocks * length];
        sums.par_chunks_mut(TOGETHER * length)
            .enumerate()
            .for_each(|(task, sums)| outer(&lines, task * TOGETHER, sums));
        return sums;
    }
    let each = gradient.count.div_ceil(PARTS).max(1);
    let starts: Vec<usize> = (0..gradient.count).step_by(each).collect();
    let parts: Vec<Vec<f32>> = starts
        .into_par_iter()
        .map(|start| {
            let lines = lines(start..(start + each).min(gradient.count));
            let mut sums = vec![0.0; blocks * length];
            outer(&lines, 0, &mut sums);
            sums
        })
        .collect();
    let mut total = vec![0.0; blocks * length];
    for part in parts {
        for (sum, value) in total.iter_mut().zip(part) {
            *sum += value;
        }
    }
    total
}
