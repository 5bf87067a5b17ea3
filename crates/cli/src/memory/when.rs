//! Times and versions as people write them.
//!
//! | written | is |
//! |---|---|
//! | `12`, `12@HASH` | a version; the hash must be that of the history |
//! | `2026-11-16`, `2026-11-16T09:30`, `…:05`, `…:05.250`, with `Z` or `+01:00` | a time; UTC without |
//! | `90s`, `30m`, `2h`, `1d` | so long ago |
//!
//! Invariant: a time is as long as it is written. `2026-11-16` is all of that day: "since" it means its
//! first moment, "as of" it means its last one.

use dalsegno_memory::{AsOf, Memory};
use dalsegno_store::{Hash, Version};

use crate::args::duration;
use crate::exit::Result;
use crate::output::time;

/// A version or a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// A version.
    Version(AsOf),
    /// A time.
    Time(Time),
}

impl When {
    /// The version that is meant, if this memory has it.
    ///
    /// # Errors
    /// It has not, or cannot be read.
    pub async fn find(self, memory: &Memory) -> Result<Version> {
        Ok(match self {
            When::Version(as_of) => memory.version_as_of(as_of).await?,
            When::Time(time) => memory.version_at_us(time.last_us()).await?,
        })
    }
}

/// The version that an option names, or the newest.
///
/// # Errors
/// As [`When::find`].
pub async fn find(when: Option<When>, memory: &Memory) -> Result<Version> {
    match when {
        Some(when) => when.find(memory).await,
        None => Ok(memory.version().await?),
    }
}

/// A stretch of time, in microseconds since 1970: from, and until before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    from_us: i64,
    until_us: i64,
}

impl Time {
    /// Its first moment.
    pub fn start_us(self) -> i64 {
        self.from_us
    }

    /// Its last moment, if that is after 1970.
    pub fn last_us(self) -> u64 {
        u64::try_from(self.until_us.saturating_sub(1)).unwrap_or(0)
    }
}

const WANTED: &str =
    "a time is as in 2026-11-16, 2026-11-16T09:30, 2026-11-16T09:30:05Z, or 2h for two hours ago";

/// A version or a time.
///
/// # Errors
/// It is neither.
pub fn version_or_time(text: &str) -> Result<When, String> {
    if text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() {
        let number = text.parse().map_err(|_| "there are no such versions")?;
        return Ok(When::Version(AsOf::Sequence(number)));
    }
    if let Some((sequence, hash)) = text.split_once('@') {
        let wanted = "a version is a number, or a number, @ and the 64 digits of its hash";
        let sequence = sequence.parse().map_err(|_| wanted)?;
        let hash: Hash = hash.parse().map_err(|_| wanted)?;
        return Ok(When::Version(AsOf::Version(Version { sequence, hash })));
    }
    let time = time(text).map_err(|wanted| format!("a version is a number, and {wanted}"))?;
    Ok(When::Time(time))
}

/// A time.
///
/// # Errors
/// It is none.
pub fn time(text: &str) -> Result<Time, String> {
    let ago = text.ends_with(|c: char| c.is_ascii_lowercase());
    if let (true, Ok(ago)) = (ago, duration::parse(text)) {
        let ago_us = i64::try_from(ago.as_micros()).map_err(|_| WANTED)?;
        let now_us = i64::try_from(time::now_us()).map_err(|_| WANTED)?;
        let from_us = now_us.saturating_sub(ago_us);
        let until_us = from_us.saturating_add(1);
        return Ok(Time { from_us, until_us });
    }
    written(text).ok_or_else(|| WANTED.to_owned())
}

const DAY_US: i64 = 86_400_000_000;

/// As in RFC 3339, of which the end may be left out.
fn written(text: &str) -> Option<Time> {
    let (date, rest) = match text.split_at_checked(10)? {
        (date, "") => (date, None),
        (date, rest) => (date, Some(rest.strip_prefix(['T', 't', ' '])?)),
    };
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let days = days(year, month, day)?;
    let (in_day_us, long_us, offset_us) = match rest {
        None => (0, DAY_US, 0),
        Some(rest) => clock(rest)?,
    };
    let from_us = days
        .checked_mul(DAY_US)?
        .checked_add(in_day_us)?
        .checked_sub(offset_us)?;
    let until_us = from_us.checked_add(long_us)?;
    Some(Time { from_us, until_us })
}

/// The time of a day, how long it is, and how far it is from UTC.
fn clock(text: &str) -> Option<(i64, i64, i64)> {
    let zone = text.find(['Z', 'z', '+', '-']).unwrap_or(text.len());
    let (clock, zone) = text.split_at(zone);
    let offset_us = match zone.split_at_checked(1) {
        None => 0,
        Some(("Z" | "z", "")) => 0,
        Some((sign, offset)) => {
            let [hours, minutes] = numbers(offset, ':', [2, 2])?;
            let minutes = hours * 60 + minutes;
            (minutes < 24 * 60).then_some(())?;
            minutes * 60_000_000 * if sign == "-" { -1 } else { 1 }
        }
    };
    let (whole, fraction) = match clock.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (clock, None),
    };
    let (hours, minutes, seconds) = match whole.len() {
        5 => {
            let [hours, minutes] = numbers(whole, ':', [2, 2])?;
            (hours, minutes, None)
        }
        _ => {
            let [hours, minutes, seconds] = numbers(whole, ':', [2, 2, 2])?;
            (hours, minutes, Some(seconds))
        }
    };
    (hours < 24 && minutes < 60 && seconds.unwrap_or(0) < 60).then_some(())?;
    let whole_us = ((hours * 60 + minutes) * 60 + seconds.unwrap_or(0)) * 1_000_000;
    let (fraction_us, long_us) = match (fraction, seconds) {
        (None, None) => (0, 60_000_000),
        (None, Some(_)) => (0, 1_000_000),
        (Some(digits), Some(_)) if (1..=6).contains(&digits.len()) => {
            let long_us = 10i64.pow(6 - u32::try_from(digits.len()).ok()?);
            let [number] = numbers(digits, ':', [digits.len()])?;
            (number * long_us, long_us)
        }
        _ => return None,
    };
    Some((whole_us + fraction_us, long_us, offset_us))
}

/// Numbers with so many digits each.
fn numbers<const N: usize>(text: &str, between: char, digits: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(between);
    let mut found = [0; N];
    for (number, digits) in found.iter_mut().zip(digits) {
        let part = parts.next()?;
        let is_number = part.len() == digits && part.bytes().all(|b| b.is_ascii_digit());
        *number = part.parse().ok().filter(|_| is_number)?;
    }
    parts.next().is_none().then_some(found)
}

/// Days since 1970, in the calendar of today.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let longest = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    (1..=longest).contains(&day).then_some(())?;
    // Years begin in March here, so that the leap day is the last of its year.
    let (year, month) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * month + 2) / 5 + day - 1;
    Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn times_are_read_as_they_are_shown() {
        for us in [
            0,
            951_782_399_999_000,
            1_709_164_800_123_000,
            4_102_444_799_000_000,
        ] {
            let read = time(&time::utc(us)).unwrap();
            assert_eq!(read.start_us(), us as i64);
            assert_eq!(
                read.last_us(),
                us + 999,
                "a millisecond is as long as it is written"
            );
        }
    }

    #[test]
    fn a_time_is_as_long_as_it_is_written() {
        let second = 1_000_000;
        for (text, from, long) in [
            ("1970-01-01", 0, 86_400 * second),
            ("1970-01-01T00:01", 60 * second, 60 * second),
            ("1970-01-01 00:00:02", 2 * second, second),
            ("1970-01-01T00:00:02.5Z", 2 * second + 500_000, 100_000),
            ("1970-01-01T01:00:00.000001+01:00", 1, 1),
            ("1969-12-31T23:59-00:30", 29 * 60 * second, 60 * second),
        ] {
            let read = time(text).unwrap();
            assert_eq!((read.from_us, read.until_us), (from, from + long), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "x",
            "2026-13-01",
            "2026-02-29",
            "2026-1-1",
            "2026-11-16T",
            "2026-11-16T9:30",
            "2026-11-16T24:00",
            "2026-11-16T09:60",
            "2026-11-16T09:30:05.",
            "2026-11-16T09:30.5",
            "2026-11-16T09:30+1",
            "2026-11-16X09:30",
            "２０２６-11-16",
            "2026-11-16T09:30:05.1234567",
            "yesterday",
            "-2h",
        ] {
            assert!(time(text).is_err(), "{text}");
        }
        for text in ["12@", "@", "12@abc", "99999999999999999999", "-1"] {
            assert!(version_or_time(text).is_err(), "{text}");
        }
        assert_eq!(
            version_or_time("12").unwrap(),
            When::Version(AsOf::Sequence(12))
        );
        let version = format!("12@{}", Hash::of(b"x"));
        assert!(matches!(
            version_or_time(&version).unwrap(),
            When::Version(AsOf::Version(Version { sequence: 12, .. }))
        ));
        assert!(matches!(version_or_time("2h").unwrap(), When::Time(_)));
    }
}
