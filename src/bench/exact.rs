//! Exact sums at every width of the grid, beside f64 ones: ours and others'.
//!
//! Every round times all widths, our f64 sums and every peer in turn, so that the ratio of any two is one of the same
//! minutes. A width has a measurement of its own in which the others stand as peers; its share of peak is that of f64
//! multiply-adds, one for each that f64 sums would need. One for the units that a way uses would be another
//! [`Limit`], by [`way`](muso::engine::exact::ExactAccumulator::way).

use std::time::Instant;

use anyhow::Result;
use muso::engine::exact::ExactSpec;
use muso::engine::{CpuEngine, Dtype, Engine, Matrix};
use muso::progress::Progress;

use super::case::Case;
use super::cpu::{Bench, Steps, empty_report};
use super::inputs::{exact_gram, exact_spec};
use super::peers::{Local, Peer};
use super::work::Task;
use super::{BenchReport, Growth, Limit, Measurement, Operation, Options, PeerMeasurement, Spread};

/// Bits of the grids.
const WIDTHS: [u32; 5] = [20, 22, 27, 34, 41];
/// D where N varies, and N where D varies.
const FIXED: (usize, usize) = (512, 8_000);
const FIXED_QUICK: (usize, usize) = (64, 1_000);
/// The others.
const SIZES: (&[usize], &[usize]) = (&[5_000, 20_000, 80_000], &[128, 512, 2_048]);
const SIZES_QUICK: (&[usize], &[usize]) = (&[1_000, 2_000], &[64, 128]);
/// Name of our sums in f64.
const F64: &str = "ours f64";

/// Measures all widths at all sizes.
pub(crate) fn run(
    engine: &CpuEngine,
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<BenchReport> {
    let ((cols, rows), (over_rows, over_cols)) = match options.quick {
        true => (FIXED_QUICK, SIZES_QUICK),
        false => (FIXED, SIZES),
    };
    let by_rows = over_rows.iter().map(|&n| (n, cols));
    let by_cols = over_cols.iter().map(|&d| (rows, d));
    let mut shapes: Vec<(usize, usize)> = by_rows.clone().chain(by_cols.clone()).collect();
    shapes.sort_unstable();
    shapes.dedup();
    let mut report = empty_report(engine, options);
    let bench = Bench::new(engine, options, &mut report)?;
    let mut measured = Vec::new();
    for (done, &shape) in shapes.iter().enumerate() {
        let mut steps = Steps {
            progress,
            done: done as u64,
            total: shapes.len() as u64,
        };
        measured.push((shape, measure(&bench, shape, &mut steps)?));
    }
    let of = |wanted: (usize, usize)| {
        let found = measured.iter().find(|(shape, _)| *shape == wanted);
        found.map_or(&[][..], |(_, measurements)| measurements)
    };
    report.growth = vec![
        growth(
            (format!("Exact sums: seconds over N, D = {cols}"), "N"),
            by_rows.map(|shape| (shape.0, of(shape))),
        ),
        growth(
            (format!("Exact sums: seconds over D, N = {rows}"), "D"),
            by_cols.map(|shape| (shape.1, of(shape))),
        ),
    ];
    let measurements = measured.into_iter().flat_map(|(_, all)| all);
    report.measurements.extend(measurements);
    Ok(report)
}

/// Sums on a grid of one width.
struct Width {
    bits: u32,
    spec: ExactSpec,
    way: &'static str,
    sums: Matrix,
    repeat: usize,
    rounds: Vec<(f64, Limit)>,
}

/// Sums in f64, ours or others', with their distance from each width.
struct Rival<'a> {
    peer: Box<dyn Peer + 'a>,
    differences: Vec<f64>,
    repeat: usize,
    seconds: Vec<f64>,
}

fn measure(
    bench: &Bench<'_>,
    (rows, cols): (usize, usize),
    steps: &mut Steps<'_>,
) -> Result<Vec<Measurement>> {
    let engine = bench.engine;
    let dtype = Dtype::F32;
    let task = Task::Gram { rows, cols, dtype };
    let case = Case::new(engine, task)?;
    let z = case.features();
    let mut widths = Vec::new();
    for bits in WIDTHS {
        steps.at(0, 1)?;
        let spec = exact_spec(bits, cols)?;
        let sums = exact_gram(engine, &spec, z)?.gram;
        let begin = Instant::now();
        exact_gram(engine, &spec, z)?;
        widths.push(Width {
            bits,
            way: engine.exact(&spec)?.way(),
            spec,
            sums,
            repeat: bench.repeat(begin.elapsed().as_secs_f64()),
            rounds: Vec::new(),
        });
    }
    let wanted = case.ours(engine)?.into_matrix();
    let ours = || Ok(case.ours(engine)?.into_matrix());
    let mut peers: Vec<Box<dyn Peer + '_>> = vec![Box::new(Local::new(F64, ours))];
    if let Some(others) = &bench.others {
        peers.extend(others.of(&case, engine, &wanted)?);
    }
    let mut rivals = Vec::new();
    for mut peer in peers {
        steps.at(0, 1)?;
        let (found, seconds) = peer.check()?;
        let gap = |width: &Width| case.difference(&width.sums, &found);
        rivals.push(Rival {
            peer,
            differences: widths.iter().map(gap).collect(),
            repeat: bench.repeat(seconds),
            seconds: Vec::new(),
        });
    }
    for round in 0..bench.rounds {
        let limit = Limit::from(bench.probe.measure(engine));
        for width in &mut widths {
            steps.at(round, bench.rounds)?;
            std::thread::sleep(bench.pause);
            let begin = Instant::now();
            for _ in 0..width.repeat {
                std::hint::black_box(exact_gram(engine, &width.spec, z)?);
            }
            let seconds = begin.elapsed().as_secs_f64() / width.repeat as f64;
            width.rounds.push((seconds, limit));
        }
        for rival in &mut rivals {
            steps.at(round, bench.rounds)?;
            std::thread::sleep(bench.pause);
            rival.seconds.push(rival.peer.time(rival.repeat)?);
        }
    }
    let measurement = |(k, width): (usize, Width)| {
        let shape = format!(
            "N = {rows}, D = {cols}, {} bits by {}, f32 rows",
            width.bits, width.way
        );
        let name = Operation::Exact.name().into();
        let mut measured = Measurement::new(name, shape, task.work(), &width.rounds);
        let beside = |rival: &Rival<'_>| beside(rival, k, &width);
        measured.peers = rivals.iter().map(beside).collect();
        measured
    };
    Ok(widths.into_iter().enumerate().map(measurement).collect())
}

/// A rival as peer of the k-th width.
fn beside(rival: &Rival<'_>, k: usize, width: &Width) -> PeerMeasurement {
    let pairs = rival.seconds.iter().zip(&width.rounds);
    let ratios: Vec<f64> = pairs.map(|(theirs, (own, _))| theirs / own).collect();
    let name = rival.peer.name();
    // The grid moves a value by 2^-bits of the largest at most, to either side.
    let grid = 2_f64.powi(3 - width.bits as i32);
    let rounding = if name.contains("f32") { 1e-4 } else { 1e-12 };
    PeerMeasurement {
        name: name.to_owned(),
        seconds: Spread::of(&rival.seconds),
        ratio: Spread::of(&ratios),
        difference: rival.differences[k],
        tolerance: Some(grid + rounding),
        memory: None,
    }
}

/// Lines of seconds over a size: every width, and every rival once.
fn growth<'a>(
    (title, size): (String, &'static str),
    points: impl Iterator<Item = (usize, &'a [Measurement])>,
) -> Growth {
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    let mut add = |name: String, size: usize, seconds: &Spread| {
        let point = (size as f64, seconds.median);
        match lines.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push(point),
            None => lines.push((name, vec![point])),
        }
    };
    for (size, measurements) in points {
        for (bits, measured) in WIDTHS.iter().zip(measurements) {
            add(format!("exact, {bits} bits"), size, &measured.seconds);
        }
        for peer in measurements.first().iter().flat_map(|m| &m.peers) {
            add(peer.name.clone(), size, &peer.seconds);
        }
    }
    Growth { title, size, lines }
}
