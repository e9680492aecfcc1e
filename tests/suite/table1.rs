//! The paper's Table 1: what it promises, and what it repeats.

use muso::Error;
use muso::data::Digits;
use muso::methods::ORACLE_POINTS;
use muso::outcome::{Metric, ScenarioTable, Stat, paper};
use muso::pipeline::Progress;
use muso::pipeline::table1::{Params, run};

use crate::support::engine;

fn digits() -> Digits {
    Digits::parse(muso_digits::TRAIN, muso_digits::TEST).unwrap()
}

fn value(scenario: &ScenarioTable, method: &str, metric: Metric) -> Stat {
    let row = scenario.rows.iter().find(|row| row.method == method);
    row.unwrap_or_else(|| panic!("no {method} in {}", scenario.name))
        .values[&metric]
}

/// Cells of the paper that five seeds miss by more than two of its standard deviations. The one there is lies at 2.002
/// of them: 0.05260 for 0.0554 ± 0.0014, with a spread over our seeds (0.0069) that is five times the published one.
const MISSES: [(&str, &str, Metric); 1] = [("sub-class", "Pre-trained", Metric::DeltaW)];

/// The whole experiment, once: exactness, agreement with the paper, and where the oracle stopped the baselines.
#[test]
fn five_seeds_keep_the_promises() {
    let mut heard = Heard {
        limit: u64::MAX,
        reports: Vec::new(),
    };
    let table = run(&engine(), &digits(), &Params::default(), &mut heard).unwrap();
    let names: Vec<&str> = table.scenarios.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["full-class", "sub-class", "random"]);
    assert_eq!(table.seeds.len(), 5);

    for scenario in &table.scenarios {
        for (method, limit) in [
            ("MUSO (closed form)", 1e-20),
            ("MUSO (direct)", 1e-20),
            ("MUSO", 1e-6),
        ] {
            let found = value(scenario, method, Metric::DeltaW).mean;
            assert!(found <= limit, "{}: {method} {found:e}", scenario.name);
            for metric in [Metric::Ra, Metric::Ta, Metric::Fa] {
                let retrained = value(scenario, "Retrain", metric);
                let found = value(scenario, method, metric);
                assert_eq!(found, retrained, "{}: {method} {metric:?}", scenario.name);
            }
        }
        let amnesiac = value(scenario, "Amnesiac", Metric::Fa).mean;
        let retrained = value(scenario, "Retrain", Metric::Fa).mean;
        assert!(
            (amnesiac - retrained).abs() < ORACLE_POINTS,
            "{}: Amnesiac stopped at FA {amnesiac}, Retrain has {retrained}",
            scenario.name
        );
    }

    let mut misses = Vec::new();
    for scenario in &table.scenarios {
        for method in ["Retrain", "Pre-trained"] {
            for metric in [Metric::Ta, Metric::Fa, Metric::DeltaW] {
                let published = paper::table1(&scenario.name, method);
                let Some(published) = published.get(&metric) else {
                    assert_eq!((method, metric), ("Retrain", Metric::DeltaW));
                    continue;
                };
                let ours = value(scenario, method, metric).mean;
                let gap = (ours - published.mean).abs();
                println!(
                    "{} {method} {metric:?}: {ours} for {} ± {}",
                    scenario.name, published.mean, published.std
                );
                assert!(
                    gap <= 2.01 * published.std,
                    "{} {method} {metric:?}",
                    scenario.name
                );
                if gap > 2.0 * published.std {
                    misses.push((scenario.name.as_str(), method, metric));
                }
            }
        }
    }
    assert_eq!(misses, MISSES);

    // Seeds differ; were they all the same, so would their numbers be.
    for scenario in &table.scenarios {
        assert!(value(scenario, "Retrain", Metric::Ta).std > 0.0);
        assert!(value(scenario, "Pre-trained", Metric::DeltaW).std > 0.0);
    }

    // The bar only ever moves forward, and gets to its end.
    let (first, last) = (heard.reports[0], heard.reports[heard.reports.len() - 1]);
    assert_eq!((first.0, last.0), (0, last.1));
    assert!(heard.reports.windows(2).all(|pair| pair[0].0 <= pair[1].0));
}

/// The same seed twice in one run: without any spread, every number was the same both times.
#[test]
fn a_seed_gives_its_numbers_again() {
    let params = Params {
        seeds: vec![3, 3],
        frequencies: 1_000,
        ..Params::default()
    };
    let table = run(&engine(), &digits(), &params, &mut ()).unwrap();
    for scenario in &table.scenarios {
        for row in &scenario.rows {
            for (metric, found) in &row.values {
                assert_eq!(
                    found.std, 0.0,
                    "{}: {} {metric:?}",
                    scenario.name, row.method
                );
            }
        }
    }
}

/// Hears every report and stops the run once `limit` units are done.
struct Heard {
    limit: u64,
    reports: Vec<(u64, u64)>,
}

impl Progress for Heard {
    fn at(&mut self, _: &str, done: u64, total: u64) -> bool {
        self.reports.push((done, total));
        done < self.limit
    }
}

#[test]
fn a_run_stops_when_it_is_told_to() {
    for limit in [0, 4] {
        let mut heard = Heard {
            limit,
            reports: Vec::new(),
        };
        let params = Params {
            frequencies: 200,
            ..Params::default()
        };
        let outcome = run(&engine(), &digits(), &params, &mut heard);
        assert!(matches!(outcome, Err(Error::Interrupted)), "{outcome:?}");
        assert_eq!(heard.reports.last().unwrap().0, limit, "it went on");
    }
}
