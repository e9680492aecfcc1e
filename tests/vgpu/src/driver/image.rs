//! What a module is loaded from: PTX text, or a fat binary that holds some.
//!
//! A fat binary is a header and entries, each with PTX or machine code for one target. PTX may be compressed; LZ4
//! blocks (`--compress-mode=speed`, the default before CUDA 13) are unpacked here, Zstandard is not.

use super::abi::{In, take_host_bytes};

/// Why there is no text to run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ImageError {
    /// A null pointer.
    Null,
    /// Machine code only, or PTX that cannot be unpacked.
    NoPtx(&'static str),
    /// Not what its header says.
    Damaged(&'static str),
}

const ELF: [u8; 4] = *b"\x7fELF";
const FAT_BINARY: [u8; 4] = 0xba55_ed50u32.to_le_bytes();
const FAT_WRAPPER: [u8; 4] = 0x4662_43b1u32.to_le_bytes();
const KIND_PTX: u16 = 1;
const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;
/// Bytes of an entry's header that are read here.
const ENTRY_HEADER: usize = 64;

/// The PTX text of an image; of several, the newest that the device would take.
pub(super) fn ptx_text(image: In<u8>, capability: (i32, i32)) -> Result<String, ImageError> {
    let address = image.address() as u64;
    if address == 0 {
        return Err(ImageError::Null);
    }
    match magic(image) {
        Some(ELF) => Err(ImageError::NoPtx(
            "it is a cubin; compile to PTX or to a fat binary with PTX",
        )),
        Some(FAT_WRAPPER) => {
            // Magic, version, pointer to the data.
            let wrapper = take_host_bytes(address, 16);
            fat_binary(
                word(&wrapper, 8).ok_or(ImageError::Damaged("wrapper"))?,
                capability,
            )
        }
        Some(FAT_BINARY) => fat_binary(address, capability),
        _ => {
            let length = (0..)
                .take_while(|&k| !matches!(image.at(k), Ok(0) | Err(_)))
                .count();
            text(take_host_bytes(address, length))
        }
    }
}

/// The first four bytes, unless a text ends before them.
fn magic(image: In<u8>) -> Option<[u8; 4]> {
    let mut bytes = [0; 4];
    for (k, byte) in bytes.iter_mut().enumerate() {
        *byte = image.at(k).ok().filter(|&b| b != 0)?;
    }
    Some(bytes)
}

fn text(bytes: Vec<u8>) -> Result<String, ImageError> {
    String::from_utf8(bytes).map_err(|_| ImageError::Damaged("neither text nor a fat binary"))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..at + 8)?
        .try_into()
        .ok()
        .map(u64::from_le_bytes)
}

fn half_word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..at + 4)?
        .try_into()
        .ok()
        .map(u32::from_le_bytes)
}

fn fat_binary(address: u64, capability: (i32, i32)) -> Result<String, ImageError> {
    if address == 0 {
        return Err(ImageError::Damaged("no data"));
    }
    let header = take_host_bytes(address, 16);
    if header[..4] != FAT_BINARY {
        return Err(ImageError::Damaged("header"));
    }
    let size = word(&header, 8)
        .and_then(|n| usize::try_from(n).ok())
        .ok_or(ImageError::Damaged("size"))?;
    let start = usize::from(u16::from_le_bytes([header[6], header[7]]));
    unpack(&take_host_bytes(address + start as u64, size), capability)
}

/// The text of the best entry.
fn unpack(mut entries: &[u8], capability: (i32, i32)) -> Result<String, ImageError> {
    let device = (capability.0 * 10 + capability.1) as u32;
    let mut best: Option<(u32, Result<Vec<u8>, ImageError>)> = None;
    while entries.len() >= ENTRY_HEADER {
        let field = |at| half_word(entries, at).map(|n| n as usize);
        let damaged = || ImageError::Damaged("entry");
        let header = field(4)
            .filter(|&n| n >= ENTRY_HEADER)
            .ok_or_else(damaged)?;
        let payload = word(entries, 8)
            .and_then(|n| usize::try_from(n).ok())
            .ok_or_else(damaged)?;
        let end = header.checked_add(payload).ok_or_else(damaged)?;
        let body = entries.get(header..end).ok_or_else(damaged)?;
        let architecture = half_word(entries, 28).ok_or_else(damaged)?;
        let newer = best.as_ref().is_none_or(|b| architecture > b.0);
        if u16::from_le_bytes([entries[0], entries[1]]) == KIND_PTX
            && architecture <= device
            && newer
        {
            let flags = word(entries, 40).ok_or_else(damaged)?;
            let unpacked = word(entries, 56)
                .and_then(|n| usize::try_from(n).ok())
                .ok_or_else(damaged)?;
            let packed = body
                .get(..field(16).ok_or_else(damaged)?)
                .ok_or_else(damaged)?;
            let bytes = if flags & FLAG_ZSTD != 0 {
                Err(ImageError::NoPtx(
                    "its PTX is Zstandard-compressed; use nvcc --compress-mode=none or speed",
                ))
            } else if flags & FLAG_LZ4 != 0 {
                lz4_block(packed, unpacked).ok_or(ImageError::Damaged("LZ4 block"))
            } else {
                Ok(body.to_vec())
            };
            best = Some((architecture, bytes));
        }
        entries = &entries[end..];
    }
    let (_, bytes) = best.ok_or(ImageError::NoPtx(
        "it has no PTX for this device or an older one",
    ))?;
    let mut bytes = bytes?;
    bytes.truncate(bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len()));
    text(bytes)
}

/// Unpacks an LZ4 block of known length.
fn lz4_block(mut packed: &[u8], unpacked: usize) -> Option<Vec<u8>> {
    /// A length that goes on in further bytes when its four bits are full.
    fn length(packed: &mut &[u8], nibble: u8) -> Option<usize> {
        let mut length = usize::from(nibble);
        if nibble == 15 {
            loop {
                let (&more, rest) = packed.split_first()?;
                *packed = rest;
                length += usize::from(more);
                if more != 255 {
                    break;
                }
            }
        }
        Some(length)
    }
    let mut out = Vec::with_capacity(unpacked.min(64 << 20));
    while let Some((&token, rest)) = packed.split_first() {
        packed = rest;
        let literals = length(&mut packed, token >> 4)?;
        out.extend_from_slice(packed.get(..literals)?);
        packed = &packed[literals..];
        // The last sequence has literals only.
        if packed.is_empty() {
            break;
        }
        let distance = usize::from(u16::from_le_bytes([*packed.first()?, *packed.get(1)?]));
        packed = &packed[2..];
        let matched = length(&mut packed, token & 15)? + 4;
        if out.len() + matched > unpacked {
            return None;
        }
        let from = out.len().checked_sub(distance).filter(|_| distance > 0)?;
        // Byte by byte: a match may reach into what it is producing.
        for k in 0..matched {
            out.push(out[from + k]);
        }
    }
    (out.len() == unpacked).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry of a fat binary.
    fn entry(kind: u16, architecture: u32, flags: u64, packed: &[u8], unpacked: usize) -> Vec<u8> {
        let payload = packed.len().next_multiple_of(8);
        let mut bytes = vec![0; 80];
        bytes[0..2].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&80u32.to_le_bytes());
        bytes[8..16].copy_from_slice(&(payload as u64).to_le_bytes());
        bytes[16..20].copy_from_slice(&(packed.len() as u32).to_le_bytes());
        bytes[28..32].copy_from_slice(&architecture.to_le_bytes());
        bytes[40..48].copy_from_slice(&flags.to_le_bytes());
        bytes[56..64].copy_from_slice(&(unpacked as u64).to_le_bytes());
        bytes.extend_from_slice(packed);
        bytes.resize(80 + payload, 0);
        bytes
    }

    fn fat(entries: &[Vec<u8>]) -> Vec<u8> {
        let body = entries.concat();
        let mut bytes = FAT_BINARY.to_vec();
        bytes.extend([1, 0, 16, 0]);
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    fn of(bytes: &[u8]) -> Result<String, ImageError> {
        ptx_text(In::from(bytes), (8, 9))
    }

    #[test]
    fn text_is_taken_up_to_its_end() {
        assert_eq!(of(b".version 8.0\n\0rest").unwrap(), ".version 8.0\n");
        assert_eq!(of(b"\0").unwrap(), "");
        assert_eq!(ptx_text(In::null(), (8, 9)), Err(ImageError::Null));
        assert!(matches!(of(b"\x7fELF\x02\0"), Err(ImageError::NoPtx(_))));
    }

    #[test]
    fn the_newest_entry_that_the_device_takes_is_used() {
        let image = fat(&[
            entry(1, 75, 0, b"old\0", 4),
            entry(2, 89, 0, b"machine code", 0),
            entry(1, 80, 0, b"good\0", 5),
            entry(1, 90, 0, b"too new\0", 8),
        ]);
        assert_eq!(of(&image).unwrap(), "good");
        assert!(matches!(
            of(&fat(&[entry(2, 89, 0, b"code", 0)])),
            Err(ImageError::NoPtx(_))
        ));
        assert!(matches!(
            of(&fat(&[entry(1, 75, FLAG_ZSTD, b"zzzz", 9)])),
            Err(ImageError::NoPtx(_))
        ));
    }

    #[test]
    fn an_lz4_block_is_unpacked_and_a_damaged_one_refused() {
        // Literals "abc", a match of 9 at distance 3, literals "xyz".
        let packed = [0x35, b'a', b'b', b'c', 3, 0, 0x30, b'x', b'y', b'z'];
        assert_eq!(lz4_block(&packed, 15).unwrap(), b"abcabcabcabcxyz");
        let image = fat(&[entry(1, 75, FLAG_LZ4, &packed, 15)]);
        assert_eq!(of(&image).unwrap(), "abcabcabcabcxyz");
        for cut in 1..packed.len() {
            assert!(lz4_block(&packed[..cut], 15).is_none(), "cut to {cut}");
        }
        assert!(
            lz4_block(&[0x15, b'a', 2, 0, 0], 10).is_none(),
            "a match before the start"
        );
        // Long literals and a long match: 20 literals, then 4 + 15 + 255 + 1 more.
        let mut long = vec![0xff, 5];
        long.extend([b'q'; 20]);
        long.extend([1, 0, 255, 1, 0x10, b'!']);
        assert_eq!(lz4_block(&long, 20 + 275 + 1).unwrap().len(), 296);
    }

    /// Whatever bytes stand in a fat binary whose outer size is right, the answer is a text or an error.
    #[test]
    fn damaged_entries_are_refused_and_not_followed() {
        let packed = [0x35, b'a', b'b', b'c', 3, 0, 0x30, b'x', b'y', b'z'];
        let good = [
            entry(1, 75, FLAG_LZ4, &packed, 15),
            entry(1, 80, 0, b"text\0", 5),
        ]
        .concat();
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..3 {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let at = (state >> 33) as usize % bytes.len();
                bytes[at] = (state >> 20) as u8;
            }
            let length = (state >> 40) as usize % (bytes.len() + 1);
            let _ = unpack(&bytes[..length], (8, 9));
            let _ = unpack(&bytes, (8, 9));
        }
        assert_eq!(unpack(&good, (8, 9)).unwrap(), "text");
    }
}
