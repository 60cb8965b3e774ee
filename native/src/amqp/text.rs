//! Values as text, as `coldstream/rows/cells.py` and `coldstream/format/amqp/json.py` make it, to the letter.

use std::fmt::Write;

use super::scalar::Scalar;

const DAY_MS: i64 = 86_400_000;
pub const LEAST_MS: i64 = -62_135_596_800_000;
pub const MOST_MS: i64 = 253_402_300_799_999;
const MOST_DIGITS: usize = 20;

/// Append the text of a value: text as it is, bytes if they are UTF-8, and anything else as JSON. Null has none.
pub fn append(out: &mut Vec<u8>, value: Scalar<'_>) {
    match value {
        Scalar::Null => {}
        Scalar::Text(text) | Scalar::Symbol(text) => out.extend_from_slice(text.as_bytes()),
        Scalar::Char(one) => out.extend_from_slice(one.encode_utf8(&mut [0; 4]).as_bytes()),
        Scalar::Boolean(is_true) => out.extend_from_slice(if is_true { b"true" } else { b"false" }),
        Scalar::Unsigned(number) => digits(out, number),
        Scalar::Signed(number) => {
            if number < 0 {
                out.push(b'-');
            }
            digits(out, number.unsigned_abs());
        }
        Scalar::Float(number) => float(out, number),
        Scalar::Timestamp(ms) => timestamp(out, ms),
        Scalar::Uuid(bytes) => {
            let text = format!("{:032x}", u128::from_be_bytes(*bytes));
            for (number, digit) in text.bytes().enumerate() {
                if matches!(number, 8 | 12 | 16 | 20) {
                    out.push(b'-');
                }
                out.push(digit);
            }
        }
        Scalar::Decimal(bytes) => {
            out.extend_from_slice(b"{\"decimal\": \"");
            for octet in bytes {
                formatted(out, format_args!("{octet:02x}"));
            }
            out.extend_from_slice(b"\"}");
        }
        Scalar::Binary(bytes) => {
            if std::str::from_utf8(bytes).is_ok() {
                out.extend_from_slice(bytes);
            } else {
                out.extend_from_slice(b"{\"base64\": \"");
                base64(out, bytes);
                out.extend_from_slice(b"\"}");
            }
        }
    }
}

/// Numbers are common in properties, and a formatter takes ten times as long.
fn digits(out: &mut Vec<u8>, number: u64) {
    let (mut all, mut first, mut left) = ([0; MOST_DIGITS], 0, number);
    for (place, digit) in all.iter_mut().enumerate().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
        first = place;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(all.get(first..).unwrap_or_default());
}

fn formatted(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    struct Sink<'a>(&'a mut Vec<u8>);
    impl Write for Sink<'_> {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
    // A vector takes everything.
    let _ = Sink(out).write_fmt(text);
}

/// As Python's `repr` writes it: the fewest digits that give the number back, with an exponent below -4 or from 16 on.
fn float(out: &mut Vec<u8>, number: f64) {
    if number.is_nan() {
        return out.extend_from_slice(b"nan");
    }
    if number.is_infinite() {
        return out.extend_from_slice(if number < 0.0 { b"-inf" } else { b"inf" });
    }
    let text = format!("{:e}", number.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits: String = mantissa.chars().filter(|letter| *letter != '.').collect();
    if number.is_sign_negative() {
        out.push(b'-');
    }
    if !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        formatted(out, format_args!("{mantissa}e{sign}{:02}", exponent.abs()));
    } else if exponent < 0 {
        formatted(
            out,
            format_args!("0.{:0>width$}", digits, width = digits.len() + exponent.unsigned_abs() as usize - 1),
        );
    } else {
        let whole = exponent.unsigned_abs() as usize + 1;
        let padded = format!("{digits:0<width$}", width = whole + 1);
        let (before, after) = padded.split_at_checked(whole).unwrap_or((&padded, "0"));
        formatted(out, format_args!("{before}.{after}"));
    }
}

/// RFC 3339 in UTC with milliseconds; plain milliseconds outside the years 1 to 9999.
fn timestamp(out: &mut Vec<u8>, ms: i64) {
    if !(LEAST_MS..=MOST_MS).contains(&ms) {
        return formatted(out, format_args!("{ms}"));
    }
    let (day, of_day) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
    // Days since 0000-03-01, so that a leap day ends its year: eras of 400 years, years, then months of 153 in five.
    let since = day + 719_468;
    let (era, day_of_era) = (since.div_euclid(146_097), since.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, rest) = (of_day / 1000 % 60, of_day % 1000);
    formatted(out, format_args!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{rest:03}Z"));
}

fn base64(out: &mut Vec<u8>, bytes: &[u8]) {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0u32, |bits, octet| bits << 8 | u32::from(*octet)) << (8 * (3 - group.len()));
        for place in 0..4usize {
            let letter = LETTERS.get((bits >> (18 - 6 * place) & 63) as usize).copied();
            out.push(if place <= group.len() { letter.unwrap_or(b'=') } else { b'=' });
        }
    }
}
