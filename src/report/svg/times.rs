//! Wall time: by phase as one stacked bar, and by lane over time.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::axis::{Axis, HUGE};
use super::{COLOURS, Canvas, Scale, fit_text, px, text_width};
use crate::report::format;

/// Shares of a whole as one stacked bar, for wall time by phase.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TimeBar {
    /// Accessible title of the bar, for those who cannot see it.
    pub title: String,
    /// Names and seconds, in order.
    pub parts: Vec<(String, f64)>,
}

/// Lanes over time: one line each, drawn where the lane was at work.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Timeline {
    /// Accessible title, for those who cannot see it.
    pub title: String,
    /// End of the axis in seconds.
    pub seconds: f64,
    /// Lanes from top to bottom.
    pub lanes: Vec<TimelineLane>,
}

/// A line of a [`Timeline`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TimelineLane {
    /// The name at its left.
    pub name: String,
    /// Percent of the time in which it was at work.
    pub share: f64,
    /// Number of items made.
    pub items: u64,
    /// Spans at work, from and to, in seconds.
    pub spans: Vec<(f64, f64)>,
    /// Drawn in the accent colour.
    pub emphasis: bool,
}

impl TimeBar {
    /// Returns the bar as one `<svg>` element.
    pub fn render(&self) -> Markup {
        const WIDTH: f64 = 520.0;
        const BAR: f64 = 26.0;
        let usable = |s: f64| {
            if s.is_finite() && s > 0.0 {
                s.min(HUGE)
            } else {
                0.0
            }
        };
        let total: f64 = self.parts.iter().map(|p| usable(p.1)).sum();
        let entries: Vec<(String, String)> = self
            .parts
            .iter()
            .map(|(name, s)| (fit_text(name, 180.0), format::seconds(*s)))
            .collect();
        // The names stand below the bar, where even a phase of a millisecond has room for one.
        let mut places = Vec::new();
        let (mut x, mut y) = (0.0, BAR + 24.0);
        for (name, time) in &entries {
            let width = 15.0 + text_width(name) + text_width(time) + 18.0;
            if x > 0.0 && x + width > WIDTH {
                (x, y) = (0.0, y + 19.0);
            }
            places.push((x, y));
            x += width;
        }
        let summary: Vec<String> = entries.iter().map(|(n, t)| format!("{n} {t}")).collect();
        let label = format!("{}: {}", self.title, summary.join(", "));
        let mut canvas = Canvas::new(WIDTH, y + 8.0, &label);

        let mut from = 0.0;
        for (i, (name, time)) in entries.iter().enumerate() {
            // The neutral colour last: next to each other, parts should differ in hue.
            let colour = [0, 2, 3, 4, 5, 1][i % COLOURS];
            let share = if total > 0.0 {
                usable(self.parts[i].1) / total
            } else {
                0.0
            };
            // Rounded down to the tenth that is written, so that the parts never add up to more than the bar.
            let width = (share * WIDTH * 10.0).floor() / 10.0;
            if width >= 0.1 {
                // A hairline between parts, unless it would be all there is.
                let shown = if width > 3.0 { width - 1.0 } else { width };
                let title = format!("{name}: {time}, {:.1} %", 100.0 * share);
                canvas.rect([from, 0.0, shown, BAR], &format!("f{colour}"), Some(&title));
                from += width;
            }
            let (x, y) = places[i];
            canvas.rect([x, y - 8.5, 9.0, 9.0], &format!("f{colour}"), None);
            // One text, so that the time follows the name whatever the font's real width is.
            canvas.add(html! {
                text x=(px(x + 15.0)) y=(px(y)) { tspan.strong { (name) } " " (time) }
            });
        }
        canvas.finish()
    }
}

impl TimelineLane {
    fn share(&self) -> String {
        match self.share.is_finite() {
            true if self.share < 9.95 => format!("{:.1} %", self.share),
            true => format!("{:.0} %", self.share),
            false => "–".to_owned(),
        }
    }
}

impl Timeline {
    /// Returns the chart as one `<svg>` element.
    pub fn render(&self) -> Markup {
        const WIDTH: f64 = 1000.0;
        const TOP: f64 = 22.0;
        const ROW: f64 = 30.0;
        const BAR: f64 = 16.0;
        /// The columns at the right end here.
        const BUSY: f64 = WIDTH - 76.0;
        const ITEMS: f64 = WIDTH - 4.0;
        let longest = self.lanes.iter().map(|lane| text_width(&lane.name));
        let left = longest.fold(40.0, f64::max).min(126.0) + 14.0;
        let right = BUSY - 52.0;
        let bottom = TOP + ROW * self.lanes.len().max(1) as f64;
        let mut canvas = Canvas::new(WIDTH, bottom + 24.0, &self.summary());
        canvas.text(BUSY, 11.0, "end", "small", "busy");
        canvas.text(ITEMS, 11.0, "end", "small", "items");
        let axis = Axis::fit(Scale::Linear, &[0.0, self.seconds], left, right);
        for (x, label) in axis.ticks(((right - left) / 80.0) as usize) {
            canvas.line(x, TOP - 4.0, x, bottom, "grid");
            let label = format!("{label} s");
            canvas.text(x, bottom + 16.0, "middle", "small", &label);
        }
        for (i, lane) in self.lanes.iter().enumerate() {
            let middle = TOP + ROW * (i as f64 + 0.5);
            let class = if lane.emphasis { "strong" } else { "name" };
            let name = fit_text(&lane.name, left - 10.0);
            canvas.text(0.0, middle + 4.0, "start", class, &name);
            canvas.line(left, middle, right, middle, "row");
            let share = lane.share();
            canvas.text(BUSY, middle + 4.0, "end", class, &share);
            let items = format::count(lane.items as usize);
            canvas.text(ITEMS, middle + 4.0, "end", class, &items);
            // One element a lane: there may be a thousand spans.
            let mut path = String::new();
            for &(from, to) in &lane.spans {
                let (Some(from), Some(to)) = (axis.at(from), axis.at(to)) else {
                    continue;
                };
                // What is there can be seen, and stays inside.
                let width = (to - from).max(0.8).min(right - from);
                if width > 0.0 {
                    let (y, width) = (px(middle - BAR / 2.0), px(width));
                    let _ = write!(path, "M{} {y}h{width}v{}h-{width}z", px(from), px(BAR));
                }
            }
            if !path.is_empty() {
                canvas.add(html! {
                    path d=(path) class={ "f" (usize::from(!lane.emphasis)) } {
                        title { (name) ": " (share) " busy" }
                    }
                });
            }
        }
        canvas.finish()
    }

    fn summary(&self) -> String {
        let lanes = self.lanes.iter();
        let parts: Vec<String> = lanes
            .map(|lane| format!("{} {} busy", lane.name, lane.share()))
            .collect();
        format!("{}: {}", self.title, parts.join(", "))
    }
}
