//! The trace of edits of a worker: adds the packet and the connection to each edit.

use super::edit_trace::{EditTotals, EditTrace, FreshEdit, TracedEdit};
use super::info::Endpoints;
use super::tracking::Conntrack;
use crate::compiled::Snapshot;
use mmb_classify::RuleSlot;
use mmb_conn::ConnId;

impl Conntrack {
    /// See [`Worker::trace_edits`](crate::Worker::trace_edits).
    pub(crate) fn trace_edits(&mut self, max: usize) {
        self.state.streams.tools.trace = Some(Box::new(EditTrace::new(max)));
    }

    /// See [`Worker::take_edits`](crate::Worker::take_edits).
    pub(crate) fn take_edits(&mut self) -> Vec<TracedEdit> {
        self.state.streams.tools.trace.as_mut().map_or(Vec::new(), |trace| std::mem::take(&mut trace.edits))
    }

    /// See [`Worker::edit_totals`](crate::Worker::edit_totals).
    pub(crate) fn edit_totals(&self) -> EditTotals {
        self.state.streams.tools.trace.as_ref().map_or(EditTotals::default(), |trace| trace.totals)
    }

    /// Sets the index of the next vector's first packet in the call.
    #[inline]
    pub(crate) fn trace_vector(&mut self, first: usize) {
        if let Some(trace) = &mut self.state.streams.tools.trace {
            trace.vector = first;
        }
    }

    /// Sets the packet of the vector at which the next edits are decided; `None` if they are decided by time.
    #[inline]
    pub(crate) fn trace_packet(&mut self, packet: Option<usize>) {
        if let Some(trace) = &mut self.state.streams.tools.trace {
            trace.packet = packet.map(|packet| trace.vector + packet);
        }
    }

    /// Adds the connection and the ids of the rules to the edits that were noted, and makes them available to
    /// the host.
    pub(super) fn settle_edits(&mut self, snapshot: &Snapshot, member: ConnId) {
        let trace = self.state.streams.tools.trace.as_deref_mut();
        let Some(EditTrace { packet, fresh, edits, .. }) = trace else { return };
        let [forward, _] = self.table.get(member).tuples();
        let id_of = |slot: &RuleSlot| snapshot.stateful(*slot).map(|rule| rule.id);
        edits.extend(fresh.drain(..).map(|FreshEdit { rules, direction, offset, removed, put }| {
            TracedEdit {
                rules: rules.iter().filter_map(id_of).collect(),
                proto: forward.proto,
                arrived: Endpoints::from_tuple(&forward),
                is_reply: direction == 1,
                offset,
                removed,
                put,
                packet: *packet,
            }
        }));
    }
}
