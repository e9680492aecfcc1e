//! What is executed: registers numbered, operands typed, branches with their reconvergence points.

use std::sync::Arc;

use crate::{memory::Memory, ptx};

/// A loaded module.
#[derive(Debug)]
pub struct Program {
    /// Kernels by name.
    pub kernels: Vec<Kernel>,
    /// Module-scope variables in device memory: name, address, bytes.
    pub globals: Vec<(String, u64, u64)>,
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
}

impl Program {
    /// Resolves a module and places its globals in device memory.
    ///
    /// # Errors
    /// What is not supported or not valid, with its PTX line.
    pub fn load(_module: &ptx::Module, _memory: &Memory) -> Result<Arc<Self>, ptx::Error> {
        todo!()
    }

    /// The kernel of that name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|k| k.name == name)
    }
}
