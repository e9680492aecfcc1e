//! Instructions on int8: the one module outside `gpu` with unsafe code.
//!
//! Two things need it, and nothing else is here. AVX-512 VNNI: a function that is compiled for it may be called only where
//! the processor has it, which a [`Vnni`] stands for. AMX: its intrinsics are not stable, so that its instructions are
//! written out, one a function, and a [`Registers`](super::tiles::Registers) stands for the tile registers of a thread,
//! configured. Loops and all that is decided are in [`tiles`](super::tiles), in safe code.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m512i, _mm512_dpbusd_epi32, _mm512_permutex2var_epi32, _mm512_set1_epi32,
    _mm512_setzero_si512, _mm512_sub_epi32, _mm512_xor_si512,
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

    /// Returns [`Tile::turned`].
    pub(super) fn turned(self, tile: &Tile) -> Tile {
        // SAFETY: the processor has the features, as `self` was made by `detect`.
        unsafe { turned(tile) }
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

/// Transposes double words: blocks of 8, 4, 2 and 1 change places across the diagonal.
#[target_feature(enable = "avx512f,avx512vnni")]
fn turned(tile: &Tile) -> Tile {
    let mut rows: [__m512i; LANES] = cast(tile.0);
    for size in [8, 4, 2, 1] {
        let lanes = |own: usize, other: usize| -> __m512i {
            // Lanes of the second operand are counted from 16 on.
            cast(std::array::from_fn::<u32, LANES, _>(|lane| {
                match lane & size {
                    0 => (lane + own) as u32,
                    _ => (LANES + lane - other) as u32,
                }
            }))
        };
        let (upper, lower) = (lanes(0, size), lanes(size, 0));
        for i in (0..LANES).filter(|i| i & size == 0) {
            let (a, b) = (rows[i], rows[i + size]);
            rows[i] = _mm512_permutex2var_epi32(a, upper, b);
            rows[i + size] = _mm512_permutex2var_epi32(a, lower, b);
        }
    }
    Tile(cast(rows))
}

#[cfg(target_os = "linux")]
pub(super) use amx::Amx;

/// Tiles of AMX, where Linux hands them out.
#[cfg(target_os = "linux")]
mod amx {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
    use std::marker::PhantomData;
    use std::sync::OnceLock;

    use super::super::tiles::{LANES, Registers, SIDE, Square, Tile};
    use super::Vnni;

    /// Proof that the processor has AMX for int8, and that this process may use it.
    #[derive(Clone, Copy, Debug)]
    pub(in super::super) struct Amx(Vnni);

    impl Amx {
        /// Asks the processor and, once, the system.
        pub(in super::super) fn detect() -> Option<Self> {
            static ALLOWED: OnceLock<bool> = OnceLock::new();
            let allowed = || *ALLOWED.get_or_init(|| in_processor() && permitted());
            // There is no processor with AMX and without these.
            let vectors = Vnni::detect()?;
            allowed().then_some(Self(vectors))
        }

        /// Configures the tile registers of this thread, until what is returned is dropped.
        pub(in super::super) fn configure(self) -> Configured {
            // SAFETY: by `self` the processor has the instruction and the system permits it; the operand is 64 bytes of a
            // valid configuration: palette 1, rows and bytes within its limits, all else zero.
            unsafe {
                asm!("ldtilecfg [{}]", in(reg) &raw const PALETTE, options(nostack, readonly));
            }
            Configured(self.0, PhantomData)
        }
    }

    /// Memory operand of `ldtilecfg`.
    #[repr(C, align(64))]
    struct Palette {
        number: u8,
        start_row: u8,
        zero: [u8; 14],
        bytes: [u16; 16],
        rows: [u8; 16],
    }

    /// Eight registers of 16 rows by 64 bytes, which is as large as they are.
    static PALETTE: Palette = Palette {
        number: 1,
        start_row: 0,
        zero: [0; 14],
        bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
        rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
    };

    const _: () = assert!(size_of::<Palette>() == 64 && size_of::<Tile>() == 16 * 64);

    /// Returns whether the processor has AMX-TILE and AMX-INT8 with tiles of this size, and the system saves them.
    fn in_processor() -> bool {
        let (most, _) = std::arch::x86_64::__get_cpuid_max(0);
        if most < 0x1d {
            return false;
        }
        let saved = __cpuid(1).ecx >> 26 & 0b11 == 0b11;
        // AMX-TILE and AMX-INT8; palette 1: bytes a row, registers, and rows.
        let has = __cpuid_count(7, 0).edx >> 24 & 0b11 == 0b11;
        let palette = __cpuid_count(0x1d, 1);
        let fits = palette.ebx == 8 << 16 | 64 && palette.ecx & 0xffff == 16;
        // SAFETY: the bits for XSAVE and OSXSAVE are set, by which `xgetbv` is there.
        let enabled = || unsafe { _xgetbv(0) } >> 17 & 0b11 == 0b11;
        saved && has && fits && enabled()
    }

    /// Asks Linux for the room that tile registers take in every thread's saved state.
    fn permitted() -> bool {
        /// `arch_prctl`.
        const ARCH_PRCTL: i64 = 158;
        const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
        /// The state component of tile data.
        const XFEATURE_XTILEDATA: i64 = 18;
        let answer: i64;
        // SAFETY: Linux's system call: number in rax, arguments in rdi and rsi, and rcx and r11 are overwritten. This one
        // reads and writes no memory of ours.
        unsafe {
            asm!(
                "syscall",
                inlateout("rax") ARCH_PRCTL => answer,
                in("rdi") ARCH_REQ_XCOMP_PERM,
                in("rsi") XFEATURE_XTILEDATA,
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack),
            );
        }
        answer == 0
    }

    /// The tile registers of this thread, configured. Not to be sent to another one.
    pub(in super::super) struct Configured(Vnni, PhantomData<*const ()>);

    impl Drop for Configured {
        fn drop(&mut self) {
            // SAFETY: by `self` the registers are configured, and nobody has use for what is in them.
            unsafe { asm!("tilerelease", options(nostack, nomem)) };
        }
    }

    /// Bytes from a row of a tile to the next, of its own and in a square.
    const TILE_STRIDE: usize = size_of::<[u32; LANES]>();
    const SQUARE_STRIDE: usize = size_of::<[i32; SIDE]>();

    /// Returns where the 16×16 sums from this row and column on begin, and checks that all of them are there.
    fn inside(row: usize, column: usize) -> usize {
        assert!(row <= SIDE - LANES && column <= SIDE - LANES, "in a square");
        row * SIDE + column
    }

    // SAFETY, of all four: by `self` this thread's registers are configured, 16 rows of 64 bytes each, so that a load reads
    // and a store writes 16 times 64 bytes at the given stride: of a tile all that there is, of a square what `inside`
    // checks. The instructions touch nothing else, neither flags nor stack. Compiled code never keeps values of its own in
    // tile registers, since no function enables AMX for the compiler; so they hold what was loaded until the next load.
    impl Registers for Configured {
        fn turned(&self, tile: &Tile) -> Tile {
            self.0.turned(tile)
        }

        #[inline(always)]
        fn load<const T: u8>(&mut self, tile: &Tile) {
            // SAFETY: see above.
            unsafe {
                asm!(
                    "tileloadd tmm{t}, [{from} + {stride}*1]",
                    t = const T,
                    from = in(reg) tile,
                    stride = in(reg) TILE_STRIDE,
                    options(nostack, readonly, preserves_flags),
                );
            }
        }

        #[inline(always)]
        fn load_sums<const T: u8>(&mut self, sums: &Square, row: usize, column: usize) {
            let from = sums.0.as_flattened().as_ptr();
            // SAFETY: see above.
            unsafe {
                asm!(
                    "tileloadd tmm{t}, [{from} + {stride}*1]",
                    t = const T,
                    from = in(reg) from.add(inside(row, column)),
                    stride = in(reg) SQUARE_STRIDE,
                    options(nostack, readonly, preserves_flags),
                );
            }
        }

        #[inline(always)]
        fn store_sums<const T: u8>(&self, sums: &mut Square, row: usize, column: usize) {
            let to = sums.0.as_flattened_mut().as_mut_ptr();
            // SAFETY: see above.
            unsafe {
                asm!(
                    "tilestored [{to} + {stride}*1], tmm{t}",
                    t = const T,
                    to = in(reg) to.add(inside(row, column)),
                    stride = in(reg) SQUARE_STRIDE,
                    options(nostack, preserves_flags),
                );
            }
        }

        #[inline(always)]
        fn dot<const C: u8, const A: u8, const B: u8>(&mut self) {
            // SAFETY: see above.
            unsafe {
                asm!(
                    "tdpbssd tmm{c}, tmm{a}, tmm{b}",
                    c = const C,
                    a = const A,
                    b = const B,
                    options(nostack, nomem, preserves_flags),
                );
            }
        }
    }
}
