//! A data set and a network at a [`Workplace`]: what single runs and comparisons both stand on.
//!
//! A run puts its data and its network here, takes the first weights and the [`Task`] of a method from here, and has
//! every model that comes out measured here.

use std::sync::Arc;

use muso_models::{Network, NetworkConfig};

use super::scores::Measured;
use super::workplace::Workplace;
use crate::data::Split;
use crate::data::images::{Dataset, Normalisation};
use crate::engine::AnyEngine;
use crate::error::{Error, Result};
use crate::evaluate::{Judged, Mia, MiaOutputs, Outputs, RowSet, Scores, Source};
use crate::features::{Feed, Images};
use crate::methods::networks::Task;
use crate::progress::Progress;
use crate::seeds::Purpose;
use crate::train::Recipe;

/// Rows on which the accuracy after each epoch is taken.
const CURVE_ROWS: usize = 500;

/// A data set and a network at a workplace.
#[derive(Debug)]
pub struct Workbench {
    /// Engine, device and threads that it computes with.
    pub place: Workplace,
    /// The training images, on their way to the device.
    pub train: Feed,
    /// The test images, on their way to the device.
    pub test: Feed,
    /// Architecture, width, classes and image shape of the network.
    pub network: NetworkConfig,
}

impl Workbench {
    /// Puts a data set and a network at a workplace.
    ///
    /// # Errors
    /// If the network cannot be made.
    pub fn new(place: &Workplace, data: Dataset, network: NetworkConfig) -> Result<Self> {
        network.check()?;
        let feed = |set, normalisation: &Normalisation| Feed {
            data: Images {
                set,
                normalisation: normalisation.clone(),
            },
            device: place.device.clone(),
            scheduler: place.scheduler.clone(),
        };
        Ok(Self {
            train: feed(data.train, &data.normalisation),
            test: feed(data.test, &data.normalisation),
            place: place.clone(),
            network,
        })
    }

    /// Returns an untrained network with the initial weights that `seed` draws.
    pub fn initial(&self, seed: u64) -> Result<Network> {
        let device = &self.train.device;
        Ok(self
            .network
            .init(Purpose::InitialWeights.seed(seed), device)?)
    }

    /// Returns the task of unlearning some of the training rows, without snapshots and with seed 0. The networks are the
    /// trained one and the one that its training started from.
    pub fn task<'a>(
        &'a self,
        split: &'a Split,
        networks: [&'a Network; 2],
        recipe: &'a Recipe,
        engine: &'a AnyEngine,
    ) -> Task<'a> {
        let rows = [split.retain.as_slice(), split.forget.as_slice()];
        let mut task = Task::new(&self.train, rows, networks, recipe, engine);
        task.untrained = Some(Arc::new(|seed| {
            Ok(self.network.init(seed, &self.train.device)?)
        }));
        task
    }

    /// Returns the logits of a network for some rows, with their labels.
    pub fn outputs(
        &self,
        network: &Network,
        rows: &RowSet,
        progress: &mut dyn Progress,
    ) -> Result<Outputs> {
        let feed = match rows.source {
            Source::Train => &self.train,
            Source::Test => &self.test,
        };
        Outputs::of(feed, network, &rows.rows, progress)
    }

    /// Returns the percentage of `rows` of one of the feeds that a network classifies rightly.
    pub fn accuracy(
        &self,
        feed: &Feed,
        network: &Network,
        rows: &[usize],
        progress: &mut dyn Progress,
    ) -> Result<f64> {
        Ok(Outputs::of(feed, network, rows, progress)?.accuracy())
    }

    /// Measures RA, TA, FA and MIA of a network over the rows that each is judged by.
    pub fn measure(
        &self,
        network: &Network,
        judged: &Judged,
        mia: Mia,
        progress: &mut dyn Progress,
    ) -> Result<Measured> {
        let mut says = |rows: &RowSet| self.outputs(network, rows, progress);
        let retained = says(&judged.ra)?;
        let tested = says(&judged.ta)?;
        let forgotten = says(&judged.forgotten)?;
        // Where a metric is over rows that were passed already, they are not passed again.
        let fa = if judged.fa == judged.forgotten {
            forgotten.accuracy()
        } else {
            says(&judged.fa)?.accuracy()
        };
        let others = match judged.non_members(mia) {
            rows if *rows == judged.ta => tested.clone(),
            rows => says(rows)?,
        };
        let mia = mia.percent(&MiaOutputs {
            retained: &retained,
            test: &others,
            forgotten: &forgotten,
        })?;
        Ok(Measured {
            scores: Scores {
                ra: retained.accuracy(),
                ta: tested.accuracy(),
                fa,
                mia,
            },
            test_entropies: tested.entropies(),
            forgotten,
        })
    }

    /// Measures RA, TA and FA over at most 500 rows each, for curves.
    pub fn glance(&self, network: &Network, judged: &Judged) -> Result<[f64; 3]> {
        let few = |rows: &RowSet| {
            let step = rows.rows.len().div_ceil(CURVE_ROWS).max(1);
            let rows = RowSet {
                rows: rows.rows.iter().copied().step_by(step).collect(),
                ..rows.clone()
            };
            Ok::<f64, Error>(self.outputs(network, &rows, &mut ())?.accuracy())
        };
        Ok([few(&judged.ra)?, few(&judged.ta)?, few(&judged.fa)?])
    }
}
