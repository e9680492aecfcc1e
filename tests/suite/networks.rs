//! Training and unlearning of networks: the mistakes that other implementations make, each as a test; the same bytes
//! from the same seed; and what a run that was stopped leaves behind.

use std::path::Path;
use std::sync::Arc;

use muso::data::images::{Augment, ClassNames, Dataset, ImageSet, Normalisation};
use muso::data::{Forget, Labelled, Split, TestRows};
use muso::engine::{AnyEngine, CpuEngine, Matrix, to_tensor};
use muso::evaluate::Outputs;
use muso::features::{Batches, Feed, Images};
use muso::labels::{TargetForm, TargetParams};
use muso::methods::networks::{
    Amnesiac, BadTeacher, Entry, METHODS, Method, Muso, MusoS, Retrain, Salun, Sampling, Scrub,
    Snapshot, Ssd, Task, find,
};
use muso::models::burn::module::{Module, Param};
use muso::models::burn::nn::{BatchNorm, BatchNormConfig, Linear};
use muso::models::burn::tensor::activation::relu;
use muso::models::burn::tensor::{Device, Tensor};
use muso::models::{Architecture, FeatureNet, Mode, Network, NetworkConfig, burn, params};
use muso::pipeline::networks::config::{Config, EarlyStop};
use muso::pipeline::networks::folder::Folder;
use muso::pipeline::networks::{Workbench, Workplace, checkpoint};
use muso::scheduler::Scheduler;
use muso::train::{Recipe, RowTargets, Rule, Schedule, Session, Watch};
use muso::{Error, Result};
use tempfile::TempDir;

use crate::support::{StopAt, files, gaussian};

const CLASSES: usize = 3;
const ROWS: usize = 60;
const SIDE: usize = 8;

/// Images of three classes: a bright band whose place tells the class, in noise.
fn images(rows: usize, seed: u64) -> ImageSet {
    let noise = gaussian(rows, SIDE * SIDE, seed);
    let mut pixels = Vec::new();
    let labels: Vec<i64> = (0..rows).map(|i| (i % CLASSES) as i64).collect();
    for (i, &label) in labels.iter().enumerate() {
        for p in 0..SIDE * SIDE {
            let in_band = (p / SIDE) / 2 == label as usize;
            let value = 90.0 + 60.0 * f64::from(u8::from(in_band)) + 40.0 * noise[(i, p)];
            pixels.push(value.clamp(0.0, 255.0) as u8);
        }
    }
    let names = ClassNames::new(["top", "middle", "bottom"]);
    ImageSet::new([1, SIDE, SIDE], pixels, labels, names).unwrap()
}

fn normalisation() -> Normalisation {
    Normalisation {
        mean: vec![0.4],
        std: vec![0.2],
    }
}

fn feed(set: ImageSet) -> Feed {
    let normalisation = normalisation();
    Feed::new(Images { set, normalisation }, &Device::flex())
}

fn small() -> NetworkConfig {
    NetworkConfig::new(Architecture::SmallCnn, CLASSES, [1, SIDE, SIDE]).with_width(4)
}

/// A network with normalisation layers.
fn normalised() -> NetworkConfig {
    NetworkConfig::new(Architecture::ResNet18, CLASSES, [1, SIDE, SIDE]).with_width(2)
}

fn recipe(epochs: usize) -> Recipe {
    Recipe {
        epochs,
        batch: 16,
        rule: Rule::Adam,
        learning_rate: 2e-3,
        schedule: Schedule::Cosine,
        ..Recipe::default()
    }
}

/// A trained network and what to forget of it.
struct World {
    feed: Feed,
    config: NetworkConfig,
    recipe: Recipe,
    initial: Network,
    original: Network,
    snapshots: Vec<Snapshot>,
    split: Split,
    engine: AnyEngine,
}

impl World {
    fn new(config: NetworkConfig, epochs: usize) -> Self {
        struct Keep(Vec<Snapshot>);
        impl Watch for Keep {
            fn epoch(&mut self, session: &Session) -> Result<()> {
                self.0.push(Snapshot {
                    epoch: session.epoch,
                    network: session.network.clone(),
                });
                Ok(())
            }
        }
        let feed = feed(images(ROWS, 1));
        let initial = config.init(3, &feed.device).unwrap();
        let targets = RowTargets::new(feed.data.set.labels(), CLASSES);
        let mut session = Session::new(initial.clone(), recipe(epochs), 5);
        let mut keep = Keep(Vec::new());
        let rows: Vec<usize> = (0..ROWS).collect();
        session
            .run(&feed, &rows, &mut |step| targets.loss(step), &mut keep)
            .unwrap();
        keep.0.pop();
        let forget = Forget::rows([0, 4, 8, 12, 16, 20, 30, 40, 50, 59]);
        let labels = feed.data.set.labels();
        let split = forget
            .split(&Labelled::new(labels, labels), TestRows::All, 0)
            .unwrap();
        Self {
            feed,
            config,
            recipe: recipe(epochs),
            initial,
            original: session.network,
            snapshots: keep.0,
            split,
            engine: CpuEngine::new(Some(1)).unwrap().into(),
        }
    }

    fn task(&self) -> Task<'_> {
        let rows = [&self.split.retain[..], &self.split.forget];
        let networks = [&self.original, &self.initial];
        let mut task = Task::new(&self.feed, rows, networks, &self.recipe, &self.engine);
        task.snapshots = &self.snapshots;
        task.untrained = Some(Arc::new(|seed| {
            Ok(self.config.init(seed, &self.feed.device)?)
        }));
        task.seed = 11;
        task
    }
}

fn bits(vectors: &[Tensor<1>]) -> Vec<Vec<u32>> {
    let one = |vector: &Tensor<1>| {
        let values = vector.to_data().try_into_vec::<f32>().unwrap();
        values.into_iter().map(f32::to_bits).collect()
    };
    vectors.iter().map(one).collect()
}

/// Every number of a network: weights and running statistics.
fn fingerprint<M: Module>(network: &M) -> Vec<Vec<u32>> {
    let mut all = bits(&params::weights(network));
    all.extend(bits(&params::buffers(network)));
    all
}

#[test]
fn every_method_repeats_to_the_bit_and_leaves_its_inputs_alone() {
    for config in [small(), normalised()] {
        let world = World::new(config, 2);
        let before = [&world.original, &world.initial].map(fingerprint);
        for entry in &METHODS {
            let method = entry.with(toml::Table::new()).unwrap();
            let first = method.unlearn(&world.task(), &mut ()).unwrap();
            let again = method.unlearn(&world.task(), &mut ()).unwrap();
            assert_eq!(fingerprint(&first), fingerprint(&again), "{}", entry.name);
            let finite = params::weights(&first).iter().all(|vector| {
                vector
                    .to_data()
                    .try_into_vec::<f32>()
                    .unwrap()
                    .iter()
                    .all(|x| x.is_finite())
            });
            assert!(finite, "{} gives numbers that are not finite", entry.name);
            assert_ne!(
                fingerprint(&first),
                before[0],
                "{} does nothing",
                entry.name
            );
            // Teachers, anchors and starting points are copies: nothing that a method does shows in them.
            let after = [&world.original, &world.initial].map(fingerprint);
            assert_eq!(before, after, "{} changes what it was given", entry.name);
        }
    }
}

// ---- a network and rows that are not ours ----

/// A network that burn alone knows how to run, with a layer that behaves differently while it trains.
#[derive(Module, Debug)]
struct Mlp {
    hidden: Linear,
    norm: BatchNorm,
    head: Linear,
}

impl Mlp {
    fn new(seed: u64) -> Self {
        let device = Device::flex();
        // The device's generator is everybody's; weights of our own do not depend on who else draws.
        let linear = |from: usize, to: usize, seed: u64| {
            let weights = gaussian(from, to, seed);
            let scaled = weights.zip(&weights, |w, _| w / (from as f64).sqrt());
            Linear {
                weight: Param::from_tensor(to_tensor(&scaled, &device)),
                bias: Some(Param::from_tensor(Tensor::zeros([to], &device))),
            }
        };
        Self {
            hidden: linear(COLUMNS, 16, 10 * seed),
            norm: BatchNormConfig::new(16).init(&device),
            head: linear(16, CLASSES, 10 * seed + 1),
        }
    }
}

impl FeatureNet for Mlp {
    type Input = Tensor<2>;

    fn features(&self, rows: Tensor<2>) -> Tensor<2> {
        relu(self.norm.forward(self.hidden.forward(rows)))
    }

    fn head(&self) -> &Linear {
        &self.head
    }
}

const COLUMNS: usize = 5;

/// Measurements of three kinds: each has another column that stands out.
#[derive(Clone)]
struct Measurements {
    values: Matrix,
    labels: Vec<i64>,
}

impl Measurements {
    fn new(rows: usize, seed: u64) -> Self {
        let labels: Vec<i64> = (0..rows).map(|i| (i % CLASSES) as i64).collect();
        let mut values = gaussian(rows, COLUMNS, seed);
        for (i, &label) in labels.iter().enumerate() {
            values[(i, label as usize)] += 4.0;
        }
        Self { values, labels }
    }
}

impl Batches for Measurements {
    type Input = Tensor<2>;

    fn labels(&self) -> &[i64] {
        &self.labels
    }

    fn inputs(&self, rows: &[usize], device: &Device) -> Result<Tensor<2>> {
        Ok(to_tensor(&self.values.select_rows(rows), device))
    }
}

#[test]
fn a_foreign_network_is_trained_and_unlearned_by_every_method() {
    let feed = Feed::new(Measurements::new(240, 21), &Device::flex());
    let test = Feed::new(Measurements::new(90, 22), &Device::flex());
    let all: Vec<usize> = (0..240).collect();
    let recipe = recipe(20);
    let initial = Mlp::new(1);
    let mut session = Session::new(initial.clone(), recipe.clone(), 5);
    let targets = RowTargets::new(&feed.data.labels, CLASSES);
    session
        .run(&feed, &all, &mut |step| targets.loss(step), &mut ())
        .unwrap();
    let original = session.network;
    let accuracy = |feed: &Feed<Measurements>, network: &Mlp, rows: &[usize]| {
        let outputs = Outputs::of(feed, network, rows, &mut ()).unwrap();
        outputs.accuracy()
    };
    let tested: Vec<usize> = (0..90).collect();
    let known = accuracy(&test, &original, &tested);
    assert!(known > 90.0, "{known}");
    assert_ne!(
        bits(&params::buffers(&original)),
        bits(&params::buffers(&initial)),
        "training keeps the running statistics"
    );

    // All of the last class but a few rows.
    let (forget, retain): (Vec<usize>, Vec<usize>) =
        all.iter().partition(|&&row| row % CLASSES == 2 && row > 20);
    let engine: AnyEngine = CpuEngine::new(Some(1)).unwrap().into();
    let mut task = Task::new(
        &feed,
        [&retain, &forget],
        [&original, &initial],
        &recipe,
        &engine,
    );
    task.seed = 3;
    let before = [&original, &initial].map(fingerprint);
    for entry in Entry::<Mlp, Measurements>::ALL {
        let method = entry.with(toml::Table::new()).unwrap();
        if entry.key == "mix" {
            // Rows that do not say how they are blended.
            let refused = method.unlearn(&task, &mut ()).unwrap_err().to_string();
            assert!(refused.contains("does not blend rows"), "{refused}");
            continue;
        }
        let first = method.unlearn(&task, &mut ()).unwrap();
        let again = method.unlearn(&task, &mut ()).unwrap();
        assert_eq!(fingerprint(&first), fingerprint(&again), "{}", entry.name);
        assert_ne!(
            fingerprint(&first),
            before[0],
            "{} does nothing",
            entry.name
        );
        let after = [&original, &initial].map(fingerprint);
        assert_eq!(before, after, "{} changes what it was given", entry.name);
        let kept = accuracy(&feed, &first, &retain);
        if ["MUSO", "MUSO-S", "NegGrad+"].contains(&entry.name) {
            assert!(kept > 85.0, "{}: {kept} % of what stays", entry.name);
        }
    }
    // Towards their optimal labels or away from their own, for long enough, the forgotten rows are no longer known.
    for (name, settings) in [
        ("muso-s", "sharpen = 1.0"),
        ("neg-grad", "retain-weight = 0.5\nrecipe.epochs = 10"),
    ] {
        let entry = Entry::<Mlp, Measurements>::find(name).unwrap();
        let method = entry.with(toml::from_str(settings).unwrap()).unwrap();
        let after = method.unlearn(&task, &mut ()).unwrap();
        let known = accuracy(&feed, &after, &forget);
        let was = accuracy(&feed, &original, &forget);
        assert!(known < was, "{name}: {known} % of {was} %");
    }
}

#[test]
fn frozen_layers_of_a_foreign_network_stay() {
    let feed = Feed::new(Measurements::new(60, 21), &Device::flex());
    let rows: Vec<usize> = (0..60).collect();
    let mut network = Mlp::new(1);
    network.hidden = network.hidden.no_grad();
    let before = bits(&params::weights(&network));
    let decaying = Recipe {
        weight_decay: 0.1,
        ..recipe(2)
    };
    let mut session = Session::new(network, decaying, 5);
    let targets = RowTargets::new(&feed.data.labels, CLASSES);
    session
        .run(&feed, &rows, &mut |step| targets.loss(step), &mut ())
        .unwrap();
    let after = bits(&params::weights(&session.network));
    assert_eq!(
        before[..2],
        after[..2],
        "weight and bias of the frozen layer"
    );
    assert!(before[2..].iter().zip(&after[2..]).all(|(a, b)| a != b));
}

#[test]
fn retrain_starts_every_parameter_from_the_initial_weights() {
    let mut world = World::new(normalised(), 2);
    world.recipe.epochs = 0;
    let start = Retrain {}.unlearn(&world.task(), &mut ()).unwrap();
    assert_eq!(fingerprint(&start), fingerprint(&world.initial));
    assert_ne!(fingerprint(&start), fingerprint(&world.original));
}

#[test]
fn retrain_does_not_depend_on_the_forgotten_rows() {
    let world = World::new(small(), 2);
    let retrained = Retrain {}.unlearn(&world.task(), &mut ()).unwrap();
    // Other pixels and labels in the forgotten rows.
    let set = &world.feed.data.set;
    let mut pixels = Vec::new();
    let mut labels = set.labels().to_vec();
    for row in 0..set.len() {
        let mut image = [0; SIDE * SIDE];
        set.read(row, &mut image).unwrap();
        if world.split.forget.contains(&row) {
            image = [255; SIDE * SIDE];
            labels[row] = (labels[row] + 1) % CLASSES as i64;
        }
        pixels.extend(image);
    }
    let names = ClassNames::new(["top", "middle", "bottom"]);
    let other = feed(ImageSet::new([1, SIDE, SIDE], pixels, labels, names).unwrap());
    let mut task = world.task();
    task.feed = &other;
    let same = Retrain {}.unlearn(&task, &mut ()).unwrap();
    assert_eq!(fingerprint(&retrained), fingerprint(&same));
}

#[test]
fn target_form_labels_are_distributions() {
    let z = gaussian(40, 6, 2);
    let engine = CpuEngine::new(Some(1)).unwrap();
    let classes: Vec<i64> = (0..40).map(|i| i % 3).collect();
    let form = TargetForm::fit(&engine, z.as_rows(), &classes, 3, &EVEN).unwrap();
    let unseen = gaussian(5, 6, 3);
    let labels = form.labels(&engine, unseen.as_rows(), 2.0).unwrap();
    for row in &labels {
        let total: f32 = row.iter().sum();
        assert!((total - 1.0).abs() < 1e-5, "{total}");
    }
}

/// Every row counts as one.
const EVEN: TargetParams = TargetParams {
    relative_ridge: 1e-2,
    balance: 0.0,
};

/// The leave-one-out scores are those of models that were really fitted without the row.
#[test]
fn leave_one_out_is_leaving_one_out() {
    for balance in [0.0, 0.5, 1.0] {
        left_out_by_hand(balance);
    }
}

fn left_out_by_hand(balance: f64) {
    let (n, d, c) = (30, 5, 3);
    let z = gaussian(n, d, 7);
    let classes: Vec<i64> = (0..n).map(|i| ((i * i) % 3) as i64).collect();
    let engine = CpuEngine::new(Some(1)).unwrap();
    // Ten rows of the first class, twenty of the second.
    let params = TargetParams { balance, ..EVEN };
    let form = TargetForm::fit(&engine, z.as_rows(), &classes, c, &params).unwrap();
    let counts = [
        (15.0_f64 / 10.0).powf(balance),
        (15.0_f64 / 20.0).powf(balance),
    ];
    for left in [0, 7, n - 1] {
        let rows: Vec<usize> = (0..n).filter(|&i| i != left).collect();
        // By hand: the same λ, the other rows.
        let with_one = |i: usize, j: usize| if j == d { 1.0 } else { z[(i, j)] };
        let mut g = Matrix::zeros(d + 1, d + 1);
        let mut cross = Matrix::zeros(d + 1, c);
        for &i in &rows {
            let count = counts[classes[i] as usize];
            for a in 0..=d {
                for b in 0..=d {
                    g[(a, b)] += count * with_one(i, a) * with_one(i, b);
                }
                for k in 0..c {
                    let y = f64::from(u8::from(classes[i] == k as i64)) - 1.0 / c as f64;
                    cross[(a, k)] += count * with_one(i, a) * y;
                }
            }
        }
        for a in 0..=d {
            g[(a, a)] += form.ridge;
        }
        let weights = crate::support::gauss_solve(&g, &cross);
        for k in 0..c {
            let expected: f64 = (0..=d).map(|a| with_one(left, a) * weights[(a, k)]).sum();
            let got = form.left_out[(left, k)];
            assert!(
                (got - expected).abs() < 1e-9,
                "row {left}: {got} {expected}"
            );
        }
    }
    // τ is a minimum of the cross-entropy over the left-out rows.
    let loss = |scale: f64| -> f64 {
        (0..n)
            .map(|i| {
                let row = form.left_out.row(i);
                let total: f64 = row.iter().map(|s| (scale * s).exp()).sum();
                total.ln() - scale * row[classes[i] as usize]
            })
            .sum()
    };
    let at = loss(form.temperature);
    for factor in [0.97, 1.03] {
        assert!(loss(form.temperature * factor) >= at);
    }
}

#[test]
fn salun_moves_the_chosen_share_and_nothing_else() {
    let world = World::new(small(), 2);
    for share in [0.1, 0.5] {
        let salun = Salun {
            share,
            recipe: Recipe {
                epochs: 2,
                weight_decay: 0.1,
                ..Salun::default().recipe
            },
        };
        let moved = salun.unlearn(&world.task(), &mut ()).unwrap();
        let (before, after) = (
            bits(&params::weights(&world.original)),
            bits(&params::weights(&moved)),
        );
        let total: usize = before.iter().map(Vec::len).sum();
        let changed = before
            .iter()
            .flatten()
            .zip(after.iter().flatten())
            .filter(|(a, b)| a != b)
            .count();
        let most = (share * total as f64).round() as usize;
        assert!(changed <= most, "{changed} of {total} moved");
        assert!(changed > most / 2, "{changed} of {total} moved");
    }
}

#[test]
fn ssd_only_shrinks_and_only_where_the_forgotten_rows_matter_more() {
    let world = World::new(small(), 2);
    let never = Ssd {
        selection: 1e30,
        ..Ssd::default()
    };
    let same = never.unlearn(&world.task(), &mut ()).unwrap();
    assert_eq!(fingerprint(&same), fingerprint(&world.original));
    let often = Ssd {
        selection: 1.0,
        batch: 16,
        ..Ssd::default()
    };
    let less = often.unlearn(&world.task(), &mut ()).unwrap();
    let values = |network: &Network| -> Vec<f32> {
        params::weights(network)
            .iter()
            .flat_map(|v| v.to_data().try_into_vec::<f32>().unwrap())
            .collect()
    };
    let (before, after) = (values(&world.original), values(&less));
    assert!(before.iter().zip(&after).all(|(a, b)| b.abs() <= a.abs()));
    let shrunk = before.iter().zip(&after).filter(|(a, b)| a != b).count();
    assert!(shrunk > 0 && shrunk < before.len(), "{shrunk}");
}

#[test]
fn extraction_leaves_the_network_alone_and_rows_do_not_see_their_batch() {
    let world = World::new(normalised(), 2);
    let before = fingerprint(&world.original);
    let all: Vec<usize> = (0..ROWS).collect();
    let together = world.feed.extract(&world.original, &all, &mut ()).unwrap();
    assert_eq!(fingerprint(&world.original), before);
    let alone = world.feed.extract(&world.original, &[17], &mut ()).unwrap();
    for k in 0..together.width {
        let (a, b) = (
            alone.features[k],
            together.features[17 * together.width + k],
        );
        assert!((a - b).abs() <= 1e-4 * (1.0 + a.abs()), "{a} {b}");
    }
}

/// BadTeacher's good teacher and SCRUB's teacher share no storage with the student: with one, the divergence would be 0
/// whatever the student did, and so would its gradient.
#[test]
fn teachers_stay_while_students_move() {
    let world = World::new(normalised(), 2);
    let images = Tensor::<4>::ones([2, 1, SIDE, SIDE], &world.feed.device);
    let says = |network: &Network| {
        let logits = network.forward(images.clone(), Mode::Eval);
        logits.to_data().try_into_vec::<f32>().unwrap()
    };
    let before = says(&world.original);
    let methods: [Box<dyn Method>; 2] =
        [Box::new(BadTeacher::default()), Box::new(Scrub::default())];
    for method in methods {
        let student = method.unlearn(&world.task(), &mut ()).unwrap();
        assert_eq!(says(&world.original), before, "{}", method.name());
        assert_ne!(says(&student), before, "{}", method.name());
    }
}

#[test]
fn amnesiac_never_keeps_a_label() {
    // At a high rate for long enough, the forgotten rows end with classes that are not their own.
    let world = World::new(small(), 6);
    let method = Amnesiac {
        recipe: Recipe {
            epochs: 60,
            learning_rate: 5e-3,
            ..Amnesiac::default().recipe
        },
    };
    let network = method.unlearn(&world.task(), &mut ()).unwrap();
    let found = world
        .feed
        .extract(&network, &world.split.forget, &mut ())
        .unwrap()
        .predictions();
    let labels = world.feed.labels(&world.split.forget);
    let kept = found.iter().zip(&labels).filter(|(a, b)| a == b).count();
    assert!(kept <= 1, "{kept} of {} keep their label", labels.len());
}

/// ⌈R·N_r⌉ distinct rows, each as likely as the others.
#[test]
fn sampling_takes_exactly_its_share() {
    let world = World::new(small(), 1);
    for bad in [0.0, -0.1, 1.5, f64::NAN] {
        let method = Muso {
            sampling: Sampling::Random(bad),
            ..Muso::default()
        };
        let error = method.unlearn(&world.task(), &mut ()).unwrap_err();
        assert!(
            error.is_input() && error.to_string().starts_with("sampling"),
            "{error}"
        );
    }
    let retained = world.split.retain.len();
    for share in [0.01, 0.2, 0.5, 1.0] {
        let rows = Muso::sampled(&world.split.retain, share, 4).unwrap();
        assert_eq!(rows.len(), (share * retained as f64).ceil() as usize);
        let mut distinct = rows.clone();
        distinct.dedup();
        assert_eq!(distinct, rows, "ascending and without repetition");
        assert!(rows.iter().all(|row| world.split.retain.contains(row)));
    }
    // Uniform: over many draws every row comes up about as often.
    let mut counts = vec![0_u32; ROWS];
    for seed in 0..400 {
        for row in Muso::sampled(&world.split.retain, 0.2, seed).unwrap() {
            counts[row] += 1;
        }
    }
    for &row in &world.split.retain {
        // Mean 80, standard deviation 8.
        assert!(
            (40..=120).contains(&counts[row]),
            "row {row}: {}",
            counts[row]
        );
    }
}

#[test]
fn unknown_methods_and_settings_are_refused_by_name() {
    let error = find("sslun").unwrap_err();
    assert!(
        error.is_input() && error.to_string().contains("salun"),
        "{error}"
    );
    let entry = find("SalUn").unwrap();
    let bad: toml::Table = toml::from_str("shrae = 0.5").unwrap();
    let error = entry.with(bad).err().unwrap();
    assert!(error.is_input(), "{error}");
    assert!(error.to_string().contains("shrae"), "{error}");
}

/// Every limit of a setting, from inside and from outside.
#[test]
fn settings_out_of_range_are_refused_by_name() {
    let with = |key: &str, setting: &str, value: f64| {
        let integer = ["batch", "forget-batch", "every", "staleness"].contains(&setting);
        let value = if integer {
            toml::Value::Integer(value as i64)
        } else {
            toml::Value::Float(value)
        };
        let settings = toml::Table::from_iter([(setting.to_owned(), value)]);
        find(key).unwrap().with(settings).map(|_| ())
    };
    let (open, least) = (f64::INFINITY, f64::MIN_POSITIVE);
    for (key, setting, low, high) in [
        ("bad-teacher", "retain-share", 0.0, 1.0),
        ("bad-teacher", "temperature", 1e-3, 1e6),
        ("muso", "staleness", 0.0, 1.0),
        ("muso", "every", 1.0, open),
        ("muso-s", "snapshot", 0.0, 1.0),
        ("muso-s", "refresh", 0.0, 1.0),
        ("muso-s", "relative-ridge", least, f64::MAX),
        ("muso-s", "balance", 0.0, 1.0),
        ("muso-s", "sharpen", 1e-3, 1e3),
        ("neg-grad", "retain-weight", 0.0, 1.0),
        ("salun", "share", 0.0, 1.0),
        ("scrub", "temperature", 1e-3, 1e6),
        ("scrub", "label-weight", 0.0, 1e6),
        ("scrub", "teacher-weight", 0.0, 1e6),
        ("scrub", "forget-batch", 1.0, open),
        ("ssd", "selection", 0.0, f64::MAX),
        ("ssd", "dampening", 0.0, f64::MAX),
        ("ssd", "batch", 1.0, open),
    ] {
        with(key, setting, low).unwrap();
        // Numbers of rows go on, as far as the type does.
        with(key, setting, if high == open { 1e9 } else { high }).unwrap();
        let below = if low == 1.0 {
            0.0
        } else {
            low - 0.01 * low.max(1e-300)
        };
        let above = if setting == "staleness" {
            2.0
        } else {
            1.01 * high
        };
        let outside = [below, above, f64::NAN];
        let whole = low == 1.0 || setting == "staleness";
        for value in &outside[usize::from(below < 0.0 && whole)..if whole { 2 } else { 3 }] {
            if *value == open && high == open {
                continue;
            }
            let error = with(key, setting, *value).unwrap_err().to_string();
            let range = if high == open {
                format!("a number from {low}")
            } else {
                format!("a number from {low} to {high}")
            };
            assert!(error.contains(&format!("{setting} = ")), "{error}");
            assert!(error.ends_with(&format!("expected {range}")), "{error}");
        }
    }
}

/// Networks before the first epoch have not seen the forgotten rows; a snapshot has, and is taken where it is asked for.
#[test]
fn muso_s_starts_from_the_snapshot_that_is_asked_for() {
    let feed = Feed::new(Measurements::new(60, 21), &Device::flex());
    let (forget, retain): (Vec<usize>, Vec<usize>) = (0..60).partition(|row| row % 7 == 0);
    let (original, initial) = (Mlp::new(1), Mlp::new(2));
    let (recipe, engine) = (recipe(4), CpuEngine::new(Some(1)).unwrap().into());
    let rows = [&retain[..], &forget];
    let snapshots = [1, 3].map(|epoch| Snapshot {
        epoch,
        network: Mlp::new(2 + epoch as u64),
    });
    let mut task = Task::new(&feed, rows, [&original, &initial], &recipe, &engine);
    let after = |task: &Task<'_, Mlp, Measurements>, snapshot: f64| {
        let method = MusoS {
            snapshot,
            refresh: 0.25,
            ..MusoS::default()
        };
        fingerprint(&method.unlearn(task, &mut ()).unwrap())
    };
    let from_initial = after(&task, 0.0);
    // There are none yet.
    assert_eq!(after(&task, 0.5), from_initial);
    task.snapshots = &snapshots;
    assert_eq!(after(&task, 0.0), from_initial);
    // Of four epochs, 0.3 and 0.7 are nearest to the first and the third.
    let [first, third] = [0.3, 0.7].map(|part| after(&task, part));
    assert_ne!(first, from_initial);
    assert_ne!(first, third);
    task.snapshots = &snapshots[..1];
    assert_eq!(after(&task, 0.7), first);
}

// ---- training runs in a folder ----

fn config() -> Config {
    Config {
        train: Recipe {
            augment: Some(Augment::default()),
            ..recipe(3)
        },
        snapshots: vec![0.4],
        ..Config::default()
    }
}

fn workbench(network: NetworkConfig) -> Workbench {
    let data = Dataset {
        name: "noise".into(),
        train: images(ROWS, 1),
        test: images(20, 2),
        normalisation: normalisation(),
    };
    let engine = CpuEngine::new(Some(1)).unwrap().into();
    let place = Workplace::new(engine, Scheduler::default()).unwrap();
    Workbench::new(&place, data, network).unwrap()
}

#[test]
fn a_run_stopped_anywhere_ends_in_the_same_bytes() {
    let home = TempDir::new().unwrap();
    for (name, network) in [("small", small()), ("norm", normalised())] {
        let whole = Folder::new(home.path().join(name));
        let workbench = workbench(network);
        whole.create(&config()).unwrap();
        whole.train(&config(), &workbench, &mut ()).unwrap();
        let expected = files(whole.path());
        let names: Vec<&str> = expected.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "config.toml",
                "initial.safetensors",
                "log.csv",
                "model.safetensors",
                "snapshot-0001.safetensors"
            ]
        );
        // 4 steps an epoch: within the first epoch, at its end, within the second, and twice.
        for stops in [vec![1], vec![4], vec![6], vec![3, 5], vec![2, 2, 2, 2]] {
            let folder = Folder::new(home.path().join(format!("{name}-{stops:?}")));
            folder.create(&config()).unwrap();
            for &stop in &stops {
                let error = folder
                    .train(&config(), &workbench, &mut StopAt(stop))
                    .unwrap_err();
                assert!(matches!(error, Error::Paused { .. }), "{error}");
            }
            folder.train(&config(), &workbench, &mut ()).unwrap();
            let found = files(folder.path());
            assert!(found == expected, "{name} stopped at {stops:?}");
        }
    }
}

#[test]
fn early_stopping_keeps_the_best_network_and_resumes_too() {
    let home = TempDir::new().unwrap();
    let config = Config {
        train: Recipe {
            learning_rate: 0.05,
            schedule: Schedule::Constant,
            ..recipe(40)
        },
        early_stop: Some(EarlyStop {
            patience: 3,
            hold_out: 0.2,
        }),
        ..config()
    };
    let workbench = workbench(small());
    let whole = Folder::new(home.path().join("whole"));
    whole.create(&config).unwrap();
    whole.train(&config, &workbench, &mut ()).unwrap();
    let expected = files(whole.path());
    let log = String::from_utf8(
        expected
            .iter()
            .find(|(n, _)| n == "log.csv")
            .unwrap()
            .1
            .clone(),
    )
    .unwrap();
    let epochs = log.lines().count() - 1;
    assert!(epochs < 40, "it never stopped early");
    let accuracies: Vec<f64> = log
        .lines()
        .skip(1)
        .map(|line| line.rsplit(',').next().unwrap().parse().unwrap())
        .collect();
    let best = accuracies.iter().copied().fold(0.0, f64::max);
    let first_best = accuracies.iter().position(|&a| a == best).unwrap();
    assert_eq!(epochs - 1 - first_best, 3, "{accuracies:?}");

    let folder = Folder::new(home.path().join("again"));
    folder.create(&config).unwrap();
    folder
        .train(&config, &workbench, &mut StopAt(5))
        .unwrap_err();
    folder.train(&config, &workbench, &mut ()).unwrap();
    assert!(files(folder.path()) == expected);
}

#[test]
fn a_folder_with_a_run_is_not_written_over() {
    let home = TempDir::new().unwrap();
    let folder = Folder::new(home.path().join("run"));
    folder.create(&config()).unwrap();
    let error = folder.create(&config()).unwrap_err();
    assert!(
        error.is_input() && error.to_string().contains("`.resume`"),
        "{error}"
    );
    let error = folder.open(&workbench(small())).err().unwrap();
    assert!(error.to_string().contains("not finished"), "{error}");
}

#[test]
fn a_checkpoint_of_another_network_says_what_differs() {
    let home = TempDir::new().unwrap();
    let folder = Folder::new(home.path().join("run"));
    folder.create(&config()).unwrap();
    folder
        .train(&config(), &workbench(small()), &mut ())
        .unwrap();
    let path = folder.path().join("model.safetensors");
    let other = small().with_width(6).init(0, &Device::flex()).unwrap();
    let error = checkpoint::load_into(other, &path).unwrap_err();
    let message = error.to_string();
    assert!(error.is_input());
    for piece in [
        "model.safetensors",
        "conv1.weight",
        "[6, 1, 3, 3]",
        "[4, 1, 3, 3]",
    ] {
        assert!(message.contains(piece), "{message}");
    }
}

#[test]
fn configurations_come_back_and_mistakes_in_them_are_found() {
    let text = config().to_toml();
    let again = Config::parse(&text, Path::new("config.toml")).unwrap();
    assert_eq!(again.to_toml(), text);
    for (bad, piece) in [
        ("seeds = []", "seeds"),
        ("[train]\nlearning-rate = -1.0", "learning-rate"),
        ("[train]\nepohcs = 3", "epohcs"),
        ("[data]\nkind = \"cifar\"", "cifar"),
        ("[methods.nothing]", "nothing"),
        ("[methods.muso]\nridge = \"small\"", "muso"),
        ("snapshots = [1.5]", "snapshots"),
        ("seeds = [", "line 1"),
    ] {
        let error = Config::parse(bad, Path::new("bad.toml")).unwrap_err();
        assert!(error.is_input(), "{error}");
        assert!(error.to_string().contains(piece), "{bad}: {error}");
    }
}

#[test]
fn the_configuration_in_the_documents_is_one() {
    let page = include_str!("../../docs/run-files.md");
    let text = page
        .split("```toml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let config = Config::parse(text, Path::new("run-files.md")).unwrap();
    assert_eq!(config.forget.len(), 4);
    assert_eq!(config.arms().unwrap().len(), 2);
    assert_eq!(config.train.augment, Some(Augment::default()));
}

/// Settings and defaults of every method, as the documents have them.
#[test]
fn the_documents_have_every_setting_and_its_default() {
    let page = include_str!("../../docs/run-files.md");
    let (_, after) = page.split_once("## Settings of the methods").unwrap();
    let text = after
        .split("```")
        .nth(1)
        .unwrap()
        .trim_start_matches("toml");
    let documented: toml::Table = toml::from_str(text).unwrap();
    let mut defaults = toml::Table::new();
    for entry in METHODS {
        let mut settings = entry.with(toml::Table::new()).unwrap().settings();
        if let Some(toml::Value::Table(recipe)) = settings.get_mut("recipe") {
            // What the recipes have in common is said once, under `[train]`.
            let same: toml::Table = toml::from_str(
                "momentum = 0.9\nweight-decay = 0.0\nwarmup = 0.0\nschedule = \"constant\"",
            )
            .unwrap();
            recipe.retain(|key, value| same.get(key) != Some(value));
        }
        if !settings.is_empty() {
            defaults.insert(entry.key.into(), settings.into());
        }
    }
    let defaults = toml::Table::from_iter([("methods".into(), toml::Value::from(defaults))]);
    let expected = toml::to_string(&defaults).unwrap();
    assert_eq!(documented, defaults, "expected\n{expected}");
}

/// The table of the methods is the only place that says what they are; the documents repeat it word for word.
#[test]
fn the_documents_say_of_a_method_what_its_entry_says() {
    let page = include_str!("../../docs/results.md");
    let (_, table) = page
        .split_once("| method | what it does |\n|---|---|\n")
        .unwrap();
    let lines: Vec<&str> = table.lines().take_while(|line| !line.is_empty()).collect();
    let wanted = METHODS.map(|entry| format!("| {} | {} |", entry.name, entry.about));
    assert_eq!(lines, wanted);
    for entry in METHODS {
        let method = entry.with(toml::Table::new()).unwrap();
        assert_eq!(method.name(), entry.name);
        assert!(!entry.about.is_empty(), "{}", entry.name);
    }
    // What is said of MUSO-S holds for its defaults: a snapshot has seen the forgotten rows, the initial weights have not.
    assert_eq!(MusoS::default().snapshot, 0.0);
}
