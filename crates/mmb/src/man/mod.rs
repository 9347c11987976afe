//! The man pages, in roff: mmb(1) from the definitions of the command line, mmb-policy(5) from the reference of the
//! language. `mmb man` prints them; `make doc` writes them to docs/man.

mod command;
mod policy;

use crate::cli::{ManArgs, ManPage};
use crate::output;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use std::process::ExitCode;

/// Prints a page.
///
/// # Errors
/// The page cannot be made.
pub(crate) fn main(args: &ManArgs) -> anyhow::Result<ExitCode> {
    let page = match args.page {
        ManPage::Mmb => command::page()?,
        ManPage::MmbPolicy => policy::page(),
    };
    output::print(&page);
    Ok(ExitCode::SUCCESS)
}

/// Begins a page: its title line, its name and a description.
fn begin(name: &str, section: &str, about: &str) -> Roff {
    let mut page = Roff::new();
    let version = format!("mmb {}", env!("CARGO_PKG_VERSION"));
    page.control("TH", [name, section, " ", version.as_str(), "mmb manual"]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!("{name} - {about}"))]);
    page
}

/// Returns the page as text, with characters beyond ASCII as roff escapes.
fn finish(page: &Roff) -> String {
    let ascii = |c: char| if c.is_ascii() { c.to_string() } else { format!("\\[u{:04X}]", u32::from(c)) };
    page.to_roff().chars().map(ascii).collect()
}

/// Formats text, with its `code` in bold.
fn inline(text: &str) -> Vec<Inline> {
    let piece = |(number, piece): (usize, &str)| if number % 2 == 0 { roman(piece) } else { bold(piece) };
    text.split('`').enumerate().filter(|(_, piece)| !piece.is_empty()).map(piece).collect()
}

/// Writes lines verbatim.
fn code(page: &mut Roff, text: &str) {
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
fn see_also(page: &mut Roff, name: &str, section: &str) {
    page.control("SH", ["SEE ALSO"]);
    page.text([bold(name), roman(format!("({section})"))]);
}

/// Writes a term and its description.
fn term(page: &mut Roff, name: Vec<Inline>, text: Vec<Inline>) {
    page.control("TP", []);
    page.text(name);
    page.text(text);
}

/// Formats an option or argument as a term: its name and its value.
fn option_name(name: &str, value: Option<&str>) -> Vec<Inline> {
    let mut words = vec![bold(name)];
    if let Some(value) = value {
        words.extend([roman(" "), italic(value)]);
    }
    words
}
