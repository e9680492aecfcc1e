//! NumPy's `.npy` format, versions 1 to 3: a header that is a Python dictionary, and one array.
//!
//! A header has at most 1 MiB and takes at most eight times its bytes.
//!
//! [`TensorFile`](super::TensorFile) comes here when a file begins with NumPy's magic number. Only what the rest of
//! the program can use is accepted: little-endian, C order.
//!
//! ```
//! use muso::data::{RowBuffer, TensorFile};
//! let mut bytes = b"\x93NUMPY\x01\x00\x46\x00".to_vec();
//! let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }";
//! bytes.extend(format!("{header:<69}\n").bytes());
//! bytes.extend([0.5_f32, 2.0].iter().flat_map(|x| x.to_le_bytes()));
//! let dir = tempfile::tempdir().unwrap();
//! let path = dir.path().join("features.npy");
//! std::fs::write(&path, bytes).unwrap();
//! let matrix = TensorFile::open(&path)?.matrix("features")?;
//! assert_eq!((matrix.rows(), matrix.cols()), (1, 2));
//! # Ok::<(), muso::Error>(())
//! ```

use super::source::Source;
use super::{Element, Entry, product, shape_text, shown};
use crate::{Error, Result};

pub(super) const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Far above what a plain array needs; NumPy itself stops at 10,000 unless told otherwise.
const LONGEST_HEADER: u64 = 1 << 20;

/// The one array of a file that begins with [`MAGIC`].
pub(super) fn entry(source: &Source) -> Result<Entry> {
    let path = source.path();
    let truncated = |expected: u64| {
        Error::format(
            path,
            format!("truncated: {} bytes", source.len()),
            format!("a .npy file of at least {expected}"),
        )
    };
    let mut start = [0; 12];
    let short = source.len().min(12) as usize;
    source.read_exact_at(&mut start[..short], 0)?;
    if short < 10 {
        return Err(truncated(10));
    }
    let (header_start, header_len) = match start[6] {
        1 => (10, u64::from(u16::from_le_bytes([start[8], start[9]]))),
        2 | 3 if short < 12 => return Err(truncated(12)),
        2 | 3 => {
            let len = u32::from_le_bytes([start[8], start[9], start[10], start[11]]);
            (12, u64::from(len))
        }
        version => {
            return Err(Error::format(
                path,
                format!(".npy format version {version}.{}", start[7]),
                "version 1, 2 or 3",
            ));
        }
    };
    if header_len > LONGEST_HEADER {
        return Err(Error::format(
            path,
            format!("a .npy header of {header_len} bytes"),
            format!("at most {LONGEST_HEADER}"),
        ));
    }
    let data_start = header_start + header_len;
    if data_start > source.len() {
        return Err(truncated(data_start));
    }
    let mut header = vec![0; header_len as usize];
    source.read_exact_at(&mut header, header_start)?;
    let described = std::str::from_utf8(&header)
        .map_err(|_| "it is not text".to_owned())
        .and_then(|text| Parser { rest: text }.described())
        .map_err(|why| {
            Error::format(
                path,
                format!("bad .npy header: {why}"),
                "a dictionary of descr, fortran_order and shape",
            )
        })?;
    let element = element(&described.descr).map_err(|(problem, expected)| {
        Error::format(
            path,
            format!("dtype `{}` {problem}", shown(&described.descr, 40)),
            expected,
        )
    })?;
    // A vector is the same in both orders, and NumPy may write either.
    if described.fortran_order && described.shape.len() > 1 {
        return Err(Error::format(
            path,
            "the array is in Fortran order",
            "C order, as numpy.ascontiguousarray makes it",
        ));
    }
    let (element, size) = element;
    let data_len = source.len() - data_start;
    let wanted = product(&described.shape).and_then(|count| count.checked_mul(size));
    if wanted != Some(data_len) {
        let problem = match wanted {
            Some(wanted) if wanted < data_len => "trailing bytes",
            _ => "truncated",
        };
        return Err(Error::format(
            path,
            format!(
                "{problem}: {data_len} bytes of values for {} {}",
                element.name(),
                shape_text(&described.shape)
            ),
            match wanted {
                Some(wanted) => format!("{wanted} bytes"),
                None => "a shape whose size does not overflow".to_owned(),
            },
        ));
    }
    Ok(Entry {
        name: String::new(),
        element,
        shape: described.shape,
        begin: data_start,
    })
}

fn element(descr: &str) -> Result<(Element, u64), (&'static str, &'static str)> {
    Ok(match descr {
        "<f2" => (Element::F16, 2),
        "<f4" => (Element::F32, 4),
        "<f8" => (Element::F64, 8),
        "<i8" => (Element::I64, 8),
        "<i4" => (Element::I32, 4),
        "|u1" | "<u1" => (Element::U8, 1),
        "|i1" | "<i1" => (Element::Other("i8"), 1),
        "|b1" => (Element::Other("bool"), 1),
        "<i2" => (Element::Other("i16"), 2),
        "<u2" => (Element::Other("u16"), 2),
        "<u4" => (Element::Other("u32"), 4),
        "<u8" => (Element::Other("u64"), 8),
        _ if descr.starts_with('>') => {
            return Err(("is big-endian", "a little-endian array, such as `<f4`"));
        }
        _ => {
            return Err((
                "is not supported",
                "f2, f4, f8, i4, i8 or u1, little-endian",
            ));
        }
    })
}

struct Described {
    descr: String,
    fortran_order: bool,
    shape: Vec<u64>,
}

/// Reads the small part of Python's literals that the header uses.
struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    fn described(mut self) -> Result<Described, String> {
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        self.expect('{')?;
        while !self.accept('}') {
            let key = self.string()?;
            self.expect(':')?;
            let repeated = match key.as_str() {
                "descr" => descr.replace(self.string()?).is_some(),
                "fortran_order" => fortran_order.replace(self.boolean()?).is_some(),
                "shape" => shape.replace(self.tuple()?).is_some(),
                _ => return Err(format!("unknown key `{}`", shown(&key, 40))),
            };
            if repeated {
                return Err(format!("`{key}` appears twice"));
            }
            if !self.accept(',') {
                self.expect('}')?;
                break;
            }
        }
        if !self.rest.trim().is_empty() {
            return Err(format!(
                "`{}` after the dictionary",
                shown(self.rest.trim(), 40)
            ));
        }
        Ok(Described {
            descr: descr.ok_or("no `descr`")?,
            fortran_order: fortran_order.ok_or("no `fortran_order`")?,
            shape: shape.ok_or("no `shape`")?,
        })
    }

    fn accept(&mut self, wanted: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        if self.accept(wanted) {
            return Ok(());
        }
        Err(match self.rest.chars().next() {
            Some(found) => format!("`{}` in place of `{wanted}`", found.escape_debug()),
            None => format!("it ends before `{wanted}`"),
        })
    }

    fn string(&mut self) -> Result<String, String> {
        let quote = if self.accept('"') { '"' } else { '\'' };
        if quote == '\'' {
            // A structured dtype has a list of fields here.
            if self.rest.starts_with('[') {
                return Err("a structured dtype, not a plain one".to_owned());
            }
            self.expect('\'')?;
        }
        let (text, rest) = self
            .rest
            .split_once(quote)
            .ok_or("a string without its end")?;
        self.rest = rest;
        Ok(text.to_owned())
    }

    fn boolean(&mut self) -> Result<bool, String> {
        self.rest = self.rest.trim_start();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err("`fortran_order` is neither True nor False".to_owned())
    }

    fn tuple(&mut self) -> Result<Vec<u64>, String> {
        let mut extents = Vec::new();
        self.expect('(')?;
        while !self.accept(')') {
            let digits = self
                .rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(self.rest.len());
            let extent = self.rest[..digits]
                .parse()
                .map_err(|_| "`shape` is not a tuple of extents".to_owned())?;
            extents.push(extent);
            self.rest = &self.rest[digits..];
            // Python 2 marked long integers.
            let _ = self.rest.starts_with('L') && self.accept('L');
            if !self.accept(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(extents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(String, bool, Vec<u64>), String> {
        let parsed = Parser { rest: text }.described()?;
        Ok((parsed.descr, parsed.fortran_order, parsed.shape))
    }

    #[test]
    fn headers_as_numpy_writes_them() {
        for (text, wanted) in [
            (
                "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n",
                ("<f4", false, vec![3, 4]),
            ),
            (
                "{'shape': (5,), 'fortran_order': True, 'descr': \"<i8\"}",
                ("<i8", true, vec![5]),
            ),
            (
                "{'descr':'|u1','fortran_order':False,'shape':()}\n",
                ("|u1", false, vec![]),
            ),
            (
                "{'descr': '<f8', 'fortran_order': False, 'shape': (10L, 2L), }",
                ("<f8", false, vec![10, 2]),
            ),
        ] {
            let (descr, order, shape) = parse(text).unwrap();
            assert_eq!((descr.as_str(), order, shape), wanted, "{text}");
        }
    }

    #[test]
    fn other_headers_are_refused() {
        for (text, wanted) in [
            ("", "ends before `{`"),
            ("{'descr': '<f4'", "ends before `}`"),
            ("{'descr': '<f4", "a string without its end"),
            ("{'descr': [('a', '<f4')]}", "structured dtype"),
            ("{'descr': '<f4', 'descr': '<f4'}", "`descr` appears twice"),
            ("{'kind': 'x'}", "unknown key `kind`"),
            ("{'fortran_order': 1}", "neither True nor False"),
            ("{'shape': (-1,)}", "not a tuple"),
            ("{'shape': (1 2)}", "in place of `)`"),
            ("{'shape': (99999999999999999999,)}", "not a tuple"),
            ("{}", "no `descr`"),
            (
                "{'descr': '<f4', 'fortran_order': False, 'shape': (), } x",
                "`x` after the dictionary",
            ),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(wanted), "{text}: {message}");
        }
    }
}
