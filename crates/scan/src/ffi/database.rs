//! Databases: expressions are compiled for streams, and the library is told where streams get their memory.

use super::library::{
    ANY_PLATFORM, HS_FLAG_CASELESS, HS_MODE_STREAM, HS_NOMEM, HS_SUCCESS, HsCompileError, HsDatabase,
    hs_compile_multi, hs_database_size, hs_deserialize_database, hs_free_compile_error, hs_free_database,
    hs_serialize_database, hs_set_stream_allocator, hs_stream_size, hs_valid_platform,
};
use super::memory::{allocate, deallocate};
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

/// What the library compiles.
#[derive(Debug)]
pub(crate) struct Expression {
    pub source: CString,
    pub ignores_case: bool,
    pub id: u32,
}

/// Why it does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CompileFailure {
    NoLibrary,
    UnsupportedProcessor,
    NoMemory,
    Refused { index: Option<usize>, message: String },
}

/// Compiled expressions.
#[derive(Debug)]
pub(crate) struct Database {
    pub(super) pointer: NonNull<HsDatabase>,
    pub(super) stream_size: usize,
}

// SAFETY: the library does not change a database after it is compiled, and frees it from any thread.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

impl Database {
    /// Compiles expressions for streams.
    pub(crate) fn compile(expressions: &[Expression]) -> Result<Database, CompileFailure> {
        prepare_library()?;
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

    /// The database as bytes, for another process of this program.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, CompileFailure> {
        let (mut bytes, mut length) = (null_mut::<c_char>(), 0);
        // SAFETY: the database is one, and the results have places of their types.
        let code = unsafe { hs_serialize_database(self.pointer.as_ptr(), &raw mut bytes, &raw mut length) };
        if code != HS_SUCCESS || bytes.is_null() {
            return Err(CompileFailure::NoMemory);
        }
        // SAFETY: on success the library has written `length` bytes.
        let copy = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) }.to_vec();
        // SAFETY: the library's allocator was not replaced, so it called malloc; the bytes are not used any more.
        unsafe { libc::free(bytes.cast()) };
        Ok(copy)
    }

    /// Reads a database that another process of this program has written as bytes. The library verifies a checksum and
    /// refuses damaged bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Database, CompileFailure> {
        prepare_library()?;
        let mut database = null_mut();
        // SAFETY: the library reads `bytes.len()` bytes, and writes the result to a place of its type.
        let code = unsafe { hs_deserialize_database(bytes.as_ptr().cast(), bytes.len(), &raw mut database) };
        match NonNull::new(database) {
            Some(pointer) if code == HS_SUCCESS => Database::sized(pointer),
            _ if code == HS_NOMEM => Err(CompileFailure::NoMemory),
            _ => {
                let message = format!("the compiled patterns are damaged ({code})");
                Err(CompileFailure::Refused { index: None, message })
            }
        }
    }

    /// Owns a database that was compiled.
    fn sized(pointer: NonNull<HsDatabase>) -> Result<Database, CompileFailure> {
        let mut database = Database { pointer, stream_size: 0 };
        // SAFETY: the database is one, and the size has a place.
        let code = unsafe { hs_stream_size(pointer.as_ptr(), &raw mut database.stream_size) };
        if code == HS_SUCCESS { Ok(database) } else { Err(CompileFailure::NoMemory) }
    }

    /// Bytes of the database.
    pub(crate) fn bytes(&self) -> usize {
        let mut size = 0;
        // SAFETY: the database is one, and the size has a place.
        let code = unsafe { hs_database_size(self.pointer.as_ptr(), &raw mut size) };
        if code == HS_SUCCESS { size } else { 0 }
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
    // The library has a fixed error for a lack of memory.
    let failure = match message.contains("allocate memory") {
        true => CompileFailure::NoMemory,
        false => CompileFailure::Refused { index: usize::try_from(known.expression).ok(), message },
    };
    // SAFETY: the error came from the library, and is not used any more.
    unsafe { hs_free_compile_error(error) };
    failure
}

/// Checks what Vectorscan needs before it makes databases.
fn prepare_library() -> Result<(), CompileFailure> {
    if cfg!(not(vectorscan)) {
        return Err(CompileFailure::NoLibrary);
    }
    // SAFETY: it reads the features of the processor.
    if unsafe { hs_valid_platform() } != HS_SUCCESS {
        return Err(CompileFailure::UnsupportedProcessor);
    }
    set_stream_allocator()
}

/// Sets our functions for the memory of streams, once.
fn set_stream_allocator() -> Result<(), CompileFailure> {
    static CODE: OnceLock<c_int> = OnceLock::new();
    // SAFETY: the two functions work as a pair, on any thread.
    let set = || unsafe { hs_set_stream_allocator(Some(allocate), Some(deallocate)) };
    if *CODE.get_or_init(set) == HS_SUCCESS { Ok(()) } else { Err(CompileFailure::NoMemory) }
}
