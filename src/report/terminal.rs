//! A table run for a terminal.
//!
//! Each method has a line with our `mean ± std`; right below it, digit under digit, is the line with what the paper
//! published. (Side by side, eight such columns would need 140 characters.) At most 110 columns wide.
//!
//! ```
//! use muso::report::{Metric, Row, ScenarioTable, Stat, Style, Table, paper, terminal};
//!
//! let row = Row {
//!     method: "Retrain".into(),
//!     values: [(Metric::Ta, Stat { mean: 50.91, std: 1.7 })].into(),
//!     paper: paper::table1("full-class", "Retrain"),
//!     ..Default::default()
//! };
//! let scenario = ScenarioTable { name: "full-class".into(), rows: vec![row], ..Default::default() };
//! let table = Table { scenarios: vec![scenario], ..Default::default() };
//! let text = terminal::table(&table, Style { colour: false });
//! assert!(text.contains("50.91 ± 1.70"));
//! assert!(text.contains("50.77 ± 1.80"));
//! ```

use super::format::{self, Notation};
use super::table::{Metric, ScenarioTable, Table};

/// No line is longer.
const COLUMNS: usize = 110;

/// How to write.
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

/// The whole table, ending in a line break.
pub fn table(table: &Table, style: Style) -> String {
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
    let spread = if table.seeds.len() == 1 {
        "One seed, so every ± is 0".to_owned()
    } else {
        format!("Mean ± standard deviation over {seeds}")
    };
    push_wrapped(
        &mut out,
        &format!("{spread}. Under a method, the line \"paper\" is the published value."),
        "",
        style,
    );
    let notes = footnotes(table);
    for scenario in &table.scenarios {
        out.push('\n');
        push_scenario(&mut out, scenario, &notes, style);
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

/// The distinct notes of all rows, in order of appearance; a note's number is its place here plus one.
pub(crate) fn footnotes(table: &Table) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for row in table.scenarios.iter().flat_map(|s| &s.rows) {
        if let Some(note) = row.note.as_ref().filter(|note| !notes.contains(note)) {
            notes.push(note.clone());
        }
    }
    notes
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

/// One line of cells and whether it is the paper's.
struct Line {
    cells: Vec<String>,
    published: bool,
}

fn push_scenario(out: &mut String, scenario: &ScenarioTable, notes: &[String], style: Style) {
    let metrics = scenario.metrics();
    let mut lines = lines(scenario, &metrics, notes);
    let mut header = vec!["method".to_owned()];
    header.extend(metrics.iter().map(|m| m.title().to_owned()));
    header.push("time".to_owned());
    let mut widths = column_widths(&header, &lines);
    let total =
        |widths: &[usize], gap: usize| widths.iter().sum::<usize>() + gap * (widths.len() - 1);
    // When there are many metrics, the air gives way before the numbers do: between columns, then around ±.
    let mut gap = if total(&widths, 3) <= COLUMNS { 3 } else { 2 };
    if total(&widths, gap) > COLUMNS {
        for cell in lines.iter_mut().flat_map(|line| &mut line.cells[1..]) {
            *cell = cell.replace(" ± ", "±");
        }
        widths = column_widths(&header, &lines);
        gap = if total(&widths, 2) <= COLUMNS { 2 } else { 1 };
    }

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
    out.push_str(&style.dim(&"─".repeat(total(&widths, gap))));
    out.push('\n');
    for line in &lines {
        let text = align(&line.cells, &widths, gap);
        out.push_str(&if line.published {
            style.dim(&text)
        } else {
            text
        });
        out.push('\n');
    }
}

fn column_widths(header: &[String], lines: &[Line]) -> Vec<usize> {
    (0..header.len())
        .map(|column| {
            let cells = lines.iter().map(|line| format::width(&line.cells[column]));
            cells.fold(format::width(&header[column]), usize::max)
        })
        .collect()
}

fn lines(scenario: &ScenarioTable, metrics: &[Metric], notes: &[String]) -> Vec<Line> {
    let mut lines = Vec::new();
    for row in &scenario.rows {
        let mut name = shorten(&format::one_line(&row.method), 28);
        let note = row
            .note
            .as_ref()
            .and_then(|note| notes.iter().position(|n| n == note));
        if let Some(number) = note {
            name.push_str(&format!(" {}", format::footnote(number + 1)));
        }
        let cell = |stats: &std::collections::BTreeMap<_, _>, metric: &Metric| {
            stats.get(metric).map_or_else(
                || format::ABSENT.to_owned(),
                |stat| format::stat(*metric, *stat, Notation::Plain),
            )
        };
        let mut cells = vec![name];
        cells.extend(metrics.iter().map(|m| cell(&row.values, m)));
        cells.push(format::seconds(row.seconds.mean));
        lines.push(Line {
            cells,
            published: false,
        });
        if !row.paper.is_empty() {
            let mut cells = vec!["  paper".to_owned()];
            cells.extend(metrics.iter().map(|m| cell(&row.paper, m)));
            cells.push(String::new());
            lines.push(Line {
                cells,
                published: true,
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
    use crate::report::{Stat, sample};

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
    fn all_six_metrics_fit() {
        let mut table_ = sample::table();
        for row in table_.scenarios.iter_mut().flat_map(|s| &mut s.rows) {
            for metric in Metric::ALL {
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
