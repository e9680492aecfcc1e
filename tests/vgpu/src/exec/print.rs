//! `printf` in kernels.

use super::{
    access::space_of,
    block::{Common, Warp},
    lanes::lanes,
    step::Worker,
};
use crate::{program::LOCAL_WINDOW, ptx::Space};

/// The longest string that is followed.
const LONGEST: u64 = 4096;

impl Worker<'_> {
    /// `vprintf`: the pointers to the format and to the arguments lie in the frame.
    pub(super) fn print(
        &mut self,
        warp: &mut Warp,
        common: &Common,
        m: u32,
        format: u32,
        arguments: u32,
        result: u32,
    ) {
        for lane in lanes(m) {
            let local = warp.local.bytes(lane);
            let pointer = |offset: u32| read_local(local, u64::from(offset), 8);
            let format = self.string(local, pointer(format));
            let text = render(
                &format,
                pointer(arguments),
                &mut |address, bytes| self.read(local, address, bytes),
                &|address| self.string(local, address),
            );
            self.printed.push((common.number, text));
            if result != u32::MAX {
                // As C has it, the number of arguments is what CUDA returns; nobody looks.
                warp.local.bytes_mut(lane)[result as usize..][..4]
                    .copy_from_slice(&1u32.to_le_bytes());
            }
        }
    }

    /// What an assertion that failed says; its text, file and line lie in the frame.
    pub(super) fn assertion(
        &self,
        warp: &Warp,
        lane: usize,
        [text, file, line]: [u32; 3],
    ) -> String {
        let local = warp.local.bytes(lane);
        let string = |offset: u32| {
            let bytes = self.string(local, read_local(local, u64::from(offset), 8));
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let line = read_local(local, u64::from(line), 4);
        format!(
            "assertion `{}` failed at {}:{line}",
            string(text),
            string(file)
        )
    }

    /// Up to 8 bytes at a generic address; zero where nothing is.
    fn read(&self, local: &[u8], address: u64, bytes: usize) -> u64 {
        match space_of(address) {
            Space::Local => read_local(local, address - LOCAL_WINDOW, bytes),
            _ => {
                let mut out = [0; 8];
                // A string or an argument that is not there prints as nothing; the access itself was the kernel's.
                let _ = self.machine.memory.read(address, &mut out[..bytes]);
                u64::from_le_bytes(out)
            }
        }
    }

    fn string(&self, local: &[u8], address: u64) -> Vec<u8> {
        (0..LONGEST)
            .map(|i| self.read(local, address.wrapping_add(i), 1) as u8)
            .take_while(|&b| b != 0)
            .collect()
    }
}

fn read_local(local: &[u8], offset: u64, bytes: usize) -> u64 {
    let mut out = [0; 8];
    if let Some(found) = local
        .get(offset as usize..)
        .and_then(|rest| rest.get(..bytes))
    {
        out[..bytes].copy_from_slice(found);
    }
    u64::from_le_bytes(out)
}

/// One conversion of a format.
#[derive(Default)]
struct Spec {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
    long: bool,
}

/// The text of a format with its arguments, which lie one after the other, each aligned to its size.
fn render(
    format: &[u8],
    mut arguments: u64,
    read: &mut dyn FnMut(u64, usize) -> u64,
    string: &dyn Fn(u64) -> Vec<u8>,
) -> String {
    let mut out = Vec::new();
    let mut next = |bytes: usize| {
        arguments = arguments.next_multiple_of(bytes as u64);
        let value = read(arguments, bytes);
        arguments += bytes as u64;
        value
    };
    let mut at = 0;
    while at < format.len() {
        if format[at] != b'%' {
            out.push(format[at]);
            at += 1;
            continue;
        }
        at += 1;
        let mut spec = Spec::default();
        while let Some(&flag) = format.get(at) {
            match flag {
                b'-' => spec.left = true,
                b'+' => spec.plus = true,
                b' ' => spec.space = true,
                b'#' => spec.alternate = true,
                b'0' => spec.zero = true,
                _ => break,
            }
            at += 1;
        }
        let mut number = |at: &mut usize| {
            if format.get(*at) == Some(&b'*') {
                *at += 1;
                return next(4) as usize;
            }
            let mut value = 0;
            while let Some(digit) = format.get(*at).filter(|b| b.is_ascii_digit()) {
                value = (value * 10 + usize::from(digit - b'0')).min(1024);
                *at += 1;
            }
            value
        };
        spec.width = number(&mut at).min(1024);
        if format.get(at) == Some(&b'.') {
            at += 1;
            spec.precision = Some(number(&mut at).min(1024));
        }
        while let Some(&size) = format.get(at) {
            match size {
                // `long` has 64 bits on the hosts that CUDA runs on.
                b'l' | b'j' | b'z' | b't' => spec.long = true,
                b'h' => {}
                _ => break,
            }
            at += 1;
        }
        let Some(&conversion) = format.get(at) else {
            break;
        };
        at += 1;
        let integer_bytes = if spec.long { 8 } else { 4 };
        let text = match conversion {
            b'%' => "%".into(),
            b'd' | b'i' => {
                let bits = next(integer_bytes);
                let value = if spec.long {
                    bits as i64
                } else {
                    i64::from(bits as i32)
                };
                signed(&spec, value.unsigned_abs().to_string(), value < 0)
            }
            b'u' => digits(&spec, next(integer_bytes).to_string()),
            b'x' => digits(
                &spec,
                format!(
                    "{}{:x}",
                    if spec.alternate { "0x" } else { "" },
                    next(integer_bytes)
                ),
            ),
            b'X' => digits(
                &spec,
                format!(
                    "{}{:X}",
                    if spec.alternate { "0X" } else { "" },
                    next(integer_bytes)
                ),
            ),
            b'o' => digits(&spec, format!("{:o}", next(integer_bytes))),
            b'p' => format!("{:#x}", next(8)),
            b'c' => char::from(next(4) as u8).to_string(),
            b's' => {
                let text = string(next(8));
                let text = String::from_utf8_lossy(&text).into_owned();
                spec.precision
                    .map_or(text.clone(), |p| text.chars().take(p).collect())
            }
            b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
                float(&spec, conversion, f64::from_bits(next(8)))
            }
            other => format!("%{}", char::from(other)),
        };
        let missing = spec.width.saturating_sub(text.chars().count());
        if !spec.left {
            out.extend(std::iter::repeat_n(b' ', missing));
        }
        out.extend_from_slice(text.as_bytes());
        if spec.left {
            out.extend(std::iter::repeat_n(b' ', missing));
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn digits(spec: &Spec, text: String) -> String {
    let least = match spec.precision {
        Some(precision) => precision,
        None if spec.zero && !spec.left => spec.width,
        None => 0,
    };
    format!("{}{text}", "0".repeat(least.saturating_sub(text.len())))
}

fn signed(spec: &Spec, text: String, negative: bool) -> String {
    let sign = sign(spec, negative);
    let inner = Spec {
        width: spec.width.saturating_sub(sign.len()),
        ..*spec
    };
    format!("{sign}{}", digits(&inner, text))
}

fn sign(spec: &Spec, negative: bool) -> &'static str {
    match (negative, spec.plus, spec.space) {
        (true, ..) => "-",
        (false, true, _) => "+",
        (false, false, true) => " ",
        _ => "",
    }
}

fn float(spec: &Spec, conversion: u8, value: f64) -> String {
    let magnitude = value.abs();
    let precision = spec.precision.unwrap_or(6);
    let text = if !value.is_finite() {
        if value.is_nan() {
            "nan".into()
        } else {
            "inf".into()
        }
    } else {
        match conversion.to_ascii_lowercase() {
            b'e' => exponential(magnitude, precision),
            b'g' => general(magnitude, precision.max(1)),
            _ => format!("{magnitude:.precision$}"),
        }
    };
    let text = if conversion.is_ascii_uppercase() {
        text.to_uppercase()
    } else {
        text
    };
    let plain = Spec {
        precision: None,
        ..*spec
    };
    signed(&plain, text, value.is_sign_negative() && !value.is_nan())
}

/// `%e`: at least two digits of exponent, with its sign.
fn exponential(magnitude: f64, precision: usize) -> String {
    let text = format!("{magnitude:.precision$e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, digits) = exponent
                .strip_prefix('-')
                .map_or(('+', exponent), |d| ('-', d));
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        None => text,
    }
}

/// `%g`: the shorter of the two forms, without trailing zeros.
fn general(magnitude: f64, precision: usize) -> String {
    let text = exponential(magnitude, precision - 1);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = exponent.parse().unwrap_or(0);
    let trim = |digits: &str| {
        if digits.contains('.') {
            digits
                .trim_end_matches('0')
                .trim_end_matches('.')
                .to_string()
        } else {
            digits.to_string()
        }
    };
    if power < -4 || power >= precision as i32 {
        format!("{}e{exponent}", trim(mantissa))
    } else {
        let places = (precision as i32 - 1 - power).max(0) as usize;
        trim(&format!("{magnitude:.places$}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(format: &str, words: &[u64]) -> String {
        let mut memory = Vec::new();
        for word in words {
            memory.extend_from_slice(&word.to_le_bytes());
        }
        render(
            format.as_bytes(),
            0,
            &mut |address, bytes| read_local(&memory, address, bytes),
            &|address| format!("s{address}").into_bytes(),
        )
    }

    #[test]
    fn conversions_of_c() {
        // Two 32-bit arguments share a word.
        assert_eq!(
            printed("%d %u|%5d|", &[7 << 32 | 0xffff_fffd, 42]),
            "-3 7|   42|"
        );
        assert_eq!(printed("%-4d|%04d|%+d", &[5 << 32 | 5, 5]), "5   |0005|+5");
        assert_eq!(printed("%lld %llx", &[u64::MAX, 255]), "-1 ff");
        assert_eq!(
            printed("%f %.2f", &[1.5f64.to_bits(), 2.0f64.to_bits()]),
            "1.500000 2.00"
        );
        assert_eq!(
            printed("%e %g", &[12345.678f64.to_bits(), 0.0001f64.to_bits()]),
            "1.234568e+04 0.0001"
        );
        assert_eq!(
            printed("%g %g", &[1e20f64.to_bits(), 100.0f64.to_bits()]),
            "1e+20 100"
        );
        assert_eq!(printed("%s %c%%", &[9, 65]), "s9 A%");
        assert_eq!(printed("%8.3f|", &[(-1.5f64).to_bits()]), "  -1.500|");
    }
}
