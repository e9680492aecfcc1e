//! The split of a run for one seed: rows to retain, rows to forget, and the rows that each metric is over.

use crate::data::images::Dataset;
use crate::data::{Forget, Split, TestRows};
use crate::error::Result;
use crate::evaluate::{Judged, judged_rows};

/// An unlearning scenario with its rows for one seed.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name of the scenario in tables and JSON.
    pub scenario: &'static str,
    /// The rows to retain, to forget and to test on.
    pub split: Split,
    /// The rows that each metric is over.
    pub judged: Judged,
}

impl Case {
    /// Returns whether what is forgotten is a class or a part of one.
    pub fn of_class(&self) -> bool {
        ["full-class", "sub-class"].contains(&self.scenario)
    }

    /// Splits the rows of a data set by what one seed forgets.
    ///
    /// # Errors
    /// Returns the errors of [`Forget::select`].
    pub fn new(forget: &Forget, data: &Dataset, seed: u64) -> Result<Self> {
        let selection = forget.select(&data.labelled(), seed)?;
        let split = selection.split(TestRows::All);
        Ok(Self {
            scenario: selection.scenario(),
            judged: judged_rows(&selection, &split),
            split,
        })
    }
}
