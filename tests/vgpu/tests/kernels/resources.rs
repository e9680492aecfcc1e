//! What the kernels take: registers, shared memory, traffic.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use vgpu::counters::Counters;
use vgpu::device::{Description, model};

use crate::device::{
    Arg, Buffer, Dtype, Gpu, MODULES, NULL, dynamic_shared, even, kernels, ptx, toolkit,
};
use crate::gram::Sets;
use crate::reference::Table;
use crate::tiles::{
    CLASS_COLS, CLASS_SETS, EXACT, PLAIN, ROW_BLOCK, SLICE, TALL, TILE, TILE_HALF, TILE_NARROW,
};
use crate::toolkit::{PTX_ARCHS, Resources, parse_report, ptx_arch_for};
use crate::{Test, args};

/// The tests, for `main.rs`.
pub(crate) const TESTS: &[Test] = &[
    ("nothing_spills_on_any_device", nothing_spills_on_any_device),
    (
        "exports_are_those_of_the_readme",
        exports_are_those_of_the_readme,
    ),
    (
        "ptx_is_the_same_from_any_folder",
        ptx_is_the_same_from_any_folder,
    ),
    (
        "gram_reaches_its_share_of_every_device",
        gram_reaches_its_share_of_every_device,
    ),
    (
        "gram_of_halves_moves_no_more_than_it_must",
        gram_of_halves_moves_no_more_than_it_must,
    ),
    (
        "sums_by_class_read_the_rows_once",
        sums_by_class_read_the_rows_once,
    ),
    (
        "exact_gram_is_worth_many_f64_units",
        exact_gram_is_worth_many_f64_units,
    ),
];

/// What the assembler says of the kernels of a module on sm_`arch`.
fn assembled(module: &'static str, arch: u32) -> Arc<Vec<Resources>> {
    type Reports = BTreeMap<(&'static str, u32), Arc<Vec<Resources>>>;
    static DONE: Mutex<Reports> = Mutex::new(BTreeMap::new());
    let mut done = DONE.lock().expect("the PTX assembles");
    let report = done.entry((module, arch)).or_insert_with(|| {
        let ptx = ptx(module, ptx_arch_for(arch));
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels/assembled.cubin");
        let report = toolkit().cubin(&ptx, arch, &out);
        Arc::new(parse_report(&report.expect("the PTX assembles"), arch))
    });
    Arc::clone(report)
}

fn nothing_spills_on_any_device() {
    // The oldest and the newest of each kind; the build script's table has all of them.
    for arch in [75, 80, 90, 120] {
        for module in MODULES {
            let resources = assembled(module, arch);
            assert!(!resources.is_empty(), "{module}: no report");
            for kernel in resources.iter() {
                assert_eq!((kernel.stack, kernel.spills), (0, 0), "{kernel:?}");
                assert!(
                    kernel.registers > 0 && kernel.shared <= 48 << 10,
                    "{kernel:?}"
                );
            }
        }
    }
}

/// What a symbol of the README stands for: `<z>` any element type, `<y>` any kind of target, `<x>` any input of rff.
fn symbols(name: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for z in ["f32", "f64", "f16", "bf16"] {
        // Features come out of rff in f32 or f64.
        if name.starts_with("rff") && !["f32", "f64"].contains(&z) {
            continue;
        }
        for (x, y) in [("f32", "f32"), ("f64", "f64")] {
            all.insert(name.replace("<z>", z).replace("<x>", x).replace("<y>", y));
        }
    }
    all
}

fn exports_are_those_of_the_readme() {
    let text = fs::read_to_string(kernels().join("README.md")).expect("the README");
    let in_ticks = text.split('`').skip(1).step_by(2);
    let of_a_module = |name: &&str| MODULES.iter().any(|m| name.starts_with(&format!("{m}_")));
    // Prose may shorten a name; the tables spell out element type and technique.
    let spelled = |name: &&str| !name.contains('*') && !name.contains(' ');
    let names = in_ticks.filter(of_a_module).filter(spelled);
    let documented: BTreeSet<String> = names.flat_map(symbols).collect();
    let mut exported = BTreeSet::new();
    for (module, arch) in MODULES.iter().flat_map(|m| PTX_ARCHS.map(|arch| (m, arch))) {
        let file = ptx(module, arch);
        let text = fs::read_to_string(file).expect("PTX is text");
        let entries = text.lines().filter_map(|line| line.split_once(".entry "));
        exported.extend(entries.map(|(_, rest)| rest.trim_end_matches('(').trim().to_owned()));
    }
    let missing: Vec<_> = documented.symmetric_difference(&exported).collect();
    assert!(
        missing.is_empty(),
        "in kernels/README.md or in kernels/*.cu but not in both: {missing:?}"
    );
}

/// The module has functions of the toolkit's headers, whose names nvcc makes from the source's path.
fn ptx_is_the_same_from_any_folder() {
    let module = "projection";
    let here = fs::read_to_string(ptx(module, 80)).expect("PTX is text");
    let files = here
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix(".file"));
    let mut seen = 0;
    for file in files {
        let name = file.split('"').nth(1).expect("a quoted name");
        assert!(
            name.starts_with("kernels/") || name.starts_with("include/"),
            "{name}"
        );
        assert!(
            name.starts_with("include/") || kernels().join("..").join(name).is_file(),
            "{name}"
        );
        seen += 1;
    }
    assert!(seen > 2, "only {seen} files are named");

    let elsewhere = Path::new(env!("CARGO_TARGET_TMPDIR")).join("elsewhere/kernels");
    fs::create_dir_all(elsewhere.join("common")).expect("a folder");
    for folder in ["", "common"] {
        for entry in fs::read_dir(kernels().join(folder)).expect("the kernels") {
            let file = entry.expect("an entry").path();
            if file.is_file() {
                let name = file.file_name().expect("a name");
                fs::copy(&file, elsewhere.join(folder).join(name)).expect("a copy");
            }
        }
    }
    let copy = elsewhere.join(module).with_extension("ptx");
    let outcome = toolkit().ptx(&copy.with_extension("cu"), 80, &copy);
    outcome.expect("the copy compiles");
    let there = fs::read_to_string(copy).expect("PTX is text");
    let differs = here.lines().zip(there.lines()).find(|(a, b)| a != b);
    assert!(here == there, "{differs:?}");
}

/// Features of the Gram whose traffic and modelled time are checked.
const FEATURES: usize = 512;

/// A kernel that forms G, run on that many rows of [`FEATURES`] features, each row block by thread blocks of its own.
struct Counted {
    gpu: Gpu,
    name: String,
    rows: usize,
    /// Thread blocks and their threads.
    launch: (usize, usize),
    counters: Counters,
    partials: Buffer,
    gram: Buffer,
}

/// Runs `gram_<verb>_<dtype>_<technique>` and checks its traffic: within 1.15 of what its tiles need.
fn count(verb: &str, dtype: Dtype, technique: &str, rows: usize) -> Counted {
    let gpu = Gpu::new(&["gram"]);
    let bytes = if dtype == Dtype::F32 { 4 } else { 2 };
    let z = gpu.upload(&Table::random(rows, FEATURES, dtype, 1), dtype, FEATURES);
    let blocks = rows / ROW_BLOCK;
    let partials = gpu.empty(blocks * FEATURES * FEATURES * 8);
    let gram = gpu.upload(&Table::zeros(FEATURES, FEATURES), Dtype::F64, FEATURES);
    let (tile, cols, threads) = match (technique, verb) {
        ("mma", _) => (TILE_HALF, TILE_HALF, 256),
        (_, "narrow") => (TILE, TILE_NARROW, 128),
        _ => (TILE, TILE, 128),
    };
    let (side, strips) = (FEATURES / tile, tile / cols);
    let (tiles, below) = (side * (side + 1) / 2, side * (side - 1) / 2);
    let grid = [strips * tiles, blocks, 1];
    let name = format!("gram_{verb}_{}_{technique}", dtype.name());
    let args = args![
        &z, FEATURES, rows, FEATURES, false, 1.0, &gram, FEATURES, &partials
    ];
    let counters = gpu.launch(&name, grid, [threads, 1], args);
    if technique == "dmma" {
        // Of a tile on the diagonal the quarter above it is left out.
        let quarters = 4 * below + 3 * side;
        let least = (quarters * tile * tile / 4 * 2 * rows) as u64;
        assert_eq!(counters.flops_tensor_f64, least, "{name}");
    }
    // Below the diagonal a strip needs its rows and its columns, on it they are the same; every entry of the lower
    // triangle is written once a row block.
    let columns = strips * (below * (tile + cols) + side * tile);
    let loads = columns * rows * bytes / 32;
    let stores = blocks * FEATURES * (FEATURES + 1) / 2 * 8 / 32;
    let ratio = |found: u64, least: usize| found as f64 / least as f64;
    let (load, store) = (
        ratio(counters.load_sectors, loads),
        ratio(counters.store_sectors, stores),
    );
    println!("virtual: {name} {rows}x{FEATURES}: loads {load:.3}, stores {store:.3} of the least");
    assert!(
        load <= 1.15 && store <= 1.15,
        "{name}: {load:.3} and {store:.3} of the least sectors"
    );
    Counted {
        gpu,
        name,
        rows,
        launch: (grid[0] * blocks, threads),
        counters,
        partials,
        gram,
    }
}

/// The time that the model gives a launch, with the registers that the assembler takes on that device.
fn modelled(
    device: &Description,
    name: &str,
    (blocks, threads): (usize, usize),
    counters: &Counters,
) -> model::Time {
    let (major, minor) = device.compute_capability;
    let module = MODULES.into_iter().find(|module| name.starts_with(module));
    let module = module.unwrap_or_else(|| panic!("no module of {name}"));
    let report = assembled(module, (10 * major + minor) as u32);
    let kernel = report.iter().find(|kernel| kernel.kernel == name);
    let kernel = kernel.unwrap_or_else(|| panic!("no report of {name}"));
    let threads = threads as u32;
    let shared = kernel.shared + dynamic_shared(name) as u32;
    let occupancy = device.occupancy(threads, kernel.registers, shared);
    model::time(device, counters, blocks as u64, threads, &occupancy)
}

impl Counted {
    /// Share of `peak` TFLOP/s that the kernel reaches on a device by the model, counting the entries asked for; printed
    /// with that of the kernel and the fold after it.
    fn share(&self, device: &Description, peak: f64) -> f64 {
        let (blocks, side) = (self.rows / ROW_BLOCK, FEATURES / PLAIN);
        let args = args![
            &self.partials,
            blocks,
            FEATURES,
            FEATURES,
            true,
            1.0,
            &self.gram,
            FEATURES
        ];
        let fold = "gram_fold_f64";
        let folding = self.gpu.launch(fold, [side, side, 1], [PLAIN; 2], args);
        let kernel = modelled(device, &self.name, self.launch, &self.counters);
        let fold = modelled(device, fold, (side * side, PLAIN * PLAIN), &folding);
        let asked = (FEATURES * (FEATURES + 1) * self.rows) as f64;
        let rate = |microseconds: f64| asked / microseconds * 1e-6;
        let alone = rate(kernel.microseconds);
        let both = rate(kernel.microseconds + fold.microseconds);
        println!(
            "virtual {}: {} {}x{FEATURES}: modelled {alone:.2} of {peak:.2} TFLOP/s, {:.0} %, bound by {:?}; with \
             the fold {both:.2}, {:.0} %",
            device.name,
            self.name,
            self.rows,
            100.0 * alone / peak,
            kernel.bound,
            100.0 * both / peak
        );
        alone / peak
    }
}

/// The kernel that the host side launches for f32 rows, as `Technique::best` and `narrow` in `src/gpu` choose it: f64
/// tensor cores where the device has units for them, and strips where they save a sixth of the rounds.
fn chosen(device: &Description, rows: usize) -> (&'static str, &'static str) {
    let technique = match device.compute_capability {
        (8..=10, 0) => "dmma",
        _ => "fma",
    };
    let side = FEATURES / TILE;
    let blocks = side * (side + 1) / 2 * (rows / ROW_BLOCK);
    let strips = TILE / TILE_NARROW;
    let rounds = |blocks: usize| blocks.div_ceil(device.multiprocessors as usize);
    let narrow = 6 * rounds(strips * blocks) <= 5 * strips * rounds(blocks);
    (if narrow { "narrow" } else { "syrk" }, technique)
}

fn gram_reaches_its_share_of_every_device() {
    for technique in ["fma", "dmma"] {
        let kernels = ["syrk", "narrow"].map(|verb| count(verb, Dtype::F32, technique, 4096));
        for device in Description::all() {
            let (verb, best) = chosen(device, 4096);
            if best != technique {
                continue;
            }
            let sm = &device.per_multiprocessor;
            let flops_a_clock = sm.tensor_f64_flops.max(2.0 * sm.f64);
            let peak = flops_a_clock * f64::from(device.multiprocessors) * device.clock_ghz * 1e-3;
            let [whole, narrow] = kernels.each_ref().map(|kernel| kernel.share(device, peak));
            let (share, other) = match verb {
                "narrow" => (narrow, whole),
                _ => (whole, narrow),
            };
            println!("virtual {}: {verb} {technique} is chosen", device.name);
            assert!(share >= other, "{}: {share:.3}, {other:.3}", device.key);
            assert!(share >= 0.7, "{}: {share:.3} of the limit", device.key);
        }
    }
}

fn gram_of_halves_moves_no_more_than_it_must() {
    let counted = count("syrk", Dtype::Bf16, "mma", 4096);
    for device in Description::all() {
        let sm = &device.per_multiprocessor;
        let clock = f64::from(device.multiprocessors) * device.tensor_clock_ghz * 1e-3;
        counted.share(device, sm.tensor_half_flops * clock);
    }
    for technique in ["fma", "dmma"] {
        count("narrow", Dtype::Bf16, technique, ROW_BLOCK);
    }
}

/// Rows of a launch by class: a chunk of the engine's.
const CHUNK: usize = 8192;

/// The sums of a chunk of f32 rows by class in the ways that there are, each a list of launches.
struct ByClass {
    /// Rows of the largest class.
    longest: usize,
    /// Each class from beginning to end.
    direct: Vec<Launched>,
    /// Each run, and then the runs of each class.
    runs: Vec<Launched>,
    /// The product with one-hot rows.
    dense: Vec<Launched>,
}

struct Launched {
    name: &'static str,
    launch: (usize, usize),
    counters: Counters,
}

impl ByClass {
    fn count(classes: usize) -> Self {
        let gpu = Gpu::new(&["gram"]);
        let ids: Vec<usize> = (0..CHUNK).map(|i| i * 7919 % 10_007 % classes).collect();
        let sets = Sets::new(&ids, classes);
        let table = Table::random(CHUNK, FEATURES, Dtype::F32, 1);
        let z = gpu.upload(&table, Dtype::F32, FEATURES);
        let pitch = even(classes);
        let out = gpu.upload(&Table::zeros(FEATURES, classes), Dtype::F64, pitch);
        let run = |name: &'static str, grid: [usize; 3], threads: usize, args: &[Arg]| Launched {
            name,
            launch: (grid.iter().product(), threads),
            counters: gpu.launch(name, grid, [threads, 1], args),
        };
        let slices = FEATURES.div_ceil(CLASS_COLS);
        let walk = |sets: usize| [sets.div_ceil(CLASS_SETS) * slices, 1, 1];
        let members = gpu.upload_words(&sets.members);
        let starts = gpu.upload_words(&sets.classes);
        let args = args![
            &z, FEATURES, FEATURES, false, &members, &starts, classes, ROW_BLOCK, 1.0, &out, pitch
        ];
        let direct = vec![run("gram_classes_f32_segmented", walk(classes), 256, args)];

        let count = sets.runs.len() - 1;
        let partials = gpu.empty(count * FEATURES * 8);
        let starts = gpu.upload_words(&sets.runs);
        let args = args![
            &z, FEATURES, FEATURES, false, &members, &starts, count, ROW_BLOCK, 1.0, &partials,
            FEATURES
        ];
        let each = run("gram_runs_f32", walk(count), 256, args);
        let starts = gpu.upload_words(&sets.first_runs);
        let args = args![
            &partials, FEATURES, FEATURES, false, NULL, &starts, classes, 1, 1.0, &out, pitch
        ];
        let all = run("gram_classes_f64_segmented", walk(classes), 256, args);

        // Row blocks side by side; the fold after it is not counted.
        let hot = Table::from_fn(CHUNK, classes, |i, j| f64::from(u8::from(ids[i] == j)));
        let y = gpu.upload(&hot, Dtype::F32, pitch);
        let blocks = CHUNK / ROW_BLOCK;
        let partials = gpu.empty(blocks * FEATURES * pitch * 8);
        let across = [FEATURES.div_ceil(TALL.0), classes.div_ceil(TALL.1), blocks];
        let args = args![
            &z, FEATURES, CHUNK, FEATURES, false, &y, pitch, classes, 1.0, &out, pitch, &partials
        ];
        let dense = vec![run("gram_cross_f32_f32_fma", across, 128, args)];
        Self {
            longest: (0..classes)
                .map(|c| ids.iter().filter(|&&id| id == c).count())
                .max()
                .unwrap_or(0),
            direct,
            runs: vec![each, all],
            dense,
        }
    }
}

impl ByClass {
    /// Microseconds that the model gives launches one after the other.
    fn time(device: &Description, launches: &[Launched]) -> f64 {
        let each = launches.iter();
        each.map(|l| modelled(device, l.name, l.launch, &l.counters).microseconds)
            .sum()
    }

    /// Whether the host side has the runs summed first, as `runs_first` in `src/gpu/gram.rs` says.
    fn runs_first(&self, device: &Description) -> bool {
        let warps = 16 * device.multiprocessors as usize;
        self.longest * warps > 2 * CHUNK * FEATURES.div_ceil(CLASS_COLS)
    }
}

fn sums_by_class_read_the_rows_once() {
    for classes in [2, 10, 100, 1000] {
        let ways = ByClass::count(classes);
        // The rows once, and the sums read and written.
        let least = (CHUNK * FEATURES * 4 + 2 * FEATURES * classes * 8) / 32;
        let counters = &ways.direct[0].counters;
        let sectors = counters.load_sectors + counters.store_sectors;
        let ratio = sectors as f64 / least as f64;
        println!("virtual: {classes} classes: {ratio:.3} of the least sectors");
        assert!(ratio <= 1.15, "{classes} classes: {ratio:.3}");
        for device in Description::all() {
            let [direct, runs, dense] = [&ways.direct, &ways.runs, &ways.dense]
                .map(|launches| ByClass::time(device, launches));
            let (name, chosen, other) = match ways.runs_first(device) {
                true => ("runs first", runs, direct),
                false => ("each class", direct, runs),
            };
            println!(
                "virtual {}: {CHUNK}x{FEATURES}, {classes} classes: modelled {chosen:.1} us, {name}; else {other:.1} \
                 us; as a product {dense:.1} us",
                device.name
            );
            assert!(chosen <= 1.1 * other, "{}: {classes} classes", device.key);
            assert!(1.5 * chosen <= dense, "{}: {classes} classes", device.key);
        }
    }
}

/// The exact Gram of 512 features at 22 and 27 bits, which take ten planes.
fn exact_gram_is_worth_many_f64_units() {
    const ROWS: usize = 8192;
    const SLICED: usize = 2048;
    const DIGITS: usize = 4;
    const PLANES: usize = DIGITS * (DIGITS + 1) / 2;
    let gpu = Gpu::new(&["exact"]);
    let times = |counters: Counters, count: usize| {
        let mut sum = Counters::default();
        (0..count).for_each(|_| sum += counters);
        sum
    };

    let z = gpu.upload(
        &Table::random(SLICED, FEATURES, Dtype::F32, 1),
        Dtype::F32,
        FEATURES,
    );
    let exponents = gpu.upload_ids(&[-20; FEATURES]);
    let planes = gpu.empty(PLANES * FEATURES * SLICED);
    let flags = gpu.upload_bytes(&[0; 4 * SLICED]);
    let found = gpu.upload_wide(&[0, 0]);
    let down = SLICED.div_ceil(SLICE.0).div_ceil(4);
    let grid = [FEATURES.div_ceil(SLICE.1), down, 1];
    let args = args![
        &z, FEATURES, SLICED, FEATURES, false, &exponents, 22_usize, DIGITS, true, 20_usize,
        &planes, SLICED, 0_usize, &flags, &found, NULL
    ];
    let slice = gpu.launch("exact_slice_f32", grid, [256, 1], args);
    let ratio = |found: u64, least: usize| found as f64 / least as f64;
    let load = ratio(slice.load_sectors, SLICED * FEATURES * 4 / 32);
    let store = ratio(slice.store_sectors, SLICED * FEATURES * PLANES / 32);
    println!("virtual: exact_slice_f32: loads {load:.3}, stores {store:.3} of the least");
    assert!(load < 1.05 && store < 1.05, "{load:.3}, {store:.3}");
    // A value takes integer arithmetic only.
    let values = (SLICED * FEATURES / 32) as u64;
    assert!(slice.f64 + slice.conversions_f64 < values / 4, "{slice:?}");
    let slices = (grid[0] * grid[1] * ROWS / SLICED, 256);
    let slice = times(slice, ROWS / SLICED);

    let bytes: Vec<u8> = (0..PLANES * FEATURES * ROWS)
        .map(|n| (n % 251) as u8)
        .collect();
    let planes = gpu.upload_bytes(&bytes);
    let weights = gpu.upload_wide(&[1, 0].repeat(PLANES));
    let entries = FEATURES * (FEATURES + 1) / 2;
    let sums = gpu.upload_wide(&vec![0; 2 * entries]);
    let args = args![&planes, ROWS, ROWS, FEATURES, &weights, &sums];
    // Two tile rows of two and four tiles.
    let tiles = 6;
    for device in Description::all() {
        let (stages, processors) = (ROWS / EXACT.depth, device.multiprocessors as usize);
        let cost = |splits: &usize| {
            (tiles * PLANES * splits).div_ceil(processors) * (stages.div_ceil(*splits) + 16)
        };
        let splits = (1..=stages / 16).min_by_key(cost).expect("one at least");
        let grid = [tiles, PLANES, splits];
        let product = gpu.launch("exact_syrk_s8_mma", grid, [256, 1], args);
        let blocks = tiles * PLANES * splits;
        let product = modelled(device, "exact_syrk_s8_mma", (blocks, 256), &product);
        let slice = modelled(device, "exact_slice_f32", slices, &slice);
        let rate = |us: f64| (FEATURES * (FEATURES + 1) * ROWS) as f64 / us * 1e-6;
        println!(
            "virtual {}: exact Gram of {ROWS}x{FEATURES} at {PLANES} planes: modelled {:.0} us by {splits} thread blocks a \
             tile, bound by {:?}, and {:.0} us to slice, bound by {:?}: worth {:.1} TFLOP/s in f64, {:.1} without slicing",
            device.name,
            product.microseconds,
            product.bound,
            slice.microseconds,
            slice.bound,
            rate(product.microseconds + slice.microseconds),
            rate(product.microseconds)
        );
        let sm = &device.per_multiprocessor;
        let fma = 2.0 * sm.f64 * f64::from(device.multiprocessors) * device.clock_ghz * 1e-3;
        let (worth, least) = (
            rate(product.microseconds),
            if fma < 2.0 { 8.0 } else { 1.0 },
        );
        assert!(
            worth > least * fma,
            "{}: {worth:.1} of {fma:.1}: {product:?}",
            device.key
        );
    }
}
