//! The model-agnostic tool: a feature file and a head in, a head that never saw the forgotten rows out.
//!
//! The feature file is streamed: whatever its size, memory stays at a few batches and a few D×D matrices. In order:
//!
//! 1. **check**: shapes, labels and the choice of rows, before any heavy work;
//! 2. **sums**: one pass over all rows. Primal: sums over the retained and over the forgotten rows, apart: subtracting
//!    one from the whole would cost digits where a forgotten row is large. Dual, when fewer rows are retained than there
//!    are features: the retained rows;
//! 3. **solve**: the new head;
//! 4. **labels**, when asked for: the optimal labels Z_u W of the forgotten rows, streamed to their file;
//! 5. **verify**, when asked for: a second pass that solves from the retained rows and their labels alone, whatever route
//!    the new head came by and summed in another order, and takes the gradient of ½‖Z_rW − Y_r‖² + ½λ‖W − w₀‖² at the new head. That objective is
//!    strongly convex, so ‖W − W*‖ ≤ ‖gradient‖/λ bounds the distance to the exact minimiser whatever happened before.
//!
//! In place of the feature file there may be a file of [sums](crate::gram::shard) that one or several
//! [`gram`](super::gram) runs made of it. Retained and forgotten rows are apart in it, so that nothing is lost. Rows that
//! were not marked as forgotten then can still be: they are read from the feature file and subtracted, which costs
//! digits where they outweigh the rows that stay; a warning says so. What needs the rows is refused with sums: fewer
//! retained rows than features without a ridge, the second pass, and labels of rows that are not read.
//!
//! Two objectives, two sources of what the head should be:
//!
//! | | from `labels` | from `head` |
//! |---|---|---|
//! | `ridge` | (G_r + λI)⁻¹(Z_rᵀY_r + λw₀) | w_p − (G_r + λI)⁻¹Z_uᵀ(Y_u − Z_u w_p), exact if w_p was the ridge optimum |
//! | `interpolate` | w₀ + Z_rᵀ(K_r + λI)⁻¹(Y_r − Z_r w₀) | w₀ + Π_r(w_p − w₀), exact if w_p interpolated; no label used |
//!
//! with w_p the given head and w₀ the initial one, zero when none is given. A bias is one more feature that is always 1
//! and is penalised like the others.

use std::path::{Path, PathBuf};

use super::rows::{Clock, RowSource, Wanted, Which};
use super::{Progress, check};
use crate::data::{ForgetSpec, Head, OutputFile, RowsWriter, rounded};
use crate::engine::{Dtype, Engine, Matrix, Sums, SumsSpec};
use crate::error::{Error, Result};
use crate::gram::shard::Shard;
use crate::gram::{DualGram, Gram, GramBuilder, Route};
use crate::labels::Projector;
use crate::outcome::{
    Accuracy, Change, Conditioning, HeadReport, Premise, RowCounts, Verification,
};
use crate::solve::{Info, Method, fit, fit_with};

/// tr(Π)/D from which the retained rows count as filling the space.
const FULL_SPACE: f64 = 0.999;
/// Relative distance of the given head from its assumed optimum that is worth a warning.
const PREMISE_LIMIT: f64 = 1e-3;

/// How much forgotten rows may outweigh retained ones in a feature before subtracting them is worth a warning.
const OUTWEIGHED: f64 = 1e3;

/// What the head minimises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// ½‖ZW − Y‖² + ½λ‖W − w₀‖².
    Ridge,
    /// The fit nearest to w₀ that interpolates.
    Interpolate,
}

/// What says how the retained rows should be fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Their labels or targets.
    Labels,
    /// The given head, trained on all rows.
    Head,
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Params {
    /// Features, with labels or targets unless those are elsewhere. With sums, the file of the rows to subtract.
    pub features: Option<PathBuf>,
    /// Sums over the rows, in place of the rows.
    pub sums: Option<PathBuf>,
    /// A file of its own for `labels` or `targets`.
    pub labels: Option<PathBuf>,
    /// The head that was trained on all rows.
    pub head: PathBuf,
    /// The head before training; zero when not given.
    pub init: Option<PathBuf>,
    /// The rows of the feature file to forget; with sums, besides those that they have as forgotten.
    pub forget: Option<ForgetSpec>,
    /// `None`: ridge when λ > 0 is given or at least as many rows are retained as there are features, else interpolate.
    pub objective: Option<Objective>,
    /// `None`: labels for ridge, head for interpolate.
    pub source: Option<Source>,
    /// λ. Needed for ridge; 0 for interpolate when not given.
    pub ridge: Option<f64>,
    /// Whether to make the second pass.
    pub verify: bool,
    /// How the new head and the labels will be stored. What is reported is about the head as stored; labels are those
    /// of the head before rounding, rounded once.
    pub dtype: Dtype,
}

/// The new head and what is known about it.
#[derive(Debug)]
pub struct Outcome {
    /// In f64, under the names of the given head.
    pub head: Head,
    /// The report, complete but for what only the caller knows (threads, memory).
    pub report: HeadReport,
}

/// Runs it. Optimal labels go to `labels_out`; committing the file is the caller's.
///
/// # Errors
/// Everything that is wrong with the input is found before anything is written, except values that are not finite and
/// files that change, which only the passes can find; nothing is committed here in any case.
pub fn run<E: Engine>(
    engine: &E,
    params: &Params,
    labels_out: Option<&mut OutputFile>,
    progress: &mut dyn Progress,
) -> Result<Outcome> {
    let mut clock = Clock::start();
    let input = Input::open(params, labels_out.is_some(), progress)?;
    clock.lap("check");

    let plan = Plan::new(params, &input)?;
    let mut report = input.report(&plan);
    let collected = input.collect(engine, &plan, &mut report.warnings, progress)?;
    clock.lap("sums");

    let solved = plan.solve(engine, &input, &collected, &mut report)?;
    let weights = rounded("weight, transposed", &solved, params.dtype)?;
    let moved = relative_distance(&weights, &solved);
    if moved > PREMISE_LIMIT {
        report.warnings.push(format!(
            "storing the head as {} moves it by {moved:.1e} relative",
            params.dtype.name()
        ));
    }
    report.stored = params.dtype.name().into();
    clock.lap("solve");

    if let Some(file) = labels_out {
        input.write_labels(engine, &solved, file, params.dtype, progress)?;
        clock.lap("labels");
    }
    if params.verify {
        input.verify(engine, &plan, &weights, &mut report, progress)?;
        clock.lap("verify");
    }
    input.unchanged()?;
    if let Some(others) = input.head.others_in_words() {
        report.warnings.push(format!(
            "{} also holds {others}, not carried over to the new head",
            params.head.display()
        ));
    }

    report.change = Change {
        relative: relative_distance(&weights, &input.trained),
    };
    report.seconds = clock.total();
    report.phases = clock.phases;
    Ok(Outcome {
        head: input.to_head(&weights),
        report,
    })
}

/// Everything that was opened and checked.
struct Input {
    /// The rows; with sums, only those to be subtracted are read.
    rows: Option<RowSource>,
    /// Sums in place of the rows.
    shard: Option<Shard>,
    head: Head,
    /// w_p, D×C with the bias as last row.
    trained: Matrix,
    /// w₀.
    init: Matrix,
}

/// How the new head is to be found.
struct Plan {
    objective: Objective,
    source: Source,
    ridge: f64,
    route: Route,
    spec: SumsSpec,
}

/// What the pass over the rows leaves.
enum Collected {
    Primal { retained: Sums, forgotten: Sums },
    Dual(DualGram),
}

impl Input {
    fn open(params: &Params, labels_out: bool, progress: &mut dyn Progress) -> Result<Self> {
        check(progress, "check", 0, 1)?;
        let head = Head::load(&params.head)?;
        let open =
            |path: &PathBuf| RowSource::open(path, params.labels.as_deref(), &head, &params.head);
        let mut rows = params.features.as_ref().map(open).transpose()?;
        let trained = to_weights(&head);
        let init = match &params.init {
            None => Matrix::zeros(trained.rows(), trained.cols()),
            Some(path) => {
                let init = Head::load(path)?;
                let shape = |h: &Head| (h.weight.rows(), h.weight.cols(), h.bias.is_some());
                if shape(&init) != shape(&head) {
                    let say = |h: &Head| {
                        let bias = if h.bias.is_some() { "with" } else { "without" };
                        format!("{}×{} {bias} a bias", h.weight.rows(), h.weight.cols())
                    };
                    return Err(Error::Shape {
                        what: path.display().to_string(),
                        found: say(&init),
                        expected: format!("{}, as the head", say(&head)),
                    });
                }
                to_weights(&init)
            }
        };
        let missing = |name, expected: &str| {
            Err(Error::Missing {
                name,
                expected: expected.into(),
            })
        };
        match (&rows, &params.sums, &params.forget) {
            (None, None, _) => return missing("`.features`", "a feature file, or `.sums`"),
            (None, Some(_), Some(_)) => {
                return missing(
                    "`.features`",
                    "the file of the rows that `.forget` is to take out of `.sums`",
                );
            }
            (Some(_), _, None) => {
                return missing("`.forget`", "a file of row numbers, or class:K");
            }
            _ => {}
        }
        if let Some(rows) = &mut rows {
            let all = 0..rows.features.rows();
            rows.choose(params.forget.as_ref(), all, progress)?;
        }
        let shard = match &params.sums {
            None => None,
            Some(path) => {
                let shard = load_sums(path, &head, &params.head)?;
                needs_no_rows(params, &shard, rows.is_some(), labels_out)?;
                if let Some(rows) = &mut rows {
                    let ids = to_subtract(rows, &shard, path, progress)?;
                    rows.forget_only(ids);
                }
                Some(shard)
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
            let sums = params.sums.as_ref().map(|path| path.display().to_string());
            return Err(Error::selection(
                sums.unwrap_or("`.forget`".into()),
                format!("all {} rows are forgotten", input.forgotten()),
                "at least one row that is retained",
            ));
        }
        Ok(input)
    }

    fn classes(&self) -> usize {
        self.head.weight.rows()
    }

    /// Columns of the targets; 0 where there are none.
    fn targets(&self) -> usize {
        match (&self.shard, &self.rows) {
            (Some(shard), _) => shard.spec.targets,
            (None, Some(rows)) => rows.targets(),
            (None, None) => 0,
        }
    }

    fn forgotten(&self) -> u64 {
        let in_sums = self.shard.as_ref().map_or(0, |shard| shard.forgotten.rows);
        in_sums + self.rows.as_ref().map_or(0, |rows| rows.forgotten)
    }

    fn retained(&self) -> u64 {
        self.total() - self.forgotten()
    }

    fn total(&self) -> u64 {
        match (&self.shard, &self.rows) {
            (Some(shard), _) => shard.rows(),
            (None, Some(rows)) => rows.rows(),
            (None, None) => 0,
        }
    }

    fn unchanged(&self) -> Result<()> {
        self.rows.iter().try_for_each(RowSource::unchanged)
    }

    fn collect<E: Engine>(
        &self,
        engine: &E,
        plan: &Plan,
        warnings: &mut Vec<String>,
        progress: &mut dyn Progress,
    ) -> Result<Collected> {
        if let Some(shard) = &self.shard {
            let (mut retained, mut forgotten) = (shard.retained.clone(), shard.forgotten.clone());
            if let Some(rows) = &self.rows {
                let seen = |_: &_| Ok(());
                let (_, gone) = rows.sums(engine, plan.spec, Which::Forgotten, progress, seen)?;
                retained = retained.subtract(&gone);
                warnings.extend(lost_digits(&retained, &gone));
                forgotten = forgotten.add(&gone);
            }
            warnings.extend(shard.gaps_in_words());
            if forgotten.rows == 0 {
                warnings.push(
                    "no row in the sums is forgotten: the new head is the one of all rows in them"
                        .into(),
                );
            }
            return Ok(Collected::Primal {
                retained,
                forgotten,
            });
        }
        let rows = self.rows()?;
        match plan.route {
            Route::Primal => {
                let seen = |_: &_| Ok(());
                let (retained, forgotten) =
                    rows.sums(engine, plan.spec, Which::All, progress, seen)?;
                Ok(Collected::Primal {
                    retained,
                    forgotten,
                })
            }
            Route::Dual => {
                let mut builder = GramBuilder::new(engine, Route::Dual, plan.spec)?;
                rows.stream("sums", Which::All, progress, |batch| {
                    let kept = rows.retained_in(batch);
                    batch.with_targets(plan.spec, &kept, |rows, targets| {
                        builder.push(rows, targets)
                    })
                })?;
                match builder.finish()? {
                    Gram::Dual(dual) => Ok(Collected::Dual(dual)),
                    Gram::Primal(_) => unreachable!("the builder was made for the dual route"),
                }
            }
        }
    }

    /// The rows, where something cannot do without.
    fn rows(&self) -> Result<&RowSource> {
        self.rows.as_ref().ok_or(Error::Missing {
            name: "`.features`",
            expected: "the feature file, since this needs the rows".into(),
        })
    }

    fn write_labels<E: Engine>(
        &self,
        engine: &E,
        weights: &Matrix,
        file: &mut OutputFile,
        dtype: Dtype,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let rows = self.rows()?;
        let writer = RowsWriter {
            rows: rows.forgotten as usize,
            cols: self.classes(),
            dtype,
        };
        file.put(&writer.header())?;
        match &rows.forget {
            None => {}
            Some(ForgetSpec::Ids { ids, .. }) => {
                for part in ids.chunks(1 << 16) {
                    let numbers: Vec<i64> = part.iter().map(|&id| id as i64).collect();
                    file.put(&writer.row_numbers(&numbers))?;
                }
            }
            Some(ForgetSpec::Class(class)) => {
                rows.each_label_chunk("labels", progress, |start, chunk| {
                    let of_class = (start as i64..)
                        .zip(chunk)
                        .filter(|(_, label)| *label == class);
                    let numbers: Vec<i64> = of_class.map(|(row, _)| row).collect();
                    file.put(&writer.row_numbers(&numbers))
                })?;
            }
        }
        rows.stream("labels", Which::Forgotten, progress, |batch| {
            let gone = rows.forgotten_in(batch);
            let labels = engine.project(batch.rows.rows().pick(&gone), weights)?;
            file.put(&writer.values(&labels)?)
        })
    }

    fn verify<E: Engine>(
        &self,
        engine: &E,
        plan: &Plan,
        weights: &Matrix,
        report: &mut HeadReport,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let spec = SumsSpec {
            targets: self.classes(),
            ..plan.spec
        };
        let source = self.rows()?;
        let mut builder = GramBuilder::new(engine, plan.route, spec)?;
        let mut gradient = Matrix::zeros(weights.rows(), weights.cols());
        let mut tally = Tally::default();
        source.stream("verify", Which::All, progress, |batch| {
            let kept = source.retained_in(batch);
            // Backwards: in the same order the sums would agree to the last bit by construction, and say nothing.
            let backwards: Vec<usize> = kept.iter().rev().copied().collect();
            batch.with_targets(spec, &backwards, |rows, targets| {
                builder.push(rows, targets)?;
                let predicted = engine.project(rows, weights)?;
                let wanted = targets.to_matrix(rows.rows(), spec.targets);
                let missed = predicted.zip(&wanted, |p, y| p - y);
                let pulled = engine.pull_back(rows, &missed, spec.bias)?;
                gradient = gradient.zip(&pulled, |a, b| a + b);
                Ok(())
            })?;
            if let Wanted::Classes(_) = source.wanted {
                let rows = batch.rows.rows();
                let before = engine.project_argmax(rows, &self.trained)?;
                let after = engine.project_argmax(rows, weights)?;
                tally.add(&kept, &batch.classes, &before, &after);
            }
            Ok(())
        })?;
        let direct = fit(engine, &builder.finish()?, &self.init, plan.ridge)?.weights;
        let ridge = plan.ridge;
        let pull = weights.zip(&self.init, |w, i| ridge * (w - i));
        let gradient = gradient.zip(&pull, |g, p| g + p).norm();
        report.verify = Some(Verification {
            distance_relative: relative_distance(weights, &direct),
            gradient_norm: gradient,
            distance_bound: (ridge > 0.0).then(|| gradient / ridge),
        });
        report.accuracy = tally.percentages();
        Ok(())
    }

    fn report(&self, plan: &Plan) -> HeadReport {
        HeadReport {
            version: crate::VERSION.into(),
            objective: match plan.objective {
                Objective::Ridge => "ridge".into(),
                Objective::Interpolate => "interpolate".into(),
            },
            route: plan.route.name().into(),
            source: match plan.source {
                Source::Labels => "labels".into(),
                Source::Head => "head".into(),
            },
            rows: RowCounts {
                total: self.total(),
                retained: self.retained(),
                forgotten: self.forgotten(),
            },
            features: self.head.weight.cols(),
            bias: self.head.bias.is_some(),
            classes: self.classes(),
            dtype: match (&self.shard, &self.rows) {
                (Some(shard), _) => shard.dtype().into(),
                (None, Some(rows)) => rows.features.dtype().name().into(),
                (None, None) => String::new(),
            },
            ridge: plan.ridge,
            ..HeadReport::default()
        }
    }

    fn to_head(&self, weights: &Matrix) -> Head {
        let width = self.head.weight.cols();
        Head {
            weight: Matrix::from_fn(self.classes(), width, |c, d| weights[(d, c)]),
            bias: self.head.bias.as_ref().map(|_| weights.row(width).to_vec()),
            ..self.head.clone()
        }
    }
}

impl Plan {
    fn new(params: &Params, input: &Input) -> Result<Self> {
        let order = input.trained.rows();
        let by_shape = Route::choose(input.retained(), order);
        let objective = params.objective.unwrap_or(match by_shape {
            Route::Dual if params.ridge.is_none_or(|ridge| ridge == 0.0) => Objective::Interpolate,
            _ => Objective::Ridge,
        });
        let source = params.source.unwrap_or(match objective {
            Objective::Ridge => Source::Labels,
            Objective::Interpolate => Source::Head,
        });
        let ridge = match (params.ridge, objective) {
            (Some(ridge), _) if !(ridge >= 0.0 && ridge.is_finite()) => {
                return Err(Error::Parameter {
                    name: "`.ridge`",
                    value: ridge.to_string(),
                    expected: "a finite number that is not negative".into(),
                });
            }
            // Adding 0 turns −0 into 0.
            (Some(ridge), _) => ridge + 0.0,
            (None, Objective::Interpolate) => 0.0,
            (None, Objective::Ridge) => {
                return Err(Error::Missing {
                    name: "`.ridge`",
                    expected: "the ridge that the head was trained with; the result depends on it"
                        .into(),
                });
            }
        };
        let labels_needed =
            source == Source::Labels || objective == Objective::Ridge || params.verify;
        if labels_needed && input.targets() == 0 {
            let fault =
                |path: &PathBuf, problem, expected| Err(Error::format(path, problem, expected));
            match (&params.sums, &params.features) {
                (Some(path), _) => fault(
                    path,
                    "the sums were made without labels, which this needs",
                    "sums over rows with `labels` or `targets`; only `.objective = interpolate` with `.source = head` needs none",
                )?,
                (None, Some(path)) => fault(
                    path,
                    "it has neither `labels` nor `targets`, which this needs",
                    "one of them, or `.labels`; only `.objective = interpolate` with `.source = head` and without `.verify` needs none",
                )?,
                (None, None) => {}
            }
        }
        if let Some(path) = &params.sums {
            let fault = |problem: String, expected: &str| {
                let what = path.display().to_string();
                Err(Error::selection(what, problem, expected))
            };
            if by_shape == Route::Dual && ridge == 0.0 {
                let rows = input.retained();
                fault(
                    format!(
                        "{rows} rows are retained, fewer than the order {order} of G, which without a ridge needs the rows"
                    ),
                    "`.ridge` above 0, or `.features` without `.sums`",
                )?;
            }
            let from_forgotten = objective == Objective::Ridge && source == Source::Head;
            if from_forgotten && input.forgotten() == 0 {
                fault(
                    "no row in it is forgotten, and `.source = head` goes by those rows".into(),
                    "sums made with `.forget`, or `.features` and `.forget` beside `.sums`",
                )?;
            }
        }
        // The head-based ridge update needs the forgotten rows' sums, whatever the number of retained rows.
        let route = match (objective, source) {
            (Objective::Ridge, Source::Head) => Route::Primal,
            _ if input.shard.is_some() => Route::Primal,
            _ => by_shape,
        };
        Ok(Self {
            objective,
            source,
            ridge,
            route,
            spec: SumsSpec {
                features: input.head.weight.cols(),
                bias: input.head.bias.is_some(),
                targets: input.targets(),
            },
        })
    }

    fn solve<E: Engine>(
        &self,
        engine: &E,
        input: &Input,
        collected: &Collected,
        report: &mut HeadReport,
    ) -> Result<Matrix> {
        let (trained, init) = (&input.trained, &input.init);
        let retained = match collected {
            Collected::Primal { retained, .. } => Gram::Primal(retained.clone()),
            Collected::Dual(dual) => Gram::Dual(dual.clone()),
        };
        let projector = Projector::new(engine, retained, self.ridge)?;
        let solver = projector.solver();
        let (weights, info) = match (self.source, collected) {
            (Source::Head, Collected::Primal { forgotten, .. })
                if self.objective == Objective::Ridge =>
            {
                // w_p + (G_r + λI)⁻¹(G_u w_p − Z_uᵀY_u).
                let predicted = engine.project(forgotten.gram.as_rows(), trained)?;
                let pull = predicted.zip(&forgotten.cross, |p, y| p - y);
                let (change, info) = solver.solve(&pull)?;
                let mut weights = trained.zip(&change, |w, c| w + c);
                // Directions that no retained row sees keep what they were before training.
                let back = init.zip(trained, |i, t| i - t);
                if let Some(back) = solver.dropped_part(&back)? {
                    weights = weights.zip(&back, |w, b| w + b);
                }
                (weights, info)
            }
            (Source::Head, _) => projector.optimal_weights(trained, init)?,
            (Source::Labels, _) => {
                let fitted = fit_with(solver, projector.gram(), init)?;
                (fitted.weights, fitted.info)
            }
        };
        if weights.as_slice().iter().any(|w| !w.is_finite()) {
            return Err(Error::Overflow);
        }

        report.conditioning = conditioning(&info, solver.condition()?);
        let share = projector.trace_ratio()?;
        report.trace_ratio = Some(share);
        report.warnings.extend(solver.warning()?);
        report.premise = self.premise(engine, input, collected)?;
        if let Some(premise) = report
            .premise
            .as_ref()
            .filter(|p| p.residual > PREMISE_LIMIT)
        {
            report.warnings.push(match self.source {
                Source::Labels => format!(
                    "the given head is {:.1e} away from the ridge optimum of all rows: the new head is the ridge \
                     optimum of the retained rows, not your head with the rows removed (`.source = head` is that)",
                    premise.residual
                ),
                Source::Head => format!(
                    "the given head is not what this takes it to be ({} {:.1e}), and the result is only as exact as \
                     that; for a head trained with a ridge, `.objective = ridge` and its `.ridge` are exact",
                    premise.meaning, premise.residual
                ),
            });
        }
        if self.objective == Objective::Interpolate
            && self.source == Source::Head
            && share > FULL_SPACE
        {
            report.warnings.push(format!(
                "the retained rows fill the feature space (tr(Π)/D = {share:.4}): the projector is the identity and \
                 the new head is nearly the old one; `.objective = ridge` forgets"
            ));
        }
        Ok(weights)
    }

    /// How far the given head is from what the theory takes it to be; nothing where the result does not depend on it.
    fn premise<E: Engine>(
        &self,
        engine: &E,
        input: &Input,
        collected: &Collected,
    ) -> Result<Option<Premise>> {
        let trained = &input.trained;
        let (residual, meaning) = match (self.objective, collected) {
            (
                Objective::Ridge,
                Collected::Primal {
                    retained,
                    forgotten,
                },
            ) => {
                // Without forgotten rows the optimum of all rows is not known.
                if forgotten.rows == 0 {
                    return Ok(None);
                }
                let all = Gram::Primal(retained.add(forgotten));
                let optimum = fit(engine, &all, &input.init, self.ridge)?.weights;
                let meaning = "relative distance from the ridge optimum of all rows";
                (relative_distance(trained, &optimum), meaning)
            }
            (Objective::Interpolate, _) if self.source == Source::Labels => return Ok(None),
            (_, Collected::Primal { retained, .. }) if retained.cross.cols() > 0 => {
                let predicted = engine.project(retained.gram.as_rows(), trained)?;
                let meaning = "relative gradient on the retained rows";
                (relative_distance(&predicted, &retained.cross), meaning)
            }
            (Objective::Interpolate, Collected::Dual(dual)) if dual.targets.cols() > 0 => {
                let predicted = engine.project(dual.rows.as_rows(), trained)?;
                let meaning = "relative misfit on the retained rows";
                (relative_distance(&predicted, &dual.targets), meaning)
            }
            _ => return Ok(None),
        };
        Ok(Some(Premise {
            residual,
            meaning: meaning.into(),
        }))
    }
}

/// Right answers before and after, retained and forgotten.
#[derive(Default)]
struct Tally {
    /// Index 0: retained, 1: forgotten.
    rows: [u64; 2],
    before: [u64; 2],
    after: [u64; 2],
}

impl Tally {
    fn add(&mut self, kept: &[usize], classes: &[i64], before: &[u32], after: &[u32]) {
        let mut side = vec![1; classes.len()];
        for &i in kept {
            side[i] = 0;
        }
        for (i, &class) in classes.iter().enumerate() {
            self.rows[side[i]] += 1;
            self.before[side[i]] += u64::from(i64::from(before[i]) == class);
            self.after[side[i]] += u64::from(i64::from(after[i]) == class);
        }
    }

    fn percentages(&self) -> Option<Accuracy> {
        let percent =
            |right: [u64; 2], side: usize| 100.0 * right[side] as f64 / self.rows[side] as f64;
        (self.rows[0] > 0 && self.rows[1] > 0).then(|| Accuracy {
            retained_before: percent(self.before, 0),
            retained_after: percent(self.after, 0),
            forgotten_before: percent(self.before, 1),
            forgotten_after: percent(self.after, 1),
        })
    }
}

fn conditioning(info: &Info, condition: f64) -> Conditioning {
    let (factor, rank, min_pivot, max_pivot) = match info.method {
        Method::Cholesky {
            min_pivot,
            max_pivot,
        } => ("cholesky", info.order, min_pivot, max_pivot),
        Method::Eigen { rank, .. } => ("eigen", rank, f64::NAN, f64::NAN),
    };
    Conditioning {
        ridge_ratio: info.ridge_ratio(),
        condition: Some(condition),
        min_pivot,
        max_pivot,
        factor: factor.into(),
        rank,
        residual_before: info.residual_before,
        residual_after: info.residual_after,
    }
}

/// D×C weights of a head, its bias as last row.
fn to_weights(head: &Head) -> Matrix {
    let (classes, width) = (head.weight.rows(), head.weight.cols());
    let rows = width + usize::from(head.bias.is_some());
    Matrix::from_fn(rows, classes, |d, c| match &head.bias {
        Some(bias) if d == width => bias[c],
        _ => head.weight[(c, d)],
    })
}

/// Loads sums and holds them against the shape of the head.
fn load_sums(path: &Path, head: &Head, head_path: &Path) -> Result<Shard> {
    let shard = Shard::load(path)?;
    let shape = |features: usize, bias: bool, classes: usize| {
        let bias = if bias { "a bias" } else { "no bias" };
        format!("D = {features} features, {bias}, C = {classes} classes")
    };
    let (spec, classes) = (shard.spec, head.weight.rows());
    // Sums without labels fit any number of classes.
    let targets = if spec.targets == 0 {
        classes
    } else {
        spec.targets
    };
    let found = shape(spec.features, spec.bias, targets);
    let expected = shape(head.weight.cols(), head.bias.is_some(), classes);
    if found == expected {
        return Ok(shard);
    }
    Err(Error::Shape {
        what: path.display().to_string(),
        found,
        expected: format!("{expected}, as {}", head_path.display()),
    })
}

/// Refuses what sums cannot give.
fn needs_no_rows(params: &Params, shard: &Shard, rows: bool, labels_out: bool) -> Result<()> {
    if params.verify {
        return Err(Error::selection(
            "`.verify`",
            "it goes over the retained rows, which `.sums` does not hold",
            "`.features` without `.sums`",
        ));
    }
    if labels_out && (!rows || shard.forgotten.rows > 0) {
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
    rows: &RowSource,
    shard: &Shard,
    sums: &Path,
    progress: &mut dyn Progress,
) -> Result<Vec<u64>> {
    let of = rows.part()?;
    let fault = |problem: String, expected: String| {
        let what = rows.features.path().display().to_string();
        Err(Error::selection(what, problem, expected))
    };
    let (same, other): (Vec<_>, Vec<_>) = shard
        .parts
        .iter()
        .zip(&shard.forgotten_rows)
        .partition(|(part, _)| part.features == of.features);
    if same.is_empty() {
        return fault(
            format!("no row in {} is from this file", sums.display()),
            "the file that the sums were made of, unchanged".into(),
        );
    }
    if same.iter().any(|(part, _)| part.labels != of.labels) {
        return fault(
            format!("{} was made with other labels", sums.display()),
            "the `.labels`, if any, that the sums were made with, unchanged".into(),
        );
    }
    if matches!(rows.forget, Some(ForgetSpec::Class(_))) && !other.is_empty() {
        return fault(
            format!(
                "{} also has rows of other files, which may be of that class",
                sums.display()
            ),
            "a list of rows, or sums made with `.forget = class:K`".into(),
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
            format!("row {row} is not in {}", sums.display()),
            "rows that were summed there".into(),
        ),
    }
}

/// Says where subtracting rows has cost digits: where they outweigh what is left.
fn lost_digits(left: &Sums, gone: &Sums) -> Option<String> {
    let share = |d: usize| gone.gram[(d, d)] / left.gram[(d, d)].abs();
    let (feature, share) = (0..left.gram.rows())
        .map(|d| (d, share(d)))
        .filter(|(_, share)| *share >= OUTWEIGHED)
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    let digits = share.log10().ceil().min(16.0);
    Some(format!(
        "subtracting the forgotten rows from the sums cost about {digits} of 16 digits in feature {feature}, where \
         they outweigh the retained rows; sums made with `.forget`, or `.features` without `.sums`, cost none"
    ))
}

fn relative_distance(a: &Matrix, b: &Matrix) -> f64 {
    a.zip(b, |a, b| a - b).norm() / b.norm().max(f64::MIN_POSITIVE)
}
