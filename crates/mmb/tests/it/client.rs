//! The program as a client: one-shot commands and the shell on a pipe, with a daemon in this process.

// For the object of all settings.

use crate::common::Site;
use crate::talk::{CommandOutput, STATEFUL, Talk, dns};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn a_rule_may_come_in_many_words_or_few_with_options_anywhere() {
    let mmb = Site::new("");
    mmb.good(&["add", "tcp-dport", "80", "drop"]);
    mmb.good(&["add", "! tcp-syn", "tcp-dport", "{80, 443}", "drop"]);
    mmb.good(&["add", "payload \"GET \" drop", "5"]);
    let added = mmb.good(&["add", "all", "--json", "mod", "ip-ecn", "0"]);
    let expected =
        json!({"added": [{"id": 4, "rule": "add all mod ip-ecn 0"}], "removed": [], "kept": 3, "version": 5});
    assert_eq!(serde_json::from_str::<Value>(&added).expect("JSON"), expected);
    assert_eq!(
        mmb.rules(),
        [
            "1 add tcp-dport 80 drop",
            "2 add ! tcp-syn tcp-dport {80, 443} drop",
            "3 add payload \"GET \" drop 5",
            "4 add all mod ip-ecn 0"
        ]
    );
}

#[test]
fn a_wrong_rule_is_shown_with_a_caret_and_exits_with_one() {
    let mmb = Site::new("add all accept");
    let said = mmb.run(&["add", "tcp-dpotr", "80", "drop"]);
    assert_eq!((said.status, said.out.as_str()), (1, ""));
    assert!(said.err.contains("\n1 | add tcp-dpotr 80 drop\n  |     ^^^^^^^^^\n"), "{}", said.err);
    assert!(said.err.contains("tcp-dport`?") && !said.err.contains('\x1b'), "{}", said.err);

    let said = mmb.run(&["add", "in", "lann", "drop", "--json"]);
    let error: Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!((said.status, &error["line"], &error["column"]), (1, &json!(1), &json!(8)));
    assert_eq!(error["suggestion"], "lan");
    assert!(error["error"].as_str().expect("text").contains("lan, wan"));
    assert_eq!(mmb.rules(), ["1 add all accept"]);
}

#[test]
fn a_wrong_command_line_exits_with_two() {
    let mmb = Site::new("");
    for words in [&["list", "--wide"][..], &["bogus"], &["apply"], &["add", "all\ndrop"]] {
        assert_eq!(mmb.run(words).status, 2, "{words:?}");
    }
    assert_eq!(mmb.run(&["del"]).status, 1, "the language says what is missing");
}

#[test]
fn every_answer_has_its_shape_in_json() {
    let mmb = Site::new("add tcp-dport 80 drop");
    let listed = json!({"rules": [{"id": 1, "rule": "add tcp-dport 80 drop", "packets": 0, "bytes": 0, "dropped_packets": 0, "dropped_bytes": 0}]});
    assert_eq!(mmb.json(&["list"]), listed);
    assert_eq!(
        mmb.json(&["list", "--terse"]),
        json!({"rules": [{"id": 1, "rule": "add tcp-dport 80 drop"}]})
    );
    assert_eq!(
        mmb.json(&["show", "errors"]),
        json!({"drops": {}, "made": {}, "absorbed": 0, "not_applied": {}, "port_losses": []})
    );
    assert_eq!(
        mmb.json(&["show", "settings"]),
        json!({"settings": {
            "ip6-max-headers": 16, "poll": "adaptive", "offload": "auto", "flow-cache": "auto", "answer rate": 1000, "mtu-errors": "on",
            "conn max": 1_000_000, "conn pickup": "loose",
            "conn per-source": "off", "conn invalid": "pass", "conn zone": "vlan", "conn same-port": "off",
            "timeout tcp-syn": 240, "timeout tcp-established": 7440, "timeout tcp-fin": 240,
            "timeout tcp-time-wait": 240, "timeout tcp-reset": 240, "timeout udp": 300,
            "timeout udp-unreplied": 120, "timeout icmp": 60, "timeout other": 600,
            "nat filtering": "address-dependent", "nat parity": "on", "nat contiguity": "on",
            "nat ports-per-host": "share",
            "stream max": 100_000, "stream per-source": "share", "stream memory": 256, "stream window": 1024, "stream reorder": 1024,
            "stream hold": 100, "stream hold-over": "pass", "stream unfit": "pass", "stream urgent": "clear",
            "http head": 16, "http unfit": "close", "http encodings": "strip", "http no-transform": "obey", "log rate": 10, "log burst": 20, "limit keys": 65536
        }})
    );
    assert_eq!(mmb.json(&["show", "version"])["version"], env!("CARGO_PKG_VERSION"));
    let ports = mmb.json(&["show", "ports"]);
    assert_eq!(ports["ports"][0]["name"], "lan");
    assert_eq!(ports["ports"][0]["rx"], json!({"packets": 0, "bytes": 0}));
    let runtime = mmb.json(&["show", "runtime"]);
    assert_eq!(runtime["workers"][0]["stages"][1]["name"], "classify");
    assert_eq!(runtime["stages"][5]["name"], "forward");
    let tables = mmb.json(&["show", "tables"]);
    assert_eq!(tables["tables"][0]["rules"], 1);
    let disabled = json!({"added": [], "removed": [], "kept": 1, "version": 2, "disabled": ["wan"]});
    assert_eq!(mmb.json(&["disable", "wan"]), disabled);
    let set = json!({"added": [], "removed": [], "kept": 1, "version": 3, "settings": {"poll": "spin"}});
    assert_eq!(mmb.json(&["set", "poll", "spin"]), set);
    let flushed = json!({"added": [], "removed": [{"id": 1, "rule": "add tcp-dport 80 drop"}], "kept": 0, "version": 4});
    assert_eq!(mmb.json(&["flush"]), flushed);
    assert_eq!(mmb.json(&["list"]), json!({"rules": []}));
}

#[test]
fn connections_have_their_shape_in_json() {
    let mmb = Site::new(STATEFUL);
    assert_eq!(mmb.json(&["show", "connections"]), json!({"connections": []}));
    assert_eq!(mmb.json(&["conn", "kill", "all"]), json!({"killed": 0}));
    mmb.feed_packet(dns());
    let length = dns().len();
    let connection = json!({
        "proto": "udp", "state": "unreplied",
        "arrived": {"src": "10.0.0.1", "sport": 4000, "dst": "10.0.0.2", "dport": 53},
        "sent": {"src": "10.0.0.1", "sport": 7000, "dst": "10.0.0.2", "dport": 53},
        "age_ms": 0, "idle_ms": 0, "expires_ms": 120_000,
        "forward": {"packets": 1, "bytes": length}, "reply": {"packets": 0, "bytes": 0}, "rules": [1]
    });
    assert_eq!(mmb.json(&["show", "connections", "udp-dport", "dns"]), json!({"connections": [connection]}));
    let verbose = mmb.json(&["show", "connections", "verbose"]);
    assert_eq!(
        (&verbose["connections"][0]["worker"], &verbose["connections"][0]["wire"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(
        mmb.json(&["show", "conn", "summary"]),
        json!({
            "connections": 1, "half_open": 1, "max": 1_000_000, "created": 1, "closed": {}, "refused": {},
            "invalid": {}, "events_lost": 0, "handed": 0, "held": 0
        })
    );
    let rule = json!({"id": 1, "rule": STATEFUL});
    assert_eq!(
        mmb.json(&["del", "1", "--kill"]),
        json!({"added": [], "removed": [rule], "kept": 0, "version": 2, "killed": 1})
    );
}

#[test]
fn connections_are_shown_and_ended_for_people() {
    let mmb = Site::new(STATEFUL);
    assert_eq!(mmb.good(&["show", "connections"]), "no connections\n");
    mmb.feed_packet(dns());
    let shown = mmb.good(&["show", "connections", "rule", "1"]);
    for part in ["10.0.0.1:4000 > 10.0.0.2:53", "10.0.0.1:7000 > 10.0.0.2:53", "1/0", "1 connection\n"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(mmb.good(&["show", "connections", "verbose"]).contains("WORKER"));
    assert!(mmb.good(&["show", "conn", "summary"]).contains("1  now, of 1000000 at most"));
    assert_eq!(mmb.good(&["conn", "kill", "udp-sport", "4000"]), "1 connection ended\n");
    let said = mmb.run(&["conn", "kill", "stat", "established"]);
    assert_eq!((said.status, said.out.as_str()), (1, ""));
    for part in ["conn kill stat established", "          ^^^^", "did you mean `state`?"] {
        assert!(said.err.contains(part), "{part}: {}", said.err);
    }
}

#[test]
fn monitor_prints_events_until_ctrl_c() {
    let mmb = Site::new(STATEFUL);
    let watch = |json: &[&str]| {
        let words = [&["monitor"], json].concat();
        let mut child = mmb.command(&words).stdout(Stdio::piped()).spawn().expect("mmb runs");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        let begun = std::time::Instant::now();
        let (told, line) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            lines.read_line(&mut line).expect("a line");
            told.send((line, lines)).expect("somebody waits");
        });
        // In JSON, the program does not print when it has begun.
        let (line, _lines) = loop {
            mmb.feed_packet(dns());
            mmb.good(&["conn", "kill", "all"]);
            match line.recv_timeout(std::time::Duration::from_millis(20)) {
                Ok(told) => break told,
                Err(_) => assert!(begun.elapsed().as_secs() < 30, "nothing is told"),
            }
        };
        let interrupt = format!("kill -INT {}", child.id());
        assert!(Command::new("sh").args(["-c", &interrupt]).status().expect("a shell").success());
        assert_eq!(child.wait().expect("ends").code(), Some(0));
        line
    };
    let told = watch(&[]);
    assert!(told.contains("Z + udp 10.0.0.1:4000 > ") || told.contains(", killed after "), "{told}");
    let told: Value = serde_json::from_str(&watch(&["--json"])).expect("JSON");
    assert_eq!(told["connection"]["arrived"]["sport"], 4000);
    assert!(told["what"] == "created" || (told["what"] == "closed" && told["reason"] == "killed"), "{told}");
}

#[test]
fn counters_are_cleared() {
    let mmb = Site::new("add tcp-dport 80 drop");
    assert_eq!(mmb.good(&["clear", "counters"]), "the counters begin at zero\n");
    assert_eq!(mmb.json(&["clear", "counters"]), json!({"cleared": "counters"}));
    assert_eq!(mmb.run(&["clear"]).status, 1);
}

#[test]
fn a_rule_that_never_decides_names_the_one_that_does() {
    let policy = "add prio 1 ip-proto tcp accept\nadd tcp-dport 80 drop";
    let mmb = Site::new(policy);
    let listed = mmb.good(&["list"]);
    assert!(listed.contains("add tcp-dport 80 drop  (never decides: rule 1 does)\n"), "{listed}");
    assert_eq!(mmb.json(&["list"])["rules"][1]["shadowed_by"], json!(1));
    assert!(!mmb.good(&["list", "--terse"]).contains("never"));
    let path = mmb.path("p.mmb").display().to_string();
    std::fs::write(&path, policy).expect("writes");
    let checked = mmb.run(&["check", &path]);
    assert!(checked.err.starts_with("note: rule 2 never decides, because rule 1 has"), "{}", checked.err);
    let checked = mmb.json(&["check", &path]);
    assert_eq!(
        (&checked["rules"][0]["shadowed_by"], &checked["rules"][1]["shadowed_by"]),
        (&Value::Null, &json!(1))
    );
}

#[test]
fn an_edit_of_streams_beside_a_rule_on_http_is_noted() {
    let mmb = Site::new("");
    let path = mmb.path("p.mmb").display().to_string();
    let edit = "add-stateful tcp-dport 80 stream \"x\" mask stream";
    std::fs::write(&path, format!("{edit}\nadd-stateful tcp-dport 80 http-body \"y\" strip http-body\n"))
        .expect("writes");
    let checked = mmb.run(&["check", &path]);
    assert!(
        checked.err.starts_with("note: rule 1 edits no stream, because rule 2 is on HTTP"),
        "{}",
        checked.err
    );
    assert_eq!(mmb.json(&["check", &path])["rules"][0]["no_edit_beside"], json!(2));
    std::fs::write(&path, format!("{edit}\n")).expect("writes");
    assert_eq!(mmb.run(&["check", &path]).err, "");
}

#[test]
fn tables_are_aligned_and_end_in_totals() {
    let mmb = Site::new("add tcp-dport 80 drop\nadd id 12 udp-dport 53 accept");
    let expected = "ID  PACKETS  BYTES  DROPPED  DROPPED BYTES  RULE\n \
                    1        0      0        0              0  add tcp-dport 80 drop\n\
                    12        0      0        0              0  add udp-dport 53 accept\n                          \
                    0              0  dropped in all, 2 rules\n";
    assert_eq!(mmb.good(&["list"]), expected);
    assert_eq!(
        mmb.good(&["list", "--terse"]),
        "ID  RULE\n 1  add tcp-dport 80 drop\n12  add udp-dport 53 accept\n"
    );
    for topic in ["tables", "ports", "errors", "runtime", "offload", "settings", "version"] {
        let shown = mmb.good(&["show", topic]);
        assert!(!shown.is_empty() && !shown.contains('\x1b'), "{topic}: {shown}");
    }
    assert!(mmb.good(&["show", "ports"]).contains("\ntotal "));
}

#[test]
fn the_shell_runs_every_line_of_a_pipe() {
    let mmb = Site::new("");
    let lines =
        "add tcp-dport 80 drop\n\n# nothing\nmmb add tcp-dport \\\n  81 drop\nlist --terse\nexit\nflush\n";
    let said = mmb.feed(&[], lines);
    assert_eq!((said.status, said.err.as_str()), (0, ""));
    assert!(
        said.out.ends_with("ID  RULE\n 1  add tcp-dport 80 drop\n 2  add tcp-dport 81 drop\n"),
        "{}",
        said.out
    );
    assert_eq!(mmb.rules().len(), 2, "nothing behind exit");

    let said = mmb.feed(&[], "add bogus drop\napply\nadd all accept\nlist --json");
    assert_eq!(said.status, 1);
    assert!(said.err.contains("standard input:1:5"), "{}", said.err);
    assert!(said.out.contains("add all accept") && said.out.ends_with("]}\n"), "{}", said.out);

    let said = mmb.feed(&["--json"], "flush\nshow errors\ndel 7\n");
    let objects: Vec<Value> =
        said.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(objects.len(), 3, "an object a command: {}", said.out);
    assert!(objects[2]["error"].is_string());
}

#[test]
fn without_a_daemon_the_client_explains_how_to_start_one() {
    let mut mmb = Site::new("");
    drop(mmb.server.take());
    let said = mmb.run(&["list"]);
    assert_eq!(said.status, 1);
    assert!(said.err.contains("no mmb answers at") && said.err.contains("mmb run --port"), "{}", said.err);
    let said = mmb.run(&["list", "--json"]);
    let error: Value = serde_json::from_str(&said.out).expect("JSON");
    assert!(error["error"].as_str().expect("text").contains("no mmb answers"));
    let path = mmb.file("good.mmb", "add all drop\n");
    assert_eq!(mmb.run(&["check", &path]).status, 0, "check needs none");
    assert_eq!(mmb.feed(&[], &format!("check {path}\n")).status, 0);
    assert_eq!(mmb.run(&["save", &path]).status, 1);
    assert_eq!(
        std::fs::read_to_string(&path).expect("reads"),
        "add all drop\n",
        "a failed save touches nothing"
    );
}

#[test]
fn a_reader_that_closes_ends_a_long_list_quietly() {
    let text: String = (1..=20_000).map(|n| format!("add tcp-sport {} drop\n", n % 60_000)).collect();
    let mmb = Site::new(&text);
    let mut command = mmb.command(&["list"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("mmb runs");
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    drop(out);
    let said: CommandOutput = child.wait_with_output().expect("ends").into();
    assert_eq!((said.status, said.err.as_str()), (0, ""));
}

/// Completes a line in bash, as Tab does, with the script of `mmb completions bash`.
fn completed_in_bash(mmb: &Site, words: &[&str]) -> Vec<String> {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_mmb"));
    let script = r#"
        source <(mmb completions bash)
        COMP_WORDS=(mmb "$@") COMP_CWORD=$#
        _mmb_complete mmb "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let mut command = Command::new("bash");
    command.args(["--norc", "-c", script, "bash", "--socket"]).arg(mmb.path("s")).args(words);
    let path = format!(
        "{}:{}",
        program.parent().expect("a directory").display(),
        std::env::var("PATH").expect("a path")
    );
    let done = command.env("PATH", path).output().expect("bash runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = String::from_utf8(done.stdout).expect("text");
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_words_of_the_language_ids_and_options() {
    let mut mmb = Site::new("add id 31 all drop\nadd id 32 tcp-dport 80 drop\nadd id 4 all accept\n");
    assert_eq!(completed_in_bash(&mmb, &["show", "ru"]), ["runtime"]);
    assert!(completed_in_bash(&mmb, &["set", ""]).contains(&"timeout".to_owned()));
    assert_eq!(completed_in_bash(&mmb, &["add", "tcp-dport", "80", "dr"]), ["drop"]);
    assert_eq!(completed_in_bash(&mmb, &["del", "3"]), ["31", "32"]);
    assert_eq!(completed_in_bash(&mmb, &["add", "in", "w"]), ["wan"]);
    assert_eq!(completed_in_bash(&mmb, &["apply", "--dry"]), ["--dry-run"]);
    assert_eq!(completed_in_bash(&mmb, &["run", "--work"]), ["--workers"], "left to the script of clap");
    mmb.server.take().expect("serves").shutdown();
    assert_eq!(completed_in_bash(&mmb, &["del", "3"]), [""; 0], "no daemon, no ids");
}
