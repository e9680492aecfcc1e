//! How numbers are written for people: one place, so that the terminal and the page agree.

use unicode_width::UnicodeWidthStr as _;

use crate::labels::LabelUpdate;
pub(crate) use crate::outcome::words::count;
use crate::outcome::{Metric, Stat};

/// Stands where there is no number.
pub(crate) const ABSENT: &str = "–";

/// Notation of numbers: `1.0e-28` or 1.0×10⁻²⁸, and how much room they may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notation {
    /// `1.0e-28`, for terminals: it can be pasted into any program.
    Plain,
    /// Plain notation with one decimal for percentages, where a line must not grow too long.
    Brief,
    /// Brief notation of the mean alone, where there is no room for spreads.
    Mean,
    /// Typeset notation for pages: `1.0×10⁻²⁸`.
    Typeset,
}

/// `x` with `digits` decimals in its significand.
pub(crate) fn scientific(x: f64, digits: usize, notation: Notation) -> String {
    if !x.is_finite() {
        return ABSENT.to_owned();
    }
    if x == 0.0 {
        return "0".to_owned();
    }
    let plain = format!("{x:.digits$e}");
    match (notation, plain.split_once('e')) {
        (Notation::Typeset, Some((digits, exponent))) => {
            format!("{}×10{}", minus(digits), superscript(exponent))
        }
        _ => plain,
    }
}

/// 10 to the `exponent`, typeset, for axis ticks.
pub(crate) fn power_of_ten(exponent: i32) -> String {
    match exponent {
        0 => "1".to_owned(),
        1 => "10".to_owned(),
        e => format!("10{}", superscript(&e.to_string())),
    }
}

fn superscript(digits: &str) -> String {
    digits
        .chars()
        .map(|c| match c {
            '-' => '⁻',
            '0' => '⁰',
            '1' => '¹',
            '2' => '²',
            '3' => '³',
            '4' => '⁴',
            '5' => '⁵',
            '6' => '⁶',
            '7' => '⁷',
            '8' => '⁸',
            '9' => '⁹',
            other => other,
        })
        .collect()
}

/// A typeset footnote mark: ¹, ², …
pub(crate) fn footnote(number: usize) -> String {
    superscript(&number.to_string())
}

fn minus(digits: &str) -> String {
    digits.replace('-', "−")
}

/// A distance: four decimals when it is of a size to read, else scientific.
pub(crate) fn distance(x: f64, notation: Notation) -> String {
    if !x.is_finite() {
        ABSENT.to_owned()
    } else if x == 0.0 {
        "0".to_owned()
    } else if (1e-3..1e4).contains(&x.abs()) {
        format!("{x:.4}")
    } else {
        scientific(x, 1, notation)
    }
}

/// Any number in few characters: integers and short decimals as they are, the rest scientific.
pub(crate) fn compact(x: f64, notation: Notation) -> String {
    let size = x.abs();
    if !x.is_finite() {
        ABSENT.to_owned()
    } else if x == 0.0 {
        "0".to_owned()
    } else if x.fract() == 0.0 && size < 1e4 {
        format!("{x}")
    } else if (1e-2..1e4).contains(&size) {
        format!("{x:.*}", if size < 1.0 { 3 } else { 2 })
    } else {
        scientific(x, 1, notation)
    }
}

/// A number that the user chose, with all its digits.
pub(crate) fn given(x: f64, notation: Notation) -> String {
    if !x.is_finite() {
        return ABSENT.to_owned();
    }
    if x == 0.0 || (1e-2..1e6).contains(&x.abs()) {
        return format!("{x}");
    }
    let plain = format!("{x:e}");
    match (notation, plain.split_once('e')) {
        (Notation::Typeset, Some(("1", exponent))) => format!("10{}", superscript(exponent)),
        (Notation::Typeset, Some((digits, exponent))) => {
            format!("{}×10{}", minus(digits), superscript(exponent))
        }
        _ => plain,
    }
}

/// Formats one value of a metric, without its spread.
pub(crate) fn value(metric: Metric, x: f64, notation: Notation) -> String {
    match metric {
        Metric::DeltaW => distance(x, notation),
        _ if !x.is_finite() => ABSENT.to_owned(),
        Metric::AvgGap | Metric::SeedGap if x.abs() < 1e4 => format!("{x:.2}"),
        _ if matches!(notation, Notation::Brief | Notation::Mean) && x.abs() < 1e4 => {
            format!("{x:.1}")
        }
        _ if x.abs() < 1e4 => format!("{x:.2}"),
        _ => scientific(x, 2, notation),
    }
}

/// `mean ± std`. A number that was not measured is a dash; a spread that is not finite is left out.
pub(crate) fn stat(metric: Metric, stat: Stat, notation: Notation) -> String {
    let mean = value(metric, stat.mean, notation);
    if !stat.is_finite()
        || !stat.std.is_finite()
        || notation == Notation::Mean
        || (metric == Metric::DeltaW && stat == Stat::default())
    {
        return mean;
    }
    // A spread is written in the notation of its mean, so that the two compare.
    let std = match metric {
        Metric::DeltaW if !(1e-3..1e4).contains(&stat.mean.abs()) => {
            scientific(stat.std, 1, notation)
        }
        Metric::DeltaW => format!("{:.4}", stat.std),
        _ => value(metric, stat.std, notation),
    };
    format!("{mean} ± {std}")
}

/// Formats the vital signs of a label update: tr(Π)/D, u‖G‖/λ, and the share of rows whose label changed.
pub(crate) fn label_update(update: &LabelUpdate, notation: Notation) -> [String; 3] {
    let trace = update.trace_ratio.map(|x| match x.abs() < 100.0 {
        true => format!("{x:.5}"),
        false => scientific(x, 1, notation),
    });
    let rounding = update.rounding.map(|x| scientific(x, 1, notation));
    let absent = || ABSENT.to_owned();
    [
        trace.unwrap_or_else(absent),
        rounding.unwrap_or_else(absent),
        format!("{:.1} %", 100.0 * update.changed),
    ]
}

/// Formats a ratio of times with three significant digits at most.
pub(crate) fn ratio(ratio: Option<f64>) -> String {
    match ratio {
        Some(r) if r.is_finite() && r >= 0.0 => {
            let decimals = match r {
                r if r == 0.0 || r >= 99.5 => 0,
                r if r >= 9.95 => 1,
                r if r >= 0.0095 => 2,
                _ => 3,
            };
            format!("{r:.decimals$}")
        }
        _ => ABSENT.to_owned(),
    }
}

/// A duration in the unit that fits it.
pub(crate) fn seconds(s: f64) -> String {
    if !s.is_finite() || s < 0.0 {
        ABSENT.to_owned()
    } else if s == 0.0 {
        "0 s".to_owned()
    } else if s < 0.9995e-3 {
        format!("{:.0} µs", (s * 1e6).max(1.0))
    } else if s < 0.9995 {
        let ms = s * 1e3;
        format!("{ms:.*} ms", usize::from(ms < 9.95))
    } else if s < 99.95 {
        format!("{s:.*} s", if s < 9.995 { 2 } else { 1 })
    } else if s < 5999.5 {
        let whole = s.round() as u64;
        format!("{} min {:02} s", whole / 60, whole % 60)
    } else {
        let minutes = (s / 60.0).round() as u64;
        format!("{} h {:02} min", minutes / 60, minutes % 60)
    }
}

/// A size in binary units.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut size = n as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1023.5 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(size < 99.95);
    format!("{size:.decimals$} {}", UNITS[unit])
}

/// `1 row`, `2 rows`.
pub(crate) fn plural(n: usize, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

/// Returns the columns that `text` takes on a terminal: combining marks take none and East Asian characters two.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// `text` with what cannot be shown in one line (control characters, escape sequences) replaced by spaces, so
/// that a name from a file can neither break the layout nor drive the terminal.
pub(crate) fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Breaks `text` at spaces into lines of at most `columns`; a longer word has a line of its own.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in one_line(text).split_whitespace() {
        if !line.is_empty() && width(&line) + 1 + width(word) > columns {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// Joins `parts` by `separator` into lines of at most `columns`, breaking between parts only.
pub(crate) fn wrap_parts(parts: &[String], separator: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if width(line) + width(separator) + width(part) <= columns => {
                line.push_str(separator);
                line.push_str(part);
            }
            Some(line) => {
                line.push_str(separator.trim_end());
                lines.push(part.clone());
            }
            None => lines.push(part.clone()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_change_notation_where_decimals_stop_to_speak() {
        assert_eq!(distance(3.14e-28, Notation::Plain), "3.1e-28");
        assert_eq!(distance(1e-4, Notation::Typeset), "1.0×10⁻⁴");
        assert_eq!(distance(0.1027, Notation::Plain), "0.1027");
        assert_eq!(distance(0.0, Notation::Plain), "0");
        assert_eq!(distance(f64::NAN, Notation::Plain), ABSENT);
        assert_eq!(distance(5e-324, Notation::Plain), "4.9e-324");
        assert_eq!(distance(-2e300, Notation::Typeset), "−2.0×10³⁰⁰");
    }

    #[test]
    fn spreads_follow_their_means() {
        let wide = Stat {
            mean: 0.1027,
            std: 2.9e-4,
        };
        assert_eq!(
            stat(Metric::DeltaW, wide, Notation::Plain),
            "0.1027 ± 0.0003"
        );
        let tiny = Stat {
            mean: 1e-28,
            std: 2e-29,
        };
        assert_eq!(
            stat(Metric::DeltaW, tiny, Notation::Plain),
            "1.0e-28 ± 2.0e-29"
        );
        let wider = Stat {
            mean: 1e-4,
            std: 1e-3,
        };
        assert_eq!(
            stat(Metric::DeltaW, wider, Notation::Plain),
            "1.0e-4 ± 1.0e-3"
        );
        assert_eq!(
            stat(Metric::Ta, Stat::exact(100.0), Notation::Plain),
            "100.00 ± 0.00"
        );
        assert_eq!(stat(Metric::Ta, Stat::of(&[]), Notation::Plain), ABSENT);
        assert_eq!(stat(Metric::DeltaW, Stat::exact(0.0), Notation::Plain), "0");
    }

    #[test]
    fn human_units() {
        assert_eq!(seconds(3.2e-5), "32 µs");
        assert_eq!(seconds(0.00456), "4.6 ms");
        assert_eq!(seconds(0.3), "300 ms");
        assert_eq!(seconds(0.9999), "1.00 s");
        assert_eq!(seconds(75.0), "75.0 s");
        assert_eq!(seconds(119.6), "2 min 00 s");
        assert_eq!(seconds(7260.0), "2 h 01 min");
        assert_eq!(seconds(f64::NAN), ABSENT);
        assert_eq!(ratio(Some(0.1234)), "0.12");
        assert_eq!(ratio(Some(0.0012)), "0.001");
        assert_eq!(ratio(Some(12.34)), "12.3");
        assert_eq!(ratio(Some(0.0)), "0");
        assert_eq!(ratio(None), ABSENT);
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(44 << 20), "44.0 MiB");
        assert_eq!(bytes(300 << 20), "300 MiB");
        assert_eq!(bytes(u64::MAX), "16384 PiB");
        assert_eq!(count(1_000_000), "1,000,000");
        assert_eq!(count(100), "100");
        assert_eq!(plural(1, "row", "rows"), "1 row");
    }

    #[test]
    fn terminal_columns() {
        assert_eq!(width("Δw ± 1"), 6);
        assert_eq!(width("数字"), 4);
        assert_eq!(width("e\u{301}"), 1);
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("", 7), [""; 0]);
        assert_eq!(one_line("a\x1b[2Jb\nc"), "a [2Jb c");
    }
}
