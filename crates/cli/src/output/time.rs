//! Times for people: how long, and when in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in microseconds since 1970.
pub fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    // A clock before 1970 is no reason to stop.
    now.map_or(0, |now| now.as_micros() as u64)
}

/// How long, as in `3m 12s`: the two largest units.
pub fn span(us: u64) -> String {
    let seconds = us / 1_000_000;
    let pair = |large: u64, a: &str, small: u64, b: &str| match small {
        0 => format!("{large}{a}"),
        _ => format!("{large}{a} {small}{b}"),
    };
    match seconds {
        0 if us < 1000 => format!("{us}µs"),
        0 => format!("{}ms", us / 1000),
        1..10 => format!("{seconds}.{}s", us / 100_000 % 10),
        10..60 => format!("{seconds}s"),
        60..3600 => pair(seconds / 60, "m", seconds % 60, "s"),
        3600..86_400 => pair(seconds / 3600, "h", seconds / 60 % 60, "m"),
        _ => pair(seconds / 86_400, "d", seconds / 3600 % 24, "h"),
    }
}

/// How long ago; a time in the future, by another machine's clock, is `now`.
pub fn age(us: u64, now_us: u64) -> String {
    match now_us.checked_sub(us) {
        Some(past) if past >= 1000 => span(past),
        _ => "now".to_owned(),
    }
}

/// When, as RFC 3339 in UTC: `2026-11-16T03:54:45.123Z`.
pub fn utc(us: u64) -> String {
    let text = dalsegno::utc(us);
    let (date, time) = text.split_once(' ').unwrap_or((&text, ""));
    format!("{date}T{}Z", time.trim_end_matches(" UTC"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units() {
        for (us, text) in [
            (0, "0µs"),
            (999, "999µs"),
            (12_000, "12ms"),
            (1_500_000, "1.5s"),
            (59_900_000, "59s"),
            (192_000_000, "3m 12s"),
            (180_000_000, "3m"),
            (3_660_000_000, "1h 1m"),
            (90_000_000_000, "1d 1h"),
        ] {
            assert_eq!(span(us), text);
        }
        assert_eq!(age(10, 5), "now");
        assert_eq!(age(0, 60_000_000), "1m");
    }

    #[test]
    fn times_are_rfc_3339() {
        assert_eq!(utc(1_709_164_800_123_456), "2024-02-29T00:00:00.123Z");
        assert!(utc(u64::MAX).ends_with('Z'));
    }
}
