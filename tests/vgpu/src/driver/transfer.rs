//! Copies and fills.
//!
//! Which of them wait follows the documentation of the real driver ("API synchronization behavior"): a copy out of
//! ordinary host memory takes the bytes when it is called, a copy into it has ended when the call returns, page-locked
//! memory is used when the copy runs, copies within the device and fills do not wait for anything.

use super::{
    Session,
    abi::{
        CUDA_MEMCPY2D, CUcontext, CUdeviceptr, CUresult, CUstream, HostAddress, In,
        MEMORYTYPE_DEVICE, MEMORYTYPE_HOST, MEMORYTYPE_UNIFIED, Outcome, take_host_bytes,
    },
    export,
};
use crate::{
    check::Kind,
    stream::{Action, Copy, Fill, Place},
};

/// One end of a copy, as the call names it.
#[derive(Clone, Copy, Debug)]
enum End {
    Device(u64),
    Host(u64),
}

/// Rows to copy.
#[derive(Clone, Copy, Debug)]
struct Rows {
    to: End,
    from: End,
    width: u64,
    height: u64,
    to_pitch: u64,
    from_pitch: u64,
}

impl Rows {
    fn linear(to: End, from: End, bytes: usize) -> Self {
        let width = bytes as u64;
        Self {
            to,
            from,
            width,
            height: 1,
            to_pitch: width,
            from_pitch: width,
        }
    }

    /// Bytes from the first to the last of the rows.
    fn extent(&self, pitch: u64) -> Result<u64, CUresult> {
        let before_last = pitch.checked_mul(self.height.saturating_sub(1));
        before_last
            .and_then(|b| b.checked_add(self.width))
            .ok_or(CUresult::INVALID_VALUE)
    }
}

/// The end that an address lies in, for calls that leave it open.
fn end_of(session: &Session, address: u64) -> End {
    let freed = || matches!(session.engine.memory.read(address, &mut [0]), Err(f) if f.kind == Kind::UseAfterFree);
    if session.engine.memory.range(address).is_some() || freed() {
        End::Device(address)
    } else {
        End::Host(address)
    }
}

/// Refuses device memory that is not there, and notes why.
fn check_device_memory(session: &mut Session, address: u64, bytes: u64) -> Outcome {
    let range = session.engine.memory.range(address);
    let inside = range.is_some_and(|(start, size)| bytes <= size - (address - start));
    if inside {
        return Ok(());
    }
    // The memory knows best what is wrong: freed, never allocated, or past an end.
    let probe = range.map_or(address, |(start, size)| start + size);
    if let Err(finding) = session.engine.memory.read(probe, &mut [0]) {
        let message = format!("{} bytes at {address:#x}: {}", bytes, finding.message);
        let call = session.name;
        session.engine.report(finding.kind, call, message, "");
    }
    Err(CUresult::INVALID_VALUE)
}

fn copy(session: &mut Session, rows: Rows, stream: CUstream, asynchronous: bool) -> Outcome {
    let id = session.stream(stream)?;
    if rows.width == 0 || rows.height == 0 {
        return Ok(());
    }
    let (from_extent, to_extent) = (rows.extent(rows.from_pitch)?, rows.extent(rows.to_pitch)?);
    let mut waits = !asynchronous;
    let (from, from_pitch) = match rows.from {
        End::Device(address) => {
            check_device_memory(session, address, from_extent)?;
            (Place::Device(address), rows.from_pitch)
        }
        End::Host(0) => return Err(CUresult::INVALID_VALUE),
        End::Host(address) if session.engine.pinned.find(address, from_extent).is_some() => {
            (Place::Pinned(address), rows.from_pitch)
        }
        End::Host(address) => {
            if waits {
                // The real call waits for the stream, takes the bytes and returns while they are still on their way.
                let tail: Vec<_> = session.engine.tail(id).into_iter().collect();
                session.synchronise(&tail)?;
                waits = false;
            }
            let mut bytes = Vec::with_capacity((rows.width * rows.height) as usize);
            for row in 0..rows.height {
                bytes.extend(take_host_bytes(
                    address + row * rows.from_pitch,
                    rows.width as usize,
                ));
            }
            (Place::Staged(bytes), rows.width)
        }
    };
    let to = match rows.to {
        End::Device(address) => {
            check_device_memory(session, address, to_extent)?;
            Place::Device(address)
        }
        End::Host(0) => return Err(CUresult::INVALID_VALUE),
        End::Host(address) if session.engine.pinned.find(address, to_extent).is_some() => {
            Place::Pinned(address)
        }
        End::Host(address) => {
            waits = true;
            Place::Host(address)
        }
    };
    let what = match (&from, &to) {
        (Place::Device(_), Place::Device(_)) => {
            waits = false;
            "copy within the device"
        }
        (Place::Device(_), _) => "copy to the host",
        (_, Place::Device(_)) => "copy to the device",
        _ => "copy within the host",
    };
    let what = format!("{what} of {} bytes", rows.width * rows.height);
    let packed = from_pitch == rows.width && rows.to_pitch == rows.width;
    let (width, height) = if packed {
        (rows.width * rows.height, 1)
    } else {
        (rows.width, rows.height)
    };
    let work = Copy {
        from,
        to,
        width,
        height,
        from_pitch,
        to_pitch: rows.to_pitch,
    };
    session.engine.enqueue(id, Action::Copy(work), &what);
    if waits {
        let tail: Vec<_> = session.engine.tail(id).into_iter().collect();
        return session.synchronise(&tail);
    }
    session.relieve();
    Ok(())
}

fn copy_2d(
    session: &mut Session,
    description: In<CUDA_MEMCPY2D>,
    stream: CUstream,
    asynchronous: bool,
) -> Outcome {
    let d = description.get()?;
    let end = |kind: u32, host: HostAddress, device: CUdeviceptr, offset: usize| match kind {
        MEMORYTYPE_HOST if host != 0 => Ok(End::Host((host + offset) as u64)),
        MEMORYTYPE_DEVICE => Ok(End::Device(device + offset as u64)),
        MEMORYTYPE_UNIFIED => Ok(end_of(session, device + offset as u64)),
        _ => Err(CUresult::INVALID_VALUE),
    };
    let pitch = |given: usize, x: usize| {
        let row = if given == 0 {
            d.WidthInBytes + x
        } else {
            given
        };
        if row >= d.WidthInBytes + x {
            Ok(row)
        } else {
            Err(CUresult::INVALID_VALUE)
        }
    };
    let from_pitch = pitch(d.srcPitch, d.srcXInBytes)?;
    let to_pitch = pitch(d.dstPitch, d.dstXInBytes)?;
    let rows = Rows {
        from: end(
            d.srcMemoryType,
            d.srcHost,
            d.srcDevice,
            d.srcY * from_pitch + d.srcXInBytes,
        )?,
        to: end(
            d.dstMemoryType,
            d.dstHost,
            d.dstDevice,
            d.dstY * to_pitch + d.dstXInBytes,
        )?,
        width: d.WidthInBytes as u64,
        height: d.Height as u64,
        from_pitch: from_pitch as u64,
        to_pitch: to_pitch as u64,
    };
    copy(session, rows, stream, asynchronous)
}

/// Elements to fill.
struct Elements<'a> {
    address: u64,
    pattern: &'a [u8],
    width: usize,
    height: usize,
    pitch: usize,
}

fn fill(session: &mut Session, elements: &Elements<'_>, stream: CUstream) -> Outcome {
    let id = session.stream(stream)?;
    let &Elements {
        address,
        pattern,
        width,
        height,
        pitch,
    } = elements;
    if width == 0 || height == 0 {
        return Ok(());
    }
    let row = width
        .checked_mul(pattern.len())
        .ok_or(CUresult::INVALID_VALUE)?;
    if address % pattern.len() as u64 != 0 || (height > 1 && pitch < row) {
        return Err(CUresult::INVALID_VALUE);
    }
    let extent = pitch
        .checked_mul(height - 1)
        .and_then(|b| b.checked_add(row))
        .ok_or(CUresult::INVALID_VALUE)?;
    check_device_memory(session, address, extent as u64)?;
    let what = format!("fill of {} bytes", row * height);
    let (width, height, pitch) = (width as u64, height as u64, pitch as u64);
    let work = Fill {
        address,
        pattern: pattern.to_vec(),
        width,
        height,
        pitch,
    };
    session.engine.enqueue(id, Action::Fill(work), &what);
    Ok(())
}

fn fill_row(
    session: &mut Session,
    address: u64,
    pattern: &[u8],
    count: usize,
    stream: CUstream,
) -> Outcome {
    let pitch = count.saturating_mul(pattern.len());
    fill(
        session,
        &Elements {
            address,
            pattern,
            width: count,
            height: 1,
            pitch,
        },
        stream,
    )
}

const DEFAULT: CUstream = CUstream(0);

/// Fills: one function for each width of the element, alone or in rows, on the default stream or on another.
macro_rules! fills {
    ($($plain:ident $ordered:ident $rows:ident $ordered_rows:ident: $type:ty;)*) => { export! {$(
        fn $plain(session, address: CUdeviceptr, value: $type, count: usize) {
            fill_row(session, address, &value.to_le_bytes(), count, DEFAULT)
        }

        fn $ordered(session, address: CUdeviceptr, value: $type, count: usize, stream: CUstream) {
            fill_row(session, address, &value.to_le_bytes(), count, stream)
        }

        fn $rows(session, address: CUdeviceptr, pitch: usize, value: $type, width: usize, height: usize) {
            fill(session, &Elements { address, pattern: &value.to_le_bytes(), width, height, pitch }, DEFAULT)
        }

        fn $ordered_rows(
            session,
            address: CUdeviceptr,
            pitch: usize,
            value: $type,
            width: usize,
            height: usize,
            stream: CUstream,
        ) {
            fill(session, &Elements { address, pattern: &value.to_le_bytes(), width, height, pitch }, stream)
        }
    )*} };
}

fills! {
    cuMemsetD8_v2 cuMemsetD8Async cuMemsetD2D8_v2 cuMemsetD2D8Async: u8;
    cuMemsetD16_v2 cuMemsetD16Async cuMemsetD2D16_v2 cuMemsetD2D16Async: u16;
    cuMemsetD32_v2 cuMemsetD32Async cuMemsetD2D32_v2 cuMemsetD2D32Async: u32;
}

export! {
    fn cuMemcpyHtoD_v2(session, to: CUdeviceptr, from: HostAddress, bytes: usize) {
        copy(session, Rows::linear(End::Device(to), End::Host(from as u64), bytes), DEFAULT, false)
    }

    fn cuMemcpyHtoDAsync_v2(session, to: CUdeviceptr, from: HostAddress, bytes: usize, stream: CUstream) {
        copy(session, Rows::linear(End::Device(to), End::Host(from as u64), bytes), stream, true)
    }

    fn cuMemcpyDtoH_v2(session, to: HostAddress, from: CUdeviceptr, bytes: usize) {
        copy(session, Rows::linear(End::Host(to as u64), End::Device(from), bytes), DEFAULT, false)
    }

    fn cuMemcpyDtoHAsync_v2(session, to: HostAddress, from: CUdeviceptr, bytes: usize, stream: CUstream) {
        copy(session, Rows::linear(End::Host(to as u64), End::Device(from), bytes), stream, true)
    }

    fn cuMemcpyDtoD_v2(session, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) {
        copy(session, Rows::linear(End::Device(to), End::Device(from), bytes), DEFAULT, false)
    }

    fn cuMemcpyDtoDAsync_v2(session, to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) {
        copy(session, Rows::linear(End::Device(to), End::Device(from), bytes), stream, true)
    }

    fn cuMemcpy(session, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) {
        let rows = Rows::linear(end_of(session, to), end_of(session, from), bytes);
        copy(session, rows, DEFAULT, false)
    }

    fn cuMemcpyAsync(session, to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) {
        let rows = Rows::linear(end_of(session, to), end_of(session, from), bytes);
        copy(session, rows, stream, true)
    }

    /// Contexts share the one device, so this is a copy within it.
    fn cuMemcpyPeer(
        session,
        to: CUdeviceptr,
        _to_context: CUcontext,
        from: CUdeviceptr,
        _from_context: CUcontext,
        bytes: usize,
    ) {
        copy(session, Rows::linear(End::Device(to), End::Device(from), bytes), DEFAULT, false)
    }

    /// Contexts share the one device, so this is a copy within it.
    fn cuMemcpyPeerAsync(
        session,
        to: CUdeviceptr,
        _to_context: CUcontext,
        from: CUdeviceptr,
        _from_context: CUcontext,
        bytes: usize,
        stream: CUstream,
    ) {
        copy(session, Rows::linear(End::Device(to), End::Device(from), bytes), stream, true)
    }

    fn cuMemcpy2D_v2(session, description: In<CUDA_MEMCPY2D>) {
        copy_2d(session, description, DEFAULT, false)
    }

    fn cuMemcpy2DUnaligned_v2(session, description: In<CUDA_MEMCPY2D>) {
        copy_2d(session, description, DEFAULT, false)
    }

    fn cuMemcpy2DAsync_v2(session, description: In<CUDA_MEMCPY2D>, stream: CUstream) {
        copy_2d(session, description, stream, true)
    }
}
