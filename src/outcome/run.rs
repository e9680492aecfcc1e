//! One run on one network: what it is worth, its settings, and what ran when.

use crate::scheduler::Summary;

/// What `muso train`, `unlearn` or `evaluate` did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunReport {
    /// What was run on what.
    pub title: String,
    /// The finding, as a sentence.
    pub headline: String,
    /// The numbers to see first: a name, the number, and what to hold it against.
    pub figures: Vec<[String; 3]>,
    /// The metrics of the table.
    pub columns: Vec<String>,
    /// The models with their values, as the terminal shows them.
    pub models: Vec<(String, Vec<String>)>,
    /// What each metric is, and over which rows.
    pub meanings: Vec<(String, String)>,
    /// Names and values.
    pub settings: Vec<(String, String)>,
    /// How the run used its lanes.
    pub lanes: Summary,
    /// The command that gives the run again.
    pub command: String,
    /// The configuration behind it, as TOML.
    pub config: String,
    /// What it ran on.
    pub machine: String,
    /// Of the program.
    pub version: String,
}
