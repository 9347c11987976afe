//! Tables in Markdown.

/// A table: its rows, without the header.
pub(crate) struct Table {
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

pub(crate) struct Row {
    pub(crate) line: usize,
    pub(crate) cells: Vec<String>,
}

/// The tables of a document.
pub(crate) fn tables(text: &str) -> Vec<Table> {
    let mut found: Vec<Table> = Vec::new();
    let mut inside = false;
    for (at, line) in text.lines().enumerate() {
        let Some(cells) = cells(line) else {
            inside = false;
            continue;
        };
        match found.last_mut() {
            Some(table) if inside => {
                let is_rule = cells.iter().all(|cell| cell.chars().all(|char| char == '-' || char == ':'));
                if !is_rule {
                    table.rows.push(Row { line: at + 1, cells });
                }
            }
            _ => found.push(Table { header: cells, rows: Vec::new() }),
        }
        inside = true;
    }
    found
}

fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(|cell| cell.trim().to_owned()).collect())
}

/// The names in a cell, which commas separate.
pub(crate) fn names(cell: &str) -> Vec<String> {
    let names = cell.split(',').map(|name| name.trim().trim_matches('`').to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

/// A list of names for a message.
pub(crate) fn list<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}
