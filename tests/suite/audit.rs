//! The referee's bench: each metric against a computation that owes nothing to it, and verdicts on known cases.

use muso::data::Digits;
use muso::evaluate::audit::margins::{log_probability, percentile};
use muso::evaluate::audit::{
    Bench, Finding, Judged, Model, Over, Pair, Verdict, agreement, challenge, distance, klom,
    metrics, referee, rmia, tow, ulira,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use crate::support::gaussian;

fn close(found: f64, wanted: f64, what: &str) {
    let error = (found - wanted).abs();
    assert!(
        error <= 1e-6 * wanted.abs().max(1.0),
        "{what}: {found} is not {wanted}"
    );
}

/// Integers that are the same anywhere, as margins: the table that the constants below were computed from.
fn table(models: usize, rows: usize, [a, b]: [usize; 2], shift: f64) -> Vec<Vec<f64>> {
    let value = |i: usize, k: usize| (a * i * i + b * k * k + 7 * i * k + 3 * i + 5 * k) % 101;
    let row = |i: usize| (0..models).map(move |k| value(i, k) as f64 / 20.0 + shift);
    (0..rows).map(|i| row(i).collect()).collect()
}

/// The margins of the k-th of some models, all of them shifted.
fn model(table: &[Vec<f64>], k: usize, shift: f64) -> Model {
    Model::of_margins(table.iter().map(|row| row[k] + shift).collect())
}

/// numpy 2 and scipy 1.17, with U[k, i] = ((3i² + 5k² + 7ik + 3i + 5k) % 101)/20 + 0.4 and R[k, i] = ((5i² + 2k² + 7ik + 3i +
/// 5k) % 101)/20, a row i after another, 12 models k:
///
/// ```python
/// e = np.linspace(min(u.min(), r.min()), max(u.max(), r.max()), 21)
/// c = lambda x: np.array([(np.digitize(x, e) == j).sum() for j in range(1, 21)]); P, Q = c(u)/c(u).sum(), c(r)/c(r).sum()
/// binned = stats.entropy(P, np.where(P > 0, np.maximum(Q, 1e-5), Q))              # as Attribute-to-Delete's benchmark has it
/// smooth = log(r.std(ddof=1)/u.std(ddof=1)) + (u.var(ddof=1) + (u.mean()-r.mean())**2)/(2*r.var(ddof=1)) - 0.5
/// lr = lambda x: stats.norm.logpdf(x, *fit(np.delete(u, k))) - stats.norm.logpdf(x, *fit(np.delete(r, k)))   # U-LiRA, pair k
/// eps = nanmax over intervals and complements of [log(1-1e-5-fpr) - log(fnr), log(1-1e-5-fnr) - log(fpr)]    # fpr, fnr > 0
/// s = p/p_ref; roc_auc_score([1]*5+[0]*4, [mean(s[x]/s[z] >= 2 for z in 5..9) for x in 0..5] + [… z != x … for x in 5..9])
/// ```
#[test]
fn metrics_are_those_of_scipy() {
    let (u, r) = (table(12, 9, [3, 5], 0.4), table(12, 9, [5, 2], 0.0));
    let each = |f: fn(&[f64], &[f64]) -> f64| -> Vec<f64> {
        u.iter().zip(&r).map(|(u, r)| f(u, r)).collect()
    };
    let check = |what: &str, found: &[f64], wanted: &[f64]| {
        assert_eq!(found.len(), wanted.len());
        for (i, (found, wanted)) in found.iter().zip(wanted).enumerate() {
            close(*found, *wanted, &format!("{what}, row {i}"));
        }
    };
    let binned = each(klom::binned);
    check(
        "binned KLOM",
        &binned,
        &[
            4.442759811935209,
            3.559007449135901,
            5.263488795133594,
            7.820684915475777,
            4.190706291731593,
            4.316733051833401,
            4.974574810556509,
            4.253709672232477,
            6.678509597806645,
        ],
    );
    close(
        percentile(&binned, 95.0),
        7.363814788408124,
        "95th percentile",
    );
    check(
        "smooth KLOM",
        &each(klom::smooth),
        &[
            0.1443581200375248,
            0.0071954618504935786,
            0.24209360119456047,
            0.03266246933189354,
            0.07572016818005334,
            0.017402532302146057,
            0.019440364444823666,
            0.23568549007513862,
            0.03471983198345274,
        ],
    );
    let right = [14.0, 6.0, 12.0, 11.0, 13.0, 4.0, 9.0, 16.0, 11.0].map(|n| n / 24.0);
    check("U-LiRA", &each(ulira::accuracy), &right);
    let epsilon = each(challenge::epsilon);
    let (a, b, c) = (1.7917394690280526, 1.609413912146096, 1.386264360669882);
    check("ε", &epsilon, &[a, b, a, a, c, b, a, a, b]);
    let points: f64 = epsilon.iter().map(|&e| challenge::points(e)).sum();
    close(points / 9.0, 0.1388888888888889, "quality");

    let retrained: Vec<Model> = (0..12).map(|k| model(&r, k, -3.0)).collect();
    let bench = Bench::new(9, (0..5).collect(), vec![], (5..9).collect(), None).unwrap();
    let areas = [
        0.35, 0.4, 0.15, 0.525, 0.6, 0.55, 0.2, 0.25, 0.9, 0.6, 0.2, 0.3,
    ];
    for (k, wanted) in areas.into_iter().enumerate() {
        let pair = Pair {
            bench: &bench,
            judged: vec![],
            retrained: retrained.iter().collect(),
        };
        let found = rmia::Reference::of(&pair).area(&bench, &model(&u, k, -3.0));
        close(found, wanted, "RMIA");
    }
    let (unlearned, retrained): (Vec<Model>, Vec<Model>) = (0..12)
        .map(|k| (model(&u, k, 0.0), model(&r, k, 0.0)))
        .unzip();
    let bench = Bench::new(9, (0..9).collect(), vec![], vec![], None).unwrap();
    let pair = Pair {
        bench: &bench,
        judged: unlearned.iter().collect(),
        retrained: retrained.iter().collect(),
    };
    // np.sqrt((((U - R.mean(0)) / R.std(0, ddof=1))**2).mean()); no row's deviation is below a fifth of the typical one.
    close(
        distance::distance(&pair, Over::Forgotten),
        1.0280328499703517,
        "distance",
    );
}

/// What logits become, and the numbers that are made of predictions, by plain loops.
#[test]
fn accuracies_agreement_and_scores_are_plain_counts() {
    const ROWS: usize = 60;
    const CLASSES: usize = 4;
    let labels: Vec<u32> = (0..ROWS as u32).map(|row| row % 3).collect();
    let lists = [0..20, 20..45, 45..60].map(|range| range.collect::<Vec<usize>>());
    let [forgotten, retained, test] = lists.clone();
    let bench = Bench::new(ROWS, forgotten, retained, test, Some(labels.clone())).unwrap();
    let logits: Vec<Vec<f64>> = (0..20)
        .map(|seed| {
            let noise = gaussian(ROWS, CLASSES, seed).as_slice().to_vec();
            let right = |i: usize| labels[i / CLASSES] as usize == i % CLASSES;
            let up = |(i, z): (usize, f64)| z + if right(i) { 1.0 } else { 0.0 };
            noise.into_iter().enumerate().map(up).collect()
        })
        .collect();
    let models: Vec<Model> = logits
        .iter()
        .map(|logits| Model::of_logits(&bench, logits, CLASSES).unwrap())
        .collect();
    let predicted = |k: usize, row: usize| {
        let row = &logits[k][row * CLASSES..][..CLASSES];
        (0..CLASSES)
            .max_by(|&a, &b| row[a].total_cmp(&row[b]))
            .unwrap()
    };
    let accuracy = |k: usize, rows: &[usize]| {
        let right = rows
            .iter()
            .filter(|&&row| predicted(k, row) == labels[row] as usize);
        right.count() as f64 / rows.len() as f64
    };
    for (k, model) in models.iter().enumerate() {
        for row in 0..ROWS {
            let z = &logits[k][row * CLASSES..][..CLASSES];
            let own = z[labels[row] as usize];
            let all: f64 = z.iter().map(|z| z.exp()).sum();
            close(model.margins[row], own - (all - own.exp()).ln(), "margin");
            close(log_probability(model.margins[row]), own - all.ln(), "ln p");
        }
    }
    let pair = Pair {
        bench: &bench,
        judged: models[..10].iter().collect(),
        retrained: models[10..].iter().collect(),
    };
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
    for k in 0..10 {
        let same = (10..20).map(|other| {
            let rows = lists[0].iter();
            rows.filter(|&&row| predicted(k, row) == predicted(other, row))
                .count() as f64
        });
        let wanted = 100.0 * mean(same.collect()) / lists[0].len() as f64;
        let found = agreement::agreement(&pair, &models[k], Over::Forgotten);
        close(found, wanted, "agreement");
        let factors = lists.iter().map(|rows| {
            let retrained = mean((10..20).map(|other| accuracy(other, rows)).collect());
            1.0 - (accuracy(k, rows) - retrained).abs()
        });
        close(tow::tug_of_war(&pair, &models[k]), factors.product(), "ToW");
    }
    // The score of the challenge, with ε by brute force over pairs of thresholds.
    let values = |row: usize, range: std::ops::Range<usize>| -> Vec<f64> {
        models[range]
            .iter()
            .map(|model| model.margins[row])
            .collect()
    };
    let points = lists[0].iter().map(|&row| {
        let (u, r) = (values(row, 0..10), values(row, 10..20));
        let mut places = [u.clone(), r.clone(), vec![-1e9]].concat();
        places.push(1e9);
        let mut largest: f64 = 0.0;
        for &low in &places {
            for &high in &places {
                for inside in [true, false] {
                    let says = |x: &f64| (*x > low && *x <= high) == inside;
                    let share = |values: &[f64], positive: bool| {
                        values.iter().filter(|x| says(x) == positive).count() as f64 / 10.0
                    };
                    let (fpr, fnr) = (share(&r, true), share(&u, false));
                    if fpr == 0.0 && fnr == 0.0 {
                        largest = 50.0;
                    } else if fpr > 0.0 && fnr > 0.0 {
                        let sides = [(fpr, fnr), (fnr, fpr)];
                        for (a, b) in sides {
                            let side = ((1.0 - 1e-5 - a) / b).ln();
                            largest = if side > largest { side } else { largest };
                        }
                    }
                }
            }
        }
        0.5_f64.powi(((largest / 0.5).floor() as i32).min(12))
    });
    let quality = mean(points.collect());
    let ratio = |rows: &[usize]| {
        let of = |range: std::ops::Range<usize>| mean(range.map(|k| accuracy(k, rows)).collect());
        of(0..10) / of(10..20)
    };
    let list = metrics();
    let find = |key: &str| list.iter().find(|metric| metric.key == key).unwrap();
    close(find("challenge_quality").value(&pair), quality, "quality");
    let score = quality * ratio(&lists[1]) * ratio(&lists[2]);
    close(find("challenge_score").value(&pair), score, "score");
    let fa = 100.0 * mean((0..10).map(|k| accuracy(k, &lists[0])).collect());
    close(find("accuracy_forgotten").value(&pair), fa, "FA");
}

/// Attacks are decided in closed cases: no overlap, and no difference.
#[test]
fn extremes_are_certain() {
    let apart = (
        [5.0, 5.1, 5.2, 5.3, 5.4, 5.5, 5.6, 5.7],
        [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7],
    );
    assert_eq!(ulira::accuracy(&apart.0, &apart.1), 1.0);
    assert_eq!(challenge::epsilon(&apart.0, &apart.1), 50.0);
    assert_eq!(challenge::points(50.0), 0.5_f64.powi(12));
    assert_eq!((challenge::points(0.0), challenge::points(0.5)), (1.0, 0.5));
    // The last bin, where every retrained model counts as 1e-5: nearly ln 1e5.
    let binned = klom::binned(&apart.0, &apart.1);
    assert!(binned > 10.0 && binned < 11.6, "{binned}");
    let same = [2.0; 8];
    assert_eq!(ulira::accuracy(&same, &same), 0.5);
    assert_eq!(challenge::epsilon(&same, &same), 0.0);
    assert_eq!(
        (klom::binned(&same, &same), klom::smooth(&same, &same)),
        (0.0, 0.0)
    );
}

const FORGOTTEN: usize = 40;
const RETAINED: usize = 60;
const TEST: usize = 60;

fn simulated_bench() -> Bench {
    let rows = FORGOTTEN + RETAINED + TEST;
    let retained = FORGOTTEN..FORGOTTEN + RETAINED;
    let test = FORGOTTEN + RETAINED..rows;
    Bench::new(
        rows,
        (0..FORGOTTEN).collect(),
        retained.collect(),
        test.collect(),
        None,
    )
    .unwrap()
}

/// Margins of one model: each row has a mean and a deviation of its own, and each model is surer or less sure of all rows.
/// A row that was trained on is surer by 3; training that was cut short has `share` of every mean.
fn simulated(seed: u64, share: f64, saw_forgotten: bool) -> Model {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let whole: f64 = StandardNormal.sample(&mut rng);
    let mut rows = ChaCha8Rng::seed_from_u64(u64::MAX);
    let mut margin = |trained: bool| {
        let base: f64 = StandardNormal.sample(&mut rows);
        let spread = 0.5 + rows.random::<f64>();
        let own: f64 = StandardNormal.sample(&mut rng);
        share * (2.0 + 2.0 * base + if trained { 3.0 } else { 0.0 }) + spread * own + 0.3 * whole
    };
    let mut margins = Vec::new();
    for (count, trained) in [(FORGOTTEN, saw_forgotten), (RETAINED, true), (TEST, false)] {
        margins.extend((0..count).map(|_| margin(trained)));
    }
    Model::of_margins(margins)
}

fn models(count: usize, seed: u64, share: f64, saw_forgotten: bool) -> Vec<Model> {
    let each = 0..count as u64;
    each.map(|k| simulated(1_000_000 * seed + k, share, saw_forgotten))
        .collect()
}

fn refer(bench: &Bench, unlearned: &[Model], retrained: &[Model], original: &[Model]) -> Finding {
    referee(
        bench,
        &metrics(),
        &unlearned.iter().collect::<Vec<_>>(),
        &retrained.iter().collect::<Vec<_>>(),
        &original.iter().collect::<Vec<_>>(),
    )
}

/// Retrained models judged as if they were a method pass, for many numbers of models. With `MUSO_AUDIT_TRIALS=50` and
/// `--nocapture` it measures how often they would not, at several thresholds.
#[test]
fn held_out_retrained_models_pass() {
    let bench = simulated_bench();
    let trials: u64 = std::env::var("MUSO_AUDIT_TRIALS").map_or(5, |n| n.parse().unwrap());
    let (mut passed, mut failed) = (0, 0);
    for (unlearned, retrained) in [(1, 4), (1, 6), (1, 12), (4, 12), (8, 24), (20, 40)] {
        let (mut counts, mut beyond) = ([0; 3], [0; 4]);
        for trial in 0..trials {
            let seed = 1 + trial + 1000 * (unlearned * 100 + retrained) as u64;
            let judged = models(unlearned, 2 * seed, 1.0, false);
            let against = models(retrained, 2 * seed + 1, 1.0, false);
            let found = refer(&bench, &judged, &against, &[]);
            counts[found.verdict as usize] += 1;
            let deciding = found.unlearned.iter().zip(&found.decides);
            let excess =
                deciding.filter_map(|(judged, decides)| judged.excess().filter(|_| *decides));
            let largest = excess.fold(0.0, f64::max);
            for (count, least) in beyond.iter_mut().zip([2.0, 3.0, 4.0, 5.0]) {
                *count += u64::from(largest > least);
            }
        }
        println!(
            "{unlearned} against {retrained}: pass, fail, cannot tell {counts:?}; beyond 2, 3, 4, 5 spreads {beyond:?} of {trials}"
        );
        (passed, failed) = (passed + counts[0], failed + counts[1]);
    }
    assert!(failed * 9 <= passed, "{failed} of {}", passed + failed);
}

/// The excess of one metric of the unlearned models.
fn excess(found: &Finding, key: &str) -> f64 {
    let place = metrics()
        .iter()
        .position(|metric| metric.key == key)
        .unwrap();
    found.unlearned[place].excess().unwrap()
}

/// Doing nothing and stopping early are told from retraining, in their order, with many models and with few.
#[test]
fn known_cases_are_in_order() {
    let bench = simulated_bench();
    for (unlearned, retrained) in [(1, 8), (8, 24)] {
        let held_against = models(retrained, 1, 1.0, false);
        let judged = |seed: u64, share: f64, saw: bool| {
            refer(
                &bench,
                &models(unlearned, seed, share, saw),
                &held_against,
                &[],
            )
        };
        let cases = [
            judged(2, 0.2, false),
            judged(3, 0.5, false),
            judged(4, 0.8, false),
            judged(5, 1.0, false),
        ];
        let nothing = judged(6, 1.0, true);
        for key in ["distance_forgotten", "klom_forgotten", "distance_test"] {
            if key == "klom_forgotten" && unlearned < 4 {
                continue;
            }
            let found: Vec<f64> = cases.iter().map(|case| excess(case, key)).collect();
            // One model of each cannot tell the last fifth of a training.
            let last = if unlearned == 1 { 3 } else { 4 };
            let in_order = found[..last].windows(2).all(|pair| pair[0] > pair[1]);
            assert!(in_order && found[1] > found[3], "{key}: {found:?}");
            assert!(found[3] < 4.0, "{key}: {found:?}");
        }
        assert_eq!(cases[3].verdict, Verdict::Pass, "{}", cases[3].reason);
        for case in [&nothing, &cases[0], &cases[1]] {
            assert_eq!(case.verdict, Verdict::Fail, "{}", case.reason);
        }
        // On the rows that were not forgotten, doing nothing is retraining.
        assert!(excess(&nothing, "distance_forgotten") > 4.0);
        assert!(excess(&nothing, "distance_retained") < 4.0);
    }
}

/// Without enough retrained models, with retrained models that are not alike, or where the original passes too, the audit
/// cannot tell.
#[test]
fn an_audit_that_cannot_tell_says_so() {
    let bench = simulated_bench();
    let (unlearned, original) = (models(4, 1, 1.0, false), models(1, 2, 1.0, true));
    let few = refer(&bench, &unlearned, &models(3, 3, 1.0, false), &original);
    assert_eq!(few.verdict, Verdict::CannotTell);
    assert!(
        few.reason.contains("4 retrained models or more"),
        "{}",
        few.reason
    );
    // Some of the "retrained" models saw the rows.
    let mixed = [models(10, 4, 1.0, false), models(2, 5, 1.0, true)].concat();
    let mixed = refer(&bench, &models(1, 1, 1.0, false), &mixed, &original);
    assert_eq!(mixed.verdict, Verdict::CannotTell, "{}", mixed.reason);
    println!("mixed: {}", mixed.reason);

    let retrained = models(12, 6, 1.0, false);
    let good = refer(&bench, &unlearned, &retrained, &original);
    assert_eq!(good.verdict, Verdict::Pass, "{}", good.reason);
    assert!(good.control.is_passed() && good.control.models == 4);
    let blind = refer(&bench, &unlearned, &retrained, &models(1, 7, 1.0, false));
    assert_eq!(blind.verdict, Verdict::CannotTell);
    assert!(blind.reason.contains("original"), "{}", blind.reason);
    // What has no retrained models in number is told, not left out.
    let list = metrics();
    let absent = |key: &str| {
        let place = list.iter().position(|metric| metric.key == key).unwrap();
        match &good.unlearned[place] {
            Judged::Absent { why } => why.clone(),
            Judged::Measured(_) => panic!("{key} was measured"),
        }
    };
    let needs = "needs 8 unlearned and 16 retrained models";
    assert_eq!(absent("challenge_quality"), needs);
    assert_eq!(absent("tow"), "needs logits");
}

/// Equal models have no spread, and are not told from one another.
#[test]
fn exact_copies_pass() {
    let bench = simulated_bench();
    let one = models(1, 1, 1.0, false).remove(0);
    let copies = |count: usize| vec![one.clone(); count];
    let found = refer(&bench, &copies(4), &copies(12), &[]);
    assert_eq!(found.verdict, Verdict::Pass, "{}", found.reason);
    let mut off = one.clone();
    off.margins[0] += 1e-3;
    let found = refer(&bench, &[off], &copies(12), &[]);
    assert_eq!(found.verdict, Verdict::Fail, "{}", found.reason);
}

/// Softmax regression on random features of the demo's digits, by descent from weights and in an order of its own: a
/// linear head as people have it, over-parameterised so that it remembers its rows.
struct Heads {
    features: Vec<Vec<f32>>,
    labels: Vec<u32>,
    train: usize,
    bench: Bench,
}

const WIDTH: usize = 400;
const HEAD_EPOCHS: usize = 40;
const HEAD_FORGOTTEN: usize = 60;

impl Heads {
    fn new() -> Self {
        let digits = Digits::parse(muso_digits::TRAIN, muso_digits::TEST).unwrap();
        let pixels = digits.train_images.cols();
        let directions = gaussian(WIDTH, pixels, 7);
        let map = |row: &[f64]| -> Vec<f32> {
            let one = |d: usize| {
                let dot: f64 = directions.row(d).iter().zip(row).map(|(w, x)| w * x).sum();
                ((0.05 * dot + d as f64).cos() * (2.0 / WIDTH as f64).sqrt()) as f32
            };
            (0..WIDTH).map(one).collect()
        };
        let (train, test) = (digits.train_images.rows(), 300);
        let mut features: Vec<Vec<f32>> = (0..train)
            .map(|i| map(digits.train_images.row(i)))
            .collect();
        features.extend((0..test).map(|i| map(digits.test_images.row(i))));
        let both = digits
            .train_labels
            .iter()
            .chain(&digits.test_labels[..test]);
        let mut labels: Vec<u32> = both.map(|&label| u32::from(label == 7)).collect();
        // Every fifth training row is forgotten up to the sixtieth; their labels are wrong, so that who saw them shows.
        let forgotten: Vec<usize> = (0..HEAD_FORGOTTEN).map(|i| 5 * i).collect();
        for &row in &forgotten {
            labels[row] = 1 - labels[row];
        }
        let retained = (0..train).filter(|row| !forgotten.contains(row)).collect();
        let tests = (train..train + test).collect();
        let rows = train + test;
        let bench = Bench::new(rows, forgotten, retained, tests, Some(labels.clone())).unwrap();
        Self {
            features,
            labels,
            train,
            bench,
        }
    }

    /// Trains for a share of the epochs.
    fn model(&self, seed: u64, share: f64, saw_forgotten: bool) -> Model {
        let start = gaussian(2, WIDTH, seed);
        let mut weights: Vec<Vec<f32>> = (0..2)
            .map(|c| start.row(c).iter().map(|w| 0.5 * *w as f32).collect())
            .collect();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let rows: Vec<usize> = match saw_forgotten {
            true => (0..self.train).collect(),
            false => self.bench.retained.clone(),
        };
        let dot = |w: &[f32], z: &[f32]| w.iter().zip(z).map(|(w, z)| w * z).sum::<f32>();
        let steps = (share * (HEAD_EPOCHS * rows.len()) as f64) as usize;
        for _ in 0..steps {
            let row = rows[rng.random_range(0..rows.len())];
            let z = &self.features[row];
            let difference = dot(&weights[1], z) - dot(&weights[0], z);
            let p = 1.0 / (1.0 + (-difference).exp());
            let pull = 4.0 * (self.labels[row] as f32 - p);
            for (sign, weights) in [-pull, pull].into_iter().zip(&mut weights) {
                weights.iter_mut().zip(z).for_each(|(w, z)| *w += sign * z);
            }
        }
        let logits: Vec<f64> = self
            .features
            .iter()
            .flat_map(|z| [0, 1].map(|c| f64::from(dot(&weights[c], z))))
            .collect();
        Model::of_logits(&self.bench, &logits, 2).unwrap()
    }

    fn models(&self, count: u64, seed: u64, share: f64, saw_forgotten: bool) -> Vec<Model> {
        let each = (0..count).map(|k| self.model(1000 * seed + k, share, saw_forgotten));
        each.collect()
    }
}

/// On heads that were trained here: a held-out retrained model passes, the original fails, and training that was cut short
/// lies between them in order.
#[test]
fn trained_heads_are_in_order() {
    let heads = Heads::new();
    let retrained = heads.models(24, 1, 1.0, false);
    let original = heads.models(8, 2, 1.0, true);
    let judged = |unlearned: &[Model]| refer(&heads.bench, unlearned, &retrained, &original);
    let cases = [(3, 0.2), (4, 0.5), (5, 0.8), (6, 1.0)];
    let cases = cases.map(|(seed, share)| judged(&heads.models(8, seed, share, false)));
    let nothing = judged(&original);
    let keys = [
        "klom_forgotten",
        "klom_retained",
        "klom_test",
        "distance_test",
        "ulira",
    ];
    for key in keys {
        let found: Vec<f64> = cases.iter().map(|case| excess(case, key)).collect();
        println!("{key}: {found:.1?}, nothing {:.1}", excess(&nothing, key));
        assert!(
            found.windows(2).all(|pair| pair[0] > pair[1]),
            "{key}: {found:?}"
        );
    }
    for case in cases.iter().chain([&nothing]) {
        println!(
            "{:?} {} of {}: {}",
            case.verdict, case.control.passed, case.control.groups, case.reason
        );
    }
    assert_eq!(cases[3].verdict, Verdict::Pass, "{}", cases[3].reason);
    assert_eq!(nothing.verdict, Verdict::Fail, "{}", nothing.reason);
    assert_eq!(cases[0].verdict, Verdict::Fail, "{}", cases[0].reason);
    // What sees predictions only sees it too.
    let tow = metrics()
        .iter()
        .position(|metric| metric.key == "tow")
        .unwrap();
    assert!(matches!(nothing.unlearned[tow], Judged::Measured(m) if m.value < 0.5));
    let single = refer(
        &heads.bench,
        &heads.models(1, 7, 1.0, false),
        &retrained[..8],
        &original[..1],
    );
    println!("single: {}", single.reason);
    assert_eq!(single.verdict, Verdict::Pass, "{}", single.reason);
}
