//! The declarations of Vectorscan, and the choice of its instruction set.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::marker::PhantomData;
use std::sync::OnceLock;

/// A type of the library of which only pointers exist here.
macro_rules! opaque {
    ($($name:ident)*) => {
        $(
            #[repr(C)]
            pub(super) struct $name {
                _bytes: [u8; 0],
                _marker: PhantomData<*mut u8>,
            }
        )*
    };
}

opaque!(HsDatabase HsScratch HsStream);

/// The processor that a database is for.
#[repr(C)]
pub(super) struct HsPlatform {
    tune: c_uint,
    cpu_features: c_ulonglong,
    reserved1: c_ulonglong,
    reserved2: c_ulonglong,
}

/// Every processor: databases have nothing in them that the [`RunTime`] for SSE4.2 does not know.
pub(super) static ANY_PLATFORM: HsPlatform =
    HsPlatform { tune: 0, cpu_features: 0, reserved1: 0, reserved2: 0 };

/// Why the library does not compile something.
#[repr(C)]
pub(super) struct HsCompileError {
    pub(super) message: *mut c_char,
    /// The place of the expression in the list; negative if it is about none of them.
    pub(super) expression: c_int,
}

pub(super) type OnEvent =
    Option<unsafe extern "C" fn(c_uint, c_ulonglong, c_ulonglong, c_uint, *mut c_void) -> c_int>;
pub(super) type Allocate = Option<unsafe extern "C" fn(usize) -> *mut c_void>;
pub(super) type Deallocate = Option<unsafe extern "C" fn(*mut c_void)>;

pub(super) const HS_SUCCESS: c_int = 0;
pub(super) const HS_NOMEM: c_int = -2;
pub(super) const HS_SCAN_TERMINATED: c_int = -3;
/// What functions of a library that is not installed return.
#[cfg(not(vectorscan))]
const HS_COMPILER_ERROR: c_int = -4;
pub(super) const HS_FLAG_CASELESS: c_uint = 1;
pub(super) const HS_MODE_STREAM: c_uint = 2;

/// Declares functions of the library; where it is not installed, functions that fail.
macro_rules! library {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        #[cfg(vectorscan)]
        unsafe extern "C" {
            $(pub(super) fn $name($($argument: $type),*) -> c_int;)*
        }
        $(
            #[cfg(not(vectorscan))]
            pub(super) unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
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
    fn hs_serialize_database(database: *const HsDatabase, bytes: *mut *mut c_char, length: *mut usize);
    fn hs_deserialize_database(bytes: *const c_char, length: usize, database: *mut *mut HsDatabase);
    fn hs_database_size(database: *const HsDatabase, size: *mut usize);
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

pub(super) type OpenStream = unsafe extern "C" fn(*const HsDatabase, c_uint, *mut *mut HsStream) -> c_int;
pub(super) type ScanStream = unsafe extern "C" fn(
    *mut HsStream,
    *const c_char,
    c_uint,
    c_uint,
    *mut HsScratch,
    OnEvent,
    *mut c_void,
) -> c_int;
pub(super) type ResetStream =
    unsafe extern "C" fn(*mut HsStream, c_uint, *mut HsScratch, OnEvent, *mut c_void) -> c_int;
pub(super) type CloseStream =
    unsafe extern "C" fn(*mut HsStream, *mut HsScratch, OnEvent, *mut c_void) -> c_int;

/// The library's functions on streams, of one of the instruction sets that it has them for.
///
/// Vectorscan 5.4.9 misses matches near the end of a piece where it searches with AVX-512 (texts and regexes) or AVX2 (regexes); the functions
/// for SSE4.2 find them (tests/it/matches.rs has such cases). From ten patterns on they cost the same.
pub(super) struct RunTime {
    pub(super) open: OpenStream,
    pub(super) scan: ScanStream,
    pub(super) reset: ResetStream,
    pub(super) close: CloseStream,
}

impl RunTime {
    /// Those for SSE4.2 where there are such, else those that the library selects.
    pub(super) fn select() -> &'static RunTime {
        static SELECTED: OnceLock<RunTime> = OnceLock::new();
        SELECTED.get_or_init(|| RunTime::sse42().unwrap_or_default())
    }

    #[cfg(all(vectorscan, target_arch = "x86_64"))]
    fn sse42() -> Option<RunTime> {
        /// Where a function of the library is.
        fn find(name: &std::ffi::CStr) -> Option<*mut c_void> {
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
