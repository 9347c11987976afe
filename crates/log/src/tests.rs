//! Records for tests.

use crate::audit::AuditEvent;
use crate::record::{Record, RecordedEvent};
use mmb_engine::{
    ConnectionEvent, ConnectionInfo, Endpoints, IpHeaderInfo, PacketEvent, Side, Verdict, WatchedEvent, Wire,
};
use mmb_packet::PortId;
use mmb_policy::RuleId;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

/// At 2024-02-29T12:34:56.789012Z.
pub(crate) fn record(event: RecordedEvent) -> Record {
    Record { time: SystemTime::UNIX_EPOCH + Duration::from_micros(1_709_210_096_789_012), event }
}

pub(crate) fn audit_event(action: &str) -> AuditEvent {
    AuditEvent { action: action.to_owned(), ..AuditEvent::default() }
}

pub(crate) fn audit(command: &str) -> RecordedEvent {
    RecordedEvent::Audit(AuditEvent { command: command.to_owned(), uid: Some(0), ..audit_event("run") })
}

/// A SYN that rule 3 tells of.
pub(crate) fn packet() -> RecordedEvent {
    let ends = ends(["10.0.0.5", "192.0.2.1"], [4000, 80]);
    RecordedEvent::Worker(WatchedEvent::Packet(PacketEvent {
        at_ns: 0,
        rule: RuleId(3),
        name: None,
        text: Some("new".into()),
        worker: 0,
        port: PortId(0),
        len: 74,
        vlans: [0; 2],
        eth_type: 0x0800,
        ip: Some(IpHeaderInfo { proto: 6, ends, is_later_fragment: false, tcp_flags: Some(2), icmp: None }),
        verdict: Verdict::Send(PortId(1)),
    }))
}

/// A query that was translated and answered, and whose time is over.
pub(crate) fn closed() -> RecordedEvent {
    connection_with_ports(
        false,
        ends(["10.0.0.5", "192.0.2.1"], [4000, 53]),
        ends(["198.51.100.1", "192.0.2.1"], [61_000, 53]),
    )
}

/// A connection between these addresses, as its packets arrive and leave.
pub(crate) fn connection(created: bool, arrived: [&str; 2], sent: [&str; 2]) -> RecordedEvent {
    connection_with_ports(created, ends(arrived, [4000, 53]), ends(sent, [4000, 53]))
}

fn connection_with_ports(created: bool, arrived: Endpoints, sent: Endpoints) -> RecordedEvent {
    RecordedEvent::Worker(WatchedEvent::Connection(ConnectionEvent {
        at_ns: 0,
        created,
        reason: (!created).then_some("timeout"),
        info: ConnectionInfo {
            worker: 0,
            id: 0,
            proto: 17,
            family: if arrived.src.is_ipv4() { 4 } else { 6 },
            key: 0,
            icmp_type: 0,
            wire: Wire::ROUTED,
            sides: [Side::Any; 2],
            arrived,
            sent,
            state: "replied",
            age_ms: 120_500,
            idle_ms: 0,
            expires_ms: 0,
            packets: [2, 1],
            bytes: [180, 95],
            rules: [RuleId(3), RuleId(7)].into(),
            stream: None,
        },
    }))
}

fn ends(addresses: [&str; 2], [sport, dport]: [u16; 2]) -> Endpoints {
    let [src, dst] = addresses.map(|address| address.parse::<IpAddr>().expect("an address"));
    Endpoints { src, sport, dst, dport }
}
