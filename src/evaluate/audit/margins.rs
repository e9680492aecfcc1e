//! Margins, normals fitted to them, and percentiles.

use super::mean;

/// Least standard deviation of a fitted normal: margins that agree to this are the same.
const LEAST_STD: f64 = 1e-6;

/// Returns z_c − ln Σ_{j≠c} e^{z_j}, the log-odds of the class, without overflow.
///
/// # Panics
/// If there is no such class or no other.
pub fn margin(logits: &[f64], class: usize) -> f64 {
    let others = || logits.iter().enumerate().filter(|(j, _)| *j != class);
    let top = others().map(|(_, z)| *z).fold(f64::NEG_INFINITY, f64::max);
    assert!(logits.len() > 1, "a margin is over two classes or more");
    let rest: f64 = others().map(|(_, z)| (z - top).exp()).sum();
    (logits[class] - top) - rest.ln()
}

/// Returns ln p of a class from its margin: −ln(1 + e^−m).
pub fn log_probability(margin: f64) -> f64 {
    if margin > 0.0 {
        -(-margin).exp().ln_1p()
    } else {
        margin - margin.exp().ln_1p()
    }
}

/// A normal distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normal {
    /// The mean of the values that it was fitted to.
    pub mean: f64,
    /// Their sample standard deviation (divided by n − 1), at least 1e-6.
    pub std: f64,
}

impl Normal {
    /// Fits a normal to two values or more.
    pub fn fit(values: &[f64]) -> Self {
        let mean = mean(values);
        let squares: f64 = values.iter().map(|x| (x - mean) * (x - mean)).sum();
        let std = (squares / (values.len() as f64 - 1.0)).sqrt();
        Self {
            mean,
            std: std.max(LEAST_STD),
        }
    }

    /// Returns the log of the density at `x`, without the constant −½ ln 2π.
    pub fn log_density(&self, x: f64) -> f64 {
        let z = (x - self.mean) / self.std;
        -0.5 * z * z - self.std.ln()
    }

    /// Returns KL(self ‖ other).
    pub fn divergence(&self, other: &Self) -> f64 {
        let ratio = self.std / other.std;
        let shift = (self.mean - other.mean) / other.std;
        0.5 * (ratio * ratio + shift * shift - 1.0) - ratio.ln()
    }
}

/// Returns a percentile with linear interpolation between ranks; of nothing NaN.
pub fn percentile(values: &[f64], percent: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let place = percent / 100.0 * last as f64;
    let low = place.floor() as usize;
    let high = (low + 1).min(last);
    sorted[low] + (place - low as f64) * (sorted[high] - sorted[low])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn close(found: f64, wanted: f64) {
        assert!(
            (found - wanted).abs() <= 1e-12 * wanted.abs().max(1.0),
            "{found} is not {wanted}"
        );
    }

    #[test]
    fn margins_are_log_odds() {
        let logits = [1.0, -0.5, 2.0, 0.25];
        for class in 0..4 {
            let p: Vec<f64> = logits.iter().map(|z: &f64| z.exp()).collect();
            let p = p[class] / p.iter().sum::<f64>();
            let m = margin(&logits, class);
            close(m, (p / (1.0 - p)).ln());
            close(log_probability(m), p.ln());
        }
        assert_eq!(margin(&[900.0, -900.0], 0), 1800.0);
        assert_eq!(margin(&[900.0, -900.0], 1), -1800.0);
        assert_eq!(log_probability(-1800.0), -1800.0);
        assert_eq!(log_probability(1800.0), 0.0);
    }

    /// numpy: `np.percentile(v, p)`; the KL by its definition, as an integral.
    #[test]
    fn normals_and_percentiles() {
        let v = [3.0, 1.0, 4.0, 1.5, 9.0];
        for (percent, wanted) in [
            (0.0, 1.0),
            (95.0, 8.0),
            (50.0, 3.0),
            (60.0, 3.4),
            (100.0, 9.0),
        ] {
            close(percentile(&v, percent), wanted);
        }
        assert!(percentile(&[], 50.0).is_nan());
        let (p, q) = (
            Normal::fit(&[0.0, 1.0, 3.5]),
            Normal::fit(&[2.0, 2.5, 7.0, 1.0]),
        );
        close(p.mean, 1.5);
        close(p.std, 3.25_f64.sqrt());
        let step = 1e-3;
        let integral: f64 = (-20_000..20_000)
            .map(|i| {
                let x = p.mean + f64::from(i) * step;
                let density = p.log_density(x).exp() / (2.0 * std::f64::consts::PI).sqrt();
                density * (p.log_density(x) - q.log_density(x)) * step
            })
            .sum();
        assert!((integral - p.divergence(&q)).abs() < 1e-9);
        assert_eq!(p.divergence(&p), 0.0);
        let constant = Normal::fit(&[2.0, 2.0]);
        assert_eq!(constant.divergence(&Normal::fit(&[2.0, 2.0, 2.0])), 0.0);
        assert!(constant.divergence(&Normal::fit(&[3.0, 3.0])).is_finite());
    }
}
