//! The report of sums for a terminal.

use super::exact;
use super::format::{self, Notation};
use crate::outcome::SumsReport;

impl SumsReport {
    /// Returns the report as aligned lines for a terminal, ending in a line break.
    pub fn to_text(&self) -> String {
        /// Parts that are listed; a merge of hundreds would push the rest out of sight.
        const LISTED: usize = 8;
        let number = |n: u64| format::count(n as usize);
        let mut out = format!(
            "data    {} rows, {} forgotten, {} retained; {} features ({}){}, {}\n",
            number(self.rows.total),
            number(self.rows.forgotten),
            number(self.rows.retained),
            format::count(self.features),
            format::one_line(&self.dtype),
            if self.bias { " + bias" } else { "" },
            match self.classes {
                0 => "no labels".to_owned(),
                n => format::plural(n, "class", "classes"),
            },
        );
        for part in self.parts.iter().take(LISTED) {
            out.push_str(&format!(
                "part    rows {}..{} of {}{}\n",
                part.first,
                part.end,
                format::one_line(&part.file),
                match part.forgotten {
                    0 => String::new(),
                    n => format!(", {} forgotten", number(n)),
                }
            ));
        }
        if self.parts.len() > LISTED {
            out.push_str(&format!("        and {} more\n", self.parts.len() - LISTED));
        }
        if let Some(exact) = &self.exact {
            let words = exact::in_words(exact, Notation::Plain);
            out.push_str(&format!("exact   {words}\n"));
        }
        out.push_str(&format!("digest  {}\n", format::one_line(&self.digest)));
        let machine = match &self.device {
            Some(device) => device.clone(),
            None => format::plural(self.threads, "thread", "threads"),
        };
        out.push_str(&format!(
            "time    {} on {machine}{}\n",
            format::seconds(self.seconds),
            match self.peak_memory_bytes {
                None => String::new(),
                Some(peak) => format!(", {} peak memory", format::bytes(peak)),
            }
        ));
        for warning in &self.warnings {
            for (i, line) in format::wrap(warning, 100).iter().enumerate() {
                let name = if i == 0 { "warning:" } else { "        " };
                out.push_str(&format!("{name} {line}\n"));
            }
        }
        out
    }
}
