//! `programs/memory.cu`.

use bytemuck::{Pod, Zeroable};

use crate::{Test, common::device::Gpu, inputs};

pub(crate) const TESTS: &[Test] = &[
    ("vectors_u8x2", 75, |gpu| {
        vectors(
            gpu,
            "vectors_u8x2",
            |i, j| (i * 2 + j) as u8,
            2,
            |x, j| x.wrapping_add(j as u8 + 1),
        )
    }),
    ("vectors_u8x4", 75, |gpu| {
        vectors(
            gpu,
            "vectors_u8x4",
            |i, j| (i * 7 + j) as u8,
            4,
            |x, j| x.wrapping_add(j as u8 + 1),
        )
    }),
    ("vectors_u16x2", 75, |gpu| {
        vectors(
            gpu,
            "vectors_u16x2",
            |i, j| (i * 333 + j) as u16,
            2,
            |x, j| x.wrapping_add(j as u16 + 1),
        )
    }),
    ("vectors_u16x4", 75, |gpu| {
        vectors(
            gpu,
            "vectors_u16x4",
            |i, j| (i * 777 + j) as u16,
            4,
            |x, j| x.wrapping_add(j as u16 + 1),
        )
    }),
    ("vectors_u32x2", 75, |gpu| {
        vectors(
            gpu,
            "vectors_u32x2",
            |i, j| (i << 20 | j) as u32,
            2,
            |x, j| x + j as u32 + 1,
        )
    }),
    ("vectors_u32x4", 75, |gpu| {
        vectors(
            gpu,
            "vectors_u32x4",
            |i, j| (i << 20 | j) as u32,
            4,
            |x, j| x + j as u32 + 1,
        )
    }),
    ("vectors_f32x4", 75, |gpu| {
        vectors(
            gpu,
            "vectors_f32x4",
            |i, j| (i * 8 + j) as f32,
            4,
            |x, j| x + j as f32 + 1.0,
        )
    }),
    ("vectors_u64x2", 75, |gpu| {
        vectors(
            gpu,
            "vectors_u64x2",
            |i, j| (i << 40 | j) as u64,
            2,
            |x, j| x + j as u64 + 1,
        )
    }),
    ("vectors_f64x2", 75, |gpu| {
        vectors(
            gpu,
            "vectors_f64x2",
            |i, j| (i * 8 + j) as f64,
            2,
            |x, j| x + j as f64 + 1.0,
        )
    }),
    ("constants", 75, constants),
    ("globals", 75, globals),
    ("locals", 75, locals),
    ("shared_static", 75, shared_static),
    ("shared_dynamic", 75, shared_dynamic),
    ("generic", 75, generic),
    ("by_value", 75, by_value),
    ("cached", 75, cached),
    ("coordinates", 75, coordinates),
    ("pipelined", 80, pipelined),
    ("copied_in_part", 80, copied_in_part),
];

/// 100 vectors of `width` components, reversed, with 1, 2, … added to the components.
fn vectors<T: Pod + PartialEq + std::fmt::Debug>(
    gpu: &Gpu,
    kernel: &str,
    value: impl Fn(usize, usize) -> T,
    width: usize,
    change: impl Fn(T, usize) -> T,
) {
    let n = 100;
    let data: Vec<T> = (0..n * width)
        .map(|e| value(e / width, e % width))
        .collect();
    let (given, out) = (gpu.upload(&data), gpu.uninitialised::<T>(n * width));
    gpu.kernel(kernel, 2, 64)
        .buffer(&given)
        .buffer(&out)
        .value(n as i32)
        .run();
    let want: Vec<T> = (0..n * width)
        .map(|e| change(data[(n - 1 - e / width) * width + e % width], e % width))
        .collect();
    assert_eq!(gpu.read(&out), want);
}

fn constants(gpu: &Gpu) {
    let out = gpu.uninitialised::<u64>(48);
    gpu.kernel("constants", 1, 48).buffer(&out).run();
    let (table, bytes) = ([1u64, 2, 3, 5, 7, 11, 13, 17], [9u64, 8, 7, 6, 5, 4]);
    let want: Vec<_> = (0..48)
        .map(|i| table[i % 8] * 3 + 1 + bytes[i % 6])
        .collect();
    assert_eq!(gpu.read(&out), want);
}

/// Module variables keep what a launch leaves in them.
fn globals(gpu: &Gpu) {
    for round in 1..=2u64 {
        let out = gpu.uninitialised::<u64>(8);
        gpu.kernel("globals", 1, 32).buffer(&out).run();
        let counter = |i: u64| 10 * (i + 1) + round;
        let text = |word: &str| {
            word.bytes()
                .fold(0, |sum, byte| sum * 256 + u64::from(byte))
        };
        let mut want: Vec<_> = (0..4).map(|i| counter(i) + counter(3 - i) * 1000).collect();
        want.extend([counter(2), text("zero"), text("one"), text("two")]);
        assert_eq!(gpu.read(&out), want, "launch {round}");
    }
}

fn locals(gpu: &Gpu) {
    let data = inputs::below(1000, 64, 6);
    let n = data.len();
    let (given, out) = (gpu.upload(&data), gpu.uninitialised::<u32>(n));
    gpu.kernel("locals", 1, n as u32)
        .buffer(&given)
        .buffer(&out)
        .value(n as i32)
        .run();
    let want: Vec<u32> = (0..n)
        .map(|i| {
            let mut stack: Vec<u32> = (0..40).map(|k| data[(i + k) % n]).collect();
            let small: Vec<u8> = (0..13).map(|k| (i * k) as u8).collect();
            for k in 0..40 {
                stack.swap(k, data[k] as usize % 40);
            }
            (0..40).fold(0u32, |sum, k| {
                let picked = stack[data[(k * 7 + i) % n] as usize % 40];
                sum.wrapping_mul(31)
                    .wrapping_add(picked)
                    .wrapping_add(small[data[k] as usize % 13].into())
            })
        })
        .collect();
    assert_eq!(gpu.read(&out), want);
}

fn shared_static(gpu: &Gpu) {
    let data = inputs::below(1 << 20, 1024, 7);
    let (given, out) = (gpu.upload(&data), gpu.uninitialised::<u32>(1024));
    gpu.kernel("shared_static", 1, (32, 32))
        .buffer(&given)
        .buffer(&out)
        .run();
    let want: Vec<u32> = (0..1024)
        .map(|e| {
            let (y, x) = (e / 32, e % 32);
            data[x * 32 + y] + ((x + y) % 32 * 3) as u32 + ((x % 4) as f64 * 1.5) as u32
        })
        .collect();
    assert_eq!(gpu.read(&out), want);
}

fn shared_dynamic(gpu: &Gpu) {
    let data: Vec<f32> = (0..128).map(|i| i as f32 * 0.5).collect();
    let (given, out) = (gpu.upload(&data), gpu.uninitialised::<f32>(128));
    gpu.kernel("shared_dynamic", 1, 128)
        .shared(128 * 8)
        .buffer(&given)
        .buffer(&out)
        .value(128)
        .run();
    let want: Vec<f32> = data.iter().rev().map(|x| x * 2.0).collect();
    assert_eq!(gpu.read(&out), want);
}

fn generic(gpu: &Gpu) {
    let data = inputs::below(1000, 64, 8);
    let (given, out) = (gpu.upload(&data), gpu.uninitialised::<u32>(64));
    gpu.kernel("generic", 1, 64)
        .buffer(&given)
        .buffer(&out)
        .run();
    let want: Vec<u32> = (0..64)
        .map(|i| {
            let (value, space) = match i % 3 {
                0 => (data[i], 4),
                1 => (data[63 - i] + 1000, 1),
                _ => (data[i] * 10 + (data[i] & 3), 2),
            };
            if i % 2 == 0 {
                value + (space << 20)
            } else {
                value
            }
        })
        .collect();
    assert_eq!(gpu.read(&out), want);
}

/// `struct Packet` of the program, padding spelt out.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Packet {
    tag: u8,
    pad: [u8; 3],
    id: u32,
    weight: f64,
    marks: [u16; 3],
    more: [u8; 2],
    place: u64,
}

fn by_value(gpu: &Gpu) {
    let (floats, out) = (gpu.uninitialised::<f32>(32), gpu.uninitialised::<u64>(5));
    let packet = |tag, id, weight, marks| Packet {
        tag,
        pad: [0; 3],
        id,
        weight,
        marks,
        more: [0; 2],
        place: floats.address,
    };
    let (p, q) = (
        packet(3, 7, 1.5, [1, 2, 9]),
        packet(200, 0xdead_beef, 0.0, [100, 200, 300]),
    );
    gpu.kernel("by_value", 1, 32)
        .value(p)
        .value(7u8)
        .value(-5i64)
        .value(q)
        .buffer(&out)
        .run();
    let want: Vec<f32> = (0..32).map(|i| 10.5 + f32::from(q.marks[i % 3])).collect();
    assert_eq!(gpu.read(&floats), want);
    assert_eq!(gpu.read(&out), [203, -5i64 as u64, 7, 0xdead_beef, 9]);
}

fn cached(gpu: &Gpu) {
    let data = inputs::below(1000, 33, 9);
    let (given, out) = (gpu.upload(&data), gpu.uninitialised::<u32>(32));
    gpu.kernel("cached", 1, 32)
        .buffer(&given)
        .buffer(&out)
        .run();
    let want: Vec<u32> = (0..32).map(|i| data[i] * 29 + 2 * data[i + 1]).collect();
    assert_eq!(gpu.read(&out), want);
}

fn coordinates(gpu: &Gpu) {
    let (grid, block) = ((3, 2, 4), (5, 4, 3));
    let out = gpu.uninitialised::<u32>(3 * 2 * 4 * 5 * 4 * 3);
    gpu.kernel("coordinates", grid, block).buffer(&out).run();
    let mut want = Vec::new();
    for b in 0..24 {
        for t in 0..60 {
            let (bx, by, bz) = (b % 3, b / 3 % 2, b / 6);
            let (tx, ty, tz) = (t % 5, t / 5 % 4, t / 20);
            want.push(bx | by << 4 | bz << 8 | tx << 12 | ty << 16 | tz << 20);
        }
    }
    assert_eq!(gpu.read(&out), want);
}

fn pipelined(gpu: &Gpu) {
    let tiles = 5;
    let data: Vec<f32> = (0..tiles * 64).map(|i| (i % 37) as f32).collect();
    let (given, out) = (gpu.upload(&data), gpu.uninitialised::<f32>(64));
    gpu.kernel("pipelined", 1, 64)
        .buffer(&given)
        .buffer(&out)
        .value(tiles as i32)
        .run();
    // Small integers: the sum is exact in any order.
    let want: Vec<f32> = (0..64)
        .map(|i| {
            (0..tiles * 64)
                .map(|e| data[e / 64 * 64 + (i + e % 64) % 64] * (e % 64 + 1) as f32)
                .sum()
        })
        .collect();
    assert_eq!(gpu.read(&out), want);
}

fn copied_in_part(gpu: &Gpu) {
    let words = 50;
    let data: Vec<u32> = (1..=words).collect();
    let (given, out) = (gpu.upload(&data), gpu.uninitialised::<u32>(128));
    gpu.kernel("copied_in_part", 1, 32)
        .buffer(&given)
        .buffer(&out)
        .value(words as i32)
        .run();
    let want: Vec<u32> = (0..128)
        .rev()
        .map(|i| if i < words { i + 1 } else { 0 })
        .collect();
    assert_eq!(gpu.read(&out), want);
}
