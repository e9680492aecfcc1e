//! Operands: borders first, then random bits, always the same.

use crate::common::device::Operands;

/// A xorshift generator; the suite needs variety, not quality.
pub(crate) struct Random(u64);

impl Random {
    /// One for each test, by a seed of its own.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Uniform in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * 2f64.powi(-53)
    }
}

/// All triples of borders, then `more` random ones.
fn triples<T: Copy>(borders: &[T], more: usize, mut random: impl FnMut() -> T) -> Vec<Operands<T>> {
    let mut all = Vec::new();
    for (i, &a) in borders.iter().enumerate() {
        for (j, &b) in borders.iter().enumerate() {
            all.push(Operands {
                a,
                b,
                c: borders[(i * 5 + j * 3) % borders.len()],
            });
        }
    }
    all.extend((0..more).map(|_| Operands {
        a: random(),
        b: random(),
        c: random(),
    }));
    all
}

/// Integers of all sizes.
pub(crate) fn integers() -> Vec<Operands<u64>> {
    let mut random = Random::new(1);
    let borders = [
        0,
        1,
        2,
        3,
        31,
        32,
        0x7f,
        0x80,
        0xff,
        0x7fff,
        0x8000,
        0xffff,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
    ];
    let wide = [
        1 << 32,
        i64::MAX as u64,
        i64::MIN as u64,
        u64::MAX,
        u64::MAX - 1,
        0xffff_ffff_8000_0000,
    ];
    triples(&[&borders[..], &wide].concat(), 600, || {
        let shift = random.bits() % 64;
        random.bits() >> shift
    })
}

/// Singles: zeros, subnormals, infinities, NaN, the usual and random bits.
pub(crate) fn singles() -> Vec<Operands<f32>> {
    let mut random = Random::new(2);
    let tiny = f32::from_bits(1);
    let borders = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        2.5,
        -2.5,
        3.0,
        1e10,
        -1e10,
        3e9,
        -3e9,
        1e20,
        f32::MAX,
        f32::MIN,
        f32::MIN_POSITIVE,
        f32::MIN_POSITIVE / 2.0,
        tiny,
        -tiny,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1.0 + f32::EPSILON,
        65_504.0,
        65_520.0,
    ];
    triples(&borders, 800, || match random.bits() % 3 {
        0 => f32::from_bits(random.bits() as u32),
        1 => ((random.unit() - 0.5) * 1000.0) as f32,
        _ => f32::from_bits(random.bits() as u32 & 0x83ff_ffff | 0x3c00_0000),
    })
}

/// Doubles, as [`singles`].
pub(crate) fn doubles() -> Vec<Operands<f64>> {
    let mut random = Random::new(3);
    let tiny = f64::from_bits(1);
    let borders = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        2.5,
        -2.5,
        3.0,
        1e10,
        -1e10,
        1e19,
        -1e19,
        1e300,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        f64::MIN_POSITIVE / 2.0,
        tiny,
        -tiny,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        1.0 + f64::EPSILON,
        65_519.99,
        65_520.0,
    ];
    triples(&borders, 800, || match random.bits() % 3 {
        0 => f64::from_bits(random.bits()),
        1 => (random.unit() - 0.5) * 1000.0,
        _ => f64::from_bits(random.bits() & 0x80ff_ffff_ffff_ffff | 0x3f00_0000_0000_0000),
    })
}

/// `count` numbers below `limit`.
pub(crate) fn below(limit: u32, count: usize, seed: u64) -> Vec<u32> {
    let mut random = Random::new(seed);
    (0..count)
        .map(|_| (random.bits() >> 20) as u32 % limit)
        .collect()
}
