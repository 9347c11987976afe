//! Connections that helpers expect: the first packet of one makes it, however the rules are that it matches itself.
//!
//! It has the rules of its control connection, and so passes where the replies of that one do. To rules that match on `ct` its first packet is
//! *related*. It does not count for `conn per-source`: its source is the server of many clients, and a control connection announces few. The connection is no control connection, whatever rules it has: its bytes are not followed.

use super::create::{Resources, arrivals};
use super::expectations::Expectation;
use super::flow_state::Replaced;
use super::key;
use super::tracking::Conntrack;
use crate::compiled::Snapshot;
use crate::drop::DropReason;
use mmb_classify::RuleSlot;
use mmb_conn::{ConnId, Direction, Tuple};
use mmb_packet::{Layout, Packet};

impl Conntrack {
    /// Whether a packet without a connection begins one that is expected.
    #[inline]
    pub(super) fn is_expected(&self, at: usize, packet: &Packet<'_>, layout: &Layout) -> bool {
        let expected = &self.state.streams.tools.helpers.expected;
        !expected.is_empty()
            && key::begins_connection(packet, layout)
            && self.tuple(at).is_some_and(|arrived| expected.find(&arrived, self.state.now_ms).is_some())
    }

    /// The rules of the connection that a packet begins, which is expected.
    pub(crate) fn expected_rules(&mut self, snapshot: &Snapshot, at: usize) -> &[RuleSlot] {
        let Some(arrived) = self.tuple(at) else { return &[] };
        let expected = &self.state.streams.tools.helpers.expected;
        let set = expected.find(&arrived, self.state.now_ms).and_then(|expected| expected.rule_set);
        set.map_or(&[], |set| self.state.sets.live(snapshot, set))
    }

    /// Creates a connection that is expected from its first packet. The connection that `ends`, if any, is replaced by it.
    ///
    /// # Errors
    /// Why it is not created; the packet must be dropped then.
    pub(super) fn create_expected(
        &mut self,
        snapshot: &Snapshot,
        (at, ends): (usize, Replaced),
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Result<(ConnId, Direction), DropReason> {
        let arrived = self.tuple(at).ok_or(DropReason::ConnInvalid)?;
        self.state.reserve(snapshot, &[])?;
        let state = &mut self.state;
        let taken = state.streams.tools.helpers.expected.take(&arrived, state.now_ms);
        let Expectation { arrives, leaves, lease, rule_set } = taken.ok_or(DropReason::ConnInvalid)?;
        state.shared.owners.expect_no_more(&arrives, state.worker);
        let set = match rule_set {
            Some(set) => set,
            // A control connection has the rule of its helper.
            None => state.sets.enter(snapshot, &[]),
        };
        let sent = Tuple { ports: [arrived.ports[0], leaves.ports[1]], ..leaves };
        let signal = key::signal(packet, layout);
        self.insert(
            ends,
            packet,
            signal.as_ref(),
            [arrived, sent.reversed()],
            arrivals(snapshot, packet, false),
            Resources { set, lease, extension: None, is_expected: true },
        )
    }

    /// Gives up expected connections that did not begin in time, or whose control connection has ended.
    #[cold]
    pub(super) fn give_up_expected(&mut self) {
        let state = &mut self.state;
        loop {
            let expired = state.streams.tools.helpers.expected.take_expired(state.now_ms);
            if expired.is_empty() {
                return;
            }
            for Expectation { arrives, lease, rule_set, .. } in expired {
                state.shared.owners.expect_no_more(&arrives, state.worker);
                state.shared.release(lease);
                rule_set.into_iter().for_each(|set| state.sets.leave(set));
            }
        }
    }
}
