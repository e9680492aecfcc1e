//! The options of exact sums, which `muso gram` and `muso head` have in common.

use std::path::Path;

use clap::Args;
use muso::gram::exact::{ExactParams, GridChoice};

#[derive(Debug, Args)]
#[command(next_help_heading = "Exact sums")]
pub(super) struct ExactArgs {
    /// Sum in integers on a grid of so many bits (13, 20, 22, 27, 34 or 41), the same bytes everywhere [22 unless said]
    #[arg(long, value_name = "BITS", num_args = 0..=1)]
    exact: Option<Option<u32>>,
    /// The grid: a number that magnitudes stay below, or a file with one, such as other exact sums [default: recorded in a pass over the retained rows]
    #[arg(
        long,
        value_name = "FILE|RANGE",
        requires = "exact",
        allow_hyphen_values = true
    )]
    grid: Option<String>,
}

impl ExactArgs {
    /// Turns the arguments into the library's parameters.
    pub(super) fn params(&self) -> Option<ExactParams> {
        let mut params = ExactParams::bits(self.exact?);
        params.grid = self.choice();
        Some(params)
    }

    /// Returns the file that the grid is from.
    pub(super) fn file(&self) -> Option<&Path> {
        match self.choice() {
            GridChoice::File(_) => self.grid.as_deref().map(Path::new),
            _ => None,
        }
    }

    fn choice(&self) -> GridChoice {
        self.grid
            .as_deref()
            .map(GridChoice::parse)
            .unwrap_or_default()
    }
}
