//! Editing allocates nothing: this program counts what its allocator is asked for.
//!
//! The only unsafe code of the room: an allocator cannot be written without it. It hands all calls to the system's.

use mmb_http::HttpDirection;
use mmb_httpedit::{
    EditOutput, HttpEditor, HttpInput, HttpMemory, HttpNote, HttpProgress, HttpRules, HttpTools,
};
use mmb_policy::field::{Field, FieldId};
use mmb_policy::http::{HeaderName, Replacement};
use mmb_policy::pattern::{PatternItem, Regex};
use mmb_policy::rule::{Match, Rule, StreamEdit, Target, Test};
use mmb_policy::settings::HttpSettings;
use mmb_scan::{EditScratch, InProcess, Scanner, SetCache, SetSource};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

fn count() {
    // A thread that is being taken down has no counter any more.
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: all calls go to the system's allocator, whose terms the callers keep.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts output.
#[derive(Default)]
struct Sink {
    decided: usize,
    written: usize,
}

impl EditOutput for Sink {
    fn pass(&mut self, count: usize) {
        self.decided += count;
        self.written += count;
    }

    fn replace(&mut self, count: usize, by: &[u8]) {
        self.decided += count;
        self.written += by.len();
    }

    fn hit(&mut self, _: u32, _: usize) {}

    fn note(&mut self, _: HttpNote) {}
}

fn rules() -> Vec<Rule> {
    let is = |id, test| Match { negated: false, field: Field::new(id), test };
    let text = |text: &str| PatternItem::Text(text.into());
    let regex = |source: &str| PatternItem::Regex(Regex { source: source.to_owned(), ignores_case: true });
    let name = |name: &str| HeaderName::new(name.as_bytes()).expect("a name");
    let body = Field::new(FieldId::HttpBody);
    let rule = |matches, edits: Vec<StreamEdit>| Rule {
        id: None,
        prio: 100,
        name: None,
        stateful: true,
        draining: false,
        matches,
        targets: edits.into_iter().map(Target::Edit).chain([Target::Alert(None)]).collect(),
    };
    vec![
        rule(
            vec![is(FieldId::HttpBody, Test::Patterns(vec![text("bad"), regex("e{2,5}vil")]))],
            vec![StreamEdit::Mod(body, Replacement::of_bytes(b"better".to_vec()))],
        ),
        rule(
            vec![is(FieldId::HttpUri, Test::Patterns(vec![regex("a.*b$")]))],
            vec![
                StreamEdit::AddHeader(name("X"), b"y".to_vec()),
                StreamEdit::ModHeader(name("Server"), Replacement::of_bytes(b"mmb".to_vec())),
                StreamEdit::AddBody(b"tail".to_vec()),
            ],
        ),
        rule(vec![is(FieldId::HttpBody, Test::Patterns(vec![regex("x.*y")]))], vec![]),
    ]
}

#[test]
fn editing_allocates_nothing() {
    let rules = rules();
    let settings = HttpSettings::default();
    let sets = SetCache::default();
    let rules =
        HttpRules::compile((0..).zip(&rules), &|_| None, &settings, SetSource::compiling(&sets, &InProcess))
            .expect("good rules");
    let mut scanner = Scanner::new(1 << 20).expect("memory");
    rules.sets().for_each(|set| scanner.prepare(set).expect("memory"));
    let mut scratch = EditScratch::new();
    rules.edit_patterns().for_each(|patterns| scratch.prepare(patterns));
    let mut memory = HttpMemory::default();
    let request = b"GET /aab HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n".as_slice();
    let chunks = b"4\r\nxxba\r\n3\r\ndxx\r\n5\r\neevil\r\n".repeat(2000);
    let head =
        b"HTTP/1.1 200 OK\r\nServer: s\r\nETag: \"e\"\r\nTransfer-Encoding: chunked\r\n\r\n".as_slice();
    let response = [head, &chunks, b"0\r\n\r\n"].concat();
    for piece in [response.len(), 1448, 100] {
        let mut editor = HttpEditor::new(&rules, 3);
        for _ in 0..3 {
            for (direction, bytes) in
                [(HttpDirection::Requests, request), (HttpDirection::Responses, &response)]
            {
                let mut sink = Sink::default();
                let mut end = 0;
                let before = CALLS.get();
                while end < bytes.len() {
                    end = (end + piece).min(bytes.len());
                    let input = HttpInput {
                        direction,
                        bytes: &bytes[sink.decided..end],
                        is_end: false,
                        release: false,
                    };
                    let mut tools = HttpTools {
                        rules: &rules,
                        live: &[0, 1, 2],
                        scanner: &mut scanner,
                        scratch: &mut scratch,
                        memory: &mut memory,
                    };
                    let progress = editor.edit(&mut tools, input, &mut sink);
                    assert!(matches!(progress, HttpProgress::All | HttpProgress::Held(_)), "{progress:?}");
                }
                assert_eq!(CALLS.get() - before, 0, "pieces of {piece}");
                assert_eq!(sink.decided, bytes.len());
                assert_ne!(sink.written, bytes.len());
            }
        }
        editor.close(&mut scanner);
    }
}

#[test]
fn an_editor_is_small() {
    assert!(size_of::<HttpEditor>() <= 800, "{}", size_of::<HttpEditor>());
}
