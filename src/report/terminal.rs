//! Tables for a terminal.
//!
//! Each method has a line with our `mean ± std`; right below it, digit under digit, is the line with what the paper
//! published. (Side by side, eight such columns would need 140 characters.) The smallest seed
//! gap of a scenario is starred. At most 100 columns wide: where the numbers of a line do not fit, first the air around
//! them gives way, then a decimal, then the spreads, which the page and the JSON output have.
//!
//! ```
//! use muso::outcome::{Metric, Row, ScenarioTable, Stat, Table, paper};
//! use muso::report::{Render, Style};
//!
//! let row = Row {
//!     method: "Retrain".into(),
//!     values: [(Metric::Ta, Stat { mean: 50.91, std: 1.7 })].into(),
//!     paper: paper::table1("full-class", "Retrain"),
//!     ..Default::default()
//! };
//! let scenario = ScenarioTable { name: "full-class".into(), rows: vec![row], ..Default::default() };
//! let table = Table { scenarios: vec![scenario], ..Default::default() };
//! let text = table.text(Style { colour: false });
//! assert!(text.contains("50.91 ± 1.70"));
//! assert!(text.contains("50.77 ± 1.80"));
//! ```

use super::format::{self, Notation};
use super::run::Sheet;
use crate::outcome::{MethodUpdates, Metric, NetworkReport, ScenarioTable, Table};

/// No line is longer.
const COLUMNS: usize = 100;

/// Style of terminal output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// Use ANSI colours. The caller knows whether the output is a terminal that wants them.
    pub colour: bool,
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        match self.colour {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }

    fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }
}

/// Returns the whole table, ending in a line break.
pub(super) fn table(table: &Table, style: Style) -> String {
    tabulate(table, &[], style)
}

/// Returns a run on networks: its setting, its table and which attack MIA is, ending in a line break.
pub(super) fn network(report: &NetworkReport, style: Style) -> String {
    let mut table = report.explained_table();
    table.notes.insert(
        0,
        format!("MIA, {}: {}", report.mia, report.mia.explanation()),
    );
    let mut out = tabulate(&table, &report.settings, style);
    for detail in &report.details {
        push_updates(&mut out, &detail.scenario, &detail.updates, style);
    }
    let details = report.details.iter();
    let warnings = details.flat_map(|detail| {
        let warnings = detail.updates.iter().flat_map(MethodUpdates::warnings);
        warnings.map(move |text| format!("{}, {text}", detail.scenario))
    });
    push_warnings(&mut out, warnings);
    out
}

/// Appends the label updates of the methods that have any.
fn push_updates(out: &mut String, scenario: &str, methods: &[MethodUpdates], style: Style) {
    if methods.is_empty() {
        return;
    }
    let place = match scenario.is_empty() {
        true => String::new(),
        false => format!(" ({})", format::one_line(scenario)),
    };
    let title =
        format!("label updates{place}: tr(Π)/D, u‖G‖/λ, forgotten rows whose label changed");
    out.push('\n');
    push_wrapped(out, &title, "  ", style);
    for MethodUpdates { method, updates } in methods {
        let cells = updates.iter().map(|update| {
            let signs = format::label_update(update, Notation::Plain);
            signs.join(" ")
        });
        let parts: Vec<String> = cells.collect();
        let name = shorten(&format::one_line(method), 28);
        for (i, line) in format::wrap_parts(&parts, " · ", COLUMNS - 30)
            .iter()
            .enumerate()
        {
            let lead = if i == 0 { name.as_str() } else { "" };
            out.push_str(lead);
            out.push_str(&" ".repeat(30 - format::width(lead)));
            out.push_str(line);
            out.push('\n');
        }
    }
}

/// Appends warnings, each from a line of its own.
fn push_warnings(out: &mut String, warnings: impl Iterator<Item = String>) {
    for warning in warnings {
        for (i, line) in format::wrap(&warning, COLUMNS - 9).iter().enumerate() {
            let lead = if i == 0 { "warning:" } else { "        " };
            out.push_str(&format!("{lead} {line}\n"));
        }
    }
}

/// Returns the models of one run with their values, and what the columns are, ending in a line break.
pub(super) fn run(report: &Sheet) -> String {
    let names = report.models.iter().map(|(name, _)| format::width(name));
    let widest = names.max().unwrap_or(0);
    let mut out = String::new();
    let mut push = |name: &str, cells: &[String]| {
        out.push_str(name);
        out.push_str(&" ".repeat(widest - format::width(name)));
        for cell in cells {
            out.push_str(&format!("  {cell:>9}"));
        }
        out.push('\n');
    };
    push("", &report.columns);
    for (name, values) in &report.models {
        push(name, values);
    }
    out.push('\n');
    for (name, meaning) in &report.meanings {
        out.push_str(&format!("{name:10} {meaning}\n"));
    }
    push_updates(&mut out, "", &report.updates, Style::default());
    push_warnings(&mut out, report.warnings.iter().cloned());
    out
}

fn tabulate(table: &Table, settings: &[(String, String)], style: Style) -> String {
    let mut out = String::new();
    let seeds = format::plural(table.seeds.len(), "seed", "seeds");
    let mut title = format::one_line(&table.title);
    if title.is_empty() {
        title = format::one_line(&table.setting);
    }
    for line in format::wrap(&title, COLUMNS) {
        out.push_str(&style.bold(&line));
        out.push('\n');
    }
    let names: Vec<String> = settings
        .iter()
        .map(|(name, _)| shorten(&format::one_line(name), 28))
        .collect();
    let widest = names.iter().map(|name| format::width(name)).max();
    let column = widest.unwrap_or(0) + 2;
    for (name, (_, value)) in names.iter().zip(settings) {
        let mut lead = name.clone();
        for line in format::wrap(value, COLUMNS - column) {
            lead.push_str(&" ".repeat(column - format::width(&lead)));
            out.push_str(&style.dim(&format!("{lead}{line}")));
            out.push('\n');
            lead.clear();
        }
    }
    let mut spread = if table.seeds.len() == 1 {
        "One seed, so every ± is 0.".to_owned()
    } else {
        format!("Mean ± standard deviation over {seeds}.")
    };
    if table.has_published() {
        spread.push_str(" Under a method, the line \"paper\" is the published value.");
    }
    push_wrapped(&mut out, &spread, "", style);
    let notes = table.footnotes();
    let mut spreads = true;
    for scenario in &table.scenarios {
        out.push('\n');
        spreads &= push_scenario(&mut out, scenario, &notes, style);
    }
    out.push('\n');
    let legend: Vec<String> = table
        .metrics()
        .into_iter()
        .map(|m| format!("{}: {}", m.title(), format::one_line(table.meaning(m))))
        .collect();
    for line in legend {
        push_wrapped(&mut out, &line, "  ", style);
    }
    if !spreads {
        let text =
            "Where no ± stands, lines have no room for it: the page and the JSON output have it.";
        push_wrapped(&mut out, text, "  ", style);
    }
    if table.metrics().contains(&Metric::SeedGap) {
        push_wrapped(
            &mut out,
            "*: the smallest seed gap of the scenario",
            "  ",
            style,
        );
    }
    if table.scenarios.iter().any(ScenarioTable::has_ratios) {
        push_wrapped(
            &mut out,
            "ratio: wall time divided by Retrain's",
            "  ",
            style,
        );
    }
    for (i, note) in notes.iter().enumerate() {
        push_wrapped(
            &mut out,
            &format!("{} {note}", format::footnote(i + 1)),
            "  ",
            style,
        );
    }
    for note in &table.notes {
        push_wrapped(&mut out, &format!("· {note}"), "  ", style);
    }
    if table.seconds > 0.0 {
        let machine = format::one_line(&table.machine);
        let on = if machine.is_empty() {
            String::new()
        } else {
            format!(" on {machine}")
        };
        push_wrapped(
            &mut out,
            &format!("{}{on}", format::seconds(table.seconds)),
            "",
            style,
        );
    }
    out
}

/// Wraps `text`; lines after the first are indented.
fn push_wrapped(out: &mut String, text: &str, indent: &str, style: Style) {
    for (i, line) in format::wrap(text, COLUMNS - indent.len())
        .iter()
        .enumerate()
    {
        let line = if i == 0 {
            line.clone()
        } else {
            format!("{indent}{line}")
        };
        out.push_str(&style.dim(&line));
        out.push('\n');
    }
}

/// A line of cells.
struct Line {
    cells: Vec<String>,
    /// Set if the line holds the paper's values.
    published: bool,
    /// Set if the line has the smallest gap.
    best: bool,
}

/// Layouts from wide to narrow: the gap between columns, the air around ±, then a decimal, then the spreads.
const LAYOUTS: [(usize, &str, Notation); 7] = [
    (3, " ± ", Notation::Plain),
    (2, " ± ", Notation::Plain),
    (2, "±", Notation::Plain),
    (2, "±", Notation::Brief),
    (1, "±", Notation::Brief),
    (2, "", Notation::Mean),
    (1, "", Notation::Mean),
];

/// Appends the table of a scenario, and returns whether it has spreads.
fn push_scenario(
    out: &mut String,
    scenario: &ScenarioTable,
    notes: &[String],
    style: Style,
) -> bool {
    let metrics = scenario.metrics();
    let mut header = vec!["method".to_owned()];
    header.extend(metrics.iter().map(|m| match m {
        // The place of the star.
        Metric::SeedGap => format!("{} ", m.title()),
        _ => m.title().to_owned(),
    }));
    header.push("time".to_owned());
    if scenario.has_ratios() {
        header.push("ratio".to_owned());
    }
    let layout = |(gap, between, notation): (usize, &str, Notation)| {
        let mut lines = lines(scenario, &metrics, notes, notation);
        for cell in lines.iter_mut().flat_map(|line| &mut line.cells[1..]) {
            *cell = cell.replace(" ± ", between);
        }
        let widths = column_widths(&header, &lines);
        let total = widths.iter().sum::<usize>() + gap * (widths.len() - 1);
        (gap, lines, widths, total, notation != Notation::Mean)
    };
    let fitting = LAYOUTS.into_iter().map(layout).find(|l| l.3 <= COLUMNS);
    let (gap, lines, widths, total, spreads) =
        fitting.unwrap_or_else(|| layout(LAYOUTS[LAYOUTS.len() - 1]));

    out.push_str(&style.bold(&format::one_line(&scenario.name)));
    out.push_str(&style.dim(&format!(
        "   {} retained, {} forgotten, {} test rows",
        format::count(scenario.retained),
        format::count(scenario.forgotten),
        format::count(scenario.test)
    )));
    out.push('\n');
    out.push_str(&style.bold(&align(&header, &widths, gap)));
    out.push('\n');
    out.push_str(&style.dim(&"─".repeat(total)));
    out.push('\n');
    for line in &lines {
        let text = align(&line.cells, &widths, gap);
        out.push_str(&match (line.published, line.best) {
            (true, _) => style.dim(&text),
            (false, true) => style.bold(&text),
            (false, false) => text,
        });
        out.push('\n');
    }
    let over = scenario.rows_by_metric();
    if !over.is_empty() {
        let parts: Vec<String> = over
            .iter()
            .map(|(titles, text)| format!("{} {}", titles.join(", "), format::one_line(text)))
            .collect();
        for line in format::wrap_parts(&parts, " · ", COLUMNS) {
            out.push_str(&style.dim(&line));
            out.push('\n');
        }
    }
    spreads
}

fn column_widths(header: &[String], lines: &[Line]) -> Vec<usize> {
    (0..header.len())
        .map(|column| {
            let cells = lines.iter().map(|line| format::width(&line.cells[column]));
            cells.fold(format::width(&header[column]), usize::max)
        })
        .collect()
}

fn lines(
    scenario: &ScenarioTable,
    metrics: &[Metric],
    notes: &[String],
    notation: Notation,
) -> Vec<Line> {
    let mut lines = Vec::new();
    let closest = scenario.closest(|_| true).map(|row| row.method.as_str());
    for row in &scenario.rows {
        let mut name = shorten(&format::one_line(&row.method), 28);
        let note = row
            .note
            .as_ref()
            .and_then(|note| notes.iter().position(|n| n == note));
        if let Some(number) = note {
            name.push_str(&format!(" {}", format::footnote(number + 1)));
        }
        let best = closest == Some(row.method.as_str());
        let cell = |stats: &std::collections::BTreeMap<_, _>, metric: &Metric, best: bool| {
            let mut text = stats.get(metric).map_or_else(
                || format::ABSENT.to_owned(),
                |stat| format::stat(*metric, *stat, notation),
            );
            if *metric == Metric::SeedGap {
                text.push(if best { '*' } else { ' ' });
            }
            text
        };
        let mut cells = vec![name];
        cells.extend(metrics.iter().map(|m| cell(&row.values, m, best)));
        cells.push(format::seconds(row.seconds.mean));
        if scenario.has_ratios() {
            cells.push(format::ratio(row.time_ratio));
        }
        lines.push(Line {
            cells,
            published: false,
            best,
        });
        if !row.paper.is_empty() {
            let mut cells = vec!["  paper".to_owned()];
            cells.extend(metrics.iter().map(|m| cell(&row.paper, m, false)));
            cells.push(String::new());
            cells.extend(scenario.has_ratios().then(String::new));
            lines.push(Line {
                cells,
                published: true,
                best: false,
            });
        }
    }
    lines
}

/// Cuts a name that would push the numbers off the screen.
fn shorten(text: &str, columns: usize) -> String {
    if format::width(text) <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    for c in text.chars() {
        if format::width(&out) + format::width(c.encode_utf8(&mut [0; 4])) + 1 > columns {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}

/// First cell to the left, the numbers to the right; every line has the same display width.
fn align(cells: &[String], widths: &[usize], gap: usize) -> String {
    let mut out = String::new();
    for (i, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let pad = " ".repeat(width - format::width(cell));
        if i == 0 {
            out.push_str(cell);
            out.push_str(&pad);
        } else {
            out.push_str(&" ".repeat(gap));
            out.push_str(&pad);
            out.push_str(cell);
        }
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::outcome::{Stat, sample};

    /// The lines of a scenario's table: from its header to the blank line after it.
    fn blocks(text: &str) -> Vec<Vec<&str>> {
        text.split("\n\n")
            .filter(|block| block.contains("─"))
            .map(|block| block.lines().skip(1).collect())
            .collect()
    }

    #[test]
    fn all_lines_of_a_scenario_have_the_same_width_and_fit() {
        let text = table(&sample::table(), Style::default());
        let blocks = blocks(&text);
        assert_eq!(blocks.len(), 3);
        for block in blocks {
            let width = format::width(block[0]);
            assert!(width <= COLUMNS);
            // Header, rule, seven methods, five of them with the paper's line.
            assert_eq!(block.len(), 2 + 7 + 5);
            for line in block {
                assert_eq!(format::width(line), width, "{line}");
            }
        }
        assert!(text.lines().all(|line| format::width(line) <= COLUMNS));
    }

    #[test]
    fn all_metrics_of_a_kind_fit() {
        let mut table_ = sample::table();
        for row in table_.scenarios.iter_mut().flat_map(|s| &mut s.rows) {
            for metric in Metric::ALL.into_iter().filter(|m| *m != Metric::Agreement) {
                row.values.insert(
                    metric,
                    Stat {
                        mean: 100.0,
                        std: 10.25,
                    },
                );
            }
            row.values.insert(
                Metric::DeltaW,
                Stat {
                    mean: 1e-28,
                    std: 1e-28,
                },
            );
        }
        let text = table(&table_, Style::default());
        let widest = text.lines().map(format::width).max().unwrap();
        assert!(widest <= COLUMNS, "{widest}\n{text}");
    }

    #[test]
    fn networks_fit_and_their_best_is_starred() {
        let report = sample::network();
        let text = network(&report, Style::default());
        assert!(
            text.lines().all(|line| format::width(line) <= COLUMNS),
            "{text}"
        );
        let blocks = blocks(&text);
        assert_eq!(blocks.len(), report.table.scenarios.len());
        for block in blocks {
            assert!(block[0].contains("agreement") && block[0].ends_with("ratio"));
            assert!(block[2].starts_with("Retrain "));
            let starred: Vec<&&str> = block.iter().filter(|line| line.contains('*')).collect();
            assert_eq!(starred.len(), 1);
            assert!(starred[0].starts_with("MUSO-S"));
            let width = format::width(block[1]);
            let rows = block.iter().take_while(|line| !line.starts_with("RA over"));
            let rows: Vec<&&str> = rows.collect();
            assert!(rows.len() > report.table.scenarios[0].rows.len() && rows.len() < block.len());
            for line in rows {
                assert_eq!(format::width(line), width, "{line}");
            }
        }
        assert!(text.contains("FA, MIA, agreement over the 200 forgotten training rows"));
        assert!(text.contains("MIA, entropy: The paper's attack."));
        assert!(text.contains("\nnetwork      small CNN"), "{text}");
        assert!(
            text.contains("0.99930 3.5e-4 0.0 % · 0.99930 3.5e-4 0.5 %"),
            "{text}"
        );
        assert!(text.contains("\nwarning: random, MUSO: tr(Π)/D is 0.99930; above 0.999"));
        let coloured = network(&report, Style { colour: true });
        assert!(coloured.contains("\x1b[1mMUSO-S"));
    }

    #[test]
    fn nothing_published_means_no_word_about_it() {
        let mut report = sample::network();
        assert!(!network(&report, Style::default()).contains("published"));
        report.table.scenarios[0].rows[0].paper = [(Metric::Ra, Stat::exact(99.0))].into();
        assert!(network(&report, Style::default()).contains("published"));
        assert!(!network(&NetworkReport::default(), Style::default()).contains("NaN"));
    }

    #[test]
    fn colour_is_only_used_when_asked() {
        assert!(!table(&sample::table(), Style { colour: false }).contains('\x1b'));
        let coloured = table(&sample::table(), Style { colour: true });
        assert!(coloured.contains("\x1b[2m  paper"));
    }

    #[test]
    fn a_name_cannot_drive_the_terminal() {
        let mut hostile = sample::table();
        hostile.title = "a\x1b[2Jb".into();
        hostile.scenarios[0].name = "x\ny".into();
        hostile.scenarios[0].rows[0].method = "m\x1b]0;t\x07".repeat(20);
        let text = table(&hostile, Style::default());
        assert!(!text.contains('\x1b') && !text.contains('\x07'));
        assert!(text.lines().all(|line| format::width(line) <= COLUMNS));
    }

    #[test]
    fn nothing_measured_is_a_dash() {
        let mut empty = sample::table();
        empty.scenarios[0].rows[0]
            .values
            .insert(Metric::Ra, Stat::of(&[]));
        empty.scenarios[0].rows[0].seconds = Stat::of(&[]);
        empty.scenarios[1].rows.clear();
        empty.seeds.truncate(1);
        let text = table(&empty, Style::default());
        assert!(!text.contains("NaN"));
        assert!(text.contains("One seed"));
        assert!(!table(&Table::default(), Style::default()).contains("NaN"));
    }
}
