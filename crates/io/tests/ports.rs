//! Ports opened as the daemon opens them, over devices that need no root, no hardware and no huge pages.
#![cfg(dpdk)]

use mmb_io::{Burst, Device, Health, OpenOptions, OpenPorts};

#[test]
fn ports_open_receive_send_and_close() {
    let wanted = |devices: &[&str]| -> Vec<(String, Device)> {
        devices.iter().map(|text| (text.to_string(), Device::parse(text).expect("a device"))).collect()
    };
    let options = OpenOptions { workers: 2, mtu: Some(9000), flows: 0 };
    let twice = OpenPorts::open(&wanted(&["dpdk:net_null0", "dpdk:net_null0"]), &options);
    assert!(twice.expect_err("one device, two ports").to_string().contains("used by two ports"));
    let missing = OpenPorts::open(&wanted(&["no-such-port", "dpdk:net_null0"]), &options);
    assert!(missing.expect_err("no such interface").to_string().contains("no interface 'no-such-port'"));
    let name = format!("taken-{}.sock", std::process::id());
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _listener = std::os::unix::net::UnixListener::bind(&path).expect("listens");
    let memif = Device::parse(&format!("memif:{},role=server", path.display())).expect("a device");
    let taken = OpenPorts::open(&[("uplink".to_owned(), memif)], &options).expect_err("taken").to_string();
    assert!(taken.starts_with("port uplink: memif socket "), "{taken}");
    std::fs::remove_file(&path).expect("removes the socket");

    let devices = ["dpdk:net_null0,size=900", "dpdk:net_ring0"];
    let mut ports = OpenPorts::open(&wanted(&devices), &options).expect("both open");
    let names: Vec<&str> = ports.ports().iter().map(|port| port.info().driver.as_str()).collect();
    assert_eq!(names, ["net_null", "net_ring"]);
    assert!(ports.take_notes().is_empty(), "both have queues enough");
    assert!(ports.ports().iter().all(|port| port.mtu() == 9000));

    let mut null = ports.ports()[0].links(2).expect("links");
    let mut ring = ports.ports()[1].links(2).expect("links");
    let mut burst = Burst::new();
    let received = null[1].receive(&mut burst);
    assert_eq!((received.frames, burst.len()), (256, 256));
    assert!(burst.iter().all(|mbuf| mbuf.len() == 900));
    // Each worker has a ring of its own.
    assert_eq!(ring[1].send(&mut burst).frames, 256);
    assert_eq!(ring[0].receive(&mut burst).frames, 0);
    assert_eq!(ring[1].receive(&mut burst).frames, 256);
    assert_eq!(null[0].send(&mut burst).frames, 256);
    assert_eq!(ring[0].health(), Health::Up);
}
