//! Files of outputs, labels and rows.

use std::path::{Path, PathBuf};

use super::Params;
use crate::data::{Forget, MatrixReader, RowBuffer, TensorFile};
use crate::evaluate::audit::{Bench, Model};
use crate::progress::{Progress, check};
use crate::{Error, Result};

/// Everything that is judged.
pub(super) struct Input {
    pub(super) bench: Bench,
    pub(super) unlearned: Vec<Model>,
    pub(super) retrained: Vec<Model>,
    pub(super) original: Vec<Model>,
    pub(super) warnings: Vec<String>,
}

impl Input {
    pub(super) fn read(params: &Params, progress: &mut dyn Progress) -> Result<Self> {
        distinct(params)?;
        let labels = params.labels.as_deref().map(read_labels).transpose()?;
        let kinds = [
            ("`.unlearned`", &params.unlearned),
            ("`.retrained`", &params.retrained),
            ("`.original`", &params.original),
        ];
        let Some(first) = params.unlearned.first() else {
            return Err(Error::Missing {
                name: "`.unlearned`",
                expected: "files of outputs".into(),
            });
        };
        let first = Stack::open(first)?;
        let rows = match &labels {
            Some(labels) => labels.len(),
            // Without labels there are margins only, and a row is a column.
            None => first.reader.cols(),
        };
        first.layout(rows, labels.is_some())?;
        let bench = bench(params, rows, labels)?;
        let files: usize = kinds.iter().map(|(_, files)| files.len()).sum();
        let mut done = 0;
        let mut read = |files: &[PathBuf]| -> Result<Vec<Model>> {
            let mut models = Vec::new();
            for path in files {
                check(progress, "reading", done, files.len() as u64)?;
                Stack::open(path)?.models(&bench, &mut models)?;
                done += 1;
            }
            Ok(models)
        };
        let [unlearned, retrained, original] = [
            read(&params.unlearned)?,
            read(&params.retrained)?,
            read(&params.original)?,
        ];
        check(progress, "reading", files as u64, files as u64)?;
        let mut warnings = Vec::new();
        if bench.test.is_empty() {
            warnings.push(
                "no test rows are named (`.test`), so that nothing is measured on rows that no model was trained on"
                    .to_owned(),
            );
        }
        Ok(Self {
            bench,
            unlearned,
            retrained,
            original,
            warnings,
        })
    }
}

/// Refuses a file that is given twice: a model would be held against itself.
fn distinct(params: &Params) -> Result<()> {
    let all = [&params.unlearned, &params.retrained, &params.original];
    let mut seen: Vec<PathBuf> = Vec::new();
    for path in all.into_iter().flatten() {
        // One that is not there is found out when it is opened.
        let Ok(real) = path.canonicalize() else {
            continue;
        };
        if seen.contains(&real) {
            return Err(Error::format(
                path,
                "the file is given twice",
                "outputs of a model once only, since it would be held against itself",
            ));
        }
        seen.push(real);
    }
    Ok(())
}

/// The outputs of one model or several in a file.
struct Stack {
    file: TensorFile,
    name: &'static str,
    shape: Vec<usize>,
    reader: MatrixReader,
}

impl Stack {
    fn open(path: &Path) -> Result<Self> {
        let file = TensorFile::open(path)?;
        let name = match file.contains("margins") {
            true => "margins",
            false => "logits",
        };
        let (shape, reader) = file.stack(name)?;
        Ok(Self {
            file,
            name,
            shape,
            reader,
        })
    }

    /// How many models the file has by its shape, and of how many classes the logits `[N, C]` or `[M, N, C]` are; none for
    /// margins, `[N]` or `[M, N]`.
    fn layout(&self, rows: usize, with_labels: bool) -> Result<(usize, Option<usize>)> {
        let is_margins = self.name == "margins" && self.file.is_named();
        let logits = with_labels && !is_margins;
        match self.shape[..] {
            [n] if n == rows => Ok((1, None)),
            // A square could be either; labels are there for logits.
            [n, classes] if n == rows && logits => Ok((1, Some(classes))),
            [count, n] if n == rows => Ok((count, None)),
            [count, n, classes] if n == rows && logits => Ok((count, Some(classes))),
            _ => Err(self.mismatch(rows, with_labels)),
        }
    }

    /// Appends the models of the file.
    fn models(&self, bench: &Bench, models: &mut Vec<Model>) -> Result<()> {
        let rows = bench.rows();
        let (count, classes) = self.layout(rows, bench.has_labels())?;
        let mut buffer = RowBuffer::new();
        for model in 0..count {
            models.push(match classes {
                None => Model::of_margins(self.values(model, 1, &mut buffer)?),
                Some(classes) => {
                    let logits = self.values(model * rows, rows, &mut buffer)?;
                    let made = Model::of_logits(bench, &logits, classes);
                    made.map_err(|error| self.about(error))?
                }
            });
        }
        self.file.unchanged()
    }

    /// Rows of the flattened tensor in f64, all finite.
    fn values(&self, start: usize, count: usize, buffer: &mut RowBuffer) -> Result<Vec<f64>> {
        const BATCH_BYTES: usize = 1 << 20;
        let (reader, cols) = (&self.reader, self.reader.cols());
        let batch = (BATCH_BYTES / (cols * reader.dtype().size())).max(1);
        let mut values = vec![0.0; count * cols];
        for (k, part) in values.chunks_mut(batch * cols).enumerate() {
            let first = start + k * batch;
            reader.read(first as u64, part.len() / cols, buffer)?;
            let rows = buffer.rows();
            if let Some((row, column, value)) = rows.first_not_finite() {
                return Err(reader.not_finite((first + row) as u64, column, value));
            }
            for (i, row) in part.chunks_exact_mut(cols).enumerate() {
                rows.widen_row(i, row);
            }
        }
        Ok(values)
    }

    fn mismatch(&self, rows: usize, with_labels: bool) -> Error {
        let expected = match with_labels {
            true => format!(
                "logits [{rows}, C] or [M, {rows}, C], or margins [{rows}] or [M, {rows}], for the {rows} labels"
            ),
            false => format!(
                "margins [N] or [M, N] with N = {rows} as in the first file; logits need `.labels`"
            ),
        };
        Error::format(
            self.file.path(),
            format!("`{}` has shape {:?}", self.reader.name(), self.shape),
            expected,
        )
    }

    /// Names the file in an error about its values.
    fn about(&self, error: Error) -> Error {
        let path = self.file.path();
        match error {
            Error::Shape {
                what,
                found,
                expected,
            } => Error::format(path, format!("{what}: {found}"), expected),
            Error::Parameter {
                name,
                value,
                expected,
            } => Error::format(
                path,
                format!("the labels have {name} {value}, its logits do not"),
                expected,
            ),
            other => other,
        }
    }
}

fn read_labels(path: &Path) -> Result<Vec<u32>> {
    let file = TensorFile::open(path)?;
    let reader = file.labels("labels")?;
    let mut labels = Vec::new();
    // Its bytes are in the file, so that their number fits.
    reader.read(0, reader.len() as usize, &mut labels)?;
    file.unchanged()?;
    let class = |(row, &label): (usize, &i64)| {
        u32::try_from(label).map_err(|_| {
            Error::format(
                path,
                format!("row {row} has label {label}"),
                "classes counted from 0",
            )
        })
    };
    labels.iter().enumerate().map(class).collect()
}

fn bench(params: &Params, rows: usize, labels: Option<Vec<u32>>) -> Result<Bench> {
    let list = |which: &Option<Forget>, name| match which {
        Some(which) => listed(which, name, rows, labels.as_deref()).map(Some),
        None => Ok(None),
    };
    let test = list(&params.test, "`.test`")?.unwrap_or_default();
    let mut forgotten = listed(&params.forget, "`.forget`", rows, labels.as_deref())?;
    if matches!(params.forget, Forget::Class(_) | Forget::Classes(_)) {
        // The class in the test rows was never trained on, and is not forgotten.
        let is_test = marked(rows, &test);
        forgotten.retain(|&row| !is_test[row]);
    }
    let retained = match list(&params.retain, "`.retain`")? {
        Some(retained) => retained,
        None => {
            let taken = marked(rows, &[&test[..], &forgotten].concat());
            (0..rows).filter(|&row| !taken[row]).collect()
        }
    };
    Bench::new(rows, forgotten, retained, test, labels)
}

fn marked(rows: usize, list: &[usize]) -> Vec<bool> {
    let mut marks = vec![false; rows];
    for &row in list {
        marks[row] = true;
    }
    marks
}

/// The rows that a list names, each below `rows`.
fn listed(
    which: &Forget,
    name: &'static str,
    rows: usize,
    labels: Option<&[u32]>,
) -> Result<Vec<usize>> {
    if let Some(classes) = which.class_numbers()? {
        let Some(labels) = labels else {
            return Err(Error::Missing {
                name: "`.labels`",
                expected: format!("the labels that {} is about", which.describe()),
            });
        };
        let is_meant = |&row: &usize| classes.contains(&i64::from(labels[row]));
        let found: Vec<usize> = (0..rows).filter(is_meant).collect();
        return match found.is_empty() {
            true => Err(Error::selection(
                name,
                format!("no row is of {}", which.describe()),
                "a class that the labels have",
            )),
            false => Ok(found),
        };
    }
    let (source, ids) = match which {
        Forget::File(path) if is_array(path) => (path.display().to_string(), read_array(path)?),
        _ => match which.read()? {
            Some(list) => {
                let source = list.source().map(|path| path.display().to_string());
                (source.unwrap_or_else(|| name.to_owned()), list.into_ids())
            }
            None => {
                return Err(Error::selection(
                    name,
                    format!("{} cannot be looked up here", which.describe()),
                    "a file of row numbers, or class:K",
                ));
            }
        },
    };
    match ids.iter().find(|&&id| id >= rows as u64) {
        Some(id) => Err(Error::selection(
            source,
            format!("row {id} is out of range"),
            format!("row numbers below {rows}, counted from 0"),
        )),
        None => Ok(ids.into_iter().map(|id| id as usize).collect()),
    }
}

/// Whether a list of rows is an array rather than text.
fn is_array(path: &Path) -> bool {
    let extension = path
        .extension()
        .and_then(|e| e.to_str())
        .unwrap_or_default();
    ["npy", "safetensors"]
        .iter()
        .any(|known| extension.eq_ignore_ascii_case(known))
}

/// Row numbers from the tensor `rows` or the one array of a file.
fn read_array(path: &Path) -> Result<Vec<u64>> {
    let file = TensorFile::open(path)?;
    let reader = file.labels("rows")?;
    let mut rows = Vec::new();
    reader.read(0, reader.len() as usize, &mut rows)?;
    file.unchanged()?;
    rows.sort_unstable();
    let fault = |problem: String| Error::format(path, problem, "row numbers, each once");
    if let Some(pair) = rows.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(fault(format!("row {} is listed twice", pair[0])));
    }
    match rows.first() {
        None => Err(fault("the list is empty".to_owned())),
        Some(&row) if row < 0 => Err(fault(format!("row {row} is negative"))),
        Some(_) => Ok(rows.into_iter().map(|row| row as u64).collect()),
    }
}
