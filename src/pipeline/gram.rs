//! Sums over a part of the rows, for data that is more than one process or machine goes over.
//!
//! [`run`] streams some rows of a feature file into a [`Shard`]; [`merge`] adds shards up. What comes out is the same as
//! one run over all rows to f64 rounding, and [`head`](super::head) goes on from it. The sums depend on neither the
//! weights of the head nor the ridge: of the head only the shape is used, and one set of sums serves every λ.
//!
//! ```
//! use muso::pipeline::gram::Portion;
//! assert_eq!(Portion::parse_rows("100..200")?.range(1_000)?, 100..200);
//! assert_eq!(Portion::parse_rows("900..")?.range(1_000)?, 900..1_000);
//! // Four processes, each with its number.
//! assert_eq!(Portion::Shard { index: 3, of: 4 }.range(10)?, 7..10);
//! # Ok::<(), muso::Error>(())
//! ```

use std::ops::Range;
use std::path::PathBuf;

use super::clock::Clock;
use super::exact;
use super::{Progress, check};
use crate::data::rows::{READ_LANE, RowBatch, RowSource, Which};
use crate::data::{Digest, FeatureRows, Forget, Head};
use crate::engine::{Engine, SumsSpec, Targets};
use crate::error::{Error, Result};
use crate::gram::exact::{ExactParams, GridChoice, exact_spec, split_exact};
use crate::gram::shard::{self, Part, Shard};
use crate::gram::{SUMS_LANE, split_sums};
use crate::outcome::{PartReport, RowCounts, SumsReport};
use crate::scheduler::Scheduler;

/// The lanes of a run in the order of its flow, for tables and pictures.
pub const LANES: [&str; 2] = [READ_LANE, SUMS_LANE];

/// Rows of the feature file to sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Portion {
    /// Every row of the file.
    #[default]
    All,
    /// Rows from the first to the one before `end`, or to the last.
    Rows {
        /// The first row, counted from 0.
        first: u64,
        /// The row after the last.
        end: Option<u64>,
    },
    /// A part of several of equal size, as nearly as may be.
    Shard {
        /// Index of the part, counted from 0.
        index: u64,
        /// Number of parts.
        of: u64,
    },
}

impl Portion {
    /// Parses `A..B`, `A..` or `..B`.
    ///
    /// # Errors
    /// If it is none of these.
    pub fn parse_rows(text: &str) -> Result<Self> {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let number = |text: &str| match text {
            "" => Some(None),
            text if digits(text) => text.parse().ok().map(Some),
            _ => None,
        };
        let ends = text.split_once("..");
        match ends.map(|(first, end)| (number(first), number(end))) {
            Some((Some(first), Some(end))) if first.is_some() || end.is_some() => Ok(Self::Rows {
                first: first.unwrap_or(0),
                end,
            }),
            _ => Err(Error::Parameter {
                name: "`.rows`",
                value: text.escape_debug().take(60).collect(),
                expected: "A..B, A.. or ..B: rows counted from 0, B not included".into(),
            }),
        }
    }

    /// Returns the rows that the portion selects in a file of `rows` rows.
    ///
    /// # Errors
    /// If there are none, or not so many.
    pub fn range(&self, rows: u64) -> Result<Range<u64>> {
        let fault = |name, value: String, expected: String| {
            Err(Error::Parameter {
                name,
                value,
                expected,
            })
        };
        match *self {
            Self::All => Ok(0..rows),
            Self::Rows { first, end } => {
                let last = end.unwrap_or(rows);
                if first < last && last <= rows {
                    return Ok(first..last);
                }
                let end = end.map_or(String::new(), |end| end.to_string());
                fault(
                    "`.rows`",
                    format!("{first}..{end}"),
                    format!("at least one row, and none beyond 0..{rows}, which the file has"),
                )
            }
            Self::Shard { of, .. } if !(1..=rows).contains(&of) => fault(
                "`.shards`",
                of.to_string(),
                format!("1 to {rows}, the rows of the file"),
            ),
            Self::Shard { index, of } if index >= of => fault(
                "`.shard`",
                index.to_string(),
                format!("0 to {}, counted from 0", of - 1),
            ),
            Self::Shard { index, of } => {
                let cut = |i: u64| (u128::from(rows) * u128::from(i) / u128::from(of)) as u64;
                Ok(cut(index)..cut(index + 1))
            }
        }
    }
}

/// Parameters of a run. Start from [`Params::new`] and set what differs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Params<'a> {
    /// The rows, with labels or targets.
    pub rows: FeatureRows<'a>,
    /// A head of the shape that is meant: D, C, and whether there is a bias.
    pub head: Head,
    /// The rows to forget, by their numbers in the whole file; their sums are kept apart.
    pub forget: Option<Forget>,
    /// The seed of what `forget` draws.
    pub seed: u64,
    /// The rows to go over.
    pub portion: Portion,
    /// Sums in integers, where asked for.
    pub exact: Option<ExactParams>,
}

impl<'a> Params<'a> {
    /// Returns the defaults: all rows, none to be forgotten.
    pub fn new(rows: FeatureRows<'a>, head: Head) -> Self {
        Self {
            rows,
            head,
            forget: None,
            seed: 0,
            portion: Portion::All,
            exact: None,
        }
    }
}

/// The sums and what is known about them.
#[derive(Debug)]
pub struct Outcome {
    /// Sums to be written.
    pub shard: Shard,
    /// The report, complete but for what only the caller knows (threads, memory).
    pub report: SumsReport,
}

/// Sums the rows.
///
/// # Errors
/// If something is wrong with the input, or if it changes while it is read.
pub fn run<E: Engine>(
    engine: &E,
    params: &Params<'_>,
    scheduler: &Scheduler,
    progress: &mut dyn Progress,
) -> Result<Outcome> {
    let mut clock = Clock::start();
    check(progress, "check", 0, 1)?;
    let head = &params.head;
    let mut rows = RowSource::open(&params.rows, head)?;
    let range = params.portion.range(rows.total())?;
    let spec = SumsSpec {
        features: head.weight.cols(),
        bias: head.bias.is_some(),
        targets: rows.targets(),
    };
    let mut on_grid = None;
    if let Some(exact) = &params.exact {
        if exact.grid == GridChoice::Recorded {
            // Of the whole file, so that the shards of one file are on one grid.
            let whole = 0..rows.total();
            rows.choose(params.forget.as_ref(), whole, params.seed, progress)?;
        }
        clock.lap("check");
        on_grid = Some(exact_spec(exact, &rows, spec, scheduler, progress)?);
        clock.lap("grid");
    }
    rows.choose(params.forget.as_ref(), range, params.seed, progress)?;
    let mut part = part(&rows)?;
    if on_grid.is_none() {
        clock.lap("check");
    }

    let (mut features, mut wanted) = (Digest::new(), Digest::new());
    let mut forgotten_rows = Vec::new();
    let all = Which::All;
    let note = |batch: &RowBatch<'_>| {
        features.add(batch.rows.bytes());
        match batch.targets {
            Targets::None => {}
            Targets::Classes(classes) => {
                wanted.add(bytemuck::cast_slice(classes));
            }
            Targets::Values(values) => {
                wanted.add(values.bytes());
            }
        }
        let gone = rows.forgotten_in(batch);
        forgotten_rows.extend(gone.iter().map(|&i| batch.start + i as u64));
    };
    let (mut shard, said) = match &on_grid {
        None => {
            let (retained, forgotten) =
                split_sums(engine, &rows, spec, all, scheduler, progress, note)?;
            let shard = Shard {
                spec,
                parts: Vec::new(),
                retained,
                forgotten,
                forgotten_rows: Vec::new(),
                exact: None,
            };
            (shard, None)
        }
        Some((spec, recording)) => {
            let (state, seen) = split_exact(engine, &rows, spec, all, scheduler, progress, note)?;
            let said = exact::report(&state, *recording, 0, Some(seen));
            (Shard::of_exact(state, Vec::new(), Vec::new())?, Some(said))
        }
    };
    rows.unchanged()?;
    clock.lap("sums");

    part.content = features.text() + &wanted.text();
    shard.parts = vec![part];
    shard.forgotten_rows = vec![forgotten_rows];
    let mut report = report("gram", &shard, &clock)?;
    if let Some((exact, warnings)) = said {
        report.exact = Some(exact);
        report.warnings.extend(warnings);
    }
    if spec.targets == 0 {
        report.warnings.push(
            "there are neither `labels` nor `targets`: only `.objective = interpolate` with `.source = head` can go on from here"
                .into(),
        );
    }
    Ok(Outcome { shard, report })
}

/// Returns a shard's description of its rows; only the pass over them can tell their content.
fn part(rows: &RowSource<'_>) -> Result<Part> {
    let (features, labels, file) = rows.identity()?;
    let range = rows.range();
    Ok(Part {
        features,
        first: range.start,
        end: range.end,
        of: rows.total(),
        file,
        labels,
        dtype: rows.dtype().name().into(),
        forget: rows.choice().text(),
        forgotten: rows.forgotten(),
        content: String::new(),
    })
}

/// Adds up shards; their order does not matter.
///
/// # Errors
/// As [`shard::merge`].
pub fn merge(paths: &[PathBuf], progress: &mut dyn Progress) -> Result<Outcome> {
    let mut clock = Clock::start();
    let shard = shard::merge(paths, progress)?;
    clock.lap("merge");
    let mut report = report("merge", &shard, &clock)?;
    report.warnings.extend(shard.gaps_in_words());
    if let Some(state) = &shard.exact {
        let (exact, warnings) = exact::report(state, false, 0, None);
        report.exact = Some(exact);
        report.warnings.extend(warnings);
    }
    Ok(Outcome { shard, report })
}

fn report(kind: &str, shard: &Shard, clock: &Clock) -> Result<SumsReport> {
    Ok(SumsReport {
        kind: kind.into(),
        version: crate::VERSION.into(),
        rows: RowCounts {
            total: shard.rows(),
            retained: shard.retained.rows,
            forgotten: shard.forgotten.rows,
        },
        features: shard.spec.features,
        bias: shard.spec.bias,
        classes: shard.spec.targets,
        dtype: shard.dtype().into(),
        parts: shard
            .parts
            .iter()
            .map(|part| PartReport {
                file: part.file.clone(),
                first: part.first,
                end: part.end,
                forgotten: part.forgotten,
            })
            .collect(),
        digest: shard.digest()?,
        phases: clock.phases.clone(),
        seconds: clock.total(),
        ..SumsReport::default()
    })
}
