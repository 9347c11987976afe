//! One packet before and after edits.

use mmb_packet::checksum::transport_sum;
use mmb_packet::parse::parse;
use mmb_packet::{Class, Layout, LinkType, Packet, ParserLimits, PortId};
use mmb_policy::Target;
use mmb_rewrite::{Edit, NotApplied, NotAppliedCounts, PacketEditor};
use mmb_testkit::Frame;

/// A packet and its layout.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) bytes: Vec<u8>,
    pub(crate) layout: Layout,
}

/// The effect of edits on a packet.
#[derive(Debug)]
pub(crate) struct Edited {
    pub(crate) before: Seen,
    pub(crate) after: Seen,
    pub(crate) not_applied: NotAppliedCounts,
}

/// Headroom of every packet here.
pub(crate) const HEADROOM: usize = 64;

/// Applies the targets of several rules to a packet; `None` if it does not parse.
pub(crate) fn edit_wire(
    link: LinkType,
    bytes: &[u8],
    headroom: usize,
    rules: &[Vec<Target>],
) -> Option<Edited> {
    let mut buffer = vec![0xa5; headroom];
    buffer.extend(bytes);
    let mut packet = Packet::new(&mut buffer, headroom, bytes.len(), PortId(0), link)?;
    let mut layout = parse(&packet, &ParserLimits::default()).ok()?;
    let before = Seen { bytes: bytes.to_vec(), layout };
    let edits: Vec<Edit> = rules.iter().filter_map(|targets| Edit::compile(targets)).collect();
    let mut not_applied = NotAppliedCounts::default();
    // Its scratch memory was used for another packet before.
    let mut editor = PacketEditor::default();
    editor.apply(&mut packet, &mut layout, edits.iter().take(0), &mut not_applied);
    editor.apply(&mut packet, &mut layout, edits.iter(), &mut not_applied);
    Some(Edited { before, after: Seen { bytes: packet.bytes().to_vec(), layout }, not_applied })
}

/// The same for a frame that parses.
pub(crate) fn edit(frame: &Frame, targets: &[Target]) -> Edited {
    edit_wire(frame.link, &frame.bytes(), HEADROOM, &[targets.to_vec()]).expect("a sound packet")
}

impl Edited {
    /// How often targets were not applied for that reason; the counts of all others must be 0.
    pub(crate) fn only(&self, reason: NotApplied) -> u64 {
        let others = NotApplied::ALL.iter().filter(|other| **other != reason);
        assert!(others.map(|other| self.not_applied.0[*other as usize]).all(|count| count == 0));
        self.not_applied.0[reason as usize]
    }
}

impl Seen {
    /// The error of the transport checksum, as a number modulo 2^16 - 1, with the protocol and the UDP length of the packet in
    /// the pseudo header; `None` if there is no checksum.
    pub(crate) fn error(&self) -> Option<u16> {
        let Layout { l4_kind, l4, proto_at, payload_end, .. } = self.layout;
        let word =
            |at: u16| u16::from_be_bytes([self.bytes[usize::from(at)], self.bytes[usize::from(at) + 1]]);
        if l4_kind == 17 && word(l4 + 6) == 0 {
            return None;
        }
        let mut sum = transport_sum(&self.bytes, &self.layout)?;
        if l4_kind != 1 {
            sum = sum.word(!u16::from(l4_kind)).word(u16::from(self.bytes[usize::from(proto_at)]));
        }
        if l4_kind == 17 {
            sum = sum.word(!((payload_end - u32::from(l4)) as u16)).word(word(l4 + 4));
        }
        Some(sum.fold() % 0xffff)
    }

    /// Whether the IPv4 header checksum is correct; true for other packets.
    pub(crate) fn header_is_sound(&self) -> bool {
        let header = usize::from(self.layout.ip)..usize::from(self.layout.l4);
        self.layout.class != Class::Ip4 || mmb_packet::checksum::header_is_sound(&self.bytes[header])
    }

    /// The option area.
    pub(crate) fn options(&self) -> &[u8] {
        &self.bytes[self.layout.tcp_options()]
    }
}
