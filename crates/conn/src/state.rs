//! What is known of a connection's life, and why it ended.

/// Which way a packet of a connection goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Direction {
    /// From whom sent the first packet.
    Forward = 0,
    /// Back.
    Reply = 1,
}

impl Direction {
    /// Both, by their numbers.
    pub const ALL: [Direction; 2] = [Direction::Forward, Direction::Reply];

    /// The other one.
    #[inline]
    #[must_use]
    pub fn turned(self) -> Direction {
        match self {
            Direction::Forward => Direction::Reply,
            Direction::Reply => Direction::Forward,
        }
    }
}

/// Where a connection is in its life. What is said of TCP holds of SCTP by its own chunks (`sctp`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ConnState {
    /// TCP: a SYN went, nothing came back.
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
    /// TCP: ended by a RST that the receiver takes.
    Reset,
    /// UDP, ICMP and others: packets in one direction only. TCP: picked up in mid-flow, and only one end was seen.
    Unreplied,
    /// UDP, ICMP and others: packets in both directions.
    Replied,
}

impl ConnState {
    /// All, by their numbers.
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

    /// Its name for people.
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

    /// Whether not both ends have shown that they want this connection. Such entries make room for new ones where no closed one is
    /// left: those that nobody answered first, then those whose first end has not acknowledged the answer.
    #[inline]
    pub fn is_half_open(self) -> bool {
        matches!(self, ConnState::SynSent | ConnState::SynReceived | ConnState::Unreplied)
    }

    /// Whether it is only kept for stragglers. Such entries are the first to make room for new ones.
    #[inline]
    pub fn is_closed(self) -> bool {
        matches!(self, ConnState::TimeWait | ConnState::Reset)
    }
}

/// Why a packet is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Invalid {
    /// A TCP segment outside of its connection's windows.
    OutOfWindow,
    /// TCP flags that no end sets together: SYN and FIN, none at all. SCTP chunks that no end puts together.
    BadFlags,
    /// The packet would change a connection's state, or make one, and its checksum is wrong.
    BadChecksum,
    /// A TCP segment or an SCTP packet of no connection that can begin none.
    NotSyn,
    /// An SCTP packet with another verification tag than its receiver's.
    BadTag,
}

impl Invalid {
    /// All, by their numbers.
    pub const ALL: [Invalid; 5] =
        [Invalid::OutOfWindow, Invalid::BadFlags, Invalid::BadChecksum, Invalid::NotSyn, Invalid::BadTag];

    /// Its name in counters: stable.
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

/// Why a connection is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// Nothing passed for its state's timeout.
    Timeout,
    /// It was over or nobody had answered, and another one got its place, its port or its ends.
    Evicted,
    /// Somebody asked for it.
    Killed,
    /// A RST ended it.
    Reset,
    /// Both ends had closed it.
    Finished,
    /// Its rule was deleted, and its connections with it.
    RuleDeleted,
}

impl CloseReason {
    /// All.
    pub const ALL: [CloseReason; 6] = [
        CloseReason::Timeout,
        CloseReason::Evicted,
        CloseReason::Killed,
        CloseReason::Reset,
        CloseReason::Finished,
        CloseReason::RuleDeleted,
    ];

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            CloseReason::Timeout => "timeout",
            CloseReason::Evicted => "evicted",
            CloseReason::Killed => "killed",
            CloseReason::Reset => "reset",
            CloseReason::Finished => "finished",
            CloseReason::RuleDeleted => "rule-deleted",
        }
    }

    /// Why a connection in a state is gone once its time is up.
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
            assert_eq!(direction.turned().turned(), direction);
            assert_ne!(direction.turned(), direction);
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
