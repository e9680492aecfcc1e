//! `programs/half.cu`.

use bytemuck::{Pod, Zeroable};
use vgpu::arith::{
    compare::{Comparison, Extremum},
    half::{Half, HalfMode, packed1, packed2, packed3},
};

use crate::{Test, common::device::Gpu, inputs::Random};

pub(crate) const TESTS: &[Test] = &[
    ("half_arithmetic", 75, half_arithmetic),
    ("half_pairs", 75, half_pairs),
    ("half_extrema", 80, half_extrema),
    ("half_functions", 75, half_functions),
    ("half_dot", 75, half_dot),
    ("bfloat_arithmetic", 80, bfloat_arithmetic),
    ("bfloat_pairs", 80, bfloat_pairs),
];

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Halves {
    a: u16,
    b: u16,
    c: u16,
    d: u16,
    e: u16,
    f: u16,
}

impl Halves {
    fn pairs(self) -> [u32; 3] {
        [(self.a, self.b), (self.c, self.d), (self.e, self.f)]
            .map(|(low, high)| u32::from(low) | u32::from(high) << 16)
    }
}

const PLAIN: HalfMode = HalfMode {
    ftz: false,
    sat: false,
    relu: false,
};
const SAT: HalfMode = HalfMode { sat: true, ..PLAIN };
const RELU: HalfMode = HalfMode {
    relu: true,
    ..PLAIN
};
const QUIET: Extremum = Extremum {
    ftz: false,
    nan: false,
    xorsign_abs: false,
};
const NAN: Extremum = Extremum { nan: true, ..QUIET };

/// Borders of both formats, numbers near one, any bits.
fn halves() -> Vec<Halves> {
    let mut random = Random::new(4);
    let borders = [
        0, 0x8000, 1, 0x8001, 0x3c00, 0xbc00, 0x3f80, 0x3c01, 0x7bff, 0x7c00, 0xfc00, 0x7e01,
        0x0400, 0x03ff,
    ];
    let mut next = || {
        let bits = random.bits();
        match bits % 4 {
            0 => borders[(bits >> 8) as usize % borders.len()],
            1 => (bits >> 16) as u16,
            _ => (bits >> 16) as u16 & 0x8fff | 0x3000,
        }
    };
    (0..2000)
        .map(|_| Halves {
            a: next(),
            b: next(),
            c: next(),
            d: next(),
            e: next(),
            f: next(),
        })
        .collect()
}

fn relations(half: Half, p: u16, q: u16) -> u64 {
    [
        Comparison::Lt,
        Comparison::Eq,
        Comparison::Ge,
        Comparison::Ltu,
        Comparison::Neu,
    ]
    .into_iter()
    .enumerate()
    .map(|(i, c)| u64::from(half.compare(c, p, q, false)) << i)
    .sum()
}

fn half_arithmetic(gpu: &Gpu) {
    let half = Half::F16;
    gpu.map("half_arithmetic", &halves(), |x| {
        let (p, q, r) = (x.a, x.b, x.c);
        let nan = half.to_f32(p).is_nan();
        [
            half.add(p, q, PLAIN).into(),
            half.sub(p, q, PLAIN).into(),
            half.mul(p, q, PLAIN).into(),
            half.fma(p, q, r, PLAIN).into(),
            half.neg(p, false).into(),
            half.abs(p, false).into(),
            half.add(p, q, SAT).into(),
            half.fma(p, q, r, SAT).into(),
            relations(half, p, q),
            nan.into(),
            half.mul(p, q, SAT).into(),
            half.sub(p, q, SAT).into(),
        ]
    });
}

fn half_pairs(gpu: &Gpu) {
    let half = Half::F16;
    gpu.map("half_pairs", &halves(), |x| {
        let [p, q, r] = x.pairs();
        [
            packed2(p, q, |a, b| half.add(a, b, PLAIN)),
            packed2(p, q, |a, b| half.sub(a, b, PLAIN)),
            packed2(p, q, |a, b| half.mul(a, b, PLAIN)),
            packed3(p, q, r, |a, b, c| half.fma(a, b, c, PLAIN)),
            packed1(p, |a| half.neg(a, false)),
            packed1(p, |a| half.abs(a, false)),
            packed2(p, q, |a, b| {
                if half.compare(Comparison::Lt, a, b, false) {
                    0xffff
                } else {
                    0
                }
            }),
            packed3(p, q, r, |a, b, c| half.fma(a, b, c, SAT)),
        ]
        .map(u64::from)
    });
}

fn half_extrema(gpu: &Gpu) {
    let half = Half::F16;
    gpu.map("half_extrema", &halves(), |x| {
        let (p, q, r) = (x.a, x.b, x.c);
        let [u, v, w] = x.pairs();
        [
            half.min(p, q, QUIET).into(),
            half.max(p, q, QUIET).into(),
            half.min(p, q, NAN).into(),
            half.max(p, q, NAN).into(),
            half.fma(p, q, r, RELU).into(),
            packed2(u, v, |a, b| half.max(a, b, QUIET)).into(),
            packed3(u, v, w, |a, b, c| half.fma(a, b, c, RELU)).into(),
        ]
    });
}

/// Within 2⁻⁹·⁹ relative for `ex2` and 2⁻¹⁰·⁹⁸⁷ for `tanh`.
fn half_functions(gpu: &Gpu) {
    let half = Half::F16;
    let want = |x: Halves| {
        let pair = packed1(u32::from(x.a) | u32::from(x.b) << 16, |a| {
            half.ex2(a, false)
        });
        [
            half.ex2(x.a, false).into(),
            half.tanh(x.a).into(),
            pair.into(),
        ]
    };
    gpu.map_with("half_functions", &halves(), want, |_, got, want| {
        [0, 16].into_iter().all(|shift| {
            let (got, want) = (
                half.to_f32((got >> shift) as u16),
                half.to_f32((want >> shift) as u16),
            );
            got == want
                || got.is_nan() && want.is_nan()
                || (got - want).abs() <= want.abs() / 900.0 + 1e-7
        })
    });
}

fn half_dot(gpu: &Gpu) {
    let half = Half::F16;
    let mut random = Random::new(5);
    let mut next = |n: usize| -> Vec<u16> {
        (0..n)
            .map(|_| half.from_f32(random.unit() as f32 - 0.5))
            .collect()
    };
    let (p, q) = (next(64), next(64));
    let (mut pair, mut wide) = ([0u16; 2], 0f32);
    for i in (0..64).step_by(2) {
        for j in 0..2 {
            // `u * v + acc` by operators: whether the compiler fuses it is its choice, and it does.
            pair[j] = half.fma(p[i + j], q[i + j], pair[j], PLAIN);
        }
        wide = half.to_f32(p[i]).mul_add(half.to_f32(q[i]), wide);
    }
    let (dp, dq, sum) = (gpu.upload(&p), gpu.upload(&q), gpu.uninitialised::<f32>(2));
    gpu.kernel("half_dot", 1, 1)
        .buffer(&dp)
        .buffer(&dq)
        .buffer(&sum)
        .value(64)
        .run();
    let got = gpu.read(&sum);
    let narrow = half.to_f32(pair[0]) + half.to_f32(pair[1]);
    assert!((got[0] - narrow).abs() <= 0.02, "{} for {narrow}", got[0]);
    assert_eq!(got[1], wide);
}

fn bfloat_arithmetic(gpu: &Gpu) {
    let half = Half::Bf16;
    gpu.map("bfloat_arithmetic", &halves(), |x| {
        let (p, q, r) = (x.a, x.b, x.c);
        [
            half.add(p, q, PLAIN).into(),
            half.sub(p, q, PLAIN).into(),
            half.mul(p, q, PLAIN).into(),
            half.fma(p, q, r, PLAIN).into(),
            half.neg(p, false).into(),
            half.abs(p, false).into(),
            half.min(p, q, QUIET).into(),
            half.max(p, q, QUIET).into(),
            relations(half, p, q),
            half.fma(p, q, r, RELU).into(),
            half.min(p, q, NAN).into(),
            half.max(p, q, NAN).into(),
        ]
    });
}

fn bfloat_pairs(gpu: &Gpu) {
    let half = Half::Bf16;
    gpu.map("bfloat_pairs", &halves(), |x| {
        let [p, q, r] = x.pairs();
        [
            packed2(p, q, |a, b| half.add(a, b, PLAIN)),
            packed2(p, q, |a, b| half.sub(a, b, PLAIN)),
            packed2(p, q, |a, b| half.mul(a, b, PLAIN)),
            packed3(p, q, r, |a, b, c| half.fma(a, b, c, PLAIN)),
            packed2(p, q, |a, b| half.min(a, b, QUIET)),
            packed1(p, |a| half.neg(a, false)),
        ]
        .map(u64::from)
    });
}
