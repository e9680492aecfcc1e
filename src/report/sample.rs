//! Realistic reports for the tests of this stage.

use super::{
    Accuracy, Change, Conditioning, Curve, HeadReport, Metric, Phase, Premise, Row, RowCounts,
    ScenarioTable, Stat, Table, Verification, paper,
};

/// The linear table as it comes out of five seeds.
pub(crate) fn table() -> Table {
    let scenarios = [
        ("full-class", 300, 300, 0.103),
        ("sub-class", 450, 150, 0.0545),
        ("random", 480, 120, 0.0452),
    ];
    Table {
        setting: "linear".into(),
        title: "MNIST, threes against sevens, 5,000 random Fourier features".into(),
        seeds: vec![0, 1, 2, 3, 4],
        scenarios: scenarios
            .into_iter()
            .map(|(name, retained, forgotten, start)| ScenarioTable {
                name: name.into(),
                retained,
                forgotten,
                test: 2_038,
                rows: rows(name, start),
                curves: curves(start),
            })
            .collect(),
        notes: vec![
            "Amnesiac and BadTeacher stop when FA is within 3 points of Retrain's: an oracle that needs the \
             retrained model, kept because the paper uses it."
                .into(),
            "Features are f32, every sum and solve is f64.".into(),
        ],
        command: "muso reproduce table1 --seeds 5".into(),
        seconds: 38.4,
        machine: "2 threads, avx2+fma".into(),
        version: "0.1.0".into(),
        ..Default::default()
    }
}

fn rows(scenario: &str, start: f64) -> Vec<Row> {
    let methods = [
        ("Retrain", 0.0, 0.0121),
        ("Pre-trained", start, 0.0133),
        ("Amnesiac", start * 1.012, 0.087),
        ("BadTeacher", start * 1.02, 0.094),
        ("MUSO", 1.1e-14, 1.94),
        ("MUSO (closed form)", 1.2e-27, 0.0139),
        ("MUSO (direct)", 2.1e-28, 0.0074),
    ];
    methods
        .into_iter()
        .map(|(method, delta, seconds)| {
            let published = if method.starts_with("MUSO") {
                "Retrain"
            } else {
                method
            };
            let mut values = paper::table1(scenario, published);
            for (metric, stat) in &mut values {
                if *metric != Metric::Ra {
                    stat.mean = (stat.mean + 0.37).min(100.0);
                }
            }
            let spread = if delta == start { 0.02 } else { 0.3 } * delta;
            values.insert(
                Metric::DeltaW,
                Stat {
                    mean: delta,
                    std: spread,
                },
            );
            let note = match method {
                "Amnesiac" | "BadTeacher" => Some("stopped by the oracle, see the notes".into()),
                "MUSO (direct)" => Some("one solve, no training".into()),
                _ => None,
            };
            Row {
                method: method.into(),
                values,
                paper: paper::table1(scenario, method),
                seconds: Stat {
                    mean: seconds,
                    std: 0.1 * seconds,
                },
                note,
            }
        })
        .collect()
}

fn curves(start: f64) -> Vec<Curve> {
    let epochs: Vec<f64> = (0..=1_500).map(f64::from).collect();
    let path = |method: &str, last: usize, f: &dyn Fn(f64) -> f64| Curve {
        method: method.into(),
        epochs: epochs[..=last].to_vec(),
        delta_w: epochs[..=last].iter().map(|&e| f(e)).collect(),
    };
    vec![
        path("Amnesiac", 25, &|e| start * (1.0 + 0.012 * (e / 25.0))),
        path("BadTeacher", 40, &|e| start * (1.0 + 0.02 * (e / 40.0))),
        path("MUSO", 1_500, &|e| start * (-0.02 * e).exp() + 1.1e-14),
    ]
}

/// A head that forgot a thousand of a million rows.
pub(crate) fn head() -> HeadReport {
    let phase = |name: &str, seconds| Phase {
        name: name.into(),
        seconds,
    };
    HeadReport {
        version: "0.1.0".into(),
        objective: "ridge".into(),
        route: "primal".into(),
        source: "labels".into(),
        rows: RowCounts {
            total: 1_000_000,
            retained: 999_000,
            forgotten: 1_000,
        },
        features: 512,
        bias: true,
        classes: 100,
        dtype: "f32".into(),
        stored: "f64".into(),
        ridge: 1e-3,
        conditioning: Conditioning {
            ridge_ratio: Some(5.4e8),
            condition: Some(1.2e7),
            min_pivot: 31.2,
            max_pivot: 733.1,
            factor: "cholesky".into(),
            rank: 513,
            residual_before: 4.2e-12,
            residual_after: 1.7e-16,
        },
        trace_ratio: Some(0.99998),
        change: Change { relative: 0.0132 },
        premise: Some(Premise {
            residual: 2.3e-4,
            meaning: "the given head is not quite the minimiser over all rows".into(),
        }),
        verify: Some(Verification {
            distance_relative: 3.1e-13,
            gradient_norm: 4.4e-10,
            distance_bound: Some(4.4e-7),
        }),
        accuracy: Some(Accuracy {
            retained_before: 88.41,
            retained_after: 88.39,
            forgotten_before: 91.2,
            forgotten_after: 87.6,
        }),
        warnings: vec![
            "tr(Π)/D is 0.99998: the retained rows pin down every direction, so the ridge alone decides how much \
             changes."
                .into(),
        ],
        phases: vec![
            phase("read", 0.41),
            phase("gram", 4.82),
            phase("factor", 0.0102),
            phase("solve", 0.0061),
            phase("verify", 1.93),
            phase("write", 0.0008),
        ],
        seconds: 7.18,
        threads: 2,
        peak_memory_bytes: Some(44 << 20),
    }
}
