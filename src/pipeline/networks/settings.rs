//! Settings of a method as text: `recipe.epochs=5` into a table of settings, and a table as such pairs.
//!
//! The first way is that of `--set`, before the method is made; the second that of reports, after it has run.

use std::collections::BTreeMap;

use toml::{Table, Value};

use crate::error::{Error, Result};

/// Puts `a.b=value` into a table that may lack `a`. The value is read as TOML, or as a word where it is none.
pub(super) fn set(table: &mut Table, setting: &str) -> Result<()> {
    let fault = |problem: &str| Error::Parameter {
        name: "`.settings`",
        value: setting.into(),
        expected: problem.into(),
    };
    let (path, value) = setting.split_once('=').ok_or_else(|| fault("KEY=VALUE"))?;
    let parsed: Table = toml::from_str(&format!("v = {value}"))
        .or_else(|_| toml::from_str(&format!("v = {value:?}")))
        .map_err(|_| fault("a number, a word or a TOML value"))?;
    let mut names: Vec<&str> = path.trim().split('.').collect();
    let last = names.pop().ok_or_else(|| fault("KEY=VALUE"))?;
    let mut place = table;
    for name in names {
        place = place
            .entry(name)
            .or_insert_with(|| Value::Table(Table::new()))
            .as_table_mut()
            .ok_or_else(|| fault("the path of a setting"))?;
    }
    if let Some(value) = parsed.get("v") {
        place.insert(last.to_owned(), value.clone());
    }
    Ok(())
}

/// Returns nested settings under paths such as `recipe.epochs`.
pub(super) fn flat(table: &Table) -> BTreeMap<String, String> {
    fn add(prefix: &str, table: &Table, out: &mut BTreeMap<String, String>) {
        for (key, value) in table {
            let name = if prefix.is_empty() {
                key.clone()
            } else {
                format!("{prefix}.{key}")
            };
            match value {
                Value::Table(inner) => add(&name, inner, out),
                other => {
                    out.insert(name, other.to_string());
                }
            }
        }
    }
    let mut out = BTreeMap::new();
    add("", table, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_a_table_and_pairs_again() {
        let mut table = Table::new();
        for setting in [
            "ridge=0.5",
            "recipe.epochs=5",
            "recipe.rule=adam",
            " labels =\"soft\"",
        ] {
            set(&mut table, setting).unwrap();
        }
        let pairs = flat(&table);
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(
            pairs,
            [
                ("labels", "\"soft\""),
                ("recipe.epochs", "5"),
                ("recipe.rule", "\"adam\""),
                ("ridge", "0.5"),
            ]
        );
        for (bad, piece) in [("ridge", "KEY=VALUE"), ("ridge.x=1", "path of a setting")] {
            let error = set(&mut table, bad).unwrap_err().to_string();
            assert!(error.contains(piece), "{error}");
        }
    }
}
