//! Edits of the messages of a connection: however its bytes are cut, both ends see the same.
//!
//! Two sets of rules: with edits that keep every framing, all bytes that leave are the same; with edits that change lengths, what a strict reader reads in
//! them is.

use super::pieces::{Step, other};
use mmb_http::{HeadBuffer, HttpConnection, HttpDirection, HttpPiece};
use mmb_httpedit::{
    EditOutput, Held, HttpEditor, HttpInput, HttpMemory, HttpNote, HttpProgress, HttpRules, HttpTools,
};
use mmb_policy::field::{Field, FieldId};
use mmb_policy::http::{HeaderName, Replacement, ReplacementPart};
use mmb_policy::pattern::{PatternItem, Regex};
use mmb_policy::rule::{Cond, Match, NumberItem, NumberSet, Rule, StreamEdit, Target, Test};
use mmb_policy::settings::{HttpSettings, HttpUnfit};
use mmb_scan::{EditScratch, InProcess, Scanner, SetCache, SetSource};
use std::cell::RefCell;
use std::sync::LazyLock;

/// A set of rules, and whether its edits keep every framing.
struct RuleSet {
    rules: HttpRules,
    keeps_framing: bool,
}

/// What a worker has, for all sets.
struct Worker {
    scanner: Scanner,
    scratch: EditScratch,
    memory: HttpMemory,
}

impl Worker {
    fn new() -> Worker {
        let mut scanner = Scanner::new(1 << 16).expect("memory");
        let mut scratch = EditScratch::new();
        for set in &*SETS {
            set.rules.sets().for_each(|set| scanner.prepare(set).expect("memory"));
            set.rules.edit_patterns().for_each(|patterns| scratch.prepare(patterns));
        }
        Worker { scanner, scratch, memory: HttpMemory::default() }
    }
}

thread_local! {
    static WORKER: RefCell<Worker> = RefCell::new(Worker::new());
}

static SETS: LazyLock<[RuleSet; 3]> = LazyLock::new(|| {
    let text = |text: &str| PatternItem::Text(text.into());
    let regex = |source: &str| PatternItem::Regex(Regex { source: source.to_owned(), ignores_case: true });
    let name = |name: &str| HeaderName::new(name.as_bytes()).expect("a name");
    let body = |items| constraint(FieldId::HttpBody, Test::Patterns(items));
    let any = || constraint(FieldId::Http, Test::Present);
    let content = Field::new(FieldId::HttpBody);
    let matched = Replacement::new([ReplacementPart::Bytes(b"<".to_vec()), ReplacementPart::Matched]);
    let ok = constraint(FieldId::HttpStatus, Test::Number(Cond::Eq, NumberSet(vec![NumberItem::One(200)])));
    let in_place = vec![
        rule(
            vec![body(vec![text("hello"), regex("o1?k?2")])],
            vec![StreamEdit::Mask(content, b"XY".to_vec())],
        ),
        rule(
            vec![any()],
            vec![
                StreamEdit::ModHeader(name("Host"), Replacement::of_bytes(b"b.org".to_vec())),
                StreamEdit::StripHeader(name("X")),
                StreamEdit::AddHeader(name("N"), b"v".to_vec()),
            ],
        ),
        rule(vec![body(vec![regex("a.*c")])], vec![]),
    ];
    let resizing = vec![
        rule(vec![body(vec![text("ell"), regex("[0-9]{2,4}")]), ok], vec![StreamEdit::Mod(content, matched)]),
        rule(vec![body(vec![text("ok"), text("a")])], vec![StreamEdit::Strip(content)]),
        rule(vec![any()], vec![StreamEdit::AddBody(b"tail".to_vec())]),
    ];
    let settings = HttpSettings { head_kib: 1, ..HttpSettings::default() };
    let passes = HttpSettings { unfit: HttpUnfit::Pass, ..settings };
    [(&in_place, &settings, true), (&resizing, &settings, false), (&in_place, &passes, true)].map(
        |(rules, settings, keeps_framing)| {
            let sets = SetCache::default();
            let rules = HttpRules::compile(
                (0..).zip(rules),
                &|_| None,
                settings,
                SetSource::compiling(&sets, &InProcess),
            );
            RuleSet { rules: rules.expect("good rules"), keeps_framing }
        },
    )
});

fn constraint(field: FieldId, test: Test) -> Match {
    Match { negated: false, field: Field::new(field), test }
}

fn rule(matches: Vec<Match>, edits: Vec<StreamEdit>) -> Rule {
    let targets = edits.into_iter().map(Target::Edit).chain([Target::Alert(None)]).collect();
    Rule { id: None, prio: 100, name: None, stateful: true, draining: false, matches, targets }
}

/// The bytes that left in a direction, and what else was told of it.
#[derive(Clone, Debug, Default)]
struct Left {
    undecided: Vec<u8>,
    bytes: Vec<u8>,
    hits: Vec<u32>,
    notes: Vec<HttpNote>,
}

impl Left {
    /// Whether both are the same when the bytes end here. What is undecided goes on as it is then; the framing before it may have left already.
    fn is_same(&self, other: &Left) -> bool {
        let all = |left: &Left| [left.bytes.as_slice(), &left.undecided].concat();
        all(self) == all(other) && self.sorted_hits() == other.sorted_hits() && self.notes == other.notes
    }
}

impl Left {
    /// The rules that were hit. Which of several in one piece is told first, says nothing.
    fn sorted_hits(&self) -> Vec<u32> {
        let mut hits = self.hits.clone();
        hits.sort_unstable();
        hits
    }

    /// Whether the connection goes on unedited behind a message that is not read.
    fn has_passed(&self) -> bool {
        self.notes.iter().any(|note| matches!(note, HttpNote::UnfitPassed(_)))
    }
}

impl EditOutput for Left {
    fn pass(&mut self, count: usize) {
        self.bytes.extend(self.undecided.drain(..count));
    }

    fn replace(&mut self, count: usize, by: &[u8]) {
        assert!(count > 0, "an insertion without a byte: {}", by.escape_ascii());
        self.undecided.drain(..count);
        self.bytes.extend(by);
    }

    fn hit(&mut self, rule: u32, offset: usize) {
        assert!(offset > 0, "rule {rule} is met by nothing");
        self.hits.push(rule);
    }

    fn note(&mut self, note: HttpNote) {
        self.notes.push(note);
    }
}

/// Runs a script through each set of rules, in pieces of these lengths.
///
/// # Errors
/// An end sees something else when the bytes are cut otherwise.
pub(super) fn edit(steps: &[Step], lengths: &[usize]) -> Result<(), String> {
    for set in &*SETS {
        let run = |length| WORKER.with_borrow_mut(|worker| run(worker, &set.rules, steps, length));
        let mut runs = lengths.iter().map(|length| (length, run(*length)));
        let Some((_, (whole, whole_end))) = runs.next() else { return Ok(()) };
        for (length, (cut, end)) in runs {
            let is_early = [end, whole_end].contains(&RunEnd::UnfitBeforeRequests);
            let (unfit, whole_unfit) = (end != RunEnd::Read, whole_end != RunEnd::Read);
            let is_same = match (unfit || whole_unfit, set.keeps_framing) {
                // In other pieces they would have gone on before.
                _ if is_early => true,
                // From when on the other direction passes unedited depends on the pieces.
                _ if passed(&whole) || passed(&cut) => passed(&whole) && passed(&cut),
                (false, true) => whole.iter().zip(&cut).all(|(a, b)| a.is_same(b)),
                (false, false) => {
                    (0..2).all(|at| whole[at].sorted_hits() == cut[at].sorted_hits())
                        && seen(&whole) == seen(&cut)
                }
                // What was seen before the refusal.
                (true, true) => {
                    unfit == whole_unfit && whole.iter().zip(&cut).all(|(a, b)| begins(&a.bytes, &b.bytes))
                }
                (true, false) => unfit == whole_unfit,
            };
            if !is_same {
                return Err(format!("edited in pieces of {length}: {cut:?}; as a whole: {whole:?}"));
            }
        }
    }
    Ok(())
}

/// Whether the connection went on unedited behind a message that was not read.
fn passed(left: &[Left; 2]) -> bool {
    left.iter().any(Left::has_passed)
}

fn begins(a: &[u8], b: &[u8]) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunEnd {
    /// All was read.
    Read,
    /// The connection was refused.
    Unfit,
    /// So it was, or passed unedited from there on, for a response while requests waited for others.
    UnfitBeforeRequests,
}

/// What leaves in both directions.
fn run(worker: &mut Worker, rules: &HttpRules, steps: &[Step], length: usize) -> ([Left; 2], RunEnd) {
    let Worker { scanner, scratch, memory } = worker;
    let live = [0, 1, 2];
    let mut editor = HttpEditor::new(rules, live.len());
    let (mut left, mut has_ended) = ([Left::default(), Left::default()], [false; 2]);
    let (mut requests_wait, mut is_early) = (false, false);
    for step in steps {
        let mut rest = &step.bytes[..];
        loop {
            let (piece, behind) = rest.split_at(length.min(rest.len()));
            rest = behind;
            left[step.direction as usize].undecided.extend(piece);
            has_ended[step.direction as usize] |= step.is_end && rest.is_empty();
            for direction in [step.direction, other(step.direction), step.direction, other(step.direction)] {
                let index = direction as usize;
                let bytes = left[index].undecided.clone();
                let mut tools = HttpTools { rules, live: &live, scanner, scratch, memory };
                let input = HttpInput { direction, bytes: &bytes, is_end: has_ended[index], release: false };
                let progress = editor.edit(&mut tools, input, &mut left[index]);
                let undecided = left[index].undecided.len();
                match direction {
                    HttpDirection::Requests => requests_wait = progress == HttpProgress::Held(Held::Other),
                    HttpDirection::Responses => {
                        let is_refused =
                            matches!(progress, HttpProgress::Unfit(_)) || left[index].has_passed();
                        is_early |= requests_wait && is_refused;
                    }
                }
                match progress {
                    HttpProgress::All | HttpProgress::Opaque => assert_eq!(undecided, 0, "{progress:?}"),
                    HttpProgress::Held(held) => {
                        let may_wait = !has_ended[index] || held == Held::Other;
                        assert!(undecided > 0 && may_wait, "held at the end for {held:?}");
                    }
                    HttpProgress::Ended(_) | HttpProgress::NoRoom => panic!("{progress:?}"),
                    HttpProgress::Unfit(_) => {
                        editor.close(scanner);
                        return (left, if is_early { RunEnd::UnfitBeforeRequests } else { RunEnd::Unfit });
                    }
                }
            }
            if rest.is_empty() {
                break;
            }
        }
    }
    editor.close(scanner);
    (left, if is_early { RunEnd::UnfitBeforeRequests } else { RunEnd::Read })
}

/// A message's part, as a reader sees it.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Section(Vec<u8>),
    /// All content of a body.
    Content(Vec<u8>),
    End,
    Unfit(&'static str),
}

/// What a strict reader makes of the bytes that left in each direction.
fn seen(left: &[Left; 2]) -> [Vec<Seen>; 2] {
    let (mut connection, mut buffer) = (HttpConnection::new(1 << 16), HeadBuffer::default());
    let (mut seen, mut at) = ([Vec::new(), Vec::new()], [0; 2]);
    loop {
        let before = at;
        for direction in [HttpDirection::Requests, HttpDirection::Responses] {
            let index = direction as usize;
            let seen = &mut seen[index];
            loop {
                let bytes = &left[index].bytes[at[index]..];
                let piece = connection.next(direction, bytes, false, &mut buffer);
                let taken = bytes[..piece.consumed()].to_vec();
                at[index] += piece.consumed();
                match (piece, seen.last_mut()) {
                    (HttpPiece::More | HttpPiece::Wait | HttpPiece::Opaque, _) => break,
                    (HttpPiece::Unfit(_), Some(Seen::Unfit(_))) => break,
                    (HttpPiece::Unfit(reason), _) => seen.push(Seen::Unfit(reason.name())),
                    (HttpPiece::Request(_) | HttpPiece::Response(_) | HttpPiece::Trailers(_), _) => {
                        seen.push(Seen::Section(taken));
                    }
                    (HttpPiece::Body { .. }, Some(Seen::Content(before))) => before.extend(taken),
                    (HttpPiece::Body { .. }, _) => seen.push(Seen::Content(taken)),
                    (HttpPiece::End, _) => seen.push(Seen::End),
                    (HttpPiece::Framing { .. } | HttpPiece::Truncated { .. }, _) => {}
                }
            }
        }
        if at == before {
            return seen;
        }
    }
}
