//! `ldmatrix` and `stmatrix`: 8×8 tiles of 16-bit elements between shared memory and fragments.
//!
//! A tile is eight rows of 16 bytes. Row r of tile t is at the address that lane `8 t + r` gives; the executor reads
//! or writes the rows, and this says which of their elements a lane's register holds.

use super::LANES;

/// A row of a tile as it lies in shared memory.
pub type Row = [u8; 16];

/// Row and column of the two elements in a lane's register.
fn places(lane: usize, transposed: bool) -> [(usize, usize); 2] {
    let (group, first) = (lane / 4, lane % 4 * 2);
    if transposed {
        [(first, group), (first + 1, group)]
    } else {
        [(group, first), (group, first + 1)]
    }
}

/// One register of `ldmatrix`, for all lanes, from the tile it holds.
pub fn load(tile: &[Row; 8], transposed: bool) -> [u32; LANES] {
    std::array::from_fn(|lane| {
        let [low, high] = places(lane, transposed).map(|(row, column)| {
            u16::from_le_bytes([tile[row][2 * column], tile[row][2 * column + 1]])
        });
        u32::from(low) | u32::from(high) << 16
    })
}

/// The tile that one register of `stmatrix` writes.
pub fn store(register: &[u32; LANES], transposed: bool) -> [Row; 8] {
    let mut tile = [[0; 16]; 8];
    for (lane, &word) in register.iter().enumerate() {
        let halves = [word as u16, (word >> 16) as u16];
        for ((row, column), half) in places(lane, transposed).into_iter().zip(halves) {
            tile[row][2 * column..2 * column + 2].copy_from_slice(&half.to_le_bytes());
        }
    }
    tile
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile() -> [Row; 8] {
        std::array::from_fn(|row| {
            std::array::from_fn(|byte| {
                if byte % 2 == 0 {
                    (8 * row + byte / 2) as u8
                } else {
                    0
                }
            })
        })
    }

    #[test]
    fn lanes_hold_neighbours_of_a_row_or_of_a_column() {
        let plain = load(&tile(), false);
        assert_eq!(
            &plain[..5],
            &[
                0x0001_0000,
                0x0003_0002,
                0x0005_0004,
                0x0007_0006,
                0x0009_0008
            ]
        );
        let transposed = load(&tile(), true);
        assert_eq!(
            &transposed[..5],
            &[
                0x0008_0000,
                0x0018_0010,
                0x0028_0020,
                0x0038_0030,
                0x0009_0001
            ]
        );
    }

    #[test]
    fn store_undoes_load() {
        for transposed in [false, true] {
            assert_eq!(store(&load(&tile(), transposed), transposed), tile());
        }
    }
}
