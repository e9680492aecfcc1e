//! Accuracy, entropy, confidence and cross-entropy of a classifier, row by row, from its logits.
//!
//! [`Outputs`] holds the logits of N rows over C classes with the rows' labels; every number here follows from those
//! two. Probabilities are never formed where they would round: with m the largest logit of a row and
//! ε = Σ_{j ≠ argmax} e^(z_j − m), the normaliser is m + ln(1 + ε), which keeps the losses and entropies of a model
//! that is almost certain, the very rows that a membership attack looks at. All sums are f64.
//!
//! ```
//! use muso::evaluate::Outputs;
//! let outputs = Outputs::new(vec![2.0, 0.0, 0.0, 0.0, 0.0, 0.0], 3, &[0, 1])?;
//! assert_eq!(outputs.predictions(), [0, 0]);
//! assert_eq!(outputs.accuracy(), 50.0);
//! assert!((outputs.entropies()[1] - 3f64.ln()).abs() < 1e-15);
//! # Ok::<(), muso::Error>(())
//! ```

use crate::error::{Error, Result};
use crate::softmax::{Softmax, argmax};

/// Logits of rows, with the labels of the same rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Outputs {
    /// N×C, row after row.
    logits: Vec<f32>,
    classes: usize,
    labels: Vec<usize>,
}

impl Outputs {
    /// Asks a network of any kind about `rows` of a feed.
    ///
    /// # Errors
    /// Those of the pass, and if a logit is not finite or a label not a class.
    #[cfg(feature = "nn")]
    pub fn of<N, B>(
        feed: &crate::features::Feed<B>,
        network: &N,
        rows: &[usize],
        progress: &mut dyn crate::progress::Progress,
    ) -> Result<Self>
    where
        N: muso_models::FeatureNet,
        B: crate::features::Batches<Input = N::Input>,
    {
        let logits = feed.logits(network, rows, None, progress)?;
        let classes = network.head().weight.dims()[1];
        Self::new(logits, classes, &feed.labels(rows))
    }

    /// Takes `logits` in row-major order, `classes` per row, and one label per row in `0..classes`.
    pub fn new(logits: Vec<f32>, classes: usize, labels: &[i64]) -> Result<Self> {
        if classes == 0 || logits.len() != classes * labels.len() {
            return Err(Error::Shape {
                what: "logits".into(),
                found: format!("{} values", logits.len()),
                expected: format!("{} rows of {classes} classes", labels.len()),
            });
        }
        if let Some(at) = logits.iter().position(|z| !z.is_finite()) {
            return Err(Error::Parameter {
                name: "logits",
                value: format!("{} at row {}", logits[at], at / classes),
                expected: "finite values; did the training diverge?".into(),
            });
        }
        let index = |&label: &i64| {
            let class = usize::try_from(label).ok().filter(|&c| c < classes);
            class.ok_or_else(|| Error::Parameter {
                name: "label",
                value: label.to_string(),
                expected: format!("a class from 0 to {}", classes - 1),
            })
        };
        Ok(Self {
            labels: labels.iter().map(index).collect::<Result<_>>()?,
            logits,
            classes,
        })
    }

    /// Returns N, the number of rows.
    pub fn rows(&self) -> usize {
        self.labels.len()
    }

    /// Returns C, the number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Returns the labels, one a row.
    pub fn labels(&self) -> &[usize] {
        &self.labels
    }

    /// Returns the logits of one row.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.logits[row * self.classes..(row + 1) * self.classes]
    }

    fn each<T>(&self, f: impl Fn(&Softmax<'_>, usize) -> T) -> Vec<T> {
        let rows = self.logits.chunks_exact(self.classes).zip(&self.labels);
        rows.map(|(logits, &label)| f(&Softmax::of(logits), label))
            .collect()
    }

    /// Returns the class with the largest logit; of equal ones the first.
    pub fn predictions(&self) -> Vec<usize> {
        self.logits.chunks_exact(self.classes).map(argmax).collect()
    }

    /// Returns the percentage of rows whose prediction is their label. No rows give NaN, which reports leave out.
    pub fn accuracy(&self) -> f64 {
        percent_equal(&self.predictions(), &self.labels)
    }

    /// Returns the entropy of each row's softmax in nats, −Σ p ln p with 0 · ln 0 = 0; from 0 (certain) to ln C (no
    /// idea).
    pub fn entropies(&self) -> Vec<f64> {
        self.each(|softmax, _| {
            (0..self.classes)
                .map(|j| softmax.probability(j) * softmax.surprise(j))
                .sum()
        })
    }

    /// Returns the probability that the model gives to each row's own label, as the peers' attacks take "confidence".
    pub fn confidences(&self) -> Vec<f64> {
        self.each(|softmax, label| softmax.probability(label))
    }

    /// Returns the cross-entropy of each row, −ln p_label.
    pub fn losses(&self) -> Vec<f64> {
        self.each(|softmax, label| softmax.surprise(label))
    }

    /// Returns the percentage of rows on which two models predict the same class. No rows give NaN.
    ///
    /// # Panics
    /// If the two are not over the same rows.
    pub fn agreement(&self, other: &Self) -> f64 {
        assert_eq!(
            self.labels, other.labels,
            "agreement is over the same rows of two models"
        );
        percent_equal(&self.predictions(), &other.predictions())
    }
}

fn percent_equal(a: &[usize], b: &[usize]) -> f64 {
    let equal = a.iter().zip(b).filter(|(a, b)| a == b).count();
    100.0 * equal as f64 / a.len() as f64
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(found: f64, wanted: f64) {
        assert!(
            (found - wanted).abs() <= 1e-12 * wanted.abs().max(1.0),
            "{found} is not {wanted}"
        );
    }

    /// The definitions, written down without care for rounding.
    struct Plain {
        p: Vec<f64>,
    }

    impl Plain {
        fn of(logits: &[f32]) -> Self {
            let e: Vec<f64> = logits.iter().map(|&z| f64::from(z).exp()).collect();
            let sum: f64 = e.iter().sum();
            let p = e.iter().map(|e| e / sum).collect();
            Self { p }
        }

        fn entropy(&self) -> f64 {
            -self.p.iter().map(|p| p * p.ln()).sum::<f64>()
        }
    }

    #[test]
    fn each_row_uses_its_own_label() {
        let logits = vec![2.0, 0.5, -1.0, 0.1, 1.7, 0.3, 0.0, 0.2, 3.0, -2.0, 1.0, 0.5];
        let outputs = Outputs::new(logits, 3, &[0, 2, 1, 1]).unwrap();
        for (row, &label) in outputs.labels().iter().enumerate() {
            let plain = Plain::of(outputs.row(row));
            close(outputs.entropies()[row], plain.entropy());
            close(outputs.confidences()[row], plain.p[label]);
            close(outputs.losses()[row], -plain.p[label].ln());
        }
        assert_eq!(outputs.accuracy(), 50.0);
    }

    #[test]
    fn certainty_is_exact() {
        let far = vec![f32::MAX, f32::MIN, 0.0, 300.0, 0.0, 0.0];
        let outputs = Outputs::new(far.clone(), 3, &[0, 0]).unwrap();
        assert_eq!(outputs.entropies()[0], 0.0);
        assert_eq!(outputs.losses()[0], 0.0);
        // 2 e^-300 (300 + 1 − ln …): far below the resolution of 1 − p.
        let tail = 2.0 * (-300f64).exp();
        close(outputs.losses()[1] / tail, 1.0);
        close(outputs.entropies()[1] / (tail * 301.0), 1.0);
        // Certain of the wrong class.
        let wrong = Outputs::new(far, 3, &[1, 1]).unwrap();
        assert_eq!(wrong.losses()[1], 300.0);
    }

    #[test]
    fn one_class_has_nothing_to_say() {
        let outputs = Outputs::new(vec![3.0], 1, &[0]).unwrap();
        assert_eq!(outputs.entropies(), [0.0]);
        assert_eq!(outputs.accuracy(), 100.0);
    }

    #[test]
    fn agreement_is_about_predictions_and_not_about_labels() {
        let a = Outputs::new(vec![1.0, 0.0, 0.0, 1.0, 1.0, 1.0], 2, &[1, 1, 1]).unwrap();
        let b = Outputs::new(vec![5.0, 0.0, 9.0, 1.0, 1.0, 0.0], 2, &[1, 1, 1]).unwrap();
        close(a.agreement(&b), 200.0 / 3.0);
        assert_eq!(a.agreement(&a), 100.0);
        let none = Outputs::new(vec![], 2, &[]).unwrap();
        assert!(none.agreement(&none).is_nan());
    }

    #[test]
    fn misuse_is_named() {
        let fault = |logits: &[f32], classes, labels: &[i64]| {
            Outputs::new(logits.to_vec(), classes, labels)
                .unwrap_err()
                .to_string()
        };
        assert!(fault(&[1.0; 5], 2, &[0, 1]).contains("5 values"));
        assert!(fault(&[], 0, &[]).contains("0 classes"));
        assert!(fault(&[1.0, f32::NAN], 1, &[0, 0]).contains("NaN at row 1"));
        assert!(fault(&[1.0; 4], 2, &[0, 2]).contains("from 0 to 1"));
        assert!(fault(&[1.0; 4], 2, &[0, -1]).contains("-1"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_number_is_in_its_range(
            logits in proptest::collection::vec(
                prop_oneof![-5f32..5.0, any::<f32>().prop_filter("finite", |z| z.is_finite())], 4),
            label in 0i64..4,
        ) {
            let outputs = Outputs::new(logits, 4, &[label]).unwrap();
            let entropy = outputs.entropies()[0];
            prop_assert!((0.0..=4f64.ln() + 1e-12).contains(&entropy));
            prop_assert!(outputs.losses()[0] >= 0.0 && outputs.losses()[0].is_finite());
            prop_assert!((0.0..=1.0).contains(&outputs.confidences()[0]));
        }

        #[test]
        fn stable_forms_equal_the_definitions(
            logits in proptest::collection::vec(-8f32..8.0, 5),
            label in 0usize..5,
        ) {
            let outputs = Outputs::new(logits.clone(), 5, &[label as i64]).unwrap();
            let plain = Plain::of(&logits);
            prop_assert!((outputs.entropies()[0] - plain.entropy()).abs() < 1e-9);
        }
    }
}
