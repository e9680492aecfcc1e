//! Exact sums on the device, and on the processor of the rows that the width of the grid does not hold.
//!
//! Rows stream through the double buffer of the engine as they do everywhere, are cut into digits there, and multiplied
//! when there are enough of them. Those with a value beyond the width come back by their numbers and are given to the
//! processor's sums, which have more digits, and refuse what no sum can take. Both are integers: which row went where does
//! not show.

use super::{Buffer, CudaEngine, Stored, with_stored};
use crate::engine::exact::{
    Digits, ExactAccumulator, ExactSpec, ExactSums, HEAD_ROOM, Seen, too_many,
};
use crate::engine::{CpuEngine, Engine, Matrix, Rows, Targets};
use crate::error::{Error, Result};
use crate::gpu::exact::{self, LeftOut, Plan};
use crate::gpu::gram::Labels;
use crate::gpu::{Staging, Stream, Technique};

/// Exact sums over rows that are on the device: on the device, but for those rows that it leaves out.
pub(crate) struct ExactOnDevice {
    spec: ExactSpec,
    rows: u64,
    class_rows: Vec<u64>,
    sums: exact::Accumulator,
    /// Sums over the rows beyond the width: those in progress, and those that were asked for before.
    running: Option<Box<dyn ExactAccumulator>>,
    beyond: Option<ExactSums>,
}

impl ExactOnDevice {
    pub(crate) fn new(stream: &Stream, staging: &Staging, spec: &ExactSpec) -> Result<Self> {
        spec.check()?;
        let technique = stream.context().exact_technique();
        Ok(Self {
            rows: 0,
            class_rows: ExactSums::none(spec).class_rows,
            sums: exact::Accumulator::new(stream, staging, technique, plan(spec))?,
            spec: spec.clone(),
            running: None,
            beyond: None,
        })
    }

    /// Adds so many rows. `push` has the device add them and returns those that it leaves out, by their numbers and with
    /// their values.
    ///
    /// # Errors
    /// [`Error::NotFinite`] and [`Error::OffGrid`] with the row within the batch, [`Error::Parameter`] for too many rows.
    pub(crate) fn push(
        &mut self,
        rows: usize,
        targets: Targets<'_>,
        push: impl FnOnce(&mut exact::Accumulator, exact::Targets<'_>) -> Result<(Vec<usize>, Matrix)>,
    ) -> Result<()> {
        let on_device = match targets {
            Targets::Classes(classes) => exact::Targets::Classes(classes),
            _ => exact::Targets::None,
        };
        too_many(self.rows, rows as u64)?;
        let (numbers, values) = push(&mut self.sums, on_device)?;
        self.rows += rows as u64;
        if let Targets::Classes(classes) = targets {
            for &class in classes {
                self.class_rows[class as usize] += 1;
            }
        }
        if numbers.is_empty() {
            return Ok(());
        }
        let running = match &mut self.running {
            Some(sums) => sums,
            none => none.insert(CpuEngine::ambient().exact(&self.spec)?),
        };
        let (y, classes): (Matrix, Vec<i64>);
        let targets = match targets {
            Targets::None => Targets::None,
            Targets::Classes(all) => {
                classes = numbers.iter().map(|&row| all[row]).collect();
                Targets::Classes(&classes)
            }
            Targets::Values(values) => {
                y = gathered(values, &numbers);
                Targets::Values(y.as_rows())
            }
        };
        running
            .push(values.as_rows(), targets)
            .map_err(|mut error| {
                if let Error::NotFinite { row, .. } | Error::OffGrid { row, .. } = &mut error {
                    *row = numbers[*row as usize] as u64;
                }
                error
            })
    }

    /// Returns the sums over all rows so far; more may follow.
    ///
    /// # Errors
    /// [`Error::Overflow`] where a sum leaves 128 bits.
    pub(crate) fn fetch(
        &mut self,
        stream: &Stream,
        staging: &Staging,
    ) -> Result<(ExactSums, Seen)> {
        if let Some(running) = self.running.take() {
            let (more, _) = running.finish()?;
            self.beyond = Some(match &self.beyond {
                Some(beyond) => beyond.add(&more)?,
                None => more,
            });
        }
        let found = self.sums.fetch(stream, staging)?;
        let mut sums = ExactSums {
            rows: self.rows,
            gram: found.gram,
            cross: found.cross,
            class_rows: self.class_rows.clone(),
            moved: found.moved,
            beyond: 0,
            setters: found.setters,
        };
        if let Some(beyond) = &self.beyond {
            // Everything else that is counted was counted on the device.
            let gram = sums.gram.iter_mut().zip(&beyond.gram);
            for (sum, more) in gram.chain(sums.cross.iter_mut().zip(&beyond.cross)) {
                *sum = sum.checked_add(*more).ok_or(Error::Overflow)?;
            }
            sums.beyond = beyond.beyond;
        }
        let largest_move = found.largest_move;
        Ok((sums, Seen { largest_move }))
    }
}

fn plan(spec: &ExactSpec) -> Plan {
    let digits = Digits::of_bytes(spec.grid.bits());
    let all = 0..digits.count;
    let pairs = all
        .clone()
        .flat_map(|a| all.clone().map(move |b| digits.weight(a + b)));
    Plan {
        features: spec.grid.features().to_vec(),
        bias: spec.sums.bias,
        targets: spec.sums.targets,
        values: spec.grid.targets().to_vec(),
        bits: digits.bits,
        digits: digits.count,
        of_planes: digits.planes().map(|p| digits.gram_weight(p)).collect(),
        of_pairs: pairs.collect(),
        setter: spec
            .setters
            .then(|| digits.bits - 1 - HEAD_ROOM.unsigned_abs()),
    }
}

fn gathered(rows: Rows<'_>, numbers: &[usize]) -> Matrix {
    let mut out = Matrix::zeros(numbers.len(), rows.cols());
    for (to, &from) in numbers.iter().enumerate() {
        rows.widen_row(from, out.row_mut(to));
    }
    out
}

/// Exact sums in progress over rows of the host's.
pub(super) struct Accumulator {
    engine: CudaEngine,
    sums: ExactOnDevice,
}

impl Accumulator {
    pub(super) fn new(engine: &CudaEngine, spec: &ExactSpec) -> Result<Self> {
        let inner = &engine.inner;
        Ok(Self {
            engine: engine.clone(),
            sums: ExactOnDevice::new(&inner.compute, &inner.staging, spec)?,
        })
    }
}

impl ExactAccumulator for Accumulator {
    fn way(&self) -> &'static str {
        match self.engine.context().exact_technique() {
            Technique::Mma => "int8 tensor cores",
            _ => "int8 units",
        }
    }

    fn push(&mut self, rows: Rows<'_>, targets: Targets<'_>) -> Result<()> {
        targets.check((rows.rows(), rows.cols()), &self.sums.spec.sums);
        let engine = &self.engine;
        let (compute, staging) = (&engine.inner.compute, &engine.inner.staging);
        self.sums.push(rows.rows(), targets, |sums, on_device| {
            let mut queued = 0;
            let launch = |buffer: &Buffer, count: usize| {
                let labels = buffer.labels.top(count);
                let targets = match (on_device, &labels) {
                    (exact::Targets::Classes(classes), _) => {
                        exact::Targets::Classes(&classes[queued..queued + count])
                    }
                    (_, Some(Labels::F64(values))) => exact::Targets::Values(*values),
                    _ => exact::Targets::None,
                };
                queued += count;
                with_stored!(&buffer.rows, matrix => {
                    sums.push(compute, staging, matrix.view().top(count), targets)
                })
            };
            let mut numbers = Vec::new();
            let collect = |first: usize, left_out: LeftOut| {
                let rows = left_out.fetch(compute, staging)?;
                numbers.extend(rows.into_iter().map(|row| first + row));
                Ok(())
            };
            // Classes stay on the host, where they are sorted.
            let streamed = match targets {
                Targets::Values(_) => targets,
                _ => Targets::None,
            };
            engine.stream_rows(rows, streamed, launch, collect)?;
            let values = gathered(rows, &numbers);
            Ok((numbers, values))
        })
    }

    fn finish(mut self: Box<Self>) -> Result<(ExactSums, Seen)> {
        let inner = &self.engine.inner;
        self.sums.fetch(&inner.compute, &inner.staging)
    }
}
