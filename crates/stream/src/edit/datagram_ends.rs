//! The ends of datagrams that are to be generated.

use crate::rope::{ChunkPool, Rope};

/// The ends of the datagrams that are to be generated, as offsets in the output of their direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DatagramEnds(Rope);

impl DatagramEnds {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len() / size_of::<u64>()
    }

    /// Appends an end. Returns false if memory is exhausted.
    pub(super) fn push(&mut self, pool: &mut ChunkPool, end: u64) -> bool {
        self.0.push(pool, &end.to_le_bytes())
    }

    /// The last end.
    pub(super) fn last(&self, pool: &ChunkPool) -> Option<u64> {
        self.end_at(pool, self.0.len().checked_sub(size_of::<u64>())?)
    }

    fn end_at(&self, pool: &ChunkPool, offset: usize) -> Option<u64> {
        let mut end = [0; size_of::<u64>()];
        let bytes = self.0.slices(pool, offset, end.len()).flatten();
        let count = end.iter_mut().zip(bytes).map(|(target, byte)| *target = *byte).count();
        (count == end.len()).then_some(u64::from_le_bytes(end))
    }

    /// Removes and returns the first end.
    pub(super) fn pop(&mut self, pool: &mut ChunkPool) -> Option<u64> {
        let end = self.end_at(pool, 0)?;
        self.0.pop(pool, size_of::<u64>());
        Some(end)
    }

    pub(crate) fn clear(&mut self, pool: &mut ChunkPool) {
        self.0.clear(pool);
    }
}
