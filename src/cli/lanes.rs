//! `--trace` and `--ahead`: how the work of a run is spread over lanes, and where it is noted.

use std::path::PathBuf;

use clap::Args;
use muso::Error;
use muso::data::OutputFile;
use muso::scheduler::{Scheduler, Trace};

use super::Outputs;

/// How the work is spread.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Lanes")]
pub(super) struct LaneArgs {
    /// Write what ran when, for chrome://tracing or Perfetto
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Batches that each lane (reading, decoding, features, labels) may be ahead; 0 does one thing after the other
    #[arg(long, value_name = "N", default_value_t = 2)]
    ahead: usize,
}

/// The lanes of a run in progress.
pub(super) struct Lanes {
    scheduler: Scheduler,
    file: Option<OutputFile>,
}

impl LaneArgs {
    /// Opens the trace, and makes the scheduler.
    pub(super) fn open(&self, outputs: &mut Outputs) -> muso::Result<Lanes> {
        self.open_traced(outputs, false)
    }

    /// Opens the trace, and makes a scheduler that notes what ran when even where no file wants it.
    pub(super) fn open_traced(&self, outputs: &mut Outputs, traced: bool) -> muso::Result<Lanes> {
        const MOST: usize = 1024;
        if self.ahead > MOST {
            return Err(Error::Parameter {
                name: "--ahead",
                value: self.ahead.to_string(),
                expected: format!("0 to {MOST}"),
            });
        }
        let file = outputs.open("--trace", self.trace.as_deref())?;
        let trace = match file.is_some() || traced {
            true => Trace::on(),
            false => Trace::off(),
        };
        let scheduler = Scheduler::default()
            .with_depth(self.ahead)
            .with_trace(trace)
            .with_cancelled(super::progress::is_stopping);
        Ok(Lanes { scheduler, file })
    }
}

impl Lanes {
    pub(super) fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Writes the trace, which the caller commits with its other files, and says which lane bounds the run.
    pub(super) fn finish(self, order: &[&str]) -> muso::Result<Option<OutputFile>> {
        let Some(mut file) = self.file else {
            return Ok(None);
        };
        let trace = &self.scheduler.trace;
        file.put(trace.chrome().as_bytes())?;
        eprintln!("lanes: {}", trace.summary().in_order(order));
        Ok(Some(file))
    }
}
