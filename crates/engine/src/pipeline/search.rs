//! Finds packets with a classifier that is separate from the policy's: packets whose flows rules keep from
//! being offloaded, and packets that a tap selects.

use crate::compiled::Snapshot;
use crate::verdict::VECTOR;
use mmb_classify::{Classifier, Scratch};
use mmb_packet::parse::vector::{ParseVector, VectorKeys};
use mmb_packet::{Layout, Packet};

/// The memory of a search.
pub(super) struct PacketSearch {
    keys: VectorKeys,
    layouts: Box<[Layout; VECTOR]>,
    matched: Scratch,
}

impl PacketSearch {
    pub(super) fn new() -> PacketSearch {
        PacketSearch {
            keys: VectorKeys::default(),
            layouts: Box::new([Layout::default(); VECTOR]),
            matched: Scratch::default(),
        }
    }

    /// Sizes the memory for a classifier.
    pub(super) fn fit(&mut self, classifier: Option<&Classifier>) {
        self.matched.fit(classifier.map_or(0, Classifier::max_matches));
    }

    /// Returns the indices of the packets that match some rule of a classifier, of at most [`VECTOR`]
    /// packets. The memory must have been sized for the classifier. Calls `malformed` for packets that cannot
    /// be parsed.
    pub(super) fn find(
        &mut self,
        classifier: &Classifier,
        snapshot: &Snapshot,
        packets: &[Packet<'_>],
        mut malformed: impl FnMut(usize),
    ) -> &[u8] {
        self.keys.clear();
        self.keys.take(0, packets);
        self.keys.parse(ParseVector {
            wanted: classifier.wanted(),
            limits: snapshot.parser_limits,
            packets,
            layouts: &mut self.layouts,
            out: |index: usize| snapshot.route(packets[index].port).out_port,
            malformed: |index, _| malformed(index),
        });
        classifier.classify(&self.keys, packets, &self.layouts[..packets.len()], &mut self.matched);
        self.matched.matched()
    }

    /// Whether rules keep the flow of a packet from being offloaded. Called once per flow, so that it costs
    /// other packets nothing.
    #[inline(never)]
    pub(super) fn finds_blocker(&mut self, snapshot: &Snapshot, packet: &Packet<'_>) -> bool {
        let packets = std::slice::from_ref(packet);
        snapshot
            .blockers
            .as_ref()
            .is_some_and(|blockers| !self.find(blockers, snapshot, packets, |_| {}).is_empty())
    }
}
