//! `programs/atomic.cu`.

use half::{bf16, f16};

use crate::{Test, common::device::Gpu, inputs};

pub(crate) const TESTS: &[Test] = &[
    ("atomics_u32", 75, atomics_u32),
    ("atomics_u64", 75, atomics_u64),
    ("atomics_float", 75, atomics_float),
    ("atomics_half", 75, atomics_half),
    ("atomics_bfloat", 90, atomics_bfloat),
    ("tickets", 75, tickets),
    ("compare_and_swap", 75, compare_and_swap),
    ("histogram", 75, histogram),
    ("last_block", 75, last_block),
    ("scoped", 75, scoped),
];

const BLOCKS: u32 = 4;
const THREADS: u32 = 96;
const ALL: usize = (BLOCKS * THREADS) as usize;

fn atomics_u32(gpu: &Gpu) {
    let data = inputs::below(1 << 20, ALL, 18);
    let start = [5, 7, u32::MAX, 0, u32::MAX, 0, 1, 990, 3, 0, 0x8000_0000, 9];
    let (to, given) = (gpu.upload(&start), gpu.upload(&data));
    gpu.kernel("atomics_u32", BLOCKS, THREADS)
        .buffer(&to)
        .buffer(&given)
        .run();
    let mut want = start;
    for &v in &data {
        want[0] = want[0].wrapping_add(v);
        want[1] = want[1].wrapping_sub(v);
        want[2] = want[2].min(v);
        want[3] = want[3].max(v);
        want[4] &= v | 0xf0;
        want[5] |= v;
        want[6] ^= v;
        want[7] = if want[7] >= 1000 { 0 } else { want[7] + 1 };
        want[8] = if want[8] == 0 || want[8] > 50 {
            50
        } else {
            want[8] - 1
        };
        want[9] = (want[9] as i32).min(v as i32 - 5000) as u32;
        want[10] = (want[10] as i32).max(-(v as i32)) as u32;
        want[11] = want[11].wrapping_sub(v);
    }
    assert_eq!(gpu.read(&to), want);
}

fn atomics_u64(gpu: &Gpu) {
    let data = inputs::below(1 << 20, ALL, 19);
    let start = [5, u64::MAX, 0, u64::MAX, 0, 1, 0, i64::MIN as u64];
    let (to, given) = (gpu.upload(&start), gpu.upload(&data));
    gpu.kernel("atomics_u64", BLOCKS, THREADS)
        .buffer(&to)
        .buffer(&given)
        .run();
    let mut want = start;
    for (i, &v) in data.iter().enumerate() {
        let v = u64::from(v) << 20 | i as u64;
        want[0] = want[0].wrapping_add(v);
        want[1] = want[1].min(v);
        want[2] = want[2].max(v);
        want[3] &= v | 0xff00;
        want[4] |= v;
        want[5] ^= v;
        want[6] = (want[6] as i64).min(-(v as i64)) as u64;
        want[7] = (want[7] as i64).max(-(v as i64)) as u64;
    }
    assert_eq!(gpu.read(&to), want);
}

fn atomics_float(gpu: &Gpu) {
    let data = inputs::below(1 << 10, ALL, 20);
    let (f, d, given) = (
        gpu.upload(&[0f32; 5]),
        gpu.upload(&[0f64; 5]),
        gpu.upload(&data),
    );
    gpu.kernel("atomics_float", BLOCKS, THREADS)
        .buffer(&f)
        .buffer(&d)
        .buffer(&given)
        .run();
    let (halves, quarters) = (
        data.iter().map(|v| v % 16).sum::<u32>(),
        data.iter().sum::<u32>(),
    );
    let shared = (1.0 + THREADS as f32 * 0.5, 2.0 + f64::from(THREADS) * 0.25);
    assert_eq!(
        gpu.read(&f),
        [halves as f32 * 0.5, shared.0, shared.0, shared.0, shared.0]
    );
    assert_eq!(
        gpu.read(&d),
        [
            f64::from(quarters) * 0.25,
            shared.1,
            shared.1,
            shared.1,
            shared.1
        ]
    );
}

fn atomics_half(gpu: &Gpu) {
    let (one, pair) = (gpu.upload(&[0u16; 2]), gpu.upload(&[0u16; 2]));
    gpu.kernel("atomics_half", BLOCKS, THREADS)
        .buffer(&one)
        .buffer(&pair)
        .run();
    let value = |bits: u16| f16::from_bits(bits).to_f32();
    assert_eq!(value(gpu.read(&one)[0]), ALL as f32 * 0.25);
    assert_eq!(
        gpu.read(&pair).into_iter().map(value).collect::<Vec<_>>(),
        [ALL as f32 * 0.5, ALL as f32]
    );
}

fn atomics_bfloat(gpu: &Gpu) {
    let (one, pair) = (gpu.upload(&[0u16; 2]), gpu.upload(&[0u16; 2]));
    gpu.kernel("atomics_bfloat", 2, 64)
        .buffer(&one)
        .buffer(&pair)
        .run();
    let value = |bits: u16| bf16::from_bits(bits).to_f32();
    assert_eq!(value(gpu.read(&one)[0]), 64.0);
    assert_eq!(
        gpu.read(&pair).into_iter().map(value).collect::<Vec<_>>(),
        [128.0, 64.0]
    );
}

fn tickets(gpu: &Gpu) {
    let (counter, owner) = (gpu.upload(&[0u32]), gpu.uninitialised::<u32>(ALL));
    let chain = gpu.upload(&vec![0u64; ALL + 1]);
    gpu.kernel("tickets", BLOCKS, THREADS)
        .buffer(&counter)
        .buffer(&owner)
        .buffer(&chain)
        .run();
    let everyone: Vec<u32> = (1..=ALL as u32).collect();
    let mut owners = gpu.read(&owner);
    owners.sort_unstable();
    assert_eq!(owners, everyone);
    // What was handed on, and what is left at the end: everyone once and the zero of the start.
    let mut values = gpu.read(&chain);
    values.sort_unstable();
    assert_eq!(values, (0..=ALL as u64).collect::<Vec<_>>());
}

fn compare_and_swap(gpu: &Gpu) {
    let (wide, word, small) = (
        gpu.upload(&[0f64]),
        gpu.upload(&[u32::MAX]),
        gpu.upload(&[7u16, 9]),
    );
    gpu.kernel("compare_and_swap", BLOCKS, THREADS)
        .buffer(&wide)
        .buffer(&word)
        .buffer(&small)
        .run();
    assert_eq!(gpu.read(&wide), [ALL as f64 * 0.5]);
    assert_eq!(gpu.read(&word), [u32::MAX]);
    assert_eq!(gpu.read(&small), [7 + 3 * ALL as u16, 9]);
}

fn histogram(gpu: &Gpu) {
    let data = inputs::below(1 << 16, 1000, 21);
    let (given, bins) = (gpu.upload(&data), gpu.upload(&[0u32; 16]));
    gpu.kernel("histogram", BLOCKS, THREADS)
        .buffer(&given)
        .buffer(&bins)
        .value(1000)
        .run();
    let mut want = [0; 16];
    for v in &data {
        want[*v as usize % 16] += 1;
    }
    assert_eq!(gpu.read(&bins), want);
}

fn last_block(gpu: &Gpu) {
    let data = inputs::below(1000, ALL, 22);
    let (given, partial) = (gpu.upload(&data), gpu.uninitialised::<u32>(BLOCKS as usize));
    let (done, result) = (gpu.upload(&[0u32]), gpu.uninitialised::<u32>(1));
    gpu.kernel("last_block", BLOCKS, THREADS)
        .buffer(&given)
        .buffer(&partial)
        .buffer(&done)
        .buffer(&result)
        .run();
    assert_eq!(gpu.read(&result), [data.iter().sum::<u32>()]);
    assert_eq!(gpu.read(&done), [0]);
}

fn scoped(gpu: &Gpu) {
    let to = gpu.upload(&[0u32; 35]);
    gpu.kernel("scoped", 1, 32).buffer(&to).run();
    let want: Vec<u32> = [64, 96, 4].into_iter().chain(0..32).collect();
    assert_eq!(gpu.read(&to), want);
}
