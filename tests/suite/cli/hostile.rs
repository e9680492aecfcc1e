//! Files made to bring a reader down. Each is refused in one line, with exit code 2 and with nothing changed on disk, in a
//! process that the system gives 10⁹ bytes of memory and five seconds of a processor.

use std::fs;
use std::process::{Command, Stdio};

use super::{Case, FEATURES, HEAD, Run, Tensor, one_line, tensor_file};
use crate::forge::{
    Packed, Pickle, archive, deflated, directory, gzip, idx, jpeg, one_tensor, png, safetensors,
    stored, stream, tar, zip,
};
use crate::parsers::npy_bytes;

/// The run under the limits of the system, with `before` as what standard input comes from.
fn limited(run: &Run, before: &str, seconds: u64) -> Command {
    const KIB: u64 = 1_000_000_000 / 1024;
    let program = run.command();
    let mut command = Command::new("sh");
    // The limits are those of the program alone, not of what it reads from.
    let limits = format!("(ulimit -v {KIB} && ulimit -t {seconds} && exec \"$0\" \"$@\")");
    command.arg("-c").arg(format!("{before}{limits}"));
    command.arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(&run.dir).stdin(Stdio::null());
    command
}

fn refused_from(case: &Case, run: Run, before: &str, words: &[&str]) {
    let threads = run.set("--threads", 2);
    let contents = case.snapshot();
    let line = one_line(&limited(&threads, before, 5).output().unwrap(), words);
    assert!(case.snapshot() == contents, "files changed after: {line}");
    print!("{line}");
}

fn refused(case: &Case, run: Run, words: &[&str]) {
    refused_from(case, run, "", words);
}

fn evaluate(case: &Case, name: &str) -> Run {
    Run::new(case, "evaluate").set("--model", name)
}

/// Refuses each as a checkpoint.
fn checkpoints(files: &[(&str, Vec<u8>, &str)]) {
    for (name, bytes, problem) in files {
        let case = Case::empty();
        case.write(name, bytes);
        refused(&case, evaluate(&case, name), &[name, problem]);
    }
}

const VALUES: [f32; 6] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];

fn six_values() -> Vec<u8> {
    VALUES.iter().flat_map(|v| v.to_le_bytes()).collect()
}

#[test]
fn archives() {
    let good = one_tensor(6, &[2, 3], &[3, 1]);
    let pickle = |bytes: &[u8]| stored("m/data.pkl", bytes);
    let storage = stored("m/data/0", &six_values());
    let whole = |object: &[u8]| archive(pickle(object), std::slice::from_ref(&storage));
    // The good one, so that the others fail for what is wrong with them.
    let case = Case::empty();
    case.write("good.pth", &whole(&good));
    let words = &["good.pth", "not those of an architecture known here"];
    refused(&case, evaluate(&case, "good.pth"), words);

    let opcodes = [&b"\x80\x02"[..], &vec![b'N'; 90_000_000], b"."].concat();
    let bomb = archive(deflated("m/data.pkl", &opcodes), &[]);
    assert!(bomb.len() < 100_000, "{}", bomb.len());
    let nested = [&b"\x80\x02)"[..], &vec![0x85; 2_000_000], b"."].concat();
    // Lists that are two times the list before, thirty deep, and a tensor at the bottom.
    let bottom = Pickle::new().code(b"}(").text("m").code(b"}(").text("a");
    let bottom = bottom.tensor("0", 6, &[2, 3], &[3, 1]).code(b"u");
    let doubled = (0..30_u8).fold(bottom, |p, i| {
        p.code(&[b'q', i, b'0', b']', b'(', b'h', i, b'h', i, b'e'])
    });
    let endless = Pickle::new()
        .code(b"}q\0(")
        .text("a")
        .code(b"]q\x01(h\x01h\x01")
        .tensor("0", 6, &[2, 3], &[3, 1]);
    let mut many = Pickle::new()
        .code(b"}(")
        .text(&"n".repeat(900_000))
        .code(b"q\0");
    for _ in 0..500_000 {
        many = many.code(b"Nh\0");
    }
    let zeros = vec![0; 50_000_000];
    let two_lengths = Packed {
        length: 4_000_000_000,
        ..storage.clone()
    };
    let body = zip(&[pickle(&good), storage.clone()]);
    let shared = {
        // One entry holds another, whole with its header.
        let inner = zip(std::slice::from_ref(&storage));
        let inner = &inner[..30 + storage.name.len() + storage.bytes.len()];
        let outer = stored("m/data.pkl", inner);
        let start = (30 + outer.name.len()) as u32;
        let body = zip(std::slice::from_ref(&outer));
        let body = body[..start as usize + inner.len()].to_vec();
        directory(body, &[(outer, 0), (storage.clone(), start)])
    };
    checkpoints(&[
        ("opcodes.pth", bomb, "is compressed"),
        (
            "stored.pth",
            whole(&opcodes),
            "pickles of more than 2097152 opcodes",
        ),
        ("nested.pth", whole(&nested), "no dictionary"),
        (
            "memo.pth",
            whole(&doubled.code(b"u").end()),
            "more than 65536 tensors",
        ),
        (
            "endless.pth",
            whole(&endless.code(b"eu").end()),
            "more than 32 containers deep",
        ),
        ("texts.pth", whole(&many.code(b"Nu").end()), "no tensors"),
        (
            "tensor.pth",
            archive(pickle(&good), &[deflated("m/data/0", &zeros)]),
            "is compressed",
        ),
        (
            "view.pth",
            whole(&one_tensor(6, &[1 << 20, 1 << 20], &[0, 0])),
            "the tensors are larger than the file",
        ),
        (
            "shape.pth",
            whole(&one_tensor(6, &[i64::MAX, i64::MAX], &[1, 1])),
            "overflows",
        ),
        (
            "axes.pth",
            whole(&one_tensor(6, &[1; 100_000], &[1; 100_000])),
            "100000 axes",
        ),
        (
            "strides.pth",
            whole(&one_tensor(6, &[2], &[i64::MAX])),
            "ends at element",
        ),
        (
            "claim.pth",
            whole(&one_tensor(1 << 60, &[2, 3], &[3, 1])),
            "goes beyond the file",
        ),
        (
            "lengths.pth",
            archive(pickle(&good), &[two_lengths]),
            "has two lengths",
        ),
        (
            "other.pth",
            directory(body, &[(pickle(&good), 0), (storage.clone(), 0)]),
            "is another entry in its own header",
        ),
        ("shared.pth", shared, "share bytes"),
        (
            "twice.pth",
            archive(pickle(&good), &[storage.clone(), storage.clone()]),
            "is in the archive twice",
        ),
        (
            "damaged.pth",
            {
                let mut bytes = whole(&good);
                let at = bytes.windows(4).position(|b| b == 5_f32.to_le_bytes());
                bytes[at.unwrap()] ^= 1;
                bytes
            },
            "damaged",
        ),
    ]);
}

#[test]
fn older_checkpoints() {
    let good = one_tensor(6, &[2, 3], &[3, 1]);
    let opcodes = [&b"\x80\x02"[..], &vec![b']'; 90_000_000], b"."].concat();
    let claim = Pickle::new()
        .code(b"\x8d")
        .code(&(u64::MAX >> 1).to_le_bytes());
    let count = Pickle::new().integer(1 << 40).end();
    let beyond = one_tensor(1 << 40, &[2, 3], &[3, 1]);
    let rank = [
        &Pickle::new().integer(1).end()[..],
        &oldest_tensor(i32::MAX),
    ]
    .concat();
    let mut header = tar(&[("storages", b"")]);
    header[124..135].copy_from_slice(b"77777777777");
    let none = Pickle::new().integer(0).end();
    let none = [&none[..], &Pickle::new().code(b"]").end()].concat();
    checkpoints(&[
        (
            "opcodes.pth",
            stream(&opcodes, &[]),
            "pickles of more than 2097152 opcodes",
        ),
        (
            "text.pth",
            stream(&claim.end(), &[("0", &VALUES)]),
            "a pickle without an end",
        ),
        (
            "storage.pth",
            stream(&beyond, &[("0", &VALUES)]),
            "goes beyond the file",
        ),
        (
            "count.pth",
            stream(&good, &[("0", &VALUES[..5])]),
            "goes beyond the file",
        ),
        (
            "storages.tar",
            tar(&[("storages", &count), ("tensors", &count), ("pickle", &good)]),
            "a pickle without an end",
        ),
        (
            "rank.tar",
            tar(&[("storages", &none), ("tensors", &rank), ("pickle", &good)]),
            "2147483647 axes",
        ),
        ("size.tar", header, "a tar entry lies outside the file"),
    ]);
}

/// The description of a tensor in the oldest layout, with this rank.
fn oldest_tensor(rank: i32) -> Vec<u8> {
    let mut bytes = Pickle::new().code(b"(").integer(9).integer(7);
    bytes = bytes.code(b"ctorch\nFloatTensor\nt.");
    [&bytes.0[..], &rank.to_le_bytes(), &[0; 64]].concat()
}

#[test]
fn tensor_files() {
    let header_claim = [&99_000_000_u64.to_le_bytes()[..], &[b' '; 1000]].concat();
    let extents = format!(
        r#"{{"features":{{"dtype":"F32","shape":[{}0],"data_offsets":[0,0]}}}}"#,
        "0,".repeat(49_000_000)
    );
    let texts = format!(
        r#"{{"__metadata__":{{"a":[{}0]}}}}"#,
        "0,".repeat(49_000_000)
    );
    let names: Vec<String> = (0..1_500_000)
        .map(|i| format!(r#""{i}":{{"dtype":"F4","shape":[0],"data_offsets":[0,0]}}"#))
        .collect();
    let nested = format!(r#"{{"a":{}"#, "[".repeat(50_000_000));
    let dims = npy_bytes(
        2,
        "<f4",
        "False",
        &format!("({})", "1,".repeat(500_000)),
        &[],
    );
    let long = [
        &b"\x93NUMPY\x02\x00"[..],
        &u32::MAX.to_le_bytes(),
        &[b' '; 100],
    ]
    .concat();
    let huge = npy_bytes(1, "<f4", "False", "(4000000000, 4000000000)", &[0; 64]);
    for (bytes, problem) in [
        (header_claim, "a header of 99000000 bytes is declared"),
        (safetensors(&extents, 0), "at most 64 extents"),
        (safetensors(&texts, 0), "no tensor `features`"),
        (
            safetensors(&format!("{{{}}}", names.join(",")), 0),
            "no tensor `features`",
        ),
        (safetensors(&nested, 0), "bad header"),
        (dims, "truncated"),
        (long, "a .npy header of 4294967295 bytes"),
        (huge, "truncated"),
    ] {
        let case = Case::small();
        case.write(FEATURES, &bytes);
        refused(&case, case.ridge(), &[FEATURES, problem]);
    }

    // Shapes that the bytes back, and results that no machine has room for.
    let wide = |name: &str, rows: usize, cols: usize| Tensor {
        name: name.into(),
        dtype: "F16",
        shape: vec![rows, cols],
        bytes: vec![0; 2 * rows * cols],
    };
    let case = Case::empty();
    let labels = Tensor::integers("labels", &[0, 1]);
    case.write(
        FEATURES,
        &tensor_file(&[wide("features", 2, 1_000_000), labels]),
    );
    case.write(HEAD, &tensor_file(&[wide("weight", 2, 1_000_000)]));
    let gram = Run::new(&case, &format!("gram {FEATURES}")).set("--head", HEAD);
    refused(
        &case,
        gram.set("--out", "sums"),
        &["a matrix of order 1000000"],
    );
    let part = r#"{\"features\":\"\",\"first\":0,\"end\":1,\"of\":1,\"file\":\"\",\"labels\":\"\",\"dtype\":\"\",\"forget\":\"\",\"forgotten\":0,\"content\":\"\"}"#;
    let parts = vec![part; 400_000].join(",");
    let sums = format!(
        r#"{{"__metadata__":{{"format":"muso sums","version":"1","bias":"false","parts":"[{parts}]"}}}}"#
    );
    case.write("sums", &safetensors(&sums, 0));
    let merge = Run::new(&case, "merge sums").set("--out", "all");
    refused(&case, merge, &["sums", "contradict each other"]);
}

/// A head of many classes over many rows: what is computed of them goes batch by batch.
#[test]
fn many_classes_take_little_memory() {
    let tall = |name: &str, rows: usize| Tensor {
        name: name.into(),
        dtype: "F16",
        shape: vec![rows, 1],
        bytes: [0, 0x3c].repeat(rows),
    };
    let labels = Tensor {
        name: "labels".into(),
        dtype: "U8",
        shape: vec![400],
        bytes: vec![0; 400],
    };
    let case = Case::empty();
    case.write(FEATURES, &tensor_file(&[tall("features", 400), labels]));
    case.write(HEAD, &tensor_file(&[tall("weight", 300_000)]));
    case.write(super::IDS, b"3\n");
    let run = case.ridge().flag("--verify").set("--threads", 2);
    let output = limited(&run.without("--report").without("--json"), "", 60)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
}

#[test]
fn texts() {
    let case = Case::small();
    let train = |name: &str| {
        Run::new(&case, "train")
            .set("--out", "run")
            .set("--config", name)
    };
    // Keys within keys, as deep as the parser lets them go.
    let dotted = ["a"; 79].join(".");
    let deep = format!(
        "methods={}1{}",
        format!("{{{dotted}=").repeat(70),
        "}".repeat(70)
    );
    for (name, text, problem) in [
        (
            "tables.toml",
            "[[a]]\n".repeat(1_000_000),
            "more than 1 MiB",
        ),
        ("fewer.toml", "[[methods]]\n".repeat(80_000), "line 1: "),
        (
            "brackets.toml",
            format!("a={}", "[".repeat(1_000_000)),
            "line 1: ",
        ),
        (
            "dots.toml",
            format!("a{}=1", ".a".repeat(500_000)),
            "recursion limit",
        ),
        (
            "names.toml",
            (0..70_000).map(|i| format!("a{i}=[]\n")).collect(),
            "a0",
        ),
    ] {
        case.write(name, text.as_bytes());
        refused(&case, train(name), &[name, problem]);
    }
    case.write("deep.toml", deep.as_bytes());
    refused(&case, train("deep.toml"), &["method = a is not usable"]);
    let nines = "head -c 1000000000 /dev/zero | tr '\\0' 9 | ";
    let of_pipe = |run: Run| run.set("--forget", "/dev/stdin");
    let words = &["/dev/stdin", "line 1", "larger than any row number"];
    refused_from(&case, of_pipe(case.ridge()), nines, words);
    let words = &["/dev/stdin", "more than 16777216 row numbers"];
    refused_from(&case, of_pipe(case.ridge()), "yes 7 | ", words);
    let comments = "{ printf '#'; head -c 1000000000 /dev/zero; } | ";
    refused_from(
        &case,
        of_pipe(case.ridge()),
        comments,
        &["/dev/stdin", "is empty"],
    );

    let make = "a=[[]]\\n".repeat(500_000);
    let header = format!(r#"{{"__metadata__":{{"muso.network":"{make}"}}}}"#);
    case.write("model.safetensors", &safetensors(&header, 0));
    let words = &["model.safetensors", "`muso.network`: more than 1 MiB"];
    refused(&case, evaluate(&case, "model.safetensors"), words);
}

#[test]
fn image_sets() {
    let case = Case::empty();
    let write = |name: &str, bytes: &[u8]| {
        let path = case.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    let train = |kind: &str, folder: &str| {
        Run::new(&case, "train")
            .set("--out", "run")
            .set("--data", kind)
            .set("--data-path", folder)
    };
    let black = gzip(&idx(&[100_000, 40, 40], &vec![0; 160_000_000]));
    assert!(black.len() < 1_000_000, "{}", black.len());
    write("mnist/train-images-idx3-ubyte.gz", &black);
    write("mnist/train-labels-idx1-ubyte.gz", &gzip(&idx(&[1], &[0])));
    let words = &["train-images-idx3-ubyte.gz", "160000000 bytes"];
    refused(&case, train("mnist", "mnist"), words);
    let claim = idx(&[u32::MAX, u32::MAX], &[0; 9]);
    write("claim/train-images-idx3-ubyte", &claim);
    write("claim/train-labels-idx1-ubyte", &claim);
    let words = &["train-images-idx3-ubyte", "truncated: 9 bytes of values"];
    refused(&case, train("mnist", "claim"), words);

    let good = png(8, 8, 8 * 25);
    for (folder, bytes, problem) in [
        (
            "sides",
            png(70_000, 70_000, 1000),
            "declares 70000×70000 pixels",
        ),
        (
            "pixels",
            png(20_000, 20_000, 1_000_000),
            "192 MiB of pixels",
        ),
        ("empty", png(8000, 8000, 10), "but the file has"),
        ("jpeg", jpeg(65_000, 65_000), "declares 65000×65000 pixels"),
    ] {
        write(&format!("{folder}/train/a/0.png"), &bytes);
        write(&format!("{folder}/train/b/0.png"), &good);
        for class in ["a", "b"] {
            write(&format!("{folder}/test/{class}/0.png"), &good);
        }
        let run = train("folder", folder).set("--image-size", 8);
        refused(&case, run, &["0.png", problem]);
    }
    for stem in ["1", "2", "3", "4", "5"].map(|i| format!("data_batch_{i}")) {
        write(&format!("cifar/{stem}.bin"), &vec![0; 3073]);
    }
    let batch = case.path("cifar/test_batch.bin");
    fs::File::create(&batch).unwrap().set_len(1 << 40).unwrap();
    refused(
        &case,
        train("cifar10", "cifar"),
        &["test_batch.bin", "more than 1024 MiB"],
    );
    fs::remove_file(&batch).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &batch).unwrap();
    refused(
        &case,
        train("cifar10", "cifar"),
        &["test_batch.bin", "not a regular file"],
    );
}
