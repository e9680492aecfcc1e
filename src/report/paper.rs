//! The values that the paper published, to stand beside ours.
//!
//! Only the linear table (Table 1: random features of MNIST, threes against sevens) is here; it is small enough to be
//! a constant, so a report needs no data file.
//!
//! ```
//! use muso::report::{Metric, paper};
//!
//! assert_eq!(paper::table1("full-class", "MUSO")[&Metric::DeltaW].mean, 1e-4);
//! // Its distance to itself is not in the table.
//! assert!(!paper::table1("full-class", "Retrain").contains_key(&Metric::DeltaW));
//! assert!(paper::table1("full-class", "MUSO (direct)").is_empty());
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

/// What Table 1 of the paper gives for a scenario (`full-class`, `sub-class`, `random`) and method; empty for
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

#[cfg(test)]
mod tests {
    use super::*;

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
