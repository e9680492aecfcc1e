//! `muso head`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use muso::Error;
use muso::data::{Head, commit_all};
use muso::engine::{AnyEngine, Dtype, Engine};
use muso::pipeline::head::{self, LabelSink, NamedSums, Params};
use muso::report::{Render, Style};
use muso::system;
use muso::{FeatureRows, Forget, Objective, Shard, Source};

use super::exact::ExactArgs;
use super::lanes::LaneArgs;
use super::{Common, Outputs, device, flags, print, progress::Bar, safetensors_name};

/// Make the last layer of any model forget rows of a feature file.
///
/// Give the features that the layer sees, the layer itself, and which rows to forget. Out comes the layer as it would
/// be had those rows never been there: exactly for layers fitted by (ridge) least squares, with the distance measured
/// by --verify. Files are streamed, so the feature file may be larger than memory.
#[derive(Debug, Args)]
#[command(after_help = "\
Files (safetensors; matrices may also be .npy):
  features   `features` [N,D] f16, bf16, f32 or f64, with `labels` [N] i64 or `targets` [N,C]
  head       `weight` [C,D] and perhaps `bias` [C]; also PyTorch names such as fc.weight
  labels out `rows` [N_u] i64 and `targets` [N_u,C], to teach the forgotten rows instead

Examples:
  forget class 3 of a ridge head, and check the result by a second pass
    muso head --features f.safetensors --head h.safetensors --forget class:3 --ridge 1e-3 \\
              --out new.safetensors --verify --report report.html
  forget listed rows of an over-parameterised head that was trained from init.safetensors
    muso head --features f.safetensors --head h.safetensors --init init.safetensors \\
              --forget ids.txt --objective interpolate --out new.safetensors
  go on from sums of several processes, which have left the rows out (see muso gram --help)
    muso head --sums sums.safetensors --head h.safetensors --ridge 1e-3 --out new.safetensors

Words of the report:
  distance      of the new head to one solved afresh from the retained rows and their labels
  gradient      of the retained rows' objective at the new head; over λ it bounds the distance
  conditioning  how many digits the linear system can cost
  tr(Π)/D       share of the directions that the retained rows fill; near 1, only λ matters
  premise       how far the given head is from what the formula takes it to be")]
pub(super) struct HeadArgs {
    /// Feature file; with --sums, the one that the rows to forget are in
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "sums",
        requires = "forget"
    )]
    features: Option<PathBuf>,
    /// Sums over the rows in place of the rows, from muso gram or muso merge
    #[arg(long, value_name = "FILE")]
    sums: Option<PathBuf>,
    /// File with `labels` or `targets`, when they are not in the feature file
    #[arg(long, value_name = "FILE", requires = "features")]
    labels: Option<PathBuf>,
    /// The head that was trained on all rows
    #[arg(long, value_name = "FILE")]
    head: PathBuf,
    /// The head before training [default: zero]
    #[arg(long, value_name = "FILE")]
    init: Option<PathBuf>,
    /// Rows to forget: a text file of row numbers counted from 0, class:K, class:K,L or random:SHARE; with --sums, besides those that they have as forgotten
    #[arg(long, value_name = "IDS", requires = "features")]
    forget: Option<String>,
    /// Seed of the rows that random:SHARE draws
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,
    /// λ, at least 0: the one that the head was trained with [default: 0 for interpolate; needed for ridge]
    #[arg(long, value_name = "λ", allow_hyphen_values = true)]
    ridge: Option<f64>,
    /// Leave the bias out of the ridge, as scikit-learn does
    #[arg(long)]
    free_bias: bool,
    /// What the head minimises [default: ridge; interpolate when fewer rows are retained than features and no λ > 0 is given]
    #[arg(long, value_enum)]
    objective: Option<ObjectiveArg>,
    /// Fit retained rows to their labels, or take the given head's word [default: labels for ridge, head for interpolate]
    #[arg(long, value_enum)]
    from: Option<SourceArg>,
    /// Where to write the new head; may be the same file as --head
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Where to write the optimal labels of the forgotten rows
    #[arg(long, value_name = "FILE")]
    labels_out: Option<PathBuf>,
    /// Where to write the report: .html or .json
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Type of the written values; PyTorch converts on loading
    #[arg(long, value_enum, default_value = "f64")]
    dtype: OutDtype,
    /// Read the file once more, solve from the retained rows directly and report the distance
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    exact: ExactArgs,
    #[command(flatten)]
    lanes: LaneArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ObjectiveArg {
    /// Least squares with a ridge
    Ridge,
    /// The interpolating fit nearest to the initial head
    Interpolate,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SourceArg {
    /// Labels or targets of the retained rows
    Labels,
    /// The given head, as trained on all rows
    Head,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OutDtype {
    F64,
    F32,
    F16,
    Bf16,
}

impl From<OutDtype> for Dtype {
    fn from(dtype: OutDtype) -> Self {
        match dtype {
            OutDtype::F64 => Self::F64,
            OutDtype::F32 => Self::F32,
            OutDtype::F16 => Self::F16,
            OutDtype::Bf16 => Self::Bf16,
        }
    }
}

impl HeadArgs {
    /// Turns the arguments into the library's parameters.
    fn params(&self) -> muso::Result<Params<'static>> {
        let mut params = Params::new(Head::load(&self.head)?);
        params.rows = self.features.as_ref().map(|path| {
            let rows = FeatureRows::file(path);
            match &self.labels {
                Some(labels) => rows.labels(labels),
                None => rows,
            }
        });
        params.sums = match &self.sums {
            None => None,
            Some(path) => Some(NamedSums {
                shard: Shard::load(path)?,
                name: path.display().to_string(),
            }),
        };
        params.init = self.init.as_ref().map(Head::load).transpose()?;
        params.forget = self.forget.as_deref().map(Forget::parse).transpose()?;
        params.seed = self.seed;
        params.objective = self.objective.map(|objective| match objective {
            ObjectiveArg::Ridge => Objective::Ridge,
            ObjectiveArg::Interpolate => Objective::Interpolate,
        });
        params.source = self.from.map(|source| match source {
            SourceArg::Labels => Source::Labels,
            SourceArg::Head => Source::Head,
        });
        params.ridge = self.ridge;
        params.free_bias = self.free_bias;
        params.exact = self.exact.params();
        params.verify = self.verify;
        params.dtype = self.dtype.into();
        Ok(params)
    }
}

pub(super) fn run(args: &HeadArgs, common: &Common) -> anyhow::Result<()> {
    let engine = device::engine(common)?;
    let params = args.params()?;
    let as_page = args.report.as_deref().map(is_page).transpose()?;
    for path in [Some(args.out.as_path()), args.labels_out.as_deref()]
        .into_iter()
        .flatten()
    {
        safetensors_name(path)?;
    }

    // The head is read whole before anything is written, so it may be replaced, but by the new head only.
    let forget_file = match &params.forget {
        Some(Forget::File(path)) => Some(path.as_path()),
        _ => None,
    };
    let mut outputs = Outputs::beside(&[
        ("--features", args.features.as_deref()),
        ("--sums", args.sums.as_deref()),
        ("--labels", args.labels.as_deref()),
        ("--init", args.init.as_deref()),
        ("--forget", forget_file),
        ("--grid", args.exact.file()),
    ]);
    if let Some(others) = params.head.others_in_words() {
        // Replacing it would lose them.
        let name = format!("--head, which also holds {others}");
        outputs.keep(&name, Some(&args.head));
    }
    let out = outputs.open("--out", Some(&args.out))?;
    outputs.keep("--head", Some(&args.head));
    let mut labels = outputs.open("--labels-out", args.labels_out.as_deref())?;
    let report = outputs.open("--report", args.report.as_deref())?;
    let json = outputs.open("--json", common.json.as_deref())?;

    let lanes = args.lanes.open(&mut outputs)?;
    let sink = match &mut labels {
        Some(file) => LabelSink::File(file),
        None => LabelSink::Nowhere,
    };
    let scheduler = lanes.scheduler();
    let mut outcome = head::run(&engine, &params, sink, scheduler, &mut Bar::new())?;
    outcome.report.threads = device::threads(common)?;
    if !matches!(engine, AnyEngine::Cpu(_)) {
        outcome.report.device = Some(engine.describe());
    }
    outcome.report.peak_memory_bytes = system::peak_memory();
    flags::spell_all(&mut outcome.report.warnings);

    let mut files = Vec::new();
    if let Some(mut file) = out {
        file.put(&outcome.head.to_safetensors(params.dtype)?)?;
        files.push(file);
    }
    files.extend(labels);
    if let (Some(mut file), Some(page)) = (report, as_page) {
        let text = if page {
            outcome.report.page()
        } else {
            outcome.report.to_json()
        };
        file.put(text.as_bytes())?;
        files.push(file);
    }
    if let Some(mut file) = json {
        file.put(outcome.report.to_json().as_bytes())?;
        files.push(file);
    }
    files.extend(lanes.finish(&head::LANES)?);
    commit_all(files)?;
    print(&outcome.report.text(Style::default()))?;
    Ok(())
}

fn is_page(path: &Path) -> muso::Result<bool> {
    let extension = path.extension().and_then(|e| e.to_str());
    match extension.map(str::to_ascii_lowercase).as_deref() {
        Some("html" | "htm") => Ok(true),
        Some("json") => Ok(false),
        _ => Err(Error::format(
            path,
            "unknown kind of report",
            "a name that ends in .html or .json",
        )),
    }
}
