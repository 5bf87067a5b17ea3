//! Slices, rounds and medians.
//!
//! Invariant: ours and the anchor take turns in slices of a fraction of a second, so a slow second
//! of the machine falls on both.

use std::time::{Duration, Instant};

use crate::Error;

/// How long a slice of one side lasts.
pub const SLICE: Duration = Duration::from_millis(60);

/// What one round measured, both in the row's unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    pub ours: f64,
    pub anchor: f64,
}

/// Runs a slice of each side per round; who begins alternates. One round before goes uncounted.
pub fn alternate(
    rounds: usize,
    mut ours: impl FnMut() -> Result<f64, Error>,
    mut anchor: impl FnMut() -> Result<f64, Error>,
) -> Result<Vec<Round>, Error> {
    ours()?;
    anchor()?;
    let mut measured = Vec::with_capacity(rounds);
    for i in 0..rounds {
        measured.push(if i % 2 == 0 {
            let ours = ours()?;
            let anchor = anchor()?;
            Round { ours, anchor }
        } else {
            let anchor = anchor()?;
            let ours = ours()?;
            Round { ours, anchor }
        });
    }
    Ok(measured)
}

/// The median time of an operation, in microseconds, repeated for a slice.
pub fn median_micros(mut operation: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let mut micros = Vec::new();
    let deadline = Instant::now() + SLICE;
    let mut before = Instant::now();
    while before < deadline {
        operation()?;
        let after = Instant::now();
        micros.push((after - before).as_secs_f64() * 1e6);
        before = after;
    }
    Ok(median(&micros))
}

/// How often per second an operation can be repeated, over a slice.
pub fn per_second(mut operation: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let start = Instant::now();
    let mut count = 0_u32;
    while start.elapsed() < SLICE {
        operation()?;
        count += 1;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}

/// The middle value; NaN of nothing.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value below which the given part of the values lies, between neighbours if need be.
pub fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let at = last as f64 * part;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn quantiles_lie_between_neighbours() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(median(&values), 2.5);
        assert_eq!(quantile(&values, 0.0), 1.0);
        assert_eq!(quantile(&values, 0.25), 1.75);
        assert_eq!(quantile(&values, 1.0), 4.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn both_sides_take_turns_in_beginning() {
        let order = std::cell::RefCell::new(String::new());
        let side = |name| {
            order.borrow_mut().push(name);
            Ok(1.0)
        };
        let rounds = alternate(3, || side('o'), || side('a')).unwrap();
        assert_eq!(rounds.len(), 3);
        assert_eq!(*order.borrow(), "oaoaaooa");
    }
}
