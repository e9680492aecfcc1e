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

use super::table::{Metric, RETRAIN, Stat};

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

/// Tables 2 to 4: a header, then one line for each table, data set, scenario and method.
const NETWORKS: &str = include_str!("paper.csv");

/// The lines of [`NETWORKS`] without its header: table, network, data set, scenario, method; then means and deviations.
fn network_lines() -> impl Iterator<Item = ([&'static str; 5], Vec<f64>)> {
    NETWORKS.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        let (names, numbers) = fields.split_first_chunk::<5>()?;
        let numbers: Option<Vec<f64>> = numbers.iter().map(|x| x.parse().ok()).collect();
        Some((*names, numbers?))
    })
}

/// Returns the values of the paper's Tables 2 (ResNet18), 3 (VGG16-BN) and 4 (ResNet34) for a data set, scenario and
/// method; empty for names that are not in them.
///
/// Scenarios are written as there, in any case: `full-class (rocket)`, `sub-class (sea)`, `random (10%)`. Sub-classes
/// are of `CIFAR-20`, everything else in Table 2 is of `CIFAR-100`. AvgGap is worked out from the published means, as
/// the paper's own is; it has no spread.
pub fn network(table: u8, dataset: &str, scenario: &str, method: &str) -> BTreeMap<Metric, Stat> {
    let table = table.to_string();
    let find = |method: &str| {
        let wanted = [dataset, scenario, method];
        let mut lines = network_lines();
        let line = lines.find(|([number, _, names @ ..], _)| {
            let same = |(a, b): (&&str, &str)| a.eq_ignore_ascii_case(b);
            *number == table && names.iter().zip(wanted).all(same)
        });
        line.map(|(_, numbers)| numbers)
    };
    let Some(numbers) = find(method) else {
        return BTreeMap::new();
    };
    let metrics = [Metric::Ra, Metric::Ta, Metric::Fa, Metric::Mia];
    let stats = numbers.chunks_exact(2).map(|pair| Stat {
        mean: pair[0],
        std: pair[1],
    });
    let mut values: BTreeMap<Metric, Stat> = metrics.into_iter().zip(stats).collect();
    if method != RETRAIN
        && let Some(retrain) = find(RETRAIN)
    {
        let gaps = numbers.iter().zip(&retrain).step_by(2);
        let sum: f64 = gaps.map(|(a, b)| (a - b).abs()).sum();
        let gap = Stat {
            mean: sum / 4.0,
            std: f64::NAN,
        };
        values.insert(Metric::AvgGap, gap);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_network_tables_is_read() {
        assert_eq!(network_lines().count(), NETWORKS.lines().count() - 1);
        assert!(network_lines().all(|(_, numbers)| numbers.len() == 8));
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

    #[test]
    fn gaps_are_those_that_the_paper_prints() {
        for (table, dataset, scenario, method, printed) in [
            (2, "CIFAR-100", "full-class (Rocket)", "MUSO", 1.08),
            (2, "CIFAR-100", "full-class (Sea)", "BadTeacher", 14.74),
            (2, "CIFAR-100", "full-class (Cattle)", "SalUn", 0.25),
            (2, "CIFAR-20", "sub-class (Sea)", "MUSO", 3.01),
            (2, "CIFAR-20", "sub-class (Rocket)", "SSD", 4.59),
            (2, "CIFAR-100", "random (1%)", "Amnesiac", 11.51),
            (2, "CIFAR-100", "random (10%)", "MUSO", 10.85),
        ] {
            let gap = network(table, dataset, scenario, method)[&Metric::AvgGap].mean;
            assert!((gap - printed).abs() < 0.0051, "{scenario} {method}: {gap}");
        }
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
