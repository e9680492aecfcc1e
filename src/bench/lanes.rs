//! What overlapping is worth: features and sums of many images, in lanes and one thing after the other.
//!
//! The images are the embedded digits, again and again, either as they are in memory or as PNG files that have to be read
//! and decoded; the network is the small one with the weights of a seed. Both ways take turns, and both must end in the
//! same bytes. On the processor a pass cannot take less than its processor time shared by all cores, so the cores that
//! are in use one thing after the other bound what lanes can gain.

use std::time::Instant;

use muso::data::Digits;
use muso::data::images::{ClassNames, ImageSet, Kind, Normalisation, open};
use muso::data::mnist::{PIXEL_MEAN, PIXEL_STD};
use muso::engine::{Engine, Sums, SumsSpec, Targets};
use muso::features::{Feed, Images};
use muso::gram::{Gram, GramBuilder, Route};
use muso::pipeline::networks::Workplace;
use muso::progress::{Progress, check};
use muso::scheduler::{Scheduler, Summary, Trace};
use muso::system;
use muso::{Error, Result};
use muso_models::{Architecture, NetworkConfig};
use serde::Serialize;

use super::temporary::Temporary;
use super::{Spread, at_least};

/// Images of a pass when not told.
pub(crate) const ROWS: usize = 50_000;

/// Storage of the images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kept {
    /// Bytes in memory: there is nothing to decode.
    Packed,
    /// PNG files in a temporary folder.
    Png,
}

/// Times of passes in lanes and one thing after the other.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LanesReport {
    kind: &'static str,
    /// Storage of the images.
    pub(crate) images: Kept,
    /// Device that computed the pass.
    pub(crate) device: String,
    /// Images of one pass.
    pub(crate) rows: usize,
    /// Seconds of each pass, one thing after the other.
    pub(crate) in_place: Vec<f64>,
    /// Seconds of each pass in lanes.
    pub(crate) in_lanes: Vec<f64>,
    /// Median over the pairs of lanes over in place.
    pub(crate) ratio: f64,
    /// Cores that were in use one thing after the other, on average; none where the system does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cores_in_use: Option<f64>,
    /// Set if every pass gave the same bytes.
    pub(crate) same_bytes: bool,
    /// The lanes of the last pass.
    pub(crate) lanes: Summary,
}

impl LanesReport {
    /// Formats the report for a terminal.
    pub(crate) fn text(&self) -> String {
        let median = |times: &[f64]| Spread::of(times).median;
        let cores = self
            .cores_in_use
            .map_or_else(String::new, |cores| format!(", {cores:.2} cores in use"));
        format!(
            "{}; {} images {}, the small network, features and sums\n\
             one after the other  {:.3} s{cores}\n\
             in lanes             {:.3} s, {:.3} of that (median of {} pairs)\n\
             same bytes           {}\n\
             lanes                {}\n",
            self.device,
            self.rows,
            match self.images {
                Kept::Packed => "in memory",
                Kept::Png => "as PNG files",
            },
            median(&self.in_place),
            median(&self.in_lanes),
            self.ratio,
            self.in_place.len(),
            if self.same_bytes { "yes" } else { "NO" },
            self.lanes,
        )
    }
}

/// Formats reports as JSON.
pub(crate) fn to_json(reports: &[LanesReport]) -> String {
    serde_json::to_string_pretty(reports).unwrap_or_default() + "\n"
}

/// The embedded digits as bytes, 784 an image, and their classes.
fn pixels() -> Result<(Vec<u8>, Vec<i64>)> {
    let digits = Digits::parse(muso_digits::TRAIN, muso_digits::TEST)?;
    let byte = |x: &f64| ((x * PIXEL_STD + PIXEL_MEAN) * 255.0).round() as u8;
    let matrices = [&digits.train_images, &digits.test_images];
    let pixels = matrices.iter().flat_map(|m| m.as_slice()).map(byte);
    let labels = digits.train_labels.iter().chain(&digits.test_labels);
    let classes = labels.map(|&digit| i64::from(digit == 7));
    Ok((pixels.collect(), classes.collect()))
}

/// The digits as a data set, and the folder that it is in.
fn images(kept: Kept) -> Result<(ImageSet, Normalisation, Option<Temporary>)> {
    let (pixels, classes) = pixels()?;
    if kept == Kept::Packed {
        let names = ClassNames::new(["three", "seven"]);
        let normalisation = Normalisation {
            mean: vec![PIXEL_MEAN],
            std: vec![PIXEL_STD],
        };
        let set = ImageSet::new([1, 28, 28], pixels, classes, names)?;
        return Ok((set, normalisation, None));
    }
    let folder = Temporary::new(None)?;
    let root = folder.path();
    for (i, (image, class)) in pixels.chunks_exact(784).zip(&classes).enumerate() {
        let part = if i % 100 == 0 { "test" } else { "train" };
        let place = root.join(part).join(["three", "seven"][*class as usize]);
        std::fs::create_dir_all(&place).map_err(|e| Error::io(&place, "create", e))?;
        let file = place.join(format!("{i}.png"));
        let image = image::GrayImage::from_raw(28, 28, image.to_vec());
        let saved = image.map(|image| image.save(&file));
        if let Some(Err(error)) = saved {
            return Err(Error::io(&file, "write", std::io::Error::other(error)));
        }
    }
    let data = open(Kind::Folder, Some(root))?;
    Ok((data.train, data.normalisation, Some(folder)))
}

/// Measures `rows` images a pass, in `pairs` pairs of passes.
pub(crate) fn run(
    place: &Workplace,
    kept: Kept,
    rows: usize,
    pairs: usize,
    progress: &mut dyn Progress,
) -> Result<LanesReport> {
    at_least("`.rows`", rows, 1)?;
    at_least("`.pairs`", pairs, 1)?;
    let (set, normalisation, _folder) = images(kept)?;
    let order: Vec<usize> = (0..set.len()).cycle().take(rows).collect();
    let network = NetworkConfig::new(Architecture::SmallCnn, 2, set.shape());
    let width = network.features();
    let network = network.init(0, &place.device)?;
    let mut feed = Feed {
        data: Images { set, normalisation },
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
    let mut cores = Vec::new();
    let mut trace = Trace::off();
    for pair in 0..pairs {
        check(progress, "measuring", pair as u64, pairs as u64)?;
        feed.scheduler = place.scheduler.clone().with_depth(0);
        let before = system::processor_time();
        let (seconds, first) = once(&feed)?;
        in_place.push(seconds);
        let after = system::processor_time();
        cores.extend(
            before
                .zip(after)
                .map(|(before, after)| (after - before) / seconds),
        );
        trace = Trace::on();
        feed.scheduler = place.scheduler.clone().with_trace(trace.clone());
        let (seconds, second) = once(&feed)?;
        in_lanes.push(seconds);
        same_bytes &= first == expected && second == expected;
    }
    let ratios = in_lanes.iter().zip(&in_place).map(|(a, b)| a / b);
    Ok(LanesReport {
        kind: "lanes",
        device: place.engine.describe(),
        rows,
        ratio: Spread::of(&ratios.collect::<Vec<_>>()).median,
        images: kept,
        cores_in_use: (!cores.is_empty()).then(|| Spread::of(&cores).median),
        in_place,
        in_lanes,
        same_bytes,
        lanes: trace.summary(),
    })
}
