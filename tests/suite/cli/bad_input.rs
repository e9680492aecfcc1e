//! Input that cannot be used: exit code 2, one line that names what is at fault, and not one byte changed on disk.

use std::fs;

use muso::engine::Matrix;

use super::{Case, FEATURES, HEAD, IDS, OUT, Run, Tensor, head_tensors, one_line, tensor_file};
use crate::support::gaussian;

/// Runs it, checks the line, and holds the whole directory against what it was: outputs, inputs, and no temporary file.
fn refused(case: &Case, run: &Run, words: &[&str]) {
    let before = case.snapshot();
    let line = one_line(&run.output(), words);
    assert!(case.snapshot() == before, "files changed after: {line}");
}

/// A small case with these tensors as feature file.
fn with_features(tensors: &[Tensor]) -> Case {
    let case = Case::small();
    case.write(FEATURES, &tensor_file(tensors));
    case
}

#[test]
fn the_small_case_is_good() {
    let case = Case::small();
    case.ridge().flag("--verify").succeeds();
    assert!(!fs::read(case.path(OUT)).unwrap().starts_with(b"what was"));
}

#[test]
fn broken_containers() {
    for name in [FEATURES, HEAD] {
        let case = Case::small();
        let whole = fs::read(case.path(name)).unwrap();
        let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
        let middle = (header + whole.len()) / 2;
        for cut in [0, 7, 8, 9, header - 1, header, middle, whole.len() - 1] {
            case.write(name, &whole[..cut]);
            refused(&case, &case.ridge(), &[name]);
        }
        case.write(name, &whole[..header / 2]);
        refused(&case, &case.ridge(), &[name, "truncated"]);
        case.write(name, &[&whole[..], b"tail"].concat());
        refused(&case, &case.ridge(), &[name]);

        let mut longer = whole.clone();
        longer[..8].copy_from_slice(&(whole.len() as u64).to_le_bytes());
        case.write(name, &longer);
        let declared = format!("header of {} bytes", whole.len());
        refused(&case, &case.ridge(), &[name, "truncated", &declared]);

        for garbage in [
            &b"GIF89a, which is not a tensor file"[..],
            b"\x08\0\0\0\0\0\0\0not json",
            b"\x89PNG\r\n\x1a\n and more",
            b"PK\x03\x04 what torch.save writes",
            &[0xff; 64],
        ] {
            case.write(name, garbage);
            refused(
                &case,
                &case.ridge(),
                &[name, "expected a whole safetensors"],
            );
        }
        fs::remove_file(case.path(name)).unwrap();
        refused(&case, &case.ridge(), &[name, "cannot open"]);
        fs::create_dir(case.path(name)).unwrap();
        refused(&case, &case.ridge(), &[name, "not a regular file"]);
    }
}

#[test]
fn missing_and_wrong_tensors() {
    let case = Case::small();
    let [features, labels] = case.small_tensors();
    let renamed = |tensor: &Tensor, name: &str| Tensor {
        name: name.into(),
        ..tensor.clone()
    };
    let shaped = |tensor: &Tensor, shape: &[usize]| Tensor {
        shape: shape.to_vec(),
        ..tensor.clone()
    };
    let integers = |name: &str, rows: usize, cols: usize| {
        let flat = Tensor::integers(name, &vec![1; rows * cols]);
        shaped(&flat, &[rows, cols])
    };
    let float_labels = Tensor::vector("labels", "F32", &[1.0; 12]);
    let targets =
        |rows: usize, cols: usize| Tensor::matrix("targets", "F32", &Matrix::zeros(rows, cols));
    for (tensors, words) in [
        (
            vec![renamed(&features, "embeddings"), labels.clone()],
            &["no tensor `features`", "`embeddings`"][..],
        ),
        (
            vec![features.clone(), renamed(&labels, "classes")],
            &["neither `labels` nor `targets`"],
        ),
        (
            vec![shaped(&features, &[48]), labels.clone()],
            &["`features` is f32 [48]", "2-dimensional"],
        ),
        (
            vec![shaped(&features, &[12, 2, 2]), labels.clone()],
            &["`features` is f32 [12, 2, 2]", "2-dimensional"],
        ),
        (
            vec![integers("features", 12, 4), labels.clone()],
            &["`features` is i64 [12, 4]", "f16, bf16, f32 or f64"],
        ),
        (
            vec![features.clone(), float_labels],
            &["`labels` is f32 [12]", "i64, i32 or u8"],
        ),
        (
            vec![features.clone(), shaped(&labels, &[12, 1])],
            &["`labels` is i64 [12, 1]", "1-dimensional"],
        ),
        (
            vec![features.clone(), Tensor::integers("labels", &[0; 11])],
            &["`labels`", "11 values", "12"],
        ),
        (
            vec![features.clone(), Tensor::integers("labels", &[0; 13])],
            &["`labels`", "13 values", "12"],
        ),
        (
            vec![features.clone(), integers("targets", 12, 3)],
            &["`targets` is i64 [12, 3]"],
        ),
        (
            vec![features.clone(), targets(12, 4)],
            &["`targets`", "12×4", "12×3"],
        ),
        (
            vec![features.clone(), targets(9, 3)],
            &["`targets`", "9×3", "12×3"],
        ),
    ] {
        case.write(FEATURES, &tensor_file(&tensors));
        refused(&case, &case.ridge(), &[&[FEATURES], words].concat());
    }

    // The same when they are in a file of their own.
    case.write(FEATURES, &tensor_file(&case.small_tensors()));
    case.write("labels.st", &tensor_file(&[integers("targets", 2, 2)]));
    let run = case.ridge().set("--labels", "labels.st");
    refused(&case, &run, &["labels.st", "`targets` is i64 [2, 2]"]);
    case.write("labels.st", &tensor_file(&[Tensor::integers("ids", &[1])]));
    refused(&case, &run, &["labels.st", "no tensor `labels`", "`ids`"]);
}

#[test]
fn values_that_are_not_finite() {
    for dtype in ["F32", "F16", "BF16", "F64"] {
        for (value, shown) in [
            (f64::NAN, "NaN"),
            (f64::INFINITY, "has inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            // Row 3 stays, row 5 goes.
            for row in [3, 5] {
                let mut values = Case::small_features();
                values[(row, 2)] = value;
                let case = with_features(&[
                    Tensor::matrix("features", dtype, &values),
                    Tensor::integers("labels", &Case::small_labels()),
                ]);
                let place = format!("`features` has {}", shown.trim_start_matches("has "));
                let at = format!("row {row}, column 2");
                refused(&case, &case.ridge(), &[FEATURES, &place, &at]);
            }
        }
    }

    let features = Tensor::matrix("features", "F32", &Case::small_features());
    for row in [3, 5] {
        for dtype in ["F32", "F64"] {
            let mut targets = gaussian(12, 3, 2);
            targets[(row, 1)] = f64::INFINITY;
            let case =
                with_features(&[features.clone(), Tensor::matrix("targets", dtype, &targets)]);
            let at = format!("`targets` has inf at row {row}, column 1");
            refused(&case, &case.ridge(), &[FEATURES, &at]);
        }
    }

    // Every objective and source reads the same stream.
    let mut values = Case::small_features();
    values[(7, 0)] = f64::NAN;
    let case = with_features(&[
        Tensor::matrix("features", "F32", &values),
        Tensor::integers("labels", &Case::small_labels()),
    ]);
    for (objective, from) in [
        ("ridge", "labels"),
        ("ridge", "head"),
        ("interpolate", "labels"),
        ("interpolate", "head"),
    ] {
        let run = case
            .ridge()
            .set("--objective", objective)
            .set("--from", from);
        refused(&case, &run, &[FEATURES, "NaN at row 7, column 0"]);
    }

    for (option, name) in [("--head", "bad.st"), ("--init", "bad.st")] {
        for (row, bias) in [(1, false), (4, true)] {
            let case = Case::small();
            let mut weights = gaussian(5, 3, 3);
            weights[(row, 2)] = f64::NAN;
            case.write(name, &tensor_file(&head_tensors(&weights, true, "")));
            let place = if bias {
                "`bias` has NaN at row 0, column 2"
            } else {
                "`weight` has NaN at row 2, column 1"
            };
            refused(&case, &case.ridge().set(option, name), &[name, place]);
        }
    }
}

#[test]
fn labels_out_of_range() {
    for (row, label) in [(0, -1), (4, 3), (11, i64::MAX), (5, i64::MIN)] {
        let mut labels = Case::small_labels();
        labels[row] = label;
        let case = Case::small();
        let [features, _] = case.small_tensors();
        case.write(
            FEATURES,
            &tensor_file(&[features, Tensor::integers("labels", &labels)]),
        );
        let at = format!("label {label} at row {row} is out of range");
        refused(&case, &case.ridge(), &[FEATURES, &at, "3 classes, 0 to 2"]);
        let forget_class = case.ridge().set("--forget", "class:1");
        refused(&case, &forget_class, &[FEATURES, &at]);
    }
}

#[test]
fn lists_of_rows() {
    let case = Case::small();
    let everything: String = (0..12).map(|i| format!("{i}\n")).collect();
    for (text, words) in [
        ("", &["the list of rows is empty"][..]),
        ("# none\n\n  # of these\n", &["is empty"]),
        (&everything, &["covers all 12 rows"]),
        ("1\n4\n1\n", &["row 1 is listed twice", "lines 1 and 3"]),
        ("1\n12\n", &["row 12 is out of range", "below 12"]),
        ("18446744073709551615", &["row 18446744073709551615"]),
        ("99999999999999999999", &["line 1", "99999999999999999999"]),
        ("3\nseven\n", &["line 2", "`seven`"]),
        ("3\n-2\n", &["line 2", "`-2` is negative"]),
        ("3.0", &["line 1", "`3.0`"]),
    ] {
        case.write(IDS, text.as_bytes());
        refused(&case, &case.ridge(), &[&[IDS], words].concat());
    }
    case.write(IDS, b"1\n2 \xff\n");
    refused(&case, &case.ridge(), &[IDS, "line 2", "UTF-8"]);
    for name in ["absent.txt", "."] {
        let run = case.ridge().set("--forget", name);
        refused(&case, &run, &[name, "cannot read"]);
    }
}

#[test]
fn classes_to_forget() {
    let case = Case::small();
    for (class, words) in [
        (
            "class:3",
            &["--forget class:3", "no row has that label"][..],
        ),
        ("class:x", &["--forget class:x", "`x` is not a class"]),
        ("class:", &["--forget class:", "a class is missing"]),
        ("class:-1", &["--forget class:-1", "`-1`"]),
    ] {
        refused(&case, &case.ridge().set("--forget", class), words);
    }

    let [features, _] = case.small_tensors();
    let alike = Tensor::integers("labels", &[1; 12]);
    case.write(FEATURES, &tensor_file(&[features.clone(), alike]));
    let run = case.ridge().set("--forget", "class:1");
    refused(&case, &run, &["--forget class:1", "all 12 rows"]);
    let run = case.ridge().set("--forget", "class:2");
    refused(&case, &run, &["--forget class:2", "no row"]);

    let targets = Tensor::matrix("targets", "F32", &gaussian(12, 3, 4));
    case.write(FEATURES, &tensor_file(&[features.clone(), targets]));
    refused(&case, &run, &["--forget class:2", "no class labels"]);
    case.write(FEATURES, &tensor_file(&[features]));
    let run = case
        .head()
        .set("--objective", "interpolate")
        .set("--forget", "class:2");
    refused(&case, &run, &["--forget class:2", "no class labels"]);
}

#[test]
fn parameters() {
    let case = Case::small();
    for ridge in ["-1", "-0.001", "nan", "inf", "-inf"] {
        for objective in ["ridge", "interpolate"] {
            let run = case.ridge().set("--ridge", ridge);
            let run = run.set("--objective", objective);
            let value = ridge.replace("nan", "NaN");
            refused(&case, &run, &["--ridge", &value, "not negative"]);
        }
    }
    for run in [case.ridge(), case.ridge().without("--objective")] {
        refused(&case, &run.without("--ridge"), &["--ridge", "is missing"]);
    }
    for (option, value, words) in [
        ("--ridge", "much", &["--ridge", "'much'"][..]),
        ("--objective", "best", &["--objective", "'best'"]),
        ("--from", "nowhere", &["--from", "'nowhere'"]),
        ("--dtype", "f8", &["--dtype", "'f8'"]),
        ("--device", "tpu", &["--device", "tpu", "cpu, cuda"]),
        ("--device", "cuda:x", &["--device", "cuda:x"]),
        ("--device", "cuda", &["device cuda is not available"]),
        ("--device", "cuda:1", &["device cuda:1 is not available"]),
        ("--threads", "0", &["--threads", "0", "1 to 1024"]),
        ("--threads", "-1", &["-1"]),
        ("--threads", "two", &["--threads", "'two'"]),
        ("--report", "report.txt", &["report.txt", ".html or .json"]),
        ("--report", "report", &["report", ".html or .json"]),
        ("--no-such-option", "1", &["--no-such-option"]),
    ] {
        case.write("report.txt", b"old");
        refused(&case, &case.ridge().set(option, value), words);
    }
    for option in ["--features", "--head", "--forget", "--out"] {
        refused(&case, &case.ridge().without(option), &[option]);
    }
    for (command, words) in [
        ("forget", &["forget"][..]),
        ("reproduce", &["<TABLE>"]),
        ("reproduce table9", &["table9"]),
        ("demo --seeds 0 --report report.html", &["--seeds", "0"]),
        ("demo --seeds -1 --report report.html", &["-1"]),
        ("demo --device cuda --report report.html", &["device cuda"]),
        ("demo --report absent/report.html", &["absent/report.html"]),
        (
            "demo --report report.html --json report.html",
            &["report.html", "same file"],
        ),
        ("doctor --threads 0", &["--threads", "0"]),
        ("doctor --json absent/doctor.json", &["absent/doctor.json"]),
    ] {
        refused(&case, &Run::new(&case, command), words);
    }
}

#[test]
fn shapes_that_do_not_agree() {
    let case = Case::small();
    let narrow = head_tensors(&gaussian(4, 3, 5), true, "");
    case.write("other.st", &tensor_file(&narrow));
    let run = case.ridge().set("--head", "other.st");
    let words = &[
        FEATURES,
        "`features`",
        "4 columns",
        "3, the columns of `weight` [C,D] in other.st",
    ];
    refused(&case, &run, words);

    let run = case.ridge().set("--init", "other.st");
    refused(&case, &run, &["other.st", "3×3 with a bias", "3×4 with"]);
    let no_bias = head_tensors(&gaussian(4, 3, 5), false, "");
    case.write("other.st", &tensor_file(&no_bias));
    let words = &["other.st", "3×4 without a bias", "3×4 with a bias"];
    refused(&case, &run, words);
    let classes = head_tensors(&gaussian(5, 2, 5), true, "");
    case.write("other.st", &tensor_file(&classes));
    refused(&case, &run, &["other.st", "2×4", "3×4"]);

    let weight = Tensor::matrix("weight", "F32", &gaussian(3, 4, 6));
    for (tensors, words) in [
        (
            vec![weight.clone(), Tensor::vector("bias", "F32", &[0.0; 2])],
            &["`bias`", "2 values", "expected 3"][..],
        ),
        (
            vec![Tensor::vector("weight", "F32", &[0.0; 4])],
            &["`weight` is f32 [4]", "2-dimensional"],
        ),
        (
            vec![Tensor::matrix("kernel", "F32", &gaussian(3, 4, 6))],
            &["no tensor `weight`", "`kernel`"],
        ),
        (
            ["a.weight", "b.weight"]
                .map(|name| Tensor {
                    name: name.into(),
                    ..weight.clone()
                })
                .to_vec(),
            &["`a.weight`", "`b.weight`"],
        ),
    ] {
        case.write(HEAD, &tensor_file(&tensors));
        refused(&case, &case.ridge(), &[&[HEAD], words].concat());
    }
}

#[test]
fn outputs_that_cannot_be_written() {
    for option in ["--out", "--labels-out", "--report", "--json"] {
        let case = Case::small();
        let inside_nothing = "absent/x.json";
        let run = case.ridge().set(option, inside_nothing);
        refused(&case, &run, &[inside_nothing, "cannot write"]);
        fs::create_dir(case.path("folder.json")).unwrap();
        let run = case.ridge().set(option, "folder.json");
        refused(&case, &run, &["folder.json", "is a directory"]);
        let inside_file = format!("{IDS}/x.json");
        let run = case.ridge().set(option, &inside_file);
        refused(&case, &run, &[&inside_file, "cannot write"]);

        let protected = "protected.json";
        case.write(protected, b"precious");
        let mut permissions = fs::metadata(case.path(protected)).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(case.path(protected), permissions).unwrap();
        let run = case.ridge().set(option, protected);
        refused(&case, &run, &[protected, "cannot write"]);
    }
}

#[test]
fn outputs_that_are_another_file_of_the_run() {
    let case = Case::small();
    case.write("init.json", &fs::read(case.path(HEAD)).unwrap());
    case.write("answers.json", &fs::read(case.path(FEATURES)).unwrap());
    case.write("f.json", &fs::read(case.path(FEATURES)).unwrap());
    case.write("ids.json", &fs::read(case.path(IDS)).unwrap());
    case.write("h.json", &fs::read(case.path(HEAD)).unwrap());
    fs::create_dir(case.path("sub")).unwrap();
    let all = case
        .ridge()
        .set("--features", "f.json")
        .set("--labels", "answers.json")
        .set("--init", "init.json")
        .set("--forget", "ids.json")
        .set("--head", "h.json");
    let absolute = |name: &str| case.path(name).to_str().unwrap().to_owned();
    for input in ["f.json", "answers.json", "init.json", "ids.json", "h.json"] {
        for option in ["--out", "--labels-out", "--report", "--json"] {
            if (option, input) == ("--out", "h.json") {
                continue;
            }
            for spelt in [input.to_owned(), format!("sub/../{input}"), absolute(input)] {
                let run = all.clone().set(option, &spelt);
                refused(&case, &run, &[input, option, "same file"]);
            }
        }
    }
    let outputs = ["--out", "--labels-out", "--report", "--json"];
    for (i, first) in outputs.into_iter().enumerate() {
        for second in &outputs[i + 1..] {
            for spelt in ["both.json".to_owned(), absolute("both.json")] {
                let run = case.ridge().set(first, "both.json").set(second, &spelt);
                refused(&case, &run, &["both.json", "same file"]);
            }
        }
    }
    #[cfg(unix)]
    for input in ["f.json", "h.json"] {
        std::os::unix::fs::symlink(input, case.path("link.json")).unwrap();
        let run = all.clone().set("--json", "link.json");
        refused(&case, &run, &["link.json", "same file"]);
        fs::remove_file(case.path("link.json")).unwrap();
    }
}

#[test]
fn the_head_alone_may_be_replaced() {
    let case = Case::small();
    case.ridge().succeeds();
    let elsewhere = fs::read(case.path(OUT)).unwrap();
    case.ridge().set("--out", HEAD).succeeds();
    assert_eq!(fs::read(case.path(HEAD)).unwrap(), elsewhere);
}

#[test]
fn values_too_large_for_the_output_type() {
    let case = Case::small();
    let [features, _] = case.small_tensors();
    let mut targets = gaussian(12, 3, 7);
    for value in targets.as_mut_slice() {
        *value *= 1e6;
    }
    let targets = Tensor::matrix("targets", "F64", &targets);
    case.write(FEATURES, &tensor_file(&[features, targets]));
    case.ridge().set("--dtype", "f32").succeeds();
    let run = case.ridge().set("--dtype", "f16");
    refused(&case, &run, &["dtype", "f16", "e5"]);
}

/// A name is text from outside: it may hold a line break, and the message is still one line.
#[cfg(unix)]
#[test]
fn names_with_line_breaks() {
    let case = Case::small();
    let name = "two\nlines.safetensors";
    for option in ["--features", "--head", "--forget"] {
        refused(&case, &case.ridge().set(option, name), &["two", "lines"]);
    }
    let [features, labels] = case.small_tensors();
    let odd = Tensor {
        name: "a\nb".into(),
        ..features
    };
    case.write(FEATURES, &tensor_file(&[odd, labels]));
    refused(&case, &case.ridge(), &[FEATURES, "no tensor `features`"]);
    refused(&case, &case.ridge().set("--device", "a\nb"), &["--device"]);
    refused(&case, &case.ridge().set("--dtype", "a\nb"), &["--dtype"]);
    refused(
        &case,
        &case.ridge().set("--forget", "class:\n"),
        &["class:"],
    );
}
