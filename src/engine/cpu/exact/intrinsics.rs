//! Instructions on int8: the one module outside `gpu` with unsafe code.
//!
//! A function that is compiled for AVX-512 VNNI may be called only where the processor has it, which a [`Vnni`] stands for.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m512i, _mm512_dpbusd_epi32, _mm512_set1_epi32, _mm512_setzero_si512, _mm512_sub_epi32,
    _mm512_xor_si512,
};
use std::borrow::Cow;

use bytemuck::{cast, cast_ref};

use super::tiles::{LANES, Left, Products, SIDE, Square, Tile};

/// Proof that the processor has AVX-512 VNNI.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vnni(());

impl Vnni {
    pub(super) fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni");
        has.then_some(Self(()))
    }
}

/// Tiles that a panel's run has in the first-level cache: of 32 columns 16 KiB, and as many of the left ones.
const RUN: usize = 8;
/// Rows of sums that registers hold, 32 columns wide.
const ROWS: usize = 8;

impl Products for Vnni {
    fn left<'a>(&self, panels: [&'a [Tile]; 2]) -> Left<'a> {
        let mut sums = [0; SIDE];
        for (panel, sums) in panels.iter().zip(sums.as_chunks_mut::<LANES>().0) {
            // SAFETY: the processor has the features, as `self` was made by `detect`.
            unsafe { column_sums(panel, sums) };
        }
        Left {
            panels: panels.map(Cow::Borrowed),
            sums,
        }
    }

    fn add(&mut self, left: &Left<'_>, right: [&[Tile]; 2], sums: &mut Square) {
        // SAFETY: the processor has the features, as `self` was made by `detect`.
        unsafe { add(left, right, sums) };
    }
}

/// Adds up the columns of a panel.
#[target_feature(enable = "avx512f,avx512vnni")]
fn column_sums(panel: &[Tile], sums: &mut [i32; LANES]) {
    let ones = _mm512_set1_epi32(0x0101_0101);
    let mut sum = _mm512_setzero_si512();
    for line in panel.iter().flat_map(|tile| &tile.0) {
        sum = _mm512_dpbusd_epi32(sum, ones, *cast_ref::<_, __m512i>(line));
    }
    *sums = cast(sum);
}

/// [`Products::add`]. `vpdpbusd` takes bytes without sign on one side: (r + 128)·l is summed, and 128·Σ l subtracted. Both
/// wrap, and what comes of them is right as it fits.
#[target_feature(enable = "avx512f,avx512vnni")]
fn add(left: &Left<'_>, right: [&[Tile]; 2], sums: &mut Square) {
    let flip = _mm512_set1_epi32(0x8080_8080_u32.cast_signed());
    let runs = right[0].chunks(RUN).zip(right[1].chunks(RUN));
    for (run, (first, second)) in runs.enumerate() {
        for (block, rows) in sums.0.as_chunks_mut::<ROWS>().0.iter_mut().enumerate() {
            let column = block * ROWS;
            let panel = &left.panels[column / LANES][run * RUN..];
            let mut acc: [[__m512i; 2]; ROWS] = cast(*rows);
            if run == 0 {
                for (acc, &sum) in acc.iter_mut().zip(&left.sums[column..]) {
                    let taken = _mm512_set1_epi32(128 * sum);
                    *acc = acc.map(|acc| _mm512_sub_epi32(acc, taken));
                }
            }
            for ((first, second), left) in first.iter().zip(second).zip(panel) {
                for k in 0..LANES {
                    let first = _mm512_xor_si512(cast(first.0[k]), flip);
                    let second = _mm512_xor_si512(cast(second.0[k]), flip);
                    let quads = left.0[k][column % LANES..].first_chunk::<ROWS>();
                    let quads = quads.expect("rows within a panel");
                    for (acc, &quad) in acc.iter_mut().zip(quads) {
                        let quad = _mm512_set1_epi32(quad.cast_signed());
                        acc[0] = _mm512_dpbusd_epi32(acc[0], first, quad);
                        acc[1] = _mm512_dpbusd_epi32(acc[1], second, quad);
                    }
                }
            }
            *rows = cast(acc);
        }
    }
}
