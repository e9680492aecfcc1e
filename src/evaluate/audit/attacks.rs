//! Accuracies, and the membership attacks of [`Mia`](crate::evaluate::Mia): one number a model, held against the retrained
//! models' own.

use super::{Better, Metric, Needs, Over, Pair, Value};

const GOOD: &str = "Good is the retrained models' number, neither above nor below.";

fn percent(pair: &Pair<'_>, index: usize) -> f64 {
    pair.mean(|model| model.attacks.map_or(f64::NAN, |percents| percents[index]))
}

pub(super) fn metrics() -> Vec<Metric> {
    let accuracy = |over: Over, name: &str| Metric {
        key: format!("accuracy_{}", over.word()),
        name: name.to_owned(),
        over,
        what: "Accuracy in percent: RA on retained, TA on test, FA on forgotten rows.",
        good: GOOD,
        better: Better::Same,
        full: 100.0,
        needs: Needs::logits(over),
        decides: false,
        value: |pair, over| pair.mean(|model| pair.bench.accuracy(over, model)),
    };
    let attack = |key: &str, name: &str, what, decides, value: Value| Metric {
        key: key.to_owned(),
        name: name.to_owned(),
        over: Over::Forgotten,
        what,
        good: GOOD,
        better: Better::Same,
        full: 100.0,
        needs: Needs {
            logits: true,
            retained: true,
            test: true,
            ..Needs::models(1)
        },
        decides,
        value,
    };
    vec![
        accuracy(Over::Forgotten, "FA %"),
        accuracy(Over::Retained, "RA %"),
        accuracy(Over::Test, "TA %"),
        attack(
            "mia_entropy",
            "MIA, entropy, %",
            "Forgotten rows that a membership attack on the entropy, learnt from retained against test rows, calls members; \
             percent.",
            true,
            |pair, _| percent(pair, 0),
        ),
        attack(
            "mia_confidence",
            "MIA, confidence, %",
            "Forgotten rows that an attack on the probability of the label calls non-members; percent.",
            false,
            |pair, _| percent(pair, 1),
        ),
        attack(
            "mia_loss",
            "MIA, loss, %",
            "Cross-validated accuracy of telling forgotten rows from test rows by their loss; percent, 50 is a coin.",
            false,
            |pair, _| percent(pair, 2),
        ),
    ]
}
