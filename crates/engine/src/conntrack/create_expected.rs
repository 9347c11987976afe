//! Connections that helpers expect. The first packet of such a connection creates it, whichever rules the
//! packet itself matches.
//!
//! The connection has the rules of its control connection, so it passes where the replies of the control
//! connection pass. Rules on `ct` see its first packet as *related*. It does not count towards `conn
//! per-source`: its source is the server of many clients, and a control connection announces few connections.
//! It is never a control connection, whichever rules it has: its bytes are not followed.

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
    /// Whether a packet without a connection is the first packet of an expected one.
    #[inline]
    pub(super) fn is_expected(&self, index: usize, packet: &Packet<'_>, layout: &Layout) -> bool {
        let expectations = &self.state.streams.tools.helpers.expectations;
        !expectations.is_empty()
            && key::begins_connection(packet, layout)
            && self
                .tuple(index)
                .is_some_and(|arrived| expectations.find(&arrived, self.state.now_ms).is_some())
    }

    /// The slots of the rules of the expected connection that a packet would create, as far as the policy
    /// still contains them.
    pub(crate) fn expected_rules(&mut self, snapshot: &Snapshot, index: usize) -> &[RuleSlot] {
        let Some(arrived) = self.tuple(index) else { return &[] };
        let expectations = &self.state.streams.tools.helpers.expectations;
        let set = expectations.find(&arrived, self.state.now_ms).and_then(|expected| expected.rule_set);
        set.map_or(&[], |set| self.state.sets.live(snapshot, set))
    }

    /// Creates an expected connection from its first packet. It replaces the connection `replaced`, if any.
    ///
    /// # Errors
    /// Why it is not created; the packet must be dropped then.
    pub(super) fn create_expected(
        &mut self,
        snapshot: &Snapshot,
        (index, replaced): (usize, Replaced),
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Result<(ConnId, Direction), DropReason> {
        let arrived = self.tuple(index).ok_or(DropReason::ConnInvalid)?;
        self.state.reserve(snapshot, &[])?;
        let state = &mut self.state;
        let taken = state.streams.tools.helpers.expectations.take(&arrived, state.now_ms);
        let Expectation { arrives, leaves, lease, rule_set } = taken.ok_or(DropReason::ConnInvalid)?;
        state.shared.owners.withdraw_expected(&arrives, state.worker);
        let set = match rule_set {
            Some(set) => set,
            // Not reached: a control connection has the rule of its helper.
            None => state.sets.enter(snapshot, &[]),
        };
        let sent = Tuple { ports: [arrived.ports[0], leaves.ports[1]], ..leaves };
        let signal = key::signal(packet, layout);
        self.insert(
            replaced,
            packet,
            signal.as_ref(),
            [arrived, sent.reversed()],
            arrivals(snapshot, packet, false),
            Resources { set, lease, extension: None, is_expected: true },
        )
    }

    /// Removes the expectations that have expired or were cancelled, and releases their resources.
    #[cold]
    pub(super) fn remove_expired(&mut self) {
        let state = &mut self.state;
        loop {
            let expired = state.streams.tools.helpers.expectations.take_expired(state.now_ms);
            if expired.is_empty() {
                return;
            }
            for Expectation { arrives, lease, rule_set, .. } in expired {
                state.shared.owners.withdraw_expected(&arrives, state.worker);
                state.shared.release(lease);
                rule_set.into_iter().for_each(|set| state.sets.leave(set));
            }
        }
    }
}
