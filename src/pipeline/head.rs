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
//! Two objectives, two sources of what the head should be:
//!
//! | | from `labels` | from `head` |
//! |---|---|---|
//! | `ridge` | (G_r + λI)⁻¹(Z_rᵀY_r + λw₀) | w_p − (G_r + λI)⁻¹Z_uᵀ(Y_u − Z_u w_p), exact if w_p was the ridge optimum |
//! | `interpolate` | w₀ + Z_rᵀ(K_r + λI)⁻¹(Y_r − Z_r w₀) | w₀ + Π_r(w_p − w₀), exact if w_p interpolated; no label used |
//!
//! with w_p the given head and w₀ the initial one, zero when none is given. A bias is one more feature that is always 1
//! and is penalised like the others.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Instant;

use super::{Progress, check};
use crate::data::{
    ForgetSpec, Head, LabelReader, MatrixReader, OutputFile, RowBuffer, RowsWriter, TensorFile,
    rounded,
};
use crate::engine::{Dtype, Engine, Matrix, Rows, Sums, SumsSpec, Targets};
use crate::error::{Error, Result};
use crate::gram::{DualGram, Gram, GramBuilder, Route};
use crate::labels::Projector;
use crate::report::{
    Accuracy, Change, Conditioning, HeadReport, Phase, Premise, RowCounts, Verification,
};
use crate::solve::{Info, Method, fit, fit_with};

/// Feature bytes read at a time.
const BATCH_BYTES: usize = 8 << 20;
/// Batches between the reader and the engine.
const BATCHES_AHEAD: usize = 2;
/// tr(Π)/D from which the retained rows count as filling the space.
const FULL_SPACE: f64 = 0.999;
/// Relative distance of the given head from its assumed optimum that is worth a warning.
const PREMISE_LIMIT: f64 = 1e-3;

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
    /// Features, with labels or targets unless those are elsewhere.
    pub features: PathBuf,
    /// A file of its own for `labels` or `targets`.
    pub labels: Option<PathBuf>,
    /// The head that was trained on all rows.
    pub head: PathBuf,
    /// The head before training; zero when not given.
    pub init: Option<PathBuf>,
    /// The rows to forget.
    pub forget: ForgetSpec,
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
    let input = Input::open(params, progress)?;
    clock.lap("check");

    let plan = Plan::new(params, &input)?;
    let collected = input.collect(engine, &plan, progress)?;
    clock.lap("sums");

    let mut report = input.report(&plan);
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
    files: Vec<TensorFile>,
    features: MatrixReader,
    wanted: Wanted,
    head: Head,
    /// w_p, D×C with the bias as last row.
    trained: Matrix,
    /// w₀.
    init: Matrix,
    forget: ForgetSpec,
    forgotten: u64,
}

/// What the rows should map to.
enum Wanted {
    Nothing,
    Classes(LabelReader),
    Values(MatrixReader),
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

/// Which batches of the stream are wanted.
#[derive(Clone, Copy, PartialEq)]
enum Which {
    All,
    /// Only those with a row to forget.
    Forgotten,
}

/// One batch of the stream.
struct Batch {
    start: u64,
    count: usize,
    rows: RowBuffer,
    classes: Vec<i64>,
    values: RowBuffer,
}

impl Input {
    fn open(params: &Params, progress: &mut dyn Progress) -> Result<Self> {
        check(progress, "check", 0, 1)?;
        let head = Head::load(&params.head)?;
        let file = TensorFile::open(&params.features)?;
        let features = file.matrix("features")?;
        let (classes, width) = (head.weight.rows(), head.weight.cols());
        if features.cols() != width {
            return Err(Error::Shape {
                what: format!("{}: `features`", params.features.display()),
                found: format!("{} columns", features.cols()),
                expected: format!(
                    "{width}, the columns of `weight` [C,D] in {}",
                    params.head.display()
                ),
            });
        }
        let init = match &params.init {
            None => Matrix::zeros(width + usize::from(head.bias.is_some()), classes),
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
        let mut files = vec![file];
        let wanted = match &params.labels {
            Some(path) => {
                let file = TensorFile::open(path)?;
                let wanted = Wanted::find(&file, features.rows(), classes)?;
                files.push(file);
                wanted
            }
            None if files[0].contains("labels") || files[0].contains("targets") => {
                Wanted::find(&files[0], features.rows(), classes)?
            }
            None => Wanted::Nothing,
        };
        params.forget.check(features.rows())?;
        let mut input = Self {
            files,
            features,
            wanted,
            trained: to_weights(&head),
            head,
            init,
            forget: params.forget.clone(),
            forgotten: 0,
        };
        input.forgotten = input.count_forgotten(progress)?;
        Ok(input)
    }

    /// Reads all labels once: every one must be a class, and only they tell how many rows a class has.
    fn count_forgotten(&self, progress: &mut dyn Progress) -> Result<u64> {
        let mut counted = 0;
        self.each_label_chunk("check", progress, |_, chunk| {
            let forgotten = |label: &&i64| self.forget == ForgetSpec::Class(**label);
            counted += chunk.iter().filter(forgotten).count() as u64;
            Ok(())
        })?;
        let class = match &self.forget {
            ForgetSpec::Ids { ids, .. } => return Ok(ids.len() as u64),
            ForgetSpec::Class(class) => class,
        };
        let fault = |problem: String, expected: String| {
            Err(Error::selection(
                format!("--forget class:{class}"),
                problem,
                expected,
            ))
        };
        let rows = self.features.rows();
        match &self.wanted {
            Wanted::Classes(_) if counted == 0 => fault(
                "no row has that label".into(),
                format!("a class that occurs, 0 to {}", self.classes() - 1),
            ),
            Wanted::Classes(_) if counted == rows => fault(
                format!("all {rows} rows have that label"),
                "at least one row that is retained".into(),
            ),
            Wanted::Classes(_) => Ok(counted),
            _ => fault(
                "the rows have no class labels".into(),
                "a tensor `labels` in the feature file or by --labels, or a list of rows".into(),
            ),
        }
    }

    /// Hands out all labels, checked, with the number of the first row; nothing where rows have no classes.
    fn each_label_chunk(
        &self,
        phase: &str,
        progress: &mut dyn Progress,
        mut work: impl FnMut(u64, &[i64]) -> Result<()>,
    ) -> Result<()> {
        const CHUNK: u64 = 1 << 16;
        let Wanted::Classes(labels) = &self.wanted else {
            return Ok(());
        };
        let mut chunk = Vec::new();
        for start in (0..labels.len()).step_by(CHUNK as usize) {
            check(progress, phase, start, labels.len())?;
            let count = CHUNK.min(labels.len() - start) as usize;
            labels.read(start, count, &mut chunk)?;
            self.check_labels(labels, start, &chunk)?;
            work(start, &chunk)?;
        }
        Ok(())
    }

    fn check_labels(&self, labels: &LabelReader, start: u64, chunk: &[i64]) -> Result<()> {
        let classes = self.classes();
        let range = 0..classes as i64;
        match chunk.iter().position(|label| !range.contains(label)) {
            None => Ok(()),
            Some(i) => Err(Error::LabelRange {
                path: labels.path().to_owned(),
                row: start + i as u64,
                label: chunk[i],
                classes,
            }),
        }
    }

    fn classes(&self) -> usize {
        self.head.weight.rows()
    }

    fn retained(&self) -> u64 {
        self.features.rows() - self.forgotten
    }

    fn unchanged(&self) -> Result<()> {
        self.files.iter().try_for_each(TensorFile::unchanged)
    }

    fn batch_rows(&self) -> usize {
        let row = self.features.cols() * self.features.dtype().size();
        (BATCH_BYTES / row.max(1)).clamp(1, 1 << 16)
    }

    /// Which rows of a batch are to be forgotten, counted within it.
    fn forgotten_in(&self, batch: &Batch) -> Vec<usize> {
        match &self.forget {
            ForgetSpec::Class(class) => {
                let of_class = |&i: &usize| batch.classes[i] == *class;
                (0..batch.count).filter(of_class).collect()
            }
            ForgetSpec::Ids { ids, .. } => {
                let end = batch.start + batch.count as u64;
                let from = ids.partition_point(|&id| id < batch.start);
                let to = ids.partition_point(|&id| id < end);
                ids[from..to]
                    .iter()
                    .map(|&id| (id - batch.start) as usize)
                    .collect()
            }
        }
    }

    /// Reads the file from front to back on a thread of its own, a few batches ahead of `work`.
    fn stream(
        &self,
        phase: &str,
        which: Which,
        progress: &mut dyn Progress,
        mut work: impl FnMut(&Batch) -> Result<()>,
    ) -> Result<()> {
        let total = self.features.rows();
        let step = self.batch_rows();
        std::thread::scope(|scope| {
            let (full, filled) = mpsc::sync_channel::<Result<Batch>>(BATCHES_AHEAD);
            let (empty, emptied) = mpsc::channel::<Batch>();
            scope.spawn(move || {
                for start in (0..total).step_by(step) {
                    let mut batch = emptied.try_recv().unwrap_or_else(|_| Batch::new());
                    batch.start = start;
                    batch.count = step.min((total - start) as usize);
                    let outcome = match self.read(which, &mut batch) {
                        Ok(false) => continue,
                        Ok(true) => Ok(batch),
                        Err(error) => Err(error),
                    };
                    let failed = outcome.is_err();
                    // The receiver is gone once the work has failed or was stopped.
                    if full.send(outcome).is_err() || failed {
                        return;
                    }
                }
            });
            for batch in filled {
                let batch = batch?;
                work(&batch)?;
                check(progress, phase, batch.start + batch.count as u64, total)?;
                // The reader may have finished; then nobody needs the buffers.
                let _ = empty.send(batch);
            }
            Ok(())
        })
    }

    /// Fills a batch and checks every value; false when it holds none of the rows wanted.
    fn read(&self, which: Which, batch: &mut Batch) -> Result<bool> {
        let (start, count) = (batch.start, batch.count);
        if let Wanted::Classes(labels) = &self.wanted {
            labels.read(start, count, &mut batch.classes)?;
            self.check_labels(labels, start, &batch.classes)?;
        }
        if which == Which::Forgotten && self.forgotten_in(batch).is_empty() {
            return Ok(false);
        }
        read_finite(&self.features, start, count, &mut batch.rows)?;
        if let Wanted::Values(values) = &self.wanted {
            read_finite(values, start, count, &mut batch.values)?;
        }
        self.unchanged()?;
        Ok(true)
    }

    fn collect<E: Engine>(
        &self,
        engine: &E,
        plan: &Plan,
        progress: &mut dyn Progress,
    ) -> Result<Collected> {
        match plan.route {
            Route::Primal => {
                let mut retained = engine.accumulator(plan.spec)?;
                let mut forgotten = engine.accumulator(plan.spec)?;
                self.stream("sums", Which::All, progress, |batch| {
                    let (kept, gone) = (self.retained_in(batch), self.forgotten_in(batch));
                    for (sums, picked) in [(&mut retained, &kept), (&mut forgotten, &gone)] {
                        batch.with_targets(plan.spec, picked, |rows, targets| {
                            engine.accumulate(sums, rows, targets)
                        })?;
                    }
                    Ok(())
                })?;
                Ok(Collected::Primal {
                    retained: engine.finish(retained)?,
                    forgotten: engine.finish(forgotten)?,
                })
            }
            Route::Dual => {
                let mut builder = GramBuilder::new(engine, Route::Dual, plan.spec)?;
                self.stream("sums", Which::All, progress, |batch| {
                    let kept = self.retained_in(batch);
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

    fn retained_in(&self, batch: &Batch) -> Vec<usize> {
        let mut keep = vec![true; batch.count];
        for i in self.forgotten_in(batch) {
            keep[i] = false;
        }
        (0..keep.len()).filter(|&i| keep[i]).collect()
    }

    fn write_labels<E: Engine>(
        &self,
        engine: &E,
        weights: &Matrix,
        file: &mut OutputFile,
        dtype: Dtype,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let writer = RowsWriter {
            rows: self.forgotten as usize,
            cols: self.classes(),
            dtype,
        };
        file.put(&writer.header())?;
        match &self.forget {
            ForgetSpec::Ids { ids, .. } => {
                for part in ids.chunks(1 << 16) {
                    let numbers: Vec<i64> = part.iter().map(|&id| id as i64).collect();
                    file.put(&writer.row_numbers(&numbers))?;
                }
            }
            ForgetSpec::Class(class) => {
                self.each_label_chunk("labels", progress, |start, chunk| {
                    let of_class = (start as i64..)
                        .zip(chunk)
                        .filter(|(_, label)| *label == class);
                    let numbers: Vec<i64> = of_class.map(|(row, _)| row).collect();
                    file.put(&writer.row_numbers(&numbers))
                })?;
            }
        }
        self.stream("labels", Which::Forgotten, progress, |batch| {
            let gone = self.forgotten_in(batch);
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
        let mut builder = GramBuilder::new(engine, plan.route, spec)?;
        let mut gradient = Matrix::zeros(weights.rows(), weights.cols());
        let mut tally = Tally::default();
        self.stream("verify", Which::All, progress, |batch| {
            let kept = self.retained_in(batch);
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
            if let Wanted::Classes(_) = self.wanted {
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
                total: self.features.rows(),
                retained: self.retained(),
                forgotten: self.forgotten,
            },
            features: self.features.cols(),
            bias: self.head.bias.is_some(),
            classes: self.classes(),
            dtype: self.features.dtype().name().into(),
            ridge: plan.ridge,
            ..HeadReport::default()
        }
    }

    fn to_head(&self, weights: &Matrix) -> Head {
        let width = self.features.cols();
        Head {
            weight: Matrix::from_fn(self.classes(), width, |c, d| weights[(d, c)]),
            bias: self.head.bias.as_ref().map(|_| weights.row(width).to_vec()),
            ..self.head.clone()
        }
    }
}

impl Wanted {
    fn find(file: &TensorFile, rows: u64, classes: usize) -> Result<Self> {
        let shape = |what: &str, found: String, expected: String| Error::Shape {
            what: format!("{}: {what}", file.path().display()),
            found,
            expected,
        };
        // A `.npy` file has one tensor and no names: integers are labels, floats are targets.
        let as_labels = if file.is_named() {
            file.contains("labels")
        } else {
            file.labels("labels").is_ok()
        };
        if as_labels {
            let labels = file.labels("labels")?;
            if labels.len() != rows {
                let found = format!("{} values", labels.len());
                return Err(shape(
                    "`labels`",
                    found,
                    format!("{rows}, one a row of features"),
                ));
            }
            return Ok(Self::Classes(labels));
        }
        if file.is_named() && !file.contains("targets") {
            // The error of the missing tensor lists what is there.
            return file.labels("labels").map(Self::Classes);
        }
        let values = file.matrix("targets")?;
        if (values.rows(), values.cols()) != (rows, classes) {
            let found = format!("{}×{}", values.rows(), values.cols());
            return Err(shape("`targets`", found, format!("{rows}×{classes}")));
        }
        Ok(Self::Values(values))
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
                    name: "--ridge",
                    value: ridge.to_string(),
                    expected: "a finite number that is not negative".into(),
                });
            }
            // Adding 0 turns −0 into 0.
            (Some(ridge), _) => ridge + 0.0,
            (None, Objective::Interpolate) => 0.0,
            (None, Objective::Ridge) => {
                return Err(Error::Missing {
                    name: "--ridge",
                    expected: "the ridge that the head was trained with; the result depends on it"
                        .into(),
                });
            }
        };
        let labels_needed =
            source == Source::Labels || objective == Objective::Ridge || params.verify;
        if labels_needed && matches!(input.wanted, Wanted::Nothing) {
            return Err(Error::format(
                &params.features,
                "it has neither `labels` nor `targets`, which this needs",
                "one of them, or --labels FILE; only --objective interpolate --from head without --verify needs none",
            ));
        }
        // The head-based ridge update needs the forgotten rows' sums, whatever the number of retained rows.
        let route = match (objective, source) {
            (Objective::Ridge, Source::Head) => Route::Primal,
            _ => by_shape,
        };
        let targets = if matches!(input.wanted, Wanted::Nothing) {
            0
        } else {
            input.classes()
        };
        Ok(Self {
            objective,
            source,
            ridge,
            route,
            spec: SumsSpec {
                features: input.features.cols(),
                bias: input.head.bias.is_some(),
                targets,
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
                     optimum of the retained rows, not your head with the rows removed (--from head is that)",
                    premise.residual
                ),
                Source::Head => format!(
                    "the given head is not what this takes it to be ({} {:.1e}), and the result is only as exact as \
                     that; for a head trained with a ridge, --objective ridge and its --ridge are exact",
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
                 the new head is nearly the old one; --objective ridge forgets"
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

impl Batch {
    fn new() -> Self {
        Self {
            start: 0,
            count: 0,
            rows: RowBuffer::new(),
            classes: Vec::new(),
            values: RowBuffer::new(),
        }
    }

    /// Some of the rows with what they map to.
    fn with_targets<T>(
        &self,
        spec: SumsSpec,
        picked: &[usize],
        work: impl FnOnce(Rows<'_>, Targets<'_>) -> Result<T>,
    ) -> Result<T> {
        let rows = self.rows.rows().pick(picked);
        if spec.targets == 0 {
            work(rows, Targets::None)
        } else if self.classes.is_empty() {
            work(rows, Targets::Values(self.values.rows().pick(picked)))
        } else {
            let classes: Vec<i64> = picked.iter().map(|&i| self.classes[i]).collect();
            work(rows, Targets::Classes(&classes))
        }
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

/// Wall time by phase.
struct Clock {
    started: Instant,
    last: Instant,
    phases: Vec<Phase>,
}

impl Clock {
    fn start() -> Self {
        let now = Instant::now();
        Self {
            started: now,
            last: now,
            phases: Vec::new(),
        }
    }

    fn lap(&mut self, name: &str) {
        let now = Instant::now();
        self.phases.push(Phase {
            name: name.into(),
            seconds: (now - self.last).as_secs_f64(),
        });
        self.last = now;
    }

    fn total(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
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

fn read_finite(
    reader: &MatrixReader,
    start: u64,
    count: usize,
    buffer: &mut RowBuffer,
) -> Result<()> {
    reader.read(start, count, buffer)?;
    match buffer.rows().first_not_finite() {
        None => Ok(()),
        Some((row, column, value)) => Err(reader.not_finite(start + row as u64, column, value)),
    }
}

fn relative_distance(a: &Matrix, b: &Matrix) -> f64 {
    a.zip(b, |a, b| a - b).norm() / b.norm().max(f64::MIN_POSITIVE)
}
