//! Queues of bytes in chunks of a pool.
//!
//! A pool reserves all its memory when it is created, and touches a chunk only when the chunk is first used.
//! Therefore a large pool is created as fast as a small one.

/// Bytes in a chunk.
pub(crate) const CHUNK: usize = 2048;

/// No chunk.
const NONE: u32 = u32::MAX;

/// The payload memory of a table's streams, in chunks of 2 KiB.
#[derive(Debug, Default)]
pub struct ChunkPool {
    /// The chunks that were used before. Memory for all chunks is reserved.
    bytes: Vec<u8>,
    /// For each of these chunks: the next chunk of its rope, or the next free chunk.
    next: Vec<u32>,
    /// The first free chunk among those that were used before.
    free: Option<u32>,
    /// Number of chunks.
    chunks: usize,
    taken: usize,
}

impl ChunkPool {
    /// Creates a pool of `bytes` bytes, in whole chunks. Returns `None` if the allocation fails. The kernel
    /// provides the memory as it is used.
    pub fn new(bytes: usize) -> Option<ChunkPool> {
        let chunks = ChunkPool::chunks_of(bytes);
        let mut pool = ChunkPool { chunks, ..ChunkPool::default() };
        pool.bytes.try_reserve_exact(chunks.checked_mul(CHUNK)?).ok()?;
        pool.next.try_reserve_exact(chunks).ok()?;
        Some(pool)
    }

    /// Bytes of memory that a pool for `bytes` bytes of payload reserves.
    pub fn memory_of(bytes: usize) -> u64 {
        ChunkPool::chunks_of(bytes) as u64 * (CHUNK + size_of::<u32>()) as u64
    }

    /// Bytes of memory that were used so far.
    pub fn touched(&self) -> u64 {
        self.next.len() as u64 * (CHUNK + size_of::<u32>()) as u64
    }

    /// Whether the pool was created for `bytes` bytes.
    pub(crate) fn is_for(&self, bytes: usize) -> bool {
        self.chunks == ChunkPool::chunks_of(bytes)
    }

    fn chunks_of(bytes: usize) -> usize {
        (bytes / CHUNK).min(NONE as usize - 1)
    }

    /// Number of chunks.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks
    }

    /// Number of chunks in use.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    fn take(&mut self) -> Option<u32> {
        let chunk = match self.free {
            Some(chunk) => {
                self.free = Some(self.next[chunk as usize]).filter(|next| *next != NONE);
                chunk
            }
            None if self.next.len() < self.chunks => {
                // This does not allocate: the memory is reserved.
                self.bytes.resize(self.bytes.len() + CHUNK, 0);
                self.next.push(NONE);
                (self.next.len() - 1) as u32
            }
            None => return None,
        };
        self.next[chunk as usize] = NONE;
        self.taken += 1;
        Some(chunk)
    }

    fn give(&mut self, chunk: u32) {
        self.next[chunk as usize] = self.free.unwrap_or(NONE);
        self.free = Some(chunk);
        self.taken -= 1;
    }

    fn chunk(&self, chunk: u32) -> &[u8] {
        &self.bytes[chunk as usize * CHUNK..][..CHUNK]
    }

    fn chunk_mut(&mut self, chunk: u32) -> &mut [u8] {
        &mut self.bytes[chunk as usize * CHUNK..][..CHUNK]
    }
}

/// A queue of bytes in chunks of a pool. Its owner returns the chunks with [`Rope::clear`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rope {
    first: u32,
    last: u32,
    /// Bytes of the first chunk that were removed.
    start: u32,
    len: u32,
}

impl Rope {
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Appends bytes. Returns false and changes nothing if the pool cannot store all of them.
    pub(crate) fn push(&mut self, pool: &mut ChunkPool, mut bytes: &[u8]) -> bool {
        let end = self.start as usize + self.len as usize;
        let room = if self.len == 0 { 0 } else { (CHUNK - end % CHUNK) % CHUNK };
        let wanted = bytes.len().saturating_sub(room).div_ceil(CHUNK);
        if wanted > pool.chunks() - pool.taken() || end + bytes.len() > u32::MAX as usize {
            return false;
        }
        if self.len == 0 {
            self.start = 0;
        }
        while !bytes.is_empty() {
            let filled = (self.start as usize + self.len as usize) % CHUNK;
            if self.len == 0 || filled == 0 {
                let Some(chunk) = pool.take() else { return false };
                match self.len {
                    0 => self.first = chunk,
                    _ => pool.next[self.last as usize] = chunk,
                }
                self.last = chunk;
            }
            let count = bytes.len().min(CHUNK - filled);
            let (now, later) = bytes.split_at(count);
            pool.chunk_mut(self.last)[filled..filled + count].copy_from_slice(now);
            self.len += count as u32;
            bytes = later;
        }
        true
    }

    /// Removes bytes from the front.
    pub(crate) fn pop(&mut self, pool: &mut ChunkPool, count: usize) {
        let count = count.min(self.len());
        self.len -= count as u32;
        self.start += count as u32;
        while self.start as usize >= CHUNK && self.len > 0 {
            let next = pool.next[self.first as usize];
            pool.give(self.first);
            self.first = next;
            self.start -= CHUNK as u32;
        }
        if self.len == 0 && count > 0 {
            let (mut chunk, last) = (self.first, self.last);
            while chunk != last {
                let next = pool.next[chunk as usize];
                pool.give(chunk);
                chunk = next;
            }
            pool.give(last);
            *self = Rope::default();
        }
    }

    /// Removes all bytes.
    pub(crate) fn clear(&mut self, pool: &mut ChunkPool) {
        self.pop(pool, self.len());
    }

    /// The bytes from `offset` on, at most `count`, in slices.
    pub(crate) fn slices<'p>(
        &self,
        pool: &'p ChunkPool,
        offset: usize,
        count: usize,
    ) -> impl Iterator<Item = &'p [u8]> + 'p {
        let mut left = count.min(self.len().saturating_sub(offset));
        let mut at = self.start as usize + offset;
        let mut chunk = self.first;
        while at >= CHUNK && left > 0 {
            chunk = pool.next[chunk as usize];
            at -= CHUNK;
        }
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let slice = &pool.chunk(chunk)[at..CHUNK.min(at + left)];
            left -= slice.len();
            at = 0;
            chunk = pool.next[chunk as usize];
            Some(slice)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn ropes_are_queues_of_bytes(steps in prop::collection::vec((any::<bool>(), any::<bool>(), 0..5000usize), 1..80)) {
            let mut pool = ChunkPool::new(40 * CHUNK).unwrap();
            let (mut ropes, mut models) = ([Rope::default(); 2], [VecDeque::new(), VecDeque::new()]);
            let mut byte = 0u8;
            for (which, pushes, count) in steps {
                let (rope, model) = (&mut ropes[usize::from(which)], &mut models[usize::from(which)]);
                if pushes {
                    let bytes: Vec<u8> = (0..count).map(|_| { byte = byte.wrapping_add(7); byte }).collect();
                    let before = pool.taken();
                    if rope.push(&mut pool, &bytes) {
                        model.extend(bytes);
                    } else {
                        prop_assert_eq!(pool.taken(), before);
                        prop_assert!(pool.chunks() - before < count.div_ceil(CHUNK));
                    }
                } else {
                    rope.pop(&mut pool, count);
                    model.drain(..count.min(model.len()));
                }
                for offset in [0, model.len() / 3, model.len()] {
                    let all: Vec<u8> = rope.slices(&pool, offset, usize::MAX).flatten().copied().collect();
                    prop_assert_eq!(&all, &model.iter().skip(offset).copied().collect::<Vec<_>>());
                }
            }
            ropes.iter_mut().for_each(|rope| rope.clear(&mut pool));
            prop_assert_eq!(pool.taken(), 0);
        }
    }
}
