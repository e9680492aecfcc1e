//! The optimal labels of the forgotten rows, Z_u W, kept in memory or streamed to a file.

use super::input::Input;
use crate::data::rows::{Choice, Which};
use crate::data::{OutputFile, RowsWriter, rounded};
use crate::engine::{Dtype, Engine, Matrix};
use crate::error::Result;
use crate::progress::Progress;
use crate::scheduler::Scheduler;

/// Optimal labels: targets for the forgotten rows in place of their own, so that further training ends at the new head.
#[derive(Clone, Debug, PartialEq)]
pub struct OptimalLabels {
    /// The numbers of the forgotten rows, ascending.
    pub rows: Vec<u64>,
    /// N_u×C, a row for each of them.
    pub targets: Matrix,
}

impl Default for OptimalLabels {
    /// Returns the labels of no rows.
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            targets: Matrix::zeros(0, 0),
        }
    }
}

/// Destination of the optimal labels.
#[derive(Debug)]
#[non_exhaustive]
pub enum LabelSink<'o> {
    /// Nowhere: they are not computed.
    Nowhere,
    /// Keeps the labels in memory.
    Memory(&'o mut OptimalLabels),
    /// Into a file: `rows`, N_u, and `targets`, N_u×C.
    File(&'o mut OutputFile),
}

impl LabelSink<'_> {
    /// Returns whether labels are computed at all.
    pub fn is_wanted(&self) -> bool {
        !matches!(self, Self::Nowhere)
    }
}

/// Makes a pass over the forgotten rows.
pub(super) fn write<E: Engine>(
    engine: &E,
    input: &Input<'_>,
    weights: &Matrix,
    dtype: Dtype,
    sink: LabelSink<'_>,
    scheduler: &Scheduler,
    progress: &mut dyn Progress,
) -> Result<()> {
    let rows = input.rows()?;
    let each = |progress: &mut dyn Progress, take: &mut dyn FnMut(&Matrix) -> Result<()>| {
        rows.stream(scheduler, "labels", Which::Forgotten, progress, |batch| {
            let gone = rows.forgotten_in(batch);
            take(&engine.project(batch.rows.pick(&gone), weights)?)
        })
    };
    match sink {
        LabelSink::Nowhere => Ok(()),
        LabelSink::Memory(out) => {
            out.rows.clear();
            rows.each_forgotten(progress, |row| {
                out.rows.push(row);
                Ok(())
            })?;
            let mut values = Vec::new();
            each(progress, &mut |labels| {
                values.extend_from_slice(rounded("targets", labels, dtype)?.as_slice());
                Ok(())
            })?;
            out.targets = Matrix::from_vec(out.rows.len(), input.classes(), values);
            Ok(())
        }
        LabelSink::File(file) => {
            let writer = RowsWriter {
                rows: rows.forgotten() as usize,
                cols: input.classes(),
                dtype,
            };
            file.put(&writer.header())?;
            if let Choice::Rows(_) | Choice::Classes(_) = rows.choice() {
                const CHUNK: usize = 1 << 16;
                let mut numbers = Vec::with_capacity(CHUNK);
                rows.each_forgotten(progress, |row| {
                    numbers.push(row as i64);
                    if numbers.len() == CHUNK {
                        file.put(&writer.row_numbers(&numbers))?;
                        numbers.clear();
                    }
                    Ok(())
                })?;
                file.put(&writer.row_numbers(&numbers))?;
            }
            each(progress, &mut |labels| file.put(&writer.values(labels)?))
        }
    }
}
