//! Feature rows as a stream of batches, from memory or from files that are prefetched.
//!
//! [`FeatureRows`] says where the rows are and what they map to. Held against a head and a [`Forget`] it becomes a
//! `RowSource`: opened, checked, and ready to be gone through any number of times. Rows in memory are handed out as
//! they lie. Files are read by a [`Lane`](crate::scheduler::Lane) of the scheduler that is a few batches ahead of
//! whoever computes, with its buffers used again, so that memory does not grow with the file.
//!
//! ```
//! use muso::data::FeatureRows;
//! use muso::engine::{Rows, Targets};
//! let (features, labels) = ([1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [0, 1, 0]);
//! let in_memory = FeatureRows::new(Rows::new(3, 2, &features[..]), Targets::Classes(&labels));
//! let in_files = FeatureRows::file("train.safetensors").labels("labels.npy");
//! # let _ = (in_memory, in_files);
//! ```

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::{Digest, Forget, Head, LabelReader, MatrixReader, RowBuffer, RowList, TensorFile};
use crate::engine::{Dtype, Rows, SumsSpec, Targets};
use crate::error::{Error, Result};
use crate::progress::{Progress, check};
use crate::scheduler::Scheduler;

/// Feature bytes of a batch.
const BATCH_BYTES: usize = 8 << 20;
/// Bytes of what is computed of a batch, in f64.
const RESULT_BYTES: usize = 64 << 20;

/// The lane that reads files ahead, in traces.
pub const READ_LANE: &str = "read";

/// Feature rows in memory or in files, with their targets.
#[derive(Clone, Debug)]
pub struct FeatureRows<'a> {
    place: Place<'a>,
}

#[derive(Clone, Debug)]
enum Place<'a> {
    Memory {
        rows: Rows<'a>,
        targets: Targets<'a>,
    },
    Files {
        features: PathBuf,
        labels: Option<PathBuf>,
    },
}

impl<'a> FeatureRows<'a> {
    /// Takes rows in memory, and a class or a row of values for each of them.
    ///
    /// # Panics
    /// If there is not one class or one row of values a row, or if rows are [picked](Rows::pick) from others.
    pub fn new(rows: Rows<'a>, targets: Targets<'a>) -> Self {
        let count = match targets {
            Targets::None => rows.rows(),
            Targets::Classes(classes) => classes.len(),
            Targets::Values(values) => values.rows(),
        };
        assert_eq!(
            count,
            rows.rows(),
            "{count} targets for {} rows",
            rows.rows()
        );
        let values_picked = matches!(targets, Targets::Values(values) if values.is_picked());
        assert!(
            !rows.is_picked() && !values_picked,
            "rows picked from others"
        );
        let place = Place::Memory { rows, targets };
        Self { place }
    }

    /// Takes the rows of a file: `features`, N×D, with `labels`, N, or `targets`, N×C, unless those are
    /// [elsewhere](Self::labels); or a `.npy` matrix. It is opened when it is used.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        let place = Place::Files {
            features: path.into(),
            labels: None,
        };
        Self { place }
    }

    /// Takes labels or targets from a file of their own. Rows in memory have theirs already and keep them.
    pub fn labels(mut self, path: impl Into<PathBuf>) -> Self {
        if let Place::Files { labels, .. } = &mut self.place {
            *labels = Some(path.into());
        }
        self
    }

    /// Returns the feature file, where the rows are in one.
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            Place::Memory { .. } => None,
            Place::Files { features, .. } => Some(features),
        }
    }
}

/// Feature rows that are opened and checked, what they map to, and which of them are to be forgotten.
pub(crate) struct RowSource<'a> {
    store: Store<'a>,
    /// C, the outputs of the head.
    classes: usize,
    choice: Arc<Choice>,
    /// The rows that are gone through.
    range: Range<u64>,
    /// Number of those to forget.
    forgotten: u64,
}

enum Store<'a> {
    Memory {
        rows: Rows<'a>,
        targets: Targets<'a>,
    },
    Files(Arc<Files>),
}

/// Open files, owned by the thread that reads them.
struct Files {
    opened: Vec<TensorFile>,
    features: MatrixReader,
    wanted: Wanted,
    classes: usize,
}

/// Targets that the rows of a file map to.
enum Wanted {
    Nothing,
    Classes(LabelReader),
    Values(MatrixReader),
}

/// The rows to forget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Nothing,
    /// Every row of these classes, which ascend.
    Classes(Vec<i64>),
    Rows(RowList),
}

/// Batches of a stream to read.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Which {
    All,
    /// Only those with a row to forget.
    Forgotten,
}

/// A batch of a stream.
#[derive(Clone, Copy)]
pub(crate) struct RowBatch<'b> {
    /// The number of its first row.
    pub(crate) start: u64,
    pub(crate) rows: Rows<'b>,
    pub(crate) targets: Targets<'b>,
}

impl<'b> RowBatch<'b> {
    /// The classes of its rows; empty where they have none.
    pub(crate) fn classes(&self) -> &'b [i64] {
        match self.targets {
            Targets::Classes(classes) => classes,
            _ => &[],
        }
    }

    fn range(&self) -> Range<u64> {
        self.start..self.start + self.rows.rows() as u64
    }

    /// Hands some of the rows to `work`, with what they map to; with nothing where `spec` has no targets.
    pub(crate) fn with_targets<T>(
        &self,
        spec: SumsSpec,
        picked: &[usize],
        work: impl FnOnce(Rows<'_>, Targets<'_>) -> Result<T>,
    ) -> Result<T> {
        let rows = self.rows.pick(picked);
        match self.targets {
            _ if spec.targets == 0 => work(rows, Targets::None),
            Targets::None => work(rows, Targets::None),
            Targets::Values(values) => work(rows, Targets::Values(values.pick(picked))),
            Targets::Classes(classes) => {
                let classes: Vec<i64> = picked.iter().map(|&i| classes[i]).collect();
                work(rows, Targets::Classes(&classes))
            }
        }
    }
}

impl<'a> RowSource<'a> {
    /// Opens the files and holds them against the shape of the head; all rows, none to be forgotten.
    pub(crate) fn open(rows: &FeatureRows<'a>, head: &Head) -> Result<Self> {
        let (classes, width) = (head.weight.rows(), head.weight.cols());
        let store = match &rows.place {
            Place::Memory { rows, targets } => {
                fits(*rows, *targets, head)?;
                Store::Memory {
                    rows: *rows,
                    targets: *targets,
                }
            }
            Place::Files { features, labels } => Store::Files(Arc::new(Files::open(
                features,
                labels.as_deref(),
                width,
                classes,
                head,
            )?)),
        };
        let mut source = Self {
            store,
            classes,
            choice: Arc::new(Choice::Nothing),
            range: 0..0,
            forgotten: 0,
        };
        source.range = 0..source.total();
        Ok(source)
    }

    /// Sets what is to be forgotten among the rows of `range`, and checks every label once.
    ///
    /// A range that is not the whole file may well hold no row of a class.
    pub(crate) fn choose(
        &mut self,
        forget: Option<&Forget>,
        range: Range<u64>,
        seed: u64,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        self.range = 0..self.total();
        let choice = match forget {
            None => Choice::Nothing,
            Some(forget) => self.choice_of(forget, seed, progress)?,
        };
        self.choice = Arc::new(choice);
        self.range = range;
        self.forgotten = self.count_forgotten(progress)?;
        Ok(())
    }

    /// Holds what is to be forgotten against the rows of the whole file.
    fn choice_of(&self, forget: &Forget, seed: u64, progress: &mut dyn Progress) -> Result<Choice> {
        let by_seed = || (seed % self.classes as u64).to_string();
        if let Some(list) = forget.read()? {
            list.check(self.total())?;
            return Ok(Choice::Rows(list));
        }
        if let Some(mut classes) = forget.class_numbers()? {
            classes.sort_unstable();
            return Ok(Choice::Classes(classes));
        }
        let drawn = match forget {
            Forget::ClassBySeed => {
                return self.choice_of(&Forget::Class(by_seed()), seed, progress);
            }
            Forget::PartOfClassBySeed(amount) => {
                return self.choice_of(&Forget::PartOfClass(by_seed(), *amount), seed, progress);
            }
            Forget::Random(amount) => amount.draw("`.forget`", self.total(), seed)?,
            Forget::PartOfClass(class, amount) => {
                let whole = self.choice_of(&Forget::Class(class.clone()), seed, progress)?;
                let mut pool = Vec::new();
                self.each_row_of(&whole, progress, |row| {
                    pool.push(row);
                    Ok(())
                })?;
                if pool.is_empty() {
                    return Err(self.no_such_class(&whole));
                }
                amount.draw_from("`.forget`", &pool, seed)?
            }
            other => {
                return Err(Error::selection(
                    "`.forget`",
                    format!("{} is not a choice of feature rows", other.describe()),
                    "rows, a file, classes, a part of a class or a random share",
                ));
            }
        };
        let list = RowList::new(drawn)?;
        list.check(self.total())?;
        Ok(Choice::Rows(list))
    }

    /// Narrows what is to be forgotten to these rows, which are among it and ascend.
    pub(crate) fn forget_only(&mut self, ids: Vec<u64>) {
        self.forgotten = ids.len() as u64;
        self.choice = Arc::new(Choice::Rows(RowList::of(self.name().as_ref(), ids)));
    }

    /// Counts the rows to forget. Every label must be a class, and only they tell how many rows a class has.
    fn count_forgotten(&self, progress: &mut dyn Progress) -> Result<u64> {
        let classes = match &*self.choice {
            Choice::Classes(classes) => classes.as_slice(),
            _ => &[],
        };
        let mut counts = vec![0_u64; classes.len()];
        self.each_label_chunk("check", progress, |_, chunk| {
            for label in chunk {
                if let Ok(at) = classes.binary_search(label) {
                    counts[at] += 1;
                }
            }
            Ok(())
        })?;
        match &*self.choice {
            Choice::Nothing => return Ok(0),
            Choice::Rows(list) => return Ok(ids_within(list.ids(), &self.range).len() as u64),
            Choice::Classes(_) => {}
        }
        let counted: u64 = counts.iter().sum();
        let rows = self.total();
        let whole = self.range == (0..rows);
        let absent = classes
            .iter()
            .zip(&counts)
            .find(|&(&class, &count)| count == 0 && (whole || class >= self.classes as i64));
        match (self.has_classes(), absent) {
            (false, _) => Err(Error::selection(
                self.choice.name(),
                "the rows have no class labels",
                "a tensor `labels` in the feature file or by `.labels`, or a list of rows",
            )),
            (true, Some((&class, _))) => Err(self.no_such_class(&Choice::Classes(vec![class]))),
            (true, None) if counted == rows => Err(Error::selection(
                self.choice.name(),
                format!("all {rows} rows have that label"),
                "at least one row that is retained",
            )),
            (true, None) => Ok(counted),
        }
    }

    fn no_such_class(&self, choice: &Choice) -> Error {
        Error::selection(
            choice.name(),
            "no row has that label",
            format!("a class that occurs, 0 to {}", self.classes - 1),
        )
    }

    /// Hands out all labels, checked, with the number of the first row; nothing where rows have no classes.
    pub(crate) fn each_label_chunk(
        &self,
        phase: &str,
        progress: &mut dyn Progress,
        mut work: impl FnMut(u64, &[i64]) -> Result<()>,
    ) -> Result<()> {
        const CHUNK: u64 = 1 << 16;
        if !self.has_classes() {
            return Ok(());
        }
        let mut chunk = Vec::new();
        for start in self.range.clone().step_by(CHUNK as usize) {
            check(progress, phase, start - self.range.start, self.rows())?;
            let count = CHUNK.min(self.range.end - start) as usize;
            match &self.store {
                Store::Memory { targets, .. } => {
                    let at = start as usize;
                    if let Targets::Classes(classes) = targets.slice(at, at + count) {
                        check_labels(classes, start, self.classes, &self.name())?;
                        work(start, classes)?;
                    }
                }
                Store::Files(files) => {
                    files.read_labels(start, count, &mut chunk)?;
                    work(start, &chunk)?;
                }
            }
        }
        Ok(())
    }

    /// Hands out the numbers of the rows of a choice.
    fn each_row_of(
        &self,
        choice: &Choice,
        progress: &mut dyn Progress,
        mut work: impl FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        match choice {
            Choice::Nothing => Ok(()),
            Choice::Rows(list) => {
                let mut ids = ids_within(list.ids(), &self.range).iter();
                ids.try_for_each(|&id| work(id))
            }
            Choice::Classes(_) => self.each_label_chunk("check", progress, |start, chunk| {
                let mut of_class = (start..)
                    .zip(chunk)
                    .filter(|(_, label)| choice.has_class(label));
                of_class.try_for_each(|(row, _)| work(row))
            }),
        }
    }

    /// Hands out the numbers of the rows to forget.
    pub(crate) fn each_forgotten(
        &self,
        progress: &mut dyn Progress,
        work: impl FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        self.each_row_of(&self.choice, progress, work)
    }

    /// Rows that are gone through.
    pub(crate) fn rows(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Returns the number of rows to forget.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Rows that there are.
    pub(crate) fn total(&self) -> u64 {
        match &self.store {
            Store::Memory { rows, .. } => rows.rows() as u64,
            Store::Files(files) => files.features.rows(),
        }
    }

    pub(crate) fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    pub(crate) fn choice(&self) -> &Choice {
        &self.choice
    }

    pub(crate) fn dtype(&self) -> Dtype {
        match &self.store {
            Store::Memory { rows, .. } => rows.dtype(),
            Store::Files(files) => files.features.dtype(),
        }
    }

    /// Returns the name of the rows in messages.
    pub(crate) fn name(&self) -> String {
        match &self.store {
            Store::Memory { .. } => "the rows in memory".into(),
            Store::Files(files) => files.features.path().display().to_string(),
        }
    }

    /// Returns whether the rows have class labels.
    pub(crate) fn has_classes(&self) -> bool {
        match &self.store {
            Store::Memory { targets, .. } => matches!(targets, Targets::Classes(_)),
            Store::Files(files) => matches!(files.wanted, Wanted::Classes(_)),
        }
    }

    /// Columns of the targets; 0 where there are none.
    pub(crate) fn targets(&self) -> usize {
        let none = match &self.store {
            Store::Memory { targets, .. } => matches!(targets, Targets::None),
            Store::Files(files) => matches!(files.wanted, Wanted::Nothing),
        };
        if none { 0 } else { self.classes }
    }

    /// Refuses files that were written to since they were opened.
    pub(crate) fn unchanged(&self) -> Result<()> {
        match &self.store {
            Store::Memory { .. } => Ok(()),
            Store::Files(files) => files.unchanged(),
        }
    }

    /// Fingerprints of the features and of what they map to, and the name of the feature file without its folder.
    pub(crate) fn identity(&self) -> Result<(String, String, String)> {
        match &self.store {
            Store::Memory { rows, targets } => {
                let of = |rows: Rows<'_>| {
                    let shape = [rows.rows() as u64, rows.cols() as u64];
                    let mut digest = Digest::new();
                    digest.add(bytemuck::cast_slice(&shape)).add(rows.bytes());
                    digest.text()
                };
                let wanted = match targets {
                    Targets::None => String::new(),
                    Targets::Classes(classes) => {
                        Digest::new().add(bytemuck::cast_slice(classes)).text()
                    }
                    Targets::Values(values) => of(*values),
                };
                Ok((of(*rows), wanted, "memory".into()))
            }
            Store::Files(files) => {
                let path = files.features.path();
                let labels = match (&files.wanted, files.opened.last()) {
                    (Wanted::Nothing, _) | (_, None) => String::new(),
                    (_, Some(file)) => file.fingerprint()?,
                };
                let name = path.file_name().unwrap_or(path.as_os_str());
                let features = files.opened[0].fingerprint()?;
                Ok((features, labels, name.to_string_lossy().into_owned()))
            }
        }
    }

    fn batch_rows(&self) -> usize {
        let cols = match &self.store {
            Store::Memory { rows, .. } => rows.cols(),
            Store::Files(files) => files.features.cols(),
        };
        // What is computed of a batch has a column for each class.
        let of_features = BATCH_BYTES / (cols * self.dtype().size()).max(1);
        let of_classes = RESULT_BYTES / (self.classes * size_of::<f64>()).max(1);
        of_features.min(of_classes).clamp(1, 1 << 16)
    }

    /// Returns the rows of a batch to forget, counted within it.
    pub(crate) fn forgotten_in(&self, batch: &RowBatch<'_>) -> Vec<usize> {
        self.choice.within(batch.range(), batch.classes())
    }

    /// Returns the retained rows of a batch, counted within it.
    pub(crate) fn retained_in(&self, batch: &RowBatch<'_>) -> Vec<usize> {
        let mut keep = vec![true; batch.rows.rows()];
        for i in self.forgotten_in(batch) {
            keep[i] = false;
        }
        (0..keep.len()).filter(|&i| keep[i]).collect()
    }

    /// Goes over the rows from front to back. Files are read ahead of `work` by a lane of the scheduler.
    pub(crate) fn stream(
        &self,
        scheduler: &Scheduler,
        phase: &'static str,
        which: Which,
        progress: &mut dyn Progress,
        mut work: impl FnMut(&RowBatch<'_>) -> Result<()>,
    ) -> Result<()> {
        let step = self.batch_rows();
        let mut number = 0;
        let mut each = |batch: &RowBatch<'_>, progress: &mut dyn Progress| {
            scheduler.step(phase, number, || work(batch))?;
            number += 1;
            check(
                progress,
                phase,
                batch.range().end - self.range.start,
                self.rows(),
            )
        };
        match &self.store {
            Store::Memory { rows, targets } => {
                for start in self.range.clone().step_by(step) {
                    let end = (start + step as u64).min(self.range.end);
                    let batch = RowBatch {
                        start,
                        rows: rows.slice(start as usize, end as usize),
                        targets: targets.slice(start as usize, end as usize),
                    };
                    if which == Which::Forgotten && self.forgotten_in(&batch).is_empty() {
                        continue;
                    }
                    let name = || PathBuf::from(self.name());
                    finite(batch.rows, start, name, "features")?;
                    check_labels(batch.classes(), start, self.classes, &self.name())?;
                    if let Targets::Values(values) = batch.targets {
                        finite(values, start, name, "targets")?;
                    }
                    each(&batch, progress)?;
                }
                Ok(())
            }
            Store::Files(files) => {
                let (reader, emptied) = Reader::new(files, &self.choice, which, &self.range, step);
                for item in scheduler.lane(READ_LANE, reader)? {
                    let buffers = item?;
                    each(&buffers.batch(&files.wanted), progress)?;
                    // The reader may have finished; then nobody needs the buffers.
                    let _ = emptied.send(buffers);
                }
                Ok(())
            }
        }
    }
}

impl Choice {
    /// Returns whether every row of this class is to be forgotten.
    fn has_class(&self, class: &i64) -> bool {
        matches!(self, Self::Classes(classes) if classes.binary_search(class).is_ok())
    }

    /// Returns the rows of a range that are selected, counted from its start; `classes` are theirs.
    fn within(&self, range: Range<u64>, classes: &[i64]) -> Vec<usize> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Classes(_) => {
                let of_class = |&i: &usize| self.has_class(&classes[i]);
                (0..classes.len()).filter(of_class).collect()
            }
            Self::Rows(list) => ids_within(list.ids(), &range)
                .iter()
                .map(|&id| (id - range.start) as usize)
                .collect(),
        }
    }

    /// Returns the text that a file of sums stores: empty, `class:K`, or `rows:` and a digest of their numbers.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Classes(classes) => {
                let classes: Vec<String> = classes.iter().map(i64::to_string).collect();
                format!("class:{}", classes.join(","))
            }
            Self::Rows(list) => {
                let digest = Digest::new().add(bytemuck::cast_slice(list.ids())).text();
                format!("rows:{digest}")
            }
        }
    }

    /// Returns the name of the selection in messages.
    fn name(&self) -> String {
        format!("`.forget = {}`", self.text())
    }
}

impl Files {
    fn open(
        path: &Path,
        labels: Option<&Path>,
        width: usize,
        classes: usize,
        head: &Head,
    ) -> Result<Self> {
        let file = TensorFile::open(path)?;
        let features = file.matrix("features")?;
        if features.cols() != width {
            return Err(Error::Shape {
                what: format!("{}: `features`", path.display()),
                found: format!("{} columns", features.cols()),
                expected: format!("{width}, the columns of `weight` [C,D] in {}", head.name()),
            });
        }
        let mut opened = vec![file];
        let wanted = match labels {
            Some(path) => {
                let file = TensorFile::open(path)?;
                let wanted = Wanted::find(&file, features.rows(), classes)?;
                opened.push(file);
                wanted
            }
            None if opened[0].contains("labels") || opened[0].contains("targets") => {
                Wanted::find(&opened[0], features.rows(), classes)?
            }
            None => Wanted::Nothing,
        };
        Ok(Self {
            opened,
            features,
            wanted,
            classes,
        })
    }

    fn unchanged(&self) -> Result<()> {
        self.opened.iter().try_for_each(TensorFile::unchanged)
    }

    fn read_labels(&self, start: u64, count: usize, classes: &mut Vec<i64>) -> Result<()> {
        if let Wanted::Classes(labels) = &self.wanted {
            labels.read(start, count, classes)?;
            check_labels(
                classes,
                start,
                self.classes,
                &labels.path().display().to_string(),
            )?;
        }
        Ok(())
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

/// Reusable buffers for a batch of a file.
struct Buffers {
    start: u64,
    rows: RowBuffer,
    classes: Vec<i64>,
    values: RowBuffer,
}

impl Buffers {
    fn new() -> Self {
        Self {
            start: 0,
            rows: RowBuffer::new(),
            classes: Vec::new(),
            values: RowBuffer::new(),
        }
    }

    fn batch(&self, wanted: &Wanted) -> RowBatch<'_> {
        RowBatch {
            start: self.start,
            rows: self.rows.rows(),
            targets: match wanted {
                Wanted::Nothing => Targets::None,
                Wanted::Classes(_) => Targets::Classes(&self.classes),
                Wanted::Values(_) => Targets::Values(self.values.rows()),
            },
        }
    }
}

/// Reads batches of files, on the thread of its lane; buffers that come back are filled again.
struct Reader {
    files: Arc<Files>,
    choice: Arc<Choice>,
    which: Which,
    next: u64,
    end: u64,
    step: u64,
    emptied: Receiver<Buffers>,
}

impl Reader {
    fn new(
        files: &Arc<Files>,
        choice: &Arc<Choice>,
        which: Which,
        range: &Range<u64>,
        step: usize,
    ) -> (Self, Sender<Buffers>) {
        let (sender, emptied) = channel();
        let reader = Self {
            files: files.clone(),
            choice: choice.clone(),
            which,
            next: range.start,
            end: range.end,
            step: step as u64,
            emptied,
        };
        (reader, sender)
    }

    /// Fills the buffers and checks every value; false when they would hold none of the rows wanted.
    fn fill(&self, count: usize, buffers: &mut Buffers) -> Result<bool> {
        let (files, start) = (&*self.files, buffers.start);
        files.read_labels(start, count, &mut buffers.classes)?;
        if self.which == Which::Forgotten {
            let range = start..start + count as u64;
            if self.choice.within(range, &buffers.classes).is_empty() {
                return Ok(false);
            }
        }
        read_finite(&files.features, start, count, &mut buffers.rows)?;
        if let Wanted::Values(values) = &files.wanted {
            read_finite(values, start, count, &mut buffers.values)?;
        }
        files.unchanged()?;
        Ok(true)
    }
}

impl Iterator for Reader {
    type Item = Result<Buffers>;

    fn next(&mut self) -> Option<Result<Buffers>> {
        let mut buffers = self.emptied.try_recv().unwrap_or_else(|_| Buffers::new());
        while self.next < self.end {
            let count = self.step.min(self.end - self.next) as usize;
            buffers.start = self.next;
            self.next += count as u64;
            match self.fill(count, &mut buffers) {
                Ok(false) => {}
                Ok(true) => return Some(Ok(buffers)),
                Err(error) => return Some(Err(error)),
            }
        }
        None
    }
}

/// Refuses rows in memory that do not fit a head.
fn fits(rows: Rows<'_>, targets: Targets<'_>, head: &Head) -> Result<()> {
    let (classes, width) = (head.weight.rows(), head.weight.cols());
    let shape = |what: &str, found: usize, expected: String| {
        Err(Error::Shape {
            what: format!("the rows in memory: {what}"),
            found: format!("{found} columns"),
            expected,
        })
    };
    if rows.cols() != width {
        let expected = format!("{width}, the columns of `weight` [C,D] in {}", head.name());
        return shape("features", rows.cols(), expected);
    }
    if rows.rows() == 0 {
        return Err(Error::selection(
            "the rows in memory",
            "there is no row",
            "at least one row that is retained and one that is forgotten",
        ));
    }
    match targets {
        Targets::Values(values) if values.cols() != classes => shape(
            "targets",
            values.cols(),
            format!("{classes}, one a class of the head"),
        ),
        _ => Ok(()),
    }
}

fn check_labels(labels: &[i64], start: u64, classes: usize, name: &str) -> Result<()> {
    let range = 0..classes as i64;
    match labels.iter().position(|label| !range.contains(label)) {
        None => Ok(()),
        Some(i) => Err(Error::LabelRange {
            path: name.into(),
            row: start + i as u64,
            label: labels[i],
            classes,
        }),
    }
}

/// The numbers, out of ascending ones, that lie in a range.
fn ids_within<'a>(ids: &'a [u64], range: &Range<u64>) -> &'a [u64] {
    let from = ids.partition_point(|&id| id < range.start);
    let to = ids.partition_point(|&id| id < range.end);
    &ids[from..to]
}

fn finite(rows: Rows<'_>, start: u64, path: impl Fn() -> PathBuf, tensor: &str) -> Result<()> {
    match rows.first_not_finite() {
        None => Ok(()),
        Some((row, column, value)) => Err(Error::NotFinite {
            path: path(),
            tensor: tensor.into(),
            row: start + row as u64,
            column,
            value,
        }),
    }
}

fn read_finite(
    reader: &MatrixReader,
    start: u64,
    count: usize,
    buffer: &mut RowBuffer,
) -> Result<()> {
    reader.read(start, count, buffer)?;
    let path = || reader.path().to_owned();
    finite(buffer.rows(), start, path, reader.name())
}
