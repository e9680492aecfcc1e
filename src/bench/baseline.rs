//! An earlier report, and what has become slower since.
//!
//! Plain times of two days are not comparable on a machine whose speed swings. The share of the measured peak is: both of
//! its sides swing together. A fall counts when it is larger than the tolerance and than what the rounds of both reports
//! scatter by.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use muso::{Error, Result};
use serde::Deserialize;

use super::{BenchReport, Measurement};

/// Bytes of a report that are looked at.
const LONGEST: u64 = 16 << 20;

/// The fields that a comparison needs of a report that `muso bench --save` wrote.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Baseline {
    kind: String,
    device: String,
    #[serde(default)]
    processor: String,
    #[serde(default)]
    measurements: Vec<Earlier>,
}

#[derive(Clone, Debug, Deserialize)]
struct Earlier {
    operation: String,
    shape: String,
    #[serde(alias = "virtual_seconds")]
    seconds: f64,
    share_of_limit: f64,
    share_spread: Quartiles,
}

#[derive(Clone, Debug, Deserialize)]
struct Quartiles {
    lower: f64,
    upper: f64,
}

/// A report beside its baseline.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Comparison {
    /// Operations on both sides, in the order of the report.
    pub(crate) changes: Vec<Change>,
    /// Operations in the baseline only, with their shapes.
    pub(crate) gone: Vec<String>,
    /// Operations in the report only.
    pub(crate) new: Vec<String>,
}

/// An operation at one shape, then and now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    /// Names the operation and its shape.
    pub(crate) name: String,
    /// Share of the peak now over that of then: below 1 it has become slower.
    pub(crate) share: f64,
    /// Time now over that of then, on a machine that may have had another speed.
    pub(crate) time: f64,
    /// Allowed fall of the share, 0 to 1: the tolerance and what the rounds scatter by.
    pub(crate) allowed: f64,
}

impl Change {
    /// Returns whether it is slower than noise and tolerance explain.
    pub(crate) fn fell(&self) -> bool {
        let holds = 1.0 - self.share <= self.allowed;
        // NaN does not hold.
        !holds
    }
}

impl Baseline {
    /// Reads a report that was saved earlier.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(LONGEST).read_to_string(&mut text))
            .map_err(|e| Error::io(path, "read", e))?;
        let expected = "a report of muso bench `.save`";
        let found: Self = serde_json::from_str(&text)
            .map_err(|e| Error::format(path, format!("no report: {e}"), expected))?;
        let usable = |m: &Earlier| m.share_of_limit > 0.0 && m.seconds > 0.0;
        let problem = match found.kind.as_str() {
            "bench" if found.measurements.is_empty() => "nothing was measured",
            "bench" if !found.measurements.iter().all(usable) => "a time or share is not positive",
            "bench" => return Ok(found),
            _ => "a report of another kind",
        };
        Err(Error::format(path, problem, expected))
    }

    /// Refuses a baseline of another machine, device, number of threads or instruction set.
    pub(crate) fn check_machine(&self, path: &Path, device: &str, processor: &str) -> Result<()> {
        let place = |device: &str, processor: &str| format!("{device} ({processor})");
        if (self.device.as_str(), self.processor.as_str()) == (device, processor) {
            return Ok(());
        }
        let problem = format!("measured on {}", place(&self.device, &self.processor));
        Err(Error::format(path, problem, place(device, processor)))
    }

    /// Holds a report against it; `tolerance` is a share, 0 to 1.
    pub(crate) fn compare(&self, report: &BenchReport, tolerance: f64) -> Comparison {
        let named = |operation: &str, shape: &str| format!("{operation}, {shape}");
        let is = |then: &Earlier, now: &Measurement| {
            then.operation == now.operation && then.shape == now.shape
        };
        let mut changes = Vec::new();
        let mut new = Vec::new();
        for now in &report.measurements {
            match self.measurements.iter().find(|then| is(then, now)) {
                Some(then) => changes.push(then.change(now, tolerance)),
                None => new.push(named(&now.operation, &now.shape)),
            }
        }
        let missing = |then: &&Earlier| !report.measurements.iter().any(|now| is(then, now));
        let gone = self.measurements.iter().filter(missing);
        Comparison {
            changes,
            gone: gone.map(|m| named(&m.operation, &m.shape)).collect(),
            new,
        }
    }
}

impl Earlier {
    fn change(&self, now: &Measurement, tolerance: f64) -> Change {
        let then = &self.share_spread;
        let noise = (then.upper - then.lower) / (2.0 * self.share_of_limit);
        Change {
            name: format!("{}, {}", self.operation, self.shape),
            share: now.share.median / self.share_of_limit,
            time: now.seconds.median / self.seconds,
            allowed: tolerance + noise.hypot(now.share.noise()),
        }
    }
}

impl Comparison {
    /// Formats the comparison as a table for a terminal.
    pub(crate) fn to_text(&self) -> String {
        let mut text = format!(
            "\n{:<60} {:>13} {:>9} {:>11}\n",
            "against the baseline", "share of peak", "may fall", "plain time"
        );
        for change in &self.changes {
            text.push_str(&format!(
                "{:<60} {:>+11.1} % {:>7.1} % {:>+9.1} %{}\n",
                change.name,
                100.0 * (change.share - 1.0),
                100.0 * change.allowed,
                100.0 * (change.time - 1.0),
                if change.fell() { "  SLOWER" } else { "" }
            ));
        }
        for (names, why) in [
            (&self.gone, "in the baseline only"),
            (&self.new, "not in the baseline"),
        ] {
            for name in names {
                text.push_str(&format!("{name:<60} {why}\n"));
            }
        }
        text
    }

    /// Returns the operations that became slower.
    pub(crate) fn fallen(&self) -> Vec<&Change> {
        self.changes.iter().filter(|change| change.fell()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Limit, Work};
    use super::*;

    /// One round for each time, at a peak of 1 FLOP/s: the share is one over the time.
    fn measured(operation: &str, seconds: &[f64]) -> Measurement {
        let limit = Limit {
            flops: 1.0,
            bytes: 1.0,
        };
        let work = Work {
            flops: 1.0,
            bytes: 0.0,
        };
        let rounds: Vec<_> = seconds.iter().map(|&s| (s, limit)).collect();
        Measurement::new(operation.into(), "D = 1".into(), work, &rounds)
    }

    fn report(measurements: Vec<Measurement>) -> BenchReport {
        BenchReport {
            device: "cpu, 1 thread, portable".into(),
            processor: "a processor".into(),
            measurements,
            ..BenchReport::default()
        }
    }

    fn baseline(measurements: Vec<Measurement>) -> Baseline {
        serde_json::from_str(&report(measurements).to_json()).unwrap()
    }

    #[test]
    fn a_fall_is_caught_and_a_gain_is_not() {
        let then = baseline(vec![measured("gram", &[2.0, 2.0, 2.0])]);
        for (seconds, fell) in [(4.0, true), (2.3, true), (2.1, false), (1.0, false)] {
            let now = report(vec![measured("gram", &[seconds; 3])]);
            let found = then.compare(&now, 0.1);
            assert_eq!(!found.fallen().is_empty(), fell, "{seconds}");
            assert!((found.changes[0].share - 2.0 / seconds).abs() < 1e-12);
            assert!((found.changes[0].time - seconds / 2.0).abs() < 1e-12);
            assert_eq!(found.to_text().contains("SLOWER"), fell);
        }
    }

    #[test]
    fn what_the_rounds_scatter_by_is_no_fall() {
        let noisy = [1.0, 1.5, 2.0, 2.5, 3.0];
        let then = baseline(vec![measured("gram", &noisy)]);
        let now = report(vec![measured("gram", &noisy.map(|s| 1.3 * s))]);
        assert!(then.compare(&now, 0.1).fallen().is_empty());
        let now = report(vec![measured("gram", &noisy.map(|s| 4.0 * s))]);
        assert_eq!(then.compare(&now, 0.1).fallen().len(), 1);
    }

    #[test]
    fn what_is_on_one_side_only_is_listed() {
        let then = baseline(vec![measured("gram", &[1.0]), measured("update", &[1.0])]);
        let now = report(vec![measured("gram", &[1.0]), measured("random", &[1.0])]);
        let found = then.compare(&now, 0.1);
        assert_eq!(found.changes.len(), 1);
        assert_eq!(found.gone, ["update, D = 1"]);
        assert_eq!(found.new, ["random, D = 1"]);
        let text = found.to_text();
        assert!(text.contains("in the baseline only") && text.contains("not in the baseline"));
    }

    #[test]
    fn another_machine_and_other_files_are_refused() {
        let then = baseline(vec![measured("gram", &[1.0])]);
        let path = Path::new("then.json");
        let device = "cpu, 1 thread, portable";
        assert!(then.check_machine(path, device, "a processor").is_ok());
        assert!(then.check_machine(path, device, "another").is_err());
        let threads = then.check_machine(path, "cpu, 2 threads, portable", "a processor");
        assert!(threads.unwrap_err().to_string().contains("1 thread"));

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("then.json");
        for text in [
            "{",
            "{}",
            r#"{"kind": "lanes", "device": "cpu"}"#,
            r#"{"kind": "bench", "device": "cpu"}"#,
        ] {
            std::fs::write(&path, text).unwrap();
            assert!(Baseline::load(&path).is_err(), "{text}");
        }
        std::fs::write(&path, report(vec![measured("gram", &[1.0])]).to_json()).unwrap();
        assert!(Baseline::load(&path).is_ok());
    }
}
