//! Self-contained HTML pages, one for each kind of report.
//!
//! No script, no external file, no font to load: a page can be mailed, archived or opened offline. It follows the
//! reader's light or dark setting, fits a phone and prints. The headline is a sentence worked out from the
//! numbers below it. Pages are `maud` templates, which escape every text that is set into them.
//!
//! ```
//! use muso::outcome::{HeadReport, Table};
//! use muso::report::Render;
//!
//! let table = Table { title: "threes < sevens".into(), ..Default::default() };
//! let page = table.page();
//! assert!(page.contains("threes &lt; sevens") && !page.contains("<script"));
//! assert!(HeadReport::default().page().ends_with("</html>\n"));
//! ```

mod audit;
mod bench;
mod finding;
mod head;
mod network;
mod run;
mod table;

#[cfg(test)]
pub(super) mod tests;

use maud::{Markup, PreEscaped, html};

use super::format::{self, Notation};
use super::svg::CSS;
use crate::outcome::MethodUpdates;

pub(super) use audit::audit_page;
pub use bench::chart_page;
pub(super) use head::head_page;
pub(super) use network::network_page;
pub(super) use run::run_page;
pub(super) use table::table_page;
pub use table::table_picture;

/// Frame of every page around its own parts.
struct Page<'a> {
    /// The title of the window.
    title: &'a str,
    /// The line above the headline; empty parts are left out.
    eyebrow: &'a [&'a str],
    /// The finding, as a sentence.
    headline: &'a str,
    /// The version of this crate.
    version: &'a str,
    /// Parts of the last line beside the version; empty ones are left out.
    footer: &'a [&'a str],
}

impl Page<'_> {
    /// Returns the whole document around `body`.
    fn around(&self, body: Markup) -> String {
        let joined = |parts: &[&str]| -> String {
            let parts = parts.iter().filter(|part| !part.is_empty());
            parts.map(|part| format!(" · {part}")).collect()
        };
        let document = html! {
            (PreEscaped("<!doctype html>\n"))
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width,initial-scale=1";
                    title { "muso: " (format::one_line(self.title)) }
                    style { (PreEscaped(CSS)) }
                }
                body {
                    main {
                        p.eyebrow { b { "muso" } (joined(self.eyebrow)) }
                        h1 { (self.headline) }
                        (body)
                        footer { (format!("muso {}", self.version).trim_end()) (joined(self.footer)) }
                    }
                }
            }
            "\n"
        };
        // Control characters mean nothing on a page, and a browser may drop or replace them.
        let shown = |c: char| match c {
            '\n' | '\t' => c,
            c if c.is_control() => ' ',
            c => c,
        };
        document.into_string().chars().map(shown).collect()
    }
}

/// A large number under the headline.
struct Figure {
    name: String,
    big: String,
    sub: String,
}

/// Returns the large numbers under a headline; nothing where there are none.
fn figures(figures: &[Figure]) -> Markup {
    html! {
        @if !figures.is_empty() {
            dl.figures {
                @for Figure { name, big, sub } in figures {
                    div { dt { (name) } dd.big { (big) } dd.sub { (sub) } }
                }
            }
        }
    }
}

/// Returns a list of names and what they mean.
fn pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, Markup)>) -> Markup {
    html! {
        dl.pairs {
            @for (name, value) in pairs { dt { (name) } dd { (value) } }
        }
    }
}

/// Returns a section with a list of names and values; nothing where there are none.
fn settings(title: &str, list: &[(String, String)]) -> Markup {
    html! {
        @if !list.is_empty() {
            h2 { (title) }
            (text_pairs(list))
        }
    }
}

/// Returns [`pairs`] of plain texts.
fn text_pairs(list: &[(String, String)]) -> Markup {
    pairs(
        list.iter()
            .map(|(name, value)| (name.as_str(), html! { (value) })),
    )
}

/// Returns a table of texts: the headings, then rows of a name, whether it is ours, and values.
fn plain_table<'a>(
    columns: impl Iterator<Item = &'a str>,
    rows: impl Iterator<Item = (&'a str, bool, &'a [String])>,
) -> Markup {
    html! {
        div.scroll {
            table {
                thead { tr { @for column in columns { th scope="col" { (column) } } } }
                tbody {
                    @for (name, is_own, values) in rows {
                        tr.ours.solo.own[is_own] {
                            th scope="row" { (name) }
                            @for value in values { td { (value) } }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the section of label updates, scenario by scenario; nothing where there are none. Where a scenario has no name,
/// there is one.
fn label_updates(scenarios: &[(&str, &[MethodUpdates])]) -> Markup {
    if scenarios.iter().all(|(_, methods)| methods.is_empty()) {
        return Markup::default();
    }
    let columns = ["method, update", "tr(Π)/D", "u‖G‖/λ", "labels changed"];
    let rows = |methods: &[MethodUpdates]| -> Vec<(String, bool, [String; 3])> {
        let of_method = |m: &MethodUpdates| {
            let (name, is_own) = (m.method.clone(), is_own(&m.method));
            let signs = m.updates.iter();
            let signs = signs.map(|update| format::label_update(update, Notation::Typeset));
            let rows = signs.enumerate();
            rows.map(move |(k, signs)| (format!("{name}, {}", k + 1), is_own, signs))
                .collect::<Vec<_>>()
        };
        methods.iter().flat_map(of_method).collect()
    };
    html! {
        h2 { "Label updates" }
        p {
            "What the projector of each update was like: tr(Π)/D, near 1 where the retained rows fill the space and the "
            "labels are what the trained network says already; u‖G‖/λ, from 1 upwards where λ is below the rounding of G; "
            "and the share of the forgotten rows whose label changed. Means over the seeds."
        }
        @for (scenario, methods) in scenarios {
            @if !methods.is_empty() {
                @if !scenario.is_empty() { h3 { (scenario) } }
                @let rows = rows(methods);
                (plain_table(
                    columns.into_iter(),
                    rows.iter().map(|(name, is_own, signs)| (name.as_str(), *is_own, signs.as_slice())),
                ))
            }
        }
    }
}

/// Returns charts side by side: three in a row, or two where three would leave one alone in its row.
fn chart_grid(charts: impl IntoIterator<Item = Markup>) -> Markup {
    let charts: Vec<Markup> = charts.into_iter().collect();
    let class = match charts.len() {
        2 | 4 => "charts pairwise",
        _ => "charts",
    };
    html! {
        div class=(class) { @for chart in &charts { figure { (chart) } } }
    }
}

/// Returns the key of charts: classes of the marks and what they stand for.
fn key(marks: &[(&str, &str)]) -> Markup {
    html! {
        p.key {
            @for (class, text) in marks {
                @if class.is_empty() { span { (text) } } @else { span class=(class) { (text) } }
            }
        }
    }
}

/// Returns the section of texts (a command, a configuration) that repeat a run, with `remark` below them; nothing where
/// all of them are empty.
fn repeat(texts: [&str; 2], remark: &str) -> Markup {
    html! {
        @if texts.iter().any(|text| !text.is_empty()) {
            h2 { "How to repeat it" }
            @for text in texts.iter().filter(|text| !text.is_empty()) { pre { code { (text) } } }
            @if !remark.is_empty() { p.aside { (remark) } }
        }
    }
}

/// Returns `text` with the index of a weight matrix, as in `w_r` or `W_new`, set below the line.
fn subscripts(text: &str) -> Markup {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("w_").into_iter().chain(rest.find("W_")).min() {
        let (before, after) = (&rest[..=at], &rest[at + 2..]);
        let is_index = |c: char| c.is_ascii_alphabetic();
        let end = after.find(|c| !is_index(c)).unwrap_or(after.len());
        parts.push((before, &after[..end]));
        rest = &after[end..];
    }
    html! {
        @for (before, index) in parts { (before) sub { (index) } }
        (rest)
    }
}

/// Returns a distance for running text: 10⁻⁴ rather than 1.0×10⁻⁴.
fn brief(x: f64) -> String {
    let text = format::distance(x, Notation::Typeset).replace(".0×", "×");
    match text.strip_prefix("1×") {
        Some(power) => power.to_owned(),
        None => text,
    }
}

/// Returns the least and the greatest value, as `a to b` or as one where they read the same.
fn range(values: &[f64]) -> String {
    let low = brief(values.iter().copied().fold(f64::INFINITY, f64::min));
    let high = brief(values.iter().copied().fold(f64::NEG_INFINITY, f64::max));
    if low == high {
        low
    } else {
        format!("{low} to {high}")
    }
}

/// Returns `a`, `a and b`, or `a, b and c`.
fn join_words<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<&str> = words.collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some((last, _)) => (*last).to_owned(),
        None => String::new(),
    }
}

/// Returns a phrase as a sentence: a capital first, a full stop last.
fn sentence(phrase: &str) -> String {
    let mut letters = phrase.chars();
    match letters.next() {
        None => String::new(),
        Some(first) => {
            let stop = if phrase.ends_with('.') { "" } else { "." };
            format!("{}{}{stop}", first.to_uppercase(), letters.as_str())
        }
    }
}

/// Tells our methods, which are drawn in the accent colour, from those of others.
fn is_own(method: &str) -> bool {
    method.starts_with("MUSO")
}
