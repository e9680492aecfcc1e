//! `programs/convert.cu`.

use vgpu::arith::{
    Rounding,
    convert::{self as reference, Conversion, Number},
};

use crate::{
    Test,
    common::device::{Gpu, Operands},
    inputs,
};

pub(crate) const TESTS: &[Test] = &[
    ("singles_to_integers", 75, singles_to_integers),
    ("doubles_to_integers", 75, doubles_to_integers),
    ("integers_to_singles", 75, integers_to_singles),
    ("integers_to_doubles", 75, integers_to_doubles),
    ("doubles_to_singles", 75, doubles_to_singles),
    ("small_integers", 75, small_integers),
    ("integral_singles", 75, integral_singles),
    ("integral_doubles", 75, integral_doubles),
    ("to_half", 75, to_half),
    ("from_half", 75, from_half),
    ("to_bfloat", 75, to_bfloat),
    ("packed_conversions", 80, packed_conversions),
    ("eight_bit_floats", 90, eight_bit_floats),
];

type Ints = Operands<u64>;
type Floats = Operands<f32>;
type Doubles = Operands<f64>;

const DIRECTIONS: [Rounding; 4] = [
    Rounding::Nearest,
    Rounding::Zero,
    Rounding::Down,
    Rounding::Up,
];

fn with(rounding: Rounding) -> Conversion {
    Conversion {
        rounding,
        ..Conversion::default()
    }
}

fn bits(x: f32) -> u64 {
    x.to_bits().into()
}

/// Rounds, clamps, and takes NaN to zero: by the casts of Rust, which do so.
fn integers_of(x: f64) -> [u64; 16] {
    std::array::from_fn(|i| {
        let x = match DIRECTIONS[i % 4] {
            Rounding::Nearest => x.round_ties_even(),
            Rounding::Zero => x.trunc(),
            Rounding::Down => x.floor(),
            _ => x.ceil(),
        };
        match i / 4 {
            0 => u64::from(x as i32 as u32),
            1 => u64::from(x as u32),
            2 => x as i64 as u64,
            _ => x as u64,
        }
    })
}

fn singles_to_integers(gpu: &Gpu) {
    gpu.map("singles_to_integers", &inputs::singles(), |x: Floats| {
        integers_of(x.a.into())
    });
}

fn doubles_to_integers(gpu: &Gpu) {
    gpu.map("doubles_to_integers", &inputs::doubles(), |x: Doubles| {
        integers_of(x.a)
    });
}

fn integers_to_singles(gpu: &Gpu) {
    let types = [
        Number::Signed(32),
        Number::Unsigned(32),
        Number::Signed(64),
        Number::Unsigned(64),
    ];
    gpu.map("integers_to_singles", &inputs::integers(), |x: Ints| {
        std::array::from_fn::<_, 16, _>(|i| {
            let value = if i < 8 { x.a & 0xffff_ffff } else { x.a };
            let got = reference::convert(Number::F32, types[i / 4], value, with(DIRECTIONS[i % 4]));
            if i % 4 == 0 {
                // Round to nearest by the host.
                let host = [
                    x.a as i32 as f32,
                    x.a as u32 as f32,
                    x.a as i64 as f32,
                    x.a as f32,
                ][i / 4];
                assert_eq!(got, bits(host));
            }
            got
        })
    });
}

fn integers_to_doubles(gpu: &Gpu) {
    gpu.map("integers_to_doubles", &inputs::integers(), |x: Ints| {
        std::array::from_fn::<_, 10, _>(|i| match i {
            8 => f64::from(x.a as i32).to_bits(),
            9 => f64::from(x.a as u32).to_bits(),
            _ => {
                let from = if i < 4 {
                    Number::Signed(64)
                } else {
                    Number::Unsigned(64)
                };
                reference::convert(Number::F64, from, x.a, with(DIRECTIONS[i % 4]))
            }
        })
    });
}

fn doubles_to_singles(gpu: &Gpu) {
    gpu.map("doubles_to_singles", &inputs::doubles(), |x: Doubles| {
        DIRECTIONS.map(|direction| {
            reference::convert(Number::F32, Number::F64, x.a.to_bits(), with(direction))
        })
    });
}

fn small_integers(gpu: &Gpu) {
    gpu.map("small_integers", &inputs::singles(), |x: Floats| {
        let word = x.b.to_bits() as i32;
        let wide = |v: i32| u64::from(v as u32);
        [
            u64::from(x.a.trunc() as u8),
            wide((x.a.round_ties_even() as i8).into()),
            wide((x.a.floor() as i16).into()),
            u64::from(x.a.ceil() as u16),
            wide(word.clamp(-128, 127)),
            wide(word.clamp(0, 65_535)),
            wide((word as i16).into()),
            u64::from((i64::from(word) as u64 >> 20) as u32),
        ]
    });
}

fn integral_singles(gpu: &Gpu) {
    // NaN comes out of an instruction as the canonical one.
    let canonical = |x: f32| if x.is_nan() { 0x7fff_ffff } else { bits(x) };
    let flushed = |x: f32| {
        if x.is_subnormal() {
            0f32.copysign(x)
        } else {
            x
        }
    };
    let saturated = |x: f32| if x > 0.0 { x.min(1.0) } else { 0.0 };
    let want = |Floats { a, .. }| {
        [
            canonical(a.round_ties_even()),
            canonical(a.trunc()),
            canonical(a.floor()),
            canonical(a.ceil()),
            canonical(a.round()),
            bits(saturated(a)),
            canonical(flushed(a)),
            bits(saturated(flushed(a).floor())),
        ]
    };
    let nan = |x: u64| f32::from_bits(x as u32).is_nan();
    gpu.map_with(
        "integral_singles",
        &inputs::singles(),
        want,
        |_, got, want| got == want || nan(got) && nan(want),
    );
}

fn integral_doubles(gpu: &Gpu) {
    let want = |Doubles { a, .. }| {
        [
            a.round_ties_even(),
            a.trunc(),
            a.floor(),
            a.ceil(),
            a.round(),
        ]
        .map(f64::to_bits)
    };
    let nan = |x: u64| f64::from_bits(x).is_nan();
    gpu.map_with(
        "integral_doubles",
        &inputs::doubles(),
        want,
        |_, got, want| got == want || nan(got) && nan(want),
    );
}

fn to_half(gpu: &Gpu) {
    gpu.map("to_half", &inputs::doubles(), |Doubles { a, b, .. }| {
        let (single, other) = (a as f32, b as f32);
        let half =
            |from, bits, rounding| reference::convert(Number::F16, from, bits, with(rounding));
        let float = |x: f32, rounding| half(Number::F32, bits(x), rounding);
        [
            float(single, Rounding::Nearest),
            float(single, Rounding::Zero),
            float(single, Rounding::Down),
            float(single, Rounding::Up),
            half(Number::F64, a.to_bits(), Rounding::Nearest),
            half(
                Number::Signed(32),
                u64::from(single as i32 as u32),
                Rounding::Nearest,
            ),
            half(Number::Signed(64), single as i64 as u64, Rounding::Down),
            float(single, Rounding::Nearest) | float(other, Rounding::Nearest) << 16,
            half(
                Number::Unsigned(32),
                u64::from(single.abs() as u32),
                Rounding::Zero,
            ),
        ]
    });
}

fn from_half(gpu: &Gpu) {
    let inputs: Vec<_> = (0..=0xffffu64)
        .step_by(7)
        .map(|a| Ints { a, b: 0, c: 0 })
        .collect();
    let want = |x: Ints| {
        let value = half::f16::from_bits(x.a as u16).to_f32();
        let back = |x: f32| u64::from(half::f16::from_f32(x).to_bits());
        [
            bits(value),
            u64::from(value.round_ties_even() as i32 as u32),
            value.floor() as i64 as u64,
            u64::from(value.ceil() as u32),
            back(value.round_ties_even()),
            back(value.floor()),
        ]
    };
    gpu.map_with("from_half", &inputs, want, |i, got, want| {
        let nan = |x: u64| match i {
            0 => f32::from_bits(x as u32).is_nan(),
            4 | 5 => x & 0x7fff > 0x7c00,
            _ => false,
        };
        got == want || nan(got) && nan(want)
    });
}

fn to_bfloat(gpu: &Gpu) {
    let want = |Doubles { a, b, .. }| {
        let convert = |x: f32, rounding| {
            reference::convert(Number::Bf16, Number::F32, bits(x), with(rounding))
        };
        let (single, other) = (a as f32, b as f32);
        let near = convert(single, Rounding::Nearest);
        [
            near,
            convert(single, Rounding::Zero),
            near | convert(other, Rounding::Nearest) << 16,
            near << 16,
            reference::convert(
                Number::Bf16,
                Number::F64,
                a.to_bits(),
                with(Rounding::Nearest),
            ),
        ]
    };
    gpu.map_with("to_bfloat", &inputs::doubles(), want, |i, got, want| {
        let nan = |x: u64| i == 3 && f32::from_bits(x as u32).is_nan();
        got == want || nan(got) && nan(want)
    });
}

fn packed_conversions(gpu: &Gpu) {
    gpu.map(
        "packed_conversions",
        &inputs::singles(),
        |Floats { a, b, .. }| {
            let one = |to, x: f32, rounding, relu| {
                reference::convert(
                    to,
                    Number::F32,
                    bits(x),
                    Conversion {
                        rounding,
                        relu,
                        ..Conversion::default()
                    },
                )
            };
            let pair =
                |to, rounding, relu| one(to, a, rounding, relu) << 16 | one(to, b, rounding, relu);
            [
                pair(Number::F16, Rounding::Nearest, false),
                pair(Number::Bf16, Rounding::Zero, false),
                pair(Number::F16, Rounding::Nearest, true),
                one(Number::Bf16, a, Rounding::Nearest, true),
                one(Number::Tf32, a, Rounding::Away, false),
                pair(Number::Bf16, Rounding::Nearest, false),
            ]
        },
    );
}

fn eight_bit_floats(gpu: &Gpu) {
    gpu.map(
        "eight_bit_floats",
        &inputs::singles(),
        |Floats { a, b, .. }| {
            let mut out = [0; 4];
            for (i, number) in [Number::E4m3, Number::E5m2].into_iter().enumerate() {
                let narrow = |x: f32| {
                    reference::convert(number, Number::F32, bits(x), with(Rounding::Nearest))
                };
                let wide =
                    |x: u64| reference::convert(Number::F16, number, x, with(Rounding::Nearest));
                out[2 * i] = narrow(a) << 8 | narrow(b);
                out[2 * i + 1] = wide(narrow(a)) << 16 | wide(narrow(b));
            }
            out
        },
    );
}
