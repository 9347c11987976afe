//! Finds the rules that keep flows from being offloaded.

use crate::compiled::Snapshot;
use crate::verdict::VECTOR;
use mmb_classify::{Classifier, Scratch};
use mmb_packet::parse::vector::{ParseVector, VectorKeys};
use mmb_packet::{Layout, Packet};

/// Finds out whether rules keep the flow of a packet from being offloaded. This is asked once for a flow, so that it costs other packets nothing.
pub(super) struct BlockerSearch {
    keys: VectorKeys,
    layouts: Box<[Layout; VECTOR]>,
    matched: Scratch,
}

impl BlockerSearch {
    pub(super) fn new() -> BlockerSearch {
        BlockerSearch {
            keys: VectorKeys::default(),
            layouts: Box::new([Layout::default(); VECTOR]),
            matched: Scratch::default(),
        }
    }

    /// Sizes the memory for a snapshot.
    pub(super) fn configure(&mut self, snapshot: &Snapshot) {
        self.matched.fit(snapshot.blockers.as_ref().map_or(0, Classifier::most_matches));
    }

    /// Whether there is one for the flow of a packet.
    #[inline(never)]
    pub(super) fn finds(&mut self, snapshot: &Snapshot, packet: &Packet<'_>) -> bool {
        let Some(classifier) = &snapshot.blockers else { return false };
        let packets = std::slice::from_ref(packet);
        self.keys.clear();
        self.keys.take(0, packets);
        self.keys.parse(ParseVector {
            wanted: classifier.wanted(),
            limits: snapshot.limits,
            packets,
            layouts: &mut self.layouts,
            out: |_| snapshot.route(packet.port).out,
            malformed: |_, _| {},
        });
        classifier.classify(&self.keys, packets, &self.layouts[..1], &mut self.matched);
        !self.matched.slots(0).is_empty()
    }
}
