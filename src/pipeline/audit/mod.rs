//! `muso audit`: files of outputs in, verdict out.
//!
//! Reads the files, reduces each model to what the metrics look at, and lets the referee of
//! [`evaluate::audit`](crate::evaluate::audit) judge. Takes 12 bytes for each row of each model, and besides them one model's
//! logits at a time, in f64 and once more in f32.
//!
//! ```
//! use muso::data::{Forget, OutTensor, to_safetensors};
//! use muso::engine::{Dtype, Matrix};
//! use muso::outcome::AuditVerdict;
//! use muso::pipeline::audit::{Params, run};
//!
//! // Margins of several models on six rows, the first two of which are forgotten.
//! let margins = |models: usize, more: f64| {
//!     let noise = |k: usize, row: usize| ((k * 37 + row * 101) as f64).sin();
//!     Matrix::from_fn(models, 6, |k, row| noise(k, row) + if row < 2 { more } else { 3.0 })
//! };
//! let dir = tempfile::tempdir().unwrap();
//! let write = |name: &str, values: &Matrix| {
//!     let path = dir.path().join(name);
//!     let tensor = OutTensor::Matrix { values, dtype: Dtype::F32 };
//!     std::fs::write(&path, to_safetensors(&[("margins", tensor)])?).unwrap();
//!     Ok::<_, muso::Error>(vec![path])
//! };
//! let mut params = Params::new(Forget::rows([0, 1]));
//! params.unlearned = write("unlearned.safetensors", &margins(6, 8.0))?;
//! params.retrained = write("retrained.safetensors", &margins(24, 0.0))?;
//! params.test = Some(Forget::rows([4, 5]));
//! let report = run(&params, &mut ())?;
//! assert_eq!(report.verdict, AuditVerdict::Fail);
//! assert!(report.reason.contains("forgotten rows"));
//! # Ok::<(), muso::Error>(())
//! ```

mod input;

use std::path::PathBuf;
use std::time::Instant;

use crate::data::Forget;
use crate::evaluate::audit::margins::percentile;
use crate::evaluate::audit::{
    Bench, Finding, Judged, Metric, Model, Over, Pair, SPREADS, Verdict, klom, metrics, referee,
};
use crate::outcome::{
    AuditMetric, AuditModels, AuditNumber, AuditReport, AuditRows, AuditVerdict, HeldOut,
    NamedCurves, OriginalMetric,
};
use crate::progress::{Progress, check};
use crate::{Error, Result};

use input::Input;

/// What to audit.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Params {
    /// Files of the unlearned models' outputs.
    pub unlearned: Vec<PathBuf>,
    /// Files of the retrained models' outputs.
    pub retrained: Vec<PathBuf>,
    /// Files of the original models' outputs; perhaps none.
    pub original: Vec<PathBuf>,
    /// A file of one label a row; logits need it.
    pub labels: Option<PathBuf>,
    /// The forgotten rows: a list, or classes.
    pub forget: Forget,
    /// The retained rows; none for all that are in no other list.
    pub retain: Option<Forget>,
    /// The rows that no model was trained on.
    pub test: Option<Forget>,
}

impl Params {
    /// Takes the rows to forget, and no files yet.
    pub fn new(forget: Forget) -> Self {
        Self {
            unlearned: Vec::new(),
            retrained: Vec::new(),
            original: Vec::new(),
            labels: None,
            forget,
            retain: None,
            test: None,
        }
    }
}

/// Reads every file and lets the referee judge.
///
/// # Errors
/// If a file cannot be read or does not fit the others, if there are no unlearned models or fewer than two retrained ones,
/// or if a list of rows is wrong.
pub fn run(params: &Params, progress: &mut dyn Progress) -> Result<AuditReport> {
    let start = Instant::now();
    let input = Input::read(params, progress)?;
    for (name, models, least) in [
        ("`.unlearned`", &input.unlearned, 1),
        ("`.retrained`", &input.retrained, 2),
    ] {
        if models.len() < least {
            return Err(Error::selection(
                name,
                format!("{} model", models.len()),
                format!("{least} or more, since retrained models are held out against each other"),
            ));
        }
    }
    check(progress, "judging", 0, 1)?;
    let list = metrics();
    let (unlearned, retrained) = (each(&input.unlearned), each(&input.retrained));
    let original = each(&input.original);
    let found = referee(&input.bench, &list, &unlearned, &retrained, &original);
    check(progress, "judging", 1, 1)?;
    let Bench {
        forgotten,
        retained,
        test,
        ..
    } = &input.bench;
    let groups = [
        ("retrained", &retrained),
        ("unlearned", &unlearned),
        ("original", &original),
    ];
    Ok(AuditReport {
        verdict: match found.verdict {
            Verdict::Pass => AuditVerdict::Pass,
            Verdict::Fail => AuditVerdict::Fail,
            Verdict::CannotTell => AuditVerdict::CannotTell,
        },
        reason: found.reason.clone(),
        spreads: SPREADS,
        version: crate::VERSION.into(),
        models: AuditModels {
            unlearned: unlearned.len(),
            retrained: retrained.len(),
            original: original.len(),
        },
        rows: AuditRows {
            total: input.bench.rows(),
            forgotten: forgotten.len(),
            retained: retained.len(),
            test: test.len(),
        },
        held_out: HeldOut {
            models: found.control.models,
            groups: found.control.groups,
            passed: found.control.passed,
        },
        metrics: rows(list, &found),
        margins: outlines(&input.bench, &groups),
        klom: quantiles(&input.bench, &groups),
        warnings: input.warnings,
        seconds: start.elapsed().as_secs_f64(),
        threads: rayon::current_num_threads(),
        ..AuditReport::default()
    })
}

fn each(models: &[Model]) -> Vec<&Model> {
    models.iter().collect()
}

fn rows(list: Vec<Metric>, found: &Finding) -> Vec<AuditMetric> {
    let each = list.into_iter().enumerate();
    each.map(|(index, metric)| {
        let (number, absent) = match &found.unlearned[index] {
            Judged::Absent { why } => (None, Some(why.clone())),
            Judged::Measured(measured) => (
                Some(AuditNumber {
                    value: measured.value,
                    retrained: measured.floor,
                    spread: measured.spread,
                    excess: measured.excess,
                    with_all_models: measured.with_all,
                }),
                None,
            ),
        };
        let original = match found.original.as_ref().map(|all| &all[index]) {
            Some(Judged::Measured(measured)) => Some(OriginalMetric {
                value: measured.value,
                excess: measured.excess,
            }),
            _ => None,
        };
        AuditMetric {
            needs: metric.needs.phrase(),
            key: metric.key,
            name: metric.name,
            over: metric.over.word(),
            what: metric.what,
            good: metric.good,
            decides: found.decides[index],
            number,
            absent,
            original,
        }
    })
    .collect()
}

type Group<'a> = (&'static str, &'a Vec<&'a Model>);

/// Outlines of the histograms of the forgotten rows' margins, over one range.
fn outlines(bench: &Bench, groups: &[Group<'_>]) -> NamedCurves {
    const BINS: usize = 40;
    let margins = |models: &[&Model]| -> Vec<f64> {
        let rows = &bench.forgotten;
        let each = models.iter();
        each.flat_map(|model| rows.iter().map(|&row| model.margins[row]))
            .collect()
    };
    let all: Vec<(&'static str, Vec<f64>)> = groups
        .iter()
        .filter(|(_, models)| !models.is_empty())
        .map(|(name, models)| (*name, margins(models)))
        .collect();
    // A few margins far out would press all others into one bin.
    let end = |percent: f64| {
        all.iter()
            .map(move |(_, values)| percentile(values, percent))
    };
    let low = end(0.5).fold(f64::INFINITY, f64::min);
    let high = end(99.5).fold(f64::NEG_INFINITY, f64::max).max(low + 1e-6);
    let width = (high - low) / BINS as f64;
    let outline = |values: &[f64]| {
        let mut counts = [0.0; BINS];
        for x in values.iter().filter(|x| (low..=high).contains(x)) {
            counts[(((x - low) / width) as usize).min(BINS - 1)] += 100.0 / values.len() as f64;
        }
        let edge = |k: usize| low + k as f64 * width;
        let tops = counts.iter().enumerate();
        let mut points = vec![(low, 0.0)];
        points.extend(tops.flat_map(|(k, &share)| [(edge(k), share), (edge(k + 1), share)]));
        points.push((high, 0.0));
        points
    };
    all.iter()
        .map(|(name, values)| (*name, outline(values)))
        .collect()
}

/// Smooth KLOM of the forgotten rows by rank: unlearned and original models against all retrained ones, and for the
/// retrained ones their two halves against each other.
fn quantiles(bench: &Bench, groups: &[Group<'_>]) -> NamedCurves {
    const FEWEST: usize = 4;
    const POINTS: usize = 100;
    let retrained = groups[0].1;
    let half = retrained.split_at(retrained.len() / 2);
    let pairs = groups.iter().map(|(name, models)| match *name {
        "retrained" => (*name, half.0.to_vec(), half.1.to_vec()),
        _ => (*name, models.to_vec(), retrained.clone()),
    });
    pairs
        .filter(|(_, judged, against)| judged.len().min(against.len()) >= FEWEST)
        .map(|(name, judged, retrained)| {
            let pair = Pair {
                bench,
                judged,
                retrained,
            };
            let each = pair.each_row(Over::Forgotten, klom::smooth);
            let share = |k: usize| 100.0 * k as f64 / POINTS as f64;
            let points = (0..=POINTS).map(|k| (share(k), percentile(&each, share(k))));
            (name, points.collect())
        })
        .collect()
}
