//! `mmb replay` and `mmb check` as programs: files, streams, exit statuses and errors. The golden cases test the processing of packets.

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The directory of one test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("replay-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    /// Writes a file; returns its path.
    fn put(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        std::fs::write(&path, content).expect("a file");
        path
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.at(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Runs mmb in the folder; `line` is its command line.
    fn mmb(&self, line: &str) -> Output {
        self.command(line).output().expect("mmb runs")
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mmb"));
        command.args(line.split_whitespace()).current_dir(&self.0);
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("no signal")
}

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// A UDP packet over raw IPv4, of 28 bytes and a payload.
fn packet(payload: &[u8]) -> Vec<u8> {
    let mut packet =
        vec![0x45, 0, 0, 28 + payload.len() as u8, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let sum: u32 = packet.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend([0x9c, 0x40, 0, 53, 0, 8 + payload.len() as u8, 0, 0]);
    packet.extend(payload);
    packet
}

/// A pcap of raw IP packets at times in seconds.
fn capture(packets: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 101] {
        out.extend(u32::to_le_bytes(word));
    }
    for (time, packet) in packets {
        for word in [*time, 0, packet.len() as u32, packet.len() as u32] {
            out.extend(word.to_le_bytes());
        }
        out.extend(packet);
    }
    out
}

fn three() -> Vec<u8> {
    capture(&[(1, packet(b"one")), (2, packet(b"two")), (3, packet(b"three"))])
}

#[test]
fn an_empty_policy_gives_the_same_bytes() {
    let folder = Folder::new("empty");
    folder.put("p", "# nothing\n");
    folder.put("in", three());
    let run = folder.mmb("replay --rules p in out");
    assert_eq!(status(&run), 0, "{run:?}");
    assert_eq!(folder.read("out"), three());
    let text = String::from_utf8(run.stdout).expect("text");
    assert!(text.starts_with("in") && text.contains("3 packets"), "{text}");
    assert!(run.stderr.is_empty());
}

#[test]
fn packets_leave_by_the_other_port_in_the_order_of_time() {
    let folder = Folder::new("sides");
    folder.put(
        "p",
        "add in inside mod ip-ttl 1\nadd in outside mod ip-ttl 2\nadd out inside udp-payload |00| drop\n",
    );
    folder.put("1", capture(&[(1, packet(b"a")), (5, packet(b"b"))]));
    folder.put("2", capture(&[(2, packet(b"c")), (3, packet(b"\0")), (9, packet(b"d"))]));
    let run = folder.mmb("replay --json --rules p --port inside=1:from-outside --port outside=2:from-inside");
    assert_eq!(status(&run), 0, "{run:?}");
    let summary = json(&run);
    assert_eq!(summary["in"]["packets"], 5);
    assert_eq!(summary["out"]["packets"], 4);
    assert_eq!(summary["drops"], serde_json::json!({ "rule": 1 }));
    let counts: Vec<&Value> =
        summary["rules"].as_array().unwrap().iter().map(|rule| &rule["packets"]).collect();
    assert_eq!(counts, [2, 3, 1]);
    // Packets that entered at `inside` left by `outside`, and the reverse.
    let ttls = |name: &str| -> Vec<(u8, u8)> {
        let bytes = folder.read(name);
        let packets: Vec<&[u8]> = bytes[24..].chunks(16 + 29).collect();
        packets.iter().map(|packet| (packet[0], packet[16 + 8])).collect()
    };
    assert_eq!(ttls("from-inside"), [(1, 1), (5, 1)]);
    assert_eq!(ttls("from-outside"), [(2, 2), (9, 2)]);
}

#[test]
fn the_seed_decides_percentages_and_nothing_else_does() {
    let folder = Folder::new("seed");
    folder.put("p", "add all drop 50\n");
    let packets: Vec<(u32, Vec<u8>)> = (0..1000).map(|time| (time, packet(b"x"))).collect();
    folder.put("in", capture(&packets));
    for (out, seed) in [("1", "--seed 7"), ("2", "--seed 7"), ("3", "--seed 8"), ("4", "--seed 0"), ("5", "")]
    {
        let run = folder.mmb(&format!("replay --json --rules p {seed} in {out}"));
        let dropped = json(&run)["drops"]["rule"].as_u64().expect("drops");
        assert!((400..600).contains(&dropped), "{dropped} of 1000");
    }
    assert_eq!(folder.read("1"), folder.read("2"));
    assert_ne!(folder.read("1"), folder.read("3"));
    assert_eq!(folder.read("4"), folder.read("5"));
}

#[test]
fn standard_input_and_output_hold_captures() {
    let folder = Folder::new("pipe");
    folder.put("p", "add udp-payload \"two\" drop\n");
    let mut child = folder
        .command("replay --json --rules p - -")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("mmb runs");
    child.stdin.take().expect("a pipe").write_all(&three()).expect("mmb reads");
    let run = child.wait_with_output().expect("mmb ends");
    assert_eq!(status(&run), 0);
    assert_eq!(run.stdout, capture(&[(1, packet(b"one")), (3, packet(b"three"))]));
    let summary: Value = serde_json::from_slice(&run.stderr).expect("the summary is on standard error");
    assert_eq!(summary["drops"]["rule"], 1);
}

#[test]
fn a_damaged_capture_is_processed_up_to_the_damage() {
    let folder = Folder::new("broken");
    folder.put("p", "");
    let mut bytes = three();
    bytes.truncate(bytes.len() - 1);
    folder.put("in", &bytes);
    let run = folder.mmb("replay --json --rules p in out");
    assert_eq!(status(&run), 1);
    let summary = json(&run);
    assert_eq!((&summary["in"]["packets"], &summary["out"]["packets"]), (&2.into(), &2.into()));
    let error = summary["error"].as_str().expect("an error");
    assert!(error.starts_with("in: packet 3 at byte 118 is cut off"), "{error}");
    assert!(stderr_of(&run).contains(error));
    assert_eq!(folder.read("out"), capture(&[(1, packet(b"one")), (2, packet(b"two"))]));

    // The other input is processed to its end.
    folder.put("whole", three());
    let run = folder.mmb("replay --json --rules p --port a=in:1 --port b=whole:2");
    assert_eq!(status(&run), 1);
    assert_eq!(json(&run)["out"]["packets"], 5);
    assert_eq!(folder.read("1"), three());
}

#[test]
fn packets_cut_by_the_snap_length_get_a_note() {
    let folder = Folder::new("cut");
    folder.put("p", "");
    let mut bytes = capture(&[(1, packet(b"whole")), (2, packet(b"cut off")[..30].to_vec())]);
    let at = bytes.len() - 30 - 4;
    bytes[at..at + 4].copy_from_slice(&35u32.to_le_bytes());
    folder.put("in", bytes);
    let run = folder.mmb("replay --json --rules p in out");
    assert_eq!(status(&run), 0);
    assert_eq!(json(&run)["drops"]["ip4-truncated"], 1);
    assert!(
        stderr_of(&run).contains("in: note: 1 packet (number 2) is in the capture only in part"),
        "{}",
        stderr_of(&run)
    );
}

#[test]
fn an_input_that_is_no_capture_leaves_the_output_unchanged() {
    let folder = Folder::new("nothing");
    folder.put("p", "");
    for (content, part) in [
        (&b""[..], "it is empty"),
        (b"\x1f\x8b\x08\0\0\0\0\0", "compressed with gzip"),
        (b"add all drop\n", "neither pcap nor pcapng"),
        (&three()[..20], "the pcap header at byte 0 is cut off"),
    ] {
        folder.put("in", content);
        folder.put("out", "precious");
        let run = folder.mmb("replay --rules p in out");
        assert_eq!(status(&run), 1);
        assert!(
            stderr_of(&run).starts_with("mmb: in: ") && stderr_of(&run).contains(part),
            "{}",
            stderr_of(&run)
        );
        assert_eq!(folder.read("out"), b"precious");
    }
    for line in ["replay --rules p nowhere out", "replay --rules p . out", "replay --rules nowhere p out"] {
        let run = folder.mmb(line);
        assert_eq!(status(&run), 1, "{line}");
        assert!(stderr_of(&run).starts_with("mmb: "), "{}", stderr_of(&run));
    }
}

#[test]
fn no_file_in_use_is_written_over() {
    let folder = Folder::new("overwrite");
    folder.put("p", "");
    folder.put("in", three());
    folder.put("in2", three());
    std::fs::hard_link(folder.at("in"), folder.at("hard")).expect("a link");
    std::os::unix::fs::symlink("in", folder.at("soft")).expect("a link");
    for line in [
        "replay --rules p in in",
        "replay --rules p in ./in",
        "replay --rules p in hard",
        "replay --rules p in soft",
        "replay --rules p soft hard",
        "replay --rules p in p",
        "replay --rules p --port a=in:new --port b=in2:in",
        "replay --rules p --port a=in:new --port b=in2:new",
    ] {
        let run = folder.mmb(line);
        assert_eq!(status(&run), 1, "{line}");
        assert!(stderr_of(&run).contains("as well"), "{line}: {}", stderr_of(&run));
        assert_eq!(folder.read("in"), three());
        assert_eq!(folder.read("p"), b"");
    }
    assert_eq!(status(&folder.mmb("replay --rules p --port a=in:/dev/null --port b=in2:/dev/null")), 0);
}

#[test]
fn a_refused_policy_leaves_the_output_unchanged() {
    let folder = Folder::new("refused");
    folder.put("in", three());
    folder.put("out", "precious");
    for (policy, part) in [
        ("add udp-dprot 53 drop\n", "udp-dport"),
        ("add in c drop\n", "'c'"),
        ("add all\n", ""),
        ("\u{0}\n", ""),
    ] {
        folder.put("p", policy);
        let run = folder.mmb("replay --rules p in out");
        assert_eq!(status(&run), 1, "{policy}");
        assert!(stderr_of(&run).contains(part), "{policy}: {}", stderr_of(&run));
        assert_eq!(folder.read("out"), b"precious");
    }
    folder.put("p", "add udp-dport 53 drop\n\nadd udp-dprot 53 drop\nadd ip-ttl 256 drop\n");
    let error = json(&folder.mmb("replay --json --rules p in out"));
    assert_eq!((&error["line"], &error["column"]), (&3.into(), &5.into()), "{error}");
    assert_eq!(error["errors"].as_array().map(Vec::len), Some(2), "{error}");
    folder.put("p", b"add all drop\n\xff\n");
    assert!(stderr_of(&folder.mmb("replay --rules p in out")).contains("line 2 is not UTF-8"));
}

/// CVE-2021-42574: an argument that someone made up must not change what a terminal shows.
#[test]
fn hidden_characters_of_arguments_are_escaped() {
    let mmb = |words: &[&str]| {
        let run =
            std::process::Command::new(env!("CARGO_BIN_EXE_mmb")).args(words).output().expect("mmb runs");
        assert_eq!(status(&run), 2, "{run:?}");
        stderr_of(&run)
    };
    let unknown = mmb(&["\u{202e}foo\u{85}"]);
    assert!(unknown.contains("unrecognized subcommand '\\u{202e}foo\\u{85}'\n"), "{unknown}");
    let mtu = mmb(&["run", "--mtu", "\u{1b}[31m9"]);
    assert!(mtu.contains("invalid value '\\u{1b}[31m9' for '--mtu"), "{mtu}");
    let option = mmb(&["replay", "--\u{9b}2J"]);
    for text in [unknown, mtu, option] {
        assert!(!text.chars().any(|c| c.is_control() && c != '\n' || c == '\u{202e}'), "{text:?}");
    }
}

/// The seed of a live host would tell all ports and sequence numbers that it will choose.
#[test]
fn live_hosts_take_no_seed() {
    let run = Folder::new("no-seed").mmb("run --port a=lo --seed 7");
    assert_eq!(status(&run), 2, "{run:?}");
    assert!(stderr_of(&run).contains("unexpected argument '--seed'"), "{run:?}");
}

#[test]
fn bad_usage_is_exit_status_two() {
    let folder = Folder::new("usage");
    for line in [
        "replay",
        "replay in out",
        "replay --rules p in",
        "replay --rules p --port a=in:out",
        "replay --rules p --port a=in:out --port a=in:out",
        "replay --rules p --port a=in --port b=in:out",
        "replay --rules p --seed many in out",
        "replay --rules - - out",
        "bench --rules p --packets 10",
        "bench --rules p --seconds 0",
        "bench --workload five-tuple --classifier linear --updates",
        "bench --workload ranges --classifier linear --workers 2",
        "bench --workload ranges --updates --workers 2",
        "bench --workload ranges --workers 0",
        "check",
        "frobnicate",
        "add all --socket",
    ] {
        let run = folder.mmb(line);
        assert_eq!(status(&run), 2, "{line}: {run:?}");
        assert!(stderr_of(&run).contains("error:"), "{line}: {run:?}");
    }
    assert_eq!(status(&folder.mmb("--version")), 0);
    assert_eq!(status(&folder.mmb("help replay")), 0);
}

#[test]
fn check_reports_good_and_wrong_policies() {
    let folder = Folder::new("check");
    folder.put(
        "good",
        "add udp-dport 53 drop\nadd-stateful tcp-syn in nowhere accept\nadd ip-saddr 10.0.0.9/24 drop\n",
    );
    let run = folder.mmb("check good");
    assert_eq!((status(&run), &run.stdout[..]), (0, &b"good: good, 3 rules\n"[..]));
    assert!(stderr_of(&run).contains("10.0.0.0/24"), "a note on the masked bits: {}", stderr_of(&run));
    let answer = json(&folder.mmb("--json check good"));
    assert_eq!(answer["rules"][0], serde_json::json!({ "id": 1, "rule": "add udp-dport 53 drop" }));
    folder.put("bad", "add udp-dport 53\nadd udp-dport 65536 drop\n");
    let run = folder.mmb("check bad");
    assert_eq!(status(&run), 1);
    assert!(
        stderr_of(&run).contains("bad:1:") && stderr_of(&run).contains("bad:2:15"),
        "{}",
        stderr_of(&run)
    );
}

#[test]
fn a_closed_pipe_ends_the_program_quietly() {
    let folder = Folder::new("pipe-closed");
    let mut child = folder
        .command("completions bash")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("mmb runs");
    drop(child.stdout.take());
    let run = child.wait_with_output().expect("mmb ends");
    assert_eq!((status(&run), stderr_of(&run)), (0, String::new()));
}

#[test]
fn bench_changes_the_policy_while_it_forwards() {
    let folder = Folder::new("updates");
    let sets = "bench --workload five-tuple --size 1000 --json --updates --seconds 0.01";
    let run = folder.mmb(&format!("{sets} --changes 1500"));
    assert_eq!(status(&run), 0, "{run:?}");
    let result = json(&run);
    let rows = |name: &str| result[name].as_array().map_or(0, Vec::len);
    assert_eq!((rows("in_force"), rows("throughput")), (4, 6));
    assert!(result["in_force"][0]["p50_us"].as_f64().is_some_and(|us| us > 0.0), "{result}");
    assert_eq!(result["long_run"]["changes"], 2000, "whole batches");
    folder.put("none", "");
    assert_eq!(status(&folder.mmb("bench --rules none --updates")), 1);
}

#[test]
fn bench_distributes_packets_to_workers() {
    let folder = Folder::new("workers");
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    for set in ["five-tuple --size 1000", "stateful --size 1000"] {
        let run = folder.mmb(&format!("bench --workload {set} --workers 2 --seconds 0.01 --json"));
        if cores < 2 {
            assert_eq!(status(&run), 1);
            assert!(stderr_of(&run).contains("need a core each"), "{run:?}");
            continue;
        }
        assert_eq!(status(&run), 0, "{run:?}");
        let result = json(&run);
        let of_each =
            |name: &str| [0, 1].map(|worker: usize| result["workers"][worker][name].as_f64().unwrap());
        assert_eq!(of_each("packets").iter().sum::<f64>(), 65_536.0, "every packet is some worker's");
        assert!(of_each("packets").iter().all(|&packets| packets > 20_000.0), "{result}");
        let (alone, together) = (of_each("mpps_alone"), of_each("mpps_together"));
        let scaling = (together[0] + together[1]) / ((alone[0] + alone[1]) / 2.0);
        assert!((result["scaling"].as_f64().unwrap() / scaling - 1.0).abs() < 0.1, "{result}");
    }
}

#[test]
fn bench_measures_every_stage() {
    let folder = Folder::new("bench");
    folder.put("p", "add tcp-dport 443 mod tcp-dport 80\nadd all strip tcp-opt-timestamp\n");
    folder.put("in", three());
    for (line, packets) in
        [("bench --rules p --rounds 1 --json", 65_536), ("bench --rules p --rounds 3 --pcap in --json", 3)]
    {
        let run = folder.mmb(line);
        assert_eq!(status(&run), 0, "{run:?}");
        let result = json(&run);
        let names: Vec<&str> = result["stages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|stage| stage["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["parse", "classify", "connections", "streams", "rewrite", "forward"]);
        assert_eq!((&result["vector"], &result["packets"]), (&256.into(), &packets.into()));
        let instructions = result["instructions"].as_str().unwrap();
        assert!(["avx512", "avx2", "scalar"].contains(&instructions), "{instructions}");
        let all = result["cycles_per_packet"].as_f64().unwrap();
        let sum: f64 = result["stages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s["cycles_per_packet"].as_f64().unwrap())
            .sum();
        assert!(all > 1.0 && result["mpps"].as_f64().unwrap() > 0.0, "{result}");
        assert!(sum <= all * 1.2, "stages of {sum} cycles in {all}");
        assert!(result["tsc_hz"].as_u64().unwrap() > 1_000_000);
    }
    assert_eq!(status(&folder.mmb("bench --rules p --pcap p")), 1);
}
