//! `muso train`, `muso unlearn`, `muso evaluate` and `muso compare`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use muso::Error;
use muso::data::images::{Augment, Kind, Normalisation};
use muso::data::{Forget, OutputFile};
use muso::evaluate::Mia;
use muso::methods::networks::{METHODS, Preset};
use muso::models::Architecture;
use muso::pipeline::networks::config::{Config, EarlyStop};
use muso::pipeline::networks::folder::Folder;
use muso::pipeline::networks::tables::Reproduce;
use muso::pipeline::networks::{Evaluate, Train, Unlearn, Workplace, compare, demo, tuning};
use muso::report::{Render, Style};
use muso::train::{Rule, Schedule};

use super::run::RunArgs;
use super::{Common, Outputs, colour, device, print, progress::Bar};

/// Which images, and where they are.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Data")]
pub(super) struct DataArgs {
    /// A configuration file; the options below take precedence over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// fashion (embedded), mnist, cifar10, cifar100, cifar20, tiny-imagenet or folder
    #[arg(long, value_name = "KIND")]
    data: Option<Kind>,
    /// The folder that the data set is in
    #[arg(long, value_name = "DIR")]
    data_path: Option<PathBuf>,
    /// Scale the images of a plain folder to this side
    #[arg(long, value_name = "PIXELS")]
    image_size: Option<usize>,
    /// Scale pixels as another data set does: imagenet, or the name of one
    #[arg(long, value_name = "NAME")]
    normalisation: Option<String>,
    /// Seed of everything that is drawn
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
}

/// Which network.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Network")]
pub(super) struct NetArgs {
    /// small-cnn, resnet20, resnet18, resnet34 or vgg16-bn
    #[arg(long, value_name = "NAME")]
    arch: Option<Architecture>,
    /// Channels of its first stage, if not the usual number
    #[arg(long, value_name = "N")]
    width: Option<usize>,
}

/// How to train, or how a model from elsewhere was trained.
#[derive(Clone, Debug, Args)]
#[command(
    next_help_heading = "Training (in unlearn: how --model was trained, for retraining; a method's own are --set)"
)]
pub(super) struct RecipeArgs {
    /// Passes over the data
    #[arg(long, value_name = "N")]
    epochs: Option<usize>,
    /// Rows a step
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// How gradients become steps
    #[arg(long, value_enum)]
    optimizer: Option<RuleArg>,
    /// The highest learning rate
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    lr: Option<f64>,
    /// Momentum of sgd
    #[arg(long, value_name = "M", allow_negative_numbers = true)]
    momentum: Option<f64>,
    /// Weight decay
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    weight_decay: Option<f64>,
    /// Epochs over which the learning rate rises
    #[arg(long, value_name = "EPOCHS", allow_negative_numbers = true)]
    warmup: Option<f64>,
    /// What the learning rate does: steps is ×0.1 at 80 % and ×0.01 at 90 % of the epochs
    #[arg(long, value_enum)]
    schedule: Option<ScheduleArg>,
    /// Random crops and horizontal flips
    #[arg(long)]
    augment: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RuleArg {
    Sgd,
    Adam,
    Adamw,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ScheduleArg {
    Constant,
    Cosine,
    Steps,
}

/// What to forget.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "What to forget")]
pub(super) struct ForgetArgs {
    /// A class, by name or number; a fine class of cifar20 is a sub-class; repeat it to forget several at once
    #[arg(long, value_name = "CLASS", group = "what")]
    forget_class: Vec<String>,
    /// Only this share of the class
    #[arg(long, value_name = "SHARE", requires = "forget_class", conflicts_with_all = ["forget_random", "forget"])]
    part: Option<f64>,
    /// This share of all rows, drawn at random
    #[arg(
        long,
        value_name = "SHARE",
        group = "what",
        allow_negative_numbers = true
    )]
    forget_random: Option<f64>,
    /// The training rows that a text file lists by number, counted from 0; or class:K, class:K,L or random:SHARE
    #[arg(long, value_name = "WHAT", group = "what")]
    forget: Option<String>,
}

/// What `muso train` takes.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    muso train --out run                                     the embedded Fashion-MNIST, a small CNN\n  \
    muso train --data cifar10 --data-path cifar --arch resnet20 --optimizer sgd --lr 0.1 \\\n      \
    --weight-decay 5e-4 --batch 128 --epochs 100 --warmup 2 --schedule steps --augment --out run\n  \
    muso train --resume run                                  go on with a run that was stopped\n\n\
    The folder gets model.safetensors, the initial weights, early snapshots (for MUSO-S with `snapshot` above 0),\n\
    log.csv and config.toml, which has every setting. Ctrl-C saves and stops; a resumed run ends in the same bytes.")]
pub(super) struct TrainArgs {
    /// The folder to write the run to
    #[arg(
        long,
        value_name = "DIR",
        required_unless_present = "resume",
        conflicts_with = "resume"
    )]
    out: Option<PathBuf>,
    /// Go on with the run in this folder, with the settings that it began with
    #[arg(long, value_name = "DIR", conflicts_with_all = [
        "config", "data", "data_path", "image_size", "normalisation", "seed", "arch", "width", "epochs", "batch",
        "optimizer", "lr", "momentum", "weight_decay", "warmup", "schedule", "augment", "patience", "hold_out", "snapshots",
    ])]
    resume: Option<PathBuf>,
    /// Stop when the accuracy on held-out rows has not risen for so many epochs
    #[arg(long, value_name = "EPOCHS")]
    patience: Option<usize>,
    /// Share of the rows that is held out for --patience [default: 0.1]
    #[arg(
        long,
        value_name = "SHARE",
        requires = "patience",
        allow_negative_numbers = true
    )]
    hold_out: Option<f64>,
    /// Parts of the run after which a snapshot is kept [default: 0.05,0.1,0.2,0.4]
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    snapshots: Option<Vec<f64>>,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    net: NetArgs,
    #[command(flatten)]
    recipe: RecipeArgs,
    #[command(flatten)]
    lanes: RunArgs,
}

/// What `muso unlearn` takes.
#[derive(Clone, Debug, Args)]
#[command(after_help = unlearn_help())]
pub(super) struct UnlearnArgs {
    /// The folder of a run of muso train
    #[arg(long, value_name = "DIR", required_unless_present = "model", conflicts_with_all = [
        "model", "arch", "width", "config", "epochs", "batch", "optimizer", "lr", "momentum", "weight_decay", "warmup",
        "schedule", "augment",
    ])]
    run: Option<PathBuf>,
    /// A checkpoint from elsewhere, safetensors or PyTorch; its initial weights are then drawn anew
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// The method, by the names below
    #[arg(long, default_value = "muso-s", value_name = "NAME")]
    method: String,
    /// A setting of the method; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Where to write the network that has forgotten
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Also retrain without the rows and show how far the outcome is from that
    #[arg(long)]
    retrain: bool,
    /// Which membership attack: entropy (the paper's), confidence or loss
    #[arg(long, value_name = "NAME")]
    mia: Option<Mia>,
    #[command(flatten)]
    forget: ForgetArgs,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    net: NetArgs,
    #[command(flatten)]
    recipe: RecipeArgs,
    #[command(flatten)]
    lanes: RunArgs,
}

fn unlearn_help() -> String {
    let mut text = String::from(
        "Examples:\n  \
         muso unlearn --run run --forget-class sneaker --out forgot.safetensors\n  \
         muso unlearn --run run --forget-class sneaker --forget-class bag --out forgot.safetensors\n  \
         muso unlearn --run run --forget ids.txt --method amnesiac --set recipe.epochs=5 --out new.safetensors\n  \
         muso unlearn --model resnet20.th --data cifar10 --data-path cifar --normalisation imagenet \\\n      \
         --forget-random 0.01 --method muso --out new.safetensors\n\nMethods:\n",
    );
    for entry in &METHODS {
        text.push_str(&format!("  {:12} {}\n", entry.key, entry.about));
    }
    text.push_str("\nSettings of each, with their defaults, are in the config.toml of a run and of `muso compare`.");
    text
}

/// What `muso evaluate` takes.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    muso evaluate --model run/model.safetensors\n  \
    muso evaluate --model forgot.safetensors --forget-class sneaker --reference retrained.safetensors\n  \
    muso evaluate --model resnet20.th --data cifar10 --data-path cifar --normalisation imagenet")]
pub(super) struct EvaluateArgs {
    /// The checkpoint, safetensors or PyTorch
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// Take data and settings from the folder of a run of muso train
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    run: Option<PathBuf>,
    /// Another checkpoint of the same architecture, such as a retrained one, to measure the distance to
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    /// Which membership attack: entropy (the paper's), confidence or loss
    #[arg(long, value_name = "NAME")]
    mia: Option<Mia>,
    #[command(flatten)]
    forget: ForgetArgs,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    net: NetArgs,
    #[command(flatten)]
    lanes: RunArgs,
}

/// What `muso compare` takes.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    muso compare --forget-random 0.1 --seeds 3\n  \
    muso compare --config experiment.toml --report report.html\n  \
    muso compare --config grid.toml --tune 2                 every method's arms are its settings to choose from\n  \
    muso compare --config experiment.toml --ablate paper     MUSO around a preset, one setting at a time\n\n\
    Trains, retrains from the same initial weights, unlearns with every method (or those that the configuration names)\n\
    and shows how far each ends from retraining.")]
pub(super) struct CompareArgs {
    /// How many repetitions
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// Where to write the page with plots
    #[arg(long, default_value = "report.html", value_name = "FILE")]
    report: PathBuf,
    /// Only these methods, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    methods: Option<Vec<String>>,
    /// Choose each method's settings among its arms first, on so many seeds that are not reported; all methods must have
    /// the same number of arms
    #[arg(long, value_name = "SEEDS", conflicts_with = "ablate")]
    tune: Option<u64>,
    #[command(flatten)]
    ablation: AblationArgs,
    /// Keep finished jobs in this folder, and go on with those that are in it
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
    /// Which membership attack: entropy (the paper's), confidence or loss
    #[arg(long, value_name = "NAME")]
    mia: Option<Mia>,
    #[command(flatten)]
    forget: ForgetArgs,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    net: NetArgs,
    #[command(flatten)]
    recipe: RecipeArgs,
}

/// An ablation of MUSO in place of a comparison of methods.
#[derive(Clone, Debug, Args)]
pub(super) struct AblationArgs {
    /// Compare MUSO with variations of itself around a preset, one setting at a time: paper, released-2024-10 or
    /// released-2025-02
    #[arg(long, value_name = "PRESET", value_parser = preset)]
    pub(super) ablate: Option<Preset>,
    /// With --ablate: all combinations instead of one setting at a time, which are thousands
    #[arg(long, requires = "ablate")]
    pub(super) product: bool,
}

fn preset(name: &str) -> Result<Preset, String> {
    let known = Preset::ALL.map(Preset::key).join(", ");
    Preset::find(name).ok_or_else(|| format!("no such preset; there are {known}"))
}

impl DataArgs {
    fn base(&self) -> muso::Result<Config> {
        self.config
            .as_deref()
            .map_or_else(|| Ok(Config::default()), Config::read)
    }

    fn apply(&self, config: &mut Config) -> muso::Result<()> {
        if let Some(kind) = self.data {
            config.data.kind = kind;
        }
        if let Some(path) = &self.data_path {
            config.data.path = Some(path.clone());
        }
        if let Some(size) = self.image_size {
            config.data.image_size = Some(size);
        }
        if let Some(name) = &self.normalisation {
            config.data.normalisation = Some(Normalisation::named(name)?);
        }
        if let Some(seed) = self.seed {
            config.seeds = vec![seed];
        }
        Ok(())
    }
}

impl NetArgs {
    fn apply(&self, config: &mut Config) {
        if let Some(architecture) = self.arch {
            config.network.architecture = architecture;
        }
        if self.width.is_some() {
            config.network.width = self.width;
        }
    }
}

impl RecipeArgs {
    fn apply(&self, config: &mut Config) -> muso::Result<()> {
        let recipe = &mut config.train;
        let set = |to: &mut f64, from: Option<f64>| *to = from.unwrap_or(*to);
        recipe.epochs = self.epochs.unwrap_or(recipe.epochs);
        recipe.batch = self.batch.unwrap_or(recipe.batch);
        set(&mut recipe.learning_rate, self.lr);
        set(&mut recipe.momentum, self.momentum);
        set(&mut recipe.weight_decay, self.weight_decay);
        set(&mut recipe.warmup, self.warmup);
        if let Some(rule) = self.optimizer {
            recipe.rule = match rule {
                RuleArg::Sgd => Rule::Sgd,
                RuleArg::Adam => Rule::Adam,
                RuleArg::Adamw => Rule::AdamW,
            };
        }
        if let Some(schedule) = self.schedule {
            recipe.schedule = match schedule {
                ScheduleArg::Constant => Schedule::Constant,
                ScheduleArg::Cosine => Schedule::Cosine,
                ScheduleArg::Steps => Schedule::Steps {
                    at: vec![0.8, 0.9],
                    factor: vec![0.1, 0.01],
                },
            };
        }
        if self.augment {
            recipe.augment = Some(Augment::default());
        }
        recipe.check()
    }
}

impl ForgetArgs {
    fn chosen(&self) -> muso::Result<Option<Forget>> {
        Ok(match (&self.forget_class[..], self.part) {
            ([class], Some(part)) => Some(Forget::part_of_class(class, part)),
            ([class], None) => Some(Forget::class(class)),
            ([], _) => match self.forget_random {
                Some(share) => Some(Forget::random(share)),
                None => self.forget.as_deref().map(Forget::parse).transpose()?,
            },
            (classes, None) => Some(Forget::classes(classes)),
            (classes, Some(part)) => {
                return Err(Error::Parameter {
                    name: "--part",
                    value: part.to_string(),
                    expected: format!("one --forget-class beside it, not {}", classes.len()),
                });
            }
        })
    }
}

/// The file that lists the rows to forget, if one does.
fn listed(forget: Option<&Forget>) -> Option<&Path> {
    match forget {
        Some(Forget::File(path)) => Some(path),
        _ => None,
    }
}

pub(super) fn train(args: &TrainArgs, common: &Common) -> anyhow::Result<()> {
    let (folder, config) = match (&args.resume, &args.out) {
        (Some(path), _) => {
            let config = Config::of_run(path)?;
            (Folder::new(path), config)
        }
        (None, out) => {
            let mut config = args.data.base()?;
            args.data.apply(&mut config)?;
            args.net.apply(&mut config);
            args.recipe.apply(&mut config)?;
            if let Some(parts) = &args.snapshots {
                config.snapshots.clone_from(parts);
            }
            if let Some(patience) = args.patience {
                config.early_stop = Some(EarlyStop {
                    patience,
                    hold_out: args.hold_out.unwrap_or(0.1),
                });
            }
            config.check()?;
            let out = out.clone().ok_or(Error::Missing {
                name: "--out",
                expected: "the folder to write the run to".into(),
            })?;
            (Folder::new(out), config)
        }
    };
    let request = Train {
        folder,
        config,
        resumed: args.resume.is_some(),
    };
    let mut outputs = Outputs::beside(&[]);
    let json = outputs.open("--json", common.json.as_deref())?;
    let (mut report, page, notes) = args.lanes.run(common, &mut outputs, |place| {
        request.run(place, &mut Bar::new())
    })?;
    report.notes = notes;
    write(page, json, &report, &report.to_json())?;
    print(&report.text(Style { colour: colour() }))?;
    Ok(())
}

/// Writes the page and the JSON of a report where they were asked for.
fn write(
    page: Option<OutputFile>,
    json: Option<OutputFile>,
    report: &impl Render,
    numbers: &str,
) -> muso::Result<()> {
    let mut files = Vec::new();
    if let Some(mut file) = page {
        file.put(report.page().as_bytes())?;
        files.push(file);
    }
    if let Some(mut file) = json {
        file.put(numbers.as_bytes())?;
        files.push(file);
    }
    muso::data::commit_all(files)
}

pub(super) fn unlearn(args: &UnlearnArgs, common: &Common) -> anyhow::Result<()> {
    let mut config = match &args.run {
        Some(run) => Config::of_run(run)?,
        None => args.data.base()?,
    };
    args.data.apply(&mut config)?;
    args.recipe.apply(&mut config)?;
    args.net.apply(&mut config);
    config.mia = args.mia.unwrap_or(config.mia);
    let forget = args.forget.chosen()?;
    if let Some(forget) = &forget {
        config.forget = vec![forget.clone()];
    } else if args.data.config.is_none() {
        Err(Error::Missing {
            name: "--forget-class, --forget-random or --forget",
            expected: "what to forget".into(),
        })?;
    }
    let mut outputs = Outputs::beside(&[
        ("--model", args.model.as_deref()),
        ("--forget", listed(forget.as_ref())),
        ("--config", args.data.config.as_deref()),
    ]);
    keep_run(&mut outputs, args.run.as_deref());
    let out = outputs.open("--out", Some(&args.out))?;
    let json = outputs.open("--json", common.json.as_deref())?;
    let request = Unlearn {
        config,
        run: args.run.clone(),
        model: args.model.clone(),
        architecture: args.net.arch,
        method: args.method.clone(),
        settings: args.settings.clone(),
        retrain: args.retrain,
    };
    let (mut unlearned, page, notes) = args.lanes.run(common, &mut outputs, |place| {
        request.run(place, &mut Bar::new())
    })?;
    unlearned.report.notes = notes;
    let report = &unlearned.report;
    unlearned.write(out, json, page.map(|file| (file, report.page())))?;
    print(&report.text(Style { colour: colour() }))?;
    print(&format!("\n{}\n", args.out.display()))?;
    Ok(())
}

/// The files of a run are inputs, whichever of them are read.
fn keep_run(outputs: &mut Outputs, run: Option<&Path>) {
    let Some(Ok(files)) = run.map(std::fs::read_dir) else {
        return;
    };
    for file in files.flatten() {
        outputs.keep("a file of --run", Some(&file.path()));
    }
}

pub(super) fn evaluate(args: &EvaluateArgs, common: &Common) -> anyhow::Result<()> {
    let mut config = match &args.run {
        Some(run) => Config::of_run(run)?,
        None => args.data.base()?,
    };
    args.data.apply(&mut config)?;
    args.net.apply(&mut config);
    config.mia = args.mia.unwrap_or(config.mia);
    let forget = args.forget.chosen()?;
    let mut outputs = Outputs::beside(&[
        ("--model", Some(&args.model)),
        ("--reference", args.reference.as_deref()),
        ("--forget", listed(forget.as_ref())),
        ("--config", args.data.config.as_deref()),
    ]);
    keep_run(&mut outputs, args.run.as_deref());
    let json = outputs.open("--json", common.json.as_deref())?;
    let request = Evaluate {
        config,
        model: args.model.clone(),
        reference: args.reference.clone(),
        architecture: args.net.arch,
        forget,
    };
    let (mut report, page, notes) = args.lanes.run(common, &mut outputs, |place| {
        request.run(place, &mut Bar::new())
    })?;
    report.notes = notes;
    write(page, json, &report, &report.to_json())?;
    print(&report.text(Style { colour: colour() }))?;
    Ok(())
}

pub(super) fn compare(args: &CompareArgs, common: &Common) -> anyhow::Result<()> {
    let mut config = args.data.base()?;
    args.data.apply(&mut config)?;
    args.net.apply(&mut config);
    args.recipe.apply(&mut config)?;
    config.mia = args.mia.unwrap_or(config.mia);
    let forget = args.forget.chosen()?;
    if let Some(forget) = &forget {
        config.forget = vec![forget.clone()];
    }
    if let Some(count) = args.seeds {
        super::check_seeds(count)?;
        let first = config.seeds.first().copied().unwrap_or(0);
        config.seeds = (0..count).map(|k| first.wrapping_add(k)).collect();
    }
    if let Some(names) = &args.methods {
        let names: Vec<String> = names.iter().map(|name| name.trim().to_owned()).collect();
        config.choose(&names)?;
    }
    config.check()?;
    if let Some(preset) = args.ablation.ablate {
        config.ablate(preset, args.ablation.product)?;
    }
    if let Some(count) = args.tune {
        super::check_seeds(count)?;
    }
    let mut setting = compare::Setting {
        command: super::command_line(),
        ..compare::Setting::own()
    };
    let inputs = [
        ("--forget", listed(forget.as_ref())),
        ("--config", args.data.config.as_deref()),
    ];
    present(&args.report, &inputs, common, |place, bar| {
        if let Some(count) = args.tune {
            let first = 1 + config.seeds.iter().max().copied().unwrap_or(0);
            let seeds: Vec<u64> = (0..count).map(|k| first.wrapping_add(k)).collect();
            let (chosen, tuning) = tuning::tuned(&config, &seeds, place, bar)?;
            setting.notes.push(format!(
                "Settings were chosen on seeds {}, which are not reported.",
                seeds
                    .iter()
                    .map(u64::to_string)
                    .collect::<Vec<_>>()
                    .join(", ")
            ));
            (config, setting.tuning) = (chosen, tuning);
        }
        compare::run(&config, setting, place, args.resume.as_deref(), bar)
    })
}

/// Runs `muso demo --nn`.
pub(super) fn demo(
    seeds: &[u64],
    command: &str,
    page: &Path,
    common: &Common,
    ablation: &AblationArgs,
) -> anyhow::Result<()> {
    present(page, &[], common, |place, bar| match ablation.ablate {
        Some(preset) => demo::ablate(preset, ablation.product, seeds, command, place, bar),
        None => demo::run(seeds, command, place, bar),
    })
}

/// `muso demo --nn --tune`.
pub(super) fn tune(methods: &[String], seeds: &[u64], common: &Common) -> anyhow::Result<()> {
    let place = Workplace::for_jobs(device::engine(common)?, device::threads(common)?)?;
    let found = demo::tune(methods, seeds, &place, &mut Bar::new())?;
    print(&found)?;
    Ok(())
}

/// `muso reproduce table2` to `table4`.
pub(super) fn reproduce(
    request: &Reproduce,
    dry_run: Option<&str>,
    page: &Path,
    common: &Common,
) -> anyhow::Result<()> {
    if let Some(gpu) = dry_run {
        return Ok(print(&request.dry_run(gpu)?)?);
    }
    present(page, &[], common, |place, bar| request.run(place, bar))
}

/// Runs a comparison and writes its outputs.
fn present(
    page: &Path,
    inputs: &[(&str, Option<&Path>)],
    common: &Common,
    compare: impl FnOnce(&Workplace, &mut Bar) -> muso::Result<compare::Compared>,
) -> anyhow::Result<()> {
    let place = Workplace::for_jobs(device::engine(common)?, device::threads(common)?)?;
    let mut outputs = Outputs::beside(inputs);
    let mut report = outputs.open("--report", Some(page))?;
    let mut json = outputs.open("--json", common.json.as_deref())?;
    let outcome = compare(&place, &mut Bar::new())?;
    print(&outcome.report.text(Style { colour: colour() }))?;
    if let Some(file) = &mut report {
        file.put(outcome.report.page().as_bytes())?;
    }
    if let Some(file) = &mut json {
        file.put(outcome.to_json().as_bytes())?;
    }
    muso::data::commit_all(report.into_iter().chain(json).collect())?;
    print(&format!("\nPlots: {}\n", page.display()))?;
    Ok(())
}
