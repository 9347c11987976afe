//! What daemons say is in the documents that people look it up in.

use mmb_control::protocol;
use mmb_engine::DropReason;
use std::path::Path;

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(path).expect("it is there")
}

#[test]
fn every_reason_for_a_drop_is_told_with_what_to_do() {
    let text = document("operations.md");
    for reason in DropReason::ALL {
        let row =
            text.lines().find(|line| line.starts_with('|') && line.contains(&format!("`{}`", reason.name())));
        assert!(row.is_some(), "{}", reason.name());
    }
}

#[test]
fn every_request_is_described() {
    let text = document("protocol.md");
    let unknown = protocol::decode(br#"{"v":1,"do":"dance"}"#).expect_err("cannot be asked").to_string();
    let (_, known) = unknown.split_once("what can is: ").expect("it tells what can");
    assert!(known.split(", ").count() >= 7);
    for request in known.split(", ") {
        assert!(text.contains(&format!("**`{request}`**")), "{request}");
    }
}
