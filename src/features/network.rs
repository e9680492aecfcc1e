//! Networks as feature extractors: images in, feature rows and logits out.
//!
//! Extraction is always in evaluation mode and never changes the network: normalisation layers that adapt while
//! features are read would make every row depend on its neighbours in the batch.

use std::sync::Arc;

use muso_models::burn::tensor::{Device, Tensor, TensorData};
use muso_models::{Folded, Network};

use crate::data::images::{Augment, Batch, ImageSet, Loader, LoaderOptions, Normalisation};
use crate::engine::Rows;
use crate::error::Result;
use crate::progress::{Progress, check};
use crate::scheduler::{Lane, Scheduler};

/// Rows a pass on the processor when nothing is trained: few enough for what is computed to stay in the caches.
const BATCH: usize = 250;
/// Pixels of a batch on other devices: enough that kernels take longer than to launch.
const DEVICE_PIXELS: usize = 1 << 21;
/// The row blocks that their sums are made of: batches of whole ones are summed in place.
const DEVICE_BLOCK: usize = 512;

/// Chains of lanes on the processor. A batch ends when its last task does, and until then some threads have nothing to
/// do; those of the other chain's batch fill the gap.
const CHAINS: usize = 2;

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

/// Batches that have passed through a network, in order. The first error ends it.
#[derive(Debug)]
pub struct Passing {
    /// Batch k comes from chain k modulo their number.
    chains: Vec<Lane<Passed>>,
    turn: usize,
}

impl Iterator for Passing {
    type Item = Result<Passed>;

    fn next(&mut self) -> Option<Result<Passed>> {
        let chains = self.chains.len();
        let item = self.chains.get_mut(self.turn)?.next();
        self.turn = (self.turn + 1) % chains;
        match item {
            Some(Ok(_)) => item,
            Some(Err(_)) => {
                self.chains.clear();
                item
            }
            // A chain that has no more is the first to have none; the others are at their end, or have failed there.
            None => self.chains.drain(..).find_map(|mut chain| chain.next()),
        }
    }
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
        // A processor has nothing to copy.
        if self.device == Device::flex() {
            return Ok(self.send(batch));
        }
        self.scheduler.step("copy", number, || Ok(self.send(batch)))
    }

    fn send(&self, batch: &mut Batch) -> Tensor<4> {
        let images = std::mem::take(&mut batch.images);
        Tensor::from_data(TensorData::new(images, batch.shape), &self.device)
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
    ) -> Result<Passing> {
        let network = Arc::new(network.folded());
        let here = self.device == Device::flex();
        let batch = if here { BATCH } else { self.device_batch() };
        let chains = if here && self.scheduler.depth > 0 {
            rows.len().div_ceil(batch).clamp(1, CHAINS)
        } else {
            1
        };
        let chain = |number: usize| {
            let batches = rows.chunks(batch).skip(number).step_by(chains);
            self.chain(
                &network,
                batches.collect::<Vec<_>>().concat(),
                batch,
                change,
            )
        };
        Ok(Passing {
            chains: (0..chains).map(chain).collect::<Result<_>>()?,
            turn: 0,
        })
    }

    /// One chain of lanes from images to features.
    fn chain(
        &self,
        network: &Arc<Folded>,
        rows: Vec<usize>,
        batch: usize,
        change: Option<Change>,
    ) -> Result<Lane<Passed>> {
        let (feed, network) = (self.clone(), network.clone());
        let forward = move |batch: Batch, images: Tensor<4>| {
            let images = match change {
                Some(change) => change(images),
                None => images,
            };
            let features = network.features(images);
            Ok(Passed {
                logits: network.head().forward(features.clone()),
                features,
                rows: batch.rows,
                labels: batch.labels,
            })
        };
        let batches = self.batches(rows, batch, None, 0, 0)?;
        if self.device == Device::flex() {
            // Nothing is copied, and there is nothing to overlap.
            return self
                .scheduler
                .through("features", batches, move |_, mut batch| {
                    let images = feed.send(&mut batch);
                    forward(batch, images)
                });
        }
        let sent = self
            .scheduler
            .through("copy", batches, move |_, mut batch| {
                let images = feed.send(&mut batch);
                Ok((batch, images))
            })?;
        let pass = move |_, (batch, images)| forward(batch, images);
        self.scheduler.through("features", sent, pass)
    }

    /// Rows of a pass on a device with memory of its own.
    fn device_batch(&self) -> usize {
        let rows = DEVICE_PIXELS / self.set.shape().iter().product::<usize>().max(1);
        match rows / DEVICE_BLOCK {
            0 => rows.max(DEVICE_BLOCK / 8),
            blocks => blocks.min(8) * DEVICE_BLOCK,
        }
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
