//! The first phase of a run: rows, sums and head are opened, held against each other, and the rows to forget are chosen.
//!
//! What comes out is checked and not yet read; the [plan](super::plan) depends on its shape, and the
//! [pass](super::collect) over the rows on the plan.

use super::request::{NamedSums, Params};
use crate::data::Head;
use crate::data::rows::{Choice, RowSource};
use crate::engine::Matrix;
use crate::error::{Error, Result};
use crate::gram::exact::{ExactParams, GridChoice};
use crate::gram::shard::Shard;
use crate::progress::{Progress, check};

/// Opened and checked inputs of a run.
pub(super) struct Input<'a> {
    /// The rows; with sums, only those to be subtracted are read.
    pub(super) rows: Option<RowSource<'a>>,
    /// Sums in place of the rows.
    pub(super) shard: Option<Shard>,
    pub(super) head: Head,
    /// w_p, D×C with the bias as last row.
    pub(super) trained: Matrix,
    /// w₀, the head before training.
    pub(super) init: Matrix,
}

impl<'a> Input<'a> {
    /// Opens what a request names, and refuses what does not belong together.
    pub(super) fn open(
        params: &Params<'a>,
        labels_wanted: bool,
        progress: &mut dyn Progress,
    ) -> Result<Self> {
        check(progress, "check", 0, 1)?;
        let head = params.head.clone();
        let open = |rows| RowSource::open(rows, &head);
        let mut rows = params.rows.as_ref().map(open).transpose()?;
        let trained = head.weights();
        let init = match &params.init {
            None => Matrix::zeros(trained.rows(), trained.cols()),
            Some(init) => same_shape(init, &head)?.weights(),
        };
        enough(params)?;
        if let Some(rows) = &mut rows {
            let all = 0..rows.total();
            rows.choose(params.forget.as_ref(), all, params.seed, progress)?;
        }
        let shard = match &params.sums {
            None => None,
            Some(sums) => {
                fits_head(sums, &head)?;
                is_as_exact(params.exact.as_ref(), sums)?;
                needs_no_rows(params, &sums.shard, rows.is_some(), labels_wanted)?;
                if let Some(rows) = &mut rows {
                    let ids = to_subtract(rows, sums, progress)?;
                    rows.forget_only(ids);
                }
                Some(sums.shard.clone())
            }
        };
        let input = Self {
            rows,
            shard,
            head,
            trained,
            init,
        };
        if input.retained() == 0 {
            let sums = params.sums.as_ref().map(|sums| sums.name.clone());
            return Err(Error::selection(
                sums.unwrap_or("`.forget`".into()),
                format!("all {} rows are forgotten", input.forgotten()),
                "at least one row that is retained",
            ));
        }
        Ok(input)
    }

    pub(super) fn classes(&self) -> usize {
        self.head.weight.rows()
    }

    /// Columns of the targets; 0 where there are none.
    pub(super) fn targets(&self) -> usize {
        match (&self.shard, &self.rows) {
            (Some(shard), _) => shard.spec.targets,
            (None, Some(rows)) => rows.targets(),
            (None, None) => 0,
        }
    }

    pub(super) fn forgotten(&self) -> u64 {
        let in_sums = self.shard.as_ref().map_or(0, |shard| shard.forgotten.rows);
        in_sums + self.rows.as_ref().map_or(0, RowSource::forgotten)
    }

    pub(super) fn retained(&self) -> u64 {
        self.total() - self.forgotten()
    }

    /// Returns the number of rows, retained and forgotten.
    pub(super) fn total(&self) -> u64 {
        match (&self.shard, &self.rows) {
            (Some(shard), _) => shard.rows(),
            (None, Some(rows)) => rows.rows(),
            (None, None) => 0,
        }
    }

    pub(super) fn unchanged(&self) -> Result<()> {
        self.rows.iter().try_for_each(RowSource::unchanged)
    }

    /// The rows, where something cannot do without.
    pub(super) fn rows(&self) -> Result<&RowSource<'a>> {
        self.rows.as_ref().ok_or(Error::Missing {
            name: "`.features`",
            expected: "the feature file, since this needs the rows".into(),
        })
    }
}

/// Refuses a request that lacks rows or what to forget.
fn enough(params: &Params<'_>) -> Result<()> {
    let missing = |name, expected: &str| {
        Err(Error::Missing {
            name,
            expected: expected.into(),
        })
    };
    match (&params.rows, &params.sums, &params.forget) {
        (None, None, _) => missing("`.features`", "a feature file, or `.sums`"),
        (None, Some(_), Some(_)) => missing(
            "`.features`",
            "the file of the rows that `.forget` is to take out of `.sums`",
        ),
        (Some(_), _, None) => missing("`.forget`", "a file of row numbers, or class:K"),
        _ => Ok(()),
    }
}

fn same_shape<'h>(init: &'h Head, head: &Head) -> Result<&'h Head> {
    let say = |h: &Head| {
        let bias = if h.bias.is_some() { "with" } else { "without" };
        format!("{}×{} {bias} a bias", h.weight.rows(), h.weight.cols())
    };
    if say(init) == say(head) {
        return Ok(init);
    }
    Err(Error::Shape {
        what: init.name(),
        found: say(init),
        expected: format!("{}, as the head", say(head)),
    })
}

/// Holds sums against the shape of the head.
fn fits_head(sums: &NamedSums, head: &Head) -> Result<()> {
    let shape = |features: usize, bias: bool, classes: usize| {
        let bias = if bias { "a bias" } else { "no bias" };
        format!("D = {features} features, {bias}, C = {classes} classes")
    };
    let (spec, classes) = (sums.shard.spec, head.weight.rows());
    // Sums without labels fit any number of classes.
    let targets = if spec.targets == 0 {
        classes
    } else {
        spec.targets
    };
    let found = shape(spec.features, spec.bias, targets);
    let expected = shape(head.weight.cols(), head.bias.is_some(), classes);
    if found == expected {
        return Ok(());
    }
    Err(Error::Shape {
        what: sums.name.clone(),
        found,
        expected: format!("{expected}, as {}", head.name()),
    })
}

/// Refuses sums that are not what was asked for in exactness, width or grid.
fn is_as_exact(wanted: Option<&ExactParams>, sums: &NamedSums) -> Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    let fault =
        |problem: &str, expected: String| Err(Error::selection(&sums.name, problem, expected));
    let Some(exact) = &sums.shard.exact else {
        return fault(
            "its sums are in f64",
            "sums that were made with `.exact`".into(),
        );
    };
    let bits = exact.spec.grid.bits();
    if wanted.bits.is_some_and(|wanted| wanted != bits) {
        return fault(
            &format!("its grid has {bits} bits"),
            format!("`.exact = {bits}`, or sums of another width"),
        );
    }
    match wanted.grid {
        GridChoice::Recorded => Ok(()),
        _ => fault("it has a grid already", "`.sums` without `.grid`".into()),
    }
}

/// Refuses what sums cannot give.
fn needs_no_rows(params: &Params<'_>, shard: &Shard, rows: bool, labels: bool) -> Result<()> {
    if params.verify {
        return Err(Error::selection(
            "`.verify`",
            "it goes over the retained rows, which `.sums` does not hold",
            "`.features` without `.sums`",
        ));
    }
    if labels && (!rows || shard.forgotten.rows > 0) {
        return Err(Error::selection(
            "`.labels_out`",
            "it goes over the forgotten rows, which `.sums` does not hold",
            "`.features` and `.forget`, with sums that have no rows forgotten or without `.sums`",
        ));
    }
    Ok(())
}

/// The rows to forget that the sums have as retained; refuses rows that they do not have.
fn to_subtract(
    rows: &RowSource<'_>,
    sums: &NamedSums,
    progress: &mut dyn Progress,
) -> Result<Vec<u64>> {
    let (features, labels, _) = rows.identity()?;
    let fault =
        |problem: String, expected: &str| Err(Error::selection(rows.name(), problem, expected));
    let (same, other): (Vec<_>, Vec<_>) = sums
        .shard
        .parts
        .iter()
        .zip(&sums.shard.forgotten_rows)
        .partition(|(part, _)| part.features == features);
    if same.is_empty() {
        return fault(
            format!("no row in {} is from this file", sums.name),
            "the file that the sums were made of, unchanged",
        );
    }
    if same.iter().any(|(part, _)| part.labels != labels) {
        return fault(
            format!("{} was made with other labels", sums.name),
            "the `.labels`, if any, that the sums were made with, unchanged",
        );
    }
    if matches!(rows.choice(), Choice::Classes(_)) && !other.is_empty() {
        return fault(
            format!(
                "{} also has rows of other files, which may be of that class",
                sums.name
            ),
            "a list of rows, or sums made with `.forget = class:K`",
        );
    }
    let mut retained = Vec::new();
    let mut missing = None;
    rows.each_forgotten(progress, |row| {
        let at = same.partition_point(|(part, _)| part.end <= row);
        match same.get(at).filter(|(part, _)| part.first <= row) {
            None => missing = missing.or(Some(row)),
            // Forgotten before, and so it stays.
            Some((_, gone)) if gone.binary_search(&row).is_ok() => {}
            Some(_) => retained.push(row),
        }
        Ok(())
    })?;
    match missing {
        None => Ok(retained),
        Some(row) => fault(
            format!("row {row} is not in {}", sums.name),
            "rows that were summed there",
        ),
    }
}
