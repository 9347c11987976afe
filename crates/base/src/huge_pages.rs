//! Huge pages.

/// Bytes of a huge page of x86-64 and of most other architectures.
const HUGE_PAGE: usize = 2 << 20;

/// Asks the kernel for huge pages for the memory of an empty vector of several megabytes: random reads of large tables then seldom wait for a
/// page table. Without effect where the kernel offers none (`/sys/kernel/mm/transparent_hugepage/enabled`).
pub fn use_huge_pages<T>(memory: &Vec<T>) {
    let bytes = memory.capacity() * size_of::<T>();
    if bytes < 2 * HUGE_PAGE {
        return;
    }
    // SAFETY: it only returns a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as usize;
    // Whole pages around it, so that neighbours that were mapped likewise remain one mapping.
    let first = memory.as_ptr() as usize / page * page;
    let len = (memory.as_ptr() as usize + bytes).next_multiple_of(page) - first;
    // SAFETY: the advice has an effect on which pages the kernel uses, not on what they contain. It is given for mapped memory, and an error,
    // as of a kernel without huge pages, changes nothing.
    unsafe { libc::madvise(first as *mut libc::c_void, len, libc::MADV_HUGEPAGE) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_keeps_what_is_in_it() {
        for bytes in [0, 100, 3 << 20, 9 << 20] {
            let mut memory: Vec<u8> = Vec::with_capacity(bytes);
            use_huge_pages(&memory);
            memory.extend((0..bytes).map(|at| at as u8));
            use_huge_pages(&memory);
            assert!((0..bytes).all(|at| memory[at] == at as u8));
        }
    }
}
