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
        if i > 0 && (digits.len() - i) % 3 == 0 {
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
            Scope::Without(class) => format!("{rows}, without {}", name(class)),
            Scope::OfForgotten(class) => format!("{rows} of {}, which is forgotten", name(class)),
            _ => rows,
        }
    }
}

fn name(class: &NamedClass) -> String {
    match &class.name {
        Some(name) => format!("class “{name}”"),
        None => format!("class {}", class.number),
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
                Scope::Without(class(Some("sea"))),
                "over the 3 test rows, without class “sea”",
            ),
            (
                Source::Test,
                2,
                Scope::OfForgotten(class(None)),
                "over the 2 test rows of class 2, which is forgotten",
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
