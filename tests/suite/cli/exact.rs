//! Exact sums from end to end: a head after deletion has the bytes of one whose sums never had the rows.

use std::fs;

use muso::engine::Matrix;
use muso::{FeatureRows, Forget, Head, Shard};

use super::{
    Case, FEATURES, HEAD, IDS, JSON, OUT, Run, Tensor, head_tensors, one_hot, one_line, read_head,
    read_integers, reference, rounded, tensor_file, tensor_names, with_ones,
};
use crate::support::{gaussian, relative};

const SUMS: &str = "sums.safetensors";
/// The feature file without the rows that are forgotten.
const RETAINED: &str = "retained.safetensors";
const RIDGE: f64 = 0.3;

/// Rows of features of unlike sizes in three classes, or with values as targets.
struct Problem {
    case: Case,
    z: Matrix,
    y: Matrix,
    forgotten: Vec<usize>,
    bias: bool,
}

impl Problem {
    fn new(rows: usize, cols: usize, dtype: &'static str, bias: bool, classes: bool) -> Self {
        let plain = gaussian(rows, cols, (rows + cols) as u64);
        let scaled = Matrix::from_fn(rows, cols, |i, j| {
            plain[(i, j)] * 4.0_f64.powi(j as i32 % 5 - 2)
        });
        let labels: Vec<i64> = (0..rows as i64).map(|i| (i * i + i / 3) % 3).collect();
        let y = match classes {
            true => one_hot(&labels, 3),
            false => rounded("F32", &gaussian(rows, 3, 77)),
        };
        let problem = Self {
            case: Case::empty(),
            z: rounded(dtype, &scaled),
            y,
            forgotten: (0..rows).filter(|i| i % 11 == 4).collect(),
            bias,
        };
        problem.write(dtype, classes.then_some(&labels[..]));
        problem
    }

    /// Writes the file with all rows, the one without those to be forgotten, the head and the list.
    fn write(&self, dtype: &'static str, labels: Option<&[i64]>) {
        let all: Vec<usize> = (0..self.z.rows()).collect();
        for (name, rows) in [(FEATURES, all), (RETAINED, self.kept())] {
            let targets = match labels {
                Some(labels) => {
                    let labels: Vec<i64> = rows.iter().map(|&i| labels[i]).collect();
                    Tensor::integers("labels", &labels)
                }
                None => Tensor::matrix("targets", "F32", &self.y.select_rows(&rows)),
            };
            let features = Tensor::matrix("features", dtype, &self.z.select_rows(&rows));
            self.case.write(name, &tensor_file(&[features, targets]));
        }
        let order = self.z.cols() + usize::from(self.bias);
        let head = rounded("F32", &gaussian(order, 3, 5));
        self.case
            .write(HEAD, &tensor_file(&head_tensors(&head, self.bias, "")));
        let ids: String = self.forgotten.iter().map(|i| format!("{i}\n")).collect();
        self.case.write(IDS, ids.as_bytes());
    }

    fn kept(&self) -> Vec<usize> {
        (0..self.z.rows())
            .filter(|i| !self.forgotten.contains(i))
            .collect()
    }

    fn gram(&self, file: &str, grid: &str, out: &str) -> Run {
        Run::new(&self.case, &format!("gram {file}"))
            .set("--head", HEAD)
            .set("--exact", 20)
            .set("--grid", grid)
            .set("--out", out)
    }

    fn solve(&self, sums: &str) -> Run {
        Run::new(&self.case, "head")
            .set("--sums", sums)
            .set("--head", HEAD)
            .set("--ridge", RIDGE)
            .set("--out", OUT)
            .set("--json", JSON)
    }

    /// Forgets the listed rows by subtracting them.
    fn subtract(&self, sums: &str) -> Run {
        self.solve(sums)
            .set("--features", FEATURES)
            .set("--forget", IDS)
    }

    /// Forgets them in one go, without a file of sums.
    fn single(&self, grid: &str) -> Run {
        self.subtract(SUMS)
            .without("--sums")
            .set("--exact", 20)
            .set("--grid", grid)
    }

    fn bytes(&self, run: &Run) -> Vec<u8> {
        run.succeeds();
        fs::read(self.case.path(OUT)).unwrap()
    }

    fn warnings(&self) -> String {
        self.case.json()["warnings"].to_string()
    }

    fn refused(&self, run: &Run, words: &[&str]) {
        let before = self.case.snapshot();
        let line = one_line(&run.output(), words);
        assert!(
            self.case.snapshot() == before,
            "files changed after: {line}"
        );
    }
}

/// Whatever the rows are like: all three ways to the head without them give one file.
#[test]
fn a_head_after_deletion_has_the_bytes_of_one_that_never_saw_the_rows() {
    let shapes = [
        (400, 7, "F32", true, true),
        (350, 12, "F64", false, true),
        (700, 33, "F16", true, false),
        (523, 20, "BF16", false, false),
    ];
    let widths = [(13, 1e-1), (27, 1e-5), (34, 1e-8), (41, 1e-9)];
    for (shape, (bits, tolerance)) in shapes.into_iter().zip(widths) {
        let (rows, cols, dtype, bias, classes) = shape;
        let problem = Problem::new(rows, cols, dtype, bias, classes);
        let width = |run: Run| run.set("--exact", bits);
        width(problem.gram(FEATURES, "64", SUMS)).succeeds();
        width(problem.gram(RETAINED, SUMS, "clean.safetensors")).succeeds();
        let never = problem.bytes(&problem.solve("clean.safetensors"));
        let what = format!("{rows}×{cols} {dtype}, {bits} bits");
        assert!(
            problem.bytes(&problem.subtract(SUMS)) == never,
            "{what}: subtracted"
        );
        assert!(!problem.warnings().contains("digits"), "{what}");
        assert!(
            problem.bytes(&width(problem.single(SUMS))) == never,
            "{what}: in one go"
        );

        // And it is the head: near a plain solution by what the grid moves.
        let kept = problem.kept();
        let (z, y) = (problem.z.select_rows(&kept), problem.y.select_rows(&kept));
        let z = if bias { with_ones(&z) } else { z };
        let wanted = reference(&z, &y, &Matrix::zeros(z.cols(), 3), RIDGE);
        let found = read_head(&problem.case.path(OUT), bias);
        let distance = relative(&found, &wanted);
        assert!(distance < tolerance, "{what}: {distance:e}");
        let text = String::from_utf8_lossy(&never[8..]).into_owned();
        assert!(
            text.contains(&format!("\"muso.exact\":\"{bits}\"")),
            "{text:.300}"
        );
        assert!(text.contains("\"muso.solve\":\"1\""), "{text:.300}");
    }
}

#[test]
fn a_row_that_outweighs_all_others_leaves_no_trace() {
    let mut problem = Problem::new(300, 6, "F64", true, true);
    // In f64 this would cost nine digits or so; it holds the largest value of its column by far.
    problem.z[(problem.forgotten[3], 2)] = 3e4;
    let labels: Vec<i64> = (0..300).map(|i| (i * i + i / 3) % 3).collect();
    problem.write("F64", Some(&labels));
    problem.gram(FEATURES, "4", SUMS).succeeds();
    problem.gram(RETAINED, "4", "clean.safetensors").succeeds();
    let never = problem.bytes(&problem.solve("clean.safetensors"));
    assert!(problem.bytes(&problem.subtract(SUMS)) == never);
    assert_eq!(problem.case.json()["exact"]["grid"], "given");
    // On a grid that this row had a say in, the bytes are those of that grid, and the report says so.
    let recorded = |run: Run| run.without("--grid");
    recorded(problem.gram(FEATURES, "", SUMS)).succeeds();
    problem.bytes(&problem.subtract(SUMS));
    let said = problem.warnings();
    assert!(said.contains("set the unit of 1 of 6 columns"), "{said}");
    assert!(said.contains("--grid"), "{said}");
    // Not where the rows to forget are known when the grid is recorded: they have no say.
    recorded(problem.gram(FEATURES, "", SUMS))
        .set("--forget", IDS)
        .succeeds();
    let apart = problem.bytes(&problem.solve(SUMS));
    assert!(
        !problem.warnings().contains("unit"),
        "{}",
        problem.warnings()
    );
    assert!(problem.bytes(&recorded(problem.single(""))) == apart);
    assert_eq!(problem.case.json()["exact"]["recording"], true);
    recorded(problem.gram(RETAINED, "", "clean.safetensors")).succeeds();
    assert!(problem.bytes(&problem.solve("clean.safetensors")) == apart);
}

#[test]
fn where_no_value_moves_the_grid_does_not_matter() {
    let problem = Problem::new(300, 5, "BF16", true, true);
    let wide = |run: Run| run.set("--exact", 41);
    let mut heads = Vec::new();
    for grid in ["32", "100", "5000"] {
        wide(problem.gram(FEATURES, grid, SUMS)).succeeds();
        heads.push(problem.bytes(&problem.subtract(SUMS)));
        assert_eq!(problem.case.json()["exact"]["moved"], 0.0);
    }
    // Recorded with all rows, of which some are forgotten that had set it.
    wide(problem.gram(FEATURES, "", SUMS))
        .without("--grid")
        .succeeds();
    heads.push(problem.bytes(&problem.subtract(SUMS)));
    assert!(
        !problem.warnings().contains("unit"),
        "{}",
        problem.warnings()
    );
    assert!(heads.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn sums_are_the_same_in_any_shards_threads_and_grouping() {
    let problem = Problem::new(1700, 30, "F32", true, true);
    let integers = |file: &str| {
        let path = problem.case.path(file);
        let names = tensor_names(&path);
        assert!(names.contains(&"retained.setters".into()), "{names:?}");
        let read = |name: &String| (name.clone(), read_integers(&path, name));
        names.iter().map(read).collect::<Vec<_>>()
    };
    // Recorded from the whole file, whichever part is summed.
    let gram = |out: &str| problem.gram(FEATURES, "", out).without("--grid");
    gram(SUMS).set("--threads", 1).succeeds();
    let whole = integers(SUMS);
    gram(SUMS).set("--threads", 3).set("--ahead", 1).succeeds();
    assert!(integers(SUMS) == whole);
    let head = problem.bytes(&problem.subtract(SUMS));
    for k in 0..4 {
        gram(&format!("{k}"))
            .set("--shards", 4)
            .set("--shard", k)
            .succeeds();
    }
    let merge = |from: &str, to: &str| {
        Run::new(&problem.case, &format!("merge {from}"))
            .set("--out", to)
            .succeeds();
        fs::read(problem.case.path(to)).unwrap()
    };
    let at_once = merge("0 1 2 3", SUMS);
    assert!(integers(SUMS) == whole);
    merge("3 1", "a");
    merge("2 0", "b");
    assert!(merge("b a", "c") == at_once);
    merge("2 1", "a");
    merge("a 0", "b");
    assert!(merge("3 b", "c") == at_once);
    assert!(problem.bytes(&problem.subtract("c")) == head);
    // A part on a grid that is given fits one on the same grid that was recorded.
    gram("given")
        .set("--grid", "./3")
        .set("--shards", 4)
        .set("--shard", 0)
        .succeeds();
    let mixed = merge("given 1 2 3", "c");
    merge("3 given", "a");
    merge("2 1", "b");
    assert!(merge("a b", "c") == mixed);
    assert!(problem.bytes(&problem.subtract("c")) == head);
    // What is forgotten beforehand is what is subtracted afterwards.
    gram(SUMS)
        .set("--grid", "c")
        .set("--forget", IDS)
        .succeeds();
    assert!(problem.bytes(&problem.solve(SUMS)) == head);
}

#[test]
fn rows_beyond_the_grid_are_summed_and_counted() {
    let problem = Problem::new(500, 8, "F32", true, false);
    problem
        .gram(FEATURES, "1", SUMS)
        .set("--json", JSON)
        .succeeds();
    let (small, said) = (problem.case.json(), problem.warnings());
    let beyond = small["exact"]["beyond"].as_u64().unwrap();
    assert!(
        beyond > 300 && said.contains("beyond the 20 bits"),
        "{beyond}: {said}"
    );
    problem.gram(RETAINED, "1", "clean.safetensors").succeeds();
    let never = problem.bytes(&problem.solve("clean.safetensors"));
    assert!(problem.bytes(&problem.subtract(SUMS)) == never);
    // The same units with more bits above them: nothing but the width differs, and with it the name of the width.
    let units = |file: &str| read_integers(&problem.case.path(file), "grid.features");
    problem
        .gram(FEATURES, "4194304", "wide")
        .set("--exact", 41)
        .set("--json", JSON)
        .succeeds();
    assert!(units("wide").iter().all(|e| *e == 22 - 41));
    problem
        .gram(FEATURES, "2", "narrow")
        .set("--exact", 20)
        .succeeds();
    assert_eq!(units("narrow"), units("wide"));
    for name in ["retained.gram", "retained.cross"] {
        let [wide, narrow] =
            ["wide", "narrow"].map(|file| read_integers(&problem.case.path(file), name));
        assert!(wide == narrow, "{name}");
    }
    assert_eq!(problem.case.json()["exact"]["beyond"], 0);
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let problem = Problem::new(120, 5, "F32", true, true);
    problem.gram(FEATURES, "64", SUMS).succeeds();
    problem
        .gram(FEATURES, "128", "coarse")
        .set("--rows", "60..")
        .succeeds();
    problem
        .gram(FEATURES, "64", "first")
        .set("--rows", "..60")
        .succeeds();
    problem
        .gram(FEATURES, "64", "wide")
        .set("--rows", "60..")
        .set("--exact", 22)
        .succeeds();
    let f64_sums = problem
        .gram(FEATURES, "", "f64")
        .without("--exact")
        .without("--grid");
    f64_sums.set("--rows", "60..").succeeds();
    let merge =
        |files: &str| Run::new(&problem.case, &format!("merge {files}")).set("--out", "merged");
    problem.refused(
        &merge("first coarse"),
        &["coarse", "grid", "2^-13 in column 0"],
    );
    problem.refused(
        &merge("first wide"),
        &["wide: exact sums of 22 bits", "20 bits"],
    );
    problem.refused(
        &merge("first f64"),
        &["f64: sums in f64", "exact sums of 20 bits"],
    );
    problem.refused(&merge("f64 first"), &["first: exact", "sums in f64"]);
    problem.refused(
        &problem.solve("f64").set("--exact", 20),
        &["f64", "--exact"],
    );
    problem.refused(
        &problem.solve(SUMS).set("--exact", 22),
        &["20 bits", "--exact 20"],
    );
    let grid = problem.solve(SUMS).flag("--exact").set("--grid", "8");
    problem.refused(&grid, &["it has a grid already", "--grid"]);
    let gram = |grid: &str, out: &str| problem.gram(FEATURES, grid, out);
    problem.refused(
        &gram("64", "x").set("--exact", 21),
        &["--exact = 21", "13, 20, 22"],
    );
    for bad in ["0", "-1", "inf", "NaN", "1e300"] {
        problem.refused(&gram(bad, "x"), &["--grid"]);
    }
    problem.refused(&gram("nowhere", "x"), &["nowhere"]);
    problem.refused(&gram(FEATURES, "x"), &[FEATURES, "grid.features"]);
    problem.refused(
        &gram(SUMS, "x").set("--exact", 22),
        &[SUMS, "20 bits", "22"],
    );
    problem.refused(&gram(SUMS, SUMS), &["--out", "--grid"]);
    let narrow = tensor_file(&[Tensor::integers("grid.features", &[-9; 4])]);
    problem.case.write("narrow", &narrow);
    problem.refused(
        &gram("narrow", "x"),
        &["narrow", "4 features", "5 features"],
    );
    for exponent in [501, -501, i64::MAX] {
        let bad = tensor_file(&[Tensor::integers("grid.features", &[0, 0, 0, 0, exponent])]);
        problem.case.write("bad", &bad);
        problem.refused(&gram("bad", "x"), &["bad: "]);
    }
    // Beyond 128 bits: values of more than 2^48 units.
    problem.refused(&gram("1e-10", "x"), &[FEATURES, "row 0", "--grid"]);
    let other = gram("64", "x").without("--exact").output();
    assert_eq!(other.status.code(), Some(2));
}

#[test]
fn what_has_no_bytes_of_its_own_is_refused() {
    let problem = Problem::new(60, 9, "F32", true, true);
    // Two equal columns, without a ridge: Cholesky fails, and an eigendecomposition would take over.
    let mut twins = problem.z.clone();
    for i in 0..60 {
        twins[(i, 3)] = twins[(i, 7)];
    }
    let labels: Vec<i64> = (0..60).map(|i| i % 3).collect();
    let tensors = [
        Tensor::matrix("features", "F32", &twins),
        Tensor::integers("labels", &labels),
    ];
    problem.case.write("twins", &tensor_file(&tensors));
    problem.gram("twins", "64", SUMS).succeeds();
    let singular = problem.solve(SUMS).set("--ridge", 0);
    problem.refused(&singular, &["singular", "processors", "--ridge"]);
    problem.bytes(&problem.solve(SUMS));
    // Fewer rows than features, without a ridge.
    let few: String = (0..54).map(|i| format!("{i}\n")).collect();
    problem.case.write(IDS, few.as_bytes());
    let dual = problem.single("64").without("--ridge");
    problem.refused(
        &dual,
        &["6 rows", "order 10", "inner products", "--ridge", "--exact"],
    );
    // With one there is a primal solution.
    problem.single("64").succeeds();
    assert_eq!(problem.case.json()["route"], "primal");
}

#[test]
fn nan_and_infinity_are_refused_with_their_place() {
    let problem = Problem::new(40, 4, "F64", true, true);
    for bad in [f64::NAN, f64::INFINITY] {
        let mut z = problem.z.clone();
        z[(33, 2)] = bad;
        let labels = Tensor::integers("labels", &[1; 40]);
        let tensors = [Tensor::matrix("features", "F64", &z), labels];
        problem.case.write(FEATURES, &tensor_file(&tensors));
        for run in [
            problem.gram(FEATURES, "8", SUMS),
            problem.gram(FEATURES, "", SUMS).without("--grid"),
        ] {
            problem.refused(&run, &["row 33", "column 2"]);
        }
    }
}

/// A file that says other things than sums of rows can is refused though its digest is right.
#[test]
fn sums_that_contradict_themselves_are_refused() {
    let problem = Problem::new(90, 5, "F32", true, true);
    problem
        .gram(FEATURES, "64", SUMS)
        .set("--forget", IDS)
        .succeeds();
    let path = problem.case.path(SUMS);
    let whole = Shard::load(&path).unwrap();
    let refused = |what: &str, change: &dyn Fn(&mut Shard)| {
        let mut shard = whole.clone();
        change(&mut shard);
        fs::write(&path, shard.to_safetensors().unwrap()).unwrap();
        let line = one_line(&problem.solve(SUMS).output(), &[SUMS]);
        assert!(
            line.contains("contradict") || line.contains("values"),
            "{what}: {line}"
        );
    };
    macro_rules! changes {
        ($($what:literal: $side:ident => $change:expr),* $(,)?) => {
            $(refused($what, &|shard: &mut Shard| {
                let exact = shard.exact.as_mut().unwrap();
                let change: fn(&mut muso::engine::exact::ExactSums) = $change;
                change(&mut exact.$side);
            });)*
        };
    }
    changes! {
        "a square below zero": retained => |s| s.gram[0] = -1,
        "a square beyond all rows": retained => |s| s.gram[0] = i128::MAX,
        "a product beyond its squares": retained => |s| s.gram[1] = s.gram[0] + s.gram[2] + 1,
        "a bias that is not one": forgotten => |s| *s.gram.last_mut().unwrap() += 1,
        "classes that are not the rows": retained => |s| s.class_rows[0] += 1,
        "other rows than its parts": retained => |s| s.rows -= 1,
        "more rows beyond than rows": forgotten => |s| s.beyond = s.rows + 1,
        "more values moved than values": retained => |s| s.moved = s.rows * 5 + 1,
        "a product beyond 128 bits": retained => |s| s.cross[0] = i128::MIN,
        "a triangle of another order": retained => |s| s.gram.push(0),
    }
    fs::write(&path, whole.to_safetensors().unwrap()).unwrap();
    problem.bytes(&problem.solve(SUMS));
    // And with every byte of it turned over in turn, at some places.
    let bytes = fs::read(&path).unwrap();
    for at in (0..bytes.len()).step_by(97) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        fs::write(&path, &damaged).unwrap();
        if let Ok(shard) = Shard::load(&path) {
            assert_eq!(shard, whole, "byte {at} of {}", bytes.len());
        }
    }
}

/// The same through the library, from rows in memory.
#[test]
fn the_front_door_forgets_exactly() {
    use muso::engine::{CpuEngine, Rows, Targets};
    let z = gaussian(500, 12, 3);
    let classes: Vec<i64> = (0..500).map(|i| i % 4).collect();
    let gone: Vec<u64> = (0..500).filter(|i| i % 9 == 0).collect();
    let kept: Vec<usize> = (0..500).filter(|i| i % 9 != 0).collect();
    let left = z.select_rows(&kept);
    let left_classes: Vec<i64> = kept.iter().map(|&i| classes[i]).collect();
    let rows = FeatureRows::new(z.as_rows(), Targets::Classes(&classes));
    let without = FeatureRows::new(left.as_rows(), Targets::Classes(&left_classes));
    let head = Head::new(
        Matrix::from_fn(4, 12, |i, j| (i * j) as f64),
        Some(vec![0.5; 4]),
    );

    let sums = head.sum(&rows).exact(22).grid(8.0).run().unwrap();
    let grid = sums.exact.as_ref().unwrap().spec.grid.as_ref().clone();
    let forget = || Forget::rows(gone.iter().copied());
    let solved = [
        head.forget(&rows, forget()).sums(&sums).ridge(0.1).solve(),
        head.forget(&rows, forget())
            .exact(22)
            .grid(grid.clone())
            .ridge(0.1)
            .solve(),
        head.refit(&head.sum(&without).grid(grid).exact(22).run().unwrap())
            .ridge(0.1)
            .solve(),
        head.forget(&rows, forget())
            .exact(22)
            .grid(8.0)
            .engine(CpuEngine::new(Some(1)).unwrap().portable())
            .ridge(0.1)
            .solve(),
    ];
    let files = solved.map(|solved| {
        solved
            .unwrap()
            .head
            .to_safetensors(muso::engine::Dtype::F64)
            .unwrap()
    });
    assert!(files.windows(2).all(|pair| pair[0] == pair[1]));
    // One row in single precision is enough for another grid to show.
    let narrow: Vec<f32> = z.as_slice().iter().map(|&x| x as f32).collect();
    let narrow = FeatureRows::new(
        Rows::new(500, 12, narrow.as_slice()),
        Targets::Classes(&classes),
    );
    let verified = head
        .forget(&narrow, forget())
        .exact(None)
        .ridge(0.1)
        .verify(true)
        .solve()
        .unwrap();
    let distance = verified.report.verify.unwrap().distance_relative;
    assert!((1e-13..1e-5).contains(&distance), "{distance:e}");
}

/// The bytes of the canonical solve. A change that makes other bytes raises `solve::VERSION`, and this digest with it.
#[test]
fn the_solve_has_the_bytes_of_its_version() {
    let problem = Problem::new(400, 27, "F32", true, true);
    problem.gram(FEATURES, "64", SUMS).succeeds();
    let head = problem.bytes(&problem.subtract(SUMS));
    let values = head[8 + u64::from_le_bytes(head[..8].try_into().unwrap()) as usize..].to_vec();
    let mut digest = muso::data::Digest::new();
    digest.add(&values);
    assert_eq!(
        (muso::solve::VERSION, digest.text().as_str()),
        (1, "9548e2b4e1e68c6d")
    );
}
