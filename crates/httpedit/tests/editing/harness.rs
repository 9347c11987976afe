//! An editor between two ends: bytes of both directions in, edited bytes out.

use mmb_http::{HeadBuffer, HttpConnection, HttpDirection, HttpPiece};
use mmb_httpedit::{
    EditOutput, Held, HttpEditor, HttpInput, HttpMemory, HttpNote, HttpProgress, HttpRules, HttpTools,
};
use mmb_policy::Rule;
use mmb_policy::field::{Field, FieldId};
use mmb_policy::http::{HeaderName, Replacement, ReplacementPart};
use mmb_policy::pattern::{PatternItem, PatternList, Regex};
use mmb_policy::rule::{Match, StreamEdit, Target, Test};
use mmb_policy::settings::HttpSettings;
use mmb_scan::{EditScratch, InProcess, Scanner, SetCache, SetSource};

pub(crate) const CLIENT: HttpDirection = HttpDirection::Requests;
pub(crate) const SERVER: HttpDirection = HttpDirection::Responses;

/// A rule of constraints and targets.
pub(crate) fn rule(matches: Vec<Match>, targets: Vec<Target>) -> Rule {
    Rule { id: None, prio: 100, name: None, stateful: true, draining: false, matches, targets }
}

pub(crate) fn field(id: FieldId) -> Field {
    Field::new(id)
}

pub(crate) fn is(id: FieldId, test: Test) -> Match {
    Match { negated: false, field: field(id), test }
}

pub(crate) fn not(constraint: Match) -> Match {
    Match { negated: true, ..constraint }
}

pub(crate) fn text(text: &str) -> PatternItem {
    PatternItem::Text(text.into())
}

pub(crate) fn regex(source: &str) -> PatternItem {
    PatternItem::Regex(Regex { source: source.to_owned(), ignores_case: false })
}

pub(crate) fn http() -> Match {
    is(FieldId::Http, Test::Present)
}

pub(crate) fn patterns(id: FieldId, items: Vec<PatternItem>) -> Match {
    is(id, Test::Patterns(items))
}

pub(crate) fn header(name: &str, items: Vec<PatternItem>) -> Match {
    is(FieldId::HttpHeader, Test::Header(header_name(name), items))
}

pub(crate) fn body(item: PatternItem) -> Match {
    patterns(FieldId::HttpBody, vec![item])
}

pub(crate) fn header_name(name: &str) -> HeaderName {
    HeaderName::new(name.as_bytes()).expect("a name")
}

/// A replacement in which `~` is what was matched.
pub(crate) fn replacement(text: &str) -> Replacement {
    let mut parts = Vec::new();
    for (number, part) in text.split('~').enumerate() {
        if number > 0 {
            parts.push(ReplacementPart::Matched);
        }
        parts.push(ReplacementPart::Bytes(part.into()));
    }
    Replacement::new(parts)
}

pub(crate) fn edit(edit: StreamEdit) -> Target {
    Target::Edit(edit)
}

pub(crate) fn mask_body() -> Target {
    edit(StreamEdit::Mask(field(FieldId::HttpBody), Vec::new()))
}

pub(crate) fn mod_body(text: &str) -> Target {
    edit(StreamEdit::Mod(field(FieldId::HttpBody), replacement(text)))
}

pub(crate) fn strip_body() -> Target {
    edit(StreamEdit::Strip(field(FieldId::HttpBody)))
}

pub(crate) fn add_body(text: &str) -> Target {
    edit(StreamEdit::AddBody(text.into()))
}

pub(crate) fn mod_header(name: &str, text: &str) -> Target {
    edit(StreamEdit::ModHeader(header_name(name), replacement(text)))
}

pub(crate) fn add_header(name: &str, value: &str) -> Target {
    edit(StreamEdit::AddHeader(header_name(name), value.into()))
}

pub(crate) fn strip_header(name: &str) -> Target {
    edit(StreamEdit::StripHeader(header_name(name)))
}

pub(crate) fn keep_header(name: &str) -> Target {
    edit(StreamEdit::KeepHeader(header_name(name)))
}

/// The editor of a connection that has all rules.
pub(crate) struct Middle {
    rules: HttpRules,
    live: Vec<u32>,
    scanner: Scanner,
    scratch: EditScratch,
    memory: HttpMemory,
    pub(crate) editor: HttpEditor,
    undecided: [Vec<u8>; 2],
    has_ended: [bool; 2],
    output: [Output; 2],
    /// What the last question about a direction was answered.
    pub(crate) progress: [HttpProgress; 2],
    /// The borders of messages when each direction was asked about last.
    pub(crate) borders: [u32; 2],
}

/// What an editor told of a direction.
#[derive(Clone, Debug, Default)]
struct Output {
    undecided: Vec<u8>,
    out: Vec<u8>,
    hits: Vec<u32>,
    notes: Vec<HttpNote>,
    replacements: usize,
}

impl EditOutput for Output {
    fn pass(&mut self, count: usize) {
        self.out.extend(self.undecided.drain(..count));
    }

    fn replace(&mut self, count: usize, by: &[u8]) {
        assert!(count > 0, "an insertion without an anchor: {}", by.escape_ascii());
        self.undecided.drain(..count);
        self.out.extend(by);
        self.replacements += 1;
    }

    fn hit(&mut self, rule: u32, _: usize) {
        self.hits.push(rule);
    }

    fn note(&mut self, note: HttpNote) {
        self.notes.push(note);
    }
}

impl Middle {
    pub(crate) fn new(rules: &[Rule]) -> Middle {
        Middle::with_settings(rules, &HttpSettings::default())
    }

    pub(crate) fn with_settings(rules: &[Rule], settings: &HttpSettings) -> Middle {
        let list = PatternList::new("f".to_owned(), vec![b"one".to_vec(), b"/two".to_vec()]);
        let lists = |name: &str| if name == "list" { Some(&list) } else { None };
        let numbered = (10..).zip(rules);
        let sets = SetCache::default();
        let rules = HttpRules::compile(numbered, &lists, settings, SetSource::compiling(&sets, &InProcess))
            .expect("rules that compile");
        let mut scanner = Scanner::new(1 << 20).expect("memory");
        rules.sets().for_each(|set| scanner.prepare(set).expect("memory"));
        let mut scratch = EditScratch::new();
        rules.edit_patterns().for_each(|patterns| scratch.prepare(patterns));
        let live: Vec<u32> = (0..).take_while(|index| rules.number(*index).is_some()).collect();
        let editor = HttpEditor::new(&rules, live.len());
        Middle {
            rules,
            live,
            scanner,
            scratch,
            memory: HttpMemory::default(),
            editor,
            undecided: Default::default(),
            has_ended: [false; 2],
            output: Default::default(),
            progress: [HttpProgress::All; 2],
            borders: [0; 2],
        }
    }

    /// Shows more bytes of a direction, and asks about what waits in the other one.
    pub(crate) fn feed(&mut self, direction: HttpDirection, bytes: &[u8]) -> &mut Middle {
        self.undecided[direction as usize].extend_from_slice(bytes);
        self.ask(direction, false);
        let other = if direction == CLIENT { SERVER } else { CLIENT };
        let is_held = self.progress[other as usize] == HttpProgress::Held(Held::Other);
        if is_held && self.editor.may_resume(self.borders[other as usize]) {
            self.ask(other, false);
            self.ask(direction, false);
        }
        self
    }

    pub(crate) fn end(&mut self, direction: HttpDirection) -> &mut Middle {
        self.has_ended[direction as usize] = true;
        self.ask(direction, false);
        self
    }

    /// The time is over for which bytes are held.
    pub(crate) fn release(&mut self, direction: HttpDirection) -> &mut Middle {
        self.ask(direction, true);
        self
    }

    fn ask(&mut self, direction: HttpDirection, release: bool) {
        let index = direction as usize;
        let bytes = self.undecided[index].clone();
        self.output[index].undecided.clone_from(&bytes);
        let mut tools = HttpTools {
            rules: &self.rules,
            live: &self.live,
            scanner: &mut self.scanner,
            scratch: &mut self.scratch,
            memory: &mut self.memory,
        };
        let input = HttpInput { direction, bytes: &bytes, is_end: self.has_ended[index], release };
        let progress = self.editor.edit(&mut tools, input, &mut self.output[index]);
        self.undecided[index].clone_from(&self.output[index].undecided);
        let left = self.undecided[index].len();
        match progress {
            HttpProgress::All | HttpProgress::Opaque => assert_eq!(left, 0),
            HttpProgress::Held(_) => assert!(left > 0),
            HttpProgress::Ended(_) | HttpProgress::Unfit(_) | HttpProgress::NoRoom => {}
        }
        self.progress[index] = progress;
        self.borders[index] = self.editor.borders();
    }

    /// The bytes that have left in a direction.
    pub(crate) fn out(&self, direction: HttpDirection) -> &[u8] {
        &self.output[direction as usize].out
    }

    pub(crate) fn text(&self, direction: HttpDirection) -> String {
        String::from_utf8_lossy(self.out(direction)).into_owned()
    }

    /// The caller's numbers of rules that were met or have edited, in both directions: 10 is the first rule.
    pub(crate) fn hits(&self) -> Vec<u32> {
        self.output.iter().flat_map(|output| output.hits.clone()).collect()
    }

    pub(crate) fn notes(&self) -> Vec<HttpNote> {
        self.output.iter().flat_map(|output| output.notes.clone()).collect()
    }

    pub(crate) fn replacements(&self, direction: HttpDirection) -> usize {
        self.output[direction as usize].replacements
    }

    pub(crate) fn held(&self, direction: HttpDirection) -> Option<Held> {
        match self.progress[direction as usize] {
            HttpProgress::Held(held) => Some(held),
            _ => None,
        }
    }

    /// The rules are told as those of another policy.
    pub(crate) fn change_rules(&mut self) {
        self.editor.change_rules(self.live.len());
    }
}

impl Drop for Middle {
    fn drop(&mut self) {
        self.editor.close(&mut self.scanner);
        assert_eq!(self.scanner.open_states(), 0);
    }
}

/// A connection of one request and one response through rules, as texts.
pub(crate) fn exchange(rules: &[Rule], request: &str, response: &str) -> (String, String) {
    let mut middle = Middle::new(rules);
    middle.feed(CLIENT, request.as_bytes()).feed(SERVER, response.as_bytes()).end(SERVER);
    assert_eq!(middle.progress, [HttpProgress::All; 2], "{request:?} {response:?}");
    (middle.text(CLIENT), middle.text(SERVER))
}

/// Asserts that a strict reader reads what has left in both directions. All requests come first, for it may be that responses came earlier.
pub(crate) fn assert_fit(requests: &[u8], responses: &[u8]) {
    let (mut connection, mut buffer) = (HttpConnection::new(1 << 20), HeadBuffer::default());
    for (direction, bytes) in [(CLIENT, requests), (SERVER, responses)] {
        let mut at = 0;
        loop {
            let piece = connection.next(direction, &bytes[at..], true, &mut buffer);
            match piece {
                HttpPiece::Unfit(reason) => panic!("{reason:?} at {at} in {}", bytes.escape_ascii()),
                HttpPiece::More | HttpPiece::Wait | HttpPiece::Opaque => break,
                piece => at += piece.consumed(),
            }
        }
    }
}
