//! Connection states, directions, and reasons for the end of a connection.

/// The direction of a connection's packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Direction {
    /// From the initiator.
    Forward = 0,
    /// From the responder.
    Reply = 1,
}

impl Direction {
    /// Both directions, in the order of their numbers.
    pub const ALL: [Direction; 2] = [Direction::Forward, Direction::Reply];

    /// The other direction.
    #[inline]
    #[must_use]
    pub fn opposite(self) -> Direction {
        match self {
            Direction::Forward => Direction::Reply,
            Direction::Reply => Direction::Forward,
        }
    }
}

/// The state of a connection. SCTP uses the states of TCP (`sctp`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ConnState {
    /// TCP: a SYN was seen, and no reply.
    SynSent,
    /// TCP: both SYNs were seen, and not both are acknowledged.
    SynReceived,
    /// TCP: open in both directions.
    Established,
    /// TCP: one end sent its FIN, the other may still send.
    FinWait,
    /// TCP: both ends sent a FIN, and not both are acknowledged.
    Closing,
    /// TCP: both FINs are acknowledged.
    TimeWait,
    /// TCP: ended by a RST that its receiver accepts.
    Reset,
    /// UDP, ICMP and others: packets in one direction only. TCP: picked up in mid-flow, with packets of one
    /// end only.
    Unreplied,
    /// UDP, ICMP and others: packets in both directions.
    Replied,
}

impl ConnState {
    /// All states, in the order of their numbers.
    pub const ALL: [ConnState; 9] = [
        ConnState::SynSent,
        ConnState::SynReceived,
        ConnState::Established,
        ConnState::FinWait,
        ConnState::Closing,
        ConnState::TimeWait,
        ConnState::Reset,
        ConnState::Unreplied,
        ConnState::Replied,
    ];

    /// Its name for display.
    pub fn name(self) -> &'static str {
        match self {
            ConnState::SynSent => "syn-sent",
            ConnState::SynReceived => "syn-received",
            ConnState::Established => "established",
            ConnState::FinWait => "fin-wait",
            ConnState::Closing => "closing",
            ConnState::TimeWait => "time-wait",
            ConnState::Reset => "reset",
            ConnState::Unreplied => "unreplied",
            ConnState::Replied => "replied",
        }
    }

    /// Whether the connection is half-open: not both ends have confirmed it. Such entries are evicted when no
    /// closed one is left: unreplied ones first, then those whose initiator has not acknowledged the reply.
    #[inline]
    pub fn is_half_open(self) -> bool {
        matches!(self, ConnState::SynSent | ConnState::SynReceived | ConnState::Unreplied)
    }

    /// Whether the connection is closed, and only kept for late packets. Such entries are evicted first.
    #[inline]
    pub fn is_closed(self) -> bool {
        matches!(self, ConnState::TimeWait | ConnState::Reset)
    }
}

/// Why a packet is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Invalid {
    /// A TCP segment outside of its connection's windows.
    OutOfWindow,
    /// A combination of TCP flags or SCTP chunks that no end sends, for example SYN with FIN, or no flag at
    /// all.
    BadFlags,
    /// The packet would change or create a connection's state, and its checksum is wrong.
    BadChecksum,
    /// A TCP segment or an SCTP packet that has no connection and cannot begin one.
    NotSyn,
    /// An SCTP packet without the verification tag that its receiver expects.
    BadTag,
}

impl Invalid {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Invalid; 5] =
        [Invalid::OutOfWindow, Invalid::BadFlags, Invalid::BadChecksum, Invalid::NotSyn, Invalid::BadTag];

    /// Its stable name in counters.
    pub fn name(self) -> &'static str {
        match self {
            Invalid::OutOfWindow => "out-of-window",
            Invalid::BadFlags => "bad-flags",
            Invalid::BadChecksum => "bad-checksum",
            Invalid::NotSyn => "not-syn",
            Invalid::BadTag => "bad-vtag",
        }
    }
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// No packet passed during its state's timeout.
    Timeout,
    /// It was closed or half-open, and another connection needed its slot, its port or its tuple.
    Evicted,
    /// It was killed by a command.
    Killed,
    /// A RST ended it.
    Reset,
    /// Both ends had closed it.
    Finished,
    /// Its rule was deleted together with its connections.
    RuleDeleted,
}

impl CloseReason {
    /// All reasons.
    pub const ALL: [CloseReason; 6] = [
        CloseReason::Timeout,
        CloseReason::Evicted,
        CloseReason::Killed,
        CloseReason::Reset,
        CloseReason::Finished,
        CloseReason::RuleDeleted,
    ];

    /// Its name for display.
    pub const fn name(self) -> &'static str {
        match self {
            CloseReason::Timeout => "timeout",
            CloseReason::Evicted => "evicted",
            CloseReason::Killed => "killed",
            CloseReason::Reset => "reset",
            CloseReason::Finished => "finished",
            CloseReason::RuleDeleted => "rule-deleted",
        }
    }

    /// The close reason of a connection that times out in a state.
    pub(crate) fn expired(state: ConnState) -> CloseReason {
        match state {
            ConnState::Reset => CloseReason::Reset,
            ConnState::Closing | ConnState::TimeWait => CloseReason::Finished,
            _ => CloseReason::Timeout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_places_and_names_are_unlike() {
        for (place, state) in ConnState::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, place);
            assert!(!(state.is_half_open() && state.is_closed()));
            assert!(ConnState::ALL.iter().all(|other| *other == state || other.name() != state.name()));
        }
        for (place, direction) in Direction::ALL.into_iter().enumerate() {
            assert_eq!(direction as usize, place);
            assert_eq!(direction.opposite().opposite(), direction);
            assert_ne!(direction.opposite(), direction);
        }
        for (place, kind) in Invalid::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place);
            assert!(Invalid::ALL.iter().all(|other| *other == kind || other.name() != kind.name()));
        }
        for reason in CloseReason::ALL {
            assert!(CloseReason::ALL.iter().all(|other| *other == reason || other.name() != reason.name()));
        }
    }
}
