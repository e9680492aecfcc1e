//! `D = A B + C` on fragments: `mma.sync` and `wmma.mma`.

use super::{
    Element, LANES, Shape,
    layout::{Family, Fragment, Role},
};
use crate::arith::{
    Rounding,
    convert::{self, Number},
    float::CANONICAL_F32,
    half::Half,
    lanes,
};

/// One kind of product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mma {
    /// Whose layout the fragments have.
    pub family: Family,
    /// Its sizes.
    pub shape: Shape,
    /// Elements of A.
    pub a: Element,
    /// Elements of B.
    pub b: Element,
    /// Elements of C.
    pub c: Element,
    /// Elements of D.
    pub d: Element,
    /// `.satfinite` of integers: clamp instead of wrapping.
    pub saturate: bool,
}

/// The greatest m·k, k·n or m·n of any shape.
const MOST: usize = 512;

impl Mma {
    /// How the warp holds one of its matrices.
    pub fn fragment(&self, role: Role) -> Fragment {
        let element = match role {
            Role::A => self.a,
            Role::B => self.b,
            Role::C => self.c,
        };
        Fragment {
            family: self.family,
            role,
            shape: self.shape,
            element,
        }
    }

    /// How the warp holds the result.
    pub fn result(&self) -> Fragment {
        Fragment {
            element: self.d,
            ..self.fragment(Role::C)
        }
    }

    /// Multiplications and additions, two for each product.
    pub fn operations(&self) -> u64 {
        let Shape { m, n, k } = self.shape;
        2 * (m * n * k) as u64
    }

    /// Runs it: each reader gives a register of a lane (register, lane), the writer takes one.
    pub fn run(
        &self,
        a: impl Fn(usize, usize) -> u64,
        b: impl Fn(usize, usize) -> u64,
        c: impl Fn(usize, usize) -> u64,
        mut d: impl FnMut(usize, usize, u64),
    ) {
        let (mut left, mut right, mut sums) = ([0.0; MOST], [0.0; MOST], [0.0; MOST]);
        gather(&self.fragment(Role::A), a, &mut left);
        gather(&self.fragment(Role::B), b, &mut right);
        gather(&self.fragment(Role::C), c, &mut sums);
        multiply(self.shape, &left, &right, &mut sums);
        let result = self.result();
        for register in 0..result.registers() {
            let mut words = [0; LANES];
            for index in 0..self.d.per_register() {
                let run = result.run(register, index);
                for (lane, word) in words.iter_mut().enumerate() {
                    let sum = sums[run.place(lane) % MOST];
                    *word |= self.encode(sum) << (index * self.d.bits());
                }
            }
            for (lane, word) in words.into_iter().enumerate() {
                d(register, lane, word);
            }
        }
    }

    /// The one rounding of a result.
    fn encode(&self, sum: f64) -> u64 {
        match self.d {
            Element::F64 => sum.to_bits(),
            Element::F32 if sum.is_nan() => CANONICAL_F32.to_bits().into(),
            Element::F32 => (sum as f32).to_bits().into(),
            Element::F16 => Half::F16.from_f64(sum, Rounding::Nearest).into(),
            Element::S32 if self.saturate => (sum as i32 as u32).into(),
            // The sum of 32 products of bytes and an i32 is an integer well within f64.
            Element::S32 => (sum as i64 as u32).into(),
            other => unreachable!("{other:?} is no accumulator"),
        }
    }
}

/// The matrix of a fragment, row-major.
fn gather(fragment: &Fragment, read: impl Fn(usize, usize) -> u64, matrix: &mut [f64; MOST]) {
    match fragment.element {
        Element::F64 => fill(fragment, read, matrix, f64::from_bits),
        Element::F32 => fill(fragment, read, matrix, |bits| {
            f32::from_bits(bits as u32).into()
        }),
        Element::Tf32 => fill(fragment, read, matrix, |bits| {
            f32::from_bits(bits as u32 & !0x1fff).into()
        }),
        Element::F16 => fill(fragment, read, matrix, |bits| {
            Half::F16.to_f32(bits as u16).into()
        }),
        Element::Bf16 => fill(fragment, read, matrix, |bits| {
            Half::Bf16.to_f32(bits as u16).into()
        }),
        Element::S8 => fill(fragment, read, matrix, |bits| (bits as i8).into()),
        Element::U8 => fill(fragment, read, matrix, |bits| (bits as u8).into()),
        Element::S32 => fill(fragment, read, matrix, |bits| (bits as i32).into()),
        Element::E4m3 => fill(fragment, read, matrix, |bits| {
            convert::to_f64(Number::E4m3, bits & 0xff)
        }),
        Element::E5m2 => fill(fragment, read, matrix, |bits| {
            convert::to_f64(Number::E5m2, bits & 0xff)
        }),
    }
}

/// With the value of the element that lies in the lower bits of a word.
#[inline(always)]
fn fill(
    fragment: &Fragment,
    read: impl Fn(usize, usize) -> u64,
    matrix: &mut [f64; MOST],
    value: impl Fn(u64) -> f64,
) {
    let (rows, columns) = fragment.size();
    let (size, bits) = (rows * columns, fragment.element.bits());
    for register in 0..fragment.registers() {
        let words: [u64; LANES] = std::array::from_fn(|lane| read(register, lane));
        for index in 0..fragment.element.per_register() {
            let run = fragment.run(register, index);
            for (lane, word) in words.iter().enumerate() {
                // Every size is a power of two, so that this is the place modulo the size.
                matrix[run.place(lane) & (size - 1) & (MOST - 1)] = value(word >> (index * bits));
            }
        }
    }
}

lanes! {
    /// `sums += left right`, each sum a chain of fused multiply-adds in ascending k.
    fn multiply(shape: Shape, left: &[f64; MOST], right: &[f64; MOST], sums: &mut [f64; MOST]) {
        let Shape { m, n, k } = shape;
        for row in 0..m {
            let sums = &mut sums[row * n..(row + 1) * n];
            for step in 0..k {
                let factor = left[row * k + step];
                for (sum, &other) in sums.iter_mut().zip(&right[step * n..(step + 1) * n]) {
                    *sum = factor.mul_add(other, *sum);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Registers = Vec<[u64; LANES]>;

    /// Registers that hold a matrix given by a function of row and column.
    fn scatter(fragment: &Fragment, value: impl Fn(usize, usize) -> u64) -> Registers {
        let mut registers = vec![[0; LANES]; fragment.registers()];
        for (register, lanes) in registers.iter_mut().enumerate() {
            for (lane, word) in lanes.iter_mut().enumerate() {
                for index in 0..fragment.element.per_register() {
                    let (row, column) = fragment.position(lane, register, index);
                    *word |= value(row, column) << (index * fragment.element.bits());
                }
            }
        }
        registers
    }

    fn encode(element: Element, x: i64) -> u64 {
        match element {
            Element::F16 => Half::F16.from_f32(x as f32).into(),
            Element::Bf16 => Half::Bf16.from_f32(x as f32).into(),
            Element::Tf32 | Element::F32 => (x as f32).to_bits().into(),
            Element::F64 => (x as f64).to_bits(),
            Element::S8 | Element::U8 => (x as u8).into(),
            Element::S32 => (x as u32).into(),
            Element::E4m3 => convert::convert(
                Number::E4m3,
                Number::F64,
                (x as f64).to_bits(),
                Default::default(),
            ),
            Element::E5m2 => convert::convert(
                Number::E5m2,
                Number::F64,
                (x as f64).to_bits(),
                Default::default(),
            ),
        }
    }

    /// Small integers, exact in every type, that no permutation of rows, columns or steps leaves in place: D must be
    /// the product of matrices that are written down by coordinates alone.
    #[test]
    fn products_of_every_shape_and_type() {
        use Element::*;
        let kinds = [
            (Family::Mma, (16, 8, 8), F16, F16, F32, F32),
            (Family::Mma, (16, 8, 16), F16, F16, F32, F32),
            (Family::Mma, (16, 8, 16), F16, F16, F16, F16),
            (Family::Mma, (16, 8, 16), Bf16, Bf16, F32, F32),
            (Family::Mma, (16, 8, 4), Tf32, Tf32, F32, F32),
            (Family::Mma, (16, 8, 8), Tf32, Tf32, F32, F32),
            (Family::Mma, (8, 8, 4), F64, F64, F64, F64),
            (Family::Mma, (16, 8, 4), F64, F64, F64, F64),
            (Family::Mma, (16, 8, 8), F64, F64, F64, F64),
            (Family::Mma, (16, 8, 16), F64, F64, F64, F64),
            (Family::Mma, (8, 8, 16), S8, S8, S32, S32),
            (Family::Mma, (16, 8, 16), S8, S8, S32, S32),
            (Family::Mma, (16, 8, 32), U8, S8, S32, S32),
            (Family::Mma, (16, 8, 32), E4m3, E5m2, F32, F32),
            (Family::Wmma, (16, 16, 16), F16, F16, F32, F32),
            (Family::Wmma, (8, 32, 16), F16, F16, F16, F32),
            (Family::Wmma, (32, 8, 16), Bf16, Bf16, F32, F32),
            (Family::Wmma, (16, 16, 8), Tf32, Tf32, F32, F32),
            (Family::Wmma, (8, 8, 4), F64, F64, F64, F64),
            (Family::Wmma, (16, 16, 16), U8, U8, S32, S32),
        ];
        for (family, (m, n, k), a, b, c, d) in kinds {
            let mma = Mma {
                family,
                shape: Shape { m, n, k },
                a,
                b,
                c,
                d,
                saturate: false,
            };
            // Exact in three bits of significand, different along rows and columns.
            let left = |row: usize, step: usize| {
                [1, 2, 3, 4, 5, 6, 0][(row * 3 + step * 5 + row * step) % 7]
            };
            let right = |step: usize, column: usize| {
                [2, 0, 1, 3, 4][(step * 2 + column * 3 + step * column) % 5]
            };
            let addend = |row: usize, column: usize| (row * n + column) as i64;
            let (fa, fb, fc) = (
                mma.fragment(Role::A),
                mma.fragment(Role::B),
                mma.fragment(Role::C),
            );
            let ra = scatter(&fa, |row, step| encode(a, left(row, step)));
            let rb = scatter(&fb, |step, column| encode(b, right(step, column)));
            let rc = scatter(&fc, |row, column| encode(c, addend(row, column)));
            let want = scatter(&mma.result(), |row, column| {
                let sum = (0..k)
                    .map(|step| left(row, step) * right(step, column))
                    .sum::<i64>();
                encode(d, sum + addend(row, column))
            });
            let mut got = vec![[0; LANES]; mma.result().registers()];
            mma.run(
                |r, l| ra[r][l],
                |r, l| rb[r][l],
                |r, l| rc[r][l],
                |r, l, word| got[r][l] = word,
            );
            assert_eq!(got, want, "{mma:?}");
        }
    }

    #[test]
    fn integers_wrap_or_clamp() {
        for (saturate, want) in [(false, i32::MIN + 127 * 127 * 16 - 1), (true, i32::MAX)] {
            let mma = Mma {
                family: Family::Mma,
                shape: Shape { m: 8, n: 8, k: 16 },
                a: Element::S8,
                b: Element::S8,
                c: Element::S32,
                d: Element::S32,
                saturate,
            };
            mma.run(
                |_, _| 0x7f7f_7f7f,
                |_, _| 0x7f7f_7f7f,
                |_, _| i32::MAX as u64,
                |_, _, word| assert_eq!(word as i32, want),
            );
        }
    }

    #[test]
    fn tf32_ignores_the_lower_bits() {
        let mma = Mma {
            family: Family::Mma,
            shape: Shape { m: 16, n: 8, k: 4 },
            a: Element::Tf32,
            b: Element::Tf32,
            c: Element::F32,
            d: Element::F32,
            saturate: false,
        };
        let one = u64::from(1f32.to_bits());
        mma.run(
            |_, _| one | 0x1fff,
            |_, _| one,
            |_, _| 0,
            |_, _, word| assert_eq!(f32::from_bits(word as u32), 4.0),
        );
    }
}
