//! The machine that carries pickles out: a stack, marks on it, a memo, and an opcode after the other.
//!
//! Every opcode costs one of those that the file may have, and so does each value that one copies, so that time and
//! memory are bounded by their number and by the length of the pickle.

use std::collections::{HashMap, HashSet};

use super::{
    Cell, EMPTY_TUPLE, FALSE, Fault, Id, Ids, Kind, MOST_OPCODES, NONE, PLAIN, Pickle, Span,
    Storage, TRUE, Tensor, Value,
};
use crate::data::shown;

/// Longest line of the opcodes that end with one.
const LONGEST_LINE: usize = 1 << 16;

/// Reads a pickle of which nothing but the bytes and the constants is known.
pub(super) fn run(pickle: Pickle, ids: &Ids<'_>, opcodes_left: &mut u64) -> Result<Pickle, Fault> {
    let mut machine = Machine {
        pickle,
        at: 0,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        opcodes_left,
        ids,
    };
    while machine.step()? {}
    let root = machine.pop()?;
    let mut pickle = machine.pickle;
    (pickle.root, pickle.length) = (root, machine.at);
    Ok(pickle)
}

struct Machine<'a> {
    pickle: Pickle,
    at: usize,
    stack: Vec<Id>,
    marks: Vec<u32>,
    memo: HashMap<u32, Id>,
    opcodes_left: &'a mut u64,
    ids: &'a Ids<'a>,
}

impl Machine<'_> {
    /// Carries out one opcode; false after the last.
    fn step(&mut self) -> Result<bool, Fault> {
        self.spend(1)?;
        let [opcode] = self.array()?;
        match opcode {
            b'.' => return Ok(false),
            // Protocol and frame.
            0x80 => match self.array()? {
                [0..=5] => {}
                [version] => return Err(format!("pickle protocol {version}").into()),
            },
            0x95 => {
                self.take(8)?;
            }
            b'N' => self.stack.push(NONE),
            0x88 => self.stack.push(TRUE),
            0x89 => self.stack.push(FALSE),
            b'J' => self.integer(i32::from_le_bytes)?,
            b'K' => self.integer(u8::from_le_bytes)?,
            b'M' => self.integer(u16::from_le_bytes)?,
            b'I' | b'L' => {
                let line = self.line()?;
                let text = std::str::from_utf8(self.pickle.slice(line)).unwrap_or_default();
                match text {
                    "00" => self.stack.push(FALSE),
                    "01" => self.stack.push(TRUE),
                    _ => match text.strip_suffix('L').unwrap_or(text).parse() {
                        Ok(value) => self.push(Value::Integer(value)),
                        Err(_) => self.stack.push(PLAIN),
                    },
                }
            }
            0x8a => {
                let [length] = self.array()?;
                self.long(length.into())?;
            }
            0x8b => {
                let length = u32::from_le_bytes(self.array()?);
                self.long(length.into())?;
            }
            b'F' | b'S' => {
                self.line()?;
                self.stack.push(PLAIN);
            }
            b'G' => {
                self.take(8)?;
                self.stack.push(PLAIN);
            }
            b'V' => {
                let line = self.line()?;
                self.text(line);
            }
            0x8c | b'U' => {
                let [length] = self.array()?;
                let span = self.take(length.into())?;
                self.text(span);
            }
            b'X' | b'T' => {
                let length = u32::from_le_bytes(self.array()?);
                let span = self.take(length.into())?;
                self.text(span);
            }
            0x8d => {
                let length = u64::from_le_bytes(self.array()?);
                let span = self.take(length)?;
                self.text(span);
            }
            b'C' => {
                let [length] = self.array()?;
                self.skip(length.into())?;
            }
            b'B' => {
                let length = u32::from_le_bytes(self.array()?);
                self.skip(length.into())?;
            }
            0x8e | 0x96 => {
                let length = u64::from_le_bytes(self.array()?);
                self.skip(length)?;
            }
            b'(' => self.marks.push(self.stack.len() as u32),
            b')' => self.stack.push(EMPTY_TUPLE),
            b']' | 0x8f => self.push(Value::List(Vec::new())),
            b'}' => self.push(Value::Dict(Vec::new())),
            b't' => {
                let first = self.mark()?;
                self.push_tuple(first);
            }
            0x85..=0x87 => {
                let count = usize::from(opcode - 0x84);
                let first = self.stack.len().checked_sub(count);
                let first = first.filter(|&first| first >= self.floor());
                self.push_tuple(first.ok_or("a tuple of more than the stack has")?);
            }
            b'l' | 0x91 => {
                let first = self.mark()?;
                let members = self.stack.split_off(first);
                self.push(Value::List(Vec::new()));
                self.extend(&members)?;
            }
            b'd' => {
                let first = self.mark()?;
                let items = self.stack.split_off(first);
                self.push(Value::Dict(Vec::new()));
                self.set_items(&items)?;
            }
            b'a' => {
                let item = self.pop()?;
                self.extend(&[item])?;
            }
            b'e' | 0x90 => {
                let first = self.mark()?;
                let items = self.stack.split_off(first);
                self.extend(&items)?;
            }
            b's' => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.set_items(&[key, value])?;
            }
            b'u' => {
                let first = self.mark()?;
                let items = self.stack.split_off(first);
                self.set_items(&items)?;
            }
            b'0' => {
                // A bare mark is discarded as a value is.
                if self.marks.last() == Some(&(self.stack.len() as u32)) {
                    self.marks.pop();
                } else {
                    self.pop()?;
                }
            }
            b'1' => {
                let first = self.mark()?;
                self.stack.truncate(first);
            }
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
            }
            b'g' => {
                let slot = self.slot()?;
                self.get(slot)?;
            }
            b'h' => {
                let [slot] = self.array()?;
                self.get(slot.into())?;
            }
            b'j' => {
                let slot = u32::from_le_bytes(self.array()?);
                self.get(slot)?;
            }
            b'p' => {
                let slot = self.slot()?;
                self.put(slot)?;
            }
            b'q' => {
                let [slot] = self.array()?;
                self.put(slot.into())?;
            }
            b'r' => {
                let slot = u32::from_le_bytes(self.array()?);
                self.put(slot)?;
            }
            0x94 => self.put(self.memo.len() as u32)?,
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.push(Value::Class { module, name });
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                match (self.pickle.value(module), self.pickle.value(name)) {
                    (&Value::Text(module), &Value::Text(name)) => {
                        self.push(Value::Class { module, name });
                    }
                    _ => return Err("a class whose name is no text".into()),
                }
            }
            b'P' => {
                let line = self.line()?;
                self.text(line);
                self.persistent()?;
            }
            b'Q' => self.persistent()?,
            b'R' => self.reduce()?,
            0x81 => {
                let (arguments, class) = (self.pop()?, self.pop()?);
                self.object(class, &[arguments])?;
            }
            0x92 => {
                let (named, arguments, class) = (self.pop()?, self.pop()?, self.pop()?);
                self.object(class, &[arguments, named])?;
            }
            b'b' => self.build()?,
            other => return Err(format!("pickle opcode {other:#04x}").into()),
        }
        Ok(true)
    }

    /// Counts work: each opcode, and each value that one copies.
    fn spend(&mut self, count: usize) -> Result<(), Fault> {
        let left = self.opcodes_left.checked_sub(count as u64);
        *self.opcodes_left =
            left.ok_or_else(|| format!("pickles of more than {MOST_OPCODES} opcodes"))?;
        Ok(())
    }

    fn take(&mut self, length: u64) -> Result<Span, Fault> {
        let left = self.pickle.bytes.len() - self.at;
        if length > left as u64 {
            return Err(Fault::Ended);
        }
        let start = self.at;
        self.at += length as usize;
        // A pickle has at most LONGEST bytes.
        Ok(Span {
            start: start as u32,
            len: length as u32,
        })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let span = self.take(N as u64)?;
        self.pickle.slice(span).try_into().map_err(|_| Fault::Ended)
    }

    /// Up to the end of the line, without it.
    fn line(&mut self) -> Result<Span, Fault> {
        let rest = &self.pickle.bytes[self.at..];
        let searched = &rest[..rest.len().min(LONGEST_LINE)];
        match searched.iter().position(|&byte| byte == b'\n') {
            Some(length) => {
                let span = self.take(length as u64)?;
                self.at += 1;
                Ok(span)
            }
            None if rest.len() < LONGEST_LINE => Err(Fault::Ended),
            None => Err(format!("a line of more than {LONGEST_LINE} bytes").into()),
        }
    }

    fn slot(&mut self) -> Result<u32, Fault> {
        let line = self.line()?;
        let text = std::str::from_utf8(self.pickle.slice(line)).unwrap_or_default();
        text.parse()
            .map_err(|_| Fault::from("a memo entry that is no number"))
    }

    fn integer<const N: usize, T: Into<i64>>(
        &mut self,
        value: impl Fn([u8; N]) -> T,
    ) -> Result<(), Fault> {
        let bytes = self.array()?;
        self.push(Value::Integer(value(bytes).into()));
        Ok(())
    }

    /// A whole number of any length; beyond 64 bits it is nothing that matters here.
    fn long(&mut self, length: u64) -> Result<(), Fault> {
        let span = self.take(length)?;
        let bytes = self.pickle.slice(span);
        if bytes.len() > 8 {
            self.stack.push(PLAIN);
            return Ok(());
        }
        let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut whole = [if negative { 0xff } else { 0 }; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        self.push(Value::Integer(i64::from_le_bytes(whole)));
        Ok(())
    }

    fn text(&mut self, span: Span) {
        // Python 2 wrote bytes and texts alike.
        if std::str::from_utf8(self.pickle.slice(span)).is_ok() {
            self.push(Value::Text(span));
        } else {
            self.stack.push(PLAIN);
        }
    }

    fn skip(&mut self, length: u64) -> Result<(), Fault> {
        self.take(length)?;
        self.stack.push(PLAIN);
        Ok(())
    }

    fn push(&mut self, value: Value) {
        self.push_holding(value, false);
    }

    fn push_holding(&mut self, value: Value, holds_tensor: bool) {
        self.stack.push(self.pickle.cells.len() as Id);
        self.pickle.cells.push(Cell {
            value,
            holds_tensor,
        });
    }

    fn push_tuple(&mut self, first: usize) {
        let holds_tensor = self.any_tensor(&self.stack[first..]);
        let start = self.pickle.members.len() as u32;
        let members = self.stack.drain(first..);
        let len = members.len() as u32;
        self.pickle.members.extend(members);
        self.push_holding(Value::Tuple(Span { start, len }), holds_tensor);
    }

    fn any_tensor(&self, ids: &[Id]) -> bool {
        ids.iter().any(|&id| self.pickle.holds_tensor(id))
    }

    /// The height of the stack below which the innermost mark hides everything.
    fn floor(&self) -> usize {
        self.marks.last().map_or(0, |&mark| mark as usize)
    }

    fn top(&self) -> Result<Id, Fault> {
        if self.stack.len() == self.floor() {
            return Err("a value is taken from an empty stack".into());
        }
        self.stack.last().copied().ok_or(Fault::Ended)
    }

    fn pop(&mut self) -> Result<Id, Fault> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    /// Removes the innermost mark and returns the height that it was set at.
    fn mark(&mut self) -> Result<usize, Fault> {
        let mark = self.marks.pop().ok_or("no mark on the stack")?;
        Ok(mark as usize)
    }

    fn get(&mut self, slot: u32) -> Result<(), Fault> {
        let id = *self.memo.get(&slot).ok_or("an empty memo entry")?;
        self.stack.push(id);
        Ok(())
    }

    fn put(&mut self, slot: u32) -> Result<(), Fault> {
        let top = self.top()?;
        self.memo.insert(slot, top);
        Ok(())
    }

    /// Appends to the list on top of the stack.
    fn extend(&mut self, items: &[Id]) -> Result<(), Fault> {
        let holds_tensor = self.any_tensor(items);
        let top = self.top()? as usize;
        let cell = &mut self.pickle.cells[top];
        match &mut cell.value {
            Value::List(members) => members.extend_from_slice(items),
            // A list of another class; what is in it matters only if it is a tensor.
            Value::Other if !holds_tensor => {}
            Value::Other => return Err("a tensor in an object of an unknown class".into()),
            _ => return Err("values are appended to what is no list".into()),
        }
        cell.holds_tensor |= holds_tensor;
        Ok(())
    }

    /// Sets entries of the dictionary on top of the stack.
    fn set_items(&mut self, items: &[Id]) -> Result<(), Fault> {
        let (pairs, []) = items.as_chunks::<2>() else {
            return Err("a dictionary's key without a value".into());
        };
        let holds_tensor = self.any_tensor(items);
        let top = self.top()? as usize;
        let cell = &mut self.pickle.cells[top];
        match &mut cell.value {
            Value::Dict(entries) => entries.extend(pairs.iter().map(|&[key, value]| (key, value))),
            Value::Other if !holds_tensor => {}
            Value::Other => return Err("a tensor in an object of an unknown class".into()),
            _ => return Err("entries are set in what is no dictionary".into()),
        }
        cell.holds_tensor |= holds_tensor;
        Ok(())
    }

    /// An object of a class that means nothing here, made from these values.
    fn object(&mut self, class: Id, from: &[Id]) -> Result<(), Fault> {
        if self.any_tensor(from) || self.pickle.holds_tensor(class) {
            return Err(self.unknown(class));
        }
        self.push(Value::Other);
        Ok(())
    }

    fn unknown(&self, class: Id) -> Fault {
        let name = match *self.pickle.value(class) {
            Value::Class { module, name } => [module, name]
                .map(|span| shown(&String::from_utf8_lossy(self.pickle.slice(span)), 40))
                .join("."),
            _ => "an object".to_owned(),
        };
        Fault::Bad(format!(
            "a tensor goes into {name}, which has no meaning here"
        ))
    }

    fn non_negative(&self, id: Id) -> Result<u64, Fault> {
        match *self.pickle.value(id) {
            Value::Integer(value) => u64::try_from(value).ok(),
            _ => None,
        }
        .ok_or_else(|| "a storage whose size is no whole number from 0".into())
    }

    /// Replaces the persistent id on the stack by what it stands for.
    fn persistent(&mut self) -> Result<(), Fault> {
        let id = self.pop()?;
        match self.ids {
            Ids::None => return Err("a reference to a storage where there are none".into()),
            Ids::Tensors(numbers) => {
                let number = self.pickle.name(id).and_then(|name| numbers.get(&name));
                let number =
                    *number.ok_or("a reference to a tensor that the file does not have")?;
                self.push_holding(Value::Tensor(number), true);
            }
            Ids::Storages => {
                let fault = || Fault::from("a reference that is not to a storage");
                let members = self.pickle.tuple(id).ok_or_else(fault)?;
                let &[tag, class, key, _, count, ref view @ ..] = members else {
                    return Err(fault());
                };
                let Value::Class { name, .. } = *self.pickle.value(class) else {
                    return Err(fault());
                };
                if !self.pickle.is_text(tag, "storage") {
                    return Err(fault());
                }
                let class = String::from_utf8_lossy(self.pickle.slice(name));
                let kind = Kind::of_storage(&class);
                if kind.is_none() && class != "UntypedStorage" {
                    return Err(format!("a storage of class {}", shown(&class, 40)).into());
                }
                let count = self.non_negative(count)?;
                // Early files described views of a storage: key, offset and size.
                let (offset, reach) = match view.first().map(|&view| self.pickle.tuple(view)) {
                    None | Some(None) => (0, count),
                    Some(Some(&[_, offset, size])) => {
                        let offset = self.non_negative(offset)?;
                        let end = offset.checked_add(self.non_negative(size)?);
                        let end = end.filter(|&end| end <= count);
                        (offset, end.ok_or("a view beyond its storage")?)
                    }
                    Some(Some(_)) => return Err(fault()),
                };
                let index = self.pickle.storages.len() as u32;
                self.pickle.storages.push(Storage {
                    key,
                    kind,
                    count,
                    offset,
                    reach,
                });
                self.push_holding(Value::Storage(index), true);
            }
        }
        Ok(())
    }

    /// Calls a function, of those that have a meaning here; for any other the result is [`Value::Other`].
    fn reduce(&mut self) -> Result<(), Fault> {
        let (mut arguments, mut function) = (self.pop()?, self.pop()?);
        loop {
            self.spend(1)?;
            let Value::Class { module, name } = *self.pickle.value(function) else {
                return self.object(function, &[arguments]);
            };
            let given: &[Id] = self.pickle.tuple(arguments).unwrap_or(&[]);
            let names = [module, name].map(|span| self.pickle.slice(span));
            match (names, given) {
                ([b"collections", b"OrderedDict"], []) => self.push(Value::Dict(Vec::new())),
                ([b"collections", b"OrderedDict"], &[items]) => self.ordered_dict(items)?,
                ([b"collections", b"defaultdict"], &[] | &[_]) => {
                    self.push(Value::Dict(Vec::new()));
                }
                ([b"builtins" | b"__builtin__", b"set" | b"frozenset"], []) => {
                    self.push(Value::List(Vec::new()));
                }
                // A set is read as the list that it is made from, a size as its tuple.
                ([b"builtins" | b"__builtin__", b"set" | b"frozenset"], &[items]) => {
                    self.stack.push(items);
                }
                ([b"torch", b"Size"], &[extents]) => self.stack.push(extents),
                ([b"torch._utils", b"_rebuild_tensor"], &[storage, offset, shape, strides]) => {
                    self.tensor(storage, offset, shape, strides, None)?;
                }
                (
                    [b"torch._utils", b"_rebuild_tensor_v2"],
                    &[storage, offset, shape, strides, _, _, ..],
                ) => self.tensor(storage, offset, shape, strides, None)?,
                (
                    [b"torch._utils", b"_rebuild_tensor_v3"],
                    &[storage, offset, shape, strides, _, _, dtype, ..],
                ) => self.tensor(storage, offset, shape, strides, Some(dtype))?,
                // Data, requires_grad, hooks and perhaps more: the data is all that counts.
                (
                    [
                        b"torch._utils",
                        b"_rebuild_parameter" | b"_rebuild_parameter_with_state",
                    ],
                    &[data, ref rest @ ..],
                ) => {
                    if self.any_tensor(rest) {
                        return Err(self.unknown(function));
                    }
                    self.stack.push(data);
                }
                // Function, class, arguments, state: what the function makes, without its class.
                (
                    [b"torch._tensor", b"_rebuild_from_type_v2"],
                    &[inner, _, with, ref state @ ..],
                ) => {
                    if self.any_tensor(state) {
                        return Err(self.unknown(function));
                    }
                    (function, arguments) = (inner, with);
                    continue;
                }
                _ => return self.object(function, &[arguments]),
            }
            return Ok(());
        }
    }

    fn tensor(
        &mut self,
        storage: Id,
        offset: Id,
        shape: Id,
        strides: Id,
        dtype: Option<Id>,
    ) -> Result<(), Fault> {
        let Value::Storage(storage) = *self.pickle.value(storage) else {
            return Err("a tensor without a storage".into());
        };
        let Value::Integer(offset) = *self.pickle.value(offset) else {
            return Err("a tensor whose offset is no number".into());
        };
        let stored = self.pickle.storages[storage as usize].kind;
        let asked = match dtype.map(|dtype| self.pickle.value(dtype)) {
            None => stored,
            Some(&Value::Class { name, .. }) => {
                let name = String::from_utf8_lossy(self.pickle.slice(name));
                let kind = Kind::of_dtype(&name);
                Some(kind.ok_or_else(|| format!("a tensor of {}", shown(&name, 40)))?)
            }
            Some(_) => None,
        };
        let kind = asked.filter(|&asked| stored.is_none_or(|stored| stored == asked));
        let kind = kind.ok_or("a tensor of another type than its storage")?;
        let index = self.pickle.tensors.len() as u32;
        self.pickle.tensors.push(Tensor {
            storage,
            kind,
            offset,
            shape,
            strides,
        });
        self.push_holding(Value::Tensor(index), true);
        Ok(())
    }

    fn ordered_dict(&mut self, items: Id) -> Result<(), Fault> {
        let fault = || Fault::from("a dictionary that is not made of pairs");
        let members = |id: Id| match self.pickle.value(id) {
            Value::List(members) => Some(&members[..]),
            _ => self.pickle.tuple(id),
        };
        let list = members(items).ok_or_else(fault)?;
        let count = list.len();
        if count as u64 > *self.opcodes_left {
            return self.spend(count);
        }
        let pair = |&id: &Id| match members(id) {
            Some(&[key, value]) => Ok((key, value)),
            _ => Err(fault()),
        };
        let pairs: Result<Vec<(Id, Id)>, Fault> = list.iter().map(pair).collect();
        let holds_tensor = self.pickle.holds_tensor(items);
        self.push_holding(Value::Dict(pairs?), holds_tensor);
        self.spend(count)
    }

    /// Gives an object its state.
    fn build(&mut self) -> Result<(), Fault> {
        let (state, object) = (self.pop()?, self.pop()?);
        let is_object = matches!(self.pickle.value(object), Value::Other) && object != PLAIN;
        let module = if is_object { self.module(state)? } else { None };
        match module {
            Some(entries) => {
                let holds_tensor = self.pickle.holds_tensor(state);
                self.pickle.cells[object as usize] = Cell {
                    value: Value::Dict(entries),
                    holds_tensor,
                };
            }
            // Attributes of a dictionary or an object are of no interest unless they hide a tensor.
            None if self.pickle.holds_tensor(state) => return Err(self.unknown(object)),
            None => {}
        }
        self.stack.push(object);
        Ok(())
    }

    /// What `state_dict()` of a pickled `torch.nn.Module` would have: parameters, buffers and modules below, without
    /// buffers that do not persist. `None` if this is no state of a module.
    fn module(&mut self, state: Id) -> Result<Option<Vec<(Id, Id)>>, Fault> {
        let Value::Dict(attributes) = self.pickle.value(state) else {
            return Ok(None);
        };
        let count = attributes.len();
        self.spend(count)?;
        let table = |name: &str| {
            let found = self.pickle.lookup(state, name)?;
            match self.pickle.value(found) {
                Value::Dict(entries) => Some(entries),
                _ => None,
            }
        };
        let (Some(parameters), Some(buffers), Some(modules)) =
            (table("_parameters"), table("_buffers"), table("_modules"))
        else {
            return Ok(None);
        };
        let passing = self.pickle.lookup(state, "_non_persistent_buffers_set");
        let passing = match passing.map(|id| self.pickle.value(id)) {
            Some(Value::List(names)) => &names[..],
            _ => &[],
        };
        let count = parameters.len() + buffers.len() + modules.len() + passing.len();
        if count as u64 > *self.opcodes_left {
            self.spend(count)?;
            return Ok(None);
        }
        let text = |id: Id| match *self.pickle.value(id) {
            Value::Text(span) => Some(self.pickle.slice(span)),
            _ => None,
        };
        let passing: HashSet<&[u8]> = passing.iter().filter_map(|&id| text(id)).collect();
        let lasting =
            |(name, _): &&(Id, Id)| text(*name).is_none_or(|name| !passing.contains(name));
        let entries = parameters
            .iter()
            .chain(buffers.iter().filter(lasting))
            .chain(modules);
        let entries = entries.copied().collect();
        self.spend(count)?;
        Ok(Some(entries))
    }
}
