//! Networks as feature extractors: images in, feature rows and logits out.
//!
//! Extraction is always in evaluation mode and never changes the network: normalisation layers that adapt while
//! features are read would make every row depend on its neighbours in the batch.

use std::iter::Skip;

use muso_models::Network;
use muso_models::burn::tensor::{Device, Tensor, TensorData};

use crate::data::images::{Augment, Batch, ImageSet, Loader, LoaderOptions, Normalisation};
use crate::engine::Rows;
use crate::error::Result;
use crate::progress::{Progress, check};

/// Rows a pass when nothing is trained.
const BATCH: usize = 250;

/// Where images come from, how they are scaled and where they go.
#[derive(Clone, Debug)]
pub struct Feed {
    /// The images.
    pub set: ImageSet,
    /// Their scaling.
    pub normalisation: Normalisation,
    /// The device that they go to.
    pub device: Device,
    /// How many batches are decoded ahead by another thread; 0 decodes in place.
    pub prefetch: usize,
}

/// Features and logits of some rows, in their order.
#[derive(Clone, Debug, Default)]
pub struct Extracted {
    /// N×D, row-major.
    pub features: Vec<f32>,
    /// N×C, row-major.
    pub logits: Vec<f32>,
    /// D.
    pub width: usize,
    /// C.
    pub classes: usize,
}

impl Extracted {
    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.logits.len().checked_div(self.classes).unwrap_or(0)
    }

    /// Z, for the engine.
    pub fn feature_rows(&self) -> Rows<'_> {
        Rows::new(self.rows(), self.width, self.features.as_slice())
    }

    /// The class of the largest logit of each row, the first where several are equal.
    pub fn predictions(&self) -> Vec<i64> {
        let largest = |row: &[f32]| {
            let best = (1..row.len()).fold(0, |best, c| if row[c] > row[best] { c } else { best });
            best as i64
        };
        self.logits
            .chunks(self.classes.max(1))
            .map(largest)
            .collect()
    }
}

impl Feed {
    /// Batches of `rows` in the order given. The first `skip` batches are left out, and the others are as if they were not.
    pub fn batches(
        &self,
        rows: Vec<usize>,
        batch: usize,
        augment: Option<Augment>,
        seed: u64,
        skip: usize,
    ) -> Result<Skip<Loader>> {
        let options = LoaderOptions {
            augment,
            seed,
            depth: self.prefetch,
            ..LoaderOptions::new(batch, self.normalisation.clone())
        };
        Ok(Loader::new(&self.set, rows, options)?.skip(skip))
    }

    /// A batch on the device, [N, channels, height, width].
    pub fn upload(&self, batch: &mut Batch) -> Tensor<4> {
        let images = std::mem::take(&mut batch.images);
        Tensor::from_data(TensorData::new(images, batch.shape), &self.device)
    }

    /// The labels of `rows`.
    pub fn labels(&self, rows: &[usize]) -> Vec<i64> {
        rows.iter().map(|&row| self.set.labels()[row]).collect()
    }

    /// Features and logits of `rows`.
    pub fn extract(
        &self,
        network: &Network,
        rows: &[usize],
        progress: &mut dyn Progress,
    ) -> Result<Extracted> {
        self.extract_changed(network, rows, &|images| images, progress)
    }

    /// Features and logits of `rows` after `change` has had its way with the images.
    pub fn extract_changed(
        &self,
        network: &Network,
        rows: &[usize],
        change: &dyn Fn(Tensor<4>) -> Tensor<4>,
        progress: &mut dyn Progress,
    ) -> Result<Extracted> {
        let network = network.folded();
        let mut out = Extracted::default();
        let mut done = 0;
        for batch in self.batches(rows.to_vec(), BATCH, None, 0, 0)? {
            let mut batch = batch?;
            done += batch.rows.len();
            let features = network.features(change(self.upload(&mut batch)));
            let logits = network.head().forward(features.clone());
            (out.width, out.classes) = (features.dims()[1], logits.dims()[1]);
            out.features.extend(host(features));
            out.logits.extend(host(logits));
            check(
                progress,
                "extracting features",
                done as u64,
                rows.len() as u64,
            )?;
        }
        Ok(out)
    }
}

/// Images moved by one pixel in each of the four directions; what comes in at an edge repeats it.
pub const SHIFTS: [fn(Tensor<4>) -> Tensor<4>; 4] = [
    |images| shifted(images, 2, true),
    |images| shifted(images, 2, false),
    |images| shifted(images, 3, true),
    |images| shifted(images, 3, false),
];

fn shifted(images: Tensor<4>, along: usize, forward: bool) -> Tensor<4> {
    let side = images.dims()[along];
    let part = |start: usize, length: usize| images.clone().narrow(along, start, length);
    let pieces = if forward {
        vec![part(0, 1), part(0, side - 1)]
    } else {
        vec![part(1, side - 1), part(side - 1, 1)]
    };
    Tensor::cat(pieces, along)
}

/// A tensor's values on the host, row-major.
pub fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor
        .into_data()
        .try_into_vec::<f32>()
        .expect("networks compute in f32")
}
