//! `muso demo --nn`: a small network on the embedded Fashion-MNIST, three scenarios, every method.
//!
//! Every method had the same small budget for its settings: those in `demo-grid.toml` were tried on two seeds that are
//! not used again, one setting for all three scenarios, and the one with the least mean seed gap was kept. [`tune`] does
//! that, and what it found is in `demo-tuned.toml`, which [`run`] takes its settings from.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::compare::{Compared, Setting, run as compare};
use super::config::Config;
use super::plan::Arm;
use super::tuning::{describe, describe_all, gaps, mean};
use super::workplace::Workplace;
use crate::error::{Error, Result};
use crate::methods::networks::{Preset, find};
use crate::outcome::Tuning;
use crate::progress::Progress;

/// Seeds that settings are tuned on; they are not among those reported.
pub const TUNING_SEEDS: [u64; 2] = [1005, 1008];
/// First of the seeds that the demo reports.
pub const FIRST_SEED: u64 = 20;

const CONFIG: &str = include_str!("demo.toml");
const GRID: &str = include_str!("demo-grid.toml");
const TUNED: &str = include_str!("demo-tuned.toml");
const ARMS: &str = include_str!("demo-arms.toml");

/// Recipe of an ablation, for all scenarios.
const RECIPE: &str = "
recipe = { rule = \"adamw\", batch = 64, schedule = \"cosine\", epochs = 5, learning-rate = 1e-3 }
class-recipe = { rule = \"adamw\", batch = 64, schedule = \"cosine\", epochs = 5, learning-rate = 1e-3 }
";

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
        config.methods.insert(key, chosen.into());
    }
    let arms: Grid = toml::from_str(ARMS).map_err(|e| broken("demo-arms.toml", &e))?;
    for (key, arms) in arms {
        if let Some(settings) = config.methods.get_mut(&key) {
            settings.add(arms);
        }
    }
    config.check()?;
    Ok((config, notes))
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
            "The settings of SSD and SalUn to choose from have been replaced since; the ones chosen are among both. Mix has \
             not been tuned, and is left out."
                .into(),
            "MUSO is the paper's formula with tuned settings; in parentheses, the settings of the paper's text and of the \
             authors' code at two dates; after a colon, one recipe with the projector exact in f64, as either version of the \
             code makes it in f32, or with random labels in its place. MUSO-S takes its labels from features that never \
             memorised the forgotten rows; the README says why it is needed."
                .into(),
        ],
        tuning,
        ..Setting::default()
    };
    compare(&config, setting, place, None, progress)
}

/// Runs the ablation of a preset of MUSO on the demo's data, with the recipe of the projectors' arms: the published ones
/// move nothing here.
pub fn ablate(
    preset: Preset,
    product: bool,
    seeds: &[u64],
    command: &str,
    place: &Workplace,
    progress: &mut dyn Progress,
) -> Result<Compared> {
    let mut config = Config::parse(CONFIG, "demo.toml".as_ref())?;
    config.seeds = seeds.to_vec();
    let recipe: toml::Table = toml::from_str(RECIPE).map_err(|e| broken("demo.rs", &e))?;
    config.methods.insert("muso".into(), recipe.into());
    config.ablate(preset, product)?;
    let setting = Setting {
        title: format!("Algorithm 1 around the preset {}", preset.key()),
        setting: "small CNN on Fashion-MNIST".into(),
        command: command.to_owned(),
        notes: vec![
            "Each arm differs from the preset in what its name says; all have the recipe of the demo's arms with one \
             projector or another."
                .into(),
        ],
        ..Setting::default()
    };
    compare(&config, setting, place, None, progress)
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
                ..Arm::new(&key, None, table)?
            });
        }
    }
    let found = gaps(&config, &arms, place, progress)?;
    let mut text = format!(
        "# Written by `muso demo --nn --tune`: seed gap on seeds {seeds:?} of every setting in demo-grid.toml, by scenario in\n\
         # the order of demo.toml, and their mean. The least mean is chosen.\n"
    );
    let mut best: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
    for (arm, gaps) in arms.iter().zip(&found) {
        let mean = mean(gaps);
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_method_has_five_settings_to_choose_from() {
        let grid = grid().unwrap();
        let number = |table: &toml::Table, key: &str| table[key].as_float().unwrap();
        for (key, settings) in &grid {
            assert_eq!(settings.len(), 5, "{key}");
            for (k, one) in settings.iter().enumerate() {
                assert!(!settings[..k].contains(one), "{key} {k} is there twice");
                find(key).unwrap().with(one.clone()).unwrap();
            }
        }
        // The ranges of the paper.
        let inside = |key: &str, name: &str, low: f64, high: f64| {
            let values = grid[key].iter().map(|table| number(table, name));
            let values: Vec<f64> = values.collect();
            assert!(
                values.iter().all(|x| (low..=high).contains(x)),
                "{key} {values:?}"
            );
            assert!(
                values.iter().any(|x| *x != values[0]),
                "{key} has one {name}"
            );
        };
        inside("ssd", "selection", 0.1, 100.0);
        inside("ssd", "dampening", 0.1, 5.0);
        inside("salun", "share", 0.0, 1.0);
    }

    #[test]
    fn the_demo_has_muso_as_published_and_with_every_projector() {
        let (config, _) = config(&[FIRST_SEED]).unwrap();
        let arms = config.arms().unwrap();
        let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
        for name in [
            "MUSO",
            "MUSO (paper)",
            "MUSO (released 2024-10)",
            "MUSO (released 2025-02)",
            "MUSO: exact projector",
            "MUSO: 2024-10 projector",
            "MUSO: 2025-02 projector",
            "MUSO: random labels",
        ] {
            assert!(names.contains(&name), "{name} is not in {names:?}");
        }
    }
}
