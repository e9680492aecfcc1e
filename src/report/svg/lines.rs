//! Values over a common x: the path of an iterative method, the outline of a histogram.

use maud::{Markup, html};

use super::axis::Axis;
use super::{COLOURS, Canvas, Scale, WIDTH, fit_text, px, show, text_width};
use crate::outcome::Stat;
use crate::report::format;

/// A line of a [`LineChart`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Line {
    /// The name at its end.
    pub label: String,
    /// Points in drawing order.
    pub points: Vec<(f64, f64)>,
    /// Colour of the style sheet, `--c0` to `--c5`.
    pub colour: usize,
    /// Stroke of the line.
    pub stroke: Stroke,
}

/// Drawing style of a [`Line`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stroke {
    /// A solid line in its colour.
    #[default]
    Solid,
    /// Dashed, in the colour of text: what others are compared with.
    Dashed,
    /// The area under the line, in its colour: the background to the other lines.
    Area,
}

/// Values over a common x.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LineChart {
    /// Heading of the chart.
    pub title: String,
    /// Label of the x axis.
    pub x_label: String,
    /// Scale of the x axis.
    pub x: Scale,
    /// Scale of the y axis.
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

impl LineChart {
    /// Returns the chart as one `<svg>` element.
    pub fn render(&self) -> Markup {
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
            let points = points.join(" ");
            let title = html! { title { (format::one_line(&line.label)) } };
            canvas.add(html! {
                @match line.stroke {
                    Stroke::Solid => polyline points=(points) class={ "s" (colour) } { (title) },
                    Stroke::Dashed => polyline.dashed points=(points) { (title) },
                    Stroke::Area => polygon points=(points) class={ "f" (colour) } { (title) },
                }
            });
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
pub(super) fn spread(wanted: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
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
