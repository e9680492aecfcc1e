//! Text → tokens with their lines.

use super::Error;

/// A piece of PTX text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// Names, directives, opcodes with their modifiers, numbers.
    Word(&'a str),
    Quoted(&'a str),
    Mark(char),
}

/// Splits a text into tokens, each with its line from 1.
pub(super) fn tokens(text: &str) -> Result<Vec<(Token<'_>, u32)>, Error> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(text.len() / 4);
    let (mut at, mut line) = (0, 1u32);
    while at < bytes.len() {
        match bytes[at] {
            b'\n' => {
                line += 1;
                at += 1;
            }
            // A driver hands over text with its terminating zero now and then.
            b' ' | b'\t' | b'\r' | 0 => at += 1,
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                while at < bytes.len() && bytes[at] != b'\n' {
                    at += 1;
                }
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                let length = text[at + 2..]
                    .find("*/")
                    .ok_or_else(|| Error::new(line, "comment without an end"))?;
                line += newlines(&bytes[at..at + 2 + length]);
                at += length + 4;
            }
            b'"' => {
                let length = text[at + 1..]
                    .find('"')
                    .ok_or_else(|| Error::new(line, "string without an end"))?;
                let inside = &text[at + 1..at + 1 + length];
                out.push((Token::Quoted(inside), line));
                line += newlines(inside.as_bytes());
                at += length + 2;
            }
            byte if in_word(byte) => {
                let start = at;
                loop {
                    if at < bytes.len() && in_word(bytes[at]) {
                        at += 1;
                    } else if bytes[at..].starts_with(b"::") {
                        // `.L2::128B` is one modifier; a label ends in a single colon.
                        at += 2;
                    } else {
                        break;
                    }
                }
                out.push((Token::Word(&text[start..at]), line));
            }
            byte if byte.is_ascii_graphic() => {
                out.push((Token::Mark(char::from(byte)), line));
                at += 1;
            }
            byte => {
                return Err(Error::new(
                    line,
                    format!("byte {byte:#04x} does not belong in PTX"),
                ));
            }
        }
    }
    Ok(out)
}

fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

fn newlines(bytes: &[u8]) -> u32 {
    bytes.iter().map(|&b| u32::from(b == b'\n')).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_modifiers_and_labels_end_at_their_colon() {
        let found =
            tokens("$L_1:\n ld.global.L2::128B.f32 %f1, [%rd2+-4]; // x\n/* a\n b */ \"s\"")
                .unwrap();
        let marks: Vec<_> = found.iter().map(|&(t, l)| (t, l)).collect();
        assert_eq!(marks[0], (Token::Word("$L_1"), 1));
        assert_eq!(marks[1], (Token::Mark(':'), 1));
        assert_eq!(marks[2], (Token::Word("ld.global.L2::128B.f32"), 2));
        assert_eq!(marks[8], (Token::Mark('-'), 2));
        assert_eq!(marks.last(), Some(&(Token::Quoted("s"), 4)));
    }

    #[test]
    fn foreign_bytes_are_errors_with_their_line() {
        assert_eq!(tokens("\n\n\u{7f}").unwrap_err().line, 3);
        assert_eq!(tokens("\n/* x").unwrap_err().line, 2);
    }
}
