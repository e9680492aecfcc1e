//! `programs/warp.cu`.

use crate::{Test, common::device::Gpu, inputs};

pub(crate) const TESTS: &[Test] = &[
    ("shuffles", 75, shuffles),
    ("wide_shuffles", 75, wide_shuffles),
    ("shuffle_predicates", 75, shuffle_predicates),
    ("votes", 75, votes),
    ("matches", 75, matches),
    ("active_masks", 75, active_masks),
    ("lane_registers", 75, lane_registers),
    ("warp_barrier", 75, warp_barrier),
    ("block_scan", 75, block_scan),
    ("reductions", 80, reductions),
    ("elected", 90, elected),
];

/// Runs a kernel of one warp on random words; gives them and the results.
fn one_warp<const N: usize>(gpu: &Gpu, kernel: &str, limit: u32) -> (Vec<u32>, Vec<[u32; N]>) {
    let data = inputs::below(limit, 32, 16);
    let (given, out) = (gpu.upload(&data), gpu.uninitialised::<[u32; N]>(32));
    gpu.kernel(kernel, 1, 32).buffer(&given).buffer(&out).run();
    (data, gpu.read(&out))
}

fn mask(holds: impl Fn(usize) -> bool) -> u32 {
    (0..32).map(|lane| u32::from(holds(lane)) << lane).sum()
}

fn shuffles(gpu: &Gpu) {
    let (data, got) = one_warp(gpu, "shuffles", 1000);
    // The lane at a distance if it is within the same segment, else the own one.
    let within = |i: usize, other: isize, width: usize| {
        let first = (i / width * width) as isize;
        if (first..first + width as isize).contains(&other) {
            other as usize
        } else {
            i
        }
    };
    for i in 0..32 {
        let at = i as isize;
        let from = [
            5,
            data[i] as usize % 32,
            within(i, at - 3, 32),
            within(i, at + 3, 32),
            i ^ 9,
            within(i, at - 2, 8),
            within(i, at + 2, 16),
            // A xor that leaves the segment upwards keeps the own value, downwards it reaches.
            if (i ^ 12) / 8 > i / 8 { i } else { i ^ 12 },
        ];
        assert_eq!(got[i], from.map(|lane| data[lane]), "lane {i}");
    }
}

fn wide_shuffles(gpu: &Gpu) {
    let data: Vec<f64> = (0..32).map(|i| f64::from(i * i) + 0.5).collect();
    let (given, out) = (gpu.upload(&data), gpu.uninitialised::<f64>(32));
    gpu.kernel("wide_shuffles", 1, 32)
        .buffer(&given)
        .buffer(&out)
        .run();
    let want = data.iter().sum::<f64>() + (31i64 << 40) as f64;
    assert_eq!(gpu.read(&out), [want; 32]);
}

fn shuffle_predicates(gpu: &Gpu) {
    let (data, got) = one_warp(gpu, "shuffle_predicates", 1000);
    for i in 0..32 {
        assert_eq!(
            got[i],
            if i < 4 {
                [data[i], 0]
            } else {
                [data[i - 4], 1]
            },
            "lane {i}"
        );
    }
}

fn votes(gpu: &Gpu) {
    let (data, got) = one_warp(gpu, "votes", 1000);
    let any = data.iter().any(|v| v % 7 == 0);
    for i in 0..32 {
        let odd = mask(|lane| data[lane] % 2 == 1 && data[lane] % 4 == 1);
        let half = mask(|lane| lane / 16 == i / 16 && data[lane] % 3 == 0);
        let want = [
            u32::from(any) | 1 << 2 | 1 << 3,
            mask(|lane| data[lane] % 3 == 1),
            if data[i] % 2 == 1 { odd } else { 0 },
            half,
        ];
        assert_eq!(got[i], want, "lane {i}");
    }
}

fn matches(gpu: &Gpu) {
    let (data, got) = one_warp(gpu, "matches", 1000);
    for i in 0..32 {
        let same = |f: fn(u32) -> u32| mask(|lane| f(data[lane]) == f(data[i]));
        let all = u32::MAX.wrapping_add(1);
        assert_eq!(
            got[i],
            [same(|v| v % 5), same(|v| v % 3), all, 0],
            "lane {i}"
        );
    }
}

fn active_masks(gpu: &Gpu) {
    let out = gpu.uninitialised::<u32>(32);
    gpu.kernel("active_masks", 1, 32).buffer(&out).run();
    let want: Vec<u32> = (0..32)
        .map(|i| {
            let m = match i % 3 {
                0 => mask(|lane| lane % 3 == 0),
                1 if i > 12 => mask(|lane| lane % 3 == 1 && lane > 12) | 1,
                1 => 0,
                _ => 2,
            };
            m + 32
        })
        .collect();
    assert_eq!(gpu.read(&out), want);
}

fn lane_registers(gpu: &Gpu) {
    let out = gpu.uninitialised::<[u32; 7]>(64);
    gpu.kernel("lane_registers", 1, 64).buffer(&out).run();
    for (i, got) in gpu.read(&out).into_iter().enumerate() {
        let own = i % 32;
        let want = [
            own as u32,
            mask(|lane| lane < own),
            mask(|lane| lane <= own),
            mask(|lane| lane > own),
            mask(|lane| lane >= own),
            1 << own,
            32,
        ];
        assert_eq!(got, want, "thread {i}");
    }
}

fn warp_barrier(gpu: &Gpu) {
    let (data, got) = one_warp(gpu, "warp_barrier", 1000);
    let want: Vec<_> = (0..32).map(|i| [data[(32 - i) % 32] * 2]).collect();
    assert_eq!(got, want);
}

fn block_scan(gpu: &Gpu) {
    let n = 150;
    let data = inputs::below(1000, n, 17);
    let (given, out) = (gpu.upload(&data), gpu.uninitialised::<u32>(n));
    gpu.kernel("block_scan", 1, 160)
        .buffer(&given)
        .buffer(&out)
        .value(n as i32)
        .run();
    let want: Vec<u32> = data
        .iter()
        .scan(0, |sum, v| {
            *sum += v;
            Some(*sum)
        })
        .collect();
    assert_eq!(gpu.read(&out), want);
}

fn reductions(gpu: &Gpu) {
    let (data, got) = one_warp(gpu, "reductions", 1000);
    let low = *data.iter().min().expect("32 of them");
    let high = *data.iter().max().expect("32 of them");
    for i in 0..32 {
        let want = [
            data.iter().sum(),
            low,
            high,
            (low as i32 - 500) as u32,
            -(low as i32) as u32,
            data.iter().fold(u32::MAX, |all, v| all & (v | 1)),
            data.iter().fold(0, |any, v| any | v),
            data.iter()
                .skip(i % 2)
                .step_by(2)
                .fold(0, |parity, v| parity ^ v),
        ];
        assert_eq!(got[i], want, "lane {i}");
    }
}

fn elected(gpu: &Gpu) {
    let out = gpu.uninitialised::<u32>(64);
    gpu.kernel("elected", 1, 64).buffer(&out).run();
    for warp in gpu.read(&out).chunks(32) {
        assert_eq!(warp.iter().filter(|&&v| v & 1 == 1).count(), 1);
        assert!(warp.iter().all(|v| v & 2 == 2));
    }
}
