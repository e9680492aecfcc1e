//! Pickles, the stack language in which Python describes an object, as far as `torch.save` uses it.
//!
//! Nothing is ever called: of all that a pickle may ask for, only what puts a tensor together has a meaning here, and
//! what has none becomes [`Value::Other`]. Values lie in one list and refer to each other by number, as Python's refer
//! by pointer, so that fetching one from the memo costs four bytes however large it is, nothing is walked recursively,
//! and nesting has no price. Names, texts and classes are places in the pickle, not copies.
//!
//! A pickle takes its own bytes, of which there are at most [`LONGEST`], and up to 128 bytes for each opcode, of which
//! all pickles of a file have at most [`MOST_OPCODES`] together: 256 MiB at worst, and a few MiB for a real network.

mod machine;

use std::collections::HashMap;

use super::View;
use crate::data::shown;
use crate::data::tensors::Element;

/// Opcodes that all pickles of a file may have together; some forty describe a tensor.
pub(super) const MOST_OPCODES: u64 = 1 << 21;
/// Bytes that a pickle may have. The values of tensors are not in it.
pub(super) const LONGEST: u64 = 128 << 20;
/// Dictionaries and lists within each other that are searched for tensors.
const DEEPEST: usize = 32;
const LONGEST_NAME: usize = 1024;
const MOST_TENSORS: usize = 1 << 16;
const MOST_AXES: usize = 16;

/// Reason to refuse a pickle.
#[derive(Debug)]
pub(super) enum Fault {
    /// The bytes end before the pickle does.
    Ended,
    Bad(String),
}

impl From<&str> for Fault {
    fn from(problem: &str) -> Self {
        Self::Bad(problem.to_owned())
    }
}

impl From<String> for Fault {
    fn from(problem: String) -> Self {
        Self::Bad(problem)
    }
}

/// Number of a value.
pub(super) type Id = u32;

const NONE: Id = 0;
const FALSE: Id = 1;
const TRUE: Id = 2;
const EMPTY_TUPLE: Id = 3;
/// A number or bytes of no interest. An object that may still be built has a value of its own.
const PLAIN: Id = 4;

/// A piece of the pickle's bytes, or of the members of its tuples.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    len: u32,
}

#[derive(Debug)]
enum Value {
    None,
    Bool(bool),
    Integer(i64),
    Text(Span),
    Class { module: Span, name: Span },
    Tuple(Span),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Storage(u32),
    Tensor(u32),
    Other,
}

#[derive(Debug)]
struct Cell {
    value: Value,
    /// Whether a tensor or storage is in it, however deep.
    holds_tensor: bool,
}

/// Element type of a storage, and its size in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Kind {
    pub(super) element: Element,
    pub(super) size: u64,
}

/// PyTorch's name of each storage class and dtype.
const KINDS: &[(&str, &[&str], Element, u64)] = &[
    ("FloatStorage", &["float32", "float"], Element::F32, 4),
    ("DoubleStorage", &["float64", "double"], Element::F64, 8),
    ("HalfStorage", &["float16", "half"], Element::F16, 2),
    ("BFloat16Storage", &["bfloat16"], Element::Bf16, 2),
    ("LongStorage", &["int64", "long"], Element::I64, 8),
    ("IntStorage", &["int32", "int"], Element::I32, 4),
    ("ByteStorage", &["uint8"], Element::U8, 1),
    (
        "ShortStorage",
        &["int16", "short"],
        Element::Other("i16"),
        2,
    ),
    ("CharStorage", &["int8"], Element::Other("i8"), 1),
    ("BoolStorage", &["bool"], Element::Other("bool"), 1),
    ("", &["uint16"], Element::Other("u16"), 2),
    ("", &["uint32"], Element::Other("u32"), 4),
    ("", &["uint64"], Element::Other("u64"), 8),
];

impl Kind {
    pub(super) fn of_storage(class: &str) -> Option<Self> {
        Self::find(|known| known.0 == class)
    }

    fn of_dtype(name: &str) -> Option<Self> {
        Self::find(|known| known.1.contains(&name))
    }

    fn find(is_it: impl Fn(&(&str, &[&str], Element, u64)) -> bool) -> Option<Self> {
        let &(_, _, element, size) = KINDS.iter().find(|known| is_it(known))?;
        Some(Self { element, size })
    }
}

/// A storage as a persistent id describes it.
#[derive(Debug)]
struct Storage {
    key: Id,
    /// `None` for bytes without a type.
    kind: Option<Kind>,
    /// Elements that it has.
    count: u64,
    /// The first element that a tensor counts from, and the end of what it may reach.
    offset: u64,
    reach: u64,
}

/// A tensor as it was put together. Shape and strides are looked at when it is asked for.
#[derive(Debug)]
struct Tensor {
    storage: u32,
    kind: Kind,
    offset: i64,
    shape: Id,
    strides: Id,
}

/// Meaning of a persistent id.
pub(super) enum Ids<'a> {
    /// There may be none.
    None,
    /// A tuple that describes a storage.
    Storages,
    /// The name of a tensor, whose number is in this table.
    Tensors(&'a HashMap<String, u32>),
}

/// A pickle that was read.
#[derive(Debug)]
pub(super) struct Pickle {
    bytes: Vec<u8>,
    cells: Vec<Cell>,
    /// Members of all tuples.
    members: Vec<Id>,
    storages: Vec<Storage>,
    tensors: Vec<Tensor>,
    root: Id,
    /// Bytes up to its end.
    pub(super) length: usize,
}

impl Pickle {
    /// Reads the pickle that `bytes` begin with.
    pub(super) fn read(
        bytes: Vec<u8>,
        ids: &Ids<'_>,
        opcodes_left: &mut u64,
    ) -> Result<Self, Fault> {
        let constants = [
            Value::None,
            Value::Bool(false),
            Value::Bool(true),
            Value::Tuple(Span { start: 0, len: 0 }),
            Value::Other,
        ];
        let cell = |value| Cell {
            value,
            holds_tensor: false,
        };
        let pickle = Self {
            bytes,
            cells: constants.into_iter().map(cell).collect(),
            members: Vec::new(),
            storages: Vec::new(),
            tensors: Vec::new(),
            root: NONE,
            length: 0,
        };
        machine::run(pickle, ids, opcodes_left)
    }

    fn value(&self, id: Id) -> &Value {
        &self.cells[id as usize].value
    }

    fn holds_tensor(&self, id: Id) -> bool {
        self.cells[id as usize].holds_tensor
    }

    fn slice(&self, span: Span) -> &[u8] {
        &self.bytes[span.start as usize..][..span.len as usize]
    }

    fn tuple(&self, id: Id) -> Option<&[Id]> {
        match *self.value(id) {
            Value::Tuple(span) => Some(&self.members[span.start as usize..][..span.len as usize]),
            _ => None,
        }
    }

    fn is_text(&self, id: Id, text: &str) -> bool {
        matches!(*self.value(id), Value::Text(span) if self.slice(span) == text.as_bytes())
    }

    /// A text, an integer or the name of a class, unless it is too long for a name.
    pub(super) fn name(&self, id: Id) -> Option<String> {
        match *self.value(id) {
            Value::Text(span) | Value::Class { name: span, .. }
                if span.len as usize <= LONGEST_NAME =>
            {
                Some(String::from_utf8_lossy(self.slice(span)).into_owned())
            }
            Value::Integer(value) => Some(value.to_string()),
            _ => None,
        }
    }

    /// The last value that a dictionary has under a key.
    fn lookup(&self, dict: Id, key: &str) -> Option<Id> {
        match self.value(dict) {
            Value::Dict(pairs) => {
                let found = pairs
                    .iter()
                    .rev()
                    .find(|(name, _)| self.is_text(*name, key));
                found.map(|&(_, value)| value)
            }
            _ => None,
        }
    }

    /// The pickled integer.
    pub(super) fn integer(&self) -> Option<i64> {
        match *self.value(self.root) {
            Value::Integer(value) => Some(value),
            _ => None,
        }
    }

    /// A truth value of the pickled dictionary.
    pub(super) fn truth(&self, key: &str) -> Option<bool> {
        match *self.value(self.lookup(self.root, key)?) {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// The members of the pickled list.
    pub(super) fn list(&self) -> Option<&[Id]> {
        match self.value(self.root) {
            Value::List(members) => Some(members),
            _ => None,
        }
    }

    /// The members of the pickled tuple of `N`, as names.
    pub(super) fn fields<const N: usize>(&self) -> Option<[String; N]> {
        self.fields_of(self.root)
    }

    /// The members of a tuple of `N`, as names.
    pub(super) fn fields_of<const N: usize>(&self, id: Id) -> Option<[String; N]> {
        let members: &[Id; N] = self.tuple(id)?.try_into().ok()?;
        let names: Option<Vec<String>> = members.iter().map(|&id| self.name(id)).collect();
        names?.try_into().ok()
    }

    /// Key and length in bytes of every storage that a tensor could be in, and the size of its elements.
    pub(super) fn storages(&self) -> impl Iterator<Item = Option<(String, u64, u64)>> {
        self.storages.iter().map(|storage| {
            let size = storage.kind.map_or(1, |kind| kind.size);
            Some((
                self.name(storage.key)?,
                storage.count.checked_mul(size)?,
                size,
            ))
        })
    }

    /// Names and numbers of the tensors of a state dictionary: of the first of these keys under which the root has a
    /// dictionary with tensors, or of the root itself.
    pub(super) fn state_dict(&self, keys: &[&str]) -> Result<Vec<(String, u32)>, String> {
        if !matches!(self.value(self.root), Value::Dict(_)) {
            return Err("the pickle holds no dictionary".into());
        }
        let is_state = |&id: &Id| matches!(self.value(id), Value::Dict(_)) && self.holds_tensor(id);
        let below = keys.iter().filter_map(|key| self.lookup(self.root, key));
        let mut below = below.filter(is_state);
        let root = below.next().unwrap_or(self.root);
        let mut search = Search {
            pickle: self,
            path: String::new(),
            found: Vec::new(),
            // Twice, for weights that are in the file under two names.
            left: 2 * MOST_OPCODES,
        };
        search.walk(root, 0)?;
        Ok(search.found)
    }

    /// Where the values of a tensor are. `locate` gives first byte and length of a storage by its key.
    pub(super) fn view(
        &self,
        index: u32,
        locate: impl FnOnce(&str) -> Option<(u64, u64)>,
    ) -> Result<View, String> {
        let tensor = &self.tensors[index as usize];
        let storage = &self.storages[tensor.storage as usize];
        let extents = |id: Id, what: &str| {
            let members = self.tuple(id).ok_or(format!("its {what} is no tuple"))?;
            if members.len() > MOST_AXES {
                return Err(format!("its {what} has {} axes", members.len()));
            }
            let extent = |&id: &Id| match *self.value(id) {
                Value::Integer(extent) => u64::try_from(extent).ok(),
                _ => None,
            };
            let extents: Option<Vec<u64>> = members.iter().map(extent).collect();
            extents.ok_or(format!("its {what} is not of whole numbers from 0"))
        };
        let (shape, strides) = (
            extents(tensor.shape, "shape")?,
            extents(tensor.strides, "stride")?,
        );
        let offset = u64::try_from(tensor.offset).ok();
        let offset = offset
            .and_then(|offset| offset.checked_add(storage.offset))
            .ok_or("its offset is out of range")?;
        let key = self.name(storage.key).ok_or("its storage has no name")?;
        let (begin, length) =
            locate(&key).ok_or_else(|| format!("the file has no storage `{}`", shown(&key, 40)))?;
        let reach = storage.reach.min(length / tensor.kind.size);
        View::new(tensor.kind, shape, strides, offset, begin, reach)
    }
}

/// The search of an object for tensors.
struct Search<'a> {
    pickle: &'a Pickle,
    path: String,
    found: Vec<(String, u32)>,
    /// Members that may still be looked at: what refers to itself, or to one thing again and again, has no end.
    left: u64,
}

impl Search<'_> {
    fn walk(&mut self, id: Id, depth: usize) -> Result<(), String> {
        let pickle = self.pickle;
        if let Value::Tensor(index) = *pickle.value(id) {
            if self.found.len() == MOST_TENSORS {
                return Err(format!("more than {MOST_TENSORS} tensors"));
            }
            self.found.push((self.path.clone(), index));
            return Ok(());
        }
        if !pickle.holds_tensor(id) {
            return Ok(());
        }
        if depth == DEEPEST {
            return Err(format!("tensors more than {DEEPEST} containers deep"));
        }
        match pickle.value(id) {
            Value::Dict(pairs) => {
                self.spend(pairs.len())?;
                for &(key, value) in pairs {
                    if pickle.holds_tensor(value) {
                        let name = pickle.name(key);
                        let name = name.ok_or("a tensor under a key that is no name")?;
                        self.step(&name, value, depth)?;
                    }
                }
                Ok(())
            }
            Value::List(members) => self.members(members, depth),
            _ => self.members(pickle.tuple(id).unwrap_or(&[]), depth),
        }
    }

    fn members(&mut self, members: &[Id], depth: usize) -> Result<(), String> {
        self.spend(members.len())?;
        for (index, &member) in members.iter().enumerate() {
            if self.pickle.holds_tensor(member) {
                self.step(&index.to_string(), member, depth)?;
            }
        }
        Ok(())
    }

    fn step(&mut self, name: &str, id: Id, depth: usize) -> Result<(), String> {
        let before = self.path.len();
        if before > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        if self.path.len() > LONGEST_NAME {
            return Err(format!("a tensor's name of more than {LONGEST_NAME} bytes"));
        }
        self.walk(id, depth + 1)?;
        self.path.truncate(before);
        Ok(())
    }

    fn spend(&mut self, count: usize) -> Result<(), String> {
        let left = self.left.checked_sub(count as u64);
        self.left = left.ok_or("its parts refer to each other too often")?;
        Ok(())
    }
}
