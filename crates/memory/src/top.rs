//! The best few of many: the highest scores, and of equal ones the lowest numbers.
//!
//! Invariant: the order is total, so the result does not depend on the order in which things come.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Keeps the best.
pub(crate) struct Top {
    limit: usize,
    /// The worst of them is on top.
    heap: BinaryHeap<Reverse<(i64, Reverse<u32>)>>,
}

impl Top {
    pub fn new(limit: usize) -> Top {
        Top {
            limit,
            heap: BinaryHeap::new(),
        }
    }

    /// Takes one more, if it is among the best and wanted. What is wanted is asked last.
    #[inline]
    pub fn offer(&mut self, score: i64, number: u32, wants: &(impl Fn(u32) -> bool + ?Sized)) {
        let offered = Reverse((score, Reverse(number)));
        if self.heap.len() < self.limit {
            if wants(number) {
                self.heap.push(offered);
            }
        } else if let Some(mut worst) = self.heap.peek_mut()
            && offered < *worst
            && wants(number)
        {
            *worst = offered;
        }
    }

    /// The best first.
    pub fn finish(self) -> Vec<(i64, u32)> {
        let sorted = self.heap.into_sorted_vec().into_iter();
        let sorted = sorted.map(|Reverse((score, Reverse(number)))| (score, number));
        sorted.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_come_first_and_ties_by_number() {
        let offers = [(5, 9), (7, 3), (5, 2), (1, 1), (7, 4), (-3, 0)];
        for limit in 0..8 {
            let mut top = Top::new(limit);
            for (score, number) in offers {
                top.offer(score, number, &|number| number != 4);
            }
            let expected = [(7, 3), (5, 2), (5, 9), (1, 1), (-3, 0)];
            assert_eq!(top.finish(), expected[..limit.min(5)]);
        }
    }
}
