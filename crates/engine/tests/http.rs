//! Rules on HTTP from outside: what each end gets of the other one's messages.

mod host;

use host::{Middlebox, pass_among};
use mmb_engine::{DropReason, NoCycles, StreamEventKind, Verdict, WatchedEvent};
use mmb_http::HttpUnfit;
use mmb_packet::PortId;
use mmb_policy::RuleId;
use mmb_testkit::{Ip4, Tcp, Upper};
use std::net::Ipv4Addr;

type End = (Ipv4Addr, u16);

const ENDS: [End; 2] = [(Ipv4Addr::new(10, 0, 0, 1), 5000), (Ipv4Addr::new(192, 0, 2, 80), 80)];
/// Bytes of a segment: the port has an MTU of 100.
const SIZE: usize = 50;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// A connection whose ends acknowledge all that they get.
struct Site {
    mmb: Middlebox,
    /// The next number that each end sends, and what it has got of the other one.
    next: [u32; 2],
    got: [Vec<u8>; 2],
    first: [u32; 2],
    resets: usize,
    last: Option<Verdict>,
}

impl Site {
    fn new(policy: &str) -> Site {
        let mmb = Middlebox::new(policy);
        let mut site = Site {
            mmb,
            next: [100, 200],
            got: [Vec::new(), Vec::new()],
            first: [101, 201],
            resets: 0,
            last: None,
        };
        site.segment(0, SYN, b"");
        site.next[0] += 1;
        site.segment(1, SYN | ACK, b"");
        site.next[1] += 1;
        site.segment(0, ACK, b"");
        site
    }

    fn segment(&mut self, end: usize, flags: u8, payload: &[u8]) {
        let [source, destination] = [ENDS[end], ENDS[1 - end]];
        let ack = self.first[1 - end].wrapping_add(self.got[end].len() as u32);
        let tcp = Tcp {
            sport: source.1,
            dport: destination.1,
            flags,
            seq: self.next[end],
            ack: if flags & ACK == 0 { 0 } else { ack },
            payload: payload.to_vec(),
            ..Tcp::default()
        };
        let frame = Ip4 { source: source.0, destination: destination.0, ..Ip4::new(Upper::Tcp(tcp)) }.frame();
        let worker = std::slice::from_mut(&mut self.mmb.worker);
        let done = pass_among(worker, (0, self.mmb.now_ms), end as u16, &[frame.bytes()]);
        self.last = done.first().map(|(verdict, _)| *verdict);
        self.next[end] = self.next[end].wrapping_add(payload.len() as u32);
        self.take(&done);
    }

    /// Delivers what the middlebox has sent, in order.
    fn take(&mut self, done: &[(Verdict, Vec<u8>)]) {
        for (verdict, frame) in done {
            let Verdict::Send(PortId(port)) = verdict else { continue };
            let end = usize::from(*port);
            let long =
                |at: usize| u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
            self.resets += usize::from(frame[47] & RST != 0);
            let total = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
            let payload = &frame[34 + usize::from(frame[46] >> 4) * 4..total];
            let offset = long(38).wrapping_sub(self.first[1 - end]) as usize;
            if !payload.is_empty() && offset <= self.got[end].len() {
                let new = self.got[end].len() - offset;
                self.got[end].extend_from_slice(payload.get(new..).unwrap_or_default());
            }
        }
    }

    /// An end sends bytes, in segments of this size; the other one acknowledges each.
    fn send(&mut self, end: usize, bytes: &str, size: usize) {
        for piece in bytes.as_bytes().chunks(size) {
            self.segment(end, ACK, piece);
            self.segment(1 - end, ACK, b"");
        }
    }

    fn later(&mut self, ms: u64) {
        self.mmb.now_ms += ms;
        self.mmb.worker.process(self.mmb.now_ms * 1_000_000, &NoCycles, &mut [], &mut []);
        let worker = std::slice::from_mut(&mut self.mmb.worker);
        let done = pass_among(worker, (0, self.mmb.now_ms), 0, &[]);
        self.take(&done);
    }

    /// What an end has got since the last call.
    fn text(&mut self, end: usize) -> String {
        String::from_utf8_lossy(&self.got[end]).into_owned()
    }
}

const REQUEST: &str =
    "GET /page HTTP/1.1\r\nHost: www.example.org\r\nAccept-Encoding: gzip\r\nCookie: a=b\r\n\r\n";
const RESPONSE: &str = "HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Length: 20\r\n\r\n<body>hello </body>\n";

#[test]
fn headers_are_changed() {
    for size in [1, 7, SIZE] {
        let mut site = Site::new(
            "add-stateful tcp-dport 80 http-header \"Server\" mod http-header \"Server\" \"mmb\"\n\
             add-stateful tcp-dport 80 http strip http-header \"Cookie\" add http-header \"X-By\" \"mmb\"",
        );
        site.send(0, REQUEST, size);
        let request = site.text(1);
        assert!(!request.contains("Cookie"), "{request}");
        assert!(
            request.starts_with("GET /page HTTP/1.1\r\n") && request.ends_with("X-By: mmb\r\n\r\n"),
            "{request}"
        );
        site.send(1, RESPONSE, size);
        let response = site.text(0);
        assert!(
            response.contains("\r\nServer: mmb\r\n") && response.contains("\r\nX-By: mmb\r\n"),
            "{response}"
        );
        assert!(response.ends_with("\r\n\r\n<body>hello </body>\n"), "{response}");
    }
}

#[test]
fn a_body_grows_in_chunks() {
    let mut site =
        Site::new("add-stateful tcp-dport 80 http-body \"</body>\" mod http-body \"<p>hi</p>\\m\"");
    site.send(0, REQUEST, SIZE);
    assert!(!site.text(1).contains("Accept-Encoding"), "{}", site.text(1));
    site.send(1, RESPONSE, SIZE);
    site.later(200);
    let response = site.text(0);
    assert!(
        response.contains("Transfer-Encoding: chunked") && !response.contains("Content-Length"),
        "{response}"
    );
    assert!(response.contains("<p>hi</p></body>") && response.ends_with("0\r\n\r\n"), "{response}");
    assert_eq!(site.mmb.engine.rule_count(RuleId(1)).hits, 1);
    // The next exchange of the connection.
    site.send(0, REQUEST, SIZE);
    site.send(1, RESPONSE, SIZE);
    assert_eq!(site.text(0).matches("<p>hi</p></body>").count(), 2);
}

#[test]
fn other_hosts_are_closed() {
    let policy = "add-stateful tcp-dport 80 ! http-host {\"www.example.org\", \"b.org\"} close";
    let mut site = Site::new(policy);
    site.send(0, REQUEST, SIZE);
    assert_eq!((site.text(1).as_str(), site.resets), (REQUEST, 0));
    let mut site = Site::new(policy);
    site.send(0, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", SIZE);
    assert_eq!(site.text(1), "");
    assert!(site.resets >= 2);
    assert_eq!(site.mmb.engine.rule_count(RuleId(1)).hits, 1);
}

#[test]
fn what_is_ambiguous_is_closed_or_passes() {
    let smuggled =
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let rule = "add-stateful tcp-dport 80 http add http-header \"X-By\" \"mmb\"";
    let mut site = Site::new(rule);
    site.segment(0, ACK, smuggled.as_bytes());
    assert_eq!(site.last, Some(Verdict::Drop(DropReason::HttpUnfit)));
    assert_eq!(site.text(1), "");
    assert!(site.resets >= 2);
    let mut site = Site::new(&format!("set http unfit pass\n{rule}"));
    site.send(0, smuggled, SIZE);
    assert_eq!((site.text(1).as_str(), site.resets), (smuggled, 0));
    assert!(site.mmb.engine.not_applied().iter().any(|(why, _)| why.name() == "http-unfit"));
}

#[test]
fn a_slow_head_has_its_time() {
    let mut site = Site::new("add-stateful tcp-dport 80 http add http-header \"X-By\" \"mmb\"");
    site.segment(0, ACK, b"GET / HT");
    for _ in 0..40 {
        site.later(100);
    }
    assert_eq!((site.text(1).as_str(), site.resets), ("", 0));
    for _ in 0..15 {
        site.later(100);
    }
    assert!(site.resets >= 2, "five seconds are over");
}

#[test]
fn a_head_beyond_its_limit_is_closed_at_once() {
    let rule = "set http head 4\nadd-stateful tcp-dport 80 http add http-header \"X-By\" \"mmb\"";
    let begins =
        ["GET / HTTP/1.1\r\nHost: a\r\nX-Long: ", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Long: "];
    for (end, begin) in begins.into_iter().enumerate() {
        let mut site = Site::new(rule);
        if end == 1 {
            site.send(0, REQUEST, SIZE);
        }
        let before = site.text(1 - end);
        let filler = "x".repeat(4096 - begin.len() - 1);
        site.send(end, &format!("{begin}{filler}"), SIZE);
        assert_eq!((site.text(1 - end), site.resets), (before.clone(), 0), "one byte is left");
        // No time has passed.
        site.segment(end, ACK, b"x");
        assert_eq!(site.last, Some(Verdict::Drop(DropReason::HttpUnfit)));
        assert!(site.resets >= 2);
        assert_eq!(site.text(1 - end), before, "nothing of it has left");
    }
}

#[test]
fn a_head_of_the_limit_passes() {
    let mut site =
        Site::new("set http head 4\nadd-stateful tcp-dport 80 http add http-header \"X-By\" \"mmb\"");
    let begin = "GET / HTTP/1.1\r\nHost: a\r\nX-Long: ";
    let head = format!("{begin}{}\r\n\r\n", "x".repeat(4096 - begin.len() - 4));
    site.send(0, &head, SIZE);
    assert_eq!(site.resets, 0);
    assert!(site.text(1).ends_with("X-By: mmb\r\n\r\n") && site.text(1).len() == 4096 + 11);
}

#[test]
fn messages_that_are_not_read_are_told_with_the_reason() {
    let rule = "add-stateful tcp-dport 80 http add http-header \"X-By\" \"mmb\"";
    let told = |policy: &str, steps: &dyn Fn(&mut Site)| {
        let mut site = Site::new(policy);
        let events = site.mmb.ask(|connections| connections.watch().expect("the worker answers"));
        steps(&mut site);
        let stream = |event| if let WatchedEvent::Stream(event) = event { Some(event) } else { None };
        let events: Vec<_> = events.try_iter().filter_map(stream).collect();
        let [event] = &events[..] else { panic!("{events:?}") };
        assert_eq!(event.rule, None);
        (event.kind.clone(), event.is_reply, event.offset)
    };
    let bad = "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n";
    let unfit = |reason, passes| StreamEventKind::HttpUnfit { reason, passes };
    let closed = told(rule, &|site| site.segment(0, ACK, bad.as_bytes()));
    assert_eq!(closed, (unfit(HttpUnfit::BareLf, false), false, bad.len() as u64));
    let passed = told(&format!("set http unfit pass\n{rule}"), &|site| {
        site.send(0, REQUEST, SIZE);
        site.send(1, "HTTP/3 200\r\n\r\n", SIZE);
    });
    assert_eq!(passed, (unfit(HttpUnfit::Version, true), true, 14));
    // Time decides as well.
    let slow = told(rule, &|site| {
        site.segment(0, ACK, b"GET / HT");
        (0..60).for_each(|_| site.later(100));
    });
    assert_eq!(slow, (unfit(HttpUnfit::SlowHead, false), false, 8));
    // So does the sender that ends.
    let ended = told(rule, &|site| site.segment(0, ACK | FIN, b"GET / HT"));
    assert_eq!(ended, (unfit(HttpUnfit::UnfinishedHead, false), false, 8));
}

#[test]
fn settings_come_into_force_without_other_rules() {
    let rule = "add-stateful tcp-dport 80 http-body \"hello\" mod http-body \"bye\"";
    let mut site = Site::new(rule);
    let changed = host::policy(&format!("set http encodings pass\n{rule}"));
    site.mmb.engine.publish(&changed).expect("a policy");
    site.send(0, REQUEST, SIZE);
    assert!(site.text(1).contains("Accept-Encoding"), "{}", site.text(1));
}

#[test]
fn a_removed_rule_leaves_whole_messages() {
    let mut site = Site::new("add-stateful tcp-dport 80 http-body \"x\" mod http-body \"yyy\"");
    site.send(0, REQUEST, SIZE);
    let (head, body) = RESPONSE.split_at(RESPONSE.len() - 10);
    site.send(1, head, SIZE);
    site.mmb.engine.publish(&host::policy("add-stateful tcp-dport 80 accept")).expect("a policy");
    site.send(1, body, SIZE);
    site.later(200);
    let response = site.text(0);
    if response.contains("chunked") {
        assert!(response.ends_with("\r\n0\r\n\r\n"), "{response}");
    }
}

#[test]
fn what_waits_for_responses_does_not_pass_by_a_fin() {
    let connect = "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n";
    for before in ["GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(64), connect.to_owned()] {
        let mut site = Site::new("add-stateful tcp-dport 80 http-uri \"/admin\" close");
        site.send(0, &before, SIZE);
        site.send(0, "GET /admin HTTP/1.1\r\nHost: a\r\n\r\n", SIZE);
        site.segment(0, 0x01 | ACK, b"");
        site.later(200);
        assert!(!site.text(1).contains("/admin"), "{}", site.text(1));
        assert!(site.resets >= 2);
    }
}

#[test]
fn a_full_head_has_room_for_the_framing() {
    let mut site = Site::new(
        "add-stateful tcp-dport 80 http-body \"bad\" mod http-body \"worse\"\n\
         add-stateful tcp-dport 80 http mod http-header \"X\" \"\\m\\m\\m\\m\\m\\m\\m\\m\\m\\m\\m\\m\"",
    );
    let lines = format!("X: {}\r\n", "y".repeat(60)).repeat(126);
    site.send(
        0,
        &format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}Content-Length: 11\r\n\r\nbad is what"),
        SIZE,
    );
    // Each acknowledgment lets some more of the packets go that this makes.
    (0..40).for_each(|_| site.segment(1, ACK, b""));
    let text = site.text(1);
    assert!(
        text.ends_with("\r\nTransfer-Encoding: chunked\r\n\r\nd\r\nworse is what\r\n0\r\n\r\n"),
        "{text}"
    );
    assert!(!text.contains("Content-Length"));
}

#[test]
fn any_length_may_be_announced() {
    for length in [u64::MAX, u64::MAX - 15, 1 << 63] {
        let mut site = Site::new("add-stateful tcp-dport 80 http-body \"bad\" mod http-body \"worse\"");
        let request = format!("POST / HTTP/1.0\r\nHost: a\r\nContent-Length: {length}\r\n\r\nbad");
        site.send(0, &request, SIZE);
        site.later(6000);
        assert_eq!(site.text(1), request);
    }
}

/// What a rule on HTTP does, ends with its policy, and what is about another rule leaves it alone.
#[test]
fn rules_end_with_their_policy() {
    let mut site = Site::new("add-stateful id 2 tcp-dport 80 http-host \"a.org\" close");
    site.send(0, REQUEST, SIZE);
    site.send(1, RESPONSE, SIZE);
    site.mmb.engine.publish(&host::policy("add-stateful id 2 tcp-dport 80 accept")).expect("a policy");
    site.send(0, "GET / HTTP/1.1\r\nHost: a.org\r\n\r\n", SIZE);
    assert!(site.text(1).ends_with("Host: a.org\r\n\r\n"), "{}", site.text(1));
    assert_eq!(site.resets, 0);
}

#[test]
fn other_rules_that_change_leave_a_body_alone() {
    let rule = "add-stateful id 1 tcp-dport 80 http-body \"hello\" mod http-body \"hello hello\"";
    let mut site = Site::new(rule);
    site.send(0, REQUEST, SIZE);
    let (head, body) = RESPONSE.split_at(RESPONSE.len() - 20);
    site.send(1, head, SIZE);
    site.mmb.engine.publish(&host::policy(&format!("{rule}\nadd id 9 udp-dport 53 drop"))).expect("a policy");
    site.send(1, body, SIZE);
    site.later(200);
    assert!(site.text(0).contains("hello hello"), "{}", site.text(0));
}
