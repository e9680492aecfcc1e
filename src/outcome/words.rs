//! Phrases that name rows and counts, the same in JSON, on a terminal and on a page.

use crate::evaluate::gap::{NamedClass, RowSet, Scope, Source};

/// Returns a count with a comma between groups of three digits.
///
/// ```
/// assert_eq!(muso::outcome::words::count(12_345), "12,345");
/// ```
pub fn count(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

impl RowSet {
    /// Returns the phrase that names these rows, such as `over the 200 forgotten training rows`.
    pub fn phrase(&self) -> String {
        let article = match self.scope {
            Scope::All => "all",
            _ => "the",
        };
        let adjective = match self.scope {
            Scope::Retained => "retained ",
            Scope::Forgotten => "forgotten ",
            _ => "",
        };
        let kind = match self.source {
            Source::Train => "training",
            Source::Test => "test",
        };
        let plural = if self.rows.len() == 1 { "" } else { "s" };
        let n = count(self.rows.len());
        let rows = format!("over {article} {n} {adjective}{kind} row{plural}");
        match &self.scope {
            Scope::Without(classes) => format!("{rows}, without {}", names(classes).0),
            Scope::OfForgotten(classes) => {
                let (names, are) = names(classes);
                format!("{rows} of {names}, which {are} forgotten")
            }
            _ => rows,
        }
    }
}

/// Returns the names of classes, and the verb that goes with them.
fn names(classes: &[NamedClass]) -> (String, &'static str) {
    let name = |class: &NamedClass| match &class.name {
        Some(name) => format!("“{name}”"),
        None => class.number.to_string(),
    };
    let names: Vec<String> = classes.iter().map(name).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => {
            (format!("classes {} and {last}", others.join(", ")), "are")
        }
        _ => (format!("class {}", names.concat()), "is"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped() {
        for (n, text) in [
            (0, "0"),
            (7, "7"),
            (100, "100"),
            (1_000, "1,000"),
            (12_345, "12,345"),
            (123_456, "123,456"),
            (1_000_000, "1,000,000"),
        ] {
            assert_eq!(count(n), text);
        }
    }

    #[test]
    fn phrases_name_the_rows() {
        let class = |name: Option<&str>| NamedClass {
            number: 2,
            name: name.map(str::to_owned),
        };
        for (source, rows, scope, phrase) in [
            (Source::Test, 5, Scope::All, "over all 5 test rows"),
            (
                Source::Train,
                1_200,
                Scope::Retained,
                "over the 1,200 retained training rows",
            ),
            (
                Source::Train,
                1,
                Scope::Forgotten,
                "over the 1 forgotten training row",
            ),
            (
                Source::Test,
                3,
                Scope::Without(vec![class(Some("sea"))]),
                "over the 3 test rows, without class “sea”",
            ),
            (
                Source::Test,
                2,
                Scope::OfForgotten(vec![class(None)]),
                "over the 2 test rows of class 2, which is forgotten",
            ),
            (
                Source::Test,
                9,
                Scope::OfForgotten(vec![class(None), class(Some("sea")), class(Some("sky"))]),
                "over the 9 test rows of classes 2, “sea” and “sky”, which are forgotten",
            ),
        ] {
            let rows = (0..rows).collect();
            let set = RowSet {
                source,
                rows,
                scope,
            };
            assert_eq!(set.phrase(), phrase);
        }
    }
}
