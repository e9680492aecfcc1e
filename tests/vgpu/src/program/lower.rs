//! A kernel's text → instructions over virtual registers.
//!
//! Calls are in [`super::calls`].

use std::collections::HashMap;

use super::{
    Code, Kernel, allocate,
    calls::Subroutines,
    decode, flow,
    op::{Alu, Inst, Int, IntBin, List, NONE, Op, Reg, Special},
};
use crate::ptx::{
    Error, Function, Instruction, Location, Module, Operand, Space, Statement, Type, Variable,
};

pub(super) type Result<T> = std::result::Result<T, Error>;

/// Local memory of a thread, as CUDA bounds it.
const LARGEST_LOCAL: u64 = 512 << 10;

/// A virtual register: its width in bits (1 for a predicate) and, for a constant, what it holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Virtual {
    pub bits: u32,
    pub constant: Option<Constant>,
}

/// What is known at load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Constant {
    Bits(u64),
    /// Where dynamic shared memory begins, plus an offset: known when all static variables are placed.
    DynamicShared(i64),
}

#[derive(Clone, Debug)]
pub(super) enum Symbol {
    Register(Reg),
    /// `name<count>`: registers `name0`, `name1`, …
    Bank {
        first: Reg,
        count: u32,
    },
    Memory {
        space: Space,
        address: u64,
    },
    Label(u32),
    Targets(Vec<String>),
}

/// A kernel being built.
pub(super) struct Builder<'m> {
    pub module: &'m Module,
    globals: &'m HashMap<&'m str, u64>,
    pub scopes: Vec<HashMap<String, Symbol>>,
    pub registers: Vec<Virtual>,
    constants: HashMap<(u32, Constant), Reg>,
    pub code: Code,
    /// Where each label is, once it was met.
    pub labels: Vec<Option<u32>>,
    /// Branches to labels, by instruction.
    fixups: Vec<(usize, u32)>,
    shared: HashMap<String, u32>,
    shared_bytes: u32,
    local_bytes: u32,
    pub guard: (Reg, bool),
    pub place: (u32, Location),
    /// Functions being inlined and where they return to; of a subroutine, wherever it was called.
    pub calls: Vec<(&'m str, Option<u32>)>,
    pub subroutines: Subroutines<'m>,
}

/// Builds a kernel.
pub(super) fn kernel(
    module: &Module,
    globals: &HashMap<&str, u64>,
    function: &Function,
) -> Result<Kernel> {
    let mut builder = Builder {
        module,
        globals,
        scopes: vec![HashMap::new()],
        registers: Vec::new(),
        constants: HashMap::new(),
        code: Code::default(),
        labels: Vec::new(),
        fixups: Vec::new(),
        shared: HashMap::new(),
        shared_bytes: 0,
        local_bytes: 0,
        guard: (NONE, false),
        place: (function.line, Location::default()),
        calls: Vec::new(),
        subroutines: Subroutines::new(module),
    };
    let mut params = Vec::new();
    let mut at = 0u64;
    for param in &function.params {
        at = at.next_multiple_of(u64::from(param.align));
        builder.declare(
            &param.name,
            Symbol::Memory {
                space: Space::Param,
                address: at,
            },
        );
        params.push((at as usize, param.bytes as usize));
        at += param.bytes;
    }
    builder.body(function)?;
    builder.emit(Op::Exit);
    builder.emit_subroutines()?;
    builder.finish(function, params)
}

impl<'m> Builder<'m> {
    pub(super) fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(Error::new(self.place.0, message))
    }

    pub(super) fn declare(&mut self, name: &str, symbol: Symbol) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_string(), symbol);
        }
    }

    pub(super) fn body(&mut self, function: &'m Function) -> Result<()> {
        let Some(body) = &function.body else {
            return self.error(format!(
                "`{}` is declared and not defined: linking is not supported",
                function.name
            ));
        };
        self.block(body)
    }

    fn block(&mut self, statements: &'m [Statement]) -> Result<()> {
        self.scopes.push(HashMap::new());
        // Labels are known in all of their block, before and after.
        for statement in statements {
            match statement {
                Statement::Label(name) => {
                    let label = self.new_label();
                    self.declare(name, Symbol::Label(label));
                }
                Statement::Targets { label, targets } => {
                    self.declare(label, Symbol::Targets(targets.clone()))
                }
                _ => {}
            }
        }
        for statement in statements {
            self.statement(statement)?;
        }
        self.scopes.pop();
        Ok(())
    }

    fn statement(&mut self, statement: &'m Statement) -> Result<()> {
        match statement {
            Statement::Block(inside) => self.block(inside),
            Statement::Registers { ty, name, count } => {
                let bits = if *ty == Type::Pred { 1 } else { ty.bytes() * 8 };
                let first = self.registers.len() as Reg;
                let symbol = match count {
                    None => Symbol::Register(first),
                    Some(count) => Symbol::Bank {
                        first,
                        count: *count,
                    },
                };
                let count = count.unwrap_or(1);
                if self.registers.len() + count as usize > 1 << 24 {
                    return self.error(format!("{count} registers `{name}` are too many"));
                }
                let new = Virtual {
                    bits,
                    constant: None,
                };
                self.registers
                    .resize(self.registers.len() + count as usize, new);
                self.declare(name, symbol);
                Ok(())
            }
            Statement::Variable(variable) => self.variable(variable),
            Statement::Label(name) => {
                if let Some(&Symbol::Label(label)) = self.find(name) {
                    self.place_label(label);
                }
                Ok(())
            }
            Statement::Targets { .. } => Ok(()),
            Statement::Instruction(instruction) => {
                self.place = (instruction.line, instruction.location);
                self.instruction(instruction).map_err(|mut e| {
                    // Name the whole instruction once, whatever went wrong inside.
                    e.message = format!("`{}`: {}", instruction.opcode, e.message);
                    e
                })
            }
        }
    }

    fn variable(&mut self, variable: &Variable) -> Result<()> {
        if variable.bytes > LARGEST_LOCAL || u64::from(self.code.frame) > LARGEST_LOCAL {
            return self.error(format!(
                "`{}` makes a frame larger than {LARGEST_LOCAL} bytes",
                variable.name
            ));
        }
        let (space, address) = match variable.space {
            Space::Local | Space::Param => (Space::Local, self.frame_bytes(variable)),
            Space::Shared if variable.external => {
                return self.error(format!(
                    "`{}`: dynamic shared memory is declared at module scope",
                    variable.name
                ));
            }
            Space::Shared => (Space::Shared, self.place_shared(variable)?),
            _ => return self.error(format!("`{}` is declared in a function", variable.name)),
        };
        self.declare(
            &variable.name,
            Symbol::Memory {
                space,
                address: u64::from(address),
            },
        );
        Ok(())
    }

    pub(super) fn frame_bytes(&mut self, variable: &Variable) -> u32 {
        let address = self.code.frame.next_multiple_of(variable.align);
        self.code.frame = address + variable.bytes as u32;
        if variable.space == Space::Local {
            self.local_bytes += variable.bytes as u32;
        }
        address
    }

    fn place_shared(&mut self, variable: &Variable) -> Result<u32> {
        let address = self.shared_bytes.next_multiple_of(variable.align);
        let Some(end) = u32::try_from(variable.bytes)
            .ok()
            .and_then(|b| address.checked_add(b))
        else {
            return self.error(format!("`{}` is larger than shared memory", variable.name));
        };
        self.shared_bytes = end;
        Ok(address)
    }

    pub(super) fn find(&self, name: &str) -> Option<&Symbol> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }

    /// The register of that name.
    pub(super) fn register(&self, name: &str) -> Option<Reg> {
        if let Some(&Symbol::Register(reg)) = self.find(name) {
            return Some(reg);
        }
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (prefix, number) = name.split_at(name.len() - digits);
        match *self.find(prefix)? {
            Symbol::Bank { first, count } => {
                let number: u32 = number.parse().ok()?;
                (number < count).then_some(first + number)
            }
            _ => None,
        }
    }

    /// Space and address of a variable; a dynamic one is told by its name.
    fn memory(&mut self, name: &str) -> Result<Option<(Space, Constant)>> {
        if let Some(&Symbol::Memory { space, address }) = self.find(name) {
            return Ok(Some((space, Constant::Bits(address))));
        }
        if let Some(&address) = self.globals.get(name) {
            return Ok(Some((Space::Global, Constant::Bits(address))));
        }
        let module = self.module;
        let Some(variable) = module
            .variables
            .iter()
            .find(|v| v.name == name && v.space == Space::Shared)
        else {
            return Ok(None);
        };
        if variable.external || variable.bytes == 0 {
            return Ok(Some((Space::Shared, Constant::DynamicShared(0))));
        }
        let address = match self.shared.get(name) {
            Some(&address) => address,
            None => {
                let address = self.place_shared(variable)?;
                self.shared.insert(name.to_string(), address);
                address
            }
        };
        Ok(Some((Space::Shared, Constant::Bits(u64::from(address)))))
    }

    pub(super) fn bits(&self, reg: Reg) -> u32 {
        self.registers[reg as usize].bits
    }

    pub(super) fn temporary(&mut self, bits: u32) -> Reg {
        self.registers.push(Virtual {
            bits,
            constant: None,
        });
        self.registers.len() as Reg - 1
    }

    pub(super) fn constant(&mut self, bits: u32, value: Constant) -> Reg {
        let value = match value {
            Constant::Bits(v) if bits < 64 => Constant::Bits(v & ((1 << bits) - 1)),
            other => other,
        };
        if let Some(&reg) = self.constants.get(&(bits, value)) {
            return reg;
        }
        self.registers.push(Virtual {
            bits,
            constant: Some(value),
        });
        let reg = self.registers.len() as Reg - 1;
        self.constants.insert((bits, value), reg);
        reg
    }

    pub(super) fn number(&mut self, bits: u32, value: u64) -> Reg {
        self.constant(bits, Constant::Bits(value))
    }

    /// A destination register of exactly that many bits.
    pub(super) fn target(&mut self, operand: &Operand, bits: u32) -> Result<Reg> {
        match operand {
            Operand::Name(name) if name == "_" => Ok(NONE),
            Operand::Name(name) => match self.register(name) {
                Some(reg) if rows_alike(self.bits(reg), bits) => Ok(reg),
                Some(reg) => {
                    self.error(format!("`{name}` has {} bits, not {bits}", self.bits(reg)))
                }
                None => self.error(format!("`{name}` is not a register")),
            },
            _ => self.error("the destination is not a register"),
        }
    }

    /// A destination register of any width, for the instructions that extend.
    pub(super) fn any_target(&mut self, operand: &Operand) -> Result<Reg> {
        match operand {
            Operand::Name(name) if name == "_" => Ok(NONE),
            Operand::Name(name) => match self.register(name) {
                Some(reg) => Ok(reg),
                None => self.error(format!("`{name}` is not a register")),
            },
            _ => self.error("the destination is not a register"),
        }
    }

    /// A source of exactly that many bits: a register, an immediate, a special register or an address.
    pub(super) fn value(&mut self, operand: &Operand, bits: u32) -> Result<Reg> {
        match operand {
            Operand::Name(name) => {
                if let Some(reg) = self.register(name) {
                    if rows_alike(self.bits(reg), bits) {
                        return Ok(reg);
                    }
                    return self.error(format!("`{name}` has {} bits, not {bits}", self.bits(reg)));
                }
                if name == "WARP_SZ" {
                    return Ok(self.number(bits, 32));
                }
                if let Some(which) = special(name) {
                    let d = self.temporary(bits);
                    self.emit(Op::Special {
                        d,
                        which,
                        wide: bits == 64,
                    });
                    return Ok(d);
                }
                self.symbol(name, 0, bits)
            }
            Operand::Offset(name, offset) => self.symbol(name, *offset, bits),
            Operand::Integer(value) => Ok(self.number(bits, *value as u64)),
            Operand::Single(value) if bits <= 32 => Ok(self.number(bits, u64::from(*value))),
            Operand::Single(value) => {
                Ok(self.number(bits, f64::from(f32::from_bits(*value)).to_bits()))
            }
            Operand::Double(value) if bits == 64 => Ok(self.number(64, *value)),
            Operand::Double(value) => {
                Ok(self.number(bits, u64::from((f64::from_bits(*value) as f32).to_bits())))
            }
            _ => self.error("an operand is not a value"),
        }
    }

    /// A source register or immediate of any width up to 64, narrowed to `bits` if it is wider.
    pub(super) fn narrowed(&mut self, operand: &Operand, bits: u32) -> Result<Reg> {
        if let Operand::Name(name) = operand
            && let Some(a) = self.register(name)
            && self.bits(a) == 64
            && bits < 64
        {
            let d = self.temporary(32);
            let low = self.code.lists.len() as u32;
            self.code.lists.extend([d, NONE]);
            self.alu(Alu::Unpack {
                bits: 32,
                a,
                parts: List { start: low, len: 2 },
            });
            return Ok(d);
        }
        self.value(operand, bits)
    }

    fn symbol(&mut self, name: &str, offset: i64, bits: u32) -> Result<Reg> {
        match self.memory(name)? {
            Some((Space::Local, Constant::Bits(address))) if self.subroutines.frame != NONE => {
                let (d, a) = (self.temporary(64), self.subroutines.frame);
                let offset = self.number(64, address.wrapping_add_signed(offset));
                self.alu(Alu::IntBin {
                    f: IntBin::Add,
                    ty: Int::U64,
                    d,
                    a,
                    b: offset,
                });
                Ok(d)
            }
            Some((_, Constant::Bits(address))) => {
                Ok(self.number(bits, address.wrapping_add_signed(offset)))
            }
            Some((_, Constant::DynamicShared(_))) => {
                Ok(self.constant(bits, Constant::DynamicShared(offset)))
            }
            None if self.module.functions.iter().any(|f| f.name == name) => self.error(format!(
                "the address of function `{name}`: indirect calls are not supported"
            )),
            None => self.error(format!("`{name}` is not known")),
        }
    }

    /// A source predicate and whether it is negated.
    pub(super) fn predicate(&mut self, operand: &Operand) -> Result<(Reg, bool)> {
        let (name, negated) = match operand {
            Operand::Name(name) => (name, false),
            Operand::Not(name) => (name, true),
            Operand::Integer(value) => {
                let d = self.temporary(1);
                self.alu(Alu::PredicateConst {
                    d,
                    value: *value != 0,
                });
                return Ok((d, false));
            }
            _ => return self.error("an operand is not a predicate"),
        };
        match self.register(name) {
            Some(reg) if self.bits(reg) == 1 => Ok((reg, negated)),
            _ => self.error(format!("`{name}` is not a predicate")),
        }
    }

    /// A source predicate, with a negation done first.
    pub(super) fn plain_predicate(&mut self, operand: &Operand) -> Result<Reg> {
        let (a, negated) = self.predicate(operand)?;
        if !negated {
            return Ok(a);
        }
        let d = self.temporary(1);
        self.alu(Alu::PredicateNot { d, a });
        Ok(d)
    }

    /// The base register (or [`NONE`]), whether it has 64 bits, the offset, and the space of a named variable.
    pub(super) fn address(&mut self, operand: &Operand) -> Result<(Reg, bool, i64, Option<Space>)> {
        let Operand::Address(base, offset) = operand else {
            return self.error("an operand is not an address");
        };
        let Some(name) = base else {
            return Ok((NONE, false, *offset, None));
        };
        if let Some(reg) = self.register(name) {
            return match self.bits(reg) {
                32 => Ok((reg, false, *offset, None)),
                64 => Ok((reg, true, *offset, None)),
                bits => self.error(format!("address `{name}` has {bits} bits")),
            };
        }
        match self.memory(name)? {
            // The frame of a subroutine lies where its caller's ends.
            Some((Space::Local, Constant::Bits(address))) if self.subroutines.frame != NONE => {
                let offset = (address as i64).wrapping_add(*offset);
                Ok((self.subroutines.frame, true, offset, Some(Space::Local)))
            }
            Some((space, Constant::Bits(address))) => Ok((
                NONE,
                false,
                (address as i64).wrapping_add(*offset),
                Some(space),
            )),
            Some((space, dynamic)) => Ok((self.constant(32, dynamic), false, *offset, Some(space))),
            None => self.error(format!("`{name}` is not known")),
        }
    }

    pub(super) fn list(&mut self, registers: &[Reg]) -> List {
        let start = self.code.lists.len() as u32;
        self.code.lists.extend_from_slice(registers);
        List {
            start,
            len: registers.len() as u32,
        }
    }

    pub(super) fn emit(&mut self, op: Op) {
        let (guard, negated) = self.guard;
        self.code.insts.push(Inst { op, guard, negated });
        self.code.places.push(self.place);
    }

    pub(super) fn alu(&mut self, alu: Alu) {
        self.emit(Op::Alu(alu));
    }

    pub(super) fn new_label(&mut self) -> u32 {
        self.labels.push(None);
        self.labels.len() as u32 - 1
    }

    pub(super) fn place_label(&mut self, label: u32) {
        self.labels[label as usize] = Some(self.code.insts.len() as u32);
    }

    pub(super) fn branch_to(&mut self, label: u32) {
        self.fixups.push((self.code.insts.len(), label));
        self.emit(Op::Branch {
            target: 0,
            reconverge: 0,
        });
    }

    fn label(&self, name: &str) -> Result<u32> {
        match self.find(name) {
            Some(&Symbol::Label(label)) => Ok(label),
            _ => self.error(format!("`{name}` is not a label")),
        }
    }

    fn instruction(&mut self, instruction: &'m Instruction) -> Result<()> {
        self.guard = match &instruction.guard {
            None => (NONE, false),
            Some((name, negated)) => match self.register(name) {
                Some(reg) if self.bits(reg) == 1 => (reg, *negated),
                _ => return self.error(format!("guard `{name}` is not a predicate")),
            },
        };
        let result = self.guarded(instruction);
        self.guard = (NONE, false);
        result
    }

    fn guarded(&mut self, instruction: &'m Instruction) -> Result<()> {
        let operands = instruction.operands.as_slice();
        match (instruction.opcode.as_str(), operands) {
            ("bra" | "bra.uni", [Operand::Name(name)]) => {
                let label = self.label(name)?;
                self.branch_to(label);
                Ok(())
            }
            ("brx.idx" | "brx.idx.uni", [index, Operand::Name(name)]) => {
                let index = self.value(index, 32)?;
                let Some(Symbol::Targets(names)) = self.find(name) else {
                    return self.error(format!("`{name}` is not a list of targets"));
                };
                let labels = names
                    .iter()
                    .map(|n| self.label(n))
                    .collect::<Result<Vec<_>>>()?;
                let targets = self.list(&labels);
                self.emit(Op::BranchTable {
                    index,
                    targets,
                    reconverge: 0,
                });
                Ok(())
            }
            ("ret" | "ret.uni", []) => {
                match self.calls.last() {
                    Some(&(_, Some(label))) => self.branch_to(label),
                    Some((_, None)) => self.emit(Op::Return),
                    None => self.emit(Op::Exit),
                }
                Ok(())
            }
            ("exit", []) => {
                self.emit(Op::Exit);
                Ok(())
            }
            ("call" | "call.uni", _) => self.call(operands),
            _ => decode::instruction(self, instruction),
        }
    }

    fn finish(mut self, function: &Function, params: Vec<(usize, usize)>) -> Result<Kernel> {
        let end = self.code.insts.len() as u32;
        let labels = &self.labels;
        // A label that was never placed cannot be named: its block declares it where it stands.
        let at = |label: u32| labels[label as usize].unwrap_or(end);
        for &(index, label) in &self.fixups {
            if let Op::Branch { target, .. } = &mut self.code.insts[index].op {
                *target = at(label);
            }
        }
        for inst in &self.code.insts {
            if let Op::BranchTable { targets, .. } = inst.op {
                for entry in &mut self.code.lists[targets.start as usize..][..targets.len as usize]
                {
                    *entry = at(*entry);
                }
            }
        }
        let dynamic = self
            .module
            .variables
            .iter()
            .filter(|v| v.space == Space::Shared && v.bytes == 0);
        let align = dynamic.map(|v| v.align).max().unwrap_or(1).max(16);
        self.code.dynamic_shared = self.shared_bytes.next_multiple_of(align);
        self.place_calls();
        flow::exits(&mut self.code);
        let graph = flow::Graph::new(&self.code);
        graph.reconverge(&mut self.code);
        let dynamic = self.code.dynamic_shared;
        let registers = allocate::allocate(&mut self.code, &graph, &self.registers, dynamic);
        self.code.costs = self.code.insts.iter().map(|inst| inst.op.cost()).collect();
        let (shared, global) = granules(&self.code);
        self.code.shared_granule = shared;
        self.code.global_granule = global;
        Ok(Kernel {
            name: function.name.clone(),
            params,
            static_shared: self.shared_bytes,
            local: self.local_bytes,
            registers,
            max_threads: function.max_threads,
            code: self.code,
        })
    }
}

/// Whether values of these widths are kept alike: 8, 16 and 32 bits share a kind of row.
fn rows_alike(a: u32, b: u32) -> bool {
    let kind = |bits: u32| if (2..32).contains(&bits) { 32 } else { bits };
    kind(a) == kind(b)
}

/// The smallest accesses to shared and to global memory, as shifts.
fn granules(code: &Code) -> (u32, u32) {
    let (mut shared, mut global) = (8, 8);
    let mut meet = |space: Space, size: u32| {
        if matches!(space, Space::Shared | Space::Generic) {
            shared = shared.min(size);
        }
        if matches!(space, Space::Global | Space::Const | Space::Generic) {
            global = global.min(size);
        }
    };
    for inst in &code.insts {
        match inst.op {
            Op::Load { access, .. } | Op::Store { access, .. } | Op::Atom { access, .. } => {
                meet(access.space, access.size);
            }
            // Tiles are taken apart into rows of 16 bytes.
            Op::LoadMatrix { .. } | Op::StoreMatrix { .. } => {}
            Op::LoadFragment { access, .. } | Op::StoreFragment { access, .. } => {
                meet(access.space, access.size)
            }
            Op::CopyAsync { to, from, .. } => {
                meet(to.space, to.size);
                // A size of the source below that of the copy is known at run time only.
                meet(from.space, 4);
            }
            _ => {}
        }
    }
    (shared.trailing_zeros(), global.trailing_zeros())
}

fn special(name: &str) -> Option<Special> {
    let name = name.strip_prefix('%')?;
    let axis = |axis: &str| match axis {
        "x" => Some(0),
        "y" => Some(1),
        "z" => Some(2),
        _ => None,
    };
    if let Some((register, component)) = name.split_once('.') {
        let component = axis(component)?;
        return Some(match register {
            "tid" => Special::Tid(component),
            "ntid" => Special::Ntid(component),
            "ctaid" => Special::Ctaid(component),
            "nctaid" => Special::Nctaid(component),
            _ => return None,
        });
    }
    if let Some(number) = name.strip_prefix("envreg") {
        return number
            .parse()
            .ok()
            .filter(|&n: &u8| n < 32)
            .map(Special::Env);
    }
    Some(match name {
        "laneid" => Special::LaneId,
        "warpid" => Special::WarpId,
        "nwarpid" => Special::NWarpId,
        "smid" => Special::SmId,
        "nsmid" => Special::NSmId,
        "gridid" => Special::GridId,
        "lanemask_eq" => Special::LaneMaskEq,
        "lanemask_le" => Special::LaneMaskLe,
        "lanemask_lt" => Special::LaneMaskLt,
        "lanemask_ge" => Special::LaneMaskGe,
        "lanemask_gt" => Special::LaneMaskGt,
        "clock" | "clock64" => Special::Clock,
        "clock_hi" => Special::ClockHigh,
        "globaltimer" => Special::GlobalTimer,
        "globaltimer_lo" => Special::GlobalTimerLow,
        "globaltimer_hi" => Special::GlobalTimerHigh,
        "total_smem_size" => Special::TotalShared,
        "dynamic_smem_size" => Special::DynamicShared,
        _ => return None,
    })
}
