//! Which parts of the memory for streams are in use.
//!
//! The memory is divided into pages of [`POOL_PAGE`] bytes. A page in use is divided into slots of one size, a multiple of a cache line; a
//! page without open streams is free for any size. All operations are O(1). The memory that describes the pages is reserved when
//! the pool is made, and touched when pages are used for the first time. [`StreamMemory`](crate::ffi::StreamMemory) checks that slots do
//! not overlap: what this file says is not trusted there.

/// Bytes of a page of a pool: the least that a pool is made of, and the most that the state of a stream may have.
pub const POOL_PAGE: usize = 16 * 1024;
/// Bytes of a line.
pub(crate) const LINE: usize = 64;
/// Lines of a page.
pub(crate) const PAGE_LINES: usize = POOL_PAGE / LINE;
/// No page, or no slot.
const NONE: u32 = u32::MAX;

/// A page. Slots that were used once are linked; those behind them are fresh.
#[derive(Clone, Debug)]
struct Page {
    /// Lines of a slot; 0 if the page is free.
    lines: u16,
    /// Slots in use.
    used: u16,
    /// Slots that were used at least once.
    touched: u16,
    /// The first line of the first slot that was used and is free.
    free: u32,
    /// Neighbours in the list of pages with free slots of this size, or in the list of free pages (`next` only).
    next: u32,
    previous: u32,
}

/// The slots of a memory.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The pages that have been used. Memory for all pages is reserved.
    pages: Vec<Page>,
    /// All pages.
    capacity: usize,
    /// The first of the pages that were used before and are free.
    free_page: u32,
    /// By lines of a slot: the first page that has a free one.
    partial: Box<[u32]>,
    /// By the first line of a free slot: the next one of its page. As long as `pages`.
    links: Vec<u32>,
    /// Slots in use.
    used: usize,
}

impl Pool {
    /// A pool without used slots. Returns `None` if the allocation fails.
    pub(crate) fn new(pages: u32) -> Option<Pool> {
        let capacity = pages as usize;
        let mut pool = Pool {
            pages: Vec::new(),
            capacity,
            free_page: NONE,
            partial: vec![NONE; PAGE_LINES + 1].into_boxed_slice(),
            links: Vec::new(),
            used: 0,
        };
        pool.pages.try_reserve_exact(capacity).ok()?;
        pool.links.try_reserve_exact(capacity.checked_mul(PAGE_LINES)?).ok()?;
        Some(pool)
    }

    /// Bytes that a pool reserves for that many bytes of states, with the descriptions of pages and lines.
    pub(crate) fn memory_of(bytes: usize) -> u64 {
        let page = POOL_PAGE + size_of::<Page>() + 2 * PAGE_LINES * size_of::<u32>();
        bytes.div_ceil(POOL_PAGE) as u64 * page as u64
    }

    /// Bytes of that memory that were used.
    pub(crate) fn touched(&self) -> u64 {
        Pool::memory_of(self.pages.len() * POOL_PAGE)
    }

    /// Bytes that a state of that size takes.
    pub(crate) fn slot_bytes(state: usize) -> usize {
        state.max(1).next_multiple_of(LINE)
    }

    /// Bytes of the pages that that many states of a size need.
    pub(crate) fn bytes_for(states: usize, state: usize) -> usize {
        let per_page = (POOL_PAGE / Pool::slot_bytes(state)).max(1);
        states.div_ceil(per_page).saturating_mul(POOL_PAGE)
    }

    /// Number of slots in use.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Takes a slot of that many lines; its first line.
    pub(crate) fn take(&mut self, lines: usize) -> Option<u32> {
        if lines == 0 || lines > PAGE_LINES {
            return None;
        }
        let number = match self.partial[lines] {
            NONE => self.begin_page(lines)?,
            number => number,
        };
        let page = &mut self.pages[number as usize];
        let line = match page.free {
            NONE => {
                page.touched += 1;
                number * PAGE_LINES as u32 + u32::from(page.touched - 1) * lines as u32
            }
            line => {
                page.free = self.links[line as usize];
                line
            }
        };
        page.used += 1;
        self.used += 1;
        if usize::from(page.used) == PAGE_LINES / lines {
            self.unlink(number);
        }
        Some(line)
    }

    /// Takes back the slot that begins at that line.
    pub(crate) fn give(&mut self, line: u32) {
        let number = line / PAGE_LINES as u32;
        let page = &mut self.pages[number as usize];
        let was_full = usize::from(page.used) == PAGE_LINES / usize::from(page.lines);
        self.links[line as usize] = page.free;
        page.free = line;
        page.used -= 1;
        let is_empty = page.used == 0;
        self.used -= 1;
        if was_full {
            self.link(number);
        }
        if is_empty {
            self.unlink(number);
            let page = &mut self.pages[number as usize];
            (page.lines, page.next) = (0, self.free_page);
            self.free_page = number;
        }
    }

    /// Makes a free page one of slots of that many lines.
    fn begin_page(&mut self, lines: usize) -> Option<u32> {
        let begun = Page { lines: lines as u16, used: 0, touched: 0, free: NONE, next: NONE, previous: NONE };
        let number = if let Some(page) = self.pages.get_mut(self.free_page as usize) {
            let number = self.free_page;
            self.free_page = page.next;
            *page = begun;
            number
        } else if self.pages.len() < self.capacity {
            // Within the memory that is reserved.
            self.pages.push(begun);
            self.links.resize(self.pages.len() * PAGE_LINES, NONE);
            (self.pages.len() - 1) as u32
        } else {
            return None;
        };
        self.link(number);
        Some(number)
    }

    /// Adds a page to those of its size with free slots.
    fn link(&mut self, number: u32) {
        let head = &mut self.partial[usize::from(self.pages[number as usize].lines)];
        let next = std::mem::replace(head, number);
        if let Some(page) = self.pages.get_mut(next as usize) {
            page.previous = number;
        }
        let page = &mut self.pages[number as usize];
        (page.next, page.previous) = (next, NONE);
    }

    /// Removes it from them.
    fn unlink(&mut self, number: u32) {
        let Page { lines, next, previous, .. } = self.pages[number as usize];
        if let Some(page) = self.pages.get_mut(next as usize) {
            page.previous = previous;
        }
        match self.pages.get_mut(previous as usize) {
            Some(page) => page.next = next,
            None => self.partial[usize::from(lines)] = next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn slots_never_overlap_and_all_come_back(
            steps in proptest::collection::vec((any::<bool>(), 1..=PAGE_LINES, any::<usize>()), 1..400)
        ) {
            let mut pool = Pool::new(4).expect("memory");
            let mut taken = Vec::<(u32, usize)>::new();
            for (is_take, lines, which) in steps {
                // Few sizes, so that pages fill.
                let lines = if lines % 8 < 6 { 1 + lines % 8 * 20 } else { lines };
                if is_take {
                    match pool.take(lines) {
                        Some(line) => taken.push((line, lines)),
                        None => prop_assert!(!taken.is_empty()),
                    }
                } else if !taken.is_empty() {
                    pool.give(taken.swap_remove(which % taken.len()).0);
                }
                let mut spans = taken.clone();
                spans.sort_unstable();
                prop_assert_eq!(pool.used(), spans.len());
                for pair in spans.windows(2) {
                    prop_assert!(pair[0].0 as usize + pair[0].1 <= pair[1].0 as usize);
                }
                for (line, lines) in spans {
                    let (first, last) = (line as usize, line as usize + lines - 1);
                    prop_assert!(last < 4 * PAGE_LINES && first / PAGE_LINES == last / PAGE_LINES);
                }
            }
            for (line, _) in taken.drain(..) {
                pool.give(line);
            }
            for _ in 0..4 {
                prop_assert!(pool.take(PAGE_LINES).is_some(), "every page is free again");
            }
            prop_assert!(pool.take(1).is_none());
        }
    }
}
