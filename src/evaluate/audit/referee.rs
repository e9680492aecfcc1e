//! The referee: equal counts, the floor, and a verdict that held-out retrained models must survive first.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use super::{Bench, Better, Metric, Model, Pair, mean};
use crate::seeds::Purpose;

/// How many spreads from the floor still count as what retrained models show of one another.
///
/// About a dozen numbers decide, and the spread is itself estimated, from few draws where there are few models: two or
/// three spreads are not rare among so many. `held_out_retrained_models_pass` of the tests measures it.
pub const SPREADS: f64 = 4.0;

/// Of fewer retrained models than this one is held out at a time, so that the others have a spread.
const HALVED: usize = 8;
/// Draws of models to hold out, where there are more than one can try all of.
const DRAWS: usize = 32;
/// The share of held-out groups that must pass; of fewer than ten, all but one.
const MUST_PASS: f64 = 0.9;
/// Rounds of cutting the retrained models into held-out groups.
const ROUNDS: usize = 4;
/// Fewest retrained models: one held out, and three whose spread is known.
const FEWEST: usize = 4;

/// What a metric says of models under judgement.
#[derive(Clone, Debug, PartialEq)]
pub enum Judged {
    /// It could not be computed.
    Absent {
        /// What it needs, as a phrase.
        why: String,
    },
    /// It was.
    Measured(Measured),
}

/// A number with the floor that stands beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The number at equal counts: mean over the draws.
    pub value: f64,
    /// The same of held-out retrained models.
    pub floor: f64,
    /// The standard deviation of the floor over the draws; none where there are fewer than three.
    pub spread: Option<f64>,
    /// How far the number is on the bad side of the floor, in spreads; negative on the good side.
    pub excess: Option<f64>,
    /// The number with all models on both sides, as papers give it; its floor is lower than the one here.
    pub with_all: f64,
}

impl Judged {
    /// Returns how far it is beyond the floor, in spreads, where it was measured.
    pub fn excess(&self) -> Option<f64> {
        match self {
            Self::Measured(measured) => measured.excess,
            Self::Absent { .. } => None,
        }
    }
}

fn pick<'a>(models: &[&'a Model], which: &[usize]) -> Vec<&'a Model> {
    which.iter().map(|&i| models[i]).collect()
}

/// One way of comparing at equal counts, by index.
struct Draw {
    judged: Vec<usize>,
    held_out: Vec<usize>,
    retrained: Vec<usize>,
}

/// Judges models on each of `list`: against retrained ones, beside retrained ones that were held out.
///
/// Of K retrained models as many are held out as are judged, at most half, and one of fewer than eight; models under
/// judgement are drawn where there are more than that. Where one is held out, each is in turn.
pub fn judge(
    bench: &Bench,
    list: &[Metric],
    judged: &[&Model],
    retrained: &[&Model],
) -> Vec<Judged> {
    let draws = draws(judged.len(), retrained.len());
    let pair = |judged, retrained| Pair {
        bench,
        judged,
        retrained,
    };
    list.iter()
        .map(|metric| {
            let Some(first) = draws.first() else {
                return Judged::Absent {
                    why: format!("needs {}", metric.needs.phrase()),
                };
            };
            let smallest = pair(
                pick(judged, &first.judged),
                pick(retrained, &first.retrained),
            );
            if let Some(why) = metric.needs.missing(&smallest) {
                return Judged::Absent { why };
            }
            let both: Vec<(f64, f64)> = draws
                .par_iter()
                .map(|draw| {
                    let against = || pick(retrained, &draw.retrained);
                    let value = metric.value(&pair(pick(judged, &draw.judged), against()));
                    let floor = metric.value(&pair(pick(retrained, &draw.held_out), against()));
                    (value, floor)
                })
                .collect();
            let (values, floors): (Vec<f64>, Vec<f64>) = both.into_iter().unzip();
            let with_all = metric.value(&pair(judged.to_vec(), retrained.to_vec()));
            let row = metric.full / bench.over(metric.over).len() as f64;
            measured(metric.better, row, &values, &floors, with_all)
        })
        .collect()
}

fn measured(better: Better, row: f64, values: &[f64], floors: &[f64], with_all: f64) -> Judged {
    let (value, floor) = (mean(values), mean(floors));
    if !value.is_finite() || !floor.is_finite() {
        return Judged::Absent {
            why: "is not finite on these rows".to_owned(),
        };
    }
    let squares: f64 = floors.iter().map(|x| (x - floor) * (x - floor)).sum();
    let spread = (floors.len() > 2).then(|| (squares / (floors.len() as f64 - 1.0)).sqrt());
    let beyond = match better {
        Better::Lower => value - floor,
        Better::Higher => floor - value,
        Better::Same => (value - floor).abs(),
    };
    // Models that agree to rounding, or on every row, have no spread to be told apart by.
    let least = row.max(1e-9 * (1.0 + floor.abs()));
    Judged::Measured(Measured {
        value,
        floor,
        spread,
        excess: spread.map(|spread| beyond / spread.max(least)),
        with_all,
    })
}

fn draws(judged: usize, retrained: usize) -> Vec<Draw> {
    if judged == 0 || retrained < 2 {
        return Vec::new();
    }
    let held = match retrained < HALVED {
        true => 1,
        false => judged.min(retrained / 2),
    };
    let count = if held == 1 && retrained <= DRAWS {
        retrained
    } else {
        DRAWS
    };
    (0..count)
        .map(|k| {
            let mut rng = ChaCha8Rng::seed_from_u64(Purpose::AuditDraws.nth(0, k as u64));
            let mut order = match held {
                1 => (0..retrained).map(|i| (i + k) % retrained).collect(),
                _ => shuffled(retrained, &mut rng),
            };
            let rest = order.split_off(held);
            let judged = match judged == held {
                true => (0..judged).collect(),
                false => shuffled(judged, &mut rng)[..held].to_vec(),
            };
            Draw {
                judged,
                held_out: order,
                retrained: rest,
            }
        })
        .collect()
}

/// The numbers below `count` in a random order.
fn shuffled(count: usize, rng: &mut ChaCha8Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for i in (1..count).rev() {
        // A product of 64 bits by a count: uniform to 2⁻⁶⁴ · count.
        let j = (u128::from(rng.next_u64()) * (i as u128 + 1)) >> 64;
        order.swap(i, j as usize);
    }
    order
}

/// What an audit can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No deciding number tells the unlearned models from retrained ones.
    Pass,
    /// One does.
    Fail,
    /// Retrained models do not pass, or even the original ones do.
    CannotTell,
}

/// How held-out retrained models fared when they were judged as if they were a method.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Control {
    /// Models in each held-out group; 0 where there were too few to hold any out.
    pub models: usize,
    /// Held-out groups that were judged.
    pub groups: usize,
    /// Those that passed.
    pub passed: usize,
    /// For each metric, how far the groups were beyond their floors, in spreads, at the median; none where it does not
    /// decide or could not be checked.
    pub median: Vec<Option<f64>>,
}

impl Control {
    /// Returns whether enough of the groups passed.
    pub fn is_passed(&self) -> bool {
        let least = (MUST_PASS * self.groups as f64).min(self.groups as f64 - 1.0);
        self.groups > 0 && self.passed as f64 >= least
    }
}

/// What the referee found, in the order of the metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The unlearned models.
    pub unlearned: Vec<Judged>,
    /// The original models, where there are any.
    pub original: Option<Vec<Judged>>,
    /// The held-out retrained models.
    pub control: Control,
    /// For each metric, whether the verdict rests on it: it is meant to, and held-out models were judged by it.
    pub decides: Vec<bool>,
    /// What the audit says of the unlearned models.
    pub verdict: Verdict,
    /// The reason for the verdict as a sentence.
    pub reason: String,
}

/// Judges held-out retrained models first, then the original and the unlearned ones, and gives a verdict.
pub fn referee(
    bench: &Bench,
    list: &[Metric],
    unlearned: &[&Model],
    retrained: &[&Model],
    original: &[&Model],
) -> Finding {
    let control = control(bench, list, unlearned.len(), retrained);
    let decides: Vec<bool> = control.median.iter().map(Option::is_some).collect();
    let judged = judge(bench, list, unlearned, retrained);
    let original = (!original.is_empty()).then(|| judge(bench, list, original, retrained));
    let (verdict, reason) = verdict(
        list,
        &decides,
        &control,
        retrained.len(),
        &judged,
        original.as_deref(),
    );
    Finding {
        unlearned: judged,
        original,
        control,
        decides,
        verdict,
        reason,
    }
}

/// Judges each of several groups of held-out retrained models by those that are left.
fn control(bench: &Bench, list: &[Metric], unlearned: usize, retrained: &[&Model]) -> Control {
    let count = retrained.len();
    let deciding: Vec<usize> = (0..list.len()).filter(|&i| list[i].decides).collect();
    let metrics: Vec<Metric> = deciding.iter().map(|&i| list[i].clone()).collect();
    let mut control = Control {
        median: vec![None; list.len()],
        ..Control::default()
    };
    if count < FEWEST || unlearned == 0 {
        return control;
    }
    // A third at most, so that enough are left to be held against each other in their turn.
    control.models = unlearned.min(count / 3).max(1);
    let groups: Vec<Vec<usize>> = match control.models {
        1 => (0..count).map(|i| vec![i]).collect(),
        models => (0..ROUNDS as u64)
            .flat_map(|round| {
                let mut rng = ChaCha8Rng::seed_from_u64(Purpose::AuditHeldOut.nth(0, round));
                let order = shuffled(count, &mut rng);
                let groups = order.chunks_exact(models);
                groups.map(<[usize]>::to_vec).collect::<Vec<_>>()
            })
            .collect(),
    };
    let judged: Vec<Vec<Judged>> = groups
        .par_iter()
        .map(|group| {
            let (held_out, rest): (Vec<_>, Vec<_>) =
                (0..count).partition(|index| group.contains(index));
            let of =
                |which: Vec<usize>| which.into_iter().map(|i| retrained[i]).collect::<Vec<_>>();
            judge(bench, &metrics, &of(held_out), &of(rest))
        })
        .collect();
    control.groups = judged.len();
    let passes = |judged: &&Vec<Judged>| {
        let largest = judged.iter().filter_map(Judged::excess);
        largest.fold(0.0, f64::max) <= SPREADS
    };
    control.passed = judged.iter().filter(passes).count();
    for (k, &index) in deciding.iter().enumerate() {
        let mut found: Vec<f64> = judged
            .iter()
            .filter_map(|group| group[k].excess())
            .collect();
        found.sort_by(f64::total_cmp);
        control.median[index] = found.get(found.len() / 2).copied();
    }
    control
}

fn verdict(
    list: &[Metric],
    decides: &[bool],
    control: &Control,
    retrained: usize,
    unlearned: &[Judged],
    original: Option<&[Judged]>,
) -> (Verdict, String) {
    let worst = |judged: &[Judged]| -> Option<(f64, usize)> {
        let deciding = judged.iter().enumerate().filter(|(i, _)| decides[*i]);
        let found = deciding.filter_map(|(i, judged)| Some((judged.excess()?, i)));
        found.max_by(|a, b| a.0.total_cmp(&b.0))
    };
    let name = |index: usize| {
        let metric: &Metric = &list[index];
        format!("{} ({} rows)", metric.name, metric.over.word())
    };
    let cannot = |why: String| (Verdict::CannotTell, format!("The audit cannot tell: {why}"));
    if control.groups == 0 {
        return cannot(format!(
            "it needs {FEWEST} retrained models or more, to know how much they differ from one another, and has {retrained}."
        ));
    }
    let Some((excess, index)) = worst(unlearned) else {
        return cannot("no number that could decide was computed.".to_owned());
    };
    if !control.is_passed() {
        return cannot(format!(
            "of {} groups of retrained models that were held out and judged as if they were a method, only {} pass. Either \
             there are too few retrained models, or they are not alike.",
            control.groups, control.passed
        ));
    }
    if excess > SPREADS {
        let beyond = |judged: &Judged| judged.excess().is_some_and(|excess| excess > SPREADS);
        let count = (0..list.len())
            .filter(|&i| decides[i] && beyond(&unlearned[i]))
            .count();
        let others = match count {
            1 => String::new(),
            2 => ", and so does another number".to_owned(),
            n => format!(", and so do {} other numbers", n - 1),
        };
        return (
            Verdict::Fail,
            format!(
                "The unlearned models are not like retrained ones: {} tells them apart, {excess:.1} spreads beyond what \
                 retrained models show of one another{others}.",
                name(index)
            ),
        );
    }
    if let Some((least, index)) = original.and_then(worst)
        && least <= SPREADS
    {
        return cannot(format!(
            "it does not even tell the original model from retrained ones ({}, which does best, is {least:.1} spreads beyond \
             the floor).",
            name(index)
        ));
    }
    (
        Verdict::Pass,
        format!(
            "Nothing here tells the unlearned models from retrained ones: no deciding number is more than {SPREADS} spreads \
             beyond what retrained models show of one another ({}, the farthest, is at {excess:.1}).",
            name(index)
        ),
    )
}
