//! Finds packets by a classifier of its own, beside the policy's: which flows rules keep from being offloaded, and which packets somebody wants to see.

use crate::compiled::Snapshot;
use crate::verdict::VECTOR;
use mmb_classify::{Classifier, Scratch};
use mmb_packet::parse::vector::{ParseVector, VectorKeys};
use mmb_packet::{Layout, Packet};

/// The memory of such searches.
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
        self.matched.fit(classifier.map_or(0, Classifier::most_matches));
    }

    /// The packets, at most [`VECTOR`], that match some rule of a classifier for which the memory was sized. Calls `malformed` for those that cannot
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
            out: |at: usize| snapshot.route(packets[at].port).out,
            malformed: |at, _| malformed(at),
        });
        classifier.classify(&self.keys, packets, &self.layouts[..packets.len()], &mut self.matched);
        self.matched.matched()
    }

    /// Whether rules keep the flow of a packet from being offloaded. This is asked once for a flow, so that it costs other packets nothing.
    #[inline(never)]
    pub(super) fn finds_blocker(&mut self, snapshot: &Snapshot, packet: &Packet<'_>) -> bool {
        let packets = std::slice::from_ref(packet);
        snapshot
            .blockers
            .as_ref()
            .is_some_and(|blockers| !self.find(blockers, snapshot, packets, |_| {}).is_empty())
    }
}
