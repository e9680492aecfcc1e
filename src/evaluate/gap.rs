//! How far a model is from the retrained one, and over which rows that is asked.
//!
//! A percentage says little without its rows: after forgetting a class, TA over all test rows and TA over the classes
//! that are left differ by the size of that class. [`judged_rows`] gives, for a scenario, the rows of each metric and
//! which rows those are ([`Scope`]), so that what a report says and what was measured come from the same place.
//!
//! | scenario | RA | TA | FA |
//! |---|---|---|---|
//! | random, listed rows | retained training rows | all test rows | forgotten training rows |
//! | whole classes or fine classes | retained training rows | test rows of the others | test rows of those classes |
//! | a part of a class | retained training rows | all test rows | forgotten training rows |
//!
//! ```
//! use muso::data::{Forget, Labelled, TestRows};
//! use muso::evaluate::{Scores, avg_gap, judged_rows};
//! let labels = Labelled::new(&[0, 0, 1, 1], &[0, 1, 1]);
//! let selection = Forget::class(1).select(&labels, 0)?;
//! let judged = judged_rows(&selection, &selection.split(TestRows::All));
//! assert_eq!(judged.fa.rows, [1, 2]);
//! assert_eq!(judged.fa.phrase(), "over the 2 test rows of class 1, which is forgotten");
//!
//! let retrain = Scores { ra: 100.0, ta: 90.0, fa: 0.0, mia: 12.0 };
//! let method = Scores { ra: 98.0, ta: 89.0, fa: 3.0, mia: 6.0 };
//! assert_eq!(avg_gap(&method, &retrain), 3.0);
//! # Ok::<(), muso::Error>(())
//! ```

use super::mia::Mia;
use crate::data::{ForgetClass, Selection, Split};

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
    /// Returns the values in the order of the tables: RA, TA, FA, MIA.
    pub fn values(&self) -> [f64; 4] {
        [self.ra, self.ta, self.fa, self.mia]
    }
}

/// Returns the mean of |metric − metric of Retrain| over RA, TA, FA and MIA, in points. 0 is ideal; two retrained
/// models that saw the rows in different orders are not at 0, and what lies between them is the noise floor.
pub fn avg_gap(method: &Scores, retrain: &Scores) -> f64 {
    let pairs = method.values().into_iter().zip(retrain.values());
    pairs.map(|(a, b)| (a - b).abs()).sum::<f64>() / 4.0
}

/// Data that a row number counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The training data.
    Train,
    /// The test data.
    Test,
}

/// A class by its number, and by its name where it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedClass {
    /// The label of its rows.
    pub number: i64,
    /// Name of the class in the data set.
    pub name: Option<String>,
}

/// Rows of its source that a [`RowSet`] holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope {
    /// Every row of the source.
    All,
    /// Rows of the retained set.
    Retained,
    /// Rows of the forgotten set.
    Forgotten,
    /// The rows of every class but these.
    Without(Vec<NamedClass>),
    /// The rows of these classes, all of whose training rows are forgotten.
    OfForgotten(Vec<NamedClass>),
}

/// Rows that one number is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowSet {
    /// Data that the row numbers count in.
    pub source: Source,
    /// Row numbers in ascending order.
    pub rows: Vec<usize>,
    /// Scope of the rows, for the phrase that names them.
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

/// The rows of every metric in one scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Rows of RA: always the retained training rows. They are also the attack's members.
    pub ra: RowSet,
    /// Rows of TA, accuracy on the test data.
    pub ta: RowSet,
    /// Rows of FA, accuracy on the forgotten data.
    pub fa: RowSet,
    /// Rows of MIA and of the agreement with Retrain: always the forgotten training rows.
    pub forgotten: RowSet,
    /// All rows of the test set.
    all_test: RowSet,
}

impl Judged {
    /// Returns the attack's non-members: all test rows; for [`Mia::Loss`] the test rows of the forgotten class where
    /// there are any, since another class alone could be what the losses tell apart.
    pub fn non_members(&self, mia: Mia) -> &RowSet {
        match (mia, self.fa.source) {
            (Mia::Loss, Source::Test) if !self.fa.rows.is_empty() => &self.fa,
            _ => &self.all_test,
        }
    }
}

/// Returns the rows of RA, TA, FA and MIA for a `selection` and the `split` that it makes.
///
/// FA is over test rows only when whole classes are forgotten, as in the paper's full-class and sub-class tables: then the
/// test rows of those classes are rows of what was forgotten that no model has seen. For a part of a class no test row
/// corresponds, and FA is over the forgotten training rows themselves.
pub fn judged_rows(selection: &Selection<'_>, split: &Split) -> Judged {
    let tested = selection.among().coarse.test.len();
    let all_test = RowSet::new(Source::Test, (0..tested).collect(), Scope::All);
    let forgotten = RowSet::new(Source::Train, split.forget.clone(), Scope::Forgotten);
    let (ta, fa) = if selection.whole_classes().is_empty() {
        (all_test.clone(), forgotten.clone())
    } else {
        let of_classes = selection.forgotten_test_rows();
        let (gone, others) = (0..tested).partition(|&row| of_classes[row]);
        let classes = whole_classes(selection);
        (
            RowSet::new(Source::Test, others, Scope::Without(classes.clone())),
            RowSet::new(Source::Test, gone, Scope::OfForgotten(classes)),
        )
    };
    Judged {
        ra: RowSet::new(Source::Train, split.retain.clone(), Scope::Retained),
        ta,
        fa,
        forgotten,
        all_test,
    }
}

/// Returns the classes that are forgotten as a whole.
fn whole_classes(selection: &Selection<'_>) -> Vec<NamedClass> {
    let named = |&class: &ForgetClass| {
        let (ForgetClass::Coarse(number) | ForgetClass::Fine(number)) = class;
        NamedClass {
            number,
            name: selection.among().name(class).map(|name| name.to_string()),
        }
    };
    selection.whole_classes().iter().map(named).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::data::{Amount, ClassNames, Forget, Labelled, TestRows};

    const TRAIN: [i64; 8] = [0, 0, 0, 0, 1, 1, 2, 2];
    const TEST: [i64; 5] = [0, 1, 2, 0, 2];

    fn judged(forget: &Forget, names: Option<&ClassNames>) -> (Judged, Split) {
        let labels = Labelled::new(&TRAIN, &TEST);
        let labels = names.map_or(labels, |names| labels.with_names(names));
        let selection = forget.select(&labels, 3).unwrap();
        let split = selection.split(TestRows::All);
        (judged_rows(&selection, &split), split)
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
        let random = Forget::random(Amount::Count(3));
        for forget in [random, Forget::rows([5, 1, 7])] {
            let (judged, split) = judged(&forget, None);
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
        let names = ClassNames::new(["cat", "dog", "sea"]);
        let (judged, split) = judged(&Forget::class("sea"), Some(&names));
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
    fn several_classes_are_judged_on_their_test_rows() {
        let names = ClassNames::new(["cat", "dog", "sea"]);
        let (both, split) = judged(&Forget::classes(["cat", "dog"]), Some(&names));
        assert_eq!(both.ra.rows, split.retain);
        assert_eq!(both.ta.rows, [2, 4]);
        assert_eq!(
            (both.fa.source, &both.fa.rows),
            (Source::Test, &vec![0, 1, 3])
        );
        assert_eq!(
            both.ta.phrase(),
            "over the 2 test rows, without classes “cat” and “dog”"
        );
        assert_eq!(
            both.fa.phrase(),
            "over the 3 test rows of classes “cat” and “dog”, which are forgotten"
        );
        assert_eq!(both.forgotten.rows, [0, 1, 2, 3, 4, 5]);
        assert_eq!(both.non_members(Mia::Loss).rows, [0, 1, 3]);
        let (both, _) = judged(&Forget::classes([2, 1]), None);
        assert_eq!(
            both.ta.phrase(),
            "over the 2 test rows, without classes 2 and 1"
        );
    }

    #[test]
    fn a_whole_part_is_judged_like_a_class_and_less_of_one_like_rows() {
        let sub = |amount| Forget::part_of_class(0, amount);
        let (whole, _) = judged(&sub(Amount::All), None);
        assert_eq!(
            (whole.ta.rows.as_slice(), whole.fa.rows.as_slice()),
            (&[1, 2, 4][..], &[0, 3][..])
        );
        assert_eq!(whole.ta.phrase(), "over the 3 test rows, without class 0");
        let (half, split) = judged(&sub(Amount::Fraction(0.5)), None);
        assert_eq!(half.ta.rows.len(), 5);
        assert_eq!(
            (half.fa.source, &half.fa.rows),
            (Source::Train, &split.forget)
        );
        assert_eq!(half.fa.phrase(), "over the 2 forgotten training rows");
        let (one, _) = judged(&sub(Amount::Count(1)), None);
        assert_eq!(one.fa.phrase(), "over the 1 forgotten training row");
    }
}
