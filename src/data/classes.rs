//! The names of the classes, and finding a class by what a person types.
//!
//! ```
//! use muso::data::ClassNames;
//! let classes = ClassNames::new(["airplane", "lawn_mower", "T-shirt/top"]);
//! assert_eq!(classes.find("Lawn mower")?, 1);
//! assert_eq!(classes.find("2")?, 2);
//! let error = classes.find("airplaine").unwrap_err().to_string();
//! assert!(error.contains("none of the 3 classes") && error.contains("`airplane`"));
//! # Ok::<(), muso::Error>(())
//! ```

use std::sync::Arc;

use super::shown;
use crate::{Error, Result};

/// The classes of a data set in class order. Clones share the names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassNames {
    classes: Arc<[Class]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Class {
    name: String,
    aliases: Vec<String>,
}

/// Names beyond this are cut before the distance to them is measured, which takes time by the product of the lengths.
const LONGEST_COMPARED: usize = 64;
const SUGGESTIONS: usize = 3;

impl ClassNames {
    /// Names classes 0, 1, … in order.
    pub fn new<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Self {
        Self::with_aliases(names.into_iter().map(|name| (name.into(), Vec::new())))
    }

    /// Names classes 0, 1, … in order, each with further names that [`find`](Self::find) knows too.
    pub fn with_aliases(classes: impl IntoIterator<Item = (String, Vec<String>)>) -> Self {
        let class = |(name, aliases)| Class { name, aliases };
        Self {
            classes: classes.into_iter().map(class).collect(),
        }
    }

    /// Returns the number of classes.
    pub fn len(&self) -> usize {
        self.classes.len()
    }

    /// Returns whether there is no class at all.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// Returns the name of a class, or nothing when there is no such class.
    pub fn name(&self, class: i64) -> Option<&str> {
        Some(&self.get(class)?.name)
    }

    /// Returns the further names of a class: for Tiny ImageNet the words, beside the name, which is the WordNet number.
    pub fn aliases(&self, class: i64) -> &[String] {
        self.get(class).map_or(&[], |class| &class.aliases)
    }

    /// Returns the names in class order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.classes.iter().map(|class| class.name.as_str())
    }

    /// Returns the class of this name, further name or number.
    ///
    /// Case does not matter, and spaces, underscores and hyphens are the same. A name that looks like a number comes
    /// before the number, so that in a folder of classes `1`, `10`, `2` the text `2` means the class of that name.
    ///
    /// # Errors
    /// If there is no such class, with the nearest names; or if several classes have the name.
    pub fn find(&self, text: &str) -> Result<i64> {
        match self.lookup(text) {
            Lookup::Found(class) => Ok(class),
            Lookup::Ambiguous(a, b) => Err(ambiguous(text, a, b)),
            Lookup::Nothing => Err(not_found(text, self, &[self])),
        }
    }

    pub(super) fn lookup(&self, text: &str) -> Lookup {
        let wanted = folded(text);
        let mut found = (0_i64..)
            .zip(self.classes.iter())
            .filter(|(_, class)| class.names().any(|name| folded(name) == wanted))
            .map(|(number, _)| number);
        match (found.next(), found.next()) {
            (Some(class), None) => return Lookup::Found(class),
            (Some(a), Some(b)) => {
                // Several may differ only in case, and then one that is letter for letter the same is meant.
                let same = |class: &Class| class.names().any(|name| name == text);
                let mut exact = (0_i64..).zip(self.classes.iter()).filter(|(_, c)| same(c));
                return match (exact.next(), exact.next()) {
                    (Some((class, _)), None) => Lookup::Found(class),
                    _ => Lookup::Ambiguous(a, b),
                };
            }
            (None, _) => {}
        }
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        match text.parse() {
            Ok(class) if digits && self.get(class).is_some() => Lookup::Found(class),
            _ => Lookup::Nothing,
        }
    }

    fn get(&self, class: i64) -> Option<&Class> {
        self.classes.get(usize::try_from(class).ok()?)
    }

    /// The names that are like the text, with how far they are from it.
    fn nearest(&self, text: &str) -> Vec<(usize, &str)> {
        let wanted: Vec<char> = folded(text).chars().take(LONGEST_COMPARED).collect();
        let wanted_text: String = wanted.iter().collect();
        let names = self.classes.iter().flat_map(Class::names);
        names
            .filter_map(|name| {
                let folded = folded(name);
                let letters: Vec<char> = folded.chars().take(LONGEST_COMPARED).collect();
                let distance = edit_distance(&wanted, &letters);
                let close = distance <= (wanted.len().max(letters.len()) / 3).max(1);
                let part = wanted.len() >= 3 && folded.contains(&wanted_text);
                (close || part).then_some((distance, name))
            })
            .collect()
    }
}

impl Class {
    fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.name)
            .chain(&self.aliases)
            .map(String::as_str)
    }
}

/// Result of looking a text up among the classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    Found(i64),
    Ambiguous(i64, i64),
    Nothing,
}

pub(super) fn ambiguous(text: &str, a: i64, b: i64) -> Error {
    Error::selection(
        format!("class `{}`", shown(text, 40)),
        format!("classes {a} and {b} both have this name"),
        "a name that only one class has, or a class number",
    )
}

/// No class of `numbered` is meant by the text; names are suggested from all of `known`.
pub(super) fn not_found(text: &str, numbered: &ClassNames, known: &[&ClassNames]) -> Error {
    let mut nearest: Vec<(usize, &str)> = known.iter().flat_map(|c| c.nearest(text)).collect();
    nearest.sort_unstable();
    nearest.dedup();
    let names: Vec<String> = if nearest.is_empty() {
        known
            .iter()
            .filter_map(|classes| classes.iter().next())
            .map(|name| format!("`{}`", shown(name, 40)))
            .collect()
    } else {
        let quoted = |(_, name): &(usize, &str)| format!("`{}`", shown(name, 40));
        nearest.iter().take(SUGGESTIONS).map(quoted).collect()
    };
    let counts: Vec<String> = known.iter().map(|c| c.len().to_string()).collect();
    let expected = match numbered.len().checked_sub(1) {
        None => "a data set with classes".to_owned(),
        Some(last) => format!(
            "a name such as {}, or a number from 0 to {last}",
            names.join(" or ")
        ),
    };
    Error::selection(
        format!("class `{}`", shown(text, 40)),
        format!("none of the {} classes is called so", counts.join(" + ")),
        expected,
    )
}

fn folded(text: &str) -> String {
    text.trim()
        .chars()
        .flat_map(char::to_lowercase)
        .map(|c| if matches!(c, '_' | '-') { ' ' } else { c })
        .collect()
}

/// Insertions, deletions and replacements that turn `a` into `b`.
fn edit_distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred classes, some of them with the names that the tests look for.
    fn hundred() -> ClassNames {
        ClassNames::new((0..100).map(|class| match class {
            41 => "lawn_mower".to_owned(),
            47 => "maple_tree".to_owned(),
            69 => "rocket".to_owned(),
            _ => format!("kind {class}"),
        }))
    }

    #[test]
    fn spelling_does_not_matter() {
        let classes = hundred();
        for text in [
            "lawn_mower",
            "Lawn Mower",
            "LAWN-MOWER",
            " lawn_mower ",
            "41",
        ] {
            assert_eq!(classes.find(text).unwrap(), 41, "{text}");
        }
        let fashion = ClassNames::new(["T-shirt/top", "Ankle boot"]);
        assert_eq!(fashion.find("t shirt/top").unwrap(), 0);
        assert_eq!(fashion.find("ankle_boot").unwrap(), 1);
    }

    #[test]
    fn further_names_count_too() {
        let words = |text: &str| text.split(", ").map(str::to_owned).collect();
        let classes = ClassNames::with_aliases([
            (
                "n01443537".to_owned(),
                words("goldfish, Carassius auratus, crane"),
            ),
            ("n02012849".to_owned(), words("crane")),
        ]);
        assert_eq!(classes.find("n02012849").unwrap(), 1);
        assert_eq!(classes.find("carassius-auratus").unwrap(), 0);
        let message = classes.find("crane").unwrap_err().to_string();
        assert!(message.contains("classes 0 and 1 both"), "{message}");
        assert_eq!(classes.aliases(0)[0], "goldfish");
        assert!(classes.aliases(7).is_empty());
    }

    #[test]
    fn names_come_before_numbers_and_exact_before_folded() {
        let classes = ClassNames::new(["1", "10", "2"]);
        assert_eq!(classes.find("2").unwrap(), 2);
        assert_eq!(classes.find("1").unwrap(), 0);
        assert_eq!(classes.find("0").unwrap(), 0);
        let classes = ClassNames::new(["Dog", "dog", "DOG"]);
        assert_eq!(classes.find("dog").unwrap(), 1);
        assert!(classes.find("dOg").is_err());
    }

    #[test]
    fn what_is_not_there_brings_the_nearest() {
        let classes = hundred();
        let message = |text: &str| {
            let error = classes.find(text).unwrap_err();
            assert!(error.is_input());
            error.to_string()
        };
        let typo = message("rokcet");
        assert!(typo.starts_with("class `rokcet`: "), "{typo}");
        assert!(
            typo.contains("100 classes") && typo.contains("`rocket`"),
            "{typo}"
        );
        assert!(message("tree").contains("_tree`"));
        for text in [
            "100",
            "-1",
            "+1",
            "1.0",
            "",
            "99999999999999999999",
            "\u{1b}[2J",
        ] {
            let message = message(text);
            assert!(message.contains("number from 0 to 99"), "{message}");
            assert!(!message.contains('\u{1b}'));
        }
        assert!(message(&"y".repeat(100_000)).len() < 300);
        assert!(
            ClassNames::new::<&str>([])
                .find("0")
                .unwrap_err()
                .is_input()
        );
    }

    #[test]
    fn distances() {
        let distance = |a: &str, b: &str| {
            let letters = |text: &str| text.chars().collect::<Vec<_>>();
            edit_distance(&letters(a), &letters(b))
        };
        assert_eq!(distance("", ""), 0);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }
}
