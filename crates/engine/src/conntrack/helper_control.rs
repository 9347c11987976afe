//! Evaluates the announcements of a control connection: which connection is expected, and which address and
//! port the responder must get.

use super::expectations::{Expectation, Expectations, ExpectedRef, Occupied};
use super::shared::SharedState;
use crate::compiled::Snapshot;
use mmb_classify::RuleSlot;
use mmb_conn::{ConnId, ConnectionTable, DESTINATION, LeaseId, SOURCE, Side, Tuple};
use mmb_nat::{Mapping, RuleVersion, Translated, ValueSet};
use mmb_rewrite::NotApplied;
use std::net::IpAddr;

/// The lowest port that a client may announce: servers on its host have those below (RFC 2577, section 3).
const FIRST_PORT: u16 = 1024;

/// A control connection, while its bytes are read.
#[derive(Clone, Copy)]
pub(super) struct ControlConnection<'c> {
    pub(super) connections: &'c ConnectionTable,
    pub(super) shared: &'c SharedState,
    pub(super) id: ConnId,
    pub(super) worker: usize,
    pub(super) now_ms: u64,
}

/// An announcement that was accepted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Announced {
    /// The address and port that the responder must get.
    pub(super) outside: (IpAddr, u16),
    pub(super) reference: ExpectedRef,
    /// The connection was not expected before. Its expectation is a new user of the control connection's rule
    /// set.
    pub(super) is_new: bool,
}

impl ControlConnection<'_> {
    /// Evaluates an announcement of the initiator that it listens at an address and port for a connection
    /// from the responder. The initiator may announce only its own address. Otherwise a client could have a
    /// server connect to other hosts (RFC 2577, section 3), or a server could reach hosts behind mmb.
    ///
    /// # Errors
    /// Why no connection is expected.
    pub(super) fn announce(
        &self,
        (address, port): (IpAddr, u16),
        rules: (&Snapshot, &[RuleSlot]),
        expectations: &mut Expectations,
    ) -> Result<Announced, NotApplied> {
        let [forward, reply] = self.connections.tuples(self.id);
        if address != forward.address(SOURCE) || port < FIRST_PORT {
            return Err(NotApplied::HelperRefused);
        }
        // Both ends are on one side of a wire, so the expected connection would have to hairpin, which is not
        // supported.
        if reply.side == forward.side && reply.side != Side::Any {
            return Err(NotApplied::HelperRefused);
        }
        let end = |tuple: &Tuple, end: usize| (tuple.addresses[end], tuple.ports[end]);
        let is_translated = end(&forward, SOURCE) != end(&reply, DESTINATION);
        let (outside, lease) = match is_translated {
            true => self.outside_port(port, rules, [&forward, &reply]).ok_or(NotApplied::HelperNoRoom)?,
            false => (port, None),
        };
        let arrives = Tuple { ports: [0, outside], ..reply };
        let addresses = [forward.addresses[DESTINATION], forward.addresses[SOURCE]];
        let leaves = Tuple { addresses, ports: [0, port], ..arrives };
        let rule_set = self.connections.ids(self.id).rule_set;
        let expectation = Expectation { arrives, leaves, lease, rule_set };
        let admitted = expectations.admit_or_refresh(&expectation, self.now_ms);
        let admitted = admitted.and_then(|()| {
            let claimed = self.shared.owners.expect(&arrives, self.worker);
            claimed.map_err(|_| Occupied::Other)
        });
        let (reference, is_new) = match admitted {
            Ok(()) => (expectations.insert(expectation, self.now_ms), true),
            Err(occupied) => {
                self.shared.release(lease);
                match occupied {
                    Occupied::Same(reference) => (reference, false),
                    Occupied::Other => return Err(NotApplied::HelperNoRoom),
                }
            }
        };
        Ok(Announced { outside: (reply.address(DESTINATION), outside), reference, is_new })
    }

    /// Allocates an outside port for a port of the initiator, at the outside address of its control
    /// connection. Returns the port and its lease.
    fn outside_port(
        &self,
        port: u16,
        (snapshot, slots): (&Snapshot, &[RuleSlot]),
        [forward, reply]: [&Tuple; 2],
    ) -> Option<(u16, Option<LeaseId>)> {
        let mut mapping = Mapping::default();
        for rule in slots.iter().filter_map(|slot| snapshot.stateful(*slot)).filter(|rule| rule.maps) {
            let Mapping { saddr, sport, .. } = &rule.mapping;
            mapping.saddr = saddr.clone().or(mapping.saddr);
            mapping.sport = sport.clone().or(mapping.sport);
        }
        if mapping == Mapping::default() {
            // The rules that translated the control connection are gone.
            return None;
        }
        // The outside address stays that of the control connection, even if the rule has other addresses now:
        // a server may refuse another one (RFC 2577, section 3).
        let outside = reply.addresses[DESTINATION];
        mapping.saddr = mapping.saddr.map(|_| ValueSet::new(vec![(outside, outside)]));
        // Servers connect from the port below their control port, if they can (RFC 959, section 5.2).
        let inside = Tuple {
            addresses: [forward.addresses[SOURCE], reply.addresses[SOURCE]],
            ports: [port, reply.ports[SOURCE].wrapping_sub(1)],
            ..*forward
        };
        let owners = &self.shared.owners;
        let elsewhere = |tuple: &Tuple| owners.owning() > 1 && owners.is_taken(tuple, self.worker);
        let taken = |tuple: &Tuple| self.connections.find(tuple).is_some() || elsewhere(tuple);
        let mut nat = self.shared.nat();
        // The mapping chooses no destination, so the version of the rule does not matter.
        let translated = nat.translate(RuleVersion(0), &mapping, &inside, &taken);
        let outside = translated.ok().and_then(|Translated { sent, lease }| {
            if sent.addresses[SOURCE] == reply.addresses[DESTINATION] {
                return Some((sent.ports[SOURCE], lease));
            }
            nat.release(lease);
            None
        });
        self.shared.note_bindings(&nat);
        outside
    }
}
