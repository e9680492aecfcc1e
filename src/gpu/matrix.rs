//! Matrices in device memory: what kernels are handed instead of a pointer and three integers.
//!
//! Row-major; a row begins every `pitch` values, and the pitch of what is allocated here makes every row begin at a
//! multiple of [`ROW_ALIGN`] bytes, so that kernels may read rows by vectors.
//!
//! A view says nothing about *when*: a kernel reads it when its stream gets there. The rule of this module is that a
//! matrix belongs to the stream it was allocated on and is used there, or elsewhere between two events.

use std::marker::PhantomData;

use cudarc::driver::sys::{self, CUdeviceptr};
use half::{bf16, f16};

use super::pool::Block;
use super::stream::Stream;
use crate::error::{Error, Result};
use crate::matrix::Dtype;

/// Rows begin at multiples of this many bytes: a full cache line.
pub const ROW_ALIGN: usize = 128;

/// Types that a device matrix can hold.
pub trait Value: bytemuck::Pod + Send + Sync {
    /// Name of the type in kernel symbols.
    const NAME: &'static str;
}

/// Types that feature rows can be stored as: the suffixes that row kernels come in.
pub trait Feature: Value {
    /// Storage type as a value.
    const DTYPE: Dtype;
}

macro_rules! values {
    ($($kind:ty: $name:literal),*) => { $(impl Value for $kind { const NAME: &'static str = $name; })* };
}
values!(f16: "f16", bf16: "bf16", f32: "f32", f64: "f64", i8: "s8", i64: "i64", u32: "u32", u64: "u64");

macro_rules! features {
    ($($kind:ty: $dtype:ident),*) => { $(impl Feature for $kind { const DTYPE: Dtype = Dtype::$dtype; })* };
}
features!(f16: F16, bf16: Bf16, f32: F32, f64: F64);

/// A matrix to read, rows × cols with a pitch.
#[derive(Debug)]
pub struct View<'a, T> {
    pointer: CUdeviceptr,
    rows: usize,
    cols: usize,
    pitch: usize,
    owner: PhantomData<&'a T>,
}

impl<T> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for View<'_, T> {}

/// A matrix to write, rows × cols with a pitch.
#[derive(Debug)]
pub struct ViewMut<'a, T> {
    read: View<'a, T>,
    owner: PhantomData<&'a mut T>,
}

impl<'a, T: Value> View<'a, T> {
    /// Views someone else's memory, to read.
    ///
    /// # Errors
    /// [`Error::Shape`] when the pitch is shorter than a row or the pointer is not a multiple of a value's size.
    ///
    /// # Safety
    /// `pointer` is device memory of the context that the view is used in, of `(rows − 1)·pitch + cols` values, which
    /// stay allocated and, where a kernel reads them, initialised until the last stream that was given the view has
    /// passed that point.
    pub unsafe fn from_raw(
        pointer: CUdeviceptr,
        rows: usize,
        cols: usize,
        pitch: usize,
    ) -> Result<Self> {
        let size = size_of::<T>();
        if pitch < cols || !pointer.is_multiple_of(size as u64) || (pointer == 0 && rows * cols > 0)
        {
            return Err(Error::Shape {
                what: "device matrix".into(),
                found: format!("{rows}x{cols}, pitch {pitch}, at {pointer:#x}"),
                expected: format!(
                    "a pitch of at least {cols} and a pointer that is a multiple of {size}"
                ),
            });
        }
        Ok(Self::raw(pointer, rows, cols, pitch))
    }

    fn raw(pointer: CUdeviceptr, rows: usize, cols: usize, pitch: usize) -> Self {
        Self {
            pointer,
            rows,
            cols,
            pitch,
            owner: PhantomData,
        }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Values from the start of one row to the start of the next.
    pub fn pitch(&self) -> usize {
        self.pitch
    }

    /// Address of the first value.
    pub fn pointer(&self) -> CUdeviceptr {
        self.pointer
    }

    /// Returns whether it has no values.
    pub fn is_empty(&self) -> bool {
        self.rows == 0 || self.cols == 0
    }

    /// Returns the block of `rows` × `cols` values from (`row`, `col`) on.
    ///
    /// # Panics
    /// If it is not inside.
    pub fn block(&self, (row, col): (usize, usize), (rows, cols): (usize, usize)) -> View<'a, T> {
        assert!(
            row + rows <= self.rows && col + cols <= self.cols,
            "block {rows}x{cols} at ({row}, {col}) of {}x{}",
            self.rows,
            self.cols
        );
        let offset = (row * self.pitch + col) * size_of::<T>();
        View::raw(self.pointer + offset as u64, rows, cols, self.pitch)
    }

    /// Returns the first `rows` rows.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn top(&self, rows: usize) -> View<'a, T> {
        self.block((0, 0), (rows, self.cols))
    }
}

impl<'a, T: Value> ViewMut<'a, T> {
    /// Views someone else's memory, to write.
    ///
    /// # Errors
    /// As [`View::from_raw`].
    ///
    /// # Safety
    /// As [`View::from_raw`], and nothing else reads or writes it between the first and the last use on a stream,
    /// except in the order of that stream.
    pub unsafe fn from_raw(
        pointer: CUdeviceptr,
        rows: usize,
        cols: usize,
        pitch: usize,
    ) -> Result<Self> {
        // SAFETY: the caller's promise covers that of `View::from_raw`.
        let read = unsafe { View::from_raw(pointer, rows, cols, pitch)? };
        Ok(Self {
            read,
            owner: PhantomData,
        })
    }

    /// Borrows the matrix to read.
    pub fn as_view(&self) -> View<'_, T> {
        self.read
    }

    /// Returns the block of `rows` × `cols` values from (`row`, `col`) on.
    ///
    /// # Panics
    /// If it is not inside.
    pub fn into_block(self, at: (usize, usize), shape: (usize, usize)) -> Self {
        Self {
            read: self.read.block(at, shape),
            owner: PhantomData,
        }
    }

    /// Queues a copy of a matrix of the same shape, from device to device.
    ///
    /// # Panics
    /// If the shapes differ.
    pub fn copy_from(&mut self, stream: &Stream, from: View<'_, T>) -> Result<()> {
        let to = &self.read;
        assert_eq!(
            (from.rows, from.cols),
            (to.rows, to.cols),
            "copy between matrices of one shape"
        );
        if to.is_empty() {
            return Ok(());
        }
        stream.context().bind()?;
        let size = size_of::<T>();
        let on_device = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
        let what = sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: on_device,
            srcHost: std::ptr::null(),
            srcDevice: from.pointer,
            srcArray: std::ptr::null_mut(),
            srcPitch: from.pitch * size,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: on_device,
            dstHost: std::ptr::null_mut(),
            dstDevice: to.pointer,
            dstArray: std::ptr::null_mut(),
            dstPitch: to.pitch * size,
            WidthInBytes: to.cols * size,
            Height: to.rows,
        };
        // SAFETY: the constructors of both views vouch for their memory.
        let code = unsafe { sys::cuMemcpy2DAsync_v2(&what, stream.raw()) };
        stream.context().check(code, "copy a matrix")
    }

    /// Sets every value to zero bits.
    pub fn clear(&mut self, stream: &Stream) -> Result<()> {
        let view = self.read;
        if view.is_empty() {
            return Ok(());
        }
        stream.context().bind()?;
        let size = size_of::<T>();
        // SAFETY: the view's constructor established that these bytes are allocated; the stream orders the write.
        let code = unsafe {
            sys::cuMemsetD2D8Async(
                view.pointer,
                view.pitch * size,
                0,
                view.cols * size,
                view.rows,
                stream.raw(),
            )
        };
        stream.context().check(code, "clear device memory")
    }
}

impl<'a, T> std::ops::Deref for ViewMut<'a, T> {
    type Target = View<'a, T>;
    fn deref(&self) -> &View<'a, T> {
        &self.read
    }
}

/// A matrix in device memory.
#[derive(Debug)]
pub struct DeviceMatrix<T> {
    /// Device memory; `None` when there are no values.
    block: Option<Block>,
    rows: usize,
    cols: usize,
    pitch: usize,
    values: PhantomData<T>,
}

impl<T: Value> DeviceMatrix<T> {
    /// Allocates a matrix for use on `stream` whose values are yet to be written.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] when it does not fit.
    pub fn uninit(stream: &Stream, rows: usize, cols: usize) -> Result<Self> {
        let pitch = cols.next_multiple_of(ROW_ALIGN / size_of::<T>());
        let bytes = rows
            .checked_mul(pitch)
            .and_then(|values| values.checked_mul(size_of::<T>()))
            .ok_or_else(|| Error::DeviceMemory {
                device: stream.context().label(),
                requested: u64::MAX,
                free: 0,
                total: stream.context().properties().memory as u64,
            })?;
        let block = (bytes > 0).then(|| Block::new(stream, bytes)).transpose()?;
        Ok(Self {
            block,
            rows,
            cols,
            pitch,
            values: PhantomData,
        })
    }

    /// Allocates a matrix of zeros for use on `stream`.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] when it does not fit.
    pub fn zeros(stream: &Stream, rows: usize, cols: usize) -> Result<Self> {
        let mut matrix = Self::uninit(stream, rows, cols)?;
        matrix.view_mut().clear(stream)?;
        Ok(matrix)
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    fn pointer(&self) -> CUdeviceptr {
        self.block.as_ref().map_or(0, Block::pointer)
    }

    /// Views the whole matrix, to read.
    pub fn view(&self) -> View<'_, T> {
        View::raw(self.pointer(), self.rows, self.cols, self.pitch)
    }

    /// Views the whole matrix, to write.
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut {
            read: View::raw(self.pointer(), self.rows, self.cols, self.pitch),
            owner: PhantomData,
        }
    }
}
