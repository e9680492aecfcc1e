//! Derivation of seeds: one seed of a run gives every part of it random numbers of its own.
//!
//! A part asks by its [`Purpose`], never by a bare number, so two parts cannot draw the same numbers by accident and two
//! places that must agree name the same purpose. What comes again and again, such as epochs, counts with [`nth`]. Both
//! mix by the finaliser of SplitMix64: neighbouring seeds, purposes and counts give unrelated numbers. The paper's linear
//! experiment has a [`LinearPurpose`] instead.
//!
//! The numbers are part of what a seed means: were they to change, no published result could be repeated.
//!
//! ```
//! use muso::seeds::{Purpose, nth};
//!
//! // A training loop of one's own that shuffles the rows of epoch e with seed `epochs[e]`, and draws crops and flips with
//! // `augment[e]`, goes through them as `muso train --seed 7` does.
//! let run = Purpose::TrainingOrder.seed(7);
//! let epochs = [0, 1, 2].map(|epoch| nth(run, epoch));
//! let augment = epochs.map(|epoch| Purpose::Augmentation.seed(epoch));
//! assert!(epochs[0] != epochs[1] && epochs[0] != augment[0]);
//! ```

#[cfg(feature = "datasets")]
use rand::SeedableRng;
#[cfg(feature = "datasets")]
use rand_chacha::ChaCha8Rng;

/// What random numbers are drawn for. The discriminant is the tag that is mixed into the seed; the compiler refuses two
/// equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u64)]
pub enum Purpose {
    /// The weights that training and retraining start from.
    InitialWeights = 0x1417,
    /// The session that trains on all rows: `muso train` and the originals of `muso compare` are the same network.
    TrainingOrder = 0x7124,
    /// The rows that early stopping watches.
    HoldOut = 0x401D,
    /// The tasks of the retrained models, counted: they differ in nothing but this.
    RetrainOrder = 0x12E,
    /// The task of every method of a comparison.
    ArmDraws = 0x0A23,
    /// Crops and flips of an epoch, from the seed of its order.
    Augmentation = 1,
    /// The session of a method that does no more than train on rows with labels.
    DescentOrder = 0x5E55,
    /// The retained rows that MUSO makes its projector of, counted by label updates.
    MusoProjectorRows = 0x3501,
    /// The session of MUSO.
    MusoOrder = 0x3502,
    /// The classes that stand in for MUSO's labels where it runs without a projector, counted by label updates.
    MusoRandomLabels = 0x3503,
    /// The other classes that Amnesiac gives the forgotten rows.
    AmnesiacClasses = 0xA3,
    /// The retained rows that Mix blends the forgotten ones with.
    MixPartners = 0x313,
    /// The weights of BadTeacher's untrained teacher.
    BadTeacherWeights = 0xBAD,
    /// The share of the retained rows that BadTeacher trains on.
    BadTeacherRows = 0xB7,
    /// The session of BadTeacher.
    BadTeacherOrder = 0xB8,
    /// The classes that SalUn gives the forgotten rows, anew each epoch.
    SalunClasses = 0x5A,
    /// The session of SalUn.
    SalunOrder = 0x5B,
    /// The orders in which NegGrad+ goes through the forgotten rows, counted.
    NegGradRounds = 0x4E66,
    /// The session of NegGrad+ on the retained rows.
    NegGradOrder = 0x4E67,
    /// The session of gradient ascent.
    AscentOrder = 0xA5C,
    /// SCRUB's session on the forgotten rows.
    ScrubAscentOrder = 0x5C,
    /// SCRUB's session on the retained rows.
    ScrubDescentOrder = 0x5D,
    /// The models that an audit compares at equal counts, counted by draws.
    AuditDraws = 0xAD1,
    /// The retrained models that an audit holds out and judges first, counted by rounds.
    AuditHeldOut = 0xAD2,
}

impl Purpose {
    /// Returns the seed for this purpose within what `seed` stands for: a run, or the task of one method.
    pub const fn seed(self, seed: u64) -> u64 {
        nth(seed, self as u64)
    }

    /// Returns the seed of the draw number `index` for this purpose.
    pub const fn nth(self, seed: u64, index: u64) -> u64 {
        nth(self.seed(seed), index)
    }
}

/// Returns the seed of number `index` among those that `seed` gives: of an epoch, say, within a session.
///
/// A seed that is counted from should be one of a [`Purpose`] and not also have purposes derived from it, as their tags
/// are counts too.
pub const fn nth(seed: u64, index: u64) -> u64 {
    let mut z = seed ^ index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// What the paper's linear experiment (Table 1) draws. Its seeds are neighbours, 16·seed + part, which ChaCha's key
/// expansion tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u64)]
pub enum LinearPurpose {
    /// The frequencies of the random Fourier features.
    Features = 0,
    /// The noise that the initial weights have beside the retained rows' optimum.
    InitialNoise = 1,
    /// The rows to forget, where they are drawn.
    ForgottenRows = 2,
    /// The order of the samples in gradient descent.
    SampleOrder = 3,
    /// Amnesiac's labels.
    AmnesiacLabels = 4,
    /// The weights of BadTeacher's teacher.
    BadTeacherWeights = 5,
}

impl LinearPurpose {
    /// Returns the seed for this purpose of a repetition.
    pub const fn seed(self, seed: u64) -> u64 {
        seed.wrapping_mul(16).wrapping_add(self as u64)
    }
}

/// Returns the seed of the batch that `before` rows of its epoch come before, for inputs that are changed batch by batch.
#[cfg(feature = "nn")]
pub(crate) fn of_batch(seed: u64, before: usize) -> u64 {
    seed.wrapping_add(before as u64)
}

/// Returns the generator of crops and flips: the second ChaCha stream of `seed`, since the order of the images may well be
/// shuffled with the same seed, and the two must not draw the same numbers.
#[cfg(feature = "datasets")]
pub(crate) fn augmentation(seed: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(1);
    rng
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Seeds for the purpose from 0, 42 and 2⁶⁴ − 1, computed apart from this code. A new purpose does not compile
    /// without some, and belongs into `ALL` too.
    #[rustfmt::skip]
    fn golden(purpose: Purpose) -> [u64; 3] {
        match purpose {
            Purpose::InitialWeights => [0x0570_b191_e598_3c40, 0x9670_c0c3_ea08_781b, 0x9abc_9aca_099f_d375],
            Purpose::TrainingOrder => [0x021a_e4ae_b014_b9d6, 0xda83_ffec_308b_5f82, 0x4fa4_c4f7_cbe5_ede5],
            Purpose::HoldOut => [0x2a92_741b_2910_2ae6, 0x257f_c172_531f_0a08, 0xfe55_ddea_20ce_7b87],
            Purpose::RetrainOrder => [0x476c_f802_3300_34e5, 0x415a_0f0c_cdc3_af29, 0x4798_0d87_9272_396e],
            Purpose::ArmDraws => [0xa5ac_a567_96c6_8607, 0x5e8e_1e26_a379_d3bb, 0xf19b_86ad_22e2_3213],
            Purpose::Augmentation => [0x6e78_9e6a_a1b9_65f4, 0xd963_9a00_6c85_adb0, 0x738b_10af_1713_67ff],
            Purpose::DescentOrder => [0x826c_dd12_8d30_e3f5, 0x6548_eb69_7c5e_9129, 0xb6d5_03ed_7aea_e08a],
            Purpose::MusoProjectorRows => [0x6e4d_7984_76d5_30f2, 0x1171_4724_98b0_4ef1, 0xf7a4_fc11_d63e_d95b],
            Purpose::MusoOrder => [0xc052_9ff2_8da0_c9f1, 0x34b7_2163_5a3f_b2e2, 0xd423_622d_fd88_c7cf],
            Purpose::MusoRandomLabels => [0x0270_d8eb_3de1_d361, 0x0e9e_9c5e_aa4d_7f70, 0x1297_6ff6_3ba3_1edb],
            Purpose::AmnesiacClasses => [0xb1d4_8737_47c1_c8e1, 0xb515_aebf_5600_b389, 0xff05_be5d_8ec3_75b5],
            Purpose::MixPartners => [0x17b0_c924_92db_0be6, 0x3e5e_aa03_d5e4_f59a, 0xa000_ab09_a1ea_403e],
            Purpose::BadTeacherWeights => [0x117a_357e_dfaa_268e, 0xe28e_7889_4418_e2e1, 0xc76c_6894_4ea4_1fd8],
            Purpose::BadTeacherRows => [0x1958_ed43_2070_e652, 0x842b_2f67_021e_43e9, 0x180a_8a4e_8b37_63c9],
            Purpose::BadTeacherOrder => [0xca5f_2971_97a1_2dcc, 0xb25e_4246_ea30_3935, 0xc4d2_445a_1b5b_a91b],
            Purpose::SalunClasses => [0x21c6_e266_39ac_2c65, 0xc7d6_0fa2_498f_12b6, 0x1a12_5317_de79_fd06],
            Purpose::SalunOrder => [0xd9dc_cac4_14d2_3c6f, 0x0783_9a9b_1529_aa43, 0x38b4_6b2d_fd20_f43f],
            Purpose::NegGradRounds => [0x6e02_7bd7_bfc1_5baa, 0xfc07_49ce_ce84_57ee, 0xee39_235b_5721_f831],
            Purpose::NegGradOrder => [0xbe4d_7193_d1a0_81bf, 0x38f2_0d1a_736c_4dd6, 0x7db5_7557_be49_9cb4],
            Purpose::AscentOrder => [0x8c4d_591a_ef41_abbc, 0x703b_ae84_fd73_64a9, 0xbc71_d7bd_7b80_0c73],
            Purpose::ScrubAscentOrder => [0x91cd_6420_57e0_0235, 0x82d0_8902_5ecc_344e, 0x7234_d164_4beb_a13e],
            Purpose::ScrubDescentOrder => [0x77fc_607d_c658_9373, 0x5e38_2584_9c61_e9ab, 0x7bb9_1fa0_b369_ef49],
            Purpose::AuditDraws => [0xd762_3738_b5eb_00e8, 0xfb3a_0f44_4703_f9e9, 0xa88a_f2a0_509a_2058],
            Purpose::AuditHeldOut => [0x08f4_140f_c042_4963, 0x4ce4_71de_0a9c_9ad5, 0x640e_999d_d1b0_11c6],
        }
    }

    const ALL: [Purpose; 24] = [
        Purpose::InitialWeights,
        Purpose::TrainingOrder,
        Purpose::HoldOut,
        Purpose::RetrainOrder,
        Purpose::ArmDraws,
        Purpose::Augmentation,
        Purpose::DescentOrder,
        Purpose::MusoProjectorRows,
        Purpose::MusoOrder,
        Purpose::MusoRandomLabels,
        Purpose::AmnesiacClasses,
        Purpose::MixPartners,
        Purpose::BadTeacherWeights,
        Purpose::BadTeacherRows,
        Purpose::BadTeacherOrder,
        Purpose::SalunClasses,
        Purpose::SalunOrder,
        Purpose::NegGradRounds,
        Purpose::NegGradOrder,
        Purpose::AscentOrder,
        Purpose::ScrubAscentOrder,
        Purpose::ScrubDescentOrder,
        Purpose::AuditDraws,
        Purpose::AuditHeldOut,
    ];

    #[test]
    fn the_seeds_of_a_purpose_never_change() {
        for purpose in ALL {
            assert_eq!(
                [0, 42, u64::MAX].map(|seed| purpose.seed(seed)),
                golden(purpose),
                "{purpose:?}"
            );
        }
        let tags: HashSet<u64> = ALL.iter().map(|&purpose| purpose as u64).collect();
        assert_eq!(tags.len(), ALL.len());
    }

    #[test]
    fn counted_seeds_never_change() {
        for (seed, wanted) in [
            (
                0,
                [
                    0xe220_a839_7b1d_cdaf,
                    0x6e78_9e6a_a1b9_65f4,
                    0xc584_133a_c916_ab3c,
                ],
            ),
            (
                42,
                [
                    0xbdd7_3226_2feb_6e95,
                    0xd963_9a00_6c85_adb0,
                    0xb434_6c5a_4ac0_89c3,
                ],
            ),
            (
                u64::MAX,
                [
                    0xde0a_564c_bcd0_60c4,
                    0x738b_10af_1713_67ff,
                    0xf994_78f8_1db9_1d39,
                ],
            ),
        ] {
            assert_eq!(
                [0, 1, 7].map(|index| nth(seed, index)),
                wanted,
                "seed {seed}"
            );
        }
        assert_eq!(Purpose::MusoProjectorRows.nth(42, 3), 0x5b35_3de4_cba2_03b8);
    }

    #[test]
    fn the_seeds_of_the_linear_experiment_never_change() {
        use LinearPurpose as Linear;
        for (purpose, wanted) in [
            (Linear::Features, [0, 672, 18_446_744_073_709_551_600]),
            (Linear::InitialNoise, [1, 673, 18_446_744_073_709_551_601]),
            (Linear::ForgottenRows, [2, 674, 18_446_744_073_709_551_602]),
            (Linear::SampleOrder, [3, 675, 18_446_744_073_709_551_603]),
            (Linear::AmnesiacLabels, [4, 676, 18_446_744_073_709_551_604]),
            (
                Linear::BadTeacherWeights,
                [5, 677, 18_446_744_073_709_551_605],
            ),
        ] {
            assert_eq!(
                [0, 42, u64::MAX].map(|seed| purpose.seed(seed)),
                wanted,
                "{purpose:?}"
            );
        }
    }
}
