//! Sizes as people write them.

use crate::ArgumentError;

/// A number of bytes: `67108864`, `64MiB`, `64M` (1024 each) or `64MB` (1000 each).
///
/// # Errors
/// [`ArgumentError::Size`] for what is no size, or passes 64 bits.
pub fn parse_size(text: &str) -> Result<u64, ArgumentError> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match text[digits.len()..].trim() {
        "" | "B" => Some((1, 0)),
        "kB" => Some((1000, 1)),
        "MB" => Some((1000, 2)),
        "GB" => Some((1000, 3)),
        "K" | "KiB" => Some((1024u64, 1)),
        "M" | "MiB" => Some((1024, 2)),
        "G" | "GiB" => Some((1024, 3)),
        _ => None,
    };
    let number: Option<u64> = digits.parse().ok();
    let bytes = unit.and_then(|(base, power)| number?.checked_mul(base.pow(power)));
    bytes.ok_or_else(|| ArgumentError::Size { text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let sizes = ["7", "64MiB", "64M", "2GB", "3 KiB"].map(|text| parse_size(text).unwrap());
        assert_eq!(sizes, [7, 64 << 20, 64 << 20, 2_000_000_000, 3072]);
        for wrong in ["", "MiB", "4 parsecs", "1e6", "99999999999GiB", "-1"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
