//! Streams and the scratches that scan them.

use super::database::Database;
use super::library::{
    HS_SCAN_TERMINATED, HS_SUCCESS, HsScratch, HsStream, OnEvent, RunTime, hs_alloc_scratch, hs_free_scratch,
};
use super::memory::{PLACE, StreamMemory};
use crate::ScanEnd;
use crate::pool::LINE;
use std::any::Any;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::fmt;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// What a thread needs to scan with a database, if there is one, and what the streams hold that it opens.
pub(crate) struct Scratch {
    pointer: Option<NonNull<HsScratch>>,
    /// Shared with the streams of this scratch only, so that threads do not write to a common counter.
    binding: Arc<Binding>,
}

struct Binding {
    database: Option<Arc<Database>>,
    /// Bytes of a stream behind those of the library.
    own_bytes: usize,
    run_time: &'static RunTime,
    /// Where the streams of the scratch are. It changes only while there are none.
    memory: Option<Arc<StreamMemory>>,
}

// SAFETY: a scratch may be used by any thread, one at a time: all uses need it mutably.
unsafe impl Send for Scratch {}
// SAFETY: a shared scratch gives out the facts of its database only.
unsafe impl Sync for Scratch {}

impl Scratch {
    /// For streams with that many bytes of our own. `None` without memory.
    pub(crate) fn new(database: Option<&Arc<Database>>, own_bytes: usize) -> Option<Scratch> {
        let mut pointer = None;
        if let Some(database) = database {
            let mut scratch = null_mut();
            // SAFETY: the database is one; no scratch yet means a new one.
            let code = unsafe { hs_alloc_scratch(database.pointer.as_ptr(), &raw mut scratch) };
            pointer = Some(NonNull::new(scratch).filter(|_| code == HS_SUCCESS)?);
        }
        let (database, run_time) = (database.cloned(), RunTime::select());
        let binding = Binding { database, own_bytes, run_time, memory: None };
        Some(Scratch { pointer, binding: Arc::new(binding) })
    }

    /// Says where its streams will be. False if it has streams.
    pub(crate) fn bind(&mut self, memory: &Arc<StreamMemory>) -> bool {
        let Some(binding) = Arc::get_mut(&mut self.binding) else { return false };
        binding.memory = Some(Arc::clone(memory));
        true
    }

    /// Whether a stream that was opened with it still is.
    pub(crate) fn has_streams(&self) -> bool {
        Arc::strong_count(&self.binding) > 1
    }

    /// Lines of memory of a stream.
    pub(crate) fn stream_lines(&self) -> usize {
        self.binding.stream_lines()
    }
}

impl Binding {
    /// Bytes of a stream that are the library's.
    fn library_bytes(&self) -> usize {
        self.database.as_ref().map_or(0, |database| database.stream_size)
    }

    fn stream_lines(&self) -> usize {
        (self.library_bytes() + self.own_bytes).max(1).div_ceil(LINE)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(pointer) = self.pointer {
            // SAFETY: it came from the library, is in no use, and is freed once.
            unsafe { hs_free_scratch(pointer.as_ptr()) };
        }
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Scratch").finish_non_exhaustive()
    }
}

/// An open stream: the library's, if there is a database, and behind it bytes of our own.
pub(crate) struct Stream {
    place: NonNull<u8>,
    binding: Arc<Binding>,
}

// SAFETY: a stream may be used by any thread, one at a time: all uses need it mutably.
unsafe impl Send for Stream {}
// SAFETY: a shared stream gives out nothing but which scratch it belongs to.
unsafe impl Sync for Stream {}

impl Stream {
    /// Opens a stream whose memory begins at that line. `None` if these lines are not free, the scratch is bound to no memory, or the library
    /// uses other memory.
    pub(crate) fn open(scratch: &Scratch, line: u32) -> Option<Stream> {
        let binding = &scratch.binding;
        let memory = binding.memory.as_ref()?;
        let lines = binding.stream_lines();
        let place = memory.claim(line, lines)?;
        if binding.database.as_ref().is_none_or(|database| open_at(place, database, binding.run_time)) {
            return Some(Stream { place, binding: Arc::clone(binding) });
        }
        memory.unclaim(line, lines);
        None
    }

    /// Whether it was opened with that scratch.
    #[inline]
    pub(crate) fn uses(&self, scratch: &Scratch) -> bool {
        Arc::ptr_eq(&self.binding, &scratch.binding)
    }

    /// The library's part, if there is a database, and the bytes of our own.
    #[inline]
    pub(crate) fn parts(&mut self) -> (Option<LibraryStream<'_>>, &mut [u8]) {
        let binding = &*self.binding;
        // SAFETY: the lines of a stream have room for both parts, and were zeroed when they were got; the library writes to its own part only.
        // Both are borrowed from this stream, whose lines nothing else uses.
        let own = unsafe {
            std::slice::from_raw_parts_mut(
                self.place.add(binding.library_bytes()).as_ptr(),
                binding.own_bytes,
            )
        };
        (binding.database.as_ref().map(|_| LibraryStream { pointer: self.place.cast(), binding }), own)
    }
}

/// Opens a stream of the library in memory that has room for it. False if it does not use that.
fn open_at(place: NonNull<u8>, database: &Database, run_time: &RunTime) -> bool {
    let mut stream = null_mut();
    PLACE.set((place.as_ptr().cast(), database.stream_size));
    // SAFETY: the database is one; the memory has the size of a stream, nothing else uses it, and it is aligned more than any type needs.
    let code = unsafe { (run_time.open)(database.pointer.as_ptr(), 0, &raw mut stream) };
    PLACE.set((null_mut(), 0));
    match NonNull::new(stream).filter(|_| code == HS_SUCCESS) {
        Some(pointer) if pointer.cast() == place => true,
        Some(foreign) => {
            // SAFETY: an open stream, in memory of whoever set other functions, which free it.
            unsafe { (run_time.close)(foreign.as_ptr(), null_mut(), None, null_mut()) };
            false
        }
        None => false,
    }
}

/// The library's part of an open stream.
pub(crate) struct LibraryStream<'s> {
    pointer: NonNull<HsStream>,
    binding: &'s Binding,
}

impl LibraryStream<'_> {
    /// The scratch of the library, if the stream was opened with that one.
    #[inline]
    fn scratch(&self, scratch: &mut Scratch) -> Option<NonNull<HsScratch>> {
        scratch.pointer.filter(|_| std::ptr::eq(self.binding, &raw const *scratch.binding))
    }

    /// Scans the next bytes.
    #[inline]
    pub(crate) fn scan<F>(&mut self, scratch: &mut Scratch, bytes: &[u8], on_match: &mut F) -> ScanEnd
    where
        F: FnMut(u32, u64) -> ControlFlow<()>,
    {
        let Some(scratch) = self.scratch(scratch) else { return ScanEnd::NotPrepared };
        let mut report = Report { on_match, panic: None };
        // The library has 32 bits for the length.
        for part in bytes.chunks(1 << 30) {
            // SAFETY: stream and scratch are of one database and used by this call only; the bytes are readable, and fewer than 2^32; `event`
            // expects the report, which outlives the call, and does not unwind.
            let code = unsafe {
                (self.binding.run_time.scan)(
                    self.pointer.as_ptr(),
                    part.as_ptr().cast(),
                    part.len() as c_uint,
                    0,
                    scratch.as_ptr(),
                    Some(event::<F>),
                    (&raw mut report).cast(),
                )
            };
            if let Some(end) = report.end(code) {
                return end;
            }
        }
        ScanEnd::AllScanned
    }

    /// Tells the matches that the stream's end makes; the stream then begins anew.
    pub(crate) fn finish<F>(&mut self, scratch: &mut Scratch, on_match: &mut F) -> ScanEnd
    where
        F: FnMut(u32, u64) -> ControlFlow<()>,
    {
        let Some(scratch) = self.scratch(scratch) else { return ScanEnd::NotPrepared };
        let mut has_stopped = false;
        let mut on_match = |id, end| {
            let flow = on_match(id, end);
            has_stopped |= flow.is_break();
            flow
        };
        let mut report = Report { on_match: &mut on_match, panic: None };
        let call = event_of(&report);
        // SAFETY: as above.
        let code = unsafe {
            (self.binding.run_time.reset)(
                self.pointer.as_ptr(),
                0,
                scratch.as_ptr(),
                call,
                (&raw mut report).cast(),
            )
        };
        let end = report.end(code).unwrap_or(ScanEnd::AllScanned);
        if has_stopped { ScanEnd::Stopped } else { end }
    }

    /// Begins anew.
    pub(crate) fn restart(&mut self) {
        // SAFETY: the stream is open and used by this call only; without a function for matches it needs no scratch.
        unsafe { (self.binding.run_time.reset)(self.pointer.as_ptr(), 0, null_mut(), None, null_mut()) };
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.binding.database.is_some() {
            let place = self.place.as_ptr().cast();
            PLACE.set((place, 0));
            // SAFETY: the stream is open and is closed once; without a function for matches it needs no scratch. Its memory is kept by
            // `deallocate`.
            unsafe { (self.binding.run_time.close)(place.cast(), null_mut(), None, null_mut()) };
            PLACE.set((null_mut(), 0));
        }
        // It was opened in this memory, to which the scratch is bound as long as it has streams.
        if let Some(memory) = &self.binding.memory {
            memory.give_back(memory.line_of(self.place), self.binding.stream_lines());
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Stream").finish_non_exhaustive()
    }
}

/// Where matches go during a call of the library.
struct Report<'a, F> {
    on_match: &'a mut F,
    /// What the caller's function panicked with.
    panic: Option<Box<dyn Any + Send>>,
}

impl<F> Report<'_, F> {
    /// How a call ended that did not scan everything. A panic of the caller's function goes on.
    #[inline]
    fn end(&mut self, code: c_int) -> Option<ScanEnd> {
        if let Some(panic) = self.panic.take() {
            resume_unwind(panic);
        }
        match code {
            HS_SUCCESS => None,
            HS_SCAN_TERMINATED => Some(ScanEnd::Stopped),
            _ => Some(ScanEnd::NotPrepared),
        }
    }
}

/// [`event`] for a report's type of function, if that has no name.
fn event_of<F: FnMut(u32, u64) -> ControlFlow<()>>(_: &Report<'_, F>) -> OnEvent {
    Some(event::<F>)
}

/// Passes a match to the caller's function. Panics do not pass through the library: they end the scan, and go on behind it.
unsafe extern "C" fn event<F>(
    id: c_uint,
    _from: c_ulonglong,
    to: c_ulonglong,
    _flags: c_uint,
    context: *mut c_void,
) -> c_int
where
    F: FnMut(u32, u64) -> ControlFlow<()>,
{
    // SAFETY: the context is the report that this call of the library was given, of the same type of function; nothing else uses it now.
    let report = unsafe { &mut *context.cast::<Report<'_, F>>() };
    match catch_unwind(AssertUnwindSafe(|| (report.on_match)(id, to))) {
        Ok(flow) => c_int::from(flow.is_break()),
        Err(panic) => {
            report.panic = Some(panic);
            1
        }
    }
}
