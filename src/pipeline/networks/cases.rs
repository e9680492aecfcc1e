//! From what a user asks to forget to the rows of a [`Case`].

use super::config::Forget;
use super::experiment::Case;
use crate::data::forget::parse_ids;
use crate::data::images::{Dataset, ForgetClass};
use crate::data::{Amount, ForgetSpec, Scenario, TestRows};
use crate::error::{Error, Result};
use crate::evaluate::{Classes, judged_rows};

impl Forget {
    /// The rows, for one seed.
    pub fn case(&self, data: &Dataset, seed: u64) -> Result<Case> {
        let by_seed = || (seed % data.train.classes().len() as u64).to_string();
        match self {
            Self::ClassBySeed => return Self::Class(by_seed()).case(data, seed),
            Self::PartOfClassBySeed(share) => {
                return Self::PartOfClass(by_seed(), *share).case(data, seed);
            }
            _ => {}
        }
        let coarse = (
            data.train.labels(),
            data.test.labels(),
            data.train.classes(),
        );
        let fine = match (data.train.fine(), data.test.fine()) {
            (Some((train, names)), Some((test, _))) => Some((train, test, names)),
            _ => None,
        };
        let (scenario, spoken_of) = match self {
            Self::Class(name) => {
                let class = data.forget_class(name)?;
                let spoken_of = match class {
                    ForgetClass::Coarse(_) => coarse,
                    ForgetClass::Fine(_) => fine.unwrap_or(coarse),
                };
                (data.scenario(class), spoken_of)
            }
            Self::PartOfClass(name, share) => {
                let amount = Amount::Fraction(*share);
                match data.forget_class(name)? {
                    ForgetClass::Coarse(class) => (Scenario::SubClass { class, amount }, coarse),
                    ForgetClass::Fine(class) => {
                        (Scenario::SubClass { class, amount }, fine.unwrap_or(coarse))
                    }
                }
            }
            Self::Random(share) => {
                let amount = Amount::Fraction(*share);
                (Scenario::Random { amount }, coarse)
            }
            Self::Rows(path) => {
                let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "read", e))?;
                let ids = parse_ids(path, &text)?;
                let spec = ForgetSpec::Ids {
                    source: path.clone(),
                    ids: ids.clone(),
                };
                spec.check(data.train.len() as u64)?;
                (Scenario::Rows { ids }, coarse)
            }
            Self::ClassBySeed | Self::PartOfClassBySeed(_) => unreachable!("made definite above"),
        };
        let (train, test, names) = spoken_of;
        let split = scenario.split(train, test, TestRows::All, seed)?;
        let names: Vec<&str> = (0..names.len() as i64)
            .filter_map(|class| names.name(class))
            .collect();
        let classes = Classes {
            train,
            test,
            names: &names,
        };
        Ok(Case {
            judged: judged_rows(&scenario, &classes, &split),
            split,
            scenario,
        })
    }

    /// In a few words, for tables.
    pub fn describe(&self) -> String {
        let percent = |share: f64| format!("{} %", (share * 1e4).round() / 100.0);
        match self {
            Self::Class(name) => format!("class {name}"),
            Self::PartOfClass(name, share) => format!("{} of class {name}", percent(*share)),
            Self::Random(share) => format!("{} at random", percent(*share)),
            Self::Rows(path) => format!("rows of {}", path.display()),
            Self::ClassBySeed => "another class for each seed".to_owned(),
            Self::PartOfClassBySeed(share) => {
                format!("{} of another class for each seed", percent(*share))
            }
        }
    }
}
