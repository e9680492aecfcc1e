//! The model-agnostic tool: feature rows and a head in, a head that never saw the forgotten rows out.
//!
//! Rows in files are streamed: whatever their size, memory stays at a few batches and a few D×D matrices. In order:
//!
//! 1. **check** (`input`, `plan`): shapes, labels, the choice of rows and of a route, before any heavy work;
//! 2. **sums** (`collect`): one pass over all rows. Primal: sums over the retained and over the forgotten rows, apart:
//!    subtracting one from the whole would cost digits where a forgotten row is large. Dual, when fewer rows are
//!    retained than there are features: the retained rows;
//! 3. **solve** (`solve`): the new head;
//! 4. **labels** (`labels`), when asked for: the optimal labels Z_u W of the forgotten rows, kept or streamed to a file;
//! 5. **verify** (`verify`), when asked for: a second pass that solves from the retained rows and their labels alone,
//!    whatever route the new head came by and summed in another order, and takes the gradient of
//!    ½‖Z_rW − Y_r‖² + ½λ‖W − w₀‖² at the new head. That objective is strongly convex, so ‖W − W*‖ ≤ ‖gradient‖/λ
//!    bounds the distance to the exact minimiser whatever happened before.
//!
//! In place of the rows there may be [sums](crate::gram::shard) that one or several [`gram`](super::gram) runs made of
//! them. Retained and forgotten rows are apart in them, so that nothing is lost. Rows that were not marked as forgotten
//! then can still be: they are read and subtracted, which costs digits where they outweigh the rows that stay; a
//! warning says so. What needs the rows is refused with sums: fewer retained rows than features without a ridge, the
//! second pass, and labels of rows that are not read.
//!
//! Two objectives, two sources of what the head should be:
//!
//! | | from `labels` | from `head` |
//! |---|---|---|
//! | `ridge` | (G_r + λI)⁻¹(Z_rᵀY_r + λw₀) | w_p − (G_r + λI)⁻¹Z_uᵀ(Y_u − Z_u w_p), exact if w_p was the ridge optimum |
//! | `interpolate` | w₀ + Z_rᵀ(K_r + λI)⁻¹(Y_r − Z_r w₀) | w₀ + Π_r(w_p − w₀), exact if w_p interpolated; no label used |
//!
//! with w_p the given head and w₀ the initial one, zero when none is given. A bias is one more feature that is always 1
//! and is penalised like the others, unless it is left [free](Params::free_bias): then the ridge is that of the weights, the
//! sums are taken about the means, and the bias is ȳ − z̄ᵀW. [`Head::forget`] is the short way here.

mod collect;
mod input;
mod labels;
mod plan;
mod request;
mod solve;
mod verify;

pub use labels::{LabelSink, OptimalLabels};
pub use request::{NamedSums, Objective, Params, Source};

use super::Progress;
use super::clock::Clock;
use crate::data::rows::READ_LANE;
use crate::data::{Head, rounded};
use crate::engine::{CpuEngine, Engine, Matrix};
use crate::error::Result;
use crate::gram::SUMS_LANE;
use crate::outcome::{Change, ExactReport, HeadReport, RowCounts};
use crate::scheduler::Scheduler;
use crate::solve::VERSION;
use collect::{collect, collect_exact};
use input::Input;
use plan::Plan;

/// Relative distance of the given head from its assumed optimum that is worth a warning.
const PREMISE_LIMIT: f64 = 1e-3;

/// The lanes of a run in the order of its flow, for tables and pictures.
pub const LANES: [&str; 5] = [READ_LANE, SUMS_LANE, "solve", "labels", "verify"];

/// The new head and what is known about it.
#[derive(Debug)]
pub struct Outcome {
    /// The new head in f64, under the names of the given one.
    pub head: Head,
    /// The report, complete but for what only the caller knows (threads, memory).
    pub report: HeadReport,
}

/// Runs it. Optimal labels go to `labels`; committing a file of them is the caller's.
///
/// # Errors
/// Everything that is wrong with the input is found before anything is written, except values that are not finite and
/// files that change, which only the passes can find; nothing is committed here in any case.
pub fn run<E: Engine>(
    engine: &E,
    params: &Params<'_>,
    labels: LabelSink<'_>,
    scheduler: &Scheduler,
    progress: &mut dyn Progress,
) -> Result<Outcome> {
    let mut clock = Clock::start();
    let input = Input::open(params, labels.is_wanted(), progress)?;
    let plan = Plan::new(params, &input)?;
    clock.lap("check");

    let mut exact = None;
    let (collected, mut warnings) = match plan.exact {
        false => collect(engine, &input, &plan, scheduler, progress)?,
        true => {
            let asked = params.exact.as_ref();
            let (collected, report, warnings) = collect_exact(
                engine, &input, &plan, asked, &mut clock, scheduler, progress,
            )?;
            exact = Some(ExactReport {
                solve: Some(VERSION.to_string()),
                ..report
            });
            (collected, warnings)
        }
    };
    clock.lap("sums");

    let solved = scheduler.step("solve", 0, || match plan.exact {
        false => solve::solve(engine, &plan, &input, &collected),
        // On whatever device the sums were made: the bytes of the head are those of this one solve.
        true => solve::solve(&CpuEngine::ambient(), &plan, &input, &collected),
    })?;
    let weights = rounded("weight, transposed", &solved.weights, params.dtype)?;
    clock.lap("solve");

    let labelled = labels.is_wanted();
    if labelled {
        labels::write(
            engine,
            &input,
            &solved.weights,
            params.dtype,
            labels,
            scheduler,
            progress,
        )?;
        clock.lap("labels");
    }
    let mut verified = None;
    if params.verify {
        verified = Some(verify::verify(
            engine, &input, &plan, &weights, scheduler, progress,
        )?);
        clock.lap("verify");
    }
    input.unchanged()?;

    warnings.extend(solved.warnings);
    let moved = relative_distance(&weights, &solved.weights);
    if moved > PREMISE_LIMIT {
        warnings.push(format!(
            "storing the head as {} moves it by {moved:.1e} relative",
            params.dtype.name()
        ));
    }
    if let Some(others) = input.head.others_in_words() {
        warnings.push(format!(
            "{} also holds {others}, not carried over to the new head",
            input.head.name()
        ));
    }
    let (verify, accuracy) = verified.map_or((None, None), |v| (Some(v.distances), v.accuracy));
    let report = HeadReport {
        conditioning: solved.conditioning,
        exact,
        trace_ratio: Some(solved.trace_ratio),
        premise: solved.premise,
        change: Change {
            relative: relative_distance(&weights, &input.trained),
        },
        stored: params.dtype.name().into(),
        verify,
        accuracy,
        warnings,
        seconds: clock.total(),
        phases: clock.phases,
        ..known(&input, &plan)
    };
    let mut head = input.head.with_weights(&weights);
    head.notes = report.exact.iter().flat_map(notes).collect();
    Ok(Outcome { head, report })
}

/// Returns what the file of a head from exact sums says beside its weights: by these its bytes are determined.
fn notes(exact: &ExactReport) -> Vec<(String, String)> {
    let solve = exact.solve.clone().unwrap_or_default();
    vec![
        ("muso.exact".into(), exact.bits.to_string()),
        ("muso.solve".into(), solve),
    ]
}

/// Returns the part of the report that is known before anything is solved.
fn known(input: &Input<'_>, plan: &Plan) -> HeadReport {
    HeadReport {
        version: crate::VERSION.into(),
        objective: match plan.free_bias {
            true => format!("{}, free bias", plan.objective.name()),
            false => plan.objective.name().into(),
        },
        route: plan.route.name().into(),
        source: plan.source.name().into(),
        rows: RowCounts {
            total: input.total(),
            retained: input.retained(),
            forgotten: input.forgotten(),
        },
        features: input.head.weight.cols(),
        bias: input.head.bias.is_some(),
        classes: input.classes(),
        dtype: match (&input.shard, &input.rows) {
            (Some(shard), _) => shard.dtype().into(),
            (None, Some(rows)) => rows.dtype().name().into(),
            (None, None) => String::new(),
        },
        ridge: plan.ridge,
        ..HeadReport::default()
    }
}

/// Returns ‖a − b‖/‖b‖.
fn relative_distance(a: &Matrix, b: &Matrix) -> f64 {
    a.zip(b, |a, b| a - b).norm() / b.norm().max(f64::MIN_POSITIVE)
}
