//! Vectorised sine and cosine for random Fourier features, eight phases side by side.
//!
//! Plain code without branches, which the compiler turns into vectors. For |x| ≤ 2²⁰ the phase is reduced by the nearest
//! multiple of π/2, which is kept in three parts: with fused multiply-adds the first subtraction is exact, and the others
//! are within a rounding of the remainder. Polynomials of degree 13 and 14 follow (the coefficients are those of fdlibm).
//! **The error is at most 2 units in the last place** of the result; a test holds it against the standard library's,
//! which is within one. Other phases, and what is not a number, go to the standard library.

use super::kernel::{Kernel, Line, PANEL, Work};

/// Phases per step.
const LANES: usize = 8;
/// The largest phase for which the reduction is good.
const LIMIT: f64 = (1 << 20) as f64;
/// π/2 in three parts, of which the first two are f64 numbers nearest to what is left.
const HALF_PI: [f64; 3] = [
    std::f64::consts::FRAC_PI_2,
    6.123_233_995_736_766e-17,
    -1.497_384_904_859_183_3e-33,
];
/// Added to a number, it leaves the nearest integer in the last bits.
const ROUND: f64 = 6_755_399_441_055_744.0;

const SINE: [f64; 6] = [
    -1.666_666_666_666_663_2e-1,
    8.333_333_333_322_49e-3,
    -1.984_126_982_985_795e-4,
    2.755_731_370_707_006_8e-6,
    -2.505_076_025_340_686_3e-8,
    1.589_690_995_211_55e-10,
];
const COSINE: [f64; 6] = [
    4.166_666_666_666_66e-2,
    -1.388_888_888_887_411e-3,
    2.480_158_728_947_673e-5,
    -2.755_731_435_139_066_3e-7,
    2.087_572_321_298_175e-9,
    -1.135_964_755_778_819_5e-11,
];

/// Computes cos and sin of each phase, times `scale`.
pub(super) struct SinCos<'a> {
    pub(super) phases: &'a [Line],
    pub(super) cosines: &'a mut [f64],
    pub(super) sines: &'a mut [f64],
    pub(super) scale: f64,
}

impl Work for SinCos<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, _: K) {
        let scale = self.scale;
        let cosines = self.cosines.chunks_mut(PANEL);
        let sines = self.sines.chunks_mut(PANEL);
        for ((line, cosines), sines) in self.phases.iter().zip(cosines).zip(sines) {
            let phases = line.0.as_chunks::<LANES>().0.iter();
            let cosines = cosines.chunks_mut(LANES);
            let sines = sines.chunks_mut(LANES);
            for ((phases, cosines), sines) in phases.zip(cosines).zip(sines) {
                let (sin, cos) = sin_cos(phases);
                for (to, from) in cosines.iter_mut().zip(cos) {
                    *to = scale * from;
                }
                for (to, from) in sines.iter_mut().zip(sin) {
                    *to = scale * from;
                }
            }
        }
    }
}

/// Returns the sines and cosines of a vector of phases.
#[inline(always)]
fn sin_cos(phases: &[f64; LANES]) -> ([f64; LANES], [f64; LANES]) {
    let (mut sines, mut cosines) = ([0.0; LANES], [0.0; LANES]);
    // Written so that NaN is not among them.
    if phases.iter().all(|x| x.abs() <= LIMIT) {
        for k in 0..LANES {
            (sines[k], cosines[k]) = reduced(phases[k]);
        }
    } else {
        for k in 0..LANES {
            (sines[k], cosines[k]) = phases[k].sin_cos();
        }
    }
    (sines, cosines)
}

/// Returns sine and cosine of a phase within [`LIMIT`], by Cody–Waite reduction.
#[inline(always)]
fn reduced(x: f64) -> (f64, f64) {
    let shifted = x.mul_add(std::f64::consts::FRAC_2_PI, ROUND);
    let turns = shifted - ROUND;
    let quadrant = shifted.to_bits();
    let r = (-turns).mul_add(HALF_PI[0], x);
    let r = (-turns).mul_add(HALF_PI[1], r);
    let r = (-turns).mul_add(HALF_PI[2], r);
    let z = r * r;
    let sin = (z * r).mul_add(polynomial(z, &SINE), r);
    // 1 − z/2 loses what is added back last.
    let half = 0.5 * z;
    let most = 1.0 - half;
    let cos = most + (z * z).mul_add(polynomial(z, &COSINE), (1.0 - most) - half);
    let odd = quadrant & 1 == 1;
    let (sin, cos) = if odd { (cos, sin) } else { (sin, cos) };
    let negate = |value: f64, bits: u64| f64::from_bits(value.to_bits() ^ ((bits & 2) << 62));
    (negate(sin, quadrant), negate(cos, quadrant.wrapping_add(1)))
}

#[inline(always)]
fn polynomial(z: f64, coefficients: &[f64; 6]) -> f64 {
    let mut value = coefficients[5];
    for &coefficient in coefficients[..5].iter().rev() {
        value = value.mul_add(z, coefficient);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::super::kernel::Isa;
    use super::*;

    fn evaluate(isa: Isa, phases: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (mut cosines, mut sines) = (vec![0.0; phases.len()], vec![0.0; phases.len()]);
        let mut lines = vec![Line::ZERO; phases.len().div_ceil(PANEL)];
        for (line, phases) in lines.iter_mut().zip(phases.chunks(PANEL)) {
            line.0[..phases.len()].copy_from_slice(phases);
        }
        isa.run(SinCos {
            phases: &lines,
            cosines: &mut cosines,
            sines: &mut sines,
            scale: 1.0,
        });
        (sines, cosines)
    }

    /// Difference in units of the last place of `expected`.
    fn units(found: f64, expected: f64) -> f64 {
        let size = expected.abs().max(f64::MIN_POSITIVE);
        let unit = f64::from_bits(size.to_bits() + 1) - size;
        (found - expected).abs() / unit
    }

    /// Phases of all sizes up to the limit, and those nearest to multiples of π/2, where reduction is hardest.
    #[test]
    fn errors_are_within_two_units_in_the_last_place() {
        let mut phases = vec![0.0, -0.0, 1e-300, 1e-9, LIMIT, -LIMIT];
        for k in 0..400_000_u64 {
            let unit = (k.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1_u64 << 53) as f64;
            phases.push((unit - 0.5) * 20.0);
            phases.push((unit - 0.5) * 2.0 * LIMIT);
            phases.push((k as f64) * std::f64::consts::FRAC_PI_2);
        }
        phases.retain(|x| x.abs() <= LIMIT);
        let (sines, cosines) = evaluate(Isa::detect(), &phases);
        let mut worst = 0.0_f64;
        for (k, x) in phases.iter().enumerate() {
            let (sin, cos) = x.sin_cos();
            worst = worst.max(units(sines[k], sin)).max(units(cosines[k], cos));
        }
        assert!(worst <= 2.0, "off by {worst} units");
        // The standard library is not asked for these, or it would be nothing.
        assert!(worst > 0.0);
    }

    #[test]
    fn instruction_sets_agree_and_other_phases_go_to_the_standard_library() {
        let phases = [
            0.1,
            -7.5,
            1e5,
            3e6,
            f64::NAN,
            f64::INFINITY,
            -1e300,
            2.0,
            5.0,
        ];
        let bits = |(a, b): (Vec<f64>, Vec<f64>)| -> Vec<u64> {
            a.into_iter().chain(b).map(f64::to_bits).collect()
        };
        let expected = bits(evaluate(Isa::Portable, &phases));
        for isa in Isa::all() {
            assert_eq!(bits(evaluate(isa, &phases)), expected, "{}", isa.name());
        }
        let (sines, cosines) = evaluate(Isa::detect(), &phases);
        assert_eq!((sines[3], cosines[3]), 3e6_f64.sin_cos());
        assert!(sines[4].is_nan() && cosines[5].is_nan());
    }
}
