//! Every coordinate is finite and inside the view box, whatever the numbers are.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::axis::Axis;
use super::lines::spread;
use super::*;

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
    crate::report::html::tests::balanced(svg).map_err(TestCaseError::fail)
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
        check(&DotChart { title, scale, include, reference, values: true, bars, dots }.render().into_string())?;
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
        check(&chart.render().into_string())?;
    }

    #[test]
    fn time_bars_stay_inside(
        title in label(),
        parts in proptest::collection::vec((label(), number()), 0..12),
    ) {
        check(&TimeBar { title, parts }.render().into_string())?;
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
        check(&Timeline { title, seconds, lanes: lanes.collect() }.render().into_string())?;
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
    let svg = chart.render().into_string();
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
    assert!(chart.render().into_string().len() < 8_000);
}
