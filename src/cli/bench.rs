//! `muso bench`: how fast the operations are here, and how near that is to what the device can do.

use clap::{Args, ValueEnum};
use muso::pipeline::bench::Group;

use super::{Common, Outputs, device, print, progress::Bar};

#[derive(Debug, Args)]
pub(super) struct BenchArgs {
    /// What to measure [default: all]
    #[arg(value_name = "OPERATION")]
    operations: Vec<Operation>,
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
}

impl From<Operation> for Group {
    fn from(operation: Operation) -> Self {
        match operation {
            Operation::Gram => Self::Gram,
            Operation::Cholesky => Self::Cholesky,
            Operation::Projection => Self::Projection,
            Operation::Update => Self::Update,
        }
    }
}

pub(super) fn run(args: &BenchArgs, common: &Common) -> anyhow::Result<()> {
    let mut groups: Vec<Group> = args.operations.iter().map(|&o| o.into()).collect();
    if groups.is_empty() {
        groups = Group::ALL.to_vec();
    }
    let mut outputs = Outputs::beside(&[]);
    let json = outputs.open("--json", common.json.as_deref())?;
    let report = device::bench(common, &groups, &mut Bar::new())?;
    if let Some(mut file) = json {
        file.put(report.to_json().as_bytes())?;
        file.commit()?;
    }
    print(&report.to_text())?;
    Ok(())
}
