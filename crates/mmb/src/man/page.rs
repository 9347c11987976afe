//! The parts of a man page.

use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

/// Begins a page: its title line, its name and a description.
pub(super) fn begin(name: &str, section: &str, about: &str) -> Roff {
    let mut page = Roff::new();
    let version = format!("mmb {}", env!("CARGO_PKG_VERSION"));
    page.control("TH", [name, section, " ", version.as_str(), "mmb manual"]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!("{name} - {about}"))]);
    page
}

/// Returns the page as text, with characters beyond ASCII as roff escapes.
pub(super) fn finish(page: &Roff) -> String {
    let ascii = |c: char| if c.is_ascii() { c.to_string() } else { format!("\\[u{:04X}]", u32::from(c)) };
    page.to_roff().chars().map(ascii).collect()
}

/// Formats text, with its `code` in bold.
pub(super) fn inline(text: &str) -> Vec<Inline> {
    let piece = |(number, piece): (usize, &str)| if number % 2 == 0 { roman(piece) } else { bold(piece) };
    text.split('`').enumerate().filter(|(_, piece)| !piece.is_empty()).map(piece).collect()
}

/// Writes lines verbatim.
pub(super) fn code(page: &mut Roff, text: &str) {
    page.control("PP", []);
    page.control("RS", ["4"]);
    page.control("nf", []);
    for line in text.lines() {
        page.text([roman(line)]);
    }
    page.control("fi", []);
    page.control("RE", []);
}

/// Writes a section that refers to another page.
pub(super) fn see_also(page: &mut Roff, name: &str, section: &str) {
    page.control("SH", ["SEE ALSO"]);
    page.text([bold(name), roman(format!("({section})"))]);
}

/// Writes a term and its description.
pub(super) fn term(page: &mut Roff, name: Vec<Inline>, text: Vec<Inline>) {
    page.control("TP", []);
    page.text(name);
    page.text(text);
}

/// Formats an option or argument as a term: its name and its value.
pub(super) fn option_name(name: &str, value: Option<&str>) -> Vec<Inline> {
    let mut words = vec![bold(name)];
    if let Some(value) = value {
        words.extend([roman(" "), italic(value)]);
    }
    words
}
