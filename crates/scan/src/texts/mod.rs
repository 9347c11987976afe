//! Texts that are found by samples of the bytes, without Vectorscan.
//!
//! Purpose: lists of many texts. Vectorscan looks at every byte, and where the letters of a page are like those of the texts it has much to verify
//! (10,000 texts of 8 to 16 letters: 3.9 cycles a byte). Wherever a text of at least *m* bytes lies, one of its samples of *q* bytes begins at a
//! multiple of *s* = *m* - *q* + 1: it is enough to look at those places.
//!
//! How: of each text, the samples that begin at *s* places in turn are in a table ([`samples`]), with the offset and the text's length. Each place
//! of the bytes that is a multiple of *s* is looked up in a filter (some 4 cycles), and few of them in the table. The bytes that a text of that length
//! would have are then looked up in a table of whole texts, and compared. Case is folded in tables, and counts in the comparison. One text alone is
//! found by `memchr::memmem`.
//!
//! [`division`] decides at compile time which patterns of a set are found here, and which by Vectorscan: regexes, short and very long texts, and texts
//! whose samples too many others have. [`search`] scans a piece of a stream, and merges its matches with those of Vectorscan. The state of a stream is
//! the number of its bytes, and the last of them.
//!
//! The most that adversarial bytes cost: for each *s* bytes a look-up in the table of samples,
//! [`MOST_A_SAMPLE`](samples::MOST_A_SAMPLE) look-ups in that of texts, and [`MOST_ALIKE`] comparisons for each.

mod division;
mod number;
mod samples;
mod sampling;
mod search;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use division::{DividedPattern, Division};
pub(crate) use search::{Pending, TextScan};

use memchr::memmem::Finder;
use number::number_of;
use samples::Samples;
use std::collections::HashMap;
use std::ops::Range;
use table::Table;

/// The most bytes of a text that is found here: with the number before them, the last bytes of a stream fill two lines of memory.
const LONGEST: usize = 121;
/// The most texts that are alike but for case.
const MOST_ALIKE: usize = 4;
/// Bytes of the number in front of a stream's last bytes.
const NUMBER: usize = 8;

/// Texts, ready to be found.
#[derive(Debug)]
pub(crate) struct TextSet {
    texts: Vec<Text>,
    bytes: Vec<u8>,
    ids: Vec<u32>,
    finder: TextFinder,
    longest: usize,
}

/// A text: where its bytes and ids are.
#[derive(Debug)]
struct Text {
    bytes: Range<u32>,
    ids: Range<u32>,
    ignores_case: bool,
}

/// What finds the texts.
#[derive(Debug)]
enum TextFinder {
    /// There is one, which is found as it is.
    One(Box<Finder<'static>>),
    Samples(Samples, WholeTexts),
}

/// Texts by their number.
#[derive(Debug)]
struct WholeTexts {
    /// Where those of a number are in the list.
    places: Table<(u32, u32)>,
    list: Vec<u32>,
}

impl WholeTexts {
    /// `None` without memory.
    fn new(alike: HashMap<u64, Vec<u32>>) -> Option<WholeTexts> {
        let mut list = Vec::new();
        let places = alike.into_iter().map(|(number, texts)| {
            let first = list.len() as u32;
            list.extend(texts);
            (number, (first, list.len() as u32))
        });
        let places = Table::new(places)?;
        Some(WholeTexts { places, list })
    }

    #[inline]
    fn alike(&self, bytes: &[u8]) -> &[u32] {
        let place = self.places.get(number_of(bytes));
        place.and_then(|(first, end)| self.list.get(*first as usize..*end as usize)).unwrap_or_default()
    }
}

impl TextSet {
    /// Bytes of the state of a stream.
    pub(crate) fn state_bytes(&self) -> usize {
        NUMBER + self.longest - 1
    }

    /// Calls `on_text` with each text of that length that stands at `start`.
    #[inline]
    fn each_at(
        &self,
        whole: &WholeTexts,
        (bytes, start, len): (&[u8], usize, usize),
        mut on_text: impl FnMut(u32),
    ) {
        let Some(found) = bytes.get(start..start + len) else { return };
        for number in whole.alike(found) {
            let Some(Text { bytes, ignores_case, .. }) = self.texts.get(*number as usize) else { continue };
            let wanted = self.bytes.get(bytes.start as usize..bytes.end as usize).unwrap_or_default();
            if if *ignores_case { found.eq_ignore_ascii_case(wanted) } else { found == wanted } {
                on_text(*number);
            }
        }
    }

    fn ids(&self, text: u32) -> &[u32] {
        let ids = self.texts.get(text as usize).map(|text| text.ids.start as usize..text.ids.end as usize);
        ids.and_then(|ids| self.ids.get(ids)).unwrap_or_default()
    }
}
