//! The command line of `cargo xtask`.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use xtask::{Findings, Sources, Workspace, check_dependencies, check_structure};

const USAGE: &str = "usage: cargo xtask [structure] [dependencies]

Checks of the repository; without an argument, all of them.

  structure     crates depend on each other, and files use each other, as ARCHITECTURE.md says
  dependencies  the code uses each dependency that a manifest names";

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run() -> Result<ExitCode> {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        names = vec!["structure".into(), "dependencies".into()];
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in no workspace")?;
    let workspace = Workspace::read(root)?;
    let (mut sources, mut faults) = (Sources::default(), 0);
    for name in names {
        let findings = match name.as_str() {
            "structure" => check_structure(&workspace, &mut sources)?,
            "dependencies" => check_dependencies(&workspace, &mut sources)?,
            "help" | "-h" | "--help" => {
                println!("{USAGE}");
                continue;
            }
            _ => bail!("there is no check `{name}`\n\n{USAGE}"),
        };
        faults += findings.faults.len();
        print(&name, &findings);
    }
    Ok(if faults == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(name: &str, findings: &Findings) {
    for fault in &findings.faults {
        println!("{fault}");
    }
    if findings.faults.is_empty() {
        println!("{name}: {}", findings.summary);
    }
}
