//! Forgets two of six hundred rows: rows in memory, a head fitted to them, and the head that never saw the two.
//!
//! `cargo run --release --example 01_forget_rows`

use muso::prelude::*;

fn main() -> muso::Result<()> {
    // 600 rows of 20 features in 3 classes. Rows of yours may be f16, bf16, f32 or f64, or `FeatureRows::file(path)`.
    let features: Vec<f32> = (0..600 * 20).map(|i| ((i * i) as f32).sin()).collect();
    let labels: Vec<i64> = (0..600).map(|row| row % 3).collect();
    let rows = Rows::new(600, 20, features.as_slice());
    let rows = FeatureRows::new(rows, Targets::Classes(&labels));

    // A head fitted to all rows by least squares with λ = 0.1. `Head::load(path)` is the usual start.
    let blank = Head::new(Matrix::zeros(3, 20), Some(vec![0.0; 3]));
    let trained = blank.refit(&blank.sum(&rows).run()?).ridge(0.1);
    let trained = trained.solve()?.head;

    // The head without rows 12 and 507, and a second pass that solves from the other 598 alone, to compare.
    let request = trained.forget(&rows, Forget::rows([12, 507])).ridge(0.1);
    let new = request.verify(true).solve()?;
    let distance = new.report.verify.map(|found| found.distance_relative);
    println!("relative distance to the head of the 598 other rows: {distance:?}");

    // Trained towards these labels instead of their own, the two rows lead the old head to the new one.
    println!(
        "optimal labels of row {}: {:?}",
        new.labels.rows[0],
        new.labels.targets.row(0)
    );
    new.head
        .save(std::env::temp_dir().join("muso-new-head.safetensors"))
}
