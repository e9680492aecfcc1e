//! The report of an audit for a terminal, and the cells that its page shares.

use super::format::{self, ABSENT};
use crate::outcome::{AuditMetric, AuditReport, AuditVerdict};

/// No line is longer.
const COLUMNS: usize = 100;

/// The headings of the table; the last is left out where there is no original model.
pub(super) const HEADINGS: [&str; 6] = [
    "metric",
    "rows",
    "unlearned",
    "retrained",
    "excess",
    "original",
];

impl AuditReport {
    /// Returns the report as lines for a terminal, ending in a line break.
    pub fn to_text(&self) -> String {
        let mut out = format!(
            "audit   {}\nrows    {}\n",
            self.models_in_words(),
            self.rows_in_words()
        );
        let held_out = self.held_out_in_words();
        for (name, text) in [
            ("control", &held_out),
            ("verdict", &self.verdict_in_words()),
        ] {
            push(&mut out, name, text);
        }
        out.push('\n');
        let measured: Vec<&AuditMetric> = self.measured().collect();
        let cells: Vec<Vec<String>> = measured.iter().map(|metric| self.cells(metric)).collect();
        let header: Vec<String> = self.headings().map(str::to_owned).collect();
        let widths: Vec<usize> = (0..header.len())
            .map(|column| {
                let all = std::iter::once(&header).chain(&cells);
                all.map(|row| format::width(&row[column]))
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        for row in std::iter::once(&header).chain(&cells) {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let air = " ".repeat(width - format::width(cell));
                line.push_str(&match column {
                    0 | 1 => format!("{cell}{air}  "),
                    _ => format!("{air}{cell}  "),
                });
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out.push('\n');
        push(&mut out, "*", &self.legend());
        for (names, needs) in self.absent() {
            push(&mut out, "absent", &format!("{names}: {needs}"));
        }
        for (name, text) in self.explanations() {
            push(&mut out, "", &format!("{name}: {text}"));
        }
        out.push_str(&format!("time    {}\n", self.time_in_words()));
        for warning in &self.warnings {
            push(&mut out, "warning:", warning);
        }
        out
    }

    /// The metrics that have a number.
    pub(super) fn measured(&self) -> impl Iterator<Item = &AuditMetric> {
        self.metrics.iter().filter(|metric| metric.number.is_some())
    }

    /// The headings of the columns that there are.
    pub(super) fn headings(&self) -> impl Iterator<Item = &'static str> {
        let count = match self.models.original {
            0 => HEADINGS.len() - 1,
            _ => HEADINGS.len(),
        };
        HEADINGS.into_iter().take(count)
    }

    /// The cells of a metric that has a number.
    pub(super) fn cells(&self, metric: &AuditMetric) -> Vec<String> {
        let number = metric.number.unwrap_or_default();
        let mark = if metric.decides { " *" } else { "" };
        let floor = match number.spread {
            Some(spread) => format!("{} ± {}", shown(number.retrained), shown(spread)),
            None => shown(number.retrained),
        };
        let mut cells = vec![
            format!("{}{mark}", metric.name),
            metric.over.to_owned(),
            shown(number.value),
            floor,
            excess(number.excess),
        ];
        if self.models.original > 0 {
            cells.push(match metric.original {
                Some(original) => {
                    format!("{} ({})", shown(original.value), excess(original.excess))
                }
                None => ABSENT.to_owned(),
            });
        }
        cells
    }

    /// The metrics that could not be computed, those with the same reason together.
    pub(super) fn absent(&self) -> Vec<(String, String)> {
        let mut found: Vec<(String, String)> = Vec::new();
        for metric in &self.metrics {
            let Some(why) = &metric.absent else { continue };
            let name = format!("{} ({})", metric.name, metric.over);
            match found.iter_mut().find(|(_, known)| known == why) {
                Some((names, _)) => names.push_str(&format!(", {name}")),
                None => found.push((name, why.clone())),
            }
        }
        found
    }

    /// What each metric is, needs and how it is good, once for those that differ in their rows alone.
    pub(super) fn explanations(&self) -> Vec<(&str, String)> {
        let mut found: Vec<(&str, String)> = Vec::new();
        for metric in &self.metrics {
            let text = format!("{} {} Needs {}.", metric.what, metric.good, metric.needs);
            let known = |(_, other): &&(&str, String)| other.starts_with(metric.what);
            if metric.what.starts_with("The same") || !found.iter().any(|f| known(&f)) {
                let name = metric.name.as_str();
                if !found.iter().any(|(other, _)| *other == name) {
                    found.push((name, text));
                }
            }
        }
        found
    }

    /// How to read the table.
    pub(super) fn legend(&self) -> String {
        format!(
            "the verdict rests on these, each within {} spreads. Retrained: the same number of retrained models that were held \
             out, ± its spread over draws of them. Excess: how far beyond that, in spreads. All numbers are at equal counts \
             of models; the JSON output has them with all models too.",
            self.spreads
        )
    }

    pub(super) fn models_in_words(&self) -> String {
        let models = &self.models;
        let original = match models.original {
            0 => String::new(),
            n => format!(", {n} original"),
        };
        format!(
            "{} against {} retrained{original}",
            format::plural(models.unlearned, "unlearned model", "unlearned models"),
            format::count(models.retrained),
        )
    }

    pub(super) fn rows_in_words(&self) -> String {
        let rows = &self.rows;
        format!(
            "{} forgotten, {} retained, {} test, of {}",
            format::count(rows.forgotten),
            format::count(rows.retained),
            format::count(rows.test),
            format::count(rows.total)
        )
    }

    pub(super) fn held_out_in_words(&self) -> String {
        let held = &self.held_out;
        match held.groups {
            0 => "no retrained models could be held out".to_owned(),
            groups => format!(
                "{} of {groups} held-out groups of {} pass",
                held.passed,
                format::plural(held.models, "retrained model", "retrained models"),
            ),
        }
    }

    fn verdict_in_words(&self) -> String {
        format!("{}. {}", self.verdict.words().to_uppercase(), self.reason)
    }

    pub(super) fn time_in_words(&self) -> String {
        format!(
            "{} on {}{}",
            format::seconds(self.seconds),
            format::plural(self.threads, "thread", "threads"),
            match self.peak_memory_bytes {
                None => String::new(),
                Some(peak) => format!(", {} peak memory", format::bytes(peak)),
            }
        )
    }
}

impl AuditVerdict {
    /// The verdict as a headline.
    pub(super) fn headline(self) -> &'static str {
        match self {
            Self::Pass => "The unlearned models pass for retrained ones",
            Self::Fail => "The unlearned models can be told from retrained ones",
            Self::CannotTell => "The audit cannot tell",
        }
    }
}

/// Appends a paragraph with a name before its first line.
fn push(out: &mut String, name: &str, text: &str) {
    let column = name.len().max(7) + 1;
    for (i, line) in format::wrap(text, COLUMNS - column).iter().enumerate() {
        let lead = if i == 0 { name } else { "" };
        out.push_str(format!("{lead:<column$}{line}").trim_end());
        out.push('\n');
    }
}

/// A number with about four digits.
fn shown(x: f64) -> String {
    match x.abs() {
        _ if !x.is_finite() => ABSENT.to_owned(),
        size if size >= 1e5 => format!("{x:.1e}"),
        size if size >= 100.0 => format!("{x:.1}"),
        size if size >= 10.0 => format!("{x:.2}"),
        size if size >= 1e-3 || size == 0.0 => format!("{x:.4}"),
        _ => format!("{x:.1e}"),
    }
}

/// Spreads beyond the floor.
fn excess(excess: Option<f64>) -> String {
    match excess {
        None => ABSENT.to_owned(),
        Some(x) if x.abs() >= 1e4 => format!("{x:.0e}"),
        Some(x) if x.abs() >= 100.0 => format!("{x:.0}"),
        // Adding zero turns −0 into 0.
        Some(x) => format!("{:.1}", (x * 10.0).round() / 10.0 + 0.0),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::outcome::{AuditModels, AuditNumber, OriginalMetric};
    use crate::report::html::tests::balanced;
    use crate::report::{Render, Style};

    fn report() -> AuditReport {
        let metric = |name: &str, number, absent: Option<&str>| AuditMetric {
            key: name.to_lowercase(),
            name: name.into(),
            over: "forgotten",
            what: "What it is.",
            good: "What is good.",
            needs: "4 unlearned and 8 retrained models".into(),
            decides: true,
            number,
            absent: absent.map(str::to_owned),
            original: Some(OriginalMetric {
                value: 28.8,
                excess: Some(2860.0),
            }),
        };
        let number = AuditNumber {
            value: 0.1234,
            retrained: 0.12,
            spread: Some(0.01),
            excess: Some(0.34),
            with_all_models: 0.11,
        };
        AuditReport {
            verdict: AuditVerdict::Pass,
            reason: "Nothing here tells <them> apart.".into(),
            spreads: 4.0,
            models: AuditModels {
                unlearned: 20,
                retrained: 40,
                original: 1,
            },
            metrics: vec![
                metric("KLOM", Some(number), None),
                metric("ToW", None, Some("needs logits")),
            ],
            margins: vec![("retrained", vec![(0.0, 0.0), (1.0, 5.0), (2.0, f64::NAN)])],
            klom: vec![("unlearned", vec![(0.0, 0.1), (100.0, 4.0)])],
            warnings: vec!["heed\x1b[2J this".into()],
            ..Default::default()
        }
    }

    #[test]
    fn a_terminal_gets_lines_of_a_hundred_columns() {
        let text = report().text(Style::default());
        assert!(
            text.lines().all(|line| format::width(line) <= COLUMNS),
            "{text}"
        );
        for words in [
            "20 unlearned models against 40 retrained, 1 original",
            "PASS. Nothing here",
            "0.1200 ± 0.0100",
            "28.80 (2860)",
            "ToW (forgotten): needs logits",
            "Needs 4 unlearned and 8 retrained models.",
        ] {
            assert!(text.contains(words), "no {words:?} in:\n{text}");
        }
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn pages_are_whole_whatever_the_numbers() {
        for report in [report(), AuditReport::default()] {
            let page = report.page();
            balanced(&page).unwrap();
            for needle in ["http", "<script", "NaN", ">inf"] {
                assert!(!page.contains(needle), "{needle}");
            }
        }
        let page = report().page();
        assert!(page.contains("tells &lt;them&gt; apart") && page.contains("<svg"));
    }
}
