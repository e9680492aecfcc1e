//! What the terminal and the page both ask of a table.

use crate::outcome::{ScenarioTable, Table};

impl Table {
    /// Returns whether some published value stands beside ours.
    pub(super) fn has_published(&self) -> bool {
        let mut rows = self.scenarios.iter().flat_map(|s| &s.rows);
        rows.any(|row| !row.paper.is_empty())
    }

    /// Returns the distinct notes of all rows, in order of appearance; a note's number is its place here plus one.
    pub(super) fn footnotes(&self) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        for row in self.scenarios.iter().flat_map(|s| &s.rows) {
            if let Some(note) = row.note.as_ref().filter(|note| !notes.contains(note)) {
                notes.push(note.clone());
            }
        }
        notes
    }
}

impl ScenarioTable {
    /// Returns whether times are compared with Retrain's.
    pub(super) fn has_ratios(&self) -> bool {
        self.rows.iter().any(|row| row.time_ratio.is_some())
    }

    /// Returns which metrics are over which rows, metrics over the same rows together: `(["FA", "MIA"], "over …")`.
    pub(super) fn rows_by_metric(&self) -> Vec<(Vec<&'static str>, &str)> {
        let mut groups: Vec<(Vec<&'static str>, &str)> = Vec::new();
        for (metric, text) in &self.over {
            match groups.iter_mut().find(|(_, t)| t == text) {
                Some((titles, _)) => titles.push(metric.title()),
                None => groups.push((vec![metric.title()], text)),
            }
        }
        groups
    }
}
