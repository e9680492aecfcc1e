//! `muso demo --nn`: a small network on the embedded Fashion-MNIST, three scenarios, every method.
//!
//! Every method had the same small budget for its settings: those in `demo-grid.toml` were tried on two seeds that are
//! not used again, one setting for all three scenarios, and the one with the least mean seed gap was kept. [`tune`] does
//! that, and what it found is in `demo-tuned.toml`, which [`run`] takes its settings from.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::compare::{Compared, Setting, prepare, run as compare, run_arms};
use super::config::Config;
use super::plan::Arm;
use super::settings::flat;
use super::workplace::Workplace;
use crate::error::{Error, Result};
use crate::methods::networks::find;
use crate::outcome::Tuning;
use crate::progress::Progress;

/// Seeds that settings are tuned on; they are not among those reported.
pub const TUNING_SEEDS: [u64; 2] = [1005, 1008];
/// First of the seeds that the demo reports.
pub const FIRST_SEED: u64 = 20;

const CONFIG: &str = include_str!("demo.toml");
const GRID: &str = include_str!("demo-grid.toml");
const TUNED: &str = include_str!("demo-tuned.toml");

/// Grid of settings to try, by the key of the method.
type Grid = BTreeMap<String, Vec<toml::Table>>;

/// Outcome of the grid search for one method.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Tuned {
    chosen: usize,
    seed_gap: f64,
}

fn grid() -> Result<Grid> {
    toml::from_str(GRID).map_err(|e| broken("demo-grid.toml", &e))
}

fn broken(name: &str, error: &toml::de::Error) -> Error {
    Error::format(name, error.message(), "the file that was built in")
}

/// Returns the run with the settings that tuning chose, and the record of the tuning.
fn config(seeds: &[u64]) -> Result<(Config, Vec<Tuning>)> {
    let mut config = Config::parse(CONFIG, "demo.toml".as_ref())?;
    config.seeds = seeds.to_vec();
    let tuned: BTreeMap<String, Tuned> =
        toml::from_str(TUNED).map_err(|e| broken("demo-tuned.toml", &e))?;
    let mut notes = Vec::new();
    for (key, settings) in grid()? {
        let Some(found) = tuned.get(&key) else {
            continue;
        };
        let chosen = settings.get(found.chosen).cloned().unwrap_or_default();
        notes.push(Tuning {
            method: find(&key)?.name.to_owned(),
            grid: describe_all(&settings),
            chosen: describe(&chosen),
            seed_gap: found.seed_gap,
        });
        config.methods.insert(key, chosen);
    }
    config.check()?;
    Ok((config, notes))
}

/// Describes settings in a line.
fn describe(settings: &toml::Table) -> String {
    let parts: Vec<String> = flat(settings)
        .into_iter()
        .map(|(name, value)| format!("{} {value}", name.trim_start_matches("recipe.")))
        .collect();
    parts.join(", ")
}

fn describe_all(grid: &[toml::Table]) -> String {
    let all: Vec<String> = grid.iter().map(describe).collect();
    all.join("; ")
}

/// Runs the demo's comparison on `seeds`, with the settings that tuning chose.
pub fn run(
    seeds: &[u64],
    command: &str,
    place: &Workplace,
    progress: &mut dyn Progress,
) -> Result<Compared> {
    let (config, tuning) = config(seeds)?;
    let setting = Setting {
        title: "Eleven ways to forget".into(),
        setting: "small CNN on Fashion-MNIST".into(),
        command: command.to_owned(),
        notes: vec![
            format!(
                "The settings of every method were chosen on seeds {} and {}, which are not among those reported: the one \
                 with the least mean seed gap over the three scenarios, out of the five in the table below. `muso demo --nn \
                 --tune` repeats it.",
                TUNING_SEEDS[0], TUNING_SEEDS[1]
            ),
            "MUSO is the paper's formula. MUSO-S takes its labels from features that never memorised the forgotten rows; \
             the README says why it is needed."
                .into(),
        ],
        tuning,
        ..Setting::default()
    };
    compare(&config, setting, place, progress)
}

/// Searches the grid of some methods, or of all if `methods` is empty, and returns the seed gap of every setting on
/// `seeds` as the text of `demo-tuned.toml`.
pub fn tune(
    methods: &[String],
    seeds: &[u64],
    place: &Workplace,
    progress: &mut dyn Progress,
) -> Result<String> {
    let wanted: Vec<&str> = methods
        .iter()
        .map(|name| Ok(find(name)?.key))
        .collect::<Result<_>>()?;
    let (config, _) = config(seeds)?;
    let mut arms = Vec::new();
    for (key, settings) in grid()? {
        if !wanted.is_empty() && !wanted.contains(&key.as_str()) {
            continue;
        }
        for (index, table) in settings.into_iter().enumerate() {
            arms.push(Arm {
                name: format!("{key} {index}"),
                method: find(&key)?.with(table)?,
            });
        }
    }
    let (workbench, cases) = prepare(&config, place)?;
    let comparisons = run_arms(&config, &workbench, &cases, &arms, progress)?;
    let mut text = format!(
        "# Written by `muso demo --nn --tune`: seed gap on seeds {seeds:?} of every setting in demo-grid.toml, by scenario in\n\
         # the order of demo.toml, and their mean. The least mean is chosen.\n"
    );
    let mut best: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
    for (k, arm) in arms.iter().enumerate() {
        let gaps: Vec<f64> = comparisons.iter().map(|c| c.arms[k].gap).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let (key, index) = arm.name.split_once(' ').unwrap_or((&arm.name, "0"));
        let index: usize = index.parse().unwrap_or(0);
        let shown: Vec<String> = gaps.iter().map(|gap| format!("{gap:.2}")).collect();
        text.push_str(&format!(
            "# {key} {index}: {} -> {mean:.2}\n",
            shown.join(" ")
        ));
        let entry = best.entry(key).or_insert((index, mean));
        // One that diverged has no mean and is never chosen over one that has.
        if mean < entry.1 || entry.1.is_nan() {
            *entry = (index, mean);
        }
    }
    for (key, (chosen, mean)) in best {
        text.push_str(&format!(
            "\n[{key}]\nchosen = {chosen}\nseed-gap = {mean:.2}\n"
        ));
    }
    Ok(text)
}
