//! Arrays of Python's, read where they lie: by the buffer protocol (numpy, memory maps, read-only arrays) or by DLPack (tensors
//! of torch, JAX and CuPy that are on the processor).
//!
//! The one module with unsafe code. An [`Array`] keeps its owner alive, has checked type, device and extents, and hands out
//! batches of rows: borrowed where values lie in order, copied into a buffer of one batch where they do not.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ops::Range;

use half::{bf16, f16};
use muso::engine::{Dtype, Rows};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

/// Type of an array's values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A floating type that features may have.
    Float(Dtype),
    /// Signed integers of so many bytes.
    Signed(usize),
    /// Unsigned integers of so many bytes; booleans are such.
    Unsigned(usize),
}

impl Kind {
    fn size(self) -> usize {
        match self {
            Self::Float(dtype) => dtype.size(),
            Self::Signed(bytes) | Self::Unsigned(bytes) => bytes,
        }
    }

    /// Reads a format of Python's `struct`.
    fn of_format(format: &[u8]) -> Option<Self> {
        let native = cfg!(target_endian = "little");
        let code = match format {
            [code] | [b'@' | b'=', code] => code,
            [b'<', code] if native => code,
            [b'>' | b'!', code] if !native => code,
            _ => return None,
        };
        // Integers by their names in C are told apart by the size of an item.
        Some(match code {
            b'e' => Self::Float(Dtype::F16),
            b'f' => Self::Float(Dtype::F32),
            b'd' => Self::Float(Dtype::F64),
            b'b' | b'h' | b'i' | b'l' | b'q' | b'n' => Self::Signed(0),
            b'?' | b'B' | b'H' | b'I' | b'L' | b'Q' | b'N' => Self::Unsigned(0),
            _ => return None,
        })
    }
}

/// What keeps the memory of an array alive and in place.
enum Owner {
    Buffer(#[expect(dead_code, reason = "held")] PyUntypedBuffer),
    Capsule(#[expect(dead_code, reason = "held")] Py<PyAny>),
}

/// An array of one or two dimensions.
pub(crate) struct Array {
    /// Name of the argument, for messages.
    name: &'static str,
    kind: Kind,
    dimensions: usize,
    rows: usize,
    cols: usize,
    /// Bytes from a row to the next, and from a column to the next.
    strides: [isize; 2],
    data: *const u8,
    _owner: Owner,
}

// SAFETY: the memory is only read, and `_owner`, which may be dropped on any thread, keeps it until then. That nobody writes to
// it meanwhile is the caller's business, as with every function of numpy that lets go of the interpreter's lock; what is read
// are numbers, of which any bits are valid ones.
unsafe impl Send for Array {}
// SAFETY: as above; there is no way to write through it.
unsafe impl Sync for Array {}

/// Room for a batch of rows that had to be copied.
#[derive(Default)]
pub(crate) struct Copied {
    f16: Vec<f16>,
    bf16: Vec<bf16>,
    f32: Vec<f32>,
    f64: Vec<f64>,
}

impl Array {
    /// Opens an argument as an array of numbers.
    pub(crate) fn open(name: &'static str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        let numpy = value.py().import("numpy")?;
        if value.is_instance(&numpy.getattr("ndarray")?)? {
            // numpy knows bfloat16 by an extension, whose arrays lend no buffer.
            if value.getattr("dtype")?.getattr("name")?.to_string() == "bfloat16" {
                let mut array = Self::of_buffer(name, &value.call_method1("view", ("uint16",))?)?;
                array.kind = Kind::Float(Dtype::Bf16);
                return Ok(array);
            }
            return Self::of_buffer(name, value);
        }
        if value.hasattr("__dlpack__")? {
            return Self::of_dlpack(name, value);
        }
        let scalar = value.is_instance(&numpy.getattr("generic")?)?;
        // SAFETY: the interpreter is attached, and the object is alive.
        if !scalar && unsafe { pyo3::ffi::PyObject_CheckBuffer(value.as_ptr()) } == 1 {
            return Self::of_buffer(name, value);
        }
        Err(PyTypeError::new_err(format!(
            "{name} is a {}; expected an array: numpy.asarray({name}) makes one",
            value.get_type().name()?
        )))
    }

    fn of_buffer(name: &'static str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        let unusable = |found: &str| {
            PyTypeError::new_err(format!(
                "{name} has values of type {found}; expected float16, bfloat16, float32 or float64, or integers for labels"
            ))
        };
        let dtype = || match value.getattr("dtype") {
            Ok(dtype) => dtype.to_string(),
            Err(_) => "unknown".to_owned(),
        };
        let buffer = PyUntypedBuffer::get(value).map_err(|_| unusable(&dtype()))?;
        let size = buffer.item_size();
        let kind = match Kind::of_format(buffer.format().to_bytes()) {
            Some(Kind::Signed(_)) => Kind::Signed(size),
            Some(Kind::Unsigned(_)) => Kind::Unsigned(size),
            Some(kind) if kind.size() == size => kind,
            _ => return Err(unusable(&dtype())),
        };
        if buffer.suboffsets().is_some() {
            return Err(PyTypeError::new_err(format!(
                "{name} is an array of pointers; expected numbers beside each other"
            )));
        }
        let (shape, strides) = (buffer.shape().to_vec(), buffer.strides().to_vec());
        let data = buffer.buf_ptr().cast_const().cast::<u8>();
        Self::new(name, kind, &shape, &strides, data, Owner::Buffer(buffer))
    }

    fn of_dlpack(name: &'static str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        if value.hasattr("__dlpack_device__")? {
            let device = value.call_method0("__dlpack_device__")?;
            let (kind, number): (i64, i64) = device.cast::<PyTuple>()?.extract()?;
            // The processor's memory, and what of it is pinned for devices.
            if !matches!(kind, 1 | 3 | 11) {
                let kind = match kind {
                    2 => "cuda",
                    4 => "opencl",
                    7 => "vulkan",
                    8 => "metal",
                    10 => "rocm",
                    _ => "another device, of DLPack's type ",
                };
                return Err(PyValueError::new_err(format!(
                    "{name} is on {kind}:{number}; expected an array in the processor's memory, such as {name}.cpu()"
                )));
            }
        }
        let lent = value.call_method0("__dlpack__").map_err(|error| {
            let message = format!("{name} cannot be read: {}", error.value(value.py()));
            let refused = PyValueError::new_err(message);
            refused.set_cause(value.py(), Some(error));
            refused
        })?;
        let capsule = lent.cast::<PyCapsule>()?;
        let pointer = capsule.pointer_checked(Some(c"dltensor"))?;
        // SAFETY: a capsule of this name holds a managed tensor by the convention, which stays as long as the capsule has not been
        // renamed; nobody else has it.
        let tensor = unsafe { pointer.cast::<dlpack::Managed>().as_ref() }.tensor;
        let kind = match (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) {
            (2, 16, 1) => Kind::Float(Dtype::F16),
            (4, 16, 1) => Kind::Float(Dtype::Bf16),
            (2, 32, 1) => Kind::Float(Dtype::F32),
            (2, 64, 1) => Kind::Float(Dtype::F64),
            (0, bits @ (8 | 16 | 32 | 64), 1) => Kind::Signed(usize::from(bits) / 8),
            (1, bits @ (8 | 16 | 32 | 64), 1) => Kind::Unsigned(usize::from(bits) / 8),
            (6, 8, 1) => Kind::Unsigned(1),
            (code, bits, lanes) => {
                return Err(PyTypeError::new_err(format!(
                    "{name} has values of DLPack's type {code} with {bits} bits and {lanes} lanes; expected float16, \
                     bfloat16, float32 or float64, or integers for labels"
                )));
            }
        };
        let dimensions = usize::try_from(tensor.dimensions).unwrap_or(0);
        // SAFETY: the convention has as many extents here as there are dimensions.
        let list = |pointer: *const i64| unsafe { std::slice::from_raw_parts(pointer, dimensions) };
        let shape: Vec<usize> = match dimensions {
            0 => Vec::new(),
            _ => list(tensor.shape).iter().map(|&n| n as usize).collect(),
        };
        let size = kind.size() as isize;
        let strides = match tensor.strides.is_null() || dimensions == 0 {
            false => list(tensor.strides)
                .iter()
                .map(|&s| s as isize * size)
                .collect(),
            // In order, the last extent first.
            true => {
                let mut strides = vec![size; dimensions];
                for i in (1..dimensions).rev() {
                    strides[i - 1] = strides[i] * shape[i] as isize;
                }
                strides
            }
        };
        let data = tensor.data.cast_const().cast::<u8>();
        // SAFETY: the convention has the first value so many bytes into the allocation.
        let data = unsafe { data.add(tensor.byte_offset as usize) };
        Self::new(
            name,
            kind,
            &shape,
            &strides,
            data,
            Owner::Capsule(lent.unbind()),
        )
    }

    fn new(
        name: &'static str,
        kind: Kind,
        shape: &[usize],
        strides: &[isize],
        data: *const u8,
        owner: Owner,
    ) -> PyResult<Self> {
        let size = kind.size() as isize;
        let (rows, cols, strides) = match (shape, strides) {
            (&[rows], &[stride]) => (rows, 1, [stride, size]),
            (&[rows, cols], &[down, across]) => (rows, cols, [down, across]),
            _ => {
                return Err(PyValueError::new_err(format!(
                    "{name} has {} dimensions; expected one or two",
                    shape.len()
                )));
            }
        };
        Ok(Self {
            name,
            kind,
            dimensions: shape.len(),
            rows,
            cols,
            strides,
            data,
            _owner: owner,
        })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn cols(&self) -> usize {
        self.cols
    }

    pub(crate) fn row_bytes(&self) -> usize {
        self.cols * self.kind.size()
    }

    /// Refuses what is no matrix of a floating type with so many columns.
    pub(crate) fn is_matrix_of(&self, cols: usize) -> PyResult<&Self> {
        let name = self.name;
        let Kind::Float(_) = self.kind else {
            return Err(PyTypeError::new_err(format!(
                "{name} has integers; expected float16, bfloat16, float32 or float64: {name}.astype('float32')"
            )));
        };
        if self.dimensions != 2 {
            return Err(PyValueError::new_err(format!(
                "{name} has {} dimension; expected two, a row for each sample: {name}.reshape(1, -1) is one sample",
                self.dimensions
            )));
        }
        match self.cols == cols {
            true => Ok(self),
            false => Err(PyValueError::new_err(format!(
                "{name} has {} features; expected {cols}",
                self.cols
            ))),
        }
    }

    /// Whether values lie in order and aligned.
    pub(crate) fn is_in_order(&self) -> bool {
        let size = self.kind.size();
        let across = self.cols <= 1 || self.strides[1] == size as isize;
        let down = self.rows <= 1 || self.strides[0] == (self.cols * size) as isize;
        across && down && (self.data as usize).is_multiple_of(size)
    }

    /// Returns some of the rows, copied into `room` only if they do not lie in order.
    ///
    /// # Panics
    /// If the array has integers, or not so many rows.
    pub(crate) fn batch<'a>(&'a self, rows: Range<usize>, room: &'a mut Copied) -> Rows<'a> {
        let (count, cols) = (rows.len(), self.cols);
        match self.kind {
            Kind::Float(Dtype::F16) => Rows::new(count, cols, self.values(rows, &mut room.f16)),
            Kind::Float(Dtype::Bf16) => Rows::new(count, cols, self.values(rows, &mut room.bf16)),
            Kind::Float(Dtype::F32) => Rows::new(count, cols, self.values(rows, &mut room.f32)),
            Kind::Float(Dtype::F64) => Rows::new(count, cols, self.values(rows, &mut room.f64)),
            Kind::Signed(_) | Kind::Unsigned(_) => panic!("rows of integers"),
        }
    }

    /// Returns all rows where they lie in order.
    pub(crate) fn whole(&self) -> PyResult<Rows<'_>> {
        let name = self.name;
        if !self.is_in_order() {
            return Err(PyValueError::new_err(format!(
                "the values of {name} do not lie in order; expected a contiguous array: numpy.ascontiguousarray({name})"
            )));
        }
        fn borrowed<T>(array: &Array) -> &[T] {
            // In order, so that nothing is copied.
            array.in_order(0..array.rows)
        }
        let (rows, cols) = (self.rows, self.cols);
        Ok(match self.kind {
            Kind::Float(Dtype::F16) => Rows::new(rows, cols, borrowed::<f16>(self)),
            Kind::Float(Dtype::Bf16) => Rows::new(rows, cols, borrowed::<bf16>(self)),
            Kind::Float(Dtype::F32) => Rows::new(rows, cols, borrowed::<f32>(self)),
            Kind::Float(Dtype::F64) => Rows::new(rows, cols, borrowed::<f64>(self)),
            Kind::Signed(_) | Kind::Unsigned(_) => {
                return Err(PyTypeError::new_err(format!("{name} has integers")));
            }
        })
    }

    /// Appends some of the rows as f64, which integers beyond 2^53 are rounded to.
    pub(crate) fn widen(&self, rows: Range<usize>, out: &mut Vec<f64>) {
        match self.kind {
            Kind::Float(Dtype::F16) => self.each(rows, |value: f16| out.push(value.to_f64())),
            Kind::Float(Dtype::Bf16) => self.each(rows, |value: bf16| out.push(value.to_f64())),
            Kind::Float(Dtype::F32) => self.each(rows, |value: f32| out.push(value.into())),
            Kind::Float(Dtype::F64) => self.each(rows, |value: f64| out.push(value)),
            Kind::Signed(8) => self.each(rows, |value: i64| out.push(value as f64)),
            Kind::Unsigned(8) => self.each(rows, |value: u64| out.push(value as f64)),
            _ => self.integers(rows, |value| out.push(value as f64)),
        }
    }

    /// Hands out the integers of some of the rows, those beyond i64 as its largest.
    ///
    /// # Panics
    /// If the array has no integers.
    pub(crate) fn integers(&self, rows: Range<usize>, mut take: impl FnMut(i64)) {
        match self.kind {
            Kind::Signed(1) => self.each(rows, |value: i8| take(value.into())),
            Kind::Signed(2) => self.each(rows, |value: i16| take(value.into())),
            Kind::Signed(4) => self.each(rows, |value: i32| take(value.into())),
            Kind::Signed(_) => self.each(rows, |value: i64| take(value)),
            Kind::Unsigned(1) => self.each(rows, |value: u8| take(value.into())),
            Kind::Unsigned(2) => self.each(rows, |value: u16| take(value.into())),
            Kind::Unsigned(4) => self.each(rows, |value: u32| take(value.into())),
            Kind::Unsigned(_) => self.each(rows, |value: u64| {
                take(i64::try_from(value).unwrap_or(i64::MAX));
            }),
            Kind::Float(_) => panic!("integers of a floating type"),
        }
    }

    fn values<'a, T: Copy>(&'a self, rows: Range<usize>, room: &'a mut Vec<T>) -> &'a [T] {
        if self.is_in_order() {
            return self.in_order(rows);
        }
        room.clear();
        self.each(rows, |value| room.push(value));
        room
    }

    /// The values of some of the rows, which lie in order.
    fn in_order<T>(&self, rows: Range<usize>) -> &[T] {
        assert!(rows.end <= self.rows && self.kind.size() == size_of::<T>() && self.is_in_order());
        let count = rows.len() * self.cols;
        if count == 0 {
            return &[];
        }
        // SAFETY: the exporter vouches for `rows × cols` values of this type from `data` on, which stay while `_owner` does; they
        // lie in order and aligned, and the range is within them.
        unsafe {
            let first = self.data.cast::<T>().add(rows.start * self.cols);
            std::slice::from_raw_parts(first, count)
        }
    }

    /// Hands out the values of some of the rows, wherever they lie.
    fn each<T: Copy>(&self, rows: Range<usize>, mut take: impl FnMut(T)) {
        assert!(rows.end <= self.rows && self.kind.size() == size_of::<T>());
        for i in rows {
            for j in 0..self.cols {
                let offset = i as isize * self.strides[0] + j as isize * self.strides[1];
                // SAFETY: the exporter vouches for a value of this size at every index within the extents, which stay while
                // `_owner` does.
                take(unsafe { self.data.offset(offset).cast::<T>().read_unaligned() });
            }
        }
    }
}

/// The structures of DLPack, as far as they are read.
mod dlpack {
    use super::c_void;

    #[derive(Clone, Copy)]
    #[repr(C)]
    pub(super) struct DataType {
        pub(super) code: u8,
        pub(super) bits: u8,
        pub(super) lanes: u16,
    }

    #[derive(Clone, Copy)]
    #[repr(C)]
    pub(super) struct Tensor {
        pub(super) data: *mut c_void,
        device: [i32; 2],
        pub(super) dimensions: i32,
        pub(super) dtype: DataType,
        pub(super) shape: *const i64,
        pub(super) strides: *const i64,
        pub(super) byte_offset: u64,
    }

    /// A tensor and what frees it, which is left to the destructor of its capsule.
    #[repr(C)]
    pub(super) struct Managed {
        pub(super) tensor: Tensor,
        context: *mut c_void,
        deleter: *mut c_void,
    }
}
