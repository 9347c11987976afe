//! Answers: packets that report to a sender why its packet was dropped. If a rule with `reject` drops the
//! packet, the answer is a RST or an ICMP error. If the packet exceeds the MTU of its egress port, the answer
//! is an ICMP error with the MTU.
//!
//! Life-cycle: a worker has one [`Answers`]. An answer is written while the worker decides on the answered
//! packet, from the packet's bytes as they were received. An MTU error is written before the packet is
//! rewritten, and discarded if the packet then fits. The answer waits in a bounded queue until the host
//! provides a buffer ([`Worker::return_packets`](crate::Worker::return_packets)). Neither rules nor connections apply
//! to it. It leaves on the port on which the answered packet arrived.
//!
//! An answer's source is the address to which the packet was sent: mmb has no addresses of its own. All
//! workers share the rate limit of answers. A packet that is not answered is dropped all the same, and
//! counted as [`NotApplied::AnswerRate`] or [`NotApplied::Unanswerable`].

mod message;
mod permitted;
mod writer;

use crate::compiled::Snapshot;
use crate::conntrack::SharedState;
use crate::generated::GeneratedKind;
use crate::rate::RateCell;
use crate::rate::{RateLimit, Ticks};
use crate::verdict::VECTOR;
use message::IcmpMessage;
use mmb_packet::proto::TCP;
use mmb_packet::{Layout, LinkType, Packet, PortId};
use mmb_policy::rule::Reject;
use mmb_rewrite::{NotApplied, NotAppliedCounts};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// The most waiting answers, and the most bytes of all of them.
const QUEUE_LEN: usize = 256;
const QUEUE_BYTES: usize = 128 << 10;
/// The most MTU errors that are prepared for one vector.
const MAX_PREPARED: usize = 64;

/// A worker's answers.
pub(crate) struct Answers {
    shared: Arc<SharedState>,
    limit: Option<RateLimit>,
    now: Ticks,
    waiting: VecDeque<QueuedAnswer>,
    /// The MTU errors for packets of the vector that are still to be rewritten, or why there is no error. By
    /// the packet's index, in order.
    prepared: Vec<(u8, Result<QueuedAnswer, NotApplied>)>,
    /// The bytes of three kinds of answers, in this order: returned to the host since the queue was last
    /// empty, waiting, prepared.
    bytes: Vec<u8>,
}

/// An answer that waits for a buffer.
#[derive(Debug)]
struct QueuedAnswer {
    kind: GeneratedKind,
    port: PortId,
    link: LinkType,
    /// The range of its bytes in `Answers::bytes`.
    bytes: Range<usize>,
}

/// An answer that is returned to the host.
pub(crate) struct Answer<'a> {
    pub(crate) kind: GeneratedKind,
    /// The port on which it leaves.
    pub(crate) port: PortId,
    pub(crate) link: LinkType,
    pub(crate) bytes: &'a [u8],
}

impl Answers {
    pub(crate) fn new(shared: Arc<SharedState>) -> Answers {
        Answers {
            shared,
            limit: None,
            now: Ticks::from_ns(0),
            waiting: VecDeque::with_capacity(QUEUE_LEN),
            prepared: Vec::with_capacity(VECTOR),
            // Untouched memory costs nothing.
            bytes: Vec::with_capacity(QUEUE_BYTES),
        }
    }

    /// Applies the settings of a policy.
    pub(crate) fn configure(&mut self, snapshot: &Snapshot) {
        self.limit = snapshot.answers.rate.map(RateLimit::for_answers);
    }

    /// Sets the time of the next packets.
    #[inline]
    pub(crate) fn advance(&mut self, now_ns: u64) {
        self.now = Ticks::from_ns(now_ns);
    }

    /// Answers a packet that a rule rejects, from its bytes as they were received.
    #[inline(never)]
    pub(crate) fn reject(
        &mut self,
        reject: Reject,
        mtu: usize,
        packet: &Packet<'_>,
        layout: &Layout,
        not_applied: &mut NotAppliedCounts,
    ) {
        let is_tcp = layout.l4_kind == TCP;
        let message = match reject {
            Reject::Usual if is_tcp => None,
            Reject::TcpRst if is_tcp => None,
            // A rule that rejects with a RST answers only TCP segments.
            Reject::TcpRst => return,
            Reject::Usual => Some(IcmpMessage::port_unreachable(layout)),
            Reject::Icmp(code) => Some(IcmpMessage::unreachable(code, layout)),
            Reject::Icmp6(code) => Some(IcmpMessage::unreachable6(code, layout)),
        };
        let written = self.write(GeneratedKind::Reject, packet, layout, |bytes| match message {
            None => writer::write_reset(packet, layout, bytes),
            Some(message) => writer::write_icmp(message, mtu, packet, layout, bytes),
        });
        let queued = written.and_then(|answer| self.queue(answer));
        self.discard_unqueued();
        queued.unwrap_or_else(|reason| not_applied.count(reason));
    }

    /// Prepares the error for a packet of the vector that exceeds an MTU as it was received. Rewriting may
    /// still make it fit. IPv4 packets without DF get no error, because a router fragments them (RFC 1812
    /// section 4.3.3.1).
    #[inline(never)]
    pub(crate) fn prepare_mtu_error(
        &mut self,
        index: u8,
        (mtu, ingress_mtu): (u32, usize),
        packet: &Packet<'_>,
        layout: &Layout,
    ) {
        let Some(message) = IcmpMessage::too_large(mtu, packet, layout) else { return };
        let written = match self.prepared.len() >= MAX_PREPARED {
            true => Err(NotApplied::AnswerRate),
            false => self.write(GeneratedKind::MtuError, packet, layout, |bytes| {
                writer::write_icmp(message, ingress_mtu, packet, layout, bytes)
            }),
        };
        self.prepared.push((index, written));
    }

    /// Queues the prepared errors of the packets that are dropped. Discards the other errors.
    pub(crate) fn queue_prepared(
        &mut self,
        is_dropped: impl Fn(usize) -> bool,
        not_applied: &mut NotAppliedCounts,
    ) {
        let mut prepared = std::mem::take(&mut self.prepared);
        for (index, error) in prepared.drain(..) {
            if is_dropped(index.into())
                && let Err(reason) = error.and_then(|error| self.queue(error))
            {
                not_applied.count(reason);
            }
        }
        self.prepared = prepared;
        self.discard_unqueued();
    }

    /// Writes an answer with `write`, if the packet may be answered. Writes nothing if the rate or the queue
    /// is already exhausted.
    fn write(
        &mut self,
        kind: GeneratedKind,
        packet: &Packet<'_>,
        layout: &Layout,
        write: impl FnOnce(&mut Vec<u8>) -> Option<()>,
    ) -> Result<QueuedAnswer, NotApplied> {
        let has_room = self.waiting.len() < QUEUE_LEN && self.bytes.len() + writer::MAX_BYTES <= QUEUE_BYTES;
        if !has_room || self.limit.is_some_and(|limit| !self.cell(kind).has_room(&limit, self.now)) {
            return Err(NotApplied::AnswerRate);
        }
        let start = self.bytes.len();
        if !permitted::may_be_answered(packet, layout) || write(&mut self.bytes).is_none() {
            self.bytes.truncate(start);
            return Err(NotApplied::Unanswerable);
        }
        let bytes = start..self.bytes.len();
        Ok(QueuedAnswer { kind, port: packet.port, link: packet.link, bytes })
    }

    /// Queues an answer that was written, if the rate and the queue allow it.
    fn queue(&mut self, answer: QueuedAnswer) -> Result<(), NotApplied> {
        let fits = || self.limit.is_none_or(|limit| self.cell(answer.kind).take(&limit, self.now));
        if self.waiting.len() == QUEUE_LEN || !fits() {
            return Err(NotApplied::AnswerRate);
        }
        self.waiting.push_back(answer);
        Ok(())
    }

    /// The rate limit state of a kind of answers.
    fn cell(&self, kind: GeneratedKind) -> &RateCell {
        if kind == GeneratedKind::MtuError { &self.shared.mtu_error_rate } else { &self.shared.reject_rate }
    }

    /// Discards the bytes after those of the queued answers.
    fn discard_unqueued(&mut self) {
        let end = self.waiting.back().map_or(0, |last| last.bytes.end);
        self.bytes.truncate(end);
    }

    /// Passes the oldest answer to `out`. `None` if no answer waits.
    #[inline]
    pub(crate) fn pop<T>(&mut self, out: impl FnOnce(Answer<'_>) -> T) -> Option<T> {
        let QueuedAnswer { kind, port, link, bytes } = self.waiting.pop_front()?;
        let returned = out(Answer { kind, port, link, bytes: self.bytes.get(bytes).unwrap_or_default() });
        if self.waiting.is_empty() {
            self.bytes.clear();
        }
        Some(returned)
    }
}
