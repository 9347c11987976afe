//! Texts that are found by samples of the bytes, without Vectorscan.
//!
//! Purpose: lists of many texts. Vectorscan looks at every byte, and where the letters of a page are like those of the texts it has much to verify
//! (10,000 texts of 8 to 16 letters: 3.9 cycles a byte). A text of at least *m* bytes contains a sample of *q* bytes that begins at a multiple of
//! *s*, if *s* + *q* ≤ *m* + 1. So the search looks only at the multiples of *s* (1, 2, 4 or 8: [`sampling`]).
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
//! [`MAX_PER_SAMPLE`](samples::MAX_PER_SAMPLE) look-ups in that of texts, and [`MAX_ALIKE`](set::MAX_ALIKE) comparisons for each.

mod division;
mod number;
mod samples;
mod sampling;
mod search;
mod set;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use division::{DividedPattern, Division};
pub(crate) use search::{Pending, TextScan};
pub(crate) use set::TextSet;
