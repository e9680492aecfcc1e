//! `muso bench`: how fast the operations are here, how near that is to what the device can do, and beside whom.

use std::path::PathBuf;

use clap::Args;
use muso::Error;
use muso::data::commit_all;
use muso::engine::{AnyEngine, CpuEngine};

use super::{Common, Outputs, device, print, progress::Bar};
use crate::bench::{Baseline, BenchReport, Operation, Options, Peers, cpu, exact, head, scaling};

/// Operations with a way of their own to be measured, on the processor alone.
const APART: [Operation; 3] = [Operation::Exact, Operation::Scaling, Operation::Head];

/// Measure the operations against what the device can do, and beside other libraries.
///
/// On the processor each round times ours and then every library that is installed (numpy, scipy and torch of a Python,
/// faer, and burn for networks) on the same arrays with as many threads. Results are compared first; one that is not
/// ours ends in failure.
/// Ratios and the share of the machine's measured peak are taken within rounds, since the speed of a shared machine
/// swings. On a GPU the kernels are measured by themselves.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  everything on the processor, beside whatever is installed
    muso bench
    muso bench gram cholesky --python venv/bin/python --markdown tables.md
  keep what was measured, and later see what has become slower
    muso bench --no-peers --save before.json
    muso bench --no-peers --compare before.json
  what exact sums cost at each width, and how time grows with the rows, as pages with plots
    muso bench exact --report exact.html
    muso bench scaling --report scaling.html
  the whole program against a script of numpy, on a file of two gigabytes
    muso bench head --dir /tmp
  the kernels of a GPU
    muso bench --device cuda")]
pub(super) struct BenchArgs {
    /// What to measure [default: gram to leverage; on a GPU gram to update]
    #[arg(value_name = "OPERATION")]
    operations: Vec<Operation>,
    /// Rounds, each of ours and then every peer [default: 15]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Reduced sizes and at most three rounds, to see that it works
    #[arg(long)]
    quick: bool,
    /// Compare with nobody
    #[arg(long)]
    no_peers: bool,
    /// The Python whose libraries are compared with [default: $MUSO_PYTHON, or else python3]
    #[arg(long, value_name = "PATH", conflicts_with = "no_peers")]
    python: Option<PathBuf>,
    /// Where large temporary files go [default: the system's place]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Rows, for `head`, or images of a pass, for `lanes` [default: 1,000,000 and 50,000]
    #[arg(long, value_name = "N")]
    rows: Option<usize>,
    /// The most rows, for `scaling` [default: 10,000,000]
    #[arg(long, value_name = "N")]
    largest: Option<usize>,
    /// Pairs of passes, for `lanes`
    #[arg(long, value_name = "N", default_value_t = 5)]
    pairs: usize,
    /// Also write tables to paste into a document
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Also write a page with plots
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write a baseline for --compare: what --json writes
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Say what has become slower since a baseline, and fail if anything has
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// By how much the share of the peak may fall, besides what the rounds scatter by
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 10.0,
        requires = "compare"
    )]
    tolerance: f64,
}

pub(super) fn run(args: &BenchArgs, common: &Common) -> anyhow::Result<()> {
    #[cfg(feature = "nn")]
    if args.has(Operation::Lanes) {
        args.lanes_alone()?;
        return lanes(args, common);
    }
    args.check_tolerance()?;
    let baseline = args.compare.as_deref().map(Baseline::load).transpose()?;
    let mut outputs = Outputs::beside(&[("--compare", args.compare.as_deref())]);
    let json = outputs.open("--json", common.json.as_deref())?;
    let save = outputs.open("--save", args.save.as_deref())?;
    let markdown = outputs.open("--markdown", args.markdown.as_deref())?;
    let page = outputs.open("--report", args.report.as_deref())?;
    let report = match device::ordinal(common)? {
        Some(_) => args.on_device(common, baseline.as_ref())?,
        None => args.on_processor(common, baseline.as_ref())?,
    };
    print(&report.to_text())?;
    let mut files = Vec::new();
    for (file, text) in [
        (json, BenchReport::to_json as fn(&BenchReport) -> String),
        (save, BenchReport::to_json),
        (markdown, BenchReport::to_markdown),
        (page, BenchReport::to_html),
    ] {
        if let Some(mut file) = file {
            file.put(text(&report).as_bytes())?;
            files.push(file);
        }
    }
    commit_all(files)?;
    let wrong = [report.disagreements(), report.exceeded()].concat();
    anyhow::ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    baseline.map_or(Ok(()), |baseline| args.hold_against(&baseline, &report))
}

impl BenchArgs {
    fn has(&self, operation: Operation) -> bool {
        self.operations.contains(&operation)
    }

    /// Lanes have a report of their own.
    #[cfg(feature = "nn")]
    fn lanes_alone(&self) -> muso::Result<()> {
        let outputs = [&self.markdown, &self.report, &self.save, &self.compare];
        let alone = self.operations.iter().all(|&o| o == Operation::Lanes);
        if alone && outputs.iter().all(|output| output.is_none()) {
            return Ok(());
        }
        Err(Error::Parameter {
            name: "OPERATION",
            value: "lanes with others".into(),
            expected: "lanes alone, and no output but --json: it measures something else".into(),
        })
    }

    fn check_tolerance(&self) -> muso::Result<()> {
        if (0.0..100.0).contains(&self.tolerance) {
            return Ok(());
        }
        Err(Error::Parameter {
            name: "--tolerance",
            value: self.tolerance.to_string(),
            expected: "0 or more, and less than 100 percent".into(),
        })
    }

    /// Returns the operations that were named, or `all` where none was.
    fn operations(&self, all: &[Operation]) -> Vec<Operation> {
        match self.operations.is_empty() {
            true => all.to_vec(),
            false => self.operations.clone(),
        }
    }

    fn on_device(&self, common: &Common, baseline: Option<&Baseline>) -> muso::Result<BenchReport> {
        let refused = |what: &str| Error::Parameter {
            name: "--device",
            value: common.device.clone(),
            expected: format!("cpu for {what}"),
        };
        if self.operations.iter().any(|o| APART.contains(o)) {
            return Err(refused("exact, scaling and head"));
        }
        if self.rounds.is_some() || self.quick || self.python.is_some() {
            return Err(refused("--rounds, --quick and --python"));
        }
        let report = device::bench(
            common,
            &self.operations(&Operation::DEVICE),
            &mut Bar::new(),
        )?;
        self.check_machine(baseline, &report.device, &report.processor)?;
        Ok(report)
    }

    fn check_machine(
        &self,
        baseline: Option<&Baseline>,
        device: &str,
        processor: &str,
    ) -> muso::Result<()> {
        match (baseline, &self.compare) {
            (Some(baseline), Some(path)) => baseline.check_machine(path, device, processor),
            _ => Ok(()),
        }
    }

    fn on_processor(
        &self,
        common: &Common,
        baseline: Option<&Baseline>,
    ) -> anyhow::Result<BenchReport> {
        let AnyEngine::Cpu(engine) = device::engine(common)? else {
            unreachable!("the processor was asked for");
        };
        let (device, processor) = cpu::machine(&engine);
        self.check_machine(baseline, &device, &processor)?;
        let options = Options {
            rounds: self.rounds,
            quick: self.quick,
            peers: match self.no_peers {
                true => Peers::None,
                false => Peers::Installed(self.python.clone()),
            },
            folder: self.dir.clone(),
        };
        self.measure(&engine, &options)
    }

    fn measure(&self, engine: &CpuEngine, options: &Options) -> anyhow::Result<BenchReport> {
        let bar = &mut Bar::new();
        let mut reports = Vec::new();
        let mut operations = self.operations(&Operation::ALL);
        operations.retain(|o| !APART.contains(o));
        if !operations.is_empty() {
            reports.push(cpu::run(engine, &operations, options, bar)?);
        }
        if self.has(Operation::Exact) {
            reports.push(exact::run(engine, options, bar)?);
        }
        let usual = |full, reduced| if self.quick { reduced } else { full };
        if self.has(Operation::Scaling) {
            let largest = usual(scaling::LARGEST, scaling::LARGEST_QUICK);
            let largest = self.largest.unwrap_or(largest);
            reports.push(scaling::run(engine, largest, options, bar)?);
        }
        if self.has(Operation::Head) {
            let rows = self.rows.unwrap_or(usual(head::ROWS, head::ROWS_QUICK));
            let program = std::env::current_exe()?;
            reports.push(head::run(engine, &program, rows, options, bar)?);
        }
        Ok(reports
            .into_iter()
            .reduce(BenchReport::and)
            .unwrap_or_default())
    }

    fn hold_against(&self, baseline: &Baseline, report: &BenchReport) -> anyhow::Result<()> {
        let found = baseline.compare(report, self.tolerance / 100.0);
        print(&found.to_text())?;
        anyhow::ensure!(
            !found.changes.is_empty(),
            "nothing that was measured is in the baseline"
        );
        let fallen: Vec<&str> = found.fallen().iter().map(|c| c.name.as_str()).collect();
        anyhow::ensure!(
            fallen.is_empty(),
            "slower than the baseline: {}",
            fallen.join("; ")
        );
        Ok(())
    }
}

#[cfg(feature = "nn")]
fn lanes(args: &BenchArgs, common: &Common) -> anyhow::Result<()> {
    use muso::pipeline::networks::Workplace;
    use muso::scheduler::Scheduler;

    use crate::bench::lanes;

    let json = Outputs::beside(&[]).open("--json", common.json.as_deref())?;
    let scheduler = Scheduler::default().with_cancelled(super::progress::is_stopping);
    let place = Workplace::new(device::engine(common)?, scheduler)?;
    let rows = args.rows.unwrap_or(lanes::ROWS);
    let mut reports = Vec::new();
    for kept in [lanes::Kept::Png, lanes::Kept::Packed] {
        let report = rayon::scope(|_| lanes::run(&place, kept, rows, args.pairs, &mut Bar::new()))?;
        print(&format!("{}\n", report.text()))?;
        reports.push(report);
    }
    if let Some(mut file) = json {
        file.put(lanes::to_json(&reports).as_bytes())?;
        file.commit()?;
    }
    anyhow::ensure!(
        reports.iter().all(|report| report.same_bytes),
        "lanes and one thing after the other gave different bytes"
    );
    Ok(())
}
