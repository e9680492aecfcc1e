//! Networks as feature extractors: images in, feature rows and logits out.
//!
//! Extraction is always in evaluation mode and never changes the network: normalisation layers that adapt while
//! features are read would make every row depend on its neighbours in the batch.

use muso_models::Network;
use muso_models::burn::tensor::{Device, Tensor, TensorData};

use crate::data::images::{Augment, Batch, ImageSet, Loader, LoaderOptions, Normalisation};
use crate::engine::Rows;
use crate::error::Result;
use crate::progress::{Progress, check};
use crate::scheduler::{Lane, Scheduler};

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
    /// Which lanes decode them, and take them through a network.
    pub scheduler: Scheduler,
}

/// What is done to images before a network sees them.
pub type Change = fn(Tensor<4>) -> Tensor<4>;

/// What a network makes of a batch, on its device.
#[derive(Clone, Debug)]
pub struct Passed {
    /// The rows of the set.
    pub rows: Vec<usize>,
    /// Their labels.
    pub labels: Vec<i64>,
    /// [N, D].
    pub features: Tensor<2>,
    /// [N, C].
    pub logits: Tensor<2>,
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
    ) -> Result<Lane<Batch>> {
        let options = LoaderOptions {
            augment,
            seed,
            ..LoaderOptions::new(batch, self.normalisation.clone())
        };
        let loader = Loader::new(&self.set, rows, options)?;
        self.scheduler.lane("decode", loader.skip(skip))
    }

    /// A batch on the device, [N, channels, height, width]. Its number is for the trace.
    ///
    /// # Errors
    /// If copying it panics.
    pub fn upload(&self, batch: &mut Batch, number: u64) -> Result<Tensor<4>> {
        let images = std::mem::take(&mut batch.images);
        let send = || {
            let data = TensorData::new(images, batch.shape);
            Ok(Tensor::from_data(data, &self.device))
        };
        // A processor has nothing to copy.
        if self.device == Device::flex() {
            return send();
        }
        self.scheduler.step("copy", number, send)
    }

    /// The labels of `rows`.
    pub fn labels(&self, rows: &[usize]) -> Vec<i64> {
        rows.iter().map(|&row| self.set.labels()[row]).collect()
    }

    /// Takes `rows` through a network batch by batch, ahead of who takes the features. They stay on the device.
    pub fn pass(
        &self,
        network: &Network,
        rows: &[usize],
        change: Option<Change>,
    ) -> Result<Lane<Passed>> {
        let network = network.folded();
        let feed = self.clone();
        let batches = self.batches(rows.to_vec(), BATCH, None, 0, 0)?;
        let forward = move |number, mut batch: Batch| {
            let images = feed.upload(&mut batch, number)?;
            let features = network.features(change.map_or(images.clone(), |f| f(images)));
            Ok(Passed {
                logits: network.head().forward(features.clone()),
                features,
                rows: batch.rows,
                labels: batch.labels,
            })
        };
        self.scheduler.through("features", batches, forward)
    }

    /// Features and logits of `rows`, on the host.
    pub fn extract(
        &self,
        network: &Network,
        rows: &[usize],
        progress: &mut dyn Progress,
    ) -> Result<Extracted> {
        self.extract_changed(network, rows, None, progress)
    }

    /// Features and logits of `rows` after `change` has had its way with the images.
    pub fn extract_changed(
        &self,
        network: &Network,
        rows: &[usize],
        change: Option<Change>,
        progress: &mut dyn Progress,
    ) -> Result<Extracted> {
        let mut out = Extracted::default();
        let mut done = 0;
        for passed in self.pass(network, rows, change)? {
            let Passed {
                rows: batch,
                features,
                logits,
                ..
            } = passed?;
            done += batch.len();
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
pub const SHIFTS: [Change; 4] = [
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
