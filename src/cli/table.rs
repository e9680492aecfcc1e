//! `muso demo` and `muso reproduce`.

use std::path::PathBuf;

use clap::Args;
use muso::data::{OutputFile, commit_all};
use muso::pipeline::table1;
use muso::report::{Style, html, terminal};

use super::{Common, Outputs, colour, device, print, progress::Bar};

/// What a table run takes.
#[derive(Debug, Args)]
pub(super) struct TableArgs {
    /// How many repetitions
    #[arg(long, default_value_t = 5, value_name = "N")]
    seeds: u64,
    /// Seed of the first repetition; the others count up from it
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    seed: u64,
    /// Where to write the page with plots
    #[arg(long, default_value = "report.html", value_name = "FILE")]
    report: PathBuf,
}

pub(super) fn run(args: &TableArgs, common: &Common, command: &str) -> anyhow::Result<()> {
    let engine = device::engine(common)?;
    let mut outputs = Outputs::beside(&[]);
    let mut files: Vec<OutputFile> = Vec::new();
    files.extend(outputs.open("--report", Some(&args.report))?);
    files.extend(outputs.open("--json", common.json.as_deref())?);

    let params = table1::Params {
        seeds: (0..args.seeds).map(|k| args.seed.wrapping_add(k)).collect(),
        command: repeat(command, args),
        ..table1::Params::default()
    };
    let table = table1::run(&engine, &params, &mut Bar::new())?;
    print(&terminal::table(&table, Style { colour: colour() }))?;
    files[0].put(html::table_page(&table).as_bytes())?;
    if let Some(file) = files.get_mut(1) {
        file.put(table.to_json().as_bytes())?;
    }
    commit_all(files)?;
    print(&format!("\nPlots: {}\n", args.report.display()))?;
    Ok(())
}

/// The command line that gives the same numbers again.
fn repeat(command: &str, args: &TableArgs) -> String {
    let mut line = format!("{command} --seeds {}", args.seeds);
    if args.seed != 0 {
        line.push_str(&format!(" --seed {}", args.seed));
    }
    line
}
