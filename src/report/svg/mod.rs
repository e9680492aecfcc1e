//! Small charts as inline SVG, drawn here rather than by a plotting library: those know neither CSS variables nor print,
//! and do not promise finite coordinates.
//!
//! Four kinds cover the reports: [`DotChart`] (methods against one metric, ours and the paper's, as dots or as bars),
//! [`LineChart`] (the path of an iterative method, the outline of a histogram), [`TimeBar`] (wall time by phase) and
//! [`Timeline`] (what ran when, on which lane). Each renders to one `<svg>` element
//! whose classes are styled by the page's style sheet; that uses CSS variables, so dark mode and print need no second
//! drawing. Marks carry a `<title>` with the number they stand for. All text passes through a template that escapes it.
//!
//! Whatever the numbers are (zero, denormal, not finite, none at all), every coordinate written is finite and
//! inside the view box: what has no place on an axis is left out or set at its edge.
//!
//! ```
//! use muso::outcome::Stat;
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
//! let svg = chart.render().into_string();
//! assert!(svg.starts_with("<svg") && svg.contains("1.0×10⁻¹⁴"));
//! ```

mod axis;
mod dots;
mod lines;
mod picture;
mod times;

#[cfg(test)]
mod tests;

use maud::{Markup, PreEscaped, html};

use super::format::{self, Notation};
use crate::outcome::Stat;

pub use dots::{Dot, DotChart};
pub use lines::{Line, LineChart, Stroke};
pub(super) use picture::Picture;
pub use times::{TimeBar, Timeline, TimelineLane};

/// Colours of the style sheet, `--c0` to `--c5`: 0 is the accent, 1 is neutral, the rest are for further lines.
const COLOURS: usize = 6;

/// The one style sheet of all pages and charts.
pub(super) const CSS: &str = include_str!("../page.css");

/// Mapping of values to an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// Linear, in proportion to the value.
    #[default]
    Linear,
    /// Percent: linear, and the axis does not leave 0 to 100.
    Percent,
    /// Logarithmic, by decades. Zero has a place of its own at the start of the axis.
    Log,
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

/// An `<svg>` element under construction.
pub(super) struct Canvas {
    /// Child elements so far.
    inside: String,
    width: f64,
    height: f64,
    label: String,
}

impl Canvas {
    fn new(width: f64, height: f64, label: &str) -> Canvas {
        Canvas {
            inside: String::new(),
            width,
            height,
            label: format::one_line(label),
        }
    }

    fn add(&mut self, element: Markup) {
        self.inside.push_str(&element.0);
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        let (x, y) = (x.clamp(0.0, self.width), y.clamp(0.0, self.height));
        self.add(html! {
            text x=(px(x)) y=(px(y)) text-anchor=(anchor) class=(class) { (format::one_line(text)) }
        });
    }

    fn line(&mut self, x1: f64, y1: f64, x2: f64, y2: f64, class: &str) {
        self.add(html! {
            line x1=(px(x1)) y1=(px(y1)) x2=(px(x2)) y2=(px(y2)) class=(class) {}
        });
    }

    /// Draws a rectangle; one without a title is a mark of a legend.
    fn rect(&mut self, [x, y, width, height]: [f64; 4], class: &str, title: Option<&str>) {
        self.add(html! {
            rect x=(px(x)) y=(px(y)) width=(px(width)) height=(px(height)) class=(class) {
                @if let Some(title) = title { title { (format::one_line(title)) } }
            }
        });
    }

    fn circle(&mut self, x: f64, y: f64, r: f64, class: &str, title: &str) {
        self.add(html! {
            circle cx=(px(x)) cy=(px(y)) r=(px(r)) class=(class) { title { (format::one_line(title)) } }
        });
    }

    /// Returns its children as a group whose origin is at (x, y), for a larger drawing.
    fn placed(self, x: f64, y: f64) -> Markup {
        let origin = format!("translate({} {})", px(x), px(y));
        html! { g transform=(origin) { title { (self.label) } (PreEscaped(self.inside)) } }
    }

    fn finish(self) -> Markup {
        let view = format!("0 0 {} {}", px(self.width), px(self.height));
        html! {
            svg.chart viewBox=(view) role="img" aria-label=(self.label) { (PreEscaped(self.inside)) }
        }
    }
}

/// Width of the small charts: three stand side by side on a page, one fills a phone.
pub(super) const WIDTH: f64 = 340.0;

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
