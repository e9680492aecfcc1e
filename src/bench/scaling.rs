//! How the time of sums over rows grows with N, with D and with the threads.
//!
//! Rows are made on the fly into one batch that is filled anew each time, and only the sums are timed: there is no limit
//! to N but patience, and memory stays that of one batch.

use std::time::Instant;

use muso::engine::{CpuEngine, Engine, Rows, SumsSpec, Targets};
use muso::progress::{Progress, check};
use muso::report::PageTable;
use muso::{Error, Result};
use serde::Serialize;

use super::cpu::empty_report;
use super::{BenchReport, Options, Spread};

/// Rows of a batch.
const BATCH: usize = 4_096;
/// D where N varies.
const COLS: usize = 512;
/// N where D varies.
const ROWS: usize = 16_384;
/// Times of a point that takes no minute.
const ROUNDS: usize = 3;
/// Pairs of one thread and all.
const PAIRS: usize = 15;

/// Default for the largest number of rows.
pub(crate) const LARGEST: usize = 10_000_000;
/// Default for the largest number of rows with reduced sizes.
pub(crate) const LARGEST_QUICK: usize = 40_000;

/// Growth of the time of sums.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Scaling {
    /// D where N varies.
    pub(crate) cols: usize,
    /// Seconds at growing N.
    pub(crate) over_rows: Vec<Point>,
    /// x in seconds ∝ Nˣ, by least squares on logarithms.
    pub(crate) rows_exponent: f64,
    /// N where D varies.
    pub(crate) rows: usize,
    /// Seconds at growing D.
    pub(crate) over_cols: Vec<Point>,
    /// x in seconds ∝ Dˣ, by least squares on logarithms.
    pub(crate) cols_exponent: f64,
    /// Comparison of one thread with all.
    pub(crate) threads: Threads,
}

/// The time at one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Point {
    /// Size of the point, N or D.
    pub(crate) size: usize,
    /// Median over the rounds.
    pub(crate) seconds: f64,
}

/// Comparison of one thread with all, which take turns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Threads {
    /// Number of threads when all are used.
    pub(crate) threads: usize,
    /// Number of rows, N.
    pub(crate) rows: usize,
    /// Seconds with one thread.
    pub(crate) one: Spread,
    /// Seconds with all threads.
    pub(crate) all: Spread,
    /// Ratio of the time of one thread to that of all, within pairs.
    pub(crate) speedup: Spread,
}

/// A batch that is filled with other values each time, cheaply.
struct Batch {
    values: Vec<f32>,
    cols: usize,
    state: u64,
}

impl Batch {
    fn new(cols: usize) -> Self {
        Self {
            values: vec![0.0; BATCH * cols],
            cols,
            state: 0x9E37_79B9_7F4A_7C15,
        }
    }

    /// Values in −1..1 by xorshift.
    fn fill(&mut self) {
        let mut x = self.state;
        for value in &mut self.values {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            *value = (x >> 40) as f32 / (1_u32 << 23) as f32 - 1.0;
        }
        self.state = x;
    }

    fn rows(&self, count: usize) -> Rows<'_> {
        Rows::new(count, self.cols, &self.values[..count * self.cols])
    }
}

/// Seconds of the sums over `rows` rows, without making them: `next` makes those of a batch.
fn sums(
    engine: &CpuEngine,
    batch: &mut Batch,
    rows: usize,
    next: impl Fn(&mut Batch),
    stop: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<f64> {
    let spec = SumsSpec {
        features: batch.cols,
        bias: false,
        targets: 0,
    };
    let mut seconds = 0.0;
    let mut total = engine.accumulator(spec)?;
    for start in (0..rows).step_by(BATCH) {
        stop(start)?;
        next(batch);
        let part = batch.rows(BATCH.min(rows - start));
        let begin = Instant::now();
        engine.accumulate(&mut total, part, Targets::None)?;
        seconds += begin.elapsed().as_secs_f64();
    }
    let begin = Instant::now();
    std::hint::black_box(engine.finish(total)?);
    Ok(seconds + begin.elapsed().as_secs_f64())
}

/// Measures up to `largest` rows.
pub(crate) fn run(
    engine: &CpuEngine,
    largest: usize,
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<BenchReport> {
    let least = 10_000;
    if largest <= least {
        return Err(Error::Parameter {
            name: "`.largest`",
            value: largest.to_string(),
            expected: format!("more than {least} rows"),
        });
    }
    let rounds = options.rounds(ROUNDS)?;
    let sizes = decades(least, largest);
    let mut over_rows = Vec::new();
    let mut batch = Batch::new(COLS);
    // Once, so that threads and pages are there.
    sums(engine, &mut batch, BATCH, Batch::fill, &mut |_| Ok(()))?;
    for rows in sizes {
        // The long ones are their own average.
        let rounds = if rows > 1_000_000 { 1 } else { rounds };
        let mut seconds = Vec::new();
        for round in 0..rounds {
            let mut stop = |done: usize| {
                let (done, all) = ((round * rows + done) as u64, (rounds * rows) as u64);
                check(progress, &format!("{rows} rows"), done, all)
            };
            seconds.push(sums(engine, &mut batch, rows, Batch::fill, &mut stop)?);
        }
        over_rows.push(point(rows, &seconds));
    }
    let (rows, orders): (usize, &[usize]) = match options.quick {
        true => (BATCH, &[128, 256]),
        false => (ROWS, &[128, 256, 512, 1_024, 2_048]),
    };
    let over_cols = growing_cols(engine, rows, orders, rounds, progress)?;
    let pairs = options.rounds(PAIRS)?;
    let compared = if options.quick { BATCH } else { 100_000 };
    let scaling = Scaling {
        cols: COLS,
        rows_exponent: exponent(&over_rows),
        over_rows,
        rows,
        cols_exponent: exponent(&over_cols),
        over_cols,
        threads: threads(engine.threads(), compared, pairs, progress)?,
    };
    Ok(BenchReport {
        scaling: Some(scaling),
        ..empty_report(engine, options)
    })
}

/// Powers of ten from one size to another, both included.
fn decades(least: usize, largest: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> = std::iter::successors(Some(least), |size| size.checked_mul(10))
        .take_while(|&size| size < largest)
        .collect();
    sizes.push(largest);
    sizes
}

fn growing_cols(
    engine: &CpuEngine,
    rows: usize,
    orders: &[usize],
    rounds: usize,
    progress: &mut dyn Progress,
) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    for (k, &cols) in orders.iter().enumerate() {
        let mut batch = Batch::new(cols);
        let mut stop = |_| check(progress, "columns", k as u64, orders.len() as u64);
        let mut seconds = Vec::new();
        for _ in 0..rounds {
            seconds.push(sums(engine, &mut batch, rows, Batch::fill, &mut stop)?);
        }
        points.push(point(cols, &seconds));
    }
    Ok(points)
}

fn threads(
    threads: usize,
    rows: usize,
    pairs: usize,
    progress: &mut dyn Progress,
) -> Result<Threads> {
    let engines = [CpuEngine::new(Some(1))?, CpuEngine::new(Some(threads))?];
    let mut batch = Batch::new(COLS);
    batch.fill();
    let mut seconds = [Vec::new(), Vec::new()];
    for pair in 0..pairs {
        for (engine, seconds) in engines.iter().zip(&mut seconds) {
            let mut stop = |_| check(progress, "threads", pair as u64, pairs as u64);
            // One batch again and again: to make the next, a thread of its own would come between theirs. And not at
            // once: threads that have slept may wake up on one core, until the system parts them.
            sums(engine, &mut batch, 4 * BATCH, |_| {}, &mut stop)?;
            seconds.push(sums(engine, &mut batch, rows, |_| {}, &mut stop)?);
        }
    }
    let [one, all] = seconds;
    let ratios: Vec<f64> = one.iter().zip(&all).map(|(one, all)| one / all).collect();
    Ok(Threads {
        threads,
        rows,
        one: Spread::of(&one),
        all: Spread::of(&all),
        speedup: Spread::of(&ratios),
    })
}

fn point(size: usize, seconds: &[f64]) -> Point {
    Point {
        size,
        seconds: Spread::of(seconds).median,
    }
}

/// The slope of log seconds over log size.
fn exponent(points: &[Point]) -> f64 {
    let logs = points
        .iter()
        .map(|p| ((p.size as f64).ln(), p.seconds.ln()));
    let logs: Vec<(f64, f64)> = logs.collect();
    let n = logs.len() as f64;
    let (x, y) = logs
        .iter()
        .fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y));
    let (x, y) = (x / n, y / n);
    let along: f64 = logs.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let across: f64 = logs.iter().map(|p| (p.0 - x).powi(2)).sum();
    along / across
}

impl Scaling {
    /// Formats the tables for a terminal.
    pub(crate) fn to_text(&self) -> String {
        let mut text = format!(
            "sums over rows made on the fly, D = {}\n  {:>10}  {:>10}  {:>22}\n",
            self.cols, "rows", "seconds", "seconds a million rows"
        );
        for p in &self.over_rows {
            text.push_str(&format!(
                "  {:>10}  {:>10.3}  {:>22.3}\n",
                p.size,
                p.seconds,
                1e6 * p.seconds / p.size as f64
            ));
        }
        text.push_str(&format!(
            "  seconds grow as N^{:.3}\n\nthe same, N = {}\n  {:>10}  {:>10}  {:>10}\n",
            self.rows_exponent, self.rows, "D", "seconds", "GFLOP/s"
        ));
        for p in &self.over_cols {
            text.push_str(&format!(
                "  {:>10}  {:>10.3}  {:>10.1}\n",
                p.size,
                p.seconds,
                self.rate(p)
            ));
        }
        text.push_str(&format!(
            "  seconds grow as D^{:.3}\n\n{}\n",
            self.cols_exponent,
            self.threads_line()
        ));
        text
    }

    /// Tables to paste into a document.
    pub(crate) fn to_markdown(&self) -> String {
        let mut text = String::new();
        for table in self.tables() {
            let rule = "---|".repeat(table.columns.len());
            let columns = table.columns.join(" | ");
            text.push_str(&format!("{}:\n\n| {columns} |\n|{rule}\n", table.caption));
            for row in table.rows {
                text.push_str(&format!("| {} |\n", row.join(" | ")));
            }
            text.push('\n');
        }
        text
    }

    /// Over rows, over columns and over threads.
    pub(crate) fn tables(&self) -> [PageTable; 3] {
        let texts = |texts: [&str; 3]| texts.map(str::to_owned).to_vec();
        let rows = self.over_rows.iter().map(|p| {
            let each = 1e6 * p.seconds / p.size as f64;
            let seconds = format!("{:.3}", p.seconds);
            texts([&p.size.to_string(), &seconds, &format!("{each:.3}")])
        });
        let cols = self.over_cols.iter().map(|p| {
            let (seconds, rate) = (format!("{:.3}", p.seconds), self.rate(p));
            texts([&p.size.to_string(), &seconds, &format!("{rate:.1}")])
        });
        let t = &self.threads;
        let speedup = format!(
            "{:.2} ({:.2} to {:.2})",
            t.speedup.median, t.speedup.low, t.speedup.high
        );
        let threads = [(1, &t.one, String::new()), (t.threads, &t.all, speedup)];
        let threads = threads.map(|(count, seconds, speedup)| {
            let seconds = format!("{:.3}", seconds.median);
            texts([&count.to_string(), &seconds, &speedup])
        });
        [
            PageTable {
                caption: format!(
                    "Sums over rows made on the fly, D = {}; seconds grow as N^{:.3}",
                    self.cols, self.rows_exponent
                ),
                columns: texts(["rows", "seconds", "seconds a million rows"]),
                rows: rows.collect(),
            },
            PageTable {
                caption: format!(
                    "The same, N = {}; seconds grow as D^{:.3}",
                    self.rows, self.cols_exponent
                ),
                columns: texts(["D", "seconds", "GFLOP/s"]),
                rows: cols.collect(),
            },
            PageTable {
                caption: format!("The same, N = {}, {} pairs", t.rows, t.speedup.rounds),
                columns: texts(["threads", "seconds", "faster by"]),
                rows: threads.to_vec(),
            },
        ]
    }

    /// GFLOP/s of a point over D, one triangle counted.
    fn rate(&self, point: &Point) -> f64 {
        self.rows as f64 * (point.size as f64).powi(2) / point.seconds * 1e-9
    }

    fn threads_line(&self) -> String {
        let t = &self.threads;
        format!(
            "{} rows, one thread against {}: {:.3} s and {:.3} s, {:.2}x ({:.2} to {:.2}), {} pairs",
            t.rows,
            t.threads,
            t.one.median,
            t.all.median,
            t.speedup.median,
            t.speedup.low,
            t.speedup.high,
            t.speedup.rounds
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponent_is_that_of_the_law() {
        let points = [10, 100, 1000].map(|size| Point {
            size,
            seconds: 3.0 * (size as f64).powi(2),
        });
        assert!((exponent(&points) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn decades_end_at_the_largest() {
        assert_eq!(decades(10, 1000), [10, 100, 1000]);
        assert_eq!(decades(10, 250), [10, 100, 250]);
        assert_eq!(decades(10, 10), [10]);
    }

    #[test]
    fn batches_differ_and_stay_in_range() {
        let mut batch = Batch::new(2);
        batch.fill();
        let first = batch.values.clone();
        batch.fill();
        assert_ne!(first, batch.values);
        assert!(batch.values.iter().all(|x| (-1.0..=1.0).contains(x)));
        let mean = batch.values.iter().sum::<f32>() / batch.values.len() as f32;
        assert!(mean.abs() < 0.1, "{mean}");
    }
}
