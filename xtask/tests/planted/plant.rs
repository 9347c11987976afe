//! Workspaces in a temporary directory.

use std::path::Path;

use tempfile::TempDir;
use xtask::{Sources, Workspace, check_dependencies, check_structure};

/// A workspace whose crates lie in `crates/`.
pub(crate) struct Plant {
    directory: TempDir,
}

impl Plant {
    pub(crate) fn new() -> Self {
        let plant = Self { directory: TempDir::new().unwrap() };
        plant.file("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n").table(&[])
    }

    /// Writes a file; a second one of the same path replaces the first.
    pub(crate) fn file(self, path: &str, text: &str) -> Self {
        let path = self.directory.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    /// Adds a crate: what its manifest has beyond the name, and files in its directory.
    pub(crate) fn with_crate(self, name: &str, manifest: &str, files: &[(&str, &str)]) -> Self {
        let package = format!("[package]\nname = \"mmb-{name}\"\nedition = \"2024\"\n{manifest}");
        let plant = self.file(&format!("crates/{name}/Cargo.toml"), &package);
        let plant = plant.file(&format!("crates/{name}/src/lib.rs"), "");
        files.iter().fold(plant, |plant, (path, text)| plant.file(&format!("crates/{name}/{path}"), text))
    }

    /// Writes ARCHITECTURE.md with this table of crates: their names, and what each depends on.
    pub(crate) fn table(self, rows: &[(&str, &str)]) -> Self {
        let rows: String = rows
            .iter()
            .map(|(name, depends)| format!("| `crates/{name}` | a thing | {depends} |\n"))
            .collect();
        self.file(
            "ARCHITECTURE.md",
            &format!("# A\n\n| crate | holds | depends on |\n| --- | --- | --- |\n{rows}"),
        )
    }

    /// The faults of `cargo xtask structure`.
    pub(crate) fn structure(&self) -> Vec<String> {
        check_structure(&self.workspace(), &mut Sources::default()).unwrap().faults
    }

    /// The faults of `cargo xtask dependencies`.
    pub(crate) fn dependencies(&self) -> Vec<String> {
        check_dependencies(&self.workspace(), &mut Sources::default()).unwrap().faults
    }

    fn workspace(&self) -> Workspace {
        Workspace::read(Path::new(self.directory.path())).unwrap()
    }
}
