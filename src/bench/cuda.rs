//! The kernels, timed by events on a stream, with everything in device memory.
//!
//! At the smallest shape each result is first compared with the plain kernel's: the time of a wrong answer is worth
//! nothing.

use half::{bf16, f16};
use muso::engine::Matrix;
use muso::gpu::gram::Labels;
use muso::gpu::projection::Product;
use muso::gpu::trisolve::{INVERSE_COLS, Triangle, inverse_rows};
use muso::gpu::{
    ClassRows, Context, DeviceMatrix, Event, Feature, Staging, Stream, Technique, Value, View,
    cholesky, gram, projection, rff, trisolve,
};
use muso::progress::{Progress, check};
use muso::{Error, Result};

use super::{BenchReport, Limit, Measurement, Operation, Work};

/// Rows, features and columns of the measurements.
struct Sizes {
    rows: usize,
    orders: &'static [usize],
    classes: usize,
    /// Runs that the median is taken of.
    runs: usize,
}

/// Long enough that launching costs next to nothing.
const REAL: Sizes = Sizes {
    rows: 32_768,
    orders: &[256, 1024, 4096],
    classes: 100,
    runs: 7,
};
/// Sizes that a virtual GPU gets through in seconds; its times do not vary.
const VIRTUAL: Sizes = Sizes {
    rows: 2048,
    orders: &[64, 256],
    classes: 10,
    runs: 1,
};

const RIDGE: f64 = 1.0;
/// Relative distance of a kernel with f64 sums from its plain twin.
const CLOSE: f64 = 1e-12;
/// Relative distance of a kernel with f32 sums of 512 rows from its plain twin.
const NEAR: f64 = 1e-4;

/// Measures operations on a device.
pub(crate) fn run(
    context: &Context,
    operations: &[Operation],
    progress: &mut dyn Progress,
) -> Result<BenchReport> {
    if let Some(&other) = operations
        .iter()
        .find(|operation| !Operation::DEVICE.contains(operation))
    {
        return Err(not_here(other));
    }
    let mut bench = Bench::new(context)?;
    let orders = bench.sizes.orders;
    let total = (operations.len() * orders.len()) as u64;
    let mut done = 0;
    for operation in operations {
        for &order in orders {
            check(progress, "measuring", done, total)?;
            match operation {
                Operation::Gram => bench.gram(order)?,
                Operation::Cholesky => bench.cholesky(order)?,
                Operation::Projection => bench.projection(order)?,
                Operation::Update => bench.update(order)?,
                other => return Err(not_here(*other)),
            }
            done += 1;
        }
    }
    Ok(BenchReport {
        device: context.describe(),
        is_virtual: context.driver().is_virtual(),
        measurements: bench.measurements,
        ..BenchReport::default()
    })
}

fn not_here(operation: Operation) -> Error {
    let all: Vec<&str> = Operation::DEVICE.into_iter().map(Operation::name).collect();
    Error::Parameter {
        name: "OPERATION",
        value: operation.name().into(),
        expected: format!("one of {} on a GPU", all.join(", ")),
    }
}

/// A kernel, or several in a row, at one size, and what it cannot do without.
struct Kernel {
    name: String,
    shape: String,
    technique: Technique,
    flops: f64,
    bytes: f64,
}

struct Bench {
    context: Context,
    stream: Stream,
    staging: Staging,
    start: Event,
    stop: Event,
    sizes: &'static Sizes,
    measurements: Vec<Measurement>,
}

/// Returns the bytes of a matrix of `values` f64.
fn doubles(values: usize) -> f64 {
    (values * size_of::<f64>()) as f64
}

/// A value in −1..1 that is the same for the same index and seed.
fn value(index: usize, seed: u64) -> f64 {
    let mut x = (index as u64 ^ seed << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ x >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (x >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

impl Bench {
    fn new(context: &Context) -> Result<Self> {
        Ok(Self {
            context: context.clone(),
            stream: Stream::new(context)?,
            staging: Staging::new(context),
            start: Event::timed(context)?,
            stop: Event::timed(context)?,
            sizes: if context.driver().is_virtual() {
                &VIRTUAL
            } else {
                &REAL
            },
            measurements: Vec::new(),
        })
    }

    /// Techniques with f64 sums that the device has.
    fn techniques(&self) -> Vec<Technique> {
        match self.context.properties().capability {
            (8.., _) => vec![Technique::Fma, Technique::Dmma],
            _ => vec![Technique::Fma],
        }
    }

    /// Fills a device matrix with numbers that are the same each time.
    fn filled<T: Value>(
        &self,
        (rows, cols): (usize, usize),
        seed: u64,
        narrow: fn(f64) -> T,
    ) -> Result<DeviceMatrix<T>> {
        let mut matrix = DeviceMatrix::uninit(&self.stream, rows, cols)?;
        self.staging
            .upload(&self.stream, matrix.view_mut(), |i, row| {
                for (j, out) in row.iter_mut().enumerate() {
                    *out = narrow(value(i * cols + j, seed));
                }
            })?;
        Ok(matrix)
    }

    fn fetch(&self, matrix: View<'_, f64>) -> Result<Matrix> {
        let mut out = Matrix::zeros(matrix.rows(), matrix.cols());
        let take = |i: usize, row: &[f64]| out.row_mut(i).copy_from_slice(row);
        self.staging.download(&self.stream, matrix, take)?;
        Ok(out)
    }

    /// Refuses to time a kernel whose result is not that of its twin.
    fn compare(
        &self,
        operation: &Kernel,
        found: View<'_, f64>,
        wanted: View<'_, f64>,
    ) -> Result<()> {
        let (found, wanted) = (self.fetch(found)?, self.fetch(wanted)?);
        let error = found.zip(&wanted, |a, b| a - b).norm() / wanted.norm();
        let allowed = if operation.technique == Technique::Mma {
            NEAR
        } else {
            CLOSE
        };
        // Written so that NaN fails too.
        if error <= allowed {
            return Ok(());
        }
        Err(Error::Kernel {
            kernel: operation.name.clone(),
            shape: operation.shape.clone(),
            geometry: self.context.describe(),
            why: format!("its result is off by {error:e}; expected at most {allowed:e}"),
        })
    }

    /// Times `run`, which `prepare` is called before each time; the median of several.
    fn time(
        &mut self,
        operation: Kernel,
        mut prepare: impl FnMut() -> Result<()>,
        mut run: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        // Once for loading and compiling.
        prepare()?;
        run()?;
        let mut seconds = Vec::new();
        for _ in 0..self.sizes.runs {
            prepare()?;
            self.stream.record(&self.start)?;
            run()?;
            self.stream.record(&self.stop)?;
            self.stream.synchronize()?;
            seconds.push(self.stop.seconds_since(&self.start)?);
        }
        let properties = self.context.properties();
        let limit = Limit {
            flops: properties.peak(operation.technique),
            bytes: properties.bandwidth,
        };
        let rounds: Vec<(f64, Limit)> = seconds.into_iter().map(|s| (s, limit)).collect();
        let work = Work {
            flops: operation.flops,
            bytes: operation.bytes,
        };
        let Kernel { name, shape, .. } = operation;
        let measured = Measurement::new(name, shape, work, &rounds);
        self.measurements.push(measured);
        Ok(())
    }

    fn gram(&mut self, order: usize) -> Result<()> {
        for technique in self.techniques() {
            self.syrk(order, technique, |x| x as f32)?;
            self.syrk(order, technique, |x| x)?;
        }
        let half = match self.context.properties().capability {
            (8.., _) => Technique::Mma,
            _ => Technique::Fma,
        };
        self.syrk(order, half, f16::from_f64)?;
        self.syrk(order, half, bf16::from_f64)?;
        self.cross(order)
    }

    fn syrk<T: Feature>(
        &mut self,
        order: usize,
        technique: Technique,
        narrow: fn(f64) -> T,
    ) -> Result<()> {
        let rows = self.sizes.rows;
        let stream = self.stream.clone();
        let z = self.filled((rows, order), 1, narrow)?;
        let mut sums = DeviceMatrix::<f64>::zeros(&stream, order, order)?;
        let half = order * (order + 1) / 2;
        let operation = Kernel {
            name: format!("gram {} {}", T::NAME, technique.name()),
            shape: format!("{rows}x{order}"),
            technique,
            flops: 2.0 * (rows * half) as f64,
            bytes: (rows * order * size_of::<T>()) as f64 + 2.0 * doubles(half),
        };
        if order == self.sizes.orders[0] {
            let mut twin = DeviceMatrix::zeros(&stream, order, order)?;
            gram::update(&stream, technique, z.view(), false, 1.0, sums.view_mut())?;
            gram::update(
                &stream,
                Technique::Plain,
                z.view(),
                false,
                1.0,
                twin.view_mut(),
            )?;
            self.compare(&operation, sums.view(), twin.view())?;
        }
        self.time(
            operation,
            || Ok(()),
            || gram::update(&stream, technique, z.view(), false, 1.0, sums.view_mut()),
        )
    }

    fn cross(&mut self, order: usize) -> Result<()> {
        let Sizes { rows, classes, .. } = *self.sizes;
        let stream = self.stream.clone();
        let z = self.filled((rows, order), 1, |x| x as f32)?;
        let ids: Vec<_> = (0..rows).map(|i| (i % classes) as i64).collect();
        let mut y = ClassRows::uninit(&stream, rows, classes)?;
        y.upload(&self.staging, &stream, &ids)?;
        let mut sums = DeviceMatrix::<f64>::zeros(&stream, order, classes)?;
        let operation = Kernel {
            name: "cross f32 classes segmented".into(),
            shape: format!("{rows}x{order}, {classes} classes"),
            technique: Technique::Fma,
            flops: (rows * order) as f64,
            bytes: (rows * order * size_of::<f32>() + rows * size_of::<u32>()) as f64
                + 2.0 * doubles(order * classes),
        };
        let add = |technique, to: &mut DeviceMatrix<f64>| {
            gram::cross(
                &stream,
                technique,
                z.view(),
                false,
                Labels::Classes(&y),
                1.0,
                to.view_mut(),
            )
        };
        if order == self.sizes.orders[0] {
            let mut twin = DeviceMatrix::zeros(&stream, order, classes)?;
            add(Technique::Fma, &mut sums)?;
            add(Technique::Plain, &mut twin)?;
            self.compare(&operation, sums.view(), twin.view())?;
        }
        self.time(operation, || Ok(()), || add(Technique::Fma, &mut sums))
    }

    /// A well-conditioned matrix: the Gram matrix of twice as many rows.
    fn positive(&self, order: usize) -> Result<DeviceMatrix<f64>> {
        let z = self.filled((2 * order, order), 2, |x| x as f32)?;
        let mut matrix = DeviceMatrix::zeros(&self.stream, order, order)?;
        let technique = self.context.technique();
        gram::update(
            &self.stream,
            technique,
            z.view(),
            false,
            1.0,
            matrix.view_mut(),
        )?;
        gram::mirror(&self.stream, matrix.view_mut())?;
        Ok(matrix)
    }

    fn cholesky(&mut self, order: usize) -> Result<()> {
        let stream = self.stream.clone();
        let matrix = self.positive(order)?;
        let host = self.fetch(matrix.view())?;
        let classes = self.sizes.classes;
        for technique in self.techniques() {
            let lower = std::cell::RefCell::new(DeviceMatrix::uninit(&stream, order, order)?);
            let staging = Staging::new(&self.context);
            let reset = || {
                let fill = |i: usize, row: &mut [f64]| row.copy_from_slice(host.row(i));
                staging.upload(&stream, lower.borrow_mut().view_mut(), fill)
            };
            let factor = |technique| -> Result<()> {
                let mut lower = lower.borrow_mut();
                cholesky::factor(&stream, technique, lower.view_mut(), RIDGE).map(drop)
            };
            let operation = Kernel {
                name: format!("factor f64 {}", technique.name()),
                shape: format!("{order}x{order}"),
                technique,
                flops: (order as f64).powi(3) / 3.0,
                bytes: 2.0 * doubles(order * (order + 1) / 2),
            };
            if order == self.sizes.orders[0] {
                reset()?;
                factor(Technique::Plain)?;
                let twin = self.fetch(lower.borrow().view())?;
                reset()?;
                factor(technique)?;
                let mut wanted = DeviceMatrix::uninit(&stream, order, order)?;
                let fill = |i: usize, row: &mut [f64]| row.copy_from_slice(twin.row(i));
                self.staging.upload(&stream, wanted.view_mut(), fill)?;
                self.compare(&operation, lower.borrow().view(), wanted.view())?;
            }
            self.time(operation, reset, || factor(technique))?;

            let lower = lower.into_inner();
            let mut inverses = DeviceMatrix::uninit(&stream, inverse_rows(order), INVERSE_COLS)?;
            trisolve::invert(&stream, lower.view(), inverses.view_mut())?;
            let triangle = Triangle::new(lower.view(), inverses.view())?;
            let mut x = self.filled((order, classes), 3, |x| x)?;
            let operation = Kernel {
                name: format!("solve f64 {}", technique.name()),
                shape: format!("{order}x{order}, {classes} columns"),
                technique,
                flops: 2.0 * (order * order * classes) as f64,
                bytes: doubles(order * (order + 1) + 2 * order * classes),
            };
            self.time(
                operation,
                || Ok(()),
                || triangle.solve(&stream, technique, x.view_mut()),
            )?;
        }
        Ok(())
    }

    fn projection(&mut self, order: usize) -> Result<()> {
        let Sizes { rows, classes, .. } = *self.sizes;
        let stream = self.stream.clone();
        let z = self.filled((rows, order), 1, |x| x as f32)?;
        let weights = self.filled((order, classes), 2, |x| x)?;
        let product = || Product::of(z.view(), weights.view());
        let read = (rows * order * size_of::<f32>()) as f64 + doubles(order * classes);
        let flops = 2.0 * (rows * order * classes) as f64;
        let mut logits = DeviceMatrix::uninit(&stream, rows, classes)?;
        let operation = Kernel {
            name: "logits f32 fma".into(),
            shape: format!("{rows}x{order}, {classes} classes"),
            technique: Technique::Fma,
            flops,
            bytes: read + doubles(rows * classes),
        };
        if order == self.sizes.orders[0] {
            let mut twin = DeviceMatrix::uninit(&stream, rows, classes)?;
            projection::logits(&stream, Technique::Fma, product(), logits.view_mut())?;
            projection::logits(&stream, Technique::Plain, product(), twin.view_mut())?;
            self.compare(&operation, logits.view(), twin.view())?;
        }
        self.time(
            operation,
            || Ok(()),
            || projection::logits(&stream, Technique::Fma, product(), logits.view_mut()),
        )?;
        let mut found = DeviceMatrix::uninit(&stream, 1, rows)?;
        let operation = Kernel {
            name: "argmax f32 fma".into(),
            shape: format!("{rows}x{order}, {classes} classes"),
            technique: Technique::Fma,
            flops,
            bytes: read + (rows * 4) as f64,
        };
        self.time(
            operation,
            || Ok(()),
            || projection::argmax(&stream, Technique::Fma, product(), found.view_mut()),
        )?;
        for technique in self.techniques() {
            self.kernel_matrix(&z, technique)?;
            self.features(order, technique)?;
        }
        Ok(())
    }

    fn kernel_matrix(&mut self, z: &DeviceMatrix<f32>, technique: Technique) -> Result<()> {
        let stream = self.stream.clone();
        let (side, order) = ((self.sizes.rows / 4).min(z.rows()), z.cols());
        let mut out = DeviceMatrix::uninit(&stream, side, side)?;
        let (left, right) = (z.view().top(side), z.view().top(side));
        let operation = Kernel {
            name: format!("kernel matrix f32 {}", technique.name()),
            shape: format!("{side}x{side}, {order} features"),
            technique,
            flops: 2.0 * (side * side * order) as f64,
            bytes: (2 * side * order * size_of::<f32>()) as f64 + doubles(side * side),
        };
        if order == self.sizes.orders[0] {
            let mut twin = DeviceMatrix::uninit(&stream, side, side)?;
            projection::kernel_matrix(&stream, technique, left, right, false, out.view_mut())?;
            projection::kernel_matrix(
                &stream,
                Technique::Plain,
                left,
                right,
                false,
                twin.view_mut(),
            )?;
            self.compare(&operation, out.view(), twin.view())?;
        }
        self.time(
            operation,
            || Ok(()),
            || projection::kernel_matrix(&stream, technique, left, right, false, out.view_mut()),
        )
    }

    /// Random features of rows that are eight times shorter than what comes out.
    fn features(&mut self, order: usize, technique: Technique) -> Result<()> {
        let stream = self.stream.clone();
        let (rows, count, inputs) = (self.sizes.rows, order / 2, (order / 8).max(1));
        let x = self.filled((rows, inputs), 5, |x| x as f32)?;
        let frequencies = self.filled((inputs, count), 6, |x| x)?;
        let mut out = DeviceMatrix::<f64>::uninit(&stream, rows, 2 * count)?;
        let operation = Kernel {
            name: format!("random features {}", technique.name()),
            shape: format!("{rows}x{inputs}, {count} frequencies"),
            technique,
            flops: 2.0 * (rows * inputs * count) as f64,
            bytes: (rows * inputs * size_of::<f32>()) as f64
                + doubles(inputs * count + 2 * rows * count),
        };
        let make = |technique, to: &mut DeviceMatrix<f64>| {
            rff::features(
                &stream,
                technique,
                x.view(),
                frequencies.view(),
                to.view_mut(),
            )
        };
        if order == self.sizes.orders[0] {
            let mut twin = DeviceMatrix::uninit(&stream, rows, 2 * count)?;
            make(technique, &mut out)?;
            make(Technique::Plain, &mut twin)?;
            self.compare(&operation, out.view(), twin.view())?;
        }
        self.time(operation, || Ok(()), || make(technique, &mut out))
    }

    /// Sums, factor, solve and projection, one after the other.
    fn update(&mut self, order: usize) -> Result<()> {
        let Sizes { rows, classes, .. } = *self.sizes;
        let (stream, technique) = (self.stream.clone(), self.context.technique());
        let z = self.filled((rows, order), 1, |x| x as f32)?;
        let y = self.filled((rows, classes), 2, |x| x)?;
        let mut sums = DeviceMatrix::<f64>::zeros(&stream, order, order)?;
        let mut weights = DeviceMatrix::<f64>::zeros(&stream, order, classes)?;
        let mut inverses = DeviceMatrix::uninit(&stream, inverse_rows(order), INVERSE_COLS)?;
        let mut out = DeviceMatrix::uninit(&stream, rows, classes)?;
        let half = order * (order + 1) / 2;
        let products = rows * half + 2 * rows * order * classes + order * order * classes;
        let operation = Kernel {
            name: format!("label update f32 {}", technique.name()),
            shape: format!("{rows}x{order}, {classes} classes"),
            technique,
            flops: 2.0 * products as f64 + (order as f64).powi(3) / 3.0,
            bytes: (2 * rows * order * size_of::<f32>()) as f64 + doubles(2 * rows * classes),
        };
        self.time(
            operation,
            || Ok(()),
            || {
                sums.view_mut().clear(&stream)?;
                weights.view_mut().clear(&stream)?;
                gram::update(&stream, technique, z.view(), false, 1.0, sums.view_mut())?;
                let labels = Labels::F64(y.view());
                gram::cross(
                    &stream,
                    technique,
                    z.view(),
                    false,
                    labels,
                    1.0,
                    weights.view_mut(),
                )?;
                let status = cholesky::factor(&stream, technique, sums.view_mut(), RIDGE)?;
                trisolve::invert(&stream, sums.view(), inverses.view_mut())?;
                Triangle::new(sums.view(), inverses.view())?.solve(
                    &stream,
                    technique,
                    weights.view_mut(),
                )?;
                drop(status);
                projection::logits(
                    &stream,
                    technique,
                    Product::of(z.view(), weights.view()),
                    out.view_mut(),
                )
            },
        )
    }
}
