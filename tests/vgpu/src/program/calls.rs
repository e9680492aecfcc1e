//! Calls of device functions.
//!
//! A function is inlined at each call: its parameters are pieces of the caller's frame, and `ret` is a branch behind
//! the body. The frame lies in local memory, where addresses of parameters can be taken. Only a function that calls
//! itself, directly or not, becomes a subroutine: its frame begins where the caller's ends, its parameters are copied,
//! and the machine keeps the registers of the caller meanwhile.

use std::collections::{HashMap, HashSet};

use super::{
    CallSite,
    lower::{Builder, Result, Symbol},
    op::{NONE, Op, Reg},
};
use crate::ptx::{Function, Module, Operand, Space, Statement, Variable};

/// Calls nested deeper than this would make a kernel of absurd size.
const DEEPEST: usize = 64;

/// Bytes of a thread's stack for subroutines.
const STACK: u32 = 16 << 10;

/// The functions that are not inlined.
#[derive(Debug)]
pub(super) struct Subroutines<'m> {
    recursive: HashSet<&'m str>,
    list: Vec<Subroutine<'m>>,
    /// Of the subroutine that is being lowered: the register that holds where its frame begins, and its number.
    pub frame: Reg,
    current: Option<usize>,
}

#[derive(Debug)]
struct Subroutine<'m> {
    function: &'m Function,
    label: u32,
    frame: Reg,
    params: Vec<u32>,
    returns: Vec<u32>,
    /// Bytes of its frame, known when it was lowered.
    bytes: u32,
}

impl<'m> Subroutines<'m> {
    pub(super) fn new(module: &'m Module) -> Self {
        let mut called: HashMap<&str, HashSet<&str>> = HashMap::new();
        for function in &module.functions {
            if let Some(body) = &function.body {
                calls_in(body, called.entry(&function.name).or_default());
            }
        }
        let reaches_itself = |name: &str| {
            let mut seen = HashSet::new();
            let mut next: Vec<&str> = called.get(name).into_iter().flatten().copied().collect();
            while let Some(at) = next.pop() {
                if at == name {
                    return true;
                }
                if seen.insert(at) {
                    next.extend(called.get(at).into_iter().flatten());
                }
            }
            false
        };
        Self {
            recursive: called
                .keys()
                .copied()
                .filter(|name| reaches_itself(name))
                .collect(),
            list: Vec::new(),
            frame: NONE,
            current: None,
        }
    }
}

/// Collects the names that statements call.
fn calls_in<'m>(statements: &'m [Statement], out: &mut HashSet<&'m str>) {
    for statement in statements {
        match statement {
            Statement::Block(inside) => calls_in(inside, out),
            Statement::Instruction(i) if i.opcode.starts_with("call") => {
                let name = i.operands.iter().find_map(|o| match o {
                    Operand::Name(name) => Some(name.as_str()),
                    _ => None,
                });
                out.extend(name);
            }
            _ => {}
        }
    }
}

impl<'m> Builder<'m> {
    /// Lowers a call.
    pub(super) fn call(&mut self, operands: &'m [Operand]) -> Result<()> {
        let (returns, name, arguments) = match operands {
            [Operand::Name(name)] => (&[][..], name, &[][..]),
            [Operand::Name(name), Operand::List(arguments)] => {
                (&[][..], name, arguments.as_slice())
            }
            [Operand::List(returns), Operand::Name(name)] => (returns.as_slice(), name, &[][..]),
            [
                Operand::List(returns),
                Operand::Name(name),
                Operand::List(arguments),
            ] => (returns.as_slice(), name, arguments.as_slice()),
            _ => return self.error("indirect calls are not supported"),
        };
        let returns = self.frame_addresses(returns)?;
        let arguments = self.frame_addresses(arguments)?;
        if self.known(name, &arguments, &returns)? {
            return Ok(());
        }
        let module = self.module;
        let called = module
            .functions
            .iter()
            .filter(|f| f.name == *name)
            .max_by_key(|f| f.body.is_some());
        let Some(function) = called else {
            return self.error(format!("function `{name}` is not known"));
        };
        if function.params.len() != arguments.len() || function.returns.len() != returns.len() {
            return self.error(format!(
                "`{name}` takes {} parameters and returns {}, not {} and {}",
                function.params.len(),
                function.returns.len(),
                arguments.len(),
                returns.len()
            ));
        }
        let end = self.new_label();
        if self.guard.0 != NONE {
            self.guard.1 = !self.guard.1;
            self.branch_to(end);
            self.guard = (NONE, false);
        }
        if self.subroutines.recursive.contains(name.as_str()) {
            self.call_subroutine(function, &arguments, &returns);
        } else {
            self.inline(function, end, &arguments, &returns)?;
        }
        self.place_label(end);
        Ok(())
    }

    /// Lowers the calls that the machine answers itself; returns whether it was one.
    fn known(&mut self, name: &str, arguments: &[u32], returns: &[u32]) -> Result<bool> {
        let op = match (name, arguments) {
            ("vprintf", &[format, values]) => Op::Print {
                format,
                arguments: values,
                result: returns.first().copied().unwrap_or(u32::MAX),
            },
            ("__assertfail", &[text, file, line, ..]) => Op::Trap {
                assertion: Some([text, file, line]),
            },
            _ => return Ok(false),
        };
        if self.subroutines.frame != NONE {
            return self.error(format!("`{name}` in a recursive function is not supported"));
        }
        self.emit(op);
        Ok(true)
    }

    fn inline(
        &mut self,
        function: &'m Function,
        end: u32,
        arguments: &[u32],
        returns: &[u32],
    ) -> Result<()> {
        if self.calls.len() == DEEPEST {
            return self.error(format!(
                "`{}` is called {DEEPEST} functions deep",
                function.name
            ));
        }
        let place = self.place;
        let outside = std::mem::replace(&mut self.scopes, vec![HashMap::new()]);
        self.declare_frame(&function.params, arguments);
        self.declare_frame(&function.returns, returns);
        self.calls.push((&function.name, Some(end)));
        self.body(function)?;
        self.calls.pop();
        self.scopes = outside;
        self.place = place;
        Ok(())
    }

    fn declare_frame(&mut self, variables: &[Variable], addresses: &[u32]) {
        for (variable, &address) in variables.iter().zip(addresses) {
            let address = u64::from(address);
            self.declare(
                &variable.name,
                Symbol::Memory {
                    space: Space::Local,
                    address,
                },
            );
        }
    }

    fn call_subroutine(&mut self, function: &'m Function, arguments: &[u32], returns: &[u32]) {
        let known = self
            .subroutines
            .list
            .iter()
            .position(|s| s.function.name == function.name);
        let index = known.unwrap_or_else(|| {
            // Its parameters come first in its frame.
            let outside = std::mem::take(&mut self.code.frame);
            let params = function
                .params
                .iter()
                .map(|v| self.frame_bytes(v))
                .collect();
            let returns = function
                .returns
                .iter()
                .map(|v| self.frame_bytes(v))
                .collect();
            let bytes = std::mem::replace(&mut self.code.frame, outside);
            let (label, frame) = (self.new_label(), self.temporary(64));
            self.subroutines.list.push(Subroutine {
                function,
                label,
                frame,
                params,
                returns,
                bytes,
            });
            self.subroutines.list.len() - 1
        });
        let callee = &self.subroutines.list[index];
        let copies = |variables: &[Variable], here: &[u32], there: &[u32]| {
            let sizes = variables.iter().map(|v| v.bytes as u32);
            here.iter()
                .zip(there)
                .zip(sizes)
                .map(|((&h, &t), bytes)| (h, t, bytes))
                .collect()
        };
        let site = CallSite {
            // Labels and numbers, until `place_calls` knows better.
            target: callee.label,
            callee_bytes: index as u32,
            caller_bytes: self.subroutines.current.map_or(u32::MAX, |c| c as u32),
            arguments: copies(&function.params, arguments, &callee.params),
            returns: copies(&function.returns, returns, &callee.returns),
        };
        let frame = callee.frame;
        self.code.calls.push(site);
        let caller = self.subroutines.frame;
        self.emit(Op::Call {
            site: self.code.calls.len() as u32 - 1,
            caller,
            frame,
        });
    }

    /// Lowers the subroutines that were called, and those that they call.
    pub(super) fn emit_subroutines(&mut self) -> Result<()> {
        let mut index = 0;
        while index < self.subroutines.list.len() {
            let Subroutine {
                function,
                label,
                frame,
                bytes,
                ..
            } = self.subroutines.list[index];
            let (params, returns) = {
                let s = &self.subroutines.list[index];
                (s.params.clone(), s.returns.clone())
            };
            let outside = std::mem::replace(&mut self.code.frame, bytes);
            self.subroutines.frame = frame;
            self.subroutines.current = Some(index);
            self.scopes = vec![HashMap::new()];
            self.declare_frame(&function.params, &params);
            self.declare_frame(&function.returns, &returns);
            self.place_label(label);
            self.calls.push((&function.name, None));
            self.body(function)?;
            self.calls.pop();
            self.emit(Op::Return);
            self.subroutines.list[index].bytes =
                std::mem::replace(&mut self.code.frame, outside).next_multiple_of(16);
            index += 1;
        }
        Ok(())
    }

    /// Puts places and sizes into the calls of subroutines, and makes room for their frames.
    pub(super) fn place_calls(&mut self) {
        self.code.frame = self.code.frame.next_multiple_of(16);
        let end = self.code.insts.len() as u32;
        for site in &mut self.code.calls {
            let list = &self.subroutines.list;
            site.target = self.labels[site.target as usize].unwrap_or(end);
            site.callee_bytes = list[site.callee_bytes as usize].bytes;
            site.caller_bytes = list
                .get(site.caller_bytes as usize)
                .map_or(self.code.frame, |s| s.bytes);
        }
        if !self.code.calls.is_empty() {
            self.code.frame += STACK;
        }
    }

    fn frame_addresses(&mut self, operands: &[Operand]) -> Result<Vec<u32>> {
        operands
            .iter()
            .map(|operand| match operand {
                Operand::Name(name) => match self.find(name) {
                    Some(&Symbol::Memory {
                        space: Space::Local,
                        address,
                    }) => Ok(address as u32),
                    _ => self.error(format!("`{name}` is not a parameter of a call")),
                },
                _ => self.error("an argument of a call is not a parameter"),
            })
            .collect()
    }
}
