//! Mutated inputs, for every parser: a small corpus of good files, each changed here and there. A parser may accept what
//! comes out or refuse it in one line; it may not panic.
//!
//! A few thousand cases are run with all tests. How many is asked for by
//!
//! ```text
//! MUSO_FUZZ=1000000 MUSO_FUZZ_RUNS=10000 cargo test --release --test suite fuzz -- --nocapture
//! ```
//!
//! in process over all parsers, and through the program, which must also leave its outputs as they were. `MUSO_FUZZ_SEED`
//! gives other cases. Numbers of cases, of refusals and of panics are printed.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use muso::data::forget::RowList;
use muso::data::images::{self, Kind};
use muso::data::{Head, RowBuffer, TensorFile, idx, read_checkpoint, write_state};
use muso::gram::shard::Shard;
use muso::models::{Architecture, NetworkConfig};
use muso::pipeline::networks::Config;
use muso::pipeline::networks::checkpoint::{make_of, make_text};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::forge::{
    Pickle, archive, gzip, idx as idx_file, jpeg, oldest, one_tensor, png, stored, stream,
};
use crate::parsers::{feature_file, npy_bytes, shard};

/// A parser, the name that its input has in a folder of good files, and good inputs.
struct Target {
    name: &'static str,
    file: &'static str,
    corpus: Vec<Vec<u8>>,
    /// Reads all that the file holds.
    read: fn(&Path) -> muso::Result<()>,
    /// Arguments of the program that reads the same file.
    arguments: &'static str,
}

/// Values at which lengths and counts go wrong, and opcodes that do much.
const TELLING: [u8; 16] = [
    0x00, 0x01, 0x7f, 0x80, 0xff, b'(', b')', b']', b'}', b'e', b'u', b't', b'R', b'q', b'h', b'.',
];

/// Changes bytes, cuts, repeats or moves pieces.
fn mutate(bytes: &mut Vec<u8>, other: &[u8], rng: &mut ChaCha8Rng) {
    for _ in 0..rng.random_range(1..=4) {
        let at = rng.random_range(0..=bytes.len().saturating_sub(1));
        let length = rng
            .random_range(1..=16_usize)
            .min(bytes.len() - at.min(bytes.len()));
        match rng.random_range(0..10) {
            0 | 1 if !bytes.is_empty() => bytes[at] ^= 1 << rng.random_range(0..8),
            2 if !bytes.is_empty() => bytes[at] = rng.random(),
            3 | 4 if !bytes.is_empty() => bytes[at] = TELLING[rng.random_range(0..TELLING.len())],
            5 => bytes.truncate(at),
            6 => {
                let piece = bytes[at..at + length].to_vec();
                bytes.splice(at..at, piece);
            }
            7 => {
                bytes.drain(at..at + length);
            }
            // A number of one to eight bytes, small, large or negative.
            8 => {
                let number = match rng.random_range(0..3) {
                    0 => rng.random_range(0..64),
                    1 => u64::MAX >> rng.random_range(0..40),
                    _ => 1 << rng.random_range(0..64),
                };
                for (to, from) in bytes[at..]
                    .iter_mut()
                    .zip(number.to_le_bytes())
                    .take(length)
                {
                    *to = from;
                }
            }
            // A piece of another good file.
            _ if !other.is_empty() => {
                let from = rng.random_range(0..other.len());
                let piece = &other[from..(from + 4 * length).min(other.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
            _ => {}
        }
    }
}

fn tensors(path: &Path) -> muso::Result<()> {
    let file = TensorFile::open(path)?;
    let mut names = file.tensor_names();
    if names.is_empty() {
        names.push("");
    }
    let (mut rows, mut labels) = (RowBuffer::new(), Vec::new());
    for name in names {
        let _ = file.array(name);
        if let Ok(matrix) = file.matrix(name) {
            matrix.read(0, 1, &mut rows)?;
        }
        if let Ok(reader) = file.labels(name) {
            reader.read(0, reader.len() as usize, &mut labels)?;
        }
    }
    file.unchanged()
}

fn image_set(kind: Kind, path: &Path) -> muso::Result<()> {
    let folder = path.ancestors().find(|folder| folder.ends_with("set"));
    let set = images::open(kind, folder)?;
    for part in [set.train, set.test] {
        let mut image = vec![0; part.shape().iter().product()];
        for row in 0..part.len().min(3) {
            part.read(row, &mut image)?;
        }
    }
    Ok(())
}

/// Checkpoints in every layout: one tensor, and the file of a training script.
fn checkpoint_corpus() -> Vec<Vec<u8>> {
    let values = [0_f32, 1.0, 2.0, 3.0, 4.0, 5.0];
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let plain = one_tensor(6, &[2, 3], &[3, 1]);
    // A training script's file: nested, with numbers, texts, memo entries and a module beside the weights.
    let script = Pickle::new()
        .code(b"}q\0(")
        .text("epoch")
        .integer(3)
        .text("lr")
        .code(b"G\x3f\x84\x7a\xe1\x47\xae\x14\x7b")
        .text("state_dict")
        .code(b"ccollections\nOrderedDict\n)Rq\x01(")
        .text("fc.weight")
        .tensor("0", 6, &[2, 3], &[1, 2])
        .code(b"q\x02")
        .text("fc.tied")
        .code(b"h\x02u}")
        .text("_metadata")
        .code(b"}sb")
        .text("model")
        .code(b"c__main__\nNet\n)\x81}(")
        .text("_parameters")
        .code(b"ccollections\nOrderedDict\n]")
        .text("w")
        .tensor("0", 6, &[3], &[2])
        .code(b"\x86a\x85R")
        .text("_buffers")
        .code(b"}")
        .text("_modules")
        .code(b"}ubu")
        .end();
    let storage = stored("m/data/0", &bytes);
    let zipped =
        |object: &[u8]| archive(stored("m/data.pkl", object), std::slice::from_ref(&storage));
    vec![
        zipped(&plain),
        zipped(&script),
        stream(&plain, &[("0", &values)]),
        stream(&script, &[("0", &values)]),
        oldest(),
    ]
}

#[test]
fn checkpoints_of_every_layout_are_read() {
    let rows = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
    let columns = [0.0, 2.0, 4.0, 1.0, 3.0, 5.0];
    let plain = || vec![("weight", vec![2, 3], rows.to_vec())];
    let script = || {
        let tensor = |name| (name, vec![2, 3], columns.to_vec());
        vec![tensor("fc.tied"), tensor("fc.weight")]
    };
    let oldest = vec![("weight", vec![2, 3], columns.to_vec())];
    let wanted = [plain(), script(), plain(), script(), oldest];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.pth");
    for (bytes, wanted) in checkpoint_corpus().iter().zip(wanted) {
        fs::write(&path, bytes).unwrap();
        let (state, texts) = read_checkpoint(&path).unwrap();
        let found: Vec<_> = state
            .iter()
            .map(|t| (t.name.as_str(), t.shape.clone(), t.values.clone()))
            .collect();
        assert_eq!(found, wanted);
        assert!(texts.is_empty());
    }
    // Without the state dictionary the module's own parameters are what is left.
    let only_module = Pickle::new()
        .code(b"c__main__\nNet\n)\x81q\0}(")
        .text("_parameters")
        .code(b"}(")
        .text("w")
        .tensor("0", 6, &[3], &[2])
        .text("none")
        .code(b"Nu")
        .text("_buffers")
        .code(b"}(")
        .text("mean")
        .tensor("0", 6, &[2], &[1])
        .text("passing")
        .tensor("0", 6, &[6], &[1])
        .code(b"u")
        .text("_non_persistent_buffers_set")
        .code(b"cbuiltins\nset\n]")
        .text("passing")
        .code(b"a\x85R")
        .text("_modules")
        .code(b"}ub0h\0");
    let module = stream(
        &only_module.end(),
        &[("0", &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])],
    );
    fs::write(&path, module).unwrap();
    let (state, _) = read_checkpoint(&path).unwrap();
    let found: Vec<_> = state
        .iter()
        .map(|t| (t.name.as_str(), t.values.clone()))
        .collect();
    assert_eq!(
        found,
        [("mean", vec![0.0, 1.0]), ("w", vec![0.0, 2.0, 4.0])]
    );
}

fn targets() -> Vec<Target> {
    let features = feature_file(12, 4, muso::engine::Dtype::F32).2;
    let npy = npy_bytes(1, "<f4", "False", "(3, 2)", &[1; 24]);
    let config = NetworkConfig::new(Architecture::SmallCnn, 10, [1, 28, 28]).with_width(2);
    let network = config
        .init(0, &muso::models::burn::tensor::Device::flex())
        .unwrap();
    let state = network.state();
    let texts = BTreeMap::from([("muso.network".to_owned(), make_text(&config))]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model");
    let mut file = muso::data::OutputFile::create(&path).unwrap();
    write_state(&mut file, &state, &texts).unwrap();
    file.commit().unwrap();
    let model = fs::read(&path).unwrap();
    let head = muso::data::to_safetensors(&[
        (
            "fc.weight",
            muso::data::OutTensor::Matrix {
                values: &muso::engine::Matrix::zeros(3, 4),
                dtype: muso::engine::Dtype::F16,
            },
        ),
        (
            "fc.bias",
            muso::data::OutTensor::Vector {
                values: &[0.0; 3],
                dtype: muso::engine::Dtype::F16,
            },
        ),
    ]);
    let jpegs = || vec![jpeg(16, 16), png(16, 16, 16 * 49)];
    let images = idx_file(&[3, 4, 5], &[7; 60]);
    let records: Vec<u8> = (0..2)
        .flat_map(|label| [vec![label], vec![9; 3072]].concat())
        .collect();
    let config = "seeds = [4]\nretrains = 1\n[data]\nkind = \"fashion\"\n[network]\narchitecture = \"small-cnn\"\nwidth = 2\n\
                  [train]\nepochs = 1\n[[forget]]\nclass = \"sneaker\"\n[methods.fine-tune.recipe]\nepochs = 1\n";
    vec![
        Target {
            name: "checkpoint",
            file: "model.pth",
            corpus: checkpoint_corpus(),
            read: |path| read_checkpoint(path).map(drop),
            arguments: "evaluate --model model.pth",
        },
        Target {
            name: "network",
            file: "model.safetensors",
            corpus: vec![model],
            read: |path| make_of(path).map(drop),
            arguments: "evaluate --model model.safetensors --json out",
        },
        Target {
            name: "safetensors",
            file: "features",
            corpus: vec![features.clone()],
            read: tensors,
            arguments: "head --features features --head head --forget ids --objective ridge --ridge 1 --out out",
        },
        Target {
            name: "npy",
            file: "array",
            corpus: vec![npy, npy_bytes(2, "<i8", "True", "(3,)", &[0; 24])],
            read: tensors,
            arguments: "head --features array --labels features --head head --forget ids --objective ridge --ridge 1 --out out",
        },
        Target {
            name: "head",
            file: "head",
            corpus: vec![head.unwrap(), features],
            read: |path| Head::load(path).map(drop),
            arguments: "head --features features --head head --forget ids --objective ridge --ridge 1 --out out",
        },
        Target {
            name: "ids",
            file: "ids",
            corpus: vec![
                b"# withdrawn\n2, 7\n\n11 \xc2\xa0 # twice\n".to_vec(),
                b"\xef\xbb\xbf1\r\n3".to_vec(),
            ],
            read: |path| RowList::read(path).map(drop),
            arguments: "head --features features --head head --forget ids --objective ridge --ridge 1 --out out",
        },
        Target {
            name: "sums",
            file: "sums",
            corpus: vec![shard(3, 5, 3, 2).to_safetensors().unwrap()],
            read: |path| Shard::load(path).map(drop),
            arguments: "merge sums --out out",
        },
        Target {
            name: "configuration",
            file: "config.toml",
            corpus: vec![config.into(), Config::default().to_toml().into()],
            read: |path| Config::read(path).map(drop),
            arguments: "unlearn --model model.safetensors --config config.toml --out out",
        },
        Target {
            name: "idx",
            file: "set/t10k-images-idx3-ubyte",
            corpus: vec![images.clone(), gzip(&images)],
            read: |path| idx::read(path).map(drop),
            arguments: "evaluate --model model.safetensors --data mnist --data-path set",
        },
        Target {
            name: "cifar",
            file: "set/test_batch.bin",
            corpus: vec![records],
            read: |path| image_set(Kind::Cifar10, path),
            arguments: "evaluate --model model.safetensors --data cifar10 --data-path set",
        },
        Target {
            name: "image",
            file: "set/test/a/0.png",
            corpus: jpegs(),
            read: |path| image_set(Kind::Folder, path),
            arguments: "train --out out --data folder --data-path set --image-size 8 --epochs 1 --width 2",
        },
        Target {
            name: "labels",
            file: "tiny/set/val/val_annotations.txt",
            corpus: vec![b"0.png\tn01\t1\t2\t3\t4\n1.png\tn02\n".to_vec()],
            read: |path| image_set(Kind::TinyImagenet, path),
            arguments: "evaluate --model model.safetensors --data tiny-imagenet --data-path tiny/set",
        },
    ]
}

/// A folder in which every input is good, so that the one that is not shows.
fn good_folder(targets: &[Target]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    for target in targets {
        write(target.file, &target.corpus[0]);
    }
    let images = idx_file(&[3, 4, 5], &[7; 60]);
    let labels = idx_file(&[3], &[0, 1, 2]);
    for stem in ["train", "t10k"] {
        write(&format!("set/{stem}-images-idx3-ubyte"), &images);
        write(&format!("set/{stem}-labels-idx1-ubyte"), &labels);
    }
    for batch in 1..6 {
        write(&format!("set/data_batch_{batch}.bin"), &[0; 3073]);
    }
    let image = png(16, 16, 16 * 49);
    for part in ["train", "test"] {
        for class in ["a", "b"] {
            write(&format!("set/{part}/{class}/0.png"), &image);
        }
    }
    write("tiny/set/wnids.txt", b"n02\nn01\n");
    write("tiny/set/words.txt", b"n01\tcat, tabby\nn02\tdog\n");
    let image = png(64, 64, 64 * 193);
    for class in ["n01", "n02"] {
        write(&format!("tiny/set/train/{class}/images/0.png"), &image);
    }
    for name in ["0.png", "1.png"] {
        write(&format!("tiny/set/val/images/{name}"), &image);
    }
    write("out", b"what was there before");
    dir
}

/// Writes a file anew: file systems make sure of one that is cut and written again, which takes its time.
fn replace(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A number from the environment, or what is affordable with all other tests.
fn asked(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// The mutated inputs of a target, one after the other.
fn inputs<'t>(target: &'t Target, all: &'t [Target]) -> impl FnMut(u64) -> Vec<u8> + 't {
    let seed = asked("MUSO_FUZZ_SEED", 0);
    let corpus: Vec<&[u8]> = all
        .iter()
        .flat_map(|t| &t.corpus)
        .map(Vec::as_slice)
        .collect();
    move |number| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed << 40 ^ number);
        rng.set_stream(target.name.bytes().map(u64::from).sum());
        let mut bytes = target.corpus[rng.random_range(0..target.corpus.len())].clone();
        let other = corpus[rng.random_range(0..corpus.len())];
        mutate(&mut bytes, other, &mut rng);
        bytes
    }
}

/// Every parser in this process.
#[test]
fn parsers_survive_mutated_inputs() {
    let targets = targets();
    let cases = asked("MUSO_FUZZ", 12_000).div_ceil(targets.len() as u64);
    let mut panics = Vec::new();
    let mut total = 0;
    for target in &targets {
        let dir = good_folder(&targets);
        let path = dir.path().join(target.file);
        (target.read)(&path).unwrap_or_else(|e| panic!("{}: the good file: {e}", target.name));
        let mut input = inputs(target, &targets);
        let mut refused = 0;
        for number in 0..cases {
            let bytes = input(number);
            replace(&path, &bytes);
            match catch_unwind(AssertUnwindSafe(|| (target.read)(&path))) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    refused += 1;
                    let said = error.to_string();
                    let one_line = !said.contains(['\n', '\u{1b}']) && said.len() < 1500;
                    if !error.is_input() || !one_line {
                        panics.push(format!("{} case {number}: {said:?}", target.name));
                    }
                }
                Err(_) => panics.push(format!("{} case {number}: a panic", target.name)),
            }
        }
        total += cases;
        println!("{:14} {cases:8} cases, {refused:8} refused", target.name);
        // Some must be refused, else nothing was tried; and some must get through to what comes behind the header.
        assert!(
            refused > cases / 20,
            "{}: {refused} of {cases}",
            target.name
        );
        assert!(refused < cases, "{}: every case was refused", target.name);
    }
    println!(
        "{total} inputs in process, {} panics or bad errors",
        panics.len()
    );
    assert!(panics.is_empty(), "{panics:#?}");
}

/// The files of a folder and of all folders in it.
fn contents(folder: &Path, found: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            contents(&path, found);
        } else {
            let bytes = fs::read(&path).unwrap();
            found.push((path, bytes));
        }
    }
    found.sort();
}

/// The program: code 0 or one line and code 2, and then every file is as it was.
#[test]
fn the_program_survives_mutated_inputs() {
    let targets = targets();
    let cases = asked("MUSO_FUZZ_RUNS", 60).div_ceil(targets.len() as u64);
    let mut faults = Vec::new();
    let (mut total, mut touched) = (0, 0);
    for target in &targets {
        let mut input = inputs(target, &targets);
        let mut refused = 0;
        let dir = good_folder(&targets);
        let path = dir.path().join(target.file);
        let mut before = Vec::new();
        contents(dir.path(), &mut before);
        for number in 0..cases {
            let bytes = input(number);
            replace(&path, &bytes);
            let output = Command::new(env!("CARGO_BIN_EXE_muso"))
                .args(target.arguments.split(' '))
                .args(["--threads", "1"])
                .current_dir(dir.path())
                .env("CUDA_VISIBLE_DEVICES", "")
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let code = output.status.code();
            let mut after = Vec::new();
            contents(dir.path(), &mut after);
            let restored = |files: &[(PathBuf, Vec<u8>)]| -> Vec<(PathBuf, Vec<u8>)> {
                let others = files.iter().filter(|(at, _)| *at != path);
                others.cloned().collect()
            };
            let same = restored(&before) == restored(&after);
            if code == Some(2) {
                refused += 1;
                let one_line = said.starts_with("muso: ") && said.matches('\n').count() == 1;
                touched += u64::from(!same);
                if !one_line || !same {
                    faults.push(format!("{} case {number}: {said:?}", target.name));
                }
            } else if !matches!(code, Some(0 | 1)) || said.contains("panicked") {
                faults.push(format!("{} case {number}: {code:?} {said:?}", target.name));
            }
            if !same {
                // A run that went through; the next starts from the same files.
                let _ = fs::remove_dir_all(dir.path().join("out"));
                for (at, bytes) in &before {
                    fs::write(at, bytes).unwrap();
                }
            }
        }
        total += cases;
        println!("{:14} {cases:8} runs, {refused:8} refused", target.name);
    }
    println!(
        "{total} runs, {} faults, {touched} outputs touched",
        faults.len()
    );
    assert!(faults.is_empty(), "{faults:#?}");
}
