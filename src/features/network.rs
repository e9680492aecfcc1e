//! Networks as feature extractors: batches of inputs in, feature rows and logits out.
//!
//! Extraction is always in evaluation mode and never changes the network: normalisation layers that adapt while
//! features are read would make every row depend on its neighbours in the batch.

use muso_models::burn::tensor::{Device, Tensor};
use muso_models::{Extractor, FeatureNet};

use super::batches::{Batch, Batches, Images, Order};
use crate::engine::Rows;
use crate::error::{Error, Result};
use crate::progress::{Progress, check};
use crate::scheduler::{Lane, Scheduler};
use crate::softmax::argmax;

/// Rows a pass on the processor when nothing is trained: few enough for what is computed to stay in the caches.
const BATCH: usize = 250;
/// Numbers of a batch on other devices: enough that kernels take longer than to launch.
const DEVICE_VALUES: usize = 1 << 21;
/// The row blocks that their sums are made of: batches of whole ones are summed in place.
const DEVICE_BLOCK: usize = 512;

/// Chains of lanes on the processor. A batch ends when its last task does, and until then some threads have nothing to
/// do; those of the other chain's batch fill the gap.
const CHAINS: usize = 2;

/// Source of the rows, and the device and lanes that they go through.
#[derive(Clone, Debug)]
pub struct Feed<B: Batches = Images> {
    /// The rows, with their labels and inputs.
    pub data: B,
    /// The device that the inputs go to.
    pub device: Device,
    /// Prefetches the inputs, and takes them through a network.
    pub scheduler: Scheduler,
}

/// Output of a network for a batch, on its device.
#[derive(Clone, Debug)]
pub struct Passed {
    /// The rows of the set.
    pub rows: Vec<usize>,
    /// Labels of the rows.
    pub labels: Vec<i64>,
    /// Feature rows, [N, D].
    pub features: Tensor<2>,
    /// Logits, [N, C].
    pub logits: Tensor<2>,
}

/// Batches that have passed through a network, in order. The first error ends it.
#[derive(Debug)]
pub struct Passing {
    /// Batch k comes from chain k modulo their number.
    chains: Vec<Lane<Passed>>,
    turn: usize,
    /// Why it could not begin.
    failed: Option<Error>,
}

/// A pass that begins when it is iterated. See [`Feed::deferred_pass`].
#[derive(Clone, Debug)]
pub struct DeferredPass<N, B: Batches = Images> {
    feed: Feed<B>,
    network: N,
    rows: Vec<usize>,
}

impl<N: FeatureNet, B: Batches<Input = N::Input>> IntoIterator for DeferredPass<N, B> {
    type Item = Result<Passed>;
    type IntoIter = Passing;

    fn into_iter(self) -> Passing {
        let passing = self.feed.pass(&self.network, &self.rows, None);
        passing.unwrap_or_else(|error| Passing {
            chains: Vec::new(),
            turn: 0,
            failed: Some(error),
        })
    }
}

impl Iterator for Passing {
    type Item = Result<Passed>;

    fn next(&mut self) -> Option<Result<Passed>> {
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
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
    /// Feature rows, N×D, row-major.
    pub features: Vec<f32>,
    /// Logits, N×C, row-major.
    pub logits: Vec<f32>,
    /// D, the width of a feature row.
    pub width: usize,
    /// C, the number of classes.
    pub classes: usize,
}

impl Extracted {
    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.logits.len().checked_div(self.classes).unwrap_or(0)
    }

    /// Returns Z as the engine takes it.
    pub fn feature_rows(&self) -> Rows<'_> {
        Rows::new(self.rows(), self.width, self.features.as_slice())
    }

    /// Returns the class of the largest logit of each row, the first of several equal ones.
    pub fn predictions(&self) -> Vec<i64> {
        self.logits
            .chunks(self.classes.max(1))
            .map(|row| argmax(row) as i64)
            .collect()
    }
}

impl<B: Batches> Feed<B> {
    /// Feeds rows to a device, with lanes that load ahead.
    pub fn new(data: B, device: &Device) -> Self {
        Self {
            data,
            device: device.clone(),
            scheduler: Scheduler::default(),
        }
    }

    /// Returns the labels of `rows`.
    pub fn labels(&self, rows: &[usize]) -> Vec<i64> {
        rows.iter().map(|&row| self.data.labels()[row]).collect()
    }

    /// Loads batches ahead of their use.
    ///
    /// # Errors
    /// Those of [`Batches::load`].
    pub fn batches(&self, order: Order) -> Result<Lane<Batch<B::Input>>> {
        let batches = self.data.load(order, &self.device)?;
        self.scheduler.lane("decode", batches)
    }

    /// Puts a batch on the device, and returns its rows, their labels and the inputs. Its number is for the trace.
    ///
    /// # Errors
    /// If copying it panics.
    pub fn upload(
        &self,
        batch: Batch<B::Input>,
        number: u64,
    ) -> Result<(Vec<usize>, Vec<i64>, B::Input)> {
        // A processor has nothing to copy.
        if self.device == Device::flex() {
            return Ok(batch.into_parts(&self.device));
        }
        self.scheduler
            .step("copy", number, || Ok(batch.into_parts(&self.device)))
    }

    /// Takes `rows`, or a variant of them, through a network batch by batch, ahead of who takes the features. They stay on
    /// the device.
    ///
    /// # Errors
    /// If a row does not exist or there is no thread to be had.
    pub fn pass<N: FeatureNet<Input = B::Input>>(
        &self,
        network: &N,
        rows: &[usize],
        variant: Option<usize>,
    ) -> Result<Passing> {
        let network = network.extractor();
        let here = self.device == Device::flex();
        let batch = if here { BATCH } else { self.device_batch() };
        let chains = if here && self.scheduler.depth > 0 {
            rows.len().div_ceil(batch).clamp(1, CHAINS)
        } else {
            1
        };
        let chain = |number: usize| {
            let batches = rows.chunks(batch).skip(number).step_by(chains);
            let order = Order::new(batches.collect::<Vec<_>>().concat(), batch);
            self.chain(&network, order, variant)
        };
        Ok(Passing {
            chains: (0..chains).map(chain).collect::<Result<_>>()?,
            turn: 0,
            failed: None,
        })
    }

    /// Prepares a pass that begins when it is iterated. Lanes belong to the thread that opens them and end with it, so
    /// a pass that another lane takes from is opened there.
    pub fn deferred_pass<N: FeatureNet<Input = B::Input>>(
        &self,
        network: &N,
        rows: &[usize],
    ) -> DeferredPass<N, B> {
        DeferredPass {
            feed: self.clone(),
            network: network.clone(),
            rows: rows.to_vec(),
        }
    }

    /// Builds one pipeline of lanes from inputs to features.
    fn chain(
        &self,
        network: &Extractor<B::Input>,
        order: Order,
        variant: Option<usize>,
    ) -> Result<Lane<Passed>> {
        let (data, network) = (self.data.clone(), network.clone());
        let forward = move |(rows, labels, input): (Vec<usize>, Vec<i64>, B::Input)| {
            let input = match variant {
                Some(number) => data.variant(input, number),
                None => input,
            };
            let features = network.features(input);
            Ok(Passed {
                logits: network.head().forward(features.clone()),
                features,
                rows,
                labels,
            })
        };
        let batches = self.batches(order)?;
        let device = self.device.clone();
        if self.device == Device::flex() {
            // Nothing is copied, and there is nothing to overlap.
            let pass = move |_, batch: Batch<B::Input>| forward(batch.into_parts(&device));
            return self.scheduler.through("features", batches, pass);
        }
        let send = move |_, batch: Batch<B::Input>| Ok(batch.into_parts(&device));
        let sent = self.scheduler.through("copy", batches, send)?;
        self.scheduler
            .through("features", sent, move |_, parts| forward(parts))
    }

    /// Rows of a pass on a device with memory of its own.
    fn device_batch(&self) -> usize {
        let rows = DEVICE_VALUES / self.data.row_size().max(1);
        match rows / DEVICE_BLOCK {
            0 => rows.max(DEVICE_BLOCK / 8),
            blocks => blocks.min(8) * DEVICE_BLOCK,
        }
    }

    /// Collects features and logits of `rows` on the host.
    ///
    /// # Errors
    /// Those of [`pass`](Self::pass), and [`Error::Interrupted`](crate::Error::Interrupted) if `progress` asks to stop.
    pub fn extract<N: FeatureNet<Input = B::Input>>(
        &self,
        network: &N,
        rows: &[usize],
        progress: &mut dyn Progress,
    ) -> Result<Extracted> {
        let mut out = Extracted::default();
        self.each(network, rows, None, progress, |passed| {
            let Passed {
                features, logits, ..
            } = passed;
            (out.width, out.classes) = (features.dims()[1], logits.dims()[1]);
            out.features.extend(host(features));
            out.logits.extend(host(logits));
            Ok(())
        })?;
        Ok(out)
    }

    /// Collects the logits of `rows`, or of a variant of them, on the host: N×C, row-major. The features are not kept.
    ///
    /// # Errors
    /// As [`extract`](Self::extract).
    pub fn logits<N: FeatureNet<Input = B::Input>>(
        &self,
        network: &N,
        rows: &[usize],
        variant: Option<usize>,
        progress: &mut dyn Progress,
    ) -> Result<Vec<f32>> {
        let mut out = Vec::new();
        self.each(network, rows, variant, progress, |passed| {
            out.extend(host(passed.logits));
            Ok(())
        })?;
        Ok(out)
    }

    /// Calls `work` with each batch that has passed through a network.
    pub(crate) fn each<N: FeatureNet<Input = B::Input>>(
        &self,
        network: &N,
        rows: &[usize],
        variant: Option<usize>,
        progress: &mut dyn Progress,
        mut work: impl FnMut(Passed) -> Result<()>,
    ) -> Result<()> {
        let mut done = 0;
        for passed in self.pass(network, rows, variant)? {
            let passed = passed?;
            done += passed.rows.len();
            work(passed)?;
            check(
                progress,
                "extracting features",
                done as u64,
                rows.len() as u64,
            )?;
        }
        Ok(())
    }
}

/// Copies a tensor's values to the host, row-major.
pub fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor
        .into_data()
        .try_into_vec::<f32>()
        .expect("networks compute in f32")
}
