//! The rows of a run for one seed: what is retained, what is forgotten, and over what each metric is.

use crate::data::images::Dataset;
use crate::data::{Forget, Split, TestRows};
use crate::error::Result;
use crate::evaluate::{Judged, judged_rows};

/// A scenario with its rows for one seed.
#[derive(Clone, Debug)]
pub struct Case {
    /// The name of the scenario in tables and JSON.
    pub scenario: &'static str,
    /// The rows to retain, to forget and to test on.
    pub split: Split,
    /// The rows that each metric is over.
    pub judged: Judged,
}

impl Case {
    /// Finds the rows of a data set that one seed forgets.
    ///
    /// # Errors
    /// As [`Forget::select`].
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
