//! What overlapping is worth: features and sums of many images, in lanes and one thing after the other.
//!
//! The images are the embedded digits, again and again; the network is the small one with the weights of a seed. Both
//! ways take turns, and both must end in the same bytes.

use std::time::Instant;

use muso_models::{Architecture, NetworkConfig};
use serde::Serialize;

use crate::data::digits;
use crate::data::images::{ClassNames, ImageSet, Normalisation};
use crate::data::mnist::{PIXEL_MEAN, PIXEL_STD};
use crate::engine::{Engine, Sums, SumsSpec, Targets};
use crate::error::{Error, Result};
use crate::features::Feed;
use crate::gram::{Gram, GramBuilder, Route};
use crate::pipeline::networks::Workplace;
use crate::progress::{Progress, check};
use crate::scheduler::{Scheduler, Summary, Trace};

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct LanesReport {
    kind: &'static str,
    /// Where.
    pub device: String,
    /// Images of one pass.
    pub rows: usize,
    /// Seconds of each pass, one thing after the other.
    pub in_place: Vec<f64>,
    /// Seconds of each pass in lanes.
    pub in_lanes: Vec<f64>,
    /// Median over the pairs of lanes over in place.
    pub ratio: f64,
    /// Whether every pass gave the same bytes.
    pub same_bytes: bool,
    /// The lanes of the last pass.
    pub lanes: Summary,
}

impl LanesReport {
    /// For a terminal.
    pub fn text(&self) -> String {
        let median = |times: &[f64]| middle(times.to_vec());
        format!(
            "{}; {} images, the small network, features and sums\n\
             one after the other  {:.3} s\n\
             in lanes             {:.3} s, {:.3} of that (median of {} pairs)\n\
             same bytes           {}\n\
             lanes                {}\n",
            self.device,
            self.rows,
            median(&self.in_place),
            median(&self.in_lanes),
            self.ratio,
            self.in_place.len(),
            if self.same_bytes { "yes" } else { "NO" },
            self.lanes,
        )
    }

    /// For programs.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The embedded digits as images.
fn images() -> Result<ImageSet> {
    let digits = digits()?;
    let byte = |x: &f64| ((x * PIXEL_STD + PIXEL_MEAN) * 255.0).round() as u8;
    let matrices = [&digits.train_images, &digits.test_images];
    let pixels = matrices.iter().flat_map(|m| m.as_slice()).map(byte);
    let labels = digits.train_labels.iter().chain(&digits.test_labels);
    ImageSet::new(
        [1, 28, 28],
        pixels.collect(),
        labels.map(|&digit| i64::from(digit == 7)).collect(),
        ClassNames::new(["three", "seven"]),
    )
}

/// Measures `rows` images a pass, in `pairs` pairs of passes.
pub fn run(
    place: &Workplace,
    rows: usize,
    pairs: usize,
    progress: &mut dyn Progress,
) -> Result<LanesReport> {
    let set = images()?;
    let order: Vec<usize> = (0..set.len()).cycle().take(rows).collect();
    let network = NetworkConfig::new(Architecture::SmallCnn, 2, [1, 28, 28]);
    let width = network.features();
    let network = network.init(0, &place.device)?;
    let mut feed = Feed {
        set,
        normalisation: Normalisation {
            mean: vec![PIXEL_MEAN],
            std: vec![PIXEL_STD],
        },
        device: place.device.clone(),
        scheduler: Scheduler::in_place(),
    };
    let spec = SumsSpec {
        features: width,
        bias: true,
        targets: 2,
    };
    let once = |feed: &Feed| -> Result<(f64, Sums)> {
        let clock = Instant::now();
        let mut gram = GramBuilder::new(&place.engine, Route::Primal, spec)?;
        for (number, passed) in (0..).zip(feed.pass(&network, &order, None)?) {
            let passed = passed?;
            let _span = feed.scheduler.trace.span("gram", number);
            gram.update(&passed.features, Targets::Classes(&passed.labels))?;
        }
        let Gram::Primal(sums) = gram.finish()? else {
            unreachable!("the primal route was asked for");
        };
        Ok((clock.elapsed().as_secs_f64(), sums))
    };
    let (_, expected) = once(&feed)?;
    let (mut in_place, mut in_lanes, mut same_bytes) = (Vec::new(), Vec::new(), true);
    let mut trace = Trace::off();
    for pair in 0..pairs {
        check(progress, "measuring", pair as u64, pairs as u64)?;
        feed.scheduler = place.scheduler.clone().with_depth(0);
        let (seconds, first) = once(&feed)?;
        in_place.push(seconds);
        trace = Trace::on();
        feed.scheduler = place.scheduler.clone().with_trace(trace.clone());
        let (seconds, second) = once(&feed)?;
        in_lanes.push(seconds);
        same_bytes &= first == expected && second == expected;
    }
    if in_lanes.is_empty() {
        return Err(Error::Parameter {
            name: "--pairs",
            value: "0".into(),
            expected: "at least 1".into(),
        });
    }
    let ratios = in_lanes.iter().zip(&in_place).map(|(a, b)| a / b);
    Ok(LanesReport {
        kind: "lanes",
        device: place.engine.describe(),
        rows,
        ratio: middle(ratios.collect()),
        in_place,
        in_lanes,
        same_bytes,
        lanes: trace.summary(),
    })
}
