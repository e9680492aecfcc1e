//! Launches, and how many blocks of one fit the device.

use super::{
    Session,
    abi::{
        CUfunction, CUlaunchAttribute, CUlaunchConfig, CUresult, CUstream, In, Out, Outcome,
        take_host_bytes,
    },
    export,
    modules::{function, registers},
};
use crate::{
    device::{MAX_BLOCK_THREADS, SHARED_RESERVED},
    program::Kernel,
    stream::{Action, KernelCall},
};

/// How a kernel is launched.
#[derive(Clone, Copy, Debug)]
struct Geometry {
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
    cooperative: bool,
}

/// Launch attributes that only advise or are the default.
const ADVISORY: [u32; 6] = [0, 1, 3, 8, 9, 10];
/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`.
const COOPERATIVE: u32 = 2;
/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
const CLUSTER_DIMENSION: u32 = 4;

/// `CU_LAUNCH_PARAM_…` of the `extra` array.
const PARAM_END: usize = 0;
const PARAM_BUFFER: usize = 1;
const PARAM_BUFFER_SIZE: usize = 2;

/// The parameter buffer, from one pointer for each parameter or from a packed buffer.
fn parameters(kernel: &Kernel, pointers: In<usize>, extra: In<usize>) -> Result<Vec<u8>, CUresult> {
    let bytes = kernel
        .params
        .iter()
        .map(|&(offset, size)| offset + size)
        .max()
        .unwrap_or(0);
    let mut buffer = vec![0u8; bytes];
    if !extra.is_null() {
        let (mut packed, mut size) = (0usize, 0usize);
        for k in 0.. {
            match extra.at(2 * k)? {
                PARAM_END => break,
                PARAM_BUFFER => packed = extra.at(2 * k + 1)?,
                PARAM_BUFFER_SIZE => {
                    size = usize::from_le_bytes(
                        take_host_bytes(extra.at(2 * k + 1)? as u64, 8)
                            .try_into()
                            .unwrap_or_default(),
                    );
                }
                _ => return Err(CUresult::INVALID_VALUE),
            }
        }
        if packed == 0 || size < bytes {
            return Err(CUresult::INVALID_VALUE);
        }
        return Ok(take_host_bytes(packed as u64, bytes));
    }
    for (k, &(offset, size)) in kernel.params.iter().enumerate() {
        let pointer = pointers.at(k)?;
        if pointer == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        buffer[offset..offset + size].copy_from_slice(&take_host_bytes(pointer as u64, size));
    }
    Ok(buffer)
}

/// Refuses what the device could not run.
fn check(session: &Session, geometry: &Geometry, handle: CUfunction) -> Outcome {
    let (entry, kernel) = function(session, handle)?;
    let device = &session.engine.device;
    let Geometry {
        grid,
        block,
        dynamic_shared,
        cooperative,
    } = *geometry;
    let threads = block
        .iter()
        .try_fold(1u32, |n, &d| n.checked_mul(d))
        .unwrap_or(u32::MAX);
    let in_range = (1..=MAX_BLOCK_THREADS).contains(&threads)
        && block[2] <= 64
        && grid.iter().all(|&n| n > 0)
        && grid[0] <= i32::MAX as u32
        && grid[1] <= 65_535
        && grid[2] <= 65_535
        && dynamic_shared <= entry.max_dynamic_shared
        && dynamic_shared + kernel.static_shared
            <= device.per_multiprocessor.shared_block_optin_bytes;
    if !in_range || kernel.max_threads.is_some_and(|most| threads > most) {
        return Err(CUresult::INVALID_VALUE);
    }
    let registers = registers(session, kernel);
    let resident = device
        .occupancy(threads, registers, kernel.static_shared + dynamic_shared)
        .blocks;
    if resident == 0 {
        return Err(CUresult::LAUNCH_OUT_OF_RESOURCES);
    }
    let blocks: u64 = grid.iter().map(|&n| u64::from(n)).product();
    if cooperative && blocks > u64::from(resident) * u64::from(device.multiprocessors) {
        return Err(CUresult::COOPERATIVE_LAUNCH_TOO_LARGE);
    }
    Ok(())
}

fn launch(
    session: &mut Session,
    handle: CUfunction,
    geometry: Geometry,
    stream: CUstream,
    pointers: In<usize>,
    extra: In<usize>,
) -> Outcome {
    let id = session.stream(stream)?;
    check(session, &geometry, handle)?;
    let (entry, kernel) = function(session, handle)?;
    let params = parameters(kernel, pointers, extra)?;
    if session.config.fail_launch.as_deref() == Some(kernel.name.as_str()) {
        return Err(CUresult::LAUNCH_OUT_OF_RESOURCES);
    }
    let what = format!("kernel `{}`", kernel.name);
    let action = if session.config.fault_kernel.as_deref() == Some(kernel.name.as_str()) {
        Action::Stop
    } else {
        let Geometry {
            grid,
            block,
            dynamic_shared,
            cooperative,
        } = geometry;
        let program = session.modules[&entry.module].program.clone();
        let (index, registers) = (entry.index, registers(session, kernel));
        Action::Kernel(KernelCall {
            program,
            index,
            grid,
            block,
            dynamic_shared,
            params,
            cooperative,
            registers,
        })
    };
    session.engine.enqueue(id, action, &what);
    Ok(())
}

/// Resident blocks of a kernel on one multiprocessor.
fn resident(
    session: &Session,
    handle: CUfunction,
    threads: i32,
    dynamic_shared: usize,
) -> Result<u32, CUresult> {
    session.context()?;
    let (_, kernel) = function(session, handle)?;
    let threads = u32::try_from(threads)
        .ok()
        .filter(|&n| n > 0)
        .ok_or(CUresult::INVALID_VALUE)?;
    let device = &session.engine.device;
    let shared = u64::from(kernel.static_shared) + dynamic_shared as u64;
    if shared > u64::from(device.per_multiprocessor.shared_block_optin_bytes)
        || threads > MAX_BLOCK_THREADS
    {
        return Ok(0);
    }
    Ok(device
        .occupancy(threads, registers(session, kernel), shared as u32)
        .blocks)
}

/// The block size with the most resident threads, and the blocks that fill the device with it.
fn best_block(
    session: &Session,
    grid: Out<i32>,
    block: Out<i32>,
    handle: CUfunction,
    shared_of: impl Fn(i32) -> usize,
    limit: i32,
) -> Outcome {
    session.context()?;
    let (_, kernel) = function(session, handle)?;
    let most = kernel
        .max_threads
        .unwrap_or(MAX_BLOCK_THREADS)
        .min(MAX_BLOCK_THREADS) as i32;
    let most = if limit > 0 { most.min(limit) } else { most };
    let mut best = (0, 0, most);
    let mut threads = (most + 31) / 32 * 32;
    while threads > 0 {
        let size = threads.min(most);
        let blocks = resident(session, handle, size, shared_of(size))? as i32;
        if blocks * size > best.0 {
            best = (blocks * size, blocks, size);
        }
        threads -= 32;
    }
    grid.set(best.1 * session.engine.device.multiprocessors as i32)?;
    block.set(best.2)
}

type SharedOfBlock = Option<extern "C" fn(i32) -> usize>;

fn available_shared(
    session: &Session,
    handle: CUfunction,
    blocks: i32,
    threads: i32,
) -> Result<usize, CUresult> {
    if blocks <= 0 || resident(session, handle, threads, 0)? < blocks as u32 {
        return Err(CUresult::INVALID_VALUE);
    }
    let (_, kernel) = function(session, handle)?;
    let sm = &session.engine.device.per_multiprocessor;
    let of_a_block = sm.shared_bytes / blocks as u32 / 128 * 128 - SHARED_RESERVED;
    Ok((of_a_block
        .min(sm.shared_block_optin_bytes)
        .saturating_sub(kernel.static_shared)) as usize)
}

export! {
    fn cuLaunchKernel(
        session,
        handle: CUfunction,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        dynamic_shared: u32,
        stream: CUstream,
        pointers: In<usize>,
        extra: In<usize>,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let geometry = Geometry { grid, block, dynamic_shared, cooperative: false };
        launch(session, handle, geometry, stream, pointers, extra)
    }

    fn cuLaunchCooperativeKernel(
        session,
        handle: CUfunction,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        dynamic_shared: u32,
        stream: CUstream,
        pointers: In<usize>,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let geometry = Geometry { grid, block, dynamic_shared, cooperative: true };
        launch(session, handle, geometry, stream, pointers, In::null())
    }

    /// Attributes that only advise are accepted; clusters above one block and programmatic launch are not supported.
    fn cuLaunchKernelEx(
        session,
        config: In<CUlaunchConfig>,
        handle: CUfunction,
        pointers: In<usize>,
        extra: In<usize>,
    ) {
        let config = config.get()?;
        let mut cooperative = false;
        for k in 0..config.numAttrs as usize {
            let CUlaunchAttribute { id, value, .. } = config.attrs.at(k)?;
            match id {
                COOPERATIVE => cooperative = value[0] != 0,
                CLUSTER_DIMENSION if value[..3] == [1, 1, 1] => {}
                id if ADVISORY.contains(&id) => {}
                _ => return Err(CUresult::NOT_SUPPORTED),
            }
        }
        let CUlaunchConfig { grid, block, sharedMemBytes: dynamic_shared, hStream, .. } = config;
        let geometry = Geometry { grid, block, dynamic_shared, cooperative };
        launch(session, handle, geometry, hStream, pointers, extra)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        session,
        blocks: Out<i32>,
        handle: CUfunction,
        threads: i32,
        dynamic_shared: usize,
    ) {
        let found = resident(session, handle, threads, dynamic_shared)?;
        blocks.set(found as i32)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        session,
        blocks: Out<i32>,
        handle: CUfunction,
        threads: i32,
        dynamic_shared: usize,
        _flags: u32,
    ) {
        let found = resident(session, handle, threads, dynamic_shared)?;
        blocks.set(found as i32)
    }

    fn cuOccupancyMaxPotentialBlockSize(
        session,
        grid: Out<i32>,
        block: Out<i32>,
        handle: CUfunction,
        shared_of: SharedOfBlock,
        dynamic_shared: usize,
        limit: i32,
    ) {
        best_block(session, grid, block, handle, |n| shared_of.map_or(dynamic_shared, |f| f(n)), limit)
    }

    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        session,
        grid: Out<i32>,
        block: Out<i32>,
        handle: CUfunction,
        shared_of: SharedOfBlock,
        dynamic_shared: usize,
        limit: i32,
        _flags: u32,
    ) {
        best_block(session, grid, block, handle, |n| shared_of.map_or(dynamic_shared, |f| f(n)), limit)
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(
        session,
        bytes: Out<usize>,
        handle: CUfunction,
        blocks: i32,
        threads: i32,
    ) {
        let found = available_shared(session, handle, blocks, threads)?;
        bytes.set(found)
    }
}
