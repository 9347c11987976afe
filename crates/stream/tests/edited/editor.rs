//! An editor for tests: replaces texts, in plain code.

use mmb_random::RepeatableRandom;
use mmb_stream::{EditSink, InOrder, ScanAnswer, StreamReader, Undecided};
use std::ops::ControlFlow;

/// A text and what replaces it.
#[derive(Clone, Debug)]
pub(crate) struct Replacement {
    pub(crate) text: Vec<u8>,
    pub(crate) new_text: Vec<u8>,
}

impl Replacement {
    /// Some, over few letters so that they overlap.
    pub(crate) fn several(random: &mut RepeatableRandom) -> Vec<Replacement> {
        let mut texts: Vec<Vec<u8>> = (0..1 + random.below(3))
            .map(|_| (0..1 + random.below(6)).map(|_| b'a' + random.below(3) as u8).collect())
            .collect();
        texts.sort();
        texts.dedup();
        let mut new_text = |text: &[u8]| {
            let max = random.of(&[0, 1, text.len() as u64, 20, 100]);
            vec![b'Z'; random.below(max + 1) as usize]
        };
        texts.iter().map(|text| Replacement { text: text.clone(), new_text: new_text(text) }).collect()
    }
}

/// Bytes among which there are many texts, and none is the one of a keep-alive.
pub(crate) fn stream(length: usize, random: &mut RepeatableRandom) -> Vec<u8> {
    let letters = random.of(&[2, 3, 4, 20]);
    (0..length).map(|_| b'a' + random.below(letters) as u8).collect()
}

/// What an editor has decided about bytes of one direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decided {
    /// For each byte of input, the end of the output of the piece that it belongs to.
    pub(crate) ends: Vec<usize>,
    pub(crate) output: Vec<u8>,
}

impl Decided {
    fn put(&mut self, count: usize, new_text: &[u8]) {
        self.output.extend_from_slice(new_text);
        self.ends.resize(self.ends.len() + count, self.output.len());
    }

    fn pass(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.put(1, &[*byte]));
    }
}

/// See the module.
pub(crate) struct Editor {
    replacements: Vec<Replacement>,
    pub(crate) streams: [Vec<u8>; 2],
    pub(crate) decided: [Decided; 2],
    /// Bytes of input that it was asked about.
    pub(crate) seen: [usize; 2],
    /// Bytes were let go for time.
    pub(crate) has_released: bool,
}

/// What comes first in undecided bytes.
enum Step {
    Match(usize, usize),
    Begun(usize),
    Nothing,
}

impl Editor {
    pub(crate) fn new(replacements: Vec<Replacement>, streams: [Vec<u8>; 2]) -> Editor {
        Editor { replacements, streams, decided: Default::default(), seen: [0; 2], has_released: false }
    }

    /// The whole output of a direction, by the definition: leftmost, longest, no overlaps.
    pub(crate) fn reference(&self, direction: usize) -> Vec<u8> {
        let stream = &self.streams[direction];
        let (mut output, mut at) = (Vec::new(), 0);
        while at < stream.len() {
            let found = self.replacements.iter().filter(|each| stream[at..].starts_with(&each.text));
            match found.max_by_key(|each| each.text.len()) {
                Some(found) => {
                    output.extend(&found.new_text);
                    at += found.text.len();
                }
                None => {
                    output.push(stream[at]);
                    at += 1;
                }
            }
        }
        output
    }

    fn step(&self, bytes: &[u8], from: usize, is_end: bool) -> Step {
        for start in from..bytes.len() {
            let rest = &bytes[start..];
            let begun = |each: &&Replacement| each.text.len() > rest.len() && each.text.starts_with(rest);
            if !is_end && self.replacements.iter().any(|each| begun(&each)) {
                return Step::Begun(start);
            }
            let found = (0..).zip(&self.replacements).filter(|(_, each)| rest.starts_with(&each.text));
            if let Some((number, _)) = found.max_by_key(|(_, each)| each.text.len()) {
                return Step::Match(start, number);
            }
        }
        Step::Nothing
    }
}

impl StreamReader for Editor {
    fn scan(&mut self, InOrder { direction, offset, bytes, .. }: InOrder<'_>) -> ControlFlow<()> {
        let decided = &mut self.decided[direction];
        assert_eq!(offset, decided.ends.len() as u64);
        decided.pass(bytes);
        ControlFlow::Continue(())
    }

    fn scan_plain(
        &mut self,
        InOrder { direction, offset, bytes, .. }: InOrder<'_>,
    ) -> ControlFlow<(), ScanAnswer> {
        let is_last = offset as usize + bytes.len() == self.streams[direction].len();
        if !matches!(self.step(bytes, 0, is_last), Step::Nothing) {
            return ControlFlow::Continue(ScanAnswer::AskToEdit);
        }
        self.seen[direction] = offset as usize + bytes.len();
        assert_eq!(offset, self.decided[direction].ends.len() as u64);
        assert_eq!(&self.streams[direction][offset as usize..][..bytes.len()], bytes);
        self.decided[direction].pass(bytes);
        ControlFlow::Continue(ScanAnswer::PassAll)
    }

    fn edit(&mut self, undecided: Undecided<'_>, sink: &mut EditSink<'_>) -> ControlFlow<()> {
        let Undecided { direction, offset, bytes, known, is_end, waited_ms } = undecided;
        self.seen[direction] = offset as usize + bytes.len();
        let mut decided = std::mem::take(&mut self.decided[direction]);
        assert_eq!(offset, decided.ends.len() as u64, "bytes are asked about again");
        assert_eq!(&self.streams[direction][offset as usize..][..bytes.len()], bytes);
        assert!(known <= bytes.len() && (waited_ms.is_some() || is_end || known < bytes.len()));
        // The ends close only when all that they sent is acknowledged.
        let is_last = offset as usize + bytes.len() == self.streams[direction].len();
        let mut at = 0;
        loop {
            let step = self.step(bytes, at, is_end || is_last || waited_ms.is_some());
            let (start, number) = match step {
                Step::Match(start, number) => (start, Some(number)),
                Step::Begun(start) => (start, None),
                Step::Nothing => (bytes.len(), None),
            };
            sink.pass(start - at);
            decided.pass(&bytes[at..start]);
            at = start;
            let Some(number) = number else { break };
            let Replacement { text, new_text } = &self.replacements[number];
            sink.replace(text.len(), new_text);
            decided.put(text.len(), new_text);
            at += text.len();
        }
        self.has_released |= waited_ms.is_some();
        assert_eq!(sink.rest(), &bytes[at..]);
        self.decided[direction] = decided;
        ControlFlow::Continue(())
    }
}
