//! Unlearning methods for networks, behind one trait.
//!
//! A [`Task`] is what every method is given: the trained network, the one that training started from, snapshots of the
//! way, the rows to retain and to forget. A [`Method`] answers with a network. Networks and rows may be of any kind: a
//! method is written for every [`FeatureNet`] and all [`Batches`] that fit it.
//!
//! To add one, write a file with a struct that holds its settings (serde, with defaults), implement [`Settings`] and
//! [`Method`], and describe it in the table behind [`Entry::ALL`], which says of every method in a line what it does; the
//! struct says how.

mod amnesiac;
mod ascent;
mod bad_teacher;
mod fine_tune;
mod mix;
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
pub use mix::Mix;
pub use muso::{LabelKind, Muso, Preset, Projection, Reference, Relabel, RidgePath, Sampling};
pub use muso_s::MusoS;
pub use neg_grad::NegGrad;
pub use retrain::Retrain;
pub use salun::Salun;
pub use scrub::Scrub;
pub use ssd::Ssd;

use std::sync::Arc;

use muso_models::{FeatureNet, Network};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::AnyEngine;
use crate::error::{Error, Result};
use crate::features::{Batches, Feed, Images};
use crate::seeds::Purpose;
use crate::train::{Recipe, RowTargets, Rule, Schedule, Session, Watch};

/// A network as it was after some epochs of its training.
#[derive(Clone, Debug)]
pub struct Snapshot<N = Network> {
    /// Number of epochs that it was trained for.
    pub epoch: usize,
    /// The network after those epochs.
    pub network: N,
}

/// A function that makes an untrained network of the same architecture, with weights drawn from a seed.
pub type Untrained<'a, N> = dyn Fn(u64) -> Result<N> + Send + Sync + 'a;

/// An unlearning problem: the rows to forget, and all that a method may use for it.
///
/// [`Task::new`] takes what every task has; the other fields have defaults and can be set afterwards.
#[derive(Clone)]
#[non_exhaustive]
pub struct Task<'a, N: FeatureNet = Network, B: Batches<Input = N::Input> = Images> {
    /// Data of all training rows, with their labels.
    pub feed: &'a Feed<B>,
    /// Number of classes C.
    pub classes: usize,
    /// Training rows to retain.
    pub retain: &'a [usize],
    /// Training rows to forget.
    pub forget: &'a [usize],
    /// The trained network, which is to forget.
    pub original: &'a N,
    /// The network that training started from.
    pub initial: &'a N,
    /// Snapshots of the training between `initial` and `original`, by ascending epoch; may be empty.
    pub snapshots: &'a [Snapshot<N>],
    /// Maker of untrained networks; without it, the initial network stands in for one.
    pub untrained: Option<Arc<Untrained<'a, N>>>,
    /// Recipe that the original was trained by.
    pub recipe: &'a Recipe,
    /// Set where the forgotten rows are a class or a part of one, for methods whose published recipes differ there.
    pub of_class: bool,
    /// Seed of everything that the method draws.
    pub seed: u64,
    /// Engine that computes the closed forms.
    pub engine: &'a AnyEngine,
}

impl<'a, N: FeatureNet, B: Batches<Input = N::Input>> Task<'a, N, B> {
    /// Describes a task without snapshots, with seed 0 and as many classes as the head of the network has outputs.
    /// `original` was trained from `initial` by `recipe`.
    pub fn new(
        feed: &'a Feed<B>,
        [retain, forget]: [&'a [usize]; 2],
        [original, initial]: [&'a N; 2],
        recipe: &'a Recipe,
        engine: &'a AnyEngine,
    ) -> Self {
        Self {
            feed,
            classes: original.head().weight.dims()[1],
            retain,
            forget,
            original,
            initial,
            snapshots: &[],
            untrained: None,
            recipe,
            of_class: false,
            seed: 0,
            engine,
        }
    }
}

/// Name and hyperparameters of a method, apart from the kind of network that it works on.
pub trait Settings: Send + Sync {
    /// Returns the method's name in tables.
    fn name(&self) -> &'static str;

    /// Returns all settings of the method, defaults included, as a configuration file has them.
    fn settings(&self) -> toml::Table;

    /// Refuses settings that cannot be run, naming the field.
    fn check(&self) -> Result<()>;

    /// Returns the settings that a preset of the method stands for. Methods without presets know no name.
    fn preset(name: &str) -> Option<toml::Table>
    where
        Self: Sized,
    {
        let _ = name;
        None
    }
}

/// An unlearning method: makes a network forget rows.
pub trait Method<N: FeatureNet = Network, B: Batches<Input = N::Input> = Images>: Settings {
    /// Returns a network that has forgotten the rows of `task.forget`. `watch` sees each epoch and may end the run.
    fn unlearn(&self, task: &Task<'_, N, B>, watch: &mut dyn Watch<N>) -> Result<N>;
}

/// A registry entry: a method by name, for networks of one kind and their rows.
#[derive(Debug)]
pub struct Entry<N: FeatureNet = Network, B: Batches<Input = N::Input> = Images> {
    /// Name in tables, such as `MUSO-S`.
    pub name: &'static str,
    /// Name in configuration files and options, such as `muso-s`.
    pub key: &'static str,
    /// Summary of the method in one line.
    pub about: &'static str,
    make: Make<N, B>,
}

/// Writes down what each method is, once: command line, run files, tables, reports and `NAME` all have it from here.
macro_rules! methods {
    ($($kind:ident: $key:literal, $name:literal, $about:literal;)*) => {
        impl<N: FeatureNet, B: Batches<Input = N::Input>> Entry<N, B> {
            /// All methods, in the order of tables.
            pub const ALL: [Self; [$($key),*].len()] = [$(Entry {
                name: $name,
                key: $key,
                about: $about,
                make: make::<$kind, N, B>,
            }),*];
        }

        $(impl $kind {
            /// Name of the method in tables.
            pub const NAME: &'static str = $name;
        })*
    };
}

methods! {
    Retrain: "retrain", "Retrain",
        "trains anew without the forgotten rows, from the same initial weights";
    FineTune: "fine-tune", "Fine-tune",
        "goes on training on the retained rows";
    NegGrad: "neg-grad", "NegGrad+",
        "descends on the retained rows and ascends on the forgotten ones";
    Ascent: "ascent", "Gradient ascent",
        "ascends on the forgotten rows";
    Scrub: "scrub", "SCRUB",
        "away from the original's answers on forgotten rows, towards them elsewhere";
    Amnesiac: "amnesiac", "Amnesiac",
        "trains the forgotten rows towards random other classes";
    BadTeacher: "bad-teacher", "BadTeacher",
        "trains the forgotten rows towards an untrained network's answers";
    Mix: "mix", "Mix",
        "trains blends of forgotten and retained rows towards the retained rows' classes";
    Salun: "salun", "SalUn",
        "random classes for forgotten rows; only their salient weights move";
    Ssd: "ssd", "SSD",
        "dampens weights that matter more to the forgotten rows; no training";
    Muso: "muso", "MUSO",
        "the paper's optimal labels, recomputed as the network changes";
    MusoS: "muso-s", "MUSO-S",
        "what a closed-form fit of the retained rows says, on features that never saw the forgotten ones";
}

type Make<N, B> = fn(toml::Table) -> Result<Box<dyn Method<N, B>>, toml::de::Error>;

impl<N: FeatureNet, B: Batches<Input = N::Input>> Entry<N, B> {
    /// Finds the entry with this key or name.
    ///
    /// ```
    /// use muso::features::Images;
    /// use muso::methods::networks::Entry;
    /// use muso::models::Network;
    /// let entry = Entry::<Network, Images>::find("muso-s")?;
    /// assert_eq!(entry.with(toml::Table::new())?.name(), "MUSO-S");
    /// # Ok::<(), muso::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is none; the error names all that there are.
    pub fn find(name: &str) -> Result<Self> {
        let wanted = name.to_ascii_lowercase();
        let known = || Self::ALL.map(|entry| entry.key).join(", ");
        Self::ALL
            .into_iter()
            .find(|entry| entry.key == wanted || entry.name.to_ascii_lowercase() == wanted)
            .ok_or_else(|| Error::Parameter {
                name: "method",
                value: name.into(),
                expected: known(),
            })
    }

    /// Makes the method with these settings; what is not named is as in the preset that is named, or else has its default,
    /// within its recipes too.
    ///
    /// # Errors
    /// If a setting is unknown, of another type or out of range; the error names it.
    pub fn with(&self, settings: toml::Table) -> Result<Box<dyn Method<N, B>>> {
        let fault = |problem: String| Error::Selection {
            what: format!("methods.{}", self.key),
            problem,
            expected: format!("settings of {}: {}", self.name, self.known()),
        };
        let said = |error: toml::de::Error| error.message().lines().collect::<Vec<_>>().join(" ");
        let method = (self.make)(settings).map_err(|error| fault(said(error)))?;
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

    /// Returns the names of the method's settings, for messages.
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

fn make<M, N, B>(mut settings: toml::Table) -> Result<Box<dyn Method<N, B>>, toml::de::Error>
where
    M: Method<N, B> + DeserializeOwned + 'static,
    N: FeatureNet,
    B: Batches<Input = N::Input>,
{
    let named = settings.get("preset").and_then(toml::Value::as_str);
    let base = match named.and_then(M::preset) {
        Some(preset) => preset,
        None => M::deserialize(toml::Table::new())?.settings(),
    };
    fill(&mut settings, &base);
    Ok(Box::new(M::deserialize(settings)?))
}

/// Takes from `base` what `settings` do not name, within recipes too.
fn fill(settings: &mut toml::Table, base: &toml::Table) {
    for key in ["recipe", "class-recipe"] {
        let known = base.get(key).or_else(|| base.get("recipe"));
        if let (Some(toml::Value::Table(given)), Some(toml::Value::Table(recipe))) =
            (settings.get_mut(key), known)
        {
            for (key, value) in recipe {
                given.entry(key).or_insert_with(|| value.clone());
            }
        }
    }
    for (key, value) in base {
        settings.entry(key).or_insert_with(|| value.clone());
    }
}

/// All methods for the built-in networks, in the order of tables.
pub const METHODS: [Entry; Entry::<Network, Images>::ALL.len()] = Entry::ALL;

/// Finds the entry with this key or name, for the built-in networks.
///
/// # Errors
/// If there is none; the error names all that there are.
pub fn find(name: &str) -> Result<Entry> {
    Entry::find(name)
}

/// Returns a method's settings as a table.
fn settings_of<M: Serialize>(method: &M) -> toml::Table {
    toml::Table::try_from(method).unwrap_or_default()
}

/// Trains `network` on `rows` towards `targets`.
fn descend<N: FeatureNet, B: Batches<Input = N::Input>>(
    task: &Task<'_, N, B>,
    network: N,
    recipe: Recipe,
    rows: &[usize],
    targets: &RowTargets,
    watch: &mut dyn Watch<N>,
) -> Result<N> {
    let mut session = Session::new(network, recipe, Purpose::DescentOrder.seed(task.seed));
    session.run(task.feed, rows, &mut |step| targets.loss(step), watch)?;
    Ok(session.network)
}

impl<N: FeatureNet, B: Batches<Input = N::Input>> Task<'_, N, B> {
    /// Returns the labels of the data as training targets.
    fn targets(&self) -> RowTargets {
        RowTargets::new(self.feed.data.labels(), self.classes)
    }

    /// Returns retained and forgotten rows together, ascending.
    fn all_rows(&self) -> Vec<usize> {
        let mut rows = [self.retain, self.forget].concat();
        rows.sort_unstable();
        rows
    }
}

/// Returns the recipe of a short run at a constant learning rate, as unlearning methods do them.
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
