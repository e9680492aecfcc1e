//! Products of int8 matrices, 32×32 at a time, and what the processor has for them.
//!
//! A panel is 16 columns of bytes. A [`Tile`] is 64 rows of one, four rows to a double word: `[row / 4][column][row % 4]`,
//! which is what dot products of four bytes read, and the right operand of AMX as it stands (VNNI format). A step adds
//! 2×2 tiles into a [`Square`] of 32-bit sums.
//!
//! | | a step's products | instruction |
//! |---|---|---|
//! | AMX | 1,024 a cycle: four 16×16 tiles of sums, two of each operand, all eight registers | `tdpbssd` |
//! | AVX-512 VNNI | 128 a cycle where there are two units: 8×32 sums in 16 registers | `vpdpbusd` |
//!
//! AMX goes through [`Tiled`], the same loop for its registers and for their stand-in in plain code, which any machine can
//! test.

use std::borrow::Cow;

#[cfg(target_arch = "x86_64")]
use super::intrinsics;
use crate::engine::cpu::kernel::Isa;

/// Columns of a panel: the lanes of a vector, and the rows and columns of a tile of sums.
pub(super) const LANES: usize = 16;
/// Rows of a tile.
pub(super) const DEPTH: usize = 64;
/// Rows in a double word.
pub(super) const QUAD: usize = 4;
/// Columns of a pair of panels: the side of a [`Square`].
pub(super) const SIDE: usize = 2 * LANES;

/// 64 rows of a panel: `[row / 4][column]`, with row % 4 in byte row % 4 of the double word.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Tile(pub(super) [[u32; LANES]; DEPTH / QUAD]);

impl Tile {
    pub(super) const ZERO: Self = Self([[0; LANES]; DEPTH / QUAD]);

    /// Returns the tile with rows for columns: `[column][row / 4]`, the left operand of AMX.
    fn turned(&self) -> Self {
        let mut out = Self::ZERO;
        for (k, line) in self.0.iter().enumerate() {
            for (column, &quad) in line.iter().enumerate() {
                out.0[column][k] = quad;
            }
        }
        out
    }
}

/// Sums of products of two pairs of panels: `[left column][right column]`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Square(pub(super) [[i32; SIDE]; SIDE]);

impl Square {
    pub(super) const ZERO: Self = Self([[0; SIDE]; SIDE]);
}

/// A pair of panels, prepared to be multiplied from the left by many others.
pub(super) struct Left<'a> {
    pub(super) panels: [Cow<'a, [Tile]>; 2],
    /// Sums of the columns, where the unit has a use for them.
    pub(super) sums: [i32; SIDE],
}

/// Products of int8 matrices.
pub(super) trait Products {
    /// Prepares a pair of panels.
    fn left<'a>(&self, panels: [&'a [Tile]; 2]) -> Left<'a>;

    /// Adds Σ_k left[k][i]·right[k][j] over as many tiles as the panels have. Sums are to stay within 32 bits.
    fn add(&mut self, left: &Left<'_>, right: [&[Tile]; 2], sums: &mut Square);
}

/// The int8 units that a processor has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Int8 {
    /// Tiles of AMX.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    Amx(intrinsics::Amx),
    /// AVX-512 VNNI.
    #[cfg(target_arch = "x86_64")]
    Vnni(intrinsics::Vnni),
    /// Stand-in for AMX on any machine: its loop, on tile registers in plain code. For tests; never the fastest.
    StandIn,
}

impl Int8 {
    /// Returns the units of this processor, the fastest first.
    pub(super) fn all() -> Vec<Self> {
        let mut all = Vec::new();
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        all.extend(intrinsics::Amx::detect().map(Self::Amx));
        #[cfg(target_arch = "x86_64")]
        all.extend(intrinsics::Vnni::detect().map(Self::Vnni));
        all.push(Self::StandIn);
        all
    }

    /// Returns whether this is faster than f64 units, which go by `isa`, on integers of so many bits.
    pub(super) fn wins(self, isa: Isa, bits: u32) -> bool {
        match (self, isa) {
            // Eight times the products of VNNI.
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            (Self::Amx(_), Isa::Avx512(_)) => true,
            // By measurement (docs/exact.md): at 20 and 41 bits they are alike, at 22 f64 units are ahead.
            #[cfg(target_arch = "x86_64")]
            (Self::Vnni(_), Isa::Avx512(_)) => matches!(bits, 13 | 27 | 34),
            _ => false,
        }
    }

    /// Returns the name that reports print.
    pub(super) fn name(self) -> &'static str {
        match self {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Self::Amx(_) => "int8 units (AMX)",
            #[cfg(target_arch = "x86_64")]
            Self::Vnni(_) => "int8 units (AVX-512 VNNI)",
            Self::StandIn => "int8 units (stand-in)",
        }
    }

    /// Returns the unit, ready for products on this thread.
    pub(super) fn start(self) -> Box<dyn Products> {
        match self {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Self::Amx(amx) => Box::new(Tiled(amx.configure())),
            #[cfg(target_arch = "x86_64")]
            Self::Vnni(vnni) => Box::new(vnni),
            Self::StandIn => Box::new(Tiled(stand_in::Registers::default())),
        }
    }
}

/// Eight registers of 16 rows by 64 bytes.
pub(super) trait Registers {
    /// Returns a tile with rows for columns, as left operands are.
    fn turned(&self, tile: &Tile) -> Tile {
        tile.turned()
    }

    /// Loads a tile of bytes.
    fn load<const T: u8>(&mut self, tile: &Tile);

    /// Loads the 16×16 sums from this row and column on.
    fn load_sums<const T: u8>(&mut self, sums: &Square, row: usize, column: usize);

    /// Stores the 16×16 sums from this row and column on.
    fn store_sums<const T: u8>(&self, sums: &mut Square, row: usize, column: usize);

    /// Adds the products of register `A`, `[row][k]`, and `B`, `[k / 4][column][k % 4]`, signed bytes both, to `C`.
    fn dot<const C: u8, const A: u8, const B: u8>(&mut self);
}

/// Products on tile registers: 0 to 3 have the sums, 4 and 5 the left operand, 6 and 7 the right one.
struct Tiled<R>(R);

impl<R: Registers> Products for Tiled<R> {
    fn left<'a>(&self, panels: [&'a [Tile]; 2]) -> Left<'a> {
        Left {
            panels: panels.map(|panel| {
                let turned = panel.iter().map(|tile| self.0.turned(tile));
                turned.collect()
            }),
            sums: [0; SIDE],
        }
    }

    fn add(&mut self, left: &Left<'_>, right: [&[Tile]; 2], sums: &mut Square) {
        let Self(registers) = self;
        registers.load_sums::<0>(sums, 0, 0);
        registers.load_sums::<1>(sums, 0, LANES);
        registers.load_sums::<2>(sums, LANES, 0);
        registers.load_sums::<3>(sums, LANES, LANES);
        let left = left.panels[0].iter().zip(left.panels[1].iter());
        let right = right[0].iter().zip(right[1]);
        for ((upper, lower), (first, second)) in left.zip(right) {
            registers.load::<4>(upper);
            registers.load::<6>(first);
            registers.dot::<0, 4, 6>();
            registers.load::<7>(second);
            registers.dot::<1, 4, 7>();
            registers.load::<5>(lower);
            registers.dot::<2, 5, 6>();
            registers.dot::<3, 5, 7>();
        }
        registers.store_sums::<0>(sums, 0, 0);
        registers.store_sums::<1>(sums, 0, LANES);
        registers.store_sums::<2>(sums, LANES, 0);
        registers.store_sums::<3>(sums, LANES, LANES);
    }
}

/// Tile registers in plain code.
mod stand_in {
    use super::{LANES, QUAD, Square, Tile};

    #[derive(Default)]
    pub(super) struct Registers([[[u32; LANES]; LANES]; 8]);

    impl super::Registers for Registers {
        fn load<const T: u8>(&mut self, tile: &Tile) {
            self.0[usize::from(T)] = tile.0;
        }

        fn load_sums<const T: u8>(&mut self, sums: &Square, row: usize, column: usize) {
            for (to, from) in self.0[usize::from(T)].iter_mut().zip(&sums.0[row..]) {
                for (to, &from) in to.iter_mut().zip(&from[column..]) {
                    *to = from.cast_unsigned();
                }
            }
        }

        fn store_sums<const T: u8>(&self, sums: &mut Square, row: usize, column: usize) {
            for (from, to) in self.0[usize::from(T)].iter().zip(&mut sums.0[row..]) {
                for (&from, to) in from.iter().zip(&mut to[column..]) {
                    *to = from.cast_signed();
                }
            }
        }

        /// `tdpbssd` as the manual has it, whose sums wrap.
        fn dot<const C: u8, const A: u8, const B: u8>(&mut self) {
            let bytes = |quad: u32| quad.to_le_bytes().map(|byte| i32::from(byte.cast_signed()));
            for m in 0..LANES {
                for k in 0..LANES {
                    let a = bytes(self.0[usize::from(A)][m][k]);
                    for n in 0..LANES {
                        let b = bytes(self.0[usize::from(B)][k][n]);
                        let products: i32 = (0..QUAD).map(|i| a[i] * b[i]).sum();
                        let sum = &mut self.0[usize::from(C)][m][n];
                        *sum = sum.wrapping_add_signed(products);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn byte(seed: &mut u64) -> u8 {
        *seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        match *seed >> 61 {
            0 => 0x80,
            1 => 0x7f,
            2 => 0,
            _ => (*seed >> 50) as u8,
        }
    }

    fn panel(tiles: usize, seed: &mut u64) -> Vec<Tile> {
        let mut out = vec![Tile::ZERO; tiles];
        for quad in out.iter_mut().flat_map(|tile| tile.0.as_flattened_mut()) {
            *quad = u32::from_le_bytes([(); QUAD].map(|()| byte(seed)));
        }
        out
    }

    fn at(panels: [&[Tile]; 2], k: usize, column: usize) -> i32 {
        let tile = &panels[column / LANES][k / DEPTH];
        let quad = tile.0[k % DEPTH / QUAD][column % LANES];
        i32::from(quad.to_le_bytes()[k % QUAD].cast_signed())
    }

    /// Random bytes with many extremes, and extremes alone as far as 32 bits hold their sums.
    #[test]
    fn every_unit_multiplies_as_loops_do() {
        let seed = &mut 7;
        let draws = [1, 2, 9, 17].map(|tiles| [(); 4].map(|()| panel(tiles, seed)));
        for panels in &draws {
            let [a, b, c, d] = panels;
            let (left, right) = ([a.as_slice(), b], [c.as_slice(), d]);
            let mut wanted = Square::ZERO;
            for (i, row) in wanted.0.iter_mut().enumerate() {
                for (j, sum) in row.iter_mut().enumerate() {
                    let products = (0..a.len() * DEPTH).map(|k| at(left, k, i) * at(right, k, j));
                    *sum = 1000 * i as i32 - j as i32 + products.sum::<i32>();
                }
            }
            for unit in Int8::all() {
                let mut products = unit.start();
                let mut found = Square::ZERO;
                for (i, row) in found.0.iter_mut().enumerate() {
                    for (j, sum) in row.iter_mut().enumerate() {
                        *sum = 1000 * i as i32 - j as i32;
                    }
                }
                let left = products.left(left);
                products.add(&left, right, &mut found);
                assert_eq!(found.0, wanted.0, "{}: {} tiles", unit.name(), a.len());
            }
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn vectors_turn_tiles_as_loops_do() {
        if let Some(vectors) = intrinsics::Vnni::detect() {
            for tile in panel(9, &mut 3) {
                assert_eq!(vectors.turned(&tile).0, tile.turned().0);
            }
        }
    }

    #[test]
    fn sums_may_be_as_large_as_32_bits_hold() {
        let all = |byte: u8| vec![Tile([[u32::from_le_bytes([byte; QUAD]); LANES]; LANES]); 1024];
        let (least, most) = (all(0x80), all(0x7f));
        for unit in Int8::all() {
            let mut products = unit.start();
            let mut sums = Square::ZERO;
            let left = products.left([&least, &most]);
            products.add(&left, [&most, &least], &mut sums);
            let rows = 1024 * DEPTH as i32;
            for i in [0, LANES - 1, LANES, SIDE - 1] {
                let wanted = |j: usize| match (i < LANES, j < LANES) {
                    (true, true) | (false, false) => -128 * 127 * rows,
                    (true, false) => 128 * 128 * rows,
                    (false, true) => 127 * 127 * rows,
                };
                let row: [i32; SIDE] = std::array::from_fn(wanted);
                assert_eq!(sums.0[i], row, "{}: row {i}", unit.name());
            }
        }
    }
}
