//! What the kernels take: registers, shared memory, traffic.

use std::collections::BTreeSet;
use std::fs;

use crate::device::{Dtype, Gpu, MODULES, kernels, ptx, toolkit};
use crate::reference::Table;
use crate::toolkit::{PTX_ARCHS, parse_report, ptx_arch_for};
use crate::{Test, args};

/// The tests, for `main.rs`.
pub(crate) const TESTS: &[Test] = &[
    ("nothing_spills_on_any_device", nothing_spills_on_any_device),
    (
        "exports_are_those_of_the_readme",
        exports_are_those_of_the_readme,
    ),
    (
        "gram_on_tensor_cores_moves_no_more_than_it_must",
        gram_on_tensor_cores_moves_no_more_than_it_must,
    ),
    (
        "gram_of_halves_moves_no_more_than_it_must",
        gram_of_halves_moves_no_more_than_it_must,
    ),
    (
        "gram_by_fma_moves_no_more_than_it_must",
        gram_by_fma_moves_no_more_than_it_must,
    ),
];

fn nothing_spills_on_any_device() {
    let toolkit = toolkit();
    let out = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels/spill-check.cubin");
    // The oldest and the newest of each kind; the build script's table has all of them.
    for arch in [75, 80, 90, 120] {
        for module in MODULES {
            let ptx = ptx(module, ptx_arch_for(arch));
            let report = toolkit.cubin(&ptx, arch, &out).expect("the PTX assembles");
            let resources = parse_report(&report, arch);
            assert!(!resources.is_empty(), "{module}: no report");
            for kernel in resources {
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
        for (x, y) in [("f32", "f32"), ("f64", "f64"), ("f32", "class")] {
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

/// Global traffic of the Gram at D = 512, in row blocks of 512 rows: within 1.15 of what its tiles need.
/// Returns the modelled FLOP/s of the entries asked for, on an A100 and an H100.
fn check_traffic(technique: &str, dtype: Dtype, rows: usize) -> [f64; 2] {
    let gpu = Gpu::new(&["gram"]);
    let (features, bytes) = (512, if dtype == Dtype::F32 { 4 } else { 2 });
    let z = gpu.upload(&Table::random(rows, features, dtype, 1), dtype, features);
    let blocks = rows / 512;
    let partials = gpu.empty(blocks * features * features * 8);
    let gram = gpu.empty(features * features * 8);
    let (tile, threads) = if technique == "mma" {
        (128, 256)
    } else {
        (64, 128)
    };
    let tiles = features / tile;
    let grid = [tiles * (tiles + 1) / 2, blocks, 1];
    let name = format!("gram_syrk_{}_{technique}", dtype.name());
    let args = args![
        &z, features, rows, features, false, 1.0, &gram, features, &partials
    ];
    let counters = gpu.launch(&name, grid, [threads, 1], args);
    // Off the diagonal two panels a tile, on it one; every entry of the lower triangle is written once a row block.
    let panels = tiles * (tiles + 1) - tiles;
    let loads = panels * rows * tile * bytes / 32;
    let stores = blocks * features * (features + 1) / 2 * 8 / 32;
    let ratio = |found: u64, least: usize| found as f64 / least as f64;
    let (load, store) = (
        ratio(counters.load_sectors, loads),
        ratio(counters.store_sectors, stores),
    );
    assert!(
        load <= 1.15 && store <= 1.15,
        "{name}: {load:.3} and {store:.3} of the least sectors"
    );
    let asked = (features * (features + 1) * rows) as f64;
    let rates = ["a100", "h100"].map(|device| {
        let microseconds = gpu.modelled(device, &name, (grid[0] * blocks, threads), &counters);
        asked / microseconds * 1e-6
    });
    println!(
        "virtual: {name} {rows}x{features}: loads {load:.3}, stores {store:.3} of the least; modelled \
         {:.1} TFLOP/s on an A100, {:.1} on an H100",
        rates[0], rates[1]
    );
    rates
}

fn gram_on_tensor_cores_moves_no_more_than_it_must() {
    let [a100, _] = check_traffic("dmma", Dtype::F32, 4096);
    // 19.5 TFLOP/s is what its f64 tensor cores do at most.
    assert!(a100 >= 0.7 * 19.5, "{a100:.1} TFLOP/s modelled");
}

fn gram_of_halves_moves_no_more_than_it_must() {
    check_traffic("mma", Dtype::Bf16, 4096);
}

fn gram_by_fma_moves_no_more_than_it_must() {
    check_traffic("fma", Dtype::F32, 1024);
}
