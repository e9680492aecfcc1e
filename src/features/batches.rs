//! Rows that networks are trained on, whatever they are: the trait [`Batches`], and images as one implementation of it.
//!
//! A row has a number, a label and an input. Rows that lie in memory are two methods:
//!
//! ```
//! use muso::features::Batches;
//! use muso::models::burn::tensor::{Device, Int, Tensor, TensorData};
//!
//! /// Sentences of four token ids.
//! #[derive(Clone)]
//! struct Sentences {
//!     tokens: Vec<[i64; 4]>,
//!     labels: Vec<i64>,
//! }
//!
//! impl Batches for Sentences {
//!     type Input = Tensor<2, Int>;
//!
//!     fn labels(&self) -> &[i64] {
//!         &self.labels
//!     }
//!
//!     fn inputs(&self, rows: &[usize], device: &Device) -> muso::Result<Tensor<2, Int>> {
//!         let tokens: Vec<i64> = rows.iter().flat_map(|&row| self.tokens[row]).collect();
//!         Ok(Tensor::from_data(TensorData::new(tokens, [rows.len(), 4]), device))
//!     }
//! }
//! ```

use std::fmt;

use muso_models::Input;
use muso_models::burn::tensor::{Device, Tensor, TensorData};

use crate::data::images::{Augment, ImageSet, Loader, LoaderOptions, Normalisation};
use crate::error::{Error, Result};
use crate::seeds::of_batch;

/// Rows with labels, and batches of inputs made of them. See the [module's text](self) for an example.
///
/// Clones are cheap: each lane of a run has one.
pub trait Batches: Clone + Send + Sync + 'static {
    /// Type of a batch of inputs, as the networks take it.
    type Input: Input;

    /// Returns the label of every row, from 0.
    fn labels(&self) -> &[i64];

    /// Puts the inputs of `rows`, in that order, on a device.
    fn inputs(&self, rows: &[usize], device: &Device) -> Result<Self::Input>;

    /// Puts the inputs of `rows` on a device, each changed at random (augmentation); the draws depend on `seed` alone.
    /// Called where a recipe asks for augmentation.
    ///
    /// # Errors
    /// The default refuses: rows have no random changes unless somebody says which.
    fn augmented(&self, rows: &[usize], seed: u64, device: &Device) -> Result<Self::Input> {
        let _ = (rows, seed, device);
        Err(Error::Parameter {
            name: "augment",
            value: "set".into(),
            expected: "no augmentation: these rows have none".into(),
        })
    }

    /// Puts blends of rows on a device: row i is `own[i]` times `rows[i]` and the rest `partners[i]`.
    ///
    /// # Errors
    /// The default refuses: only rows of numbers can be blended.
    fn blended(
        &self,
        rows: &[usize],
        partners: &[usize],
        own: &[f32],
        device: &Device,
    ) -> Result<Self::Input> {
        let _ = (rows, partners, own, device);
        Err(Error::Parameter {
            name: "method",
            value: "mix".into(),
            expected: "a method that does not blend rows: these cannot be".into(),
        })
    }

    /// Returns how many fixed variants of a row there are: inputs that are not the row but mean the same. A network has
    /// not memorised them. The default has none.
    fn variants(&self) -> usize {
        0
    }

    /// Returns variant `number` of a batch of inputs.
    fn variant(&self, input: Self::Input, number: usize) -> Self::Input {
        let _ = number;
        input
    }

    /// Returns about how many numbers a row is. Batches for devices with memory of their own are sized by it.
    fn row_size(&self) -> usize {
        1
    }

    /// Makes the batches of an epoch, one by one as they are asked for, ahead of their use and in a thread of its own.
    ///
    /// Override it where making a batch on the host and copying it to the device are better done by two threads, or where
    /// something is to be kept from one batch to the next.
    ///
    /// # Errors
    /// If a row does not exist or the batch size is 0.
    fn load(&self, order: Order, device: &Device) -> Result<Loading<Self::Input>> {
        order.check(self.labels().len())?;
        let (data, device) = (self.clone(), device.clone());
        let starts = (0..order.rows.len()).step_by(order.batch).skip(order.skip);
        Ok(Box::new(starts.map(move |start| {
            let end = order.rows.len().min(start + order.batch);
            let rows = &order.rows[start..end];
            let input = match order.augment {
                // The rows before it tell a batch from the others of its epoch.
                Some(_) => data.augmented(rows, of_batch(order.seed, start), &device)?,
                None => data.inputs(rows, &device)?,
            };
            Ok(Batch::new(&data, rows.to_vec(), input))
        })))
    }
}

/// Order of the rows in an epoch, and how they are batched.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Order {
    /// Rows of the set, in order.
    pub rows: Vec<usize>,
    /// Number of rows in a batch.
    pub batch: usize,
    /// Random changes to the inputs, if any.
    pub augment: Option<Augment>,
    /// Seed of the random changes.
    pub seed: u64,
    /// Number of batches to leave out at the start; the others stay as they are.
    pub skip: usize,
}

impl Order {
    /// Takes rows in the order given, `batch` at a time, as they are.
    pub fn new(rows: Vec<usize>, batch: usize) -> Self {
        Self {
            rows,
            batch,
            augment: None,
            seed: 0,
            skip: 0,
        }
    }

    fn check(&self, rows: usize) -> Result<()> {
        if self.batch == 0 {
            return Err(Error::Parameter {
                name: "batch",
                value: "0".into(),
                expected: "at least 1".into(),
            });
        }
        match self.rows.iter().find(|&&row| row >= rows) {
            None => Ok(()),
            Some(row) => Err(Error::Parameter {
                name: "row",
                value: row.to_string(),
                expected: format!("a row below {rows}"),
            }),
        }
    }
}

/// Iterates over the batches of an epoch.
pub type Loading<I> = Box<dyn Iterator<Item = Result<Batch<I>>> + Send>;

/// A batch of inputs on its way to a network.
pub struct Batch<I> {
    /// Rows of the set.
    pub rows: Vec<usize>,
    /// Labels of the rows.
    pub labels: Vec<i64>,
    place: Place<I>,
}

enum Place<I> {
    Device(I),
    Host(Box<dyn FnOnce(&Device) -> I + Send>),
}

impl<I> Batch<I> {
    /// Takes inputs that are on the device.
    pub fn new(data: &impl Batches, rows: Vec<usize>, input: I) -> Self {
        Self::placed(data, rows, Place::Device(input))
    }

    /// Takes inputs that are on the host, and what puts them on a device.
    pub fn on_host(
        data: &impl Batches,
        rows: Vec<usize>,
        send: impl FnOnce(&Device) -> I + Send + 'static,
    ) -> Self {
        Self::placed(data, rows, Place::Host(Box::new(send)))
    }

    fn placed(data: &impl Batches, rows: Vec<usize>, place: Place<I>) -> Self {
        Self {
            labels: rows.iter().map(|&row| data.labels()[row]).collect(),
            rows,
            place,
        }
    }

    /// Splits it into its rows, their labels and, on the device, their inputs.
    pub fn into_parts(self, device: &Device) -> (Vec<usize>, Vec<i64>, I) {
        let input = match self.place {
            Place::Device(input) => input,
            Place::Host(send) => send(device),
        };
        (self.rows, self.labels, input)
    }
}

impl<I> fmt::Debug for Batch<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("rows", &self.rows)
            .field("labels", &self.labels)
            .finish_non_exhaustive()
    }
}

/// Images, and how their pixels become numbers. Their variants are moved by one pixel in each of the four directions;
/// what comes in at an edge repeats it.
#[derive(Clone, Debug)]
pub struct Images {
    /// The images with their labels.
    pub set: ImageSet,
    /// The scaling of their pixels.
    pub normalisation: Normalisation,
}

impl Images {
    fn loader(&self, order: Order) -> Result<std::iter::Skip<Loader>> {
        let options = LoaderOptions {
            augment: order.augment,
            seed: order.seed,
            ..LoaderOptions::new(order.batch, self.normalisation.clone())
        };
        Ok(Loader::new(&self.set, order.rows, options)?.skip(order.skip))
    }

    fn only(&self, order: Order, device: &Device) -> Result<Tensor<4>> {
        let shape = self.set.shape();
        match self.loader(order)?.next() {
            Some(batch) => Ok(tensor(batch?, device)),
            None => Ok(Tensor::zeros([0, shape[0], shape[1], shape[2]], device)),
        }
    }
}

fn tensor(batch: crate::data::images::Batch, device: &Device) -> Tensor<4> {
    Tensor::from_data(TensorData::new(batch.images, batch.shape), device)
}

impl Batches for Images {
    /// [N, channels, height, width].
    type Input = Tensor<4>;

    fn labels(&self) -> &[i64] {
        self.set.labels()
    }

    fn inputs(&self, rows: &[usize], device: &Device) -> Result<Tensor<4>> {
        self.only(Order::new(rows.to_vec(), rows.len().max(1)), device)
    }

    fn augmented(&self, rows: &[usize], seed: u64, device: &Device) -> Result<Tensor<4>> {
        let order = Order {
            augment: Some(Augment::default()),
            seed,
            ..Order::new(rows.to_vec(), rows.len().max(1))
        };
        self.only(order, device)
    }

    fn blended(
        &self,
        rows: &[usize],
        partners: &[usize],
        own: &[f32],
        device: &Device,
    ) -> Result<Tensor<4>> {
        let share = |shares: Vec<f32>| -> Tensor<4> {
            Tensor::from_data(TensorData::new(shares, [rows.len(), 1, 1, 1]), device)
        };
        let rest = own.iter().map(|own| 1.0 - own).collect();
        let [rows, partners] = [self.inputs(rows, device)?, self.inputs(partners, device)?];
        Ok(rows * share(own.to_vec()) + partners * share(rest))
    }

    fn variants(&self) -> usize {
        4
    }

    fn variant(&self, images: Tensor<4>, number: usize) -> Tensor<4> {
        shifted(images, 2 + number / 2, number.is_multiple_of(2))
    }

    fn row_size(&self) -> usize {
        self.set.shape().iter().product()
    }

    /// Decodes on the host, so that copying can be a lane of its own.
    fn load(&self, order: Order, _: &Device) -> Result<Loading<Tensor<4>>> {
        let data = self.clone();
        let batches = self.loader(order)?;
        Ok(Box::new(batches.map(move |batch| {
            let mut batch = batch?;
            let rows = std::mem::take(&mut batch.rows);
            Ok(Batch::on_host(&data, rows, move |device| {
                tensor(batch, device)
            }))
        })))
    }
}

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
