//! What the grid of exact sums costs: heads on it against heads in f64, on real features and on hostile ones.
//!
//! `cargo test --release --test suite exact:: -- --nocapture` prints the table of docs/exact.md.

use muso::data::Digits;
use muso::engine::exact::BITS;
use muso::engine::{CpuEngine, Engine, Matrix, Rows, Targets};
use muso::features::RandomFeatures;
use muso::prelude::*;

use crate::support::{gaussian, relative};

const ROWS: usize = 2_000;
const COLUMNS: usize = 128;
const RIDGE: f64 = 1e-3;

/// Features in single precision, row by row, and the class of each row.
type Rows32 = (Vec<f32>, Vec<i64>);

/// Digits in two classes as random Fourier features.
fn fourier() -> Rows32 {
    let engine = CpuEngine::ambient();
    let digits = Digits::parse(muso_digits::TRAIN, muso_digits::TEST).unwrap();
    let rows: Vec<usize> = (0..ROWS.min(digits.train_images.rows())).collect();
    let map = RandomFeatures::new(digits.train_images.cols(), COLUMNS / 2, 5.0, 1).unwrap();
    let images = digits.train_images.select_rows(&rows);
    let mut values = Vec::new();
    map.stream(&engine, images.as_rows(), |_, z| {
        values.extend(z.as_slice().iter().map(|&x| x as f32));
        Ok(())
    })
    .unwrap();
    let labels: Vec<i64> = rows.iter().map(|&i| digits.train_labels[i]).collect();
    let mut classes = labels.clone();
    classes.sort_unstable();
    classes.dedup();
    let number = |label: &i64| classes.binary_search(label).unwrap() as i64;
    (values, labels.iter().map(number).collect())
}

/// ReLU features with this done to column `j` of row `i`.
fn relu(change: impl Fn(usize, usize, f64) -> f64) -> (Vec<f32>, Vec<i64>) {
    let plain = gaussian(ROWS, COLUMNS, 5);
    let value = |k: usize| {
        let (i, j) = (k / COLUMNS, k % COLUMNS);
        change(i, j, plain[(i, j)].max(0.0)) as f32
    };
    let classes = (0..ROWS).map(|i| {
        let sum: f64 = (0..5).map(|j| plain[(i, j)]).sum();
        i64::from(sum > 0.0) + i64::from(sum > 2.0)
    });
    ((0..ROWS * COLUMNS).map(value).collect(), classes.collect())
}

/// Returns ‖Z(W − W_f64)‖/‖ZW_f64‖ for each width; nothing where the grid refuses a value.
fn distances(values: &[f32], classes: &[i64], range: Option<f64>) -> Vec<Option<f64>> {
    let rows = classes.len();
    let z = Rows::new(rows, COLUMNS, values);
    let data = FeatureRows::new(z, Targets::Classes(classes));
    let blank = Head::new(Matrix::zeros(3, COLUMNS), None);
    let fit = |bits: Option<u32>| {
        let sums = match (bits, range) {
            (None, _) => blank.sum(&data),
            (Some(bits), None) => blank.sum(&data).exact(bits),
            (Some(bits), Some(range)) => blank.sum(&data).exact(bits).grid(range),
        };
        // Refused where a value is beyond what the grid can hold.
        let sums = sums.run().ok()?;
        let solved = blank.refit(&sums).ridge(RIDGE).solve().unwrap();
        // What the head says of the rows: columns of any size count as they are used.
        let engine = CpuEngine::ambient();
        Some(engine.project(z, &solved.head.weights()).unwrap())
    };
    let wanted = fit(None).unwrap();
    let distance = |bits: &u32| Some(relative(&fit(Some(*bits))?, &wanted));
    BITS.iter().map(distance).collect()
}

#[test]
fn heads_on_the_grid_are_near_those_in_f64() {
    let outlier = |i: usize, j: usize, x: f64| if (i, j) == (77, 3) { 1e6 } else { x };
    let decades =
        |_: usize, j: usize, x: f64| x * 10.0_f64.powf(12.0 * j as f64 / COLUMNS as f64 - 6.0);
    let cases: [(&str, Rows32, Option<f64>); 7] = [
        ("random Fourier features of digits", fourier(), None),
        ("ReLU of Gaussians", relu(|_, _, x| x), None),
        ("columns over 12 decades", relu(decades), None),
        (
            "one value 1e6 times the rest, recorded",
            relu(outlier),
            None,
        ),
        (
            "one value 1e6 times the rest, `.grid` 8",
            relu(outlier),
            Some(8.0),
        ),
        (
            "every other column zero",
            relu(|_, j, x| if j % 2 == 0 { 0.0 } else { x }),
            None,
        ),
        (
            "every other column subnormal",
            relu(|_, j, x| if j % 2 == 0 { x * 1e-40 } else { x }),
            None,
        ),
    ];
    let widths: String = BITS.iter().map(|bits| format!(" {bits} |")).collect();
    println!(
        "| head against f64, ‖Z(W − W_f64)‖/‖ZW_f64‖ |{widths}\n|---|{}",
        "---|".repeat(BITS.len())
    );
    for (name, (values, classes), range) in &cases {
        let found = distances(values, classes, *range);
        let cell = |distance: &Option<f64>| match distance {
            Some(distance) => format!(" {distance:.0e} |"),
            None => " refused |".into(),
        };
        let cells: String = found.iter().map(cell).collect();
        println!("| {name} |{cells}");
        // Half a unit in every value, times what the system makes of it. A recorded grid gives its bits to the one value,
        // which leaves the rest of its column 20 fewer.
        let lost = if name.ends_with("recorded") { 20 } else { 0 };
        for (bits, distance) in BITS.iter().zip(&found) {
            // Of the stated grid 2^48 units are less than that value, from 34 bits on.
            let Some(distance) = distance else {
                assert!(range.is_some() && *bits >= 34, "{name} at {bits} bits");
                continue;
            };
            let bound = 2.0_f64.powi(lost - *bits as i32).min(1.0) * 100.0 + 1e-11;
            assert!(
                *distance < bound,
                "{name} at {bits} bits: {distance:e} against {bound:e}"
            );
        }
    }
}
