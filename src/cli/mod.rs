//! The command line: what each command takes, and how its outcome becomes text, files and an exit code.
//!
//! Exit codes: 0 done; 1 it could not be done (numerical failure); 2 the input is at fault, with one line on standard
//! error that names what and why; 130 interrupted. `muso audit` ends with 3 when it tells unlearned models from retrained
//! ones, and with 1 when it cannot tell.

mod audit;
mod bench;
mod data;
mod device;
mod doctor;
mod exact;
mod flags;
mod gram;
mod head;
mod lanes;
#[cfg(feature = "nn")]
mod network;
mod outputs;
mod progress;
#[cfg(feature = "nn")]
mod run;
mod table;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand};
use muso::Error;

use outputs::Outputs;

/// Makes a trained model forget chosen samples, exactly, and proves how close it came.
#[derive(Debug, Parser)]
#[command(
    version,
    long_version = VERSION.as_str(),
    max_term_width = 100,
    after_help = "Examples:\n  \
        muso demo                        see the paper's Table 1 on real digits, in under a minute\n  \
        muso demo --nn                   eleven ways to make a network forget, against retraining\n  \
        muso train --out run             train a network, then make it forget a class:\n  \
        muso unlearn --run run --forget-class sneaker --out forgot.safetensors\n  \
        muso head --features f.safetensors --head h.safetensors --forget ids.txt --ridge 1e-3 --out new.safetensors\n  \
        muso audit --help                hold outputs of unlearned models against those of retrained ones\n  \
        muso doctor                      what this build and machine can do"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: Common,
}

/// Options that every command takes.
#[derive(Clone, Debug, Args)]
struct Common {
    /// Worker threads; results do not depend on it [default: one for each core]
    #[arg(long, global = true, value_name = "N")]
    threads: Option<usize>,
    /// Where to compute: cpu, cuda or cuda:N
    #[arg(long, global = true, default_value = "cpu", value_name = "DEVICE")]
    device: String,
    /// Also write the outcome as JSON to this file
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show unlearning on embedded data: needs no files, takes under a minute (with --nn under ten)
    Demo(table::DemoArgs),
    /// Repeat an experiment of the paper
    Reproduce(table::ReproduceArgs),
    /// Make the last layer of any model forget rows of a feature file
    Head(Box<head::HeadArgs>),
    Gram(Box<gram::GramArgs>),
    Merge(gram::MergeArgs),
    /// Train a network and keep what unlearning needs later
    #[cfg(feature = "nn")]
    Train(Box<network::TrainArgs>),
    /// Make a network forget
    #[cfg(feature = "nn")]
    Unlearn(Box<network::UnlearnArgs>),
    /// Say what a network is worth, and whether it remembers
    #[cfg(feature = "nn")]
    Evaluate(Box<network::EvaluateArgs>),
    /// Train, retrain, unlearn with every method and show the gaps
    #[cfg(feature = "nn")]
    Compare(Box<network::CompareArgs>),
    Audit(Box<audit::AuditArgs>),
    Bench(Box<bench::BenchArgs>),
    Doctor(doctor::DoctorArgs),
}

/// The version, the licence of the program, and credit for the images in it, which their licences ask for.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{}\nLicensed under MIT or Apache-2.0, at your choice. Inside are images under licences of their own:\n\
         - {}\n\
         - Fashion-MNIST, a selection: Zalando SE, https://github.com/zalandoresearch/fashion-mnist,\n  \
         MIT, https://opensource.org/license/mit",
        muso::VERSION,
        muso_digits::CREDIT
    )
});

pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let Cli { command, common } = cli;
    let outcome = match command {
        Command::Demo(args) => table::demo(&args, &common),
        Command::Reproduce(args) => table::reproduce(&args, &common),
        Command::Head(args) => head::run(&args, &common),
        Command::Gram(args) => gram::run(&args, &common),
        Command::Merge(args) => gram::merge(&args, &common),
        #[cfg(feature = "nn")]
        Command::Train(args) => network::train(&args, &common),
        #[cfg(feature = "nn")]
        Command::Unlearn(args) => network::unlearn(&args, &common),
        #[cfg(feature = "nn")]
        Command::Evaluate(args) => network::evaluate(&args, &common),
        #[cfg(feature = "nn")]
        Command::Compare(args) => network::compare(&args, &common),
        Command::Audit(args) => match audit::run(&args, &common) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Bench(args) => bench::run(&args, &common),
        Command::Doctor(args) => doctor::run(&args, &common),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure(&error),
    }
}

/// Help and version go out as they are; a mistake in the arguments is one line, like every other mistake.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Nothing can be done about a closed standard output.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(2);
    }
    let text = error.to_string();
    let said: Vec<&str> = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        .collect();
    complain(&format!("{} (see muso --help)", said.join(" ")));
    ExitCode::from(2)
}

fn failure(error: &anyhow::Error) -> ExitCode {
    match error.downcast_ref::<Error>() {
        Some(Error::Interrupted | Error::Paused { .. }) => {
            complain(&error.to_string());
            ExitCode::from(130)
        }
        // Its message already ends with its cause.
        Some(known) => {
            complain(&format!("error: {known}"));
            ExitCode::from(if known.is_input() { 2 } else { 1 })
        }
        None => {
            complain(&format!("error: {error:#}"));
            ExitCode::from(1)
        }
    }
}

/// Writes one line to standard error, with options in place of fields, whatever the names of files and tensors in it
/// contain.
fn complain(message: &str) {
    let mut line = String::new();
    for c in flags::spelt(message).chars() {
        if c.is_control() {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    eprintln!("muso: {line}");
}

/// Refuses a name under which the written file would be taken for another format.
fn safetensors_name(path: &Path) -> muso::Result<()> {
    let extension = path.extension().and_then(|e| e.to_str());
    match extension {
        Some(e) if e.eq_ignore_ascii_case("npy") => Err(Error::format(
            path,
            "outputs are safetensors files",
            "another name",
        )),
        _ => Ok(()),
    }
}

/// Refuses more repetitions than anyone can wait for, before a list of them is made.
fn check_seeds(count: u64) -> muso::Result<()> {
    const MOST: u64 = 10_000;
    if (1..=MOST).contains(&count) {
        return Ok(());
    }
    Err(Error::Parameter {
        name: "--seeds",
        value: count.to_string(),
        expected: format!("1 to {MOST}"),
    })
}

/// Prints to standard output; a reader that has seen enough is not an error of ours.
fn print(text: &str) -> muso::Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::io("standard output", "write", error))
        }
        _ => Ok(()),
    }
}

/// The command as it was given, for a shell.
fn command_line() -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=,:+@%".contains(c);
    let quoted = |argument: std::ffi::OsString| {
        let text = argument.to_string_lossy().into_owned();
        if !text.is_empty() && text.chars().all(plain) {
            return text;
        }
        format!("'{}'", text.replace('\'', "'\\''"))
    };
    let arguments = std::env::args_os().skip(1).map(quoted);
    let words: Vec<String> = ["muso".to_owned()].into_iter().chain(arguments).collect();
    words.join(" ")
}

/// Colour when a person is looking and has not asked for none.
fn colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}
