//! Memory of our own for streams of the library, and the functions by which the library gets it.
//!
//! The library gets the memory of streams from one pair of functions for the whole process. Ours ([`allocate`], [`deallocate`]) serve the
//! place that this thread has put into [`PLACE`] around a call, and pass other users of the library in this process to `malloc`
//! and `free`. They are set when the first database is compiled; another user of the library that sets its own later makes
//! [`Stream::open`](super::Stream::open) fail, and must not set them while streams are open.

use crate::pool::{LINE, PAGE_LINES};
use std::alloc::Layout;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

thread_local! {
    /// Where the stream is that this thread opens or closes now, and its size.
    pub(super) static PLACE: Cell<(*mut c_void, usize)> = const { Cell::new((null_mut(), 0)) };
}

/// Memory for a stream: the place that this thread has for it, else the C library's.
pub(super) unsafe extern "C" fn allocate(size: usize) -> *mut c_void {
    match PLACE.replace((null_mut(), 0)) {
        // SAFETY: malloc takes every size.
        (place, _) if place.is_null() => unsafe { libc::malloc(size) },
        (place, max) if size <= max => place,
        _ => null_mut(),
    }
}

/// Frees the memory of a stream: that of the place that this thread closes is kept, other memory is the C library's.
pub(super) unsafe extern "C" fn deallocate(pointer: *mut c_void) {
    let (place, _) = PLACE.replace((null_mut(), 0));
    if place != pointer {
        // SAFETY: streams of ours are closed with their place set, so this one came from `malloc` in `allocate`.
        unsafe { libc::free(pointer) };
    }
}

/// The state of a line that no stream uses. It is zero, so that zeroed pages need not be touched before lines are used.
const FREE: u32 = 0;
/// A line of an open stream.
const TAKEN: u32 = u32::MAX;
/// The end of the list of returned places.
const END: u32 = u32::MAX - 1;

/// Memory for streams, in lines of 64 bytes. It is got once, and touched as it is used.
pub(crate) struct StreamMemory {
    /// The first line within the allocated memory.
    first: NonNull<u8>,
    allocated: NonNull<u8>,
    layout: Layout,
    /// The state of each line: [`FREE`], [`TAKEN`], or, at the first line of a returned place, 1 more than the first line of
    /// the next returned place.
    states: Box<[AtomicU32]>,
    /// 1 more than the first line of the first returned place.
    returned: AtomicU32,
}

// SAFETY: the lines belong to the streams that have taken them; which ones are taken is known by atomic numbers.
unsafe impl Send for StreamMemory {}
// SAFETY: as above.
unsafe impl Sync for StreamMemory {}

impl StreamMemory {
    /// `None` without memory.
    pub(crate) fn new(pages: usize) -> Option<StreamMemory> {
        let lines = pages.max(1).checked_mul(PAGE_LINES).filter(|lines| *lines < END as usize - 1)?;
        // With a larger alignment the allocator would write the zeros itself, and so touch all of the memory.
        let layout =
            Layout::array::<u64>(lines.checked_add(1)?.checked_mul(LINE / size_of::<u64>())?).ok()?;
        // SAFETY: the layout has a size. Memory that is zero anyway is not touched by this.
        let allocated = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        let Some(states) = free_states(lines) else {
            // SAFETY: it was allocated with this layout.
            unsafe { std::alloc::dealloc(allocated.as_ptr(), layout) };
            return None;
        };
        // SAFETY: one line more than is used was allocated.
        let first = unsafe { allocated.add(allocated.align_offset(LINE).min(LINE)) };
        Some(StreamMemory { first, allocated, layout, states, returned: AtomicU32::new(END) })
    }

    /// Takes lines for a stream: where they are. `None` if one of them is taken or does not exist.
    pub(super) fn claim(&self, line: u32, lines: usize) -> Option<NonNull<u8>> {
        let states = self.states.get(line as usize..(line as usize).checked_add(lines)?)?;
        for (number, state) in states.iter().enumerate() {
            if state.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_err() {
                states[..number].iter().for_each(|state| state.store(FREE, Ordering::Release));
                return None;
            }
        }
        // SAFETY: the line exists, so it is within the memory.
        Some(unsafe { self.first.add(line as usize * LINE) })
    }

    /// Frees lines that were claimed, and in which no stream was opened.
    pub(super) fn unclaim(&self, line: u32, lines: usize) {
        self.states[line as usize..][..lines].iter().for_each(|state| state.store(FREE, Ordering::Release));
    }

    /// The line where a place that was claimed begins.
    pub(super) fn line_of(&self, place: NonNull<u8>) -> u32 {
        ((place.addr().get() - self.first.addr().get()) / LINE) as u32
    }

    /// Gives lines back, which are free from when [`StreamMemory::take_returned`] tells of them.
    pub(super) fn give_back(&self, line: u32, lines: usize) {
        let Some([first, others @ ..]) = self.states.get(line as usize..line as usize + lines) else {
            return;
        };
        others.iter().for_each(|state| state.store(FREE, Ordering::Release));
        let mut head = self.returned.load(Ordering::Relaxed);
        loop {
            first.store(head, Ordering::Relaxed);
            // Only whole lists are taken off, so that the head means the same list whenever it is the same.
            match self.returned.compare_exchange_weak(head, line + 1, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Calls `on_place` with the first line of each place that came back.
    #[inline]
    pub(crate) fn take_returned(&self, mut on_place: impl FnMut(u32)) {
        if self.returned.load(Ordering::Relaxed) == END {
            return;
        }
        let mut head = self.returned.swap(END, Ordering::Acquire);
        while head != END
            && let Some(line) = head.checked_sub(1)
            && let Some(state) = self.states.get(line as usize)
        {
            head = state.swap(FREE, Ordering::AcqRel);
            on_place(line);
        }
    }
}

/// The states of so many lines, all [`FREE`]; `None` without memory.
fn free_states(lines: usize) -> Option<Box<[AtomicU32]>> {
    let layout = Layout::array::<AtomicU32>(lines).ok().filter(|layout| layout.size() > 0)?;
    // SAFETY: the layout has a size.
    let first = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }.cast::<AtomicU32>())?;
    let states = NonNull::slice_from_raw_parts(first, lines);
    // SAFETY: it was allocated with the layout of this slice, and zeros are atomic numbers, each `FREE`.
    Some(unsafe { Box::from_raw(states.as_ptr()) })
}

impl Drop for StreamMemory {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and streams in it would hold it.
        unsafe { std::alloc::dealloc(self.allocated.as_ptr(), self.layout) };
    }
}
