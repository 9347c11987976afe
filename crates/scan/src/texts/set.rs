//! Sets of texts: their bytes, their ids, and what finds them.

use super::number::number_of;
use super::samples::Samples;
use super::table::Table;
use memchr::memmem::Finder;
use std::collections::HashMap;
use std::ops::Range;

/// The most bytes of a text that is found here: with the number before them, the last bytes of a stream fill two lines of memory.
pub(super) const LONGEST: usize = 121;
/// The most texts that are alike but for case.
pub(super) const MAX_ALIKE: usize = 4;
/// Bytes of the number in front of a stream's last bytes.
pub(super) const NUMBER: usize = 8;

/// Texts, ready to be found.
#[derive(Debug)]
pub(crate) struct TextSet {
    pub(super) texts: Vec<Text>,
    pub(super) bytes: Vec<u8>,
    pub(super) ids: Vec<u32>,
    pub(super) finder: TextFinder,
    pub(super) longest: usize,
}

/// A text: where its bytes and ids are.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) bytes: Range<u32>,
    pub(super) ids: Range<u32>,
    pub(super) ignores_case: bool,
}

/// What finds the texts.
#[derive(Debug)]
pub(super) enum TextFinder {
    /// There is one, which is found as it is.
    One(Box<Finder<'static>>),
    Samples(Samples, WholeTexts),
}

/// Texts by their number.
#[derive(Debug)]
pub(super) struct WholeTexts {
    /// Where those of a number are in the list.
    places: Table<(u32, u32)>,
    list: Vec<u32>,
}

impl WholeTexts {
    /// `None` without memory.
    pub(super) fn new(alike: HashMap<u64, Vec<u32>>) -> Option<WholeTexts> {
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
    pub(super) fn each_at(
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

    pub(super) fn ids(&self, text: u32) -> &[u32] {
        let ids = self.texts.get(text as usize).map(|text| text.ids.start as usize..text.ids.end as usize);
        ids.and_then(|ids| self.ids.get(ids)).unwrap_or_default()
    }
}
