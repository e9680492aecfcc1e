//! Small charts as inline SVG, written by hand.
//!
//! Four kinds cover the reports: [`DotChart`] (methods against one metric, ours and the paper's, as dots or as bars),
//! [`LineChart`] (the path of an iterative method, the outline of a histogram), [`TimeBar`] (wall time by phase) and
//! [`Timeline`] (what ran when, on which lane). Each renders to one `<svg>` element
//! whose classes are styled by [`CSS`]; that uses the page's CSS variables, so dark mode and print need no second
//! drawing. Marks carry a `<title>` with the number they stand for.
//!
//! Whatever the numbers are (zero, denormal, not finite, none at all), every coordinate written is finite and
//! inside the view box: what has no place on an axis is left out or set at its edge.
//!
//! ```
//! use muso::report::Stat;
//! use muso::report::svg::{Dot, DotChart, Scale};
//!
//! let chart = DotChart {
//!     title: "full-class".into(),
//!     scale: Scale::Log,
//!     dots: vec![Dot {
//!         label: "MUSO".into(),
//!         ours: Some(Stat::exact(1e-14)),
//!         paper: Some(Stat::exact(1e-4)),
//!         emphasis: true,
//!     }],
//!     ..Default::default()
//! };
//! let svg = chart.render();
//! assert!(svg.starts_with("<svg") && svg.contains("1.0×10⁻¹⁴"));
//! ```

use std::fmt::Write as _;

use super::format::{self, Notation};
use super::table::Stat;

/// The style sheet of the charts; a page includes it once. The variables have light-mode defaults, so a chart also
/// reads on a page that sets none of them.
pub const CSS: &str = "\
.chart{display:block;width:100%;height:auto;font:11px/1 var(--sans,system-ui,sans-serif);\
font-variant-numeric:tabular-nums}
.chart text{fill:var(--ink-2,#4a4f57)}
.chart .head{fill:var(--ink,#16181d);font-size:12px;font-weight:600}
.chart .strong{fill:var(--ink,#16181d);font-weight:500}
.chart .small{font-size:10px;fill:var(--ink-3,#6b717b)}
.chart .grid{stroke:var(--rule,#e3e5e9);stroke-width:1}
.chart .row{stroke:var(--rule,#e3e5e9);stroke-width:1;stroke-dasharray:1 3}
.chart .reference{stroke:var(--ink-3,#6b717b);stroke-width:1;stroke-dasharray:4 3}
.chart .whisker{stroke-width:1.5;stroke-linecap:round}
.chart .leader{stroke-width:1;stroke-dasharray:1 3;opacity:.8}
.chart .paper{fill:none;stroke:var(--ink-3,#6b717b);stroke-width:1.4}
.chart .error{stroke:var(--ink,#16181d);stroke-width:1.3}
.chart polyline{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.chart polyline.dashed{stroke:var(--ink,#16181d);stroke-width:1.4;stroke-dasharray:4 2.5;stroke-linecap:butt}
.chart polygon{stroke:none;opacity:.34}
.chart .f0{fill:var(--c0,#1c5fc7)}.chart .s0{stroke:var(--c0,#1c5fc7)}
.chart .f1{fill:var(--c1,#7a818c)}.chart .s1{stroke:var(--c1,#7a818c)}
.chart .f2{fill:var(--c2,#c2570c)}.chart .s2{stroke:var(--c2,#c2570c)}
.chart .f3{fill:var(--c3,#8a4fbf)}.chart .s3{stroke:var(--c3,#8a4fbf)}
.chart .f4{fill:var(--c4,#0f7b6c)}.chart .s4{stroke:var(--c4,#0f7b6c)}
.chart .f5{fill:var(--c5,#a8842c)}.chart .s5{stroke:var(--c5,#a8842c)}
";

/// Colours of [`CSS`]: 0 is the accent, 1 is neutral, the rest are for further lines.
const COLOURS: usize = 6;

/// How an axis maps values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// In proportion.
    #[default]
    Linear,
    /// Percent: linear, and the axis does not leave 0 to 100.
    Percent,
    /// By decades. Zero has a place of its own at the start of the axis.
    Log,
}

/// One line of a [`DotChart`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Dot {
    /// The name at its left.
    pub label: String,
    /// Our value: a filled dot with a whisker of one standard deviation to each side.
    pub ours: Option<Stat>,
    /// The published value: a ring, so that agreement looks like a target.
    pub paper: Option<Stat>,
    /// Drawn in the accent colour.
    pub emphasis: bool,
}

/// Methods on the lines, one metric along the axis.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DotChart {
    /// The heading.
    pub title: String,
    /// The axis.
    pub scale: Scale,
    /// Values that the axis must reach beside those shown, so that charts side by side share one axis.
    pub include: Vec<f64>,
    /// A dashed line to compare with.
    pub reference: Option<f64>,
    /// Write our value beside each dot.
    pub values: bool,
    /// Draw our values as bars from 0 instead of dots.
    pub bars: bool,
    /// The lines, from the top.
    pub dots: Vec<Dot>,
}

/// One line of a [`LineChart`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Line {
    /// The name at its end.
    pub label: String,
    /// Its points, in drawing order.
    pub points: Vec<(f64, f64)>,
    /// Which colour of [`CSS`].
    pub colour: usize,
    /// How it is drawn.
    pub stroke: Stroke,
}

/// How a [`Line`] is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stroke {
    /// In its colour.
    #[default]
    Solid,
    /// Dashed, in the colour of text: what others are compared with.
    Dashed,
    /// As the area under it, in its colour: what stands behind the others.
    Area,
}

/// Values over a common x.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LineChart {
    /// The heading.
    pub title: String,
    /// What x is.
    pub x_label: String,
    /// The x axis.
    pub x: Scale,
    /// The y axis.
    pub y: Scale,
    /// Values that the y axis must reach beside those shown.
    pub include: Vec<f64>,
    /// A dashed line across, to compare with.
    pub reference: Option<f64>,
    /// Leave out the names at the ends of the lines: the page has a key.
    pub unnamed: bool,
    /// The lines, each named at its end.
    pub lines: Vec<Line>,
}

/// Shares of a whole as one stacked bar, for wall time by phase.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TimeBar {
    /// What the bar is, for those who cannot see it.
    pub title: String,
    /// Names and seconds, in order.
    pub parts: Vec<(String, f64)>,
}

/// Lanes over time: one line each, drawn where the lane was at work.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Timeline {
    /// What it is, for those who cannot see it.
    pub title: String,
    /// Where the axis ends.
    pub seconds: f64,
    /// From the top.
    pub lanes: Vec<TimelineLane>,
}

/// One line of a [`Timeline`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TimelineLane {
    /// The name at its left.
    pub name: String,
    /// Percent of the time in which it was at work.
    pub share: f64,
    /// Items it made.
    pub items: u64,
    /// From and to, in seconds.
    pub spans: Vec<(f64, f64)>,
    /// Drawn in the accent colour.
    pub emphasis: bool,
}

/// An axis between two pixels.
struct Axis {
    scale: Scale,
    /// Ends of the axis: values, or exponents of ten on a log axis.
    low: f64,
    high: f64,
    /// Pixels of the ends; `from` may be the larger (y grows downwards).
    from: f64,
    to: f64,
    /// Where zero is on a log axis that needs one.
    zero: Option<f64>,
}

/// Linear values beyond this are set at the edge: the difference of two of them still has to be finite.
const HUGE: f64 = 1e150;

impl Axis {
    /// An axis that holds all `values` that are finite.
    fn fit(scale: Scale, values: &[f64], from: f64, to: f64) -> Axis {
        let finite = || values.iter().copied().filter(|v| v.is_finite());
        let direction = (to - from).signum();
        if scale == Scale::Log {
            let exponents = || finite().filter(|v| *v > 0.0).map(f64::log10);
            let mut low = exponents().fold(f64::INFINITY, f64::min).floor();
            let mut high = exponents().fold(f64::NEG_INFINITY, f64::max).ceil();
            if low > high {
                (low, high) = (-1.0, 0.0);
            } else if low == high {
                low -= 1.0;
            }
            let zero = finite().any(|v| v <= 0.0).then_some(from);
            let gutter = if zero.is_some() { 18.0 } else { 0.0 };
            let from = from + direction * gutter;
            return Axis {
                scale,
                low,
                high,
                from,
                to,
                zero,
            };
        }
        let (least, most, least_span) = match scale {
            Scale::Percent => (0.0, 100.0, 4.0),
            _ => (-HUGE, HUGE, 0.0),
        };
        let inside = || finite().map(|v| v.clamp(least, most));
        let mut low = inside().fold(f64::INFINITY, f64::min);
        let mut high = inside().fold(f64::NEG_INFINITY, f64::max);
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        // A span below the resolution of its ends has no ticks; a single value has no span at all.
        let size = low.abs().max(high.abs());
        let span = (high - low).max(size * 1e-6).max(least_span);
        let span = if span > 1e-290 { span } else { 1.0 };
        let slack = (span - (high - low)).max(0.0) / 2.0;
        low -= slack;
        high += slack;
        if scale == Scale::Percent {
            let shift = (high - 100.0).max(0.0) + (low).min(0.0);
            low -= shift;
            high -= shift;
        }
        Axis {
            scale,
            low,
            high,
            from,
            to,
            zero: None,
        }
    }

    /// The pixel of `value`; none for what has no place on any axis.
    fn at(&self, value: f64) -> Option<f64> {
        if !value.is_finite() {
            return None;
        }
        let place = match self.scale {
            Scale::Log if value <= 0.0 => return Some(self.zero.unwrap_or(self.from)),
            Scale::Log => value.log10(),
            _ => value.clamp(-HUGE, HUGE),
        };
        let share = ((place - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        Some(self.from + share * (self.to - self.from))
    }

    /// Pixels and labels of at most about `most` ticks.
    fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        let mut ticks = Vec::new();
        if let Some(zero) = self.zero {
            ticks.push((zero, "0".to_owned()));
        }
        let most = most.max(2) as f64;
        let span = self.high - self.low;
        let pixel = |place: f64| {
            let share = ((place - self.low) / span).clamp(0.0, 1.0);
            self.from + share * (self.to - self.from)
        };
        if self.scale == Scale::Log {
            const STEPS: [f64; 11] = [1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 10.0, 20.0, 50.0, 100.0, 200.0];
            let step = STEPS
                .into_iter()
                .find(|s| span / s + 1.0 <= most)
                .unwrap_or(400.0);
            let mut exponent = (self.low / step).ceil() * step;
            while exponent <= self.high {
                ticks.push((pixel(exponent), format::power_of_ten(exponent as i32)));
                exponent += step;
            }
            return ticks;
        }
        let decade = 10f64.powf((span / most).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|m| m * decade)
            .find(|s| span / s <= most)
            .unwrap_or(span);
        let first = (self.low / step - 1e-9).ceil();
        let decimals = (-step.log10().floor()).clamp(0.0, 8.0) as usize;
        for k in 0..=(most as usize + 1) {
            let value = (first + k as f64) * step;
            if value > self.high + 1e-9 * step {
                break;
            }
            // Adding zero turns -0 into 0.
            let value = value + 0.0;
            let label = match value == 0.0 || (1e-4..1e6).contains(&value.abs()) {
                true => format!("{value:.decimals$}").replace('-', "−"),
                false => format::scientific(value, 0, Notation::Typeset),
            };
            ticks.push((pixel(value), label));
        }
        ticks
    }
}

/// A coordinate with a tenth of a pixel. What is not finite cannot reach here by way of [`Axis`]; should it, the
/// origin is inside the box and `NaN` is not.
fn px(x: f64) -> String {
    if !x.is_finite() {
        return "0".to_owned();
    }
    let text = format!("{:.1}", x + 0.0);
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" {
        "0".to_owned()
    } else {
        text.to_owned()
    }
}

/// About how wide a text of the charts' font is, in pixels. On the wide side: an estimate that is too small makes
/// texts overlap.
fn text_width(text: &str) -> f64 {
    6.7 * format::width(text) as f64
}

/// Cuts `text` to about `pixels`.
fn fit_text(text: &str, pixels: f64) -> String {
    let text = format::one_line(text);
    if text_width(&text) <= pixels {
        return text;
    }
    let mut out = String::new();
    for c in text.chars() {
        if text_width(&out) + 14.0 > pixels {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}

/// An element under construction.
struct Canvas {
    out: String,
    width: f64,
    height: f64,
}

impl Canvas {
    fn new(width: f64, height: f64, label: &str) -> Canvas {
        let out = format!(
            "<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">",
            px(width),
            px(height),
            format::escape(&format::one_line(label))
        );
        Canvas { out, width, height }
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        let _ = write!(
            self.out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\" class=\"{class}\">{}</text>",
            px(x.clamp(0.0, self.width)),
            px(y.clamp(0.0, self.height)),
            format::escape(text)
        );
    }

    fn line(&mut self, x1: f64, y1: f64, x2: f64, y2: f64, class: &str) {
        let _ = write!(
            self.out,
            "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" class=\"{class}\"/>",
            px(x1),
            px(y1),
            px(x2),
            px(y2)
        );
    }

    /// A bar of a [`DotChart`], 12 high.
    fn bar(&mut self, x: f64, y: f64, width: f64, class: &str, title: &str) {
        let _ = write!(
            self.out,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"12\" class=\"{class}\"><title>{}</title></rect>",
            px(x),
            px(y),
            px(width),
            format::escape(title)
        );
    }

    fn circle(&mut self, x: f64, y: f64, r: f64, class: &str, title: &str) {
        let _ = write!(
            self.out,
            "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" class=\"{class}\"><title>{}</title></circle>",
            px(x),
            px(y),
            px(r),
            format::escape(title)
        );
    }

    fn finish(mut self) -> String {
        self.out.push_str("</svg>");
        self.out
    }
}

/// Width of the small charts: three stand side by side on a page, one fills a phone.
const WIDTH: f64 = 340.0;

fn show(scale: Scale, stat: Stat) -> String {
    let one = |x: f64| match scale {
        Scale::Percent => format!("{x:.2}"),
        Scale::Linear => format::compact(x, Notation::Typeset),
        Scale::Log => format::distance(x, Notation::Typeset),
    };
    match stat.std.is_finite() && stat.std > 0.0 {
        true => format!("{} ± {}", one(stat.mean), one(stat.std)),
        false => one(stat.mean),
    }
}

impl DotChart {
    /// The chart as one `<svg>` element.
    pub fn render(&self) -> String {
        const TOP: f64 = 30.0;
        const ROW: f64 = 23.0;
        let longest = self
            .dots
            .iter()
            .map(|d| text_width(&format::one_line(&d.label)))
            .fold(40.0, f64::max)
            .min(126.0);
        let (left, right) = (longest + 14.0, WIDTH - 12.0);
        let bottom = TOP + ROW * self.dots.len().max(1) as f64;
        let mut canvas = Canvas::new(WIDTH, bottom + 24.0, &self.summary());
        canvas.text(
            0.0,
            12.0,
            "start",
            "head",
            &fit_text(&self.title, WIDTH * 0.92),
        );

        let mut values = self.include.clone();
        values.extend(self.reference);
        for stat in self.dots.iter().flat_map(|d| [d.ours, d.paper]).flatten() {
            values.push(stat.mean);
        }
        if self.scale != Scale::Log {
            // Whiskers may set the ends of a linear axis; on a log axis they would set decades.
            let whiskers = self.dots.iter().filter_map(|d| d.ours);
            values.extend(whiskers.flat_map(|s| [s.mean - s.std, s.mean + s.std]));
        }
        if self.bars {
            values.push(0.0);
        }
        // A value stands after its bar, the longest bar's too.
        let end = if self.bars && self.values {
            right - 46.0
        } else {
            right - 7.0
        };
        let start = if self.bars { left } else { left + 7.0 };
        let axis = Axis::fit(self.scale, &values, start, end);

        let room = ((right - left) / 36.0) as usize;
        for (x, label) in axis.ticks(room) {
            canvas.line(x, TOP - 6.0, x, bottom, "grid");
            canvas.text(x, bottom + 15.0, "middle", "small", &label);
        }
        if let Some(x) = self.reference.and_then(|value| axis.at(value)) {
            canvas.line(x, TOP - 6.0, x, bottom, "reference");
        }
        for (i, dot) in self.dots.iter().enumerate() {
            let y = TOP + ROW * (i as f64 + 0.5) - 3.0;
            self.draw(&mut canvas, &axis, dot, y, (left, right));
        }
        canvas.finish()
    }

    fn draw(&self, canvas: &mut Canvas, axis: &Axis, dot: &Dot, y: f64, (left, right): (f64, f64)) {
        let class = if dot.emphasis { "strong" } else { "name" };
        canvas.text(
            0.0,
            y + 3.8,
            "start",
            class,
            &fit_text(&dot.label, left - 10.0),
        );
        canvas.line(left, y, right, y, "row");
        let colour = usize::from(!dot.emphasis);
        let ours = dot.ours.and_then(|stat| Some((stat, axis.at(stat.mean)?)));
        let paper = dot.paper.and_then(|stat| Some((stat, axis.at(stat.mean)?)));
        if let Some((stat, x)) = paper {
            let title = format!("{}, paper: {}", dot.label, show(self.scale, stat));
            canvas.circle(x, y, 5.5, "paper", &title);
        }
        let Some((stat, x)) = ours else { return };
        let mut reach = x + 3.5;
        if self.bars {
            let zero = axis.at(0.0).unwrap_or(left);
            let title = format!("{}: {}", dot.label, show(self.scale, stat));
            canvas.bar(
                zero.min(x),
                y - 6.0,
                (x - zero).abs(),
                &format!("f{colour}"),
                &title,
            );
        }
        if stat.std.is_finite() && stat.std > 0.0 {
            // A spread as large as the mean has no lower end on a log axis.
            let low = stat.mean - stat.std;
            let low = if self.scale == Scale::Log && low <= 0.0 {
                stat.mean
            } else {
                low
            };
            if let (Some(x1), Some(x2)) = (axis.at(low), axis.at(stat.mean + stat.std))
                && x2 - x1 > 0.5
            {
                if self.bars {
                    canvas.line(x1, y, x2, y, "error");
                    canvas.line(x1, y - 3.0, x1, y + 3.0, "error");
                    canvas.line(x2, y - 3.0, x2, y + 3.0, "error");
                    reach = x2;
                } else {
                    canvas.line(x1, y, x2, y, &format!("whisker s{colour}"));
                }
            }
        }
        if !self.bars {
            let title = format!("{}: {}", dot.label, show(self.scale, stat));
            canvas.circle(x, y, 3.5, &format!("f{colour}"), &title);
        }
        if !self.values {
            return;
        }
        let text = show(self.scale, Stat::exact(stat.mean));
        let width = text_width(&text);
        let clear =
            |from: f64, to: f64| !paper.is_some_and(|(_, p)| p + 7.0 > from && p - 7.0 < to);
        let (near, far) = (reach + 5.5, reach + 5.5 + width);
        if far <= right && clear(near, far) {
            canvas.text(near, y + 3.8, "start", class, &text);
        } else if !self.bars && x - 9.0 - width >= left && clear(x - 9.0 - width, x - 7.5) {
            canvas.text(x - 9.0, y + 3.8, "end", class, &text);
        }
    }

    fn summary(&self) -> String {
        let mut parts = Vec::new();
        for dot in &self.dots {
            if let Some(stat) = dot.ours.filter(Stat::is_finite) {
                parts.push(format!("{} {}", dot.label, show(self.scale, stat)));
            }
        }
        format!("{}: {}", self.title, parts.join(", "))
    }
}

impl LineChart {
    /// The chart as one `<svg>` element.
    pub fn render(&self) -> String {
        const HEIGHT: f64 = 236.0;
        let longest = self
            .lines
            .iter()
            .map(|l| text_width(&format::one_line(&l.label)))
            .fold(30.0, f64::max)
            .min(110.0);
        let margin = if self.unnamed { 0.0 } else { longest };
        let (left, right) = (40.0, WIDTH - margin - 16.0);
        let (top, bottom) = (28.0, HEIGHT - 38.0);
        let mut canvas = Canvas::new(WIDTH, HEIGHT, &self.summary());
        canvas.text(
            0.0,
            12.0,
            "start",
            "head",
            &fit_text(&self.title, WIDTH * 0.92),
        );

        let points = || self.lines.iter().flat_map(|l| &l.points);
        let finite = |(x, y): &&(f64, f64)| x.is_finite() && y.is_finite();
        let xs: Vec<f64> = points().filter(finite).map(|p| p.0).collect();
        let mut ys: Vec<f64> = points().filter(finite).map(|p| p.1).collect();
        ys.extend(&self.include);
        ys.extend(self.reference);
        let mut x_axis = Axis::fit(self.x, &xs, left, right);
        if self.x == Scale::Log {
            // Time ends where it ends: a whole decade more would be an empty half of the chart.
            let last = xs.iter().copied().fold(0.0, f64::max);
            if last > 0.0 && last.log10() - x_axis.low > 0.5 {
                x_axis.high = last.log10();
            }
        }
        let y_axis = Axis::fit(self.y, &ys, bottom, top);
        for (y, label) in y_axis.ticks(7) {
            canvas.line(left, y, right, y, "grid");
            canvas.text(left - 6.0, y + 3.5, "end", "small", &label);
        }
        for (x, label) in x_axis.ticks(5) {
            canvas.line(x, bottom, x, bottom + 4.0, "grid");
            canvas.text(x, bottom + 16.0, "middle", "small", &label);
        }
        let middle = (left + right) / 2.0;
        canvas.text(
            middle,
            HEIGHT - 5.0,
            "middle",
            "small",
            &fit_text(&self.x_label, right - left),
        );

        if let Some(y) = self.reference.and_then(|value| y_axis.at(value)) {
            canvas.line(left, y, right, y, "reference");
        }
        let mut ends = Vec::new();
        for line in &self.lines {
            let path = thin(line.points.iter().filter_map(|&(x, y)| {
                let place = (x_axis.at(x)?, y_axis.at(y)?);
                y.is_finite().then_some((place, y))
            }));
            let Some(&((x, y), value)) = path.last() else {
                continue;
            };
            let colour = line.colour % COLOURS;
            let points: Vec<String> = path
                .iter()
                .map(|((x, y), _)| format!("{},{}", px(*x), px(*y)))
                .collect();
            let (shape, class) = match line.stroke {
                Stroke::Solid => ("polyline", format!("s{colour}")),
                Stroke::Dashed => ("polyline", "dashed".to_owned()),
                Stroke::Area => ("polygon", format!("f{colour}")),
            };
            let _ = write!(
                canvas.out,
                "<{shape} points=\"{}\" class=\"{class}\"><title>{}</title></{shape}>",
                points.join(" "),
                format::escape(&line.label)
            );
            if self.unnamed {
                continue;
            }
            let title = format!(
                "{}: ends at {}",
                line.label,
                show(self.y, Stat::exact(value))
            );
            canvas.circle(x, y, 3.0, &format!("f{colour}"), &title);
            ends.push((y, x, colour, line.label.as_str()));
        }
        // Names in the right margin, in the order of the line ends, pushed apart until none overlaps.
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        let wanted: Vec<f64> = ends.iter().map(|e| e.0).collect();
        for ((y, x, colour, label), place) in ends.iter().zip(spread(&wanted, 14.0, top, bottom)) {
            let edge = right + 8.0;
            if edge - x > 6.0 {
                canvas.line(x + 4.0, *y, edge, place, &format!("leader s{colour}"));
            }
            let class = format!("strong f{colour}");
            canvas.text(
                edge + 3.0,
                place + 3.8,
                "start",
                &class,
                &fit_text(label, longest + 2.0),
            );
        }
        canvas.finish()
    }

    fn summary(&self) -> String {
        let mut parts = Vec::new();
        for line in &self.lines {
            if let Some((_, y)) = line
                .points
                .iter()
                .rfind(|(x, y)| x.is_finite() && y.is_finite())
            {
                parts.push(format!(
                    "{} ends at {}",
                    line.label,
                    show(self.y, Stat::exact(*y))
                ));
            }
        }
        format!("{}: {}", self.title, parts.join(", "))
    }
}

/// Drops points that a reader could not tell from the one before; the last always stays.
fn thin(points: impl Iterator<Item = ((f64, f64), f64)>) -> Vec<((f64, f64), f64)> {
    let mut kept: Vec<((f64, f64), f64)> = Vec::new();
    let mut last = None;
    for point in points {
        let ((x, y), _) = point;
        if kept
            .last()
            .is_none_or(|((a, b), _)| (x - a).abs().max((y - b).abs()) >= 0.8)
        {
            kept.push(point);
            last = None;
        } else {
            last = Some(point);
        }
    }
    kept.extend(last);
    kept
}

/// Moves ascending `wanted` positions to be at least `gap` apart within `low..=high`; when there are too many for
/// that, they share the room evenly.
fn spread(wanted: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    if wanted.len() < 2 {
        return wanted.to_vec();
    }
    let gap = gap.min((high - low) / (wanted.len() - 1) as f64);
    let mut places = wanted.to_vec();
    for i in 0..places.len() {
        let least = if i == 0 { low } else { places[i - 1] + gap };
        places[i] = places[i].max(least);
    }
    let mut most = high;
    for place in places.iter_mut().rev() {
        *place = place.min(most);
        most = *place - gap;
    }
    places
}

impl TimeBar {
    /// The bar as one `<svg>` element.
    pub fn render(&self) -> String {
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
                let _ = write!(
                    canvas.out,
                    "<rect x=\"{}\" y=\"0\" width=\"{}\" height=\"{}\" class=\"f{colour}\">\
                     <title>{}: {}, {:.1} %</title></rect>",
                    px(from),
                    px(shown),
                    px(BAR),
                    format::escape(name),
                    format::escape(time),
                    100.0 * share
                );
                from += width;
            }
            let (x, y) = places[i];
            let _ = write!(
                canvas.out,
                "<rect x=\"{}\" y=\"{}\" width=\"9\" height=\"9\" class=\"f{colour}\"/>",
                px(x),
                px(y - 8.5)
            );
            // One text, so that the time follows the name whatever the font's real width is.
            let _ = write!(
                canvas.out,
                "<text x=\"{}\" y=\"{}\"><tspan class=\"strong\">{}</tspan> {}</text>",
                px(x + 15.0),
                px(y),
                format::escape(name),
                format::escape(time)
            );
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
    /// The chart as one `<svg>` element.
    pub fn render(&self) -> String {
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
                let _ = write!(
                    canvas.out,
                    "<path d=\"{path}\" class=\"f{}\"><title>{}: {share} busy</title></path>",
                    usize::from(!lane.emphasis),
                    format::escape(&name)
                );
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Attributes of all elements, with the view box's width and height.
    fn attributes(svg: &str) -> (f64, f64, Vec<(String, String)>) {
        let mut found = Vec::new();
        for tag in svg.split('<').skip(1).filter(|t| !t.starts_with('/')) {
            let mut rest = &tag[..tag.find('>').unwrap()];
            while let Some(eq) = rest.find("=\"") {
                let name = rest[..eq].rsplit(' ').next().unwrap();
                let value = &rest[eq + 2..];
                let end = value.find('"').unwrap();
                found.push((name.to_owned(), value[..end].to_owned()));
                rest = &value[end + 1..];
            }
        }
        let view = &found.iter().find(|(n, _)| n == "viewBox").unwrap().1;
        let sizes: Vec<f64> = view.split(' ').map(|s| s.parse().unwrap()).collect();
        (sizes[2], sizes[3], found)
    }

    fn check(svg: &str) -> Result<(), TestCaseError> {
        prop_assert!(!svg.contains("NaN") && !svg.contains("inf\""));
        let (width, height, attributes) = attributes(svg);
        prop_assert!(width.is_finite() && height.is_finite() && width > 0.0 && height > 0.0);
        let inside = |value: &str, most: f64| {
            value
                .parse::<f64>()
                .is_ok_and(|v| (0.0..=most).contains(&v))
        };
        for (name, value) in &attributes {
            let good = match name.as_str() {
                "x" | "x1" | "x2" | "cx" | "width" => inside(value, width),
                "y" | "y1" | "y2" | "cy" | "height" => inside(value, height),
                "r" => inside(value, 10.0),
                // Bars, as M x y h width v height h -width z.
                "d" => value.split_terminator('z').all(|bar| {
                    let (x, rest) = bar.strip_prefix('M').unwrap().split_once(' ').unwrap();
                    let parts: Vec<&str> = rest.split(['h', 'v']).collect();
                    let [y, long, high, back] = parts[..] else {
                        return false;
                    };
                    let end = x.parse::<f64>().unwrap() + long.parse::<f64>().unwrap();
                    let low = y.parse::<f64>().unwrap() + high.parse::<f64>().unwrap();
                    inside(x, width)
                        && end <= width
                        && inside(y, height)
                        && low <= height
                        && back.strip_prefix('-') == Some(long)
                }),
                "points" => value.split(' ').all(|point| {
                    let (x, y) = point.split_once(',').unwrap();
                    inside(x, width) && inside(y, height)
                }),
                _ => true,
            };
            prop_assert!(good, "{name}={value} in {width}x{height}");
        }
        // Right edges of rectangles: x and width come in that order.
        for (i, (name, value)) in attributes.iter().enumerate() {
            if name == "width" {
                let x: f64 = attributes[i - 2].1.parse().unwrap();
                prop_assert!(x + value.parse::<f64>().unwrap() <= width + 1e-9);
            }
        }
        super::super::html::tests::balanced(svg).map_err(TestCaseError::fail)
    }

    fn number() -> impl Strategy<Value = f64> {
        prop_oneof![
            4 => any::<f64>(),
            2 => (-320.0..308.0f64).prop_map(|e| 10f64.powf(e)),
            2 => 0.0..100.0f64,
            1 => Just(0.0),
            1 => Just(5e-324),
            1 => Just(100.0),
            1 => Just(f64::MAX),
            1 => Just(f64::NAN),
            1 => Just(f64::NEG_INFINITY),
        ]
    }

    fn stat() -> impl Strategy<Value = Option<Stat>> {
        proptest::option::of((number(), number()).prop_map(|(mean, std)| Stat { mean, std }))
    }

    fn scale() -> impl Strategy<Value = Scale> {
        prop_oneof![Just(Scale::Linear), Just(Scale::Percent), Just(Scale::Log)]
    }

    fn stroke() -> impl Strategy<Value = Stroke> {
        prop_oneof![
            Just(Stroke::Solid),
            Just(Stroke::Dashed),
            Just(Stroke::Area)
        ]
    }

    /// Without the letters of "NaN" and "inf", which the checker looks for.
    fn label() -> impl Strategy<Value = String> {
        prop_oneof!["[a-hO-Z ()<>&\"']{0,24}", "\\PC{0,12}"].prop_map(|s| s.replace(['N', 'i'], ""))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn dot_charts_stay_inside(
            title in label(),
            scale in scale(),
            include in proptest::collection::vec(number(), 0..3),
            reference in proptest::option::of(number()),
            bars in any::<bool>(),
            dots in proptest::collection::vec((label(), stat(), stat(), any::<bool>()), 0..6),
        ) {
            let dots = dots
                .into_iter()
                .map(|(label, ours, paper, emphasis)| Dot { label, ours, paper, emphasis })
                .collect();
            check(&DotChart { title, scale, include, reference, values: true, bars, dots }.render())?;
        }

        #[test]
        fn line_charts_stay_inside(
            title in label(),
            x in scale(),
            y in scale(),
            reference in proptest::option::of(number()),
            unnamed in any::<bool>(),
            lines in proptest::collection::vec(
                (label(), proptest::collection::vec((number(), number()), 0..8), 0..20usize, stroke()),
                0..8,
            ),
        ) {
            let lines = lines
                .into_iter()
                .map(|(label, points, colour, stroke)| Line { label, points, colour, stroke })
                .collect();
            let x_label = "epochs".into();
            let chart = LineChart { title, x_label, x, y, include: vec![], reference, unnamed, lines };
            check(&chart.render())?;
        }

        #[test]
        fn time_bars_stay_inside(
            title in label(),
            parts in proptest::collection::vec((label(), number()), 0..12),
        ) {
            check(&TimeBar { title, parts }.render())?;
        }

        #[test]
        fn timelines_stay_inside(
            title in label(),
            seconds in number(),
            lanes in proptest::collection::vec(
                (label(), number(), any::<u64>(), proptest::collection::vec((number(), number()), 0..6), any::<bool>()),
                0..8,
            ),
        ) {
            let lanes = lanes.into_iter().map(|(name, share, items, spans, emphasis)| TimelineLane {
                name, share, items, spans, emphasis,
            });
            check(&Timeline { title, seconds, lanes: lanes.collect() }.render())?;
        }

        #[test]
        fn spread_labels_never_overlap(
            mut wanted in proptest::collection::vec(0.0..200.0f64, 0..12),
        ) {
            wanted.sort_by(f64::total_cmp);
            let places = spread(&wanted, 14.0, 0.0, 200.0);
            prop_assert!(places.windows(2).all(|w| w[1] - w[0] >= 14.0 - 1e-9));
            prop_assert!(places.iter().all(|p| (-1e-9..=200.0 + 1e-9).contains(p)));
        }
    }

    #[test]
    fn wide_log_axes_have_few_ticks_and_narrow_ones_enough() {
        let ticks = |values: &[f64]| Axis::fit(Scale::Log, values, 0.0, 200.0).ticks(5);
        let labels: Vec<String> = ticks(&[1e-32, 1.0]).into_iter().map(|t| t.1).collect();
        assert_eq!(labels, ["10⁻³²", "10⁻²⁴", "10⁻¹⁶", "10⁻⁸", "1"]);
        assert_eq!(ticks(&[0.05, 0.09]).len(), 2);
        assert!(ticks(&[5e-324, f64::MAX]).len() >= 3);
        assert!(ticks(&[]).len() >= 2);
        assert_eq!(ticks(&[0.0, 1e-3])[0].1, "0");
    }

    #[test]
    fn linear_ticks_are_round() {
        let labels = |scale, values: &[f64]| -> Vec<String> {
            let ticks = Axis::fit(scale, values, 0.0, 200.0).ticks(5);
            ticks.into_iter().map(|t| t.1).collect()
        };
        assert_eq!(
            labels(Scale::Percent, &[5.0, 100.0]),
            ["20", "40", "60", "80", "100"]
        );
        assert_eq!(
            labels(Scale::Percent, &[100.0]),
            ["96", "97", "98", "99", "100"]
        );
        assert_eq!(labels(Scale::Percent, &[0.0]), ["0", "1", "2", "3", "4"]);
        assert_eq!(
            labels(Scale::Linear, &[0.0, 1500.0]),
            ["0", "500", "1000", "1500"]
        );
    }

    #[test]
    fn bars_start_at_zero_and_carry_their_spread() {
        let dot = |label: &str, mean: f64, emphasis| Dot {
            label: label.into(),
            ours: Some(Stat { mean, std: 0.5 }),
            emphasis,
            ..Default::default()
        };
        let chart = DotChart {
            scale: Scale::Linear,
            values: true,
            bars: true,
            dots: vec![dot("Amnesiac", 8.0, false), dot("MUSO", 2.0, true)],
            ..Default::default()
        };
        let svg = chart.render();
        let (_, _, found) = attributes(&svg);
        let of = |wanted: &str| -> Vec<f64> {
            // Of the bars only: texts have no width and lines no x.
            let rects = svg.split("<rect ").skip(1);
            let values = rects.map(|r| r.split(&format!("{wanted}=\"")).nth(1).unwrap());
            values
                .map(|v| v[..v.find('"').unwrap()].parse().unwrap())
                .collect()
        };
        assert_eq!(of("x")[0], of("x")[1]);
        assert!((of("width")[0] / of("width")[1] - 4.0).abs() < 0.02);
        let errors = found.iter().filter(|(n, v)| n == "class" && v == "error");
        assert_eq!(errors.count(), 6);
        assert!(!svg.contains("<circle") && svg.contains(">8<") && svg.contains(">2<"));
    }

    #[test]
    fn paths_are_thinned_to_what_can_be_seen() {
        let points = (0..100_000).map(|i| (f64::from(i), 1.0)).collect();
        let line = Line {
            label: "MUSO".into(),
            points,
            ..Default::default()
        };
        let chart = LineChart {
            lines: vec![line],
            ..Default::default()
        };
        assert!(chart.render().len() < 8_000);
    }
}
