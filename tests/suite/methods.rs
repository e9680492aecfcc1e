//! The formulas of the unlearning methods, each against a plain f64 reference.
//!
//! The network is not one of ours: softmax regression, whose features are its inputs. A step of gradient descent on all
//! rows then has a closed form, W − rate·Xᵀ(P − Y)/N, and with fewer rows than features the targets Y that a method
//! trained towards can be read off the step.

use std::sync::Arc;

use muso::engine::{AnyEngine, CpuEngine, Matrix, head_matrix, to_tensor};
use muso::features::{Batches, Feed};
use muso::labels::{LabelUpdate, TargetForm, TargetParams};
use muso::methods::networks::{
    Amnesiac, Ascent, BadTeacher, Entry, FineTune, LabelKind, Method, Mix, Muso, MusoS, NegGrad,
    Preset, Projection, Reference, Relabel, RidgePath, Salun, Sampling, Scrub, Settings, Ssd, Task,
};
use muso::models::burn::module::{Module, Param};
use muso::models::burn::nn::Linear;
use muso::models::burn::tensor::{Device, Tensor};
use muso::models::{FeatureNet, burn};
use muso::train::{Recipe, Rule, Schedule, Session, Watch};
use muso::{Error, Result};

use crate::support::{gauss_solve, gaussian, identity, matmul, minus, relative};

const ROWS: usize = 12;
const WIDTH: usize = 14;
const CLASSES: usize = 3;
const FORGET: [usize; 4] = [1, 4, 6, 11];
const RATE: f64 = 0.5;

#[derive(Module, Debug)]
struct Regression {
    head: Linear,
}

impl Regression {
    fn new(weights: &Matrix) -> Self {
        let tensor = to_tensor(weights, &Device::flex());
        let bias = tensor.clone().narrow(0, WIDTH, 1).reshape([CLASSES]);
        Self {
            head: Linear {
                weight: Param::from_tensor(tensor.narrow(0, 0, WIDTH)),
                bias: Some(Param::from_tensor(bias)),
            },
        }
    }
}

impl FeatureNet for Regression {
    type Input = Tensor<2>;

    fn features(&self, rows: Tensor<2>) -> Tensor<2> {
        rows
    }

    fn head(&self) -> &Linear {
        &self.head
    }
}

/// Rows of numbers. Their variants are the rows times 2, 4, ….
#[derive(Clone)]
struct Table {
    values: Matrix,
    labels: Vec<i64>,
    variants: usize,
}

impl Batches for Table {
    type Input = Tensor<2>;

    fn labels(&self) -> &[i64] {
        &self.labels
    }

    fn inputs(&self, rows: &[usize], device: &Device) -> Result<Tensor<2>> {
        Ok(to_tensor(&self.values.select_rows(rows), device))
    }

    fn variants(&self) -> usize {
        self.variants
    }

    fn variant(&self, input: Tensor<2>, number: usize) -> Tensor<2> {
        input * 2_f64.powi(number as i32 + 1)
    }

    fn blended(
        &self,
        rows: &[usize],
        partners: &[usize],
        own: &[f32],
        device: &Device,
    ) -> Result<Tensor<2>> {
        let (rows, partners) = (
            self.values.select_rows(rows),
            self.values.select_rows(partners),
        );
        let blend = Matrix::from_fn(rows.rows(), WIDTH, |i, j| {
            let own = f64::from(own[i]);
            own * rows[(i, j)] + (1.0 - own) * partners[(i, j)]
        });
        Ok(to_tensor(&blend, device))
    }
}

struct World {
    feed: Feed<Table>,
    retain: Vec<usize>,
    original: Regression,
    initial: Regression,
    recipe: Recipe,
    engine: AnyEngine,
}

impl World {
    fn new() -> Self {
        let f32s = |m: Matrix| m.zip(&m, |a, _| f64::from(a as f32));
        let table = Table {
            values: f32s(gaussian(ROWS, WIDTH, 1)),
            labels: (0..ROWS)
                .map(|i| ((i * i + i / 5) % CLASSES) as i64)
                .collect(),
            variants: 0,
        };
        Self {
            feed: Feed::new(table, &Device::flex()),
            retain: (0..ROWS).filter(|row| !FORGET.contains(row)).collect(),
            original: Regression::new(&gaussian(WIDTH + 1, CLASSES, 2)),
            initial: Regression::new(&gaussian(WIDTH + 1, CLASSES, 3)),
            recipe: once(),
            engine: CpuEngine::new(Some(1)).unwrap().into(),
        }
    }

    fn task(&self) -> Task<'_, Regression, Table> {
        let rows = [&self.retain[..], &FORGET];
        let networks = [&self.original, &self.initial];
        Task::new(&self.feed, rows, networks, &self.recipe, &self.engine)
    }

    /// The weights that a method ends with.
    fn after(&self, method: &dyn Method<Regression, Table>) -> Matrix {
        head_matrix(&method.unlearn(&self.task(), &mut ()).unwrap().head)
    }

    fn weights(&self) -> Matrix {
        head_matrix(&self.original.head)
    }

    /// X with a column of ones.
    fn inputs(&self, rows: &[usize]) -> Matrix {
        let picked = self.feed.data.values.select_rows(rows);
        Matrix::from_fn(rows.len(), WIDTH + 1, |i, j| {
            if j == WIDTH { 1.0 } else { picked[(i, j)] }
        })
    }

    fn one_hot(&self, rows: &[usize]) -> Matrix {
        Matrix::from_fn(rows.len(), CLASSES, |i, k| {
            f64::from(u8::from(self.feed.data.labels[rows[i]] == k as i64))
        })
    }

    /// softmax(XW/T).
    fn says(&self, weights: &Matrix, rows: &[usize], heat: f64) -> Matrix {
        softmax(&matmul(&self.inputs(rows), weights), heat)
    }

    /// The gradient of mean cross-entropy of softmax(XW/T) against targets, without the factor 1/T.
    fn gradient(&self, weights: &Matrix, rows: &[usize], targets: &Matrix, heat: f64) -> Matrix {
        let error = minus(&self.says(weights, rows, heat), targets);
        let sums = matmul(&self.inputs(rows).transpose(), &error);
        sums.zip(&sums, |g, _| g / rows.len() as f64)
    }

    /// The gradient of the mean cross-entropy of `rows` against their labels.
    fn slope(&self, weights: &Matrix, rows: &[usize]) -> Matrix {
        self.gradient(weights, rows, &self.one_hot(rows), 1.0)
    }

    /// The targets of all rows that one step from the original towards `after` descended to.
    fn targets(&self, after: &Matrix) -> Matrix {
        let rows: Vec<usize> = (0..ROWS).collect();
        let x = self.inputs(&rows);
        let gradient = minus(&self.weights(), after).zip(after, |d, _| d / RATE * ROWS as f64);
        // Xᵀ(P − Y) = G: rows are fewer than features, so (XXᵀ)⁻¹XG is P − Y.
        let error = gauss_solve(&matmul(&x, &x.transpose()), &matmul(&x, &gradient));
        minus(&self.says(&self.weights(), &rows, 1.0), &error)
    }
}

fn softmax(logits: &Matrix, heat: f64) -> Matrix {
    let mut out = logits.zip(logits, |z, _| (z / heat).exp());
    for i in 0..out.rows() {
        let total: f64 = out.row(i).iter().sum();
        for value in out.row_mut(i) {
            *value /= total;
        }
    }
    out
}

/// One step on all rows at once.
fn once() -> Recipe {
    Recipe {
        epochs: 1,
        batch: 2 * ROWS,
        rule: Rule::Sgd,
        learning_rate: RATE,
        momentum: 0.0,
        weight_decay: 0.0,
        warmup: 0.0,
        schedule: Schedule::Constant,
        ..Recipe::default()
    }
}

fn moved(weights: &Matrix, by: f64, gradient: &Matrix) -> Matrix {
    weights.zip(gradient, |w, g| w + by * g)
}

/// Weights are f32, and so is what they are computed from.
#[track_caller]
fn close(found: &Matrix, expected: &Matrix) {
    let gap = relative(found, expected);
    assert!(gap < 2e-6, "{gap}");
}

#[test]
fn fine_tuning_descends_on_what_stays_and_ascent_climbs_on_what_goes() {
    let world = World::new();
    let start = world.weights();
    let found = world.after(&FineTune { recipe: once() });
    let down = world.slope(&start, &world.retain);
    close(&found, &moved(&start, -RATE, &down));
    let found = world.after(&Ascent { recipe: once() });
    let up = world.slope(&start, &FORGET);
    close(&found, &moved(&start, RATE, &up));
}

#[test]
fn neg_grad_weighs_descent_and_ascent() {
    let world = World::new();
    let start = world.weights();
    let found = world.after(&NegGrad {
        retain_weight: 0.7,
        recipe: once(),
    });
    let down = world.slope(&start, &world.retain);
    let up = world.slope(&start, &FORGET);
    let expected = moved(&moved(&start, -0.7 * RATE, &down), 0.3 * RATE, &up);
    close(&found, &expected);
}

/// One optimiser goes through ascent, descent, ascent, descent and, after the last ascent, descent alone.
#[test]
fn scrub_alternates_with_one_optimiser() {
    let world = World::new();
    let (heat, label_weight, teacher_weight, momentum) = (2.0, 0.8, 0.4, 0.5);
    let teacher = world.weights();
    for ascents in [0, 2] {
        let found = world.after(&Scrub {
            ascents,
            label_weight,
            teacher_weight,
            temperature: heat,
            forget_batch: ROWS,
            recipe: Recipe {
                epochs: 3,
                momentum,
                ..once()
            },
        });
        // T²·KL has the gradient T²/T·Xᵀ(P_T − Q_T)/N.
        let divergence = |weights: &Matrix, rows: &[usize]| {
            let wanted = world.says(&teacher, rows, heat);
            world.gradient(weights, rows, &wanted, heat)
        };
        let (mut weights, mut velocity) = (teacher.clone(), Matrix::zeros(WIDTH + 1, CLASSES));
        for epoch in 0..3 {
            if epoch < ascents {
                let up = divergence(&weights, &FORGET);
                velocity = velocity.zip(&up, |v, g| momentum * v - heat * g);
                weights = moved(&weights, -RATE, &velocity);
            }
            let label = world.slope(&weights, &world.retain);
            let keep = divergence(&weights, &world.retain);
            let down = label.zip(&keep, |a, b| label_weight * a + teacher_weight * heat * b);
            velocity = velocity.zip(&down, |v, g| momentum * v + g);
            weights = moved(&weights, -RATE, &velocity);
        }
        close(&found, &weights);
    }
}

#[test]
fn bad_teacher_has_a_teacher_for_each_kind_of_row() {
    let world = World::new();
    let heat = 2.0;
    let method = BadTeacher {
        retain_share: 1.0,
        temperature: heat,
        recipe: once(),
    };
    let rows: Vec<usize> = (0..ROWS).collect();
    let start = world.weights();
    let expected = |bad: &Regression| {
        let good = world.says(&start, &rows, heat);
        let bad = world.says(&head_matrix(&bad.head), &rows, heat);
        let targets = Matrix::from_fn(ROWS, CLASSES, |i, k| {
            if FORGET.contains(&i) {
                bad[(i, k)]
            } else {
                good[(i, k)]
            }
        });
        let down = world.gradient(&start, &rows, &targets, heat);
        moved(&start, -RATE / heat, &down)
    };
    // Where no untrained network can be made, the initial one teaches.
    close(&world.after(&method), &expected(&world.initial));
    let untrained = Regression::new(&gaussian(WIDTH + 1, CLASSES, 9));
    let mut task = world.task();
    task.untrained = Some(Arc::new(|_| Ok(untrained.clone())));
    let found = method.unlearn(&task, &mut ()).unwrap();
    close(&head_matrix(&found.head), &expected(&untrained));
}

/// How many retained rows learn from the original network: 0.3 of eight are three.
#[test]
fn bad_teacher_rounds_the_retained_rows_up() {
    let world = World::new();
    struct Rows(Vec<usize>);
    impl Watch<Regression> for Rows {
        fn before_step(&mut self, rows: &[usize]) -> Result<()> {
            self.0.extend(rows);
            Ok(())
        }
    }
    let mut seen = Rows(Vec::new());
    let method = BadTeacher {
        retain_share: 0.3,
        recipe: once(),
        ..BadTeacher::default()
    };
    method.unlearn(&world.task(), &mut seen).unwrap();
    let retained = seen.0.iter().filter(|row| world.retain.contains(row));
    assert_eq!((retained.count(), seen.0.len()), (3, 3 + FORGET.len()));
}

/// The mean over batches of two rows of the squared gradient.
fn importance(world: &World, rows: &[usize]) -> Matrix {
    let batches: Vec<&[usize]> = rows.chunks(2).collect();
    let mut sum = Matrix::zeros(WIDTH + 1, CLASSES);
    for batch in &batches {
        let slope = world.slope(&world.weights(), batch);
        sum = sum.zip(&slope, |s, g| s + g * g / batches.len() as f64);
    }
    sum
}

#[test]
fn ssd_dampens_by_the_ratio_of_importances() {
    let world = World::new();
    let (selection, dampening) = (1.5, 0.6);
    let found = world.after(&Ssd {
        selection,
        dampening,
        batch: 2,
    });
    let rows: Vec<usize> = (0..ROWS).collect();
    let (forgotten, all) = (importance(&world, &FORGET), importance(&world, &rows));
    let start = world.weights();
    let mut dampened = 0;
    let expected = Matrix::from_fn(WIDTH + 1, CLASSES, |i, j| {
        let (u, d) = (forgotten[(i, j)], all[(i, j)]);
        if u <= selection * d {
            return start[(i, j)];
        }
        dampened += 1;
        start[(i, j)] * (dampening * d / u).min(1.0)
    });
    assert!((5..40).contains(&dampened), "{dampened} of 45");
    close(&found, &expected);
}

#[test]
fn salun_moves_the_weights_with_the_largest_gradients() {
    let world = World::new();
    let slope = world.slope(&world.weights(), &FORGET);
    let mut sizes: Vec<f64> = slope.as_slice().iter().map(|g| g.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    for share in [0.2, 0.6] {
        let found = world.after(&Salun {
            share,
            recipe: once(),
        });
        let count = (share * sizes.len() as f64).round() as usize;
        let least = sizes[sizes.len() - count];
        let start = world.weights();
        for (i, size) in slope.as_slice().iter().enumerate() {
            let changed = found.as_slice()[i] != start.as_slice()[i];
            assert_eq!(
                changed,
                size.abs() >= least,
                "weight {i}: {size} and {least}"
            );
        }
    }
}

#[track_caller]
fn class_of(target: &[f64]) -> i64 {
    let class = (0..CLASSES).find(|&k| (target[k] - 1.0).abs() < 1e-3);
    let others: f64 = target.iter().map(|t| t.abs()).sum();
    assert!((others - 1.0).abs() < 3e-3, "{target:?} is no class");
    class.expect("a class") as i64
}

#[test]
fn amnesiac_draws_every_class_but_the_own() {
    let world = World::new();
    let labels = &world.feed.data.labels;
    let mut seen = [[false; CLASSES]; ROWS];
    for seed in 0..24 {
        let mut task = world.task();
        task.seed = seed;
        let method = Amnesiac { recipe: once() };
        let after = method.unlearn(&task, &mut ()).unwrap();
        let targets = world.targets(&head_matrix(&after.head));
        for row in 0..ROWS {
            let class = class_of(targets.row(row));
            seen[row][class as usize] = true;
            assert_eq!(FORGET.contains(&row), class != labels[row], "row {row}");
        }
    }
    for row in FORGET {
        let drawn = seen[row].iter().filter(|seen| **seen).count();
        assert_eq!(drawn, CLASSES - 1, "row {row}: {:?}", seen[row]);
    }
}

#[test]
fn mix_trains_blends_towards_their_partners() {
    let world = World::new();
    let own = 0.3;
    let found = world.after(&Mix {
        own,
        recipe: once(),
    });
    let labels = &world.feed.data.labels;
    let partners = Mix::partners(&world.retain, &FORGET, labels, world.task().seed);
    for (row, partner) in FORGET.iter().zip(&partners) {
        assert!(world.retain.contains(partner) && labels[*partner] != labels[*row]);
    }
    let rows: Vec<usize> = (0..ROWS).collect();
    let with: Vec<usize> = rows
        .iter()
        .map(|row| {
            FORGET
                .iter()
                .position(|f| f == row)
                .map_or(*row, |i| partners[i])
        })
        .collect();
    let (x, other) = (world.inputs(&rows), world.inputs(&with));
    let x = x.zip(&other, |x, o| own * x + (1.0 - own) * o);
    let start = world.weights();
    let error = minus(&softmax(&matmul(&x, &start), 1.0), &world.one_hot(&with));
    let down = matmul(&x.transpose(), &error);
    let down = down.zip(&down, |g, _| g / ROWS as f64);
    close(&found, &moved(&start, -RATE, &down));
    // With the whole row kept, only labels are changed.
    let found = world.after(&Mix {
        own: 1.0,
        recipe: once(),
    });
    let down = world.gradient(&start, &rows, &world.one_hot(&with), 1.0);
    close(&found, &moved(&start, -RATE, &down));
}

/// The paper's labels, with Π formed: Z_u(w_0 + Π(w_p − w_0) + w_p) − y_ref.
fn optimal_labels(world: &World, ridge: f64, reference: &Matrix) -> Matrix {
    let z = world.inputs(&world.retain);
    let kernel = matmul(&z, &z.transpose());
    let damped = kernel.zip(&identity(z.rows()), |k, one| k + ridge * one);
    let (trained, initial) = (world.weights(), head_matrix(&world.initial.head));
    let seen = matmul(&z, &minus(&trained, &initial));
    let projected = matmul(&z.transpose(), &gauss_solve(&damped, &seen));
    let weights = Matrix::from_fn(WIDTH + 1, CLASSES, |i, k| {
        initial[(i, k)] + projected[(i, k)] + trained[(i, k)]
    });
    minus(&matmul(&world.inputs(&FORGET), &weights), reference)
}

#[test]
fn muso_trains_towards_the_optimal_labels() {
    let world = World::new();
    let ridge = 0.3;
    let logits = matmul(&world.inputs(&FORGET), &world.weights());
    for (reference, known) in [
        (Reference::Labels, world.one_hot(&FORGET)),
        (Reference::Logits, logits),
    ] {
        let labels = optimal_labels(&world, ridge, &known);
        for (staleness, kind) in [
            (0, LabelKind::Soft),
            (1, LabelKind::Soft),
            (0, LabelKind::Hard),
        ] {
            let after = world.after(&Muso {
                sampling: Sampling::All,
                labels: kind,
                reference,
                ridge: RidgePath::Constant(ridge),
                every: None,
                staleness,
                recipe: once(),
                ..Muso::default()
            });
            let targets = world.targets(&after);
            let expected = softmax(&labels, 1.0);
            for (i, &row) in FORGET.iter().enumerate() {
                let (found, wanted) = (targets.row(row), expected.row(i));
                match kind {
                    LabelKind::Soft => {
                        for (a, b) in found.iter().zip(wanted) {
                            assert!((a - b).abs() < 1e-4, "{found:?} {wanted:?}");
                        }
                    }
                    LabelKind::Hard => {
                        let top = (0..CLASSES)
                            .max_by(|&a, &b| wanted[a].total_cmp(&wanted[b]))
                            .unwrap();
                        assert_eq!(class_of(found), top as i64);
                    }
                }
            }
            for &row in &world.retain {
                assert_eq!(class_of(targets.row(row)), world.feed.data.labels[row]);
            }
        }
    }
}

/// Notes what a run tells of its label updates.
#[derive(Default)]
struct Updates(Vec<LabelUpdate>);

impl Watch<Regression> for Updates {
    fn label_update(&mut self, update: &LabelUpdate) {
        self.0.push(*update);
    }
}

/// Π of the retained rows with their ones, formed from the inverse of the damped kernel.
fn formed_projector(world: &World, ridge: f64) -> Matrix {
    let z = world.inputs(&world.retain);
    let kernel = matmul(&z, &z.transpose());
    let damped = kernel.zip(&identity(z.rows()), |k, one| k + ridge * one);
    matmul(&z.transpose(), &gauss_solve(&damped, &z))
}

/// One step on all rows shows the labels of a batch to be those of the update, and every projector to be its formula.
#[test]
fn muso_is_told_apart_by_its_projector_alone() {
    let world = World::new();
    let ridge = 0.5;
    let logits = matmul(&world.inputs(&FORGET), &world.weights());
    let (trained, initial) = (world.weights(), head_matrix(&world.initial.head));
    let exact = formed_projector(&world, ridge);
    let unit = formed_projector(&world, 1.0);
    let of_woodbury = unit.zip(&unit, |x, _| x / ridge);
    for (projector, formed, u) in [
        (Projection::Exact, &exact, f64::EPSILON),
        (Projection::October2024, &exact, f64::from(f32::EPSILON)),
        (
            Projection::February2025,
            &of_woodbury,
            f64::from(f32::EPSILON),
        ),
    ] {
        let moved = matmul(formed, &minus(&trained, &initial));
        let weights = Matrix::from_fn(WIDTH + 1, CLASSES, |i, k| {
            initial[(i, k)] + moved[(i, k)] + trained[(i, k)]
        });
        let labels = minus(&matmul(&world.inputs(&FORGET), &weights), &logits);
        let expected = softmax(&labels, 1.0);
        for relabel in [Relabel::Update, Relabel::Batch] {
            let method = Muso {
                projector,
                relabel,
                sampling: Sampling::All,
                labels: LabelKind::Soft,
                ridge: RidgePath::Constant(ridge),
                recipe: once(),
                ..Muso::default()
            };
            let mut updates = Updates::default();
            let after = method.unlearn(&world.task(), &mut updates).unwrap();
            let targets = world.targets(&head_matrix(&after.head));
            for (i, &row) in FORGET.iter().enumerate() {
                for (a, b) in targets.row(row).iter().zip(expected.row(i)) {
                    assert!((a - b).abs() < 5e-4, "{projector:?} {relabel:?}: {a} {b}");
                }
            }
            let [update] = updates.0[..] else {
                panic!("{:?}", updates.0)
            };
            let trace: f64 = (0..=WIDTH).map(|i| formed[(i, i)]).sum();
            let trace = trace / (WIDTH + 1) as f64;
            assert!((update.trace_ratio.unwrap() / trace - 1.0).abs() < 1e-5);
            let kernel = {
                let z = world.inputs(&world.retain);
                match projector {
                    Projection::February2025 => matmul(&z.transpose(), &z),
                    _ => matmul(&z, &z.transpose()),
                }
            };
            let sums =
                (0..kernel.rows()).map(|i| kernel.row(i).iter().map(|x| x.abs()).sum::<f64>());
            let norm: f64 = sums.fold(0.0, f64::max);
            let rounding = u / 2.0 * norm / ridge;
            assert!((update.rounding.unwrap() / rounding - 1.0).abs() < 1e-5);
            let own = &world.feed.data.labels;
            let top = |i: usize| {
                let row = expected.row(i);
                (0..CLASSES)
                    .max_by(|&a, &b| row[a].total_cmp(&row[b]))
                    .unwrap()
            };
            let changed = (0..FORGET.len())
                .filter(|&i| top(i) as i64 != own[FORGET[i]])
                .count();
            assert_eq!(update.changed, changed as f64 / FORGET.len() as f64);
        }
    }
}

#[test]
fn random_labels_are_of_any_class_and_drawn_anew() {
    let world = World::new();
    let mut seen = [[0; CLASSES]; ROWS];
    for seed in 0..40 {
        let mut task = world.task();
        task.seed = seed;
        let method = Muso {
            projector: Projection::RandomLabels,
            recipe: once(),
            ..Muso::default()
        };
        let mut updates = Updates::default();
        let after = method.unlearn(&task, &mut updates).unwrap();
        assert!(updates.0[0].trace_ratio.is_none() && updates.0.len() == 1);
        let targets = world.targets(&head_matrix(&after.head));
        for row in FORGET {
            seen[row][class_of(targets.row(row)) as usize] += 1;
        }
    }
    // Three classes in forty draws: fewer than four of one have a chance of one in ten thousand.
    for row in FORGET {
        assert!(
            seen[row].iter().all(|&n| n >= 4),
            "row {row}: {:?}",
            seen[row]
        );
    }
}

/// The values of the released code's `np.linspace(0, np.pi, epochs)` path, an epoch late.
#[test]
fn the_released_path_of_the_ridge_lags_by_an_epoch() {
    let path = RidgePath::LaggedCosine(1e-6, 1e-2);
    let at = |epochs: usize| -> Vec<f64> {
        let part = |epoch: usize| epoch as f64 / epochs as f64;
        (0..epochs)
            .map(|epoch| path.at(part(epoch), epochs))
            .collect()
    };
    let close = |found: Vec<f64>, wanted: &[f64]| {
        assert_eq!(found.len(), wanted.len());
        for (a, b) in found.iter().zip(wanted) {
            assert!((a - b).abs() < 1e-12, "{found:?} {wanted:?}");
        }
    };
    close(at(1), &[1e-6]);
    close(at(2), &[1e-6, 1e-6]);
    close(at(3), &[1e-6, 1e-6, 0.0050005]);
    let quarter = 0.5 - 0.5 * std::f64::consts::FRAC_PI_4.cos();
    let rise = |r: f64| 1e-6 + (1e-2 - 1e-6) * r;
    close(
        at(5),
        &[1e-6, 1e-6, rise(quarter), rise(0.5), rise(1.0 - quarter)],
    );
}

#[test]
fn released_sampling_keeps_up_to_twice_the_share_and_favours_the_last() {
    let rows: Vec<usize> = (0..1_000).collect();
    let (mut first, mut last) = (0, 0);
    for seed in 0..50 {
        let kept = Muso::sampled_as_released(&rows, 0.2, 128, seed).unwrap();
        let distinct: std::collections::HashSet<usize> = kept.iter().copied().collect();
        assert_eq!(distinct.len(), kept.len());
        assert!((200..=400).contains(&kept.len()), "{}", kept.len());
        first += kept.iter().filter(|&&row| row < 500).count();
        last += kept.iter().filter(|&&row| row >= 500).count();
    }
    assert!(last > 3 * first, "{first} {last}");
    assert!(Muso::sampled_as_released(&rows, 1.5, 128, 0).is_err());
}

/// What docs/paper.md says was read: the settings of the text and of the two commits.
#[test]
fn presets_are_what_was_published() {
    let with = |text: &str| -> Box<dyn Method<Regression, Table>> {
        let entry = Entry::<Regression, Table>::find("muso").unwrap();
        entry.with(toml::from_str(text).unwrap()).unwrap()
    };
    for preset in Preset::ALL {
        let method = with(&format!("preset = {:?}", preset.key()));
        assert_eq!(method.name(), preset.method_name());
        assert_eq!(method.settings(), preset.settings().settings());
        // What a report shows gives the settings again.
        let again = with(&toml::to_string(&method.settings()).unwrap());
        assert_eq!(again.settings(), method.settings());
    }
    let paper = Preset::Paper.settings();
    assert_eq!(paper.reference, Reference::Labels);
    assert_eq!(paper.ridge, RidgePath::Constant(1e-6));
    assert_eq!(paper.sampling, Sampling::Random(0.2));
    assert_eq!(paper.projector, Projection::Exact);
    let [old, new] = [Preset::October2024, Preset::February2025].map(Preset::settings);
    let recipes = [&old, &new].map(|muso| [Some(muso.recipe.clone()), muso.class_recipe.clone()]);
    for recipe in recipes.into_iter().flatten().flatten() {
        assert_eq!((recipe.batch, recipe.augment), (128, None));
    }
    assert_eq!(paper.recipe.batch, 128);
    for released in [&old, &new] {
        assert_eq!(released.reference, Reference::Logits);
        assert_eq!(released.labels, LabelKind::Hard);
        assert_eq!(released.relabel, Relabel::Batch);
        assert_eq!(released.sampling, Sampling::Released(0.2));
        assert_eq!(released.ridge, RidgePath::LaggedCosine(1e-6, 1e-2));
        assert_eq!(
            (released.recipe.rule, released.recipe.learning_rate),
            (Rule::Adam, 3e-5)
        );
    }
    assert_eq!((old.recipe.epochs, new.recipe.epochs), (3, 2));
    let (old_class, new_class) = (old.class_recipe.unwrap(), new.class_recipe.unwrap());
    assert_eq!(
        (old_class.rule, old_class.learning_rate, old_class.epochs),
        (Rule::Sgd, 5.55e-5, 10)
    );
    assert_eq!(
        (new_class.rule, new_class.learning_rate, new_class.epochs),
        (Rule::AdamW, 2.8e-4, 5)
    );
    assert_eq!((old_class.weight_decay, new_class.weight_decay), (0.0, 0.0));
    assert_eq!(
        (old.class_ridge, new.class_ridge),
        (Some(RidgePath::Constant(1e-6)), None)
    );
    // One setting changed leaves the others, within a recipe too.
    let changed =
        with("preset = \"released-2025-02\"\nprojector = \"exact\"\n[class-recipe]\nepochs = 1\n");
    let settings = changed.settings();
    assert_eq!(settings["projector"].as_str(), Some("exact"));
    let recipe = settings["class-recipe"].as_table().unwrap();
    assert_eq!(recipe["epochs"].as_integer(), Some(1));
    assert_eq!(recipe["rule"].as_str(), Some("adamw"));
    assert_eq!(settings["recipe"]["epochs"].as_integer(), Some(2));
}

#[test]
fn settings_that_cannot_be_are_refused_by_their_names() {
    let entry = Entry::<Regression, Table>::find("muso").unwrap();
    let refused = |text: &str| match entry.with(toml::from_str(text).unwrap()) {
        Ok(_) => panic!("{text} is taken"),
        Err(error) => error.to_string(),
    };
    for (text, name) in [
        ("converged = 1.5", "converged"),
        ("staleness = 2", "staleness"),
        ("every = 0", "every"),
        ("rank = 0", "rank"),
        ("ridge = -1.0", "ridge"),
        ("class-ridge = { constant = -1.0 }", "class-ridge"),
        ("[recipe]\nlearning-rate = -1.0", "learning-rate"),
        ("[class-recipe]\nlearning-rate = -1.0", "learning-rate"),
        // What there is instead, the recipe's own settings among it.
        ("labls = \"soft\"", "recipe.learning-rate"),
        ("labls = \"soft\"", "sampling"),
    ] {
        let said = refused(text);
        let listed = said.contains("settings of MUSO");
        assert!(
            said.contains(name) && listed == text.starts_with("labls"),
            "{text}: {said}"
        );
    }
}

#[test]
fn a_ridge_is_a_number_or_a_path() {
    let with = |text: &str| {
        let entry = Entry::<Regression, Table>::find("muso").unwrap();
        entry.with(toml::from_str(text).unwrap())
    };
    let number = with("ridge = 1e-3").unwrap_or_else(|error| panic!("{error}"));
    let path = with("ridge = { constant = 0.001 }").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(number.settings(), path.settings());
    for (name, path) in [
        ("cosine", RidgePath::Cosine(1e-6, 1e-2)),
        ("lagged-cosine", RidgePath::LaggedCosine(1e-6, 1e-2)),
    ] {
        let text = format!("ridge = {{ {name} = [1e-6, 1e-2] }}");
        let wanted = Muso {
            ridge: path,
            ..Muso::default()
        };
        let found = with(&text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(found.settings(), wanted.settings());
    }
    let said = with("ridge = \"much\"")
        .err()
        .map(|error| error.to_string());
    let said = said.unwrap_or_default();
    assert!(
        said.contains("expected a number") && said.contains("cosine"),
        "{said}"
    );
}

#[test]
fn partners_go_round_and_are_of_another_class() {
    let labels = [0, 0, 1, 1, 1, 0, 0, 0, 0];
    let (retain, forget) = ([2, 3, 4], [0, 1, 5, 6, 7, 8]);
    let partners = Mix::partners(&retain, &forget, &labels, 3);
    assert_eq!(partners[..3], partners[3..]);
    let mut sorted = partners;
    sorted.sort_unstable();
    assert_eq!(sorted, [2, 2, 3, 3, 4, 4]);
}

/// The recipe of classes is for classes: with none of its epochs, the network stays as it is.
#[test]
fn a_class_has_a_recipe_of_its_own() {
    let world = World::new();
    let method = Muso {
        class_recipe: Some(Recipe {
            learning_rate: 0.0,
            ..once()
        }),
        recipe: once(),
        ..Muso::default()
    };
    let mut task = world.task();
    let moved = method.unlearn(&task, &mut ()).unwrap();
    assert!(head_matrix(&moved.head) != world.weights());
    task.of_class = true;
    let kept = method.unlearn(&task, &mut ()).unwrap();
    assert!(head_matrix(&kept.head) == world.weights());
}

/// Of rows that span the features, in more rows than there are: all have a score, and any may be drawn.
#[test]
fn column_select_samples_rows_of_networks() {
    let world = World::new();
    for rank in [None, Some(3)] {
        let after = world.after(&Muso {
            sampling: Sampling::ColumnSelect(0.5),
            rank,
            recipe: once(),
            ..Muso::default()
        });
        assert!(after.is_finite() && after != world.weights());
    }
}

/// Features of the initial network, here the rows themselves; the leave-one-out temperature, since these rows have no
/// variants.
#[test]
fn muso_s_trains_towards_the_target_form() {
    let world = World::new();
    let method = MusoS {
        refresh: 0.0,
        relative_ridge: 0.05,
        balance: 0.5,
        sharpen: 1.3,
        repeat: 1,
        recipe: once(),
        ..MusoS::default()
    };
    let targets = world.targets(&world.after(&method));
    let params = TargetParams {
        relative_ridge: 0.05,
        balance: 0.5,
    };
    let values = &world.feed.data.values;
    let (retained, forgotten) = (
        values.select_rows(&world.retain),
        values.select_rows(&FORGET),
    );
    let classes = world.feed.labels(&world.retain);
    let engine = &world.engine;
    let form = TargetForm::fit(engine, retained.as_rows(), &classes, CLASSES, &params).unwrap();
    let expected = form.labels(engine, forgotten.as_rows(), 1.3).unwrap();
    for (row, wanted) in FORGET.iter().zip(expected) {
        for (a, b) in targets.row(*row).iter().zip(&wanted) {
            assert!(
                (a - f64::from(*b)).abs() < 1e-4,
                "{:?} {wanted:?}",
                targets.row(*row)
            );
        }
    }
}

/// Variants of the rows say how sure the original network is of rows that it has not memorised, and the labels are made
/// as sure.
#[test]
fn muso_s_is_as_sure_as_the_original_is_beside_its_rows() {
    as_sure_beside(1);
    as_sure_beside(2);
}

fn as_sure_beside(variants: usize) {
    let mut world = World::new();
    world.feed.data.variants = variants;
    // Unsure enough for its entropy to be one that labels can have.
    let faint = world.weights();
    world.original = Regression::new(&faint.zip(&faint, |w, _| 0.05 * w));
    let method = MusoS {
        refresh: 0.0,
        sharpen: 1.3,
        repeat: 1,
        recipe: once(),
        ..MusoS::default()
    };
    let targets = world.targets(&world.after(&method));
    let rows = world.inputs(&world.retain);
    let mut entropy = 0.0;
    for scale in [2.0, 4.0].into_iter().take(variants) {
        // The feature that is always 1 is the network's own and stays.
        let varied = Matrix::from_fn(rows.rows(), WIDTH + 1, |i, j| {
            rows[(i, j)] * if j == WIDTH { 1.0 } else { scale }
        });
        let says = softmax(&matmul(&varied, &world.weights()), 1.0);
        entropy -= says.as_slice().iter().map(|p| p * p.ln()).sum::<f64>();
    }
    entropy /= (variants * world.retain.len()) as f64;
    let params = TargetParams {
        relative_ridge: 1e-3,
        balance: 0.5,
    };
    let (values, engine) = (&world.feed.data.values, &world.engine);
    let retained = values.select_rows(&world.retain);
    let classes = world.feed.labels(&world.retain);
    let form = TargetForm::fit(engine, retained.as_rows(), &classes, CLASSES, &params).unwrap();
    let sharpness = form.sharpness_of(entropy);
    assert!(
        (2e-3..5e2).contains(&sharpness),
        "{sharpness}: an entropy that can be had"
    );
    let forgotten = values.select_rows(&FORGET);
    let expected = form.labels(engine, forgotten.as_rows(), 1.3 * sharpness);
    for (row, wanted) in FORGET.iter().zip(expected.unwrap()) {
        for (a, b) in targets.row(*row).iter().zip(&wanted) {
            let found = targets.row(*row);
            assert!((a - f64::from(*b)).abs() < 1e-4, "{found:?} {wanted:?}");
        }
    }
}

/// Notes what a method tells while it works.
#[derive(Default)]
struct Heard {
    rows: Vec<(u64, u64)>,
    other: Vec<(u64, u64)>,
    epochs: Vec<usize>,
}

impl Watch<Regression> for Heard {
    fn rows(&mut self, done: u64, total: u64) -> bool {
        self.rows.push((done, total));
        true
    }

    fn other(&mut self, _: &str, done: u64, total: u64) -> bool {
        self.other.push((done, total));
        true
    }

    fn epoch(&mut self, session: &Session<Regression>) -> Result<()> {
        self.epochs.push(session.epoch);
        Ok(())
    }
}

#[test]
fn methods_tell_of_every_epoch_and_how_far_they_are() {
    let world = World::new();
    for entry in Entry::<Regression, Table>::ALL {
        let method = entry.with(toml::Table::new()).unwrap();
        let mut heard = Heard::default();
        method.unlearn(&world.task(), &mut heard).unwrap();
        let epochs = match (entry.key, method.settings().get("recipe")) {
            ("ssd", _) => 0,
            (_, Some(recipe)) => recipe["epochs"].as_integer().unwrap() as usize,
            (_, None) => world.recipe.epochs,
        };
        let expected: Vec<usize> = (1..=epochs).collect();
        assert_eq!(heard.epochs, expected, "{}", entry.name);
        for (done, total) in heard.rows.iter().chain(&heard.other) {
            assert!(done <= total, "{}: {done} of {total}", entry.name);
        }
    }
    // In two passes: over the forgotten rows and over all.
    let mut heard = Heard::default();
    let ssd = Ssd {
        batch: 3,
        ..Ssd::default()
    };
    ssd.unlearn(&world.task(), &mut heard).unwrap();
    let expected = [(3, 4), (4, 4), (3, 12), (6, 12), (9, 12), (12, 12)];
    assert_eq!(heard.rows, expected);
}

/// Without lanes, the passes over the features are done in the thread that is watched.
#[test]
fn muso_tells_how_far_its_features_are() {
    let mut world = World::new();
    world.feed.scheduler.depth = 0;
    let mut heard = Heard::default();
    let method = Muso {
        sampling: Sampling::Random(0.3),
        reference: Reference::Labels,
        recipe: once(),
        ..Muso::default()
    };
    method.unlearn(&world.task(), &mut heard).unwrap();
    // Three of the eight retained rows, since a share is rounded up, and the forgotten ones; a pass a batch.
    assert_eq!(heard.other, [(3, 7), (7, 7)]);
}

#[test]
fn a_ridge_follows_half_a_cosine() {
    let path = RidgePath::Cosine(1.0, 3.0);
    let quarter = 2.0 - 0.5_f64.sqrt();
    for (part, ridge) in [
        (-1.0, 1.0),
        (0.0, 1.0),
        (0.25, quarter),
        (0.5, 2.0),
        (1.0, 3.0),
        (2.0, 3.0),
    ] {
        let found = path.at(part, 4);
        assert!(
            (found - ridge).abs() < 1e-12,
            "{part}: {found}, not {ridge}"
        );
        assert_eq!(RidgePath::Constant(0.7).at(part, 4), 0.7);
    }
}

#[test]
fn a_task_has_what_was_not_said() {
    let world = World::new();
    let task = world.task();
    assert_eq!((task.seed, task.classes), (0, CLASSES));
    assert!(task.snapshots.is_empty() && task.untrained.is_none());
}

#[test]
fn rows_without_augmentation_refuse_it() {
    let mut world = World::new();
    world.recipe.augment = Some(muso::data::images::Augment::default());
    let recipe = world.recipe.clone();
    let task = world.task();
    let error = FineTune { recipe }.unlearn(&task, &mut ()).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Parameter {
                name: "augment",
                ..
            }
        ),
        "{error}"
    );
}
