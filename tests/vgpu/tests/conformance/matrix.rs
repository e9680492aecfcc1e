//! `programs/matrix.cu`.
//!
//! The kernels place fragments by the manual's formulae, the device reads them by [`vgpu::matrix::layout`], and the
//! reference knows neither. Elements are small integers, exact in every type, and no two rows or columns are alike.

use bytemuck::Pod;
use half::{bf16, f16};

use crate::{Test, common::device::Gpu};

pub(crate) const TESTS: &[Test] = &[
    ("product_f16_k8", 75, |gpu| {
        product(
            gpu,
            "product_f16_k8",
            (16, 8, 8),
            f16_bits,
            f16_bits,
            f32_of,
        )
    }),
    ("product_s8_m8n8k16", 75, |gpu| {
        product(gpu, "product_s8_m8n8k16", (8, 8, 16), s8_of, s8_of, s32_of)
    }),
    ("product_f16_k16", 80, |gpu| {
        product(
            gpu,
            "product_f16_k16",
            (16, 8, 16),
            f16_bits,
            f16_bits,
            f32_of,
        )
    }),
    ("product_f16_sums", 80, |gpu| {
        product(
            gpu,
            "product_f16_sums",
            (16, 8, 16),
            f16_bits,
            f16_bits,
            f16_bits,
        )
    }),
    ("product_bf16_k8", 80, |gpu| {
        product(
            gpu,
            "product_bf16_k8",
            (16, 8, 8),
            bf16_bits,
            bf16_bits,
            f32_of,
        )
    }),
    ("product_bf16_k16", 80, |gpu| {
        product(
            gpu,
            "product_bf16_k16",
            (16, 8, 16),
            bf16_bits,
            bf16_bits,
            f32_of,
        )
    }),
    ("product_tf32_k4", 80, |gpu| {
        product(gpu, "product_tf32_k4", (16, 8, 4), f32_of, f32_of, f32_of)
    }),
    ("product_tf32_k8", 80, |gpu| {
        product(gpu, "product_tf32_k8", (16, 8, 8), f32_of, f32_of, f32_of)
    }),
    ("product_s8_k16", 80, |gpu| {
        product(gpu, "product_s8_k16", (16, 8, 16), s8_of, s8_of, s32_of)
    }),
    ("product_s8_k32", 80, |gpu| {
        product(gpu, "product_s8_k32", (16, 8, 32), s8_of, s8_of, s32_of)
    }),
    ("product_u8_k32_clamped", 80, clamped),
    ("product_f64_m8n8k4", 80, |gpu| {
        product(gpu, "product_f64_m8n8k4", (8, 8, 4), f64_of, f64_of, f64_of)
    }),
    ("product_f64_m16n8k4", 90, |gpu| {
        product(
            gpu,
            "product_f64_m16n8k4",
            (16, 8, 4),
            f64_of,
            f64_of,
            f64_of,
        )
    }),
    ("product_f64_m16n8k8", 90, |gpu| {
        product(
            gpu,
            "product_f64_m16n8k8",
            (16, 8, 8),
            f64_of,
            f64_of,
            f64_of,
        )
    }),
    ("product_f64_m16n8k16", 90, |gpu| {
        product(
            gpu,
            "product_f64_m16n8k16",
            (16, 8, 16),
            f64_of,
            f64_of,
            f64_of,
        )
    }),
    ("product_f64_fused", 80, fused),
    ("tiles_loaded", 75, tiles_loaded),
    ("tiles_stored", 90, tiles_stored),
    ("opaque_f16", 75, |gpu| {
        opaque(
            gpu,
            "opaque_f16",
            (16, 16, 16),
            (false, false),
            f16_bits,
            f32_of,
        )
    }),
    ("opaque_f16_wide", 75, |gpu| {
        opaque(
            gpu,
            "opaque_f16_wide",
            (8, 32, 16),
            (false, false),
            f16_bits,
            f32_of,
        )
    }),
    ("opaque_f16_columns", 75, |gpu| {
        opaque(
            gpu,
            "opaque_f16_columns",
            (32, 8, 16),
            (true, true),
            f16_bits,
            f16_bits,
        )
    }),
    ("opaque_s8", 75, |gpu| {
        opaque(gpu, "opaque_s8", (16, 16, 16), (false, true), s8_of, s32_of)
    }),
    ("opaque_bf16", 80, |gpu| {
        opaque(
            gpu,
            "opaque_bf16",
            (16, 16, 16),
            (true, false),
            bf16_bits,
            f32_of,
        )
    }),
    ("opaque_f64", 80, |gpu| {
        opaque(gpu, "opaque_f64", (8, 8, 4), (false, true), f64_of, f64_of)
    }),
    ("opaque_tf32", 80, |gpu| {
        opaque(
            gpu,
            "opaque_tf32",
            (16, 16, 8),
            (false, false),
            f32_of,
            f32_of,
        )
    }),
];

fn f16_bits(x: i32) -> u16 {
    f16::from_f32(x as f32).to_bits()
}

fn bf16_bits(x: i32) -> u16 {
    bf16::from_f32(x as f32).to_bits()
}

fn f32_of(x: i32) -> f32 {
    x as f32
}

fn f64_of(x: i32) -> f64 {
    x.into()
}

fn s8_of(x: i32) -> i8 {
    x as i8
}

fn s32_of(x: i32) -> i32 {
    x
}

fn left(row: usize, step: usize) -> i32 {
    (row * 3 + step * 5 + row * step) as i32 % 13 - 6
}

fn right(step: usize, column: usize) -> i32 {
    (step * 7 + column * 3 + step * column) as i32 % 11 - 5
}

fn addend(row: usize, column: usize) -> i32 {
    (row * 8 + column) as i32 % 101 - 50
}

/// An m×n matrix given by a function, row by row.
fn matrix<T>(rows: usize, columns: usize, value: impl Fn(usize, usize) -> T) -> Vec<T> {
    (0..rows * columns)
        .map(|e| value(e / columns, e % columns))
        .collect()
}

fn launch<A: Pod, B: Pod, D: Pod>(gpu: &Gpu, kernel: &str, a: &[A], b: &[B], c: &[D]) -> Vec<D> {
    let (a, b, c, d) = (
        gpu.upload(a),
        gpu.upload(b),
        gpu.upload(c),
        gpu.uninitialised::<D>(c.len()),
    );
    gpu.kernel(kernel, 1, 32)
        .buffer(&a)
        .buffer(&b)
        .buffer(&c)
        .buffer(&d)
        .run();
    gpu.read(&d)
}

fn product<A: Pod, B: Pod, D: Pod + PartialEq + std::fmt::Debug>(
    gpu: &Gpu,
    kernel: &str,
    (m, n, k): (usize, usize, usize),
    a: fn(i32) -> A,
    b: fn(i32) -> B,
    d: fn(i32) -> D,
) {
    let got = launch(
        gpu,
        kernel,
        &matrix(m, k, |i, j| a(left(i, j))),
        &matrix(k, n, |i, j| b(right(i, j))),
        &matrix(m, n, |i, j| d(addend(i, j))),
    );
    let sum = |i, j| (0..k).map(|s| left(i, s) * right(s, j)).sum::<i32>();
    assert_eq!(got, matrix(m, n, |i, j| d(sum(i, j) + addend(i, j))));
}

/// `wmma`: D = 2 A B + C + 1, with A and B stored by columns where asked.
fn opaque<A: Pod, D: Pod + PartialEq + std::fmt::Debug>(
    gpu: &Gpu,
    kernel: &str,
    (m, n, k): (usize, usize, usize),
    (a_columns, b_columns): (bool, bool),
    a: fn(i32) -> A,
    d: fn(i32) -> D,
) {
    let stored_a = if a_columns {
        matrix(k, m, |j, i| a(left(i, j)))
    } else {
        matrix(m, k, |i, j| a(left(i, j)))
    };
    let stored_b = if b_columns {
        matrix(n, k, |j, i| a(right(i, j)))
    } else {
        matrix(k, n, |i, j| a(right(i, j)))
    };
    let got = launch(
        gpu,
        kernel,
        &stored_a,
        &stored_b,
        &matrix(m, n, |i, j| d(addend(i, j))),
    );
    let sum = |i, j| (0..k).map(|s| 2 * left(i, s) * right(s, j)).sum::<i32>();
    assert_eq!(got, matrix(m, n, |i, j| d(sum(i, j) + addend(i, j) + 1)));
}

fn clamped(gpu: &Gpu) {
    let (m, n, k) = (16, 8, 32);
    let (a, b) = (
        matrix(m, k, |i, j| (200 + i + j) as u8),
        matrix(k, n, |_, j| if j % 2 == 0 { 127i8 } else { -128 }),
    );
    let c = matrix(m, n, |_, j| {
        if j % 2 == 0 {
            i32::MAX - 5
        } else {
            i32::MIN + 5
        }
    });
    let got = launch(gpu, "product_u8_k32_clamped", &a, &b, &c);
    assert_eq!(
        got,
        matrix(m, n, |_, j| if j % 2 == 0 { i32::MAX } else { i32::MIN })
    );
}

/// In `f64` the sum is a chain of fused multiply-adds in ascending k, to the bit.
fn fused(gpu: &Gpu) {
    let value = |i: usize, j: usize| 1.0 / (1 + i * 7 + j * 3) as f64;
    let (a, b, c) = (
        matrix(8, 4, value),
        matrix(4, 8, |i, j| value(j, i) + 1.0),
        matrix(8, 8, |i, j| value(i, j) * 1e3),
    );
    let got = launch(gpu, "product_f64_m8n8k4", &a, &b, &c);
    let want = matrix(8, 8, |i, j| {
        (0..4).fold(c[i * 8 + j], |sum, s| {
            a[i * 4 + s].mul_add(b[s * 8 + j], sum)
        })
    });
    assert_eq!(got, want);
}

fn pair(low: usize, high: usize) -> u32 {
    low as u32 | (high as u32) << 16
}

fn tiles_loaded(gpu: &Gpu) {
    let data: Vec<u16> = (0..256).collect();
    let (given, out) = (gpu.upload(&data), gpu.uninitialised::<u32>(224));
    gpu.kernel("tiles_loaded", 1, 32)
        .buffer(&given)
        .buffer(&out)
        .run();
    let plain = |tile: usize, lane: usize| {
        let first = tile * 64 + lane / 4 * 8 + lane % 4 * 2;
        pair(first, first + 1)
    };
    let transposed = |tile: usize, lane: usize| {
        let first = tile * 64 + lane % 4 * 16 + lane / 4;
        pair(first, first + 8)
    };
    let want: Vec<u32> = (0..224)
        .map(|e| match (e / 32, e % 32) {
            (tile @ 0..4, lane) => plain(tile, lane),
            (tile @ 4..6, lane) => transposed(tile - 4, lane),
            (_, lane) => plain(0, lane),
        })
        .collect();
    assert_eq!(gpu.read(&out), want);
}

fn tiles_stored(gpu: &Gpu) {
    let data: Vec<u32> = (0..128).map(|e| pair(2 * e, 2 * e + 1)).collect();
    let (given, out) = (gpu.upload(&data), gpu.uninitialised::<u16>(256));
    gpu.kernel("tiles_stored", 1, 32)
        .buffer(&given)
        .buffer(&out)
        .run();
    // Lane 4 r + c / 2 holds elements (r, c) and (r, c + 1), so words in the order of lanes are rows.
    let mut want: Vec<u16> = (0..256).collect();
    for row in 0..8 {
        for column in 0..8 {
            want[192 + row * 8 + column] = (column * 8 + row) as u16;
        }
    }
    assert_eq!(gpu.read(&out), want);
}
