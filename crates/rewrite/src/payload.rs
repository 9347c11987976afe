//! Overwrites the first bytes of payloads.

use crate::fields::{RewritePass, UDP_LENGTH};
use crate::not_applied::{NotApplied, NotAppliedCounts};
use crate::traits::{part, required};
use mmb_packet::Layout;
use mmb_packet::checksum::{self, ChecksumDelta};
use mmb_packet::proto;
use mmb_policy::field::{Implies, Payload};

/// Bytes to write over the start of a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PayloadStep {
    needs: u16,
    place: Payload,
    bytes: Box<[u8]>,
}

impl PayloadStep {
    pub(crate) fn new(implies: Implies, place: Payload, bytes: &[u8]) -> PayloadStep {
        PayloadStep { needs: required(implies), place, bytes: bytes.into() }
    }

    /// Writes the bytes if the packet has such a payload and it is long enough.
    ///
    /// The bytes after the IP header may be the transport header. Its checksum field is not overwritten but updated, as after any
    /// other change: rules write it with the checksum fields.
    pub(crate) fn apply(
        &self,
        bytes: &mut [u8],
        layout: &Layout,
        pass: &mut RewritePass,
        not_applied: &mut NotAppliedCounts,
    ) {
        if !pass.traits.meets(self.needs) {
            return;
        }
        let range = match self.place {
            Payload::Ip => layout.ip_payload_range(),
            Payload::Transport => layout.payload_range(),
        };
        let start = range.start;
        let Some(place) = bytes.get_mut(range).and_then(|place| place.get_mut(..self.bytes.len())) else {
            not_applied.count(NotApplied::PayloadShort);
            return;
        };
        let span = ChecksumSpan::of(layout, pass);
        for (at, (byte, &new)) in (start..).zip(place.iter_mut().zip(&self.bytes)) {
            if span.is_checksum(at) {
                continue;
            }
            span.follow(at, *byte, new, &mut pass.transport);
            *byte = new;
        }
    }
}

/// The bytes of a packet that its transport checksum covers.
struct ChecksumSpan {
    l4: usize,
    end: usize,
    checksum: Option<usize>,
    /// The UDP length, which is also in the pseudo header.
    udp_length: Option<usize>,
    /// The byte with the protocol of the pseudo header.
    proto_at: Option<usize>,
}

impl ChecksumSpan {
    fn of(layout: &Layout, pass: &RewritePass) -> ChecksumSpan {
        let l4 = usize::from(layout.l4);
        let covered = pass.traits.covered & part::TRANSPORT != 0;
        ChecksumSpan {
            l4,
            end: if covered { layout.payload_end as usize } else { 0 },
            checksum: checksum::field_offset(layout.l4_kind).map(|at| l4 + at),
            udp_length: (layout.l4_kind == proto::UDP).then_some(l4 + UDP_LENGTH),
            proto_at: (pass.traits.covered & part::PROTO != 0).then_some(usize::from(layout.proto_at)),
        }
    }

    fn is_checksum(&self, at: usize) -> bool {
        self.checksum.is_some_and(|field| at == field || at == field + 1)
    }

    fn follow(&self, at: usize, old: u8, new: u8, transport: &mut ChecksumDelta) {
        if (self.l4..self.end).contains(&at) {
            let odd = !(at - self.l4).is_multiple_of(2);
            transport.byte(odd, old, new);
            if self.udp_length.is_some_and(|length| at == length || at == length + 1) {
                transport.byte(odd, old, new);
            }
        } else if self.proto_at == Some(at) {
            transport.byte(true, old, new);
        }
    }
}
