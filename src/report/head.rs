//! The report of a head for people: the same lines on a terminal and on a page.

use super::exact;
use super::format::{self, Notation};
use crate::outcome::HeadReport;

impl HeadReport {
    /// Returns what it ran on: the device, or the threads.
    pub(super) fn machine(&self) -> String {
        let threads = || format::plural(self.threads, "thread", "threads");
        self.device.clone().unwrap_or_else(threads)
    }

    /// Returns the report as aligned lines for a terminal, ending in a line break.
    pub(super) fn lines(&self) -> String {
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

    /// Returns the lines of the report, in order; what was not measured has none.
    pub(super) fn facts(&self, notation: Notation) -> Vec<Fact> {
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
        if let Some(exact) = &self.exact {
            fact(
                "exact",
                exact::in_words(exact, notation),
                "Features are rounded to multiples of a power of two, one for each column, which moves values by so much of \
                 themselves; sums, and subtracting from them, are free of rounding. Rows beyond the bits are summed exactly \
                 too, the long way.",
            );
        }
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

/// A line of the report.
pub(super) struct Fact {
    /// Subject of the line.
    pub(super) name: &'static str,
    /// Value of the finding.
    pub(super) value: String,
    /// Explanation of the value; empty when it speaks for itself.
    pub(super) explanation: &'static str,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::outcome::{Accuracy, sample};

    #[test]
    fn text_is_aligned_and_fits() {
        let text = sample::head().lines();
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
        let text = report.lines();
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
