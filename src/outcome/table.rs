//! The data of a table run: methods against metrics, for each scenario.
//!
//! Filled from the `evaluate` stage, rendered by the `report` stage, and written for other programs by
//! [`Table::to_json`]. A value that is not finite is never written: a missing key says
//! "not measured" in a way that every JSON reader understands, a `NaN` does not.
//!
//! ```
//! use muso::outcome::{Metric, Stat};
//!
//! let accuracy = Stat::of(&[92.0, 93.0, 94.0]);
//! assert_eq!((accuracy.mean, accuracy.std), (93.0, 1.0));
//! assert_eq!(Metric::DeltaW.key(), "delta_w");
//! ```

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::json;

/// Mean and spread of one number over seeds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stat {
    /// Arithmetic mean of the runs.
    pub mean: f64,
    /// The sample standard deviation (divided by n − 1); 0 for a single value.
    pub std: f64,
}

impl Stat {
    /// Returns the mean and sample standard deviation of `values`. No values give a `NaN` mean, which every writer of
    /// this module leaves out.
    pub fn of(values: &[f64]) -> Stat {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let std = if values.len() > 1 {
            let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
            (squares / (n - 1.0)).sqrt()
        } else {
            0.0
        };
        Stat { mean, std }
    }

    /// Takes a number without spread.
    pub fn exact(mean: f64) -> Stat {
        Stat { mean, std: 0.0 }
    }

    /// True when the mean can be shown.
    pub(crate) fn is_finite(&self) -> bool {
        self.mean.is_finite()
    }
}

/// Measured quantities. The order is that of the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Metric {
    /// Accuracy on the retained training rows, percent.
    Ra,
    /// Accuracy on the test rows, percent.
    Ta,
    /// Accuracy on the forgotten rows, percent.
    Fa,
    /// Membership inference: percent of the forgotten rows that the attack calls members.
    Mia,
    /// Squared distance to the retrained weights, divided by their number.
    DeltaW,
    /// Gap of the means over seeds: the mean over RA, TA, FA and MIA of |mean − Retrain's mean|, as the paper has it.
    AvgGap,
    /// Mean over seeds of each seed's own gap to its own Retrain; never smaller than [`Metric::AvgGap`].
    SeedGap,
    /// Percent of the forgotten rows on which the model predicts what Retrain predicts.
    Agreement,
}

/// The row of the model that every other is measured from.
pub const RETRAIN: &str = "Retrain";
/// The row of the model before unlearning.
pub const PRETRAINED: &str = "Pre-trained";
/// The row of a second retrained model, from the same initial weights with the rows in another order: what lies between
/// it and [`RETRAIN`] is noise, and no method can be asked to come closer.
pub const NOISE_FLOOR: &str = "Retrain again";

/// Explains [`PRETRAINED`], for [`Row::about`].
pub const ABOUT_PRETRAINED: &str =
    "trained on all rows, nothing forgotten: where every method starts";
/// Explains [`NOISE_FLOOR`], for [`Row::about`].
pub const ABOUT_NOISE_FLOOR: &str = "retrained once more from the same initial weights, with the rows in another order. What \
     lies between two retrained models is noise, and no method can be asked to come closer: the noise floor";

impl Metric {
    /// All metrics, in column order.
    pub const ALL: [Metric; 8] = [
        Metric::Ra,
        Metric::Ta,
        Metric::Fa,
        Metric::Mia,
        Metric::DeltaW,
        Metric::AvgGap,
        Metric::SeedGap,
        Metric::Agreement,
    ];

    /// Returns the name in JSON and in the paper's CSV file.
    pub fn key(self) -> &'static str {
        match self {
            Metric::Ra => "ra",
            Metric::Ta => "ta",
            Metric::Fa => "fa",
            Metric::Mia => "mia",
            Metric::DeltaW => "delta_w",
            Metric::AvgGap => "avg_gap",
            Metric::SeedGap => "seed_gap",
            Metric::Agreement => "agreement",
        }
    }

    /// Returns the name above a column.
    pub fn title(self) -> &'static str {
        match self {
            Metric::Ra => "RA",
            Metric::Ta => "TA",
            Metric::Fa => "FA",
            Metric::Mia => "MIA",
            Metric::DeltaW => "Δw",
            Metric::AvgGap => "AvgGap",
            Metric::SeedGap => "seed gap",
            Metric::Agreement => "agreement",
        }
    }

    /// Returns a phrase that says what the number is and over which rows, as in the linear table. A run that measures
    /// over other rows says so in [`Table::meanings`].
    pub fn meaning(self) -> &'static str {
        match self {
            Metric::Ra => "accuracy on the retained training rows, percent",
            Metric::Ta => "accuracy on all test rows, percent",
            Metric::Fa => "accuracy on the forgotten training rows, percent",
            Metric::Mia => {
                "forgotten training rows that a membership attack calls members, percent"
            }
            Metric::DeltaW => {
                "squared distance to the retrained weights per weight, ‖w − w_r‖² / D"
            }
            Metric::AvgGap => {
                "gap to Retrain of the means over seeds, mean of |RA|, |TA|, |FA| and |MIA|, points: the paper's statistic"
            }
            Metric::SeedGap => {
                "the same gap seed by seed, each to its own Retrain, then the mean over seeds, points; never below AvgGap"
            }
            Metric::Agreement => {
                "forgotten training rows on which the model predicts the same class as Retrain, percent"
            }
        }
    }

    /// Returns true for metrics in percent that are best when they equal Retrain's; the others compare with Retrain
    /// already.
    pub fn is_percent(self) -> bool {
        matches!(self, Metric::Ra | Metric::Ta | Metric::Fa | Metric::Mia)
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.key())
    }
}

/// Numbers of one method in one scenario.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Row {
    /// Name of the method, as in the paper's tables where it is there.
    pub method: String,
    /// Values that were measured.
    pub values: BTreeMap<Metric, Stat>,
    /// Values that the paper published, where it did.
    pub paper: BTreeMap<Metric, Stat>,
    /// Wall time of the method.
    pub seconds: Stat,
    /// Wall time divided by Retrain's, where that is worth a column.
    pub time_ratio: Option<f64>,
    /// The settings it ran with, by name.
    pub settings: BTreeMap<String, String>,
    /// A remark that belongs to this method, shown as a footnote.
    pub note: Option<String>,
    /// Phrase that explains the method; empty where nothing is to be explained. Not part of the JSON form.
    pub about: String,
}

impl Row {
    /// Returns the mean of a metric, where it was measured.
    pub fn mean(&self, metric: Metric) -> Option<f64> {
        self.values
            .get(&metric)
            .map(|stat| stat.mean)
            .filter(|mean| mean.is_finite())
    }
}

/// The path of an iterative method, from the first seed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Curve {
    /// Name of the method.
    pub method: String,
    /// Epochs done, ascending; 0 is the start.
    pub epochs: Vec<f64>,
    /// Δw after as many epochs; as long as `epochs`.
    pub delta_w: Vec<f64>,
}

/// All methods in one scenario.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScenarioTable {
    /// `full-class`, `sub-class` or `random`.
    pub name: String,
    /// Training rows that stay.
    pub retained: usize,
    /// Training rows that go.
    pub forgotten: usize,
    /// Number of test rows.
    pub test: usize,
    /// Over which rows a metric is in this scenario, as `over the 200 forgotten training rows`; empty when
    /// [`Table::meaning`] says it for all scenarios.
    pub over: BTreeMap<Metric, String>,
    /// The methods, in the order they are shown.
    pub rows: Vec<Row>,
    /// The paths of the iterative ones.
    pub curves: Vec<Curve>,
}

impl ScenarioTable {
    /// Returns the metrics that at least one row has, ours or the paper's, in column order.
    pub fn metrics(&self) -> Vec<Metric> {
        Metric::ALL
            .into_iter()
            .filter(|m| {
                self.rows
                    .iter()
                    .any(|row| row.values.contains_key(m) || row.paper.contains_key(m))
            })
            .collect()
    }

    /// Returns the row of that method.
    pub fn row(&self, method: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.method == method)
    }

    /// Returns the row with the least seed gap among those that `eligible` picks; never Retrain or the noise floor.
    pub fn closest(&self, eligible: impl Fn(&Row) -> bool) -> Option<&Row> {
        self.rows
            .iter()
            .filter(|row| row.method != RETRAIN && row.method != NOISE_FLOOR && eligible(row))
            .filter_map(|row| Some((row, row.mean(Metric::SeedGap)?)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(row, _)| row)
    }
}

/// A whole table run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// A short machine name of the setting, such as `linear`.
    pub setting: String,
    /// Title in one line: data, features, sizes.
    pub title: String,
    /// The seeds that were run.
    pub seeds: Vec<u64>,
    /// The scenarios, in the order they are shown.
    pub scenarios: Vec<ScenarioTable>,
    /// Definitions of metrics in this run, where [`Metric::meaning`] does not fit.
    pub meanings: BTreeMap<Metric, String>,
    /// Remarks on the run as a whole.
    pub notes: Vec<String>,
    /// The command line that repeats the run; empty when there is none.
    pub command: String,
    /// Wall time of the whole run.
    pub seconds: f64,
    /// Description of the machine, such as `2 threads, avx2+fma`.
    pub machine: String,
    /// The version of this crate.
    pub version: String,
}

impl Table {
    /// Returns the definition of `metric` in this run.
    pub fn meaning(&self, metric: Metric) -> &str {
        self.meanings
            .get(&metric)
            .map_or_else(|| metric.meaning(), String::as_str)
    }

    /// Returns the metrics of any scenario, in column order.
    pub fn metrics(&self) -> Vec<Metric> {
        Metric::ALL
            .into_iter()
            .filter(|m| self.scenarios.iter().any(|s| s.metrics().contains(m)))
            .collect()
    }

    /// Returns the run as pretty-printed JSON with a fixed key order: the same run gives the same bytes.
    pub fn to_json(&self) -> String {
        json::text(&view::Table::from(self))
    }
}

/// The JSON layout, apart from the types above so that either can change without the other.
pub(super) mod view {
    use super::{BTreeMap, Metric, Serialize, Stat};
    use crate::outcome::json::finite;

    #[derive(Serialize)]
    pub(in crate::outcome) struct Table<'a> {
        kind: &'static str,
        setting: &'a str,
        title: &'a str,
        seeds: &'a [u64],
        scenarios: Vec<Scenario<'a>>,
        metrics: BTreeMap<Metric, &'a str>,
        #[serde(skip_serializing_if = "<[String]>::is_empty")]
        notes: &'a [String],
        #[serde(skip_serializing_if = "str::is_empty")]
        command: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        seconds: Option<f64>,
        machine: &'a str,
        version: &'a str,
    }

    #[derive(Serialize)]
    struct Scenario<'a> {
        name: &'a str,
        retained: usize,
        forgotten: usize,
        test: usize,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        over: &'a BTreeMap<Metric, String>,
        rows: Vec<Row<'a>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        curves: Vec<Curve<'a>>,
    }

    #[derive(Serialize)]
    struct Row<'a> {
        method: &'a str,
        mean: BTreeMap<Metric, f64>,
        std: BTreeMap<Metric, f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        seconds: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        seconds_std: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        time_ratio: Option<f64>,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        settings: &'a BTreeMap<String, String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        paper: Option<Published>,
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<&'a str>,
    }

    #[derive(Serialize)]
    struct Published {
        mean: BTreeMap<Metric, f64>,
        std: BTreeMap<Metric, f64>,
    }

    #[derive(Serialize)]
    struct Curve<'a> {
        method: &'a str,
        epochs: Vec<f64>,
        delta_w: Vec<f64>,
    }

    fn means(stats: &BTreeMap<Metric, Stat>) -> BTreeMap<Metric, f64> {
        let finite_mean = |(metric, stat): (&Metric, &Stat)| Some((*metric, finite(stat.mean)?));
        stats.iter().filter_map(finite_mean).collect()
    }

    fn spreads(stats: &BTreeMap<Metric, Stat>) -> BTreeMap<Metric, f64> {
        stats
            .iter()
            .filter(|(_, stat)| stat.is_finite())
            .filter_map(|(metric, stat)| Some((*metric, finite(stat.std)?)))
            .collect()
    }

    impl<'a> From<&'a super::Table> for Table<'a> {
        fn from(table: &'a super::Table) -> Self {
            Table {
                kind: "table",
                setting: &table.setting,
                title: &table.title,
                seeds: &table.seeds,
                scenarios: table.scenarios.iter().map(Scenario::from).collect(),
                metrics: table
                    .metrics()
                    .into_iter()
                    .map(|m| (m, table.meaning(m)))
                    .collect(),
                notes: &table.notes,
                command: &table.command,
                seconds: finite(table.seconds),
                machine: &table.machine,
                version: &table.version,
            }
        }
    }

    impl<'a> From<&'a super::ScenarioTable> for Scenario<'a> {
        fn from(scenario: &'a super::ScenarioTable) -> Self {
            Scenario {
                name: &scenario.name,
                retained: scenario.retained,
                forgotten: scenario.forgotten,
                test: scenario.test,
                over: &scenario.over,
                rows: scenario.rows.iter().map(Row::from).collect(),
                curves: scenario.curves.iter().map(Curve::from).collect(),
            }
        }
    }

    impl<'a> From<&'a super::Row> for Row<'a> {
        fn from(row: &'a super::Row) -> Self {
            Row {
                method: &row.method,
                mean: means(&row.values),
                std: spreads(&row.values),
                seconds: finite(row.seconds.mean),
                seconds_std: finite(row.seconds.std),
                time_ratio: row.time_ratio.and_then(finite),
                settings: &row.settings,
                paper: (!row.paper.is_empty()).then(|| Published {
                    mean: means(&row.paper),
                    std: spreads(&row.paper),
                }),
                note: row.note.as_deref(),
            }
        }
    }

    impl<'a> From<&'a super::Curve> for Curve<'a> {
        fn from(curve: &'a super::Curve) -> Self {
            let (epochs, delta_w) = curve
                .epochs
                .iter()
                .zip(&curve.delta_w)
                .filter(|(epoch, delta)| epoch.is_finite() && delta.is_finite())
                .unzip();
            Curve {
                method: &curve.method,
                epochs,
                delta_w,
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::outcome::sample;

    #[test]
    fn stat_is_the_sample_standard_deviation() {
        let stat = Stat::of(&[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(stat.mean, 2.5);
        assert!((stat.std - (5.0f64 / 3.0).sqrt()).abs() < 1e-15);
        assert_eq!(Stat::of(&[7.0]), Stat::exact(7.0));
        assert!(Stat::of(&[]).mean.is_nan());
    }

    #[test]
    fn json_has_the_documented_shape() {
        let table = sample::table();
        let json: serde_json::Value = serde_json::from_str(&table.to_json()).unwrap();
        assert_eq!(json["kind"], "table");
        assert_eq!(json["setting"], "linear");
        let scenario = &json["scenarios"][0];
        assert_eq!(scenario["name"], "full-class");
        let row = &scenario["rows"][4];
        assert_eq!(row["method"], "MUSO");
        assert!(row["mean"]["delta_w"].as_f64().unwrap() < 1e-10);
        assert!(row["std"]["delta_w"].is_f64());
        assert!(row["seconds"].is_f64());
        assert_eq!(row["paper"]["mean"]["delta_w"], 0.0001);
        // Networks measure these; this table does not, so the keys are absent rather than null.
        assert!(row["mean"].get("mia").is_none());
        assert!(row["mean"].get("avg_gap").is_none());
        assert!(scenario["curves"][0]["epochs"].is_array());
    }

    #[test]
    fn json_is_stable_and_in_metric_order() {
        let text = sample::table().to_json();
        assert_eq!(text, sample::table().to_json());
        let at = |key: &str| text.find(&format!("\"{key}\":")).unwrap();
        assert!(at("ra") < at("ta") && at("ta") < at("fa") && at("fa") < at("delta_w"));
        assert!(at("kind") < at("setting") && at("setting") < at("scenarios"));
    }

    #[test]
    fn json_never_holds_a_value_that_is_not_finite() {
        let mut table = sample::table();
        table.seconds = f64::INFINITY;
        let row = &mut table.scenarios[0].rows[0];
        row.values.insert(Metric::Ra, Stat::of(&[]));
        row.values.insert(
            Metric::Ta,
            Stat {
                mean: 1.0,
                std: f64::NAN,
            },
        );
        row.seconds = Stat::of(&[]);
        table.scenarios[0].curves[0].delta_w[1] = f64::NAN;
        let text = table.to_json();
        assert!(!text.contains("null") && !text.contains("NaN") && !text.contains("inf"));
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let row = &json["scenarios"][0]["rows"][0];
        assert!(row["mean"].get("ra").is_none() && row["std"].get("ra").is_none());
        assert_eq!(row["mean"]["ta"], 1.0);
        assert!(row["std"].get("ta").is_none());
        let curve = &json["scenarios"][0]["curves"][0];
        assert_eq!(
            curve["epochs"].as_array().unwrap().len(),
            curve["delta_w"].as_array().unwrap().len()
        );
    }
}
