//! ZIP archives as `torch.save` writes them: every entry stored, none compressed.
//!
//! The directory at the end says what there is, and each entry is held against its own header. An entry that is
//! compressed, encrypted, named twice, or that shares a byte with another is refused, so that what an archive unpacks
//! to is never more than its own length. The directory is read whole, of at most [`LONGEST_DIRECTORY`] bytes, and costs
//! at most four times as much again for its entries.

use crate::data::shown;
use crate::data::tensors::Source;
use crate::{Error, Result};

use super::EXPECTED;

const LONGEST_DIRECTORY: u64 = 64 << 20;
const END: [u8; 4] = *b"PK\x05\x06";
const END_LEN: usize = 22;
const LONGEST_COMMENT: usize = 0xffff;
const WIDE_END: [u8; 4] = *b"PK\x06\x06";
const WIDE_END_LEN: usize = 56;
const LOCATOR: [u8; 4] = *b"PK\x06\x07";
const LOCATOR_LEN: usize = 20;
const ENTRY: [u8; 4] = *b"PK\x01\x02";
const ENTRY_LEN: usize = 46;
const LOCAL: [u8; 4] = *b"PK\x03\x04";
const LOCAL_LEN: usize = 30;
const ENCRYPTED: u16 = 1;
const STORED: u16 = 0;
/// Number of the extra field with lengths of 64 bits.
const WIDE: u16 = 1;

/// A stored entry: its bytes lie in the file as they are.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    /// Offset of the first byte, and number of bytes.
    pub(super) begin: u64,
    pub(super) len: u64,
    /// Checksum of the bytes; 0 where none was computed.
    pub(super) crc: u32,
    header: u64,
}

/// Entries of an archive by ascending name.
#[derive(Debug)]
pub(super) struct Archive(Vec<Entry>);

fn u16_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u64 {
    u16_at(bytes, at) | u16_at(bytes, at + 2) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u32_at(bytes, at) | u32_at(bytes, at + 4) << 32
}

impl Archive {
    /// Reads the directory and the header of every entry.
    pub(super) fn open(source: &Source) -> Result<Self> {
        let fault = |problem: String| Error::format(source.path(), problem, EXPECTED);
        let (count, begin, len) = directory(source)?;
        if len > LONGEST_DIRECTORY {
            return Err(fault(format!("a ZIP directory of {len} bytes")));
        }
        let mut bytes = vec![0; len as usize];
        source.read_exact_at(&mut bytes, begin)?;
        let mut rest = &bytes[..];
        let mut entries = Vec::new();
        for index in 0..count {
            let (mut entry, length) = described(rest).map_err(|problem| {
                fault(format!("entry {index} of the ZIP directory {problem}"))
            })?;
            rest = &rest[length..];
            locate(source, begin, &mut entry).map_err(|problem| match problem {
                Ok(problem) => fault(format!("`{}` {problem}", shown(&entry.name, 80))),
                Err(error) => error,
            })?;
            entries.push(entry);
        }
        if !rest.is_empty() {
            let more = rest.len();
            return Err(fault(format!("{more} bytes too many in the ZIP directory")));
        }
        entries.sort_by_key(|entry| entry.header);
        if let Some(pair) = entries
            .windows(2)
            .find(|pair| pair[0].begin + pair[0].len > pair[1].header)
        {
            let names = [&pair[0], &pair[1]].map(|entry| shown(&entry.name, 40));
            let [first, second] = names;
            return Err(fault(format!("`{first}` and `{second}` share bytes")));
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(pair) = entries.windows(2).find(|pair| pair[0].name == pair[1].name) {
            let name = shown(&pair[0].name, 80);
            return Err(fault(format!("`{name}` is in the archive twice")));
        }
        Ok(Self(entries))
    }

    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        let found = self
            .0
            .binary_search_by(|entry| entry.name.as_str().cmp(name));
        Some(&self.0[found.ok()?])
    }

    /// The folder with `data.pkl`, with its slash; the outermost if there are several.
    pub(super) fn root(&self) -> Option<&str> {
        self.0
            .iter()
            .filter_map(|entry| entry.name.strip_suffix("data.pkl"))
            .filter(|root| root.is_empty() || root.ends_with('/'))
            .min_by_key(|root| root.len())
    }
}

/// Number of entries, first byte and length of the directory.
fn directory(source: &Source) -> Result<(u64, u64, u64)> {
    let fault = |problem: &str| Error::format(source.path(), problem, EXPECTED);
    let len = source.len().min((END_LEN + LONGEST_COMMENT) as u64) as usize;
    let tail_begin = source.len() - len as u64;
    let mut tail = vec![0; len];
    source.read_exact_at(&mut tail, tail_begin)?;
    // The end record is the last thing in the file but for a comment whose length it knows.
    let is_end = |&at: &usize| {
        tail[at..].starts_with(&END) && at + END_LEN + u16_at(&tail, at + 20) as usize == len
    };
    let at = (0..=len.saturating_sub(END_LEN))
        .rev()
        .find(|at| at + END_LEN <= len && is_end(at));
    let at = at.ok_or_else(|| fault("truncated: a ZIP archive without its directory"))?;
    let end = &tail[at..];
    let end_begin = tail_begin + at as u64;
    let (mut count, mut size, mut begin) = (u16_at(end, 10), u32_at(end, 12), u32_at(end, 16));
    let mut before = end_begin;
    if count == 0xffff || size == 0xffff_ffff || begin == 0xffff_ffff {
        let wrong = || fault("the end of its ZIP directory is damaged");
        let mut locator = [0; LOCATOR_LEN];
        let locator_begin = end_begin.checked_sub(LOCATOR_LEN as u64);
        source.read_exact_at(&mut locator, locator_begin.ok_or_else(wrong)?)?;
        before = u64_at(&locator, 8);
        let fits = before
            .checked_add((WIDE_END_LEN + LOCATOR_LEN) as u64)
            .is_some_and(|after| after <= end_begin);
        if !locator.starts_with(&LOCATOR) || !fits {
            return Err(wrong());
        }
        let mut wide = [0; WIDE_END_LEN];
        source.read_exact_at(&mut wide, before)?;
        if !wide.starts_with(&WIDE_END) {
            return Err(wrong());
        }
        (count, size, begin) = (u64_at(&wide, 32), u64_at(&wide, 40), u64_at(&wide, 48));
    }
    if begin.checked_add(size).is_none_or(|after| after > before) {
        return Err(fault("its ZIP directory lies outside the file"));
    }
    Ok((count, begin, size))
}

/// The entry that a piece of the directory begins with, and the length of its description.
fn described(bytes: &[u8]) -> Result<(Entry, usize), &'static str> {
    let ended = "is cut off";
    let header = bytes.get(..ENTRY_LEN).ok_or(ended)?;
    if !header.starts_with(&ENTRY) {
        return Err("is none");
    }
    if u16_at(header, 8) as u16 & ENCRYPTED != 0 {
        return Err("is encrypted");
    }
    if u16_at(header, 10) as u16 != STORED {
        return Err("is compressed, where torch.save only stores");
    }
    let crc = u32_at(header, 16) as u32;
    let (mut packed, mut len, mut header_begin) =
        (u32_at(header, 20), u32_at(header, 24), u32_at(header, 42));
    let lengths = [28, 30, 32].map(|at| u16_at(header, at) as usize);
    let [name_len, extra_len, comment_len] = lengths;
    let name_end = ENTRY_LEN + name_len;
    let name = bytes.get(ENTRY_LEN..name_end).ok_or(ended)?;
    let mut extra = bytes.get(name_end..name_end + extra_len).ok_or(ended)?;
    while extra.len() >= 4 {
        let (kind, size) = (u16_at(extra, 0) as u16, u16_at(extra, 2) as usize);
        let mut field = extra.get(4..4 + size).ok_or(ended)?;
        extra = &extra[4 + size..];
        if kind == WIDE {
            for narrow in [&mut len, &mut packed, &mut header_begin] {
                if *narrow == 0xffff_ffff {
                    let wide = field.get(..8).ok_or(ended)?;
                    *narrow = u64_at(wide, 0);
                    field = &field[8..];
                }
            }
        }
    }
    let length = name_end + extra_len + comment_len;
    if length > bytes.len() {
        return Err(ended);
    }
    if packed != len {
        return Err("has two lengths");
    }
    let name = std::str::from_utf8(name).map_err(|_| "has a name that is not UTF-8")?;
    let entry = Entry {
        name: name.to_owned(),
        begin: 0,
        len,
        crc,
        header: header_begin,
    };
    Ok((entry, length))
}

/// Finds the first byte of an entry behind its own header, which must agree with the directory.
fn locate(source: &Source, end: u64, entry: &mut Entry) -> Result<(), Result<&'static str, Error>> {
    let name_begin = entry.header.checked_add(LOCAL_LEN as u64);
    let name_end = name_begin.and_then(|begin| begin.checked_add(entry.name.len() as u64));
    let (Some(name_begin), Some(name_end)) = (name_begin, name_end.filter(|&at| at <= end)) else {
        return Err(Ok("lies outside the file"));
    };
    let mut header = [0; LOCAL_LEN];
    source
        .read_exact_at(&mut header, entry.header)
        .map_err(Err)?;
    let mut name = vec![0; entry.name.len()];
    source.read_exact_at(&mut name, name_begin).map_err(Err)?;
    if !header.starts_with(&LOCAL)
        || u16_at(&header, 8) as u16 != STORED
        || u16_at(&header, 26) != entry.name.len() as u64
        || name != entry.name.as_bytes()
    {
        return Err(Ok(
            "is another entry in its own header than in the directory",
        ));
    }
    entry.begin = name_end + u16_at(&header, 28);
    if entry
        .begin
        .checked_add(entry.len)
        .is_none_or(|after| after > end)
    {
        return Err(Ok("lies outside the file"));
    }
    Ok(())
}
