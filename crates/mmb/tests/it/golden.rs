//! Golden cases: `mmb replay` on the captures of tests/golden writes, byte for byte, the captures that scapy wrote, and prints the same
//! counters. tests/golden/make.py describes each case.

use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

/// Returns the faults of a case; the text is empty without faults.
fn faults_of(case: &Path) -> String {
    let name = case.file_name().expect("a name").to_string_lossy();
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("golden-{name}.pcap"));
    let arguments = std::fs::read_to_string(case.join("arguments")).unwrap_or_default();
    let run = Command::new(env!("CARGO_BIN_EXE_mmb"))
        .args(["replay", "--json", "--rules"])
        .arg(case.join("policy.mmb"))
        .args(arguments.split_whitespace())
        .arg(case.join("in.pcap"))
        .arg(&out)
        .output()
        .expect("mmb runs");
    let told = String::from_utf8_lossy(&run.stdout);
    if !run.status.success() {
        return format!("{}: {told}{}\n", run.status, String::from_utf8_lossy(&run.stderr));
    }
    let mut faults = String::new();
    let expected: Value = serde_json::from_slice(&read(&case.join("summary.json"))).expect("JSON");
    match serde_json::from_str::<Value>(&told) {
        Ok(mut summary) => {
            let dropped = without_drops(&mut summary);
            if summary != expected || dropped != expected["drops"]["rule"].as_u64().unwrap_or(0) {
                let _ = writeln!(faults, "summary:  {summary}, {dropped} dropped\nexpected: {expected}");
            }
        }
        Err(error) => {
            let _ = writeln!(faults, "no JSON ({error}): {told}");
        }
    }
    let (written, expected) = (read(&out), read(&case.join("out.pcap")));
    if written != expected {
        faults += &difference(&written, &expected);
    }
    let _ = std::fs::remove_file(&out);
    faults
}

/// Takes the dropped packets of each rule, which scapy does not know, out of a summary; returns their sum, which it knows.
fn without_drops(summary: &mut Value) -> u64 {
    let rules = summary["rules"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut);
    let dropped = rules.map(|rule| {
        rule.remove("dropped_bytes");
        rule.remove("dropped_packets").and_then(|dropped| dropped.as_u64()).expect("a number")
    });
    dropped.sum()
}

/// Returns the bytes around the first difference of two captures.
fn difference(written: &[u8], expected: &[u8]) -> String {
    let at = written.iter().zip(expected).take_while(|(a, b)| a == b).count();
    let around = |bytes: &[u8]| -> String {
        let part = &bytes[at.saturating_sub(48).min(bytes.len())..(at + 48).min(bytes.len())];
        part.chunks(4)
            .map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + " ")
            .collect()
    };
    format!(
        "captures of {} and {} bytes differ from byte {at} on:\n          {}\nexpected: {}\n",
        written.len(),
        expected.len(),
        around(written),
        around(expected)
    )
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn captures_agree_with_scapy() {
    let mut cases: Vec<PathBuf> = std::fs::read_dir(folder())
        .expect("tests/golden")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.join("policy.mmb").exists())
        .collect();
    cases.sort();
    assert!(cases.len() > 100, "the golden cases are missing");
    let mut report = String::new();
    for case in &cases {
        let faults = faults_of(case);
        if !faults.is_empty() {
            let _ = writeln!(report, "== {}\n{faults}", case.display());
        }
    }
    assert!(report.is_empty(), "\n{report}");
}
