//! The program from end to end: files in, exit code, lines and files out.
//!
//! Files are made and read here without the crate's own readers and writers, so that a fault that both share shows.

mod audit;
mod bad_input;
mod bench;
#[cfg(feature = "cuda")]
mod cuda;
mod data;
mod exact;
mod exactness;
#[cfg(all(target_os = "linux", feature = "nn"))]
mod hostile;
#[cfg(feature = "nn")]
mod networks;
mod resources;
mod shards;
mod survival;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use half::{bf16, f16};
use muso::engine::Matrix;
use safetensors::SafeTensors;
use tempfile::TempDir;

use crate::support::{gauss_solve, gaussian, identity, matmul};

const FEATURES: &str = "features.safetensors";
const HEAD: &str = "head.safetensors";
const IDS: &str = "ids.txt";
const OUT: &str = "new.safetensors";
const LABELS_OUT: &str = "relabelled.safetensors";
const REPORT: &str = "report.html";
const JSON: &str = "outcome.json";
const OUTPUTS: [&str; 4] = [OUT, LABELS_OUT, REPORT, JSON];

/// A tensor as it goes into a file; nothing about it is checked.
#[derive(Clone)]
struct Tensor {
    name: String,
    dtype: &'static str,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Tensor {
    fn matrix(name: &str, dtype: &'static str, values: &Matrix) -> Self {
        Self {
            name: name.into(),
            dtype,
            shape: vec![values.rows(), values.cols()],
            bytes: encode(dtype, values.as_slice()),
        }
    }

    fn vector(name: &str, dtype: &'static str, values: &[f64]) -> Self {
        Self {
            name: name.into(),
            dtype,
            shape: vec![values.len()],
            bytes: encode(dtype, values),
        }
    }

    fn integers(name: &str, values: &[i64]) -> Self {
        Self {
            name: name.into(),
            dtype: "I64",
            shape: vec![values.len()],
            bytes: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        }
    }
}

fn encode(dtype: &str, values: &[f64]) -> Vec<u8> {
    let one = |&v: &f64| match dtype {
        "F64" => v.to_le_bytes().to_vec(),
        "F32" => (v as f32).to_le_bytes().to_vec(),
        "F16" => f16::from_f64(v).to_le_bytes().to_vec(),
        "BF16" => bf16::from_f64(v).to_le_bytes().to_vec(),
        _ => panic!("no float type {dtype}"),
    };
    values.iter().flat_map(one).collect()
}

fn decode(dtype: &str, bytes: &[u8]) -> Vec<f64> {
    let size = match dtype {
        "F64" => 8,
        "F32" => 4,
        "F16" | "BF16" => 2,
        _ => panic!("no float type {dtype}"),
    };
    let one = |b: &[u8]| match dtype {
        "F64" => f64::from_le_bytes(b.try_into().unwrap()),
        "F32" => f64::from(f32::from_le_bytes(b.try_into().unwrap())),
        "F16" => f16::from_le_bytes(b.try_into().unwrap()).to_f64(),
        _ => bf16::from_le_bytes(b.try_into().unwrap()).to_f64(),
    };
    bytes.chunks_exact(size).map(one).collect()
}

/// What a file of this type holds of these values.
fn rounded(dtype: &str, values: &Matrix) -> Matrix {
    let held = decode(dtype, &encode(dtype, values.as_slice()));
    Matrix::from_vec(values.rows(), values.cols(), held)
}

/// A safetensors file.
fn tensor_file(tensors: &[Tensor]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut begin = 0;
    for tensor in tensors {
        let end = begin + tensor.bytes.len();
        let entry = serde_json::json!({
            "dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [begin, end],
        });
        header.insert(tensor.name.clone(), entry);
        begin = end;
    }
    let header = serde_json::Value::Object(header).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    for tensor in tensors {
        bytes.extend(&tensor.bytes);
    }
    bytes
}

/// A float tensor of a file, with its type; one row if it is a vector.
fn read_tensor(path: &Path, name: &str) -> (String, Matrix) {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let view = file.tensor(name).unwrap();
    let (rows, cols) = match *view.shape() {
        [len] => (1, len),
        [rows, cols] => (rows, cols),
        ref shape => panic!("{name} has shape {shape:?}"),
    };
    let dtype = format!("{:?}", view.dtype());
    let values = decode(&dtype, view.data());
    (dtype, Matrix::from_vec(rows, cols, values))
}

fn read_integers(path: &Path, name: &str) -> Vec<i64> {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let view = file.tensor(name).unwrap();
    assert_eq!(view.dtype(), safetensors::Dtype::I64);
    let one = |b: &[u8]| i64::from_le_bytes(b.try_into().unwrap());
    view.data().chunks_exact(8).map(one).collect()
}

fn tensor_names(path: &Path) -> Vec<String> {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut names: Vec<String> = file.names().iter().map(|&name| name.to_owned()).collect();
    names.sort_unstable();
    names
}

/// The tensors of a head from D×C weights whose last row is the bias, if there is one.
fn head_tensors(weights: &Matrix, bias: bool, prefix: &str) -> Vec<Tensor> {
    let width = weights.rows() - usize::from(bias);
    let weight = Matrix::from_fn(weights.cols(), width, |c, d| weights[(d, c)]);
    let mut tensors = vec![Tensor::matrix(&format!("{prefix}weight"), "F64", &weight)];
    if bias {
        let name = format!("{prefix}bias");
        tensors.push(Tensor::vector(&name, "F64", weights.row(width)));
    }
    tensors
}

/// The inverse of [`head_tensors`], from a file.
fn read_head(path: &Path, bias: bool) -> Matrix {
    let weights = read_tensor(path, "weight").1.transpose();
    if bias {
        weights.stack(&read_tensor(path, "bias").1)
    } else {
        weights
    }
}

fn with_ones(z: &Matrix) -> Matrix {
    Matrix::from_fn(z.rows(), z.cols() + 1, |i, j| {
        if j < z.cols() { z[(i, j)] } else { 1.0 }
    })
}

fn one_hot(labels: &[i64], classes: usize) -> Matrix {
    Matrix::from_fn(labels.len(), classes, |i, c| {
        f64::from(u8::from(labels[i] == c as i64))
    })
}

/// The minimiser of ‖ZW − Y‖² + λ‖W − w₀‖², and for λ = 0 the one nearest to w₀, by elimination in f64.
fn reference(z: &Matrix, y: &Matrix, start: &Matrix, ridge: f64) -> Matrix {
    let zt = z.transpose();
    if ridge > 0.0 || z.rows() >= z.cols() {
        let shift = identity(z.cols());
        let gram = matmul(&zt, z).zip(&shift, |g, i| g + ridge * i);
        let right = matmul(&zt, y).zip(start, |b, w| b + ridge * w);
        gauss_solve(&gram, &right)
    } else {
        let missing = y.zip(&matmul(z, start), |y, p| y - p);
        let change = matmul(&zt, &gauss_solve(&matmul(z, &zt), &missing));
        start.zip(&change, |w, c| w + c)
    }
}

/// A feature file of any size that is quick to make: f32, a thousand rows again and again, classes in turn.
fn large_features(rows: usize, cols: usize, classes: usize) -> Vec<u8> {
    const BLOCK: usize = 1000;
    assert_eq!(rows % BLOCK, 0);
    let value = |k: usize| ((k * 2_654_435_761) % 1009) as f32 / 504.0 - 1.0;
    let block: Vec<u8> = (0..BLOCK * cols)
        .flat_map(|k| value(k).to_le_bytes())
        .collect();
    let features = Tensor {
        name: "features".into(),
        dtype: "F32",
        shape: vec![rows, cols],
        bytes: block.repeat(rows / BLOCK),
    };
    let labels: Vec<i64> = (0..rows).map(|i| (i % classes) as i64).collect();
    tensor_file(&[features, Tensor::integers("labels", &labels)])
}

/// A directory with files, in which the program is run.
struct Case {
    dir: TempDir,
}

impl Case {
    fn empty() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// Twelve rows of four f32 features in three classes, their ridge optimum for λ = 0.5 as head, rows 2, 5 and 7 to
    /// be forgotten, and every output there already with other contents.
    fn small() -> Self {
        let case = Self::empty();
        case.write(FEATURES, &tensor_file(&case.small_tensors()));
        let z = with_ones(&Self::small_features());
        let y = one_hot(&Self::small_labels(), 3);
        let optimum = reference(&z, &y, &Matrix::zeros(5, 3), 0.5);
        case.write(HEAD, &tensor_file(&head_tensors(&optimum, true, "")));
        case.write(IDS, b"2\n5\n7\n");
        for name in OUTPUTS {
            case.write(name, format!("what was in {name} before").as_bytes());
        }
        case
    }

    fn small_features() -> Matrix {
        rounded("F32", &gaussian(12, 4, 1))
    }

    fn small_labels() -> Vec<i64> {
        (0..12).map(|i| i % 3).collect()
    }

    fn small_tensors(&self) -> [Tensor; 2] {
        [
            Tensor::matrix("features", "F32", &Self::small_features()),
            Tensor::integers("labels", &Self::small_labels()),
        ]
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&fs::read(self.path(JSON)).unwrap()).unwrap()
    }

    /// Names and contents of everything in the directory; a directory in it has none.
    fn snapshot(&self) -> BTreeMap<OsString, Option<Vec<u8>>> {
        fs::read_dir(self.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name(), fs::read(entry.path()).ok()))
            .collect()
    }

    /// Temporary files of outputs.
    fn temporaries(&self) -> Vec<String> {
        fs::read_dir(self.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .filter(|name| name.ends_with(".tmp"))
            .collect()
    }

    /// `muso head` with every file of [`Case::small`] and every output.
    fn head(&self) -> Run {
        Run::new(self, "head")
            .set("--features", FEATURES)
            .set("--head", HEAD)
            .set("--forget", IDS)
            .set("--out", OUT)
            .set("--labels-out", LABELS_OUT)
            .set("--report", REPORT)
            .set("--json", JSON)
    }

    /// The same with the ridge of the small head.
    fn ridge(&self) -> Run {
        self.head()
            .set("--objective", "ridge")
            .set("--ridge", "0.5")
    }
}

/// A command line. File names are relative to the case's directory, as a person would type them.
#[derive(Clone)]
struct Run {
    dir: PathBuf,
    command: Vec<String>,
    options: Vec<(String, Option<String>)>,
}

impl Run {
    fn new(case: &Case, command: &str) -> Self {
        Self {
            dir: case.dir.path().to_owned(),
            command: command.split_whitespace().map(str::to_owned).collect(),
            options: Vec::new(),
        }
    }

    /// Gives an option this value, in place of an earlier one.
    fn set(mut self, option: &str, value: impl ToString) -> Self {
        self = self.without(option);
        self.options.push((option.into(), Some(value.to_string())));
        self
    }

    fn flag(mut self, option: &str) -> Self {
        self.options.push((option.into(), None));
        self
    }

    fn without(mut self, option: &str) -> Self {
        self.options.retain(|(name, _)| name != option);
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muso"));
        command.current_dir(&self.dir).args(&self.command);
        for (option, value) in &self.options {
            command.arg(option).args(value);
        }
        command.stdin(Stdio::null());
        // A device that this machine may have is hidden: what tests say about it holds everywhere.
        command
            .env("CUDA_VISIBLE_DEVICES", "")
            .env_remove("MUSO_VGPU");
        command
    }

    fn output(&self) -> Output {
        self.command().output().unwrap()
    }

    fn spawn(&self) -> Child {
        let mut command = self.command();
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Runs it; it must succeed and leave standard error empty. Returns what it printed.
    fn succeeds(&self) -> String {
        let output = self.output();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert_eq!(said, "");
        String::from_utf8(output.stdout).unwrap()
    }
}

/// The one line of a run that ended with code 2, which must hold every one of `words`.
fn one_line(output: &Output, words: &[&str]) -> String {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
    assert!(said.ends_with('\n'), "{said:?}");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert!(lines[0].starts_with("muso: "), "{said}");
    for word in words {
        assert!(said.contains(word), "no {word:?} in: {said}");
    }
    assert!(said.matches("os error").count() <= 1, "said twice: {said}");
    assert!(output.stdout.is_empty(), "{words:?}");
    said
}
