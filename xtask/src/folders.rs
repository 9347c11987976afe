//! Tables in ARCHITECTURE.md that order the files of a crate.
//!
//! The first cell of the header is ``files of `crates/NAME` ``. The first cell of a row has the names of
//! modules of the crate's root; a name with a `/` is a folder with the file that declares its modules. A file
//! uses only files of its own row and of rows above.

use std::collections::BTreeMap;
use std::path::Path;

use crate::table::{Table, names};
use crate::uses::{Example, FileUses};
use crate::workspace::{Package, Workspace};

/// The crate whose files a table orders.
fn crate_of(table: &Table) -> Option<&str> {
    table.header[0].strip_prefix("files of ").map(|name| name.trim_matches('`'))
}

/// Tables for crates that do not exist.
pub(crate) fn unknown(workspace: &Workspace, tables: &[Table]) -> Vec<String> {
    let known = |name: &str| workspace.packages.iter().any(|package| workspace.directory_of(package) == name);
    let names = tables.iter().filter_map(crate_of).filter(|name| !known(name));
    names
        .map(|name| format!("ARCHITECTURE.md: a table orders the files of {name}, which is no crate"))
        .collect()
}

/// Compares what the files of a package use with its table.
pub(crate) fn check(
    workspace: &Workspace,
    package: &Package,
    uses: &FileUses,
    tables: &[Table],
) -> Vec<String> {
    let directory = workspace.directory_of(package);
    let Some(table) = tables.iter().find(|table| crate_of(table) == Some(&directory)) else {
        let lacks = package.has_ordered_files();
        let fault = format!("ARCHITECTURE.md: no table has the header `files of {directory}`");
        return lacks.then_some(fault).into_iter().collect();
    };
    let sources = package.directory().join("src");
    let part = |file: &Path| part_of(&sources, file);
    let mut faults = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (place, row) in table.rows.iter().enumerate() {
        for name in names(&row.cells[0]) {
            let name = name.trim_end_matches('/').to_owned();
            if !uses.keys().any(|file| part(file) == name) {
                faults.push(format!("ARCHITECTURE.md:{}: {directory} has no files {name}", row.line));
            }
            if places.insert(name.clone(), place).is_some() {
                faults.push(format!("ARCHITECTURE.md:{}: a second row for {name} of {directory}", row.line));
            }
        }
    }
    let mut unnamed: Vec<String> = uses.keys().map(|file| part(file)).collect();
    unnamed.retain(|part| !places.contains_key(part) && !is_root(part));
    unnamed.dedup();
    let lacking = |part| format!("ARCHITECTURE.md: the table of the files of {directory} lacks {part}");
    faults.extend(unnamed.into_iter().map(lacking));
    for (file, used, example) in edges(uses) {
        let (user, used_part) = (part(file), part(used));
        let is_above = places.get(&user) >= places.get(&used_part);
        if !is_root(&user) && !is_above {
            faults.push(format!(
                "{}:{} uses {} of {used_part}, which stands below {user} in ARCHITECTURE.md",
                workspace.relative(file),
                example.line,
                example.path,
            ));
        }
    }
    faults
}

fn edges(uses: &FileUses) -> impl Iterator<Item = (&Path, &Path, &Example)> {
    uses.iter().flat_map(|(file, used)| {
        used.iter().map(move |(used, example)| (file.as_path(), used.as_path(), example))
    })
}

/// The name in the crate's root under which a file lies.
fn part_of(sources: &Path, file: &Path) -> String {
    let inside = file.strip_prefix(sources).unwrap_or(file).with_extension("");
    inside
        .components()
        .next()
        .map(|first| first.as_os_str().to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Whether the part is the root, which declares the others.
fn is_root(part: &str) -> bool {
    matches!(part, "lib" | "main")
}
