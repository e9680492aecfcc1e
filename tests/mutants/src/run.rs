//! Runs tests with one mutant on, those that reach it and no others.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::Outcome;
use crate::sites::Mutant;
use crate::tree::{LOG, SWITCH, Tree};

/// A mutant may allocate without end; nothing here needs more, in KiB.
const MEMORY: u64 = 12 << 20;
/// Seconds that a batch of tests may take beyond ten times what it takes with no mutant.
const PATIENCE: f64 = 20.0;
/// Seconds of tests that are run before the first look at the outcome.
const FIRST_BATCH: f64 = 3.0;

/// Tests that measure time fail now and then on a busy machine, and say nothing of a mutant.
const TIMED: [&str; 1] = ["cli::bench::"];

/// All tests of all programs, as (program, test).
pub(crate) struct Tests(Vec<(String, String)>);

impl Tests {
    /// Asks the programs which tests they have; those that are ignored are left out.
    pub(crate) fn find(tree: &Tree) -> Outcome<Self> {
        let mut tests = Vec::new();
        for (name, program) in &tree.programs {
            let list = |more: &[&str]| -> Outcome<BTreeSet<String>> {
                let arguments = ["--list", "--format", "terse"];
                let listed = Command::new(program)
                    .args(arguments)
                    .args(more)
                    .current_dir(&tree.root)
                    .output()?;
                let text = String::from_utf8(listed.stdout)?;
                let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
                Ok(names.map(str::to_owned).collect())
            };
            let ignored = list(&["--ignored"])?;
            let mut all = list(&[])?;
            all.retain(|test| !TIMED.iter().any(|timed| test.starts_with(timed)));
            tests.extend(
                all.difference(&ignored)
                    .map(|test| (name.clone(), test.clone())),
            );
        }
        Ok(Self(tests))
    }
}

/// A test that passes with no mutant.
#[derive(Clone, Debug)]
struct Test {
    program: String,
    name: String,
    seconds: f64,
}

/// Which tests reach each mutant, the quickest first.
pub(crate) struct Reached(BTreeMap<u32, Vec<Test>>);

/// How a batch of tests ended.
enum Ended {
    Passed,
    /// With the first test that failed.
    Failed(String),
    TooLong,
}

/// Runs some tests of a program.
fn run(
    tree: &Tree,
    program: &Path,
    tests: &[&str],
    settings: &[(&str, &str)],
    limit: f64,
) -> Outcome<Ended> {
    // `timeout` has a process group of its own and kills all of it, children of the tests included.
    let script = format!("ulimit -v {MEMORY}; exec timeout -s KILL {limit:.0} \"$0\" \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &script])
        .arg(program)
        .args(["--exact", "--test-threads=1"])
        .args(tests)
        .envs(settings.iter().copied())
        // What fails is to fail at once, and to leave nothing behind for the next mutant.
        .env("PROPTEST_MAX_SHRINK_ITERS", "0")
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")
        .current_dir(&tree.root)
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(Ended::Passed);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let failed = text.lines().find_map(|line| {
        let line = line.strip_prefix("test ")?;
        line.strip_suffix(" ... FAILED")
            .or_else(|| line.strip_suffix(" - should panic ... FAILED"))
    });
    // 137: killed. Without the name of a test, the program itself was: out of time, or aborted.
    Ok(match failed {
        Some(name) => Ended::Failed(name.to_owned()),
        None if output.status.code() == Some(137) => Ended::TooLong,
        None => Ended::Failed("(aborted)".into()),
    })
}

/// Works through a list in several threads; the first failure of the work itself ends it.
fn in_parallel<T: Sync>(
    items: &[T],
    jobs: usize,
    work: impl Fn(&T) -> Outcome<()> + Sync,
) -> Outcome<()> {
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = work(item) {
                        next.store(items.len(), Ordering::Relaxed);
                        if let Ok(mut failure) = failure.lock() {
                            *failure = Some(error.to_string());
                        }
                    }
                }
            });
        }
    });
    match failure.into_inner() {
        Ok(None) => Ok(()),
        Ok(Some(error)) => Err(error.into()),
        Err(_) => Err("a thread panicked".into()),
    }
}

/// A file of lines that are added one by one.
struct Lines(Mutex<fs::File>);

impl Lines {
    fn open(path: &Path) -> Outcome<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self(Mutex::new(file)))
    }

    fn add(&self, fields: &[&str]) -> Outcome<()> {
        let mut file = self.0.lock().map_err(|_| "a thread panicked")?;
        writeln!(file, "{}", fields.join("\t"))?;
        Ok(())
    }
}

/// The lines of a file that may not be there yet, cut at tabs.
fn rows(path: &Path) -> Vec<Vec<String>> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let cut = |line: &str| line.split('\t').map(str::to_owned).collect();
    text.lines().map(cut).collect()
}

impl Reached {
    /// Runs each test by itself with no mutant, and notes which mutants it asks for.
    pub(crate) fn find(tree: &Tree, tests: &Tests, jobs: usize) -> Outcome<Self> {
        let path = tree.work.join("reached.tsv");
        let known: HashSet<(String, String)> = rows(&path)
            .into_iter()
            .filter(|row| row.len() == 5)
            .map(|row| (row[0].clone(), row[1].clone()))
            .collect();
        let lines = Lines::open(&path)?;
        let missing: Vec<(usize, &(String, String))> = tests
            .0
            .iter()
            .enumerate()
            .filter(|(_, test)| !known.contains(*test))
            .collect();
        eprintln!("{} tests, {} to be looked at", tests.0.len(), missing.len());
        in_parallel(&missing, jobs, |(index, (program, name))| {
            let log = tree.work.join(format!("log-{index}"));
            let _ = fs::remove_file(&log);
            let settings = [(SWITCH, "0"), (LOG, log.to_str().ok_or("no UTF-8")?)];
            let start = Instant::now();
            let ended = run(tree, &tree.programs[program], &[name], &settings, 900.0)?;
            let seconds = format!("{:.3}", start.elapsed().as_secs_f64());
            let numbers: BTreeSet<u32> = fs::read_to_string(&log)
                .unwrap_or_default()
                .lines()
                .filter_map(|line| line.parse().ok())
                .collect();
            let _ = fs::remove_file(&log);
            let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
            let passed = match ended {
                Ended::Passed => "passed",
                _ => "failed",
            };
            lines.add(&[program, name, &seconds, passed, &numbers.join(",")])
        })?;
        let mut reached = BTreeMap::<u32, Vec<Test>>::new();
        for row in rows(&path) {
            let [program, name, seconds, passed, numbers] = &row[..] else {
                continue;
            };
            if passed != "passed" {
                eprintln!("left out, since it fails without any mutant: {name}");
                continue;
            }
            let test = Test {
                program: program.clone(),
                name: name.clone(),
                seconds: seconds.parse()?,
            };
            for number in numbers.split(',').filter_map(|text| text.parse().ok()) {
                reached.entry(number).or_default().push(test.clone());
            }
        }
        for tests in reached.values_mut() {
            tests.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        }
        Ok(Self(reached))
    }
}

/// What became of a mutant.
#[derive(Clone, Debug)]
pub(crate) struct Fate {
    /// `caught`, `hung`, `survived`, or `unreached` where no test comes by.
    pub(crate) outcome: String,
    /// How many tests reach it.
    pub(crate) tests: usize,
}

/// Runs the first mutants that have not been run yet; returns what is known of all.
pub(crate) fn all(
    tree: &Tree,
    mutants: &[Mutant],
    reached: &Reached,
    first: usize,
    jobs: usize,
) -> Outcome<BTreeMap<u32, Fate>> {
    let path = tree.work.join("results.tsv");
    let done = read(&path);
    let lines = Lines::open(&path)?;
    // Every so many, so that a part of them is of all folders.
    let stride = (mutants.len() / first.clamp(1, mutants.len().max(1))).max(1);
    let chosen = mutants.iter().step_by(stride).take(first);
    let missing: Vec<&Mutant> = chosen.filter(|m| !done.contains_key(&m.number)).collect();
    eprintln!("{} mutants to run", missing.len());
    in_parallel(&missing, jobs, |mutant| {
        let start = Instant::now();
        let tests = reached.0.get(&mutant.number).map_or(&[][..], Vec::as_slice);
        let (outcome, by) = fate(tree, mutant.number, tests)?;
        let seconds = format!("{:.1}", start.elapsed().as_secs_f64());
        eprintln!(
            "{} {}:{} {outcome} {by} ({seconds} s)",
            mutant.number, mutant.file, mutant.line
        );
        let (number, count) = (mutant.number.to_string(), tests.len().to_string());
        lines.add(&[&number, outcome, &by, &count, &seconds])
    })?;
    Ok(read(&path))
}

fn read(path: &Path) -> BTreeMap<u32, Fate> {
    let one = |row: Vec<String>| {
        let fate = Fate {
            outcome: row.get(1)?.clone(),
            tests: row.get(3)?.parse().ok()?,
        };
        Some((row.first()?.parse().ok()?, fate))
    };
    rows(path).into_iter().filter_map(one).collect()
}

/// Runs the tests that reach a mutant, in batches that double in length.
fn fate(tree: &Tree, number: u32, tests: &[Test]) -> Outcome<(&'static str, String)> {
    if tests.is_empty() {
        return Ok(("unreached", String::new()));
    }
    let number = number.to_string();
    let mut rest = tests;
    let mut length = FIRST_BATCH;
    while !rest.is_empty() {
        let mut seconds = 0.0;
        let fits = |test: &&Test| {
            let first = seconds == 0.0;
            seconds += test.seconds;
            first || seconds <= length
        };
        let count = rest.iter().take_while(fits).count();
        let (batch, after) = rest.split_at(count.max(1));
        for (program, path) in &tree.programs {
            let of_program = batch.iter().filter(|test| test.program == *program);
            let (names, seconds): (Vec<&str>, Vec<f64>) = of_program
                .map(|test| (test.name.as_str(), test.seconds))
                .unzip();
            if names.is_empty() {
                continue;
            }
            let limit = PATIENCE + 10.0 * seconds.iter().sum::<f64>();
            match run(tree, path, &names, &[(SWITCH, &number)], limit)? {
                Ended::Passed => {}
                Ended::Failed(name) => {
                    // Whether it is the mutant that the test minds: alone, it must fail again.
                    let alone = [name.as_str()];
                    let again = if names.contains(&alone[0]) {
                        run(tree, path, &alone, &[(SWITCH, &number)], limit)?
                    } else {
                        Ended::TooLong
                    };
                    if !matches!(again, Ended::Passed) {
                        return Ok(("caught", name));
                    }
                    eprintln!("{number}: {name} failed once and passed then");
                }
                Ended::TooLong => return Ok(("hung", String::new())),
            }
        }
        rest = after;
        length *= 2.0;
    }
    Ok(("survived", String::new()))
}
