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
    engine.row_norms_squared(rows, &weights)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::CpuEngine;

    #[test]
    fn scores_by_hand() {
        // G = diag(4, 1): rows (2, 0) and (0, 1) are each one whole direction.
        let eigen = Eigen::new(&Matrix::from_vec(2, 2, vec![4.0, 0.0, 0.0, 1.0])).unwrap();
        let rows = Matrix::from_vec(3, 2, vec![2.0, 0.0, 0.0, 1.0, 1.0, -1.0]);
        let engine = CpuEngine::ambient();
        let scores = |directions| leverage_scores(&engine, &eigen, rows.as_rows(), directions);
        for (directions, wanted) in [(None, [0.5, 0.5, 0.625]), (Some(1), [1.0, 0.0, 0.25])] {
            for (found, wanted) in scores(directions).unwrap().iter().zip(wanted) {
                // A square root, a quotient, and the square of their product.
                assert!((found - wanted).abs() <= 4.0 * f64::EPSILON, "{found}");
            }
        }
        assert_eq!(scores(Some(9)).unwrap(), scores(None).unwrap());
        let none = scores(Some(0)).unwrap_err().to_string();
        assert!(none.contains("directions") && none.contains('0'), "{none}");
    }

    #[test]
    fn directions_of_noise_are_left_out() {
        let eigen = Eigen::new(&Matrix::from_vec(2, 2, vec![4.0, 0.0, 0.0, 1e-17])).unwrap();
        let rows = Matrix::from_vec(1, 2, vec![2.0, 3.0]);
        let engine = CpuEngine::ambient();
        let scores = leverage_scores(&engine, &eigen, rows.as_rows(), None).unwrap();
        assert_eq!(scores, [1.0]);
        let nothing = Eigen::new(&Matrix::zeros(2, 2)).unwrap();
        assert!(leverage_scores(&engine, &nothing, rows.as_rows(), None).is_err());
    }

    #[test]
    fn rows_without_a_score_are_never_drawn() {
        assert_eq!(column_select(&[0.0, 0.0, 2.0, 0.0], 50, 1), [2; 50]);
        assert_eq!(column_select(&[1.0], 3, 2), [0, 0, 0]);
        assert!(column_select(&[1.0, 2.0], 0, 3).is_empty());
        // A draw may round up to the sum of the smallest scores that there are.
        assert_eq!(column_select(&[5e-324], 50, 1), [0; 50]);
        // The scores need not sum to one.
        let (small, large) = ([0.1, 0.3], [1.0, 3.0]);
        assert_eq!(column_select(&small, 40, 4), column_select(&large, 40, 4));
    }

    #[test]
    #[should_panic(expected = "no row has a positive score")]
    fn no_scores_at_all_are_refused() {
        column_select(&[0.0, 0.0], 1, 1);
    }
}
