//! The defects of a run, each once.

use std::collections::HashMap;

use crate::check::{Finding, Kind};

/// Defects by kind, place and other party; a repeated one only counts up.
#[derive(Debug, Default)]
pub struct Findings {
    list: Vec<Finding>,
    index: HashMap<(Kind, String, u32, String), usize>,
}

impl Findings {
    /// Adds a finding; `other` tells it from others of its kind at its place.
    pub fn add(&mut self, finding: Finding, other: &str) {
        let key = (
            finding.kind,
            finding.site.kernel.clone(),
            finding.site.ptx_line,
            other.to_owned(),
        );
        match self.index.get(&key) {
            Some(&at) => self.list[at].count += finding.count,
            None => {
                self.index.insert(key, self.list.len());
                self.list.push(finding);
            }
        }
    }

    /// All of them, in the order in which they were first seen.
    pub fn list(&self) -> &[Finding] {
        &self.list
    }
}
