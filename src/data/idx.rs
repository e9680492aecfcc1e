//! IDX, the format of MNIST: a big-endian header (two zero bytes, an element type, the rank, one u32 extent per
//! axis) and then the values, row-major. Plain or gzip, told apart by content.
//!
//! It stands at the very start of the flow: [`mnist`](super::mnist) reads digits through it, and a user's
//! own IDX files take the same way. The header is never believed before the bytes are there: memory grows with what the
//! file really holds, at most twice that while it grows, not with what it declares. A compressed file is expanded no further
//! than it declares, and to at most 64 times its own length or 64 MiB, whichever is more.
//!
//! ```
//! use std::path::Path;
//! let bytes = [0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 10, 20, 30];
//! let array = muso::data::idx::parse(Path::new("tiny.idx"), &bytes)?;
//! assert_eq!(array.shape, [1, 3]);
//! assert_eq!(array.values, [10, 20, 30]);
//! # Ok::<(), muso::Error>(())
//! ```

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::{Error, Result};

/// Contents of an IDX file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdxArray {
    /// Extent of each axis, slowest first. Never empty.
    pub shape: Vec<usize>,
    /// The values, row-major; as many as the product of the shape.
    pub values: Vec<u8>,
}

/// MNIST expands five times. Labels in order of their classes expand a thousand times, but they are small.
const MOST_EXPANSION: u64 = 64;
const ALWAYS_EXPANDED: u64 = 64 << 20;
const EXPECTED_MAGIC: &str = "an IDX file of unsigned bytes (00 00 08 and the rank), plain or gzip";

/// Reads an IDX file of unsigned bytes, plain or gzip.
pub fn read(path: impl AsRef<Path>) -> Result<IdxArray> {
    let path = path.as_ref();
    // Asked before opening, since opening a pipe would wait for a writer.
    let found = std::fs::metadata(path).map_err(|e| Error::io(path, "open", e))?;
    if !found.is_file() {
        return Err(Error::format(path, "not a regular file", "an IDX file"));
    }
    let file = File::open(path).map_err(|e| Error::io(path, "open", e))?;
    parse_stream(path, BufReader::with_capacity(1 << 16, file), found.len())
}

/// Parses the bytes of an IDX file, plain or gzip; `name` is what errors call it.
pub fn parse(name: &Path, bytes: &[u8]) -> Result<IdxArray> {
    parse_stream(name, bytes, bytes.len() as u64)
}

fn parse_stream(name: &Path, mut bytes: impl BufRead, length: u64) -> Result<IdxArray> {
    // No valid plain file starts with 1f, so one byte would do; both are asked for so that the message for a
    // wrong magic number is the one about IDX.
    let start = bytes.fill_buf().map_err(|e| Error::io(name, "read", e))?;
    if start.starts_with(&[0x1f, 0x8b]) {
        let reader = MultiGzDecoder::new(bytes);
        let most = length.saturating_mul(MOST_EXPANSION).max(ALWAYS_EXPANDED);
        Parser { name, reader }.array(Some(most))
    } else {
        Parser {
            name,
            reader: bytes,
        }
        .array(None)
    }
}

struct Parser<'a, R> {
    name: &'a Path,
    reader: R,
}

impl<R: Read> Parser<'_, R> {
    /// `most` is how many values a compressed file may expand to.
    fn array(&mut self, most: Option<u64>) -> Result<IdxArray> {
        let gzip = most.is_some();
        let magic = self.take(4, gzip)?;
        match magic[..] {
            [0, 0, 0x08, 0] => {
                return Err(Error::format(
                    self.name,
                    "the IDX header declares rank 0",
                    "at least one axis",
                ));
            }
            [0, 0, 0x08, _] => {}
            [0, 0, kind, _] if element_name(kind).is_some() => {
                return Err(Error::format(
                    self.name,
                    format!(
                        "IDX element type {kind:#04x} ({})",
                        element_name(kind).unwrap_or("unknown")
                    ),
                    "type 0x08 (unsigned byte)",
                ));
            }
            [_, _, _, _] => {
                return Err(Error::format(
                    self.name,
                    format!("wrong magic number {}", hex(&magic)),
                    EXPECTED_MAGIC,
                ));
            }
            _ => {
                return Err(Error::format(
                    self.name,
                    format!("truncated: {} bytes", magic.len()),
                    EXPECTED_MAGIC,
                ));
            }
        }
        let rank = usize::from(magic[3]);
        let extents = self.take(4 * rank as u64, gzip)?;
        if extents.len() < 4 * rank {
            return Err(Error::format(
                self.name,
                format!(
                    "truncated: the header of rank {rank} has {} bytes",
                    4 + extents.len()
                ),
                format!("{} bytes", 4 + 4 * rank),
            ));
        }
        let shape: Vec<usize> = extents
            .chunks_exact(4)
            .map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]) as usize)
            .collect();
        // One below the maximum, since one byte more than declared is asked for.
        let size = shape
            .iter()
            .try_fold(1_u64, |size, &extent| size.checked_mul(extent as u64))
            .filter(|&size| size < u64::MAX && usize::try_from(size).is_ok())
            .ok_or_else(|| {
                Error::format(
                    self.name,
                    format!("the shape {shape:?} overflows"),
                    "a number of values that fits in memory",
                )
            })?;
        if let Some(most) = most.filter(|&most| size > most) {
            return Err(Error::format(
                self.name,
                format!("a compressed array of shape {shape:?}, {size} bytes"),
                format!("at most {most}, or a file that is not compressed"),
            ));
        }
        // The byte beyond the declared size tells trailing bytes from the end, and at the end makes gzip check its
        // checksum.
        let values = self.take(size + 1, gzip)?;
        let found = values.len() as u64;
        if found != size {
            let problem = if found < size {
                format!("truncated: {found} bytes of values for shape {shape:?}")
            } else {
                format!("trailing bytes after the values of shape {shape:?}")
            };
            return Err(Error::format(
                self.name,
                problem,
                format!("{size} bytes of values"),
            ));
        }
        Ok(IdxArray { shape, values })
    }

    /// Up to `limit` bytes, fewer only at the end of the input.
    fn take(&mut self, limit: u64, gzip: bool) -> Result<Vec<u8>> {
        // `read_to_end` grows with what arrives, so a header that lies costs nothing.
        let mut bytes = Vec::new();
        match self.reader.by_ref().take(limit).read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(e) if gzip && is_corruption(&e) => Err(Error::format(
                self.name,
                format!("corrupt gzip stream ({e})"),
                "a whole gzip stream that holds an IDX file",
            )),
            Err(e) => Err(Error::io(self.name, "read", e)),
        }
    }
}

fn is_corruption(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InvalidInput | ErrorKind::InvalidData | ErrorKind::UnexpectedEof
    )
}

fn element_name(kind: u8) -> Option<&'static str> {
    match kind {
        0x08 => Some("unsigned byte"),
        0x09 => Some("signed byte"),
        0x0b => Some("16-bit integer"),
        0x0c => Some("32-bit integer"),
        0x0d => Some("32-bit float"),
        0x0e => Some("64-bit float"),
        _ => None,
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
    digits.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    fn message(bytes: &[u8]) -> String {
        parse(Path::new("x.idx"), bytes).unwrap_err().to_string()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn each_fault_has_its_own_line() {
        for (bytes, wanted) in [
            (&b""[..], "truncated: 0 bytes"),
            (&[0, 0, 8], "truncated: 3 bytes"),
            (b"PNG!", "wrong magic number 50 4e 47 21"),
            (
                &[0, 0, 0x0d, 1, 0, 0, 0, 0],
                "element type 0x0d (32-bit float)",
            ),
            (&[0, 0, 0x0a, 1], "wrong magic number 00 00 0a 01"),
            (&[0, 0, 8, 0], "rank 0"),
            (
                &[0, 0, 8, 2, 0, 0, 0, 1, 0],
                "header of rank 2 has 9 bytes; expected 12 bytes",
            ),
            (
                &[0, 0, 8, 1, 0, 0, 0, 3, 1, 2],
                "truncated: 2 bytes of values for shape [3]; expected 3 bytes",
            ),
            (&[0, 0, 8, 1, 0, 0, 0, 1, 1, 2], "trailing bytes"),
            (&[0x1f, 0x8b, 8, 0], "corrupt gzip"),
        ] {
            let message = message(bytes);
            assert!(
                message.contains(wanted) && message.starts_with("x.idx: "),
                "{message}"
            );
        }
    }

    #[test]
    fn huge_declarations_cost_nothing() {
        // 2^62 values: allocating them first would abort the test.
        let mut lie = vec![0, 0, 8, 2, 0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff];
        lie.extend([1, 2, 3]);
        assert!(message(&lie).contains("truncated: 3 bytes of values"));
        assert!(message(&gzip(&lie)).contains("not compressed"));
        let mut overflow = vec![0, 0, 8, 3];
        overflow.extend([0xff; 12]);
        assert!(message(&overflow).contains("overflows"));
    }

    #[test]
    fn a_bomb_is_not_expanded_beyond_its_declaration() {
        struct Counting<R>(R, u64);
        impl<R: Read> Read for Counting<R> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let n = self.0.read(buffer)?;
                self.1 += n as u64;
                Ok(n)
            }
        }
        let mut bomb = vec![0, 0, 8, 1, 0, 0, 0, 4];
        bomb.resize(10_000_000, 0);
        let bomb = gzip(&bomb);
        let mut parser = Parser {
            name: Path::new("bomb"),
            reader: Counting(MultiGzDecoder::new(&bomb[..]), 0),
        };
        assert!(
            parser
                .array(Some(1 << 20))
                .unwrap_err()
                .to_string()
                .contains("trailing")
        );
        assert_eq!(parser.reader.1, 8 + 5);
    }

    #[test]
    fn a_bomb_that_declares_its_size_is_not_expanded() {
        let mut bomb = vec![0, 0, 8, 1, 4, 0, 0, 1];
        bomb.resize(8 + (ALWAYS_EXPANDED as usize + 1), 0);
        let small = gzip(&bomb);
        assert!((small.len() as u64) < ALWAYS_EXPANDED / MOST_EXPANSION);
        assert!(message(&small).contains("at most 67108864, or a file that is not compressed"));
        assert!(parse(Path::new("x"), &bomb).is_ok());
    }

    #[test]
    fn gzip_checksum_and_tail_are_checked() {
        let whole = gzip(&[0, 0, 8, 1, 0, 0, 0, 2, 5, 6]);
        assert_eq!(parse(Path::new("x"), &whole).unwrap().values, [5, 6]);
        let mut wrong_sum = whole.clone();
        let n = wrong_sum.len();
        wrong_sum[n - 8] ^= 1;
        assert!(message(&wrong_sum).contains("corrupt gzip"));
        let mut tail = whole;
        tail.extend(b"junk");
        assert!(message(&tail).contains("corrupt gzip"));
    }
}
