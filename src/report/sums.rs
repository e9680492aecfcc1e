//! What was summed: the outcome of `muso gram` and `muso merge`.
//!
//! ```
//! use muso::report::{RowCounts, SumsReport};
//!
//! let report = SumsReport {
//!     kind: "merge".into(),
//!     rows: RowCounts { total: 1_000, retained: 990, forgotten: 10 },
//!     ..Default::default()
//! };
//! assert!(report.to_text().contains("1,000 rows, 10 forgotten, 990 retained"));
//! ```

use serde::Serialize;

use super::format;
use super::head::{Phase, RowCounts};

/// Consecutive rows of a feature file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PartReport {
    /// Name of the file.
    pub file: String,
    /// The first row, counted from 0.
    pub first: u64,
    /// The row after the last.
    pub end: u64,
    /// How many of them are forgotten.
    pub forgotten: u64,
}

/// The whole report.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct SumsReport {
    /// `gram` or `merge`.
    pub kind: String,
    /// The version of this crate.
    pub version: String,
    /// The rows in the sums.
    pub rows: RowCounts,
    /// D, the bias not counted.
    pub features: usize,
    /// Whether a bias counts as one more feature.
    pub bias: bool,
    /// C; 0 where the rows have no labels.
    pub classes: usize,
    /// The type of the features, such as `f32`; `mixed` where files differ.
    pub dtype: String,
    /// Where the rows are from.
    pub parts: Vec<PartReport>,
    /// Digest of the sums.
    pub digest: String,
    /// What the user should know before relying on the result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Wall time by phase.
    pub phases: Vec<Phase>,
    /// Wall time of the whole.
    pub seconds: f64,
    /// Threads in use.
    pub threads: usize,
    /// The device that computed, where it was not the processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Peak resident memory, where the system tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
}

impl SumsReport {
    /// The report as pretty-printed JSON with a fixed key order.
    pub fn to_json(&self) -> String {
        // Plain structs with string keys cannot fail to serialise; an empty object is still valid JSON.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_else(|_| "{}".to_owned());
        text.push('\n');
        text
    }

    /// The report as aligned lines for a terminal, ending in a line break.
    pub fn to_text(&self) -> String {
        /// Parts that are listed; a merge of hundreds would push the rest out of sight.
        const LISTED: usize = 8;
        let number = |n: u64| format::count(n as usize);
        let mut out = format!(
            "data    {} rows, {} forgotten, {} retained; {} features ({}){}, {}\n",
            number(self.rows.total),
            number(self.rows.forgotten),
            number(self.rows.retained),
            format::count(self.features),
            format::one_line(&self.dtype),
            if self.bias { " + bias" } else { "" },
            match self.classes {
                0 => "no labels".to_owned(),
                n => format::plural(n, "class", "classes"),
            },
        );
        for part in self.parts.iter().take(LISTED) {
            out.push_str(&format!(
                "part    rows {}..{} of {}{}\n",
                part.first,
                part.end,
                format::one_line(&part.file),
                match part.forgotten {
                    0 => String::new(),
                    n => format!(", {} forgotten", number(n)),
                }
            ));
        }
        if self.parts.len() > LISTED {
            out.push_str(&format!("        and {} more\n", self.parts.len() - LISTED));
        }
        out.push_str(&format!("digest  {}\n", format::one_line(&self.digest)));
        let machine = match &self.device {
            Some(device) => device.clone(),
            None => format::plural(self.threads, "thread", "threads"),
        };
        out.push_str(&format!(
            "time    {} on {machine}{}\n",
            format::seconds(self.seconds),
            match self.peak_memory_bytes {
                None => String::new(),
                Some(peak) => format!(", {} peak memory", format::bytes(peak)),
            }
        ));
        for warning in &self.warnings {
            for (i, line) in format::wrap(warning, 100).iter().enumerate() {
                let name = if i == 0 { "warning:" } else { "        " };
                out.push_str(&format!("{name} {line}\n"));
            }
        }
        out
    }
}
