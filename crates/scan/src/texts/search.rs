//! A piece of a stream, searched for texts.
//!
//! A match that begins before the piece is found in the last bytes of the stream with the first of the piece behind them, every other one in the piece.
//! Samples are met in the order of their places, matches told in that of their ends: those that wait for it are [`Pending`].

use super::samples::{MAX_PER_SAMPLE, STRETCH};
use super::set::{LONGEST, MAX_ALIKE, NUMBER, TextFinder, TextSet};
use crate::filter::BLOCK;
use std::collections::VecDeque;
use std::ops::ControlFlow;

/// The number of a stream whose caller said stop, or panicked: the one that it has during a scan.
const STOPPED: u64 = u64::MAX;
/// The most matches that wait: by the samples across the beginning of the piece, those of a stretch, and those that can lie in one text.
const MAX_PENDING: usize = (3 * LONGEST + STRETCH * BLOCK) * MAX_PER_SAMPLE * MAX_ALIKE;

/// Room for matches that wait to be told in their order; of one worker, and empty between pieces.
#[derive(Debug)]
pub(crate) struct Pending {
    found: VecDeque<Found>,
}

/// A match: the byte of the piece behind it, and the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    end: usize,
    text: u32,
}

impl Pending {
    /// `None` without memory.
    pub(crate) fn new() -> Option<Pending> {
        let mut found = VecDeque::new();
        found.try_reserve_exact(MAX_PENDING).ok()?;
        Some(Pending { found })
    }

    fn add(&mut self, found: Found) {
        let place = self.found.partition_point(|other| *other < found);
        // A text can be met by samples of another one of its length too.
        if self.found.get(place) != Some(&found) {
            self.found.insert(place, found);
        }
    }
}

/// A search in progress.
pub(crate) struct TextScan<'s> {
    set: &'s TextSet,
    state: &'s mut [u8],
    pending: &'s mut Pending,
    bytes: &'s [u8],
    /// Bytes of the stream before the piece.
    before: u64,
    /// Where the search goes on.
    next: usize,
    /// Matches that end there or before are found.
    settled: usize,
}

impl<'s> TextScan<'s> {
    /// Begins a stream, if it has such a state.
    pub(crate) fn open(state: &mut [u8]) {
        if let Some(number) = state.get_mut(..NUMBER) {
            number.fill(0);
        }
    }

    /// Whether the stream's caller said stop.
    #[inline]
    pub(crate) fn is_stopped(state: &[u8]) -> bool {
        number(state) == STOPPED
    }

    /// Begins with a piece. The stream finds nothing more if the scan does not [`finish`](TextScan::finish). `None` if that was so before.
    #[inline]
    pub(crate) fn new(
        set: &'s TextSet,
        state: &'s mut [u8],
        pending: &'s mut Pending,
        bytes: &'s [u8],
    ) -> Option<TextScan<'s>> {
        let before = number(state);
        if before == STOPPED {
            return None;
        }
        state[..NUMBER].copy_from_slice(&STOPPED.to_le_bytes());
        pending.found.clear();
        let mut scan = TextScan { set, state, pending, bytes, before, next: 0, settled: 0 };
        scan.look_across();
        Some(scan)
    }

    /// Tells the matches that end at that byte of the stream or before, in the order of their ends.
    #[inline]
    pub(crate) fn tell_until(
        &mut self,
        end: u64,
        on_match: &mut impl FnMut(u32, u64) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let end = usize::try_from(end.saturating_sub(self.before)).unwrap_or(usize::MAX);
        loop {
            while let Some(found) = self.pending.found.front()
                && found.end <= end.min(self.settled)
            {
                let Found { end, text } = *found;
                self.pending.found.pop_front();
                for id in self.set.ids(text) {
                    on_match(*id, self.before + end as u64)?;
                }
            }
            if self.settled >= end {
                return ControlFlow::Continue(());
            }
            self.go_on();
        }
    }

    /// Keeps what the next piece needs, when all was told.
    #[inline]
    pub(crate) fn finish(self) {
        let TextScan { state, bytes, before, .. } = self;
        let (count, last) = state.split_at_mut(NUMBER);
        count.copy_from_slice(&(before + bytes.len() as u64).to_le_bytes());
        let had = kept(before, last.len());
        let new = &bytes[bytes.len().saturating_sub(last.len())..];
        let stay = had.min(last.len() - new.len());
        last.copy_within(had - stay..had, 0);
        last[stay..stay + new.len()].copy_from_slice(new);
    }

    /// Finds the matches that begin before the piece and end in it.
    #[inline]
    fn look_across(&mut self) {
        let last = &self.state[NUMBER..];
        let had = kept(self.before, last.len());
        let new = last.len().min(self.bytes.len());
        if had == 0 || new == 0 {
            return;
        }
        let mut room = [0; 2 * LONGEST];
        let across = &mut room[..had + new];
        across[..had].copy_from_slice(&last[..had]);
        across[had..].copy_from_slice(&self.bytes[..new]);
        let (set, pending) = (self.set, &mut *self.pending);
        let mut add = |text: u32, end: usize| pending.add(Found { end: end - had, text });
        match &set.finder {
            TextFinder::One(finder) => {
                let mut from = 0;
                while let Some(start) = across.get(from..).and_then(|rest| finder.find(rest)) {
                    let (start, end) = (from + start, from + start + set.longest);
                    if start < had && end > had {
                        add(0, end);
                    }
                    from = start + 1;
                }
            }
            TextFinder::Samples(samples, whole) => {
                for block in (0..across.len()).step_by(STRETCH * BLOCK * samples.sampling.step) {
                    samples.each(across, block, |start, len| {
                        if start < had && start + len > had {
                            set.each_at(whole, (across, start, len), |text| add(text, start + len));
                        }
                    });
                }
            }
        }
    }

    /// Looks further.
    #[inline]
    fn go_on(&mut self) {
        let TextScan { set, pending, bytes, .. } = self;
        match &set.finder {
            TextFinder::One(finder) => match bytes.get(self.next..).and_then(|rest| finder.find(rest)) {
                Some(index) => {
                    let start = self.next + index;
                    self.next = start + 1;
                    self.settled = start + set.longest;
                    pending.add(Found { end: self.settled, text: 0 });
                }
                None => self.settled = usize::MAX,
            },
            TextFinder::Samples(samples, whole) => {
                samples.each(bytes, self.next, |start, len| {
                    let add = |text| pending.add(Found { end: start + len, text });
                    set.each_at(whole, (bytes, start, len), add);
                });
                self.next += STRETCH * BLOCK * samples.sampling.step;
                // Matches by later samples end behind those.
                self.settled = if self.next < bytes.len() { self.next } else { usize::MAX };
            }
        }
    }
}

/// The number in front of a stream's last bytes.
#[inline]
fn number(state: &[u8]) -> u64 {
    state.first_chunk().map_or(STOPPED, |number| u64::from_le_bytes(*number))
}

/// How many of the last bytes a stream has, of which `before` came.
#[inline]
fn kept(before: u64, max: usize) -> usize {
    usize::try_from(before).unwrap_or(usize::MAX).min(max)
}
