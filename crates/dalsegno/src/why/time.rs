//! Times for people: UTC, and how long ago.

/// A time in microseconds since 1970 for people, as in `2026-11-16 03:54:45.123 UTC`.
pub fn utc(us: u64) -> String {
    let (seconds, millis) = (us / 1_000_000, us / 1000 % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{millis:03} UTC")
}

/// The date of a day since 1970. Years are counted from March, so that a leap day is the last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

/// As in `3 min ago`.
pub(super) fn ago(us: u64, now_us: u64) -> String {
    let (past, span) = match now_us.checked_sub(us) {
        Some(span) => (true, span),
        None => (false, us - now_us),
    };
    let seconds = span / 1_000_000;
    let span = match seconds {
        0 => format!("{} ms", span / 1000),
        1..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    };
    match past {
        true => format!("{span} ago"),
        false => format!("in {span}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00.000 UTC"),
            (951_782_400, "2000-02-29 00:00:00.000 UTC"),
            (1_709_164_800, "2024-02-29 00:00:00.000 UTC"),
            (1_709_251_200, "2024-03-01 00:00:00.000 UTC"),
            (1_767_225_599, "2025-12-31 23:59:59.000 UTC"),
            (4_102_444_800, "2100-01-01 00:00:00.000 UTC"),
        ] {
            assert_eq!(utc(seconds * 1_000_000), text);
        }
        // Whatever is recorded, it is printed.
        assert!(utc(u64::MAX).ends_with("UTC"));
    }

    #[test]
    fn spans_are_short() {
        assert_eq!(ago(0, 1_500), "1 ms ago");
        assert_eq!(ago(90_000_000, 0), "in 90 s");
        assert_eq!(ago(0, 3 * 86_400 * 1_000_000), "3 days ago");
    }
}
