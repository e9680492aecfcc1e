//! Short digests that tell data apart: is this the file, are these the rows, that were seen before?
//!
//! [`Digest`] is XXH64, fed piece by piece; how the bytes are cut does not matter. It finds accidents, such as a flipped
//! bit, the same rows twice, or another file under the same name. It is no defence against somebody who wants two
//! files to agree.
//!
//! ```
//! use muso::data::Digest;
//! let mut digest = Digest::new();
//! digest.add(b"a").add(b"bc");
//! assert_eq!(digest.text(), "44bc2cf5ad770999");
//! ```

const PRIMES: [u64; 5] = [
    0x9e37_79b1_85eb_ca87,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0x85eb_ca77_c2b2_ae63,
    0x27d4_eb2f_1656_67c5,
];
/// Bytes that the four lanes take at a time.
const STRIPE: usize = 32;

/// A digest in the making.
#[derive(Clone, Debug)]
pub struct Digest {
    lanes: [u64; 4],
    /// Bytes that do not fill a stripe yet; the first `held` of them.
    rest: [u8; STRIPE],
    held: usize,
    total: u64,
}

impl Default for Digest {
    fn default() -> Self {
        Self::new()
    }
}

impl Digest {
    /// Of no bytes so far.
    pub fn new() -> Self {
        Self {
            lanes: [
                PRIMES[0].wrapping_add(PRIMES[1]),
                PRIMES[1],
                0,
                PRIMES[0].wrapping_neg(),
            ],
            rest: [0; STRIPE],
            held: 0,
            total: 0,
        }
    }

    /// Appends bytes.
    pub fn add(&mut self, mut bytes: &[u8]) -> &mut Self {
        self.total += bytes.len() as u64;
        if self.held > 0 {
            let taken = bytes.len().min(STRIPE - self.held);
            self.rest[self.held..self.held + taken].copy_from_slice(&bytes[..taken]);
            self.held += taken;
            bytes = &bytes[taken..];
            if self.held < STRIPE {
                return self;
            }
            let stripe = self.rest;
            self.mix(&stripe);
            self.held = 0;
        }
        let stripes = bytes.chunks_exact(STRIPE);
        let rest = stripes.remainder();
        for stripe in stripes {
            self.mix(stripe);
        }
        self.rest[..rest.len()].copy_from_slice(rest);
        self.held = rest.len();
        self
    }

    /// Appends a text and an end mark, so that "ab", "c" is not "a", "bc".
    pub fn add_text(&mut self, text: &str) -> &mut Self {
        self.add(text.as_bytes()).add(&[0xff])
    }

    fn mix(&mut self, stripe: &[u8]) {
        for (lane, word) in self.lanes.iter_mut().zip(stripe.chunks_exact(8)) {
            *lane = round(*lane, word_of(word));
        }
    }

    /// The digest of all bytes so far.
    pub fn value(&self) -> u64 {
        let [a, b, c, d] = self.lanes;
        let mut hash = if self.total >= STRIPE as u64 {
            let joined = a
                .rotate_left(1)
                .wrapping_add(b.rotate_left(7))
                .wrapping_add(c.rotate_left(12))
                .wrapping_add(d.rotate_left(18));
            self.lanes.iter().fold(joined, |hash, &lane| {
                (hash ^ round(0, lane))
                    .wrapping_mul(PRIMES[0])
                    .wrapping_add(PRIMES[3])
            })
        } else {
            PRIMES[4]
        };
        hash = hash.wrapping_add(self.total);
        let words = self.rest[..self.held].chunks_exact(8);
        let mut rest = words.remainder();
        for word in words {
            hash = (hash ^ round(0, word_of(word)))
                .rotate_left(27)
                .wrapping_mul(PRIMES[0])
                .wrapping_add(PRIMES[3]);
        }
        if let Some((half, after)) = rest.split_first_chunk::<4>() {
            let half = u64::from(u32::from_le_bytes(*half));
            hash = (hash ^ half.wrapping_mul(PRIMES[0]))
                .rotate_left(23)
                .wrapping_mul(PRIMES[1])
                .wrapping_add(PRIMES[2]);
            rest = after;
        }
        for &byte in rest {
            hash = (hash ^ u64::from(byte).wrapping_mul(PRIMES[4]))
                .rotate_left(11)
                .wrapping_mul(PRIMES[0]);
        }
        hash = (hash ^ (hash >> 33)).wrapping_mul(PRIMES[1]);
        hash = (hash ^ (hash >> 29)).wrapping_mul(PRIMES[2]);
        hash ^ (hash >> 32)
    }

    /// The same as 16 hexadecimal digits.
    pub fn text(&self) -> String {
        format!("{:016x}", self.value())
    }
}

fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(PRIMES[1]))
        .rotate_left(31)
        .wrapping_mul(PRIMES[0])
}

fn word_of(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> u64 {
        Digest::new().add(bytes).value()
    }

    #[test]
    fn published_values() {
        assert_eq!(of(b""), 0xef46_db37_51d8_e999);
        assert_eq!(of(b"a"), 0xd24e_c4f1_a98c_6e5b);
        assert_eq!(of(b"abc"), 0x44bc_2cf5_ad77_0999);
        // More than a stripe, with eight, four and single bytes at the end.
        let text = b"Nobody inspects the spammish repetition";
        assert_eq!(of(text), 0xfbce_a83c_8a37_8bf1);
    }

    #[test]
    fn cuts_do_not_matter() {
        let bytes: Vec<u8> = (0..200_u32).map(|i| (i * 37 % 251) as u8).collect();
        let whole = of(&bytes);
        for step in [1, 3, 7, 8, 31, 32, 33, 64, 199] {
            let mut digest = Digest::new();
            for piece in bytes.chunks(step) {
                digest.add(piece);
            }
            assert_eq!(digest.value(), whole, "{step}");
        }
    }

    #[test]
    fn any_flipped_bit_and_any_length_shows() {
        let bytes = [0_u8; 77];
        let mut seen = std::collections::BTreeSet::new();
        for len in 0..bytes.len() {
            assert!(seen.insert(of(&bytes[..len])), "{len} zeros");
        }
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(seen.insert(of(&flipped)), "bit {bit}");
        }
    }
}
