//! One model at a time: train it, make it forget, say what it is worth.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use muso_models::{Architecture, Network, NetworkConfig};
use serde::Serialize;

use super::Workplace;
use super::config::Config;
use super::experiment::{Bench, Case};
use super::folder::{Folder, MAKE, load_into, make_of, make_text};
use crate::data::checkpoint::write_state;
use crate::data::{Forget, OutputFile, commit_all};
use crate::error::{Error, Result};
use crate::evaluate::{Mia, Outputs, Scores, avg_gap};
use crate::methods::networks::{Method, Retrain, Snapshot, find};
use crate::outcome::RunReport;
use crate::progress::Progress;
use crate::scheduler::Summary;
use crate::train::InPhase;

/// How a training run ended.
#[derive(Clone, Debug, Serialize)]
pub struct TrainReport {
    kind: &'static str,
    /// Percent of the test images that are classified rightly.
    pub test_accuracy: f64,
    /// How many there are.
    pub test_images: usize,
    /// The trained network.
    pub model: PathBuf,
}

impl TrainReport {
    /// For a terminal.
    pub fn text(&self) -> String {
        format!(
            "test accuracy {:.2} % on {} images\n{}\n",
            self.test_accuracy,
            self.test_images,
            self.model.display()
        )
    }

    /// For programs.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

/// Trains into a folder and measures the outcome. A resumed run that is trained already is only measured.
///
/// # Errors
/// [`Error::Paused`] when asked to stop: everything up to then is in the folder.
pub fn train(
    folder: &Folder,
    config: &Config,
    resumed: bool,
    place: &Workplace,
    progress: &mut dyn Progress,
) -> Result<TrainReport> {
    let data = config.open()?;
    let network = config.network(&data);
    let bench = place.bench(data, network)?;
    if !resumed {
        folder.create(config)?;
    }
    let model = if resumed && folder.is_finished() {
        folder.finished_model(&bench)?
    } else {
        let trained = folder.train(config, &bench, progress);
        trained.inspect_err(|error| {
            if !resumed && !matches!(error, Error::Paused { .. }) {
                folder.discard_unstarted();
            }
        })?
    };
    let rows: Vec<usize> = (0..bench.test.data.set.len()).collect();
    let test_accuracy = bench
        .accuracy(&bench.test, &model, &rows, progress)
        .map_err(|error| match error {
            Error::Interrupted => Error::Paused {
                folder: folder.path().to_owned(),
            },
            other => other,
        })?;
    Ok(TrainReport {
        kind: "train",
        test_accuracy,
        test_images: rows.len(),
        model: folder.path().join("model.safetensors"),
    })
}

/// What `muso unlearn` does.
#[derive(Clone, Debug)]
pub struct Unlearn {
    /// Data, training recipe and what to forget (its first entry).
    pub config: Config,
    /// A training run of ours…
    pub run: Option<PathBuf>,
    /// … or a checkpoint from elsewhere.
    pub model: Option<PathBuf>,
    /// What the checkpoint is, where it cannot be seen.
    pub architecture: Option<Architecture>,
    /// Key or name of the method.
    pub method: String,
    /// `key=value` each.
    pub settings: Vec<String>,
    /// Whether to retrain as well.
    pub retrain: bool,
}

/// A model and what it is worth.
#[derive(Clone, Debug, Serialize)]
pub struct Scored {
    /// In tables.
    pub name: String,
    /// RA, TA, FA and MIA, percent.
    pub ra: f64,
    /// See `ra`.
    pub ta: f64,
    /// See `ra`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fa: Option<f64>,
    /// See `ra`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mia: Option<f64>,
    /// Distance to the reference model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avg_gap: Option<f64>,
    /// Percent of the forgotten rows on which it says the same as the reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agreement: Option<f64>,
    /// What it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// What one of the commands found.
#[derive(Debug, Serialize)]
pub struct Report {
    kind: &'static str,
    /// The models, one a row.
    pub models: Vec<Scored>,
    /// Over which rows each number is.
    pub over: BTreeMap<&'static str, String>,
    /// The settings of the method.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mia: Option<&'static str>,
    #[serde(skip)]
    attack: Option<Mia>,
    #[serde(skip)]
    outcome: Option<(Network, NetworkConfig)>,
    #[serde(skip)]
    config: Config,
}

/// The lanes of a run in the order of its flow, for tables and pictures.
pub const LANES: [&str; 7] = [
    "decode", "copy", "features", "gram", "solve", "labels", "train",
];

/// What a page says beside the outcome.
#[derive(Clone, Debug, Default)]
pub struct PageNotes {
    /// The command that gave the outcome.
    pub command: String,
    /// What it ran on.
    pub machine: String,
    /// How it used its lanes.
    pub lanes: Summary,
}

impl Unlearn {
    /// Does it.
    pub fn run(&self, place: &Workplace, progress: &mut dyn Progress) -> Result<Report> {
        let method = self.method()?;
        let data = self.config.open()?;
        let forget = self.config.forget.first().ok_or(Error::Missing {
            name: "forget",
            expected: "what to forget".into(),
        })?;
        let seed = self.config.seeds[0];
        let case = Case::new(forget, &data, seed)?;
        let start = Start::find(self, data, place)?;
        let bench = &start.bench;
        let networks = [&start.original, &start.initial];
        let mut task = bench.task(&case.split, networks, &self.config.train, &place.engine);
        task.snapshots = &start.snapshots;
        task.seed = seed;
        let clock = Instant::now();
        let unlearned = method.unlearn(&task, &mut InPhase("unlearning", progress))?;
        let seconds = clock.elapsed().as_secs_f64();
        let mut models = vec![
            (BEFORE.to_owned(), start.original.clone(), None),
            (method.name().to_owned(), unlearned.clone(), Some(seconds)),
        ];
        if self.retrain {
            let clock = Instant::now();
            let retrained = Retrain {}.unlearn(&task, &mut InPhase("retraining", progress))?;
            let seconds = clock.elapsed().as_secs_f64();
            models.insert(0, ("Retrain".to_owned(), retrained, Some(seconds)));
        }
        let models = score(
            bench,
            Some(&case),
            self.config.mia,
            models,
            self.retrain,
            progress,
        )?;
        Ok(Report {
            kind: "unlearn",
            models,
            over: over(bench, Some(&case)),
            settings: super::compare::flat(&method.settings()),
            mia: Some(self.config.mia.name()),
            attack: Some(self.config.mia),
            outcome: Some((unlearned, bench.network.clone())),
            config: self.config.clone(),
        })
    }

    fn method(&self) -> Result<Box<dyn Method>> {
        let entry = find(&self.method)?;
        let mut table = self
            .config
            .methods
            .get(entry.key)
            .cloned()
            .unwrap_or_default();
        for setting in &self.settings {
            set(&mut table, setting)?;
        }
        entry.with(table)
    }
}

/// Puts `a.b=value` into a table that may lack `a`.
fn set(table: &mut toml::Table, setting: &str) -> Result<()> {
    let fault = |problem: &str| Error::Parameter {
        name: "`.settings`",
        value: setting.into(),
        expected: problem.into(),
    };
    let (path, value) = setting.split_once('=').ok_or_else(|| fault("KEY=VALUE"))?;
    let parsed: toml::Table = toml::from_str(&format!("v = {value}"))
        .or_else(|_| toml::from_str(&format!("v = {value:?}")))
        .map_err(|_| fault("a number, a word or a TOML value"))?;
    let mut names: Vec<&str> = path.trim().split('.').collect();
    let last = names.pop().ok_or_else(|| fault("KEY=VALUE"))?;
    let mut place = table;
    for name in names {
        place = place
            .entry(name)
            .or_insert_with(|| toml::Value::Table(toml::Table::new()))
            .as_table_mut()
            .ok_or_else(|| fault("the path of a setting"))?;
    }
    if let Some(value) = parsed.get("v") {
        place.insert(last.to_owned(), value.clone());
    }
    Ok(())
}

/// Where unlearning starts from.
struct Start {
    bench: Bench,
    original: Network,
    initial: Network,
    snapshots: Vec<Snapshot>,
}

impl Start {
    fn find(
        request: &Unlearn,
        data: crate::data::images::Dataset,
        place: &Workplace,
    ) -> Result<Self> {
        if let Some(run) = &request.run {
            let network = request.config.network(&data);
            let bench = place.bench(data, network)?;
            let found = Folder::new(run).open(&bench)?;
            return Ok(Self {
                bench,
                original: found.model,
                initial: found.initial,
                snapshots: found.snapshots,
            });
        }
        let path = request.model.as_deref().ok_or(Error::Missing {
            name: "`.run` or `.model`",
            expected: "the model that is to forget".into(),
        })?;
        let network = make(path, &request.config, request.architecture, &data)?;
        let bench = place.bench(data, network)?;
        let initial = bench.initial(request.config.seeds[0])?;
        let original = load_into(initial.clone(), path)?;
        Ok(Self {
            bench,
            original,
            initial,
            snapshots: Vec::new(),
        })
    }
}

/// The make of a checkpoint: as asked for, or as it says or shows, for the images at hand.
fn make(
    path: &std::path::Path,
    config: &Config,
    asked: Option<Architecture>,
    data: &crate::data::images::Dataset,
) -> Result<NetworkConfig> {
    if asked.is_some() {
        return Ok(config.network(data));
    }
    let found = make_of(path)?;
    let classes = data.train.classes().len();
    if found.classes != classes {
        return Err(Error::format(
            path,
            format!(
                "the network has {} classes, the data set has {classes}",
                found.classes
            ),
            "a network and a data set that belong together",
        ));
    }
    if let Some(width) = config.network.width
        && found.width.is_some_and(|own| own != width)
    {
        return Err(Error::format(
            path,
            format!("a network of width {}", found.width.unwrap_or_default()),
            format!("one of width {width}, or no `.width`"),
        ));
    }
    Ok(NetworkConfig {
        image: data.train.shape(),
        ..found
    })
}

/// What `muso evaluate` does.
#[derive(Clone, Debug)]
pub struct Evaluate {
    /// Data.
    pub config: Config,
    /// The checkpoint.
    pub model: PathBuf,
    /// Another one, to compare with.
    pub reference: Option<PathBuf>,
    /// What the checkpoint is, where it cannot be seen.
    pub architecture: Option<Architecture>,
    /// What was forgotten, if anything.
    pub forget: Option<Forget>,
}

impl Evaluate {
    /// Does it.
    pub fn run(&self, place: &Workplace, progress: &mut dyn Progress) -> Result<Report> {
        if self.reference.is_some() && self.forget.is_none() {
            return Err(Error::Missing {
                name: "`.forget`",
                expected: "what was forgotten: the distance to `.reference` is measured there"
                    .into(),
            });
        }
        let data = self.config.open()?;
        let seed = self.config.seeds[0];
        let case = self
            .forget
            .as_ref()
            .map(|forget| Case::new(forget, &data, seed))
            .transpose()?;
        let network = make(&self.model, &self.config, self.architecture, &data)?;
        let bench = place.bench(data, network)?;
        let blank = bench.initial(0)?;
        let name = |path: &PathBuf| {
            path.file_name()
                .map_or_else(String::new, |n| n.to_string_lossy().into_owned())
        };
        let mut models = Vec::new();
        if let Some(path) = &self.reference {
            models.push((name(path), load_into(blank.clone(), path)?, None));
        }
        models.push((name(&self.model), load_into(blank, &self.model)?, None));
        let compared = self.reference.is_some();
        let models = score(
            &bench,
            case.as_ref(),
            self.config.mia,
            models,
            compared,
            progress,
        )?;
        Ok(Report {
            kind: "evaluate",
            models,
            over: over(&bench, case.as_ref()),
            settings: BTreeMap::new(),
            mia: case.as_ref().map(|_| self.config.mia.name()),
            attack: case.as_ref().map(|_| self.config.mia),
            outcome: None,
            config: self.config.clone(),
        })
    }
}

fn over(bench: &Bench, case: Option<&Case>) -> BTreeMap<&'static str, String> {
    match case {
        Some(case) => BTreeMap::from([
            ("ra", case.judged.ra.phrase()),
            ("ta", case.judged.ta.phrase()),
            ("fa", case.judged.fa.phrase()),
            ("mia", case.judged.forgotten.phrase()),
        ]),
        None => BTreeMap::from([
            (
                "ra",
                format!("over all {} training rows", bench.train.data.set.len()),
            ),
            (
                "ta",
                format!("over all {} test rows", bench.test.data.set.len()),
            ),
        ]),
    }
}

/// Measures models; with `compared`, the first is the reference of the others.
fn score(
    bench: &Bench,
    case: Option<&Case>,
    mia: Mia,
    models: Vec<(String, Network, Option<f64>)>,
    compared: bool,
    progress: &mut dyn Progress,
) -> Result<Vec<Scored>> {
    let mut truth: Option<(Scores, Outputs)> = None;
    let mut out = Vec::new();
    for (name, network, seconds) in models {
        let mut scored = Scored {
            name,
            ra: f64::NAN,
            ta: f64::NAN,
            fa: None,
            mia: None,
            avg_gap: None,
            agreement: None,
            seconds,
        };
        match case {
            Some(case) => {
                let measured = bench.measure(&network, &case.judged, mia, progress)?;
                let scores = measured.scores;
                (scored.ra, scored.ta) = (scores.ra, scores.ta);
                (scored.fa, scored.mia) = (Some(scores.fa), Some(scores.mia));
                match &truth {
                    Some((best, outputs)) => {
                        scored.avg_gap = Some(avg_gap(&scores, best));
                        scored.agreement = Some(measured.forgotten.agreement(outputs));
                    }
                    None if compared => truth = Some((scores, measured.forgotten)),
                    None => {}
                }
            }
            None => {
                let mut accuracy = |feed: &crate::features::Feed| {
                    let rows: Vec<usize> = (0..feed.data.set.len()).collect();
                    bench.accuracy(feed, &network, &rows, progress)
                };
                scored.ra = accuracy(&bench.train)?;
                scored.ta = accuracy(&bench.test)?;
            }
        }
        out.push(scored);
    }
    Ok(out)
}

impl Report {
    /// Writes the network, the numbers and a page that was made of them.
    pub fn write(
        &self,
        model: Option<OutputFile>,
        json: Option<OutputFile>,
        page: Option<(OutputFile, String)>,
    ) -> Result<()> {
        let mut files = Vec::new();
        if let Some((mut file, text)) = page {
            file.put(text.as_bytes())?;
            files.push(file);
        }
        if let (Some(mut file), Some((network, make))) = (model, &self.outcome) {
            let texts = BTreeMap::from([(MAKE.to_owned(), make_text(make))]);
            write_state(&mut file, &network.state(), &texts)?;
            files.push(file);
        }
        if let Some(mut file) = json {
            let text = serde_json::to_string_pretty(self).unwrap_or_default();
            file.put(text.as_bytes())?;
            file.put(b"\n")?;
            files.push(file);
        }
        commit_all(files)
    }

    /// The metrics that were measured.
    fn columns(&self) -> Vec<&'static str> {
        let mut columns = vec!["RA", "TA"];
        if self.models.iter().any(|m| m.fa.is_some()) {
            columns.extend(["FA", "MIA"]);
        }
        if self.is_compared() {
            columns.extend(["AvgGap", "agreement"]);
        }
        if self.models.iter().any(|m| m.seconds.is_some()) {
            columns.push("seconds");
        }
        columns
    }

    fn is_compared(&self) -> bool {
        self.models.iter().any(|m| m.avg_gap.is_some())
    }

    /// What each metric is, and over which rows.
    fn meanings(&self) -> Vec<(String, String)> {
        let metrics = [
            ("ra", "accuracy, percent"),
            ("ta", "accuracy, percent"),
            ("fa", "accuracy, percent"),
            ("mia", self.attack.map_or("", Mia::meaning)),
        ];
        let measured = metrics.into_iter().filter_map(|(metric, meaning)| {
            let rows = self.over.get(metric)?;
            Some((metric.to_uppercase(), format!("{meaning}, {rows}")))
        });
        let mut meanings: Vec<(String, String)> = measured.collect();
        if self.is_compared() {
            let compared = [
                (
                    "AvgGap",
                    "mean distance to the first model over the four, points",
                ),
                (
                    "agreement",
                    "forgotten rows on which it says the same as the first model, percent",
                ),
            ];
            meanings.extend(compared.map(|(name, text)| (name.to_owned(), text.to_owned())));
        }
        meanings
    }

    /// Returns the numbers and the lanes for people.
    pub fn summary(&self, notes: PageNotes) -> RunReport {
        let columns = self.columns();
        let cells = |model: &Scored| columns.iter().map(|column| model.cell(column)).collect();
        let name = self.models.last().map_or("", |model| &model.name);
        RunReport {
            title: format!("{}: {name} on {}", self.kind, self.config.data.kind),
            headline: self.headline(),
            figures: self.figures(&notes.lanes),
            columns: columns.iter().map(ToString::to_string).collect(),
            models: self
                .models
                .iter()
                .map(|model| (model.name.clone(), cells(model)))
                .collect(),
            meanings: self.meanings(),
            settings: self.settings.clone().into_iter().collect(),
            lanes: notes.lanes,
            command: notes.command,
            config: self.config.to_toml(),
            machine: notes.machine,
            version: crate::VERSION.to_owned(),
        }
    }

    /// The model that the run is about, and the one that it was made of where there is one.
    fn outcome(&self) -> Option<(&Scored, Option<&Scored>)> {
        let before = self.models.iter().find(|model| model.name == BEFORE);
        Some((self.models.last()?, before))
    }

    fn headline(&self) -> String {
        let Some((model, before)) = self.outcome() else {
            return "nothing was measured".to_owned();
        };
        let name = &model.name;
        match (model.avg_gap, before, model.fa) {
            (Some(gap), _, _) => {
                let reference = self.models.first().map_or("", |first| &first.name);
                format!("{name} ends {gap:.2} points from {reference}")
            }
            (None, Some(before), Some(fa)) => format!(
                "{name} takes the accuracy on the forgotten rows from {} to {fa:.2} %",
                before.cell("FA")
            ),
            _ => format!("{name} is right on {} % of the test rows", model.cell("TA")),
        }
    }

    fn figures(&self, lanes: &Summary) -> Vec<[String; 3]> {
        let Some((model, before)) = self.outcome() else {
            return Vec::new();
        };
        let metrics = [
            ("RA", "accuracy on retained rows"),
            ("TA", "accuracy on test rows"),
            ("FA", "accuracy on forgotten rows"),
        ];
        let columns = self.columns();
        let shown = metrics
            .iter()
            .filter(|(metric, _)| columns.contains(metric));
        let mut figures: Vec<[String; 3]> = shown
            .map(|(metric, name)| {
                let held_against = before.map_or(String::new(), |before| {
                    format!("{} % before", before.cell(metric))
                });
                let value = format!("{} %", model.cell(metric));
                [format!("{metric}, {name}"), value, held_against]
            })
            .collect();
        figures.extend(bound_figure(lanes));
        figures
    }
}

/// The lane that bounds a run, among the numbers to see first.
fn bound_figure(lanes: &Summary) -> Option<[String; 3]> {
    let bound = lanes.bound()?;
    let share = lanes.share(bound);
    Some([
        "busiest lane".to_owned(),
        bound.name.clone(),
        format!("{share:.0} % of {:.2} s", lanes.seconds),
    ])
}

impl Scored {
    /// The value of a column of the table.
    fn cell(&self, column: &str) -> String {
        let value = match column {
            "RA" => Some(self.ra),
            "TA" => Some(self.ta),
            "FA" => self.fa,
            "MIA" => self.mia,
            "AvgGap" => self.avg_gap,
            "agreement" => self.agreement,
            _ => self.seconds,
        };
        value.map_or("–".to_owned(), |v| format!("{v:.2}"))
    }
}

impl TrainReport {
    /// Returns the outcome and the lanes for people.
    pub fn summary(&self, config: &Config, notes: PageNotes) -> RunReport {
        let accuracy = format!("{:.2}", self.test_accuracy);
        let figures = [[
            "TA, accuracy on test rows".to_owned(),
            format!("{accuracy} %"),
            format!("{} images", self.test_images),
        ]];
        RunReport {
            title: format!(
                "train: {} on {}",
                config.network.architecture, config.data.kind
            ),
            headline: format!("The trained network is right on {accuracy} % of the test rows"),
            figures: figures
                .into_iter()
                .chain(bound_figure(&notes.lanes))
                .collect(),
            columns: vec!["TA".to_owned()],
            models: vec![("trained".to_owned(), vec![accuracy])],
            meanings: vec![(
                "TA".to_owned(),
                format!("accuracy, percent, over all {} test rows", self.test_images),
            )],
            settings: Vec::new(),
            lanes: notes.lanes,
            command: notes.command,
            config: config.to_toml(),
            machine: notes.machine,
            version: crate::VERSION.to_owned(),
        }
    }
}

/// The name of the model that unlearning starts from.
const BEFORE: &str = "before";
