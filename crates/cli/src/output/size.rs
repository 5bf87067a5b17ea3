//! Sizes for people.

/// As in `16.8 MB`: powers of 1000.
pub fn bytes(count: u64) -> String {
    let mut size = count as f64;
    let mut unit = "B";
    for next in ["KB", "MB", "GB", "TB"] {
        if size < 999.5 {
            break;
        }
        size /= 1000.0;
        unit = next;
    }
    match unit {
        "B" => format!("{count} B"),
        _ if size < 9.95 => format!("{size:.1} {unit}"),
        _ => format!("{size:.0} {unit}"),
    }
}

/// As in `1 run` or `3 runs`.
pub fn count(count: u64, what: &str) -> String {
    match (count, what.ends_with("ch")) {
        (1, _) => format!("1 {what}"),
        (_, true) => format!("{count} {what}es"),
        _ => format!("{count} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_two_or_three_digits() {
        for (size, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 KB"),
            (16_777_216, "17 MB"),
            (999_999, "1.0 MB"),
            (1_500_000_000, "1.5 GB"),
        ] {
            assert_eq!(bytes(size), text);
        }
        assert_eq!(count(1, "run"), "1 run");
        assert_eq!(count(0, "run"), "0 runs");
    }
}
