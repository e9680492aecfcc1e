//! The referee's bench: can anything tell unlearned models from retrained ones?
//!
//! Works on outputs alone, of any models on the same rows: a [`Model`] is the margin of each row, z_c − ln Σ_{j≠c} e^{z_j},
//! with predictions and membership attacks where the logits are known. A metric is a file here and a line in
//! [`metrics`]: a function of some models under judgement and some retrained ones, with a sentence that says what it is,
//! what it needs and what is good.
//!
//! No number means anything by itself, since retrained models differ from one another. [`judge`] measures each on equal
//! counts of models in two ways: the models under judgement against retrained ones, and retrained models that were
//! held out against the same ones (the floor). What lies between the two is counted in spreads, the standard deviation of
//! the floor over the draws. [`referee()`] first lets held-out retrained models be judged as if they were a method,
//! by the models that are left; unless they pass, it cannot tell.
//!
//! ```
//! use muso::evaluate::audit::{Bench, Judged, Model, judge, metrics};
//! use muso::evaluate::audit::margins::margin;
//!
//! assert_eq!(margin(&[2.0, 0.5], 0), 1.5);
//! // Six retrained models, and one that is surer of the two forgotten rows than any of them.
//! let model = |k: f64| Model::of_margins(vec![k.sin(), k.cos(), 2.0, 3.0]);
//! let retrained: Vec<Model> = (0..6).map(|k| model(f64::from(k))).collect();
//! let sure = Model::of_margins(vec![9.0, 9.0, 2.0, 3.0]);
//! let bench = Bench::new(4, vec![0, 1], vec![2], vec![3], None)?;
//! let list = metrics();
//! let judged = judge(&bench, &list, &[&sure], &retrained.iter().collect::<Vec<_>>());
//! let distance = list.iter().position(|metric| metric.key == "distance_forgotten").unwrap();
//! assert!(matches!(&judged[distance], Judged::Measured(m) if m.excess.unwrap() > 4.0));
//! # Ok::<(), muso::Error>(())
//! ```

pub mod agreement;
pub mod attacks;
pub mod challenge;
pub mod distance;
pub mod klom;
pub mod margins;
mod referee;
pub mod rmia;
pub mod tow;
pub mod ulira;

use crate::error::{Error, Result};

use super::{Mia, MiaOutputs, Outputs};
pub use referee::{Control, Finding, Judged, Measured, SPREADS, Verdict, judge, referee};

/// What a model says of every row, reduced to what the metrics look at.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The margin of each row.
    pub margins: Vec<f64>,
    /// The predicted class of each row, where the logits are known.
    pub predictions: Option<Vec<u32>>,
    /// The percentages of [`Mia::ALL`], where the logits are known and there are rows to attack.
    pub attacks: Option<[f64; 3]>,
}

impl Model {
    /// Takes a model whose margins are all that is known.
    pub fn of_margins(margins: Vec<f64>) -> Self {
        Self {
            margins,
            predictions: None,
            attacks: None,
        }
    }

    /// Takes a model by its logits, N×C, row after row; the bench must have labels.
    ///
    /// # Errors
    /// If there are fewer than two classes or not N rows, if a logit is not finite, or if a label is not a class.
    pub fn of_logits(bench: &Bench, logits: &[f64], classes: usize) -> Result<Self> {
        let labels = bench.labels.as_deref().unwrap_or_default();
        if classes < 2 || logits.len() != bench.rows * classes || labels.len() != bench.rows {
            return Err(Error::Shape {
                what: "logits".into(),
                found: format!("{} values in rows of {classes}", logits.len()),
                expected: format!("{} rows of 2 classes or more, and their labels", bench.rows),
            });
        }
        if let Some(&label) = labels.iter().find(|&&label| label as usize >= classes) {
            return Err(Error::Parameter {
                name: "label",
                value: label.to_string(),
                expected: format!("a class from 0 to {}", classes - 1),
            });
        }
        let rows = || logits.chunks_exact(classes);
        let named = rows().zip(labels);
        let margins = named.map(|(row, &label)| margins::margin(row, label as usize));
        let predictions = rows().map(|row| crate::softmax::argmax(row) as u32);
        Ok(Self {
            margins: margins.collect(),
            predictions: Some(predictions.collect()),
            attacks: bench.attacks(logits, classes)?,
        })
    }
}

/// The rows that models are judged on.
#[derive(Clone, Debug, PartialEq)]
pub struct Bench {
    rows: usize,
    /// The forgotten rows.
    pub forgotten: Vec<usize>,
    /// The retained rows; perhaps none.
    pub retained: Vec<usize>,
    /// The rows that no model was trained on; perhaps none.
    pub test: Vec<usize>,
    /// All of these, one after the other.
    all: Vec<usize>,
    labels: Option<Vec<u32>>,
}

impl Bench {
    /// Takes which of `rows` rows are forgotten, retained and for tests, and the labels of all of them.
    ///
    /// # Errors
    /// If no row is forgotten, if a row is out of range or in two of the lists, or if there is not one label a row.
    pub fn new(
        rows: usize,
        forgotten: Vec<usize>,
        retained: Vec<usize>,
        test: Vec<usize>,
        labels: Option<Vec<u32>>,
    ) -> Result<Self> {
        if forgotten.is_empty() {
            return Err(Error::selection(
                "`.forget`",
                "no row is forgotten",
                "at least one row",
            ));
        }
        const NAMES: [&str; 3] = ["`.forget`", "`.retain`", "`.test`"];
        let mut seen = vec![None; rows];
        for (list, which) in [&forgotten, &retained, &test].into_iter().zip(0_u8..) {
            let name = NAMES[usize::from(which)];
            for &row in list {
                let Some(place) = seen.get_mut(row) else {
                    return Err(Error::selection(
                        name,
                        format!("row {row} is out of range"),
                        format!("row numbers below {rows}, counted from 0"),
                    ));
                };
                if let Some(other) = place.replace(which) {
                    return Err(Error::selection(
                        name,
                        format!("row {row} is also in {}", NAMES[usize::from(other)]),
                        "every row in one of the lists at most, and once",
                    ));
                }
            }
        }
        if let Some(found) = labels.as_ref().filter(|labels| labels.len() != rows) {
            return Err(Error::Shape {
                what: "`.labels`".into(),
                found: format!("{} labels", found.len()),
                expected: format!("{rows}, one a row"),
            });
        }
        Ok(Self {
            rows,
            all: [&forgotten[..], &retained, &test].concat(),
            forgotten,
            retained,
            test,
            labels,
        })
    }

    /// Returns N, the number of rows that outputs are of.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns whether labels are known, which logits need.
    pub fn has_labels(&self) -> bool {
        self.labels.is_some()
    }

    /// The rows that a metric is over.
    fn over(&self, over: Over) -> &[usize] {
        match over {
            Over::Forgotten => &self.forgotten,
            Over::Retained => &self.retained,
            Over::Test => &self.test,
            Over::All => &self.all,
        }
    }

    /// The three membership attacks on one model, where there are rows of each kind.
    fn attacks(&self, logits: &[f64], classes: usize) -> Result<Option<[f64; 3]>> {
        let Some(labels) = &self.labels else {
            return Ok(None);
        };
        if self.retained.is_empty() || self.test.is_empty() {
            return Ok(None);
        }
        let part = |rows: &[usize]| {
            let each = rows
                .iter()
                .flat_map(|row| &logits[row * classes..][..classes]);
            let labels: Vec<i64> = rows.iter().map(|&row| i64::from(labels[row])).collect();
            Outputs::new(each.map(|&z| z as f32).collect(), classes, &labels)
        };
        let rows = MiaOutputs {
            retained: &part(&self.retained)?,
            test: &part(&self.test)?,
            forgotten: &part(&self.forgotten)?,
        };
        let mut percents = [f64::NAN; 3];
        for (percent, mia) in percents.iter_mut().zip(Mia::ALL) {
            // Cross-validation wants two rows of each kind.
            let few = mia == Mia::Loss && self.forgotten.len().min(self.test.len()) < 2;
            if !few {
                *percent = mia.percent(&rows)?;
            }
        }
        Ok(Some(percents))
    }

    /// The percentage of rows whose prediction is their label.
    fn accuracy(&self, over: Over, model: &Model) -> f64 {
        let (Some(labels), Some(predictions)) = (&self.labels, &model.predictions) else {
            return f64::NAN;
        };
        let rows = self.over(over);
        let right = rows.iter().filter(|&&row| predictions[row] == labels[row]);
        100.0 * right.count() as f64 / rows.len() as f64
    }
}

/// The rows that a metric is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The forgotten rows.
    Forgotten,
    /// The retained rows.
    Retained,
    /// The test rows.
    Test,
    /// All of these.
    All,
}

impl Over {
    const KINDS: [Self; 3] = [Self::Forgotten, Self::Retained, Self::Test];

    /// Returns the word for a table.
    pub fn word(self) -> &'static str {
        match self {
            Self::Forgotten => "forgotten",
            Self::Retained => "retained",
            Self::Test => "test",
            Self::All => "all",
        }
    }
}

/// Two groups of models on the same rows: those under judgement, and the retrained ones that they are held against.
#[derive(Clone, Debug)]
pub struct Pair<'a> {
    /// The rows that all of them have outputs of.
    pub bench: &'a Bench,
    /// The models under judgement.
    pub judged: Vec<&'a Model>,
    /// The retrained models.
    pub retrained: Vec<&'a Model>,
}

impl Pair<'_> {
    /// Applies `f` to the margins of each row: those of the models under judgement, and those of the retrained ones.
    pub fn each_row<T>(&self, over: Over, mut f: impl FnMut(&[f64], &[f64]) -> T) -> Vec<T> {
        let (mut judged, mut retrained) = (Vec::new(), Vec::new());
        let rows = self.bench.over(over).iter();
        rows.map(|&row| {
            judged.clear();
            judged.extend(self.judged.iter().map(|model| model.margins[row]));
            retrained.clear();
            retrained.extend(self.retrained.iter().map(|model| model.margins[row]));
            f(&judged, &retrained)
        })
        .collect()
    }

    /// The mean over the models under judgement.
    fn mean(&self, f: impl Fn(&Model) -> f64) -> f64 {
        mean(&self.judged.iter().map(|model| f(model)).collect::<Vec<_>>())
    }
}

/// Which way a number is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// The smaller the better; below the floor is as good as at it.
    Lower,
    /// The larger the better.
    Higher,
    /// The retrained models' own number is best: farther from it on either side is worse.
    Same,
}

/// What a metric cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Models under judgement.
    pub judged: usize,
    /// Retrained models that they are held against; as many as are judged are held out besides.
    pub against: usize,
    /// Logits, as margins do not tell the predicted class.
    pub logits: bool,
    /// Whether there have to be retained rows.
    pub retained: bool,
    /// Whether there have to be test rows.
    pub test: bool,
}

impl Needs {
    /// So many models on each side.
    const fn models(each: usize) -> Self {
        Self {
            judged: each,
            against: each,
            logits: false,
            retained: false,
            test: false,
        }
    }

    /// Margins of some rows, of so many models on each side.
    const fn margins(each: usize, over: Over) -> Self {
        Self {
            retained: matches!(over, Over::Retained),
            test: matches!(over, Over::Test),
            ..Self::models(each)
        }
    }

    /// Logits of some rows.
    const fn logits(over: Over) -> Self {
        Self {
            logits: true,
            ..Self::margins(1, over)
        }
    }

    /// Returns what it takes as a phrase; of the retrained models some are held out.
    pub fn phrase(&self) -> String {
        let retrained = self.judged + self.against;
        let models = format!("{} unlearned and {retrained} retrained models", self.judged);
        let rest = [
            (self.logits, "logits"),
            (self.retained, "retained rows"),
            (self.test, "test rows"),
        ];
        let rest = rest.iter().filter(|(needed, _)| *needed);
        rest.fold(models, |all, (_, name)| format!("{all}, {name}"))
    }

    /// What is missing, if anything.
    fn missing(&self, pair: &Pair<'_>) -> Option<String> {
        let models = || pair.judged.iter().chain(&pair.retrained);
        let few = pair.judged.len() < self.judged || pair.retrained.len() < self.against;
        let missing = [
            (few, "models"),
            (
                self.logits && models().any(|model| model.predictions.is_none()),
                "logits",
            ),
            (
                self.retained && pair.bench.retained.is_empty(),
                "retained rows",
            ),
            (self.test && pair.bench.test.is_empty(), "test rows"),
        ];
        match missing.iter().find(|(missing, _)| *missing) {
            Some((_, "models")) => Some(format!("needs {}", self.phrase())),
            Some((_, name)) => Some(format!("needs {name}")),
            None => None,
        }
    }
}

/// A number that two groups of models are compared by.
#[derive(Clone, Debug)]
pub struct Metric {
    /// The key in JSON.
    pub key: String,
    /// The name in tables.
    pub name: String,
    /// The rows that it is over.
    pub over: Over,
    /// One sentence on what it is.
    pub what: &'static str,
    /// One sentence on what is good.
    pub good: &'static str,
    /// Which way is good.
    pub better: Better,
    /// What the number is when every row counts, for one that counts rows: a spread is never taken for less than one of
    /// them. 0 where rows are weighed and not counted.
    pub full: f64,
    /// What it cannot do without.
    pub needs: Needs,
    /// Set where the verdict rests on it; the others are shown beside.
    pub decides: bool,
    value: Value,
}

/// How a metric is computed.
type Value = fn(&Pair<'_>, Over) -> f64;

impl Metric {
    /// Computes it for a pair that has what it needs.
    pub fn value(&self, pair: &Pair<'_>) -> f64 {
        (self.value)(pair, self.over)
    }
}

/// Returns every metric in the order of tables. A new one is a file beside the others and a line here.
pub fn metrics() -> Vec<Metric> {
    [
        klom::metrics(),
        distance::metrics(),
        ulira::metrics(),
        rmia::metrics(),
        challenge::metrics(),
        tow::metrics(),
        agreement::metrics(),
        attacks::metrics(),
    ]
    .concat()
}

/// The arithmetic mean; of nothing NaN.
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
