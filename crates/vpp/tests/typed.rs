//! A line that VPP may have changed before mmb sees it installs no rule.

#[path = "../src/typed.rs"]
mod typed;

use typed::line;

#[test]
fn quoted_text_of_rules_is_refused_since_vpp_takes_backslashes_away() {
    // What VPP makes of "\x00", and of "$HOME".
    for written in [r#"payload "x00" drop"#, r#"payload "UNSET " drop"#, r#"payload "GET" drop # a comment"#]
    {
        for command in ["add", "add-stateful"] {
            let why = line(written.as_bytes(), command).expect_err("VPP may have changed it");
            assert!(why.contains("|47 45 54|"), "{why}");
        }
    }
}

#[test]
fn bytes_beyond_ascii_are_refused() {
    for bytes in [&b"name caf\xc3\xa9 all drop"[..], b"payload |00| drop \xff"] {
        assert!(line(bytes, "add").is_err());
    }
}

#[test]
fn other_lines_come_as_they_were_written() {
    for written in ["payload |47 45 54 20| drop", "all drop # \"quoted\"", ""] {
        assert_eq!(line(written.as_bytes(), "add").as_deref(), Ok(written));
    }
    assert_eq!(line(br#""/etc/my policy""#, "apply").as_deref(), Ok(r#""/etc/my policy""#));
}
