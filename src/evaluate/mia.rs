//! Membership inference: can the model's outputs tell that a row was trained on?
//!
//! Three conventions are in use and their numbers do not compare; [`Mia`] names them, and a report says which was used.
//! Each looks at one number a row, from the [`Outputs`] of the model under test, and fits a rule with one threshold:
//! a [`Rule`] by logistic regression or by a linear support vector machine. Both are solved to rounding error and use
//! no random number, so the same outputs give the same percentage.
//!
//! Classes are balanced by weight, N/(2·N_class) a row, and no row is thrown away. The feature is not standardised: as
//! in scikit-learn the penalty ½·slope² is on the slope as it stands (C = 1) and not on the intercept.
//! A row on the threshold itself is called a **non-member**; so are all rows when the feature is constant, which is to
//! say that its values differ by less than 2e-7.
//!
//! ```
//! use muso::evaluate::{Mia, MiaOutputs, Outputs};
//! // Sure of the retained rows, unsure of the test rows; the forgotten rows look like test rows.
//! let sure = Outputs::new([9.0, 0.0].repeat(20), 2, &[0; 20])?;
//! let unsure = Outputs::new([0.3, 0.0].repeat(20), 2, &[0; 20])?;
//! let rows = MiaOutputs { retained: &sure, test: &unsure, forgotten: &unsure };
//! assert_eq!(Mia::Entropy.percent(&rows)?, 0.0);
//! assert_eq!(Mia::Confidence.percent(&rows)?, 100.0);
//! assert_eq!("loss".parse::<Mia>()?.percent(&rows)?, 50.0);
//! # Ok::<(), muso::Error>(())
//! ```

use std::fmt;
use std::str::FromStr;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::classify::Outputs;
use crate::error::{Error, Result};

/// Membership-inference attack, and what its percentage counts.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Mia {
    /// The paper's. Logistic regression on the entropy of the softmax learns to tell retained training rows (members)
    /// from test rows (non-members); the number is the percent of forgotten rows that it calls **members**.
    ///
    /// Ideal is the retrained model's own number, which is not 0: some rows look like members to a model that never
    /// saw them. Far above it, the model still remembers; far below it, the model is conspicuously unsure of them.
    #[default]
    Entropy,
    /// The convention of the sparse-unlearning and SalUn code. A support vector machine on the confidence (the
    /// probability of the row's own label) learns the same two groups; the number is the percent of forgotten rows
    /// that it calls **non-members**.
    ///
    /// Ideal is again the retrained model's own number; higher means less remembered. Those codes use a radial kernel
    /// with C = 3; ours is linear with C = 1, whose threshold is one number that can be checked by hand, and balances
    /// by weight where they draw as many retained rows as there are test rows.
    Confidence,
    /// Logistic regression on the cross-entropy loss learns to tell the **forgotten** rows from test rows and is scored
    /// on rows it was not fitted to: stratified ten-fold cross-validation, the mean of the two groups' accuracies.
    ///
    /// Ideal is 50, a coin: then losses do not tell forgotten rows from rows that nobody trained on. Above 50 they do.
    Loss,
}

impl Mia {
    /// All of them, the default first.
    pub const ALL: [Self; 3] = [Self::Entropy, Self::Confidence, Self::Loss];

    /// Returns the name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Entropy => "entropy",
            Self::Confidence => "confidence",
            Self::Loss => "loss",
        }
    }

    /// Returns what the percentage counts, as a phrase for a legend.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Entropy => {
                "forgotten training rows that a membership attack on the entropy calls members, percent"
            }
            Self::Confidence => {
                "forgotten training rows that a membership attack on the confidence calls non-members, percent"
            }
            Self::Loss => {
                "accuracy of telling forgotten training rows from test rows by their loss, percent"
            }
        }
    }

    /// Explains how the attack works and which value is ideal, in sentences for a report.
    pub fn explanation(self) -> &'static str {
        match self {
            Self::Entropy => {
                "The paper's attack. A logistic regression on the entropy of the softmax, classes balanced, learns to \
                 tell retained training rows (members) from test rows (non-members) by the outputs of the model under \
                 test. The number is the percent of forgotten training rows that it calls members. Ideal is Retrain's \
                 number, which is not 0: some rows look like members to a model that never saw them. Above it the \
                 model still remembers; below it the model is conspicuously unsure of what it should only not know."
            }
            Self::Confidence => {
                "The convention of the sparse-unlearning and SalUn code. A support vector machine on the probability \
                 of the row's own label (linear, C = 1, classes balanced) learns to tell retained training rows from \
                 test rows. The number is the percent of forgotten training rows that it calls non-members, so more \
                 is more forgotten. Ideal is Retrain's number."
            }
            Self::Loss => {
                "A logistic regression on the cross-entropy loss, classes balanced, learns to tell the forgotten \
                 training rows from test rows. The number is its accuracy on rows it was not fitted to (ten-fold \
                 cross-validation, mean of the two groups). Ideal is 50: the losses of forgotten rows are those of \
                 rows that nobody trained on."
            }
        }
    }

    /// Returns the attack's percentage for one model.
    pub fn percent(self, rows: &MiaOutputs<'_>) -> Result<f64> {
        let MiaOutputs {
            retained,
            test,
            forgotten,
        } = rows;
        for (name, outputs, needed) in [
            ("retained", retained, self != Self::Loss),
            ("test", test, true),
            ("forgotten", forgotten, true),
        ] {
            if needed && outputs.rows() == 0 {
                return Err(too_few(name, 0, 1));
            }
        }
        let called_members = |rule: Rule, values: Vec<f64>| {
            let members = values.iter().filter(|&&x| rule.is_member(x)).count();
            100.0 * members as f64 / values.len() as f64
        };
        match self {
            Self::Entropy => {
                let rule = Rule::logistic(&retained.entropies(), &test.entropies());
                Ok(called_members(rule, forgotten.entropies()))
            }
            Self::Confidence => {
                let rule = Rule::support_vector(&retained.confidences(), &test.confidences());
                Ok(100.0 - called_members(rule, forgotten.confidences()))
            }
            Self::Loss => cross_validated(&forgotten.losses(), &test.losses()),
        }
    }
}

impl fmt::Display for Mia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mia {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|mia| mia.name() == text);
        found.ok_or_else(|| Error::Parameter {
            name: "`.mia`",
            value: text.into(),
            expected: "entropy, confidence or loss".into(),
        })
    }
}

/// The outputs of one model that an attack looks at.
#[derive(Clone, Copy, Debug)]
pub struct MiaOutputs<'a> {
    /// Retained training rows: the members.
    pub retained: &'a Outputs,
    /// Test rows: the non-members.
    pub test: &'a Outputs,
    /// Forgotten training rows: what is asked about.
    pub forgotten: &'a Outputs,
}

/// A rule on one number: a row is a member when slope·x + intercept is positive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    slope: f64,
    /// The score is slope·(x − centre) + offset; about the centre it rounds least.
    centre: f64,
    offset: f64,
}

/// The feature shifted and scaled into [−1, 1]. That is a change of variables, not of the problem: the penalty is
/// rescaled with the slope.
struct Centred {
    members: Vec<f64>,
    others: Vec<f64>,
    centre: f64,
    half_range: f64,
}

impl Centred {
    /// Centres and scales the feature. Returns `None` when it is constant: then no slope is worth its penalty and
    /// balanced classes leave no intercept.
    fn of(members: &[f64], others: &[f64]) -> Option<Self> {
        let all = || members.iter().chain(others).copied();
        let low = all().fold(f64::INFINITY, f64::min);
        let high = all().fold(f64::NEG_INFINITY, f64::max);
        let (centre, half_range) = (low / 2.0 + high / 2.0, high / 2.0 - low / 2.0);
        // Scores are of the order of N·half_range²; much below this they drown in the rounding of the offset.
        if !(half_range > 1e-7 && half_range < f64::INFINITY) {
            return None;
        }
        let scaled = |x: &f64| (x - centre) / half_range;
        Some(Self {
            members: members.iter().map(scaled).collect(),
            others: others.iter().map(scaled).collect(),
            centre,
            half_range,
        })
    }

    /// The weight of a member and of another: balanced, adding up to the number of rows.
    fn weights(&self) -> (f64, f64) {
        let (m, o) = (self.members.len() as f64, self.others.len() as f64);
        ((m + o) / (2.0 * m), (m + o) / (2.0 * o))
    }

    /// Returns the penalty that turns ½·slope² into ½·penalty·scaled² for the scaled slope.
    fn penalty(&self) -> f64 {
        1.0 / (self.half_range * self.half_range)
    }

    fn rule(&self, scaled_slope: f64, offset: f64) -> Rule {
        Rule {
            slope: scaled_slope / self.half_range,
            centre: self.centre,
            offset,
        }
    }
}

impl Rule {
    /// Calls every row a non-member, by a tie.
    const TIE: Self = Self {
        slope: 0.0,
        centre: 0.0,
        offset: 0.0,
    };

    /// Fits logistic regression: minimises ½·slope² + Σ w_i ln(1 + e^(−y_i·score_i)) with balanced weights w, by
    /// Newton's method in f64. Equal to scikit-learn's `LogisticRegression(class_weight="balanced")` where that
    /// converges.
    ///
    /// # Panics
    /// If a group is empty or a value is not finite.
    pub fn logistic(members: &[f64], others: &[f64]) -> Self {
        check_groups(members, others);
        let Some(data) = Centred::of(members, others) else {
            return Self::TIE;
        };
        let (slope, offset) = newton(&data);
        data.rule(slope, offset)
    }

    /// Fits a linear support vector machine: minimises ½·slope² + Σ w_i max(0, 1 − y_i·score_i) with balanced weights w
    /// and C = 1. Equal to scikit-learn's `SVC(kernel="linear", class_weight="balanced")`. Where a whole interval of
    /// intercepts is optimal, the middle of it is taken.
    ///
    /// # Panics
    /// If a group is empty or a value is not finite.
    pub fn support_vector(members: &[f64], others: &[f64]) -> Self {
        check_groups(members, others);
        let Some(data) = Centred::of(members, others) else {
            return Self::TIE;
        };
        let (slope, offset) = bisect_hinge(data.penalty(), data.weights(), &data);
        data.rule(slope, offset)
    }

    /// Returns the slope of the decision function.
    pub fn slope(&self) -> f64 {
        self.slope
    }

    /// Returns the intercept of the decision function.
    pub fn intercept(&self) -> f64 {
        self.offset - self.slope * self.centre
    }

    /// Returns the decision function at `x`, positive for a member.
    pub fn score(&self, x: f64) -> f64 {
        self.slope * (x - self.centre) + self.offset
    }

    /// Returns whether a row with this value is called a member; a tie, to rounding, is not.
    pub fn is_member(&self, x: f64) -> bool {
        let size = (self.slope * (x - self.centre)).abs() + self.offset.abs();
        self.score(x) > 1e-12 * size
    }
}

fn check_groups(members: &[f64], others: &[f64]) {
    assert!(
        !members.is_empty() && !others.is_empty(),
        "a rule needs rows of both groups, not {} and {}",
        members.len(),
        others.len()
    );
    assert!(
        members.iter().chain(others).all(|x| x.is_finite()),
        "a rule needs finite values"
    );
}

/// ln(1 + e^t) without overflow.
fn softplus(t: f64) -> f64 {
    t.max(0.0) + (-t.abs()).exp().ln_1p()
}

/// 1 / (1 + e^−t).
fn sigmoid(t: f64) -> f64 {
    let e = (-t.abs()).exp();
    if t >= 0.0 {
        1.0 / (1.0 + e)
    } else {
        e / (1.0 + e)
    }
}

/// The scaled slope and the offset of the logistic rule.
fn newton(data: &Centred) -> (f64, f64) {
    let penalty = data.penalty();
    let (weight_member, weight_other) = data.weights();
    let groups = [
        (&data.members, weight_member, 1.0),
        (&data.others, weight_other, -1.0),
    ];
    let objective = |slope: f64, offset: f64| {
        let mut sum = 0.5 * penalty * slope * slope;
        for (values, weight, sign) in groups {
            let losses = values
                .iter()
                .map(|z| softplus(-sign * (slope * z + offset)));
            sum += weight * losses.sum::<f64>();
        }
        sum
    };
    let (mut slope, mut offset) = (0.0, 0.0);
    let mut current = objective(slope, offset);
    // Separable rows far apart cost a step a unit of the slope, which grows as ln(1/penalty): a few hundred at most.
    for _ in 0..1000 {
        let (mut g0, mut g1) = (penalty * slope, 0.0);
        let (mut h00, mut h01, mut h11) = (penalty, 0.0, 0.0);
        for (values, weight, sign) in groups {
            for &z in values {
                let wrong = sigmoid(-sign * (slope * z + offset));
                let pull = -weight * sign * wrong;
                let curve = weight * wrong * (1.0 - wrong);
                g0 += pull * z;
                g1 += pull;
                h00 += curve * z * z;
                h01 += curve * z;
                h11 += curve;
            }
        }
        let determinant = h00 * h11 - h01 * h01;
        let (step0, step1) = if determinant > 1e-14 * h00 * h11 {
            (
                (h11 * g0 - h01 * g1) / determinant,
                (h00 * g1 - h01 * g0) / determinant,
            )
        } else {
            // Too flat for a Newton step: down the gradient, scaled by the curvature there is.
            let size = 1.0 / (h00 + h11).max(f64::MIN_POSITIVE);
            (g0 * size, g1 * size)
        };
        if !(step0.is_finite() && step1.is_finite()) {
            break;
        }
        // The objective is convex, so some part of the step goes down; below its rounding any part is as good.
        let mut part = 1.0;
        let mut next = objective(slope - step0, offset - step1);
        while next > current * (1.0 + 1e-13) && part > 1e-10 {
            part /= 2.0;
            next = objective(slope - part * step0, offset - part * step1);
        }
        slope -= part * step0;
        offset -= part * step1;
        current = next;
        let size = slope.abs() + offset.abs();
        if step0.abs() + step1.abs() <= 1e-13 * size {
            break;
        }
    }
    (slope, offset)
}

/// The scaled slope and the offset of the support vector rule.
///
/// For a fixed slope v the best offset is a weighted median: the loss is piecewise linear in it, with a kink at 1 − v·z
/// for each member and at −1 − v·z for each other row. What is left is convex in v alone, and a subgradient at that
/// offset says on which side the minimum lies.
fn bisect_hinge(penalty: f64, weights: (f64, f64), data: &Centred) -> (f64, f64) {
    let sorted = |values: &[f64]| {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted
    };
    let hinge = Hinge {
        members: sorted(&data.members),
        others: sorted(&data.others),
        weights,
    };
    let rows = (data.members.len() + data.others.len()) as f64;
    // ½·penalty·v² is at most the objective at v = 0, which is at most one a row.
    let mut high = (2.0 * rows / penalty).sqrt();
    let mut low = -high;
    for _ in 0..1100 {
        let middle = low / 2.0 + high / 2.0;
        if middle <= low || middle >= high {
            break;
        }
        if penalty * middle + hinge.pull(middle) > 0.0 {
            high = middle;
        } else {
            low = middle;
        }
    }
    let slope = low / 2.0 + high / 2.0;
    let (from, to) = hinge.offsets(slope);
    (slope, from / 2.0 + to / 2.0)
}

/// The hinge losses of two groups, each ascending.
struct Hinge {
    members: Vec<f64>,
    others: Vec<f64>,
    /// Weights of one member and of one other.
    weights: (f64, f64),
}

impl Hinge {
    /// Kinks in the offset at slope `v`, ascending.
    fn kinks<'a>(values: &'a [f64], sign: f64, v: f64) -> Box<dyn Iterator<Item = f64> + 'a> {
        let kink = move |z: &f64| sign - v * z;
        if v >= 0.0 {
            Box::new(values.iter().rev().map(kink))
        } else {
            Box::new(values.iter().map(kink))
        }
    }

    /// The ends of the interval of best offsets at slope `v`.
    fn offsets(&self, v: f64) -> (f64, f64) {
        // In units in which balanced weights are whole, so that "half of the weight" is met exactly or not at all.
        let (member, other) = (self.others.len() as u128, self.members.len() as u128);
        let half = member * other;
        let mut of_members = Self::kinks(&self.members, 1.0, v).peekable();
        let mut of_others = Self::kinks(&self.others, -1.0, v).peekable();
        let mut below = 0;
        let mut from = None;
        loop {
            let member_first = match (of_members.peek(), of_others.peek()) {
                (Some(a), Some(b)) => a <= b,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                // The weights add up to twice the half, so the loop has returned before.
                (None, None) => return (0.0, 0.0),
            };
            let (kink, weight) = match member_first {
                true => (of_members.next(), member),
                false => (of_others.next(), other),
            };
            let kink = kink.unwrap_or(0.0);
            if let Some(from) = from {
                return (from, kink);
            }
            below += weight;
            if below == half {
                from = Some(kink);
            } else if below > half {
                return (kink, kink);
            }
        }
    }

    /// A subgradient of the losses in the slope at the best offset.
    fn pull(&self, v: f64) -> f64 {
        let (from, to) = self.offsets(v);
        let offset = from / 2.0 + to / 2.0;
        let mut sum = 0.0;
        // Weight and moment of what is inside the margin, and of what is on its edge.
        let mut inside = [0.0; 2];
        let mut edge = [(0.0, 0.0); 2];
        for (group, (values, sign, weight)) in [
            (&self.members, 1.0, self.weights.0),
            (&self.others, -1.0, self.weights.1),
        ]
        .into_iter()
        .enumerate()
        {
            for &z in values {
                let kink = sign - v * z;
                if (kink - offset) * sign > 0.0 {
                    sum -= sign * weight * z;
                    inside[group] += weight;
                } else if kink == offset {
                    edge[group].0 += weight;
                    edge[group].1 += weight * z;
                }
            }
        }
        // The multipliers of the two groups add up to the same at the best offset; the edge makes up the difference.
        let lack = inside[1] - inside[0];
        let (group, sign) = if lack > 0.0 { (0, 1.0) } else { (1, -1.0) };
        let (weight, moment) = edge[group];
        if weight > 0.0 {
            sum -= sign * (lack.abs() / weight).min(1.0) * moment;
        }
        sum
    }
}

/// Folds of the cross-validated attack; fewer when a group is smaller.
const FOLDS: usize = 10;

/// The mean of the two groups' accuracies, each row judged by a rule fitted to the other folds.
fn cross_validated(forgotten: &[f64], test: &[f64]) -> Result<f64> {
    for (name, values) in [("forgotten", forgotten), ("test", test)] {
        if values.len() < 2 {
            return Err(too_few(name, values.len(), 2));
        }
    }
    let folds = FOLDS.min(forgotten.len()).min(test.len());
    let fold_of = [
        dealt(forgotten.len(), folds, 0),
        dealt(test.len(), folds, 1),
    ];
    let mut right = [0_usize; 2];
    for fold in 0..folds {
        let part = |values: &[f64], fold_of: &[usize], inside: bool| -> Vec<f64> {
            let rows = values.iter().zip(fold_of);
            rows.filter(|(_, f)| (**f == fold) == inside)
                .map(|(x, _)| *x)
                .collect()
        };
        let rule = Rule::logistic(
            &part(forgotten, &fold_of[0], false),
            &part(test, &fold_of[1], false),
        );
        for x in part(forgotten, &fold_of[0], true) {
            right[0] += usize::from(rule.is_member(x));
        }
        for x in part(test, &fold_of[1], true) {
            right[1] += usize::from(!rule.is_member(x));
        }
    }
    let share = |right: usize, of: usize| right as f64 / of as f64;
    Ok(50.0 * (share(right[0], forgotten.len()) + share(right[1], test.len())))
}

/// A fold for each row: the rows in a fixed random order, dealt like cards.
fn dealt(rows: usize, folds: usize, seed: u64) -> Vec<usize> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut order: Vec<usize> = (0..rows).collect();
    for i in (1..rows).rev() {
        // The top part of a 64×64-bit product; its bias is of the order of rows / 2^64.
        let j = (u128::from(rng.next_u64()) * (i as u128 + 1)) >> 64;
        order.swap(i, j as usize);
    }
    let mut fold_of = vec![0; rows];
    for (place, row) in order.into_iter().enumerate() {
        fold_of[row] = place % folds;
    }
    fold_of
}

fn too_few(rows: &str, found: usize, least: usize) -> Error {
    Error::selection(
        "membership attack",
        format!("{found} {rows} rows"),
        format!("at least {least}"),
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The inputs of the reference script below: a quadratic of the golden-ratio sequence.
    fn sample(n: usize, start: f64, span: f64) -> Vec<f64> {
        let part = |i: usize| (0.618_033_988_749_894_9 * (i as f64 + 1.0)).fract();
        (0..n).map(|i| start + span * part(i).powi(2)).collect()
    }

    /// Name, members, others; the logistic slope, intercept and members among 40 probes; the same of the machine.
    type Case = (
        &'static str,
        Vec<f64>,
        Vec<f64>,
        (f64, f64, usize),
        (f64, f64, usize),
    );

    /// scikit-learn 1.9.1, with m and t as here, x = [m; t], y = 1 for m, and q = sample(40, min x, max x − min x):
    ///     LogisticRegression(class_weight="balanced", solver="newton-cholesky", tol=1e-14, max_iter=10000)
    ///     SVC(kernel="linear", C=1.0, class_weight="balanced", tol=1e-9)
    /// and of each coef_[0, 0], intercept_[0], predict(q).sum().
    #[rustfmt::skip]
    fn cases() -> Vec<Case> {
        vec![
            ("overlap", sample(60, 0.0, 1.2), sample(25, 0.2, 2.0), (-1.6366815666, 1.0069802217, 21), (-1.6279873, 1.1213418, 23)),
            ("few", sample(7, 0.0, 1.0), sample(40, 0.5, 1.5), (-2.6024795709, 1.5715276931, 22), (-2.6618060, 1.5933495, 22)),
            ("apart", sample(30, 0.0, 0.5), sample(20, 2.0, 0.5), (-2.8361602157, 3.3110965375, 28), (-1.2863653, 1.5734935, 28)),
            ("reverse", sample(50, 1.0, 1.0), sample(50, 0.0, 1.5), (3.2770850597, -3.0948841635, 12), (2.8981689, -2.4362857, 13)),
            ("offset", sample(60, 100.0, 1.2), sample(25, 100.2, 2.0), (-1.6366815666, 164.6751368780, 21), (-1.6288649, 164.0087598, 23)),
        ]
    }

    fn probes(members: &[f64], others: &[f64]) -> Vec<f64> {
        let all = || members.iter().chain(others).copied();
        let low = all().fold(f64::INFINITY, f64::min);
        let high = all().fold(f64::NEG_INFINITY, f64::max);
        sample(40, low, high - low)
    }

    #[test]
    fn rules_are_those_of_scikit_learn() {
        for (name, members, others, logistic, machine) in cases() {
            // LIBSVM stops at a tolerance on the gradient: at an offset of 100 its third digit already differs from its own result at 0.
            let loose = if name == "offset" { 2e-3 } else { 2e-6 };
            for (rule, (slope, intercept, called), tolerance) in [
                (Rule::logistic(&members, &others), logistic, 1e-7),
                (Rule::support_vector(&members, &others), machine, loose),
            ] {
                assert!(
                    (rule.slope() - slope).abs() < tolerance * slope.abs(),
                    "{name}: {rule:?}, {slope}"
                );
                assert!(
                    (rule.intercept() - intercept).abs() < tolerance * intercept.abs(),
                    "{name}: {rule:?}, {} is not {intercept}",
                    rule.intercept()
                );
                let probes = probes(&members, &others);
                let found = probes.iter().filter(|&&x| rule.is_member(x)).count();
                assert_eq!(found, called, "{name}");
            }
        }
    }

    #[test]
    fn a_shift_moves_the_threshold_and_nothing_else() {
        let (members, others) = (sample(60, 0.0, 1.2), sample(25, 0.2, 2.0));
        let shifted = |values: &[f64]| values.iter().map(|x| x + 100.0).collect::<Vec<_>>();
        for fit in [Rule::logistic, Rule::support_vector] {
            let here = fit(&members, &others);
            let there = fit(&shifted(&members), &shifted(&others));
            assert!((here.slope() - there.slope()).abs() < 1e-9);
            assert!((here.score(0.7) - there.score(100.7)).abs() < 1e-9);
        }
    }

    #[test]
    fn the_support_vector_rule_is_the_minimum() {
        for (name, members, others, _, _) in cases() {
            let rule = Rule::support_vector(&members, &others);
            let n = (members.len() + others.len()) as f64;
            let objective = |slope: f64, intercept: f64| {
                let hinge = |values: &[f64], sign: f64| -> f64 {
                    let losses = values
                        .iter()
                        .map(|x| (1.0 - sign * (slope * x + intercept)).max(0.0));
                    losses.sum::<f64>() * n / (2.0 * values.len() as f64)
                };
                0.5 * slope * slope + hinge(&members, 1.0) + hinge(&others, -1.0)
            };
            let best = objective(rule.slope(), rule.intercept());
            for k in 0..64 {
                let angle = f64::from(k) * std::f64::consts::TAU / 64.0;
                for size in [1e-6, 1e-3, 0.1, 2.0] {
                    let other = objective(
                        rule.slope() + size * angle.cos(),
                        rule.intercept() + size * angle.sin(),
                    );
                    assert!(other >= best - 1e-12 * best, "{name}: {other} < {best}");
                }
            }
        }
    }

    #[test]
    fn a_constant_feature_is_a_tie_and_a_tie_is_no_member() {
        for value in [0.0, 0.69, 1e30, -3.0] {
            for fit in [Rule::logistic, Rule::support_vector] {
                let rule = fit(&[value; 7], &[value; 3]);
                assert_eq!((rule.slope(), rule.intercept()), (0.0, 0.0));
                assert!(!rule.is_member(value) && !rule.is_member(value + 1.0));
            }
        }
    }

    #[test]
    fn extreme_features_give_finite_rules() {
        for scale in [1e-300, 1e-160, 1e-140, 1e-9, 1e-3, 1e9, 1e38] {
            for (members, others) in [
                (vec![0.0, scale, scale], vec![3.0 * scale, 4.0 * scale]),
                (
                    vec![0.0, 3.0 * scale],
                    vec![scale, 4.0 * scale, 5.0 * scale],
                ),
            ] {
                for fit in [Rule::logistic, Rule::support_vector] {
                    let rule = fit(&members, &others);
                    assert!(
                        rule.slope().is_finite() && rule.score(members[0]).is_finite(),
                        "{scale}: {rule:?}"
                    );
                    assert!(
                        !rule.is_member(5.0 * scale),
                        "{scale}: {rule:?} calls the far side a member"
                    );
                }
            }
        }
        // One dominating value, as a loss of 1e5 among losses of 0.1.
        let rule = Rule::logistic(&[0.1, 0.2, 0.1], &[0.3, 0.4, 1e5]);
        assert!(rule.slope() < 0.0 && rule.intercept().is_finite());
    }

    /// Two-class outputs whose entropy falls as the logit grows.
    fn outputs(logits: &[f32], label: i64) -> Outputs {
        let rows = logits.iter().flat_map(|&z| [z, 0.0]).collect();
        Outputs::new(rows, 2, &vec![label; logits.len()]).unwrap()
    }

    fn ramp(n: usize, start: f32, span: f32) -> Vec<f32> {
        (0..n).map(|i| start + span * i as f32 / n as f32).collect()
    }

    #[test]
    fn each_convention_counts_its_own_way() {
        let (retained, test) = (
            outputs(&ramp(200, 4.0, 2.0), 0),
            outputs(&ramp(90, 0.0, 2.0), 0),
        );
        let like_retained = outputs(&ramp(40, 4.0, 2.0), 0);
        let like_test = outputs(&ramp(40, 0.0, 2.0), 0);
        let percent = |mia: Mia, forgotten: &Outputs| {
            let rows = MiaOutputs {
                retained: &retained,
                test: &test,
                forgotten,
            };
            mia.percent(&rows).unwrap()
        };
        assert_eq!(percent(Mia::Entropy, &like_retained), 100.0);
        assert_eq!(percent(Mia::Entropy, &like_test), 0.0);
        assert_eq!(percent(Mia::Confidence, &like_retained), 0.0);
        assert_eq!(percent(Mia::Confidence, &like_test), 100.0);
        // Not 100: the penalty keeps the slope, and so the threshold, from following the rows all the way.
        assert!(percent(Mia::Loss, &like_retained) > 90.0);
        let coin = percent(Mia::Loss, &like_test);
        assert!((35.0..=65.0).contains(&coin), "{coin}");
        assert_eq!(coin, percent(Mia::Loss, &like_test));
    }

    #[test]
    fn uneven_groups_do_not_tilt_the_loss_attack() {
        // Nothing to tell apart: calling all of them test rows is right for 96 % of the rows and worth 50.
        let forgotten = vec![1.0; 20];
        let test = vec![1.0; 500];
        assert_eq!(cross_validated(&forgotten, &test).unwrap(), 50.0);
        let far = vec![0.0; 20];
        assert_eq!(cross_validated(&far, &test).unwrap(), 100.0);
        // Two rows each still make two folds.
        assert_eq!(cross_validated(&[0.0, 0.1], &[5.0, 5.1]).unwrap(), 100.0);
    }

    #[test]
    fn folds_are_even_and_fixed() {
        let folds = dealt(103, 10, 0);
        for fold in 0..10 {
            let size = folds.iter().filter(|f| **f == fold).count();
            assert!((10..=11).contains(&size));
        }
        assert_eq!(folds, dealt(103, 10, 0));
        assert_ne!(folds, dealt(103, 10, 1));
    }

    #[test]
    fn names_parse_back_and_faults_are_named() {
        for mia in Mia::ALL {
            assert_eq!(mia.to_string().parse::<Mia>().unwrap(), mia);
            assert!(mia.explanation().contains("deal"));
        }
        assert_eq!(Mia::default(), Mia::Entropy);
        let fault = "entropi".parse::<Mia>().unwrap_err().to_string();
        assert!(fault.contains("`.mia` = entropi") && fault.contains("confidence"));
        let (some, none) = (outputs(&[1.0, 2.0], 0), outputs(&[], 0));
        let rows = |retained, test, forgotten| MiaOutputs {
            retained,
            test,
            forgotten,
        };
        let fault = |mia: Mia, rows| mia.percent(&rows).unwrap_err().to_string();
        assert!(fault(Mia::Entropy, rows(&none, &some, &some)).contains("0 retained rows"));
        assert!(fault(Mia::Confidence, rows(&some, &none, &some)).contains("0 test rows"));
        assert!(fault(Mia::Loss, rows(&none, &some, &none)).contains("0 forgotten rows"));
        assert!(Mia::Loss.percent(&rows(&none, &some, &some)).is_ok());
    }
}
