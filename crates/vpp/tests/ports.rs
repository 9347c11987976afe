//! VPP's interfaces as ports: names keep their numbers, whatever comes and goes.

#[path = "../src/ports.rs"]
mod ports;

use mmb_packet::PortId;
use ports::{InterfacePorts, MAX_PORTS, NO_PORT};

#[test]
fn a_name_keeps_its_port_when_its_interface_goes_and_comes() {
    let ports = InterfacePorts::new();
    assert_eq!(ports.reserve("wan"), Some(PortId(0)), "named by a rule before it is there");
    assert_eq!(ports.on_add(1, "lan"), Some(PortId(1)));
    assert_eq!(ports.on_add(2, "wan"), Some(PortId(0)));
    ports.on_delete(1);
    ports.on_delete(2);
    assert_eq!((ports.port_of(1), ports.port_of(2)), (NO_PORT, NO_PORT));
    // VPP gives numbers again, to whoever comes first.
    assert_eq!(ports.on_add(1, "wan"), Some(PortId(0)));
    assert_eq!(ports.on_add(2, "loop0"), Some(PortId(2)));
    assert_eq!((ports.port_of(1), ports.port_of(2)), (PortId(0), PortId(2)));
    assert_eq!([0, 1, 2].map(|port| ports.interface_of(PortId(port))), [Some(1), None, Some(2)]);
    assert_eq!(ports.names(0), ["wan", "lan", "loop0"]);
    assert_eq!(ports.names(2), ["loop0"]);
}

#[test]
fn an_interface_that_finds_no_room_has_no_port() {
    let ports = InterfacePorts::new();
    for number in 0..MAX_PORTS {
        assert_eq!(ports.reserve(&format!("loop{number}")), Some(PortId(number as u16)));
    }
    assert_eq!(ports.on_add(7, "late"), None);
    assert_eq!(ports.port_of(7), NO_PORT);
    assert_eq!(ports.on_add(7, "loop9"), Some(PortId(9)), "a known name needs no room");
    assert_eq!(ports.names(0).len(), MAX_PORTS);
}

#[test]
fn a_number_beyond_the_table_has_no_port() {
    let ports = InterfacePorts::new();
    assert_eq!(ports.on_add(u32::MAX, "far"), None);
    assert_eq!(ports.port_of(u32::MAX), NO_PORT);
    ports.on_delete(u32::MAX);
    assert_eq!(ports.names(0).len(), 0, "nor does it take a place");
}

#[test]
fn unused_names_make_room_for_others() {
    let ports = InterfacePorts::new();
    for number in 0..MAX_PORTS {
        ports.reserve(&format!("loop{number}")).expect("there is room");
    }
    let kept = ports.on_add(7, "loop3");
    assert!(ports.is_full());
    ports.recycle(|name| name != "loop3");
    assert!(ports.is_full(), "an interface has the one, and somebody wants the others");
    let before = ports.changes();
    ports.recycle(|name| name != "loop3" && name != "loop5");
    assert_eq!(ports.reserve("late"), Some(PortId(5)), "the number of a name that is forgotten");
    assert!(ports.changes() > before);
    assert_eq!((ports.names(0)[5].as_str(), ports.on_add(7, "loop3")), ("late", kept));
    assert_eq!(ports.reserve("later"), None, "there was room for one");
    ports.recycle(|name| name == "late");
    assert_eq!(
        ports.on_add(8, "loop5").map(|port| ports.names(0)[usize::from(port.0)].clone()).as_deref(),
        Some("loop5")
    );
    assert_eq!(ports.port_of(7), kept.expect("it has one"));
}
