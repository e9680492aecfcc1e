//! One run on one network: what it is worth, its settings, and what ran when.

use crate::scheduler::Summary;

/// Outcome of `muso train`, `unlearn` or `evaluate`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunReport {
    /// Title: the command, the model and the data.
    pub title: String,
    /// The finding, as a sentence.
    pub headline: String,
    /// The numbers to see first: a name, the number, and what to hold it against.
    pub figures: Vec<[String; 3]>,
    /// The metrics of the table.
    pub columns: Vec<String>,
    /// The models with their values, as the terminal shows them.
    pub models: Vec<(String, Vec<String>)>,
    /// Definition of each metric, and the rows it is over.
    pub meanings: Vec<(String, String)>,
    /// Settings, as names and values.
    pub settings: Vec<(String, String)>,
    /// Use of the lanes by the run.
    pub lanes: Summary,
    /// The command that gives the run again.
    pub command: String,
    /// The configuration behind it, as TOML.
    pub config: String,
    /// Description of the machine.
    pub machine: String,
    /// Version of the program.
    pub version: String,
}
