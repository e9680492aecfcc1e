//! `programs/float.cu`.

use std::cmp::Ordering;

use vgpu::arith::{
    Mode, Rounding,
    compare::{self, Comparison, Extremum, Property},
    float, special,
};

use crate::{
    Test,
    common::device::{Gpu, Operands},
    inputs,
};

pub(crate) const TESTS: &[Test] = &[
    ("rounded_singles", 75, rounded_singles),
    ("rounded_doubles", 75, rounded_doubles),
    ("flushed_and_saturated", 75, flushed_and_saturated),
    ("extrema", 75, extrema),
    ("extrema_nan", 80, extrema_nan),
    ("extrema_xorsign", 90, extrema_xorsign),
    ("comparisons", 75, comparisons),
    ("properties", 75, properties),
    ("approximations", 75, approximations),
    ("double_seeds", 75, double_seeds),
];

type Floats = Operands<f32>;
type Doubles = Operands<f64>;

const DIRECTIONS: [Rounding; 4] = [
    Rounding::Nearest,
    Rounding::Zero,
    Rounding::Down,
    Rounding::Up,
];

fn bits(x: f32) -> u64 {
    x.to_bits().into()
}

/// Equal bits, or NaN in both: which NaN an `f64` instruction gives is not said.
fn same_f64(_: usize, got: u64, want: u64) -> bool {
    got == want || f64::from_bits(got).is_nan() && f64::from_bits(want).is_nan()
}

fn rounded_singles(gpu: &Gpu) {
    gpu.map(
        "rounded_singles",
        &inputs::singles(),
        |Floats { a, b, c }| {
            std::array::from_fn::<_, 28, _>(|i| {
                let mode = Mode {
                    rounding: DIRECTIONS[i % 4],
                    ..Mode::RN
                };
                bits(match i / 4 {
                    0 => float::add_f32(a, b, mode),
                    1 => float::sub_f32(a, b, mode),
                    2 => float::mul_f32(a, b, mode),
                    3 => float::fma_f32(a, b, c, mode),
                    4 => float::div_f32(a, b, mode),
                    5 => float::rcp_f32(a, mode),
                    _ => float::sqrt_f32(a, mode),
                })
            })
        },
    );
}

fn rounded_doubles(gpu: &Gpu) {
    let want = |Doubles { a, b, c }| {
        std::array::from_fn::<_, 28, _>(|i| {
            let rounding = DIRECTIONS[i % 4];
            match i / 4 {
                0 => float::add_f64(a, b, rounding),
                1 => float::sub_f64(a, b, rounding),
                2 => float::mul_f64(a, b, rounding),
                3 => float::fma_f64(a, b, c, rounding),
                4 => float::div_f64(a, b, rounding),
                5 => float::rcp_f64(a, rounding),
                _ => float::sqrt_f64(a, rounding),
            }
            .to_bits()
        })
    };
    gpu.map_with("rounded_doubles", &inputs::doubles(), want, same_f64);
}

fn flushed_and_saturated(gpu: &Gpu) {
    let ftz = Mode {
        ftz: true,
        ..Mode::RN
    };
    let sat = Mode {
        sat: true,
        ..Mode::RN
    };
    let both = Mode {
        rounding: Rounding::Zero,
        ftz: true,
        sat: true,
    };
    let plain = Extremum {
        ftz: true,
        ..Extremum::default()
    };
    gpu.map(
        "flushed_and_saturated",
        &inputs::singles(),
        |Floats { a, b, c }| {
            [
                float::add_f32(a, b, ftz),
                float::sub_f32(a, b, ftz),
                float::mul_f32(a, b, ftz),
                float::fma_f32(a, b, c, ftz),
                float::add_f32(a, b, sat),
                float::mul_f32(a, b, sat),
                float::fma_f32(a, b, c, sat),
                float::fma_f32(a, b, c, both),
                compare::min_f32(a, b, plain),
                compare::max_f32(a, b, plain),
                float::div_f32(a, b, ftz),
                float::abs_f32(a, true),
            ]
            .map(bits)
        },
    );
}

fn extrema(gpu: &Gpu) {
    let plain = Extremum::default();
    let want = |Floats { a, b, .. }| {
        let (x, y) = (f64::from(a), f64::from(b));
        [
            bits(compare::min_f32(a, b, plain)),
            bits(compare::max_f32(a, b, plain)),
            bits(b.copysign(a)),
            bits(-a),
            compare::min_f64(x, y, plain).to_bits(),
            compare::max_f64(x, y, plain).to_bits(),
            bits(compare::min_f32(a, b, plain)),
            compare::max_f64(x, y, plain).to_bits(),
        ]
    };
    let same = |i: usize, got, want| {
        if [4, 5, 7].contains(&i) {
            same_f64(i, got, want)
        } else {
            got == want
        }
    };
    gpu.map_with("extrema", &inputs::singles(), want, same);
}

fn extrema_nan(gpu: &Gpu) {
    let nan = Extremum {
        nan: true,
        ..Extremum::default()
    };
    gpu.map(
        "extrema_nan",
        &inputs::singles(),
        |Floats { a, b, .. }| {
            [
                bits(compare::min_f32(a, b, nan)),
                bits(compare::max_f32(a, b, Extremum { ftz: true, ..nan })),
            ]
        },
    );
}

fn extrema_xorsign(gpu: &Gpu) {
    let xor = Extremum {
        xorsign_abs: true,
        ..Extremum::default()
    };
    gpu.map(
        "extrema_xorsign",
        &inputs::singles(),
        |Floats { a, b, .. }| {
            [
                bits(compare::min_f32(a, b, xor)),
                bits(compare::max_f32(a, b, Extremum { nan: true, ..xor })),
            ]
        },
    );
}

fn comparisons(gpu: &Gpu) {
    use Comparison::*;
    let all = [
        Eq, Ne, Lt, Le, Gt, Ge, Equ, Neu, Ltu, Leu, Gtu, Geu, Num, Nan,
    ];
    gpu.map(
        "comparisons",
        &inputs::singles(),
        |Floats { a, b, .. }| {
            // Spelt out by the order of the two, apart from the implementation.
            let mask = |a: f64, b: f64| {
                let order = a.partial_cmp(&b);
                all.iter().enumerate().fold(0, |mask, (i, c)| {
                    let holds = match order {
                        Some(Ordering::Equal) => matches!(c, Eq | Le | Ge | Equ | Leu | Geu | Num),
                        Some(Ordering::Less) => matches!(c, Ne | Lt | Le | Neu | Ltu | Leu | Num),
                        Some(Ordering::Greater) => {
                            matches!(c, Ne | Gt | Ge | Neu | Gtu | Geu | Num)
                        }
                        None => matches!(c, Equ | Neu | Ltu | Leu | Gtu | Geu | Nan),
                    };
                    mask | u64::from(holds) << i
                })
            };
            let wide = mask(a.into(), b.into());
            let flushed = float::flush_f32(a) > float::flush_f32(b);
            [
                wide,
                wide,
                flushed.into(),
                u64::from(a < b)
                    + 2 * u64::from(a != b)
                    + 4 * u64::from(!matches!(a.partial_cmp(&b), Some(o) if o.is_ge())),
            ]
        },
    );
}

fn properties(gpu: &Gpu) {
    use Property::*;
    let all = [Finite, Infinite, Number, NotANumber, Normal, Subnormal];
    gpu.map("properties", &inputs::singles(), |Floats { a, .. }| {
        let mask = |test: &dyn Fn(Property) -> bool| {
            all.iter()
                .enumerate()
                .fold(0, |mask, (i, &p)| mask | u64::from(test(p)) << i)
        };
        [
            mask(&|p| compare::testp_f32(p, a)),
            mask(&|p| compare::testp_f64(p, a.into())),
        ]
    });
}

/// Within the bounds of PTX ISA 9.0, not to the bit: the same test holds on hardware.
fn approximations(gpu: &Gpu) {
    let want = |Floats { a, b, .. }| {
        [
            special::rcp_approx_f32(a, false),
            special::sqrt_approx_f32(a, false),
            special::rsqrt_approx_f32(a, false),
            special::ex2_approx_f32(a, false),
            special::lg2_approx_f32(a, false),
            special::sin_approx_f32(a, false),
            special::cos_approx_f32(a, false),
            special::tanh_approx_f32(a),
            special::div_approx_f32(a, b, false),
            special::div_full_f32(a, b, false),
            special::rcp_approx_f32(a, true),
            special::ex2_approx_f32(a, true),
        ]
        .map(bits)
    };
    let inputs: Vec<_> = inputs::singles()
        .into_iter()
        .filter(|x| !(x.a.abs() > 3.1 && x.a.is_finite()))
        .collect();
    gpu.map_with("approximations", &inputs, want, |i, got, want| {
        let (got, want) = (f32::from_bits(got as u32), f32::from_bits(want as u32));
        let (absolute, relative) = match i {
            4 => (2e-7, 1e-6),
            5 | 6 => (7e-7, 0.0),
            7 => (0.0, 5e-4),
            _ => (1e-37, 4e-7),
        };
        got == want
            || got.is_nan() && want.is_nan()
            || (got - want).abs() <= absolute + relative * want.abs()
    });
}

fn double_seeds(gpu: &Gpu) {
    let want = |Doubles { a, .. }| [1.0 / a, 1.0 / a.abs().sqrt()].map(f64::to_bits);
    let inputs: Vec<_> = inputs::doubles()
        .into_iter()
        .filter(|x| (1e-300..1e300).contains(&x.a.abs()))
        .collect();
    gpu.map_with("double_seeds", &inputs, want, |_, got, want| {
        let (seed, want) = (f64::from_bits(got), f64::from_bits(want));
        got as u32 == 0 && ((seed - want) / want).abs() < 2f64.powi(-19)
    });
}
