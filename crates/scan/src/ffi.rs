//! Vectorscan, made safe: databases, scratches, and streams in memory of our own.
//!
//! Life-cycle: a [`Database`] is compiled once and read by any thread. A [`Scratch`] is what one thread needs to scan with it. A [`Stream`]
//! lies in a part of a [`StreamMemory`] and scans with the scratch by which it was opened.
//!
//! The library gets the memory of streams from one pair of functions for the whole process. Ours ([`allocate`], [`deallocate`]) serve the
//! place that this thread has put into [`PLACE`] around a call, and pass other users of the library in this process to `malloc`
//! and `free`. They are set when the first database is compiled; another user of the library that sets its own later makes [`Stream::open`]
//! fail, and must not set them while streams are open.
//!
//! All unsafe code of this room is in this file.
#![allow(unsafe_code)]

use crate::ScanEnd;
use crate::pool::{LINE, PAGE_LINES};
use std::alloc::Layout;
use std::any::Any;
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// A type of the library of which only pointers exist here.
macro_rules! opaque {
    ($($name:ident)*) => {
        $(
            #[repr(C)]
            struct $name {
                _bytes: [u8; 0],
                _marker: PhantomData<*mut u8>,
            }
        )*
    };
}

opaque!(HsDatabase HsScratch HsStream);

/// The processor that a database is for.
#[repr(C)]
struct HsPlatform {
    tune: c_uint,
    cpu_features: c_ulonglong,
    reserved1: c_ulonglong,
    reserved2: c_ulonglong,
}

/// Every processor: databases have nothing in them that the [`RunTime`] for SSE4.2 does not know.
static ANY_PLATFORM: HsPlatform = HsPlatform { tune: 0, cpu_features: 0, reserved1: 0, reserved2: 0 };

/// Why the library does not compile something.
#[repr(C)]
struct HsCompileError {
    message: *mut c_char,
    /// The place of the expression in the list; negative if it is about none of them.
    expression: c_int,
}

type OnEvent = Option<unsafe extern "C" fn(c_uint, c_ulonglong, c_ulonglong, c_uint, *mut c_void) -> c_int>;
type Allocate = Option<unsafe extern "C" fn(usize) -> *mut c_void>;
type Deallocate = Option<unsafe extern "C" fn(*mut c_void)>;

const HS_SUCCESS: c_int = 0;
const HS_SCAN_TERMINATED: c_int = -3;
/// What functions of a library that is not installed return.
#[cfg(not(vectorscan))]
const HS_COMPILER_ERROR: c_int = -4;
const HS_FLAG_CASELESS: c_uint = 1;
const HS_MODE_STREAM: c_uint = 2;

/// Declares functions of the library; where it is not installed, functions that fail.
macro_rules! library {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        #[cfg(vectorscan)]
        unsafe extern "C" {
            $(fn $name($($argument: $type),*) -> c_int;)*
        }
        $(
            #[cfg(not(vectorscan))]
            unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                $(let _ = $argument;)*
                HS_COMPILER_ERROR
            }
        )*
    };
}

library! {
    fn hs_valid_platform();
    fn hs_compile_multi(
        expressions: *const *const c_char,
        flags: *const c_uint,
        ids: *const c_uint,
        elements: c_uint,
        mode: c_uint,
        platform: *const HsPlatform,
        database: *mut *mut HsDatabase,
        error: *mut *mut HsCompileError,
    );
    fn hs_free_compile_error(error: *mut HsCompileError);
    fn hs_free_database(database: *mut HsDatabase);
    fn hs_stream_size(database: *const HsDatabase, size: *mut usize);
    fn hs_alloc_scratch(database: *const HsDatabase, scratch: *mut *mut HsScratch);
    fn hs_free_scratch(scratch: *mut HsScratch);
    fn hs_set_stream_allocator(allocate: Allocate, deallocate: Deallocate);
    fn hs_open_stream(database: *const HsDatabase, flags: c_uint, stream: *mut *mut HsStream);
    fn hs_scan_stream(
        stream: *mut HsStream,
        data: *const c_char,
        length: c_uint,
        flags: c_uint,
        scratch: *mut HsScratch,
        on_event: OnEvent,
        context: *mut c_void,
    );
    fn hs_reset_stream(
        stream: *mut HsStream,
        flags: c_uint,
        scratch: *mut HsScratch,
        on_event: OnEvent,
        context: *mut c_void,
    );
    fn hs_close_stream(
        stream: *mut HsStream,
        scratch: *mut HsScratch,
        on_event: OnEvent,
        context: *mut c_void,
    );
}

type OpenStream = unsafe extern "C" fn(*const HsDatabase, c_uint, *mut *mut HsStream) -> c_int;
type ScanStream = unsafe extern "C" fn(
    *mut HsStream,
    *const c_char,
    c_uint,
    c_uint,
    *mut HsScratch,
    OnEvent,
    *mut c_void,
) -> c_int;
type ResetStream = unsafe extern "C" fn(*mut HsStream, c_uint, *mut HsScratch, OnEvent, *mut c_void) -> c_int;
type CloseStream = unsafe extern "C" fn(*mut HsStream, *mut HsScratch, OnEvent, *mut c_void) -> c_int;

/// The library's functions on streams, of one of the instruction sets that it has them for.
///
/// Vectorscan 5.4.9 misses matches near the end of a piece where it searches with AVX-512 (texts and regexes) or AVX2 (regexes); the functions
/// for SSE4.2 find them (tests/matches.rs has such cases). From ten patterns on they cost the same.
struct RunTime {
    open: OpenStream,
    scan: ScanStream,
    reset: ResetStream,
    close: CloseStream,
}

impl RunTime {
    /// Those for SSE4.2 where there are such, else those that the library selects.
    fn select() -> &'static RunTime {
        static SELECTED: OnceLock<RunTime> = OnceLock::new();
        SELECTED.get_or_init(|| RunTime::sse42().unwrap_or_default())
    }

    #[cfg(all(vectorscan, target_arch = "x86_64"))]
    fn sse42() -> Option<RunTime> {
        /// Where a function of the library is.
        fn find(name: &CStr) -> Option<*mut c_void> {
            // SAFETY: the name is a string; the library was loaded with the program.
            let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            (!function.is_null()).then_some(function)
        }

        if !std::arch::is_x86_feature_detected!("sse4.2") || !std::arch::is_x86_feature_detected!("popcnt") {
            return None;
        }
        // SAFETY: these are the functions of the same names without prefix, with the same types, for processors with SSE4.2.
        unsafe {
            Some(RunTime {
                open: std::mem::transmute::<*mut c_void, OpenStream>(find(c"corei7_hs_open_stream")?),
                scan: std::mem::transmute::<*mut c_void, ScanStream>(find(c"corei7_hs_scan_stream")?),
                reset: std::mem::transmute::<*mut c_void, ResetStream>(find(c"corei7_hs_reset_stream")?),
                close: std::mem::transmute::<*mut c_void, CloseStream>(find(c"corei7_hs_close_stream")?),
            })
        }
    }

    #[cfg(not(all(vectorscan, target_arch = "x86_64")))]
    fn sse42() -> Option<RunTime> {
        None
    }
}

impl Default for RunTime {
    fn default() -> RunTime {
        RunTime { open: hs_open_stream, scan: hs_scan_stream, reset: hs_reset_stream, close: hs_close_stream }
    }
}

/// What the library compiles.
#[derive(Debug)]
pub(crate) struct Expression {
    pub source: CString,
    pub ignores_case: bool,
    pub id: u32,
}

/// Why it does not.
#[derive(Debug)]
pub(crate) enum CompileFailure {
    NoLibrary,
    UnsupportedProcessor,
    NoMemory,
    Refused { index: Option<usize>, message: String },
}

/// Compiled expressions.
pub(crate) struct Database {
    pointer: NonNull<HsDatabase>,
    stream_size: usize,
}

// SAFETY: the library does not change a database after it is compiled, and frees it from any thread.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

impl Database {
    /// Compiles expressions for streams.
    pub(crate) fn compile(expressions: &[Expression]) -> Result<Database, CompileFailure> {
        if cfg!(not(vectorscan)) {
            return Err(CompileFailure::NoLibrary);
        }
        // SAFETY: it reads what the processor can do.
        if unsafe { hs_valid_platform() } != HS_SUCCESS {
            return Err(CompileFailure::UnsupportedProcessor);
        }
        set_stream_allocator()?;
        let sources: Vec<_> = expressions.iter().map(|expression| expression.source.as_ptr()).collect();
        let flags: Vec<_> = expressions
            .iter()
            .map(|expression| HS_FLAG_CASELESS * c_uint::from(expression.ignores_case))
            .collect();
        let ids: Vec<c_uint> = expressions.iter().map(|expression| expression.id).collect();
        let elements = c_uint::try_from(sources.len()).map_err(|_| CompileFailure::NoMemory)?;
        let (mut database, mut error) = (null_mut(), null_mut());
        // SAFETY: the three lists have `elements` elements, the sources end with a zero byte, and all outlive the call; the platform has all
        // its fields; the results are written to places of their types.
        let code = unsafe {
            hs_compile_multi(
                sources.as_ptr(),
                flags.as_ptr(),
                ids.as_ptr(),
                elements,
                HS_MODE_STREAM,
                &raw const ANY_PLATFORM,
                &raw mut database,
                &raw mut error,
            )
        };
        match NonNull::new(database) {
            Some(pointer) if code == HS_SUCCESS => Database::sized(pointer),
            _ => Err(take_error(error)),
        }
    }

    /// Owns a database that was compiled.
    fn sized(pointer: NonNull<HsDatabase>) -> Result<Database, CompileFailure> {
        let mut database = Database { pointer, stream_size: 0 };
        // SAFETY: the database is one, and the size has a place.
        let code = unsafe { hs_stream_size(pointer.as_ptr(), &raw mut database.stream_size) };
        if code == HS_SUCCESS { Ok(database) } else { Err(CompileFailure::NoMemory) }
    }

    /// Bytes of a stream.
    pub(crate) fn stream_size(&self) -> usize {
        self.stream_size
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: it was compiled, and is freed once; streams and scratches of it keep it.
        unsafe { hs_free_database(self.pointer.as_ptr()) };
    }
}

/// Reads and frees what the library says about a failure.
fn take_error(error: *mut HsCompileError) -> CompileFailure {
    // SAFETY: null, or an error that the library made and that is freed below.
    let Some(known) = (unsafe { error.as_ref() }) else { return CompileFailure::NoMemory };
    let message = if known.message.is_null() {
        String::from("no reason given")
    } else {
        // SAFETY: a string of the library's, which lives as long as the error.
        let text = unsafe { CStr::from_ptr(known.message) }.to_string_lossy();
        text.trim_end_matches('.').to_owned()
    };
    let failure = CompileFailure::Refused { index: usize::try_from(known.expression).ok(), message };
    // SAFETY: the error came from the library, and is not used any more.
    unsafe { hs_free_compile_error(error) };
    failure
}

thread_local! {
    /// Where the stream is that this thread opens or closes now, and its size.
    static PLACE: Cell<(*mut c_void, usize)> = const { Cell::new((null_mut(), 0)) };
}

/// Sets our functions for the memory of streams, once.
fn set_stream_allocator() -> Result<(), CompileFailure> {
    static CODE: OnceLock<c_int> = OnceLock::new();
    // SAFETY: the two functions work as a pair, on any thread.
    let set = || unsafe { hs_set_stream_allocator(Some(allocate), Some(deallocate)) };
    if *CODE.get_or_init(set) == HS_SUCCESS { Ok(()) } else { Err(CompileFailure::NoMemory) }
}

/// Memory for a stream: the place that this thread has for it, else the C library's.
unsafe extern "C" fn allocate(size: usize) -> *mut c_void {
    match PLACE.replace((null_mut(), 0)) {
        // SAFETY: malloc takes every size.
        (place, _) if place.is_null() => unsafe { libc::malloc(size) },
        (place, most) if size <= most => place,
        _ => null_mut(),
    }
}

/// Frees the memory of a stream: that of the place that this thread closes is kept, other memory is the C library's.
unsafe extern "C" fn deallocate(pointer: *mut c_void) {
    let (place, _) = PLACE.replace((null_mut(), 0));
    if place != pointer {
        // SAFETY: streams of ours are closed with their place set, so this one came from `malloc` in `allocate`.
        unsafe { libc::free(pointer) };
    }
}

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

/// A line that is in no stream.
const FREE: u32 = u32::MAX;
/// A line of an open stream.
const TAKEN: u32 = u32::MAX - 1;
/// The end of the list of returned places.
const END: u32 = u32::MAX - 2;

/// Memory for streams, in lines of 64 bytes. It is got once, and touched as it is used.
pub(crate) struct StreamMemory {
    first: NonNull<u8>,
    layout: Layout,
    /// Of each line: [`FREE`], [`TAKEN`], or, at the first line of a place that came back, the next such place.
    states: Box<[AtomicU32]>,
    /// The first place that came back.
    returned: AtomicU32,
}

// SAFETY: the lines belong to the streams that have taken them; which ones are taken is known by atomic numbers.
unsafe impl Send for StreamMemory {}
// SAFETY: as above.
unsafe impl Sync for StreamMemory {}

impl StreamMemory {
    /// `None` without memory.
    pub(crate) fn new(pages: usize) -> Option<StreamMemory> {
        let lines = pages.max(1).checked_mul(PAGE_LINES).filter(|lines| *lines < END as usize)?;
        let layout = Layout::from_size_align(lines.checked_mul(LINE)?, LINE).ok()?;
        // SAFETY: the layout has a size. Memory that is zero anyway is not touched by this.
        let first = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        let states = (0..lines).map(|_| AtomicU32::new(FREE)).collect();
        Some(StreamMemory { first, layout, states, returned: AtomicU32::new(END) })
    }

    /// Takes lines for a stream: where they are. `None` if one of them is taken or does not exist.
    fn claim(&self, line: u32, lines: usize) -> Option<NonNull<u8>> {
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

    /// Gives lines back, which are free from when [`StreamMemory::take_returned`] tells of them.
    fn give_back(&self, line: u32, lines: usize) {
        let Some([first, others @ ..]) = self.states.get(line as usize..line as usize + lines) else {
            return;
        };
        others.iter().for_each(|state| state.store(FREE, Ordering::Release));
        let mut head = self.returned.load(Ordering::Relaxed);
        loop {
            first.store(head, Ordering::Relaxed);
            // Only whole lists are taken off, so that the head means the same list whenever it is the same.
            match self.returned.compare_exchange_weak(head, line, Ordering::Release, Ordering::Relaxed) {
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
        let mut line = self.returned.swap(END, Ordering::Acquire);
        while let Some(state) = self.states.get(line as usize) {
            let next = state.swap(FREE, Ordering::AcqRel);
            on_place(line);
            line = next;
        }
    }
}

impl Drop for StreamMemory {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and streams in it would hold it.
        unsafe { std::alloc::dealloc(self.first.as_ptr(), self.layout) };
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
        memory.states[line as usize..][..lines].iter().for_each(|state| state.store(FREE, Ordering::Release));
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
            let line = (self.place.addr().get() - memory.first.addr().get()) / LINE;
            memory.give_back(line as u32, self.binding.stream_lines());
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
