//! The table of crates in ARCHITECTURE.md: each crate, and the crates that it depends on.
//!
//! The last column of its header is `depends on`. The first cell of a row has the directory of the crate, the
//! last cell the last parts of the directories of those that it depends on.

use std::collections::{BTreeMap, BTreeSet};

use crate::table::{Row, Table, list, names};
use crate::workspace::{Package, Workspace};

/// Compares the table with the manifests. Dependencies of tests and build scripts are left out.
pub(crate) fn check(workspace: &Workspace, tables: &[Table]) -> Vec<String> {
    let is_crates = |table: &&Table| table.header.last().is_some_and(|cell| cell == "depends on");
    let Some(table) = tables.iter().find(is_crates) else {
        return vec![
            "ARCHITECTURE.md: no table has a last column `depends on`: where are the crates?".to_owned(),
        ];
    };
    let known: BTreeMap<String, BTreeSet<String>> = workspace
        .packages
        .iter()
        .map(|package| (workspace.directory_of(package), dependencies(workspace, package)))
        .collect();
    let mut faults = Vec::new();
    let mut above: BTreeSet<String> = BTreeSet::new();
    let mut named: BTreeSet<String> = BTreeSet::new();
    for row in &table.rows {
        let directory = row.cells[0].trim_matches('`').to_owned();
        if let Some(depends) = known.get(&directory) {
            faults.extend(check_row(row, &directory, depends, &above));
        } else {
            faults.push(format!("ARCHITECTURE.md:{}: there is no crate {directory}", row.line));
        }
        above.insert(last_part(&directory));
        if !named.insert(directory.clone()) {
            faults.push(format!("ARCHITECTURE.md:{}: a second row for {directory}", row.line));
        }
    }
    let missing = known.keys().filter(|directory| !named.contains(*directory));
    faults.extend(missing.map(|directory| format!("ARCHITECTURE.md: the table of crates lacks {directory}")));
    faults
}

fn check_row(
    row: &Row,
    directory: &str,
    depends: &BTreeSet<String>,
    above: &BTreeSet<String>,
) -> Vec<String> {
    let said: BTreeSet<String> = names(row.cells.last().map_or("", String::as_str)).into_iter().collect();
    let mut faults = Vec::new();
    let mut fault = |text: String| faults.push(format!("ARCHITECTURE.md:{}: {directory} {text}", row.line));
    let (lacking, wrong): (Vec<_>, Vec<_>) =
        (depends.difference(&said).collect(), said.difference(depends).collect());
    if !lacking.is_empty() {
        fault(format!("depends on {}, which its row does not name", list(lacking)));
    }
    if !wrong.is_empty() {
        fault(format!("does not depend on {}, which its row names", list(wrong)));
    }
    let below: Vec<_> = depends.difference(above).collect();
    if !below.is_empty() {
        fault(format!("stands above {}, on which it depends", list(below)));
    }
    faults
}

/// The crates of the workspace that a package depends on.
fn dependencies(workspace: &Workspace, package: &Package) -> BTreeSet<String> {
    let normal = package.dependencies.iter().filter(|dependency| dependency.kind.is_none());
    let packages = normal.filter_map(|dependency| workspace.package_in(dependency.path.as_deref()?));
    packages.map(|package| last_part(&workspace.directory_of(package))).collect()
}

fn last_part(directory: &str) -> String {
    directory.rsplit('/').next().unwrap_or(directory).to_owned()
}
