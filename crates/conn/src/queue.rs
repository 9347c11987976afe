//! A first-in first-out queue of connections, in blocks, so that growing copies no entries.

use crate::ConnId;
use crate::alloc_error::AllocError;
use std::collections::VecDeque;

/// The maximum number of connections that are folded together.
pub const FOLD_BATCH: usize = 16;

/// Connections per block.
const BLOCK: usize = 4096;

/// The queue. Pushing needs memory that [`IdQueue::reserve`] reserved.
#[derive(Debug, Default)]
pub(crate) struct IdQueue {
    /// The first block is read from `first` on, and the last block is written.
    blocks: VecDeque<Vec<ConnId>>,
    first: usize,
    len: usize,
    /// Empty blocks.
    spare: Vec<Vec<ConnId>>,
}

impl IdQueue {
    /// Reserves memory for this number of connections in the queue.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn reserve(&mut self, connections: usize) -> Result<(), AllocError> {
        // One block more, since the first one may be partly read.
        let wanted = connections.div_ceil(BLOCK) + 1;
        while self.blocks.len() + self.spare.len() < wanted {
            let missing = wanted - self.blocks.len();
            self.blocks.try_reserve(missing)?;
            self.spare.try_reserve(wanted)?;
            let mut block = Vec::new();
            block.try_reserve_exact(BLOCK)?;
            self.spare.push(block);
        }
        Ok(())
    }

    /// Adds a connection at the end.
    #[inline]
    pub(crate) fn push(&mut self, id: ConnId) {
        match self.blocks.back_mut() {
            Some(last) if last.len() < BLOCK => last.push(id),
            _ => self.push_block(id),
        }
        self.len += 1;
    }

    fn push_block(&mut self, id: ConnId) {
        let mut block = self.spare.pop().unwrap_or_default();
        block.push(id);
        self.blocks.push_back(block);
    }

    /// Takes the first connection.
    pub(crate) fn pop(&mut self) -> Option<ConnId> {
        let id = *self.blocks.front()?.get(self.first)?;
        self.first += 1;
        self.len -= 1;
        if self.first == BLOCK || self.len == 0 {
            if let Some(mut read) = self.blocks.pop_front() {
                read.clear();
                self.spare.push(read);
            }
            self.first = 0;
        }
        Some(id)
    }

    /// Number of connections in the queue.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes in use.
    pub(crate) fn memory(&self) -> usize {
        (self.blocks.len() + self.spare.len()) * BLOCK * size_of::<ConnId>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_base::Id;

    #[test]
    fn what_was_pushed_first_comes_first() {
        let mut queue = IdQueue::default();
        let max = 3 * BLOCK + 7;
        queue.reserve(max).expect("there is memory");
        let reserved = queue.memory();
        let id = |number: usize| ConnId::new(number as u32 + 1).expect("it is not 0");
        let (mut pushed, mut popped) = (0, 0);
        for round in 0..40 {
            while pushed - popped < max.min(1 + 997 * round) {
                queue.push(id(pushed));
                pushed += 1;
            }
            let stays = if round % 5 == 0 { 0 } else { (pushed - popped) / 3 };
            while pushed - popped > stays {
                assert_eq!(queue.pop(), Some(id(popped)));
                popped += 1;
            }
            assert_eq!(queue.len(), pushed - popped);
        }
        while let Some(next) = queue.pop() {
            assert_eq!(next, id(popped));
            popped += 1;
        }
        assert_eq!((popped, queue.pop(), queue.memory()), (pushed, None, reserved));
    }
}
