//! The reference page is current, and what it shows can be pasted.

use mmb_language::parse_policy_with;
use mmb_language::reference::{Block, CodeKind, blocks, markdown};
use mmb_policy::PatternList;

/// Where the page is.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/language.md");

#[test]
fn the_page_is_current() {
    let made = markdown();
    if std::env::var_os("MMB_BLESS").is_some() {
        std::fs::write(PAGE, &made).expect("docs can be written");
    }
    let page = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(page == made, "docs/language.md is not current: run `make doc`");
}

/// They were listed with numbers, which `ct` does not take.
#[test]
fn states_are_listed_as_the_words_that_they_are() {
    let page = markdown();
    assert!(page.contains("| `ct` | `new`, `established`, `related`, `reply`, `invalid` |"));
    assert!(page.contains("`tcp` 6, `udp` 17"), "others are told with what they stand for");
}

#[test]
fn commands_of_the_page_parse() {
    let mut seen = 0;
    for block in blocks() {
        if let Block::Code(CodeKind::Commands, code) = block {
            seen += 1;
            let list = |file: &str| Ok(PatternList::new(file.to_owned(), vec![b"a".to_vec()]));
            if let Err(errors) = parse_policy_with(&code, &list) {
                panic!("{}", errors.iter().map(|error| error.render("reference", &code)).collect::<String>());
            }
        }
    }
    assert!(seen >= 2);
}
