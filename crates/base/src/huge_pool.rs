//! Memory for the shared parts of large tables, in huge pages.
//!
//! Tables consist of thousands of parts of a few kilobytes, which a change copies one by one. In pages of 4 KB, each random access to them
//! waits for the page table too. So parts of one size lie side by side in huge pages, for which the kernel is asked by `madvise`. A size of which
//! there is little stays with the system's allocator: a small policy takes no huge page.
//!
//! Any thread may allocate and free; a lock guards the lists. Packet threads do neither.

use crate::lock;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{LazyLock, Mutex};

/// Bytes of a huge page of x86-64 and of most other architectures.
pub(crate) const HUGE_PAGE: usize = 2 << 20;
/// Bytes of one size that the system's allocator provides before huge pages do.
const SYSTEM_BYTES: usize = 1 << 20;
/// Parts of more bytes are left to the system's allocator: few of them would fit a huge page.
const MAX_PART_BYTES: usize = HUGE_PAGE / 8;
/// The alignment of all parts: a cache line.
pub(crate) const ALIGN: usize = 64;

static POOL: LazyLock<Mutex<Pool>> = LazyLock::new(Mutex::default);

/// The use of memory for the parts of tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUse {
    /// Bytes of all parts.
    pub bytes: usize,
    /// Bytes of the parts that are in huge pages, if the kernel provides them.
    pub huge: usize,
}

/// The use of memory now.
pub fn pool_use() -> PoolUse {
    lock(&POOL).used
}

#[derive(Default)]
struct Pool {
    sizes: HashMap<usize, SizeClass>,
    /// Huge pages by address.
    pages: HashMap<usize, PoolPage>,
    used: PoolUse,
}

/// Parts of one size.
#[derive(Default)]
struct SizeClass {
    /// Bytes from the system's allocator.
    system_bytes: usize,
    /// Addresses of huge pages with a free place.
    open: Vec<usize>,
}

/// A huge page, divided into places of one size.
struct PoolPage {
    memory: NonNull<u8>,
    size: usize,
    /// Freed places, by number.
    free: Vec<u16>,
    /// Places from this one on were never used.
    fresh: u16,
}

// SAFETY: the pool owns the memory of its pages.
unsafe impl Send for PoolPage {}

impl PoolPage {
    fn places(&self) -> u16 {
        (HUGE_PAGE / self.size) as u16
    }

    fn is_full(&self) -> bool {
        self.free.is_empty() && self.fresh == self.places()
    }

    fn is_empty(&self) -> bool {
        self.free.len() == usize::from(self.fresh)
    }

    fn take(&mut self) -> Option<NonNull<u8>> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.fresh < self.places() => {
                self.fresh += 1;
                self.fresh - 1
            }
            None => return None,
        };
        // SAFETY: the place is one of those that the page is divided into.
        Some(unsafe { self.memory.add(usize::from(place) * self.size) })
    }
}

/// Memory of `size` bytes, a multiple of [`ALIGN`], aligned to that. It is not initialized.
pub(crate) fn allocate(size: usize) -> NonNull<u8> {
    let mut pool = lock(&POOL);
    let Pool { sizes, pages, used } = &mut *pool;
    let class = sizes.entry(size).or_default();
    if size > MAX_PART_BYTES || class.open.is_empty() && class.system_bytes < SYSTEM_BYTES {
        let memory = system(Layout::from_size_align(size, ALIGN));
        class.system_bytes += size;
        used.bytes += size;
        return memory;
    }
    used.bytes += size;
    used.huge += size;
    let address = match class.open.last() {
        Some(&address) => address,
        None => {
            let memory = map_page();
            advise(memory.as_ptr());
            let address = memory.addr().get();
            pages.insert(address, PoolPage { memory, size, free: Vec::new(), fresh: 0 });
            class.open.push(address);
            address
        }
    };
    let page = pages.get_mut(&address).expect("open pages are pages");
    let memory = page.take().expect("an open page has a free place");
    if page.is_full() {
        class.open.pop();
    }
    memory
}

/// Frees memory.
///
/// # Safety
/// [`allocate`] returned it for this size, and nobody uses it any more.
pub(crate) unsafe fn free(memory: NonNull<u8>, size: usize) {
    let mut pool = lock(&POOL);
    pool.used.bytes -= size;
    let Pool { sizes, pages, used } = &mut *pool;
    let class = sizes.entry(size).or_default();
    let address = memory.addr().get() & !(HUGE_PAGE - 1);
    // A huge page belongs to the pool as a whole: whatever lies in it is one of its places.
    let Some(page) = pages.get_mut(&address) else {
        class.system_bytes -= size;
        // SAFETY: the system's allocator provided it, with this layout.
        unsafe { dealloc(memory.as_ptr(), layout(size)) };
        return;
    };
    used.huge -= size;
    if page.is_full() {
        class.open.push(address);
    }
    page.free.push(((memory.addr().get() - address) / size) as u16);
    // One empty page stays, so that a change which needs a place and gives one back does not map and unmap a page each time.
    if page.is_empty() && class.open.len() > 1 {
        class.open.retain(|open| *open != address);
        let page = pages.remove(&address).expect("it is there");
        // SAFETY: it was mapped with this size, and none of its places is used.
        unsafe { libc::munmap(page.memory.as_ptr().cast(), HUGE_PAGE) };
    }
}

/// Maps memory of a huge page's size, aligned to it. It comes from the kernel itself, so that freed pages go back to it, and no space for the
/// alignment stays with an allocator.
fn map_page() -> NonNull<u8> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), 2 * HUGE_PAGE, protection, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        handle_alloc_error(Layout::new::<[u8; HUGE_PAGE]>());
    }
    let before = mapped.cast::<u8>().align_offset(HUGE_PAGE);
    // SAFETY: the parts before and behind the aligned page are in the new mapping, and nobody uses them. The page itself lies between them.
    let page = unsafe {
        let page = mapped.cast::<u8>().add(before);
        if before > 0 {
            libc::munmap(mapped, before);
        }
        if before < HUGE_PAGE {
            libc::munmap(page.add(HUGE_PAGE).cast(), HUGE_PAGE - before);
        }
        page
    };
    NonNull::new(page).unwrap_or_else(|| handle_alloc_error(Layout::new::<[u8; HUGE_PAGE]>()))
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, ALIGN).expect("a size that was allocated")
}

fn system(layout: Result<Layout, std::alloc::LayoutError>) -> NonNull<u8> {
    let layout = layout.expect("a size below the greatest");
    // SAFETY: the size is not 0.
    let memory = unsafe { alloc(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Asks the kernel for a huge page at an address that is aligned to one.
pub(crate) fn advise(page: *mut u8) {
    // SAFETY: the advice has an effect on which pages the kernel uses, not on what they contain. An error, as of a kernel without huge pages,
    // changes nothing.
    unsafe { libc::madvise(page.cast(), HUGE_PAGE, libc::MADV_HUGEPAGE) };
}

/// Asks the kernel for huge pages in memory that begins at a huge page's place, as far as it is whole ones.
pub(crate) fn advise_pages(memory: &[u32]) {
    for page in memory.chunks_exact(HUGE_PAGE / size_of::<u32>()) {
        advise(page.as_ptr().cast_mut().cast());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_overlap_and_pages_are_returned() {
        // A size that no other test has.
        const SIZE: usize = 12_352;
        let count = SYSTEM_BYTES / SIZE + 1 + 3 * (HUGE_PAGE / SIZE);
        for _ in 0..3 {
            let parts: Vec<_> = (0..count).map(|_| allocate(SIZE)).collect();
            for (number, part) in parts.iter().enumerate() {
                assert_eq!(part.addr().get() % ALIGN, 0);
                // SAFETY: the memory has so many bytes.
                unsafe { part.write_bytes(number as u8, SIZE) };
            }
            for (number, part) in parts.iter().enumerate() {
                // SAFETY: as above.
                let bytes = unsafe { std::slice::from_raw_parts(part.as_ptr(), SIZE) };
                assert!(bytes.iter().all(|byte| *byte == number as u8));
            }
            let pages = || lock(&POOL).pages.values().filter(|page| page.size == SIZE).count();
            assert_eq!(pages(), 3);
            // Every second part goes and comes back: no more pages are needed.
            // SAFETY: the parts that are freed are used no more.
            parts.iter().step_by(2).for_each(|part| unsafe { free(*part, SIZE) });
            let again: Vec<_> = parts.iter().step_by(2).map(|_| allocate(SIZE)).collect();
            assert_eq!(pages(), 3);
            let others = parts.iter().skip(1).step_by(2);
            // SAFETY: as above.
            others.chain(&again).for_each(|part| unsafe { free(*part, SIZE) });
            assert_eq!((pages(), lock(&POOL).sizes[&SIZE].system_bytes), (1, 0), "one page stays");
        }
    }
}
