//! Checkpoints of a training session: named arrays and a text, and back, to the same bytes.

use std::collections::BTreeMap;
use std::path::Path;

use muso_models::burn::tensor::{Device, Tensor, TensorData};
use muso_models::{Network, StateDict};
use serde::{Deserialize, Serialize};

use super::network::Session;
use super::optimizer::Optimizer;
use super::schedule::Recipe;
use crate::data::whole::parse_toml;
use crate::error::{Error, Result};
use crate::features::host;

/// The key of the text among a file's metadata.
const KEY: &str = "muso.session";
const NETWORK: &str = "network.";

/// Part of a session that is not an array.
#[derive(Serialize, Deserialize)]
struct Place {
    /// Seed in hexadecimal: integers of TOML end at 2⁶³.
    seed: String,
    epoch: usize,
    step: usize,
    steps: u64,
    loss_sum: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    loss: Option<f64>,
    recipe: Recipe,
}

fn moment(which: &str, index: usize) -> String {
    format!("optimizer.{which}.{index}")
}

impl Session<Network> {
    /// Returns everything that the next step depends on.
    pub fn state(&self) -> (StateDict, BTreeMap<String, String>) {
        let mut arrays = StateDict::new();
        for tensor in self.network.state().iter() {
            let name = format!("{NETWORK}{}", tensor.name);
            arrays.push(name, tensor.shape.clone(), tensor.values.clone());
        }
        let moments = [
            ("first", &self.optimizer.first),
            ("second", &self.optimizer.second),
        ];
        for (which, vectors) in moments {
            for (index, vector) in vectors.iter().enumerate() {
                arrays.push(
                    moment(which, index),
                    vector.dims().to_vec(),
                    host(vector.clone()),
                );
            }
        }
        let place = Place {
            seed: format!("{:x}", self.seed),
            epoch: self.epoch,
            step: self.step,
            steps: self.optimizer.steps,
            loss_sum: self.loss_sum,
            loss: self.loss.is_finite().then_some(self.loss),
            recipe: self.recipe.clone(),
        };
        // TOML, because its floats come back to the last bit.
        let text = toml::to_string(&place).unwrap_or_default();
        (arrays, BTreeMap::from([(KEY.to_owned(), text)]))
    }

    /// Returns the session that [`Session::state`] took apart. `like` is a network of the same make; `path` is named in
    /// errors.
    pub fn from_state(
        like: Network,
        arrays: &StateDict,
        texts: &BTreeMap<String, String>,
        path: &Path,
        device: &Device,
    ) -> Result<Self> {
        let damaged = |problem: String| Error::format(path, problem, "a session that muso saved");
        let text = texts
            .get(KEY)
            .ok_or_else(|| damaged(format!("no `{KEY}` among its metadata")))?;
        let place: Place = parse_toml(text).map_err(|said| damaged(format!("`{KEY}`: {said}")))?;
        let seed = u64::from_str_radix(&place.seed, 16)
            .map_err(|e| damaged(format!("`{KEY}`: seed {}: {e}", place.seed)))?;
        place.recipe.check()?;
        let mut state = StateDict::new();
        for tensor in arrays.iter() {
            if let Some(name) = tensor.name.strip_prefix(NETWORK) {
                state.push(name, tensor.shape.clone(), tensor.values.clone());
            }
        }
        let network = like.load(&state).map_err(|e| damaged(e.to_string()))?;
        let sizes: Vec<usize> = muso_models::params::weights(&network)
            .iter()
            .map(|vector| vector.dims()[0])
            .collect();
        let read = |which: &str| -> Result<Vec<Tensor<1>>> {
            let mut out = Vec::new();
            while let Some(found) = arrays.get(&moment(which, out.len())) {
                if sizes.get(out.len()) != Some(&found.values.len()) {
                    return Err(damaged(format!(
                        "`{}` has {} values",
                        found.name,
                        found.values.len()
                    )));
                }
                let data = TensorData::new(found.values.clone(), [found.values.len()]);
                out.push(Tensor::from_data(data, device));
            }
            if out.is_empty() || out.len() == sizes.len() {
                Ok(out)
            } else {
                Err(damaged(format!(
                    "`{}` is missing",
                    moment(which, out.len())
                )))
            }
        };
        let mut optimizer = Optimizer::new(&place.recipe);
        (optimizer.first, optimizer.second) = (read("first")?, read("second")?);
        optimizer.steps = place.steps;
        Ok(Self {
            network,
            optimizer,
            recipe: place.recipe,
            seed,
            epoch: place.epoch,
            step: place.step,
            loss_sum: place.loss_sum,
            unread: Vec::new(),
            loss: place.loss.unwrap_or(f64::NAN),
        })
    }
}
