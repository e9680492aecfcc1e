//! Argmax, softmax and entropy of one row of scores: the one place where each is written down.

/// The index of the largest value, the first where several are equal.
pub(crate) fn argmax<T: PartialOrd>(values: &[T]) -> usize {
    (1..values.len()).fold(0, |best, c| if values[c] > values[best] { c } else { best })
}

/// softmax(scale·scores), rounded to what a network is trained towards.
pub(crate) fn softmax(scores: &[f64], scale: f64) -> Vec<f32> {
    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let raised: Vec<f64> = scores.iter().map(|s| (scale * (s - top)).exp()).collect();
    let total: f64 = raised.iter().sum();
    raised.iter().map(|r| (r / total) as f32).collect()
}

/// The entropy −Σ p ln p of a distribution, in nats.
pub(crate) fn entropy(distribution: &[f32]) -> f64 {
    let one = |&p: &f32| {
        let p = f64::from(p);
        if p > 0.0 { -p * p.ln() } else { 0.0 }
    };
    distribution.iter().map(one).sum()
}

/// The softmax of a row of logits in a form that does not round: p_j = e^(z_j − max) / (1 + rest).
pub(crate) struct Softmax<'a> {
    logits: &'a [f32],
    max: f64,
    /// ε: what the other classes weigh against the largest.
    rest: f64,
}

impl<'a> Softmax<'a> {
    /// Takes a row of at least one logit.
    pub(crate) fn of(logits: &'a [f32]) -> Self {
        let top = argmax(logits);
        let max = f64::from(logits[top]);
        let others = logits.iter().enumerate().filter(|(j, _)| *j != top);
        Self {
            logits,
            max,
            rest: others.map(|(_, &z)| (f64::from(z) - max).exp()).sum(),
        }
    }

    /// Returns −ln p_j ≥ 0, finite for finite logits.
    pub(crate) fn surprise(&self, class: usize) -> f64 {
        (self.max - f64::from(self.logits[class])) + self.rest.ln_1p()
    }

    /// Returns p_j for class j.
    pub(crate) fn probability(&self, class: usize) -> f64 {
        (-self.surprise(class)).exp()
    }
}
