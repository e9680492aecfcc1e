//! Image sets: every reader on files made here, every fault in them, and the loader.

use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use flate2::{Compression, write::GzEncoder};
use image::{DynamicImage, GrayImage, ImageFormat, RgbImage};
use muso::data::images::{
    self, Augment, Batch, ClassNames, Dataset, ImageSet, Kind, Loader, LoaderOptions,
    Normalisation, PadWith, shuffled,
};
use muso::data::{Forget, ForgetClass, TestRows};
use muso::scheduler::Scheduler;
use proptest::prelude::*;
use tempfile::TempDir;

/// Lanes that are so far ahead.
fn ahead(depth: usize) -> Scheduler {
    Scheduler::default().with_depth(depth)
}

/// A folder to fill.
struct Root(TempDir);

impl Root {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Self {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        self
    }

    fn folder(&self, name: &str) -> &Self {
        fs::create_dir_all(self.path().join(name)).unwrap();
        self
    }

    fn remove(&self, name: &str) -> &Self {
        let path = self.path().join(name);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
        self
    }

    fn open(&self, kind: Kind) -> muso::Result<Dataset> {
        images::open(kind, Some(self.path()))
    }

    /// The message of a set that cannot be opened. It names the file or folder, and is one line.
    fn fault(&self, kind: Kind, file: &str, wanted: &str) {
        let error = match self.open(kind) {
            Ok(_) => panic!("{kind} was opened; wanted: {wanted}"),
            Err(error) => error,
        };
        check_message(&error, &self.path().join(file), wanted);
    }
}

fn check_message(error: &muso::Error, path: &Path, wanted: &str) {
    let message = error.to_string();
    assert!(error.is_input(), "{message}");
    assert!(!message.contains('\n'), "{message:?}");
    // `join("")` leaves a separator at the end.
    let path = path.display().to_string();
    assert!(message.starts_with(path.trim_end_matches('/')), "{message}");
    assert!(message.contains(wanted), "{message}\nwanted: {wanted}");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn idx(shape: &[usize], values: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, shape.len() as u8];
    for &extent in shape {
        bytes.extend((extent as u32).to_be_bytes());
    }
    bytes.extend(values);
    bytes
}

fn pixels(count: usize, seed: u8) -> Vec<u8> {
    (0..count)
        .map(|i| (i as u8).wrapping_mul(167).wrapping_add(seed) ^ (i >> 8) as u8)
        .collect()
}

fn image_of(set: &ImageSet, row: usize) -> Vec<u8> {
    let mut image = vec![0; set.shape().iter().product()];
    set.read(row, &mut image).unwrap();
    image
}

fn encoded(image: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    image.into().write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

fn rgb(width: u32, height: u32, seed: u8) -> RgbImage {
    let bytes = pixels((3 * width * height) as usize, seed);
    RgbImage::from_raw(width, height, bytes).unwrap()
}

/// A smooth picture, which a JPEG keeps well.
fn smooth(side: u32, seed: u8) -> RgbImage {
    RgbImage::from_fn(side, side, |x, y| {
        image::Rgb([(x * 3) as u8, (y * 3) as u8, seed])
    })
}

fn chw(image: &RgbImage) -> Vec<u8> {
    (0..3)
        .flat_map(|c| image.pixels().map(move |p| p.0[c]))
        .collect()
}

mod gray {
    use super::*;

    fn fill(root: &Root, names: [&str; 4]) {
        let packed = |name: &str, bytes: Vec<u8>| {
            let bytes = if name.ends_with(".gz") {
                gzip(&bytes)
            } else {
                bytes
            };
            root.put(name, bytes);
        };
        packed(names[0], idx(&[3, 4, 5], &pixels(60, 1)));
        packed(names[1], idx(&[3], &[7, 0, 9]));
        packed(names[2], idx(&[2, 4, 5], &pixels(40, 2)));
        packed(names[3], idx(&[2], &[1, 2]));
    }

    const OFFICIAL: [&str; 4] = [
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    ];

    #[test]
    fn any_usual_name_is_found() {
        for names in [
            OFFICIAL,
            [
                "train-images-idx3-ubyte.gz",
                "train-labels-idx1-ubyte.gz",
                "t10k-images-idx3-ubyte.gz",
                "t10k-labels-idx1-ubyte.gz",
            ],
            [
                "train-images.idx3-ubyte",
                "train-labels.idx1-ubyte.gz",
                "t10k-images.idx3",
                "t10k-labels.idx1.gz",
            ],
        ] {
            let root = Root::new();
            fill(&root, names);
            for kind in [Kind::Mnist, Kind::Fashion] {
                let data = root.open(kind).unwrap();
                assert_eq!(data.train.shape(), [1, 4, 5]);
                assert_eq!(data.train.labels(), [7, 0, 9]);
                assert_eq!(data.test.labels(), [1, 2]);
                assert_eq!(image_of(&data.train, 2), pixels(60, 1)[40..]);
                assert_eq!(image_of(&data.test, 1), pixels(40, 2)[20..]);
                let name = if kind == Kind::Mnist { "7" } else { "Sneaker" };
                assert_eq!(data.train.classes().name(7), Some(name));
            }
        }
    }

    #[test]
    fn each_fault_names_its_file() {
        for (file, bytes, wanted) in [
            (OFFICIAL[0], b"PNG!".to_vec(), "wrong magic number"),
            (OFFICIAL[0], idx(&[3, 4, 5], &pixels(59, 1)), "truncated"),
            (
                OFFICIAL[0],
                idx(&[60], &pixels(60, 1)),
                "count, height and width",
            ),
            (OFFICIAL[0], idx(&[0, 4, 5], &[]), "no pixels"),
            (OFFICIAL[1], idx(&[2], &[7, 0]), "[3], a label for each"),
            (OFFICIAL[1], idx(&[3, 1], &[7, 0, 1]), "[3], a label for"),
            (OFFICIAL[1], idx(&[3], &[7, 0, 10]), "label 10 at row 2"),
            (OFFICIAL[3], vec![], "truncated: 0 bytes"),
            (
                "",
                idx(&[2, 5, 4], &pixels(40, 2)),
                "test images of shape [1, 5, 4]",
            ),
        ] {
            let root = Root::new();
            fill(&root, OFFICIAL);
            let target = if file.is_empty() { OFFICIAL[2] } else { file };
            root.put(target, bytes);
            root.fault(Kind::Mnist, file, wanted);
        }
        for missing in OFFICIAL {
            let root = Root::new();
            fill(&root, OFFICIAL);
            root.remove(missing);
            root.fault(Kind::Mnist, "", missing);
        }
        let root = Root::new();
        root.put("file", "");
        for kind in Kind::ALL {
            let error = images::open(kind, Some(&root.path().join("file"))).unwrap_err();
            check_message(&error, &root.path().join("file"), "not a folder");
            let error = images::open(kind, Some(&root.path().join("none"))).unwrap_err();
            check_message(&error, &root.path().join("none"), "cannot open");
            root.fault(kind, "", "");
        }
    }
}

mod cifar {
    use super::*;

    const TRAIN: usize = 5;

    fn batch(index: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
        let labels = vec![index as u8, 9 - index as u8];
        let images = (0..2).map(|i| pixels(3072, (2 * index + i) as u8));
        (labels, images.collect())
    }

    fn stem(index: usize) -> String {
        if index == TRAIN {
            "test_batch".to_owned()
        } else {
            format!("data_batch_{}", index + 1)
        }
    }

    fn binary() -> Root {
        let root = Root::new();
        for index in 0..=TRAIN {
            let (labels, images) = batch(index);
            let records = labels.iter().zip(images);
            let bytes = records.flat_map(|(&label, image)| [vec![label], image].concat());
            root.put(&format!("{}.bin", stem(index)), bytes.collect::<Vec<_>>());
        }
        root
    }

    /// The same images as rows of PNG files.
    fn png() -> Root {
        let root = Root::new();
        let mut all_labels = Vec::new();
        for index in 0..=TRAIN {
            let (labels, images) = batch(index);
            let mut bytes = Vec::new();
            for image in images {
                for i in 0..1024 {
                    bytes.extend([image[i], image[1024 + i], image[2048 + i]]);
                }
            }
            let image = RgbImage::from_raw(1024, 2, bytes).unwrap();
            let name = format!("{}.png", stem(index));
            root.put(&name, encoded(image, ImageFormat::Png));
            all_labels.extend(labels);
        }
        let json = |labels: &[u8]| serde_json::to_string(labels).unwrap();
        root.put("train_lables.json", json(&all_labels[..2 * TRAIN]));
        root.put("test_lables.json", json(&all_labels[2 * TRAIN..]));
        root
    }

    #[test]
    fn both_layouts_are_the_same_images() {
        for root in [binary(), png()] {
            let data = root.open(Kind::Cifar10).unwrap();
            assert_eq!(data.train.shape(), [3, 32, 32]);
            assert_eq!((data.train.len(), data.test.len()), (10, 2));
            assert_eq!(data.train.labels()[..4], [0, 9, 1, 8]);
            assert_eq!(data.test.labels(), [5, 4]);
            for index in 0..TRAIN {
                let (_, images) = batch(index);
                assert_eq!(image_of(&data.train, 2 * index + 1), images[1]);
            }
            assert_eq!(image_of(&data.test, 0), batch(TRAIN).1[0]);
            assert_eq!(data.train.classes().name(9), Some("truck"));
            assert_eq!(
                data.labelled().find("Frog").unwrap(),
                ForgetClass::Coarse(6)
            );
        }
    }

    #[test]
    fn names_and_the_folder_of_the_archive_are_found() {
        let root = Root::new();
        for entry in fs::read_dir(binary().path()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            root.put(
                &format!("cifar-10-batches-bin/{name}"),
                fs::read(&path).unwrap(),
            );
        }
        root.put(
            "cifar-10-batches-bin/batches.meta.txt",
            "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n",
        );
        let data = root.open(Kind::Cifar10).unwrap();
        assert_eq!(data.train.classes().name(9), Some("j"));
    }

    #[test]
    fn each_fault_of_a_binary_batch_names_its_file() {
        let record = |label: u8| [vec![label], vec![0; 3072]].concat();
        for (file, bytes, wanted) in [
            ("data_batch_3.bin", vec![], "0 bytes"),
            (
                "data_batch_3.bin",
                vec![0; 3072],
                "0 records of 3073 bytes and 3072",
            ),
            ("test_batch.bin", vec![0; 3074], "and 1 bytes more"),
            (
                "data_batch_5.bin",
                [record(9), record(10)].concat(),
                "label 10 at row 1",
            ),
            (
                "batches.meta.txt",
                b"a\nb\n".to_vec(),
                "2 names; expected 10",
            ),
            (
                "batches.meta.txt",
                b"a\n\xff\n".to_vec(),
                "line 2 is not UTF-8",
            ),
        ] {
            let root = binary();
            root.put(file, bytes);
            root.fault(Kind::Cifar10, file, wanted);
        }
        let root = binary();
        root.remove("data_batch_2.bin").remove("test_batch.bin");
        root.fault(
            Kind::Cifar10,
            "",
            "missing: data_batch_2.bin, test_batch.bin",
        );
        let only_first = Root::new();
        only_first.put("data_batch_1.bin", record(0));
        only_first.fault(Kind::Cifar10, "", "data_batch_4.bin, data_batch_5.bin");
        let python = Root::new();
        python.put("data_batch_1", "");
        python.fault(Kind::Cifar10, "", "Python version");
        let odd = binary();
        odd.remove("data_batch_1.bin").folder("data_batch_1.bin");
        odd.fault(Kind::Cifar10, "data_batch_1.bin", "not a regular file");
    }

    #[test]
    fn each_fault_of_a_png_batch_names_its_file() {
        let whole = encoded(rgb(1024, 2, 0), ImageFormat::Png);
        let mut huge = whole.clone();
        huge[20..24].copy_from_slice(&0x7fff_ffff_u32.to_be_bytes());
        let mut flipped = whole.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 0xff;
        for (file, bytes, wanted) in [
            ("data_batch_2.png", vec![], "not a PNG"),
            (
                "data_batch_2.png",
                whole[..whole.len() / 2].to_vec(),
                "cannot be decoded",
            ),
            ("data_batch_2.png", flipped, "cannot be decoded"),
            ("data_batch_2.png", huge, ""),
            (
                "data_batch_2.png",
                encoded(rgb(1000, 2, 0), ImageFormat::Png),
                "rows of 1000 pixels",
            ),
            (
                "data_batch_2.png",
                encoded(GrayImage::new(1024, 2), ImageFormat::Png),
                "L8",
            ),
            (
                "data_batch_2.png",
                encoded(smooth(64, 0), ImageFormat::Jpeg),
                "not a PNG",
            ),
            (
                "test_lables.json",
                b"[1]".to_vec(),
                "1 labels; expected 2, one for each image",
            ),
            (
                "train_lables.json",
                b"[0,0,0,0,0,0,0,0,0,10]".to_vec(),
                "label 10 at row 9",
            ),
            ("train_lables.json", b"[0,-1]".to_vec(), "label -1 at row 1"),
            (
                "train_lables.json",
                b"{\"a\": 1".to_vec(),
                "not a list of labels",
            ),
        ] {
            let root = png();
            root.put(file, bytes);
            root.fault(Kind::Cifar10, file, wanted);
        }
        let root = png();
        root.remove("data_batch_4.png");
        root.fault(Kind::Cifar10, "", "missing: data_batch_4.png");
        let root = png();
        root.remove("train_lables.json");
        root.fault(Kind::Cifar10, "train_lables.json", "cannot open");
    }

    fn hundred(train: &str, test: &str) -> Root {
        let record =
            |coarse: u8, fine: u8, seed: u8| [vec![coarse, fine], pixels(3072, seed)].concat();
        let root = Root::new();
        // 69 is rocket, 41 lawn_mower, both of 19, vehicles_2; 54 is orchid, of 2.
        let rows = [
            record(19, 69, 0),
            record(19, 41, 1),
            record(2, 54, 2),
            record(19, 69, 3),
        ];
        root.put(train, rows.concat());
        root.put(
            test,
            [record(2, 54, 4), record(19, 69, 5), record(19, 41, 6)].concat(),
        );
        root
    }

    #[test]
    fn fine_and_coarse_labels() {
        let root = hundred("train.bin", "test.bin");
        let fine = root.open(Kind::Cifar100).unwrap();
        assert_eq!(fine.train.labels(), [69, 41, 54, 69]);
        assert!(fine.train.fine().is_none());
        assert_eq!(fine.train.classes().len(), 100);
        assert_eq!(
            fine.labelled().find("rocket").unwrap(),
            ForgetClass::Coarse(69)
        );
        let coarse = root.open(Kind::Cifar20).unwrap();
        assert_eq!(coarse.train.labels(), [19, 19, 2, 19]);
        assert_eq!(coarse.train.fine().unwrap().0, [69, 41, 54, 69]);
        assert_eq!(coarse.train.classes().name(19), Some("vehicles_2"));
        assert_eq!(image_of(&coarse.train, 3), pixels(3072, 3));
        assert_eq!(image_of(&coarse.test, 2), pixels(3072, 6));
    }

    #[test]
    fn a_fine_class_is_a_sub_class_scenario() {
        let root = hundred("train-10k.bin", "test-4k.bin");
        let data = root.open(Kind::Cifar20).unwrap();
        let labels = data.labelled();
        let rocket = data.labelled().find("Rocket").unwrap();
        assert_eq!(rocket, ForgetClass::Fine(69));
        assert_eq!(
            (labels.train_rows(rocket), labels.test_rows(rocket)),
            (vec![0, 3], vec![1])
        );
        let selection = Forget::class("Rocket").select(&labels, 0).unwrap();
        assert_eq!(selection.scenario(), "sub-class");
        let split = selection.split(TestRows::RetainedClasses);
        assert_eq!((split.forget, split.retain), (vec![0, 3], vec![1, 2]));
        assert_eq!(split.test, [0, 2]);

        for text in ["vehicles 2", "19"] {
            let selection = Forget::class(text).select(&labels, 0).unwrap();
            assert_eq!(selection.whole_classes(), [ForgetClass::Coarse(19)]);
            assert_eq!(
                (selection.scenario(), selection.rows()),
                ("full-class", &[0, 1, 3][..])
            );
        }
        // 69 could only be a fine number, and numbers are those of the labels.
        for (text, wanted) in [
            ("rokcet", "`rocket`"),
            ("69", "0 to 19"),
            ("vehicle", "`vehicles_1`"),
        ] {
            let error = data.labelled().find(text).unwrap_err().to_string();
            assert!(
                error.contains(wanted) && error.contains("20 + 100"),
                "{error}"
            );
        }
        // A class that the set knows but has no rows of.
        let error = Forget::class("whale").select(&labels, 0).unwrap_err();
        assert!(
            error.to_string().contains("class `whale` has no rows"),
            "{error}"
        );
    }

    #[test]
    fn each_fault_of_cifar100_names_its_file() {
        let two = hundred("train-a.bin", "test.bin");
        two.put("train-b.bin", "");
        two.fault(Kind::Cifar20, "", "both train-a.bin and train-b.bin");
        let none = hundred("train.bin", "other.bin");
        none.fault(Kind::Cifar100, "", "the folder has no test.bin");
        let python = hundred("train.bin", "test");
        python.fault(Kind::Cifar100, "", "Python version");
        let record = |coarse: u8, fine: u8| [vec![coarse, fine], vec![0; 3072]].concat();
        for (file, bytes, wanted) in [
            ("train.bin", record(20, 0), "coarse label 20 at row 0"),
            ("test.bin", record(0, 100), "fine label 100 at row 0"),
            (
                "test.bin",
                vec![0; 3073],
                "0 records of 3074 bytes and 3073",
            ),
            ("fine_label_names.txt", b"x\n".to_vec(), "expected 100"),
            ("coarse_label_names.txt", b"x\n".to_vec(), "expected 20"),
        ] {
            let root = hundred("train.bin", "test.bin");
            root.put(file, bytes);
            root.fault(Kind::Cifar20, file, wanted);
        }
    }
}

mod tiny {
    use super::*;

    fn fill() -> Root {
        let root = Root::new();
        let jpeg = |seed| encoded(smooth(64, seed), ImageFormat::Jpeg);
        root.put("wnids.txt", "n02\nn01\n");
        root.put(
            "words.txt",
            "n01\tgoldfish, Carassius auratus\nn02\ttench\nn99\tother\n",
        );
        for (id, seed) in [("n01", 10), ("n02", 60)] {
            for i in 0..3 {
                root.put(&format!("train/{id}/images/{id}_{i}.JPEG"), jpeg(seed + i));
            }
            root.put(&format!("train/{id}/{id}_boxes.txt"), "");
        }
        let gray = GrayImage::from_fn(64, 64, |x, _| image::Luma([x as u8]));
        root.put("val/images/val_0.JPEG", encoded(gray, ImageFormat::Jpeg));
        root.put("val/images/val_1.JPEG", jpeg(200));
        root.put(
            "val/val_annotations.txt",
            "val_1.JPEG\tn01\t0\t0\t1\t1\nval_0.JPEG\tn02\t0\t0\t1\t1\n",
        );
        root
    }

    #[test]
    fn the_published_layout_is_read() {
        let data = fill().open(Kind::TinyImagenet);
        // The files are gone, and only reading an image would show it.
        let data = data.unwrap();
        assert_eq!(data.train.labels(), [0, 0, 0, 1, 1, 1]);
        assert_eq!(data.test.labels(), [0, 1]);
        assert!(data.train.read(0, &mut [0; 3 * 64 * 64]).is_err());

        let root = fill();
        let data = root.open(Kind::TinyImagenet).unwrap();
        assert_eq!(data.train.shape(), [3, 64, 64]);
        for text in ["n02", "tench", "TENCH", "1"] {
            assert_eq!(data.labelled().find(text).unwrap(), ForgetClass::Coarse(1));
        }
        assert_eq!(data.train.classes().find("carassius auratus").unwrap(), 0);
        assert_eq!(data.train.classes().name(0), Some("n01"));
        let wanted = chw(&smooth(64, 61));
        let found = image_of(&data.train, 4);
        let worst = found.iter().zip(&wanted).map(|(a, b)| a.abs_diff(*b)).max();
        assert!(worst.unwrap() <= 16, "{worst:?}");
        // A grey JPEG becomes three equal planes.
        let grey = image_of(&data.test, 1);
        assert!(grey[..4096] == grey[4096..8192] && grey[..4096] == grey[8192..]);
        assert!(grey[63].abs_diff(63) <= 4);
    }

    #[test]
    fn words_are_optional_and_sizes_can_be_asked_for() {
        let root = fill();
        root.remove("words.txt");
        assert!(
            root.open(Kind::TinyImagenet)
                .unwrap()
                .labelled()
                .find("tench")
                .is_err()
        );
        let small = images::open_resized(Kind::TinyImagenet, Some(root.path()), 32).unwrap();
        assert_eq!(small.train.shape(), [3, 32, 32]);
        assert_eq!(image_of(&small.train, 0).len(), 3 * 32 * 32);
        for size in [0, 5000] {
            let error = images::open_resized(Kind::TinyImagenet, Some(root.path()), size);
            assert!(error.unwrap_err().to_string().contains("image size"));
        }
        let error = images::open_resized(Kind::Cifar10, Some(root.path()), 32).unwrap_err();
        assert!(error.to_string().contains("none for cifar10"), "{error}");
    }

    #[test]
    fn each_fault_of_the_layout_names_its_file() {
        let annotations = "val/val_annotations.txt";
        for (file, text, wanted) in [
            ("wnids.txt", "", "lists no classes"),
            ("wnids.txt", "n01\nn01\n", "line 2: `n01` is listed twice"),
            ("wnids.txt", "n01\n../n02\n", "line 2: `../n02` is not"),
            ("words.txt", "n01 goldfish\n", "line 1: `n01 goldfish`"),
            (annotations, "", "lists no images"),
            (annotations, "val_0.JPEG", "line 1: `val_0.JPEG`"),
            (
                annotations,
                "\nval_0.JPEG\tn03\n",
                "line 2: class `n03` is not",
            ),
            (annotations, "val_9.JPEG\tn01", "`val_9.JPEG` is not in"),
            (annotations, "../x\tn01", "`../x` is not in"),
        ] {
            let root = fill();
            root.put(file, text);
            root.fault(Kind::TinyImagenet, file, wanted);
        }
        for (gone, file, wanted) in [
            ("wnids.txt", "wnids.txt", "cannot open"),
            ("train/n02", "train/n02/images", "cannot list the folder"),
            (annotations, annotations, "cannot open"),
            ("val/images", "val/images", "cannot list the folder"),
        ] {
            let root = fill();
            root.remove(gone);
            root.fault(Kind::TinyImagenet, file, wanted);
        }
        let root = fill();
        root.remove("train/n02/images").folder("train/n02/images");
        root.fault(Kind::TinyImagenet, "train/n02/images", "has no images");
    }

    #[test]
    fn a_bad_image_shows_when_it_is_read() {
        let name = "train/n01/images/n01_1.JPEG";
        let whole = encoded(smooth(64, 0), ImageFormat::Jpeg);
        // The height and width follow the marker FF C0, its length and the depth.
        let frame = whole.windows(2).position(|w| w == [0xff, 0xc0]).unwrap();
        let mut no_tables = whole.clone();
        no_tables.truncate(frame);
        no_tables.extend([0xff, 0xd9]);
        let mut huge = whole.clone();
        huge[frame + 5..frame + 9].copy_from_slice(&[0x3f, 0xff, 0x3f, 0xff]);
        for (bytes, wanted) in [
            (vec![], "the file is empty"),
            (b"not an image".to_vec(), "neither a JPEG nor a PNG"),
            (whole[..whole.len() / 2].to_vec(), "truncated"),
            (whole[..2].to_vec(), ""),
            (no_tables, ""),
            (huge, "the header declares 16383×16383"),
            (
                encoded(smooth(63, 0), ImageFormat::Jpeg),
                "the image is 63×63 (height×width); expected 64×64",
            ),
        ] {
            let root = fill();
            root.put(name, &bytes);
            let data = root.open(Kind::TinyImagenet).unwrap();
            let error = data.train.read(1, &mut [0; 3 * 64 * 64]).unwrap_err();
            check_message(&error, &root.path().join(name), wanted);
            image_of(&data.train, 0);

            // In order: the batch before it arrives, then the error, then nothing, whatever the depth.
            for depth in [0, 1, 4] {
                let options = LoaderOptions::new(2, data.normalisation.clone());
                let order = vec![0, 2, 3, 1, 4, 5];
                let loader = Loader::new(&data.train, order, options).unwrap();
                let mut loader = ahead(depth).lane("decode", loader).unwrap();
                assert_eq!(loader.next().unwrap().unwrap().rows, [0, 2]);
                let error = loader.next().unwrap().unwrap_err();
                check_message(&error, &root.path().join(name), wanted);
                assert!(loader.next().is_none());
                assert!(loader.next().is_none());
            }
        }
    }
}

mod folder {
    use super::*;

    fn png(seed: u8) -> Vec<u8> {
        encoded(rgb(6, 4, seed), ImageFormat::Png)
    }

    fn fill() -> Root {
        let root = Root::new();
        for (class, seed) in [("dog", 0), ("Cat", 50)] {
            for i in 0..2 {
                root.put(&format!("train/{class}/{i}.png"), png(seed + i));
            }
        }
        root.put("train/dog/.hidden.png", "");
        root.put("train/dog/notes.txt", "");
        root.put("train/readme.txt", "");
        root.put("test/dog/x.PNG", png(90));
        root
    }

    #[test]
    fn classes_count_by_sorted_name() {
        let root = fill();
        for _ in 0..2 {
            let data = root.open(Kind::Folder).unwrap();
            assert_eq!(data.train.shape(), [3, 4, 6]);
            assert_eq!(
                data.train.classes().iter().collect::<Vec<_>>(),
                ["Cat", "dog"]
            );
            assert_eq!(data.train.labels(), [0, 0, 1, 1]);
            assert_eq!(data.test.labels(), [1]);
            assert_eq!(image_of(&data.train, 3), chw(&rgb(6, 4, 1)));
            assert_eq!(image_of(&data.test, 0), chw(&rgb(6, 4, 90)));
            // The second time the same from `val`.
            if root.path().join("test").exists() {
                fs::rename(root.path().join("test"), root.path().join("val")).unwrap();
            }
        }
    }

    #[test]
    fn images_of_several_sizes_need_a_size() {
        let root = fill();
        root.put("train/dog/0.png", encoded(rgb(8, 8, 0), ImageFormat::Png));
        root.put("train/dog/1.png", encoded(rgb(2, 9, 0), ImageFormat::Png));
        root.fault(Kind::Folder, "train/dog/0.png", "the image is 8×8");
        let data = images::open_resized(Kind::Folder, Some(root.path()), 4).unwrap();
        assert_eq!(data.train.shape(), [3, 4, 4]);
        // 6×4 to 4×4 is the middle, pixel for pixel.
        let source = rgb(6, 4, 50);
        let middle = image::imageops::crop_imm(&source, 1, 0, 4, 4).to_image();
        assert_eq!(image_of(&data.train, 0), chw(&middle));
        for row in 0..4 {
            image_of(&data.train, row);
        }
        // Scaling keeps what is all of one colour.
        let flat = RgbImage::from_pixel(50, 30, image::Rgb([10, 200, 77]));
        root.put("train/dog/0.png", encoded(flat, ImageFormat::Png));
        let image = image_of(&data.train, 2);
        assert_eq!((image[0], image[16], image[47]), (10, 200, 77));
    }

    #[test]
    fn each_fault_names_its_folder() {
        let root = Root::new();
        root.fault(Kind::Folder, "", "neither a folder test nor a folder val");
        root.folder("test");
        root.fault(Kind::Folder, "", "no folder train");
        root.folder("train");
        root.fault(Kind::Folder, "train", "no class folders");
        root.folder("train/cat");
        root.fault(Kind::Folder, "train/cat", "has no images");
        root.put("train/cat/a.png", png(0));
        root.fault(Kind::Folder, "test", "no class folders");
        root.folder("test/dog");
        root.fault(Kind::Folder, "test/dog", "no training images");
        root.remove("test/dog").folder("test/cat");
        root.fault(Kind::Folder, "test/cat", "has no images");
        root.put("test/cat/b.jpg", "junk");
        root.fault(Kind::Folder, "test/cat/b.jpg", "neither a JPEG nor a PNG");
        // The format is told by content.
        root.put("test/cat/b.jpg", png(1));
        assert_eq!(root.open(Kind::Folder).unwrap().test.len(), 1);
    }

    /// Opens a folder whose only test image is these bytes, and reads it.
    fn read_any(root: &Root, bytes: &[u8]) {
        root.put("test/dog/x.PNG", bytes);
        let opened = images::open_resized(Kind::Folder, Some(root.path()), 8).unwrap();
        let resized = opened.test.read(0, &mut [0; 3 * 8 * 8]);
        let exact = root.open(Kind::Folder).and_then(|data| {
            let mut image = vec![0; data.test.shape().iter().product()];
            data.test.read(0, &mut image)
        });
        for error in [resized, exact].into_iter().filter_map(Result::err) {
            check_message(&error, &root.path().join("test/dog/x.PNG"), "");
        }
    }

    #[test]
    fn damaged_images_never_panic() {
        let root = fill();
        let sources = [
            encoded(smooth(24, 5), ImageFormat::Jpeg),
            encoded(
                GrayImage::from_fn(9, 17, |x, y| image::Luma([(x * y) as u8])),
                ImageFormat::Jpeg,
            ),
            png(3),
        ];
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let strategy = (
            0..sources.len(),
            prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            prop::option::of(any::<prop::sample::Index>()),
        );
        runner
            .run(&strategy, |(source, changes, cut)| {
                let mut bytes = sources[source].clone();
                for (at, value) in changes {
                    let at = at.index(bytes.len());
                    bytes[at] = value;
                }
                if let Some(cut) = cut {
                    bytes.truncate(cut.index(bytes.len()));
                }
                read_any(&root, &bytes);
                Ok(())
            })
            .unwrap();
    }
}

mod loader {
    use super::*;

    const SHAPE: [usize; 3] = [2, 5, 4];
    const SIZE: usize = 40;

    fn set(rows: usize) -> ImageSet {
        let labels = (0..rows as i64).map(|i| i % 3).collect();
        let classes = ClassNames::new(["a", "b", "c"]);
        ImageSet::new(SHAPE, pixels(rows * SIZE, 9), labels, classes).unwrap()
    }

    fn normalisation() -> Normalisation {
        Normalisation {
            mean: vec![0.25, 0.5],
            std: vec![0.5, 0.125],
        }
    }

    fn options(batch: usize, augment: Option<Augment>) -> LoaderOptions {
        LoaderOptions {
            augment,
            seed: 11,
            ..LoaderOptions::new(batch, normalisation())
        }
    }

    fn batches(set: &ImageSet, order: &[usize], options: LoaderOptions) -> Vec<Batch> {
        let loader = Loader::new(set, order.to_vec(), options).unwrap();
        let expected = loader.batches();
        let batches: Vec<Batch> = loader.map(Result::unwrap).collect();
        assert_eq!(batches.len(), expected);
        batches
    }

    fn normalised(image: &[u8]) -> Vec<f32> {
        let half = SIZE / 2;
        let value = |(i, &x): (usize, &u8)| {
            let (mean, std) = if i < half { (0.25, 0.5) } else { (0.5, 0.125) };
            ((f64::from(x) / 255.0 - mean) / std) as f32
        };
        image.iter().enumerate().map(value).collect()
    }

    #[test]
    fn batches_are_the_rows_in_order() {
        let set = set(10);
        let order = shuffled(&(0..10).collect::<Vec<_>>(), 5);
        let found = batches(&set, &order, options(4, None));
        assert_eq!(
            found.iter().map(|b| b.rows.len()).collect::<Vec<_>>(),
            [4, 4, 2]
        );
        assert_eq!(
            found
                .iter()
                .flat_map(|b| b.rows.clone())
                .collect::<Vec<_>>(),
            order
        );
        for batch in &found {
            assert_eq!(batch.shape, [batch.rows.len(), 2, 5, 4]);
            for (i, &row) in batch.rows.iter().enumerate() {
                assert_eq!(batch.labels[i], row as i64 % 3);
                let image = &batch.images[i * SIZE..(i + 1) * SIZE];
                assert_eq!(image, normalised(&image_of(&set, row)));
            }
        }
        let dropping = LoaderOptions {
            drop_last: true,
            ..options(4, None)
        };
        assert_eq!(batches(&set, &order, dropping), found[..2]);
        assert!(batches(&set, &[], options(4, None)).is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn the_same_bytes_at_any_depth_and_batch_size(
            order in prop::collection::vec(0_usize..23, 0..60),
            batch in 1_usize..70,
            augmented: bool,
            mean: bool,
            padding in 0_usize..5,
        ) {
            let set = set(23);
            let pad_with = if mean { PadWith::Mean } else { PadWith::Black };
            let augment = augmented.then_some(Augment { padding, pad_with, flip: true });
            let here = batches(&set, &order, options(batch, augment));
            for depth in [1, 4] {
                let loader = Loader::new(&set, order.clone(), options(batch, augment)).unwrap();
                let lane = ahead(depth).lane("decode", loader).unwrap();
                prop_assert_eq!(&lane.map(Result::unwrap).collect::<Vec<_>>(), &here);
            }
            let all = |found: &[Batch]| found.iter().flat_map(|b| b.images.clone()).collect::<Vec<_>>();
            let one_by_one = batches(&set, &order, options(1, augment));
            prop_assert_eq!(all(&here), all(&one_by_one));
        }
    }

    #[test]
    fn augmentation_shows_windows_of_the_image() {
        let set = set(6);
        let order: Vec<usize> = (0..6).cycle().take(300).collect();
        let augment = Augment {
            padding: 2,
            pad_with: PadWith::Mean,
            flip: true,
        };
        let found = batches(&set, &order, options(32, Some(augment)));
        let (mut shifted, mut same) = (0, 0);
        for batch in &found {
            for (i, &row) in batch.rows.iter().enumerate() {
                let image = &batch.images[i * SIZE..(i + 1) * SIZE];
                let source = normalised(&image_of(&set, row));
                let window = |dy: isize, dx: isize, flip: bool| -> Vec<f32> {
                    let mut out = Vec::new();
                    for c in 0..2 {
                        for y in 0..5_isize {
                            for x in 0..4_isize {
                                let x = if flip { 3 - x } else { x };
                                let (y, x) = (y + dy, x + dx);
                                let inside = (0..5).contains(&y) && (0..4).contains(&x);
                                let at = (c * 5 + y) * 4 + x;
                                out.push(if inside { source[at as usize] } else { 0.0 });
                            }
                        }
                    }
                    out
                };
                let matches = (-2..=2)
                    .flat_map(|dy| (-2..=2).map(move |dx| (dy, dx)))
                    .flat_map(|(dy, dx)| [(dy, dx, false), (dy, dx, true)])
                    .filter(|&(dy, dx, flip)| window(dy, dx, flip) == image)
                    .count();
                assert_eq!(matches, 1);
                if image == source {
                    same += 1;
                } else {
                    shifted += 1;
                }
            }
        }
        assert!(shifted > 250 && same > 0, "{shifted} {same}");
        // Another seed draws other windows, and no padding and no flip none at all.
        let other = LoaderOptions {
            seed: 12,
            ..options(32, Some(augment))
        };
        assert_ne!(batches(&set, &order, other), found);
        let still = Augment {
            padding: 0,
            flip: false,
            ..augment
        };
        assert_eq!(
            batches(&set, &order, options(32, Some(still))),
            batches(&set, &order, options(32, None))
        );
    }

    #[test]
    fn leaving_early_does_not_hang() {
        let (done, finished) = mpsc::channel();
        std::thread::spawn(move || {
            let order: Vec<usize> = (0..23).cycle().take(10_000).collect();
            for depth in [0, 1, 4] {
                for taken in [0, 1, 3] {
                    let loader = Loader::new(&set(23), order.clone(), options(8, None));
                    let lane = ahead(depth).lane("decode", loader.unwrap()).unwrap();
                    let found: Vec<_> = lane.take(taken).collect();
                    assert_eq!(found.len(), taken);
                }
            }
            done.send(()).unwrap();
        });
        finished
            .recv_timeout(Duration::from_secs(60))
            .expect("dropping a lane stops its thread");
    }

    #[test]
    fn each_fault_has_its_own_line() {
        let set = set(3);
        let short = Normalisation {
            mean: vec![0.5],
            std: vec![0.5],
        };
        let wide = Augment {
            padding: 6,
            ..Augment::default()
        };
        for (order, options, wanted) in [
            (vec![0], options(0, None), "batch size = 0"),
            (vec![0, 3], options(1, None), "row 3 is out of range"),
            (vec![0], LoaderOptions::new(1, short), "2 channels"),
            (vec![0], options(1, Some(wide)), "padding = 6"),
        ] {
            let error = Loader::new(&set, order, options).unwrap_err();
            assert!(error.is_input());
            assert!(error.to_string().contains(wanted), "{error}");
        }
    }
}
