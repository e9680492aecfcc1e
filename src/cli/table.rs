//! `muso demo` and `muso reproduce`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use muso::data::{Digits, OutputFile, commit_all};
use muso::pipeline::table1;
use muso::report::html::table_picture;
use muso::report::{Render, Style};

use super::{Common, Outputs, colour, device, print, progress::Bar};

/// What every table run takes.
#[derive(Debug, Args)]
struct TableArgs {
    /// How many repetitions [default: 5, and 3 for networks]
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// Seed of the first repetition; the others count up from it
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Where to write the page with plots
    #[arg(long, default_value = "report.html", value_name = "FILE")]
    report: PathBuf,
}

/// What `muso demo` takes.
#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// A network on Fashion-MNIST instead of the linear model on MNIST: every method, three scenarios
    #[cfg(feature = "nn")]
    #[arg(long)]
    nn: bool,
    /// With --nn: try every setting of every method, or of those named, on the tuning seeds and show which is best
    #[cfg(feature = "nn")]
    #[arg(long, requires = "nn", value_name = "METHODS", num_args = 0.., value_delimiter = ',')]
    tune: Option<Vec<String>>,
    #[cfg(feature = "nn")]
    #[command(flatten)]
    ablation: super::network::AblationArgs,
    /// Also write the distances to the retrained model as an SVG picture
    #[arg(long, value_name = "FILE")]
    #[cfg_attr(feature = "nn", arg(conflicts_with = "nn"))]
    picture: Option<PathBuf>,
    #[command(flatten)]
    table: TableArgs,
}

/// What `muso reproduce` takes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    muso reproduce table1 --seeds 5\n  \
    muso reproduce table2 --data-path cifar-100-binary --scale small --resume jobs\n  \
    muso reproduce table2 --data-path cifar-100-binary --methods muso,ssd --scenarios random\n  \
    muso reproduce table3 --scale paper --dry-run            every job with its size, and a GPU's time for it\n\n\
    Tables 2 to 4 need their data sets: CIFAR-100, CIFAR-10 and Tiny ImageNet, as published. --scale paper has 5 seeds and\n\
    two retrained models a case, --scale small one of each; --dry-run tells what that comes to.")]
pub(super) struct ReproduceArgs {
    /// Which table
    #[arg(value_enum)]
    table: PaperTable,
    /// The paper's own size (for a GPU), or the same protocol at a size that two cores finish
    #[cfg(feature = "nn")]
    #[arg(long, value_enum, default_value_t = ScaleArg::Small)]
    scale: ScaleArg,
    /// The folder of the data set of tables 2 to 4
    #[cfg(feature = "nn")]
    #[arg(long, value_name = "DIR")]
    data_path: Option<PathBuf>,
    /// Only these methods of tables 2 to 4, separated by commas
    #[cfg(feature = "nn")]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    methods: Vec<String>,
    /// Only these scenarios of tables 2 to 4, separated by commas: names, or how they begin (random, full-class (sea))
    #[cfg(feature = "nn")]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    scenarios: Vec<String>,
    /// Keep finished jobs of tables 2 to 4 in this folder, and go on with those that are in it
    #[cfg(feature = "nn")]
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
    /// Run nothing; list every job with its size and about how long the GPU of --gpu would take
    #[cfg(feature = "nn")]
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: rtx-4090, rtx-3090, a100 or h100
    #[cfg(feature = "nn")]
    #[arg(long, value_name = "NAME", default_value = "rtx-4090")]
    gpu: String,
    #[command(flatten)]
    args: TableArgs,
}

/// Tables of the paper that can be repeated.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum PaperTable {
    /// The over-parameterised linear model on MNIST 3 against 7
    Table1,
    /// ResNet-18 on CIFAR-100 and CIFAR-20
    #[cfg(feature = "nn")]
    Table2,
    /// VGG16-BN on CIFAR-10
    #[cfg(feature = "nn")]
    Table3,
    /// ResNet-34 on Tiny ImageNet
    #[cfg(feature = "nn")]
    Table4,
}

#[cfg(feature = "nn")]
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ScaleArg {
    Small,
    Paper,
}

pub(super) fn demo(args: &DemoArgs, common: &Common) -> anyhow::Result<()> {
    super::check_seeds(args.table.seeds.unwrap_or(1))?;
    #[cfg(feature = "nn")]
    if let Some(methods) = &args.tune {
        let seeds = match (args.table.seed, args.table.seeds) {
            (None, None) => muso::pipeline::networks::demo::TUNING_SEEDS.to_vec(),
            _ => args.table.list(0, 1),
        };
        return super::network::tune(methods, &seeds, common);
    } else if args.nn || args.ablation.ablate.is_some() {
        let seeds = args
            .table
            .list(muso::pipeline::networks::demo::FIRST_SEED, 3);
        let command = super::command_line();
        let page = &args.table.report;
        return super::network::demo(&seeds, &command, page, common, &args.ablation);
    }
    linear(&args.table, args.picture.as_deref(), common, "muso demo")
}

pub(super) fn reproduce(args: &ReproduceArgs, common: &Common) -> anyhow::Result<()> {
    super::check_seeds(args.args.seeds.unwrap_or(1))?;
    #[cfg(feature = "nn")]
    {
        use muso::pipeline::networks::tables::{NetworkTable, Reproduce, Scale};
        let table = match args.table {
            PaperTable::Table1 => None,
            PaperTable::Table2 => Some(NetworkTable::Two),
            PaperTable::Table3 => Some(NetworkTable::Three),
            PaperTable::Table4 => Some(NetworkTable::Four),
        };
        if let Some(table) = table {
            let scale = match args.scale {
                ScaleArg::Small => Scale::Small,
                ScaleArg::Paper => Scale::Paper,
            };
            let request = Reproduce {
                table,
                scale,
                path: args.data_path.clone(),
                seeds: args.args.list(0, scale.seeds()),
                methods: args.methods.clone(),
                scenarios: args.scenarios.clone(),
                resume: args.resume.clone(),
                command: super::command_line(),
            };
            let gpu = args.dry_run.then_some(args.gpu.as_str());
            return super::network::reproduce(&request, gpu, &args.args.report, common);
        }
    }
    linear(&args.args, None, common, "muso reproduce table1")
}

impl TableArgs {
    /// The seeds of all repetitions.
    fn list(&self, first: u64, count: u64) -> Vec<u64> {
        let first = self.seed.unwrap_or(first);
        (0..self.seeds.unwrap_or(count))
            .map(|k| first.wrapping_add(k))
            .collect()
    }

    /// The command line that gives the same numbers again.
    fn repeat(&self, command: &str) -> String {
        let mut line = command.to_owned();
        if let Some(seeds) = self.seeds {
            line.push_str(&format!(" --seeds {seeds}"));
        }
        if let Some(seed) = self.seed {
            line.push_str(&format!(" --seed {seed}"));
        }
        line
    }
}

fn linear(
    args: &TableArgs,
    picture: Option<&Path>,
    common: &Common,
    command: &str,
) -> anyhow::Result<()> {
    let engine = device::engine(common)?;
    let mut outputs = Outputs::beside(&[]);
    let report = outputs.open("--report", Some(&args.report))?;
    let json = outputs.open("--json", common.json.as_deref())?;
    let picture = outputs.open("--picture", picture)?;

    let params = table1::Params {
        seeds: args.list(0, 5),
        command: args.repeat(command),
        ..table1::Params::default()
    };
    let digits = Digits::parse(muso_digits::TRAIN, muso_digits::TEST)?;
    let table = table1::run(&engine, &digits, &params, &mut Bar::new())?;
    print(&table.text(Style { colour: colour() }))?;
    let mut files: Vec<OutputFile> = Vec::new();
    for (file, text) in [
        (report, table.page()),
        (json, table.to_json()),
        (picture, table_picture(&table)),
    ] {
        if let Some(mut file) = file {
            file.put(text.as_bytes())?;
            files.push(file);
        }
    }
    commit_all(files)?;
    print(&format!("\nPlots: {}\n", args.report.display()))?;
    Ok(())
}
