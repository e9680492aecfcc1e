//! Against the host's own rounding modes, where the host is an x86-64.

use super::*;

/// Numbers that lie near every border: zeros, subnormals, powers of two and their neighbours, random bits.
struct Numbers(u64);

impl Numbers {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn f64(&mut self) -> f64 {
        let bits = self.bits();
        match self.bits() % 8 {
            0 => f64::from_bits(bits),
            1 => f64::from_bits(bits & 0x800f_ffff_ffff_ffff),
            2 => f64::from_bits(bits & 0x8000_0000_0000_0003),
            3 => f64::from_bits((bits & 0xfff0_0000_0000_0000) + (bits & 3)),
            4 => f64::from_bits(bits & 0x803f_ffff_ffff_ffff | 0x7fc0_0000_0000_0000),
            _ => f64::from_bits(bits & 0x80ff_ffff_ffff_ffff | 0x3f00_0000_0000_0000),
        }
    }

    fn f32(&mut self) -> f32 {
        let bits = self.bits() as u32;
        match self.bits() % 8 {
            0 => f32::from_bits(bits),
            1 => f32::from_bits(bits & 0x807f_ffff),
            2 => f32::from_bits(bits & 0x8000_0003),
            3 => f32::from_bits((bits & 0xff80_0000) + (bits & 3)),
            4 => f32::from_bits(bits & 0x81ff_ffff | 0x7e00_0000),
            _ => f32::from_bits(bits & 0x83ff_ffff | 0x3c00_0000),
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod host {
    use std::arch::asm;

    use super::Rounding;

    /// The control word with all exceptions masked and that rounding.
    fn control(rounding: Rounding) -> u32 {
        let field = match rounding {
            Rounding::Nearest => 0,
            Rounding::Down => 1,
            Rounding::Up => 2,
            Rounding::Zero => 3,
            Rounding::Away => unreachable!("not a mode of the host"),
        };
        0x1f80 | field << 13
    }

    macro_rules! operation {
        ($name:ident, $ty:ty, $instruction:literal) => {
            pub(super) fn $name(a: $ty, b: $ty, rounding: Rounding) -> $ty {
                let (mode, plain) = (control(rounding), control(Rounding::Nearest));
                let mut result = a;
                // SAFETY: the control word is set and put back within one block, which touches only its operands.
                unsafe {
                    asm!("ldmxcsr [{m}]", $instruction, "ldmxcsr [{p}]",
                        m = in(reg) &mode, p = in(reg) &plain, a = inout(xmm_reg) result, b = in(xmm_reg) b);
                }
                result
            }
        };
    }
    operation!(add_f64, f64, "addsd {a}, {b}");
    operation!(mul_f64, f64, "mulsd {a}, {b}");
    operation!(div_f64, f64, "divsd {a}, {b}");
    operation!(sqrt_f64, f64, "sqrtsd {a}, {b}");
    operation!(add_f32, f32, "addss {a}, {b}");
    operation!(mul_f32, f32, "mulss {a}, {b}");
    operation!(div_f32, f32, "divss {a}, {b}");
    operation!(sqrt_f32, f32, "sqrtss {a}, {b}");

    macro_rules! fused {
        ($name:ident, $ty:ty, $instruction:literal) => {
            pub(super) fn $name(a: $ty, b: $ty, c: $ty, rounding: Rounding) -> $ty {
                assert!(std::arch::is_x86_feature_detected!("fma"));
                let (mode, plain) = (control(rounding), control(Rounding::Nearest));
                let mut result = a;
                // SAFETY: as above; the instruction is there by the assertion.
                unsafe {
                    asm!("ldmxcsr [{m}]", $instruction, "ldmxcsr [{p}]", m = in(reg) &mode, p = in(reg) &plain,
                        a = inout(xmm_reg) result, b = in(xmm_reg) b, c = in(xmm_reg) c);
                }
                result
            }
        };
    }
    fused!(fma_f64, f64, "vfmadd213sd {a}, {b}, {c}");
    fused!(fma_f32, f32, "vfmadd213ss {a}, {b}, {c}");
}

const DIRECTIONS: [Rounding; 4] = [
    Rounding::Nearest,
    Rounding::Zero,
    Rounding::Down,
    Rounding::Up,
];

#[cfg(target_arch = "x86_64")]
#[test]
fn doubles_round_as_the_host_does_in_every_direction() {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let same = |got: f64, want: f64, what: &str| {
        assert!(
            got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
            "{what}: {got:e} for {want:e}"
        );
    };
    for i in 0..400_000 {
        let (a, b, mut c) = (numbers.f64(), numbers.f64(), numbers.f64());
        if i % 3 == 0 {
            // Cancellation: the addend near the product's negative.
            c = f64::from_bits(
                (-a * b)
                    .to_bits()
                    .wrapping_add(numbers.bits() % 5)
                    .wrapping_sub(2),
            );
        }
        for rounding in DIRECTIONS {
            let what = format!("{a:e} {b:e} {c:e} {rounding:?}");
            same(
                add_f64_directed(a, b, rounding),
                host::add_f64(a, b, rounding),
                &what,
            );
            same(
                mul_f64_directed(a, b, rounding),
                host::mul_f64(a, b, rounding),
                &what,
            );
            same(
                div_f64_directed(a, b, rounding),
                host::div_f64(a, b, rounding),
                &what,
            );
            same(
                sqrt_f64_directed(a, rounding),
                host::sqrt_f64(0.0, a, rounding),
                &what,
            );
            same(
                fma_f64_directed(a, b, c, rounding),
                host::fma_f64(a, b, c, rounding),
                &what,
            );
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn singles_round_as_the_host_does_in_every_direction() {
    let mut numbers = Numbers(0x1234_5678_9abc_def1);
    let same = |got: f32, want: f32, what: &str| {
        assert!(
            got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
            "{what}: {got:e} for {want:e}"
        );
    };
    for i in 0..400_000 {
        let (a, b, mut c) = (numbers.f32(), numbers.f32(), numbers.f32());
        if i % 3 == 0 {
            c = f32::from_bits(
                (-a * b)
                    .to_bits()
                    .wrapping_add(numbers.bits() as u32 % 5)
                    .wrapping_sub(2),
            );
        }
        for rounding in DIRECTIONS {
            let what = format!("{a:e} {b:e} {c:e} {rounding:?}");
            same(
                add_f32_directed(a, b, rounding),
                host::add_f32(a, b, rounding),
                &what,
            );
            same(
                mul_f32_directed(a, b, rounding),
                host::mul_f32(a, b, rounding),
                &what,
            );
            same(
                div_f32_directed(a, b, rounding),
                host::div_f32(a, b, rounding),
                &what,
            );
            same(
                sqrt_f32_directed(a, rounding),
                host::sqrt_f32(0.0, a, rounding),
                &what,
            );
            same(
                fma_f32_directed(a, b, c, rounding),
                host::fma_f32(a, b, c, rounding),
                &what,
            );
        }
    }
}

#[test]
fn modifiers_of_singles() {
    let ftz = Mode {
        ftz: true,
        ..Mode::RN
    };
    let sat = Mode {
        sat: true,
        ..Mode::RN
    };
    let tiny = f32::from_bits(1);
    assert_eq!(add_f32(tiny, tiny, Mode::RN).to_bits(), 2);
    assert_eq!(add_f32(-tiny, -tiny, ftz).to_bits(), 0x8000_0000);
    assert_eq!(mul_f32(f32::MIN_POSITIVE, 0.5, ftz), 0.0);
    assert_eq!(fma_f32(2.0, 3.0, tiny, ftz), 6.0);
    assert_eq!(
        add_f32(f32::INFINITY, f32::NEG_INFINITY, Mode::RN).to_bits(),
        0x7fff_ffff
    );
    assert_eq!(add_f32(f32::INFINITY, f32::NEG_INFINITY, sat).to_bits(), 0);
    assert_eq!(add_f32(0.75, 0.75, sat), 1.0);
    assert_eq!(mul_f32(-1.0, 0.0, sat).to_bits(), 0);
    let down = Mode {
        rounding: Rounding::Down,
        ..Mode::RN
    };
    assert_eq!(sub_f32(1.0, 1.0, down).to_bits(), 0x8000_0000);
    assert_eq!(
        rcp_f32(3.0, down).to_bits() + 1,
        rcp_f32(3.0, Mode::RN).to_bits()
    );
    assert_eq!(copysign_f32(-1.0, 2.0), -2.0);
    assert_eq!(neg_f32(tiny, true).to_bits(), 0x8000_0000);
    assert_eq!(abs_f32(-tiny, false).to_bits(), 1);
}

/// With operands that the compiler does not know, in every operation and direction.
#[test]
fn every_invalid_operation_gives_the_canonical_nan() {
    let unknown = std::hint::black_box([
        -1.0,
        0.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        -f32::NAN,
    ]);
    let [minus, zero, infinite, negative, nan, other] = unknown;
    for rounding in DIRECTIONS {
        let mode = Mode {
            rounding,
            ..Mode::RN
        };
        let results = [
            sqrt_f32(minus, mode),
            add_f32(infinite, negative, mode),
            sub_f32(infinite, infinite, mode),
            mul_f32(zero, infinite, mode),
            fma_f32(zero, infinite, minus, mode),
            div_f32(zero, zero, mode),
            rcp_f32(other, mode),
            add_f32(nan, minus, mode),
            fma_f32(minus, minus, other, mode),
        ];
        assert_eq!(results.map(f32::to_bits), [0x7fff_ffff; 9], "{rounding:?}");
    }
}
