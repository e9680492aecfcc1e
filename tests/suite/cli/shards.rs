//! Sums in shards: the head of one process over all rows, whoever summed what, and no row counted twice.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use muso::engine::Matrix;

use super::{
    Case, FEATURES, HEAD, IDS, JSON, LABELS_OUT, OUT, Run, Tensor, head_tensors, large_features,
    one_hot, one_line, read_head, read_integers, read_tensor, reference, rounded, tensor_file,
    tensor_names, with_ones,
};
use crate::support::{gaussian, matmul, relative};

const SUMS: &str = "sums.safetensors";
const RIDGE: f64 = 0.3;

/// Rows with labels in three classes, their ridge optimum as head, and every seventh row to be forgotten.
struct Problem {
    /// As the file holds it, the bias column appended.
    z: Matrix,
    labels: Vec<i64>,
    forgotten: Vec<usize>,
}

impl Problem {
    fn new(rows: usize, cols: usize, dtype: &'static str, bias: bool, seed: u64) -> (Self, Case) {
        let features = rounded(dtype, &gaussian(rows, cols, seed));
        let problem = Self {
            z: if bias {
                with_ones(&features)
            } else {
                features.clone()
            },
            labels: (0..rows as i64).map(|i| (i * i + i / 3) % 3).collect(),
            forgotten: (0..rows).filter(|i| i % 7 == 3).collect(),
        };
        let case = Case::empty();
        let tensors = [
            Tensor::matrix("features", dtype, &features),
            Tensor::integers("labels", &problem.labels),
        ];
        case.write(FEATURES, &tensor_file(&tensors));
        let y = one_hot(&problem.labels, 3);
        let start = Matrix::zeros(problem.z.cols(), 3);
        let head = reference(&problem.z, &y, &start, RIDGE);
        case.write(HEAD, &tensor_file(&head_tensors(&head, bias, "")));
        let ids: String = problem.forgotten.iter().map(|i| format!("{i}\n")).collect();
        case.write(IDS, ids.as_bytes());
        (problem, case)
    }

    fn kept(&self) -> Vec<usize> {
        let kept = |i: &usize| !self.forgotten.contains(i);
        (0..self.z.rows()).filter(kept).collect()
    }

    /// G and ZᵀY of some rows, added up plainly.
    fn sums(&self, rows: &[usize]) -> [Matrix; 2] {
        let z = self.z.select_rows(rows).transpose();
        let y = one_hot(&self.labels, 3).select_rows(rows);
        [matmul(&z, &z.transpose()), matmul(&z, &y)]
    }

    /// The ridge optimum of the retained rows.
    fn retrained(&self) -> Matrix {
        let kept = self.kept();
        let y = one_hot(&self.labels, 3).select_rows(&kept);
        let start = Matrix::zeros(self.z.cols(), 3);
        reference(&self.z.select_rows(&kept), &y, &start, RIDGE)
    }
}

fn gram(case: &Case, out: &str) -> Run {
    Run::new(case, &format!("gram {FEATURES}"))
        .set("--head", HEAD)
        .set("--forget", IDS)
        .set("--out", out)
}

fn merge(case: &Case, shards: &[&str]) -> Run {
    Run::new(case, &format!("merge {}", shards.join(" "))).set("--out", SUMS)
}

/// `muso head` from sums.
fn solve(case: &Case) -> Run {
    Run::new(case, "head")
        .set("--sums", SUMS)
        .set("--head", HEAD)
        .set("--ridge", RIDGE)
        .set("--out", OUT)
}

/// `muso head` from the rows.
fn single(case: &Case) -> Run {
    solve(case)
        .without("--sums")
        .set("--features", FEATURES)
        .set("--forget", IDS)
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|k| format!("shard-{k}")).collect()
}

/// Sums the file in so many parts.
fn cut(case: &Case, count: usize) -> Vec<String> {
    let names = names(count);
    for (k, name) in names.iter().enumerate() {
        let run = gram(case, name).set("--shards", count).set("--shard", k);
        run.succeeds();
    }
    names
}

fn refused(case: &Case, run: &Run, words: &[&str]) {
    let before = case.snapshot();
    let line = one_line(&run.output(), words);
    assert!(case.snapshot() == before, "files changed after: {line}");
}

fn words(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

#[test]
fn merged_shards_are_one_process() {
    for (rows, cols, dtype, bias) in [
        (40, 7, "F32", true),
        (61, 9, "F64", false),
        (700, 33, "F16", true),
        (523, 20, "BF16", true),
    ] {
        let (problem, case) = Problem::new(rows, cols, dtype, bias, rows as u64);
        // k additions of products that are exact, each off by at most eps of the sum of magnitudes.
        let tolerance = rows as f64 * f64::EPSILON;
        for count in [1, 2, 3, 8] {
            let what = format!("{rows}×{cols} {dtype} in {count}");
            merge(&case, &words(&cut(&case, count))).succeeds();
            for (side, rows) in [
                ("retained", problem.kept()),
                ("forgotten", problem.forgotten.clone()),
            ] {
                let [gram, cross] = problem.sums(&rows);
                for (name, expected) in [("gram", gram), ("cross", cross)] {
                    let (stored, found) = read_tensor(&case.path(SUMS), &format!("{side}.{name}"));
                    assert_eq!(stored, "F64");
                    let gap = relative(&found, &expected);
                    assert!(gap < tolerance, "{what}: {side}.{name} is {gap:e} off");
                }
            }
            let listed: Vec<i64> = problem.forgotten.iter().map(|&i| i as i64).collect();
            assert_eq!(
                read_integers(&case.path(SUMS), "forgotten.rows"),
                listed,
                "{what}"
            );
            for from in ["labels", "head"] {
                let said = solve(&case).set("--from", from).succeeds();
                let merged = read_head(&case.path(OUT), bias);
                let bytes = fs::read(case.path(OUT)).unwrap();
                single(&case).set("--from", from).succeeds();
                let gap = relative(&merged, &read_head(&case.path(OUT), bias));
                assert!(gap < 100.0 * tolerance, "{what}, {from}: {gap:e}");
                let gap = relative(&merged, &problem.retrained());
                assert!(gap < 1e-9, "{what}, {from}: {gap:e} from the reference");
                assert!(!said.contains("warning"), "{said}");
                if count == 1 {
                    let same = fs::read(case.path(OUT)).unwrap() == bytes;
                    assert!(same, "{what}, {from}: one part is not the whole");
                }
            }
        }
    }
}

#[test]
fn every_mode_goes_on_from_sums() {
    let (_, case) = Problem::new(60, 6, "F32", true, 3);
    let init = head_tensors(&gaussian(7, 3, 4), true, "");
    case.write("init.st", &tensor_file(&init));
    merge(&case, &words(&cut(&case, 3))).succeeds();
    for objective in ["ridge", "interpolate"] {
        for from in ["labels", "head"] {
            for ridge in ["0", "0.3"] {
                let modes = |run: Run| {
                    run.set("--objective", objective)
                        .set("--from", from)
                        .set("--ridge", ridge)
                        .set("--init", "init.st")
                        .set("--json", JSON)
                        .succeeds();
                    let report = case.json();
                    (read_head(&case.path(OUT), true), report)
                };
                let (merged, said) = modes(solve(&case));
                let (alone, expected) = modes(single(&case));
                let what = format!("{objective}, {from}, {ridge}");
                let gap = relative(&merged, &alone);
                assert!(gap < 1e-12, "{what}: {gap:e}");
                for key in ["rows", "features", "classes", "dtype", "route", "source"] {
                    assert_eq!(said[key], expected[key], "{what}: {key}");
                }
                assert_eq!(
                    said["premise"]["meaning"], expected["premise"]["meaning"],
                    "{what}"
                );
            }
        }
    }
}

#[test]
fn bytes_depend_on_neither_order_nor_threads() {
    // Values of very different sizes: sums in another order differ in the last bits.
    let (_, case) = Problem::new(300, 5, "F64", true, 5);
    let rows = Matrix::from_fn(300, 5, |i, j| {
        gaussian(300, 5, 6)[(i, j)] * 10f64.powi((i * 7 % 9) as i32 - 4)
    });
    let tensors = [
        Tensor::matrix("features", "F64", &rows),
        Tensor::integers("labels", &(0..300).map(|i| i % 3).collect::<Vec<_>>()),
    ];
    case.write(FEATURES, &tensor_file(&tensors));
    let shards = cut(&case, 4);
    let read = |name: &str| fs::read(case.path(name)).unwrap();
    let mut seen = Vec::new();
    for order in [
        [0, 1, 2, 3],
        [3, 2, 1, 0],
        [2, 0, 3, 1],
        [1, 3, 0, 2],
        [1, 0, 2, 3],
    ] {
        let named: Vec<&str> = order.iter().map(|&k| shards[k].as_str()).collect();
        merge(&case, &named).succeeds();
        seen.push(read(SUMS));
    }
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
    // The order would show, were it that of the arguments: this is what is being ruled out.
    let part = |k: usize| read_tensor(&case.path(&shards[k]), "retained.gram").1;
    let add = |order: [usize; 4]| {
        let first = part(order[0]);
        let rest = order[1..].iter();
        rest.fold(first, |sum, &k| sum.zip(&part(k), |a, b| a + b))
    };
    assert!(add([0, 1, 2, 3]) != add([3, 2, 1, 0]));

    let summed = |threads: usize| {
        gram(&case, "again").set("--threads", threads).succeeds();
        read("again")
    };
    let one = summed(1);
    assert!([2, 3, 7].into_iter().all(|threads| summed(threads) == one));
}

#[test]
fn merging_can_be_repeated() {
    let (problem, case) = Problem::new(90, 4, "F32", true, 7);
    let shards = cut(&case, 5);
    let shards = words(&shards);
    merge(&case, &[shards[3], shards[0]])
        .set("--out", "some")
        .succeeds();
    merge(&case, &["some", shards[4], shards[1]])
        .set("--out", "more")
        .succeeds();
    refused(
        &case,
        &merge(&case, &["more", shards[3]]),
        &["rows 54..72 of features.safetensors", "more", "shard-3"],
    );
    let said = merge(&case, &[shards[2], "more"]).succeeds();
    assert!(
        said.contains("90 rows, 13 forgotten, 77 retained"),
        "{said}"
    );
    solve(&case).succeeds();
    let gap = relative(&read_head(&case.path(OUT), true), &problem.retrained());
    assert!(gap < 1e-12, "{gap:e}");
}

#[test]
fn parts_may_be_files_of_their_own() {
    let (problem, case) = Problem::new(50, 4, "F32", true, 8);
    let features = Matrix::from_fn(50, 4, |i, j| problem.z[(i, j)]);
    let mut named = Vec::new();
    for (k, rows) in [0..20, 20..50].into_iter().enumerate() {
        let picked: Vec<usize> = rows.clone().collect();
        let tensors = [
            Tensor::matrix("features", "F32", &features.select_rows(&picked)),
            Tensor::integers("labels", &problem.labels[rows.clone()]),
        ];
        let file = format!("part-{k}.st");
        case.write(&file, &tensor_file(&tensors));
        let gone = problem.forgotten.iter().filter(|i| rows.contains(i));
        let ids: String = gone.map(|i| format!("{}\n", i - rows.start)).collect();
        case.write(&format!("ids-{k}"), ids.as_bytes());
        Run::new(&case, "gram")
            .set("--features", &file)
            .set("--head", HEAD)
            .set("--forget", format!("ids-{k}"))
            .set("--out", format!("shard-{k}"))
            .succeeds();
        named.push(format!("shard-{k}"));
    }
    merge(&case, &words(&named)).succeeds();
    solve(&case).set("--json", JSON).succeeds();
    assert_eq!(case.json()["rows"]["total"], 50);
    let gap = relative(&read_head(&case.path(OUT), true), &problem.retrained());
    assert!(gap < 1e-12, "{gap:e}");
}

#[test]
fn a_class_can_be_forgotten_in_shards() {
    let (mut problem, case) = Problem::new(60, 4, "F32", true, 9);
    problem.forgotten = (0..60).filter(|&i| problem.labels[i] == 1).collect();
    for (name, rows) in [("a", "..1"), ("b", "1..31"), ("c", "31..")] {
        gram(&case, name)
            .set("--forget", "class:1")
            .set("--rows", rows)
            .succeeds();
    }
    merge(&case, &["a", "b", "c"]).succeeds();
    solve(&case).succeeds();
    let gap = relative(&read_head(&case.path(OUT), true), &problem.retrained());
    assert!(gap < 1e-12, "{gap:e}");
    refused(
        &case,
        &gram(&case, "d")
            .set("--forget", "class:3")
            .set("--rows", "..2"),
        &["class:3", "0 to 2"],
    );
}

#[test]
fn rows_are_never_counted_twice() {
    let (_, case) = Problem::new(40, 4, "F32", true, 10);
    for (name, rows) in [
        ("a", "0..20"),
        ("b", "19..40"),
        ("c", "20..40"),
        ("d", "5..6"),
    ] {
        gram(&case, name).set("--rows", rows).succeeds();
    }
    merge(&case, &["c", "a"]).succeeds();
    fs::copy(case.path("a"), case.path("copy")).unwrap();
    // The same file by another name and another place; the same rows in a file of another make.
    fs::copy(case.path(FEATURES), case.path("moved.st")).unwrap();
    let moved = gram(&case, "moved").set("--rows", "30..");
    Run {
        command: vec!["gram".into(), "moved.st".into()],
        ..moved
    }
    .succeeds();
    let (dtype, features) = read_tensor(&case.path(FEATURES), "features");
    assert_eq!(dtype, "F32");
    let labels = read_integers(&case.path(FEATURES), "labels");
    let tensors = [
        Tensor::integers("labels", &labels),
        Tensor::matrix("features", "F32", &features),
        Tensor::integers("other", &[1]),
    ];
    case.write("remade.st", &tensor_file(&tensors));
    let remade = gram(&case, "remade").set("--rows", "0..20");
    Run {
        command: vec!["gram".into(), "remade.st".into()],
        ..remade
    }
    .succeeds();
    for (shards, words) in [
        (
            &["a", "b"][..],
            &["rows 19..40 of features", "also in a"][..],
        ),
        (&["b", "c", "a"], &["also in"]),
        (&["a", "c", "d"], &["d: rows 5..6", "also in a"]),
        (&["a", "copy"], &["rows 0..20", "also in", "copy"]),
        (&["a", "a"], &["a: the file is given twice"]),
        (
            &["a", "c", "moved"],
            &["rows 30..40 of moved.st", "also in c"],
        ),
        (
            &["a", "c", "remade"],
            &["rows 0..20", "the same values", "remade"],
        ),
    ] {
        refused(&case, &merge(&case, shards), words);
    }
}

/// Repeated rows are rows like any other, and a shard that was left out is missed.
#[test]
fn repeated_rows_count_and_missing_ones_are_told() {
    let (_, case) = Problem::new(40, 4, "F32", true, 24);
    case.write(FEATURES, &large_features(3000, 4, 4));
    let head = head_tensors(&gaussian(5, 4, 25), true, "");
    case.write(HEAD, &tensor_file(&head));
    case.write(IDS, b"1500");
    let shards = cut(&case, 3);
    let shards = words(&shards);
    let said = merge(&case, &shards).succeeds();
    assert!(
        said.contains("3,000 rows") && !said.contains("warning"),
        "{said}"
    );
    for (part, gap) in [
        (&shards[1..], "rows 0..1000 of"),
        (&shards[..2], "rows 2000..3000 of"),
        (&[shards[0], shards[2]], "rows 1000..2000 of"),
        (
            &shards[1..2],
            "rows 0..1000 of features.safetensors, 2000..3000 of",
        ),
    ] {
        let said = merge(&case, part).succeeds();
        assert!(
            said.contains("warning: the sums leave out") && said.contains(gap),
            "{said}"
        );
        let said = solve(&case).succeeds();
        assert!(
            said.contains("the sums leave out") && said.contains(gap),
            "{said}"
        );
    }
}

#[test]
fn shards_that_do_not_fit_are_refused() {
    let (_, case) = Problem::new(40, 4, "F32", true, 11);
    gram(&case, "a").set("--rows", "..20").succeeds();
    let other = |name: &str, cols: usize, classes: usize, bias: bool, labels: bool| {
        let mut tensors = vec![Tensor::matrix("features", "F32", &gaussian(12, cols, 12))];
        if labels {
            tensors.push(Tensor::integers("labels", &[0; 12]));
        }
        case.write("other.st", &tensor_file(&tensors));
        let head = gaussian(cols + usize::from(bias), classes, 13);
        case.write(
            "other-head.st",
            &tensor_file(&head_tensors(&head, bias, "")),
        );
        let run = gram(&case, name).set("--head", "other-head.st");
        Run {
            command: vec!["gram".into(), "other.st".into()],
            ..run.set("--forget", "few")
        }
        .succeeds()
    };
    case.write("few", b"3 4");
    other("width", 5, 3, true, true);
    other("classes", 4, 2, true, true);
    other("bias", 4, 3, false, true);
    let said = other("nothing", 4, 3, true, false);
    assert!(
        said.contains("warning") && said.contains("neither"),
        "{said}"
    );
    gram(&case, "all")
        .without("--forget")
        .set("--rows", "20..")
        .succeeds();
    gram(&case, "few-ids")
        .set("--forget", "few")
        .set("--rows", "20..")
        .succeeds();
    gram(&case, "class")
        .set("--forget", "class:1")
        .set("--rows", "20..")
        .succeeds();
    for (name, words) in [
        ("width", &["D = 5 features", "D = 4 features, as in a"][..]),
        ("classes", &["C = 2 classes", "C = 3 classes, as in a"]),
        ("bias", &["no bias", "a bias, as in a"]),
        ("nothing", &["no labels", "C = 3 classes, as in a"]),
        ("all", &["nothing is to be forgotten", "list of rows"]),
        ("few-ids", &["another one", "list of rows"]),
        ("class", &["class:1", "list of rows"]),
        (FEATURES, &["not a file of sums", "muso gram"]),
        ("gone", &["gone", "cannot open"]),
    ] {
        let words = [&[name], words].concat();
        refused(&case, &merge(&case, &["a", name]), &words);
        // A part for a head of another shape is no better on its own.
        if ["width", "classes", "bias"].contains(&name) {
            let run = solve(&case).set("--sums", name);
            refused(&case, &run, &[name, "D = 4 features, a bias, C = 3", HEAD]);
        }
    }
    // The labels of one file must be from one file.
    case.write(
        "labels.st",
        &tensor_file(&[Tensor::integers("labels", &[2; 40])]),
    );
    gram(&case, "labels")
        .set("--labels", "labels.st")
        .set("--rows", "20..")
        .succeeds();
    refused(
        &case,
        &merge(&case, &["a", "labels"]),
        &["labels: rows 20..40", "labels from another file"],
    );

    // A later version of the format.
    let mut later = fs::read(case.path("a")).unwrap();
    let text = br#""version":"1""#;
    let at = later.windows(text.len()).position(|w| w == text).unwrap();
    later[at + text.len() - 2] = b'3';
    case.write("later", &later);
    refused(
        &case,
        &merge(&case, &["later"]),
        &["later", "`version`", "is 3", "expected 1"],
    );
}

#[test]
fn damaged_shards_are_refused() {
    let (_, case) = Problem::new(40, 4, "F32", true, 14);
    gram(&case, "a").set("--rows", "..20").succeeds();
    gram(&case, SUMS).set("--rows", "20..").succeeds();
    let whole = fs::read(case.path("a")).unwrap();
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let out = |run: Run| run.set("--out", "merged");
    for cut in [
        0,
        7,
        8,
        header / 2,
        header,
        whole.len() / 2,
        whole.len() - 1,
    ] {
        case.write("a", &whole[..cut]);
        refused(&case, &out(merge(&case, &[SUMS, "a"])), &["a: "]);
        refused(&case, &solve(&case).set("--sums", "a"), &["a: "]);
    }
    for at in [header, header + 77, whole.len() - 3] {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        case.write("a", &flipped);
        refused(&case, &out(merge(&case, &["a", SUMS])), &["a: ", "damaged"]);
        refused(&case, &solve(&case).set("--sums", "a"), &["a: ", "damaged"]);
    }
    // What it says of itself is covered as well.
    for (text, other) in [
        (&br#"\"first\":0"#[..], &br#"\"first\":1"#[..]),
        (br#"\"forgotten\":3"#, br#"\"forgotten\":2"#),
        (br#""bias":"true""#, br#""bias":"tree""#),
        (br#""format":"muso sums""#, br#""format":"muso sume""#),
    ] {
        let at = whole.windows(text.len()).position(|w| w == text);
        let at = at.unwrap_or_else(|| panic!("no {:?}", String::from_utf8_lossy(text)));
        let mut changed = whole.clone();
        changed[at..at + text.len()].copy_from_slice(other);
        case.write("a", &changed);
        refused(&case, &out(merge(&case, &["a", SUMS])), &["a: "]);
    }
}

#[test]
fn choices_of_rows_are_checked() {
    let (_, case) = Problem::new(12, 4, "F32", true, 15);
    for (option, value, words) in [
        ("--rows", "5..5", &["--rows = 5..5", "0..12"][..]),
        ("--rows", "6..5", &["--rows = 6..5"]),
        ("--rows", "0..13", &["--rows = 0..13", "0..12"]),
        ("--rows", "12..", &["--rows = 12..", "0..12"]),
        ("--rows", "..", &["--rows = ..", "A..B"]),
        ("--rows", "5", &["--rows = 5", "A..B"]),
        ("--rows", "-1..5", &["--rows = -1..5", "A..B"]),
        ("--rows", "1..+5", &["A..B"]),
        ("--rows", "0..99999999999999999999", &["A..B"]),
        ("--rows", "a\n..b", &["A..B"]),
    ] {
        refused(&case, &gram(&case, "a").set(option, value), words);
    }
    let shard = |of: &str, index: &str| gram(&case, "a").set("--shards", of).set("--shard", index);
    refused(&case, &shard("4", "4"), &["--shard = 4", "0 to 3"]);
    refused(&case, &shard("0", "0"), &["--shards = 0", "1 to 12"]);
    refused(&case, &shard("13", "0"), &["--shards = 13", "1 to 12"]);
    refused(&case, &gram(&case, "a").set("--shards", "2"), &["--shard"]);
    refused(&case, &gram(&case, "a").set("--shard", "0"), &["--shards"]);
    refused(
        &case,
        &shard("2", "0").set("--rows", "..3"),
        &["--rows", "cannot be used with"],
    );
    refused(&case, &gram(&case, "a.npy"), &["a.npy", "safetensors"]);
    refused(&case, &gram(&case, FEATURES), &["--out", "FEATURES"]);
    refused(
        &case,
        &gram(&case, "a").set("--json", "a"),
        &["--json", "--out"],
    );
    refused(
        &case,
        &gram(&case, "a").set("--features", FEATURES),
        &["--features"],
    );
    refused(&case, &gram(&case, "a").set("--device", "cuda"), &["cuda"]);
    refused(&case, &merge(&case, &[]), &["SHARD"]);
    gram(&case, SUMS).succeeds();
    refused(&case, &merge(&case, &[SUMS]), &["--out", "SHARD"]);
    // Twelve parts of one row each are still the whole.
    let shards = cut(&case, 12);
    merge(&case, &words(&shards))
        .set("--out", "merged")
        .succeeds();
    let single = read_tensor(&case.path(SUMS), "retained.gram").1;
    let merged = read_tensor(&case.path("merged"), "retained.gram").1;
    assert!(relative(&merged, &single) < 1e-14);
}

#[test]
fn rows_can_be_forgotten_later() {
    for forget in [IDS, "class:1"] {
        let (mut problem, case) = Problem::new(60, 5, "F32", true, 16);
        if forget != IDS {
            problem.forgotten = (0..60).filter(|&i| problem.labels[i] == 1).collect();
        }
        for (name, rows) in [("a", "..31"), ("b", "31..")] {
            gram(&case, name)
                .without("--forget")
                .set("--rows", rows)
                .succeeds();
        }
        merge(&case, &["b", "a"]).succeeds();
        let names = tensor_names(&case.path(SUMS));
        assert_eq!(names, ["retained.cross", "retained.gram"]);
        for from in ["labels", "head"] {
            let said = solve(&case)
                .set("--features", FEATURES)
                .set("--forget", forget)
                .set("--from", from)
                .set("--labels-out", LABELS_OUT)
                .succeeds();
            let new = read_head(&case.path(OUT), true);
            let gap = relative(&new, &problem.retrained());
            assert!(gap < 1e-12, "{forget}, {from}: {gap:e}");
            assert!(!said.contains("warning"), "{said}");
            let labels = read_tensor(&case.path(LABELS_OUT), "targets").1;
            let expected = matmul(&problem.z.select_rows(&problem.forgotten), &new);
            assert!(relative(&labels, &expected) < 1e-13, "{forget}");
        }
        // Some were forgotten when the sums were made, some are now.
        case.write("first", b"1 2 40");
        problem.forgotten = vec![1, 2, 5, 33, 40];
        gram(&case, SUMS).set("--forget", "first").succeeds();
        case.write("then", b"33\n5");
        let later = solve(&case).set("--features", FEATURES);
        let later = later.set("--forget", "then");
        let said = later.succeeds();
        assert!(said.contains("60 rows, 5 forgotten, 55 retained"), "{said}");
        let gap = relative(&read_head(&case.path(OUT), true), &problem.retrained());
        assert!(gap < 1e-12, "{gap:e}");
        // What is forgotten stays so when it is asked for again.
        case.write("then", b"33 40 5 1");
        let bytes = fs::read(case.path(OUT)).unwrap();
        let said = later.succeeds();
        assert!(said.contains("60 rows, 5 forgotten, 55 retained"), "{said}");
        assert!(fs::read(case.path(OUT)).unwrap() == bytes);
        case.write("then", b"2 40");
        later.succeeds();
        problem.forgotten = vec![1, 2, 40];
        let gap = relative(&read_head(&case.path(OUT), true), &problem.retrained());
        assert!(gap < 1e-12, "{gap:e}");
        refused(
            &case,
            &later.clone().set("--labels-out", LABELS_OUT),
            &["--labels-out", "forgotten rows"],
        );
    }
}

#[test]
fn only_rows_of_the_sums_can_be_forgotten_later() {
    let (problem, case) = Problem::new(40, 4, "F32", true, 17);
    gram(&case, SUMS)
        .without("--forget")
        .set("--rows", "..30")
        .succeeds();
    let run = |features: &str, forget: &str| {
        solve(&case)
            .set("--features", features)
            .set("--forget", forget)
    };
    case.write("in", b"29");
    run(FEATURES, "in").succeeds();
    case.write("beyond", b"29 30");
    refused(
        &case,
        &run(FEATURES, "beyond"),
        &[FEATURES, "row 30 is not in", SUMS],
    );
    refused(&case, &run(FEATURES, "class:1"), &["is not in", SUMS]);
    let mut features = Matrix::from_fn(40, 4, |i, j| problem.z[(i, j)]);
    features[(0, 0)] += 1.0;
    let tensors = [
        Tensor::matrix("features", "F32", &features),
        Tensor::integers("labels", &problem.labels),
    ];
    case.write("edited.st", &tensor_file(&tensors));
    refused(
        &case,
        &run("edited.st", "in"),
        &["edited.st", "no row in", SUMS],
    );
    case.write(
        "labels.st",
        &tensor_file(&[Tensor::integers("labels", &[1; 40])]),
    );
    refused(
        &case,
        &run(FEATURES, "in").set("--labels", "labels.st"),
        &["other labels"],
    );
    // A class is not one file's affair.
    Run {
        command: vec!["gram".into(), "edited.st".into()],
        ..gram(&case, "edited").without("--forget")
    }
    .succeeds();
    merge(&case, &[SUMS, "edited"])
        .set("--out", "both")
        .succeeds();
    refused(
        &case,
        &run(FEATURES, "class:1").set("--sums", "both"),
        &["both", "other files"],
    );
}

/// Where forgotten rows outweigh the rest, subtracting costs digits, and keeping sums apart from the start does not.
#[test]
fn digits_that_subtracting_costs_are_told() {
    let (mut problem, case) = Problem::new(40, 4, "F64", true, 18);
    let mut features = Matrix::from_fn(40, 4, |i, j| problem.z[(i, j)]);
    features[(6, 2)] = 3e5;
    problem.z = with_ones(&features);
    problem.forgotten = vec![6];
    let tensors = [
        Tensor::matrix("features", "F64", &features),
        Tensor::integers("labels", &problem.labels),
    ];
    case.write(FEATURES, &tensor_file(&tensors));
    case.write(IDS, b"6");
    gram(&case, SUMS).succeeds();
    let said = solve(&case).succeeds();
    assert!(!said.contains("subtracting"), "{said}");
    let apart = relative(&read_head(&case.path(OUT), true), &problem.retrained());
    gram(&case, SUMS).without("--forget").succeeds();
    let later = solve(&case)
        .set("--features", FEATURES)
        .set("--forget", IDS);
    let said = later.succeeds();
    assert!(
        said.contains("cost about 10 of 16 digits in feature 2"),
        "{said}"
    );
    let subtracted = relative(&read_head(&case.path(OUT), true), &problem.retrained());
    assert!(apart < 1e-13, "{apart:e}");
    assert!(
        subtracted > 1e3 * apart && subtracted < 1e-4,
        "{subtracted:e}"
    );
}

#[test]
fn what_needs_rows_is_refused_with_sums() {
    let (problem, case) = Problem::new(9, 20, "F32", true, 19);
    gram(&case, SUMS).succeeds();
    let sums = solve(&case);
    refused(
        &case,
        &sums.clone().flag("--verify"),
        &["--verify", "--sums"],
    );
    refused(
        &case,
        &sums.clone().set("--labels-out", LABELS_OUT),
        &["--labels-out", "--sums"],
    );
    refused(
        &case,
        &sums.clone().without("--ridge"),
        &[SUMS, "8 rows are retained", "order 21", "--ridge above 0"],
    );
    refused(
        &case,
        &sums.clone().set("--ridge", "0"),
        &[SUMS, "8 rows are retained"],
    );
    refused(&case, &sums.clone().set("--forget", IDS), &["--features"]);
    refused(
        &case,
        &sums.clone().set("--features", FEATURES),
        &["--forget"],
    );
    refused(&case, &sums.clone().without("--sums"), &["--features"]);
    refused(
        &case,
        &sums.clone().set("--labels", FEATURES),
        &["--features"],
    );
    refused(
        &case,
        &sums.clone().set("--out", SUMS),
        &["--out", "--sums"],
    );
    // With a ridge the two routes are the same, and sums do for fewer rows than features.
    sums.succeeds();
    let gap = relative(&read_head(&case.path(OUT), true), &problem.retrained());
    assert!(gap < 1e-12, "{gap:e}");

    // Nothing forgotten: a fit of what is there, and it says so; but no update.
    gram(&case, SUMS).without("--forget").succeeds();
    let said = sums.succeeds();
    assert!(said.contains("no row in the sums is forgotten"), "{said}");
    refused(
        &case,
        &sums.set("--from", "head"),
        &[SUMS, "no row in it is forgotten"],
    );
}

#[test]
fn sums_without_labels() {
    let (_, case) = Problem::new(40, 4, "F32", true, 20);
    let features = read_tensor(&case.path(FEATURES), "features").1;
    case.write(
        FEATURES,
        &tensor_file(&[Tensor::matrix("features", "F32", &features)]),
    );
    gram(&case, "a").set("--rows", "..9").succeeds();
    gram(&case, "b").set("--rows", "9..").succeeds();
    merge(&case, &["a", "b"]).succeeds();
    let names = tensor_names(&case.path(SUMS));
    assert_eq!(names, ["forgotten.gram", "forgotten.rows", "retained.gram"]);
    let run = |run: Run| run.set("--objective", "interpolate").set("--from", "head");
    run(solve(&case)).succeeds();
    let merged = read_head(&case.path(OUT), true);
    run(single(&case)).succeeds();
    assert!(relative(&merged, &read_head(&case.path(OUT), true)) < 1e-13);
    refused(&case, &solve(&case), &[SUMS, "without labels"]);
}

#[test]
fn reports_of_sums() {
    let (_, case) = Problem::new(40, 4, "F16", true, 21);
    let said = gram(&case, "a")
        .set("--rows", "10..")
        .set("--json", JSON)
        .succeeds();
    assert!(
        said.contains("rows 10..40 of features.safetensors"),
        "{said}"
    );
    let json = case.json();
    assert_eq!(json["kind"], "gram");
    assert_eq!(json["rows"]["total"], 30);
    assert_eq!(
        (&json["features"], &json["classes"]),
        (&4.into(), &3.into())
    );
    assert_eq!(
        (&json["dtype"], &json["bias"]),
        (&"f16".into(), &true.into())
    );
    assert_eq!(json["parts"][0]["first"], 10);
    assert!(
        json["peak_memory_bytes"]
            .as_u64()
            .is_none_or(|peak| peak > 0)
    );
    merge(&case, &["a"]).set("--json", JSON).succeeds();
    assert_eq!(case.json()["kind"], "merge");
    // Merging one is copying it.
    assert_eq!(case.json()["digest"], json["digest"]);
    assert!(fs::read(case.path(SUMS)).unwrap() == fs::read(case.path("a")).unwrap());
    assert_eq!(case.temporaries(), [""; 0]);
}

/// Killed at moments spread over the run, and stopped by Ctrl-C: the old file or the new one.
#[test]
fn a_killed_run_leaves_no_partial_file() {
    const KILLS: u32 = 12;
    let (rows, cols) = (40_000, 160);
    let case = Case::empty();
    case.write(FEATURES, &large_features(rows, cols, 4));
    let head = head_tensors(&gaussian(cols + 1, 4, 22), true, "");
    case.write(HEAD, &tensor_file(&head));
    let run = gram(&case, SUMS)
        .set("--forget", "class:1")
        .set("--threads", "1");
    let started = Instant::now();
    run.succeeds();
    let whole_run = started.elapsed();
    let new = fs::read(case.path(SUMS)).unwrap();
    let (mut alive, mut old) = (0, 0);
    for kill in 0..KILLS {
        case.write(SUMS, b"what was before");
        let mut child = run.spawn();
        sleep(whole_run.mul_f64((f64::from(kill) + 0.5) / f64::from(KILLS)));
        alive += u32::from(child.try_wait().unwrap().is_none());
        // Fails only for a process that has ended.
        let _ = child.kill();
        child.wait().unwrap();
        let found = fs::read(case.path(SUMS)).unwrap();
        assert!(found == b"what was before" || found == new, "{kill}");
        old += u32::from(found != new);
    }
    assert!(alive > 0 && old > 0, "{alive} alive, {old} old");
    run.succeeds();
    assert!(fs::read(case.path(SUMS)).unwrap() == new);
    assert_eq!(case.temporaries(), [""; 0]);
}

/// A request to stop: code 130, one line, nothing written.
#[cfg(unix)]
#[test]
fn an_interrupted_run_says_so() {
    let mut rows = 60_000;
    for _ in 0..4 {
        let case = Case::empty();
        case.write(FEATURES, &large_features(rows, 256, 4));
        let head = head_tensors(&gaussian(257, 4, 23), true, "");
        case.write(HEAD, &tensor_file(&head));
        let before = case.snapshot();
        let run = gram(&case, SUMS).without("--forget").set("--threads", "1");
        let mut child = run.set("--json", JSON).spawn();
        let opened = |name: &String| name.contains(JSON);
        while !case.temporaries().iter().any(opened) && child.try_wait().unwrap().is_none() {
            sleep(Duration::from_millis(2));
        }
        sleep(Duration::from_millis(50));
        if child.try_wait().unwrap().is_some() {
            rows *= 2;
            continue;
        }
        let pid = child.id().to_string();
        let sent = Command::new("kill").args(["-INT", &pid]).status();
        assert!(sent.unwrap().success());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{said}");
        assert_eq!(said, "muso: interrupted; nothing was written\n");
        assert!(case.snapshot() == before);
        return;
    }
    panic!("no run was slow enough to be stopped");
}
