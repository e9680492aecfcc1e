//! The defects of a run, each once.

use std::collections::HashMap;

use serde::Deserialize;

use crate::check::{Finding, Kind};

/// A kind of defect that the kernels of somebody else are known to have.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tolerated {
    /// The kind.
    pub kind: Kind,
    /// How the names of the kernels begin.
    pub kernels: String,
}

/// Defects by kind, place and other party; a repeated one only counts up.
#[derive(Debug, Default)]
pub struct Findings {
    /// What is counted and otherwise let be.
    pub tolerate: Vec<Tolerated>,
    /// How often something was.
    pub tolerated: u64,
    list: Vec<Finding>,
    index: HashMap<(Kind, String, u32, String), usize>,
}

impl Findings {
    /// Adds a finding; `other` tells it from others of its kind at its place.
    pub fn add(&mut self, finding: Finding, other: &str) {
        let site = &finding.site.kernel;
        let covers = |t: &Tolerated| t.kind == finding.kind && site.starts_with(&t.kernels);
        if self.tolerate.iter().any(covers) {
            self.tolerated += finding.count;
            return;
        }
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
