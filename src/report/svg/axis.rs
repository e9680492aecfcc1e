//! Axes: values to pixels, and round ticks.

use super::Scale;
use crate::report::format::{self, Notation};

/// An axis between two pixels.
pub(super) struct Axis {
    scale: Scale,
    /// Ends of the axis: values, or exponents of ten on a log axis.
    pub(super) low: f64,
    pub(super) high: f64,
    /// Pixels of the ends; `from` may be the larger (y grows downwards).
    from: f64,
    to: f64,
    /// Position of zero on a log axis that needs one.
    zero: Option<f64>,
}

/// Linear values beyond this are set at the edge: the difference of two of them still has to be finite.
pub(super) const HUGE: f64 = 1e150;

impl Axis {
    /// An axis that holds all `values` that are finite.
    pub(super) fn fit(scale: Scale, values: &[f64], from: f64, to: f64) -> Axis {
        let finite = || values.iter().copied().filter(|v| v.is_finite());
        let direction = (to - from).signum();
        if scale == Scale::Log {
            let exponents = || finite().filter(|v| *v > 0.0).map(f64::log10);
            let mut low = exponents().fold(f64::INFINITY, f64::min).floor();
            let mut high = exponents().fold(f64::NEG_INFINITY, f64::max).ceil();
            if low > high {
                (low, high) = (-1.0, 0.0);
            } else if low == high {
                low -= 1.0;
            }
            let zero = finite().any(|v| v <= 0.0).then_some(from);
            let gutter = if zero.is_some() { 18.0 } else { 0.0 };
            let from = from + direction * gutter;
            return Axis {
                scale,
                low,
                high,
                from,
                to,
                zero,
            };
        }
        let (least, most, least_span) = match scale {
            Scale::Percent => (0.0, 100.0, 4.0),
            _ => (-HUGE, HUGE, 0.0),
        };
        let inside = || finite().map(|v| v.clamp(least, most));
        let mut low = inside().fold(f64::INFINITY, f64::min);
        let mut high = inside().fold(f64::NEG_INFINITY, f64::max);
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        // A span below the resolution of its ends has no ticks; a single value has no span at all.
        let size = low.abs().max(high.abs());
        let span = (high - low).max(size * 1e-6).max(least_span);
        let span = if span > 1e-290 { span } else { 1.0 };
        let slack = (span - (high - low)).max(0.0) / 2.0;
        low -= slack;
        high += slack;
        if scale == Scale::Percent {
            let shift = (high - 100.0).max(0.0) + (low).min(0.0);
            low -= shift;
            high -= shift;
        }
        Axis {
            scale,
            low,
            high,
            from,
            to,
            zero: None,
        }
    }

    /// The pixel of `value`; none for what has no place on any axis.
    pub(super) fn at(&self, value: f64) -> Option<f64> {
        if !value.is_finite() {
            return None;
        }
        let place = match self.scale {
            Scale::Log if value <= 0.0 => return Some(self.zero.unwrap_or(self.from)),
            Scale::Log => value.log10(),
            _ => value.clamp(-HUGE, HUGE),
        };
        let share = ((place - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        Some(self.from + share * (self.to - self.from))
    }

    /// Pixels and labels of at most about `most` ticks.
    pub(super) fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        let mut ticks = Vec::new();
        if let Some(zero) = self.zero {
            ticks.push((zero, "0".to_owned()));
        }
        let most = most.max(2) as f64;
        let span = self.high - self.low;
        let pixel = |place: f64| {
            let share = ((place - self.low) / span).clamp(0.0, 1.0);
            self.from + share * (self.to - self.from)
        };
        if self.scale == Scale::Log {
            const STEPS: [f64; 11] = [1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 10.0, 20.0, 50.0, 100.0, 200.0];
            let step = STEPS
                .into_iter()
                .find(|s| span / s + 1.0 <= most)
                .unwrap_or(400.0);
            let mut exponent = (self.low / step).ceil() * step;
            while exponent <= self.high {
                ticks.push((pixel(exponent), format::power_of_ten(exponent as i32)));
                exponent += step;
            }
            return ticks;
        }
        let decade = 10f64.powf((span / most).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|m| m * decade)
            .find(|s| span / s <= most)
            .unwrap_or(span);
        let first = (self.low / step - 1e-9).ceil();
        let decimals = (-step.log10().floor()).clamp(0.0, 8.0) as usize;
        for k in 0..=(most as usize + 1) {
            let value = (first + k as f64) * step;
            if value > self.high + 1e-9 * step {
                break;
            }
            // Adding zero turns -0 into 0.
            let value = value + 0.0;
            let label = match value == 0.0 || (1e-4..1e6).contains(&value.abs()) {
                true => format!("{value:.decimals$}").replace('-', "−"),
                false => format::scientific(value, 0, Notation::Typeset),
            };
            ticks.push((pixel(value), label));
        }
        ticks
    }
}
