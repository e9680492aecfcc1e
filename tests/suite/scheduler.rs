//! What is left when a stage of a run fails: two hundred failures at random places, and how far a stage may run ahead.
//!
//! A failure is injected before an item of a lane. It must come out as an error that names it and nothing that followed
//! from it, soon, with every thread gone and with a folder from which the run goes on to the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use muso::data::images::Augment;
use muso::data::{Forget, OutputFile};
use muso::engine::AnyEngine;
use muso::pipeline::networks::config::{Config, EarlyStop};
use muso::pipeline::networks::folder::Folder;
use muso::pipeline::networks::{Train, Unlearn, Workplace};
use muso::progress::Progress;
use muso::scheduler::{Lane, Scheduler};
use muso::train::Recipe;
use muso::{Error, Result};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use crate::support::{StopAt, engine, files};

const CASES: u64 = 200;
/// From the failure to the error.
const SOON: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_millis(400);

/// The embedded images, a network as narrow as can be: an epoch takes some hundredths of a second.
fn config() -> Config {
    let mut config = Config {
        train: Recipe {
            epochs: 2,
            batch: 16,
            augment: Some(Augment::default()),
            ..Recipe::default()
        },
        snapshots: vec![0.5],
        early_stop: Some(EarlyStop {
            patience: 2,
            hold_out: 0.2,
        }),
        forget: vec![Forget::random(0.05)],
        ..Config::default()
    };
    config.data.per_class = Some([8, 4]);
    config.network.width = Some(2);
    config
}

/// What is run, and made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Job {
    Train,
    /// MUSO, with labels that are so many updates late.
    Unlearn(usize),
}

const JOBS: [Job; 3] = [Job::Train, Job::Unlearn(0), Job::Unlearn(1)];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Error,
    Panic,
    Stall,
    /// The scheduler is told to give the run up.
    Cancel,
    /// The listener asks to stop.
    Stop,
}

const FAULTS: [Fault; 5] = [
    Fault::Error,
    Fault::Panic,
    Fault::Stall,
    Fault::Cancel,
    Fault::Stop,
];

/// Hears how often it is called, and goes on.
#[derive(Default)]
struct Counting(u64);

impl Progress for Counting {
    fn at(&mut self, _: &str, _: u64, _: u64) -> bool {
        self.0 += 1;
        true
    }
}

/// Where the runs are and what they end in when nothing fails.
struct Stand {
    home: TempDir,
    trained: Vec<(String, Vec<u8>)>,
}

impl Stand {
    fn new() -> Self {
        let home = TempDir::new().unwrap();
        let mut stand = Self {
            home,
            trained: Vec::new(),
        };
        let whole = stand.path("whole");
        train(&whole, false, Scheduler::default(), &mut ()).unwrap();
        stand.trained = files(whole.path());
        stand
    }

    fn path(&self, name: &str) -> Folder {
        Folder::new(self.home.path().join(name))
    }

    /// The bytes of the network that has forgotten.
    fn unlearn(
        &self,
        staleness: usize,
        scheduler: Scheduler,
        progress: &mut dyn Progress,
    ) -> Result<Vec<u8>> {
        let request = Unlearn {
            config: config(),
            run: Some(self.path("whole").path().to_owned()),
            model: None,
            architecture: None,
            method: "muso".into(),
            settings: vec![
                format!("staleness={staleness}"),
                "recipe.batch=16".into(),
                "recipe.epochs=3".into(),
                "sampling.random=0.5".into(),
            ],
            retrain: false,
        };
        let unlearned = request.run(&place(scheduler)?, progress)?;
        let out = self.home.path().join("forgot.safetensors");
        unlearned.write(Some(OutputFile::create(&out)?), None, None)?;
        Ok(fs::read(out).unwrap())
    }

    fn run(
        &self,
        job: Job,
        folder: &Folder,
        scheduler: Scheduler,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        match job {
            Job::Train => train(folder, false, scheduler, progress),
            Job::Unlearn(staleness) => self.unlearn(staleness, scheduler, progress).map(drop),
        }
    }
}

fn place(scheduler: Scheduler) -> Result<Workplace> {
    static ENGINE: OnceLock<AnyEngine> = OnceLock::new();
    let engine = ENGINE.get_or_init(|| engine().into());
    Workplace::new(engine.clone(), scheduler)
}

fn train(
    folder: &Folder,
    resumed: bool,
    scheduler: Scheduler,
    progress: &mut dyn Progress,
) -> Result<()> {
    let request = Train {
        folder: folder.clone(),
        config: config(),
        resumed,
    };
    request.run(&place(scheduler)?, progress).map(drop)
}

/// Whether something is being made that the run needs: a lane of labels makes one item and is not asked for its end.
fn is_needed(lane: &str, number: u64) -> bool {
    lane != "labels" || number == 0
}

/// Calls of each lane in a run in which nothing fails, and reports to its listener.
struct Counts {
    calls: BTreeMap<String, u64>,
    reports: u64,
}

impl Counts {
    fn of(stand: &Stand, job: Job) -> Self {
        let calls = Arc::new(Mutex::new(BTreeMap::new()));
        let noted = calls.clone();
        let scheduler = Scheduler::default().with_before(move |lane, number| {
            if is_needed(lane, number) {
                *noted.lock().unwrap().entry(lane.to_owned()).or_insert(0) += 1;
            }
            Ok(())
        });
        let mut progress = Counting::default();
        let folder = stand.path("counted");
        stand.run(job, &folder, scheduler, &mut progress).unwrap();
        let calls = calls.lock().unwrap().clone();
        Self {
            calls,
            reports: progress.0,
        }
    }
}

#[derive(Debug)]
struct Case {
    number: u64,
    job: Job,
    fault: Fault,
    lane: String,
    /// Which call of the lane, or which report, fails.
    at: u64,
    depth: usize,
    /// Whether the run is in the pool that its lanes compute in, as the program's are.
    in_pool: bool,
}

impl Case {
    fn draw(number: u64, counts: &BTreeMap<Job, Counts>) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(number);
        let job = JOBS[rng.random_range(0..JOBS.len())];
        let fault = FAULTS[rng.random_range(0..FAULTS.len())];
        let counts = &counts[&job];
        // What the caller's own thread does cannot be left alone when it is stuck: see `a_stuck_step_holds_up_…`.
        let lanes: Vec<&String> = counts
            .calls
            .keys()
            .filter(|lane| fault != Fault::Stall || *lane != "train")
            .collect();
        let lane = lanes[rng.random_range(0..lanes.len())].clone();
        let at = match fault {
            Fault::Stop => rng.random_range(1..=counts.reports),
            _ => rng.random_range(0..counts.calls[&lane]),
        };
        Self {
            number,
            job,
            fault,
            lane,
            at,
            depth: rng.random_range(1..=3),
            in_pool: rng.random(),
        }
    }

    fn message(&self) -> String {
        format!("injected failure {}", self.number)
    }
}

/// What an injected failure has done and waits for.
#[derive(Default)]
struct Trigger {
    calls: AtomicU64,
    pulled: Mutex<Option<Instant>>,
    cancelled: AtomicBool,
    released: AtomicBool,
}

fn scheduler(case: &Case, trigger: &Arc<Trigger>) -> Scheduler {
    let (fault, lane, at, message) = (case.fault, case.lane.clone(), case.at, case.message());
    let (hook, cancel) = (trigger.clone(), trigger.clone());
    let scheduler = Scheduler::default()
        .with_depth(case.depth)
        .with_cancelled(move || cancel.cancelled.load(Ordering::SeqCst));
    let scheduler = match fault {
        Fault::Stall => scheduler.with_patience(PATIENCE),
        _ => scheduler,
    };
    scheduler.with_before(move |name, number| {
        let is_it = fault != Fault::Stop && name == lane && is_needed(name, number);
        if !is_it || hook.calls.fetch_add(1, Ordering::SeqCst) != at {
            return Ok(());
        }
        *hook.pulled.lock().unwrap() = Some(Instant::now());
        match fault {
            Fault::Error => {
                return Err(Error::Selection {
                    what: "test".into(),
                    problem: message.clone(),
                    expected: "nothing".into(),
                });
            }
            Fault::Panic => panic!("{message}"),
            Fault::Stall => {
                while !hook.released.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Fault::Cancel => hook.cancelled.store(true, Ordering::SeqCst),
            Fault::Stop => {}
        }
        Ok(())
    })
}

/// Notes when a listener has asked to stop.
struct Noting<'a>(StopAt, &'a Trigger);

impl Progress for Noting<'_> {
    fn at(&mut self, phase: &str, done: u64, total: u64) -> bool {
        let go_on = self.0.at(phase, done, total);
        if !go_on {
            let mut pulled = self.1.pulled.lock().unwrap();
            pulled.get_or_insert_with(Instant::now);
        }
        go_on
    }
}

/// The names of the threads of this process that are lanes. Those of the engine have numbers.
fn lanes_alive() -> Vec<String> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok())
        .map(|name| name.trim_end().to_owned())
        .filter(|name| {
            let lane = name.strip_prefix("muso-");
            lane.is_some_and(|lane| lane.parse::<u32>().is_err())
        })
        .collect()
}

/// The lanes that are left when at most `most` are, or after a second.
fn lanes_left(most: usize) -> Vec<String> {
    let since = Instant::now();
    loop {
        let alive = lanes_alive();
        if alive.len() <= most || since.elapsed() > Duration::from_secs(1) {
            return alive;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What is wrong with the folder of a training run that has failed, if anything.
fn half_written(folder: &Path, trained: &[(String, Vec<u8>)]) -> Option<String> {
    if !folder.exists() {
        return None;
    }
    for (name, bytes) in files(folder) {
        let whole = trained.iter().find(|(known, _)| *known == name);
        match (name.as_str(), whole) {
            ("session.safetensors" | "best.safetensors", _) => {
                if safetensors::SafeTensors::deserialize(&bytes).is_err() {
                    return Some(format!("{name} is not whole"));
                }
            }
            ("log.csv", Some((_, all))) if all.starts_with(&bytes) => {}
            (_, Some((_, all))) if *all == bytes => {}
            (_, Some(_)) => return Some(format!("{name} has other contents")),
            (_, None) => return Some(format!("{name} is there")),
        }
    }
    None
}

impl Case {
    /// Runs it and returns how long the error took.
    fn check(&self, stand: &Stand, forgot: &BTreeMap<Job, Vec<u8>>) -> Duration {
        let trigger = Arc::new(Trigger::default());
        let folder = stand.path(&format!("case-{}", self.number));
        let before = files(stand.home.path().join("whole").as_path());
        let mut progress = match self.fault {
            Fault::Stop => Noting(StopAt(self.at), &trigger),
            _ => Noting(StopAt(u64::MAX), &trigger),
        };
        let scheduler = scheduler(self, &trigger);
        let outcome = if self.in_pool {
            rayon::scope(|_| stand.run(self.job, &folder, scheduler, &mut progress))
        } else {
            stand.run(self.job, &folder, scheduler, &mut progress)
        };
        let pulled = trigger.pulled.lock().unwrap().expect("it never came to it");
        let took = pulled.elapsed();
        let error = outcome.expect_err(&format!("{self:?} went unnoticed"));
        self.check_error(&error);
        assert!(took < SOON, "{self:?} took {took:?}: {error}");

        let stuck = usize::from(self.fault == Fault::Stall);
        let left = lanes_left(stuck);
        assert!(left.len() <= stuck, "{self:?} leaves {left:?}");
        trigger.released.store(true, Ordering::SeqCst);
        let left = lanes_left(0);
        assert!(left.is_empty(), "{self:?} leaves {left:?} for good");

        match self.job {
            Job::Train => {
                let fault = half_written(folder.path(), &stand.trained);
                assert!(fault.is_none(), "{self:?}: {}", fault.unwrap());
                let resumed = folder.path().exists();
                train(&folder, resumed, Scheduler::default(), &mut ()).unwrap();
                let same = files(folder.path()) == stand.trained;
                assert!(same, "{self:?}: the resumed run ends elsewhere");
                fs::remove_dir_all(folder.path()).unwrap();
            }
            Job::Unlearn(staleness) => {
                let whole = files(stand.home.path().join("whole").as_path());
                assert!(whole == before, "{self:?} changes what it reads");
                let again = stand.unlearn(staleness, Scheduler::default(), &mut ());
                let same = again.unwrap() == forgot[&self.job];
                assert!(same, "{self:?}: the next run ends elsewhere");
            }
        }
        took
    }

    fn check_error(&self, error: &Error) {
        let said = error.to_string();
        let (lane, message) = (&self.lane, self.message());
        let expected = match self.fault {
            Fault::Error => format!("test: {message}; expected nothing"),
            Fault::Panic => format!("the lane `{lane}` panicked: {message}"),
            Fault::Stall => format!("the lane `{lane}` made nothing for 0.4 s"),
            Fault::Cancel | Fault::Stop => {
                let is_it = match self.job {
                    Job::Train => matches!(error, Error::Paused { .. }),
                    Job::Unlearn(_) => matches!(error, Error::Interrupted),
                };
                assert!(is_it, "{self:?}: {said}");
                return;
            }
        };
        assert_eq!(said, expected, "{self:?}");
    }
}

/// In a process of its own, where all lanes are its own.
#[test]
fn two_hundred_failures_end_soon_cleanly_and_resumable() {
    const ALONE: &str = "MUSO_TEST_ALONE";
    let name = "scheduler::two_hundred_failures_end_soon_cleanly_and_resumable";
    if std::env::var_os(ALONE).is_none() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let last = said.lines().find(|line| line.contains("failures:"));
        println!("{}", last.unwrap_or("nothing was said"));
        let faults = String::from_utf8_lossy(&output.stderr);
        // The panics that were injected are said there too.
        let from = faults.len().saturating_sub(3000);
        let from = (from..).find(|&i| faults.is_char_boundary(i)).unwrap();
        assert!(output.status.success(), "{said}\n{}", &faults[from..]);
        assert!(last.is_some(), "it did not run: {said}");
        return;
    }
    let stand = Stand::new();
    let counts: BTreeMap<Job, Counts> = JOBS.map(|job| (job, Counts::of(&stand, job))).into();
    let lanes = |job| counts[&job].calls.keys().cloned().collect::<Vec<_>>();
    assert_eq!(lanes(Job::Train), ["decode", "features", "train"]);
    let all = ["decode", "features", "gram", "labels", "solve", "train"];
    assert_eq!(lanes(Job::Unlearn(0)), all);
    assert_eq!(lanes(Job::Unlearn(1)), all);
    let forgot: BTreeMap<Job, Vec<u8>> = [0, 1]
        .map(|staleness| {
            let bytes = stand.unlearn(staleness, Scheduler::default(), &mut ());
            (Job::Unlearn(staleness), bytes.unwrap())
        })
        .into();
    assert!(
        lanes_left(0).is_empty(),
        "a run that ends well leaves lanes"
    );

    let mut longest: BTreeMap<String, Duration> = BTreeMap::new();
    for number in 0..CASES {
        let case = Case::draw(number, &counts);
        let took = case.check(&stand, &forgot);
        let entry = longest.entry(format!("{:?}", case.fault)).or_default();
        *entry = took.max(*entry);
    }
    let list: Vec<String> = longest
        .iter()
        .map(|(fault, took)| format!("{fault} {:.3} s", took.as_secs_f64()))
        .collect();
    println!("{CASES} failures: longest endings: {}", list.join(", "));
}

/// One of a number of things that count how many of them there are.
struct Counted(Arc<Mutex<(usize, usize)>>);

impl Counted {
    fn new(count: &Arc<Mutex<(usize, usize)>>) -> Self {
        let mut alive = count.lock().unwrap();
        alive.0 += 1;
        alive.1 = alive.1.max(alive.0);
        Self(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.lock().unwrap().0 -= 1;
    }
}

#[test]
fn a_slow_consumer_bounds_how_much_there_is() {
    for depth in 1..=4 {
        for length in 1..=3 {
            let scheduler = Scheduler::default().with_depth(depth);
            let count = Arc::new(Mutex::new((0, 0)));
            let made = count.clone();
            let source = (0..60).map(move |_| Ok(Counted::new(&made)));
            let mut lane: Lane<Counted> = scheduler.lane("source", source).unwrap();
            for _ in 1..length {
                lane = scheduler.lane("through", lane).unwrap();
            }
            let mut taken = 0;
            for item in lane {
                let held = item.unwrap();
                std::thread::sleep(Duration::from_millis(if taken < 20 { 2 } else { 0 }));
                drop(held);
                taken += 1;
            }
            let (left, most) = *count.lock().unwrap();
            assert_eq!((taken, left), (60, 0));
            // As many as each lane may be ahead, and the one that the consumer has.
            let bound = length * depth + 1;
            assert!(most <= bound, "{most} at depth {depth} of {length} lanes");
            assert!(most >= depth, "it never got ahead: {most} at {depth}");
        }
    }
}

/// A step that is stuck is the caller's own thread, which nobody can take away from it; what is made for it meanwhile is
/// bounded, and it goes on to the same end.
#[test]
fn a_stuck_step_holds_up_its_lanes_and_no_more() {
    let stand = Stand::new();
    for depth in [1, 3] {
        let decoded = Arc::new(AtomicU64::new(0));
        let ahead = Arc::new(AtomicU64::new(0));
        let (calls, seen) = (decoded.clone(), ahead.clone());
        let scheduler = Scheduler::default()
            .with_depth(depth)
            .with_before(move |lane, number| {
                match (lane, number) {
                    ("decode", _) => {
                        calls.fetch_add(1, Ordering::SeqCst);
                    }
                    ("train", 1) => {
                        std::thread::sleep(Duration::from_millis(300));
                        seen.store(calls.load(Ordering::SeqCst), Ordering::SeqCst);
                    }
                    _ => {}
                }
                Ok(())
            });
        let folder = stand.path(&format!("stuck-{depth}"));
        train(&folder, false, scheduler, &mut ()).unwrap();
        // Two were taken; the lane has `depth` more and may have begun none beyond that.
        assert_eq!(ahead.load(Ordering::SeqCst), 2 + depth as u64);
        assert!(files(folder.path()) == stand.trained);
    }
}

/// Labels that fail while there is still something to train on without them: the run does not go on until it needs them.
#[test]
fn labels_that_fail_stop_the_training_beside_them() {
    let stand = Stand::new();
    for (staleness, seed) in [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)] {
        let steps = Arc::new(AtomicU64::new(0));
        let count = steps.clone();
        let scheduler = Scheduler::default().with_before(move |lane, number| {
            match lane {
                "train" => {
                    count.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(10));
                }
                // Where labels may be late, the first are waited for all the same.
                "solve" if number == staleness => return Err(Error::Overflow),
                _ => {}
            }
            Ok(())
        });
        let mut request = Unlearn {
            config: config(),
            run: Some(stand.path("whole").path().to_owned()),
            model: None,
            architecture: None,
            method: "muso".into(),
            settings: vec![
                format!("staleness={staleness}"),
                "recipe.batch=1".into(),
                "recipe.epochs=3".into(),
            ],
            retrain: false,
        };
        // One forgotten row, which is not among the first with every seed.
        request.config.forget = vec![Forget::random(0.0125)];
        request.config.seeds = vec![seed];
        let place = place(scheduler).unwrap();
        let error = request.run(&place, &mut ()).unwrap_err();
        assert!(matches!(error, Error::Overflow), "{error}");
        let (begun, all) = (steps.load(Ordering::SeqCst), 80);
        let first = staleness * all;
        assert!(begun < first + 20, "{begun} steps were done, seed {seed}");
    }
}
