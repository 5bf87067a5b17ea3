//! A row: what was measured, against what, and whether that is good enough.

use std::fmt;

use crate::measure::{Round, median, quantile};

/// When a row is good enough. A ratio is always ours divided by the anchor.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    RatioAtMost(f64),
    RatioAtLeast(f64),
    OursBelow(f64),
    /// Whichever of the two is easier: ours, or the ratio.
    OursOrRatioAtLeast(f64, f64),
    /// Ours minus the anchor.
    GrowthBelow(f64),
    /// None: the figure is there to be known.
    Shown,
}

impl Goal {
    /// Whether it is met; `None` if there is nothing to meet.
    pub fn met(self, ours: f64, anchor: f64) -> Option<bool> {
        let ratio = ours / anchor;
        Some(match self {
            Goal::RatioAtMost(most) => ratio <= most,
            Goal::RatioAtLeast(least) => ratio >= least,
            Goal::OursBelow(limit) => ours < limit,
            Goal::OursOrRatioAtLeast(least, ratio_least) => ours >= least || ratio >= ratio_least,
            Goal::GrowthBelow(limit) => ours - anchor < limit,
            Goal::Shown => return None,
        })
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Goal::RatioAtMost(most) => write!(f, "ratio <= {most}"),
            Goal::RatioAtLeast(least) => write!(f, "ratio >= {least}"),
            Goal::OursBelow(limit) => write!(f, "ours < {limit}"),
            Goal::OursOrRatioAtLeast(least, ratio) => {
                write!(f, "ours >= {least} or ratio >= {ratio}")
            }
            Goal::GrowthBelow(limit) => write!(f, "ours - anchor < {limit}"),
            Goal::Shown => f.write_str("-"),
        }
    }
}

/// One line of the result.
#[derive(Debug)]
pub struct Row {
    pub name: String,
    pub unit: &'static str,
    pub anchor_name: &'static str,
    pub goal: Goal,
    pub rounds: Vec<Round>,
}

impl Row {
    /// The median of our side.
    pub fn ours(&self) -> f64 {
        median(&self.each(|round| round.ours))
    }

    /// The median of the anchor.
    pub fn anchor(&self) -> f64 {
        median(&self.each(|round| round.anchor))
    }

    /// The ratio of the medians.
    pub fn ratio(&self) -> f64 {
        self.ours() / self.anchor()
    }

    /// The middle half of the rounds' own ratios.
    pub fn spread(&self) -> (f64, f64) {
        let ratios = self.each(|round| round.ours / round.anchor);
        (quantile(&ratios, 0.25), quantile(&ratios, 0.75))
    }

    pub fn met(&self) -> Option<bool> {
        self.goal.met(self.ours(), self.anchor())
    }

    fn each(&self, side: impl Fn(&Round) -> f64) -> Vec<f64> {
        self.rounds.iter().map(side).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_exactly_up_to_its_limit() {
        for (goal, ours, anchor, met) in [
            (Goal::RatioAtMost(1.5), 3.0, 2.0, true),
            (Goal::RatioAtMost(1.5), 3.1, 2.0, false),
            (Goal::RatioAtLeast(12.0), 24.0, 2.0, true),
            (Goal::RatioAtLeast(12.0), 23.0, 2.0, false),
            (Goal::OursBelow(1000.0), 999.0, 1.0, true),
            (Goal::OursBelow(1000.0), 1000.0, 1.0, false),
            (Goal::OursOrRatioAtLeast(1000.0, 0.9), 1000.0, 9000.0, true),
            (Goal::OursOrRatioAtLeast(1000.0, 0.9), 90.0, 100.0, true),
            (Goal::OursOrRatioAtLeast(1000.0, 0.9), 89.0, 100.0, false),
            (Goal::GrowthBelow(8.0), 17.0, 10.0, true),
            (Goal::GrowthBelow(8.0), 18.0, 10.0, false),
            (Goal::RatioAtMost(1.5), f64::NAN, 2.0, false),
        ] {
            assert_eq!(
                goal.met(ours, anchor),
                Some(met),
                "{goal}: {ours} and {anchor}"
            );
        }
        assert_eq!(Goal::Shown.met(1.0, 1.0), None);
    }
}
