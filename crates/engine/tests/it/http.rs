//! Rules on HTTP from outside: what each end gets of the other one's messages.

use crate::http_site::{ACK, FIN, REQUEST, RESPONSE, SIZE, Site};
use mmb_engine::{DropReason, StreamEventKind, Verdict, WatchedEvent};
use mmb_http::HttpUnfit;
use mmb_policy::RuleId;
use mmb_rewrite::NotApplied;

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
    let changed = crate::host::policy(&format!("set http encodings pass\n{rule}"));
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
    site.mmb.engine.publish(&crate::host::policy("add-stateful tcp-dport 80 accept")).expect("a policy");
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
    site.mmb.engine.publish(&crate::host::policy("add-stateful id 2 tcp-dport 80 accept")).expect("a policy");
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
    site.mmb
        .engine
        .publish(&crate::host::policy(&format!("{rule}\nadd id 9 udp-dport 53 drop")))
        .expect("a policy");
    site.send(1, body, SIZE);
    site.later(200);
    assert!(site.text(0).contains("hello hello"), "{}", site.text(0));
}

/// Clients that send all that they ask, and their FIN with it: fewer requests than are kept account of have all their responses.
#[test]
fn a_client_that_asks_all_at_once_and_ends_its_side_is_answered() {
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let response = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    let rule = "add-stateful tcp-dport 80 http-body \"hello\" mod http-body \"goodbye\"";
    for (asked, apart) in [(1, false), (10, false), (60, true), (60, false)] {
        let mut site = Site::new(rule);
        if apart {
            site.send(0, &request.repeat(asked), SIZE);
            site.segment(0, 0x01 | ACK, b"");
        } else {
            let all = request.repeat(asked);
            let (begin, last) = all.split_at(all.len() - 20);
            site.send(0, begin, SIZE);
            site.segment(0, 0x01 | ACK, last.as_bytes());
        }
        site.next[0] += 1;
        // Each acknowledgment lets some more go.
        (0..40).for_each(|_| site.segment(1, ACK, b""));
        assert_eq!(site.text(1).matches("GET / HTTP/1.1").count(), asked);
        for _ in 0..asked {
            site.send(1, response, SIZE);
        }
        site.later(200);
        (0..40).for_each(|_| site.segment(0, ACK, b""));
        assert_eq!(site.text(0).matches("goodbye").count(), asked, "{}", site.text(0));
        assert_eq!(site.resets, 0);
    }
}

/// What waits for the rest of a head is looked at when bytes come or when its time is over, and what waits for responses only by these.
#[test]
fn what_waits_is_not_asked_about_again_and_again() {
    let rule = "set stream hold 10\nadd-stateful tcp-dport 80 http add http-header \"X-By\" \"mmb\"";
    let mut site = Site::new(rule);
    site.segment(0, ACK, b"GET / HT");
    assert_eq!(site.due_ms(), Some(site.mmb.now_ms + 5000));
    site.later(3000);
    // Bytes that do not decide it give it no more time.
    site.segment(0, ACK, b"TP/1.1\r\n");
    assert_eq!(site.due_ms(), Some(site.mmb.now_ms + 2000));
    site.later(1999);
    assert_eq!(site.resets, 0);
    site.later(1);
    assert!(site.resets >= 2);
    let mut site = Site::new(rule);
    site.send(0, &"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(65), SIZE);
    assert_eq!((site.due_ms(), site.text(1).matches("GET").count()), (None, 64));
    site.later(60_000);
    site.send(1, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", SIZE);
    site.later(0);
    assert_eq!((site.resets, site.text(1).matches("GET").count()), (0, 65));
}

#[test]
fn a_body_that_begins_a_match_for_too_long_passes_or_is_closed() {
    let rule = "add-stateful tcp-dport 80 http-body \"ATTACK\" strip http-body";
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
    for (policy, is_closed) in
        [(rule.to_owned(), false), (format!("set stream hold-over close\n{rule}"), true)]
    {
        let mut site = Site::new(&policy);
        site.send(0, REQUEST, SIZE);
        site.send(1, &format!("{head}an ATT"), SIZE);
        assert!(!site.text(0).contains("ATT"), "{}", site.text(0));
        site.later(110);
        assert_eq!((site.text(0).contains("ATT"), site.resets >= 2), (!is_closed, is_closed));
        let passed = vec![(NotApplied::StreamHoldOver, 1)];
        assert_eq!(site.mmb.engine.not_applied(), if is_closed { vec![] } else { passed });
        site.segment(1, ACK, b"ACK");
        assert_eq!(site.last == Some(Verdict::Drop(DropReason::StreamHeld)), is_closed, "{:?}", site.last);
    }
}

/// It is no beginning of a match, and its sender may pause.
#[test]
fn a_last_byte_for_what_is_added_closes_nothing() {
    let mut site = Site::new(
        "set stream hold-over close\nadd-stateful tcp-dport 80 http-status 200 add http-body \"tail\"",
    );
    site.send(0, "GET / HTTP/1.0\r\nHost: a\r\n\r\n", SIZE);
    site.send(1, "HTTP/1.0 200 OK\r\n\r\nabc", SIZE);
    assert!(site.text(0).ends_with("\r\nab"), "{}", site.text(0));
    site.later(110);
    assert!(site.text(0).ends_with("\r\nabc"), "{}", site.text(0));
    assert_eq!(site.resets, 0);
}

/// Time decides about one direction, and so about the other one.
#[test]
fn what_waits_for_the_other_direction_goes_on_when_that_is_given_up() {
    let rule = "set http unfit pass\nadd-stateful tcp-dport 80 http add http-header \"X-By\" \"mmb\"";
    let mut site = Site::new(rule);
    site.send(0, "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\nbehind it", SIZE);
    assert!(!site.text(1).contains("behind it"), "it waits for the response");
    site.send(1, "HTTP/1.1 2", SIZE);
    assert_eq!(site.text(0), "");
    for _ in 0..51 {
        site.later(100);
    }
    assert_eq!((site.text(0).as_str(), site.resets), ("HTTP/1.1 2", 0));
    assert!(site.text(1).ends_with("behind it"), "{}", site.text(1));
}

/// Whatever it does not understand, or cannot hold.
#[test]
fn a_rule_that_only_looks_ends_no_connection() {
    let rule = "add-stateful tcp-dport 80 http-body \"VIRUS\" alert";
    let unfit = |site: &Site| {
        let counts = site.mmb.engine.not_applied();
        counts.into_iter().find(|(why, _)| *why == NotApplied::HttpUnfit).map_or(0, |(_, count)| count)
    };
    let mut site = Site::new(rule);
    site.send(0, "SSH-2.0-x\r\n", SIZE);
    site.send(1, "SSH-2.0-y\r\n", SIZE);
    assert_eq!((site.text(1).as_str(), site.text(0).as_str()), ("SSH-2.0-x\r\n", "SSH-2.0-y\r\n"));
    assert_eq!((site.resets, unfit(&site)), (0, 1));
    // The sender ends within a head.
    let mut site = Site::new(rule);
    site.segment(0, ACK | FIN, b"GET / HT");
    assert_eq!((site.text(1).as_str(), site.resets, unfit(&site)), ("GET / HT", 0, 1));
    // A head that is too slow.
    let mut site = Site::new(rule);
    site.segment(0, ACK, b"GET / HT");
    (0..60).for_each(|_| site.later(100));
    assert_eq!((site.text(1).as_str(), site.resets, unfit(&site)), ("GET / HT", 0, 1));
    // More behind a CONNECT than is held.
    let mut site = Site::new(rule);
    site.send(0, "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", SIZE);
    let many = "x".repeat(90 << 10);
    site.send(0, &many, SIZE);
    assert_eq!((site.resets, unfit(&site)), (0, 1));
    assert!(site.text(1).ends_with(&many), "{} bytes", site.text(1).len());
}

/// An HTTP server for microcontrollers fills up the size of a chunk with blanks.
#[test]
fn blanks_behind_sizes_of_chunks_end_no_connection() {
    let response = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n1b  \r\n<html><body>x</body></html>\r\n0  \r\n\r\n";
    for (rule, body) in [
        ("http-uri \"/admin\" alert", "\r\n1b  \r\n<html><body>x</body></html>\r\n0  \r\n\r\n"),
        ("http-body \"VIRUS\" close", "\r\n1b  \r\n<html><body>x</body></html>\r\n0  \r\n\r\n"),
        ("http add http-header \"X-By\" \"mmb\"", "\r\n1b\r\n<html><body>x</body></html>\r\n0\r\n\r\n"),
        ("http-body \"x</\" mod http-body \"!\\m\"", "\r\n1c\r\n<html><body>!x</body></html>\r\n0\r\n\r\n"),
    ] {
        let mut site = Site::new(&format!("add-stateful tcp-dport 80 {rule}"));
        site.send(0, REQUEST, SIZE);
        site.send(1, response, SIZE);
        assert!(site.text(0).ends_with(body), "{rule}: {}", site.text(0));
        assert_eq!((site.resets, site.mmb.engine.not_applied()), (0, vec![]), "{rule}");
    }
}
