//! Opening, scanning, finishing and closing streams, and looking for edits, allocate nothing, in Rust or in the library: this program has the `malloc` of the process.
//!
//! The only unsafe code outside of `ffi`: the C library's allocator cannot be counted without it. Every function hands its arguments to the C
//! library's own and counts the calls of the thread that asks.

use mmb_scan::{
    EditPatterns, EditScratch, EditStep, POOL_PAGE, Pattern, PatternSet, PreparedSet, ScanEnd, Scanner,
};
use std::cell::Cell;
use std::ffi::c_void;
use std::ops::ControlFlow;

thread_local! {
    /// Calls of the allocator by this thread; a plain number, so that counting needs no allocation.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that is being taken down has no counter any more.
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
}

fn calls() -> u64 {
    CALLS.get()
}

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(number: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(pointer: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_free(pointer: *mut c_void);
    fn __libc_memalign(align: usize, size: usize) -> *mut c_void;
}

// SAFETY: no other function of this program has the name; it does what the C library's does.
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    count();
    // SAFETY: the caller's promises are the C library's terms.
    unsafe { __libc_malloc(size) }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn calloc(number: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: as above.
    unsafe { __libc_calloc(number, size) }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(pointer: *mut c_void, size: usize) -> *mut c_void {
    count();
    // SAFETY: as above; the pointer came from the C library.
    unsafe { __libc_realloc(pointer, size) }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn free(pointer: *mut c_void) {
    count();
    // SAFETY: as above; the pointer came from the C library.
    unsafe { __libc_free(pointer) }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: as above.
    unsafe { __libc_memalign(align, size) }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(place: *mut *mut c_void, align: usize, size: usize) -> i32 {
    count();
    // SAFETY: the caller gives a place for the pointer; the rest as above.
    unsafe { place.write(__libc_memalign(align, size)) };
    // SAFETY: it was written above.
    if unsafe { (*place).is_null() } { libc_enomem() } else { 0 }
}

const fn libc_enomem() -> i32 {
    12
}

fn sets() -> [PatternSet; 3] {
    let texts: Vec<_> = (0..2000).map(|id| Pattern::text(id, format!("attack {id}!"))).collect();
    let regexes = ["x.{200}y", "[a-f]{2,30}z", "(?i)cmd\\.exe[0-9]+", "end$"];
    let regexes: Vec<_> = regexes.iter().zip(0..).map(|(source, id)| Pattern::regex(id, *source)).collect();
    let both = [&texts[..], &regexes[..]].concat();
    [texts, regexes, both].map(|list| PatternSet::compile(&list).expect("patterns"))
}

#[test]
fn the_packet_path_calls_no_allocator() {
    let before = calls();
    let sets = sets();
    assert!(calls() > before + 1000, "the library's calls are counted");
    let mut scanner = Scanner::new(64 * POOL_PAGE).expect("memory");
    let prepared: Vec<_> = sets.iter().map(|set| PreparedSet::new(set).expect("memory")).collect();
    let mut prepared = prepared.into_iter();
    let stream = b"attack 17! abcdefabcz CMD.EXE1 attack 1999!xxx".repeat(40);
    let mut states = Vec::with_capacity(100_000);
    let mut found = 0;
    let before = calls();
    for prepared in prepared.by_ref() {
        assert!(scanner.adopt(prepared).is_ok());
    }
    for _ in 0..3 {
        // Until the pool is full.
        while let Some(state) = scanner.open(&sets[states.len() % 3]) {
            states.push(state);
        }
        for (number, state) in states.iter_mut().enumerate() {
            for piece in stream.chunks(1 + number % 1448) {
                let end = scanner.scan(state, piece, &mut |_, _| {
                    found += 1;
                    ControlFlow::Continue(())
                });
                assert_eq!(end, ScanEnd::AllScanned);
            }
        }
        for state in states.drain(..) {
            match found % 3 {
                0 => drop(state),
                1 => scanner.close(state),
                _ => {
                    assert_eq!(scanner.finish(state, &mut |_, _| ControlFlow::Break(())), ScanEnd::AllScanned)
                }
            }
            found += 1;
        }
        assert_eq!(scanner.open_states(), 0);
    }
    let released = scanner.release(&sets[0]);
    assert_eq!(calls(), before, "calls of the allocator");
    assert!(released.is_some() && found > 100_000, "{found} matches");
}

#[test]
fn looking_for_edits_calls_no_allocator() {
    let texts: Vec<_> = (0..2000).map(|id| Pattern::text(id, format!("attack {id}!"))).collect();
    let long = [Pattern::text(0, "attack ".repeat(30)).ignoring_case(), Pattern::text(1, "17")];
    let regexes = ["<[^>]{0,200}>", "at.{0,30}k", "(?i)cmd\\.exe[0-9]{1,3}"];
    let regexes: Vec<_> = regexes.iter().zip(0..).map(|(source, id)| Pattern::regex(id, *source)).collect();
    let all = [&texts[..], &long, &regexes].concat();
    let mut scratch = EditScratch::new();
    let edits = [&texts[..], &long, &regexes, &all].map(|list| {
        let edit = EditPatterns::compile(list).expect("patterns");
        scratch.prepare(&edit);
        edit
    });
    let stream = [&b"attack 17! <<<a> CMD.EXE1 attack 1999!<xx".repeat(40)[..], &b"<".repeat(9000)].concat();
    let (mut matches, mut begun) = (0, 0);
    let before = calls();
    for edit in &edits {
        for piece in stream.chunks(1448) {
            begun += usize::from(edit.begun(&mut scratch, piece, 0, Some(b'x')).is_some());
            let mut from = 0;
            while let EditStep::Match { end, .. } = edit.next(&mut scratch, piece, from, Some(b'x'), false) {
                matches += 1;
                from = end;
            }
        }
    }
    assert_eq!(calls(), before, "calls of the allocator");
    assert!(matches > 200 && begun > 10, "{matches} matches, {begun} begun");
}
