//! Maps output bytes to input bytes, until the receiver has acknowledged them.
//!
//! There are two number spaces. *Input* offsets count the sender's bytes, *output* offsets count the bytes
//! that the receiver gets. Between edits they differ by a constant. An [`Edit`] replaces at least one byte of
//! input by any number of bytes of output. An offset inside an edit has no counterpart in the other space. It
//! is rounded so that no byte of input counts as acknowledged before all of its output is acknowledged.
//!
//! Only edits whose output is not acknowledged are recorded, at most [`MAX_EDITS`]. If there are more, two
//! neighbours are merged: the two that together span the fewest bytes. An acknowledgment inside a merged edit
//! is rounded down to its start, and a retransmission from inside it begins at its start. Nothing else
//! changes. So even with many edits in a full window, the sender learns of progress every few percent of the
//! window.

use arrayvec::ArrayVec;
use mmb_base::{Chunks, Slab, id_types};

/// The most recorded edits in a direction.
pub(crate) const MAX_EDITS: usize = 64;

id_types! {
    /// The recorded edits of a direction; valid while there are any.
    pub(crate) struct EditListId;
}

/// Input bytes that were replaced, or several such places with the bytes between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edit {
    /// Offset of the first byte of input.
    start: u64,
    /// Offset of the first byte of output.
    out_start: u64,
    /// Bytes of input, at least one.
    len: u32,
    /// Bytes of output.
    out_len: u32,
}

impl Edit {
    fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }

    fn out_end(&self) -> u64 {
        self.out_start + u64::from(self.out_len)
    }
}

/// The edits of one direction, in order.
type EditList = ArrayVec<Edit, MAX_EDITS>;

/// The edits of all directions that have any.
pub(crate) type EditLists = Slab<EditListId, EditList, Chunks<EditList, 16>>;

/// The difference between output and input offsets, and the unacknowledged edits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EditMap {
    /// Output offset minus input offset, before the first recorded edit; wraps around.
    shift: u64,
    list: Option<EditListId>,
}

impl EditMap {
    #[inline]
    fn edits<'l>(&self, lists: &'l EditLists) -> &'l [Edit] {
        self.list.map_or(&[], |list| lists[list].as_slice())
    }

    /// Output offset minus input offset, if no edit is recorded; wraps around.
    pub(crate) fn constant_shift(&self) -> Option<u64> {
        self.list.is_none().then_some(self.shift)
    }

    /// Reserves the memory for one more edit. Returns false if memory is exhausted.
    pub(crate) fn reserve(&self, lists: &mut EditLists) -> bool {
        self.list.is_some() || lists.try_reserve().is_ok()
    }

    /// Records that `len` bytes of input at `start` become `out_len` bytes of output at `out_start`. They
    /// begin after all recorded edits. [`EditMap::reserve`] must have succeeded before.
    pub(crate) fn add(
        &mut self,
        lists: &mut EditLists,
        (start, len): (u64, u32),
        (out_start, out_len): (u64, u32),
    ) {
        let edit = Edit { start, out_start, len, out_len };
        let list = *self.list.get_or_insert_with(|| {
            lists.insert_reusing(|mut old| {
                old.clear();
                old
            })
        });
        let edits = &mut lists[list];
        if edits.is_full() {
            merge_shortest(edits);
        }
        edits.push(edit);
    }

    /// Removes the edits whose output lies before `acked`, an offset of output that was acknowledged.
    #[inline]
    pub(crate) fn acknowledge(&mut self, lists: &mut EditLists, acked: u64) {
        if let Some(list) = self.list {
            self.forget_before(lists, list, acked);
        }
    }

    fn forget_before(&mut self, lists: &mut EditLists, list: EditListId, acked: u64) {
        let edits = &mut lists[list];
        let done = edits.iter().take_while(|edit| edit.out_end() <= acked).count();
        if let Some(last) = edits[..done].last() {
            self.shift = last.out_end().wrapping_sub(last.end());
        }
        edits.drain(..done);
        if edits.is_empty() {
            self.clear(lists);
        }
    }

    /// Removes all edits.
    pub(crate) fn clear(&mut self, lists: &mut EditLists) {
        if let Some(list) = self.list.take() {
            lists.free(list);
        }
    }

    /// Asserts that the edits are in order, and lie in what is decided.
    pub(crate) fn assert_sound(&self, lists: &EditLists, decided: u64, out_end: u64) {
        let edits = self.edits(lists);
        let ordered =
            |pair: &[Edit]| pair[0].end() <= pair[1].start && pair[0].out_end() <= pair[1].out_start;
        debug_assert!(edits.windows(2).all(ordered));
        debug_assert!(edits.last().is_none_or(|last| last.end() <= decided && last.out_end() <= out_end));
    }

    /// The last edit for which `begins_before` is true, and the shift after that edit.
    #[inline]
    fn last_edit(&self, edits: &[Edit], begins_before: impl Fn(&Edit) -> bool) -> (Option<Edit>, u64) {
        let count = edits.partition_point(begins_before);
        let last = count.checked_sub(1).map(|last| edits[last]);
        let shift = last.map_or(self.shift, |edit| edit.out_end().wrapping_sub(edit.end()));
        (last, shift)
    }

    /// The output offset at which the output of the byte at `input` begins. If the byte lies inside an edit,
    /// the start of the edit's output.
    pub(crate) fn output_floor(&self, lists: &EditLists, input: u64) -> u64 {
        match self.last_edit(self.edits(lists), |edit| edit.start <= input) {
            (Some(edit), _) if input < edit.end() => edit.out_start,
            (_, shift) => input.wrapping_add(shift),
        }
    }

    /// The output offset after the output of all bytes before `input`; `None` inside an edit.
    pub(crate) fn output_exact(&self, lists: &EditLists, input: u64) -> Option<u64> {
        match self.last_edit(self.edits(lists), |edit| edit.start < input) {
            (Some(edit), _) if input < edit.end() => None,
            (_, shift) => Some(input.wrapping_add(shift)),
        }
    }

    /// The output offset at which the output of all bytes before `input` ends. If `input` lies inside an
    /// edit, the end of the whole edit's output.
    pub(crate) fn output_ceil(&self, lists: &EditLists, input: u64) -> u64 {
        match self.last_edit(self.edits(lists), |edit| edit.start < input) {
            (Some(edit), _) if input < edit.end() => edit.out_end(),
            (_, shift) => input.wrapping_add(shift),
        }
    }

    /// Number of input bytes whose output lies before `output` completely: what an acknowledgment of `output`
    /// acknowledges.
    #[inline]
    pub(crate) fn input_floor(&self, lists: &EditLists, output: u64) -> u64 {
        match self.last_edit(self.edits(lists), |edit| edit.out_start <= output) {
            (Some(edit), _) if output < edit.out_end() => edit.start,
            (_, shift) => output.wrapping_sub(shift),
        }
    }

    /// The first byte of input whose output begins at or after `output`: the left edge of a SACK block.
    pub(crate) fn input_ceil(&self, lists: &EditLists, output: u64) -> u64 {
        match self.last_edit(self.edits(lists), |edit| edit.out_start < output) {
            (Some(edit), _) if output < edit.out_end() => edit.end(),
            (_, shift) => output.wrapping_sub(shift),
        }
    }
}

/// Merges the two neighbours that span the fewest bytes of input. The bytes between them belong to the merged
/// edit.
fn merge_shortest(edits: &mut EditList) {
    let span = |pair: &[Edit]| pair[1].end() - pair[0].start;
    let Some((first, _)) = edits.windows(2).enumerate().min_by_key(|(_, pair)| span(pair)) else { return };
    let second = edits.remove(first + 1);
    let edit = &mut edits[first];
    edit.len = (second.end() - edit.start) as u32;
    edit.out_len = (second.out_end() - edit.out_start) as u32;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The reference model: for each byte of input, where its output begins and ends.
    struct Model {
        /// For each byte of input, bounds of the edit or byte that it belongs to: in the input, then in the
        /// output.
        bytes: Vec<([u64; 2], [u64; 2])>,
        out_end: u64,
    }

    impl Model {
        fn put(&mut self, len: u64, out_len: u64) {
            let at = self.bytes.len() as u64;
            for _ in 0..len {
                self.bytes.push(([at, at + len], [self.out_end, self.out_end + out_len]));
            }
            self.out_end += out_len;
        }

        /// Number of input bytes, from the first on, whose output ends at or before `output`.
        fn acknowledged(&self, output: u64) -> u64 {
            self.bytes.iter().take_while(|(_, [_, end])| *end <= output).count() as u64
        }
    }

    proptest! {
        #[test]
        fn numbers_are_those_of_the_bytes(
            steps in prop::collection::vec((0..30u64, 1..5u64, 0..8u64), 0..40), acked in 0..400u64,
        ) {
            let (mut lists, mut map) = (EditLists::default(), EditMap::default());
            let mut model = Model { bytes: Vec::new(), out_end: 0 };
            for (pass, len, out_len) in steps {
                (0..pass).for_each(|_| model.put(1, 1));
                prop_assert!(map.reserve(&mut lists));
                map.add(&mut lists, (model.bytes.len() as u64, len as u32), (model.out_end, out_len as u32));
                model.put(len, out_len);
            }
            (0..20).for_each(|_| model.put(1, 1));
            let acked = acked.min(model.out_end);
            let first = model.acknowledged(acked);
            map.acknowledge(&mut lists, acked);
            for (at, (bounds, [start, end])) in model.bytes.iter().enumerate().skip(first as usize) {
                let at = at as u64;
                prop_assert_eq!(map.output_floor(&lists, at), *start);
                if at > first {
                    // If `at` lies inside an edit, all output of that edit counts as before `at`.
                    let before = if at > bounds[0] { *end } else { *start };
                    prop_assert_eq!(map.output_ceil(&lists, at), before);
                }
            }
            for output in acked..=model.out_end {
                prop_assert_eq!(map.input_floor(&lists, output), model.acknowledged(output));
                let ceil = model.bytes.iter().take_while(|(_, [start, _])| *start < output).count() as u64;
                if output > acked {
                    prop_assert_eq!(map.input_ceil(&lists, output), ceil);
                }
            }
            map.acknowledge(&mut lists, model.out_end);
            prop_assert_eq!(lists.len(), 0);
            prop_assert_eq!(map.constant_shift(), Some(model.out_end.wrapping_sub(model.bytes.len() as u64)));
        }
    }

    #[test]
    fn more_edits_than_are_recorded_become_coarse_and_never_early() {
        let (mut lists, mut map) = (EditLists::default(), EditMap::default());
        // Every tenth byte becomes three.
        for number in 0..200u64 {
            assert!(map.reserve(&mut lists));
            map.add(&mut lists, (10 * number + 9, 1), (12 * number + 9, 3));
        }
        assert_eq!(map.edits(&lists).len(), MAX_EDITS);
        for out in 0..2400u64 {
            let exact = out / 12 * 10 + (out % 12).min(9);
            assert!(map.input_floor(&lists, out) <= exact, "{out}");
        }
        assert_eq!((map.input_floor(&lists, 2400), map.output_ceil(&lists, 2000)), (2000, 2400));
        map.clear(&mut lists);
        assert_eq!(lists.len(), 0);
    }
}
