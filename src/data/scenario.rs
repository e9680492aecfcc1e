//! What is to be forgotten, as a value, and the row lists that follow from it.
//!
//! The paper has three scenarios: a whole class, a part of one class (drawn, or the part that a finer label names), and a
//! random part of everything; a list of row numbers is the fourth. A [`Scenario`] takes the labels, right after the data is loaded, and yields a [`Split`]:
//! the rows that every later stage speaks of. The same seed draws the same rows on every machine and in every version.
//!
//! ```
//! use muso::data::{Amount, Scenario, TestRows};
//! let (train, test) = ([3, 3, 3, 3, 7, 7], [3, 7, 7]);
//! let half_of_the_threes = Scenario::SubClass { class: 3, amount: Amount::Fraction(0.5) };
//! let split = half_of_the_threes.split(&train, &test, TestRows::All, 0)?;
//! assert_eq!((split.forget.len(), split.retain.len(), split.test.len()), (2, 4, 3));
//! assert!(split.forget.iter().all(|&row| train[row] == 3));
//! # Ok::<(), muso::Error>(())
//! ```

use std::collections::BTreeSet;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::{Error, Result};

/// How many of the eligible rows to forget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// All of them.
    All,
    /// This many, drawn without replacement.
    Count(usize),
    /// The first so many, in the order of the data.
    First(usize),
    /// This share in (0, 1], rounded up to whole rows, drawn without replacement.
    Fraction(f64),
}

/// Which rows are to be forgotten.
#[derive(Clone, Debug, PartialEq)]
pub enum Scenario {
    /// Every row of one class.
    FullClass {
        /// The class.
        class: i64,
    },
    /// A part of one class.
    SubClass {
        /// The class.
        class: i64,
        /// How much of it.
        amount: Amount,
    },
    /// The part of a class that a finer label names: in CIFAR-20, the rockets within the vehicles.
    ///
    /// [`Dataset::scenario`](super::images::Dataset::scenario) makes it from a name.
    FineClass {
        /// The class among the finer ones.
        class: i64,
        /// Its training rows, which are forgotten, in any order, without repetition.
        train: Vec<u64>,
        /// Its test rows, likewise. It counts as a class of its own for [`TestRows::RetainedClasses`].
        test: Vec<u64>,
    },
    /// A part of all rows.
    Random {
        /// How much of them.
        amount: Amount,
    },
    /// Exactly these rows.
    Rows {
        /// Row numbers, counted from 0, in any order, without repetition.
        ids: Vec<u64>,
    },
}

/// Which test rows a [`Split`] lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestRows {
    /// Every test row.
    All,
    /// Only rows whose class still has retained training rows; for a forgotten class there is nothing to test.
    RetainedClasses,
}

/// The row lists of a scenario, each ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Training rows that stay.
    pub retain: Vec<usize>,
    /// Training rows to forget.
    pub forget: Vec<usize>,
    /// Test rows to evaluate on.
    pub test: Vec<usize>,
}

impl Scenario {
    /// Its name in tables and JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::FullClass { .. } => "full-class",
            Self::SubClass { .. } | Self::FineClass { .. } => "sub-class",
            Self::Random { .. } => "random",
            Self::Rows { .. } => "rows",
        }
    }

    /// The rows to retain, to forget and to test on. Only drawing depends on `seed`.
    pub fn split(
        &self,
        train_labels: &[i64],
        test_labels: &[i64],
        test_rows: TestRows,
        seed: u64,
    ) -> Result<Split> {
        let forget = self.forget(train_labels, seed)?;
        if forget.is_empty() {
            return Err(self.fault("nothing is forgotten", "at least one row to forget"));
        }
        if forget.len() == train_labels.len() {
            return Err(self.fault(
                format!("all {} training rows are forgotten", forget.len()),
                "at least one row that is retained",
            ));
        }
        let mut forgotten = vec![false; train_labels.len()];
        for &row in &forget {
            forgotten[row] = true;
        }
        let retain: Vec<usize> = (0..train_labels.len()).filter(|&i| !forgotten[i]).collect();
        let test = match test_rows {
            TestRows::All => (0..test_labels.len()).collect(),
            TestRows::RetainedClasses => {
                let retained: BTreeSet<i64> = retain.iter().map(|&i| train_labels[i]).collect();
                let forgotten: BTreeSet<usize> = match self {
                    Self::FineClass { test, .. } => {
                        self.listed(test, test_labels.len())?.into_iter().collect()
                    }
                    _ => BTreeSet::new(),
                };
                (0..test_labels.len())
                    .filter(|i| retained.contains(&test_labels[*i]) && !forgotten.contains(i))
                    .collect()
            }
        };
        Ok(Split {
            retain,
            forget,
            test,
        })
    }

    fn forget(&self, labels: &[i64], seed: u64) -> Result<Vec<usize>> {
        match self {
            Self::FullClass { class } => self.class_rows(labels, *class),
            Self::SubClass { class, amount } => {
                self.draw(self.class_rows(labels, *class)?, *amount, seed)
            }
            Self::Random { amount } => self.draw((0..labels.len()).collect(), *amount, seed),
            Self::FineClass { train, .. } => self.listed(train, labels.len()),
            Self::Rows { ids } => self.listed(ids, labels.len()),
        }
    }

    fn class_rows(&self, labels: &[i64], class: i64) -> Result<Vec<usize>> {
        let rows: Vec<usize> = (0..labels.len()).filter(|&i| labels[i] == class).collect();
        if rows.is_empty() {
            return Err(self.fault(
                format!("class {class} has no rows"),
                "a class that occurs in the training labels",
            ));
        }
        Ok(rows)
    }

    fn listed(&self, ids: &[u64], rows: usize) -> Result<Vec<usize>> {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(self.fault(
                format!("row {} is listed twice", pair[0]),
                "every row at most once",
            ));
        }
        ids.into_iter()
            .map(|id| {
                usize::try_from(id)
                    .ok()
                    .filter(|&row| row < rows)
                    .ok_or_else(|| {
                        self.fault(
                            format!("row {id} is out of range"),
                            format!("row numbers below {rows}, counted from 0"),
                        )
                    })
            })
            .collect()
    }

    fn draw(&self, mut pool: Vec<usize>, amount: Amount, seed: u64) -> Result<Vec<usize>> {
        let count = match amount {
            Amount::All => return Ok(pool),
            Amount::Count(count) | Amount::First(count) if count > pool.len() => {
                return Err(self.fault(
                    format!("{count} rows of {} are to be forgotten", pool.len()),
                    format!("at most {}", pool.len()),
                ));
            }
            Amount::First(count) => {
                pool.truncate(count);
                return Ok(pool);
            }
            Amount::Count(count) => count,
            Amount::Fraction(share) if share > 0.0 && share <= 1.0 => rounded_up(share, pool.len()),
            Amount::Fraction(share) => {
                return Err(self.fault(
                    format!("the fraction {share}"),
                    "a fraction above 0 and at most 1",
                ));
            }
        };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for i in 0..count {
            let j = i + below(&mut rng, (pool.len() - i) as u64) as usize;
            pool.swap(i, j);
        }
        pool.truncate(count);
        pool.sort_unstable();
        Ok(pool)
    }

    fn fault(&self, problem: impl Into<String>, expected: impl Into<String>) -> Error {
        Error::selection(format!("scenario {}", self.name()), problem, expected)
    }
}

/// ⌈share · n⌉ for the share as a person wrote it: 0.1 of 300 is 30, although the f64 nearest to 0.1 is a little
/// more than 0.1 and its product with 300 a little more than 30.
fn rounded_up(share: f64, n: usize) -> usize {
    let product = share * n as f64;
    let nearest = product.round();
    let rows = if (product - nearest).abs() <= 1e-12 * product {
        nearest
    } else {
        product.ceil()
    };
    (rows as usize).min(n)
}

/// Uniform in `0..bound`, `bound > 0`. Written here, since the rows that a seed draws must not change when a
/// dependency changes its sampling.
pub(in crate::data) fn below(rng: &mut impl Rng, bound: u64) -> u64 {
    // The top part of a 64×64-bit product is uniform once the products that fall in the incomplete stretch, the
    // lowest 2^64 mod bound of each, are drawn again.
    let incomplete = bound.wrapping_neg() % bound;
    loop {
        let product = u128::from(rng.next_u64()) * u128::from(bound);
        if product as u64 >= incomplete {
            return (product >> 64) as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> Vec<i64> {
        [vec![3; 300], vec![7; 300]].concat()
    }

    fn message(scenario: &Scenario) -> String {
        scenario
            .split(&labels(), &[3, 7], TestRows::All, 0)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn splits_partition_and_ascend() {
        for scenario in [
            Scenario::FullClass { class: 3 },
            Scenario::SubClass {
                class: 7,
                amount: Amount::Count(17),
            },
            Scenario::Random {
                amount: Amount::Fraction(0.25),
            },
            Scenario::Rows {
                ids: vec![599, 0, 5],
            },
        ] {
            let split = scenario
                .split(&labels(), &[7, 3, 7], TestRows::All, 9)
                .unwrap();
            assert!(split.forget.is_sorted() && split.retain.is_sorted());
            let mut all = [split.forget.clone(), split.retain].concat();
            all.sort_unstable();
            assert_eq!(all, (0..600).collect::<Vec<_>>());
            assert_eq!(split.test, [0, 1, 2]);
        }
    }

    #[test]
    fn forgotten_classes_leave_the_test_rows() {
        let test = [7, 3, 7, 3];
        let full = Scenario::FullClass { class: 3 };
        let split = full
            .split(&labels(), &test, TestRows::RetainedClasses, 0)
            .unwrap();
        assert_eq!(split.test, [0, 2]);
        let part = Scenario::SubClass {
            class: 3,
            amount: Amount::Count(299),
        };
        let split = part
            .split(&labels(), &test, TestRows::RetainedClasses, 0)
            .unwrap();
        assert_eq!(split.test, [0, 1, 2, 3]);
        let fine = Scenario::FineClass {
            class: 0,
            train: vec![4, 2],
            test: vec![3],
        };
        let rows = |test_rows| fine.split(&labels(), &test, test_rows, 0).unwrap();
        assert_eq!(rows(TestRows::RetainedClasses).test, [0, 1, 2]);
        assert_eq!(rows(TestRows::All).test, [0, 1, 2, 3]);
        assert_eq!(rows(TestRows::All).forget, [2, 4]);
    }

    #[test]
    fn the_rows_of_a_seed_never_change() {
        let scenario = Scenario::Random {
            amount: Amount::Count(6),
        };
        let rows = |seed| {
            let split = scenario.split(&labels(), &[], TestRows::All, seed);
            split.unwrap().forget
        };
        assert_eq!(rows(1), rows(1));
        assert_ne!(rows(1), rows(2));
        assert_eq!(rows(1), PINNED);
    }

    /// What seed 1 drew when this was first written.
    const PINNED: [usize; 6] = [49, 133, 173, 241, 358, 427];

    #[test]
    fn every_row_is_drawn_equally_often() {
        let mut hits = [0_u32; 5];
        let labels = [0_i64; 5];
        let scenario = Scenario::Random {
            amount: Amount::Count(2),
        };
        for seed in 0..5000 {
            let split = scenario.split(&labels, &[], TestRows::All, seed).unwrap();
            for row in split.forget {
                hits[row] += 1;
            }
        }
        // 2000 expected, standard deviation 35.
        assert!(hits.iter().all(|&n| n.abs_diff(2000) < 200), "{hits:?}");
    }

    #[test]
    fn large_ranges_are_not_biased() {
        // Three quarters of 2^64: without drawing again every third number would come up twice as often.
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut hits = [0_u32; 3];
        for _ in 0..3000 {
            hits[(below(&mut rng, 3 << 62) % 3) as usize] += 1;
        }
        // 1000 expected, standard deviation 26.
        assert!(hits.iter().all(|&n| n.abs_diff(1000) < 150), "{hits:?}");
    }

    #[test]
    fn fractions_round_up_to_whole_rows() {
        assert_eq!(rounded_up(0.1, 300), 30);
        assert_eq!(rounded_up(0.7, 10), 7);
        assert_eq!(rounded_up(0.301, 10), 4);
        assert_eq!(rounded_up(1e-9, 10), 1);
        assert_eq!(rounded_up(1.0, 7), 7);
        assert_eq!(rounded_up(0.5, 3), 2);
    }

    #[test]
    fn each_fault_has_its_own_line() {
        let random = |amount| Scenario::Random { amount };
        let fine = |train| Scenario::FineClass {
            class: 0,
            train,
            test: vec![],
        };
        for (scenario, wanted) in [
            (Scenario::FullClass { class: 4 }, "class 4 has no rows"),
            (
                Scenario::SubClass {
                    class: 3,
                    amount: Amount::Count(301),
                },
                "301 rows of 300",
            ),
            (fine(vec![]), "nothing is forgotten"),
            (fine(vec![7, 7]), "row 7 is listed twice"),
            (fine(vec![600]), "row 600 is out of range"),
            (random(Amount::Count(0)), "nothing is forgotten"),
            (random(Amount::All), "all 600 training rows"),
            (random(Amount::Fraction(1.0)), "all 600 training rows"),
            (random(Amount::Fraction(0.0)), "fraction 0"),
            (random(Amount::Fraction(1.5)), "fraction 1.5"),
            (random(Amount::Fraction(f64::NAN)), "fraction NaN"),
            (Scenario::Rows { ids: vec![] }, "nothing is forgotten"),
            (Scenario::Rows { ids: vec![5, 5] }, "row 5 is listed twice"),
            (Scenario::Rows { ids: vec![600] }, "row 600 is out of range"),
            (
                Scenario::Rows {
                    ids: (0..600).collect(),
                },
                "all 600 training rows",
            ),
        ] {
            let message = message(&scenario);
            assert!(message.contains(wanted), "{message}");
            assert!(message.contains(scenario.name()), "{message}");
        }
    }
}
