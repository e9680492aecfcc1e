//! Charts side by side in a file of their own, for a place that shows pictures and no pages.
//!
//! Such a file brings its style sheet along: the charts' part of the pages' one, with the light colours put in for the
//! variables, which viewers other than browsers do not know, on a ground that reads on a dark page as well.

use maud::{PreEscaped, html};

use super::{CSS, Canvas, WIDTH, px};

/// Room at the edges and between charts.
const MARGIN: f64 = 24.0;

/// A drawing for a file.
pub(in crate::report) struct Picture<'a> {
    /// Heading of the picture.
    pub(in crate::report) title: &'a str,
    /// The line under it.
    pub(in crate::report) subtitle: &'a str,
    /// Class of a mark and what it stands for.
    pub(in crate::report) key: &'a [(&'a str, &'a str)],
    /// Charts from left to right.
    pub(in crate::report) charts: Vec<Canvas>,
}

impl Picture<'_> {
    /// Returns the text of the file.
    pub(in crate::report) fn render(self) -> String {
        const TOP: f64 = 88.0;
        let heights = self.charts.iter().map(|chart| chart.height);
        let height = TOP + heights.fold(0.0, f64::max) + MARGIN;
        let count = self.charts.len().max(1) as f64;
        let width = MARGIN + count * (WIDTH + MARGIN);
        let mut canvas = Canvas::new(width, height, self.title);
        canvas.text(MARGIN, 32.0, "start", "title", self.title);
        canvas.text(MARGIN, 52.0, "start", "subtitle", self.subtitle);
        let mut x = MARGIN + 4.0;
        for (class, text) in self.key {
            canvas.circle(x, 70.0, 4.0, class, text);
            canvas.text(x + 10.0, 74.0, "start", "name", text);
            x += 34.0 + super::text_width(text);
        }
        for (i, chart) in self.charts.into_iter().enumerate() {
            canvas.add(chart.placed(MARGIN + i as f64 * (WIDTH + MARGIN), TOP));
        }
        let view = format!("0 0 {} {}", px(width), px(height));
        html! {
            svg.chart xmlns="http://www.w3.org/2000/svg" viewBox=(view) width=(px(width)) height=(px(height))
                role="img" aria-label=(canvas.label)
            {
                style { (PreEscaped(style())) }
                rect.ground x="0.5" y="0.5" width=(px(width - 1.0)) height=(px(height - 1.0)) rx="8" {}
                (PreEscaped(canvas.inside))
            }
            "\n"
        }
        .into_string()
    }
}

/// Returns the style sheet of a file: rules of charts, without variables.
fn style() -> String {
    const OWN: &str = "
.chart .ground { fill: var(--page); stroke: var(--rule); }
.chart .title { fill: var(--ink); font-size: 18px; font-weight: 600; }
.chart .subtitle { fill: var(--ink-3); font-size: 12.5px; }
";
    let charts = CSS.split_once("/* Charts").map_or("", |(_, rules)| rules);
    let charts = charts.split_once("*/").map_or("", |(_, rules)| rules);
    let mut rest = format!("{charts}{OWN}");
    let mut out = String::new();
    while let Some((before, after)) = rest.split_once("var(") {
        let (name, after) = after.split_once(')').unwrap_or((after, ""));
        out.push_str(before);
        out.push_str(light(name));
        rest = after.to_owned();
    }
    out + &rest
}

/// Returns what the style sheet sets a variable to first, which is for light mode.
fn light(name: &str) -> &'static str {
    let value = CSS.split_once(&format!("{name}: "));
    value.map_or("", |(_, rest)| rest.split(';').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_style_of_a_file_has_no_variables_and_every_colour() {
        let style = style();
        assert!(!style.contains("var("), "{style}");
        assert!(style.contains(".chart .f0 { fill: #1c5fc7; }"), "{style}");
        assert!(style.contains(".chart .ground { fill: #fff; stroke: #e2e5ea; }"));
        assert!(!style.contains(": ;"), "{style}");
    }
}
