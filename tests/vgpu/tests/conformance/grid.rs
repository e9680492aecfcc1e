//! `programs/grid.cu`.

use crate::{Test, common::device::Gpu, inputs};

pub(crate) const TESTS: &[Test] = &[
    ("special_registers", 75, special_registers),
    ("printing", 75, printing),
    ("grid_barrier", 75, grid_barrier),
    ("cooperative_tiles", 75, cooperative_tiles),
];

fn special_registers(gpu: &Gpu) {
    let (blocks, threads, dynamic) = (3, 80, 256);
    let out = gpu.uninitialised::<[u64; 4]>(blocks * threads);
    gpu.kernel("special_registers", blocks as u32, threads as u32)
        .shared(dynamic)
        .buffer(&out)
        .run();
    for (i, got) in gpu.read(&out).into_iter().enumerate() {
        let (block, thread) = (i / threads, i % threads);
        let place = thread | threads << 10 | block << 20 | blocks << 30;
        assert_eq!(got[..3], [place as u64, 7, 7], "thread {i}");
        assert_eq!(got[3] >> 32, u64::from(dynamic));
        assert!(got[3] & 0xffff_ffff >= u64::from(dynamic));
    }
}

fn printing(gpu: &Gpu) {
    let outcome = gpu.kernel("printing", 2, 32).value(42).run();
    // Blocks print in any order, each line whole.
    let mut lines: Vec<&str> = outcome.printed.lines().collect();
    lines.sort_unstable();
    let line = |block| {
        format!("block {block} of 2: text 31.50|42    |00002a|x|-5000000000|1.234568e+04|%")
    };
    assert_eq!(lines, [line(0), line(1), "plain".to_owned()]);
}

fn grid_barrier(gpu: &Gpu) {
    let (blocks, threads, rounds) = (6, 64, 3);
    let n = blocks * threads;
    let (a, b) = (gpu.uninitialised::<u32>(n), gpu.uninitialised::<u32>(n));
    gpu.kernel("grid_barrier", blocks as u32, threads as u32)
        .cooperative()
        .buffer(&a)
        .buffer(&b)
        .value(rounds)
        .run();
    let mut want: Vec<u32> = (0..n as u32).collect();
    for _ in 0..rounds {
        let shifted: Vec<u32> = (0..n).map(|i| want[(i + threads) % n] + 1).collect();
        want = shifted.into_iter().rev().collect();
    }
    assert_eq!(gpu.read(&a), want);
}

fn cooperative_tiles(gpu: &Gpu) {
    let data = inputs::below(1000, 64, 40);
    let (given, out) = (gpu.upload(&data), gpu.uninitialised::<u32>(64));
    gpu.kernel("cooperative_tiles", 1, 64)
        .buffer(&given)
        .buffer(&out)
        .run();
    let want: Vec<u32> = (0..64)
        .map(|i| {
            let sum: u32 = data[i / 8 * 8..i / 8 * 8 + 8].iter().sum();
            let odd = if i % 2 == 1 {
                (i % 32 / 2) as u32 * 1_000_000 + 16 * 100_000_000
            } else {
                0
            };
            sum + odd + 32
        })
        .collect();
    assert_eq!(gpu.read(&out), want);
}
