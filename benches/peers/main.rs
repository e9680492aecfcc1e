//! The CPU engine and the networks beside numpy, scipy and torch: same arrays, same threads, same run.
//!
//! ```text
//! cargo bench --bench peers -- [--rounds N] [--threads N] [--only NAME]... [--quick] [--json FILE]
//! ```
//!
//! The arrays are made here and handed over as `.npy`; one Python process (`$MUSO_PYTHON` or `python3`) holds the
//! peers. First every result is checked against ours, and a mismatch is an error. Then each round times ours and every
//! peer in turn, and the table gives medians and the ratio within rounds: above 1, ours is the faster one. What is not
//! installed is listed as absent; without Python or numpy there is nothing to compare and the bench says so.

#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "nn")]
mod networks;
mod python;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use muso::engine::{CpuEngine, Engine, Matrix, Rows};
use serde_json::{Value, json};

use common::{decaying_features, gaussian, gaussian_f32, gram, label_update, median, range};
use python::{Array, Python};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What a turn should last, so that short operations are repeated.
const TURN: Duration = Duration::from_millis(60);
/// Idle time before a turn: the threads of the one before may still spin.
const PAUSE: Duration = Duration::from_millis(60);
/// Both when only seeing that it works.
const QUICK: Duration = Duration::from_millis(10);
/// Rounds for what takes seconds.
const SLOW_ROUNDS: usize = 3;
const SLOW: Duration = Duration::from_secs(2);

fn main() -> Outcome<()> {
    let options = Options::parse()?;
    let engine = CpuEngine::new(options.threads)?;
    println!("ours: {}", engine.describe());
    if options.quick {
        println!("quick: reduced sizes, to see that it works; the ratios mean little");
    }
    let dir = tempfile::tempdir()?;
    let mut python = match Python::start(engine.threads())? {
        Ok(python) => python,
        Err(why) => {
            println!("no peers: {why}");
            return Ok(());
        }
    };
    for (name, version) in &python.libraries {
        println!("{name}: {}", version.as_deref().unwrap_or("absent"));
    }

    let mut results = Vec::new();
    let threads = engine.threads();
    for case in cases(options.quick)?
        .into_iter()
        .chain(network_cases(&options, threads)?)
    {
        if options.takes(&case.name) {
            let measured = measure(&engine, &case, &mut python, dir.path(), &options)?;
            measured.print(options.quick);
            results.push(measured);
        }
    }
    if results.is_empty() {
        return Err(format!("--only {:?} names no operation", options.only).into());
    }
    if let Some(path) = &options.json {
        let report = json!({
            "kind": "peers",
            "quick": options.quick,
            "engine": engine.describe(),
            "libraries": python.libraries.iter().cloned().collect::<BTreeMap<_, _>>(),
            "operations": results.iter().map(Measured::to_json).collect::<Vec<_>>(),
        });
        std::fs::write(path, serde_json::to_string_pretty(&report)? + "\n")?;
    }
    Ok(())
}

struct Options {
    rounds: usize,
    threads: Option<usize>,
    only: Vec<String>,
    quick: bool,
    json: Option<String>,
}

impl Options {
    fn parse() -> Outcome<Self> {
        let mut options = Self {
            rounds: 7,
            threads: None,
            only: Vec::new(),
            // Without cargo's `--bench` this is `cargo test --benches`: only see that it works.
            quick: true,
            json: None,
        };
        let mut asked_quick = false;
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || {
                let missing = format!("{word} needs a value");
                words.next().ok_or(missing)
            };
            match word.as_str() {
                "--bench" => options.quick = false,
                "--quick" => asked_quick = true,
                "--rounds" => options.rounds = value()?.parse::<usize>()?.max(1),
                "--threads" => options.threads = Some(value()?.parse::<usize>()?.max(1)),
                "--only" => options.only.push(value()?),
                "--json" => options.json = Some(value()?),
                other => return Err(format!("unknown argument {other}").into()),
            }
        }
        options.quick |= asked_quick;
        if options.quick {
            options.rounds = options.rounds.min(3);
        }
        Ok(options)
    }

    /// Whether an operation was asked for: by its name or the part before the shape.
    fn takes(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| name.starts_with(only.as_str()))
    }
}

/// One operation on one set of arrays.
struct Case {
    name: String,
    kind: Kind,
    shape: String,
    arrays: Vec<(&'static str, Array)>,
    ridge: f64,
    /// FLOPs, for the rate.
    work: f64,
    #[cfg(feature = "nn")]
    network: Option<networks::Prepared>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Gram,
    Cholesky,
    Projection,
    Update,
    #[cfg(feature = "nn")]
    Extraction,
    #[cfg(feature = "nn")]
    Training,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Gram => "gram",
            Self::Cholesky => "cholesky",
            Self::Projection => "projection",
            Self::Update => "update",
            #[cfg(feature = "nn")]
            Self::Extraction => "extraction",
            #[cfg(feature = "nn")]
            Self::Training => "training",
        }
    }

    /// The largest difference from ours that is rounding; nothing where the variant is known to be wrong.
    fn tolerance(self, variant: &str) -> Option<f64> {
        match (self, variant) {
            // Its Woodbury form has (λI)⁻¹ where I belongs; what it gives is not the projector.
            (_, variant) if variant.contains("authors") => None,
            // It subtracts numbers of size ‖G‖/λ that nearly cancel.
            (_, variant) if variant.contains("woodbury") => Some(1e-2),
            (Self::Gram, variant) if variant.contains("f32") => Some(1e-4),
            (Self::Gram, _) => Some(1e-12),
            (Self::Cholesky, _) => Some(1e-9),
            // Rows whose two best classes are equal but for rounding.
            (Self::Projection, variant) if variant.contains("f32") => Some(1e-3),
            (Self::Projection, _) => Some(0.0),
            (Self::Update, _) => Some(1e-5),
            #[cfg(feature = "nn")]
            (Self::Extraction, _) => Some(1e-4),
            // A ReLU whose input is within rounding of zero falls to either side, and the gradient follows.
            #[cfg(feature = "nn")]
            (Self::Training, _) => Some(5e-2),
        }
    }
}

fn cases(quick: bool) -> Outcome<Vec<Case>> {
    let shrink = |full: usize, reduced: usize| if quick { reduced } else { full };
    let mut cases = Vec::new();

    for (d, full) in [(128, 80_000), (512, 20_000), (2_048, 8_000)] {
        let (n, d) = (shrink(full, 2_000), shrink(d, d.min(256)));
        if quick && cases.len() == 2 {
            continue;
        }
        cases.push(Case {
            name: format!("gram-{d}"),
            kind: Kind::Gram,
            shape: format!("N = {n}, D = {d}, f32 rows"),
            arrays: vec![("z", Array::f32(n, d, gaussian_f32(n * d, 1)))],
            ridge: 0.0,
            work: n as f64 * (d * d) as f64,
            #[cfg(feature = "nn")]
            network: None,
        });
    }

    let engine = CpuEngine::new(None)?;
    for d in [512, 2_048] {
        let (d, c) = (shrink(d, d / 4), 100);
        let z = gaussian_f32((d + d / 2) * d, 2);
        let rows = Rows::new(d + d / 2, d, z.as_slice());
        let mut a = gram(&engine, rows, false)?.gram;
        for i in 0..d {
            a[(i, i)] += 1.0;
        }
        cases.push(Case {
            name: format!("cholesky-{d}"),
            kind: Kind::Cholesky,
            shape: format!("D = {d}, C = {c}, factor and solve, f64"),
            arrays: vec![("a", Array::F64(a)), ("b", Array::F64(gaussian(d, c, 3)))],
            ridge: 0.0,
            work: (d as f64).powi(3) / 3.0 + 2.0 * (d * d * c) as f64,
            #[cfg(feature = "nn")]
            network: None,
        });
    }

    let (n, d, c) = (shrink(100_000, 5_000), 512, 10);
    cases.push(Case {
        name: "projection".into(),
        kind: Kind::Projection,
        shape: format!("N = {n}, D = {d}, C = {c}, f32 rows, with argmax"),
        arrays: vec![
            ("z", Array::f32(n, d, gaussian_f32(n * d, 4))),
            ("w", Array::F64(gaussian(d, c, 5))),
        ],
        ridge: 0.0,
        work: 2.0 * (n * d * c) as f64,
        #[cfg(feature = "nn")]
        network: None,
    });

    let (n, forgotten, d, c) = (shrink(4_000, 600), shrink(400, 60), shrink(512, 128), 100);
    cases.push(Case {
        name: "update".into(),
        kind: Kind::Update,
        shape: format!(
            "N_s = {n}, D = {d} + bias, C = {c}, N_u = {forgotten}, ridge 1e-6, f32 rows"
        ),
        // Columns down to 1e-5: in the last ones a ridge of 1e-6 is about as large as the data.
        arrays: vec![
            (
                "retained",
                Array::f32(n, d, decaying_features(n, d, 1e-5, 6)),
            ),
            (
                "forgotten",
                Array::f32(forgotten, d, decaying_features(forgotten, d, 1e-2, 7)),
            ),
            ("trained", Array::F64(gaussian(d + 1, c, 8))),
            ("init", Array::F64(gaussian(d + 1, c, 9))),
        ],
        ridge: 1e-6,
        work: n as f64 * (d * d) as f64,
        #[cfg(feature = "nn")]
        network: None,
    });
    Ok(cases)
}

#[cfg(not(feature = "nn"))]
fn network_cases(_: &Options, _: usize) -> Outcome<Vec<Case>> {
    Ok(Vec::new())
}

/// Made only when asked for: the larger ones take a while.
#[cfg(feature = "nn")]
fn network_cases(options: &Options, threads: usize) -> Outcome<Vec<Case>> {
    // Networks run on the pool of whoever calls them, here the common one.
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global()?;
    let mut cases = Vec::new();
    for (architecture, count, multiplications) in networks::NETWORKS {
        if options.quick && count * multiplications as usize > 6_000_000_000 {
            continue;
        }
        let count = if options.quick { count / 16 } else { count };
        for (kind, factor) in [(Kind::Extraction, 2.0), (Kind::Training, 6.0)] {
            let name = format!("networks-{architecture}-{}", kind.name());
            if !options.takes(&name) {
                continue;
            }
            let network = networks::Prepared::new(architecture, count)?;
            cases.push(Case {
                name,
                kind,
                shape: format!("{architecture}, {count} images, f32"),
                arrays: network.arrays(),
                ridge: 0.0,
                work: factor * multiplications * count as f64,
                network: Some(network),
            });
        }
    }
    Ok(cases)
}

impl Case {
    #[cfg(feature = "nn")]
    fn network(&self) -> &networks::Prepared {
        let network = self.network.as_ref();
        network.expect("the case has the network its kind needs")
    }

    /// What a peer must know beyond the arrays.
    fn parameter(&self) -> Value {
        #[cfg(feature = "nn")]
        if let Some(network) = &self.network {
            return network.describe();
        }
        json!(self.ridge)
    }

    fn array(&self, name: &str) -> &Array {
        let found = self.arrays.iter().find(|(n, _)| *n == name);
        &found.expect("the case has the array its kind needs").1
    }

    fn ours(&self, engine: &CpuEngine) -> muso::Result<Matrix> {
        match self.kind {
            Kind::Gram => Ok(gram(engine, self.array("z").rows(), false)?.gram),
            Kind::Cholesky => {
                let factor = engine.factor(self.array("a").matrix(), 0.0)?;
                engine.solve(&factor, self.array("b").matrix())
            }
            Kind::Projection => {
                let best =
                    engine.project_argmax(self.array("z").rows(), self.array("w").matrix())?;
                let values = best.into_iter().map(f64::from).collect::<Vec<_>>();
                Ok(Matrix::from_vec(values.len(), 1, values))
            }
            Kind::Update => label_update(
                engine,
                self.array("retained").rows(),
                self.array("forgotten").rows(),
                self.array("trained").matrix(),
                self.array("init").matrix(),
                self.ridge,
            ),
            #[cfg(feature = "nn")]
            Kind::Extraction => Ok(widened(self.network().extraction())),
            #[cfg(feature = "nn")]
            Kind::Training => Ok(widened(self.network().training())),
        }
    }

    /// Largest difference from ours over the largest entry; of labels, the share that differs.
    fn difference(&self, ours: &Matrix, theirs: &Matrix) -> f64 {
        if self.kind == Kind::Projection {
            let pairs = ours.as_slice().iter().zip(theirs.as_slice());
            return pairs.filter(|(a, b)| a != b).count() as f64 / ours.rows() as f64;
        }
        let (mut largest, mut scale) = (0.0_f64, f64::MIN_POSITIVE);
        for i in 0..ours.rows() {
            // `dsyrk` leaves the upper triangle alone.
            let end = if self.kind == Kind::Gram {
                i + 1
            } else {
                ours.cols()
            };
            for (a, b) in ours.row(i)[..end].iter().zip(theirs.row(i)) {
                let gap = (a - b).abs();
                // NaN counts as the largest difference there is.
                largest = if gap.is_nan() {
                    f64::INFINITY
                } else {
                    largest.max(gap)
                };
                scale = scale.max(a.abs());
            }
        }
        largest / scale
    }

    /// What a peer is given: for the update, features with their column of ones.
    fn handed_over(&self, array: &Array) -> Array {
        match (self.kind, array) {
            (Kind::Update, Array::F32 { cols, values, .. }) => {
                let with_ones: Vec<f32> = values
                    .chunks_exact(*cols)
                    .flat_map(|row| row.iter().copied().chain([1.0]))
                    .collect();
                Array::f32(values.len() / cols, cols + 1, with_ones)
            }
            _ => array.clone(),
        }
    }
}

#[cfg(feature = "nn")]
fn widened((rows, values): (usize, Vec<f32>)) -> Matrix {
    let values: Vec<f64> = values.into_iter().map(f64::from).collect();
    Matrix::from_vec(rows, values.len() / rows, values)
}

/// Times of one implementation, one a round.
struct Peer {
    name: String,
    difference: f64,
    checked: bool,
    seconds: Vec<f64>,
    /// Peer's time over ours in the same round.
    ratios: Vec<f64>,
}

struct Measured {
    name: String,
    shape: String,
    work: f64,
    ours: Vec<f64>,
    peers: Vec<Peer>,
}

fn measure(
    engine: &CpuEngine,
    case: &Case,
    python: &mut Python,
    dir: &Path,
    options: &Options,
) -> Outcome<Measured> {
    let (turn, pause) = if options.quick {
        (QUICK, QUICK)
    } else {
        (TURN, PAUSE)
    };
    let mut paths = serde_json::Map::new();
    for (name, array) in &case.arrays {
        let path = dir.join(format!("{name}.npy"));
        case.handed_over(array).write_npy(&path)?;
        paths.insert((*name).into(), json!(path));
    }
    let loaded = python.ask(&json!({
        "do": "load", "case": case.name, "kind": case.kind.name(), "arrays": paths, "parameter": case.parameter(),
    }))?;
    let variants: Vec<String> = serde_json::from_value(loaded["variants"].clone())?;

    let wanted = case.ours(engine)?;
    let begin = Instant::now();
    case.ours(engine)?;
    let repeat = repeats(turn, begin.elapsed());
    let mut peers = Vec::new();
    let mut slow = Vec::new();
    for name in variants {
        let out = dir.join("result");
        let took = python.seconds(&json!({"do": "check", "variant": name, "out": out}))?;
        let found = python::read_f64(&out, wanted.rows(), wanted.cols())?;
        let difference = case.difference(&wanted, &found);
        let tolerance = case.kind.tolerance(&name);
        if tolerance.is_some_and(|limit| difference > limit) {
            return Err(format!(
                "{}: {name} differs from ours by {difference:.1e}, allowed {:.0e}",
                case.name,
                tolerance.unwrap_or_default()
            )
            .into());
        }
        slow.push(took > SLOW.as_secs_f64());
        peers.push(Peer {
            name,
            difference,
            checked: tolerance.is_some(),
            seconds: Vec::new(),
            ratios: Vec::new(),
        });
    }

    let mut ours = Vec::new();
    for round in 0..options.rounds {
        std::thread::sleep(pause);
        let begin = Instant::now();
        for _ in 0..repeat {
            case.ours(engine)?;
        }
        let own = begin.elapsed().as_secs_f64() / repeat as f64;
        ours.push(own);
        for (peer, &slow) in peers.iter_mut().zip(&slow) {
            if slow && round >= SLOW_ROUNDS {
                continue;
            }
            std::thread::sleep(pause);
            let repeat = if slow { 1 } else { repeat };
            let request = json!({"do": "time", "variant": peer.name, "repeat": repeat});
            let seconds = python.seconds(&request)?;
            peer.seconds.push(seconds);
            peer.ratios.push(seconds / own);
        }
    }
    Ok(Measured {
        name: case.name.clone(),
        shape: case.shape.clone(),
        work: case.work,
        ours,
        peers,
    })
}

fn repeats(turn: Duration, once: Duration) -> usize {
    (turn.as_secs_f64() / once.as_secs_f64().max(1e-6)).ceil() as usize
}

impl Measured {
    fn print(&self, quick: bool) {
        let note = if quick { " (quick)" } else { "" };
        println!("\n{}: {}{note}", self.name, self.shape);
        println!(
            "  {:<24}{:>11}{:>9}{:>11}   {:<27}difference",
            "", "median ms", "spread", "GFLOP/s", "ours is faster by"
        );
        self.line("ours", &self.ours, "");
        for peer in &self.peers {
            let (low, high) = range(&peer.ratios);
            let mut ratio = format!("{:.2}x ({low:.2} to {high:.2})", median(&peer.ratios));
            ratio = format!("{ratio:<27}{:.1e}", peer.difference);
            if !peer.checked {
                ratio += ", not comparable";
            }
            self.line(&peer.name, &peer.seconds, &ratio);
        }
    }

    fn line(&self, name: &str, seconds: &[f64], ratio: &str) {
        let middle = median(seconds);
        let (low, high) = range(seconds);
        println!(
            "  {name:<24}{:>11.3}{:>8.0}%{:>11.1}   {ratio}",
            middle * 1e3,
            (high - low) / middle * 100.0,
            self.work / middle / 1e9,
        );
    }

    fn to_json(&self) -> Value {
        let side = |seconds: &[f64]| {
            let (low, high) = range(seconds);
            json!({"median_seconds": median(seconds), "min_seconds": low, "max_seconds": high,
                   "rounds": seconds.len(), "gflops": self.work / median(seconds) / 1e9})
        };
        let peers: serde_json::Map<String, Value> = self
            .peers
            .iter()
            .map(|peer| {
                let (low, high) = range(&peer.ratios);
                let mut entry = side(&peer.seconds);
                entry["difference"] = json!(peer.difference);
                entry["checked"] = json!(peer.checked);
                entry["ratio"] = json!({"median": median(&peer.ratios), "min": low, "max": high});
                (peer.name.clone(), entry)
            })
            .collect();
        json!({"name": self.name, "shape": self.shape, "ours": side(&self.ours), "peers": peers})
    }
}
