//! Modules, libraries and their functions.

use std::ffi::{CString, c_char};

use super::{
    FunctionEntry, ModuleEntry, Session,
    abi::{CUdevice, CUdeviceptr, CUfunction, CUlibrary, CUmodule, CUresult, In, Out, Outcome},
    export,
    image::{self, ImageError},
};
use crate::{
    device::{MAX_BLOCK_THREADS, SHARED_BLOCK_DEFAULT},
    program::{Kernel, Program},
    ptx,
};

/// Where a loader wants to read what is wrong with its image.
#[derive(Debug, Default)]
struct ErrorLog {
    buffer: Option<usize>,
    bytes: usize,
}

impl ErrorLog {
    /// Finds the buffer among the options: `CU_JIT_ERROR_LOG_BUFFER` and its size.
    fn find(count: u32, options: In<u32>, values: In<usize>) -> Result<Self, CUresult> {
        let mut log = Self::default();
        for k in 0..count as usize {
            match options.at(k)? {
                5 => log.buffer = Some(values.at(k)?),
                // The option is an `unsigned int` in the space of a pointer.
                6 => log.bytes = values.at(k)? & 0xffff_ffff,
                _ => {}
            }
        }
        Ok(log)
    }

    fn write(&self, message: &str) {
        eprintln!("virtual GPU: {message}");
        if let Some(address) = self.buffer.filter(|_| self.bytes > 0) {
            let text = message.bytes().take(self.bytes - 1).chain([0]);
            // A null buffer only means that nobody reads the message.
            let _ = Out::from_address(address).cast::<u8>().set_all(text);
        }
    }
}

/// Loads a module into the current context.
fn load(session: &mut Session, image: In<u8>, log: &ErrorLog) -> Result<u64, CUresult> {
    let context = session.context()?;
    let capability = session.engine.device.compute_capability;
    let text = image::ptx_text(image, capability).map_err(|error| match error {
        ImageError::Null => CUresult::INVALID_VALUE,
        ImageError::NoPtx(why) => {
            log.write(&format!("the image holds no PTX that can be run: {why}"));
            CUresult::NO_BINARY_FOR_GPU
        }
        ImageError::Damaged(why) => {
            log.write(&format!("the image is damaged: {why}"));
            CUresult::INVALID_IMAGE
        }
    })?;
    let refuse = |error: ptx::Error| {
        log.write(&format!("PTX line {}: {}", error.line, error.message));
        CUresult::INVALID_PTX
    };
    let module = ptx::parse(&text).map_err(refuse)?;
    let program = Program::load(&module, &session.engine.memory).map_err(refuse)?;
    let id = session.new_id();
    session.modules.insert(id, ModuleEntry { context, program });
    Ok(id)
}

/// Takes a module out; work that uses it has run.
pub(super) fn unload(session: &mut Session, id: u64) {
    session.functions.retain(|_, f| f.module != id);
    let Some(module) = session.modules.remove(&id) else {
        return;
    };
    for &(_, address, _) in &module.program.globals {
        // Globals that share a block are freed with the first of them.
        let _ = session.engine.memory.free(address);
    }
}

fn module(session: &Session, handle: CUmodule) -> Result<u64, CUresult> {
    session.context()?;
    handle
        .id()
        .filter(|id| session.modules.contains_key(id))
        .ok_or(CUresult::INVALID_HANDLE)
}

fn library(session: &Session, handle: CUlibrary) -> Result<u64, CUresult> {
    session.initialised()?;
    handle
        .id()
        .filter(|id| session.modules.contains_key(id))
        .ok_or(CUresult::INVALID_HANDLE)
}

/// The function of that number in a module; the same handle each time.
fn function_handle(
    session: &mut Session,
    module: u64,
    index: usize,
) -> Result<CUfunction, CUresult> {
    let known = session
        .functions
        .iter()
        .find(|(_, f)| f.module == module && f.index == index)
        .map(|(&id, _)| id);
    if let Some(id) = known {
        return Ok(CUfunction::new(id));
    }
    let name = CString::new(
        session.modules[&module].program.kernels[index]
            .name
            .as_str(),
    );
    let name = name.map_err(|_| CUresult::INVALID_IMAGE)?;
    let id = session.new_id();
    session.functions.insert(
        id,
        FunctionEntry {
            module,
            index,
            name,
            max_dynamic_shared: SHARED_BLOCK_DEFAULT,
        },
    );
    Ok(CUfunction::new(id))
}

fn get_function(
    session: &mut Session,
    module: u64,
    name: In<c_char>,
) -> Result<CUfunction, CUresult> {
    let name = name.text()?;
    let index = session.modules[&module]
        .program
        .kernels
        .iter()
        .position(|k| k.name == name);
    function_handle(session, module, index.ok_or(CUresult::NOT_FOUND)?)
}

fn get_global(
    session: &Session,
    module: u64,
    address: Out<CUdeviceptr>,
    bytes: Out<usize>,
    name: In<c_char>,
) -> Outcome {
    let name = name.text()?;
    let globals = &session.modules[&module].program.globals;
    let &(_, start, size) = globals
        .iter()
        .find(|g| g.0 == name)
        .ok_or(CUresult::NOT_FOUND)?;
    address.set_if_wanted(start);
    bytes.set_if_wanted(size as usize);
    Ok(())
}

/// The entry of a function handle, with its kernel.
pub(super) fn function(
    session: &Session,
    handle: CUfunction,
) -> Result<(&FunctionEntry, &Kernel), CUresult> {
    let entry = handle
        .id()
        .and_then(|id| session.functions.get(&id))
        .ok_or(CUresult::INVALID_HANDLE)?;
    let program = &session
        .modules
        .get(&entry.module)
        .ok_or(CUresult::INVALID_HANDLE)?
        .program;
    Ok((entry, &program.kernels[entry.index]))
}

/// Registers of a thread: what ptxas said, or the estimate.
pub(super) fn registers(session: &Session, kernel: &Kernel) -> u32 {
    session
        .config
        .registers
        .get(&kernel.name)
        .copied()
        .unwrap_or(kernel.registers)
}

fn get_attribute(
    session: &Session,
    value: Out<i32>,
    attribute: u32,
    handle: CUfunction,
) -> Outcome {
    session.context()?;
    let (entry, kernel) = function(session, handle)?;
    let device = &session.engine.device;
    let version = device.compute_capability.0 * 10 + device.compute_capability.1;
    let found = match attribute {
        0 => {
            let registers = registers(session, kernel).max(1).next_multiple_of(8) * 32;
            let by_registers = device.per_multiprocessor.registers / registers * 32;
            by_registers
                .min(kernel.max_threads.unwrap_or(MAX_BLOCK_THREADS))
                .min(MAX_BLOCK_THREADS) as i32
        }
        1 => kernel.static_shared as i32,
        3 => kernel.local as i32,
        4 => registers(session, kernel) as i32,
        5 | 6 => version,
        8 => entry.max_dynamic_shared as i32,
        9 => -1,
        2 | 7 | 10..=15 => 0,
        _ => return Err(CUresult::INVALID_VALUE),
    };
    value.set(found)
}

fn set_attribute(session: &mut Session, handle: CUfunction, attribute: u32, value: i32) -> Outcome {
    session.context()?;
    let (_, kernel) = function(session, handle)?;
    let most = session
        .engine
        .device
        .per_multiprocessor
        .shared_block_optin_bytes
        .saturating_sub(kernel.static_shared);
    match attribute {
        8 => {
            let bytes = u32::try_from(value)
                .ok()
                .filter(|&b| b <= most)
                .ok_or(CUresult::INVALID_VALUE)?;
            if let Some(entry) = handle.id().and_then(|id| session.functions.get_mut(&id)) {
                entry.max_dynamic_shared = bytes;
            }
            Ok(())
        }
        9 if (-1..=100).contains(&value) => Ok(()),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

export! {
    fn cuModuleLoadData(session, handle: Out<CUmodule>, image: In<u8>) {
        let id = load(session, image, &ErrorLog::default())?;
        handle.set(CUmodule::new(id))
    }

    fn cuModuleLoadDataEx(
        session,
        handle: Out<CUmodule>,
        image: In<u8>,
        count: u32,
        options: In<u32>,
        values: In<usize>,
    ) {
        let log = ErrorLog::find(count, options, values)?;
        let id = load(session, image, &log)?;
        handle.set(CUmodule::new(id))
    }

    fn cuModuleLoadFatBinary(session, handle: Out<CUmodule>, image: In<u8>) {
        let id = load(session, image, &ErrorLog::default())?;
        handle.set(CUmodule::new(id))
    }

    fn cuModuleLoad(session, handle: Out<CUmodule>, path: In<c_char>) {
        session.context()?;
        let mut bytes = std::fs::read(path.text()?).map_err(|_| CUresult::FILE_NOT_FOUND)?;
        bytes.push(0);
        let id = load(session, In::from(bytes.as_slice()), &ErrorLog::default())?;
        handle.set(CUmodule::new(id))
    }

    fn cuModuleUnload(session, handle: CUmodule) {
        let id = module(session, handle)?;
        let tails = session.engine.tails(None);
        session.drive(&tails);
        unload(session, id);
        Ok(())
    }

    fn cuModuleGetFunction(session, handle: Out<CUfunction>, from: CUmodule, name: In<c_char>) {
        let id = module(session, from)?;
        let found = get_function(session, id, name)?;
        handle.set(found)
    }

    fn cuModuleGetFunctionCount(session, count: Out<u32>, from: CUmodule) {
        let id = module(session, from)?;
        count.set(session.modules[&id].program.kernels.len() as u32)
    }

    fn cuModuleEnumerateFunctions(session, handles: Out<CUfunction>, room: u32, from: CUmodule) {
        let id = module(session, from)?;
        let count = session.modules[&id].program.kernels.len().min(room as usize);
        let found: Result<Vec<_>, _> = (0..count).map(|k| function_handle(session, id, k)).collect();
        handles.set_all(found?)
    }

    fn cuModuleGetGlobal_v2(
        session,
        address: Out<CUdeviceptr>,
        bytes: Out<usize>,
        from: CUmodule,
        name: In<c_char>,
    ) {
        let id = module(session, from)?;
        get_global(session, id, address, bytes, name)
    }

    fn cuModuleGetLoadingMode(_session, mode: Out<u32>) {
        mode.set(1)
    }

    fn cuLibraryLoadData(
        session,
        handle: Out<CUlibrary>,
        image: In<u8>,
        options: In<u32>,
        values: In<usize>,
        count: u32,
        _library_options: In<u32>,
        _library_values: In<usize>,
        _library_count: u32,
    ) {
        let log = ErrorLog::find(count, options, values)?;
        let id = load(session, image, &log)?;
        handle.set(CUlibrary::new(id))
    }

    fn cuLibraryUnload(session, handle: CUlibrary) {
        let id = library(session, handle)?;
        let tails = session.engine.tails(None);
        session.drive(&tails);
        unload(session, id);
        Ok(())
    }

    fn cuLibraryGetModule(session, handle: Out<CUmodule>, from: CUlibrary) {
        let id = library(session, from)?;
        handle.set(CUmodule::new(id))
    }

    /// Kernels of a library and functions are the same thing here.
    fn cuLibraryGetKernel(session, handle: Out<CUfunction>, from: CUlibrary, name: In<c_char>) {
        let id = library(session, from)?;
        let found = get_function(session, id, name)?;
        handle.set(found)
    }

    fn cuLibraryGetGlobal(
        session,
        address: Out<CUdeviceptr>,
        bytes: Out<usize>,
        from: CUlibrary,
        name: In<c_char>,
    ) {
        let id = library(session, from)?;
        get_global(session, id, address, bytes, name)
    }

    fn cuKernelGetFunction(session, handle: Out<CUfunction>, kernel: CUfunction) {
        session.context()?;
        function(session, kernel)?;
        handle.set(kernel)
    }

    fn cuKernelGetAttribute(session, value: Out<i32>, attribute: u32, kernel: CUfunction, _device: CUdevice) {
        get_attribute(session, value, attribute, kernel)
    }

    fn cuKernelSetAttribute(session, attribute: u32, value: i32, kernel: CUfunction, _device: CUdevice) {
        set_attribute(session, kernel, attribute, value)
    }

    fn cuFuncGetAttribute(session, value: Out<i32>, attribute: u32, handle: CUfunction) {
        get_attribute(session, value, attribute, handle)
    }

    fn cuFuncSetAttribute(session, handle: CUfunction, attribute: u32, value: i32) {
        set_attribute(session, handle, attribute, value)
    }

    fn cuFuncSetCacheConfig(session, handle: CUfunction, _config: u32) {
        session.context()?;
        function(session, handle).map(|_| ())
    }

    /// The name lives as long as its module.
    fn cuFuncGetName(session, name: Out<*const c_char>, handle: CUfunction) {
        session.context()?;
        let (entry, _) = function(session, handle)?;
        name.set(entry.name.as_ptr())
    }

    fn cuFuncGetModule(session, handle: Out<CUmodule>, of: CUfunction) {
        session.context()?;
        let module = function(session, of)?.0.module;
        handle.set(CUmodule::new(module))
    }

    fn cuFuncGetParamInfo(session, handle: CUfunction, index: usize, offset: Out<usize>, size: Out<usize>) {
        session.context()?;
        let (_, kernel) = function(session, handle)?;
        let &(at, bytes) = kernel.params.get(index).ok_or(CUresult::INVALID_VALUE)?;
        offset.set(at)?;
        size.set_if_wanted(bytes);
        Ok(())
    }
}
