//! Exact sums on the GPU: the bytes of the processor's, whatever the rows are and however they come.

use std::sync::Arc;

use half::{bf16, f16};
use muso::Error;
use muso::engine::exact::{BITS, ExactAccumulator, ExactSpec, ExactSums, Grid, Plain, Seen};
use muso::engine::{CpuEngine, Engine, Matrix, Rows, SumsSpec, Targets};

use super::device::engine;
use crate::support::gaussian;

fn spec(features: usize, bias: bool, targets: usize, classes: bool, bits: u32) -> ExactSpec {
    // Columns of unlike sizes; magnitudes below 4 fit in most of them.
    let units = |count: usize| (0..count as i32).map(|j| 2 - bits as i32 + j % 3).collect();
    let values = if classes { 0 } else { targets };
    ExactSpec {
        sums: SumsSpec {
            features,
            bias,
            targets,
        },
        classes,
        grid: Arc::new(Grid::new(bits, units(features), units(values)).unwrap()),
        setters: bits != 20,
    }
}

struct Data {
    z: Matrix,
    y: Matrix,
    classes: Vec<i64>,
}

impl Data {
    /// Rows of which every 29th, and every 31st by its targets, is beyond the width by far.
    fn new(spec: &ExactSpec, rows: usize, seed: u64) -> Self {
        let far = |i: usize, n: usize| if i % n == n / 2 { 60.0 } else { 1.0 };
        let scaled = |cols: usize, n: usize, seed: u64| {
            let plain = gaussian(rows, cols, seed);
            Matrix::from_fn(rows, cols, |i, j| {
                let one = if j == i % cols { far(i, n) } else { 1.0 };
                (plain[(i, j)] * one).clamp(-200.0, 200.0)
            })
        };
        let targets = spec.sums.targets.max(1) as i64;
        Self {
            z: scaled(spec.sums.features, 29, seed),
            y: scaled(spec.sums.targets, 31, seed + 1),
            classes: (0..rows as i64).map(|i| i * i % targets).collect(),
        }
    }

    fn push(
        &self,
        spec: &ExactSpec,
        sums: &mut dyn ExactAccumulator,
        rows: std::ops::Range<usize>,
    ) {
        let z = self.z.as_rows().slice(rows.start, rows.end);
        let y = self.y.as_rows().slice(rows.start, rows.end);
        let targets = match (spec.sums.targets, spec.classes) {
            (0, _) => Targets::None,
            (_, true) => Targets::Classes(&self.classes[rows]),
            (_, false) => Targets::Values(y),
        };
        sums.push(z, targets).unwrap();
    }
}

fn plain(spec: &ExactSpec, data: &Data) -> (ExactSums, Seen) {
    let mut sums = Box::new(Plain::new(spec).unwrap());
    data.push(spec, &mut *sums, 0..data.z.rows());
    sums.finish().unwrap()
}

/// Each width, tiles and what is around them, classes and values, rows beyond the width, batches in any order.
#[test]
fn sums_have_the_bytes_of_plain_loops() {
    let shapes = [
        (1, false, 0, true, 3),
        (31, true, 2, true, 129),
        (33, false, 3, false, 128),
        (128, true, 5, false, 65),
        (40, true, 7, true, 700),
    ];
    for (b, bits) in BITS.into_iter().enumerate() {
        for (n, (features, bias, targets, classes, rows)) in shapes.into_iter().enumerate() {
            // Each width with some of the shapes, and the default with all.
            if bits != 22 && n % 3 != b % 3 {
                continue;
            }
            let spec = spec(features, bias, targets, classes, bits);
            let data = Data::new(&spec, rows, u64::from(bits) + n as u64);
            let wanted = plain(&spec, &data);
            assert!(wanted.0.beyond > 0 || rows < 15, "no rows beyond");
            let mut sums = engine().exact(&spec).unwrap();
            let cut = rows / 3;
            data.push(&spec, &mut *sums, cut..rows);
            data.push(&spec, &mut *sums, 0..0);
            data.push(&spec, &mut *sums, 0..cut);
            let found = sums.finish().unwrap();
            let what = format!("{features} features, {targets} targets, {bits} bits");
            assert!(found.0 == wanted.0, "{what}");
            assert_eq!(found.1, wanted.1, "{what}");
        }
    }
}

/// Rows of every type, and of several in one sum, in batches and picked.
#[test]
fn rows_of_every_type_have_the_bytes_of_plain_loops() {
    let (rows, features) = (90, 20);
    let values: Vec<f32> = gaussian(rows, features, 3)
        .as_slice()
        .iter()
        .map(|&x| x as f32)
        .collect();
    let halves: Vec<f16> = values.iter().map(|&x| f16::from_f32(x)).collect();
    let brains: Vec<bf16> = values.iter().map(|&x| bf16::from_f32(x)).collect();
    let wide: Vec<f64> = values.iter().map(|&x| f64::from(x) * 1.1).collect();
    let spec = spec(features, true, 0, true, 22);
    let all = [
        Rows::new(rows, features, values.as_slice()),
        Rows::new(rows, features, halves.as_slice()),
        Rows::new(rows, features, brains.as_slice()),
        Rows::new(rows, features, wide.as_slice()),
    ];
    let picks = [88, 3, 3, 41];
    let mut mixed: [Box<dyn ExactAccumulator>; 3] = [
        engine().exact(&spec).unwrap(),
        CpuEngine::ambient().exact(&spec).unwrap(),
        Box::new(Plain::new(&spec).unwrap()),
    ];
    for rows in all {
        for sums in &mut mixed {
            sums.push(rows, Targets::None).unwrap();
            sums.push(rows.pick(&picks), Targets::None).unwrap();
        }
    }
    let [gpu, cpu, plain] = mixed.map(|sums| sums.finish().unwrap());
    assert!(gpu == plain && cpu == plain);
}

/// Planes are multiplied whenever they are full, which the chunks of a push do not meet.
#[test]
fn many_rows_have_the_bytes_of_the_processor() {
    let spec = spec(3, true, 2, true, 20);
    let data = Data::new(&spec, 70_000, 5);
    let sums = |mut sums: Box<dyn ExactAccumulator>, cut: usize| {
        data.push(&spec, &mut *sums, 0..cut);
        data.push(&spec, &mut *sums, cut..70_000);
        sums.finish().unwrap()
    };
    let wanted = sums(CpuEngine::ambient().exact(&spec).unwrap(), 1_000);
    assert!(sums(engine().exact(&spec).unwrap(), 10_001) == wanted);
}

/// Rows that are added and subtracted leave nothing, whichever device did either.
#[test]
fn parts_of_either_device_add_up_and_subtract() {
    let spec = spec(30, true, 3, true, 27);
    let data = Data::new(&spec, 400, 8);
    let part = |gpu: bool, rows: std::ops::Range<usize>| {
        let mut sums = match gpu {
            true => engine().exact(&spec).unwrap(),
            false => CpuEngine::ambient().exact(&spec).unwrap(),
        };
        data.push(&spec, &mut *sums, rows);
        sums.finish().unwrap().0
    };
    let whole = plain(&spec, &data).0;
    let shards = [
        part(true, 100..250),
        part(false, 250..400),
        part(true, 0..100),
    ];
    let merged = shards[1..]
        .iter()
        .try_fold(shards[0].clone(), |all, shard| all.add(shard));
    assert!(merged.unwrap() == whole);
    let without = whole.subtract(&part(true, 37..300)).unwrap();
    let never = part(false, 0..37).add(&part(true, 300..400)).unwrap();
    assert!(without == never);
}

#[test]
fn what_no_sum_can_take_is_named() {
    let spec = spec(33, true, 2, false, 22);
    for bad in [f64::NAN, f64::NEG_INFINITY, 2.0_f64.powi(40)] {
        for in_targets in [false, true] {
            let mut data = Data::new(&spec, 300, 4);
            match in_targets {
                true => data.y[(211, 1)] = bad,
                false => data.z[(211, 32)] = bad,
            }
            let mut sums = engine().exact(&spec).unwrap();
            let targets = Targets::Values(data.y.as_rows());
            let (row, column) = match sums.push(data.z.as_rows(), targets).unwrap_err() {
                Error::NotFinite { row, column, .. } if !bad.is_finite() => (row, column),
                Error::OffGrid { row, column, .. } if bad.is_finite() => (row, column),
                other => panic!("{other}"),
            };
            assert_eq!((row, column), (211, if in_targets { 1 } else { 32 }));
        }
    }
}
