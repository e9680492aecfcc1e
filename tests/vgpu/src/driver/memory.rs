//! Device memory, page-locked host memory and pools.

use super::{
    Session,
    abi::{
        CUcontext, CUdevice, CUdeviceptr, CUmemoryPool, CUresult, CUstream, HostAddress, In,
        MEMORYTYPE_DEVICE, MEMORYTYPE_HOST, Out, Outcome,
    },
    export,
};
use crate::stream::{Action, Owner};

fn allocate(session: &mut Session, bytes: usize, stream_ordered: bool) -> Result<u64, CUresult> {
    let group = session.context()?;
    if bytes == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    session.allocations_made += 1;
    if session.config.fail_allocation == Some(session.allocations_made) {
        return Err(CUresult::OUT_OF_MEMORY);
    }
    let owner = Owner {
        group,
        stream_ordered,
    };
    if let Ok(address) = session.engine.allocate(bytes as u64, owner) {
        return Ok(address);
    }
    // Frees that are queued may make room.
    session.make_room();
    session
        .engine
        .allocate(bytes as u64, owner)
        .map_err(|_| CUresult::OUT_OF_MEMORY)
}

fn allocate_ordered(
    session: &mut Session,
    address: Out<CUdeviceptr>,
    bytes: usize,
    stream: CUstream,
) -> Outcome {
    let id = session.stream(stream)?;
    let start = allocate(session, bytes, true)?;
    session.engine.enqueue(
        id,
        Action::Allocate((start, start + bytes as u64)),
        "cuMemAllocAsync",
    );
    address.set(start)
}

fn allocate_host(session: &mut Session, address: Out<HostAddress>, bytes: usize) -> Outcome {
    session.context()?;
    if bytes == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    session.host_allocations_made += 1;
    let refused = session.config.fail_host_allocation == Some(session.host_allocations_made);
    let memory = if refused {
        None
    } else {
        session.engine.pinned.allocate(bytes as u64)
    };
    address.set(memory.ok_or(CUresult::OUT_OF_MEMORY)? as HostAddress)
}

fn release_host(session: &mut Session, address: HostAddress, registered: bool) -> Outcome {
    session.context()?;
    let known = session.engine.host_clock();
    let tails = session.engine.tails(None);
    session.drive(&tails);
    let call = session.name;
    let missing = if registered {
        CUresult::HOST_MEMORY_NOT_REGISTERED
    } else {
        CUresult::INVALID_VALUE
    };
    session
        .engine
        .release_pinned(address as u64, registered, &known, call)
        .ok_or(missing)
}

fn register_host(session: &mut Session, address: HostAddress, bytes: usize) -> Outcome {
    session.context()?;
    if address == 0 || bytes == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let fresh = session.engine.pinned.register(address as u64, bytes as u64);
    if fresh {
        Ok(())
    } else {
        Err(CUresult::HOST_MEMORY_ALREADY_REGISTERED)
    }
}

fn pool(session: &Session, handle: CUmemoryPool) -> Result<u64, CUresult> {
    session.initialised()?;
    handle
        .id()
        .filter(|id| session.pools.contains_key(id))
        .ok_or(CUresult::INVALID_VALUE)
}

fn default_pool(session: &Session, handle: Out<CUmemoryPool>, device: CUdevice) -> Outcome {
    session.initialised()?;
    if device != 0 {
        return Err(CUresult::INVALID_DEVICE);
    }
    handle.set(CUmemoryPool::new(session.default_pool))
}

export! {
    fn cuMemGetInfo_v2(session, free: Out<usize>, total: Out<usize>) {
        session.context()?;
        let (left, all) = session.engine.memory_info();
        free.set_if_wanted(left as usize);
        total.set_if_wanted(all as usize);
        Ok(())
    }

    fn cuMemAlloc_v2(session, address: Out<CUdeviceptr>, bytes: usize) {
        let start = allocate(session, bytes, false)?;
        address.set(start)
    }

    fn cuMemAllocPitch_v2(
        session,
        address: Out<CUdeviceptr>,
        pitch: Out<usize>,
        width: usize,
        height: usize,
        element: u32,
    ) {
        if ![4, 8, 16].contains(&element) || width == 0 || height == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let row = width.next_multiple_of(512);
        let start = allocate(session, row * height, false)?;
        pitch.set(row)?;
        address.set(start)
    }

    fn cuMemAllocAsync(session, address: Out<CUdeviceptr>, bytes: usize, stream: CUstream) {
        allocate_ordered(session, address, bytes, stream)
    }

    fn cuMemAllocFromPoolAsync(
        session,
        address: Out<CUdeviceptr>,
        bytes: usize,
        from: CUmemoryPool,
        stream: CUstream,
    ) {
        pool(session, from)?;
        allocate_ordered(session, address, bytes, stream)
    }

    /// Waits for all work, as the real one does, except for users of stream-ordered memory, which are then a finding.
    fn cuMemFree_v2(session, address: CUdeviceptr) {
        session.context()?;
        if address == 0 {
            return Ok(());
        }
        let (_, owner) = session.engine.allocation(address).ok_or(CUresult::INVALID_VALUE)?;
        let known = session.engine.host_clock();
        let tails = session.engine.tails(None);
        session.drive(&tails);
        if !owner.stream_ordered {
            tails.iter().for_each(|tail| session.engine.host_waited(tail));
        }
        session.engine.free(address, &known, "cuMemFree");
        session.verdict()
    }

    fn cuMemFreeAsync(session, address: CUdeviceptr, stream: CUstream) {
        let id = session.stream(stream)?;
        if address == 0 {
            return Ok(());
        }
        let (bytes, _) = session.engine.allocation(address).ok_or(CUresult::INVALID_VALUE)?;
        session.engine.enqueue(id, Action::Free((address, address + bytes)), "cuMemFreeAsync");
        session.relieve();
        Ok(())
    }

    fn cuMemGetAddressRange_v2(session, base: Out<CUdeviceptr>, size: Out<usize>, address: CUdeviceptr) {
        session.context()?;
        let (start, bytes) = session.engine.memory.range(address).ok_or(CUresult::NOT_FOUND)?;
        base.set_if_wanted(start);
        size.set_if_wanted(bytes as usize);
        Ok(())
    }

    fn cuMemAllocHost_v2(session, address: Out<HostAddress>, bytes: usize) {
        allocate_host(session, address, bytes)
    }

    /// Kernels cannot reach host memory here, so the flags make no difference.
    fn cuMemHostAlloc(session, address: Out<HostAddress>, bytes: usize, flags: u32) {
        if flags & !7 != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        allocate_host(session, address, bytes)
    }

    fn cuMemFreeHost(session, address: HostAddress) {
        release_host(session, address, false)
    }

    fn cuMemHostRegister_v2(session, address: HostAddress, bytes: usize, _flags: u32) {
        register_host(session, address, bytes)
    }

    fn cuMemHostUnregister(session, address: HostAddress) {
        release_host(session, address, true)
    }

    fn cuMemHostGetFlags(session, flags: Out<u32>, address: HostAddress) {
        session.context()?;
        session.engine.pinned.find(address as u64, 1).ok_or(CUresult::INVALID_VALUE)?;
        flags.set(0)
    }

    fn cuPointerGetAttribute(session, data: Out<u64>, attribute: u32, address: CUdeviceptr) {
        let value = pointer_attribute(session, attribute, address)?;
        put_attribute(data, attribute, value)
    }

    /// Attributes that an address does not have come out as 0.
    fn cuPointerGetAttributes(
        session,
        count: u32,
        attributes: In<u32>,
        data: In<usize>,
        address: CUdeviceptr,
    ) {
        session.context()?;
        for k in 0..count as usize {
            let attribute = attributes.at(k)?;
            let value = match pointer_attribute(session, attribute, address) {
                Err(CUresult::INVALID_VALUE) => 0,
                other => other?,
            };
            put_attribute(Out::from_address(data.at(k)?), attribute, value)?;
        }
        Ok(())
    }

    fn cuDeviceGetDefaultMemPool(session, handle: Out<CUmemoryPool>, device: CUdevice) {
        default_pool(session, handle, device)
    }

    fn cuDeviceGetMemPool(session, handle: Out<CUmemoryPool>, device: CUdevice) {
        default_pool(session, handle, device)
    }

    fn cuDeviceSetMemPool(session, device: CUdevice, handle: CUmemoryPool) {
        pool(session, handle)?;
        if device == 0 { Ok(()) } else { Err(CUresult::INVALID_DEVICE) }
    }

    fn cuMemPoolCreate(session, handle: Out<CUmemoryPool>, properties: In<u8>) {
        session.initialised()?;
        properties.get()?;
        let id = session.new_id();
        session.pools.insert(id, 0);
        handle.set(CUmemoryPool::new(id))
    }

    fn cuMemPoolDestroy(session, handle: CUmemoryPool) {
        let id = pool(session, handle)?;
        if id == session.default_pool {
            return Err(CUresult::INVALID_VALUE);
        }
        session.pools.remove(&id);
        Ok(())
    }

    fn cuMemPoolTrimTo(session, handle: CUmemoryPool, _keep: usize) {
        pool(session, handle).map(|_| ())
    }

    /// Only the release threshold is kept; memory is never held by a pool here.
    fn cuMemPoolSetAttribute(session, handle: CUmemoryPool, attribute: u32, value: In<u32>) {
        let id = pool(session, handle)?;
        match attribute {
            1..=3 => value.get().map(|_| ()),
            4 => {
                let threshold = u64::from(value.at(0)?) | u64::from(value.at(1)?) << 32;
                session.pools.insert(id, threshold);
                Ok(())
            }
            6 | 8 => Ok(()),
            _ => Err(CUresult::INVALID_VALUE),
        }
    }

    fn cuMemPoolGetAttribute(session, handle: CUmemoryPool, attribute: u32, value: Out<u32>) {
        let id = pool(session, handle)?;
        let (free, total) = session.engine.memory_info();
        let wide = match attribute {
            1..=3 => return value.set(1),
            4 => session.pools[&id],
            5..=8 => total - free,
            _ => return Err(CUresult::INVALID_VALUE),
        };
        value.set_all([wide as u32, (wide >> 32) as u32])
    }
}

/// The value of `CU_POINTER_ATTRIBUTE_…` for an address of device or page-locked memory.
fn pointer_attribute(
    session: &Session,
    attribute: u32,
    address: CUdeviceptr,
) -> Result<u64, CUresult> {
    let context = session.context()?;
    let device = session.engine.memory.range(address);
    let range = device.or_else(|| session.engine.pinned.find(address, 1));
    let (start, bytes) = range.ok_or(CUresult::INVALID_VALUE)?;
    Ok(match (attribute, device.is_some()) {
        (1, _) => CUcontext::new(context).0 as u64,
        (2, on_device) => u64::from(if on_device {
            MEMORYTYPE_DEVICE
        } else {
            MEMORYTYPE_HOST
        }),
        (3, true) | (4, false) => address,
        (7, _) => start >> 9,
        (6 | 8 | 9, _) => 0,
        (11, _) => start,
        (12, _) => bytes,
        (13, _) => 1,
        _ => return Err(CUresult::INVALID_VALUE),
    })
}

/// Writes an attribute in the width that it has.
fn put_attribute(data: Out<u64>, attribute: u32, value: u64) -> Outcome {
    match attribute {
        1 | 3 | 4 | 7 | 11 | 12 => data.set(value),
        2 | 9 => data.cast::<u32>().set(value as u32),
        _ => data.cast::<u8>().set(value as u8),
    }
}
