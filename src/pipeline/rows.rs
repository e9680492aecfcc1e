//! The rows of a feature file as a stream: opened and checked once, read batch by batch on a thread of its own.
//!
//! Shared by the runs that go over feature files: [`head`](super::head) and [`gram`](super::gram).

use std::ops::Range;
use std::path::Path;
use std::sync::mpsc;
use std::time::Instant;

use super::{Progress, check};
use crate::data::{Digest, ForgetSpec, Head, LabelReader, MatrixReader, RowBuffer, TensorFile};
use crate::engine::{Engine, Rows, Sums, SumsSpec, Targets};
use crate::error::{Error, Result};
use crate::gram::shard::Part;
use crate::outcome::Phase;

/// Feature bytes read at a time.
const BATCH_BYTES: usize = 8 << 20;
/// Batches between the reader and the engine.
const BATCHES_AHEAD: usize = 2;

/// A feature file, what its rows should map to, and which of them are to be forgotten.
pub(super) struct RowSource {
    files: Vec<TensorFile>,
    pub(super) features: MatrixReader,
    pub(super) wanted: Wanted,
    pub(super) classes: usize,
    pub(super) forget: Option<ForgetSpec>,
    /// The rows that are gone through.
    pub(super) range: Range<u64>,
    /// How many of those are to be forgotten.
    pub(super) forgotten: u64,
}

/// What the rows should map to.
pub(super) enum Wanted {
    Nothing,
    Classes(LabelReader),
    Values(MatrixReader),
}

/// Which batches of the stream are wanted.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Which {
    All,
    /// Only those with a row to forget.
    Forgotten,
}

/// One batch of the stream.
pub(super) struct Batch {
    pub(super) start: u64,
    pub(super) count: usize,
    pub(super) rows: RowBuffer,
    pub(super) classes: Vec<i64>,
    pub(super) values: RowBuffer,
}

impl RowSource {
    /// Opens the files and holds them against the shape of the head; all rows, none to be forgotten.
    pub(super) fn open(
        path: &Path,
        labels: Option<&Path>,
        head: &Head,
        head_path: &Path,
    ) -> Result<Self> {
        let file = TensorFile::open(path)?;
        let features = file.matrix("features")?;
        let (classes, width) = (head.weight.rows(), head.weight.cols());
        if features.cols() != width {
            return Err(Error::Shape {
                what: format!("{}: `features`", path.display()),
                found: format!("{} columns", features.cols()),
                expected: format!(
                    "{width}, the columns of `weight` [C,D] in {}",
                    head_path.display()
                ),
            });
        }
        let mut files = vec![file];
        let wanted = match labels {
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
        Ok(Self {
            range: 0..features.rows(),
            files,
            features,
            wanted,
            classes,
            forget: None,
            forgotten: 0,
        })
    }

    /// Sets what is to be forgotten among the rows of `range`, and reads their labels once.
    ///
    /// A range that is not the whole file may well hold no row of a class.
    pub(super) fn choose(
        &mut self,
        forget: Option<&ForgetSpec>,
        range: Range<u64>,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        if let Some(forget) = forget {
            forget.check(self.features.rows())?;
        }
        self.forget = forget.cloned();
        self.range = range;
        self.forgotten = self.count_forgotten(progress)?;
        Ok(())
    }

    /// Narrows what is to be forgotten to these rows, which are among it and ascend.
    pub(super) fn forget_only(&mut self, ids: Vec<u64>) {
        self.forgotten = ids.len() as u64;
        self.forget = Some(ForgetSpec::Ids {
            source: self.features.path().to_owned(),
            ids,
        });
    }

    /// Every label must be a class, and only they tell how many rows a class has.
    fn count_forgotten(&self, progress: &mut dyn Progress) -> Result<u64> {
        let mut counted = 0;
        self.each_label_chunk("check", progress, |_, chunk| {
            let forgotten = |label: &&i64| self.forget == Some(ForgetSpec::Class(**label));
            counted += chunk.iter().filter(forgotten).count() as u64;
            Ok(())
        })?;
        let class = match &self.forget {
            None => return Ok(0),
            Some(ForgetSpec::Ids { ids, .. }) => {
                return Ok(ids_within(ids, &self.range).len() as u64);
            }
            Some(ForgetSpec::Class(class)) => class,
        };
        let fault = |problem: String, expected: String| {
            Err(Error::selection(
                format!("`.forget = class:{class}`"),
                problem,
                expected,
            ))
        };
        let rows = self.features.rows();
        let whole = self.range == (0..rows);
        let occurs = || format!("a class that occurs, 0 to {}", self.classes - 1);
        match &self.wanted {
            Wanted::Classes(_) if counted == 0 && (whole || *class >= self.classes as i64) => {
                fault("no row has that label".into(), occurs())
            }
            Wanted::Classes(_) if counted == rows => fault(
                format!("all {rows} rows have that label"),
                "at least one row that is retained".into(),
            ),
            Wanted::Classes(_) => Ok(counted),
            _ => fault(
                "the rows have no class labels".into(),
                "a tensor `labels` in the feature file or by `.labels`, or a list of rows".into(),
            ),
        }
    }

    /// Hands out all labels, checked, with the number of the first row; nothing where rows have no classes.
    pub(super) fn each_label_chunk(
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
        for start in self.range.clone().step_by(CHUNK as usize) {
            check(progress, phase, start - self.range.start, self.rows())?;
            let count = CHUNK.min(self.range.end - start) as usize;
            labels.read(start, count, &mut chunk)?;
            self.check_labels(labels, start, &chunk)?;
            work(start, &chunk)?;
        }
        Ok(())
    }

    fn check_labels(&self, labels: &LabelReader, start: u64, chunk: &[i64]) -> Result<()> {
        let classes = self.classes;
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

    /// Rows that are gone through.
    pub(super) fn rows(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Columns of the targets; 0 where there are none.
    pub(super) fn targets(&self) -> usize {
        match self.wanted {
            Wanted::Nothing => 0,
            _ => self.classes,
        }
    }

    pub(super) fn unchanged(&self) -> Result<()> {
        self.files.iter().try_for_each(TensorFile::unchanged)
    }

    /// What a shard says of these rows; only a pass over them can tell their content.
    pub(super) fn part(&self) -> Result<Part> {
        let path = self.features.path();
        let labels = match (&self.wanted, self.files.last()) {
            (Wanted::Nothing, _) | (_, None) => String::new(),
            (_, Some(file)) => file.fingerprint()?,
        };
        Ok(Part {
            features: self.files[0].fingerprint()?,
            first: self.range.start,
            end: self.range.end,
            of: self.features.rows(),
            file: path
                .file_name()
                .unwrap_or(path.as_os_str())
                .to_string_lossy()
                .into_owned(),
            labels,
            dtype: self.features.dtype().name().into(),
            forget: match &self.forget {
                None => String::new(),
                Some(ForgetSpec::Class(class)) => format!("class:{class}"),
                Some(ForgetSpec::Ids { ids, .. }) => {
                    let digest = Digest::new().add(bytemuck::cast_slice(ids)).text();
                    format!("rows:{digest}")
                }
            },
            forgotten: self.forgotten,
            content: String::new(),
        })
    }

    /// Hands out the numbers of the rows to forget.
    pub(super) fn each_forgotten(
        &self,
        progress: &mut dyn Progress,
        mut work: impl FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        match &self.forget {
            None => Ok(()),
            Some(ForgetSpec::Ids { ids, .. }) => ids_within(ids, &self.range)
                .iter()
                .try_for_each(|&id| work(id)),
            Some(ForgetSpec::Class(class)) => {
                self.each_label_chunk("check", progress, |start, chunk| {
                    let mut of_class = (start..).zip(chunk).filter(|(_, label)| *label == class);
                    of_class.try_for_each(|(row, _)| work(row))
                })
            }
        }
    }

    fn batch_rows(&self) -> usize {
        let row = self.features.cols() * self.features.dtype().size();
        (BATCH_BYTES / row.max(1)).clamp(1, 1 << 16)
    }

    /// Which rows of a batch are to be forgotten, counted within it.
    pub(super) fn forgotten_in(&self, batch: &Batch) -> Vec<usize> {
        match &self.forget {
            None => Vec::new(),
            Some(ForgetSpec::Class(class)) => {
                let of_class = |&i: &usize| batch.classes[i] == *class;
                (0..batch.count).filter(of_class).collect()
            }
            Some(ForgetSpec::Ids { ids, .. }) => {
                let end = batch.start + batch.count as u64;
                ids_within(ids, &(batch.start..end))
                    .iter()
                    .map(|&id| (id - batch.start) as usize)
                    .collect()
            }
        }
    }

    pub(super) fn retained_in(&self, batch: &Batch) -> Vec<usize> {
        let mut keep = vec![true; batch.count];
        for i in self.forgotten_in(batch) {
            keep[i] = false;
        }
        (0..keep.len()).filter(|&i| keep[i]).collect()
    }

    /// Reads the rows from front to back on a thread of its own, a few batches ahead of `work`.
    pub(super) fn stream(
        &self,
        phase: &str,
        which: Which,
        progress: &mut dyn Progress,
        mut work: impl FnMut(&Batch) -> Result<()>,
    ) -> Result<()> {
        let range = self.range.clone();
        let step = self.batch_rows();
        std::thread::scope(|scope| {
            let (full, filled) = mpsc::sync_channel::<Result<Batch>>(BATCHES_AHEAD);
            let (empty, emptied) = mpsc::channel::<Batch>();
            scope.spawn(move || {
                for start in range.clone().step_by(step) {
                    let mut batch = emptied.try_recv().unwrap_or_else(|_| Batch::new());
                    batch.start = start;
                    batch.count = (range.end - start).min(step as u64) as usize;
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
                let done = batch.start + batch.count as u64 - self.range.start;
                check(progress, phase, done, self.rows())?;
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

    /// Sums over the retained and over the forgotten rows, apart. `seen` is shown every batch.
    pub(super) fn sums<E: Engine>(
        &self,
        engine: &E,
        spec: SumsSpec,
        which: Which,
        progress: &mut dyn Progress,
        mut seen: impl FnMut(&Batch) -> Result<()>,
    ) -> Result<(Sums, Sums)> {
        let mut retained = engine.accumulator(spec)?;
        let mut forgotten = engine.accumulator(spec)?;
        self.stream("sums", which, progress, |batch| {
            seen(batch)?;
            if which == Which::All {
                let kept = self.retained_in(batch);
                batch.with_targets(spec, &kept, |rows, targets| {
                    engine.accumulate(&mut retained, rows, targets)
                })?;
            }
            let gone = self.forgotten_in(batch);
            batch.with_targets(spec, &gone, |rows, targets| {
                engine.accumulate(&mut forgotten, rows, targets)
            })
        })?;
        Ok((engine.finish(retained)?, engine.finish(forgotten)?))
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
    pub(super) fn with_targets<T>(
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

/// Those of ascending numbers that lie in a range.
fn ids_within<'a>(ids: &'a [u64], range: &Range<u64>) -> &'a [u64] {
    let from = ids.partition_point(|&id| id < range.start);
    let to = ids.partition_point(|&id| id < range.end);
    &ids[from..to]
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

/// Wall time by phase.
pub(super) struct Clock {
    started: Instant,
    last: Instant,
    pub(super) phases: Vec<Phase>,
}

impl Clock {
    pub(super) fn start() -> Self {
        let now = Instant::now();
        Self {
            started: now,
            last: now,
            phases: Vec::new(),
        }
    }

    pub(super) fn lap(&mut self, name: &str) {
        let now = Instant::now();
        self.phases.push(Phase {
            name: name.into(),
            seconds: (now - self.last).as_secs_f64(),
        });
        self.last = now;
    }

    pub(super) fn total(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}
