//! The layout of activations, and the arena (memory pool) that keeps their memory from one training step to the next.

use std::cell::RefCell;
use std::ops::Range;

use rayon::prelude::*;

/// Zeros around every activation but the images.
pub(crate) const BORDER: usize = 1;

/// A batch of feature maps as [image][row][column][channel], with zeros around rows and columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Activation {
    pub(crate) values: Vec<f32>,
    pub(crate) count: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels: usize,
    pub(crate) border: usize,
}

impl Activation {
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

    /// Returns an activation of the same shape that has no values.
    pub(crate) fn shape(&self) -> Self {
        Self {
            values: Vec::new(),
            ..*self
        }
    }

    /// Returns height and width.
    pub(crate) fn size(&self) -> [usize; 2] {
        [self.height, self.width]
    }

    /// Values from one row to the next.
    pub(crate) fn line(&self) -> usize {
        (self.width + 2 * self.border) * self.channels
    }

    /// Values from one image to the next.
    pub(crate) fn image(&self) -> usize {
        (self.height + 2 * self.border) * self.line()
    }

    /// Returns the offset of a pixel, in coordinates that begin in the border's corner.
    pub(crate) fn at(&self, image: usize, row: usize, col: usize) -> usize {
        (image * (self.height + 2 * self.border) + row) * self.line() + col * self.channels
    }

    /// Returns where a row is, without its border.
    pub(crate) fn line_of(&self, image: usize, row: usize) -> Range<usize> {
        let start = self.at(image, row + self.border, self.border);
        start..start + self.width * self.channels
    }

    /// Returns the channels of a pixel.
    pub(crate) fn pixel(&self, image: usize, row: usize, col: usize) -> &[f32] {
        &self.values[self.at(image, row + self.border, col + self.border)..][..self.channels]
    }

    /// Splits the batch into tasks of `each` images: their numbers and their values, borders included.
    pub(crate) fn par_images_mut(
        &mut self,
        each: usize,
    ) -> impl IndexedParallelIterator<Item = (Range<usize>, &mut [f32])> {
        let image = self.image().max(1);
        let tasks = self.values.par_chunks_mut(each * image).enumerate();
        tasks.map(move |(task, values)| {
            let first = task * each;
            (first..first + values.len() / image, values)
        })
    }

    /// Changes every row of pixels, images in parallel: `change` is told the image and the row.
    pub(crate) fn par_lines_mut(&mut self, change: impl Fn(usize, usize, &mut [f32]) + Sync) {
        let shape = self.shape();
        self.par_images_mut(1).for_each(|(images, values)| {
            for row in 0..shape.height {
                change(images.start, row, &mut values[shape.line_of(0, row)]);
            }
        });
    }

    /// Changes every row of pixels, one after the other: `change` is told the image and the row.
    #[inline(always)]
    pub(crate) fn lines_mut(&mut self, mut change: impl FnMut(usize, usize, &mut [f32])) {
        for image in 0..self.count {
            for row in 0..self.height {
                let line = self.line_of(image, row);
                change(image, row, &mut self.values[line]);
            }
        }
    }

    /// Puts an image [channels, height, width] in its place.
    #[inline(always)]
    pub(crate) fn transpose_in(&mut self, index: usize, image: &[f32]) {
        let (channels, border) = (self.channels, self.border);
        let (height, width) = (self.height, self.width);
        for (channel, plane) in image.chunks_exact(height * width).enumerate() {
            for (row, values) in plane.chunks_exact(width).enumerate() {
                let start = self.at(index, row + border, border) + channel;
                let line = self.values[start..].iter_mut().step_by(channels);
                for (slot, &value) in line.zip(values) {
                    *slot = value;
                }
            }
        }
    }
}

/// An arena of activations: memory that is used again, since fresh pages cost as much as the arithmetic on them.
#[derive(Debug, Default)]
pub(crate) struct Arena(RefCell<Vec<Vec<f32>>>);

impl Arena {
    /// Returns an activation whose border is zero and whose other values are anything.
    pub(crate) fn take(
        &self,
        count: usize,
        size: [usize; 2],
        channels: usize,
        border: usize,
    ) -> Activation {
        let [height, width] = size.map(|extent| extent + 2 * border);
        let length = count * height * width * channels;
        let mut spare = self.0.borrow_mut();
        // Memory of more than twice the length is kept for an activation that needs it.
        let fits = (0..spare.len())
            .filter(|&i| (length..=2 * length).contains(&spare[i].capacity()))
            .min_by_key(|&i| spare[i].capacity());
        let mut new = Activation {
            values: fits.map_or_else(Vec::new, |i| spare.swap_remove(i)),
            ..Activation::default()
        };
        new.reset(count, size, channels, border);
        new
    }

    /// Returns zeros of the size of another activation, without border.
    pub(crate) fn zeros(&self, like: &Activation) -> Activation {
        let mut new = self.take(like.count, like.size(), like.channels, 0);
        let parts = new.values.par_chunks_mut(1 << 16);
        parts.for_each(|values| values.fill(0.0));
        new
    }

    /// Takes the memory of an activation back.
    pub(crate) fn give(&self, activation: Activation) {
        if activation.values.capacity() > 0 {
            self.0.borrow_mut().push(activation.values);
        }
    }
}
