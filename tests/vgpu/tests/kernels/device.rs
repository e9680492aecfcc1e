//! A virtual device with the kernels loaded, and matrices on it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};
use std::{env, fs};

use half::{bf16, f16};
use vgpu::counters::Counters;
use vgpu::exec::{Launch, run};
use vgpu::memory::Memory;
use vgpu::program::{Kernel, Program};
use vgpu::ptx;

use crate::reference::Table;
use crate::tiles::EXACT;
use crate::toolkit::{FLAGS, Toolkit};

/// The modules, by stem.
pub(crate) const MODULES: [&str; 6] =
    ["cholesky", "exact", "gram", "projection", "rff", "trisolve"];

/// Dynamic shared memory of a kernel.
pub(crate) fn dynamic_shared(kernel: &str) -> usize {
    match kernel.ends_with("_s8_mma") {
        true => (EXACT.rows + EXACT.cols) * EXACT.depth * EXACT.stages,
        false => 0,
    }
}

/// kernels/ of the repository.
pub(crate) fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels")
}

/// The toolkit, or why there is none.
pub(crate) fn found() -> &'static Result<Toolkit, String> {
    static FOUND: LazyLock<Result<Toolkit, String>> = LazyLock::new(Toolkit::find);
    &FOUND
}

/// The toolkit, for a test that is ignored where there is none.
pub(crate) fn toolkit() -> &'static Toolkit {
    found()
        .as_ref()
        .unwrap_or_else(|why| panic!("no compiler: {why}"))
}

/// PTX of a module for compute_`arch`, compiled unless it was before.
pub(crate) fn ptx(module: &str, arch: u32) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let toolkit = toolkit();
    let _guard = ONE_AT_A_TIME
        .lock()
        .expect("no test panics while compiling");
    let source = kernels().join(module).with_extension("cu");
    let mut hash = DefaultHasher::new();
    (
        FLAGS,
        include_str!("../../../../kernels/toolkit.rs"),
        toolkit.version,
        fs::read(&source).expect("the module"),
    )
        .hash(&mut hash);
    let common = fs::read_dir(kernels().join("common")).expect("the headers");
    let mut headers: Vec<PathBuf> = common.map(|e| e.expect("an entry").path()).collect();
    headers.sort();
    for header in headers {
        fs::read(header).expect("a header").hash(&mut hash);
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels");
    fs::create_dir_all(&directory).expect("a directory for PTX");
    let file = directory.join(format!("{module}-{arch}-{:016x}.ptx", hash.finish()));
    if !file.exists() {
        let unfinished = directory.join(format!("{module}-{arch}-{}.ptx", std::process::id()));
        let outcome = toolkit.ptx(&source, arch, &unfinished);
        outcome.unwrap_or_else(|printed| panic!("{module}.cu does not compile:\n{printed}"));
        fs::rename(&unfinished, &file).expect("the PTX is renamed");
    }
    file
}

/// A kernel argument: all are eight bytes.
#[derive(Clone, Copy)]
pub(crate) struct Arg([u8; 8]);

impl From<usize> for Arg {
    fn from(count: usize) -> Self {
        Self((count as u64).to_le_bytes())
    }
}
impl From<bool> for Arg {
    fn from(flag: bool) -> Self {
        usize::from(flag).into()
    }
}
impl From<f64> for Arg {
    fn from(value: f64) -> Self {
        Self(value.to_le_bytes())
    }
}
impl From<&Buffer> for Arg {
    fn from(buffer: &Buffer) -> Self {
        Self(buffer.0.to_le_bytes())
    }
}
/// A null pointer.
pub(crate) const NULL: Arg = Arg([0; 8]);

/// Makes the list of arguments of a launch.
#[macro_export]
macro_rules! args {
    ($($arg:expr),* $(,)?) => { &[$($crate::device::Arg::from($arg)),*][..] };
}

/// Device memory.
pub(crate) struct Buffer(u64);

impl Buffer {
    /// From so many bytes on.
    pub(crate) fn at(&self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }
}

/// How the elements of a matrix are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dtype {
    F64,
    F32,
    F16,
    Bf16,
}

impl Dtype {
    pub(crate) const ALL: [Self; 4] = [Self::F32, Self::F64, Self::F16, Self::Bf16];

    /// Its name in symbols.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    pub(crate) fn round(self, x: f64) -> f64 {
        match self {
            Self::F64 => x,
            Self::F32 => f64::from(x as f32),
            Self::F16 => f16::from_f64(x).to_f64(),
            Self::Bf16 => bf16::from_f64(x).to_f64(),
        }
    }

    fn encode(self, x: f64, out: &mut Vec<u8>) {
        match self {
            Self::F64 => out.extend(x.to_le_bytes()),
            Self::F32 => out.extend((x as f32).to_le_bytes()),
            Self::F16 => out.extend(f16::from_f64(x).to_le_bytes()),
            Self::Bf16 => out.extend(bf16::from_f64(x).to_le_bytes()),
        }
    }
}

/// The least even number that is not less: the pitch of f64 matrices.
pub(crate) fn even(columns: usize) -> usize {
    columns.next_multiple_of(2)
}

/// The device.
pub(crate) struct Gpu {
    memory: Memory,
    programs: HashMap<&'static str, Arc<Program>>,
}

impl Gpu {
    /// A device with modules for compute_`arch` loaded.
    pub(crate) fn with(arch: u32, modules: &[&'static str]) -> Self {
        let memory = Memory::new(4 << 30);
        let mut programs = HashMap::new();
        for &module in modules {
            let text = fs::read_to_string(ptx(module, arch)).expect("PTX is text");
            let parsed = ptx::parse(&text).unwrap_or_else(|e| panic!("{module}: {e:?}"));
            let program = Program::load(&parsed, &memory);
            programs.insert(
                module,
                program.unwrap_or_else(|e| panic!("{module}: {e:?}")),
            );
        }
        Self { memory, programs }
    }

    /// The same for compute_80, where every kernel exists.
    pub(crate) fn new(modules: &[&'static str]) -> Self {
        Self::with(80, modules)
    }

    /// Memory that nothing has written.
    pub(crate) fn empty(&self, bytes: usize) -> Buffer {
        Buffer(
            self.memory
                .allocate(bytes.max(1) as u64)
                .expect("device memory"),
        )
    }

    pub(crate) fn upload_bytes(&self, bytes: &[u8]) -> Buffer {
        let buffer = self.empty(bytes.len());
        self.memory
            .write(buffer.0, bytes)
            .expect("within the allocation");
        buffer
    }

    /// A table with this pitch; the last row has no slack.
    pub(crate) fn upload(&self, table: &Table, dtype: Dtype, pitch: usize) -> Buffer {
        let mut bytes = Vec::new();
        for i in 0..table.rows {
            for j in 0..table.cols {
                dtype.encode(table[(i, j)], &mut bytes);
            }
            if i + 1 < table.rows {
                // What lies between rows is not to be read; NaN would show.
                (table.cols..pitch).for_each(|_| dtype.encode(f64::NAN, &mut bytes));
            }
        }
        self.upload_bytes(&bytes)
    }

    pub(crate) fn upload_words(&self, words: &[u32]) -> Buffer {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.upload_bytes(&bytes)
    }

    /// Room for a result with this pitch.
    pub(crate) fn room(&self, rows: usize, cols: usize, pitch: usize) -> Buffer {
        self.empty(((rows - 1) * pitch + cols) * 8)
    }

    pub(crate) fn bytes(&self, buffer: &Buffer, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        if let Err(finding) = self.memory.read(buffer.0, &mut out) {
            panic!("{finding}");
        }
        out
    }

    /// Integers of 64 bits, whatever they stand for.
    pub(crate) fn words(&self, buffer: &Buffer, count: usize) -> Vec<u64> {
        let bytes = self.bytes(buffer, 8 * count);
        bytes
            .as_chunks()
            .0
            .iter()
            .map(|&b| u64::from_le_bytes(b))
            .collect()
    }

    pub(crate) fn upload_ids(&self, ids: &[i64]) -> Buffer {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        self.upload_bytes(&bytes)
    }

    pub(crate) fn upload_wide(&self, words: &[u64]) -> Buffer {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.upload_bytes(&bytes)
    }

    /// `rows` × `cols` f64 with this pitch; what lies between rows is not looked at.
    pub(crate) fn download(
        &self,
        buffer: &Buffer,
        rows: usize,
        cols: usize,
        pitch: usize,
    ) -> Table {
        let mut table = Table::zeros(rows, cols);
        for i in 0..rows {
            let row = Buffer(buffer.0 + (i * pitch * 8) as u64);
            let bytes = self.bytes(&row, cols * 8);
            for (j, chunk) in bytes.as_chunks::<8>().0.iter().enumerate() {
                table[(i, j)] = f64::from_le_bytes(*chunk);
            }
        }
        table
    }

    fn kernel(&self, name: &str) -> &Kernel {
        let module = name.split('_').next().expect("a symbol");
        let kernel = self.programs[module].kernel(name);
        kernel.unwrap_or_else(|| panic!("no kernel {name}"))
    }

    /// Runs a kernel, which must leave no finding and meet no bank twice.
    pub(crate) fn launch(
        &self,
        name: &str,
        grid: [usize; 3],
        block: [usize; 2],
        args: &[Arg],
    ) -> Counters {
        let module = name.split('_').next().expect("a symbol");
        let program = &self.programs[module];
        let kernel = self.kernel(name);
        assert_eq!(kernel.params.len(), args.len(), "{name}: arguments");
        let params: Vec<u8> = args.iter().flat_map(|arg| arg.0).collect();
        let outcome = run(
            &self.memory,
            &Launch {
                program,
                kernel,
                grid: grid.map(|n| n as u32),
                block: [block[0] as u32, block[1] as u32, 1],
                dynamic_shared: dynamic_shared(name) as u32,
                params: &params,
                cooperative: false,
            },
        );
        let findings: Vec<String> = outcome.findings.iter().map(ToString::to_string).collect();
        assert!(
            findings.is_empty(),
            "{name} {grid:?}:\n{}",
            findings.join("\n")
        );
        assert!(!outcome.fatal, "{name} was stopped");
        let Counters {
            bank_conflicts,
            shared_passes,
            ..
        } = outcome.counters;
        // The triangle of a diagonal block leaves lanes idle, and then two rows may meet.
        let allowed = if name == "cholesky_diagonal_f64" {
            shared_passes / 20
        } else {
            0
        };
        assert!(
            bank_conflicts <= allowed,
            "{name} {grid:?}: {bank_conflicts} of {shared_passes} passes are bank conflicts"
        );
        outcome.counters
    }
}
