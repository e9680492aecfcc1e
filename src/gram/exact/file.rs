//! Exact sums in a file of sums: which tensors they are, and what makes a file contradict itself.
//!
//! A sum of 128 bits is two i64, the lower half first, so that a tensor's bytes are those of the integers. Files are read
//! on the assumption that somebody made them to do harm: the extents are held against the file before anything is
//! allocated, and the sums against what squares of rows can be.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{GRID_BITS, GRID_FEATURES, GRID_TARGETS, grid_digest, read_grid};
use crate::data::{Digest, OutTensor, TensorFile, shown};
use crate::engine::SumsSpec;
use crate::engine::exact::{ExactSpec, ExactSums, MOST_ROWS, REACH};
use crate::error::{Error, Result};
use crate::gram::shard::WRITTEN;

/// Key of the text that says what targets are.
const TARGETS: &str = "targets";
/// Key of the text that says where the grid is from.
const GRID: &str = "grid";
const KINDS: [&str; 3] = ["none", "classes", "values"];

/// Adds what a file says of its exact sums beside the tensors.
pub(in crate::gram) fn describe(spec: &ExactSpec, texts: &mut BTreeMap<String, String>) {
    let kind = match (spec.sums.targets, spec.classes) {
        (0, _) => KINDS[0],
        (_, true) => KINDS[1],
        (_, false) => KINDS[2],
    };
    for (key, text) in [
        (GRID_BITS, spec.grid.bits().to_string()),
        (TARGETS, kind.to_owned()),
        (
            GRID,
            if spec.setters { "recorded" } else { "given" }.to_owned(),
        ),
    ] {
        texts.insert(key.to_owned(), text);
    }
}

/// Reads shape and grid out of a file, and holds the extents of all tensors against them.
pub(in crate::gram) fn header(file: &TensorFile, bias: bool, sides: &[&str]) -> Result<ExactSpec> {
    let fault = |problem: String, expected: &str| {
        Err(Error::format(file.path(), problem, expected.to_owned()))
    };
    let text = |key: &str| file.metadata().get(key).map_or("", String::as_str);
    let Some(kind) = KINDS.iter().position(|kind| *kind == text(TARGETS)) else {
        let found = shown(text(TARGETS), 20);
        return fault(
            format!("`{TARGETS}` is `{found}`"),
            "none, classes or values",
        );
    };
    let setters = match text(GRID) {
        "recorded" => true,
        "given" => false,
        other => {
            let found = shown(other, 20);
            return fault(format!("`{GRID}` is `{found}`"), "recorded or given");
        }
    };
    if text(GRID_BITS).is_empty() {
        return fault(format!("`{GRID_BITS}` is missing"), WRITTEN);
    }
    let grid = read_grid(file, None)?;
    let (features, values) = (grid.features().len(), grid.targets().len());
    let order = features + usize::from(bias);
    let length = |name: &str| file.labels(name).map(|reader| reader.len());
    // Cannot overflow: a column takes eight bytes of the file, which the system limits to 2^63.
    let per_target = 2 * order as u64;
    let targets = match kind {
        0 => 0,
        _ => length(&format!("{}.cross", sides[0]))? / per_target.max(1),
    };
    let as_stated = kind != 2 || targets == values as u64;
    if features == 0 || !as_stated || kind != 2 && values > 0 || kind > 0 && targets == 0 {
        return fault("its grid does not fit its sums".into(), WRITTEN);
    }
    let spec = ExactSpec {
        sums: SumsSpec {
            features,
            bias,
            targets: targets as usize,
        },
        classes: kind == 1,
        grid: Arc::new(grid),
        setters,
    };
    let wide = order as u128;
    let columns = (features + values) as u128;
    for side in sides {
        for (name, wanted) in [
            ("gram", wide * (wide + 1)),
            ("cross", 2 * wide * u128::from(targets)),
            ("counts", COUNTS as u128),
            ("classes", if spec.classes { targets.into() } else { 0 }),
            ("setters", if setters { columns } else { 0 }),
        ] {
            let name = format!("{side}.{name}");
            let found = if wanted > 0 { length(&name)? } else { 0 };
            if u128::from(found) != wanted {
                return fault(format!("`{name}` has {found} values"), &wanted.to_string());
            }
        }
    }
    Ok(spec)
}

/// Numbers in the tensor of counts: rows, values moved, rows beyond the width.
const COUNTS: usize = 3;

/// Reads the sums of one side, whose extents [`header`] has checked.
pub(in crate::gram) fn read(
    file: &TensorFile,
    side: &str,
    spec: &ExactSpec,
    rows: u64,
) -> Result<ExactSums> {
    let numbers = |name: &str, wanted: bool| -> Result<Vec<i64>> {
        let mut values = Vec::new();
        if wanted {
            let reader = file.labels(&format!("{side}.{name}"))?;
            reader.read(0, reader.len() as usize, &mut values)?;
        }
        Ok(values)
    };
    let wide = |name: &str, wanted: bool| -> Result<Vec<i128>> {
        let halves = numbers(name, wanted)?;
        let whole = |half: &[i64; 2]| i128::from(half[1]) << 64 | i128::from(half[0] as u64);
        Ok(halves.as_chunks().0.iter().map(whole).collect())
    };
    let counts = |name: &str, wanted: bool| -> Result<Vec<u64>> {
        let negative = |_| contradiction(file, side);
        let values = numbers(name, wanted)?;
        let each = values.into_iter().map(u64::try_from);
        each.collect::<Result<_, _>>().map_err(negative)
    };
    let counted = counts("counts", true)?;
    let sums = ExactSums {
        rows: counted[0],
        gram: wide("gram", true)?,
        cross: wide("cross", spec.sums.targets > 0)?,
        class_rows: counts("classes", spec.classes)?,
        moved: counted[1],
        beyond: counted[2],
        setters: counts("setters", spec.setters)?,
    };
    match sums.rows == rows && plausible(&sums, spec) {
        true => Ok(sums),
        false => Err(contradiction(file, side)),
    }
}

fn contradiction(file: &TensorFile, side: &str) -> Error {
    Error::format(
        file.path(),
        format!("the {side} sums contradict each other"),
        "the file as it was written",
    )
}

/// Returns whether integers can be sums over that many rows: squares on the diagonal, products between, ones of a bias.
pub fn plausible(sums: &ExactSums, spec: &ExactSpec) -> bool {
    let order = spec.sums.order();
    let rows = i128::from(sums.rows);
    let columns = (spec.grid.features().len() + spec.grid.targets().len()) as u128;
    let diagonal = |i: usize| sums.gram[i * (i + 1) / 2 + i];
    let most = match sums.rows <= MOST_ROWS {
        true => rows * i128::from(REACH - 1).pow(2),
        false => return false,
    };
    let squares = (0..order).all(|i| (0..=most).contains(&diagonal(i)));
    // 2|ab| is at most a² + b², and so in sum.
    let below = |i: usize, j: usize| {
        let entry = sums.gram[i * (i + 1) / 2 + j].unsigned_abs();
        entry
            <= diagonal(i)
                .unsigned_abs()
                .midpoint(diagonal(j).unsigned_abs())
    };
    let products = squares && (0..order).all(|i| (0..i).all(|j| below(i, j)));
    let bias = !spec.sums.bias || diagonal(order - 1) == rows;
    let of_classes: Option<u64> = sums
        .class_rows
        .iter()
        .try_fold(0, |a: u64, &b| a.checked_add(b));
    let classes = !spec.classes || of_classes == Some(sums.rows);
    let few = sums
        .cross
        .iter()
        .all(|x| x.unsigned_abs() <= most.unsigned_abs());
    let counts = u128::from(sums.moved) <= u128::from(sums.rows) * columns
        && sums.beyond <= sums.rows
        && sums.setters.iter().all(|&n| n <= sums.rows);
    products && bias && classes && few && counts
}

/// A side of the sums as vectors of i64.
pub(in crate::gram) struct Tensors {
    names: [String; 5],
    counts: [i64; COUNTS],
}

impl Tensors {
    pub(in crate::gram) fn new(side: &str, sums: &ExactSums) -> Self {
        let names = ["gram", "cross", "counts", "classes", "setters"];
        Self {
            names: names.map(|name| format!("{side}.{name}")),
            counts: [sums.rows, sums.moved, sums.beyond].map(|n| n as i64),
        }
    }

    /// Returns the tensors with their names, those that have values.
    pub(in crate::gram) fn list<'a>(
        &'a self,
        sums: &'a ExactSums,
    ) -> impl Iterator<Item = (&'a str, OutTensor<'a>)> {
        let values: [&[i64]; 5] = [
            bytemuck::cast_slice(&sums.gram),
            bytemuck::cast_slice(&sums.cross),
            &self.counts,
            bytemuck::cast_slice(&sums.class_rows),
            bytemuck::cast_slice(&sums.setters),
        ];
        let named = self.names.iter().map(String::as_str).zip(values);
        let there = named.filter(|(_, values)| !values.is_empty());
        there.map(|(name, values)| (name, OutTensor::Integers(values)))
    }
}

/// Returns the exponents of a grid as they are stored.
pub(in crate::gram) fn exponents(spec: &ExactSpec) -> Vec<(&'static str, Vec<i64>)> {
    let grid = &spec.grid;
    let named = [
        (GRID_FEATURES, grid.features()),
        (GRID_TARGETS, grid.targets()),
    ];
    let there = named.into_iter().filter(|(_, values)| !values.is_empty());
    let wide = |values: &[i32]| values.iter().map(|&e| i64::from(e)).collect();
    there.map(|(name, values)| (name, wide(values))).collect()
}

/// Adds everything that the sums of a side say to a digest.
pub(in crate::gram) fn digest(sums: &ExactSums, digest: &mut Digest) {
    let tensors = Tensors::new("", sums);
    for (_, tensor) in tensors.list(sums) {
        if let OutTensor::Integers(values) = tensor {
            digest.add(bytemuck::cast_slice(values));
        }
    }
}

/// Refuses sums on two grids; the others' words say which is which.
pub(in crate::gram) fn same_grid(
    (one, one_name): (Option<&ExactSpec>, &str),
    (other, name): (Option<&ExactSpec>, &str),
) -> Result<()> {
    let differ = |found: String, expected: String| {
        Err(Error::Shape {
            what: name.to_owned(),
            found,
            expected: format!("{expected}, as in {one_name}"),
        })
    };
    let kind = |spec: Option<&ExactSpec>| match spec {
        None => "sums in f64".to_owned(),
        Some(spec) => format!("exact sums of {} bits", spec.grid.bits()),
    };
    if kind(one) != kind(other) {
        return differ(kind(other), kind(one));
    }
    let (Some(one), Some(other)) = (one, other) else {
        return Ok(());
    };
    if one.classes != other.classes && one.sums.targets > 0 {
        let say = |spec: &ExactSpec| if spec.classes { "classes" } else { "values" };
        return differ(format!("targets that are {}", say(other)), say(one).into());
    }
    if one.grid == other.grid {
        return Ok(());
    }
    let (a, b) = (one.grid.features(), other.grid.features());
    let at = a.iter().zip(b).position(|(a, b)| a != b);
    let unit = |e: &[i32]| at.map_or(String::new(), |j| format!(", 2^{} in column {j}", e[j]));
    differ(
        format!(
            "exact sums on the grid {}{}",
            grid_digest(&other.grid),
            unit(b)
        ),
        format!("the grid {}{}", grid_digest(&one.grid), unit(a)),
    )
}
