//! The data set of a run: which images, where they are, how many of each class, and opening them.
//!
//! The part `[data]` of a [`Config`](super::Config); a run opens it once, before it looks for the rows to forget.
//! Below is `data::images`, which reads the files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::data::images::{self, Dataset, ImageSet, Kind, Normalisation};
use crate::error::Result;

/// Data set of a run: its kind, its folder, and the part of it to use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Data {
    /// Kind of data set, such as CIFAR-10 or a plain folder.
    pub kind: Kind,
    /// Folder of the data set; the embedded one needs none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Side in pixels to which the images of Tiny ImageNet or a plain folder are scaled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_size: Option<usize>,
    /// Numbers of training and test rows to take of each class, the finest that the set has; `None` takes all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_class: Option<[usize; 2]>,
    /// Mean and standard deviation of the channels, in place of the data set's own.
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
    /// Opens the data set and takes the part of it that was asked for.
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
