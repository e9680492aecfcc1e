//! Batches of normalised images, decoded and augmented as they are asked for; a lane of the scheduler asks ahead.
//!
//! What a batch holds depends on the rows, their order and the seed alone, and for a given image not on the batch size
//! either, since the draws of augmentation count the position of the image in the order.
//!
//! ```
//! use muso::data::images::{self, Augment, Kind, Loader, LoaderOptions, shuffled};
//! let fashion = images::open(Kind::Fashion, None)?;
//! let rows: Vec<usize> = (0..100).collect();
//! for seed in [7, 8] {
//!     let options = LoaderOptions {
//!         augment: Some(Augment::default()),
//!         seed,
//!         ..LoaderOptions::new(64, fashion.normalisation.clone())
//!     };
//!     for batch in Loader::new(&fashion.train, shuffled(&rows, seed), options)? {
//!         assert!(batch?.images.iter().all(|x| x.is_finite()));
//!     }
//! }
//! # Ok::<(), muso::Error>(())
//! ```

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::normalise::Normalisation;
use super::set::ImageSet;
use crate::data::forget::below;
use crate::{Error, Result, seeds};

/// Images as a network takes them.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The rows of the set that the images are.
    pub rows: Vec<usize>,
    /// Labels of the images.
    pub labels: Vec<i64>,
    /// Their normalised pixels, image by image, each channel by channel and row by row.
    pub images: Vec<f32>,
    /// Images, channels, height, width.
    pub shape: [usize; 4],
}

/// Fill beyond the border of an image that is shifted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PadWith {
    /// Black, a byte of 0. This is what most training recipes do.
    #[default]
    Black,
    /// The mean of the channel, which is 0 after normalisation.
    Mean,
}

/// Random shifts and reflections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Augment {
    /// The image is shifted by up to this many pixels, up or down and left or right.
    pub padding: usize,
    /// Fill at the border.
    pub pad_with: PadWith,
    /// Every other image, by chance, is mirrored left to right.
    pub flip: bool,
}

impl Default for Augment {
    fn default() -> Self {
        Self {
            padding: 4,
            pad_with: PadWith::Black,
            flip: true,
        }
    }
}

/// Options of a [`Loader`].
#[derive(Clone, Debug, PartialEq)]
pub struct LoaderOptions {
    /// Images in a batch, at least 1.
    pub batch: usize,
    /// Maps pixels to numbers.
    pub normalisation: Normalisation,
    /// Random changes to the images, if any.
    pub augment: Option<Augment>,
    /// Seed of the random changes. Each epoch needs its own.
    pub seed: u64,
    /// Leave out a last batch that is not full.
    pub drop_last: bool,
}

impl LoaderOptions {
    /// Returns options without augmentation and with no row left out.
    pub fn new(batch: usize, normalisation: Normalisation) -> Self {
        Self {
            batch,
            normalisation,
            augment: None,
            seed: 0,
            drop_last: false,
        }
    }
}

/// An iterator of batches. The first error ends it.
#[derive(Debug)]
pub struct Loader {
    worker: Worker,
    batches: usize,
}

impl Loader {
    /// Batches of the rows of `order`, in that order. The set is shared, not copied.
    ///
    /// # Errors
    /// If a row is out of range, if the batch size is 0, or if the normalisation does not fit the channels.
    pub fn new(set: &ImageSet, order: Vec<usize>, options: LoaderOptions) -> Result<Self> {
        let worker = Worker::new(set, order, &options)?;
        let batches = worker.batches_left();
        Ok(Self { worker, batches })
    }

    /// Returns the number of batches that the loader makes in all.
    pub fn batches(&self) -> usize {
        self.batches
    }
}

impl Iterator for Loader {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        self.worker.next_batch()
    }
}

/// Window of the padded image that an augmented image is taken from: its offset, and whether it is mirrored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    top: usize,
    left: usize,
    flip: bool,
}

#[derive(Debug)]
struct Worker {
    set: ImageSet,
    order: Vec<usize>,
    /// The position in the order of the next image.
    next: usize,
    batch: usize,
    drop_last: bool,
    tables: Vec<[f32; 256]>,
    augment: Option<Augment>,
    /// Fill of the border, by channel.
    border: Vec<f32>,
    rng: ChaCha8Rng,
    /// Scratch buffer for a decoded image.
    scratch: Vec<u8>,
}

impl Worker {
    fn new(set: &ImageSet, order: Vec<usize>, options: &LoaderOptions) -> Result<Self> {
        if options.batch == 0 {
            return Err(Error::Parameter {
                name: "batch size",
                value: "0".to_owned(),
                expected: "at least 1".to_owned(),
            });
        }
        for &row in &order {
            set.check_row(row)?;
        }
        let [channels, height, width] = set.shape();
        if let Some(augment) = options.augment
            && augment.padding > height.max(width)
        {
            return Err(Error::Parameter {
                name: "padding",
                value: augment.padding.to_string(),
                expected: format!("at most {}, the side of an image", height.max(width)),
            });
        }
        let tables = options.normalisation.tables(channels)?;
        let border = match options.augment.map(|augment| augment.pad_with) {
            Some(PadWith::Black) => tables.iter().map(|table| table[0]).collect(),
            _ => vec![0.0; channels],
        };
        Ok(Self {
            set: set.clone(),
            order,
            next: 0,
            batch: options.batch,
            drop_last: options.drop_last,
            tables,
            augment: options.augment,
            border,
            rng: seeds::augmentation(options.seed),
            scratch: Vec::new(),
        })
    }

    fn batches_left(&self) -> usize {
        let images = self.order.len() - self.next;
        if self.drop_last {
            images / self.batch
        } else {
            images.div_ceil(self.batch)
        }
    }

    fn next_batch(&mut self) -> Option<Result<Batch>> {
        if self.batches_left() == 0 {
            return None;
        }
        let made = self.make_batch();
        if made.is_err() {
            self.next = self.order.len();
        }
        Some(made)
    }

    fn make_batch(&mut self) -> Result<Batch> {
        let first = self.next;
        let end = first.saturating_add(self.batch).min(self.order.len());
        self.next = end;
        let rows = self.order[first..end].to_vec();
        let [channels, height, width] = self.set.shape();
        let size = channels * height * width;
        let mut images = vec![0.0; rows.len() * size];
        for ((position, &row), out) in (first..).zip(&rows).zip(images.chunks_exact_mut(size)) {
            let window = self.draw(position);
            let pixels = match self.set.packed(row) {
                Some(pixels) => pixels,
                None => {
                    self.scratch.resize(size, 0);
                    self.set.read(row, &mut self.scratch)?;
                    &self.scratch
                }
            };
            let planes = pixels.chunks_exact(height * width);
            let out_planes = out.chunks_exact_mut(height * width);
            for (((plane, out), table), &border) in
                planes.zip(out_planes).zip(&self.tables).zip(&self.border)
            {
                match (window, self.augment) {
                    (Some(window), Some(Augment { padding, .. })) => {
                        place(plane, width, table, border, padding, window, out);
                    }
                    _ => {
                        for (out, &x) in out.iter_mut().zip(plane) {
                            *out = table[usize::from(x)];
                        }
                    }
                }
            }
        }
        let labels = rows.iter().map(|&row| self.set.labels()[row]).collect();
        Ok(Batch {
            shape: [rows.len(), channels, height, width],
            rows,
            labels,
            images,
        })
    }

    /// The window of the image at this position of the order. ChaCha counts blocks, and each position has its own.
    fn draw(&mut self, position: usize) -> Option<Window> {
        const WORDS_OF_A_BLOCK: u128 = 16;
        let augment = self.augment?;
        self.rng.set_word_pos(WORDS_OF_A_BLOCK * position as u128);
        let places = 2 * augment.padding as u64 + 1;
        Some(Window {
            top: below(&mut self.rng, places) as usize,
            left: below(&mut self.rng, places) as usize,
            flip: augment.flip && self.rng.next_u64() >> 63 == 1,
        })
    }
}

/// Normalises one plane through a window: out[y][x] is the padded plane at [top + y][left + x], or at
/// [top + y][left + width − 1 − x] when mirrored.
fn place(
    plane: &[u8],
    width: usize,
    table: &[f32; 256],
    border: f32,
    padding: usize,
    window: Window,
    out: &mut [f32],
) {
    let height = plane.len() / width;
    // In a row of the window, the columns from `start` to `end` lie within the image, at `from` and on.
    let start = padding.saturating_sub(window.left).min(width);
    let end = (width + padding)
        .saturating_sub(window.left)
        .clamp(start, width);
    let from = (window.left + start).saturating_sub(padding);
    for (y, out) in out.chunks_exact_mut(width).enumerate() {
        let row = (window.top + y)
            .checked_sub(padding)
            .filter(|&row| row < height);
        let Some(row) = row.filter(|_| start < end) else {
            out.fill(border);
            continue;
        };
        let pixels = &plane[row * width + from..][..end - start];
        let values = pixels.iter().map(|&x| table[usize::from(x)]);
        if window.flip {
            let (low, high) = (width - end, width - start);
            out[..low].fill(border);
            out[high..].fill(border);
            for (out, value) in out[low..high].iter_mut().rev().zip(values) {
                *out = value;
            }
        } else {
            out[..start].fill(border);
            out[end..].fill(border);
            for (out, value) in out[start..end].iter_mut().zip(values) {
                *out = value;
            }
        }
    }
}

/// Returns the rows in an order that depends on the seed alone: Fisher–Yates with ChaCha8.
///
/// ```
/// let mut rows = muso::data::images::shuffled(&[3, 5, 8], 1);
/// rows.sort();
/// assert_eq!(rows, [3, 5, 8]);
/// ```
pub fn shuffled(rows: &[usize], seed: u64) -> Vec<usize> {
    let mut rows = rows.to_vec();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for i in (1..rows.len()).rev() {
        let j = below(&mut rng, i as u64 + 1) as usize;
        rows.swap(i, j);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ClassNames;
    use proptest::prelude::*;

    /// The definition: the padded plane, then the window, then the mirror.
    fn reference(plane: &[u8], width: usize, padding: usize, window: Window) -> Vec<f32> {
        let height = plane.len() / width;
        let at = |y: usize, x: usize| {
            let inside =
                (padding..padding + height).contains(&y) && (padding..padding + width).contains(&x);
            if inside {
                f32::from(plane[(y - padding) * width + x - padding])
            } else {
                -1.0
            }
        };
        let column = |x: usize| if window.flip { width - 1 - x } else { x };
        (0..height)
            .flat_map(|y| (0..width).map(move |x| (y, x)))
            .map(|(y, x)| at(window.top + y, window.left + column(x)))
            .collect()
    }

    fn placed(plane: &[u8], width: usize, padding: usize, window: Window) -> Vec<f32> {
        let table = std::array::from_fn(|x| x as f32);
        let mut out = vec![f32::NAN; plane.len()];
        place(plane, width, &table, -1.0, padding, window, &mut out);
        out
    }

    proptest! {
        #[test]
        fn a_window_is_what_the_definition_says(
            height in 1_usize..7,
            width in 1_usize..7,
            padding in 0_usize..9,
            top in 0_usize..19,
            left in 0_usize..19,
            flip: bool,
            seed: u8,
        ) {
            let plane: Vec<u8> = (0..height * width).map(|i| (i as u8).wrapping_mul(37) ^ seed).collect();
            let window = Window { top: top.min(2 * padding), left: left.min(2 * padding), flip };
            prop_assert_eq!(
                placed(&plane, width, padding, window),
                reference(&plane, width, padding, window)
            );
        }

        #[test]
        fn mirrored_twice_is_the_image(height in 1_usize..7, width in 1_usize..7, seed: u8) {
            let plane: Vec<u8> = (0..height * width).map(|i| (i as u8).wrapping_mul(91) ^ seed).collect();
            let window = Window { top: 0, left: 0, flip: true };
            let once: Vec<u8> = placed(&plane, width, 0, window).iter().map(|&x| x as u8).collect();
            let twice: Vec<u8> = placed(&once, width, 0, window).iter().map(|&x| x as u8).collect();
            prop_assert_eq!(twice, plane);
        }
    }

    fn worker(augment: Augment, seed: u64) -> Worker {
        let set = ImageSet::new([1, 8, 8], vec![0; 64], vec![0], ClassNames::new(["a"])).unwrap();
        let normalisation = Normalisation {
            mean: vec![0.5],
            std: vec![0.5],
        };
        let options = LoaderOptions {
            augment: Some(augment),
            seed,
            ..LoaderOptions::new(1, normalisation)
        };
        Worker::new(&set, vec![0], &options).unwrap()
    }

    #[test]
    fn all_windows_are_drawn_equally_often() {
        let mut worker = worker(Augment::default(), 3);
        let mut hits = [[0_u32; 9]; 2];
        let mut flips = 0_u32;
        for position in 0..9000 {
            let window = worker.draw(position).unwrap();
            hits[0][window.top] += 1;
            hits[1][window.left] += 1;
            flips += u32::from(window.flip);
        }
        // 1000 expected, standard deviation 30; 4500 and 47.
        assert!(
            hits.iter().flatten().all(|n| n.abs_diff(1000) < 150),
            "{hits:?}"
        );
        assert!(flips.abs_diff(4500) < 250, "{flips}");
    }

    #[test]
    fn the_draws_of_a_seed_never_change() {
        let windows = |seed| {
            let mut worker = worker(Augment::default(), seed);
            // In any order: each position has its own.
            let second = worker.draw(1).unwrap();
            let first = worker.draw(0).unwrap();
            [first, second].map(|w| (w.top, w.left, w.flip))
        };
        assert_eq!(windows(1), windows(1));
        assert_ne!(windows(1), windows(2));
        assert_eq!(windows(1), PINNED_WINDOWS);
        assert_eq!(shuffled(&[0, 1, 2, 3, 4, 5, 6, 7], 1), PINNED_ORDER);
    }

    /// What was drawn when this was first written.
    const PINNED_WINDOWS: [(usize, usize, bool); 2] = [(7, 0, true), (7, 1, false)];
    const PINNED_ORDER: [usize; 8] = [5, 6, 2, 4, 1, 7, 0, 3];

    #[test]
    fn every_order_is_equally_likely() {
        let mut hits = std::collections::BTreeMap::new();
        for seed in 0..6000 {
            *hits.entry(shuffled(&[0, 1, 2], seed)).or_insert(0_u32) += 1;
        }
        // 1000 expected, standard deviation 29.
        assert_eq!(hits.len(), 6);
        assert!(hits.values().all(|n| n.abs_diff(1000) < 150), "{hits:?}");
        assert!(shuffled(&[], 0).is_empty());
    }
}
