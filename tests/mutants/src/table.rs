//! The outcome: a table by folder, and the mutants that nobody noticed.

use std::collections::BTreeMap;
use std::path::Path;

use crate::run::Fate;
use crate::sites::Mutant;
use crate::{FOLDERS, Outcome};

/// Mutants that change nothing that could be seen, with the reason.
pub(crate) struct Equivalent(Vec<[String; 4]>);

/// A text on one line.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Equivalent {
    /// Reads `equivalent.tsv`: file, original, change, reason.
    pub(crate) fn read(root: &Path) -> Outcome<Self> {
        let text = std::fs::read_to_string(root.join("tests/mutants/equivalent.tsv"))?;
        let mut list = Vec::new();
        for line in text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
        {
            let fields: Vec<String> = line.split('\t').map(one_line).collect();
            let fields = <[String; 4]>::try_from(fields)
                .map_err(|_| format!("equivalent.tsv: not four fields: {line}"))?;
            list.push(fields);
        }
        Ok(Self(list))
    }

    /// Why a mutant changes nothing, if it is in the list.
    fn reason(&self, mutant: &Mutant) -> Option<&str> {
        let (original, mutated) = (one_line(&mutant.original), one_line(&mutant.mutated));
        let same = |entry: &&[String; 4]| {
            entry[0] == mutant.file && entry[1] == original && entry[2] == mutated
        };
        self.0.iter().find(same).map(|entry| entry[3].as_str())
    }
}

/// The table and the survivors.
pub(crate) fn render(
    mutants: &[Mutant],
    fates: &BTreeMap<u32, Fate>,
    equivalent: &Equivalent,
) -> String {
    let mut text = format!(
        "{:10} {:>7} {:>7} {:>7} {:>9} {:>10} {:>10} {:>7}\n",
        "folder", "mutants", "caught", "by hang", "survived", "unreached", "equivalent", "share"
    );
    let mut line = |name: &str, of: &[&Mutant]| {
        let (unseen, counted): (Vec<&Mutant>, Vec<&Mutant>) = of.iter().partition(|mutant| {
            let lived = ["survived", "unreached"].contains(&fates[&mutant.number].outcome.as_str());
            lived && equivalent.reason(mutant).is_some()
        });
        let with = |outcome: &str| {
            let counted = counted.iter();
            counted
                .filter(|m| fates[&m.number].outcome == outcome)
                .count()
        };
        let caught = with("caught") + with("hung");
        text.push_str(&format!(
            "{name:10} {:>7} {caught:>7} {:>7} {:>9} {:>10} {:>10} {:>5.1} %\n",
            of.len(),
            with("hung"),
            with("survived"),
            with("unreached"),
            unseen.len(),
            100.0 * caught as f64 / counted.len().max(1) as f64,
        ));
    };
    let run: Vec<&Mutant> = mutants
        .iter()
        .filter(|m| fates.contains_key(&m.number))
        .collect();
    for folder in FOLDERS {
        let of: Vec<&Mutant> = run
            .iter()
            .copied()
            .filter(|m| m.folder() == folder)
            .collect();
        line(folder, &of);
    }
    line("all", &run);
    for (outcome, title) in [
        ("survived", "Reached by tests, noticed by none"),
        ("unreached", "Reached by no test"),
    ] {
        let lived = run.iter().filter(|m| fates[&m.number].outcome == outcome);
        text.push_str(&format!("\n{title}:\n"));
        for mutant in lived {
            let (original, mutated) = (one_line(&mutant.original), one_line(&mutant.mutated));
            let reason = equivalent.reason(mutant);
            let reason = reason.map_or(String::new(), |reason| format!("  [equivalent: {reason}]"));
            text.push_str(&format!(
                "  {}:{}  {original}  →  {mutated}  ({} tests){reason}\n",
                mutant.file, mutant.line, fates[&mutant.number].tests
            ));
        }
    }
    text
}
