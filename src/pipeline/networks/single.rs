//! One model at a time: train it, make it forget, say what it is worth.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use muso_models::{Architecture, Network, NetworkConfig};
use serde::Serialize;

use super::Workplace;
use super::config::{Config, Forget};
use super::experiment::{Bench, Case};
use super::folder::{Folder, MAKE, load_into, make_of, make_text};
use crate::data::checkpoint::write_state;
use crate::data::{OutputFile, commit_all};
use crate::error::{Error, Result};
use crate::evaluate::{Mia, Outputs, Scores, avg_gap};
use crate::methods::networks::{Method, Retrain, Snapshot, Task, find};
use crate::progress::Progress;
use crate::train::Watch;

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

/// Trains into a folder.
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
    let model = folder
        .train(config, &bench, progress)
        .inspect_err(|error| {
            if !resumed && !matches!(error, Error::Paused { .. }) {
                folder.discard_unstarted();
            }
        })?;
    let rows: Vec<usize> = (0..bench.test.set.len()).collect();
    let test_accuracy = bench.accuracy(&bench.test, &model, &rows, progress)?;
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
        let case = forget.case(&data, seed)?;
        let start = Start::find(self, data, place)?;
        let bench = &start.bench;
        let task = Task {
            feed: &bench.train,
            classes: bench.network.classes,
            retain: &case.split.retain,
            forget: &case.split.forget,
            original: &start.original,
            initial: &start.initial,
            snapshots: &start.snapshots,
            network: &bench.network,
            recipe: &self.config.train,
            seed,
            engine: &place.engine,
        };
        let clock = Instant::now();
        let unlearned = method.unlearn(&task, &mut Phase("unlearning", progress))?;
        let seconds = clock.elapsed().as_secs_f64();
        let mut models = vec![
            ("before".to_owned(), start.original.clone(), None),
            (method.name().to_owned(), unlearned.clone(), Some(seconds)),
        ];
        if self.retrain {
            let clock = Instant::now();
            let retrained = Retrain {}.unlearn(&task, &mut Phase("retraining", progress))?;
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
        name: "--set",
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
            name: "--run or --model",
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
            format!("one of width {width}, or no --width"),
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
                name: "--forget-class, --forget-random or --forget",
                expected: "what was forgotten: the distance to --reference is measured there"
                    .into(),
            });
        }
        let data = self.config.open()?;
        let seed = self.config.seeds[0];
        let case = self
            .forget
            .as_ref()
            .map(|forget| forget.case(&data, seed))
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
        })
    }
}

struct Phase<'a>(&'static str, &'a mut dyn Progress);

impl Watch for Phase<'_> {
    fn rows(&mut self, done: u64, total: u64) -> bool {
        self.1.at(self.0, done, total)
    }

    fn other(&mut self, phase: &str, done: u64, total: u64) -> bool {
        self.1.at(phase, done, total)
    }
}

fn over(bench: &Bench, case: Option<&Case>) -> BTreeMap<&'static str, String> {
    match case {
        Some(case) => BTreeMap::from([
            ("ra", case.judged.ra.text.clone()),
            ("ta", case.judged.ta.text.clone()),
            ("fa", case.judged.fa.text.clone()),
            ("mia", case.judged.forgotten.text.clone()),
        ]),
        None => BTreeMap::from([
            (
                "ra",
                format!("over all {} training rows", bench.train.set.len()),
            ),
            ("ta", format!("over all {} test rows", bench.test.set.len())),
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
                    let rows: Vec<usize> = (0..feed.set.len()).collect();
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
    /// Writes the network and the numbers.
    pub fn write(&self, model: Option<OutputFile>, json: Option<OutputFile>) -> Result<()> {
        let mut files = Vec::new();
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

    /// The numbers for a terminal.
    pub fn text(&self) -> String {
        let number = |value: Option<f64>| value.map_or("–".to_owned(), |v| format!("{v:.2}"));
        let widest = self
            .models
            .iter()
            .map(|m| m.name.chars().count())
            .max()
            .unwrap_or(0);
        let compared = self.models.iter().any(|m| m.avg_gap.is_some());
        let timed = self.models.iter().any(|m| m.seconds.is_some());
        let judged = self.models.iter().any(|m| m.fa.is_some());
        let mut columns = vec!["RA", "TA"];
        if judged {
            columns.extend(["FA", "MIA"]);
        }
        if compared {
            columns.extend(["AvgGap", "agreement"]);
        }
        if timed {
            columns.push("seconds");
        }
        let mut text = format!("{:widest$}", "");
        for column in &columns {
            text.push_str(&format!("  {column:>9}"));
        }
        text.push('\n');
        for model in &self.models {
            text.push_str(&format!("{:widest$}", model.name));
            for column in &columns {
                let value = match *column {
                    "RA" => Some(model.ra),
                    "TA" => Some(model.ta),
                    "FA" => model.fa,
                    "MIA" => model.mia,
                    "AvgGap" => model.avg_gap,
                    "agreement" => model.agreement,
                    _ => model.seconds,
                };
                text.push_str(&format!("  {:>9}", number(value)));
            }
            text.push('\n');
        }
        text.push('\n');
        let meanings = [
            ("ra", "accuracy, percent"),
            ("ta", "accuracy, percent"),
            ("fa", "accuracy, percent"),
            ("mia", self.attack.map_or("", Mia::meaning)),
        ];
        for (metric, meaning) in meanings {
            if let Some(rows) = self.over.get(metric) {
                text.push_str(&format!("{:10} {meaning}, {rows}\n", metric.to_uppercase()));
            }
        }
        if compared {
            text.push_str("AvgGap     mean distance to the first model over the four, points\n");
            text.push_str(
                "agreement  forgotten rows on which it says the same as the first model, percent\n",
            );
        }
        text
    }
}
