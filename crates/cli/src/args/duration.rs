//! Spans of time as people write them.

use std::time::Duration;

/// A span of time as in `500ms`, `30s`, `5m`, `2h`, `1d`; a bare number is of seconds.
///
/// # Errors
/// It is none.
pub fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let seconds = match unit.trim() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(WANTED.into()),
    };
    let number: f64 = number.parse().map_err(|_| WANTED.to_owned())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| WANTED.to_owned())
}

/// The same, and not nothing.
///
/// # Errors
/// It is no span of time, or no time at all.
pub fn parse_some(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("in no time nothing can be done".to_owned()),
        time => Ok(time),
    }
}

const WANTED: &str = "a time is as in 500ms, 30s, 5m, 2h, 1d";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read() {
        for (text, ms) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("1.5", 1500),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("0", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "-1s", "1 fortnight", "1e400", "1..2"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
