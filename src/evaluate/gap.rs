//! How far a model is from the retrained one, and over which rows that is asked.
//!
//! A percentage says little without its rows: after forgetting a class, TA over all test rows and TA over the classes
//! that are left differ by the size of that class. [`judged_rows`] gives, for a scenario, the rows of each metric and
//! which rows those are ([`Scope`]), so that what a report says and what was measured come from the same place.
//!
//! | scenario | RA | TA | FA |
//! |---|---|---|---|
//! | random, listed rows | retained training rows | all test rows | forgotten training rows |
//! | a whole class or fine class | retained training rows | test rows of the others | test rows of that class |
//! | a part of a class | retained training rows | all test rows | forgotten training rows |
//!
//! ```
//! use muso::data::{Scenario, TestRows};
//! use muso::evaluate::{Classes, Scores, avg_gap, judged_rows};
//! let classes = Classes { train: &[0, 0, 1, 1], test: &[0, 1, 1], names: &[] };
//! let scenario = Scenario::FullClass { class: 1 };
//! let split = scenario.split(classes.train, classes.test, TestRows::All, 0)?;
//! let judged = judged_rows(&scenario, &classes, &split);
//! assert_eq!(judged.fa.rows, [1, 2]);
//! assert_eq!(judged.fa.phrase(), "over the 2 test rows of class 1, which is forgotten");
//!
//! let retrain = Scores { ra: 100.0, ta: 90.0, fa: 0.0, mia: 12.0 };
//! let method = Scores { ra: 98.0, ta: 89.0, fa: 3.0, mia: 6.0 };
//! assert_eq!(avg_gap(&method, &retrain), 3.0);
//! # Ok::<(), muso::Error>(())
//! ```

use super::mia::Mia;
use crate::data::{Scenario, Split};

/// The four percentages by which a network is judged.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Scores {
    /// Accuracy on the retained training rows.
    pub ra: f64,
    /// Accuracy on the test rows.
    pub ta: f64,
    /// Accuracy on what is forgotten.
    pub fa: f64,
    /// The membership attack's percentage, by the convention of [`Mia`].
    pub mia: f64,
}

impl Scores {
    /// In the order of the tables: RA, TA, FA, MIA.
    pub fn values(&self) -> [f64; 4] {
        [self.ra, self.ta, self.fa, self.mia]
    }
}

/// Mean of |metric − metric of Retrain| over RA, TA, FA and MIA, in points. 0 is ideal; two retrained models of
/// different seeds are not at 0, and what lies between them is the noise floor.
pub fn avg_gap(method: &Scores, retrain: &Scores) -> f64 {
    let pairs = method.values().into_iter().zip(retrain.values());
    pairs.map(|(a, b)| (a - b).abs()).sum::<f64>() / 4.0
}

/// Which data a row number counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The training rows.
    Train,
    /// The test rows.
    Test,
}

/// A class by its number, and by its name where it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedClass {
    /// The label of its rows.
    pub number: i64,
    /// Its name in the data set.
    pub name: Option<String>,
}

/// Which rows of its source a [`RowSet`] holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope {
    /// Every row.
    All,
    /// The retained rows.
    Retained,
    /// The forgotten rows.
    Forgotten,
    /// The rows of every class but this one.
    Without(NamedClass),
    /// The rows of this class, all of whose training rows are forgotten.
    OfForgotten(NamedClass),
}

/// Rows that one number is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowSet {
    /// What the numbers count in.
    pub source: Source,
    /// Row numbers, ascending.
    pub rows: Vec<usize>,
    /// Which rows they are, for the phrase that names them.
    pub scope: Scope,
}

impl RowSet {
    fn new(source: Source, rows: Vec<usize>, scope: Scope) -> Self {
        Self {
            source,
            rows,
            scope,
        }
    }
}

/// The classes that a scenario speaks of: the labels themselves, or the finer ones when a model is trained on coarse
/// classes and made to forget a fine one.
#[derive(Clone, Copy, Debug)]
pub struct Classes<'a> {
    /// Of the training rows.
    pub train: &'a [i64],
    /// Of the test rows.
    pub test: &'a [i64],
    /// Names by class, for the text; a class without one goes by its number.
    pub names: &'a [&'a str],
}

impl Classes<'_> {
    fn named(&self, class: i64) -> NamedClass {
        let name = usize::try_from(class).ok().and_then(|c| self.names.get(c));
        NamedClass {
            number: class,
            name: name.map(|name| (*name).to_owned()),
        }
    }
}

/// The rows of every metric in one scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Of RA: always the retained training rows. They are also the attack's members.
    pub ra: RowSet,
    /// Of TA.
    pub ta: RowSet,
    /// Of FA.
    pub fa: RowSet,
    /// Of MIA and of the agreement with Retrain: always the forgotten training rows.
    pub forgotten: RowSet,
    /// All test rows.
    all_test: RowSet,
}

impl Judged {
    /// The attack's non-members: all test rows; for [`Mia::Loss`] the test rows of the forgotten class where there are
    /// any, since another class alone could be what the losses tell apart.
    pub fn non_members(&self, mia: Mia) -> &RowSet {
        match (mia, self.fa.source) {
            (Mia::Loss, Source::Test) if !self.fa.rows.is_empty() => &self.fa,
            _ => &self.all_test,
        }
    }
}

/// The rows of RA, TA, FA and MIA for a `split` that `scenario` made of `classes`.
///
/// FA is over test rows only when a whole class is forgotten, as in the paper's full-class and sub-class tables: then the
/// test rows of that class are rows of what was forgotten that no model has seen. For a part of a class no test row
/// corresponds, and FA is over the forgotten training rows themselves.
pub fn judged_rows(scenario: &Scenario, classes: &Classes<'_>, split: &Split) -> Judged {
    let all_test = RowSet::new(Source::Test, (0..classes.test.len()).collect(), Scope::All);
    let forgotten = RowSet::new(Source::Train, split.forget.clone(), Scope::Forgotten);
    let whole_class = match scenario {
        Scenario::FullClass { class } | Scenario::FineClass { class, .. } => Some(*class),
        Scenario::SubClass { class, .. } => {
            let gone = split.retain.iter().all(|&i| classes.train[i] != *class);
            gone.then_some(*class)
        }
        Scenario::Random { .. } | Scenario::Rows { .. } => None,
    };
    let (ta, fa) = match whole_class {
        Some(class) => {
            let (of_class, others): (Vec<usize>, Vec<usize>) =
                (0..classes.test.len()).partition(|&i| classes.test[i] == class);
            let class = classes.named(class);
            (
                RowSet::new(Source::Test, others, Scope::Without(class.clone())),
                RowSet::new(Source::Test, of_class, Scope::OfForgotten(class)),
            )
        }
        None => (all_test.clone(), forgotten.clone()),
    };
    Judged {
        ra: RowSet::new(Source::Train, split.retain.clone(), Scope::Retained),
        ta,
        fa,
        forgotten,
        all_test,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::data::{Amount, TestRows};

    const TRAIN: [i64; 8] = [0, 0, 0, 0, 1, 1, 2, 2];
    const TEST: [i64; 5] = [0, 1, 2, 0, 2];

    fn judged(scenario: &Scenario, names: &[&str]) -> (Judged, Split) {
        let classes = Classes {
            train: &TRAIN,
            test: &TEST,
            names,
        };
        let split = scenario.split(&TRAIN, &TEST, TestRows::All, 3).unwrap();
        (judged_rows(scenario, &classes, &split), split)
    }

    #[test]
    fn a_gap_is_the_mean_distance() {
        let retrain = Scores {
            ra: 99.0,
            ta: 70.0,
            fa: 60.0,
            mia: 20.0,
        };
        assert_eq!(avg_gap(&retrain, &retrain), 0.0);
        let other = Scores {
            fa: 64.0,
            mia: 12.0,
            ..retrain
        };
        assert_eq!(avg_gap(&other, &retrain), 3.0);
        assert_eq!(avg_gap(&retrain, &other), 3.0);
    }

    #[test]
    fn random_and_listed_rows_are_judged_on_themselves() {
        let random = Scenario::Random {
            amount: Amount::Count(3),
        };
        let listed = Scenario::Rows { ids: vec![5, 1, 7] };
        for scenario in [random, listed] {
            let (judged, split) = judged(&scenario, &[]);
            assert_eq!(judged.ra.rows, split.retain);
            assert_eq!(
                (judged.ra.source, judged.fa.source),
                (Source::Train, Source::Train)
            );
            assert_eq!(judged.ta.rows, [0, 1, 2, 3, 4]);
            assert_eq!(judged.fa.rows, split.forget);
            assert_eq!(judged.ra.phrase(), "over the 5 retained training rows");
            assert_eq!(judged.ta.phrase(), "over all 5 test rows");
            assert_eq!(judged.fa.phrase(), "over the 3 forgotten training rows");
            for mia in Mia::ALL {
                assert_eq!(judged.non_members(mia).rows.len(), 5);
            }
        }
    }

    #[test]
    fn a_class_is_judged_on_its_test_rows() {
        let (judged, split) = judged(&Scenario::FullClass { class: 2 }, &["cat", "dog", "sea"]);
        assert_eq!(judged.ra.rows, split.retain);
        assert_eq!(
            (judged.ta.source, &judged.ta.rows),
            (Source::Test, &vec![0, 1, 3])
        );
        assert_eq!(
            (judged.fa.source, &judged.fa.rows),
            (Source::Test, &vec![2, 4])
        );
        assert_eq!(
            judged.ta.phrase(),
            "over the 3 test rows, without class “sea”"
        );
        assert_eq!(
            judged.fa.phrase(),
            "over the 2 test rows of class “sea”, which is forgotten"
        );
        // The attack is about the training rows all the same.
        assert_eq!(judged.forgotten.rows, [6, 7]);
        assert_eq!(judged.non_members(Mia::Entropy).rows.len(), 5);
        assert_eq!(judged.non_members(Mia::Loss).rows, [2, 4]);
    }

    #[test]
    fn a_fine_class_is_judged_like_a_class_and_a_part_of_one_like_rows() {
        let sub = |amount| Scenario::SubClass { class: 0, amount };
        let (whole, _) = judged(&sub(Amount::All), &[]);
        assert_eq!(
            (whole.ta.rows.as_slice(), whole.fa.rows.as_slice()),
            (&[1, 2, 4][..], &[0, 3][..])
        );
        assert_eq!(whole.ta.phrase(), "over the 3 test rows, without class 0");
        let (half, split) = judged(&sub(Amount::Fraction(0.5)), &[]);
        assert_eq!(half.ta.rows.len(), 5);
        assert_eq!(
            (half.fa.source, &half.fa.rows),
            (Source::Train, &split.forget)
        );
        assert_eq!(half.fa.phrase(), "over the 2 forgotten training rows");
        let (one, _) = judged(&sub(Amount::Count(1)), &[]);
        assert_eq!(one.fa.phrase(), "over the 1 forgotten training row");
    }
}
