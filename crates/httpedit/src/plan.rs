//! How a message's body leaves, which its head must already say.

use crate::output::HttpNote;
use crate::rule::HttpRules;
use mmb_http::{BodyFraming, Headers, HttpVersion};
use mmb_policy::settings::HttpNoTransform;

/// A constraint is not met, for good.
pub(crate) const FAILED: u16 = 1 << 15;

/// The most bytes of a message whose length must be known before it leaves.
pub(crate) const MAX_WHOLE_BYTES: u64 = 64 << 10;

/// How a body leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyPlan {
    /// As it comes.
    Pass,
    /// With edits, in the framing that it has: their length makes no difference.
    InPlace,
    /// In chunks of our own, of what is decided.
    Chunks,
    /// With edits and without its length: the server closes behind it, and its end is the connection's.
    UntilClose,
    /// At once, with its head and a right length, when all of it is there.
    Whole(u64),
    /// It is empty, and something is added.
    Empty,
}

/// Rules of a connection as bits, by their places.
pub(crate) type RuleBits = u128;

/// The places of the bits that are set, the lowest first: a step each, however many there may be.
pub(crate) fn places(mut bits: RuleBits) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = bits.trailing_zeros() as usize;
        bits &= bits.checked_sub(1)?;
        Some(place)
    })
}

/// What is known of a message when its head is complete.
pub(crate) struct Message<'m> {
    pub(crate) headers: Headers<'m>,
    /// The framing of the body; of responses without one, that of the response which has it.
    pub(crate) body: BodyFraming,
    /// The older version of message and receiver.
    pub(crate) version: HttpVersion,
    pub(crate) is_partial: bool,
    /// It is a response behind which the server closes.
    pub(crate) closes_connection: bool,
    /// The request forbids changes.
    pub(crate) forbids_changes: bool,
}

/// The plan of a body, the rules that edit it, and why it is not edited though there are such.
pub(crate) fn plan(
    message: &Message<'_>,
    rules: &HttpRules,
    live: &[u32],
    slots: &[u16],
) -> (BodyPlan, RuleBits, Option<HttpNote>) {
    let (mut editing, mut changes_length, mut adds) = (0, false, false);
    for (place, (index, slot)) in live.iter().zip(slots).enumerate() {
        let Some(rule) = rules.rules.get(*index as usize).filter(|_| *slot != FAILED) else { continue };
        let is_edit = rule.body_edit.is_some() || !rule.tail.is_empty();
        if !is_edit || slot | rule.body_bits != rule.met() {
            continue;
        }
        editing |= 1 << place;
        adds |= !rule.tail.is_empty() && *slot == rule.met();
        changes_length |= rule.changes_lengths();
    }
    let pass = |note| (BodyPlan::Pass, 0, note);
    if editing == 0 || message.body == BodyFraming::None {
        return pass(None);
    }
    if let Some(reason) = unedited(message, rules) {
        return pass(Some(reason));
    }
    let plan = match message.body {
        BodyFraming::Length(0) if adds => BodyPlan::Empty,
        BodyFraming::Length(0) | BodyFraming::None => return pass(None),
        BodyFraming::UntilClose => BodyPlan::InPlace,
        _ if !changes_length => BodyPlan::InPlace,
        // Such a receiver knows no chunks, and every one reads up to the end of the connection (RFC 9112, section 6.3).
        BodyFraming::Length(_) if message.version == HttpVersion::Http10 && message.closes_connection => {
            BodyPlan::UntilClose
        }
        BodyFraming::Length(length) if message.version == HttpVersion::Http10 => {
            // The length may be any that has 64 bits.
            if length.saturating_add(message.headers.len() as u64) > MAX_WHOLE_BYTES {
                return pass(Some(HttpNote::LongBody));
            }
            BodyPlan::Whole(length)
        }
        BodyFraming::Length(_) | BodyFraming::Chunked => BodyPlan::Chunks,
    };
    (plan, editing, None)
}

/// The reason why a body is not edited.
fn unedited(message: &Message<'_>, rules: &HttpRules) -> Option<HttpNote> {
    let headers = &message.headers;
    let is_plain = |value: &[u8]| value.is_empty() || value.eq_ignore_ascii_case(b"identity");
    if headers.all(b"content-encoding").any(|line| !is_plain(headers.text(line.value))) {
        return Some(HttpNote::EncodedBody);
    }
    if message.is_partial || headers.all(b"content-range").next().is_some() {
        return Some(HttpNote::PartialBody);
    }
    let obeys = rules.settings.no_transform == HttpNoTransform::Obey;
    (obeys && (message.forbids_changes || forbids_changes(headers))).then_some(HttpNote::NoTransform)
}

/// Whether a message has `Cache-Control: no-transform` (RFC 9110, section 7.7).
pub(crate) fn forbids_changes(headers: &Headers<'_>) -> bool {
    headers.has_token(b"cache-control", b"no-transform")
}

/// The length that a body's chunk has in front of it, as hexadecimal digits and CRLF.
pub(crate) fn chunk_line(len: usize) -> arrayvec::ArrayVec<u8, 18> {
    let mut line = arrayvec::ArrayVec::new();
    let digits = (usize::BITS - len.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        line.push(b"0123456789abcdef"[len >> (4 * digit) & 15]);
    }
    line.push(b'\r');
    line.push(b'\n');
    line
}

/// A length as decimal digits.
pub(crate) fn decimal(mut number: u64) -> arrayvec::ArrayVec<u8, 20> {
    let mut digits = arrayvec::ArrayVec::new();
    loop {
        digits.push(b'0' + (number % 10) as u8);
        number /= 10;
        if number == 0 {
            digits.reverse();
            return digits;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_the_bits_that_are_set_and_no_others() {
        for bits in [0, 1, 2, 0b1011_0100, 1 << 63, 1 << 64, 1 << 127, 1 | 1 << 127, RuleBits::MAX] {
            let set = (0..RuleBits::BITS as usize).filter(|place| bits >> place & 1 != 0);
            assert!(places(bits).eq(set), "{bits:#x}");
        }
    }

    #[test]
    fn numbers_are_written_as_they_are_read() {
        for number in [0, 1, 9, 10, 15, 16, 255, 256, 1448, 65_535, 1 << 32] {
            assert_eq!(&chunk_line(number)[..], format!("{number:x}\r\n").as_bytes());
            assert_eq!(&decimal(number as u64)[..], number.to_string().as_bytes());
        }
    }
}
