//! `muso audit` from files to exit code.

use super::{Case, Run, Tensor, one_line, tensor_file};
use crate::support::gaussian;

const ROWS: usize = 90;
const CLASSES: usize = 3;

/// A `.npy` file.
fn npy(descr: &str, shape: &str, bytes: Vec<u8>) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}\n");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.bytes());
    file.extend(bytes);
    file
}

fn floats(values: &[f64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|&v| (v as f32).to_le_bytes())
        .collect()
}

/// Logits of some models: rows to 30 are forgotten, rows from 60 on are for tests; who was trained on a row is surer of it.
fn logits(models: usize, seed: u64, saw_forgotten: bool) -> Vec<f64> {
    let noise = gaussian(models * ROWS, CLASSES, seed);
    let value = |i: usize| {
        let (row, class) = (i / CLASSES % ROWS, i % CLASSES);
        let trained = (30..60).contains(&row) || row < 30 && saw_forgotten;
        let right = if row % CLASSES == class { 1.0 } else { 0.0 };
        noise.as_slice()[i] + right * if trained { 4.0 } else { 1.0 }
    };
    (0..models * ROWS * CLASSES).map(value).collect()
}

fn stacked(models: usize, seed: u64, saw_forgotten: bool) -> Vec<u8> {
    let bytes = floats(&logits(models, seed, saw_forgotten));
    npy("<f4", &format!("{models}, {ROWS}, {CLASSES}"), bytes)
}

/// Files of 4 unlearned models that are as if retrained, 12 retrained ones and an original one.
fn case() -> Case {
    let case = Case::empty();
    case.write("u.npy", &stacked(4, 1, false));
    case.write("r.npy", &stacked(12, 2, false));
    case.write("o.npy", &stacked(1, 3, true));
    let labels: Vec<u8> = (0..ROWS).map(|row| (row % CLASSES) as u8).collect();
    case.write("y.npy", &npy("|u1", &format!("{ROWS},"), labels));
    let list =
        |range: std::ops::Range<usize>| -> String { range.map(|i| format!("{i}\n")).collect() };
    case.write("forget.txt", list(0..30).as_bytes());
    let test: Vec<u8> = (60..90_i64).flat_map(i64::to_le_bytes).collect();
    case.write("test.npy", &npy("<i8", "30,", test));
    case
}

fn run(case: &Case) -> Run {
    Run::new(case, "audit")
        .set("--unlearned", "u.npy")
        .set("--retrained", "r.npy")
        .set("--original", "o.npy")
        .set("--labels", "y.npy")
        .set("--forget", "forget.txt")
        .set("--test", "test.npy")
}

/// What it prints with an exit code.
fn ends(run: &Run, code: i32) -> String {
    let output = run.output();
    let said = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{said}{printed}");
    assert_eq!(said, "");
    printed
}

#[test]
fn verdicts_are_exit_codes() {
    let case = case();
    let full = run(&case)
        .set("--json", "outcome.json")
        .set("--report", "audit.html");
    let printed = ends(&full, 0);
    for words in [
        "PASS",
        "KLOM, smooth *",
        "ToW",
        "absent  NeurIPS 2023",
        "needs 8 unlearned and 16",
    ] {
        assert!(printed.contains(words), "no {words:?} in\n{printed}");
    }
    let json = case.json();
    assert_eq!(
        (json["kind"].as_str(), json["verdict"].as_str()),
        (Some("audit"), Some("pass"))
    );
    assert_eq!(json["rows"]["retained"], 30);
    assert_eq!(json["models"]["retrained"], 12);
    let metric = |key: &str| -> serde_json::Value {
        let list = json["metrics"].as_array().unwrap();
        list.iter()
            .find(|metric| metric["key"] == key)
            .unwrap()
            .clone()
    };
    let klom = metric("klom_forgotten");
    assert!(
        klom["decides"].as_bool().unwrap() && klom["number"]["excess"].as_f64().unwrap() <= 4.0
    );
    assert!(metric("mia_entropy")["number"]["value"].is_f64());
    assert!(
        metric("distance_forgotten")["original"]["excess"]
            .as_f64()
            .unwrap()
            > 4.0
    );
    let page = std::fs::read_to_string(case.path("audit.html")).unwrap();
    assert!(page.contains("Nothing here tells") && page.matches("<svg").count() >= 3);

    // The original among the unlearned is told; so is a list of classes in place of rows.
    case.write("o4.npy", &stacked(4, 4, true));
    let printed = ends(&run(&case).set("--unlearned", "o4.npy"), 3);
    assert!(printed.contains("FAIL"), "{printed}");
    ends(
        &run(&case)
            .set("--unlearned", "o4.npy")
            .set("--forget", "class:0,1"),
        3,
    );
    // Three retrained models have no spread to speak of, and the numbers are shown all the same.
    case.write("r3.npy", &stacked(3, 2, false));
    let printed = ends(&run(&case).set("--retrained", "r3.npy"), 1);
    assert!(
        printed.contains("CANNOT TELL") && printed.contains("agreement %"),
        "{printed}"
    );
}

/// Margins alone, of one model a file or several, in either format, give what margins can give.
#[test]
fn margins_are_enough_for_most() {
    let case = case();
    let margins = |models: usize, seed: u64, up: f64| -> Vec<f64> {
        let noise = gaussian(models, ROWS, seed);
        let each = noise.as_slice().iter().enumerate();
        each.map(|(i, x)| x + if i % ROWS < 30 { up } else { 2.0 })
            .collect()
    };
    let tensor = Tensor {
        name: "margins".into(),
        dtype: "F32",
        shape: vec![12, ROWS],
        bytes: floats(&margins(12, 1, 0.0)),
    };
    case.write("r.safetensors", &tensor_file(&[tensor]));
    case.write(
        "u.npy",
        &npy("<f4", &format!("{ROWS},"), floats(&margins(1, 2, 0.0))),
    );
    case.write(
        "o.npy",
        &npy("<f4", &format!("1, {ROWS}"), floats(&margins(1, 3, 5.0))),
    );
    let alone = run(&case)
        .without("--labels")
        .set("--retrained", "r.safetensors");
    let printed = ends(&alone, 0);
    assert!(
        printed.contains("RMIA") && printed.contains("needs logits"),
        "{printed}"
    );
    let few = "needs 4 unlearned and 8 retrained models";
    assert!(
        printed.replace("\n        ", " ").contains(few),
        "{printed}"
    );
    assert_eq!(printed.matches("warning:").count(), 0);
    let printed = ends(&alone.without("--test"), 0);
    assert!(
        printed.contains("warning: no test rows are named (--test)"),
        "{printed}"
    );
}

#[test]
fn bad_input_is_one_line() {
    let case = case();
    let row = |bytes: Vec<f64>, shape: &str| npy("<f4", shape, floats(&bytes));
    case.write("short.npy", &stacked(4, 1, false)[..900]);
    case.write("nan.npy", &{
        let mut values = logits(1, 1, false);
        values[7] = f64::NAN;
        row(values, &format!("{ROWS}, {CLASSES}"))
    });
    case.write("other.npy", &row(vec![0.0; 60], "20, 3"));
    case.write("two.npy", &row(vec![0.5; ROWS * 2], &format!("{ROWS}, 2")));
    case.write("one.npy", &stacked(1, 2, false));
    case.write("far.txt", b"3\n90\n");
    case.write("both.txt", b"2\n70\n");
    case.write("empty.txt", b"# none\n");
    case.write(
        "minus.npy",
        &npy("<i8", "1,", (-1_i64).to_le_bytes().to_vec()),
    );
    case.write("labels.npy", &npy("|u1", "5,", vec![0; 5]));
    let good = run(&case);
    for (option, value, words) in [
        ("--unlearned", "none.npy", &["none.npy", "cannot open"][..]),
        ("--unlearned", "short.npy", &["short.npy", "truncated"]),
        ("--unlearned", "nan.npy", &["nan.npy", "NaN", "row 2"]),
        (
            "--unlearned",
            "other.npy",
            &["other.npy", "[20, 3]", "[90, C]"],
        ),
        ("--unlearned", "two.npy", &["two.npy", "label 2", "0 to 1"]),
        ("--unlearned", "r.npy", &["r.npy", "given twice"]),
        ("--unlearned", "y.npy", &["y.npy", "u8 [90]"]),
        (
            "--retrained",
            "one.npy",
            &["--retrained: 1 model", "2 or more"],
        ),
        (
            "--labels",
            "labels.npy",
            &["u.npy", "[4, 90, 3]", "5 labels"],
        ),
        (
            "--forget",
            "far.txt",
            &["far.txt", "row 90 is out of range"],
        ),
        ("--forget", "both.txt", &["row 70 is also in --forget"]),
        ("--forget", "empty.txt", &["empty.txt", "is empty"]),
        (
            "--forget",
            "minus.npy",
            &["minus.npy", "row -1 is negative"],
        ),
        ("--forget", "class:9", &["no row is of class 9"]),
        ("--forget", "random:0.1", &["--forget", "10 % at random"]),
        ("--retain", "empty.txt", &["empty.txt", "is empty"]),
        ("--retain", "both.txt", &["row 2 is also in --forget"]),
        (
            "--json",
            "u.npy",
            &["--json is the same file as --unlearned"],
        ),
    ] {
        let before = case.snapshot();
        one_line(&good.clone().set(option, value).output(), words);
        assert!(case.snapshot() == before, "{option} {value}");
    }
    one_line(&good.clone().without("--forget").output(), &["--forget"]);
    one_line(
        &good.without("--labels").output(),
        &["u.npy", "[4, 90, 3]", "logits need --labels"],
    );
}
