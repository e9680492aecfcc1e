//! What is executed: registers numbered, operands typed, branches with their reconvergence points.
//!
//! [`Program::load`] takes each kernel through four steps:
//! - [`lower`]: names to numbers, immediates to constants; [`calls`]: device functions inlined where they are called;
//! - [`decode`]: an opcode with its modifiers to one [`op::Op`]; what it does not know is an error;
//! - [`flow`]: basic blocks, and where the lanes that part at a branch meet again;
//! - [`allocate`]: virtual registers to rows of the register file by their lifetimes, so that the rows of a warp stay
//!   in the host's cache.

mod allocate;
mod calls;
mod decode;
mod flow;
mod lower;
pub(crate) mod op;

use std::{collections::HashMap, sync::Arc};

use crate::{
    matrix::{layout::Fragment, mma::Mma},
    memory::{Memory, MemoryError},
    ptx::{self, Error, Initial, Location, Space},
};
use op::{Convert, Cost, Inst, Reg};

/// Where shared memory lies among generic addresses.
pub(crate) const SHARED_WINDOW: u64 = 0x7f00_0000_0000;

/// Where a thread's local memory lies among generic addresses.
pub(crate) const LOCAL_WINDOW: u64 = 0x7f10_0000_0000;

/// Where the parameters of a kernel lie among generic addresses.
pub(crate) const PARAM_WINDOW: u64 = 0x7f20_0000_0000;

/// Bytes of each of these windows.
pub(crate) const WINDOW: u64 = 1 << 32;

/// A loaded module.
#[derive(Debug)]
pub struct Program {
    /// Kernels by name.
    pub kernels: Vec<Kernel>,
    /// Module-scope variables in device memory: name, address, bytes.
    pub globals: Vec<(String, u64, u64)>,
    files: Vec<(u32, String)>,
}

/// An entry function.
#[derive(Debug)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Offset and size of each parameter in the parameter buffer.
    pub params: Vec<(usize, usize)>,
    /// Bytes of static shared memory.
    pub static_shared: u32,
    /// Bytes of local memory a thread.
    pub local: u32,
    /// Virtual registers by liveness: the greatest number of 32-bit registers live at once. An estimate of what ptxas
    /// would use, good enough for occupancy.
    pub registers: u32,
    /// `.maxntid`, if given.
    pub max_threads: Option<u32>,
    pub(crate) code: Code,
}

/// The instructions of a kernel.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub insts: Vec<Inst>,
    /// Of each instruction: its PTX line and its place in the source.
    pub places: Vec<(u32, Location)>,
    pub costs: Vec<Cost>,
    /// Operands of vectors, and targets of branch tables.
    pub lists: Vec<Reg>,
    /// What `cvt` does, whether its result and its source take 64 bits.
    pub conversions: Vec<(Convert, bool, bool)>,
    pub products: Vec<Mma>,
    /// Fragments that wmma loads and stores, and whether the matrix is row-major in memory.
    pub fragments: Vec<(Fragment, bool)>,
    pub calls: Vec<CallSite>,
    /// Rows of 32 words that a warp's registers take.
    pub rows: u32,
    /// The first row of those that hold constants.
    pub first_constant: u32,
    /// Row, whether it is of 64 bits (two rows), and value.
    pub constants: Vec<(Reg, bool, u64)>,
    pub predicates: u32,
    /// Where dynamic shared memory begins.
    pub dynamic_shared: u32,
    /// Local memory of a thread, the arguments of inlined calls included.
    pub frame: u32,
    /// The smallest access to shared, and to global memory, as a shift: what the checks of races tell apart.
    pub shared_granule: u32,
    pub global_granule: u32,
}

/// A call of a subroutine. Offsets are within the frames of caller and callee.
#[derive(Debug)]
pub(crate) struct CallSite {
    pub target: u32,
    /// Bytes of the caller's frame: the callee's begins behind it.
    pub caller_bytes: u32,
    pub callee_bytes: u32,
    /// Offset in the caller's frame, offset in the callee's, bytes.
    pub arguments: Vec<(u32, u32, u32)>,
    pub returns: Vec<(u32, u32, u32)>,
}

impl Program {
    /// Resolves a module and places its globals in device memory.
    ///
    /// # Errors
    /// What is not supported or not valid, with its PTX line.
    pub fn load(module: &ptx::Module, memory: &Memory) -> Result<Arc<Self>, Error> {
        let mut placed = Vec::new();
        let loaded = Self::load_into(module, memory, &mut placed);
        if loaded.is_err() {
            for (_, address, _) in placed {
                // Allocated above and not yet known to anyone, so this cannot fail.
                let _ = memory.free(address);
            }
        }
        loaded
    }

    fn load_into(
        module: &ptx::Module,
        memory: &Memory,
        globals: &mut Vec<(String, u64, u64)>,
    ) -> Result<Arc<Self>, Error> {
        for variable in &module.variables {
            if !matches!(variable.space, Space::Global | Space::Const) {
                continue;
            }
            if variable.external {
                return Err(Error::new(
                    variable.line,
                    format!(
                        "`{}` is defined in another module: linking is not supported",
                        variable.name
                    ),
                ));
            }
            let address = memory.allocate(variable.bytes).map_err(|e| match e {
                MemoryError::OutOfMemory { asked, free } => Error::new(
                    variable.line,
                    format!(
                        "`{}` takes {asked} bytes, the device has {free} left",
                        variable.name
                    ),
                ),
                MemoryError::NotAllocated { .. } => Error::new(variable.line, "no memory"),
            })?;
            globals.push((variable.name.clone(), address, variable.bytes));
        }
        let addresses: HashMap<&str, u64> =
            globals.iter().map(|(n, a, _)| (n.as_str(), *a)).collect();
        for variable in &module.variables {
            let Some(&address) = addresses.get(variable.name.as_str()) else {
                continue;
            };
            let image = initial_image(variable, &addresses)?;
            // Variables without an initialiser are zero, as in C.
            memory
                .write(address, &image)
                .map_err(|f| Error::new(variable.line, f.message))?;
        }
        let kernels = module
            .functions
            .iter()
            .filter(|f| f.entry && f.body.is_some())
            .map(|f| lower::kernel(module, &addresses, f))
            .collect::<Result<_, _>>()?;
        Ok(Arc::new(Self {
            kernels,
            globals: std::mem::take(globals),
            files: module.files.clone(),
        }))
    }

    /// The kernel of that name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|k| k.name == name)
    }

    /// `file:line` of a place in the source.
    pub(crate) fn source(&self, location: Location) -> Option<String> {
        if location.line == 0 {
            return None;
        }
        let (_, file) = self
            .files
            .iter()
            .find(|(index, _)| *index == location.file)?;
        Some(format!("{file}:{}", location.line))
    }
}

/// The bytes of a variable as they are before the first launch.
fn initial_image(
    variable: &ptx::Variable,
    addresses: &HashMap<&str, u64>,
) -> Result<Vec<u8>, Error> {
    let mut image = Vec::with_capacity(variable.bytes as usize);
    for piece in &variable.initial {
        match piece {
            Initial::Bytes(bytes) => image.extend_from_slice(bytes),
            Initial::Address {
                symbol,
                addend,
                shift,
                bytes,
            } => {
                let address = addresses.get(symbol.as_str()).ok_or_else(|| {
                    Error::new(
                        variable.line,
                        format!(
                            "the initial value of `{}` names `{symbol}`, which is no variable",
                            variable.name
                        ),
                    )
                })?;
                let value = address.wrapping_add_signed(*addend) >> shift;
                let count = *bytes as usize;
                image.extend_from_slice(&u128::from(value).to_le_bytes()[..count]);
            }
        }
    }
    if image.len() as u64 > variable.bytes {
        return Err(Error::new(
            variable.line,
            format!(
                "`{}` has {} bytes and {} of initial values",
                variable.name,
                variable.bytes,
                image.len()
            ),
        ));
    }
    image.resize(variable.bytes as usize, 0);
    Ok(image)
}
