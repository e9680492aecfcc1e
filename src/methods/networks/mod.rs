//! Unlearning methods for networks, behind one trait.
//!
//! A [`Task`] is what every method is given: the trained network, the one that training started from, snapshots of the
//! way, the rows to retain and to forget. A [`Method`] answers with a network. To add one, write a file with a struct
//! that holds its settings (serde, with defaults), implement [`Method`], and name it in [`METHODS`].
//!
//! | method | what the forgotten rows are trained towards | what else it trains on |
//! |---|---|---|
//! | [`Retrain`] | nothing: starts anew from the same initial weights | the retained rows |
//! | [`Muso`] | the paper's optimal labels, from the current network's features | the retained rows |
//! | [`MusoS`] | target-form labels from an early snapshot's features | the retained rows |
//! | [`Amnesiac`] | a random other class | the retained rows |
//! | [`BadTeacher`] | the answers of an untrained network | a part of the retained rows, original answers |
//! | [`Salun`] | random classes, only the weights that matter to them move | the retained rows |
//! | [`Ssd`] | none: dampens weights that matter more to them than to the rest | nothing |
//! | [`FineTune`] | none | the retained rows |
//! | [`NegGrad`] | away from their labels | the retained rows |
//! | [`Ascent`] | away from their labels | nothing |
//! | [`Scrub`] | away from the original's answers | the retained rows, original answers |

mod amnesiac;
mod ascent;
mod bad_teacher;
mod fine_tune;
mod muso;
mod muso_s;
mod neg_grad;
mod retrain;
mod salun;
mod scrub;
mod ssd;

pub use amnesiac::Amnesiac;
pub use ascent::Ascent;
pub use bad_teacher::BadTeacher;
pub use fine_tune::FineTune;
pub use muso::{LabelKind, Muso, Reference, RidgePath, Sampling};
pub use muso_s::MusoS;
pub use neg_grad::NegGrad;
pub use retrain::Retrain;
pub use salun::Salun;
pub use scrub::Scrub;
pub use ssd::Ssd;

use muso_models::{Network, NetworkConfig};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::{AnyEngine, Matrix};
use crate::error::{Error, Result};
use crate::features::{Feed, host};
use crate::train::{Recipe, RowTargets, Rule, Schedule, Session, Watch, stream};

/// A network from the way to the trained one.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Epochs that it was trained for.
    pub epoch: usize,
    /// The network then.
    pub network: Network,
}

/// What is to be unlearned, and all that a method may use for it.
#[derive(Clone)]
pub struct Task<'a> {
    /// The training images.
    pub feed: &'a Feed,
    /// C.
    pub classes: usize,
    /// Training rows that stay.
    pub retain: &'a [usize],
    /// Training rows to forget.
    pub forget: &'a [usize],
    /// The trained network.
    pub original: &'a Network,
    /// The network that training started from.
    pub initial: &'a Network,
    /// The way from one to the other, by ascending epoch; may be empty.
    pub snapshots: &'a [Snapshot],
    /// What the networks are made of.
    pub network: &'a NetworkConfig,
    /// How the original was trained.
    pub recipe: &'a Recipe,
    /// Of everything that the method draws.
    pub seed: u64,
    /// For the closed forms.
    pub engine: &'a AnyEngine,
}

/// A way to make a network forget rows.
pub trait Method: Send + Sync {
    /// Its name in tables.
    fn name(&self) -> &'static str;

    /// Its settings, all of them, as a configuration file has them.
    fn settings(&self) -> toml::Table;

    /// Refuses settings that cannot be run, naming the field.
    fn check(&self) -> Result<()>;

    /// The network that has forgotten. `watch` sees each epoch and may end the run.
    fn unlearn(&self, task: &Task<'_>, watch: &mut dyn Watch) -> Result<Network>;
}

/// A method by name.
#[derive(Debug)]
pub struct Entry {
    /// As in tables.
    pub name: &'static str,
    /// As in configuration files and options.
    pub key: &'static str,
    /// One line on what it does.
    pub about: &'static str,
    make: fn(toml::Table) -> Result<Box<dyn Method>, toml::de::Error>,
}

impl Entry {
    /// The method with these settings; what is not named has its default, within its recipe too.
    pub fn with(&self, settings: toml::Table) -> Result<Box<dyn Method>> {
        let fault = |problem: String| Error::Selection {
            what: format!("methods.{}", self.key),
            problem,
            expected: format!("settings of {}: {}", self.name, self.known()),
        };
        let mut all = settings;
        if let (Some(toml::Value::Table(given)), Some(toml::Value::Table(recipe))) =
            (all.get_mut("recipe"), self.defaults().remove("recipe"))
        {
            for (key, value) in recipe {
                given.entry(key).or_insert(value);
            }
        }
        let said = |error: toml::de::Error| error.message().lines().collect::<Vec<_>>().join(" ");
        let method = (self.make)(all).map_err(|error| fault(said(error)))?;
        method.check().map_err(|error| match error {
            Error::Parameter {
                name,
                value,
                expected,
            } => Error::Selection {
                what: format!("methods.{}", self.key),
                problem: format!("{name} = {value}"),
                expected,
            },
            other => other,
        })?;
        Ok(method)
    }

    fn defaults(&self) -> toml::Table {
        (self.make)(toml::Table::new()).map_or_else(|_| toml::Table::new(), |m| m.settings())
    }

    /// The names of its settings.
    fn known(&self) -> String {
        let mut names = Vec::new();
        for (key, value) in self.defaults() {
            match value {
                toml::Value::Table(inner) if key == "recipe" => {
                    names.extend(inner.keys().map(|name| format!("{key}.{name}")));
                }
                _ => names.push(key),
            }
        }
        if names.is_empty() {
            "it has none".to_owned()
        } else {
            names.join(", ")
        }
    }
}

/// Refuses a number outside `low..=high`.
fn within(name: &'static str, value: f64, low: f64, high: f64) -> Result<()> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(Error::Parameter {
        name,
        value: value.to_string(),
        expected: if high.is_finite() {
            format!("a number from {low} to {high}")
        } else {
            format!("a number from {low}")
        },
    })
}

fn make<M: Method + DeserializeOwned + 'static>(
    settings: toml::Table,
) -> Result<Box<dyn Method>, toml::de::Error> {
    Ok(Box::new(M::deserialize(settings)?))
}

macro_rules! entry {
    ($kind:ty, $key:literal, $name:literal, $about:literal) => {
        Entry {
            name: $name,
            key: $key,
            about: $about,
            make: make::<$kind>,
        }
    };
}

/// All methods, in the order of tables.
pub const METHODS: [Entry; 11] = [
    entry!(
        Retrain,
        "retrain",
        "Retrain",
        "trains anew without the forgotten rows, from the same initial weights"
    ),
    entry!(
        FineTune,
        "fine-tune",
        "Fine-tune",
        "goes on training on the retained rows"
    ),
    entry!(
        NegGrad,
        "neg-grad",
        "NegGrad+",
        "descends on the retained rows and ascends on the forgotten ones"
    ),
    entry!(
        Ascent,
        "ascent",
        "Gradient ascent",
        "ascends on the forgotten rows"
    ),
    entry!(
        Scrub,
        "scrub",
        "SCRUB",
        "away from the original's answers on forgotten rows, towards them elsewhere"
    ),
    entry!(
        Amnesiac,
        "amnesiac",
        "Amnesiac",
        "trains the forgotten rows towards random other classes"
    ),
    entry!(
        BadTeacher,
        "bad-teacher",
        "BadTeacher",
        "trains the forgotten rows towards an untrained network's answers"
    ),
    entry!(
        Salun,
        "salun",
        "SalUn",
        "random classes for forgotten rows; only their salient weights move"
    ),
    entry!(
        Ssd,
        "ssd",
        "SSD",
        "dampens weights that matter more to the forgotten rows; no training"
    ),
    entry!(
        Muso,
        "muso",
        "MUSO",
        "the paper's optimal labels, recomputed as the network changes"
    ),
    entry!(
        MusoS,
        "muso-s",
        "MUSO-S",
        "target-form labels from an early snapshot's features"
    ),
];

/// The entry with this key or name.
pub fn find(name: &str) -> Result<&'static Entry> {
    let wanted = name.to_ascii_lowercase();
    METHODS
        .iter()
        .find(|entry| entry.key == wanted || entry.name.to_ascii_lowercase() == wanted)
        .ok_or_else(|| Error::Parameter {
            name: "method",
            value: name.into(),
            expected: METHODS.map(|entry| entry.key).join(", "),
        })
}

/// A method's settings as a table.
fn settings_of<M: Serialize>(method: &M) -> toml::Table {
    toml::Table::try_from(method).unwrap_or_default()
}

/// Trains `network` on `rows` towards `targets`.
fn descend(
    task: &Task<'_>,
    network: Network,
    recipe: Recipe,
    rows: &[usize],
    targets: &RowTargets,
    watch: &mut dyn Watch,
) -> Result<Network> {
    let mut session = Session::new(network, recipe, stream(task.seed, 0x5E55));
    session.run(task.feed, rows, &mut |step| targets.loss(step), watch)?;
    Ok(session.network)
}

impl Task<'_> {
    /// The labels of the data.
    fn targets(&self) -> RowTargets {
        RowTargets::new(self.feed.set.labels(), self.classes)
    }

    /// Retained and forgotten rows together, ascending.
    fn all_rows(&self) -> Vec<usize> {
        let mut rows = [self.retain, self.forget].concat();
        rows.sort_unstable();
        rows
    }
}

/// A network's last layer as the engine has it: (D+1)×C, the bias in the last row.
pub fn head_matrix(network: &Network) -> Matrix {
    let head = network.head();
    let [width, classes] = head.weight.dims();
    let mut values: Vec<f64> = host(head.weight.val()).into_iter().map(f64::from).collect();
    match &head.bias {
        Some(bias) => values.extend(host(bias.val()).into_iter().map(f64::from)),
        None => values.extend(std::iter::repeat_n(0.0, classes)),
    }
    Matrix::from_vec(width + 1, classes, values)
}

/// A short run at a constant rate, as unlearning methods do them.
fn short(rule: Rule, epochs: usize, learning_rate: f64, batch: usize) -> Recipe {
    Recipe {
        epochs,
        batch,
        rule,
        learning_rate,
        schedule: Schedule::Constant,
        ..Recipe::default()
    }
}
