//! `mmb bench`: every row of `--workload streams` is reported, and options mean what they say. Figures are not judged here.

use serde_json::Value;
use std::process::{Command, Output};

fn bench(options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mmb"))
        .args(["bench", "--json"])
        .args(options)
        .output()
        .expect("mmb runs")
}

fn report(options: &[&str]) -> Value {
    let words = [&["--workload", "streams", "--flows", "40", "--rounds", "1"], options].concat();
    let run = bench(&words);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    serde_json::from_slice(&run.stdout).expect("JSON")
}

#[test]
fn every_policy_on_streams_is_measured() {
    let report = report(&[]);
    let rows = report["rows"].as_array().expect("rows");
    let literals: Vec<_> = rows.iter().filter_map(|row| row["literals"].as_u64()).collect();
    assert_eq!(literals, [0, 0, 0, 0, 0, 0, 1, 100, 1000, 10_000, 1, 0, 0, 0, 0, 0, 0, 100]);
    assert_eq!(report["payload_bytes"], 40 * 8 * 1448);
    assert_eq!(report["packets"], 40 * 12);
    for row in rows {
        assert!(row["cycles_per_byte"].as_f64().is_some_and(|cycles| cycles > 0.0), "{row}");
        let stages = row["stages"].as_array().expect("stages");
        let streams = stages.iter().find(|stage| stage["name"] == "streams").expect("a stage of streams");
        let without = ["no rules", "connections", "NAT and balancing", "chain: NAT"];
        let follows = !without.map(Value::from).contains(&row["name"]);
        assert_eq!(streams["cycles_per_packet"].as_f64() > Some(0.0), follows, "{row}");
    }
    assert_eq!(report["idle"]["streams"], 4000);
}

#[test]
fn some_policies_on_streams_are_measured_alone() {
    let report = report(&["--only", "digest"]);
    assert_eq!(report["rows"].as_array().map(Vec::len), Some(3));
    assert!(report["idle"].is_null());
}

#[test]
fn two_workers_are_measured_alone_and_together() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let words = ["--workload", "streams", "--flows", "40", "--workers", "2", "--seconds", "0.01"];
    for (only, count) in [("chain", 5), ("edit", 3)] {
        let run = bench(&[&words[..], &["--only", only]].concat());
        if cores < 2 {
            assert!(String::from_utf8_lossy(&run.stderr).contains("2 workers need a core each"));
            continue;
        }
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        let report: Value = serde_json::from_slice(&run.stdout).expect("JSON");
        let rows = report["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), count);
        for row in rows {
            for speeds in [&row["gbit_s_alone"], &row["gbit_s_together"]] {
                let speeds: Vec<f64> =
                    speeds.as_array().expect("speeds").iter().filter_map(Value::as_f64).collect();
                assert!(speeds.len() == 2 && speeds.iter().all(|speed| *speed > 0.0), "{row}");
            }
            assert!(row["scaling"].as_f64() > Some(0.0), "{row}");
        }
    }
}

#[test]
fn options_for_other_sets_are_refused() {
    for options in [&["--workload", "streams", "--size", "5"][..], &["--workload", "empty", "--flows", "5"]] {
        let run = bench(options);
        let told = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.code() == Some(2) && told.contains("--workload streams"), "{told}");
    }
}

/// Runs `mmb bench` with a small set and one round.
fn small(options: &[&str]) -> Output {
    let words = ["--workload", "five-tuple", "--size", "100", "--rounds", "1"];
    bench(&[&words[..], options].concat())
}

#[test]
fn flows_of_a_zipf_distribution_and_further_rules_are_measured() {
    let words = [
        "--zipf",
        "1000",
        "--skew",
        "1.2",
        "--with",
        "ip-ttl 1-255 accept",
        "--with",
        "add prio 5 tcp-opt-mss 536 drop",
    ];
    let run = small(&words);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let report: Value = serde_json::from_slice(&run.stdout).expect("JSON");
    assert_eq!(report["rules"], 102);
    assert_eq!(report["packets"], 65_536);
    assert_eq!(
        report["matches_per_packet"].as_f64(),
        Some(1.0),
        "the first rule beside matches every packet"
    );
}

#[test]
fn further_rules_do_not_change_the_packets() {
    let folder = std::env::temp_dir().join(format!("mmb-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let captured = |name: &str, options: &[&str]| {
        let path = folder.join(name);
        let words = ["--hit", "1", "--packets", "50", "--write-pcap", path.to_str().expect("a path")];
        let run = small(&[&words[..], options].concat());
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        std::fs::read(path).expect("a capture")
    };
    let without = captured("without", &[]);
    assert!(without == captured("with", &["--with", "ip-ttl 1 drop"]));
    assert!(without != captured("zipf", &["--zipf", "5"]));
    std::fs::remove_dir_all(folder).expect("a folder");
}

#[test]
fn options_that_cannot_be_used_are_refused() {
    for (options, message) in [
        (&["--with", "show"][..], "--with 'show': unknown word `show`"),
        (&["--with", "add"], "--with 'add'"),
        (&["--skew", "1"], "--zipf"),
        (&["--zipf", "5", "--skew=-1"], "an exponent is a number from 0 to 4"),
        (&["--zipf", "5", "--skew=5"], "an exponent is a number from 0 to 4"),
        (&["--zipf", "5", "--locality"], "--locality"),
        (&["--zipf", "5", "--pcap", "in.pcap"], "--pcap"),
    ] {
        let run = small(options);
        let told = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.code() == Some(2) && told.contains(message), "{options:?}: {told}");
    }
}
