//! Pending rewrites of a vector's packets.

use crate::compiled::{EditId, Snapshot};
use crate::conntrack::{NatTransform, QuotedOffsets, StreamPacket};
use crate::verdict::{TranslatedPackets, VECTOR};
use mmb_conn::QuickTranslation;
use mmb_packet::{Layout, Packet};
use mmb_rewrite::{Ip4Translation, NotAppliedCounts, PacketEditor};

/// A vector's layouts and pending rewrites. Packets are identified by their index in the vector.
pub(super) struct RewriteWork {
    pub(super) layouts: Box<[Layout; VECTOR]>,
    /// Packets that the quick pass took and that their connection translates.
    pub(super) translations: Vec<QuickTranslation>,
    /// Other packets that their connection translates.
    pub(super) transforms: Vec<PacketTransform>,
    /// Packets of streams.
    pub(super) streamed: Vec<(u8, StreamPacket)>,
    /// Packets that their streams passed, and may have changed.
    pub(super) followed: TranslatedPackets,
    /// Packets that matched a rule with edits, and are not dropped.
    pub(super) rewrites: Vec<PacketEdits>,
    /// The edits of packets that have several.
    pub(super) listed: Vec<Option<EditId>>,
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
    /// A single edit.
    Alone(EditId),
    /// A range of `listed`.
    Listed(u32, u32),
}

/// A packet that its connection translates.
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
            translations: Vec::with_capacity(VECTOR),
            transforms: Vec::with_capacity(VECTOR),
            streamed: Vec::with_capacity(VECTOR),
            followed: TranslatedPackets::default(),
            rewrites: Vec::with_capacity(VECTOR),
            // The most that one vector can have; untouched memory costs nothing.
            listed: Vec::with_capacity(mmb_classify::MATCHES),
        }
    }

    /// Discards all pending rewrites.
    pub(super) fn clear(&mut self) {
        self.translations.clear();
        self.transforms.clear();
        self.streamed.clear();
        self.followed = TranslatedPackets::default();
        self.rewrites.clear();
        self.listed.clear();
    }

    /// Discards the pending rewrites of packets that a later stage drops or absorbs.
    pub(super) fn discard(&mut self, is_dropped: impl Fn(usize) -> bool) {
        self.translations.retain(|translation| !is_dropped(usize::from(translation.packet)));
        self.transforms.retain(|transform| !is_dropped(usize::from(transform.packet)));
        self.rewrites.retain(|rewrite| !is_dropped(usize::from(rewrite.packet)));
    }

    /// Translates the packets that the quick pass took. Returns these packets, and those that streams may
    /// have changed.
    pub(super) fn translate_at_once(&mut self, packets: &mut [Packet<'_>]) -> TranslatedPackets {
        let RewriteWork { layouts, translations, followed, .. } = self;
        let mut translated = *followed;
        for translation in translations.drain(..) {
            let index = usize::from(translation.packet);
            translate(&mut packets[index], &translation, layouts);
            translated.add(index);
        }
        translated
    }

    /// Translates packets for their connections, and then applies the edits of their rules. `place` maps an
    /// index in the vector to an index in `packets`; `None` if the packet is not there.
    #[inline(always)]
    pub(super) fn apply(
        &mut self,
        snapshot: &Snapshot,
        packets: &mut [Packet<'_>],
        (editor, not_applied): (&mut PacketEditor, &mut NotAppliedCounts),
        place: impl Fn(u8) -> Option<usize>,
    ) {
        let RewriteWork { layouts, translations, transforms, rewrites, listed, .. } = self;
        for translation in &*translations {
            let Some(index) = place(translation.packet) else { continue };
            translate(&mut packets[index], translation, layouts);
        }
        for &PacketTransform { packet, transform, quoted } in &*transforms {
            let Some(index) = place(packet) else { continue };
            let (packet, layout) = (&mut packets[index], &layouts[usize::from(packet)]);
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
        // A separate loop: the loads of an edit depend on each other, but those of different packets
        // overlap.
        for (edit, rewrite) in edits.iter_mut().zip(&*rewrites) {
            if let EditList::Alone(id) = rewrite.edits {
                *edit = snapshot.edit(id);
            }
        }
        for (&PacketEdits { packet, edits }, edit) in rewrites.iter().zip(edits) {
            let Some(index) = place(packet) else { continue };
            let (packet, layout) = (&mut packets[index], &mut layouts[usize::from(packet)]);
            let listed = match (edits, edit) {
                (EditList::Alone(_), Some(edit)) => {
                    editor.apply(packet, layout, std::iter::once(edit), not_applied);
                    continue;
                }
                (EditList::Alone(_), None) => continue,
                (EditList::Listed(start, end), _) => &listed[start as usize..end as usize],
            };
            let edits = listed.iter().flatten().filter_map(|&id| snapshot.edit(id));
            editor.apply(packet, layout, edits, not_applied);
        }
    }
}

#[inline(always)]
fn translate(packet: &mut Packet<'_>, translation: &QuickTranslation, layouts: &[Layout; VECTOR]) {
    let new = Ip4Translation { addresses: translation.addresses(), ports: translation.ports() };
    new.apply(packet, &layouts[usize::from(translation.packet)]);
}

/// Sends an Ethernet frame back to the side from which it came: its destination MAC address becomes the
/// source, and `to` the destination.
fn hairpin(packet: &mut Packet<'_>, to: [u8; 6]) {
    if let Some(addresses) = packet.bytes_mut().first_chunk_mut::<12>() {
        addresses.copy_within(..6, 6);
        addresses[..6].copy_from_slice(&to);
    }
}
