//! TCP ends of which only one still has the connection. The segments by which they find this out (RFC 9293 section 3.5.1, RFC 5961 section 4)
//! pass, and change nothing by themselves.

use crate::host::Middlebox;
use crate::tcp_ends::{A, ACK, B, CLIENT, FIN, RST, Read, SERVER, SYN, all, segment, sent};
use mmb_engine::{DropReason, Verdict};
use mmb_packet::PortId;
use std::net::Ipv4Addr;

const OUTSIDE: Ipv4Addr = Ipv4Addr::new(200, 0, 0, 1);

/// Policies under which invalid packets are dropped, and the address that the server sees.
const POLICIES: [(&str, Ipv4Addr); 10] = [
    ("set conn invalid drop\nadd-stateful in a accept\nadd in b drop", CLIENT.0),
    (
        "add prio 10 ct invalid drop\nadd-stateful in a ct new accept\nadd in b ct {established, related} accept\nadd prio 200 in b drop",
        CLIENT.0,
    ),
    // The output of `mmb import iptables` for a list with `! --syn`.
    (
        "add prio 10 ct invalid drop\nadd prio 20 ct established accept\nadd prio 30 tcp-syn 0 ct new drop\nadd-stateful prio 40 in a ct new accept\nadd prio 200 all drop",
        CLIENT.0,
    ),
    ("set conn invalid drop\nadd-stateful in a map ip-saddr 200.0.0.1 accept\nadd in b drop", OUTSIDE),
    ("set conn invalid drop\nadd-stateful in a shuffle tcp-seq-num map ip-saddr 200.0.0.1", OUTSIDE),
    ("set conn invalid drop\nadd-stateful tcp-dport 80 digest", CLIENT.0),
    ("set conn invalid drop\nadd-stateful tcp-dport 80 stream \"NEVER\" close", CLIENT.0),
    ("set conn invalid drop\nadd-stateful tcp-dport 80 stream \"ATTACK\" mod stream \"(longer)\"", CLIENT.0),
    (
        "set conn invalid drop\nadd-stateful tcp-dport 80 stream \"ATTACK\" mod stream \"x\" shuffle tcp-seq-num",
        CLIENT.0,
    ),
    ("set conn invalid drop\nadd-stateful tcp-dport 80 http add http-header \"X-By\" \"mmb\"", CLIENT.0),
];

/// A client and a server with a middlebox between them. Each end uses the sequence numbers that it receives.
struct Ends {
    mmb: Middlebox,
    outside: Ipv4Addr,
    policy: &'static str,
}

impl Ends {
    fn each() -> impl Iterator<Item = Ends> {
        POLICIES.into_iter().map(|(policy, outside)| Ends { mmb: Middlebox::new(policy), outside, policy })
    }

    /// Sends a segment of the client; returns the one that the server receives.
    #[track_caller]
    fn client(&mut self, flags: u8, seq: u32, ack: u32, payload: &[u8]) -> Read {
        let done = all(&mut self.mmb, A, &[segment(CLIENT, SERVER, flags, (seq, ack), payload)]);
        self.only(sent(&done, B), &done)
    }

    /// Sends a segment of the server; returns the one that the client receives.
    #[track_caller]
    fn server(&mut self, flags: u8, seq: u32, ack: u32, payload: &[u8]) -> Read {
        let done =
            all(&mut self.mmb, B, &[segment(SERVER, (self.outside, CLIENT.1), flags, (seq, ack), payload)]);
        self.only(sent(&done, A), &done)
    }

    #[track_caller]
    fn only(&self, mut sent: Vec<Read>, done: &[(Verdict, Vec<u8>)]) -> Read {
        assert_eq!(
            sent.len(),
            1,
            "{}: {:?}",
            self.policy,
            done.iter().map(|(verdict, _)| verdict).collect::<Vec<_>>()
        );
        sent.remove(0)
    }

    /// Opens a connection from the numbers of both ends. Returns the numbers that the client and the server expect, as these count.
    #[track_caller]
    fn open(&mut self, [first, answered]: [u32; 2]) -> [u32; 2] {
        let syn = self.client(SYN, first, 0, b"");
        let answer = self.server(SYN | ACK, answered, syn.seq.wrapping_add(1), b"");
        assert_eq!(answer.ack, first.wrapping_add(1));
        self.client(ACK, answer.ack, answer.seq.wrapping_add(1), b"");
        [answer.seq.wrapping_add(1), syn.seq.wrapping_add(1)]
    }

    /// The client sends a request and the server acknowledges it. Returns the next sequence number of the client, as the
    /// server and as the client count it.
    #[track_caller]
    fn request(&mut self, next: u32, expects: u32, answered: u32) -> [u32; 2] {
        let text = b"GET /ATTACK HTTP/1.1\r\nHost: a.example\r\n\r\n";
        let got = self.client(ACK, next, expects, text);
        let end = got.seq.wrapping_add(got.payload.len() as u32);
        let told = self.server(ACK, answered + 1, end, b"");
        assert_eq!(told.ack, next.wrapping_add(text.len() as u32), "{}", self.policy);
        [end, told.ack]
    }

    fn state(&mut self) -> (&'static str, u64) {
        let list = self.mmb.list();
        assert_eq!(list.len(), 1, "{}", self.policy);
        (list[0].state, list[0].idle_ms)
    }
}

/// RFC 9293 figure 9, and RFC 5961 section 4.2: the challenge, the RST that answers it, and the new connection.
#[test]
fn a_client_that_restarted_comes_back() {
    for idle_s in [1, 90, 3600] {
        for mut ends in Ends::each() {
            let policy = ends.policy;
            let [expects, _] = ends.open([1000, 5000]);
            let [end, next] = ends.request(1001, expects, 5000);
            ends.mmb.wait(idle_s);
            for _ in 0..3 {
                ends.client(SYN, 400_000_000, 0, b"");
                assert_eq!(ends.state(), ("established", idle_s * 1000), "{policy}: a SYN changes nothing");
            }
            let challenge = ends.server(ACK, 5001, end, b"");
            assert_eq!([challenge.seq, challenge.ack], [expects, next], "{policy}");
            assert_eq!(
                ends.client(RST, challenge.ack, 0, b"").seq,
                end,
                "{policy}: the only one that the server takes"
            );
            assert_eq!(ends.state().0, "reset", "{policy}");
            ends.mmb.wait(1);
            let [expects, _] = ends.open([400_000_000, 888]);
            ends.request(400_000_001, expects, 888);
            assert_eq!(ends.state().0, "established", "{policy}");
            assert_eq!(ends.mmb.engine.connections().summary().invalid, [], "{policy}");
        }
    }
}

#[test]
fn a_client_that_restarted_before_it_was_connected_comes_back() {
    for mut ends in Ends::each() {
        let policy = ends.policy;
        let first = ends.client(SYN, 1000, 0, b"");
        ends.server(SYN | ACK, 5000, first.seq + 1, b"");
        ends.client(SYN, 70_000, 0, b"");
        assert_eq!(ends.state().0, "syn-received", "{policy}");
        let challenge = ends.server(ACK, 5001, first.seq + 1, b"");
        assert_eq!(challenge.ack, 1001, "{policy}");
        assert_eq!(ends.client(RST, challenge.ack, 0, b"").seq, first.seq + 1, "{policy}");
        ends.mmb.wait(1);
        let [expects, _] = ends.open([70_000, 888]);
        ends.request(70_001, expects, 888);
    }
}

/// RFC 9293 sections 3.5.1 and 3.10.7.3: the middlebox, too, does not know of the server's connection. Filters that scrub SYN floods send such
/// an acknowledgement as well, some of them as a SYN-ACK.
#[test]
fn a_server_that_still_has_a_connection_tells_the_client() {
    for (flags, mut ends) in
        [ACK, SYN | ACK].into_iter().flat_map(|flags| Ends::each().map(move |ends| (flags, ends)))
    {
        let policy = ends.policy;
        ends.client(SYN, 1000, 0, b"");
        let challenge = ends.server(flags, 777_777, 3_000_000_000, b"");
        assert_eq!(ends.state().0, "syn-sent", "{policy}");
        assert_eq!(ends.client(RST, challenge.ack, 0, b"").seq, 3_000_000_000, "{policy}");
        assert_eq!(ends.state().0, "syn-sent", "{policy}");
        ends.mmb.wait(1);
        let [expects, _] = ends.open([1000, 5000]);
        ends.request(1001, expects, 5000);
        assert_eq!(ends.state().0, "established", "{policy}");
        assert_eq!(ends.mmb.engine.connections().summary().invalid, [], "{policy}");
    }
}

/// In syn-sent, a RST of the initiator is valid only with a number that the responder has acknowledged.
#[test]
fn only_the_answered_number_resets_an_unanswered_connection() {
    let mut mmb = Middlebox::new(POLICIES[0].0);
    let mut passes = |port: u16, flags, numbers| {
        let ends = if port == A { [CLIENT, SERVER] } else { [SERVER, CLIENT] };
        match all(&mut mmb, port, &[segment(ends[0], ends[1], flags, numbers, b"")])[0].0 {
            Verdict::Send(to) => to == PortId(1 - port),
            Verdict::Drop(reason) => {
                assert_eq!(reason, DropReason::ConnInvalid);
                false
            }
            other => panic!("{other:?}"),
        }
    };
    assert!(passes(A, SYN, (1000, 0)));
    assert!(!passes(A, RST, (77_777, 0)));
    assert!(passes(B, ACK, (9, 77_777)));
    assert!(!passes(A, RST, (77_778, 0)) && passes(A, RST, (77_777, 0)));
    assert!(!passes(B, FIN | ACK, (9, 77_777)), "Linux: sIV");
}

/// RFC 5961 section 4: an off-path sender knows addresses and ports, and no number.
#[test]
fn forged_handshakes_change_nothing_of_an_open_connection() {
    for mut ends in Ends::each() {
        let policy = ends.policy;
        let [expects, _] = ends.open([1000, 5000]);
        let [_, next] = ends.request(1001, expects, 5000);
        ends.mmb.wait(50);
        for number in [0x3000_0000, 0x8000_0000, 0xc000_0000, next] {
            let client = (ends.outside, CLIENT.1);
            all(&mut ends.mmb, A, &[segment(CLIENT, SERVER, SYN, (number, 0), b"")]);
            all(&mut ends.mmb, A, &[segment(CLIENT, SERVER, SYN, (number, 0), b"GET /forged")]);
            all(&mut ends.mmb, B, &[segment(SERVER, client, SYN, (number, 0), b"")]);
            if number != next {
                let after = number + 1;
                all(&mut ends.mmb, B, &[segment(SERVER, client, SYN | ACK, (number, after), b"")]);
                all(&mut ends.mmb, A, &[segment(CLIENT, SERVER, ACK, (after, after), b"")]);
                all(&mut ends.mmb, A, &[segment(CLIENT, SERVER, RST, (after, 0), b"")]);
            }
            assert_eq!(ends.state(), ("established", 50_000), "{policy}");
        }
        // Numbers, windows and streams are as before.
        let [_, next] = ends.request(next, expects, 5000);
        ends.request(next, expects, 5000);
    }
}

/// Both ends close; the client reuses its port before the middlebox has forgotten the connection. Linux's conntrack takes a SYN with any number.
#[test]
fn a_port_is_used_again_with_a_lower_number() {
    for mut ends in Ends::each() {
        let policy = ends.policy;
        for (first, answered) in [0x9000_0000, 0x4000_0000, 0xf000_0000, 0x1000].into_iter().zip(5000..) {
            let [expects, server_expects] = ends.open([first, answered]);
            let next = first.wrapping_add(1);
            ends.client(FIN | ACK, next, expects, b"");
            ends.server(FIN | ACK, answered + 1, server_expects.wrapping_add(1), b"");
            ends.client(ACK, next.wrapping_add(1), expects.wrapping_add(1), b"");
            assert_eq!(ends.state().0, "time-wait", "{policy}");
            ends.mmb.wait(30);
        }
        let [expects, _] = ends.open([0x800, 888]);
        ends.request(0x801, expects, 888);
        assert_eq!(ends.state().0, "established", "{policy}");
        assert_eq!(ends.mmb.engine.connections().summary().invalid, [], "{policy}");
    }
}

/// A SYN in time-wait is decided on as one without a connection.
#[test]
fn what_the_rules_do_not_admit_begins_nothing_in_time_wait() {
    for mut ends in Ends::each().take(4) {
        let [expects, server_expects] = ends.open([0x9000_0000, 5000]);
        ends.client(FIN | ACK, 0x9000_0001, expects, b"");
        ends.server(FIN | ACK, 5001, server_expects + 1, b"");
        ends.client(ACK, 0x9000_0002, expects + 1, b"");
        let client = (ends.outside, CLIENT.1);
        for number in [0, 6000, u32::MAX] {
            all(&mut ends.mmb, B, &[segment(SERVER, client, SYN, (number, 0), b"")]);
            let list = ends.mmb.list();
            assert!(list.iter().all(|info| info.state == "time-wait"), "{}: {list:?}", ends.policy);
        }
    }
}
