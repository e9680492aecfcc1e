//! The paper's labels for networks: ỹ_u = Z_u(W* + w_p) − y_ref with W* = w_init + Π_r(w_p − w_init).
//!
//! A network is a linear model, its head, on features that change as it trains. So the labels are those of the linear
//! model for the features of the moment, and what the original network said of the rows (y_ref) is taken off again.

use super::Projector;
use crate::engine::{Engine, Matrix, Rows};
use crate::error::Result;

/// Computes W* + w_p, the weights of which the forgotten rows' labels are made, D×C.
///
/// # Errors
/// Those of [`Projector::optimal_weights`].
pub fn label_weights<E: Engine>(
    projector: &Projector<'_, E>,
    trained: &Matrix,
    initial: &Matrix,
) -> Result<Matrix> {
    let (optimal, _) = projector.optimal_weights(trained, initial)?;
    Ok(optimal.zip(trained, |optimal, trained| optimal + trained))
}

/// Computes the optimal labels ỹ_u = Z_u(W* + w_p) − y_ref of a network's forgotten rows, N_u×C.
///
/// `projector` holds the retained rows, `trained` is w_p and `initial` w_init, both (D+1)×C with the bias in the last
/// row where the retained sums have one, and `reference` is y_ref: the one-hot labels (the paper) or the logits of the
/// original network (the authors' code).
///
/// ```
/// use muso::engine::{CpuEngine, Matrix};
/// use muso::gram::{DualGram, Gram};
/// use muso::labels::{Projector, network_labels};
/// # fn main() -> muso::Result<()> {
/// let engine = CpuEngine::new(None)?;
/// // The retained row spans the first of two features, so W* = (3, 1): learnt there, initial elsewhere.
/// let retained = Matrix::from_vec(1, 2, vec![2.0, 0.0]);
/// let gram = Gram::Dual(DualGram::new(&engine, retained, Matrix::zeros(1, 0), false)?);
/// let projector = Projector::new(&engine, gram, 0.0)?;
/// let trained = Matrix::from_vec(2, 1, vec![3.0, 5.0]);
/// let initial = Matrix::from_vec(2, 1, vec![-1.0, 1.0]);
/// let forgotten = Matrix::from_vec(1, 2, vec![1.0, 10.0]);
/// let reference = Matrix::from_vec(1, 1, vec![53.0]);
/// let labels = network_labels(&engine, &projector, &trained, &initial, forgotten.as_rows(), &reference)?;
/// assert_eq!(labels.as_slice(), &[(3.0 + 3.0) + 10.0 * (1.0 + 5.0) - 53.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Those of the projector and of the product.
///
/// # Panics
/// If `reference` is not N_u×C.
pub fn network_labels<E: Engine>(
    engine: &E,
    projector: &Projector<'_, E>,
    trained: &Matrix,
    initial: &Matrix,
    forgotten: Rows<'_>,
    reference: &Matrix,
) -> Result<Matrix> {
    let weights = label_weights(projector, trained, initial)?;
    let outputs = engine.project(forgotten, &weights)?;
    Ok(relative_to(&outputs, reference))
}

/// Takes y_ref off the outputs Z_u(W* + w_p).
pub(crate) fn relative_to(outputs: &Matrix, reference: &Matrix) -> Matrix {
    outputs.zip(reference, |output, reference| output - reference)
}
