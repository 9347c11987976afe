//! Files and pipes of the client's commands: policies, lists of patterns, states of connections.

use crate::common::Site;
use crate::talk::{CommandOutput, STATEFUL, Talk, dns};
use serde_json::{Value, json};
use std::io::Write;
use std::process::Command;

#[test]
fn the_state_of_connections_is_saved_and_loaded() {
    let mmb = Site::new(STATEFUL);
    mmb.feed_packet(dns());
    // Their ages differ.
    let listed = || {
        let mut connections = mmb.json(&["show", "connections"])["connections"].take();
        for connection in connections.as_array_mut().expect("an array") {
            let connection = connection.as_object_mut().expect("an object");
            for time in ["age_ms", "idle_ms", "expires_ms"] {
                connection.remove(time).expect("a time");
            }
        }
        connections
    };
    let before = listed();
    let path = mmb.path("state").display().to_string();
    assert_eq!(mmb.json(&["save-state", &path]), json!({"saved": path, "connections": 1}));
    assert_eq!(mmb.good(&["save-state", &path]), format!("{path}: 1 connection saved\n"));
    assert_eq!(
        mmb.good(&["load-state", &path]),
        format!("{path}: 0 connections loaded, 1 left out: 1 nat-clash\n"),
        "it exists already"
    );
    mmb.good(&["conn", "kill", "all"]);
    assert_eq!(
        mmb.json(&["load-state", &path]),
        json!({"loaded": path, "connections": 1, "lost_rules": 0, "left_out": {}})
    );
    assert_eq!(listed(), before);

    let wrong = mmb.file("wrong", "no state\n");
    for (words, part) in [
        (["load-state", &wrong], "no state of connections"),
        (["load-state", "/nowhere/state"], "/nowhere/state"),
        (["save-state", "/nowhere/state"], "/nowhere/state"),
    ] {
        let said = mmb.run(&words);
        assert_eq!((said.status, said.out.as_str()), (1, ""));
        assert!(said.err.contains(part), "{words:?}: {}", said.err);
    }
}

#[test]
fn a_policy_file_is_saved_and_applied() {
    let mmb = Site::new("set poll spin\nadd id 3 tcp-dport 80 drop\nadd all mod ip-ecn 0");
    let path = mmb.path("p.mmb").display().to_string();
    assert_eq!(mmb.json(&["save", &path]), json!({"saved": path, "rules": 2}));
    let text = std::fs::read_to_string(&path).expect("reads");
    assert_eq!(mmb.good(&["save", "-"]), text);
    assert_eq!(mmb.run(&["check", &path]).status, 0);
    mmb.good(&["flush"]);
    mmb.good(&["set", "poll", "adaptive"]);
    let applied = mmb.good(&["apply", &path]);
    let expected = "+ 3     add tcp-dport 80 drop\n+ 4     add all mod ip-ecn 0\npoll is spin now\n\
                    2 added, 0 removed, 0 kept\n";
    assert_eq!(applied, expected);
    let said = mmb.feed(&["apply", "-"], "add all mod ip-ecn 0\n");
    assert_eq!(said.status, 0, "{}", said.err);
    assert!(said.out.contains("- 3 ") && said.out.contains("0 added, 1 removed, 1 kept"), "{}", said.out);
    assert_eq!(mmb.rules(), ["4 add all mod ip-ecn 0"]);
}

#[test]
fn a_list_of_patterns_is_read_beside_its_policy_and_saved_by_its_name() {
    let mmb = Site::new("");
    let (policy, list) = (mmb.path("p.mmb"), mmb.path("a b.txt"));
    let (policy, list) = (policy.display().to_string(), list.display().to_string());
    std::fs::write(&policy, "patterns bad \"a b.txt\"\nadd tcp-dport 80 drop\n").expect("writes");
    let missing = mmb.run(&["apply", &policy]);
    assert_eq!(missing.status, 1);
    assert!(missing.err.contains(&format!("{list}: No such file")), "{}", missing.err);
    std::fs::write(&list, b"# words\nATTACK\r\n\xe4\n").expect("writes");
    let added = format!("+ 1     add tcp-dport 80 drop\n@bad has 2 patterns of {list} now\n");
    assert!(mmb.good(&["apply", &policy, "--dry-run"]).starts_with(&added));
    assert!(mmb.good(&["apply", &policy]).starts_with(&added));
    assert_eq!(mmb.good(&["check", &policy]), format!("{policy}: good, 1 rule\n"));
    let saved = mmb.good(&["save", "-"]);
    assert_eq!(saved, format!("patterns bad \"{list}\"\nadd id 1 tcp-dport 80 drop\n"));

    // Another content is a change, the same is none.
    assert!(!mmb.good(&["apply", &policy, "--dry-run"]).contains("@bad"));
    std::fs::write(&list, "ATTACK\n").expect("writes");
    let changed = mmb.json(&["patterns", "bad", &list]);
    assert_eq!(
        (&changed["patterns"][0]["name"], &changed["patterns"][0]["patterns"]),
        (&json!("bad"), &json!(1))
    );
    std::fs::write(&list, "# nothing\n").expect("writes");
    let empty = mmb.run(&["patterns", "bad", &list]);
    assert!(empty.status == 1 && empty.err.contains("the file has no patterns"), "{}", empty.err);
    assert!(mmb.run(&["patterns", "bad", "/dev/zero"]).err.contains("not a regular file"));
    let unknown = mmb.run(&["add-stateful", "stream", "@bed", "close"]);
    assert!(unknown.err.contains("no list of patterns called 'bed'"), "{}", unknown.err);
    assert!(unknown.err.contains("did you mean `@bad`?"), "{}", unknown.err);
    std::fs::write(&policy, "").expect("writes");
    assert!(mmb.good(&["apply", &policy]).contains("@bad is gone\n"));
}

#[test]
fn comments_and_names_are_saved_again() {
    let mmb = Site::new("");
    let file = mmb.path("commented.mmb").display().to_string();
    let text = "# the edge\n# of the network\n\nset poll spin # busy\n\n# not for guests\ndisable wan\n\n# web\n\n# and mail\nadd prio 3 \\\n  tcp-dport {http, https} accept # both\n\
                add tcp-dport 25 drop\nadd-stateless ip-proto != udp tcp-dport http drop\n# the end\n";
    std::fs::write(&file, text).expect("writes");
    mmb.good(&["apply", &file]);
    let saved = mmb.good(&["save", "-"]);
    let expected = "# the edge\n# of the network\n\nset poll spin # busy\n\n# not for guests\ndisable wan\n\n# web\n\n# and mail\n\
                    add id 1 prio 3 tcp-dport {http, https} accept # both\nadd id 2 tcp-dport 25 drop\n\
                    add-stateless id 3 ip-proto != udp tcp-dport http drop\n# the end\n";
    assert_eq!(saved, expected);
    std::fs::write(&file, &saved).expect("writes");
    assert!(mmb.good(&["apply", &file]).contains("0 added, 0 removed, 3 kept"));
    assert_eq!(mmb.good(&["save", "-"]), expected, "a fixed point");

    // A rule takes its comments along, and has no old wording when it is another one.
    mmb.good(&["replace", "1", "tcp-dport 8080 accept"]);
    mmb.good(&["del", "3"]);
    mmb.good(&["set", "poll", "adaptive"]);
    let expected = "\n# not for guests\ndisable wan\n\n# web\n\n# and mail\nadd id 1 tcp-dport 8080 accept # both\nadd id 2 tcp-dport 25 drop\n# the end\n";
    assert_eq!(mmb.good(&["save", "-"]), expected);
    mmb.good(&["rollback", "2"]);
    assert_eq!(mmb.good(&["save", "-"]), saved, "versions have them too");
    // Other ids: the comments go with the rules.
    std::fs::write(&file, "# new\nadd udp-dport dns drop\n# mail\nadd tcp-dport 25 drop\n").expect("writes");
    mmb.good(&["apply", &file]);
    assert_eq!(
        mmb.good(&["save", "-"]),
        "# mail\nadd id 2 tcp-dport 25 drop\n# new\nadd id 4 udp-dport dns drop\n"
    );
}

#[test]
fn a_batch_is_one_change_or_none() {
    let mmb = Site::new("add id 1 tcp-dport 80 drop\nadd id 2 name old all mod ip-ecn 0");
    let file = mmb.path("b.mmb").display().to_string();
    let text = "# the web\nreplace 1 tcp-dport 443 drop\n\ndel name old # gone\nadd udp-dport 53 \\\n  accept\nset poll spin\n";
    std::fs::write(&file, text).expect("writes");
    let changes = "- 1     add tcp-dport 80 drop\n+ 1     add tcp-dport 443 drop\n- 2     add name old all mod ip-ecn 0\n\
                   + 3     add udp-dport 53 accept\npoll is spin now\n2 added, 2 removed, 0 kept\n";
    let tried = mmb.good(&["batch", &file, "--dry-run"]);
    assert_eq!(tried, format!("{changes}nothing was changed: this was a dry run\n"));
    assert_eq!(mmb.rules().len(), 2);
    assert_eq!(mmb.good(&["batch", &file]), changes);
    assert_eq!(mmb.rules(), ["1 add tcp-dport 443 drop", "3 add udp-dport 53 accept"]);

    // All errors of the text, or the one of its execution, at their places.
    let said = mmb.feed(&["batch"], "flush\n\nadd tcp-dprt 80 drop\nlist\n");
    assert_eq!((said.status, said.out.as_str()), (1, ""));
    assert!(
        said.err.contains("standard input:3:5") && said.err.contains("`list` has no place in a batch"),
        "{}",
        said.err
    );
    let said = mmb.feed(&["batch", "-"], "flush\n# 9\nadd all drop\ndel 9\n");
    assert!(
        said.err.contains("there is no rule 9") && said.err.contains("standard input:4:5"),
        "{}",
        said.err
    );
    let wrong = mmb.feed(&["batch", "--json"], "del 1\nreplace 3 all drop\ndel name web\n");
    let wrong: serde_json::Value = serde_json::from_str(&wrong.out).expect("JSON");
    assert_eq!((&wrong["line"], &wrong["column"]), (&json!(3), &json!(10)));
    assert_eq!(mmb.rules(), ["1 add tcp-dport 443 drop", "3 add udp-dport 53 accept"]);
}

#[test]
fn a_batch_has_a_most_number_of_commands() {
    let mmb = Site::new("");
    let mut text: String =
        (1..=20_000).map(|id| format!("add id {id} ip-saddr 10.0.{}.{} drop\n", id >> 8, id & 255)).collect();
    assert_eq!(mmb.feed(&["batch"], &text).status, 0);
    assert_eq!(mmb.rules().len(), 20_000);
    text = "set poll spin\n".repeat(100_001);
    let said = mmb.feed(&["batch"], &text);
    assert!(said.err.contains("at most 100000 commands") && said.err.contains(":100001:1"), "{}", said.err);
}

#[test]
fn a_policy_may_come_from_a_pipe_with_an_end() {
    let mmb = Site::new("");
    let pipe = mmb.path("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
        .expect("a pipe");
    let name = pipe.display().to_string();
    for command in ["check", "apply"] {
        let pipe = pipe.clone();
        let writer = std::thread::spawn(move || std::fs::write(pipe, "add tcp-dport 80 drop\n"));
        mmb.good(&[command, &name]);
        writer.join().expect("ends").expect("writes");
    }
    assert_eq!(mmb.rules(), ["1 add tcp-dport 80 drop"]);
    for command in ["check", "apply"] {
        let said = mmb.run(&[command, "/dev/zero"]);
        assert_eq!((said.status, said.out.as_str()), (1, ""));
        assert!(said.err.contains("larger than a policy can be"), "{}", said.err);
    }
}

#[test]
fn a_state_may_come_from_standard_input_with_an_end() {
    let mmb = Site::new(STATEFUL);
    mmb.feed_packet(dns());
    let path = mmb.path("state").display().to_string();
    mmb.good(&["save-state", &path]);
    for name in ["-", "/dev/stdin"] {
        mmb.good(&["conn", "kill", "all"]);
        let state = std::fs::File::open(&path).expect("opens");
        let mut load = mmb.command(&["load-state", name]);
        let said: CommandOutput = load.stdin(state).output().expect("mmb runs").into();
        assert_eq!((said.status, said.out), (0, format!("{name}: 1 connection loaded\n")), "{}", said.err);
        let endless = std::fs::File::open("/dev/zero").expect("opens");
        let said: CommandOutput = load.stdin(endless).output().expect("mmb runs").into();
        assert_eq!((said.status, said.out.as_str()), (1, ""));
        assert!(said.err.contains("no state of connections"), "{}", said.err);
    }
}

#[test]
fn a_wrong_file_changes_nothing_and_all_its_errors_are_shown() {
    let mmb = Site::new("add all accept");
    let path = mmb.file("wrong.mmb", "# fine\nadd tcp-dport 99999 drop\nadd ip-sadr 10.0.0.1 drop\n");
    let said = mmb.run(&["apply", &path]);
    assert_eq!((said.status, said.out.as_str()), (1, ""));
    for part in ["wrong.mmb:2:", "wrong.mmb:3:5", "^", "ip-saddr"] {
        assert!(said.err.contains(part), "{part}: {}", said.err);
    }
    let errors: Value = serde_json::from_str(&mmb.run(&["--json", "apply", &path]).out).expect("JSON");
    assert_eq!((&errors["line"], errors["errors"].as_array().map(Vec::len)), (&json!(2), Some(2)));
    let path = mmb.file("ports.mmb", "# lann\nadd in lann drop\n");
    assert!(mmb.run(&["apply", &path]).err.contains("ports.mmb:2:8"));
    assert!(mmb.run(&["apply", "/nowhere/x.mmb"]).err.contains("/nowhere/x.mmb"));
    assert!(mmb.run(&["save", "/nowhere/x.mmb"]).err.contains("/nowhere/x.mmb"));
    assert_eq!(mmb.rules(), ["1 add all accept"]);
}

/// Starts a daemon that begins to answer `save` and does not continue.
fn half_an_answer(path: &std::path::Path) -> std::thread::JoinHandle<std::os::unix::net::UnixStream> {
    let listener = std::os::unix::net::UnixListener::bind(path).expect("binds");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        stream.write_all(b"{\"policy\":\"add id 1 all drop\\n\"}\n").expect("writes");
        stream
    })
}

#[test]
fn a_killed_save_leaves_the_old_file_and_the_next_one_cleans_up() {
    let mmb = Site::new("add id 7 all accept\n");
    let folder = mmb.path("policies");
    std::fs::create_dir(&folder).expect("makes");
    let file = folder.join("a.mmb");
    std::fs::write(&file, "add id 1 all accept\n").expect("writes");
    let daemon = half_an_answer(&mmb.path("half"));
    let (socket, name) = (mmb.path("half").display().to_string(), file.display().to_string());
    let mut save = Command::new(env!("CARGO_BIN_EXE_mmb"));
    let mut save = save.args(["--socket", &socket, "save", &name]).spawn().expect("starts");
    let names = || -> Vec<String> {
        let entries = std::fs::read_dir(&folder).expect("lists");
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect()
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while names().len() < 2 {
        assert!(std::time::Instant::now() < deadline, "it never begins to write");
        std::thread::yield_now();
    }
    save.kill().expect("kills");
    save.wait().expect("ends");
    drop(daemon.join().expect("has begun"));
    assert_eq!(std::fs::read_to_string(&file).expect("reads"), "add id 1 all accept\n");
    let left: Vec<_> = names().into_iter().filter(|name| name != "a.mmb").collect();
    assert!(matches!(&left[..], [one] if one.starts_with(".a.mmb.mmb-") && one.ends_with('~')), "{left:?}");
    mmb.good(&["save", &name]);
    assert_eq!(names(), ["a.mmb"]);
    assert_eq!(std::fs::read_to_string(&file).expect("reads"), "add id 7 all accept\n");
}
