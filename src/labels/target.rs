//! Lemma 3 in its target form: what a linear model of the retained rows alone says of the forgotten ones.
//!
//! W_r = (G_r + λI)⁻¹Z_rᵀ(Y_r − 1/C) and ỹ_u = Z_u W_r + 1/C. Where the pre-trained model fits its labels exactly, this is the
//! projector form; where it does not, which is every network, it is the one that forgets: the forgotten rows' labels
//! enter nowhere.
//!
//! Least squares says which class is likelier, not how likely. The scale that turns ỹ into probabilities, softmax(τỹ),
//! is fitted on the retained rows as if each had been left out, which costs nothing: with h_i = z_iᵀ(G + λI)⁻¹z_i the
//! prediction without row i is (ŷ_i − h_i y_i)/(1 − h_i). A row that counts v times has v·h_i for h_i.

use crate::engine::{Engine, Matrix, Rows, SumsSpec, Targets};
use crate::error::Result;
use crate::gram::{GramBuilder, Route};
use crate::solve::{Params, Solver};

/// Rows whose leverages are solved for at a time.
const BLOCK: usize = 512;

/// How the model of the retained rows is fitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetParams {
    /// λ as a multiple of tr(G)/D.
    pub relative_ridge: f64,
    /// How far classes count alike rather than rows: a row counts as (1/rows of its class)^balance. Least squares
    /// gives way to the larger classes where cross-entropy does not, and a class of which a part is forgotten has become
    /// a smaller one.
    pub balance: f64,
}

/// A model of the retained rows, and what it says of each of them without having seen it.
#[derive(Clone, Debug)]
pub struct TargetForm {
    /// W_r, (D+1)×C with the bias in the last row.
    pub weights: Matrix,
    /// N_r×C: each retained row's scores from the other rows.
    pub left_out: Matrix,
    /// τ, which minimises the cross-entropy of softmax(τ·scores) over the left-out rows.
    pub temperature: f64,
    /// Percent of the retained rows that are classified rightly when left out.
    pub left_out_accuracy: f64,
    /// λ as used.
    pub ridge: f64,
}

impl TargetForm {
    /// Fits `rows` to one-hot `classes` of `count`.
    pub fn fit<E: Engine>(
        engine: &E,
        rows: Rows<'_>,
        classes: &[i64],
        count: usize,
        params: &TargetParams,
    ) -> Result<Self> {
        let order = rows.cols() + 1;
        let spec = SumsSpec {
            features: order,
            bias: false,
            targets: count,
        };
        let mut centred = Targets::Classes(classes).to_matrix(rows.rows(), count);
        for value in centred.as_mut_slice() {
            *value -= 1.0 / count as f64;
        }
        let weight_of = class_weights(classes, count, params.balance);
        let mut builder = GramBuilder::new(engine, Route::Primal, spec)?;
        for start in (0..rows.rows()).step_by(BLOCK) {
            let end = rows.rows().min(start + BLOCK);
            let mut z = Matrix::zeros(end - start, order);
            let mut y = Matrix::zeros(end - start, count);
            for i in start..end {
                let root = weight_of[classes[i] as usize].sqrt();
                let to = z.row_mut(i - start);
                rows.widen_row(i, &mut to[..order - 1]);
                to[order - 1] = 1.0;
                for value in to.iter_mut() {
                    *value *= root;
                }
                for (to, from) in y.row_mut(i - start).iter_mut().zip(centred.row(i)) {
                    *to = root * from;
                }
            }
            builder.push(z.as_rows(), Targets::Values(y.as_rows()))?;
        }
        let crate::gram::Gram::Primal(sums) = builder.finish()? else {
            unreachable!("the primal route was asked for");
        };
        let trace: f64 = (0..order).map(|i| sums.gram[(i, i)]).sum();
        let ridge = params.relative_ridge * trace / order as f64;
        let solver = Solver::new(engine, sums.gram, Params::ridge(ridge))?;
        let (weights, _) = solver.solve(&sums.cross)?;

        let mut left_out = engine.project(rows, &weights)?;
        let mut row = vec![0.0; order];
        for start in (0..rows.rows()).step_by(BLOCK) {
            let end = rows.rows().min(start + BLOCK);
            let mut block = Matrix::zeros(order, end - start);
            for i in start..end {
                row[order - 1] = 1.0;
                rows.widen_row(i, &mut row[..order - 1]);
                for (j, value) in row.iter().enumerate() {
                    block[(j, i - start)] = *value;
                }
            }
            let (solved, _) = solver.solve(&block)?;
            for i in start..end {
                let leverage: f64 = (0..order)
                    .map(|j| block[(j, i - start)] * solved[(j, i - start)])
                    .sum::<f64>()
                    * weight_of[classes[i] as usize];
                // λ > 0 keeps it below 1 but for rounding.
                let rest = (1.0 - leverage).max(1e-9);
                for (score, target) in left_out.row_mut(i).iter_mut().zip(centred.row(i)) {
                    *score = (*score - leverage * target) / rest;
                }
            }
        }
        let right = (0..rows.rows()).filter(|&i| argmax(left_out.row(i)) as i64 == classes[i]);
        let left_out_accuracy = 100.0 * right.count() as f64 / rows.rows() as f64;
        Ok(Self {
            temperature: best_temperature(&left_out, classes),
            weights,
            left_out,
            left_out_accuracy,
            ridge,
        })
    }

    /// The k at which softmax(k·τ·scores) of the left-out rows has this mean entropy, in nats.
    ///
    /// Entropy falls as k rises, from ln C towards 0; what lies outside is answered by the nearest k in 1e-3 … 1e3.
    pub fn sharpness_of(&self, entropy: f64) -> f64 {
        let mean = |k: f64| {
            let rows = 0..self.left_out.rows();
            let total: f64 = rows
                .map(|i| entropy_of(&softmax(self.left_out.row(i), k * self.temperature)))
                .sum();
            total / self.left_out.rows() as f64
        };
        let (mut low, mut high) = (1e-3_f64, 1e3_f64);
        for _ in 0..50 {
            let middle = (low * high).sqrt();
            if mean(middle) > entropy {
                low = middle;
            } else {
                high = middle;
            }
        }
        (low * high).sqrt()
    }

    /// softmax(sharpness·τ·Z W_r), one distribution a row.
    pub fn labels<E: Engine>(
        &self,
        engine: &E,
        rows: Rows<'_>,
        sharpness: f64,
    ) -> Result<Vec<Vec<f32>>> {
        let scores = engine.project(rows, &self.weights)?;
        let scale = sharpness * self.temperature;
        Ok((0..scores.rows())
            .map(|i| softmax(scores.row(i), scale))
            .collect())
    }
}

/// What a row of each class counts: 1 with `balance` 0, so much that all classes weigh the same with 1.
fn class_weights(classes: &[i64], count: usize, balance: f64) -> Vec<f64> {
    let mut rows = vec![0_usize; count];
    for &class in classes {
        rows[class as usize] += 1;
    }
    let present = rows.iter().filter(|&&n| n > 0).count() as f64;
    let even = classes.len() as f64 / present;
    rows.iter()
        .map(|&n| (even / n.max(1) as f64).powf(balance))
        .collect()
}

/// The index of the largest value, the first where several are equal.
pub(crate) fn argmax(values: &[f64]) -> usize {
    (1..values.len()).fold(0, |best, c| if values[c] > values[best] { c } else { best })
}

/// −Σ p ln p, in nats.
pub(crate) fn entropy_of(distribution: &[f32]) -> f64 {
    let one = |&p: &f32| {
        let p = f64::from(p);
        if p > 0.0 { -p * p.ln() } else { 0.0 }
    };
    distribution.iter().map(one).sum()
}

/// softmax(scale·scores).
pub(crate) fn softmax(scores: &[f64], scale: f64) -> Vec<f32> {
    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let raised: Vec<f64> = scores.iter().map(|s| (scale * (s - top)).exp()).collect();
    let total: f64 = raised.iter().sum();
    raised.iter().map(|r| (r / total) as f32).collect()
}

/// The scale τ ≥ 0 of least cross-entropy. The cross-entropy is convex in τ, so its slope changes sign once.
fn best_temperature(scores: &Matrix, classes: &[i64]) -> f64 {
    // Mean over rows of E_p[s] − s_y, where p = softmax(τs).
    let slope = |scale: f64| -> f64 {
        let mut total = 0.0;
        for (i, &class) in classes.iter().enumerate() {
            let row = scores.row(i);
            let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let (mut mass, mut mean) = (0.0, 0.0);
            for s in row {
                let e = (scale * (s - top)).exp();
                mass += e;
                mean += e * s;
            }
            total += mean / mass - row[class as usize];
        }
        total / classes.len() as f64
    };
    let (mut low, mut high) = (0.0, 1.0);
    while slope(high) < 0.0 && high < 1e6 {
        (low, high) = (high, 2.0 * high);
    }
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if slope(middle) < 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}
