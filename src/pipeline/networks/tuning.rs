//! Choice of settings: every method has the same number of arms to choose from, on seeds that are not reported.
//!
//! What is chosen by is the seed gap, which needs retrained models: a user of a method has none, so this flatters every
//! method, and all of them alike.

use super::compare::{prepare, run_arms};
use super::config::{ArmSettings, Config};
use super::plan::Arm;
use super::settings::flat;
use super::workplace::Workplace;
use crate::error::{Error, Result};
use crate::outcome::Tuning;
use crate::progress::Progress;

/// Returns the seed gap of every arm for each scenario and seed, the seeds of a scenario together.
pub(super) fn gaps(
    config: &Config,
    arms: &[Arm],
    place: &Workplace,
    progress: &mut dyn Progress,
) -> Result<Vec<Vec<f64>>> {
    let (workbench, cases) = prepare(config, place)?;
    let comparisons = run_arms(config, &workbench, &cases, arms, None, progress)?;
    let of = |k: usize| comparisons.iter().map(|c| c.arms[k].gap).collect();
    Ok((0..arms.len()).map(of).collect())
}

/// Returns the mean of some gaps, NaN if one of them is.
pub(super) fn mean(gaps: &[f64]) -> f64 {
    gaps.iter().sum::<f64>() / gaps.len() as f64
}

/// Describes settings in a line.
pub(super) fn describe(settings: &toml::Table) -> String {
    let parts: Vec<String> = flat(settings)
        .into_iter()
        .filter(|(name, _)| name != "name")
        .map(|(name, value)| format!("{} {value}", name.trim_start_matches("recipe.")))
        .collect();
    match parts.is_empty() {
        true => "defaults".to_owned(),
        false => parts.join(", "),
    }
}

/// Describes a grid of settings in a line.
pub(super) fn describe_all(grid: &[toml::Table]) -> String {
    let all: Vec<String> = grid.iter().map(describe).collect();
    all.join("; ")
}

/// Chooses for every method of a configuration the arm with the least mean seed gap on `seeds`, and returns the
/// configuration with these arms alone, and what was chosen from what.
///
/// # Errors
/// If the methods do not have the same number of arms, or if one of `seeds` is among those that are reported.
pub fn tuned(
    config: &Config,
    seeds: &[u64],
    place: &Workplace,
    progress: &mut dyn Progress,
) -> Result<(Config, Vec<Tuning>)> {
    check(config, seeds)?;
    let mut arms = config.arms()?;
    arms.retain(|arm| arm.key != "retrain");
    let search = Config {
        seeds: seeds.to_vec(),
        ..config.clone()
    };
    let gaps = gaps(&search, &arms, place, progress)?;
    let (mut chosen, mut notes) = (config.clone(), Vec::new());
    for (key, settings) in &config.methods {
        let of_method = arms.iter().zip(&gaps).filter(|(arm, _)| arm.key == key);
        let means = of_method.map(|(_, gaps)| mean(gaps)).enumerate();
        // One that diverged has no mean, and is chosen only where all did.
        let best = means.reduce(|best, next| match next.1 < best.1 || best.1.is_nan() {
            true => next,
            false => best,
        });
        let Some((index, seed_gap)) = best else {
            continue;
        };
        let tables = settings.tables();
        let mut table = tables[index].clone();
        let method = Arm::new(key, None, without_name(&table))?;
        notes.push(Tuning {
            method: method.name,
            grid: describe_all(tables),
            chosen: describe(&table),
            seed_gap,
        });
        table.remove("name");
        chosen.methods.insert(key.clone(), ArmSettings::One(table));
    }
    Ok((chosen, notes))
}

fn without_name(table: &toml::Table) -> toml::Table {
    let mut table = table.clone();
    table.remove("name");
    table
}

/// Refuses a search in which one method has more to choose from than another, or that looks at reported seeds.
fn check(config: &Config, seeds: &[u64]) -> Result<()> {
    if let Some(seed) = seeds.iter().find(|seed| config.seeds.contains(seed)) {
        return Err(Error::Selection {
            what: "`.tune`".into(),
            problem: format!("seed {seed} is among those reported"),
            expected: "seeds of their own to tune on".into(),
        });
    }
    let methods = config.methods.iter().filter(|(key, _)| *key != "retrain");
    let mut counts = methods.map(|(key, settings)| (key, settings.tables().len()));
    let Some((first, budget)) = counts.next() else {
        return Err(Error::Missing {
            name: "methods",
            expected: "methods with several arms each, in a configuration file".into(),
        });
    };
    match counts.find(|(_, count)| *count != budget) {
        None => Ok(()),
        Some((key, count)) => Err(Error::Selection {
            what: format!("methods.{key}"),
            problem: format!("{count} settings to choose from, where {first} has {budget}"),
            expected: "the same number for every method".into(),
        }),
    }
}
