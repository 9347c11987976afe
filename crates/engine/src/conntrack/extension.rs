//! The state of connections beyond their tuples: offsets of sequence numbers, chosen IP identifications and
//! flow labels, the MAC addresses of both ends of a hairpinned connection, and the stream of a connection
//! that rules follow.

use super::isn::SequenceNumbers;
use super::stream_ref::StreamRef;
use crate::compiled::StatefulRule;
use mmb_base::{Chunks, Slab};
use mmb_conn::{Direction, ExtensionId, TrackedHeader, Tuple, proto};
use mmb_random::{Generator, Seed};
use mmb_rewrite::Translation;
use std::collections::TryReserveError;
use std::num::NonZeroU32;
use std::sync::Arc;

/// A flow label of IPv6. A saved state may contain a larger number, which [`ConnectionExtension::suits`]
/// refuses. Stored as the number plus one, so that an option of it takes four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FlowLabel(NonZeroU32);

impl FlowLabel {
    /// The largest label: 20 bits.
    const MAX: u32 = (1 << 20) - 1;

    fn new(label: u32) -> FlowLabel {
        FlowLabel(NonZeroU32::MIN.saturating_add(label))
    }

    fn number(self) -> u32 {
        self.0.get() - 1
    }
}

/// The extension of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnectionExtension {
    /// Added to the initiator's sequence numbers.
    seq: u32,
    /// Added to the initiator's acknowledgment numbers.
    ack: u32,
    ip_id: Option<u16>,
    flow_label: Option<FlowLabel>,
    /// If its packets hairpin: the destination MAC addresses of forward packets and of replies.
    pub(crate) hairpin: Option<[[u8; 6]; 2]>,
    /// Its stream, if rules follow it.
    pub(crate) stream: Option<StreamRef>,
}

impl ConnectionExtension {
    /// The offset for the acknowledgment numbers of one direction.
    #[inline]
    pub(crate) fn ack(&self, direction: Direction) -> u32 {
        match direction {
            Direction::Forward => self.ack,
            Direction::Reply => self.seq.wrapping_neg(),
        }
    }

    /// Whether the extension contains at most a stream, so that it translates nothing.
    #[inline]
    pub(crate) fn is_only_stream(&self) -> bool {
        *self == ConnectionExtension { stream: self.stream, ..ConnectionExtension::default() }
    }

    /// Adds a constant to the sequence numbers of each direction, as the receiver of that direction sees
    /// them.
    pub(crate) fn shift(&mut self, [forward, reply]: [u32; 2]) {
        self.seq = self.seq.wrapping_add(forward);
        self.ack = self.ack.wrapping_sub(reply);
    }

    /// Adds this extension to the translation of one direction.
    #[inline]
    pub(crate) fn add_to(&self, translation: &mut Translation, direction: Direction) {
        translation.ack = self.ack(direction);
        match direction {
            Direction::Forward => {
                translation.seq = self.seq;
                translation.ip_id = self.ip_id;
                translation.flow_label = self.flow_label.map(FlowLabel::number);
            }
            Direction::Reply => translation.seq = self.ack.wrapping_neg(),
        }
    }
}

impl ConnectionExtension {
    /// The extension as bytes of a saved state, without the stream.
    pub(crate) fn to_bytes(self) -> [u8; 27] {
        let mut bytes = [0; 27];
        let given = [self.ip_id.is_some(), self.flow_label.is_some(), self.hairpin.is_some()];
        bytes[0] = given.iter().zip(0..).fold(0, |bits, (given, bit)| bits | u8::from(*given) << bit);
        bytes[1..5].copy_from_slice(&self.seq.to_be_bytes());
        bytes[5..9].copy_from_slice(&self.ack.to_be_bytes());
        bytes[9..11].copy_from_slice(&self.ip_id.unwrap_or_default().to_be_bytes());
        bytes[11..15].copy_from_slice(&self.flow_label.map_or(0, FlowLabel::number).to_be_bytes());
        bytes[15..].copy_from_slice(self.hairpin.unwrap_or_default().as_flattened());
        bytes
    }

    /// Reverses [`ConnectionExtension::to_bytes`]; `None` if a flag is unknown.
    pub(crate) fn from_bytes(bytes: [u8; 27]) -> Option<ConnectionExtension> {
        let long = |offset: usize| {
            u32::from_be_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]])
        };
        let macs = [0, 6].map(|offset| std::array::from_fn(|byte| bytes[15 + offset + byte]));
        let given = |bit: u8| bytes[0] >> bit & 1 == 1;
        (bytes[0] < 8).then(|| ConnectionExtension {
            seq: long(1),
            ack: long(5),
            ip_id: given(0).then(|| u16::from_be_bytes([bytes[9], bytes[10]])),
            flow_label: given(1).then(|| FlowLabel::new(long(11))),
            hairpin: given(2).then_some(macs),
            stream: None,
        })
    }
}

impl ConnectionExtension {
    /// Whether a connection with these tuples can have this extension: fields that its packets do not have
    /// cannot be rewritten, and only translated packets hairpin.
    pub(crate) fn suits(&self, forward: &Tuple, reply: &Tuple) -> bool {
        let shifts = self.seq != 0 || self.ack != 0;
        let back = forward.reversed();
        let is_translated = (reply.addresses, reply.ports) != (back.addresses, back.ports);
        (!shifts || forward.proto == proto::TCP)
            && (self.ip_id.is_none() || forward.family == 4)
            && self.flow_label.is_none_or(|label| forward.family == 6 && label.number() <= FlowLabel::MAX)
            && (self.hairpin.is_none() || is_translated)
    }
}

/// The extensions of a worker's connections.
#[derive(Debug)]
pub(crate) struct Extensions {
    extensions: Slab<ExtensionId, ConnectionExtension, Chunks<ConnectionExtension, 1024>>,
    random: Generator,
    pub(crate) numbers: SequenceNumbers,
}

impl Extensions {
    pub(crate) fn new(seed: Seed, numbers: SequenceNumbers) -> Extensions {
        Extensions { extensions: Slab::default(), random: Generator::new(seed), numbers }
    }

    /// Mixes fresh entropy into the generator.
    pub(crate) fn reseed(&mut self, fresh: Seed) {
        self.random.reseed(fresh);
    }

    #[inline]
    pub(crate) fn get(&self, id: ExtensionId) -> &ConnectionExtension {
        &self.extensions[id]
    }

    /// Adds constants to the sequence numbers of a connection: see [`ConnectionExtension::shift`].
    pub(crate) fn shift(&mut self, id: ExtensionId, shifts: [u32; 2]) {
        self.extensions[id].shift(shifts);
    }

    /// Creates the extension of a new connection with these rules; `None` if it needs none. Later rules take
    /// precedence. The tuples are those of the first packet as it arrived and as it is sent.
    pub(crate) fn create<'r>(
        &mut self,
        rules: impl Iterator<Item = &'r Arc<StatefulRule>>,
        [tuple, sent]: [&Tuple; 2],
        signal: Option<&TrackedHeader>,
        (hairpin, stream): (Option<[[u8; 6]; 2]>, Option<StreamRef>),
    ) -> Option<ExtensionId> {
        let mut extension = ConnectionExtension { hairpin, stream, ..ConnectionExtension::default() };
        // If the connection was picked up in mid-flow, both ends already use their numbers, which must not be
        // shifted.
        let begins = signal.filter(|signal| signal.opens()).and_then(TrackedHeader::segment);
        for rule in rules {
            if let Some(choice) = &rule.ip_id
                && tuple.family == 4
            {
                extension.ip_id = Some(choice.draw(self.random.word()) as u16);
            }
            if let Some(choice) = &rule.flow_label
                && tuple.family == 6
            {
                extension.flow_label = Some(FlowLabel::new(choice.draw(self.random.word())));
            }
            if let (Some(choice), Some(segment), proto::TCP) = (&rule.seq, begins, tuple.proto) {
                let initial = if choice.is_any() {
                    self.numbers.initial(sent)
                } else {
                    choice.draw(self.random.word())
                };
                extension.seq = initial.wrapping_sub(segment.seq);
            }
            if let (Some(choice), Some(_), proto::TCP) = (&rule.ack, begins, tuple.proto) {
                extension.ack = if choice.is_any() {
                    self.numbers.responder_shift(tuple).wrapping_neg()
                } else {
                    choice.draw(self.random.word())
                };
            }
        }
        self.store(extension)
    }

    /// Reserves memory for one more extension, and for freeing all of them, so that neither fails later.
    pub(crate) fn reserve(&mut self) -> Result<(), TryReserveError> {
        self.extensions.try_reserve()
    }

    /// Stores an extension, unless it changes nothing.
    pub(crate) fn store(&mut self, extension: ConnectionExtension) -> Option<ExtensionId> {
        (extension != ConnectionExtension::default()).then(|| self.extensions.insert(extension))
    }

    /// Frees an extension.
    pub(crate) fn free(&mut self, id: Option<ExtensionId>) {
        if let Some(id) = id {
            self.extensions.free(id);
        }
    }
}
