//! Stage 8, after `methods`: what a model is worth and how far it is from the retrained one.
//!
//! For classifiers, [`classify`] reads accuracies, entropies and losses off the logits, [`mia`] asks whether the outputs
//! give away what was trained on, and [`gap`] says over which rows each number is and how far two models are apart.
//! `audit` (feature `report`) asks of many models whether unlearned ones can be told from retrained ones.
//!
//! In the linear world labels are ±1 and a prediction is right when it has the label's sign. RA is over the retained
//! training rows, FA over the forgotten ones, TA over all test rows; Δ_w = ‖w − w_r‖²/D.
//!
//! ```
//! use muso::evaluate::sign_accuracy;
//! assert_eq!(sign_accuracy(&[0.3, -2.0, 0.1, 0.0], &[1.0, -1.0, -1.0, 1.0]), 50.0);
//! ```

#[cfg(feature = "report")]
pub mod audit;
pub mod classify;
pub mod gap;
pub mod mia;

use crate::engine::{Engine, Matrix};
use crate::error::Result;

pub use classify::Outputs;
pub use gap::{Judged, NamedClass, RowSet, Scope, Scores, Source, avg_gap, judged_rows};
pub use mia::{Mia, MiaOutputs, Rule};

pub use crate::methods::delta_w;

/// Returns the percentage of predictions with the sign of their ±1 label. No rows give NaN.
///
/// # Panics
/// If there is not one label a prediction.
pub fn sign_accuracy(predictions: &[f64], labels: &[f64]) -> f64 {
    assert_eq!(predictions.len(), labels.len(), "one label a prediction");
    let right = predictions
        .iter()
        .zip(labels)
        .filter(|(p, y)| **p * **y > 0.0)
        .count();
    100.0 * right as f64 / labels.len() as f64
}

/// Rows on which a linear model is judged.
#[derive(Clone, Debug)]
pub struct JudgedRows {
    /// Feature rows, N×D.
    pub features: Matrix,
    /// Labels, each ±1.
    pub labels: Vec<f64>,
}

impl JudgedRows {
    /// Returns the percentage of rows that `weights` (D×1) gets right.
    pub fn accuracy<E: Engine>(&self, engine: &E, weights: &Matrix) -> Result<f64> {
        let predictions = engine.project(self.features.as_rows(), weights)?;
        Ok(sign_accuracy(predictions.as_slice(), &self.labels))
    }
}
