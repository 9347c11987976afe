//! Applies edits to a packet.

use crate::compile::Edit;
use crate::fields::{IP4_CHECKSUM, RewritePass};
use crate::not_applied::{NotApplied, NotAppliedCounts};
use crate::option_area::{OptionList, OptionOutcome};
use crate::resize::{write_area, write_values};
use crate::traits::is;
use mmb_packet::checksum;
use mmb_packet::{Layout, Packet};

/// Applies edits; holds the scratch memory of one worker.
#[derive(Debug, Default)]
pub struct PacketEditor {
    options: OptionList,
}

impl PacketEditor {
    /// Applies `edits` in order to one packet whose layout is `layout`, and keeps the layout's offsets and flags correct.
    pub fn apply<'e>(
        &mut self,
        packet: &mut Packet<'_>,
        layout: &mut Layout,
        edits: impl Iterator<Item = &'e Edit> + Clone,
        not_applied: &mut NotAppliedCounts,
    ) {
        let mut pass = RewritePass::new(layout);
        let mut lists = 0;
        let bytes = packet.bytes_mut();
        for edit in edits.clone() {
            lists |= edit.lists;
            for step in &edit.fields {
                step.apply(bytes, layout, &mut pass);
            }
        }
        if lists == 0 {
            write_checksums(bytes, layout, &pass);
        } else {
            self.apply_behind_fields(packet, layout, edits, pass, not_applied);
        }
    }

    /// Options, payloads, lengths and versions, and finally checksums: rarely all of them, and never for most packets.
    #[inline(never)]
    fn apply_behind_fields<'e>(
        &mut self,
        packet: &mut Packet<'_>,
        layout: &mut Layout,
        edits: impl Iterator<Item = &'e Edit> + Clone,
        mut pass: RewritePass,
        not_applied: &mut NotAppliedCounts,
    ) {
        if pass.traits.meets(is::TCP) {
            self.apply_options(packet, layout, edits.clone(), &mut pass, not_applied);
        }
        let bytes = packet.bytes_mut();
        for step in edits.clone().flat_map(|edit| &edit.payloads) {
            step.apply(bytes, layout, &mut pass, not_applied);
        }
        for step in edits.clone().flat_map(|edit| &edit.raw) {
            step.apply(bytes, layout, &mut pass);
        }
        write_checksums(bytes, layout, &pass);
        for step in edits.flat_map(|edit| &edit.checksums) {
            step.apply(bytes, layout, &mut pass);
        }
    }

    fn apply_options<'e>(
        &mut self,
        packet: &mut Packet<'_>,
        layout: &mut Layout,
        edits: impl Iterator<Item = &'e Edit> + Clone,
        pass: &mut RewritePass,
        not_applied: &mut NotAppliedCounts,
    ) {
        let steps = edits.flat_map(|edit| &edit.options);
        let area = mmb_packet::options::area(packet, layout);
        if !steps.clone().any(|step| step.concerns(area)) {
            return;
        }
        let list = &mut self.options;
        list.load(area, layout.is_fragment());
        for step in steps {
            if let Err(reason) = step.apply(list) {
                not_applied.count(reason);
            }
        }
        match list.outcome() {
            OptionOutcome::Unchanged => {}
            OptionOutcome::Values => {
                let area = packet.bytes_mut().get_mut(layout.tcp_options()).unwrap_or_default();
                write_values(area, list, &mut pass.transport);
            }
            OptionOutcome::Rebuilt => {
                if write_area(packet, layout, list.area().as_slice(), pass).is_none() {
                    not_applied.count(NotApplied::NoRoom);
                }
            }
        }
    }
}

/// Updates both checksums for the changes.
#[inline]
fn write_checksums(bytes: &mut [u8], layout: &Layout, pass: &RewritePass) {
    if !pass.header.is_empty()
        && let Some(field) = field_at(bytes, usize::from(layout.ip) + IP4_CHECKSUM)
    {
        *field = pass.header.apply(*field);
    }
    if !pass.transport.is_empty()
        && let Some(offset) = checksum::field_offset(layout.l4_kind)
        && let Some(field) = field_at(bytes, usize::from(layout.l4) + offset)
    {
        *field = pass.transport.apply_transport(layout.l4_kind, *field);
    }
}

#[inline]
fn field_at(bytes: &mut [u8], at: usize) -> Option<&mut [u8; 2]> {
    bytes.get_mut(at..)?.first_chunk_mut()
}
