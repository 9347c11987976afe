//! Fragments that come before their datagram's first one: held, given out behind it, or lost and counted.

use crate::host::{pass_among, policy, ports, released};
use mmb_engine::{DropReason, Engine, NoCycles, Verdict, Worker};
use mmb_packet::PortId;
use mmb_random::SeedTree;
use mmb_testkit::{Extension, FragmentHeader, Ip4, Ip6, Udp, Upper};
use std::net::{Ipv4Addr, Ipv6Addr};

const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(200, 0, 0, 1);
const A: u16 = 0;
const SENT: Verdict = Verdict::Send(PortId(1));
const NAT: &str = "add-stateful in a ip-proto udp map ip-saddr 200.0.0.1";
/// How many fragments wait at once.
const MAX_FRAGMENTS: u64 = 4096;

/// An engine with its workers and a clock.
struct Site {
    engine: Engine,
    workers: Vec<Worker>,
    now_ms: u64,
    /// The worker that gets the next packet.
    next: usize,
}

impl Site {
    fn new(text: &str, workers: usize) -> Site {
        let (mut engine, workers) = Engine::new(ports(), workers, &SeedTree::repeatable(1));
        engine.publish(&policy(text)).expect("it can be put in force");
        Site { engine, workers, now_ms: 1000, next: 0 }
    }

    /// Takes frames in one by one, each at another worker, and returns what becomes of them and of what they released.
    fn pass(&mut self, frames: &[Vec<u8>]) -> Vec<(Verdict, Vec<u8>)> {
        let mut passed = Vec::new();
        for frame in frames {
            self.next = (self.next + 1) % self.workers.len();
            let at = (self.next, self.now_ms);
            passed.extend(pass_among(&mut self.workers, at, A, std::slice::from_ref(frame)));
        }
        self.adds_up();
        passed
    }

    /// [`Site::pass`] with all frames in one vector.
    fn pass_together(&mut self, frames: &[Vec<u8>]) -> Vec<Verdict> {
        self.next = (self.next + 1) % self.workers.len();
        let passed = pass_among(&mut self.workers, (self.next, self.now_ms), A, frames);
        self.adds_up();
        passed.into_iter().map(|(verdict, _)| verdict).collect()
    }

    fn verdicts(&mut self, frames: &[Vec<u8>]) -> Vec<Verdict> {
        self.pass(frames).into_iter().map(|(verdict, _)| verdict).collect()
    }

    fn wait(&mut self, ms: u64) {
        self.now_ms += ms;
        let now_ns = self.now_ms * 1_000_000;
        self.workers.iter_mut().for_each(|worker| worker.process(now_ns, &NoCycles, &mut [], &mut []));
        self.adds_up();
    }

    fn held(&self) -> u64 {
        self.engine.connections().summary().held
    }

    fn drops(&self) -> Vec<(DropReason, u64)> {
        self.engine.drops()
    }

    /// Whatever came in was sent, or dropped, or is held, or was given out and not been brought back.
    fn adds_up(&self) {
        let ports = self.engine.port_counts();
        let received: u64 = ports.iter().map(|port| port.rx.packets).sum();
        let sent: u64 = ports.iter().map(|port| port.tx.packets).sum();
        let dropped: u64 = self.drops().iter().map(|(_, count)| count).sum();
        assert_eq!(received, sent + dropped + self.held());
    }
}

/// The UDP datagram of number `id`, of 64 bytes, in four pieces of 16.
fn datagram(source: Ipv4Addr, id: u16) -> [Vec<u8>; 4] {
    let payload = (0..56).map(|at| at ^ id as u8).collect();
    let upper = Upper::Udp(Udp { sport: 5000, dport: 9, payload, ..Udp::default() });
    let whole = Ip4 { source, destination: SERVER, ..Ip4::new(upper) }.bytes();
    std::array::from_fn(|at| piece(source, id, &whole[20 + 16 * at..][..16], 2 * at as u16, at < 3))
}

fn piece(source: Ipv4Addr, id: u16, bytes: &[u8], frag_offset: u16, more: bool) -> Vec<u8> {
    let upper = Upper::Raw(17, bytes.to_vec());
    let head = Ip4 { id, frag_offset, flags: u8::from(more), ..Ip4::new(upper) };
    Ip4 { source, destination: SERVER, ..head }.frame().bytes()
}

#[test]
fn pieces_in_any_order_leave_behind_the_first_one() {
    for workers in 1..4 {
        let mut site = Site::new(NAT, workers);
        for (id, order) in
            [[3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2], [3, 0, 1, 2], [0, 3, 1, 2]].iter().enumerate()
        {
            let (id, first) = (id as u16, order.iter().position(|at| *at == 0).expect("there is one"));
            let (came, leaves) = (datagram(INSIDE, id), datagram(OUTSIDE, id));
            let passed = site.pass(&order.map(|at| came[at].clone()));
            let sent: Vec<_> =
                passed.iter().filter(|(verdict, _)| *verdict == SENT).map(|(_, frame)| frame).collect();
            // The first one, then those which waited for it as they came, then the others.
            let waited = &order[..first];
            let expected = order[first..=first].iter().chain(waited).chain(&order[first + 1..]);
            assert_eq!(sent, expected.map(|at| &leaves[*at]).collect::<Vec<_>>(), "{workers} {order:?}");
            assert_eq!(passed.len(), 4 + first, "each of those which waited was held, and no other");
        }
        assert_eq!((site.held(), site.drops()), (0, vec![]));
    }
}

#[test]
fn a_vector_may_hold_a_first_piece_and_those_before_it() {
    let mut site = Site::new(NAT, 1);
    let [first, second, third, last] = datagram(INSIDE, 1);
    let vector = [third, first, last, second];
    let passed = pass_among(&mut site.workers, (0, 1000), A, &vector);
    let leaves = datagram(OUTSIDE, 1);
    let sent: Vec<_> =
        passed.into_iter().filter(|(verdict, _)| *verdict == SENT).map(|(_, frame)| frame).collect();
    assert_eq!(sent, [0, 3, 1, 2].map(|at| leaves[at].clone()));
}

#[test]
fn a_piece_that_waits_twice_leaves_once() {
    let mut site = Site::new(NAT, 1);
    let [first, second, third, last] = datagram(INSIDE, 1);
    let duplicate = Verdict::Drop(DropReason::FragmentDuplicate);
    let held = site.verdicts(&[last.clone(), last]);
    assert!(matches!(held[..], [Verdict::Held(one), Verdict::Held(other)] if one != other), "{held:?}");
    assert_eq!(site.verdicts(&[first]), [SENT, SENT, duplicate]);
    assert_eq!(site.verdicts(&[second, third]), [SENT, SENT]);
}

#[test]
fn a_piece_that_waited_and_overlaps_ends_its_datagram() {
    let mut site = Site::new(NAT, 1);
    let [first, second, third, _] = datagram(INSIDE, 1);
    let liar = piece(INSIDE, 1, &[9; 16], 1, true);
    let overlap = Verdict::Drop(DropReason::FragmentOverlap);
    assert!(matches!(site.verdicts(&[third, liar])[..], [Verdict::Held(_), Verdict::Held(_)]));
    assert_eq!(site.verdicts(&[first]), [SENT, SENT, overlap]);
    assert_eq!(site.verdicts(&[second]), [overlap]);
}

#[test]
fn a_flood_of_fragments_is_bounded_and_keeps_others_working() {
    for workers in [1, 2] {
        let mut site = Site::new(NAT, workers);
        let max = MAX_FRAGMENTS * workers as u64;
        for id in 0..10_000 {
            let [_, stray, ..] = datagram(Ipv4Addr::new(10, 9, (id >> 8) as u8, id as u8), id);
            assert!(matches!(site.verdicts(&[stray])[..], [Verdict::Held(_)]));
            assert!(site.held() <= max);
            if id % 1000 == 0 {
                let [first, _, _, last] = datagram(INSIDE, id);
                assert!(matches!(site.verdicts(&[last, first])[..], [Verdict::Held(_), SENT, SENT]));
            }
        }
        assert_eq!(site.drops(), [(DropReason::FragmentNoRoom, 10_000 - site.held())]);
    }
}

#[test]
fn one_datagram_does_not_take_all_the_room() {
    let mut site = Site::new(NAT, 1);
    let held = (1..=200).map(|at| piece(INSIDE, 1, &[0; 8], at, true)).collect::<Vec<_>>();
    let held = site.verdicts(&held);
    let too_many = held.iter().filter(|verdict| **verdict == Verdict::Drop(DropReason::FragmentTooMany));
    assert_eq!((too_many.count(), site.held()), (72, 128));
}

#[test]
fn what_waits_for_too_long_is_dropped_and_counted() {
    let mut site = Site::new(NAT, 2);
    let [first, second, third, _] = datagram(INSIDE, 1);
    site.pass(&[third]);
    site.wait(10_000);
    site.pass(&[second]);
    site.wait(5_000);
    assert_eq!(site.held(), 2);
    site.wait(1);
    assert_eq!((site.held(), site.drops()), (1, vec![(DropReason::FragmentEarly, 1)]));
    assert_eq!(site.verdicts(&[first]), [SENT, SENT]);
    let [_, stray, ..] = datagram(INSIDE, 2);
    site.pass(&[stray]);
    site.workers.iter_mut().for_each(Worker::drop_held);
    assert_eq!((site.held(), site.drops()), (0, vec![(DropReason::FragmentEarly, 2)]));
    // No verdict has told of these.
    let mut lost = || site.workers.iter_mut().flat_map(Worker::take_lost).map(|(_, lost)| lost).sum::<u64>();
    assert_eq!([lost(), lost()], [2, 0]);
    site.adds_up();
}

#[test]
fn a_packet_without_a_buffer_is_dropped_and_counted() {
    let mut site = Site::new(NAT, 1);
    let [first, second, third, _] = datagram(INSIDE, 1);
    site.pass(&[third, second]);
    let [passed] = &crate::host::pass(&mut site.workers[0], A, &[first])[..] else { panic!("one packet") };
    assert_eq!(passed.0, SENT);
    let mut asked = 0;
    let given = site.workers[0].return_packets(|_| {
        asked += 1;
        false
    });
    assert_eq!((given, asked), (None, 2));
    assert_eq!((site.held(), site.drops()), (0, vec![(DropReason::NoBuffer, 2)]));
    site.adds_up();
}

#[test]
fn what_waits_goes_by_the_policy_that_is_in_force_when_it_goes_on() {
    let mut site = Site::new(NAT, 1);
    let [first, second, third, last] = datagram(INSIDE, 1);
    site.pass(std::slice::from_ref(&third));
    site.engine.publish(&policy(&NAT.replace("200.0.0.1", "200.0.0.2"))).expect("it can be put in force");
    let other = datagram(Ipv4Addr::new(200, 0, 0, 2), 1);
    assert_eq!(site.pass(&[first]), [(SENT, other[0].clone()), (SENT, other[2].clone())]);
    assert_eq!(site.pass(&[second, last]), [(SENT, other[1].clone()), (SENT, other[3].clone())]);
    // Without stateful rules nobody asks whose a fragment is.
    let [_, second, ..] = datagram(INSIDE, 2);
    site.pass(std::slice::from_ref(&second));
    site.engine.publish(&policy("")).expect("it can be put in force");
    site.wait(0);
    assert_eq!(released(&mut site.workers[0]), [(A, second)]);
    assert_eq!(site.held(), 0);
}

#[test]
fn pieces_of_a_datagram_that_was_refused_do_not_leave_untranslated() {
    for workers in 1..4 {
        let policy = "add-stateful in a ip-proto udp mod ip-saddr 200.0.0.1 mod udp-sport 7777";
        let mut site = Site::new(policy, workers);
        site.pass(&datagram(INSIDE, 1));
        for host in 2..10 {
            let [first, second, third, last] = datagram(Ipv4Addr::new(10, 0, 0, host), 2);
            assert!(matches!(site.verdicts(&[last])[..], [Verdict::Held(_)]));
            let [clash, refused] = [DropReason::NatClash, DropReason::FragmentRefused].map(Verdict::Drop);
            assert_eq!(site.verdicts(&[first, second, third]), [clash, refused, refused, refused]);
            let together = site.pass_together(&datagram(Ipv4Addr::new(10, 0, 1, host), 3));
            assert_eq!(together, [clash, refused, refused, refused]);
        }
    }
}

#[test]
fn pieces_of_a_datagram_that_a_rule_drops_do_not_leave_untranslated() {
    for workers in 1..4 {
        let mut site = Site::new(&format!("{NAT}\nadd udp-dport 9 ip-saddr 10.0.0.0/28 drop"), workers);
        for host in 1..10 {
            let [first, second, third, last] = datagram(Ipv4Addr::new(10, 0, 0, host), 2);
            assert!(matches!(site.verdicts(&[last])[..], [Verdict::Held(_)]));
            let [dropped, refused] = [DropReason::Rule, DropReason::FragmentRefused].map(Verdict::Drop);
            assert_eq!(site.verdicts(&[first, second, third]), [dropped, refused, refused, refused]);
            let together = site.pass_together(&datagram(Ipv4Addr::new(10, 0, 0, host), 3));
            assert_eq!(together, [dropped, refused, refused, refused]);
        }
        assert!(
            site.pass(&datagram(Ipv4Addr::new(10, 0, 0, 16), 2)).iter().all(|(verdict, _)| *verdict == SENT)
        );
    }
}

/// A piece of a UDP datagram over IPv6, from the 8-byte unit `offset` on, behind an authentication header or not.
fn piece6(authenticated: bool, offset: u16, more: bool, bytes: &[u8]) -> Vec<u8> {
    let source = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    let mut ip = Ip6 { source, ..Ip6::new(Upper::Raw(17, bytes.to_vec())) };
    if authenticated {
        ip = ip.extension(Extension::Authentication(3));
    }
    ip.extension(Extension::Fragment(FragmentHeader { offset, more })).frame().bytes()
}

#[test]
fn pieces_behind_an_authentication_header_are_followed_like_others() {
    for authenticated in [false, true] {
        let mut site = Site::new("add-stateful in a accept", 1);
        let first = piece6(authenticated, 0, true, &[0x13, 0x88, 0, 53, 0, 40, 1, 2, 3, 3, 3, 3, 3, 3, 3, 3]);
        let overlap = |byte| piece6(authenticated, 1, true, &[byte; 16]);
        let last = piece6(authenticated, 4, false, &[5; 8]);
        let dropped = Verdict::Drop(DropReason::FragmentOverlap);
        let became = site.verdicts(&[first, overlap(6), overlap(7), last]);
        assert_eq!(became, [SENT, dropped, dropped, dropped], "{authenticated}");
    }
}

#[test]
fn a_stray_piece_behind_an_authentication_header_waits_in_vain() {
    for authenticated in [false, true] {
        let mut site = Site::new("add-stateful in a accept", 1);
        let became = site.verdicts(&[piece6(authenticated, 4, false, &[5; 8])]);
        assert!(matches!(became[..], [Verdict::Held(_)]), "{authenticated}: {became:?}");
        site.wait(20_000);
        assert_eq!(site.drops(), [(DropReason::FragmentEarly, 1)], "{authenticated}");
    }
}

/// RFC 8200 section 4.5: what the fragment header names is the first header behind it, here destination options, in all pieces.
#[test]
fn pieces_of_a_datagram_with_options_behind_the_fragment_header_are_translated_alike() {
    let mut site = Site::new("add-stateful in a ip-proto udp map ip6-saddr 2001:db8::99", 1);
    let source = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    let piece = |offset, more, bytes: &[u8]| {
        let ip = Ip6 { source, ..Ip6::new(Upper::Raw(60, bytes.to_vec())) };
        ip.extension(Extension::Fragment(FragmentHeader { offset, more })).frame().bytes()
    };
    let first = piece(0, true, &[17, 0, 1, 4, 0, 0, 0, 0, 0x13, 0x88, 0, 53, 0, 24, 1, 2]);
    let last = piece(2, false, &[5; 16]);
    for (verdict, bytes) in site.pass(&[first, last]) {
        assert_eq!(verdict, SENT);
        assert_eq!(bytes[14 + 8..][..16], Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x99).octets());
    }
}
