//! How long a connection is kept without a packet, of what a policy says about that.

use crate::{State, proto};
use mmb_policy::policy::Timeouts;

/// The longest time, 24 days; a [`Table`](crate::Table) takes longer ones for this. The time of a connection's last
/// packet is kept as 32 bits of milliseconds, and half of their circle must stay for entries that are late.
pub const LONGEST_S: u32 = 24 * 24 * 3600;

/// As [`timeout_s`], in milliseconds, and not longer than [`LONGEST_S`].
#[inline]
pub(crate) fn timeout_ms(timeouts: &Timeouts, proto: u8, state: State) -> u64 {
    u64::from(timeout_s(timeouts, proto, state).min(LONGEST_S)) * 1000
}

/// Seconds without a packet after which a connection of a protocol in a state ends.
pub(crate) fn timeout_s(timeouts: &Timeouts, proto: u8, state: State) -> u32 {
    match (state, proto) {
        (State::SynSent | State::SynReceived, _) | (State::Unreplied, proto::TCP) => timeouts.tcp_syn,
        (State::Established, _) | (State::Replied, proto::TCP) => timeouts.tcp_established,
        (State::FinWait | State::Closing, _) => timeouts.tcp_fin,
        (State::TimeWait, _) => timeouts.tcp_time_wait,
        (State::Reset, _) => timeouts.tcp_reset,
        (State::Unreplied, proto::UDP) => timeouts.udp_unreplied,
        (State::Replied, proto::UDP) => timeouts.udp,
        (State::Unreplied | State::Replied, proto::ICMP | proto::ICMP6) => timeouts.icmp,
        (State::Unreplied | State::Replied, _) => timeouts.other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_keep_the_rfcs() {
        let of = |proto, state| timeout_s(&Timeouts::default(), proto, state);
        let tcp = |state| of(proto::TCP, state);
        assert!(tcp(State::Established) >= 2 * 3600 + 4 * 60, "RFC 5382 REQ-5, established");
        for state in [State::SynSent, State::SynReceived, State::FinWait, State::Closing, State::TimeWait] {
            assert!(tcp(state) >= 4 * 60, "RFC 5382 REQ-5, transitory: {}", state.name());
        }
        assert!(tcp(State::Reset) >= 4 * 60, "RFC 7857 section 2.2");
        for state in [State::Unreplied, State::Replied] {
            assert!(of(proto::UDP, state) >= 2 * 60, "RFC 4787 REQ-5");
            for proto in [proto::ICMP, proto::ICMP6] {
                assert!(of(proto, state) >= 60, "RFC 5508 REQ-2");
            }
        }
    }
}
