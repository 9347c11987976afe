//! How long a connection is kept without a packet.

use crate::{State, proto};

/// Seconds without a packet after which a connection in a state ends.
///
/// The defaults are the shortest that the RFCs on NAT allow or recommend. RFC 5382 REQ-5 counts everything before and
/// after the established state as transitory, four minutes at least; RFC 7857 section 2.2 wants the same after a RST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// TCP before both ends have answered: 240 (RFC 5382 REQ-5, RFC 7857 section 2.1).
    pub tcp_syn: u32,
    /// TCP, open: 7440, two hours and four minutes, so that the keep-alives of RFC 1122 arrive in time (RFC 5382 REQ-5).
    pub tcp_established: u32,
    /// TCP after a FIN: 240 (RFC 5382 REQ-5).
    pub tcp_fin: u32,
    /// TCP after both FINs are acknowledged: 240, also twice the maximum segment lifetime of RFC 9293.
    pub tcp_time_wait: u32,
    /// TCP after a RST: 240, because it may be lost behind us, and its receiver goes on (RFC 7857 section 2.2).
    pub tcp_reset: u32,
    /// UDP that went both ways: 300 (RFC 4787 REQ-5: 120 at least, 300 recommended).
    pub udp: u32,
    /// UDP without a reply so far: 120, the least that RFC 4787 REQ-5 allows.
    pub udp_unreplied: u32,
    /// ICMP and ICMPv6 queries: 60 (RFC 5508 REQ-2).
    pub icmp: u32,
    /// Other protocols: 600.
    pub other: u32,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            tcp_syn: 240,
            tcp_established: 7440,
            tcp_fin: 240,
            tcp_time_wait: 240,
            tcp_reset: 240,
            udp: 300,
            udp_unreplied: 120,
            icmp: 60,
            other: 600,
        }
    }
}

impl Timeouts {
    /// The longest one, 24 days; a [`Table`](crate::Table) takes longer ones for this. The time of a connection's last
    /// packet is kept as 32 bits of milliseconds, and half of their circle must stay for entries that are late.
    pub const LONGEST_S: u32 = 24 * 24 * 3600;

    /// As [`Timeouts::of`], in milliseconds, and not longer than [`Timeouts::LONGEST_S`].
    #[inline]
    pub(crate) fn ms(&self, proto: u8, state: State) -> u64 {
        u64::from(self.of(proto, state).min(Timeouts::LONGEST_S)) * 1000
    }

    /// Seconds for a connection of a protocol in a state.
    pub fn of(&self, proto: u8, state: State) -> u32 {
        match (state, proto) {
            (State::SynSent | State::SynReceived, _) | (State::Unreplied, proto::TCP) => self.tcp_syn,
            (State::Established, _) | (State::Replied, proto::TCP) => self.tcp_established,
            (State::FinWait | State::Closing, _) => self.tcp_fin,
            (State::TimeWait, _) => self.tcp_time_wait,
            (State::Reset, _) => self.tcp_reset,
            (State::Unreplied, proto::UDP) => self.udp_unreplied,
            (State::Replied, proto::UDP) => self.udp,
            (State::Unreplied | State::Replied, proto::ICMP | proto::ICMP6) => self.icmp,
            (State::Unreplied | State::Replied, _) => self.other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_keep_the_rfcs() {
        let timeouts = Timeouts::default();
        let tcp = |state| timeouts.of(proto::TCP, state);
        assert!(tcp(State::Established) >= 2 * 3600 + 4 * 60, "RFC 5382 REQ-5, established");
        for state in [State::SynSent, State::SynReceived, State::FinWait, State::Closing, State::TimeWait] {
            assert!(tcp(state) >= 4 * 60, "RFC 5382 REQ-5, transitory: {}", state.name());
        }
        assert!(tcp(State::Reset) >= 4 * 60, "RFC 7857 section 2.2");
        for state in [State::Unreplied, State::Replied] {
            assert!(timeouts.of(proto::UDP, state) >= 2 * 60, "RFC 4787 REQ-5");
            for proto in [proto::ICMP, proto::ICMP6] {
                assert!(timeouts.of(proto, state) >= 60, "RFC 5508 REQ-2");
            }
        }
    }
}
