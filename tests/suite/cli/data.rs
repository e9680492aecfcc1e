//! `muso doctor --data`: image sets written here as they are published, and damaged.

use std::fs;
use std::io::{Cursor, Seek, SeekFrom, Write};
use std::path::PathBuf;

use flate2::{Compression, write::GzEncoder};
use image::{DynamicImage, ImageFormat, RgbImage};
use muso::data::images::published::{CIFAR10, MNIST, PUBLISHED};
use serde_json::Value;

use super::{Case, JSON, Run};

impl Case {
    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        self
    }

    fn doctor(&self, folder: &str) -> Run {
        Run::new(self, "doctor")
            .set("--data", folder)
            .set("--json", JSON)
    }

    /// A folder that is whole: what was said of it, and the same as JSON.
    fn whole(&self, folder: &str) -> (String, Value) {
        let said = self.doctor(folder).succeeds();
        assert!(said.contains("\n  whole       yes"), "{said}");
        let json = self.json();
        assert_eq!(
            (&json["whole"], &json["faults"]),
            (&true.into(), &Value::Array(vec![]))
        );
        (said, json)
    }

    /// A folder that is not: code 2, one line on standard error that holds `words`, and what to do on standard output.
    fn bad(&self, folder: &str, words: &[&str], advice: &[&str]) -> Value {
        let output = self.doctor(folder).output();
        let error = String::from_utf8(output.stderr).unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.starts_with("muso: error: "), "{error}");
        for word in words {
            assert!(error.contains(word), "no {word:?} in: {error}");
        }
        for word in advice {
            assert!(said.contains(word), "no {word:?} in:\n{said}");
        }
        assert!(said.contains("\n  whole       no\n"), "{said}");
        let json = self.json();
        assert_eq!(json["whole"], false);
        // The line is the first fault.
        let first = json["faults"][0].as_str().unwrap();
        assert_eq!(error.trim_end(), format!("muso: error: {first}"));
        json
    }
}

fn png(side: u32, seed: u8) -> Vec<u8> {
    encoded(side, seed, ImageFormat::Png)
}

fn encoded(side: u32, seed: u8, format: ImageFormat) -> Vec<u8> {
    let image = RgbImage::from_fn(side, side, |x, y| {
        image::Rgb([(x * 3) as u8, (y * 3) as u8, seed])
    });
    let mut bytes = Cursor::new(Vec::new());
    DynamicImage::from(image)
        .write_to(&mut bytes, format)
        .unwrap();
    bytes.into_inner()
}

/// Writes the six batches of CIFAR-10 in their full size, with as many images of each class.
fn cifar10(case: &Case, folder: &str) {
    let mut batch = vec![0_u8; 10_000 * 3073];
    for (row, record) in batch.chunks_exact_mut(3073).enumerate() {
        record[0] = (row % 10) as u8;
    }
    for k in 1..=5 {
        case.put(&format!("{folder}/data_batch_{k}.bin"), &batch);
    }
    case.put(&format!("{folder}/test_batch.bin"), &batch);
}

fn overwrite(path: PathBuf, offset: u64, bytes: &[u8]) {
    let mut file = fs::File::options().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.write_all(bytes).unwrap();
}

#[test]
fn cifar10_is_whole_or_damaged_in_one_way_each() {
    let case = Case::empty();
    let folder = "sets/cifar-10-batches-bin";
    cifar10(&case, folder);
    let (said, json) = case.whole(folder);
    for words in [
        "CIFAR-10\n",
        "50000 images of 3×32×32, 10 classes of 5000 each",
        "10000 images of 3×32×32, 10 classes of 1000 each",
        "--data cifar10 --data-path sets/cifar-10-batches-bin",
    ] {
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(
        json["holds"]["train"]["images_of_class"],
        Value::from(vec![5000, 5000])
    );
    assert_eq!(json["holds"]["kinds"], Value::from(vec!["cifar10"]));
    // A run goes into the folder of the archive by itself.
    let (said, _) = case.whole("sets");
    assert!(said.contains("CIFAR-10 in cifar-10-batches-bin"), "{said}");
    assert!(said.contains("--data-path sets\n"), "{said}");

    let address = "fetch https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz";
    let sum = CIFAR10.files[0].sha256;
    let unpack = "tar -xzf cifar-10-binary.tar.gz";
    // A label that is no class, and one that is another.
    let second = case.path(&format!("{folder}/data_batch_2.bin"));
    overwrite(second.clone(), 7 * 3073, &[10]);
    case.bad(
        folder,
        &["data_batch_2.bin", "label 10 at row 7"],
        &[address, sum, unpack],
    );
    overwrite(second.clone(), 7 * 3073, &[8]);
    let wrong = "wrong labels: from 4999 to 5001 training images of a class; expected 5000 of each";
    case.bad(
        folder,
        &["cifar-10-batches-bin", wrong],
        &[address, "as it is"],
    );
    overwrite(second, 7 * 3073, &[7]);
    // Every file that is cut short is named.
    for (k, length) in [(3, 30_729_999), (4, 0)] {
        let path = case.path(&format!("{folder}/data_batch_{k}.bin"));
        fs::File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(length)
            .unwrap();
    }
    let json = case.bad(
        folder,
        &["data_batch_3.bin", "9999 records of 3073 bytes and 3072"],
        &[address],
    );
    assert_eq!(json["faults"].as_array().unwrap().len(), 2, "{json}");
    assert!(
        json["faults"][1]
            .as_str()
            .unwrap()
            .contains("data_batch_4.bin")
    );
    fs::remove_file(case.path(&format!("{folder}/data_batch_4.bin"))).unwrap();
    let json = case.bad(folder, &["data_batch_3.bin"], &[address]);
    assert!(
        json["faults"][1]
            .as_str()
            .unwrap()
            .contains("missing: data_batch_4.bin")
    );
    // An archive beside the folder that is not the one that is published.
    case.put("sets/cifar-10-binary.tar.gz", "abc");
    let json = case.bad(
        folder,
        &["data_batch_3.bin"],
        &[address, "of no published file"],
    );
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(json["checksums"][0]["sha256"], abc);
    assert!(
        json["faults"][2]
            .as_str()
            .unwrap()
            .contains(&format!("SHA-256 {abc}; expected {sum}"))
    );
}

#[test]
fn fewer_records_than_published_are_read_but_not_whole() {
    let record = |coarse: u8, fine: u8| [vec![coarse, fine], vec![0; 3072]].concat();
    let case = Case::empty();
    case.put("c/train.bin", [record(4, 0), record(1, 1)].concat());
    case.put("c/test.bin", record(4, 0));
    case.bad(
        "c",
        &["2 training images; expected 50000 of CIFAR-100"],
        &[
            "as it is    --data cifar100 (or cifar20) --data-path c",
            "cifar-100-binary.tar.gz",
        ],
    );
    case.put("c/train.bin", [record(4, 0), record(1, 0)].concat());
    case.bad(
        "c",
        &["wrong labels: apple has coarse label 4, and 1 at row 1"],
        &[],
    );
    fs::remove_file(case.path("c/test.bin")).unwrap();
    case.bad("c", &["the folder has no test.bin"], &["fetch "]);
    // The Python version cannot be read.
    case.put("p/train", "").put("p/test", "").put("p/meta", "");
    case.bad(
        "p",
        &["this is the Python version of CIFAR-100"],
        &["cifar-100-binary.tar.gz"],
    );
    case.put("q/data_batch_1", "").put("q/batches.meta", "");
    case.bad(
        "q",
        &["this is the Python version of CIFAR-10"],
        &["cifar-10-binary.tar.gz"],
    );
}

const IDX: [&str; 4] = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
];

fn idx(case: &Case, folder: &str, labels: [&[u8]; 2]) {
    let header = |shape: &[usize]| {
        let extents = shape
            .iter()
            .flat_map(|&extent| (extent as u32).to_be_bytes());
        [0, 0, 8, shape.len() as u8]
            .into_iter()
            .chain(extents)
            .collect::<Vec<u8>>()
    };
    for (names, labels) in IDX.chunks(2).zip(labels) {
        let n = labels.len();
        let images = [header(&[n, 28, 28]), vec![0; 784 * n]].concat();
        case.put(&format!("{folder}/{}", names[0]), images);
        case.put(
            &format!("{folder}/{}", names[1]),
            [header(&[n]), labels.to_vec()].concat(),
        );
    }
}

#[test]
fn idx_files_are_told_apart_by_what_they_hold() {
    let case = Case::empty();
    // No set that is known: it is read, and claims nothing.
    idx(&case, "other", [&[1, 2, 3], &[4]]);
    let (said, json) = case.whole("other");
    assert!(said.contains("an image set in IDX files"), "{said}");
    assert!(
        said.contains("--data mnist (or fashion) --data-path other"),
        "{said}"
    );
    assert!(json["holds"]["published"].is_null());

    // As long as one file says whose the rest should be.
    let first = MNIST.first_labels;
    idx(&case, "m", first);
    let json = case.bad(
        "m",
        &["train-images-idx3-ubyte: the file is intact but not that of MNIST"],
        &["fetch https://"],
    );
    let said = json["faults"].to_string();
    assert!(
        said.contains("10 training images; expected 60000 of MNIST"),
        "{said}"
    );
    // The checksum is that of the file as it lies there, packed or not.
    let plain = fs::read(case.path("m").join(IDX[1])).unwrap();
    case.put("m/copy.zip", &plain);
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&plain).unwrap();
    fs::remove_file(case.path("m").join(IDX[1])).unwrap();
    case.put(&format!("m/{}.gz", IDX[1]), packed.finish().unwrap());
    let json = case.bad("m", &[IDX[0]], &["copy.zip: of no published file"]);
    let sum = json["checksums"][0]["sha256"].as_str().unwrap();
    let fault = json["faults"][1].as_str().unwrap();
    assert!(fault.contains(IDX[1]) && fault.contains(sum), "{fault}");

    fs::remove_file(case.path("m").join(IDX[0])).unwrap();
    let fetch = "train-images-idx3-ubyte.gz";
    let place = "to m, in place of what has these names with or without .gz";
    case.bad(
        "m",
        &["the folder has no train-images-idx3-ubyte"],
        &[fetch, place],
    );
    // Of a packed file that was cut, the line is about the packing.
    let name = format!("m/{}.gz", IDX[1]);
    let cut = fs::read(case.path(&name)).unwrap();
    case.put(&name, &cut[..cut.len() - 4]);
    let json = case.bad("m", &["the folder has no"], &[]);
    assert!(
        json["faults"][1].as_str().unwrap().contains("corrupt gzip"),
        "{json}"
    );
}

fn tiny(case: &Case, folder: &str) {
    let mut annotations = String::new();
    for (class, id) in ["n01443537", "n01629819"].iter().enumerate() {
        for k in 0..2 {
            let image = encoded(64, (2 * class + k) as u8, ImageFormat::Jpeg);
            case.put(&format!("{folder}/train/{id}/images/{id}_{k}.JPEG"), &image);
            case.put(&format!("{folder}/val/images/val_{class}{k}.JPEG"), &image);
            annotations += &format!("val_{class}{k}.JPEG\t{id}\t0\t0\t9\t9\n");
        }
    }
    case.put(&format!("{folder}/val/val_annotations.txt"), annotations);
    case.put(&format!("{folder}/wnids.txt"), "n01629819\nn01443537\n");
}

#[test]
fn every_image_of_a_folder_is_decoded() {
    let case = Case::empty();
    tiny(&case, "deep/tiny");
    let few = "4 training images; expected 100000 of Tiny ImageNet";
    case.bad(
        "deep/tiny",
        &[few],
        &["tiny-imagenet-200.zip", "3×64×64", "as it is"],
    );
    // A level too high, and one or two too deep.
    let json = case.bad(
        "deep",
        &["the image set is further down: Tiny ImageNet in tiny"],
        &["give deep/tiny"],
    );
    assert!(json["holds"].is_null());
    for inner in ["train", "train/n01443537", "val/images"] {
        let folder = format!("deep/tiny/{inner}");
        case.bad(
            &folder,
            &[&folder, "this is a folder within Tiny ImageNet"],
            &["give /"],
        );
    }
    let image = "deep/tiny/train/n01443537/images/n01443537_1.JPEG";
    let bytes = fs::read(case.path(image)).unwrap();
    case.put(image, &bytes[..bytes.len() / 2]);
    case.put("deep/tiny/val/images/val_11.JPEG", png(32, 0));
    let json = case.bad("deep/tiny", &[image, "truncated"], &[]);
    assert!(
        json["faults"][1]
            .as_str()
            .unwrap()
            .contains("val_11.JPEG: the image is 32×32")
    );
    fs::remove_file(case.path("deep/tiny/wnids.txt")).unwrap();
    case.bad(
        "deep/tiny",
        &["wnids.txt"],
        &["fetch http://cs231n.stanford.edu/"],
    );

    for (k, class) in ["cat", "dog"].iter().enumerate() {
        for part in ["train", "test"] {
            case.put(&format!("own/{part}/{class}/a.png"), png(8, k as u8));
        }
    }
    let (said, _) = case.whole("own");
    assert!(
        said.contains("2 images of 3×8×8, 2 classes of 1 each"),
        "{said}"
    );
    assert!(said.contains("--data folder --data-path own\n"), "{said}");
    case.put("own/train/cat/b.png", png(9, 3));
    let (said, _) = case.whole("own");
    assert!(
        said.contains("--image-size PIXELS, since images differ in size"),
        "{said}"
    );
    case.put("own/test/dog/a.png", &png(8, 0)[..60]);
    case.bad(
        "own",
        &["own/test/dog/a.png", "cannot be decoded"],
        &["replace or remove"],
    );
    case.bad("own/train", &["this is a folder within"], &["give /"]);
    // Classes that nobody has split.
    case.put("flat/cat/a.png", png(8, 1))
        .put("flat/dog/a.png", png(8, 2));
    case.bad(
        "flat",
        &["class folders, but no folders train and test"],
        &["test/CLASS"],
    );
}

#[test]
fn what_is_no_set_is_said_with_what_to_do() {
    let case = Case::empty();
    fs::create_dir(case.path("empty")).unwrap();
    let addresses: Vec<&str> = PUBLISHED.iter().map(|set| set.address).collect();
    case.bad("empty", &["empty: the folder is empty"], &addresses);
    case.put("text/readme.txt", "hello");
    case.bad(
        "text",
        &["text: nothing here looks like an image set"],
        &["/train/CLASS/"],
    );
    case.bad(
        "text/readme.txt",
        &["readme.txt: this is not a folder"],
        &[],
    );
    case.put("packed/cifar-10-binary.tar.gz", "half of it");
    let archive = "packed/cifar-10-binary.tar.gz";
    case.bad(
        "packed",
        &[archive, "not the published archive"],
        &["fetch https://", CIFAR10.files[0].sha256],
    );
    case.bad(
        archive,
        &[archive, "this is not cifar-10-binary.tar.gz as published"],
        &["fetch https://"],
    );
    // Two sets in one folder: each is named.
    let record = vec![0; 3073];
    case.put("two/a/data_batch_1.bin", &record)
        .put("two/b c/data_batch_1.bin", &record);
    case.bad(
        "two",
        &["several image sets are further down: CIFAR-10 in a, CIFAR-10 in b c"],
        &["give two/a\n", "give 'two/b c'"],
    );
    // Neither a folder nor a pipe under the name of a file is waited for.
    fs::create_dir_all(case.path("odd").join(IDX[0])).unwrap();
    case.bad("odd", &[IDX[0], "not a regular file"], &[]);
    for missing in ["none", "empty/none"] {
        let output = Run::new(&case, "doctor").set("--data", missing).output();
        super::one_line(&output, &[missing, "cannot open"]);
    }
}

/// The page, the program and its advice have one source.
#[test]
fn the_page_names_every_file_and_checksum() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/data.md");
    let page = fs::read_to_string(page).unwrap();
    let mut files = 0;
    for set in PUBLISHED {
        assert!(
            page.contains(set.title) && page.contains(set.address),
            "{}",
            set.title
        );
        for file in set.files {
            for text in [file.name, file.sha256].into_iter().chain(file.contents) {
                assert!(page.contains(text), "{text}");
                assert!(!text.contains(' '));
            }
            assert!(
                [Some(file.sha256), file.contents]
                    .iter()
                    .flatten()
                    .all(|sum| sum.len() == 64)
            );
            files += 1;
        }
    }
    assert_eq!(files, 11);
}
