//! Tensors of burn's CUDA backend, as matrices for the kernels, without a copy.
//!
//! burn and this crate share the device's primary context, so a pointer of one is a pointer of the other. What remains is
//! order and lifetime:
//!
//! - **Before.** burn does not show the stream that a tensor is written on. [`Context::record_all`] marks all that the
//!   context has queued, on every stream, and our stream waits for that mark.
//! - **After.** A tensor that we read is held until our stream has passed ([`Held`]), so that burn cannot give its memory
//!   to another; burn's own work need not wait for ours. A tensor that we write is burn's again at once: with
//!   [`Context::wait_all`] everything that burn queues from then on waits for our mark.

use muso_models::burn::tensor::{DType, Tensor};
use muso_models::cuda::{Lent, lend};

use super::context::Context;
use super::matrix::{Feature, View, ViewMut};
use super::stream::{Event, Stream};
use crate::error::{Error, Result};
use crate::matrix::Dtype;

/// A tensor's matrix on the device.
#[derive(Debug)]
pub struct TensorMatrix {
    lent: Lent,
    dtype: Dtype,
}

impl TensorMatrix {
    /// Returns the matrix of a tensor that is on the device of `context`; `None` if it is elsewhere.
    ///
    /// # Errors
    /// If the tensor holds what no feature has, or burn's work that should have written it has failed.
    pub fn new(context: &Context, tensor: &Tensor<2>) -> Result<Option<Self>> {
        let found = lend(tensor).map_err(|why| Error::Driver {
            doing: "use a tensor of the network",
            why,
        })?;
        let Some(lent) = found.filter(|lent| lent.device == context.ordinal()) else {
            return Ok(None);
        };
        let dtype = match lent.dtype {
            DType::F16 => Dtype::F16,
            DType::BF16 => Dtype::Bf16,
            DType::F32 => Dtype::F32,
            DType::F64 => Dtype::F64,
            other => {
                return Err(Error::Shape {
                    what: "feature tensor".into(),
                    found: format!("values of {}", other.name()),
                    expected: "f16, bf16, f32 or f64 values".into(),
                });
            }
        };
        Ok(Some(Self { lent, dtype }))
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.lent.rows
    }

    /// Returns the number of columns.
    pub fn cols(&self) -> usize {
        self.lent.cols
    }

    /// Returns the storage type of the values.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Views the matrix, to read.
    ///
    /// # Panics
    /// If it holds values of another type.
    pub fn view<T: Feature>(&self) -> Result<View<'_, T>> {
        let (pointer, rows, cols, pitch) = self.place::<T>();
        // SAFETY: burn allocated this matrix for the tensor that `lent` holds, in the primary context; it stays so while
        // `self` lives, which the callers see to by a `Held`.
        unsafe { View::from_raw(pointer, rows, cols, pitch) }
    }

    /// Views the matrix, to write.
    ///
    /// # Panics
    /// As [`Self::view`].
    pub fn view_mut<T: Feature>(&mut self) -> Result<ViewMut<'_, T>> {
        let (pointer, rows, cols, pitch) = self.place::<T>();
        // SAFETY: as in `view`; and `&mut self` is the only handle on a tensor that its maker has just allocated.
        unsafe { ViewMut::from_raw(pointer, rows, cols, pitch) }
    }

    /// Returns pointer, rows, columns and pitch.
    fn place<T: Feature>(&self) -> (u64, usize, usize, usize) {
        assert_eq!(self.dtype, T::DTYPE, "a view of another type");
        let lent = &self.lent;
        (lent.pointer, lent.rows, lent.cols, lent.pitch)
    }

    /// Keeps the tensor for work on these streams, until [`Held::release`] and beyond.
    pub fn hold(self, streams: &[&Stream]) -> Held {
        Held {
            streams: streams.iter().map(|&stream| stream.clone()).collect(),
            done: Vec::new(),
            matrix: self,
        }
    }
}

/// A tensor that queued work reads. Dropping it waits for that work.
#[derive(Debug)]
pub struct Held {
    /// Streams on which work that reads the tensor may be queued.
    streams: Vec<Stream>,
    /// The ends of that work, once it is all queued.
    done: Vec<Event>,
    matrix: TensorMatrix,
}

impl Held {
    /// Returns the matrix behind the tensor.
    pub fn matrix(&self) -> &TensorMatrix {
        &self.matrix
    }

    /// Records that all work that reads the tensor has been queued.
    pub fn release(&mut self) -> Result<()> {
        for stream in &self.streams {
            let done = Event::new(stream.context())?;
            stream.record(&done)?;
            self.done.push(done);
        }
        self.streams.clear();
        Ok(())
    }

    /// Ends the hold early: everything that could give the memory to another tensor has been told to wait for the work.
    pub fn give_back(mut self) {
        self.streams.clear();
        self.done.clear();
    }

    /// Returns whether the work is done, and the tensor can go.
    pub fn is_done(&self) -> bool {
        self.streams.is_empty() && self.done.iter().all(Event::is_reached)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A kernel that failed is reported where its result is asked for.
        for event in &self.done {
            let _ = event.synchronize();
        }
        for stream in &self.streams {
            let _ = stream.synchronize();
        }
    }
}
