//! Connections to outside endpoints: from outside, and from one inside endpoint to another.

use super::*;

/// From 192.0.2.`peer`, port `port`, to the outside endpoint of inside endpoint 1:5000.
fn inbound(peer: u128, port: u16) -> Translated {
    let sent = Tuple {
        addresses: [0xC000_0200 + peer, OUTSIDE],
        ports: [port, 5000],
        side: Side::High,
        ..udp(0, 0, 0)
    };
    Translated { sent, lease: None }
}

fn inside(translated: &Translated) -> (u128, u16) {
    (translated.sent.addresses[DESTINATION], translated.sent.ports[DESTINATION])
}

#[test]
fn filtering_of_inbound_packets() {
    let cases = [
        (NatFiltering::EndpointIndependent, [true, true]),
        (NatFiltering::AddressDependent, [true, false]),
        (NatFiltering::AddressAndPortDependent, [false, false]),
    ];
    for (setting, expected) in cases {
        let mut nat = filtering(setting);
        let made = nat.translate(RuleVersion(1), &snat(1), &udp(1, 5000, 1), &free).expect("free");
        for (peer, expected) in [1, 2].into_iter().zip(expected) {
            let arrived = inbound(peer, 9999);
            let entered = nat.enter(arrived).expect("there is memory");
            assert_eq!(inside(&entered) == (INSIDE + 1, 5000), expected, "{setting:?} {peer}");
            assert_eq!(entered == arrived, !expected);
            nat.release(entered.lease);
        }
        nat.release(made.lease);
        assert_eq!(nat.enter(inbound(1, 443)), Ok(inbound(1, 443)), "nothing is bound any more");
        assert_nothing_left(&nat);
    }
}

#[test]
fn a_connection_from_outside_keeps_the_binding() {
    let mut nat = filtering(NatFiltering::EndpointIndependent);
    let made = nat.translate(RuleVersion(1), &snat(1), &udp(1, 5000, 1), &free).expect("free");
    let entered = nat.enter(inbound(2, 9)).expect("there is memory");
    nat.release(made.lease);
    assert!(nat.owner(proto::UDP, 4, Wire::default(), OUTSIDE, 5000).is_some());
    nat.release(entered.lease);
    assert_nothing_left(&nat);
}

#[test]
fn a_host_without_an_outside_endpoint_reaches_none_of_its_side() {
    let mut nat = filtering(NatFiltering::EndpointIndependent);
    let made = nat.translate(RuleVersion(1), &snat(1), &udp(1, 5000, 1), &free).expect("free");
    for (side, is_led) in [(Side::Low, false), (Side::High, true)] {
        let mut arrived = inbound(2, 9);
        arrived.sent.side = side;
        let entered = nat.enter(arrived).expect("there is memory");
        assert_eq!(entered != arrived, is_led, "{side:?}");
        nat.release(entered.lease);
    }
    nat.release(made.lease);
    assert_nothing_left(&nat);
}

#[test]
fn a_remote_address_is_admitted_while_it_is_in_use() {
    let mut nat = filtering(NatFiltering::AddressDependent);
    let made: Vec<_> = [(1, 1), (2, 1), (3, 2)]
        .map(|(dport, peer)| Tuple { ports: [5000, dport], ..udp(1, 5000, peer) })
        .map(|arrived| nat.translate(RuleVersion(1), &snat(1), &arrived, &free).expect("free"))
        .into();
    nat.release(made[0].lease);
    let entered = nat.enter(inbound(1, 9999)).expect("there is memory");
    assert_eq!(inside(&entered).0, INSIDE + 1);
    nat.release(made[1].lease);
    assert_eq!(nat.enter(inbound(1, 9998)), Ok(inbound(1, 9998)));
    nat.release(entered.lease);
    nat.release(made[2].lease);
    assert_nothing_left(&nat);
}

/// RFC 4787, REQ-9: the responder sees the outside endpoint of the initiator.
#[test]
fn two_inside_ends_meet_outside() {
    let mut nat = filtering(NatFiltering::EndpointIndependent);
    let called = nat.translate(RuleVersion(1), &snat(1), &udp(1, 5000, 1), &free).expect("free");
    let mut arrived = udp(2, 6000, 1);
    arrived.addresses[DESTINATION] = OUTSIDE;
    arrived.ports[DESTINATION] = 5000;
    let calling = nat.translate(RuleVersion(1), &snat(1), &arrived, &free).expect("free");
    let hairpin = nat.enter(calling).expect("there is memory");
    assert_eq!((outside(&hairpin), inside(&hairpin)), ((OUTSIDE, 6000), (INSIDE + 1, 5000)));
    nat.release(called.lease);
    assert_eq!(nat.len(), 2);
    nat.release(hairpin.lease);
    assert_nothing_left(&nat);
}

#[test]
fn identifiers_of_queries_enter() {
    let mut nat = filtering(NatFiltering::EndpointIndependent);
    nat.translate(RuleVersion(1), &snat(1), &packet(proto::ICMP, 1, 7, 1), &free).expect("free");
    let second = nat.translate(RuleVersion(1), &snat(1), &packet(proto::ICMP, 2, 7, 1), &free).expect("free");
    let (_, identifier) = outside(&second);
    let arrived = Tuple { side: Side::High, ..packet(proto::ICMP, 0, 0, 0) };
    let sent = Tuple { addresses: [9, OUTSIDE], ports: [identifier, 8], ..arrived };
    let entered = nat.enter(Translated { sent, lease: None }).expect("there is memory").sent;
    assert_eq!((entered.addresses[DESTINATION], entered.ports), (INSIDE + 2, [7, 8]));
    let own = Tuple { addresses: [INSIDE + 3, OUTSIDE], ..packet(proto::ICMP, 3, 9, 1) };
    let asked = nat.translate(RuleVersion(1), &snat(1), &own, &free).expect("free");
    assert_eq!(nat.enter(asked), Ok(asked), "a query of the outside address");
}

#[test]
fn an_end_is_not_led_to_itself() {
    let mut nat = filtering(NatFiltering::EndpointIndependent);
    let mut arrived = udp(1, 5000, 1);
    arrived.addresses[DESTINATION] = OUTSIDE;
    arrived.ports[DESTINATION] = 5000;
    let made = nat.translate(RuleVersion(1), &snat(1), &arrived, &free).expect("free");
    assert_eq!(nat.enter(made), Ok(made));
}
