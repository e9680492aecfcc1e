//! Where a run on one model happens, as it was typed: lanes, trace, device, and the page about it.
//!
//! `muso train`, `unlearn` and `evaluate` do their work inside [`RunArgs::run`].

use std::path::PathBuf;

use clap::Args;
use muso::data::OutputFile;
use muso::engine::Engine;
use muso::outcome::RunNotes;
use muso::pipeline::networks::{LANES, Workplace};

use super::lanes::LaneArgs;
use super::{Common, Outputs, command_line, device};

/// How the work of one model is spread, and the page about it.
#[derive(Clone, Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    lanes: LaneArgs,
    /// Write a page with the outcome, the settings and a picture of what ran when
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl RunArgs {
    /// Does `work` where it was asked for, in the pool that lanes and engine share, and writes the trace. With the outcome
    /// come the page to write and what to say in it.
    pub(super) fn run<R: Send>(
        &self,
        common: &Common,
        outputs: &mut Outputs,
        work: impl FnOnce(&Workplace) -> muso::Result<R> + Send,
    ) -> anyhow::Result<(R, Option<OutputFile>, RunNotes)> {
        let page = outputs.open("--report", self.report.as_deref())?;
        let lanes = self.lanes.open_traced(outputs, page.is_some())?;
        let scheduler = lanes.scheduler().clone();
        let place = Workplace::new(device::engine(common)?, scheduler)?;
        let done = rayon::scope(|_| work(&place))?;
        let notes = RunNotes {
            command: command_line(),
            machine: place.engine.describe(),
            lanes: place.scheduler.trace.summary().in_order(&LANES),
        };
        if let Some(file) = lanes.finish(&LANES)? {
            file.commit()?;
        }
        Ok((done, page, notes))
    }
}
