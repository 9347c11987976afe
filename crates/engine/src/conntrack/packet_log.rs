//! Sends events for rules with `log`: packets, and the number of packets that the limit suppressed.

use super::packet_event::{IpHeaderInfo, PacketEvent, SuppressedEvent};
use super::tracking::Conntrack;
use super::watched_events::WatchedEvent;
use crate::compiled::{LogAdmission, Snapshot};
use crate::verdict::Verdict;
use mmb_classify::RuleSlot;
use mmb_packet::flow::vlan_ids;
use mmb_packet::{Layout, Packet};
use std::sync::Arc;

/// The delay after which the number of suppressed packets is sent, in ms.
const REPORT_SUPPRESSED_MS: u64 = 1000;

impl Conntrack {
    /// Whether events are sent.
    pub(crate) fn is_watched(&self) -> bool {
        self.state.is_watched()
    }

    /// The time of the last call, which never goes back.
    pub(crate) fn now_ns(&self) -> u64 {
        self.state.now_ns
    }

    /// Sends an event for a packet that matched the rule of a slot, unless the rule's limit suppresses it.
    pub(crate) fn log_packet(
        &mut self,
        snapshot: &Snapshot,
        slot: RuleSlot,
        (packet, layout): (&Packet<'_>, &Layout),
        verdict: Verdict,
    ) {
        let Some(rule) = snapshot.log_rule(slot) else { return };
        match rule.admit(snapshot.log_limit, self.state.worker, self.state.now_ns) {
            LogAdmission::Log => self.state.send(&WatchedEvent::Packet(PacketEvent {
                at_ns: self.state.now_ns,
                rule: rule.id,
                name: rule.name.clone(),
                text: rule.text.clone(),
                worker: self.state.worker as u16,
                port: packet.port,
                len: packet.len() as u32,
                vlans: vlan_ids(packet.bytes(), layout),
                eth_type: layout.eth_type,
                ip: IpHeaderInfo::from_packet(packet, layout),
                verdict,
            })),
            LogAdmission::FirstSuppressed => {
                let suppressed = &mut self.suppressed;
                if suppressed.rules.is_empty() {
                    suppressed.due_ms = self.state.now_ms + REPORT_SUPPRESSED_MS;
                }
                suppressed.rules.push(Arc::clone(rule));
            }
            LogAdmission::Suppressed => {}
        }
    }

    /// Sends the numbers of suppressed packets, at most once a second.
    #[inline]
    pub(super) fn log_suppressed(&mut self) {
        if !self.suppressed.rules.is_empty() && self.state.now_ms >= self.suppressed.due_ms {
            self.log_all_suppressed();
        }
    }

    #[cold]
    fn log_all_suppressed(&mut self) {
        for rule in self.suppressed.rules.drain(..) {
            self.state.send(&WatchedEvent::Suppressed(SuppressedEvent {
                at_ns: self.state.now_ns,
                rule: rule.id,
                name: rule.name.clone(),
                text: rule.text.clone(),
                worker: self.state.worker as u16,
                packets: rule.take_suppressed(self.state.worker),
            }));
        }
    }
}
