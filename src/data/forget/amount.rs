//! How many rows to forget, and the draw of that many without replacement.

use std::collections::HashMap;
use std::fmt;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Error, Result};

/// Amount of the eligible rows to forget. A bare number is a [`Fraction`](Self::Fraction).
///
/// ```
/// use muso::data::Amount;
/// assert_eq!(Amount::from(0.1), Amount::Fraction(0.1));
/// let parsed: Vec<Amount> = serde_json::from_str(r#"[0.1, {"count": 200}, {"first": 200}, "all"]"#).unwrap();
/// assert_eq!(parsed[1..], [Amount::Count(200), Amount::First(200), Amount::All]);
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// Takes every eligible row.
    All,
    /// Takes this many rows, drawn without replacement.
    Count(usize),
    /// Takes the first so many rows, in the order of the data.
    First(usize),
    /// Takes this share in (0, 1], rounded up to whole rows, drawn without replacement.
    Fraction(f64),
}

impl From<f64> for Amount {
    fn from(share: f64) -> Self {
        Self::Fraction(share)
    }
}

impl Amount {
    /// Draws this much of `0..rows`, ascending; `what` is how errors name the choice.
    ///
    /// The memory is by the rows drawn and not by `rows`.
    ///
    /// # Errors
    /// If there are not so many rows, or if a fraction is not in (0, 1].
    pub(crate) fn draw(self, what: &str, rows: u64, seed: u64) -> Result<Vec<u64>> {
        let fault = |problem, expected: String| Err(Error::selection(what, problem, expected));
        let count = match self {
            Self::All => rows,
            Self::Count(count) | Self::First(count) if count as u64 > rows => {
                return fault(
                    format!("{count} rows of {rows} are to be forgotten"),
                    format!("at most {rows}"),
                );
            }
            Self::First(count) => return Ok((0..count as u64).collect()),
            Self::Count(count) => count as u64,
            Self::Fraction(share) if share > 0.0 && share <= 1.0 => rounded_up(share, rows),
            Self::Fraction(share) => {
                return fault(
                    format!("the fraction {share}"),
                    "a fraction above 0 and at most 1".into(),
                );
            }
        };
        if count == rows {
            return Ok((0..rows).collect());
        }
        // The first steps of a Fisher–Yates shuffle, which keeps only the places that a swap has changed.
        let mut moved: HashMap<u64, u64> = HashMap::new();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut drawn: Vec<u64> = (0..count)
            .map(|i| {
                let j = i + below(&mut rng, rows - i);
                let here = moved.remove(&i).unwrap_or(i);
                if i == j {
                    here
                } else {
                    moved.insert(j, here).unwrap_or(j)
                }
            })
            .collect();
        drawn.sort_unstable();
        Ok(drawn)
    }

    /// Draws this much of `pool`, whose order the outcome keeps. Like [`draw`](Self::draw) otherwise.
    ///
    /// # Errors
    /// As [`draw`](Self::draw).
    pub(crate) fn draw_from<T: Copy>(self, what: &str, pool: &[T], seed: u64) -> Result<Vec<T>> {
        let drawn = self.draw(what, pool.len() as u64, seed)?;
        Ok(drawn.into_iter().map(|at| pool[at as usize]).collect())
    }
}

/// ⌈share · rows⌉ for the share as a person wrote it: 0.1 of 300 is 30, although the f64 nearest to 0.1 is a little
/// more than 0.1 and its product with 300 a little more than 30.
fn rounded_up(share: f64, rows: u64) -> u64 {
    let product = share * rows as f64;
    let nearest = product.round();
    let whole = if (product - nearest).abs() <= 1e-12 * product {
        nearest
    } else {
        product.ceil()
    };
    (whole as u64).min(rows)
}

/// Draws uniformly from `0..bound`, `bound > 0`. Written here, since the rows that a seed draws must not change when a
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

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let table = |to: S, key, rows| {
            let mut map = to.serialize_map(Some(1))?;
            map.serialize_entry(key, rows)?;
            map.end()
        };
        match self {
            Self::All => to.serialize_str("all"),
            Self::Fraction(share) => to.serialize_f64(*share),
            Self::Count(rows) => table(to, "count", rows),
            Self::First(rows) => table(to, "first", rows),
        }
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Amount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a share of the rows, { count = N }, { first = N } or \"all\"")
            }

            fn visit_f64<E>(self, share: f64) -> Result<Amount, E> {
                Ok(Amount::Fraction(share))
            }

            fn visit_i64<E>(self, share: i64) -> Result<Amount, E> {
                Ok(Amount::Fraction(share as f64))
            }

            fn visit_u64<E>(self, share: u64) -> Result<Amount, E> {
                Ok(Amount::Fraction(share as f64))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Amount, E> {
                match text {
                    "all" => Ok(Amount::All),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Amount, A::Error> {
                use serde::de::Error as _;
                let amount = match map.next_key::<String>()?.as_deref() {
                    Some("count") => Amount::Count(map.next_value()?),
                    Some("first") => Amount::First(map.next_value()?),
                    Some(other) => {
                        return Err(A::Error::unknown_field(other, &["count", "first"]));
                    }
                    None => return Err(A::Error::missing_field("count")),
                };
                match map.next_key::<String>()? {
                    None => Ok(amount),
                    Some(_) => Err(A::Error::custom("only one of `count` and `first`")),
                }
            }
        }

        from.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_a_seed_never_change() {
        let of_all = |amount: Amount, seed| amount.draw("it", 2000, seed).unwrap();
        let share = Amount::Fraction(0.005);
        // Drawn by the first version of this, which shuffled a list of all rows.
        assert_eq!(
            of_all(share, 0),
            [123, 316, 932, 1101, 1398, 1418, 1609, 1658, 1758, 1871]
        );
        assert_eq!(
            of_all(share, 1),
            [161, 311, 440, 570, 804, 925, 1193, 1415, 1422, 1750]
        );
        assert_eq!(
            of_all(share, 42),
            [304, 484, 580, 620, 856, 1255, 1363, 1544, 1609, 1900]
        );
        assert_eq!(
            of_all(Amount::Count(7), 1),
            [161, 440, 570, 804, 925, 1193, 1422]
        );
        assert_eq!(
            Amount::Count(6).draw("it", 600, 1).unwrap(),
            [49, 133, 173, 241, 358, 427]
        );
        for (seed, sum) in [(0, 665_818_896), (1, 668_640_272), (42, 672_090_100)] {
            let half = of_all(Amount::Fraction(0.5), seed);
            let weighted: u64 = (1..).zip(&half).map(|(i, row): (u64, _)| i * row).sum();
            assert_eq!((half.len(), weighted), (1000, sum));
        }
        let sevens: Vec<u64> = (0..200).map(|i| 10 * i + 7).collect();
        let of_sevens = |amount: Amount, seed| amount.draw_from("it", &sevens, seed).unwrap();
        assert_eq!(
            of_sevens(Amount::Fraction(0.05), 42),
            [347, 547, 607, 657, 867, 1267, 1367, 1567, 1627, 1907]
        );
        assert_eq!(of_sevens(Amount::Count(3), 0), [937, 1407, 1417]);
        assert_eq!(of_sevens(Amount::First(4), 1), [7, 17, 27, 37]);
        assert_eq!(of_sevens(Amount::All, 1), sevens);
    }

    #[test]
    fn a_draw_out_of_very_many_rows_takes_little_memory() {
        let drawn = Amount::Count(1000).draw("it", u64::MAX, 3).unwrap();
        assert_eq!(drawn.len(), 1000);
        assert!(drawn.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(drawn[999] > u64::MAX / 2);
    }

    #[test]
    fn every_row_is_drawn_equally_often() {
        let mut hits = [0_u32; 5];
        for seed in 0..5000 {
            for row in Amount::Count(2).draw("it", 5, seed).unwrap() {
                hits[row as usize] += 1;
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
    fn amounts_are_written_as_they_are_parsed() {
        for (amount, text) in [
            (Amount::Fraction(0.1), "0.1"),
            (Amount::Count(200), "{\"count\":200}"),
            (Amount::First(7), "{\"first\":7}"),
            (Amount::All, "\"all\""),
        ] {
            assert_eq!(serde_json::to_string(&amount).unwrap(), text);
            assert_eq!(serde_json::from_str::<Amount>(text).unwrap(), amount);
        }
        assert_eq!(
            serde_json::from_str::<Amount>("1").unwrap(),
            Amount::Fraction(1.0)
        );
        for (bad, wanted) in [
            ("\"some\"", "a share of the rows"),
            ("{}", "count"),
            ("{\"last\":3}", "last"),
            ("{\"count\":3,\"first\":3}", "only one"),
            ("{\"count\":-3}", "-3"),
            ("[0.1]", "a share of the rows"),
        ] {
            let message = serde_json::from_str::<Amount>(bad).unwrap_err().to_string();
            assert!(message.contains(wanted), "{message}");
        }
    }
}
