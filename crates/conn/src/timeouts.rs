//! The idle timeouts of connections, by protocol and state.

use crate::{ConnState, proto};
use mmb_policy::settings::Timeouts;

/// The longest timeout: 24 days. A [`ConnectionTable`](crate::ConnectionTable) reduces longer ones to it. The
/// time of a connection's last packet is stored as 32 bits of milliseconds, and half of this range must
/// remain for entries that expire late.
pub const LONGEST_S: u32 = 24 * 24 * 3600;

/// The timeouts of all protocols and states, in a table. Consecutive packets differ in both, so that branches
/// would be mispredicted.
#[derive(Clone, Debug)]
pub(crate) struct StateTimeouts {
    timeouts: Timeouts,
    /// Milliseconds, by the protocol's column and the state.
    ms: [[u32; STATES]; COLUMNS],
}

const STATES: usize = ConnState::ALL.len();
/// The number of columns: three for protocols with timeouts of their own, and one for all others.
const COLUMNS: usize = 4;
/// A protocol of each column; 0 is one without a column of its own.
const EXAMPLES: [u8; COLUMNS] = [0, proto::TCP, proto::UDP, proto::ICMP];
/// The column of each protocol.
const COLUMN: [u8; 256] = {
    let mut columns = [0; 256];
    columns[proto::TCP as usize] = 1;
    columns[proto::SCTP as usize] = 1;
    columns[proto::UDP as usize] = 2;
    columns[proto::UDP_LITE as usize] = 2;
    columns[proto::ICMP as usize] = 3;
    columns[proto::ICMP6 as usize] = 3;
    columns
};

/// The column of a protocol. All protocols of a column have the same timeouts.
#[inline]
pub(crate) fn column(proto: u8) -> u8 {
    COLUMN[usize::from(proto)]
}

impl StateTimeouts {
    pub(crate) fn new(timeouts: Timeouts) -> StateTimeouts {
        let ms = |proto, state| timeout_s(&timeouts, proto, state).min(LONGEST_S) * 1000;
        let ms = EXAMPLES.map(|proto| ConnState::ALL.map(|state| ms(proto, state)));
        StateTimeouts { timeouts, ms }
    }

    /// The settings from which they were computed.
    pub(crate) fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// Milliseconds without a packet after which a connection of a protocol in a state ends, at most
    /// [`LONGEST_S`].
    #[inline]
    pub(crate) fn ms(&self, proto: u8, state: ConnState) -> u64 {
        u64::from(self.ms[usize::from(column(proto)) % COLUMNS][state as usize])
    }
}

/// Seconds without a packet after which a connection of a protocol in a state ends.
pub(crate) fn timeout_s(timeouts: &Timeouts, proto: u8, state: ConnState) -> u32 {
    match (state, proto) {
        (ConnState::SynSent | ConnState::SynReceived, _)
        | (ConnState::Unreplied, proto::TCP | proto::SCTP) => timeouts.tcp_syn,
        (ConnState::Established, _) | (ConnState::Replied, proto::TCP | proto::SCTP) => {
            timeouts.tcp_established
        }
        (ConnState::FinWait | ConnState::Closing, _) => timeouts.tcp_fin,
        (ConnState::TimeWait, _) => timeouts.tcp_time_wait,
        (ConnState::Reset, _) => timeouts.tcp_reset,
        (ConnState::Unreplied, proto::UDP | proto::UDP_LITE) => timeouts.udp_unreplied,
        (ConnState::Replied, proto::UDP | proto::UDP_LITE) => timeouts.udp,
        (ConnState::Unreplied | ConnState::Replied, proto::ICMP | proto::ICMP6) => timeouts.icmp,
        (ConnState::Unreplied | ConnState::Replied, _) => timeouts.other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_up_is_what_the_settings_say() {
        let timeouts = Timeouts {
            tcp_syn: 1,
            tcp_established: 2,
            tcp_fin: 3,
            tcp_time_wait: 4,
            tcp_reset: 5,
            udp: 6,
            udp_unreplied: 7,
            icmp: 8,
            other: u32::MAX,
        };
        let limits = StateTimeouts::new(timeouts);
        for (proto, state) in (0..=255).flat_map(|proto| ConnState::ALL.map(|state| (proto, state))) {
            let wanted = u64::from(timeout_s(&timeouts, proto, state).min(LONGEST_S)) * 1000;
            assert_eq!(limits.ms(proto, state), wanted, "protocol {proto}, {}", state.name());
        }
    }

    #[test]
    fn defaults_keep_the_rfcs() {
        let timeout = |proto, state| timeout_s(&Timeouts::default(), proto, state);
        let tcp = |state| timeout(proto::TCP, state);
        assert!(tcp(ConnState::Established) >= 2 * 3600 + 4 * 60, "RFC 5382 REQ-5, established");
        for state in [
            ConnState::SynSent,
            ConnState::SynReceived,
            ConnState::FinWait,
            ConnState::Closing,
            ConnState::TimeWait,
        ] {
            assert!(tcp(state) >= 4 * 60, "RFC 5382 REQ-5, transitory: {}", state.name());
        }
        assert!(tcp(ConnState::Reset) >= 4 * 60, "RFC 7857 section 2.2");
        for state in [ConnState::Unreplied, ConnState::Replied] {
            assert!(timeout(proto::UDP, state) >= 2 * 60, "RFC 4787 REQ-5");
            for proto in [proto::ICMP, proto::ICMP6] {
                assert!(timeout(proto, state) >= 60, "RFC 5508 REQ-2");
            }
        }
    }
}
