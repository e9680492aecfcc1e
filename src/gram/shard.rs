//! Shards: sums over a part of the rows as a file, so that one data set can be summed by several processes or machines.
//!
//! G = ZᵀZ and ZᵀY are sums over rows and need neither a head nor a ridge: [`Shard`] holds them over some rows of some
//! feature files, retained and forgotten rows apart, and [`merge`] adds shards up. Everything that the primal route
//! does follows from the merged sums; the dual route, a second pass and the labels of forgotten rows need the rows.
//!
//! A shard knows which rows it holds ([`Part`]), so that no row is counted twice, and carries a digest of all its
//! values, so that a damaged file is found out. Shards are added in the order of the rows that they hold: the bytes of
//! the result do not depend on the order in which they are named.
//!
//! The file is safetensors: `retained.gram` D×D, `retained.cross` D×C unless there are no targets, the same with
//! `forgotten` and the i64 numbers `forgotten.rows` where rows are forgotten, all f64, D with the bias; and in the
//! metadata `format`, `version`, `bias`, `parts` (JSON) and `digest`.
//!
//! [Exact](super::exact) sums are files of the same family, version 2: the lower triangle of `gram` and `cross` in integers of
//! 128 bits, each two i64 with the lower half first, `counts` (rows, values moved, rows beyond the width), `classes` (rows of
//! each class), `setters` where the grid was recorded, all of them a vector a side; `grid.features` and `grid.targets`, the
//! exponents of the units; and in the metadata `bits`, `targets` (none, classes or values) and `grid` (recorded or given).
//!
//! ```
//! use muso::engine::{Matrix, Sums, SumsSpec};
//! use muso::gram::shard::{Part, Shard, merge};
//! let dir = tempfile::tempdir().unwrap();
//! let spec = SumsSpec { features: 1, bias: false, targets: 0 };
//! let shard = |first: u64, square: f64| Shard {
//!     spec,
//!     parts: vec![Part {
//!         file: "features.safetensors".into(),
//!         features: "the file".into(),
//!         first,
//!         end: first + 1,
//!         of: 2,
//!         content: format!("row {first}"),
//!         ..Part::default()
//!     }],
//!     retained: Sums { rows: 1, gram: Matrix::from_vec(1, 1, vec![square]), cross: Matrix::zeros(1, 0) },
//!     forgotten: Sums { rows: 0, gram: Matrix::zeros(1, 1), cross: Matrix::zeros(1, 0) },
//!     forgotten_rows: vec![vec![]],
//!     exact: None,
//! };
//! let paths = [(0, 4.0), (1, 9.0)].map(|(first, square)| {
//!     let path = dir.path().join(first.to_string());
//!     std::fs::write(&path, shard(first, square).to_safetensors().unwrap()).unwrap();
//!     path
//! });
//! let merged = merge(&paths, &mut ())?;
//! assert_eq!((merged.retained.rows, merged.retained.gram[(0, 0)]), (2, 13.0));
//! let twice = [paths[0].clone(), paths[0].clone()];
//! assert!(merge(&twice, &mut ()).unwrap_err().to_string().contains("given twice"));
//! # Ok::<(), muso::Error>(())
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::exact::{ExactState, file as exact_file};
use crate::data::{Digest, OutTensor, TensorFile, shown, to_safetensors_with};
use crate::engine::exact::{ExactSpec, ExactSums};
use crate::engine::{Dtype, Matrix, Sums, SumsSpec};
use crate::error::{Error, Result};
use crate::progress::{Progress, check};

const FORMAT: &str = "muso sums";
const VERSION: &str = "1";
/// Version of a file of exact sums.
const EXACT_VERSION: &str = "2";
pub(super) const WRITTEN: &str = "a file written by muso gram or muso merge";
const SIDES: [&str; 2] = ["retained", "forgotten"];
const FORGOTTEN_ROWS: &str = "forgotten.rows";

/// Consecutive rows of one feature file.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Part {
    /// Fingerprint of the feature file.
    pub features: String,
    /// The first row, counted from 0.
    pub first: u64,
    /// The row after the last.
    pub end: u64,
    /// Number of rows of the feature file.
    pub of: u64,
    /// Name of the feature file, for messages.
    pub file: String,
    /// Fingerprint of the file with labels or targets; empty where there are none.
    pub labels: String,
    /// Storage type of the features.
    pub dtype: String,
    /// The request to forget: empty, `class:K`, or `rows:` and a digest of their numbers.
    pub forget: String,
    /// Number of this part's rows to forget.
    pub forgotten: u64,
    /// Digest of the rows with their labels or targets.
    pub content: String,
}

impl Part {
    /// Returns the number of rows, forgotten ones included.
    pub fn rows(&self) -> u64 {
        self.end.saturating_sub(self.first)
    }

    fn in_words(&self) -> String {
        let file = shown(&self.file, 80);
        format!("rows {}..{} of {file}", self.first, self.end)
    }
}

/// Sums over the retained and over the forgotten rows of some parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Shard {
    /// Shape of the sums.
    pub spec: SumsSpec,
    /// The rows; ascending and without a row twice.
    pub parts: Vec<Part>,
    /// Sums over the retained rows.
    pub retained: Sums,
    /// Sums over the forgotten rows.
    pub forgotten: Sums,
    /// Numbers of the forgotten rows, ascending; one list per part.
    pub forgotten_rows: Vec<Vec<u64>>,
    /// The sums in integers, where they are exact; those in f64 are these, rounded.
    pub exact: Option<ExactState>,
}

/// Header of a file of sums.
#[derive(Clone, Debug, PartialEq)]
struct Contents {
    spec: SumsSpec,
    parts: Vec<Part>,
    digest: String,
    exact: Option<ExactSpec>,
}

impl Shard {
    /// Takes exact sums over these parts.
    ///
    /// # Errors
    /// [`Error::Overflow`] where one of them leaves the range of f64.
    pub fn of_exact(
        exact: ExactState,
        parts: Vec<Part>,
        forgotten_rows: Vec<Vec<u64>>,
    ) -> Result<Self> {
        let (retained, forgotten) = exact.to_sums()?;
        Ok(Self {
            spec: exact.spec.sums,
            parts,
            retained,
            forgotten,
            forgotten_rows,
            exact: Some(exact),
        })
    }

    /// Loads a file of sums; every value is held against the digest.
    ///
    /// # Errors
    /// If the file is not one of sums, is of another version, does not agree with itself, or is damaged.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let file = TensorFile::open(path)?;
        let shard = Self::read(&file, Contents::read(&file)?)?;
        file.unchanged()?;
        Ok(shard)
    }

    /// Loads sums from the bytes of their file, which messages call `the sums`.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<Self> {
        let file = TensorFile::from_bytes("the sums", bytes)?;
        Self::read(&file, Contents::read(&file)?)
    }

    fn read(file: &TensorFile, contents: Contents) -> Result<Self> {
        let Contents {
            spec,
            parts,
            digest,
            exact,
        } = contents;
        let forgotten: u64 = parts.iter().map(|part| part.forgotten).sum();
        let total: u64 = parts.iter().map(Part::rows).sum();
        let forgotten_rows = if forgotten == 0 {
            vec![Vec::new(); parts.len()]
        } else {
            let mut numbers = Vec::new();
            let reader = file.labels(FORGOTTEN_ROWS)?;
            reader.read(0, forgotten as usize, &mut numbers)?;
            let mut rest = &numbers[..];
            let mut lists = Vec::new();
            for part in &parts {
                let (of_part, after) = rest.split_at(part.forgotten as usize);
                rest = after;
                let list: Vec<u64> = of_part.iter().map(|&row| row as u64).collect();
                let ascending = list.windows(2).all(|pair| pair[0] < pair[1]);
                let inside = |row: &u64| (part.first..part.end).contains(row);
                if !ascending || !list.iter().all(inside) {
                    return Err(Error::format(
                        file.path(),
                        format!("`{FORGOTTEN_ROWS}` are not {}", part.in_words()),
                        WRITTEN,
                    ));
                }
                lists.push(list);
            }
            lists
        };
        let retained = total - forgotten;
        let shard = match exact {
            Some(exact) => {
                let state = ExactState {
                    retained: exact_file::read(file, SIDES[0], &exact, retained)?,
                    forgotten: match forgotten {
                        0 => ExactSums::none(&exact),
                        _ => exact_file::read(file, SIDES[1], &exact, forgotten)?,
                    },
                    spec: exact,
                };
                Self::of_exact(state, parts, forgotten_rows)?
            }
            None => Self {
                spec,
                parts,
                retained: read_sums(file, SIDES[0], spec, retained)?,
                forgotten: match forgotten {
                    0 => nothing(spec),
                    _ => read_sums(file, SIDES[1], spec, forgotten)?,
                },
                forgotten_rows,
                exact: None,
            },
        };
        if shard.digest()? != digest {
            return Err(Error::format(
                file.path(),
                "damaged: its values do not have the digest that it states",
                "the file as it was written",
            ));
        }
        Ok(shard)
    }

    /// Returns the bytes of its file. Equal shards give equal bytes.
    ///
    /// # Errors
    /// If a sum is not finite.
    pub fn to_safetensors(&self) -> Result<Vec<u8>> {
        if !self.is_finite() {
            return Err(Error::Overflow);
        }
        let mut metadata = self.description()?;
        metadata.insert("digest".into(), self.digest()?);
        let rows = self.row_numbers();
        let names = SIDES.map(|side| [format!("{side}.gram"), format!("{side}.cross")]);
        let mut tensors = Vec::new();
        let exponents = self
            .exact
            .iter()
            .flat_map(|e| exact_file::exponents(&e.spec));
        let exponents: Vec<_> = exponents.collect();
        let sides: Vec<_> = SIDES.into_iter().zip(self.exact_sides()).collect();
        let listed = |&(side, sums)| exact_file::Tensors::new(side, sums);
        let listed: Vec<_> = sides.iter().map(listed).collect();
        for (list, (_, sums)) in listed.iter().zip(&sides) {
            tensors.extend(list.list(sums));
        }
        for (name, values) in &exponents {
            tensors.push((name, OutTensor::Integers(values)));
        }
        let in_f64 = self.sides().filter(|_| self.exact.is_none());
        for (sums, [gram, cross]) in in_f64.zip(&names) {
            for (name, values) in [(gram, &sums.gram), (cross, &sums.cross)] {
                if values.cols() > 0 {
                    let dtype = Dtype::F64;
                    tensors.push((name.as_str(), OutTensor::Matrix { values, dtype }));
                }
            }
        }
        if !rows.is_empty() {
            tensors.push((FORGOTTEN_ROWS, OutTensor::Integers(&rows)));
        }
        to_safetensors_with(&tensors, &metadata)
    }

    /// Returns the number of rows, forgotten ones included.
    pub fn rows(&self) -> u64 {
        self.retained.rows + self.forgotten.rows
    }

    /// Returns the storage type of the features; `mixed` where files differ.
    pub fn dtype(&self) -> &str {
        let mut types = self.parts.iter().map(|part| part.dtype.as_str());
        let first = types.next().unwrap_or_default();
        if types.all(|dtype| dtype == first) {
            first
        } else {
            "mixed"
        }
    }

    /// Returns the rows of its files that are in none of its parts; a shard that was left out shows here.
    pub fn gaps(&self) -> Vec<String> {
        let mut gaps = Vec::new();
        for (i, part) in self.parts.iter().enumerate() {
            let same = |other: &&Part| other.features == part.features;
            let before = i.checked_sub(1).map(|i| &self.parts[i]).filter(same);
            let after = self.parts.get(i + 1).filter(same);
            let mut gap = |first: u64, end: u64| {
                if first < end {
                    gaps.push(format!("{first}..{end} of {}", shown(&part.file, 80)));
                }
            };
            gap(before.map_or(0, |before| before.end), part.first);
            if after.is_none() {
                gap(part.end, part.of);
            }
        }
        gaps
    }

    /// Returns [`gaps`](Self::gaps) as a sentence, `None` if there are none.
    pub fn gaps_in_words(&self) -> Option<String> {
        const NAMED: usize = 3;
        let gaps = self.gaps();
        let named = gaps[..gaps.len().min(NAMED)].join(", ");
        let more = match gaps.len() {
            0 => return None,
            n if n <= NAMED => String::new(),
            n => format!(" and {} more", n - NAMED),
        };
        Some(format!("the sums leave out rows {named}{more}"))
    }

    /// Returns a digest of everything in it.
    pub fn digest(&self) -> Result<String> {
        let mut digest = Digest::new();
        for (key, text) in &self.description()? {
            digest.add_text(key).add_text(text);
        }
        for sums in self.exact_sides() {
            exact_file::digest(sums, &mut digest);
        }
        for (_, exponents) in self
            .exact
            .iter()
            .flat_map(|e| exact_file::exponents(&e.spec))
        {
            digest.add(bytemuck::cast_slice(&exponents));
        }
        for sums in self.sides().filter(|_| self.exact.is_none()) {
            for values in [&sums.gram, &sums.cross] {
                digest.add(bytemuck::cast_slice(values.as_slice()));
            }
        }
        digest.add(bytemuck::cast_slice(&self.row_numbers()));
        Ok(digest.text())
    }

    /// The sums that go into a file: forgotten ones only where there are any.
    fn sides(&self) -> impl Iterator<Item = &Sums> {
        let forgotten = (self.forgotten.rows > 0).then_some(&self.forgotten);
        std::iter::once(&self.retained).chain(forgotten)
    }

    /// The exact sums that go into a file.
    fn exact_sides(&self) -> impl Iterator<Item = &ExactSums> {
        let both = self.exact.iter().flat_map(|e| [&e.retained, &e.forgotten]);
        both.take(self.sides().count())
    }

    fn row_numbers(&self) -> Vec<i64> {
        let rows = self.forgotten_rows.iter().flatten();
        rows.map(|&row| row as i64).collect()
    }

    fn is_finite(&self) -> bool {
        self.sides()
            .all(|sums| sums.gram.is_finite() && sums.cross.is_finite())
    }

    /// The metadata but for the digest.
    fn description(&self) -> Result<BTreeMap<String, String>> {
        let parts = serde_json::to_string(&self.parts).map_err(|e| Error::Parameter {
            name: "parts",
            value: e.to_string(),
            expected: "what can be written as JSON".into(),
        })?;
        let version = match &self.exact {
            None => VERSION,
            Some(_) => EXACT_VERSION,
        };
        let mut texts: BTreeMap<String, String> = [
            ("format", FORMAT.to_owned()),
            ("version", version.to_owned()),
            ("bias", self.spec.bias.to_string()),
            ("parts", parts),
        ]
        .map(|(key, text)| (key.to_owned(), text))
        .into();
        if let Some(exact) = &self.exact {
            exact_file::describe(&exact.spec, &mut texts);
        }
        Ok(texts)
    }

    /// Adds the rows of a shard whose parts come after all of these.
    fn append(&mut self, other: Self) -> Result<()> {
        self.parts.extend(other.parts);
        match (&mut self.exact, &other.exact) {
            (Some(exact), Some(other)) => {
                exact.append(other)?;
                (self.retained, self.forgotten) = exact.to_sums()?;
            }
            _ => {
                self.retained = self.retained.add(&other.retained);
                if other.forgotten.rows > 0 {
                    self.forgotten = self.forgotten.add(&other.forgotten);
                }
            }
        }
        self.forgotten_rows.extend(other.forgotten_rows);
        Ok(())
    }

    /// Brings the parts into their order, the lists of forgotten rows with them.
    fn sort(&mut self) {
        let lists = std::mem::take(&mut self.forgotten_rows);
        let mut paired: Vec<_> = std::mem::take(&mut self.parts)
            .into_iter()
            .zip(lists)
            .collect();
        paired.sort();
        (self.parts, self.forgotten_rows) = paired.into_iter().unzip();
    }
}

/// Sums over no rows.
pub fn nothing(spec: SumsSpec) -> Sums {
    Sums {
        rows: 0,
        gram: Matrix::zeros(spec.order(), spec.order()),
        cross: Matrix::zeros(spec.order(), spec.targets),
    }
}

/// Reads the f64 sums of one side, whose shape [`Contents::read`] has checked.
fn read_sums(file: &TensorFile, side: &str, spec: SumsSpec, rows: u64) -> Result<Sums> {
    let matrix = |name: &str| file.matrix(&format!("{side}.{name}"))?.to_matrix();
    let cross = match spec.targets {
        0 => Matrix::zeros(spec.order(), 0),
        _ => matrix("cross")?,
    };
    Ok(Sums {
        rows,
        gram: matrix("gram")?,
        cross,
    })
}

impl Contents {
    fn open(path: &Path) -> Result<Self> {
        Self::read(&TensorFile::open(path)?)
    }

    fn read(file: &TensorFile) -> Result<Self> {
        let fault = |problem: String, expected: &str| {
            Err(Error::format(file.path(), problem, expected.to_owned()))
        };
        let texts = file.metadata();
        let text = |key: &str| texts.get(key).map_or("", String::as_str);
        if text("format") != FORMAT {
            return fault("not a file of sums".into(), WRITTEN);
        }
        if ![VERSION, EXACT_VERSION].contains(&text("version")) {
            let found = shown(text("version"), 20);
            return fault(
                format!("`version` of its format is {found}"),
                &format!("{VERSION} or, for exact sums, {EXACT_VERSION}, which this muso reads"),
            );
        }
        let bias = match text("bias") {
            "true" => true,
            "false" => false,
            other => {
                let found = shown(other, 20);
                return fault(format!("`bias` is `{found}`"), "true or false");
            }
        };
        let parts: Vec<Part> = match serde_json::from_str(text("parts")) {
            Ok(parts) => parts,
            Err(e) => {
                return fault(format!("`parts`: {}", shown(&e.to_string(), 120)), WRITTEN);
            }
        };
        let sound = |part: &Part| {
            let inside = part.first < part.end && part.end <= part.of;
            inside && part.of <= i64::MAX as u64 && part.forgotten <= part.rows()
        };
        let counted = |total: u64, part: &Part| total.checked_add(part.rows());
        let total = parts.iter().try_fold(0, counted);
        let after = |a: &Part, b: &Part| a < b && (a.features != b.features || a.end <= b.first);
        let ascending = parts.windows(2).all(|pair| after(&pair[0], &pair[1]));
        if !parts.iter().all(sound) || total.is_none() || !ascending {
            return fault("`parts` contradict each other".into(), WRITTEN);
        }
        let forgotten: u64 = parts.iter().map(|part| part.forgotten).sum();

        if forgotten > 0 {
            let listed = file.labels(FORGOTTEN_ROWS)?.len();
            if listed != forgotten {
                let found = format!("`{FORGOTTEN_ROWS}` has {listed} values");
                return fault(found, &format!("{forgotten}, as the parts say"));
            }
        }
        let there = &SIDES[..if forgotten > 0 { 2 } else { 1 }];
        let exact = match text("version") {
            VERSION => None,
            _ => Some(exact_file::header(file, bias, there)?),
        };
        let spec = match &exact {
            None => f64_shape(file, bias, there)?,
            Some(exact) => exact.sums,
        };
        Ok(Self {
            spec,
            parts,
            digest: text("digest").to_owned(),
            exact,
        })
    }
}

/// Reads the shape of f64 sums out of a file, and holds all tensors against it.
fn f64_shape(file: &TensorFile, bias: bool, sides: &[&str]) -> Result<SumsSpec> {
    let fault = |problem: String, expected: &str| {
        Err(Error::format(file.path(), problem, expected.to_owned()))
    };
    let gram = file.matrix("retained.gram")?;
    let order = gram.cols();
    let wide = |reader: &crate::data::MatrixReader| reader.dtype() == Dtype::F64;
    if gram.rows() != order as u64 || !wide(&gram) || order <= usize::from(bias) {
        return fault(
            format!("`retained.gram` is {}×{order}", gram.rows()),
            "a square matrix of f64",
        );
    }
    let targets = match file.contains("retained.cross") {
        true => file.matrix("retained.cross")?.cols(),
        false => 0,
    };
    for side in sides {
        for (name, cols) in [("gram", order), ("cross", targets)] {
            let name = format!("{side}.{name}");
            if cols == 0 {
                continue;
            }
            let matrix = file.matrix(&name)?;
            if (matrix.rows(), matrix.cols()) != (order as u64, cols) || !wide(&matrix) {
                let found = format!("`{name}` is {}×{}", matrix.rows(), matrix.cols());
                return fault(found, &format!("{order}×{cols} of f64"));
            }
        }
    }
    Ok(SumsSpec {
        features: order - usize::from(bias),
        bias,
        targets,
    })
}

/// Adds up shards. One is in memory at a time besides the sum.
///
/// # Errors
/// If a file cannot be used, if shapes differ, if a row is in two of them, or if they do not mean the same rows by
/// what is to be forgotten.
pub fn merge(paths: &[PathBuf], progress: &mut dyn Progress) -> Result<Shard> {
    check(progress, "check", 0, paths.len() as u64)?;
    let mut shards = Vec::new();
    for path in paths {
        shards.push((Contents::open(path)?, path.as_path()));
    }
    compatible(&shards)?;
    // By their rows: the order of the arguments must not show in the last bits.
    shards.sort_by(|a, b| a.0.parts.cmp(&b.0.parts));
    let mut merged: Option<Shard> = None;
    for (i, (contents, path)) in shards.iter().enumerate() {
        check(progress, "merge", i as u64, shards.len() as u64)?;
        let file = TensorFile::open(path)?;
        if Contents::read(&file)? != *contents {
            return Err(Error::Changed {
                path: path.to_path_buf(),
                how: "it was replaced by another file".into(),
            });
        }
        let shard = Shard::read(&file, contents.clone())?;
        file.unchanged()?;
        match &mut merged {
            None => merged = Some(shard),
            Some(merged) => merged.append(shard)?,
        }
    }
    let mut merged = merged.ok_or(Error::Missing {
        name: "SHARD",
        expected: "at least one file of sums".into(),
    })?;
    merged.sort();
    if merged.is_finite() {
        Ok(merged)
    } else {
        Err(Error::Overflow)
    }
}

/// Refuses shards that cannot be added.
fn compatible(shards: &[(Contents, &Path)]) -> Result<()> {
    for (i, (_, path)) in shards.iter().enumerate() {
        if shards[..i].iter().any(|(_, other)| other == path) {
            return Err(Error::selection(
                path.display().to_string(),
                "the file is given twice",
                "every file once",
            ));
        }
    }
    if let [(first, first_path), others @ ..] = shards {
        for (other, path) in others {
            let (a, b) = (first.spec, other.spec);
            let bias = |spec: SumsSpec| if spec.bias { "a bias" } else { "no bias" };
            let targets = |spec: SumsSpec| match spec.targets {
                0 => "no labels".to_owned(),
                n => format!("C = {n} classes"),
            };
            let features = |spec: SumsSpec| format!("D = {} features", spec.features);
            for (found, expected) in [
                (features(b), features(a)),
                (bias(b).into(), bias(a).into()),
                (targets(b), targets(a)),
            ] {
                if found != expected {
                    return Err(Error::Shape {
                        what: path.display().to_string(),
                        found,
                        expected: format!("{expected}, as in {}", first_path.display()),
                    });
                }
            }
            let named = |path: &Path| path.display().to_string();
            exact_file::same_grid(
                (first.exact.as_ref(), &named(first_path)),
                (other.exact.as_ref(), &named(path)),
            )?;
        }
    }

    let mut parts: Vec<(&Part, &Path)> = shards
        .iter()
        .flat_map(|(contents, path)| contents.parts.iter().map(|part| (part, *path)))
        .collect();
    parts.sort();
    let twice = |(a, a_path): (&Part, &Path), (b, b_path): (&Part, &Path), how: String| {
        Error::selection(
            b_path.display().to_string(),
            format!("{} {how} {}", b.in_words(), a_path.display()),
            format!("every row once; that has {}", a.in_words()),
        )
    };
    // Ascending by file and first row, so that rows in two parts are in neighbours.
    for pair in parts.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        if a.0.features != b.0.features {
            continue;
        }
        if b.0.first < a.0.end {
            return Err(twice(a, b, "are also in".into()));
        }
        if a.0.labels != b.0.labels {
            return Err(twice(a, b, "have labels from another file than in".into()));
        }
    }
    let mut by_content: Vec<_> = parts.clone();
    by_content.sort_by_key(|(part, _)| (&part.content, part.rows()));
    for pair in by_content.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        // Equal rows at two places of one file are two sets of rows.
        let same = a.0.content == b.0.content && a.0.rows() == b.0.rows();
        if same && a.0.features != b.0.features {
            return Err(twice(a, b, "have the same values as those in".into()));
        }
    }
    for pair in parts.windows(2) {
        let ((a, a_path), (b, b_path)) = (pair[0], pair[1]);
        // Row numbers are those of one file; a class is the same in all.
        let of_class = |part: &Part| part.forget.starts_with("class:");
        let comparable = a.features == b.features || of_class(a) || of_class(b);
        if comparable && a.forget != b.forget {
            let say = |part: &Part| match part.forget.as_str() {
                "" => "nothing is to be forgotten".to_owned(),
                text if of_class(part) => format!("`.forget` was {}", shown(text, 40)),
                _ => "`.forget` was a list of rows".to_owned(),
            };
            let other = if say(a) == say(b) {
                ", another one"
            } else {
                ""
            };
            return Err(Error::selection(
                b_path.display().to_string(),
                format!("{}{other}", say(b)),
                format!("the same as in {}, where {}", a_path.display(), say(a)),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::exact::Grid;
    use crate::engine::{CpuEngine, Engine, Rows, Targets};

    fn part(features: &str, first: u64, end: u64) -> Part {
        Part {
            features: features.into(),
            file: format!("{features}.npy"),
            first,
            end,
            of: 10,
            ..Part::default()
        }
    }

    fn shard(parts: Vec<Part>) -> Shard {
        let spec = SumsSpec {
            features: 2,
            bias: true,
            targets: 0,
        };
        Shard {
            spec,
            forgotten_rows: vec![Vec::new(); parts.len()],
            parts,
            retained: nothing(spec),
            forgotten: nothing(spec),
            exact: None,
        }
    }

    #[test]
    fn gaps_are_before_between_and_after() {
        let gaps = |parts: &[(&str, u64, u64)]| {
            let parts = parts.iter().map(|&(file, a, b)| part(file, a, b));
            shard(parts.collect()).gaps()
        };
        assert!(gaps(&[("a", 0, 10)]).is_empty());
        assert!(gaps(&[("a", 0, 4), ("a", 4, 10)]).is_empty());
        assert_eq!(gaps(&[("a", 2, 10)]), ["0..2 of a.npy"]);
        assert_eq!(gaps(&[("a", 0, 9)]), ["9..10 of a.npy"]);
        assert_eq!(gaps(&[("a", 0, 3), ("a", 5, 10)]), ["3..5 of a.npy"]);
        // Each file by itself.
        let two = gaps(&[("a", 0, 3), ("b", 5, 10)]);
        assert_eq!(two, ["3..10 of a.npy", "0..5 of b.npy"]);
    }

    #[test]
    fn three_gaps_are_named() {
        let said = |starts: &[u64]| {
            let parts = starts.iter().map(|&first| part("a", first, first + 1));
            shard(parts.collect()).gaps_in_words()
        };
        assert_eq!(said(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]), None);
        let three = said(&[0, 2, 4]).unwrap();
        assert_eq!(
            three,
            "the sums leave out rows 1..2 of a.npy, 3..4 of a.npy, 5..10 of a.npy"
        );
        let five = said(&[1, 3, 5, 7]).unwrap();
        assert!(five.ends_with("4..5 of a.npy and 2 more"), "{five}");
    }

    #[test]
    fn parts_keep_their_rows_when_they_are_sorted() {
        let mut shard = shard(vec![part("b", 0, 5), part("a", 4, 8), part("a", 0, 4)]);
        shard.forgotten_rows = vec![vec![1], vec![6, 7], vec![0]];
        shard.sort();
        let order: Vec<(&str, u64)> = shard
            .parts
            .iter()
            .map(|p| (p.features.as_str(), p.first))
            .collect();
        assert_eq!(order, [("a", 0), ("a", 4), ("b", 0)]);
        assert_eq!(shard.forgotten_rows, [vec![0], vec![6, 7], vec![1]]);
        assert_eq!(shard.row_numbers(), [0, 6, 7, 1]);
        assert_eq!(shard.parts[1].rows(), 4);
        assert_eq!(
            Part {
                first: 3,
                end: 1,
                ..Part::default()
            }
            .rows(),
            0
        );
    }

    #[test]
    fn types_that_differ_are_mixed() {
        let with = |types: &[&str]| {
            let one = |&dtype: &&str| Part {
                dtype: dtype.into(),
                ..Part::default()
            };
            shard(types.iter().map(one).collect()).dtype().to_owned()
        };
        assert_eq!(with(&["f32", "f32"]), "f32");
        assert_eq!(with(&["f32", "f32", "f16"]), "mixed");
        assert_eq!(with(&[]), "");
    }

    #[test]
    fn every_part_of_a_shard_is_in_its_digest() {
        let whole = || shard(vec![part("a", 0, 10)]);
        let digest = whole().digest().unwrap();
        let changed = |change: &dyn Fn(&mut Shard)| {
            let mut shard = whole();
            change(&mut shard);
            shard.digest().unwrap()
        };
        let changes: [&dyn Fn(&mut Shard); 4] = [
            &|s| s.retained.gram[(0, 1)] = 1.0,
            &|s| s.parts[0].content = "other".into(),
            &|s| s.spec.bias = false,
            &|s| s.forgotten_rows[0] = vec![3],
        ];
        for (which, change) in changes.into_iter().enumerate() {
            assert_ne!(changed(change), digest, "change {which}");
        }
        assert_eq!(whole().digest().unwrap(), digest);
    }

    #[test]
    fn sums_in_f64_are_those_of_the_integers_after_a_merge() {
        let grid = Grid::new(20, vec![0, 0], vec![]).unwrap();
        let spec = ExactSpec {
            sums: shard(Vec::new()).spec,
            classes: false,
            grid: Arc::new(grid),
            setters: false,
        };
        let of = |part: Part, rows: &[f64]| {
            let mut sums = CpuEngine::ambient().exact(&spec).unwrap();
            let rows = Rows::new(rows.len() / 2, 2, rows);
            sums.push(rows, Targets::None).unwrap();
            let state = ExactState {
                spec: spec.clone(),
                retained: sums.finish().unwrap().0,
                forgotten: ExactSums::none(&spec),
            };
            Shard::of_exact(state, vec![part], vec![Vec::new()]).unwrap()
        };
        let mut merged = of(part("a", 0, 1), &[1.0, 2.0]);
        merged
            .append(of(part("a", 1, 3), &[3.0, 4.0, 5.0, 6.0]))
            .unwrap();
        let whole = of(part("a", 0, 3), &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(merged.retained, whole.retained);
        assert_eq!(merged.forgotten, whole.forgotten);
        assert_eq!(merged.retained.rows, 3);
    }

    #[test]
    fn sums_that_are_not_finite_are_not_written() {
        let mut shard = shard(vec![part("a", 0, 10)]);
        assert!(shard.to_safetensors().is_ok());
        // Forgotten sums over no rows go nowhere.
        shard.forgotten.gram[(0, 0)] = f64::NAN;
        assert!(shard.to_safetensors().is_ok());
        shard.forgotten.rows = 1;
        assert!(matches!(shard.to_safetensors(), Err(Error::Overflow)));
    }
}
