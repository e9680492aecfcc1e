//! Pages are well formed, self-contained, say what the numbers say, and escape every text from outside.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::labels::LabelUpdate;
use crate::outcome::{HeadReport, Metric, NetworkReport, Stat, Table, sample};
use crate::report::charts::{ChartPage, PageTable};
use crate::report::run::Sheet;
use crate::report::svg::{Line, LineChart, Scale};
use crate::scheduler::{LaneUse, Summary};

/// Checks that every tag is closed in the right order and that no attribute is left open.
pub(in crate::report) fn balanced(markup: &str) -> Result<(), String> {
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
    assert_eq!(subscripts("‖w − w_r‖ <").0, "‖w − w<sub>r</sub>‖ &lt;");
    assert_eq!(subscripts("W_new w_").0, "W<sub>new</sub> w<sub></sub>");
}

#[test]
fn a_table_of_networks_speaks_of_gaps() {
    let mut table = sample::table();
    for row in table.scenarios.iter_mut().flat_map(|s| &mut s.rows) {
        row.values.remove(&Metric::DeltaW);
        row.paper.remove(&Metric::DeltaW);
        row.values.insert(Metric::SeedGap, Stat::exact(1.25));
    }
    let page = table_page(&table);
    assert!(
        page.contains("<h1>MUSO comes within 1.25 points of the retrained model (full-class)</h1>")
    );
    assert!(!page.contains("Distance to the retrained model"));
    balanced(&page).unwrap();
}

#[test]
fn the_checker_finds_faults() {
    for bad in ["<p>", "<p></q>", "<a b=\"c></a>", "</p>", "<p>></p>"] {
        assert!(balanced(bad).is_err(), "{bad}");
    }
}

#[test]
fn the_page_holds_every_part() {
    let report = sample::network();
    let page = network_page(&report);
    balanced(&page).unwrap();
    for needle in ["http", "<script", "@import", "url(", "NaN", ">inf"] {
        assert!(!page.contains(needle), "{needle}");
    }
    for heading in [
        "The setting",
        "What is compared",
        "Results",
        "Gap to the retrained model",
        "Accuracies against Retrain",
        "Label updates",
        "How sure the models are",
        "Epoch by epoch",
        "How the settings were chosen",
        "The methods",
        "Notes",
        "How to repeat it",
    ] {
        assert!(page.contains(&format!("<h2>{heading}</h2>")), "{heading}");
    }
    assert!(page.contains("convention “entropy”"));
    assert!(page.contains("FA, MIA and agreement over the 200 forgotten training rows"));
    assert!(page.contains("[unlearn]") && page.contains("class=\"best\""));
    // For each of three scenarios: bars, four metrics, four histograms (pre-trained, two of ours, one other), three curves.
    assert_eq!(page.matches("<figure>").count(), 3 * (1 + 4 + 4 + 3));
    assert_eq!(page.matches("<polygon").count(), 3 * 4);
}

#[test]
fn the_headline_says_who_is_closer() {
    let mut report = sample::network();
    let page = network_page(&report);
    assert!(
        page.contains("<h1>MUSO-S ends ") && page.contains("; the closest other method, "),
        "{}",
        &page[page.find("<h1>").unwrap()..][..200]
    );
    assert!(page.contains("A second retrained model is itself "));
    for row in report.table.scenarios.iter_mut().flat_map(|s| &mut s.rows) {
        if is_own(&row.method) {
            row.values.insert(Metric::SeedGap, Stat::exact(30.0));
        }
    }
    let page = network_page(&report);
    assert!(
        page.contains("ends 30.00 points from the retrained model; ")
            && page.contains(" is closer, at ")
    );
}

#[test]
fn parts_without_data_are_left_out() {
    let mut report = sample::network();
    report.details.clear();
    report.settings.clear();
    report.config.clear();
    let page = network_page(&report);
    balanced(&page).unwrap();
    for heading in [
        "How sure",
        "Epoch by epoch",
        "How the settings",
        "The setting",
    ] {
        assert!(!page.contains(&format!("<h2>{heading}")), "{heading}");
    }
    balanced(&network_page(&NetworkReport::default())).unwrap();
}

fn lane(name: &str, busy: f64, spans: Vec<(f64, f64)>) -> LaneUse {
    LaneUse {
        name: name.into(),
        items: spans.len() as u64,
        busy,
        spans,
    }
}

fn run_report() -> Sheet {
    Sheet {
        title: "MUSO on fashion".into(),
        headline: "MUSO ends 1.20 points from the retrained model".into(),
        figures: vec![["FA".into(), "81.00 %".into(), "93.00 % before".into()]],
        columns: vec!["RA".into(), "TA".into()],
        models: vec![("MUSO".into(), vec!["99.10".into(), "86.00".into()])],
        meanings: vec![("RA".into(), "accuracy, percent".into())],
        settings: vec![("staleness".into(), "0".into())],
        updates: Vec::new(),
        warnings: Vec::new(),
        lanes: Summary {
            seconds: 2.0,
            lanes: vec![
                lane("decode", 0.2, vec![(0.0, 0.1), (1.0, 1.1)]),
                lane("train", 1.5, vec![(0.5, 2.0)]),
            ],
        },
        command: "muso unlearn --method muso".into(),
        config: "seeds = [0]\n".into(),
        machine: "cpu, 2 threads".into(),
        version: "0.1.0".into(),
    }
}

#[test]
fn the_page_shows_models_settings_and_lanes() {
    let page = run_page(&run_report());
    balanced(&page).unwrap();
    for needle in ["http", "<script", "@import", "url(", "NaN", ">inf"] {
        assert!(!page.contains(needle), "{needle}");
    }
    for piece in [
        "<h1>MUSO ends 1.20 points from the retrained model</h1>",
        "<th scope=\"col\">RA</th><th scope=\"col\">TA</th>",
        "<td>99.10</td><td>86.00</td>",
        "<dt>staleness</dt><dd>0</dd>",
        "The lane “train” was at work for 1.50 of 2.00 s, longer than any other: it bounds the run.",
        ">10 %<",
        ">75 %<",
        "muso unlearn --method muso",
        "cpu, 2 threads · 2.00 s in lanes",
    ] {
        assert!(page.contains(piece), "no {piece} in {page}");
    }
}

#[test]
fn nothing_to_say_is_said() {
    let page = run_page(&Sheet::default());
    balanced(&page).unwrap();
    assert!(page.contains("No lane has run.") && !page.contains("<svg"));
}

/// A text that would run if it were not escaped, in an element as well as in an attribute.
fn hostile() -> String {
    "<script>alert('1')</script>\" onload=\"alert(2)&".to_owned()
}

/// Checks that a page holds [`hostile`] as `times` texts at least, each of them inert.
fn is_inert(page: &str, times: usize) {
    balanced(page).unwrap();
    assert!(!page.contains("<script") && !page.contains("</script"));
    assert!(!page.contains("onload=\""), "an attribute was left");
    let escaped = page.matches("&lt;script&gt;").count();
    assert!(escaped >= times, "{escaped} of {times} texts");
}

#[test]
fn hostile_text_is_inert_on_the_page_of_a_table() {
    let mut table = sample::table();
    table.title = hostile();
    table.command = hostile();
    table.notes.push(hostile());
    table.machine = hostile();
    table.version = hostile();
    table.meanings.insert(Metric::Ra, hostile());
    let scenario = &mut table.scenarios[0];
    scenario.name = hostile();
    scenario.over.insert(Metric::Fa, hostile());
    scenario.curves[0].method = hostile();
    let row = &mut scenario.rows[1];
    (row.method, row.about, row.note) = (hostile(), hostile(), Some(hostile()));
    is_inert(&table_page(&table), 16);
}

#[test]
fn hostile_text_is_inert_on_the_page_of_a_head() {
    let mut head = sample::head();
    head.objective = hostile();
    head.route = hostile();
    head.source = hostile();
    head.dtype = hostile();
    head.version = hostile();
    head.conditioning.factor = hostile();
    head.device = Some(hostile());
    head.warnings.push(hostile());
    head.phases[0].name = hostile();
    head.premise.as_mut().unwrap().meaning = hostile();
    is_inert(&head_page(&head), 10);
}

#[test]
fn hostile_text_is_inert_on_the_page_of_networks() {
    let mut report = sample::network();
    report.config = hostile();
    report.settings[0] = (hostile(), hostile());
    let scenario = &mut report.table.scenarios[0];
    scenario.name = hostile();
    scenario.over.insert(Metric::Fa, hostile());
    // The noise floor, so that ours and the closest method stay what they are.
    scenario.rows[1].method = hostile();
    let detail = &mut report.details[0];
    detail.scenario = hostile();
    detail.tuning[0].method = hostile();
    detail.tuning[0].grid = hostile();
    detail.tuning[0].chosen = hostile();
    detail.curves[0].method = hostile();
    detail.entropies.forgotten[0].0 = hostile();
    is_inert(&network_page(&report), 14);
}

#[test]
fn hostile_text_is_inert_on_the_page_of_a_run() {
    let page = run_page(&Sheet {
        title: hostile(),
        headline: hostile(),
        figures: vec![[hostile(), hostile(), hostile()]],
        columns: vec![hostile()],
        models: vec![(hostile(), vec![hostile()])],
        meanings: vec![(hostile(), hostile())],
        settings: vec![(hostile(), hostile())],
        updates: vec![MethodUpdates {
            method: hostile(),
            updates: vec![LabelUpdate::default()],
        }],
        warnings: vec![hostile()],
        lanes: Summary {
            seconds: 1.0,
            lanes: vec![lane(&hostile(), 1.0, vec![(0.0, 1.0)])],
        },
        command: hostile(),
        config: hostile(),
        machine: hostile(),
        version: hostile(),
    });
    is_inert(&page, 21);
}

#[test]
fn hostile_text_is_inert_on_the_page_of_a_bench() {
    let page = chart_page(&ChartPage {
        title: hostile(),
        headline: hostile(),
        notes: vec![hostile()],
        charts: vec![LineChart {
            title: hostile(),
            x_label: hostile(),
            x: Scale::Log,
            y: Scale::Log,
            lines: vec![Line {
                label: hostile(),
                points: vec![(1.0, 2.0), (10.0, f64::NAN), (100.0, 0.0)],
                ..Default::default()
            }],
            ..Default::default()
        }],
        tables: vec![PageTable {
            caption: hostile(),
            columns: vec![String::new(), hostile()],
            rows: vec![vec!["ours".into(), hostile()], Vec::new()],
        }],
        machine: hostile(),
        version: hostile(),
    });
    is_inert(&page, 14);
    assert!(page.contains("<svg") && page.contains("<td>&lt;script"));
    assert!(!page.contains("http") && !page.contains("NaN"));
}

#[test]
fn control_characters_do_not_reach_a_page() {
    let page = table_page(&Table {
        title: "a\0b\u{1b}[2Jc".into(),
        command: "one\ntwo\tthree\r".into(),
        ..Default::default()
    });
    assert!(page.contains("a b [2Jc") && page.contains("one\ntwo\tthree <"));
    assert!(
        page.chars()
            .all(|c| c == '\n' || c == '\t' || !c.is_control())
    );
}

#[test]
fn a_method_is_explained_by_its_row() {
    let mut table = sample::table();
    table.scenarios[1].rows[2].about = "goes on training".into();
    let page = table_page(&table);
    assert!(page.contains("<h2>The methods</h2>"));
    assert!(page.contains("<dt>Amnesiac</dt><dd>Goes on training.</dd>"));
}
