//! Checks saved connections, so that the table accepts nothing from a file that it could not have created
//! itself.
//!
//! [`fault`] checks one entry by itself, without a table. Conflicts with other connections (a tuple or a
//! binding in use) and missing rules are detected when the entry is restored.

use super::saved_connection::{LONGEST_AGE_MS, LONGEST_IDLE_MS, SavedConnection};
use mmb_conn::{ConnState, Tuple, icmp_query, proto};

/// The largest packet or byte count. No real traffic reaches it, and counters can grow beyond it without
/// overflow.
pub(super) const LARGEST_COUNT: u64 = 1 << 62;

/// The fault in an entry, if there is one.
pub(crate) fn fault(saved: &SavedConnection) -> Option<&'static str> {
    let connection = &saved.connection;
    let [forward, reply] = &connection.tuples;
    let (is_tcp, is_sctp) = (forward.proto == proto::TCP, forward.proto == proto::SCTP);
    let is_tracked = is_tcp || is_sctp;
    let counts = || connection.packets.iter().zip(connection.bytes);
    let faults = [
        ([forward, reply].into_iter().any(has_wrong_addresses), "an address is not one of its family"),
        (has_wrong_family(forward), "its protocol is not one of its family"),
        ([forward, reply].into_iter().any(has_wrong_ports), "its ports are not those of its protocol"),
        (
            forward.is_query() && forward.ports[1] != reply.ports[1],
            "the two directions have different ICMP query types",
        ),
        (has_mapped_ports(forward, reply), "its ports are mapped, and no rule maps those of its protocol"),
        (is_own_reply(forward, reply), "forward and reply tuples have the same endpoints"),
        (!may_be_in(connection.state, is_tracked), "its state is not one of its protocol"),
        (is_sctp && !connection.tracker.is_association(), "the tracking state is not that of SCTP"),
        (
            !is_tracked && connection.tracker.to_bytes()[..20] != [0; 20],
            "it has sequence numbers or tags, but its protocol has none",
        ),
        (connection.packets[0] == 0, "the initiator's packet count is 0"),
        (counts().any(|(packets, bytes)| *packets == 0 && bytes > 0), "it has bytes without packets"),
        (counts().any(|(packets, bytes)| (*packets).max(bytes) > LARGEST_COUNT), "a counter is out of range"),
        (!is_tracked && has_unlikely_replies(saved), "its replies do not fit its state"),
        (connection.idle_ms > connection.age_ms, "it is idle for longer than it is there"),
        (connection.age_ms > LONGEST_AGE_MS, "its age is out of range"),
        (connection.idle_ms > LONGEST_IDLE_MS, "its last packet is too long ago"),
        (!saved.extension.suits(forward, reply), "it rewrites fields that its packets do not have"),
        (connection.is_expected && forward.proto != proto::TCP, "no helper announces its protocol"),
        (has_rules_twice(saved), "a rule is listed twice"),
    ];
    faults.into_iter().find(|(is_wrong, _)| *is_wrong).map(|(_, why)| why)
}

fn has_wrong_addresses(tuple: &Tuple) -> bool {
    tuple.family == 4 && tuple.addresses.iter().any(|address| *address > u128::from(u32::MAX))
}

/// Whether the reply tuple has the endpoints of the forward tuple, not reversed. That is legitimate only for
/// a packet from an endpoint to itself.
fn is_own_reply(forward: &Tuple, reply: &Tuple) -> bool {
    let ends = |tuple: &Tuple| (tuple.addresses, tuple.ports);
    ends(forward) != ends(&forward.hairpinned()) && ends(forward) == ends(reply)
}

fn has_wrong_family(tuple: &Tuple) -> bool {
    matches!((tuple.proto, tuple.family), (proto::ICMP, 6) | (proto::ICMP6, 4))
}

fn has_wrong_ports(tuple: &Tuple) -> bool {
    match tuple.proto {
        proto::ICMP | proto::ICMP6 => !u8::try_from(tuple.ports[1])
            .is_ok_and(|request| icmp_query(tuple.proto, request) == Some((request, true))),
        _ => !tuple.has_ports() && tuple.ports != [0; 2],
    }
}

/// Whether ports are mapped although NAT does not map the ports of the protocol.
fn has_mapped_ports(forward: &Tuple, reply: &Tuple) -> bool {
    !forward.may_map_ports() && forward.reversed().ports != reply.ports
}

fn may_be_in(state: ConnState, is_tracked: bool) -> bool {
    match state {
        ConnState::SynSent
        | ConnState::SynReceived
        | ConnState::Established
        | ConnState::FinWait
        | ConnState::Closing
        | ConnState::TimeWait
        | ConnState::Reset => is_tracked,
        // In TCP, a connection that was picked up in mid-flow.
        ConnState::Unreplied => true,
        ConnState::Replied => !is_tracked,
    }
}

/// Whether a connection without a state machine has left `Unreplied` without a reply. A reply in `Unreplied`
/// is valid: if its checksum is wrong or unknown, it does not change the state.
fn has_unlikely_replies(saved: &SavedConnection) -> bool {
    saved.connection.state != ConnState::Unreplied && saved.connection.packets[1] == 0
}

fn has_rules_twice(saved: &SavedConnection) -> bool {
    match &saved.rules[..] {
        [] | [_] => false,
        [first, second] => first == second,
        rules => {
            let mut sorted = rules.to_vec();
            sorted.sort_unstable();
            sorted.windows(2).any(|pair| pair[0] == pair[1])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::extension::ConnectionExtension;
    use super::*;
    use mmb_conn::{ConnTracker, ConnectionSnapshot, IngressPorts};
    use mmb_policy::RuleId;

    const NOTHING: [u8; 27] = [0; 27];

    fn entry(proto: u8, family: u8, state: ConnState) -> SavedConnection {
        let ports = match proto {
            proto::ICMP => [7, 13],
            proto::ICMP6 => [7, 128],
            _ if (Tuple { proto, ..Tuple::default() }).has_ports() => [7, 7],
            _ => [0, 0],
        };
        let forward = Tuple { addresses: [1, 2], ports, proto, family, ..Tuple::default() };
        let replies = u64::from(state != ConnState::Unreplied);
        let mut tracker = [0; 22];
        tracker[20..].copy_from_slice(&[14, 14]);
        let connection = ConnectionSnapshot {
            tuples: [forward, forward.reversed()],
            state,
            tracker: ConnTracker::from_bytes(tracker),
            packets: [1, replies],
            bytes: [60, 60 * replies],
            arrivals: IngressPorts::default(),
            is_expected: false,
            age_ms: 5,
            idle_ms: 4,
        };
        SavedConnection {
            connection,
            extension: extension(NOTHING),
            end: None,
            rules: vec![RuleId(1), RuleId(2)],
        }
    }

    fn extension(bytes: [u8; 27]) -> ConnectionExtension {
        ConnectionExtension::from_bytes(bytes).expect("its flags are known")
    }

    /// The fault in a valid entry after a change.
    fn after(mut entry: SavedConnection, change: impl FnOnce(&mut SavedConnection)) -> Option<&'static str> {
        assert_eq!(fault(&entry), None, "it was good");
        change(&mut entry);
        fault(&entry)
    }

    fn udp() -> SavedConnection {
        entry(proto::UDP, 4, ConnState::Replied)
    }

    fn tcp() -> SavedConnection {
        entry(proto::TCP, 4, ConnState::Established)
    }

    #[test]
    fn what_tables_make_is_good() {
        for state in ConnState::ALL.into_iter().filter(|state| *state != ConnState::Replied) {
            assert_eq!(fault(&entry(proto::TCP, 6, state)), None, "{state:?}");
        }
        for (proto, family) in [(proto::UDP, 4), (proto::ICMP, 4), (proto::ICMP6, 6), (47, 4), (50, 6)] {
            for state in [ConnState::Unreplied, ConnState::Replied] {
                assert_eq!(fault(&entry(proto, family, state)), None, "{proto} {state:?}");
            }
        }
    }

    #[test]
    fn addresses_of_ipv4_are_below_2_to_the_32nd() {
        let wrong = Some("an address is not one of its family");
        assert_eq!(after(udp(), |udp| udp.connection.tuples[0].addresses[0] = 1 << 32), wrong);
        assert_eq!(after(udp(), |udp| udp.connection.tuples[1].addresses[1] = u128::MAX), wrong);
        let ip6 = entry(proto::UDP, 6, ConnState::Replied);
        assert_eq!(after(ip6, |udp| udp.connection.tuples[0].addresses[0] = u128::MAX), None);
    }

    #[test]
    fn protocols_keep_to_their_families_and_ports() {
        let wrong = Some("its protocol is not one of its family");
        let move_to = |family| {
            move |entry: &mut SavedConnection| {
                entry.connection.tuples.iter_mut().for_each(|tuple| tuple.family = family)
            }
        };
        assert_eq!(after(entry(proto::ICMP, 4, ConnState::Replied), move_to(6)), wrong);
        assert_eq!(after(entry(proto::ICMP6, 6, ConnState::Replied), move_to(4)), wrong);
        let wrong = Some("its ports are not those of its protocol");
        let ping = entry(proto::ICMP, 4, ConnState::Replied);
        assert_eq!(after(ping.clone(), |ping| ping.connection.tuples[0].ports = [7, 14]), wrong, "an answer");
        assert_eq!(after(ping.clone(), |ping| ping.connection.tuples[0].ports = [7, 0x010d]), wrong);
        assert_eq!(after(ping.clone(), |ping| ping.connection.tuples[1].ports = [8, 13]), None, "translated");
        let apart = Some("the two directions have different ICMP query types");
        assert_eq!(after(ping, |ping| ping.connection.tuples[1].ports = [7, 8]), apart);
        let mapped = Some("its ports are mapped, and no rule maps those of its protocol");
        for (proto, state) in [(proto::SCTP, ConnState::Established), (proto::GRE, ConnState::Replied)] {
            let mut kept = entry(proto, 4, state);
            kept.connection.tracker = ConnTracker::default();
            assert_eq!(fault(&kept), None, "{proto}");
            assert_eq!(after(kept, |kept| kept.connection.tuples[1].ports = [9, 10]), mapped, "{proto}");
        }
        let esp = entry(50, 4, ConnState::Replied);
        assert_eq!(after(esp, |esp| esp.connection.tuples[1].ports = [0, 1]), wrong);
    }

    #[test]
    fn states_are_those_of_the_protocol() {
        let wrong = Some("its state is not one of its protocol");
        for state in ConnState::ALL {
            let is_good = matches!(state, ConnState::Unreplied | ConnState::Replied);
            let found = after(udp(), |udp| udp.connection.state = state);
            assert_eq!(found == wrong, !is_good, "{state:?}: {found:?}");
        }
        assert_eq!(after(tcp(), |tcp| tcp.connection.state = ConnState::Replied), wrong);
        let replies = Some("its replies do not fit its state");
        let unanswered =
            |udp: &mut SavedConnection| (udp.connection.packets[1], udp.connection.bytes[1]) = (0, 0);
        assert_eq!(after(udp(), unanswered), replies);
        assert_eq!(
            after(udp(), |udp| udp.connection.state = ConnState::Unreplied),
            None,
            "answers were not accepted"
        );
    }

    #[test]
    fn counters_and_times_are_in_range() {
        let counter = Some("a counter is out of range");
        assert_eq!(
            after(tcp(), |tcp| tcp.connection.packets[1] = u64::MAX),
            counter,
            "the next one overflows"
        );
        assert_eq!(after(tcp(), |tcp| tcp.connection.bytes[0] = u64::MAX), counter);
        assert_eq!(
            after(tcp(), |tcp| tcp.connection.packets[0] = 0),
            Some("the initiator's packet count is 0")
        );
        let bytes = Some("it has bytes without packets");
        assert_eq!(after(tcp(), |tcp| tcp.connection.packets[1] = 0), bytes);
        let idle = Some("it is idle for longer than it is there");
        assert_eq!(after(tcp(), |tcp| tcp.connection.idle_ms = 6), idle);
        let age = Some("its age is out of range");
        assert_eq!(after(tcp(), |tcp| tcp.connection.age_ms = u64::MAX), age);
        let set =
            |tcp: &mut SavedConnection| (tcp.connection.age_ms, tcp.connection.idle_ms) = (1 << 33, 1 << 32);
        assert_eq!(after(tcp(), set), Some("its last packet is too long ago"));
    }

    #[test]
    fn only_tcp_has_sequence_numbers() {
        let mut tracker = [0; 22];
        tracker[3] = 1;
        let wrong = Some("it has sequence numbers or tags, but its protocol has none");
        assert_eq!(after(udp(), |udp| udp.connection.tracker = ConnTracker::from_bytes(tracker)), wrong);
        assert_eq!(after(tcp(), |tcp| tcp.connection.tracker = ConnTracker::from_bytes(tracker)), None);
    }

    #[test]
    fn extras_are_about_fields_that_its_packets_have() {
        let wrong = Some("it rewrites fields that its packets do not have");
        let given = |flags: u8, offset: usize, value: u8| {
            let mut bytes = NOTHING;
            (bytes[0], bytes[offset]) = (flags, value);
            extension(bytes)
        };
        let shift = given(0, 4, 9);
        assert_eq!(after(udp(), |udp| udp.extension = shift), wrong);
        assert_eq!(after(tcp(), |tcp| tcp.extension = shift), None);
        let ip6 = || entry(proto::TCP, 6, ConnState::Established);
        let (id, label) = (given(1, 10, 9), given(2, 14, 9));
        assert_eq!(
            [after(tcp(), |tcp| tcp.extension = id), after(ip6(), |tcp| tcp.extension = id)],
            [None, wrong]
        );
        assert_eq!(
            [after(tcp(), |tcp| tcp.extension = label), after(ip6(), |tcp| tcp.extension = label)],
            [wrong, None]
        );
        assert_eq!(after(ip6(), |tcp| tcp.extension = given(2, 11, 1)), wrong, "a flow label has 20 bits");
        let hairpin = given(4, 20, 2);
        assert_eq!(
            after(tcp(), |tcp| tcp.extension = hairpin),
            wrong,
            "what is not translated goes straight"
        );
        let translated = |tcp: &mut SavedConnection| {
            (tcp.connection.tuples[1].addresses, tcp.extension) = ([3, 4], hairpin)
        };
        assert_eq!(after(tcp(), translated), None);
    }

    #[test]
    fn a_rule_is_named_once() {
        assert_eq!(after(udp(), |udp| udp.rules.push(RuleId(1))), Some("a rule is listed twice"));
    }

    #[test]
    fn a_reply_is_no_first_packet() {
        let wrong = Some("forward and reply tuples have the same endpoints");
        assert_eq!(after(udp(), |udp| udp.connection.tuples[1] = udp.connection.tuples[0]), wrong);
    }
}
