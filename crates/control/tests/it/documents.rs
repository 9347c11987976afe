//! The documents describe the drop reasons, the tests and the requests that exist.

use mmb_engine::{DropReason, NotOffloadedReason};
use mmb_protocol::request;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(path).expect("it is there")
}

/// Checks that `docs/operations.md` has this table between two marks. `MMB_BLESS=1` writes it (`make doc`).
fn assert_current(marks: [&str; 2], table: &str) {
    let [begin, end] = marks.map(|mark| format!("<!-- {mark} -->\n"));
    let text = document("operations.md");
    let (before, rest) = text.split_once(&begin).expect("the first mark");
    let (committed, behind) = rest.split_once(&end).expect("the last mark");
    if std::env::var_os("MMB_BLESS").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
        std::fs::write(path, format!("{before}{begin}{table}{end}{behind}")).expect("written");
    } else {
        assert!(committed == table, "docs/operations.md is not current: run `make doc`");
    }
}

/// The tables of reasons are those of the engine. One test for both, since it may write the document.
#[test]
fn the_tables_of_reasons_are_current() {
    let mut table = "| drop reason | meaning | remedy |\n| --- | --- | --- |\n".to_owned();
    for reason in DropReason::ALL {
        let (meaning, remedy) = reason.explanation();
        assert!(!meaning.is_empty() && !meaning.contains('|') && !remedy.contains('|'), "{}", reason.name());
        table += &format!(
            "| `{}` | {meaning} | {remedy}{}|\n",
            reason.name(),
            if remedy.is_empty() { "" } else { " " }
        );
    }
    assert_current(["drop reasons, by make doc", "end of drop reasons"], &table);

    let mut table = "| reason | why the flow stays with mmb |\n| --- | --- |\n".to_owned();
    for reason in NotOffloadedReason::ALL {
        let (name, meaning) = (reason.name(), reason.meaning());
        assert!(!meaning.is_empty() && !meaning.contains('|'), "{name}");
        table += &format!("| `{name}` | {meaning} |\n");
    }
    assert_current(["kept flows, by make doc", "end of kept flows"], &table);
}

/// Collects the sources below a directory of the repository.
fn sources(directory: PathBuf, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).expect("it is there").flatten() {
        let path = entry.path();
        match path.extension().and_then(|end| end.to_str()) {
            Some("rs" | "py") => found.push(std::fs::read_to_string(path).expect("a source")),
            _ if path.is_dir() => sources(path, found),
            _ => {}
        }
    }
}

/// Returns whether a word is the name of a test: other words have fewer parts.
fn is_test(word: &str) -> bool {
    word.matches('_').count() >= 2
        && word.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
}

#[test]
fn every_test_that_the_security_page_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    sources(root.join("crates"), &mut found);
    sources(root.join("tests"), &mut found);
    let name = |line: &str| {
        let line = line.trim_start().trim_start_matches("pub(crate) ");
        let rest = line.strip_prefix("fn ").or_else(|| line.strip_prefix("def "))?;
        rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().map(str::to_owned)
    };
    let there: BTreeSet<String> = found.iter().flat_map(|text| text.lines()).filter_map(name).collect();
    let page = document("security.md");
    let named: BTreeSet<&str> = page.split('`').skip(1).step_by(2).filter(|word| is_test(word)).collect();
    assert!(named.len() > 50, "{} tests", named.len());
    let absent: Vec<_> = named.iter().filter(|name| !there.contains(**name)).collect();
    assert!(absent.is_empty(), "{absent:?}");
}

#[test]
fn every_request_is_described() {
    let text = document("protocol.md");
    let unknown = request::decode(br#"{"v":1,"do":"dance"}"#).expect_err("an unknown request").to_string();
    let (_, known) = unknown.split_once("the requests are: ").expect("a list of requests");
    assert!(known.split(", ").count() >= 7);
    for request in known.split(", ") {
        assert!(text.contains(&format!("**`{request}`**")), "{request}");
    }
}
