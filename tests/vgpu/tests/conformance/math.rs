//! `programs/math.cu`: the functions of `math.h` against the host's, within the errors that the CUDA documentation
//! gives, in units in the last place, plus one for the host's own.

use crate::{
    Test,
    common::device::{Gpu, Operands},
    inputs::Random,
};

pub(crate) const TESTS: &[Test] = &[
    ("doubles_elementary", 75, doubles_elementary),
    ("doubles_powers", 75, doubles_powers),
    ("doubles_inverse", 75, doubles_inverse),
    ("doubles_special", 75, doubles_special),
    ("doubles_large", 75, doubles_large),
    ("doubles_parts", 75, doubles_parts),
    ("singles_elementary", 75, singles_elementary),
    ("singles_more", 75, singles_more),
    ("singles_fast", 75, singles_fast),
    ("singles_large", 75, singles_large),
];

type Floats = Operands<f32>;
type Doubles = Operands<f64>;

/// Moderate arguments: |a| to 20, b in ±[0.1, 10], |c| < 1.
fn doubles() -> Vec<Doubles> {
    let mut random = Random::new(30);
    (0..1500)
        .map(|i| {
            let scale = [1e-3, 1.0, 20.0][i % 3];
            let sign = if random.bits().is_multiple_of(2) {
                1.0
            } else {
                -1.0
            };
            Operands {
                a: (random.unit() * 2.0 - 1.0) * scale,
                b: sign * (0.1 + 9.9 * random.unit()),
                c: random.unit() * 2.0 - 1.0,
            }
        })
        .collect()
}

fn singles() -> Vec<Floats> {
    doubles()
        .into_iter()
        .map(|x| Operands {
            a: x.a as f32,
            b: x.b as f32,
            c: x.c as f32,
        })
        .collect()
}

fn close_f64(ulps: f64) -> impl Fn(u64, u64) -> bool {
    move |got, want| {
        let (got, want) = (f64::from_bits(got), f64::from_bits(want));
        let unit = (f64::from_bits(want.abs().to_bits() + 1) - want.abs()).max(f64::from_bits(1));
        got == want || got.is_nan() && want.is_nan() || ((got - want) / unit).abs() <= ulps
    }
}

/// The reference is an `f64`, so that it adds no error of its own.
fn close_f32(got: u64, want: u64, ulps: f64) -> bool {
    let (got, want) = (f64::from(f32::from_bits(got as u32)), f64::from_bits(want));
    let near = (want as f32).abs();
    if near.is_infinite() || want.is_nan() {
        return got == f64::from(want as f32) || got.is_nan() && want.is_nan();
    }
    let unit = f64::from(f32::from_bits(near.to_bits() + 1)) - f64::from(near);
    got == want || (got - want).abs() <= ulps * unit
}

fn check<const N: usize>(
    gpu: &Gpu,
    kernel: &str,
    inputs: &[Doubles],
    ulps: [f64; N],
    want: impl Fn(Doubles) -> [f64; N],
) {
    gpu.map_with(
        kernel,
        inputs,
        |x| want(x).map(f64::to_bits),
        |i, got, want| close_f64(ulps[i] + 1.0)(got, want),
    );
}

fn check_f32<const N: usize>(
    gpu: &Gpu,
    kernel: &str,
    inputs: &[Floats],
    ulps: [f64; N],
    want: impl Fn(Doubles) -> [f64; N],
) {
    let wide = |x: Floats| Operands {
        a: f64::from(x.a),
        b: x.b.into(),
        c: x.c.into(),
    };
    gpu.map_with(
        kernel,
        inputs,
        |x| want(wide(x)).map(f64::to_bits),
        |i, got, want| close_f32(got, want, ulps[i] + 0.01),
    );
}

fn doubles_elementary(gpu: &Gpu) {
    // Division, reciprocal and root are rounded correctly: the tolerance of one is the host's share alone.
    let ulps = [2.0, 2.0, 2.0, 1.0, 1.0, -1.0, 1.0, -1.0, -1.0, 1.0];
    check(
        gpu,
        "doubles_elementary",
        &doubles(),
        ulps,
        |Doubles { a, b, .. }| {
            let p = a.abs();
            [
                a.sin(),
                a.cos(),
                a.tan(),
                a.exp(),
                p.ln(),
                p.sqrt(),
                a.cbrt(),
                a / b,
                1.0 / b,
                1.0 / p.sqrt(),
            ]
        },
    );
}

fn doubles_powers(gpu: &Gpu) {
    check(
        gpu,
        "doubles_powers",
        &doubles(),
        [2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0],
        |Doubles { a, b, .. }| {
            let p = a.abs();
            [
                p.powf(b),
                a.exp2(),
                10f64.powf(a),
                a.exp_m1(),
                p.log2(),
                p.log10(),
                p.ln_1p(),
                a.hypot(b),
            ]
        },
    );
}

fn doubles_inverse(gpu: &Gpu) {
    check(
        gpu,
        "doubles_inverse",
        &doubles(),
        [2.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 3.0],
        |Doubles { a, b, c }| {
            [
                a.atan(),
                a.atan2(b),
                c.asin(),
                c.acos(),
                a.sinh(),
                a.cosh(),
                a.tanh(),
                libm::asinh(a),
            ]
        },
    );
}

fn doubles_special(gpu: &Gpu) {
    // The tail of erfc and of the normal distribution loses a few units in the host's version as well.
    check(
        gpu,
        "doubles_special",
        &doubles(),
        [2.0, 5.0, 10.0, 8.0, -1.0, 12.0],
        |Doubles { a, b, .. }| {
            let p = a.abs() + 0.5;
            let normal = normal_distribution(a);
            [
                libm::erf(a),
                libm::erfc(a),
                libm::tgamma(p),
                libm::lgamma(p),
                a % b,
                normal,
            ]
        },
    );
}

/// Half of erfc(-a/√2), with what is lost in the argument put back by the slope.
fn normal_distribution(a: f64) -> f64 {
    let (upper, lower) = (std::f64::consts::FRAC_1_SQRT_2, -4.833_646_656_726_457e-17);
    let z = -a * upper;
    let lost = (-a).mul_add(upper, -z) - a * lower;
    let slope = std::f64::consts::FRAC_2_SQRT_PI * (-z * z).exp();
    0.5 * (libm::erfc(z) - slope * lost)
}

/// Arguments that need the long reduction by π/2.
fn doubles_large(gpu: &Gpu) {
    let mut random = Random::new(31);
    let inputs: Vec<_> = (0..400)
        .map(|i| Operands {
            a: random.unit() * 10f64.powi(i % 300),
            b: 0.0,
            c: 0.0,
        })
        .collect();
    check(
        gpu,
        "doubles_large",
        &inputs,
        [2.0, 2.0],
        |Doubles { a, .. }| [a.sin(), a.cos()],
    );
}

fn doubles_parts(gpu: &Gpu) {
    let inputs: Vec<_> = doubles().into_iter().filter(|x| x.a != 0.0).collect();
    gpu.map("doubles_parts", &inputs, |Doubles { a, .. }| {
        let (fraction, exponent) = libm::frexp(a);
        let word = |x: i32| u64::from(x as u32);
        // modf keeps the sign of the argument on a zero part.
        let part = (a - a.trunc()).copysign(a);
        [
            fraction.to_bits(),
            word(exponent),
            (a * 8.0).to_bits(),
            part.to_bits(),
            a.trunc().to_bits(),
            word(libm::ilogb(a)),
        ]
    });
}

fn singles_elementary(gpu: &Gpu) {
    let ulps = [2.0, 2.0, 4.0, 2.0, 1.0, 0.5, 1.0, 0.5, 4.0, 2.0];
    check_f32(
        gpu,
        "singles_elementary",
        &singles(),
        ulps,
        |Doubles { a, b, .. }| {
            let p = a.abs();
            [
                a.sin(),
                a.cos(),
                a.tan(),
                a.exp(),
                p.ln(),
                p.sqrt(),
                a.cbrt(),
                a / b,
                p.powf(b),
                a.tanh(),
            ]
        },
    );
}

fn singles_more(gpu: &Gpu) {
    // The bound of 1 for expm1f was measured with the bits of a device's `ex2.approx`; with others it is 1.04.
    let ulps = [2.0, 4.0, 2.0, 3.0, 2.0, 2.0, 1.0, 1.0, 1.1, 2.0];
    check_f32(
        gpu,
        "singles_more",
        &singles(),
        ulps,
        |Doubles { a, b, c }| {
            let p = a.abs();
            let e = (libm::erf(a), libm::erfc(a));
            [
                e.0,
                e.1,
                a.atan(),
                a.atan2(b),
                c.asin(),
                a.exp2(),
                p.log2(),
                p.ln_1p(),
                a.exp_m1(),
                1.0 / p.sqrt(),
            ]
        },
    );
}

/// Intrinsics: absolute errors where the documentation gives those.
fn singles_fast(gpu: &Gpu) {
    let want = |x: Floats| {
        let (a, b, c) = (f64::from(x.a), f64::from(x.b), f64::from(x.c));
        [
            c.sin(),
            c.cos(),
            a.exp(),
            a.abs().ln(),
            a / b,
            a.abs().powf(c),
        ]
        .map(f64::to_bits)
    };
    let inputs: Vec<_> = singles().into_iter().filter(|x| x.a.abs() > 1e-2).collect();
    gpu.map_with("singles_fast", &inputs, want, |i, got, want| {
        let (got, want) = (f64::from(f32::from_bits(got as u32)), f64::from_bits(want));
        let bound = match i {
            0 | 1 => 2f64.powi(-20),
            3 => 2f64.powi(-19),
            _ => want.abs() * 1e-5,
        };
        (got - want).abs() <= bound
    });
}

fn singles_large(gpu: &Gpu) {
    let mut random = Random::new(32);
    let inputs: Vec<_> = (0..400)
        .map(|i| Operands {
            a: (random.unit() * 10f64.powi(i % 38)) as f32,
            b: 0.0,
            c: 0.0,
        })
        .collect();
    check_f32(
        gpu,
        "singles_large",
        &inputs,
        [2.0, 2.0],
        |Doubles { a, .. }| [a.sin(), a.cos()],
    );
}
