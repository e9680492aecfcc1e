//! Leverage scores and the paper's ColumnSelect (Appendix C).
//!
//! The score of row i over the top k directions is p_i = (1/k) Σ_{j≤k} (u_jᵀz_i)²/s_j with G = U diag(s) Uᵀ: the same
//! numbers as the right singular vectors of Zᵀ give, from a D×D eigendecomposition and one pass over the rows.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::engine::{Engine, Matrix, Rows};
use crate::error::{Error, Result};
use crate::solve::Eigen;

/// Scores of `rows` over the top `directions` of G, which sum to 1 over all rows that G was made of. Directions at the
/// level of rounding are left out; `None` takes all others.
pub fn leverage_scores<E: Engine>(
    engine: &E,
    eigen: &Eigen,
    rows: Rows<'_>,
    directions: Option<usize>,
) -> Result<Vec<f64>> {
    let rank = eigen.rank(0.0);
    let kept = directions.unwrap_or(rank).min(rank);
    if kept == 0 {
        return Err(Error::Parameter {
            name: "directions",
            value: directions.unwrap_or(0).to_string(),
            expected: "at least one direction that the rows span".into(),
        });
    }
    // Uᵀ scaled by 1/√(k s_j), as D×k weights.
    let scale = |j: usize| 1.0 / (kept as f64 * eigen.values[j]).sqrt();
    let weights = Matrix::from_fn(eigen.vectors.cols(), kept, |i, j| {
        eigen.vectors[(j, i)] * scale(j)
    });
    engine.squares(rows, &weights)
}

/// Draws `count` rows with replacement, each with the probability its score gives it; indices ascend.
///
/// # Panics
/// If no score is positive.
pub fn column_select(scores: &[f64], count: usize, seed: u64) -> Vec<usize> {
    let mut cumulative = Vec::with_capacity(scores.len());
    let mut total = 0.0;
    for score in scores {
        total += score;
        cumulative.push(total);
    }
    assert!(total > 0.0, "no row has a positive score");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut drawn: Vec<usize> = (0..count)
        .map(|_| {
            let at = rng.random::<f64>() * total;
            cumulative
                .partition_point(|&c| c <= at)
                .min(scores.len() - 1)
        })
        .collect();
    drawn.sort_unstable();
    drawn
}
