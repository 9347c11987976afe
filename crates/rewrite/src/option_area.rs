//! The option area during the steps: consecutive options without padding.
//!
//! Life-cycle: an [`OptionList`] is scratch memory of an editor. It is loaded from a packet, steps change it, and
//! [`OptionList::outcome`] returns the effect on the packet. It never holds more than the 40 bytes that an area can have: a step
//! that would exceed them is refused before anything changes.

use crate::not_applied::NotApplied;
use mmb_packet::options::{END, MAX_AREA, NOP, TcpOption, WalkStop, walk};

/// Up to [`MAX_AREA`] bytes, and as many unused ones after them: this allows to append bytes of another run in one copy of fixed
/// size, whatever their number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptionRun {
    bytes: [u8; 2 * MAX_AREA],
    /// At most [`MAX_AREA`].
    len: usize,
}

impl Default for OptionRun {
    fn default() -> Self {
        OptionRun { bytes: [0; 2 * MAX_AREA], len: 0 }
    }
}

impl OptionRun {
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Appends bytes; callers have checked that they fit.
    fn push(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if end <= MAX_AREA {
            self.bytes[self.len..end].copy_from_slice(bytes);
            self.len = end;
        }
    }

    fn push_option(&mut self, kind: u8, data: &[u8]) {
        self.push(&[kind, (2 + data.len()) as u8]);
        self.push(data);
    }

    /// Appends an option of the area `from`, if it fits.
    #[inline]
    fn take(&mut self, from: &OptionRun, option: &TcpOption<'_>) {
        let len = 2 + option.data.len();
        let at = option.offset;
        if self.len + len <= MAX_AREA && at <= MAX_AREA {
            self.bytes[self.len..self.len + MAX_AREA].copy_from_slice(&from.bytes[at..at + MAX_AREA]);
            self.len += len;
        }
    }
}

/// The effect of the steps on the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OptionOutcome {
    /// None: it stays unchanged byte for byte.
    Unchanged,
    /// Options have other values; all of them, and the padding, stay at their places.
    Values,
    /// The area is rewritten.
    Rebuilt,
}

/// The options of one header, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct OptionList {
    loaded: OptionRun,
    now: OptionRun,
    /// The malformed rest, to the area's end. Its kind and length may have any value.
    tail: OptionRun,
    /// The kinds of padding in the area, as bits: 1 << [`END`], 1 << [`NOP`].
    padding: u8,
    /// The area must be rewritten even if the options are unchanged.
    rebuild: bool,
    area_len: usize,
    /// The area's length cannot change.
    fixed: bool,
}

impl OptionList {
    /// Loads the options of an area of at most [`MAX_AREA`] bytes. `fixed`: its length cannot change.
    pub(crate) fn load(&mut self, area: &[u8], fixed: bool) {
        let mut whole = OptionRun::default();
        whole.push(area.get(..MAX_AREA).unwrap_or(area));
        let (mut loaded, mut tail) = (OptionRun::default(), OptionRun::default());
        let mut padding = 0;
        let mut options = walk(whole.as_slice());
        for option in options.by_ref() {
            match option.kind {
                END | NOP => padding |= 1 << option.kind,
                _ => loaded.take(&whole, &option),
            }
        }
        if options.stop() == Some(WalkStop::Malformed) {
            tail.push(whole.as_slice().get(options.offset()..).unwrap_or_default());
        }
        *self = OptionList { loaded, now: loaded, tail, padding, rebuild: false, area_len: whole.len, fixed };
    }

    /// Writes a number into the data of every option of this kind that is wide enough.
    ///
    /// # Errors
    /// [`NotApplied::OptionWidth`] if one was not wide enough.
    pub(crate) fn set_number(&mut self, kind: u8, number: u128) -> Result<(), NotApplied> {
        let mut result = Ok(());
        let before = self.now;
        for option in walk(before.as_slice()).filter(|option| option.kind == kind) {
            let width = option.data.len();
            if width < 16 && number >> (8 * width) != 0 {
                result = Err(NotApplied::OptionWidth);
                continue;
            }
            let data = self.now.bytes.iter_mut().skip(option.offset + 2).take(width);
            data.for_each(|byte| *byte = 0);
            let data = self.now.bytes.iter_mut().skip(option.offset + 2).take(width);
            for (to, from) in data.rev().zip(number.to_le_bytes()) {
                *to = from;
            }
        }
        result
    }

    /// Replaces the data of every option of this kind.
    ///
    /// # Errors
    /// [`NotApplied::OptionSpace`] or [`NotApplied::Fragment`] if there is no room for all of them; then none changes.
    pub(crate) fn set_data(&mut self, kind: u8, data: &[u8]) -> Result<(), NotApplied> {
        let len = walk(self.now.as_slice())
            .map(|option| 2 + if option.kind == kind { data.len() } else { option.data.len() })
            .sum();
        if len > self.now.len {
            self.room_for(len)?;
        }
        let mut set = OptionRun::default();
        for option in walk(self.now.as_slice()) {
            if option.kind == kind {
                set.push_option(kind, data);
            } else {
                set.take(&self.now, &option);
            }
        }
        self.now = set;
        Ok(())
    }

    /// Appends an option.
    ///
    /// # Errors
    /// [`NotApplied::OptionSpace`] or [`NotApplied::Fragment`] if there is no room.
    pub(crate) fn push(&mut self, kind: u8, data: &[u8]) -> Result<(), NotApplied> {
        self.room_for(self.now.len + 2 + data.len())?;
        self.now.push_option(kind, data);
        Ok(())
    }

    /// Removes options whose kind is not in the set.
    pub(crate) fn retain(&mut self, keep: impl Fn(u8) -> bool) {
        let mut kept = OptionRun::default();
        for option in walk(self.now.as_slice()).filter(|option| keep(option.kind)) {
            kept.take(&self.now, &option);
        }
        self.now = kept;
    }

    /// Removes the malformed rest.
    pub(crate) fn drop_tail(&mut self) {
        self.rebuild |= self.tail.len > 0;
        self.tail.len = 0;
    }

    /// Removes padding of that kind: an area with such padding is rebuilt.
    pub(crate) fn strip_padding(&mut self, kind: u8) {
        self.rebuild |= self.padding & 1 << kind != 0;
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self) {
        self.rebuild |= self.area_len > 0;
        self.now.len = 0;
        self.tail.len = 0;
    }

    /// Whether options of `len` bytes and the tail fit.
    fn room_for(&self, len: usize) -> Result<(), NotApplied> {
        let len = len + self.tail.len;
        if len > MAX_AREA {
            Err(NotApplied::OptionSpace)
        } else if self.fixed && len > self.area_len {
            Err(NotApplied::Fragment)
        } else {
            Ok(())
        }
    }

    /// The effect of all steps together on the area.
    pub(crate) fn outcome(&self) -> OptionOutcome {
        let shape = |run| walk(run).map(|option| (option.kind, option.data.len()));
        let (loaded, now) = (self.loaded.as_slice(), self.now.as_slice());
        if self.rebuild || loaded.len() != now.len() {
            OptionOutcome::Rebuilt
        } else if loaded == now {
            OptionOutcome::Unchanged
        } else if shape(loaded).eq(shape(now)) {
            OptionOutcome::Values
        } else {
            OptionOutcome::Rebuilt
        }
    }

    /// The current options.
    pub(crate) fn options(&self) -> impl Iterator<Item = TcpOption<'_>> {
        walk(self.now.as_slice())
    }

    /// The new area, with a multiple of 4 bytes: zeros, which are end-of-list, after the options.
    pub(crate) fn area(&self) -> OptionRun {
        let mut area = self.now;
        area.push(self.tail.as_slice());
        area.bytes[area.len..].fill(0);
        area.len = if self.fixed { self.area_len } else { area.len.next_multiple_of(4) };
        area
    }
}
