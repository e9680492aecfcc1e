//! `muso compare`: the gap table, every method against retraining, over scenarios and seeds.
//!
//! [`run`] puts data and network on a [`Workbench`], lets a [`Plan`] do the work, and makes the report of what it found.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use super::cases::Case;
use super::config::Config;
use super::kept::Kept;
use super::plan::{Arm, Comparison, Plan, Run};
use super::settings::flat;
use super::workbench::Workbench;
use super::workplace::Workplace;
use crate::error::{Error, Result};
use crate::evaluate::{Judged, RowSet, Scores, avg_gap};
use crate::labels::LabelUpdate;
use crate::methods::networks as methods;
use crate::outcome::{
    ABOUT_NOISE_FLOOR, ABOUT_PRETRAINED, AccuracyCurve, Detail, Entropies, MethodUpdates, Metric,
    NOISE_FLOOR, NetworkReport, PRETRAINED, RETRAIN, Row, ScenarioTable, Stat, Table, Tuning,
    paper,
};
use crate::progress::Progress;

/// Title, notes and other words around the table of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// Title of the table, in a line.
    pub title: String,
    /// Network and data set, in a line.
    pub setting: String,
    /// Command line that repeats the run.
    pub command: String,
    /// Remarks that stand under the table.
    pub notes: Vec<String>,
    /// Hyperparameter search of each method whose settings were tuned.
    pub tuning: Vec<Tuning>,
    /// Names of the scenarios in the order of the configuration; those that are missing have the usual ones.
    pub names: Vec<String>,
    /// Table number and data set of the paper whose results stand beside the run's.
    pub paper: Option<(u8, &'static str)>,
}

impl Setting {
    /// Returns the words around a comparison that the user configured.
    pub fn own() -> Self {
        Self {
            title: "Unlearning, method by method".into(),
            ..Self::default()
        }
    }
}

/// Result of a finished comparison of methods.
pub struct Compared {
    /// Report with the gap table and the details of every scenario.
    pub report: NetworkReport,
}

impl Compared {
    /// Returns the report as JSON, for programs.
    pub fn to_json(&self) -> String {
        self.report.to_json()
    }
}

/// Runs every method of a configuration against retraining, and returns the gap table. Finished jobs are kept in the folder
/// `kept`, and those that are there are not done again.
///
/// # Errors
/// If something is wrong with the configuration, its data or the folder; [`Error::Paused`] or [`Error::Interrupted`] if
/// `progress` asks to stop.
pub fn run(
    config: &Config,
    setting: Setting,
    place: &Workplace,
    kept: Option<&Path>,
    progress: &mut dyn Progress,
) -> Result<Compared> {
    let mut arms = config.arms()?;
    arms.retain(|arm| arm.key != "retrain");
    let clock = Instant::now();
    let (workbench, cases) = prepare(config, place)?;
    let kept = kept.map(|folder| Kept::open(folder, config)).transpose()?;
    let outcome = run_arms(config, &workbench, &cases, &arms, kept.as_ref(), progress);
    let comparisons = outcome.map_err(|error| match (error, &kept) {
        (Error::Interrupted, Some(kept)) => Error::Paused {
            folder: kept.folder().to_owned(),
        },
        (error, _) => error,
    })?;
    let mut report = report(config, setting, &workbench, &arms, &cases, &comparisons);
    report.table.seconds = clock.elapsed().as_secs_f64();
    report.table.machine = format!("cpu, {} threads", place.threads);
    Ok(Compared { report })
}

impl Compared {
    /// Appends the scenarios of another comparison, whose settings are those of this one but for the data.
    pub fn join(mut self, other: Self) -> Self {
        let (mine, theirs) = (&mut self.report, other.report);
        mine.table.scenarios.extend(theirs.table.scenarios);
        mine.table.seconds += theirs.table.seconds;
        mine.details.extend(theirs.details);
        mine.config
            .push_str("\n# ---- the next part of the table is a run of its own ----\n\n");
        mine.config.push_str(&theirs.config);
        self
    }
}

/// Opens the data and finds the rows of every scenario and seed.
pub fn prepare(config: &Config, place: &Workplace) -> Result<(Workbench, Vec<Vec<Case>>)> {
    let data = config.data.open()?;
    let network = config.network(&data);
    let cases = config
        .forget
        .iter()
        .map(|forget| {
            config
                .seeds
                .iter()
                .map(|&seed| Case::new(forget, &data, seed))
                .collect()
        })
        .collect::<Result<Vec<Vec<Case>>>>()?;
    Ok((Workbench::new(place, data, network)?, cases))
}

/// Trains, retrains and unlearns with every arm in every case of a configuration, and returns what was measured.
pub fn run_arms(
    config: &Config,
    workbench: &Workbench,
    cases: &[Vec<Case>],
    arms: &[Arm],
    kept: Option<&Kept>,
    progress: &mut dyn Progress,
) -> Result<Vec<Comparison>> {
    let plan = Plan {
        workbench,
        recipe: &config.train,
        snapshots: &config.snapshot_epochs(),
        mia: config.mia,
        seeds: &config.seeds,
        cases,
        arms,
        retrains: config.retrains,
        kept,
    };
    plan.run(progress)
}

fn stat(runs: &[&Run], value: impl Fn(&Run) -> f64) -> Stat {
    Stat::of(&runs.iter().map(|run| value(run)).collect::<Vec<_>>())
}

/// Returns the means over some runs of RA, TA, FA and MIA.
fn means(runs: &[&Run]) -> Scores {
    let mean = |value: fn(&Scores) -> f64| stat(runs, |run| value(&run.measured.scores)).mean;
    Scores {
        ra: mean(|scores| scores.ra),
        ta: mean(|scores| scores.ta),
        fa: mean(|scores| scores.fa),
        mia: mean(|scores| scores.mia),
    }
}

/// Returns how far one retrained model is from the others in the means over seeds, averaged over which one it is.
fn noise_of_means(comparisons: &[&Comparison]) -> f64 {
    let orders = comparisons
        .iter()
        .map(|c| c.retrain.len())
        .min()
        .unwrap_or(0);
    let gap = |order: usize| {
        let one: Vec<&Run> = comparisons.iter().map(|c| &c.retrain[order]).collect();
        let others = comparisons.iter().flat_map(|c| {
            let others = c.retrain.iter().enumerate();
            others.filter(|(k, _)| *k != order).map(|(_, run)| run)
        });
        avg_gap(&means(&one), &means(&others.collect::<Vec<_>>()))
    };
    (0..orders).map(gap).sum::<f64>() / orders as f64
}

/// Makes the row of a method; `gap` is the gap of its means, which Retrain has not.
fn row(method: &str, runs: &[&Run], gap: Option<f64>) -> Row {
    let mut values = BTreeMap::from([
        (Metric::Ra, stat(runs, |run| run.measured.scores.ra)),
        (Metric::Ta, stat(runs, |run| run.measured.scores.ta)),
        (Metric::Fa, stat(runs, |run| run.measured.scores.fa)),
        (Metric::Mia, stat(runs, |run| run.measured.scores.mia)),
    ]);
    if let Some(mean) = gap {
        let std = f64::NAN;
        values.insert(Metric::AvgGap, Stat { mean, std });
        values.insert(Metric::SeedGap, stat(runs, |run| run.gap));
        values.insert(Metric::Agreement, stat(runs, |run| run.agreement));
    }
    Row {
        method: method.to_owned(),
        values,
        seconds: stat(runs, |run| run.seconds),
        about: about(method).to_owned(),
        ..Row::default()
    }
}

/// Returns the summary of a row's method or reference model.
fn about(method: &str) -> &'static str {
    match method {
        PRETRAINED => ABOUT_PRETRAINED,
        NOISE_FLOOR => ABOUT_NOISE_FLOOR,
        _ => methods::find(method).map_or("", |entry| entry.about),
    }
}

/// Returns the phrase for the rows of a metric. Where the class changes with the seed, the first seed's rows stand for
/// the others'.
fn rows_of(comparisons: &[&Comparison], choose: impl Fn(&Judged) -> &RowSet) -> String {
    let mut phrases = comparisons.iter().map(|c| choose(&c.judged).phrase());
    let first = phrases.next().unwrap_or_default();
    if phrases.all(|phrase| phrase == first) {
        first
    } else {
        format!("{first} (first seed; each seed has its own class)")
    }
}

fn report(
    config: &Config,
    setting: Setting,
    workbench: &Workbench,
    arms: &[Arm],
    cases: &[Vec<Case>],
    comparisons: &[Comparison],
) -> NetworkReport {
    let mut scenarios = Vec::new();
    let mut details = Vec::new();
    for index in 0..config.forget.len() {
        let here: Vec<&Comparison> = comparisons.iter().filter(|c| c.scenario == index).collect();
        let Some(first) = here.first() else { continue };
        let pick = |choose: &dyn for<'a> Fn(&'a Comparison) -> &'a Run| -> Vec<&Run> {
            here.iter().map(|c| choose(c)).collect()
        };
        let retrain: Vec<&Run> = here.iter().flat_map(|c| &c.retrain).collect();
        let truth = means(&retrain);
        let against = |method: &str, runs: &[&Run]| {
            let gap = avg_gap(&means(runs), &truth);
            row(method, runs, Some(gap))
        };
        let mut rows = vec![row(RETRAIN, &retrain, None)];
        if config.retrains > 1 {
            rows.push(Row {
                seconds: Stat::of(&[]),
                ..row(NOISE_FLOOR, &retrain, Some(noise_of_means(&here)))
            });
        }
        rows.push(Row {
            seconds: Stat::of(&[]),
            ..against(PRETRAINED, &pick(&|c| &c.original))
        });
        for (k, arm) in arms.iter().enumerate() {
            let mut row = against(&arm.name, &pick(&move |c| &c.arms[k]));
            row.about = about(arm.key).to_owned();
            row.time_ratio = Some(row.seconds.mean / rows[0].seconds.mean);
            row.settings = flat(&arm.method.settings());
            rows.push(row);
        }
        let case = &cases[index][0];
        let name = match setting.names.get(index) {
            Some(name) => name.clone(),
            None => scenario_name(config, cases, index),
        };
        if let Some((table, dataset)) = setting.paper {
            // The published rows of a method stand beside every arm of it.
            let published = |method| paper::network(table, dataset, &name, method);
            let references = rows.len() - arms.len();
            let (references, of_arms) = rows.split_at_mut(references);
            for row in references {
                row.paper = published(&row.method);
            }
            for (row, arm) in of_arms.iter_mut().zip(arms) {
                row.paper = published(arm.method_name());
            }
        }
        scenarios.push(ScenarioTable {
            name: name.clone(),
            retained: case.split.retain.len(),
            forgotten: case.split.forget.len(),
            test: case.judged.ta.rows.len(),
            over: BTreeMap::from([
                (Metric::Ra, rows_of(&here, |j| &j.ra)),
                (Metric::Ta, rows_of(&here, |j| &j.ta)),
                (Metric::Fa, rows_of(&here, |j| &j.fa)),
                (Metric::Mia, rows_of(&here, |j| &j.forgotten)),
            ]),
            rows,
            ..ScenarioTable::default()
        });
        details.push(detail(name, first, &here, arms, &setting));
    }
    let network = &workbench.network;
    let settings = [
        (
            "data",
            format!(
                "{}, {} training and {} test images",
                config.data.kind,
                workbench.train.data.set.len(),
                workbench.test.data.set.len()
            ),
        ),
        (
            "network",
            format!("{}, {} features", network.architecture, network.features()),
        ),
        (
            "training",
            format!(
                "{} epochs of {} rows, batch {}",
                config.train.epochs,
                workbench.train.data.set.len(),
                config.train.batch
            ),
        ),
    ];
    NetworkReport {
        table: Table {
            setting: setting.setting,
            title: setting.title,
            seeds: config.seeds.clone(),
            scenarios,
            notes: setting.notes,
            command: setting.command,
            version: crate::VERSION.to_owned(),
            ..Table::default()
        },
        mia: config.mia,
        settings: settings
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        details,
        config: config.to_toml(),
    }
}

/// Returns the name of a scenario: `random`, or `random (10 % at random)` where several of a run would have that name.
fn scenario_name(config: &Config, cases: &[Vec<Case>], index: usize) -> String {
    let name = cases[index][0].scenario;
    let alike = cases.iter().filter(|case| case[0].scenario == name);
    if alike.count() == 1 {
        name.to_owned()
    } else {
        format!("{name} ({})", config.forget[index].describe())
    }
}

fn detail(
    scenario: String,
    first: &Comparison,
    here: &[&Comparison],
    arms: &[Arm],
    setting: &Setting,
) -> Detail {
    let all = |choose: &dyn for<'a> Fn(&'a Comparison) -> &'a Run| -> Vec<f64> {
        here.iter()
            .flat_map(|c| choose(c).measured.forgotten.entropies())
            .collect()
    };
    let mut forgotten = vec![
        (RETRAIN.to_owned(), all(&|c| &c.retrain[0])),
        (PRETRAINED.to_owned(), all(&|c| &c.original)),
    ];
    for (k, arm) in arms.iter().enumerate() {
        forgotten.push((arm.name.clone(), all(&move |c| &c.arms[k])));
    }
    let updates = arms.iter().enumerate().filter_map(|(k, arm)| {
        let runs: Vec<&[LabelUpdate]> = here.iter().map(|c| c.arms[k].updates.as_slice()).collect();
        let updates = MethodUpdates::mean(&arm.name, &runs);
        (!updates.updates.is_empty()).then_some(updates)
    });
    let start = first.original.measured.scores;
    let curves = arms
        .iter()
        .zip(&first.arms)
        .filter(|(_, run)| !run.curve.is_empty())
        .map(|(arm, run)| {
            let along = |start: f64, k: usize| -> Vec<f64> {
                std::iter::once(start)
                    .chain(run.curve.iter().map(|at| at[k]))
                    .collect()
            };
            AccuracyCurve {
                method: arm.name.clone(),
                epochs: (0..=run.curve.len()).map(|epoch| epoch as f64).collect(),
                ra: along(start.ra, 0),
                ta: along(start.ta, 1),
                fa: along(start.fa, 2),
            }
        })
        .collect();
    Detail {
        scenario,
        entropies: Entropies {
            test_under_retrain: here
                .iter()
                .flat_map(|c| c.retrain[0].measured.test_entropies.clone())
                .collect(),
            forgotten,
        },
        curves,
        tuning: setting.tuning.clone(),
        updates: updates.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_says_what_it_is() {
        for entry in &methods::METHODS {
            assert!(!entry.about.is_empty(), "{}", entry.name);
            assert_eq!(about(entry.name), entry.about);
        }
        for row in [RETRAIN, PRETRAINED, NOISE_FLOOR] {
            assert!(!about(row).is_empty(), "{row}");
        }
        assert_eq!(about("a method that is not ours"), "");
    }
}
