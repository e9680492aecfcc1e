//! The CUDA engine: the contract of [`Engine`] kept by the kernels.
//!
//! Rows go to the device in chunks, through pinned staging buffers and on a stream of their own: while one chunk is
//! computed on, the next is being copied (double buffering, [`Feed`]). A chunk is a whole number of the row blocks that the kernels sum by, and a batch that ends within one
//! leaves its rows on the device for the next batch to complete. So results do not depend on how rows were cut, and
//! memory does not depend on how many there are.
//!
//! G, factors and everything else that later calls need stay on the device; what a caller asked for comes to the host.

mod exact;

use std::sync::Arc;

use half::{bf16, f16};
#[cfg(feature = "nn")]
use muso_models::burn::tensor::Tensor;

use super::exact::{ExactAccumulator, ExactSpec};
use super::{CpuEngine, Dtype, Engine, Matrix, Rows, Samples, Sums, SumsSpec, Targets};
use crate::error::{Error, Result};
use crate::gpu::gram::{Labels, ROW_BLOCK};
use crate::gpu::projection::Product;
use crate::gpu::trisolve::{INVERSE_COLS, Triangle, inverse_rows};
use crate::gpu::{
    ClassRows, Context, DeviceMatrix, Event, Feature, Staging, Stream, Technique, View, cholesky,
    gram, projection, trisolve,
};

#[cfg(feature = "nn")]
use crate::gpu::tensor::{Held, TensorMatrix};

#[cfg(feature = "capi")]
pub(crate) use exact::ExactOnDevice;

/// A chunk of rows takes about this many bytes: long enough to hide a copy behind a computation.
const CHUNK_BYTES: usize = 16 << 20;
/// Row blocks in a chunk, at most.
const CHUNK_BLOCKS: usize = 64;

/// Computes on an NVIDIA GPU. Clones share the device's streams.
#[derive(Clone, Debug)]
pub struct CudaEngine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Context,
    compute: Stream,
    copies: Stream,
    staging: Staging,
    technique: Technique,
}

impl CudaEngine {
    /// Creates an engine on an open device.
    pub fn new(context: &Context) -> Result<Self> {
        Ok(Self {
            inner: Arc::new(Inner {
                context: context.clone(),
                compute: Stream::new(context)?,
                copies: Stream::new(context)?,
                staging: Staging::new(context),
                technique: context.technique(),
            }),
        })
    }

    /// Returns the device that the engine runs on.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Runs rows through the device chunk by chunk: `launch` queues the work on a chunk, and what it returns is given to
    /// `collect`, with the number of the chunk's first row, when the next chunk is on its way.
    fn stream_rows<R>(
        &self,
        rows: Rows<'_>,
        targets: Targets<'_>,
        mut launch: impl FnMut(&Buffer, usize) -> Result<R>,
        mut collect: impl FnMut(usize, R) -> Result<()>,
    ) -> Result<()> {
        if rows.rows() == 0 || rows.cols() == 0 {
            return Ok(());
        }
        let mut feed = Feed::new(&self.inner, rows, targets, 0)?;
        let mut before = None;
        for first in (0..rows.rows()).step_by(feed.room()) {
            let end = rows.rows().min(first + feed.room());
            feed.append(rows.slice(first, end), targets.slice(first, end))?;
            if let Some((first, outcome)) = before.take() {
                collect(first, outcome)?;
            }
            before = Some((first, feed.hand_over(&mut launch)?));
        }
        before.map_or(Ok(()), |(first, outcome)| collect(first, outcome))
    }
}

impl Inner {
    /// A matrix of the host's, on the device.
    fn send(&self, matrix: &Matrix) -> Result<DeviceMatrix<f64>> {
        let mut sent = DeviceMatrix::uninit(&self.compute, matrix.rows(), matrix.cols())?;
        let fill = |i: usize, row: &mut [f64]| row.copy_from_slice(matrix.row(i));
        self.staging.upload(&self.compute, sent.view_mut(), fill)?;
        Ok(sent)
    }

    /// G += ZᵀZ and, where there are labels, ZᵀY.
    fn add<T: Feature>(
        &self,
        rows: View<'_, T>,
        bias: bool,
        labels: Option<Labels<'_>>,
        gram: &mut DeviceMatrix<f64>,
        cross: &mut DeviceMatrix<f64>,
    ) -> Result<()> {
        let Self {
            compute, technique, ..
        } = self;
        gram::update(compute, *technique, rows, bias, 1.0, gram.view_mut())?;
        match labels {
            None => Ok(()),
            Some(y) => gram::cross(compute, *technique, rows, bias, y, 1.0, cross.view_mut()),
        }
    }

    /// A matrix of the device's, on the host.
    fn fetch(&self, matrix: &DeviceMatrix<f64>) -> Result<Matrix> {
        let mut out = Matrix::zeros(matrix.rows(), matrix.cols());
        let take = |i: usize, row: &[f64]| out.row_mut(i).copy_from_slice(row);
        self.staging.download(&self.compute, matrix.view(), take)?;
        Ok(out)
    }
}

/// Rows on the device, as they were stored on the host.
#[derive(Debug)]
enum Stored {
    F16(DeviceMatrix<f16>),
    Bf16(DeviceMatrix<bf16>),
    F32(DeviceMatrix<f32>),
    F64(DeviceMatrix<f64>),
}

/// Evaluates an expression with the matrix, whatever it holds.
macro_rules! with_stored {
    ($stored:expr, $matrix:ident => $call:expr) => {
        match $stored {
            Stored::F16($matrix) => $call,
            Stored::Bf16($matrix) => $call,
            Stored::F32($matrix) => $call,
            Stored::F64($matrix) => $call,
        }
    };
}
use with_stored;

impl Stored {
    /// Room for `rows` rows of `cols` values.
    fn new(stream: &Stream, dtype: Dtype, rows: usize, cols: usize) -> Result<Self> {
        Ok(match dtype {
            Dtype::F16 => Self::F16(DeviceMatrix::uninit(stream, rows, cols)?),
            Dtype::Bf16 => Self::Bf16(DeviceMatrix::uninit(stream, rows, cols)?),
            Dtype::F32 => Self::F32(DeviceMatrix::uninit(stream, rows, cols)?),
            Dtype::F64 => Self::F64(DeviceMatrix::uninit(stream, rows, cols)?),
        })
    }

    fn capacity(&self) -> usize {
        with_stored!(self, matrix => matrix.rows())
    }

    /// Returns whether rows can be stored here as they are; f64 takes all.
    fn takes(&self, rows: Rows<'_>) -> bool {
        matches!(
            (self, rows.samples()),
            (Self::F16(_), Samples::F16(_))
                | (Self::Bf16(_), Samples::Bf16(_))
                | (Self::F32(_), Samples::F32(_))
                | (Self::F64(_), _)
        )
    }

    /// Queues a copy of rows to row `first` and those that follow.
    fn upload(
        &mut self,
        staging: &Staging,
        stream: &Stream,
        first: usize,
        rows: Rows<'_>,
    ) -> Result<()> {
        let shape = (rows.rows(), rows.cols());
        macro_rules! send {
            ($matrix:expr, $fill:expr) => {
                staging.upload(
                    stream,
                    $matrix.view_mut().into_block((first, 0), shape),
                    $fill,
                )
            };
        }
        match (self, rows.samples()) {
            (Self::F16(matrix), Samples::F16(v)) => {
                send!(matrix, |i, row| rows.copy_row(v, i, row))
            }
            (Self::Bf16(matrix), Samples::Bf16(v)) => {
                send!(matrix, |i, row| rows.copy_row(v, i, row))
            }
            (Self::F32(matrix), Samples::F32(v)) => {
                send!(matrix, |i, row| rows.copy_row(v, i, row))
            }
            (Self::F64(matrix), _) => send!(matrix, |i, row| rows.widen_row(i, row)),
            _ => unreachable!("rows of a kind that `takes` refuses"),
        }
    }
}

/// Targets of a chunk, in device memory.
#[derive(Debug)]
enum StoredLabels {
    None,
    /// Kept on the host until the chunk is complete, and then listed by class.
    Classes(Vec<i64>, ClassRows),
    Values(DeviceMatrix<f64>),
}

impl StoredLabels {
    /// Room for the targets of `rows` rows, of `classes` classes where they are classes.
    fn like(stream: &Stream, targets: Targets<'_>, rows: usize, classes: usize) -> Result<Self> {
        Ok(match targets {
            Targets::None => Self::None,
            Targets::Classes(_) => {
                Self::Classes(Vec::new(), ClassRows::uninit(stream, rows, classes)?)
            }
            Targets::Values(values) => {
                Self::Values(DeviceMatrix::uninit(stream, rows, values.cols())?)
            }
        })
    }

    /// Returns the targets of the first `count` rows; classes are those that were [listed](Self::list).
    fn top(&self, count: usize) -> Option<Labels<'_>> {
        match self {
            Self::None => None,
            Self::Classes(_, y) => Some(Labels::Classes(y)),
            Self::Values(y) => Some(Labels::F64(y.view().top(count))),
        }
    }

    fn upload(
        &mut self,
        staging: &Staging,
        stream: &Stream,
        first: usize,
        targets: Targets<'_>,
    ) -> Result<()> {
        match (self, targets) {
            (Self::None, Targets::None) => Ok(()),
            (Self::Classes(ids, _), Targets::Classes(classes)) => {
                ids.truncate(first);
                ids.extend_from_slice(classes);
                Ok(())
            }
            (Self::Values(matrix), Targets::Values(values)) => {
                let shape = (values.rows(), values.cols());
                let to = matrix.view_mut().into_block((first, 0), shape);
                staging.upload(stream, to, |i, row| values.widen_row(i, row))
            }
            _ => panic!("targets of another kind than before"),
        }
    }

    /// Queues what is to be known of all targets together: the rows of each class.
    fn list(&mut self, staging: &Staging, stream: &Stream) -> Result<()> {
        match self {
            Self::Classes(ids, rows) => rows.upload(staging, stream, ids),
            Self::None | Self::Values(_) => Ok(()),
        }
    }
}

/// A double buffer: one half is filled on the copying stream while the other is computed on.
#[derive(Debug)]
struct Feed {
    inner: Arc<Inner>,
    buffers: Vec<Buffer>,
    current: usize,
    /// Rows in the current buffer.
    pending: usize,
}

#[derive(Debug)]
struct Buffer {
    rows: Stored,
    labels: StoredLabels,
    /// The computation has done with what was in it.
    free: Event,
    /// The copies have arrived.
    filled: Event,
}

impl Feed {
    /// A feed for rows like those of `rows`, of which there may be many more.
    fn new(
        inner: &Arc<Inner>,
        rows: Rows<'_>,
        targets: Targets<'_>,
        classes: usize,
    ) -> Result<Self> {
        let shape = (rows.rows(), rows.cols());
        Self::with_room(inner, rows.dtype(), shape, targets, classes)
    }

    /// A feed for rows of `cols` values, of which `rows` come at a time, with targets of `classes` classes where they
    /// are classes.
    fn with_room(
        inner: &Arc<Inner>,
        dtype: Dtype,
        (rows, cols): (usize, usize),
        targets: Targets<'_>,
        classes: usize,
    ) -> Result<Self> {
        let row_bytes = cols.max(1) * dtype.size();
        let blocks = (CHUNK_BYTES / (row_bytes * ROW_BLOCK)).clamp(1, CHUNK_BLOCKS);
        let capacity = ROW_BLOCK * blocks.min(rows.div_ceil(ROW_BLOCK).max(1));
        let buffer = || -> Result<Buffer> {
            let buffer = Buffer {
                rows: Stored::new(&inner.compute, dtype, capacity, cols)?,
                labels: StoredLabels::like(&inner.compute, targets, capacity, classes)?,
                free: Event::new(&inner.context)?,
                filled: Event::new(&inner.context)?,
            };
            // The memory may have had another owner on the computing stream a moment ago.
            inner.compute.record(&buffer.free)?;
            Ok(buffer)
        };
        Ok(Self {
            inner: inner.clone(),
            buffers: vec![buffer()?, buffer()?],
            current: 0,
            pending: 0,
        })
    }

    /// Rows that the current buffer can still take.
    fn room(&self) -> usize {
        self.buffers[self.current].rows.capacity() - self.pending
    }

    /// Queues the copy of at most [`Self::room`] rows.
    fn append(&mut self, rows: Rows<'_>, targets: Targets<'_>) -> Result<()> {
        if !self.buffers[self.current].rows.takes(rows) {
            self.widen()?;
        }
        let Inner {
            copies, staging, ..
        } = &*self.inner;
        let buffer = &mut self.buffers[self.current];
        if self.pending == 0 {
            copies.wait(&buffer.free)?;
        }
        buffer.rows.upload(staging, copies, self.pending, rows)?;
        buffer
            .labels
            .upload(staging, copies, self.pending, targets)?;
        self.pending += rows.rows();
        Ok(())
    }

    /// Has the rows computed on, `launch` given them and how many they are, and turns to the other buffer.
    fn hand_over<R>(&mut self, launch: impl FnOnce(&Buffer, usize) -> Result<R>) -> Result<R> {
        let Inner {
            compute,
            copies,
            staging,
            ..
        } = &*self.inner;
        let buffer = &mut self.buffers[self.current];
        buffer.labels.list(staging, copies)?;
        compute.follow(copies, &buffer.filled)?;
        let outcome = launch(buffer, self.pending)?;
        compute.record(&buffer.free)?;
        self.current = (self.current + 1) % self.buffers.len();
        self.pending = 0;
        Ok(outcome)
    }

    /// Turns to f64 for good, since rows of another kind have come; products of widened rows have the same bytes.
    fn widen(&mut self) -> Result<()> {
        let Inner {
            compute,
            copies,
            staging,
            ..
        } = &*self.inner;
        let pending = self.pending;
        for (index, buffer) in self.buffers.iter_mut().enumerate() {
            compute.follow(copies, &buffer.filled)?;
            let (capacity, cols) = with_stored!(&buffer.rows, m => (m.rows(), m.cols()));
            let mut wide = DeviceMatrix::<f64>::uninit(compute, capacity, cols)?;
            if index == self.current && pending > 0 {
                let mut kept = Matrix::zeros(pending, cols);
                with_stored!(&buffer.rows, matrix => {
                    staging.download(compute, matrix.view().top(pending), |i, row| {
                        Rows::new(1, cols, row).widen_row(0, kept.row_mut(i));
                    })?;
                });
                let to = wide.view_mut().into_block((0, 0), (pending, cols));
                staging.upload(compute, to, |i, row| row.copy_from_slice(kept.row(i)))?;
            }
            buffer.rows = Stored::F64(wide);
            compute.record(&buffer.free)?;
            copies.wait(&buffer.free)?;
        }
        Ok(())
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        // The buffers go back to the pool of the computing stream: copies that are still on their way must not arrive
        // in the memory of their next owner.
        let Inner {
            compute, copies, ..
        } = &*self.inner;
        let _ = compute.follow(copies, &self.buffers[self.current].filled);
    }
}

/// Sums in progress on the device.
#[derive(Debug)]
pub struct Accumulator {
    spec: SumsSpec,
    rows: u64,
    /// G on the device; only the lower triangle counts.
    gram: DeviceMatrix<f64>,
    cross: DeviceMatrix<f64>,
    /// Made when the first rows have come.
    feed: Option<Feed>,
    /// Tensors that queued work still reads.
    #[cfg(feature = "nn")]
    held: Vec<Held>,
}

impl Accumulator {
    /// Adds the rows that the feed holds.
    fn fold(&mut self, inner: &Inner) -> Result<()> {
        let Some(feed) = self.feed.as_mut().filter(|feed| feed.pending > 0) else {
            return Ok(());
        };
        let bias = self.spec.bias;
        let (gram, cross) = (&mut self.gram, &mut self.cross);
        feed.hand_over(|buffer, count| {
            with_stored!(&buffer.rows, matrix => {
                inner.add(matrix.view().top(count), bias, buffer.labels.top(count), gram, cross)
            })
        })
    }
}

/// Evaluates an expression with a typed view of a tensor's matrix.
#[cfg(feature = "nn")]
macro_rules! with_tensor {
    ($matrix:expr, $view:ident => $call:expr) => {
        match $matrix.dtype() {
            Dtype::F16 => $matrix.view::<f16>().and_then(|$view| $call),
            Dtype::Bf16 => $matrix.view::<bf16>().and_then(|$view| $call),
            Dtype::F32 => $matrix.view::<f32>().and_then(|$view| $call),
            Dtype::F64 => $matrix.view::<f64>().and_then(|$view| $call),
        }
    };
}

#[cfg(feature = "nn")]
impl Feed {
    /// Queues the copy of rows of a tensor, `count` from `first` on and at most [`Self::room`], within the device.
    fn append_tensor(
        &mut self,
        matrix: &TensorMatrix,
        (first, count): (usize, usize),
        targets: Targets<'_>,
    ) -> Result<()> {
        let Inner {
            copies, staging, ..
        } = &*self.inner;
        let (buffer, pending) = (&mut self.buffers[self.current], self.pending);
        if pending == 0 {
            copies.wait(&buffer.free)?;
        }
        let shape = (count, matrix.cols());
        macro_rules! copy {
            ($to:expr, $kind:ty) => {
                $to.view_mut()
                    .into_block((pending, 0), shape)
                    .copy_from(copies, matrix.view::<$kind>()?.block((first, 0), shape))
            };
        }
        match (&mut buffer.rows, matrix.dtype()) {
            (Stored::F16(to), Dtype::F16) => copy!(to, f16)?,
            (Stored::Bf16(to), Dtype::Bf16) => copy!(to, bf16)?,
            (Stored::F32(to), Dtype::F32) => copy!(to, f32)?,
            (Stored::F64(to), Dtype::F64) => copy!(to, f64)?,
            _ => unreachable!("the caller has seen that they are of one type"),
        }
        buffer.labels.upload(staging, copies, pending, targets)?;
        self.pending += count;
        Ok(())
    }

    fn stores(&self, dtype: Dtype) -> bool {
        let stored = match self.buffers[self.current].rows {
            Stored::F16(_) => Dtype::F16,
            Stored::Bf16(_) => Dtype::Bf16,
            Stored::F32(_) => Dtype::F32,
            Stored::F64(_) => Dtype::F64,
        };
        stored == dtype
    }
}

#[cfg(feature = "nn")]
impl CudaEngine {
    /// A tensor on this device, with our streams behind everything that was queued when this is called.
    fn tensor(&self, tensor: &Tensor<2>) -> Result<Option<TensorMatrix>> {
        let Inner {
            context,
            compute,
            copies,
            ..
        } = &*self.inner;
        let Some(matrix) = TensorMatrix::new(context, tensor)? else {
            return Ok(None);
        };
        let queued = Event::new(context)?;
        context.record_all(&queued)?;
        compute.wait(&queued)?;
        copies.wait(&queued)?;
        Ok(Some(matrix))
    }

    /// Adds the rows of a tensor on this device.
    fn accumulate_matrix(
        &self,
        sums: &mut Accumulator,
        matrix: TensorMatrix,
        targets: Targets<'_>,
    ) -> Result<()> {
        let Inner {
            compute,
            copies,
            staging,
            ..
        } = &*self.inner;
        let mut held = matrix.hold(&[compute, copies]);
        let matrix = held.matrix();
        let (rows, cols) = (matrix.rows(), matrix.cols());
        let mut done = 0;
        while done < rows {
            let pending = sums.feed.as_ref().map_or(0, |feed| feed.pending);
            let whole = match targets {
                // Sums of few classes keep a row of sums for each class and row block.
                Targets::Classes(_) => (rows - done).min(CHUNK_BLOCKS * ROW_BLOCK),
                Targets::None | Targets::Values(_) => rows - done,
            };
            let whole = whole / ROW_BLOCK * ROW_BLOCK;
            if pending == 0 && whole > 0 {
                // Whole blocks where they are.
                let targets = targets.slice(done, done + whole);
                let mut labels = StoredLabels::like(compute, targets, whole, sums.spec.targets)?;
                labels.upload(staging, compute, 0, targets)?;
                labels.list(staging, compute)?;
                let (bias, gram, cross) = (sums.spec.bias, &mut sums.gram, &mut sums.cross);
                with_tensor!(matrix, z => {
                    let block = z.block((done, 0), (whole, cols));
                    self.inner.add(block, bias, labels.top(whole), gram, cross)
                })?;
                done += whole;
                continue;
            }
            let feed = match &mut sums.feed {
                Some(feed) => feed,
                none => none.insert(Feed::with_room(
                    &self.inner,
                    matrix.dtype(),
                    (rows, cols),
                    targets,
                    sums.spec.targets,
                )?),
            };
            let count = (rows - done).min(feed.room());
            feed.append_tensor(matrix, (done, count), targets.slice(done, done + count))?;
            if feed.room() == 0 {
                sums.fold(&self.inner)?;
            }
            done += count;
        }
        sums.rows += rows as u64;
        held.release()?;
        sums.held.retain(|held| !held.is_done());
        sums.held.push(held);
        Ok(())
    }
}

/// A Cholesky factor on the device.
#[derive(Debug)]
pub struct Factor {
    lower: DeviceMatrix<f64>,
    inverses: DeviceMatrix<f64>,
    pivots: (f64, f64),
}

impl Factor {
    fn triangle(&self) -> Result<Triangle<'_>> {
        Triangle::new(self.lower.view(), self.inverses.view())
    }
}

impl Engine for CudaEngine {
    type Accumulator = Accumulator;
    type Factor = Factor;

    fn describe(&self) -> String {
        self.context().describe()
    }

    fn accumulator(&self, spec: SumsSpec) -> Result<Accumulator> {
        if spec.features == 0 {
            return Err(Error::Shape {
                what: "feature rows".into(),
                found: "no columns".into(),
                expected: "at least one on this device".into(),
            });
        }
        let stream = &self.inner.compute;
        Ok(Accumulator {
            spec,
            rows: 0,
            gram: DeviceMatrix::zeros(stream, spec.order(), spec.order())?,
            cross: DeviceMatrix::zeros(stream, spec.order(), spec.targets)?,
            feed: None,
            #[cfg(feature = "nn")]
            held: Vec::new(),
        })
    }

    fn accumulate(
        &self,
        sums: &mut Accumulator,
        rows: Rows<'_>,
        targets: Targets<'_>,
    ) -> Result<()> {
        targets.check((rows.rows(), rows.cols()), &sums.spec);
        let mut done = 0;
        while done < rows.rows() {
            let feed = match &mut sums.feed {
                Some(feed) => feed,
                none => none.insert(Feed::new(&self.inner, rows, targets, sums.spec.targets)?),
            };
            let end = rows.rows().min(done + feed.room());
            feed.append(rows.slice(done, end), targets.slice(done, end))?;
            if feed.room() == 0 {
                sums.fold(&self.inner)?;
            }
            done = end;
        }
        sums.rows += rows.rows() as u64;
        Ok(())
    }

    fn finish(&self, mut sums: Accumulator) -> Result<Sums> {
        sums.fold(&self.inner)?;
        gram::mirror(&self.inner.compute, sums.gram.view_mut())?;
        Ok(Sums {
            rows: sums.rows,
            gram: self.inner.fetch(&sums.gram)?,
            cross: self.inner.fetch(&sums.cross)?,
        })
    }

    fn exact(&self, spec: &ExactSpec) -> Result<Box<dyn ExactAccumulator>> {
        match spec.sums.features {
            // Nothing to compute on.
            0 => CpuEngine::ambient().exact(spec),
            _ => Ok(Box::new(exact::Accumulator::new(self, spec)?)),
        }
    }

    fn roundings(&self, rows: u64) -> f64 {
        super::blocked_roundings(rows, ROW_BLOCK)
    }

    fn kernel_matrix(&self, left: Rows<'_>, right: Rows<'_>, bias: bool) -> Result<Matrix> {
        assert_eq!(left.cols(), right.cols(), "kernel of rows of unlike width");
        // Rows of one kind on both sides; widening changes no byte of the result.
        let alike = left.dtype() == right.dtype();
        let widened = (!alike).then(|| (left.to_matrix(), right.to_matrix()));
        let (left, right) = match &widened {
            Some((left, right)) => (left.as_rows(), right.as_rows()),
            None => (left, right),
        };
        let Inner {
            compute,
            staging,
            technique,
            ..
        } = &*self.inner;
        let mut columns = Stored::new(compute, right.dtype(), right.rows(), right.cols())?;
        columns.upload(staging, compute, 0, right)?;
        let launch = |buffer: &Buffer, count: usize| {
            let mut product = DeviceMatrix::uninit(compute, count, right.rows())?;
            macro_rules! multiply {
                ($left:expr, $right:expr) => {
                    projection::kernel_matrix(
                        compute,
                        *technique,
                        $left.view().top(count),
                        $right.view(),
                        bias,
                        product.view_mut(),
                    )?
                };
            }
            match (&buffer.rows, &columns) {
                (Stored::F16(left), Stored::F16(right)) => multiply!(left, right),
                (Stored::Bf16(left), Stored::Bf16(right)) => multiply!(left, right),
                (Stored::F32(left), Stored::F32(right)) => multiply!(left, right),
                (Stored::F64(left), Stored::F64(right)) => multiply!(left, right),
                _ => unreachable!("both sides were made alike"),
            }
            Ok(product)
        };
        let mut out = Matrix::zeros(left.rows(), right.rows());
        self.stream_rows(left, Targets::None, launch, |first, product| {
            let take = |i: usize, row: &[f64]| out.row_mut(first + i).copy_from_slice(row);
            staging.download(compute, product.view(), take)
        })?;
        Ok(out)
    }

    fn project(&self, rows: Rows<'_>, weights: &Matrix) -> Result<Matrix> {
        super::weights_have_bias(rows, weights)?;
        let Inner {
            compute,
            staging,
            technique,
            ..
        } = &*self.inner;
        let weights = self.inner.send(weights)?;
        let launch = |buffer: &Buffer, count: usize| {
            let mut product = DeviceMatrix::uninit(compute, count, weights.cols())?;
            with_stored!(&buffer.rows, matrix => {
                let whole = Product::of(matrix.view().top(count), weights.view());
                projection::logits(compute, *technique, whole, product.view_mut())?;
            });
            Ok(product)
        };
        let mut out = Matrix::zeros(rows.rows(), weights.cols());
        self.stream_rows(rows, Targets::None, launch, |first, product| {
            let take = |i: usize, row: &[f64]| out.row_mut(first + i).copy_from_slice(row);
            staging.download(compute, product.view(), take)
        })?;
        Ok(out)
    }

    fn project_argmax(&self, rows: Rows<'_>, weights: &Matrix) -> Result<Vec<u32>> {
        super::weights_have_bias(rows, weights)?;
        let mut out = vec![0; rows.rows()];
        if weights.cols() == 0 {
            return Ok(out);
        }
        let Inner {
            compute,
            staging,
            technique,
            ..
        } = &*self.inner;
        let weights = self.inner.send(weights)?;
        let launch = |buffer: &Buffer, count: usize| {
            let mut classes = DeviceMatrix::uninit(compute, 1, count)?;
            with_stored!(&buffer.rows, matrix => {
                let whole = Product::of(matrix.view().top(count), weights.view());
                projection::argmax(compute, *technique, whole, classes.view_mut())?;
            });
            Ok(classes)
        };
        self.stream_rows(rows, Targets::None, launch, |first, classes| {
            let take = |_, found: &[u32]| out[first..first + found.len()].copy_from_slice(found);
            staging.download(compute, classes.view(), take)
        })?;
        Ok(out)
    }

    fn pull_back(&self, rows: Rows<'_>, coefficients: &Matrix, bias: bool) -> Result<Matrix> {
        assert_eq!(
            rows.rows(),
            coefficients.rows(),
            "one row of coefficients a feature row"
        );
        let Inner {
            compute, technique, ..
        } = &*self.inner;
        let order = rows.cols() + usize::from(bias);
        let mut out = DeviceMatrix::zeros(compute, order, coefficients.cols())?;
        let launch = |buffer: &Buffer, count: usize| {
            with_stored!(&buffer.rows, matrix => {
                let (rows, labels) = (matrix.view().top(count), buffer.labels.top(count));
                let labels = labels.expect("coefficients were sent along");
                gram::cross(compute, *technique, rows, bias, labels, 1.0, out.view_mut())
            })
        };
        let values = Targets::Values(coefficients.as_rows());
        self.stream_rows(rows, values, launch, |_, ()| Ok(()))?;
        self.inner.fetch(&out)
    }

    fn factor(&self, matrix: &Matrix, ridge: f64) -> Result<Factor> {
        assert_eq!(matrix.rows(), matrix.cols(), "factor of a square matrix");
        let Inner {
            compute,
            staging,
            technique,
            ..
        } = &*self.inner;
        let n = matrix.rows();
        let mut lower = self.inner.send(matrix)?;
        let status = cholesky::factor(compute, *technique, lower.view_mut(), ridge)?;
        status.wait(compute, staging)?;
        let mut inverses = DeviceMatrix::uninit(compute, inverse_rows(n), INVERSE_COLS)?;
        trisolve::invert(compute, lower.view(), inverses.view_mut())?;
        let mut pivots = (f64::INFINITY, 0.0);
        if n > 0 {
            let mut found = DeviceMatrix::uninit(compute, 1, 2)?;
            cholesky::pivots(compute, lower.view(), found.view_mut())?;
            staging.download(compute, found.view(), |_, row| pivots = (row[0], row[1]))?;
        }
        Ok(Factor {
            lower,
            inverses,
            pivots,
        })
    }

    fn pivots(&self, factor: &Factor) -> (f64, f64) {
        factor.pivots
    }

    fn solve(&self, factor: &Factor, rhs: &Matrix) -> Result<Matrix> {
        assert_eq!(
            rhs.rows(),
            factor.lower.rows(),
            "right-hand side of other height"
        );
        let mut x = self.inner.send(rhs)?;
        let Inner {
            compute, technique, ..
        } = &*self.inner;
        factor
            .triangle()?
            .solve(compute, *technique, x.view_mut())?;
        self.inner.fetch(&x)
    }

    fn inverse_diagonal(&self, factor: &Factor) -> Result<Vec<f64>> {
        let Inner {
            compute, technique, ..
        } = &*self.inner;
        let mut diagonal = DeviceMatrix::uninit(compute, 1, factor.lower.rows())?;
        factor
            .triangle()?
            .inverse_diagonal(compute, *technique, diagonal.view_mut())?;
        Ok(self.inner.fetch(&diagonal)?.as_slice().to_vec())
    }

    #[cfg(feature = "nn")]
    fn accumulate_tensor(
        &self,
        sums: &mut Accumulator,
        rows: &Tensor<2>,
        targets: Targets<'_>,
    ) -> Result<()> {
        let [count, cols] = rows.dims();
        targets.check((count, cols), &sums.spec);
        match self.tensor(rows)? {
            Some(matrix) if sums.feed.as_ref().is_none_or(|f| f.stores(matrix.dtype())) => {
                self.accumulate_matrix(sums, matrix, targets)
            }
            _ => super::with_rows(rows, |rows| self.accumulate(sums, rows, targets)),
        }
    }

    #[cfg(feature = "nn")]
    fn project_tensor(&self, rows: &Tensor<2>, weights: &Matrix) -> Result<Tensor<2>> {
        let product = Tensor::<2>::empty([rows.dims()[0], weights.cols()], &rows.device());
        let (Some(mut out), Some(matrix)) = (self.tensor(&product)?, self.tensor(rows)?) else {
            let product = super::with_rows(rows, |rows| self.project(rows, weights))?;
            return Ok(super::to_tensor(&product, &rows.device()));
        };
        let Inner {
            compute, technique, ..
        } = &*self.inner;
        let weights = self.inner.send(weights)?;
        let held = matrix.hold(&[compute]);
        with_tensor!(held.matrix(), z => {
            let whole = Product::of(z, weights.view());
            projection::logits_f32(compute, *technique, whole, out.view_mut()?)
        })?;
        // From here on the product is burn's to use, and the rows are burn's to give away.
        let written = Event::new(self.context())?;
        compute.record(&written)?;
        self.context().wait_all(&written)?;
        held.give_back();
        Ok(product)
    }
}
