//! The README's numbers are the program's: Table 1 there against what the demo says.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Rows of the table whose header begins with `header`, as cells without the outer bars.
fn table(file: &str, header: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().skip_while(|line| !line.starts_with(header));
    let rows: Vec<Vec<String>> = lines
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells = line.trim_matches('|').split('|');
            cells.map(|cell| cell.trim().to_owned()).collect()
        })
        .collect();
    assert!(rows.len() > 2, "{file} has no table {header}");
    assert_eq!(rows[0][1..], ["full-class", "sub-class", "random"]);
    rows[2..].to_vec()
}

/// Holds a number as written against the one computed: to the last digit that is written, or within a factor of two
/// where it is f64 rounding, whose digits depend on the processor.
fn agrees(written: &str, found: f64) -> bool {
    let value: f64 = written.parse().unwrap();
    if value < 1e-20 {
        return (value / 2.0..=value * 2.0).contains(&found);
    }
    match written.split_once('e') {
        Some((digits, _)) => {
            let decimals = digits.split_once('.').map_or(0, |(_, d)| d.len());
            format!("{found:.decimals$e}") == written
        }
        None => {
            let decimals = written.split_once('.').map_or(0, |(_, d)| d.len());
            format!("{found:.decimals$}") == written
        }
    }
}

/// Holds `mean ± std` or `mean` against the metric of a row's object with `mean` and `std`.
fn check(cell: &str, stats: &Value, metric: &str, place: &str) {
    let (mean, std) = match cell.split_once(" ± ") {
        Some((mean, std)) => (mean, Some(std)),
        None => (cell, None),
    };
    let pairs = [("mean", Some(mean)), ("std", std)];
    for (kind, written) in pairs {
        let Some(written) = written else { continue };
        let found = stats[kind][metric].as_f64().unwrap();
        assert!(
            agrees(written, found),
            "{place}: {kind} {written} in the text, {found:e} by the program"
        );
    }
}

#[test]
fn table_1_is_what_the_demo_prints() {
    let folder = tempfile::tempdir().unwrap();
    let (json, picture) = (folder.path().join("t.json"), folder.path().join("t.svg"));
    let mut demo = Command::new(env!("CARGO_BIN_EXE_muso"));
    demo.arg("demo").current_dir(folder.path());
    demo.arg("--json").arg(&json).arg("--picture").arg(&picture);
    let output = demo.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let said: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let find = |scenario: &str, method: &str| -> Value {
        let named = |list: &Value, key: &str, name: &str| {
            let list = list.as_array().unwrap();
            let found = list.iter().find(|entry| entry[key] == name);
            found.unwrap_or_else(|| panic!("no {name}")).clone()
        };
        let scenario = named(&said["scenarios"], "name", scenario);
        named(&scenario["rows"], "method", method)
    };

    let distances = table("README.md", "| Δ_w");
    assert_eq!(distances.len(), 6);
    let accuracies = table("docs/results.md", "| Retrain | full-class");
    assert_eq!(accuracies.len(), 2);
    // What stands behind a comma explains the method.
    let method = |cell: &str| cell.split(',').next().unwrap().to_owned();
    let distances = distances
        .into_iter()
        .map(|row| (method(&row[0]), "delta_w".to_owned(), row));
    let accuracies = accuracies
        .into_iter()
        .map(|row| ("Retrain".to_owned(), row[0].to_lowercase(), row));
    for (method, metric, row) in distances.chain(accuracies) {
        for (cell, scenario) in row[1..].iter().zip(["full-class", "sub-class", "random"]) {
            let place = format!("{method}, {metric}, {scenario}");
            let found = find(scenario, &method);
            let (ours, published) = match cell.split_once(" (") {
                Some((ours, published)) => (ours, Some(published.trim_end_matches(')'))),
                None => (cell.as_str(), None),
            };
            check(ours, &found, &metric, &place);
            if ours.contains('±') {
                assert!(printed.contains(ours), "{place}: {ours} is not printed");
            }
            if let Some(published) = published {
                check(published, &found["paper"], &metric, &place);
            }
        }
    }

    // The picture of the README is drawn by the same command, from other digits at most.
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/table1.svg");
    let [shipped, drawn] = [shipped, picture].map(|path| std::fs::read_to_string(path).unwrap());
    let marks = |svg: &str| svg.matches("<circle").count();
    assert!(shipped.len() < 100_000 && marks(&shipped) > 30);
    assert_eq!(marks(&shipped), marks(&drawn));
}
