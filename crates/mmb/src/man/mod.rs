//! The man pages, in roff: mmb(1) from the definitions of the command line, mmb-policy(5) from the reference of the
//! language. `mmb man` prints them; docs/man holds them as written by `make doc`.

mod command;
mod policy;

use crate::cli::{ManArgs, ManPage};
use crate::output;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use std::process::ExitCode;

/// Prints a page.
///
/// # Errors
/// None but what making the page in memory could meet.
pub(crate) fn main(args: &ManArgs) -> anyhow::Result<ExitCode> {
    let page = match args.page {
        ManPage::Mmb => command::page()?,
        ManPage::MmbPolicy => policy::page(),
    };
    output::print(&page);
    Ok(ExitCode::SUCCESS)
}

/// A page's beginning: its title line and its name with what it is.
fn begin(name: &str, section: &str, about: &str) -> Roff {
    let mut page = Roff::new();
    let version = format!("mmb {}", env!("CARGO_PKG_VERSION"));
    page.control("TH", [name, section, " ", version.as_str(), "mmb manual"]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!("{name} - {about}"))]);
    page
}

/// The page as text. Characters beyond ASCII are written in roff's own way, since not every reader expects them.
fn finish(page: &Roff) -> String {
    let ascii = |c: char| if c.is_ascii() { c.to_string() } else { format!("\\[u{:04X}]", u32::from(c)) };
    page.to_roff().chars().map(ascii).collect()
}

/// Text with its `code` in bold.
fn inline(text: &str) -> Vec<Inline> {
    let piece = |(number, piece): (usize, &str)| if number % 2 == 0 { roman(piece) } else { bold(piece) };
    text.split('`').enumerate().filter(|(_, piece)| !piece.is_empty()).map(piece).collect()
}

/// Lines that are shown as they are.
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

/// A section that names other pages.
fn see_also(page: &mut Roff, name: &str, section: &str) {
    page.control("SH", ["SEE ALSO"]);
    page.text([bold(name), roman(format!("({section})"))]);
}

/// A term with what there is to say of it.
fn term(page: &mut Roff, name: Vec<Inline>, text: Vec<Inline>) {
    page.control("TP", []);
    page.text(name);
    page.text(text);
}

/// An option or argument as a term: its name and its value.
fn option_name(name: &str, value: Option<&str>) -> Vec<Inline> {
    let mut words = vec![bold(name)];
    if let Some(value) = value {
        words.extend([roman(" "), italic(value)]);
    }
    words
}
