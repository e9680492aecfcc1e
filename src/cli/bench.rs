//! `muso bench`: how fast the operations are here, and how near that is to what the device can do.

use clap::{Args, ValueEnum};
use muso::pipeline::bench::Group;

use super::{Common, Outputs, device, print, progress::Bar};

#[derive(Debug, Args)]
pub(super) struct BenchArgs {
    /// What to measure [default: all]
    #[arg(value_name = "OPERATION")]
    operations: Vec<Operation>,
    /// Images of a pass, for `lanes`
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    rows: usize,
    /// Pairs of passes, for `lanes`
    #[arg(long, value_name = "N", default_value_t = 5)]
    pairs: usize,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Operation {
    /// Sums over rows
    Gram,
    /// Factor and solve
    Cholesky,
    /// Products with rows, kernel matrices, random features
    Projection,
    /// A whole label update
    Update,
    /// Features and sums of images, in lanes and one after the other; not among all
    #[cfg(feature = "nn")]
    Lanes,
}

impl Operation {
    fn group(self) -> Option<Group> {
        match self {
            Self::Gram => Some(Group::Gram),
            Self::Cholesky => Some(Group::Cholesky),
            Self::Projection => Some(Group::Projection),
            Self::Update => Some(Group::Update),
            #[cfg(feature = "nn")]
            Self::Lanes => None,
        }
    }
}

pub(super) fn run(args: &BenchArgs, common: &Common) -> anyhow::Result<()> {
    let mut groups: Vec<Group> = args.operations.iter().filter_map(|o| o.group()).collect();
    let mut outputs = Outputs::beside(&[]);
    #[cfg(feature = "nn")]
    if args
        .operations
        .iter()
        .any(|o| matches!(o, Operation::Lanes))
    {
        if !groups.is_empty() {
            Err(muso::Error::Parameter {
                name: "OPERATION",
                value: "lanes with others".into(),
                expected: "lanes alone: it measures something else".into(),
            })?;
        }
        return lanes(args, common, &mut outputs);
    }
    if groups.is_empty() {
        groups = Group::ALL.to_vec();
    }
    let json = outputs.open("--json", common.json.as_deref())?;
    let report = device::bench(common, &groups, &mut Bar::new())?;
    if let Some(mut file) = json {
        file.put(report.to_json().as_bytes())?;
        file.commit()?;
    }
    print(&report.to_text())?;
    Ok(())
}

#[cfg(feature = "nn")]
fn lanes(args: &BenchArgs, common: &Common, outputs: &mut Outputs) -> anyhow::Result<()> {
    use muso::pipeline::bench::lanes;
    use muso::pipeline::networks::Workplace;
    use muso::scheduler::Scheduler;

    let json = outputs.open("--json", common.json.as_deref())?;
    let scheduler = Scheduler::default().with_cancelled(super::progress::is_stopping);
    let place = Workplace::new(device::engine(common)?, scheduler)?;
    let mut reports = Vec::new();
    for kept in [lanes::Kept::Png, lanes::Kept::Packed] {
        let report =
            rayon::scope(|_| lanes::run(&place, kept, args.rows, args.pairs, &mut Bar::new()))?;
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
