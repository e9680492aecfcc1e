//! Checkpoints of networks: the weights in a file, and the make of the network in the file's metadata.
//!
//! Runs write their networks so, and read those of other programs, whose make has to be seen from the shapes of their
//! weights. Below is `data::checkpoint`, which knows arrays and formats but no networks.

use std::collections::BTreeMap;
use std::path::Path;

use muso_models::{Architecture, Network, NetworkConfig};

use super::config::Config;
use crate::data::checkpoint::read_checkpoint;
use crate::data::images::Dataset;
use crate::data::whole::parse_toml;
use crate::error::{Error, Result};

/// Metadata key of the network's make.
pub(super) const MAKE: &str = "muso.network";

/// Returns the make of a network (architecture, width, classes, image shape) as TOML, for a file's metadata.
pub fn make_text(network: &NetworkConfig) -> String {
    toml::to_string(network).unwrap_or_default()
}

/// Returns the metadata of a file that holds a network of this make.
pub(super) fn metadata(make: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(MAKE.to_owned(), make.to_owned())])
}

/// Reads a checkpoint, in any format, into a network of the same make.
pub fn load_into(like: Network, path: &Path) -> Result<Network> {
    let (arrays, _) = read_checkpoint(path)?;
    like.load(&arrays).map_err(|error| {
        Error::format(path, error.to_string(), "a checkpoint of this architecture")
    })
}

/// Returns the make of the network in a checkpoint, from its metadata or else from the shapes of its weights.
pub fn make_of(path: &Path) -> Result<NetworkConfig> {
    let (arrays, texts) = read_checkpoint(path)?;
    let unknown = |problem: String| {
        Error::format(
            path,
            problem,
            "a network whose make shows, or `.architecture`",
        )
    };
    let make: NetworkConfig = match texts.get(MAKE) {
        Some(text) => parse_toml(text).map_err(|said| {
            Error::format(path, format!("`{MAKE}`: {said}"), "a make that muso wrote")
        })?,
        None => NetworkConfig::guess(&arrays).map_err(|e| unknown(e.to_string()))?,
    };
    // The network is made before its weights are looked for: a small file must not ask for a large one.
    let least = make.least_weights().map_err(|e| unknown(e.to_string()))?;
    let values: u64 = arrays.iter().map(|tensor| tensor.values.len() as u64).sum();
    if values < least {
        let problem =
            format!("{values} values, and the network that it describes has {least} or more");
        return Err(unknown(problem));
    }
    Ok(make)
}

/// Returns the make of a checkpoint for the images at hand: as asked for, or from the checkpoint.
pub(super) fn make_for(
    path: &Path,
    config: &Config,
    asked: Option<Architecture>,
    data: &Dataset,
) -> Result<NetworkConfig> {
    if asked.is_some() {
        return Ok(config.network(data));
    }
    let found = make_of(path)?;
    let classes = data.train.classes().len();
    if found.classes != classes {
        return Err(Error::format(
            path,
            format!(
                "the network has {} classes, the data set has {classes}",
                found.classes
            ),
            "a network and a data set that belong together",
        ));
    }
    if let Some(width) = config.network.width
        && found.width.is_some_and(|own| own != width)
    {
        return Err(Error::format(
            path,
            format!("a network of width {}", found.width.unwrap_or_default()),
            format!("one of width {width}, or no `.width`"),
        ));
    }
    Ok(NetworkConfig {
        image: data.train.shape(),
        ..found
    })
}
