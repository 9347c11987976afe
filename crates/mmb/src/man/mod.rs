//! The man pages, in roff: mmb(1) from the definitions of the command line, mmb-policy(5) from the reference of the
//! language. `mmb man` prints them; `make doc` writes them to docs/man.

mod command;
mod page;
mod policy;

use crate::cli::{ManArgs, ManPage};
use crate::output;
use std::process::ExitCode;

/// Prints a page.
///
/// # Errors
/// The page cannot be made.
pub(crate) fn main(args: &ManArgs) -> anyhow::Result<ExitCode> {
    let page = match args.page {
        ManPage::Mmb => command::page()?,
        ManPage::MmbPolicy => policy::page(),
    };
    output::print(&page);
    Ok(ExitCode::SUCCESS)
}
