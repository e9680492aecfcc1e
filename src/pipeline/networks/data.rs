//! The images of a run: which data set, where it is, how much of it, and opening it.
//!
//! The part `[data]` of a [`Config`](super::Config); a run opens it once, before it looks for the rows to forget.
//! Below is `data::images`, which reads the files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::data::images::{self, Dataset, ImageSet, Kind, Normalisation};
use crate::error::Result;

/// Which images a run works on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Data {
    /// Which data set.
    pub kind: Kind,
    /// Where it is; the embedded one needs none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Side to which the images of a plain folder are scaled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_size: Option<usize>,
    /// Only the first so many training and test rows of each class, the finest that the set has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_class: Option<[usize; 2]>,
    /// Other than the data set's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalisation: Option<Normalisation>,
}

impl Default for Data {
    fn default() -> Self {
        Self {
            kind: Kind::Fashion,
            path: None,
            image_size: None,
            per_class: None,
            normalisation: None,
        }
    }
}

impl Data {
    /// Opens the data set.
    ///
    /// # Errors
    /// If its files are missing or not what they should be.
    pub fn open(&self) -> Result<Dataset> {
        let folder = self.path.as_deref();
        let mut data = match self.image_size {
            Some(size) => images::open_resized(self.kind, folder, size)?,
            None => images::open(self.kind, folder)?,
        };
        if let Some([train, test]) = self.per_class {
            data.train = first_of_each(&data.train, train)?;
            data.test = first_of_each(&data.test, test)?;
        }
        if let Some(normalisation) = &self.normalisation {
            data.normalisation = normalisation.clone();
        }
        Ok(data)
    }
}

/// Returns the first `count` rows of each class, in the order of the set.
fn first_of_each(set: &ImageSet, count: usize) -> Result<ImageSet> {
    let labels = set.fine().map_or(set.labels(), |(labels, _)| labels);
    let mut taken: BTreeMap<i64, usize> = BTreeMap::new();
    let rows: Vec<usize> = (0..labels.len())
        .filter(|&row| {
            let seen = taken.entry(labels[row]).or_default();
            *seen += 1;
            *seen <= count
        })
        .collect();
    set.subset(&rows)
}
