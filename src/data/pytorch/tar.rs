//! Tar archives, in which PyTorch saved before version 0.1.10: `sys_info`, `storages`, `tensors` and `pickle`.
//!
//! `storages` has a count, then for each storage a pickle (key, location, class), the number of its elements and their
//! bytes, and at the end a list of views. `tensors` has a count, then for each tensor a pickle (key, storage, class), its
//! rank, shape, strides and offset. `pickle` is the object, which names tensors by their keys. Values stay in the file:
//! what is read takes as much memory as the descriptions have bytes, and [`super::pickle`]'s share for each opcode.

use std::collections::HashMap;

use super::pickle::{Ids, Kind, Pickle};
use super::{Reading, View};
use crate::Result;
use crate::data::shown;

const BLOCK: u64 = 512;
/// Most axes of a tensor.
const MOST_AXES: i32 = 16;

/// Where an entry of the archive lies in the file.
#[derive(Clone, Copy)]
struct Extent {
    begin: u64,
    end: u64,
}

/// Elements of a storage and where they are.
#[derive(Clone, Copy)]
struct Storage {
    kind: Kind,
    begin: u64,
    count: u64,
}

/// The saved object, and the tensors that it refers to by number.
pub(super) fn read(reading: &mut Reading<'_>) -> Result<(Pickle, Vec<View>)> {
    let entries = entries(reading)?;
    let find = |reading: &Reading<'_>, name: &str| {
        let found = entries.get(name).copied();
        found.ok_or_else(|| reading.fault(format!("no `{name}` in the tar archive")))
    };
    if let Some(about) = entries.get("sys_info") {
        let about = reading.pickle(about.begin, about.end, &Ids::None)?;
        reading.little_endian(&about)?;
    }
    let storages = storages(reading, find(reading, "storages")?)?;
    let (numbers, views) = tensors(reading, find(reading, "tensors")?, &storages)?;
    let object = find(reading, "pickle")?;
    let object = reading.pickle(object.begin, object.end, &Ids::Tensors(&numbers))?;
    Ok((object, views))
}

fn entries(reading: &Reading<'_>) -> Result<HashMap<String, Extent>> {
    let mut found = HashMap::new();
    let mut at = 0;
    while at + BLOCK <= reading.source.len() {
        let mut header = [0; BLOCK as usize];
        reading.source.read_exact_at(&mut header, at)?;
        if header[0] == 0 {
            break;
        }
        let field = |range: std::ops::Range<usize>| {
            let text = header[range].split(|&byte| byte == 0).next();
            String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
        };
        let size = u64::from_str_radix(field(124..136).trim(), 8).ok();
        let begin = at + BLOCK;
        let end = size.and_then(|size| begin.checked_add(size));
        let end = end.filter(|&end| end <= reading.source.len());
        let end = end.ok_or_else(|| reading.fault("a tar entry lies outside the file"))?;
        let name = field(0..100);
        let name = name.trim_start_matches("./");
        let known = ["sys_info", "storages", "tensors", "pickle"].contains(&name);
        if known
            && matches!(header[156], 0 | b'0')
            && found
                .insert(name.to_owned(), Extent { begin, end })
                .is_some()
        {
            return Err(reading.fault(format!("`{name}` is in the tar archive twice")));
        }
        at = end.next_multiple_of(BLOCK);
    }
    Ok(found)
}

/// The number that an entry begins with, and where it goes on.
fn count(reading: &mut Reading<'_>, extent: Extent) -> Result<(i64, u64)> {
    let pickle = reading.pickle(extent.begin, extent.end, &Ids::None)?;
    let count = pickle.integer();
    let count = count.ok_or_else(|| reading.fault("a count that is no number"))?;
    Ok((count, extent.begin + pickle.length as u64))
}

/// The three names of a description, and where it ends.
fn description(reading: &mut Reading<'_>, at: u64, end: u64) -> Result<([String; 3], u64)> {
    let pickle = reading.pickle(at, end, &Ids::None)?;
    let names = pickle.fields();
    let names = names.ok_or_else(|| reading.fault("a description that is not of three names"))?;
    Ok((names, at + pickle.length as u64))
}

fn storages(reading: &mut Reading<'_>, extent: Extent) -> Result<HashMap<String, Storage>> {
    let (count, mut at) = count(reading, extent)?;
    let mut found = HashMap::new();
    for _ in 0..count {
        let ([key, _, class], after) = description(reading, at, extent.end)?;
        let kind = Kind::of_storage(&class);
        let kind =
            kind.ok_or_else(|| reading.fault(format!("a storage of class {}", shown(&class, 40))))?;
        let elements = reading.number(after, extent.end)?;
        let begin = after + 8;
        let end = u64::try_from(elements)
            .ok()
            .and_then(|elements| elements.checked_mul(kind.size))
            .and_then(|bytes| begin.checked_add(bytes))
            .filter(|&end| end <= extent.end);
        at = end.ok_or_else(|| reading.beyond(&key))?;
        let storage = Storage {
            kind,
            begin,
            count: elements as u64,
        };
        if found.insert(key, storage).is_some() {
            return Err(reading.fault("a storage that is described twice"));
        }
    }
    let views = reading.pickle(at, extent.end, &Ids::None)?;
    let fault = || reading.fault("no list of storage views");
    for &row in views.list().ok_or_else(fault)? {
        let [key, root, offset, size] = views.fields_of(row).ok_or_else(fault)?;
        let view = found.get(&root).and_then(|storage| {
            let (offset, count): (u64, u64) = (offset.parse().ok()?, size.parse().ok()?);
            let fits = offset.checked_add(count)? <= storage.count;
            let begin = storage.begin + offset.checked_mul(storage.kind.size)?;
            fits.then_some(Storage {
                begin,
                count,
                ..*storage
            })
        });
        let view = view.ok_or_else(|| reading.beyond(&root))?;
        found.insert(key, view);
    }
    Ok(found)
}

fn tensors(
    reading: &mut Reading<'_>,
    extent: Extent,
    storages: &HashMap<String, Storage>,
) -> Result<(HashMap<String, u32>, Vec<View>)> {
    let (count, mut at) = count(reading, extent)?;
    let (mut numbers, mut views) = (HashMap::new(), Vec::new());
    for _ in 0..count {
        let ([key, storage, _], after) = description(reading, at, extent.end)?;
        // Four bytes, and four that are not used.
        let rank = reading.number(after, extent.end)? as i32;
        if !(0..=MOST_AXES).contains(&rank) {
            return Err(reading.fault(format!("a tensor of {rank} axes")));
        }
        at = after + 8;
        let mut sizes = Vec::new();
        for _ in 0..2 * rank + 1 {
            let size = u64::try_from(reading.number(at, extent.end)?);
            sizes.push(size.map_err(|_| reading.fault("a tensor with a negative extent"))?);
            at += 8;
        }
        let storage = storages.get(&storage);
        let storage = storage.ok_or_else(|| reading.fault("a tensor without a storage"))?;
        let (shape, rest) = sizes.split_at(rank as usize);
        let (strides, offset) = rest.split_at(rank as usize);
        let view = View::new(
            storage.kind,
            shape.to_vec(),
            strides.to_vec(),
            offset[0],
            storage.begin,
            storage.count,
        )
        .map_err(|problem| reading.fault(format!("tensor `{}`: {problem}", shown(&key, 40))))?;
        numbers.insert(key, views.len() as u32);
        views.push(view);
    }
    Ok((numbers, views))
}
