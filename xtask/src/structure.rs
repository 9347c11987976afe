//! `cargo xtask structure`: the code has the structure that ARCHITECTURE.md describes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::circles::circles;
use crate::table::tables;
use crate::tree::{Sources, Tree};
use crate::uses::{FileUses, collect};
use crate::workspace::{Findings, Package, Workspace};
use crate::{crates, folders};

/// Compares the crates and the files with the tables of ARCHITECTURE.md, and finds circles of files.
///
/// # Errors
///
/// If a file cannot be read or parsed.
pub fn check_structure(workspace: &Workspace, sources: &mut Sources) -> Result<Findings> {
    let document = workspace.root.join("ARCHITECTURE.md");
    let text =
        std::fs::read_to_string(&document).with_context(|| format!("cannot read {}", document.display()))?;
    let tables = tables(&text);
    let mut faults = crates::check(workspace, &tables);
    let (mut file_count, mut use_count) = (0, 0);
    for package in &workspace.packages {
        let uses = uses_of(sources, package)?;
        file_count += uses.len();
        use_count += uses.values().map(BTreeMap::len).sum::<usize>();
        faults.extend(undeclared(workspace, package, &uses, sources)?);
        faults.extend(circle_faults(workspace, package, &uses));
        faults.extend(folders::check(workspace, package, &uses, &tables));
    }
    faults.extend(folders::unknown(workspace, &tables));
    let crates = workspace.packages.len();
    let summary = format!(
        "{crates} crates as in ARCHITECTURE.md; {file_count} files, {use_count} uses between them, no circle"
    );
    Ok(Findings { faults, summary })
}

/// What the files of a package's library and binaries use, without tests.
fn uses_of(sources: &mut Sources, package: &Package) -> Result<FileUses> {
    let mut uses = FileUses::new();
    for target in package.targets.iter().filter(|target| target.is_product()) {
        for (file, used) in collect(Tree::load(sources, &target.src_path, false)?).files {
            uses.entry(file).or_default().extend(used);
        }
    }
    Ok(uses)
}

/// Files beside the modules of a package that no `mod` declares.
fn undeclared(
    workspace: &Workspace,
    package: &Package,
    uses: &FileUses,
    sources: &mut Sources,
) -> Result<Vec<String>> {
    let mut declared: BTreeSet<PathBuf> = uses.keys().cloned().collect();
    for target in package.targets.iter().filter(|target| target.is_product()) {
        let tree = Tree::load(sources, &target.src_path, true)?;
        declared.extend(tree.files.iter().map(|file| file.path.clone()));
    }
    let mut files = Vec::new();
    rust_files(&package.directory().join("src"), &mut files)?;
    let lost = files.iter().filter(|file| !declared.contains(*file));
    Ok(lost.map(|file| format!("{}: no module declares this file", workspace.relative(file))).collect())
}

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    if !directory.is_dir() {
        return Ok(());
    }
    let mut entries = std::fs::read_dir(directory)?.collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

fn circle_faults(workspace: &Workspace, package: &Package, uses: &FileUses) -> Vec<String> {
    let graph = uses.iter().map(|(file, used)| (file.clone(), used.keys().cloned().collect())).collect();
    let mut found = circles(&graph);
    found.sort();
    let directory = workspace.directory_of(package);
    found.iter().map(|circle| circle_fault(workspace, &directory, circle, uses)).collect()
}

/// Names the files of a circle, and for each use between them the first line that has it.
fn circle_fault(
    workspace: &Workspace,
    directory: &str,
    circle: &BTreeSet<PathBuf>,
    uses: &FileUses,
) -> String {
    let sources = workspace.root.join(directory).join("src");
    let short = |file: &Path| file.strip_prefix(&sources).unwrap_or(file).display().to_string();
    let files: Vec<String> = circle.iter().map(|file| short(file)).collect();
    let mut fault =
        format!("{directory}: {} files use each other in a circle: {}", circle.len(), files.join(", "));
    for file in circle {
        for (used, example) in uses[file].iter().filter(|(used, _)| circle.contains(*used)) {
            let place = format!("{}:{}", workspace.relative(file), example.line);
            fault += &format!("\n    {place} uses {} of {}", example.path, short(used));
        }
    }
    fault
}
