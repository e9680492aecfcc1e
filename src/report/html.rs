//! One self-contained page for each report.
//!
//! No script, no external file, no font to load: the page can be mailed, archived or opened offline. It follows the
//! reader's light or dark setting, fits a phone and prints. The headline is a sentence worked out from the
//! numbers below it. All text from outside is escaped.
//!
//! ```
//! use muso::report::{HeadReport, Table, html};
//!
//! let table = Table { title: "threes < sevens".into(), ..Default::default() };
//! let page = html::table_page(&table);
//! assert!(page.contains("threes &lt; sevens") && !page.contains("<script"));
//! assert!(html::head_page(&HeadReport::default()).ends_with("</html>\n"));
//! ```

mod charts;
mod network;
mod run;

use std::collections::BTreeMap;

pub use charts::chart_page;
pub use network::network_page;
pub use run::run_page;

use super::format::{self, Notation, escape};
use super::head::HeadReport;
use super::svg::{self, Dot, DotChart, Line, LineChart, Scale, TimeBar};
use super::table::{Metric, NOISE_FLOOR, PRETRAINED, RETRAIN, Row, ScenarioTable, Stat, Table};
use super::terminal::footnotes;

const CSS: &str = "\
:root{color-scheme:light dark;--sans:system-ui,-apple-system,\"Segoe UI\",Roboto,\"Helvetica Neue\",Arial,sans-serif;\
--mono:ui-monospace,\"SF Mono\",Menlo,Consolas,\"DejaVu Sans Mono\",monospace;\
--page:#fff;--panel:#f6f7f9;--ink:#16181d;--ink-2:#434852;--ink-3:#6a707b;--rule:#e2e5ea;--warn:#9a5b00;\
--c0:#1c5fc7;--c1:#868d98;--c2:#c2570c;--c3:#8a4fbf;--c4:#0f7b6c;--c5:#a8842c}
@media (prefers-color-scheme:dark){:root{--page:#121418;--panel:#1a1d23;--ink:#eceef2;--ink-2:#b9bec8;--ink-3:#8e95a1;\
--rule:#2b3038;--warn:#f0b35a;--c0:#7fb0ff;--c1:#8b929e;--c2:#f0995a;--c3:#c39bef;--c4:#5fcbb8;--c5:#dcbc6a}}
@media print{:root{color-scheme:light;--page:#fff;--panel:#fff;--ink:#000;--ink-2:#333;--ink-3:#555;--rule:#ccc;--warn:#704200;\
--c0:#1c5fc7;--c1:#868d98;--c2:#c2570c;--c3:#8a4fbf;--c4:#0f7b6c;--c5:#a8842c}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink-2);font:16px/1.6 var(--sans);-webkit-text-size-adjust:100%}
main{max-width:1128px;margin:0 auto;padding:64px 24px 48px}
.eyebrow{margin:0 0 20px;font-size:13px;color:var(--ink-3);letter-spacing:.01em}
.eyebrow b{color:var(--c0);font-weight:650}
h1{margin:0 0 20px;max-width:24em;color:var(--ink);font-size:clamp(27px,4vw,42px);line-height:1.16;font-weight:650;\
letter-spacing:-.021em;text-wrap:balance}
h2{margin:72px 0 8px;color:var(--ink);font-size:21px;line-height:1.3;font-weight:650;letter-spacing:-.01em}
h3{margin:36px 0 10px;color:var(--ink);font-size:15px;font-weight:650}
h3 span{margin-left:10px;color:var(--ink-3);font-size:13px;font-weight:400}
p{margin:0 0 14px;max-width:44em;text-wrap:pretty}
sub{font-size:.72em;line-height:0}
.lede{font-size:18px;line-height:1.55}
.aside{font-size:14px;color:var(--ink-3)}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:0 32px;margin:44px 0 0;padding:0}
.figures div{border-top:2px solid var(--ink);padding:12px 0 20px}
.figures dt{font-size:13px;color:var(--ink-3)}
.figures dd{margin:0}
.figures .big{color:var(--ink);font-size:29px;line-height:1.35;font-weight:600;letter-spacing:-.02em;\
font-variant-numeric:tabular-nums;white-space:nowrap}
.figures .sub{font-size:13px;color:var(--ink-3)}
.pairs{display:grid;grid-template-columns:minmax(120px,max-content) 1fr;margin:14px 0;font-size:15px}
.pairs dt{padding:7px 28px 7px 0;color:var(--ink);font-weight:600;border-top:1px solid var(--rule)}
.pairs dd{margin:0;padding:7px 0;border-top:1px solid var(--rule);overflow-wrap:anywhere}
.pairs small{display:block;font-size:13px;line-height:1.45;color:var(--ink-3)}
.scroll{overflow-x:auto;margin:0 -24px;padding:0 24px}
table{width:100%;border-collapse:collapse;font-size:14px;line-height:1.4;font-variant-numeric:tabular-nums}
th,td{padding:0 0 0 22px;text-align:right;white-space:nowrap;font-weight:400}
th:first-child,td:first-child{padding-left:0;text-align:left}
thead th{padding-bottom:7px;border-bottom:1px solid var(--ink-3);color:var(--ink);font-weight:650}
.ours th,.ours td{padding-top:7px;color:var(--ink)}
.ours .time{color:var(--ink-2)}
.paper th,.paper td{font-size:12.5px;color:var(--ink-3)}
tbody .paper th{padding-left:14px}
.solo th,.solo td,.paper th,.paper td{padding-bottom:7px;border-bottom:1px solid var(--rule)}
.own th,.own .delta{font-weight:600}
.own .delta{color:var(--c0)}
.ours .best{color:var(--c0);font-weight:650}
.ours.floor th,.ours.floor td{color:var(--ink-3)}
.prose td,.prose th{text-align:left;white-space:normal;vertical-align:top;overflow-wrap:anywhere}
.prose th:first-child{white-space:nowrap}
.prose td:last-child,.prose th:last-child{text-align:right;white-space:nowrap}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(300px,100%),1fr));gap:28px;margin:20px 0 0}
.charts.pairwise{grid-template-columns:repeat(auto-fit,minmax(min(340px,100%),400px));gap:28px 48px}
figure{margin:0;max-width:440px;break-inside:avoid}
figure.wide{max-width:680px;margin:18px 0 0}
figure.timeline{min-width:680px;max-width:1080px;margin:18px 0 0}
.key{max-width:none;display:flex;flex-wrap:wrap;gap:4px 22px;margin:10px 0 0;font-size:13px;color:var(--ink-3)}
.key span::before{content:\"\";display:inline-block;width:8px;height:8px;margin-right:8px;border-radius:50%;\
background:var(--c1);vertical-align:0}
.key .k-own::before{background:var(--c0)}
.key .k-paper::before{width:11px;height:11px;background:none;border:1.4px solid var(--ink-3);vertical-align:-1.5px}
.key .k-reference::before{width:16px;height:0;border-radius:0;background:none;border-top:1.4px dashed var(--ink-3);\
vertical-align:4px}
.key .k-area::before{width:14px;height:10px;border-radius:1px;opacity:.4;vertical-align:-1px}
.key .k-line::before{width:16px;height:2px;border-radius:1px;background:var(--c0);vertical-align:4px}
.key .k-dashed::before{width:16px;height:0;border-radius:0;background:none;border-top:1.6px dashed var(--ink);\
vertical-align:4px}
.key .k-whisker::before{width:16px;height:2px;border-radius:1px;vertical-align:4px}
pre{margin:14px 0;padding:16px 18px;overflow-x:auto;background:var(--panel);border:1px solid var(--rule);border-radius:6px;\
color:var(--ink);font:14px/1.5 var(--mono)}
ul,ol{margin:14px 0;padding-left:1.2em;max-width:44em;font-size:15px}
li{margin:0 0 6px}
.warning{margin:18px 0;padding:2px 0 2px 16px;border-left:3px solid var(--warn);max-width:44em;color:var(--ink)}
.warning b{color:var(--warn)}
footer{margin:72px 0 0;padding:18px 0 0;border-top:1px solid var(--rule);font-size:13px;color:var(--ink-3)}
@media (max-width:620px){main{padding-top:40px}h2{margin-top:56px}\
.pairs{grid-template-columns:1fr}.pairs dd{border-top:0;padding-top:0}.pairs dt{padding-bottom:0}\
tbody th:first-child{position:sticky;left:0;background:var(--page);padding-right:8px}table{font-size:13px}th,td{padding-left:14px}.paper th,.paper td{font-size:12px}}
@media print{body{font-size:12px}main{max-width:none;padding:0}h2{margin-top:28px;break-after:avoid}h3{break-after:avoid}\
table{font-size:10.5px}.paper th,.paper td{font-size:9.5px}tr{break-inside:avoid}.ours:not(.solo),.aside{break-after:avoid}.scroll{overflow:visible;margin:0;padding:0}th,td{padding-left:8px}\
.charts{grid-template-columns:repeat(3,1fr);gap:12px}.charts.pairwise{grid-template-columns:repeat(2,1fr)}}
";

/// The page of a table run.
pub fn table_page(table: &Table) -> String {
    let mut out = match Finding::of(table) {
        Some(found) => start_of_table(
            table,
            &found.headline(),
            &found.lede(table),
            &found.figures(table),
        ),
        None => start_of_table(table, &headline_without_distances(table), "", &[]),
    };
    push_explanation(&mut out, table);
    push_results(&mut out, table);
    push_distances(&mut out, table);
    push_accuracies(&mut out, table);
    push_paths(&mut out, table);
    push_notes(&mut out, table);
    push_repeat(&mut out, table, "");
    out.push_str(&end_of_table(table));
    out
}

/// The start of a page up to the large numbers.
fn start_of_table(table: &Table, headline: &str, lede: &str, cards: &[Figure]) -> String {
    let mut out = opening(&format!("muso: {}", table.title));
    let seeds = format::plural(table.seeds.len(), "seed", "seeds");
    out.push_str(&eyebrow(&[&table.title, &seeds]));
    out.push_str(&format!("<h1>{}</h1>\n", escape(headline)));
    if !lede.is_empty() {
        out.push_str(&format!("<p class=\"lede\">{}</p>\n", subscripts(lede)));
    }
    if !cards.is_empty() {
        out.push_str(&figures(cards));
    }
    out
}

fn end_of_table(table: &Table) -> String {
    let time = (table.seconds > 0.0).then(|| format!("{} in all", format::seconds(table.seconds)));
    closing(&table.version, &[&table.machine, &time.unwrap_or_default()])
}

/// The command, the configuration and the seeds.
fn push_repeat(out: &mut String, table: &Table, config: &str) {
    let texts = [table.command.as_str(), config];
    if texts.iter().all(|text| text.is_empty()) {
        return;
    }
    out.push_str("<h2>How to repeat it</h2>\n");
    for text in texts.into_iter().filter(|text| !text.is_empty()) {
        out.push_str(&format!("<pre><code>{}</code></pre>\n", escape(text)));
    }
    let list: Vec<String> = table.seeds.iter().map(u64::to_string).collect();
    if !list.is_empty() {
        out.push_str(&format!(
            "<p class=\"aside\">Seeds {}. The same seeds give the same numbers on any number of threads.</p>\n",
            list.join(", ")
        ));
    }
}

/// The page of a head report.
pub fn head_page(report: &HeadReport) -> String {
    let rows = &report.rows;
    let forgotten = format::count(rows.forgotten as usize);
    let mut out = opening("muso: a linear head that forgot rows");
    out.push_str(&eyebrow(&[
        "A linear head made to forget",
        &format!("{} objective", report.objective),
    ]));
    let distance = report
        .verify
        .map(|v| v.distance_relative)
        .filter(|d| d.is_finite());
    let rows_word = if rows.forgotten == 1 { "row" } else { "rows" };
    // From here on a distance is bad news, and the headline must not sound like good news.
    const FAR: f64 = 1e-3;
    let headline = match distance {
        Some(0.0) => format!(
            "The new head equals the one solved without the {forgotten} forgotten {rows_word}"
        ),
        Some(d) if d < FAR => format!(
            "The new head is within {} of one that never saw the {forgotten} forgotten {rows_word}",
            brief(d)
        ),
        Some(d) => format!(
            "The new head is still {} away from one that never saw the {forgotten} forgotten {rows_word}",
            brief(d)
        ),
        None => format!(
            "{forgotten} of {} rows forgotten in {}",
            format::count(rows.total as usize),
            format::seconds(report.seconds)
        ),
    };
    out.push_str(&format!("<h1>{}</h1>\n", escape(&headline)));
    let lede = match distance {
        Some(_) => {
            "The distance is relative (Frobenius), to a head solved from the retained rows alone in the same run."
        }
        None => {
            "The distance to a head solved from the retained rows alone was not measured in this run."
        }
    };
    out.push_str(&format!("<p class=\"lede\">{lede}</p>\n"));
    let mut cards = vec![Figure {
        name: "rows forgotten".into(),
        big: forgotten,
        sub: format!("of {}", format::count(rows.total as usize)),
    }];
    if let Some(accuracy) = report.accuracy.filter(|a| a.forgotten_after.is_finite()) {
        let before = match accuracy.forgotten_before.is_finite() {
            true => format!("{:.2} % before", accuracy.forgotten_before),
            false => String::new(),
        };
        cards.push(Figure {
            name: "accuracy on them".into(),
            big: format!("{:.2} %", accuracy.forgotten_after),
            sub: before,
        });
    }
    cards.push(Figure {
        name: "wall time".into(),
        big: format::seconds(report.seconds),
        sub: format!("on {}", report.machine()),
    });
    if let Some(peak) = report.peak_memory_bytes {
        cards.push(Figure {
            name: "peak memory".into(),
            big: format::bytes(peak),
            sub: "resident".into(),
        });
    }
    out.push_str(&figures(&cards));
    for warning in &report.warnings {
        out.push_str(&format!(
            "<p class=\"warning\"><b>Warning.</b> {}</p>\n",
            escape(warning)
        ));
    }
    out.push_str("<h2>What was done and how exact it is</h2>\n<dl class=\"pairs\">\n");
    for fact in report.facts(Notation::Typeset) {
        let explanation = match fact.explanation {
            "" => String::new(),
            text => format!("<small>{}</small>", subscripts(text)),
        };
        out.push_str(&format!(
            "<dt>{}</dt><dd>{}{explanation}</dd>\n",
            escape(fact.name),
            escape(&fact.value)
        ));
    }
    out.push_str("</dl>\n");
    if !report.phases.is_empty() {
        let bar = TimeBar {
            title: "Wall time by phase".into(),
            parts: report
                .phases
                .iter()
                .map(|p| (p.name.clone(), p.seconds))
                .collect(),
        };
        out.push_str("<h2>Where the time went</h2>\n");
        out.push_str(&format!(
            "<figure class=\"wide\">{}</figure>\n",
            bar.render()
        ));
    }
    out.push_str(&closing(&report.version, &[]));
    out
}

fn opening(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{}</title>\n<style>\n{CSS}{}</style>\n</head>\n<body>\n<main>\n",
        escape(&format::one_line(title)),
        svg::CSS
    )
}

fn closing(version: &str, parts: &[&str]) -> String {
    let mut line = format!("muso {version}").trim_end().to_owned();
    for part in parts.iter().filter(|p| !p.is_empty()) {
        line.push_str(" · ");
        line.push_str(part);
    }
    format!(
        "<footer>{}</footer>\n</main>\n</body>\n</html>\n",
        escape(&line)
    )
}

fn eyebrow(parts: &[&str]) -> String {
    let parts: Vec<String> = parts
        .iter()
        .filter(|p| !p.is_empty())
        .map(|p| escape(p))
        .collect();
    format!(
        "<p class=\"eyebrow\"><b>muso</b> · {}</p>\n",
        parts.join(" · ")
    )
}

/// One of the large numbers under the headline.
struct Figure {
    name: String,
    big: String,
    sub: String,
}

fn figures(figures: &[Figure]) -> String {
    let mut out = String::from("<dl class=\"figures\">\n");
    for Figure { name, big, sub } in figures {
        out.push_str(&format!(
            "<div><dt>{}</dt><dd class=\"big\">{}</dd><dd class=\"sub\">{}</dd></div>\n",
            escape(name),
            escape(big),
            escape(sub)
        ));
    }
    out.push_str("</dl>\n");
    out
}

/// Escapes `text` and sets the index of a weight matrix, as in `w_r` or `W_new`, below the line.
fn subscripts(text: &str) -> String {
    let text = escape(text);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find("w_").into_iter().chain(rest.find("W_")).min() {
        let (before, name) = rest.split_at(at + 1);
        let name = &name[1..];
        let end = name
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(name.len());
        out.push_str(&format!("{before}<sub>{}</sub>", &name[..end]));
        rest = &name[end..];
    }
    out + rest
}

/// A distance for running text: 10⁻⁴ rather than 1.0×10⁻⁴.
fn brief(x: f64) -> String {
    let text = format::distance(x, Notation::Typeset).replace(".0×", "×");
    match text.strip_prefix("1×") {
        Some(power) => power.to_owned(),
        None => text,
    }
}

/// The least and the greatest, as `a to b` or as one where they read the same.
fn range(values: &[f64]) -> String {
    let low = brief(values.iter().copied().fold(f64::INFINITY, f64::min));
    let high = brief(values.iter().copied().fold(f64::NEG_INFINITY, f64::max));
    if low == high {
        low
    } else {
        format!("{low} to {high}")
    }
}

/// A table of texts: the headings, then rows of a name, whether it is ours, and values.
fn push_plain_table<'a>(
    out: &mut String,
    columns: impl Iterator<Item = &'a str>,
    rows: impl Iterator<Item = (&'a str, bool, &'a [String])>,
) {
    out.push_str("<div class=\"scroll\"><table>\n<thead><tr>");
    for column in columns {
        out.push_str(&format!("<th scope=\"col\">{}</th>", escape(column)));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for (name, is_own, values) in rows {
        let own = if is_own { " own" } else { "" };
        out.push_str(&format!(
            "<tr class=\"ours solo{own}\"><th scope=\"row\">{}</th>",
            escape(name)
        ));
        for value in values {
            out.push_str(&format!("<td>{}</td>", escape(value)));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

fn is_own(method: &str) -> bool {
    method.starts_with("MUSO")
}

fn delta(stats: &BTreeMap<Metric, Stat>) -> Option<f64> {
    stats
        .get(&Metric::DeltaW)
        .map(|s| s.mean)
        .filter(|m| m.is_finite())
}

/// Δw of `method` in every scenario; none when one lacks it.
fn deltas(table: &Table, method: &str, pick: impl Fn(&Row) -> Option<f64>) -> Option<Vec<f64>> {
    let of = |scenario: &ScenarioTable| {
        scenario
            .rows
            .iter()
            .find(|r| r.method == method)
            .and_then(&pick)
    };
    let values: Option<Vec<f64>> = table.scenarios.iter().map(of).collect();
    values.filter(|v| !v.is_empty())
}

/// What the table shows, for the headline.
struct Finding {
    /// The variant of MUSO whose worst scenario is best.
    method: String,
    /// Its Δw by scenario.
    ours: Vec<f64>,
    /// The published Δw of MUSO by scenario.
    paper: Option<Vec<f64>>,
}

impl Finding {
    fn of(table: &Table) -> Option<Finding> {
        let worst = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let rows = &table.scenarios.first()?.rows;
        let (method, ours) = rows
            .iter()
            .filter(|row| is_own(&row.method))
            .filter_map(|row| {
                Some((
                    row.method.clone(),
                    deltas(table, &row.method, |r| delta(&r.values))?,
                ))
            })
            .min_by(|a, b| worst(&a.1).total_cmp(&worst(&b.1)))?;
        Some(Finding {
            method,
            ours,
            paper: deltas(table, "MUSO", |r| delta(&r.paper)),
        })
    }

    fn headline(&self) -> String {
        let worst = self.ours.iter().copied().fold(0.0, f64::max);
        let mut text = format!(
            "{} ends {} from the retrained model",
            self.method,
            brief(worst)
        );
        if let Some(paper) = &self.paper {
            text.push_str(&format!("; the paper reports {}", range(paper)));
        }
        text
    }

    fn lede(&self, table: &Table) -> String {
        let mut text = format!(
            "The distance is Δw = ‖w − w_r‖² / D to the weights w_r that were trained without the forgotten rows: the \
             largest over {}, each the mean over {}.",
            match self.ours.len() {
                1 => "one scenario".to_owned(),
                2 => "two scenarios".to_owned(),
                3 => "three scenarios".to_owned(),
                n => format!("{n} scenarios"),
            },
            format::plural(table.seeds.len(), "seed", "seeds")
        );
        if self.method != "MUSO"
            && let Some(sgd) = deltas(table, "MUSO", |r| delta(&r.values))
        {
            text.push_str(&format!(
                " By gradient descent, the paper's own route, MUSO ends at {}.",
                range(&sgd)
            ));
        }
        if let Some(start) = deltas(table, PRETRAINED, |r| delta(&r.values)) {
            text.push_str(&format!(
                " The model before unlearning is at {}.",
                range(&start)
            ));
        }
        text
    }

    fn figures(&self, table: &Table) -> Vec<Figure> {
        let figure = |(i, scenario): (usize, &ScenarioTable)| {
            let paper = self
                .paper
                .as_ref()
                .map(|p| format!("paper {}", brief(p[i])));
            let start = scenario.rows.iter().find(|r| r.method == PRETRAINED);
            let start = start
                .and_then(|r| delta(&r.values))
                .map(|d| format!("before unlearning {}", brief(d)));
            Figure {
                name: format!("{}, Δw", scenario.name),
                big: brief(self.ours[i]),
                sub: [paper, start]
                    .into_iter()
                    .flatten()
                    .collect::<Vec<_>>()
                    .join(" · "),
            }
        };
        table.scenarios.iter().enumerate().map(figure).collect()
    }
}

/// Networks have no Δw; their finding is the gap to Retrain.
fn headline_without_distances(table: &Table) -> String {
    let gap = |row: &Row| {
        row.values
            .get(&Metric::AvgGap)
            .map(|s| s.mean)
            .filter(|g| g.is_finite())
    };
    let rows = table
        .scenarios
        .iter()
        .flat_map(|s| s.rows.iter().map(move |r| (s, r)));
    let best = rows
        .filter(|(_, row)| is_own(&row.method))
        .filter_map(|(scenario, row)| Some((scenario, row, gap(row)?)))
        .min_by(|a, b| a.2.total_cmp(&b.2));
    match best {
        Some((scenario, row, gap)) => format!(
            "{} comes within {gap:.2} points of the retrained model ({})",
            row.method, scenario.name
        ),
        None if table.title.is_empty() => {
            "Unlearning methods against the retrained model".to_owned()
        }
        None => table.title.clone(),
    }
}

fn about_scenario(name: &str) -> &'static str {
    match name {
        "full-class" => "every training row of one class is forgotten",
        "sub-class" => "a part of one class is forgotten",
        "random" => "rows drawn at random from all classes are forgotten",
        _ => "",
    }
}

fn about_method(name: &str) -> &'static str {
    match name {
        RETRAIN => {
            "Trained from the same initial weights on the retained rows only: what unlearning should reach."
        }
        PRETRAINED => "Trained on all rows, nothing forgotten: where every method starts.",
        "Amnesiac" => "Training goes on with random labels for the forgotten rows.",
        "BadTeacher" => {
            "Training goes on with the outputs of a random model as labels for the forgotten rows."
        }
        "MUSO" => {
            "Training goes on with the optimal labels for the forgotten rows, by gradient descent as in the paper."
        }
        "MUSO (closed form)" => {
            "The same labels, with the limit of gradient descent computed by a linear solve."
        }
        NOISE_FLOOR => {
            "Retrained once more from another seed. What lies between two retrained models is noise, and no method can \
             be asked to come closer: the noise floor."
        }
        "MUSO-S" => {
            "MUSO with features from an early snapshot of the pre-training run, before the backbone had memorised the \
             forgotten rows, and labels fitted to the retained rows' own."
        }
        "SalUn" => {
            "Random labels for the forgotten rows; only the weights that matter most for them may move."
        }
        "SSD" => {
            "No training: weights that matter much more for the forgotten rows than for all rows are dampened."
        }
        "Fine-tune" => "Training goes on with the retained rows alone.",
        "NegGrad+" => {
            "Training goes on with the retained rows while the loss of the forgotten rows is pushed up."
        }
        "Gradient ascent" => "The loss of the forgotten rows is pushed up, nothing else.",
        "SCRUB" => {
            "The outputs on the forgotten rows are driven away from the pre-trained model's, then those on the retained \
             rows back to them."
        }
        "MUSO (direct)" => {
            "The pre-trained weights projected once onto what the retained rows span: no labels, no training."
        }
        _ => "",
    }
}

fn push_explanation(out: &mut String, table: &Table) {
    out.push_str(
        "<h2>What is compared</h2>\n\
         <p>A model has been trained on all rows and must now <em>forget</em> some of them and <em>retain</em> the \
         rest. The standard is the model trained again, from the same initial weights, on the retained rows only. An \
         unlearning method is exact when it ends at that same model, and useful when it is cheaper.</p>\n",
    );
    out.push_str("<dl class=\"pairs\">\n");
    for metric in table.metrics() {
        out.push_str(&format!(
            "<dt>{}</dt><dd>{}</dd>\n",
            metric.title(),
            subscripts(table.meaning(metric))
        ));
    }
    out.push_str("</dl>\n");
    let metrics = table.metrics();
    let (percents, distances): (Vec<Metric>, Vec<Metric>) = metrics
        .iter()
        .filter(|m| **m != Metric::Agreement)
        .partition(|m| m.is_percent());
    let titles = |metrics: &[Metric]| join_words(metrics.iter().map(|m| m.title()));
    let mut goals = Vec::new();
    if !percents.is_empty() {
        goals.push(format!(
            "{}: best when equal to Retrain's, not when highest.",
            titles(&percents)
        ));
    }
    if !distances.is_empty() {
        goals.push(format!(
            "{}: best at 0, where Retrain is.",
            titles(&distances)
        ));
    }
    if metrics.contains(&Metric::Agreement) {
        goals.push(
            "Agreement: best where a second retrained model's is; 100 is more than retraining gives."
                .to_owned(),
        );
    }
    if !goals.is_empty() {
        out.push_str(&format!("<p class=\"aside\">{}</p>\n", goals.join(" ")));
    }
}

/// `a`, `a and b`, `a, b and c`.
fn join_words<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<&str> = words.collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some((last, _)) => (*last).to_owned(),
        None => String::new(),
    }
}

fn push_results(out: &mut String, table: &Table) {
    if table.scenarios.is_empty() {
        return;
    }
    let notes = footnotes(table);
    out.push_str("<h2>Results</h2>\n");
    let spread = match table.seeds.len() {
        1 => "One seed, so every ± is 0.".to_owned(),
        n => format!(
            "Mean ± standard deviation over {}.",
            format::plural(n, "seed", "seeds")
        ),
    };
    let mut about = spread;
    if table.has_published() {
        about.push_str(" The line “paper” under a method is the published value.");
    }
    about.push_str(" Time is the mean wall time of the method");
    if table.scenarios.iter().any(ScenarioTable::has_ratios) {
        about.push_str(", ratio that time divided by Retrain's");
    }
    out.push_str(&format!("<p class=\"aside\">{about}.</p>\n"));
    for scenario in &table.scenarios {
        let about = about_scenario(&scenario.name);
        out.push_str(&format!(
            "<h3>{}<span>{}{}{} retained, {} forgotten, {} test rows</span></h3>\n",
            escape(&scenario.name),
            about,
            if about.is_empty() { "" } else { ": " },
            format::count(scenario.retained),
            format::count(scenario.forgotten),
            format::count(scenario.test)
        ));
        push_table(out, scenario, &notes);
        let over = scenario
            .rows_by_metric()
            .into_iter()
            .map(|(titles, text)| format!("{} {}", join_words(titles.into_iter()), escape(text)));
        let over: Vec<String> = over.collect();
        if !over.is_empty() {
            out.push_str(&format!(
                "<p class=\"aside\" style=\"margin-top:10px\">{}.</p>\n",
                over.join("; ")
            ));
        }
    }
    if !notes.is_empty() {
        out.push_str("<p class=\"aside\" style=\"margin-top:12px\">");
        let numbered: Vec<String> = notes
            .iter()
            .enumerate()
            .map(|(i, note)| format!("{} {}", format::footnote(i + 1), escape(note)))
            .collect();
        out.push_str(&numbered.join("<br>"));
        out.push_str("</p>\n");
    }
}

fn push_table(out: &mut String, scenario: &ScenarioTable, notes: &[String]) {
    let metrics = scenario.metrics();
    out.push_str("<div class=\"scroll\"><table>\n<thead><tr><th scope=\"col\">method</th>");
    for metric in &metrics {
        out.push_str(&format!("<th scope=\"col\">{}</th>", metric.title()));
    }
    out.push_str("<th scope=\"col\">time</th>");
    if scenario.has_ratios() {
        out.push_str("<th scope=\"col\">ratio</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    let closest = scenario.closest(|_| true).map(|row| row.method.as_str());
    for row in &scenario.rows {
        let note = row
            .note
            .as_ref()
            .and_then(|note| notes.iter().position(|n| n == note));
        let mark = note
            .map(|i| format!(" {}", format::footnote(i + 1)))
            .unwrap_or_default();
        let own = match row.method.as_str() {
            NOISE_FLOOR => " floor",
            method if is_own(method) => " own",
            _ => "",
        };
        let solo = if row.paper.is_empty() { " solo" } else { "" };
        out.push_str(&format!(
            "<tr class=\"ours{own}{solo}\"><th scope=\"row\">{}{mark}</th>",
            escape(&row.method)
        ));
        for &metric in &metrics {
            let delta = match metric {
                Metric::DeltaW => " class=\"delta\"",
                Metric::AvgGap if closest == Some(row.method.as_str()) => " class=\"best\"",
                _ => "",
            };
            out.push_str(&format!("<td{delta}>{}</td>", cell(&row.values, metric)));
        }
        out.push_str(&format!(
            "<td class=\"time\">{}</td>",
            format::seconds(row.seconds.mean)
        ));
        if scenario.has_ratios() {
            out.push_str(&format!(
                "<td class=\"time\">{}</td>",
                format::ratio(row.time_ratio)
            ));
        }
        out.push_str("</tr>\n");
        if row.paper.is_empty() {
            continue;
        }
        // Right below ours and not beside it, so that the digits stand under each other and a phone needs less scrolling.
        out.push_str("<tr class=\"paper\"><th scope=\"row\">paper</th>");
        for &metric in &metrics {
            out.push_str(&format!("<td>{}</td>", cell(&row.paper, metric)));
        }
        out.push_str("<td></td>");
        if scenario.has_ratios() {
            out.push_str("<td></td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

fn cell(stats: &BTreeMap<Metric, Stat>, metric: Metric) -> String {
    stats.get(&metric).map_or_else(
        || format::ABSENT.to_owned(),
        |stat| format::stat(metric, *stat, Notation::Typeset),
    )
}

fn dot(row: &Row, metric: Metric) -> Option<Dot> {
    let ours = row.values.get(&metric).copied().filter(Stat::is_finite);
    let paper = row.paper.get(&metric).copied().filter(Stat::is_finite);
    (ours.is_some() || paper.is_some()).then(|| Dot {
        label: row.method.clone(),
        ours,
        paper,
        emphasis: is_own(&row.method),
    })
}

fn push_distances(out: &mut String, table: &Table) {
    // Retrain's distance to itself says nothing and would cost the axis a place for zero.
    let rows = |s: &'_ ScenarioTable| -> Vec<Dot> {
        let others = s.rows.iter().filter(|r| r.method != RETRAIN);
        others.filter_map(|row| dot(row, Metric::DeltaW)).collect()
    };
    let all: Vec<Dot> = table.scenarios.iter().flat_map(rows).collect();
    if all.is_empty() {
        return;
    }
    let stats = all.iter().flat_map(|d| [d.ours, d.paper]).flatten();
    let shared: Vec<f64> = stats.map(|s| s.mean).chain([1.0]).collect();
    out.push_str(
        "<h2>Distance to the retrained model</h2>\n\
         <p>Δw by method, on a log scale. Rounding in f64 alone leaves about 10⁻²⁸: a dot there is \
         the retrained model as far as the arithmetic can tell.</p>\n",
    );
    out.push_str(
        "<p class=\"key\"><span class=\"k-own\">MUSO, ours</span><span>other methods, ours</span>\
         <span class=\"k-paper\">paper</span></p>\n<div class=\"charts\">\n",
    );
    for scenario in &table.scenarios {
        let chart = DotChart {
            title: scenario.name.clone(),
            scale: Scale::Log,
            include: shared.clone(),
            values: true,
            dots: rows(scenario),
            ..Default::default()
        };
        out.push_str(&format!("<figure>{}</figure>\n", chart.render()));
    }
    out.push_str("</div>\n");
}

/// Three charts side by side, or two where three would leave one alone in its row.
fn charts_class(charts: usize) -> &'static str {
    match charts {
        2 | 4 => "charts pairwise",
        _ => "charts",
    }
}

fn push_accuracies(out: &mut String, table: &Table) {
    let metrics: Vec<Metric> = table
        .metrics()
        .into_iter()
        .filter(|m| m.is_percent())
        .collect();
    if metrics.is_empty() {
        return;
    }
    out.push_str(
        "<h2>Accuracies against Retrain</h2>\n\
         <p>The closer a dot is to the dashed line, the more the model behaves as one that never saw the forgotten \
         rows. Each chart has its own scale, in percent.</p>\n",
    );
    let (ours, paper) = match table.has_published() {
        true => (", ours", "<span class=\"k-paper\">paper</span>"),
        false => ("", ""),
    };
    out.push_str(&format!(
        "<p class=\"key\"><span class=\"k-own\">MUSO{ours}</span><span>other methods{ours}</span>\
         <span class=\"k-whisker\">± one standard deviation</span>{paper}\
         <span class=\"k-reference\">Retrain{ours}</span></p>\n",
    ));
    for scenario in &table.scenarios {
        let retrain = scenario.row(RETRAIN);
        let charts = charts_class(metrics.len());
        out.push_str(&format!(
            "<h3>{}</h3>\n<div class=\"{charts}\">\n",
            escape(&scenario.name)
        ));
        for &metric in &metrics {
            let rows = match metric {
                Metric::Ra => "retained rows",
                Metric::Ta => "test rows",
                Metric::Fa => "what is forgotten",
                _ => "forgotten rows",
            };
            let chart = DotChart {
                title: format!("{}, {rows}", metric.title()),
                scale: Scale::Percent,
                reference: retrain.and_then(|r| r.values.get(&metric)).map(|s| s.mean),
                dots: scenario
                    .rows
                    .iter()
                    .filter_map(|row| dot(row, metric))
                    .collect(),
                ..Default::default()
            };
            out.push_str(&format!("<figure>{}</figure>\n", chart.render()));
        }
        out.push_str("</div>\n");
    }
}

fn push_paths(out: &mut String, table: &Table) {
    let curves = || table.scenarios.iter().flat_map(|s| &s.curves);
    if curves().all(|c| c.epochs.is_empty()) {
        return;
    }
    out.push_str(
        "<h2>The path of gradient descent</h2>\n\
         <p>Δw over the epochs of each iterative method, both on a log scale, for the first seed and \
         without any early stop. With optimal labels the path leads to the retrained model; with other labels it ends \
         elsewhere.</p>\n\
         <div class=\"charts\">\n",
    );
    let shared: Vec<f64> = curves().flat_map(|c| c.delta_w.iter().copied()).collect();
    let shared = shared.iter().copied().filter(|d| *d > 0.0);
    let low = shared.clone().fold(f64::INFINITY, f64::min);
    let high = shared.fold(f64::NEG_INFINITY, f64::max);
    for scenario in &table.scenarios {
        let mut others = 1;
        let lines = scenario.curves.iter().map(|curve| {
            let colour = if curve.method == "MUSO" {
                0
            } else {
                others += 1;
                others
            };
            Line {
                label: curve.method.clone(),
                points: curve
                    .epochs
                    .iter()
                    .copied()
                    .zip(curve.delta_w.iter().copied())
                    .collect(),
                colour,
                ..Default::default()
            }
        });
        let chart = LineChart {
            title: scenario.name.clone(),
            x_label: "epochs".into(),
            x: Scale::Log,
            y: Scale::Log,
            include: vec![low, high],
            lines: lines.collect(),
            ..Default::default()
        };
        out.push_str(&format!("<figure>{}</figure>\n", chart.render()));
    }
    out.push_str("</div>\n");
}

fn push_notes(out: &mut String, table: &Table) {
    let mut methods: Vec<&str> = Vec::new();
    for row in table.scenarios.iter().flat_map(|s| &s.rows) {
        if !methods.contains(&row.method.as_str()) && !about_method(&row.method).is_empty() {
            methods.push(&row.method);
        }
    }
    if !methods.is_empty() {
        out.push_str("<h2>The methods</h2>\n<dl class=\"pairs\">\n");
        for method in methods {
            out.push_str(&format!(
                "<dt>{}</dt><dd>{}</dd>\n",
                escape(method),
                escape(about_method(method))
            ));
        }
        out.push_str("</dl>\n");
    }
    if !table.notes.is_empty() {
        out.push_str("<h2>Notes</h2>\n<ul>\n");
        for note in &table.notes {
            out.push_str(&format!("<li>{}</li>\n", escape(note)));
        }
        out.push_str("</ul>\n");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use super::*;
    use crate::report::sample;

    /// Checks that every tag is closed in the right order and that no attribute is left open.
    pub(crate) fn balanced(markup: &str) -> Result<(), String> {
        const VOID: [&str; 3] = ["meta", "br", "!doctype"];
        let mut open: Vec<&str> = Vec::new();
        let mut rest = markup;
        while let Some(start) = rest.find('<') {
            if rest[..start].contains('>') && open.last() != Some(&"style") {
                return Err(format!(
                    "stray > before {:?}",
                    &rest[start..].chars().take(40).collect::<String>()
                ));
            }
            let end = rest[start..].find('>').ok_or("tag without end")? + start;
            let tag = &rest[start + 1..end];
            rest = &rest[end + 1..];
            if tag.matches('"').count() % 2 == 1 {
                return Err(format!("open quote in <{tag}>"));
            }
            let name = tag
                .trim_start_matches('/')
                .split([' ', '/'])
                .next()
                .unwrap_or("");
            if tag.starts_with('/') {
                if open.pop() != Some(name) {
                    return Err(format!("unexpected </{name}>"));
                }
            } else if !tag.ends_with('/') && !VOID.contains(&name) {
                open.push(name);
            }
        }
        if open.is_empty() {
            Ok(())
        } else {
            Err(format!("left open: {open:?}"))
        }
    }

    #[test]
    fn pages_are_balanced_and_self_contained() {
        for page in [
            table_page(&sample::table()),
            head_page(&sample::head()),
            table_page(&Table::default()),
            head_page(&HeadReport::default()),
        ] {
            balanced(&page).unwrap();
            for needle in ["http", "<script", "@import", "url(", "NaN", ">inf"] {
                assert!(!page.contains(needle), "{needle}");
            }
            assert!(page.contains("<meta charset=\"utf-8\">"));
        }
    }

    #[test]
    fn the_headline_is_the_finding() {
        let page = table_page(&sample::table());
        assert!(page.contains(
            "<h1>MUSO (direct) ends 2.1×10⁻²⁸ from the retrained model; the paper reports 10⁻⁴ to 2×10⁻⁴</h1>"
        ));
        assert!(page.contains("MUSO ends at 1.1×10⁻¹⁴."));
        let page = head_page(&sample::head());
        assert!(page.contains("within 3.1×10⁻¹³ of one that never saw the 1,000 forgotten rows"));
    }

    #[test]
    fn indices_stand_below_the_line() {
        assert_eq!(subscripts("‖w − w_r‖ <"), "‖w − w<sub>r</sub>‖ &lt;");
        assert_eq!(subscripts("W_new w_"), "W<sub>new</sub> w<sub></sub>");
    }

    #[test]
    fn a_table_of_networks_speaks_of_gaps() {
        let mut table = sample::table();
        for row in table.scenarios.iter_mut().flat_map(|s| &mut s.rows) {
            row.values.remove(&Metric::DeltaW);
            row.paper.remove(&Metric::DeltaW);
            row.values.insert(Metric::AvgGap, Stat::exact(1.25));
        }
        let page = table_page(&table);
        assert!(page.contains(
            "<h1>MUSO comes within 1.25 points of the retrained model (full-class)</h1>"
        ));
        assert!(!page.contains("Distance to the retrained model"));
        balanced(&page).unwrap();
    }

    #[test]
    fn text_from_outside_is_escaped() {
        let hostile = "<img src=x onerror=\"alert('1')\">&";
        let mut table = sample::table();
        table.title = hostile.into();
        table.command = hostile.into();
        table.notes.push(hostile.into());
        table.machine = hostile.into();
        table.scenarios[0].name = hostile.into();
        table.scenarios[0].rows[1].method = hostile.into();
        table.scenarios[0].rows[1].note = Some(hostile.into());
        table.scenarios[0].curves[0].method = hostile.into();
        let mut head = sample::head();
        head.objective = hostile.into();
        head.warnings.push(hostile.into());
        head.phases[0].name = hostile.into();
        for page in [table_page(&table), head_page(&head)] {
            assert!(!page.contains("<img") && !page.contains("alert('"));
            assert!(page.contains("&lt;img"));
            balanced(&page).unwrap();
        }
    }

    #[test]
    fn the_checker_finds_faults() {
        for bad in ["<p>", "<p></q>", "<a b=\"c></a>", "</p>", "<p>></p>"] {
            assert!(balanced(bad).is_err(), "{bad}");
        }
    }
}
