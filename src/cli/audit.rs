//! `muso audit`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use muso::Forget;
use muso::data::commit_all;
use muso::outcome::{AuditReport, AuditVerdict};
use muso::pipeline::audit::{self, Params};
use muso::report::{Render, Style};
use muso::system;

use super::{Common, Outputs, device, flags, print, progress::Bar};

/// Say whether anything tells unlearned models from retrained ones, by the outputs of any models on the same rows.
///
/// Retrained models differ from one another. Every number is therefore measured on retrained models that were held out
/// as well, and the distance between the two is counted in spreads of those. Held-out retrained models are judged first, as
/// if they were a method; if they do not pass, or if the original models do, the audit says that it cannot tell.
#[derive(Debug, Args)]
#[command(after_help = "\
Files (.npy or safetensors, f16 to f64; one model a file, or several in one):
  outputs    logits [N,C] or [M,N,C] (tensor `logits`), or margins [N] or [M,N] (tensor `margins`);
             a margin is z_c − ln Σ e^z_j over the other classes. With margins alone, what needs
             predictions is left out: ToW, agreement, accuracies and membership attacks
  labels     integers [N] (tensor `labels`)
  rows       a text file of row numbers counted from 0, an integer array (.npy or safetensors with
             tensor `rows`), or class:K. N covers all rows: say which are test rows

Examples:
  20 unlearned models against 40 retrained ones, on 10,000 training rows and 2,000 test rows
    seq 10000 11999 > test.txt
    muso audit --unlearned u*.npy --retrained r*.npy --original full.npy --labels y.npy \\
               --forget ids.txt --test test.txt --report audit.html
  one file of margins [M,N] each, as KLOM is published
    muso audit --unlearned unlearned.npy --retrained oracles.npy --forget f.npy --test t.npy

Exit code: 0 nothing tells them apart; 3 something does; 1 the audit cannot tell; 2 bad input.
It takes 4 retrained models at least, 12 to judge by KLOM and U-LiRA, and 24 by the score of the
NeurIPS 2023 challenge. docs/audit.md has a sentence on each number.")]
pub(super) struct AuditArgs {
    /// Outputs of the unlearned models
    #[arg(long, value_name = "FILES", required = true, num_args = 1..)]
    unlearned: Vec<PathBuf>,
    /// Outputs of models that were trained without the forgotten rows
    #[arg(long, value_name = "FILES", required = true, num_args = 1..)]
    retrained: Vec<PathBuf>,
    /// Outputs of models before unlearning; the audit must tell these from retrained ones
    #[arg(long, value_name = "FILES", num_args = 1..)]
    original: Vec<PathBuf>,
    /// The class of each row, counted from 0; needed for logits
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// The forgotten rows: a file of row numbers, class:K or class:K,L (those of --test apart)
    #[arg(long, value_name = "IDS")]
    forget: String,
    /// The retained rows [default: all that are neither forgotten nor for tests]
    #[arg(long, value_name = "IDS")]
    retain: Option<String>,
    /// Rows that no model was trained on
    #[arg(long, value_name = "IDS")]
    test: Option<String>,
    /// Where to write the page with plots
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl AuditArgs {
    /// Turns the arguments into the library's parameters.
    fn params(&self) -> muso::Result<Params> {
        let parse = |text: &Option<String>| text.as_deref().map(Forget::parse).transpose();
        let mut params = Params::new(Forget::parse(&self.forget)?);
        params.unlearned.clone_from(&self.unlearned);
        params.retrained.clone_from(&self.retrained);
        params.original.clone_from(&self.original);
        params.labels.clone_from(&self.labels);
        params.retain = parse(&self.retain)?;
        params.test = parse(&self.test)?;
        Ok(params)
    }

    /// Every file that is read, with its option.
    fn inputs<'a>(&'a self, params: &'a Params) -> Vec<(&'static str, Option<&'a Path>)> {
        let lists = [
            ("--forget", Some(&params.forget)),
            ("--retain", params.retain.as_ref()),
            ("--test", params.test.as_ref()),
        ];
        let lists = lists.into_iter().map(|(name, list)| match list {
            Some(Forget::File(path)) => (name, Some(path.as_path())),
            _ => (name, None),
        });
        let outputs = [
            ("--unlearned", &self.unlearned),
            ("--retrained", &self.retrained),
            ("--original", &self.original),
        ];
        let outputs = outputs
            .into_iter()
            .flat_map(|(name, files)| files.iter().map(move |path| (name, Some(path.as_path()))));
        let labels = std::iter::once(("--labels", self.labels.as_deref()));
        outputs.chain(lists).chain(labels).collect()
    }
}

pub(super) fn run(args: &AuditArgs, common: &Common) -> anyhow::Result<ExitCode> {
    // The pool; nothing here runs on another device.
    device::engine(common)?;
    let params = args.params()?;
    let mut outputs = Outputs::beside(&args.inputs(&params));
    let page = outputs.open("--report", args.report.as_deref())?;
    let json = outputs.open("--json", common.json.as_deref())?;
    let mut report = audit::run(&params, &mut Bar::new())?;
    report.threads = device::threads(common)?;
    report.peak_memory_bytes = system::peak_memory();
    report.command = super::command_line();
    flags::spell_all(&mut report.warnings);

    let mut files = Vec::new();
    if let Some(mut file) = page {
        file.put(report.page().as_bytes())?;
        files.push(file);
    }
    if let Some(mut file) = json {
        file.put(report.to_json().as_bytes())?;
        files.push(file);
    }
    commit_all(files)?;
    print(&report.text(Style::default()))?;
    Ok(exit_code(&report))
}

fn exit_code(report: &AuditReport) -> ExitCode {
    match report.verdict {
        AuditVerdict::Pass => ExitCode::SUCCESS,
        AuditVerdict::Fail => ExitCode::from(3),
        AuditVerdict::CannotTell => ExitCode::from(1),
    }
}
