//! The data of a run on networks: a table, and what stands behind its numbers.
//!
//! A [`NetworkReport`] is a [`Table`] (methods against RA, TA, FA, MIA, AvgGap, seed gap and agreement, Retrain
//! first, the noise floor second) with the setting, the attack that MIA stands for, and for each scenario a [`Detail`]: entropies for
//! histograms, accuracies by epoch and how each method's settings were chosen.
//!
//! ```
//! use muso::outcome::{Metric, NetworkReport, Row, ScenarioTable, Stat, Table};
//!
//! let row = |method: &str, gap: f64| Row {
//!     method: method.into(),
//!     values: [(Metric::SeedGap, Stat::exact(gap))].into(),
//!     ..Default::default()
//! };
//! let rows = vec![row("Amnesiac", 10.5), row("MUSO-S", 1.9)];
//! let scenario = ScenarioTable { name: "random".into(), rows, ..Default::default() };
//! let table = Table { seeds: vec![0], scenarios: vec![scenario], ..Default::default() };
//! let report = NetworkReport { table, ..Default::default() };
//!
//! assert_eq!(report.table.scenarios[0].closest(|_| true).unwrap().method, "MUSO-S");
//! assert!(report.to_json().contains("\"mia\": {\n    \"name\": \"entropy\""));
//! ```

use std::collections::BTreeMap;

use serde::Serialize;

use super::json;
use super::table::{Metric, Table, view};
use super::updates::MethodUpdates;
use crate::evaluate::Mia;

/// A whole run on networks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NetworkReport {
    /// Table of methods against metrics.
    pub table: Table,
    /// Attack behind the table's MIA.
    pub mia: Mia,
    /// The setting in names and values, such as `network` and `small CNN, 93,322 parameters`.
    pub settings: Vec<(String, String)>,
    /// Details of the scenarios of the table, by name.
    pub details: Vec<Detail>,
    /// The configuration that repeats the run, as TOML; empty when there is none.
    pub config: String,
}

/// Details behind the numbers of one scenario.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Detail {
    /// The scenario's name in the table.
    pub scenario: String,
    /// Entropies of the models' predictions.
    pub entropies: Entropies,
    /// Accuracy of the methods over their epochs.
    pub curves: Vec<AccuracyCurve>,
    /// Choice of the methods' settings.
    pub tuning: Vec<Tuning>,
    /// Label updates of the methods that have any.
    pub updates: Vec<MethodUpdates>,
}

/// Entropies of the softmax in nats, one number a row.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Entropies {
    /// Entropies of the test rows under Retrain: how sure a model is of rows that it never saw.
    pub test_under_retrain: Vec<f64>,
    /// Entropies of the forgotten training rows under each method, Retrain among them.
    pub forgotten: Vec<(String, Vec<f64>)>,
}

/// Accuracies after each epoch of a method, for one seed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AccuracyCurve {
    /// Name of the method.
    pub method: String,
    /// Epochs done, ascending; 0 is the start. The others are as long.
    pub epochs: Vec<f64>,
    /// RA, accuracy on the retained rows, in percent.
    pub ra: Vec<f64>,
    /// TA, test accuracy, in percent.
    pub ta: Vec<f64>,
    /// FA, accuracy on the forgotten rows, in percent.
    pub fa: Vec<f64>,
}

/// Choice of one method's settings.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tuning {
    /// Name of the method.
    pub method: String,
    /// Grid of settings tried: `learning rate 1e-4, 3e-4, 1e-3`.
    pub grid: String,
    /// Settings kept: `learning rate 3e-4`.
    pub chosen: String,
    /// Seed gap of that choice on the tuning seeds, averaged over the scenarios.
    pub seed_gap: f64,
}

/// Bins of a histogram.
const BINS: usize = 24;

/// A histogram over bins of equal width from 0.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Histogram {
    /// Percent of the samples in each bin.
    pub(crate) shares: Vec<f64>,
    /// The end of the last bin.
    pub(crate) end: f64,
}

impl Histogram {
    /// Samples beyond `end` count in the last bin; those that are not finite do not count.
    pub(crate) fn of(samples: &[f64], end: f64) -> Histogram {
        let mut counts = [0_usize; BINS];
        let finite = || samples.iter().copied().filter(|x| x.is_finite());
        for x in finite() {
            let bin = (x / end * BINS as f64).max(0.0) as usize;
            counts[bin.min(BINS - 1)] += 1;
        }
        let total = finite().count().max(1) as f64;
        Histogram {
            shares: counts.iter().map(|&n| 100.0 * n as f64 / total).collect(),
            end,
        }
    }
}

impl Entropies {
    /// Returns the end of the last bin: the largest sample, so that all histograms of a scenario share their bins.
    fn end(&self) -> f64 {
        let all = self.forgotten.iter().map(|(_, samples)| samples);
        let all = all.chain([&self.test_under_retrain]).flatten();
        let largest = all.copied().filter(|x| x.is_finite()).fold(0.0, f64::max);
        if largest > 0.0 { largest } else { 1.0 }
    }

    /// The histogram of the forgotten rows under a method.
    pub(crate) fn under(&self, method: &str) -> Option<Histogram> {
        let (_, samples) = self.forgotten.iter().find(|(name, _)| name == method)?;
        (!samples.is_empty()).then(|| Histogram::of(samples, self.end()))
    }

    /// The histogram of the test rows under Retrain.
    pub(crate) fn of_test_rows(&self) -> Option<Histogram> {
        let samples = &self.test_under_retrain;
        (!samples.is_empty()).then(|| Histogram::of(samples, self.end()))
    }
}

impl NetworkReport {
    /// The table, with what its metrics are in this run where the caller has not said it.
    pub(crate) fn explained_table(&self) -> Table {
        let mut table = self.table.clone();
        let mut explain = |metric, text: &str| {
            table
                .meanings
                .entry(metric)
                .or_insert_with(|| text.to_owned());
        };
        explain(Metric::Mia, self.mia.meaning());
        if self.table.scenarios.iter().any(|s| !s.over.is_empty()) {
            explain(
                Metric::Ta,
                "accuracy on test rows, percent; which ones, each scenario says",
            );
            explain(
                Metric::Fa,
                "accuracy on what is forgotten, percent; on which rows, each scenario says",
            );
        }
        table
    }

    /// Returns the run as pretty-printed JSON: the keys of [`Table::to_json`], and with them `settings`, `mia`,
    /// `details` (by scenario: histograms of the entropies, accuracies by epoch, tuning) and `config`.
    pub fn to_json(&self) -> String {
        let table = self.explained_table();
        json::text(&View {
            table: view::Table::from(&table),
            mia: MiaView {
                name: self.mia.name(),
                explanation: self.mia.explanation(),
            },
            settings: self
                .settings
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect(),
            details: self.details.iter().map(DetailView::from).collect(),
            config: &self.config,
        })
    }
}

#[derive(Serialize)]
struct View<'a> {
    #[serde(flatten)]
    table: view::Table<'a>,
    mia: MiaView,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    settings: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<DetailView<'a>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    config: &'a str,
}

#[derive(Serialize)]
struct MiaView {
    name: &'static str,
    explanation: &'static str,
}

#[derive(Serialize)]
struct DetailView<'a> {
    scenario: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    entropy: Option<EntropyView<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    curves: Vec<CurveView<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tuning: Vec<TuningView<'a>>,
    #[serde(skip_serializing_if = "<[MethodUpdates]>::is_empty")]
    label_updates: &'a [MethodUpdates],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Histograms and not the samples, of which there may be a hundred thousand.
#[derive(Serialize)]
struct EntropyView<'a> {
    bins: usize,
    end: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    test_under_retrain: Option<Vec<f64>>,
    forgotten: BTreeMap<&'a str, Vec<f64>>,
}

#[derive(Serialize)]
struct CurveView<'a> {
    method: &'a str,
    epochs: Vec<f64>,
    ra: Vec<f64>,
    ta: Vec<f64>,
    fa: Vec<f64>,
}

#[derive(Serialize)]
struct TuningView<'a> {
    method: &'a str,
    grid: &'a str,
    chosen: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed_gap: Option<f64>,
}

impl<'a> From<&'a Detail> for DetailView<'a> {
    fn from(detail: &'a Detail) -> Self {
        let entropies = &detail.entropies;
        let forgotten: BTreeMap<&str, Vec<f64>> = entropies
            .forgotten
            .iter()
            .filter_map(|(name, _)| Some((name.as_str(), entropies.under(name)?.shares)))
            .collect();
        let test_under_retrain = entropies.of_test_rows().map(|h| h.shares);
        let measured = test_under_retrain.is_some() || !forgotten.is_empty();
        DetailView {
            scenario: &detail.scenario,
            entropy: measured.then(|| EntropyView {
                bins: BINS,
                end: entropies.end(),
                test_under_retrain,
                forgotten,
            }),
            curves: detail.curves.iter().map(CurveView::from).collect(),
            tuning: detail
                .tuning
                .iter()
                .map(|tuning| TuningView {
                    method: &tuning.method,
                    grid: &tuning.grid,
                    chosen: &tuning.chosen,
                    seed_gap: json::finite(tuning.seed_gap),
                })
                .collect(),
            label_updates: &detail.updates,
            warnings: detail
                .updates
                .iter()
                .flat_map(MethodUpdates::warnings)
                .collect(),
        }
    }
}

impl<'a> From<&'a AccuracyCurve> for CurveView<'a> {
    fn from(curve: &'a AccuracyCurve) -> Self {
        // The epochs at which all of them were measured.
        let at = |k: usize| {
            let metrics = [&curve.epochs, &curve.ra, &curve.ta, &curve.fa];
            let values = metrics.map(|values| values.get(k).copied().unwrap_or(f64::NAN));
            values.iter().all(|v| v.is_finite()).then_some(values)
        };
        let points: Vec<[f64; 4]> = (0..curve.epochs.len()).filter_map(at).collect();
        let column = |j: usize| points.iter().map(|point| point[j]).collect();
        CurveView {
            method: &curve.method,
            epochs: column(0),
            ra: column(1),
            ta: column(2),
            fa: column(3),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::outcome::{NOISE_FLOOR, Row, ScenarioTable, Stat, sample};

    #[test]
    fn json_extends_the_documented_shape() {
        let report = sample::network();
        let text = report.to_json();
        assert_eq!(text, sample::network().to_json());
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["kind"], "table");
        assert_eq!(json["mia"]["name"], "entropy");
        assert_eq!(json["settings"]["batch"], "128");
        assert!(json["config"].as_str().unwrap().contains("[unlearn]"));
        let scenario = &json["scenarios"][0];
        assert_eq!(
            scenario["over"]["fa"],
            "over the 200 forgotten training rows"
        );
        let rows = scenario["rows"].as_array().unwrap();
        assert_eq!(rows[0]["method"], "Retrain");
        assert_eq!(rows[1]["method"], NOISE_FLOOR);
        let muso = rows.iter().find(|row| row["method"] == "MUSO-S").unwrap();
        for key in ["ra", "ta", "fa", "mia", "seed_gap", "agreement"] {
            assert!(muso["mean"][key].is_f64(), "{key}");
            assert!(muso["std"][key].is_f64(), "{key}");
        }
        // A gap of means has no spread over seeds.
        assert!(muso["mean"]["avg_gap"].as_f64() <= muso["mean"]["seed_gap"].as_f64());
        assert!(muso["std"].get("avg_gap").is_none());
        assert!(muso["seconds"].is_f64() && muso["time_ratio"].is_f64());
        assert_eq!(muso["settings"]["epochs"], "4");
        assert!(muso["mean"].get("delta_w").is_none());
        let detail = &json["details"][0];
        assert_eq!(detail["scenario"], "random");
        let shares = detail["entropy"]["forgotten"]["MUSO-S"].as_array().unwrap();
        let sum: f64 = shares.iter().map(|x| x.as_f64().unwrap()).sum();
        assert!((sum - 100.0).abs() < 1e-9);
        assert_eq!(detail["curves"][0]["ra"].as_array().unwrap().len(), 5);
        assert!(detail["tuning"][0]["seed_gap"].is_f64());
        let updates = detail["label_updates"][0]["updates"].as_array().unwrap();
        assert_eq!((updates.len(), &updates[1]["changed"]), (2, &0.005.into()));
        assert!(updates[0]["trace_ratio"].is_f64() && updates[0]["rounding"].is_f64());
        assert!(detail["warnings"][0].as_str().unwrap().contains("tr(Π)/D"));
    }

    #[test]
    fn json_never_holds_a_value_that_is_not_finite() {
        let mut report = sample::network();
        let detail = &mut report.details[0];
        detail.entropies.test_under_retrain[0] = f64::NAN;
        detail.entropies.forgotten[0].1 = vec![f64::INFINITY];
        detail.curves[0].ta[2] = f64::NAN;
        detail.curves[1].fa.clear();
        detail.tuning[0].seed_gap = f64::NAN;
        report.table.scenarios[0].rows[2].time_ratio = Some(f64::INFINITY);
        let text = report.to_json();
        assert!(!text.contains("null") && !text.contains("NaN") && !text.contains("inf\""));
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let curves = &json["details"][0]["curves"];
        assert_eq!(curves[0]["ra"].as_array().unwrap().len(), 4);
        assert_eq!(curves[1]["epochs"].as_array().unwrap().len(), 0);
        assert!(json["details"][0]["tuning"][0].get("seed_gap").is_none());
        assert!(
            serde_json::from_str::<serde_json::Value>(&NetworkReport::default().to_json()).is_ok()
        );
    }

    #[test]
    fn histograms_count_every_sample_once() {
        let histogram = Histogram::of(&[0.0, 0.1, 0.999, 1.0, 7.0, -1.0, f64::NAN], 1.0);
        assert_eq!(histogram.shares.len(), BINS);
        assert!((histogram.shares.iter().sum::<f64>() - 100.0).abs() < 1e-12);
        assert!((histogram.shares[0] - 100.0 / 3.0).abs() < 1e-12);
        assert!((histogram.shares[BINS - 1] - 50.0).abs() < 1e-12);
        assert!(Entropies::default().of_test_rows().is_none());
    }

    #[test]
    fn the_closest_is_neither_retrain_nor_noise() {
        let report = sample::network();
        for scenario in &report.table.scenarios {
            let best = scenario.closest(|_| true).unwrap();
            assert_eq!(best.method, "MUSO-S");
        }
        let mut scenario = report.table.scenarios[0].clone();
        let worse = |row: &mut Row| {
            row.values.insert(Metric::SeedGap, Stat::exact(50.0));
        };
        scenario
            .rows
            .iter_mut()
            .filter(|r| r.method.starts_with("MUSO"))
            .for_each(worse);
        let best = scenario.closest(|_| true).unwrap();
        assert!(!best.method.starts_with("MUSO") && best.method != NOISE_FLOOR);
        assert!(ScenarioTable::default().closest(|_| true).is_none());
    }
}
