//! Tile sizes as these tests compute grids with them, and that `tiles.h` agrees.

use std::fs;

use crate::Test;
use crate::device::kernels;

/// The tests, for `main.rs`.
pub(crate) const TESTS: &[Test] = &[("the_header_agrees", the_header_agrees)];

pub(crate) const ROW_BLOCK: usize = 512;
pub(crate) const TILE: usize = 64;
pub(crate) const TILE_NARROW: usize = 32;
pub(crate) const TILE_HALF: usize = 128;
pub(crate) const TALL: (usize, usize) = (128, 16);
pub(crate) const CLASS_SETS: usize = 8;
pub(crate) const CLASS_COLS: usize = 32;
pub(crate) const FACTOR_BLOCK: usize = 64;
pub(crate) const PLAIN: usize = 16;

/// The exact Gram: its tile, the rows and number of its stages, and the rows after which it drains.
pub(crate) struct Exact {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) depth: usize,
    pub(crate) stages: usize,
    pub(crate) drain: usize,
}
pub(crate) const EXACT: Exact = Exact {
    rows: 256,
    cols: 128,
    depth: 64,
    stages: 3,
    drain: 1 << 16,
};
/// Rows and columns that are cut into digits at a time.
pub(crate) const SLICE: (usize, usize) = (128, 32);

fn the_header_agrees() {
    let header = fs::read_to_string(kernels().join("common/tiles.h")).expect("tiles.h");
    let of = |name: &str| -> usize {
        let line = header
            .lines()
            .find_map(|line| line.strip_prefix(&format!("#define {name} ")));
        let value = line.unwrap_or_else(|| panic!("{name} is not in tiles.h"));
        value.trim().parse().expect("a number")
    };
    let here = [
        ROW_BLOCK,
        TILE,
        TILE_NARROW,
        TILE_HALF,
        TALL.0,
        TALL.1,
        CLASS_SETS,
        CLASS_COLS,
        FACTOR_BLOCK,
        PLAIN,
    ];
    let names = [
        "ROW_BLOCK",
        "TILE",
        "TILE_NARROW",
        "TILE_HALF",
        "TALL_ROWS",
        "TALL_COLS",
        "CLASS_SETS",
        "CLASS_COLS",
        "FACTOR_BLOCK",
        "PLAIN_SIDE",
    ];
    assert_eq!(names.map(of), here);
    let exact = ["ROWS", "COLS", "DEPTH", "STAGES", "DRAIN"];
    let Exact {
        rows,
        cols,
        depth,
        stages,
        drain,
    } = EXACT;
    assert_eq!(
        exact.map(|name| of(&format!("EXACT_{name}"))),
        [rows, cols, depth, stages, drain]
    );
    assert_eq!(["SLICE_ROWS", "SLICE_COLS"].map(of), [SLICE.0, SLICE.1]);
    // Blocks of threads, which the tests spell out.
    let threads = [
        "TILE_THREADS",
        "HALF_THREADS",
        "CLASS_THREADS",
        "EXACT_THREADS",
        "DIAGONAL_THREADS",
        "PANEL_THREADS",
        "ELEMENT_THREADS",
    ];
    assert_eq!(threads.map(of), [128, 256, 256, 256, 256, 64, 256]);
    assert_eq!(["MIRROR_TILE", "MIRROR_ROWS"].map(of), [32, 8]);
}
