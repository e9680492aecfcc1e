//! Methods against one metric, as dots or as bars.

use maud::Markup;

use super::axis::Axis;
use super::{Canvas, Scale, WIDTH, fit_text, show, text_width};
use crate::outcome::Stat;
use crate::report::format;

/// A line of a [`DotChart`].
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
    /// Heading of the chart.
    pub title: String,
    /// Scale of the axis.
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

impl DotChart {
    /// Returns the chart as one `<svg>` element.
    pub fn render(&self) -> Markup {
        self.draw_all().finish()
    }

    /// Draws everything; the canvas is then an element of its own or a part of a larger one.
    pub(in crate::report) fn draw_all(&self) -> Canvas {
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
        canvas
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
        let mark_paper = |canvas: &mut Canvas| {
            if let Some((stat, x)) = paper {
                let title = format!("{}, paper: {}", dot.label, show(self.scale, stat));
                canvas.circle(x, y, 5.5, "paper", &title);
            }
        };
        // A bar would cover it.
        if !self.bars || ours.is_none() {
            mark_paper(canvas);
        }
        let Some((stat, x)) = ours else { return };
        let mut reach = x + 3.5;
        if self.bars {
            let zero = axis.at(0.0).unwrap_or(left);
            let title = format!("{}: {}", dot.label, show(self.scale, stat));
            canvas.rect(
                [zero.min(x), y - 6.0, (x - zero).abs(), 12.0],
                &format!("f{colour}"),
                Some(&title),
            );
            mark_paper(canvas);
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
