//! mmb-policy(5).

use super::page::{begin, code, finish, inline, see_also};
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use mmb_language::reference::{Block, blocks};

/// Returns the page.
pub(super) fn page() -> String {
    let mut page = begin("mmb-policy", "5", "rule language and policy files of mmb");
    let mut blocks = blocks().into_iter().peekable();
    // The page has a title already; the text below the reference's title is the description.
    blocks.next_if(|block| matches!(block, Block::Heading(1, _)));
    page.control("SH", ["DESCRIPTION"]);
    blocks.for_each(|block| write(&mut page, block));
    see_also(&mut page, "mmb", "1");
    finish(&page)
}

fn write(page: &mut Roff, block: Block) {
    match block {
        Block::Heading(level, text) if level <= 2 => {
            page.control("SH", [text.to_uppercase().as_str()]);
        }
        Block::Heading(_, text) => {
            page.control("SS", [text.as_str()]);
        }
        Block::Paragraph(text) => {
            page.control("PP", []);
            page.text(inline(&text));
        }
        Block::List(items) => items.iter().for_each(|item| {
            page.control("IP", ["\\(bu", "2"]);
            page.text(inline(item));
        }),
        Block::Code(_, text) => code(page, &text),
        Block::Table(head, rows) => rows.iter().for_each(|row| entry(page, &head, row)),
    }
}

/// Writes a row of a table: its first cell as a term, then its description, then the other cells with their headings.
fn entry(page: &mut Roff, head: &[&str], row: &[String]) {
    let (Some(first), Some(_)) = (row.first(), head.first()) else { return };
    let cells = || head.iter().zip(row).skip(1).filter(|(_, cell)| !cell.is_empty());
    let is_main = |head: &str| head.starts_with("what it") || head == "names";
    page.control("TP", []);
    page.text(term(first));
    let mut text: Vec<Inline> =
        cells().filter(|(head, _)| is_main(head)).flat_map(|(_, cell)| inline(cell)).collect();
    for (head, cell) in cells().filter(|(head, _)| !is_main(head)) {
        text.push(roman(if text.is_empty() { "" } else { "; " }));
        text.push(italic(*head));
        text.push(roman(": "));
        text.extend(inline(cell));
    }
    page.text(text);
}

/// Formats a first cell, which is one piece of code or a list of code.
fn term(cell: &str) -> Vec<Inline> {
    if cell.contains('`') { inline(cell) } else { vec![bold(cell)] }
}
