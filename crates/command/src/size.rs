//! Sizes as a user writes and reads them: `256M`, `1.5G`, plain bytes.
//!
//! Units are powers of 1024. Arithmetic is exact: no size passes through a float.

/// The units, smallest first: letter and power of two.
const UNITS: [(char, u32); 4] = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];

/// Largest size taken: no address space is larger.
const MAX_BYTES: u128 = 1 << 57;

/// What a size looks like, for messages.
pub const EXPECTED: &str =
    "a size is a number with K, M, G or T, such as 256M or 1.5G, or plain bytes";

/// Bytes of a size such as `256M`, `1.5G`, `0.5GiB` or `4096`; `None` when `text` is not a size.
pub fn parse(text: &str) -> Option<u64> {
    let (number, shift) = split_unit(text)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let whole_bytes = digits(whole)?.checked_mul(1 << shift)?;
    let numerator = digits(fraction)? * (1 << shift);
    let fraction_bytes = numerator / 10u128.pow(u32::try_from(fraction.len()).ok()?);
    let bytes = whole_bytes.checked_add(fraction_bytes)?;
    (bytes <= MAX_BYTES).then(|| u64::try_from(bytes).ok()).flatten()
}

/// Splits `1.5GiB` into `1.5` and the power of two of its unit.
fn split_unit(text: &str) -> Option<(&str, u32)> {
    let short = text.strip_suffix("iB").unwrap_or(text);
    let unit = short.chars().last().and_then(|last| {
        UNITS.iter().find(|(letter, _)| letter.eq_ignore_ascii_case(&last)).map(|(_, shift)| *shift)
    });
    match unit {
        Some(shift) => Some((&short[..short.len() - 1], shift)),
        None => (short == text).then_some((text, 0)),
    }
}

/// A number of 1 to 20 decimal digits and nothing else.
fn digits(text: &str) -> Option<u128> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    (plain && (1..=20).contains(&text.len())).then(|| text.parse().ok()).flatten()
}

/// A size for people, in the largest unit of which there is at least one: `96.0 MiB`.
pub fn display(bytes: u64) -> String {
    match UNITS.iter().rev().find(|(_, shift)| bytes >> shift > 0) {
        Some((letter, shift)) => {
            let unit_bytes = 1u64 << shift;
            format!("{:.1} {letter}iB", bytes as f64 / unit_bytes as f64)
        }
        None => format!("{bytes} bytes"),
    }
}

/// Two sizes for people who see that they differ: in bytes where they are nearly alike.
pub fn display_apart(one: u64, other: u64) -> (String, String) {
    let shown = (display(one), display(other));
    match shown.0 == shown.1 {
        true => (format!("{one} bytes"), format!("{other} bytes")),
        false => shown,
    }
}

/// A size as [`parse`] takes it, to the byte: `1536K`.
pub fn exact(bytes: u64) -> String {
    let whole = |&&(_, shift): &&(char, u32)| bytes > 0 && bytes.is_multiple_of(1 << shift);
    match UNITS.iter().rev().find(whole) {
        Some((letter, shift)) => format!("{}{letter}", bytes >> shift),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact() {
        let table: [(&str, u64); 12] = [
            ("0", 0),
            ("4096", 4096),
            ("1K", 1 << 10),
            ("256M", 256 << 20),
            ("256m", 256 << 20),
            ("256MiB", 256 << 20),
            ("1.5G", 3 << 29),
            ("0.1K", 102),
            ("2T", 2 << 40),
            ("1.0", 1),
            ("0.25G", 1 << 28),
            ("131072T", 1 << 57),
        ];
        for (text, bytes) in table {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_size_is_refused() {
        let table = [
            "",
            "M",
            ".",
            "1.",
            ".5G",
            "1..5G",
            "-1M",
            "+1M",
            "1 M",
            "1MB",
            "MM",
            "1MM",
            "iB",
            "1iB",
            "0x10",
            "1e9",
            "131073T",
            "99999999999999999999999M",
            "1.000000000000000000000000000000000000000M",
            "1,5G",
            "½G",
            "autó",
        ];
        for text in table {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_read_well() {
        assert_eq!(display(0), "0 bytes");
        assert_eq!(display(1023), "1023 bytes");
        assert_eq!(display(1024), "1.0 KiB");
        assert_eq!(display(96 << 20), "96.0 MiB");
        assert_eq!(display(3 << 29), "1.5 GiB");
        let apart = |one, other| display_apart(one, other).0;
        assert_eq!(apart((1 << 20) - 1, 1 << 20), "1024.0 KiB");
        assert_eq!(apart((1 << 23) - 1, 1 << 23), "8388607 bytes");
    }

    #[test]
    fn exact_sizes_are_read_again() {
        let table = [
            (0, "0"),
            (100, "100"),
            (1 << 10, "1K"),
            (3 << 19, "1536K"),
            (1 << 20, "1M"),
            (1 << 57, "131072T"),
        ];
        for (bytes, text) in table {
            assert_eq!(exact(bytes), text);
            assert_eq!(parse(text), Some(bytes));
        }
    }
}
