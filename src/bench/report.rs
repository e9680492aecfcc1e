//! What was measured, for people and for programs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::scaling::Scaling;
use super::{Growth, Measurement, PeerMeasurement, Spread};

/// All that was measured on a device.
#[derive(Clone, Debug, Default)]
pub(crate) struct BenchReport {
    /// The device in a few words, with threads and instruction set.
    pub(crate) device: String,
    /// The processor's own name; empty where the system does not tell.
    pub(crate) processor: String,
    /// Set if times are modelled.
    pub(crate) is_virtual: bool,
    /// Set if sizes were reduced.
    pub(crate) quick: bool,
    /// Peers that were looked for, with their versions; none where one is absent.
    pub(crate) libraries: BTreeMap<String, Option<String>>,
    /// Notes on the run.
    pub(crate) notes: Vec<String>,
    /// Measurements in the order in which they were made.
    pub(crate) measurements: Vec<Measurement>,
    /// Growth of the time of sums, where it was measured.
    pub(crate) scaling: Option<Scaling>,
    /// Plots of measurements that vary in one size at a time.
    pub(crate) growth: Vec<Growth>,
    /// Checks against limits.
    pub(crate) checks: Vec<Check>,
}

/// Something that was held against a limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Check {
    /// Set if the limit was met.
    pub(crate) met: bool,
    /// The finding, and the limit.
    pub(crate) text: String,
}

impl Check {
    /// Notes what was found.
    pub(crate) fn new(met: bool, text: String) -> Self {
        Self { met, text }
    }

    /// Returns it as a line.
    fn line(&self) -> String {
        let word = if self.met { "ok" } else { "EXCEEDED" };
        format!("{word}: {}", self.text)
    }
}

/// A measurement as JSON has it: a modelled time has another name than a measured one.
#[derive(Serialize)]
struct Entry<'a> {
    operation: &'a str,
    shape: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    virtual_seconds: Option<f64>,
    spread: Spread,
    flop_per_second: f64,
    bytes_per_second: f64,
    share_of_limit: f64,
    share_spread: Spread,
    bound: &'static str,
    limit_flop_per_second: f64,
    limit_bytes_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    peers: Vec<PeerEntry<'a>>,
}

#[derive(Serialize)]
struct PeerEntry<'a> {
    name: &'a str,
    seconds: f64,
    spread: Spread,
    ratio: Spread,
    difference: f64,
    tolerance: Option<f64>,
    agrees: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_memory_bytes: Option<u64>,
}

impl PeerMeasurement {
    fn entry(&self) -> PeerEntry<'_> {
        PeerEntry {
            name: &self.name,
            seconds: self.seconds.median,
            spread: self.seconds,
            ratio: self.ratio,
            difference: self.difference,
            tolerance: self.tolerance,
            agrees: self.agrees(),
            peak_memory_bytes: self.memory,
        }
    }

    /// "ours is faster by", for a table.
    fn faster(&self) -> String {
        let Spread {
            median, low, high, ..
        } = self.ratio;
        format!("{median:.2}x ({low:.2} to {high:.2})")
    }

    fn verdict(&self) -> String {
        let word = match (self.tolerance, self.agrees()) {
            (None, _) => ", not comparable",
            (_, true) => "",
            (_, false) => ", WRONG",
        };
        format!("{:.1e}{word}", self.difference)
    }
}

impl Measurement {
    fn entry(&self, is_virtual: bool) -> Entry<'_> {
        let seconds = self.seconds.median;
        Entry {
            operation: &self.operation,
            shape: &self.shape,
            seconds: (!is_virtual).then_some(seconds),
            virtual_seconds: is_virtual.then_some(seconds),
            spread: self.seconds,
            flop_per_second: self.work.flops / seconds,
            bytes_per_second: self.work.bytes / seconds,
            share_of_limit: self.share.median,
            share_spread: self.share,
            bound: self.bound(),
            limit_flop_per_second: self.limit.flops,
            limit_bytes_per_second: self.limit.bytes,
            peak_memory_bytes: self.memory,
            peers: self.peers.iter().map(PeerMeasurement::entry).collect(),
        }
    }

    /// GFLOP/s or GB/s, whichever the limit is about.
    fn rate(&self, seconds: f64) -> String {
        match self.bound() {
            "arithmetic" => format!("{:.1} GFLOP/s", self.work.flops / seconds * 1e-9),
            _ => format!("{:.1} GB/s", self.work.bytes / seconds * 1e-9),
        }
    }

    /// The headings, ours and then the peers.
    pub(super) fn cells(&self) -> Vec<Cells> {
        let side = |name: &str, seconds: &Spread, memory: Option<u64>| {
            [
                name.to_owned(),
                format!("{:.3}", seconds.median * 1e3),
                milliseconds(seconds.low, seconds.high),
                milliseconds(seconds.lower, seconds.upper),
                self.rate(seconds.median),
                String::new(),
                String::new(),
                String::new(),
                memory.map_or_else(String::new, |m| format!("{:.0} MiB", m as f64 / 1048576.0)),
                seconds.rounds.to_string(),
            ]
        };
        let mut ours = side("ours", &self.seconds, self.memory);
        ours[5] = format!("{:.0} %", 100.0 * self.share.median);
        let mut lines = vec![COLUMNS.map(str::to_owned), ours];
        for peer in &self.peers {
            let mut line = side(&peer.name, &peer.seconds, peer.memory);
            line[6] = peer.faster();
            line[7] = peer.verdict();
            lines.push(line);
        }
        lines
    }
}

/// A line of a table.
pub(super) type Cells = [String; 10];

/// Headings of the cells of a measurement.
const COLUMNS: [&str; 10] = [
    "",
    "median ms",
    "range",
    "quartiles",
    "rate",
    "of peak",
    "ours is faster by",
    "difference",
    "memory",
    "rounds",
];

fn milliseconds(low: f64, high: f64) -> String {
    let digits = |x: f64| format!("{:.*}", if x >= 0.1 { 0 } else { 2 }, x * 1e3);
    format!("{}–{}", digits(low), digits(high))
}

/// Cells in columns that are as wide as they need be; columns in which nothing is are left out.
fn aligned(lines: &[Cells]) -> String {
    let width = |j: usize| lines.iter().map(|l| l[j].chars().count()).max();
    let used = used(lines);
    let mut text = String::new();
    for line in lines {
        let cells = used.iter().map(|&j| match (j, width(j).unwrap_or(0)) {
            // Names and sentences to the left, numbers to the right.
            (0 | 6 | 7, width) => format!("{:<width$}", line[j]),
            (_, width) => format!("{:>width$}", line[j]),
        });
        let cells: Vec<String> = cells.collect();
        text.push_str(&format!("  {}\n", cells.join("  ").trim_end()));
    }
    text
}

/// The columns that say anything below their heading.
pub(super) fn used(lines: &[Cells]) -> Vec<usize> {
    let says = |&j: &usize| j == 0 || lines[1..].iter().any(|line| !line[j].is_empty());
    (0..COLUMNS.len()).filter(says).collect()
}

impl BenchReport {
    /// Formats the report for a terminal.
    pub(crate) fn to_text(&self) -> String {
        let mut text = format!("{}\n", self.place());
        for line in self.about() {
            text.push_str(&format!("{line}\n"));
        }
        if !self.is_on_processor() {
            text.push_str(&self.device_table());
        }
        for m in self.measurements.iter().filter(|_| self.is_on_processor()) {
            text.push_str(&format!("\n{}: {}\n", m.operation, m.shape));
            text.push_str(&aligned(&m.cells()));
        }
        if let Some(scaling) = &self.scaling {
            text.push_str(&format!("\n{}", scaling.to_text()));
        }
        for (i, check) in self.checks.iter().enumerate() {
            let gap = if i == 0 { "\n" } else { "" };
            text.push_str(&format!("{gap}{}\n", check.line()));
        }
        text
    }

    /// Tables to paste into a document.
    pub(crate) fn to_markdown(&self) -> String {
        let mut text = format!("{}\n", self.place());
        for line in self.about() {
            text.push_str(&format!("\n{line}\n"));
        }
        for m in &self.measurements {
            let lines = m.cells();
            let used = used(&lines);
            text.push_str(&format!("\n{}: {}\n\n", m.operation, m.shape));
            for (i, line) in lines.iter().enumerate() {
                let cells: Vec<&str> = used.iter().map(|&j| line[j].as_str()).collect();
                text.push_str(&format!("| {} |\n", cells.join(" | ")));
                if i == 0 {
                    text.push_str(&format!("|{}\n", "---|".repeat(used.len())));
                }
            }
        }
        if let Some(scaling) = &self.scaling {
            text.push_str(&format!("\n{}", scaling.to_markdown()));
        }
        for check in &self.checks {
            text.push_str(&format!("\n{}\n", check.line()));
        }
        text
    }

    /// Formats the report as JSON.
    pub(crate) fn to_json(&self) -> String {
        let entries = self.measurements.iter().map(|m| m.entry(self.is_virtual));
        let entries: Vec<Entry<'_>> = entries.collect();
        let mut value = serde_json::json!({
            "kind": "bench",
            "device": self.device,
            "processor": self.processor,
            "virtual": self.is_virtual,
            "quick": self.quick,
            "libraries": self.libraries,
            "notes": self.notes,
            "measurements": entries,
            "scaling": self.scaling,
        });
        if !self.checks.is_empty() {
            value["checks"] = serde_json::json!(self.checks);
        }
        format!("{value:#}\n")
    }

    /// Joins two reports of one machine.
    #[must_use]
    pub(crate) fn and(mut self, more: Self) -> Self {
        self.libraries.extend(more.libraries);
        self.notes.extend(more.notes);
        self.measurements.extend(more.measurements);
        self.scaling = self.scaling.or(more.scaling);
        self.growth.extend(more.growth);
        self.checks.extend(more.checks);
        self
    }

    /// Returns what was held against limits, a line each.
    pub(super) fn checked(&self) -> Vec<String> {
        self.checks.iter().map(Check::line).collect()
    }

    /// Returns the limits that were not met, each as a line.
    pub(crate) fn exceeded(&self) -> Vec<String> {
        let exceeded = self.checks.iter().filter(|check| !check.met);
        exceeded.map(Check::line).collect()
    }

    /// Returns the peers whose result is not ours, each as a line.
    pub(crate) fn disagreements(&self) -> Vec<String> {
        let all = self.measurements.iter();
        let wrong = |m: &Measurement| -> Vec<String> {
            let peers = m.peers.iter().filter(|peer| !peer.agrees());
            let line = |peer: &PeerMeasurement| {
                format!(
                    "{}, {}: {} differs from ours by {:.1e}, allowed {:.0e}",
                    m.operation,
                    m.shape,
                    peer.name,
                    peer.difference,
                    peer.tolerance.unwrap_or_default()
                )
            };
            peers.map(line).collect()
        };
        all.flat_map(wrong).collect()
    }

    /// Peers are looked for on the processor only, and only there it has a name.
    fn is_on_processor(&self) -> bool {
        self.device.starts_with("cpu")
    }

    pub(super) fn place(&self) -> String {
        match self.processor.is_empty() {
            true => self.device.clone(),
            false => format!("{} ({})", self.device, self.processor),
        }
    }

    /// Peers, their absence, and notes.
    pub(super) fn about(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .libraries
            .iter()
            .map(|(name, version)| format!("{name}: {}", version.as_deref().unwrap_or("absent")))
            .collect();
        if self.quick {
            lines.push("quick: reduced sizes, to see that it works; the ratios mean little".into());
        }
        lines.extend(self.notes.iter().cloned());
        lines
    }

    /// Formats the measurements of a GPU, one line each: it has no peers.
    fn device_table(&self) -> String {
        let time = match self.is_virtual {
            true => "virtual time",
            false => "time",
        };
        let mut text = format!(
            "\n{:<30} {:<28} {time:>12} {:>9} {:>9} {:>7}  bound by\n",
            "operation", "shape", "GFLOP/s", "GB/s", "limit"
        );
        for m in &self.measurements {
            let seconds = m.seconds.median;
            text.push_str(&format!(
                "{:<30} {:<28} {:>9.3} ms {:>9.1} {:>9.1} {:>5.1} %  {}\n",
                m.operation,
                m.shape,
                seconds * 1e3,
                m.work.flops / seconds * 1e-9,
                m.work.bytes / seconds * 1e-9,
                100.0 * m.share.median,
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
}

#[cfg(test)]
mod tests {
    use super::super::{Limit, Work};
    use super::*;

    fn measured() -> Measurement {
        let limit = Limit {
            flops: 1e12,
            bytes: 1e11,
        };
        let work = Work {
            flops: 1e9,
            bytes: 2e8,
        };
        Measurement::new("gram f32 fma".into(), "1x1".into(), work, &[(4e-3, limit)])
    }

    fn peer(difference: f64, tolerance: Option<f64>) -> PeerMeasurement {
        PeerMeasurement {
            name: "numpy f64".into(),
            seconds: Spread::of(&[8e-3]),
            ratio: Spread::of(&[2.0]),
            difference,
            tolerance,
            memory: None,
        }
    }

    #[test]
    fn the_slower_part_is_the_limit_and_modelled_times_are_named_so() {
        let m = measured();
        assert_eq!((m.share.median, m.bound()), (0.5, "memory"));
        let mut report = BenchReport {
            device: "cuda:0".into(),
            is_virtual: true,
            measurements: vec![m],
            ..BenchReport::default()
        };
        assert!(report.to_text().contains("virtual time"));
        assert!(report.to_json().contains("\"virtual_seconds\": 0.004"));
        report.is_virtual = false;
        assert!(!report.to_text().to_lowercase().contains("virtual"));
        assert!(!report.to_json().contains("virtual_seconds"));
    }

    #[test]
    fn a_limit_that_is_exceeded_is_named() {
        let check = |met, text: &str| Check::new(met, text.into());
        let mut report = BenchReport {
            device: "cpu".into(),
            checks: vec![check(true, "memory 1, limit 2")],
            ..BenchReport::default()
        };
        assert!(report.exceeded().is_empty());
        assert!(report.to_text().ends_with("\nok: memory 1, limit 2\n"));
        report.checks.push(check(false, "time 3, limit 2"));
        assert_eq!(report.exceeded(), ["EXCEEDED: time 3, limit 2"]);
        for text in [report.to_text(), report.to_markdown(), report.to_html()] {
            assert!(text.contains("EXCEEDED: time 3, limit 2"), "{text}");
        }
        assert!(report.to_json().contains("\"met\": false"));
        assert!(!BenchReport::default().to_json().contains("checks"));
    }

    #[test]
    fn peers_stand_below_ours_and_a_wrong_one_is_named() {
        let mut m = measured();
        m.peers = vec![peer(1e-15, Some(1e-12)), peer(7.0, None)];
        let mut report = BenchReport {
            device: "cpu, 2 threads, portable".into(),
            libraries: [("torch".to_owned(), None)].into(),
            measurements: vec![m],
            ..BenchReport::default()
        };
        let text = report.to_text();
        for piece in [
            "torch: absent",
            "50 %",
            "2.00x (2.00 to 2.00)",
            "1.0e-15",
            "7.0e0, not comparable",
        ] {
            assert!(text.contains(piece), "no {piece} in {text}");
        }
        assert!(report.to_markdown().contains("| ours | 4.000 |"));
        assert!(report.disagreements().is_empty());
        for wrong in [1e-3, f64::NAN] {
            report.measurements[0].peers = vec![peer(wrong, Some(1e-12))];
            assert_eq!(report.disagreements().len(), 1);
            assert!(report.to_text().contains("WRONG"));
        }
    }
}
