//! Files: what comes in is never trusted, and what goes out is never half there.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use half::{bf16, f16};
use muso::Error;
use muso::data::forget::parse_ids;
use muso::data::{
    Forget, Head, OutTensor, OutputFile, RowBuffer, TensorFile, commit_all, idx, to_safetensors,
};
use muso::engine::exact::{ExactAccumulator, ExactSpec, Grid, Plain};
use muso::engine::{Dtype, Matrix, Sums, SumsSpec, Targets};
use muso::gram::exact::ExactState;
use muso::gram::shard::{Part, Shard, merge, nothing};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::forge::{gzip, safetensors as with_header};

/// A directory with one file in it.
struct Scratch {
    dir: TempDir,
    path: PathBuf,
}

impl Scratch {
    fn new(bytes: &[u8]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("file");
        fs::write(&path, bytes).expect("a writable temporary directory");
        Self { dir, path }
    }

    fn open(&self) -> muso::Result<TensorFile> {
        TensorFile::open(&self.path)
    }

    /// The names in the directory, without the file itself.
    fn others(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).expect("a readable directory");
        entries
            .map(|entry| entry.expect("an entry").file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .filter(|name| name != "file")
            .collect()
    }
}

fn open_error(bytes: &[u8]) -> String {
    let error = Scratch::new(bytes).open().expect_err("a bad file");
    assert!(error.is_input());
    one_line(&error)
}

fn one_line(error: &Error) -> String {
    let message = error.to_string();
    assert!(!message.contains('\n'), "{message:?} is not one line");
    message
}

/// Reads everything that the file claims to have, as any consumer would.
fn read_everything(file: &TensorFile) -> muso::Result<()> {
    let names = file.tensor_names();
    let names = if names.is_empty() { vec![""] } else { names };
    let mut buffer = RowBuffer::new();
    let mut labels = Vec::new();
    for name in names {
        if let Ok(matrix) = file.matrix(name) {
            let mut start = 0;
            while start < matrix.rows() {
                let count = (matrix.rows() - start).min(7) as usize;
                matrix.read(start, count, &mut buffer)?;
                assert_eq!(
                    (buffer.rows().rows(), buffer.rows().cols()),
                    (count, matrix.cols())
                );
                start += count as u64;
            }
            // Ends with a read that is not from the start.
            matrix.read(matrix.rows() - 1, 1, &mut buffer)?;
        }
        if let Ok(reader) = file.labels(name) {
            reader.read(0, reader.len() as usize, &mut labels)?;
        }
    }
    Ok(())
}

fn idx_bytes(shape: &[usize], values: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, shape.len() as u8];
    for &extent in shape {
        bytes.extend((extent as u32).to_be_bytes());
    }
    bytes.extend(values);
    bytes
}

fn parse_idx(bytes: &[u8]) -> muso::Result<idx::IdxArray> {
    idx::parse(Path::new("x.idx"), bytes)
}

/// As numpy.save writes it: the header padded so that the values start at a multiple of 64.
pub(crate) fn npy_bytes(
    version: u8,
    descr: &str,
    fortran: &str,
    shape: &str,
    values: &[u8],
) -> Vec<u8> {
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}");
    let before = if version == 1 { 10 } else { 12 };
    while (before + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY".to_vec();
    bytes.extend([version, 0]);
    if version == 1 {
        bytes.extend((header.len() as u16).to_le_bytes());
    } else {
        bytes.extend((header.len() as u32).to_le_bytes());
    }
    bytes.extend(header.bytes());
    bytes.extend(values);
    bytes
}

pub(crate) fn feature_file(rows: usize, cols: usize, dtype: Dtype) -> (Matrix, Vec<i64>, Vec<u8>) {
    // Small integers, which every precision holds.
    let features = Matrix::from_fn(rows, cols, |i, j| ((i * 31 + j * 7) % 200) as f64 - 100.0);
    let labels: Vec<i64> = (0..rows as i64).map(|i| i % 10).collect();
    let bytes = to_safetensors(&[
        (
            "features",
            OutTensor::Matrix {
                values: &features,
                dtype,
            },
        ),
        ("labels", OutTensor::Integers(&labels)),
    ])
    .expect("values that fit");
    (features, labels, bytes)
}

/// Sums over `rows` rows from `first` on, the last of them forgotten.
pub(crate) fn shard(first: u64, rows: u64, order: usize, targets: usize) -> Shard {
    let bias = order > 1;
    let spec = SumsSpec {
        features: order - usize::from(bias),
        bias,
        targets,
    };
    let sums = |rows: u64| Sums {
        rows,
        gram: Matrix::from_fn(order, order, |i, j| {
            ((i + 1) * (j + 1)) as f64 * rows as f64
        }),
        cross: Matrix::from_fn(order, targets, |i, j| (i * 3 + j) as f64 - 0.1),
    };
    let gone = u64::from(rows > 1);
    Shard {
        spec,
        parts: vec![Part {
            features: "a file".into(),
            first,
            end: first + rows,
            of: first + rows + 1,
            file: "f\"\u{7f}ä.st".into(),
            labels: "labels".into(),
            dtype: "f32".into(),
            forget: "rows:x".into(),
            forgotten: gone,
            content: format!("{first} {rows}"),
        }],
        retained: sums(rows - gone),
        forgotten: if gone > 0 { sums(gone) } else { nothing(spec) },
        forgotten_rows: vec![if gone > 0 {
            vec![first + rows - 1]
        } else {
            vec![]
        }],
        exact: None,
    }
}

/// The same in integers, which are sums over rows indeed.
fn exact_shard(first: u64, rows: u64, order: usize, targets: usize) -> Shard {
    let plain = shard(first, rows, order, targets);
    let features = plain.spec.features;
    let spec = ExactSpec {
        sums: plain.spec,
        classes: targets > 0,
        grid: Arc::new(Grid::new(20, vec![-3; features], vec![]).unwrap()),
        setters: rows.is_multiple_of(2),
    };
    let sums = |rows: u64| {
        let mut sums = Box::new(Plain::new(&spec).unwrap());
        let z = Matrix::from_fn(rows as usize, features, |i, j| {
            (i * 7 + j) as f64 * 0.3 - 1.0
        });
        let classes: Vec<i64> = (0..rows as i64)
            .map(|i| i % targets.max(1) as i64)
            .collect();
        let wanted = match targets {
            0 => Targets::None,
            _ => Targets::Classes(&classes),
        };
        sums.push(z.as_rows(), wanted).unwrap();
        sums.finish().unwrap().0
    };
    let gone = plain.forgotten.rows;
    let state = ExactState {
        retained: sums(rows - gone),
        forgotten: sums(gone),
        spec,
    };
    Shard::of_exact(state, plain.parts, plain.forgotten_rows).unwrap()
}

fn any_dtype() -> impl Strategy<Value = Dtype> {
    prop_oneof![
        Just(Dtype::F16),
        Just(Dtype::Bf16),
        Just(Dtype::F32),
        Just(Dtype::F64)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn sums_come_back_as_they_were(first in 0_u64..1 << 40, rows in 1_u64..9, order in 1_usize..6, targets in 0_usize..4) {
        for written in [shard, exact_shard].map(|make| make(first, rows, order, targets)) {
            let bytes = written.to_safetensors().unwrap();
            let scratch = Scratch::new(&bytes);
            let read = Shard::load(&scratch.path).unwrap();
            prop_assert_eq!(&read, &written);
            prop_assert_eq!(&read.to_safetensors().unwrap(), &bytes);
        }
    }

    /// Whatever is changed in a file of sums, it is refused or it still says the same.
    #[test]
    fn changed_sums_are_never_taken_for_others(
        order in 1_usize..4,
        targets in 0_usize..3,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in proptest::option::of(any::<prop::sample::Index>()),
        exact in any::<bool>(),
    ) {
        let make = if exact { exact_shard } else { shard };
        let written = make(3, 5, order, targets);
        let mut bytes = written.to_safetensors().unwrap();
        for (at, value) in &changes {
            let at = at.index(bytes.len());
            bytes[at] = *value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let scratch = Scratch::new(&bytes);
        match Shard::load(&scratch.path) {
            Ok(read) => prop_assert_eq!(read, written),
            Err(error) => {
                prop_assert!(error.is_input());
                one_line(&error);
            }
        }
        let _ = merge(std::slice::from_ref(&scratch.path), &mut ());
    }

    #[test]
    fn descriptions_of_sums_survive_any_text(
        parts in ".{0,40}",
        (first, end, of) in any::<(u64, u64, u64)>(),
        forgotten in any::<u64>(),
        twice in any::<bool>(),
    ) {
        let part = format!(
            r#"{{"features":"","first":{first},"end":{end},"of":{of},"file":"","labels":"","dtype":"","forget":"","forgotten":{forgotten},"content":""}}"#
        );
        let likely = if twice { format!("[{part},{part}]") } else { format!("[{part}]") };
        for parts in [parts, likely] {
            let metadata = serde_json::json!({
                "format": "muso sums", "version": "1", "bias": "false", "digest": "", "parts": parts,
            });
            let header = serde_json::json!({
                "__metadata__": metadata,
                "retained.gram": {"dtype": "F64", "shape": [1, 1], "data_offsets": [0, 8]},
            });
            let scratch = Scratch::new(&with_header(&header.to_string(), 8));
            let error = Shard::load(&scratch.path).expect_err("no digest is empty");
            prop_assert!(error.is_input());
            one_line(&error);
        }
    }
}

/// A file of sums over one feature whose description says this of itself.
fn described(version: &str, bias: &str, parts: &[Part]) -> Vec<u8> {
    let metadata = serde_json::json!({
        "format": "muso sums", "version": version, "bias": bias, "digest": "",
        "parts": serde_json::to_string(parts).unwrap(),
    });
    let header = serde_json::json!({
        "__metadata__": metadata,
        "retained.gram": {"dtype": "F64", "shape": [1, 1], "data_offsets": [0, 8]},
    });
    with_header(&header.to_string(), 8)
}

fn load_error(bytes: &[u8]) -> String {
    let error = Shard::load(&Scratch::new(bytes).path).unwrap_err();
    assert!(error.is_input());
    one_line(&error)
}

#[test]
fn sums_of_another_shape_or_type_are_refused() {
    let part = Part {
        features: "a".into(),
        end: 4,
        of: 4,
        ..Part::default()
    };
    let described = String::from_utf8(described("1", "false", &[part])[8..].to_vec()).unwrap();
    let header = described.trim_end_matches('\0');
    let with = |tensor: &str, bytes: usize| {
        let square = r#"{"data_offsets":[0,8],"dtype":"F64","shape":[1,1]}"#;
        assert!(header.contains(square), "{header}");
        load_error(&with_header(&header.replace(square, tensor), bytes))
    };
    for (tensor, bytes) in [
        (r#"{"dtype":"F64","shape":[1,2],"data_offsets":[0,16]}"#, 16),
        (r#"{"dtype":"F64","shape":[2,1],"data_offsets":[0,16]}"#, 16),
        (r#"{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}"#, 4),
    ] {
        let line = with(tensor, bytes);
        assert!(line.contains("a square matrix of f64"), "{line}");
    }
}

#[test]
fn parts_of_sums_that_contradict_each_other_are_refused() {
    let part = |features: &str, first: u64, end: u64, of: u64| Part {
        features: features.into(),
        first,
        end,
        of,
        ..Part::default()
    };
    let most = i64::MAX as u64;
    let forgets = |forgotten: u64| Part {
        forgotten,
        ..part("a", 0, 4, 4)
    };
    let refused: [&[Part]; 9] = [
        &[part("a", 3, 3, 9)],
        &[part("a", 4, 3, 9)],
        &[part("a", 0, 5, 4)],
        &[part("a", 0, 1, most + 1)],
        &[forgets(5)],
        &[part("a", 4, 8, 9), part("a", 0, 4, 9)],
        &[part("a", 0, 4, 9), part("a", 3, 8, 9)],
        &[part("b", 0, 4, 9), part("a", 0, 4, 9)],
        // More rows than can be counted.
        &[
            part("a", 0, most, most),
            part("b", 0, most, most),
            part("c", 0, most, most),
        ],
    ];
    for (case, parts) in refused.iter().enumerate() {
        let error = load_error(&described("1", "false", parts));
        assert!(error.contains("contradict each other"), "{case}: {error}");
    }
    // What is sound is only refused for its digest.
    let sound: [&[Part]; 4] = [
        // Sums over no rows.
        &[],
        &[part("a", 0, 1, most)],
        &[part("a", 0, 4, 9), part("a", 4, 9, 9)],
        &[part("a", 0, 4, 9), part("b", 0, 4, 9)],
    ];
    for parts in sound {
        let error = load_error(&described("1", "false", parts));
        assert!(error.contains("digest"), "{error}");
    }
}

#[test]
fn long_texts_in_sums_are_cut() {
    let text = "x".repeat(30);
    let cut = format!("{}…", &text[..20]);
    let part = Part {
        end: 1,
        of: 1,
        ..Part::default()
    };
    for (version, bias) in [(text.as_str(), "false"), ("1", text.as_str())] {
        let error = load_error(&described(version, bias, std::slice::from_ref(&part)));
        assert!(
            error.contains(&cut) && !error.contains(&text[..21]),
            "{error}"
        );
    }
}

/// Also the last two of them, and two alone.
#[test]
fn forgotten_rows_of_sums_ascend_within_their_part() {
    for (rows, fine) in [
        (vec![3, 5], true),
        (vec![5, 3], false),
        (vec![3, 3], false),
        (vec![3, 5, 4], false),
        (vec![3, 9], false),
        (vec![1, 4], false),
    ] {
        let mut shard = shard(2, 7, 2, 1);
        shard.parts[0].forgotten = rows.len() as u64;
        shard.retained.rows = 7 - rows.len() as u64;
        shard.forgotten.rows = rows.len() as u64;
        shard.forgotten_rows = vec![rows.clone()];
        let scratch = Scratch::new(&shard.to_safetensors().unwrap());
        match Shard::load(&scratch.path) {
            Ok(read) => assert!(fine && read == shard, "{rows:?}"),
            Err(error) => assert!(
                !fine && error.to_string().contains("are not rows 2..9"),
                "{rows:?}: {error}"
            ),
        }
    }
}

#[test]
fn merging_compares_neighbours_and_can_be_stopped() {
    let write = |shards: &[Shard]| {
        let dir = TempDir::new().unwrap();
        let paths: Vec<PathBuf> = (0..shards.len())
            .map(|i| dir.path().join(format!("{i}.st")))
            .collect();
        for (path, shard) in paths.iter().zip(shards) {
            fs::write(path, shard.to_safetensors().unwrap()).unwrap();
        }
        (dir, paths)
    };
    let of = |features: &str, forget: &str, content: &str| {
        let mut shard = shard(0, 3, 2, 1);
        let part = &mut shard.parts[0];
        (part.features, part.forget, part.content) =
            (features.into(), forget.into(), content.into());
        shard
    };
    // A class is the same class in every file; a list of rows is one of its file.
    for (forgets, fine) in [
        (["class:1", "class:1"], true),
        (["rows:x", "rows:y"], true),
        (["class:1", "rows:x"], false),
        (["rows:x", "class:1"], false),
        (["class:1", ""], false),
    ] {
        let (_dir, paths) = write(&[of("a", forgets[0], "a"), of("b", forgets[1], "b")]);
        assert_eq!(merge(&paths, &mut ()).is_ok(), fine, "{forgets:?}");
    }
    // The same values in two files, next to each other or with another between them.
    let (_dir, paths) = write(&[of("a", "rows:x", "same"), of("b", "rows:x", "same")]);
    let error = merge(&paths, &mut ()).unwrap_err().to_string();
    assert!(error.contains("the same values"), "{error}");
    let (_dir, paths) = write(&[
        of("a", "rows:x", "same"),
        of("b", "rows:x", "another"),
        of("c", "rows:x", "same"),
    ]);
    assert!(merge(&paths, &mut ()).is_err());
    // It tells of every file before it reads it, and stops when it is told to.
    struct Heard(Vec<(String, u64, u64)>, u64);
    impl muso::progress::Progress for Heard {
        fn at(&mut self, phase: &str, done: u64, total: u64) -> bool {
            self.0.push((phase.into(), done, total));
            phase != "merge" || done < self.1
        }
    }
    let (_dir, paths) = write(&[of("a", "rows:x", "a"), of("b", "rows:x", "b")]);
    let mut heard = Heard(Vec::new(), 1);
    let outcome = merge(&paths, &mut heard);
    assert!(matches!(outcome, Err(Error::Interrupted)), "{outcome:?}");
    assert_eq!(heard.0.last(), Some(&("merge".into(), 1, 2)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn idx_survives_any_bytes(
        bytes in proptest::collection::vec(any::<u8>(), 0..64),
        rank in any::<u8>(),
    ) {
        let _ = parse_idx(&bytes);
        let mut likely = vec![0, 0, 8, rank];
        likely.extend(&bytes);
        for bytes in [likely.clone(), gzip(&likely)] {
            if let Ok(array) = parse_idx(&bytes) {
                prop_assert_eq!(array.values.len(), array.shape.iter().product::<usize>());
            }
        }
        let mut broken = gzip(&likely);
        let at = bytes.len() * 7 % broken.len();
        broken[at] ^= 1 << (rank % 8);
        let _ = parse_idx(&broken);
    }

    #[test]
    fn idx_round_trips_and_gzip_equals_plain(shape in proptest::collection::vec(0_usize..6, 1..5), fill in any::<u8>()) {
        let size: usize = shape.iter().product();
        let values: Vec<u8> = (0..size).map(|i| (i as u8).wrapping_mul(37) ^ fill).collect();
        let bytes = idx_bytes(&shape, &values);
        let array = parse_idx(&bytes).unwrap();
        prop_assert_eq!(&array.shape, &shape);
        prop_assert_eq!(&array.values, &values);
        prop_assert_eq!(&parse_idx(&gzip(&bytes)).unwrap(), &array);
        let scratch = Scratch::new(&gzip(&bytes));
        prop_assert_eq!(&idx::read(&scratch.path).unwrap(), &array);
    }

    #[test]
    fn idx_header_flips_stay_in_bounds(at in 0_usize..16, bit in 0_u8..8) {
        let mut bytes = idx_bytes(&[3, 4, 5], &[7; 60]);
        bytes[at] ^= 1 << bit;
        // Every bit of this header counts: none can be flipped and leave a valid file of the same length.
        prop_assert!(parse_idx(&bytes).is_err());
    }

    #[test]
    fn tensor_files_survive_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200), json in r#"[\[\]{}:,"a0-9\-.e\\ ]{0,40}"#) {
        for bytes in [bytes, with_header(&format!("{{{json}}}"), 8)] {
            if let Ok(file) = Scratch::new(&bytes).open() {
                read_everything(&file).unwrap();
            }
        }
    }

    #[test]
    fn safetensors_survive_any_header(
        dtype in prop_oneof![Just("F32"), Just("BF16"), Just("I64"), Just("F4"), Just("F6_E2M3"), Just("X")],
        shape in proptest::collection::vec(prop_oneof![4 => 0_u64..5, 1 => any::<u64>()], 0..4),
        begin in prop_oneof![4 => Just(0), 1 => any::<u64>()],
        end in prop_oneof![4 => Just(None), 1 => any::<u64>().prop_map(Some)],
        data in (0_usize..9).prop_map(|words| 4 * words),
    ) {
        let end = end.unwrap_or(data as u64);
        let header = format!(r#"{{"features":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{begin},{end}]}}}}"#);
        let bytes = with_header(&header, data);
        let opened = Scratch::new(&bytes).open();
        // The format's own crate is the judge of which headers are valid.
        prop_assert_eq!(opened.is_ok(), safetensors::SafeTensors::deserialize(&bytes).is_ok(), "{}", header);
        if let Ok(file) = opened {
            read_everything(&file).unwrap();
        }
    }

    #[test]
    fn npy_survives_any_header(
        version in 0_u8..5,
        descr in prop_oneof![Just("<f4"), Just("<f2"), Just("|u1"), Just(">f8"), Just("<V2"), Just("")],
        shape in "\\(?[0-9,L ]{0,24}\\)?",
        data in 0_usize..64,
        at in 0_usize..128,
        flip in any::<u8>(),
    ) {
        let mut bytes = npy_bytes(version, descr, "False", &shape, &vec![0; data]);
        if let Ok(file) = Scratch::new(&bytes).open() {
            read_everything(&file).unwrap();
        }
        let at = at % bytes.len();
        bytes[at] ^= flip;
        if let Ok(file) = Scratch::new(&bytes).open() {
            read_everything(&file).unwrap();
        }
    }

    #[test]
    fn safetensors_round_trip_in_any_batches(
        rows in 1_usize..40,
        cols in 1_usize..9,
        dtype in any_dtype(),
        batch in 1_usize..50,
    ) {
        let (features, labels, bytes) = feature_file(rows, cols, dtype);
        let scratch = Scratch::new(&bytes);
        let file = scratch.open().unwrap();
        let matrix = file.matrix("features").unwrap();
        prop_assert_eq!((matrix.rows(), matrix.cols(), matrix.dtype()), (rows as u64, cols, dtype));
        let reader = file.labels("labels").unwrap();
        prop_assert_eq!(reader.len(), rows as u64);
        let mut buffer = RowBuffer::new();
        let mut read_labels = Vec::new();
        for start in (0..rows).step_by(batch) {
            let count = batch.min(rows - start);
            matrix.read(start as u64, count, &mut buffer).unwrap();
            let wanted: Vec<usize> = (start..start + count).collect();
            prop_assert_eq!(buffer.rows().to_matrix(), features.select_rows(&wanted));
            reader.read(start as u64, count, &mut read_labels).unwrap();
            prop_assert_eq!(&read_labels[..], &labels[start..start + count]);
        }
        file.unchanged().unwrap();
        // The format's own crate reads the same.
        let twin = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        prop_assert_eq!(twin.tensor("features").unwrap().shape().to_vec(), [rows, cols]);
        prop_assert_eq!(twin.tensor("labels").unwrap().data(), bytemuck::cast_slice::<i64, u8>(&labels));
    }

    #[test]
    fn written_values_are_the_nearest(value in -60000.0_f64..60000.0) {
        let exact = Matrix::from_vec(1, 1, vec![value]);
        for dtype in [Dtype::F16, Dtype::Bf16, Dtype::F32, Dtype::F64] {
            let bytes = to_safetensors(&[("features", OutTensor::Matrix { values: &exact, dtype })]).unwrap();
            let matrix = Scratch::new(&bytes).open().unwrap().matrix("features").unwrap();
            let stored = matrix.to_matrix().unwrap()[(0, 0)];
            let neighbours: Vec<f64> = match dtype {
                Dtype::F16 => {
                    let bits = f16::from_f64(stored).to_bits();
                    [bits.wrapping_sub(1), bits + 1].map(|b| f16::from_bits(b).to_f64()).to_vec()
                }
                Dtype::Bf16 => {
                    let bits = bf16::from_f64(stored).to_bits();
                    [bits.wrapping_sub(1), bits + 1].map(|b| bf16::from_bits(b).to_f64()).to_vec()
                }
                Dtype::F32 => [(stored as f32).next_down(), (stored as f32).next_up()].map(f64::from).to_vec(),
                Dtype::F64 => vec![],
            };
            if dtype == Dtype::F64 {
                prop_assert_eq!(stored, value);
            }
            for other in neighbours {
                prop_assert!((stored - value).abs() <= (other - value).abs() || other.is_nan(), "{dtype:?} {value} {stored} {other}");
            }
        }
    }

    #[test]
    fn ids_survive_any_text(text in "(\u{feff})?[0-9 ,\\-+#x\r\n\t\u{e9}]{0,60}") {
        if let Ok(ids) = parse_ids(Path::new("ids"), &text) {
            prop_assert!(!ids.is_empty());
            prop_assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }

    #[test]
    fn ids_survive_any_file(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let scratch = Scratch::new(&bytes);
        if let Err(error) = Forget::file(&scratch.path).read() {
            prop_assert!(one_line(&error).contains("file"));
        }
    }

    #[test]
    fn ids_round_trip(ids in proptest::collection::btree_set(any::<u64>(), 1..50), style in 0..4) {
        let separator = ["\n", " , ", "\r\n", " # 12\n\t"][style as usize];
        let backwards: Vec<String> = ids.iter().rev().map(u64::to_string).collect();
        let text = backwards.join(separator);
        let wanted: Vec<u64> = ids.into_iter().collect();
        prop_assert_eq!(&parse_ids(Path::new("ids"), &text).unwrap(), &wanted);
        let twice = format!("{text}\n{}", wanted[0]);
        let message = parse_ids(Path::new("ids"), &twice).unwrap_err().to_string();
        prop_assert!(message.contains(&format!("row {} is listed twice", wanted[0])), "{}", message);
    }
}

#[test]
fn any_truncation_is_an_error() {
    let idx = idx_bytes(&[2, 3], &[1, 2, 3, 4, 5, 6]);
    for whole in [idx.clone(), gzip(&idx)] {
        assert!(parse_idx(&whole).is_ok());
        for len in 0..whole.len() {
            let error = parse_idx(&whole[..len]).expect_err("a truncated IDX file");
            one_line(&error);
        }
    }
    let tensors = feature_file(3, 2, Dtype::Bf16).2;
    let npy = npy_bytes(1, "<f4", "False", "(3, 2)", &[0; 24]);
    let npy2 = npy_bytes(2, "<i8", "False", "(3,)", &[0; 24]);
    for whole in [tensors, npy, npy2] {
        assert!(Scratch::new(&whole).open().is_ok());
        for len in 0..whole.len() {
            open_error(&whole[..len]);
        }
    }
}

#[test]
fn any_flipped_header_bit_is_an_error_or_in_bounds() {
    let tensors = feature_file(3, 2, Dtype::F32).2;
    let npy = npy_bytes(1, "<f4", "False", "(3, 2)", &[0; 24]);
    let (mut refused, mut accepted) = (0, 0);
    for whole in [tensors, npy] {
        let header = whole.len() - 24;
        for at in 0..header {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                match Scratch::new(&bytes).open() {
                    Ok(file) => {
                        accepted += 1;
                        read_everything(&file).expect("an accepted file can be read whole");
                    }
                    Err(error) => {
                        refused += 1;
                        one_line(&error);
                    }
                }
            }
        }
    }
    // A changed letter in a name is still a name; most other flips break the format.
    assert!(refused > 1000 && accepted > 50, "{refused} {accepted}");
}

#[test]
fn bad_safetensors_headers_are_told_apart() {
    let good = r#"{"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}"#;
    assert!(Scratch::new(&with_header(good, 8)).open().is_ok());
    // Lengths whose bytes begin a pickle or a gzip file.
    for length in [640, 896, 1152, 1408, 0x8b1f] {
        let padded = format!("{good:length$}");
        assert!(Scratch::new(&with_header(&padded, 8)).open().is_ok());
    }
    let metadata = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}   "#;
    assert!(Scratch::new(&with_header(metadata, 8)).open().is_ok());
    let entry =
        |offsets: &str| format!(r#"{{"dtype":"F32","shape":[2],"data_offsets":{offsets}}}"#);
    let two =
        |first: &str, second: &str| format!(r#"{{"a":{},"b":{}}}"#, entry(first), entry(second));
    for (bytes, wanted) in [
        (
            with_header(good, 7),
            "truncated: 7 bytes follow the header; expected 8 bytes",
        ),
        (with_header(good, 9), "trailing bytes: 9 bytes follow"),
        (with_header("[]", 0), "does not begin with `{`"),
        (with_header("{\"a\":3}", 0), "bad header: invalid type"),
        (with_header("{\"a\n", 0), "bad header"),
        (with_header("", 0), "does not begin with `{`"),
        (b"abc".to_vec(), "truncated: 3 bytes"),
        (u64::MAX.to_le_bytes().to_vec(), "not a safetensors file"),
        (
            100_u64.to_le_bytes().to_vec(),
            "a header of 100 bytes is declared and 0 follow",
        ),
        (b"PK\x03\x04 and so on".to_vec(), "this is a zip archive"),
        (
            b"\x1f\x8b\x08\x00\x00\x00\x00\x00".to_vec(),
            "this is gzip-compressed",
        ),
        (
            with_header(&two("[0,8]", "[4,12]"), 12),
            "tensor `b` is at bytes 4 to 12; expected tensors end to end, this one from 8",
        ),
        (with_header(&two("[0,8]", "[12,20]"), 20), "this one from 8"),
        (with_header(&two("[0,8]", "[8,0]"), 8), "is at bytes 8 to 0"),
        (
            with_header(&two("[0,8]", "[8,15]"), 15),
            "tensor `b` of f32 [2] has 7 bytes; expected 8 bytes",
        ),
        (
            with_header(
                &format!(r#"{{"a":{},"a":{}}}"#, entry("[0,8]"), entry("[8,16]")),
                16,
            ),
            "names `a` twice",
        ),
        (
            with_header(
                r#"{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}}"#,
                1,
            ),
            "a whole number of bytes",
        ),
        (
            with_header(&good.replace("F32", "Q3"), 8),
            "the unknown dtype `Q3`",
        ),
        (
            with_header(&good.replace("[1,2]", "[4611686018427387904,8]"), 8),
            "below 2^61",
        ),
        (
            with_header(&good.replace("[1,2]", "[-1,2]"), 8),
            "bad header",
        ),
    ] {
        let message = open_error(&bytes);
        assert!(message.contains(wanted), "{message}");
    }
    let missing = TensorFile::open("no such file").expect_err("nothing there");
    assert!(matches!(missing, Error::Io { .. }));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let message = TensorFile::open(directory.path()).expect_err("a directory");
    assert!(message.to_string().contains("not a regular file"));
}

#[test]
fn bad_npy_files_are_told_apart() {
    for (bytes, wanted) in [
        (
            npy_bytes(1, ">f4", "False", "(1, 2)", &[0; 8]),
            "dtype `>f4` is big-endian",
        ),
        (
            npy_bytes(1, "<f4", "True", "(1, 2)", &[0; 8]),
            "Fortran order",
        ),
        (
            npy_bytes(1, "<c8", "False", "(1, 2)", &[0; 16]),
            "dtype `<c8` is not supported",
        ),
        (
            npy_bytes(1, "<f4", "False", "(1, 3)", &[0; 8]),
            "truncated: 8 bytes of values for f32 [1, 3]; expected 12",
        ),
        (
            npy_bytes(1, "<f4", "False", "(1, 1)", &[0; 8]),
            "trailing bytes: 8 bytes",
        ),
        (
            npy_bytes(4, "<f4", "False", "(1, 1)", &[0; 4]),
            "version 4.0",
        ),
        (
            npy_bytes(1, "<f4", "False", "(4611686018427387904, 16)", &[0; 4]),
            "overflow",
        ),
    ] {
        let message = open_error(&bytes);
        assert!(message.contains(wanted), "{message}");
    }
    // Two extra bits of a length: more than the file, then more than any header.
    let mut long = npy_bytes(2, "<f4", "False", "(1, 1)", &[0; 4]);
    long[10] = 1;
    assert!(open_error(&long).contains("truncated"));
    long[11] = 0x7f;
    assert!(open_error(&long).contains("a .npy header of"));
}

#[test]
fn npy_arrays_are_read_in_every_version_and_type() {
    let bytes_of = |dtype: &str| -> Vec<u8> {
        let values = [1.5_f64, -2.0, 0.25, 8.0, 0.0, -0.5];
        match dtype {
            "<f2" => values
                .iter()
                .flat_map(|&x| f16::from_f64(x).to_le_bytes())
                .collect(),
            "<f4" => values
                .iter()
                .flat_map(|&x| (x as f32).to_le_bytes())
                .collect(),
            _ => values.iter().flat_map(|&x| x.to_le_bytes()).collect(),
        }
    };
    let wanted = Matrix::from_vec(3, 2, vec![1.5, -2.0, 0.25, 8.0, 0.0, -0.5]);
    for version in 1..=3 {
        for (descr, dtype) in [
            ("<f2", Dtype::F16),
            ("<f4", Dtype::F32),
            ("<f8", Dtype::F64),
        ] {
            let bytes = npy_bytes(version, descr, "False", "(3, 2)", &bytes_of(descr));
            let file = Scratch::new(&bytes).open().unwrap();
            assert!(!file.is_named() && file.tensor_names().is_empty());
            let matrix = file.matrix("any name").unwrap();
            assert_eq!(matrix.dtype(), dtype);
            assert_eq!(matrix.to_matrix().unwrap(), wanted);
        }
    }
    for (descr, values) in [
        (
            "<i8",
            [3_i64, -1]
                .iter()
                .flat_map(|x| x.to_le_bytes())
                .collect::<Vec<u8>>(),
        ),
        (
            "<i4",
            [3_i32, -1].iter().flat_map(|x| x.to_le_bytes()).collect(),
        ),
    ] {
        let file = Scratch::new(&npy_bytes(1, descr, "True", "(2,)", &values))
            .open()
            .unwrap();
        let mut labels = vec![9; 5];
        file.labels("labels")
            .unwrap()
            .read(1, 1, &mut labels)
            .unwrap();
        assert_eq!(labels, [-1]);
        file.labels("labels")
            .unwrap()
            .read(0, 2, &mut labels)
            .unwrap();
        assert_eq!(labels, [3, -1]);
    }
    let file = Scratch::new(&npy_bytes(1, "|u1", "False", "(3,)", &[0, 200, 255]))
        .open()
        .unwrap();
    let mut labels = Vec::new();
    file.labels("").unwrap().read(0, 3, &mut labels).unwrap();
    assert_eq!(labels, [0, 200, 255]);
}

#[test]
fn wrong_tensors_name_what_was_found_and_expected() {
    let features = Matrix::zeros(2, 3);
    let bytes = to_safetensors(&[
        (
            "features",
            OutTensor::Matrix {
                values: &features,
                dtype: Dtype::F32,
            },
        ),
        ("labels", OutTensor::Integers(&[0, 1])),
        (
            "empty",
            OutTensor::Matrix {
                values: &Matrix::zeros(0, 3),
                dtype: Dtype::F32,
            },
        ),
    ])
    .unwrap();
    let scratch = Scratch::new(&bytes);
    let file = scratch.open().unwrap();
    for (result, wanted) in [
        (
            file.matrix("feature").map(|_| ()),
            "no tensor `feature`; the file has `labels`, ",
        ),
        (
            file.matrix("labels").map(|_| ()),
            "`labels` is i64 [2]; expected a 2-dimensional tensor of f16",
        ),
        (
            file.labels("features").map(|_| ()),
            "`features` is f32 [2, 3]; expected a 1-dimensional tensor of i64",
        ),
        (
            file.matrix("empty").map(|_| ()),
            "`empty` is f32 [0, 3]; expected",
        ),
    ] {
        let message = one_line(&result.expect_err("the wrong tensor"));
        assert!(message.contains(wanted), "{message}");
    }
    assert!(file.contains("labels") && !file.contains("feature"));
}

#[test]
#[should_panic(expected = "2 rows from row 2 of 3")]
fn reading_beyond_the_matrix_is_a_bug_of_the_caller() {
    let scratch = Scratch::new(&feature_file(3, 2, Dtype::F32).2);
    let matrix = scratch.open().unwrap().matrix("features").unwrap();
    let _ = matrix.read(2, 2, &mut RowBuffer::new());
}

#[test]
fn one_buffer_serves_matrices_of_every_type() {
    let mut buffer = RowBuffer::new();
    for dtype in [Dtype::F64, Dtype::F16, Dtype::F32, Dtype::Bf16, Dtype::F64] {
        let (features, _, bytes) = feature_file(5, 3, dtype);
        let matrix = Scratch::new(&bytes)
            .open()
            .unwrap()
            .matrix("features")
            .unwrap();
        matrix.read(1, 4, &mut buffer).unwrap();
        assert_eq!(
            buffer.rows().to_matrix(),
            features.select_rows(&[1, 2, 3, 4])
        );
        matrix.read(4, 1, &mut buffer).unwrap();
        assert_eq!(buffer.rows().to_matrix(), features.select_rows(&[4]));
    }
}

#[test]
fn heads_keep_their_names() {
    let weight = Matrix::from_fn(3, 4, |i, j| i as f64 - 0.5 * j as f64);
    let bias = [0.5, -1.0, 2.0];
    for prefix in ["", "fc.", "model.classifier.", "head."] {
        let mut head = Head::new(weight.clone(), Some(bias.to_vec()));
        head.prefix = prefix.to_owned();
        for dtype in [Dtype::F16, Dtype::Bf16, Dtype::F32, Dtype::F64] {
            let bytes = head.to_safetensors(dtype).unwrap();
            let loaded = Head::load(&Scratch::new(&bytes).path).unwrap();
            assert_eq!(
                (&loaded.weight, &loaded.bias, &loaded.prefix),
                (&head.weight, &head.bias, &head.prefix)
            );
            assert_eq!((loaded.dtype, loaded.others.len()), (dtype, 0));
            assert_eq!(loaded.to_safetensors(dtype).unwrap(), bytes);
        }
    }
    // A normalisation layer has weights of rank 1, which are no candidates.
    let matrix = OutTensor::Matrix {
        values: &weight,
        dtype: Dtype::F32,
    };
    let vector = OutTensor::Vector {
        values: &bias,
        dtype: Dtype::F64,
    };
    let bytes = to_safetensors(&[
        ("bn.weight", vector),
        ("bn.bias", vector),
        ("fc.weight", matrix),
    ]);
    let head = Head::load(&Scratch::new(&bytes.unwrap()).path).unwrap();
    assert_eq!((head.prefix.as_str(), head.bias), ("fc.", None));
    let npy = npy_bytes(
        1,
        "<f4",
        "False",
        "(1, 2)",
        bytemuck::cast_slice(&[1_f32, 2.0]),
    );
    assert_eq!(
        Head::load(&Scratch::new(&npy).path)
            .unwrap()
            .weight
            .as_slice(),
        [1.0, 2.0]
    );
}

#[test]
fn bad_heads_are_told_apart() {
    let weight = Matrix::zeros(3, 4);
    let matrix = OutTensor::Matrix {
        values: &weight,
        dtype: Dtype::F32,
    };
    let bias = OutTensor::Vector {
        values: &[0.0; 2],
        dtype: Dtype::F32,
    };
    let mut not_finite = to_safetensors(&[("weight", matrix)]).unwrap();
    let last = not_finite.len() - 4;
    not_finite[last..].copy_from_slice(&f32::NEG_INFINITY.to_le_bytes());
    for (bytes, wanted) in [
        (
            to_safetensors(&[("a.weight", matrix), ("b.weight", matrix)]).unwrap(),
            "2 matrices could be the head: `a.weight`, `b.weight`",
        ),
        (
            to_safetensors(&[("w", matrix)]).unwrap(),
            "no tensor `weight`; the file has `w`",
        ),
        (
            to_safetensors(&[("noweight", matrix)]).unwrap(),
            "no tensor `weight`",
        ),
        (to_safetensors(&[]).unwrap(), "the file has no tensors"),
        (
            to_safetensors(&[("weight", bias)]).unwrap(),
            "`weight` is f32 [2]",
        ),
        (
            to_safetensors(&[("weight", matrix), ("bias", bias)]).unwrap(),
            "`bias`: 2 values; expected 3",
        ),
        (
            to_safetensors(&[("weight", matrix), ("bias", matrix)]).unwrap(),
            "`bias` is f32 [3, 4]",
        ),
        (not_finite, "`weight` has -inf at row 2, column 3"),
    ] {
        let message = one_line(&Head::load(&Scratch::new(&bytes).path).expect_err("a bad head"));
        assert!(message.contains(wanted), "{message}");
    }
}

/// Time grows with the ids, not with their square, whatever the machine: a hundred times as many take a hundred times as
/// long and some, and would take ten thousand.
#[test]
fn a_million_ids_take_no_more_each_than_ten_thousand() {
    let listed = |count: u64| -> String { (0..count).rev().map(|id| format!("{id}\n")).collect() };
    let texts = [10_000, 1_000_000].map(|count| (count as usize, listed(count)));
    let mut best = [f64::INFINITY; 2];
    for _ in 0..5 {
        for ((count, text), best) in texts.iter().zip(&mut best) {
            let started = std::time::Instant::now();
            let ids = parse_ids(Path::new("ids"), text).unwrap();
            *best = best.min(started.elapsed().as_secs_f64());
            assert!(ids.len() == *count && ids.is_sorted());
        }
    }
    assert!(best[1] < 1_000.0 * best[0], "{best:?} s");
}

#[test]
fn every_kind_of_change_is_noticed() {
    let bytes = feature_file(50, 4, Dtype::F32).2;
    let changed = |file: &TensorFile, wanted: &str| {
        let error = file.unchanged().expect_err(wanted);
        assert!(matches!(error, Error::Changed { .. }) && error.is_input());
        assert!(one_line(&error).contains(wanted), "{error}");
    };

    let scratch = Scratch::new(&bytes);
    let file = scratch.open().unwrap();
    file.unchanged().unwrap();
    let mut append = fs::OpenOptions::new()
        .append(true)
        .open(&scratch.path)
        .unwrap();
    append.write_all(b"more").unwrap();
    changed(&file, "bytes");

    let scratch = Scratch::new(&bytes);
    let file = scratch.open().unwrap();
    let matrix = file.matrix("features").unwrap();
    let labels = file.labels("labels").unwrap();
    let mut buffer = RowBuffer::new();
    matrix.read(40, 10, &mut buffer).unwrap();
    let write = fs::OpenOptions::new()
        .write(true)
        .open(&scratch.path)
        .unwrap();
    write.set_len(bytes.len() as u64 - 1).unwrap();
    changed(&file, "bytes");
    let error = matrix.read(40, 10, &mut buffer).expect_err("a short read");
    assert!(matches!(error, Error::Changed { .. }), "{error}");
    assert_eq!(buffer.rows().rows(), 0, "half-read rows must not be seen");
    write.set_len(0).unwrap();
    let mut read_labels = vec![1];
    assert!(matches!(
        labels.read(0, 50, &mut read_labels),
        Err(Error::Changed { .. })
    ));
    assert!(read_labels.is_empty());

    let scratch = Scratch::new(&bytes);
    let file = scratch.open().unwrap();
    let other = scratch.dir.path().join("other");
    fs::write(&other, &bytes).unwrap();
    // Same bytes, same times: only the identity differs.
    let times = fs::metadata(&scratch.path).unwrap().modified().unwrap();
    fs::File::options()
        .write(true)
        .open(&other)
        .unwrap()
        .set_modified(times)
        .unwrap();
    fs::rename(&other, &scratch.path).unwrap();
    if cfg!(unix) {
        changed(&file, "replaced by another file");
    }

    let scratch = Scratch::new(&bytes);
    let file = scratch.open().unwrap();
    let edit = fs::OpenOptions::new()
        .write(true)
        .open(&scratch.path)
        .unwrap();
    // Set by hand, since two writes can fall into one tick of the file system's clock.
    let later = fs::metadata(&scratch.path).unwrap().modified().unwrap()
        + std::time::Duration::from_millis(5);
    (&edit).write_all(&bytes[..8]).unwrap();
    edit.set_modified(later).unwrap();
    changed(&file, "it was written to");

    let scratch = Scratch::new(&bytes);
    let file = scratch.open().unwrap();
    fs::remove_file(&scratch.path).unwrap();
    changed(&file, "removed");
}

#[test]
fn dropped_output_leaves_the_old_file() {
    let scratch = Scratch::new(b"old");
    let mut output = OutputFile::create(&scratch.path).unwrap();
    // More than any buffer holds, so that bytes are on the disk.
    output.put(&vec![1; 1 << 20]).unwrap();
    assert_eq!(
        scratch.others().len(),
        1,
        "the temporary file is in the same directory"
    );
    assert_eq!(fs::read(&scratch.path).unwrap(), b"old");
    drop(output);
    assert_eq!(fs::read(&scratch.path).unwrap(), b"old");
    assert!(scratch.others().is_empty());

    let new = scratch.dir.path().join("new");
    drop(OutputFile::create(&new).unwrap());
    assert!(!new.exists());
}

#[test]
fn committed_output_is_whole() {
    let scratch = Scratch::new(b"old");
    let mut output = OutputFile::create(&scratch.path).unwrap();
    let contents: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    for piece in contents.chunks(777) {
        output.write_all(piece).unwrap();
    }
    output.commit().unwrap();
    assert_eq!(fs::read(&scratch.path).unwrap(), contents);
    assert!(scratch.others().is_empty());
}

#[test]
fn failed_output_leaves_the_old_file() {
    let scratch = Scratch::new(b"old");
    let blocked = scratch.dir.path().join("blocked");
    let mut first = OutputFile::create(&blocked).unwrap();
    let mut second = OutputFile::create(&scratch.path).unwrap();
    first.put(b"new").unwrap();
    second.put(b"new").unwrap();
    // A directory appears where the first is to go; the second comes after it and must not be replaced.
    fs::create_dir(&blocked).unwrap();
    let error = commit_all(vec![first, second]).expect_err("a directory is in the way");
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert_eq!(fs::read(&scratch.path).unwrap(), b"old");
    assert_eq!(scratch.others(), ["blocked"], "no temporary file is left");
}

#[test]
fn outputs_are_committed_together_and_apart() {
    let scratch = Scratch::new(b"old");
    let other = scratch.dir.path().join("other");
    let spelt_otherwise = scratch.dir.path().join(".").join("file");
    let two = [&scratch.path, &spelt_otherwise].map(|path| OutputFile::create(path).unwrap());
    let error = commit_all(two.into()).expect_err("one file, two outputs");
    assert!(one_line(&error).contains("the same file"), "{error}");
    assert_eq!(fs::read(&scratch.path).unwrap(), b"old");

    let two = [&scratch.path, &other].map(|path| {
        let mut output = OutputFile::create(path).unwrap();
        output.put(b"new").unwrap();
        output
    });
    commit_all(two.into()).unwrap();
    assert_eq!(
        (fs::read(&scratch.path).unwrap(), fs::read(&other).unwrap()),
        (b"new".to_vec(), b"new".to_vec())
    );
}

#[test]
fn impossible_outputs_are_refused_at_once() {
    let scratch = Scratch::new(b"old");
    let dir = scratch.dir.path();
    let mut slash = scratch.path.clone().into_os_string();
    slash.push("/");
    for (path, wanted) in [
        (dir.to_owned(), "is a directory"),
        (PathBuf::from(&slash), "names a directory"),
        (dir.join("missing/file"), "cannot write"),
        (scratch.path.join("below a file"), "cannot write"),
        (PathBuf::from(""), "no file name"),
        (dir.join("missing/.."), "no file name"),
    ] {
        let Err(error) = OutputFile::create(&path) else {
            panic!("{} was accepted", path.display());
        };
        assert!(
            error.is_input() && one_line(&error).contains(wanted),
            "{error}"
        );
    }
    let mut permissions = fs::metadata(&scratch.path).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&scratch.path, permissions).unwrap();
    let error = OutputFile::create(&scratch.path).expect_err("a write-protected file");
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert_eq!(fs::read(&scratch.path).unwrap(), b"old");
    assert!(scratch.others().is_empty());
}

#[cfg(unix)]
mod unix {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn devices_are_not_replaced() {
        let error = OutputFile::create("/dev/null").expect_err("a device");
        assert!(one_line(&error).contains("not a regular file"), "{error}");
    }

    #[test]
    fn permission_bits_carry_over() {
        for mode in [0o600, 0o640, 0o755] {
            let scratch = Scratch::new(b"old");
            fs::set_permissions(&scratch.path, fs::Permissions::from_mode(mode)).unwrap();
            OutputFile::create(&scratch.path).unwrap().commit().unwrap();
            let found = fs::metadata(&scratch.path).unwrap();
            assert_eq!((found.permissions().mode() & 0o777, found.len()), (mode, 0));
        }
    }

    #[test]
    fn links_survive() {
        let scratch = Scratch::new(b"old");
        let below = scratch.dir.path().join("below");
        fs::create_dir(&below).unwrap();
        // A relative link to a link, and one that leads nowhere yet.
        symlink("../file", below.join("first")).unwrap();
        symlink("first", below.join("second")).unwrap();
        symlink("not yet", below.join("dangling")).unwrap();
        for (link, target) in [
            ("second", &scratch.path),
            ("dangling", &below.join("not yet")),
        ] {
            let mut output = OutputFile::create(below.join(link)).unwrap();
            output.put(b"new").unwrap();
            output.commit().unwrap();
            assert!(fs::symlink_metadata(below.join(link)).unwrap().is_symlink());
            assert!(fs::symlink_metadata(target).unwrap().is_file());
            assert_eq!(fs::read(target).unwrap(), b"new");
        }
        symlink("loop", below.join("loop")).unwrap();
        assert!(OutputFile::create(below.join("loop")).is_err());
    }

    #[test]
    fn input_is_read_through_links() {
        let scratch = Scratch::new(&feature_file(2, 2, Dtype::F32).2);
        let link = scratch.dir.path().join("link");
        symlink(&scratch.path, &link).unwrap();
        let file = TensorFile::open(&link).unwrap();
        file.unchanged().unwrap();
        // A link that is turned elsewhere is a replaced file.
        let other = scratch.dir.path().join("other");
        fs::copy(&scratch.path, &other).unwrap();
        fs::remove_file(&link).unwrap();
        symlink(&other, &link).unwrap();
        assert!(matches!(file.unchanged(), Err(Error::Changed { .. })));
    }
}

#[test]
fn concurrent_writers_leave_one_whole_file() {
    let scratch = Scratch::new(b"old");
    let size = 200_000;
    std::thread::scope(|scope| {
        for writer in 0..8_u8 {
            let path = &scratch.path;
            scope.spawn(move || {
                for _ in 0..5 {
                    let mut output = OutputFile::create(path).unwrap();
                    output.put(&vec![writer; size]).unwrap();
                    output.commit().unwrap();
                    let seen = fs::read(path).unwrap();
                    assert_eq!(seen.len(), size);
                    assert!(seen.iter().all(|&byte| byte == seen[0]));
                }
            });
        }
    });
    assert!(scratch.others().is_empty());
}

#[cfg(target_os = "linux")]
#[test]
fn only_leftovers_of_dead_processes_are_removed() {
    let scratch = Scratch::new(b"old");
    let dir = scratch.dir.path();
    // Above the largest process id that Linux hands out.
    let dead = [".file.4194999.0.tmp", ".file.4194999.tmp"];
    let alive = format!(".file.{}.77777.tmp", std::process::id());
    let parent = ".file.1.5.tmp".to_owned();
    let unrelated = [
        ".file2.4194999.0.tmp",
        ".file.4194999.0.bak",
        "file.4194999.0.tmp",
    ];
    for name in dead
        .iter()
        .chain(&unrelated)
        .copied()
        .chain([alive.as_str(), parent.as_str()])
    {
        fs::write(dir.join(name), b"part").unwrap();
    }
    // In use by a process that this one cannot see: its lock tells.
    let foreign = ".file.4194998.0.tmp";
    let held = fs::File::create(dir.join(foreign)).unwrap();
    held.lock().unwrap();

    drop(OutputFile::create(&scratch.path).unwrap());
    let mut left = scratch.others();
    left.sort();
    let mut wanted = vec![alive, parent, foreign.to_owned()];
    wanted.extend(unrelated.map(str::to_owned));
    wanted.sort();
    assert_eq!(left, wanted);
}

/// Large files are told apart by samples: their length, both ends and many places between.
#[test]
fn fingerprints_of_large_files() {
    let bytes = feature_file(40_000, 16, Dtype::F32).2;
    assert!(bytes.len() > 2 << 20);
    let print = |bytes: &[u8]| {
        let file = Scratch::new(bytes).open().unwrap();
        file.fingerprint().unwrap()
    };
    let whole = print(&bytes);
    assert_eq!(print(&bytes), whole);
    let (first, last) = (bytes.len() / 10, bytes.len() - 1);
    // Some 4096 bytes in every hundredth of the file are in a sample.
    let spans = (first..last).step_by(bytes.len() / 100);
    let end = std::iter::once(last..last + 1);
    for span in spans.map(|at| at..(at + (20 << 10)).min(last)).chain(end) {
        let mut changed = bytes.clone();
        changed[span.clone()].iter_mut().for_each(|byte| *byte ^= 1);
        assert_ne!(print(&changed), whole, "{span:?}");
    }
    let shorter = feature_file(39_999, 16, Dtype::F32).2;
    assert_ne!(print(&shorter), whole);
    // A small file is read whole.
    let small = feature_file(9, 3, Dtype::F64).2;
    let whole = print(&small);
    for at in small.len() - 200..small.len() {
        let mut changed = small.clone();
        changed[at] ^= 1;
        assert_ne!(print(&changed), whole, "{at}");
    }
}
