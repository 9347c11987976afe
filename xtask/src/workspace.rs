//! The packages of a workspace, as `cargo metadata` lists them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// The result of a check.
pub struct Findings {
    /// What is wrong, for a person to read. A fault may have several lines.
    pub faults: Vec<String>,
    /// What was checked, for the case that there are no faults.
    pub summary: String,
}

/// A workspace and its packages.
pub struct Workspace {
    /// The directory of the workspace.
    pub(crate) root: PathBuf,
    pub(crate) packages: Vec<Package>,
}

/// A member of the workspace.
#[derive(Deserialize)]
pub(crate) struct Package {
    pub(crate) manifest_path: PathBuf,
    pub(crate) targets: Vec<Target>,
    pub(crate) dependencies: Vec<Dependency>,
    metadata: Option<Metadata>,
}

/// What cargo compiles as one crate: a library, a binary, a test, an example, a benchmark or a build script.
#[derive(Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
    pub(crate) src_path: PathBuf,
}

#[derive(Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Option<String>,
    pub(crate) rename: Option<String>,
    pub(crate) path: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Metadata {
    structure: Option<StructureMetadata>,
}

/// `[package.metadata.structure]` of a manifest.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct StructureMetadata {
    /// Whether ARCHITECTURE.md must have a table that orders the files of the package.
    ordered_files: bool,
    /// Dependencies that no code names, and why the package has them.
    keeps: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Listing {
    packages: Vec<Package>,
}

impl Workspace {
    /// Reads the manifests of the workspace in `root`. It needs no network.
    ///
    /// # Errors
    ///
    /// If cargo refuses a manifest, or cannot run.
    pub fn read(root: &Path) -> Result<Self> {
        let root = root.canonicalize().with_context(|| format!("no directory {}", root.display()))?;
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"])
            .arg(root.join("Cargo.toml"))
            .output()
            .context("cannot run cargo metadata")?;
        if !output.status.success() {
            bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        }
        let mut packages =
            serde_json::from_slice::<Listing>(&output.stdout).context("cargo metadata")?.packages;
        packages.sort_by(|a, b| a.manifest_path.cmp(&b.manifest_path));
        Ok(Self { root, packages })
    }

    /// A path as it is written in reports: relative to the workspace.
    pub(crate) fn relative(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }

    /// The directory of a package, relative to the workspace.
    pub(crate) fn directory_of(&self, package: &Package) -> String {
        self.relative(package.directory())
    }

    /// The package in a directory.
    pub(crate) fn package_in(&self, directory: &Path) -> Option<&Package> {
        self.packages.iter().find(|package| package.directory() == directory)
    }
}

impl Package {
    pub(crate) fn directory(&self) -> &Path {
        self.manifest_path.parent().expect("a manifest lies in a directory")
    }

    /// Dependencies that no code names, and why the package has them.
    pub(crate) fn keeps(&self) -> BTreeMap<String, String> {
        self.structure().map_or_else(BTreeMap::new, |structure| structure.keeps.clone())
    }

    /// Whether ARCHITECTURE.md must have a table that orders the files of the package.
    pub(crate) fn has_ordered_files(&self) -> bool {
        self.structure().is_some_and(|structure| structure.ordered_files)
    }

    fn structure(&self) -> Option<&StructureMetadata> {
        self.metadata.as_ref()?.structure.as_ref()
    }
}

impl Target {
    pub(crate) fn is_library(&self) -> bool {
        self.is_product() && !self.kind.iter().any(|kind| kind == "bin")
    }

    /// Whether the target is the library or a binary of its package.
    pub(crate) fn is_product(&self) -> bool {
        !self.kind.iter().any(|kind| matches!(kind.as_str(), "test" | "bench" | "example" | "custom-build"))
    }

    pub(crate) fn is_build_script(&self) -> bool {
        self.kind.iter().any(|kind| kind == "custom-build")
    }
}
