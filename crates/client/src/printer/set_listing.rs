//! Named sets for people.

use super::text_table::{Align, TextTable};
use crate::report::counted;
use crate::screen::Screen;
use mmb_language::Timeout;
use mmb_protocol::answer::{ElementLine, SetChangeLine, SetLine};

/// Prints all sets.
pub(super) fn show(screen: &mut Screen<'_>, sets: &[SetLine]) {
    if sets.is_empty() {
        return screen.text("no sets\n");
    }
    let mut table = TextTable::new(&[
        ("SET", Align::Left),
        ("ELEMENTS", Align::Right),
        ("IPV4", Align::Right),
        ("IPV6", Align::Right),
        ("NUMBERS", Align::Right),
        ("BYTES", Align::Right),
        ("RULES", Align::Right),
    ]);
    for set in sets {
        let numbers = [set.elements, set.ip4, set.ip6, set.numbers, set.bytes, set.rules];
        let numbers = numbers.map(|number| number.to_string());
        table.row(screen, std::iter::once(set.name.clone()).chain(numbers).collect());
    }
    table.end(screen, None);
}

/// Prints an element as a command would have it.
pub(super) fn element(screen: &mut Screen<'_>, line: &ElementLine) {
    match line.expires_s {
        Some(seconds) => {
            screen.text(&format!("{} timeout {}\n", line.element, Timeout(seconds.saturating_mul(1000))));
        }
        None => screen.text(&format!("{}\n", line.element)),
    }
}

/// Prints what became of a set.
pub(super) fn change(screen: &mut Screen<'_>, line: &SetChangeLine) {
    let name = &line.name;
    match (line.before, line.elements) {
        (_, None) => screen.text(&format!("@{name} is gone\n")),
        (None, Some(elements)) => screen.text(&format!("@{name} has {}\n", counted(elements, "element"))),
        (Some(before), Some(elements)) => {
            screen.text(&format!("@{name} has {} now, {before} before\n", counted(elements, "element")));
        }
    }
}
