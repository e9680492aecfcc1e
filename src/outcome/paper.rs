//! The values that the paper published, to stand beside ours.
//!
//! The linear table (Table 1: random features of MNIST, threes against sevens) is a constant, the tables of networks
//! (2 to 4) are a few kilobytes of text in the program; a report needs no data file.
//!
//! ```
//! use muso::outcome::{Metric, paper};
//!
//! assert_eq!(paper::table1("full-class", "MUSO")[&Metric::DeltaW].mean, 1e-4);
//! // Its distance to itself is not in the table.
//! assert!(!paper::table1("full-class", "Retrain").contains_key(&Metric::DeltaW));
//! assert!(paper::table1("full-class", "MUSO (direct)").is_empty());
//!
//! let muso = paper::network(2, "CIFAR-20", "sub-class (Rocket)", "MUSO");
//! assert_eq!((muso[&Metric::Mia].mean, muso[&Metric::Mia].std), (20.84, 4.20));
//! ```

use std::collections::BTreeMap;

use super::table::{Metric, Stat};

/// Metric, mean, standard deviation.
type Cell = (Metric, f64, f64);

/// Scenario, method and what was published for them.
#[rustfmt::skip]
const TABLE1: &[(&str, &str, &[Cell])] = &[
    ("full-class", "Retrain", &[(Metric::Ra, 100.0, 0.0), (Metric::Ta, 50.77, 1.8), (Metric::Fa, 5.33, 3.97)]),
    ("full-class", "Pre-trained", &[(Metric::Ra, 100.0, 0.0), (Metric::Ta, 94.42, 0.7), (Metric::Fa, 100.0, 0.0), (Metric::DeltaW, 0.1027, 0.0029)]),
    ("full-class", "Amnesiac", &[(Metric::Ra, 100.0, 0.0), (Metric::Ta, 56.0, 2.16), (Metric::Fa, 6.53, 2.24), (Metric::DeltaW, 0.1037, 0.0038)]),
    ("full-class", "BadTeacher", &[(Metric::Ra, 100.0, 0.0), (Metric::Ta, 56.38, 2.28), (Metric::Fa, 5.83, 4.2), (Metric::DeltaW, 0.1039, 0.0044)]),
    ("full-class", "MUSO", &[(Metric::Ra, 100.0, 0.0), (Metric::Ta, 50.87, 1.89), (Metric::Fa, 5.39, 4.17), (Metric::DeltaW, 0.0001, 0.001)]),
    ("sub-class", "Retrain", &[(Metric::Ra, 100.0, 0.0), (Metric::Ta, 92.1, 0.78), (Metric::Fa, 87.6, 1.69)]),
    ("sub-class", "Pre-trained", &[(Metric::Ra, 100.0, 0.0), (Metric::Ta, 94.58, 0.61), (Metric::Fa, 100.0, 0.0), (Metric::DeltaW, 0.0554, 0.0014)]),
    ("sub-class", "Amnesiac", &[(Metric::Ra, 100.0, 0.0), (Metric::Ta, 84.63, 2.27), (Metric::Fa, 88.2, 1.5), (Metric::DeltaW, 0.0566, 0.0015)]),
    ("sub-class", "BadTeacher", &[(Metric::Ra, 100.0, 0.0), (Metric::Ta, 83.25, 3.37), (Metric::Fa, 87.6, 1.74), (Metric::DeltaW, 0.0577, 0.0042)]),
    ("sub-class", "MUSO", &[(Metric::Ra, 100.0, 0.0), (Metric::Ta, 92.05, 0.74), (Metric::Fa, 87.3, 2.25), (Metric::DeltaW, 0.0001, 0.0)]),
    ("random", "Retrain", &[(Metric::Ra, 100.0, 0.0), (Metric::Ta, 92.63, 0.71), (Metric::Fa, 93.9, 0.92)]),
    ("random", "Pre-trained", &[(Metric::Ra, 100.0, 0.0), (Metric::Ta, 94.06, 0.65), (Metric::Fa, 100.0, 0.0), (Metric::DeltaW, 0.0485, 0.0034)]),
    ("random", "Amnesiac", &[(Metric::Ra, 96.8, 2.84), (Metric::Ta, 84.75, 1.59), (Metric::Fa, 94.2, 1.86), (Metric::DeltaW, 0.0501, 0.0043)]),
    ("random", "BadTeacher", &[(Metric::Ra, 95.0, 4.02), (Metric::Ta, 80.97, 4.61), (Metric::Fa, 93.4, 1.5), (Metric::DeltaW, 0.0506, 0.0036)]),
    ("random", "MUSO", &[(Metric::Ra, 100.0, 0.0), (Metric::Ta, 92.74, 0.7), (Metric::Fa, 93.9, 0.92), (Metric::DeltaW, 0.0002, 0.0001)]),
];

/// Returns the values of the paper's Table 1 for a scenario (`full-class`, `sub-class`, `random`) and method; empty for
/// names that are not in it.
pub fn table1(scenario: &str, method: &str) -> BTreeMap<Metric, Stat> {
    TABLE1
        .iter()
        .find(|(s, m, _)| *s == scenario && *m == method)
        .map(|(_, _, cells)| {
            let stat = |&(metric, mean, std): &Cell| (metric, Stat { mean, std });
            cells.iter().map(stat).collect()
        })
        .unwrap_or_default()
}

/// Tables 2 to 4: a header, then one line for each table, data set, scenario and method; AvgGap as it is printed.
const NETWORKS: &str = include_str!("paper.csv");

/// The lines of [`NETWORKS`] without its header: table, network, data set, scenario, method; then means and deviations,
/// and AvgGap where there is one.
fn network_lines() -> impl Iterator<Item = ([&'static str; 5], Vec<f64>)> {
    NETWORKS.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        let (names, numbers) = fields.split_first_chunk::<5>()?;
        let numbers = numbers.iter().filter(|x| !x.is_empty());
        let numbers: Option<Vec<f64>> = numbers.map(|x| x.parse().ok()).collect();
        Some((*names, numbers?))
    })
}

/// Returns the values of the paper's Tables 2 (ResNet18), 3 (VGG16-BN) and 4 (ResNet34) for a data set, scenario and
/// method; empty for names that are not in them.
///
/// Scenarios are written as there, in any case: `full-class (rocket)`, `sub-class (sea)`, `random (10%)`. Sub-classes
/// are of `CIFAR-20`, everything else in Table 2 is of `CIFAR-100`. AvgGap is the gap of the published means, as printed
/// there; it has no spread.
pub fn network(table: u8, dataset: &str, scenario: &str, method: &str) -> BTreeMap<Metric, Stat> {
    let table = table.to_string();
    let wanted = [dataset, scenario, method];
    let mut lines = network_lines();
    let line = lines.find(|([number, _, names @ ..], _)| {
        let same = |(a, b): (&&str, &str)| a.eq_ignore_ascii_case(b);
        *number == table && names.iter().zip(wanted).all(same)
    });
    let Some((_, numbers)) = line else {
        return BTreeMap::new();
    };
    let metrics = [Metric::Ra, Metric::Ta, Metric::Fa, Metric::Mia];
    let stats = numbers.chunks_exact(2).map(|pair| Stat {
        mean: pair[0],
        std: pair[1],
    });
    let mut values: BTreeMap<Metric, Stat> = metrics.into_iter().zip(stats).collect();
    if let Some(&mean) = numbers.get(8) {
        let std = f64::NAN;
        values.insert(Metric::AvgGap, Stat { mean, std });
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::RETRAIN;

    #[test]
    fn every_line_of_the_network_tables_is_read() {
        assert_eq!(network_lines().count(), NETWORKS.lines().count() - 1);
        let numbers = |method: &str| if method == RETRAIN { 8 } else { 9 };
        assert!(network_lines().all(|(names, found)| found.len() == numbers(names[4])));
        let lines = |number: &'static str| {
            let lines = network_lines();
            lines.filter(move |(names, _)| names[0] == number)
        };
        // Six methods in eight scenarios, in two, and in two.
        assert_eq!(lines("2").count(), 48);
        assert_eq!(lines("3").count(), 12);
        assert_eq!(lines("4").count(), 12);
        for ([table, _, dataset, scenario, method], _) in network_lines() {
            let table = table.parse().unwrap_or(0);
            let values = network(table, dataset, scenario, method);
            assert_eq!(values.len(), if method == RETRAIN { 4 } else { 5 });
        }
    }

    /// AvgGap of the paper from its own cells, in hundredths and quarters of them, which are exact: the gap of the means.
    /// A half may have been rounded either way.
    #[test]
    fn printed_gaps_are_those_of_the_printed_means_but_for_four() {
        let hundredths = |x: &f64| (100.0 * x).round() as i64;
        let means = |numbers: &[f64]| -> Vec<i64> {
            numbers[..8].iter().step_by(2).map(hundredths).collect()
        };
        let mut retrain = Vec::new();
        let (mut printed, mut others) = (0, Vec::new());
        for ([table, _, dataset, scenario, method], numbers) in network_lines() {
            if method == RETRAIN {
                retrain = means(&numbers);
                continue;
            }
            printed += 1;
            let own = means(&numbers);
            let quarters: i64 = own.iter().zip(&retrain).map(|(a, b)| (a - b).abs()).sum();
            if (quarters - 4 * hundredths(&numbers[8])).abs() > 2 {
                others.push((
                    dataset,
                    scenario,
                    method,
                    quarters as f64 / 400.0,
                    numbers[8],
                ));
            }
            let shown = network(table.parse().unwrap_or(0), dataset, scenario, method);
            assert_eq!(shown[&Metric::AvgGap].mean, numbers[8]);
        }
        assert_eq!(printed, 60);
        // One has two digits the other way round, the others are cut off where they should be rounded.
        assert_eq!(
            others,
            [
                ("CIFAR-20", "sub-class (sea)", "SalUn", 15.67, 15.76),
                ("CIFAR-10", "random (1%)", "SalUn", 8.3675, 8.36),
                (
                    "TinyImageNet-200",
                    "random (10%)",
                    "BadTeacher",
                    10.4775,
                    10.47
                ),
                ("TinyImageNet-200", "random (10%)", "MUSO", 8.0175, 8.01),
            ]
        );
    }

    #[test]
    fn networks_are_found_by_table_data_set_and_scenario() {
        assert_eq!(
            network(3, "CIFAR-10", "random (10%)", "SSD")[&Metric::Mia].mean,
            78.17
        );
        assert_eq!(
            network(4, "TinyImageNet-200", "RANDOM (1%)", "Retrain")[&Metric::Mia].mean,
            42.63
        );
        assert!(network(3, "CIFAR-100", "random (10%)", "SSD").is_empty());
        assert!(network(9, "CIFAR-10", "random (10%)", "SSD").is_empty());
    }

    #[test]
    fn every_cell_of_the_published_table_is_here() {
        let methods = ["Retrain", "Pre-trained", "Amnesiac", "BadTeacher", "MUSO"];
        let mut cells = 0;
        for scenario in ["full-class", "sub-class", "random"] {
            for method in methods {
                let values = table1(scenario, method);
                assert_eq!(values.len(), if method == "Retrain" { 3 } else { 4 });
                cells += values.len();
            }
        }
        assert_eq!(cells, 57);
    }

    #[test]
    fn spot_values() {
        let stat = |mean, std| Stat { mean, std };
        assert_eq!(
            table1("full-class", "Retrain")[&Metric::Ta],
            stat(50.77, 1.80)
        );
        assert_eq!(
            table1("sub-class", "BadTeacher")[&Metric::DeltaW],
            stat(0.0577, 0.0042)
        );
        assert_eq!(table1("random", "Amnesiac")[&Metric::Ra], stat(96.80, 2.84));
    }
}
