//! Offers the flows of packets to a host that can forward them by itself.

use super::resolver::first_that_drops;
use super::state::Pipeline;
use crate::compiled::Snapshot;
use crate::conntrack::{FlowSample, VerdictId};
use crate::drop::DropReason;
use crate::offload::{FlowKey, KeptReason};
use crate::verdict::{Origin, Verdict};
use mmb_base::Id;
use mmb_conn::{ConnId, Direction, flags};
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
    /// Counts the packets of a vector that the host has left to the worker, and finds those whose flows must not be offloaded, since other packets of them may match other rules.
    pub(super) fn match_blockers(&mut self, snapshot: &Snapshot, packets: &[Packet<'_>], origin: Origin) {
        if !self.conntrack.offloads() {
            return;
        }
        if origin == Origin::Wire {
            self.cells.flows_missed(packets.len());
        }
        if let Some(classifier) = &snapshot.blockers {
            let layouts = &self.work.layouts[..packets.len()];
            classifier.classify(&self.keys, packets, layouts, &mut self.blocked);
        }
    }

    fn is_blocked(&self, snapshot: &Snapshot, at: usize) -> bool {
        snapshot.blockers.is_some() && !self.blocked.slots(at).is_empty()
    }

    /// Offers the flow of a packet of a connection that passed by this cached verdict.
    pub(super) fn offer_cached(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        packet: &Packet<'_>,
        (cached, member): (VerdictId, (ConnId, Direction)),
    ) {
        let layout = &self.work.layouts[at];
        let vlan = vlan(packet, layout);
        let sample = FlowSample {
            port: packet.port,
            vlan: vlan.unwrap_or_default(),
            is_odd: vlan.is_none() || !is_plain(layout),
            is_blocked: self.is_blocked(snapshot, at),
        };
        self.conntrack.offer(snapshot, member, cached, sample);
    }

    /// Offers the flows of a vector's packets that are of no connection.
    #[inline(never)]
    pub(super) fn offer_flows(&mut self, snapshot: &Snapshot, packets: &[Packet<'_>], verdicts: &[Verdict]) {
        for (at, packet) in packets.iter().enumerate() {
            let is_settled = matches!(verdicts[at], Verdict::Send(_) | Verdict::Drop(DropReason::Rule));
            if !is_settled || !snapshot.route(packet.port).enabled {
                continue;
            }
            let Some(key) = self.flow_key(at, packet) else { continue };
            if self.conntrack.is_worth(&key) {
                self.offer_flow(snapshot, (at, key), verdicts[at]);
            }
        }
    }

    /// Counts the flows of a vector's packets that are of no connection, beside connections.
    #[inline(never)]
    pub(super) fn count_untracked(&mut self, packets: &[Packet<'_>], verdicts: &[Verdict]) {
        for (at, packet) in packets.iter().enumerate() {
            if !self.conntrack.is_taken(at)
                && matches!(verdicts[at], Verdict::Send(_) | Verdict::Drop(DropReason::Rule))
                && let Some(key) = self.flow_key(at, packet)
                && self.conntrack.is_worth(&key)
            {
                self.conntrack.keep_untracked(at);
            }
        }
    }

    fn offer_flow(&mut self, snapshot: &Snapshot, (at, key): (usize, FlowKey), verdict: Verdict) {
        if self.is_blocked(snapshot, at) {
            return self.cells.flow_kept(KeptReason::PerPacket);
        }
        let action = |slot: mmb_classify::RuleSlot| snapshot.actions.at(slot.index());
        self.matched.clear();
        self.matched.extend_from_slice(self.scratch.slots(at));
        self.matched.sort_unstable_by_key(|&slot| action(slot).rank());
        let outcome = match (verdict, snapshot.route(key.port).to) {
            (Verdict::Send(_), Some(to)) => Ok(to),
            _ => match first_that_drops(snapshot, &self.matched) {
                Some(slot) => Err(slot),
                None => return,
            },
        };
        self.conntrack.offer_by_rules(snapshot, key, &self.matched, outcome);
    }

    /// What identifies the flow of a packet, if it may be in one.
    fn flow_key(&self, at: usize, packet: &Packet<'_>) -> Option<FlowKey> {
        let layout = &self.work.layouts[at];
        if !is_plain(layout) {
            return None;
        }
        let bytes = packet.bytes();
        let ip = bytes.get(usize::from(layout.ip)..)?;
        let l4 = bytes.get(usize::from(layout.l4)..)?;
        let number =
            |bytes: &[u8]| bytes.iter().fold(0, |number: u128, byte| number << 8 | u128::from(*byte));
        let (family, addresses) = match layout.class {
            Class::Ip4 => (4, [number(ip.get(12..16)?), number(ip.get(16..20)?)]),
            Class::Ip6 => (6, [number(ip.get(8..24)?), number(ip.get(24..40)?)]),
            Class::Other => return None,
        };
        let pair = |at: usize| Some(u16::from_be_bytes(*l4.get(at..)?.first_chunk()?));
        let ports = match (layout.l4_kind, layout.class) {
            (TCP, _) if l4.get(13)? & (flags::SYN | flags::FIN | flags::RST | flags::ACK) != flags::ACK => {
                return None;
            }
            (TCP | UDP, _) => [pair(0)?, pair(2)?],
            (ICMP, Class::Ip4) if ECHO.contains(l4.first()?) => [pair(0)?, pair(4)?],
            (ICMP6, Class::Ip6) if ECHO6.contains(l4.first()?) => [pair(0)?, pair(4)?],
            _ => return None,
        };
        Some(FlowKey {
            port: packet.port,
            vlan: vlan(packet, layout)?,
            family,
            proto: layout.proto,
            addresses,
            ports,
        })
    }
}

/// Whether a packet has no IP options or extension headers, and is no fragment.
fn is_plain(layout: &Layout) -> bool {
    let header = match layout.class {
        Class::Ip4 => IP4_HEADER,
        Class::Ip6 => IP6_HEADER,
        Class::Other => return false,
    };
    !layout.is_fragment() && layout.l4 - layout.ip == header
}

/// The VLAN tag of a packet, if it has one; `None` for other tags than one of 802.1Q.
fn vlan(packet: &Packet<'_>, layout: &Layout) -> Option<Option<u16>> {
    match layout.vlan_tags {
        0 => Some(None),
        1 if packet.bytes().get(12..14) == Some(&VLAN) => {
            Some(Some(u16::from_be_bytes(*packet.bytes().get(14..)?.first_chunk()?) & 0x0fff))
        }
        _ => None,
    }
}
