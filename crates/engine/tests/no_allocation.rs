//! The packet path allocates nothing and frees nothing, also on the vector that picks up a new policy.
//!
//! The only unsafe code of this room: a global allocator cannot be written without it. This one hands every call to
//! the system's and counts those of the thread that asks.

#[path = "it/host/mod.rs"]
mod host;

use host::{engine, pass, policy};
use mmb_engine::{DropReason, NoCycles, Origin, TapOptions, VECTOR, Verdict};
use mmb_packet::{LinkType, Packet, PortId};
use mmb_policy::PacketFilter;
use mmb_testkit::{Frame, Icmp, Ip4, Tcp, Udp, Upper};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::{Arc, Mutex};

struct Counting;

thread_local! {
    /// Calls of the allocator by this thread; a plain number, so that counting needs no allocation.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that is being taken down has no counter any more.
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: every method hands its arguments to the system's allocator as they came, and returns what that returned.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are the system allocator's terms.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller's promises are the system allocator's terms; the pointer came from it.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are the system allocator's terms; the pointer came from it.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A rule for every way through classifier and editor.
const POLICY: &str = r#"
add all mod ip-ecn 0
add in a ip-ttl 1-200 ip-saddr != 10.9.0.0/16 mod ip-ttl 9
add tcp-opt-mss > 1400 mod tcp-opt-mss 1400
add tcp-opt-timestamp strip tcp-opt-timestamp add tcp-opt-wscale 3
add ! tcp-opt 99 mod tcp-win 100
add tcp-payload "GET" mod tcp-payload "PUT"
add udp-dport {53, 5353, 8000-9000} drop 50
add ip6-eh mod ip6-hop-limit 3
add eth-type arp accept
add ip-proto icmp reject
add all mod udp-payload "much longer than any payload here"
"#;

fn frames() -> Vec<Vec<u8>> {
    let options = Tcp::default().option(2, &[5, 180]).option(8, &[0; 8]);
    let kinds = [
        Udp::default().payload(b"query").over_ip4(),
        Udp::default().dport(8080).over_ip6(),
        options.clone().over_ip4(),
        options.payload(b"GET /").over_ip6(),
        Icmp::default().over_ip4(),
        Frame::arp(),
    ];
    let broken = vec![0; 5];
    kinds.iter().map(Frame::bytes).chain([broken]).cycle().take(VECTOR).collect()
}

/// Packets that came in by port 0.
fn views(buffers: &mut [Vec<u8>]) -> Vec<Packet<'_>> {
    let packets = buffers.iter_mut().map(|buffer| {
        let len = buffer.len();
        Packet::new(buffer, 0, len, PortId(0), LinkType::Ethernet).expect("it fits")
    });
    packets.collect()
}

#[test]
fn vectors_and_new_policies_allocate_nothing() {
    let (mut engine, mut worker) = engine("add all drop");
    let frames = frames();
    // What a thread sets up once, it has set up.
    pass(&mut worker, 0, &frames);
    let mut verdicts = [Verdict::Send(PortId(0)); VECTOR];
    for round in 0..5 {
        engine.publish(&policy(&format!("{POLICY}\nadd ip-ttl {round} drop"))).unwrap();
        let mut buffers: Vec<_> = frames.iter().map(|frame| [&[0; 64][..], frame].concat()).collect();
        let packets = buffers.iter_mut().zip(&frames);
        let packets = packets.map(|(buffer, frame)| {
            Packet::new(buffer, 64, frame.len(), PortId(0), LinkType::Ethernet).expect("it fits")
        });
        let mut packets: Vec<_> = packets.collect();

        let before = CALLS.get();
        worker.process(0, &NoCycles, &mut packets, &mut verdicts);
        let calls = CALLS.get() - before;
        assert_eq!(calls, 0, "round {round}");
    }
    let [parse, ..] = engine.stage_counts()[..] else { panic!("there are stages") };
    assert_eq!(parse.packets, 6 * VECTOR as u64);
    assert!(!engine.drops().is_empty() && !engine.not_applied().is_empty());
}

#[test]
fn packets_of_connections_allocate_nothing() {
    let rules = "add-stateful in a ip-proto tcp map ip-saddr 200.0.0.1 shuffle tcp-seq-num\n\
                 add-stateful in a ip-proto udp map ip-saddr 200.0.0.1 mod ip-ttl 9\n\
                 add-stateful in a ip-proto icmp accept\nadd all mod ip-ecn 0";
    // Cached verdicts alone, and beside a per-packet rule that no packet matches, or each.
    for per_packet in ["", "\nadd ip-ttl < 3 drop", "\nadd ip-ttl > 3 mod ip-dscp 3"] {
        let (engine, mut worker) = engine(&format!("{rules}{per_packet}"));
        let frames: Vec<Vec<u8>> = (0..VECTOR as u16)
            .map(|number| match number % 4 {
                0 => Tcp { sport: 2000 + number, ..Tcp::default() }.over_ip4().bytes(),
                1 => Tcp { sport: 2000 + number, flags: 0x10, ..Tcp::default() }.over_ip4().bytes(),
                2 => Udp { sport: 2000 + number, ..Udp::default() }.over_ip4().bytes(),
                _ => Icmp { rest: [1, number as u8, 0, 0], ..Icmp::default() }.over_ip4().bytes(),
            })
            .collect();
        for round in 0..4 {
            let mut buffers = frames.clone();
            let mut packets = views(&mut buffers);
            let mut verdicts = [Verdict::Drop(DropReason::NoWire); VECTOR];
            let before = CALLS.get();
            worker.process(1_000_000_000 + round, &NoCycles, &mut packets, &mut verdicts);
            let calls = CALLS.get() - before;
            assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Send(PortId(1))));
            // The first round makes connections, the second caches verdicts.
            assert!(round < 2 || calls == 0, "round {round}: {calls}");
        }
        assert_eq!(engine.connections().summary().created, VECTOR as u64);
    }
}

#[test]
fn packets_that_are_told_allocate_nothing() {
    let rules = "add in a log \"told\"\nadd udp-dport 53 drop log";
    // Within the limit, beyond it, and with a new policy; without connections and with them.
    for others in ["", "set log rate unlimited", "add-stateful in a ip-proto tcp accept log"] {
        let text = format!("{rules}\n{others}");
        let (mut engine, mut worker) = engine(&text);
        let connections = engine.connections();
        let watch = std::thread::scope(|scope| {
            let asking = scope.spawn(|| connections.watch_with_capacity(100).expect("the worker answers"));
            while !asking.is_finished() {
                worker.process(0, &NoCycles, &mut [], &mut []);
                std::thread::yield_now();
            }
            asking.join().expect("it does not panic")
        });
        let frames: Vec<Vec<u8>> = (0..VECTOR as u16)
            .map(|number| match number % 2 {
                0 => Tcp { sport: 2000 + number, flags: 0x10, ..Tcp::default() }.over_ip4().bytes(),
                _ => Udp { sport: 2000 + number, ..Udp::default() }.over_ip4().bytes(),
            })
            .collect();
        let mut told = 0;
        for round in 0..6 {
            engine.publish(&policy(&format!("{text}\nadd ip-ttl {} drop", round / 3))).unwrap();
            let mut buffers = frames.clone();
            let mut packets = views(&mut buffers);
            let mut verdicts = [Verdict::Drop(DropReason::NoWire); VECTOR];
            let before = CALLS.get();
            // The number of suppressed packets is told with each vector.
            worker.process(1_000_000_000 * round, &NoCycles, &mut packets, &mut verdicts);
            let calls = CALLS.get() - before;
            // The first rounds make connections, and cache verdicts.
            assert!(round < 2 || calls == 0, "{others}, round {round}: {calls}");
            told += watch.try_iter().count();
        }
        assert!(told > 100, "{others}: {told}");
        assert!(!others.contains("unlimited") || watch.take_lost() > 0);
    }
}

#[test]
fn fragments_that_wait_allocate_nothing() {
    let (engine, mut worker) = engine("add-stateful in a ip-proto udp map ip-saddr 200.0.0.1");
    let datagram = |id: u16| {
        let upper = Upper::Udp(Udp { sport: 2000 + id, payload: vec![7; 24], ..Udp::default() });
        let whole = Ip4::new(upper).bytes();
        let piece = |bytes: &[u8], frag_offset, flags| {
            let upper = Upper::Raw(17, bytes.to_vec());
            Ip4 { id, frag_offset, flags, ..Ip4::new(upper) }.frame().bytes()
        };
        [piece(&whole[36..], 2, 0), piece(&whole[20..36], 0, 1)]
    };
    let frames: Vec<Vec<u8>> = (0..VECTOR as u16 / 2).flat_map(datagram).collect();
    let mut copies: Vec<Vec<u8>> = (0..VECTOR).map(|_| Vec::with_capacity(100)).collect();
    for round in 0..4 {
        let mut buffers = frames.clone();
        let mut packets = views(&mut buffers);
        let mut verdicts = [Verdict::Drop(DropReason::NoWire); VECTOR];
        let before = CALLS.get();
        worker.process(round, &NoCycles, &mut packets, &mut verdicts);
        let mut given = 0;
        worker.return_packets(|released| {
            copies[given].clear();
            copies[given].extend_from_slice(released.bytes);
            given += 1;
            true
        });
        let held = CALLS.get() - before;
        assert!(verdicts.iter().step_by(2).all(|verdict| matches!(verdict, Verdict::Held(_))));
        assert_eq!(given, VECTOR / 2);
        let mut packets = views(&mut copies[..given]);
        let before = CALLS.get();
        worker.process_from(Origin::Held, round, &NoCycles, &mut packets, &mut verdicts);
        let calls = held + CALLS.get() - before;
        assert!(verdicts[..given].iter().all(|verdict| *verdict == Verdict::Send(PortId(1))));
        // The first round makes connections, and room for as many datagrams.
        assert!(round < 1 || calls == 0, "round {round}: {calls}");
    }
    assert!(engine.drops().is_empty());
}

#[test]
fn streams_allocate_nothing() {
    let rules = "add-stateful tcp-dport 80 stream \"ATTACK\" close\n\
                 add-stateful tcp-dport 80 stream /seen [0-9]/ alert \"text\"\n\
                 add-stateful tcp-dport 80 digest";
    let (engine, mut worker) = engine(rules);
    let segment = |number: u16, flags, seq, payload: &[u8]| {
        let segment =
            Tcp { sport: 2000 + number, flags, seq, ack: 1, payload: payload.to_vec(), ..Tcp::default() };
        segment.over_ip4().bytes()
    };
    const SYN: u8 = 0x02;
    const ACK: u8 = 0x10;
    let rounds: [(u8, u32, &[u8]); 7] = [
        (SYN, 1, b""),
        (ACK, 2, b"begins, "),
        (ACK, 10, b"goes on, "),
        (ACK, 30, b"comes early"),
        (ACK, 19, b"seen 1 "),
        (ACK, 26, b"fills"),
        (ACK, 10, b"again and more, with AT"),
    ];
    let answers: Vec<Vec<u8>> = (0..VECTOR as u16)
        .map(|number| {
            let answer = Tcp { sport: 80, dport: 2000 + number, flags: SYN | ACK, ack: 2, ..Tcp::default() };
            let upper = Upper::Tcp(answer);
            let Ip4 { source, destination, .. } = Ip4::new(upper.clone());
            Ip4 { source: destination, destination: source, ..Ip4::new(upper) }.frame().bytes()
        })
        .collect();
    for (round, (flags, seq, payload)) in rounds.into_iter().enumerate() {
        let mut buffers: Vec<Vec<u8>> =
            (0..VECTOR as u16).map(|number| segment(number, flags, seq, payload)).collect();
        let mut packets = views(&mut buffers);
        let mut verdicts = [Verdict::Drop(DropReason::NoWire); VECTOR];
        let before = CALLS.get();
        worker.process(1_000_000_000 + round as u64, &NoCycles, &mut packets, &mut verdicts);
        let calls = CALLS.get() - before;
        // The first rounds make connections and streams, and cache verdicts; the fourth makes room for early bytes.
        assert!(matches!(round, 0 | 1 | 3) || calls == 0, "round {round}: {calls}");
        assert!(
            verdicts.iter().all(|verdict| *verdict == Verdict::Send(PortId(1))),
            "round {round}: {:?}",
            verdicts[0]
        );
        if round == 0 {
            let mut buffers = answers.clone();
            let mut packets = views(&mut buffers);
            packets.iter_mut().for_each(|packet| packet.port = PortId(1));
            worker.process(1_000_000_000, &NoCycles, &mut packets, &mut verdicts);
            assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Send(PortId(0))), "{:?}", verdicts[0]);
        }
    }
    assert!(engine.drops().is_empty());
}

/// Pools and sets of patterns were made on the vector that picked their policy up.
#[test]
fn policies_of_streams_allocate_nothing_on_the_packet_path() {
    let (mut engine, mut worker) = engine("add-stateful tcp-dport 80 accept");
    // No stream begins, which takes memory for a record.
    let frames = vec![Udp::default().payload(b"query").over_ip4().bytes(); VECTOR];
    pass(&mut worker, 0, &frames);
    let policies = [
        "add-stateful tcp-dport 80 stream \"ATTACK\" close",
        "set stream max 200000\nadd-stateful tcp-dport 80 stream {\"ATTACK\", /seen [0-9]{1,9}/} close",
        "set stream memory 512\nadd-stateful tcp-dport 80 stream \"other\" mask stream",
        "add-stateful tcp-dport 443 tls-sni /^[a-z]+[.]example[.]org$/ drop",
        "add-stateful tcp-dport 80 http-body /secret [0-9]{1,9}/ strip http-body",
        "add-stateful tcp-dport 80 http-body \"other\" mask http-body\nadd-stateful tcp-dport 21 helper ftp",
        "add-stateful tcp-dport 80 accept",
        "add-stateful tcp-dport 80 stream \"ATTACK\" close",
    ];
    for (round, text) in policies.into_iter().cycle().take(2 * policies.len()).enumerate() {
        engine.publish(&policy(text)).expect("it can be put in force");
        let mut buffers = frames.clone();
        let mut packets = views(&mut buffers);
        let mut verdicts = [Verdict::Send(PortId(0)); VECTOR];
        let before = CALLS.get();
        worker.process(round as u64, &NoCycles, &mut packets, &mut verdicts);
        let calls = CALLS.get() - before;
        assert_eq!(calls, 0, "round {round}: {text}");
    }
}

/// Those who look pay, and not the packet path: what they see lies in memory that they brought.
#[test]
fn taps_allocate_nothing() {
    let rules =
        "add-stateful in a ip-proto tcp map ip-saddr 200.0.0.1\nadd udp-dport 53 drop\nadd all mod ip-ttl 9";
    let (mut engine, worker) = engine(rules);
    let selector = engine.selector(&PacketFilter::default()).expect("it names no port");
    let wants =
        TapOptions { received: true, sent: true, dropped: true, all: true, reason: None, snaplen: 16_384 };
    let worker = Arc::new(Mutex::new(worker));
    let driven = Arc::clone(&worker);
    let idle = move |_| driven.lock().expect("no test has failed").process(0, &NoCycles, &mut [], &mut []);
    let connections = engine.connections().driven_by(Arc::new(idle));
    // Room for a round and a half: the third one finds some of it taken.
    let tap = connections.tap_with_capacity(selector, wants, 3 * VECTOR).expect("it answers");
    let mut seen = 0;
    for round in 0..3 {
        let mut buffers = frames();
        let mut packets = views(&mut buffers);
        let mut verdicts = [Verdict::Drop(DropReason::NoWire); VECTOR];
        let mut worker = worker.lock().expect("no test has failed");
        let before = CALLS.get();
        worker.process(round, &NoCycles, &mut packets, &mut verdicts);
        let calls = CALLS.get() - before;
        drop(worker);
        // The first round makes connections.
        assert!(round < 1 || calls == 0, "round {round}: {calls}");
        if round == 0 {
            seen += std::iter::from_fn(|| tap.take()).count() as u64;
        }
    }
    seen += std::iter::from_fn(|| tap.take()).count() as u64;
    let left_out = tap.take_left_out();
    // Each packet needs two pieces of memory.
    assert!(left_out > 0);
    assert_eq!(seen + left_out, 3 * VECTOR as u64);
}
