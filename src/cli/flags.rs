//! The one place that knows how fields of the library's parameters are spelt as options.
//!
//! The library's messages name fields: `` `.ridge` ``, or with a value `` `.objective = ridge` ``. Who types a command
//! reads `--ridge` and `--objective ridge` instead: [`spelt`] turns one into the other in whatever is printed or written.

/// Every field that a message may name, and the option that sets it.
const FLAGS: [(&str, &str); 38] = [
    ("architecture", "--arch"),
    ("config", "--config"),
    ("data_path", "--data-path"),
    ("dir", "--dir"),
    ("exact", "--exact"),
    ("features", "--features"),
    ("forget", "--forget"),
    ("gpu", "--gpu"),
    ("grid", "--grid"),
    ("labels", "--labels"),
    ("labels_out", "--labels-out"),
    ("largest", "--largest"),
    ("mia", "--mia"),
    ("model", "--model"),
    ("objective", "--objective"),
    ("original", "--original"),
    ("pairs", "--pairs"),
    ("reference", "--reference"),
    ("resume", "--resume"),
    ("retain", "--retain"),
    ("retrained", "--retrained"),
    ("ridge", "--ridge"),
    ("rounds", "--rounds"),
    ("rows", "--rows"),
    ("run", "--run"),
    ("save", "--save"),
    ("scenarios", "--scenarios"),
    ("seeds", "--seeds"),
    ("settings", "--set"),
    ("shard", "--shard"),
    ("shards", "--shards"),
    ("source", "--from"),
    ("sums", "--sums"),
    ("test", "--test"),
    ("tune", "--tune"),
    ("unlearned", "--unlearned"),
    ("verify", "--verify"),
    ("width", "--width"),
];

/// A message with options in place of fields; a field that no option sets stays as it is.
pub(super) fn spelt(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(start) = rest.find("`.") {
        let (before, from) = rest.split_at(start);
        out.push_str(before);
        let Some(length) = from[1..].find('`') else {
            rest = from;
            break;
        };
        let (field, after) = (&from[2..=length], &from[length + 2..]);
        let (name, value) = match field.split_once(" = ") {
            Some((name, value)) => (name, Some(value)),
            None => (field, None),
        };
        match FLAGS.iter().find(|(known, _)| *known == name) {
            Some((_, flag)) => {
                out.push_str(flag);
                out.extend(value.map(|value| format!(" {value}")));
            }
            None => out.push_str(&from[..length + 2]),
        }
        rest = after;
    }
    out + rest
}

/// The warnings of a report, with options in place of fields.
pub(super) fn spell_all(messages: &mut [String]) {
    for message in messages {
        *message = spelt(message);
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn fields_become_options() {
        for (said, read) in [
            ("`.ridge` is missing", "--ridge is missing"),
            (
                "only `.objective = interpolate` with `.source = head` does",
                "only --objective interpolate with --from head does",
            ),
            ("`.labels_out`: no", "--labels-out: no"),
            // Tensors, unknown fields and lone marks are left alone.
            ("`features` has NaN", "`features` has NaN"),
            ("`.unknown` and `.ridge`", "`.unknown` and --ridge"),
            ("a `.ridge without an end", "a `.ridge without an end"),
            ("", ""),
        ] {
            assert_eq!(spelt(said), read);
        }
    }

    /// The names after `` `. `` in the sources of a folder, comments apart.
    fn fields_named(folder: &std::path::Path, found: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                fields_named(&path, found);
                continue;
            }
            let Ok(text) = std::fs::read_to_string(&path) else {
                continue;
            };
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            for line in code.lines().filter(|l| !l.trim_start().starts_with("//")) {
                for part in line.split("`.").skip(1) {
                    let end = part.find(|c: char| !c.is_ascii_lowercase() && c != '_');
                    let field = &part[..end.unwrap_or(part.len())];
                    if !field.is_empty() {
                        found.push((path.display().to_string(), field.to_owned()));
                    }
                }
            }
        }
    }

    #[test]
    fn every_field_that_the_library_names_has_an_option() {
        let mut found = Vec::new();
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        fields_named(&root.join("src"), &mut found);
        found.retain(|(path, _)| !path.contains("cli"));
        assert!(found.len() > 20, "only {} were seen", found.len());
        for (path, field) in found {
            let known = FLAGS.iter().any(|(name, _)| *name == field);
            assert!(known, "{path} names .{field}, which no option sets");
        }
    }

    #[test]
    fn every_option_in_the_table_exists() {
        let program = crate::cli::Cli::command();
        let mut known = Vec::new();
        for command in program.get_subcommands() {
            known.extend(command.get_arguments().filter_map(|arg| arg.get_long()));
        }
        for (field, flag) in FLAGS {
            let name = flag.trim_start_matches("--");
            // Networks are not in every build.
            let with_networks = [
                "arch",
                "set",
                "model",
                "reference",
                "resume",
                "run",
                "mia",
                "config",
                "data-path",
                "gpu",
                "scenarios",
                "tune",
            ];
            let absent = !cfg!(feature = "nn") && with_networks.contains(&name);
            assert!(
                known.contains(&name) || absent,
                "{field}: there is no {flag}"
            );
        }
    }
}
