//! Queues of directions: two for held bytes, one for packets to generate, one for early
//! acknowledgments.
//!
//! The links are in the records of the directions. So a queue needs no extra memory. A direction is in a
//! queue at most once, and can leave it from any position when its stream ends.

use super::links::{DirectionId, Links};
use super::side::{EditSide, EditStreams};

/// Directions with held bytes, in the order in which they are due.
pub(crate) const WAITING: usize = 0;
/// Directions with packets to generate.
pub(crate) const READY: usize = 1;
/// Directions whose receivers have not acknowledged all early-acknowledged bytes, in the order in which their
/// timers expire.
pub(crate) const POLLED: usize = 2;
/// Directions with bytes that are held for a long time, in the order in which they are due.
pub(crate) const WAITING_LONG: usize = 3;

/// One of the queues.
#[derive(Debug, Default)]
pub(crate) struct DirectionQueue<const QUEUE: usize> {
    first: Option<DirectionId>,
    last: Option<DirectionId>,
}

fn links<const QUEUE: usize>(streams: &mut EditStreams, id: DirectionId) -> &mut Links {
    let side: &mut EditSide = &mut streams[id.edit()].sides[id.direction()];
    &mut side.links[QUEUE]
}

impl<const QUEUE: usize> DirectionQueue<QUEUE> {
    /// The first direction.
    pub(crate) fn first(&self) -> Option<DirectionId> {
        self.first
    }

    /// Appends a direction if it is not in the queue. Returns whether the direction was appended.
    pub(crate) fn push(&mut self, streams: &mut EditStreams, id: DirectionId) -> bool {
        if links::<QUEUE>(streams, id).is_queued {
            return false;
        }
        *links::<QUEUE>(streams, id) = Links { previous: self.last, next: None, is_queued: true };
        match self.last {
            Some(last) => links::<QUEUE>(streams, last).next = Some(id),
            None => self.first = Some(id),
        }
        self.last = Some(id);
        true
    }

    /// Removes a direction, if it is in the queue.
    pub(crate) fn remove(&mut self, streams: &mut EditStreams, id: DirectionId) {
        let Links { previous, next, is_queued } = std::mem::take(links::<QUEUE>(streams, id));
        if !is_queued {
            return;
        }
        match previous {
            Some(previous) => links::<QUEUE>(streams, previous).next = next,
            None => self.first = next,
        }
        match next {
            Some(next) => links::<QUEUE>(streams, next).previous = previous,
            None => self.last = previous,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edit::links::EditId;
    use crate::edit::side::EditStream;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn queues_keep_the_order_of_those_that_are_left(
            steps in prop::collection::vec((0..3u8, 0..8usize, 0..2usize), 0..120),
        ) {
            let mut streams = EditStreams::default();
            let ids: Vec<EditId> = (0..8)
                .map(|_| {
                    streams.try_reserve().expect("memory");
                    streams.insert(EditStream::default())
                })
                .collect();
            let (mut queue, mut model) = (DirectionQueue::<READY>::default(), VecDeque::new());
            for (step, stream, direction) in steps {
                let id = DirectionId::new(ids[stream], direction).expect("a direction");
                prop_assert_eq!((id.edit(), id.direction()), (ids[stream], direction));
                match step {
                    0 | 1 => {
                        let is_new = !model.contains(&id);
                        prop_assert_eq!(queue.push(&mut streams, id), is_new);
                        model.extend(is_new.then_some(id));
                    }
                    _ => {
                        queue.remove(&mut streams, id);
                        model.retain(|each| *each != id);
                    }
                }
                prop_assert_eq!(queue.first(), model.front().copied());
            }
            while let Some(id) = queue.first() {
                prop_assert_eq!(Some(id), model.pop_front());
                queue.remove(&mut streams, id);
            }
            prop_assert!(model.is_empty());
        }
    }
}
