//! The page of one run on one network.

use super::{Figure, closing, eyebrow, figures, is_own, opening, push_plain_table};
use crate::report::format::{self, escape};
use crate::report::single::RunReport;
use crate::report::svg::{Timeline, TimelineLane};
use crate::scheduler::Summary;

/// The page of `muso train`, `unlearn` or `evaluate`.
pub fn run_page(report: &RunReport) -> String {
    let mut out = opening(&format!("muso: {}", report.title));
    out.push_str(&eyebrow(&[&report.title]));
    out.push_str(&format!("<h1>{}</h1>\n", escape(&report.headline)));
    let cards = report.figures.iter().map(|[name, big, sub]| Figure {
        name: name.clone(),
        big: big.clone(),
        sub: sub.clone(),
    });
    let cards: Vec<Figure> = cards.collect();
    if !cards.is_empty() {
        out.push_str(&figures(&cards));
    }
    push_models(&mut out, report);
    push_timeline(&mut out, &report.lanes);
    push_pairs(&mut out, "The settings", &report.settings);
    push_repeat(&mut out, report);
    let seconds = report.lanes.seconds;
    let time = match seconds > 0.0 {
        true => format!("{} in lanes", format::seconds(seconds)),
        false => String::new(),
    };
    out.push_str(&closing(&report.version, &[&report.machine, &time]));
    out
}

fn push_models(out: &mut String, report: &RunReport) {
    if report.models.is_empty() {
        return;
    }
    out.push_str("<h2>Results</h2>\n");
    let columns = std::iter::once("model").chain(report.columns.iter().map(String::as_str));
    let rows = report.models.iter();
    let rows = rows.map(|(name, values)| (name.as_str(), is_own(name), values.as_slice()));
    push_plain_table(out, columns, rows);
    if !report.meanings.is_empty() {
        push_list(out, &report.meanings);
    }
}

fn push_timeline(out: &mut String, lanes: &Summary) {
    out.push_str("<h2>What ran when</h2>\n");
    out.push_str(&format!("<p>{}</p>\n", escape(&lanes.verdict())));
    let Some(bound) = lanes.bound() else { return };
    out.push_str(
        "<p class=\"aside\">Each line is a lane. It is drawn where the lane was at work, and left empty where it waited for \
         the lanes that it takes from or for room in its queue.</p>\n",
    );
    let timeline = Timeline {
        title: "What ran when".into(),
        seconds: lanes.seconds,
        lanes: lanes
            .lanes
            .iter()
            .map(|lane| TimelineLane {
                name: lane.name.clone(),
                share: lanes.share(lane),
                items: lane.items,
                spans: lane.spans.clone(),
                emphasis: lane.name == bound.name,
            })
            .collect(),
    };
    out.push_str(&format!(
        "<div class=\"scroll\"><figure class=\"timeline\">{}</figure></div>\n",
        timeline.render()
    ));
}

fn push_pairs(out: &mut String, title: &str, pairs: &[(String, String)]) {
    if pairs.is_empty() {
        return;
    }
    out.push_str(&format!("<h2>{title}</h2>\n"));
    push_list(out, pairs);
}

fn push_list(out: &mut String, pairs: &[(String, String)]) {
    out.push_str("<dl class=\"pairs\">\n");
    for (name, value) in pairs {
        out.push_str(&format!(
            "<dt>{}</dt><dd>{}</dd>\n",
            escape(name),
            escape(value)
        ));
    }
    out.push_str("</dl>\n");
}

fn push_repeat(out: &mut String, report: &RunReport) {
    let texts = [&report.command, &report.config];
    if texts.iter().all(|text| text.is_empty()) {
        return;
    }
    out.push_str("<h2>How to repeat it</h2>\n");
    for text in texts.into_iter().filter(|text| !text.is_empty()) {
        out.push_str(&format!("<pre><code>{}</code></pre>\n", escape(text)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::html::tests::balanced;
    use crate::scheduler::LaneUse;

    fn lane(name: &str, busy: f64, spans: Vec<(f64, f64)>) -> LaneUse {
        LaneUse {
            name: name.into(),
            items: spans.len() as u64,
            busy,
            spans,
        }
    }

    fn report() -> RunReport {
        RunReport {
            title: "MUSO on fashion".into(),
            headline: "MUSO ends 1.20 points from the retrained model".into(),
            figures: vec![["FA".into(), "81.00 %".into(), "93.00 % before".into()]],
            columns: vec!["RA".into(), "TA".into()],
            models: vec![("MUSO".into(), vec!["99.10".into(), "86.00".into()])],
            meanings: vec![("RA".into(), "accuracy, percent".into())],
            settings: vec![("staleness".into(), "0".into())],
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
        let page = run_page(&report());
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
        let page = run_page(&RunReport::default());
        balanced(&page).unwrap();
        assert!(page.contains("No lane has run.") && !page.contains("<svg"));
    }

    #[test]
    fn text_from_outside_is_escaped() {
        let hostile = || "<img src=x onerror=\"alert('1')\">&".to_owned();
        let page = run_page(&RunReport {
            title: hostile(),
            headline: hostile(),
            figures: vec![[hostile(), hostile(), hostile()]],
            columns: vec![hostile()],
            models: vec![(hostile(), vec![hostile()])],
            meanings: vec![(hostile(), hostile())],
            settings: vec![(hostile(), hostile())],
            lanes: Summary {
                seconds: 1.0,
                lanes: vec![lane(&hostile(), 1.0, vec![(0.0, 1.0)])],
            },
            command: hostile(),
            config: hostile(),
            machine: hostile(),
            version: hostile(),
        });
        assert!(!page.contains("<img") && !page.contains("alert('"));
        balanced(&page).unwrap();
    }
}
