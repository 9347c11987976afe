//! Rules on HTTP that change while messages are under way.

use crate::http_site::{ACK, REQUEST, RESPONSE, SIZE, Site};
use mmb_engine::{DropReason, Verdict};
use mmb_language::parse_policy_with;
use mmb_policy::{PatternList, RuleId};

const FIN: u8 = 0x01;
const EDIT: &str = "add-stateful id 1 tcp-dport 80 http-body \"hello\" mod http-body \"hello hello\"";
const OTHER: &str = "add-stateful id 1 tcp-dport 80 http-body \"hello\" mod http-body \"goodbye\"";

/// A connection with a response of which the body is to come; the rest.
fn amid_response(policy: &str) -> (Site, &'static str) {
    let mut site = Site::new(policy);
    site.send(0, REQUEST, SIZE);
    let (head, body) = RESPONSE.split_at(RESPONSE.len() - 20);
    site.send(1, head, SIZE);
    (site, body)
}

fn lost(site: &Site) -> u64 {
    let counts = site.mmb.engine.not_applied();
    counts.iter().find(|(why, _)| why.name() == "http-rules-changed").map_or(0, |(_, count)| *count)
}

/// A response in chunks, whole.
fn assert_whole(response: &str) {
    assert!(response.contains("chunked") && response.ends_with("\r\n0\r\n\r\n"), "{response}");
}

#[test]
fn a_message_ends_with_the_rules_that_it_began_with() {
    let (mut site, body) = amid_response(EDIT);
    site.publish(OTHER);
    site.send(1, body, SIZE);
    site.later(200);
    let response = site.text(0);
    assert_whole(&response);
    assert!(response.contains("<body>hello hello </body>"), "{response}");
    // The next one has those of the policy.
    site.send(0, REQUEST, SIZE);
    site.send(1, RESPONSE, SIZE);
    site.later(200);
    let next = site.text(0).split_off(response.len());
    assert!(next.contains("<body>goodbye </body>"), "{next}");
    assert_eq!((site.resets, lost(&site)), (0, 0));
}

#[test]
fn so_it_does_when_a_list_changes() {
    let text = "patterns words FILE\nadd-stateful id 1 tcp-dport 80 http-body @words mod http-body \"X\"";
    let policy = |word: &str| {
        let list = || PatternList::new("FILE".to_owned(), vec![word.as_bytes().to_vec()]);
        let (policy, _) = parse_policy_with(text, &|_: &str| Ok(list())).expect("a policy");
        policy
    };
    let (mut site, body) = amid_response(EDIT);
    site.mmb.engine.publish(&policy("hello")).expect("a policy");
    site.send(1, body, SIZE);
    site.send(0, REQUEST, SIZE);
    let (head, body) = RESPONSE.split_at(RESPONSE.len() - 20);
    site.send(1, head, SIZE);
    site.mmb.engine.publish(&policy("body")).expect("a policy");
    site.send(1, body, SIZE);
    site.later(200);
    let response = site.text(0);
    assert!(response.contains("<body>X </body>"), "{response}");
    site.send(0, REQUEST, SIZE);
    site.send(1, RESPONSE, SIZE);
    site.later(200);
    assert!(site.text(0).contains("<X>hello </X>"), "{}", site.text(0));
}

#[test]
fn requests_wait_for_the_messages_before_the_change() {
    let (mut site, body) = amid_response(EDIT);
    site.publish("add-stateful id 1 tcp-dport 80 http add http-header \"X-By\" \"mmb\"");
    let asked = site.text(1).len();
    site.send(0, REQUEST, SIZE);
    assert_eq!(site.text(1).len(), asked, "it waits");
    site.send(1, body, SIZE);
    site.later(200);
    assert_whole(&site.text(0));
    assert!(site.text(1)[asked..].ends_with("X-By: mmb\r\n\r\n"), "{}", site.text(1));
    site.send(1, RESPONSE, SIZE);
    assert!(site.text(0).contains("X-By: mmb"), "{}", site.text(0));
    assert_eq!(site.resets, 0);
}

#[test]
fn a_client_that_ends_its_side_does_not_wait() {
    let (mut site, body) = amid_response(EDIT);
    site.publish(OTHER);
    site.send(0, REQUEST, SIZE);
    site.segment(0, FIN | ACK, b"");
    assert_eq!(site.text(1).matches("GET /page").count(), 2);
    site.send(1, &format!("{body}{RESPONSE}"), SIZE);
    site.later(200);
    assert_eq!(site.text(0).matches("hello hello").count(), 2, "{}", site.text(0));
    assert_eq!(site.resets, 0);
}

#[test]
fn a_deleted_rule_stops_at_once_and_leaves_whole_messages() {
    let both = format!("{EDIT}\nadd-stateful id 2 tcp-dport 80 http-status 200 add http-body \"tail\"");
    for (left, policy) in
        [("tail", both.lines().last().unwrap_or_default()), ("", "add-stateful id 9 udp-dport 1 accept")]
    {
        let (mut site, body) = amid_response(&both);
        site.publish(policy);
        site.send(1, body, SIZE);
        site.later(200);
        let response = site.text(0);
        assert_whole(&response);
        assert!(!response.contains("hello hello") && response.contains("hello"), "{response}");
        assert_eq!(response.contains("tail"), !left.is_empty(), "{response}");
    }
}

#[test]
fn a_rule_that_ended_connections_still_ends_what_had_begun() {
    let (mut site, body) = amid_response("add-stateful id 1 tcp-dport 80 http-body \"hello\" close");
    site.publish(OTHER);
    site.send(1, body, SIZE);
    assert!(site.resets >= 2);
}

/// What ends a connection is the rule with which the message began, not the one in its place.
#[test]
fn a_rule_that_was_replaced_ends_a_connection_as_it_did() {
    let rule = |target: &str| format!("add-stateful id 1 tcp-dport 80 http-body \"hello\" {target}");
    for (before, after, closes) in [("close", "drop", true), ("drop", "close", false)] {
        let (mut site, body) = amid_response(&rule(before));
        site.publish(&rule(after));
        site.send(1, body, SIZE);
        assert_eq!(site.resets >= 2, closes, "{before}: {} RSTs", site.resets);
        assert!(!site.text(0).contains("hello"));
        site.segment(1, ACK, b"more");
        assert_eq!(site.last, Some(Verdict::Drop(DropReason::Rule)));
    }
}

#[test]
fn a_deleted_rule_ends_nothing() {
    let other = "add-stateful id 2 tcp-dport 80 http-body \"none\" close";
    let (mut site, body) =
        amid_response(&format!("add-stateful id 1 tcp-dport 80 http-body \"hello\" close\n{other}"));
    site.publish(other);
    site.send(1, body, SIZE);
    assert_eq!(site.resets, 0);
    assert!(site.text(0).contains("hello"));
    // A rule under the same number is another one.
    site.publish(&format!("{EDIT}\n{other}"));
    assert_eq!(site.mmb.engine.rule_count(RuleId(1)).hits, 0);
}

/// The rules before so many changes are kept; what has still older ones passes, and is counted.
#[test]
fn many_changes_are_counted_where_they_leave_a_message_without_rules() {
    let change = |number: usize| EDIT.replace("hello hello", &number.to_string());
    for (changes, is_lost) in [(4, false), (5, true)] {
        let (mut site, body) = amid_response(EDIT);
        for number in 0..changes {
            site.publish(&change(number));
            // Another connection has each.
            site.ask_beside(5001 + number as u16);
        }
        site.send(1, body, SIZE);
        site.later(200);
        assert_whole(&site.text(0));
        assert_eq!(site.text(0).contains("hello hello"), !is_lost, "{}", site.text(0));
        assert_eq!(lost(&site), u64::from(is_lost));
    }
}
