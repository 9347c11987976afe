//! `mmb run`: live ports, packet threads, the control socket.

use crate::cli::{Global, RunArgs};
use std::process::ExitCode;

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// What keeps it from starting.
pub(crate) fn main(args: &RunArgs, global: &Global) -> anyhow::Result<ExitCode> {
    let _ = (args, global);
    anyhow::bail!("live ports are not available yet")
}
