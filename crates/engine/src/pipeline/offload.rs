//! Offers the flows of packets to the host, which then forwards them without a worker.

use super::resolver::first_dropping_rule;
use super::state::Pipeline;
use crate::compiled::Snapshot;
use crate::conntrack::{FlowSample, Ingress, VerdictId, addresses, ports};
use crate::drop::DropReason;
use crate::offload::{FlowKey, NotOffloadedReason};
use crate::verdict::Verdict;
use mmb_base::Id;
use mmb_conn::{ConnId, Direction, Tuple, flags};
use mmb_packet::proto::{ICMP, ICMP6, TCP, UDP};
use mmb_packet::{Class, Layout, Packet};

/// Bytes of an IPv4 header without options, and of an IPv6 header.
const IP4_HEADER: u16 = 20;
const IP6_HEADER: u16 = 40;
/// The ether type of a VLAN tag (IEEE 802.1Q).
const VLAN: [u8; 2] = [0x81, 0];
/// ICMP types of echo requests and replies (RFC 792, RFC 4443).
const ECHO: [u8; 2] = [8, 0];
const ECHO6: [u8; 2] = [128, 129];

impl Pipeline {
    /// Counts the packets of a vector that the host left to the worker.
    pub(super) fn count_missed(&self, packets: usize) {
        if self.conntrack.offloads() {
            self.cells.flows_missed(packets);
        }
    }

    /// Offers the flow of a packet of a connection that passed by this cached verdict.
    pub(super) fn offer_cached(
        &mut self,
        snapshot: &Snapshot,
        index: usize,
        packet: &Packet<'_>,
        (cached, member): (VerdictId, (ConnId, Direction)),
    ) {
        let layout = &self.work.layouts[index];
        // The host does not forward such segments, and rules may decide on them differently.
        if layout.l4_kind == TCP && !is_offloadable_segment(packet, layout) {
            return;
        }
        let vlan = vlan(packet, layout);
        let sample = FlowSample {
            port: packet.port,
            vlan: vlan.unwrap_or_default(),
            is_not_plain: vlan.is_none() || !is_plain(layout),
            is_blocked: self.blockers.finds_blocker(snapshot, packet),
            is_tapped: self.is_flow_tapped(snapshot, packet),
        };
        self.conntrack.offer(snapshot, member, cached, sample);
    }

    /// Offers the flows of a vector's packets that have no connection.
    #[inline(never)]
    pub(super) fn offer_flows(&mut self, snapshot: &Snapshot, packets: &[Packet<'_>], verdicts: &[Verdict]) {
        for (index, packet) in packets.iter().enumerate() {
            let is_settled = matches!(verdicts[index], Verdict::Send(_) | Verdict::Drop(DropReason::Rule));
            if !is_settled || !snapshot.route(packet.port).enabled {
                continue;
            }
            let Some(key) = self.flow_key(index, packet) else { continue };
            if self.conntrack.should_offer(&key) {
                self.offer_flow(snapshot, (index, packet, key), verdicts[index]);
            }
        }
    }

    /// Counts the flows of a vector's packets that have no connection, while connections are tracked: they
    /// are not offloaded.
    #[inline(never)]
    pub(super) fn count_untracked(&mut self, packets: &[Packet<'_>], verdicts: &[Verdict]) {
        for (index, packet) in packets.iter().enumerate() {
            if self.conntrack.is_untracked(index)
                && matches!(verdicts[index], Verdict::Send(_) | Verdict::Drop(DropReason::Rule))
                && let Some(key) = self.flow_key(index, packet)
                && self.conntrack.should_offer(&key)
            {
                self.cells.flow_not_offloaded(NotOffloadedReason::Untracked);
            }
        }
    }

    fn offer_flow(
        &mut self,
        snapshot: &Snapshot,
        (index, packet, key): (usize, &Packet<'_>, FlowKey),
        verdict: Verdict,
    ) {
        if self.blockers.finds_blocker(snapshot, packet) {
            return self.cells.flow_not_offloaded(NotOffloadedReason::PerPacket);
        }
        if self.is_flow_tapped(snapshot, packet) {
            return self.cells.flow_not_offloaded(NotOffloadedReason::Tapped);
        }
        let action = |slot: mmb_classify::RuleSlot| snapshot.actions.at(slot.index());
        self.matched.clear();
        self.matched.extend_from_slice(self.scratch.slots(index));
        self.matched.sort_unstable_by_key(|&slot| action(slot).rank());
        let outcome = match (verdict, snapshot.route(key.port).egress) {
            (Verdict::Send(_), Some(to)) => Ok(to),
            _ => match first_dropping_rule(snapshot, &self.matched) {
                Some(slot) => Err(slot),
                None => return,
            },
        };
        self.conntrack.offer_by_rules(snapshot, key, &self.matched, outcome);
    }

    /// The key of the flow of a packet; `None` if the host would not forward the packet.
    fn flow_key(&self, index: usize, packet: &Packet<'_>) -> Option<FlowKey> {
        let layout = &self.work.layouts[index];
        if !is_plain(layout) {
            return None;
        }
        let vlan = vlan(packet, layout)?;
        let Tuple { addresses, family, proto, .. } = addresses(packet.bytes(), layout, Ingress::ANYWHERE)?;
        let header = packet.bytes().get(usize::from(layout.l4)..)?;
        let echo: &[u8] = match (layout.l4_kind, layout.class) {
            (ICMP, Class::Ip4) => &ECHO,
            (ICMP6, Class::Ip6) => &ECHO6,
            _ => &[],
        };
        let ports = match layout.l4_kind {
            TCP if !is_offloadable_segment(packet, layout) => return None,
            TCP | UDP => ports(packet.bytes(), layout)?,
            _ if echo.contains(header.first()?) => {
                let &[kind, code, _, _, a, b, ..] = header.first_chunk::<8>()?;
                [u16::from_be_bytes([kind, code]), u16::from_be_bytes([a, b])]
            }
            _ => return None,
        };
        Some(FlowKey { port: packet.port, vlan, family, proto, addresses, ports })
    }
}

/// Whether the host forwards a TCP segment with these flags: with ACK, and without SYN, FIN or RST.
fn is_offloadable_segment(packet: &Packet<'_>, layout: &Layout) -> bool {
    let flags = packet.bytes().get(usize::from(layout.l4) + 13);
    flags.is_some_and(|flags| flags & (flags::SYN | flags::FIN | flags::RST | flags::ACK) == flags::ACK)
}

/// Whether a packet has no IP options or extension headers, and is not a fragment.
fn is_plain(layout: &Layout) -> bool {
    let header = match layout.class {
        Class::Ip4 => IP4_HEADER,
        Class::Ip6 => IP6_HEADER,
        Class::Other => return false,
    };
    !layout.is_fragment() && layout.l4 - layout.ip == header
}

/// The VLAN identifier of a packet, if it has a tag; `None` for tags other than one 802.1Q tag.
fn vlan(packet: &Packet<'_>, layout: &Layout) -> Option<Option<u16>> {
    match layout.vlan_tags {
        0 => Some(None),
        1 if packet.bytes().get(12..14) == Some(&VLAN) => {
            Some(Some(u16::from_be_bytes(*packet.bytes().get(14..)?.first_chunk()?) & 0x0fff))
        }
        _ => None,
    }
}
