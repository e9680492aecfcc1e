//! What to forget: one vocabulary for the library, run files and the command line.
//!
//! The paper has three scenarios: a whole class, a part of one class (drawn, or the part that a finer label names), and a
//! random part of everything; several classes and a list of row numbers come on top. A [`Forget`] says which; held against the labels of
//! a data set ([`Labelled`]) it becomes a [`Split`]: the row lists that every later stage speaks of. The same seed draws
//! the same rows on every machine and in every version.
//!
//! ```
//! use muso::data::{Forget, Labelled, TestRows};
//! let (train, test) = ([3, 3, 3, 3, 7, 7, 9, 9], [3, 7, 7, 9]);
//! let labels = Labelled::new(&train, &test);
//! let split = Forget::part_of_class(3, 0.5).split(&labels, TestRows::All, 0)?;
//! assert_eq!((split.forget.len(), split.retain.len(), split.test.len()), (2, 6, 4));
//! assert!(split.forget.iter().all(|&row| train[row] == 3));
//!
//! let split = Forget::classes([3, 9]).split(&labels, TestRows::RetainedClasses, 0)?;
//! assert_eq!((split.forget, split.retain), (vec![0, 1, 2, 3, 6, 7], vec![4, 5]));
//! assert_eq!(split.test, [1, 2]);
//! # Ok::<(), muso::Error>(())
//! ```

mod amount;
mod list;
mod split;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::shown;
use crate::{Error, Result};

pub use amount::Amount;
#[cfg(feature = "datasets")]
pub(in crate::data) use amount::below;
pub use list::{RowList, parse_ids};
pub use split::{ForgetClass, Labelled, Labels, Selection, Split, TestRows};

/// Names the rows to forget.
///
/// ```
/// use muso::data::{Amount, Forget};
/// assert_eq!(Forget::parse("class:ship,truck")?, Forget::classes(["ship", "truck"]));
/// assert_eq!(Forget::parse("random:0.1")?, Forget::random(0.1));
/// assert_eq!(Forget::parse("ids.txt")?, Forget::file("ids.txt"));
/// let first = Forget::part_of_class("ship", Amount::First(200));
/// assert_eq!(first.describe(), "the first 200 rows of class ship");
/// # Ok::<(), muso::Error>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Forget {
    /// Forgets a class, by name or number; in a set with coarse and fine classes, a fine one is a sub-class.
    Class(String),
    /// Forgets several classes at once.
    Classes(Vec<String>),
    /// Forgets a part of a class.
    PartOfClass(String, Amount),
    /// Forgets a part of all rows, drawn at random.
    Random(Amount),
    /// Forgets the rows that a text file lists, see [`parse_ids`].
    #[serde(rename = "rows")]
    File(PathBuf),
    /// Forgets rows by number, counted from 0, in any order, without repetition.
    #[serde(rename = "row-numbers")]
    Rows(Vec<u64>),
    /// Forgets another class for each seed: the seed modulo the number of classes.
    ClassBySeed,
    /// Forgets a part of that class.
    PartOfClassBySeed(Amount),
}

impl Forget {
    /// Forgets these rows, counted from 0.
    pub fn rows(ids: impl IntoIterator<Item = u64>) -> Self {
        Self::Rows(ids.into_iter().collect())
    }

    /// Forgets every row of a class, by name or number.
    pub fn class(class: impl ToString) -> Self {
        Self::Class(class.to_string())
    }

    /// Forgets every row of several classes, by name or number.
    pub fn classes<T: ToString>(classes: impl IntoIterator<Item = T>) -> Self {
        Self::Classes(classes.into_iter().map(|class| class.to_string()).collect())
    }

    /// Forgets a part of a class; a bare number is a share of it.
    pub fn part_of_class(class: impl ToString, amount: impl Into<Amount>) -> Self {
        Self::PartOfClass(class.to_string(), amount.into())
    }

    /// Forgets a part of all rows, drawn at random; a bare number is a share of them.
    pub fn random(amount: impl Into<Amount>) -> Self {
        Self::Random(amount.into())
    }

    /// Forgets the rows that a text file lists.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::File(path.into())
    }

    /// Parses what a person types: `class:K`, `class:K,L`, `random:SHARE`, or else the path of a file, which is not
    /// opened yet.
    ///
    /// # Errors
    /// If a class is missing, or if the share is not a number above 0 and at most 1.
    pub fn parse(text: &str) -> Result<Self> {
        let fault = |problem: String, expected: &str| {
            Error::selection(
                format!("`.forget = {}`", shown(text, 80)),
                problem,
                expected,
            )
        };
        if let Some(classes) = text.strip_prefix("class:") {
            let classes: Vec<&str> = classes.split(',').collect();
            if classes.iter().any(|class| class.trim().is_empty()) {
                return Err(fault(
                    "a class is missing".into(),
                    "class:K or class:K,L with names or numbers of classes (a file of that name: ./class:…)",
                ));
            }
            return Ok(match classes[..] {
                [class] => Self::class(class),
                _ => Self::classes(classes),
            });
        }
        if let Some(share) = text.strip_prefix("random:") {
            return match share.parse::<f64>() {
                Ok(part) if part > 0.0 && part <= 1.0 => Ok(Self::random(part)),
                _ => Err(fault(
                    format!("`{}` is not a share", shown(share, 40)),
                    "random:SHARE with a number above 0 and at most 1 (a file of that name: ./random:…)",
                )),
            };
        }
        Ok(Self::file(text))
    }

    /// Reads the list of rows, if it is one, so that a slip in it is found before anything large is opened.
    ///
    /// # Errors
    /// If the file cannot be read, or if the list is empty or has a row twice.
    pub fn read(&self) -> Result<Option<RowList>> {
        match self {
            Self::File(path) => RowList::read(path).map(Some),
            Self::Rows(ids) => RowList::new(ids.iter().copied()).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns the numbers of the classes to forget as a whole, if it names any, for data whose classes have no names.
    ///
    /// # Errors
    /// If one is not a number or is listed twice, or if there is none.
    pub fn class_numbers(&self) -> Result<Option<Vec<i64>>> {
        let classes = match self {
            Self::Class(class) => std::slice::from_ref(class),
            Self::Classes(classes) => classes,
            _ => return Ok(None),
        };
        let number = |class: &str| class_number(class);
        distinct(classes, number).map(Some)
    }

    /// Describes it in a few words, for tables.
    pub fn describe(&self) -> String {
        match self {
            Self::Class(name) => format!("class {name}"),
            Self::Classes(names) => format!("classes {}", names.join(", ")),
            Self::PartOfClass(name, amount) => part(*amount, &format!("class {name}")),
            Self::Random(Amount::Fraction(share)) => format!("{} at random", percent(*share)),
            Self::Random(Amount::Count(rows)) => format!("{rows} rows at random"),
            Self::Random(Amount::First(rows)) => format!("the first {rows} rows"),
            Self::Random(Amount::All) => "all rows".to_owned(),
            Self::File(path) => format!("rows of {}", path.display()),
            Self::Rows(ids) => format!("{} listed rows", ids.len()),
            Self::ClassBySeed => "another class for each seed".to_owned(),
            Self::PartOfClassBySeed(amount) => part(*amount, "another class for each seed"),
        }
    }
}

fn part(amount: Amount, class: &str) -> String {
    match amount {
        Amount::All => format!("all of {class}"),
        Amount::Count(rows) => format!("{rows} rows of {class}"),
        Amount::First(rows) => format!("the first {rows} rows of {class}"),
        Amount::Fraction(share) => format!("{} of {class}", percent(share)),
    }
}

fn percent(share: f64) -> String {
    format!("{} %", (share * 1e4).round() / 100.0)
}

/// Looks classes up, in their order, and refuses an empty list and a class that is meant twice.
fn distinct<T: PartialEq>(classes: &[String], find: impl Fn(&str) -> Result<T>) -> Result<Vec<T>> {
    if classes.is_empty() {
        return Err(Error::selection(
            "`.forget`",
            "the list of classes to forget is empty",
            "at least one class",
        ));
    }
    let mut found = Vec::with_capacity(classes.len());
    for class in classes {
        let next = find(class)?;
        if found.contains(&next) {
            return Err(Error::selection(
                format!("class `{}`", shown(class, 40)),
                "it is listed twice",
                "every class at most once",
            ));
        }
        found.push(next);
    }
    Ok(found)
}

/// Parses the number of a class where classes have no names.
fn class_number(text: &str) -> Result<i64> {
    let number = list::number(text).ok().and_then(|n| i64::try_from(n).ok());
    number.ok_or_else(|| {
        Error::selection(
            format!("`.forget = class:{}`", shown(text, 40)),
            format!("`{}` is not a class number", shown(text, 40)),
            "class:K with K a whole number, 0 or more (a file of that name: ./class:…)",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_shares_and_files_are_told_apart() {
        for (text, wanted) in [
            ("class:7", Forget::class(7)),
            ("class:ankle boot", Forget::class("ankle boot")),
            ("class:7,ship", Forget::classes(["7", "ship"])),
            ("random:0.25", Forget::random(0.25)),
            ("random:1", Forget::random(1.0)),
            ("./class:7", Forget::file("./class:7")),
            ("class", Forget::file("class")),
            ("", Forget::file("")),
        ] {
            assert_eq!(Forget::parse(text).unwrap(), wanted, "{text}");
        }
        for (text, wanted) in [
            ("class:", "a class is missing"),
            ("class:1,,2", "a class is missing"),
            ("class:1, ", "a class is missing"),
            ("random:", "`` is not a share"),
            ("random:x", "`x` is not a share"),
            ("random:0", "`0` is not a share"),
            ("random:1.5", "`1.5` is not a share"),
            ("random:NaN", "`NaN` is not a share"),
        ] {
            let message = Forget::parse(text).unwrap_err().to_string();
            assert!(
                message.starts_with(&format!("`.forget = {text}`: ")) && message.contains(wanted),
                "{message}"
            );
        }
    }

    #[test]
    fn lists_are_read_early() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ids.txt");
        std::fs::write(&path, "4\n2\n4\n").unwrap();
        let forget = Forget::parse(path.to_str().unwrap()).unwrap();
        let message = forget.read().unwrap_err().to_string();
        let wanted = format!(
            "{}: row 4 is listed twice, on lines 1 and 3",
            path.display()
        );
        assert!(message.starts_with(&wanted), "{message}");
        std::fs::write(&path, "4\n2\n").unwrap();
        let list = forget.read().unwrap().unwrap();
        assert_eq!(list.ids(), [2, 4]);
        assert_eq!(list.source(), Some(path.as_path()));
        let list = Forget::rows([907, 12]).read().unwrap().unwrap();
        assert_eq!((list.ids(), list.source()), (&[12, 907][..], None));
        assert!(Forget::rows([]).read().unwrap_err().is_input());
        assert_eq!(Forget::class(3).read().unwrap(), None);
    }

    #[test]
    fn classes_without_names_are_numbers() {
        let numbers = |text| Forget::parse(text).unwrap().class_numbers();
        assert_eq!(numbers("class:7").unwrap(), Some(vec![7]));
        assert_eq!(numbers("class:7,0").unwrap(), Some(vec![7, 0]));
        assert_eq!(numbers("random:0.1").unwrap(), None);
        for bad in [
            "class:x",
            "class:-1",
            "class: 1",
            "class:9223372036854775808",
        ] {
            let message = numbers(bad).unwrap_err().to_string();
            assert!(
                message.starts_with(&format!("`.forget = {bad}`: "))
                    && message.contains("is not a class number"),
                "{message}"
            );
        }
        let twice = numbers("class:1,2,01").unwrap_err().to_string();
        assert!(twice.contains("class `01`: it is listed twice"), "{twice}");
        let none = Forget::Classes(vec![]).class_numbers().unwrap_err();
        assert!(none.to_string().contains("is empty"), "{none}");
    }

    #[cfg(feature = "nn")]
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct File {
        forget: Vec<Forget>,
    }

    #[cfg(feature = "nn")]
    #[test]
    fn run_files_say_the_same_as_ever() {
        let text = "forget = [{ random = 0.1 }, { class = \"ship\" }, { part-of-class = [\"ship\", 0.5] }, \
                    { rows = \"ids.txt\" }, \"class-by-seed\", { part-of-class-by-seed = 1 }]\n";
        let file: File = toml::from_str(text).unwrap();
        assert_eq!(
            file.forget,
            [
                Forget::random(0.1),
                Forget::class("ship"),
                Forget::part_of_class("ship", 0.5),
                Forget::file("ids.txt"),
                Forget::ClassBySeed,
                Forget::PartOfClassBySeed(Amount::Fraction(1.0)),
            ]
        );
        // As the former types wrote it.
        let written = "forget = [{ random = 0.1 }, { class = \"ship\" }, { part-of-class = [\"ship\", 0.5] }, \
                       { rows = \"ids.txt\" }, \"class-by-seed\", { part-of-class-by-seed = 1.0 }]\n";
        assert_eq!(toml::to_string(&file).unwrap(), written);
        let file = File {
            forget: vec![Forget::random(0.1), Forget::file("ids.txt")],
        };
        let written = "[[forget]]\nrandom = 0.1\n\n[[forget]]\nrows = \"ids.txt\"\n";
        assert_eq!(toml::to_string(&file).unwrap(), written);
    }

    #[cfg(feature = "nn")]
    #[test]
    fn what_run_files_can_say_now() {
        let text = "forget = [{ classes = [\"ship\", \"truck\"] }, { row-numbers = [12, 907] }, \
                    { random = { count = 200 } }, { part-of-class = [\"7\", { first = 200 }] }, \
                    { part-of-class-by-seed = \"all\" }]\n";
        let file: File = toml::from_str(text).unwrap();
        assert_eq!(
            file.forget,
            [
                Forget::classes(["ship", "truck"]),
                Forget::rows([12, 907]),
                Forget::random(Amount::Count(200)),
                Forget::part_of_class(7, Amount::First(200)),
                Forget::PartOfClassBySeed(Amount::All),
            ]
        );
        let again = toml::to_string(&file).unwrap();
        assert_eq!(toml::from_str::<File>(&again).unwrap(), file);
        let json = serde_json::to_string(&file).unwrap();
        assert_eq!(serde_json::from_str::<File>(&json).unwrap(), file);
        for bad in [
            "{ klass = \"ship\" }",
            "{ random = \"much\" }",
            "{ class = 3 }",
        ] {
            assert!(toml::from_str::<File>(&format!("forget = [{bad}]")).is_err());
        }
    }

    #[test]
    fn descriptions_are_short() {
        for (forget, wanted) in [
            (Forget::class("ship"), "class ship"),
            (Forget::classes(["ship", "truck"]), "classes ship, truck"),
            (Forget::part_of_class("ship", 0.5), "50 % of class ship"),
            (
                Forget::part_of_class("ship", Amount::Count(3)),
                "3 rows of class ship",
            ),
            (Forget::random(0.015), "1.5 % at random"),
            (Forget::random(Amount::Count(3)), "3 rows at random"),
            (Forget::file("ids.txt"), "rows of ids.txt"),
            (Forget::rows([1, 2]), "2 listed rows"),
            (Forget::ClassBySeed, "another class for each seed"),
            (
                Forget::PartOfClassBySeed(Amount::Fraction(0.5)),
                "50 % of another class for each seed",
            ),
        ] {
            assert_eq!(forget.describe(), wanted);
        }
    }
}
