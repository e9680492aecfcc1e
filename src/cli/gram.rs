//! `muso gram` and `muso merge`.

use std::path::{Path, PathBuf};

use clap::Args;
use muso::data::commit_all;
use muso::engine::{AnyEngine, Engine};
use muso::pipeline::gram;
use muso::system;
use muso::{FeatureRows, Forget, Head};

use super::exact::ExactArgs;
use super::lanes::{LaneArgs, Lanes};
use super::{Common, Outputs, device, flags, print, progress::Bar, safetensors_name};

/// Sum a part of a feature file, to be merged with other parts.
///
/// A head is solved from sums over the rows, G = ZᵀZ and ZᵀY. Several processes or machines can each sum a part of the
/// rows; muso merge adds the parts up, and muso head --sums goes on from there with the result of one process over all
/// rows, to f64 rounding. Sums depend on neither the weights of the head nor λ: one set serves for every λ, and for rows
/// that are to be forgotten later.
#[derive(Debug, Args)]
#[command(after_help = "\
Files (safetensors; matrices may also be .npy):
  features   `features` [N,D] f16, bf16, f32 or f64, with `labels` [N] i64 or `targets` [N,C]
  head       `weight` [C,D] and perhaps `bias` [C]; only its shape is used
  out        `retained.gram` [D,D], `retained.cross` [D,C] and the same of forgotten rows, f64;
             with --exact in integers of 128 bits, and the grid

Examples:
  two machines, half of the file each, then the head without the rows of ids.txt
    muso gram f.safetensors --head h.safetensors --forget ids.txt \\
              --shards 2 --shard 0 --out 0.safetensors
    muso gram f.safetensors --head h.safetensors --forget ids.txt \\
              --shards 2 --shard 1 --out 1.safetensors
    muso merge 0.safetensors 1.safetensors --out sums.safetensors
    muso head --sums sums.safetensors --head h.safetensors --ridge 1e-3 --out new.safetensors
  sum once, and forget rows whenever that is asked for: only their batches are read then
    muso gram f.safetensors --head h.safetensors --out sums.safetensors
    muso head --sums sums.safetensors --features f.safetensors --forget ids.txt \\
              --head h.safetensors --ridge 1e-3 --out new.safetensors
  the same exactly: the new head is, byte for byte, that of sums that never had the rows
    muso gram f.safetensors --head h.safetensors --exact --grid 16 --out sums.safetensors")]
pub(super) struct GramArgs {
    /// Feature file
    #[arg(value_name = "FEATURES", required_unless_present = "features")]
    file: Option<PathBuf>,
    /// The same, as muso head spells it
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    features: Option<PathBuf>,
    /// File with `labels` or `targets`, when they are not in the feature file
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// A head of the shape that is meant: D, C, and whether there is a bias
    #[arg(long, value_name = "FILE")]
    head: PathBuf,
    /// Rows to forget, summed apart: a text file of row numbers of the whole file, counted from 0, class:K, class:K,L or random:SHARE
    #[arg(long, value_name = "IDS")]
    forget: Option<String>,
    /// Seed of the rows that random:SHARE draws; the same for every shard
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,
    /// Rows to sum, counted from 0, B not included: A..B, A.. or ..B [default: all]
    #[arg(long, value_name = "A..B", allow_hyphen_values = true, conflicts_with_all = ["shards", "shard"])]
    rows: Option<String>,
    /// Cut the file into so many parts of consecutive rows, and sum one of them
    #[arg(long, value_name = "N", requires = "shard")]
    shards: Option<u64>,
    /// Which one, counted from 0
    #[arg(long, value_name = "K", requires = "shards")]
    shard: Option<u64>,
    /// Where to write the sums
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    exact: ExactArgs,
    #[command(flatten)]
    lanes: LaneArgs,
}

/// Add up the sums that muso gram made of parts of the rows.
///
/// The result has the same bytes in whatever order the files are named. Files of different shape, rows that are in two of
/// them, and damaged files are refused. What comes out can be merged again.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
    muso merge shard-*.safetensors --out sums.safetensors")]
pub(super) struct MergeArgs {
    /// Files written by muso gram or muso merge
    #[arg(value_name = "SHARD", required = true)]
    shards: Vec<PathBuf>,
    /// Where to write the sums
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub(super) fn run(args: &GramArgs, common: &Common) -> anyhow::Result<()> {
    let engine = device::engine(common)?;
    let portion = match (&args.rows, args.shards, args.shard) {
        (Some(rows), _, _) => gram::Portion::parse_rows(rows)?,
        (None, Some(of), Some(index)) => gram::Portion::Shard { index, of },
        _ => gram::Portion::All,
    };
    let named = args.file.as_ref().or(args.features.as_ref());
    let features = named.cloned().unwrap_or_default();
    let rows = match &args.labels {
        Some(labels) => FeatureRows::file(&features).labels(labels),
        None => FeatureRows::file(&features),
    };
    let mut params = gram::Params::new(rows, Head::load(&args.head)?);
    params.forget = args.forget.as_deref().map(Forget::parse).transpose()?;
    params.seed = args.seed;
    params.portion = portion;
    params.exact = args.exact.params();
    let listed = match &params.forget {
        Some(Forget::File(path)) => Some(path.as_path()),
        _ => None,
    };
    let mut outputs = Outputs::beside(&[
        ("FEATURES", Some(&features)),
        ("--labels", args.labels.as_deref()),
        ("--head", Some(&args.head)),
        ("--forget", listed),
        ("--grid", args.exact.file()),
    ]);
    let lanes = args.lanes.open(&mut outputs)?;
    let scheduler = lanes.scheduler().clone();
    finish(outputs, &args.out, Some(lanes), common, |bar| {
        let mut outcome = gram::run(&engine, &params, &scheduler, bar)?;
        outcome.report.threads = device::threads(common)?;
        if !matches!(engine, AnyEngine::Cpu(_)) {
            outcome.report.device = Some(engine.describe());
        }
        Ok(outcome)
    })
}

pub(super) fn merge(args: &MergeArgs, common: &Common) -> anyhow::Result<()> {
    // Adding is done where the files are read; still a device that does not exist is worth a word.
    device::engine(common)?;
    let inputs: Vec<(&str, Option<&Path>)> = args
        .shards
        .iter()
        .map(|path| ("SHARD", Some(path.as_path())))
        .collect();
    finish(Outputs::beside(&inputs), &args.out, None, common, |bar| {
        let mut outcome = gram::merge(&args.shards, bar)?;
        outcome.report.threads = 1;
        Ok(outcome)
    })
}

/// Opens the outputs, does the work and writes what came of it.
fn finish(
    mut outputs: Outputs,
    out: &Path,
    lanes: Option<Lanes>,
    common: &Common,
    work: impl FnOnce(&mut Bar) -> muso::Result<gram::Outcome>,
) -> anyhow::Result<()> {
    safetensors_name(out)?;
    let file = outputs.open("--out", Some(out))?;
    let json = outputs.open("--json", common.json.as_deref())?;
    let mut outcome = work(&mut Bar::new())?;
    let mut files = Vec::new();
    if let Some(mut file) = file {
        file.put(&outcome.shard.to_safetensors()?)?;
        files.push(file);
    }
    outcome.report.peak_memory_bytes = system::peak_memory();
    flags::spell_all(&mut outcome.report.warnings);
    if let Some(mut file) = json {
        file.put(outcome.report.to_json().as_bytes())?;
        files.push(file);
    }
    if let Some(lanes) = lanes {
        files.extend(lanes.finish(&gram::LANES)?);
    }
    commit_all(files)?;
    print(&outcome.report.to_text())?;
    Ok(())
}
