//! What happened when a linear head was made to forget rows.
//!
//! Filled by the `muso head` tool; [`HeadReport::to_json`] is for programs, [`HeadReport::to_text`] for the
//! terminal, and [`html::head_page`](super::html::head_page) for a browser. Every claim of exactness in it is a
//! measured number: the residual of the solve, the distance to a head solved afresh, a proven bound.
//!
//! ```
//! use muso::report::{HeadReport, RowCounts};
//!
//! let report = HeadReport {
//!     objective: "ridge".into(),
//!     rows: RowCounts { total: 1_000, retained: 990, forgotten: 10 },
//!     seconds: 0.25,
//!     ..Default::default()
//! };
//! assert!(report.to_text().contains("1,000 rows, 10 forgotten, 990 retained"));
//! // What was not measured is absent, not null.
//! assert!(!report.to_json().contains("verify"));
//! ```

use serde::Serialize;

use super::format::{self, Notation};

/// How many rows there were and what became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct RowCounts {
    /// Rows in the feature file.
    pub total: u64,
    /// Rows that stay.
    pub retained: u64,
    /// Rows that go.
    pub forgotten: u64,
}

/// How well posed the system was and how well it was solved.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Conditioning {
    /// ‖G‖/λ: how far the data outweighs the ridge; absent without a ridge.
    #[serde(skip_serializing_if = "absent")]
    pub ridge_ratio: Option<f64>,
    /// An estimate of the condition number.
    #[serde(skip_serializing_if = "absent")]
    pub condition: Option<f64>,
    /// The smallest pivot (or eigenvalue) of the factor.
    #[serde(skip_serializing_if = "not_finite")]
    pub min_pivot: f64,
    /// The largest pivot (or eigenvalue) of the factor.
    #[serde(skip_serializing_if = "not_finite")]
    pub max_pivot: f64,
    /// `cholesky`, or `eigen` for the rank-revealing fallback.
    pub factor: String,
    /// Numerical rank of the system.
    pub rank: usize,
    /// Relative residual before the refinement step.
    #[serde(skip_serializing_if = "not_finite")]
    pub residual_before: f64,
    /// Relative residual after it.
    #[serde(skip_serializing_if = "not_finite")]
    pub residual_after: f64,
}

/// How far the head moved.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Change {
    /// ‖W_new − W_old‖ / ‖W_old‖, Frobenius.
    #[serde(skip_serializing_if = "not_finite")]
    pub relative: f64,
}

/// How well the given head met what the method assumes of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Premise {
    /// The size of the violation; 0 when the premise holds.
    #[serde(skip_serializing_if = "not_finite")]
    pub residual: f64,
    /// What that number says, in a sentence.
    pub meaning: String,
}

/// The new head against one solved from the retained rows alone.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Verification {
    /// Relative Frobenius distance to the head solved from the retained rows directly.
    #[serde(skip_serializing_if = "not_finite")]
    pub distance_relative: f64,
    /// Norm of the objective's gradient at the new head, over the retained rows.
    #[serde(skip_serializing_if = "not_finite")]
    pub gradient_norm: f64,
    /// ‖gradient‖/λ: a proven bound of the distance to the exact minimiser. Absent without a ridge.
    #[serde(skip_serializing_if = "absent")]
    pub distance_bound: Option<f64>,
}

/// Accuracy in percent, of the old head and of the new one.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Accuracy {
    /// The old head on the retained rows.
    #[serde(skip_serializing_if = "not_finite")]
    pub retained_before: f64,
    /// The new head on the retained rows.
    #[serde(skip_serializing_if = "not_finite")]
    pub retained_after: f64,
    /// The old head on the forgotten rows.
    #[serde(skip_serializing_if = "not_finite")]
    pub forgotten_before: f64,
    /// The new head on the forgotten rows.
    #[serde(skip_serializing_if = "not_finite")]
    pub forgotten_after: f64,
}

/// Wall time of one phase.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Phase {
    /// Its name: `read`, `gram`, `factor`, …
    pub name: String,
    /// How long it took.
    #[serde(skip_serializing_if = "not_finite")]
    pub seconds: f64,
}

/// The whole report.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(tag = "kind", rename = "head")]
pub struct HeadReport {
    /// The version of this crate.
    pub version: String,
    /// `ridge` or `interpolate`.
    pub objective: String,
    /// `primal` (a D×D system) or `dual` (one of the rows).
    pub route: String,
    /// Where the targets of the retained rows came from: `labels`, or the given `head`.
    pub source: String,
    /// The rows.
    pub rows: RowCounts,
    /// D, the bias not counted.
    pub features: usize,
    /// Whether the head has a bias.
    pub bias: bool,
    /// C, the outputs of the head.
    pub classes: usize,
    /// The type of the features in the file, such as `f32`.
    pub dtype: String,
    /// The type in which the new head is stored; distances and accuracies are those of the stored head.
    pub stored: String,
    /// λ.
    #[serde(skip_serializing_if = "not_finite")]
    pub ridge: f64,
    /// The linear system.
    pub conditioning: Conditioning,
    /// tr(Π)/D: the share of the directions that the retained rows pin down.
    #[serde(skip_serializing_if = "absent")]
    pub trace_ratio: Option<f64>,
    /// How far the head moved.
    pub change: Change,
    /// How well the method's assumption held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub premise: Option<Premise>,
    /// The comparison with a head solved afresh, when it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verification>,
    /// Accuracies, when there are class labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Accuracy>,
    /// What the user should know before relying on the result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Wall time by phase.
    pub phases: Vec<Phase>,
    /// Wall time of the whole.
    #[serde(skip_serializing_if = "not_finite")]
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

fn not_finite(x: &f64) -> bool {
    !x.is_finite()
}

fn absent(x: &Option<f64>) -> bool {
    !x.is_some_and(f64::is_finite)
}

impl HeadReport {
    /// What it ran on: the device, or the threads.
    pub(super) fn machine(&self) -> String {
        let threads = || format::plural(self.threads, "thread", "threads");
        self.device.clone().unwrap_or_else(threads)
    }

    /// The report as pretty-printed JSON with a fixed key order.
    pub fn to_json(&self) -> String {
        // Plain structs with string keys cannot fail to serialise; an empty object is still valid JSON.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_else(|_| "{}".to_owned());
        text.push('\n');
        text
    }

    /// The report as aligned lines for a terminal, ending in a line break.
    pub fn to_text(&self) -> String {
        let facts = self.facts(Notation::Plain);
        let name_width = facts
            .iter()
            .map(|f| format::width(f.name))
            .max()
            .unwrap_or(0);
        let mut out = String::new();
        for Fact { name, value, .. } in &facts {
            let pad = name_width - format::width(name);
            out.push_str(&format!("{name}{:pad$}  {}\n", "", format::one_line(value)));
        }
        if !self.phases.is_empty() {
            let parts: Vec<String> = self
                .phases
                .iter()
                .map(|p| {
                    format!(
                        "{} {}",
                        format::one_line(&p.name),
                        format::seconds(p.seconds)
                    )
                })
                .collect();
            let lines = format::wrap_parts(&parts, ", ", 108 - name_width);
            let pad = name_width.saturating_sub(6);
            for (i, line) in lines.iter().enumerate() {
                let name = if i == 0 { "phases" } else { "      " };
                out.push_str(&format!("{name}{:pad$}  {line}\n", ""));
            }
        }
        for warning in &self.warnings {
            for (i, line) in format::wrap(warning, 100).iter().enumerate() {
                let name = if i == 0 { "warning:" } else { "        " };
                out.push_str(&format!("{name} {line}\n"));
            }
        }
        out
    }

    /// The lines of the report, in order; what was not measured has none.
    pub(crate) fn facts(&self, notation: Notation) -> Vec<Fact> {
        let mut facts = Vec::new();
        let mut fact = |name, value: String, explanation| {
            facts.push(Fact {
                name,
                value,
                explanation,
            });
        };
        let number = |x: f64| format::compact(x, notation);
        let percent = |x: f64| match x.is_finite() {
            true => format!("{x:.2} %"),
            false => format::ABSENT.to_owned(),
        };
        let rows = &self.rows;
        fact(
            "data",
            format!(
                "{} rows, {} forgotten, {} retained; {} features ({}){}, {}",
                format::count(rows.total as usize),
                format::count(rows.forgotten as usize),
                format::count(rows.retained as usize),
                format::count(self.features),
                self.dtype,
                if self.bias { " + bias" } else { "" },
                format::plural(self.classes, "class", "classes"),
            ),
            "",
        );
        let targets = match self.source.as_str() {
            "head" => "the given head",
            "labels" => "the labels of the file",
            other => other,
        };
        fact(
            "objective",
            format!(
                "{}, λ = {}, {} route, from {targets}",
                self.objective,
                format::given(self.ridge, notation),
                self.route
            ),
            "The dual route solves a system of the size of the rows, the primal one of the size of the features; \
             both give the same head.",
        );
        if let Some(verify) = &self.verify {
            fact(
                "distance",
                format!(
                    "{} relative, to the head solved from the retained rows alone",
                    number(verify.distance_relative)
                ),
                "‖W_new − W_retrained‖ / ‖W_retrained‖ (Frobenius). The retrained head never saw a forgotten row.",
            );
            let bound = verify.distance_bound.filter(|b| b.is_finite());
            fact(
                "gradient",
                match bound {
                    Some(bound) => format!(
                        "norm {}, so the exact minimiser is within {} of the new head",
                        number(verify.gradient_norm),
                        number(bound)
                    ),
                    None => format!(
                        "norm {} over the retained rows",
                        number(verify.gradient_norm)
                    ),
                },
                match bound {
                    Some(_) => {
                        "The objective is λ-strongly convex, so ‖gradient‖/λ bounds the distance, up to the rounding \
                         of the gradient itself."
                    }
                    None => "Zero at an exact minimiser.",
                },
            );
        }
        let system = &self.conditioning;
        fact(
            "residual",
            format!(
                "{} relative, {} before refinement",
                number(system.residual_after),
                number(system.residual_before)
            ),
            "Of the linear system, before and after one step of iterative refinement.",
        );
        let mut conditioning = format!(
            "{}, rank {}, pivots {} to {}",
            system.factor,
            format::count(system.rank),
            number(system.min_pivot),
            number(system.max_pivot)
        );
        for (name, value) in [
            ("‖G‖/λ", system.ridge_ratio),
            ("condition", system.condition),
        ] {
            if let Some(value) = value.filter(|v| v.is_finite()) {
                conditioning.push_str(&format!(", {name} {}", number(value)));
            }
        }
        fact(
            "conditioning",
            conditioning,
            "Pivots and condition are those of the matrix scaled to a diagonal of 1; the larger the condition, the more digits a solve can lose.",
        );
        if let Some(ratio) = self.trace_ratio.filter(|r| r.is_finite()) {
            fact(
                "tr(Π)/D",
                format!("{ratio:.6}"),
                "The share of the feature directions that the retained rows pin down. Near 1, λ alone decides what changes.",
            );
        }
        fact(
            "change",
            format!(
                "{} relative, from the old head to the new one",
                number(self.change.relative)
            ),
            "‖W_new − W_old‖ / ‖W_old‖ (Frobenius).",
        );
        if let Some(premise) = &self.premise {
            let meaning = premise.meaning.trim();
            fact(
                "premise",
                format!(
                    "{}{}{meaning}",
                    number(premise.residual),
                    if meaning.is_empty() { "" } else { "; " }
                ),
                "How far the given head is from what the method assumes of it.",
            );
        }
        if let Some(accuracy) = &self.accuracy {
            let pair =
                |before, after| format!("{} before, {} after", percent(before), percent(after));
            fact(
                "retained",
                format!(
                    "accuracy {}",
                    pair(accuracy.retained_before, accuracy.retained_after)
                ),
                "Over the retained rows of the file.",
            );
            fact(
                "forgotten",
                format!(
                    "accuracy {}",
                    pair(accuracy.forgotten_before, accuracy.forgotten_after)
                ),
                "Over the forgotten rows of the file.",
            );
        }
        let mut run = format!("{} on {}", format::seconds(self.seconds), self.machine());
        if let Some(peak) = self.peak_memory_bytes {
            run.push_str(&format!(", {} peak memory", format::bytes(peak)));
        }
        fact("time", run, "");
        facts
    }
}

/// One line of the report.
pub(crate) struct Fact {
    /// What it is about.
    pub(crate) name: &'static str,
    /// The finding.
    pub(crate) value: String,
    /// How to read it; empty when it speaks for itself.
    pub(crate) explanation: &'static str,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn json_omits_what_was_not_measured() {
        let mut report = sample::head();
        report.trace_ratio = None;
        report.verify = None;
        report.conditioning.condition = Some(f64::INFINITY);
        report.conditioning.min_pivot = f64::NAN;
        let text = report.to_json();
        assert!(!text.contains("null") && !text.contains("NaN"));
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["kind"], "head");
        assert_eq!(json["rows"]["forgotten"], 1_000);
        for key in ["trace_ratio", "verify"] {
            assert!(json.get(key).is_none(), "{key}");
        }
        for key in ["condition", "min_pivot"] {
            assert!(json["conditioning"].get(key).is_none(), "{key}");
        }
        assert!(json["conditioning"]["max_pivot"].is_f64());
        assert_eq!(json["phases"][0]["name"], "read");
    }

    #[test]
    fn text_is_aligned_and_fits() {
        let text = sample::head().to_text();
        for line in text.lines() {
            assert!(format::width(line) <= 110, "{line}");
        }
        // "conditioning" is the longest name; every value starts two columns after it.
        let column = "conditioning".len() + 2;
        for line in text
            .lines()
            .filter(|l| !l.starts_with("warning") && !l.starts_with(' '))
        {
            let around: Vec<char> = line.chars().skip(column - 2).take(3).collect();
            assert!(around[..2] == [' ', ' '] && around[2] != ' ', "{line}");
        }
        assert!(text.contains("3.1e-13 relative"));
        assert!(text.contains("warning: "));
    }

    #[test]
    fn text_of_a_report_without_numbers_has_no_nan() {
        let mut report = HeadReport {
            ridge: f64::NAN,
            seconds: f64::INFINITY,
            ..Default::default()
        };
        report.conditioning.residual_after = f64::NAN;
        report.accuracy = Some(Accuracy {
            retained_after: f64::NAN,
            ..Default::default()
        });
        let text = report.to_text();
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
