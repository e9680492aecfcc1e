//! `muso bench`: how fast the operations are on a device, and how near that is to what the device can do.
//!
//! A [`Measurement`] is one operation at one shape: its time, and the operations and bytes that it cannot do without.
//! The limit is the time that the device would need for those at its peak, whichever of the two takes longer. What a
//! virtual GPU says of time is modelled, and is marked so wherever it is shown.

#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(feature = "nn")]
pub mod lanes;

use serde::Serialize;

/// Operations that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Sums over rows: G = ZᵀZ and ZᵀY.
    Gram,
    /// Factor and solve.
    Cholesky,
    /// Products with feature rows, kernel matrices and random features.
    Projection,
    /// A whole update: sums, factor, solve and projection.
    Update,
}

impl Group {
    /// All of them, in the order of the flow.
    pub const ALL: [Self; 4] = [Self::Gram, Self::Cholesky, Self::Projection, Self::Update];
}

/// What a device can do in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// f64 operations, a multiply-add counted as two.
    pub flops: f64,
    /// Bytes to and from memory.
    pub bytes: f64,
}

/// One operation at one shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// What was done, with the kernel's technique.
    pub operation: String,
    /// Of which sizes.
    pub shape: String,
    /// Time of one run.
    pub seconds: f64,
    /// Operations that it cannot do without.
    pub flops: f64,
    /// Bytes that it cannot do without.
    pub bytes: f64,
    /// What the device can do.
    pub limit: Limit,
}

impl Measurement {
    /// The share of the limit that was reached, 0 to 1.
    pub fn share(&self) -> f64 {
        let best = (self.flops / self.limit.flops).max(self.bytes / self.limit.bytes);
        best / self.seconds
    }

    /// Whether arithmetic or memory sets the limit.
    pub fn bound(&self) -> &'static str {
        if self.flops / self.limit.flops >= self.bytes / self.limit.bytes {
            "arithmetic"
        } else {
            "memory"
        }
    }
}

/// All that was measured on a device.
#[derive(Clone, Debug)]
pub struct BenchReport {
    /// The device in a few words.
    pub device: String,
    /// Whether times are modelled.
    pub is_virtual: bool,
    /// In the order in which they were made.
    pub measurements: Vec<Measurement>,
}

/// As JSON has it: a modelled time has another name than a measured one.
#[derive(Serialize)]
struct Line<'a> {
    operation: &'a str,
    shape: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    virtual_seconds: Option<f64>,
    flop_per_second: f64,
    bytes_per_second: f64,
    share_of_limit: f64,
    bound: &'static str,
}

impl BenchReport {
    /// For people.
    pub fn to_text(&self) -> String {
        let time = if self.is_virtual {
            "virtual time"
        } else {
            "time"
        };
        let mut text = format!(
            "{}\n\n{:<30} {:<28} {time:>12} {:>9} {:>9} {:>7}  bound by\n",
            self.device, "operation", "shape", "GFLOP/s", "GB/s", "limit"
        );
        for m in &self.measurements {
            text.push_str(&format!(
                "{:<30} {:<28} {:>9.3} ms {:>9.1} {:>9.1} {:>5.1} %  {}\n",
                m.operation,
                m.shape,
                m.seconds * 1e3,
                m.flops / m.seconds * 1e-9,
                m.bytes / m.seconds * 1e-9,
                100.0 * m.share(),
                m.bound()
            ));
        }
        if self.is_virtual {
            text.push_str(
                "\nVirtual: times are those of a model of the device, not measured; use them to compare kernels.\n",
            );
        }
        text
    }

    /// For programs.
    pub fn to_json(&self) -> String {
        let lines: Vec<Line<'_>> = self
            .measurements
            .iter()
            .map(|m| Line {
                operation: &m.operation,
                shape: &m.shape,
                seconds: (!self.is_virtual).then_some(m.seconds),
                virtual_seconds: self.is_virtual.then_some(m.seconds),
                flop_per_second: m.flops / m.seconds,
                bytes_per_second: m.bytes / m.seconds,
                share_of_limit: m.share(),
                bound: m.bound(),
            })
            .collect();
        let value = serde_json::json!({
            "kind": "bench",
            "device": self.device,
            "virtual": self.is_virtual,
            "measurements": lines,
        });
        format!("{value:#}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_part_is_the_limit_and_modelled_times_are_named_so() {
        let limit = Limit {
            flops: 1e12,
            bytes: 1e11,
        };
        let m = Measurement {
            operation: "gram f32 fma".into(),
            shape: "1x1".into(),
            seconds: 4e-3,
            flops: 1e9,
            bytes: 2e8,
            limit,
        };
        assert_eq!((m.share(), m.bound()), (0.5, "memory"));
        let mut report = BenchReport {
            device: "cuda:0".into(),
            is_virtual: true,
            measurements: vec![m],
        };
        assert!(report.to_text().contains("virtual time"));
        assert!(report.to_json().contains("\"virtual_seconds\": 0.004"));
        report.is_virtual = false;
        assert!(!report.to_text().to_lowercase().contains("virtual"));
        assert!(!report.to_json().contains("virtual_seconds"));
    }
}
