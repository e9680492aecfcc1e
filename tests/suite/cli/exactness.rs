//! The new head against plain f64 references, in every mode, type and shape.

use std::fs;

use muso::engine::Matrix;

use super::{
    Case, FEATURES, HEAD, IDS, JSON, LABELS_OUT, OUT, REPORT, Run, Tensor, centred_reference,
    head_tensors, one_hot, one_line, read_head, read_integers, read_tensor, reference, rounded,
    tensor_file, tensor_names, with_ones,
};
use crate::parsers::npy_bytes;
use crate::support::{gauss_solve, gaussian, matmul, relative};

const DTYPES: [&str; 4] = ["F64", "F32", "F16", "BF16"];
const RIDGE: f64 = 0.3;

/// What the rows map to.
#[derive(Clone)]
enum Answers {
    Labels(Vec<i64>),
    Targets(Matrix),
}

/// A head that is the exact optimum over all rows, and what the retained rows alone would have given.
struct Problem {
    /// As the file holds it, the bias column appended.
    z: Matrix,
    y: Matrix,
    answers: Answers,
    dtype: &'static str,
    bias: bool,
    init: Option<Matrix>,
    /// Ascending.
    forgotten: Vec<usize>,
    objective: &'static str,
    from: &'static str,
    ridge: Option<f64>,
    /// The ridge leaves the bias out.
    free_bias: bool,
}

impl Problem {
    fn new(rows: usize, cols: usize, dtype: &'static str, bias: bool, seed: u64) -> Self {
        let z = rounded(dtype, &gaussian(rows, cols, seed));
        let labels: Vec<i64> = (0..rows as i64).map(|i| (i * i + i / 3) % 3).collect();
        Self {
            z: if bias { with_ones(&z) } else { z },
            y: one_hot(&labels, 3),
            answers: Answers::Labels(labels),
            dtype,
            bias,
            init: None,
            forgotten: vec![1, rows / 2, rows - 1],
            objective: "ridge",
            from: "labels",
            ridge: Some(RIDGE),
            free_bias: false,
        }
    }

    /// Targets of `classes` columns. Linear in the features, so that some head interpolates them whatever the shape.
    fn with_linear_targets(mut self, classes: usize, seed: u64) -> Self {
        self.y = matmul(&self.z, &gaussian(self.z.cols(), classes, seed));
        self.answers = Answers::Targets(self.y.clone());
        self
    }

    fn with_init(mut self, seed: u64) -> Self {
        self.init = Some(gaussian(self.z.cols(), self.y.cols(), seed));
        self
    }

    fn start(&self) -> Matrix {
        let zero = Matrix::zeros(self.z.cols(), self.y.cols());
        self.init.clone().unwrap_or(zero)
    }

    fn retained(&self) -> Vec<usize> {
        let kept = |i: &usize| !self.forgotten.contains(i);
        (0..self.z.rows()).filter(kept).collect()
    }

    /// The optimum over all rows: of the ridge objective, or the interpolant.
    fn trained(&self) -> Matrix {
        let ridge = match self.objective {
            "ridge" => self.ridge.unwrap(),
            _ => 0.0,
        };
        self.fitted(&self.z, &self.y, ridge)
    }

    fn fitted(&self, z: &Matrix, y: &Matrix, ridge: f64) -> Matrix {
        match self.free_bias {
            true => centred_reference(z, y, &self.start(), ridge),
            false => reference(z, y, &self.start(), ridge),
        }
    }

    fn retrained(&self) -> Matrix {
        let (z, y) = (
            self.z.select_rows(&self.retained()),
            self.y.select_rows(&self.retained()),
        );
        self.fitted(&z, &y, self.ridge.unwrap_or(0.0))
    }

    fn features(&self) -> Matrix {
        let width = self.z.cols() - usize::from(self.bias);
        Matrix::from_fn(self.z.rows(), width, |i, j| self.z[(i, j)])
    }

    fn answers(&self) -> Tensor {
        match &self.answers {
            Answers::Labels(labels) => Tensor::integers("labels", labels),
            Answers::Targets(targets) => Tensor::matrix("targets", "F64", targets),
        }
    }

    fn case(&self) -> Case {
        let case = Case::empty();
        let features = Tensor::matrix("features", self.dtype, &self.features());
        case.write(FEATURES, &tensor_file(&[features, self.answers()]));
        let head = head_tensors(&self.trained(), self.bias, "");
        case.write(HEAD, &tensor_file(&head));
        if let Some(init) = &self.init {
            let init = head_tensors(init, self.bias, "");
            case.write("init.st", &tensor_file(&init));
        }
        // In no order, and with remarks.
        let ids: Vec<String> = self.forgotten.iter().rev().map(usize::to_string).collect();
        let text = format!("# withdrawn\n{} # late\n", ids.join(", "));
        case.write(IDS, text.as_bytes());
        case
    }

    fn run(&self, case: &Case) -> Run {
        let mut run = case
            .head()
            .set("--objective", self.objective)
            .set("--from", self.from)
            .flag("--verify");
        if let Some(ridge) = self.ridge {
            run = run.set("--ridge", ridge);
        }
        if self.init.is_some() {
            run = run.set("--init", "init.st");
        }
        if self.free_bias {
            run = run.flag("--free-bias");
        }
        run
    }

    /// Forgets a class instead of listed rows.
    fn forget_class(mut self, class: i64) -> Self {
        let Answers::Labels(labels) = &self.answers else {
            panic!("targets have no classes");
        };
        self.forgotten = (0..labels.len()).filter(|&i| labels[i] == class).collect();
        self
    }

    /// The share of right answers in percent, of rows listed and under weights given, by the definition.
    fn accuracy(&self, rows: &[usize], weights: &Matrix) -> Option<f64> {
        let Answers::Labels(labels) = &self.answers else {
            return None;
        };
        let scores = matmul(&self.z, weights);
        let best = |i: usize| {
            let row = scores.row(i);
            (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]))
        };
        let right = |&&i: &&usize| best(i) == Some(labels[i] as usize);
        Some(100.0 * rows.iter().filter(right).count() as f64 / rows.len() as f64)
    }
}

/// Runs a problem and holds every output against the references.
fn holds(problem: &Problem, run: &Run, case: &Case, what: &str) {
    holds_to(problem, run, case, what, 1e-9);
}

/// The same where the gradient is a sum over so many rows that its rounding shows: `gradient` bounds it.
fn holds_to(problem: &Problem, run: &Run, case: &Case, what: &str, gradient: f64) {
    run.succeeds();
    let new = read_head(&case.path(OUT), problem.bias);
    let gap = relative(&new, &problem.retrained());
    assert!(gap < 1e-9, "{what}: {gap:e} from the retained rows' head");

    let rows = read_integers(&case.path(LABELS_OUT), "rows");
    let listed: Vec<i64> = problem.forgotten.iter().map(|&i| i as i64).collect();
    assert_eq!(rows, listed, "{what}");
    let relabelled = read_tensor(&case.path(LABELS_OUT), "targets").1;
    let expected = matmul(&problem.z.select_rows(&problem.forgotten), &new);
    let gap = relative(&relabelled, &expected);
    assert!(gap < 1e-13, "{what}: labels are {gap:e} off");

    let json = case.json();
    let number = |path: &str| json.pointer(path).and_then(serde_json::Value::as_f64);
    for (path, limit) in [
        ("/verify/distance_relative", 1e-9),
        ("/verify/gradient_norm", gradient),
    ] {
        let found = number(path).unwrap_or_else(|| panic!("{what}: no {path} in {json}"));
        assert!((0.0..limit).contains(&found), "{what}: {path} = {found:e}");
    }
    match (number("/verify/distance_bound"), problem.ridge) {
        (Some(bound), Some(_)) => assert!((0.0..gradient).contains(&bound), "{what}: {bound:e}"),
        (None, None) => {}
        // No λ holds every direction then.
        (None, Some(_)) if problem.free_bias => {}
        (bound, ridge) => panic!("{what}: bound {bound:?} for ridge {ridge:?}"),
    }
    let (trained, kept) = (problem.trained(), problem.retained());
    for (key, rows, weights) in [
        ("retained_before", &kept, &trained),
        ("retained_after", &kept, &new),
        ("forgotten_before", &problem.forgotten, &trained),
        ("forgotten_after", &problem.forgotten, &new),
    ] {
        let found = number(&format!("/accuracy/{key}"));
        assert_eq!(found, problem.accuracy(rows, weights), "{what}: {key}");
    }
    assert_eq!(json["kind"], "head", "{what}");
    let free = if problem.free_bias { ", free bias" } else { "" };
    let objective = format!("{}{free}", problem.objective);
    assert_eq!(json["objective"], objective, "{what}");
    assert_eq!(json["source"], problem.from, "{what}");
    assert_eq!(json["rows"]["total"], problem.z.rows(), "{what}");
    assert_eq!(json["rows"]["forgotten"], problem.forgotten.len(), "{what}");
    assert_eq!(json["rows"]["retained"], kept.len(), "{what}");
    assert_eq!(json["bias"], problem.bias, "{what}");
    assert_eq!(json["classes"], problem.y.cols(), "{what}");
    assert_eq!(json["dtype"], problem.dtype.to_lowercase(), "{what}");
    let page = fs::read_to_string(case.path(REPORT)).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
}

#[test]
fn every_mode_with_more_rows_than_features() {
    every_mode(40, 7, 0);
}

#[test]
fn every_mode_with_fewer_rows_than_features() {
    every_mode(9, 20, 500);
}

/// Every objective, source and type, with and without bias and initial head. Answers and the way to list rows vary
/// along.
fn every_mode(rows: usize, cols: usize, mut seed: u64) {
    for (objective, ridge) in [
        ("ridge", Some(RIDGE)),
        ("interpolate", None),
        ("interpolate", Some(RIDGE)),
    ] {
        for from in ["labels", "head"] {
            for dtype in DTYPES {
                for (bias, init) in [(false, false), (true, false), (false, true), (true, true)] {
                    seed += 1;
                    let mut problem = Problem::new(rows, cols, dtype, bias, seed);
                    // More rows than features: only targets that are linear can be interpolated.
                    let linear = objective == "interpolate" && rows > cols;
                    if linear || seed.is_multiple_of(3) {
                        problem = problem.with_linear_targets(1 + (seed % 4) as usize, seed);
                    }
                    if init {
                        problem = problem.with_init(seed + 1000);
                    }
                    problem = Problem {
                        objective,
                        from,
                        ridge,
                        ..problem
                    };
                    let by_class = seed % 3 == 1 && !linear;
                    if by_class {
                        problem = problem.forget_class(2);
                    }
                    let case = problem.case();
                    let mut run = problem.run(&case);
                    if by_class {
                        run = run.set("--forget", "class:2");
                    }
                    let what = format!(
                        "{rows}×{cols} {objective} {ridge:?} from {from}, {dtype}, bias {bias}, init {init}, \
                         class {by_class}"
                    );
                    holds(&problem, &run, &case, &what);
                    let json = case.json();
                    let dual = rows < cols && (objective, from) != ("ridge", "head");
                    let route = if dual { "dual" } else { "primal" };
                    assert_eq!(json["route"], route, "{what}");
                }
            }
        }
    }
}

#[test]
fn a_bias_that_is_left_free_has_no_ridge() {
    let mut seed = 900;
    for (rows, cols) in [(40, 7), (9, 20), (203, 30)] {
        for from in ["labels", "head"] {
            for exact in [None, Some("41")] {
                seed += 1;
                let mut problem = Problem::new(rows, cols, "F32", true, seed);
                // Far from the origin, where a bias that is held would be another.
                for i in 0..rows {
                    problem.z[(i, 3)] += 50.0;
                }
                (problem.from, problem.free_bias) = (from, true);
                if seed % 2 == 0 {
                    problem = problem.with_init(seed);
                }
                problem.z = with_ones(&rounded("F32", &problem.features()));
                let case = problem.case();
                let mut run = problem.run(&case);
                if let Some(bits) = exact {
                    run = run.set("--exact", bits).set("--grid", 64);
                }
                let what = format!("{rows}×{cols} from {from}, exact {exact:?}");
                holds_to(&problem, &run, &case, &what, 1e-6);
                let held = Problem {
                    free_bias: false,
                    ..problem
                };
                let apart = relative(&read_head(&case.path(OUT), true), &held.retrained());
                assert!(apart > 1e-3, "{what}: as if the bias were held");
            }
        }
    }
    let problem = Problem {
        free_bias: true,
        ..Problem::new(20, 4, "F32", false, 1)
    };
    let case = problem.case();
    one_line(&problem.run(&case).output(), &["--free-bias", "no bias"]);
    let problem = Problem {
        free_bias: true,
        objective: "interpolate",
        ..Problem::new(20, 40, "F32", true, 1)
    };
    let case = problem.case();
    let wanted = ["--free-bias", "--objective ridge"];
    one_line(&problem.run(&case).output(), &wanted);
}

/// What centring costs f64 sums it does not cost integers: features a million times further from the origin than from their
/// mean.
#[test]
fn exact_sums_lose_nothing_about_the_mean() {
    let mut problem = Problem::new(200, 5, "F64", true, 77);
    problem.free_bias = true;
    // Thousandths, so that the mean plus a value has few enough digits.
    let value = |x: f64| (x * 1024.0).round() / 1024.0;
    let z = Matrix::from_fn(200, 6, |i, j| value(problem.z[(i, j)]));
    let shift = |by: f64| Matrix::from_fn(200, 6, |i, j| z[(i, j)] + if j < 5 { by } else { 0.0 });
    let new = |by: f64| {
        let problem = Problem {
            z: shift(by),
            y: problem.y.clone(),
            answers: problem.answers.clone(),
            dtype: "F64",
            bias: true,
            init: None,
            forgotten: vec![3, 8],
            objective: "ridge",
            from: "labels",
            ridge: Some(RIDGE),
            free_bias: true,
        };
        let case = problem.case();
        let run = problem.run(&case).without("--verify");
        let run = run.without("--report").without("--labels-out");
        run.set("--exact", "41").set("--grid", "2097152").succeeds();
        read_head(&case.path(OUT), true)
    };
    let weights = |head: &Matrix| head.select_rows(&[0, 1, 2, 3, 4]);
    let apart = relative(&weights(&new(1_048_576.0)), &weights(&new(0.0)));
    assert!(apart < 1e-13, "{apart:e}");
}

#[test]
fn objective_and_source_follow_the_shape_and_the_ridge() {
    for (rows, cols, objective, from) in [
        (40, 7, "ridge", "labels"),
        (9, 20, "ridge", "labels"),
        (9, 20, "interpolate", "head"),
    ] {
        let problem = Problem::new(rows, cols, "F32", true, 5);
        let ridge = (objective == "ridge").then_some(RIDGE);
        let problem = Problem {
            objective,
            from,
            ridge,
            ..problem
        };
        let case = problem.case();
        let run = problem.run(&case);
        let run = run.without("--objective").without("--from");
        holds(&problem, &run, &case, objective);
    }
}

/// A feature in other units, and a forgotten row that dwarfs the others: neither may cost the rest its digits.
#[test]
fn unlike_sizes_cost_no_digits() {
    for from in ["labels", "head"] {
        let mut problem = Problem::new(60, 8, "F64", true, 21);
        problem.from = from;
        for i in 0..60 {
            problem.z[(i, 2)] *= 1e8;
        }
        let case = problem.case();
        problem.run(&case).succeeds();
        let new = read_head(&case.path(OUT), true);
        // In the units in which all features are of one size.
        let even =
            |w: &Matrix| Matrix::from_fn(9, 3, |i, j| w[(i, j)] * if i == 2 { 1e8 } else { 1.0 });
        let plain = Problem::new(60, 8, "F64", true, 21);
        let z = plain.z.select_rows(&plain.retained());
        let y = plain.y.select_rows(&plain.retained());
        let gram = matmul(&z.transpose(), &z);
        let shifted = Matrix::from_fn(9, 9, |i, j| match (i, j) {
            (2, 2) => gram[(2, 2)] + RIDGE / 1e16,
            _ if i == j => gram[(i, i)] + RIDGE,
            _ => gram[(i, j)],
        });
        let wanted = gauss_solve(&shifted, &matmul(&z.transpose(), &y));
        let gap = relative(&even(&new), &wanted);
        assert!(gap < 1e-12, "{from}: {gap:e}");
        let json = case.json();
        assert_eq!(json["conditioning"]["factor"], "cholesky", "{from}");
        assert!(json.get("warnings").is_none(), "{from}: {json}");
    }
    let mut problem = Problem::new(200, 6, "F64", true, 22);
    for j in 0..6 {
        problem.z[(1, j)] *= 1e8;
    }
    let case = problem.case();
    problem.run(&case).succeeds();
    let gap = relative(&read_head(&case.path(OUT), true), &problem.retrained());
    assert!(gap < 1e-12, "{gap:e}");
}

/// A feature that only forgotten rows have: its weight goes back to where it started.
#[test]
fn what_only_forgotten_rows_have_is_forgotten() {
    for from in ["labels", "head"] {
        let mut problem = Problem::new(40, 6, "F64", false, 23).with_init(24);
        problem.from = from;
        problem.ridge = Some(0.0);
        let forgotten = problem.forgotten.clone();
        for i in problem.retained() {
            problem.z[(i, 4)] = 0.0;
        }
        assert!(forgotten.iter().all(|&i| problem.z[(i, 4)] != 0.0));
        let case = problem.case();
        problem.run(&case).succeeds();
        let new = read_head(&case.path(OUT), false);
        let start = problem.start();
        for c in 0..3 {
            let (found, wanted) = (new[(4, c)], start[(4, c)]);
            assert!(
                (found - wanted).abs() < 1e-12,
                "{from}: {found} for {wanted}"
            );
        }
        let others = |m: &Matrix| m.select_rows(&[0, 1, 2, 3, 5]);
        let rows = problem.retained();
        let seen = others(&problem.z.transpose())
            .transpose()
            .select_rows(&rows);
        let wanted = reference(&seen, &problem.y.select_rows(&rows), &others(&start), 0.0);
        assert!(relative(&others(&new), &wanted) < 1e-11, "{from}");
    }
}

/// A file of several batches, whose answer is known by summing plainly.
#[test]
fn several_batches() {
    let problem = Problem::new(30_000, 80, "F32", true, 25).forget_class(2);
    let case = problem.case();
    let run = problem.run(&case).set("--forget", "class:2");
    holds_to(&problem, &run, &case, "30,000 rows", 1e-6);
    // Not the same sums again: another order, so that the distance says something.
    let json = case.json();
    assert!(json["verify"]["distance_relative"].as_f64() > Some(0.0));
}

/// What is said is said of the head as it is stored.
#[test]
fn a_narrow_head_is_reported_as_it_is() {
    let problem = Problem::new(40, 7, "F32", true, 26);
    let case = problem.case();
    problem.run(&case).set("--dtype", "f16").succeeds();
    let told = case.json()["verify"]["distance_relative"].as_f64().unwrap();
    let truth = relative(&read_head(&case.path(OUT), true), &problem.retrained());
    assert!(
        truth > 1e-5 && (told / truth - 1.0).abs() < 1e-6,
        "{told} {truth}"
    );
    assert_eq!(case.json()["stored"], "f16");

    // Everything below the smallest f16: the head would be zero, and it says so.
    let mut small = problem;
    small.z = small.z.zip(&small.z, |z, _| z * 1e9);
    small.bias = false;
    small.dtype = "F64";
    let case = small.case();
    let said = small.run(&case).set("--dtype", "f16").succeeds();
    assert!(
        said.contains("storing the head as f16 moves it by 1.0e0"),
        "{said}"
    );
}

#[test]
fn other_tensors_of_the_head_file_are_not_lost_unsaid() {
    let problem = Problem::new(40, 7, "F32", true, 27);
    let case = problem.case();
    let mut tensors = head_tensors(&problem.trained(), true, "fc.");
    tensors.push(Tensor::vector("norm.bias", "F64", &[1.0, 2.0]));
    case.write(HEAD, &tensor_file(&tensors));
    let before = fs::read(case.path(HEAD)).unwrap();
    let said = problem.run(&case).succeeds();
    assert!(said.contains("also holds norm.bias"), "{said}");
    let refused = problem.run(&case).set("--out", HEAD).output();
    assert_eq!(refused.status.code(), Some(2));
    one_line(&refused, &["norm.bias", "same file"]);
    assert_eq!(fs::read(case.path(HEAD)).unwrap(), before);
}

/// Larger than a tile in every direction, and with a head whose classes are many.
#[test]
fn larger_shapes() {
    for (rows, cols, from) in [(700, 67, "labels"), (700, 67, "head"), (65, 130, "labels")] {
        let problem = Problem::new(rows, cols, "F32", true, 6).with_linear_targets(37, 6);
        let problem = Problem { from, ..problem };
        let case = problem.case();
        holds(&problem, &problem.run(&case), &case, from);
    }
}

#[test]
fn npy_features_labels_targets_and_head() {
    for (dtype, descr) in [("F32", "<f4"), ("F64", "<f8"), ("F16", "<f2")] {
        let problem = Problem::new(40, 7, dtype, false, 7);
        let case = problem.case();
        let array =
            |descr: &str, shape: &str, bytes: &[u8]| npy_bytes(1, descr, "False", shape, bytes);
        let features = Tensor::matrix("", dtype, &problem.features());
        case.write("f.npy", &array(descr, "(40, 7)", &features.bytes));
        let head = &head_tensors(&problem.trained(), false, "")[0];
        case.write("h.npy", &array("<f8", "(3, 7)", &head.bytes));
        case.write("l.npy", &array("<i8", "(40,)", &problem.answers().bytes));
        let run = problem
            .run(&case)
            .set("--features", "f.npy")
            .set("--labels", "l.npy")
            .set("--head", "h.npy");
        holds(&problem, &run, &case, "npy labels");

        let problem = Problem::new(40, 7, dtype, false, 7).with_linear_targets(3, 7);
        let head = &head_tensors(&problem.trained(), false, "")[0];
        case.write("h.npy", &array("<f8", "(3, 7)", &head.bytes));
        case.write("t.npy", &array("<f8", "(40, 3)", &problem.answers().bytes));
        holds(
            &problem,
            &run.set("--labels", "t.npy"),
            &case,
            "npy targets",
        );
    }
}

/// The projection of a head that interpolated needs no labels at all.
#[test]
fn interpolation_from_the_head_needs_no_labels() {
    let problem = Problem::new(9, 20, "F32", true, 8);
    let problem = Problem {
        objective: "interpolate",
        from: "head",
        ridge: None,
        ..problem
    };
    let case = problem.case();
    let features = Tensor::matrix("features", "F32", &problem.features());
    case.write(FEATURES, &tensor_file(&[features]));
    let mut run = problem.run(&case);
    run = run.without("--verify");
    run.succeeds();
    let new = read_head(&case.path(OUT), true);
    assert!(relative(&new, &problem.retrained()) < 1e-9);
    assert!(case.json().get("accuracy").is_none());
    let refused = run.flag("--verify").output();
    super::one_line(&refused, &[FEATURES, "neither `labels` nor `targets`"]);
}

#[test]
fn names_of_the_head_come_back() {
    let problem = Problem::new(40, 7, "F32", true, 9);
    let case = problem.case();
    problem.run(&case).succeeds();
    let plain = read_head(&case.path(OUT), true);
    for prefix in ["fc.", "model.classifier.1."] {
        let head = head_tensors(&problem.trained(), true, prefix);
        case.write(HEAD, &tensor_file(&head));
        problem.run(&case).succeeds();
        let names = [format!("{prefix}bias"), format!("{prefix}weight")];
        assert_eq!(tensor_names(&case.path(OUT)), names);
        let weight = read_tensor(&case.path(OUT), &names[1]).1;
        let bias = read_tensor(&case.path(OUT), &names[0]).1;
        assert_eq!(weight.transpose().stack(&bias), plain);
    }
}

#[test]
fn output_types_are_the_f64_result_rounded() {
    let problem = Problem::new(40, 7, "F32", true, 10);
    let case = problem.case();
    let tensors = [(OUT, "weight"), (OUT, "bias"), (LABELS_OUT, "targets")];
    problem.run(&case).succeeds();
    let exact = tensors.map(|(file, name)| read_tensor(&case.path(file), name));
    for dtype in DTYPES {
        let run = problem.run(&case).set("--dtype", dtype.to_lowercase());
        run.succeeds();
        for ((file, name), (_, wide)) in tensors.iter().zip(&exact) {
            let (found, values) = read_tensor(&case.path(file), name);
            assert_eq!(found, dtype);
            assert_eq!(values, rounded(dtype, wide), "{dtype} {name}");
        }
    }
    assert!(exact.iter().all(|(dtype, _)| dtype == "F64"));
}

#[test]
fn a_head_that_is_no_optimum_is_warned_about() {
    for (rows, cols, objective, from, words) in [
        (40, 7, "ridge", "labels", "away from the ridge optimum"),
        (40, 7, "ridge", "head", "not what this takes it to be"),
        (9, 20, "interpolate", "head", "not what this takes it to be"),
    ] {
        let problem = Problem::new(rows, cols, "F32", true, 11);
        let ridge = (objective == "ridge").then_some(RIDGE);
        let problem = Problem {
            objective,
            from,
            ridge,
            ..problem
        };
        let case = problem.case();
        let run = problem.run(&case);
        let said = run.succeeds();
        let json = case.json();
        assert!(!said.contains("warning:"), "{said}");
        assert!(json.get("warnings").is_none(), "{json}");
        assert!(json["premise"]["residual"].as_f64().unwrap() < 1e-9);

        // One part in ten off, which the report must say.
        let noise = gaussian(problem.z.cols(), 3, 12);
        let trained = problem.trained();
        let scale = 0.1 * trained.norm() / noise.norm();
        let off = trained.zip(&noise, |w, n| w + scale * n);
        case.write(HEAD, &tensor_file(&head_tensors(&off, true, "")));
        let said = run.succeeds();
        assert!(said.contains("warning:"), "{said}");
        let json = case.json();
        let residual = json["premise"]["residual"].as_f64().unwrap();
        if objective == "ridge" {
            assert!((residual - 0.1).abs() < 1e-6, "{residual}");
        }
        let warned = json["warnings"][0].as_str().unwrap();
        assert!(warned.contains(words), "{warned}");
        assert!(
            fs::read_to_string(case.path(REPORT))
                .unwrap()
                .contains(words)
        );
        if from == "labels" {
            // The labels decide, so the result is right even so.
            let new = read_head(&case.path(OUT), true);
            assert!(relative(&new, &problem.retrained()) < 1e-9);
        } else {
            // And --verify tells by how much the result is off.
            let new = read_head(&case.path(OUT), true);
            let told = json["verify"]["distance_relative"].as_f64().unwrap();
            let truth = relative(&new, &problem.retrained());
            assert!(
                truth > 1e-3 && (told / truth - 1.0).abs() < 1e-6,
                "{told} {truth}"
            );
        }
    }
}

#[test]
fn bytes_do_not_depend_on_threads() {
    for (rows, cols, dtype, ridge) in [
        (3000, 70, "F32", Some(RIDGE)),
        (3000, 70, "BF16", Some(RIDGE)),
        (150, 300, "F32", None),
    ] {
        let mut problem = Problem::new(rows, cols, dtype, true, 13);
        if ridge.is_none() {
            problem = Problem {
                objective: "interpolate",
                from: "head",
                ridge,
                ..problem
            };
        }
        let case = problem.case();
        let bytes = |threads: usize| {
            problem.run(&case).set("--threads", threads).succeeds();
            assert_eq!(case.json()["threads"], threads);
            [OUT, LABELS_OUT].map(|name| fs::read(case.path(name)).unwrap())
        };
        let one = bytes(1);
        for threads in [2, 5] {
            assert!(bytes(threads) == one, "{rows}×{cols}, {threads} threads");
        }
    }
}

/// A JSON report is the same document as --json.
#[test]
fn the_report_may_be_json() {
    let problem = Problem::new(40, 7, "F32", true, 14);
    let case = problem.case();
    problem.run(&case).set("--report", "report.json").succeeds();
    let report = fs::read(case.path("report.json")).unwrap();
    assert_eq!(report, fs::read(case.path(JSON)).unwrap());
}

/// Guards the helpers: a rounding that rounded nothing would make the tests of the narrow types say nothing.
#[test]
fn narrow_types_are_narrow() {
    let values = gaussian(30, 30, 15);
    for (dtype, least) in [("F16", 1e-5), ("BF16", 1e-4), ("F32", 1e-9)] {
        let gap = relative(&rounded(dtype, &values), &values);
        assert!(gap > least && gap < 100.0 * least, "{dtype}: {gap:e}");
    }
    assert_eq!(rounded("F64", &values), values);
}
