//! Mutation testing: changes sources in many small ways and says which changes no test notices.
//!
//! All mutants are in one build: each is `if crate::mutants::on(K) { changed } else { original }`, and an environment
//! variable says which one is on. A rebuild for each would take half a day. The steps, in a working folder that can be
//! gone on with after an interruption:
//!
//! 1. [`sites`]: parse the sources of some folders, and pick sites that do not overlap, as many from each folder;
//! 2. [`tree`]: copy the repository, write the mutants into the copy, and drop those that do not compile;
//! 3. [`run`]: run every test once with none switched on, to learn which mutants it reaches and how long it takes; then
//!    run for each mutant the tests that reach it, the quickest first, until one fails. A hang counts as a failure.
//!
//! ```text
//! cargo run --release -p muso-mutants -- --work DIR [--count 160] [--seed 1] [--first N] [--jobs 2]
//! ```
//!
//! Mutants that change nothing that could be seen are listed with the reason in `equivalent.tsv` and are counted apart.

mod run;
mod sites;
mod table;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Anything that ends the program; shown and not acted upon.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Folders of the library whose sources are changed.
const FOLDERS: [&str; 4] = ["methods", "labels", "solve", "gram"];

/// What was asked for.
struct Asked {
    /// The repository.
    root: PathBuf,
    /// Where the copy, its build and the results are.
    work: PathBuf,
    /// How many mutants.
    count: usize,
    /// Which ones: sites are drawn with it.
    seed: u64,
    /// Only so many of them are run.
    first: usize,
    /// How many run at a time.
    jobs: usize,
}

impl Asked {
    fn parse() -> Outcome<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut asked = Self {
            root: root.canonicalize()?,
            work: PathBuf::new(),
            count: 160,
            seed: 1,
            first: usize::MAX,
            jobs: 2,
        };
        let mut args = std::env::args().skip(1);
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--work" => asked.work = value.into(),
                "--count" => asked.count = value.parse()?,
                "--seed" => asked.seed = value.parse()?,
                "--first" => asked.first = value.parse()?,
                "--jobs" => asked.jobs = value.parse()?,
                _ => return Err(format!("{name} is not an option").into()),
            }
        }
        if asked.work.as_os_str().is_empty() {
            return Err("--work DIR is missing: a folder outside the repository".into());
        }
        std::fs::create_dir_all(&asked.work)?;
        asked.work = asked.work.canonicalize()?;
        if asked.work.starts_with(&asked.root) {
            return Err("--work must be outside the repository".into());
        }
        Ok(asked)
    }
}

fn main() -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mutants: {error}");
            ExitCode::FAILURE
        }
    }
}

fn work() -> Outcome<()> {
    let asked = Asked::parse()?;
    let (tree, mutants) = tree::Tree::make(&asked)?;
    let tests = run::Tests::find(&tree)?;
    let reached = run::Reached::find(&tree, &tests, asked.jobs)?;
    let results = run::all(&tree, &mutants, &reached, asked.first, asked.jobs)?;
    let equivalent = table::Equivalent::read(&asked.root)?;
    print!("{}", table::render(&mutants, &results, &equivalent));
    Ok(())
}
