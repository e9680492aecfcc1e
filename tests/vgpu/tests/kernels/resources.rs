//! What the kernels take: registers, shared memory, traffic.

use std::collections::BTreeSet;
use std::fs;

use crate::args;
use crate::device::{Dtype, Gpu, MODULES, kernels, ptx, toolkit};
use crate::reference::Table;
use crate::toolkit::{PTX_ARCHS, parse_report, ptx_arch_for};

#[test]
fn nothing_spills_on_any_device() {
    let Some(toolkit) = toolkit() else { return };
    let out = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels/spill-check.cubin");
    // The oldest and the newest of each kind; the build script's table has all of them.
    for arch in [75, 80, 90, 120] {
        for module in MODULES {
            let Some(ptx) = ptx(module, ptx_arch_for(arch)) else {
                return;
            };
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

/// Every symbol of the README is exported, and every export is in the README.
#[test]
fn exports_are_documented() {
    let text = fs::read_to_string(kernels().join("README.md")).expect("the README");
    let mut documented = BTreeSet::new();
    for name in text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| MODULES.iter().any(|m| name.starts_with(m)))
    {
        for z in ["f32", "f64", "f16", "bf16"] {
            for y in ["class", "f32", "f64"] {
                documented.insert(name.replace("<y>", y).replace("<z>", z).replace("<x>", y));
            }
        }
    }
    for module in MODULES {
        for arch in PTX_ARCHS {
            let Some(file) = ptx(module, arch) else {
                return;
            };
            let text = fs::read_to_string(file).expect("PTX is text");
            let entries = text.lines().filter_map(|line| line.split_once(".entry "));
            for (_, rest) in entries {
                let name = rest.trim_end_matches('(').trim();
                assert!(
                    documented.contains(name),
                    "{name} is not in kernels/README.md"
                );
            }
        }
    }
}

/// Global traffic and bank conflicts of the Gram at D = 512, in row blocks of 512 rows.
fn check_traffic(technique: &str, dtype: Dtype, rows: usize) {
    let Some(gpu) = Gpu::new(&["gram"]) else {
        return;
    };
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
    println!(
        "virtual: {name} {rows}x{features}: loads {load:.3}, stores {store:.3} of the least; {counters:?}"
    );
    assert_eq!(counters.bank_conflicts, 0, "{name}");
    assert!(
        load <= 1.15 && store <= 1.15,
        "{name}: {load:.3} and {store:.3} of the least sectors"
    );
}

#[test]
fn gram_on_tensor_cores_moves_no_more_than_it_must() {
    check_traffic("dmma", Dtype::F32, 4096);
}

#[test]
fn gram_of_halves_moves_no_more_than_it_must() {
    check_traffic("mma", Dtype::Bf16, 4096);
}

#[test]
fn gram_by_fma_moves_no_more_than_it_must() {
    check_traffic("fma", Dtype::F32, 1024);
}
