//! Ablation of Algorithm 1: a preset of MUSO and its variations, one setting at a time or all against all.
//!
//! The factors are the sample and its share R, λ, y_ref, hard or soft labels, when labels are made, how late they are used,
//! and the projector. The arms are compared like any others, all against the same retrained models.

use toml::{Table, Value};

use super::config::{ArmSettings, Config};
use crate::error::Result;
use crate::methods::networks::{Muso, Preset, Sampling, Settings};

/// A variation: what it is called, and the settings that make it.
type Level = (String, Table);

/// Returns the values of one factor other than that of `base`; `wanted` gives name, key and value of each.
fn others(base: &Table, wanted: Vec<(String, &str, Value)>) -> Vec<Level> {
    let different = wanted
        .into_iter()
        .filter(|(_, key, value)| base.get(*key) != Some(value));
    different
        .map(|(name, key, value)| (name, Table::from_iter([(key.to_owned(), value)])))
        .collect()
}

/// Returns a table of one entry.
fn one(key: &str, value: impl Into<Value>) -> Value {
    Value::Table(Table::from_iter([(key.to_owned(), value.into())]))
}

/// Returns the factors with their variations of a preset, the most interesting ones first.
fn factors(muso: &Muso) -> Vec<Vec<Level>> {
    let base = muso.settings();
    let (kind, share) = match muso.sampling {
        Sampling::ColumnSelect(share) => ("column-select", share),
        Sampling::Released(share) => ("released", share),
        Sampling::Random(share) => ("random", share),
        Sampling::All => ("random", 1.0),
    };
    let sampling = |name: String, value: Value| (name, "sampling", value);
    let samples = others(
        &base,
        vec![
            sampling("R 0.1".into(), one(kind, 0.1)),
            sampling("R 0.5".into(), one(kind, 0.5)),
            sampling("random".into(), one("random", share)),
            sampling("ColumnSelect".into(), one("column-select", share)),
            sampling("all rows".into(), "all".into()),
        ],
    );
    let path = one("lagged-cosine", vec![1e-6, 1e-2]);
    let ridges = [1e-6, 1e-3, 1.0].map(|ridge| (format!("λ {ridge:e}"), one("constant", ridge)));
    let ridges = ridges.into_iter().chain([("λ path".to_owned(), path)]);
    let mut ridges = others(&base, ridges.map(|(name, v)| (name, "ridge", v)).collect());
    for (_, table) in &mut ridges {
        // A preset with a ridge of its own for classes would keep it there.
        let ridge = table["ridge"].clone();
        table.extend(muso.class_ridge.map(|_| ("class-ridge".to_owned(), ridge)));
    }
    let words = |key: &'static str, list: &[(&str, &str)]| {
        let values = list.iter();
        let values = values.map(|(name, word)| ((*name).to_owned(), key, Value::from(*word)));
        others(&base, values.collect())
    };
    vec![
        samples,
        ridges,
        words(
            "reference",
            &[("y_ref labels", "labels"), ("y_ref logits", "logits")],
        ),
        words(
            "labels",
            &[("hard labels", "hard"), ("soft labels", "soft")],
        ),
        others(
            &base,
            vec![("an update late".into(), "staleness", 1.into())],
        ),
        words(
            "relabel",
            &[("label by update", "update"), ("label by batch", "batch")],
        ),
        words(
            "projector",
            &[
                ("exact projector", "exact"),
                ("2024-10 projector", "released-2024-10"),
                ("2025-02 projector", "released-2025-02"),
                ("random labels", "random-labels"),
            ],
        ),
    ]
}

/// Returns the arms of an ablation: the preset, then each variation of it alone, or with `product` all combinations.
/// `common` are settings that every arm has, such as a recipe.
pub fn arms(preset: Preset, common: &Table, product: bool) -> Vec<Table> {
    let factors = factors(&preset.settings());
    let mut levels: Vec<Level> = vec![(String::new(), Table::new())];
    if product {
        for factor in factors {
            let combined = levels.iter().flat_map(|(name, table)| {
                factor.iter().map(move |(other, change)| {
                    let mut both = table.clone();
                    both.extend(change.clone());
                    let name = match name.is_empty() {
                        true => other.clone(),
                        false => format!("{name}, {other}"),
                    };
                    (name, both)
                })
            });
            let combined: Vec<Level> = combined.collect();
            levels.extend(combined);
        }
    } else {
        levels.extend(factors.into_iter().flatten());
    }
    let arm = |(name, change): Level| {
        let mut arm = common.clone();
        arm.insert("preset".into(), preset.key().into());
        if !name.is_empty() {
            arm.insert("name".into(), name.into());
        }
        arm.extend(change);
        arm
    };
    levels.into_iter().map(arm).collect()
}

impl Config {
    /// Replaces the methods by an ablation of MUSO around a preset. Settings of MUSO that are configured hold for every
    /// arm.
    ///
    /// # Errors
    /// If MUSO has several arms already, or a setting of it is unknown.
    pub fn ablate(&mut self, preset: Preset, product: bool) -> Result<()> {
        let common = self.settings_of("muso")?;
        let arms = ArmSettings::Several(arms(preset, &common, product));
        self.methods = [("muso".to_owned(), arms)].into();
        self.check()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_ablation_is_about_sixteen_arms_of_different_settings() {
        for preset in Preset::ALL {
            let mut config = Config::default();
            config.ablate(preset, false).unwrap();
            let arms = config.arms().unwrap();
            assert!((15..=17).contains(&arms.len()), "{}", arms.len());
            assert_eq!(arms[0].name, preset.method_name());
            let settings: Vec<Table> = arms.iter().map(|arm| arm.method.settings()).collect();
            for (k, one) in settings.iter().enumerate() {
                assert!(
                    !settings[..k].contains(one),
                    "{} says nothing new",
                    arms[k].name
                );
            }
            for arm in &arms[1..] {
                let base = preset.settings().settings();
                let settings = arm.method.settings();
                let changed = settings
                    .iter()
                    .filter(|(key, value)| base.get(*key) != Some(value));
                let changed: Vec<&str> = changed
                    .map(|(key, _)| key.as_str())
                    .filter(|key| *key != "class-ridge")
                    .collect();
                assert_eq!(changed.len(), 1, "{}: {changed:?}", arm.name);
            }
        }
    }

    #[test]
    fn the_product_has_every_combination_and_the_common_settings() {
        let common: Table = toml::from_str("[recipe]\nepochs = 1\n").unwrap();
        let all = arms(Preset::Paper, &common, true);
        let wanted: usize = factors(&Preset::Paper.settings())
            .iter()
            .map(|factor| factor.len() + 1)
            .product();
        assert_eq!(all.len(), wanted);
        assert!(
            all.iter()
                .all(|arm| arm["recipe"]["epochs"].as_integer() == Some(1))
        );
    }
}
