//! `cargo xtask dependencies`: the crates use each dependency that their manifests name.
//!
//! A crate uses a dependency if a path in its code begins with the dependency's name. The package of a
//! dependency that no path names, as one that is there for a feature, gives the reason in its manifest:
//!
//! ```toml
//! [package.metadata.structure.keeps]
//! name = "why"
//! ```

use std::collections::BTreeSet;

use anyhow::{Context, Result};

use crate::tree::{Sources, Tree};
use crate::uses::collect;
use crate::workspace::{Dependency, Findings, Package, Workspace};

/// The names of crates in the code of a package.
#[derive(Default)]
struct Names {
    /// In the library and the binaries, without tests.
    product: BTreeSet<String>,
    /// In these, and in tests, examples, benchmarks and the examples of the documentation.
    with_tests: BTreeSet<String>,
    build_script: BTreeSet<String>,
}

/// Finds dependencies that no code uses, or only tests.
///
/// # Errors
///
/// If a file cannot be read or parsed.
pub fn check_dependencies(workspace: &Workspace, sources: &mut Sources) -> Result<Findings> {
    let (mut faults, mut count) = (Vec::new(), 0);
    for package in &workspace.packages {
        let names = names_in(sources, package)?;
        faults.extend(check(workspace, package, &names));
        count += package.dependencies.len();
    }
    faults.extend(unused_of_workspace(workspace)?);
    Ok(Findings { faults, summary: format!("{count} dependencies, all in use") })
}

fn names_in(sources: &mut Sources, package: &Package) -> Result<Names> {
    let mut names = Names::default();
    for target in &package.targets {
        let root = &target.src_path;
        if target.is_build_script() {
            names.build_script.extend(collect(Tree::load(sources, root, false)?).external);
            continue;
        }
        names.with_tests.extend(collect(Tree::load(sources, root, true)?).external);
        if target.is_product() {
            names.product.extend(collect(Tree::load(sources, root, false)?).external);
        }
    }
    Ok(names)
}

fn check(workspace: &Workspace, package: &Package, names: &Names) -> Vec<String> {
    let directory = workspace.directory_of(package);
    let keeps = package.keeps();
    let mut faults = Vec::new();
    for dependency in &package.dependencies {
        let name = name_in_code(workspace, dependency);
        let kept = keeps.contains_key(key_of(dependency));
        let fault = match dependency.kind.as_deref() {
            Some("build") if !names.build_script.contains(&name) => "the build script does not use",
            Some("dev") if !names.with_tests.contains(&name) => "no test, example or benchmark uses",
            None if !names.with_tests.contains(&name) => "no code uses",
            None if !names.product.contains(&name) => "only tests use",
            _ if kept => "the code uses and `keeps` need not name",
            _ => continue,
        };
        if !kept || fault.contains("keeps") {
            faults.push(format!("{directory}/Cargo.toml: {fault} the dependency {}", key_of(dependency)));
        }
    }
    for (name, reason) in keeps {
        if !package.dependencies.iter().any(|dependency| key_of(dependency) == name) {
            faults.push(format!("{directory}/Cargo.toml: `keeps` names {name}, which is no dependency"));
        }
        if reason.trim().is_empty() {
            faults.push(format!("{directory}/Cargo.toml: `keeps` gives no reason for {name}"));
        }
    }
    faults
}

/// The name of a dependency in its manifest.
fn key_of(dependency: &Dependency) -> &str {
    dependency.rename.as_deref().unwrap_or(&dependency.name)
}

/// The name of a dependency in code. A crate from a registry is taken to have a library of the same name.
fn name_in_code(workspace: &Workspace, dependency: &Dependency) -> String {
    let package = dependency.path.as_deref().and_then(|path| workspace.package_in(path));
    let library = package.and_then(|package| package.targets.iter().find(|target| target.is_library()));
    let name = match (&dependency.rename, library) {
        (Some(name), _) => name,
        (None, Some(library)) => &library.name,
        (None, None) => &dependency.name,
    };
    name.replace('-', "_")
}

/// Entries of `[workspace.dependencies]` that no crate names.
fn unused_of_workspace(workspace: &Workspace) -> Result<Vec<String>> {
    let manifest = workspace.root.join("Cargo.toml");
    let text =
        std::fs::read_to_string(&manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
    let dependencies = workspace.packages.iter().flat_map(|package| &package.dependencies);
    let named: BTreeSet<&str> = dependencies.map(key_of).collect();
    let mut inside = false;
    let mut faults = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.starts_with('[') {
            inside = line.trim() == "[workspace.dependencies]";
        } else if inside && let Some(key) = key_of_line(line).filter(|key| !named.contains(key)) {
            faults.push(format!("Cargo.toml:{}: no crate has the dependency {key}", at + 1));
        }
    }
    Ok(faults)
}

/// The key of a line `key = …` or `key.part = …`.
fn key_of_line(line: &str) -> Option<&str> {
    let (key, _) = line.split_once('=')?;
    let key = key.split('.').next()?.trim();
    let is_name = |char: char| char.is_alphanumeric() || char == '-' || char == '_';
    (!key.is_empty() && key.chars().all(is_name)).then_some(key)
}
