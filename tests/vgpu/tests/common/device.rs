//! A device for one program: its memory, typed buffers and launches.

use std::{
    collections::HashMap,
    marker::PhantomData,
    path::Path,
    sync::{Arc, Mutex, OnceLock},
};

use bytemuck::{Pod, Zeroable};
use vgpu::{
    exec::{self, Launch, Outcome},
    memory::Memory,
    program::Program,
    ptx,
};

use super::nvcc;

/// A loaded program on a device of its own.
pub(crate) struct Gpu {
    /// Its memory.
    pub memory: Memory,
    /// The program.
    pub program: Arc<Program>,
    /// Its PTX.
    text: Arc<str>,
}

/// An array in device memory.
pub(crate) struct Buffer<T> {
    /// Where it starts.
    pub address: u64,
    /// Its elements.
    pub len: usize,
    element: PhantomData<T>,
}

type Compiled = Arc<OnceLock<Result<Arc<str>, String>>>;

/// The PTX of a program; tests that want the same one at once compile it once.
fn compiled(source: &Path, arch: u32) -> Result<Arc<str>, String> {
    static PROGRAMS: OnceLock<Mutex<HashMap<(String, u32), Compiled>>> = OnceLock::new();
    let key = (source.display().to_string(), arch);
    let slot = {
        let mut programs = PROGRAMS
            .get_or_init(Mutex::default)
            .lock()
            .expect("no test panics while it holds this");
        programs.entry(key).or_default().clone()
    };
    slot.get_or_init(|| nvcc::compile(source, arch).map(Arc::from))
        .clone()
}

impl Gpu {
    /// Compiles and loads a program; `folder` is relative to this crate's `tests`.
    ///
    /// # Panics
    /// If that fails, with what the compiler or the loader says.
    pub(crate) fn load(folder: &str, stem: &str, arch: u32) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests")
            .join(folder)
            .join(stem)
            .with_extension("cu");
        let text = compiled(&source, arch).unwrap_or_else(|e| panic!("{e}"));
        let at = |e: ptx::Error| -> ! {
            let line = text
                .lines()
                .nth((e.line as usize).saturating_sub(1))
                .unwrap_or_default();
            panic!(
                "{stem} for compute_{arch}, PTX line {}: {}\n    {line}",
                e.line, e.message
            )
        };
        let memory = Memory::new(1 << 30);
        let module = ptx::parse(&text).unwrap_or_else(|e| at(e));
        let program = Program::load(&module, &memory).unwrap_or_else(|e| at(e));
        Self {
            memory,
            program,
            text,
        }
    }

    /// A line of the PTX, from 1.
    pub(crate) fn line(&self, number: u32) -> &str {
        let index = (number as usize).saturating_sub(1);
        self.text.lines().nth(index).unwrap_or_default().trim()
    }

    /// An array with nothing written to it.
    pub(crate) fn uninitialised<T: Pod>(&self, len: usize) -> Buffer<T> {
        let address = self
            .memory
            .allocate((len * size_of::<T>()) as u64)
            .expect("small enough");
        Buffer {
            address,
            len,
            element: PhantomData,
        }
    }

    /// An array with a copy of `data`.
    pub(crate) fn upload<T: Pod>(&self, data: &[T]) -> Buffer<T> {
        let buffer = self.uninitialised(data.len());
        self.memory
            .write(buffer.address, bytemuck::cast_slice(data))
            .expect("in bounds");
        buffer
    }

    /// What an array holds; every element must have been written.
    pub(crate) fn read<T: Pod>(&self, buffer: &Buffer<T>) -> Vec<T> {
        let mut data = vec![T::zeroed(); buffer.len];
        if let Err(finding) = self
            .memory
            .read(buffer.address, bytemuck::cast_slice_mut(&mut data))
        {
            panic!("{finding}");
        }
        data
    }

    /// A launch to be completed with its arguments.
    pub(crate) fn kernel<'a>(
        &'a self,
        name: &'a str,
        grid: impl Into<Extent>,
        block: impl Into<Extent>,
    ) -> Start<'a> {
        Start {
            gpu: self,
            name,
            grid: grid.into().0,
            block: block.into().0,
            shared: 0,
            cooperative: false,
            arguments: Vec::new(),
        }
    }
}

/// Three sizes, of which the last ones may be left out.
pub(crate) struct Extent([u32; 3]);

impl From<u32> for Extent {
    fn from(x: u32) -> Self {
        Self([x, 1, 1])
    }
}

impl From<(u32, u32)> for Extent {
    fn from((x, y): (u32, u32)) -> Self {
        Self([x, y, 1])
    }
}

impl From<(u32, u32, u32)> for Extent {
    fn from((x, y, z): (u32, u32, u32)) -> Self {
        Self([x, y, z])
    }
}

/// A launch in the making.
pub(crate) struct Start<'a> {
    gpu: &'a Gpu,
    name: &'a str,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    cooperative: bool,
    arguments: Vec<Vec<u8>>,
}

impl Start<'_> {
    /// Bytes of dynamic shared memory.
    pub(crate) fn shared(mut self, bytes: u32) -> Self {
        self.shared = bytes;
        self
    }

    /// All blocks may wait for each other.
    pub(crate) fn cooperative(mut self) -> Self {
        self.cooperative = true;
        self
    }

    /// The next argument, by value.
    pub(crate) fn value<T: Pod>(mut self, value: T) -> Self {
        self.arguments.push(bytemuck::bytes_of(&value).to_vec());
        self
    }

    /// The next argument, a pointer to a buffer.
    pub(crate) fn buffer<T>(self, buffer: &Buffer<T>) -> Self {
        self.value(buffer.address)
    }

    /// Runs it and gives what came of it.
    pub(crate) fn outcome(self) -> Outcome {
        let kernel = self
            .gpu
            .program
            .kernel(self.name)
            .unwrap_or_else(|| panic!("no kernel {}", self.name));
        assert_eq!(
            kernel.params.len(),
            self.arguments.len(),
            "arguments of {}",
            self.name
        );
        let mut params = vec![
            0;
            kernel
                .params
                .iter()
                .map(|&(offset, size)| offset + size)
                .max()
                .unwrap_or(0)
        ];
        for (&(offset, size), argument) in kernel.params.iter().zip(&self.arguments) {
            assert_eq!(size, argument.len(), "size of an argument of {}", self.name);
            params[offset..offset + size].copy_from_slice(argument);
        }
        exec::run(
            &self.gpu.memory,
            &Launch {
                program: &self.gpu.program,
                kernel,
                grid: self.grid,
                block: self.block,
                dynamic_shared: self.shared,
                params: &params,
                cooperative: self.cooperative,
            },
        )
    }

    /// Runs it and insists that the checks found nothing.
    pub(crate) fn run(self) -> Outcome {
        let name = self.name.to_owned();
        let outcome = self.outcome();
        let findings: Vec<_> = outcome.findings.iter().map(ToString::to_string).collect();
        assert!(
            findings.is_empty() && !outcome.fatal,
            "{name} (fatal: {}):\n{}",
            outcome.fatal,
            findings.join("\n")
        );
        outcome
    }
}

/// Three operands of the maps in `common.cuh`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Operands<T> {
    /// First.
    pub a: T,
    /// Second.
    pub b: T,
    /// Third.
    pub c: T,
}

// SAFETY: three values of one type that may be zero.
unsafe impl<T: Zeroable> Zeroable for Operands<T> {}
// SAFETY: three values of one plain type in the order of C have no padding between or after them.
unsafe impl<T: Pod> Pod for Operands<T> {}

impl Gpu {
    /// Runs a map of `common.cuh` and compares all results with `want` by `same(operation, got, want)`.
    pub(crate) fn map_with<I: Pod + std::fmt::Debug, const N: usize>(
        &self,
        kernel: &str,
        inputs: &[I],
        want: impl Fn(I) -> [u64; N],
        same: impl Fn(usize, u64, u64) -> bool,
    ) {
        let given = self.upload(inputs);
        let out = self.uninitialised::<[u64; N]>(inputs.len());
        // A block that is no multiple of a warp, and a last block that is not full.
        let block = 96;
        self.kernel(kernel, (inputs.len() as u32).div_ceil(block), block)
            .buffer(&given)
            .buffer(&out)
            .value(inputs.len() as i32)
            .run();
        for (&input, got) in inputs.iter().zip(self.read(&out)) {
            let want = want(input);
            for operation in 0..N {
                let (got, want) = (got[operation], want[operation]);
                assert!(
                    same(operation, got, want),
                    "{kernel}, operation {operation} of {input:x?}: {got:#x}, should be {want:#x}"
                );
            }
        }
    }

    /// As [`Gpu::map_with`], to the bit.
    pub(crate) fn map<I: Pod + std::fmt::Debug, const N: usize>(
        &self,
        kernel: &str,
        inputs: &[I],
        want: impl Fn(I) -> [u64; N],
    ) {
        self.map_with(kernel, inputs, want, |_, got, want| got == want);
    }
}
