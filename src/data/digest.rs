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

use std::hash::Hasher as _;

use twox_hash::XxHash64;

/// An XXH64 digest that takes bytes piece by piece.
#[derive(Clone, Debug)]
pub struct Digest(XxHash64);

impl Default for Digest {
    fn default() -> Self {
        Self::new()
    }
}

impl Digest {
    /// Returns the digest of no bytes, with seed 0.
    pub fn new() -> Self {
        Self(XxHash64::with_seed(0))
    }

    /// Appends bytes to what is digested.
    pub fn add(&mut self, bytes: &[u8]) -> &mut Self {
        // `write` feeds the bytes as they are; the typed methods of `Hasher` would mix in lengths and native byte order.
        self.0.write(bytes);
        self
    }

    /// Appends a text and an end mark, so that "ab", "c" is not "a", "bc".
    pub fn add_text(&mut self, text: &str) -> &mut Self {
        self.add(text.as_bytes()).add(&[0xff])
    }

    /// Returns the digest of all bytes so far; more may follow.
    pub fn value(&self) -> u64 {
        self.0.finish()
    }

    /// Returns [`Digest::value`] as 16 hexadecimal digits.
    pub fn text(&self) -> String {
        format!("{:016x}", self.value())
    }
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
        // The sanity buffer of the reference implementation (byte generator of its self-test), seed 0: an empty
        // tail, tails of single bytes, of four and of eight, and several stripes.
        let mut generator = 2_654_435_761_u64;
        let mut buffer = Vec::new();
        for _ in 0..222 {
            buffer.push((generator >> 56) as u8);
            generator = generator.wrapping_mul(11_400_714_785_074_694_797);
        }
        assert_eq!(of(&buffer[..1]), 0xe934_a84a_db05_2768);
        assert_eq!(of(&buffer[..4]), 0x9136_a0dc_a574_57ee);
        assert_eq!(of(&buffer[..14]), 0x8282_dcc4_994e_35c8);
        assert_eq!(of(&buffer), 0xb641_ae8c_b691_c174);
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
