//! Creates connections: from packets, and from a state that another daemon saved.

use super::flow_state::Replaced;
use super::key;
use super::nat_ports::{NewTranslation, refused};
use super::saved_connection::SavedConnection;
use super::tracking::Conntrack;
use crate::compiled::Snapshot;
use crate::compiled::StatefulRule;
use crate::drop::DropReason;
use mmb_classify::RuleSlot;
use mmb_conn::{
    ConnId, Direction, ExtensionId, IngressPorts, Invalid, LeaseId, ResourceIds, RuleSetId, TrackedHeader,
    Tuple,
};
use mmb_nat::{Mapping, RuleVersion, Translated};
use mmb_packet::checksum::{Soundness, transport_soundness};
use mmb_packet::{Layout, Packet};
use std::borrow::Cow;
use std::sync::Arc;

/// The state that a connection refers to, and releases when it ends.
#[derive(Clone, Copy)]
pub(super) struct Resources {
    pub(super) set: RuleSetId,
    pub(super) lease: Option<LeaseId>,
    pub(super) extension: Option<ExtensionId>,
    /// A helper expected the connection.
    pub(super) is_expected: bool,
}

impl Conntrack {
    /// Creates a connection from a packet that matched stateful rules. `slots` are the slots of these rules,
    /// in the order in which their targets are applied. `arrived` is the tuple of the packet. The new
    /// connection replaces the connection `replaced`, if any.
    ///
    /// # Errors
    /// Why no connection was created; the packet must be dropped then.
    pub(super) fn create(
        &mut self,
        snapshot: &Snapshot,
        (arrived, replaced): (Tuple, Replaced),
        slots: &[RuleSlot],
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Result<(ConnId, Direction), DropReason> {
        self.state.reserve(snapshot, slots)?;
        self.reserve_source(&arrived, replaced)?;
        let opened = self.create_counted(snapshot, (arrived, replaced), slots, packet, layout);
        self.commit_source(&arrived, opened.as_ref().ok().map(|(id, _)| *id));
        opened
    }

    pub(super) fn reserve_source(&self, arrived: &Tuple, replaced: Replaced) -> Result<(), DropReason> {
        self.state.reserve_source(arrived, replaced.map(|(id, _)| self.table.get(id)).as_ref())
    }

    pub(super) fn commit_source(&mut self, arrived: &Tuple, created: Option<ConnId>) {
        if self.state.commit_source(arrived, created.is_some())
            && let Some(id) = created
        {
            self.table.set_counted(id, true);
        }
    }

    fn create_counted(
        &mut self,
        snapshot: &Snapshot,
        (arrived, replaced): (Tuple, Replaced),
        slots: &[RuleSlot],
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Result<(ConnId, Direction), DropReason> {
        let rules = || slots.iter().filter_map(|&slot| snapshot.stateful(slot));
        let mapping = merged(rules());
        let signal = key::signal(packet, layout);
        let predecessor = self.state.predecessor(replaced.and_then(|(id, _)| self.table.ids(id).extension));
        let state = &mut self.state;
        if rules().all(|rule| !rule.maps) && !state.shared.has_bindings() {
            let stream = state.begin_stream(rules(), &arrived, (packet, layout), predecessor)?;
            let extension = state.extensions.create(rules(), [&arrived; 2], signal.as_ref(), (None, stream));
            let set = state.sets.enter(snapshot, slots);
            let arrivals = arrivals(snapshot, packet, false);
            return self.insert(
                replaced,
                packet,
                signal.as_ref(),
                [arrived, arrived.reversed()],
                arrivals,
                Resources { set, lease: None, extension, is_expected: false },
            );
        }
        let first = rules().next().map_or(RuleVersion(0), |rule| rule.version);
        let NewTranslation { translated, hairpin, turns_back } =
            self.translate(snapshot, packet, (first, &mapping), &arrived, replaced)?;
        let state = &mut self.state;
        let Translated { sent, lease } = translated;
        let stream = match state.begin_stream(rules(), &arrived, (packet, layout), predecessor) {
            Ok(stream) => stream,
            Err(reason) => {
                state.shared.release(lease);
                return Err(reason);
            }
        };
        let extension =
            state.extensions.create(rules(), [&arrived, &sent], signal.as_ref(), (hairpin, stream));
        let set = state.sets.enter(snapshot, slots);
        let reply = if turns_back { sent.hairpinned() } else { sent.reversed() };
        let arrivals = arrivals(snapshot, packet, turns_back);
        self.insert(
            replaced,
            packet,
            signal.as_ref(),
            [arrived, reply],
            arrivals,
            Resources { set, lease, extension, is_expected: false },
        )
    }

    /// Creates a connection from a packet that matched no stateful rule, if it is addressed to an outside
    /// endpoint of a NAT binding and the binding's filtering admits its sender (RFC 4787 REQ-8). Returns
    /// `None` for other packets. The new connection replaces the connection `replaced`, if any.
    ///
    /// # Errors
    /// Why no connection was created although the packet is admitted; the packet must be dropped then.
    pub(super) fn admit(
        &mut self,
        snapshot: &Snapshot,
        (arrived, replaced): (Tuple, Replaced),
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Result<Option<(ConnId, Direction)>, DropReason> {
        if !self.state.shared.has_bindings() {
            return Ok(None);
        }
        self.state.reserve(snapshot, &[])?;
        let entered = self.state.shared.nat().enter(Translated { sent: arrived, lease: None });
        let Translated { sent, lease } = entered.map_err(refused)?;
        if sent == arrived {
            return Ok(None);
        }
        if transport_soundness(packet.bytes(), layout) == Soundness::Wrong {
            self.state.shared.release(lease);
            self.state.cells.count_invalid(Invalid::BadChecksum);
            return Err(DropReason::ConnInvalid);
        }
        if let Err(refused) = self.reserve_source(&arrived, replaced) {
            self.state.shared.release(lease);
            return Err(refused);
        }
        let signal = key::signal(packet, layout);
        let set = self.state.sets.enter(snapshot, &[]);
        let arrivals = arrivals(snapshot, packet, false);
        let tuples = [arrived, sent.reversed()];
        let entered = self.insert(
            replaced,
            packet,
            signal.as_ref(),
            tuples,
            arrivals,
            Resources { set, lease, extension: None, is_expected: false },
        );
        self.commit_source(&arrived, entered.as_ref().ok().map(|(id, _)| *id));
        entered.map(Some)
    }

    /// Inserts a connection into the table, and counts its first packet. `resources` is the state that the
    /// connection refers to. The new connection may have the tuples of the connection `replaced`, which ends
    /// first. After that, only the table and the owner map can refuse the new connection, and the table has
    /// room for it.
    pub(super) fn insert(
        &mut self,
        replaced: Replaced,
        packet: &Packet<'_>,
        signal: Option<&TrackedHeader>,
        [arrived, reply]: [Tuple; 2],
        arrivals: IngressPorts,
        resources: Resources,
    ) -> Result<(ConnId, Direction), DropReason> {
        // It may have ended already: its port was reclaimed for the new connection.
        if let Some((id, reason)) = replaced
            && self.table.is_live(id)
        {
            self.end(id, reason);
        }
        let Conntrack { table, state, .. } = self;
        let inserted = table.insert(state.now_ms, arrived, reply, signal, state);
        self.stale = true;
        let id = self.attach(inserted, resources)?;
        self.table.set_arrivals(id, arrivals);
        self.table.touch(id, Direction::Forward, self.state.now_ms, packet.len(), signal);
        if self.state.is_watched() {
            let expires_ms = self.table.expires_ms(id, self.state.now_ms);
            self.state.notify(&self.table.get(id), expires_ms, None);
        }
        Ok((id, Direction::Forward))
    }

    /// Restores a connection that another daemon saved. `slots` are the slots of those of its rules that this
    /// policy has.
    pub(super) fn restore(
        &mut self,
        snapshot: &Snapshot,
        saved: &SavedConnection,
        slots: &[RuleSlot],
    ) -> Result<(), DropReason> {
        self.state.reserve(snapshot, slots)?;
        let [arrived, _] = saved.connection.tuples;
        let mapping = merged(slots.iter().filter_map(|&slot| snapshot.stateful(slot)));
        if saved.connection.state.is_closed() {
            return self
                .restore_uncounted(snapshot, saved, slots, &mapping)
                .map(|restored| self.close_at_server(restored));
        }
        self.reserve_source(&arrived, None)?;
        let restored = self.restore_uncounted(snapshot, saved, slots, &mapping);
        self.commit_source(&arrived, restored.as_ref().ok().copied());
        restored.map(|_| ())
    }

    fn restore_uncounted(
        &mut self,
        snapshot: &Snapshot,
        saved: &SavedConnection,
        slots: &[RuleSlot],
        mapping: &Mapping,
    ) -> Result<ConnId, DropReason> {
        let [arrived, reply] = saved.connection.tuples;
        let Conntrack { table, state, .. } = self;
        let mut nat = state.shared.nat();
        let is_expected = saved.connection.is_expected;
        let [before, after] = saved.translated();
        let held = nat.restore(mapping, &before, after);
        let restored = match held {
            // A closed connection is restored without a lease: another connection may already have its port.
            Err(_) if saved.connection.state.is_closed() => {
                Translated { sent: reply.reversed(), lease: None }
            }
            restored => restored.map_err(refused)?,
        };
        state.shared.note_bindings(&nat);
        drop(nat);
        let rules = slots.iter().filter_map(|&slot| snapshot.stateful(slot));
        let stream = match saved.end {
            Some(end) => Some(state.streams.begin_ended(end)?),
            None if is_expected => None,
            None => state.resume_stream(rules, &arrived)?,
        };
        let mut extension = saved.extension;
        extension.stream = stream;
        let extension = state.extensions.store(extension);
        let set = state.sets.enter(snapshot, slots);
        let inserted = table.restore(state.now_ms, &saved.connection, state);
        self.stale = true;
        self.attach(inserted, Resources { set, lease: restored.lease, extension, is_expected })
    }

    /// Attaches resources to a connection that was created, and claims its tuples. Releases the resources if
    /// the connection was not created, or if a tuple cannot be claimed.
    fn attach(
        &mut self,
        inserted: Result<ConnId, mmb_conn::InsertError>,
        Resources { set, lease, extension, is_expected }: Resources,
    ) -> Result<ConnId, DropReason> {
        let Conntrack { table, state, .. } = self;
        let claimed = inserted.map_err(|why| match why {
            mmb_conn::InsertError::Full => DropReason::ConnFull,
            mmb_conn::InsertError::Taken => DropReason::NatClash,
            mmb_conn::InsertError::Invalid(Invalid::NotSyn) => DropReason::ConnNotSyn,
            mmb_conn::InsertError::Invalid(_) => DropReason::ConnInvalid,
            mmb_conn::InsertError::NoMemory => DropReason::ConnNoMemory,
        });
        let claimed = claimed.and_then(|id| {
            if is_expected {
                table.set_expected(id);
            }
            let claimed = state.shared.claim(table, id, state.worker);
            claimed.map(|()| id).map_err(|unclaimed| {
                table.remove(id);
                unclaimed.into()
            })
        });
        let id = match claimed {
            Ok(id) => id,
            Err(reason) => {
                state.shared.release(lease);
                state.free_extension(extension);
                state.sets.leave(set);
                return Err(reason);
            }
        };
        state.cache.clear_entry(id);
        *table.ids_mut(id) = ResourceIds { rule_set: Some(set), lease, extension };
        if state.stream_of(extension).is_some() {
            table.set_followed(id);
        }
        state.cells.connection_created();
        self.enter_server(id);
        self.count();
        Ok(id)
    }
}

/// The ingress ports of a new connection on a host that routes; none on a wire. Replies come in by another
/// port than the first packet, unless the connection hairpins (`turns_back`) or the policy accepts replies on
/// the same port.
pub(super) fn arrivals(snapshot: &Snapshot, packet: &Packet<'_>, turns_back: bool) -> IngressPorts {
    match snapshot.route(packet.port).is_routed() {
        true => IngressPorts::new(packet.port, turns_back || snapshot.connections.same_port),
        false => IngressPorts::default(),
    }
}

/// The combined mapping of these rules.
fn merged<'r>(rules: impl Iterator<Item = &'r Arc<StatefulRule>>) -> Cow<'r, Mapping> {
    let mut mappings = rules.filter(|rule| rule.maps).map(|rule| &rule.mapping);
    let Some(first) = mappings.next() else { return Cow::Owned(Mapping::default()) };
    mappings.fold(Cow::Borrowed(first), |mut merged, later| {
        merged.to_mut().merge(later);
        merged
    })
}
