//! What deciding on a vector leaves to be done to its packets.

use crate::conntrack::{NatTransform, QuotedOffsets};
use crate::snapshot::Snapshot;
use crate::worker::VECTOR;
use mmb_packet::{Layout, Packet};
use mmb_rewrite::{NotAppliedCounts, PacketEditor};

/// A vector's layouts, and what its packets get. Packets are named by their numbers in the vector.
pub(super) struct RewriteWork {
    pub(super) layouts: Box<[Layout; VECTOR]>,
    /// Packets that their connection turns.
    pub(super) transforms: Vec<PacketTransform>,
    /// Packets that matched a rule which rewrites, and are not dropped.
    pub(super) rewrites: Vec<PacketEdits>,
    /// Numbers of edits of packets that get several.
    pub(super) listed: Vec<u32>,
}

/// A packet to be rewritten.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketEdits {
    pub(super) packet: u8,
    pub(super) edits: EditList,
}

/// The edits of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum EditList {
    /// The one of this number.
    Alone(u32),
    /// Their numbers, or 0, stand in `listed`, from one place to another.
    Listed(u32, u32),
}

/// A packet that its connection turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketTransform {
    pub(super) packet: u8,
    pub(super) transform: NatTransform,
    pub(super) quoted: Option<QuotedOffsets>,
}

impl RewriteWork {
    pub(super) fn new() -> RewriteWork {
        RewriteWork {
            layouts: Box::new([Layout::default(); VECTOR]),
            transforms: Vec::with_capacity(VECTOR),
            rewrites: Vec::with_capacity(VECTOR),
            // As many as one vector can have; memory that is never touched costs nothing.
            listed: Vec::with_capacity(mmb_classify::MATCHES),
        }
    }

    /// Nothing is to be done any more.
    pub(super) fn clear(&mut self) {
        self.transforms.clear();
        self.rewrites.clear();
        self.listed.clear();
    }

    /// Does what connections do to the packets, and then applies the edits of all rules that they get. `place` tells where in
    /// `packets` a packet of the vector is, if it is there.
    #[inline(always)]
    pub(super) fn apply(
        &mut self,
        snapshot: &Snapshot,
        packets: &mut [Packet<'_>],
        (editor, not_applied): (&mut PacketEditor, &mut NotAppliedCounts),
        place: impl Fn(u8) -> Option<usize>,
    ) {
        let RewriteWork { layouts, transforms, rewrites, listed } = self;
        for &PacketTransform { packet, transform, quoted } in &*transforms {
            let Some(at) = place(packet) else { continue };
            let (packet, layout) = (&mut packets[at], &layouts[usize::from(packet)]);
            match quoted {
                Some(QuotedOffsets { proto, ip, l4 }) => {
                    transform.translation.apply_to_quoted(packet, layout, proto, ip.into(), l4.into());
                }
                None => transform.translation.apply(packet, layout),
            }
            if let Some(to) = transform.hairpin {
                hairpin(packet, to);
            }
        }
        if rewrites.is_empty() {
            return;
        }
        let mut edits = [None; VECTOR];
        // A loop of its own: looking up is one load behind the other, for many packets at once.
        for (edit, rewrite) in edits.iter_mut().zip(&*rewrites) {
            if let EditList::Alone(number) = rewrite.edits {
                *edit = snapshot.edit(number);
            }
        }
        for (&PacketEdits { packet, edits }, edit) in rewrites.iter().zip(edits) {
            let Some(at) = place(packet) else { continue };
            let (packet, layout) = (&mut packets[at], &mut layouts[usize::from(packet)]);
            let numbers = match (edits, edit) {
                (EditList::Alone(_), Some(edit)) => {
                    editor.apply(packet, layout, std::iter::once(edit), not_applied);
                    continue;
                }
                (EditList::Alone(_), None) => continue,
                (EditList::Listed(start, end), _) => &listed[start as usize..end as usize],
            };
            let edits = numbers.iter().filter_map(|&edit| snapshot.edit(edit));
            editor.apply(packet, layout, edits, not_applied);
        }
    }
}

/// Has an Ethernet frame go back to the side that it came from, as from where it was sent to.
fn hairpin(packet: &mut Packet<'_>, to: [u8; 6]) {
    if let Some(addresses) = packet.bytes_mut().first_chunk_mut::<12>() {
        addresses.copy_within(..6, 6);
        addresses[..6].copy_from_slice(&to);
    }
}
