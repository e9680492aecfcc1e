//! One run on one network as the terminal and the page show it: the same words and numbers, laid out once.
//!
//! Between the plain data of [`outcome::run`](crate::outcome::run) and its two renderings, `terminal::run` and
//! `html::run_page`.

use crate::evaluate::Mia;
use crate::outcome::run::BEFORE;
use crate::outcome::{MethodUpdates, RunReport, Scored, TrainReport};
use crate::scheduler::Summary;

/// A run in words: every number as it is shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Sheet {
    /// What was run on what.
    pub(super) title: String,
    /// The finding, as a sentence.
    pub(super) headline: String,
    /// The numbers to see first: a name, the number, and what to hold it against.
    pub(super) figures: Vec<[String; 3]>,
    /// The metrics of the table.
    pub(super) columns: Vec<String>,
    /// The models with their values.
    pub(super) models: Vec<(String, Vec<String>)>,
    /// What each metric is, and over which rows.
    pub(super) meanings: Vec<(String, String)>,
    /// Names and values of the method's settings.
    pub(super) settings: Vec<(String, String)>,
    /// Label updates of the method, if it has any.
    pub(super) updates: Vec<MethodUpdates>,
    /// What the run warns of.
    pub(super) warnings: Vec<String>,
    /// How the run used its lanes.
    pub(super) lanes: Summary,
    /// The command that gives the run again.
    pub(super) command: String,
    /// The configuration behind it, as TOML.
    pub(super) config: String,
    /// The machine that it ran on.
    pub(super) machine: String,
    /// The version of the program.
    pub(super) version: String,
}

impl Sheet {
    /// Lays out a run that scored models.
    pub(super) fn of_run(report: &RunReport) -> Self {
        let columns = columns(report);
        let cells = |model: &Scored| columns.iter().map(|column| cell(model, column)).collect();
        let name = report.models.last().map_or("", |model| &model.name);
        let notes = &report.notes;
        Self {
            title: format!("{}: {name} on {}", report.kind, report.data),
            headline: headline(report),
            figures: figures(report, &columns),
            columns: columns.iter().map(ToString::to_string).collect(),
            models: report
                .models
                .iter()
                .map(|model| (model.name.clone(), cells(model)))
                .collect(),
            meanings: meanings(report),
            settings: report.settings.clone().into_iter().collect(),
            updates: match report.label_updates.is_empty() {
                true => Vec::new(),
                false => vec![MethodUpdates {
                    method: name.to_owned(),
                    updates: report.label_updates.clone(),
                }],
            },
            warnings: report.warnings.clone(),
            lanes: notes.lanes.clone(),
            command: notes.command.clone(),
            config: report.config.clone(),
            machine: notes.machine.clone(),
            version: crate::VERSION.to_owned(),
        }
    }

    /// Lays out a training run.
    pub(super) fn of_training(report: &TrainReport) -> Self {
        let accuracy = format!("{:.2}", report.test_accuracy);
        let images = report.test_images;
        let notes = &report.notes;
        let figures = [[
            "TA, accuracy on test rows".to_owned(),
            format!("{accuracy} %"),
            format!("{images} images"),
        ]];
        Self {
            title: format!("train: {} on {}", report.network, report.data),
            headline: format!("The trained network is right on {accuracy} % of the test rows"),
            figures: figures
                .into_iter()
                .chain(busiest_lane(&notes.lanes))
                .collect(),
            columns: vec!["TA".to_owned()],
            models: vec![("trained".to_owned(), vec![accuracy])],
            meanings: vec![(
                "TA".to_owned(),
                format!("accuracy, percent, over all {images} test rows"),
            )],
            settings: Vec::new(),
            updates: Vec::new(),
            warnings: Vec::new(),
            lanes: notes.lanes.clone(),
            command: notes.command.clone(),
            config: report.config.clone(),
            machine: notes.machine.clone(),
            version: crate::VERSION.to_owned(),
        }
    }
}

/// Returns the end of a training run as lines for a terminal.
pub(super) fn training_lines(report: &TrainReport) -> String {
    format!(
        "test accuracy {:.2} % on {} images\n{}\n",
        report.test_accuracy,
        report.test_images,
        report.model.display()
    )
}

/// Returns the metrics that were measured.
fn columns(report: &RunReport) -> Vec<&'static str> {
    let mut columns = vec!["RA", "TA"];
    if report.models.iter().any(|m| m.fa.is_some()) {
        columns.extend(["FA", "MIA"]);
    }
    if is_compared(report) {
        columns.extend(["AvgGap", "agreement"]);
    }
    if report.models.iter().any(|m| m.seconds.is_some()) {
        columns.push("seconds");
    }
    columns
}

fn is_compared(report: &RunReport) -> bool {
    report.models.iter().any(|m| m.avg_gap.is_some())
}

/// Returns a model's value in a column of the table.
fn cell(model: &Scored, column: &str) -> String {
    let value = match column {
        "RA" => Some(model.ra),
        "TA" => Some(model.ta),
        "FA" => model.fa,
        "MIA" => model.mia,
        "AvgGap" => model.avg_gap,
        "agreement" => model.agreement,
        _ => model.seconds,
    };
    value.map_or("–".to_owned(), |v| format!("{v:.2}"))
}

/// Returns what each metric is, and over which rows.
fn meanings(report: &RunReport) -> Vec<(String, String)> {
    let metrics = [
        ("ra", "accuracy, percent"),
        ("ta", "accuracy, percent"),
        ("fa", "accuracy, percent"),
        ("mia", report.mia.map_or("", Mia::meaning)),
    ];
    let measured = metrics.into_iter().filter_map(|(metric, meaning)| {
        let rows = report.over.get(metric)?;
        Some((metric.to_uppercase(), format!("{meaning}, {rows}")))
    });
    let mut meanings: Vec<(String, String)> = measured.collect();
    if is_compared(report) {
        let compared = [
            (
                "AvgGap",
                "mean distance to the first model over the four, points",
            ),
            (
                "agreement",
                "forgotten rows on which it says the same as the first model, percent",
            ),
        ];
        meanings.extend(compared.map(|(name, text)| (name.to_owned(), text.to_owned())));
    }
    meanings
}

/// Returns the model that the run is about, and the one that it was made of where there is one.
fn subject(report: &RunReport) -> Option<(&Scored, Option<&Scored>)> {
    let before = report.models.iter().find(|model| model.name == BEFORE);
    Some((report.models.last()?, before))
}

fn headline(report: &RunReport) -> String {
    let Some((model, before)) = subject(report) else {
        return "nothing was measured".to_owned();
    };
    let name = &model.name;
    match (model.avg_gap, before, model.fa) {
        (Some(gap), _, _) => {
            let reference = report.models.first().map_or("", |first| &first.name);
            format!("{name} ends {gap:.2} points from {reference}")
        }
        (None, Some(before), Some(fa)) => format!(
            "{name} takes the accuracy on the forgotten rows from {} to {fa:.2} %",
            cell(before, "FA")
        ),
        _ => format!(
            "{name} is right on {} % of the test rows",
            cell(model, "TA")
        ),
    }
}

fn figures(report: &RunReport, columns: &[&str]) -> Vec<[String; 3]> {
    let Some((model, before)) = subject(report) else {
        return Vec::new();
    };
    let metrics = [
        ("RA", "accuracy on retained rows"),
        ("TA", "accuracy on test rows"),
        ("FA", "accuracy on forgotten rows"),
    ];
    let shown = metrics
        .iter()
        .filter(|(metric, _)| columns.contains(metric));
    let mut figures: Vec<[String; 3]> = shown
        .map(|(metric, name)| {
            let held_against = before.map_or(String::new(), |before| {
                format!("{} % before", cell(before, metric))
            });
            let value = format!("{} %", cell(model, metric));
            [format!("{metric}, {name}"), value, held_against]
        })
        .collect();
    figures.extend(busiest_lane(&report.notes.lanes));
    figures
}

/// Returns the lane that bounds a run, as one of the numbers to see first.
fn busiest_lane(lanes: &Summary) -> Option<[String; 3]> {
    let bound = lanes.bound()?;
    let share = lanes.share(bound);
    Some([
        "busiest lane".to_owned(),
        bound.name.clone(),
        format!("{share:.0} % of {:.2} s", lanes.seconds),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scored(name: &str, fa: f64) -> Scored {
        Scored {
            name: name.into(),
            ra: 99.0,
            ta: 86.0,
            fa: Some(fa),
            mia: Some(40.0),
            ..Scored::default()
        }
    }

    #[test]
    fn a_run_is_told_by_what_it_changed_or_by_its_distance() {
        let mut report = RunReport {
            kind: "unlearn",
            models: vec![scored(BEFORE, 98.0), scored("MUSO", 80.5)],
            over: [("fa", "over the 6 forgotten training rows".into())].into(),
            mia: Some(Mia::Entropy),
            data: "fashion".into(),
            ..RunReport::default()
        };
        let sheet = Sheet::of_run(&report);
        assert_eq!(sheet.title, "unlearn: MUSO on fashion");
        assert_eq!(
            sheet.headline,
            "MUSO takes the accuracy on the forgotten rows from 98.00 to 80.50 %"
        );
        assert_eq!(sheet.columns, ["RA", "TA", "FA", "MIA"]);
        assert_eq!(
            sheet.figures[2],
            [
                "FA, accuracy on forgotten rows",
                "80.50 %",
                "98.00 % before"
            ]
        );
        assert_eq!(sheet.meanings.len(), 1);

        report.models.insert(0, scored("Retrain", 79.0));
        report.models[2].avg_gap = Some(1.25);
        let sheet = Sheet::of_run(&report);
        assert_eq!(sheet.headline, "MUSO ends 1.25 points from Retrain");
        assert_eq!(sheet.models[1].1[4..], ["–", "–"]);
        assert!(report.to_json().contains("\"mia\": \"entropy\"\n}"));
    }
}
