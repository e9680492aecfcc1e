//! From what to forget to rows: the labels that it is held against, and the row lists that follow.

use std::collections::BTreeSet;

use super::{Amount, Forget, class_number, distinct};
use crate::data::classes::{self, ClassNames, Lookup};
use crate::data::shown;
use crate::{Error, Result};

/// The labels of a data set, and the names of its classes if they have any.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    /// The label of each training row.
    pub train: &'a [i64],
    /// The label of each test row.
    pub test: &'a [i64],
    /// The names by class; without them a class goes by its number.
    pub names: Option<&'a ClassNames>,
}

/// Labels of a data set that a [`Forget`] is resolved against, and the finer ones of a set such as CIFAR-20.
#[derive(Clone, Copy, Debug)]
pub struct Labelled<'a> {
    /// The labels that a model is trained on.
    pub coarse: Labels<'a>,
    /// A second, finer label of each row.
    pub fine: Option<Labels<'a>>,
}

/// A class to forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForgetClass {
    /// A class that the labels count.
    Coarse(i64),
    /// A class of the finer labels.
    Fine(i64),
}

impl<'a> Labelled<'a> {
    /// Takes the labels of training and test rows, of classes without names.
    pub fn new(train: &'a [i64], test: &'a [i64]) -> Self {
        Self {
            coarse: Labels {
                train,
                test,
                names: None,
            },
            fine: None,
        }
    }

    /// Adds the names of the classes.
    pub fn with_names(mut self, names: &'a ClassNames) -> Self {
        self.coarse.names = Some(names);
        self
    }

    /// Adds finer labels, one for each row.
    pub fn with_fine(mut self, fine: Labels<'a>) -> Self {
        self.fine = Some(fine);
        self
    }

    /// Finds the class that a text means: a name or number of a class, or the name of a finer class.
    ///
    /// # Errors
    /// If there is no such class, with the nearest names; or if several classes have the name.
    pub fn find(&self, text: &str) -> Result<ForgetClass> {
        let fine = self.fine.and_then(|fine| fine.names);
        let (coarse, fine) = match (self.coarse.names, fine) {
            (None, _) => return class_number(text).map(ForgetClass::Coarse),
            (Some(coarse), None) => return coarse.find(text).map(ForgetClass::Coarse),
            (Some(coarse), Some(fine)) => (coarse, fine),
        };
        match coarse.lookup(text) {
            Lookup::Found(class) => return Ok(ForgetClass::Coarse(class)),
            Lookup::Ambiguous(a, b) => return Err(classes::ambiguous(text, a, b)),
            Lookup::Nothing => {}
        }
        // A number beyond the coarse classes is a slip and no fine class: 19 would be the one and 20 the other.
        let is_number = text.bytes().all(|b| b.is_ascii_digit());
        match fine.lookup(text) {
            Lookup::Found(class) if !is_number => Ok(ForgetClass::Fine(class)),
            Lookup::Ambiguous(a, b) => Err(classes::ambiguous(text, a, b)),
            _ => Err(classes::not_found(text, coarse, &[coarse, fine])),
        }
    }

    /// Returns the training rows of a class, ascending. Without fine labels a fine class has none.
    pub fn train_rows(&self, class: ForgetClass) -> Vec<usize> {
        self.labels_of(class)
            .map_or_else(Vec::new, |(labels, number)| {
                rows_of(labels.train, number).collect()
            })
    }

    /// Returns the test rows of a class, ascending. Without fine labels a fine class has none.
    pub fn test_rows(&self, class: ForgetClass) -> Vec<usize> {
        self.labels_of(class)
            .map_or_else(Vec::new, |(labels, number)| {
                rows_of(labels.test, number).collect()
            })
    }

    /// Returns the name of a class, if it has one.
    pub fn name(&self, class: ForgetClass) -> Option<&'a str> {
        let (labels, number) = self.labels_of(class)?;
        labels.names?.name(number)
    }

    fn labels_of(&self, class: ForgetClass) -> Option<(Labels<'a>, i64)> {
        match class {
            ForgetClass::Coarse(number) => Some((self.coarse, number)),
            ForgetClass::Fine(number) => Some((self.fine?, number)),
        }
    }

    /// Returns the class whose turn it is with this seed.
    fn by_seed(&self, seed: u64) -> Result<ForgetClass> {
        let classes: Vec<i64> = match self.coarse.names {
            Some(names) => (0..names.len() as i64).collect(),
            None => {
                let occurring: BTreeSet<i64> = self.coarse.train.iter().copied().collect();
                occurring.into_iter().collect()
            }
        };
        if classes.is_empty() {
            return Err(Error::selection(
                "`.forget`",
                "there is no class to forget",
                "a data set with classes",
            ));
        }
        let turn = seed % classes.len() as u64;
        Ok(ForgetClass::Coarse(classes[turn as usize]))
    }

    fn check(&self) -> Result<()> {
        let Some(fine) = self.fine else {
            return Ok(());
        };
        let (found, expected) = (
            (fine.train.len(), fine.test.len()),
            (self.coarse.train.len(), self.coarse.test.len()),
        );
        if found == expected {
            return Ok(());
        }
        let counts = |(train, test)| format!("{train} of training rows and {test} of test rows");
        Err(Error::Shape {
            what: "fine labels".to_owned(),
            found: counts(found),
            expected: counts(expected),
        })
    }
}

fn rows_of(labels: &[i64], class: i64) -> impl Iterator<Item = usize> + '_ {
    (0..labels.len()).filter(move |&row| labels[row] == class)
}

/// Test rows that a [`Split`] lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestRows {
    /// Lists every test row.
    All,
    /// Lists only rows whose class still has retained training rows; for a forgotten class there is nothing to test.
    RetainedClasses,
}

/// The row lists of one choice of what to forget, each ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Training rows that stay.
    pub retain: Vec<usize>,
    /// Training rows to forget.
    pub forget: Vec<usize>,
    /// Test rows to evaluate on.
    pub test: Vec<usize>,
}

/// Rows that a [`Forget`] selects among the labels of one data set: at least one, and not all of them.
#[derive(Clone, Debug)]
pub struct Selection<'a> {
    among: Labelled<'a>,
    scenario: &'static str,
    rows: Vec<usize>,
    whole: Vec<ForgetClass>,
}

impl<'a> Selection<'a> {
    /// Returns the name of the scenario in tables and JSON: `full-class`, `sub-class`, `random` or `rows`.
    pub fn scenario(&self) -> &'static str {
        self.scenario
    }

    /// Returns the training rows to forget, ascending.
    pub fn rows(&self) -> &[usize] {
        &self.rows
    }

    /// Returns the labels that the rows were chosen among.
    pub fn among(&self) -> &Labelled<'a> {
        &self.among
    }

    /// Returns the classes that were asked for and of which no training row is retained.
    pub fn whole_classes(&self) -> &[ForgetClass] {
        &self.whole
    }

    /// Says for every test row whether it is of one of the [`whole_classes`](Self::whole_classes).
    pub fn forgotten_test_rows(&self) -> Vec<bool> {
        let mut forgotten = vec![false; self.among.coarse.test.len()];
        for &class in &self.whole {
            for row in self.among.test_rows(class) {
                forgotten[row] = true;
            }
        }
        forgotten
    }

    /// Returns the rows to retain, to forget and to test on.
    pub fn split(&self, test_rows: TestRows) -> Split {
        let Labels { train, test, .. } = self.among.coarse;
        let mut forgotten = vec![false; train.len()];
        for &row in &self.rows {
            forgotten[row] = true;
        }
        let retain: Vec<usize> = (0..train.len()).filter(|&row| !forgotten[row]).collect();
        let test = match test_rows {
            TestRows::All => (0..test.len()).collect(),
            TestRows::RetainedClasses => {
                let retained: BTreeSet<i64> = retain.iter().map(|&row| train[row]).collect();
                let forgotten = self.forgotten_test_rows();
                (0..test.len())
                    .filter(|&row| retained.contains(&test[row]) && !forgotten[row])
                    .collect()
            }
        };
        Split {
            retain,
            forget: self.rows.clone(),
            test,
        }
    }
}

impl Forget {
    /// Finds the rows to retain, to forget and to test on. Only drawing depends on `seed`.
    ///
    /// # Errors
    /// As [`select`](Self::select).
    pub fn split(&self, among: &Labelled<'_>, test_rows: TestRows, seed: u64) -> Result<Split> {
        Ok(self.select(among, seed)?.split(test_rows))
    }

    /// Finds the rows to forget, and which classes are forgotten as a whole. Only drawing depends on `seed`.
    ///
    /// # Errors
    /// If there is no such class or row, if a class or row is listed twice, if a list cannot be read, or if nothing or
    /// everything would be forgotten.
    pub fn select<'a>(&self, among: &Labelled<'a>, seed: u64) -> Result<Selection<'a>> {
        among.check()?;
        let count = among.coarse.train.len();
        match self {
            Self::Class(text) => whole(among, vec![among.find(text)?]),
            Self::Classes(texts) => whole(among, distinct(texts, |text| among.find(text))?),
            Self::ClassBySeed => whole(among, vec![among.by_seed(seed)?]),
            Self::PartOfClass(text, amount) => part(among, among.find(text)?, *amount, seed),
            Self::PartOfClassBySeed(amount) => part(among, among.by_seed(seed)?, *amount, seed),
            Self::Random(amount) => {
                let drawn = amount.draw(&subject("random"), count as u64, seed)?;
                let rows = drawn.into_iter().map(|row| row as usize).collect();
                checked(among, "random", rows, Vec::new())
            }
            Self::File(_) | Self::Rows(_) => {
                let mut rows = Vec::new();
                if let Some(list) = self.read()? {
                    list.check(count as u64)?;
                    rows.extend(list.ids().iter().map(|&row| row as usize));
                }
                checked(among, "rows", rows, Vec::new())
            }
        }
    }
}

/// Selects all rows of some classes.
fn whole<'a>(among: &Labelled<'a>, classes: Vec<ForgetClass>) -> Result<Selection<'a>> {
    let fine = |class: &ForgetClass| matches!(class, ForgetClass::Fine(_));
    let scenario = if classes.iter().any(fine) {
        "sub-class"
    } else {
        "full-class"
    };
    let mut rows = BTreeSet::new();
    for &class in &classes {
        rows.extend(class_rows(among, class, scenario)?);
    }
    checked(among, scenario, rows.into_iter().collect(), classes)
}

/// Forgets a part of one class.
fn part<'a>(
    among: &Labelled<'a>,
    class: ForgetClass,
    amount: Amount,
    seed: u64,
) -> Result<Selection<'a>> {
    let scenario = "sub-class";
    let pool = class_rows(among, class, scenario)?;
    let rows = amount.draw_from(&subject(scenario), &pool, seed)?;
    let all = rows.len() == pool.len();
    let whole = if all { vec![class] } else { Vec::new() };
    checked(among, scenario, rows, whole)
}

fn class_rows(among: &Labelled<'_>, class: ForgetClass, scenario: &str) -> Result<Vec<usize>> {
    let rows = among.train_rows(class);
    if rows.is_empty() {
        let (ForgetClass::Coarse(number) | ForgetClass::Fine(number)) = class;
        let name = among.name(class).map_or_else(
            || format!("class {number}"),
            |name| format!("class `{}`", shown(name, 40)),
        );
        return Err(Error::selection(
            subject(scenario),
            format!("{name} has no rows"),
            "a class that occurs in the training labels",
        ));
    }
    Ok(rows)
}

/// Refuses to forget nothing and to forget everything.
fn checked<'a>(
    among: &Labelled<'a>,
    scenario: &'static str,
    rows: Vec<usize>,
    whole: Vec<ForgetClass>,
) -> Result<Selection<'a>> {
    if rows.is_empty() {
        return Err(Error::selection(
            subject(scenario),
            "nothing is forgotten",
            "at least one row to forget",
        ));
    }
    if rows.len() == among.coarse.train.len() {
        return Err(Error::selection(
            subject(scenario),
            format!("all {} training rows are forgotten", rows.len()),
            "at least one row that is retained",
        ));
    }
    Ok(Selection {
        among: *among,
        scenario,
        rows,
        whole,
    })
}

/// Returns the name of a scenario in errors.
fn subject(scenario: &str) -> String {
    format!("scenario {scenario}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> Vec<i64> {
        [vec![3; 300], vec![7; 300]].concat()
    }

    #[test]
    fn splits_partition_and_ascend() {
        let (train, test) = (labels(), [7, 3, 7]);
        for forget in [
            Forget::class(3),
            Forget::part_of_class(7, Amount::Count(17)),
            Forget::random(0.25),
            Forget::rows([599, 0, 5]),
        ] {
            let split = forget
                .split(&Labelled::new(&train, &test), TestRows::All, 9)
                .unwrap();
            assert!(split.forget.is_sorted() && split.retain.is_sorted());
            let mut all = [split.forget.clone(), split.retain].concat();
            all.sort_unstable();
            assert_eq!(all, (0..600).collect::<Vec<_>>());
            assert_eq!(split.test, [0, 1, 2]);
        }
    }

    #[test]
    fn the_rows_of_a_seed_never_change() {
        let train: Vec<i64> = (0..2000).map(|row| row % 10).collect();
        let rows = |forget: &Forget, seed| {
            let among = Labelled::new(&train, &[]);
            forget.split(&among, TestRows::All, seed).unwrap().forget
        };
        let part = Forget::part_of_class(7, 0.05);
        let by_seed = Forget::PartOfClassBySeed(Amount::Fraction(0.04));
        // Drawn by the former types.
        for (forget, seed, wanted) in [
            (
                &Forget::random(0.005),
                42,
                &[304, 484, 580, 620, 856, 1255, 1363, 1544, 1609, 1900][..],
            ),
            (
                &part,
                0,
                &[147, 387, 937, 1127, 1407, 1417, 1627, 1667, 1767, 1877],
            ),
            (
                &part,
                1,
                &[57, 167, 367, 467, 597, 807, 957, 1207, 1437, 1757],
            ),
            (&by_seed, 0, &[140, 930, 1120, 1400, 1410, 1660, 1760, 1870]),
            (&by_seed, 1, &[161, 361, 461, 591, 801, 951, 1201, 1431]),
            (&by_seed, 42, &[342, 602, 652, 862, 1262, 1362, 1622, 1902]),
        ] {
            assert_eq!(rows(forget, seed), wanted, "{forget:?}, seed {seed}");
        }
        assert_eq!(rows(&Forget::ClassBySeed, 42), rows(&Forget::class(2), 0));
    }

    #[test]
    fn forgotten_classes_leave_the_test_rows() {
        let (train, test) = (labels(), [7, 3, 7, 3]);
        let among = Labelled::new(&train, &test);
        let tested = |forget: Forget| {
            let split = forget.split(&among, TestRows::RetainedClasses, 0);
            split.unwrap().test
        };
        assert_eq!(tested(Forget::class(3)), [0, 2]);
        let part = |amount| Forget::part_of_class(3, amount);
        assert_eq!(tested(part(Amount::Count(299))), [0, 1, 2, 3]);
        assert_eq!(tested(part(Amount::All)), [0, 2]);
    }

    const TRAIN: [i64; 8] = [0, 0, 0, 1, 1, 1, 2, 2];
    const TEST: [i64; 5] = [0, 1, 2, 1, 2];
    const FINE_TRAIN: [i64; 8] = [0, 1, 0, 2, 3, 3, 4, 4];
    const FINE_TEST: [i64; 5] = [1, 3, 4, 2, 4];

    /// Three classes with five finer ones below them, one of which has no rows.
    fn with_fine(work: impl FnOnce(&Labelled<'_>)) {
        let names = ClassNames::new(["bird", "ship", "fish"]);
        let fine_names = ClassNames::new(["hen", "owl", "raft", "canoe", "carp", "eel"]);
        let fine = Labels {
            train: &FINE_TRAIN,
            test: &FINE_TEST,
            names: Some(&fine_names),
        };
        work(
            &Labelled::new(&TRAIN, &TEST)
                .with_names(&names)
                .with_fine(fine),
        );
    }

    #[test]
    fn several_classes_are_forgotten_at_once() {
        with_fine(|among| {
            for forget in [Forget::classes(["fish", "bird"]), Forget::classes([2, 0])] {
                let chosen = forget.select(among, 0).unwrap();
                assert_eq!(chosen.scenario(), "full-class");
                assert_eq!(chosen.rows(), [0, 1, 2, 6, 7]);
                assert_eq!(
                    chosen.whole_classes(),
                    [ForgetClass::Coarse(2), ForgetClass::Coarse(0)]
                );
                let split = chosen.split(TestRows::RetainedClasses);
                assert_eq!((split.retain, split.test), (vec![3, 4, 5], vec![1, 3]));
            }
            let fine = Forget::classes(["hen", "carp"]).select(among, 0).unwrap();
            assert_eq!(fine.scenario(), "sub-class");
            assert_eq!(fine.rows(), [0, 2, 6, 7]);
            // No fish is left without the carps, but there are other birds.
            assert_eq!(fine.split(TestRows::RetainedClasses).test, [0, 1, 3]);
            // A fine class within a coarse one adds nothing to it.
            let both = Forget::classes(["ship", "raft"]).select(among, 0).unwrap();
            assert_eq!(
                (both.scenario(), both.rows()),
                ("sub-class", &[3, 4, 5][..])
            );
        });
    }

    #[test]
    fn a_fine_class_is_a_sub_class() {
        with_fine(|among| {
            assert_eq!(among.find("Canoe").unwrap(), ForgetClass::Fine(3));
            let canoe = Forget::class("canoe").select(among, 0).unwrap();
            assert_eq!((canoe.scenario(), canoe.rows()), ("sub-class", &[4, 5][..]));
            assert_eq!(canoe.split(TestRows::All).test, [0, 1, 2, 3, 4]);
            assert_eq!(canoe.split(TestRows::RetainedClasses).test, [0, 2, 3, 4]);
            let half = Forget::part_of_class("canoe", 0.5)
                .select(among, 0)
                .unwrap();
            assert_eq!((half.scenario(), half.rows().len()), ("sub-class", 1));
            assert!(half.whole_classes().is_empty());
            // Numbers are those of the labels.
            assert_eq!(among.find("1").unwrap(), ForgetClass::Coarse(1));
            assert!(among.find("4").is_err());
        });
        let fine = Labels {
            train: &FINE_TRAIN[1..],
            test: &FINE_TEST,
            names: None,
        };
        let uneven = Labelled::new(&TRAIN, &TEST).with_fine(fine);
        let error = Forget::class(0).select(&uneven, 0).unwrap_err();
        assert!(matches!(error, Error::Shape { .. }), "{error}");
    }

    #[test]
    fn faults_of_named_classes() {
        with_fine(|among| {
            for (forget, wanted) in [
                (Forget::class("sihp"), "class `sihp`: none of the 3 + 6"),
                (Forget::classes(["ship", "brid"]), "class `brid`: none"),
                (
                    Forget::classes(["ship", "1"]),
                    "class `1`: it is listed twice",
                ),
                (
                    Forget::Classes(vec![]),
                    "the list of classes to forget is empty",
                ),
                (Forget::classes([0, 1, 2]), "all 8 training rows"),
                (Forget::class("eel"), "class `eel` has no rows"),
                (Forget::part_of_class("eel", 0.5), "class `eel` has no rows"),
            ] {
                let message = forget.select(among, 0).unwrap_err().to_string();
                assert!(message.contains(wanted), "{message}");
            }
        });
    }

    #[test]
    fn each_fault_has_its_own_line() {
        let random = |amount| Forget::Random(amount);
        let train = labels();
        for (forget, wanted) in [
            (Forget::class(4), "scenario full-class: class 4 has no rows"),
            (Forget::class("four"), "`four` is not a class number"),
            (
                Forget::part_of_class(3, Amount::Count(301)),
                "scenario sub-class: 301 rows of 300",
            ),
            (
                random(Amount::Count(0)),
                "scenario random: nothing is forgotten",
            ),
            (random(Amount::All), "all 600 training rows"),
            (random(Amount::Fraction(1.0)), "all 600 training rows"),
            (random(Amount::Fraction(0.0)), "fraction 0"),
            (random(Amount::Fraction(1.5)), "fraction 1.5"),
            (random(Amount::Fraction(f64::NAN)), "fraction NaN"),
            (Forget::rows([]), "`.forget`: the list of rows is empty"),
            (Forget::rows([5, 5]), "`.forget`: row 5 is listed twice"),
            (Forget::rows([600]), "`.forget`: row 600 is out of range"),
            (
                Forget::rows(0..600),
                "`.forget`: the list covers all 600 rows",
            ),
        ] {
            let among = Labelled::new(&train, &[3, 7]);
            let message = forget.select(&among, 0).unwrap_err().to_string();
            assert!(message.contains(wanted), "{message}");
        }
        let nobody = Labelled::new(&[], &[]);
        assert!(Forget::ClassBySeed.select(&nobody, 0).is_err());
        assert!(Forget::random(0.5).select(&nobody, 0).is_err());
    }
}
