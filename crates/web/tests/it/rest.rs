//! The REST API before a real engine.

use crate::common::{start, start_with};
use mmb_testkit::{Frame, Udp};
use mmb_web::WebOptions;
use serde_json::{Value, json};
use std::time::Duration;

const POLICY: &str = "\
add id 1 prio 10 name dns udp-dport 53 accept
add id 2 prio 20 ip-proto udp drop
add-stateful id 7 ip-proto tcp accept
";

fn datagram(dport: u16) -> Frame {
    Udp { dport, ..Udp::default() }.over_ip4()
}

#[test]
fn counters_ports_and_drops_are_those_of_the_daemon() {
    let mmb = start(POLICY);
    mmb.feed(&[datagram(53), datagram(54), datagram(55)]);
    let state = mmb.json("/api/v1/state");
    assert_eq!(state["ports"][0]["name"], "lan");
    assert_eq!(state["ports"][0]["rx"]["packets"], 3);
    assert_eq!(state["ports"][1]["tx"]["packets"], 1);
    assert_eq!(state["connections"]["connections"], 0);
    assert_eq!(state["workers"][0]["core"], 1);
    let [drop] = &state["drops"].as_array().expect("an array")[..] else { panic!("{state}") };
    assert_eq!((&drop["reason"], &drop["count"]), (&json!("rule"), &json!(2)));
    assert_eq!(drop["meaning"], "a rule drops the packet");
    assert_eq!(drop["remedy"], "`mmb list` shows which");
    assert_eq!(mmb.json("/api/v1/drops"), state["drops"]);
    assert_eq!(mmb.json("/api/v1/ports"), state["ports"]);
    assert_eq!(mmb.json("/api/v1/workers"), state["workers"]);
    let settings = mmb.json("/api/v1/settings");
    assert!(
        settings.as_array().is_some_and(|all| all.iter().any(|one| one["name"] == "conn max")),
        "{settings}"
    );
    assert_eq!(mmb.send("POST", "/api/v1/counters/clear", &Value::Null).status, 204);
    assert_eq!(mmb.json("/api/v1/ports")[0]["rx"]["packets"], 0);
}

#[test]
fn rules_are_searched_sorted_and_paged() {
    let mut text = String::from(POLICY);
    for port in 1..=2_000 {
        text += &format!("add id {} tcp-dport {port} accept\n", 100 + port);
    }
    let mmb = start(&text);
    mmb.feed(&[datagram(54), datagram(53), datagram(54)]);
    let page = mmb.json("/api/v1/rules?sort=packets&limit=2");
    assert_eq!((&page["total"], &page["matched"]), (&json!(2003), &json!(2003)));
    assert_eq!(page["rules"].as_array().map(Vec::len), Some(2));
    assert_eq!((&page["rules"][0]["id"], &page["rules"][0]["packets"]), (&json!(2), &json!(3)));
    assert_eq!(page["rules"][1]["id"], 1);
    let page = mmb.json("/api/v1/rules?q=tcp-dport+19&offset=100&limit=1000");
    assert_eq!(page["matched"], 139, "19, 119, 190 to 199, 1900 to 1999 and so on");
    let page = mmb.json("/api/v1/rules?field=udp-dport");
    assert_eq!((&page["matched"], &page["rules"][0]["id"]), (&json!(1), &json!(1)));
    assert_eq!(mmb.json("/api/v1/rules/7")["rule"], "add-stateful ip-proto tcp accept");
    assert_eq!(mmb.get("/api/v1/rules/8").status, 404);
    for wrong in ["?limit=x", "?sort=colour", "?unknown=1"] {
        let reply = mmb.get(&format!("/api/v1/rules{wrong}"));
        assert_eq!(reply.status, 400, "{wrong}");
        assert_eq!(reply.headers["content-type"], "application/problem+json");
        assert_eq!(reply.json()["title"], "Bad Request");
    }
}

#[test]
fn a_policy_is_read_checked_tried_and_applied() {
    let mmb = start(POLICY);
    let reply = mmb.get("/api/v1/policy");
    assert!(reply.body.contains("name dns udp-dport 53 accept"), "{reply:?}");
    let tag = reply.headers["etag"].clone();
    let new = json!({ "policy": format!("{POLICY}add id 9 tcp-dport 22 drop\n") });
    let change = mmb.send("POST", "/api/v1/policy/dry-run", &new).json();
    assert_eq!(change["count"], json!({ "added": 1, "removed": 0, "kept": 3, "dry_run": true }));
    assert_eq!(change["added"][0]["rule"], "add tcp-dport 22 drop");
    assert_eq!(mmb.get("/api/v1/rules/9").status, 404, "nothing was changed");

    let put = |expected: &str| {
        let token = mmb.web.token.as_deref().unwrap_or_default();
        let head = format!(
            "Authorization: Bearer {token}\r\nContent-Type: application/json\r\nIf-Match: {expected}\r\n"
        );
        mmb.web.request("PUT", "/api/v1/policy?connections=keep", &head, &new.to_string())
    };
    assert_eq!(put("\"another\"").status, 412);
    let reply = put(&tag);
    assert_eq!((reply.status, &reply.json()["count"]["added"]), (200, &json!(1)));
    assert_eq!(mmb.json("/api/v1/rules/9")["id"], 9, "the list is read again after a change");
    assert_eq!(put(&tag).status, 412, "somebody has changed it since");

    let wrong = json!({ "policy": "add tcp-dport 80 drop\nadd tcp-dprt 80 drop\n" });
    let check = mmb.send("POST", "/api/v1/policy/check", &wrong).json();
    assert_eq!(check["good"], false);
    let error = &check["errors"][0];
    assert_eq!((&error["line"], &error["column"], &error["span"]), (&json!(2), &json!(5), &json!([26, 34])));
    assert_eq!(error["suggestion"], "tcp-dport");
    let reply = mmb.send("PUT", "/api/v1/policy", &wrong);
    assert_eq!((reply.status, &reply.json()["errors"][0]["line"]), (422, &json!(2)));
    let good = json!({ "policy": "add id 1 ip-proto tcp drop\nadd id 2 prio 2000 tcp-dport 80 accept\n" });
    let check = mmb.send("POST", "/api/v1/policy/check", &good).json();
    assert_eq!((&check["good"], &check["rules"]), (&json!(true), &json!(2)));
    assert_eq!(check["shadowed"][0], json!({ "id": 2, "by": 1 }));
}

#[test]
fn sets_are_shown_in_changes_and_elements_that_expire_are_no_change_of_somebody_else() {
    let mmb = start("set bad {192.0.2.7 timeout 1h, 192.0.2.8}\nadd id 1 ip-saddr @bad drop\n");
    let before = mmb.get("/api/v1/policy");
    std::thread::sleep(Duration::from_millis(1100));
    let after = mmb.get("/api/v1/policy");
    assert_ne!(before.body, after.body, "less time is left");
    assert_eq!(before.headers["etag"], after.headers["etag"]);
    let put = |policy: &str| {
        let token = mmb.web.token.as_deref().unwrap_or_default();
        let tag = &before.headers["etag"];
        let head =
            format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\nIf-Match: {tag}\r\n");
        mmb.web.request("PUT", "/api/v1/policy", &head, &json!({ "policy": policy }).to_string())
    };
    let new = "set bad {192.0.2.8, 192.0.2.9, 192.0.2.10}\nset new {80}\nadd id 1 ip-saddr @bad drop\n";
    let tried = mmb.send("POST", "/api/v1/policy/dry-run", &json!({ "policy": new })).json();
    let sets = json!([
        { "name": "bad", "before": 2, "elements": 3 },
        { "name": "new", "before": null, "elements": 1 },
    ]);
    assert_eq!(tried["sets"], sets, "{tried}");
    let reply = put(new);
    assert_eq!((reply.status, &reply.json()["sets"]), (200, &sets), "{reply:?}");
    assert_eq!(put(new).status, 412, "that one was a change");
}

#[test]
fn versions_are_listed_compared_and_restored() {
    let mmb = start(POLICY);
    let apply = |text: &str| mmb.send("PUT", "/api/v1/policy", &json!({ "policy": text }));
    assert_eq!(apply(&format!("{POLICY}add id 9 tcp-dport 22 drop\n")).status, 200);
    let first = mmb.json("/api/v1/history?limit=1000")["entries"][0]["version"].clone();
    let page = mmb.json("/api/v1/history?limit=1");
    let entry = &page["entries"][0];
    assert_eq!(
        (&entry["action"], &entry["added"], &entry["in_force"]),
        (&json!("change"), &json!(1), &json!(true))
    );
    assert_eq!((page["entries"].as_array().map(Vec::len), &page["unconfirmed"]), (Some(1), &Value::Null));
    let diff = mmb.json("/api/v1/history/diff");
    assert_eq!(diff["versions"], json!({ "from": first, "to": entry["version"] }));
    assert_eq!(diff["lines"], json!([{ "sign": "+", "line": "add id 9 tcp-dport 22 drop" }]));
    assert_eq!(mmb.json(&format!("/api/v1/history/diff?from={first}&to={first}"))["lines"], json!([]));
    assert_eq!(mmb.get("/api/v1/history/diff?to=1").status, 400);
    assert_eq!(mmb.get("/api/v1/history/diff?from=999").status, 422);
    let back =
        mmb.send("POST", "/api/v1/history/rollback", &json!({ "version": first, "connections": "kill" }));
    assert_eq!((back.status, &back.json()["removed"][0]["id"]), (200, &json!(9)), "{back:?}");
    assert_eq!(mmb.get("/api/v1/rules/9").status, 404, "the list is read again");
    assert_eq!(mmb.send("POST", "/api/v1/history/rollback", &json!({ "version": 999 })).status, 422);
}

#[test]
fn a_change_waits_for_its_confirmation() {
    let mmb = start(POLICY);
    let new = json!({ "policy": format!("{POLICY}add id 9 tcp-dport 22 drop\n") });
    let try_it = || mmb.send("PUT", "/api/v1/policy?confirm=600", &new);
    let post = |path: &str, body: &Value| mmb.send("POST", path, body).status;
    assert_eq!(post("/api/v1/policy/confirm", &Value::Null), 422, "nothing waits");
    let reply = try_it();
    let waiting = reply.json()["unconfirmed"].clone();
    assert!(reply.status == 200 && waiting["seconds"].as_u64().is_some_and(|left| left > 500), "{reply:?}");
    for path in ["/api/v1/state", "/api/v1/history"] {
        assert_eq!(mmb.json(path)["unconfirmed"]["version"], waiting["version"], "{path}");
    }
    assert_eq!(try_it().status, 422, "one change waits at a time");
    for other in [json!({ "unconfirmed": 1 }), json!({ "unconfirmed": 99, "version": 1 })] {
        assert_eq!(post("/api/v1/history/rollback", &other), 409, "another change");
    }
    assert_eq!(post("/api/v1/policy/confirm?version=1", &Value::Null), 409);
    let this = json!({ "unconfirmed": waiting["version"] });
    assert_eq!(post("/api/v1/history/rollback", &this), 200);
    assert_eq!(post("/api/v1/history/rollback", &this), 409, "it waits no more");
    assert_eq!(mmb.get("/api/v1/rules/9").status, 404);
    assert_eq!(try_it().status, 200);
    let confirmed = mmb.send("POST", "/api/v1/policy/confirm", &Value::Null).json();
    assert!(confirmed["version"].as_u64() > waiting["version"].as_u64(), "{confirmed}");
    assert_eq!(mmb.json("/api/v1/state")["unconfirmed"], Value::Null);
    assert_eq!(mmb.json("/api/v1/rules/9")["id"], 9);
    for wrong in ["0", "86401", "x"] {
        let status = mmb.send("PUT", &format!("/api/v1/policy?confirm={wrong}"), &new).status;
        assert!(matches!(status, 400 | 422), "{wrong}: {status}");
    }
}

#[test]
fn lists_of_patterns_come_with_the_request_and_no_file_is_opened() {
    let mmb = start(POLICY);
    let policy = "patterns bad /etc/passwd\nadd-stateful tcp-dport 80 stream-forward @bad close\n";
    let refused = mmb.send("PUT", "/api/v1/policy", &json!({ "policy": policy }));
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(!refused.body.contains("root:"), "{refused:?}");
    let sent = json!({ "policy": policy, "files": { "/etc/passwd": "6576696c0a" } });
    let reply = mmb.send("PUT", "/api/v1/policy", &sent);
    assert_eq!((reply.status, &reply.json()["patterns"][0]["patterns"]), (200, &json!(1)), "{reply:?}");
    let odd = json!({ "policy": policy, "files": { "/etc/passwd": "6" } });
    assert_eq!(mmb.send("PUT", "/api/v1/policy", &odd).status, 400);
    let explained = mmb.send("POST", "/api/v1/explain", &json!({ "packet": "tcp-dport 80" }));
    assert_eq!((explained.status, &explained.json()["rules"]), (200, &json!(1)));
    assert_eq!(mmb.send("POST", "/api/v1/policy/check", &json!({ "policy": policy })).json()["good"], true);
}

#[test]
fn commands_are_run_all_or_none() {
    let mmb = start(POLICY);
    let run = |commands: &[&str]| mmb.send("POST", "/api/v1/commands", &json!({ "commands": commands }));
    let reply = run(&["add id 20 tcp-dport 1 drop", "del 1", "list --terse"]);
    let body = reply.json();
    assert_eq!(
        (reply.status, &body["change"]["added"], &body["change"]["removed"]),
        (200, &json!(1), &json!(1))
    );
    assert_eq!(
        body["lines"][0],
        json!({ "removed": { "id": 1, "rule": "add prio 10 name dns udp-dport 53 accept" } })
    );
    let reply = run(&["del 2", "del 999"]);
    assert_eq!((reply.status, &reply.json()["errors"][0]["command"]), (422, &json!(1)));
    assert_eq!(mmb.get("/api/v1/rules/2").status, 200, "none");
    assert_eq!(run(&["monitor"]).status, 400);
    assert_eq!(mmb.send("POST", "/api/v1/commands", &json!({ "command": [] })).status, 400);
    let many = vec!["list"; 10_001];
    assert_eq!(run(&many).status, 400);
}

#[test]
fn connections_are_listed_up_to_a_limit_and_killed_by_a_filter() {
    let mmb = start("add-stateful id 1 ip-proto udp accept\n");
    mmb.feed(&(1..=50).map(datagram).collect::<Vec<_>>());
    let page = mmb.json("/api/v1/connections?limit=20");
    assert_eq!((page["connections"].as_array().map(Vec::len), &page["more"]), (Some(20), &json!(true)));
    let page = mmb.json("/api/v1/connections?filter=udp-dport+7");
    assert_eq!((page["connections"].as_array().map(Vec::len), &page["more"]), (Some(1), &json!(false)));
    let kill = |filter: &str| mmb.send("POST", "/api/v1/connections/kill", &json!({ "filter": filter }));
    assert_eq!(kill("  ").status, 400, "an empty filter ends nothing");
    assert_eq!(kill("udp-dport 7").json(), json!({ "connections": 1 }));
    assert_eq!(mmb.json("/api/v1/connections?filter=udp-dport+7")["connections"], json!([]));
    let reply = kill("udp-dprt 7");
    let error = &reply.json()["errors"][0];
    assert_eq!((reply.status, &error["column"], &error["span"]), (422, &json!(1), &json!([0, 8])), "{error}");
    for trick in ["udp-dport 7\nflush", "\nflush", "all\nadd all drop"] {
        assert_eq!(kill(trick).status, 422, "{trick:?}");
    }
    assert_eq!(mmb.json("/api/v1/rules")["total"], 1);
    assert_eq!(kill("net-proto ip4").json(), json!({ "connections": 49 }));
}

#[test]
fn packets_are_explained_under_the_policy_in_force() {
    let mmb = start(POLICY);
    let explain = |body: Value| mmb.send("POST", "/api/v1/explain", &body);
    let reply = explain(json!({ "packet": "tcp-dport 80", "why_not": [1] }));
    assert_eq!(reply.json(), json!({ "rules": 3, "packet": "tcp-dport 80", "why_not": [1] }));
    let reply = explain(json!({ "packet": "" }));
    assert_eq!((reply.status, &reply.json()["detail"]), (422, &json!("no packet")));
    assert_eq!(explain(json!({ "packet": "all", "why_not": vec![1; 17] })).status, 400);
}

#[test]
fn a_server_that_only_shows_changes_nothing() {
    let mmb = start_with(POLICY, |options| WebOptions { read_only: true, ..options });
    assert_eq!(mmb.json("/api/v1/server")["read_only"], true);
    let before = mmb.get("/api/v1/policy").body;
    let policy = json!({ "policy": "" });
    for (method, path, body) in [
        ("PUT", "/api/v1/policy", &policy),
        ("POST", "/api/v1/counters/clear", &Value::Null),
        ("POST", "/api/v1/connections/kill", &json!({ "filter": "net-proto ip4" })),
        ("POST", "/api/v1/history/rollback", &json!({ "version": 1 })),
        ("POST", "/api/v1/policy/confirm", &Value::Null),
        ("POST", "/api/v1/commands", &json!({ "commands": ["flush"] })),
        ("POST", "/api/v1/commands", &json!({ "commands": ["list", "mmb conn kill net-proto ip4"] })),
    ] {
        let reply = mmb.send(method, path, body);
        assert_eq!(reply.status, 403, "{path}");
        assert!(reply.json()["detail"].as_str().is_some_and(|detail| detail.contains("--read-only")));
    }
    for (path, body) in [
        ("/api/v1/policy/dry-run", &policy),
        ("/api/v1/policy/check", &policy),
        ("/api/v1/commands", &json!({ "commands": ["show ports", "list"] })),
        ("/api/v1/explain", &json!({ "packet": "all" })),
    ] {
        assert_eq!(mmb.send("POST", path, body).status, 200, "{path}");
    }
    assert_eq!(mmb.get("/api/v1/policy").body, before);
}

#[test]
fn without_a_daemon_there_is_a_problem_and_later_an_answer() {
    let mut mmb = start(POLICY);
    assert_eq!(mmb.get("/api/v1/state").status, 200);
    mmb.stop_daemon();
    let reply = mmb.get("/api/v1/settings");
    assert_eq!(reply.status, 503);
    let problem = reply.json();
    assert_eq!(
        (&problem["type"], &problem["title"], &problem["status"]),
        (&json!("about:blank"), &json!("Service Unavailable"), &json!(503))
    );
    assert!(
        problem["detail"].as_str().is_some_and(|detail| detail.starts_with("no mmb answers at ")),
        "{problem}"
    );
}

#[test]
fn what_is_no_request_of_the_api_is_a_problem() {
    let mmb = start(POLICY);
    for (method, path, status) in [
        ("GET", "/nothing", 404),
        ("GET", "/api/v1/nothing", 404),
        ("DELETE", "/api/v1/rules", 405),
        ("POST", "/", 405),
    ] {
        let reply = mmb.send(method, path, &Value::Null);
        assert_eq!(reply.status, status, "{method} {path}");
        assert_eq!(reply.headers["content-type"], "application/problem+json");
        assert_eq!(reply.json()["status"], status);
    }
    let token = mmb.web.token.clone().unwrap_or_default();
    let post = |head: &str, body: &str| {
        let head = format!("Authorization: Bearer {token}\r\n{head}");
        mmb.web.request("POST", "/api/v1/commands", &head, body).status
    };
    assert_eq!(post("Content-Type: text/plain\r\n", "{\"commands\":[]}"), 415);
    assert_eq!(post("Content-Type: application/json; charset=utf-8\r\n", "{\"commands\":[]}"), 200);
    assert_eq!(post("Content-Type: application/json\r\n", "{"), 400);
    assert_eq!(post("Content-Type: application/json\r\nContent-Length: 99999999999\r\n", ""), 413);
}

/// `mmb web --read-only` let its users stop all clients of the daemon by dry runs of 80 regexes.
#[test]
fn patterns_of_dry_runs_are_checked_by_the_web_server() {
    let mmb = start(POLICY);
    let dry_run = |pattern: &str| {
        let policy = format!("add-stateful tcp-dport 80 stream {pattern} alert\n");
        mmb.send("POST", "/api/v1/policy/dry-run", &json!({ "policy": policy }))
    };
    let refused = dry_run("/costly/");
    assert_eq!((refused.status, &refused.json()["detail"]), (422, &json!("too costly")));
    let tried = dry_run("/cheap/");
    assert_eq!((tried.status, &tried.json()["count"]["added"]), (200, &json!(1)), "{tried:?}");
    let check = json!({ "policy": "add-stateful tcp-dport 80 stream /costly/ alert\n" });
    let checked = mmb.send("POST", "/api/v1/policy/check", &check);
    assert!(checked.body.contains("too costly"), "{checked:?}");
}
