//! Adds rows up in three shards, merges the sums, and forgets rows from them later without reading the others again.
//!
//! `cargo run --release --example 02_sums_in_shards`

use std::path::PathBuf;

use muso::gram::shard;
use muso::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let features: Vec<f32> = (0..900 * 16).map(|i| ((i * i) as f32).sin()).collect();
    let labels: Vec<i64> = (0..900).map(|row| row % 4).collect();
    let rows = Rows::new(900, 16, features.as_slice());
    let rows = FeatureRows::new(rows, Targets::Classes(&labels));
    let folder = tempfile::tempdir()?;
    let head = Head::new(Matrix::zeros(4, 16), None); // only its shape matters to sums

    // Each shard can be summed by another process, on another machine.
    let mut files: Vec<PathBuf> = Vec::new();
    for index in 0..3 {
        let sums = head.sum(&rows).portion(Portion::Shard { index, of: 3 });
        files.push(folder.path().join(format!("{index}.safetensors")));
        std::fs::write(&files[index as usize], sums.run()?.to_safetensors()?)?;
    }

    // Sums add up in any order, to the same bytes, and serve every ridge.
    let sums = shard::merge(&files, &mut ())?;
    let trained = head.refit(&sums).ridge(1e-3).solve()?.head;

    // A request that comes later: only the rows to forget are read, and subtracted from the sums.
    let request = trained.forget(&rows, Forget::rows([5, 600])).ridge(1e-3);
    let (fast, whole) = (request.clone().sums(&sums).solve()?, request.solve()?);
    let apart = fast
        .head
        .weight
        .zip(&whole.head.weight, |a, b| a - b)
        .norm();
    println!(
        "distance to the head from all rows: {:.1e}",
        apart / whole.head.weight.norm()
    );
    Ok(())
}
