//! The greedy choice, as for set cover: the candidate that takes the most tuples in, then again with those that are left.

use super::{MergeLimits, Merger, TupleGroup};
use crate::lane_mask::{LaneMask, bits, lane_count, union, within};
use crate::segment::SegmentShape;
use crate::table::MAX_MEMBERS;

/// Candidates of one round that are tried, at most.
const TRIALS: usize = 48;
/// Keys that are counted in rounds that find nothing, about at most.
const MAX_UNPROFITABLE: usize = 4 << 20;

impl Merger<'_> {
    /// Groups of the tuples of `left`, each in one. Counts only get smaller from round to round, so that those of earlier
    /// rounds are bounds.
    pub(super) fn greedy(
        &mut self,
        candidates: &[LaneMask],
        left: &[usize],
        limits: MergeLimits,
    ) -> Vec<TupleGroup> {
        let mut left = left.to_vec();
        let mut groups = Vec::new();
        let fits = |mask: &LaneMask, number: usize| within(mask, &self.tuples[number].mask);
        let mut open: Vec<(usize, LaneMask)> =
            candidates.iter().map(|mask| (left.iter().filter(|&&n| fits(mask, n)).count(), *mask)).collect();
        let mut unprofitable = 0;
        while left.len() > 1 && unprofitable < MAX_UNPROFITABLE {
            open.retain(|&(max_fit, _)| max_fit > 1);
            if open.is_empty() {
                break;
            }
            open.sort_by_key(|&(max_fit, mask)| std::cmp::Reverse((max_fit, bits(&mask))));
            let mut best: Option<(Vec<usize>, LaneMask)> = None;
            let counted = self.tally.counted;
            for (max_fit, mask) in open.iter_mut().take(TRIALS) {
                let found = best.as_ref().map_or(1, |(numbers, _)| numbers.len());
                if *max_fit < found {
                    break;
                }
                let taken = self.trial(mask, &left, limits);
                *max_fit = taken.len().min(*max_fit);
                let tighter = || best.as_ref().is_none_or(|(_, than)| bits(mask) > bits(than));
                if taken.len() > found || taken.len() == found && found > 1 && tighter() {
                    best = Some((taken, *mask));
                }
            }
            let Some((taken, _)) = best else {
                // That none of these takes two in is known now; others may.
                unprofitable += self.tally.counted - counted;
                continue;
            };
            left.retain(|number| !taken.contains(number));
            groups.push(TupleGroup::new(taken, self.tuples));
        }
        groups.extend(left.into_iter().map(|number| TupleGroup::single(number, &self.tuples[number].mask)));
        groups
    }

    /// The tuples of `left` that a table with this relaxed mask would take in.
    fn trial(&mut self, mask: &LaneMask, left: &[usize], limits: MergeLimits) -> Vec<usize> {
        self.tally.clear();
        let mut taken = Vec::new();
        let mut span = *mask;
        for &number in left {
            let tuple = &self.tuples[number];
            if !within(mask, &tuple.mask) || taken.len() == MAX_MEMBERS {
                continue;
            }
            let wider = union(&span, &tuple.mask);
            // Keys that are longer than any member's own would waste memory.
            let longest = lane_count(&tuple.mask).max(lane_count(&span)).max(SegmentShape::SMALL.lanes);
            let fits = SegmentShape::for_lanes(lane_count(&wider)) == SegmentShape::for_lanes(longest);
            if fits && self.tally.take_in(&tuple.sample, mask, self.share, limits) {
                taken.push(number);
                span = wider;
            }
        }
        taken
    }
}
