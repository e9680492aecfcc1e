//! Lemma 3 in its target form, with leave-one-out cross-validation: what a linear model of the retained rows alone says
//! of the forgotten ones.
//!
//! W_r = (G_r + λI)⁻¹Z_rᵀ(Y_r − 1/C) and ỹ_u = Z_u W_r + 1/C. Where the pre-trained model fits its labels exactly, this is the
//! projector form; where it does not, which is every network, it is the one that forgets: the forgotten rows' labels
//! enter nowhere.
//!
//! Least squares says which class is likelier, not how likely. The scale that turns ỹ into probabilities, softmax(τỹ),
//! is fitted on the retained rows as if each had been left out, which costs nothing: with h_i = z_iᵀ(G + λI)⁻¹z_i the
//! prediction without row i is (ŷ_i − h_i y_i)/(1 − h_i). A row that counts v times has v·h_i for h_i.
//!
//! Neither the features nor one-hot labels are ever held: [`TargetFit`] takes the rows batch by batch, twice. The weights
//! of the classes multiply sums, not rows: in the first pass the rows come grouped by the weight of their class, and each
//! group has sums of its own, one after the other.

use crate::engine::{Engine, Matrix, Rows, SumsSpec, Targets};
use crate::error::{Error, Result};
use crate::gram::{Gram, GramBuilder, Route};
use crate::softmax::{argmax, entropy, softmax};
use crate::solve::{Params, Solver};

/// Rows whose leverages are solved for at a time.
const BLOCK: usize = 512;

/// Parameters of the model of the retained rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetParams {
    /// λ as a multiple of tr(G)/D.
    pub relative_ridge: f64,
    /// Class balance from 0 (every row counts alike) to 1 (every class does): a row counts as (1/rows of its
    /// class)^balance. Least squares gives way to the larger classes where cross-entropy does not, and a class of which
    /// a part is forgotten has become a smaller one.
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
    /// λ of the fit.
    pub ridge: f64,
}

/// The fit of a [`TargetForm`] in its first pass over the retained rows, in which it sums.
///
/// ```
/// use muso::engine::{CpuEngine, Matrix};
/// use muso::labels::{TargetFit, TargetParams};
/// # fn main() -> muso::Result<()> {
/// let engine = CpuEngine::new(None)?;
/// let z = Matrix::from_fn(90, 4, |i, j| ((i * 4 + j) as f64).sin());
/// let classes: Vec<i64> = (0..90).map(|i| i % 3).collect();
/// let params = TargetParams { relative_ridge: 1e-3, balance: 0.5 };
/// let mut fit = TargetFit::new(&engine, &classes, 3, params)?;
/// // Rows in the order that the fit asks for, then as they are: they may come from a file or a network each time.
/// for batch in fit.order().chunks(32) {
///     fit.push(z.select_rows(batch).as_rows())?;
/// }
/// let mut model = fit.solve()?;
/// for start in (0..90).step_by(32) {
///     model.leave_out(z.as_rows().slice(start, 90.min(start + 32)))?;
/// }
/// let form = model.finish()?;
/// assert_eq!(form.left_out.rows(), 90);
/// # Ok(())
/// # }
/// ```
pub struct TargetFit<'e, E: Engine> {
    engine: &'e E,
    classes: Vec<i64>,
    /// C, the number of classes.
    count: usize,
    params: TargetParams,
    /// The weight of a row of each class.
    weight_of: Vec<f64>,
    order: Vec<usize>,
    /// Rows that have come.
    seen: usize,
    /// The group of rows that is being summed, and its weight.
    group: Option<(f64, GramBuilder<'e, E>)>,
    /// Weighted sums of the groups before: G and Zᵀ(one-hot Y).
    sums: Option<(Matrix, Matrix)>,
}

impl<'e, E: Engine> TargetFit<'e, E> {
    /// Starts a fit of rows with these classes, each in `0..count`.
    ///
    /// # Errors
    /// If a class is outside of that.
    pub fn new(engine: &'e E, classes: &[i64], count: usize, params: TargetParams) -> Result<Self> {
        if let Some(class) = classes.iter().find(|c| !(0..count as i64).contains(c)) {
            return Err(Error::Parameter {
                name: "label",
                value: class.to_string(),
                expected: format!("a class below {count}"),
            });
        }
        let weight_of = class_weights(classes, count, params.balance);
        let mut order: Vec<usize> = (0..classes.len()).collect();
        let weight = |&row: &usize| weight_of[classes[row] as usize];
        order.sort_by(|a, b| weight(a).total_cmp(&weight(b)));
        Ok(Self {
            engine,
            classes: classes.to_vec(),
            count,
            params,
            weight_of,
            order,
            seen: 0,
            group: None,
            sums: None,
        })
    }

    /// Returns the order in which the rows have to come: grouped by the weight of their class.
    pub fn order(&self) -> Vec<usize> {
        self.order.clone()
    }

    /// Adds the next rows of [`order`](Self::order).
    ///
    /// # Panics
    /// If there are more rows than classes.
    pub fn push(&mut self, rows: Rows<'_>) -> Result<()> {
        let cols = rows.cols();
        self.add(rows.rows(), cols, |builder, start, end, classes| {
            builder.push(rows.slice(start, end), Targets::Classes(classes))
        })
    }

    /// Adds the next rows of [`order`](Self::order), which a network made, [N, D], from where they lie.
    ///
    /// # Panics
    /// If there are more rows than classes.
    #[cfg(feature = "nn")]
    pub fn update(&mut self, features: &muso_models::burn::tensor::Tensor<2>) -> Result<()> {
        let [rows, cols] = features.dims();
        self.add(rows, cols, |builder, start, end, classes| {
            if end - start == rows {
                return builder.update(features, Targets::Classes(classes));
            }
            let part = features.clone().narrow(0, start, end - start);
            builder.update(&part, Targets::Classes(classes))
        })
    }

    /// Adds `rows` rows, a stretch of equal weight at a time.
    fn add(
        &mut self,
        rows: usize,
        cols: usize,
        sum: impl Fn(&mut GramBuilder<'e, E>, usize, usize, &[i64]) -> Result<()>,
    ) -> Result<()> {
        assert!(
            self.seen + rows <= self.classes.len(),
            "more rows than the {} classes",
            self.classes.len()
        );
        let classes: Vec<i64> = self.order[self.seen..][..rows]
            .iter()
            .map(|&row| self.classes[row])
            .collect();
        let mut start = 0;
        while start < rows {
            let weight = self.weight_of[classes[start] as usize];
            let same = |class: &&i64| self.weight_of[**class as usize] == weight;
            let end = start + classes[start..].iter().take_while(same).count();
            if self.group.as_ref().is_none_or(|group| group.0 != weight) {
                self.close()?;
                let spec = SumsSpec {
                    features: cols,
                    bias: true,
                    targets: self.count,
                };
                let builder = GramBuilder::new(self.engine, Route::Primal, spec)?;
                self.group = Some((weight, builder));
            }
            if let Some((_, builder)) = &mut self.group {
                sum(builder, start, end, &classes[start..end])?;
            }
            start = end;
        }
        self.seen += rows;
        Ok(())
    }

    /// Adds the sums of the group to those of the groups before.
    fn close(&mut self) -> Result<()> {
        let Some((weight, builder)) = self.group.take() else {
            return Ok(());
        };
        let Gram::Primal(new) = builder.finish()? else {
            unreachable!("the primal route was asked for");
        };
        let (gram, cross) = self.sums.take().unwrap_or_else(|| {
            let order = new.gram.rows();
            (
                Matrix::zeros(order, order),
                Matrix::zeros(order, self.count),
            )
        });
        self.sums = Some((
            gram.zip(&new.gram, |sum, x| sum + weight * x),
            cross.zip(&new.cross, |sum, x| sum + weight * x),
        ));
        Ok(())
    }

    /// Solves for W_r, when all rows have come.
    ///
    /// # Errors
    /// If rows are missing, and those of the solve.
    pub fn solve(mut self) -> Result<TargetModel<'e, E>> {
        self.close()?;
        let (gram, mut cross) = self
            .sums
            .filter(|_| self.seen == self.classes.len())
            .ok_or_else(|| incomplete(self.seen, self.classes.len()))?;
        let order = gram.rows();
        // Targets are one-hot less 1/C: each column loses the mean of all.
        for i in 0..order {
            let mean = cross.row(i).iter().sum::<f64>() / self.count as f64;
            for value in cross.row_mut(i) {
                *value -= mean;
            }
        }
        let trace: f64 = (0..order).map(|i| gram[(i, i)]).sum();
        let ridge = self.params.relative_ridge * trace / order as f64;
        let solver = Solver::new(self.engine, gram, Params::ridge(ridge))?;
        let (weights, _) = solver.solve(&cross)?;
        Ok(TargetModel {
            left_out: Vec::with_capacity(self.classes.len() * self.count),
            engine: self.engine,
            solver,
            weights,
            ridge,
            weight_of: self.weight_of,
            classes: self.classes,
            count: self.count,
        })
    }
}

/// The fit of a [`TargetForm`] in its second pass over the retained rows, in which it leaves each out.
pub struct TargetModel<'e, E: Engine> {
    engine: &'e E,
    solver: Solver<'e, E>,
    weights: Matrix,
    ridge: f64,
    weight_of: Vec<f64>,
    classes: Vec<i64>,
    count: usize,
    /// Scores of the rows that have come.
    left_out: Vec<f64>,
}

impl<E: Engine> TargetModel<'_, E> {
    /// Computes the scores of the next rows, in the order of their classes, each from the other rows.
    ///
    /// # Panics
    /// If there are more rows than classes.
    pub fn leave_out(&mut self, rows: Rows<'_>) -> Result<()> {
        for start in (0..rows.rows()).step_by(BLOCK) {
            let block = rows.slice(start, rows.rows().min(start + BLOCK));
            let seen = self.left_out.len() / self.count;
            let classes = &self.classes[seen..seen + block.rows()];
            let mut scores = self.engine.project(block, &self.weights)?;
            let order = self.weights.rows();
            let mut columns = Matrix::zeros(order, block.rows());
            let mut row = vec![1.0; order];
            for i in 0..block.rows() {
                block.widen_row(i, &mut row[..order - 1]);
                for (j, value) in row.iter().enumerate() {
                    columns[(j, i)] = *value;
                }
            }
            let (solved, _) = self.solver.solve(&columns)?;
            for (i, &class) in classes.iter().enumerate() {
                let leverage: f64 = (0..order)
                    .map(|j| columns[(j, i)] * solved[(j, i)])
                    .sum::<f64>()
                    * self.weight_of[class as usize];
                // λ > 0 keeps it below 1 but for rounding.
                let rest = (1.0 - leverage).max(1e-9);
                for (k, score) in scores.row_mut(i).iter_mut().enumerate() {
                    let own = f64::from(u8::from(k as i64 == class));
                    let target = own - 1.0 / self.count as f64;
                    *score = (*score - leverage * target) / rest;
                }
            }
            self.left_out.extend_from_slice(scores.as_slice());
        }
        Ok(())
    }

    /// Fits the temperature, when all rows have come.
    ///
    /// # Errors
    /// If rows are missing.
    pub fn finish(self) -> Result<TargetForm> {
        let rows = self.classes.len();
        if self.left_out.len() != rows * self.count {
            return Err(incomplete(self.left_out.len() / self.count, rows));
        }
        let left_out = Matrix::from_vec(rows, self.count, self.left_out);
        let right = (0..rows).filter(|&i| argmax(left_out.row(i)) as i64 == self.classes[i]);
        Ok(TargetForm {
            left_out_accuracy: 100.0 * right.count() as f64 / rows as f64,
            temperature: best_temperature(&left_out, &self.classes),
            weights: self.weights,
            left_out,
            ridge: self.ridge,
        })
    }
}

fn incomplete(rows: usize, all: usize) -> Error {
    Error::Shape {
        what: "retained rows".into(),
        found: format!("{rows} rows"),
        expected: format!("{all} rows, at least one"),
    }
}

impl TargetForm {
    /// Fits `rows` to one-hot `classes` of `count`.
    ///
    /// # Errors
    /// If there is not one class a row, and those of [`TargetFit`].
    pub fn fit<E: Engine>(
        engine: &E,
        rows: Rows<'_>,
        classes: &[i64],
        count: usize,
        params: &TargetParams,
    ) -> Result<Self> {
        if classes.len() != rows.rows() {
            return Err(incomplete(rows.rows(), classes.len()));
        }
        let mut fit = TargetFit::new(engine, classes, count, *params)?;
        for block in fit.order().chunks(BLOCK) {
            let mut z = Matrix::zeros(block.len(), rows.cols());
            for (i, &row) in block.iter().enumerate() {
                rows.widen_row(row, z.row_mut(i));
            }
            fit.push(z.as_rows())?;
        }
        let mut model = fit.solve()?;
        model.leave_out(rows)?;
        model.finish()
    }

    /// Returns the k at which softmax(k·τ·scores) of the left-out rows has this mean entropy, in nats.
    ///
    /// Entropy falls as k rises, from ln C towards 0; what lies outside is answered by the nearest k in 1e-3 … 1e3.
    pub fn sharpness_of(&self, wanted: f64) -> f64 {
        let mean = |k: f64| {
            let rows = 0..self.left_out.rows();
            let total: f64 = rows
                .map(|i| entropy(&softmax(self.left_out.row(i), k * self.temperature)))
                .sum();
            total / self.left_out.rows() as f64
        };
        let (mut low, mut high) = (1e-3_f64, 1e3_f64);
        for _ in 0..50 {
            let middle = (low * high).sqrt();
            if mean(middle) > wanted {
                low = middle;
            } else {
                high = middle;
            }
        }
        (low * high).sqrt()
    }

    /// Computes softmax(sharpness·τ·Z W_r), one distribution a row.
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

/// Returns the weight of a row of each class: 1 with `balance` 0, equal total weight of all classes with 1.
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
