//! Files put together byte by byte, for readers that are to refuse or survive them: nothing here checks what it writes.

use std::io::Write;

use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use flate2::{Compression, Crc};

/// A pickle, opcode by opcode.
#[derive(Clone, Default)]
pub(crate) struct Pickle(pub(crate) Vec<u8>);

impl Pickle {
    pub(crate) fn new() -> Self {
        Self(vec![0x80, 2])
    }

    pub(crate) fn code(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn text(self, text: &str) -> Self {
        let length = (text.len() as u32).to_le_bytes();
        self.code(b"X").code(&length).code(text.as_bytes())
    }

    pub(crate) fn integer(self, value: i64) -> Self {
        self.code(&[0x8a, 8]).code(&value.to_le_bytes())
    }

    pub(crate) fn integers(self, values: &[i64]) -> Self {
        let tuple = values.iter().fold(self.code(b"("), |p, &v| p.integer(v));
        tuple.code(b"t")
    }

    /// A reference to a storage of so many elements.
    pub(crate) fn storage(self, class: &str, key: &str, count: i64) -> Self {
        self.code(b"(")
            .text("storage")
            .code(format!("ctorch\n{class}\n").as_bytes())
            .text(key)
            .text("cpu")
            .integer(count)
            .code(b"tQ")
    }

    /// A tensor of f32 as `torch._utils._rebuild_tensor_v2` makes it.
    pub(crate) fn tensor(self, key: &str, count: i64, shape: &[i64], strides: &[i64]) -> Self {
        self.code(b"ctorch._utils\n_rebuild_tensor_v2\n(")
            .storage("FloatStorage", key, count)
            .integer(0)
            .integers(shape)
            .integers(strides)
            .code(b"\x89ccollections\nOrderedDict\n)RtR")
    }

    pub(crate) fn end(self) -> Vec<u8> {
        self.code(b".").0
    }
}

/// `{"weight": …}` with a tensor of this shape in a storage of so many elements.
pub(crate) fn one_tensor(count: i64, shape: &[i64], strides: &[i64]) -> Vec<u8> {
    let pickle = Pickle::new().code(b"}(").text("weight");
    pickle.tensor("0", count, shape, strides).code(b"u").end()
}

/// An entry of a ZIP archive.
#[derive(Clone)]
pub(crate) struct Packed {
    pub(crate) name: String,
    pub(crate) method: u16,
    pub(crate) length: u32,
    pub(crate) crc: u32,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) fn stored(name: &str, bytes: &[u8]) -> Packed {
    let mut crc = Crc::new();
    crc.update(bytes);
    Packed {
        name: name.into(),
        method: 0,
        length: bytes.len() as u32,
        crc: crc.sum(),
        bytes: bytes.to_vec(),
    }
}

pub(crate) fn deflated(name: &str, bytes: &[u8]) -> Packed {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    Packed {
        method: 8,
        bytes: encoder.finish().unwrap(),
        ..stored(name, bytes)
    }
}

/// The description of an entry, as it stands in the directory or in front of the entry.
fn described(entry: &Packed, header: u32, in_directory: bool) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(if in_directory {
        b"PK\x01\x02\0\0"
    } else {
        b"PK\x03\x04\0\0"
    });
    if in_directory {
        out.extend([0; 2]);
    }
    out.extend([0; 2]);
    out.extend(entry.method.to_le_bytes());
    out.extend([0; 4]);
    out.extend(entry.crc.to_le_bytes());
    out.extend((entry.bytes.len() as u32).to_le_bytes());
    out.extend(entry.length.to_le_bytes());
    out.extend((entry.name.len() as u16).to_le_bytes());
    out.extend([0; 2]);
    if in_directory {
        out.extend([0; 10]);
        out.extend(header.to_le_bytes());
    }
    out.extend(entry.name.as_bytes());
    out
}

/// An archive of entries that begin at these places of a file; `body` is what comes before the directory.
pub(crate) fn directory(mut body: Vec<u8>, entries: &[(Packed, u32)]) -> Vec<u8> {
    let begin = body.len() as u32;
    for (entry, header) in entries {
        body.extend(described(entry, *header, true));
    }
    let size = body.len() as u32 - begin;
    body.extend(b"PK\x05\x06\0\0\0\0");
    body.extend((entries.len() as u16).to_le_bytes());
    body.extend((entries.len() as u16).to_le_bytes());
    body.extend(size.to_le_bytes());
    body.extend(begin.to_le_bytes());
    body.extend([0; 2]);
    body
}

pub(crate) fn zip(entries: &[Packed]) -> Vec<u8> {
    let mut body = Vec::new();
    let mut placed = Vec::new();
    for entry in entries {
        placed.push((entry.clone(), body.len() as u32));
        body.extend(described(entry, 0, false));
        body.extend(&entry.bytes);
    }
    directory(body, &placed)
}

/// What `torch.save` writes since 1.6, with these entries instead of storages.
pub(crate) fn archive(pickle: Packed, storages: &[Packed]) -> Vec<u8> {
    let about = [
        stored("m/byteorder", b"little"),
        stored("m/version", b"3\n"),
    ];
    zip(&[&[pickle], storages, &about].concat())
}

/// What `torch.save` wrote before 1.6: five pickles, then the storages.
pub(crate) fn stream(object: &[u8], storages: &[(&str, &[f32])]) -> Vec<u8> {
    let mut file = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.".to_vec();
    file.extend(b"\x80\x02M\xe9\x03.");
    let about = Pickle::new()
        .code(b"}(")
        .text("little_endian")
        .code(b"\x88u");
    file.extend(about.end());
    file.extend(object);
    let keys = storages
        .iter()
        .fold(Pickle::new().code(b"]("), |p, (key, _)| p.text(key));
    file.extend(keys.code(b"e").end());
    for (_, values) in storages {
        file.extend((values.len() as u64).to_le_bytes());
        file.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    }
    file
}

pub(crate) fn tar(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut file = Vec::new();
    for (name, bytes) in entries {
        let mut header = vec![0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        let size = format!("{:011o}", bytes.len());
        header[124..135].copy_from_slice(size.as_bytes());
        header[156] = b'0';
        header[257..262].copy_from_slice(b"ustar");
        file.extend(header);
        file.extend(*bytes);
        file.resize(file.len().next_multiple_of(512), 0);
    }
    file.resize(file.len() + 1024, 0);
    file
}

/// What PyTorch wrote before 0.1.10: `{"weight": …}` of a storage of six values, transposed.
pub(crate) fn oldest() -> Vec<u8> {
    let count = |n| Pickle::new().integer(n).end();
    let description = |class: &str, key: i64, of: &str| {
        let pickle = Pickle::new().code(b"(").integer(key);
        let pickle = if of.is_empty() {
            pickle.integer(7)
        } else {
            pickle.text(of)
        };
        pickle.code(format!("ctorch\n{class}\nt").as_bytes()).end()
    };
    let mut storages = count(1);
    storages.extend(description("FloatStorage", 7, "cpu"));
    storages.extend(6_i64.to_le_bytes());
    storages.extend((0..6_u8).flat_map(|v| f32::from(v).to_le_bytes()));
    storages.extend(Pickle::new().code(b"]").end());
    let mut tensors = count(1);
    tensors.extend(description("FloatTensor", 9, ""));
    tensors.extend(2_i32.to_le_bytes());
    tensors.extend([0; 4]);
    for number in [2_i64, 3, 1, 2, 0] {
        tensors.extend(number.to_le_bytes());
    }
    let object = Pickle::new()
        .code(b"}(")
        .text("weight")
        .text("9")
        .code(b"Qu");
    let about = Pickle::new()
        .code(b"}(")
        .text("little_endian")
        .code(b"\x88u");
    tar(&[
        ("./sys_info", &about.end()),
        ("./storages", &storages),
        ("./tensors", &tensors),
        ("./pickle", &object.end()),
    ])
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// An IDX file of unsigned bytes.
pub(crate) fn idx(shape: &[u32], values: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, shape.len() as u8];
    bytes.extend(shape.iter().flat_map(|extent| extent.to_be_bytes()));
    bytes.extend(values);
    bytes
}

/// A PNG of 8-bit RGB whose header says this size, with so many bytes of black.
pub(crate) fn png(width: u32, height: u32, raw: usize) -> Vec<u8> {
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut chunk = |kind: &[u8; 4], data: &[u8]| {
        let mut crc = Crc::new();
        crc.update(kind);
        crc.update(data);
        out.extend((data.len() as u32).to_be_bytes());
        out.extend(kind);
        out.extend(data);
        out.extend(crc.sum().to_be_bytes());
    };
    let mut header = [width.to_be_bytes(), height.to_be_bytes()].concat();
    header.extend([8, 2, 0, 0, 0]);
    chunk(b"IHDR", &header);
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&vec![0; raw]).unwrap();
    chunk(b"IDAT", &encoder.finish().unwrap());
    chunk(b"IEND", &[]);
    out
}

/// A safetensors file of this header and this many bytes of zeros.
pub(crate) fn safetensors(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

/// A JPEG of one colour and 16×16 pixels whose header says this size.
pub(crate) fn jpeg(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let image = image::RgbImage::from_pixel(16, 16, image::Rgb([90, 120, 40]));
    let mut cursor = std::io::Cursor::new(&mut bytes);
    image
        .write_to(&mut cursor, image::ImageFormat::Jpeg)
        .unwrap();
    let at = bytes
        .windows(2)
        .position(|pair| pair == [0xff, 0xc0])
        .unwrap();
    bytes[at + 5..at + 7].copy_from_slice(&height.to_be_bytes());
    bytes[at + 7..at + 9].copy_from_slice(&width.to_be_bytes());
    bytes
}
